"""The estimates that are made of released numbers."""

import itertools
import math

import numpy as np
import pytest
import twins
from numpy.testing import assert_array_equal
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
    topic_sizes,
    word_probabilities,
)
from dplda.document._word_totals import ExactTotals, WordTotals
from dplda.kernels import _denoise, _sets
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


@pytest.mark.parametrize("n_rows", [1, 4, 6])
@pytest.mark.parametrize("n_inner", [1, 30])
@pytest.mark.parametrize("n_columns", [1, 2, 7, 8, 9, 16, 37])
def test_sums_of_products_run_in_order(n_rows, n_inner, n_columns, instruction_set):
    random = np.random.default_rng(n_columns)
    left = random.normal(size=(n_rows, n_inner))
    right = random.normal(size=(n_inner, n_columns))
    expected = twins.product(left, right)
    turned = np.ascontiguousarray(left.T).T
    for matrix in (left, turned, np.repeat(left, 3, axis=1)[:, ::3]):
        out = np.full((n_rows, n_columns), np.nan)
        _denoise.products(matrix, right, out)
        assert_array_equal(out, expected)


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
            1,
            3,
            DiscreteGaussian.for_noise_multiplier(1.0),
            1.0,
            2.4,
            0.3,
            1,
            1,
            False,
            False,
        )
        after = learn(
            known,
            noisy.copy(),
            step,
            granularity=1e-9,
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
        ExactTotals(totals, np.zeros(40), totals.mean()),
        np.ones(40),
        n_topics,
        Streams.from_random_state(0),
    )
    table = released.table.astype(float)
    used = pad(np.full((40, n_topics), 7))
    sizes = topic_sizes(released.table, None)
    phi = word_probabilities(released.table, sizes, used.copy(), None)
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


# ---------------------------------------------------------------- twins of the kernels


def test_nodes_are_those_of_the_kernel():
    """One layout: the kernel's nodes, their twin, and the tables that Python makes."""
    u, y = (nodes.astype(float) for nodes in twins.node_values())
    for found, expected in zip(_denoise.nodes(), (u, y - 8)):
        assert_array_equal(found, expected)
    likelihood, weighted = _table_estimate.nodes()
    assert likelihood.shape == weighted.shape == (len(FACTORS), len(u), len(y))

    def log_density(factor):
        center = factor * u[:, None]
        variance = 1 + (center / 4) ** 2
        return -0.5 * ((y - 8 - center) ** 2 / variance + np.log(variance))

    half, one = (likelihood[FACTORS.tolist().index(factor)] for factor in (0.5, 1))
    known = (half > 1e-30) & (one > 1e-30)
    assert known.mean() > 0.2
    expected = (log_density(0.5) - log_density(1))[known]
    np.testing.assert_allclose(np.log(half[known] / one[known]), expected, atol=1e-5)


def cells_at(seed, n_words, n_topics):
    """Cells at, near and between nodes, at both ends of both axes, and beyond."""
    random = np.random.default_rng(seed)
    shape, (of_u, of_y) = (n_words, n_topics), twins.node_values()
    scale = (2.0 ** random.integers(-3, 4, n_words)).astype(np.float32)
    center = pad(random.choice(of_u, shape).astype(np.float32))
    seen = random.choice(of_y, shape) - 8.0
    center *= random.choice(np.float32([0, 1e-9, 0.5, 1, 1.0625, 1.125, 9]), (1, 1))
    seen += random.choice([-1e6, -9, 0, 0, 2**-7, 2**-6, 1, 900, 1e7], shape)
    rate = random.choice(np.float32([1, 1, 0.3, 1e-5, 7e4]), n_words)
    return (seen * scale[:, None]).astype(float), rate, scale, center


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", SHAPES[:-2])
def test_counts_and_means_at_nodes_equal_their_twins(shape, seed, instruction_set):
    average, rate, scale, center = cells = cells_at(seed, *shape)
    n_nodes = [len(nodes) for nodes in twins.node_values()]
    means = np.random.default_rng(9).normal(3, 2, n_nodes).astype(np.float32)
    table, counts = np.empty(shape, np.float32), np.zeros(n_nodes, np.int64)
    _denoise.estimate(*cells, means, 0.25, table, 1)
    of_topics = average, rate, scale, center[:, : shape[1]]
    assert_array_equal(table, twins.posterior_means(*of_topics, means, 0.25))
    _denoise.count(*cells, counts)
    assert_array_equal(counts, twins.count_at_nodes(*of_topics))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centered", [False, True])
def test_averages_and_shares_equal_their_twins(shape, centered, instruction_set):
    random = np.random.default_rng(1)
    noisy = random.integers(-(2**62) // shape[1], 2**62 // shape[1], shape)
    table = random.gamma(0.3, 50, shape).astype(np.float32) + np.float32(1e-6)
    average = random.normal(size=shape)
    added, of_table = random.uniform(1e-12, 1e-9, (2, shape[0]))
    arguments = noisy, table, 0.7, added, of_table, centered
    expected, before = twins.learned(*arguments, average), average.copy()
    _denoise.learn(*arguments, average, 1)
    # the new average is in the memory of the sum, and the old one stays
    assert_array_equal(noisy.view(np.float64), expected)
    assert_array_equal(average, before)
    for factor in (None, random.gamma(1, 1, shape[1]).astype(np.float32)):
        shares = pad(np.zeros(shape))
        _denoise.shares(table, factor, shares, 1)
        assert_array_equal(shares[:, : shape[1]], twins.shares_of_rows(table, factor))


@pytest.mark.parametrize("power", [0.3, 0.75, 0.999, 1.0])
def test_powers_equal_their_twin(power, instruction_set):
    random = np.random.default_rng(3)
    x = 2.0 ** random.uniform(-140, 100, (31, 23))
    x[0], x[1], x[2] = 0, 1, 2.0 ** -random.integers(0, 127, 23)
    x = x.astype(np.float32)
    expected = twins.power(x, power)
    _denoise.temper(x, power, 1)
    assert_array_equal(x, expected)
