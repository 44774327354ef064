"""Lower bounds on epsilon that rest on the declared mechanism: its noise, times one factor.

The declared events and a factor on their noise give a curve of all (epsilon, delta). The smallest
factor that the right guesses refute gives the bound. ``docs/audits.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from scipy.special import expit
from scipy.stats import binom, norm

from dplda.audit._bounds import check_guesses
from dplda.privacy import (
    BoundedRange,
    ErasedResponse,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    epsilon_of,
)
from dplda.privacy import _bounds_on_epsilon as composition
from dplda.privacy._composed_losses import loss_distribution_deltas

__all__ = ["f_dp_lower_bound", "independent_lower_bound"]

# Delta at each of the epsilons that stand for a trade-off curve. Fewer points give a weaker bound.
Curve: TypeAlias = tuple[float, ...]
EPSILONS = np.array([i / 20 for i in range(20)] + [i / 10 for i in range(10, 200)])
# Factors on the noise are powers of this number: a bound is at most a percent too low for it.
STEP = 1.005
LOWEST, HIGHEST = -600, 1200  # powers: of factors from about 0.05 to 400
# Shares of the canaries that the bound for independent canaries may guess.
SHARES = (0.05, 0.1, 0.2, 0.35, 0.55, 1.0)
NEGLIGIBLE = 1e-12  # mass of the tails that are bounded and not summed


def independent_lower_bound(
    n_guesses: int,
    n_right: int,
    events: Iterable[Event],
    *,
    delta: float,
    confidence: float = 0.95,
    n_canaries: int | None = None,
) -> float:
    """Compute a lower bound on epsilon from guesses about canaries that do not share their noise.

    Parameters
    ----------
    n_guesses : int
        Guesses, from 0 to 10**7. The number must not depend on the output.
    n_right : int
        Right guesses, at most `n_guesses`.
    events : iterable of Event
        What the release declares to cost, for one coin.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1).
    confidence : float, default=0.95
        Probability with which the bound holds, in (0, 1).
    n_canaries : int, default=None
        Coins, at least `n_guesses` and at most 10**7. None takes `n_guesses`: all are guessed.

    Returns
    -------
    float
        Epsilon of the declared events at `delta`, with the largest noise that the guesses refute;
        0 if they refute no noise.

    Raises
    ------
    TypeError
        If a count is not an integer or another parameter is not a number.
    ValueError
        If a parameter is out of range.

    See Also
    --------
    one_run_lower_bound : A bound without assumptions.

    Notes
    -----
    **Assumptions.** All noise of the declared events is multiplied by one factor, and each canary
    has noise of its own: the output is a function of independent observations, one for each
    canary. A document with a word of its own is such a canary, because every cell of a sum has its
    own noise. For every epsilon, a canary then shows its coin with probability delta(epsilon), and
    is guessed right with probability e^epsilon / (1 + e^epsilon) otherwise, at most. The guesses
    may be the surest ones. If all canaries are guessed, their right guesses are at most those of so
    many coins of rate (1 + TV) / 2, where TV is the total variation of an observation's two laws.

    A bound above the claim needs less: it refutes that the declared noise was added to canaries
    that do not share it.
    """
    m, r, v = check_guesses(
        n_guesses if n_canaries is None else n_canaries, n_guesses, n_right, delta, confidence
    )
    return _bound(
        tuple(events), delta, lambda curve: chance_of_right(m, r, v, curve) < 1.0 - confidence
    )


def chance_of_right(m: int, r: int, v: int, curve: Curve) -> float:
    """Bound on the chance of `v` of `r` right guesses about `m` independent canaries.

    For every epsilon of the curve, a canary shows its coin with probability delta(epsilon), and is
    guessed right with probability e^epsilon / (1 + e^epsilon) otherwise. The guesser may choose the
    `r` canaries. Each epsilon gives a valid bound; the one with the smallest mean is taken.
    """
    if v == 0:
        return 1.0
    deltas, rates = np.asarray(curve), expit(EPSILONS)
    best = int(np.argmin(_mean_right(r / m, deltas, rates)))
    shown, rate = binom(m, deltas[best]), float(rates[best])
    low, high = (int(shown.ppf(tail)) for tail in (NEGLIGIBLE, 1.0 - NEGLIGIBLE))
    n_shown = np.arange(low, high + 1)
    taken = np.minimum(n_shown, r)
    right = binom.sf(v - 1 - taken, r - taken, rate)  # it grows with the number of shown coins
    return float(shown.pmf(n_shown) @ right + shown.cdf(low - 1) * right[0] + shown.sf(high))


def _mean_right(share: float, deltas: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Expected right guesses for each canary, if this share of them is guessed, by epsilon."""
    return share * rates + (1.0 - rates) * np.minimum(deltas, share)


def best_share(events: tuple[Event, ...]) -> float:
    """Share of the canaries to guess, for the sharpest bound on these events.

    A function of the declared events alone. A change of the noise by a tenth must show best in the
    expected number of right guesses, in units of its standard deviation. All are guessed if a
    document is easier to find than to miss, as in samples: the curve is that of the worse world.
    """
    if any(isinstance(event, PoissonSampled) for event, _ in composition.grouped(events)):
        return 1.0
    declared, quieter = (np.asarray(_curve(_with_noise(events, f))) for f in (1.0, 1 / 1.1))
    rates = expit(EPSILONS)

    def power(share: float) -> float:
        right, more = (float(_mean_right(share, c, rates).min()) for c in (declared, quieter))
        return (more - right) / math.sqrt(max(right * (1.0 - right / share), 1e-12))

    return max(SHARES, key=power)


def f_dp_lower_bound(
    n_canaries: int,
    n_guesses: int,
    n_right: int,
    events: Iterable[Event],
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Compute a lower bound on epsilon from one run, by the trade-off curve of the release [1]_.

    Parameters
    ----------
    n_canaries : int
        Coins, from 0 to 10**7.
    n_guesses : int
        Guesses, at most `n_canaries`. The number must not depend on the output.
    n_right : int
        Right guesses, at most `n_guesses`.
    events : iterable of Event
        What the release declares to cost, for one coin.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1).
    confidence : float, default=0.95
        Probability with which the bound holds, in (0, 1).

    Returns
    -------
    float
        Epsilon of the declared events at `delta`, with the largest noise that the guesses refute;
        0 if they refute no noise.

    Raises
    ------
    TypeError
        If a count is not an integer or another parameter is not a number.
    ValueError
        If a parameter is out of range.

    See Also
    --------
    independent_lower_bound : A stronger bound, with one more assumption.

    Notes
    -----
    **Assumption.** The trade-off curve of the release is that of the declared events with all noise
    multiplied by one factor. Canaries may share noise in any way. A bound above the claim needs no
    assumption: it refutes the declared curve, and with it the claim.

    References
    ----------
    .. [1] S. Mahloujifar, L. Melis, K. Chaudhuri, "Auditing f-Differential Privacy in One Run",
       ICML 2025.
    """
    m, r, v = check_guesses(n_canaries, n_guesses, n_right, delta, confidence)
    return f_dp_bound_of_guesses(m, [(r, v)], tuple(events), delta, confidence)


def f_dp_bound_of_guesses(
    n_canaries: int,
    guesses: Sequence[tuple[int, int]],
    events: tuple[Event, ...],
    delta: float,
    confidence: float,
) -> float:
    """The best bound of several numbers of guesses, which divide the error among them."""
    error = (1.0 - confidence) / len(guesses)
    return _bound(
        events,
        delta,
        lambda curve: not all(can_be_right(n_canaries, *g, curve, error) for g in guesses),
    )


def can_be_right(m: int, r: int, v: int, curve: Sequence[float], chance: float) -> bool:
    """Whether some mechanism with this curve allows `v` of `r` right guesses with that chance.

    Let p_i be the probability of exactly i right guesses of r, about m coins. Turning one coin over
    turns one guess from right to wrong, so that the sums

        R_n = sum of p_i i / m, and W_n = sum of p_i (r - i) / m, over all i >= n,

    obey R_n <= g(W_(n-1)), where g(x) = min over epsilon of exp(epsilon) x + delta(epsilon). The
    smallest sums that start from P(at least v) = chance follow from n = v down to 0. They must
    leave room for a total of 1.
    """
    if v == 0:
        return True
    right, wrong, total = chance * v / m, chance * (r - v) / m, r / m
    slopes, heights = _inverse_lines(curve)
    line, last = 0, len(slopes) - 1
    for n in range(v - 1, -1, -1):
        # the inverse of g at `right`, the largest of lines of growing slope; `right` only grows
        least = slopes[line] * right + heights[line]
        while line < last:
            further = slopes[line + 1] * right + heights[line + 1]
            if further < least:
                break
            line, least = line + 1, further
        if least > wrong:
            right += (least - wrong) * n / (r - n)
            wrong = least
            if right + wrong > total:
                return False
    return True


def _inverse_lines(curve: Sequence[float]) -> tuple[list[float], list[float]]:
    """Slopes and heights of the lines whose maximum is the inverse of g, by growing slope.

    Each point (epsilon, delta) of the curve gives two: both laws may be the first one.
    """
    deltas, growth = np.asarray(curve), np.exp(EPSILONS)
    slopes = np.concatenate([1.0 / growth[::-1], growth])
    heights = np.concatenate([-(deltas / growth)[::-1], 1.0 - deltas - growth])
    return slopes.tolist(), heights.tolist()


def _bound(events: tuple[Event, ...], delta: float, is_refuted: Callable[[Curve], bool]) -> float:
    """Epsilon of the events with the least noise that is refuted: all larger noise is, too."""

    def refuted(power: int) -> bool:
        return is_refuted(_curve(_with_noise(events, STEP**power)))

    # growing steps, because little noise takes long: `low` is not refuted, and `high` is
    if refuted(0):
        low, high = -32, 0
        while low > LOWEST and refuted(low):
            low, high = 2 * low, low
    else:
        low, high = 0, 32
        while not refuted(high):
            if high > HIGHEST:
                return 0.0
            low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return epsilon_of(_with_noise(events, STEP**high), delta)


def has_curve(event: Event) -> bool:
    """Whether an event has noise that a factor can multiply, and privacy losses."""
    if isinstance(event, (Repeated, PoissonSampled)):
        return has_curve(event.event)
    return isinstance(
        event, (Gaussian, Laplace, BoundedRange, RandomizedResponseEvent, ErasedResponse)
    )


def _with_noise(events: tuple[Event, ...], factor: float) -> tuple[Event, ...]:
    return tuple(_scaled(event, factor) for event in events)


def _scaled(event: Event, factor: float) -> Event:
    """An event with `factor` times the noise; the log-odds of a response are divided by it."""
    match event:
        case Gaussian(noise_multiplier):
            return Gaussian(noise_multiplier * factor)
        case Laplace(scale):
            return Laplace(scale * factor)
        case BoundedRange(epsilon):
            return BoundedRange(epsilon / factor)
        case RandomizedResponseEvent(flip, n):
            odds = math.log1p(n * (1.0 - flip) / flip) / factor
            return _response(odds, n)
        case ErasedResponse(flip):
            response = _scaled(RandomizedResponseEvent(flip), factor)
            assert isinstance(response, RandomizedResponseEvent)
            return ErasedResponse(response.flip_mixture)
        case PoissonSampled(rate, Gaussian(noise_multiplier)):
            return PoissonSampled(rate, Gaussian(noise_multiplier * factor))
        case Repeated(inner, count):
            return Repeated(_scaled(inner, factor), count)
        case _:
            raise TypeError(f"{type(event).__name__} has no noise that could be multiplied")


def _response(epsilon: float, n_buckets: int = 2) -> RandomizedResponseEvent:
    """The randomized response of a pure epsilon; from 500 on it is one of epsilon 500."""
    flip = n_buckets / (math.expm1(min(epsilon, 500.0)) + n_buckets)
    return RandomizedResponseEvent(flip, n_buckets)


@lru_cache(maxsize=4096)
def _curve(events: tuple[Event, ...]) -> Curve:
    """Delta of the composition at each of `EPSILONS`, never too small; 1 where it is not known."""
    groups = tuple((_with_losses(event), count) for event, count in composition.grouped(events))
    if composition.all_gaussian(groups):
        mu = composition.gaussian_mu_of(groups)
        deltas = norm.cdf(mu / 2 - EPSILONS / mu) - np.exp(
            EPSILONS + norm.logcdf(-mu / 2 - EPSILONS / mu)
        )
        return tuple(np.clip(deltas + 1e-15, 0.0, 1.0).tolist())
    return tuple(loss_distribution_deltas(groups, EPSILONS).tolist())


def _with_losses(event: Event) -> Event:
    """A choice of bounded range as the Gaussian noise that costs no less.

    The log-odds of an event under the two laws differ by at most epsilon, so that its normal
    quantiles differ by at most those of the odds e^(epsilon/2) and e^(-epsilon/2).
    """
    if not isinstance(event, BoundedRange):
        return event
    mu = -2.0 * float(norm.ppf(expit(-event.epsilon / 2.0)))
    return Gaussian(1.0 / mu)
