"""What is public of the words of a document-level fit: vectors, and counts in topics.

Everything here is a function of public numbers, released values and public constants.
It is post-processing and has no privacy cost. ``docs/public_prior.md`` has the
equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dplda.document._word_totals import WordTotals
from dplda.kernels import _denoise
from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning

# Points of the share of the gap that a change gives, at epsilon 1 / 4: docs/results.md.
# of the variance of rows, which vectors explain; 0.25: -1.5 / 0, 0.75: 0 / 0
SHARED = 0.5
# tokens, even in all topics, that a word gets besides its own; 0.5: -0.5 / -0.7
SMOOTHING = 2.0
# share of the words without which a table knows no word frequencies
LEAST_COVERED = 0.25
# A word belongs to clusters as exp(SHARP cosine) says. 6: new words gain +0.00 nats on
# BBC, +0.01 on glosses, -0.03 on KOS, -0.05 on docstrings and NIPS.
SHARP = 4.0
HELD = 10  # one word in so many is held out; 5: -0.6 / -1.3
# slope of their rows, from which all words believe what is said; 0.5: -3 / 0
REAL = 0.25


class Vectors(NamedTuple):
    """What is known of words from their vectors."""

    # of length one, centered, or zeros, (n_words, n_dimensions)
    directions: np.ndarray
    # whether a word has a vector; its standardized log length; (n_words, 2)
    lengths: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray) -> Vectors:
        """Of checked vectors (n_words, n_dimensions)."""
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

    def clusters(self, n_clusters: int) -> np.ndarray:
        """Clusters of words by their vectors: p(cluster | word), (n_words, n_clusters).

        They are those of spherical k-means, of the words that have a vector. The first
        centers are words, evenly spaced in the vocabulary. A word without a vector
        belongs to all clusters alike.
        """
        known = self.directions.any(axis=1)
        words = self.directions[known] if known.any() else self.directions[:1]
        centers = words[np.arange(n_clusters) * len(words) // n_clusters]
        for _ in range(10):
            # no BLAS: its sums have any order
            nearest = np.einsum("vi,ki->vk", words, centers).argmax(axis=1)
            sums = np.zeros_like(centers)
            np.add.at(sums, nearest, words)
            length = np.linalg.norm(sums, axis=1, keepdims=True)
            centers = np.where(length, sums / np.maximum(length, 1e-9), centers)
        weights = np.exp(SHARP * np.einsum("vi,ki->vk", self.directions, centers))
        shares: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
        return shares


class Topics(NamedTuple):
    """What is known of words from public tokens in topics."""

    counts: np.ndarray  # tokens of each word, (n_words,)
    shares: np.ndarray  # p(topic | word) of the tokens, (n_words, n_components)

    @classmethod
    def of(cls, table: np.ndarray) -> Topics:
        """Of checked pseudo-counts (n_components, n_words)."""
        counts = table.sum(axis=0)
        if np.allclose(table.sum(axis=1), 1):
            warn_user(
                "each topic of prior_components sums to 1, so that it counts as one "
                "public token, and is all but ignored; pass counts, as public_prior "
                "makes them, or multiply the table by the number of public tokens of "
                "each topic",
                LowSignalWarning,
            )
        evenly = SMOOTHING / len(table)
        return cls(counts, (table.T + evenly) / (counts[:, None] + SMOOTHING))

    @property
    def known(self) -> np.ndarray:
        """Mask of the words that the public texts have."""
        return self.counts > 0

    @property
    def has_frequencies(self) -> bool:
        """Whether the counts know the words' frequencies, or are a hint.

        A hint has a few words of each topic, as of seed words.
        """
        return bool(self.known.mean() >= LEAST_COVERED)

    @property
    def frequencies(self) -> np.ndarray:
        """Public frequencies of the words, above 0."""
        smooth = self.counts + SMOOTHING
        return smooth / smooth.sum()

    def agreement(self, totals: np.ndarray) -> float:
        """Share of the tokens whose words are near to their public frequencies.

        They are within a factor of 2, by these estimated word totals.
        """
        ratios = totals / (self.frequencies * totals.sum())
        near = np.abs(np.log2(ratios)) < 1
        return float(totals[near].sum() / totals.sum())

    def contrasts(self, totals: np.ndarray) -> np.ndarray:
        """Shares less their mean, zero for a word that the public texts lack."""
        known = self.known
        mean = np.average(self.shares[known], axis=0, weights=totals[known])
        return np.where(known[:, None], self.shares - mean, 0.0)


@dataclass(frozen=True, eq=False)
class PublicWords:
    """What is public of the words.

    Documents that are inferred under a table repeat it: the rows of words would confirm
    whatever is expected of them, and of words like them. Nothing public changes the
    rows of every tenth word before the last table, and no row of theirs enters a
    regression. How far these rows agree with what public numbers say of them is how far
    all words read those.
    """

    held: np.ndarray  # mask of these words, (n_words,)
    vectors: Vectors | None = None
    topics: Topics | None = None

    @classmethod
    def of(
        cls, vectors: np.ndarray | None, table: np.ndarray | None
    ) -> PublicWords | None:
        """Of checked vectors and pseudo-counts; None if there are none.

        Shapes are (n_words, n_dimensions) and (n_components, n_words).
        """
        given = vectors if table is None else table.T
        if given is None:
            return None
        held = np.arange(len(given)) % HELD == HELD // 2
        topics = None if table is None else Topics.of(table)
        if topics is not None and not topics.has_frequencies:
            held &= ~topics.known  # seed words belong to their topics
        return cls(held, None if vectors is None else Vectors.of(vectors), topics)

    @property
    def seeds(self) -> np.ndarray | None:
        """Mask of the seed words; None if public tokens are more than a hint."""
        if self.topics is None or self.topics.has_frequencies:
            return None
        return self.topics.known

    @property
    def with_frequencies(self) -> Topics | None:
        """The public tokens, if they know the words' frequencies."""
        return None if self.seeds is not None else self.topics

    def totals(self, released: WordTotals) -> np.ndarray:
        """Posterior means of word totals, positive.

        Logarithms of the totals, less those of the public frequencies, are regressed on
        the vectors and their lengths. What the other words say of a word is its
        expected frequency.
        """
        topics = self.with_frequencies
        if not released.has_noise or (self.vectors is None and topics is None):
            return released.smooth()
        public = None if topics is None else topics.frequencies
        if self.vectors is None:
            return released.smooth(public)
        first = released.smooth(public)
        expected = np.ones_like(first) if public is None else public
        # of the logarithm of a total, half of whose variance the vectors explain
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
        last: bool = False,
    ) -> tuple[np.ndarray, float, bool]:
        """The share of each topic expected of each word, (n_words, n_components).

        That of the topic, `shares` (n_components,), and what public topics and vectors
        add to it, as far as they are trusted. `noisy` is the released table, and
        `noise_scale` (n_words,) the noise of its cells. Of the words that are held out,
        that of the topic alone is expected before the `last` table. Also returns how
        far the public topics are trusted, from 0 to 1, and whether the released rows
        contradict the vectors: one standard error more would not be a slope of `REAL`.
        """
        rows, precision, own = standard(noisy, noise_scale, totals, shares)
        held = self.held
        found = np.zeros_like(rows)
        trust, contradicted = 1.0, False
        if self.topics is not None:
            public = self.topics.contrasts(totals)
            trust = trust_in(public[held], rows[held], precision[held], 1.0)
            rows = rows - slope_on(public, rows, precision)[0] * public
            found += trust * public
        if self.vectors is not None:
            others = left_out(
                self.vectors.directions,
                rows,
                np.where(held, 0, precision),
                1 / (SHARED * own),
            )
            found += trust_in(others[held], rows[held], precision[held], 0.5) * others
            slope, square = slope_on(others[held], rows[held], precision[held])
            contradicted = slope + max(square, 1e-12) ** -0.5 < REAL
        if not last:
            found[held] = 0
        if self.topics is not None and self.seeds is not None:
            # they belong to their topics, however few these are
            found[self.seeds] = self.topics.shares[self.seeds] - shares
        found = np.maximum(found + shares, 0.0)
        return found / found.sum(axis=1, keepdims=True), trust, contradicted


def trust_in(
    expected: np.ndarray, rows: np.ndarray, precision: np.ndarray, before: float
) -> float:
    """How far released rows agree with what was expected of them, from 0 to 1.

    The slope of the rows on what was expected, over `REAL`: its posterior mean, if it
    is normal around `before` with a standard deviation of 1.
    """
    slope, precise = slope_on(expected, rows, precision)
    precise *= REAL**2
    mean = (precise * slope / REAL + before) / (precise + 1)
    return min(max(mean, 0.0), 1.0)


def standard(
    noisy: np.ndarray, noise_scale: np.ndarray, totals: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Released rows as deviations from topic shares, with precision and variance.

    The precision (n_words,) counts what words share as signal. The variance is that of
    a share among the words, without the noise: by moments, weighted by the precision of
    the noise.
    """
    rows = noisy / totals[:, None] - shares
    # a released row sums to its word's total, which takes 1 / n_components of the noise
    # away
    noise = (1 - 1 / len(shares)) * (noise_scale / totals) ** 2
    excess = (np.square(rows).mean(axis=1) - noise) / noise
    variance = max(float(excess.sum() / (1 / noise).sum()), 1e-6)
    return rows, 1 / ((1 - SHARED) * variance + noise), variance


def slope_on(
    expected: np.ndarray, rows: np.ndarray, precision: np.ndarray
) -> tuple[float, float]:
    """Slope of released rows on what is expected, and the precision of its noise."""
    square = float(np.einsum("v,vk,vk->", precision, expected, expected))
    product = float(np.einsum("v,vk,vk->", precision, expected, rows))
    return product / max(square, 1e-12), square


def left_out(
    features: np.ndarray, rows: np.ndarray, precision: np.ndarray, penalty: float
) -> np.ndarray:
    """What ridge regression on the features of all other words says of each row.

    `features` is (n_words, n_features), `rows` (n_words, n_columns), and `precision`
    (n_words,) of the rows. The sum of squares of weights is penalized by `penalty`. A
    word is left out exactly: by its leverage, without another regression.
    """
    features = np.ascontiguousarray(features, float)
    weighted = features * precision[:, None]
    inverse = inverted(product(weighted.T, features), penalty)
    turned = product(features, inverse)
    leverage = np.einsum("vi,vi->v", turned, weighted)[:, None]
    fitted = product(turned, product(weighted.T, rows))
    return (fitted - leverage * rows) / np.maximum(1 - leverage, 1e-3)


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left @ right, with sums in one order on every processor: BLAS's have any."""
    if right.shape[1] == 1:  # whose sum einsum splits
        return np.einsum("ij,jk->ik", left, right)
    out = np.empty((len(left), right.shape[1]))
    _denoise.products(left, np.ascontiguousarray(right), out)
    return out


def inverted(square: np.ndarray, penalty: float) -> np.ndarray:
    """Inverse of a positive matrix plus `penalty` times the identity, by elimination.

    LAPACK's would round otherwise on another processor, and no seed would give the same
    topics.
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
