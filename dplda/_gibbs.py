"""Frozen-table Gibbs sampling, with draws that have exactly the stated probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dplda._corpus import Corpus
from dplda._threads import in_threads
from dplda.kernels import _frozen, _gibbs
from dplda.privacy._streams import Purpose, Streams

BLOCK_TOKENS = 1 << 17
MAX_COMPONENTS = 2048
LARGEST_CLIP = 1 << 22  # in units of the prior; halves have 30 binary orders of magnitude
SMALLEST_HALF, LARGEST_HALF = 2.0**-14, 65504.0  # of the normal ones
WIDTH = 16  # rows of the table are padded to a multiple of this
NO_WORDS = np.empty(0, np.uint64)


@dataclass(frozen=True, eq=False)
class HalfTable:
    """A word-topic table of positive halves, with an exact bound on the ratio of two in a topic.

    Attributes
    ----------
    half : ndarray of shape (n_words, padded), uint16
        Bits of normal IEEE halves in proportion to clip(counts, 0, count_clip) + prior over the
        size of the topic; 0 on the padding to a multiple of 16 topics.
    n_components : int
        Number of topics.
    """

    half: np.ndarray
    n_components: int

    @classmethod
    def from_counts(cls, counts: np.ndarray, count_clip: float, prior: float) -> HalfTable:
        """Clip noisy counts (n_words, n_components) to [0, count_clip], and add the prior.

        Two halves of one topic differ by at most the factor count_clip / prior + 1. This bound is
        exact: halves are clipped to [floor, ceiling] of their topic, and ceiling is at most this
        multiple of floor, whatever was rounded before.
        """
        values = np.clip(counts, 0, count_clip) + prior
        sizes = values.sum(axis=0)
        scale = LARGEST_HALF / (values.max(axis=0) / sizes).max() / sizes
        floor = np.clip(prior * scale, SMALLEST_HALF, LARGEST_HALF).astype(np.float16)
        # Four roundings of 2**-53 each cannot undo the factor: `limit` is below the exact product.
        limit = floor.astype(np.float64) * ((count_clip / prior + 1.0) * (1.0 - 2.0**-50))
        ceiling = np.minimum(limit, LARGEST_HALF).astype(np.float16)
        ceiling = np.where(ceiling > limit, np.nextafter(ceiling, np.float16(0)), ceiling)
        ceiling = np.maximum(ceiling, floor)
        values = np.clip((values * scale).astype(np.float16), floor, ceiling)
        n_components = values.shape[1]
        half = np.zeros((len(values), -(-n_components // WIDTH) * WIDTH), np.uint16)
        half[:, :n_components] = values.view(np.uint16)
        return cls(half, n_components)

    @property
    def values(self) -> np.ndarray:
        """The halves (n_words, n_components) as float64, exactly."""
        return self.half[:, : self.n_components].view(np.float16).astype(np.float64)


def draw_topics(
    corpus: Corpus,
    topics: np.ndarray,
    table: HalfTable,
    *,
    doc_topic_prior: float,
    streams: Streams,
    t: int,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Draw the topic of every token under a table that does not change.

    The probabilities are exactly those of the table's halves; docs/sampling.md has the law. The
    arguments are not modified. Each block of documents has its own random stream, so that the
    result does not depend on `n_jobs`.
    """
    drawn = topics.copy()
    blocks = corpus.blocks(BLOCK_TOKENS)
    ends = np.cumsum([block.n_tokens for block in blocks])

    def run(index: int) -> None:
        block = blocks[index]
        span = slice(ends[index] - block.n_tokens, ends[index])
        # Documents of about one length are swept side by side: none is left over at the end.
        order = np.argsort(-np.diff(block.doc_ptr), kind="stable")
        bits = streams.words(Purpose.TOPICS, t, index, block.n_tokens)
        refinement = NO_WORDS
        while True:
            n_exact = _frozen.sweep(
                block.word, block.doc_ptr, order, drawn[span], table.half, doc_topic_prior, bits,
                refinement, _frozen.tolerance(table.half.shape[1]),
            )  # fmt: skip
            if n_exact >= 0:
                return
            # One draw in some 2**53 needs more than 64 bits: the block again, with 128 for each.
            refinement = streams.words(Purpose.TOPICS, t, index, block.n_tokens, spare=True)
            drawn[span] = topics[span]

    in_threads(run, range(len(blocks)), n_jobs)
    return drawn


def count_words(corpus: Corpus, topics: np.ndarray, n_components: int) -> np.ndarray:
    """Exact word-topic counts (n_words, n_components), int64; private."""
    counts = np.zeros((corpus.n_words, n_components), np.int64)
    _gibbs.count_words(corpus.word, topics, counts)
    return counts
