"""What differs between a fit with noise and a fit without.

A fit with noise follows `Rules`. A fit without noise, which has no privacy, follows
`ExactRules`. `Training` takes one of them. Apart from that, it asks whether there is
noise only before its first table, which may start from the documents without noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplda.core._fold_in import (
    DOC_TOPIC_PRIOR,
    OwnCounts,
    exp_dirichlet_expectation,
    in_16_bits,
)
from dplda.core._signal import KEPT_OUT
from dplda.document._document_budget import NORM, Round
from dplda.document._noisy_table import NoisyTable
from dplda.document._private_side import (
    INNER_STEPS,
    STEPS_ANEW,
    PrivateSide,
    RoundInference,
    RoundTables,
)
from dplda.document._table_estimate import (
    temper,
    topic_shares,
    topic_sizes,
    word_probabilities,
)
from dplda.document._word_totals import ExactTotals, WordTotals

# Noisy topics are alike, so that the words of a document say less of its topics than
# its priors do if these are many: they sum to at most this. 10, which is 0.1 with 100
# topics: -0.08 nats of new words on glosses at epsilon 4, with vectors
# (benchmarks/components.py).
MOST_PRIOR = 2.0
# Different words of a document, on average, below which noisy topics need a larger
# prior than 0.1 (docs/decisions.md, record 29).
FEW_WORDS = 10.0


def default_prior(n_components: int, has_noise: bool) -> float:
    """Default `doc_topic_prior` of the rounds, and of documents with many words."""
    if not has_noise:
        return DOC_TOPIC_PRIOR
    return min(DOC_TOPIC_PRIOR, MOST_PRIOR / n_components)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of a fit with noise.

    Parameters
    ----------
    infers_anew : bool, default=False
        Whether each round infers topic weights from equal weights.
    doc_topic_prior, topic_word_prior : float
        Dirichlet parameters of topics in documents and of words in topics.
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    """

    # Whether contributions are differences from what past releases predict.
    is_centered = True
    word_totals = WordTotals  # what releases of word totals are
    # Tempering powers of p(word | topic) in the first and the last round. 1 and 1:
    # +0.5 / -2 points of the share of the gap, at epsilon 1 / 4 (docs/results.md).
    powers = 0.3, 1.0
    # Largest share of the rounds that release word totals: at least one is for topics.
    most_for_totals = math.nextafter(1.0, 0.0)
    # Whether every tenth unit only tests the topics, at the end of the fit. Never with
    # noise: a unit's place depends on other units.
    keeps_out = False

    infers_anew: bool = False
    doc_topic_prior: float = DOC_TOPIC_PRIOR
    topic_word_prior: float = 0.01
    n_jobs: int | None = None

    # ---- releases --------------------------------------------------------------------

    def rescale(self, documents: PrivateSide, weight: np.ndarray) -> None:
        """Scale the word counts of all units to the same L2 norm."""
        documents.rescale(weight, NORM)

    def bound(self, norm: float) -> float:
        """The clipping bound of a release, in L2; `norm` is a public constant."""
        return norm

    def that_train(self, units: np.ndarray) -> np.ndarray:
        """The members of `units` that train: all."""
        return units

    def rest(self, radius: int, share: int) -> int:
        """Radius that is left for other cells beside cells of L2 norm `share`."""
        return math.isqrt(radius**2 - share**2)

    def tables(
        self, table: NoisyTable, this_round: Round, norm: float, scratch: np.ndarray
    ) -> RoundTables:
        """The tables of a round; public. Overwrites `scratch` (n_words, padded).

        Inference reads p(word | topic), not exp(E[log beta]): the table is a posterior
        mean already, and the digamma function would count the uncertainty of rare words
        twice.
        """
        n_jobs = self.n_jobs
        # `scratch` holds three tables, one after the other: the last one stays in it
        sizes = topic_sizes(table.table, n_jobs)
        phi = word_probabilities(table.table, sizes, scratch, n_jobs)
        factor = in_16_bits(temper(phi, this_round.power, n_jobs), n_jobs)
        center = self.center(table, scratch)
        inference = RoundInference(
            word_probabilities(table.table, sizes, scratch, n_jobs),
            self.doc_topic_prior,
            self.infers_anew,
            STEPS_ANEW if self.infers_anew else INNER_STEPS,
            self.own_counts(sizes),
        )
        radius = this_round.mechanism.radius
        return RoundTables(inference, factor, center, table.weight, norm, radius)

    def center(self, table: NoisyTable, scratch: np.ndarray) -> np.ndarray:
        """Center of the contributions: p(topic | word), by `in_16_bits`."""
        shares = topic_shares(table.table, scratch, self.n_jobs)
        return in_16_bits(shares, self.n_jobs, size=0)

    def own_counts(self, sizes: np.ndarray) -> OwnCounts | None:
        """How a document leaves its own counts out of the table (`RoundInference`).

        None with noise: contributions are clipped, so that a document does not know its
        part of the table.
        """
        return None

    # ---- what is learned from releases -----------------------------------------------

    def word_weights(self, first: WordTotals) -> np.ndarray:
        """Word weights (n_words,) from the first release of word totals.

        Contributions are multiplied by the weights before the clip, and releases are
        divided by them. The noise scale of a word thus grows with the fourth root of
        its frequency.
        """
        smooth = first.smooth()
        shares = np.maximum(smooth / smooth.mean(), 1e-3)
        return np.minimum(4.0, shares**-0.25)

    def doc_length(self, n_tokens: float) -> float:
        """Number of different words in a document, from the mean number of tokens.

        Documents are scaled to NORM: n different words have NORM sqrt(n) tokens. A
        document that repeats words counts as shorter.
        """
        return (n_tokens / NORM) ** 2

    def n_norms(self, n_docs: float, n_users: float) -> float:
        """Number of documents by their norms, where a user's documents share one."""
        return math.sqrt(n_docs * n_users)


@dataclass(frozen=True, kw_only=True)
class ExactRules(Rules):
    """The rules of a fit without noise and without privacy.

    Units are not scaled, weighted or clipped. Tempering begins at a higher power and
    ends below 1, so that rare words keep several topics. If each round infers anew, it
    runs the E-step of online variational Bayes. Otherwise it runs collapsed inference.

    Parameters
    ----------
    longest : float, default=0.0
        L2 norm of the word counts of the longest unit.
    keeps_out : bool, default=False
        Whether every tenth unit only tests the topics, at the end of the fit.
    """

    is_centered = False
    word_totals = ExactTotals
    powers = 0.6, 0.95
    most_for_totals = 0.0  # though earlier calls, with noise, may have planned some

    longest: float = 0.0
    keeps_out: bool = False

    def rescale(self, documents: PrivateSide, weight: np.ndarray) -> None:
        """Leave the scale of all units at 1."""

    def bound(self, norm: float) -> float:
        """A power of two that no unit reaches; not private."""
        return float(2.0 ** np.frexp(1 + self.longest)[1])

    def that_train(self, units: np.ndarray) -> np.ndarray:
        """The members of `units` that train: all, or all but every tenth."""
        if not self.keeps_out:
            return units
        return units[units % KEPT_OUT != KEPT_OUT - 1]

    def rest(self, radius: int, share: int) -> int:
        return radius

    def tables(
        self, table: NoisyTable, this_round: Round, norm: float, scratch: np.ndarray
    ) -> RoundTables:
        """The tables of a round of online variational Bayes, or of `Rules`."""
        if not self.infers_anew:
            return super().tables(table, this_round, norm, scratch)
        expected = exp_dirichlet_expectation(table.table, np.float32, self.n_jobs)
        return RoundTables(
            RoundInference(expected, self.doc_topic_prior, anew=True, by_e_step=True),
            in_16_bits(expected, self.n_jobs),
            self.center(table, scratch),
            table.weight,
            norm,
            this_round.mechanism.radius,
        )

    def center(self, table: NoisyTable, scratch: np.ndarray) -> np.ndarray:
        scratch[:] = 0
        return in_16_bits(scratch, self.n_jobs, size=0)

    def own_counts(self, sizes: np.ndarray) -> OwnCounts | None:
        return OwnCounts.of_sizes(sizes, self.topic_word_prior)

    def word_weights(self, first: WordTotals) -> np.ndarray:
        return np.ones(len(first.noisy))

    def doc_length(self, n_tokens: float) -> float:
        return n_tokens

    def n_norms(self, n_docs: float, n_users: float) -> float:
        return n_docs
