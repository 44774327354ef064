"""What a guarantee for one unit gives for a group of units: docs/proofs_document.md."""

from __future__ import annotations

import math

from dplda.privacy._accountant import all_gaussian
from dplda.privacy._accounting import delta_charge, epsilon_of, is_chargeable
from dplda.privacy._composition import Groups
from dplda.privacy._events import (
    ApproximateDP,
    Event,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    Repeated,
)

_MARGIN = 1.0 + 1e-9  # on the rounding errors of the numbers that are computed here
_SLACK = 0.99  # of a step of the search, so that it ends
_MAX_STEPS = 100


def group_events(
    groups: Groups, size: int, delta: float, total_variation: float
) -> tuple[Event, ...]:
    """Events that dominate what a whole group of `size` units can change.

    Gaussian steps, sampled or not, become events of the same kind. For all steps, one event can
    state the (epsilon, delta) of a chain of neighbors at this delta. The cheaper ones are taken.
    """
    options: list[tuple[Event, ...]] = []
    if all(isinstance(event, (Gaussian, PoissonSampled)) for event, _ in groups):
        options.append(tuple(Repeated(_of_group(event, size), n) for event, n in groups))
    if not all_gaussian(groups):
        epsilon = _chain(groups, size, delta, total_variation)
        is_finite = epsilon < math.inf
        options.append((ApproximateDP(epsilon, delta) if is_finite else NonPrivate(),))
    return min(options, key=lambda own: epsilon_of(own, delta, total_variation=total_variation))


def _of_group(event: Event, size: int) -> Event:
    """A step whose noise hides `size` units: someone of the group is in most samples."""
    match event:
        case Gaussian(noise_multiplier):
            return Gaussian(noise_multiplier / size)
        case PoissonSampled(1.0, inner):
            return _of_group(inner, size)
        case PoissonSampled(rate, inner):
            anyone = -math.expm1(size * math.log1p(-rate)) * _MARGIN
            return PoissonSampled(min(1.0, anyone), Gaussian(inner.noise_multiplier / size))
        case _:
            raise TypeError(f"{type(event).__name__} has no event for a group")


def _chain(groups: Groups, size: int, delta: float, total_variation: float) -> float:
    """Epsilon of a chain of neighbors, each with the same delta; infinite if there is none.

    A larger delta of each has a smaller epsilon. The search starts above the largest that the chain
    can pay for, and each step stays above it until the chain can pay.
    """
    events, single = [Repeated(event, count) for event, count in groups], delta
    for _ in range(_MAX_STEPS):
        step = epsilon_of(events, single)
        epsilon = size * step * _MARGIN
        if epsilon == math.inf:
            return math.inf
        left = delta
        if is_chargeable(total_variation, epsilon, delta):
            left -= delta_charge(total_variation, epsilon)
        n_deltas = _geometric_sum(step, size) * _MARGIN
        if single == 0.0 or single * n_deltas <= left:
            return epsilon
        single = _SLACK * left / n_deltas
    return size * epsilon_of(events, 0.0) * _MARGIN


def _geometric_sum(epsilon: float, size: int) -> float:
    """1 + exp(epsilon) + ... + exp((size - 1) * epsilon); infinite if it is no float."""
    if epsilon == 0.0:
        return float(size)
    if size * epsilon > 700.0:
        return math.inf
    return math.expm1(size * epsilon) / math.expm1(epsilon)
