"""Lower bounds on epsilon from the scores of an attack and the coins that it has guessed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import beta, binom, norm

from dplda.privacy import (
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    epsilon_of,
)
from dplda.privacy import _accounting as composition
from dplda.privacy._events import BoundedRange, ErasedResponse, Event

# Shares of the canaries that are guessed; the bounds divide the error among them.
GUESSED = (0.02, 0.1, 0.2, 0.5)
# Share of the error at which a bound with assumptions refutes a claim. Tight bounds come close to
# true claims, and the verdict must not be wrong more often than `confidence` says.
VERDICT_SHARE = 0.02
LARGEST = 50.0  # no number of guesses that fits in memory shows a larger epsilon
FACTORS = 0.05, 400.0  # on the declared noise: where the bound of independent canaries looks


# one run with many canaries


def bound_of_guesses(
    scores: np.ndarray, coins: np.ndarray, delta: float, confidence: float
) -> float:
    """Take the best bound of several numbers of guesses; the surest guesses come first."""
    confidence = 1.0 - (1.0 - confidence) / len(GUESSED)
    surest = np.argsort(-np.abs(scores), kind="stable")
    right = ((scores > 0) == coins)[surest]
    sizes = [max(1, round(share * len(scores))) for share in GUESSED]
    return max(
        one_run_lower_bound(len(coins), n, int(right[:n].sum()), delta=delta, confidence=confidence)
        for n in sizes
    )


def one_run_lower_bound(
    n_canaries: int, n_guesses: int, n_right: int, *, delta: float, confidence: float = 0.95
) -> float:
    """Lower bound on epsilon from one run with many canaries; it assumes nothing.

    If the mechanism is (epsilon, delta)-private, the number of right guesses exceeds v at most as
    often as a binomial number with success rate ``exp(epsilon) / (1 + exp(epsilon))``, up to a term
    in delta (Steinke, Nasr and Jagielski 2023, theorem 5.2). Canaries of several independent runs
    may be counted together, because the runs together are one private mechanism.
    """

    def excess(epsilon: float) -> float:
        chance = _chance(epsilon, n_canaries, n_guesses, n_right, delta)
        return chance - (1.0 - confidence)

    if n_right == 0 or excess(0.0) >= 0.0:
        return 0.0
    if excess(LARGEST) < 0.0:
        return LARGEST
    # one step of the search is subtracted, so that the bound is never rounded up
    return float(brentq(excess, 0.0, LARGEST, xtol=1e-9)) - 1e-9


def _chance(epsilon: float, m: int, r: int, v: int, delta: float) -> float:
    """Upper bound on the probability of v or more right guesses."""
    tail = binom.sf(np.arange(v, -1, -1) - 1, r, expit(epsilon))  # at v, v - 1, ..., 0
    if delta == 0.0 or v == 0:
        return float(tail[0])
    gains = (tail[1:] - tail[0]) / np.arange(1, v + 1)
    return float(tail[0] + 2.0 * m * delta * gains.max())


# one run, with the declared noise times one factor


def independent_lower_bound(
    n_canaries: int,
    n_right: int,
    events: Iterable[Event],
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Lower bound on epsilon from guesses about canaries that do not share their noise.

    It assumes that all noise of the declared events is multiplied by one factor, and that the
    output is a function of independent observations, one for each canary. docs/audits.md has the
    proof. The bound is the epsilon of the events with the least noise whose total variation the
    guesses refute; 0 if they refute no noise.
    """
    if n_right == 0:
        return 0.0
    events = tuple(events)
    rate = float(beta.ppf(1.0 - confidence, n_right, n_canaries - n_right + 1))

    def excess(log_factor: float) -> float:
        return total_variation(with_noise(events, math.exp(log_factor))) - (2.0 * rate - 1.0)

    low, high = (math.log(FACTORS[0]), 0.0) if excess(0.0) < 0.0 else (0.0, math.log(FACTORS[1]))
    if excess(high) >= 0.0:
        return 0.0
    least = low if excess(low) < 0.0 else float(brentq(excess, low, high, xtol=1e-4)) + 2e-4
    # two steps of the search are added, so that the noise is never less than what is refuted
    return epsilon_of(with_noise(events, math.exp(least)), delta)


def total_variation(events: tuple[Event, ...]) -> float:
    """Total variation of the composition, never too small."""
    groups = tuple((_with_losses(event), count) for event, count in composition.grouped(events))
    if composition.all_gaussian(groups):
        return 2.0 * float(norm.cdf(composition.gaussian_mu_of(groups) / 2.0)) - 1.0
    return float(composition.upper_deltas(groups, np.zeros(1))[0])


def _with_losses(event: Event) -> Event:
    """A choice of bounded range as the Gaussian noise that costs no less.

    The log-odds of an event under the two laws differ by at most epsilon, so that its normal
    quantiles differ by at most those of the odds e^(epsilon/2) and e^(-epsilon/2).
    """
    if not isinstance(event, BoundedRange):
        return event
    return Gaussian(-0.5 / float(norm.ppf(expit(-event.epsilon / 2.0))))


def has_noise(event: Event) -> bool:
    """Whether an event has noise that a factor can multiply, and privacy losses."""
    if isinstance(event, (Repeated, PoissonSampled)):
        return has_noise(event.event)
    return isinstance(
        event, (Gaussian, Laplace, BoundedRange, RandomizedResponseEvent, ErasedResponse)
    )


def with_noise(events: Iterable[Event], factor: float) -> tuple[Event, ...]:
    """Events with `factor` times the noise; the log-odds of a response are divided by it."""
    return tuple(_scaled(event, factor) for event in events)


def _scaled(event: Event, factor: float) -> Event:
    match event:
        case Gaussian(noise_multiplier):
            return Gaussian(noise_multiplier * factor)
        case Laplace(scale):
            return Laplace(scale * factor)
        case BoundedRange(epsilon):
            return BoundedRange(epsilon / factor)
        case RandomizedResponseEvent(flip, n):
            odds = min(math.log1p(n * (1.0 - flip) / flip) / factor, 500.0)
            return RandomizedResponseEvent(n / (math.expm1(odds) + n), n)
        case ErasedResponse(flip):
            odds = min(math.log1p(2 * (1.0 - flip) / flip) / factor, 500.0)
            return ErasedResponse(2 / (math.expm1(odds) + 2))
        case PoissonSampled(rate, Gaussian(noise_multiplier)):
            return PoissonSampled(rate, Gaussian(noise_multiplier * factor))
        case Repeated(inner, count):
            return Repeated(_scaled(inner, factor), count)
        case _:
            raise TypeError(f"{type(event).__name__} has no noise that could be multiplied")
