"""Lower bounds on epsilon from the scores of an attack and the coins that it has guessed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dplda.audit._audit_result import AuditBound, AuditResult
from dplda.audit._bounds import gaussian_lower_bound, many_run_lower_bound, one_run_lower_bound
from dplda.audit._declared_noise import (
    best_share,
    f_dp_bound_of_guesses,
    has_curve,
    independent_lower_bound,
)
from dplda.audit._residual_result import ResidualResult
from dplda.privacy import Event
from dplda.privacy._bounds_on_epsilon import all_gaussian, grouped

# Shares of the canaries that are guessed; the bounds divide the error among them.
GUESSED = (0.02, 0.1, 0.2, 0.5)
# Shares of the error of the f-DP bound and of the bound for independent canaries, mostly the best.
ERROR_SHARES = (0.2, 0.8)
# Share of the error at which these bounds refute a claim. Tight bounds come close to true claims,
# and the verdict must not be wrong more often than `confidence` says.
VERDICT_SHARE = 0.02

# What the bounds assume of the release.
ANY_MECHANISM = "nothing"
DECLARED_CURVE = "the trade-off curve of the declared events, all noise times one factor"
OWN_NOISE = DECLARED_CURVE + "; each canary has noise of its own"
GAUSSIAN = "Gaussian noise without sampling"


class AttackedFit(NamedTuple):
    """One fit of an audit: what its model claims, and what the attack saw of the coins."""

    claim: float
    events: tuple[Event, ...]
    scores: np.ndarray
    coins: np.ndarray
    residuals: ResidualResult | None


def audit_result(
    name: str,
    relation: str,
    design: str,
    fits: Sequence[AttackedFit],
    delta: float,
    confidence: float,
) -> AuditResult:
    """The bounds that all fits together give. They have one claim; the first fit was watched."""
    scores = np.concatenate([fit.scores for fit in fits])
    coins = np.concatenate([fit.coins for fit in fits]).astype(bool)
    claim, events = fits[-1].claim, fits[-1].events
    gaussian, assuming, mechanism_refuted = math.nan, [], False
    if design == "one-run":
        bound = _bound_of_guesses(scores, coins, delta, confidence)
        # all guesses are right, and sure of it
        ceiling = _bound_of_guesses(np.where(coins, 1.0, -1.0), coins, delta, confidence)
        assuming = _declared_bounds(scores, coins, events, delta, confidence)
        if any(b.epsilon > claim for b in assuming):
            strict = 1.0 - VERDICT_SHARE * (1.0 - confidence)
            surer = _declared_bounds(scores, coins, events, delta, strict)
            mechanism_refuted = any(b.epsilon > claim for b in surer)
    else:
        best = _event_counts(coins.astype(float), coins, delta)
        ceiling = many_run_lower_bound(*best, delta=delta, confidence=confidence)
        counts = _event_counts(scores, coins, delta)
        bound = many_run_lower_bound(*counts, delta=delta, confidence=confidence)
        if delta > 0:
            gaussian = gaussian_lower_bound(*counts, delta=delta, confidence=confidence)
            if events and all_gaussian(grouped(events)):
                assuming = [AuditBound("Gaussian noise", gaussian, GAUSSIAN)]
    bounds = (AuditBound(f"{design} counts", bound, ANY_MECHANISM), *assuming)
    return AuditResult(
        name, relation, design, bound, gaussian, confidence, claim, delta, scores, coins, len(fits),
        ceiling, fits[0].residuals, bounds, mechanism_refuted,
    )  # fmt: skip


def _declared_bounds(
    scores: np.ndarray,
    coins: np.ndarray,
    events: tuple[Event, ...],
    delta: float,
    confidence: float,
) -> list[AuditBound]:
    """The bounds that rest on the declared mechanism; they divide the error."""
    if not events or not all(map(has_curve, events)):
        return []
    of_curve, of_independent = (1.0 - (1.0 - confidence) * share for share in ERROR_SHARES)
    guesses = _right_guesses(scores, coins, GUESSED)
    by_curve = f_dp_bound_of_guesses(len(coins), guesses, events, delta, of_curve)
    ((n_guesses, n_right),) = _right_guesses(scores, coins, (best_share(events),))
    independent = independent_lower_bound(
        n_guesses, n_right, events, delta=delta, confidence=of_independent, n_canaries=len(coins)
    )
    return [
        AuditBound("f-DP", by_curve, DECLARED_CURVE),
        AuditBound("independent canaries", independent, OWN_NOISE),
    ]


def _bound_of_guesses(
    scores: np.ndarray, coins: np.ndarray, delta: float, confidence: float
) -> float:
    """Take the best bound of several numbers of guesses."""
    confidence = 1.0 - (1.0 - confidence) / len(GUESSED)
    return max(
        one_run_lower_bound(len(coins), n, right, delta=delta, confidence=confidence)
        for n, right in _right_guesses(scores, coins, GUESSED)
    )


def _right_guesses(
    scores: np.ndarray, coins: np.ndarray, shares: tuple[float, ...]
) -> list[tuple[int, int]]:
    """Numbers of guesses, and of right ones. The most certain guesses come first."""
    surest = np.argsort(-np.abs(scores), kind="stable")
    right = ((scores > 0) == coins)[surest]
    sizes = [max(1, round(share * len(scores))) for share in shares]
    return [(n, int(right[:n].sum())) for n in sizes]


def _event_counts(scores: np.ndarray, coins: np.ndarray, delta: float) -> tuple[int, int, int, int]:
    """Count true and false positives, and runs, of the event "score above t".

    The first half of the runs of each world chooses t, the second half counts.
    """
    one, zero = scores[coins], scores[~coins]
    chosen = _best_threshold(one[: len(one) // 2], zero[: len(zero) // 2], delta)
    one, zero = one[len(one) // 2 :], zero[len(zero) // 2 :]
    return int((one > chosen).sum()), int((zero > chosen).sum()), len(one), len(zero)


def _best_threshold(one: np.ndarray, zero: np.ndarray, delta: float) -> float:
    def bound(threshold: float) -> float:
        counts = int((one > threshold).sum()), int((zero > threshold).sum())
        return many_run_lower_bound(*counts, len(one), len(zero), delta=delta)

    candidates = np.quantile(np.concatenate([one, zero]), np.linspace(0, 1, 101))
    return float(max(candidates, key=bound))
