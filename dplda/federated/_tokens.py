"""Privatized tokens, and the Metropolis-Hastings sampler that reads only these.

`privatize` is the only function that reads words. docs/proofs_local.md has the proofs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import joblib
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dplda.core._corpus import Corpus
from dplda.kernels import _metropolis
from dplda.leaf._threads import in_threads
from dplda.privacy._mechanisms import RandomizedBits
from dplda.privacy._streams import MAX_WORDS, Purpose, Streams

# Tokens of a block of whole documents, which has its own stream; enters seeded results.
BLOCK_TOKENS = 2**14


@dataclass(frozen=True, eq=False)
class Tokens:
    """Privatized tokens of documents: public lengths and noisy vectors, without words.

    A unit, a token or a sentence, has one topic.
    """

    unit_ptr: NDArray[np.int64]  # (n_units + 1,) where the tokens of each unit begin
    doc_ptr: NDArray[np.int64]  # (n_docs + 1,) where the tokens of each document begin
    # (n_tokens + 1,) where the ones of each noisy vector begin in `word`
    ptr: NDArray[np.int64]
    word: NDArray[np.int32]  # the words that the tokens report
    n_words: int
    flip: float  # probability with which each bit was reported wrongly; 0 without noise

    @property
    def n_tokens(self) -> int:
        return len(self.ptr) - 1

    @property
    def n_units(self) -> int:
        return len(self.unit_ptr) - 1

    def of_documents(self, chosen: NDArray[np.bool_]) -> Tokens:
        """The tokens of the documents in a mask (n_docs,)."""
        is_chosen = np.repeat(chosen, np.diff(self.doc_ptr))  # of each token
        lengths = np.diff(self.ptr)
        units = is_chosen[self.unit_ptr[:-1]]  # a unit is in one document
        return Tokens(
            _edges(np.diff(self.unit_ptr)[units]),
            _edges(np.diff(self.doc_ptr)[chosen]),
            _edges(lengths[is_chosen]),
            self.word[np.repeat(is_chosen, lengths)],
            self.n_words,
            self.flip,
        )

    def counts_times(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Unbiased word counts of documents times `weights` (n_words, n), (n_docs, n).

        A bit b counts as (b - flip) / (1 - 2 flip).
        """
        shape = (len(self.doc_ptr) - 1, self.n_words)
        ones = np.ones(len(self.word))
        reported = sp.csr_array((ones, self.word, self.ptr[self.doc_ptr]), shape=shape)
        expected = np.outer(np.diff(self.doc_ptr) * self.flip, weights.sum(axis=0))
        counts = (reported @ weights - expected) / (1 - 2 * self.flip)
        return np.asarray(counts, np.float64)

    def blocks(self) -> list[tuple[int, int]]:
        """First and last document of each block of about `BLOCK_TOKENS`.

        Blocks have whole documents.
        """
        starts = np.searchsorted(
            self.doc_ptr, np.arange(0, self.n_tokens, BLOCK_TOKENS)
        )
        edges = np.unique(np.append(starts, len(self.doc_ptr) - 1)).tolist()
        return list(itertools.pairwise(edges))

    def word_scores(self) -> NDArray[np.float64]:
        """Unbiased count of each word, (n_words,).

        A bit b counts as (b - flip) / (1 - 2 flip).
        """
        reported = np.bincount(self.word, minlength=self.n_words)
        scores = (reported - self.n_tokens * self.flip) / (1 - 2 * self.flip)
        return np.asarray(scores, np.float64)

    def word_weights(self) -> NDArray[np.float64]:
        """Estimated frequency of each word, (n_words,).

        Unbiased except for a positive floor.
        """
        # even words whose estimate is lost in the noise can be proposed
        noise = self.n_tokens * (self.flip * (1 - self.flip) / (1 - 2 * self.flip) ** 2)
        floor = max(1.0, 0.5 * noise**0.5)
        return np.maximum(self.word_scores(), floor)


def _edges(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where parts of these lengths begin, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def check_size(corpus: Corpus, bits: RandomizedBits | None) -> None:
    """Refuse a corpus that needs more random words than the charge of a fit allows."""
    reported = max(1.0, corpus.n_words * (bits.probability if bits else 0.0))
    if corpus.n_tokens * reported > MAX_WORDS / 2:
        raise ValueError(
            f"the tokens need more than {MAX_WORDS // 2} random words; raise "
            "token_epsilon, or give fewer documents"
        )


def privatize(corpus: Corpus, bits: RandomizedBits | None, streams: Streams) -> Tokens:
    """Noisy vectors of all tokens of a private corpus.

    Only the public lengths of the corpus are kept.
    """
    # One blanked token changes one coordinate of its own one-hot vector by 1, and no
    # coordinate of another token, because the order and the number of tokens do not
    # depend on words. Every coordinate of every token gets independent noise, so this
    # costs the mechanism's epsilon.
    word = corpus.word
    n_words = corpus.n_words
    each = np.arange(len(word) + 1)
    if bits is None:
        return Tokens(each, corpus.doc_ptr, each, word.copy(), n_words, 0.0)
    ptr, ones = bits.in_rows(each, word, n_words, streams)
    return Tokens(each, corpus.doc_ptr, ptr, ones, n_words, bits.probability)


@dataclass(frozen=True, eq=False)
class Topics:
    """Word probabilities of the topics in a sweep, and alias tables.

    `phi` is (n_components, n_words), rows sum to 1. `threshold` and `alias` (n_words,
    n_components) draw a topic for each word, with probability proportional to phi.
    """

    phi: NDArray[np.float32]
    threshold: NDArray[np.uint32]
    alias: NDArray[np.int32]

    @classmethod
    def from_weights(cls, table: NDArray[np.float64]) -> Topics:
        """Make the tables of non-negative weights (n_components, n_words)."""
        phi = _shares(table)
        weight = np.ascontiguousarray(phi.T)
        threshold = np.empty(weight.shape, np.uint32)
        alias = np.empty(weight.shape, np.int32)
        n_components = weight.shape[1]
        left = np.empty(n_components)
        stack = np.empty(n_components, np.int32)
        _metropolis.build_alias(weight, threshold, alias, left, stack)
        return cls(phi, threshold, alias)


def sweep_tokens(
    tokens: Tokens,
    topics: NDArray[np.int32],
    table: NDArray[np.float64],
    word_prior: NDArray[np.float64],
    *,
    doc_topic_prior: float,
    streams: Streams,
    t: int,
    n_jobs: int | None = None,
) -> NDArray[np.int64]:
    """Draw each unit's topic, in place, and each token's word, with `table` fixed.

    `topics` (n_units,) holds -1 for a unit without a topic. `word_prior` (n_words,)
    weighs candidate words among those that a token reports. Each block of documents has
    its own random stream at `t`, so `n_jobs` changes no result. Returns the number of
    times that each word was drawn with each topic, (n_components, n_words).
    """
    model = Topics.from_weights(table)
    prior = _shares(word_prior)
    # likelihood ratio of a word not reported
    base = (tokens.flip / (1 - tokens.flip)) ** 2
    blocks = tokens.blocks()
    n_shares = max(1, min(len(blocks), joblib.effective_n_jobs(n_jobs)))

    def run(share: NDArray[np.int64]) -> NDArray[np.int32]:
        counts = np.zeros(table.shape, np.int32)
        n_components = len(table)
        for block in map(int, share):
            first_doc, last_doc = blocks[block]
            doc_ptr = tokens.doc_ptr[first_doc : last_doc + 1]
            ptr = tokens.ptr[doc_ptr[0] : doc_ptr[-1] + 1]
            # where each document's units begin
            units = np.searchsorted(tokens.unit_ptr, doc_ptr)
            first = int(units[0])
            last = int(units[-1])
            reader = streams.reader(Purpose.PROPOSALS, t, block)
            _metropolis.sweep(
                units,
                tokens.unit_ptr,
                first,
                last,
                topics,
                ptr - ptr[0],
                tokens.word[ptr[0] : ptr[-1]],
                base,
                model.phi,
                model.threshold,
                model.alias,
                prior,
                doc_topic_prior,
                reader.words(2 * (last - first)),
                reader.words(4 * len(ptr) - 4),
                counts,
                np.empty(n_components, np.int32),
                np.empty(n_components),
                np.empty(n_components, np.int64),
            )
        return counts

    parts = in_threads(run, np.array_split(np.arange(len(blocks)), n_shares), n_jobs)
    # integer sums do not depend on the order
    total = np.zeros(table.shape, np.int64)
    for part in parts:
        total += part
    return total


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float32]:
    """Each row divided by its sum, as probabilities that float32 can hold."""
    shares = weights / weights.sum(axis=-1, keepdims=True)
    least = np.finfo(np.float32).smallest_normal
    return np.maximum(shares, least).astype(np.float32)
