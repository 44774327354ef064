"""The table of HDPLDA's topic draws: IEEE halves, with an exact bound on the ratio of two."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dplda.kernels import _release
from dplda.leaf._threads import n_threads

WIDTH = 16  # topics in a vector of the kernels
PIECE_CELLS = 1 << 16  # cells whose sizes are added up in single precision; enters results
CACHE_LINE = 64  # bytes
SMALLEST, LARGEST = 2.0**-14, 65504.0  # of the normal halves
BITS_OF_LARGEST = 0x7BFF
FRACTION = 1023  # mask of the last ten bits of a half
LARGEST_CLIP = 1 << 22  # in units of the prior; halves have 30 binary orders of magnitude
SMALLEST_PRIOR = 2.0**-60  # in units of a count


@dataclass(frozen=True, eq=False)
class HalfTable:
    """A word-topic table of positive halves, with an exact bound on the ratio of two of a topic.

    Attributes
    ----------
    half : ndarray of shape (n_words, padded), uint16
        Bits of normal IEEE halves, in proportion to clip(counts, 0, count_clip) + prior, divided by
        the size of the topic. It is 0 on the padding to a multiple of 16 topics.
    n_components : int
        Number of topics.
    """

    half: npt.NDArray[np.uint16]
    n_components: int

    @classmethod
    def from_counts(
        cls,
        counts: npt.NDArray[Any],
        count_clip: float,
        prior: float,
        *,
        mean: float = 0.0,
        unit: float = 1.0,
        n_jobs: int | None = None,
    ) -> HalfTable:
        """Clip noisy counts to [0, count_clip], add the prior, and divide by the topics' sizes.

        Two halves of one topic differ by at most the factor count_clip / prior + 1. This bound is
        exact, whatever was rounded: docs/proofs_word.md, "To the last bit".

        Parameters
        ----------
        counts : ndarray of shape (n_words, n_components), int32, int64 or float64
            Public. A count is (counts - mean) / unit.
        count_clip, prior : float
            Upper end of the clip, and what is added to each count, above 0.
        mean, unit : float
            What the integers of `counts` stand for.
        n_jobs : int or None
            Number of threads. It never changes a result.
        """
        n_words, n_components = counts.shape
        padded = -(-n_components // WIDTH) * WIDTH
        threads = n_threads(n_jobs)
        factor = 1.0 / max(unit * prior, SMALLEST_PRIOR)  # weights are in units of the prior
        weight = factor, -mean * factor, min(count_clip / prior, 1e30)

        size = rows_of_piece(n_components)
        pieces = -(-n_words // size), padded
        sums, largest = np.zeros(pieces, np.float32), np.ones(pieces, np.float32)
        _release.add_weights(counts, *weight, size, sums, largest, threads)
        sizes = sum(sums.astype(np.float64), np.zeros(padded))  # row after row
        columns = np.zeros((3, padded), np.float32)
        columns[:, :n_components] = _bounds(
            sizes[:n_components], largest.max(axis=0)[:n_components], count_clip, prior
        )
        low, high, scale = columns
        half = _zeros(n_words, padded)
        _release.write_halves(counts, *weight, scale, low, high, half, threads)
        return cls(half, n_components)

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The halves (n_words, n_components) as float64, exactly."""
        return self.half.view(np.float16)[:, : self.n_components].astype(np.float64)


def _zeros(n_words: int, padded: int) -> npt.NDArray[np.uint16]:
    """An array that begins with a line of the cache, so that rows are in as few as possible."""
    cells = np.zeros(n_words * padded + CACHE_LINE // 2, np.uint16)
    first = -cells.ctypes.data % CACHE_LINE // 2
    return cells[first : first + n_words * padded].reshape(n_words, padded)


def _bounds(sizes: Any, largest: Any, count_clip: float, prior: float) -> tuple[Any, Any, Any]:
    """Smallest and largest half of each topic, and what a weight of 1 becomes."""
    scale = LARGEST / (largest / sizes).max() / sizes
    low = np.maximum(scale, SMALLEST).astype(np.float16)
    bits = low.view(np.uint16).astype(np.int64)
    high = np.minimum(bits + _steps(count_clip, prior)[bits & FRACTION], BITS_OF_LARGEST)
    return low, high.astype(np.uint16).view(np.float16), scale


@lru_cache(maxsize=16)
def _steps(count_clip: float, prior: float) -> npt.NDArray[np.int64]:
    """How many halves a topic may have above its smallest one, by the last bits of the smallest.

    Halves with m = 1024, ..., 2047 are m 2**e. The largest of them that is at most
    (count_clip / prior + 1) m 2**e is found in integers. Bits of halves are in the halves' order.
    """
    ratio = Fraction(float(count_clip)) / Fraction(float(prior)) + 1
    steps = []
    for m in range(FRACTION + 1, 2 * FRACTION + 2):
        product = ratio.numerator * m // ratio.denominator
        exponent = product.bit_length() - 11
        steps.append(min((exponent << 10) + (product >> exponent) - m, 1 << 15))
    return np.array(steps, np.int64)


def rows_of_piece(n_components: int) -> int:
    """Rows of a fixed piece of a table."""
    return max(1, PIECE_CELLS // n_components)


def row_pieces(n_words: int, n_components: int) -> list[slice]:
    """Fixed pieces of rows, for threads."""
    size = rows_of_piece(n_components)
    return [slice(i, min(i + size, n_words)) for i in range(0, n_words, size)]
