"""Frozen-table Gibbs sampling, with draws that have exactly the stated probabilities."""

from __future__ import annotations

import numpy as np

from dplda._corpus import Corpus
from dplda._half_table import HalfTable
from dplda._threads import in_threads
from dplda.kernels import _frozen, _gibbs
from dplda.privacy._streams import Purpose, Streams

BLOCK_TOKENS = 1 << 17
MAX_COMPONENTS = 2048
TOPIC = np.int16  # of a token; -1 for none yet
NO_WORDS = np.empty(0, np.uint64)


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
    drawn = topics.astype(TOPIC)
    blocks = corpus.blocks(BLOCK_TOKENS)
    ends = np.cumsum([block.n_tokens for block in blocks])

    def run(index: int) -> None:
        block = blocks[index]
        span = slice(ends[index] - block.n_tokens, ends[index])
        part = drawn[span]
        # Documents of about one length are swept side by side: none is left over at the end.
        order = np.argsort(-np.diff(block.doc_ptr), kind="stable")
        bits = streams.words(Purpose.TOPICS, t, index, block.n_tokens)
        refinement = NO_WORDS
        while True:
            n_exact = _frozen.sweep(
                block.word, block.doc_ptr, order, part, table.half, doc_topic_prior, bits,
                refinement, _frozen.tolerance(table.half.shape[1]),
            )  # fmt: skip
            if n_exact >= 0:
                return
            # One draw in some 2**53 needs more than 64 bits: the block again, with 128 for each.
            refinement = streams.words(Purpose.TOPICS, t, index, block.n_tokens, spare=True)
            part[:] = topics[span]

    in_threads(run, range(len(blocks)), n_jobs)
    return drawn


def count_words(corpus: Corpus, topics: np.ndarray, n_components: int) -> np.ndarray:
    """Exact word-topic counts (n_words, n_components), int64; private."""
    counts = np.zeros((corpus.n_words, n_components), np.int64)
    _gibbs.count_words(corpus.word, topics, counts)
    return counts
