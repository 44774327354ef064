"""Renyi divergences of single steps, and their conversion to epsilon.

The formulas and the order of operations are those of dp_accounting 0.6 (Apache License 2.0,
LICENSE-dp-accounting): results are equal to the last bit, which tests compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# dp_accounting's orders.
ORDERS = (*(1 + x / 10.0 for x in range(1, 100)), *range(11, 64), 128, 256, 512, 1024)
_MAX_TERMS = 1000


def laplace_divergence(epsilon: float, order: float) -> float:
    """Renyi divergence of Laplace noise at an order above 1 (Mironov 2017, proposition 6)."""
    a = float(order)
    if a < 1.1:  # a series in a - 1, for precision
        c = math.expm1(epsilon * (1 - 2 * a)) / (2 * a - 1)
        v = -c * (a - 1)
        return epsilon + c * math.fsum(v ** (k - 1) / k for k in range(1, 100))
    shrunk = (a - 1) * math.expm1(epsilon * (1 - 2 * a)) / (2 * a - 1)
    return epsilon + math.log1p(shrunk) / (a - 1)


def sampled_gaussian_divergence(q: float, noise_multiplier: float, order: float) -> float:
    """Renyi divergence of Gaussian noise on a Poisson sample of rate `q` in (0, 1).

    Mironov, Talwar and Zhang (2019), sections 3.3. Infinite where the series does not converge.
    """
    if math.isinf(order):
        return math.inf
    if float(order).is_integer():
        return _log_moment(q, noise_multiplier, int(order)) / (order - 1)
    return _log_fractional_moment(q, noise_multiplier, order) / (order - 1)


def _log_moment(q: float, s: float, order: int) -> float:
    """Logarithm of the moment at a whole order: a finite sum."""
    i = np.arange(order + 1.0)
    coefficients = _log_binomials(order) + i * math.log(q) + (order - i) * math.log1p(-q)
    terms = coefficients + (i * i - i) / (2 * (s**2))
    return reduce(_log_add, terms.tolist(), -math.inf)


def _log_fractional_moment(q: float, s: float, order: float) -> float:
    """The same at another order: two series, of the outcomes on both sides of the cut z."""
    below = above = last_below = last_above = -math.inf
    z = s**2 * math.log(1 / q - 1) + 0.5
    log_rest = math.log1p(-q)
    for i in range(_MAX_TERMS):
        j = order - i
        coefficient = _log_binomial(order, i)
        term_below = coefficient + i * math.log(q) + j * log_rest
        term_above = coefficient + j * math.log(q) + i * log_rest
        tail_below = math.log(0.5) + _log_erfc((i - z) / (math.sqrt(2) * s))
        tail_above = math.log(0.5) + _log_erfc((z - j) / (math.sqrt(2) * s))
        term_below = term_below + (i * i - i) / (2 * (s**2)) + tail_below
        term_above = term_above + (j * j - j) / (2 * (s**2)) + tail_above
        below, above = _log_add(below, term_below), _log_add(above, term_above)
        total = _log_add(below, above)
        falling = term_below < last_below and term_above < last_above
        if falling and max(term_below, term_above) < total - 30:
            return total
        last_below, last_above = term_below, term_above
    return math.inf


@lru_cache(maxsize=128)  # a search asks for all whole orders, many times
def _log_binomials(n: int) -> FloatArray:
    from scipy.special import gammaln

    k = np.arange(n + 1.0)
    values: FloatArray = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return values


def _log_binomial(n: float, k: float) -> float:
    from scipy.special import gammaln

    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def _log_erfc(x: float) -> float:
    from scipy.special import log_ndtr

    return float(math.log(2) + log_ndtr(-x * 2**0.5))


def _log_add(x: float, y: float) -> float:
    """log(exp(x) + exp(y))."""
    low, high = (x, y) if x < y else (y, x)
    return high if low == -math.inf else math.log1p(math.exp(low - high)) + high


def epsilon_of_divergences(
    orders: Sequence[float] | FloatArray, divergences: Sequence[float] | FloatArray, delta: float
) -> float:
    """The smallest epsilon that any order proves (Canonne, Kamath and Steinke 2020, prop. 12)."""
    if delta == 0:
        return 0.0 if all(r == 0 for r in divergences) else math.inf
    return max(0.0, min(map(_converted, orders, divergences, [delta] * len(orders))))


def _converted(order: float, divergence: float, delta: float) -> float:
    if divergence < 0 or delta**2 + math.expm1(-divergence) > 0:
        return 0.0  # delta <= sqrt(1 - exp(-KL)) suffices
    if order <= 1.01:  # not stable there, and of no use
        return math.inf
    return float(divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))
