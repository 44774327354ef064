"""Empirical-Bayes estimates of released word totals and word-topic tables.

Everything here is a function of released values and of public noise scales: post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# A cell's count is its word's total times its topic's share times about one of these factors.
FACTORS = np.array([0, 0.03, 0.1, 0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7, 11, 18], np.float32)
SPREAD = np.float32(0.25)
N_BINS = 6
FIRST_STEPS, NEXT_STEPS, LAST_STEPS = 8, 2, 30


def smooth_totals(noisy: np.ndarray, noise_scale: np.ndarray) -> np.ndarray:
    """Posterior means of word totals under a prior learned from all of them.

    The prior is a mixture of 40 normal distributions, centered from a hundredth of the mean total
    to sixty times it (or the largest total), each as wide as half its distance from the next. Its
    weights are fitted by 50 steps of expectation-maximization.

    Parameters
    ----------
    noisy : ndarray of shape (n_words,)
        Released totals.
    noise_scale : ndarray of shape (n_words,)
        Standard deviation of the noise in each; zeros return the totals as they are, at least one.

    Returns
    -------
    totals : ndarray of shape (n_words,)
        Positive.
    """
    if not noise_scale.any():
        return np.maximum(noisy, 1.0)  # later documents may have words that these have not
    mean = max(float(noisy.mean()), 0.01 * float(noise_scale.mean()))
    grid = np.geomspace(mean / 100, max(mean * 60, float(noisy.max())), 40)
    spread = (0.5 * np.log(grid[1] / grid[0]) * grid) ** 2
    variance = noise_scale[:, None] ** 2 + spread
    log_likelihood = -0.5 * ((noisy[:, None] - grid) ** 2 / variance + np.log(variance))
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    prior = np.full(len(grid), 1 / len(grid))
    for _ in range(50):
        joint = likelihood * prior
        joint /= joint.sum(axis=1, keepdims=True)
        prior = joint.mean(axis=0)
    means = grid + (noisy[:, None] - grid) * spread / variance
    return np.maximum((joint * means).sum(axis=1), grid[0])


def word_weights(totals: np.ndarray) -> np.ndarray:
    """Weights that let the noise of a word grow with the fourth root of its frequency.

    Contributions are multiplied by them before the clip and releases divided by them; at most 4.
    """
    return np.minimum(4.0, np.maximum(totals / totals.mean(), 1e-3) ** -0.25)


@dataclass
class TableEstimate:
    """Posterior mean of a noisy word-topic table, under a prior learned from the table.

    A cell is p_v N_k g plus noise: p_v is the word's share of all tokens, N_k the topic's size,
    and g normal around one of `FACTORS`, with a quarter of it as standard deviation. How often each
    factor occurs is learned by expectation-maximization in each of 6 classes of word frequency.
    Strong noise is shrunk towards p_v N_k; weak noise is left alone.

    Parameters
    ----------
    totals : ndarray of shape (n_words,)
        Word totals.
    """

    totals: np.ndarray
    prior: np.ndarray | None = None
    _bins: list[np.ndarray] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = np.argsort(self.totals, kind="stable")
        self._bins = [b for b in np.array_split(order, N_BINS) if len(b)]

    def __call__(self, noisy: np.ndarray, noise_scale: np.ndarray, *, last: bool = False):
        """Estimate the table (n_words, n_components) from its noisy form.

        `noise_scale` (n_words,) holds the standard deviation of a cell of each word. `last`
        starts again from an even prior and takes more steps; otherwise the prior of the
        previous round is improved a little.
        """
        if not noise_scale.any():
            return np.maximum(noisy, 0.0)
        sizes = noisy.sum(axis=0)
        sizes = np.maximum(sizes, 0.02 * max(sizes.mean(), 1e-12))
        center = np.outer(self.totals / self.totals.sum(), sizes)
        prior, steps = self.prior, NEXT_STEPS
        if prior is None or last:
            prior = np.full((len(self._bins), len(FACTORS)), 1 / len(FACTORS))
            steps = LAST_STEPS if last else FIRST_STEPS
        table = np.empty_like(center)
        for b, words in enumerate(self._bins):
            likelihood, precision = cell_likelihood(noisy[words], center[words], noise_scale[words])
            prior[b] = improve_prior(prior[b], likelihood, steps)
            table[words] = posterior_mean(
                prior[b], likelihood, precision, noisy[words], center[words]
            )
        self.prior = prior
        return table


def cell_likelihood(
    noisy: np.ndarray, center: np.ndarray, noise_scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How well each factor explains every cell.

    Returns
    -------
    likelihood : ndarray of shape (n_factors, n_cells)
        Relative to that of the nearest factor, but for its width.
    precision : ndarray of shape (n_factors, n_cells)
        Variance of the noise over that of the cell, under each factor.
    """
    unit = (center / noise_scale[:, None]).astype(np.float32).ravel()
    seen = (noisy / noise_scale[:, None]).astype(np.float32).ravel()
    likelihood = np.empty((len(FACTORS), unit.size), np.float32)
    precision = np.empty_like(likelihood)
    scratch = np.empty_like(unit)
    # factor by factor and in place: three times faster than on whole tables
    for factor, row, weight in zip(FACTORS, likelihood, precision):
        np.multiply(unit, factor, out=scratch)
        np.multiply(scratch, SPREAD, out=weight)
        weight *= weight
        weight += 1
        np.reciprocal(weight, out=weight)
        np.subtract(seen, scratch, out=row)
        row *= row
        row *= weight
    nearest = likelihood.min(axis=0)
    for row, weight in zip(likelihood, precision):
        row -= nearest
        row *= -0.5
        np.exp(row, out=row)
        row *= np.sqrt(weight, out=scratch)
    return likelihood, precision


def improve_prior(prior: np.ndarray, likelihood: np.ndarray, n_steps: int) -> np.ndarray:
    """Expectation-maximization for the prior over the factors."""
    for _ in range(n_steps):
        evidence = np.einsum("g,gi->i", prior.astype(np.float32), likelihood)
        prior = prior * np.einsum("gi,i->g", likelihood, 1 / evidence) / len(evidence) + 1e-5
        prior = prior / prior.sum()
    return prior


def posterior_mean(
    prior: np.ndarray,
    likelihood: np.ndarray,
    precision: np.ndarray,
    noisy: np.ndarray,
    center: np.ndarray,
) -> np.ndarray:
    """Posterior mean of every cell's count, shape as `noisy`; not negative.

    Under factor F a cell's mean is F center + (1 - precision) (noisy - F center).
    """
    prior = prior.astype(np.float32)
    trust = likelihood * precision
    total = np.einsum("g,gi->i", prior, likelihood)
    kept = np.einsum("g,gi->i", prior, trust) / total
    expected = np.einsum("g,gi->i", prior * FACTORS, trust) / total
    shape = noisy.shape
    return np.maximum(center * expected.reshape(shape) + noisy * (1 - kept.reshape(shape)), 0)
