"""Residual tests of noise: each cell of each release has the declared law, by itself."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy.stats import binom, chi2, laplace, norm

from dplda.audit._residual_result import LEVEL, ResidualTest
from dplda.audit._watch import Step
from dplda.privacy.mechanisms import DiscreteGaussian, FlooredLaplace

N_BINS = 20


def normal_scores(step: Step, draws: np.ndarray) -> np.ndarray:
    """Noise of a release as independent standard normal numbers, if it has the declared law.

    `draws` are uniform numbers, one for each cell. They spread each integer evenly over its
    probability, so that the law of the scores is exact for discrete noise as well.
    """
    law = _law(step.mechanism)
    noise = step.noise.astype(np.float64)
    # from the nearer tail, where probabilities keep their digits
    below = noise < step.mechanism.mean
    end, start = np.where(below, noise + 1, -noise), np.where(below, noise, -noise - 1)
    shift = _left_edge(step.mechanism)
    side = np.where(below, shift, -shift)
    low, high = law.cdf(start + side), law.cdf(end + side)
    tail = np.clip(low + draws * (high - low), 1e-300, 1.0 - 2.0**-53)
    return np.where(below, norm.ppf(tail), -norm.ppf(tail))


def _law(mechanism: Any) -> Any:
    """The continuous law whose rounding is the declared noise, symmetric around zero."""
    if isinstance(mechanism, FlooredLaplace):
        return laplace(scale=mechanism.scale)
    if isinstance(mechanism, DiscreteGaussian):
        return norm(scale=mechanism.scale)
    raise ValueError(f"a residual check knows no law of the noise of {mechanism}")


def _left_edge(mechanism: Any) -> float:
    """Where the cell of the integer 0 begins: it is one wide."""
    return 0.0 if isinstance(mechanism, FlooredLaplace) else -0.5


def _probability_of_zero(mechanism: Any) -> float:
    law, left = _law(mechanism), _left_edge(mechanism)
    return float(law.cdf(left + 1) - law.cdf(left))


def noise_tests(scores: list[np.ndarray]) -> list[ResidualTest]:
    """Compare the normal scores of all releases with independent standard normal numbers."""
    everything = np.concatenate(scores)
    n = len(everything)
    far = norm.isf(LEVEL / 2)
    low, high = _chi2_range(n, LEVEL)
    return [
        ResidualTest(
            "mean of the noise over its standard deviation", float(everything.mean()),
            -far / math.sqrt(n), far / math.sqrt(n),
        ),
        ResidualTest(
            "variance of the noise over the declared one", float((everything**2).mean()),
            low / n, high / n,
        ),
        _release_test(scores),
        _distribution_test(everything),
        _correlation_test(
            "correlation of the noise of two releases", list(itertools.combinations(scores, 2))
        ),
        _correlation_test(
            "correlation of the noise of two cells", [p for s in scores for p in _cell_pairs(s)]
        ),
    ]  # fmt: skip


def _chi2_range(n: int, level: float) -> tuple[float, float]:
    return float(chi2.ppf(level / 2, n)), float(chi2.isf(level / 2, n))


def _release_test(scores: list[np.ndarray]) -> ResidualTest:
    """Variance of the release in which it is least likely."""
    level = LEVEL / len(scores)
    sums = [float((score**2).sum()) for score in scores]
    worst = min(range(len(scores)), key=lambda i: _chi2_tail(sums[i], len(scores[i])))
    n = len(scores[worst])
    low, high = _chi2_range(n, level)
    name = "variance of the noise over the declared one, in the least likely release"
    return ResidualTest(name, sums[worst] / n, low / n, high / n)


def _chi2_tail(value: float, n: int) -> float:
    return min(float(chi2.logcdf(value, n)), float(chi2.logsf(value, n)))


def _distribution_test(scores: np.ndarray) -> ResidualTest:
    """Chi-square of the declared law, in bins of equal probability."""
    n_bins = max(2, min(N_BINS, len(scores) // 500))
    edges = norm.ppf(np.arange(1, n_bins) / n_bins)
    counts = np.bincount(np.searchsorted(edges, scores), minlength=n_bins)
    expected = len(scores) / n_bins
    statistic = float(((counts - expected) ** 2).sum() / expected)
    name = f"chi-square of the noise against the declared law ({n_bins} bins)"
    return ResidualTest(name, statistic, 0.0, float(chi2.isf(LEVEL, n_bins - 1)))


def _cell_pairs(score: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of neighbors, and pairs of a cell in either half of a release."""
    n = len(score) // 2
    return [(score[: 2 * n : 2], score[1 : 2 * n : 2]), (score[:n], score[n : 2 * n])]


def _correlation_test(name: str, pairs: list[tuple[np.ndarray, np.ndarray]]) -> ResidualTest:
    """Correlation of the pair of vectors in which it is least likely.

    The scalar product with a given vector of length one is standard normal, for any vector that is
    independent of the other one: no approximation is made.
    """
    if not pairs:
        return ResidualTest(name, 0.0, -1.0, 1.0)
    worst = max(pairs, key=lambda pair: abs(_projection(*pair)))
    one, two = (vector[: min(map(len, worst))] for vector in worst)
    root = math.sqrt(max(1, len(one)))
    far = float(norm.isf(LEVEL / 2 / len(pairs)))
    return ResidualTest(name, _projection(one, two) / root, -far / root, far / root)


def _projection(one: np.ndarray, two: np.ndarray) -> float:
    n = min(len(one), len(two))
    length = float(np.linalg.norm(one[:n]))
    return float(one[:n] @ two[:n]) / length if length > 0 else 0.0


def unchanged_test(steps: list[Step]) -> ResidualTest:
    """Cells that were released as they are.

    Their number is a sum of independent coins. A binomial number with the mean rate has a heavier
    upper tail than that (Hoeffding 1956).
    """
    n = sum(step.value.size for step in steps)
    expected = sum(step.value.size * _probability_of_zero(step.mechanism) for step in steps)
    unchanged = sum(int((step.noise == 0).sum()) for step in steps)
    most = max(math.ceil(expected) + 1, int(binom.isf(LEVEL, n, expected / n)))
    return ResidualTest("share of cells without noise", unchanged / n, 0.0, most / n)
