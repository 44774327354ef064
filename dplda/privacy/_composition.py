"""Composition of laws on a grid by tilted convolution, with certified errors.

The tilt is exponential.

Masses are tilted by exp(theta * loss), transformed, raised to their powers, multiplied
and transformed back. An error of the tilted law enters delta as a share of delta: there
is no floor. docs/accounting.md has the bound of each term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplda.privacy._curves import (
    ELEMENTARY,
    LARGEST_LOSS,
    TINY,
    Curve,
    FloatArray,
    U,
    bounded_range_divergence,
    curve_of,
)
from dplda.privacy._events import (
    BoundedRange,
    Event,
    PoissonSampled,
    Repeated,
)

Groups: TypeAlias = tuple[tuple[Event, int], ...]

# The tilts that are tried: any is valid, and a factor sqrt(2) off costs nothing that is
# seen.
TILTS = 2.0 ** np.arange(-8.0, 32.25, 0.25)
_NO_LAW = np.full(len(TILTS), math.inf)
_N_COARSE = 800  # knots of the law from which the tilt is chosen
# below it, only pure epsilons count: its exponentials are floats
SMALLEST_DELTA = 1e-200
# of its masses that count as infinite losses: 2**36 are below all deltas
_COARSE_TAIL = 1e-240
# Orders of the bounds on what wraps around, as shares of the tilt.
_SHARES = (-4.0, -2.0, -1.0, -0.5, -0.25, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)
_TAIL = 1e-12  # of a tilted law, beyond the window of the transforms
_STEP_TAIL = 1e-7  # share of delta that may be an infinite loss, of all steps together
_FAR = 200.0  # exponents of the tilt beyond which masses enter an error alone
_NOTHING = 1e-26  # below it, a power of a transform is not kept
# Cells for each standard deviation of a loss. The excess of epsilon falls with the
# square: at 64 it is 1e-5 to 1e-4, at 16 it is 16 times as much. A ledger of many kinds
# would wait for seconds.
_CELLS, _CELLS_OF_MANY, _MANY = 64.0, 16.0, 200
# error of a value of a transform for each level, as a share of the input
_PER_LEVEL = 10.0 * U
# of a law and of a window: 4 and 32 MB a vector
_MOST_KNOTS, _MOST_CELLS = 2**19, 2**22


@lru_cache(maxsize=8192)
def cumulants(event: Event, added: bool) -> FloatArray:
    """Logarithm of the mean of exp(tilt * loss) under P for each tilt, never too small.

    They are those of a law above the step's, on knots that are dense near 0, but for a
    mass at infinity of at most `_COARSE_TAIL`. Infinite if the step has no such law.
    """
    if isinstance(event, BoundedRange):  # of the worst choice for each tilt
        of_choice: FloatArray = TILTS * bounded_range_divergence(
            event.epsilon, 1.0 + TILTS
        )
        return of_choice
    reach = _reach(event, added, True, 0.5 * _COARSE_TAIL)
    if reach is None:
        return _NO_LAW
    curve, (low, high) = reach
    unit = 0.1 * min(curve.deviation, high - low)
    knots = unit * np.sinh(
        np.linspace(np.arcsinh(low / unit), np.arcsinh(high / unit), _N_COARSE)
    )
    masses, infinite = law_above(curve, knots)
    if not (infinite <= _COARSE_TAIL and np.isfinite(masses).all()):
        return _NO_LAW
    with np.errstate(divide="ignore"):
        exponents = np.log(masses) + TILTS[:, None] * knots
    values = _log_sum(exponents)
    values += 8.0 * U * (600.0 + TILTS * np.abs(knots).max())
    values.flags.writeable = False
    return values


def summed_cumulants(groups: Groups, added: bool) -> FloatArray:
    """The cumulants of a composition."""
    total = sum(
        (n * cumulants(event, added) for event, n in groups), np.zeros(len(TILTS))
    )
    return total * (1.0 + 4.0 * U * len(groups))


def ways(groups: Groups) -> set[bool]:
    """Whether a unit is added or removed: it matters for sampled steps only."""
    return {False, any(isinstance(event, PoissonSampled) for event, _ in groups)}


def largest_cumulants(groups: Groups) -> FloatArray:
    """Those of the direction in which they are larger, for each tilt."""
    both: FloatArray = np.maximum.reduce(
        [summed_cumulants(groups, a) for a in ways(groups)]
    )
    return both


def renyi_epsilons(logs: FloatArray, delta: float) -> FloatArray:
    """Epsilon of summed cumulants at each tilt (Canonne et al. 2020, proposition 12).

    The authors are Canonne, Kamath and Steinke.

    The masses at infinity take a share of 1e-25 of delta at most.
    """
    each: FloatArray = (logs + log_peak(TILTS) - math.log(delta) + 1e-14) / TILTS
    return each


@dataclass(frozen=True)
class _Power:
    """The transform of a tilted law to a power, for one kind of event.

    It includes what its bounds need.
    """

    first: int  # place of the first cell
    width: int  # number of cells of the composed law
    # of the low frequencies; the others are below `_NOTHING`
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
    from scipy import fft

    low, high = ends
    first, last = math.floor(low / h) - 1, math.ceil(high / h) + 1
    places = np.arange(first, last + 1, dtype=np.float64)
    losses = places * h
    masses, infinite = (
        law_above(curve, losses) if upper else (law_below(curve, losses), 0.0)
    )
    kept = masses > 0.0
    places, losses, logs = places[kept], losses[kept], np.log(masses[kept])
    exponents = logs + tilt * losses
    log_mass = float(_log_sum(exponents))
    tilted = np.exp(exponents - log_mass)
    spread = (
        4.0 + 2.0 * np.abs(logs) + 3.0 * np.abs(tilt * losses) + 2.0 * abs(log_mass)
    )
    entries = 2.0 * U * float((tilted * spread).sum()) + 16.0 * ELEMENTARY
    moments = [
        _log_sum(exponents + share * tilt * losses) - log_mass for share in _SHARES
    ]
    # one transform: a law that is longer than the window is folded
    cells = np.bincount((places - first).astype(np.int64) % n, tilted, n)
    transform = fft.rfft(cells)
    error = _PER_LEVEL * math.log2(n)
    with np.errstate(divide="ignore"):
        log_bounds = count * (np.log(np.abs(transform) + error) + 4.0 * U)
    small = np.flatnonzero(log_bounds > math.log(_NOTHING))
    n_kept = int(small[-1]) + 1 if len(small) else 1
    return _Power(
        first=count * first,
        width=count * (last - first),
        values=_raised(transform[:n_kept], count),
        bounds=np.exp(log_bounds[:n_kept] * (1.0 - 4.0 * U) + 4.0 * U * count),
        log_mass=count * log_mass,
        mean=count * float((tilted * places).sum()),
        log_moments=count * np.array(moments),
        entries=count * entries,
        infinite=count * infinite,
    )


def _reach(
    event: Event, added: bool, upper: bool, tail: float
) -> tuple[Curve, tuple[float, float]] | None:
    """The curve of a step, and the range of its losses; None if no float holds them."""
    curve = curve_of(event, added=added, upper=upper)
    if curve is None:
        return None
    ends = curve.span(tail)
    return (curve, ends) if -LARGEST_LOSS < ends[0] < ends[1] < LARGEST_LOSS else None


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


class Composition:
    """Delta of a composition in one direction, from one side, near one tilt's epsilon.

    `place` is that of the tilt in `TILTS`, and `logs` are the composition's cumulants
    there.
    """

    def __init__(
        self,
        groups: Groups,
        delta: float,
        place: int,
        logs: FloatArray,
        *,
        added: bool,
        upper: bool,
    ) -> None:
        from scipy import fft

        # A smaller tilt where rare losses take over soon: the window would be long. The
        # variance of the tilted law comes from smaller tilts for the same reason.
        place = min(max(place, 3), len(logs) - 3)
        while place > 3 and logs[place + 2] - logs[place] > 6.0 * (
            logs[place] - logs[place - 2]
        ):
            place -= 1
        (a, b, c), (x, y, z) = TILTS[place - 2 : place + 1], logs[place - 2 : place + 1]
        spread = math.sqrt(
            max(2.0 * ((z - y) / (c - b) - (y - x) / (b - a)) / (c - a), 0.0)
        )
        # the mass of one step that may count as an infinite loss
        tail = _STEP_TAIL * delta / sum(count for _, count in groups)
        tail = max(2.0 ** (8 * math.floor(math.log2(tail) / 8.0)), 1e-240)
        if upper:  # all bounded-range choices of a kind are one step, which has a curve
            groups = tuple(
                (Repeated(event, n), 1)
                if isinstance(event, BoundedRange)
                else (event, n)
                for event, n in groups
            )
        tilt = float(c)
        self._upper, self.tilt, self.eta = upper, tilt, math.inf
        found = (_reach(event, added, upper, tail) for event, _ in groups)
        reaches = [reach for reach in found if reach is not None]
        if len(reaches) < len(groups):
            return
        variances = [
            n * curve.deviation**2 for (_, n), (curve, _) in zip(groups, reaches)
        ]
        unit = reaches[int(np.argmax(variances))][0].unit
        cells = _CELLS if len(groups) <= _MANY else _CELLS_OF_MANY
        typical = math.sqrt(sum(variances) / sum(count for _, count in groups))
        self.h = unit * 2.0 ** math.floor(math.log2(typical / cells / unit))
        widest = max(high - low for _, (low, high) in reaches)
        while max(widest / _MOST_KNOTS, 20.0 * spread / _MOST_CELLS) > self.h:
            self.h *= 2.0
        n = 1 << max(4, math.ceil(math.log2(20.0 * spread / self.h + 1.0)))
        longest = max(self.h, spread)
        while True:  # longer windows, and then longer cells
            if n > _MOST_CELLS:
                self.h, n = 2.0 * self.h, n // 2
            if self.h > longest:
                return
            parts = [
                _power(*reach, count, upper, tilt, self.h, n)
                for reach, (_, count) in zip(reaches, groups)
            ]
            outside = self._place(parts, n)
            if outside <= _TAIL:
                break
            n *= 2
        n_kept = min(len(part.values) for part in parts)
        product, bounds = np.ones(n_kept, complex), np.ones(n_kept)
        with np.errstate(under="ignore"):
            for part in parts:
                product, bounds = (
                    product * part.values[:n_kept],
                    bounds * part.bounds[:n_kept],
                )
        sizes = np.abs(product)
        wrong = np.maximum(bounds - sizes, 0.0) + 8.0 * U * len(parts) * bounds
        spectrum = np.zeros(n // 2 + 1, complex)
        spectrum[:n_kept] = product
        masses = np.roll(
            fft.irfft(spectrum, n), -((self._first - sum(p.first for p in parts)) % n)
        )
        self._masses = masses
        self._infinite = math.fsum(part.infinite for part in parts) * 1.001
        self.log_mass = math.fsum(part.log_mass for part in parts)
        entries = math.expm1(min(sum(part.entries for part in parts), 1.0))
        self.eta = outside + 2.0 * float(wrong.sum()) + n * _NOTHING
        self.eta += 2.0 * _PER_LEVEL * math.log2(n) * float(sizes.sum()) + entries
        self.eta *= 1.0 + 1e-6 + 8.0 * U * sum(count for _, count in groups)
        self._scale_error = 4.0 * U * sum(abs(part.log_mass) for part in parts)

    def _place(self, parts: list[_Power], n: int) -> float:
        """Choose the window around the mean; return a bound on the mass outside."""
        if sum(part.width for part in parts) < n:
            self._first = sum(part.first for part in parts)
            return 0.0
        self._first = round(sum(part.mean for part in parts) - n / 2)
        ends = self._first * self.h, (self._first + n - 1) * self.h
        moments = np.sum([part.log_moments for part in parts], axis=0)
        logs = [
            moment - share * self.tilt * ends[share > 0.0]
            for share, moment in zip(_SHARES, moments, strict=True)
        ]
        below = min(x for x, share in zip(logs, _SHARES, strict=True) if share < 0.0)
        above = min(x for x, share in zip(logs, _SHARES, strict=True) if share > 0.0)
        return 2.0 * (math.exp(min(below, 0.0)) + math.exp(min(above, 0.0)))

    def delta(self, epsilon: float) -> float:
        """Delta of the composition at an epsilon: never too small, or too large."""
        if not self.eta < math.inf:
            return math.inf if self._upper else 0.0
        i = max(0, math.floor(epsilon / self.h) - self._first)
        end = i + math.ceil(min(_FAR / self.tilt / self.h, 2.0**40)) + 2
        masses = self._masses[i:end]
        losses = (np.arange(i, i + len(masses)) + self._first) * self.h - epsilon
        losses = np.maximum(losses, 0.0)
        with np.errstate(under="ignore"):
            weights = np.exp(-self.tilt * losses) * -np.expm1(-losses)
            inner = float((np.maximum(masses, 0.0) * weights).sum())
        theta, peak = self.tilt, math.exp(log_peak(self.tilt))
        exponent = self.log_mass - theta * epsilon
        if exponent > 700.0:
            return math.inf if self._upper else -math.inf
        scale = math.exp(exponent)
        relative = (
            self._scale_error
            + 4.0 * U * theta * abs(epsilon)
            + len(losses) * 2.0 * U
            + 1e-13
        )
        value = scale * inner
        error = (
            scale * (peak * self.eta + math.exp(-_FAR)) * (1.0 + 1e-9)
            + value * relative
        )
        return value + error + self._infinite if self._upper else value - error


def log_peak(tilt: float | FloatArray) -> Any:
    """Logarithm of the largest exp(-tilt x) (1 - exp(-x)) of any x > 0."""
    return tilt * np.log(tilt) - (1.0 + tilt) * np.log1p(tilt)


# ---- laws on knots -------------------------------------------------------------------

# A law is a mass under P at each knot, and a mass at an infinite loss.
# docs/accounting.md proves that its curve is on the stated side everywhere, for the
# numbers as they were rounded. Roundings of a mass, relative: its knot enters by
# exponentials of losses up to 600.
_PER_LOSS, _CONSTANT = 8.0 * U, 16.0 * ELEMENTARY


def law_above(curve: Curve, knots: FloatArray) -> tuple[FloatArray, float]:
    """Masses at increasing knots, and at infinity, whose curve is nowhere below this.

    Chords of a convex curve are above it.
    """
    rounding = _CONSTANT + _PER_LOSS * np.abs(knots)
    t = np.exp(knots)
    delta, error, slope = curve.at(knots)
    delta = delta + error + 2.0 * U * np.abs(knots) * t * slope
    falls = np.maximum(-np.diff(delta), 0.0) / (t[:-1] * np.expm1(np.diff(knots)))
    falls = np.maximum.accumulate(falls[::-1])[::-1]  # convex, and nowhere smaller
    masses = (np.append(0.0, falls) - np.append(falls, 0.0)) * t * (1.0 + rounding)
    infinite = float(delta[-1])
    masses[0] = max(0.0, 1.0 - infinite - float(masses[1:].sum())) + _CONSTANT
    return masses, infinite


def law_below(curve: Curve, knots: FloatArray) -> FloatArray:
    """Masses at increasing knots, with a curve that is nowhere above this one.

    The chords are moved down by their distance from three tangents of each of the two
    cells.
    """
    from scipy.optimize import isotonic_regression

    rounding = _CONSTANT + _PER_LOSS * np.abs(knots)
    middles = 0.5 * (knots[:-1] + knots[1:])
    (d, e, q), (dm, em, qm) = curve.at(knots), curve.at(middles)
    t, tm = np.exp(knots), np.exp(middles)
    width = t[:-1] * np.expm1(np.diff(knots))
    e = e + 2.0 * U * np.abs(knots) * t * q
    em = em + 2.0 * U * np.abs(middles) * tm * qm
    excess = np.zeros(len(width))
    left, right = (t[:-1], d[:-1], q[:-1]), (t[1:], d[1:], q[1:])
    for (ta, da, qa), (tb, db, qb) in ((left, (tm, dm, qm)), ((tm, dm, qm), right)):
        with np.errstate(divide="ignore", invalid="ignore"):
            x = (da - db + qa * ta - qb * tb) / (qa - qb)  # where two tangents meet
        x = np.where((qa > qb) & np.isfinite(x), np.clip(x, ta, tb), 0.5 * (ta + tb))
        tangent = np.maximum(da - qa * (x - ta), db - qb * (x - tb))
        chord = d[:-1] + (d[1:] - d[:-1]) * (x - t[:-1]) / width
        excess = np.maximum(excess, chord - tangent)
    excess += e[:-1] + e[1:] + em
    excess += (_CONSTANT + _PER_LOSS * np.abs(middles)) * (width * q[:-1] + d[:-1])
    lowered = d - e - np.maximum(np.append(excess, 0.0), np.append(0.0, excess)) - TINY
    lowered = lowered * (1.0 - 8.0 * len(knots) * U)
    # The curve is also above its tangent at the first knot whose value is not above 0,
    # which is moved down to 0 there: the last chord stays below this line.
    end = int((np.append(lowered[:-1], 0.0) <= 0.0).argmax())
    lowered[end:] = 0.0
    if end > 0:
        lowered[end - 1] = min(
            lowered[end - 1], q[end] * width[end - 1] * (1.0 - _CONSTANT)
        )
    falls = -isotonic_regression(np.diff(lowered) / width, weights=width).x
    bound = q[0] * (1.0 - _CONSTANT)  # the curve's own slope at the first knot
    falls = np.clip(falls, 0.0, bound)
    masses = np.append(bound, falls) - np.append(falls, 0.0)
    lower: FloatArray = (
        np.maximum(masses, 0.0) * t * (1.0 - rounding - 8.0 * len(knots) * U)
    )
    return lower
