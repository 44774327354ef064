"""OLP-LDA: a topic model that learns from one batch of randomized reports after another."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda.core._base import BaseLDA
from dplda.core._corpus import check_counts
from dplda.core._private_fit import exactly_one, publish
from dplda.leaf._compat import Interval, _fit_context
from dplda.leaf._progress import rounds
from dplda.local._estimates import estimate_counts, weight_of_prior
from dplda.local._randomized_response import BUDGETS, RandomizedResponse
from dplda.local._server import (
    LOCAL_CONSTRAINTS,
    check_n_components,
    collect_reports,
    fitted_randomizer,
    reconstruct,
    server_guarantee,
    topic_counts,
)
from dplda.privacy import Guarantee
from dplda.privacy._streams import Streams

PUBLIC_PRIOR = (
    "the corpus that fit_prior was given is public: it is used as it is, without any protection"
)


@dataclass(frozen=True, eq=False)
class OnlineState:
    """State carried from batch to batch.

    Everything here is computed from reports and the public corpus, so it is public.

    Attributes
    ----------
    word_prior : ndarray of shape (n_words, n_components)
        Dirichlet parameters of the last batch, beta^l.
    counts : ndarray of shape (n_words, n_components)
        Word-topic counts of the last batch, N^l.
    mean : ndarray of shape (n_words,)
        Expected number of documents of the last batch with each word before its reports were seen,
        mu^l.
    estimate : ndarray of shape (n_words,)
        The same after its reports were seen, eta^l.
    n_docs : int
        Number of documents of the last batch; 0 if there is none.
    n_iter : int
        Number of sweeps so far.
    """

    word_prior: np.ndarray
    counts: np.ndarray
    mean: np.ndarray
    estimate: np.ndarray
    n_docs: int
    n_iter: int


class OLPLDA(BaseLDA):
    """Local differential privacy, online: Gibbs sampling on batches of randomized reports.

    OLP-LDA [1]_. Each batch starts where the previous one ended. Its topics are the prior of the
    next batch, and its word counts reduce the noise of the next estimates. A public corpus can
    precede the first batch (`fit_prior`).

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon : float or None, default=None
        Total epsilon of one report of a document, at `delta`, as in :class:`RandomizedResponse`;
        after `fit`, ``epsilon_ <= epsilon``. ``inf`` trains on the presence of words as it is,
        without privacy. Give exactly one of `epsilon`, `bit_epsilon` and `flip_mixture`.
    bit_epsilon : float or None, default=None
        Epsilon of one bit, from 1e-6 to 11.3; with "oue", half the epsilon of a pair of bits, at
        most 5.6. ``inf`` trains without privacy.
    flip_mixture : float or None, default=None
        Probability, in (0, 1), that a bit is replaced by a fair coin (f in [1]_). It gives
        ``bit_epsilon = log(2 / flip_mixture - 1)``. With ``mechanism="symmetric"`` only.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, in [0, 1). Choose it well below
        1 / n_docs. 0 asks for pure epsilon.
    max_doc_words : int or None, default=100
        Largest number of distinct words of a document that are reported on. A longer document keeps
        this many, chosen uniformly at random. None keeps all words.
    mechanism : {"symmetric", "oue"}, default="symmetric"
        "symmetric" randomizes both values of a bit with the same noise. "oue", optimized unary
        encoding, has less noise on zeros and more on ones.
    randomized : bool, default=False
        Whether the rows of `X` are reports that clients made with the six parameters above. If so,
        the estimator randomizes nothing and spends no privacy.
    reconstruction : {"background", "bits"}, default="bits"
        Treatment of false ones. "bits" is the method of the paper: bits of random documents are
        cleared or set until each word is in as many documents as estimated. It clears true and
        false ones alike. "background" keeps all bits and samples one more topic, whose rates are
        the expected false ones of each word. That topic takes the words that do not fit the topics
        of their document. Its perplexity was lower after `fit_prior`. Without `fit_prior`, it was
        higher at a `bit_epsilon` of about 1.
    correlation : float, default=0.5
        Weight, from 0 to 1, of the counts of a batch in the prior of the next batch (lambda).
    prior_weight : float or None, default=0.4
        Weight, from 0 to 1, of the earlier batches in the estimated number of documents with a word
        (omega). None computes it from `prior_variance`.
    prior_variance : float or None, default=None
        Variance of the number of documents with a word around the value that earlier batches
        predict (sigma squared). Give it instead of `prior_weight`, which must then be None.
    batch_size : int, default=160
        Number of documents of a batch in `fit`; the last batch has the remaining ones. A call of
        `partial_fit` is one batch.
    max_iter : int, default=50
        Number of sweeps over each batch.
    doc_topic_prior : float or None, default=0.1
        Dirichlet parameter of a document's topics (alpha); None is 1 / n_components.
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    ledger : Ledger, str, path-like or None, default=None
        Ledger that :class:`RandomizedResponse` charges with the reports of each call, under its own
        name. Not used with ``randomized=True``.
    n_jobs : int or None, default=None
        Number of threads of `transform` and `score`. Training is sequential. It never changes a
        result.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. Anything else makes the fit reproducible, and voids
        the guarantee against anyone who knows it or sees two results of it
        (`SeededNoiseWarning`). With ``randomized=True`` it seeds the training only, and the
        guarantee holds.
    verbose : int, default=0
        Progress: a bar where tqdm is installed, otherwise lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Word-topic counts of the last batch plus the prior from all earlier ones; not normalized.
    n_iter_ : int
        Number of sweeps of all batches.
    n_batches_ : int
        Number of batches of reports.
    epsilon_ : float
        Epsilon of one report of a document, at `delta_`; at most `epsilon`, if that is given.
    delta_ : float
        The delta at which `epsilon_` is stated.
    bit_epsilon_ : float
        Pure epsilon of one bit that is reported. With "oue" it is larger than the parameter
        `bit_epsilon`, which is half the epsilon of a pair of bits.
    word_epsilon_ : float
        Pure epsilon of one word more or less in a document. It is up to twice `bit_epsilon_`: in a
        document that reaches `max_doc_words`, the word takes the place of another one.
    document_epsilon_ : float
        Pure epsilon (delta = 0) of a document.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions. `print` shows it in words.
    one_probability_ : tuple of two floats
        Probability of a one in the report where the document has a zero, and where it has a one.
    doc_topic_prior_ : float
        `doc_topic_prior`, or 1 / n_components for None.
    n_features_in_ : int
        Size of the vocabulary.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of `X`, if all are strings.

    See Also
    --------
    LPLDA : Trains on all reports at once.
    RandomizedResponse : The client's side.
    MemoizedReports : The client's side, with one report for each document.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`); `word_epsilon_` states the guarantee of a
    word. Relation: one document is replaced by any other. Trust: the owner of the document only.
    Sensitivity: at most ``2 * max_doc_words`` bits differ, and never more than the number of
    columns. Mechanism: randomized response on each bit (:class:`RandomizedResponse`). Events: one
    ``RandomizedResponseEvent(flip_mixture)`` for each bit that differs, with "oue" an
    ``ErasedResponse`` for each pair of them; everything else reads reports only. With
    ``randomized=True`` the model carries the clients' guarantee, and `privacy_.assumptions` states
    its conditions.

    Batches hold different documents. All batches together therefore cost a document the epsilon of
    its single report. The corpus of `fit_prior` is not protected.

    Algorithm 2 of [1]_ contradicts the equations of its text, which are implemented here:

    - The mean of a batch is that of equation 21. Line 13 replaces it by the last estimate and
      ignores the sizes of the batches.
    - The estimate of equation 19 is computed before it is used. Line 14 computes it afterwards.
    - The mean starts from the number of public documents with each word, since reports count
      documents. Line 3 counts tokens.

    Means are clipped to the size of the batch. Without `fit_prior` the first batch has a flat prior
    and the unbiased estimate. ``epsilon=inf`` has exact counts and estimates nothing: O-LDA [2]_ on
    the presence of words.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training with Differential Privacy", IEEE TIFS 2020; section VI.
    .. [2] L. AlSumait, D. Barbara, C. Domeniconi, "On-line LDA: Adaptive Topic Models for Mining
       Text Streams", ICDM 2008.

    Examples
    --------
    >>> from dplda import OLPLDA, RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> client = RandomizedResponse(epsilon=40.0, max_doc_words=10).fit(X)
    >>> reports = client.transform(X)
    >>> server = OLPLDA(3, epsilon=40.0, max_doc_words=10, randomized=True)
    >>> server = server.fit_prior(X[:50]).partial_fit(reports[50:200]).partial_fit(reports[200:])
    >>> round(server.epsilon_, 2), round(server.bit_epsilon_, 2), server.n_batches_
    (40.0, 2.0, 2)
    """

    _attack = "report"
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        **LOCAL_CONSTRAINTS,
        "correlation": [Interval(Real, 0, 1, closed="both")],
        "prior_weight": [None, Interval(Real, 0, 1, closed="both")],
        "prior_variance": [None, Interval(Real, 0, 1e18, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        bit_epsilon=None,
        flip_mixture=None,
        delta=1e-6,
        max_doc_words=100,
        mechanism="symmetric",
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
        self.n_components = n_components
        self.epsilon = epsilon
        self.bit_epsilon = bit_epsilon
        self.flip_mixture = flip_mixture
        self.delta = delta
        self.max_doc_words = max_doc_words
        self.mechanism = mechanism
        self.randomized = randomized
        self.reconstruction = reconstruction
        self.correlation = correlation
        self.prior_weight = prior_weight
        self.prior_variance = prior_variance
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_prior(self, X_public: Any, y: Any = None) -> OLPLDA:
        """Start with a public corpus: its topics and word counts are the prior of the first batch.

        A later `fit` starts from this corpus again.

        Parameters
        ----------
        X_public : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts, not reports. **They must be public**: the model holds them without noise.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            A model of the public corpus.

        Raises
        ------
        ValueError
            If not exactly one of `epsilon`, `bit_epsilon` and `flip_mixture`, or of `prior_weight`
            and `prior_variance`, is given.

        Notes
        -----
        **Privacy.** These documents are not protected. The fitted attributes state the guarantee
        of the batches that follow.
        """
        self._check_parameters()
        X = check_counts(self, X_public, reset=True)  # public
        n_docs, n_words = X.shape
        # the client of later batches: it draws nothing here, so that a seed causes no warning yet
        parameters = self.get_params(deep=False) | {"random_state": None}
        client = fitted_randomizer(parameters, n_words)
        prior = np.full((n_words, int(self.n_components)), float(self.topic_word_prior))
        counts = topic_counts(
            X,
            prior,
            np.zeros(n_words),
            doc_topic_prior=self.doc_topic_prior_,
            streams=Streams.from_random_state(self.random_state),
            sweeps=rounds(self, 1, self.max_iter),
            first_round=1,
            from_prior=False,
        )
        n_docs_with = np.bincount(X.indices, minlength=n_words).astype(float)
        state = OnlineState(prior, counts, n_docs_with, n_docs_with, n_docs, self.max_iter)
        self._publish(client, state, n_batches=0, earlier=None, public=state)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> OLPLDA:
        """Train on batches of `batch_size` documents, in the order of the rows.

        Documents are randomized first, in one call. Training starts from the public corpus of
        `fit_prior`, if there is one.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; with ``randomized=True``, reports: zeros and ones.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            The fitted model.

        Raises
        ------
        ValueError
            If reports hold other numbers than zeros and ones, if the budget or another
            parameter of the randomizer is out of range, or if `fit_prior` had another vocabulary
            or number of topics.
        BudgetError
            If the budget of the ledger is too small. No document has been randomized then.

        Warns
        -----
        SeededNoiseWarning
            If `random_state` is given and documents are randomized.
        """
        return self._train(X, getattr(self, "_public", None), 0, int(self.batch_size))

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> OLPLDA:
        """Learn from one batch of documents, which are randomized first, or of reports.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts, or reports, of documents that no earlier call has seen.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            The fitted model.

        Raises
        ------
        ValueError
            If the randomizer or the number of topics has changed since the first call, or for the
            reasons of `fit`.
        BudgetError
            If the budget of the ledger is too small. No document has been randomized then.

        Warns
        -----
        SeededNoiseWarning
            If `random_state` is given and documents are randomized.

        Notes
        -----
        **Privacy.** Each document appears in exactly one batch, so `epsilon_` remains the cost of a
        single report and never exceeds `epsilon`. A document that is reported in two batches costs
        twice as much, which `epsilon_` does not count. A ledger cannot tell documents apart, and
        each call charges it.
        """
        return self._train(X, getattr(self, "_state", None), getattr(self, "n_batches_", 0), None)

    def _train(
        self, X: Any, state: OnlineState | None, n_batches: int, batch_size: int | None
    ) -> OLPLDA:
        """Learn from further batches.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Documents or reports.
        state : OnlineState or None
            State after the last batch or the public corpus; None starts from scratch.
        n_batches : int
            Number of batches of reports before this call.
        batch_size : int or None
            None makes all documents one batch.
        """
        self._check_parameters()
        if state is not None:
            origin = "fit" if n_batches else "fit_prior"
            check_n_components(state.counts.shape[1], self.n_components, origin=origin)
        earlier = self.privacy_ if n_batches else None
        expected = None if state is None else len(state.counts)
        client, reports = collect_reports(
            self, X, earlier=earlier, n_earlier=n_batches, expected=expected
        )  # public: everything below reads reports

        # the server's own randomness: the guarantee does not depend on it
        streams = Streams.from_random_state(self.random_state)
        n_docs, n_words = reports.shape
        if state is None:
            empty, zeros = np.zeros((n_words, int(self.n_components))), np.zeros(n_words)
            state = OnlineState(empty + float(self.topic_word_prior), empty, zeros, zeros, 0, 0)
        step = batch_size or n_docs
        batches = [reports[i : i + step] for i in range(0, n_docs, step)]  # public
        first = state.n_iter + 1
        sweeps = rounds(self, first, state.n_iter + len(batches) * self.max_iter)
        for number, own_sweeps in itertools.groupby(sweeps, lambda t: (t - first) // self.max_iter):
            state = self._learn(
                state, batches[number], client.one_probability_, streams, own_sweeps
            )
        self._publish(client, state, n_batches=n_batches + len(batches), earlier=earlier)
        return self

    def _learn(
        self,
        state: OnlineState,
        reports: sp.csr_array,
        one_probability: tuple[float, float],
        streams: Streams,
        sweeps: Iterable[int],
    ) -> OnlineState:
        """One batch: lines 6 to 16 of Algorithm 2, in the order of the paper's text. All public."""
        n_docs, n_words = reports.shape
        n_reported = np.bincount(reports.indices, minlength=n_words)
        estimate = estimate_counts(n_reported, n_docs, one_probability)  # equation 8
        mean = estimate
        if state.n_docs:
            mean = 0.5 * (state.mean + state.estimate) * (n_docs / state.n_docs)  # equation 21
            mean = np.minimum(mean, n_docs)
            weight = self.prior_weight
            if one_probability == (0.0, 1.0):
                weight = 0.0  # counts without noise need no prior
            elif weight is None:
                weight = weight_of_prior(  # Theorem 6
                    estimate, n_docs, one_probability, float(self.prior_variance)
                )
            estimate = weight * mean + (1.0 - weight) * estimate  # equation 19
        documents, background = reconstruct(
            reports,
            estimate,
            one_probability,
            by_bits=self.reconstruction == "bits",
            streams=streams,
            round_number=state.n_iter + 1,
        )
        prior = state.word_prior + float(self.correlation) * state.counts  # equation 10
        counts = topic_counts(
            documents,
            prior,
            background,
            doc_topic_prior=self.doc_topic_prior_,
            streams=streams,
            sweeps=sweeps,
            first_round=state.n_iter + 1,
            from_prior=state.n_docs > 0,
        )
        n_iter = state.n_iter + int(self.max_iter)
        return OnlineState(prior, counts, mean, estimate, n_docs, n_iter)

    def _check_parameters(self) -> None:
        exactly_one(type(self).__name__, **{name: getattr(self, name) for name in BUDGETS})
        if (self.prior_weight is None) == (self.prior_variance is None):
            given = "neither" if self.prior_weight is None else "both"
            raise ValueError(
                f"OLPLDA needs exactly one of prior_weight or prior_variance, got {given}; set "
                "the other to None"
            )

    def _publish(
        self,
        client: RandomizedResponse,
        state: OnlineState,
        *,
        n_batches: int,
        earlier: Guarantee | None,
        public: OnlineState | None = None,
    ) -> None:
        """Set the fitted attributes; `public` is the state after a new public corpus."""
        public = public or getattr(self, "_public", None)
        assumptions = () if public is None else (PUBLIC_PRIOR,)
        publish(
            self,
            server_guarantee(
                client.privacy_, earlier, randomized=self.randomized, assumptions=assumptions
            ),
            components_=(state.word_prior + state.counts).T,
            n_iter_=state.n_iter,
            n_batches_=n_batches,
            bit_epsilon_=client.bit_epsilon_,
            word_epsilon_=client.word_epsilon_,
            document_epsilon_=client.document_epsilon_,
            one_probability_=client.one_probability_,
            _state=state,
            _public=public,
        )
