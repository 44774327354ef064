"""LP-LDA and OLP-LDA: a topic model of documents that their owners have randomized.

`reports_of` randomizes documents on behalf of clients. Everything else reads reports
(or validates them), public numbers and the server's own randomness, and costs no
privacy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from numbers import Integral, Real
from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from dplda.core._base import BaseLDA
from dplda.core._corpus import Corpus, Matrix, check_counts
from dplda.core._fold_in import pad
from dplda.core._private_fit import (
    DISTINCT,
    Interval,
    PrivateEstimator,
    exactly_one,
    publish,
)
from dplda.core._signal import deviate_of_mean, shown, warn_if_weak
from dplda.kernels import _gibbs
from dplda.leaf._compat import StrOptions, _fit_context
from dplda.leaf._messages import rounds
from dplda.local._estimates import (
    count_reported,
    estimate_counts,
    false_ones,
    pairs_of_words,
    set_and_clear,
    weight_of_prior,
)
from dplda.local._randomized_response import BUDGETS, RandomizedResponse
from dplda.privacy import Guarantee
from dplda.privacy._streams import Purpose, Streams, uniform_integers

N_TOP = 10  # words of a topic whose reports are its evidence: as many as of `coherence`
FEWEST_TESTS = 8  # reports that test topics; the variance of two says nothing
ALL, HALF = 0, 1  # streams of the sweeps over all reports, and over a half
CLIENT_PARAMETERS = (*BUDGETS, "delta", "max_doc_words", "ledger")
CONSTRAINTS = {
    **BaseLDA._parameter_constraints,
    **{
        name: RandomizedResponse._parameter_constraints[name]
        for name in CLIENT_PARAMETERS
    },
    "randomized": ["boolean"],
    "reconstruction": [StrOptions({"background", "bits"})],
}
MADE_BY_CLIENTS = (
    "the rows of X were made by RandomizedResponse, or by a program that does the "
    "same, with the parameters of this estimator and with secret randomness"
)
PUBLIC_PRIOR = (
    "the corpus that fit_prior was given is public: it is used as it is, without any "
    "protection"
)


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """Topics, as batches of reports leave them behind. Public."""

    prior: np.ndarray  # Dirichlet parameters of the topics, (n_words, n_components)
    counts: np.ndarray  # word-topic counts on top of them
    # (n_components,) sums of `pairs_of_words` and of its squares over all reports that
    # met topics they had not made
    pairs: np.ndarray
    squares: np.ndarray
    n_tested: int = 0  # such reports
    n_iter: int = 0  # sweeps so far
    n_batches: int = 0  # of reports so far

    @property
    def table(self) -> np.ndarray:
        """Word-topic counts with the prior, (n_words, n_components)."""
        return self.prior + self.counts

    @property
    def evidence(self) -> np.ndarray:
        """Student's t of the pairs as a normal deviate; NaN if nothing was tested."""
        n = self.n_tested
        if (
            n < FEWEST_TESTS or len(self.pairs) == 1
        ):  # one topic has no others to be told from
            return np.full(len(self.pairs), np.nan)
        return deviate_of_mean(self.pairs, self.squares, n)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class OnlineState(State):
    """Topics, and what OLP-LDA expects of the words of the next batch. Public."""

    # (n_words,) documents of the last batch with each word: mean of the numbers before
    # (mu) and after (eta)
    expected: np.ndarray
    n_docs: int = 0  # of the last batch
    has_public: bool = False  # whether a public corpus came first


Batches = TypeVar("Batches", State, OnlineState)


class LPLDA(PrivateEstimator, BaseLDA):
    """Local differential privacy: collapsed Gibbs sampling on randomized reports.

    Documents are what is reported.

    LP-LDA [1]_. The owner of a document reports which words it contains, with some bits
    wrong (:class:`RandomizedResponse`). The server estimates the number of false ones,
    and trains on the reports. No server is trusted with a document.

    Parameters
    ----------
    n_components
    epsilon, bit_epsilon, delta, max_doc_words : optional
        The randomizer of the clients, as in :class:`RandomizedResponse`. Give exactly
        one of the first two. After `fit`, ``epsilon_ <= epsilon``; ``inf`` trains on
        the presence of words as it is, without privacy.
    randomized : bool, default=False
        Whether the rows of `X` are reports that clients made with the four parameters
        above. If so, the estimator randomizes nothing and spends no privacy.
    reconstruction : {"background", "bits"}, default="background"
        Treatment of false ones. "bits" is the method of the paper: bits of random
        documents are cleared or set until each word is in as many documents as
        estimated. It clears true and false ones alike. "background" keeps all bits and
        samples one more topic, whose rates are the expected false ones of each word.
        That topic takes the words that do not fit the topics of their document. Its
        perplexity was lower at each measured `bit_epsilon` up to 3.
    max_iter : int, default=100
        Number of sweeps of each call. In the first one, every second report alone is
        swept as often before: its topics are tested by the other reports, and all
        reports begin with them.
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
        Number of batches of reports: calls, or what :class:`OLPLDA` makes of one.
    topic_evidence_ : ndarray of shape (n_components,)
        How much oftener the ten top words of each topic share reports than by chance,
        in standard errors: at most standard normal for a topic that is noise. The
        reports have not chosen the words. NaN if the topics were not tested: there is
        one topic, or there are fewer than 16 reports.
    weak_topics_ : ndarray of shape (n_components,), bool
        Topics that are not shown to be more than noise. Of the others at most one in
        ten is expected to be noise.
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
    any other. Trust: its owner only. Sensitivity, mechanism and events are those of
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
        """Train on documents, which are randomized first, or on reports: zeros, ones.

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
        client, reports = reports_of(self, X)  # public
        state = flat_topics(self, reports.shape[1])
        return self._learn(client, reports, state, None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Matrix, y: object = None) -> LPLDA:
        """Continue with documents, or reports, that no earlier call has seen.

        Documents are randomized first. The method raises and warns as `fit` does, and
        refuses another randomizer or number of topics.

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
        client, reports = reports_of(self, X, state, state.n_iter)  # public
        return self._learn(client, reports, state, paid_before)

    def _learn(
        self,
        client: RandomizedResponse,
        reports: sp.csr_array,
        state: State,
        paid_before: Guarantee | None,
    ) -> LPLDA:
        """All reports of a call are a batch, and counts add up. All public."""
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
        publish_topics(self, client, after, paid_before)
        return self


class OLPLDA(PrivateEstimator, BaseLDA):
    """Local differential privacy, online: Gibbs sampling on batches of noisy reports.

    OLP-LDA [1]_ is :class:`LPLDA` in batches. The topics of a batch are the prior of
    the next one, and its word counts reduce the noise of the next estimates. A public
    corpus can precede the first batch (`fit_prior`), and `fit` takes the rows in order.

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
        batches predict (sigma squared). If it is given, it decides on the weight, by
        Theorem 6 of [1]_, and `prior_weight` is not used.
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
        normalized. The other attributes are those of :class:`LPLDA`.
    topic_evidence_, weak_topics_ : ndarray of shape (n_components,)
        As in :class:`LPLDA`. Each batch tests the topics before it: those of a first
        batch without `fit_prior`, or with ``correlation=0``, are not tested.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation, trust, sensitivity, mechanism
    and events are those of :class:`LPLDA`. Batches hold different documents, so all of
    them together cost a document the epsilon of its single report. The corpus of
    `fit_prior` is not protected.

    Algorithm 2 of [1]_ contradicts the equations of its text in three lines; the text
    is implemented (``docs/proofs_local.md``). Means are clipped to the size of the
    batch. Without `fit_prior` the first batch has a flat prior and the unbiased
    estimate. ``epsilon=inf`` has exact counts and estimates nothing: O-LDA [2]_ on the
    presence of words.

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
        """Train on documents, which are randomized first, or on reports, in batches.

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
        client, reports = reports_of(self, X, state)  # public
        if state is None:
            state = self._flat(reports.shape[1])
        return self._learn(client, reports, int(self.batch_size), state, None)

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
        client, reports = reports_of(self, X, state, number)  # public
        if state is None:
            state = self._flat(reports.shape[1])
        return self._learn(client, reports, reports.shape[0], state, paid_before)

    def _flat(self, n_words: int) -> OnlineState:
        flat = flat_topics(self, n_words)
        return OnlineState(**vars(flat), expected=np.zeros(n_words))

    def _learn(
        self,
        client: RandomizedResponse,
        reports: sp.csr_array,
        batch_size: int,
        state: OnlineState,
        paid_before: Guarantee | None,
    ) -> OLPLDA:
        """One batch after the other. All public."""
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
        self._publish(client, state, paid_before)
        return self

    def _weight_of_mean(self, n_docs: int, flip: float) -> float:
        """Weight of the earlier batches in the estimates of a batch (omega)."""
        if self.prior_variance is not None:  # Theorem 6
            return weight_of_prior(n_docs, flip, float(self.prior_variance))
        # counts without noise need no prior
        return self.prior_weight if flip else 0.0

    def _with_prior(self, state: OnlineState) -> OnlineState:
        """Earlier counts as a part of the prior; of weight 1, they add up (`LPLDA`)."""
        if self.correlation == 1:
            return state
        prior = state.prior + float(self.correlation) * state.counts
        counts = np.zeros_like(state.counts)
        return dataclasses.replace(state, prior=prior, counts=counts)

    def _publish(
        self,
        client: RandomizedResponse,
        state: OnlineState,
        paid_before: Guarantee | None,
        **attributes: object,
    ) -> None:
        assumptions = (PUBLIC_PRIOR,) if state.has_public else ()
        publish_topics(self, client, state, paid_before, assumptions, **attributes)

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
        X = check_counts(self, X_public, reset=True)  # public
        n_docs, n_words = X.shape
        client = client_of(self, n_words, None)
        flat = self._flat(n_words)
        counts = topic_counts(
            X,
            flat.prior,
            np.zeros(n_words),
            doc_topic_prior=self.doc_topic_prior,
            streams=Streams.from_random_state(self.random_state),
            sweeps=rounds(self, 1, self.max_iter),
            first_round=1,
        )
        state = dataclasses.replace(
            flat,
            counts=counts,
            n_iter=int(self.max_iter),
            expected=count_reported(X).astype(float),
            n_docs=n_docs,
            has_public=True,
        )
        self._publish(client, state, None, _public=state)
        return self


# What LP-LDA and OLP-LDA share. `model` gives its parameters.


def reports_of(
    model: LPLDA | OLPLDA, X: Matrix, state: State | None = None, n_earlier: int = 0
) -> tuple[RandomizedResponse, sp.csr_array]:
    """The fitted randomizer of the clients, and reports: theirs, or of documents.

    `state` is what the call continues with. `n_earlier` is above 0 after earlier
    reports, and differs between calls.
    """
    if state is not None:
        _check_n_components(model, state)
    check = _check_reports if model.randomized else check_counts
    # private, unless X holds reports
    read = partial(check, model, X, reset=state is None)
    # the size of the vocabulary is public, and enters the cost before X is read
    if state is not None:
        n_words = len(state.counts)
    else:
        try:
            n_words = np.shape(X)[1]
        except (TypeError, ValueError, IndexError):  # no matrix: `read` says why
            n_words = read().shape[1]
    seed = _seed_of_reports(model.random_state, n_earlier)
    client = client_of(model, n_words, seed)  # public
    if n_earlier and client._law != model._law:
        raise ValueError(
            "partial_fit continues with reports of the same randomizer, and "
            "epsilon, bit_epsilon, delta or max_doc_words have changed; call fit "
            "to start from scratch"
        )
    if model.randomized:
        return client, read()  # public
    # The release. One document is one row, and its report depends on this row and
    # on its own coins only. Replacing the document changes at most 2 *
    # max_doc_words bits of that row, which `client.privacy_` charges. The ledger is
    # charged before `read` looks at a document.
    reports = client._report(read, client.ledger)  # public
    return client, reports


def client_of(model: LPLDA | OLPLDA, n_words: int, seed: object) -> RandomizedResponse:
    """The randomizer of the clients, which draws nothing with ``randomized=True``."""
    own = {name: getattr(model, name) for name in CLIENT_PARAMETERS}
    exactly_one(type(model).__name__, **{name: own[name] for name in BUDGETS})
    random_state = None if model.randomized else seed
    # the guarantee depends on their number only
    columns = sp.csr_array((1, n_words))
    return RandomizedResponse(**own, random_state=random_state).fit(columns)


def flat_topics(model: LPLDA | OLPLDA, n_words: int) -> State:
    """Topics before the first batch."""
    empty = np.zeros((n_words, int(model.n_components)))
    prior = empty + float(model.topic_word_prior)
    return State(prior, empty, pairs=empty[0], squares=empty[0])


def topics_of_half(
    model: LPLDA | OLPLDA,
    state: Batches,
    reports: sp.csr_array,
    flip: float,
    streams: Streams,
) -> tuple[Batches, np.ndarray]:
    """Counts of topics that every second report makes; the others test them."""
    half = reports[::2]
    n_docs = half.shape[0]
    present = estimate_counts(count_reported(half), n_docs, flip)
    sweeps = range(1, int(model.max_iter) + 1)
    counts = _sampled(
        model, state, half, present, flip, streams, sweeps=sweeps, stream=HALF
    )
    return tested(state, state.prior + counts, reports[1::2], flip), counts


def sample_topics(
    model: LPLDA | OLPLDA,
    state: Batches,
    reports: sp.csr_array,
    estimate: np.ndarray,
    flip: float,
    streams: Streams,
    sweeps: Iterator[int],
    start: np.ndarray | None = None,
) -> Batches:
    """The state after a batch, in which `estimate` documents have each word.

    The batch tests the topics before it, if there are any. `start` is that of
    `topic_counts`.
    """
    if np.ptp(state.table) > 0:
        state = tested(state, state.table, reports, flip)
    sweeps = islice(sweeps, int(model.max_iter))
    counts = _sampled(
        model, state, reports, estimate, flip, streams, sweeps=sweeps, start=start
    )
    return dataclasses.replace(
        state,
        counts=state.counts + counts,
        n_iter=state.n_iter + int(model.max_iter),
        n_batches=state.n_batches + 1,
    )


def _sampled(
    model: LPLDA | OLPLDA,
    state: State,
    reports: sp.csr_array,
    estimate: np.ndarray,
    flip: float,
    streams: Streams,
    *,
    sweeps: Iterable[int],
    stream: int = ALL,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Word-topic counts of reports after the sweeps; `start` as in `topic_counts`."""
    n_docs, n_words = reports.shape
    first_round = state.n_iter + 1
    documents = reports
    background = np.zeros(n_words)
    if model.reconstruction == "bits":
        reader = streams.reader(Purpose.RECONSTRUCTION, first_round, stream)
        documents = set_and_clear(reports, estimate, reader)
    else:
        background = false_ones(count_reported(reports), estimate, n_docs, flip)
    return topic_counts(
        documents,
        state.table,
        background,
        doc_topic_prior=model.doc_topic_prior,
        streams=streams,
        sweeps=sweeps,
        first_round=first_round,
        stream=stream,
        start=start,
    )


def tested(
    state: Batches, table: np.ndarray, reports: sp.csr_array, flip: float
) -> Batches:
    """The state after reports have met the topics of a table that others have made."""
    words = _top_words(table)
    if min(words.shape) < 2:  # nothing to stand out of, or no pair
        return state
    pairs = pairs_of_words(reports, words, flip)
    return dataclasses.replace(
        state,
        pairs=state.pairs + pairs.sum(axis=0),
        squares=state.squares + np.square(pairs).sum(axis=0),
        n_tested=state.n_tested + len(pairs),
    )


def publish_topics(
    model: LPLDA | OLPLDA,
    client: RandomizedResponse,
    state: State,
    paid_before: Guarantee | None,
    assumptions: tuple[str, ...] = (),
    **attributes: object,
) -> None:
    """Set the fitted attributes, with the guarantee of one report.

    It does not depend on the number of documents, because each appears in one call
    only.
    """
    clients = client.privacy_
    seeded = clients.seeded
    assumptions = (*clients.assumptions, DISTINCT, *assumptions)
    if model.randomized:
        assumptions += (MADE_BY_CLIENTS,)
    if paid_before is not None:
        seeded = seeded or paid_before.seeded
        assumptions += tuple(a for a in paid_before.assumptions if a not in assumptions)
    publish(
        model,
        dataclasses.replace(clients, assumptions=assumptions, seeded=seeded),
        components_=state.table.T,
        n_iter_=state.n_iter,
        n_batches_=state.n_batches,
        bit_epsilon_=client.bit_epsilon_,
        word_epsilon_=client.word_epsilon_,
        document_epsilon_=client.document_epsilon_,
        flip_probability_=client.flip_probability_,
        topic_evidence_=state.evidence,
        weak_topics_=~shown(state.evidence),
        _law=client._law,
        _state=state,
        **attributes,
    )
    if state.n_batches:
        warn_if_weak(model)


def _seed_of_reports(random_state: object, n_earlier: int) -> object:
    """The seed of a call's reports: a later call with an integer flips other bits."""
    if n_earlier == 0 or not isinstance(random_state, Integral):
        return random_state
    streams = Streams.from_random_state(random_state)
    word = streams.reader(Purpose.CLIENT_SEED, n_earlier).words(1)[0]
    return int(word >> 32)


def _check_n_components(model: LPLDA | OLPLDA, state: State) -> None:
    n_components = state.counts.shape[1]
    if n_components != model.n_components:
        origin = "fit" if state.n_batches else "fit_prior"
        raise ValueError(
            f"{origin} had n_components={n_components}, got "
            f"{int(model.n_components)}; call {origin} to start from scratch"
        )


def _top_words(table: np.ndarray) -> np.ndarray:
    """Top words of topics, (n_components, n_top): frequent, rare in other topics."""
    rank = (table**2 / table.sum(axis=1, keepdims=True)).T
    n_top = min(N_TOP, len(table) // 2)
    return np.argsort(-rank, axis=1, kind="stable")[:, :n_top]


def _check_reports(model: LPLDA | OLPLDA, X: Matrix, *, reset: bool) -> sp.csr_array:
    """Validate reports with `check_counts`; they may hold zeros and ones only."""
    reports = check_counts(model, X, reset=reset, whole=False)  # an error follows below
    unrounded = X.data if isinstance(X, (sp.sparray, sp.spmatrix)) else np.asarray(X)
    if (reports.data != 1).any() or (np.rint(unrounded) != unrounded).any():
        raise ValueError(
            f"{type(model).__name__} with randomized=True takes reports, which hold "
            "zeros and ones only, and X holds other numbers; pass the result of "
            "RandomizedResponse.transform, or word counts with randomized=False"
        )
    return reports


def topic_counts(
    documents: sp.csr_array,
    word_prior: np.ndarray,
    background: np.ndarray,
    *,
    doc_topic_prior: float,
    streams: Streams,
    sweeps: Iterable[int],
    first_round: int,
    stream: int = ALL,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Word-topic counts, by collapsed Gibbs sampling with a background topic.

    Counts and Dirichlet parameters `word_prior` have shape (n_words, n_components).
    `background` (n_words,) is the expected number of tokens of a document that belong
    to no topic; they are not counted. In round 1, topics start equally likely, and the
    background with its rate. With the counts `start` (n_words, n_components), and in a
    later round, the first sweep draws topics from the prior, these counts and the
    tokens sampled before. Then `start` is left out.
    """
    corpus = Corpus.from_counts(documents)
    n_words, n_components = word_prior.shape
    shape = (n_words, n_components + 1)  # the background's column is the last
    prior = pad(np.zeros(shape), np.float32)
    counts = pad(np.zeros(shape), np.int32)
    prior[:, :n_components] = word_prior
    topics = np.full(corpus.n_tokens, -1, np.int32)
    if first_round == 1 and start is None:
        reader = streams.reader(Purpose.FIRST_TOPICS, first_round, stream)
        words = reader.words(corpus.n_tokens)
        n_tokens = np.bincount(corpus.word, minlength=n_words)
        share = background * documents.shape[0] / np.maximum(n_tokens, 1)
        # the low half of a random word decides for the background, the high half for
        # the topic
        low = (words & np.uint64(0xFFFFFFFF)) * 2.0**-32
        uniform = uniform_integers(words, n_components)
        topics[:] = np.where(low < share[corpus.word], n_components, uniform)
        tokens = (np.ones(corpus.n_tokens, np.int32), (corpus.word, topics))
        counts[:, : n_components + 1] = sp.coo_array(tokens, shape=shape).toarray()
    live = counts[:, :n_components]
    left_out = np.zeros((n_words, n_components), np.int32)
    if start is not None:
        left_out += start.astype(np.int32)
        live += left_out
    totals = live.sum(axis=0, dtype=np.int64)
    sizes = word_prior.sum(axis=0, dtype=np.float64)
    rates = background.astype(np.float32)
    scratch = np.empty((4, counts.shape[1]), np.float32)
    for t in sweeps:
        bits = streams.reader(Purpose.TOPICS, t, stream).words(corpus.n_tokens)
        _gibbs.background_sweep(
            corpus.word,
            corpus.doc_ptr,
            topics,
            counts,
            totals,
            prior,
            sizes,
            rates,
            doc_topic_prior,
            bits,
            scratch,
        )
        live -= left_out
        totals -= left_out.sum(axis=0)
        left_out[:] = 0
    return live.astype(np.int64)
