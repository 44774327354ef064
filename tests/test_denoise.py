"""The estimates that are made of released numbers."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq

from dplda.core._fold_in import in_16_bits, pad
from dplda.document import _table_estimate
from dplda.document._document_budget import Round
from dplda.document._noisy_table import NoisyTable, Reading, learn, random_table
from dplda.document._public_words import PublicWords
from dplda.document._rules import ExactRules, Rules
from dplda.document._table_estimate import (
    FACTORS,
    NoisyCells,
    add_up,
    estimated,
    temper,
    topic_shares,
    word_probabilities,
)
from dplda.document._word_totals import WordTotals
from dplda.kernels import _sets
from dplda.privacy._mechanisms import DiscreteGaussian
from dplda.privacy._streams import Streams

rng = np.random.default_rng(0)


SHAPES = [(1, 1), (1, 40), (37, 1), (50, 15), (50, 16), (301, 20), (90, 100)]


def any_table(n_words, n_topics, scale=3.0, seed=0):
    """A noisy table of frequent and rare words, small and large topics; its noise."""
    rng = np.random.default_rng(seed)
    totals = rng.gamma(0.3, 500, n_words) + 1
    sizes = rng.dirichlet(np.full(n_topics, 2.0))
    table = totals[:, None] * sizes * rng.choice(FACTORS, (n_words, n_topics))
    noise_scale = scale * rng.uniform(0.3, 1, n_words)
    return (
        totals,
        table + noise_scale[:, None] * rng.normal(size=table.shape),
        noise_scale,
    )


def any_public(totals, n_topics):
    """Vectors of some of the words, and public counts of some."""
    random = np.random.default_rng(4)
    vectors = random.normal(size=(len(totals), 3)) * (
        random.random((len(totals), 1)) > 0.2
    )
    counts = random.poisson(random.gamma(0.3, 5, (n_topics, len(totals)))).astype(float)
    return PublicWords.of(
        vectors + (np.arange(len(totals)) == 0)[:, None], counts + 0.1
    )


@pytest.mark.parametrize("is_public", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_estimate_is_the_same_for_any_set_and_number_of_threads(
    shape, is_public, monkeypatch, instruction_sets
):
    monkeypatch.setattr(_table_estimate, "PIECE", 200)
    monkeypatch.setattr(_table_estimate, "SAMPLE", 200)
    totals, noisy, noise_scale = any_table(*shape)
    results = []
    for name, n_jobs in itertools.product(instruction_sets, (1, 2)):
        _sets.use(name)
        public = any_public(totals, shape[1]) if is_public else None
        cells, prior, found = NoisyCells(noisy, noise_scale, totals), None, []
        for n in range(2):
            table, prior = estimated(cells, prior, public, renew=n < 1, n_jobs=n_jobs)
            found.append(table)
        results.append(found)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("scale", [0.01, 3.0, 3000.0])
def test_the_estimate_is_the_posterior_mean_of_the_mixture(scale, instruction_set):
    """Within a fiftieth of the noise: between the nodes of a table of means."""
    totals, noisy, noise_scale = any_table(301, 20, scale)
    found, prior = estimated(NoisyCells(noisy, noise_scale, totals))
    center = totals[:, None, None] * prior.expected[0, :20, None] * FACTORS
    variance = (center / 4) ** 2 + noise_scale[:, None, None] ** 2
    off = noisy[..., None] - center
    log_joint = np.log(prior.factors) - 0.5 * (off**2 / variance + np.log(variance))
    joint = np.exp(log_joint - log_joint.max(axis=-1, keepdims=True))
    mean = (joint * (center + off * (center / 4) ** 2 / variance)).sum(
        axis=-1
    ) / joint.sum(axis=-1)
    error = np.abs(found - np.maximum(mean, 0)) / noise_scale[:, None]
    assert np.median(error) < 0.02
    assert error.max() < 0.3


@pytest.mark.parametrize("shape", SHAPES)
def test_a_round_enters_the_average(shape, instruction_set):
    totals, before, scale = any_table(*shape)
    table = np.maximum(before, 0).astype(np.float32) + np.float32(0.5)
    noisy = np.random.default_rng(1).integers(-(10**12), 10**12, shape)
    of_words = WordTotals(totals, scale, totals.mean())
    for exact, n_jobs in itertools.product((False, True), (1, 2)):
        reading = Reading(of_words, totals, totals)
        known = NoisyTable(scale, table.copy(), before.copy(), of_words, reading)
        step = Round(
            1, 3, DiscreteGaussian.for_noise_multiplier(1.0), 1.0, 2.4, 0.3, 1, 1, False
        )
        after = learn(
            known,
            noisy.copy(),
            step,
            unit=1e-9,
            share=0.3,
            is_centered=not exact,
            n_jobs=n_jobs,
        )
        np.testing.assert_array_equal(known.table, table)  # it is a value
        np.testing.assert_array_equal(known.average, before)
        counts = noisy * 1e-9 / scale[:, None]
        if not exact:
            shares = table.astype(float) / table.sum(axis=1, keepdims=True, dtype=float)
            counts += totals[:, None] * shares - counts.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(
            after.average, 0.7 * before + 0.3 * counts, rtol=1e-12
        )


@pytest.mark.parametrize("n_topics", [1, 5, 8, 20])
def test_tables_of_a_round(n_topics):
    totals = rng.gamma(0.5, 100, 40) + 1
    released = random_table(
        WordTotals(totals, np.zeros(40), totals.mean()),
        np.ones(40),
        n_topics,
        Streams.from_random_state(0),
    )
    table = released.table.astype(float)
    used = pad(np.full((40, n_topics), 7))
    phi = word_probabilities(released.table, used.copy(), None)
    assert phi[:, n_topics:].sum() == 0
    np.testing.assert_allclose(phi[:, :n_topics], table / table.sum(axis=0), rtol=2e-7)
    center = topic_shares(released.table, used.copy(), None)
    shares = table / table.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(center[:, :n_topics], shares, rtol=2e-7)
    found = Rules().center(released, used.copy())
    np.testing.assert_array_equal(found, in_16_bits(center, size=0))
    assert found.any()
    assert not ExactRules().center(released, used).any()


@pytest.mark.parametrize("power", [0.3, 0.75, 1.0])
def test_tempering(power, instruction_set):
    low = np.log(2.0**-126)
    factor = np.exp(np.random.default_rng(2).uniform(low, 0, (301, 24))).astype(
        np.float32
    )
    factor[:, 20:] = 0
    factor[:3, 0] = 1, 0.5, 2.0**-126
    expected = factor.astype(float) ** power
    found = temper(factor.copy(), power, 2)
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    assert (found[:, 20:] == 0).all()
    near = factor > math.exp(-20)  # where the words of a topic are
    np.testing.assert_allclose(found[near], expected[near], rtol=2e-6)
    _sets.use("portable")
    np.testing.assert_array_equal(found, temper(factor.copy(), power))


def noisy_rows(n_words):
    """Estimated cells, a third of them 0, variances, and totals far off their sums."""
    random = np.random.default_rng(1)
    table = random.gamma(0.3, 20, (n_words, 7)) * (random.random((n_words, 7)) > 1 / 3)
    totals = random.uniform(0.05, 3, n_words) * table.mean() * 7
    return table, totals, random.uniform(0.01, 1, (n_words, 7)).astype(np.float32)


def nearest_row(row, total, variance):
    """The row that adds up to the total: plain twin, by a search for the multiple."""
    bound = (row.sum() + total) / variance.min()
    step = brentq(
        lambda x: np.maximum(row + x * variance, 0).sum() - total,
        -bound,
        bound,
        xtol=1e-12,
    )
    return np.maximum(row + step * variance, 0)


def test_rows_add_up_to_their_totals_with_the_least_change():
    table, totals, variance = noisy_rows(60)
    expected = [nearest_row(*row) for row in zip(table, totals, variance.astype(float))]
    assert (np.array(expected) == 0).mean() > 0.1  # some cells reach 0
    add_up(table, totals, variance)
    np.testing.assert_allclose(table.sum(axis=1), totals, rtol=1e-12)
    np.testing.assert_allclose(table, expected, atol=1e-8)


@pytest.mark.parametrize("n_topics", [1, 2, 17])
def test_a_total_below_the_rounding_errors_of_its_row(n_topics):
    """No warning, which is an error here, and nearly nothing is left of the row."""
    table, totals = np.full((4, n_topics), 30.0), np.array([1e-30, 1e-17, 1e-14, 1.0])
    add_up(table, totals, np.ones((4, n_topics)))
    assert (table >= 0).all()
    np.testing.assert_allclose(table.sum(axis=1), totals, atol=1e-8 * 30 * n_topics)
    assert (table.sum(axis=1) > 0).all()
