"""The end of a document-level fit: from its last noisy table to its fitted attributes.

`concluded` estimates the topics. `with_public_topics`, and then `with_clusters`, keep
what the tests of the topics confirm, and replace the rest. `fitted_attributes` calls
all three. Everything here is a function of released values and of public constants. It
is post-processing and has no privacy cost.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dplda.core._signal import shown, with_signal
from dplda.document._noisy_table import NoisyTable
from dplda.document._public_words import Vectors
from dplda.document._table_estimate import (
    CellPrior,
    NoisyCells,
    add_up,
    estimated,
    topic_sizes,
)
from dplda.document._topic_test import Claim
from dplda.privacy._mechanisms import NOISE_VARIANCE

# What the model has instead of topics, for the card.
BY_CLUSTERS = (
    "{} of {} are not shown, and are replaced by public clusters of words with the "
    "rest of the private word totals, except for what fresh sums of the documents "
    "confirm ({:.0%})"
)
BY_TOTALS = (
    "{} of {} are not shown; fresh sums of the documents confirm {:.0%} of what these "
    "say of words, and equal parts of the private word totals replace the rest"
)
OF_SHOWN = (
    "fresh sums of the documents confirm {:.0%} of what the shown topics say of words, "
    "and public clusters of words replace the rest"
)


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
        cells, last.prior, last.public, is_final=True, n_jobs=n_jobs
    )
    table = estimate.astype(float)
    if prior is not None:
        add_up(table, totals, prior.slopes(cells, n_jobs), n_jobs)
    return table, prior


def with_public_topics(
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
        part = (reading.without_earlier / reading.totals)[:, None]
        table = part * table
        public = None if public is None else part * public
        clusters = None if clusters is None else part * clusters
    return Claim.of(table, last.weight, public, clusters)


def with_clusters(
    last: NoisyTable, n_jobs: int | None
) -> tuple[np.ndarray, CellPrior | None, str | None]:
    """The table that a fit publishes, its prior, and what replaces topics, if any.

    The test of the topics says which part of their rows documents confirm. With word
    vectors, each topic has a cluster of words. Shown topics keep the most likely part,
    and their clusters replace the rest. The weak topics divide the words that the shown
    ones leave. They keep the part that is certain, or the most likely one if the shown
    topics contradict the vectors. Clusters replace the rest. Without vectors, they keep
    the expected part, and equal parts replace the rest; documents also get a larger
    prior (`doc_topic_prior_`).
    """
    table, prior = with_public_topics(last, n_jobs)
    tested = last.tested
    n_components = table.shape[1]
    has_topics = last.public is not None and last.public.topics is not None
    if prior is None or tested is None or n_components == 1 or has_topics:
        return table, prior, None
    strong = shown(tested.z)
    weak = ~strong
    lines = []
    clusters = None
    if last.vectors is not None:
        clusters = clusters_of(last.vectors, last, table, strong)
    if clusters is not None and strong.any():
        kept = tested.part_beside_clusters(strong)
        own = last.totals[:, None] * clusters[:, strong]
        table[:, strong] = kept * table[:, strong] + (1 - kept) * own
        if kept < 1:
            lines.append(OF_SHOWN.format(kept))
    if weak.any():
        n_weak = int(np.count_nonzero(weak))
        if clusters is None:
            kept = tested.confirmed_part(weak)
            other, line = 1 / n_weak, BY_TOTALS
        else:
            agreement = prior.agreement
            if agreement is not None and agreement.contradicts(strong):
                kept = tested.part_beside_clusters(weak)
            else:
                kept = tested.least_part_beside_clusters(weak)
            other = clusters[:, weak] / clusters[:, weak].sum(axis=1, keepdims=True)
            line = BY_CLUSTERS
        parts = kept * of_one_size(table[:, weak]) + (1 - kept) * other
        rest = np.maximum(last.totals - table[:, strong].sum(axis=1), 0.0)
        table[:, weak] = rest[:, None] * parts
        if kept < 1:
            lines.insert(0, line.format(n_weak, n_components, kept))
    return table, prior, "; ".join(lines) or None


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


def of_one_size(cells: np.ndarray) -> np.ndarray:
    """p(topic | word) of topics that are made equally large, like `cells`.

    The sizes of topics that are noise are noise, too.
    """
    of_topics = cells / np.maximum(cells.sum(axis=0), 1e-300)
    of_words = of_topics.sum(axis=1, keepdims=True)
    equal = 1 / cells.shape[1]
    return np.where(of_words, of_topics / np.maximum(of_words, 1e-300), equal)


def fitted_attributes(
    last: NoisyTable,
    topic_word_prior: float,
    *,
    n_jobs: int | None = None,
) -> tuple[dict[str, object], str | None]:
    """The fitted attributes, and what the model has instead of topics, if anything.

    They are the table, its noise, its signal, and the evidence of its topics.
    """
    last = replace(last, reading=last.latest_reading())  # once: it is slow
    table, prior, instead = with_clusters(last, n_jobs)
    _, scale = last.sums()
    n_components = table.shape[1]
    noise = math.sqrt(last.variance)
    # standard deviation of `last.row_noise` if one curator has added all noise
    row_scale = math.sqrt(n_components * NOISE_VARIANCE) * noise
    counted = last.released_totals
    if last.earlier is not None:
        noise = math.hypot(noise, last.earlier.noise)
        counted = counted.and_documents(last.earlier.released_totals)
    # less the noise of the mean of a word's row, which the average leaves out
    std = scale * np.sqrt(1 - 1 / n_components)
    signal = float((last.totals * last.weight).mean()) / n_components
    trust = None
    if last.public is not None and last.public.with_frequencies is not None:
        trust = 1.0 if prior is None else prior.trust
    evidence = None if last.tested is None else last.tested.z
    row_noise = None
    if row_scale:  # else there is no noise to show
        row_noise = np.asarray(last.row_noise / row_scale, np.float32)
    attributes = {
        **with_signal(table.T + topic_word_prior, std, evidence),
        "signal_to_noise_": signal / noise if noise else math.inf,
        "row_noise_": row_noise,
        "prior_trust_": trust,
        "n_units_": np.array([counted.n_units, counted.n_units_std]),
    }
    return attributes, instead
