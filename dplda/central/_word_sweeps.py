"""Word-level privacy of HDP-LDA: what one sweep does and costs, and what it starts from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplda._checks import check_number
from dplda._corpus import Corpus
from dplda._gibbs import LARGEST_WEIGHT, MAX_COMPONENTS
from dplda._private_fit import exactly_one
from dplda.privacy import BoundedRange, Event, NonPrivate, calibrate
from dplda.privacy._curator import TOTAL_VARIATION
from dplda.privacy._streams import Purpose, Streams, uniform_integers
from dplda.privacy.mechanisms import DiscreteGaussian, FlooredLaplace, NoNoise

# What the noise tables reach: scales 2 / epsilon from 0.05 to 80000.
SMALLEST_EPSILON, LARGEST_EPSILON = 2.5e-5, 40.0


@dataclass(frozen=True)
class Average:
    """Running mean of released tables (n_words, n_components)."""

    mean: np.ndarray
    n: int

    @classmethod
    def empty(cls, n_words: int, n_components: int) -> Average:
        return cls(np.zeros((n_words, n_components)), 0)

    def add(self, noisy: np.ndarray) -> Average:
        return Average(self.mean + (noisy - self.mean) / (self.n + 1), self.n + 1)


def tokens_of(X: Any, streams: Streams, round: int) -> Corpus:
    """The private tokens, each document's in an order that tells nothing of its words."""
    corpus = Corpus.from_counts(X)
    keys = streams.words(Purpose.ORDER, round, 0, 2 * corpus.n_tokens)
    return corpus.shuffled(keys.reshape(2, -1))


def uniform_topics(corpus: Corpus, n_components: int, streams: Streams) -> np.ndarray:
    """Topics that depend on no word: where `fit` begins."""
    words = streams.words(Purpose.TOPICS, 0, 0, corpus.n_tokens)
    return uniform_integers(words, n_components).astype(np.int32)


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
class SweepPrices:
    """What one sweep does and costs; public constants.

    Attributes
    ----------
    mechanism : mechanism
        Of the counts, in units of 1 / `unit`.
    unit : int
        Counts are multiplied by it before the noise.
    topic_event : Event
        Price of the draw of one token's topic.
    count_clip : float
        Upper end of the clip.
    noise_epsilon, sampling_epsilon : float
        Pure epsilon of both.
    sensitivity : float
        Of the counts: 2 in L1 for Laplace noise, sqrt(2) in L2 for Gaussian.
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


def sweep_prices(estimator: Any) -> SweepPrices:
    """From the parameters of a word-level fit to the mechanisms of a sweep."""
    _check_word_level(estimator)
    if estimator.epsilon is None:
        return _prices(
            estimator, estimator.noise_epsilon, estimator.noise_multiplier, estimator.count_clip
        )
    if math.isinf(estimator.epsilon):
        return _free_sweep()
    scale = calibrate(
        lambda s: _events(_even_split(estimator, s), estimator.max_iter),
        float(estimator.epsilon),
        float(estimator.delta),
        total_variation=TOTAL_VARIATION,
    )
    return _even_split(estimator, scale)


def _events(prices: SweepPrices, n_sweeps: int) -> list[Event]:
    return [prices.mechanism.event, prices.topic_event] * n_sweeps


def _even_split(estimator: Any, scale: float) -> SweepPrices:
    """Noise and draw at 1 / (2 scale**2)-zCDP each, per sweep."""
    count_clip = float(estimator.topic_word_prior) * math.expm1(min(1 / scale, 12.0))
    noise_epsilon = min(max(math.sqrt(2) / scale, SMALLEST_EPSILON), LARGEST_EPSILON)
    return _prices(estimator, noise_epsilon, scale, count_clip)


def _prices(estimator: Any, noise_epsilon, noise_multiplier, count_clip) -> SweepPrices:
    sampling_epsilon = inherent_epsilon(count_clip, estimator.topic_word_prior)
    topic_event = BoundedRange(sampling_epsilon)
    if estimator.noise == "gaussian":
        mechanism: Any = DiscreteGaussian.for_noise_multiplier(float(noise_multiplier))
        # a replaced word changes two counts by one: L2 norm sqrt(2) unit <= radius, in integers
        unit = math.isqrt(mechanism.radius**2 // 2)
        return SweepPrices(
            mechanism, unit, topic_event, count_clip, math.inf,
            sampling_epsilon, math.sqrt(2), "discrete Gaussian",
        )  # fmt: skip
    mechanism = FlooredLaplace(2 / float(noise_epsilon), n_cells=2)
    return SweepPrices(
        mechanism, 1, topic_event, count_clip, noise_epsilon,
        sampling_epsilon, 2.0, "floored Laplace",
    )  # fmt: skip


def _free_sweep() -> SweepPrices:
    """No noise and, in effect, no clip."""
    return SweepPrices(NoNoise(), 1, NonPrivate(), 1e5, math.inf, math.inf, 2.0, "no")


def _check_word_level(estimator: Any) -> None:
    """Refuse contradictory or missing parameters, and say what to give."""
    given = "noise_epsilon" if estimator.noise == "laplace" else "noise_multiplier"
    exactly_one(estimator, "epsilon", "noise_epsilon", "noise_multiplier")
    if estimator.epsilon is None and getattr(estimator, given) is None:
        raise ValueError(
            f"with noise={estimator.noise!r} give epsilon, or {given} and count_clip "
            "(noise_epsilon belongs to Laplace noise, noise_multiplier to Gaussian)"
        )
    if (estimator.epsilon is None) == (estimator.count_clip is None):
        raise ValueError(
            f"give count_clip together with {given}, and not with epsilon (which is split between "
            f"noise and topic sampling); got epsilon={estimator.epsilon}, "
            f"count_clip={estimator.count_clip}"
        )
    if estimator.init_components is not None:
        raise ValueError("init_components belongs to privacy_unit='document'; leave it None")
    if estimator.n_components > MAX_COMPONENTS:
        raise ValueError(
            f"n_components must be at most {MAX_COMPONENTS} with privacy_unit='word', got "
            f"{estimator.n_components}"
        )
    clip = estimator.count_clip
    if clip is not None and clip > estimator.topic_word_prior * LARGEST_WEIGHT / 64:
        raise ValueError(
            f"count_clip may be at most {LARGEST_WEIGHT // 64} times topic_word_prior "
            f"({estimator.topic_word_prior}), got {clip}; such a clip protects nothing"
        )
