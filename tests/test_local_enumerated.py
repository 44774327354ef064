"""Enumerations of reports: estimates, weights and made documents, by laws and forms."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chisquare

from dplda.local._estimates import (
    estimate_counts,
    false_ones,
    pairs_of_words,
    set_and_clear,
    weight_of_prior,
)
from dplda.local._memoized_reports import _next_state
from dplda.privacy._streams import Purpose
from dplda.privacy.mechanisms import Streams

N_RUNS = 200_000
every_flip = pytest.mark.parametrize("flip", [0.25, 0.05])  # f = .5, f = .1


def reader(seed=0):
    return Streams.from_random_state(seed).reader(Purpose.RECONSTRUCTION, 1)


def reported(rng, counts, n_docs, flip):
    """Numbers of reports with a one, drawn from their law."""
    return rng.binomial(counts, 1 - flip) + rng.binomial(n_docs - counts, flip)


@every_flip
def test_estimates_are_unbiased_and_have_the_stated_variance(flip):
    rng, n_docs, count = np.random.default_rng(0), 1000, 300
    estimate = estimate_counts(
        reported(rng, np.full(N_RUNS, count), n_docs, flip), n_docs, flip
    )
    assert 0 < estimate.min() < estimate.max() < n_docs  # no clip was in the way
    variance = n_docs * flip * (1 - flip) / (1 - 2 * flip) ** 2
    # 5 standard errors of a mean, and of a variance of nearly normal numbers
    assert estimate.mean() == pytest.approx(count, abs=5 * math.sqrt(variance / N_RUNS))
    assert estimate.var() == pytest.approx(variance, rel=5 * math.sqrt(2 / N_RUNS))


@pytest.mark.parametrize("f", [0.1, 0.5, 0.9])
def test_forms_are_those_of_the_paper(f):
    n_docs, n = 1000, np.array([700.0])
    noise = n_docs * f * (2 - f)
    omega = noise / (noise + 4 * 30.0 * (1 - f) ** 2)
    assert weight_of_prior(n_docs, f / 2, 30.0) == pytest.approx(omega)
    expected = min(max((2 * n[0] - f * n_docs) / (2 * (1 - f)), 0), n_docs)
    assert estimate_counts(n, n_docs, f / 2) == pytest.approx(expected)


@every_flip
def test_the_weight_of_the_prior_is_the_best_one(flip):
    """Of all weights, it has least mean squared error over counts around the prior.

    It is around the prior's mean.
    """
    rng, n_docs, sd = np.random.default_rng(1), 400, 12.0
    counts = np.rint(rng.normal(120, sd, 50_000)).astype(int)
    estimate = estimate_counts(reported(rng, counts, n_docs, flip), n_docs, flip)
    weight = weight_of_prior(n_docs, flip, sd**2)

    def error(w):
        return np.mean((w * 120 + (1 - w) * estimate - counts) ** 2)

    assert error(weight) < min(
        error(weight - 0.1), error(weight + 0.1), error(0), error(1)
    )


@every_flip
def test_estimates_are_clipped(flip):
    assert estimate_counts(np.array([0, 100]), 100, flip).tolist() == [0, 100]


def test_without_noise_counts_are_exact():
    n = np.array([0, 3, 10])
    assert estimate_counts(n, 10, 0.0).tolist() == n.tolist()
    assert weight_of_prior(10, 0.0, 1.0) == 0
    assert false_ones(n, n, 10, 0.0).tolist() == [0, 0, 0]


@every_flip
def test_false_ones_are_those_to_be_expected(flip):
    n = np.array([300.0, 350.0])
    counts = (n - 1000 * flip) / (1 - 2 * flip)
    expected = flip * (1 - counts / 1000)
    np.testing.assert_allclose(false_ones(n, counts, 1000, flip), expected)
    assert false_ones(np.array([5]), np.array([500]), 1000, flip).tolist() == [0]


def reports(n_docs=50, n_words=30, seed=0):
    rng = np.random.default_rng(seed)
    return sp.csr_array(
        (rng.random((n_docs, n_words)) < rng.random(n_words)).astype(float)
    )


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_exact_after_setting_and_clearing(seed):
    X = reports(seed=seed)
    counts = np.random.default_rng(seed).uniform(0, 50, 30)
    counts[:2] = 0, 50
    documents = set_and_clear(X, counts, reader(seed))
    assert set(documents.data) == {1.0}
    np.testing.assert_array_equal(documents.toarray().sum(axis=0), np.rint(counts))
    difference = documents.toarray() - X.toarray()
    for change in difference.T:  # a word is only set, or only cleared
        assert len(set(change) - {0}) <= 1
    again = set_and_clear(X, counts, reader(seed))
    np.testing.assert_array_equal(again.toarray(), documents.toarray())
    other = set_and_clear(X, counts, reader(seed + 1))
    assert (other.toarray() != documents.toarray()).any()


# cleared, set by drawing again, set by keys
@pytest.mark.parametrize("count", [1, 4, 8])
def test_every_choice_of_documents_is_equally_likely(count):
    n_docs, n_runs = 10, 3000
    column = np.isin(np.arange(n_docs), (1, 2, 5)).astype(float)[:, None]
    X = sp.csr_array(np.repeat(column, n_runs, axis=1))
    documents = set_and_clear(X, np.full(n_runs, count), reader()).toarray()
    changed = (documents != X.toarray()).sum(axis=1)
    there = column[:, 0] > 0
    assert changed[there if count > 3 else ~there].sum() == 0
    assert chisquare(changed[~there if count > 3 else there]).pvalue > 1e-4


def slow_pairs(reports, words, flip):
    """Pairs of different words, one after the other."""
    n_docs, n_words = reports.shape
    share = reports.mean(axis=0)
    p = (share - flip) / (1 - 2 * flip)
    rate = -np.log(1 - p)
    growth = np.array([rate * np.exp(-length * rate) for length in (0.5, 1, 2)])
    smooth = np.array([np.ones(n_words), p, p**2])
    expected = np.empty((n_docs, len(words)))
    for k, top in enumerate(words):
        is_top = np.isin(np.arange(n_words), top)
        weight = is_top - np.linalg.solve(growth @ smooth.T, growth @ is_top) @ smooth
        np.testing.assert_allclose(growth @ weight, 0, atol=1e-9)  # of lengths
        unit = np.square(weight) @ (share * (1 - share))
        for d, bits in enumerate(reports - share):
            expected[d, k] = sum(
                weight[v] * weight[w] * bits[v] * bits[w]
                for v in range(n_words)
                for w in range(n_words)
                if v != w
            )
        expected[:, k] /= unit
    return expected


@pytest.mark.parametrize("flip", [0.0, 0.2])
def test_pairs_of_words_are_those_of_the_slow_twin(flip):
    rng = np.random.default_rng(0)
    bits = (rng.random((7, 9)) < 0.5).astype(float)
    bits[0], bits[1] = 0, 1  # every share is above the flips and below 1
    words = np.array([[0, 4, 8], [3, 4, 5]])
    np.testing.assert_allclose(
        pairs_of_words(sp.csr_array(bits), words, flip),
        slow_pairs(bits, words, flip),
        rtol=1e-6,
    )


def t_of(bits):
    pairs = pairs_of_words(
        sp.csr_array(bits.astype(float)), np.arange(60).reshape(6, 10), 0.0
    )
    return pairs.mean(axis=0) / pairs.std(axis=0) * math.sqrt(len(pairs))


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_independent_words_share_reports_by_chance_only(rate):
    rng = np.random.default_rng(0)
    t = np.array([t_of(rng.random((400, 60)) < rate) for _ in range(200)])
    for level, least in ((0.16, 1.0), (0.025, 2.0), (0.002, 3.0)):
        assert np.mean(t > least) < level + 3 * math.sqrt(level / t.size)
    assert -0.5 < np.mean(t) < 0.1


def test_words_that_share_reports_are_seen_and_long_documents_are_not():
    """Word frequencies and lengths differ much; frequent words saturate."""
    rng = np.random.default_rng(0)
    rate = rng.uniform(0.02, 1.5, 60)
    length = rng.uniform(0.2, 1.8, (4000, 1))
    long = rng.poisson(rate * length) > 0
    topical = rng.poisson(rate * length) > 0
    topical[:, :10] &= rng.random((4000, 1)) < 0.6
    assert max(t_of(long)) < 3
    t = t_of(topical)
    assert t[0] > 10
    assert max(t[1:]) < 3


def test_cells_of_other_lengths_are_another_state():
    """A byte moved from the document to the id would make an id nobody has reported."""
    key, state = bytes(32), bytes(32)
    assert _next_state(key, state, b"ab", b"c") != _next_state(key, state, b"a", b"bc")
