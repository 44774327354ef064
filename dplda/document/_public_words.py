"""Public tables of the words of a document-level fit: vectors, and counts in topics.

Everything here is a function of public numbers, released values and public constants.
It is post-processing and has no privacy cost. ``docs/public_prior.md`` has the
equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from dplda.core._signal import KEPT_OUT
from dplda.document._word_totals import WordTotals
from dplda.kernels import _denoise
from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning

# Figures like -1.5 / 0 are points of the share of the gap, at epsilon 1 and 4, that a
# change gives (docs/results.md).
# Share of the variance of the rows that vectors explain. 0.25: -1.5 / 0, 0.75: 0 / 0
SHARED = 0.5
# Pseudo-tokens of a word, for its frequency. 0.5: -0.5 / -0.7
SMOOTHING = 2.0
# Least share of the words that public tokens must cover to give word frequencies.
LEAST_COVERED = 0.25
# p(cluster | word) is proportional to exp(sharpness * cosine). The sharpness is SHARP
# unless releases say that it is larger.
SHARP = 4.0
# Slope of the held-out rows from which public tables are trusted fully. 0.5: -3 / 0
REAL = 0.25
# Least part of an expected p(topic | word) that vectors leave: releases could say
# nothing against a share of 0 (benchmarks/ablation.py).
LEAST = 0.1


class Vectors(NamedTuple):
    """Public word vectors, split into direction and length."""

    # unit vectors, centered before; zeros without a vector; (n_words, n_dimensions)
    directions: np.ndarray
    # whether a word has a vector, and its standardized log length; (n_words, 2)
    lengths: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray) -> Vectors:
        """From checked vectors (n_words, n_dimensions)."""
        vectors = vectors / np.abs(vectors).max()  # squares stay finite
        size = np.linalg.norm(vectors, axis=1, keepdims=True)
        known = size > 0
        unit = vectors / np.where(known, size, 1)
        unit = np.where(known, unit - unit.sum(axis=0) / known.sum(), 0.0)
        lengths = np.linalg.norm(unit, axis=1, keepdims=True)
        log_size = np.log(np.where(known, size, 1.0))
        log_size = np.where(known, log_size - log_size.sum() / known.sum(), 0.0)
        spread = np.sqrt((log_size**2).sum() / known.sum())
        return cls(
            unit / np.maximum(lengths, 1e-9),
            np.hstack([known, log_size / max(spread, 1e-9)]),
        )

    def centers(self, table: np.ndarray) -> np.ndarray:
        """The direction of the words of each topic, (n_components, n_dimensions).

        It is the mean over the tokens of the topic in `table` (n_words, n_components),
        less the mean over all tokens, of length 1; zeros if there is none.
        """
        totals = table.sum(axis=1)
        off = table / np.maximum(table.sum(axis=0), 1e-300)
        off -= (totals / totals.sum())[:, None]
        return unit(product(off.T, self.directions))  # no BLAS: its sums have any order

    def spread(self, centers: np.ndarray) -> np.ndarray:
        """The centers after ten rounds of spherical k-means of the words."""
        for _ in range(10):
            nearest = product(self.directions, centers.T).argmax(axis=1)
            sums = np.zeros_like(centers)
            np.add.at(sums, nearest, self.directions)
            moved = sums.any(axis=1, keepdims=True)
            centers = np.where(moved, unit(sums), centers)
        return centers

    def around(self, centers: np.ndarray, sharpness: float = SHARP) -> np.ndarray:
        """p(cluster | word) of clusters around centers, (n_words, n_clusters).

        A word without a vector belongs equally to all clusters.
        """
        weights = np.exp(sharpness * product(self.directions, centers.T))
        shares: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
        # NumPy's exp has other last bits on other processors
        return shares.astype(np.float32).astype(float)

    def sharpness(
        self,
        centers: np.ndarray,
        topics: np.ndarray,
        noisy: np.ndarray,
        noise_scale: np.ndarray,
        totals: np.ndarray,
        shares: np.ndarray,
    ) -> float:
        """Sharpness at which clusters around centers are most like released rows.

        The rows of some topics (a mask) are normal around their clusters. The prior of
        the sharpness is normal with mean `SHARP` and standard deviation 1, and is 0
        below `SHARP`: rows of topics that are much noise seem flat. Rows of a few of
        many topics seem too sharp. Returns the most likely multiple of 0.5 that is at
        most `SHARP` + 2. The other parameters are those of `PublicWords.expect`.
        """
        rows, precision, _ = standard(noisy, noise_scale, totals, shares)
        rows = rows[:, topics]
        steps = np.linspace(0, 2, 5)
        log_density = -0.5 * steps**2
        for i, step in enumerate(steps):
            of_topics = self.around(centers, SHARP + step)[:, topics]
            of_topics -= np.average(of_topics, axis=0, weights=totals)
            slope, square = slope_on(of_topics, rows, precision)
            log_density[i] += (slope - 0.5) * square
        return float(SHARP + steps[log_density.argmax()])


class Agreement(NamedTuple):
    """How far released rows of held-out words agree with what vectors predict."""

    # of each topic, (n_components,), weighted by the precision of the rows
    product: np.ndarray  # inner products of released and predicted rows
    square: np.ndarray  # squared lengths of the predicted rows

    def contradicts(self, topics: np.ndarray) -> bool:
        """Whether the rows of some topics, a mask, contradict the vectors.

        Their slope on the predictions is below `REAL`, and so is its standard error.
        """
        square = max(float(self.square[topics].sum()), 1e-12)
        slope = float(self.product[topics].sum()) / square
        return max(slope, square**-0.5) < REAL


class Topics(NamedTuple):
    """Public tokens in topics."""

    counts: np.ndarray  # public tokens of each word, (n_words,)
    shares: np.ndarray  # their smoothed p(topic | word), (n_words, n_components)
    says: np.ndarray  # mask of the words whose topics are known, (n_words,)

    @classmethod
    def of(cls, table: np.ndarray, vectors: Vectors | None = None) -> Topics:
        """From checked pseudo-counts (n_components, n_words)."""
        counts = table.sum(axis=0)
        if np.allclose(table.sum(axis=1), 1):
            warn_user(
                "each topic of prior_components sums to 1, so that it counts as one "
                "public token, and is all but ignored; pass counts, as public_prior "
                "makes them, or multiply the table by the number of public tokens of "
                "each topic",
                LowSignalWarning,
            )
        known = counts > 0
        if vectors is None or known.mean() < LEAST_COVERED:
            return cls(counts, smoothed(table.T), known)
        says = known | vectors.directions.any(axis=1)
        return cls(counts, smoothed(table.T, vectors), says)

    @property
    def known(self) -> np.ndarray:
        """Mask of the words with public tokens."""
        return self.counts > 0

    @property
    def differ(self) -> bool:
        """Whether some words have other topics than others."""
        return bool(np.ptp(self.shares, axis=0).max() > 1e-9)

    @property
    def has_frequencies(self) -> bool:
        """Whether the tokens give word frequencies.

        They do not if only seed words, a few for each topic, have tokens.
        """
        return bool(self.known.mean() >= LEAST_COVERED)

    @property
    def frequencies(self) -> np.ndarray:
        """Smoothed word frequencies (n_words,), above 0."""
        smooth = self.counts + SMOOTHING
        return smooth / smooth.sum()

    def agreement(self, totals: np.ndarray) -> float:
        """Share of the private tokens whose words have about the public frequency.

        "About" is within a factor of 2. `totals` (n_words,) are estimated word totals.
        """
        ratios = totals / (self.frequencies * totals.sum())
        near = np.abs(np.log2(ratios)) < 1
        return float(totals[near].sum() / totals.sum())

    def contrasts(self, totals: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """What public topics say of words where the topics have the given shares.

        By Bayes' theorem, p(topic | word) changes by the ratio of the topic's shares.
        Returns its difference to `shares`.
        """
        public = np.average(self.shares, axis=0, weights=totals)
        rows = self.shares * (shares / public)
        rows /= rows.sum(axis=1, keepdims=True)
        return np.where(self.says[:, None], rows - shares, 0.0)


@dataclass(frozen=True, eq=False)
class PublicWords:
    """Public tables of the words, and how far they are trusted.

    Topic weights are inferred under a table, so that the released rows confirm what the
    table says. Therefore every tenth word is held out: public tables do not change its
    row before the last table, and its row enters no regression. All words trust the
    public tables as far as the released rows of these words agree with them.
    """

    held: np.ndarray  # mask of the words that are held out, (n_words,)
    vectors: Vectors | None = None
    topics: Topics | None = None

    @classmethod
    def of(cls, vectors: np.ndarray | None, table: np.ndarray | None) -> PublicWords:
        """From checked vectors and pseudo-counts, one of which may be None.

        Their shapes are (n_words, n_dimensions) and (n_components, n_words).
        """
        given = vectors if table is None else table.T
        assert given is not None, "without public tables, there are no public words"
        held = np.arange(len(given)) % KEPT_OUT == KEPT_OUT // 2
        found = None if vectors is None else Vectors.of(vectors)
        topics = None if table is None else Topics.of(table, found)
        if topics is not None and not topics.has_frequencies:
            held &= ~topics.known  # a seed word always belongs to its topic
        return cls(held, found, topics)

    @property
    def seeds(self) -> np.ndarray | None:
        """Mask of the seed words; None without seed words."""
        if self.topics is None or self.topics.has_frequencies:
            return None
        return self.topics.known

    @property
    def with_frequencies(self) -> Topics | None:
        """The public tokens, if they give word frequencies; else None."""
        return None if self.seeds is not None else self.topics

    def totals(self, released: WordTotals) -> np.ndarray:
        """Posterior means of word totals (n_words,), positive.

        With vectors, the log ratio of total and public frequency is regressed on the
        vectors and their lengths. The prediction for a word from all other words gives
        its expected frequency.
        """
        topics = self.with_frequencies
        public = None if topics is None else topics.frequencies
        first = released.smooth(public)
        if self.vectors is None:
            return first
        expected = np.ones_like(first) if public is None else public
        # of the logarithm of a total; vectors explain the share SHARED of its variance
        precision = 1 / (SHARED + (released.noise_scale / first) ** 2)
        rest = np.log(first / expected)
        rest -= np.average(rest, weights=precision)
        features = np.hstack(self.vectors)
        penalty = 1 / (SHARED * SHARED)
        found = left_out(features, rest[:, None], precision, penalty)
        return released.smooth(expected * np.exp(found[:, 0]))

    def expect(
        self,
        noisy: np.ndarray,
        noise_scale: np.ndarray,
        totals: np.ndarray,
        shares: np.ndarray,
        is_final: bool = False,
    ) -> tuple[np.ndarray, float, Agreement | None]:
        """Expected p(topic | word), from the topic shares and the public tables.

        Parameters
        ----------
        noisy : ndarray of shape (n_words, n_components)
            Released word-topic counts.
        noise_scale, totals : ndarray of shape (n_words,)
            Noise scale of a cell of each word, and estimated word totals.
        shares : ndarray of shape (n_components,)
            Share of each topic of all tokens.
        is_final : bool, default=False
            Whether the fit publishes this table. Before it, words that are held out get
            the topic shares.

        Returns
        -------
        expected : ndarray of shape (n_words, n_components)
            Rows sum to 1.
        trust : float
            How far public topics are trusted, from 0 to 1.
        agreement : Agreement or None
            Of the released rows with the vectors; None without vectors.
        """
        rows, precision, variance = standard(noisy, noise_scale, totals, shares)
        held = self.held
        found = np.zeros_like(rows)
        trust = 1.0
        agreement = None
        if self.topics is not None:
            public = self.topics.contrasts(totals, shares)
            trust = trust_in(public[held], rows[held], precision[held], 1.0)
            found += trust * public
            # what is left of the rows has a variance of its own
            rest = rows - slope_on(public, rows, precision)[0] * public
            left = totals[:, None] * (rest + shares)
            rows, precision, variance = standard(left, noise_scale, totals, shares)
        least = LEAST * (found + shares)
        if self.vectors is not None:
            others = left_out(
                self.vectors.directions,
                rows,
                np.where(held, 0, precision),
                1 / (SHARED * variance),
            )
            found += trust_in(others[held], rows[held], precision[held], 0.5) * others
            weighted = precision[held, None] * others[held]
            agreement = Agreement(
                (weighted * rows[held]).sum(axis=0),
                (weighted * others[held]).sum(axis=0),
            )
        if not is_final:
            found[held] = 0
        if self.topics is not None and self.seeds is not None:
            # a seed word belongs to its topics, whatever was released
            found[self.seeds] = self.topics.shares[self.seeds] - shares
            least[self.seeds] = 0
        found = np.maximum(found + shares, least)
        return found / found.sum(axis=1, keepdims=True), trust, agreement


def smoothed(counts: np.ndarray, vectors: Vectors | None = None) -> np.ndarray:
    """p(topic | word) of public counts (n_words, n_components), smoothed.

    The counts of a word are Dirichlet-multinomial. Their mean is even, or what the
    vectors and the counts of all other words predict. Their concentration is the power
    of two with the largest likelihood.
    """
    n_components = counts.shape[1]
    totals = counts.sum(axis=1)
    mean = np.full(counts.shape, 1 / n_components)
    if vectors is not None and n_components > 1:
        known = totals > 0
        noise = np.sqrt(totals[known] / n_components)  # of a multinomial cell
        rows = np.zeros_like(mean)
        precision = np.zeros(len(mean))
        rows[known], precision[known], variance = standard(
            counts[known], noise, totals[known], mean[0]
        )
        mean += left_out(vectors.directions, rows, precision, 1 / (SHARED * variance))
        mean = np.maximum(mean, 1e-3 / n_components)  # a positive probability
        mean /= mean.sum(axis=1, keepdims=True)
    concentrations = 2.0 ** np.arange(-2, 11)
    likelihoods = []
    for c in concentrations:
        of_words = gammaln(c) - gammaln(c + totals)
        of_cells = gammaln(counts + c * mean) - gammaln(c * mean)
        likelihoods.append(of_words.sum() + of_cells.sum())
    best = concentrations[np.argmax(likelihoods)]
    shares: np.ndarray = (counts + best * mean) / (totals + best)[:, None]
    return shares


def trust_in(
    expected: np.ndarray, rows: np.ndarray, precision: np.ndarray, before: float
) -> float:
    """How far released rows agree with the expected ones, from 0 to 1.

    The agreement is the slope of released on expected rows, over `REAL`. Its prior is
    normal with mean `before` and standard deviation 1. Returns the posterior mean,
    clipped to [0, 1].
    """
    slope, precise = slope_on(expected, rows, precision)
    precise *= REAL**2
    mean = (precise * slope / REAL + before) / (precise + 1)
    return min(max(mean, 0.0), 1.0)


def standard(
    noisy: np.ndarray, noise_scale: np.ndarray, totals: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Released rows as deviations from topic shares, with precision and variance.

    The precision (n_words,) treats the variance that words share as signal. The
    variance (without noise) of a topic's share among words is estimated by moments,
    weighted by the precision of the noise.
    """
    rows = noisy / totals[:, None] - shares
    # the row sums to the word's total, which removes 1 / n_components of the noise
    noise = (1 - 1 / len(shares)) * (noise_scale / totals) ** 2
    excess = (np.square(rows).mean(axis=1) - noise) / noise
    variance = max(float(excess.sum() / (1 / noise).sum()), 1e-6)
    return rows, 1 / ((1 - SHARED) * variance + noise), variance


def slope_on(
    expected: np.ndarray, rows: np.ndarray, precision: np.ndarray
) -> tuple[float, float]:
    """Slope of released rows on what is expected, and the precision of its noise."""
    weighted = precision[:, None] * expected
    square = float((weighted * expected).sum(axis=0).sum())
    inner = float((weighted * rows).sum(axis=0).sum())
    return inner / max(square, 1e-12), square


def left_out(
    features: np.ndarray, rows: np.ndarray, precision: np.ndarray, penalty: float
) -> np.ndarray:
    """Leave-one-out predictions of each row by weighted ridge regression.

    `features` is (n_words, n_features), `rows` is (n_words, n_columns), and `precision`
    (n_words,) weighs the words. `penalty` multiplies the sum of squared coefficients. A
    word is left out exactly, by its leverage, without a second regression.
    """
    features = np.ascontiguousarray(features, float)
    weighted = features * precision[:, None]
    inverse = inverted(product(weighted.T, features), penalty)
    turned = product(features, inverse)
    leverage = np.einsum("vi,vi->v", turned, weighted)[:, None]
    fitted = product(turned, product(weighted.T, rows))
    return (fitted - leverage * rows) / np.maximum(1 - leverage, 1e-3)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; those of zeros stay."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1)


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left @ right, with sums in one order on every processor: BLAS's have any."""
    if right.shape[1] == 1:  # whose sum einsum splits
        return np.einsum("ij,jk->ik", left, right)
    out = np.empty((len(left), right.shape[1]))
    _denoise.products(left, np.ascontiguousarray(right), out)
    return out


def inverted(square: np.ndarray, penalty: float) -> np.ndarray:
    """Inverse of a positive matrix plus `penalty` times the identity, by elimination.

    LAPACK rounds differently on different processors, and a seed would then not
    reproduce the topics.
    """
    a = square + penalty * np.eye(len(square))
    for i in range(len(a)):
        pivot = a[i, i]
        row = a[i].copy()
        column = a[:, i].copy()
        a -= np.multiply.outer(column, row) / pivot
        a[i] = row / pivot
        a[:, i] = -column / pivot
        a[i, i] = 1 / pivot
    return a
