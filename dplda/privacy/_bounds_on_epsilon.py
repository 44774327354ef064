"""Upper bounds on the epsilon of a composition, one function for each method of accounting.

dp_accounting composes. This module flattens the events, chooses for each event the accountant that
takes it, and keeps privacy loss distributions from outgrowing the memory. Every function takes the
result of `grouped` and returns a valid epsilon, or infinity where the method does not apply. The
smallest of them is therefore valid. docs/accounting.md says why.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import TypeAlias

import numpy as np
from dp_accounting import NeighboringRelation, get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from numpy.typing import NDArray

from dplda.privacy._events import (
    MAX_COUNT,
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    to_dp_event,
)

FloatArray: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = tuple[tuple[Event, int], ...]

# Orders of the quick bound for sampled events. At fractional orders the library's series are slow
# and may not converge.
INTEGER_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)

# Grid of the privacy loss distributions: fine while epsilon is small, and coarser where a tiny
# noise multiplier would otherwise take gigabytes.
FINE_INTERVAL, INTERVAL, _COARSEST_INTERVAL = 1e-4, 1e-3, 1e-2
_FINE_BELOW_EPSILON = 3.0
_MAX_GRID_POINTS = 1_000_000
# Largest number of compositions of one event. More take seconds even for a narrow distribution.
_MAX_ON_GRID = 10_000_000
# Standard deviations of Gaussian noise on the grid; beyond them, the loss counts as infinite.
_REACH = 10.0
# Rounding error of a composed delta for each composition of an event: 30 times the largest one
# that was measured (benchmarks/rounding.py). It is charged to delta. A delta below ten times the
# error is left to the other methods.
_ROUNDING = 1e-15
_LEAST_COMPOSITIONS = 100  # the transforms of a few compositions have an error too


def grouped(events: Event | Iterable[Event]) -> Groups:
    """Flatten events into sorted pairs (event, count); equal compositions become equal.

    All Gaussian events without sampling become a single one, which costs exactly as much.
    """
    counts: Counter[Event] = Counter()
    for event in [events] if isinstance(events, Event) else events:
        _add(event, 1, counts)
    if max(counts.values(), default=0) > MAX_COUNT:
        raise ValueError(f"an event may be repeated at most {MAX_COUNT} times in all")
    groups = sorted(counts.items(), key=lambda group: repr(group[0]))
    gaussians = [group for group in groups if isinstance(group[0], Gaussian)]
    if not gaussians:
        return tuple(groups)
    merged = Gaussian(1.0 / gaussian_mu_of(gaussians))
    return (merged, 1), *(group for group in groups if group not in gaussians)


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
    """Sum of the epsilons of the events; infinite unless every event has one."""
    return math.fsum(count * _pure(event) for event, count in groups)


def _pure(event: Event) -> float:
    match event:
        case Laplace(scale):
            return 1.0 / scale
        case BoundedRange(epsilon):
            return epsilon
        case RandomizedResponseEvent(flip, n_buckets):
            return math.log1p(n_buckets * (1.0 - flip) / flip)
        case _:
            return math.inf


def gaussian_epsilon(groups: Groups, delta: float) -> float:
    """Exact for Gaussian events; an upper bound if some are sampled, which costs less."""
    mu = gaussian_mu_of(groups)
    with np.errstate(divide="ignore"):  # the library takes log(0) at extreme noise
        return float(get_epsilon_gaussian(1.0 / mu if mu else math.inf, delta))


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
    """Best conversion of the summed Renyi divergences, at all orders of the library."""
    # the library warns of orders whose series do not converge, and skips them: the rest is valid
    with _silent("absl"):
        return float(compute_epsilon(*_total_divergence(groups, None), delta)[0])


def quick_renyi_epsilon(groups: Groups, delta: float) -> float:
    """The same, faster and a little larger: only at integer orders if some event is sampled."""
    is_sampled = any(isinstance(event, PoissonSampled) for event, _ in groups)
    orders = INTEGER_ORDERS if is_sampled else None
    return float(compute_epsilon(*_total_divergence(groups, orders), delta)[0])


@contextmanager
def _silent(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _total_divergence(
    groups: Groups, orders: tuple[float, ...] | None
) -> tuple[FloatArray, FloatArray]:
    """Orders (None: the library's), and the sum of the divergences at each."""
    total = np.zeros(len(RdpAccountant(orders).orders))
    for event, count in groups:
        total = total + count * divergence(event, orders)
    return RdpAccountant(orders).orders, total


# A ledger asks for the divergences of the same events with each charge.
@lru_cache(maxsize=4096)
def divergence(event: Event, orders: tuple[float, ...] | None) -> FloatArray:
    """Renyi divergence of one event at each order (None: the library's orders).

    The library accepts randomized responses under a replacement relation only, and all other
    events must not be counted under one.
    """
    replaced = isinstance(event, RandomizedResponseEvent)
    relation = (
        NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    values: FloatArray = RdpAccountant(orders, relation).compose(to_dp_event(event)).rdp
    values.flags.writeable = False  # the cache hands out one array to all
    return values


# ---- privacy loss distributions -----------------------------------------------------------


def loss_distribution_epsilon(
    groups: Groups, delta: float, known: float, finest: float = FINE_INTERVAL
) -> float:
    """Composed privacy loss distributions on a grid; `known` is any valid epsilon so far.

    Infinite if an event has no such distribution or is repeated more than ten million times, the
    grid would be too large, or delta is too small for floating-point convolutions. The rounding
    error of the convolutions is charged to delta.
    """
    interval = _grid_interval(groups, known, finest)
    error = rounding_error(groups)
    if interval is None or delta < 10.0 * error or max(n for _, n in groups) > _MAX_ON_GRID:
        return math.inf
    with np.errstate(over="ignore"):  # an epsilon beyond 709 may come out infinite
        return float(_composed(groups, interval).get_epsilon_for_delta(delta - error))


def rounding_error(groups: Groups) -> float:
    """Bound on the absolute rounding error of a composed delta; it grows with the compositions."""
    return _ROUNDING * max(_LEAST_COMPOSITIONS, sum(count for _, count in groups))


def _grid_interval(groups: Groups, known: float, finest: float) -> float | None:
    """The finest grid that is worth its time and fits into memory; None if no grid fits."""
    widest = max(_reach(event) for event, _ in groups)
    width = max(widest, min(5.0 * known, sum(_composed_reach(*group) for group in groups)))
    if width == math.inf:
        return None
    interval = finest if known <= _FINE_BELOW_EPSILON else INTERVAL
    while width / interval > _MAX_GRID_POINTS:
        interval *= 10.0
    return interval if interval <= 1.5 * _COARSEST_INTERVAL else None


def _reach(event: Event) -> float:
    """Length of the range of one event's privacy loss; infinite if it has no distribution."""
    match event:
        case Gaussian(s) | PoissonSampled(_, Gaussian(s)):
            return (1.0 / s + 2.0 * _REACH) / s
        case Laplace() | RandomizedResponseEvent():
            return 2.0 * _pure(event)
        case _:
            return math.inf


def _composed_reach(event: Event, count: int) -> float:
    """Rough length after composition: time and memory depend on it, validity does not."""
    match event:
        case PoissonSampled(q, Gaussian(s)):
            often = q * count
            often = math.ceil(often + 8.0 * math.sqrt(often) + 1.0)
            return 1.5 * (0.5 * often / s + _REACH * math.sqrt(often)) / s
        case _:
            return count * _reach(event)


# The same composition is needed again at a delta that pays for the distance from ideal noise.
@lru_cache(maxsize=2)
def _composed(groups: Groups, interval: float) -> pld.PrivacyLossDistribution:
    """Compose all events; those that a ledger merges, and thus changes with each fit, come last."""
    gaussians = tuple(group for group in groups if isinstance(group[0], Gaussian))
    others = tuple(group for group in groups if group not in gaussians)
    parts = [_branch(some, interval, 0) for some in (others, gaussians) if some]
    return reduce(lambda total, further: total.compose(further), parts)


# A ledger adds one fit to many: that changes the few branches above it. The tree is a function of
# the events, so that the result does not depend, in its last digits, on what was composed before.
@lru_cache(maxsize=64)
def _branch(groups: Groups, interval: float, depth: int) -> pld.PrivacyLossDistribution:
    """Compose events in the order of a tree, in which each event's hash is its path."""
    if len(groups) == 1:
        ((event, count),) = groups
        return _distribution(event, interval).self_compose(count)
    sides: tuple[list[tuple[Event, int]], ...] = ([], [])
    for group in groups:
        sides[_hash(group[0]) >> depth & 1].append(group)
    branches = [_branch(tuple(side), interval, depth + 1) for side in sides if side]
    return reduce(lambda total, further: total.compose(further), branches)


@lru_cache(maxsize=4096)
def _hash(event: Event) -> int:
    """The same in every process, unlike the hash of Python."""
    return int.from_bytes(hashlib.sha256(repr(event).encode()).digest())


def _distribution(event: Event, interval: float) -> pld.PrivacyLossDistribution:
    """Privacy loss distribution of one event.

    It comes from the library's factories. The library's accountant takes one relation for all
    events, ignores the count of randomized responses, and doubles a Gaussian's sensitivity under
    replacement.
    """
    grid = {"value_discretization_interval": interval}
    match event:
        case Gaussian(noise_multiplier):
            return pld.from_gaussian_mechanism(noise_multiplier, **grid)
        case PoissonSampled(q, Gaussian(noise_multiplier)):
            return pld.from_gaussian_mechanism(noise_multiplier, sampling_prob=q, **grid)
        case Laplace(scale):
            return pld.from_laplace_mechanism(scale, **grid)
        case RandomizedResponseEvent(flip, n_buckets):
            replaced = NeighboringRelation.REPLACE_ONE
            return pld.from_randomized_response(
                flip, n_buckets, neighboring_relation=replaced, **grid
            )
        case _:
            raise TypeError(f"{type(event).__name__} has no privacy loss distribution")
