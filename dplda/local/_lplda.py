"""LP-LDA: a topic model of documents that were randomized before they left their owners."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplda.core._base import BaseLDA
from dplda.core._private_fit import exactly_one, publish
from dplda.leaf._compat import _fit_context
from dplda.leaf._progress import rounds
from dplda.local._estimates import estimate_counts
from dplda.local._randomized_response import BUDGETS
from dplda.local._server import (
    LOCAL_CONSTRAINTS,
    check_n_components,
    collect_reports,
    reconstruct,
    server_guarantee,
    topic_counts,
)
from dplda.privacy._streams import Streams


class LPLDA(BaseLDA):
    """Local differential privacy: collapsed Gibbs sampling on randomized reports of documents.

    LP-LDA [1]_. The owner of a document reports which words it contains, with some bits wrong
    (:class:`RandomizedResponse`). The server estimates the number of false ones, and trains on the
    reports. No server is trusted with a document.

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
    reconstruction : {"background", "bits"}, default="background"
        Treatment of false ones. "bits" is the method of the paper: bits of random documents are
        cleared or set until each word is in as many documents as estimated. It clears true and
        false ones alike. "background" keeps all bits and samples one more topic, whose rates are
        the expected false ones of each word. That topic takes the words that do not fit the topics
        of their document. Its perplexity was lower at
        each measured `bit_epsilon` up to 3.
    max_iter : int, default=100
        Number of sweeps over the reports.
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
        Number of reported words in each topic, plus `topic_word_prior`; not normalized.
    n_iter_ : int
        Number of sweeps of all calls.
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
    OLPLDA : Trains in batches, with a public corpus as prior.
    RandomizedResponse : The client's side.
    SubLDA : Needs a trusted server, and far less noise.

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

    Reports state which words are present, not how often. The estimated counts refer to the
    documents after the cap of `max_doc_words`.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training with Differential Privacy", IEEE TIFS 2020; section V.

    Examples
    --------
    >>> from dplda import LPLDA, RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> client = RandomizedResponse(epsilon=40.0, max_doc_words=10).fit(X)
    >>> reports = client.transform(X)
    >>> server = LPLDA(3, epsilon=40.0, max_doc_words=10, randomized=True).fit(reports)
    >>> round(server.epsilon_, 2), round(server.bit_epsilon_, 2)
    (40.0, 2.0)
    """

    _attack = "report"
    _parameter_constraints = {**BaseLDA._parameter_constraints, **LOCAL_CONSTRAINTS}

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
        reconstruction="background",
        max_iter=100,
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
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
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
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            The fitted model.

        Raises
        ------
        ValueError
            If reports hold other numbers than zeros and ones, or if the budget or another
            parameter of the randomizer is out of range.
        BudgetError
            If the budget of the ledger is too small. No document has been randomized then.

        Warns
        -----
        SeededNoiseWarning
            If `random_state` is given and documents are randomized.
        """
        return self._train(X, None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> LPLDA:
        """Continue with further documents: `max_iter` sweeps over them, on top of earlier counts.

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
        **Privacy.** Each document appears in exactly one call, so `epsilon_` remains the cost of a
        single report and never exceeds `epsilon`. A document that is reported in two calls costs
        twice as much, which `epsilon_` does not count. A ledger cannot tell documents apart, and
        each call charges it.
        """
        return self._train(X, getattr(self, "_counts", None))

    def _train(self, X: Any, counts: np.ndarray | None) -> LPLDA:
        """Train on top of the word-topic counts of earlier calls; None starts from scratch."""
        exactly_one(type(self).__name__, **{name: getattr(self, name) for name in BUDGETS})
        earlier, n_earlier = None, 0
        if counts is not None:
            check_n_components(counts.shape[1], self.n_components, origin="fit")
            earlier, n_earlier = self.privacy_, self.n_iter_  # public
        expected = None if counts is None else len(counts)
        client, reports = collect_reports(
            self, X, earlier=earlier, n_earlier=n_earlier, expected=expected
        )  # public: everything below reads reports

        # the server's own randomness: the guarantee does not depend on it
        streams = Streams.from_random_state(self.random_state)
        n_docs, n_words = reports.shape
        n_reported = np.bincount(reports.indices, minlength=n_words)  # public
        estimate = estimate_counts(n_reported, n_docs, client.one_probability_)  # public
        documents, background = reconstruct(  # public
            reports,
            estimate,
            client.one_probability_,
            by_bits=self.reconstruction == "bits",
            streams=streams,
            round_number=n_earlier + 1,
        )
        beta = float(self.topic_word_prior)
        if counts is None:
            counts = np.zeros((n_words, int(self.n_components)), np.int64)
        counts = counts + topic_counts(  # public
            documents,
            counts + beta,
            background,
            doc_topic_prior=self.doc_topic_prior_,
            streams=streams,
            sweeps=rounds(self, n_earlier + 1, n_earlier + self.max_iter),
            first_round=n_earlier + 1,
            from_prior=earlier is not None,
        )
        publish(
            self,
            server_guarantee(client.privacy_, earlier, randomized=self.randomized),
            components_=counts.T + beta,
            n_iter_=n_earlier + self.max_iter,
            bit_epsilon_=client.bit_epsilon_,
            word_epsilon_=client.word_epsilon_,
            document_epsilon_=client.document_epsilon_,
            one_probability_=client.one_probability_,
            _counts=counts,
        )
        return self
