"""Word totals as estimated from noisy releases of them.

Everything here is a function of released values and of public constants. It is post-processing and
has no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SCALE_UP = 5.0  # short documents count at most five times
USUAL_SHARE = 0.25  # of the budget, for the releases of word totals before round 1
CLEAR = 7.0  # mean word total over the noise of a cell, from which topics get all rounds


@dataclass(frozen=True)
class WordTotals:
    """Mean of all releases of word totals, weighted by precision.

    Attributes
    ----------
    noisy : ndarray of shape (n_words,)
        Noisy word totals.
    noise_scale : ndarray of shape (n_words,)
        Standard deviation of the noise in each.
    mean : float
        Mean of the totals. The mean of `noisy` is too large: a word with much noise in the first
        release gets a small weight for the second, and keeps more of that noise.
    """

    noisy: np.ndarray
    noise_scale: np.ndarray
    mean: float

    def and_release(self, noisy: np.ndarray, noise_scale: np.ndarray) -> WordTotals:
        """These totals and one more release of them, at the same scale."""
        both = np.array([self.noise_scale, noise_scale]) ** -2.0
        precision = both.sum(axis=0)
        values = (both * np.array([self.noisy, noisy])).sum(axis=0) / precision
        rates = [1 / np.square(scale).mean() for scale in (self.noise_scale, noise_scale)]
        mean = float(np.average([self.mean, noisy.mean()], weights=rates))
        return WordTotals(values, 1 / np.sqrt(precision), mean)

    def and_documents(self, other: WordTotals) -> WordTotals:
        """The totals of these documents and of others, at the same scale."""
        noise_scale = np.hypot(self.noise_scale, other.noise_scale)
        return WordTotals(self.noisy + other.noisy, noise_scale, self.mean + other.mean)

    def smooth(self) -> np.ndarray:
        """Estimated word totals, positive."""
        return smooth_totals(self.noisy, self.noise_scale)


def share_of_rounds(
    totals: np.ndarray, weight: np.ndarray, noise_scale: float, word_total_share: float
) -> float:
    """The share of the rounds that release word totals, in [0, 1).

    Topics cannot be told from each other where the noise of a cell, in all rounds together, hides
    the totals of the words. Word frequencies can be learned there still. `noise_scale` is the
    standard deviation of a cell of a word of weight one. If the word totals had a larger share of
    the budget than `USUAL_SHARE` before round 1, the rounds give them less: all their releases
    together get what they would have got.
    """
    if noise_scale == 0:
        return 0.0
    excess = max(1.0, (1 - USUAL_SHARE) / (1 - word_total_share))
    clear = float((totals * weight).mean()) * excess**0.5 / (CLEAR * noise_scale)
    return max(0.0, 1.0 - excess * min(1.0, clear))


def combine_totals(first: tuple, second: tuple) -> tuple[np.ndarray, np.ndarray]:
    """One estimate of the word totals, and its noise scale, from two of them.

    Documents are scaled slightly differently in the two. The ratio of the sums brings the first to
    the scale of the second. The mean is weighted by precision, so that it favors the first estimate
    for frequent words and the second for rare words.
    """
    if not second[1].any():
        return second
    sums = np.maximum([first[0].sum(), second[0].sum()], 1e-12)
    ratio = np.clip(sums[1] / sums[0], 1 / SCALE_UP, SCALE_UP)
    precision = np.array([1 / (ratio * first[1]) ** 2, 1 / second[1] ** 2])
    values = np.array([ratio * first[0], second[0]])
    total = precision.sum(axis=0)
    return (precision * values).sum(axis=0) / total, 1 / np.sqrt(total)


def smooth_totals(noisy: np.ndarray, noise_scale: np.ndarray) -> np.ndarray:
    """Posterior means of word totals under a prior learned from all of them.

    The prior is a mixture of 40 normal distributions. Their centers range from a hundredth of the
    mean total to sixty times the mean total (or the largest total). The width of each is half the
    distance to the next center. Fifty steps of expectation-maximization fit the weights.

    Parameters
    ----------
    noisy : ndarray of shape (n_words,)
        Released totals.
    noise_scale : ndarray of shape (n_words,)
        Standard deviation of the noise in each. If all entries are zero, the totals are returned
        unchanged except that values below 1 become 1.

    Returns
    -------
    totals : ndarray of shape (n_words,)
        Positive.
    """
    if not noise_scale.any():
        return np.maximum(noisy, 1.0)  # later documents may have other words
    mean = max(float(noisy.mean()), 0.01 * float(noise_scale.mean()))
    grid = np.geomspace(mean / 100, max(mean * 60, float(noisy.max())), 40)
    spread = (0.5 * np.log(grid[1] / grid[0]) * grid) ** 2
    likelihood, means = under_components(noisy, noise_scale, grid, spread)
    prior = np.full(len(grid), 1 / len(grid))
    for _ in range(49):  # einsum, unlike BLAS, adds in one order whatever the number of threads
        evidence = np.einsum("vg,g->v", likelihood, prior)
        prior *= np.einsum("vg,v->g", likelihood, 1 / evidence) / len(noisy)
    means = np.einsum("vg,vg,g->v", likelihood, means, prior)
    return np.maximum(means / np.einsum("vg,g->v", likelihood, prior), grid[0])


def under_components(
    noisy: np.ndarray, noise_scale: np.ndarray, centers: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood and posterior mean of noisy values under normal priors, (n_words, components).

    The likelihood is relative to that of the most likely component.
    """
    distance, variance = noisy[:, None] - centers, noise_scale[:, None] ** 2 + variances
    likelihood = -0.5 * (distance**2 / variance + np.log(variance))
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    return likelihood, centers + distance * variances / variance


def word_weights(totals: np.ndarray) -> np.ndarray:
    """Word weights, at most 4: the noise of a word grows with the fourth root of its frequency.

    Contributions are multiplied by the weights before the clip, and releases are divided by them.
    """
    return np.minimum(4.0, np.maximum(totals / totals.mean(), 1e-3) ** -0.25)
