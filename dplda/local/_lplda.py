"""LP-LDA: a topic model of documents that were randomized before they left their owners."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplda.local._local_lda import LocalLDA, State


class LPLDA(LocalLDA):
    """Local differential privacy: collapsed Gibbs sampling on randomized reports of documents.

    LP-LDA [1]_. The owner of a document reports which words it contains, with some bits wrong
    (:class:`RandomizedResponse`). The server estimates the number of false ones, and trains on the
    reports. No server is trusted with a document.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon, bit_epsilon, flip_mixture, delta, max_doc_words, mechanism : optional
        The randomizer of the clients, as in :class:`RandomizedResponse`. Give exactly one of the
        first three. After `fit`, ``epsilon_ <= epsilon``; ``inf`` trains on the presence of words
        as it is, without privacy.
    randomized : bool, default=False
        Whether the rows of `X` are reports that clients made with the six parameters above. If so,
        the estimator randomizes nothing and spends no privacy.
    reconstruction : {"background", "bits"}, default="background"
        Treatment of false ones. "bits" is the method of the paper: bits of random documents are
        cleared or set until each word is in as many documents as estimated. It clears true and
        false ones alike. "background" keeps all bits and samples one more topic, whose rates are
        the expected false ones of each word. That topic takes the words that do not fit the topics
        of their document. Its perplexity was lower at each measured `bit_epsilon` up to 3.
    max_iter : int, default=100
        Number of sweeps over the reports.
    doc_topic_prior, topic_word_prior : optional
        As in :class:`GibbsLDA`.
    ledger : Ledger, str, path-like or None, default=None
        Ledger that :class:`RandomizedResponse` charges with the reports of each call, under its own
        name. Not used with ``randomized=True``.
    n_jobs, random_state, verbose : optional
        As in :class:`GibbsLDA`. A seed also draws the reports, and voids the guarantee against
        anyone who knows it or sees two results of it (`SeededNoiseWarning`); with
        ``randomized=True`` it seeds the training only, and the guarantee holds.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Number of reported words in each topic, plus `topic_word_prior`; not normalized.
    n_iter_ : int
        Number of sweeps of all calls.
    epsilon_, delta_ : float
        Guarantee of one report of a document, as in :class:`RandomizedResponse`, like
        `bit_epsilon_`, `word_epsilon_`, `document_epsilon_` and `one_probability_`. `privacy_`
        states it in full.

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

    # a call is one batch, whose estimate reads no earlier ones
    prior_weight, prior_variance = 0.0, None

    def __init__(
        self, n_components=10, *, epsilon=None, bit_epsilon=None, flip_mixture=None, delta=1e-6,
        max_doc_words=100, mechanism="symmetric", randomized=False, reconstruction="background",
        max_iter=100, doc_topic_prior=0.1, topic_word_prior=0.01, ledger=None, n_jobs=None,
        random_state=None, verbose=0,
    ):  # fmt: skip
        super().__init__(
            n_components=n_components, epsilon=epsilon, bit_epsilon=bit_epsilon, delta=delta,
            flip_mixture=flip_mixture, max_doc_words=max_doc_words, mechanism=mechanism,
            randomized=randomized, reconstruction=reconstruction, max_iter=max_iter, ledger=ledger,
            doc_topic_prior=doc_topic_prior, topic_word_prior=topic_word_prior, n_jobs=n_jobs,
            random_state=random_state, verbose=verbose,
        )  # fmt: skip

    def _left_by(self, state: State) -> tuple[np.ndarray, Any]:
        return np.full(state.counts.shape, float(self.topic_word_prior)), state.counts

    @property
    def _n_earlier(self) -> int:
        return getattr(self, "n_iter_", 0)
