"""Training with document-level privacy: the loop that SubLDA and HDPLDA share.

Every document has private topic weights, contributes a clipped vector to a noisy sum, and reads
nothing of other documents but past noisy sums. docs/document_level.md proves what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_array

from dplda._centered import (
    COUNTS,
    TOTALS,
    Budget,
    Documents,
    Released,
    document_schedule,
    release_word_totals,
    train_round,
)
from dplda._compat import Interval
from dplda._corpus import check_counts
from dplda._private import exactly_one, record_guarantee, warn_if_seeded
from dplda._progress import rounds
from dplda._streams import Streams
from dplda.privacy import Curator, calibrate
from dplda.privacy._curator import TOTAL_VARIATION, sampled

DOCUMENT_CONSTRAINTS = {
    "contribution_norm": [Interval(Real, 0, None, closed="neither")],
    "word_total_share": [Interval(Real, 0, 1, closed="neither")],
    "init_components": [None, "array-like"],
}

RELATION = "one document is added, removed, or replaced by an empty one"

# Which documents take part in a round, and with which scale: rows, scale = sample(...)
Sampler = Callable[[Documents, Released, Streams], tuple[np.ndarray, np.ndarray]]


def everybody(documents: Documents, released: Released, streams: Streams):
    """All documents take part in every round."""
    return np.arange(documents.X.shape[0]), documents.scale


def budget_of(estimator: Any, subsampling_ratio: float) -> tuple[Budget, float]:
    """The mechanisms of a fit and the noise multiplier of an average round."""
    exactly_one(estimator, "epsilon", "noise_multiplier")

    def split(noise_multiplier: float) -> Budget:
        return Budget.split(
            noise_multiplier,
            max_iter=estimator.max_iter,
            word_total_share=estimator.word_total_share,
            subsampling_ratio=subsampling_ratio,
        )

    if estimator.noise_multiplier is not None:
        multiplier = float(estimator.noise_multiplier)
    elif math.isinf(estimator.epsilon):
        multiplier = 0.0
    else:
        multiplier = calibrate(
            lambda m: [event for _, event in plan(split(m), 0, estimator.max_iter)],
            float(estimator.epsilon),
            float(estimator.delta),
            total_variation=TOTAL_VARIATION,
        )
    return split(multiplier), multiplier


def plan(budget: Budget, done: int, n_rounds: int) -> list:
    """What `n_rounds` rounds after `done` earlier ones will release, in order."""
    totals = [] if done else [(TOTALS, mechanism.event) for mechanism in budget.totals]
    last = len(budget.rounds) - 1
    steps = [budget.rounds[min(t, last)] for t in range(done, done + n_rounds)]
    return totals + [(COUNTS, sampled(m.event, budget.subsampling_ratio)) for m in steps]


def public_table(estimator: Any) -> np.ndarray | None:
    """The checked `init_components`."""
    if estimator.init_components is None:
        return None
    table = check_array(estimator.init_components, dtype=float, input_name="init_components")
    shape = (estimator.n_components, estimator.n_features_in_)
    if table.shape != shape or table.min() < 0 or not table.any(axis=1).all():
        raise ValueError(
            f"init_components must be a table of shape {shape} (topics by words) of non-negative "
            f"numbers with no empty topic, got shape {table.shape}"
        )
    return table


def train(
    estimator: Any,
    X: Any,
    *,
    n_rounds: int,
    released: Released | None,
    subsampling_ratio: float = 1.0,
    sample: Sampler = everybody,
) -> None:
    """Run `n_rounds` private rounds and set the fitted attributes.

    `released` continues an earlier fit, whose cost is then added to that of this one.
    """
    name = type(estimator).__name__
    budget, multiplier = budget_of(estimator, subsampling_ratio)
    streams = Streams.from_random_state(estimator.random_state)
    warn_if_seeded(estimator, streams.seeded)
    done = 0 if released is None else released.n_rounds
    steps = plan(budget, done, n_rounds)
    with Curator(steps, streams, label=name, unit="document", ledger=estimator.ledger) as curator:
        X = check_counts(estimator, X, reset=released is None)
        documents = Documents.of(X, estimator.n_components, estimator.n_jobs)
        if released is None:
            norm = estimator.contribution_norm
            totals, weight = release_word_totals(documents, budget, curator, norm)
            released = Released.start(
                totals, weight, estimator.n_components, streams, public_table(estimator)
            )
            earlier = ()
        else:
            documents.rescale(released.weight, estimator.contribution_norm, budget.totals[1])
            earlier = estimator.privacy_.events
        for _ in rounds(estimator, done + 1, done + n_rounds):
            rows, scale = sample(documents, released, streams)
            train_round(
                documents,
                released,
                budget,
                curator,
                rows=rows,
                scale=scale,
                max_iter=estimator.max_iter,
                doc_topic_prior=estimator.doc_topic_prior,
                topic_word_prior=estimator.topic_word_prior,
                contribution_norm=estimator.contribution_norm,
            )
    estimator._released = released
    estimator.components_ = released.finish(estimator.topic_word_prior)
    estimator.n_iter_ = released.n_rounds
    estimator.noise_multiplier_ = multiplier
    _record(estimator, earlier + curator.events, budget, streams.seeded)


def _record(estimator: Any, events: tuple, budget: Budget, seeded: bool) -> None:
    """The guarantee of all releases so far: word totals first, then the rounds."""
    norm, last = estimator.contribution_norm, len(budget.rounds)
    clips = [norm] * len(budget.totals)
    mechanisms = list(budget.totals)
    for t in range(1, estimator.n_iter_ + 1):
        clips.append(norm * document_schedule(t, estimator.max_iter)[0])
        mechanisms.append(budget.rounds[min(t, last) - 1])
    multipliers = tuple(m.scale / m.sensitivity for m in mechanisms)
    record_guarantee(
        estimator,
        events,
        unit="document",
        relation=RELATION,
        mechanism=_describe(budget),
        sensitivity=max(clips),
        noise_scale=tuple(c * m for c, m in zip(clips, multipliers)),
        noise_multiplier=multipliers,
        seeded=seeded,
        assumptions=("one row of X holds everything that one protected unit contributed",),
    )


def _describe(budget: Budget) -> str:
    if budget.totals[0].scale == 0:
        return "exact word totals and word-topic counts, without noise"
    text = "discrete Gaussian noise on all word totals, and in each round on all word-topic counts"
    if budget.subsampling_ratio < 1:
        text += f", over a secret sample of the documents (rate {budget.subsampling_ratio:g})"
    return text
