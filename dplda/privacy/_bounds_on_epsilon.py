"""Upper bounds on the epsilon of a composition, one function for each method of accounting.

This module flattens the events, and bounds their epsilon in closed form and by Renyi divergences;
`_composed_losses` does so by privacy loss distributions. Every function takes the result of
`grouped` and returns a valid epsilon, or infinity where the method does not apply. The smallest of
them is therefore valid. docs/accounting.md says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from operator import is_
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplda.privacy._events import (
    MAX_COUNT,
    ApproximateDP,
    BoundedRange,
    ErasedResponse,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    ZeroConcentrated,
)
from dplda.privacy._renyi import (
    ORDERS,
    epsilon_of_divergences,
    laplace_divergence,
    sampled_gaussian_divergence,
)
from dplda.privacy._response_losses import (
    is_binary_response,
    response_epsilon,
)

FloatArray: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = tuple[tuple[Event, int], ...]

# The events that were grouped last, with their counts and groups. A fit asks for the same events
# several times, and each call of `partial_fit` for a few more. They are replaced, never changed.
_last: tuple[tuple[Event, ...], Counter[Event], Groups] = (), Counter(), ()

# Orders of the quick bound for sampled events. At fractional orders the library's series are slow
# and may not converge.
INTEGER_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)

# Largest number of compositions of one event. More take seconds even for a narrow distribution.
_MAX_ON_GRID = 10_000_000
_MAX_ERASED = 1_000_000  # the law of erased responses is a convolution without transforms
# Margin on the error of roots of the closed form, relative and absolute: at least
# eight times the largest error that was measured (benchmarks/rounding.py).
ROOT_MARGIN, ROOT_TOLERANCE = 1e-12, 2e-12
# Margin on the rounding errors of a few steps together.
_UP = 1.0 + 2.0**-49
# Margin on the rounding errors of the divergences that are computed here, which are below 1e-11.
_DIVERGENCE_MARGIN = 1.0 + 1e-9
# Margin on the rounding errors of the library's series for sampled Gaussian steps, relative and
# absolute: at least 20 times the largest errors found.
_SERIES_MARGIN, _SERIES_TOLERANCE = 1e-12, 1e-14


def grouped(events: Event | Iterable[Event]) -> Groups:
    """Flatten events into sorted pairs (event, count); equal compositions become equal.

    All Gaussian events without sampling become a single one, which costs exactly as much.
    """
    global _last
    if not isinstance(events, (Event, Iterable)):
        raise TypeError(f"expected privacy events, got {type(events).__name__}")
    every = (events,) if isinstance(events, Event) else tuple(events)
    known, counts, groups = _last
    if len(known) > len(every) or not all(map(is_, known, every)):
        known, counts = (), Counter()
    elif len(known) == len(every) and every:
        return groups
    counts = counts.copy()
    for event in every[len(known) :]:
        _add(event, 1, counts)
    groups = _merged(counts)
    _last = every, counts, groups
    return groups


def _merged(counts: Counter[Event]) -> Groups:
    if max(counts.values(), default=0) > MAX_COUNT:
        raise ValueError(f"an event may be repeated at most {MAX_COUNT} times in all")
    others = [(event, n) for event, n in counts.items() if not isinstance(event, Gaussian)]
    others.sort(key=lambda group: repr(group[0]))
    gaussians = [(event, n) for event, n in counts.items() if isinstance(event, Gaussian)]
    if gaussians and gaussians != [(gaussians[0][0], 1)]:  # one event alone keeps all digits
        multipliers = np.array([event.noise_multiplier for event, _ in gaussians])
        each = np.sqrt(np.array([float(n) for _, n in gaussians])) * (1.0 / multipliers)
        mu = math.hypot(*each[np.argsort(multipliers)].tolist())
        gaussians = [(Gaussian(1.0 / mu), 1)]
    return *gaussians, *others


def without_statements(groups: Groups) -> tuple[Groups, float, float]:
    """The other events, and the delta and the epsilon that `ApproximateDP` events add to them.

    This is basic composition: of the steps with a statement only, and of these with all others.
    """
    stated = [(event, n) for event, n in groups if isinstance(event, ApproximateDP)]
    others = tuple(group for group in groups if not isinstance(group[0], ApproximateDP))
    lost = math.fsum(n * event.delta for event, n in stated)
    return others, lost, math.fsum(n * event.epsilon for event, n in stated)


def _add(event: Event, count: int, counts: Counter[Event]) -> None:
    if not isinstance(event, Event):
        raise TypeError(f"expected privacy events, got {type(event).__name__}")
    match event:
        case Repeated(inner, inner_count):
            _add(inner, inner_count * count, counts)
        case PoissonSampled(1.0, inner):
            counts[inner] += count
        case _:
            counts[event] += count


# ---- closed forms -------------------------------------------------------------------------


def pure_epsilon(groups: Groups) -> float:
    """Sum of the epsilons of the events, rounded up; infinite unless every event has one."""
    each = [(count, pure_epsilon_of(event)) for event, count in groups]
    if any(epsilon == math.inf for _, epsilon in each):
        return math.inf
    return _rounded_up(sum((count * Fraction(epsilon) for count, epsilon in each), Fraction(0)))


def _rounded_up(exact: Fraction) -> float:
    """The smallest float that is not below a number."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def pure_epsilon_of(event: Event) -> float:
    """Epsilon of one event, rounded up."""
    match event:
        case Laplace(scale):
            return _rounded_up(1 / Fraction(scale))
        case BoundedRange(epsilon):
            return epsilon
        case RandomizedResponseEvent(flip, n_buckets):
            # up to four roundings of half a digit in the last place each, and the logarithm's own
            return math.log1p(n_buckets * (1.0 - flip) / flip) * _UP
        case ErasedResponse(flip):
            return pure_epsilon_of(RandomizedResponseEvent(flip))
        case _:
            return math.inf


def gaussian_epsilon(groups: Groups, delta: float) -> float:
    """Exact for Gaussian events; an upper bound if some are sampled, which costs less."""
    return epsilon_of_mu(gaussian_mu_of(groups), delta)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Epsilon of Gaussian differential privacy.

    It is a root in floating point, increased by a margin on its error.
    """
    if mu == 0.0:
        return 0.0
    if mu == math.inf or delta == 0.0:
        return math.inf
    # The delta at epsilon 0. A root of 0 would not prove that it is small enough.
    if math.erf(mu / math.sqrt(8.0)) * (1.0 + ROOT_MARGIN) <= delta:
        return 0.0
    with np.errstate(divide="ignore"):  # log(0) at extreme noise
        root = _gaussian_root(1.0 / mu, delta)
    return root * (1.0 + ROOT_MARGIN) + ROOT_TOLERANCE


def _gaussian_root(noise_multiplier: float, delta: float) -> float:
    """Where Gaussian noise has this delta.

    It is `get_epsilon_gaussian` of dp_accounting, digit by digit.
    """
    from scipy.optimize import brentq

    wanted = np.log(delta)
    if _log_delta(noise_multiplier, 0.0) < wanted:
        return 0.0
    low, high = 0.0, 1.0
    while _log_delta(noise_multiplier, high) > wanted:
        low, high = high, 10.0 * high
    return float(brentq(lambda x: _log_delta(noise_multiplier, x) - wanted, low, high, xtol=1e-12))


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The noise multiplier of Gaussian noise that has this delta at this epsilon; a root."""
    from scipy.optimize import brentq

    wanted = np.log(delta)
    low, high = 0.1, 1.0
    while _log_delta(low, epsilon) < wanted:
        low, high = low / 10, low
    while _log_delta(high, epsilon) > wanted:
        low, high = high, high * 10
    return float(brentq(lambda s: _log_delta(s, epsilon) - wanted, low, high, xtol=1e-12))


def _log_delta(noise_multiplier: float, epsilon: float) -> float:
    """Logarithm of the delta of Gaussian noise (Balle and Wang 2018, theorem 8)."""
    from scipy.special import log_ndtr

    t = epsilon * noise_multiplier + 1.0 / (2.0 * noise_multiplier)
    gained, lost = log_ndtr(1.0 / noise_multiplier - t), epsilon + log_ndtr(-t)
    return float(gained + np.log1p(-np.exp(lost - gained))) if lost <= gained else -math.inf


def exact_response_epsilon(groups: Groups, delta: float) -> float:
    """Exact for binary randomized responses of one kind; infinite for anything else."""
    if len(groups) != 1:
        return math.inf
    event, count = groups[0]
    if is_binary_response(event) and not is_too_often(event, count):
        return response_epsilon(event, count, delta)
    return math.inf


def is_too_often(event: Event, count: int) -> bool:
    """Whether the composition would take seconds or more."""
    return count > (_MAX_ERASED if isinstance(event, ErasedResponse) else _MAX_ON_GRID)


def gaussian_mu_of(groups: Iterable[tuple[Event, int]]) -> float:
    """The mu of Gaussian differential privacy without sampling; infinite for other events."""
    return math.hypot(*(math.sqrt(count) * _mu(event) for event, count in groups))


def _mu(event: Event) -> float:
    match event:
        case Gaussian(noise_multiplier) | PoissonSampled(_, Gaussian(noise_multiplier)):
            return 1.0 / noise_multiplier
        case _:
            return math.inf


def all_gaussian(groups: Groups) -> bool:
    """Whether the closed form is exact."""
    return all(isinstance(event, Gaussian) for event, _ in groups)


# ---- Renyi divergences --------------------------------------------------------------------


def renyi_epsilon(groups: Groups, delta: float) -> float:
    """Best conversion of the summed Renyi divergences, at all orders."""
    return _converted(groups, None, delta)


def quick_renyi_epsilon(groups: Groups, delta: float) -> float:
    """The same, faster and a little larger: only at integer orders if some event is sampled."""
    is_sampled = any(isinstance(event, PoissonSampled) for event, _ in groups)
    return _converted(groups, INTEGER_ORDERS if is_sampled else None, delta)


def _converted(groups: Groups, orders: tuple[float, ...] | None, delta: float) -> float:
    return epsilon_of_divergences(orders or ORDERS, total_divergence(groups, orders), delta)


def total_divergence(groups: Groups, orders: tuple[float, ...] | None) -> FloatArray:
    """Sum of the Renyi divergences at each order (None: `ORDERS`)."""
    total = np.zeros(len(orders or ORDERS))
    for event, count in groups:
        total = total + count * divergence(event, orders)
    return total


# A ledger asks for the divergences of the same events with each charge.
@lru_cache(maxsize=4096)
def divergence(event: Event, orders: tuple[float, ...] | None) -> FloatArray:
    """Renyi divergence of one event at each order (None: `ORDERS`)."""
    every = np.array(orders or ORDERS, np.float64)
    match event:
        case Gaussian(noise_multiplier):
            values = every / (2 * noise_multiplier**2)
        case Laplace(scale):
            values = np.array([laplace_divergence(1 / scale, a) for a in every.tolist()])
        case ZeroConcentrated(rho):
            values = rho * every
        case BoundedRange(epsilon):
            values = bounded_range_divergence(epsilon, every)
        case RandomizedResponseEvent() | ErasedResponse():
            values = response_divergence(event, every)
        case PoissonSampled(q, Gaussian(noise_multiplier)):
            values = np.array(
                [sampled_gaussian_divergence(q, noise_multiplier, a) for a in orders or ORDERS]
            )
            not_sampled = every / (2.0 * noise_multiplier) / noise_multiplier
            # zero or below, if the effect of a step is less than the rounding error of the series
            values = np.fmin(values * (1.0 + _SERIES_MARGIN) + _SERIES_TOLERANCE, not_sampled)
        case _:
            values = np.full(len(every), math.inf)
    values.flags.writeable = False  # the cache hands out one array to all
    return values


def bounded_range_divergence(epsilon: float, orders: FloatArray) -> FloatArray:
    """Largest Renyi divergence of a choice whose log-ratios span at most `epsilon`, by order.

    docs/accounting.md derives the closed form. At large orders its terms nearly cancel, which
    leaves a relative rounding error below 1e-11.
    """
    a = np.asarray(orders, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # beyond 1e150, where epsilon is the bound
        sharp = (a * _log_sinhc(a * epsilon) - _log_sinhc(np.array(epsilon))) / (a - 1.0)
        sharp -= _log_sinhc((a - 1.0) * epsilon)
        concentrated = a * (epsilon * (epsilon / 8.0))
    return np.fmin(np.fmin(sharp, concentrated) * _DIVERGENCE_MARGIN, epsilon)


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


def response_divergence(
    event: RandomizedResponseEvent | ErasedResponse, orders: FloatArray
) -> FloatArray:
    """Renyi divergences of a randomized response, without cancellation.

    With probability q of each wrong value, the power of the likelihood ratio has the mean 1 +
    q (exp(a e) - 1) (1 - exp(-(a - 1) e)). If the response is erased with probability 1/2, the
    power is 1 then.
    """
    n_buckets = event.n_buckets if isinstance(event, RandomizedResponseEvent) else 2
    wrong, epsilon = event.flip_mixture / n_buckets, pure_epsilon_of(event)
    if isinstance(event, ErasedResponse):
        wrong /= 2.0
    a = np.asarray(orders, np.float64)
    log_growth = a * epsilon + np.log(-np.expm1(-a * epsilon))
    log_excess = math.log(wrong) + log_growth + np.log(-np.expm1(-(a - 1.0) * epsilon))
    return np.logaddexp(0.0, log_excess) / (a - 1.0) * _DIVERGENCE_MARGIN
