"""The public side of a document-level fit: the state between rounds.

Everything here is a function of released values and of public constants. It is post-processing and
has no privacy cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplda.core._fold_in import pad
from dplda.document._first_table import examining_table, exponential, first_table
from dplda.document._prior import PublicPrior, estimate_totals
from dplda.document._table_estimate import TableEstimate, add_up
from dplda.document._table_passes import topic_sizes
from dplda.document._word_totals import WordTotals
from dplda.kernels import _denoise
from dplda.leaf._threads import n_threads
from dplda.privacy._streams import Streams


@dataclass
class NoisyTable:
    """The word-topic table as estimated from past releases; public.

    Attributes
    ----------
    totals : ndarray of shape (n_words,)
        Estimated word totals, of all releases but those that are `unread_totals`.
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
    n_rounds : int
        Number of rounds so far.
    n_jobs : int or None
        Number of threads. It never changes a result.
    public : PublicPrior or None
        The public table that is the prior of `estimate`.
    released_totals : WordTotals or None
        The releases that `totals` is estimated from.
    share_for_totals : float
        Share of the rounds that release word totals again, in [0, 1).
    n_examining : int
        Number of first rounds that examine the public topics, and enter no average.
    unread_totals : bool
        Whether `released_totals` has releases that `totals` and `public` know nothing of.
    """

    totals: np.ndarray
    weight: np.ndarray
    table: np.ndarray
    average: np.ndarray
    estimate: TableEstimate
    norms: tuple[float, ...]
    variance: float = 0.0
    n_rounds: int = 0
    n_jobs: int | None = None
    public: PublicPrior | None = None
    released_totals: WordTotals | None = None
    share_for_totals: float = 0.0
    n_examining: int = 0
    unread_totals: bool = False

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
        estimate = TableEstimate(totals, public)
        return cls(
            totals, weight, average.astype(np.float32), average, estimate, norms, public=public,
            n_examining=n_examining,
        )  # fmt: skip

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
        self._read_totals()
        assert self.public is not None
        self.public.examine(self.average, self.totals, self._cell_scale())
        self.average = first_table(self.totals, self.average.shape[1], streams, self.public, ratios)
        self.table, self.variance = self.average.astype(np.float32), 0.0
        self.estimate = TableEstimate(self.totals, self.public)

    def begins_anew(self, t: int) -> bool:
        """Whether the rounds before round t examined the public topics, and nobody has looked."""
        if not 0 < self.n_examining < t:
            return False
        assert self.public is not None
        return math.isinf(self.public.slope_error)

    def word_probabilities(self, out: np.ndarray | None = None) -> np.ndarray:
        """p(word | topic), (n_words, padded) float32; in `out` if given."""
        sizes = topic_sizes(self.table, self.n_jobs)
        return self._shares((1 / sizes).astype(np.float32), out)

    def center(self, *, exact: bool, out: np.ndarray | None = None) -> np.ndarray:
        """The center of the contributions: p(topic | word), (n_words, padded) float32.

        Without noise (`exact`) contributions are not centered: centering gains nothing, and later
        documents may have words that are missing from the totals. The center is then 0.
        """
        if exact:
            return padded_zeros(self.table.shape) if out is None else out
        return self._shares(None, out)

    def update(
        self,
        noisy: np.ndarray,
        *,
        unit: float,
        noise_scale: float,
        norm: float,
        share: float,
        topic_word_prior: float,
        exact: bool,
    ) -> None:
        """Learn from a round's noisy sum (n_words, n_components), integers of `unit` tokens.

        The sum makes up `share` of the new average. `noise_scale` is the standard deviation of the
        noise of a cell in tokens, and `norm` is the clipping bound of the round. With noise,
        contributions are centered and sum to zero over topics: the mean of a word's row is noise
        only, and what they were centered at is added again.
        """
        self._read_totals()
        added, of_table = share * unit / self.weight, share * self.totals
        _denoise.learn(
            noisy, self.table, 1 - share, added, of_table, not exact, self.average,
            n_threads(self.n_jobs),
        )  # fmt: skip
        self.n_rounds += 1
        self.norms += (norm,)
        self.variance = (1 - share) ** 2 * self.variance + share**2 * noise_scale**2
        if self.n_rounds <= self.n_examining:
            return  # the next round reads the same table
        self.table = self.estimate(
            self.average, self._cell_scale(), least=topic_word_prior, out=self.table,
            n_jobs=self.n_jobs,
        )  # fmt: skip

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

    def place(self, t: int, max_iter: int) -> tuple[int, int]:
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
        self.unread_totals = True
        self.n_rounds += 1
        self.norms += (norm,)

    def _read_totals(self) -> None:
        """Estimate the totals from all releases, if there are new ones.

        Most rounds may release totals, and an estimate takes longer than such a round. It waits for
        a table that is made of it.
        """
        if not self.unread_totals:
            return
        assert self.released_totals is not None
        self.totals = self.estimate.totals = estimate_totals(self.released_totals, self.public)
        self.unread_totals = False

    def finish(self, topic_word_prior: float) -> np.ndarray:
        """The final table (n_components, n_words), estimated from scratch.

        With noise, the cells of a word add up to the word's total, which is better known than they
        are.
        """
        self._read_totals()
        scale, noisy = self._cell_scale(), self.average
        table = self.estimate(noisy, scale, last=True, n_jobs=self.n_jobs).astype(float)
        if scale.any():
            slopes = self.estimate.slopes(noisy, scale, self.n_jobs)
            add_up(table, self.totals, slopes, self.n_jobs)
        return table.T + topic_word_prior

    def signal_to_noise(self) -> float:
        """Mean count in a cell over the noise of a cell, both times word weights."""
        self._read_totals()
        signal = float((self.totals * self.weight).mean()) / self.average.shape[1]
        return signal / math.sqrt(self.variance) if self.variance else math.inf

    def components_std(self) -> np.ndarray:
        """Standard deviation of the noise of the rounds in a cell of each word, (n_words,).

        Subtracting the mean of a word's row removes 1 / n_components of its variance.
        """
        return self._cell_scale() * np.sqrt(1 - 1 / self.average.shape[1])

    def _cell_scale(self) -> np.ndarray:
        return np.sqrt(self.variance) / self.weight

    def _shares(self, factor: np.ndarray | None, out: np.ndarray | None) -> np.ndarray:
        """The rows of the table, padded: times `factor` (n_components,), or over their sums."""
        shares = padded_zeros(self.table.shape) if out is None else out
        _denoise.shares(self.table, factor, shares, n_threads(self.n_jobs))
        return shares


def padded_zeros(shape: tuple[int, ...]) -> np.ndarray:
    return pad(np.broadcast_to(np.float32(0), shape))
