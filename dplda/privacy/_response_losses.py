"""Privacy loss of many randomized bits, exactly: sums of binomial variables.

The loss of n responses of one kind is a whole number of times the epsilon of one of them. Its law
is that of a binomial variable or, for erased responses, of the sum of two. No grid is necessary.
docs/accounting.md has the proofs.
"""

from __future__ import annotations

import math
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dplda.privacy._events import ErasedResponse, Event, RandomizedResponseEvent

__all__ = ["is_binary_response", "loss_law", "response_delta", "response_epsilon"]

FloatArray: TypeAlias = NDArray[np.float64]
Response: TypeAlias = RandomizedResponseEvent | ErasedResponse

# A binomial variable of n trials is farther than 10 sqrt(n) from its mean with probability below
# 3e-87 (Hoeffding). A law leaves this mass out, twice at most.
_REACH = 10.0
LOST_MASS = 1e-80
# The rounding errors of a law are below a relative 1e-10 (a product of at most 10 sqrt(n) ratios,
# for the ten million trials that the accountant allows). Every probability is increased by more.
_PROBABILITY_MARGIN = 1.0 + 1e-9
_LOSS_MARGIN = 1.0 + 1e-12  # a loss is a float with a relative error of about 1e-15
_N_HALVINGS = 70


def is_binary_response(event: Event) -> TypeGuard[Response]:
    """Whether the event is a randomized response with two values, erased or not."""
    match event:
        case RandomizedResponseEvent(_, 2) | ErasedResponse():
            return True
        case _:
            return False


def loss_law(event: Response, count: int) -> tuple[FloatArray, FloatArray]:
    """Law of the privacy loss of `count` binary responses under one of the two inputs.

    Parameters
    ----------
    event : RandomizedResponseEvent or ErasedResponse
        With two values.
    count : int
        Number of responses.

    Returns
    -------
    losses : ndarray of shape (n_losses,)
        Increasing and equally spaced.
    probabilities : ndarray of shape (n_losses,)
        At least the true ones. Losses of total probability below 1e-80 are left out.
    """
    odds = (2.0 - event.flip_mixture) / event.flip_mixture  # of a true report
    first, law = _binomial(count, odds)
    if isinstance(event, ErasedResponse):
        # With z for a loss of epsilon and 1/z for a loss of -epsilon, one response has the law
        # (q/z + 1 + (1 - q) z) / 2 = (1 + 1/z) / 2 (q + (1 - q) z): the sum of a fair coin that
        # is 0 or -1, and of a bit that is 1 with probability 1 - q.
        first_coin, coins = _binomial(count, 1.0)
        first, law = first + first_coin, np.convolve(law, coins)
        steps = first + np.arange(len(law)) - count
    else:
        steps = 2 * (first + np.arange(len(law))) - count
    epsilon = math.log1p(2.0 * (1.0 - event.flip_mixture) / event.flip_mixture)
    return epsilon * steps.astype(np.float64), law * _PROBABILITY_MARGIN


def response_delta(losses: FloatArray, probabilities: FloatArray, epsilon: float) -> float:
    """Upper bound on the delta at which a law of losses is (epsilon, delta)-DP.

    Parameters
    ----------
    losses, probabilities : ndarray of shape (n_losses,)
        Result of `loss_law`.
    epsilon : float
        Zero or more.

    Returns
    -------
    float
        The sum of p (1 - exp(epsilon - loss)) over all losses above epsilon: terms above 0 only, so
        that no digits cancel.
    """
    shares = -np.expm1(-np.maximum(losses - epsilon, 0.0))
    return float((probabilities * shares).sum()) + LOST_MASS


def response_epsilon(event: Response, count: int, delta: float) -> float:
    """The epsilon of `count` binary responses at `delta`, exact up to a relative 1e-9.

    Parameters
    ----------
    event : RandomizedResponseEvent or ErasedResponse
        With two values.
    count : int
        Number of responses.
    delta : float
        Above 0.

    Returns
    -------
    float
        Never below the true value.
    """
    losses, probabilities = loss_law(event, count)
    losses, probabilities = losses[losses > 0.0], probabilities[losses > 0.0]
    if response_delta(losses, probabilities, 0.0) <= delta:
        return 0.0
    low, high = 0.0, float(losses[-1])
    if response_delta(losses, probabilities, high) > delta:  # delta is below the lost mass
        return math.inf
    for _ in range(_N_HALVINGS):
        middle = 0.5 * (low + high)
        if response_delta(losses, probabilities, middle) <= delta:
            high = middle
        else:
            low = middle
    return high * _LOSS_MARGIN


def _binomial(n: int, odds: float) -> tuple[int, FloatArray]:
    """Probabilities of n trials with the given odds, from the first number that is not left out.

    They come from the ratios of neighbors, which are products of floats, and are normalized.
    """
    mode = min(n, math.floor((n + 1) * (odds / (1.0 + odds))))
    reach = math.ceil(_REACH * math.sqrt(n)) + 1
    low, high = max(0, mode - reach), min(n, mode + reach)
    up = np.arange(mode, high, dtype=np.float64)
    down = np.arange(mode, low, -1, dtype=np.float64)
    rising = np.cumprod((n - up) / (up + 1.0) * odds)
    falling = np.cumprod(down / ((n - down + 1.0) * odds))
    law = np.concatenate([falling[::-1], [1.0], rising])
    return low, law / law.sum()
