"""The public side of a document-level fit: what is known after each release.

A `NoisyTable` is an immutable value. `learn`, `learn_totals` and `learn_test` make the
next table from it and a release. Everything here is a function of released values and
of public constants. It is post-processing and has no privacy cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from dplda.core._fold_in import slices
from dplda.document._document_budget import Round
from dplda.document._public_words import PublicWords, Vectors
from dplda.document._table_estimate import CellPrior, NoisyCells, estimated
from dplda.document._topic_test import Claim, Tested, met
from dplda.document._word_totals import WordTotals
from dplda.kernels import _denoise
from dplda.leaf._threads import n_threads
from dplda.privacy._streams import PIECE, Purpose, Streams, uniform

# Figures like -5 / 0 are points of the share of the gap, at epsilon 1 and 4, that a
# change gives (docs/results.md).
# Least ratio of the mean word total to the noise of a cell at which all rounds are for
# topics. 0: -5 / 0
CLEAR = 7.0
# The expected shares of the words are computed again every so many rounds. 8: -1 / 0
RENEWED = 4


class Reading(NamedTuple):
    """Word totals that are estimated from releases, positive, (n_words,) each."""

    released_totals: WordTotals  # the releases that were read
    totals: np.ndarray  # of the documents of this fit and of earlier fits
    without_earlier: np.ndarray  # of the documents of this fit alone


class Earlier(NamedTuple):
    """The summed releases of earlier fits to other documents; public."""

    average: np.ndarray  # sum of their averages, (n_words, n_components)
    # standard deviation of the noise in a cell of each word of `average`, (n_words,)
    scale: np.ndarray
    released_totals: WordTotals  # sum of their word totals
    noise: float  # root mean square of `scale`, times the word weights of this fit
    n_fits: int  # number of earlier fits


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """What is known of topics after some releases; public, and never changed."""

    weight: np.ndarray  # word weights, (n_words,)
    # word-topic counts as estimated, with their prior, (n_words, n_components), float32
    table: np.ndarray
    # Weighted average of the first table and of the noisy sums of the rounds, with the
    # shape of `table`. It is never clipped, so that its noise has mean zero.
    average: np.ndarray
    released_totals: WordTotals  # the mean of all releases of word totals
    reading: Reading  # word totals that the rounds read
    public: PublicWords | None = None
    prior: CellPrior | None = None  # of the cells, as learned in the rounds
    # Variance of the noise in a cell of `average`, times the squared word weight.
    variance: float = 0.0
    # Row sums of the noisy integers of the rounds, (n_words,), which are noise alone,
    # times the noise scale of a cell in tokens; averaged with the weights of `average`.
    row_noise: np.ndarray | float = 0.0
    n_rounds: int = 0  # number of rounds so far
    # share of the rounds that release word totals instead of topics, in [0, 1)
    share_for_totals: float = 0.0
    earlier: Earlier | None = None  # releases of fits to other documents
    tested: Tested | None = None  # test of the topics of the last round of topics

    @property
    def totals(self) -> np.ndarray:
        """Word totals (n_words,), estimated from all releases."""
        return self.latest_reading().totals

    @property
    def has_noise(self) -> bool:
        """Whether a release of topics has noise."""
        earlier = 0.0 if self.earlier is None else self.earlier.noise
        return bool(self.variance or earlier)

    @property
    def n_fits(self) -> int:
        """Number of fits whose releases are in the table: this one and earlier ones."""
        return 1 if self.earlier is None else 1 + self.earlier.n_fits

    @property
    def vectors(self) -> Vectors | None:
        """The word vectors; None without vectors, and with public topics."""
        if self.public is None or self.public.topics is not None:
            return None
        return self.public.vectors

    def latest_reading(self) -> Reading:
        """The reading of all releases of word totals; it takes as long as a round."""
        if self.reading.released_totals is self.released_totals:
            return self.reading
        return read(self.released_totals, self.public, self.earlier)

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The average, and the noise scale of a cell of each word (n_words,).

        Releases of earlier fits are added.
        """
        scale = np.sqrt(self.variance) / self.weight
        if self.earlier is None:
            return self.average, scale
        return self.average + self.earlier.average, np.hypot(scale, self.earlier.scale)


# ---- before round 1 ------------------------------------------------------------------


def read(
    released: WordTotals, public: PublicWords | None, earlier: Earlier | None
) -> Reading:
    """Estimate the word totals from their releases."""
    if earlier is None:
        totals = released.given(public)
        return Reading(released, totals, totals)
    both = released.and_documents(earlier.released_totals)
    return Reading(released, both.given(public), released.smooth())


def random_table(
    released: WordTotals,
    weight: np.ndarray,
    n_components: int,
    streams: Streams,
    public: PublicWords | None = None,
    alike: bool = False,
) -> NoisyTable:
    """The table before round 1: word totals, divided among topics at random.

    The perturbations are exponential, or `nearly_equal` if topics begin `alike`. Words
    of public topics are divided by the public shares instead.
    """
    reading = read(released, public, None)
    totals = reading.totals
    average = np.empty((len(totals), n_components))
    reader = streams.reader(Purpose.INITIAL_TABLE, 0)
    for piece in slices(len(totals), max(1, PIECE // n_components)):
        words = reader.words(average[piece].size)
        draws = uniform(words, positive=True).reshape(-1, n_components)
        ratios = nearly_equal(draws) if alike else -np.log(draws)
        np.multiply(totals[piece, None], ratios, out=average[piece])
    average /= average.sum(axis=0)
    average *= totals.sum() / n_components
    if public is not None and public.topics is not None:
        says = public.topics.says
        average[says] = (totals[:, None] * public.topics.shares)[says]
    table = average.astype(np.float32)
    return NoisyTable(weight, table, average, released, reading, public)


def nearly_equal(draws: np.ndarray) -> np.ndarray:
    """Log-normal perturbations of about 10%, as in online variational Bayes."""
    return np.exp(0.1 * ndtri(draws))


def continued_table(
    past: NoisyTable,
    released: WordTotals,
    weight: np.ndarray,
    public: PublicWords | None,
) -> NoisyTable:
    """The table before round 1 of a fit that adds the releases of an earlier fit.

    `past` is the last table of the earlier fit. The new documents begin with its
    topics: their word totals are divided among topics by its p(topic | word).
    """
    totals = past.released_totals
    if past.earlier is not None:
        totals = totals.and_documents(past.earlier.released_totals)
    average, scale = past.sums()
    noise = math.sqrt(float(((scale * weight) ** 2).mean()))
    earlier = Earlier(average, scale, totals, noise, past.n_fits)
    shares = past.table / past.table.sum(axis=1, keepdims=True)
    return NoisyTable(
        weight,
        past.table,
        released.given(public)[:, None] * shares,
        released,
        read(released, public, earlier),
        public,
        earlier=earlier,
    )


def with_rounds_for_totals(table: NoisyTable, noise: float) -> NoisyTable:
    """The table before round 1, with the share of the rounds that release word totals.

    `noise` is the noise scale of a cell after all rounds. If it hides the word totals,
    no topic can be told from another. Word frequencies can still be learned then. Fewer
    such rounds are needed if public frequencies agree with the totals.
    """
    if table.earlier is not None:
        noise = math.hypot(noise, table.earlier.noise)
    if noise == 0:  # the totals are known
        return table
    signal = float((table.totals * table.weight).mean())
    share = max(0.0, 1.0 - signal / (CLEAR * noise))
    topics = None if table.public is None else table.public.with_frequencies
    if topics is not None and share > 0:
        totals = table.released_totals.given(table.public)
        share *= 1 - topics.agreement(totals)
    return replace(table, share_for_totals=share)


# ---- after a release -----------------------------------------------------------------


def learn(
    before: NoisyTable,
    noisy: np.ndarray,
    this_round: Round,
    *,
    granularity: float,
    share: float,
    is_centered: bool,
    least: float = 0.0,
    n_jobs: int | None = None,
) -> NoisyTable:
    """What is known after a round of topics.

    Parameters
    ----------
    before : NoisyTable
        What was known before the round.
    noisy : ndarray of shape (n_words, n_components), int64
        The released sum. The new average takes its memory.
    this_round : Round
        The round.
    granularity : float
        Tokens, times word weight, for which one integer of `noisy` stands.
    share : float
        Weight of the sum in the new average.
    is_centered : bool
        Whether contributions sum to zero over topics. The mean of a word's row is then
        noise alone and is removed, and the center is added again.
    least : float, default=0.0
        Added to each cell of the estimate.
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.

    Returns
    -------
    after : NoisyTable
        What is known after the round.
    """
    reading = before.latest_reading()
    noise_scale = this_round.mechanism.scale * granularity  # of a cell, in tokens
    of_rows = noisy.sum(axis=1)
    _denoise.learn(
        noisy,
        before.table,
        1 - share,
        share * granularity / before.weight,
        share * reading.without_earlier,
        is_centered,
        before.average,
        n_threads(n_jobs),
    )
    n_rounds = before.n_rounds + 1
    after = replace(
        before,
        average=noisy.view(np.float64),  # the kernel has replaced its integers
        reading=reading,
        variance=(1 - share) ** 2 * before.variance + share**2 * noise_scale**2,
        row_noise=(1 - share) * before.row_noise + share * noise_scale * of_rows,
        n_rounds=n_rounds,
        tested=None,
    )
    table, prior = estimated(
        NoisyCells(*after.sums(), reading.totals),
        before.prior,
        before.public,
        renew=n_rounds % RENEWED == 0 or n_rounds < RENEWED,
        least=least,
        n_jobs=n_jobs,
    )
    seeds = None if before.public is None else before.public.seeds
    if seeds is not None and prior is not None:  # seed words stay in their topics
        of_topics = prior.expected[:, : table.shape[1]]
        expected = np.broadcast_to(of_topics, table.shape)
        table[seeds] = reading.totals[seeds, None] * expected[seeds]
    return replace(after, table=table, prior=prior)


def learn_totals(
    before: NoisyTable, noisy: np.ndarray, noise_scale: np.ndarray
) -> NoisyTable:
    """What is known after a round of word totals.

    `noisy` and `noise_scale` (n_words,) are the released totals and the standard
    deviations of their noise.
    """
    released = before.released_totals.and_release(noisy, noise_scale)
    return replace(before, released_totals=released, n_rounds=before.n_rounds + 1)


def learn_test(
    before: NoisyTable, claim: Claim, noisy: np.ndarray, this_round: Round
) -> NoisyTable:
    """What is known after a round that tests the topics."""
    # An upper estimate: with too few documents, the test would expect too little of
    # what the documents have added to the table themselves.
    n_docs = before.released_totals.n_docs + before.released_totals.n_docs_error
    if before.earlier is not None:  # which has added the rest
        reading = before.latest_reading()
        n_docs *= reading.without_earlier.sum() / reading.totals.sum()
    tested = met(before.tested, claim, noisy, this_round, n_docs)
    return replace(before, tested=tested, n_rounds=before.n_rounds + 1)
