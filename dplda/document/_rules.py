"""What a fit does in its releases and rounds, and what it does better without noise.

`Rules` are those of a fit with noise. `ExactRules` are those of a fit without noise and
without privacy. A fit chooses one of them once, and asks it.
"""

from __future__ import annotations

import math

import numpy as np

from dplda.core._fold_in import exp_dirichlet_expectation, in_16_bits
from dplda.core._signal import KEPT_OUT
from dplda.document._document_budget import NORM, Round
from dplda.document._noisy_table import NoisyTable
from dplda.document._private_side import PrivateSide, RoundInference, RoundTables
from dplda.document._table_estimate import (
    temper,
    topic_shares,
    topic_sizes,
    word_probabilities,
)
from dplda.document._topic_test import BLOCKS
from dplda.document._word_totals import WordTotals


class Rules:
    """What a fit with noise does.

    Parameters
    ----------
    begins_anew : bool, default=False
        Whether documents infer their topic weights from equal ones in each round.
    doc_topic_prior, topic_word_prior : float
        Priors of topics in documents and of words in topics.
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    """

    # Contributions are differences to what past releases predict, of units that are
    # scaled to one norm.
    is_centered = True
    # powers of tempering, in the first and in the last rounds; 1, 1: +0.5 / -2
    powers = 0.3, 1.0
    most_for_totals = 1.0  # of the rounds, at most, release word totals again

    def __init__(
        self,
        *,
        begins_anew: bool = False,
        doc_topic_prior: float = 0.1,
        topic_word_prior: float = 0.01,
        n_jobs: int | None = None,
    ) -> None:
        self.begins_anew = begins_anew
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.n_jobs = n_jobs

    # ---- what the private side is asked ----------------------------------------------

    def rescale(self, documents: PrivateSide, weight: np.ndarray) -> None:
        """Scale units to one norm."""
        documents.rescale(weight, NORM)

    def bound(self, documents: PrivateSide, norm: float) -> float:
        """The clipping bound of a release, in L2: a public constant."""
        return norm

    def keeps_out(self, documents: PrivateSide) -> bool:
        """Whether some units do not train, and test the topics at the end."""
        return False

    def that_train(self, units: np.ndarray, documents: PrivateSide) -> np.ndarray:
        """Those of the `units` that train: all of them."""
        return units

    def rest(self, radius: int, share: int) -> int:
        """What is left of a radius beside cells of length `share`."""
        return math.isqrt(radius**2 - share**2)

    def tables(
        self, table: NoisyTable, this_round: Round, norm: float, scratch: np.ndarray
    ) -> RoundTables:
        """What units are told in a round; public. `scratch` (n_words, padded) is used.

        They read p(word | topic), and no exp(E[log beta]): the table is a posterior
        mean already, and the digamma function would count the uncertainty of rare words
        twice.
        """
        n_jobs = self.n_jobs
        sizes = topic_sizes(table.table, n_jobs)
        phi = word_probabilities(table.table, sizes, scratch, n_jobs)
        factor = in_16_bits(temper(phi, this_round.power, n_jobs), n_jobs)
        center = self.center(table, scratch)
        inference = RoundInference(
            word_probabilities(table.table, sizes, scratch, n_jobs),
            self.doc_topic_prior,
            self.begins_anew,
            self.own(sizes),
        )
        radius = this_round.mechanism.radius
        return RoundTables(inference, factor, center, table.weight, norm, radius)

    def center(self, table: NoisyTable, scratch: np.ndarray) -> np.ndarray:
        """Center of the contributions: p(topic | word), in 16 bits."""
        shares = topic_shares(table.table, scratch, self.n_jobs)
        return in_16_bits(shares, self.n_jobs, size=0)

    def own(self, sizes: np.ndarray) -> tuple[np.ndarray, float] | None:
        """What a document needs to leave out what it has added itself; None: nothing.

        Its contribution is clipped: its share of the table is unknown.
        """
        return None

    # ---- what the public side learns -------------------------------------------------

    def word_weights(self, first: WordTotals) -> np.ndarray:
        """Word weights (n_words,) from the first release of word totals.

        The noise of a word grows with the fourth root of its frequency. Contributions
        are multiplied by the weights before the clip, and releases are divided by them.
        """
        smooth = first.smooth()
        shares = np.maximum(smooth / smooth.mean(), 1e-3)
        return np.minimum(4.0, shares**-0.25)

    def doc_length(self, n_tokens: float) -> float:
        """Number of different words in a document, from its mean number of tokens.

        It is scaled: n different words have NORM sqrt(n) tokens. A document that
        repeats words counts as a shorter one.
        """
        return (n_tokens / NORM) ** 2

    def n_norms(self, n_docs: float, n_users: float) -> float:
        """Documents of users, as `WordTotals` counts them: a user's share one norm."""
        return math.sqrt(n_docs * n_users)


class ExactRules(Rules):
    """What a fit without noise and privacy does better.

    Units count as they are: they are not scaled, weighted or clipped. Tempering begins
    higher, and ends below 1: rare words keep several topics. Inference is that of
    online variational Bayes if it begins anew, and collapsed inference otherwise.
    """

    is_centered = False  # which gains nothing: later documents may have other words
    powers = 0.6, 0.95
    most_for_totals = 0.0

    def rescale(self, documents: PrivateSide, weight: np.ndarray) -> None:
        """Nothing."""

    def bound(self, documents: PrivateSide, norm: float) -> float:
        """One that no unit reaches, a power of two; without privacy."""
        return float(2.0 ** np.frexp(1 + documents.longest())[1])

    def keeps_out(self, documents: PrivateSide) -> bool:
        """If each block has two units at least."""
        return documents.n_units >= 2 * BLOCKS * KEPT_OUT

    def that_train(self, units: np.ndarray, documents: PrivateSide) -> np.ndarray:
        """All but every tenth one."""
        if not self.keeps_out(documents):
            return units
        return units[units % KEPT_OUT != KEPT_OUT - 1]

    def rest(self, radius: int, share: int) -> int:
        return radius

    def tables(
        self, table: NoisyTable, this_round: Round, norm: float, scratch: np.ndarray
    ) -> RoundTables:
        """Those of online variational Bayes, if inference begins anew."""
        if not self.begins_anew:
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

    def own(self, sizes: np.ndarray) -> tuple[np.ndarray, float] | None:
        return sizes, self.topic_word_prior

    def word_weights(self, first: WordTotals) -> np.ndarray:
        return np.ones(len(first.noisy))

    def doc_length(self, n_tokens: float) -> float:
        return n_tokens

    def n_norms(self, n_docs: float, n_users: float) -> float:
        return n_docs
