"""The randomized bits that a budget buys: the flip probability for a given epsilon."""

from __future__ import annotations

import math
from functools import lru_cache

from dplda.privacy import epsilon_of
from dplda.privacy._accounting import is_within
from dplda.privacy._curator import TOTAL_VARIATION
from dplda.privacy._events import Event
from dplda.privacy._local_mechanisms import MAX_FLIP, MIN_FLIP, RandomizedBits

N_HALVINGS = 28  # of the search for a flip probability: 6e-8 of its log-odds remain


def bits_from_bit_epsilon(bit_epsilon: float, fair_ones: bool) -> RandomizedBits:
    """The mechanism with a given epsilon of a bit or, with fair ones, of half a pair of bits."""
    n_bits = 2 if fair_ones else 1  # one flip has the epsilon of this many bits
    low, high = (log_odds(flip) / n_bits for flip in (MAX_FLIP, MIN_FLIP))
    flip = 1.0 / (1.0 + math.exp(min(n_bits * bit_epsilon, 700.0)))
    if not MIN_FLIP <= flip <= MAX_FLIP:
        raise ValueError(
            f"bit_epsilon must be from {low:.3g} to {high:.7g} with mechanism="
            f"{'oue' if fair_ones else 'symmetric'!r}, or inf for no privacy, got {bit_epsilon:g}"
        )
    return RandomizedBits(flip, fair_ones)


def bits_from_flip_mixture(flip_mixture: float) -> RandomizedBits:
    """The symmetric mechanism that replaces a bit by a fair coin with a given probability."""
    flip = 0.5 * flip_mixture
    if not MIN_FLIP <= flip <= MAX_FLIP:
        raise ValueError(
            f"flip_mixture must be from {2.0 * MIN_FLIP:.3g} to {2.0 * MAX_FLIP:.7g} (or "
            f"epsilon=inf for no privacy), got {flip_mixture:g}"
        )
    return RandomizedBits(flip)


@lru_cache(maxsize=256)
def calibrated_bits(
    epsilon: float, delta: float, max_ones: int, n_words: int, fair_ones: bool
) -> RandomizedBits:
    """The smallest flip probability for which a report costs at most (epsilon, delta).

    The search halves a fixed interval of log-odds. A larger `epsilon` therefore never gets a larger
    flip probability, even where the accountant's rounding makes the cost uneven. Client and server
    find the same number.

    Parameters
    ----------
    epsilon, delta : float
        The total for one report of a document.
    max_ones : int
        Largest number of words of a document.
    n_words : int
        Size of the vocabulary.
    fair_ones : bool
        Whether a fair coin decides the report of a bit 1.

    Returns
    -------
    bits : RandomizedBits
        `epsilon_of` of its events is at most `epsilon`.

    Raises
    ------
    ValueError
        If the flip probability would be out of the mechanism's range.
    """

    def events(flip: float) -> tuple[Event, ...]:
        return RandomizedBits(flip, fair_ones).events(max_ones, n_words)

    least, most = (
        epsilon_of(events(flip), delta, total_variation=TOTAL_VARIATION)
        for flip in (MAX_FLIP, MIN_FLIP)
    )
    if not least <= epsilon <= most:
        advice = "lower max_doc_words" if epsilon < least else "give inf for no privacy"
        raise ValueError(
            f"epsilon must be from about {least:.4g} to {most:.6g} at delta={delta:g} with "
            f"mechanism={'oue' if fair_ones else 'symmetric'!r} and at most {max_ones} of "
            f"{n_words} words in a document, got {epsilon:g}; choose an epsilon in this range, or "
            f"{advice}"
        )
    low, high = log_odds(MAX_FLIP), log_odds(MIN_FLIP)
    flip = MAX_FLIP
    for _ in range(N_HALVINGS):
        middle = math.sqrt(low * high)
        candidate = 1.0 / (1.0 + math.exp(middle))
        if is_within(events(candidate), epsilon, delta, total_variation=TOTAL_VARIATION):
            low, flip = middle, candidate
        else:
            high = middle
    return RandomizedBits(flip, fair_ones)


def log_odds(flip: float) -> float:
    """Epsilon of a binary randomized response with this flip probability."""
    return math.log(1.0 / flip - 1.0)
