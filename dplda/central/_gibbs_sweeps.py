"""Word-topic counts by Gibbs sampling, without privacy, averaged over the last sweeps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dplda._corpus import Corpus
from dplda._gibbs import draw_topics
from dplda._half_table import HalfTable
from dplda.central._word_sweeps import TOPIC, TokensByWord, add_rows, uniform_topics
from dplda.privacy._streams import Streams


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
        topics are drawn under them. With None they are uniform.
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
        topics = uniform_topics(corpus, n_components, streams)
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
