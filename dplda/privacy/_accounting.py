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
from operator import is_

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._checks import check_number, check_probability
from dplda.privacy._composition import TILTS, Composition, Groups, Steps, log_peak, saddle
from dplda.privacy._curves import (
    LARGEST_LOSS,
    ORDERS,
    BoundedRanges,
    Curve,
    FloatArray,
    divergences,
    gaussian,
    pair_of,
    renyi_epsilon,
    response_loss,
)
from dplda.privacy._events import (
    MAX_COUNT,
    ApproximateDP,
    BoundedRange,
    ErasedResponse,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
)

SMALLEST_DELTA = 1e-200  # besides 0
_LARGEST_EPSILON = 1e4  # above it, the Renyi bounds are precise enough
_UP = 1.0 + 2.0**-46  # margin on the rounding errors of a few steps together
_PRECISE = 1e-7  # relative precision of delta in the search for an epsilon
_STEP_TAIL = 1e-7  # share of delta that may be an infinite loss, of all steps together

# The distance from the ideal law is charged to delta up to this share of delta.
_CHARGEABLE_SHARE = 1e-3


def epsilon_of(
    events: Event | Iterable[Event], delta: float, *, total_variation: float = 0.0
) -> float:
    """Compute the epsilon of an adaptive composition of events.

    The composition is (epsilon, delta)-differentially private. The result is a certified upper
    bound: every rounding is in its proof.

    Parameters
    ----------
    events : Event or iterable of Event
        Events of the composition, in any order.
    delta : float
        The delta of (epsilon, delta)-differential privacy: 0, or from 1e-200 to below 1. With
        ``delta=0`` only the sum of pure epsilons counts.
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law, over the whole composition. The
        charge ``(1 + exp(epsilon)) * total_variation`` is subtracted from delta if it is at most
        a thousandth of delta. Otherwise it is left out, and the result is the epsilon of the ideal
        mechanism.

    Returns
    -------
    float
        Zero or more; infinite if some event is not private, or no bound can be computed.

    Raises
    ------
    TypeError
        If `events` holds anything other than privacy events.
    ValueError
        If a number is out of range, or there are more than 2**36 steps.

    See Also
    --------
    epsilon_bounds : How far the result is from the smallest possible one.
    calibrate : Finds the noise for a given epsilon.

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Repeated, epsilon_of
    >>> round(epsilon_of(Repeated(Gaussian(30.0), 40), delta=1e-6), 2)
    0.88
    """
    delta = _check_delta(delta)
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
        The delta of (epsilon, delta)-differential privacy: 0, or from 1e-200 to below 1.
    total_variation : float, default=0.0
        As for `epsilon_of`. It counts in the upper bound alone.

    Returns
    -------
    lower, upper : float
        Some steps with these events need an epsilon of at least `lower`, and `upper` is what
        `epsilon_of` gives. The bounds are close for Gaussian noise, sampled or not. They are
        farther apart for bounded-range choices, and where discrete events are mixed with others.
        At delta 0 the lower bound is 0.
    """
    upper = epsilon_of(events, delta, total_variation=total_variation)
    groups, _, _ = without_statements(grouped(events))
    return min(_bounds(groups, float(delta), upper=False), upper), upper


def _check_delta(delta: float) -> float:
    delta = check_probability("delta", delta)
    if 0.0 < delta < SMALLEST_DELTA:
        raise ValueError(
            f"delta must be 0, or from {SMALLEST_DELTA:g} to below 1, got {delta:g}; "
            "0 asks for the pure epsilon"
        )
    return delta


def charged_epsilon(groups: Groups, delta: float, total_variation: float) -> float:
    """Epsilon at a delta that is reduced by the charge, with a margin of two on the charge."""
    epsilon, charge = upper_epsilon(groups, delta), 0.0
    if not is_chargeable(total_variation, epsilon, delta):
        return epsilon
    while delta_charge(total_variation, epsilon) > charge:
        charge = 2.0 * delta_charge(total_variation, epsilon)
        if charge >= delta:
            return math.inf
        epsilon = upper_epsilon(groups, min(delta - charge, math.nextafter(delta, 0.0)))
    return epsilon


def is_within(
    events: Event | Iterable[Event], epsilon: float, delta: float, *, total_variation: float = 0.0
) -> bool:
    """Whether ``epsilon_of(events, delta) <= epsilon``, without the slow method where possible."""
    if epsilon == math.inf:
        return True
    groups, lost, shift = without_statements(grouped(events))
    left = delta - lost - 2.0 * delta_charge(total_variation, epsilon)
    chargeable = is_chargeable(total_variation, epsilon, delta) and left >= SMALLEST_DELTA
    if chargeable and shift + quick_epsilon(groups, left) <= epsilon:
        return True
    return epsilon_of(events, delta, total_variation=total_variation) <= epsilon


def delta_charge(total_variation: float, epsilon: float) -> float:
    """What a distance from the ideal law adds to delta: (1 + exp(epsilon)) * total_variation."""
    total_variation = check_probability("total_variation", total_variation)
    if total_variation == 0.0:
        return 0.0
    epsilon = check_number("epsilon", epsilon, -math.inf, math.inf)
    if abs(epsilon) >= 1e4:  # the exponential of such a number is not a float
        return math.inf
    log_charge = math.log(total_variation) + max(epsilon, 0.0) + math.log1p(math.exp(-abs(epsilon)))
    return math.exp(log_charge) if log_charge < 709.0 else math.inf


def is_chargeable(total_variation: float, epsilon: float, delta: float) -> bool:
    """Whether the distance from the ideal law is charged to delta: up to a thousandth of delta.

    Otherwise the guarantee is stated differently: the release is within this total variation of an
    (epsilon, delta)-DP one.
    """
    check_probability("delta", delta)
    return delta_charge(total_variation, epsilon) <= _CHARGEABLE_SHARE * delta


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu of Gaussian differential privacy that is (epsilon, delta)-DP.

    Gaussian events fit the budget if the sum of ``1 / noise_multiplier**2`` is at most ``mu**2``.
    It is below the exact root by a relative 1e-13 or less.
    """
    epsilon = check_number("epsilon", epsilon, 0.0, 1e9, closed="right")
    delta = _check_delta(check_number("delta", delta, 0.0, 1.0, closed="neither"))

    def is_too_large(mus: FloatArray) -> NDArray[np.bool_]:
        deltas = _gaussian_deltas(np.full(len(mus), epsilon), np.maximum(mus, 1e-300), upper=True)
        return (deltas > delta) & (mus > 0.0)

    return _switch(is_too_large, epsilon / (1.0 + math.sqrt(epsilon)))[0]


# ---- events in groups ---------------------------------------------------------------------

# The events that were grouped last, with their counts and groups. A fit asks for the same events
# several times, and each call of `partial_fit` for a few more. They are replaced, never changed.
_last: tuple[tuple[Event, ...], Counter[Event], Groups] = (), Counter(), ()


def grouped(events: Event | Iterable[Event]) -> Groups:
    """Flatten events into sorted pairs (event, count); equal compositions become equal.

    All Gaussian events without sampling become a single one, which costs exactly as much.
    """
    global _last
    if not isinstance(events, (Event, Iterable)):
        raise TypeError(f"expected privacy events, got {type(events).__name__}")
    every = (events,) if isinstance(events, Event) else tuple(events)
    known, counts, groups = _last
    if len(known) > len(every) or not all(map(is_, known, every)):
        known, counts = (), Counter()
    elif len(known) == len(every) and every:
        return groups
    counts = counts.copy()
    for event in every[len(known) :]:
        _add(event, 1, counts)
    groups = _merged(counts)
    _last = every, counts, groups
    return groups


def _add(event: Event, count: int, counts: Counter[Event]) -> None:
    match event:
        case Repeated(inner, inner_count):
            _add(inner, inner_count * count, counts)
        case PoissonSampled(1.0, inner):
            counts[inner] += count
        case _ if isinstance(event, Event):
            counts[event] += count
        case _:
            raise TypeError(f"expected privacy events, got {type(event).__name__}")


def _merged(counts: Counter[Event]) -> Groups:
    if sum(counts.values()) > MAX_COUNT:
        raise ValueError(
            f"a composition may have at most 2**36 = {MAX_COUNT} steps, got {sum(counts.values())}"
        )
    gaussians: list[tuple[Gaussian, int]] = []
    others: list[tuple[Event, int]] = []
    for event, n in counts.items():
        if isinstance(event, Gaussian):
            gaussians.append((event, n))
        else:
            others.append((event, n))
    others.sort(key=lambda group: repr(group[0]))
    if gaussians and (len(gaussians) > 1 or gaussians[0][1] > 1):  # one alone keeps all digits
        gaussians.sort(key=lambda group: group[0].noise_multiplier)
        multipliers, times = zip(*((event.noise_multiplier, n) for event, n in gaussians))
        each = np.sqrt(np.array(times, np.float64)) * (1.0 / np.array(multipliers))
        gaussians = [(Gaussian(1.0 / math.hypot(*each.tolist())), 1)]
    return *gaussians, *others


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


def upper_epsilon(groups: Groups, delta: float) -> float:
    """The smallest epsilon at a delta that is proved, of events without statements."""
    return _bounds(groups, delta if delta >= SMALLEST_DELTA else 0.0, upper=True)


@lru_cache(maxsize=1024)
def _bounds(groups: Groups, delta: float, *, upper: bool) -> float:
    if delta == 0.0:
        return pure_epsilon(groups) if upper else 0.0
    if not groups:
        return 0.0
    if any(isinstance(event, NonPrivate) for event, _ in groups):
        return math.inf
    if all_gaussian(groups):
        return epsilon_of_mu(gaussian_mu_of(groups), delta, upper=upper)
    sides = [_side(groups, delta, added=added, upper=upper) for added in directions(groups)]
    if not upper:
        return max(sides)
    return min(max(sides), quick_epsilon(groups, delta))


def directions(groups: Groups) -> tuple[bool, ...]:
    """Whether the unit is added: only for sampled steps does it make a difference."""
    sampled = any(isinstance(event, PoissonSampled) for event, _ in groups)
    return (False, True) if sampled else (False,)


def quick_epsilon(groups: Groups, delta: float) -> float:
    """A valid epsilon in a millisecond: closed forms, and Renyi divergences at whole orders."""
    if all_gaussian(groups):
        return epsilon_of_mu(gaussian_mu_of(groups), delta)
    total = sum((count * divergences(event) for event, count in groups), np.zeros(len(ORDERS)))
    return min(
        pure_epsilon(groups),
        epsilon_of_mu(gaussian_mu_of(groups), delta),
        renyi_epsilon(total, delta) * _UP,
    )


def _side(groups: Groups, delta: float, *, added: bool, upper: bool) -> float:
    """Epsilon in one direction: where delta of the composed laws crosses the given one."""
    found = saddle(groups, added)
    if found is None:
        return math.inf if upper else 0.0
    if len(groups) == 1 and groups[0][1] == 1:
        curve = pair_of(groups[0][0], added=added, upper=upper)
        if isinstance(curve, Curve):  # a single step needs no grid
            low, high = _switch(lambda x: _delta_of(curve, x, upper=upper) <= delta, 1.0)
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
    composed = _composition(groups, delta, best, logs, added=added, upper=upper)
    if not upper:
        return _largest_epsilon(composed.below, delta, start)
    return min(known, _least_epsilon(composed.above, delta, start, composed.tilt))


def _composition(
    groups: Groups, delta: float, best: int, logs: FloatArray, *, added: bool, upper: bool
) -> Composition:
    # At a smaller tilt where rare losses take over soon: the window would be long. The variance of
    # the tilted law comes from smaller tilts for the same reason.
    best = min(max(best, 3), len(logs) - 3)
    while best > 3 and logs[best + 2] - logs[best] > 6.0 * (logs[best] - logs[best - 2]):
        best -= 1
    (a, b, c), (x, y, z) = TILTS[best - 2 : best + 1], logs[best - 2 : best + 1]
    variance = 2.0 * ((z - y) / (c - b) - (y - x) / (b - a)) / (c - a)
    steps = sum(count for _, count in groups)
    parts: Steps = groups
    if upper:  # all bounded-range choices of a kind are one step, which has a curve
        parts = tuple(
            (BoundedRanges(event.epsilon, n), 1) if isinstance(event, BoundedRange) else (event, n)
            for event, n in groups
        )
    tail = 2.0 ** (8 * math.floor(math.log2(_STEP_TAIL * delta / steps) / 8.0))
    return Composition(
        parts, added=added, upper=upper, tilt=float(c), spread=math.sqrt(max(variance, 0.0)),
        tail=max(tail, 1e-240),
    )  # fmt: skip


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


def upper_deltas(groups: Groups, epsilons: FloatArray) -> FloatArray:
    """Delta at each of several epsilons, never too small; 1 where no bound is computed."""
    if all_gaussian(groups):
        mu = gaussian_mu_of(groups)
        delta, _, error = gaussian(np.asarray(epsilons, np.float64), 1.0 / mu)
        return np.minimum(delta + error, 1.0)
    worst = np.zeros(len(epsilons))
    for added in directions(groups):
        found = saddle(groups, added)
        if found is None:
            return np.ones(len(epsilons))
        best = np.ones(len(epsilons))
        places = [int((found[0] - TILTS * e).argmin()) for e in epsilons]
        for place in sorted(set(places)):
            composed = _composition(groups, 1e-12, place, found[0], added=added, upper=True)
            own = [composed.above(float(e)) if abs(p - place) <= 8 else 1.0
                   for e, p in zip(epsilons, places, strict=True)]  # fmt: skip
            best = np.minimum(best, own)
        worst = np.maximum(worst, best)
    return worst


# ---- closed forms -------------------------------------------------------------------------


def pure_epsilon(groups: Groups) -> float:
    """Sum of the epsilons of the events, rounded up; infinite unless every event has one."""
    each = [(count, pure_epsilon_of(event)) for event, count in groups]
    if any(epsilon == math.inf for _, epsilon in each):
        return math.inf
    return _rounded_up(sum((count * Fraction(epsilon) for count, epsilon in each), Fraction(0)))


def _rounded_up(exact: Fraction) -> float:
    """The smallest float that is not below a number."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def pure_epsilon_of(event: Event) -> float:
    """Epsilon of one event, rounded up."""
    match event:
        case Laplace(scale):
            return _rounded_up(1 / Fraction(scale))
        case BoundedRange(epsilon):
            return epsilon
        case RandomizedResponseEvent() | ErasedResponse():
            return response_loss(event, upper=True)
        case _:
            return math.inf


def gaussian_mu_of(groups: Iterable[tuple[Event, int]]) -> float:
    """The mu of Gaussian differential privacy without sampling; infinite for other events."""
    return math.hypot(*(math.sqrt(count) * _mu(event) for event, count in groups))


def _mu(event: Event) -> float:
    match event:
        case Gaussian(s) | PoissonSampled(_, Gaussian(s)):
            return 1.0 / s
        case _:
            return math.inf


def all_gaussian(groups: Groups) -> bool:
    """Whether the closed form is exact."""
    return all(isinstance(event, Gaussian) for event, _ in groups)


def epsilon_of_mu(mu: float, delta: float, *, upper: bool = True) -> float:
    """Epsilon of Gaussian differential privacy (Balle and Wang 2018, theorem 8)."""
    if mu == 0.0 or mu == math.inf or delta == 0.0:
        return 0.0 if mu == 0.0 else math.inf

    def is_private(epsilons: FloatArray) -> NDArray[np.bool_]:
        return _gaussian_deltas(epsilons, mu, upper=upper) <= delta

    low, high = _switch(is_private, mu * mu / 2.0 + mu)  # of this order, whatever delta is
    return high if upper else low


def _delta_of(curve: Curve, epsilons: FloatArray, *, upper: bool) -> FloatArray:
    """Delta of a step, which no loss above `LARGEST_LOSS` enters where it has cumulants."""
    value, error, _ = curve.at(np.minimum(epsilons, LARGEST_LOSS))
    return np.where(epsilons > LARGEST_LOSS, 0.0, value + error if upper else value - error)


def _gaussian_deltas(epsilons: FloatArray, mu: float | FloatArray, *, upper: bool) -> FloatArray:
    # several noises became one, whose multiplier has a few roundings
    value, _, error = gaussian(epsilons, (1.0 - 1e-15 if upper else 1.0 + 1e-15) / mu)
    return value + error if upper else value - error


def _switch(holds: Callable[[FloatArray], NDArray[np.bool_]], guess: float) -> tuple[float, float]:
    """Neighboring numbers from 0 on, of which only the second satisfies a monotone condition."""
    points = np.append(0.0, guess * 2.0 ** np.arange(60.0))
    while True:
        first = int(holds(points).argmax())
        if first == 0:  # at 0 already
            return float(points[0]), float(points[0])
        low, high = float(points[first - 1]), float(points[first])
        if high - low <= 1e-14 * high or not low < 0.5 * (low + high) < high:
            return low, high
        points = np.linspace(low, high, 65)
