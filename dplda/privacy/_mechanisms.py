"""Noise, and its price. Noise is drawn here, and for vectors of bits in `_bits`; nowhere else.

A mechanism is a frozen value. Called with integers, it returns them with noise on every cell;
`event` is what the accountant charges for it, and `total_variation` how far the noise that runs is
from the law of that event. All of it is integer arithmetic; docs/noise.md has the proofs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dplda.kernels._noise import add_gaussian, add_laplace
from dplda.privacy._events import Event, Gaussian, Laplace, NonPrivate, Repeated
from dplda.privacy._tables import LEVEL_WIDTH, AliasTables, gaussian_tables, geometric_tables

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Kernel = Callable[[Words, Words, NDArray[np.uint32], Words, Integers], tuple[int, int]]

# The Gaussian noise is x0 + 64 x1 + 4096 x2: its variance as an integer, and that of the continuous
# Gaussian whose post-processing it is.
NOISE_VARIANCE = LEVEL_WIDTH**2 * (1 + 64**2 + 64**4)
EVENT_VARIANCE = NOISE_VARIANCE - 9
MIN_RADIUS = 64  # a coarser grid leaves little of a contribution; such noise is useless anyway
MAX_RADIUS = 2**30  # one contribution must fit in 32 bits
MIN_SCALE = 0.05
MAX_SCALE = 90000.0

# Total variation of one draw, rounded up; of anything that is drawn from one random word.
GAUSSIAN_VARIATION = 1.31e-41
LAPLACE_VARIATION = 1.15e-41
WORD_VARIATION = 1.73e-41  # three look-ups

PIECE = 8192  # draws at a time: 64 KB of words stay in the cache
SPARE_PIECE = 256  # spare words at a time: more than a piece takes on average, which is 96


class WordReader(Protocol):
    """Successive random words, never the same ones twice: `dplda.privacy._streams.Reader`."""

    def words(self, n: int, *, spare: bool = False) -> Words: ...


class Mechanism(Protocol):
    """What all mechanisms have in common.

    Attributes
    ----------
    event : Event
        The price of one call, for a value of the stated sensitivity.
    sensitivity : float
        Of the integer value, in the norm of the event.
    exact : bool
        Whether the noise is zero; nothing is protected then.
    scale : float
        Standard deviation (Gaussian) or scale (Laplace) of the noise, in the value's units.
    mean : float
        Mean of the noise: public, to be subtracted from what is released.
    """

    @property
    def event(self) -> Event: ...
    @property
    def exact(self) -> bool: ...
    @property
    def sensitivity(self) -> float: ...
    @property
    def scale(self) -> float: ...
    @property
    def mean(self) -> float: ...
    def total_variation(self, n_draws: int) -> float: ...
    def __call__(self, value: Integers, reader: WordReader) -> Integers: ...


@dataclass(frozen=True)
class DiscreteGaussian:
    """Discrete Gaussian noise of one fixed width on integers of L2 sensitivity `radius`.

    Not the noise but the data are scaled: a contribution of norm C becomes integers of norm at
    most `radius`, so that the noise is relatively larger the smaller the radius.

    **Privacy.** Unit and relation: those of the value. Sensitivity: `radius`, in L2, which the
    caller checks in integers. Event: `Gaussian(noise_multiplier)`, of which a call is a
    post-processing up to `total_variation`.

    Parameters
    ----------
    radius : int
        From 64 to 2**30.
    """

    radius: int

    exact: ClassVar[bool] = False
    scale: ClassVar[float] = math.sqrt(NOISE_VARIANCE)
    mean: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not MIN_RADIUS <= operator.index(self.radius) <= MAX_RADIUS:
            raise ValueError(f"radius must be from {MIN_RADIUS} to {MAX_RADIUS}, got {self.radius}")

    @classmethod
    def for_noise_multiplier(cls, noise_multiplier: float) -> DiscreteGaussian:
        """The largest radius, at most 2**30, with at least this noise multiplier."""
        radius = 0
        if 0 < noise_multiplier < math.inf:
            radius = math.isqrt(EVENT_VARIANCE // Fraction(noise_multiplier) ** 2)
        if radius < MIN_RADIUS:
            largest = math.sqrt(EVENT_VARIANCE) / MIN_RADIUS
            raise ValueError(
                f"noise_multiplier must be above 0 and at most {largest:.2f}, got "
                f"{noise_multiplier}; more noise would leave no signal: raise epsilon or "
                "lower max_iter"
            )
        return cls(min(radius, MAX_RADIUS))

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the event's Gaussian, relative to `radius`."""
        return math.sqrt(EVENT_VARIANCE) / self.radius

    @property
    def sensitivity(self) -> float:
        return float(self.radius)

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    def total_variation(self, n_draws: int) -> float:
        """Distance of `n_draws` draws from the ideal law (docs/noise.md, section 4)."""
        return n_draws * GAUSSIAN_VARIATION

    def __call__(self, value: Integers, reader: WordReader) -> Integers:
        """The value, int64 of any shape, plus one draw for each cell."""
        return _with_noise(value, reader, add_gaussian, gaussian_tables())


@dataclass(frozen=True)
class FlooredLaplace:
    """The floor of continuous Laplace noise, on integers.

    For an integer c, floor(c + L) = c + floor(L): a call *is* a post-processing of the continuous
    Laplace mechanism, so every account of the latter holds. The noise has mean -1/2.

    **Privacy.** Unit and relation: those of the value. Sensitivity: `n_cells` cells by one each.
    Event: `Laplace(scale)` for each of them (cheaper than one event of L1 sensitivity `n_cells`),
    up to `total_variation`.

    Parameters
    ----------
    scale : float
        Scale of the Laplace law, in the value's units, from 0.05 to 90000.
    n_cells : int, default=1
        How many cells one protected unit changes.
    """

    scale: float
    n_cells: int = 1

    exact: ClassVar[bool] = False
    sensitivity: ClassVar[float] = 1.0
    mean: ClassVar[float] = -0.5

    def __post_init__(self) -> None:
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise ValueError(f"scale must be from {MIN_SCALE} to {MAX_SCALE}, got {self.scale}")
        if self.n_cells < 1:
            raise ValueError(f"n_cells must be at least 1, got {self.n_cells}")

    @property
    def event(self) -> Event:
        return repeated(Laplace(self.scale), self.n_cells)

    def total_variation(self, n_draws: int) -> float:
        """Distance of `n_draws` draws from the ideal law (docs/noise.md, section 4)."""
        return n_draws * LAPLACE_VARIATION

    def __call__(self, value: Integers, reader: WordReader) -> Integers:
        """The value, int64 of any shape, plus one draw for each cell."""
        return _with_noise(value, reader, add_laplace, geometric_tables(self.scale))


@dataclass(frozen=True)
class NoNoise:
    """No noise and no privacy: for epsilon = inf."""

    exact: ClassVar[bool] = True
    scale: ClassVar[float] = 0.0
    sensitivity: ClassVar[float] = math.inf
    mean: ClassVar[float] = 0.0

    @property
    def event(self) -> Event:
        return NonPrivate()

    def total_variation(self, n_draws: int) -> float:
        return 0.0

    def __call__(self, value: Integers, reader: WordReader) -> Integers:
        """A copy of the value."""
        return value.astype(np.int64, casting="safe")


def repeated(event: Event, count: int) -> Event:
    """An event `count` times."""
    return event if count == 1 else Repeated(event, count)


def _with_noise(
    value: Integers, reader: WordReader, kernel: Kernel, tables: AliasTables
) -> Integers:
    """A copy of the value with one draw added to each cell, in the order of the cells."""
    noisy = value.astype(np.int64, order="C", casting="safe")
    cells = noisy.reshape(-1)
    spare = np.empty(0, dtype=np.uint64)
    for start in range(0, cells.size, PIECE):
        piece = cells[start : start + PIECE]
        words = reader.words(piece.size)
        while piece.size:
            n_done, n_used = kernel(words, spare, tables.fast, tables.slow, piece)
            words, spare, piece = words[n_done:], spare[n_used:], piece[n_done:]
            if piece.size:
                spare = np.concatenate([spare, reader.words(SPARE_PIECE, spare=True)])
    return noisy
