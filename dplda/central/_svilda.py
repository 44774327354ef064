"""Private stochastic variational inference: topic models of minibatches, one noisy sum a round."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dplda._base import BaseTopicModel
from dplda._compat import Interval, StrOptions, _fit_context
from dplda._corpus import check_counts, shorten
from dplda._private_fit import PRIVACY_CONSTRAINTS, released_so_far
from dplda._variational import e_step, exp_dirichlet_expectation
from dplda.central._centered_release import Documents, Released, nearly_equal
from dplda.central._document_rounds import DOCUMENT_CONSTRAINTS, SMALLEST_RATIO, Recipe, train
from dplda.central._schedule import document_schedule
from dplda.metrics import perplexity_bound
from dplda.privacy._accounting import ACCOUNTANTS
from dplda.privacy._streams import Streams


class PrivateSVILDA(BaseTopicModel):
    """Latent Dirichlet allocation by private stochastic variational inference.

    The sound form of Park et al. [1]_: online variational Bayes [2]_ on secret Poisson samples of
    the documents; the expected sufficient statistics of a sample are clipped document by document,
    summed, and get noise on every cell before anything is learned from them. Protects documents.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon : float or None, default=None
        Total epsilon to spend in `fit`, above 0; ``inf`` is online variational Bayes without noise
        and without privacy. Give either this or `noise_multiplier`.
    delta : float, default=1e-6
        Probability, in (0, 1), with which the bound epsilon may fail; far below one over the
        number of documents.
    noise_multiplier : float or None, default=None
        Noise of a round, as standard deviation over sensitivity, instead of `epsilon` (sigma over
        Delta s in [1]_); word totals come on top.
    subsampling_ratio : float, default=0.2
        Probability, from 1e-8 to 1, with which a document takes part in a round (nu). The size of a
        minibatch is random and secret.
    max_iter : int, default=200
        Rounds, each with one minibatch (J). Passes over the data are `max_iter` times
        `subsampling_ratio`.
    contribution_norm : float, default=6.0
        L2 norm that documents are scaled to, at most five times up; rounds clip contributions to
        0.15 to 0.4 of it. A public constant: never read it from the data.
    word_total_share : float, default=0.25
        Share of the budget, in (0, 1), for word totals.
    max_doc_tokens : int or None, default=None
        Documents with more tokens are cut to this many, drawn at random once a fit (N). The clip
        bounds what a document contributes with or without it.
    learning_decay : float, default=0.8
        Exponent of the learning rate, in (0.5, 1] (kappa).
    learning_offset : float, default=1.0
        Slows the first rounds down, at least 1 (tau_0). Round t enters the average with the rate
        ``(learning_offset + t) ** -learning_decay``.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (alpha).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (eta).
    accountant : {"pld", "rdp"}, default="pld"
        How rounds are composed: privacy loss distributions, or Renyi divergences, which are valid
        too and ask for more noise. A ledger composes by all methods.
    init_components : array-like of shape (n_components, n_features_in_) or None, default=None
        A public topic-word table to start from, for instance a model of public texts of the same
        domain. It costs nothing, and must not come from the private texts.
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
        Released parameters of the topics' Dirichlet distributions (lambda).
    epsilon_, delta_ : float
        What was spent since `fit`.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions; `print` it.
    noise_multiplier_ : float
        Noise multiplier of an average round of the last call.
    n_iter_ : int
        Rounds run.
    n_features_in_ : int
        Size of the vocabulary.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation: one document added, removed, or replaced
    by an empty one. Sensitivity: the clip of the round, in L2, checked in integers; contributions
    read the document and past releases only. Event: per round
    ``PoissonSampled(subsampling_ratio, Gaussian(m_t))``, and two ``Gaussian`` for word totals. No
    release is divided by the size of a minibatch or by the number of documents. The proof is in
    ``docs/svilda.md``.

    The noise of the paper's equations (3) to (6) is not used: `dplda.published.vips_calibration`
    computes it for comparison, and ``docs/svilda.md`` says why it is no proof.

    See Also
    --------
    SubLDA : The same guarantee with topic weights that documents keep from round to round.
    GibbsLDA : No privacy.

    References
    ----------
    .. [1] M. Park, J. Foulds, K. Chaudhuri, M. Welling, "Private Topic Modeling", NIPS workshop on
       private multi-party machine learning, 2016.
    .. [2] M. Hoffman, D. Blei, F. Bach, "Online learning for latent Dirichlet allocation", NIPS,
       2010.

    Examples
    --------
    >>> from dplda import PrivateSVILDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> model = PrivateSVILDA(n_components=3, epsilon=4.0, delta=1e-5, max_iter=20).fit(X)
    >>> round(model.epsilon_, 2)
    4.0
    """

    _attack = "document"
    _parameter_constraints = {
        **BaseTopicModel._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        **DOCUMENT_CONSTRAINTS,
        "subsampling_ratio": [Interval(Real, SMALLEST_RATIO, 1, closed="both")],
        "max_doc_tokens": [None, Interval(Integral, 1, 10**7, closed="both")],
        "learning_decay": [Interval(Real, 0.5, 1, closed="right")],
        "learning_offset": [Interval(Real, 1, 1e9, closed="both")],
        "accountant": [StrOptions(set(ACCOUNTANTS))],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        delta=1e-6,
        noise_multiplier=None,
        subsampling_ratio=0.2,
        max_iter=200,
        contribution_norm=6.0,
        word_total_share=0.25,
        max_doc_tokens=None,
        learning_decay=0.8,
        learning_offset=1.0,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        accountant="pld",
        init_components=None,
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
        self.contribution_norm = contribution_norm
        self.word_total_share = word_total_share
        self.max_doc_tokens = max_doc_tokens
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.accountant = accountant
        self.init_components = init_components
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> PrivateSVILDA:
        """Train on private documents: `max_iter` minibatches.

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
    def partial_fit(self, X: Any, y: Any = None) -> PrivateSVILDA:
        """One private round with a Poisson sample of the given documents; its cost adds up.

        The first call also releases word totals; `max_iter` calls cost what `fit` costs. With
        noise, these totals stand for all later calls, which only divide them among the topics: give
        the whole corpus to each call, or at least documents with the same words.
        Decide on the number of calls before looking at the model: the account is for a number that
        does not depend on what was released.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts: all documents from which a minibatch may come. A minibatch that somebody
            chose is not a secret sample; set ``subsampling_ratio=1`` to use all rows.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        BudgetError
            When the ledger has too little left; nothing has then been read.
        ValueError
            If `n_components` or the width of `X` changed since the first call.
        """
        return self._train(X, n_rounds=1, released=released_so_far(self, "document"))

    def perplexity_bound(self, X: Any) -> float:
        """Variational upper bound on the perplexity of documents, the metric of [1]_.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts of documents that the model was not trained on.

        Returns
        -------
        bound : float
            Lower is better. Not comparable with `perplexity`: the document's weights and the
            topics are uncertain here, and that uncertainty is paid for in every document.

        Notes
        -----
        **Privacy.** The value for private documents is a release that `epsilon_` does not cover.
        """
        check_is_fitted(self)
        X = check_counts(self, X, reset=False)
        return perplexity_bound(
            self.components_, X, doc_topic_prior=self.doc_topic_prior, n_jobs=self.n_jobs
        )

    def _train(self, X: Any, *, n_rounds: int, released: Released | None) -> PrivateSVILDA:
        train(self, X, n_rounds=n_rounds, released=released, recipe=self._recipe())
        return self

    def _recipe(self) -> Recipe:
        return Recipe(
            float(self.subsampling_ratio),
            infer=_infer,
            rate=_rate,
            prepare=self._shorten,
            factors=nearly_equal,
        )

    def _shorten(self, X: sp.csr_array, streams: Streams) -> sp.csr_array:
        """Cut documents longer than `max_doc_tokens` to that many random tokens."""
        if self.max_doc_tokens is None:
            return X
        return shorten(X, int(self.max_doc_tokens), streams)


def _infer(
    estimator: PrivateSVILDA, documents: Documents, released: Released, rows: np.ndarray
) -> np.ndarray:
    """The E-step of the documents `rows`, from scratch: nothing is kept between rounds."""
    factor, power = _word_factor(estimator, released)
    everybody = len(rows) == documents.X.shape[0]
    _, documents.theta[rows] = e_step(
        documents.X if everybody else documents.X[rows],
        factor,
        n_components=released.table.shape[1],
        doc_topic_prior=estimator.doc_topic_prior,
        n_jobs=documents.n_jobs,
    )
    return factor ** np.float32(power)


def _word_factor(estimator: PrivateSVILDA, released: Released) -> tuple[np.ndarray, float]:
    """exp(E[log beta]), (n_words, padded) float32, and its tempering power.

    Only here are released values cut at zero. With noise the table is a posterior mean already, and
    its logarithm stands for the expectation: the digamma function would count the uncertainty
    of rare words twice.
    """
    if estimator.epsilon == math.inf:
        return exp_dirichlet_expectation(released.table, np.float32), 1.0
    _, power = document_schedule(released.n_rounds + 1, estimator.max_iter)
    return released.word_probabilities(), power


def _rate(estimator: PrivateSVILDA, t: int, exact: bool) -> float:
    """Length rho_t of the natural-gradient step."""
    return (estimator.learning_offset + t) ** -estimator.learning_decay
