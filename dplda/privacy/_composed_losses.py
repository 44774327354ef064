"""Upper bounds on epsilon and delta from composed privacy loss distributions on a grid.

This module chooses the grid, and keeps distributions from outgrowing the memory. docs/accounting.md
says why the results are valid.
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce

import numpy as np

from dplda.privacy._bounds_on_epsilon import (
    FloatArray,
    Groups,
    is_too_often,
    pure_epsilon,
    pure_epsilon_of,
)
from dplda.privacy._composition_trees import CompositionTrees
from dplda.privacy._events import (
    ErasedResponse,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
)
from dplda.privacy._loss_distributions import (
    LossDistribution,
    distribution_of_law,
    gaussian_distribution,
    laplace_distribution,
)
from dplda.privacy._response_losses import LOST_MASS, Response, is_binary_response, loss_law
from dplda.privacy._sampled_losses import sampled_distribution

# Grid of the privacy loss distributions: fine while epsilon is small, finer where the loss of one
# step is small, and coarser where a tiny noise multiplier would otherwise take gigabytes.
FINE_INTERVAL, INTERVAL, _COARSEST_INTERVAL = 1e-4, 1e-3, 1e-2
_FINE_BELOW_EPSILON = 3.0
_MAX_GRID_POINTS = 1_000_000
# The same for a whole curve of deltas: at epsilon 1, it is 0.3% too large for this interval.
_CURVE_INTERVAL, _MAX_CURVE_POINTS = 5e-3, 20_000
# A finer grid than that has an interval of this share of the loss of one step, and at most so many
# points for one step, because the library takes about a microsecond for each.
_SHARE_OF_DEVIATION, _MAX_FINE_POINTS = 1.0 / 32.0, 200_000
# Standard deviations of Gaussian noise on the grid; beyond them, the loss counts as infinite.
_REACH = 10.0
# Rounding error of a composed delta for each composition of an event: 30 times the largest one
# that was measured (benchmarks/rounding.py). It is charged to delta. A delta below ten times the
# error is left to the other methods.
_ROUNDING = 1e-15
_LEAST_COMPOSITIONS = 100  # the transforms of a few compositions have an error too


def loss_distribution_epsilon(
    groups: Groups, delta: float, known: float, coarseness: float = 1.0
) -> float:
    """Composed privacy loss distributions on a grid; `known` is any valid epsilon so far.

    Infinite if an event has no such distribution or is repeated more than ten million times, the
    grid would be too large, or delta is too small for floating-point convolutions. The rounding
    error of the convolutions is charged to delta.
    """
    interval = _grid_interval(groups, known)
    error = rounding_error(groups)
    if interval is None or delta < 10.0 * error or any(is_too_often(*group) for group in groups):
        return math.inf
    with np.errstate(over="ignore"):  # an epsilon beyond 709 may come out infinite
        composed = _composed(groups, max(interval, min(coarseness * interval, _COARSEST_INTERVAL)))
        return float(composed.get_epsilon_for_delta(delta - error))


def loss_distribution_deltas(groups: Groups, epsilons: FloatArray) -> FloatArray:
    """Delta at each of several epsilons, never too small; 1 where no grid fits.

    The grid is a coarse one: audits ask for dozens of curves, many of them of very little noise.
    """
    interval = _grid_interval(groups, min(pure_epsilon(groups), 50.0))
    if interval is None:
        return np.ones(len(epsilons))
    reach = sum(_composed_reach(*group) for group in groups)
    composed = _composed(groups, max(interval, _CURVE_INTERVAL, reach / _MAX_CURVE_POINTS))
    deltas = np.asarray(composed.get_delta_for_epsilon(epsilons.tolist()))
    return np.clip(deltas + rounding_error(groups), 0.0, 1.0)


def rounding_error(groups: Groups) -> float:
    """Bound on the absolute rounding error of a composed delta; it grows with the compositions."""
    return _ROUNDING * max(_LEAST_COMPOSITIONS, sum(_n_convolved(*group) for group in groups))


def _n_convolved(event: Event, count: int) -> int:
    """How many distributions are convolved: the law of all binary responses is computed at once."""
    return 1 if is_binary_response(event) else count


def _grid_interval(groups: Groups, known: float) -> float | None:
    """A grid that is worth its time and fits into memory; None if no grid fits.

    An interval rounds each convolved loss. The error is small if the interval is a small share of
    the standard deviation of one loss, in the mean over all losses.
    """
    widest = max(_reach(event) for event, _ in groups)
    width = max(widest, min(5.0 * known, sum(_composed_reach(*group) for group in groups)))
    if width == math.inf:
        return None
    interval = FINE_INTERVAL if known <= _FINE_BELOW_EPSILON else INTERVAL
    n = sum(_n_convolved(*group) for group in groups)
    deviation = deviation_of(groups) / math.sqrt(n)
    finest = max(widest / _MAX_FINE_POINTS, width / _MAX_GRID_POINTS)
    # halves: as the entries of a ledger become more, the grid rarely changes
    while interval > _SHARE_OF_DEVIATION * deviation and interval >= 2.0 * finest:
        interval /= 2.0
    while width / interval > _MAX_GRID_POINTS:
        interval *= 10.0
    return interval if interval <= 1.5 * _COARSEST_INTERVAL else None


def deviation_of(groups: Groups) -> float:
    """Rough standard deviation of the sum of all privacy losses."""
    return math.sqrt(sum(count * _deviation(event) ** 2 for event, count in groups))


def _deviation(event: Event) -> float:
    """Rough standard deviation of one event's privacy loss; validity does not depend on it."""
    match event:
        case Gaussian(s):
            return 1.0 / s
        case PoissonSampled(q, Gaussian(s)):
            return q / s
        case Laplace() | RandomizedResponseEvent() | ErasedResponse():
            return pure_epsilon_of(event)
        case _:
            return math.inf


def _reach(event: Event) -> float:
    """Length of the range of one event's privacy loss; infinite if it has no distribution."""
    match event:
        case Gaussian(s) | PoissonSampled(_, Gaussian(s)):
            return (1.0 / s + 2.0 * _REACH) / s
        case Laplace() | RandomizedResponseEvent() | ErasedResponse():
            return 2.0 * pure_epsilon_of(event)
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


_trees = CompositionTrees()


# The same composition is needed again at a delta that pays for the distance from ideal noise.
@lru_cache(maxsize=2)
def _composed(groups: Groups, interval: float) -> LossDistribution:
    """Compose all events; those that a ledger merges, and thus changes with each fit, come last."""
    gaussians = tuple(group for group in groups if isinstance(group[0], Gaussian))
    others = tuple(group for group in groups if group not in gaussians)
    parts = [
        _trees.compose(some, interval, lambda event, n: _repeated_distribution(event, n, interval))
        for some in (others, gaussians)
        if some
    ]
    return reduce(lambda total, further: total.compose(further), parts)


def _repeated_distribution(event: Event, count: int, interval: float) -> LossDistribution:
    if is_binary_response(event):
        return _response_distribution(event, count, interval)
    distribution = _distribution(event, interval)
    return distribution if count == 1 else distribution.self_compose(count)


def _response_distribution(event: Response, count: int, interval: float) -> LossDistribution:
    """Privacy loss distribution of binary responses: their exact law, moved to the grid once."""
    return distribution_of_law(*loss_law(event, count), interval, LOST_MASS)


def _distribution(event: Event, interval: float) -> LossDistribution:
    """Privacy loss distribution of one event."""
    match event:
        case Gaussian(noise_multiplier):
            return gaussian_distribution(noise_multiplier, interval)
        case PoissonSampled(q, Gaussian(noise_multiplier)):
            return sampled_distribution(q, noise_multiplier, interval)
        case Laplace(scale):
            return laplace_distribution(scale, interval)
        case RandomizedResponseEvent(flip, n_buckets):  # right, any other wrong, or the neighbor's
            epsilon, wrong = pure_epsilon_of(event), flip / n_buckets
            law = np.array([wrong, (n_buckets - 2) * wrong, 1.0 - flip + wrong])
            return distribution_of_law(np.array([-epsilon, 0.0, epsilon]), law, interval, 0.0)
        case _:
            raise TypeError(f"{type(event).__name__} has no privacy loss distribution")
