"""Rounds that test the topics: which of them are more than noise.

The words are cut into two halves by a public coin. Topic weights that a document's
words of one half infer meet its words of the other half. If the words of a topic do not
belong together, the two halves know nothing of each other, however often a document
repeats its words. What a topic claims then meets the noise of the release only, and the
law of this noise is known. ``docs/proofs_document.md`` has the theorem.

Everything here is a function of public constants and of released values. It is
post-processing and has no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import t as student

from dplda.core._fold_in import aligned_zeros, in_16_bits
from dplda.core._signal import KEPT_OUT, first_half
from dplda.document._document_budget import CLIP, NORM, Round
from dplda.document._private_side import Halves, PrivateSide, RoundInference
from dplda.document._table_estimate import word_probabilities
from dplda.privacy._mechanisms import MAX_RADIUS

# The documents have trained the table that they test, and confirm by chance what they
# have added to it themselves, up to so many times (benchmarks/topic_signal.py).
ECHO = 7.0
BLOCKS = 10  # of the units that test a fit without noise


@dataclass(frozen=True, eq=False)
class Claim:
    """What the topics of a table say of the words; public."""

    table: np.ndarray  # word-topic counts, (n_words, n_components)
    shares: np.ndarray  # of each topic of all tokens, (n_components,)
    # counts beyond those shares, times word weights, (n_words, n_components)
    contrasts: np.ndarray
    weight: np.ndarray  # word weights, (n_words,)
    common: np.ndarray  # word totals times word weights, (n_words,)

    @property
    def size(self) -> np.ndarray:
        """Squared lengths of the contrasts, (n_components,)."""
        return np.einsum("vk,vk->k", self.contrasts, self.contrasts)

    @property
    def chance(self) -> np.ndarray:
        """Variance of what documents say of the contrasts, (n_components,).

        A topic has its share of the tokens, each in a document that is CLIP from the
        shares.
        """
        squares = np.einsum("vk,vk,v->k", self.contrasts, self.contrasts, self.common)
        chance: np.ndarray = CLIP**2 * self.shares * squares
        return chance

    @classmethod
    def of(cls, table: np.ndarray, weight: np.ndarray) -> Claim:
        """Of word-topic counts that were estimated from releases, and word weights.

        They add up to the word totals of the documents that have trained.
        """
        totals = table.sum(axis=1, dtype=float)
        sizes = table.sum(axis=0, dtype=float)
        shares = sizes / sizes.sum()
        contrasts = weight[:, None] * (table - np.outer(totals, shares))
        return cls(table, shares, contrasts, weight, weight * totals)

    def across(self, first: np.ndarray) -> Claim:
        """Without the direction of the word totals in each half of the words.

        Topic weights that one half infers may be too large on average, or too small:
        what they meet in the other half is then a multiple of its word totals.
        """
        contrasts = self.contrasts.copy()
        for half in (first, ~first):
            common = self.common * half
            along = np.einsum("v,vk->k", common, contrasts)
            along /= np.einsum("v,v->", common, common)
            contrasts -= np.outer(common, along)
        return replace(self, contrasts=contrasts)

    def halves(
        self, radius: int, t: int, doc_topic_prior: float, n_jobs: int | None
    ) -> Halves:
        """What the units of round t are told; public."""
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
            first_half(n_words, t),
            RoundInference(phi, doc_topic_prior, anew=True),
            np.asarray(self.shares, np.float32),
            CLIP,
            in_16_bits(factor, n_jobs),
            in_16_bits(center, n_jobs, size=0),
            self.weight,
            NORM,
            radius,
        )


class Tested(NamedTuple):
    """What rounds of test have found of each topic, (n_components,) each; public."""

    product: np.ndarray  # of claims with releases, over the variance of the noise
    square: np.ndarray  # of claims with themselves, over the same variance
    # Of a claim's square: the largest part that its documents have added themselves,
    # and the variance that one draw of documents or another makes.
    own: np.ndarray | float = 0.0
    spread: np.ndarray | float = 0.0

    @property
    def z(self) -> np.ndarray:
        """At most standard normal for a topic whose words do not belong together."""
        length = np.sqrt(np.maximum(self.square, 1e-300))
        own = self.own * length
        z: np.ndarray = self.product / length - ECHO * own * np.minimum(1, own)
        return z / np.sqrt(1 + self.spread * self.square)


def met(
    before: Tested | None,
    claim: Claim,
    noisy: np.ndarray,
    this_round: Round,
    n_docs: float,
) -> Tested:
    """What is known of the claim after one more release of halves.

    `noisy` (n_words, n_components) are the released integers, and `n_docs` is the noisy
    number of documents.
    """
    n_words, n_components = noisy.shape
    claim = claim.across(first_half(n_words, this_round.t))
    granularity = CLIP * NORM / this_round.mechanism.radius / this_round.rate
    # contributions sum to zero over topics: the mean of a row is noise only
    cells = granularity * (noisy - noisy.mean(axis=1, keepdims=True))
    variance = (this_round.mechanism.scale * granularity) ** 2 * (1 - 1 / n_components)
    product = np.einsum("vk,vk->k", claim.contrasts, cells) / variance
    size = np.maximum(claim.size, 1e-300)
    square = claim.size / variance
    if before is not None:
        product += before.product
        square += before.square
    # A document of a topic is CLIP from the shares, and its words have the norm NORM.
    own = np.minimum(1, n_docs * claim.shares * (CLIP * NORM) ** 2 / size)
    spread = NORM * claim.chance / size**2 / this_round.rate
    return Tested(product, square, own, spread)


def tested_without_noise(
    documents: PrivateSide,
    claim: Claim,
    norm: float,
    doc_topic_prior: float,
    n_jobs: int | None,
) -> Tested:
    """The test of a fit without noise and privacy, by documents that did not train.

    Their blocks are compared by Student's t, which is turned into a normal deviate. Few
    blocks have documents of a small topic: the error is at least that by `chance`. No
    document is longer than `norm`, so that none is cut.
    """
    halves = claim.halves(MAX_RADIUS, 0, doc_topic_prior, n_jobs)._replace(norm=norm)
    claim = claim.across(halves.first)
    found = []
    for block in range(BLOCKS):
        units = np.arange(KEPT_OUT * (block + 1) - 1, documents.n_units, KEPT_OUT**2)
        cells = documents.sum_halves(units, halves) * (CLIP * norm / MAX_RADIUS)
        found.append(np.einsum("vk,vk->k", claim.contrasts, cells))
    variance = BLOCKS * np.var(found, axis=0, ddof=1)
    error = np.sqrt(np.maximum(variance, claim.chance / KEPT_OUT))
    ratio = np.sum(found, axis=0) / np.maximum(error, 1e-300)
    return Tested(-ndtri(student.sf(ratio, BLOCKS - 1)), np.ones(len(claim.shares)))
