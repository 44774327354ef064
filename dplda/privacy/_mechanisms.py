"""Noise, and its price: the only place of the package where noise is drawn.

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

from dplda.kernels._noise import add_gaussian, add_laplace, find_survivors
from dplda.privacy._events import (
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    RandomizedResponse,
    Repeated,
)
from dplda.privacy._tables import (
    LEVEL_WIDTH,
    N_COLUMNS,
    AliasTables,
    gaussian_tables,
    geometric_tables,
    survivor_tables,
)

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
# Of a bit's flip. The ends: a scale of at most MAX_SCALE, and never above one half after rounding.
MIN_FLIP = 1.2e-5
MAX_FLIP = 0.4999999

# Total variation of one draw, rounded up.
GAUSSIAN_VARIATION = 1.31e-41
LAPLACE_VARIATION = 1.15e-41

PIECE = 8192  # draws at a time: 64 KB of words stay in the cache
SPARE_PIECE = 256  # spare words at a time: more than a piece takes on average, which is 96


class WordReader(Protocol):
    """Successive random words, never the same ones twice: `dplda._streams.Reader`."""

    def words(self, n: int, *, spare: bool = False) -> Words: ...


class Mechanism(Protocol):
    """What all mechanisms have in common.

    Attributes
    ----------
    event : Event
        The price of one call, for a value of the stated sensitivity.
    sensitivity : float
        Of the integer value, in the norm of the event.
    scale : float
        Standard deviation (Gaussian) or scale (Laplace) of the noise, in the value's units.
    mean : float
        Mean of the noise: public, to be subtracted from what is released.
    """

    @property
    def event(self) -> Event: ...
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

    sensitivity: ClassVar[float] = 1.0
    mean: ClassVar[float] = -0.5

    def __post_init__(self) -> None:
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise ValueError(f"scale must be from {MIN_SCALE} to {MAX_SCALE}, got {self.scale}")
        if self.n_cells < 1:
            raise ValueError(f"n_cells must be at least 1, got {self.n_cells}")

    @property
    def event(self) -> Event:
        return _repeated(Laplace(self.scale), self.n_cells)

    def total_variation(self, n_draws: int) -> float:
        """Distance of `n_draws` draws from the ideal law (docs/noise.md, section 4)."""
        return n_draws * LAPLACE_VARIATION

    def __call__(self, value: Integers, reader: WordReader) -> Integers:
        """The value, int64 of any shape, plus one draw for each cell."""
        return _with_noise(value, reader, add_laplace, geometric_tables(self.scale))


@dataclass(frozen=True)
class NoNoise:
    """No noise and no privacy: for epsilon = inf."""

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


@dataclass(frozen=True)
class RandomizedBits:
    """Randomized response on bits, independently, in time and memory of the ones only.

    A bit 0 is reported as 1 with `probability`, a bit 1 as 0 with the same probability or, with
    `fair_ones`, with probability 1/2 (optimized unary encoding). The flips of a long run of bits
    are found by geometric skips from one to the next, which are floored Laplace noise without its
    sign.

    The scale of the skips is a float and the ratio of their law is exp(-1/scale) exactly. It is
    2**-48 of itself below the float nearest to the scale meant, which is more than all rounding
    errors, here and in the price: the true flip probability is above `probability` by a relative
    2**-49 to 2**-47, and never above 1/2, so every log-ratio is below the one that is charged.

    **Privacy.** Unit: a bit, or a vector of bits with at most so many ones. Relation: replaced by
    any other. Sensitivity: the number of bits that differ. Event: `events`, up to
    `total_variation`; the proof is in docs/local_privacy.md.

    Parameters
    ----------
    probability : float
        From 1.2e-5 to 0.4999999.
    fair_ones : bool, default=False
    """

    probability: float
    fair_ones: bool = False

    def __post_init__(self) -> None:
        if not MIN_FLIP <= self.probability <= MAX_FLIP:
            raise ValueError(
                f"the probability of a flip must be from {MIN_FLIP} to {MAX_FLIP}, got "
                f"{self.probability}"
            )

    @property
    def scale(self) -> float:
        """Scale of the Laplace law whose floor, without its sign, is the number of bits skipped."""
        return -1.0 / math.log1p(-self.probability) * (1.0 - 2.0**-48)

    @property
    def one_probability(self) -> tuple[float, float]:
        """Probability that a bit 0, and a bit 1, is reported as 1."""
        return self.probability, 0.5 if self.fair_ones else 1.0 - self.probability

    @property
    def log_ratios(self) -> tuple[float, float]:
        """Log-ratio of the probabilities, under either bit, of reporting 1, and of reporting 0."""
        zero, one = self.one_probability
        return math.log(one / zero), math.log((1.0 - zero) / (1.0 - one))

    @property
    def epsilon(self) -> float:
        """Pure epsilon of one bit."""
        return max(self.log_ratios)

    def events(self, max_ones: int, n_bits: int) -> tuple[Event, ...]:
        """What it costs to replace `n_bits` bits, `max_ones` of them 1 at most, by such others."""
        n_ones = min(max_ones, n_bits)
        n_pairs = min(n_ones, n_bits - n_ones)  # a one of the one vector and a one of the other
        flip = RandomizedResponse(2.0 * self.probability)
        if not self.fair_ones:
            return (_repeated(flip, n_ones + n_pairs),)
        single = RandomizedResponse(4.0 * self.probability / (1.0 + 2.0 * self.probability))
        counted = ((flip, n_pairs), (single, n_ones - n_pairs))
        return tuple(_repeated(event, n) for event, n in counted if n)

    def total_variation(self, n_draws: int) -> float:
        """Distance of `n_draws` skips from the ideal law (docs/noise.md, section 4)."""
        return n_draws * LAPLACE_VARIATION

    def __call__(
        self, ones: Integers, n_bits: int, flips: WordReader, coins: WordReader
    ) -> Integers:
        """Randomize a run of bits.

        Parameters
        ----------
        ones : ndarray of shape (n_ones,), int64
            Increasing positions of the ones.
        n_bits : int
            Length of the run.
        flips, coins : WordReader
            The response to a bit depends on the position and the words only: a shorter run with
            the same words has the same responses.

        Returns
        -------
        reported : ndarray of shape (n_reported,), int64
            Increasing positions of the ones of the report.
        """
        if self.fair_ones:  # a coin stays fair, whether a flip comes on top or not
            ones = ones[_coins(ones, n_bits, coins)]
        return _in_one_only(ones, self._flipped(n_bits, flips))

    def _flipped(self, n_bits: int, reader: WordReader) -> Integers:
        """Increasing positions, each of which is there with the flip probability."""
        pieces, last = [], -1
        tables, zeros = geometric_tables(self.scale), np.zeros(PIECE, np.int64)
        while last < n_bits:
            skips = _with_noise(zeros, reader, add_laplace, tables)
            skips ^= skips >> 63  # -1 - m becomes m
            skips += 1
            skips[0] += last
            pieces.append(np.cumsum(skips, out=skips))
            last = int(skips[-1])
        flipped = np.concatenate(pieces)
        return flipped[: np.searchsorted(flipped, n_bits)]


@dataclass(frozen=True, eq=False)
class Survivors:
    """The coordinates of noisy one-hot vectors that are above the threshold, token by token.

    Attributes
    ----------
    ptr : ndarray of shape (n_tokens + 1,), int64
        Where each token's survivors begin.
    word : ndarray of shape (n_survivors,), int32
        Coordinates, increasing within a token.
    level : ndarray of shape (n_survivors,), uint16
        Steps by which the value exceeds the threshold, at most 4095.
    """

    ptr: Integers
    word: NDArray[np.int32]
    level: NDArray[np.uint16]


@dataclass(frozen=True)
class ThresholdedLaplace:
    """Laplace noise on one-hot vectors, rounded down to a grid, small values not reported.

    A token of word w is the vector that is 1 at w and 0 elsewhere. It gets Laplace noise of scale
    1 / epsilon on every coordinate; what is reported is floor(y / STEP) for each y that is at
    least the threshold, and nothing for the others. As 1 and the threshold are multiples of the
    step, this is a post-processing of the continuous mechanism, coordinate by coordinate:

    * a coordinate 0 survives with probability exp(-epsilon * threshold) / 2, and then exceeds the
      threshold by a geometric number of steps; survivors are found by geometric gaps;
    * the coordinate w is 1 / STEP steps plus `FlooredLaplace`.

    The scale in steps is the float next above 1 / (epsilon * STEP), and every table is made of that
    float with 90 digits. So the mechanism that runs is that of a slightly smaller epsilon, exactly.

    **Privacy.** Unit: token. Relation: blanked, that is w becomes "no word" (one coordinate moves
    by 1); replaced by another word is two of these events. Sensitivity: 1. Event: `Laplace(scale)`,
    up to `total_variation`.

    Parameters
    ----------
    epsilon : float
        From 0.011 to 100.
    threshold : float
        Above 0 and below 1; the nearest multiple of the step counts.
    """

    epsilon: float
    threshold: float

    STEP: ClassVar[float] = 2.0**-10
    MAX_LEVEL: ClassVar[int] = N_COLUMNS - 1
    MAX_EPSILON: ClassVar[float] = 100.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold_steps < 1 / self.STEP:
            raise ValueError(
                f"the threshold must be from {self.STEP} to {1 - self.STEP}, got {self.threshold}"
            )
        lowest = 1 / (MAX_SCALE * self.STEP)
        if not lowest <= self.epsilon <= self.MAX_EPSILON:
            raise ValueError(
                f"epsilon must be from {lowest:.2g} to {self.MAX_EPSILON:g}, got {self.epsilon}"
            )
        if self.survival < MIN_FLIP:
            raise ValueError(
                f"epsilon * threshold must be at most {-math.log(2 * MIN_FLIP):.4g}, got "
                f"{self.epsilon * self.threshold:.4g}; lower the threshold"
            )

    @property
    def threshold_steps(self) -> int:
        return round(self.threshold / self.STEP)

    @property
    def scale_steps(self) -> float:
        """Scale of the noise in steps: a float, rounded up."""
        return math.nextafter(1.0 / (self.epsilon * self.STEP), math.inf)

    @property
    def scale(self) -> float:
        return self.scale_steps * self.STEP

    @property
    def survival(self) -> float:
        """Probability that a coordinate 0 survives."""
        return 0.5 * math.exp(-self.threshold_steps / self.scale_steps)

    @property
    def event(self) -> Event:
        return Laplace(self.scale)

    def total_variation(self, n_draws: int) -> float:
        """Distance of `n_draws` draws of three look-ups from the ideal law."""
        return 1.5 * n_draws * LAPLACE_VARIATION

    def own_levels(self, n_tokens: int, reader: WordReader) -> NDArray[np.int32]:
        """The level of each token's own coordinate, -1 if it does not survive; any word's alike."""
        one = np.full(n_tokens, round(1 / self.STEP), np.int64)
        noisy = FlooredLaplace(self.scale_steps)(one, reader) - self.threshold_steps
        return np.clip(noisy, -1, self.MAX_LEVEL).astype(np.int32)

    def survivors(
        self,
        own_word: NDArray[np.int32],
        own_level: NDArray[np.int32],
        n_words: int,
        reader: WordReader,
    ) -> Survivors:
        """Survivors of tokens, of which `own_word` and `own_level` give one coordinate each.

        A function of its arguments: the same reader from its beginning gives the same survivors.
        A coordinate `own_word` of -1 is that of a blank token.
        """
        n_tokens = len(own_word)
        tables, wide = survivor_tables(self.scale_steps, self.threshold_steps)
        expected = n_tokens * n_words * self.survival
        n_asked = int(expected + 6 * math.sqrt(expected)) + 16  # nearly always enough
        ptr = np.zeros(n_tokens + 1, np.int64)
        word = np.empty(n_asked + n_tokens + 1, np.int32)
        level = np.empty(len(word), np.uint16)
        state = np.array([0, 0, 0, 1], np.int64)
        words, spare = reader.words(n_asked), reader.words(n_asked // 64 + 64, spare=True)
        while n_tokens:
            n_done, n_used = find_survivors(
                words, spare, tables.fast, tables.slow, wide, n_words,
                own_word, own_level, ptr, word, level, state,
            )  # fmt: skip
            words, spare = words[n_done:], spare[n_used:]
            if state[0] == n_tokens:
                break
            if words.size:  # it stopped at a tie
                spare = np.concatenate([spare, reader.words(SPARE_PIECE, spare=True)])
            else:
                words = reader.words(SPARE_PIECE)
                room = int(state[2]) + SPARE_PIECE + n_tokens + 1
                word, level = np.resize(word, room), np.resize(level, room)
        return Survivors(ptr, word[: ptr[-1]], level[: ptr[-1]])


def _coins(positions: Integers, n_bits: int, reader: WordReader) -> NDArray[np.bool_]:
    """A fair coin for each of some positions: a bit of the stream at that position."""
    words = reader.words(-(-n_bits // 64))
    shifts = (positions & 63).astype(np.uint64)
    coins: NDArray[np.bool_] = (words[positions >> 6] >> shifts & np.uint64(1)).astype(np.bool_)
    return coins


def _in_one_only(a: Integers, b: Integers) -> Integers:
    """Symmetric difference of two increasing sequences, increasing."""
    both = np.concatenate([a, b])
    both.sort(kind="stable")  # merges the two in linear time
    alone = np.ones(both.size, np.bool_)
    differs = both[1:] != both[:-1]
    alone[1:] &= differs
    alone[:-1] &= differs
    return both[alone]


def _repeated(event: Event, count: int) -> Event:
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
