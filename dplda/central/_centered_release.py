"""The centered release: how document-level estimators release and use word-topic statistics.

A document does not contribute its word-topic counts, but their difference from what past releases
predict. The sum over documents is the same; one document's contribution, and so the noise, is half
as large. The steps are word totals, weights, contributions, release and table estimate; the whole
is described, and proved private, in ``docs/centered_release.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from dplda._fold_in import over_rows, pad, single_precision, uniform_theta
from dplda.central._denoise import TableEstimate, smooth_totals, word_weights
from dplda.central._schedule import Budget
from dplda.kernels import _variational
from dplda.privacy._streams import Purpose, Streams, uniform
from dplda.privacy.mechanisms import Curator, NoNoise

SCALE_UP = 5.0  # short documents count at most five times

TOTALS = "word totals"
COUNTS = "word-topic counts"


@dataclass
class Documents:
    """The private side: counts and, for each document, its scale and topic weights."""

    X: sp.csr_array
    theta: np.ndarray
    scale: np.ndarray
    n_jobs: int | None = None

    @classmethod
    def of(cls, X: sp.csr_array, n_components: int, n_jobs: int | None) -> Documents:
        X = single_precision(X)
        padded = pad(np.zeros((0, n_components))).shape[1]
        return cls(X, uniform_theta(X.shape[0], n_components, padded), np.ones(X.shape[0]), n_jobs)

    def rescale(self, weight: np.ndarray, norm: float, mechanism: Any) -> None:
        """Bring each document to norm `norm`, short ones at most `SCALE_UP` times longer.

        Without noise there is no need to: documents then count with their lengths.
        """
        if isinstance(mechanism, NoNoise):
            return
        lengths = np.sqrt(self.X.multiply(self.X) @ weight.astype(float) ** 2)
        self.scale = np.minimum(SCALE_UP, norm / np.maximum(lengths, norm / SCALE_UP))

    def sum_words(self, weight: np.ndarray, norm: float, radius: int) -> np.ndarray:
        """Integer word totals, each document's share of L2 norm at most `radius`."""
        single = np.zeros((max(self.X.shape), 8), np.float32)
        single[:, 0] = 1
        rows = np.arange(self.X.shape[0])
        total = self._sum(
            rows, single, single, np.zeros_like(single), weight, self.scale, norm, radius
        )
        return total[:, 0]

    def sum_topics(
        self,
        rows: np.ndarray,
        factor: np.ndarray,
        center: np.ndarray,
        weight: np.ndarray,
        scale: np.ndarray,
        norm: float,
        radius: int,
    ) -> np.ndarray:
        """Integer sum over the documents `rows` of their centered word-topic counts.

        Document d contributes s_d w_v x_dv (r_dvk - center_vk) with r_dvk ~ theta_dk factor_vk,
        cut to norm `norm`, which becomes `radius` integer units.
        """
        return self._sum(rows, self.theta, factor, center, weight, scale, norm, radius)

    def _sum(self, rows, theta, factor, center, weight, scale, norm, radius):
        longest = max(1, int(np.diff(self.X.indptr).max(initial=0)))
        weight = weight.astype(np.float32)

        def kernel(piece):
            total = np.zeros((self.X.shape[1], factor.shape[1]), np.int64)
            scratch = np.empty(longest * factor.shape[1], np.float32)
            _variational.add_contributions(
                self.X.indptr, self.X.indices, self.X.data, piece, theta, factor, center,
                weight, scale, norm, radius, total, scratch, np.empty(len(scratch), np.int32),
            )  # fmt: skip
            return total

        # integer sums have no order: the result does not depend on the number of pieces
        return sum(over_rows(kernel, rows.astype(np.int64, copy=False), self.n_jobs))


def exponential(draws: np.ndarray) -> np.ndarray:
    """Topics that differ much from the start."""
    return -np.log(draws)


def nearly_equal(draws: np.ndarray) -> np.ndarray:
    """Topics that differ by about a tenth, as in online variational Bayes."""
    return np.exp(0.1 * ndtri(draws))


@dataclass
class Released:
    """The public side: what past releases say. A function of them and of public constants.

    Attributes
    ----------
    totals : ndarray of shape (n_words,)
        Estimated word totals.
    weight : ndarray of shape (n_words,)
        Word weights.
    table : ndarray of shape (n_words, n_components)
        Estimated word-topic table, prior included.
    average : ndarray of shape (n_words, n_components)
        Weighted average of the first table and the rounds' noisy ones, never clipped.
    variance : float
        Of the average's noise in each weighted cell.
    n_rounds : int
        Rounds so far.
    norms : tuple of float
        L2 bound of a document's contribution to each release so far.
    estimate : TableEstimate
        The table's denoiser with the prior that it has learned.
    """

    totals: np.ndarray
    weight: np.ndarray
    table: np.ndarray
    average: np.ndarray
    estimate: TableEstimate
    variance: float = 0.0
    n_rounds: int = 0
    norms: tuple[float, ...] = ()

    @classmethod
    def start(
        cls,
        totals: np.ndarray,
        weight: np.ndarray,
        n_components: int,
        streams: Streams,
        init_components: np.ndarray | None = None,
        factors: Callable[[np.ndarray], np.ndarray] = exponential,
    ) -> Released:
        """A table of random topics around the word totals, or of given public ones.

        `factors` makes uniform numbers the ratios of a topic's words to the word totals.
        """
        if init_components is not None:
            table = init_components.T + 1e-3 * init_components.mean()
            table = table / table.sum(axis=0) * (totals.sum() / n_components)
            return cls(totals, weight, table, table, TableEstimate(totals))
        words = streams.words(Purpose.INITIAL_TABLE, 0, 0, len(totals) * n_components)
        draws = factors(uniform(words, positive=True))
        topics = totals[:, None] * draws.reshape(len(totals), n_components)
        table = topics / topics.sum(axis=0) * (totals.sum() / n_components)
        return cls(totals, weight, table, table, TableEstimate(totals))

    def word_probabilities(self) -> np.ndarray:
        """p(word | topic), (n_words, padded) float32."""
        return pad(self.table / self.table.sum(axis=0))

    def topic_shares(self) -> np.ndarray:
        """p(topic | word), (n_words, n_components): what the contributions are centered on."""
        return self.table / self.table.sum(axis=1, keepdims=True)

    def add(self, noisy: np.ndarray, noise_scale: float, rate: float, prior: float) -> None:
        """Take in a round's noisy centered sum (n_words, n_components), in weighted tokens.

        It makes up the share `rate` of the new average. Contributions sum to zero over topics, so
        the mean over topics of a word's row is noise.
        """
        noisy = noisy - noisy.mean(axis=1, keepdims=True)
        counts = self.totals[:, None] * self.topic_shares() + noisy / self.weight[:, None]
        self.average_in(counts, noise_scale, rate, prior)

    def average_in(self, counts: np.ndarray, noise_scale: float, rate: float, prior: float) -> None:
        """Take in a round's word-topic counts (n_words, n_components)."""
        self.n_rounds += 1
        self.average = (1 - rate) * self.average + rate * counts
        self.variance = (1 - rate) ** 2 * self.variance + rate**2 * noise_scale**2
        self.table = self.estimate(self.average, self._cell_scale()) + prior

    def finish(self, prior: float) -> np.ndarray:
        """The final table (n_components, n_words), estimated afresh."""
        return (self.estimate(self.average, self._cell_scale(), last=True) + prior).T

    def _cell_scale(self) -> np.ndarray:
        return np.sqrt(self.variance) / self.weight


def release_word_totals(
    documents: Documents, budget: Budget, curator: Curator, contribution_norm: float
) -> tuple[np.ndarray, np.ndarray]:
    """Word totals and word weights from two releases: one to set the weights, one with them."""
    weight = np.ones(documents.X.shape[1])
    estimates = []
    for step, mechanism in enumerate(budget.totals):
        documents.rescale(weight, contribution_norm, mechanism)
        norm, radius = _grid(mechanism, documents, contribution_norm)
        value = documents.sum_words(weight, norm, radius)
        noisy = curator.release(value, mechanism, label=TOTALS, round=step)
        unit = norm / radius / weight
        estimates.append((noisy * unit, mechanism.scale * unit))
        if step == 0 and mechanism.scale > 0:
            weight = word_weights(smooth_totals(*estimates[0]))
    return smooth_totals(*combine_totals(*estimates)), weight


def combine_totals(first: tuple, second: tuple) -> tuple[np.ndarray, np.ndarray]:
    """One estimate of the word totals, and its noise scale, from two of them.

    Documents are scaled a little differently in the two; the ratio of the sums brings the first to
    the scale of the second. The mean is weighted with the precision of either, so that it
    favors the first for frequent and the second for rare words.
    """
    if not second[1].any():
        return second
    sums = np.maximum([first[0].sum(), second[0].sum()], 1e-12)
    ratio = np.clip(sums[1] / sums[0], 1 / SCALE_UP, SCALE_UP)
    precision = np.array([1 / (ratio * first[1]) ** 2, 1 / second[1] ** 2])
    values = np.array([ratio * first[0], second[0]])
    total = precision.sum(axis=0)
    return (precision * values).sum(axis=0) / total, 1 / np.sqrt(total)


def train_round(
    documents: Documents,
    released: Released,
    budget: Budget,
    curator: Curator,
    *,
    rows: np.ndarray,
    scale: np.ndarray,
    factor: np.ndarray,
    norm: float,
    rate: float,
    topic_word_prior: float,
) -> None:
    """Release the contributions of the documents `rows`, and learn from them.

    `factor` (n_words, padded) is the word factor of their responsibilities, `norm` the clip, and
    `rate` the share of this round in the average of all.
    """
    t = released.n_rounds + 1
    mechanism = budget.round(t)
    n_components = released.table.shape[1]
    released.norms += (norm,)
    norm, radius = _grid(mechanism, documents, norm)
    center = pad(released.topic_shares())
    if mechanism.scale == 0:  # nothing to be gained, and later documents may have other words
        center = np.zeros_like(center)
    value = documents.sum_topics(rows, factor, center, released.weight, scale, norm, radius)
    noisy = curator.release(
        np.ascontiguousarray(value[:, :n_components]),
        mechanism,
        label=COUNTS,
        round=len(budget.totals) + t,
        sampling_probability=budget.subsampling_ratio,
    )
    unit = norm / radius / budget.subsampling_ratio
    take_in = released.add if mechanism.scale > 0 else released.average_in
    take_in(noisy * unit, mechanism.scale * unit, rate, topic_word_prior)


def _grid(mechanism: Any, documents: Documents, norm: float) -> tuple[float, int]:
    """Clip and its integer radius; without noise, a clip that no document reaches."""
    if isinstance(mechanism, NoNoise):
        squares = documents.X.multiply(documents.X).sum(axis=1)
        return 1.0 + float(np.sqrt(np.max(squares, initial=0.0))), 2**30
    return norm, mechanism.radius
