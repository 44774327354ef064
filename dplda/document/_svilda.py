"""Private stochastic variational inference: LDA on secret minibatches of documents."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from dplda.document._document_budget import COUNTS, DocumentBudget, growing_share
from dplda.document._document_lda import DocumentLDA
from dplda.document._noisy_table import NoisyTable, nearly_equal
from dplda.document._table_estimate import temper
from dplda.leaf._compat import Interval, _fit_context
from dplda.privacy._curator import Curator
from dplda.privacy._streams import Streams


class PrivateSVILDA(DocumentLDA):
    """Latent Dirichlet allocation by private stochastic variational inference.

    The sound form of Park et al. [1]_: online variational Bayes [2]_ on secret Poisson samples of
    the documents. The expected sufficient statistics of a sample are clipped document by document
    and summed. Every cell of the sum gets noise before anything is learned from it. The fitted
    model may be published. With `user_ids` in `fit`, users with several documents take the place of
    documents.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon : float or None, default=None
        Total epsilon of a document, or of a user if `fit` gets `user_ids`, above 0; ``inf`` is
        online variational Bayes without noise and without privacy. Give either this or
        `noise_multiplier`. After `fit`, ``epsilon_ <= epsilon``.
    noise_multiplier : float or None, default=None
        Noise of a round, as standard deviation over sensitivity, instead of `epsilon` (sigma over
        Delta s in [1]_). Word totals add to the cost.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, in (0, 1). Choose it well below
        1 / n_docs.
    subsampling_ratio : float, default=0.2
        Probability, from 1e-8 to 1, with which a document takes part in a round (nu in [1]_). The
        size of a minibatch is random and secret.
    max_iter : int or None, default=None
        Number of rounds, each with one minibatch (J in [1]_). The number of passes over the data
        is ``max_iter * subsampling_ratio``. None is 40 passes, but at least 80 rounds and at most
        400: 200 rounds at the default `subsampling_ratio`.
    doc_topic_prior : float or None, default=0.1
        Dirichlet parameter of a document's topics (alpha); None is 1 / n_components.
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (eta).
    learning_decay : float, default=0.8
        Exponent of the learning rate, in (0.5, 1] (kappa): round t enters the average with the rate
        ``(1 + t) ** -learning_decay``.
    prior_components : array-like of shape (n_components, n_features_in_) or None, default=None
        Public pseudo-counts of words in topics, for instance of a model of public texts of the
        same kind: the prior of the estimate. Their scale says how many public tokens stand behind
        them: do not normalize them. They cost no budget, and must not come from the private texts.
        They are believed as far as the releases agree with them. `partial_fit` goes on with those
        of its first call. See ``docs/public_prior.md``.
    expected_n_docs : int or None, default=None
        Expected number of documents, a public number: never count the private documents. With it,
        `fit` warns if `delta` is at least 1 / `expected_n_docs`, or if few
        topics can be expected to stand out of the noise.
        It also sets the share of the budget for word totals: a quarter, and up to three quarters
        for few documents. See `dplda.plan`.
    ledger : Ledger, str, path-like or None, default=None
        Where the fit is charged: a budget over many fits. A path names an SQLite file, which also
        counts the fits of other processes.
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. Anything else makes the fit reproducible, and voids
        the guarantee against anyone who knows it or sees two results of it
        (`SeededNoiseWarning`).
    verbose : int, default=0
        Progress: a bar where tqdm is installed, otherwise lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Released parameters of the topics' Dirichlet distributions (lambda).
    components_std_ : ndarray of shape (n_features_in_,)
        Standard deviation of the noise in a cell of each word, the same in all topics, in the unit
        of `components_`, before the estimate shrinks it.
    topic_signal_ : ndarray of shape (n_components,)
        Number of words of each topic that stand out of the noise and of the word frequencies; 0 if
        the topic does not.
    topic_evidence_ : ndarray of shape (n_components,)
        How far the top words of each topic stand above the word frequencies, in standard errors.
        ``np.argsort(-topic_evidence_)`` orders the topics, the best first.
    weak_topics_ : ndarray of shape (n_components,), bool
        Topics that do not stand out, or have far less evidence than the best ones: likely noise or
        mixtures.
    signal_to_noise_ : float
        Mean count of a cell over the standard deviation of its noise in the average of the rounds,
        both times word weights. ``inf`` without noise. Below 0.3 the model knows word frequencies,
        and little of topics.
    prior_trust_ : float or None
        Share of the private tokens whose words are within a factor of 2 of their frequencies in
        `prior_components`, estimated from the noisy word totals: how far the public texts are
        believed. None without them, and if they have less than a quarter of the words.
    epsilon_ : float
        Epsilon of a document, or of a user, for everything released since `fit`.
    delta_ : float
        The delta at which `epsilon_` is stated.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions. `print` shows it in words.
    noise_multiplier_ : float
        Noise multiplier of an average round of the last call.
    n_iter_ : int
        Number of rounds so far.
    doc_topic_prior_ : float
        `doc_topic_prior`, or 1 / n_components for None.
    n_features_in_ : int
        Size of the vocabulary.

    See Also
    --------
    SubLDA : The same guarantee; documents keep their topic weights from round to round.
    GibbsLDA : No privacy.
    dplda.published.PublishedPrivateSVILDA : The algorithm of [1]_ as published.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`), or user if `fit` gets `user_ids`. Relation: one
    document, or one user with all documents, is added, removed, or becomes empty. Sensitivity: the
    clipping bound of the round, in L2, checked in integers. A contribution reads the documents of
    one unit and past releases only. A user's contribution is the sum over the user's documents,
    clipped once. Event:
    ``PoissonSampled(subsampling_ratio, Gaussian(m_t))`` for each round t, and two ``Gaussian`` for
    word totals. No release is divided by the size of a minibatch or by the number of documents.
    The proof is in ``docs/proofs_document.md``.

    The noise of equations (3) to (6) of [1]_ is not used: ``docs/papers.md`` explains why it proves
    nothing.
    `dplda.metrics.perplexity_bound` computes the metric of [1]_.

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

    _n_passes = 40  # the default rounds see a document this often, in fresh minibatches
    _parameter_constraints = {
        **DocumentLDA._parameter_constraints,
        "learning_decay": [Interval(Real, 0.5, 1, closed="right")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        noise_multiplier=None,
        delta=1e-6,
        subsampling_ratio=0.2,
        max_iter=None,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        learning_decay=0.8,
        prior_components=None,
        expected_n_docs=None,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.epsilon = epsilon
        self.noise_multiplier = noise_multiplier
        self.delta = delta
        self.subsampling_ratio = subsampling_ratio
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.learning_decay = learning_decay
        self.prior_components = prior_components
        self.expected_n_docs = expected_n_docs
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, user_ids: Any = None, earlier: Any = None) -> Self:
        """Train on private documents: `max_iter` minibatches.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts, or weights such as shares, whose scale says nothing. One row is what the
            guarantee protects, or all rows of one user; columns are public.
        y : Ignored
            Ignored.
        user_ids : array-like of shape (n_docs,) or None, default=None
            The user that each row comes from: integers or strings. All rows with one id are one
            protected unit, for instance the texts of a person or the copies in a bootstrap sample.
            None protects each row alone. Private, and read after `X`.
        earlier : SubLDA, PrivateSVILDA or None, default=None
            Fitted model of other documents of the same source, such as those of yesterday, with the
            same words and number of topics. Its noisy counts are added, and its topics go on: the
            result is a model of both. It costs no budget, because no document is in both. Charge
            both fits as disjoint parts of a ledger (`Ledger.part`).

        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        BudgetError
            If the budget of the ledger is too small. No data have been read then.
        ValueError
            If not exactly one of `epsilon` and `noise_multiplier` is given, or if `user_ids` does
            not have one id for each row. Nothing is charged then.

        Warns
        -----
        SeededNoiseWarning
            If noise is drawn from a given `random_state`. The guarantee is void against anyone who
            knows it.
        LowSignalWarning
            If fewer than half of the topics stand out of the noise after `max_iter` rounds, or are
            expected to with `expected_n_docs` documents; or if `signal_to_noise_` is below 0.3.
        LowSignalWarning
            If the public texts behind `prior_components` hardly match the private documents, or if
            each topic of the table sums to 1.
        PrivateDataWarning
            If most rows hold no word. Not for release.
        """
        return self._train(X, user_ids, self._max_iter(), earlier=earlier)

    def _rounds(
        self,
        X: sp.csr_array,
        table: NoisyTable | None,
        budget: DocumentBudget,
        curator: Curator,
        streams: Streams,
        n_rounds: int,
        users: np.ndarray | None = None,
        earlier: NoisyTable | None = None,
    ) -> NoisyTable:
        """The algorithm. Only results of `curator.release` leave the private `X` and `users`."""
        documents, table = self._begin(
            X, table, budget, curator, streams, users, earlier, ratios=nearly_equal
        )  # private, public
        max_iter, ratio = self._max_iter(), budget.subsampling_ratio  # public
        rates = np.full(documents.n_units, ratio)  # public, except for the number of units
        factor = center = None  # tables of one round serve the next
        for t in self._topic_rounds(
            documents, table, budget, curator, streams, n_rounds, nearly_equal
        ):
            mechanism = budget.mechanism(t)  # public
            units = curator.sample(rates, round=t - 1)  # secret
            factor, power = table.expectation(t, max_iter, factor)  # public
            table.infer(documents, units, factor, self.doc_topic_prior_)  # private
            norm = table.schedule(t, max_iter)[0] * self.contribution_norm  # public
            bound, radius = documents.clipping_bound(mechanism, norm)  # public
            center = table.center(center)  # public
            total = documents.sum_topics(
                units, temper(factor, power, self.n_jobs), center,
                weight=table.weights_of_round(t), norm=bound, radius=radius,
            )  # private  # fmt: skip
            # One unit moves `total` by at most `radius` in L2: its expected statistics are clipped
            # to `radius` in integers. They read the unit's documents and past releases only. The
            # size of the minibatch is secret: nothing is divided by it.
            noisy = curator.release(
                total, mechanism, label=COUNTS, round=len(budget.totals) + t,
                sampling_probability=ratio, overwrite_value=True, n_jobs=self.n_jobs,
            )  # public  # fmt: skip
            unit = bound / radius / ratio
            table.update(
                noisy, unit=unit, noise_scale=mechanism.scale * unit, norm=norm,
                share=self._share(table, t), topic_word_prior=self.topic_word_prior,
            )  # public  # fmt: skip
        return table

    def _share(self, table: NoisyTable, t: int) -> float:
        """Share of round t in the average: the learning rate, (1 + t)**-learning_decay.

        The rounds that examine public topics are the whole of theirs: a slope shrinks with what is
        left of the first table, and a small one is that of made-up topics.
        """
        n = table.averaged_rounds(t)
        return growing_share(n, n) if t <= table.n_examining else (1 + n) ** -self.learning_decay
