"""SUB-LDA: topic models of Poisson-sampled documents, with document-level privacy."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from dplda.document._contributions import Documents
from dplda.document._document_budget import COUNTS, DocumentBudget
from dplda.document._document_lda import DocumentLDA
from dplda.document._noisy_table import NoisyTable
from dplda.document._table_estimate import temper
from dplda.leaf._compat import Interval, _fit_context
from dplda.privacy._curator import Curator
from dplda.privacy._streams import Streams
from dplda.word._gibbslda import LIVE_START, live_counts


class SubLDA(DocumentLDA):
    """Latent Dirichlet allocation with document-level differential privacy.

    The sound form of SUB-LDA [1]_. In each round, every document takes part with probability
    `subsampling_ratio`, secretly and independently. Its clipped word-topic statistics enter a sum,
    and every cell of the sum gets noise. The fitted model may be published. With `user_ids` in
    `fit`, the same is true of users with several documents.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon : float or None, default=None
        Total epsilon of a document, or of a user if `fit` gets `user_ids`, above 0; ``inf`` trains
        without noise and without privacy. Give either this or `noise_multiplier`. After `fit`,
        ``epsilon_ <= epsilon``.
    noise_multiplier : float or None, default=None
        Noise of a round, as standard deviation over sensitivity, instead of `epsilon`. Rounds
        without sampling differ in noise. Together they cost as much as `max_iter` equal rounds
        with this value. Word totals add to the cost.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, in (0, 1). Choose it well below
        1 / n_docs.
    subsampling_ratio : float, default=1.0
        Probability, from 1e-8 to 1, with which a document takes part in a round (gamma in [1]_).
        Small values save time a round, and need more rounds.
    boost : float, default=1.0
        Sound form of adaptive subsampling (v in [1]_), at least 1. Documents with many frequent
        words take part up to `boost` times as often, and weigh less in proportion. With 1, all
        documents take part at the same rate. The highest rate is charged.
    max_iter : int or None, default=None
        Number of rounds. None is 80 over the highest rate of a document, at most 400: 80 rounds
        without sampling. With 80 rounds at a small rate, the model would be worse.
    doc_topic_prior : float or None, default=0.1
        Dirichlet parameter of a document's topics (tau in [1]_); None is 1 / n_components.
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
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
        Released pseudo-counts of words in topics; not normalized.
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
        Noise multiplier of an average round.
    n_iter_ : int
        Number of rounds so far.
    doc_topic_prior_ : float
        `doc_topic_prior`, or 1 / n_components for None.
    n_features_in_ : int
        Size of the vocabulary.

    See Also
    --------
    PrivateSVILDA : The same guarantee by stochastic variational inference.
    HDPLDA : Protects single words.
    GibbsLDA : No privacy.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`), or user if `fit` gets `user_ids`. Relation: one
    document, or one user with all documents, is added, removed, or becomes empty. Sensitivity: the
    clipping bound of the round, in L2, checked in integers. A contribution reads the documents of
    one unit, their private state and past releases only. A user's contribution is the sum over the
    user's documents, clipped once. Event:
    ``PoissonSampled(min(1, subsampling_ratio * boost), Gaussian(m_t))`` for each round t, and two
    ``Gaussian`` for word totals. Statistics and proof: ``docs/proofs_document.md``.

    **Without noise.** With ``epsilon=inf``, the topic weights of a document are inferred from what
    the other documents have added to the table, as in collapsed inference. 256 topics and more
    start from one Gibbs sweep over all documents, which runs in one thread. Random topics, in which
    all other fits start, end at a higher held-out perplexity then (``docs/speed.md``). A weight
    counts as the next whole number.

    The algorithm as published is not private (``docs/papers.md``).

    References
    ----------
    .. [1] T. Huang, H. Chen, "Improving Privacy Guarantee and Efficiency of Latent Dirichlet
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

    _parameter_constraints = {
        **DocumentLDA._parameter_constraints,
        "boost": [Interval(Real, 1, 1e9, closed="both")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        noise_multiplier=None,
        delta=1e-6,
        subsampling_ratio=1.0,
        boost=1.0,
        max_iter=None,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
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
        self.boost = boost
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.prior_components = prior_components
        self.expected_n_docs = expected_n_docs
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, user_ids: Any = None, earlier: Any = None) -> Self:
        """Train on private documents: `max_iter` rounds.

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

    def _highest_rate(self) -> float:
        return min(1.0, float(self.subsampling_ratio) * float(self.boost))

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
            X, table, budget, curator, streams, users, earlier
        )  # private, public  # fmt: skip
        max_iter, highest = self._max_iter(), budget.subsampling_ratio  # public
        phi = center = None  # tables of one round serve the next
        for t in self._topic_rounds(documents, table, budget, curator, streams, n_rounds):
            mechanism = budget.mechanism(t)  # public
            clip, power = table.schedule(t, max_iter)  # public
            rates = self._rates(documents, table, highest)  # private
            units = curator.sample(rates, round=t - 1)  # secret
            phi = table.word_probabilities(phi)  # public
            others = table.others_counts(self.topic_word_prior)  # public
            documents.infer(units, phi, self.doc_topic_prior_, others)  # private
            norm = clip * self.contribution_norm  # public
            bound, radius = documents.clipping_bound(mechanism, norm)  # public
            center = table.center(center)  # public
            total = documents.sum_topics(
                units, temper(phi, power, self.n_jobs), center,
                weight=table.weights_of_round(t), norm=bound, radius=radius,
                upweight=None if self.boost == 1 else highest / rates,
            )  # private  # fmt: skip
            # One unit moves `total` by at most `radius` in L2: its contribution is clipped to
            # `radius` in integers. The contribution reads the documents of the unit, their own
            # topic weights and past releases only, so that no other unit's contribution changes.
            noisy = curator.release(
                total, mechanism, label=COUNTS, round=len(budget.totals) + t,
                sampling_probability=highest, overwrite_value=True, n_jobs=self.n_jobs,
            )  # public  # fmt: skip
            unit = bound / radius / highest
            table.update(
                noisy, unit=unit, noise_scale=mechanism.scale * unit, norm=norm,
                share=table.share(t, max_iter, highest), topic_word_prior=self.topic_word_prior,
            )  # public  # fmt: skip
        return table

    def _live_table(self, documents: Documents, streams: Streams) -> np.ndarray | None:
        """Counts of a live sweep: where many topics begin if nothing is protected; else None.

        Each of many random topics is near the word frequencies. Rounds that begin with them give
        each document topics of its own.
        """
        n_components, beta = int(self.n_components), self.topic_word_prior
        if self.epsilon != np.inf or n_components < LIVE_START or self.prior_components is not None:
            return None
        return beta + live_counts(
            documents.matrices(), documents.n_words, n_components, streams,
            doc_topic_prior=self.doc_topic_prior_, topic_word_prior=beta,
        )  # without privacy  # fmt: skip

    def _rates(self, documents: Documents, table: NoisyTable, highest: float) -> np.ndarray:
        """Each unit's probability of taking part in a round, (n_units,), at most `highest`.

        A word is frequent if it is among the words that make up the first 1 / `boost` of a topic
        in the released table. A unit's rate grows with the share of such words in its documents.
        """
        if self.boost == 1:
            return np.full(documents.n_units, highest)
        share = documents.share_of(frequent_words(table.table, 1 / self.boost))
        return np.clip(highest * share, min(self.subsampling_ratio, highest), highest)


def frequent_words(table: np.ndarray, frequent_mass: float) -> np.ndarray:
    """Mask of the fewest words that make up `frequent_mass` of some topic (n_words,)."""
    order = np.argsort(-table, axis=0, kind="stable")
    cumulative = np.cumsum(np.take_along_axis(table, order, axis=0), axis=0) / table.sum(axis=0)
    before = np.vstack([np.zeros(table.shape[1]), cumulative[:-1]])
    mask = np.zeros(len(table), bool)
    mask[order[before < frequent_mass]] = True
    return mask
