"""What events say of groups of units, of parts of one, and of the best test for a unit.

docs/proofs_document.md proves the first two, docs/accounting.md the last.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dplda.privacy import _accounting as bounds
from dplda.privacy._accounting import delta_charge, epsilon_of, is_chargeable
from dplda.privacy._composition import Groups
from dplda.privacy._curves import FloatArray
from dplda.privacy._events import (
    ApproximateDP,
    Event,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    Repeated,
)

_ROUNDING = 1.0 + 1e-9  # on the rounding errors of the numbers that are computed here
_SLACK = 0.99  # of a step of the search, so that it ends
_MAX_STEPS = 100
# Any grid gives a valid bound. This one is within a relative 1e-3 of the best for usual noise.
_EPSILONS = np.concatenate([np.arange(0.0, 1.0, 0.02), np.arange(1.0, 8.0, 0.1), np.arange(8, 51)])
_DELTAS = np.geomspace(1e-12, 0.5, 60)
_MARGIN = 1e-12  # on the rounding errors of the closed form


def group_events(
    groups: Groups, size: int, delta: float, total_variation: float, *, whole: bool = True
) -> tuple[Event, ...]:
    """Events that dominate what `size` units can change.

    Gaussian steps become events of the same kind; a secret sample helps a group that comes or goes
    as a `whole` only. For all steps, one event can state the (epsilon, delta) of a chain of
    neighbors at this delta. The cheaper ones are taken. If a part of one unit changes (not
    `whole`), steps that state their own (epsilon, delta), such as a threshold, have a chain of
    their own.
    """
    options: list[tuple[Event, ...]] = []
    stated = [(e, n) for e, n in groups if isinstance(e, ApproximateDP) and not whole]
    if stated:
        chains = [_two_steps(event) for event, _ in stated]
        left = delta - math.fsum(n * chain.delta for (_, n), chain in zip(stated, chains))
        rest = tuple(group for group in groups if group not in stated)
        own = group_events(rest, size, max(0.0, left), total_variation, whole=False)
        options.append((*own, *(Repeated(e, n) for e, (_, n) in zip(chains, stated))))
    if all(isinstance(event, (Gaussian, PoissonSampled)) for event, _ in groups):
        options.append(tuple(Repeated(_of_group(event, size, whole), n) for event, n in groups))
    if not bounds.all_gaussian(groups):
        epsilon = _chain(groups, size, delta, total_variation)
        is_finite = epsilon < math.inf
        options.append((ApproximateDP(epsilon, delta) if is_finite else NonPrivate(),))
    return min(options, key=lambda own: epsilon_of(own, delta, total_variation=total_variation))


def _two_steps(event: ApproximateDP) -> ApproximateDP:
    """What a step costs on a chain of two neighbors."""
    growth = math.exp(min(event.epsilon, 700.0))
    return ApproximateDP(2 * event.epsilon, min(1.0, event.delta * (1 + growth)))


def _of_group(event: Event, size: int, whole: bool = True) -> Event:
    """A step whose noise hides `size` units: someone of the group is in most samples."""
    match event:
        case Gaussian(noise_multiplier):
            return Gaussian(noise_multiplier / size)
        case PoissonSampled(rate, inner) if whole and rate < 1.0:
            anyone = -math.expm1(size * math.log1p(-rate)) * _ROUNDING
            return PoissonSampled(min(1.0, anyone), Gaussian(inner.noise_multiplier / size))
        case PoissonSampled(_, inner):
            return _of_group(inner, size)
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
        epsilon = size * step * _ROUNDING
        if epsilon == math.inf:
            return math.inf
        left = delta
        if is_chargeable(total_variation, epsilon, delta):
            left -= delta_charge(total_variation, epsilon)
        if step == 0.0:
            n_deltas = float(size)
        else:  # 1 + exp(step) + ... + exp((size - 1) step), infinite if it is no float
            large = size * step > 700.0
            n_deltas = math.inf if large else math.expm1(size * step) / math.expm1(step) * _ROUNDING
        if single == 0.0 or single * n_deltas <= left:
            return epsilon
        single = _SLACK * left / n_deltas
    return size * epsilon_of(events, 0.0) * _ROUNDING


@lru_cache(maxsize=256)
def detection_rate(groups: Groups, false_alarms: float, total_variation: float) -> float:
    """Largest power of a test of the releases with this rate of false alarms.

    The law that ran is within `total_variation` of the ideal one, with the unit and without it.
    """
    alarms = min(1.0, false_alarms + total_variation)
    others, lost, shift = bounds.without_statements(groups)
    if not others:  # with lost >= 1, the bound is 1
        ideal = rate_from_pairs(np.array([shift]), np.array([lost]), alarms)
    elif bounds.all_gaussian(others) and not (lost or shift):
        from scipy.special import ndtr, ndtri

        ideal = ndtr(ndtri(alarms) + bounds.gaussian_mu_of(others)) * (1.0 + _MARGIN) + _MARGIN
    else:  # pairs that hold together: of the loss distribution, of divergences, and the pure one
        quick = [bounds.quick_epsilon(others, delta) for delta in _DELTAS.tolist()]
        epsilons = np.array([*_EPSILONS, *quick, bounds.pure_epsilon(others)])
        deltas = np.array([*bounds.upper_deltas(others, _EPSILONS), *_DELTAS, 0.0])
        ideal = rate_from_pairs(epsilons + shift, deltas + lost, alarms)
    return min(1.0, float(ideal) + total_variation)


def rate_from_pairs(epsilons: FloatArray, deltas: FloatArray, false_alarms: float) -> float:
    """The smallest bound over pairs (epsilon, delta) that all hold, in both directions."""
    with np.errstate(over="ignore"):
        direct = np.exp(np.minimum(epsilons, 700.0)) * false_alarms + deltas
        # an infinite epsilon bounds nothing, not even without false alarms
        direct[np.isinf(epsilons) | ((epsilons > 700.0) & (false_alarms > 0.0))] = 1.0
        complement = 1.0 - np.exp(-epsilons) * (1.0 - deltas - false_alarms)
    return float(min(1.0, np.minimum(direct, complement).min()))
