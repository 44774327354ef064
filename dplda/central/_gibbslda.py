"""Latent Dirichlet allocation by collapsed Gibbs sampling, without privacy: the baseline."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dplda._base import BaseLDA
from dplda._compat import _fit_context
from dplda._corpus import Corpus, check_counts
from dplda._fold_in import pad
from dplda._progress import rounds
from dplda.kernels import _gibbs
from dplda.privacy import Guarantee, NonPrivate
from dplda.privacy._streams import Purpose, Streams

PIECE_TOKENS = 1 << 16  # whose random words are drawn at a time; changes no result
NO_GUARANTEE = Guarantee(
    unit="document",
    relation="one document is added or removed",
    epsilon=math.inf,
    delta=0.0,
    mechanism="exact word-topic counts",
    sensitivity=math.inf,
    noise_scale=0.0,
    noise_multiplier=0.0,
    seeded=False,
    events=(NonPrivate(),),
)


class GibbsLDA(BaseLDA):
    """Latent Dirichlet allocation by exact collapsed Gibbs sampling, without privacy.

    **Not private**: the baseline with which the private estimators are compared. The topic of each
    token is drawn given the topics of all other tokens, with live counts [1]_.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    max_iter : int, default=100
        Number of sweeps over the corpus.
    doc_topic_prior : float or None, default=0.1
        Dirichlet parameter of a document's topics (alpha); None is 1 / n_components.
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    n_jobs : int or None, default=None
        Number of threads of `transform` and `score`. Training is sequential. It never changes a
        result.
    random_state : int, RandomState instance or None, default=None
        Seed of the sampler. None takes it from the entropy of the operating system.
    verbose : int, default=0
        Progress: a bar where tqdm is installed, otherwise lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Exact counts of words in topics, plus `topic_word_prior`; not normalized.
    n_iter_ : int
        Number of sweeps so far.
    epsilon_ : float
        Infinity: nothing is protected.
    delta_ : float
        The delta at which `epsilon_` is stated, 0.
    privacy_ : Guarantee
        The statement that nothing is protected. `print` shows it in words.
    doc_topic_prior_ : float
        `doc_topic_prior`, or 1 / n_components for None.
    n_features_in_ : int
        Size of the vocabulary.

    See Also
    --------
    SubLDA : Protects documents.
    PrivateSVILDA : Protects documents, by stochastic variational inference.
    HDPLDA : Protects single words.

    Notes
    -----
    **Privacy.** None. `components_` holds exact counts of the training documents, and anyone who
    sees it may be able to read parts of the documents from it.

    References
    ----------
    .. [1] T. Griffiths, M. Steyvers, "Finding scientific topics", PNAS 101, 2004.

    Examples
    --------
    >>> from dplda import GibbsLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=50, n_words=30, n_components=3, random_state=0).data
    >>> GibbsLDA(n_components=3, max_iter=20, random_state=0).fit_transform(X).shape
    (50, 3)
    """

    _parameter_constraints = {**BaseLDA._parameter_constraints}

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
        self.n_components = n_components
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> GibbsLDA:
        """Train on documents: `max_iter` sweeps.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        counts = np.zeros((0, 0), np.int32)
        return self._train(check_counts(self, X, reset=True), counts, first=1)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> GibbsLDA:
        """Continue with further documents: `max_iter` sweeps over them, added to the counts so far.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts of documents that no earlier call has had.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        ValueError
            If `n_components` or the width of `X` changed since the first call.
        """
        if not hasattr(self, "components_"):
            return self.fit(X)
        if len(self.components_) != self.n_components:
            raise ValueError(
                f"partial_fit continues with n_components={len(self.components_)}, got "
                f"{self.n_components}; call fit to start from scratch"
            )
        counts = np.rint(self.components_ - self._fitted_prior).astype(np.int32).T
        return self._train(check_counts(self, X, reset=False), counts, first=self.n_iter_ + 1)

    def _train(self, X, counts, *, first: int) -> GibbsLDA:
        corpus = Corpus.from_counts(X)
        streams = Streams.from_random_state(self.random_state)
        counts = pad(counts if counts.size else np.zeros((X.shape[1], self.n_components)), np.int32)
        totals = counts[:, : self.n_components].sum(axis=0, dtype=np.int64)
        topics = np.full(corpus.n_tokens, -1, np.int32)
        scratch = np.empty((4, counts.shape[1]), np.float32)
        last = first + self.max_iter - 1
        blocks = corpus.blocks(PIECE_TOKENS)
        ends = np.cumsum([block.n_tokens for block in blocks])
        for t in rounds(self, first, last):
            reader = streams.reader(Purpose.TOPICS, t)
            for block, end in zip(blocks, ends):
                _gibbs.collapsed_sweep(
                    block.word, block.doc_ptr, topics[end - block.n_tokens : end], counts, totals,
                    self.doc_topic_prior_, self.topic_word_prior, reader.words(block.n_tokens),
                    scratch,
                )  # fmt: skip
        self._fitted_prior = float(self.topic_word_prior)
        self.components_ = counts[:, : self.n_components].T + self._fitted_prior
        self.n_iter_ = last
        self.privacy_ = NO_GUARANTEE
        self.epsilon_, self.delta_ = self.privacy_.epsilon, self.privacy_.delta
        return self
