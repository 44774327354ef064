"""LP-LDA and OLP-LDA: a topic model of documents that their owners have randomized."""

from __future__ import annotations

import copy
import dataclasses
from numbers import Integral, Real

import numpy as np
import scipy.sparse as sp

from dplda.core._base import BaseLDA
from dplda.core._corpus import Matrix, check_counts
from dplda.core._private_estimator import Interval, PrivateEstimator
from dplda.core._signal import FEWEST_TESTS
from dplda.leaf._compat import StrOptions, _fit_context
from dplda.leaf._messages import rounds
from dplda.local._batches import (
    CLIENT_PARAMETERS,
    OnlineState,
    State,
    client_of,
    flat_topics,
    publish_topics,
    reports_of,
    sample_topics,
    topics_of_half,
    topics_of_public,
)
from dplda.local._estimates import count_reported, estimate_counts, weight_of_prior
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy import Guarantee
from dplda.privacy._streams import Streams

CONSTRAINTS = {
    **BaseLDA._parameter_constraints,
    **{
        name: RandomizedResponse._parameter_constraints[name]
        for name in CLIENT_PARAMETERS
    },
    "randomized": ["boolean"],
    "reconstruction": [StrOptions({"background", "bits"})],
}
PUBLIC_PRIOR = (
    "the corpus that fit_prior was given is public: it is used as it is, without any "
    "protection"
)


class LPLDA(PrivateEstimator, BaseLDA):
    """Local differential privacy: collapsed Gibbs sampling on randomized reports.

    LP-LDA [1]_. The owner of a document reports which words it contains, with some bits
    wrong (:class:`RandomizedResponse`). The server estimates the number of false ones,
    and trains on the reports. No server is trusted with a document.

    Parameters
    ----------
    n_components
    epsilon, bit_epsilon, delta, max_doc_words : optional
        The randomizer of the clients, as in :class:`RandomizedResponse`. Give exactly
        one of the first two. After `fit`, ``epsilon_ <= epsilon``; ``inf`` trains on
        the true presence of words, without privacy.
    randomized : bool, default=False
        Whether the rows of `X` are reports that clients made with the four parameters
        above. The estimator then randomizes nothing and spends no privacy.
    reconstruction : {"background", "bits"}, default="background"
        Treatment of false ones. "bits" is the method of the paper: it clears or sets
        bits of random documents until each word is in the estimated number of
        documents. It clears true and false ones alike. "background" keeps all bits and
        samples one more topic, whose rates are the expected false ones of each word.
        That topic takes the words that do not fit the topics of their document. The
        perplexity of "background" was lower at each measured `bit_epsilon` up to 3.
    max_iter : int, default=100
        Number of sweeps of each call. The first call begins with as many sweeps over
        every second report. The other reports test the resulting topics, and all
        reports start from them.
    doc_topic_prior
    topic_word_prior
    ledger : Ledger, str, path-like or None, default=None
        Ledger that :class:`RandomizedResponse` charges with the reports of each call,
        under its own name. Not used with ``randomized=True``.
    n_jobs
    random_state : int, RandomState instance or None, default=None
        Seed of the training and of the reports, if they are drawn here. Their guarantee
        is void against anyone who knows or guesses it (`SeededNoiseWarning`).
    verbose

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Number of reported words in each topic, plus `topic_word_prior`; not normalized.
    n_iter_ : int
        Number of sweeps of all calls.
    n_batches_ : int
        Number of batches of reports: each call is one, unless :class:`OLPLDA` divides
        it.
    topic_evidence_ : ndarray of shape (n_components,)
        How much more often than by chance the ten top words of each topic share
        reports, in standard errors: at most standard normal for a topic that is noise.
        These reports did not choose the words. NaN if the topics were not tested: with
        one topic, or with fewer than 40 reports.
    weak_topics_ : ndarray of shape (n_components,), bool
        Topics that are not shown to be more than noise. At most one in ten of the
        others is expected to be noise.
    epsilon_, delta_, bit_epsilon_, word_epsilon_, document_epsilon_, flip_probability_
        Guarantee of one report of a document, as in :class:`RandomizedResponse`.
    privacy_

    See Also
    --------
    RandomizedResponse : The client's side.
    MemoizedReports : The client's side, with one report for each document.
    OLPLDA : Trains on batches, and forgets.
    SubLDA : Needs a trusted server, and far less noise.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation: one document is replaced by
    any other. Trust: its owner only. Sensitivity, mechanism and events: as for
    :class:`RandomizedResponse`; everything else reads reports only. With
    ``randomized=True`` the model carries the clients' guarantee, and
    `privacy_.assumptions` states its conditions.

    Reports state which words are present, not how often, after the cap of
    `max_doc_words`.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training with Differential Privacy", IEEE TIFS 2020; section V.

    Examples
    --------
    >>> from dplda import LPLDA, RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> client = RandomizedResponse(epsilon=40.0, max_doc_words=10).fit(X)
    >>> reports = client.transform(X)
    >>> server = LPLDA(3, epsilon=40.0, max_doc_words=10, randomized=True).fit(reports)
    >>> round(server.epsilon_, 2), round(server.bit_epsilon_, 2)
    (40.0, 2.0)
    """

    _attack = "report"
    _promise = RandomizedResponse._promise
    _parameter_constraints = CONSTRAINTS

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        bit_epsilon=None,
        delta=1e-6,
        max_doc_words=100,
        randomized=False,
        reconstruction="background",
        max_iter=100,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Matrix, y: object = None) -> LPLDA:
        """Randomize documents and train on the reports, or train on given reports.

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

        Raises
        ------
        ValueError
            If reports hold other numbers than zeros and ones, if the budget or another
            parameter of the randomizer is out of range.
        BudgetError
            If the budget of the ledger is too small. No document has been randomized
            then.

        Warns
        -----
        SeededNoiseWarning
            If `random_state` is given and documents are randomized.
        LowSignalWarning
            If fewer than half of the topics are shown to be more than noise.
        """
        client, reports, checked = reports_of(self, X)  # public
        state = flat_topics(self, reports.shape[1])
        return self._learn(checked, client, reports, state, None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Matrix, y: object = None) -> LPLDA:
        """Continue with documents or reports that no earlier call has seen.

        Documents are randomized first. The method raises and warns as `fit` does, and
        refuses a changed randomizer or number of topics.

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

        Notes
        -----
        **Privacy.** Each document appears in exactly one call, so `epsilon_` remains
        the cost of a single report and never exceeds `epsilon`. A document that is
        reported in two calls costs twice as much, which `epsilon_` does not count. A
        ledger cannot tell documents apart, and each call charges it.
        """
        if not hasattr(self, "_state"):
            return self.fit(X)
        state = self._state  # public
        paid_before = self.privacy_
        client, reports, checked = reports_of(self, X, state, state.n_iter)  # public
        return self._learn(checked, client, reports, state, paid_before)

    def _learn(
        self,
        checked: LPLDA,
        client: RandomizedResponse,
        reports: sp.csr_array,
        state: State,
        paid_before: Guarantee | None,
    ) -> LPLDA:
        """All reports of a call are one batch, and counts add up. All public."""
        # From here on everything reads reports, and the guarantee does not depend on
        # the streams.
        streams = Streams.from_random_state(self.random_state)
        sweeps = rounds(self, state.n_iter + 1, state.n_iter + self.max_iter)
        flip = client.flip_probability_
        n_docs = reports.shape[0]
        estimate = estimate_counts(count_reported(reports), n_docs, flip)  # equation 8
        start = None
        if not state.n_batches and n_docs >= 2 * FEWEST_TESTS:
            state, start = topics_of_half(self, state, reports, flip, streams)
        after = sample_topics(
            self, state, reports, estimate, flip, streams, sweeps, start
        )
        publish_topics(self, checked, client, after, paid_before)
        return self


class OLPLDA(PrivateEstimator, BaseLDA):
    """Local differential privacy, online: Gibbs sampling on batches of noisy reports.

    OLP-LDA [1]_ is :class:`LPLDA` in batches. The topics of a batch are the prior of
    the next batch, and its word counts reduce the noise of the next estimates. A public
    corpus can precede the first batch (`fit_prior`). `fit` takes the rows in order.

    Parameters
    ----------
    n_components
    epsilon, bit_epsilon, delta, max_doc_words : optional
        The randomizer of the clients, as in :class:`RandomizedResponse`.
    randomized : bool, default=False
        Whether the rows of `X` are reports, as in :class:`LPLDA`.
    reconstruction : {"background", "bits"}, default="bits"
        Treatment of false ones, as in :class:`LPLDA`. The perplexity of "background"
        was lower after `fit_prior`. Without `fit_prior`, it was higher at a
        `bit_epsilon` of about 1.
    correlation : float, default=0.5
        Weight, from 0 to 1, of the counts of a batch in the prior of the next batch
        (lambda).
    prior_weight : float, default=0.4
        Weight, from 0 to 1, of the earlier batches in the estimated number of documents
        with a word (omega).
    prior_variance : float or None, default=None
        Variance of the number of documents with a word around the value that earlier
        batches predict (sigma squared). If given, it determines the weight, by Theorem
        6 of [1]_, and `prior_weight` is not used.
    batch_size : int, default=160
        Number of documents of a batch in `fit`; the last batch has the remaining ones.
        A call of `partial_fit` is one batch.
    max_iter : int, default=50
        Number of sweeps over each batch.
    doc_topic_prior, topic_word_prior, ledger, n_jobs, random_state, verbose : optional
        As in :class:`LPLDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Word-topic counts of the last batch plus the prior from all earlier ones; not
        normalized. The other attributes are as in :class:`LPLDA`.
    topic_evidence_, weak_topics_ : ndarray of shape (n_components,)
        As in :class:`LPLDA`. Each batch tests the earlier topics. The topics of a first
        batch without `fit_prior`, or with ``correlation=0``, are not tested.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation, trust, sensitivity, mechanism
    and events: as for :class:`LPLDA`. Batches hold different documents, so all batches
    together cost a document the epsilon of its single report. The corpus of `fit_prior`
    is not protected.

    Algorithm 2 of [1]_ contradicts the equations of its text in three lines; the text
    is implemented (``docs/proofs_local.md``). Means are clipped to the size of the
    batch. Without `fit_prior` the first batch has a flat prior and the unbiased
    estimate. With ``epsilon=inf``, counts are exact and nothing is estimated: this is
    O-LDA [2]_ on the presence of words.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training with Differential Privacy", IEEE TIFS 2020; section VI.
    .. [2] L. AlSumait, D. Barbara, C. Domeniconi, "On-line LDA: Adaptive Topic Models
       for Mining Text Streams", ICDM 2008.

    Examples
    --------
    >>> from dplda import OLPLDA, RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> client = RandomizedResponse(epsilon=40.0, max_doc_words=10).fit(X)
    >>> reports = client.transform(X)
    >>> server = OLPLDA(3, epsilon=40.0, max_doc_words=10, randomized=True)
    >>> server = server.fit_prior(X[:50]).partial_fit(reports[50:200])
    >>> server = server.partial_fit(reports[200:])
    >>> round(server.epsilon_, 2), round(server.bit_epsilon_, 2), server.n_batches_
    (40.0, 2.0, 2)
    """

    _attack = "report"
    _promise = RandomizedResponse._promise
    _parameter_constraints = {
        **CONSTRAINTS,
        "correlation": [Interval(Real, 0, 1, closed="both")],
        "prior_weight": [Interval(Real, 0, 1, closed="both")],
        "prior_variance": [None, Interval(Real, 0, 1e18, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        bit_epsilon=None,
        delta=1e-6,
        max_doc_words=100,
        randomized=False,
        reconstruction="bits",
        correlation=0.5,
        prior_weight=0.4,
        prior_variance=None,
        batch_size=160,
        max_iter=50,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Matrix, y: object = None) -> OLPLDA:
        """Randomize documents and train on the reports, or on given ones, in batches.

        The corpus of `fit_prior`, if there is one, comes before them.

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

        Raises
        ------
        ValueError
            If reports hold other numbers than zeros and ones, if the budget or another
            parameter of the randomizer is out of range.
        BudgetError
            If the budget of the ledger is too small. No document has been randomized
            then.

        Warns
        -----
        SeededNoiseWarning
            If `random_state` is given and documents are randomized.
        LowSignalWarning
            If fewer than half of the topics are shown to be more than noise.
        """
        state = getattr(self, "_public", None)
        client, reports, checked = reports_of(self, X, state)  # public
        if state is None:
            state = self._flat(reports.shape[1])
        size = int(self.batch_size)
        return self._learn(checked, client, reports, size, state, None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Matrix, y: object = None) -> OLPLDA:
        """Continue with one batch that no earlier call has seen, as `LPLDA` does.

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

        Notes
        -----
        **Privacy.** As in :class:`LPLDA`: a document that is reported in two calls
        costs twice as much, which `epsilon_` does not count.
        """
        state = getattr(self, "_state", None)
        paid_before = None
        number = 0
        if state is not None and state.n_batches:
            paid_before = self.privacy_
            number = state.n_iter if self.correlation == 1 else state.n_batches
        client, reports, checked = reports_of(self, X, state, number)  # public
        if state is None:
            state = self._flat(reports.shape[1])
        size = reports.shape[0]
        return self._learn(checked, client, reports, size, state, paid_before)

    def _flat(self, n_words: int) -> OnlineState:
        flat = flat_topics(self, n_words)
        return OnlineState(**vars(flat), expected=np.zeros(n_words))

    def _learn(
        self,
        checked: OLPLDA,
        client: RandomizedResponse,
        reports: sp.csr_array,
        batch_size: int,
        state: OnlineState,
        paid_before: Guarantee | None,
    ) -> OLPLDA:
        """Process one batch after the other. All public."""
        # From here on everything reads reports, and the guarantee does not depend on
        # the streams.
        streams = Streams.from_random_state(self.random_state)
        flip = client.flip_probability_
        starts = range(0, reports.shape[0], batch_size)
        last = state.n_iter + len(starts) * self.max_iter
        sweeps = rounds(self, state.n_iter + 1, last)
        for start in starts:
            batch = reports[start : start + batch_size]
            n_docs = batch.shape[0]
            estimate = estimate_counts(count_reported(batch), n_docs, flip)  # 8
            mean = estimate
            if state.n_docs:
                # equation 21
                mean = np.minimum(state.expected * (n_docs / state.n_docs), n_docs)
                weight = self._weight_of_mean(n_docs, flip)
                estimate = weight * mean + (1.0 - weight) * estimate  # equation 19
            prior = self._with_prior(state)  # equation 10
            after = sample_topics(self, prior, batch, estimate, flip, streams, sweeps)
            state = dataclasses.replace(
                after, expected=0.5 * (mean + estimate), n_docs=n_docs
            )
        self._publish(checked, client, state, paid_before)
        return self

    def _weight_of_mean(self, n_docs: int, flip: float) -> float:
        """Weight of the earlier batches in the estimates of a batch (omega)."""
        if self.prior_variance is not None:  # Theorem 6
            return weight_of_prior(n_docs, flip, float(self.prior_variance))
        # counts without noise need no prior
        return self.prior_weight if flip else 0.0

    def _with_prior(self, state: OnlineState) -> OnlineState:
        """Earlier counts in the prior; with weight 1, counts add up (`LPLDA`)."""
        if self.correlation == 1:
            return state
        prior = state.prior + float(self.correlation) * state.counts
        counts = np.zeros_like(state.counts)
        return dataclasses.replace(state, prior=prior, counts=counts)

    def _publish(
        self,
        checked: OLPLDA,
        client: RandomizedResponse,
        state: OnlineState,
        paid_before: Guarantee | None,
        **attributes: object,
    ) -> None:
        assumptions = (PUBLIC_PRIOR,) if state.has_public else ()
        publish_topics(
            self, checked, client, state, paid_before, assumptions, **attributes
        )

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_prior(self, X_public: Matrix, y: object = None) -> OLPLDA:
        """Start with a public corpus.

        Its topics and word counts are the prior of the first batch.

        A later `fit` starts from this corpus again.

        Parameters
        ----------
        X_public : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts, not reports. **They must be public**: the model holds them
            without noise.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            A model of the public corpus.

        Notes
        -----
        **Privacy.** These documents are not protected. The fitted attributes state the
        guarantee of the batches that follow.
        """
        checked = copy.copy(self)
        X = check_counts(checked, X_public, reset=True)  # public
        n_words = X.shape[1]
        client = client_of(self, n_words, None)
        state = topics_of_public(self, self._flat(n_words), X)
        self._publish(checked, client, state, None, _public=state)
        return self
