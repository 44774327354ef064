"""Frozen-table Gibbs sampling, with draws that have exactly the stated probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import joblib
import numpy as np

from dplda.core._corpus import Corpus
from dplda.kernels import _frozen, _gibbs
from dplda.leaf._threads import in_threads
from dplda.privacy._streams import Purpose, Streams
from dplda.word._half_table import HalfTable

BLOCK_TOKENS = 1 << 17  # tokens that share a random stream; enters seeded results
PIECE_TOKENS = 1 << 15  # tokens that a thread takes at a time when few are left
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

    The probabilities are exactly those of the table's halves; docs/proofs_word.md has the law. Each
    block of documents has its own random stream, and the place of a token in the block says which
    words are its own, so that the result does not depend on `n_jobs`.
    """

    def run(piece: Piece) -> None:
        block, n = piece.documents, piece.documents.n_tokens
        span = slice(piece.start, piece.start + n)
        part = topics[span]
        before = part.copy()
        # Documents of about one length are swept side by side: none is left over at the end.
        order = np.argsort(-np.diff(block.doc_ptr), kind="stable")
        bits = streams.words(Purpose.TOPICS, t, piece.stream, n, skip=piece.skip)
        refinement = NO_WORDS
        while True:
            n_exact = _frozen.sweep(
                block.word, block.doc_ptr, order, part, table.half, doc_topic_prior, bits,
                refinement, _frozen.tolerance(table.half.shape[1]),
            )  # fmt: skip
            if n_exact >= 0:
                return
            # One draw in some 2**53 needs more than 64 bits: the piece again, with 128 for each.
            refinement = streams.words(
                Purpose.TOPICS, t, piece.stream, n, spare=True, skip=piece.skip
            )
            part[:] = before

    in_threads(run, pieces_of(corpus, n_jobs), n_jobs)
    return topics


@dataclass(frozen=True)
class Piece:
    """Consecutive documents that a thread sweeps at a time.

    Attributes
    ----------
    documents : Corpus
        The documents.
    start : int
        Their first token in the corpus.
    stream, skip : int
        Number of their random stream, and how many of its words belong to earlier documents.
    """

    documents: Corpus
    start: int
    stream: int
    skip: int


def pieces_of(corpus: Corpus, n_jobs: int | None) -> list[Piece]:
    """The blocks that have a random stream each, the last ones in parts.

    Small pieces keep all threads busy to the end. They are slower, because fewer documents are
    swept side by side.
    """
    blocks = corpus.blocks(BLOCK_TOKENS)
    n_whole = len(blocks) - joblib.effective_n_jobs(n_jobs)
    pieces, start = [], 0
    for stream, block in enumerate(blocks):
        first = start
        for documents in [block] if stream < n_whole else block.blocks(PIECE_TOKENS):
            pieces.append(Piece(documents, start, stream, start - first))
            start += documents.n_tokens
    return pieces


def count_words(corpus: Corpus, topics: np.ndarray, n_components: int) -> np.ndarray:
    """Exact word-topic counts (n_words, n_components), int64; private."""
    counts = np.zeros((corpus.n_words, n_components), np.int64)
    _gibbs.count_words(corpus.word, topics, counts)
    return counts
