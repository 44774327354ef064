"""Root finding for a price that falls with the noise, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from scipy.optimize import brentq

# Of the logarithm of the noise; positive where the noise is too small, and falling.
Excess: TypeAlias = Callable[[float], float]

_LARGEST, _SMALLEST = math.log(1e9), math.log(1e-6)


def root(excess: Excess, *, tolerance: float) -> float:
    """The root, sought outwards from noise 1.

    Raises
    ------
    ValueError
        If it is not between noise 1e-6 and 1e9.
    """
    low = high = 0.0
    while excess(high) > 0.0:
        low, high = high, high + math.log(2.0)
        if high > _LARGEST:
            raise ValueError(
                "no noise meets this target: some events do not depend on the noise and cost "
                "too much; raise epsilon, or use fewer or cheaper steps"
            )
    while excess(low) <= 0.0:
        low, high = low - math.log(2.0), low
        if low < _SMALLEST:
            raise ValueError("any noise meets this target; state the noise instead")
    return float(brentq(excess, low, high, xtol=tolerance))


def root_below(excess: Excess, start: float, *, tolerance: float) -> float:
    """The root, sought from `start`, where the noise is about enough, in small steps down.

    Small steps because the price of very small noise can be very expensive to compute.
    """
    high = start
    while excess(high) > 0.0:
        high += tolerance
    low = high - math.log(1.25)
    while excess(low) <= 0.0:
        low, high = low - math.log(1.25), low
    return float(brentq(excess, low, high, xtol=tolerance))


def safe_side(excess: Excess, log_noise: float, *, step: float) -> float:
    """Move a root up, by steps that double, until the noise is enough."""
    while excess(log_noise) > 0.0:
        log_noise += step
        step *= 2.0
    return log_noise
