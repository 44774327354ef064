"""Laws of the privacy loss on given knots, whose curves lie above or below that of a step.

A law is a mass under P at each knot, and a mass at an infinite loss. docs/accounting.md proves that
its curve is on the stated side everywhere, for the numbers as they were rounded.
"""

from __future__ import annotations

import numpy as np

from dplda.privacy._curves import ELEMENTARY, TINY, Atoms, Curve, FloatArray, U

# Roundings of a mass, relative: its knot enters by exponentials of losses up to 600.
_PER_LOSS, _CONSTANT = 8.0 * U, 16.0 * ELEMENTARY


def law_above(pair: Curve | Atoms, knots: FloatArray) -> tuple[FloatArray, float]:
    """Masses at increasing knots, and at infinity, with a curve that is nowhere below the pair's.

    Chords of a convex curve are above it, and an atom between two knots may become two atoms there
    with the same sum under P and under Q.
    """
    rounding = _CONSTANT + _PER_LOSS * np.abs(knots)
    if isinstance(pair, Atoms):
        masses = np.zeros(len(knots))
        for loss, mass in zip(pair.losses, pair.masses, strict=True):
            i = int(np.clip(np.searchsorted(knots, loss, "right") - 1, 0, len(knots) - 2))
            width = knots[i + 1] - knots[i]
            right = min(max(np.expm1(knots[i] - loss) / np.expm1(-width), 0.0), 1.0)
            masses[i : i + 2] += mass * np.array([1.0 - right + 8.0 * ELEMENTARY, right])
        return masses * (1.0 + rounding), 0.0
    delta, error, slope = pair.at(knots)
    delta = delta + error + 2.0 * U * np.abs(knots) * np.exp(knots) * slope
    t = np.exp(knots)
    falls = np.maximum(-np.diff(delta), 0.0) / (t[:-1] * np.expm1(np.diff(knots)))
    falls = np.maximum.accumulate(falls[::-1])[::-1]  # convex, and nowhere smaller
    masses = np.append(0.0, falls) - np.append(falls, 0.0)
    masses = masses * t * (1.0 + rounding)
    infinite = float(delta[-1])
    masses[0] = max(0.0, 1.0 - infinite - float(masses[1:].sum())) + _CONSTANT
    return masses, infinite


def law_below(pair: Curve | Atoms, knots: FloatArray) -> FloatArray:
    """Masses at increasing knots, with a curve that is nowhere above the pair's.

    The chords are moved down by their distance from three tangents of each of the two cells.
    Atoms move to the knot below.
    """
    rounding = _CONSTANT + _PER_LOSS * np.abs(knots)
    masses = np.zeros(len(knots))
    if isinstance(pair, Atoms):
        for loss, mass in zip(pair.losses, pair.masses, strict=True):
            i = int(np.searchsorted(knots, loss, "right")) - 1
            if i >= 0:
                masses[i] += mass
        return masses * (1.0 - rounding)
    from scipy.optimize import isotonic_regression

    middles = 0.5 * (knots[:-1] + knots[1:])
    (d, e, q), (dm, em, qm) = pair.at(knots), pair.at(middles)
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
    excess = (
        excess
        + e[:-1]
        + e[1:]
        + em
        + (_CONSTANT + _PER_LOSS * np.abs(middles)) * (width * q[:-1] + d[:-1])
    )
    lowered = d - e - np.maximum(np.append(excess, 0.0), np.append(0.0, excess)) - TINY
    lowered = lowered * (1.0 - 8.0 * len(knots) * U)
    # The curve is also above its tangent at the first knot whose value is not above 0, which is
    # moved down to 0 there: the last chord stays below this line.
    end = int((np.append(lowered[:-1], 0.0) <= 0.0).argmax())
    lowered[end:] = 0.0
    if end > 0:
        lowered[end - 1] = min(lowered[end - 1], q[end] * width[end - 1] * (1.0 - _CONSTANT))
    falls = -isotonic_regression(np.diff(lowered) / width, weights=width).x
    bound = q[0] * (1.0 - _CONSTANT)  # the curve's own slope at the first knot
    falls = np.clip(falls, 0.0, bound)
    masses[1:] = falls - np.append(falls[1:], 0.0)
    masses[0] = bound - falls[0]
    return np.maximum(masses, 0.0) * t * (1.0 - rounding - 8.0 * len(knots) * U)
