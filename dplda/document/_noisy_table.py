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
from dplda.core._signal import shown, with_signal
from dplda.document._document_budget import Round
from dplda.document._public_words import Agreement, PublicWords, Vectors
from dplda.document._table_estimate import (
    PIECE,
    CellPrior,
    NoisyCells,
    add_up,
    estimated,
    topic_sizes,
)
from dplda.document._topic_test import Claim, Tested, met
from dplda.document._word_totals import WordTotals
from dplda.kernels import _denoise
from dplda.leaf._threads import n_threads
from dplda.privacy._mechanisms import NOISE_VARIANCE
from dplda.privacy._streams import Purpose, Streams, uniform

# Figures like -5 / 0 are points of the share of the gap, at epsilon 1 and 4, that a
# change gives (docs/results.md).
# Least ratio of the mean word total to the noise of a cell at which all rounds are for
# topics. 0: -5 / 0
CLEAR = 7.0
# The expected shares of the words are computed again every so many rounds. 8: -1 / 0
RENEWED = 4


# What the model has instead of topics, for the card.
BY_CLUSTERS = (
    "{} of {} are not shown, and are replaced by public clusters of words with the "
    "rest of the private word totals"
)
BY_TOTALS = (
    "{} of {} are not shown; fresh sums of the documents confirm {:.0%} of what these "
    "say of words, and equal parts of the private word totals replace the rest"
)
OF_SHOWN = (
    "fresh sums of the documents confirm {:.0%} of what the shown topics say of words, "
    "and public clusters of words replace the rest"
)


class Reading(NamedTuple):
    """Word totals that are estimated from releases, positive, (n_words,) each."""

    of: WordTotals  # the releases that were read
    own: np.ndarray  # totals of the documents of this fit
    totals: np.ndarray  # totals of these documents and of the documents of earlier fits


class Earlier(NamedTuple):
    """The summed releases of earlier fits to other documents; public."""

    average: np.ndarray  # sum of their averages, (n_words, n_components)
    # standard deviation of the noise in a cell of each word of `average`, (n_words,)
    scale: np.ndarray
    totals: WordTotals  # sum of their word totals
    noise: float  # root mean square of `scale`, times the word weights of this fit
    n_fits: int


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """What is known of topics after some releases; public, and never changed."""

    weight: np.ndarray  # word weights, (n_words,)
    # word-topic counts as estimated, with their prior, (n_words, n_components), float32
    table: np.ndarray
    # Weighted average of the first table and of the noisy sums of the rounds, with the
    # shape of `table`. It is never clipped, so that its noise has mean zero.
    average: np.ndarray
    released: WordTotals  # all releases of word totals
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
    def n_earlier(self) -> int:
        """Number of earlier fits whose releases are added."""
        return 0 if self.earlier is None else self.earlier.n_fits

    @property
    def vectors(self) -> Vectors | None:
        """The word vectors; None without vectors, and with public topics."""
        if self.public is None or self.public.topics is not None:
            return None
        return self.public.vectors

    @property
    def may_have_clusters(self) -> bool:
        """Whether public clusters of words may replace topics that are noise."""
        return self.tested is not None and self.vectors is not None

    def latest_reading(self) -> Reading:
        """The reading of all releases of word totals; it takes as long as a round."""
        if self.reading.of is self.released:
            return self.reading
        return read(self.released, self.public, self.earlier)

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """The average, and the noise scale of a cell of each word (n_words,).

        Releases of earlier fits are added.
        """
        scale = np.sqrt(self.variance) / self.weight
        if self.earlier is None:
            return self.average, scale
        return self.average + self.earlier.average, np.hypot(scale, self.earlier.scale)


# ---- before round 1 ------------------------------------------------------------------


def estimated_totals(released: WordTotals, public: PublicWords | None) -> np.ndarray:
    """Posterior means of word totals (n_words,), given the public tables."""
    return released.smooth() if public is None else public.totals(released)


def read(
    released: WordTotals, public: PublicWords | None, earlier: Earlier | None
) -> Reading:
    """Estimate the word totals from their releases."""
    if earlier is None:
        totals = estimated_totals(released, public)
        return Reading(released, totals, totals)
    both = released.and_documents(earlier.totals)
    return Reading(released, released.smooth(), estimated_totals(both, public))


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
    totals = past.released
    if past.earlier is not None:
        totals = totals.and_documents(past.earlier.totals)
    average, scale = past.sums()
    noise = math.sqrt(float(((scale * weight) ** 2).mean()))
    earlier = Earlier(average, scale, totals, noise, past.n_earlier + 1)
    shares = past.table / past.table.sum(axis=1, keepdims=True)
    return NoisyTable(
        weight,
        past.table,
        estimated_totals(released, public)[:, None] * shares,
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
    if noise == 0:
        return table
    signal = float((table.totals * table.weight).mean())
    share = max(0.0, 1.0 - signal / (CLEAR * noise))
    topics = None if table.public is None else table.public.with_frequencies
    if topics is not None and share > 0:
        own = estimated_totals(table.released, table.public)
        share *= 1 - topics.agreement(own)
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
        share * reading.own,
        is_centered,
        before.average,
        n_threads(n_jobs),
    )
    n_rounds = before.n_rounds + 1
    after = replace(
        before,
        average=noisy.view(np.float64),
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
    released = before.released.and_release(noisy, noise_scale)
    return replace(before, released=released, n_rounds=before.n_rounds + 1)


def learn_test(
    before: NoisyTable, claim: Claim, noisy: np.ndarray, this_round: Round
) -> NoisyTable:
    """What is known after a round that tests the topics."""
    # An upper estimate: with too few documents, the test would expect too little of
    # what the documents have added to the table themselves.
    n_docs = before.released.n_docs + before.released.n_docs_error
    if before.earlier is not None:  # which has added the rest
        reading = before.latest_reading()
        n_docs *= reading.own.sum() / reading.totals.sum()
    tested = met(before.tested, claim, noisy, this_round, n_docs)
    return replace(before, tested=tested, n_rounds=before.n_rounds + 1)


# ---- at the end ----------------------------------------------------------------------


def concluded(
    last: NoisyTable, n_jobs: int | None
) -> tuple[np.ndarray, CellPrior | None]:
    """The table that a fit publishes, (n_words, n_components), and its prior.

    With noise, the cells of a word are made to add up to the word's total, which is
    known better than the cells are (docs/decisions.md, record 13).
    """
    totals = last.totals
    cells = NoisyCells(*last.sums(), totals)
    estimate, prior = estimated(
        cells, last.prior, last.public, last=True, n_jobs=n_jobs
    )
    table = estimate.astype(float)
    if prior is not None and cells.noise_scale.any():
        add_up(table, totals, prior.slopes(cells, n_jobs), n_jobs)
    return table, prior


def confirmed(
    last: NoisyTable, n_jobs: int | None
) -> tuple[np.ndarray, CellPrior | None]:
    """The concluded table as far as the tests confirm it, and its prior.

    Topics of public texts replace the rest, as far as they are trusted: the documents
    repeat the noise of a table that their topics were inferred with, so that it looks
    like a signal.
    """
    table, prior = concluded(last, n_jobs)
    public = public_table(last)
    if public is not None and prior is not None and last.tested is not None:
        table += prior.trust * (1 - last.tested.kept) * (public - table)
    return table, prior


def public_table(last: NoisyTable) -> np.ndarray | None:
    """What public topics say of the word totals, (n_words, n_components)."""
    topics = None if last.public is None else last.public.with_frequencies
    if topics is None or not topics.differ:
        return None
    table: np.ndarray = last.totals[:, None] * topics.shares
    return table


def claim_of(last: NoisyTable, n_jobs: int | None) -> Claim:
    """What the topics say of the words of the documents that test them.

    The topics are those that the fit would publish now. Documents of earlier fits do
    not test, so that each word counts as often as in the documents of this fit.
    """
    table, prior = concluded(last, n_jobs)
    public = public_table(last)
    clusters = None
    if last.vectors is not None and prior is not None:
        shares = last.vectors.around(last.vectors.centers(table))
        clusters = last.totals[:, None] * shares
    if last.earlier is not None:
        reading = last.latest_reading()
        part = (reading.own / reading.totals)[:, None]
        table = part * table
        public = None if public is None else part * public
        clusters = None if clusters is None else part * clusters
    return Claim.of(table, last.weight, public, clusters)


def with_clusters(
    last: NoisyTable, n_jobs: int | None
) -> tuple[np.ndarray, CellPrior | None, str | None]:
    """The table that a fit publishes, its prior, and what replaces topics, if any.

    The test of the topics says which part of their rows documents confirm. With word
    vectors, unless topics contradict them, each topic has a cluster of words. Shown
    topics keep their part, and their clusters replace the rest. The weak topics divide
    the words that the shown ones leave, by their clusters; without clusters, by their
    confirmed part, and equally. Without vectors, documents also get a larger prior
    (`doc_topic_prior_`).
    """
    table, prior = confirmed(last, n_jobs)
    tested = last.tested
    n_components = table.shape[1]
    has_topics = last.public is not None and last.public.topics is not None
    if prior is None or tested is None or n_components == 1 or has_topics:
        return table, prior, None
    strong = shown(tested.z)
    weak = ~strong
    lines = []
    clusters = None
    if last.vectors is not None and not contradicted(prior.agreement, tested):
        clusters = clusters_of(last.vectors, last, table, strong)
    if clusters is not None and strong.any():
        kept = tested.part_beside_clusters(strong)
        own = last.totals[:, None] * clusters[:, strong]
        table[:, strong] = kept * table[:, strong] + (1 - kept) * own
        if kept < 1:
            lines.append(OF_SHOWN.format(kept))
    if weak.any():
        n_weak = int(np.count_nonzero(weak))
        if clusters is not None:
            parts = clusters[:, weak] / clusters[:, weak].sum(axis=1, keepdims=True)
            line = BY_CLUSTERS.format(n_weak, n_components)
        else:
            kept = tested.confirmed_part(weak)
            parts = kept * of_one_size(table[:, weak]) + (1 - kept) / n_weak
            line = BY_TOTALS.format(n_weak, n_components, kept) if kept < 1 else ""
        rest = np.maximum(last.totals - table[:, strong].sum(axis=1), 0.0)
        table[:, weak] = rest[:, None] * parts
        lines.insert(0, line)
    return table, prior, "; ".join(filter(None, lines)) or None


def clusters_of(
    vectors: Vectors, last: NoisyTable, table: np.ndarray, strong: np.ndarray
) -> np.ndarray:
    """Public clusters of words, one for each topic: p(cluster | word).

    They lie around the words of the topics in `table`. Those of the topics that are not
    shown (`strong` is false) then move to where words are. The rows of the shown topics
    say how sharp the clusters are. The result is (n_words, n_components).
    """
    noisy, noise_scale = last.sums()
    sizes = np.maximum(topic_sizes(noisy, None), 1e-12)
    released = noisy, noise_scale, last.totals, sizes / sizes.sum()
    centers = vectors.centers(table)
    sharpness = vectors.sharpness(centers, strong, *released)
    if not strong.all():
        centers[~strong] = vectors.spread(centers[~strong])
    return vectors.around(centers, sharpness)


def contradicted(agreement: Agreement | None, tested: Tested) -> bool:
    """Whether the topics contradict the word vectors.

    Topics that are noise contradict all vectors: topics count only if documents confirm
    more than half of their rows. They do not contradict what all topics agree with,
    although these are noise in part.
    """
    if agreement is None or not agreement.contradicts(np.ones(len(tested.z), bool)):
        return False
    strong = shown(tested.z)
    counted = np.zeros(len(strong), bool)
    for topics in (strong, ~strong):
        counted |= topics & (tested.least_confirmed_part(topics) > 0.5)
    counted &= ~strong | (tested.part_beside_clusters(strong) > 0.5)
    return agreement.contradicts(counted)


def of_one_size(cells: np.ndarray) -> np.ndarray:
    """p(topic | word) of topics that are made equally large, like `cells`.

    The sizes of topics that are noise are noise, too.
    """
    of_topics = cells / np.maximum(cells.sum(axis=0), 1e-300)
    of_words = of_topics.sum(axis=1, keepdims=True)
    equal = 1 / cells.shape[1]
    return np.where(of_words, of_topics / np.maximum(of_words, 1e-300), equal)


def finish(
    last: NoisyTable,
    topic_word_prior: float,
    *,
    n_jobs: int | None = None,
) -> tuple[dict[str, object], str | None]:
    """The fitted attributes, and what the model has instead of topics, if anything.

    They are the table, its noise, its signal, and the evidence of its topics.
    """
    table, prior, instead = with_clusters(last, n_jobs)
    _, scale = last.sums()
    n_components = table.shape[1]
    noise = math.sqrt(last.variance)
    # standard deviation of `last.row_noise` if one curator has added all noise
    row_scale = math.sqrt(n_components * NOISE_VARIANCE) * noise
    counted = last.released
    if last.earlier is not None:
        noise = math.hypot(noise, last.earlier.noise)
        counted = counted.and_documents(last.earlier.totals)
    # less the noise of the mean of a word's row, which the average leaves out
    std = scale * np.sqrt(1 - 1 / n_components)
    signal = float((last.totals * last.weight).mean()) / n_components
    trust = None
    if last.public is not None and last.public.with_frequencies is not None:
        trust = 1.0 if prior is None else prior.trust
    evidence = None if last.tested is None else last.tested.z
    row_noise = None
    if row_scale:
        row_noise = np.asarray(last.row_noise / row_scale, np.float32)
    attributes = {
        **with_signal(table.T + topic_word_prior, std, evidence),
        "signal_to_noise_": signal / noise if noise else math.inf,
        "row_noise_": row_noise,
        "prior_trust_": trust,
        "n_units_": np.array([counted.n_units, counted.n_units_std]),
    }
    return attributes, instead
