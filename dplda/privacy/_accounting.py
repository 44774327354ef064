"""The privacy cost of a composition: certified bounds of epsilon and delta from both sides.

docs/accounting.md has the theorems. Every upper bound is valid for the numbers as they were
rounded, so that the smallest of several is valid too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._checks import check_delta, check_number, check_probability
from dplda.privacy._composition import TILTS, Composition, Groups, log_peak, saddle
from dplda.privacy._curves import (
    LARGEST_LOSS,
    ORDERS,
    Curve,
    FloatArray,
    conversion,
    divergences,
    gaussian,
    pair_of,
    response_loss,
)
from dplda.privacy._events import (
    MAX_COUNT,
    ApproximateDP,
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
)

SMALLEST_DELTA = 1e-200  # below it, only pure epsilons count: its exponentials are floats
_LARGEST_EPSILON = 1e4  # above it, the Renyi bounds are precise enough
_UP = 1.0 + 2.0**-46  # margin on the rounding errors of a few steps together
_PRECISE = 1e-7  # relative precision of delta in the search for an epsilon
_CHARGEABLE_SHARE = 1e-3  # of delta, up to which the distance from the ideal law is charged to it


def epsilon_of(
    events: Event | Iterable[Event], delta: float, *, total_variation: float = 0.0
) -> float:
    """Compute the epsilon of an adaptive composition of events.

    The result is a certified upper bound: every rounding is in its proof.

    Parameters
    ----------
    events : Event or iterable of Event
        Events of the composition, in any order, of at most 2**36 steps.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1). Below 1e-200 only the sum of
        pure epsilons counts.
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law, over the whole composition. The
        charge ``(1 + exp(epsilon)) * total_variation`` is subtracted from delta if it is at most
        a thousandth of delta. Otherwise it is left out, and the result is the epsilon of the ideal
        mechanism.

    Returns
    -------
    float
        Zero or more; infinite if some event is not private, or no bound can be computed.

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Repeated, epsilon_of
    >>> round(epsilon_of(Repeated(Gaussian(30.0), 40), delta=1e-6), 2)
    0.88
    """
    delta = check_probability("delta", delta)
    distance = check_probability("total_variation", total_variation)
    groups, lost, shift = without_statements(grouped(events))
    if lost > delta:
        return math.inf
    return shift + charged_epsilon(groups, delta - lost, distance)


def epsilon_bounds(
    events: Event | Iterable[Event], delta: float, *, total_variation: float = 0.0
) -> tuple[float, float]:
    """Bound the smallest epsilon of a composition from both sides.

    Parameters
    ----------
    events : Event or iterable of Event
        Events of the composition.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1).
    total_variation : float, default=0.0
        As for `epsilon_of`. It counts in the upper bound alone.

    Returns
    -------
    lower, upper : float
        Some steps with these events need an epsilon of at least `lower`, and `upper` is what
        `epsilon_of` gives. At delta 0 the lower bound is 0.
    """
    upper = epsilon_of(events, delta, total_variation=total_variation)
    groups, _, _ = without_statements(grouped(events))
    return min(bound_epsilon(groups, float(delta), upper=False), upper), upper


def charged_epsilon(groups: Groups, delta: float, total_variation: float) -> float:
    """Epsilon at a delta that is reduced by the charge, with a margin of two on the charge."""
    epsilon, charge = bound_epsilon(groups, delta), 0.0
    if not is_chargeable(total_variation, epsilon, delta):
        return epsilon
    while delta_charge(total_variation, epsilon) > charge:
        charge = 2.0 * delta_charge(total_variation, epsilon)
        if charge >= delta:
            return math.inf
        epsilon = bound_epsilon(groups, min(delta - charge, math.nextafter(delta, 0.0)))
    return epsilon


def delta_charge(total_variation: float, epsilon: float) -> float:
    """What a distance from the ideal law adds to delta: (1 + exp(epsilon)) * total_variation."""
    if total_variation == 0.0 or epsilon > 700.0:  # whose exponential may be no float
        return math.inf if total_variation else 0.0
    return (1.0 + math.exp(epsilon)) * total_variation


def is_chargeable(total_variation: float, epsilon: float, delta: float) -> bool:
    """Whether the distance from the ideal law is charged to delta.

    Otherwise the release is only within this total variation of an (epsilon, delta)-DP one.
    """
    return delta_charge(total_variation, epsilon) <= _CHARGEABLE_SHARE * delta


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu of Gaussian differential privacy that is (epsilon, delta)-DP.

    Gaussian events fit the budget if the sum of ``1 / noise_multiplier**2`` is at most ``mu**2``.
    It is below the exact root by a relative 1e-13 or less.
    """
    epsilon = check_number("epsilon", epsilon, 0.0, 1e9, closed="right")
    delta = check_number("delta", delta, 0.0, 1.0, closed="neither")

    def is_too_large(mus: FloatArray) -> NDArray[np.bool_]:
        deltas = _gaussian_deltas(np.full(len(mus), epsilon), np.maximum(mus, 1e-300), upper=True)
        return (deltas > delta) & (mus > 0.0)

    return _switch(is_too_large, epsilon / (1.0 + math.sqrt(epsilon)))[0]


# ---- events in groups ---------------------------------------------------------------------


def grouped(events: Event | Iterable[Event]) -> Groups:
    """Flatten events into sorted pairs (event, count); equal compositions become equal.

    All Gaussian events without sampling become a single one, which costs exactly as much.
    """
    if not isinstance(events, (Event, Iterable)):
        raise TypeError(f"expected privacy events, got {type(events).__name__}")
    counts: Counter[Event] = Counter()
    for event in (events,) if isinstance(events, Event) else events:
        n = 1
        while isinstance(event, Repeated):
            n, event = n * event.count, event.event
        if isinstance(event, PoissonSampled) and event.sampling_probability == 1.0:
            event = event.event
        if not isinstance(event, Event):
            raise TypeError(f"expected privacy events, got {type(event).__name__}")
        counts[event] += n
    if sum(counts.values()) > MAX_COUNT:
        raise ValueError(
            f"a composition may have at most 2**36 = {MAX_COUNT} steps, got {sum(counts.values())}"
        )
    noises = sorted((e.noise_multiplier, n) for e, n in counts.items() if isinstance(e, Gaussian))
    others = [(event, n) for event, n in counts.items() if not isinstance(event, Gaussian)]
    others.sort(key=lambda group: repr(group[0]))
    if len(noises) > 1 or any(n > 1 for _, n in noises):  # one alone keeps all digits
        mu = math.hypot(*(math.sqrt(n) * (1.0 / noise) for noise, n in noises))
        noises = [(1.0 / mu, 1)]
    return *((Gaussian(noise), n) for noise, n in noises), *others


def without_statements(groups: Groups) -> tuple[Groups, float, float]:
    """The other events, and the delta and the epsilon that `ApproximateDP` events add to them.

    This is basic composition: of the steps with a statement only, and of these with all others.
    """
    others, lost, shift = [], Fraction(0), Fraction(0)
    for event, n in groups:
        if isinstance(event, ApproximateDP):
            lost += n * Fraction(event.delta)
            shift += n * Fraction(event.epsilon)
        else:
            others.append((event, n))
    return tuple(others), float(lost), float(shift)


# ---- both sides ---------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def bound_epsilon(groups: Groups, delta: float, *, upper: bool = True) -> float:
    """The smallest epsilon at a delta, of events without statements: from above or from below."""
    if delta < SMALLEST_DELTA:
        return pure_epsilon(groups) if upper else 0.0
    if not groups:
        return 0.0
    if any(isinstance(event, NonPrivate) for event, _ in groups):
        return math.inf
    if all_gaussian(groups):
        return epsilon_of_mu(gaussian_mu_of(groups), delta, upper=upper)
    # whether a unit is added or removed makes a difference for sampled steps only
    ways = {False, any(isinstance(event, PoissonSampled) for event, _ in groups)}
    bound = max(_side(groups, delta, added=added, upper=upper) for added in ways)
    return min(bound, quick_epsilon(groups, delta)) if upper else bound


def quick_epsilon(groups: Groups, delta: float) -> float:
    """A valid epsilon in a millisecond: closed forms, and Renyi divergences at whole orders."""
    total = sum((count * divergences(event) for event, count in groups), np.zeros(len(ORDERS)))
    return min(
        pure_epsilon(groups),
        epsilon_of_mu(gaussian_mu_of(groups), delta),
        max(0.0, float((total + conversion(delta)).min())) * _UP,
    )


def _side(groups: Groups, delta: float, *, added: bool, upper: bool) -> float:
    """Epsilon in one direction: where delta of the composed laws crosses the given one."""
    found = saddle(groups, added)
    if found is None:
        return math.inf if upper else 0.0
    if len(groups) == 1 and groups[0][1] == 1:
        curve = pair_of(groups[0][0], added=added, upper=upper)
        if isinstance(curve, Curve):  # a single step needs no grid
            sign = 1.0 if upper else -1.0

            def is_private(x: FloatArray) -> NDArray[np.bool_]:  # no loss is above `LARGEST_LOSS`
                value, error, _ = curve.at(np.minimum(x, LARGEST_LOSS))
                return np.where(x > LARGEST_LOSS, 0.0, value + sign * error) <= delta

            low, high = _switch(is_private, 1.0)
            return high if upper else low
    logs, lost = found
    # Renyi bounds of all orders. Of a bounded loss, ever larger tilts may have ever smaller ones.
    each = (logs + log_peak(TILTS) - math.log(max(delta - lost, delta / 2.0))) / TILTS
    if not np.isfinite(each).all():
        return math.inf if upper else 0.0
    best = int(np.flatnonzero(each <= each.min() + 1e-5 * abs(each.min()))[0])
    start = max(0.0, float(each[best]))
    known = start * _UP if lost <= delta / 2.0 else math.inf
    if start > _LARGEST_EPSILON:
        return known if upper else 0.0
    composed = Composition(groups, delta, best, logs, added=added, upper=upper)
    if not upper:
        return _largest_epsilon(composed.delta, delta, start)
    return min(known, _least_epsilon(composed.delta, delta, start, composed.tilt))


def _least_epsilon(above: Callable[[float], float], delta: float, x: float, tilt: float) -> float:
    """The least epsilon that is found with ``above(epsilon) <= delta``, from an estimate x.

    The logarithm of delta is nearly a line with the slope -tilt.
    """
    if above(0.0) <= delta:
        return 0.0
    bad, good, slope = 0.0, math.inf, tilt
    last, excess = x, math.inf
    for _ in range(60):
        value = above(x)
        before, excess = excess, math.log(value / delta) if value > 0.0 else -math.inf
        bad, good = (x, good) if excess > 0.0 else (bad, min(x, good))
        if -_PRECISE <= excess <= 0.0 or good - bad <= 1e-12 * good or bad > _LARGEST_EPSILON:
            break
        if math.isfinite(before) and math.isfinite(excess) and x != last:
            slope = max((before - excess) / (x - last), 0.1 * tilt)
        last = x
        x += (excess + 0.5 * _PRECISE) / slope if math.isfinite(excess) else math.inf
        if not bad < x < good:
            x = 0.5 * (bad + good) if good < math.inf else 2.0 * max(bad, 1e-6)
    return good


def _largest_epsilon(below: Callable[[float], float], delta: float, top: float) -> float:
    """The largest epsilon that is found with ``below(epsilon) >= delta``, from above.

    The bound is useful near the epsilon of its tilt alone: far below it, its error is large.
    """
    bad, gap = top, 1e-6
    while gap < 1.0 and below(top * (1.0 - gap)) < delta:
        bad, gap = top * (1.0 - gap), 1.5 * gap
    good = max(0.0, top * (1.0 - gap))
    while gap < 1.0 and bad - good > _PRECISE * bad:
        middle = 0.5 * (bad + good)
        bad, good = (bad, middle) if below(middle) >= delta else (middle, good)
    return good


# ---- closed forms -------------------------------------------------------------------------


def pure_epsilon(groups: Groups) -> float:
    """Sum of the epsilons of the events, rounded up; infinite unless every event has one."""
    exact = Fraction(0)
    for event, count in groups:
        match event:
            case Laplace(scale):
                exact += count / Fraction(scale)
            case BoundedRange(epsilon):
                exact += count * Fraction(epsilon)
            case RandomizedResponseEvent():
                exact += count * Fraction(response_loss(event, upper=True))
            case _:
                return math.inf
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def gaussian_mu_of(groups: Iterable[tuple[Event, int]]) -> float:
    """The mu of Gaussian differential privacy without sampling; infinite for other events."""
    mus = []
    for event, n in groups:
        match event:
            case Gaussian(s) | PoissonSampled(_, Gaussian(s)):
                mus.append(math.sqrt(n) * (1.0 / s))
            case _:
                return math.inf
    return math.hypot(*mus)


def all_gaussian(groups: Groups) -> bool:
    """Whether the closed form is exact."""
    return all(isinstance(event, Gaussian) for event, _ in groups)


def epsilon_of_mu(mu: float, delta: float, *, upper: bool = True) -> float:
    """Epsilon of Gaussian differential privacy (Balle and Wang 2018, theorem 8)."""
    if mu == 0.0 or mu == math.inf or delta < SMALLEST_DELTA:
        return 0.0 if mu == 0.0 else math.inf

    def is_private(epsilons: FloatArray) -> NDArray[np.bool_]:
        return _gaussian_deltas(epsilons, mu, upper=upper) <= delta

    low, high = _switch(is_private, mu * mu / 2.0 + mu)  # of this order, whatever delta is
    return high if upper else low


def _gaussian_deltas(epsilons: FloatArray, mu: float | FloatArray, *, upper: bool) -> FloatArray:
    # several noises became one, whose multiplier has a few roundings
    value, _, error = gaussian(epsilons, (1.0 - 1e-15 if upper else 1.0 + 1e-15) / mu)
    return value + error if upper else value - error


def _switch(holds: Callable[[FloatArray], NDArray[np.bool_]], guess: float) -> tuple[float, float]:
    """Neighboring numbers from 0 on, of which only the second satisfies a monotone condition."""
    points = np.append(0.0, guess * 2.0 ** np.arange(60.0))
    while True:
        held = holds(points)
        first = int(held.argmax())
        if not held[first]:  # nowhere, or the numbers are too large to know
            return 0.0, math.inf
        if first == 0:  # at 0 already
            return float(points[0]), float(points[0])
        low, high = float(points[first - 1]), float(points[first])
        if high - low <= 1e-14 * high or not low < 0.5 * (low + high) < high:
            return low, high
        points = np.linspace(low, high, 65)


# ---- the noise for a given budget, and the budget of each of several fits --------------------

# Share of delta that pays for the thresholds of a vocabulary. From 0.02 to 0.5 it hardly matters.
THRESHOLD_SHARE = 0.1
# Logarithms of the noise: the range of the search (of no use beyond), and its longest step.
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
        As for `epsilon_of`.

    Returns
    -------
    float
        The noise multiplier. It is never too small: `epsilon_of` of its events is at most
        `epsilon`. It is hardly too large: that of a multiplier smaller by a relative 1e-4 exceeds
        `epsilon`, or by 1e-7 if all events are Gaussian without sampling.

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

    def excess_of(cost: Callable[[Groups], float]) -> Callable[[float], float]:
        """Logarithm of a cost over its target, at a logarithm of the noise. It decreases."""

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


def _least(excess: Callable[[float], float], start: float, step: float, tolerance: float) -> float:
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
        One epsilon for each fit, more than `epsilon` in sum. Fits with these epsilons fit into a
        ledger with the total if their noise is Gaussian without sampling. A tenth of `delta` is
        kept for the threshold of a `PrivateCountVectorizer`.

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
