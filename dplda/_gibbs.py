"""Frozen-table Gibbs sampling, with draws that have exactly the stated probabilities."""

from __future__ import annotations

import itertools

import numpy as np

from dplda._corpus import Corpus
from dplda._half_table import HalfTable
from dplda._threads import in_threads, n_threads
from dplda.kernels import _frozen, _gibbs
from dplda.privacy._streams import Purpose, Streams

BLOCK_TOKENS = 1 << 17  # tokens that share a random stream; enters seeded results
GROUP_BLOCKS = 2  # that threads sweep together; the random words of a group are in memory
PIECE_TOKENS = 1 << 16  # tokens whose random words a thread draws at a time
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
    """Draw the topic of every token under a table that does not change, over `topics` (n_tokens,).

    The probabilities are exactly those of the table's halves; docs/sampling.md has the law. Each
    block of documents has its own random stream, and the place of a token in the block says which
    words are its own, so that the result does not depend on `n_jobs`.
    """
    edges = corpus.edges(BLOCK_TOKENS)
    tolerance = _frozen.tolerance(table.half.shape[1])
    for first in range(0, len(edges) - 1, GROUP_BLOCKS):
        blocks = edges[first : first + GROUP_BLOCKS + 1]
        group, ends = corpus.documents(blocks[0], blocks[-1]), corpus.doc_ptr[blocks]
        drawn = topics[ends[0] : ends[-1]]
        before = drawn.copy()
        # Documents of about one length are swept side by side: none is left over at the end.
        order = np.argsort(-np.diff(group.doc_ptr), kind="stable")
        bits = _words(streams, t, first, ends, n_jobs)
        for spare in (False, True):
            # One draw in some 2**53 needs more than 64 bits: all again, with 128 for each.
            refinement = _words(streams, t, first, ends, n_jobs, spare=True) if spare else NO_WORDS
            n_exact = _frozen.sweep(
                group.word, group.doc_ptr, order, before, table.half, doc_topic_prior, bits,
                refinement, tolerance, drawn, n_threads(n_jobs),
            )  # fmt: skip
            if n_exact >= 0:
                break
    return topics


def _words(
    streams: Streams,
    t: int,
    first: int,
    ends: np.ndarray,
    n_jobs: int | None,
    *,
    spare: bool = False,
) -> np.ndarray:
    """A random word for each token of consecutive blocks, the first of which has number `first`.

    `ends` (n_blocks + 1,) says where the blocks begin in the corpus, and where the last one ends.
    """
    words = np.empty(ends[-1] - ends[0], np.uint64)
    pieces = [
        (stream, start, end, i)
        for stream, (start, end) in enumerate(itertools.pairwise((ends - ends[0]).tolist()), first)
        for i in range(start, end, PIECE_TOKENS)
    ]

    def draw(piece: tuple[int, int, int, int]) -> None:
        stream, start, end, i = piece
        part = words[i : min(i + PIECE_TOKENS, end)]
        part[:] = streams.words(
            Purpose.TOPICS, t, stream, len(part), spare=spare, skip=i - start
        )  # fmt: skip

    in_threads(draw, pieces, n_jobs)
    return words


def count_words(corpus: Corpus, topics: np.ndarray, n_components: int) -> np.ndarray:
    """Exact word-topic counts (n_words, n_components), int64; private."""
    counts = np.zeros((corpus.n_words, n_components), np.int64)
    _gibbs.count_words(corpus.word, topics, counts)
    return counts
