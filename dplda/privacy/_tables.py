"""Alias tables of the noise: exact integers in, packed arrays for the kernel out.

The weights of a law on 4096 values are integers P_i with sum 2**149. The table draws value i with
probability exactly P_i / 2**149. docs/proofs_document.md bounds the distance to the ideal law.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

N_COLUMNS = 4096
COLUMN_TOTAL = 2**137
TOTAL = N_COLUMNS * COLUMN_TOTAL
CENTER = 2048  # the column of the value 0 in the Gaussian table
LEVEL_WIDTH = 150

# Thousands of successive multiplications lose a dozen digits at worst; 2**149 has 45.
DIGITS = Context(prec=90)


@dataclass(frozen=True, eq=False)
class AliasTables:
    """One or more tables of 4096 columns, one after the other, as the kernel reads them.

    `fast` has the first 9 bits of the threshold, shifted by 12, and the alias. `slow`, of two
    columns, has the other 128 bits of the threshold, high word first; it is rarely read.
    """

    fast: NDArray[np.uint32]
    slow: NDArray[np.uint64]


@lru_cache(maxsize=1)
def gaussian_tables() -> AliasTables:
    """The one table behind all Gaussian noise."""
    return pack([gaussian_weights()])


@lru_cache(maxsize=16)
def geometric_tables(scale: float) -> AliasTables:
    """The low and the high digit of a geometric variable of ratio exp(-1/scale)."""
    return pack(geometric_weights(scale))


@lru_cache(maxsize=16)
def survivor_tables(scale: float, threshold: int) -> tuple[AliasTables, bool]:
    """Tables of both digits of the gap between two survivors, and of a survivor's excess.

    The second result tells whether the high digit can be anything but 0.

    A coordinate without a token survives with probability exp(-threshold / scale) / 2, which is
    the probability that floored Laplace noise is at least `threshold`. Its excess over the
    threshold is geometric with ratio exp(-1/scale), cut at 4095. `scale` is taken exactly.
    """
    with localcontext(DIGITS):
        survival = (-threshold / Decimal(scale)).exp() / 2
        gaps = _digits(-(1 - survival).ln())
        return pack([*gaps, _capped(1 / Decimal(scale))]), gaps[1][0] < TOTAL


def gaussian_weights() -> list[int]:
    """Weights of the values -2048, ..., 2047 under the discrete Gaussian of width 150."""
    with localcontext(DIGITS):
        rate = Decimal(1) / (2 * LEVEL_WIDTH**2)
        ratio, step = (-rate).exp(), (-2 * rate).exp()
        half = [Decimal(1)]  # exp(-rate i**2) for i = 0, ..., 2048
        for _ in range(CENTER):
            half.append(half[-1] * ratio)
            ratio *= step
        return _integers(half[:0:-1] + half[:-1], remainder_to=CENTER)


def geometric_weights(scale: float) -> tuple[list[int], list[int]]:
    """Weights of the low and the high base-4096 digit of a geometric variable.

    The digits are independent and each is geometric again. The last column of the high digit
    takes all larger values.
    """
    with localcontext(DIGITS):
        return _digits(1 / Decimal(scale))  # the float, exactly


def _digits(rate: Decimal) -> tuple[list[int], list[int]]:
    """Both digits of a geometric variable of ratio exp(-rate)."""
    return _integers(_powers(rate), remainder_to=0), _capped(N_COLUMNS * rate)


def _capped(rate: Decimal) -> list[int]:
    """A geometric variable of ratio exp(-rate); the last column takes all larger values."""
    law = _powers(rate)
    law[-1] /= 1 - (-rate).exp()
    return _integers(law, remainder_to=0)


def alias(weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Thresholds in [0, 2**137) and aliases of the columns, in exact arithmetic.

    Column i returns i with probability threshold / 2**137, and its alias otherwise. A full column
    is its own alias.
    """
    thresholds, aliases = [0] * N_COLUMNS, list(range(N_COLUMNS))
    left = list(weights)
    small = [i for i in range(N_COLUMNS) if left[i] < COLUMN_TOTAL]
    large = [i for i in range(N_COLUMNS) if left[i] > COLUMN_TOTAL]
    while small:
        i, giver = small.pop(), large[-1]
        thresholds[i], aliases[i] = left[i], giver
        left[giver] -= COLUMN_TOTAL - left[i]
        if left[giver] <= COLUMN_TOTAL:
            large.pop()
        if left[giver] < COLUMN_TOTAL:
            small.append(giver)
    return thresholds, aliases


def pack(laws: Iterable[Sequence[int]]) -> AliasTables:
    """Alias tables of several laws, in the kernel's format and read-only."""
    fast, slow = [], []
    for weights in laws:
        for threshold, other in zip(*alias(weights)):
            fast.append(threshold >> 128 << 12 | other)
            slow.append((threshold >> 64 & 2**64 - 1, threshold & 2**64 - 1))
    tables = AliasTables(np.array(fast, dtype=np.uint32), np.array(slow, dtype=np.uint64))
    tables.fast.flags.writeable = tables.slow.flags.writeable = False
    return tables


def _powers(rate: Decimal) -> list[Decimal]:
    """exp(-rate i), i = 0, ..., 4095."""
    ratio, powers = (-rate).exp(), [Decimal(1)]
    while len(powers) < N_COLUMNS:
        powers.append(powers[-1] * ratio)
    return powers


def _integers(law: Sequence[Decimal], remainder_to: int) -> list[int]:
    """floor(2**149 law_i / sum law); one weight also gets the remainder up to 2**149."""
    factor = TOTAL / sum(law, Decimal(0))
    weights = [int(value * factor) for value in law]
    weights[remainder_to] += TOTAL - sum(weights)
    return weights
