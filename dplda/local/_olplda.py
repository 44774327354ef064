"""OLP-LDA: a topic model that learns from one batch of randomized reports after another."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda._base import BaseLDA
from dplda._compat import Interval, _fit_context
from dplda._corpus import check_counts
from dplda._private_fit import publish
from dplda._progress import rounds
from dplda.local._estimates import estimate_counts, weight_of_prior
from dplda.local._randomized_response import RandomizedResponse
from dplda.local._server import (
    LOCAL_CONSTRAINTS,
    check_goes_on,
    client_of,
    guarantee_of,
    reconstruct,
    reports_of,
    topic_counts,
)
from dplda.privacy._streams import Streams

PUBLIC_PRIOR = (
    "the corpus that fit_prior was given is public: it is used as it is, without any protection"
)


@dataclass(frozen=True, eq=False)
class Online:
    """What is kept between batches: functions of reports and of the public corpus only.

    Attributes
    ----------
    word_prior : ndarray of shape (n_words, n_components)
        Dirichlet parameters of the last batch, beta^l.
    counts : ndarray of shape (n_words, n_components)
        Word-topic counts of the last batch, N^l.
    mean, estimate : ndarray of shape (n_words,)
        Of the documents of the last batch with each word: before its reports, mu^l, and after,
        eta^l.
    n_docs : int
        Documents of the last batch; 0 if there was none.
    n_iter : int
        Sweeps so far.
    """

    word_prior: np.ndarray
    counts: np.ndarray
    mean: np.ndarray
    estimate: np.ndarray
    n_docs: int
    n_iter: int


class OLPLDA(BaseLDA):
    """Local differential privacy, online: Gibbs sampling on batches of randomized reports.

    OLP-LDA [1]_. Each batch begins where the last one ended: its topics are the prior of the next,
    and so are its counts of words, which take noise out of those that the next reports give. A
    public corpus (`fit_prior`) can be the beginning.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon : float or None, default=None
        Epsilon of one bit, as :class:`RandomizedResponse` takes it; ``inf`` trains on the presence
        of words as it is, without privacy. Give either this or `flip_mixture`.
    flip_mixture : float or None, default=None
        Probability that a bit is replaced by a fair coin, instead of `epsilon`.
    max_doc_words : int or None, default=100
        Distinct words of a document that are kept, at random, before the response.
    mechanism : {"symmetric", "oue"}, default="symmetric"
        Randomized response with the same noise for both values of a bit, or less for zeros.
    delta : float, default=1e-6
        Probability, in [0, 1), with which the bound `epsilon_` may fail.
    randomized : bool, default=False
        Whether the data are reports that clients made with the five parameters above. Then
        nothing is randomized again, and nothing is spent.
    reconstruction : {"background", "bits"}, default="bits"
        What is done about false ones. "bits" is the paper's: bits of random documents are cleared,
        and others set, until each word is in as many documents as it probably was; a document's
        own words and false ones are cleared alike. "background" keeps all bits and samples one
        topic more, whose rates are the false ones to be expected of each word: a word that does
        not fit its document's topics goes there. It was better than "bits" after `fit_prior`, and
        worse without it at an `epsilon` of about 1.
    correlation : float, default=0.5
        What a count of the last batch adds to the prior of the next (lambda), from 0 to 1.
    prior_weight : float or None, default=0.4
        Weight, from 0 to 1, of what earlier batches say in the estimate of how many documents have
        a word (omega). None computes it from `prior_variance`.
    prior_variance : float or None, default=None
        Variance of such a count around what earlier batches say (sigma squared), instead of
        `prior_weight`, which must then be None.
    batch_size : int, default=160
        Documents of a batch in `fit`; the last one has what is left. A call of `partial_fit` is one
        batch.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (alpha).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    max_iter : int, default=50
        Sweeps over each batch.
    ledger : Ledger, str, path-like or None, default=None
        Where `RandomizedResponse` charges the reports of each call, under its own name. With
        ``randomized=True`` it is not used.
    n_jobs : int or None, default=None
        Threads of `transform` and `score`; training is sequential. Never changes a result.
    random_state : int, RandomState instance or None, default=None
        None: from the operating system's entropy. Anything else makes the guarantee void towards
        those who know it or see two results of it (`SeededNoiseWarning`), unless
        ``randomized=True``: then it is that of the training only.
    verbose : int, default=0
        Progress: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Word-topic counts of the last batch plus the prior that all earlier ones made; not
        normalized.
    n_iter_ : int
        Sweeps run.
    n_batches_ : int
        Batches of reports seen.
    bit_epsilon_ : float
        Pure epsilon of one bit: of one word more or less in a document.
    document_epsilon_ : float
        Pure epsilon (delta = 0) of a document.
    epsilon_, delta_ : float
        What one report of a document costs.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions; `print` it.
    one_probability_ : tuple of two floats
        Probability of a one in the report where the document has a zero, and where it has a one.
    n_features_in_ : int
        Size of the vocabulary.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`), and word (a bit) by `bit_epsilon_`. Relation: one
    document is replaced by any other; only its owner need be trusted. Sensitivity: the bits that
    differ, at most ``2 * max_doc_words``. Event: ``RandomizedResponse(flip_mixture)`` for each, in
    :class:`RandomizedResponse`; all else reads reports only. With ``randomized=True`` the clients'
    guarantee is carried over, and `privacy_.assumptions` says what it rests on.

    Batches hold different documents, so that all of them together cost a document what its one
    report costs. The corpus of `fit_prior` has no protection at all.

    Algorithm 2 of [1]_ contradicts the equations of its text. Here the mean of a batch is that of
    equation 21 (line 13 replaces it by the last estimate, without regard to the sizes of batches);
    the estimate of equation 19 is made before it is used (line 14 makes it after); and the mean
    starts from the numbers of public documents with each word, as reports count documents (line 3
    counts tokens). Means are clipped to the size of the batch.

    Without `fit_prior` the first batch has a flat prior and the unbiased estimate. ``epsilon=inf``
    has exact counts and no estimates: O-LDA [2]_ on the presence of words.

    See Also
    --------
    LPLDA : All reports at once.
    RandomizedResponse, MemoizedReports : The client's side.

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
    >>> reports = RandomizedResponse(epsilon=3.0, max_doc_words=10).fit(X).transform(X)  # clients
    >>> server = OLPLDA(3, epsilon=3.0, max_doc_words=10, randomized=True)
    >>> server = server.fit_prior(X[:50]).partial_fit(reports[50:200]).partial_fit(reports[200:])
    >>> round(server.bit_epsilon_, 2), server.n_batches_
    (3.0, 2)
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
        flip_mixture=None,
        max_doc_words=100,
        mechanism="symmetric",
        delta=1e-6,
        randomized=False,
        reconstruction="bits",
        correlation=0.5,
        prior_weight=0.4,
        prior_variance=None,
        batch_size=160,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        max_iter=50,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.epsilon = epsilon
        self.flip_mixture = flip_mixture
        self.max_doc_words = max_doc_words
        self.mechanism = mechanism
        self.delta = delta
        self.randomized = randomized
        self.reconstruction = reconstruction
        self.correlation = correlation
        self.prior_weight = prior_weight
        self.prior_variance = prior_variance
        self.batch_size = batch_size
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.max_iter = max_iter
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_prior(self, X_public: Any, y: Any = None) -> OLPLDA:
        """Begin with a public corpus: its topics and its words are the prior of the first batch.

        A later `fit` starts from it again.

        Parameters
        ----------
        X_public : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts, not reports. **Must be public**: they go into the model as they are.
        y : Ignored

        Returns
        -------
        self : object

        Notes
        -----
        **Privacy.** None for these documents. The fitted attributes state the guarantee that the
        batches will have.
        """
        self._check_weight()
        X = check_counts(self, X_public, reset=True)
        streams = Streams.from_random_state(self.random_state)
        n_docs, n_words = X.shape
        prior = np.full((n_words, int(self.n_components)), float(self.topic_word_prior))
        counts = topic_counts(
            X,
            prior,
            np.zeros(n_words),
            doc_topic_prior=self.doc_topic_prior,
            streams=streams,
            sweeps=rounds(self, 1, self.max_iter),
            first_round=1,
            from_prior=False,
        )
        n_docs_with = np.bincount(X.indices, minlength=n_words).astype(float)
        state = Online(prior, counts, n_docs_with, n_docs_with, n_docs, self.max_iter)
        # of the clients to come; only the number of columns is read
        client = client_of(self, sp.csr_array((1, n_words)))
        self._publish(client, state, n_batches=0, public=state)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> OLPLDA:
        """Train on batches of `batch_size` documents, in the order of the rows.

        Documents are randomized first, in one call. Starts from the public corpus, if `fit_prior`
        was given one.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; with ``randomized=True``, reports: zeros and ones.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If reports hold anything but zeros and ones, a parameter of the randomizer is out of its
            range, or `fit_prior` had another vocabulary or number of topics.
        BudgetError
            When the ledger has too little left; nothing has then been randomized.
        """
        return self._train(X, getattr(self, "_public", None), int(self.batch_size), goes_on=False)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> OLPLDA:
        """Learn from one batch: of documents, which are randomized first, or of reports.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts, or reports, of documents not seen before.
        y : Ignored

        Returns
        -------
        self : object

        Notes
        -----
        **Privacy.** `epsilon_` stays that of one report, for every document is in one batch only. A
        document that is reported in two batches costs twice as much, which `epsilon_` does not
        count. A ledger cannot tell documents apart, and is charged for each call.
        """
        return self._train(X, getattr(self, "_state", None), None, goes_on=hasattr(self, "_state"))

    def _train(
        self, X: Any, state: Online | None, batch_size: int | None, *, goes_on: bool
    ) -> OLPLDA:
        """Go on from a state; None starts anew. A batch_size of None is one batch."""
        self._check_weight()
        if goes_on:
            check_goes_on(self)
        elif state is not None and state.counts.shape[1] != self.n_components:
            raise ValueError(
                f"fit_prior had n_components={state.counts.shape[1]}, got {self.n_components}; "
                "call it again"
            )
        n_batches = self.n_batches_ if goes_on else 0
        client, reports = reports_of(
            self, X, reset=state is None, goes_on=n_batches > 0, call=n_batches
        )
        n_docs, n_words = reports.shape
        if state is None:
            empty, zeros = np.zeros((n_words, int(self.n_components))), np.zeros(n_words)
            state = Online(empty + float(self.topic_word_prior), empty, zeros, zeros, 0, 0)
        step = batch_size or n_docs
        batches = [reports[i : i + step] for i in range(0, n_docs, step)]
        streams = Streams.from_random_state(self.random_state)
        sweeps = rounds(self, state.n_iter + 1, state.n_iter + len(batches) * self.max_iter)
        for batch in batches:
            state = self._next(state, batch, client, streams, sweeps)
        for _ in sweeps:  # none is left: says that it is over
            pass
        self._publish(client, state, n_batches=n_batches + len(batches), goes_on=goes_on)
        return self

    def _next(self, before, reports, client, streams, sweeps) -> Online:
        """One batch: lines 6 to 16 of Algorithm 2, in the order of the text of the paper."""
        n_docs, n_words = reports.shape
        ones = np.bincount(reports.indices, minlength=n_words)
        estimate = estimate_counts(ones, n_docs, client.one_probability_)
        mean = estimate
        if before.n_docs:
            mean = 0.5 * (before.mean + before.estimate) * (n_docs / before.n_docs)
            mean = np.minimum(mean, n_docs)
            weight = self.prior_weight
            if client.one_probability_ == (0.0, 1.0):
                weight = 0.0  # nothing has to be estimated
            elif weight is None:
                weight = weight_of_prior(
                    estimate, n_docs, client.one_probability_, float(self.prior_variance)
                )
            estimate = weight * mean + (1.0 - weight) * estimate
        documents, background = reconstruct(
            reports,
            estimate,
            client.one_probability_,
            by_bits=self.reconstruction == "bits",
            streams=streams,
            round=before.n_iter + 1,
        )
        prior = before.word_prior + float(self.correlation) * before.counts
        counts = topic_counts(
            documents,
            prior,
            background,
            doc_topic_prior=self.doc_topic_prior,
            streams=streams,
            sweeps=itertools.islice(sweeps, self.max_iter),
            first_round=before.n_iter + 1,
            from_prior=before.n_docs > 0,
        )
        n_iter = before.n_iter + int(self.max_iter)
        return Online(prior, counts, mean, estimate, n_docs, n_iter)

    def _check_weight(self) -> None:
        if (self.prior_weight is None) == (self.prior_variance is None):
            given = "neither" if self.prior_weight is None else "both"
            raise ValueError(
                f"OLPLDA needs exactly one of prior_weight or prior_variance, got {given}; set "
                "the other to None"
            )

    def _publish(
        self,
        client: RandomizedResponse,
        state: Online,
        *,
        n_batches: int,
        goes_on: bool = False,
        public: Online | None = None,
    ) -> None:
        public = public or getattr(self, "_public", None)
        assumptions = () if public is None else (PUBLIC_PRIOR,)
        publish(
            self,
            **guarantee_of(self, client, goes_on=goes_on, assumptions=assumptions),
            components_=(state.word_prior + state.counts).T,
            n_iter_=state.n_iter,
            n_batches_=n_batches,
            _state=state,
            _public=public,
        )
