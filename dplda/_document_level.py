"""Training with document-level privacy: the loop that SubLDA and HDPLDA share.

Every document has private topic weights, contributes a clipped vector to a noisy sum, and reads
nothing of other documents but past noisy sums. docs/document_level.md proves what that costs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_array

from dplda._budget import Budget
from dplda._centered import (
    COUNTS,
    TOTALS,
    Documents,
    Released,
    release_word_totals,
    train_round,
)
from dplda._compat import Interval
from dplda._corpus import check_counts
from dplda._private import exactly_one, make_guarantee, publish, warn_if_seeded
from dplda._progress import rounds
from dplda._streams import Streams
from dplda.privacy import (
    Curator,
    Event,
    Gaussian,
    Guarantee,
    NonPrivate,
    PoissonSampled,
    calibrate,
)
from dplda.privacy._curator import TOTAL_VARIATION, sampled

DOCUMENT_CONSTRAINTS = {
    "contribution_norm": [Interval(Real, 0, 1e9, closed="right")],
    "word_total_share": [Interval(Real, 0, 1, closed="neither")],
    "init_components": [None, "array-like"],
}

RELATION = "one document is added, removed, or replaced by an empty one"

# Which documents take part in a round, and with which scale, if the highest rate charged is
# `subsampling_ratio`: rows, scale = sample(documents, released, streams, subsampling_ratio)
Sampler = Callable[[Documents, Released, Streams, float], tuple[np.ndarray, np.ndarray]]


def everybody(documents: Documents, released: Released, streams: Streams, subsampling_ratio: float):
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
    steps = [budget.round(t) for t in range(done + 1, done + n_rounds + 1)]
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
    earlier = None if released is None else estimator.privacy_
    released = copy.deepcopy(released)  # an interrupted call leaves the model as it was
    done = 0 if released is None else released.n_rounds
    steps = plan(budget, done, n_rounds)
    with Curator(steps, streams, label=name, unit="document", ledger=estimator.ledger) as curator:
        X = check_counts(estimator, X, reset=released is None)
        documents = Documents.of(X, int(estimator.n_components), estimator.n_jobs)
        if released is None:
            norm = float(estimator.contribution_norm)
            public = public_table(estimator)
            totals, weight = release_word_totals(documents, budget, curator, norm)
            n_components = int(estimator.n_components)
            released = Released.start(totals, weight, n_components, streams, public)
            released.norms = (norm,) * len(budget.totals)
        else:
            mechanism = budget.totals[1]
            documents.rescale(released.weight, estimator.contribution_norm, mechanism)
        for _ in rounds(estimator, done + 1, done + n_rounds):
            rows, scale = sample(documents, released, streams, subsampling_ratio)
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
    publish(
        estimator,
        _guarantee(estimator, curator.events, earlier, released.norms, streams.seeded),
        components_=released.finish(estimator.topic_word_prior),
        n_iter_=released.n_rounds,
        noise_multiplier_=multiplier,
        _released=released,
    )


def _guarantee(
    estimator: Any,
    events: tuple[Event, ...],
    earlier: Guarantee | None,
    norms: tuple[float, ...],
    seeded: bool,
) -> Guarantee:
    """The guarantee of all releases so far, as their events tell."""
    all_events = events if earlier is None else earlier.events + events
    multipliers = tuple(_noise_multiplier(event) for event in all_events)
    assumptions: tuple[str, ...] = (
        "one row of X holds everything that one protected unit contributed",
    )
    if estimator.init_components is not None:
        assumptions += ("init_components is public and was not made of the private documents",)
    return make_guarantee(
        estimator,
        events,
        earlier=earlier,
        unit="document",
        relation=RELATION,
        mechanism=_describe(all_events),
        sensitivity=max(norms),
        noise_scale=tuple(n * m for n, m in zip(norms, multipliers)),
        noise_multiplier=multipliers,
        seeded=seeded,
        assumptions=assumptions,
    )


def _noise_multiplier(event: Event) -> float:
    gaussian = event.event if isinstance(event, PoissonSampled) else event
    return gaussian.noise_multiplier if isinstance(gaussian, Gaussian) else 0.0


def _describe(events: tuple[Event, ...]) -> str:
    if any(isinstance(event, NonPrivate) for event in events):
        return "word totals and word-topic counts, some or all of them exact, without noise"
    text = "discrete Gaussian noise on all word totals, and in each round on all word-topic counts"
    rates = {e.sampling_probability for e in events if isinstance(e, PoissonSampled)}
    if rates:
        text += f", over a secret sample of the documents (rate {max(rates):g})"
    return text
