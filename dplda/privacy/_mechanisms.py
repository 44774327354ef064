"""Noise and its privacy cost.

Only this module and, for vectors of bits, `_local_mechanisms` draw noise. A mechanism is a frozen
value. A call with integers returns them with noise on every cell, and `add_to` adds the same noise
in place. The accountant charges its `event`. `total_variation` bounds the distance between the
noise that runs and the law of that event. All arithmetic is in integers; docs/noise.md has the
proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dplda.kernels._noise import (
    add_gaussian,
    add_laplace,
    add_tied_gaussian,
    add_tied_laplace,
)
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._threads import n_threads
from dplda.privacy._events import MAX_COUNT, Event, Gaussian, Laplace, NonPrivate, Repeated
from dplda.privacy._tables import LEVEL_WIDTH, AliasTables, gaussian_tables, geometric_tables

Integers = NDArray[np.int64]
Cells = NDArray[np.int32] | NDArray[np.int64]
Words = NDArray[np.uint64]
Fast = NDArray[np.uint32]
Draw = Callable[[Words, Fast, Cells, int], NDArray[np.int64]]
DrawTied = Callable[[Words, Words, Fast, Words, Cells, NDArray[np.int64]], tuple[int, int]]

# The Gaussian noise is x0 + 64 x1 + 4096 x2: its variance as an integer, and that of the continuous
# Gaussian whose post-processing it is.
NOISE_VARIANCE = LEVEL_WIDTH**2 * (1 + 64**2 + 64**4)
EVENT_VARIANCE = NOISE_VARIANCE - 9
MIN_RADIUS = 64  # a coarser grid would round most of a contribution away
MAX_RADIUS = 2**30  # one contribution must fit in 32 bits
MIN_SCALE = 0.05
MAX_SCALE = 90000.0

# Total variation of one draw, rounded up. The last one bounds everything drawn with one word.
GAUSSIAN_VARIATION = 1.31e-41
LAPLACE_VARIATION = 1.15e-41
WORD_VARIATION = 1.73e-41  # three look-ups

PIECE = 65536  # draws at a time: their words, 512 KB, stay in the second-level cache
SPARE_PIECE = 1024  # spare words at a time: more than a piece takes on average, which is 768


class WordReader(Protocol):
    """A source of successive random words without repetition, such as `Streams.reader`."""

    def words(self, n: int, *, spare: bool = False) -> Words:
        """Return the next `n` words of the stream or of its spare stream, shape (n,), uint64."""


class Mechanism(Protocol):
    """Noise on integers with its privacy cost, as `Curator.release` takes it."""

    @property
    def event(self) -> Event:
        """Privacy cost of one call, for a value of the stated sensitivity."""

    @property
    def sensitivity(self) -> float:
        """Largest change of the integer value by one protected unit, in the norm of the event."""

    @property
    def scale(self) -> float:
        """Standard deviation (Gaussian) or scale (Laplace) of the noise, in the value's units."""

    @property
    def mean(self) -> float:
        """Mean of the noise, a public number to subtract from a release."""

    @property
    def exact(self) -> bool:
        """Whether a call adds no noise and protects nothing."""

    def total_variation(self, n_draws: int) -> float:
        """Bound the distance of `n_draws` draws from the ideal law.

        Parameters
        ----------
        n_draws : int
            Number of draws, which is the number of noisy cells.

        Returns
        -------
        float
            Total variation; docs/noise.md, section 4, proves it.
        """

    def __call__(self, value: Integers, reader: WordReader) -> Integers:
        """Add one draw to each cell.

        Parameters
        ----------
        value : ndarray, int64
            The exact integers, of any shape.
        reader : WordReader
            Source of the random words.

        Returns
        -------
        noisy : ndarray, int64
            Of the same shape.
        """

    def add_to(self, cells: Cells, reader: WordReader, n_jobs: int | None = 1) -> None:
        """Add one draw to each cell, in place.

        Parameters
        ----------
        cells : ndarray of shape (n_cells,), int32 or int64
            The exact integers; afterwards the noisy ones. They must leave room for the noise, which
            is below 2**24 for every mechanism.
        reader : WordReader
            Source of the random words.
        n_jobs : int or None, default=1
            Number of threads. It never changes a result.
        """


@dataclass(frozen=True)
class DiscreteGaussian:
    """Discrete Gaussian noise of one fixed width on integers of L2 sensitivity `radius`.

    The width of the noise never changes; the data are scaled instead. A contribution of norm C
    becomes integers of norm at most `radius`. A smaller radius means relatively larger noise.

    Parameters
    ----------
    radius : int
        L2 sensitivity of the integers, from 64 to 2**30.

    Attributes
    ----------
    scale : float
        Standard deviation of the noise, about 614475 for every radius.
    mean : float
        Mean of the noise, 0.
    exact : bool
        False.

    Notes
    -----
    **Privacy.** Unit and relation: those of the value. Sensitivity: `radius`, in L2, which the
    caller checks in integers. Event: ``Gaussian(noise_multiplier)``; a call is a post-processing of
    it up to `total_variation`.
    """

    radius: int

    exact: ClassVar[bool] = False
    scale: ClassVar[float] = math.sqrt(NOISE_VARIANCE)
    mean: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_integer("radius", self.radius, MIN_RADIUS, MAX_RADIUS)

    @classmethod
    def for_noise_multiplier(cls, noise_multiplier: float) -> DiscreteGaussian:
        """Take the largest radius, at most 2**30, with at least this noise multiplier.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise divided by the sensitivity, in (0, 9601.1].

        Returns
        -------
        DiscreteGaussian
            Its `noise_multiplier` is at least the given one.

        Raises
        ------
        ValueError
            If the noise multiplier is out of range.
        """
        radius = 0
        if 0 < noise_multiplier < math.inf:
            radius = math.isqrt(EVENT_VARIANCE // Fraction(min(noise_multiplier, 10**9)) ** 2)
        if radius < MIN_RADIUS:
            largest = math.sqrt(EVENT_VARIANCE) / MIN_RADIUS
            raise ValueError(
                f"noise_multiplier must be above 0 and at most {largest:.2f}, got "
                f"{noise_multiplier}; more noise would leave no signal: raise epsilon, lower "
                "max_iter, or leave each release a share of the budget (word_total_share)"
            )
        return cls(min(radius, MAX_RADIUS))

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the event's Gaussian, divided by `radius`."""
        return math.sqrt(EVENT_VARIANCE) / self.radius

    @property
    def sensitivity(self) -> float:
        """The radius, as a float."""
        return float(self.radius)

    @property
    def event(self) -> Event:
        """Privacy cost of one call: a `Gaussian` event."""
        return Gaussian(self.noise_multiplier)

    def total_variation(self, n_draws: int) -> float:
        """Bound the distance of `n_draws` draws from the ideal law.

        Parameters
        ----------
        n_draws : int
            Number of draws, which is the number of noisy cells.

        Returns
        -------
        float
            Total variation; docs/noise.md, section 4, proves it.
        """
        return n_draws * GAUSSIAN_VARIATION

    def __call__(self, value: Integers, reader: WordReader) -> Integers:
        """Add one draw to each cell.

        Parameters
        ----------
        value : ndarray, int64
            The exact integers, of any shape.
        reader : WordReader
            Source of the random words.

        Returns
        -------
        noisy : ndarray, int64
            Of the same shape.
        """
        return _with_noise(value, reader, self)

    def add_to(self, cells: Cells, reader: WordReader, n_jobs: int | None = 1) -> None:
        """Add one draw to each cell, in place.

        Parameters
        ----------
        cells : ndarray of shape (n_cells,), int32 or int64
            The exact integers; afterwards the noisy ones. They must leave room for the noise, which
            is below 2**24 for every mechanism.
        reader : WordReader
            Source of the random words.
        n_jobs : int or None, default=1
            Number of threads. It never changes a result.
        """
        _add_noise(cells, reader, add_gaussian, add_tied_gaussian, gaussian_tables(), n_jobs)


@dataclass(frozen=True)
class FlooredLaplace:
    """The floor of continuous Laplace noise, on integers.

    For an integer c, floor(c + L) = c + floor(L). A call is therefore a post-processing of the
    continuous Laplace mechanism, and every account of that mechanism holds.

    Parameters
    ----------
    scale : float
        Scale of the Laplace law, in the value's units, from 0.05 to 90000.
    n_cells : int, default=1
        Number of cells that one protected unit changes.

    Attributes
    ----------
    sensitivity : float
        Largest change of one cell, 1.
    mean : float
        Mean of the noise, -1/2.
    exact : bool
        False.

    Notes
    -----
    **Privacy.** Unit and relation: those of the value. Sensitivity: `n_cells` cells by one each.
    Event: ``Laplace(scale)`` for each of them (cheaper than one event of L1 sensitivity `n_cells`),
    up to `total_variation`.
    """

    scale: float
    n_cells: int = 1

    exact: ClassVar[bool] = False
    sensitivity: ClassVar[float] = 1.0
    mean: ClassVar[float] = -0.5

    def __post_init__(self) -> None:
        check_number("scale", self.scale, MIN_SCALE, MAX_SCALE)
        check_integer("n_cells", self.n_cells, 1, MAX_COUNT)

    @property
    def event(self) -> Event:
        """Privacy cost of one call: `n_cells` `Laplace` events."""
        return repeated(Laplace(self.scale), self.n_cells)

    def total_variation(self, n_draws: int) -> float:
        """Bound the distance of `n_draws` draws from the ideal law.

        Parameters
        ----------
        n_draws : int
            Number of draws, which is the number of noisy cells.

        Returns
        -------
        float
            Total variation; docs/noise.md, section 4, proves it.
        """
        return n_draws * LAPLACE_VARIATION

    def __call__(self, value: Integers, reader: WordReader) -> Integers:
        """Add one draw to each cell.

        Parameters
        ----------
        value : ndarray, int64
            The exact integers, of any shape.
        reader : WordReader
            Source of the random words.

        Returns
        -------
        noisy : ndarray, int64
            Of the same shape.
        """
        return _with_noise(value, reader, self)

    def add_to(self, cells: Cells, reader: WordReader, n_jobs: int | None = 1) -> None:
        """Add one draw to each cell, in place.

        Parameters
        ----------
        cells : ndarray of shape (n_cells,), int32 or int64
            The exact integers; afterwards the noisy ones. They must leave room for the noise, which
            is below 2**24 for every mechanism.
        reader : WordReader
            Source of the random words.
        n_jobs : int or None, default=1
            Number of threads. It never changes a result.
        """
        _add_noise(
            cells, reader, add_laplace, add_tied_laplace, geometric_tables(self.scale), n_jobs
        )


@dataclass(frozen=True)
class NoNoise:
    """No noise and no privacy, for an infinite epsilon.

    Attributes
    ----------
    scale : float
        Scale of the noise, 0.
    sensitivity : float
        Infinite: a value may change by any amount.
    mean : float
        Mean of the noise, 0.
    exact : bool
        True.
    """

    exact: ClassVar[bool] = True
    scale: ClassVar[float] = 0.0
    sensitivity: ClassVar[float] = math.inf
    mean: ClassVar[float] = 0.0

    @property
    def event(self) -> Event:
        """Privacy cost of one call: `NonPrivate`."""
        return NonPrivate()

    def total_variation(self, n_draws: int) -> float:
        """Return 0: the values are exact.

        Parameters
        ----------
        n_draws : int
            Number of cells.

        Returns
        -------
        float
            Zero.
        """
        return 0.0

    def __call__(self, value: Integers, reader: WordReader) -> Integers:
        """Return a copy of the value.

        Parameters
        ----------
        value : ndarray, int64
            The exact integers, of any shape.
        reader : WordReader
            Not used.

        Returns
        -------
        exact : ndarray, int64
            Of the same shape.
        """
        return value.astype(np.int64, casting="safe")

    def add_to(self, cells: Cells, reader: WordReader, n_jobs: int | None = 1) -> None:
        """Leave the cells as they are.

        Parameters
        ----------
        cells : ndarray of shape (n_cells,), int32 or int64
            The exact integers.
        reader : WordReader
            Not used.
        n_jobs : int or None, default=1
            Not used.
        """


def repeated(event: Event, count: int) -> Event:
    """The event of `count` repetitions."""
    return event if count == 1 else Repeated(event, count)


def _with_noise(value: Integers, reader: WordReader, mechanism: Mechanism) -> Integers:
    """A copy of the value with one draw added to each cell, in the order of the cells."""
    noisy = value.astype(np.int64, order="C", casting="safe")
    mechanism.add_to(noisy.reshape(-1), reader)
    return noisy


def _add_noise(
    cells: Cells,
    reader: WordReader,
    draw: Draw,
    draw_tied: DrawTied,
    tables: AliasTables,
    n_jobs: int | None,
) -> None:
    """Add one draw to each cell; those with a tie take spare words, in their order."""
    spare = np.empty(0, dtype=np.uint64)
    for start in range(0, cells.size, PIECE):
        piece = cells[start : start + PIECE]
        words = reader.words(piece.size)
        left = draw(words, tables.fast, piece, n_threads(n_jobs))
        while left.size:
            n_done, n_used = draw_tied(words, spare, tables.fast, tables.slow, piece, left)
            left, spare = left[n_done:], spare[n_used:]
            if left.size:
                spare = np.concatenate([spare, reader.words(SPARE_PIECE, spare=True)])
