"""How often the best test finds a unit: docs/accounting.md has the proofs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from dplda.privacy._accounting import all_gaussian, epsilon_of, gaussian_mu_of
from dplda.privacy._composition import Groups
from dplda.privacy._curves import up
from dplda.privacy._events import Repeated

# Any deltas give a valid detection rate; five times as many lower it by 0.6% at most.
_DELTAS = np.concatenate(
    [[0.0], np.geomspace(1e-7, 0.5, 50), 1.0 - np.geomspace(0.45, 1e-3, 15)]
)


@lru_cache(maxsize=256)
def rate_of_events(
    groups: Groups, false_alarms: float, total_variation: float
) -> float:
    """Largest power of a test of the releases with this rate of false alarms.

    The law that ran is within `total_variation` of the ideal one, with the unit and
    without it.
    """
    alarms = min(1.0, false_alarms + total_variation)
    if all_gaussian(groups):
        ideal = _rate_of_mu(gaussian_mu_of(groups), alarms)
    else:
        ideal = rate_of_pairs(_pairs(groups), alarms)
    return min(1.0, ideal + total_variation)


def rate_of_pairs(pairs: Iterable[tuple[float, float]], alarms: float) -> float:
    """The smallest bound of the pairs (epsilon, delta), which all hold both ways."""
    rates = [1.0]
    for epsilon, delta in pairs:
        if epsilon < 700.0:  # its exponential is a float
            rates.append(math.exp(epsilon) * alarms + delta)
        elif alarms == 0.0 and epsilon < math.inf:
            rates.append(delta)
        rates.append(1.0 - math.exp(-epsilon) * (1.0 - delta - alarms))
    return min(rates)


def _rate_of_mu(mu: float, alarms: float) -> float:
    """The power of the best test of N(mu, 1) against N(0, 1), rounded up."""
    from scipy.special import ndtr, ndtri

    power = float(ndtr(ndtri(alarms) + mu))
    return up(power, 1e-12) + 1e-12  # up: the roundings of the closed form


def _pairs(groups: Groups) -> list[tuple[float, float]]:
    """Pairs (epsilon, delta) of the events, by increasing deltas."""
    events = [Repeated(event, count) for event, count in groups]
    pairs = []
    for delta in _DELTAS.tolist():
        epsilon = epsilon_of(events, delta)
        pairs.append((epsilon, delta))
        if epsilon == 0.0:  # larger deltas prove no more
            break
    return pairs
