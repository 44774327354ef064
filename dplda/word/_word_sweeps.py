"""Word-level privacy of HDP-LDA: the mechanisms of a sweep, and the private tokens.

`SweepMechanisms` holds public constants only. The functions on tokens hold private data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import Corpus
from dplda.core._private_fit import exactly_one
from dplda.kernels import _release
from dplda.leaf._checks import check_number
from dplda.leaf._threads import in_threads, n_threads
from dplda.privacy import NonPrivate, Repeated, calibrate
from dplda.privacy._accounting import is_chargeable
from dplda.privacy._curator import TOTAL_VARIATION
from dplda.privacy._events import BoundedRange, Event
from dplda.privacy._mechanisms import DiscreteGaussian, FlooredLaplace, NoNoise, count_unit
from dplda.privacy._streams import Purpose, Streams, uniform_integers
from dplda.word._gibbs import MAX_COMPONENTS, TOPIC
from dplda.word._half_table import LARGEST_CLIP, row_pieces

# Range of the noise tables: scales 2 / epsilon from 0.05 to 80000.
SMALLEST_EPSILON, LARGEST_EPSILON = 2.5e-5, 40.0
LARGEST_DRAW = 2**24  # bound of a draw of Laplace noise; that of Gaussian noise is smaller
LARGEST_NOISE = 9601.0  # Gaussian noise multiplier
PIECE = 1 << 16  # random words at a time


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Mean of one or more released tables (n_words, n_components), kept as their sum.

    Attributes
    ----------
    total : ndarray of shape (n_words, n_components), int32, int64 or float64
        Public. Sum of the releases.
    n : int
        Number of releases.
    noise_mean, unit : float
        What the sum stands for: the mean of the counts is (total - noise_mean) / unit, unbiased.
    """

    total: np.ndarray
    n: int = 0
    noise_mean: float = 0.0
    unit: float = 0.0

    def add(self, other: NoisyCounts, n_jobs: int | None = None) -> NoisyCounts:
        """The mean of the releases of both; `total` is added to in place where it can be."""
        if self.unit * other.n != self.n * other.unit:  # a call of `partial_fit` with other noise
            return self._in_tokens().add(other._in_tokens())
        add_rows(self.total, other.total, n_jobs)
        return NoisyCounts(
            self.total,
            self.n + other.n,
            self.noise_mean + other.noise_mean,
            self.unit + other.unit,
        )

    def copy(self) -> NoisyCounts:
        """A copy with room for more releases."""
        return replace(self, total=self.total.astype(np.result_type(self.total, np.int64)))

    def mean(self, n_jobs: int | None = None) -> np.ndarray:
        """The mean of the unbiased counts, float64."""
        mean = np.empty(self.total.shape)

        def divide(rows: slice) -> None:
            np.subtract(self.total[rows], self.noise_mean, out=mean[rows])
            mean[rows] /= self.unit

        in_threads(divide, row_pieces(*self.total.shape), n_jobs)
        return mean

    def _in_tokens(self) -> NoisyCounts:
        return NoisyCounts(self.n * self.mean(), self.n, 0.0, float(self.n))


@dataclass(frozen=True, eq=False)
class TokensByWord:
    """The private tokens word by word, so that threads count disjoint words.

    Attributes
    ----------
    ptr : ndarray of shape (n_words + 1,), int64
        Where each word's tokens begin in `token`.
    token : ndarray of shape (n_tokens,), int32
        Position of each token in the corpus.
    """

    ptr: np.ndarray
    token: np.ndarray

    @classmethod
    def from_corpus(cls, corpus: Corpus) -> TokensByWord:
        ptr, token = np.empty(corpus.n_words + 1, np.int64), np.empty(corpus.n_tokens, np.int32)
        _release.list_by_word(corpus.word, ptr, token)
        return cls(ptr, token)

    def count(
        self, topics: np.ndarray, unit: int, counts: np.ndarray, n_jobs: int | None
    ) -> np.ndarray:
        """Write the exact word-topic counts, times `unit`, over `counts`; private."""
        _release.count_topics(self.ptr, self.token, topics, unit, counts, n_threads(n_jobs))
        return counts


def add_rows(total: np.ndarray, table: np.ndarray, n_jobs: int | None) -> None:
    """Add a table to `total`, in place."""
    in_threads(
        lambda rows: np.add(total[rows], table[rows], out=total[rows]),
        row_pieces(*total.shape), n_jobs,
    )  # fmt: skip


def shuffled_tokens(X: sp.csr_array, streams: Streams, t: int, n_jobs: int | None = None) -> Corpus:
    """The private tokens; the order within a document is random and independent of its words."""
    return Corpus.from_counts(X).shuffled(streams, t, n_jobs)


def uniform_topics(corpus: Corpus, n_components: int, streams: Streams) -> np.ndarray:
    """First topics, (n_tokens,): uniform, and independent of the words."""
    reader = streams.reader(Purpose.TOPICS, 0)
    topics = np.empty(corpus.n_tokens, TOPIC)
    for start in range(0, len(topics), PIECE):
        part = topics[start : start + PIECE]
        part[:] = uniform_integers(reader.words(len(part)), n_components)
    return topics


def inherent_epsilon(count_clip: float, topic_word_prior: float) -> float:
    """Range of one topic draw from clipped counts, ``2 log(C / beta + 1)``, as in HDP-LDA [1]_.

    Parameters
    ----------
    count_clip : float
        Largest count C that the draw uses, above 0.
    topic_word_prior : float
        Pseudo-count beta that is added to each count, above 0.

    Returns
    -------
    float
        The epsilon of a `BoundedRange` event: one draw per sweep depends on the protected word.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training With Differential Privacy", IEEE TIFS, 2020.
    """
    clip = check_number("count_clip", count_clip, 0.0, 1e300, closed="right")
    prior = check_number("topic_word_prior", topic_word_prior, 0.0, 1e300, closed="right")
    return 2.0 * math.log1p(clip / prior)


@dataclass(frozen=True)
class SweepMechanisms:
    """The mechanisms of one sweep. Every field is a public constant.

    Attributes
    ----------
    mechanism : mechanism
        Noise of the counts, in units of 1 / `unit`.
    unit : int
        Integer by which counts are multiplied before the noise.
    topic_event : Event
        Privacy cost of the draw of one token's topic.
    count_clip : float
        Upper end of the clip.
    noise_epsilon, sampling_epsilon : float
        Pure epsilon of the noise and of the topic draws.
    sensitivity : float
        Sensitivity of the counts: 2 in L1 for Laplace noise, sqrt(2) in L2 for Gaussian noise.
    noise : str
        Name of the noise.
    """

    mechanism: Any
    unit: int
    topic_event: Event
    count_clip: float
    noise_epsilon: float
    sampling_epsilon: float
    sensitivity: float
    noise: str

    @classmethod
    def from_statement(
        cls,
        noise: str,
        *,
        epsilon: float | None,
        noise_epsilon: float | None,
        noise_multiplier: float | None,
        count_clip: float | None,
        delta: float,
        max_iter: int,
        topic_word_prior: float,
    ) -> SweepMechanisms:
        """Split a total epsilon evenly, or take the noise and the clip of a sweep as given."""
        if epsilon is None:
            assert count_clip is not None  # `check_word_level` has refused None
            return cls.from_noise(
                noise, noise_epsilon, noise_multiplier, count_clip, topic_word_prior
            )
        if math.isinf(epsilon):
            return cls.without_noise()

        def even_split(scale: float) -> SweepMechanisms:
            """Noise and draw at 1 / (2 scale**2)-zCDP each, per sweep."""
            clip = float(topic_word_prior) * math.expm1(min(1 / scale, 12.0))
            laplace_epsilon = min(max(math.sqrt(2) / scale, SMALLEST_EPSILON), LARGEST_EPSILON)
            multiplier = min(scale, LARGEST_NOISE)  # the draws alone cost less beyond
            return cls.from_noise(noise, laplace_epsilon, multiplier, clip, topic_word_prior)

        def planned(mechanisms: SweepMechanisms) -> list[Event]:
            """The plan of `fit`: nothing reads topics after the last release."""
            noise, draw = mechanisms.sweep_events
            draws = [Repeated(draw, max_iter - 1)] if max_iter > 1 else []
            return [Repeated(noise, max_iter), *draws]

        # `max_iter` calls of `partial_fit` release what `fit` does, but each of them adds to the
        # distance from ideal noise. Where their sum can be charged to delta, it covers both.
        distance = max_iter * TOTAL_VARIATION
        if not is_chargeable(distance, float(epsilon), float(delta)):
            distance = TOTAL_VARIATION
        scale = calibrate(
            lambda s: planned(even_split(s)),
            float(epsilon),
            float(delta),
            total_variation=distance,
        )
        return even_split(scale)

    @classmethod
    def from_noise(
        cls,
        noise: str,
        noise_epsilon: float | None,
        noise_multiplier: float | None,
        count_clip: float,
        topic_word_prior: float,
    ) -> SweepMechanisms:
        """Take the noise and the clip of a sweep as given."""
        sampling_epsilon = inherent_epsilon(count_clip, topic_word_prior)
        topic_event = BoundedRange(sampling_epsilon)
        if noise == "gaussian":
            assert noise_multiplier is not None
            gaussian = DiscreteGaussian.for_noise_multiplier(float(noise_multiplier))
            # A replaced word moves two counts by one each: sqrt(2) units in L2, at most `radius`
            # in integers.
            unit = count_unit(gaussian.radius, n_moved=2)
            return cls(
                gaussian, unit, topic_event, count_clip, math.inf, sampling_epsilon, math.sqrt(2),
                "discrete Gaussian",
            )  # fmt: skip
        assert noise_epsilon is not None
        # A replaced word moves two counts by one each: 2 in L1.
        laplace = FlooredLaplace(2 / float(noise_epsilon), n_cells=2)
        return cls(
            laplace, 1, topic_event, count_clip, noise_epsilon, sampling_epsilon, 2.0,
            "floored Laplace",
        )  # fmt: skip

    @classmethod
    def without_noise(cls) -> SweepMechanisms:
        """No noise, and a clip that few counts reach."""
        return cls(NoNoise(), 1, NonPrivate(), 1e5, math.inf, math.inf, 2.0, "no")

    @property
    def sweep_events(self) -> list[Event]:
        """Events of one sweep: the noisy counts, and the draw of one token's topic."""
        return [self.mechanism.event, self.topic_event]

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of a count."""
        if isinstance(self.mechanism, (DiscreteGaussian, NoNoise)):
            return self.mechanism.scale / self.unit
        # floor(L) + 1/2 is symmetric, and geometric to either side of zero
        q = math.exp(-1 / self.mechanism.scale)
        return math.sqrt(q / (1 - q) ** 2 + ((1 + q) / (1 - q) / 2) ** 2) / self.unit

    def integers(self, n_tokens: int, n_releases: int) -> type[np.signedinteger]:
        """The integer type that holds the sum of some releases of at most `n_tokens` counts."""
        largest = n_releases * (self.unit * n_tokens + LARGEST_DRAW)
        return np.int32 if largest < 2**31 else np.int64

    def unbiased(self, noisy: np.ndarray) -> np.ndarray:
        """Released integers as unbiased counts, float64."""
        return (noisy - self.mechanism.mean) / self.unit


def check_word_level(
    noise: str,
    *,
    epsilon: float | None,
    noise_epsilon: float | None,
    noise_multiplier: float | None,
    count_clip: float | None,
    n_components: int,
    topic_word_prior: float,
) -> None:
    """Refuse contradictory or missing statements of the budget; the error says what to give."""
    exactly_one(
        "HDPLDA",
        epsilon=epsilon,
        noise_epsilon=noise_epsilon,
        noise_multiplier=noise_multiplier,
    )
    name = "noise_epsilon" if noise == "laplace" else "noise_multiplier"
    stated = noise_epsilon if noise == "laplace" else noise_multiplier
    if epsilon is None and stated is None:
        raise ValueError(
            f"with noise={noise!r} give epsilon, or {name} and count_clip "
            "(noise_epsilon belongs to Laplace noise, noise_multiplier to Gaussian noise)"
        )
    if (epsilon is None) == (count_clip is None):
        raise ValueError(
            f"give count_clip together with {name}, and not with epsilon (which is split between "
            f"noise and topic sampling); got epsilon={epsilon}, count_clip={count_clip}"
        )
    if n_components > MAX_COMPONENTS:
        raise ValueError(
            f"n_components must be at most {MAX_COMPONENTS} for HDPLDA, got {n_components}"
        )
    if count_clip is not None and count_clip > topic_word_prior * LARGEST_CLIP:
        raise ValueError(
            f"count_clip may be at most {LARGEST_CLIP} times topic_word_prior "
            f"({topic_word_prior}), got {count_clip}; such a clip protects nothing"
        )
