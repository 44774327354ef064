"""Noisy word totals, and their empirical-Bayes estimate.

Everything here is a function of released values and of public constants. It is
post-processing and has no privacy cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.special import expit

SAMPLED_WORDS = 2048  # most words from which the weights of the mixture are learned
# ratios of a word's frequency to the expected frequency
RATIOS = np.geomspace(1 / 16, 16, 17, dtype=np.float32)
# Log likelihood that learned weights gain over the ratio 1 by chance. Without it,
# perplexity is 11% higher where noise hides all totals, and the same elsewhere.
CHANCE = 10.0


class PublicFrequencies(Protocol):
    """What public tables say of word totals: a `PublicWords`."""

    def totals(self, released: WordTotals) -> np.ndarray:
        """Posterior means of word totals (n_words,), positive."""


@dataclass(frozen=True, eq=False)
class WordTotals:
    """The mean of all releases of word totals, weighted by precision; public."""

    noisy: np.ndarray  # word totals, (n_words,)
    noise_scale: np.ndarray  # standard deviation of their noise, (n_words,)
    # Mean of the totals over the words. It is not the mean of `noisy`, which is too
    # large: a word with much noise in the first release gets a small weight for the
    # second, and keeps more of the noise.
    mean: float
    # Noisy number of documents, and its standard error. With users, the geometric mean
    # of the numbers of documents and users: a user's documents share one norm.
    n_docs: float = 0.0
    n_docs_error: float = 0.0
    doc_length: float = 1.0  # estimated number of different words in a document
    # noisy number of protected units, and the standard deviation of its noise
    n_units: float = math.nan
    n_units_std: float = math.nan

    def times(self, ratio: float) -> WordTotals:
        """These totals, if the scale of all documents changes by `ratio`."""
        return replace(
            self,
            noisy=ratio * self.noisy,
            noise_scale=ratio * self.noise_scale,
            mean=ratio * self.mean,
        )

    def and_release(self, noisy: np.ndarray, noise_scale: np.ndarray) -> WordTotals:
        """The mean of these totals and of one more release, at the same scale."""
        both = 1 / np.square([self.noise_scale, noise_scale])
        precision = both.sum(axis=0)
        values = (both * np.array([self.noisy, noisy])).sum(axis=0) / precision
        # inverse mean variance of a word's total
        rates = [1 / np.square(s).mean() for s in (self.noise_scale, noise_scale)]
        mean = float(np.average([self.mean, noisy.mean()], weights=rates))
        scale = 1 / np.sqrt(precision)
        return replace(self, noisy=values, noise_scale=scale, mean=mean)

    def and_documents(self, other: WordTotals) -> WordTotals:
        """The totals of these documents and of other documents, at the same scale."""
        return WordTotals(
            self.noisy + other.noisy,
            np.hypot(self.noise_scale, other.noise_scale),
            self.mean + other.mean,
            self.n_docs + other.n_docs,
            self.n_docs_error + other.n_docs_error,
            self.doc_length,
            self.n_units + other.n_units,
            math.hypot(self.n_units_std, other.n_units_std),
        )

    def given(self, public: PublicFrequencies | None) -> np.ndarray:
        """Posterior means of word totals (n_words,), with the public tables, if any."""
        return self.smooth() if public is None else public.totals(self)

    def smooth(self, expected: np.ndarray | None = None) -> np.ndarray:
        """Posterior means of word totals, positive, under a prior that all words share.

        The prior is a mixture of normal distributions. 17 of them are the same for all
        words: their centers range from 1/100 of the mean total to 60 times the mean
        total (or the largest total, if that is larger). With `expected` word
        frequencies (n_words,), each word has 17 more: their centers are its expected
        total times one of `RATIOS`. The standard deviation is half the distance to the
        next center. Expectation-maximization learns the weights of the mixture from at
        most `SAMPLED_WORDS` words. If they fit no better than by chance, all words have
        the ratio 1.
        """
        noisy = self.noisy.astype(np.float32)
        scale = self.noise_scale.astype(np.float32)
        mean = max(self.mean, 0.01 * float(scale.mean()))
        largest = max(mean * 60, float(noisy.max()))
        levels = np.geomspace(mean / 100, largest, len(RATIOS), dtype=np.float32)
        centers = np.broadcast_to(levels, (len(noisy), len(levels)))
        variances = (0.5 * np.log(levels[1] / levels[0]) * centers) ** 2
        if expected is not None:
            frequency = expected / expected.sum() * (mean * len(noisy))
            near = np.outer(frequency.astype(np.float32), RATIOS)
            near_variances = (0.5 * np.log(RATIOS[1] / RATIOS[0]) * near) ** 2
            centers = np.hstack([centers, near])
            variances = np.hstack([variances, near_variances])
        prior = np.full(centers.shape[1], 1 / centers.shape[1], np.float32)
        distance = noisy[:, None] - centers
        variance = scale[:, None] ** 2 + variances
        likelihood = -0.5 * (distance**2 / variance + np.log(variance))
        likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        means = centers + distance * (variances / variance)
        some = likelihood[:: -(-len(noisy) // SAMPLED_WORDS)]
        # unlike BLAS, einsum adds in the same order for any number of threads
        for _ in range(49):
            evidence = np.einsum("vg,g->v", some, prior)
            prior *= np.einsum("vg,v->g", some, 1 / evidence) / len(some)
        # no weight becomes zero: words outside of the sample may need the level
        prior += np.float32(1e-6)
        evidence = np.einsum("vg,g->v", likelihood, prior)
        found = np.einsum("vg,vg,g->v", likelihood, means, prior) / evidence
        if expected is not None:
            # compare with the ratio 1, which learned weights beat by chance
            exactly = len(levels) + len(RATIOS) // 2
            of_ratio_1 = np.maximum(likelihood[:, exactly], 1e-30)
            gain = np.log(evidence / of_ratio_1).sum(dtype=float)
            by_chance = np.float32(expit(CHANCE - gain))
            found += by_chance * (means[:, exactly] - found)
        return np.maximum(found, levels[0]).astype(float)


class ExactTotals(WordTotals):
    """Word totals without noise, of a fit without privacy."""

    def and_release(self, noisy: np.ndarray, noise_scale: np.ndarray) -> WordTotals:
        """These totals: another release has the same."""
        return self

    def and_documents(self, other: WordTotals) -> WordTotals:
        both = super().and_documents(other)
        return ExactTotals(**vars(both)) if isinstance(other, ExactTotals) else both

    def given(self, public: PublicFrequencies | None) -> np.ndarray:
        return self.smooth()

    def smooth(self, expected: np.ndarray | None = None) -> np.ndarray:
        """The totals, at least 1: new documents may have other words."""
        return np.maximum(self.noisy, 1.0)
