"""Word-topic counts by Gibbs sampling, without privacy, averaged over the last sweeps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import Corpus, row_blocks
from dplda.core._fold_in import pad
from dplda.kernels import _gibbs
from dplda.privacy._streams import Purpose, Reader, Streams
from dplda.word._gibbs import draw_topics
from dplda.word._half_table import HalfTable
from dplda.word._word_sweeps import TOPIC, TokensByWord, add_rows, uniform_topics

# With uniform topics, a cell of a table of this many holds next to nothing, and long documents
# hardly leave the topics that they begin with. With fewer topics, a uniform start ends better.
LIVE_START = 256
PIECE_TOKENS = 1 << 16  # whose random words are drawn at a time; changes no result


def average_counts(
    corpus: Corpus,
    n_components: int,
    before: np.ndarray | None,
    streams: Streams,
    sweeps: Iterable[int],
    max_iter: int,
    *,
    doc_topic_prior: float,
    topic_word_prior: float,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Word-topic counts (n_words, n_components), averaged over the last quarter of the sweeps.

    Parameters
    ----------
    corpus : Corpus
        The documents.
    n_components : int
        Number of topics.
    before : ndarray of shape (n_words, n_components) or None
        Counts that every draw reads in addition: those of earlier documents, or seeds. The first
        topics are drawn under them. With None they are those of `first_topics`.
    streams : Streams
        Random numbers.
    sweeps : iterable of int
        Numbers of the sweeps.
    max_iter : int
        How many sweeps there are.
    doc_topic_prior, topic_word_prior : float
        Dirichlet parameters alpha and beta.
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.

    Returns
    -------
    counts : ndarray of shape (n_words, n_components)
        `before` is not among them.
    """
    by_word = TokensByWord.from_corpus(corpus)
    counts = np.zeros((corpus.n_words, n_components), np.int32)
    frequencies = np.diff(by_word.ptr)
    if before is None:
        topics = first_topics(
            corpus, n_components, streams,
            doc_topic_prior=doc_topic_prior, topic_word_prior=topic_word_prior,
        )  # fmt: skip
        by_word.count(topics, 1, counts, n_jobs)
    else:
        topics = np.full(corpus.n_tokens, -1, TOPIC)
        frequencies = frequencies + before.sum(axis=1)
    largest = max(1.0, float(frequencies.max(initial=0)))
    total, n_averaged = np.zeros_like(counts, np.int64), -(-max_iter // 4)
    for t, n_left in zip(sweeps, range(max_iter - 1, -1, -1)):
        table = HalfTable.from_counts(
            counts if before is None else before + counts, largest, topic_word_prior, n_jobs=n_jobs
        )
        topics = draw_topics(
            corpus, topics, table,
            doc_topic_prior=doc_topic_prior, streams=streams, t=t, n_jobs=n_jobs,
        )  # fmt: skip
        by_word.count(topics, 1, counts, n_jobs)
        if n_left < n_averaged:
            add_rows(total, counts, n_jobs)
    return total / n_averaged


def first_topics(
    corpus: Corpus,
    n_components: int,
    streams: Streams,
    *,
    doc_topic_prior: float,
    topic_word_prior: float,
) -> np.ndarray:
    """Topics to begin with, (n_tokens,): uniform, or of a live sweep if there are many topics."""
    if n_components < LIVE_START:
        return uniform_topics(corpus, n_components, streams)
    topics = np.full(corpus.n_tokens, -1, np.int32)
    counts = pad(np.broadcast_to(np.int32(0), (corpus.n_words, n_components)), np.int32)
    live_sweep(
        corpus, topics, counts, np.zeros(n_components, np.int64),
        streams.reader(Purpose.TOPICS, 0),
        doc_topic_prior=doc_topic_prior, topic_word_prior=topic_word_prior,
    )  # fmt: skip
    return topics.astype(TOPIC)


def live_counts(
    matrices: Iterable[sp.csr_array],
    n_words: int,
    n_components: int,
    streams: Streams,
    *,
    doc_topic_prior: float,
    topic_word_prior: float,
) -> np.ndarray:
    """Counts (n_words, n_components) of one live sweep over the documents of some matrices.

    They are exact, and for fits without noise. How the documents are divided changes no result. A
    weight counts as the next whole number: no word that occurs is left out.
    """
    counts = pad(np.broadcast_to(np.int32(0), (n_words, n_components)), np.int32)
    totals, reader = np.zeros(n_components, np.int64), streams.reader(Purpose.TOPICS, 0)
    for X in matrices:
        for rows in row_blocks(X.indptr):  # the tokens of a block are in memory
            corpus = Corpus.from_counts(X[rows].ceil())
            live_sweep(
                corpus, np.full(corpus.n_tokens, -1, np.int32), counts, totals, reader,
                doc_topic_prior=doc_topic_prior, topic_word_prior=topic_word_prior,
            )  # fmt: skip
    return counts[:, :n_components]


def live_sweep(
    corpus: Corpus,
    topics: np.ndarray,
    counts: np.ndarray,
    totals: np.ndarray,
    reader: Reader,
    *,
    doc_topic_prior: float,
    topic_word_prior: float,
) -> None:
    """One sweep of collapsed Gibbs sampling: each draw reads the counts of all other tokens.

    It changes `topics` (n_tokens,), which are -1 before a token has one, the padded `counts`
    (n_words, n_padded) and their sums `totals` (n_components,).
    """
    scratch = np.empty((4, counts.shape[1]), np.float32)
    end = 0
    for block in corpus.blocks(PIECE_TOKENS):
        start, end = end, end + block.n_tokens
        _gibbs.collapsed_sweep(
            block.word, block.doc_ptr, topics[start:end], counts, totals,
            doc_topic_prior, topic_word_prior, reader.words(block.n_tokens), scratch,
        )  # fmt: skip
