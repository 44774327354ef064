"""Public pseudo-counts as the prior: docs/public_prior.md."""

import math
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from dplda import PrivateSVILDA, SubLDA, public_prior
from dplda.datasets import make_topic_corpus
from dplda.document._noisy_table import NoisyTable
from dplda.document._public_words import PublicWords
from dplda.document._table_estimate import TableEstimate, WordTotals
from dplda.privacy import Ledger, LowSignalWarning
from dplda.privacy.mechanisms import Streams

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)
K, N_WORDS = 4, 150
OPTIONS = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "max_iter": 20,
    "n_jobs": 1,
    "subsampling_ratio": 1.0,
}
both = pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
slow = pytest.mark.slow
each = pytest.mark.parametrize(
    "kind", [SubLDA, pytest.param(PrivateSVILDA, marks=slow)]
)


@pytest.fixture(scope="module")
def made():
    return make_topic_corpus(660, N_WORDS, K, doc_length=50, random_state=3)


@pytest.fixture(scope="module")
def train(made):
    return made.data[:600]


@pytest.fixture(scope="module")
def test(made):
    return made.data[600:]


@pytest.fixture(scope="module")
def good(made):
    """Pseudo-counts of about 8000 public tokens with the private documents' topics."""
    topics = made.components / made.components.sum(axis=1, keepdims=True)
    return np.random.default_rng(0).poisson(topics * 8000 / K) + 0.01


@pytest.fixture(scope="module")
def bad(good):
    return good[:, np.random.default_rng(1).permutation(N_WORDS)]


def fitted(kind, X, seed=0, **options):
    return kind(K, random_state=seed, **(OPTIONS | options)).fit(X)


def changes(kind, train, test, table, **options):
    """Logarithm of perplexity with the table over that without it, paired seeds."""
    pairs = [
        [
            fitted(kind, train, seed, prior_components=p, **options).perplexity(test)
            for p in (table, None)
        ]
        for seed in range(2)
    ]
    return np.log([one / other for one, other in pairs])


@each
def test_public_texts_of_the_kind_help_more_than_twice_the_epsilon(
    kind, train, test, good
):
    change = changes(kind, train, test, good)
    single, twice = (
        np.mean(
            [
                np.log(fitted(kind, train, s, epsilon=e).perplexity(test))
                for s in range(2)
            ]
        )
        for e in (1.0, 2.0)
    )
    assert change.max() < 0
    assert change.mean() < twice - single


@each
@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_public_texts_of_another_kind_do_no_harm(kind, train, test, bad):
    for epsilon in (1.0, 8.0) if kind is SubLDA else (2.0,):
        change = changes(kind, train, test, bad, epsilon=epsilon)
        assert change.mean() < 0.01 + 2 * change.std(ddof=1) / math.sqrt(2)


@both
def test_the_prior_is_not_forgotten_after_the_first_round(kind, train, made, good):
    """With much noise and right word frequencies, nearly all known is public."""
    model = fitted(kind, train, epsilon=0.5, prior_components=good)
    shares = good / good.sum(axis=0)
    found = model.components_ / model.components_.sum(axis=0)
    frequent = good.sum(axis=0) > 50
    assert (
        np.corrcoef(shares[:, frequent].ravel(), found[:, frequent].ravel())[0, 1] > 0.9
    )
    alone = fitted(kind, train, epsilon=0.5).components_
    alone /= alone.sum(axis=0)
    assert (
        abs(np.corrcoef(shares[:, frequent].ravel(), alone[:, frequent].ravel())[0, 1])
        < 0.5
    )


def test_attributes_say_how_well_the_texts_match(train, good, bad):
    """Of two rounds, whose rows the noise hides, and of twenty."""
    assert fitted(SubLDA, train, prior_components=good, epsilon=8.0).prior_trust_ > 0.5
    assert fitted(SubLDA, train, prior_components=bad, epsilon=8.0).prior_trust_ < 0.3
    assert fitted(SubLDA, train, max_iter=2).prior_trust_ is None


VECTORS = np.cos(np.outer(np.arange(N_WORDS), np.arange(1, 9)))
ASSUMED = {
    "prior_components": "prior_components is public and was not made of the private "
    "documents, or only of releases that are charged besides",
    "word_vectors": "word_vectors is public, and was not made of the private documents",
}


@pytest.mark.parametrize("name", ASSUMED)
@both
def test_public_tables_change_no_charge_and_are_on_the_card(kind, name, train, good):
    table = good if name == "prior_components" else VECTORS
    one = fitted(kind, train, **{name: table}, max_iter=3)
    other = fitted(kind, train, max_iter=3)
    assert one.privacy_.events == other.privacy_.events
    assert one.epsilon_ == other.epsilon_
    assert one.privacy_.noise_scale == other.privacy_.noise_scale
    assert one.privacy_.sensitivity == other.privacy_.sensitivity
    assert set(one.privacy_.assumptions) - set(other.privacy_.assumptions) == {
        ASSUMED[name]
    }
    origin = {"prior_components": "public prior", "word_vectors": "word vectors"}[name]
    assert (origin, "public by declaration of the caller") in one.privacy_.provenance


@both
def test_what_a_model_keeps_is_public(kind, train, good):
    """Two fits with one table keep equal things of it, whatever the documents are."""
    kept = [
        fitted(kind, X, prior_components=good, max_iter=1)._released.estimate.public
        for X in (train, train[:9])
    ]
    np.testing.assert_array_equal(kept[0].shares, kept[1].shares)
    np.testing.assert_array_equal(kept[0].counts, good.sum(axis=0))
    model = fitted(kind, train, prior_components=good, max_iter=2)
    again = pickle.loads(pickle.dumps(model))
    assert again.prior_trust_ == model.prior_trust_


@both
def test_without_noise_topics_keep_their_places(kind, train, good):
    model = fitted(kind, train, prior_components=good, epsilon=math.inf)
    similarity = np.corrcoef(good, model.components_)[:K, K:]
    np.testing.assert_array_equal(similarity.argmax(axis=1), np.arange(K))


def test_wrong_tables_are_refused_before_anything_is_spent(train, good):
    ledger = Ledger(epsilon=2.0)
    for wrong, said in (
        (good[:2], r"got shape \(2, 150\)"),
        (-good, "numbers from -"),
        (good[:, :5], r"got shape \(4, 5\)"),
        (good * 0, "numbers from 0 to 0"),
        (good * 1e300, r"from 0 to 1e\+12 .* got .*e\+30"),
        (good * np.nan, "prior_components"),
    ):
        model = SubLDA(K, epsilon=2.0, prior_components=wrong, ledger=ledger)
        with pytest.raises(ValueError, match=said):
            model.fit(train)
    assert ledger.epsilon_spent == 0


def noisy_totals(seed, scale=60.0):
    rng = np.random.default_rng(seed)
    totals = rng.permutation(30000 / np.arange(1, 801))
    return totals, totals + rng.normal(0, scale, 800), np.full(800, scale)


def prior_of(counts):
    return PublicWords.of(None, np.tile(np.asarray(counts, float) / K, (K, 1)))


def log_loss(totals, found):
    return -(totals / totals.sum() * np.log(found / found.sum())).sum()


def test_probabilities_in_the_place_of_counts_warn(good):
    with pytest.warns(
        LowSignalWarning, match="sums to 1, so that it counts as one public token"
    ):
        PublicWords.of(None, good / good.sum(axis=1, keepdims=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PublicWords.of(None, good)


def smooth(noisy, scale):
    return WordTotals(noisy, scale, noisy.mean()).smooth()


def learned(public, noisy, scale):
    return public.totals(WordTotals(noisy, scale, noisy.mean()))


def test_released_word_weights_improve_word_totals():
    """A table of them has the frequencies in all topics alike."""
    totals, noisy, scale = noisy_totals(0, 200.0)
    weights = totals / 20 * np.random.default_rng(1).lognormal(0, 0.3, 800)
    vectorizer = SimpleNamespace(
        word_weights_=weights + np.random.default_rng(2).normal(0, 2.0, 800),
        word_weight_scale_=2.0,
        get_feature_names_out=lambda: np.arange(800).astype(str),
    )
    table = public_prior(vocabulary=vectorizer, n_components=K)
    assert table.shape == (K, 800)
    assert (table == table[0]).all()
    found = learned(PublicWords.of(None, table), noisy, scale)
    least, alone = (log_loss(totals, totals), log_loss(totals, smooth(noisy, scale)))
    assert log_loss(totals, found) - least < 0.7 * (alone - least)


def test_a_vocabulary_without_released_weights_makes_no_prior():
    with pytest.raises(
        ValueError, match="or a fitted PrivateCountVectorizer as vocabulary"
    ):
        public_prior(vocabulary=["heart", "bone"])


@pytest.mark.parametrize("seed", range(3))
def test_public_frequencies_are_kept_where_releases_say_little(seed):
    """The estimate loses at most half a percent of perplexity to public frequencies."""
    totals, noisy, _ = noisy_totals(seed, 3000.0)
    public = prior_of(
        np.random.default_rng(seed + 9).poisson(totals / totals.sum() * 50_000)
    )
    found = public.totals(WordTotals(noisy, np.full(800, 3000.0), totals.mean()))
    assert log_loss(totals, found) < log_loss(totals, public.counts + 1) + 0.005


def test_words_without_public_tokens_are_even_in_all_topics():
    shares = PublicWords.of(None, np.array([[0.0, 6.0], [0.0, 0.0], [0.0, 0.0]])).shares
    np.testing.assert_allclose(
        shares, [[1 / 3] * 3, [20 / 24, 2 / 24, 2 / 24]], rtol=1e-6
    )


@pytest.mark.parametrize("n_tokens", [50, 5000, 10**7])
@pytest.mark.parametrize("scale", [1.0, 60.0, 200.0])
def test_other_frequencies_leave_word_totals_as_they_are(n_tokens, scale):
    totals, noisy, scale = noisy_totals(0, scale)
    other = np.random.default_rng(2).permutation(totals)
    public = prior_of(np.random.default_rng(1).poisson(other / other.sum() * n_tokens))
    found, alone = learned(public, noisy, scale), smooth(noisy, scale)
    assert log_loss(totals, found) < log_loss(totals, alone) + 0.01


def test_drowned_cells_are_the_public_ones():
    rng = np.random.default_rng(0)
    totals, shares = rng.gamma(0.3, 500, 301) + 1, rng.dirichlet(np.full(20, 0.3), 301)
    public = PublicWords.of(None, shares.T * 1e6)
    found = TableEstimate(totals, public)(
        totals[:, None] * shares, np.full(301, 1e6), last=True
    )
    found /= found.sum(axis=1, keepdims=True)
    assert np.abs(found - shares).mean() < 0.1 * np.abs(1 / 20 - shares).mean()


def test_the_first_table_is_public_where_words_have_counts():
    rng = np.random.default_rng(0)
    counts = rng.gamma(0.5, 100, (K, 60)) * (np.arange(60) > 9)
    totals = 1 + rng.gamma(1, 100, 60)
    exact, public = (
        WordTotals(totals, np.zeros(60), totals.mean()),
        PublicWords.of(None, counts),
    )
    one, other = (
        NoisyTable.from_totals(
            exact, np.ones(60), K, Streams.from_random_state(0), p
        ).average
        for p in (None, public)
    )
    np.testing.assert_allclose(other[10:], (totals[:, None] * public.shares)[10:])
    np.testing.assert_array_equal(other[:10], one[:10])


@both
def test_a_fit_whose_rounds_are_nearly_all_for_totals_ends_with_topics(kind, train):
    options = {"epsilon": None, "noise_multiplier": 3000.0, "max_iter": 40}
    with pytest.warns(LowSignalWarning):
        model = fitted(kind, train, **options)
    assert model._released.share_for_totals > 0.98
    assert np.isfinite(model.components_).all()
    assert model.components_std_.min() > 0
    assert model.signal_to_noise_ < 0.1
