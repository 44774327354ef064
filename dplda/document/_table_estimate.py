"""Empirical-Bayes estimates of noisy word totals, and of a noisy word-topic table.

Everything here is a function of released values and of public constants. It is post-processing and
has no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dplda.core._fold_in import pad, slices
from dplda.kernels import _denoise
from dplda.leaf._threads import in_threads, n_threads

SCALE_UP = 5.0  # short documents count at most five times

# Figures are points of the gap between word frequencies and a model without noise, at epsilon 1 and
# 4 on KOS, BBC and NIPS. Normal shrinkage in the place of the mixture of factors loses 21 to 75.
# A cell's count is its word's total times its topic's share times about one of these factors.
FACTORS = np.array([0, 0.03, 0.1, 0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7, 11, 18], np.float32)
# The first weights with public texts: both centers have a mean factor of 1, so that each has the
# weight of its texts where releases say nothing.
TILT = 0.2771  # of the weights of factors: exp(-TILT factor)
SPREAD = 0.15  # share of the weight of the public center that is spread so; 1 has the rest
ONE = 6  # place of the factor 1
# With one class, or without a new start at the end, a fit without public texts is as good (0 to
# +2.5). Words that public texts have, and others, need classes of their own. More than two steps a
# round lose up to 2.6.
N_CLASSES = 6
SAMPLE = 2**16  # cells of a class of words that its prior is learned from, about
FIRST_STEPS, NEXT_STEPS, LAST_STEPS = 8, 2, 30
STEP = 0.25  # of a cell's noise, to both sides, for the slope of its posterior mean
PIECE = 2**14  # cells that a thread works on before it takes the next ones; enters results
FLATTEST = 1e-6  # slope, below which a mean in single precision says nothing

Public = np.ndarray | None
Cells = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, Public, Public]


@dataclass(frozen=True)
class WordTotals:
    """Mean of all releases of word totals, weighted by precision.

    Attributes
    ----------
    noisy : ndarray of shape (n_words,)
        Noisy word totals.
    noise_scale : ndarray of shape (n_words,)
        Standard deviation of the noise in each.
    mean : float
        Mean of the totals. The mean of `noisy` is too large: a word with much noise in the first
        release gets a small weight for the second, and keeps more of that noise.
    n_docs : float
        Noisy number of documents, and one standard error more.
    """

    noisy: np.ndarray
    noise_scale: np.ndarray
    mean: float
    n_docs: float = 0.0

    def and_release(self, noisy: np.ndarray, noise_scale: np.ndarray) -> WordTotals:
        """These totals and one more release of them, at the same scale."""
        both = np.array([self.noise_scale, noise_scale]) ** -2.0
        precision = both.sum(axis=0)
        values = (both * np.array([self.noisy, noisy])).sum(axis=0) / precision
        rates = [1 / np.square(scale).mean() for scale in (self.noise_scale, noise_scale)]
        mean = float(np.average([self.mean, noisy.mean()], weights=rates))
        return WordTotals(values, 1 / np.sqrt(precision), mean, self.n_docs)

    def and_documents(self, other: WordTotals) -> WordTotals:
        """The totals of these documents and of others, at the same scale."""
        noise_scale = np.hypot(self.noise_scale, other.noise_scale)
        noisy, mean = self.noisy + other.noisy, self.mean + other.mean
        return WordTotals(noisy, noise_scale, mean, self.n_docs + other.n_docs)

    def smooth(self) -> np.ndarray:
        """Estimated word totals, positive."""
        return smooth_totals(self.noisy, self.noise_scale)


def combine_totals(first: tuple, second: tuple) -> tuple[np.ndarray, np.ndarray]:
    """One estimate of the word totals, and its noise scale, from two of them.

    Documents are scaled slightly differently in the two. The ratio of the sums brings the first to
    the scale of the second. The mean is weighted by precision, so that it favors the first estimate
    for frequent words and the second for rare words.
    """
    if not second[1].any():
        return second
    sums = np.maximum([first[0].sum(), second[0].sum()], 1e-12)
    ratio = np.clip(sums[1] / sums[0], 1 / SCALE_UP, SCALE_UP)
    precision = np.array([1 / (ratio * first[1]) ** 2, 1 / second[1] ** 2])
    values = np.array([ratio * first[0], second[0]])
    total = precision.sum(axis=0)
    return (precision * values).sum(axis=0) / total, 1 / np.sqrt(total)


def smooth_totals(noisy: np.ndarray, noise_scale: np.ndarray) -> np.ndarray:
    """Posterior means of word totals, positive, under a prior learned from all of them.

    The prior is a mixture of 40 normal distributions. Their centers range from a hundredth of the
    mean total to sixty times the mean total (or the largest total). The width of each is half the
    distance to the next center. Fifty steps of expectation-maximization fit the weights. Without
    noise, totals below 1 become 1.
    """
    if not noise_scale.any():
        return np.maximum(noisy, 1.0)  # later documents may have other words
    mean = max(float(noisy.mean()), 0.01 * float(noise_scale.mean()))
    grid = np.geomspace(mean / 100, max(mean * 60, float(noisy.max())), 40)
    spread = (0.5 * np.log(grid[1] / grid[0]) * grid) ** 2
    likelihood, means = under_components(noisy, noise_scale, grid, spread)
    prior = np.full(len(grid), 1 / len(grid))
    for _ in range(49):  # einsum, unlike BLAS, adds in one order whatever the number of threads
        evidence = np.einsum("vg,g->v", likelihood, prior)
        prior *= np.einsum("vg,v->g", likelihood, 1 / evidence) / len(noisy)
    means = np.einsum("vg,vg,g->v", likelihood, means, prior)
    return np.maximum(means / np.einsum("vg,g->v", likelihood, prior), grid[0])


def under_components(
    noisy: np.ndarray, noise_scale: np.ndarray, centers: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood and posterior mean of noisy values under normal priors, (n_words, components).

    The likelihood is relative to that of the most likely component.
    """
    distance, variance = noisy[:, None] - centers, noise_scale[:, None] ** 2 + variances
    likelihood = -0.5 * (distance**2 / variance + np.log(variance))
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    return likelihood, centers + distance * variances / variance


def word_weights(totals: np.ndarray) -> np.ndarray:
    """Word weights, at most 4: the noise of a word grows with the fourth root of its frequency.

    Contributions are multiplied by the weights before the clip, and releases are divided by them.
    """
    return np.minimum(4.0, np.maximum(totals / totals.mean(), 1e-3) ** -0.25)


@dataclass
class TableEstimate:
    """Posterior mean of a noisy word-topic table, under a prior learned from the table.

    A cell is p_v N_k g plus noise. Here p_v is the word's share of all tokens, N_k is the topic's
    size, and g is normal around one of `FACTORS`, with a quarter of the factor as its standard
    deviation. The frequencies of the factors are learned by expectation-maximization in each of 6
    classes of word frequency, from a fixed part of a large class. Cells with strong noise shrink
    toward p_v N_k; cells with weak noise hardly change.

    Public pseudo-counts add a second center, U_v R_vk a_k, with the same factors: the word's total,
    its public share of the topic, and the root of the topic's size over the size that the public
    shares expect, within a factor of 2.

    Parameters
    ----------
    totals : ndarray of shape (n_words,)
        Word totals; None while there are releases that nobody has read.
    public : PublicPrior or None
        The public shares, and how far they are trusted at first.
    n_jobs : int or None
        Number of threads. It never changes a result.
    """

    totals: np.ndarray | None
    public: Any = None  # a PublicPrior
    prior: np.ndarray | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        assert self.totals is not None
        self._classes = word_classes(self.totals, self.public)
        self._class_of = np.empty(len(self.totals), np.uint8)
        for c, words in enumerate(self._classes):
            self._class_of[words] = c
        self._n_words = np.bincount(self._class_of)  # of each class
        self._shares = None if self.public is None else pad(self.public.shares)

    def __call__(
        self,
        noisy: np.ndarray,
        noise_scale: np.ndarray,
        *,
        last: bool = False,
        least: float = 0.0,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Estimate the table (n_words, n_components), float32, from its noisy form.

        `noise_scale` (n_words,) holds the standard deviation of a cell of each word. `least` is
        added to each cell. `last` starts from an even prior and takes more steps. Otherwise a few
        steps improve the prior of the previous round.
        """
        out = np.empty(noisy.shape, np.float32) if out is None else out
        if not noise_scale.any():
            np.maximum(noisy, 0.0, out=out, casting="same_kind")
            out += np.float32(least)
            return out
        prior, steps = self.prior, NEXT_STEPS
        if prior is None or last:
            prior = np.array([first_prior(self.public, words) for words in self._classes])
            steps = LAST_STEPS if last else FIRST_STEPS
        cells = self._cells(noisy, noise_scale)
        self.prior = improve_prior(prior, *self._likelihood(cells), steps, self.n_jobs)
        return self._means(cells, least, out)

    def slopes(self, noisy: np.ndarray, noise_scale: np.ndarray) -> np.ndarray:
        """The slope of each posterior mean in its noisy cell, positive, (n_words, n_components).

        Times the variance of the noise, it is the posterior variance of the cell. The result is
        that times a factor of the word.
        """
        cells, step = self._cells(noisy, noise_scale), STEP * noise_scale[:, None]
        less, more = np.empty((2, *noisy.shape), np.float32)
        self._means((noisy - step, *cells[1:]), 0.0, less)
        self._means((noisy + step, *cells[1:]), 0.0, more)
        more -= less
        return np.maximum(more, FLATTEST * step, out=more, casting="same_kind")

    def _cells(self, noisy: np.ndarray, noise_scale: np.ndarray) -> Cells:
        """A noisy table, and what the kernels need to know of its cells.

        A cell is expected to be `rate` times the topic's size, in units of its noise. Public shares
        expect `rate` times share times gain.
        """
        totals, shares, gains = self.totals, self._shares, None
        assert totals is not None
        sizes = topic_sizes(noisy, self.n_jobs)
        sizes = np.maximum(sizes, 0.02 * max(sizes.mean(), 1e-12))
        whole = pad(sizes.astype(np.float32)[None])[0]
        rate = (totals / totals.sum() / noise_scale).astype(np.float32)
        if shares is not None:

            def expect(words: slice) -> np.ndarray:  # no BLAS: its threads add in any order
                return (totals[words, None] * shares[words, : len(sizes)]).sum(axis=0)

            expected = np.sum(in_threads(expect, pieces_of(noisy.shape), self.n_jobs), axis=0)
            expected = np.maximum(expected, 1e-12)
            gains = np.sqrt(np.clip(sizes / expected, 0.5, 2.0)) * totals.sum()
            gains = pad(gains.astype(np.float32)[None])[0]
        return noisy, rate, noise_scale.astype(np.float32), whole, FACTORS, shares, gains

    def _likelihood(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Likelihood of the cells of each class under each factor, (n_vectors, n_factors, 16).

        Also where the vectors of each class begin, (n_classes + 1,). If a class has more than
        `SAMPLE` cells, vectors of 16 topics are left out, evenly.
        """
        noisy, _, _, sizes, _, shares, _ = cells
        per_word = len(sizes) // 16
        strides = -(-self._n_words * noisy.shape[1] // SAMPLE)
        while (shared := np.gcd(strides, per_word) > 1).any():
            strides[shared] += 1  # else some topics would never be in the part
        ptr = np.append(0, np.cumsum(-(-self._n_words * per_word // strides)))
        n_found = len(FACTORS) * (1 if shares is None else 2)
        likelihood = np.empty((ptr[-1], n_found, 16), np.float32)
        _denoise.likelihood(
            *cells, np.concatenate(self._classes), np.cumsum(self._n_words) - self._n_words,
            strides, ptr, likelihood, n_threads(self.n_jobs),
        )  # fmt: skip
        return likelihood, ptr

    def _means(self, cells: Cells, least: float, out: np.ndarray) -> np.ndarray:
        """Posterior means under the present prior, (n_words, n_components) float32."""
        assert self.prior is not None
        prior = self.prior.astype(np.float32)
        _denoise.estimate(*cells, prior, self._class_of, least, out, n_threads(self.n_jobs))
        return out


def word_classes(totals: np.ndarray, public: Any) -> list[np.ndarray]:
    """The words of each class: by frequency, those that public texts have apart from the others."""
    order = np.argsort(totals, kind="stable")
    known = np.zeros(len(totals), bool) if public is None else public.counts > 0
    n_known = 1 if public is not None and public.is_hint else N_CLASSES  # few seed words: one class
    classes = [
        *np.array_split(order[~known[order]], N_CLASSES),
        *np.array_split(order[known[order]], n_known),
    ]
    return [np.sort(words) for words in classes if len(words)]


def first_prior(public: Any, words: np.ndarray) -> np.ndarray:
    """The frequencies that expectation-maximization starts from, in the class of `words`.

    The factors of the public center, which come last, have the weight that public texts are trusted
    with.
    """
    if public is None:
        return np.full(len(FACTORS), 1 / len(FACTORS))
    spread = np.exp(-TILT * FACTORS.astype(float))
    spread /= spread.sum()
    near = SPREAD * spread
    near[ONE] += 1 - SPREAD
    trust = public.trust_of_words()[words[0]]
    return np.concatenate([(1 - trust) * spread, trust * near])


def improve_prior(
    prior: np.ndarray,
    likelihood: np.ndarray,
    ptr: np.ndarray,
    n_steps: int,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Expectation-maximization for the prior over the factors of each class."""
    sums = np.empty_like(prior)
    for _ in range(n_steps):
        _denoise.expectation(likelihood, ptr, prior, sums, n_threads(n_jobs))
        prior = prior * sums
        prior = prior / prior.sum(axis=1, keepdims=True) + 1e-5
        prior = prior / prior.sum(axis=1, keepdims=True)
    return prior


def add_up(
    table: np.ndarray, totals: np.ndarray, variance: np.ndarray, n_jobs: int | None = None
) -> None:
    """Make the cells of each word add up to its total, in place; all are (n_words, n_components).

    The cells of a row change by a multiple of their variances, which are known up to a factor of
    the row, and none falls below 0. This is the nearest such row, in squares over the variances. A
    common factor would change large cells that are well known the most, and make topics alike. A
    total that is smaller than rounding errors of its row counts as large as they are.
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

    in_threads(move, pieces_of(table.shape), n_jobs)


def pieces_of(shape: tuple[int, ...]) -> list[slice]:
    """The words of each piece of a table."""
    return slices(shape[0], max(1, PIECE // shape[1]))


def topic_sizes(table: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """The sum of each topic (n_components,): of fixed pieces, and of these in their order."""
    return _denoise.topic_sums(table, n_threads(n_jobs)).sum(axis=0)


def temper(factor: np.ndarray, power: float, n_jobs: int | None = None) -> np.ndarray:
    """Raise a float32 table to a power between 0 and 1, in place."""
    if power == 1:
        return factor
    _denoise.temper(factor, power, n_threads(n_jobs))
    return factor
