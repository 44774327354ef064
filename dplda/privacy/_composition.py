"""Upper bounds on the epsilon of a composition, one function a method of accounting.

Every function takes the composition as a tuple of (event, count) pairs made by `grouped` and
returns a valid epsilon, or infinity where the method does not apply. Their minimum is valid.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import count as counter
from typing import TypeAlias

import numpy as np
from dp_accounting import NeighboringRelation, get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom

from dplda.privacy._events import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
)
from dplda.privacy._renyi import FloatArray, renyi_divergence
from dplda.privacy._sampled_gaussian import REACH, sampled_gaussian_distribution

Groups: TypeAlias = tuple[tuple[Event, int], ...]

# Renyi orders. The formula for sampled events holds at integers, and its cost grows with them.
_ORDERS = 1.0 + np.geomspace(0.01, 1e6, 4097)
_INTEGER_ORDERS = np.array([*range(2, 65), 80, 96, 128, 192, 256, 512, 1024], dtype=float)

# Grid of the privacy loss distributions: fine while epsilon is small, and never so fine that
# a tiny noise multiplier would take gigabytes.
_FINE_INTERVAL, _INTERVAL, _COARSEST_INTERVAL = 1e-4, 1e-3, 1e-2
_FINE_BELOW_EPSILON = 3.0
_MAX_GRID_POINTS = 1_000_000
# Below this delta, the rounding errors of the convolutions would show.
_LEAST_DELTA = 1e-10


def grouped(events: Event | Iterable[Event]) -> Groups:
    """Flatten events into a sorted tuple of (event, count); equal compositions are equal."""
    counts: Counter[Event] = Counter()
    for event in [events] if isinstance(events, Event) else events:
        _add(event, 1, counts)
    return tuple(sorted(counts.items(), key=lambda item: repr(item[0])))


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


# ---- pure differential privacy ------------------------------------------------------------


def pure_epsilon(groups: Groups) -> float:
    """Sum of the epsilons of the events; infinite unless every event has one."""
    return math.fsum(count * _pure(event) for event, count in groups)


def _pure(event: Event) -> float:
    match event:
        case Laplace(scale):
            return 1.0 / scale
        case BoundedRange(epsilon):
            return epsilon
        case RandomizedResponse(flip, n_buckets):
            return math.log1p(n_buckets * (1.0 - flip) / flip)
        case _:
            return math.inf


# ---- exact in closed form -----------------------------------------------------------------


def exact_epsilon(groups: Groups, delta: float) -> float | None:
    """The exact epsilon where a closed form is known: only Gaussians, or equal random bits."""
    if all(isinstance(event, Gaussian) for event, _ in groups):
        return gaussian_epsilon(groups, delta)
    match groups:
        case ((RandomizedResponse(_, 2) as bit, count),):
            return _random_bits_epsilon(_pure(bit), count, delta)
    return None


def effective_noise_multiplier(groups: Groups) -> float:
    """One Gaussian event that costs as much as all; sampling, if any, is ignored."""
    precision = 0.0
    for event, count in groups:
        gaussian = event.event if isinstance(event, PoissonSampled) else event
        if not isinstance(gaussian, Gaussian):
            return 0.0
        precision += count / gaussian.noise_multiplier**2
    return precision**-0.5 if precision else math.inf


def gaussian_epsilon(groups: Groups, delta: float) -> float:
    """The analytic Gaussian mechanism; an upper bound if some events are sampled."""
    noise_multiplier = effective_noise_multiplier(groups)
    return float(get_epsilon_gaussian(noise_multiplier, delta)) if noise_multiplier else math.inf


def _random_bits_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Exact epsilon of equal randomized bits.

    The best test of two neighbors is a threshold on the number of bits reported truly, so
    epsilon is the largest log((P[N >= k] - delta) / Q[N >= k]) over thresholds k.
    """
    n_true = np.arange(count + 1)
    truth, lie = 1.0 / (1.0 + math.exp(-epsilon)), 1.0 / (1.0 + math.exp(epsilon))
    log_p = _log_upper_tail(binom.logpmf(n_true, count, truth))
    log_q = _log_upper_tail(binom.logpmf(n_true, count, lie))
    likely = log_p > math.log(delta)
    log_gain = log_p[likely] + np.log(-np.expm1(math.log(delta) - log_p[likely]))
    return max(0.0, float(np.max(log_gain - log_q[likely], initial=0.0)))


def _log_upper_tail(log_mass: FloatArray) -> FloatArray:
    tail: FloatArray = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    return tail


# ---- Renyi divergences --------------------------------------------------------------------


def renyi_epsilon(groups: Groups, delta: float) -> float:
    """Best conversion of the summed Renyi divergences over a fixed list of orders."""
    orders, divergence = _total_divergence(groups)
    # Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", prop. 12.
    epsilon = divergence + np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)
    return max(0.0, float(np.min(epsilon)))


@lru_cache(maxsize=16)
def _total_divergence(groups: Groups) -> tuple[FloatArray, FloatArray]:
    sampled = any(isinstance(event, PoissonSampled) for event, _ in groups)
    orders = _INTEGER_ORDERS if sampled else _ORDERS
    total = np.zeros_like(orders)
    for event, count in groups:
        total += count * renyi_divergence(event, orders)
    return orders, total


# ---- privacy loss distributions -----------------------------------------------------------


def loss_distribution_epsilon(groups: Groups, delta: float, known: float) -> float:
    """Composed privacy loss distributions on a grid; `known` is any valid epsilon so far.

    Infinite if an event has no such distribution, the grid would be too large, or delta is
    too small for floating-point convolutions.
    """
    interval = _grid_interval(groups, known)
    if interval is None or delta < _LEAST_DELTA:
        return math.inf
    return float(_composed(groups, interval).get_epsilon_for_delta(delta))


def _grid_interval(groups: Groups, known: float) -> float | None:
    """The finest grid that is worth its time and fits into memory, None if even the coarsest
    does not."""
    widest = max(_reach(event) for event, _ in groups)
    width = max(widest, min(5.0 * known, sum(_composed_reach(*group) for group in groups)))
    if width == math.inf:
        return None
    interval = _FINE_INTERVAL if known <= _FINE_BELOW_EPSILON else _INTERVAL
    while width / interval > _MAX_GRID_POINTS:
        interval *= 10.0
    return interval if interval <= 1.5 * _COARSEST_INTERVAL else None


def _reach(event: Event) -> float:
    """Length of the range of one event's privacy loss; infinite if it has no distribution."""
    match event:
        case Gaussian(s) | PoissonSampled(_, Gaussian(s)):
            return (1.0 / s + 2.0 * REACH) / s
        case Laplace() | RandomizedResponse():
            return 2.0 * _pure(event)
        case _:
            return math.inf


def _composed_reach(event: Event, count: int) -> float:
    """Rough length after composition: time and memory depend on it, validity does not."""
    match event:
        case PoissonSampled(q, Gaussian(s)):
            often = q * count
            often = math.ceil(often + 8.0 * math.sqrt(often) + 1.0)
            return 1.5 * (0.5 * often / s + REACH * math.sqrt(often)) / s
        case _:
            return count * _reach(event)


# The same composition is asked again at a delta that pays for the distance from ideal noise.
@lru_cache(maxsize=2)
def _composed(groups: Groups, interval: float) -> pld.PrivacyLossDistribution:
    """Compose the smallest distributions first."""
    order = counter()
    heap = [(_reach(event), next(order), _distribution(event, n, interval)) for event, n in groups]
    heapq.heapify(heap)
    while len(heap) > 1:
        (width, _, first), (other_width, _, second) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (width + other_width, next(order), first.compose(second)))
    return heap[0][2]


def _distribution(event: Event, count: int, interval: float) -> pld.PrivacyLossDistribution:
    """One event, `count` times.

    Built from the library's factories and not from its accountant, which ignores the count of
    randomized responses and doubles a Gaussian's sensitivity under replacement.
    """
    grid = {"value_discretization_interval": interval}
    match event:
        case Gaussian(noise_multiplier):
            return pld.from_gaussian_mechanism(noise_multiplier / math.sqrt(count), **grid)
        case PoissonSampled(q, Gaussian(noise_multiplier)):
            once = sampled_gaussian_distribution(noise_multiplier, q, interval)
        case Laplace(scale):
            once = pld.from_laplace_mechanism(scale, **grid)
        case RandomizedResponse(flip, n_buckets):
            once = pld.from_randomized_response(
                flip, n_buckets, neighboring_relation=NeighboringRelation.REPLACE_ONE, **grid
            )
        case _:
            raise TypeError(f"{type(event).__name__} has no privacy loss distribution")
    return once.self_compose(count)


def has_no_protection(groups: Groups) -> bool:
    """Whether some event is not private at all."""
    return any(isinstance(event, NonPrivate) for event, _ in groups)
