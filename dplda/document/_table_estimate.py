"""Empirical-Bayes estimates of a noisy word-topic table.

Everything here is a function of released values and of public constants. It is
post-processing and has no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dplda.core._fold_in import pad, slices
from dplda.document._public_words import Agreement, PublicWords
from dplda.kernels import _denoise
from dplda.leaf._threads import in_threads, n_threads
from dplda.privacy._streams import PIECE

# Figures like -0.4 / -0.7 are points of the share of the gap, at epsilon 1 and 4, that
# a change gives (docs/results.md).
# A cell's count is about its word's total times its topic's share times one of these
# factors.
FACTORS = np.array(
    [0, 0.03, 0.1, 0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7, 11, 18], np.float32
)
# Standard deviation around a factor, over the factor. 0: -0.4 / -0.7, and -2 at epsilon
# 100, because cells with weak noise would take exactly one of the factors.
WIDTH = 0.25
# The first frequencies of the factors are exp(-TILT factor): their mean factor is 1.
TILT = 0.2771


class NoisyCells(NamedTuple):
    """A noisy word-topic table, its noise, and its word totals; public."""

    values: np.ndarray  # noisy word-topic counts, (n_words, n_components)
    # standard deviation of the noise in a cell of each word, (n_words,)
    noise_scale: np.ndarray
    totals: np.ndarray  # estimated word totals, (n_words,)


@dataclass(frozen=True, eq=False)
class CellPrior:
    """Prior of the cells of a word-topic table, learned from noisy tables; public.

    A noisy cell is n_v m_vk g plus noise. n_v is the word's total. m_vk is the expected
    p(topic | word): from public tables and the rows of other words
    (`PublicWords.expect`), or, without public tables, the topic's share of all tokens.
    g is normal around one of `FACTORS`, with the standard deviation `WIDTH` times the
    factor. Expectation-maximization learns the frequencies of the factors. Cells with
    strong noise shrink toward n_v m_vk; cells with weak noise hardly change.
    """

    factors: np.ndarray  # frequencies of `FACTORS`, (n_factors,)
    # m_vk, (n_words, padded) float32; (1, padded) if it is the same for all words
    expected: np.ndarray
    trust: float = 1.0  # how far public topics are trusted, from 0 to 1
    agreement: Agreement | None = None  # of released rows with the word vectors

    @classmethod
    def learned(
        cls,
        cells: NoisyCells,
        before: CellPrior | None = None,
        public: PublicWords | None = None,
        *,
        renew: bool = True,
        is_final: bool = False,
        n_jobs: int | None = None,
    ) -> CellPrior:
        """The prior of a noisy table, by one step from the prior `before`.

        `renew` computes the expected shares again. `is_final` is true for the table
        that a fit publishes, whose words are not held out.
        """
        values, noise_scale, totals = cells
        if before is None:
            factors = np.exp(-TILT * FACTORS.astype(float))
            factors = factors / factors.sum()
        else:
            factors = before.factors
        if renew or before is None:
            sizes = topic_sizes(values, n_jobs)
            sizes = np.maximum(sizes, 1e-12)  # noise can make a sum negative
            shares = sizes / sizes.sum()  # share of each topic of all tokens
            expected = shares[None]
            trust = 1.0
            agreement = None
            if public is not None and len(shares) > 1:
                expected, trust, agreement = public.expect(
                    values, noise_scale, totals, shares, is_final
                )
            prior = cls(factors, pad(expected), trust, agreement)
        else:
            prior = before
        histogram = np.zeros(nodes()[0].shape[1:], np.int64)  # of the cells
        _denoise.count(*prior.inputs(cells), histogram)
        rows, columns = np.nonzero(histogram)
        likelihood = nodes()[0][:, rows, columns]
        share = histogram[rows, columns] / np.einsum("gi,g->i", likelihood, factors)
        factors = factors * np.einsum("gi,i->g", likelihood, share)
        factors = factors / factors.sum() + 1e-5  # no frequency becomes zero
        return replace(prior, factors=factors / factors.sum())

    def means(
        self, cells: NoisyCells, *, least: float = 0.0, n_jobs: int | None = None
    ) -> np.ndarray:
        """Posterior means of the cells plus `least`, float32, a table like `cells`."""
        likelihood, weighted = nodes()
        factors = np.asarray(self.factors, np.float32)
        means = np.einsum("guz,g->uz", weighted, factors)
        means /= np.einsum("guz,g->uz", likelihood, factors)
        out = np.empty(cells.values.shape, np.float32)
        _denoise.estimate(*self.inputs(cells), means, least, out, n_threads(n_jobs))
        return out

    def slopes(self, cells: NoisyCells, n_jobs: int | None = None) -> np.ndarray:
        """Slope of each posterior mean in its noisy cell, up to a factor of the word.

        It is that of the chord from one standard deviation of the noise below to one
        above. The result (n_words, n_components) is positive. The slope times the
        variance of the noise is the posterior variance of the cell.
        """
        noise = cells.noise_scale[:, None]
        less = self.means(cells._replace(values=cells.values - noise), n_jobs=n_jobs)
        more = self.means(cells._replace(values=cells.values + noise), n_jobs=n_jobs)
        more -= less
        return np.maximum(more, 1e-30, out=more)

    def inputs(
        self, cells: NoisyCells
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Arguments of the kernels for a noisy table."""
        values, noise_scale, totals = cells
        rate = (totals / noise_scale).astype(np.float32)
        shape = (len(values), self.expected.shape[1])
        center = np.broadcast_to(self.expected, shape)
        return values, rate, noise_scale.astype(np.float32), center


def estimated(
    cells: NoisyCells,
    before: CellPrior | None = None,
    public: PublicWords | None = None,
    *,
    renew: bool = True,
    is_final: bool = False,
    least: float = 0.0,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, CellPrior | None]:
    """Estimate a table (n_words, n_components), float32, from a noisy one.

    Also returns the prior that `CellPrior.learned` learns from it; None without noise.
    `least` is added to each cell.
    """
    if not cells.noise_scale.any():
        table = np.empty(cells.values.shape, np.float32)
        np.maximum(cells.values, 0.0, out=table, casting="same_kind")
        table += np.float32(least)
        return table, None
    prior = CellPrior.learned(
        cells, before, public, renew=renew, is_final=is_final, n_jobs=n_jobs
    )
    return prior.means(cells, least=least, n_jobs=n_jobs), prior


@lru_cache(maxsize=1)
def nodes() -> tuple[np.ndarray, np.ndarray]:
    """Likelihood of a cell under each factor, and likelihood times posterior mean.

    Both are (n_factors, n_expected, n_seen), at the nodes of ``_denoise.h``: expected
    counts (u) and noisy counts (z), over the noise scale. The likelihood is relative to
    the most likely factor.
    """
    expected, z = _denoise.nodes()
    u = expected.astype(float)
    center = FACTORS[:, None, None].astype(float) * u[:, None]
    variance = (WIDTH * center) ** 2
    off = z - center
    likelihood = -0.5 * (off**2 / (1 + variance) + np.log(1 + variance))
    likelihood = np.exp(np.maximum(likelihood - likelihood.max(axis=0), -80.0))
    means = center + off * variance / (1 + variance)
    return likelihood.astype(np.float32), (likelihood * means).astype(np.float32)


def add_up(
    table: np.ndarray,
    totals: np.ndarray,
    variance: np.ndarray,
    n_jobs: int | None = None,
) -> None:
    """Make the cells of each word add up to its total, in place.

    `table` and `variance` are (n_words, n_components), and `totals` is (n_words,). The
    variances of a row are known up to a factor. Each row moves to the nearest
    non-negative row with the right sum, in squares over the variances: its cells change
    by a multiple of their variances. A common factor instead would change large,
    well-known cells the most and make topics alike. A total below the rounding errors
    of its row is raised to them.
    """

    def move(words: slice) -> None:
        cells = table[words]
        of_row = variance[words]
        total = np.maximum(totals[words], 1e-9 * cells.sum(axis=1, dtype=float))
        kept = np.ones(cells.shape, bool)
        while True:  # ends: a pass removes cells of some row, but never all of a row
            missing = total - np.where(kept, cells, 0).sum(axis=1)
            multiple = missing / np.where(kept, of_row, 0).sum(axis=1, dtype=float)
            moved = cells + multiple[:, None] * of_row
            negative = kept & (moved < 0)
            if not negative.any():
                break
            kept &= ~negative
        cells[:] = np.where(kept, moved, 0)

    in_threads(move, slices(len(table), max(1, PIECE // table.shape[1])), n_jobs)


def topic_sizes(table: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """The sum of each topic (n_components,), over fixed pieces in a fixed order."""
    return _denoise.topic_sums(table, n_threads(n_jobs)).sum(axis=0)


def temper(factor: np.ndarray, power: float, n_jobs: int | None = None) -> np.ndarray:
    """Raise a float32 table to a power in (0, 1], in place."""
    if power == 1:
        return factor
    _denoise.temper(factor, power, n_threads(n_jobs))
    return factor


def word_probabilities(
    table: np.ndarray, sizes: np.ndarray, out: np.ndarray, n_jobs: int | None
) -> np.ndarray:
    """p(word | topic), (n_words, padded) float32, in `out`, from topic sizes."""
    inverse = (1 / sizes).astype(np.float32)
    _denoise.shares(table, inverse, out, n_threads(n_jobs))
    return out


def topic_shares(table: np.ndarray, out: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """p(topic | word), (n_words, padded) float32, in `out`."""
    _denoise.shares(table, None, out, n_threads(n_jobs))
    return out
