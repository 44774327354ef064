"""Private stochastic variational inference: LDA on secret minibatches of documents."""

from __future__ import annotations

from numbers import Real

from dplda.core._private_estimator import Interval
from dplda.document._document_budget import Round
from dplda.document._document_lda import DocumentLDA
from dplda.document._training import Training


class SVITraining(Training):
    """A call of `fit` or `partial_fit` of `PrivateSVILDA`."""

    infers_anew = True  # no round reads private state of earlier rounds
    begins_alike = True  # as in online variational Bayes

    def share(self, this_round: Round) -> float:
        """Learning rate of Robbins and Monro, with the offset 1 ([2]_).

        With the offset 10, perplexity is 1.2% to 18% higher with noise (KOS and BBC,
        epsilon 1 and 4), and changes by -0.5% to +0.7% without.
        """
        return (1 + this_round.n_in_average) ** -float(self.model.learning_decay)


class PrivateSVILDA(DocumentLDA):
    """Latent Dirichlet allocation by private stochastic variational inference.

    This is the sound form of Park et al. [1]_: online variational Bayes [2]_ on secret
    Poisson samples of the documents. The expected sufficient statistics of each
    document are clipped and summed. Every cell of the sum gets noise before the model
    learns from it. You may publish the fitted model. With `user_ids` in `fit`, all
    documents of a user are protected together.

    Parameters
    ----------
    n_components
    epsilon
    noise_multiplier
    delta
    subsampling_ratio : float, default=0.2
        Probability, from 1e-8 to 1, with which a document takes part in a round (nu in
        [1]_). The size of a minibatch is random and secret.
    max_iter : int or None, default=None
        Number of rounds, each with one minibatch (J in [1]_). The number of passes over
        the data is ``max_iter * subsampling_ratio``. None is 40 passes, but at least 80
        rounds and at most 400: 200 rounds at the default `subsampling_ratio`.
    doc_topic_prior
    topic_word_prior
    learning_decay : float, default=0.8
        Exponent of the learning rate, in (0.5, 1] (kappa): round t enters the average
        with the rate ``(1 + t) ** -learning_decay``, as with ``learning_offset=1`` in
        scikit-learn.
    prior_components
    word_vectors
    expected_n_docs
    ledger
    n_jobs
    random_state
    verbose

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Released parameters of the topics' Dirichlet distributions (lambda).
    doc_topic_prior_
    components_std_
    topic_evidence_
    weak_topics_
    signal_to_noise_
    prior_trust_
    row_noise_
    epsilon_
    delta_
    privacy_
    noise_multiplier_
    n_iter_
    n_features_in_

    See Also
    --------
    SubLDA : The same guarantee; documents keep their topic weights from round to round.
    GibbsLDA : No privacy.
    dplda.published.PublishedPrivateSVILDA : The algorithm of [1]_ as published.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`), or user if `fit` gets `user_ids`.
    Relation: one document, or one user with all documents, is added, removed, or
    becomes empty. Sensitivity: the clipping bound of the round, in L2, checked in
    integers. A contribution reads the documents of one unit and past releases only. A
    user's contribution is the sum over the user's documents, clipped once. Mechanism:
    discrete Gaussian noise on a secret Poisson sample. Events:
    ``PoissonSampled(subsampling_ratio, Gaussian(m_t))`` for each round t, and two
    ``Gaussian`` for word totals. No release is divided by the size of a minibatch or by
    the number of documents. ``docs/proofs_document.md`` has the proof.

    The noise of equations (3) to (6) of [1]_ is not used, because these equations prove
    no guarantee (``docs/papers.md``).

    References
    ----------
    .. [1] M. Park, J. Foulds, K. Chaudhuri, M. Welling, "Private Topic Modeling", NIPS
       workshop on private multi-party machine learning, 2016.
    .. [2] M. Hoffman, D. Blei, F. Bach, "Online learning for latent Dirichlet
       allocation", NIPS, 2010.

    Examples
    --------
    >>> from dplda import PrivateSVILDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> model = PrivateSVILDA(3, epsilon=4.0, delta=1e-5, max_iter=20).fit(X)
    >>> round(model.epsilon_, 2)
    4.0
    """

    _n_passes = 40  # default number of rounds in which a document takes part
    _trains = SVITraining
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
        doc_topic_prior=None,
        topic_word_prior=0.01,
        learning_decay=0.8,
        prior_components=None,
        word_vectors=None,
        expected_n_docs=None,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())
