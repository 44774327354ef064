"""The privacy cost of a composition, and the noise for a given cost: docs/accounting.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from dplda.leaf._checks import check_number, check_probability
from dplda.privacy import _bounds_on_epsilon as composition
from dplda.privacy._bounds_on_epsilon import (
    ROOT_MARGIN,
    ROOT_TOLERANCE,
    Groups,
    gaussian_multiplier,
    grouped,
)
from dplda.privacy._composed_losses import deviation_of, loss_distribution_epsilon
from dplda.privacy._events import Event, NonPrivate, Repeated

__all__ = [
    "calibrate",
    "delta_charge",
    "epsilon_of",
    "gaussian_mu",
    "is_chargeable",
    "is_within",
    "split_epsilon",
]

# The distance from the ideal law is charged to delta up to this share of delta.
_CHARGEABLE_SHARE = 1e-3
# Logarithm of a cost over its target, as a function of the logarithm of the noise. It is positive
# where the noise is too small, and it decreases.
Excess: TypeAlias = Callable[[float], float]
# A valid epsilon of grouped events at a delta.
Method: TypeAlias = Callable[[Groups, float], float]
ACCOUNTANTS = ("pld", "rdp")
# Share of delta that pays for the thresholds of a vocabulary. From 0.02 to 0.5 it hardly matters.
THRESHOLD_SHARE = 0.1
_COARSE = 10.0  # a calibration first searches on a grid with intervals so many times as long
_USUAL_SLOPE = 2.5  # of a sampled fit's log epsilon by the logarithm of its effect, at first
_LARGEST, _SMALLEST, _OCTAVE = math.log(1e9), math.log(1e-6), math.log(2.0)


def epsilon_of(
    events: Event | Iterable[Event],
    delta: float,
    *,
    total_variation: float = 0.0,
    accountant: str = "pld",
) -> float:
    """Compute the epsilon of an adaptive composition of events.

    The composition is (epsilon, delta)-differentially private. Every method is an upper bound on
    epsilon, so that the smallest result of several methods is valid.

    Parameters
    ----------
    events : Event or iterable of Event
        Events of the composition, in any order.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1). With ``delta=0`` only the
        sum of pure epsilons counts, which "rdp" does not use.
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law, over the whole composition. The
        charge ``(1 + exp(epsilon)) * total_variation`` is subtracted from delta if it is at most
        a thousandth of delta (`dplda.privacy.mechanisms.is_chargeable`). Otherwise it is left
        out, and the result is the epsilon of the ideal mechanism.
    accountant : {"pld", "rdp"}, default="pld"
        "pld" takes the smallest of all valid results: the sum of pure epsilons, Renyi divergences
        (also for bounded-range and zCDP events), privacy loss distributions on a grid, and the
        exact closed form for Gaussian events without sampling. "rdp" takes Renyi divergences
        alone, which is valid too and usually larger; many other libraries report it.

    Returns
    -------
    float
        Zero or more; infinite if some event is not private.

    Raises
    ------
    TypeError
        If `events` holds anything other than privacy events.
    ValueError
        If a number is out of range or the accountant is unknown.

    See Also
    --------
    calibrate : Finds the noise for a given epsilon.

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Repeated, epsilon_of
    >>> round(epsilon_of(Repeated(Gaussian(30.0), 40), delta=1e-6), 2)
    0.88
    """
    delta = check_probability("delta", delta)
    distance = check_probability("total_variation", total_variation)
    groups, lost, shift = composition.without_statements(grouped(events))
    if lost > delta or any(isinstance(event, NonPrivate) for event, _ in groups):
        return math.inf
    return shift + _charged_epsilon(groups, delta - lost, distance, _method(accountant))


def _method(accountant: str) -> Method:
    if accountant not in ACCOUNTANTS:
        raise ValueError(f"accountant must be one of {ACCOUNTANTS}, got {accountant!r}")
    return _epsilon if accountant == "pld" else composition.renyi_epsilon


def _charged_epsilon(groups: Groups, delta: float, total_variation: float, method: Method) -> float:
    """Epsilon at a delta that is reduced by the charge, with a margin of two on the charge."""
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
def _epsilon(groups: Groups, delta: float, coarseness: float = 1.0) -> float:
    known = _quick_epsilon(groups, delta)
    if known in (0.0, math.inf) or delta == 0.0 or composition.all_gaussian(groups):
        return known
    exact = composition.exact_response_epsilon(groups, delta)
    if exact < math.inf:
        return min(known, exact)
    on_grid = loss_distribution_epsilon(groups, delta, known, coarseness)
    if on_grid == math.inf:  # some event has no such distribution
        on_grid = composition.renyi_epsilon(groups, delta)
    return min(known, on_grid)


@lru_cache(maxsize=1024)
def _quick_epsilon(groups: Groups, delta: float) -> float:
    """A valid epsilon in milliseconds, at most about ten percent above `_epsilon`."""
    if composition.all_gaussian(groups):
        return composition.gaussian_epsilon(groups, delta)  # exact: the others are larger
    return min(
        composition.pure_epsilon(groups),
        composition.gaussian_epsilon(groups, delta),
        composition.quick_renyi_epsilon(groups, delta),
    )


def is_within(
    events: Event | Iterable[Event], epsilon: float, delta: float, *, total_variation: float = 0.0
) -> bool:
    """Whether ``epsilon_of(events, delta) <= epsilon``, without the slow method where possible.

    Parameters
    ----------
    events : Event or iterable of Event
        Events of the composition.
    epsilon : float
        Epsilon of the budget.
    delta : float
        Delta of the budget, in [0, 1).
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law.

    Returns
    -------
    bool
    """
    if epsilon == math.inf:
        return True
    events = [events] if isinstance(events, Event) else list(events)
    groups, lost, shift = composition.without_statements(grouped(events))
    charge = delta_charge(total_variation, epsilon)
    if is_chargeable(total_variation, epsilon, delta):
        quick = shift + _quick_epsilon(groups, max(delta - lost - 2.0 * charge, 0.0))
        if quick <= epsilon and lost <= delta:
            return True
    return epsilon_of(events, delta, total_variation=total_variation) <= epsilon


def delta_charge(total_variation: float, epsilon: float) -> float:
    """Compute what a distance from the ideal law adds to delta.

    Parameters
    ----------
    total_variation : float
        Bound, in [0, 1), on the distance between the real and the ideal law of all outputs, for
        any data.
    epsilon : float
        Epsilon of the ideal mechanism.

    Returns
    -------
    float
        ``(1 + exp(epsilon)) * total_variation``; infinite if it is too large for a float.
    """
    total_variation = check_probability("total_variation", total_variation)
    if total_variation == 0.0:
        return 0.0
    epsilon = check_number("epsilon", epsilon, -math.inf, math.inf)
    if abs(epsilon) >= 1e4:  # the exponential of such a number is not a float
        return math.inf
    log_charge = math.log(total_variation) + max(epsilon, 0.0) + math.log1p(math.exp(-abs(epsilon)))
    return math.exp(log_charge) if log_charge < 709.0 else math.inf


def is_chargeable(total_variation: float, epsilon: float, delta: float) -> bool:
    """Tell whether the distance from the ideal law is small enough to be charged to delta.

    Parameters
    ----------
    total_variation : float
        Bound, in [0, 1), on the distance between the real and the ideal law of all outputs.
    epsilon : float
        Epsilon of the ideal mechanism.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1).

    Returns
    -------
    bool
        True if the charge is at most a thousandth of delta. If False, the guarantee is stated
        differently: the release is within this total variation of an (epsilon, delta)-DP one.

    See Also
    --------
    delta_charge : The charge.
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
        Maps a noise multiplier (or any other noise scale) to the events of the whole fit. Their
        cost must decrease as the argument grows.
    epsilon : float
        The epsilon to spend, in (0, 1e9].
    delta : float
        The delta of (epsilon, delta)-differential privacy, in (0, 1).
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law, over the whole composition; it is
        charged to delta.
    accountant : {"pld", "rdp"}, default="pld"
        Method of composition: "pld" takes the smallest valid epsilon, "rdp" takes Renyi
        divergences alone.

    Returns
    -------
    float
        The noise multiplier. It is never too small: `epsilon_of` of its events is at most
        `epsilon`. It is hardly too large: that of a multiplier smaller by a relative 1e-4 exceeds
        `epsilon`, or by 1e-7 if all events are Gaussian without sampling.

    Raises
    ------
    ValueError
        If no noise meets the target because some events do not depend on it, or if every noise
        meets it.

    See Also
    --------
    epsilon_of : Computes the epsilon of given events.

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Repeated, calibrate
    >>> round(calibrate(lambda m: Repeated(Gaussian(m), 40), epsilon=1.0, delta=1e-6), 2)
    26.72
    """
    if not callable(make_events):
        raise TypeError(
            "make_events must be a function of the noise multiplier that returns events, such as "
            f"lambda m: Gaussian(m), got an object of class {type(make_events).__name__}"
        )
    _, lost, shift = composition.without_statements(grouped(make_events(1.0)))
    if lost or shift:
        return _calibrate_beside_statements(
            make_events, epsilon - shift, delta - lost, total_variation, accountant
        )
    mu = gaussian_mu(epsilon, delta)

    def excess_of(cost: Callable[[Groups], float]) -> Excess:
        def excess(log_noise: float) -> float:
            spent = cost(grouped(make_events(math.exp(log_noise))))
            return math.log(min(max(spent / epsilon, 1e-3), 1e3))

        return excess

    def effect(log_noise: float) -> float:  # or, if some loss has no such deviation, the noise
        spread = deviation_of(grouped(make_events(math.exp(log_noise))))
        return math.log(spread) if 0.0 < spread < math.inf else -log_noise

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
        # The quick bound comes first, because very small noise would take a huge grid.
        quick = excess_of(lambda groups: _quick_epsilon(groups, float(delta)))

        def on_grid(coarseness: float) -> Excess:
            return excess_of(lambda groups: _epsilon(groups, float(delta), coarseness))

        coarse, half = on_grid(_COARSE), on_grid(_COARSE / 2.0)
        start = _least(quick, 0.0, step=_OCTAVE, tolerance=0.1, smaller=coarse)
        start, slope = _just_above(coarse, effect, start, coarse(start), _USUAL_SLOPE, 3e-3)
        # The error of a grid grows with the square of its interval: this is that of the fine one.
        share = (_COARSE**2 - 1.0) / (_COARSE**2 - (_COARSE / 2.0) ** 2)
        estimate = coarse(start) - share * (coarse(start) - half(start))
        start, _ = _just_above(exact, effect, start, estimate, slope, 1e-4)
        step = 5e-5
        # The secants only estimate: less noise may be enough where the noise or the grid jumps.
        if exact(start) <= 0.0 < exact(start - 1e-4):
            return math.exp(start)
    return math.exp(_least(exact, start, step=step, tolerance=2.0 * step))


def _calibrate_beside_statements(
    make_events: Callable[[float], Event | Iterable[Event]],
    epsilon: float,
    delta: float,
    total_variation: float,
    accountant: str,
) -> float:
    """Calibrate the other events at the budget that `ApproximateDP` events leave."""
    if epsilon <= 0.0 or delta <= 0.0:
        raise ValueError(
            "no noise meets this target: the ApproximateDP events alone cost all of epsilon or "
            "delta; raise the target, or use fewer of them"
        )

    def others(noise: float) -> list[Event]:
        groups, _, _ = composition.without_statements(grouped(make_events(noise)))
        return [Repeated(event, count) for event, count in groups]

    return calibrate(others, epsilon, delta, total_variation=total_variation, accountant=accountant)


def _just_above(
    excess: Excess, effect: Excess, x: float, value: float, slope: float, width: float
) -> tuple[float, float]:
    """Search the end of the interval `width` above the root of a slow excess, by secants.

    The secants are those of the excess as a function of `effect`, a fast function that decreases in
    the logarithm of the noise, and jumps where the excess does: noise may be rounded to a grid.
    `value` is the excess at `x`, or an estimate of it. Returns a point and the slope of the excess
    there. After eight steps the point may be anywhere: the caller checks it.
    """
    known = effect(x)
    for _ in range(8):
        wanted = known - value / slope - 0.3 * width
        low, high = (x, x + _OCTAVE) if wanted < known else (x - _OCTAVE, x)
        x = _least_within(effect, wanted, low, high, 0.1 * width)
        last, last_value = known, value
        known, value = effect(x), excess(x)
        if abs(known - last) > 1e-3:
            slope = max(0.05, (value - last_value) / (known - last))
        if value <= 0.0 <= value + slope * (effect(x - width) - known):
            break
    return x, slope


def _least_within(effect: Excess, most: float, low: float, high: float, tolerance: float) -> float:
    """The least point of an interval at which the effect is at most `most`, or its upper end."""
    while high - low > tolerance:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if effect(middle) <= most else (middle, high)
    return high


def _least(
    excess: Excess, start: float, *, step: float, tolerance: float, smaller: Excess | None = None
) -> float:
    """Find the point at which an excess drops to zero, in growing steps from `start`.

    At the result the excess is zero or less. The result is above the root by at most `tolerance`.
    If the excess has no root, `smaller` takes its place, a slower function that may have one.
    """
    low = high = start
    while excess(high) > 0.0:
        low, high, step = high, high + step, min(2.0 * step, _OCTAVE)
        if high > _LARGEST:
            if smaller is not None:
                return _least(smaller, start, step=_OCTAVE, tolerance=tolerance)
            raise ValueError(
                "no noise meets this target: some events do not depend on the noise and cost "
                "too much; raise epsilon, or use fewer or less expensive steps"
            )
    while excess(low) <= 0.0:
        low, high, step = low - step, low, min(2.0 * step, _OCTAVE)
        if low < _SMALLEST:
            raise ValueError(
                "any noise, however small, meets this target; lower epsilon, or give epsilon=inf "
                "for no privacy"
            )
    if high - low <= tolerance:
        return high
    from scipy.optimize import brentq  # takes a third of a second to import

    root = float(brentq(excess, low, high, xtol=0.5 * tolerance))  # and a rounding error
    nearby = (root + share * tolerance for share in (0.0, 0.5, 0.6))
    return next(x for x in (*nearby, high) if excess(x) <= 0.0)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Compute the largest mu of Gaussian differential privacy that is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        In (0, 1e9].
    delta : float
        The delta of (epsilon, delta)-differential privacy, in (0, 1).

    Returns
    -------
    float
        Gaussian events fit the budget if the sum of ``1 / noise_multiplier**2`` is at most
        ``mu**2``. It is slightly below the root that was found in floating point.
    """
    epsilon = check_number("epsilon", epsilon, 0.0, 1e9, closed="right")
    delta = check_number("delta", delta, 0.0, 1.0, closed="neither")
    with np.errstate(divide="ignore", invalid="ignore"):  # at huge epsilons, in the library
        reached = max((epsilon - ROOT_TOLERANCE) / (1.0 + ROOT_MARGIN), 0.0)
        return 1.0 / (gaussian_multiplier(reached, delta) + ROOT_TOLERANCE)


def split_epsilon(
    epsilon: float, shares: Iterable[float], *, delta: float = 1e-6
) -> tuple[float, ...]:
    """Split a total epsilon over several fits, such as a vocabulary and a model.

    Gaussian noise adds up in squares, so that the results add up to more than `epsilon`.

    Parameters
    ----------
    epsilon : float
        The total, in (0, 1e9].
    shares : iterable of float
        Share of each fit in the budget, measured in ``1 / noise_multiplier**2``. Only their
        ratios count. A share of 8% buys about a quarter of the total epsilon.
    delta : float, default=1e-6
        The delta of the total and of each fit.

    Returns
    -------
    epsilons : tuple of float
        One epsilon for each fit. Fits with these epsilons fit into a ledger with the total if
        their noise is Gaussian without sampling. A tenth of `delta` is kept for the threshold
        of a `PrivateCountVectorizer`.

    Raises
    ------
    ValueError
        If a share is not positive, or a number is out of range.

    See Also
    --------
    Ledger : Counts what the fits cost together, whatever their noise.

    Examples
    --------
    >>> from dplda.privacy import split_epsilon
    >>> [round(epsilon, 2) for epsilon in split_epsilon(4.0, shares=(0.08, 0.92))]
    [1.0, 3.8]
    """
    if not isinstance(shares, Iterable):
        raise TypeError(
            "shares must be a list of numbers, one for each fit, such as (0.08, 0.92), got "
            f"{type(shares).__name__}"
        )
    parts = [check_number("shares", share, 0.0, math.inf, closed="neither") for share in shares]
    delta = check_number("delta", delta, 0.0, 1.0, closed="neither")
    # what is kept covers the threshold, and the distance of the noise from its ideal law
    mu = gaussian_mu(epsilon, (1.0 - THRESHOLD_SHARE - 1e-3) * delta)
    return tuple(
        composition.epsilon_of_mu(mu * math.sqrt(part / sum(parts)), delta) for part in parts
    )
