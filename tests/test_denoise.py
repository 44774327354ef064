"""The estimates that are made of released numbers."""

import numpy as np
import pytest
from scipy.stats import norm

from dplda.central._noisy_table import (
    FACTORS,
    TableEstimate,
    cell_likelihood,
    improve_prior,
    posterior_mean,
    smooth_totals,
    word_weights,
)

rng = np.random.default_rng(0)


def zipf(n):
    return 2000 / np.arange(1, n + 1)


def test_smoothed_totals_are_better_than_noisy_ones():
    totals = zipf(800)
    noisy = totals + rng.normal(0, 20, 800)
    smooth = smooth_totals(noisy, np.full(800, 20.0))
    assert (smooth > 0).all()
    assert np.square(smooth - totals).mean() < 0.3 * np.square(noisy - totals).mean()
    assert np.abs(smooth[:5] / noisy[:5] - 1).max() < 0.05  # large totals are left alone


def test_totals_without_noise_stay():
    np.testing.assert_array_equal(smooth_totals(zipf(50), np.zeros(50)), zipf(50))
    assert smooth_totals(np.zeros(5), np.zeros(5)).min() > 0


def test_hopeless_totals_are_still_totals():
    smooth = smooth_totals(rng.normal(-50, 1000, 300), np.full(300, 1000.0))
    assert (smooth > 0).all()
    assert np.isfinite(smooth).all()


def test_word_weights():
    weight = word_weights(zipf(1000))
    assert weight.max() <= 4
    assert (np.diff(weight) >= 0).all()
    mean = zipf(1000).mean()
    assert word_weights(np.array([mean] * 4)) == pytest.approx(np.ones(4))
    many = np.array([16.0] + [1.0] * 15)
    assert word_weights(many)[0] == pytest.approx((16 / many.mean()) ** -0.25)


def noisy_table(scale):
    p = zipf(600) / zipf(600).sum()
    factor = rng.choice(FACTORS[[0, 2, 4, 6, 9]], (600, 4))
    table = np.outer(p, np.full(4, 20000.0)) * factor
    return table, table + rng.normal(0, scale, table.shape), table.sum(axis=1)


@pytest.mark.parametrize("scale", [5.0, 30.0, 200.0])
def test_table_estimate_beats_cutting_at_zero(scale):
    table, noisy, totals = noisy_table(scale)
    estimate = TableEstimate(totals)(noisy, np.full(600, scale), last=True)
    assert (estimate >= 0).all()
    cut = np.maximum(noisy, 0)
    assert np.square(estimate - table).mean() < 0.9 * np.square(cut - table).mean()


def test_table_estimate_at_the_ends():
    _table, noisy, totals = noisy_table(30.0)
    estimate = TableEstimate(totals)
    np.testing.assert_array_equal(estimate(noisy, np.zeros(600)), np.maximum(noisy, 0))
    drowned = estimate(noisy, np.full(600, 1e7), last=True)  # nothing is known but the totals
    shares = drowned / drowned.sum(axis=0)
    np.testing.assert_allclose(shares, np.outer(totals / totals.sum(), np.ones(4)), rtol=1e-2)
    assert np.isfinite(estimate(noisy - 1e6, np.full(600, 1.0))).all()


def test_prior_improves_likelihood():
    _table, noisy, totals = noisy_table(30.0)
    center = np.outer(totals / 4, np.ones(4))
    likelihood, precision = cell_likelihood(noisy, center, np.full(600, 30.0))
    assert likelihood.shape == precision.shape == (len(FACTORS), 2400)
    assert likelihood.max() <= 1
    assert (likelihood.max(axis=0) > 0).all()
    prior = np.full(len(FACTORS), 1 / len(FACTORS))

    def evidence(prior):
        return np.log(prior @ likelihood).sum()

    better = improve_prior(prior, likelihood, 3)
    assert better.sum() == pytest.approx(1)
    assert evidence(improve_prior(better, likelihood, 5)) > evidence(better) > evidence(prior)
    mean = posterior_mean(better, likelihood, precision, noisy, center)
    assert (mean >= 0).all()
    expected = FACTORS[:, None] * center.ravel()
    means = expected + (1 - precision) * (noisy.ravel() - expected)
    joint = better[:, None] * likelihood
    exact = np.maximum((joint * means).sum(axis=0) / joint.sum(axis=0), 0)
    np.testing.assert_allclose(mean.ravel(), exact, rtol=1e-3, atol=0.02)


def test_posterior_of_one_factor_is_the_normal_one():
    """Prior N(m g, (m g / 4)^2), noise N(0, s^2)."""
    m, s, a = 50.0, 10.0, 90.0
    noisy, center = np.array([[a]]), np.array([[m]])
    likelihood, precision = cell_likelihood(noisy, center, np.array([s]))
    tau = m * FACTORS / 4
    variance = s**2 + tau**2
    np.testing.assert_allclose(precision[:, 0], s**2 / variance, rtol=1e-5)
    density = norm.pdf(a, m * FACTORS, np.sqrt(variance))
    np.testing.assert_allclose(
        likelihood[:, 0] / likelihood[6, 0], density / density[6], rtol=1e-4, atol=1e-30
    )
    for k in range(len(FACTORS)):
        mean = posterior_mean(np.eye(len(FACTORS))[k], likelihood + 1e-20, precision, noisy, center)
        normal = (FACTORS[k] * m * s**2 + a * tau[k] ** 2) / variance[k]
        assert mean[0, 0] == pytest.approx(normal, rel=1e-4)


def test_weak_noise_is_left_alone():
    table, noisy, totals = noisy_table(0.5)
    estimate = TableEstimate(totals)(noisy, np.full(600, 0.5), last=True)
    large = table > 100
    np.testing.assert_allclose(estimate[large], noisy[large], rtol=2e-2)


def test_words_in_fewer_classes_than_bins():
    estimate = TableEstimate(np.array([3.0, 1.0]))
    assert estimate(np.ones((2, 3)), np.ones(2)).shape == (2, 3)


def test_the_prior_is_carried_on():
    _table, noisy, totals = noisy_table(30.0)
    estimate = TableEstimate(totals)
    estimate(noisy, np.full(600, 30.0))
    first = estimate.prior.copy()
    estimate(noisy, np.full(600, 30.0))
    assert not np.array_equal(first, estimate.prior)
