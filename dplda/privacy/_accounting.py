"""The privacy cost of a composition: certified two-sided bounds of epsilon and delta.

docs/accounting.md has the theorems. Every upper bound is valid for the numbers as they
were rounded; the smallest of several bounds is valid too.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import TypeAlias

import numpy as np

from dplda.leaf._checks import (
    LARGEST,
    check_delta,
    check_epsilon,
    check_number,
    check_probability,
)
from dplda.privacy._composition import (
    SMALLEST_DELTA,
    Groups,
    compose,
    renyi_epsilons,
    summed_cumulants,
    ways,
)
from dplda.privacy._curves import (
    LARGEST_LOSS,
    TINY,
    FloatArray,
    U,
    curve_of,
    down,
    gaussian,
    response_loss,
    up,
)
from dplda.privacy._events import (
    MAX_COUNT,
    SMALLEST_NOISE,
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
from dplda.privacy._rare import is_rare, rare_epsilon

Events: TypeAlias = Event | Iterable[Event]

# largest share of delta that pays for distances from the ideal law
DISTANCE_SHARE = 1e-3


def epsilon_of(events: Events, delta: float, *, total_variation: float = 0.0) -> float:
    """Compute the epsilon of an adaptive composition of events.

    The result is a certified upper bound: every rounding is in its proof.

    Parameters
    ----------
    events : Event or iterable of Event
        Events of the composition, in any order, of at most 2**36 steps.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1). Below 1e-200 only
        the sum of pure epsilons counts.
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law, over the whole
        composition. The charge ``(1 + exp(epsilon)) * total_variation`` is subtracted
        from delta if it is at most a thousandth of delta. Otherwise it is left out, and
        the result is the epsilon of the ideal mechanism.

    Returns
    -------
    float
        Zero or more; infinite if some event is not private, or no bound can be
        computed.

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Repeated, epsilon_of
    >>> round(epsilon_of(Repeated(Gaussian(30.0), 40), delta=1e-6), 2)
    0.88
    """
    delta = check_probability("delta", delta)
    distance = check_probability("total_variation", total_variation)
    groups, lost, shift = without_statements(grouped(events))

    def epsilon_after(charge: float) -> float:
        """Epsilon of all events if this much of delta pays for the distance."""
        left = Fraction(delta) - lost - Fraction(charge)
        if left < 0:
            return math.inf
        of_others = bound_epsilon(groups, rounded_down(left))
        if of_others == math.inf:
            return math.inf
        return rounded_up(shift + Fraction(of_others))

    epsilon = epsilon_after(0.0)
    if not is_chargeable(distance, epsilon, delta):
        return epsilon
    charge = 0.0
    while delta_charge(distance, epsilon) > charge:
        # up: a smaller delta has a larger epsilon, which has a larger charge
        charge = 2.0 * delta_charge(distance, epsilon)
        if charge >= delta:
            return math.inf
        epsilon = epsilon_after(charge)
    return epsilon


def epsilon_bounds(
    events: Events, delta: float, *, total_variation: float = 0.0
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
        Some steps with these events need an epsilon of at least `lower`, and `upper` is
        what `epsilon_of` returns. At delta 0 the lower bound is 0.
    """
    upper = epsilon_of(events, delta, total_variation=total_variation)
    groups, _, _ = without_statements(grouped(events))
    return min(bound_epsilon(groups, float(delta), upper=False), upper), upper


def delta_charge(total_variation: float, epsilon: float) -> float:
    """Delta for a distance from the ideal law.

    It adds (1 + exp(epsilon)) * total_variation.
    """
    if total_variation == 0.0:
        return 0.0
    if epsilon > 700.0:  # its exponential may overflow
        return math.inf
    return (1.0 + math.exp(epsilon)) * total_variation


def is_chargeable(total_variation: float, epsilon: float, delta: float) -> bool:
    """Whether the distance from the ideal law is charged to delta.

    Otherwise the release is only within this total variation of an (epsilon, delta)-DP
    one.
    """
    return delta_charge(total_variation, epsilon) <= DISTANCE_SHARE * delta


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu of Gaussian differential privacy that is (epsilon, delta)-DP.

    Gaussian events fit the budget if the sum of ``1 / noise_multiplier**2`` is at most
    ``mu**2``. The result is below the exact root by a relative 1e-10 at most.
    """
    epsilon = check_epsilon(epsilon)
    delta = check_number("delta", delta, 0.0, 1.0, closed="neither")

    def excess(noise: float) -> float:
        return _log_ratio(_gaussian_delta(epsilon, 1.0 / noise, upper=True), delta)

    return 1.0 / _least(excess, (1.0 + math.sqrt(epsilon)) / epsilon)


# ---- events in groups ----------------------------------------------------------------


def grouped(events: Events) -> Groups:
    """Flatten events into sorted pairs (event, count); equal compositions become equal.

    All unsampled Gaussian events become a single one of exactly the same cost.
    """
    if not isinstance(events, (Event, Iterable)):
        raise TypeError(f"expected privacy events, got {type(events).__name__}")
    counts: Counter[Event] = Counter()
    for given in (events,) if isinstance(events, Event) else events:
        event, count = _flat(given)
        counts[event] += count
    if counts.total() > MAX_COUNT:
        raise ValueError(
            f"a composition may have at most 2**36 = {MAX_COUNT} steps, got "
            f"{counts.total()}"
        )
    noises = []
    others = []
    for event, count in counts.items():
        if isinstance(event, Gaussian):
            noises.append((event.noise_multiplier, count))
        else:
            others.append((event, count))
    noises.sort()
    if len(noises) > 1 or any(count > 1 for _, count in noises):
        # a single event keeps all digits
        mu = math.hypot(*(math.sqrt(count) * (1.0 / noise) for noise, count in noises))
        noises = [(1.0 / mu, 1)]
        if 1.0 / mu < SMALLEST_NOISE:  # of which no protection is left
            noises = []
            others.append((NonPrivate(), 1))
    gaussians = [(Gaussian(noise), count) for noise, count in noises]
    return (*gaussians, *sorted(others, key=lambda group: repr(group[0])))


def _flat(event: Event) -> tuple[Event, int]:
    """The repeated event and its count."""
    count = 1
    while isinstance(event, Repeated):
        count *= event.count
        event = event.event
    if isinstance(event, PoissonSampled) and event.sampling_probability == 1.0:
        event = event.event
    if not isinstance(event, Event):
        raise TypeError(f"expected privacy events, got {type(event).__name__}")
    return event, count


def without_statements(groups: Groups) -> tuple[Groups, Fraction, Fraction]:
    """The other events, and the delta and epsilon that `ApproximateDP` events add.

    `ApproximateDP` events compose with each other, and with all others, by basic
    composition. Both sums are exact: the caller rounds them once, to the safe side.
    """
    others = []
    lost = Fraction(0)
    shift = Fraction(0)
    for event, count in groups:
        if isinstance(event, ApproximateDP):
            lost += count * Fraction(event.delta)
            shift += count * Fraction(event.epsilon)
        else:
            others.append((event, count))
    return tuple(others), lost, shift


def rounded_up(exact: Fraction) -> float:
    """The smallest float that is at least a number of 0 or more."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def rounded_down(exact: Fraction) -> float:
    """The largest float that is at most a number from 0 to 1e300 (excluded)."""
    nearest = float(exact)
    return nearest if nearest <= exact else math.nextafter(nearest, 0.0)


# ---- both sides ----------------------------------------------------------------------


@lru_cache(maxsize=1024)
def bound_epsilon(groups: Groups, delta: float, *, upper: bool = True) -> float:
    """Bound the smallest epsilon at a delta, from above or from below.

    None of the events is an `ApproximateDP`.
    """
    if delta < SMALLEST_DELTA:
        return pure_epsilon(groups) if upper else 0.0
    if not groups:
        return 0.0
    if any(isinstance(event, NonPrivate) for event, _ in groups):
        return math.inf
    if all_gaussian(groups):
        return epsilon_of_mu(gaussian_mu_of(groups), delta, upper=upper)
    largest = 0.0
    for added in sorted(ways(groups)):
        if upper and _delta_at_zero(groups, added) <= delta:
            side = 0.0
        elif upper and is_rare(groups, added):
            side = rare_epsilon(groups, delta, added)
            side = min(side, _renyi(groups, delta, added)[0])
        else:
            side = _side(groups, delta, added=added, upper=upper)
        largest = max(largest, side)
    return min(largest, _closed_epsilon(groups, delta)) if upper else largest


def _closed_epsilon(groups: Groups, delta: float) -> float:
    mu = gaussian_mu_of(groups)
    likely = gaussian_mu_of(groups, 0.5 * delta / len(groups))
    return min(
        pure_epsilon(groups),
        epsilon_of_mu(mu, delta),
        epsilon_of_mu(likely, 0.5 * delta) if likely < mu else math.inf,
    )


def _renyi(groups: Groups, delta: float, added: bool) -> tuple[float, int, FloatArray]:
    """Epsilon in one direction by Renyi divergences, index of its tilt, cumulants."""
    logs = summed_cumulants(groups, added)
    each = renyi_epsilons(logs, delta)
    if not np.isfinite(each).all():
        return math.inf, 0, logs
    # the bound of a bounded loss may fall without end as the tilt grows
    least = float(each.min())
    best = int(np.argmax(each <= least + 1e-5 * abs(least)))
    # up: above the rounding errors of a few steps together
    return up(max(0.0, float(each[best])), 128.0 * U), best, logs


def _side(groups: Groups, delta: float, *, added: bool, upper: bool) -> float:
    """Epsilon in one direction, at which the composed laws have the given delta."""
    known, place, logs = _renyi(groups, delta, added)
    if known > LARGEST_LOSS:  # of which no protection is left
        return known if upper else 0.0
    delta_at = _delta_of_one_step(groups, added=added, upper=upper)
    tolerance = 0.0
    if delta_at is None:
        composed = compose(groups, delta, place, logs, added=added, upper=upper)
        if composed is None:
            return known if upper else 0.0
        delta_at = composed.delta
        # the logarithm of delta is nearly a line with this slope
        tolerance = 1e-7 / composed.tilt

    def excess(epsilon: float) -> float:
        bound = delta_at(epsilon)
        if math.isnan(bound):  # losses too large for a float
            bound = math.inf if upper else 0.0
        return _log_ratio(bound, delta)

    if upper:
        if excess(0.0) <= 0.0:
            return 0.0
        return _last(excess, known, 0.0, tolerance) if excess(known) <= 0.0 else known
    # The bound is useful only near the epsilon of its tilt: its error is large far
    # below.
    gap = 1e-6
    while gap < 1.0 and excess(known * (1.0 - gap)) < 0.0:
        gap *= 1.5
    low = max(0.0, known * (1.0 - gap))
    if gap >= 1.0 or excess(known) >= 0.0:
        return 0.0

    def shortfall(epsilon: float) -> float:
        return -excess(epsilon)

    return _last(shortfall, low, known, tolerance)


def _delta_at_zero(groups: Groups, added: bool) -> float:
    """Delta at epsilon 0 by basic composition; infinite if a step has no curve."""
    total = 0.0
    for event, count in groups:
        curve = curve_of(event, added=added, upper=True)
        if curve is None:
            return math.inf
        value, error, _ = curve.at(np.zeros(1))
        total += count * float(value[0] + error[0])
    return up(total, 4.0 * U * len(groups))  # up: a product and a sum for each kind


def _delta_of_one_step(
    groups: Groups, *, added: bool, upper: bool
) -> Callable[[float], float] | None:
    """Delta of a single step at an epsilon, without a grid; None for several steps."""
    (event, count), *others = groups
    if count > 1 or others:
        return None
    curve = curve_of(event, added=added, upper=upper)
    if curve is None:
        return None

    def delta_at(epsilon: float) -> float:
        value, error, _ = curve.at(np.array([epsilon]))
        # up or down: by the error of the curve
        return float((value + error if upper else value - error)[0])

    return delta_at


# ---- searches ------------------------------------------------------------------------


def _log_ratio(value: float, target: float) -> float:
    """log(value / target), between -1000 and 1000, with the right sign."""
    if math.isnan(value):  # bounds nothing
        raise ArithmeticError("the bound of a privacy cost is not a number")
    log = math.log(value) - math.log(target) if value > 0.0 else -1e3
    size = min(max(abs(log), 1e-17), 1e3)
    return math.copysign(size, value - target) if value != target else 0.0


def _last(
    excess: Callable[[float], float], good: float, bad: float, tolerance: float = 0.0
) -> float:
    """The last point from `good` towards `bad` where an excess is at most 0.

    The search stops within the tolerance, or a relative 1e-14, and checks its result.
    """
    from scipy.optimize import brentq

    x: float = brentq(
        excess, good, bad, xtol=max(0.25 * tolerance, 1e-300), rtol=1e-15, maxiter=2000
    )
    step = max(0.25 * tolerance, 2e-15 * abs(x), 1e-300)
    while x != good and excess(x) > 0.0:
        x = min(x + step, good) if good > bad else max(x - step, good)
    return x


def _least(
    excess: Callable[[float], float],
    guess: float,
    tolerance: float = 1e-14,
    *,
    low: float = 1e-300,
    high: float = 1e150,
) -> float:
    """The least number at which a falling excess is at most 0, to a relative tolerance.

    If the excess is at most 0 at `low`, the result is below `low`. If the excess is
    above 0 up to `high`, the result is infinite.
    """
    x = math.log(guess)
    step = tolerance
    good = bad = math.nan
    while math.isnan(good) or math.isnan(bad):
        value = excess(math.exp(x))
        step = min(max(2.0 * step, abs(value)), math.log(2.0))
        if value > 0.0:
            bad = x
        else:
            good = x
        if math.isnan(good) and x > math.log(high):
            return math.inf
        if math.isnan(bad) and x < math.log(low):
            return math.exp(x)
        x += step if value > 0.0 else -step

    def excess_at_log(x: float) -> float:
        return excess(math.exp(x))

    return math.exp(_last(excess_at_log, good, bad, tolerance))


# ---- closed forms --------------------------------------------------------------------


def pure_epsilon(groups: Groups) -> float:
    """Sum of the events' epsilons, rounded up; infinite unless each event has one."""
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
    return rounded_up(exact)


def gaussian_mu_of(groups: Iterable[tuple[Event, int]], unlikely: float = 0.0) -> float:
    """The mu of Gaussian DP of the rounds that a unit is in; infinite for other events.

    Without sampling, a unit is in all rounds. With sampling, it is in more rounds of a
    kind than are counted with probability at most `unlikely`.
    """
    mus = []
    for event, n in groups:
        match event:
            case Gaussian(s):
                mus.append(math.sqrt(n) * (1.0 / s))
            case PoissonSampled(q, Gaussian(s)):
                most = _most_samples(n, q, unlikely)
                mus.append(math.sqrt(most) * (1.0 / s))
            case _:
                return math.inf
    return math.hypot(*mus)


def _most_samples(n: int, q: float, unlikely: float) -> int:
    """The number of n rounds of rate q that sample a unit, exceeded if `unlikely`."""
    from scipy.special import betainc

    def is_unlikely(j: int) -> bool:
        # up: the tail of a binomial law
        return up(float(betainc(j + 1, n - j, q)), 1e-6) + TINY <= unlikely

    return bisect_left(range(n), True, key=is_unlikely)


def all_gaussian(groups: Groups) -> bool:
    """Whether the closed form is exact."""
    return all(isinstance(event, Gaussian) for event, _ in groups)


def epsilon_of_mu(mu: float, delta: float, *, upper: bool = True) -> float:
    """Epsilon of Gaussian differential privacy (Balle and Wang 2018, theorem 8)."""
    if mu == 0.0:
        return 0.0
    if mu == math.inf or delta < SMALLEST_DELTA:
        return math.inf
    if _gaussian_delta(0.0, mu, upper=upper) <= delta:
        return 0.0
    sign = 1.0 if upper else -1.0

    def excess(x: float) -> float:
        return sign * _log_ratio(_gaussian_delta(x**sign, mu, upper=upper), delta)

    guess = mu * mu / 2.0 + mu  # right order of magnitude at any delta
    return float(_least(excess, guess**sign) ** sign)


def _gaussian_delta(epsilon: float, mu: float, *, upper: bool) -> float:
    # the multiplier of merged noises has a few roundings
    noise = (down(1.0, 1e-15) if upper else up(1.0, 1e-15)) / mu
    # up or down: less noise has a larger delta
    value, _, error = gaussian(np.array([epsilon]), noise)
    return float(value[0] + error[0] if upper else value[0] - error[0])


# ---- the noise for a given budget, and the budget of each of several fits ------------

# Share of delta that pays for the thresholds of a vocabulary. From 0.02 to 0.5 it
# hardly matters.
THRESHOLD_SHARE = 0.1


def calibrate(
    make_events: Callable[[float], Events],
    epsilon: float,
    delta: float,
    *,
    total_variation: float = 0.0,
) -> float:
    """Find the smallest noise multiplier that meets (epsilon, delta).

    Parameters
    ----------
    make_events : callable
        Maps a noise multiplier (or any other noise scale) to the events of the whole
        fit. Their cost must decrease as the argument grows.
    epsilon : float
        The epsilon to spend, in (0, 1e9].
    delta : float
        The delta of (epsilon, delta)-differential privacy, from 1e-200 to 0.001.
    total_variation : float, default=0.0
        As for `epsilon_of`.

    Returns
    -------
    float
        The noise multiplier. Its events cost at most `epsilon`, by `epsilon_of`. A
        multiplier that is smaller by a relative 1e-4 would cost more than `epsilon`;
        1e-7 suffices if all events are Gaussian without sampling.

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Repeated, calibrate
    >>> def forty(m):
    ...     return Repeated(Gaussian(m), 40)
    >>> round(calibrate(forty, epsilon=1.0, delta=1e-6), 2)
    26.72
    """
    if not callable(make_events):
        raise TypeError(
            "make_events must be a function of the noise multiplier that returns "
            "events, such as lambda m: Gaussian(m), got an object of class "
            f"{type(make_events).__name__}"
        )
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta, SMALLEST_DELTA)
    groups, lost, shift = without_statements(grouped(make_events(1.0)))
    epsilon_left = float(Fraction(epsilon) - shift)
    delta_left = float(Fraction(delta) - lost)
    if (lost or shift) and (epsilon_left <= 0.0 or delta_left <= 0.0):
        raise ValueError(
            "no noise meets this target: the ApproximateDP events alone cost all of "
            "epsilon or delta; raise the target, or use fewer of them"
        )

    mu = gaussian_mu(epsilon_left, delta_left)

    def closed(events: Events) -> float:
        others, _, _ = without_statements(grouped(events))
        return epsilon_left / mu * gaussian_mu_of(others)

    def renyi(events: Events) -> float:
        others, _, _ = without_statements(grouped(events))
        by_order = _renyi(others, delta_left, False)[0]
        return min(by_order, _closed_epsilon(others, delta_left))

    def least_noise(
        cost: Callable[[Events], float], target: float, guess: float, tolerance: float
    ) -> float:
        @cache
        def excess(noise: float) -> float:
            spent = cost(make_events(noise))
            return max(-7.0, min(_log_ratio(spent, target), 7.0))

        return _least(excess, guess, tolerance, low=1.0 / LARGEST, high=LARGEST)

    # a rough cost finds the place
    rough, tolerance = (closed, 1e-9) if all_gaussian(groups) else (renyi, 1e-4)
    start = least_noise(rough, epsilon_left, 1.0, 100.0 * tolerance)
    if (
        not 1.0 / LARGEST < start < LARGEST
    ):  # where the better bound may be small enough
        start = 1.0
    total = partial(epsilon_of, delta=delta, total_variation=total_variation)
    noise = least_noise(total, epsilon, start, tolerance)
    if not 1.0 / LARGEST <= noise <= LARGEST:
        reason = (
            "any noise, however small, meets this target; lower epsilon, or give "
            "epsilon=inf for no privacy"
        )
        if noise > LARGEST:
            reason = (
                "no noise meets this target: some events do not depend on the noise "
                "and cost too much; raise epsilon, or use fewer or less expensive steps"
            )
        raise ValueError(reason)
    return noise


def split_epsilon(
    epsilon: float, shares: Iterable[float], *, delta: float = 1e-6
) -> tuple[float, ...]:
    """Split a total epsilon over several fits, such as a vocabulary and a model.

    Parameters
    ----------
    epsilon : float
        The total, in (0, 1e9].
    shares : iterable of float
        Share of each fit in the budget, measured in ``1 / noise_multiplier**2``. Only
        their ratios count. A share of 8% buys about a quarter of the total epsilon.
    delta : float, default=1e-6
        The delta of the total and of each fit, up to 0.001.

    Returns
    -------
    epsilons : tuple of float
        One epsilon for each fit; their sum exceeds `epsilon`. If their noise is
        Gaussian without sampling, these fits fit into a ledger with the total. A tenth
        of `delta` is kept for the threshold of a `PrivateCountVectorizer`.

    Examples
    --------
    >>> from dplda.privacy import split_epsilon
    >>> [round(epsilon, 2) for epsilon in split_epsilon(4.0, shares=(0.08, 0.92))]
    [1.0, 3.8]
    """
    if not isinstance(shares, Iterable):
        raise TypeError(
            "shares must be a list of numbers, one for each fit, such as (0.08, 0.92), "
            f"got {type(shares).__name__}"
        )
    parts = [
        check_number("shares", share, 0.0, math.inf, closed="neither")
        for share in shares
    ]
    delta = check_delta(delta, SMALLEST_DELTA)
    # the rest of delta pays for the threshold, and for the distance of the noise from
    # its ideal law
    mu = gaussian_mu(epsilon, (1.0 - THRESHOLD_SHARE - DISTANCE_SHARE) * delta)
    return tuple(
        epsilon_of_mu(mu * math.sqrt(part / sum(parts)), delta) for part in parts
    )
