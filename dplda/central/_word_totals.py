"""Word totals as estimated from noisy releases of them.

Everything here is a function of released values and of public constants. It is post-processing and
has no privacy cost.
"""

from __future__ import annotations

import numpy as np

SCALE_UP = 5.0  # short documents count at most five times


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
    """Word weights, at most 4: the noise of a word grows with the fourth root of its frequency.

    Contributions are multiplied by the weights before the clip, and releases are divided by them.
    """
    return np.minimum(4.0, np.maximum(totals / totals.mean(), 1e-3) ** -0.25)
