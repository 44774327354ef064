"""Lower bounds on epsilon from how often somebody guesses right."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, binom, norm

from dplda.privacy import Gaussian, epsilon_of

__all__ = ["gaussian_lower_bound", "many_run_lower_bound", "one_run_lower_bound"]

_LARGEST = 50.0  # no number of guesses that fits in memory shows more
_MOST = 10**7  # runs or guesses


def many_run_lower_bound(
    true_positives: int,
    false_positives: int,
    n_in: int,
    n_out: int | None = None,
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Epsilon that a mechanism has at least, from runs with and without one unit.

    Parameters
    ----------
    true_positives, false_positives : int
        Runs with, and without, the unit in which some event was seen. The event must have been
        chosen without looking at these runs.
    n_in, n_out : int
        Runs with and without the unit; equal if `n_out` is None.
    delta : float
        In [0, 1).
    confidence : float, default=0.95

    Returns
    -------
    float
        Zero or more. At most about ``log(n / 3.7)`` at confidence 0.95.

    Notes
    -----
    One-sided Clopper-Pearson bounds on both rates, at half the error each. If the mechanism is
    (epsilon, delta) private, ``P(event | in) <= exp(epsilon) P(event | out) + delta``, for an event
    and for its complement with the worlds exchanged.
    """
    check_probabilities(delta, confidence)
    low, high = _rates(true_positives, false_positives, n_in, n_out, confidence)
    bounds = [0.0]
    for gain, cost in ((low - delta, high), (1.0 - high - delta, 1.0 - low)):
        if gain > cost > 0.0:
            bounds.append(math.log(gain / cost))
    return max(bounds)


def gaussian_lower_bound(
    true_positives: int,
    false_positives: int,
    n_in: int,
    n_out: int | None = None,
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """The same for a mechanism whose claim is one of Gaussian noise: far stronger.

    What is bounded is mu, how many standard deviations the worlds are apart, and then turned into
    epsilon. It contradicts claims of Gaussian differential privacy (unsampled Gaussian noise) only.

    Parameters
    ----------
    true_positives, false_positives, n_in, n_out, delta, confidence
        As in `many_run_lower_bound`; `delta` above 0.

    Returns
    -------
    float
        Zero or more.
    """
    check_probabilities(delta, confidence)
    if delta == 0.0:
        raise ValueError("delta must be above 0: no Gaussian noise is private with delta 0")
    low, high = _rates(true_positives, false_positives, n_in, n_out, confidence)
    mu = norm.ppf(low) - norm.ppf(high)
    return epsilon_of(Gaussian(1.0 / mu), delta) if mu > 1e-9 else 0.0


def check_probabilities(delta: float, confidence: float) -> None:
    """Refuse what is no delta in [0, 1) or no confidence in (0, 1)."""
    if not (isinstance(delta, Real) and 0.0 <= delta < 1.0):
        raise ValueError(f"delta must lie in [0, 1), got {delta}")
    if not (isinstance(confidence, Real) and 0.0 < confidence < 1.0):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")


def _are_counts(*counts: int) -> bool:
    return all(isinstance(count, Integral) and count <= _MOST for count in counts)


def _rates(
    tp: int, fp: int, n_in: int, n_out: int | None, confidence: float
) -> tuple[float, float]:
    """Lower bound of the rate of true positives, upper bound of that of false ones."""
    n_out = n_in if n_out is None else n_out
    whole = _are_counts(tp, fp, n_in, n_out)
    if not (whole and 0 <= tp <= n_in and 0 <= fp <= n_out and min(n_in, n_out) > 0):
        raise ValueError(
            "true_positives and false_positives must be counts out of n_in and n_out runs, got "
            f"{tp} of {n_in} and {fp} of {n_out}"
        )
    error = (1.0 - confidence) / 2.0
    low = beta.ppf(error, tp, n_in - tp + 1) if tp > 0 else 0.0
    high = beta.isf(error, fp + 1, n_out - fp) if fp < n_out else 1.0
    return float(low), float(high)


def one_run_lower_bound(
    n_canaries: int,
    n_guesses: int,
    n_right: int,
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Epsilon that a mechanism has at least, from one run with many canaries [1]_.

    Each canary is in the data by a fair coin of its own; `n_guesses` of the coins are guessed
    from the output.

    Parameters
    ----------
    n_canaries, n_guesses, n_right : int
        Coins, guesses and right guesses.
    delta : float
        In [0, 1).
    confidence : float, default=0.95

    Returns
    -------
    float
        Zero or more.

    Notes
    -----
    If the mechanism is (epsilon, delta) private, the number of right guesses exceeds v no more
    often than a binomial number with success rate ``exp(epsilon) / (1 + exp(epsilon))``, but for a
    term in delta (Theorem 5.2 of [1]_). Canaries of several independent runs may be counted
    together, since together they are one private mechanism.

    References
    ----------
    .. [1] T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS
       2023.
    """
    whole = _are_counts(n_right, n_guesses, n_canaries)
    if not (whole and 0 <= n_right <= n_guesses <= n_canaries):
        raise ValueError(
            "needed: integers 0 <= n_right <= n_guesses <= n_canaries, got "
            f"{n_right}, {n_guesses} and {n_canaries}"
        )
    check_probabilities(delta, confidence)

    def excess(epsilon: float) -> float:
        return _chance(epsilon, n_canaries, n_guesses, n_right, delta) - (1.0 - confidence)

    if n_right == 0 or excess(0.0) >= 0.0:
        return 0.0
    if excess(_LARGEST) < 0.0:
        return _LARGEST
    # the bound is found from below, so that it is never rounded up
    return float(brentq(excess, 0.0, _LARGEST, xtol=1e-9)) - 1e-9


def _chance(epsilon: float, m: int, r: int, v: int, delta: float) -> float:
    """Upper bound on the probability of v or more right guesses."""
    success = 1.0 / (1.0 + math.exp(-epsilon))
    tail = binom.sf(np.arange(v, -1, -1) - 1, r, success)  # of v, v - 1, ..., 0
    if delta == 0.0 or v == 0:
        return float(tail[0])
    gains = (tail[1:] - tail[0]) / np.arange(1, v + 1)
    return float(tail[0] + 2.0 * m * delta * gains.max())
