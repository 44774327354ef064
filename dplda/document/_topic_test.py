"""Rounds that test which topics are more than noise.

A public coin for each word divides the vocabulary into two halves. The topic weights of
a document are inferred from its words in one half, and multiplied by its word counts in
the other half. If the words of a topic do not belong together, one half says nothing of
the other, however often a document repeats its words. The test statistic of the topic
then consists of noise alone, whose law is known. ``docs/proofs_document.md`` has the
theorem.

Everything here is a function of public constants and of released values. It is
post-processing and has no privacy cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import t as student

from dplda.core._fold_in import aligned_zeros, in_16_bits
from dplda.core._signal import FALSE_POSITIVES, KEPT_OUT, first_half
from dplda.document._document_budget import CLIP, NORM, Round
from dplda.document._private_side import Halves, PrivateSide, RoundInference
from dplda.document._public_words import product
from dplda.document._table_estimate import word_probabilities
from dplda.privacy._mechanisms import MAX_RADIUS

# The documents test a table that they have trained. By chance they confirm what they
# have added themselves, at most so many times (benchmarks/topic_signal.py).
ECHO = 7.0


@dataclass(frozen=True, eq=False)
class Claim:
    """What the topics of a table say of the words, which is tested; public."""

    table: np.ndarray  # word-topic counts, (n_words, n_components)
    shares: np.ndarray  # share of each topic of all tokens, (n_components,)
    # word weight times (count - word total * share), (n_words, n_components)
    contrasts: np.ndarray
    weight: np.ndarray  # word weights, (n_words,)
    common: np.ndarray  # word totals times word weights, (n_words,)
    # contrasts of the public topics alone, at the same word totals; None without any
    public: np.ndarray | None = None
    # counts of public clusters of words with the same totals; None without vectors
    clusters: np.ndarray | None = None

    @property
    def parts(self) -> np.ndarray:
        """Parts of the topics beside clusters that are compared; the last one is 1."""
        return np.linspace(0, 1, 11) if self.clusters is not None else np.ones(1)

    @property
    def size(self) -> np.ndarray:
        """Squared lengths of the contrasts, (n_components,)."""
        return np.einsum("vk,vk->k", self.contrasts, self.contrasts)

    @property
    def chance(self) -> np.ndarray:
        """Variance of the documents' sum along each contrast, (n_components,).

        It assumes that the tokens of a topic are in documents whose topic weights have
        the distance CLIP from the shares.
        """
        squares = np.einsum("vk,vk,v->k", self.contrasts, self.contrasts, self.common)
        chance: np.ndarray = CLIP**2 * self.shares * squares
        return chance

    @classmethod
    def of(
        cls,
        table: np.ndarray,
        weight: np.ndarray,
        public: np.ndarray | None = None,
        clusters: np.ndarray | None = None,
    ) -> Claim:
        """From word-topic counts (n_words, n_components) and word weights (n_words,).

        The counts were estimated from releases. They add up to the word totals of the
        documents that have trained. `public` are counts by the public topics alone, and
        `clusters` by public clusters of words.
        """
        totals = table.sum(axis=1, dtype=float)
        shares, contrasts = contrasts_of(table, weight)
        of_public = None if public is None else contrasts_of(public, weight)[1]
        common = weight * totals
        return cls(table, shares, contrasts, weight, common, of_public, clusters)

    def across(self, first: np.ndarray) -> Claim:
        """The claim with contrasts orthogonal to the word totals, in each half.

        The topic weights that one half infers may be too large or too small on average.
        The sum of the other half then moves by a multiple of its word totals.
        """

        def across(contrasts: np.ndarray) -> np.ndarray:
            contrasts = contrasts.copy()
            for half in (first, ~first):
                common = self.common * half
                along = (common[:, None] * contrasts).sum(axis=0)
                contrasts -= np.outer(common, along / np.square(common).sum())
            return contrasts

        public = None if self.public is None else across(self.public)
        return replace(self, contrasts=across(self.contrasts), public=public)

    def expected(self, first: np.ndarray) -> Iterator[np.ndarray]:
        """The sums that the documents give if topics are true, up to a factor.

        There is one sum for each of `parts`: this part of the true topics is that of
        the claim, and clusters are the rest. Each document has one topic j. Its weights
        are the means of p(topic | word) of the claim over its words in one half, as if
        the words of the other half were ordinary. The sums (n_words, n_components) are
        in the units of `contrasts`.
        """
        if first.all() or not first.any():
            yield from (np.zeros_like(self.contrasts) for _ in self.parts)
            return
        totals = np.maximum(self.table.sum(axis=1, keepdims=True), 1e-300)
        of_words = self.table / totals - self.shares
        true = self._in_halves(first, of_words)
        other = true
        if self.clusters is not None:
            clusters = Claim.of(self.clusters, self.weight)
            other = clusters._in_halves(first, of_words)
        for part in self.parts:
            contrasts = part * true.contrasts + (1 - part) * other.contrasts
            sizes = part * true.sizes, (1 - part) * other.sizes
            share = (sizes[0] / (sizes[0] + sizes[1]))[:, None]
            weights = share * true.weights + (1 - share) * other.weights
            sums = np.empty_like(contrasts)
            for seen, of_half in zip((first, ~first), weights, strict=True):
                sums[~seen] = product(contrasts[~seen], of_half)
            yield sums

    def _in_halves(self, first: np.ndarray, of_words: np.ndarray) -> InHalves:
        sizes = np.maximum(self.table.sum(axis=0), 1e-300)
        of_topics = self.contrasts / (self.weight[:, None] * sizes)
        weights = [
            product(of_topics[seen].T, of_words[seen]) for seen in (first, ~first)
        ]
        return InHalves(self.across(first).contrasts, sizes, np.array(weights))

    def halves(
        self, radius: int, round_number: int, doc_topic_prior: float, n_jobs: int | None
    ) -> Halves:
        """The tables of the test in a round; public."""
        n_words, n_components = self.table.shape
        scratch = aligned_zeros(self.table.shape, np.float32)
        center = scratch.copy()
        center[:, :n_components] = self.shares
        factor = scratch.copy()
        factor[:, :n_components] = 1
        table = np.asarray(self.table, np.float32)
        sizes = table.sum(axis=0, dtype=float)
        phi = word_probabilities(table, sizes, scratch, n_jobs)
        return Halves(
            first_half(n_words, round_number),
            RoundInference(phi, doc_topic_prior, anew=True),
            np.asarray(self.shares, np.float32),
            CLIP,
            in_16_bits(factor, n_jobs),
            in_16_bits(center, n_jobs, size=0),
            self.weight,
            NORM,
            radius,
        )


class InHalves(NamedTuple):
    """Topics that are true, when the words are divided into two halves."""

    contrasts: np.ndarray  # across the word totals, (n_words, n_components)
    sizes: np.ndarray  # tokens of the topics, (n_components,)
    # mean topic weights of documents of each topic, less the shares, as inferred from
    # their words in each half, (2, n_components, n_components)
    weights: np.ndarray


def contrasts_of(
    table: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Topic shares, and the contrasts of a table with word weights (`Claim`)."""
    totals = table.sum(axis=1, dtype=float)
    sizes = table.sum(axis=0, dtype=float)
    shares = sizes / sizes.sum()
    return shares, weight[:, None] * (table - np.outer(totals, shares))


class Beside(NamedTuple):
    """Sums over the rounds of test, of the public topics; (n_components,) each."""

    product: np.ndarray  # inner products of public contrasts and releases
    square: np.ndarray  # squared lengths of the public contrasts
    common: np.ndarray  # inner products of public contrasts and those of the claim


class Tested(NamedTuple):
    """Sums over the rounds of test so far, (n_components,) each; public."""

    # inner products of contrasts and releases, over the variance of the noise
    product: np.ndarray
    square: np.ndarray  # squared lengths of the contrasts, over the same variance
    # largest part of a squared length that the documents have added themselves
    added: np.ndarray | float = 0.0
    # variance from the random choice of documents, relative to the squared length
    spread: np.ndarray | float = 0.0
    # inner products of releases and the sums that the topics let expect, and squared
    # lengths of the latter, both over the variance of the noise; for each of the
    # `parts` of the topics, (n_parts, n_components)
    confirmed: np.ndarray = np.zeros((1, 1))
    claimed: np.ndarray = np.zeros((1, 1))
    beside: Beside | None = None  # None without public topics

    def confirmed_part(self, topics: np.ndarray) -> float:
        """Part of what some topics say of the words that documents confirm, at most 1.

        The slope of the releases on the sums that the topics (a mask) let expect. Its
        prior is normal with mean 1 and standard deviation 1. Returns the posterior
        mean, clipped to [0, 1].
        """
        confirmed = np.broadcast_to(self.confirmed[-1], topics.shape)[topics].sum()
        claimed = np.broadcast_to(self.claimed[-1], topics.shape)[topics].sum()
        # other processors round the sums otherwise
        slope = float(np.float32((confirmed + 1) / (claimed + 1)))
        return min(max(slope, 0.0), 1.0)

    def part_beside_clusters(self, topics: np.ndarray) -> float:
        """Part of some topics (a mask) that fits the documents best, beside clusters.

        The most likely of the parts that were compared, or the one next to the
        confirmed part if that is smaller.
        """
        best = int(np.argmax(self._log_likelihood(topics)))
        return self._confirmed(best, topics)

    def least_part_beside_clusters(self, topics: np.ndarray) -> float:
        """The same, as the quantile `FALSE_POSITIVES`: 0 where noise hides the part."""
        return self._confirmed(least(self._log_likelihood(topics)), topics)

    def _log_likelihood(self, topics: np.ndarray) -> np.ndarray:
        """Of the parts that were compared, (n_parts,).

        The sums of the documents are normal around a multiple of those that a mixture
        lets expect. The most likely multiple is taken, because it depends on the
        lengths of the documents.
        """
        confirmed = np.maximum(self.confirmed[:, topics].sum(axis=1), 0)
        claimed = np.maximum(self.claimed[:, topics].sum(axis=1), 1e-300)
        return 0.5 * confirmed**2 / claimed

    def _confirmed(self, step: int, topics: np.ndarray) -> float:
        steps = len(self.claimed) - 1
        return min(step, round(steps * self.confirmed_part(topics))) / steps

    @property
    def kept(self) -> float:
        """Least share of what the claim adds to the public topics that is confirmed.

        The z-scores of a mixture of the claim and the public topics are the larger, the
        more the documents confirm it. All shares of the claim are equally likely before
        the test. Returns the quantile `FALSE_POSITIVES` of the posterior: without
        evidence, the public topics stay. It is 1 without public topics.
        """
        if self.beside is None:
            return 1.0
        product, square, common = self.beside
        kept = np.linspace(0, 1, 101)[:, None]
        products = kept * self.product + (1 - kept) * product
        squares = kept**2 * self.square + (1 - kept) ** 2 * square
        squares += 2 * kept * (1 - kept) * common
        z = np.maximum(products, 0) / np.sqrt(np.maximum(squares, 1e-300))
        # a step of the grid: rounding errors do not enter the published table
        return float(kept[least(0.5 * np.square(z).sum(axis=1)), 0])

    @property
    def z(self) -> np.ndarray:
        """z-scores (n_components,): at most standard normal if a topic is noise."""
        length = np.sqrt(np.maximum(self.square, 1e-300))
        added = self.added * length
        z: np.ndarray = self.product / length - ECHO * added * np.minimum(1, added)
        return z / np.sqrt(1 + self.spread * self.square)


def least(log_likelihood: np.ndarray) -> int:
    """Step of a grid from 0 to 1 that is the quantile `FALSE_POSITIVES` of a part.

    All steps are equally likely before.
    """
    likelihood = np.exp(log_likelihood - log_likelihood.max())
    below = np.cumsum(likelihood) / likelihood.sum()
    return int(np.searchsorted(below, FALSE_POSITIVES))


def met(
    before: Tested | None,
    claim: Claim,
    noisy: np.ndarray,
    this_round: Round,
    n_docs: float,
) -> Tested:
    """What is known of the claim after one more round of test.

    `noisy` (n_words, n_components) are the released integers. `n_docs` is an upper
    estimate of the number of documents, from releases.
    """
    n_words, n_components = noisy.shape
    first = first_half(n_words, this_round.number)
    granularity = this_round.norm / this_round.mechanism.radius / this_round.rate
    # contributions sum to zero over topics: the mean of a row is noise only
    cells = granularity * (noisy - noisy.mean(axis=1, keepdims=True))
    variance = (this_round.mechanism.scale * granularity) ** 2 * (1 - 1 / n_components)

    def inner(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        # no einsum: on other processors it adds in another order
        return (a * b).sum(axis=0) / variance

    confirmed = np.empty((len(claim.parts), n_components))
    claimed = np.empty_like(confirmed)
    for i, expected in enumerate(claim.expected(first)):
        confirmed[i] = inner(expected, cells)
        claimed[i] = inner(expected, expected)
    claim = claim.across(first)
    along = inner(claim.contrasts, cells)
    size = np.maximum(claim.size, 1e-300)
    square = claim.size / variance
    beside = None
    if claim.public is not None:
        beside = Beside(
            inner(claim.public, cells),
            inner(claim.public, claim.public),
            inner(claim.public, claim.contrasts),
        )
    if before is not None:
        along += before.product
        square += before.square
        confirmed += before.confirmed
        claimed += before.claimed
        if beside is not None and before.beside is not None:
            beside = Beside(*map(np.add, beside, before.beside))
    # a document adds at most this norm in L2
    added = np.minimum(1, n_docs * claim.shares * this_round.norm**2 / size)
    spread = NORM * claim.chance / size**2 / this_round.rate
    return Tested(along, square, added, spread, confirmed, claimed, beside)


def tested_without_noise(
    documents: PrivateSide,
    claim: Claim,
    norm: float,
    doc_topic_prior: float,
    n_jobs: int | None,
) -> Tested:
    """The test of a fit without noise, by documents that did not train; not private.

    One document in `KEPT_OUT` did not train. These documents form `KEPT_OUT` blocks.
    The mean over the blocks is tested by Student's t, which becomes a z-score. The
    standard error is at least ``claim.chance`` says, because few blocks have documents
    of a small topic. No unit is longer than `norm`, so that none is clipped.
    """
    halves = claim.halves(MAX_RADIUS, 0, doc_topic_prior, n_jobs)._replace(norm=norm)
    claim = claim.across(halves.first)
    found = []
    for block in range(KEPT_OUT):
        units = np.arange(KEPT_OUT * (block + 1) - 1, documents.n_units, KEPT_OUT**2)
        cells = documents.sum_halves(units, halves) * (CLIP * norm / MAX_RADIUS)
        found.append(np.einsum("vk,vk->k", claim.contrasts, cells))
    variance = KEPT_OUT * np.var(found, axis=0, ddof=1)
    error = np.sqrt(np.maximum(variance, claim.chance / KEPT_OUT))
    ratio = np.sum(found, axis=0) / np.maximum(error, 1e-300)
    return Tested(-ndtri(student.sf(ratio, KEPT_OUT - 1)), np.ones(len(claim.shares)))
