"""The public side of a document-level fit: what is learned from noisy sums.

`NoisyTable` holds the state between rounds. `TableEstimate` is an empirical-Bayes estimate of
word-topic tables. Everything here is a function of released values and of public constants. It is
post-processing and has no privacy cost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from dplda._fold_in import pad
from dplda._threads import in_threads, n_threads
from dplda.central._prior import PublicPrior, estimate_totals
from dplda.central._word_totals import WordTotals
from dplda.kernels import _denoise
from dplda.privacy._streams import Purpose, Streams, uniform

# A cell's count is its word's total times its topic's share times about one of these factors.
FACTORS = np.array([0, 0.03, 0.1, 0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7, 11, 18], np.float32)
# The first weights with public texts: both centers have a mean factor of 1, so that each has the
# weight of its texts where releases say nothing.
TILT = 0.2771  # of the weights of factors: exp(-TILT factor)
SPREAD = 0.15  # share of the weight of the public center that is spread so; 1 has the rest
ONE = 6  # place of the factor 1
N_CLASSES = 6
SAMPLE = 2**16  # cells of a class of words that its prior is learned from, about
FIRST_STEPS, NEXT_STEPS, LAST_STEPS = 8, 2, 30
STEP = 0.25  # of a cell's noise, to both sides, for the slope of its posterior mean
FLATTEST = 1e-6  # slope, below which a mean in single precision says nothing
PIECE = 2**14  # cells that a thread works on before it takes the next ones; enters results


def document_schedule(t: int, max_iter: int, *, exact: bool = False) -> tuple[float, float]:
    """Clipping bound and tempering power of round t = 1, 2, ...

    The clipping bound is a fraction of `contribution_norm`. It grows, because early contributions
    are small while responsibilities are flat. The power of the word factor grows to 1, so that
    early noise in a word's row does not reinforce itself. Without noise (`exact`) it starts higher.
    """
    late = min(1.0, (t - 1) / max(1.0, 0.6 * max_iter))
    done = min(1.0, (t - 1) / max(1.0, 0.7 * max_iter))
    first = 0.6 if exact else 0.3
    return 0.15 + 0.25 * late, first + (1 - first) * done


def round_schedule(t: int, max_iter: int) -> tuple[float, float]:
    """Relative budget (precision of the noise) and relative weight in the average of round t."""
    return min(t, max_iter) ** 0.75, min(t, max_iter) ** 2.0


def growing_share(t: int, max_iter: int) -> float:
    """Share of round t in the average of rounds 1 to t: later rounds weigh more."""
    n = min(t, max_iter)  # the weights are the squares of 1 to n, and then those of n
    return n**2 / (n * (n + 1) * (2 * n + 1) // 6 + (t - n) * n**2)


def exponential(draws: np.ndarray) -> np.ndarray:
    """Exponential perturbations: topics that differ much from each other."""
    return -np.log(draws)


def nearly_equal(draws: np.ndarray) -> np.ndarray:
    """Log-normal perturbations of about a tenth, as in online variational Bayes."""
    return np.exp(0.1 * ndtri(draws))


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


@dataclass(frozen=True)
class EarlierParts:
    """What the earlier parts of a stream add up to; public.

    Attributes
    ----------
    average : ndarray of shape (n_words, n_components)
        Sum of the averages of all parts.
    variance : float
        Variance of its noise, in each cell multiplied by its word weight.
    totals : WordTotals
        Sum of the word totals of all parts.
    n_rounds : int
        Number of rounds of all parts.
    """

    average: np.ndarray
    variance: float
    totals: WordTotals
    n_rounds: int


@dataclass
class NoisyTable:
    """The word-topic table as estimated from past releases; public.

    Attributes
    ----------
    totals : ndarray of shape (n_words,)
        Estimated word totals.
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
    earlier : EarlierParts or None
        The earlier parts of a stream, whose documents are others. Then `average`, `variance`,
        `norms`, `n_rounds` and `released_totals` are those of the last part, and the rest is of all
        parts.
    part_totals : ndarray of shape (n_words,) or None
        Estimated word totals of the last part of a stream.
    first_stream : int
        Number of the first noise stream of the last part.
    n_examining : int
        Number of first rounds that examine the public topics, and enter no average.
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
    earlier: EarlierParts | None = None
    part_totals: np.ndarray | None = None
    first_stream: int = 0
    n_examining: int = 0

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
        assert self.public is not None
        self.public.examine(self.average, self.totals, self._cell_scale())
        self.average = first_table(self.totals, self.average.shape[1], streams, self.public, ratios)
        self.table, self.variance = self.average.astype(np.float32), 0.0
        self.estimate = TableEstimate(self.totals, self.public)

    def begins_anew(self, t: int) -> bool:
        """Whether the rounds before round t examined the public topics, and nobody has looked yet.

        A resumed fit may hold a table that has begun anew, and no release since.
        """
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
        totals = self.totals if self.part_totals is None else self.part_totals
        added, of_table = share * unit / self.weight, share * totals

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
            self._sum_of_parts(), self._cell_scale(), least=topic_word_prior, out=self.table,
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
        self._learn_totals(self.released_totals.and_release(noisy, noise_scale))
        self.n_rounds += 1
        self.norms += (norm,)

    def _learn_totals(self, released: WordTotals) -> None:
        """Estimate the totals from all releases about the documents of the last part."""
        self.released_totals = released
        if self.earlier is not None:
            self.part_totals = released.smooth()
            released = released.and_documents(self.earlier.totals)
        self.totals = self.estimate.totals = estimate_totals(released, self.public)

    def before_next_part(self, n_streams: int) -> NoisyTable:
        """This table before the first release about a further part of a stream.

        `n_streams` is the number of noise streams that a part may use.
        """
        assert self.released_totals is not None
        totals = self.released_totals
        if self.earlier is not None:
            totals = totals.and_documents(self.earlier.totals)
        earlier = EarlierParts(self._sum_of_parts(), self._variance(), totals, self.n_rounds_in_all)
        return replace(
            self, earlier=earlier, average=np.zeros_like(self.average), variance=0.0, norms=(),
            n_rounds=0, first_stream=self.first_stream + n_streams, n_examining=0,
        )  # fmt: skip

    def begin_part(self, released: WordTotals, norms: tuple[float, ...]) -> None:
        """Begin with the word totals of a further part, divided among topics as in earlier ones."""
        self._learn_totals(released)
        assert self.part_totals is not None
        self.norms, self.estimate = norms, TableEstimate(self.totals, self.public)
        shares = self.table / self.table.sum(axis=1, dtype=float)[:, None]
        self.average = self.part_totals[:, None] * shares

    @property
    def n_rounds_in_all(self) -> int:
        """Number of rounds so far, of all parts of a stream."""
        return self.n_rounds + (0 if self.earlier is None else self.earlier.n_rounds)

    def finish(self, topic_word_prior: float) -> np.ndarray:
        """The final table (n_components, n_words), estimated from scratch.

        With noise, the cells of a word add up to the word's total, which is better known than they
        are.
        """
        scale, noisy = self._cell_scale(), self._sum_of_parts()
        table = self.estimate(noisy, scale, last=True, n_jobs=self.n_jobs).astype(float)
        if scale.any():
            slopes = self.estimate.slopes(noisy, scale, self.n_jobs)
            add_up(table, self.totals, slopes, self.n_jobs)
        return table.T + topic_word_prior

    def signal_to_noise(self) -> float:
        """Mean count in a cell over the noise of a cell, both times word weights."""
        signal = float((self.totals * self.weight).mean()) / self.average.shape[1]
        return signal / math.sqrt(self._variance()) if self._variance() else math.inf

    def components_std(self) -> np.ndarray:
        """Standard deviation of the noise of the rounds in a cell of each word, (n_words,).

        Subtracting the mean of a word's row removes 1 / n_components of its variance.
        """
        return self._cell_scale() * np.sqrt(1 - 1 / self.average.shape[1])

    def _cell_scale(self) -> np.ndarray:
        return np.sqrt(self._variance()) / self.weight

    def _sum_of_parts(self) -> np.ndarray:
        return self.average if self.earlier is None else self.average + self.earlier.average

    def _variance(self) -> float:
        """Variance of the noise of the sum of parts, in a cell multiplied by its word weight."""
        return self.variance + (0.0 if self.earlier is None else self.earlier.variance)

    def _shares(self, factor: np.ndarray | None, out: np.ndarray | None) -> np.ndarray:
        """The rows of the table, padded: times `factor` (n_components,), or over their sums."""
        shares = padded_zeros(self.table.shape) if out is None else out
        _denoise.shares(self.table, factor, shares, n_threads(self.n_jobs))
        return shares


def pieces_of(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """First and last word of each piece of a table."""
    size = max(1, PIECE // shape[1])
    return list(itertools.pairwise([*range(0, shape[0], size), shape[0]]))


def over_words(
    kernel: Callable[[int, int], Any], shape: tuple[int, ...], n_jobs: int | None
) -> list[Any]:
    """Call `kernel` on pieces of the words of a table, in threads; results in their order."""
    return in_threads(lambda piece: kernel(*piece), pieces_of(shape), n_jobs)


def topic_sizes(table: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """The sum of each topic (n_components,): of fixed pieces, and of these in their order."""

    return _denoise.topic_sums(table, n_threads(n_jobs)).sum(axis=0)


def add_up(
    table: np.ndarray, totals: np.ndarray, variance: np.ndarray, n_jobs: int | None = None
) -> None:
    """Make the cells of each word add up to its total, in place.

    The cells of a row change by a multiple of their variances, and none falls below 0. This is the
    nearest such row, in squares over the variances. A common factor would change large cells that
    are well known the most, and make topics alike.

    Parameters
    ----------
    table : ndarray of shape (n_words, n_components)
        Not negative.
    totals : ndarray of shape (n_words,)
        Positive. One that is smaller than rounding errors of its row counts as large as they are.
    variance : ndarray of shape (n_words, n_components)
        Variance of each cell, positive, up to a common factor of a row.
    """

    def move(first: int, last: int) -> None:
        cells, room = table[first:last], variance[first:last]
        total = np.maximum(totals[first:last], 1e-9 * cells.sum(axis=1, dtype=float))
        kept = np.ones(cells.shape, bool)
        while True:  # each step keeps fewer cells of some row, and at least one of each
            missing = total - np.where(kept, cells, 0).sum(axis=1)
            step = missing / np.where(kept, room, 0).sum(axis=1, dtype=float)
            moved = cells + step[:, None] * room
            negative = kept & (moved < 0)
            if not negative.any():
                break
            kept &= ~negative
        cells[:] = np.where(kept, moved, 0)

    over_words(move, table.shape, n_jobs)


def padded_zeros(shape: tuple[int, ...]) -> np.ndarray:
    return pad(np.broadcast_to(np.float32(0), shape))


def temper(factor: np.ndarray, power: float, n_jobs: int | None = None) -> np.ndarray:
    """Raise a float32 table to a power between 0 and 1, in place."""
    if power == 1:
        return factor
    _denoise.temper(factor, power, n_threads(n_jobs))
    return factor


Public = np.ndarray | None
Cells = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, Public, Public]


@dataclass
class TableEstimate:
    """Posterior mean of a noisy word-topic table, under a prior learned from the table.

    A cell is p_v N_k g plus noise. Here p_v is the word's share of all tokens, N_k is the topic's
    size, and g is normal around one of `FACTORS`, with a quarter of the factor as its standard
    deviation. The frequencies of the factors are learned by expectation-maximization in each of 6
    classes of word frequency, from a fixed part of a large class. Cells with strong noise shrink
    toward p_v N_k; cells with weak noise hardly change.

    Public pseudo-counts add a second center, U_v R_vk a_k, with the same factors: the word's total,
    its public share of the topic, and the root of the topic's size over the size that the public
    shares expect, within a factor of 2.

    Parameters
    ----------
    totals : ndarray of shape (n_words,)
        Word totals.
    public : PublicPrior or None
        The public shares, and how far they are trusted at first.
    """

    totals: np.ndarray
    public: PublicPrior | None = None
    prior: np.ndarray | None = None
    _classes: list[np.ndarray] = field(init=False, repr=False)
    _shares: np.ndarray | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._classes = word_classes(self.totals, self.public)
        if self.public is not None:
            self._shares = pad(self.public.shares)

    def __call__(
        self,
        noisy: np.ndarray,
        noise_scale: np.ndarray,
        *,
        last: bool = False,
        least: float = 0.0,
        out: np.ndarray | None = None,
        n_jobs: int | None = None,
    ) -> np.ndarray:
        """Estimate the table (n_words, n_components), float32, from its noisy form.

        `noise_scale` (n_words,) holds the standard deviation of a cell of each word. `least` is
        added to each cell. `last` starts from an even prior and takes more steps. Otherwise a few
        steps improve the prior of the previous round.
        """
        out = np.empty(noisy.shape, np.float32) if out is None else out
        if not noise_scale.any():
            np.maximum(noisy, 0.0, out=out, casting="same_kind")
            out += np.float32(least)
            return out
        cells = standard_cells(noisy, self.totals, noise_scale, self._shares, n_jobs)
        self.prior = self._improved_prior(cells, last, n_jobs)
        return self._means(cells, least, out, n_jobs)

    def slopes(
        self, noisy: np.ndarray, noise_scale: np.ndarray, n_jobs: int | None = None
    ) -> np.ndarray:
        """The slope of each posterior mean in its noisy cell, positive, (n_words, n_components).

        Times the variance of the noise, it is the posterior variance of the cell. The result is
        that times a factor of the word.
        """
        cells = standard_cells(noisy, self.totals, noise_scale, self._shares, n_jobs)
        step = STEP * noise_scale[:, None]
        less, more = (
            self._means((moved, *cells[1:]), 0.0, np.empty(noisy.shape, np.float32), n_jobs)
            for moved in (noisy - step, noisy + step)
        )
        more -= less
        return np.maximum(more, FLATTEST * step, out=more, casting="same_kind")

    def _means(self, cells: Cells, least: float, out: np.ndarray, n_jobs: int | None) -> np.ndarray:
        """Posterior means under the present prior, (n_words, n_components) float32."""
        assert self.prior is not None
        class_of = np.empty(len(out), np.uint8)
        for c, words in enumerate(self._classes):
            class_of[words] = c
        prior = self.prior.astype(np.float32)
        _denoise.estimate(*cells, prior, class_of, least, out, n_threads(n_jobs))
        return out

    def _improved_prior(self, cells: Cells, last: bool, n_jobs: int | None) -> np.ndarray:
        """The frequencies of the factors in each class, (n_classes, n_factors)."""
        prior, steps = self.prior, NEXT_STEPS
        if prior is None or last:
            prior = np.array([first_prior(self.public, words) for words in self._classes])
            steps = LAST_STEPS if last else FIRST_STEPS
        likelihood, ptr = class_likelihood(cells, self._classes, n_jobs)
        return improve_prior(prior, likelihood, ptr, steps, n_jobs)


def word_classes(totals: np.ndarray, public: PublicPrior | None) -> list[np.ndarray]:
    """The words of each class: by frequency, those that public texts have apart from the others."""
    order = np.argsort(totals, kind="stable")
    known = np.zeros(len(totals), bool) if public is None else public.counts > 0
    n_known = 1 if public is not None and public.is_hint else N_CLASSES  # few seed words: one class
    classes = [
        *np.array_split(order[~known[order]], N_CLASSES),
        *np.array_split(order[known[order]], n_known),
    ]
    return [np.sort(words) for words in classes if len(words)]


def first_prior(public: PublicPrior | None, words: np.ndarray) -> np.ndarray:
    """The frequencies that expectation-maximization starts from, in the class of `words`.

    The factors of the public center, which come last, have the weight that public texts are trusted
    with.
    """
    if public is None:
        return np.full(len(FACTORS), 1 / len(FACTORS))
    spread = np.exp(-TILT * FACTORS.astype(float))
    spread /= spread.sum()
    near = SPREAD * spread
    near[ONE] += 1 - SPREAD
    trust = public.trust_of_words()[words[0]]
    return np.concatenate([(1 - trust) * spread, trust * near])


def standard_cells(
    noisy: np.ndarray,
    totals: np.ndarray,
    noise_scale: np.ndarray,
    shares: np.ndarray | None = None,
    n_jobs: int | None = None,
) -> Cells:
    """A noisy table, and what the kernels need to know of its cells.

    A cell is expected to be `rate` times the topic's size, in units of its noise. Public `shares`
    (n_words, padded) expect `rate` times share times gain.
    """
    sizes = topic_sizes(noisy, n_jobs)
    sizes = np.maximum(sizes, 0.02 * max(sizes.mean(), 1e-12))
    whole = pad(sizes.astype(np.float32)[None])[0]
    rate = (totals / totals.sum() / noise_scale).astype(np.float32)
    gains = None
    if shares is not None:

        def expect(first: int, last: int) -> np.ndarray:  # no BLAS: its threads add in any order
            return (totals[first:last, None] * shares[first:last, : len(sizes)]).sum(axis=0)

        expected = np.maximum(np.sum(over_words(expect, noisy.shape, n_jobs), axis=0), 1e-12)
        gains = np.sqrt(np.clip(sizes / expected, 0.5, 2.0)) * totals.sum()
        gains = pad(gains.astype(np.float32)[None])[0]
    return noisy, rate, noise_scale.astype(np.float32), whole, FACTORS, shares, gains


def class_likelihood(
    cells: Cells, classes: list[np.ndarray], n_jobs: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood of the cells of classes of words under each factor, (n_vectors, n_factors, 16).

    Also where the vectors of each class begin, (n_classes + 1,). If a class has more than `SAMPLE`
    cells, vectors of 16 topics are left out, evenly.
    """
    noisy, _, _, sizes, _, shares, _ = cells
    per_word = len(sizes) // 16
    n_words = np.array([len(words) for words in classes])
    strides = -(-n_words * noisy.shape[1] // SAMPLE)
    while (shared := np.gcd(strides, per_word) > 1).any():
        strides[shared] += 1  # else some topics would never be in the part
    ptr = np.append(0, np.cumsum(-(-n_words * per_word // strides)))
    n_found = len(FACTORS) * (1 if shares is None else 2)
    likelihood = np.empty((ptr[-1], n_found, 16), np.float32)
    _denoise.likelihood(
        *cells, np.concatenate(classes), np.cumsum(n_words) - n_words, strides, ptr, likelihood,
        n_threads(n_jobs),
    )  # fmt: skip
    return likelihood, ptr


def improve_prior(
    prior: np.ndarray,
    likelihood: np.ndarray,
    ptr: np.ndarray,
    n_steps: int,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Expectation-maximization for the prior over the factors of each class."""
    sums = np.empty_like(prior)
    for _ in range(n_steps):
        _denoise.expectation(likelihood, ptr, prior, sums, n_threads(n_jobs))
        prior = prior * sums
        prior = prior / prior.sum(axis=1, keepdims=True) + 1e-5
        prior = prior / prior.sum(axis=1, keepdims=True)
    return prior
