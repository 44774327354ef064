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
from dplda.document._public_words import PublicWords
from dplda.kernels import _denoise
from dplda.leaf._threads import in_threads, n_threads

# Points of the share of the gap that a change gives, at epsilon 1 / 4: docs/results.md.
# A cell's count is its word's total times its topic's share times about one of these
# factors.
FACTORS = np.array(
    [0, 0.03, 0.1, 0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7, 11, 18], np.float32
)
# standard deviation around a factor, over the factor; 0: -0.4 / -0.7, and at epsilon
# 100 -2: cells with weak noise would take one of the factors
WIDTH = 0.25
TILT = 0.2771  # of the first weights, exp(-TILT factor): their mean factor is 1
SAMPLE = 2**16  # cells that the weights are learned from, about
STEP = 0.25  # of a cell's noise, to both sides, for the slope of its posterior mean
# cells that a thread works on before it takes the next ones; enters results
PIECE = 2**14


class NoisyCells(NamedTuple):
    """A noisy word-topic table, and what is known of its noise and of its words."""

    values: np.ndarray  # (n_words, n_components)
    noise_scale: np.ndarray  # standard deviation of a cell of each word, (n_words,)
    totals: np.ndarray  # estimated word totals, (n_words,)


@dataclass(frozen=True, eq=False)
class CellPrior:
    """What is expected of the cells of a word-topic table, as learned from noisy ones.

    A cell is n_v m_vk g plus noise. Here n_v is the word's total, m_vk is the share of
    the topic that is expected of the word, and g is normal around one of `FACTORS`,
    with a quarter of the factor as its standard deviation. The frequencies of the
    factors are learned by expectation-maximization. Cells with strong noise shrink
    toward n_v m_vk; cells with weak noise hardly change. m_vk is what public numbers
    and the rows of other words say (`PublicWords.expect`), and without public numbers
    the topic's share of all tokens.
    """

    # frequencies of the factors, (n_factors,)
    factors: np.ndarray
    # m_vk, float32, (n_words or 1, n_components to whole vectors); one row if all words
    # have it
    expected: np.ndarray
    trust: float = 1.0  # in public topics, from 0 to 1
    contradicts_vectors: bool = False

    @classmethod
    def learned(
        cls,
        cells: NoisyCells,
        before: CellPrior | None = None,
        public: PublicWords | None = None,
        *,
        renew: bool = True,
        last: bool = False,
        n_jobs: int | None = None,
    ) -> CellPrior:
        """The prior of a noisy table, which improves the one `before`.

        With `renew`, what is expected of the words is computed again. The `last` table
        of a fit expects it of all words.
        """
        values, noise_scale, totals = cells
        if before is None:
            factors = np.exp(-TILT * FACTORS.astype(float))
            factors = factors / factors.sum()
        else:
            factors = before.factors
        if renew or before is None:
            sizes = topic_sizes(values, n_jobs)
            sizes = np.maximum(sizes, 1e-12)  # noise may take all of a topic
            shares = sizes / sizes.sum()  # of each topic of all tokens
            expected = shares[None]
            trust, contradicted = 1.0, False
            if public is not None and len(shares) > 1:
                expected, trust, contradicted = public.expect(
                    values, noise_scale, totals, shares, last
                )
            prior = cls(factors, pad(expected), trust, contradicted)
        else:
            prior = before
        counts = np.zeros(nodes()[0].shape[1:], np.int64)
        every = max(1, values.size // SAMPLE)
        _denoise.count(*prior.inputs(cells), every, counts)
        rows, columns = np.nonzero(counts)
        likelihood = nodes()[0][:, rows, columns]
        share = counts[rows, columns] / np.einsum("gi,g->i", likelihood, factors)
        factors = factors * np.einsum("gi,i->g", likelihood, share)
        factors = factors / factors.sum() + 1e-5  # no factor is given up
        return replace(prior, factors=factors / factors.sum())

    def means(
        self, cells: NoisyCells, *, least: float = 0.0, n_jobs: int | None = None
    ) -> np.ndarray:
        """Posterior means of the cells, (n_words, n_components) float32.

        `least` is added to each.
        """
        likelihood, weighted = nodes()
        factors = np.asarray(self.factors, np.float32)
        means = np.einsum("guz,g->uz", weighted, factors)
        means /= np.einsum("guz,g->uz", likelihood, factors)
        out = np.empty(cells.values.shape, np.float32)
        _denoise.estimate(*self.inputs(cells), means, least, out, n_threads(n_jobs))
        return out

    def slopes(self, cells: NoisyCells, n_jobs: int | None = None) -> np.ndarray:
        """Slope of each posterior mean in its noisy cell, (n_words, n_components).

        It is positive. Times the variance of the noise, it is the posterior variance of
        the cell. The result is that times a factor of the word.
        """
        step = STEP * cells.noise_scale[:, None]
        less = self.means(cells._replace(values=cells.values - step), n_jobs=n_jobs)
        more = self.means(cells._replace(values=cells.values + step), n_jobs=n_jobs)
        more -= less
        return np.maximum(more, 1e-30, out=more)

    def inputs(
        self, cells: NoisyCells
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What the kernels read of a noisy table."""
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
    last: bool = False,
    least: float = 0.0,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, CellPrior | None]:
    """Estimate a table (n_words, n_components), float32, from its noisy form.

    Also returns the prior that was learned from it, see `CellPrior.learned`. `least` is
    added to each cell.
    """
    if not cells.noise_scale.any():
        table = np.empty(cells.values.shape, np.float32)
        np.maximum(cells.values, 0.0, out=table, casting="same_kind")
        table += np.float32(least)
        return table, before
    prior = CellPrior.learned(
        cells, before, public, renew=renew, last=last, n_jobs=n_jobs
    )
    return prior.means(cells, least=least, n_jobs=n_jobs), prior


@lru_cache(maxsize=1)
def nodes() -> tuple[np.ndarray, np.ndarray]:
    """Likelihood of a cell under each factor, and that times the posterior mean.

    Both are (n_factors, n_expected, n_seen), at the nodes of ``_denoise.h``: of what is
    expected (u) and of what is seen (z), in units of the noise. The likelihood is
    relative to that of the most likely factor.
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
    """Make each word's cells add up to its total, in place.

    All are (n_words, n_components).

    The cells of a row change by a multiple of their variances, which are known up to a
    factor of the row, and none falls below 0. This is the nearest such row, in squares
    over the variances. A common factor would change large cells that are well known the
    most, and make topics alike. A total that is smaller than rounding errors of its row
    counts as large as they are.
    """

    def move(words: slice) -> None:
        cells = table[words]
        room = variance[words]
        total = np.maximum(totals[words], 1e-9 * cells.sum(axis=1, dtype=float))
        kept = np.ones(cells.shape, bool)
        while True:  # each step keeps fewer cells of some row, and at least one of each
            missing = total - np.where(kept, cells, 0).sum(axis=1)
            step = missing / np.where(kept, room, 0).sum(axis=1, dtype=float)
            moved = cells + step[:, None] * room
            negative = kept & (moved < 0)
            if not negative.any():
                break
            kept &= ~negative
        cells[:] = np.where(kept, moved, 0)

    in_threads(move, slices(len(table), max(1, PIECE // table.shape[1])), n_jobs)


def topic_sizes(table: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """The sum of each topic (n_components,).

    Of fixed pieces, and of these in their order.
    """
    return _denoise.topic_sums(table, n_threads(n_jobs)).sum(axis=0)


def temper(factor: np.ndarray, power: float, n_jobs: int | None = None) -> np.ndarray:
    """Raise a float32 table to a power between 0 and 1, in place."""
    if power == 1:
        return factor
    _denoise.temper(factor, power, n_threads(n_jobs))
    return factor


def word_probabilities(
    table: np.ndarray, sizes: np.ndarray, out: np.ndarray, n_jobs: int | None
) -> np.ndarray:
    """p(word | topic), (n_words, padded) float32, in `out`; `sizes` are the topics'."""
    inverse = (1 / sizes).astype(np.float32)
    _denoise.shares(table, inverse, out, n_threads(n_jobs))
    return out


def topic_shares(table: np.ndarray, out: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """p(topic | word), (n_words, padded) float32, in `out`."""
    _denoise.shares(table, None, out, n_threads(n_jobs))
    return out
