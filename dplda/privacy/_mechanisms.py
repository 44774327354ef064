"""Sensitivity and the noise that covers it.

A unit contributes one vector to a sum. `sum_clipped` scales it to L2 norm at most
`norm`, which stands for `radius` integer units, rounds it toward zero, and checks the
bound in integers. The kernels of the document-level estimators take the same steps in
C, from ``kernels/_clip.h``; a test checks that both give the same integers.

Only this module draws noise. The accountant charges a mechanism's `event`;
`WORD_VARIATION` bounds the distance between the noise that runs and its law. All
arithmetic is in integers; docs/proofs_document.md has the proofs of the laws, and
docs/proofs_local.md of the costs of bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dplda.kernels._noise import N_COLUMNS as N_COLUMNS
from dplda.kernels._noise import add_gaussian, add_laplace
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._sparse import add_duplicates, unsummed
from dplda.privacy._events import (
    MAX_COUNT,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    RandomizedResponseEvent,
    repeated,
)
from dplda.privacy._streams import PIECE, Purpose, Reader, Streams, Words

Integers: TypeAlias = NDArray[np.int64]
Cells: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
Table: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix
# A kernel: words, spare words, two tables and cells to the numbers of draws and spares.
Draw: TypeAlias = Callable[
    [Words, Words, NDArray[np.uint32], NDArray[np.uint64], Cells], tuple[int, int]
]

# removes at most 2**-16 of a vector that rounding left too long
SHRINK = 1.0 - 2.0**-16

LEVEL_WIDTH = 150  # of x0, x1 and x2 below; their table ends at 2048, 13.6 times as far
# The Gaussian noise is x0 + 64 x1 + 4096 x2: its variance as an integer, and how much
# smaller the variance is of the continuous Gaussian that it post-processes
# (docs/proofs_document.md).
NOISE_VARIANCE = LEVEL_WIDTH**2 * (1 + 64**2 + 64**4)
ROUNDING_VARIANCE = 9
MIN_RADIUS = 64  # a coarser grid would round most of a contribution away
MAX_RADIUS = 2**30  # one contribution must fit in 32 bits
# Range of Laplace scales for which the distance of the tables is tested.
MIN_SCALE = 0.05
MAX_SCALE = 90000.0
# Probability of a flip: its scale is at most MAX_SCALE, and rounding does not exceed
# one half.
MIN_FLIP = 1.2e-5
MAX_FLIP = 0.4999999
# Total variation between what is drawn with one word, by at most three look-ups, and
# its ideal law.
WORD_VARIATION = 1.73e-41

# bits of a block with a stream of its own: whole rows; enters seeded results
BLOCK_BITS = 2**20
# spare words at a time: more than a piece takes on average, which is 768
SPARE_PIECE = PIECE // 64


# ---- sensitivity ---------------------------------------------------------------------


def sum_clipped(contributions: Table, norm: float, radius: int) -> NDArray[np.int64]:
    """Sum a matrix's rows, clipped to L2 norm `norm`, in units of ``norm / radius``.

    Parameters
    ----------
    contributions : {ndarray, sparse matrix} of shape (n_units, n_cells)
        One row for each protected unit. A row must be a function of that unit and of
        public values only. A row that holds NaN or infinity, or whose squares overflow,
        counts as zero.
    norm : float
        Clipping bound, from 1e-9 to 1e9. A public constant.
    radius : int
        The clipping bound in integer units, from 1 to 2**30.

    Returns
    -------
    total : ndarray of shape (n_cells,), int64
        ``total * (norm / radius)`` estimates the sum of the clipped rows.

    Notes
    -----
    **Privacy.** Unit: a row. Relation: one row is added, removed, or replaced by zeros.
    Sensitivity: `radius`, in L2, for any input. Mechanism: none; the result is private
    until `Curator.release` adds the noise of ``DiscreteGaussian(radius)``. Replacing a
    row by another row moves the sum by at most ``2 * radius``. The proof is in
    ``docs/extending.md``.

    Examples
    --------
    >>> import numpy as np
    >>> from dplda.privacy.mechanisms import sum_clipped
    >>> sum_clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), norm=1.0, radius=1000)
    array([ 900, 1200])
    """
    norm = check_number("norm", norm, 1e-9, 1e9)
    radius = check_integer("radius", radius, 1, MAX_RADIUS)
    rows = add_duplicates(sp.csr_array(unsummed(contributions), dtype=np.float64))
    clipped = clip_rows(rows, norm, radius)
    return np.asarray(clipped.sum(axis=0), np.int64)


def clip_rows(rows: sp.csr_array, norm: float, radius: int) -> sp.csr_array:
    """Integer rows of L2 norm at most `radius`, int64."""
    n_entries = np.diff(rows.indptr)
    row = np.repeat(np.arange(rows.shape[0]), n_entries)
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt(_squared_lengths(rows))
        usable = (length > 1e-15) & np.isfinite(length)  # False for NaN
        scale = radius / np.maximum(np.where(usable, length, norm), norm)
    values = np.where(usable[row], rows.data, 0.0)
    kept = np.zeros(len(values), np.int64)
    for shrink in (1.0, SHRINK):
        integers = np.trunc(values * (scale * shrink)[row]).astype(np.int64)
        # 64 bits suffice: |scaled row| is at most radius * (1 + 1e-12), and radius**2
        # <= 2**60; the running sum may wrap around
        running = np.concatenate([[0], np.cumsum(integers**2)])
        fits = running[rows.indptr[1:]] - running[rows.indptr[:-1]] <= radius**2
        kept = np.where((fits & usable)[row], integers, kept)
        usable &= ~fits
    return sp.csr_array((kept, rows.indices, rows.indptr), rows.shape)


def _squared_lengths(rows: sp.csr_array) -> NDArray[np.float64]:
    """Sum of squares of each row, added in the order of its entries.

    `bincount` adds entry after entry, so a row's rounding does not depend on its place
    among the rows. A contribution may not depend on other units, not even on their
    presence.
    """
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    return np.bincount(row, rows.data**2, rows.shape[0]).astype(np.float64)


def count_unit(radius: int, n_moved: int) -> int:
    """Largest unit of counts where moving `n_moved` counts by one stays in `radius`.

    The unit is an integer.

    The move has L2 norm ``unit * sqrt(n_moved)``; integer arithmetic keeps it at most
    `radius`.
    """
    return math.isqrt(radius**2 // n_moved)


# ---- noise ---------------------------------------------------------------------------


class Mechanism(ABC):
    """Noise on integers with its privacy cost, as `Curator.release` takes it.

    `sensitivity` is the largest change of the integer value by one protected unit, in
    the norm of `event`. `scale` is the standard deviation (Gaussian) or scale (Laplace)
    of the noise, and `mean` its mean, which is public. If `exact`, a call adds no noise
    and protects nothing. Each of `n_parties` calls one, for one release.
    """

    sensitivity: float
    scale: float
    mean: float = 0.0
    exact: bool = False
    n_parties: int = 1

    @property
    @abstractmethod
    def event(self) -> Event:
        """Privacy cost of one call."""

    def _kernel(self) -> tuple[Draw, AliasTables] | None:
        """The kernel that draws the noise, and its tables."""
        return None

    def __call__(self, value: Integers, reader: Reader) -> Integers:
        """Integers of any shape with one draw added to each."""
        noisy = value.astype(np.int64, order="C", casting="safe")
        self.add_to(noisy.reshape(-1), reader)
        return noisy

    def add_to(self, cells: Cells, reader: Reader) -> None:
        """Add one draw to each of some int32 or int64 cells, in place.

        The cells leave room for the noise, which is below 2**24.
        """
        kernel = self._kernel()
        if kernel is None:
            return
        draw, tables = kernel
        spare = np.empty(0, dtype=np.uint64)
        for start in range(0, cells.size, PIECE):
            piece = cells[start : start + PIECE]
            words = reader.words(piece.size)
            while True:
                n_done, n_used = draw(words, spare, tables.fast, tables.slow, piece)
                words = words[n_done:]
                piece = piece[n_done:]
                spare = spare[n_used:]
                if not piece.size:
                    break
                # a piece takes 768 of 65536 on average
                more = reader.words(SPARE_PIECE, spare=True)
                spare = np.concatenate([spare, more])


@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """Discrete Gaussian noise of a fixed width on integers of L2 sensitivity `radius`.

    The width of the noise is fixed; the data are scaled instead. A contribution of norm
    C becomes integers of norm at most `radius`. A smaller radius means relatively
    larger noise.

    Parameters
    ----------
    radius : int
        L2 sensitivity of the integers, from 64 to 2**30.
    n_honest, n_parties : int, default=1
        For several parties whose integers are released as one sum: the number of shares
        of noise that pay for the event, and the number that are drawn. The sum of
        `n_honest` shares is discrete Gaussian noise of `n_honest` times the variance,
        up to 10**(-1.6e12) of each probability (docs/proofs_document.md).

    Notes
    -----
    **Privacy.** Unit and relation: as for the value. Sensitivity: `radius`, in L2; the
    caller checks it in integers. Event: ``Gaussian(noise_multiplier)``; a call is a
    post-processing of it up to `WORD_VARIATION` for each cell.
    """

    radius: int
    n_honest: int = 1
    n_parties: int = 1

    def __post_init__(self) -> None:
        check_integer("radius", self.radius, MIN_RADIUS, MAX_RADIUS)
        check_integer("n_honest", self.n_honest, 1, self.n_parties)

    @classmethod
    def for_noise_multiplier(
        cls, noise_multiplier: float, n_honest: int = 1, n_parties: int = 1
    ) -> Self:
        """Take the largest radius, at most 2**30, with at least this noise multiplier.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise divided by the sensitivity, in (0, 9601.1].
        n_honest, n_parties : int, default=1
            As for the class.

        Returns
        -------
        DiscreteGaussian
            Its `noise_multiplier` is at least the given one.
        """
        variance = cls(MAX_RADIUS, n_honest, n_parties).event_variance
        radius = 0
        if 0 < noise_multiplier < math.inf:
            exact = Fraction(min(noise_multiplier, 10**9))
            radius = math.isqrt(
                variance // exact**2
            )  # down: the noise is at least the given one
        if radius < MIN_RADIUS:
            largest = math.sqrt(variance) / MIN_RADIUS
            raise ValueError(
                f"noise_multiplier must be above 0 and at most {largest:.2f}, got "
                f"{noise_multiplier}; more noise would leave no signal: raise epsilon, "
                "lower max_iter"
            )
        return cls(min(radius, MAX_RADIUS), n_honest, n_parties)

    @property
    def event_variance(self) -> int:
        """Variance of the continuous Gaussian that the noise post-processes."""
        return self.n_honest * NOISE_VARIANCE - ROUNDING_VARIANCE

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the event's Gaussian, divided by `radius`."""
        return math.sqrt(self.event_variance) / self.radius

    @property
    def sensitivity(self) -> float:  # type: ignore[override]
        """The radius, as a float."""
        return float(self.radius)

    @cached_property  # a fit asks for both in each round
    def scale(self) -> float:  # type: ignore[override]
        """Standard deviation of the noise, of all shares together."""
        return math.sqrt(self.n_parties * NOISE_VARIANCE)

    @cached_property
    def event(self) -> Event:
        """Privacy cost of one call: a `Gaussian` event."""
        return Gaussian(self.noise_multiplier)

    def _kernel(self) -> tuple[Draw, AliasTables]:
        return add_gaussian, gaussian_tables()


@dataclass(frozen=True)
class FlooredLaplace(Mechanism):
    """The floor of continuous Laplace noise, on integers.

    For an integer c, floor(c + L) = c + floor(L): a post-processing of the continuous
    mechanism.

    Parameters
    ----------
    scale : float
        Scale of the Laplace law, in the value's units, from 0.05 to 90000.
    n_cells : int, default=1
        Number of cells that one protected unit changes.

    Notes
    -----
    **Privacy.** Unit and relation: as for the value. Sensitivity: `n_cells` cells by
    one each. Event: ``Laplace(scale)`` for each of them (cheaper than one event of L1
    sensitivity `n_cells`), up to `WORD_VARIATION` for each cell.
    """

    scale: float
    n_cells: int = 1

    sensitivity = 1.0
    mean = -0.5

    def __post_init__(self) -> None:
        check_number("scale", self.scale, MIN_SCALE, MAX_SCALE)
        check_integer("n_cells", self.n_cells, 1, MAX_COUNT)

    @property
    def event(self) -> Event:
        """Privacy cost of one call: `n_cells` `Laplace` events."""
        return repeated(Laplace(self.scale), self.n_cells)

    def _kernel(self) -> tuple[Draw, AliasTables]:
        return add_laplace, geometric_tables(self.scale)


@dataclass(frozen=True)
class NoNoise(Mechanism):
    """No noise and no privacy, for an infinite epsilon."""

    exact = True
    scale = 0.0
    sensitivity = math.inf
    radius = MAX_RADIUS  # grid of the integers; it bounds no unit

    @property
    def event(self) -> Event:
        """Privacy cost of one call: `NonPrivate`."""
        return NonPrivate()


@dataclass(frozen=True)
class RandomizedBits:
    """Randomized response on independent bits, in time proportional to reported bits.

    A bit is reported wrongly with `probability`, from 1.2e-5 to 0.4999999. Geometric
    skips lead from one flip to the next. A skip is the floor of Laplace noise without a
    sign. A replaced vector costs `events`, up to `WORD_VARIATION` for each skip
    (docs/proofs_local.md).

    The scale of the skips is a float, and the ratio of their law is exactly
    exp(-1/scale). The computed scale is reduced by a relative 2**-48, which is more
    than all rounding errors in the draw and in the privacy cost: every log-ratio is
    below the one charged.
    """

    probability: float

    def __post_init__(self) -> None:
        check_number("probability", self.probability, MIN_FLIP, MAX_FLIP)

    @classmethod
    def for_epsilon(cls, epsilon: float) -> Self:
        """Randomized response that costs `epsilon` for one bit."""
        return cls(1.0 / (1.0 + math.exp(epsilon)))

    @property
    def scale(self) -> float:
        """Scale of the Laplace law whose floor is the number of bits skipped.

        The floor is without its sign.
        """
        return -1.0 / math.log1p(-self.probability) * (1.0 - 2.0**-48)

    @property
    def epsilon(self) -> float:
        """Pure epsilon of one bit."""
        return math.log((1.0 - self.probability) / self.probability)

    def element_epsilon(self, max_ones: int, n_bits: int) -> float:
        """Compute the pure epsilon of one element in a set that is capped at random.

        Neighboring sets differ in one element.

        A set of more than `max_ones` of the `n_bits` elements is cut to that many,
        uniformly. Where the cap binds, an added element replaces another one: two bits
        differ. Some pair of sets attains the result; docs/proofs_local.md, part (d) of
        the theorem, has the proof.
        """
        if n_bits <= max_ones:  # the cap never binds
            return self.epsilon
        kept = max_ones / (max_ones + 1.0)  # probability that the new element is chosen
        two_bits = 2.0 * self.epsilon
        # log(1 - kept + kept * exp(two_bits)), without overflow
        share = kept + (1.0 - kept) * math.exp(-two_bits)
        return max(self.epsilon, two_bits + math.log(share))

    def events(self, max_ones: int, n_bits: int) -> tuple[Event]:
        """State the privacy cost of replacing a vector of `n_bits` bits by another.

        At most the ones of both vectors differ, `max_ones` of each.
        """
        flip = RandomizedResponseEvent(2.0 * self.probability)
        return (repeated(flip, min(2 * max_ones, n_bits)),)

    def __call__(self, ones: Integers, n_bits: int, flips: Reader) -> Integers:
        """Increasing positions of the ones of a report, from the ones of the bits.

        The report has `n_bits` bits.

        The response to a bit depends on its position and the words only: a shorter run
        with the same words has the same responses.
        """
        both = np.concatenate([ones, self._flipped(n_bits, flips)])
        both.sort(kind="stable")  # merges the two in linear time
        alone = np.ones(both.size, np.bool_)
        differs = both[1:] != both[:-1]
        alone[1:] &= differs
        alone[:-1] &= differs
        return both[alone]

    def in_rows(
        self, ptr: Cells, ones: Cells, n_bits: int, streams: Streams
    ) -> tuple[Integers, NDArray[np.int32]]:
        """Reports of many vectors of `n_bits` bits, as row pointers and columns.

        The vectors are given in the same form.

        Each block of whole rows has its own stream. No two rows share a random number.
        Memory holds the result only.
        """
        parts = [np.zeros(0, np.int32)]
        lengths = [np.zeros(1, np.int64)]
        n_rows = max(1, BLOCK_BITS // n_bits)
        for block, first in enumerate(range(0, len(ptr) - 1, n_rows)):
            own = ptr[first : first + n_rows + 1]
            # the rows of a block are one vector, and each begins at its place in it
            start = np.arange(len(own), dtype=np.int64) * n_bits
            begin = start[:-1]
            cells = np.repeat(begin, np.diff(own)) + ones[own[0] : own[-1]]
            flips = streams.reader(Purpose.BIT_FLIPS, 0, block)
            reported = self(cells, int(start[-1]), flips)
            n_reported = np.diff(np.searchsorted(reported, start))
            columns = reported - np.repeat(begin, n_reported)
            lengths.append(n_reported)
            parts.append(columns.astype(np.int32))
        return np.cumsum(np.concatenate(lengths)), np.concatenate(parts)

    def _flipped(self, n_bits: int, reader: Reader) -> Integers:
        """Increasing positions of the flips.

        Each bit is flipped with the same probability.
        """
        noise = FlooredLaplace(self.scale)
        zeros = np.zeros(PIECE, np.int64)
        pieces = []
        last = -1
        while last < n_bits:
            skips = noise(zeros, reader)
            skips ^= skips >> 63  # -1 - m becomes m
            skips += 1
            skips[0] += last
            pieces.append(np.cumsum(skips, out=skips))
            last = int(skips[-1])
        flipped = np.concatenate(pieces)
        return flipped[: np.searchsorted(flipped, n_bits)]


# ---- alias tables: exact integers in, packed arrays for the kernels out --------------

# The weights of a law on N_COLUMNS = 4096 values are integers P_i with sum 2**149. The
# table draws value i with probability exactly P_i / 2**149. docs/proofs_document.md
# bounds the distance to the ideal law.
COLUMN_TOTAL = 2**137
# Thousands of successive multiplications lose at most a dozen digits; 2**149 has 45.
DIGITS = Context(prec=90)


@dataclass(frozen=True, eq=False)
class AliasTables:
    """Tables of 4096 columns, one or more, in sequence, as the kernel reads them.

    `fast` has the first 9 bits of the threshold, shifted by 12, and the alias. `slow`,
    of two columns, has the other 128 bits of the threshold, high word first; it is
    rarely read.
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


def gaussian_weights() -> list[int]:
    """Weights of -2048, ..., 2047 under the discrete Gaussian of width 150."""
    with localcontext(DIGITS):
        center = N_COLUMNS // 2  # the column of the value 0
        rate = Decimal(1) / (2 * LEVEL_WIDTH**2)
        ratio = (-rate).exp()
        step = (-2 * rate).exp()
        half = [Decimal(1)]  # exp(-rate i**2) for i = 0, ..., 2048
        for _ in range(center):
            half.append(half[-1] * ratio)
            ratio *= step
        return _integers(half[:0:-1] + half[:-1], remainder_to=center)


def geometric_weights(scale: float) -> tuple[list[int], list[int]]:
    """Weights of the low and the high base-4096 digit of a geometric variable.

    The digits are independent and each is geometric again. The last column of the high
    digit takes all larger values.
    """
    with localcontext(DIGITS):
        rate = 1 / Decimal(scale)  # the float, exactly
        low = _powers(rate)
        high = _powers(N_COLUMNS * rate)
        high[-1] /= 1 - (-N_COLUMNS * rate).exp()
        return _integers(low, remainder_to=0), _integers(high, remainder_to=0)


def alias(weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Thresholds in [0, 2**137) and aliases of the columns, in exact arithmetic.

    Column i returns i with probability threshold / 2**137, and its alias otherwise. A
    full column is its own alias.
    """
    thresholds = [0] * N_COLUMNS
    aliases = list(range(N_COLUMNS))
    left = list(weights)
    small = [i for i in range(N_COLUMNS) if left[i] < COLUMN_TOTAL]
    large = [i for i in range(N_COLUMNS) if left[i] > COLUMN_TOTAL]
    while small:
        i = small.pop()
        giver = large[-1]
        thresholds[i] = left[i]
        aliases[i] = giver
        left[giver] -= COLUMN_TOTAL - left[i]
        if left[giver] <= COLUMN_TOTAL:
            large.pop()
        if left[giver] < COLUMN_TOTAL:
            small.append(giver)
    return thresholds, aliases


def pack(laws: Iterable[Sequence[int]]) -> AliasTables:
    """Alias tables of several laws, in the kernel's format and read-only."""
    fast = []
    slow = []
    for weights in laws:
        for threshold, other in zip(*alias(weights)):
            fast.append(threshold >> 128 << 12 | other)
            slow.append((threshold >> 64 & 2**64 - 1, threshold & 2**64 - 1))
    tables = AliasTables(
        np.array(fast, dtype=np.uint32), np.array(slow, dtype=np.uint64)
    )
    tables.fast.flags.writeable = False
    tables.slow.flags.writeable = False
    return tables


def _powers(rate: Decimal) -> list[Decimal]:
    """exp(-rate i), i = 0, ..., 4095."""
    ratio = (-rate).exp()
    powers = [Decimal(1)]
    while len(powers) < N_COLUMNS:
        powers.append(powers[-1] * ratio)
    return powers


def _integers(law: Sequence[Decimal], remainder_to: int) -> list[int]:
    """floor(2**149 law_i / sum law); one weight gets the remainder up to 2**149."""
    total = N_COLUMNS * COLUMN_TOTAL
    factor = total / sum(law, Decimal(0))
    weights = [int(value * factor) for value in law]
    weights[remainder_to] += total - sum(weights)
    return weights
