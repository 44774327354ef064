"""Renyi divergences of single steps at whole orders: the costs of privacy filters."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dplda.privacy._curves import FloatArray, U, response_loss
from dplda.privacy._events import (
    BoundedRange,
    ErasedResponse,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    ZeroConcentrated,
)

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
# Above the relative rounding errors here, which are below 1e-11: the tests compare 60 digits.
_MARGIN = 1.0 + 1e-9


# A ledger asks for the divergences of the same events with each charge.
@lru_cache(maxsize=8192)
def divergences(event: Event) -> FloatArray:
    """Renyi divergence of one event at each of `ORDERS`, never too small."""
    a = np.array(ORDERS, np.float64)
    match event:
        case Gaussian(s):
            values = a / (2.0 * s * s)
        case PoissonSampled(q, Gaussian(s)):
            values = np.array([_sampled(q, s, order) for order in ORDERS])
            values = np.minimum(values, a / (2.0 * s * s))
        case ZeroConcentrated(rho):
            values = rho * a
        case BoundedRange(e):
            return _frozen(bounded_range_divergence(e, a))
        case Laplace(scale):
            e = 1.0 / scale  # (a exp((a-1) e) + (a-1) exp(-a e)) / (2 a - 1)
            parts = np.log(a) + (a - 1.0) * e, np.log(a - 1.0) - a * e
            values = (np.logaddexp(*parts) - np.log(2.0 * a - 1.0)) / (a - 1.0)
            values = np.minimum(np.maximum(values, 0.0) + 1e-15, e)
        case RandomizedResponseEvent() | ErasedResponse():
            values = _response(event, a)
        case _:
            return np.full(len(a), math.inf)
    return _frozen(values * _MARGIN)


def _frozen(values: FloatArray) -> FloatArray:
    values.flags.writeable = False  # the cache hands out one array to all
    return values


def _sampled(q: float, s: float, order: int) -> float:
    """A finite sum at whole orders (Mironov, Talwar and Zhang 2019, section 3.3).

    The mean of the power is the sum over i of binomial(a, i) (1-q)^(a-i) q^i exp(i (i-1) / 2 s^2).
    Without the exponential the sum is 1. Its excess is summed, which has positive terms.
    """
    from scipy.special import gammaln

    i = np.arange(2.0, order + 1.0)
    logs = gammaln(order + 1.0) - gammaln(i + 1.0) - gammaln(order - i + 1.0)
    logs = logs + i * math.log(q) + (order - i) * math.log1p(-q)
    growth = i * (i - 1.0) / (2.0 * s * s)
    logs = logs + growth + np.log(-np.expm1(-growth))
    top = logs.max()
    log_excess = top + math.log(np.exp(logs - top).sum())
    return float(np.logaddexp(0.0, log_excess) if log_excess > -30.0 else math.exp(log_excess)) / (
        order - 1.0
    )


def bounded_range_divergence(e: float, a: FloatArray) -> FloatArray:
    """The largest divergence of orders a of any choice whose log ratios span at most e.

    The terms of the closed form are of the size of a e, and nearly cancel at large orders: what
    rounding may take from them is added.
    """
    sharp = (a * _log_sinhc(a * e) - _log_sinhc(np.array(e))) / (a - 1.0)
    sharp = sharp - _log_sinhc((a - 1.0) * e) + 64.0 * U * e * np.where(a > 1024.0, a, 0.0)
    values: FloatArray = np.minimum(sharp * _MARGIN, np.minimum(a * e * e / 8.0 * _MARGIN, e))
    return values


def _log_sinhc(x: FloatArray) -> FloatArray:
    """log(sinh(x / 2) / (x / 2)) for x > 0, to nearly all digits."""
    y = 0.5 * x
    small = np.minimum(y, 1.0) ** 2
    term, series = np.ones_like(small), np.zeros_like(small)
    for k in range(1, 12):  # the power series of sinh(y) / y - 1: positive terms
        term = term * small / ((2 * k) * (2 * k + 1))
        series = series + term
    large = np.maximum(y, 1.0)
    by_exponentials = large + np.log1p(-np.exp(-2.0 * large)) - np.log(2.0 * large)
    return np.where(y < 1.0, np.log1p(series), by_exponentials)


def _response(event: RandomizedResponseEvent | ErasedResponse, a: FloatArray) -> FloatArray:
    """With probability q of each wrong value and loss e, the mean of the power is
    1 + q (exp(a e) - 1) (1 - exp(-(a - 1) e)); half of the second term if half are erased.
    """
    k = event.n_buckets if isinstance(event, RandomizedResponseEvent) else 2
    wrong, e = event.flip_mixture / k, response_loss(event, upper=True)
    if isinstance(event, ErasedResponse):
        wrong /= 2.0
    log_growth = a * e + np.log(-np.expm1(-a * e))
    log_excess = math.log(wrong) + log_growth + np.log(-np.expm1(-(a - 1.0) * e))
    values: FloatArray = np.logaddexp(0.0, log_excess) / (a - 1.0)
    return values


def renyi_epsilon(total: FloatArray, delta: float) -> float:
    """The smallest epsilon that a sum of divergences proves (Canonne et al. 2020, prop. 12)."""
    if delta == 0.0:
        return math.inf
    a = np.array(ORDERS, np.float64)
    return max(0.0, float((total + conversion(a, delta)).min()))


def conversion(orders: FloatArray, delta: float) -> FloatArray:
    """What is added to a divergence of an order to make it an epsilon at delta."""
    values: FloatArray = np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)
    return values
