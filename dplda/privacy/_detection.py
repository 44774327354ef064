"""How often the best test finds one unit, from the exact trade-off of what was released.

docs/accounting.md proves the bound. No test of a release has more power than `detection_rate` says.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dplda.privacy import _accountant as bounds
from dplda.privacy._composition import Groups

# Any grid gives a valid bound. This one is within a relative 1e-3 of the best for usual noise.
_EPSILONS = np.concatenate([np.arange(0.0, 1.0, 0.02), np.arange(1.0, 8.0, 0.1), np.arange(8, 51)])
_DELTAS = np.geomspace(1e-12, 0.5, 60)
_MARGIN = 1e-12  # on the rounding errors of the closed form


@lru_cache(maxsize=256)
def detection_rate(groups: Groups, false_alarms: float, total_variation: float) -> float:
    """Largest power of a test of the releases with this rate of false alarms.

    The law that ran is within `total_variation` of the ideal one, with the unit and without it.
    """
    ideal = _ideal_rate(groups, min(1.0, false_alarms + total_variation))
    return min(1.0, ideal + total_variation)


def from_pairs(
    epsilons: NDArray[np.float64], deltas: NDArray[np.float64], false_alarms: float
) -> float:
    """The smallest bound over pairs (epsilon, delta) that all hold, in both directions."""
    with np.errstate(over="ignore"):
        direct = np.exp(np.minimum(epsilons, 700.0)) * false_alarms + deltas
        # an infinite epsilon bounds nothing, not even without false alarms
        direct[np.isinf(epsilons) | ((epsilons > 700.0) & (false_alarms > 0.0))] = 1.0
        complement = 1.0 - np.exp(-epsilons) * (1.0 - deltas - false_alarms)
    return float(min(1.0, np.minimum(direct, complement).min()))


def _ideal_rate(groups: Groups, false_alarms: float) -> float:
    others, lost, shift = bounds.without_statements(groups)
    if not others:  # with lost >= 1, the bound is 1
        return from_pairs(np.array([shift]), np.array([lost]), false_alarms)
    if bounds.all_gaussian(others) and not (lost or shift):
        from scipy.special import ndtr, ndtri

        mu = bounds.gaussian_mu_of(others)
        return float(min(1.0, ndtr(ndtri(false_alarms) + mu) * (1.0 + _MARGIN) + _MARGIN))
    epsilons, deltas = _curve(others)
    return from_pairs(epsilons + shift, deltas + lost, false_alarms)


def _curve(groups: Groups) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pairs (epsilon, delta) that hold together: of the loss distribution, or of divergences."""
    pure = bounds.pure_epsilon(groups)
    if pure < math.inf:
        epsilons, deltas = [np.array([pure])], [np.zeros(1)]
    else:
        epsilons, deltas = [], []
    epsilons += [_EPSILONS, np.array([bounds.quick_epsilon(groups, d) for d in _DELTAS.tolist()])]
    deltas += [bounds.upper_deltas(groups, _EPSILONS), _DELTAS]
    return np.concatenate(epsilons), np.concatenate(deltas)
