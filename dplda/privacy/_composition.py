"""Composition of laws on a grid by tilted convolution, with certified errors.

The tilt is exponential.

Masses are tilted by exp(theta * loss), transformed, raised to their powers, multiplied
and transformed back. An error of the tilted law enters delta as a share of delta, so
errors have no floor. docs/accounting.md has the bound of each term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplda.privacy._curves import (
    ELEMENTARY,
    LARGEST_LOSS,
    TINY,
    Curve,
    FloatArray,
    Number,
    U,
    bounded_range_divergence,
    curve_of,
    down,
    up,
)
from dplda.privacy._events import (
    MAX_COUNT,
    BoundedRange,
    Event,
    PoissonSampled,
    Repeated,
)

Groups: TypeAlias = tuple[tuple[Event, int], ...]

# The tilts that are tried. Any tilt is valid, and one that is off by a factor of
# sqrt(2) costs nothing visible.
TILTS = 2.0 ** np.arange(-8.0, 32.25, 0.25)
_NO_LAW = np.full(len(TILTS), math.inf)
_N_COARSE = 800  # knots of the law from which the tilt is chosen
# below this delta only pure epsilons count; at it, exponentials do not underflow
SMALLEST_DELTA = 1e-200
# smallest mass that may count as infinite loss: those of all steps together are far
# below the rounding error of any delta
_SMALLEST_TAIL = SMALLEST_DELTA * U * U / MAX_COUNT
# Orders of the bounds on what wraps around, as shares of the tilt.
_SHARES = (-4.0, -2.0, -1.0, -0.5, -0.25, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)
# Of a tilted law: beyond the window, and in frequencies not kept. The same share of
# delta may be an infinite loss, of all steps together.
TAIL = 1e-12
# Cells for each standard deviation of a loss. The excess of epsilon falls with the
# square: at 64 it is 1e-5 to 1e-4. Many kinds have a fourth of the cells, and 16 times
# the excess: with 64 cells, the transforms of a ledger of 1,000 kinds would keep 1.9
# GB, instead of 0.5.
_CELLS = 64.0
MANY_KINDS = 64
_MOST_CELLS = 2**22  # of a window: 32 MB a vector; of a law, an eighth of it


@lru_cache(maxsize=8192)
def cumulants(event: Event, added: bool) -> FloatArray:
    """Logarithm of the mean of exp(tilt * loss) under P for each tilt, never too small.

    They belong to a law that dominates the step, on knots that are dense near 0, except
    for a mass at infinity of at most `_SMALLEST_TAIL`. Infinite if the step has no such
    law.
    """
    if isinstance(event, BoundedRange):  # the worst choice for each tilt
        of_choice: FloatArray = TILTS * bounded_range_divergence(
            event.epsilon, 1.0 + TILTS
        )
        return of_choice
    reach = _reach(event, added, True, 0.5 * _SMALLEST_TAIL)
    if reach is None:
        return _NO_LAW
    curve, (low, high) = reach
    unit = 0.1 * min(curve.deviation, high - low)
    places = np.linspace(np.arcsinh(low / unit), np.arcsinh(high / unit), _N_COARSE)
    knots = unit * np.sinh(places)
    masses, infinite = law_above(curve, knots)
    if not (infinite <= _SMALLEST_TAIL and np.isfinite(masses).all()):
        return _NO_LAW
    with np.errstate(divide="ignore"):
        exponents = np.log(masses) + TILTS[:, None] * knots
    values = _log_sum(exponents)
    # up: each logarithm of a mass is above -600, each exponent below tilt times loss
    values += 8.0 * U * (LARGEST_LOSS + TILTS * np.abs(knots).max())
    values.flags.writeable = False
    return values


def summed_cumulants(groups: Groups, added: bool) -> FloatArray:
    """The cumulants of a composition, never too small."""
    total = np.zeros(len(TILTS))
    for event, count in groups:
        total = total + count * cumulants(event, added)
    return up(total, 4.0 * U * len(groups))  # up: a product and a sum for each kind


def ways(groups: Groups) -> set[bool]:
    """Whether a unit is added or removed: it matters for sampled steps only."""
    return {False, any(isinstance(event, PoissonSampled) for event, _ in groups)}


def largest_cumulants(groups: Groups) -> FloatArray:
    """The cumulants of the direction in which they are larger, for each tilt."""
    both = [summed_cumulants(groups, added) for added in ways(groups)]
    largest: FloatArray = np.maximum.reduce(both)
    return largest


def renyi_epsilons(logs: FloatArray, delta: float) -> FloatArray:
    """Epsilon of summed cumulants at each tilt (Canonne et al. 2020, proposition 12).

    The authors are Canonne, Kamath and Steinke.

    Masses at infinity take at most a share of 1e-25 of delta.
    """
    # up: 1e-14 is above that share and the roundings of the two logarithms
    each: FloatArray = (logs + log_peak(TILTS) - math.log(delta) + 1e-14) / TILTS
    return each


# ---- one kind of step ----------------------------------------------------------------


Reach: TypeAlias = tuple[Curve, tuple[float, float]]  # a step, and where its losses are


@dataclass(frozen=True)
class _Power:
    """The transform of a tilted law to a power, for one kind of event.

    It includes the numbers that its error bounds need.
    """

    first: int  # place of the first cell
    width: int  # number of cells of the composed law
    # of the low frequencies; the others are together below `TAIL`
    values: NDArray[np.complex128]
    bounds: FloatArray  # upper bounds on their absolute values, with all errors
    log_mass: float
    mean: float
    log_moments: FloatArray  # of the tilted law, at `_SHARES`
    entries: float  # relative l1 error of the tilted masses
    infinite: float


@lru_cache(maxsize=4096)
def _power(
    curve: Curve,
    ends: tuple[float, float],
    count: int,
    upper: bool,
    tilt: float,
    h: float,
    n: int,
) -> _Power:
    """The power `count` of a step's law, in n cells of length h."""
    from scipy import fft

    low, high = ends
    first = math.floor(low / h) - 1
    last = math.ceil(high / h) + 1
    places = np.arange(first, last + 1, dtype=np.float64)
    losses = places * h
    infinite = 0.0
    if upper:
        masses, infinite = law_above(curve, losses)
    else:
        masses = law_below(curve, losses)
    kept = masses > 0.0
    places = places[kept]
    losses = losses[kept]
    logs = np.log(masses[kept])
    exponents = logs + tilt * losses
    log_mass = float(_log_sum(exponents))
    tilted = np.exp(exponents - log_mass)
    # up: the roundings of each exponent, weighted by its mass
    spread = (
        4.0 + 2.0 * np.abs(logs) + 3.0 * np.abs(tilt * losses) + 2.0 * abs(log_mass)
    )
    entries = 2.0 * U * float((tilted * spread).sum()) + 16.0 * ELEMENTARY
    moments = [
        _log_sum(exponents + share * tilt * losses) - log_mass for share in _SHARES
    ]
    # a single transform suffices: a law longer than the window is folded
    cells = np.bincount((places - first).astype(np.int64) % n, tilted, n)
    transform = fft.rfft(cells)
    # up: the masses add up to 1, so that the transform's error is that of each value
    with np.errstate(divide="ignore"):
        sizes = np.log(np.abs(transform) + _transform_error(n))
    log_bounds = count * (sizes + 4.0 * U)
    large = np.flatnonzero(log_bounds > math.log(TAIL / n))
    n_kept = int(large[-1]) + 1 if len(large) else 1
    return _Power(
        first=count * first,
        width=count * (last - first),
        values=_raised(transform[:n_kept], count),
        # up: of negative logarithms; and twice of the power by squaring, which is off,
        # and whose computed value is subtracted
        bounds=np.exp(log_bounds[:n_kept] * (1.0 - 16.0 * U) + 8.0 * U * count),
        log_mass=count * log_mass,
        mean=count * float((tilted * places).sum()),
        log_moments=count * np.array(moments),
        entries=count * entries,
        infinite=count * infinite,
    )


def _transform_error(n: int) -> float:
    """Relative error of a fast transform of n values: 10 roundings for each level."""
    return 10.0 * U * math.log2(n)


def _reach(event: Event, added: bool, upper: bool, tail: float) -> Reach | None:
    """The curve of a step and the range of its losses; None beyond floats."""
    curve = curve_of(event, added=added, upper=upper)
    if curve is None:
        return None
    low, high = curve.span(tail)
    return (curve, (low, high)) if -LARGEST_LOSS < low < high < LARGEST_LOSS else None


def _log_sum(exponents: FloatArray) -> FloatArray:
    """Logarithms of sums of exponentials, over the last axis."""
    top = exponents.max(axis=-1, keepdims=True)
    with np.errstate(under="ignore"):
        sums: FloatArray = top[..., 0] + np.log(np.exp(exponents - top).sum(axis=-1))
    return sums


def _raised(values: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """A power by squaring, with a relative error below 3 (count - 1) roundings."""
    result = np.ones(len(values), np.complex128)
    with np.errstate(under="ignore"):
        while count:
            result = result * values if count & 1 else result
            count >>= 1
            values = values * values if count else values
    return result


# ---- all steps together --------------------------------------------------------------


@dataclass(frozen=True)
class Composition:
    """Delta of a composition in one direction, from one side, near one tilt's epsilon.

    The tilted law is `masses` on cells of length `h`, from the cell `first` on. All
    errors are upper bounds: `delta` adds them for a bound from above, and subtracts
    them for one from below.
    """

    upper: bool
    tilt: float
    h: float
    first: int
    masses: FloatArray
    log_mass: float  # logarithm of what the tilted masses were divided by
    infinite: float  # mass of infinite losses
    masses_error: float  # in l1, of the tilted masses
    scale_error: float  # relative, of the exponential of `log_mass`

    def delta(self, epsilon: float) -> float:
        """Delta of the composition at an epsilon: an upper or a lower bound."""
        i = max(0, math.floor(epsilon / self.h) - self.first)
        masses = self.masses[i:]
        losses = (np.arange(i, i + len(masses)) + self.first) * self.h - epsilon
        losses = np.maximum(losses, 0.0)
        with np.errstate(under="ignore"):
            weights = np.exp(-self.tilt * losses) * -np.expm1(-losses)
            inner = float((np.maximum(masses, 0.0) * weights).sum())
        exponent = self.log_mass - self.tilt * epsilon
        if exponent > 700.0:
            return math.inf if self.upper else -math.inf
        scale = math.exp(exponent)
        value = scale * inner
        # up: roundings of the scale, of each weight, and of their sum
        relative = (
            self.scale_error
            + 4.0 * U * self.tilt * abs(epsilon)
            + len(losses) * 2.0 * U
            + 1e-13
        )
        # up: no weight is above the peak; those that underflow are below `TINY`
        peak = math.exp(log_peak(self.tilt))
        of_masses = scale * (peak * self.masses_error + TINY)
        error = up(of_masses, 1e-9) + value * relative
        return value + error + self.infinite if self.upper else value - error


def compose(
    groups: Groups,
    delta: float,
    place: int,
    logs: FloatArray,
    *,
    added: bool,
    upper: bool,
) -> Composition | None:
    """The composition near the epsilon of this delta; None if no bound is computed.

    `place` is the index of the tilt in `TILTS`, and `logs` are the composition's
    cumulants there.
    """
    place = _useful_place(logs, place)
    tilt = float(TILTS[place])
    spread = _deviation_at(logs, place)
    n_steps = sum(count for _, count in groups)
    if upper:
        groups = tuple(_ranges_as_one_step(event, count) for event, count in groups)
    # the mass of one step that may count as an infinite loss
    tail = TAIL * delta / n_steps
    tail = max(2.0 ** (8 * math.floor(math.log2(tail) / 8.0)), _SMALLEST_TAIL)
    reaches = _reaches(groups, added, upper, tail)
    if reaches is None:
        return None
    if max(curve.deviation for curve, _ in reaches) < TINY:
        return None
    counts = [count for _, count in groups]
    h = _cell_length(reaches, counts, spread)
    n = 1 << max(4, math.ceil(math.log2(20.0 * spread / h + 1.0)))
    longest = max(h, spread)
    while True:  # first try longer windows, then longer cells
        if n > _MOST_CELLS:
            h *= 2.0
            n //= 2
        if h > longest:
            return None
        parts = [
            _power(curve, ends, count, upper, tilt, h, n)
            for (curve, ends), count in zip(reaches, counts)
        ]
        first, outside = _window(parts, tilt, h, n)
        if outside <= TAIL:
            break
        n *= 2
    masses, masses_error = _multiplied(parts, first, n, outside)
    # up: the errors themselves were rounded, and so were the powers, step by step
    masses_error *= 1.0 + 1e-6 + 8.0 * U * sum(counts)
    return Composition(
        upper=upper,
        tilt=tilt,
        h=h,
        first=first,
        masses=masses,
        log_mass=math.fsum(part.log_mass for part in parts),
        infinite=up(math.fsum(part.infinite for part in parts), 1e-3),
        masses_error=masses_error,
        scale_error=4.0 * U * sum(abs(part.log_mass) for part in parts),
    )


def _useful_place(logs: FloatArray, place: int) -> int:
    """The index of a smaller tilt if rare losses take over soon.

    The window would be long. Any tilt is valid.
    """
    place = min(max(place, 3), len(logs) - 3)
    while place > 3:
        above = logs[place + 2] - logs[place]
        below = logs[place] - logs[place - 2]
        if above <= 6.0 * below:
            break
        place -= 1
    return place


def _deviation_at(logs: FloatArray, place: int) -> float:
    """Standard deviation of the tilted law, by second differences of smaller tilts.

    Smaller tilts are used, for the same reason as above.
    """
    a, b, c = TILTS[place - 2 : place + 1]
    x, y, z = logs[place - 2 : place + 1]
    variance = 2.0 * ((z - y) / (c - b) - (y - x) / (b - a)) / (c - a)
    return math.sqrt(max(variance, 0.0))


def _ranges_as_one_step(event: Event, count: int) -> tuple[Event, int]:
    """All bounded-range choices of a kind are one step, which has a curve."""
    if isinstance(event, BoundedRange):
        return Repeated(event, count), 1
    return event, count


def _reaches(
    groups: Groups, added: bool, upper: bool, tail: float
) -> list[Reach] | None:
    """The reach of each step; None if a step has no reach."""
    reaches = []
    for event, _ in groups:
        reach = _reach(event, added, upper, tail)
        if reach is None:
            return None
        reaches.append(reach)
    return reaches


def _cell_length(reaches: list[Reach], counts: list[int], spread: float) -> float:
    """The length of a cell: corners of the main curve are multiples of it."""
    variances = [
        count * curve.deviation**2 for (curve, _), count in zip(reaches, counts)
    ]
    unit = reaches[int(np.argmax(variances))][0].unit
    cells = _CELLS / 4.0 if len(reaches) > MANY_KINDS else _CELLS
    typical = max(math.sqrt(sum(variances) / sum(counts)), TINY)
    h = unit * 2.0 ** math.floor(math.log2(typical / cells / unit))
    widest = max(high - low for _, (low, high) in reaches)
    while max(8.0 * widest, 20.0 * spread) / _MOST_CELLS > h:
        h *= 2.0
    return h


def _window(parts: list[_Power], tilt: float, h: float, n: int) -> tuple[int, float]:
    """The first cell of a window around the mean, and a bound on the mass outside."""
    if sum(part.width for part in parts) < n:
        return sum(part.first for part in parts), 0.0
    first = round(sum(part.mean for part in parts) - n / 2)
    low = first * h
    high = (first + n - 1) * h
    moments = np.sum([part.log_moments for part in parts], axis=0)
    # up: by Chernoff's inequality, the mass below the first cell and above the last one
    below = [
        moment - share * tilt * low
        for share, moment in zip(_SHARES, moments, strict=True)
        if share < 0.0
    ]
    above = [
        moment - share * tilt * high
        for share, moment in zip(_SHARES, moments, strict=True)
        if share > 0.0
    ]
    return first, 2.0 * (math.exp(min(*below, 0.0)) + math.exp(min(*above, 0.0)))


def _multiplied(
    parts: list[_Power], first: int, n: int, outside: float
) -> tuple[FloatArray, float]:
    """The tilted masses of all steps in the window, and a bound on their l1 error."""
    from scipy import fft

    n_kept = min(len(part.values) for part in parts)
    product = np.ones(n_kept, complex)
    bounds = np.ones(n_kept)
    with np.errstate(under="ignore"):
        for part in parts:
            product = product * part.values[:n_kept]
            bounds = bounds * part.bounds[:n_kept]
    sizes = np.abs(product)
    spectrum = np.zeros(n // 2 + 1, complex)
    spectrum[:n_kept] = product
    begin = sum(part.first for part in parts)
    masses = np.roll(fft.irfft(spectrum, n), -((first - begin) % n))
    # up: a value is off by the gap to its bound, and by the product's roundings
    wrong = np.maximum(bounds - sizes, 0.0) + 8.0 * U * len(parts) * bounds
    # up: each step is off by its own share
    entries = math.expm1(min(sum(part.entries for part in parts), 1.0))
    # up: what wraps around, and frequencies that were left out
    error = outside + 2.0 * float(wrong.sum()) + TAIL
    # up: the transform back
    error += 2.0 * _transform_error(n) * float(sizes.sum()) + entries
    return masses, error


def log_peak(tilt: Number) -> Number:
    """Logarithm of the largest exp(-tilt x) (1 - exp(-x)) of any x > 0."""
    peak: Number = tilt * np.log(tilt) - (1.0 + tilt) * np.log1p(tilt)
    return peak


# ---- laws on knots -------------------------------------------------------------------

# A law is a mass under P at each knot, and a mass at an infinite loss.
# docs/accounting.md proves that its curve is on the stated side everywhere, for the
# numbers as they were rounded.


Tangent: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]  # t, delta and slope


def _mass_error(losses: Number) -> Number:
    """Relative rounding error of a mass, whose knot enters by exponentials."""
    error: Number = ELEMENTARY * (16.0 + np.abs(losses))
    return error


def law_above(curve: Curve, knots: FloatArray) -> tuple[FloatArray, float]:
    """Masses at increasing knots, and at infinity, whose curve is nowhere below this.

    Chords of a convex curve are above it.
    """
    return law_of_polygon(knots, values_above(curve, knots))


def values_above(curve: Curve, knots: FloatArray) -> FloatArray:
    """The curve at losses, rounded up."""
    delta, error, slope = curve.at(knots)
    # up: each value, by its own error and by that of its knot
    return delta + error + 2.0 * U * np.abs(knots) * np.exp(knots) * slope


def law_of_polygon(knots: FloatArray, delta: FloatArray) -> tuple[FloatArray, float]:
    """Masses at increasing knots, and at infinity, whose curve has these values.

    Between the knots, and where their polygon is not convex, it is above them.
    """
    t = np.exp(knots)
    falls = np.maximum(-np.diff(delta), 0.0) / (t[:-1] * np.expm1(np.diff(knots)))
    falls = np.maximum.accumulate(falls[::-1])[::-1]  # convex, and nowhere smaller
    corners = np.append(0.0, falls) - np.append(falls, 0.0)
    masses = up(corners * t, _mass_error(knots))  # up: a larger mass only adds
    infinite = float(delta[-1])
    rest = 1.0 - infinite - float(masses[1:].sum())
    masses[0] = max(0.0, rest) + _mass_error(0.0)  # up: all masses are at least 1
    return masses, infinite


def law_below(curve: Curve, knots: FloatArray) -> FloatArray:
    """Masses at increasing knots, with a curve that is nowhere above this one.

    The chords are moved down by their distance from three tangents of each of the two
    cells.
    """
    from scipy.optimize import isotonic_regression

    middles = 0.5 * (knots[:-1] + knots[1:])
    t = np.exp(knots)
    t_middle = np.exp(middles)
    delta, error, slope = curve.at(knots)
    delta_middle, error_middle, slope_middle = curve.at(middles)
    # up: the errors, by those of the knots
    error = error + 2.0 * U * np.abs(knots) * t * slope
    error_middle = error_middle + 2.0 * U * np.abs(middles) * t_middle * slope_middle
    width = t[:-1] * np.expm1(np.diff(knots))
    left = (t[:-1], delta[:-1], slope[:-1])
    middle = (t_middle, delta_middle, slope_middle)
    right = (t[1:], delta[1:], slope[1:])
    excess = _excess_of_chords(left, middle, right, width)
    # up: by the errors of the three points, and of the chord
    excess += error[:-1] + error[1:] + error_middle
    excess += _mass_error(middles) * (width * slope[:-1] + delta[:-1])
    # down: each value, by its error and by the larger excess of its two cells
    lowered = delta - error
    lowered -= np.maximum(np.append(excess, 0.0), np.append(0.0, excess))
    sums = 8.0 * U * len(knots)  # of as many masses as there are knots
    lowered = down(lowered - TINY, sums)
    # The curve is also above its tangent at the first knot whose value is not above 0,
    # which is moved down to 0 there: the last chord stays below this line.
    lowered[-1] = 0.0
    end = int(np.argmax(lowered <= 0.0))
    lowered[end:] = 0.0
    if end > 0:
        line = down(slope[end] * width[end - 1], _mass_error(0.0))
        lowered[end - 1] = min(lowered[end - 1], line)
    falls = -isotonic_regression(np.diff(lowered) / width, weights=width).x
    # down: the curve's own slope at the first knot
    steepest = down(slope[0], _mass_error(0.0))
    falls = np.clip(falls, 0.0, steepest)
    corners = np.append(steepest, falls) - np.append(falls, 0.0)
    # down: a smaller mass only takes away
    masses: FloatArray = (
        np.maximum(corners, 0.0) * t * (1.0 - _mass_error(knots) - sums)
    )
    return masses


def _excess_of_chords(
    left: Tangent, middle: Tangent, right: Tangent, width: FloatArray
) -> FloatArray:
    """How far the chord of each cell is above the largest of three tangents at most.

    They are those at both ends and in the middle, and the curve is above them. The
    chord is furthest above them where two of them meet.
    """
    t, delta, _ = left
    rise = right[1] - delta
    excess = np.zeros(len(width))
    for one, two in ((left, middle), (middle, right)):
        x, tangent = _meeting_point(one, two)
        chord = delta + rise * (x - t) / width
        excess = np.maximum(excess, chord - tangent)
    return excess


def _meeting_point(one: Tangent, two: Tangent) -> tuple[FloatArray, FloatArray]:
    """Where two tangents of a convex curve meet, and their value there."""
    t_one, delta_one, slope_one = one
    t_two, delta_two, slope_two = two
    rise = delta_one - delta_two + slope_one * t_one - slope_two * t_two
    with np.errstate(divide="ignore", invalid="ignore"):
        x = rise / (slope_one - slope_two)
    meet = (slope_one > slope_two) & np.isfinite(x)
    x = np.where(meet, np.clip(x, t_one, t_two), 0.5 * (t_one + t_two))
    of_one = delta_one - slope_one * (x - t_one)
    of_two = delta_two - slope_two * (x - t_two)
    return x, np.maximum(of_one, of_two)
