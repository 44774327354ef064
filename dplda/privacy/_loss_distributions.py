"""Privacy loss distributions on a grid: upper bounds that compose by convolution.

A distribution has a mass at each multiple of an interval, and one at infinity. The method is
"connect the dots" (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022): masses are chosen so that
delta is exact at the points of the grid, and linear in exp(epsilon) between them, which bounds it
from above. The formulas and the order of operations are those of dp_accounting 0.6 (Apache License
2.0, LICENSE-dp-accounting): results are equal to the last bit, which tests compare. Two things
differ. That library adds the interval up from point to point, and after hundreds of thousands of
sums the rounding error is larger than what is charged to delta. Here a loss is a product. And the
moments that bound the range of a power are computed one from the other, which is faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Mass at both ends of a composition that may be moved: to infinity, or to the smallest loss.
_TAIL = 1e-15
_LOG_TAIL_OF_NOISE = -50.0
_MAX_INCREASE = 1e-12  # of delta from one point of the grid to the next, by rounding
_MAX_ORDER = 20  # of the moments that bound the range of a power
_PIECE = 1 << 12  # losses that are read at a time
_SMALL = 1000  # points of a distribution of which one step alone is not transformed


@dataclass(frozen=True, eq=False)
class Losses:
    """Privacy losses of one order of two neighbors.

    Parameters
    ----------
    interval : float
        Distance between two points of the grid.
    first : int
        The smallest loss is ``first * interval``.
    masses : ndarray
        Mass of each loss.
    infinite : float
        Mass of the infinite loss.
    composed : bool, default=False
        Whether this is a composition.
    """

    interval: float
    first: int
    masses: FloatArray
    infinite: float
    composed: bool = False

    @classmethod
    def connect(cls, interval: float, first: int, deltas: FloatArray) -> Losses:
        """Connect the dots: deltas at the epsilons ``(first + i) * interval``, not increasing."""
        if not ((deltas >= 0).all() and (deltas <= 1).all()):
            raise ValueError("a delta is not between 0 and 1")
        steps = np.diff(deltas)
        if (steps > _MAX_INCREASE).any():
            raise ValueError("delta increases with epsilon")
        deltas = np.minimum.accumulate(deltas)
        if len(deltas) == 1:
            return cls(interval, first, 1 - deltas, float(deltas[0]))
        steps = np.diff(deltas)
        masses = np.zeros_like(deltas)
        masses[0] = 1 - deltas[0] + steps[0] / math.expm1(interval)
        masses[1:-1] = (steps[1:] - steps[:-1] * math.exp(interval)) / math.expm1(interval)
        masses[-1] = steps[-1] / math.expm1(-interval)
        return cls(interval, first, np.maximum(0.0, masses), float(deltas[-1]))

    def compose(self, other: Losses) -> Losses:
        """Losses of both, which are independent."""
        from scipy.signal import fftconvolve

        masses = fftconvolve(self.masses, other.masses)
        infinite = self.infinite + other.infinite - self.infinite * other.infinite
        n_left = _n_negligible(masses)
        end = max(len(masses) - _n_negligible(masses[::-1]), n_left + 1)
        left, right = np.sum(masses[:n_left]), np.sum(masses[end:])
        masses = masses[n_left:end]
        masses[0] += left  # to a larger loss
        first = self.first + other.first + n_left
        return Losses(self.interval, first, masses, float(infinite + right), True)

    def self_compose(self, count: int) -> Losses:
        """Losses of `count` equal steps, by one transform."""
        from scipy import fft

        if count == 1 and len(self.masses) <= _SMALL and not self.composed:
            return self
        low, high = _range_of_power(self.masses, count)
        size = high - low + 1
        length = fft.next_fast_len(max(size, len(self.masses)))
        power = np.real(fft.ifft(fft.fft(self.masses, length) ** count))
        masses = np.roll(power, -low)[:size]  # the transform wraps around
        infinite = _TAIL - math.expm1(count * math.log1p(-self.infinite))
        return Losses(self.interval, self.first * count + low, np.array(masses), infinite, True)

    def get_epsilon_for_delta(self, delta: float) -> float:
        """The smallest epsilon of at least 0 that has this delta."""
        if self.infinite > delta:
            return math.inf
        upper, lower = self.infinite, 0.0
        for losses, masses in self._from_largest():
            ratios = _exp(-losses)
            ends = _total(upper, masses), _total(lower, ratios * masses)
            starts = lower > 0 and not _is_reached(*ends, delta, losses[-1])
            if ends[0] < delta or starts:  # the search does not end in this piece
                upper, lower = ends
                continue
            steps = zip(losses.tolist(), masses.tolist(), ratios.tolist(), strict=True)
            for loss, mass, ratio in steps:
                if _is_reached(upper, lower, delta, loss):
                    return _epsilon_of_sums(upper, lower, delta)
                upper += mass
                lower += ratio * mass
                if upper >= delta and lower == 0:  # exp(-loss) is too small for a float
                    return max(0.0, float(loss))
        return _epsilon_of_sums(upper, lower, delta)

    def _from_largest(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Losses and their masses in pieces, the largest loss first."""
        for end in range(len(self.masses), 0, -_PIECE):
            index = np.arange(end - 1, max(end - _PIECE, 0) - 1, -1)
            yield (self.first + index) * self.interval, self.masses[index]  # type: ignore[misc]

    def get_delta_for_epsilon(self, epsilons: Sequence[float]) -> FloatArray:
        """Delta at each of several epsilons."""
        losses = (np.arange(len(self.masses)) + self.first) * self.interval
        above = self.masses[::-1]
        upper = np.cumsum(np.concatenate([[self.infinite], above]))
        with np.errstate(over="ignore", under="ignore"):
            # a loss below -709, whose exponential is no number, is above no epsilon
            ratios = np.exp(np.minimum(-losses[::-1], 709.0))
            lower = np.cumsum(np.concatenate([[0.0], above * ratios]))
            n_above = len(losses) - np.searchsorted(losses, epsilons, side="right")
            factors = np.exp(np.minimum(epsilons, 709.0))
        deltas: FloatArray = upper[n_above] - np.where(n_above > 0, factors * lower[n_above], 0.0)
        return deltas


def _is_reached(upper: float, lower: float, delta: float, loss: float) -> bool:
    """Whether epsilon is at least this loss, by the masses of all larger losses under both laws."""
    return upper > delta and lower > 0 and math.log((upper - delta) / lower) >= loss


def _epsilon_of_sums(upper: float, lower: float, delta: float) -> float:
    return 0.0 if upper <= lower + delta else math.log((upper - delta) / lower)


def _exp(x: FloatArray) -> FloatArray:
    """With the bits of `math.exp`, which numpy's function does not have."""
    return np.array([math.exp(value) for value in np.minimum(x, 709.0).tolist()])


def _total(start: float, values: FloatArray) -> float:
    """The sum, one value after the other."""
    return float(np.cumsum(np.append(start, values))[-1])


def _n_negligible(masses: FloatArray) -> int:
    """How many of the first masses have at most half of the tail together."""
    too_much = np.cumsum(masses) > _TAIL / 2
    return int(np.argmax(too_much)) if too_much.any() else len(masses)


def _range_of_power(masses: FloatArray, count: int) -> tuple[int, int]:
    """Indices of a power outside of which there is at most the tail, by Chernoff's bound."""
    low, high = 0, (len(masses) - 1) * count
    for sign in (-1, 1):
        growth = np.exp(np.arange(len(masses)) * (sign / len(masses)))
        tilted = masses
        for order in range(1, _MAX_ORDER + 1):
            tilted = tilted * growth
            if not 0 < (mean := float(tilted.sum())) < math.inf:
                break
            log_tail = count * math.log(mean) + math.log(2 / _TAIL)
            bound = log_tail / (sign * order / len(masses))
            if sign > 0:
                high = min(high, math.ceil(bound))
            else:
                low = max(low, math.floor(bound))
    return low, high


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Losses of both orders of two neighbors.

    Parameters
    ----------
    removed : Losses
        If a unit is removed.
    added : Losses or None, default=None
        If it is added. None: the same.
    """

    removed: Losses
    added: Losses | None = None

    @property
    def n_masses(self) -> int:
        """Numbers that it holds."""
        return len(self.removed.masses) + (0 if self.added is None else len(self.added.masses))

    def _pair(self) -> tuple[Losses, Losses]:
        return self.removed, self.removed if self.added is None else self.added

    def compose(self, other: LossDistribution) -> LossDistribution:
        """The distribution of both, which are independent."""
        removed = self.removed.compose(other.removed)
        if self.added is None and other.added is None:
            return LossDistribution(removed)
        return LossDistribution(removed, self._pair()[1].compose(other._pair()[1]))

    def self_compose(self, count: int) -> LossDistribution:
        """The distribution of `count` equal steps."""
        added = None if self.added is None else self.added.self_compose(count)
        return LossDistribution(self.removed.self_compose(count), added)

    def get_epsilon_for_delta(self, delta: float) -> float:
        """The smallest epsilon of at least 0 that has this delta."""
        return max(losses.get_epsilon_for_delta(delta) for losses in self._pair())

    def get_delta_for_epsilon(self, epsilons: Sequence[float]) -> FloatArray:
        """Delta at each of several epsilons."""
        return np.maximum(*(losses.get_delta_for_epsilon(epsilons) for losses in self._pair()))


# ---- steps --------------------------------------------------------------------------------


@dataclass(frozen=True)
class GaussianLoss:
    """Laws of a Gaussian step of sensitivity 1: upper, on the data; lower, on the neighbor.

    Parameters
    ----------
    standard_deviation : float
        Of the noise.
    sampling_prob : float, default=1.0
        Probability that the unit takes part.
    removed : bool, default=True
        Whether the neighbor lacks the unit, or has it in addition.
    """

    standard_deviation: float
    sampling_prob: float = 1.0
    removed: bool = True

    def mu_upper_cdf(self, x: FloatArray) -> FloatArray:
        """Distribution function of the upper law."""
        if not self.removed:
            return self._cdf(x)
        if self.sampling_prob == 1.0:
            return self._cdf(np.add(x, 1.0))
        q = self.sampling_prob
        return (1 - q) * self._cdf(x) + q * self._cdf(np.add(x, 1.0))

    def mu_lower_log_cdf(self, x: FloatArray) -> FloatArray:
        """Logarithm of the distribution function of the lower law."""
        if self.removed:
            return self._log_cdf(x)
        q = self.sampling_prob
        log_in = np.log(q) + self._log_cdf(np.add(x, -1.0))
        mixed: FloatArray = np.logaddexp(np.log1p(-q) + self._log_cdf(x), log_in)
        return mixed

    def _cdf(self, x: FloatArray) -> FloatArray:
        from scipy.special import ndtr

        return ndtr(x / self.standard_deviation)  # type: ignore[no-any-return]

    def _log_cdf(self, x: FloatArray) -> FloatArray:
        from scipy.special import log_ndtr

        return log_ndtr(x / self.standard_deviation)  # type: ignore[no-any-return]

    def range(self) -> tuple[float, float]:
        """Losses between which all but a mass of exp(-50) lies."""
        from scipy.special import ndtri

        least = ndtri(0.5 * math.exp(_LOG_TAIL_OF_NOISE)) * self.standard_deviation
        if self.removed:
            return self._loss(-least), self._loss(least - 1.0)
        return -self._loss(-(-least + 1.0)), -self._loss(-least)

    def _loss(self, x: float) -> float:
        """Loss of an outcome, if the unit is removed."""
        loss = (-0.5 - x) / (self.standard_deviation**2)
        if self.sampling_prob == 1.0:
            return float(loss)
        return _log_mixture(self.sampling_prob, float(loss))


def _log_mixture(q: float, x: float) -> float:
    """log(1 - q + q exp(x)) without overflow."""
    if x == 0.0:
        return float(np.log(q + (1 - q)))
    some, rest = x + np.log(q), np.log(1 - q)
    low, high = min(some, rest), max(some, rest)
    return float(high + np.log1p(np.exp(low - high)))


def gaussian_distribution(noise_multiplier: float, interval: float) -> LossDistribution:
    """Of a Gaussian step without sampling."""
    loss = GaussianLoss(noise_multiplier)
    low, high = loss.range()
    first, last = math.floor(low / interval), math.ceil(high / interval)
    epsilons = np.arange(first, last + 1, dtype=np.float64) * interval
    cuts = -0.5 - epsilons * (noise_multiplier**2)
    deltas = loss.mu_upper_cdf(cuts) - np.exp(epsilons + loss.mu_lower_log_cdf(cuts))
    return LossDistribution(Losses.connect(interval, first, np.clip(deltas, 0, 1)))


def laplace_distribution(scale: float, interval: float) -> LossDistribution:
    """Of a Laplace step of sensitivity 1."""
    from scipy.stats import laplace

    noise, largest = laplace(scale=scale), 1.0 / scale
    first, last = math.floor(-largest / interval), math.ceil(largest / interval)
    epsilons = np.arange(first, last + 1, dtype=np.float64) * interval
    at = epsilons * scale
    cuts = np.where(at > 1, -math.inf, np.where(at <= -1, math.inf, 0.5 * (-1 - at)))
    deltas = noise.cdf(np.add(cuts, 1.0)) - np.exp(epsilons + noise.logcdf(cuts))
    return LossDistribution(Losses.connect(interval, first, np.clip(deltas, 0, 1)))


def distribution_of_law(
    losses: FloatArray, probabilities: FloatArray, interval: float, lost: float
) -> LossDistribution:
    """Of a law of finitely many losses, which increase, and of a mass that is lost.

    An outcome becomes two, on the points of the grid around its loss, with the same probability in
    sum under either input. To forget which of the two it was gives the outcome back: this grid is
    an upper bound, and its error is of second order in the interval.
    """
    below = np.floor(losses / interval)
    to_above = (below + 1.0) * interval - losses
    stays = np.clip(np.expm1(to_above) / math.expm1(interval), 0.0, 1.0) * probabilities
    first = int(below[0])
    index = (below - first).astype(np.int64)
    masses: FloatArray = np.bincount(index, stays, index[-1] + 2).astype(np.float64)
    masses += np.bincount(index + 1, probabilities - stays, index[-1] + 2)
    return LossDistribution(Losses(interval, first, masses, lost))
