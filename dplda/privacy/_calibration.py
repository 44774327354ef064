"""The noise for a given budget, and the budget of each of several fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

from dplda.leaf._checks import check_delta, check_number
from dplda.privacy._accounting import (
    SMALLEST_DELTA,
    all_gaussian,
    charged_epsilon,
    epsilon_of_mu,
    gaussian_mu,
    gaussian_mu_of,
    grouped,
    quick_epsilon,
    without_statements,
)
from dplda.privacy._composition import Groups
from dplda.privacy._events import Event

# Logarithm of a cost over its target, as a function of the logarithm of the noise. It is positive
# where the noise is too small, and it decreases.
Excess: TypeAlias = Callable[[float], float]
# Share of delta that pays for the thresholds of a vocabulary. From 0.02 to 0.5 it hardly matters.
THRESHOLD_SHARE = 0.1
_LARGEST, _SMALLEST, _OCTAVE = math.log(1e9), math.log(1e-6), math.log(2.0)


def calibrate(
    make_events: Callable[[float], Event | Iterable[Event]],
    epsilon: float,
    delta: float,
    *,
    total_variation: float = 0.0,
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
        The delta of (epsilon, delta)-differential privacy, from 1e-200 to 0.01.
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law, over the whole composition; it is
        charged to delta.

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
    epsilon = check_number("epsilon", epsilon, 0.0, 1e9, closed="right")
    delta = check_delta(delta, SMALLEST_DELTA)
    groups, lost, shift = without_statements(grouped(make_events(1.0)))
    epsilon, delta = epsilon - shift, delta - lost
    if (lost or shift) and (epsilon <= 0.0 or delta <= 0.0):
        raise ValueError(
            "no noise meets this target: the ApproximateDP events alone cost all of epsilon or "
            "delta; raise the target, or use fewer of them"
        )
    mu = gaussian_mu(epsilon, delta)

    def excess_of(cost: Callable[[Groups], float]) -> Excess:
        def excess(log_noise: float) -> float:
            spent = cost(without_statements(grouped(make_events(math.exp(log_noise))))[0])
            return math.log(min(max(spent / epsilon, 1e-3), 1e3))

        return excess

    exact = excess_of(lambda groups: charged_epsilon(groups, delta, total_variation))
    if all_gaussian(groups):  # in closed form first: the search then takes two steps
        closed = excess_of(lambda groups: epsilon / mu * gaussian_mu_of(groups))
        return math.exp(_least(exact, _least(closed, 0.0, _OCTAVE, 1e-9), 5e-8, 1e-7))
    quick = excess_of(lambda groups: quick_epsilon(groups, delta))
    try:
        start = _least(quick, 0.0, _OCTAVE, 0.02)
    except ValueError:  # a bound that is never small enough, where the better one may be
        start = 0.0
    return math.exp(_least(exact, start, 1e-3, 1e-4))


def _least(excess: Excess, start: float, step: float, tolerance: float) -> float:
    """A point at which an excess is at most 0, at most `tolerance` above one where it is not.

    The point is bracketed in growing steps from `start`. Then the ends of the bracket move by
    the secant, which lands a little above the root, and by halving where it does not help.
    """
    x, value = start, excess(start)
    low = high = None
    while low is None or high is None:
        if value > 0.0:
            low = (x, value)
            x += max(step, min(value, _OCTAVE)) if high is None else 0.0
        else:
            high = (x, value)
            x -= max(step, min(-value, _OCTAVE)) if low is None else 0.0
        if x > _LARGEST:
            raise ValueError(
                "no noise meets this target: some events do not depend on the noise and cost "
                "too much; raise epsilon, or use fewer or less expensive steps"
            )
        if x < _SMALLEST:
            raise ValueError(
                "any noise, however small, meets this target; lower epsilon, or give epsilon=inf "
                "for no privacy"
            )
        if low is None or high is None:
            value, step = excess(x), min(2.0 * step, _OCTAVE)
    for halving in range(200):
        (a, above), (b, below) = low, high
        if b - a <= tolerance or not a < 0.5 * (a + b) < b:
            break
        x = a + (b - a) * above / (above - below) + 0.3 * tolerance
        if halving % 3 == 2 or not a < x < b:
            x = 0.5 * (a + b)
        value = excess(x)
        low, high = ((x, value), high) if value > 0.0 else (low, (x, value))
        if value <= 0.0 and x - a > tolerance:  # how far the root is below, by one look
            y = x - tolerance
            if (value := excess(y)) > 0.0:
                return x
            high = (y, value)
    return high[0]


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
        Share of each fit in the budget, measured in ``1 / noise_multiplier**2``. Only their ratios
        count. A share of 8% buys about a quarter of the total epsilon.
    delta : float, default=1e-6
        The delta of the total and of each fit, up to 0.01.

    Returns
    -------
    epsilons : tuple of float
        One epsilon for each fit. Fits with these epsilons fit into a ledger with the total if their
        noise is Gaussian without sampling. A tenth of `delta` is kept for the threshold of a
        `PrivateCountVectorizer`.

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
    delta = check_delta(delta, SMALLEST_DELTA)
    # what is kept covers the threshold, and the distance of the noise from its ideal law
    mu = gaussian_mu(epsilon, (1.0 - THRESHOLD_SHARE - 1e-3) * delta)
    return tuple(epsilon_of_mu(mu * math.sqrt(part / sum(parts)), delta) for part in parts)
