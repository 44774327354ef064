"""What the audits of other papers share: lower bounds on epsilon, a page's table.

The bounds assume nothing of the mechanism, and hold with probability 0.95 each.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from dplda.audit._audit import one_run_lower_bound


class Line(NamedTuple):
    """One release of one system: what is claimed for it, and what an attack finds."""

    release: str
    claimed: float
    bound: float
    delta: float

    @property
    def refuted(self) -> bool:
        return self.bound > self.claimed


def from_coins(scores: np.ndarray, coins: np.ndarray, delta: float) -> float:
    """Bound from one fit with many canaries.

    A coin is guessed 1 if its score is in the upper half.

    Parameters
    ----------
    scores : ndarray of shape (n_canaries,)
        Larger if the attack believes that the coin is 1.
    coins : ndarray of shape (n_canaries,), bool
        The coins, fair and independent.
    delta : float
        Delta of the claim.
    """
    # between two heaps, if there are two
    middle = np.quantile(scores, [0.25, 0.75]).mean()
    right = int(((scores > middle) == coins).sum())
    return one_run_lower_bound(len(coins), len(coins), right, delta=delta)


def from_two_worlds(absent: np.ndarray, present: np.ndarray, delta: float) -> float:
    """Bound from many fits: one half chooses "score above t", the other counts it.

    Parameters
    ----------
    absent, present : ndarray of shape (n_runs,)
        Scores of independent runs without and with the unit.
    delta : float
        Delta of the claim.
    """
    half = len(absent) // 2
    both = np.concatenate([absent[:half], present[:half]])
    thresholds = np.quantile(both, np.linspace(0, 1, 101))
    first = [_bound(absent[:half], present[:half], t, delta) for t in thresholds]
    best = np.flatnonzero(np.isclose(first, max(first)))
    return _bound(
        absent[half:], present[half:], thresholds[best[len(best) // 2]], delta
    )


def many_run_lower_bound(
    true_positives: int,
    false_positives: int,
    n_in: int,
    n_out: int,
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Lower bound on epsilon from runs with and without one unit, by some event.

    Both rates have one-sided Clopper-Pearson bounds, each at half of the error. If the
    mechanism is (epsilon, delta)-private, ``P(event | in) <= exp(epsilon) P(event |
    out) + delta``, for an event and for its complement with the worlds exchanged.
    """
    error, tp, fp = (1.0 - confidence) / 2.0, true_positives, false_positives
    low = beta.ppf(error, tp, n_in - tp + 1) if tp > 0 else 0.0
    high = beta.isf(error, fp + 1, n_out - fp) if fp < n_out else 1.0
    bounds = [0.0]
    for gain, cost in ((low - delta, high), (1.0 - high - delta, 1.0 - low)):
        if gain > cost > 0.0:
            bounds.append(math.log(gain / cost))
    return max(bounds)


def _bound(
    absent: np.ndarray, present: np.ndarray, threshold: float, delta: float
) -> float:
    return many_run_lower_bound(
        int((present > threshold).sum()),
        int((absent > threshold).sum()),
        len(present),
        len(absent),
        delta=delta,
    )


def show(lines: list[Line]) -> None:
    print("| release | claimed epsilon | epsilon at least | |")
    print("| --- | --- | --- | --- |")
    for line in lines:
        verdict = "**refuted**" if line.refuted else "not refuted"
        print(f"| {line.release} | {line.claimed:.3g} | {line.bound:.2f} | {verdict} |")
