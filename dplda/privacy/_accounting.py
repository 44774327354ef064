"""The price of a composition of events, and the noise that meets a price: docs/accounting.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from numbers import Real
from typing import TypeAlias

import numpy as np
from dp_accounting import get_sigma_gaussian
from scipy.optimize import brentq

from dplda.privacy import _bounds_on_epsilon as composition
from dplda.privacy._bounds_on_epsilon import FINE_INTERVAL, INTERVAL, Groups, grouped
from dplda.privacy._events import Event
from dplda.privacy._formulas import check_positive, inherent_epsilon, subsampled_rdp

__all__ = [
    "calibrate",
    "delta_charge",
    "epsilon_of",
    "gaussian_mu",
    "inherent_epsilon",
    "is_chargeable",
    "is_within",
    "subsampled_rdp",
]

# Beyond this share of delta the distance from the ideal law is not taken out of delta.
_CHARGEABLE_SHARE = 1e-3
# A price against its target as a function of the logarithm of the noise: positive where the
# noise is too small, and falling.
Excess: TypeAlias = Callable[[float], float]
# A valid epsilon of grouped events at a delta.
Method: TypeAlias = Callable[[Groups, float], float]
ACCOUNTANTS = ("pld", "rdp")
_LARGEST, _SMALLEST, _OCTAVE = math.log(1e9), math.log(1e-6), math.log(2.0)


def epsilon_of(
    events: Event | Iterable[Event],
    delta: float,
    *,
    total_variation: float = 0.0,
    accountant: str = "pld",
) -> float:
    """Epsilon at which the adaptive composition of the events is (epsilon, delta)-DP.

    With ``accountant="pld"`` the smallest of what is valid: the sum of pure epsilons, Renyi
    divergences (also for bounded-range and zCDP events), privacy loss distributions on a grid,
    and the exact closed form for Gaussian events without sampling. Every method bounds epsilon
    from above.

    Parameters
    ----------
    events : Event or iterable of Event
        Order does not matter.
    delta : float
        Probability in [0, 1). With ``delta=0`` only the sum of pure epsilons counts, which
        "rdp" does not take.
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law, over the whole composition. It
        is taken out of delta, ``delta - (1 + exp(epsilon)) * total_variation``, if that is at
        most a thousandth of delta (`is_chargeable`), and is left out otherwise: the result is
        then the epsilon of the ideal mechanism.
    accountant : {"pld", "rdp"}, default="pld"
        "rdp" takes Renyi divergences alone: valid as well, as a rule larger, and what many other
        libraries report.

    Returns
    -------
    float
        Zero or more; infinite if some event is not private.
    """
    check_probability("delta", delta)
    check_probability("total_variation", total_variation)
    return _charged_epsilon(grouped(events), float(delta), total_variation, _method(accountant))


def _method(accountant: str) -> Method:
    if accountant not in ACCOUNTANTS:
        raise ValueError(f"accountant must be one of {ACCOUNTANTS}, got {accountant!r}")
    return _epsilon if accountant == "pld" else composition.renyi_epsilon


def _charged_epsilon(groups: Groups, delta: float, total_variation: float, method: Method) -> float:
    """Smallest power-of-two margin on the charge for which the result pays its own charge."""
    epsilon, charge = method(groups, delta), 0.0
    if not is_chargeable(total_variation, epsilon, delta):
        return epsilon
    while delta_charge(total_variation, epsilon) > charge:
        charge = 2.0 * delta_charge(total_variation, epsilon)
        if charge >= delta:
            return math.inf
        epsilon = method(groups, min(delta - charge, math.nextafter(delta, 0.0)))
    return epsilon


@lru_cache(maxsize=1024)
def _epsilon(groups: Groups, delta: float, finest_grid: float = FINE_INTERVAL) -> float:
    known = _quick_epsilon(groups, delta)
    if known in (0.0, math.inf) or delta == 0.0 or composition.all_gaussian(groups):
        return known
    on_grid = composition.loss_distribution_epsilon(groups, delta, known, finest_grid)
    if on_grid == math.inf:  # some event has no such distribution
        on_grid = composition.renyi_epsilon(groups, delta)
    return min(known, on_grid)


@lru_cache(maxsize=1024)
def _quick_epsilon(groups: Groups, delta: float) -> float:
    """A valid epsilon in milliseconds, up to some ten percent above `_epsilon`."""
    return min(
        composition.pure_epsilon(groups),
        composition.gaussian_epsilon(groups, delta),
        composition.quick_renyi_epsilon(groups, delta),
    )


def is_within(
    events: Event | Iterable[Event], epsilon: float, delta: float, *, total_variation: float = 0.0
) -> bool:
    """Whether ``epsilon_of(events, delta) <= epsilon``, without the slow method if it can.

    Parameters
    ----------
    events : Event or iterable of Event
    epsilon, delta : float
        The budget.
    total_variation : float, default=0.0
        As in `epsilon_of`.

    Returns
    -------
    bool
    """
    if epsilon == math.inf:
        return True
    charge = delta_charge(total_variation, epsilon)
    if is_chargeable(total_variation, epsilon, delta):
        quick = _quick_epsilon(grouped(events), max(delta - 2.0 * charge, 0.0))
        if quick <= epsilon:
            return True
    return epsilon_of(events, delta, total_variation=total_variation) <= epsilon


def delta_charge(total_variation: float, epsilon: float) -> float:
    """What a distance from the ideal law adds to delta: ``(1 + exp(epsilon)) * distance``.

    Parameters
    ----------
    total_variation : float
        Bound on the distance between the laws of all outputs, real and ideal, for any data.
    epsilon : float
        Of the ideal mechanism.

    Returns
    -------
    float
        Infinite if the number is too large for a float.
    """
    check_probability("total_variation", total_variation)
    if total_variation == 0.0:
        return 0.0
    if not isinstance(epsilon, Real):
        raise TypeError(f"epsilon must be a number, got {type(epsilon).__name__}")
    if not -1e4 < epsilon < 1e4:  # no float, and maybe none that numpy's small types can hold
        return math.inf
    epsilon = float(epsilon)
    log_charge = math.log(total_variation) + max(epsilon, 0.0) + math.log1p(math.exp(-abs(epsilon)))
    return math.exp(log_charge) if log_charge < 709.0 else math.inf


def is_chargeable(total_variation: float, epsilon: float, delta: float) -> bool:
    """Whether the distance from the ideal law is small enough to be taken out of delta.

    Parameters
    ----------
    total_variation, epsilon, delta : float
        As in `delta_charge` and `epsilon_of`.

    Returns
    -------
    bool
        True if the charge is at most a thousandth of delta. If False, the guarantee reads:
        within this total variation of an (epsilon, delta)-DP mechanism.
    """
    check_probability("delta", delta)
    return delta_charge(total_variation, epsilon) <= _CHARGEABLE_SHARE * delta


def calibrate(
    make_events: Callable[[float], Event | Iterable[Event]],
    epsilon: float,
    delta: float,
    *,
    total_variation: float = 0.0,
    accountant: str = "pld",
) -> float:
    """Find the smallest noise multiplier that meets (epsilon, delta).

    Parameters
    ----------
    make_events : callable
        Maps a noise multiplier (or any other noise scale) to the events of the whole fit. Its
        price must fall as the argument grows.
    epsilon, delta : float
        The target, both positive.
    total_variation : float, default=0.0
        As in `epsilon_of`.
    accountant : {"pld", "rdp"}, default="pld"
        As in `epsilon_of`.

    Returns
    -------
    float
        Never too small: `epsilon_of` of its events is at most `epsilon`. Too large by at most
        1e-4 of itself, or 1e-7 if all events are Gaussian and none is sampled.

    Raises
    ------
    ValueError
        If no noise is large enough, since some events do not depend on it.
    """
    mu = gaussian_mu(epsilon, delta)

    def excess_of(price: Callable[[Groups], float]) -> Excess:
        def excess(log_noise: float) -> float:
            spent = price(grouped(make_events(math.exp(log_noise))))
            return math.log(min(max(spent / epsilon, 1e-3), 1e3))

        return excess

    method = _method(accountant)
    exact = excess_of(
        lambda groups: _charged_epsilon(groups, float(delta), total_variation, method)
    )
    if accountant == "rdp":
        start, step = _least(exact, 0.0, step=_OCTAVE, tolerance=1e-3), 5e-5
    elif composition.all_gaussian(grouped(make_events(1.0))):
        closed = excess_of(lambda groups: epsilon / mu * composition.gaussian_mu_of(groups))
        start, step = _least(closed, 0.0, step=_OCTAVE, tolerance=1e-9), 5e-8
    else:
        quick = excess_of(lambda groups: _quick_epsilon(groups, float(delta)))
        coarse = excess_of(lambda groups: _epsilon(groups, float(delta), INTERVAL))
        start, step = _predicted(quick, coarse, exact), 5e-5
    return math.exp(_least(exact, start, step=step, tolerance=2.0 * step))


def _predicted(quick: Excess, coarse: Excess, exact: Excess) -> float:
    """Just above the root of `exact`, which is slow and therefore asked only once.

    The quick bound comes first, since very small noise would take a huge grid.
    """
    start = _least(quick, 0.0, step=_OCTAVE, tolerance=1e-3)
    start = _least(coarse, start, step=0.1, tolerance=1e-5)
    slope = min(-0.1, (coarse(start + 1e-3) - coarse(start)) / 1e-3)
    return start - exact(start) / slope + 2e-5


def _least(excess: Excess, start: float, *, step: float, tolerance: float) -> float:
    """Where an excess becomes zero or less, sought from `start` in steps that grow.

    The result is on the safe side, and beyond the root by at most `tolerance`.
    """
    low = high = start
    while excess(high) > 0.0:
        low, high, step = high, high + step, min(2.0 * step, _OCTAVE)
        if high > _LARGEST:
            raise ValueError(
                "no noise meets this target: some events do not depend on the noise and cost "
                "too much; raise epsilon, or use fewer or cheaper steps"
            )
    while excess(low) <= 0.0:
        low, high, step = low - step, low, min(2.0 * step, _OCTAVE)
        if low < _SMALLEST:
            raise ValueError("any noise meets this target; state the noise instead")
    if high - low <= tolerance:
        return high
    root = float(brentq(excess, low, high, xtol=0.5 * tolerance))
    return next(x for x in (root, root + 0.5 * tolerance, high) if excess(x) <= 0.0)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of Gaussian differential privacy that is exactly (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta : float

    Returns
    -------
    float
        Gaussian events fit if the sum of ``1 / noise_multiplier**2`` is at most ``mu**2``.
    """
    check_positive("epsilon", epsilon, 1e9)
    check_positive("delta", delta, math.nextafter(1.0, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # at huge epsilons, in the library
        return 1.0 / float(get_sigma_gaussian(epsilon, delta))


def check_probability(name: str, value: float) -> None:
    if not (isinstance(value, Real) and 0.0 <= value < 1.0):
        raise ValueError(f"{name} must be a number in [0, 1), got {value!r}")
