"""The public side of a document-level fit: the state between rounds.

Everything here is a function of released values and of public constants. It is
post-processing and has no privacy cost.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from dplda.core._fold_in import exp_dirichlet_expectation, slices
from dplda.core._signal import with_signal
from dplda.document._document_budget import CLIP, NORM, DocumentBudget, Round
from dplda.document._public_words import PublicWords
from dplda.document._table_estimate import (
    PIECE,
    TableEstimate,
    WordTotals,
    add_up,
    temper,
    topic_sizes,
)
from dplda.kernels import _denoise
from dplda.leaf._threads import n_threads
from dplda.privacy._mechanisms import NOISE_VARIANCE
from dplda.privacy._streams import Purpose, Streams, uniform

# Points of the share of the gap that a change gives, at epsilon 1 / 4: docs/results.md.
TEMPERED = 0.7  # of the rounds, in which the power grows; 1: -1 / -1
# mean word total over the noise of a cell, for topics in all rounds; 0: -5 / 0
CLEAR = 7.0
MORE_PRECISE = 1.5  # 18% less noise; 1.2: 0 / 0
# rounds after which what is expected of the words is computed again; 8: -1 / 0
RENEWED = 4


def nearly_equal(draws: np.ndarray) -> np.ndarray:
    """Log-normal perturbations of about a tenth, as in online variational Bayes."""
    return np.exp(0.1 * ndtri(draws))


class Earlier(NamedTuple):
    """What earlier fits to other documents add to a fit: their summed releases.

    They are public.
    """

    average: np.ndarray  # sum of their averages, (n_words, n_components)
    # standard deviation of its noise in a cell of each word, (n_words,)
    scale: np.ndarray
    totals: WordTotals  # sum of their word totals
    # estimated word totals of the documents of this fit alone, (n_words,)
    today: np.ndarray
    noise: float  # root mean square of `scale`, times the word weights of this fit


@dataclass
class NoisyTable:
    """The word-topic table as estimated from past releases; public."""

    weight: np.ndarray  # word weights, (n_words,)
    table: np.ndarray  # estimate, prior included, (n_words, n_components), float32
    # of the first table and those of the rounds, never clipped; the same shape
    average: np.ndarray
    estimate: TableEstimate  # denoiser of the table, with the prior that it has learned
    released: WordTotals | None = None  # the releases of word totals
    variance: float = 0.0  # of the noise of a cell of `average`, times its word weight
    # The same average of the row sums of the noisy integers, (n_words,), which are
    # noise alone, each times the standard deviation of a cell's noise in tokens.
    row_noise: Any = 0.0
    n_rounds: int = 0  # so far
    # of the rounds, which release word totals again, in [0, 1)
    share_for_totals: float = 0.0
    # releases of fits to other documents, which are added
    earlier: Earlier | None = None

    @classmethod
    def from_totals(
        cls,
        released: WordTotals,
        weight: np.ndarray,
        n_components: int,
        streams: Streams,
        public: PublicWords | None = None,
        alike: bool = False,
        n_jobs: int | None = None,
    ) -> NoisyTable:
        """The table before round 1: word totals, divided among random topics.

        Perturbations are exponential, or those of `nearly_equal` if topics begin
        `alike`. Shares of public topics take their place.
        """
        totals = released.smooth() if public is None else public.totals(released)
        average = np.empty((len(totals), n_components))
        reader = streams.reader(Purpose.INITIAL_TABLE, 0)
        for piece in slices(len(totals), max(1, PIECE // n_components)):
            words = reader.words(average[piece].size)
            draws = uniform(words, positive=True).reshape(-1, n_components)
            ratios = nearly_equal(draws) if alike else -np.log(draws)
            np.multiply(totals[piece, None], ratios, out=average[piece])
        average /= average.sum(axis=0)
        average *= totals.sum() / n_components
        if public is not None and public.shares is not None:
            average[public.known] = (totals[:, None] * public.shares)[public.known]
        estimate = TableEstimate(totals, public, released, n_jobs=n_jobs)
        return cls(weight, average.astype(np.float32), average, estimate, released)

    def copied(self, exact: bool, n_jobs: int | None) -> NoisyTable:
        """A copy for the next rounds: an interrupted call changes no model."""
        table = (ExactTable if exact else NoisyTable)(**vars(copy.deepcopy(self)))
        table.estimate.n_jobs = n_jobs
        return table

    def schedule(self, budget: DocumentBudget, n_rounds: int) -> list[Round]:
        """The next `n_rounds` rounds.

        Rounds after the last one of the budget equal the last. `share_for_totals` of
        the rounds release word totals, spread evenly, but never the first one: an
        average could be left without any counts. The tempering power grows from the
        first of `powers` to the second in the first 0.7 of the rounds, so that early
        noise in a word's row does not reinforce itself.
        """
        steps, max_iter, (low, high) = [], len(budget.rounds), self.powers
        share = 0.0 if budget.exact else self.share_for_totals
        n_last = max_iter - int(max_iter * share)
        for t in range(self.n_rounds + 1, self.n_rounds + n_rounds + 1):
            n = t - int(t * share)  # rounds of topics so far
            for_totals = n == t - 1 - int((t - 1) * share)
            power = low + (high - low) * min(
                1.0, (t - 1) / max(1.0, TEMPERED * max_iter)
            )
            steps.append(
                Round(
                    t,
                    len(budget.totals) + t,
                    budget.rounds[min(t, max_iter) - 1],
                    budget.subsampling_ratio,
                    NORM if for_totals else CLIP * NORM,
                    power,
                    n,
                    n_last,
                    for_totals,
                )
            )
        return steps

    # ---- what a round asks; `ExactTable` has other answers ---------------------------

    is_centered = True
    # of tempering, in the first and in the last rounds; 1, 1: +0.5 / -2
    powers = 0.3, 1.0

    def word_probabilities(self, out: np.ndarray) -> np.ndarray:
        """p(word | topic), (n_words, padded) float32, in `out`."""
        inverse = (1 / topic_sizes(self.table, self.estimate.n_jobs)).astype(np.float32)
        _denoise.shares(self.table, inverse, out, n_threads(self.estimate.n_jobs))
        return out

    def infer(
        self,
        documents: Any,
        units: np.ndarray,
        power: float,
        out: np.ndarray,
        anew: bool,
        priors: tuple[float, float],
    ) -> np.ndarray:
        """Infer the private topic weights of `units`, `anew` or from the last ones.

        `priors` are those of topics in documents and of words in topics. Returns what
        is public: the tempered factor of each word, (n_words, padded) float32. The
        factor is p(word | topic), and no exp(E[log beta]): the table is a posterior
        mean already, and the digamma function would count the uncertainty of rare words
        twice.
        """
        phi = self.word_probabilities(out)
        documents.infer(units, phi, priors[0], anew=anew)
        return temper(phi, power, self.estimate.n_jobs)

    def center(self, out: np.ndarray) -> np.ndarray:
        """Center of the contributions: p(topic | word), (n_words, padded) float32.

        It is written to `out`.
        """
        _denoise.shares(self.table, None, out, n_threads(self.estimate.n_jobs))
        return out

    # ---- what a round changes --------------------------------------------------------

    def update(
        self,
        noisy: np.ndarray,
        step: Round,
        *,
        unit: float,
        share: float,
        topic_word_prior: float,
    ) -> None:
        """Learn from a round's noisy sum (n_words, n_components).

        It holds integers of `unit` tokens.

        The sum makes up `share` of the new average. Contributions are centered and sum
        to zero over topics: the mean of a word's row is noise only, and what they were
        centered at is added again.
        """
        self._read_totals()
        totals = self.estimate.totals if self.earlier is None else self.earlier.today
        noise_scale = step.mechanism.scale * unit  # of a cell, in tokens
        variance = (1 - share) ** 2 * self.variance + share**2 * noise_scale**2
        row_noise = (1 - share) * self.row_noise + share * noise_scale * noisy.sum(
            axis=1
        )
        added = (
            noisy,
            self.table,
            1 - share,
            share * unit / self.weight,
            share * totals,
            self.is_centered,
            self.average,
            n_threads(self.estimate.n_jobs),
        )
        try:
            _denoise.learn(*added)
        finally:
            # an interrupt comes after the kernel, never within: the round has been
            # learned
            self.variance, self.row_noise = variance, row_noise
            self.n_rounds += 1
        self.table = self.estimate(
            *self.sums(),
            renew=self.n_rounds % RENEWED == 0 or self.n_rounds < RENEWED,
            least=topic_word_prior,
            out=self.table,
        )
        public = self.estimate.public
        if public is not None and public.is_hint:  # seed words hold their topics
            held, expected = public.known, self.estimate.expected
            assert expected is not None
            self.table[held] = (
                totals[held, None] * expected[held, : self.table.shape[1]]
            )

    def learn_totals(self, noisy: np.ndarray, noise_scale: np.ndarray) -> None:
        """Learn from one more release of word totals, (n_words,), and its noise.

        The noise has shape (n_words,).
        """
        assert self.released is not None
        self.released = self.released.and_release(noisy, noise_scale)
        self.n_rounds += 1

    def _read_totals(self) -> None:
        """Estimate the word totals for the rounds, which takes as long as a round.

        The totals of earlier releases serve until all releases are `MORE_PRECISE` than
        those.
        """
        released, read, public = self.released, self.estimate.read, self.estimate.public
        assert released is not None
        if read is released or (
            read and released.precision < MORE_PRECISE * read.precision
        ):
            return
        self.estimate.read = released
        if self.earlier is not None:
            self.earlier = self.earlier._replace(today=released.smooth())
            released = released.and_documents(self.earlier.totals)
        self.estimate.totals = (
            released.smooth() if public is None else public.totals(released)
        )

    def add_earlier(self, other: NoisyTable) -> None:
        """Add the releases of a fit to other documents, and begin with its topics.

        The documents of this fit are divided among topics as those of the other were.
        """
        totals, today = other.released, self.totals
        assert totals is not None
        if other.earlier is not None:
            totals = totals.and_documents(other.earlier.totals)
        average, scale = other.sums()
        noise = math.sqrt(float(((scale * self.weight) ** 2).mean()))
        self.earlier = Earlier(average, scale, totals, today, noise)
        self.estimate = TableEstimate(
            today, self.estimate.public, n_jobs=self.estimate.n_jobs
        )
        self.table = other.table.copy()
        self.average = today[:, None] * (
            self.table / self.table.sum(axis=1, keepdims=True)
        )

    # ---- what is known ---------------------------------------------------------------

    @property
    def totals(self) -> np.ndarray:
        """Estimated word totals (n_words,), of all releases."""
        if self.estimate.read is self.released:
            return self.estimate.totals
        # the next round goes on as if nobody had looked
        estimate = replace(
            self.estimate, public=copy.copy(self.estimate.public), read=None
        )
        replace(self, estimate=estimate)._read_totals()
        return estimate.totals

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Average and noise of a cell of each word, earlier releases included."""
        scale = np.sqrt(self.variance) / self.weight
        if self.earlier is None:
            return self.average, scale
        return self.average + self.earlier.average, np.hypot(scale, self.earlier.scale)

    def finish(self, topic_word_prior: float) -> dict[str, Any]:
        """Fitted attributes: final table, its noise and signal, evidence of topics.

        With noise, the cells of a word add up to the word's total, which is better
        known than they are (docs/decisions.md, record 13).
        """
        totals, (noisy, scale) = self.totals, self.sums()
        n_components, noise = noisy.shape[1], math.sqrt(self.variance)
        # of `row_noise`, by one curator
        of_one = math.sqrt(n_components * NOISE_VARIANCE) * noise
        # the next round goes on with its own
        estimate = replace(self.estimate, totals=totals)
        table = estimate(noisy, scale, last=True).astype(float)
        if scale.any():
            add_up(table, totals, estimate.slopes(noisy, scale), estimate.n_jobs)
        assert self.released is not None
        n_docs = self.released.n_docs
        if self.earlier is not None:
            n_docs += self.earlier.totals.n_docs
            noise = math.hypot(noise, self.earlier.noise)
        # Words of a document as if each occurred once: scaled to a norm, n have n**0.5
        # norms.
        counts = totals * self.weight
        doc_words = float(counts.sum()) / max(n_docs, 1.0)
        if self.is_centered:  # exact ones are not scaled
            doc_words = (doc_words / NORM) ** 2
        # The mean of a word's row is noise alone, and does not enter the average.
        std = scale * np.sqrt(1 - 1 / n_components)
        signal = float(counts.mean()) / n_components
        return {
            **with_signal(table.T + topic_word_prior, std, doc_words),
            "signal_to_noise_": signal / noise if noise else math.inf,
            "row_noise_": (self.row_noise / of_one).astype(np.float32)
            if of_one
            else None,
        }


class ExactTable(NoisyTable):
    """The word-topic table of a fit without noise and privacy: what it does otherwise.

    Tempering begins higher, and ends below 1: rare words keep several topics.
    """

    is_centered = False
    powers = 0.6, 0.95

    def infer(
        self,
        documents: Any,
        units: np.ndarray,
        power: float,
        out: np.ndarray,
        anew: bool,
        priors: tuple[float, float],
    ) -> np.ndarray:
        """Infer `anew` as online variational Bayes, or else as collapsed inference.

        The former reads exp(E[log beta]) of the Dirichlet posterior. In the latter, a
        document's own counts are left out, for which topic sizes and the smallest count
        of a cell are needed.
        """
        if anew:
            factor = exp_dirichlet_expectation(
                self.table, np.float32, self.estimate.n_jobs
            )
            documents.infer_fully(units, factor, priors[0])
            return factor
        phi = self.word_probabilities(out)
        own = topic_sizes(self.table, self.estimate.n_jobs), priors[1]
        documents.infer(units, phi, priors[0], own=own)
        return temper(phi, power, self.estimate.n_jobs)

    def center(self, out: np.ndarray) -> np.ndarray:
        """Zero: centering gains nothing.

        Later documents may have words without a total.
        """
        out[:] = 0
        return out
