"""The steps of the centered release, one by one, and the loop that they make."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import dplda.document._document_lda as module
from dplda import GibbsLDA, SubLDA
from dplda.datasets import make_topic_corpus
from dplda.document._contributions import Documents, release_word_totals
from dplda.document._document_budget import DocumentBudget, document_schedule
from dplda.document._noisy_table import NoisyTable
from dplda.document._table_estimate import TableEstimate, combine_totals
from dplda.metrics import unigram_perplexity
from dplda.privacy import Gaussian, PoissonSampled, epsilon_of
from dplda.privacy._accounting import gaussian_mu
from dplda.privacy._streams import Streams
from dplda.privacy.mechanisms import Curator

K = 5


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, 60, K, doc_length=40, random_state=0).data


def budget(noise_multiplier=10.0, max_iter=10, ratio=1.0):
    return DocumentBudget.from_noise_multiplier(
        noise_multiplier, max_iter=max_iter, subsampling_ratio=ratio
    )


def curator(budget, n_rounds, seed=0):
    streams = Streams.from_random_state(seed)
    steps = budget.plan(0, n_rounds)
    return Curator(steps, streams, label="test", unit="document"), streams


# ---- schedules and budget -----------------------------------------------------------------


def test_document_schedule():
    clips, powers = zip(*(document_schedule(t, 80) for t in range(1, 81)))
    assert (clips[0], powers[0]) == (0.15, 0.3)
    assert (clips[-1], powers[-1]) == pytest.approx((0.4, 1.0))
    assert clips[47] < clips[48] == pytest.approx(0.4)  # reached after 60% of the rounds
    assert powers[55] < powers[56] == pytest.approx(1.0)  # and 70%
    assert list(clips) == sorted(clips)
    assert list(powers) == sorted(powers)
    assert document_schedule(200, 80) == pytest.approx((0.4, 1.0))
    assert document_schedule(1, 1) == (0.15, 0.3)
    assert document_schedule(80, 80, (0.6, 0.95)) == pytest.approx((0.4, 0.95))


def test_multipliers_at_epsilon_1():
    mu = gaussian_mu(1.0, 1e-5)
    shares = budget(math.sqrt(80 / 0.75) / mu, max_iter=80)
    totals = [m.noise_multiplier for m in shares.totals]
    rounds = [m.noise_multiplier for m in shares.rounds]
    assert totals == pytest.approx([13.622, 8.9179], abs=2e-3)
    assert (rounds[0], rounds[-1]) == pytest.approx((151.45, 29.283), rel=1e-4)
    spent = sum(m**-2 for m in totals + rounds)
    assert spent == pytest.approx(mu**2, rel=1e-4)
    assert spent <= mu**2
    events = [event for _, event in shares.plan(0, 80)]
    assert epsilon_of(events, 1e-5) == pytest.approx(1.0, abs=2e-4)


def test_sampled_rounds_are_equal_and_sampled():
    steps = [event for _, event in budget(2.0, ratio=0.1).plan(0, 10)]
    assert all(isinstance(event, Gaussian) for event in steps[:2])
    assert steps[2:] == [PoissonSampled(0.1, steps[2].event)] * 10


def test_totals_take_their_share_under_sampling():
    """About a quarter of what is spent, by the epsilon of the parts."""
    model = SubLDA(epsilon=2.0, delta=1e-5, subsampling_ratio=0.05, max_iter=400)
    steps = [event for _, event in model._budget().plan(0, 400)]
    part = gaussian_mu(epsilon_of(steps[:2], 1e-5), 1e-5) ** 2
    assert 0.2 < part / gaussian_mu(2.0, 1e-5) ** 2 < 0.3
    assert 1.98 < epsilon_of(steps, 1e-5) <= 2.0


# ---- contributions ------------------------------------------------------------------------


def sum_topics(documents, rows, factor, center, weight, norm, radius):
    return documents.sum_topics(rows, factor, center, weight=weight, norm=norm, radius=radius)


def random_round(rng, documents):
    n_words = documents.X.shape[1]
    padded = documents.theta.shape[1]
    real = np.arange(padded) < K
    factor = (rng.gamma(0.1, size=(n_words, padded)) * real).astype(np.float32)
    center = (rng.dirichlet(np.full(K, 0.3), n_words) @ np.eye(K, padded)).astype(np.float32)
    documents.theta[:, :K] = rng.dirichlet(np.full(K, 0.1), len(documents.theta))
    return factor, center, rng.uniform(0.1, 4, n_words)


@pytest.mark.parametrize("seed", range(5))
def test_one_document_moves_the_sum_by_at_most_the_radius(seed, corpus):
    rng = np.random.default_rng(seed)
    documents = Documents.from_counts(corpus, K, None)
    factor, center, weight = random_round(rng, documents)
    norm, radius = rng.uniform(0.01, 10), int(rng.integers(64, 10**6))
    everybody = np.arange(len(documents.scale))

    def total(rows):
        return sum_topics(documents, rows, factor, center, weight, norm, radius)

    for d in range(0, 300, 17):
        difference = total(everybody) - total(np.delete(everybody, d))
        assert (difference.astype(object) ** 2).sum() <= radius**2
        np.testing.assert_array_equal(difference, total(np.array([d])))


def test_contributions_sum_to_zero_over_topics(corpus):
    documents = Documents.from_counts(corpus, K, None)
    factor, center, weight = random_round(np.random.default_rng(0), documents)
    value = sum_topics(documents, np.arange(300), factor, center, weight, 1e4, 2**30)
    assert np.abs(value.sum(axis=1)).max() < 1e-5 * np.abs(value).sum(axis=1).max()


def test_centering_changes_nothing_without_clip_and_noise(corpus):
    """Adding back U_v rbar gives the plain sum of the counts."""
    documents = Documents.from_counts(corpus, K, None)
    factor, center, weight = random_round(np.random.default_rng(1), documents)
    rows, norm, radius = np.arange(300), 1e3, 2**30
    centered, plain = (
        sum_topics(documents, rows, factor, c, weight, norm, radius)
        * (norm / radius)
        / weight[:, None]
        for c in (center, np.zeros_like(center))
    )
    totals = np.asarray(corpus.sum(axis=0)).ravel()
    np.testing.assert_allclose(centered + totals[:, None] * center[:, :K], plain, atol=2e-2)
    np.testing.assert_allclose(plain.sum(axis=1), totals, rtol=1e-3)


def test_documents_are_scaled_to_the_norm_and_short_ones_at_most_five_times(corpus):
    documents = Documents.from_counts(sp.vstack([corpus, np.eye(2, 60, dtype=int)]), K, None)
    weight = np.linspace(0.5, 2, 60)
    documents.rescale(weight, 6.0, exact=False)
    lengths = np.sqrt(documents.X.toarray() ** 2 @ weight**2)
    np.testing.assert_allclose(documents.scale * lengths, np.minimum(6, 5 * lengths), rtol=1e-6)
    assert documents.scale.max() == 5
    documents.rescale(weight, 12.0, exact=True)
    assert documents.scale.max() == 5  # without noise the scale stays as it is


# ---- releases -----------------------------------------------------------------------------


def test_word_totals_without_noise_are_the_totals(corpus):
    gate, _ = curator(budget(0), 0)
    documents = Documents.from_counts(corpus, K, None)
    totals, weight = release_word_totals(documents, budget(0).totals, gate, 6.0)
    counted = np.asarray(corpus.sum(axis=0)).ravel()
    assert (counted == 0).any()
    np.testing.assert_allclose(totals.smooth(), np.maximum(counted, 1), atol=1e-3)
    np.testing.assert_array_equal(weight, 1)


@pytest.mark.parametrize("n_docs", [1, 3, 50])
def test_a_document_reaches_the_radius_of_the_first_totals_and_not_more(n_docs):
    """Words and count together; `n_docs` of one user, at most ten of which are counted."""
    documents = Documents.from_counts(
        sp.csr_array(np.full((n_docs, 60), 9)),
        K,
        None,
        None if n_docs == 1 else np.zeros(n_docs, int),
    )
    most, mechanism, values = 1 if n_docs == 1 else 10, budget(8).totals[0], []

    class Gate:
        def release(self, value, mechanism, **options):
            values.append(value.copy())
            return value

    release_word_totals(documents, [mechanism] * 2, Gate(), 6.0, most)
    radius, (first, second) = mechanism.radius, values
    assert (len(first), len(second)) == (61, 60)
    assert first[0] == radius // (10 * most) * min(n_docs, most)
    assert 0.98 * radius < np.sqrt((first.astype(float) ** 2).sum()) <= radius


def test_two_totals_are_better_than_one():
    rng = np.random.default_rng(0)
    totals = 2000 / np.arange(1, 501)
    one = (totals * 0.7 + rng.normal(0, 9, 500), np.full(500, 9.0))
    two = (totals + rng.normal(0, 1, 500) * np.linspace(20, 5, 500), np.linspace(20, 5, 500))
    both, scale = combine_totals(one, two)
    assert (scale < two[1]).all()
    assert np.square(both - totals).mean() < 0.7 * np.square(two[0] - totals).mean()
    exact = (totals, np.zeros(500))
    assert combine_totals(one, exact) is exact


def start(corpus, seed=0):
    totals = np.maximum(np.asarray(corpus.sum(axis=0), float).ravel(), 1)
    streams = Streams.from_random_state(seed)
    return NoisyTable.from_totals(totals, np.ones(len(totals)), K, streams)


class Drawn(Curator):
    """A curator whose sample is given."""

    def sample(self, rates, *, round):
        super().sample(rates, round=round)
        return self.rows


def one_round(X, table, rows):
    """The table after a round in which `rows` take part."""
    model = SubLDA(K, noise_multiplier=10.0, subsampling_ratio=0.5, max_iter=10)
    shares, streams = model._budget(), Streams.from_random_state(0)
    gate = Drawn(shares.plan(1, 1), streams, label="test", unit="document")
    gate.rows = rows
    return model._rounds(X, table, shares, gate, streams, 1).table


def test_a_round_does_not_see_documents_that_were_not_sampled(corpus):
    rows = np.arange(0, 300, 3)
    changed = corpus.tolil(copy=True)
    changed[1] = 50  # not in rows
    changed[2] = 0
    table = start(corpus)
    one, two = (one_round(sp.csr_array(X), table, rows) for X in (corpus, changed))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, one_round(sp.csr_array(corpus), table, rows + 1))


class Constant(TableEstimate):
    def __call__(self, noisy, noise_scale, **options):
        return np.full(noisy.shape, 7.0, np.float32)


def test_average_and_its_variance():
    released = start(sp.csr_array(np.full((1, 8), 50)))
    tables = [released.average.copy()]
    released.estimate = Constant(released.totals)
    for t, rate in enumerate([0.5, 0.3, 0.8]):
        noisy = np.random.default_rng(t).integers(-1000, 1000, (8, K))
        centered = 0.003 * (noisy - noisy.mean(axis=1, keepdims=True))
        table = released.table.astype(float)
        shares = table / table.sum(axis=1, keepdims=True)
        tables.append(released.totals[:, None] * shares + centered)
        released.update(
            noisy, unit=0.003, noise_scale=3.0, share=rate, topic_word_prior=0.0
        )  # fmt: skip
    share = np.array([0.5 * 0.7 * 0.2, 0.5 * 0.7 * 0.2, 0.3 * 0.2, 0.8])
    np.testing.assert_allclose(released.average, np.tensordot(share, tables, 1))
    assert released.variance == pytest.approx(9 * (share[1:] ** 2).sum())
    assert released.n_rounds == 3


def test_without_noise_and_sampling_the_last_round_stands_alone(corpus):
    """There is nothing to average out."""
    model = SubLDA(K, epsilon=math.inf, max_iter=4, random_state=0).fit(corpus)
    totals = np.maximum(np.asarray(corpus.sum(axis=0), float).ravel(), 1)
    np.testing.assert_allclose(model._released.average.sum(axis=1), totals, atol=1.5)
    assert model._released.variance == 0
    half = SubLDA(K, epsilon=math.inf, max_iter=4, subsampling_ratio=0.5, random_state=0)
    assert np.abs(half.fit(corpus)._released.average.sum(axis=1) - totals).max() > 5


class Spy(Curator):
    seen: list

    def release(self, value, mechanism, **kwargs):
        exact = value.copy()
        noisy = super().release(value, mechanism, **kwargs)
        self.seen.append((kwargs["label"], exact, noisy))
        return noisy


def test_noise_on_every_cell_of_every_release(corpus, monkeypatch):
    Spy.seen = []
    monkeypatch.setattr(module, "Curator", Spy)
    X = corpus.tolil(copy=True)
    X[:, :10] = 0  # words of the vocabulary that nobody uses
    SubLDA(K, epsilon=1.0, subsampling_ratio=0.05, max_iter=6).fit(sp.csr_array(X))
    labels = [label for label, _, _ in Spy.seen]
    assert labels == ["word totals"] * 2 + ["word-topic counts"] * 6
    shapes = [(61,), (60,)] + 6 * [(60, K)]  # the first release counts the documents, too
    for (_, value, noisy), shape in zip(Spy.seen, shapes, strict=True):
        assert value.shape == shape
        value, noisy = value[-60:], noisy[-60:]
        assert (value[:10] == 0).all()
        assert (noisy != value).mean() > 0.99
        assert (noisy[:10] != 0).mean() > 0.9


# ---- the whole ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_learns_the_topics_of_a_synthetic_corpus():
    corpus = make_topic_corpus(3000, 100, K, doc_length=60, random_state=2)
    train, test = corpus.data[:2700], corpus.data[2700:]
    unigram = unigram_perplexity(train, test)

    def perplexity(estimator):  # of the median seed: any topic model may merge two topics
        return np.median(
            [clone(estimator).set_params(random_state=s).fit(train).perplexity(test)
             for s in range(3)]
        )  # fmt: skip

    gibbs = perplexity(GibbsLDA(K, max_iter=60, exact=True))
    strong, weak, free = (
        perplexity(SubLDA(K, epsilon=epsilon, delta=1e-5)) for epsilon in (1.0, 8.0, math.inf)
    )
    assert free < min(weak, gibbs)
    assert weak < strong * 1.02
    assert weak < gibbs + 0.1 * (unigram - gibbs)
    assert strong < gibbs + 0.3 * (unigram - gibbs)
