"""LP-LDA: a topic model of documents that were randomized before they left their owners."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplda._base import BaseLDA
from dplda._compat import _fit_context
from dplda._private_fit import publish
from dplda._progress import rounds
from dplda.local._estimates import estimate_counts
from dplda.local._server import (
    LOCAL_CONSTRAINTS,
    check_goes_on,
    guarantee_of,
    reconstruct,
    reports_of,
    topic_counts,
)
from dplda.privacy._streams import Streams


class LPLDA(BaseLDA):
    """Local differential privacy: collapsed Gibbs sampling on randomized reports of documents.

    LP-LDA [1]_. Nobody needs to be trusted with a document: its owner reports which words are in
    it with some bits wrong (:class:`RandomizedResponse`), and the server estimates how many of the
    ones are false, and trains on what the reports say.

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
    reconstruction : {"background", "bits"}, default="background"
        What is done about false ones. "bits" is the paper's: bits of random documents are cleared,
        and others set, until each word is in as many documents as it probably was; a document's
        own words and false ones are cleared alike. "background" keeps all bits and samples one
        topic more, whose rates are the false ones to be expected of each word: a word that does
        not fit its document's topics goes there. It was better at each `epsilon` up to 3.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (alpha).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    max_iter : int, default=100
        Sweeps over the reports.
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
        Reported words counted in each topic, plus `topic_word_prior`; not normalized.
    n_iter_ : int
        Sweeps run.
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

    Reports tell which words are there, not how often. Counts are those of the documents after the
    cap of `max_doc_words`.

    See Also
    --------
    OLPLDA : In batches, with a public corpus as prior.
    RandomizedResponse : The client's side.
    SubLDA : Needs a trusted server, and far less noise.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training with Differential Privacy", IEEE TIFS 2020; section V.

    Examples
    --------
    >>> from dplda import LPLDA, RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> reports = RandomizedResponse(epsilon=3.0, max_doc_words=10).fit(X).transform(X)  # clients
    >>> server = LPLDA(3, epsilon=3.0, max_doc_words=10, randomized=True).fit(reports)
    >>> round(server.bit_epsilon_, 2), round(server.document_epsilon_, 2)
    (3.0, 60.0)
    """

    _attack = "report"
    _parameter_constraints = {**BaseLDA._parameter_constraints, **LOCAL_CONSTRAINTS}

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
        reconstruction="background",
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        max_iter=100,
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
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.max_iter = max_iter
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> LPLDA:
        """Train on documents, which are randomized first, or on reports.

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
            If reports hold anything but zeros and ones, or a parameter of the randomizer is out of
            its range.
        BudgetError
            When the ledger has too little left; nothing has then been randomized.
        """
        return self._train(X, goes_on=False)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> LPLDA:
        """Go on with further documents: `max_iter` sweeps over them, on top of the counts so far.

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
        **Privacy.** `epsilon_` stays that of one report, for every document is in one call only. A
        document that is reported in two calls costs twice as much, which `epsilon_` does not count.
        A ledger cannot tell documents apart, and is charged for each call.
        """
        return self._train(X, goes_on=hasattr(self, "_counts"))

    def _train(self, X: Any, *, goes_on: bool) -> LPLDA:
        if goes_on:
            check_goes_on(self)
        done = self.n_iter_ if goes_on else 0
        client, reports = reports_of(self, X, reset=not goes_on, goes_on=goes_on, call=done)
        streams = Streams.from_random_state(self.random_state)
        n_docs, n_words = reports.shape
        ones = np.bincount(reports.indices, minlength=n_words)
        estimate = estimate_counts(ones, n_docs, client.one_probability_)
        documents, background = reconstruct(
            reports,
            estimate,
            client.one_probability_,
            by_bits=self.reconstruction == "bits",
            streams=streams,
            round=done + 1,
        )
        counts = self._counts if goes_on else np.zeros((n_words, int(self.n_components)), np.int64)
        beta = float(self.topic_word_prior)
        counts = counts + topic_counts(
            documents,
            counts + beta,
            background,
            doc_topic_prior=self.doc_topic_prior,
            streams=streams,
            sweeps=rounds(self, done + 1, done + self.max_iter),
            first_round=done + 1,
            from_prior=goes_on,
        )
        publish(
            self,
            **guarantee_of(self, client, goes_on=goes_on),
            components_=counts.T + beta,
            n_iter_=done + self.max_iter,
            _counts=counts,
        )
        return self
