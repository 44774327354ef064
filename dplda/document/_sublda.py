"""SUB-LDA: topic models of Poisson-sampled documents, with document-level privacy."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real

import numpy as np

from dplda.core._private_estimator import Interval
from dplda.document._document_budget import Round
from dplda.document._document_lda import DocumentLDA
from dplda.document._noisy_table import NoisyTable
from dplda.document._private_side import PrivateSide
from dplda.document._rules import ExactRules
from dplda.document._training import Training
from dplda.gibbs._gibbslda import LIVE_START, live_counts


class SubLDATraining(Training):
    """A call of `fit` or `partial_fit` of `SubLDA`."""

    def rates(
        self, documents: PrivateSide, table: NoisyTable, highest: float
    ) -> np.ndarray:
        """Each unit's probability of joining a round, (n_units,); private.

        It is at most `highest`, and grows with the share of frequent words in the
        unit's documents. The frequent words of a topic are the fewest that make up the
        share 1 / `boost` of it in the released table.
        """
        model = self.model
        if model.boost == 1:
            return super().rates(documents, table, highest)
        share = documents.share_of(frequent_words(table.table, 1 / model.boost))
        return np.clip(highest * share, min(model.subsampling_ratio, highest), highest)

    def share(self, this_round: Round) -> float:
        """Weight of round n in proportion to n squared, constant after the last.

        Equal weights lose 9 and 14 points of the gap at epsilon 1 and 4. Without noise
        and sampling, only the latest round counts.
        """
        if this_round.mechanism.scale == 0 and this_round.rate == 1:
            return 1.0
        n = min(this_round.n_in_average, this_round.n_in_last_average)
        sum_of_squares = n * (n + 1) * (2 * n + 1) // 6
        return n**2 / (sum_of_squares + (this_round.n_in_average - n) * n**2)

    def exact_start(
        self, documents: PrivateSide, rules: ExactRules, table: NoisyTable
    ) -> NoisyTable:
        """With many topics, the counts of a live Gibbs sweep; else `table`.

        Many random topics are all near the word frequencies. In rounds that start from
        them, each document would keep a few topics of its own.
        """
        n_components = int(self.model.n_components)
        beta = rules.topic_word_prior
        if n_components < LIVE_START or self.model.prior_components is not None:
            return table
        counts = beta + live_counts(
            documents.matrices(),
            documents.n_words,
            n_components,
            self.streams,
            doc_topic_prior=rules.doc_topic_prior,
            topic_word_prior=beta,
        )  # without privacy
        return replace(table, average=counts, table=counts.astype(np.float32))


class SubLDA(DocumentLDA):
    """Latent Dirichlet allocation with document-level differential privacy.

    This is the sound form of SUB-LDA [1]_. In each round, every document takes part
    with probability `subsampling_ratio`, secretly and independently. Its word-topic
    counts are clipped and summed, and every cell of the sum gets noise. You may publish
    the fitted model. With `user_ids` in `fit`, all documents of a user are protected
    together.

    Parameters
    ----------
    n_components
    epsilon
    noise_multiplier
    delta
    subsampling_ratio : float, default=1.0
        Probability, from 1e-8 to 1, with which a document takes part in a round (gamma
        in [1]_). With small values, a round takes less time, and a fit needs more
        rounds.
    boost : float, default=1.0
        Sound form of adaptive subsampling (v in [1]_), at least 1. Documents with many
        frequent words take part up to `boost` times as often, and their weight is
        divided by the same factor. With 1, all documents take part at the same rate.
        The highest rate is charged.
    max_iter : int or None, default=None
        Number of rounds. None is 80 / highest rate of a document, at most 400.
    doc_topic_prior
    topic_word_prior
    prior_components
    word_vectors
    expected_n_docs
    ledger
    n_jobs
    random_state
    verbose

    Attributes
    ----------
    components_
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
    PrivateSVILDA : The same guarantee by stochastic variational inference.
    HDPLDA : Protects single words.
    GibbsLDA : No privacy.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`), or user if `fit` gets `user_ids`.
    Relation: one document, or one user with all documents, is added, removed, or
    becomes empty. Sensitivity: the clipping bound of the round, in L2, checked in
    integers. A contribution reads the documents of one unit, their private state and
    past releases only. A user's contribution is the sum over the user's documents,
    clipped once. Mechanism: discrete Gaussian noise on a secret Poisson sample. Events:
    ``PoissonSampled(min(1, subsampling_ratio * boost), Gaussian(m_t))`` for each round
    t, and two ``Gaussian`` for word totals. ``docs/proofs_document.md`` has the
    statistics and the proof.

    **Without noise.** With ``epsilon=inf``, a document infers its topic weights from
    the counts of the other documents, as in collapsed inference. With 256 topics or
    more, a fit starts from one Gibbs sweep over all documents, in one thread. With long
    documents, a random start would end at a higher held-out perplexity.

    The algorithm as published is not private (``docs/papers.md``).

    References
    ----------
    .. [1] T. Huang, H. Chen, "Improving Privacy Guarantee and Efficiency of Latent
       Dirichlet Allocation Model Training Under Differential Privacy", Findings of
       EMNLP 2021.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=4.0, delta=1e-5, max_iter=20).fit(X)
    >>> round(model.epsilon_, 2)
    4.0
    """

    _trains = SubLDATraining
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
        doc_topic_prior=None,
        topic_word_prior=0.01,
        prior_components=None,
        word_vectors=None,
        expected_n_docs=None,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())


def frequent_words(table: np.ndarray, frequent_mass: float) -> np.ndarray:
    """Mask of the fewest words that make up `frequent_mass` of any topic, (n_words,).

    `table` (n_words, n_components) has the released word-topic counts.
    """
    order = np.argsort(-table, axis=0, kind="stable")
    ordered = np.take_along_axis(table, order, axis=0)
    cumulative = np.cumsum(ordered, axis=0) / table.sum(axis=0)
    before = np.vstack([np.zeros(table.shape[1]), cumulative[:-1]])
    mask = np.zeros(len(table), bool)
    mask[order[before < frequent_mass]] = True
    return mask
