"""Empirical-Bayes estimates of noisy word totals, and of a noisy word-topic table.

Everything here is a function of released values and of public constants. It is
post-processing and has no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import expit

from dplda.core._fold_in import pad, slices
from dplda.kernels import _denoise
from dplda.leaf._threads import in_threads, n_threads

# Points of the share of the gap that a change gives, at epsilon 1 / 4: docs/results.md.
# short documents count at most five times; 1: 0 / 0, where documents are long
SCALE_UP = 5.0
# A cell's count is its word's total times its topic's share times about one of these
# factors.
FACTORS = np.array(
    [0, 0.03, 0.1, 0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7, 11, 18], np.float32
)
# least size of a topic, over the mean; least expected share, over the topic's; 0.01: 0
# / 0
FLOOR = 0.05
WIDTH = 0.25  # standard deviation around a factor, over the factor; 0.15: 0 / 0
TILT = 0.2771  # of the first weights, exp(-TILT factor): their mean factor is 1
SAMPLE = 2**16  # cells that the weights are learned from, about
STEP = 0.25  # of a cell's noise, to both sides, for the slope of its posterior mean
# cells that a thread works on before it takes the next ones; enters results
PIECE = 2**14
FLATTEST = 1e-6  # slope, below which a mean in single precision says nothing
SAMPLED_WORDS = 2048  # that the weights of word totals are learned from, at most
LEVELS = 40  # of the word totals that a word may have whatever public numbers say
# of a word's frequency to the expected
RATIOS = np.geomspace(1 / 16, 16, 17, dtype=np.float32)
# log likelihood that learned weights may gain over the ratio 1; none: 0 / 0
CHANCE = 10.0


Cells = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class WordTotals:
    """Mean of all releases of word totals, weighted by precision."""

    noisy: np.ndarray  # word totals, (n_words,)
    noise_scale: np.ndarray  # standard deviation of the noise in each, (n_words,)
    # Mean of the totals. That of `noisy` is too large: a word with much noise in the
    # first release gets a small weight for the second, and keeps more of that noise.
    mean: float
    # Noisy number of documents, and one standard error more. With users, the geometric
    # mean of documents and users: a user's documents share one norm.
    n_docs: float = 0.0

    @property
    def precision(self) -> float:
        """Precision of a word's total: inverse mean variance; infinite if no noise."""
        variance = float(np.square(self.noise_scale).mean())
        return 1 / variance if variance else np.inf

    def and_release(self, noisy: np.ndarray, noise_scale: np.ndarray) -> WordTotals:
        """These totals and one more release of them, at the same scale."""
        both = 1 / np.square([self.noise_scale, noise_scale])
        precision = both.sum(axis=0)
        values = (both * np.array([self.noisy, noisy])).sum(axis=0) / precision
        rates = self.precision, 1 / np.square(noise_scale).mean()
        mean = float(np.average([self.mean, noisy.mean()], weights=rates))
        return WordTotals(values, 1 / np.sqrt(precision), mean, self.n_docs)

    def and_documents(self, other: WordTotals) -> WordTotals:
        """The totals of these documents and of others, at the same scale."""
        noise_scale = np.hypot(self.noise_scale, other.noise_scale)
        noisy, mean = self.noisy + other.noisy, self.mean + other.mean
        return WordTotals(noisy, noise_scale, mean, self.n_docs + other.n_docs)

    def smooth(self, expected: np.ndarray | None = None) -> np.ndarray:
        """Posterior means of word totals, positive, under a prior learned from all.

        The prior is a mixture of normal distributions. 40 of them are the same for all
        words: their centers range from a hundredth of the mean total to sixty times the
        mean total (or the largest total). With `expected` word frequencies (n_words,),
        17 more have a word's expected total times one of `RATIOS` as center. The width
        of each is half the distance to the next center. Fifty steps of
        expectation-maximization fit the weights, to some of the words of a large
        vocabulary. Unless they fit better than by chance, all words have the ratio 1.
        Without noise, totals below 1 become 1.
        """
        if not self.noise_scale.any():
            return np.maximum(self.noisy, 1.0)  # later documents may have other words
        noisy, scale = (
            self.noisy.astype(np.float32),
            self.noise_scale.astype(np.float32),
        )
        mean = max(self.mean, 0.01 * float(scale.mean()))
        largest = max(mean * 60, float(noisy.max()))
        levels = np.geomspace(mean / 100, largest, LEVELS, dtype=np.float32)
        centers = np.broadcast_to(levels, (len(noisy), LEVELS))
        variances = (0.5 * np.log(levels[1] / levels[0]) * centers) ** 2
        if expected is not None:
            frequency = expected / expected.sum() * (mean * len(noisy))
            near = np.outer(frequency.astype(np.float32), RATIOS)
            centers = np.hstack([centers, near])
            variances = np.hstack(
                [variances, (0.5 * np.log(RATIOS[1] / RATIOS[0]) * near) ** 2]
            )
        prior = np.full(centers.shape[1], 1 / centers.shape[1], np.float32)
        distance, variance = noisy[:, None] - centers, scale[:, None] ** 2 + variances
        likelihood = -0.5 * (distance**2 / variance + np.log(variance))
        likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        # also of totals that somebody made up
        means = centers + distance * (variances / variance)
        some = likelihood[:: -(-len(noisy) // SAMPLED_WORDS)]
        # einsum, unlike BLAS, adds in one order whatever the number of threads
        for _ in range(49):
            evidence = np.einsum("vg,g->v", some, prior)
            prior *= np.einsum("vg,v->g", some, 1 / evidence) / len(some)
        # no level is given up: it may be that of another word
        prior += np.float32(1e-6)
        evidence = np.einsum("vg,g->v", likelihood, prior)
        found = np.einsum("vg,vg,g->v", likelihood, means, prior) / evidence
        if expected is not None:
            # the ratio 1, which learned weights beat by chance
            exactly = LEVELS + len(RATIOS) // 2
            gain = np.log(evidence / np.maximum(likelihood[:, exactly], 1e-30)).sum(
                dtype=float
            )
            found += np.float32(expit(CHANCE - gain)) * (means[:, exactly] - found)
        return np.maximum(found, levels[0]).astype(float)


@dataclass
class TableEstimate:
    """Posterior mean of a noisy word-topic table, under a prior learned from the table.

    A cell is n_v m_vk g plus noise. Here n_v is the word's total, m_vk is the share of
    the topic that is expected of the word, and g is normal around one of `FACTORS`,
    with a quarter of the factor as its standard deviation. The frequencies of the
    factors are learned by expectation-maximization. Cells with strong noise shrink
    toward n_v m_vk; cells with weak noise hardly change. m_vk is what public numbers
    and the rows of other words say (`PublicWords.expect`), and without public numbers
    the topic's share of all tokens.
    """

    totals: np.ndarray  # (n_words,)
    public: Any = None  # PublicWords
    read: WordTotals | None = None  # the releases that `totals` come from
    # frequencies of the factors, (n_factors,), once learned
    prior: np.ndarray | None = None
    # m_vk, float32, (n_words or 1, n_components to whole vectors); one row if all words
    # have it
    expected: np.ndarray | None = None
    n_jobs: int | None = None  # threads, which never change a result

    def __call__(
        self,
        noisy: np.ndarray,
        noise_scale: np.ndarray,
        *,
        renew: bool = True,
        last: bool = False,
        least: float = 0.0,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Estimate the table (n_words, n_components), float32, from its noisy form.

        `noise_scale` (n_words,) holds the standard deviation of a cell of each word.
        `least` is added to each cell. Each call improves the prior of the last one, and
        with `renew` what is expected of the words. The `last` table of a fit expects it
        of all words.
        """
        out = np.empty(noisy.shape, np.float32) if out is None else out
        if not noise_scale.any():
            np.maximum(noisy, 0.0, out=out, casting="same_kind")
            out += np.float32(least)
            return out
        if renew or self.expected is None:
            sizes = topic_sizes(noisy, self.n_jobs)
            sizes = np.maximum(sizes, FLOOR * max(sizes.mean(), 1e-12))
            shares = sizes / sizes.sum()  # of each topic of all tokens
            expected = shares[None]
            if self.public is not None and len(shares) > 1:
                expected = self.public.expect(
                    noisy, noise_scale, self.totals, shares, last
                )
            self.expected = pad(expected)
        cells = self._cells(noisy, noise_scale)
        counts = np.zeros(nodes()[0].shape[1:], np.int64)
        _denoise.count(*cells, max(1, noisy.size // SAMPLE), counts)
        if self.prior is None:
            self.prior = np.exp(-TILT * FACTORS.astype(float))
            self.prior /= self.prior.sum()
        rows, columns = np.nonzero(counts)
        likelihood, n = nodes()[0][:, rows, columns], counts[rows, columns]
        share = n / np.einsum("gi,g->i", likelihood, self.prior)
        prior = self.prior * np.einsum("gi,i->g", likelihood, share)
        prior = prior / prior.sum() + 1e-5  # no factor is given up
        self.prior = prior / prior.sum()
        return self._means(cells, least, out)

    def slopes(self, noisy: np.ndarray, noise_scale: np.ndarray) -> np.ndarray:
        """Slope of each posterior mean in its noisy cell, (n_words, n_components).

        It is positive.

        Times the variance of the noise, it is the posterior variance of the cell. The
        result is that times a factor of the word.
        """
        cells, step = self._cells(noisy, noise_scale), STEP * noise_scale[:, None]
        less, more = np.empty((2, *noisy.shape), np.float32)
        self._means((noisy - step, *cells[1:]), 0.0, less)
        self._means((noisy + step, *cells[1:]), 0.0, more)
        more -= less
        return np.maximum(more, FLATTEST * step, out=more, casting="same_kind")

    def _cells(self, noisy: np.ndarray, noise_scale: np.ndarray) -> Cells:
        """A noisy table, and what the kernels need to know of its cells."""
        assert self.expected is not None
        rate = (self.totals / noise_scale).astype(np.float32)
        center = np.broadcast_to(self.expected, (len(noisy), self.expected.shape[1]))
        return noisy, rate, noise_scale.astype(np.float32), center

    def _means(self, cells: Cells, least: float, out: np.ndarray) -> np.ndarray:
        """Posterior means under the present prior, (n_words, n_components) float32."""
        likelihood, weighted = nodes()
        prior = np.asarray(self.prior, np.float32)
        table = np.einsum("guz,g->uz", weighted, prior)
        table /= np.einsum("guz,g->uz", likelihood, prior)
        _denoise.estimate(*cells, table, least, out, n_threads(self.n_jobs))
        return out


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
        cells, room = table[words], variance[words]
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
