"""Public pseudo-counts as the prior: docs/public_prior.md."""

import copy
import itertools
import math
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, logit

from dplda import PrivateSVILDA, SubLDA, public_prior
from dplda.core._fold_in import pad
from dplda.datasets import make_topic_corpus
from dplda.document import _table_estimate
from dplda.document._contributions import Documents
from dplda.document._document_budget import DocumentBudget, document_schedule
from dplda.document._noisy_table import NoisyTable
from dplda.document._prior import PublicPrior, count_classes
from dplda.document._table_estimate import (
    FACTORS,
    TableEstimate,
    WordTotals,
    first_prior,
    smooth_totals,
)
from dplda.kernels import _sets
from dplda.privacy import Ledger, LowSignalWarning
from dplda.privacy._streams import Streams

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)
K, N_WORDS = 4, 150
OPTIONS = {"epsilon": 1.0, "delta": 1e-5, "max_iter": 20, "n_jobs": 1, "subsampling_ratio": 1.0}
both = pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
slow = pytest.mark.slow
each = pytest.mark.parametrize("kind", [SubLDA, pytest.param(PrivateSVILDA, marks=slow)])


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
    """Pseudo-counts of about 8000 public tokens with the topics of the private documents."""
    topics = made.components / made.components.sum(axis=1, keepdims=True)
    return np.random.default_rng(0).poisson(topics * 8000 / K) + 0.01


@pytest.fixture(scope="module")
def bad(good):
    """As many tokens of other words."""
    return good[:, np.random.default_rng(1).permutation(N_WORDS)]


def fitted(kind, X, seed=0, **options):
    return kind(K, random_state=seed, **(OPTIONS | options)).fit(X)


def changes(kind, train, test, table, **options):
    """Logarithm of the perplexity with the table over that without it, of two paired seeds."""
    pairs = [
        [fitted(kind, train, seed, prior_components=p, **options).perplexity(test)
         for p in (table, None)] for seed in range(2)
    ]  # fmt: skip
    return np.log([one / other for one, other in pairs])


# ---- what it promises ---------------------------------------------------------------------


@each
def test_public_texts_of_the_kind_help_more_than_twice_the_epsilon(kind, train, test, good):
    change = changes(kind, train, test, good)
    single, twice = (
        np.mean([np.log(fitted(kind, train, s, epsilon=e).perplexity(test)) for s in range(2)])
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
    """With much noise and correct word frequencies, nearly all that is known is public."""
    model = fitted(kind, train, epsilon=0.5, prior_components=good)
    shares = good / good.sum(axis=0)
    found = model.components_ / model.components_.sum(axis=0)
    frequent = good.sum(axis=0) > 50
    assert np.corrcoef(shares[:, frequent].ravel(), found[:, frequent].ravel())[0, 1] > 0.9
    alone = fitted(kind, train, epsilon=0.5).components_
    alone /= alone.sum(axis=0)
    assert abs(np.corrcoef(shares[:, frequent].ravel(), alone[:, frequent].ravel())[0, 1]) < 0.5


def test_attributes_say_how_well_the_texts_match(train, good, bad):
    model = fitted(SubLDA, train, prior_components=good, max_iter=2)
    assert 0.35 < model.prior_trust_ <= 1
    assert model.prior_trust_ >= 0.5
    with pytest.warns(LowSignalWarning, match="prior_components=None"):
        model = fitted(SubLDA, train, prior_components=bad, max_iter=2, epsilon=8.0)
    assert 0 <= model.prior_trust_ < 0.1
    model = fitted(SubLDA, train, max_iter=2)
    assert model.prior_trust_ is None


@both
def test_a_prior_changes_no_charge(kind, train, good):
    one = fitted(kind, train, prior_components=good, max_iter=3)
    other = fitted(kind, train, max_iter=3)
    assert one.privacy_.events == other.privacy_.events
    assert one.epsilon_ == other.epsilon_
    assert one.privacy_.noise_scale == other.privacy_.noise_scale
    assert one.privacy_.sensitivity == other.privacy_.sensitivity
    assert set(one.privacy_.assumptions) - set(other.privacy_.assumptions) == {
        "prior_components is public and was not made of the private documents, or "
        "only of releases that are charged besides"
    }


@both
def test_what_a_model_keeps_is_public(kind, train, good):
    """Two fits with one table keep equal things of it, whatever the documents are."""
    kept = [
        fitted(kind, X, prior_components=good, max_iter=1)._released.public
        for X in (train, train[:9])
    ]
    np.testing.assert_array_equal(kept[0].shares, kept[1].shares)
    np.testing.assert_array_equal(kept[0].counts, good.sum(axis=0))
    model = fitted(kind, train, prior_components=good, max_iter=2)
    again = pickle.loads(pickle.dumps(model))
    assert again.prior_trust_ == model.prior_trust_


@both
def test_partial_fit_goes_on_with_the_prior(kind, train, good):
    model = kind(K, random_state=0, **OPTIONS, prior_components=good).partial_fit(train)
    trust = model.prior_trust_
    assert trust > 0.35
    model.set_params(prior_components=None).partial_fit(train)
    assert model.prior_trust_ == trust
    assert model._released.estimate.prior.shape[1] == 2 * len(FACTORS)


@both
def test_any_number_of_threads_gives_the_same_model(kind, train, good):
    one, two = (
        fitted(kind, train, prior_components=good, max_iter=3, n_jobs=n).components_ for n in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


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


# ---- word totals ---------------------------------------------------------------------------


def noisy_totals(seed, scale=60.0):
    rng = np.random.default_rng(seed)
    totals = rng.permutation(30000 / np.arange(1, 801))
    return totals, totals + rng.normal(0, scale, 800), np.full(800, scale)


def prior_of(counts):
    return PublicPrior.from_table(np.tile(np.asarray(counts, float) / K, (K, 1)))


def log_loss(totals, found):
    return -(totals / totals.sum() * np.log(found / found.sum())).sum()


def test_probabilities_in_the_place_of_counts_warn(good):
    with pytest.warns(LowSignalWarning, match="sums to 1, so that it counts as one public token"):
        PublicPrior.from_table(good / good.sum(axis=1, keepdims=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PublicPrior.from_table(good)


def learned(public, noisy, scale):
    return public.learn_totals(WordTotals(noisy, scale, noisy.mean()))


def test_public_frequencies_improve_word_totals():
    totals, noisy, scale = noisy_totals(0)
    public = prior_of(np.random.default_rng(1).poisson(totals / totals.sum() * 50_000))
    found, alone = learned(public, noisy, scale), smooth_totals(noisy, scale)
    least = log_loss(totals, totals)
    assert log_loss(totals, found) - least < 0.5 * (log_loss(totals, alone) - least)
    assert public.trust > 0.5


def test_released_word_weights_improve_word_totals():
    """A table of them has the frequencies in all topics alike."""
    totals, noisy, scale = noisy_totals(0, 200.0)
    weights = totals / 20 * np.random.default_rng(1).lognormal(0, 0.3, 800)
    vectorizer = SimpleNamespace(
        word_weights_=weights + np.random.default_rng(2).normal(0, 2.0, 800),
        word_weight_scale_=2.0, get_feature_names_out=lambda: np.arange(800).astype(str),
    )  # fmt: skip
    table = public_prior(vocabulary=vectorizer, n_components=K)
    assert table.shape == (K, 800)
    assert (table == table[0]).all()
    found = learned(PublicPrior.from_table(table), noisy, scale)
    least, alone = log_loss(totals, totals), log_loss(totals, smooth_totals(noisy, scale))
    assert log_loss(totals, found) - least < 0.7 * (alone - least)


def test_a_vocabulary_without_released_weights_makes_no_prior():
    with pytest.raises(ValueError, match="or a fitted PrivateCountVectorizer as vocabulary"):
        public_prior(vocabulary=["heart", "bone"])


@pytest.mark.parametrize("seed", range(3))
def test_public_frequencies_are_kept_where_releases_say_little(seed):
    """The estimate loses at most half a percent of perplexity to the public frequencies."""
    totals, noisy, _ = noisy_totals(seed, 3000.0)
    public = prior_of(np.random.default_rng(seed + 9).poisson(totals / totals.sum() * 50_000))
    found = public.learn_totals(WordTotals(noisy, np.full(800, 3000.0), totals.mean()))
    assert log_loss(totals, found) < log_loss(totals, public.frequencies) + 0.005
    assert public.trust > 0.9


def test_topics_are_doubted_where_releases_are_clear():
    """Wrong topics of words with right frequencies do harm where a fit without them is good."""
    beliefs = []
    for scale in (1.0, 100.0, 3000.0):
        totals, noisy, noise_scale = noisy_totals(0, scale)
        public = prior_of(totals)
        learned(public, noisy, noise_scale)
        beliefs.append(public.belief)
        assert public.trust_of_words().max() <= beliefs[-1]
    assert 0.89 < beliefs[0] < beliefs[1] < beliefs[2] < 1


def test_words_that_the_public_texts_lack_do_not_lower_the_trust_in_the_others():
    """A few public texts lack many words. The topics of the words that they have are as good."""
    totals, noisy, scale = noisy_totals(0, 3000.0)
    counts = totals * (np.random.default_rng(1).random(800) < 0.6)
    public = prior_of(counts)
    learned(public, noisy, scale)
    assert public.trust < 0.75 < 0.9 < public.agreement
    assert public.trust_of_words()[counts > 0].min() > 0.95
    assert public.trust_of_words()[counts == 0].max() == 0


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_no_trust_is_negative(seed):
    """Rounding errors of posterior probabilities are as large as a trust of nothing."""
    totals = np.random.default_rng(seed).uniform(500, 1000, 20)
    public = prior_of(np.geomspace(1, 1e9, 20))
    learned(public, totals, np.full(20, 1e-3))
    assert 0 <= public.trust < 1e-9
    assert 0 <= public.trust_of_words().min() < 1e-9


@pytest.mark.parametrize("agreement", [0.0, 0.2, 0.5, 0.75, 1.0])
def test_trust_in_topics_is_larger_where_releases_are_noise(agreement):
    noise, between, clear = (
        PublicPrior(
            np.ones(2), np.ones((2, 1)), 0.8 * agreement, agreement=agreement, clear=c, slope=0.2,
            slope_error=0.01,
        ).trust_of_words()[0] for c in (0.0, 0.5, 1.0)
    )  # fmt: skip
    assert clear == pytest.approx(min(0.8 * agreement, 0.7))
    if 0.5 < agreement < 1:
        assert 0.95 < noise < 1
    else:
        assert noise == pytest.approx(agreement)
    assert clear < between < noise or agreement == 0


def test_words_without_public_tokens_are_even_in_all_topics():
    shares = PublicPrior.from_table(np.array([[0.0, 6.0], [0.0, 0.0], [0.0, 0.0]])).shares
    np.testing.assert_allclose(shares, [[1 / 3] * 3, [20 / 24, 2 / 24, 2 / 24]], rtol=1e-6)


def test_words_of_few_public_texts_get_as_many_tokens_as_their_dispersion_says():
    """Where all words are equally frequent, the largest number; where few are, the least."""
    for counts, tokens in ((np.full(50, 7.0), 2.0), (700.0 * (np.arange(50) == 3), 0.5)):
        np.testing.assert_allclose(prior_of(counts).smoothed - counts, tokens)


@pytest.mark.parametrize("n_tokens", [50, 5000, 10**7])
@pytest.mark.parametrize("scale", [1.0, 60.0, 200.0])
def test_other_frequencies_leave_word_totals_as_they_are(n_tokens, scale):
    totals, noisy, scale = noisy_totals(0, scale)
    other = np.random.default_rng(2).permutation(totals)
    public = prior_of(np.random.default_rng(1).poisson(other / other.sum() * n_tokens))
    found, alone = learned(public, noisy, scale), smooth_totals(noisy, scale)
    assert log_loss(totals, found) < log_loss(totals, alone) + 0.01
    assert public.trust < 0.35


def test_exact_totals_are_kept():
    totals, _, _ = noisy_totals(0)
    public = prior_of(totals)
    np.testing.assert_array_equal(learned(public, totals, np.zeros(800)), totals)
    assert public.trust > 0.85


def test_words_with_equal_counts_share_a_class():
    assert set(count_classes(np.zeros(50))) == {0}
    counts = np.repeat([0, 0, 0, 1, 7, 9], 10)
    classes = count_classes(counts)
    assert all(len(set(classes[counts == c])) == 1 for c in set(counts))
    assert (np.diff(classes) >= 0).all()
    assert len(set(count_classes(np.arange(600)))) == 6


# ---- the estimate of the table -------------------------------------------------------------

SHAPES = [(1, 1), (37, 1), (50, 16), (301, 20), (90, 40)]


def believed(shares, trust):
    """A prior whose topics are trusted so far."""
    agreement = trust if trust <= 0.5 else expit(logit(trust) / 4)  # of releases that are noise
    return PublicPrior(np.ones(len(shares)), shares, agreement=agreement)


def any_table(n_words, n_topics, scale=3.0, trust=0.6):
    rng = np.random.default_rng(0)
    totals = rng.gamma(0.3, 500, n_words) + 1
    shares = rng.dirichlet(np.full(n_topics, 0.3), n_words)
    table = totals[:, None] * shares * rng.choice(FACTORS[4:9], shares.shape)
    noise_scale = scale * rng.uniform(0.3, 1, n_words)
    public = believed(shares.astype(np.float32), trust)
    public.counts = totals
    return totals, public, table + noise_scale[:, None] * rng.normal(size=table.shape), noise_scale


def three(estimate, noisy, noise_scale, **options):
    return [
        np.array(estimate(noisy, noise_scale, last=last, least=0.01, **options))
        for last in (False, False, True)
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_estimate_is_the_same_for_any_set_and_number_of_threads(
    shape, monkeypatch, instruction_sets
):
    monkeypatch.setattr(_table_estimate, "PIECE", 200)
    monkeypatch.setattr(_table_estimate, "SAMPLE", 200)
    totals, public, noisy, noise_scale = any_table(*shape)
    results = []
    for name, n_jobs in itertools.product(instruction_sets, (1, 2)):
        _sets.use(name)
        estimate = TableEstimate(totals, public, n_jobs=n_jobs)
        results.append(three(estimate, noisy, noise_scale))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_drowned_cells_are_the_public_ones():
    totals, public, noisy, _ = any_table(301, 20, trust=1.0)
    noisy = totals[:, None] * public.shares
    found = TableEstimate(totals, public)(noisy, np.full(301, 1e6))
    shares = found / found.sum(axis=1, keepdims=True)
    assert np.abs(shares - public.shares).mean() < 0.1 * np.abs(1 / 20 - public.shares).mean()


def test_the_first_weights():
    words = np.arange(2)
    assert first_prior(None, words) == pytest.approx(np.full(14, 1 / 14))
    for trust in (0.0, 0.3, 1.0):
        weights = first_prior(believed(np.ones((2, 1), np.float32), trust), words)
        assert weights.sum() == pytest.approx(1)
        assert weights[14:].sum() == pytest.approx(trust)
        for half in (weights[:14], weights[14:]):
            assert half @ FACTORS == pytest.approx(half.sum(), rel=1e-3)


def test_the_first_table_is_public_as_far_as_it_is_trusted():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(K), 60).astype(np.float32)
    totals, tables = rng.gamma(1, 100, 60), []
    for trust, seed in itertools.product((0.0, 0.5, 1.0), (0, 1)):
        public = believed(shares, trust)
        streams = Streams.from_random_state(seed)
        made = NoisyTable.from_totals(totals, np.ones(60), K, streams, public=public)
        tables.append(made.average)
    np.testing.assert_allclose(tables[4], totals[:, None] * shares, rtol=1e-6)
    np.testing.assert_allclose(tables[2], (tables[0] + tables[4]) / 2, rtol=1e-6)
    for one, other in zip(tables[::2], tables[1::2]):  # no private seed enters it
        np.testing.assert_array_equal(one, other)


def test_the_table_of_a_copy_is_its_own(train, good):
    model = fitted(SubLDA, train, prior_components=good, max_iter=2)
    before = model._released.estimate.prior.copy()
    other = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other.set_params(epsilon=None, noise_multiplier=5.0)
        other.partial_fit(train)
    np.testing.assert_array_equal(model._released.estimate.prior, before)


# ---- rounds that examine the public topics --------------------------------------------------


@pytest.fixture(scope="module")
def made_up(good):
    """The word frequencies of the private documents, with the topics of each word permuted."""
    return np.random.default_rng(2).permuted(good, axis=0)


def examined(slope, noise, n_words=400, seed=0):
    """A prior after rows whose contrasts are `slope` times the public ones, and noise."""
    rng = np.random.default_rng(seed)
    counts, shares = rng.gamma(0.5, 100, n_words), rng.dirichlet(np.full(K, 0.3), n_words)
    counts[::7] = 0
    public = PublicPrior(counts, shares.astype(np.float32), clear=0.5)
    totals, noise_scale = rng.gamma(0.5, 200, n_words), noise * rng.uniform(0.5, 2, n_words)
    rows = totals[:, None] * (rng.dirichlet(np.ones(K)) + slope * shares)  # any sizes of topics
    rows += noise_scale[:, None] * rng.normal(size=rows.shape)
    rows[~public.examined] = np.nan  # nothing else is read
    public.examine(rows, totals, noise_scale)
    return public


@pytest.mark.parametrize("seed", range(3))
def test_released_rows_tell_real_topics_from_made_up_ones(seed):
    assert examined(0.1, 1.0, seed=seed).belief > 0.999
    assert examined(0.5, 1.0, seed=seed).belief > 0.999  # more than was seen
    for slope in (0.0, 0.005, -0.05):
        assert examined(slope, 1.0, seed=seed).belief < 0.05
    assert 0.1 < examined(0.033, 1e-3, seed=seed).belief < 0.9  # made-up topics have some slope
    for slope in (0.0, 0.1):  # noise says nothing: real topics are more likely
        assert 0.9 < examined(slope, 1e5, seed=seed).belief < 0.99


def test_every_other_word_of_the_public_texts_is_examined():
    counts = np.random.default_rng(0).permutation(np.repeat([0.0, 1.0, 5.0, 80.0], 50))
    words = prior_of(counts).examined
    for n, size in ((0.0, 0), (1.0, 25), (5.0, 25), (80.0, 25)):
        assert words[counts == n].sum() == size


def test_an_examined_word_has_the_same_probability_in_each_topic(good):
    public, totals = PublicPrior.from_table(good), np.random.default_rng(0).gamma(1, 50, N_WORDS)
    streams = Streams.from_random_state(0)
    table = NoisyTable.from_totals(
        totals, np.ones(N_WORDS), K, streams, public=public, n_examining=3
    )
    np.testing.assert_allclose(table.table.sum(axis=1), totals, rtol=1e-5)
    out = pad(np.zeros((N_WORDS, K)))
    words, phi = public.examined, table.word_probabilities(out)[:, :K]
    np.testing.assert_allclose(phi[words], phi[words, :1].repeat(K, axis=1), rtol=1e-5)
    shares = table.center(out)[:, :K]
    np.testing.assert_allclose(shares[~words], public.shares[~words], rtol=1e-5)
    for t, weight in ((3, ~words * 0.0 + words), (4, 1.0)):
        np.testing.assert_array_equal(table.weights_of(SimpleNamespace(t=t)), weight)


@both
def test_topics_of_examined_words_do_not_enter_their_own_evidence(kind, train, good):
    """Else made-up topics would confirm themselves: rounds repeat the topics that they read."""
    good = np.ceil(good)  # whole numbers have the same sum in any order
    other, words = good.copy(), PublicPrior.from_table(good).examined
    other[:, words] = np.random.default_rng(2).permuted(good[:, words], axis=0)
    tables = []
    for table in (good, other):
        model = kind(K, random_state=0, **OPTIONS | {"max_iter": 40}, prior_components=table)
        for _ in range(3):
            model.partial_fit(train)
        assert model._released.n_examining > 3
        tables.append(model._released.average)
    np.testing.assert_array_equal(tables[0], tables[1])


@both
def test_rounds_that_examine_enter_no_average(kind, train, good):
    table = fitted(kind, train, prior_components=good, max_iter=40)._released
    n = table.n_examining
    assert 1 < n < 10
    budget = DocumentBudget.from_statement(1.0, None, 1e-5, max_iter=40, subsampling_ratio=1.0)
    rounds = table.schedule(budget, 1, 40, 6.0)
    assert [rounds[t - 1].n for t in (1, n, n + 1, n + 2, 40)] == [1, n, 1, 2, 40 - n]
    whole = budget.schedule(1, n, 6.0)
    assert [step.power for step in rounds[:n]] == [step.power for step in whole]
    for t in (1, 40 - n):
        clip, power = document_schedule(t, 40 - n)
        assert (rounds[n + t - 1].norm, rounds[n + t - 1].power) == (6.0 * clip, power)
    assert table.weights_of(rounds[n]) is table.weight


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 0.999])
def test_an_average_begins_with_a_round_of_topics(share, good):
    """Otherwise the table would have no noise, as if the rounds had none."""
    budget = DocumentBudget.from_statement(1.0, None, 1e-5, max_iter=80, subsampling_ratio=1.0)
    rounds = budget.schedule(1, 80, 6.0, n_examining=12, share_for_totals=share)
    for part in (rounds[:12], rounds[12:]):
        assert not part[0].for_totals
        of_topics = np.cumsum([not step.for_totals for step in part])
        assert of_topics.tolist() == [step.n for step in part]


@both
def test_a_fit_whose_rounds_are_nearly_all_for_totals_ends_with_topics(kind, train, good):
    options = {"epsilon": None, "noise_multiplier": 3000.0, "max_iter": 40}
    table = good / good.sum(axis=1, keepdims=True)  # so few tokens that no word total is trusted
    with pytest.warns(LowSignalWarning):
        model = fitted(kind, train, prior_components=table, **options)
    assert model._released.n_examining > 0
    assert model._released.share_for_totals > 0.98
    assert np.isfinite(model.components_).all()
    assert model.components_std_.min() > 0
    assert model.signal_to_noise_ < 0.1


def test_the_fit_begins_anew_after_the_examination(good):
    totals, streams = np.random.default_rng(0).gamma(1, 50, N_WORDS), Streams.from_random_state(0)
    public, weight = PublicPrior.from_table(good), np.ones(N_WORDS)
    public.agreement = public.clear = 0.7
    table = NoisyTable.from_totals(
        totals, weight, K, streams, public=public, n_examining=2
    )  # fmt: skip
    table.average = totals[:, None] * public.shares
    table.variance = table.estimate.prior = 0.1
    table.begin_after_examination(streams)
    assert public.slope == pytest.approx(1, rel=1e-4)
    first = NoisyTable.from_totals(totals, weight, K, streams, public=public)
    np.testing.assert_array_equal(table.average, first.average)
    np.testing.assert_array_equal(table.table, first.table)
    assert table.variance == 0
    assert table.estimate.prior is None


def test_no_more_rounds_examine_than_a_clear_slope_takes(train, good):
    models = [
        fitted(SubLDA, train, max_iter=80, prior_components=good, epsilon=e) for e in (1.0, 8.0)
    ]
    many, few = (model._released.n_examining for model in models)
    assert 2 < few < many
    rounds = [(m.radius / m.scale) ** 2 for m in models[0]._budget().rounds]
    assert sum(rounds[:many]) <= 0.04 * sum(rounds) < sum(rounds[: many + 1])
    public = models[1]._released.public
    assert 0.007 < public.slope_error < 0.0105  # predicted from the word totals


@pytest.mark.parametrize("decay", [0.51, 1.0])
def test_the_learning_rate_does_not_change_the_slope(decay, train, good):
    """Else the slope of real topics is that of made-up ones where the rate is small."""
    options = {"max_iter": 40, "epsilon": 8.0, "prior_components": good}
    public = fitted(PrivateSVILDA, train, learning_decay=decay, **options)._released.public
    assert public.belief > 0.99
    assert 0.007 < public.slope_error < 0.01


@both
def test_fits_say_which_topics_are_made_up(kind, train, good, made_up):
    options = {"max_iter": 40, "epsilon": 8.0}
    real, wrong, none = (
        fitted(kind, train, prior_components=p, **options) for p in (good, made_up, None)
    )
    assert real._released.public.belief > 0.99
    assert wrong._released.public.belief < 0.1
    assert wrong.perplexity(train) < 1.01 * none.perplexity(train)


def test_what_says_nothing_of_topics_is_not_examined(train, good):
    seeds = np.zeros_like(good)
    seeds[range(K), range(K)] = 20.0
    even = np.tile(good.sum(axis=0) / K, (K, 1))  # as of released word weights
    for table, epsilon in ((seeds, 1.0), (even, 1.0), (good, math.inf), (None, 1.0)):
        model = fitted(SubLDA, train, max_iter=40, prior_components=table, epsilon=epsilon)
        assert model._released.n_examining == 0


@pytest.mark.parametrize("n_words", [1, 2])
@both
def test_a_few_words_are_not_examined(kind, n_words, train):
    """One examined word has no contrasts, and one word leaves none to infer topics from."""
    table = np.arange(1.0, K * n_words + 1).reshape(K, n_words)
    model = fitted(kind, train[:, :n_words], max_iter=40, prior_components=table)
    assert model._released.n_examining == 0
    assert np.isfinite(model.components_).all()


@both
def test_a_fit_is_as_many_calls_of_partial_fit(kind, train, good, monkeypatch):
    options = OPTIONS | {"max_iter": 12, "prior_components": good, "epsilon": 4.0}
    # nothing but the table goes on, and no topic weights
    monkeypatch.setattr(Documents, "infer", lambda self, *args: self.infer_in_steps(*args[:3]))
    once = kind(K, random_state=0, **options).fit(train)
    assert once._released.n_examining > 0
    again = kind(K, random_state=0, **options)
    for _ in range(12):
        again.partial_fit(train)
    assert once.privacy_.events == again.privacy_.events
    assert once._released.public.belief == again._released.public.belief
    # each call ends with an estimate from scratch, whose weights the next one begins with
    assert again.perplexity(train) == pytest.approx(once.perplexity(train), rel=1e-3)
