"""The sweep that tests the topics: which of them are more than noise.

Some documents are kept out of all other sweeps. In the last sweep their tokens are
paired, and a token is counted in the row of its word and in the column of its partner's
topic. If the words of a topic do not belong together, a token's word tells nothing
about its partner. ``docs/proofs_word.md`` has the sensitivity of these counts and the
law of the evidence.
"""

from __future__ import annotations

import numpy as np

from dplda.core._corpus import Corpus
from dplda.gibbs._frozen_table import TokensByWord


def partners(doc_ptr: np.ndarray) -> np.ndarray:
    """The partner of each token, (n_tokens,); -1 for the last one of an odd document.

    It is public, because it depends on the lengths of documents only. The order of a
    document's tokens is uniform, so the matching is uniform too.
    """
    lengths = np.diff(doc_ptr)
    token = np.arange(doc_ptr[-1])
    place = token - np.repeat(doc_ptr[:-1], lengths)
    partner = token + 1 - 2 * (place % 2)
    partner[doc_ptr[1:][lengths % 2 == 1] - 1] = -1
    return partner


def count_pairs(
    tokens: Corpus,
    topics: np.ndarray,
    in_first: np.ndarray,
    counts: np.ndarray,
    n_jobs: int | None,
) -> np.ndarray:
    """Write counts of words and of the topics of partners over `counts`; private.

    A token is counted if its word and its partner's word lie in different halves of the
    words; `in_first` (n_words,) is the mask of one half. If one token's word is
    replaced and all topics stay, at most two cells change, by one each.
    """
    partner = partners(tokens.doc_ptr)  # public
    half = in_first[tokens.word]  # private
    counted = np.flatnonzero((partner >= 0) & (half != half[partner]))  # private
    words = Corpus(
        tokens.word[counted], np.array([0, len(counted)]), tokens.n_words
    )  # private
    by_word = TokensByWord.from_corpus(words)  # private
    return by_word.count(topics[partner[counted]], counts, n_jobs)  # private


def evidence_of_pairs(
    components: np.ndarray,
    draws: np.ndarray,
    pairs: np.ndarray,
    noise_std: float,
    in_first: np.ndarray,
) -> np.ndarray:
    """At most standard normal for a topic whose words do not belong together, (K,).

    All are public: the table `components` (n_components, n_words), which is the claim;
    the probabilities `draws` (n_words, n_components) of the topics of a word; and the
    released `pairs` of the same shape, without the mean of their noise.
    """
    totals = components.sum(axis=0)
    shares = components.sum(axis=1) / totals.sum()
    claims = components.T - np.outer(totals, shares)
    found = []
    variances = []
    overlaps = []
    for half in (in_first, ~in_first):
        weight = totals[half] / totals[half].sum()
        met = pairs[half]
        rows = met.sum(axis=1)
        n = max(rows.sum(), 1.0)
        # of topics among the partners, whose words are in the other half
        share = np.clip(met.sum(axis=0) / n, 0, 1)
        claim = claims[half] - weight @ claims[half]
        beyond = met - np.outer(rows, share)
        found.append(np.einsum("vk,vk->k", claim, beyond))
        # the law of the noise and of independent tokens, or what the words show: a word
        # that comes in bursts varies more
        squares = claim**2
        of_a_pair = (weight @ squares) * share * (1 - share)
        noise = noise_std**2 * (1 - 2 * share + len(share) * share**2)
        by_law = noise * squares.sum(axis=0) + n * of_a_pair
        variances.append(np.maximum(by_law, np.einsum("vk,vk->k", squares, beyond**2)))
        drawn = np.einsum("v,vk,vk->k", weight, claim, draws[half])
        overlaps.append(drawn / np.sqrt(np.maximum(of_a_pair, 1e-300)))
    # a pair is counted in both halves, and a word draws the topics that claim it
    correlation = np.clip(overlaps[0] * overlaps[1], 0, 1)
    variance = sum(variances) + 2 * correlation * np.sqrt(variances[0] * variances[1])
    z: np.ndarray = sum(found) / np.sqrt(np.maximum(variance, 1e-300))
    return z
