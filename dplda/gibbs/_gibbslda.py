"""Latent Dirichlet allocation by Gibbs sampling, without privacy: the baseline."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from numbers import Integral

import numpy as np
import scipy.sparse as sp

from dplda.core._base import BaseLDA, last_quarter
from dplda.core._corpus import (
    Corpus,
    Matrix,
    check_counts,
    row_blocks,
    take_columns,
)
from dplda.core._fit_guarantee import no_guarantee, publish
from dplda.core._fold_in import pad
from dplda.core._private_estimator import Interval
from dplda.gibbs._frozen_table import (
    MAX_COMPONENTS,
    TOPIC,
    HalfTable,
    TokensByWord,
    draw_topics,
    pieces_of,
    uniform_topics,
)
from dplda.kernels import _gibbs
from dplda.leaf._compat import _fit_context
from dplda.leaf._messages import rounds
from dplda.privacy._streams import PIECE, Purpose, Reader, Streams

# With this many uniform topics, a cell of the table holds next to nothing, and long
# documents hardly leave their first topics (docs/decisions.md, record 16). With fewer
# topics, a uniform start ends better.
LIVE_START = 256
NO_GUARANTEE = no_guarantee(
    "document", "one document is added or removed", "exact word-topic counts"
)


class GibbsLDA(BaseLDA):
    """Latent Dirichlet allocation by Gibbs sampling, without privacy.

    **Not private**: the baseline with which the private estimators are compared. Each
    sweep draws the topic of every token, given the topics of the other tokens of its
    document and the word-topic counts of the sweep before.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics, at most 2048.
    max_iter : int, default=100
        Number of sweeps over the corpus.
    doc_topic_prior
    topic_word_prior
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    random_state : int, RandomState instance or None, default=None
        Seed of the sampler.
    verbose

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Counts of words in topics, averaged over the last quarter of the sweeps, plus
        `topic_word_prior`; not normalized.
    n_iter_ : int
        Number of sweeps so far.
    epsilon_, delta_ : float
        Infinity and 0: nothing is protected. `privacy_` says so.
    n_features_in_

    See Also
    --------
    SubLDA : Protects documents.
    PrivateSVILDA : Protects documents, by stochastic variational inference.
    HDPLDA : Protects single words.

    Notes
    -----
    **Privacy.** None. `components_` holds exact counts of the training documents, and
    anyone who sees it may be able to read parts of the documents from it.

    **The chain.** Topics start uniform; with 256 topics or more, they start from a
    sweep with live counts. During a sweep, the word-topic counts of the sweep before
    are fixed, including the token's own count, so documents are drawn in parallel. This
    is approximate distributed LDA [2]_ with one document on each processor, or
    stochastic expectation-maximization [3]_ with topic weights integrated out. Its
    topics are more concentrated than with the exact sampler [1]_, and it needs fewer
    sweeps to a given held-out perplexity (``docs/speed.md``).

    References
    ----------
    .. [1] T. Griffiths, M. Steyvers, "Finding scientific topics", PNAS 101, 2004.
    .. [2] D. Newman, A. Asuncion, P. Smyth, M. Welling, "Distributed Algorithms for
       Topic Models", JMLR 10, 2009.
    .. [3] M. Zaheer, M. Wick, J.-B. Tristan, A. Smola, G. Steele, "Exponential
       Stochastic Cellular Automata for Massively Parallel Inference", AISTATS, 2016.

    Examples
    --------
    >>> from dplda import GibbsLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(50, 30, 3, random_state=0).data
    >>> GibbsLDA(n_components=3, max_iter=20, random_state=0).fit_transform(X).shape
    (50, 3)
    """

    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "n_components": [Interval(Integral, 1, MAX_COMPONENTS, closed="both")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        max_iter=100,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Matrix, y: object = None) -> GibbsLDA:
        """Train on documents: `max_iter` sweeps.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; columns are public.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        checked = copy.copy(self)
        corpus = Corpus.from_counts(check_counts(checked, X, reset=True))
        n_sweeps = int(self.max_iter)
        counts = average_counts(
            corpus,
            int(self.n_components),
            None,
            Streams.from_random_state(self.random_state),
            rounds(self, 1, n_sweeps),
            n_sweeps,
            doc_topic_prior=self.doc_topic_prior,
            topic_word_prior=self.topic_word_prior,
            n_jobs=self.n_jobs,
        )
        components = counts.T + float(self.topic_word_prior)
        take_columns(self, checked)
        publish(self, NO_GUARANTEE, components_=components, n_iter_=n_sweeps)
        return self


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
    """Word-topic counts (n_words, n_components), averaged over a quarter of the sweeps.

    The last quarter is taken.

    Every draw also reads the counts `before`, which come from earlier documents or
    seeds and are not in the result. The first topics are drawn from them. Without
    `before`, first topics are uniform, or from a live sweep if there are many. `sweeps`
    has the numbers of `max_iter` sweeps.
    """
    by_word = TokensByWord.from_corpus(corpus)
    counts = np.zeros((corpus.n_words, n_components), np.int32)
    frequencies = np.diff(by_word.ptr)
    if before is not None:
        topics = np.full(corpus.n_tokens, -1, TOPIC)
        frequencies = frequencies + before.sum(axis=1)
    elif n_components < LIVE_START:
        topics = uniform_topics(corpus, n_components, streams)
    else:
        topics = live_sweep(
            corpus,
            pad(counts, np.int32),
            np.zeros(n_components, np.int64),
            streams.reader(Purpose.TOPICS, 0),
            doc_topic_prior=doc_topic_prior,
            topic_word_prior=topic_word_prior,
        ).astype(TOPIC)
    if before is None:
        by_word.count(topics, counts, n_jobs)
    largest = max(1.0, float(frequencies.max(initial=0)))
    total = np.zeros_like(counts, np.int64)
    n_averaged = last_quarter(max_iter)
    pieces = pieces_of(corpus, n_jobs)
    for t, n_left in zip(sweeps, range(max_iter - 1, -1, -1)):
        table = HalfTable.from_counts(
            counts if before is None else before + counts,
            largest,
            topic_word_prior,
            n_jobs=n_jobs,
        )
        topics = draw_topics(
            pieces,
            topics,
            table,
            doc_topic_prior=doc_topic_prior,
            streams=streams,
            t=t,
            n_jobs=n_jobs,
        )
        by_word.count(topics, counts, n_jobs)
        if n_left < n_averaged:
            total += counts
    return total / n_averaged


def live_counts(
    matrices: Iterable[sp.csr_array],
    n_words: int,
    n_components: int,
    streams: Streams,
    **priors: float,
) -> np.ndarray:
    """Counts (n_words, n_components) of a live sweep over the documents of matrices.

    The counts are exact, for fits without noise, and do not depend on how documents are
    divided. A weight counts as the next whole number.
    """
    counts = pad(np.broadcast_to(np.int32(0), (n_words, n_components)), np.int32)
    totals = np.zeros(n_components, np.int64)
    reader = streams.reader(Purpose.TOPICS, 0)
    for X in matrices:
        for rows in row_blocks(X.indptr):  # the tokens of a block are in memory
            corpus = Corpus.from_counts(X[rows].ceil())
            live_sweep(corpus, counts, totals, reader, **priors)
    return counts[:, :n_components]


def live_sweep(
    corpus: Corpus,
    counts: np.ndarray,
    totals: np.ndarray,
    reader: Reader,
    *,
    doc_topic_prior: float,
    topic_word_prior: float,
) -> np.ndarray:
    """First topics (n_tokens,) by collapsed Gibbs sampling.

    A draw reads the counts so far. New topics are added to the padded `counts`
    (n_words, n_padded) and to their sums `totals` (n_components,).
    """
    topics = np.full(corpus.n_tokens, -1, np.int32)
    scratch = np.empty((4, counts.shape[1]), np.float32)
    start = 0
    # whose random words are drawn at a time; changes no result
    for block in corpus.blocks(PIECE):
        end = start + block.n_tokens
        _gibbs.collapsed_sweep(
            block.word,
            block.doc_ptr,
            topics[start:end],
            counts,
            totals,
            doc_topic_prior,
            topic_word_prior,
            reader.words(block.n_tokens),
            scratch,
        )
        start = end
    return topics
