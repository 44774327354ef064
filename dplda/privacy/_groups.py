"""What a guarantee for one unit gives for a group of units: docs/persons.md."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dplda.privacy._accounting import delta_charge, epsilon_of, is_chargeable
from dplda.privacy._bounds_on_epsilon import Groups, all_gaussian
from dplda.privacy._events import (
    ApproximateDP,
    Event,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    Repeated,
)

_MARGIN = 1.0 + 1e-9  # on the rounding errors of the numbers that are computed here
_SMALLEST_DELTA = 1e-60  # of one unit; a group of any use needs no smaller one
_N_DELTAS = 40


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
        chain = min(_chains(groups, size, delta, total_variation), default=None)
        options.append((NonPrivate(),) if chain is None else (ApproximateDP(*chain),))
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


def _chains(
    groups: Groups, size: int, delta: float, total_variation: float
) -> Iterator[tuple[float, float]]:
    """Valid pairs (epsilon, delta) of the group, one for each delta of a single unit."""
    events = [Repeated(event, count) for event, count in groups]
    singles = np.geomspace(min(_SMALLEST_DELTA, delta), delta, _N_DELTAS).tolist() if delta else []
    for single in (0.0, *singles):
        step = epsilon_of(events, single)
        epsilon = size * step * _MARGIN
        if epsilon == math.inf:
            continue
        lost = single * _geometric_sum(step, size) * _MARGIN
        if is_chargeable(total_variation, epsilon, delta):
            lost += delta_charge(total_variation, epsilon)
        if lost <= delta:
            yield epsilon, lost


def _geometric_sum(epsilon: float, size: int) -> float:
    """1 + exp(epsilon) + ... + exp((size - 1) * epsilon); infinite if it is no float."""
    if epsilon == 0.0:
        return float(size)
    if size * epsilon > 700.0:
        return math.inf
    return math.expm1(size * epsilon) / math.expm1(epsilon)
