"""Lower bounds on epsilon from the number of right guesses."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, binom, norm

from dplda.leaf._checks import check_integer, check_number, check_probability
from dplda.privacy import Gaussian, epsilon_of

__all__ = ["gaussian_lower_bound", "many_run_lower_bound", "one_run_lower_bound"]

_LARGEST = 50.0  # no number of guesses that fits in memory shows a larger epsilon
MOST = 10**7  # runs or guesses


def many_run_lower_bound(
    true_positives: int,
    false_positives: int,
    n_in: int,
    n_out: int | None = None,
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Compute a lower bound on epsilon from runs with and without one unit.

    Parameters
    ----------
    true_positives : int
        Runs with the unit in which some event was seen. The event must have been chosen without
        looking at these runs.
    false_positives : int
        Runs without the unit in which the event was seen.
    n_in : int
        Runs with the unit, from 1 to 10**7.
    n_out : int, default=None
        Runs without the unit, from 1 to 10**7. None takes `n_in`.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1).
    confidence : float, default=0.95
        Probability with which the bound holds, in (0, 1).

    Returns
    -------
    float
        Lower bound on the epsilon of the mechanism, zero or more. At most about
        ``log(n_in / 3.7)`` at confidence 0.95.

    Raises
    ------
    TypeError
        If a count is not an integer or another parameter is not a number.
    ValueError
        If a parameter is out of range.

    See Also
    --------
    gaussian_lower_bound : A stronger bound for claims of Gaussian noise.
    one_run_lower_bound : A bound from one run with many canaries.

    Notes
    -----
    Both rates have one-sided Clopper-Pearson bounds, each at half of the error. If the mechanism is
    (epsilon, delta)-private, ``P(event | in) <= exp(epsilon) P(event | out) + delta``, for an event
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
    """Compute a lower bound on epsilon for a mechanism that claims Gaussian noise.

    The function bounds mu, the number of standard deviations between the worlds, and converts the
    bound to epsilon. The result is far stronger than `many_run_lower_bound`. It refutes claims of
    Gaussian differential privacy (unsampled Gaussian noise) only.

    Parameters
    ----------
    true_positives : int
        Runs with the unit in which some event was seen. The event must have been chosen without
        looking at these runs.
    false_positives : int
        Runs without the unit in which the event was seen.
    n_in : int
        Runs with the unit, from 1 to 10**7.
    n_out : int, default=None
        Runs without the unit, from 1 to 10**7. None takes `n_in`.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in (0, 1).
    confidence : float, default=0.95
        Probability with which the bound holds, in (0, 1).

    Returns
    -------
    float
        Lower bound on the epsilon of the mechanism, zero or more.

    Raises
    ------
    TypeError
        If a count is not an integer or another parameter is not a number.
    ValueError
        If a parameter is out of range.

    See Also
    --------
    many_run_lower_bound : A bound for every mechanism.
    """
    check_probabilities(delta, confidence)
    if delta == 0.0:
        raise ValueError("delta must be above 0: no Gaussian noise is private with delta 0")
    low, high = _rates(true_positives, false_positives, n_in, n_out, confidence)
    mu = norm.ppf(low) - norm.ppf(high)
    return epsilon_of(Gaussian(1.0 / mu), delta) if mu > 1e-9 else 0.0


def check_probabilities(delta: float, confidence: float) -> None:
    """Refuse an invalid delta or confidence."""
    check_probability("delta", delta)
    check_number("confidence", confidence, 0.0, 1.0, closed="neither")


def check_guesses(
    n_canaries: int, n_guesses: int, n_right: int, delta: float, confidence: float
) -> tuple[int, int, int]:
    """Refuse impossible numbers of coins and of (right) guesses, and give them as integers."""
    n_canaries = check_integer("n_canaries", n_canaries, 0, MOST)
    n_guesses = check_integer("n_guesses", n_guesses, 0, n_canaries)
    check_probabilities(delta, confidence)
    return n_canaries, n_guesses, check_integer("n_right", n_right, 0, n_guesses)


def _rates(
    tp: int, fp: int, n_in: int, n_out: int | None, confidence: float
) -> tuple[float, float]:
    """Lower bound of the rate of true positives, upper bound of that of false ones."""
    n_in = check_integer("n_in", n_in, 1, MOST)
    n_out = n_in if n_out is None else check_integer("n_out", n_out, 1, MOST)
    tp = check_integer("true_positives", tp, 0, n_in)
    fp = check_integer("false_positives", fp, 0, n_out)
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
    """Compute a lower bound on epsilon from one run with many canaries [1]_.

    A fair coin decides for each canary whether it is in the data. `n_guesses` of the coins are
    guessed from the output.

    Parameters
    ----------
    n_canaries : int
        Coins, from 0 to 10**7.
    n_guesses : int
        Guesses, at most `n_canaries`.
    n_right : int
        Right guesses, at most `n_guesses`.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1).
    confidence : float, default=0.95
        Probability with which the bound holds, in (0, 1).

    Returns
    -------
    float
        Lower bound on the epsilon of the mechanism, zero or more.

    Raises
    ------
    TypeError
        If a count is not an integer or another parameter is not a number.
    ValueError
        If a parameter is out of range.

    See Also
    --------
    many_run_lower_bound : A bound from many runs with one canary.

    Notes
    -----
    If the mechanism is (epsilon, delta)-private, the number of right guesses exceeds v at most as
    often as a binomial number with success rate ``exp(epsilon) / (1 + exp(epsilon))``, up to a
    term in delta (Theorem 5.2 of [1]_). Canaries of several independent runs may be counted
    together, because the runs together are one private mechanism.

    References
    ----------
    .. [1] T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS
       2023.
    """
    n_canaries, n_guesses, n_right = check_guesses(
        n_canaries, n_guesses, n_right, delta, confidence
    )

    def excess(epsilon: float) -> float:
        return _chance(epsilon, n_canaries, n_guesses, n_right, delta) - (1.0 - confidence)

    if n_right == 0 or excess(0.0) >= 0.0:
        return 0.0
    if excess(_LARGEST) < 0.0:
        return _LARGEST
    # one step of the search is subtracted, so that the bound is never rounded up
    return float(brentq(excess, 0.0, _LARGEST, xtol=1e-9)) - 1e-9


def _chance(epsilon: float, m: int, r: int, v: int, delta: float) -> float:
    """Upper bound on the probability of v or more right guesses."""
    success = 1.0 / (1.0 + math.exp(-epsilon))
    tail = binom.sf(np.arange(v, -1, -1) - 1, r, success)  # at v, v - 1, ..., 0
    if delta == 0.0 or v == 0:
        return float(tail[0])
    gains = (tail[1:] - tail[0]) / np.arange(1, v + 1)
    return float(tail[0] + 2.0 * m * delta * gains.max())
