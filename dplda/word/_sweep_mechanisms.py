"""The mechanisms of a sweep of HDP-LDA, and the mean of what it releases: public values only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplda.leaf._checks import check_number
from dplda.leaf._threads import in_threads
from dplda.privacy import NonPrivate, Repeated, calibrate
from dplda.privacy._accounting import is_chargeable
from dplda.privacy._curator import TOTAL_VARIATION
from dplda.privacy._events import BoundedRange, Event
from dplda.privacy._mechanisms import FlooredLaplace, NoNoise
from dplda.word._frozen_table import row_pieces

# Range of the noise tables: scales 2 / epsilon from 0.05 to 80000.
SMALLEST_EPSILON, LARGEST_EPSILON = 2.5e-5, 40.0
LARGEST_DRAW = 2**24  # bound of a draw of noise
SENSITIVITY = 2.0  # of the counts, in L1: a replaced word moves two of them by one each


def inherent_epsilon(count_clip: float, topic_word_prior: float) -> float:
    """Range of one topic draw from clipped counts, ``2 log(C / beta + 1)``, as in HDP-LDA.

    It is the epsilon of a `BoundedRange` event: one draw of a sweep depends on the protected word.
    """
    clip = check_number("count_clip", count_clip, 0.0, 1e300, closed="right")
    prior = check_number("topic_word_prior", topic_word_prior, 0.0, 1e300, closed="right")
    return 2.0 * math.log1p(clip / prior)


@dataclass(frozen=True)
class SweepMechanisms:
    """The mechanisms of one sweep."""

    mechanism: Any  # noise of the counts
    topic_event: Event  # cost of the draw of one token's topic
    count_clip: float  # upper end of the clip
    noise_epsilon: float  # pure epsilon of the noise
    sampling_epsilon: float  # and of the topic draws

    @classmethod
    def from_total(
        cls, epsilon: float, delta: float, max_iter: int, topic_word_prior: float
    ) -> SweepMechanisms:
        """Split a total epsilon evenly between the noise and the draws of all sweeps, in zCDP."""
        if math.isinf(epsilon):  # no noise, and a clip that few counts reach
            return cls(NoNoise(), NonPrivate(), 1e5, math.inf, math.inf)

        def even_split(scale: float) -> SweepMechanisms:
            """Noise and draw at 1 / (2 scale**2)-zCDP each, per sweep."""
            clip = float(topic_word_prior) * math.expm1(min(1 / scale, 12.0))
            level = min(max(math.sqrt(2) / scale, SMALLEST_EPSILON), LARGEST_EPSILON)
            return cls.from_noise(level, clip, topic_word_prior)

        def planned(mechanisms: SweepMechanisms) -> list[Event]:
            """The plan of `fit`: nothing reads topics after the last release."""
            draws = [Repeated(mechanisms.topic_event, max_iter - 1)] if max_iter > 1 else []
            return [Repeated(mechanisms.mechanism.event, max_iter), *draws]

        # `max_iter` calls of `partial_fit` release what `fit` does, but each of them adds to the
        # distance from ideal noise. Where their sum can be charged to delta, it covers both.
        distance = max_iter * TOTAL_VARIATION
        if not is_chargeable(distance, epsilon, delta):
            distance = TOTAL_VARIATION
        return even_split(
            calibrate(
                lambda scale: planned(even_split(scale)), epsilon, delta, total_variation=distance
            )
        )

    @classmethod
    def from_noise(
        cls, noise_epsilon: float, count_clip: float, topic_word_prior: float
    ) -> SweepMechanisms:
        """Laplace noise of an epsilon, and the clip."""
        sampling_epsilon = inherent_epsilon(count_clip, topic_word_prior)
        noise = FlooredLaplace(SENSITIVITY / float(noise_epsilon), n_cells=2)
        draw = BoundedRange(sampling_epsilon)
        return cls(noise, draw, count_clip, noise_epsilon, sampling_epsilon)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of a count."""
        if self.mechanism.scale == 0:
            return 0.0
        # floor(L) + 1/2 is symmetric, and geometric to either side of zero
        q = math.exp(-1 / self.mechanism.scale)
        return math.sqrt(q / (1 - q) ** 2 + ((1 + q) / (1 - q) / 2) ** 2)

    def integers(self, n_tokens: int, n_releases: int) -> type[np.signedinteger]:
        """The integer type that holds the sum of some releases of at most `n_tokens` counts."""
        largest = n_releases * (n_tokens + LARGEST_DRAW)
        return np.int32 if largest < 2**31 else np.int64


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Releases of word-topic counts by one mechanism: public."""

    total: np.ndarray  # sum of the releases, (n_words, n_components), int32 or int64
    n: int  # of releases
    mechanisms: SweepMechanisms

    @property
    def noise_mean(self) -> float:
        """Mean of the noise in the sum: (total - noise_mean) / n are unbiased mean counts."""
        return self.n * self.mechanisms.mechanism.mean

    def mean(self, n_jobs: int | None = None) -> np.ndarray:
        """The mean of the unbiased counts, float64."""
        mean = np.empty(self.total.shape)

        def divide(rows: slice) -> None:
            np.subtract(self.total[rows], self.noise_mean, out=mean[rows])
            mean[rows] /= self.n

        in_threads(divide, row_pieces(*self.total.shape), n_jobs)
        return mean
