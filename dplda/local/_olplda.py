"""OLP-LDA: a topic model that learns from one batch of randomized reports after another."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from dplda.core._corpus import check_counts
from dplda.leaf._compat import Interval, _fit_context
from dplda.leaf._messages import rounds
from dplda.local._lplda import LPLDA, State, topic_counts
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy import Guarantee
from dplda.privacy._streams import Streams


class OLPLDA(LPLDA):
    """Local differential privacy, online: Gibbs sampling on batches of randomized reports.

    OLP-LDA [1]_. Each batch starts where the previous one ended. Its topics are the prior of the
    next batch, and its word counts reduce the noise of the next estimates. A public corpus can
    precede the first batch (`fit_prior`).

    Parameters
    ----------
    n_components
    epsilon, bit_epsilon, delta, max_doc_words : optional
        The randomizer of the clients, as in :class:`RandomizedResponse`; see :class:`LPLDA`.
    randomized
    reconstruction : {"background", "bits"}, default="bits"
        Treatment of false ones, as in :class:`LPLDA`. The perplexity of "background" was lower
        after `fit_prior`. Without `fit_prior`, it was higher at a `bit_epsilon` of about 1.
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
    doc_topic_prior, topic_word_prior, ledger, n_jobs, random_state, verbose : optional
        As in :class:`LPLDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Word-topic counts of the last batch plus the prior from all earlier ones; not normalized.
    n_iter_
    n_batches_ : int
        Number of batches of reports.
    topic_evidence_
    weak_topics_
    epsilon_, delta_, bit_epsilon_, word_epsilon_, document_epsilon_, one_probability_
        Guarantee of one report of a document, as in :class:`RandomizedResponse`.
    privacy_

    See Also
    --------
    LPLDA : Trains on all reports at once.
    RandomizedResponse : The client's side.
    MemoizedReports : The client's side, with one report for each document.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation, trust, sensitivity, mechanism and events
    are those of :class:`LPLDA`. Batches hold different documents, so all of them together cost a
    document the epsilon of its single report. The corpus of `fit_prior` is not protected.

    Algorithm 2 of [1]_ contradicts the equations of its text in three lines; the text is
    implemented (``docs/proofs_local.md``). Means are clipped to the size of the batch. Without
    `fit_prior` the first batch has a flat prior and the unbiased estimate. ``epsilon=inf`` has
    exact counts and estimates nothing: O-LDA [2]_ on the presence of words.

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

    _parameter_constraints = {
        **LPLDA._parameter_constraints,
        "correlation": [Interval(Real, 0, 1, closed="both")],
        "prior_weight": [None, Interval(Real, 0, 1, closed="both")],
        "prior_variance": [None, Interval(Real, 0, 1e18, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self, n_components=10, *, epsilon=None, bit_epsilon=None, delta=1e-6, max_doc_words=100,
        randomized=False, reconstruction="bits", correlation=0.5, prior_weight=0.4,
        prior_variance=None, batch_size=160, max_iter=50, doc_topic_prior=0.1,
        topic_word_prior=0.01, ledger=None, n_jobs=None, random_state=None, verbose=0,
    ):  # fmt: skip
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_prior(self, X_public: Any, y: Any = None) -> OLPLDA:
        """Start with a public corpus: its topics and word counts are the prior of the first batch.

        A later `fit` starts from this corpus again.

        Parameters
        ----------
        X_public : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts, not reports. **They must be public**: the model holds them without noise.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            A model of the public corpus.

        Notes
        -----
        **Privacy.** These documents are not protected. The fitted attributes state the guarantee
        of the batches that follow.
        """
        self._check_parameters()
        X = check_counts(self, X_public, reset=True)  # public
        n_docs, n_words = X.shape
        prior = np.full((n_words, int(self.n_components)), float(self.topic_word_prior))
        counts = topic_counts(
            X, prior, np.zeros(n_words), doc_topic_prior=self.doc_topic_prior_,
            streams=Streams.from_random_state(self.random_state),
            sweeps=rounds(self, 1, self.max_iter), first_round=1, from_prior=False,
        )  # fmt: skip
        n_docs_with = np.bincount(X.indices, minlength=n_words).astype(float)
        state = State(
            prior, counts, n_docs_with, n_docs_with, n_docs, int(self.max_iter), 0,
            np.zeros(counts.shape[1]),
        )  # fmt: skip
        self._publish(self._client(n_words, None), state, None, _public=state)
        return self

    def _left_by(self, state: State) -> tuple[np.ndarray, Any]:
        return state.prior + float(self.correlation) * state.counts, 0  # equation 10

    def _n_earlier(self, state: State | None) -> int:
        return 0 if state is None else state.n_batches

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if (self.prior_weight is None) == (self.prior_variance is None):
            given = "neither" if self.prior_weight is None else "both"
            raise ValueError(
                f"OLPLDA needs exactly one of prior_weight or prior_variance, got {given}; set "
                "the other to None"
            )

    def _publish(
        self, client: RandomizedResponse, state: State, earlier: Guarantee | None, **attributes: Any
    ) -> None:
        public = {"_public": getattr(self, "_public", None)} | attributes
        super()._publish(client, state, earlier, n_batches_=state.n_batches, **public)
