"""Composition of rare steps: laws on knots whose distances grow with the loss.

A step with a tiny sampling rate rarely has a loss, but then a large one: no grid of
equal cells is both fine enough and long enough. docs/accounting.md has the proof. All
terms of a sum are positive, so a small delta loses no digits.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dplda.privacy._composition import (
    MANY_KINDS,
    TAIL,
    Groups,
    law_of_polygon,
    values_above,
)
from dplda.privacy._curves import (
    LARGEST_LOSS,
    TINY,
    FloatArray,
    U,
    curve_of,
    up,
)
from dplda.privacy._events import Event, PoissonSampled

# A step is rare if its rate is at most this: equal cells would take seconds, or more
# than the memory.
_RATE = 1e-3
_ROWS = 32  # of a block of losses: it stays in the cache of a core, twice as fast
# smaller losses count as this one, whose exponential is a rounding
_LOWEST = math.log(U)
# Distance of knots, as a share of the loss, or of the law's deviation around 0.
_APART = 0.025


class _Law(NamedTuple):
    """A law on knots, whose curve and polygon are nowhere below that of some steps."""

    knots: FloatArray  # increasing losses, the first and last of which are its range
    values: FloatArray  # of the polygon
    masses: FloatArray
    infinite: float  # mass of infinite losses
    deviation: float  # roughly that of most losses


def is_rare(groups: Groups, added: bool) -> bool:
    """Whether some step is rare, and the kinds of steps are few and have curves."""
    if len(groups) > MANY_KINDS:
        return False
    curves = [curve_of(event, added=added, upper=True) for event, _ in groups]
    if any(curve is None for curve in curves):
        return False
    return any(
        isinstance(event, PoissonSampled) and event.sampling_probability <= _RATE
        for event, _ in groups
    )


def rare_epsilon(groups: Groups, delta: float, added: bool) -> float:
    """Epsilon at a delta in one direction, never too small; infinite if none is found.

    The polygon of all steps is there at delta.
    """
    tail = TAIL * delta / sum(count for _, count in groups)
    # powers of two: a ledger asks for similar laws again
    tail = max(2.0 ** math.floor(math.log2(tail)), TINY)
    law: _Law | None = None
    for event, count in groups:
        steps = _power(event, count, added, tail)
        law = steps if law is None else _composed(law, steps)
    assert law is not None
    values = law.values
    if values[-1] > delta:
        return math.inf
    end = int(np.argmax(values <= delta))
    if end == 0:
        return max(0.0, float(law.knots[0]))
    growth = _growth_above(law.knots[end - 1 : end + 1])
    share = (values[end - 1] - delta) / (values[end - 1] - values[end])
    where = float(growth[0] + share * (growth[1] - growth[0]))
    # up: a dozen roundings, and the logarithm
    where += 32.0 * U * float(np.abs(growth).max())
    return max(0.0, up(math.log1p(where), 32.0 * U))


@lru_cache(maxsize=256)
def _power(event: Event, count: int, added: bool, tail: float) -> _Law:
    """The law of a step that is repeated, by squaring."""
    one = _law_of_step(event, added, tail)
    law = one
    for digit in f"{count:b}"[1:]:
        law = _composed(law, law)
        if digit == "1":
            law = _composed(one, law)
    return law


def _law_of_step(event: Event, added: bool, tail: float) -> _Law:
    """The law of one step, with at most the mass `tail` at infinity."""
    curve = curve_of(event, added=added, upper=True)
    assert curve is not None
    low, high = curve.span(tail)
    deviation = max(curve.deviation, U)  # closer knots would be millions
    knots = _knots(low, high, deviation)
    return _law(knots, values_above(curve, knots), deviation)


def _composed(first: _Law, second: _Law) -> _Law:
    """The law of both: the second's polygon, averaged over the first's losses."""
    # up: at the last knot no sum is rounded to below the end of the second law, where
    # its polygon is steep; knots may lie anywhere
    high = up(first.knots[-1] + second.knots[-1], 64.0 * U)
    deviation = math.hypot(first.deviation, second.deviation)
    knots = _knots(first.knots[0] + second.knots[0], high, deviation)
    growth = np.append(-1.0, _growth_above(second.knots))
    growth, values = _finer(growth, np.append(1.0, second.values))
    n_blocks = 1 + len(knots) // _ROWS
    averages = np.concatenate(
        [
            _averages(rows[:, None] - first.knots, growth, values, first.masses)
            for rows in np.array_split(knots, n_blocks)
        ]
    )
    # up: an interpolation is off by 4 roundings of the larger value of its cell, which
    # is at most 4 times the other one, and there are as many products
    averages = up(averages, (len(first.masses) + 64.0) * U) + TINY
    return _law(knots, averages + first.infinite, deviation)


def _averages(
    losses: FloatArray, growth: FloatArray, values: FloatArray, masses: FloatArray
) -> FloatArray:
    """Means of a polygon at the losses of each row, which have these masses.

    Of each sum t exp(-loss), what is subtracted makes it smaller, where the polygon is
    higher.
    """
    sums = np.expm1(losses)
    # down: the roundings of a difference and of an exponential
    sums -= (16.0 + 2.0 * np.abs(losses)) * U * np.abs(sums)
    with np.errstate(under="ignore"):
        means: FloatArray = np.interp(sums, growth, values) @ masses
    return means


def _finer(growth: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same polygon, with points on it where it falls to a fourth.

    So the rounding error of a value between two points is a small share of the value.
    """
    points = [growth]
    heights = [values]
    for i in np.flatnonzero(values[:-1] > 4.0 * values[1:]):
        left, right = growth[i : i + 2]
        high, low = values[i : i + 2]
        n_points = math.ceil(0.5 * math.log2(high / max(low, TINY)))
        between = right - (right - left) * 0.25 ** np.arange(1, n_points + 1)
        share = (right - between) / (right - left)
        points.append(between)
        heights.append(up(low + (high - low) * share, 16.0 * U))  # up: the roundings
    every, first = np.unique(np.concatenate(points), return_index=True)
    return every, np.concatenate(heights)[first]


def _law(knots: FloatArray, values: FloatArray, deviation: float) -> _Law:
    # a curve falls, from 1 at most
    values = np.minimum.accumulate(np.minimum(values, 1.0))
    masses, infinite = law_of_polygon(knots, values)
    return _Law(knots, values, masses, infinite, deviation)


def _growth_above(knots: FloatArray) -> FloatArray:
    """exp(loss) - 1, rounded up: the curve there is at most its value at the knot."""
    growth = np.expm1(knots)
    return growth + 16.0 * U * np.abs(growth)


def _knots(low: float, high: float, deviation: float) -> FloatArray:
    """Losses from the lowest to the highest, through 0."""
    above = _ladder(min(high, LARGEST_LOSS), deviation)
    below = _ladder(-max(low, _LOWEST), deviation)
    return np.concatenate([-below[::-1], [0.0], above])


def _ladder(end: float, deviation: float) -> FloatArray:
    """Positive losses up to the end."""
    unit = _APART * min(deviation, 1.0)
    end = max(end, unit)
    losses = [unit]
    while losses[-1] < end:
        loss = losses[-1]
        losses.append(loss + max(unit, _APART * loss))
    losses[-1] = end
    return np.array(losses)
