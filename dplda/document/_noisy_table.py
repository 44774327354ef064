"""The public side of a document-level fit: the state between rounds.

Everything here is a function of released values and of public constants. It is post-processing and
has no privacy cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from dplda.core._fold_in import pad
from dplda.document._document_budget import document_schedule, growing_share
from dplda.document._prior import PublicPrior, estimate_totals
from dplda.document._table_estimate import TableEstimate, add_up, pieces_of, topic_sizes
from dplda.document._word_totals import WordTotals
from dplda.kernels import _denoise
from dplda.leaf._threads import n_threads
from dplda.privacy._streams import Purpose, Streams, uniform


def exponential(draws: np.ndarray) -> np.ndarray:
    """Exponential perturbations: topics that differ much from each other."""
    return -np.log(draws)


def nearly_equal(draws: np.ndarray) -> np.ndarray:
    """Log-normal perturbations of about a tenth, as in online variational Bayes."""
    return np.exp(0.1 * ndtri(draws))


@dataclass(frozen=True)
class Earlier:
    """What earlier fits to other documents add to a fit: their releases, summed; public.

    Attributes
    ----------
    average : ndarray of shape (n_words, n_components)
        Sum of their averages.
    scale : ndarray of shape (n_words,)
        Standard deviation of its noise in a cell of each word.
    totals : WordTotals
        Sum of their word totals.
    today : ndarray of shape (n_words,)
        Estimated word totals of the documents of this fit alone.
    """

    average: np.ndarray
    scale: np.ndarray
    totals: WordTotals
    today: np.ndarray


@dataclass
class NoisyTable:
    """The word-topic table as estimated from past releases; public.

    Attributes
    ----------
    weight : ndarray of shape (n_words,)
        Word weights.
    table : ndarray of shape (n_words, n_components), float32
        Estimated word-topic table, prior included.
    average : ndarray of shape (n_words, n_components)
        Weighted average of the first table and of the noisy tables of the rounds, never clipped.
    estimate : TableEstimate
        Denoiser of the table, with the prior that it has learned.
    norms : tuple of float
        Clipping bound of each release so far.
    variance : float
        Variance of the noise of `average`, in each cell multiplied by its word weight.
    released_totals : WordTotals or None
        The releases that `totals` is estimated from.
    share_for_totals : float
        Share of the rounds that release word totals again, in [0, 1).
    n_examining : int
        Number of first rounds that examine the public topics, and enter no average.
    earlier : Earlier or None
        Releases of fits to other documents, which are added.
    """

    weight: np.ndarray
    table: np.ndarray
    average: np.ndarray
    estimate: TableEstimate
    norms: tuple[float, ...]
    variance: float = 0.0
    released_totals: WordTotals | None = None
    share_for_totals: float = 0.0
    n_examining: int = 0
    earlier: Earlier | None = None

    @classmethod
    def from_totals(
        cls,
        totals: np.ndarray,
        weight: np.ndarray,
        n_components: int,
        streams: Streams,
        *,
        norms: tuple[float, ...],
        public: PublicPrior | None = None,
        ratios: Callable[[np.ndarray], np.ndarray] = exponential,
        n_examining: int = 0,
        first: np.ndarray | None = None,
    ) -> NoisyTable:
        """The table of round 0: `first` if that is given.

        Otherwise see `first_table`; `examining_table` if rounds examine topics.
        """
        if first is not None:
            average = first
        elif n_examining:
            assert public is not None
            average = examining_table(totals, public)
        else:
            average = first_table(totals, n_components, streams, public, ratios)
        return cls(
            weight, average.astype(np.float32), average, TableEstimate(totals, public), norms,
            n_examining=n_examining,
        )  # fmt: skip

    def add_earlier(self, other: NoisyTable) -> None:
        """Add the releases of a fit to other documents, and begin with its topics.

        The documents of this fit are divided among topics as those of the other were.
        """
        assert other.released_totals is not None
        totals, today = other.released_totals, self.totals
        if other.earlier is not None:
            totals = totals.and_documents(other.earlier.totals)
        self.earlier = Earlier(*other.sums(), totals, today)
        self.estimate = TableEstimate(self._estimated_totals(), self.public, n_jobs=self.n_jobs)
        self.table = other.table.copy()
        self.average = today[:, None] * (self.table / self.table.sum(axis=1, keepdims=True))

    @property
    def n_jobs(self) -> int | None:
        """Number of threads. It never changes a result."""
        return self.estimate.n_jobs

    @property
    def public(self) -> PublicPrior | None:
        """The public table that is the prior of `estimate`."""
        return self.estimate.public

    @property
    def n_rounds(self) -> int:
        """Number of rounds so far. Two releases of word totals came before them."""
        return len(self.norms) - 2

    @property
    def totals(self) -> np.ndarray:
        """Estimated word totals (n_words,), of all releases.

        Most rounds may release totals, and an estimate takes longer than such a round. It waits for
        a table that is made of it.
        """
        if self.estimate.totals is None:
            self.estimate.totals = self._estimated_totals()
        return self.estimate.totals

    def _estimated_totals(self) -> np.ndarray:
        released, earlier = self.released_totals, self.earlier
        assert released is not None
        if earlier is not None:
            self.earlier = replace(earlier, today=released.smooth())
            released = released.and_documents(earlier.totals)
        return estimate_totals(released, self.public)

    def weights_of_round(self, t: int) -> np.ndarray:
        """Word weights of the contributions of round t; 0 for words that it says nothing about."""
        if t > self.n_examining:
            return self.weight
        assert self.public is not None
        return np.where(self.public.examined, self.weight, 0.0)

    def begin_after_examination(
        self, streams: Streams, ratios: Callable[[np.ndarray], np.ndarray] = exponential
    ) -> None:
        """Begin anew, with what the first rounds say of the public topics."""
        totals, public = self.totals, self.public
        assert public is not None
        public.examine(self.average, totals, self._cell_scale())
        self.average = first_table(totals, self.average.shape[1], streams, public, ratios)
        self.table, self.variance = self.average.astype(np.float32), 0.0
        self.estimate = TableEstimate(totals, public, n_jobs=self.n_jobs)

    def begins_anew(self, t: int) -> bool:
        """Whether the rounds before round t examined the public topics, and nobody has looked."""
        if not 0 < self.n_examining < t:
            return False
        assert self.public is not None
        return math.isinf(self.public.slope_error)

    # ---- what a round asks; `ExactTable` has other answers -----------------------------------

    def schedule(self, t: int, max_iter: int) -> tuple[float, float]:
        """Clipping bound and tempering power of round t, see `document_schedule`."""
        return document_schedule(*self._place(t, max_iter))

    def share(self, t: int, max_iter: int, subsampling_ratio: float) -> float:
        """Share of round t in the average: later rounds weigh more."""
        return growing_share(self.averaged_rounds(t), self.averaged_rounds(max_iter))

    def word_probabilities(self, out: np.ndarray | None = None) -> np.ndarray:
        """p(word | topic), (n_words, padded) float32; in `out` if given."""
        sizes = topic_sizes(self.table, self.n_jobs)
        return self._shares((1 / sizes).astype(np.float32), out)

    def others_counts(self, topic_word_prior: float) -> tuple[np.ndarray, float] | None:
        """What a document needs to leave its own counts out of the table; here it does not."""
        return None

    def expectation(
        self, t: int, max_iter: int, out: np.ndarray | None
    ) -> tuple[np.ndarray, float]:
        """exp(E[log beta]), (n_words, padded) float32, and its tempering power in round t.

        The table is a posterior mean already, and its logarithm replaces the expectation: the
        digamma function would count the uncertainty of rare words twice.
        """
        return self.word_probabilities(out), self.schedule(t, max_iter)[1]

    def infer(self, documents: Any, units: np.ndarray, factor: np.ndarray, prior: float) -> None:
        """Infer the private topic weights of `units` by variational steps."""
        documents.infer_in_steps(units, factor, prior)

    def center(self, out: np.ndarray | None = None) -> np.ndarray:
        """The center of the contributions: p(topic | word), (n_words, padded) float32."""
        return self._shares(None, out)

    is_centered = True

    def update(
        self,
        noisy: np.ndarray,
        *,
        unit: float,
        noise_scale: float,
        norm: float,
        share: float,
        topic_word_prior: float,
    ) -> None:
        """Learn from a round's noisy sum (n_words, n_components), integers of `unit` tokens.

        The sum makes up `share` of the new average. `noise_scale` is the standard deviation of the
        noise of a cell in tokens, and `norm` is the clipping bound of the round. Contributions are
        centered and sum to zero over topics: the mean of a word's row is noise only, and what they
        were centered at is added again.
        """
        totals = self.totals
        if self.earlier is not None:
            totals = self.earlier.today
        added, of_table = share * unit / self.weight, share * totals
        _denoise.learn(
            noisy, self.table, 1 - share, added, of_table, self.is_centered, self.average,
            n_threads(self.n_jobs),
        )  # fmt: skip
        self.norms += (norm,)
        self.variance = (1 - share) ** 2 * self.variance + share**2 * noise_scale**2
        if self.n_rounds <= self.n_examining:
            return  # the next round reads the same table
        self.table = self.estimate(*self.sums(), least=topic_word_prior, out=self.table)

    def is_for_totals(self, t: int) -> bool:
        """Whether round t releases word totals.

        Such rounds are spread evenly, after round 1, and anew after the first round that follows
        the examination: else an average could be left without any counts.
        """
        n = t - self._rounds_before(t)
        return self.topic_rounds(n) == self.topic_rounds(n - 1)

    def topic_rounds(self, t: int) -> int:
        """How many of t rounds release word-topic counts."""
        return t - int(t * self.share_for_totals)

    def averaged_rounds(self, t: int) -> int:
        """How many rounds the average holds after round t; those that examine have their own."""
        return self.topic_rounds(t - self._rounds_before(t))

    def _place(self, t: int, max_iter: int) -> tuple[int, int]:
        """Number of round t and of all rounds, in the schedule that begins anew after examining."""
        before = self._rounds_before(t)
        return t - before, max(1, max_iter - before)

    def _rounds_before(self, t: int) -> int:
        return self.n_examining if t > self.n_examining else 0

    def learn_totals(self, noisy: np.ndarray, noise_scale: np.ndarray, *, norm: float) -> None:
        """Learn from one more release of the word totals, (n_words,), of the clipping bound `norm`.

        `noise_scale` (n_words,) is the standard deviation of its noise.
        """
        assert self.released_totals is not None
        self.released_totals = self.released_totals.and_release(noisy, noise_scale)
        self.estimate.totals = None
        self.norms += (norm,)

    # ---- the result --------------------------------------------------------------------------

    def finish(self, topic_word_prior: float) -> np.ndarray:
        """The final table (n_components, n_words), estimated from scratch.

        With noise, the cells of a word add up to the word's total, which is better known than they
        are.
        """
        totals, (noisy, scale) = self.totals, self.sums()
        table = self.estimate(noisy, scale, last=True).astype(float)
        if scale.any():
            add_up(table, totals, self.estimate.slopes(noisy, scale), self.n_jobs)
        return table.T + topic_word_prior

    def signal_to_noise(self) -> float:
        """Mean count in a cell over the noise of a cell, both times word weights."""
        signal = float((self.totals * self.weight).mean()) / self.average.shape[1]
        noise = math.sqrt(self.variance)
        if self.earlier is not None:
            noise = math.hypot(noise, self.earlier_noise())
        return signal / noise if noise else math.inf

    def earlier_noise(self) -> float:
        """Noise of the earlier releases in a cell, times word weights: a root mean square."""
        assert self.earlier is not None
        return math.sqrt(float(((self.earlier.scale * self.weight) ** 2).mean()))

    def components_std(self) -> np.ndarray:
        """Standard deviation of the noise of the rounds in a cell of each word, (n_words,).

        Subtracting the mean of a word's row removes 1 / n_components of its variance.
        """
        return self.sums()[1] * np.sqrt(1 - 1 / self.average.shape[1])

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The average and the noise of a cell of each word, earlier releases included."""
        scale = self._cell_scale()
        if self.earlier is None:
            return self.average, scale
        return self.average + self.earlier.average, np.hypot(scale, self.earlier.scale)

    def _cell_scale(self) -> np.ndarray:
        return np.sqrt(self.variance) / self.weight

    def _shares(self, factor: np.ndarray | None, out: np.ndarray | None) -> np.ndarray:
        """The rows of the table, padded: times `factor` (n_components,), or over their sums."""
        shares = padded_zeros(self.table.shape) if out is None else out
        _denoise.shares(self.table, factor, shares, n_threads(self.n_jobs))
        return shares


def padded_zeros(shape: tuple[int, ...]) -> np.ndarray:
    return pad(np.broadcast_to(np.float32(0), shape))


def first_table(
    totals: np.ndarray,
    n_components: int,
    streams: Streams,
    public: PublicPrior | None = None,
    ratios: Callable[[np.ndarray], np.ndarray] = exponential,
) -> np.ndarray:
    """Word totals, divided among random topics, (n_words, n_components).

    As far as `public` is trusted, its shares take the place of random ones.

    `ratios` maps uniform random numbers to multiplicative perturbations of the word totals, one for
    each word and topic.
    """
    table = np.empty((len(totals), n_components))
    if public is not None:
        streams = Streams.from_random_state(0)  # a public one, which audits can repeat
    reader = streams.reader(Purpose.INITIAL_TABLE, 0)
    for first, last in pieces_of(table.shape):
        words = reader.words((last - first) * n_components)
        draws = ratios(uniform(words, positive=True)).reshape(-1, n_components)
        np.multiply(totals[first:last, None], draws, out=table[first:last])
    table /= table.sum(axis=0)
    table *= totals.sum() / n_components
    if public is not None:
        trust = public.trust_of_words()[:, None]
        table *= 1 - trust
        table += trust * totals[:, None] * public.shares
    return table


def examining_table(totals: np.ndarray, public: PublicPrior) -> np.ndarray:
    """Word totals, divided as public topics say, (n_words, n_components).

    Words that are examined say nothing: they have the same probability in each topic.
    """
    table = totals[:, None] * public.shares
    words = public.examined
    sizes = table[~words].sum(axis=0)
    table[words] = totals[words, None] * (sizes / sizes.sum())
    return table
