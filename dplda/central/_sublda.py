"""SUB-LDA: topic models of Poisson-sampled documents, with document-level privacy."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from dplda._base import BaseTopicModel
from dplda._compat import Interval, _fit_context
from dplda._private_fit import PRIVACY_CONSTRAINTS, released_so_far
from dplda.central._centered_release import Documents, Released
from dplda.central._document_rounds import (
    DOCUMENT_CONSTRAINTS,
    SMALLEST_RATIO,
    Recipe,
    poisson_sample,
    train,
)
from dplda.privacy._streams import Streams


class SubLDA(BaseTopicModel):
    """Latent Dirichlet allocation with document-level differential privacy.

    The sound form of SUB-LDA [1]_: in each round every document takes part with probability
    `subsampling_ratio`, secretly and independently; its clipped word-topic statistics enter a sum
    that gets noise on every cell. The published model may be shown to anybody.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon : float or None, default=None
        Total epsilon to spend in `fit`, above 0; ``inf`` trains without noise and without
        privacy. Give either this or `noise_multiplier`.
    delta : float, default=1e-6
        Probability, in (0, 1), with which the bound epsilon may fail; far below one over the
        number of documents.
    noise_multiplier : float or None, default=None
        Noise of a round, as standard deviation over sensitivity, instead of `epsilon`. Unsampled
        rounds differ, and cost together as much as `max_iter` equal ones with this value; word
        totals come on top.
    subsampling_ratio : float, default=1.0
        Probability, from 1e-8 to 1, with which a document takes part in a round (gamma). Small
        values save time; take more rounds with them.
    max_iter : int, default=80
        Rounds.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (tau in [1]_).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    contribution_norm : float, default=6.0
        L2 norm that documents are scaled to, at most five times up; rounds clip contributions to
        0.15 to 0.4 of it. A public constant: never read it from the data.
    word_total_share : float, default=0.25
        Share of the budget, in (0, 1), for word totals.
    init_components : array-like of shape (n_components, n_features_in_) or None, default=None
        A public topic-word table to start from, for instance a model of public texts of the same
        domain. It costs nothing, and must not come from the private texts.
    adaptive : bool, default=False
        Sample documents with many frequent words up to `boost` times as often, and weight them
        down accordingly: the sound form of the paper's adaptive subsampling. It is charged at the
        highest rate.
    boost : float, default=2.0
        Largest factor of a document's rate, at least 1; only with `adaptive` (v in [1]_).
    ledger : Ledger, str, path-like or None, default=None
        Where to charge the fit, with a budget over many fits. A path names an SQLite file, which
        also counts fits of other processes.
    n_jobs : int or None, default=None
        Threads. Never changes a result.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. Anything else makes the fit reproducible, and the
        guarantee void towards those who know it or see two results of it (`SeededNoiseWarning`).
    verbose : int, default=0
        Progress: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Released pseudo-counts of words in topics; not normalized.
    epsilon_, delta_ : float
        What was spent since `fit`.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions; `print` it.
    noise_multiplier_ : float
        Noise multiplier of an average round.
    n_iter_ : int
        Rounds run.
    n_features_in_ : int
        Size of the vocabulary.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation: one document added, removed, or replaced
    by an empty one. Sensitivity: the clip of the round, in L2, checked in integers; contributions
    read the document, its private state and past releases only. Event: per round
    ``PoissonSampled(subsampling_ratio, Gaussian(m_t))``, and two ``Gaussian`` for word totals. The
    proof is in ``docs/document_level.md``, the statistics in ``docs/centered_release.md``.

    The algorithm as published is not private (``docs/document_level.md``, last section).

    See Also
    --------
    HDPLDA : Word-level privacy, or document-level without sampling.
    GibbsLDA : No privacy.

    References
    ----------
    .. [1] Y. Huang, H. Chen, "Improving Privacy Guarantee and Efficiency of Latent Dirichlet
       Allocation Model Training Under Differential Privacy", Findings of EMNLP 2021.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=4.0, delta=1e-5, max_iter=20).fit(X)
    >>> round(model.epsilon_, 2)
    4.0
    """

    _attack = "document"
    _parameter_constraints = {
        **BaseTopicModel._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        **DOCUMENT_CONSTRAINTS,
        "subsampling_ratio": [Interval(Real, SMALLEST_RATIO, 1, closed="both")],
        "adaptive": ["boolean"],
        "boost": [Interval(Real, 1, 1e9, closed="both")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        delta=1e-6,
        noise_multiplier=None,
        subsampling_ratio=1.0,
        max_iter=80,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        contribution_norm=6.0,
        word_total_share=0.25,
        init_components=None,
        adaptive=False,
        boost=2.0,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.subsampling_ratio = subsampling_ratio
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.contribution_norm = contribution_norm
        self.word_total_share = word_total_share
        self.init_components = init_components
        self.adaptive = adaptive
        self.boost = boost
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> SubLDA:
        """Train on private documents: `max_iter` rounds.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts. One row is what the guarantee protects; columns are public.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        BudgetError
            When the ledger has too little left; nothing has then been read.
        """
        return self._train(X, n_rounds=self.max_iter, released=None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> SubLDA:
        """One more private round, on the given documents; its cost adds to `epsilon_`.

        The first call also releases word totals; `max_iter` calls cost what `fit` costs. With
        noise, these totals stand for all later calls, which only divide them among the topics: give
        the whole corpus to each call, or at least documents with the same words.
        Decide on the number of calls before looking at the model: the account is for a number that
        does not depend on what was released.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.
        y : Ignored

        Returns
        -------
        self : object
        """
        return self._train(X, n_rounds=1, released=released_so_far(self, "document"))

    def _train(self, X: Any, *, n_rounds: int, released: Released | None) -> SubLDA:
        train(self, X, n_rounds=n_rounds, released=released, recipe=self._recipe())
        return self

    def _recipe(self) -> Recipe:
        if not self.adaptive:
            return Recipe(float(self.subsampling_ratio))
        highest = min(1.0, self.subsampling_ratio * self.boost)
        return Recipe(highest, sample=self._sample_frequent)

    def _sample_frequent(
        self, documents: Documents, released: Released, streams: Streams, highest: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """A sample at rates of their own, and the scale that makes up for the rates."""
        share = frequent_share(documents.X, released.table, 1 / self.boost)
        rates = np.clip(highest * share, min(self.subsampling_ratio, highest), highest)
        rows = poisson_sample(rates, highest, streams, released.n_rounds)
        return rows, documents.scale * (highest / rates)


def frequent_share(X: Any, table: np.ndarray, frequent_mass: float) -> np.ndarray:
    """Share of frequent words among the tokens of each document.

    A word is frequent if it is among the words that make up the first `frequent_mass` of a topic
    in the released table.
    """
    lengths = np.maximum(X.sum(axis=1), 1)
    return (X @ frequent_words(table, frequent_mass).astype(np.float64)) / lengths


def frequent_words(table: np.ndarray, frequent_mass: float) -> np.ndarray:
    """Mask of the fewest words that make up `frequent_mass` of some topic (n_words,)."""
    order = np.argsort(-table, axis=0, kind="stable")
    upto = np.cumsum(np.take_along_axis(table, order, axis=0), axis=0) / table.sum(axis=0)
    before = np.vstack([np.zeros(table.shape[1]), upto[:-1]])
    mask = np.zeros(len(table), bool)
    mask[order[before < frequent_mass]] = True
    return mask
