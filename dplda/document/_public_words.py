"""What is public of the words of a document-level fit: their vectors, and their counts in topics.

Everything here is a function of public numbers, released values and public constants. It is
post-processing and has no privacy cost. ``docs/public_prior.md`` has the equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from dplda.document._table_estimate import FLOOR, WordTotals
from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning

# What each of these constants is worth: docs/results.md.
SHARED = 0.5  # of the variance of rows: what vectors explain, the rest is the word's own
SMOOTHING = 2.0  # tokens, even in all topics, that each word gets besides its public ones
LEAST_COVERED = 0.25  # share of the words without which a table knows no word frequencies
REAL, UNSURE = 0.28, 0.01  # slope of released rows on public topics that are real; its width
OWN_TOTALS = 0.3  # variance of the logarithm of a word's total, besides that of the noise


@dataclass
class PublicWords:
    """What is public of the words."""

    directions: Any = None  # vectors of length one, centered, or zeros, (n_words, n_dimensions)
    lengths: Any = None  # whether a word has one; its standardized log length; (n_words, 2)
    counts: Any = None  # public tokens of each word, (n_words,)
    known: Any = None  # mask of the words that the public texts have, (n_words,)
    has_frequencies: bool = False  # whether `counts` know the words' frequencies
    is_hint: bool = False  # whether they are those of a few words, as of seed words
    shares: Any = None  # p(topic | word) of the public tokens, (n_words, n_components)
    trust: float = 1.0  # weight of the public topics, in [0, 1]; `examine` learns it
    # Share of the tokens whose words are within a factor of 2 of their public frequencies, by the
    # estimate of `totals`.
    agreement: float = 1.0
    n_examining: int = 0  # first rounds of topics, which examine the public topics

    @classmethod
    def of(cls, vectors: np.ndarray | None, table: np.ndarray | None) -> PublicWords | None:
        """Of checked vectors (n_words, n_dimensions), and pseudo-counts (n_components, n_words)."""
        if vectors is None and table is None:
            return None
        public = cls()
        if vectors is not None:
            vectors = vectors / np.abs(vectors).max()  # squares stay finite
            size = np.linalg.norm(vectors, axis=1, keepdims=True)
            known = size > 0
            unit = vectors / np.where(known, size, 1)
            unit = np.where(known, unit - unit.sum(axis=0) / known.sum(), 0.0)
            public.directions = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-9)
            length = np.log(np.where(known, size, 1.0))
            length = np.where(known, length - length.sum() / known.sum(), 0.0)
            spread = np.sqrt((length**2).sum() / known.sum())
            public.lengths = np.hstack([known, length / max(spread, 1e-9)])
        if table is not None:
            counts, sizes = table.sum(axis=0), table.sum(axis=1)
            if np.allclose(sizes, 1):
                warn_user(
                    "each topic of prior_components sums to 1, so that it counts as one public "
                    "token, and is all but ignored; pass counts, as public_prior makes them, or "
                    "multiply the table by the number of public tokens of each topic",
                    LowSignalWarning,
                )
            public.counts, public.known = counts, counts > 0
            public.has_frequencies = bool(public.known.mean() >= LEAST_COVERED)
            public.is_hint = not public.has_frequencies
            public.shares = (table.T + SMOOTHING / len(table)) / (counts[:, None] + SMOOTHING)
        return public

    def totals(self, released: WordTotals) -> np.ndarray:
        """Posterior means of word totals, positive.

        Logarithms of the totals, less those of the public frequencies, are regressed on the vectors
        and their lengths. What the other words say of a word is its expected frequency.
        """
        if not released.noise_scale.any() or (self.directions is None and not self.has_frequencies):
            return released.smooth()
        expected = np.ones_like(released.noisy)
        if self.has_frequencies:
            expected = (self.counts + SMOOTHING) / (self.counts + SMOOTHING).sum()
        public = expected
        if self.directions is not None:
            first = released.smooth(expected) if self.has_frequencies else released.smooth()
            precision = 1 / (OWN_TOTALS + (released.noise_scale / first) ** 2)
            rest = np.log(first / expected)
            rest -= np.average(rest, weights=precision)
            features = np.hstack([self.directions, self.lengths])
            penalty = 1 / (SHARED * OWN_TOTALS)
            expected = expected * np.exp(
                left_out(features, rest[:, None], precision, penalty)[:, 0]
            )
        totals = released.smooth(expected)
        if self.has_frequencies:
            near = np.abs(np.log2(totals / (public * totals.sum()))) < 1
            self.agreement = float(totals[near].sum() / totals.sum())
        return totals

    def examine(
        self, noisy: np.ndarray, noise_scale: np.ndarray, totals: np.ndarray, shares: np.ndarray
    ) -> None:
        """Learn from first rounds how probable it is that the public topics are real.

        In these rounds a word counts for the topics of its documents, whatever the table says of
        the word itself: made-up topics would confirm themselves. Released rows follow real topics
        with a slope of .2 to .5, and others with one of 0 to .2. Two standard errors are in favor
        of the topics if public word frequencies agree, and against them if they do not.
        """
        rows, precision, _ = standard(noisy, noise_scale, totals, shares)
        slope, error = slope_on(self._contrasts(totals), rows, precision)
        doubt = 2 * error * (2 * self.agreement - 1)
        self.trust = float(expit((slope + doubt - REAL) / UNSURE))

    def _contrasts(self, totals: np.ndarray) -> np.ndarray:
        """Public shares less their mean, zero for a word that the public texts lack."""
        known, shares = self.known, self.shares
        mean = np.average(shares[known], axis=0, weights=totals[known])
        return np.where(known[:, None], shares - mean, 0.0)

    def expect(
        self, noisy: np.ndarray, noise_scale: np.ndarray, totals: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        """The share of each topic that is expected of each word, (n_words, n_components).

        That of the topic, `shares` (n_components,), and what public topics and vectors add to it.
        `noisy` is the released table, and `noise_scale` (n_words,) the noise of its cells.
        """
        rows, precision, own = standard(noisy, noise_scale, totals, shares)
        found = np.zeros_like(rows)
        if self.shares is not None:
            public = self._contrasts(totals)
            rows = rows - slope_on(public, rows, precision)[0] * public
            found += self.trust * public
            if self.is_hint:  # seed words belong to their topics, however few these are
                found[self.known] = self.shares[self.known] - shares
        if self.directions is not None:
            found += left_out(self.directions, rows, precision, 1 / (SHARED * own))
        found = np.maximum(found + shares, FLOOR * shares)
        return found / found.sum(axis=1, keepdims=True)


def standard(
    noisy: np.ndarray, noise_scale: np.ndarray, totals: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Released rows as deviations from the shares of topics, their precision, and their variance.

    The precision (n_words,) counts what words share as signal. The variance is that of a share
    among the words, without the noise: by moments, weighted by the precision of the noise.
    """
    rows = noisy / totals[:, None] - shares
    # a released row sums to its word's total, which takes 1 / n_components of the noise away
    noise = (1 - 1 / len(shares)) * (noise_scale / totals) ** 2
    variance = ((np.square(rows).mean(axis=1) - noise) / noise).sum() / (1 / noise).sum()
    variance = max(float(variance), 1e-6)
    return rows, 1 / ((1 - SHARED) * variance + noise), variance


def slope_on(public: np.ndarray, rows: np.ndarray, precision: np.ndarray) -> tuple[float, float]:
    """Slope of released rows on public contrasts, and the standard deviation of its noise."""
    square = max(float(np.einsum("v,vk,vk->", precision, public, public)), 1e-12)
    return float(np.einsum("v,vk,vk->", precision, public, rows)) / square, square**-0.5


def left_out(
    features: np.ndarray, rows: np.ndarray, precision: np.ndarray, penalty: float
) -> np.ndarray:
    """What ridge regression on the features of all other words says of each row.

    features : (n_words, n_features), rows : (n_words, n_columns), precision : (n_words,) of rows.
    The sum of squares of weights is penalized by `penalty`. A word is left out exactly: by its
    leverage, without another regression.
    """
    weighted = features * precision[:, None]
    inverse = inverted(np.einsum("vi,vj->ij", weighted, features), penalty)
    turned = np.einsum("vi,ij->vj", features, inverse)  # no BLAS: its sums have any order
    leverage = np.einsum("vi,vi->v", turned, weighted)[:, None]
    fitted = np.einsum("vi,ik->vk", turned, np.einsum("vi,vk->ik", weighted, rows))
    return (fitted - leverage * rows) / np.maximum(1 - leverage, 1e-3)


def inverted(square: np.ndarray, penalty: float) -> np.ndarray:
    """The inverse of a positive matrix plus `penalty` times the identity, by elimination.

    LAPACK's would round otherwise on another processor, and no seed would give the same topics.
    """
    a = square + penalty * np.eye(len(square))
    for i in range(len(a)):
        pivot, row, column = a[i, i], a[i].copy(), a[:, i].copy()
        a -= np.multiply.outer(column, row) / pivot
        a[i], a[:, i], a[i, i] = row / pivot, -column / pivot, 1 / pivot
    return a
