"""Frozen-table Gibbs sampling, with draws that have exactly the stated probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dplda._corpus import Corpus
from dplda._fold_in import pad
from dplda._half_table import HalfTable
from dplda._threads import in_threads
from dplda.kernels import _gibbs
from dplda.privacy._streams import Purpose, Streams

BLOCK_TOKENS = 1 << 16
LARGEST_WEIGHT = 1 << 28
MAX_COMPONENTS = 2048  # 28 + 24 + 11 bits: a sum of weights fits in 64


@dataclass(frozen=True, eq=False)
class IntegerTable:
    """A word-topic table of positive integers, with an exact bound on the ratio of two weights.

    Attributes
    ----------
    weight : ndarray of shape (n_words, padded), uint32
        Integers in proportion to clip(counts, 0, count_clip) + prior.
    topic_scale : ndarray of shape (n_components,)
        Size of the smallest topic over the size of each topic, in (0, 1].
    """

    weight: np.ndarray
    topic_scale: np.ndarray

    @classmethod
    def from_counts(cls, counts: np.ndarray, count_clip: float, prior: float) -> IntegerTable:
        """Clip noisy counts (n_words, n_components) to [0, count_clip] and add the prior.

        Two weights of one topic differ by at most the factor count_clip / prior + 1. This bound is
        exact: the smallest weight is rounded up, and the largest is an integer.
        """
        smallest = smallest_weight(count_clip, prior)
        values = (np.clip(counts, 0, count_clip) + prior) * (LARGEST_WEIGHT / (count_clip + prior))
        weight = np.clip(np.rint(values), smallest, LARGEST_WEIGHT)
        sizes = weight.sum(axis=0)
        return cls(pad(weight, np.uint32), sizes.min() / sizes)

    @classmethod
    def from_halves(cls, table: HalfTable) -> IntegerTable:
        """The same table in integers; the ratio of two weights of a topic is no larger."""
        halves = table.weight
        largest = halves.max(axis=0)
        # the quotients have denominators below 2048: rounding in float64 changes no `ceil`
        weight = np.ceil(halves / largest * LARGEST_WEIGHT)
        return cls(pad(weight, np.uint32), largest / largest.max())


def smallest_weight(count_clip: float, prior: float) -> int:
    """The integer that stands for an empty cell when `LARGEST_WEIGHT` stands for a full one."""
    clip, beta = Fraction(float(count_clip)), Fraction(float(prior))
    ratio = beta / (clip + beta)
    return math.ceil(ratio * LARGEST_WEIGHT)


def draw_topics(
    corpus: Corpus,
    topics: np.ndarray,
    table: IntegerTable,
    *,
    doc_topic_prior: float,
    streams: Streams,
    t: int,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Draw the topic of every token under a table that does not change.

    The arguments are not modified. Each block of documents has its own random stream, so that the
    result does not depend on `n_jobs`.
    """
    topics = topics.copy()
    blocks = corpus.blocks(BLOCK_TOKENS)
    ends = np.cumsum([block.n_tokens for block in blocks])

    def run(index: int) -> None:
        block = blocks[index]
        part = topics[ends[index] - block.n_tokens : ends[index]]
        _sweep_block(block, part, table, doc_topic_prior, streams, t, index)

    in_threads(run, range(len(blocks)), n_jobs)
    return topics


def _sweep_block(block, topics, table, doc_topic_prior, streams, t, index) -> None:
    """Sweep one block in place. If the spare words run out, repeat the block with more."""
    start = topics.copy()
    bits = streams.words(Purpose.TOPICS, t, index, block.n_tokens)
    n_spare = 64 + block.n_tokens // 64
    document = np.zeros(table.weight.shape[1], np.uint32)
    count = np.zeros(len(table.topic_scale), np.int32)
    while True:
        spare = streams.words(Purpose.TOPICS, t, index, n_spare, spare=True)
        used = _gibbs.frozen_sweep(
            block.word, block.doc_ptr, topics, table.weight, table.topic_scale,
            doc_topic_prior, bits, spare, document, count,
        )  # fmt: skip
        if used >= 0:
            return
        topics[:] = start
        n_spare *= 4


def count_words(corpus: Corpus, topics: np.ndarray, n_components: int) -> np.ndarray:
    """Exact word-topic counts (n_words, n_components), int64; private."""
    counts = np.zeros((corpus.n_words, n_components), np.int64)
    _gibbs.count_words(corpus.word, topics, counts)
    return counts
