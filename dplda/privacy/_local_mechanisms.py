"""Noise on vectors of bits. Time and memory are proportional to the bits that are reported.

Noise draws the gaps between the bits that it sets, not each bit.
docs/proofs_document.md has the proofs of the laws; docs/proofs_local.md proves the privacy costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplda.leaf._checks import check_number
from dplda.privacy._events import Event, RandomizedResponseEvent, repeated
from dplda.privacy._mechanisms import (
    PIECE,
    FlooredLaplace,
    Integers,
)
from dplda.privacy._streams import Reader

# Probability of a flip: the scale is at most MAX_SCALE, and rounding does not exceed one half.
MIN_FLIP = 1.2e-5
MAX_FLIP = 0.4999999


@dataclass(frozen=True)
class RandomizedBits:
    """Randomized response on independent bits, in time proportional to the number of ones.

    A bit is reported wrongly with `probability`, from 1.2e-5 to 0.4999999. Geometric skips lead
    from one flip to the next. A skip is floored Laplace noise without its sign. A replaced vector
    costs `events`, up to `WORD_VARIATION` for each skip (docs/proofs_local.md).

    The scale of the skips is a float, and the ratio of their law is exactly exp(-1/scale). The
    computed scale is reduced by a relative 2**-48, which is more than all rounding errors in the
    draw and in the privacy cost: every log-ratio is below the one charged.
    """

    probability: float

    def __post_init__(self) -> None:
        check_number("probability", self.probability, MIN_FLIP, MAX_FLIP)

    @property
    def scale(self) -> float:
        """Scale of the Laplace law whose floor, without its sign, is the number of bits skipped."""
        return -1.0 / math.log1p(-self.probability) * (1.0 - 2.0**-48)

    @property
    def epsilon(self) -> float:
        """Pure epsilon of one bit."""
        return math.log((1.0 - self.probability) / self.probability)

    def element_epsilon(self, max_ones: int, n_bits: int) -> float:
        """Compute the pure epsilon of one element more or less in a set that is capped at random.

        A set of more than `max_ones` of the `n_bits` elements is cut to that many, uniformly. Where
        the cap binds, an element more takes the place of another one: two bits differ. Some pair of
        sets attains the result; docs/proofs_local.md, part (d) of the theorem, has the proof.
        """
        if n_bits <= max_ones:  # the cap never binds
            return self.epsilon
        kept = max_ones / (max_ones + 1.0)  # probability that the new element is chosen
        two_bits = 2.0 * self.epsilon
        # log(1 - kept + kept * exp(two_bits)), without overflow
        return max(self.epsilon, two_bits + math.log(kept + (1.0 - kept) * math.exp(-two_bits)))

    def events(self, max_ones: int, n_bits: int) -> tuple[Event]:
        """State the privacy cost of replacing a vector of `n_bits` bits by another one.

        They are the events of the largest number of bits that can differ, if neither vector has
        more than `max_ones` ones.
        """
        flip = RandomizedResponseEvent(2.0 * self.probability)
        return (repeated(flip, min(2 * max_ones, n_bits)),)

    def __call__(self, ones: Integers, n_bits: int, flips: Reader) -> Integers:
        """Increasing positions of the ones of the report of `n_bits` bits, from those of the bits.

        The response to a bit depends on its position and the words only: a shorter run with the
        same words has the same responses.
        """
        return _in_one_only(ones, self._flipped(n_bits, flips))

    def _flipped(self, n_bits: int, reader: Reader) -> Integers:
        """Increasing positions of the flips: each bit is flipped with the same probability."""
        pieces, last = [], -1
        noise, zeros = FlooredLaplace(self.scale), np.zeros(PIECE, np.int64)
        while last < n_bits:
            skips = noise(zeros, reader)
            skips ^= skips >> 63  # -1 - m becomes m
            skips += 1
            skips[0] += last
            pieces.append(np.cumsum(skips, out=skips))
            last = int(skips[-1])
        flipped = np.concatenate(pieces)
        return flipped[: np.searchsorted(flipped, n_bits)]


def _in_one_only(a: Integers, b: Integers) -> Integers:
    """Symmetric difference of two increasing sequences, increasing."""
    both = np.concatenate([a, b])
    both.sort(kind="stable")  # merges the two in linear time
    alone = np.ones(both.size, np.bool_)
    differs = both[1:] != both[:-1]
    alone[1:] &= differs
    alone[:-1] &= differs
    return both[alone]
