"""Public pseudo-counts as the prior: docs/public_prior.md."""

import math

import numpy as np
import pytest
from shared_cases import meanings

from dplda import PrivateSVILDA, SubLDA, public_prior
from dplda.datasets import make_topic_corpus
from dplda.metrics import held_out_scores
from dplda.privacy import Ledger, LowSignalWarning

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


@pytest.fixture(scope="module")
def few():
    """Private and held-out documents, the topics of 60 public ones, and meanings."""
    made = make_topic_corpus(1000, 400, 8, doc_length=60, random_state=3)
    prior = public_prior(made.data[:60], n_components=8, random_state=0)
    return made.data[60:800], made.data[800:], prior, meanings(made)


def gain(table, few):
    return held_out_scores(table, few[1]).new_word_gain


def gains(few, n_seeds=3, **options):
    """What a model says of new words, mean of seeds."""
    fits = [
        SubLDA(8, **(OPTIONS | options), random_state=seed).fit(few[0])
        for seed in range(n_seeds)
    ]
    return np.mean([gain(model.components_, few) for model in fits])


def test_noise_takes_little_from_public_topics(few):
    """Of what the noisy rounds add, a fit keeps what its test confirms.

    If it keeps all, it says 85% of what the public topics say alone.
    """
    prior = few[2]
    private = gains(few, prior_components=prior, epsilon=0.25)
    assert private > 0.9 * gain(prior + 0.1, few)
    assert gains(few, prior_components=prior, epsilon=4.0) > gain(prior + 0.1, few)


def test_vectors_say_more_of_words_that_are_rare_in_public_texts(few):
    *_, prior, vectors = few
    alone = gains(few, prior_components=prior, epsilon=0.25)
    both = gains(few, prior_components=prior, word_vectors=vectors, epsilon=0.25)
    assert both > alone + 0.02
    wrong = np.random.default_rng(1).permutation(vectors)
    other = gains(few, prior_components=prior, word_vectors=wrong, epsilon=0.25)
    assert other > alone - 0.03


def test_word_frequencies_alone_do_not_replace_topics(few):
    even = np.tile(few[2].sum(axis=0) / 8, (8, 1))
    found = gains(few, n_seeds=1, prior_components=even, epsilon=4.0)
    assert found > 0.7 * gains(few, n_seeds=1, epsilon=4.0)


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
    "documents, or only of releases that are charged in addition",
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


def test_a_vocabulary_without_released_weights_makes_no_prior():
    with pytest.raises(
        ValueError, match="or a fitted PrivateCountVectorizer as vocabulary"
    ):
        public_prior(vocabulary=["heart", "bone"])


@both
def test_a_fit_whose_rounds_are_nearly_all_for_totals_ends_with_topics(kind, train):
    options = {"epsilon": None, "noise_multiplier": 3000.0, "max_iter": 40}
    with pytest.warns(LowSignalWarning):
        model = fitted(kind, train, **options)
    assert model._released.share_for_totals > 0.98
    assert np.isfinite(model.components_).all()
    assert model.components_std_.min() > 0
    assert model.signal_to_noise_ < 0.1
