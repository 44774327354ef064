"""What is public of the words of a document-level fit: vectors, and counts in topics.

Everything here is a function of public numbers, released values and public constants.
It is post-processing and has no privacy cost. ``docs/public_prior.md`` has the
equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dplda.document._table_estimate import FLOOR, WordTotals
from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning

# Points of the share of the gap that a change gives, at epsilon 1 / 4: docs/results.md.
# of the variance of rows, which vectors explain; 0.25: -1.5 / 0, 0.75: 0 / 0
SHARED = 0.5
# tokens, even in all topics, that a word gets besides its own; 0.5: -0.5 / -0.7
SMOOTHING = 2.0
# share of the words without which a table knows no word frequencies
LEAST_COVERED = 0.25
HELD = 10  # one word in so many is held out; 5: -0.6 / -1.3
# slope of their rows, from which all words believe what is said; 0.5: -3 / 0
REAL = 0.25
# variance of the logarithm of a word's total, without noise; 1: -0.8 / 0
OWN_TOTALS = 0.3


@dataclass
class PublicWords:
    """What is public of the words.

    Documents that are inferred under a table repeat it: the rows of words would confirm
    whatever is expected of them, and of words like them. Nothing public changes the
    rows of every tenth word before the last table, and no row of theirs enters a
    regression. How far these rows agree with what public numbers say of them is how far
    all words read those.
    """

    held: np.ndarray  # mask of these words, (n_words,)
    # vectors of length one, centered, or zeros, (n_words, n_dimensions)
    directions: Any = None
    # whether a word has one; its standardized log length; (n_words, 2)
    lengths: Any = None
    counts: Any = None  # public tokens of each word, (n_words,)
    known: Any = None  # mask of the words that the public texts have, (n_words,)
    has_frequencies: bool = False  # whether `counts` know the words' frequencies
    is_hint: bool = False  # whether they are those of a few words, as of seed words
    shares: Any = None  # p(topic | word) of the public tokens, (n_words, n_components)
    trust: float = 1.0  # weight of the public topics, in [0, 1]; `expect` learns it
    # Share of the tokens whose words are within a factor of 2 of their public
    # frequencies, by the estimate of `totals`.
    agreement: float = 1.0

    @classmethod
    def of(
        cls, vectors: np.ndarray | None, table: np.ndarray | None
    ) -> PublicWords | None:
        """Of checked vectors and pseudo-counts.

        Shapes are (n_words, n_dimensions) and (n_components, n_words).
        """
        given = vectors if table is None else table.T
        if given is None:
            return None
        public = cls(np.arange(len(given)) % HELD == HELD // 2)
        if vectors is not None:
            vectors = vectors / np.abs(vectors).max()  # squares stay finite
            size = np.linalg.norm(vectors, axis=1, keepdims=True)
            known = size > 0
            unit = vectors / np.where(known, size, 1)
            unit = np.where(known, unit - unit.sum(axis=0) / known.sum(), 0.0)
            public.directions = unit / np.maximum(
                np.linalg.norm(unit, axis=1, keepdims=True), 1e-9
            )
            length = np.log(np.where(known, size, 1.0))
            length = np.where(known, length - length.sum() / known.sum(), 0.0)
            spread = np.sqrt((length**2).sum() / known.sum())
            public.lengths = np.hstack([known, length / max(spread, 1e-9)])
        if table is not None:
            counts, sizes = table.sum(axis=0), table.sum(axis=1)
            if np.allclose(sizes, 1):
                warn_user(
                    "each topic of prior_components sums to 1, so that it counts as "
                    "one public token, and is all but ignored; pass counts, as "
                    "public_prior makes them, or multiply the table by the number of "
                    "public tokens of each topic",
                    LowSignalWarning,
                )
            public.counts, public.known = counts, counts > 0
            public.has_frequencies = bool(public.known.mean() >= LEAST_COVERED)
            public.is_hint = not public.has_frequencies
            if public.is_hint:  # seed words belong to their topics
                public.held &= ~public.known
            public.shares = (table.T + SMOOTHING / len(table)) / (
                counts[:, None] + SMOOTHING
            )
        return public

    def totals(self, released: WordTotals) -> np.ndarray:
        """Posterior means of word totals, positive.

        Logarithms of the totals, less those of the public frequencies, are regressed on
        the vectors and their lengths. What the other words say of a word is its
        expected frequency.
        """
        if not released.noise_scale.any() or (
            self.directions is None and not self.has_frequencies
        ):
            return released.smooth()
        expected = np.ones_like(released.noisy)
        if self.has_frequencies:
            expected = (self.counts + SMOOTHING) / (self.counts + SMOOTHING).sum()
        public = expected
        if self.directions is not None:
            first = (
                released.smooth(expected) if self.has_frequencies else released.smooth()
            )
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

    def _contrasts(self, totals: np.ndarray) -> np.ndarray:
        """Public shares less their mean, zero for a word that the public texts lack."""
        known, shares = self.known, self.shares
        mean = np.average(shares[known], axis=0, weights=totals[known])
        return np.where(known[:, None], shares - mean, 0.0)

    def expect(
        self,
        noisy: np.ndarray,
        noise_scale: np.ndarray,
        totals: np.ndarray,
        shares: np.ndarray,
        last: bool = False,
    ) -> np.ndarray:
        """The share of each topic expected of each word, (n_words, n_components).

        That of the topic, `shares` (n_components,), and what public topics and vectors
        add to it, as far as they are trusted. `noisy` is the released table, and
        `noise_scale` (n_words,) the noise of its cells. Of the words that are held out,
        that of the topic alone is expected before the `last` table.
        """
        rows, precision, own = standard(noisy, noise_scale, totals, shares)
        held, found = self.held, np.zeros_like(rows)
        if self.shares is not None:
            public = self._contrasts(totals)
            self.trust = trust_in(public[held], rows[held], precision[held], 1.0)
            rows = rows - slope_on(public, rows, precision)[0] * public
            found += self.trust * public
        if self.directions is not None:
            penalty = 1 / (SHARED * own)
            others = left_out(
                self.directions, rows, np.where(held, 0, precision), penalty
            )
            found += trust_in(others[held], rows[held], precision[held], 0.5) * others
        if not last:
            found[held] = 0
        if self.is_hint:  # seed words belong to their topics, however few these are
            found[self.known] = self.shares[self.known] - shares
        found = np.maximum(found + shares, FLOOR * shares)
        return found / found.sum(axis=1, keepdims=True)


def trust_in(
    expected: np.ndarray, rows: np.ndarray, precision: np.ndarray, before: float
) -> float:
    """How far released rows agree with what was expected of them, from 0 to 1.

    The slope of the rows on what was expected, over `REAL`: its posterior mean, if it
    is normal around `before` with a standard deviation of 1.
    """
    slope, precise = slope_on(expected, rows, precision)
    precise *= REAL**2
    return min(max((precise * slope / REAL + before) / (precise + 1), 0.0), 1.0)


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
    variance = ((np.square(rows).mean(axis=1) - noise) / noise).sum() / (
        1 / noise
    ).sum()
    variance = max(float(variance), 1e-6)
    return rows, 1 / ((1 - SHARED) * variance + noise), variance


def slope_on(
    expected: np.ndarray, rows: np.ndarray, precision: np.ndarray
) -> tuple[float, float]:
    """Slope of released rows on what is expected, and the precision of its noise."""
    square = float(np.einsum("v,vk,vk->", precision, expected, expected))
    return float(np.einsum("v,vk,vk->", precision, expected, rows)) / max(
        square, 1e-12
    ), square


def left_out(
    features: np.ndarray, rows: np.ndarray, precision: np.ndarray, penalty: float
) -> np.ndarray:
    """What ridge regression on the features of all other words says of each row.

    `features` is (n_words, n_features), `rows` (n_words, n_columns), and `precision`
    (n_words,) of the rows. The sum of squares of weights is penalized by `penalty`. A
    word is left out exactly: by its leverage, without another regression.
    """
    weighted = features * precision[:, None]
    inverse = inverted(np.einsum("vi,vj->ij", weighted, features), penalty)
    # no BLAS: its sums have any order
    turned = np.einsum("vi,ij->vj", features, inverse)
    leverage = np.einsum("vi,vi->v", turned, weighted)[:, None]
    fitted = np.einsum("vi,ik->vk", turned, np.einsum("vi,vk->ik", weighted, rows))
    return (fitted - leverage * rows) / np.maximum(1 - leverage, 1e-3)


def inverted(square: np.ndarray, penalty: float) -> np.ndarray:
    """Inverse of a positive matrix plus `penalty` times the identity, by elimination.

    LAPACK's would round otherwise on another processor, and no seed would give the same
    topics.
    """
    a = square + penalty * np.eye(len(square))
    for i in range(len(a)):
        pivot, row, column = a[i, i], a[i].copy(), a[:, i].copy()
        a -= np.multiply.outer(column, row) / pivot
        a[i], a[:, i], a[i, i] = row / pivot, -column / pivot, 1 / pivot
    return a
