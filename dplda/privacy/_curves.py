"""Privacy curves of single steps, with bounds on their rounding errors.

The curve of a pair of laws (P, Q) is delta(t) = E_Q (dP/dQ - t)_+ at t = exp(epsilon).
It is convex and falls in t. docs/accounting.md derives each formula and each error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dplda.privacy._events import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
)

FloatArray: TypeAlias = NDArray[np.float64]
Number = TypeVar("Number", float, FloatArray)

U = float(np.finfo(np.float64).epsneg)  # unit roundoff, 2**-53
# Assumed relative errors, which the tests compare with 40 digits: of exp, log and their
# relatives, and of ndtr and erfcx at the arguments that occur here.
ELEMENTARY = 8.0 * U
SPECIAL = 64.0 * U
_SMALLEST_RANGE = 1e-6  # 1 - exp(-range) keeps most digits above it
_MOST_WORK = 1e8  # of knots, choices and places of a range: about a second
TINY = 1e-300  # above everything that underflows
# exp of it, and products of such numbers with probabilities, are floats
LARGEST_LOSS = 600.0
# the largest ratio over it is a float
_SMALLEST_RATE = math.exp(LARGEST_LOSS) / sys.float_info.max
# Above the relative rounding errors of a divergence (the tests compare 60 digits), of a
# sum of costs, and of what a group of units costs.
MARGIN = 1.0 + 1e-9


def up(value: Number, relative: Number | float) -> Number:
    """A number above the exact one, of a number >= 0 with this relative error.

    Costs are rounded up, so no stated guarantee is too small; `down` is only for bounds
    from below.
    """
    return value * (1.0 + relative)


def down(value: Number, relative: Number | float) -> Number:
    """A number below the exact one, of a number >= 0 with this relative error."""
    return value * (1.0 - relative)


@dataclass(frozen=True)
class Curve:
    """A convex curve delta(exp(epsilon)) that dominates every such step.

    `at` maps increasing epsilons to delta, a bound on its absolute error, and the mass
    ``Q[dP/dQ >= t]``, which is the negative slope in t. `span` maps a probability to
    two losses: hardly any mass is below the first, and delta above the second is at
    most that probability. `deviation` is roughly the standard deviation of the loss. A
    corner of the curve, if it has any, is a multiple of `unit`.
    """

    at: Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
    span: Callable[[float], tuple[float, float]]
    deviation: float
    unit: float = 1.0


@lru_cache(maxsize=8192)
def curve_of(event: Event, *, added: bool, upper: bool) -> Curve | None:
    """The curve that dominates a step, or with ``upper=False`` one a step attains.

    None if no curve is known. `added` says whether the unit is added or removed; this
    matters for sampled steps only. Repeated bounded-range choices of one kind are one
    step: the best attack on them is adaptive.
    """
    match event:
        case Gaussian(s):
            return _removed_curve(1.0, s)
        case PoissonSampled(q, Gaussian(s)) if q < _SMALLEST_RATE:
            # up: a larger rate costs more; no floats are between its losses
            rate = PoissonSampled(_SMALLEST_RATE, Gaussian(s))
            return curve_of(rate, added=added, upper=True) if upper else None
        case PoissonSampled(q, Gaussian(s)):
            return _added_curve(q, s) if added else _removed_curve(q, s)
        case Laplace(scale):
            # up or down: the largest loss
            one = up(1.0, 2.0 * U) if upper else down(1.0, 2.0 * U)
            return _laplace_curve(one / scale)
        case BoundedRange(epsilon) if upper:
            return bounded_ranges_curve(epsilon, 1)
        case BoundedRange(epsilon):
            return _response_curve(0.5 * epsilon)
        case Repeated(BoundedRange(epsilon), count):
            return bounded_ranges_curve(epsilon, count)
        case RandomizedResponseEvent():
            return _response_curve(response_loss(event, upper=upper))
        case _:
            return None


def response_loss(event: RandomizedResponseEvent, *, upper: bool) -> float:
    """Largest loss of a randomized response, rounded up or down."""
    e = math.log1p(2.0 * (1.0 - event.flip_mixture) / event.flip_mixture)
    return up(e, 2.0 * ELEMENTARY) if upper else down(e, 2.0 * ELEMENTARY)


# ---- Gaussian noise ------------------------------------------------------------------


def gaussian(
    epsilons: FloatArray, s: float | FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Delta of Gaussian noise of multiplier s, ``t * Q[dP/dQ > t]``, and both errors.

    Balle and Wang (2018), theorem 8. A common factor of both terms keeps all digits of
    the tail. Below epsilon 0, the symmetry of the pair is used.
    """
    from scipy.special import erf, erfcx, ndtr

    x = np.abs(epsilons)
    far = np.minimum(x, 1e150) * np.minimum(s, 1e150)
    near = np.minimum(0.5 / s, 1e300)
    a = near - far
    shift = 4.0 * U * (near + far)  # up: the error of a
    # far out, delta is 0
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        factor = 0.5 * np.exp(-0.5 * a * a)
        scaled = erfcx(np.maximum(-a, 0.0) / math.sqrt(2.0))
        other = erfcx((near + far) / math.sqrt(2.0))
        tail = a <= 0.0
        first = np.where(tail, factor * scaled, ndtr(a))
        second = factor * other
        delta = np.where(tail, factor * (scaled - other), first - second)
        # relative error of the factor
        slant = np.abs(a) * shift + a * a * U + ELEMENTARY
        slant = np.minimum(slant, 1e300)
        # up: of both terms, by their functions, their factor and their argument
        error = (SPECIAL + ELEMENTARY + shift) * (first + second)
        error += slant * np.where(tail, delta, second) + TINY
        # at epsilon 0
        middle = np.broadcast_to(erf(near / math.sqrt(2.0)), delta.shape)
        delta = np.where(x == 0.0, middle, delta)
        error = np.where(x == 0.0, 2.0 * SPECIAL * middle, error)
        below = epsilons < 0.0
        if below.any():
            t = np.exp(-x)
            mirrored = -np.expm1(-x) + t * delta
            error = np.where(below, t * error + 2.0 * ELEMENTARY * mirrored, error)
            delta = np.where(below, mirrored, delta)
            second = np.where(below, t * (1.0 - first), second)
    return np.maximum(delta, 0.0), second, error


def _removed_curve(q: float, s: float) -> Curve:
    """P = (1 - q) N(0, s^2) + q N(1, s^2) and Q = N(0, s^2): q G(1 + (t - 1) / q)."""

    def at(epsilons: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        growth = np.expm1(epsilons)
        ratio = growth / q
        inside = ratio > -1.0 + 1e-12  # elsewhere delta is 1 - t, up to q * 1e-12
        ratio = np.where(inside, ratio, 0.0)
        r = np.log1p(ratio)
        delta, second, error = gaussian(r, s)
        # up: the error of r, and what it moves delta by
        moved = ELEMENTARY * np.abs(r)
        moved += 2.0 * ELEMENTARY * np.abs(ratio) / (1.0 + ratio)
        error = q * (error + second * moved + 2.0 * U * delta)
        least = ELEMENTARY * np.abs(growth) + q * 1e-12 * (growth > -q * (1.0 + 1e-11))
        slope = second * np.exp(-r)
        return (
            np.where(inside, q * delta, -growth),
            np.where(inside, error, least),
            np.where(inside, slope, 1.0),
        )

    def span(tail: float) -> tuple[float, float]:
        z = _quantile(tail)
        return _mixture_loss(-z * s, q, s), _mixture_loss(1.0 + z * s, q, s)

    return Curve(at, span, q / s)


def _added_curve(q: float, s: float) -> Curve:
    """P = N(0, s^2) and Q = (1 - q) N(0, s^2) + q N(1, s^2).

    The curve is a G(q t / a), a = 1 - (1 - q) t.
    """

    def at(epsilons: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        growth = np.expm1(epsilons)
        a = q - (1.0 - q) * growth
        rounding = 2.0 * ELEMENTARY * (q + (1.0 - q) * np.abs(growth))
        inside = a > 4.0 * rounding  # elsewhere delta is at most a
        a = np.where(inside, a, 1.0)
        log_a = np.log(a)
        r = np.where(inside, math.log(q) + epsilons - log_a, 0.0)
        delta, second, error = gaussian(r, s)
        # up: the errors of r and a, and what they move delta by
        moved = ELEMENTARY * (1.0 - math.log(q) + np.abs(epsilons) + np.abs(log_a))
        error = a * (error + second * moved + 2.0 * U * delta)
        error += (delta + second) * rounding
        slope = (1.0 - q) * (delta + second) + q * second * np.exp(-r)
        outside = q - (1.0 - q) * growth + rounding
        return (
            np.where(inside, a * delta, 0.0),
            np.where(inside, error, np.maximum(outside, 0.0)),
            np.where(inside, slope, 0.0),
        )

    def span(tail: float) -> tuple[float, float]:
        z = _quantile(tail)
        most = up(-math.log1p(-q), 1e-12) + 1e-15  # up: no loss is above
        high = -_mixture_loss(-z * s, q, s)
        if high > most * (1.0 - 1e-9):
            high = most
        low = -_mixture_loss(z * s, q, s)
        return min(low, 0.5 * high), high

    return Curve(at, span, q / s)


def _mixture_loss(x: float, q: float, s: float) -> float:
    """log(1 - q + q exp((2 x - 1) / (2 s^2)))."""
    rest = math.log1p(-q) if q < 1.0 else -math.inf
    return float(np.logaddexp(rest, math.log(q) + (x - 0.5) / s / s))


def _quantile(tail: float) -> float:
    from scipy.special import ndtri

    return max(1.0, -float(ndtri(tail)))


# ---- other steps ---------------------------------------------------------------------


def _between(
    e: float, inner: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
) -> Curve:
    """A curve of losses from -e to e: `inner` has delta and slope between them."""

    def at(epsilons: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        delta, slope = inner(np.clip(epsilons, -e, e))
        delta = np.where(epsilons < -e, -np.expm1(epsilons), delta)
        slope = np.where(epsilons <= -e, 1.0, np.where(epsilons > e, 0.0, slope))
        beyond = epsilons > e * (1.0 + 4.0 * U)
        error = np.where(beyond, 0.0, 2.0 * ELEMENTARY * delta + 2.0 * U * e)
        return delta, error, slope

    def span(tail: float) -> tuple[float, float]:
        return -e, up(e, 1e-12)  # up: computed deltas are 0 a little above e

    return Curve(at, span, deviation=e, unit=e)


def _laplace_curve(e: float) -> Curve:
    def inner(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return -np.expm1(0.5 * (x - e)), 0.5 * np.exp(-0.5 * (x + e))

    return _between(e, inner)


def _response_curve(e: float) -> Curve:
    """Losses -e and e alone."""
    right = 1.0 / (1.0 + math.exp(-e))

    def inner(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return -right * np.expm1(x - e), np.full(len(x), right * math.exp(-e))

    return _between(e, inner)


def bounded_ranges_curve(e: float, count: int) -> Curve | None:
    """Delta of `count` choices, each with the worst range after the earlier outcomes.

    Bounds are computed on knots with a distance of e / m. Let V be delta of the
    remaining choices. A choice between losses a and a - e multiplies it to p V(t / u) +
    (1 - p) V(t exp(e) / u), with u = exp(a) and p = (1 - u exp(-e)) / (1 - exp(-e)).
    Between two knots, V is at most its chord, and the best u has a closed form
    (docs/accounting.md). None for tiny ranges, or if it would take more than seconds.
    """
    below = math.ceil(16.0 * math.sqrt(count)) + 2  # further steps down are improbable
    m = min(16, int(math.sqrt(_MOST_WORK / count / (count + below))))
    if m < 4 or count * e > LARGEST_LOSS or e < _SMALLEST_RANGE:
        return None
    g = e / m
    first = -m * min(count, below)
    knots = np.arange(first, m * count + 1) * g
    n = len(knots)
    values: FloatArray = np.maximum(-np.expm1(knots), 0.0)
    # Below the first knot, delta is 1 - t, or more by t times delta of the opposite
    # epsilon, which has a bound because the choices are (count e^2 / 8)-zCDP.
    lowest = np.arange(first - m - 1, first) * g
    rho = count * e * e / 8.0
    more = np.exp(lowest - np.maximum(-lowest - rho, 0.0) ** 2 / (4.0 * rho))
    before = -np.expm1(lowest) + (more if count > below else 0.0)
    after = np.zeros(m)
    for _ in range(count):
        best = _after_one_choice(np.concatenate([before, values, after]), e, m, n)
        values = np.minimum(up(best, 1e-13), 1.0)  # up: a dozen roundings
    t_values = np.append(0.0, np.exp(knots))
    values = np.append(1.0, values)

    def at(epsilons: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        # down: delta falls in t, so a smaller t has a larger delta
        t = np.exp(epsilons) * (1.0 - 2.0 * ELEMENTARY - 4.0 * U * np.abs(epsilons))
        delta = np.interp(t, t_values, values)
        delta = np.where(epsilons > knots[-1] * (1.0 + 8.0 * U), 0.0, delta)
        return delta, 1e-12 * delta, np.zeros(len(delta))

    def span(tail: float) -> tuple[float, float]:
        return float(knots[0]), float(knots[-1])

    return Curve(at, span, 0.5 * e * math.sqrt(count))


def _after_one_choice(values: FloatArray, e: float, m: int, n: int) -> FloatArray:
    """Delta at n knots before the worst choice, from delta of what is left after it.

    `values` has m + 1 more knots below, and m more above.
    """
    g = e / m
    q = math.exp(-e)
    falls = np.maximum(np.append(0.0, values[:-1] - values[1:]), 0.0)
    drops = falls / -math.expm1(-g)
    best = np.zeros(n)
    for i in range(m):  # a from i g to (i + 1) g
        least = math.exp(i * g)
        one = slice(m + 1 - i, m + 1 - i + n)
        two = slice(2 * m + 1 - i, 2 * m + 1 - i + n)
        gap = drops[one] * least - drops[two] * math.exp((i - m) * g)
        slant = q * (values[one] + drops[one] - values[two] - drops[two])
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.sqrt(gap / slant)
        u = np.clip(np.nan_to_num(u, nan=least), least, math.exp((i + 1) * g))
        share = np.maximum(1.0 - least / u, 0.0)
        high = values[one] + drops[one] * share
        low = values[two] + drops[two] * share
        p = np.clip((1.0 - u * q) / (1.0 - q), 0.0, 1.0)
        best = np.maximum(best, p * high + (1.0 - p) * low)
    return best


def bounded_range_divergence(e: float, a: FloatArray) -> FloatArray:
    """The largest divergence of orders a of any choice whose log ratios span at most e.

    The terms of the closed form are of size a e and nearly cancel at large orders; the
    possible rounding loss is added.
    """
    sharp = (a * _log_sinhc(a * e) - _log_sinhc(np.array(e))) / (a - 1.0)
    sharp = sharp - _log_sinhc((a - 1.0) * e)
    sharp = sharp + 64.0 * U * e * np.where(a > 1024.0, a, 0.0)  # up: what cancels
    of_zcdp = a * e * e / 8.0
    # up: by the margin; e itself is exact
    values: FloatArray = np.minimum(sharp * MARGIN, np.minimum(of_zcdp * MARGIN, e))
    return values


def _log_sinhc(x: FloatArray) -> FloatArray:
    """log(sinh(x / 2) / (x / 2)) for x > 0, to nearly all digits."""
    y = 0.5 * x
    small = np.minimum(y, 1.0) ** 2
    term = np.ones_like(small)
    series = np.zeros_like(small)
    for k in range(1, 12):  # the power series of sinh(y) / y - 1: positive terms
        term = term * small / ((2 * k) * (2 * k + 1))
        series = series + term
    large = np.maximum(y, 1.0)
    by_exponentials = large + np.log1p(-np.exp(-2.0 * large)) - np.log(2.0 * large)
    return np.where(y < 1.0, np.log1p(series), by_exponentials)
