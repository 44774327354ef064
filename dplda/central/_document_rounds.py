"""Training with document-level privacy: the loop that SubLDA, HDPLDA and PrivateSVILDA share.

Every document has private topic weights, contributes a clipped vector to a noisy sum, and reads
nothing of other documents but past noisy sums. docs/document_level.md proves what that costs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from dplda._compat import Interval
from dplda._corpus import check_counts, check_table
from dplda._fold_in import update_theta
from dplda._private_fit import exactly_one, make_guarantee, publish, warn_if_seeded
from dplda._progress import rounds
from dplda.central._centered_release import (
    COUNTS,
    TOTALS,
    Documents,
    Released,
    exponential,
    release_word_totals,
    train_round,
)
from dplda.central._schedule import Budget, document_schedule, round_schedule
from dplda.privacy import Event, Gaussian, Guarantee, NonPrivate, PoissonSampled, calibrate
from dplda.privacy._curator import TOTAL_VARIATION, sampled
from dplda.privacy._streams import Purpose, Streams
from dplda.privacy.mechanisms import Curator

DOCUMENT_CONSTRAINTS = {
    "contribution_norm": [Interval(Real, 1e-6, 1e9, closed="both")],
    "word_total_share": [Interval(Real, 0, 1, closed="neither")],
    "init_components": [None, "array-like"],
}

RELATION = "one document is added, removed, or replaced by an empty one"

SMALLEST_RATIO = 1e-8  # of sampling; far below, accounting takes minutes and then overflows
INNER_STEPS = 7


def sample_documents(
    documents: Documents, released: Released, streams: Streams, subsampling_ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Each document with the same probability, at its own scale."""
    n_docs = documents.X.shape[0]
    if subsampling_ratio == 1:
        return np.arange(n_docs), documents.scale
    rates = np.full(n_docs, subsampling_ratio)
    return poisson_sample(rates, subsampling_ratio, streams, released.n_rounds), documents.scale


def poisson_sample(rates: np.ndarray, highest: float, streams: Streams, round: int) -> np.ndarray:
    """Indices of a sample in which each document is with its own rate, independently.

    No rate may exceed `highest`, the one that is charged. Rates are rounded down to multiples of
    2**-64, so that none is higher than it says.
    """
    if not (rates <= highest).all():
        raise RuntimeError("a document's rate is higher than the rate that is charged")
    words = streams.words(Purpose.MEMBERSHIP, round, 0, len(rates))
    return np.flatnonzero((words < membership_threshold(rates)) | (rates >= 1))


def membership_threshold(rates: np.ndarray) -> np.ndarray:
    """How many of the 2**64 words let a document in; 0 for rate 1, which needs no word."""
    return (np.where(rates < 1, rates, 0.0) * 2.0**64).astype(np.uint64)


def fold_in_topics(
    estimator: Any, documents: Documents, released: Released, rows: np.ndarray
) -> np.ndarray:
    """Some more steps for each document's weights; word probabilities to a tempering power."""
    phi = released.word_probabilities()
    update_theta(
        documents.X,
        documents.theta,
        phi,
        rows,
        n_components=released.table.shape[1],
        doc_topic_prior=estimator.doc_topic_prior,
        max_steps=INNER_STEPS,
        n_jobs=documents.n_jobs,
    )
    _, power = document_schedule(released.n_rounds + 1, estimator.max_iter)
    return phi ** np.float32(power)


def rate_of_later_rounds(estimator: Any, t: int, exact: bool) -> float:
    """Weights that grow; without noise and sampling there is nothing to average out."""
    if exact:
        return 1.0
    weights = [round_schedule(s, estimator.max_iter)[1] for s in range(1, t + 1)]
    return weights[-1] / sum(weights)


@dataclass(frozen=True)
class Recipe:
    """What the document-level estimators do differently from each other.

    Attributes
    ----------
    subsampling_ratio : float
        The highest probability with which a document takes part in a round.
    sample : callable
        ``sample(documents, released, streams, subsampling_ratio)`` returns the rows of a round,
        and the scale of every document.
    infer : callable
        ``infer(estimator, documents, released, rows)`` brings the topic weights of those
        documents up to date, and returns the word factor of their responsibilities.
    rate : callable
        ``rate(estimator, t, exact)`` returns the share of round t in the average of all rounds up
        to t. `exact`: neither noise nor sampling.
    prepare : callable
        ``prepare(X, streams)`` returns the counts to train on.
    factors : callable
        How the topics of the first table differ: `Released.start`.
    """

    subsampling_ratio: float = 1.0
    sample: Callable = sample_documents
    infer: Callable = fold_in_topics
    rate: Callable = rate_of_later_rounds
    prepare: Callable = lambda X, streams: X
    factors: Callable = exponential


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
            accountant=getattr(estimator, "accountant", "pld"),
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
    table = check_table(estimator.init_components, "init_components")
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
    recipe: Recipe = Recipe(),
) -> None:
    """Run `n_rounds` private rounds and set the fitted attributes.

    `released` continues an earlier fit, whose cost is then added to that of this one.
    """
    name = type(estimator).__name__
    budget, multiplier = budget_of(estimator, recipe.subsampling_ratio)
    streams = Streams.from_random_state(estimator.random_state)
    warn_if_seeded(estimator, streams.seeded)
    earlier = None if released is None else estimator.privacy_
    done = 0 if released is None else released.n_rounds
    steps = plan(budget, done, n_rounds)
    with Curator(steps, streams, label=name, unit="document", ledger=estimator.ledger) as curator:
        X = recipe.prepare(check_counts(estimator, X, reset=released is None), streams)
        released = release_rounds(
            estimator, X, curator, streams, budget, recipe, n_rounds=n_rounds, released=released
        )
    publish(
        estimator,
        _guarantee(estimator, curator.events, earlier, released.norms, streams.seeded),
        components_=released.finish(estimator.topic_word_prior),
        n_iter_=released.n_rounds,
        noise_multiplier_=multiplier,
        _released=released,
    )


def release_rounds(
    estimator: Any,
    X: Any,
    curator: Any,
    streams: Streams,
    budget: Budget,
    recipe: Recipe,
    *,
    n_rounds: int,
    released: Released | None,
) -> Released:
    """Word totals, unless they were released before, and `n_rounds` rounds.

    Of the private `X` nothing leaves but what `curator.release` returns.
    """
    released = copy.deepcopy(released)  # an interrupted call leaves the model as it was
    n_components = int(estimator.n_components) if released is None else released.table.shape[1]
    documents = Documents.of(X, n_components, estimator.n_jobs)
    norm = float(estimator.contribution_norm)
    if released is None:
        public = public_table(estimator)
        totals, weight = release_word_totals(documents, budget, curator, norm)
        released = Released.start(totals, weight, n_components, streams, public, recipe.factors)
        released.norms = (norm,) * len(budget.totals)
    else:
        documents.rescale(released.weight, norm, budget.totals[1])
    exact = recipe.subsampling_ratio == 1 and budget.rounds[0].scale == 0
    done = released.n_rounds
    for t in rounds(estimator, done + 1, done + n_rounds):
        rows, scale = recipe.sample(documents, released, streams, recipe.subsampling_ratio)
        train_round(
            documents,
            released,
            budget,
            curator,
            rows=rows,
            scale=scale,
            factor=recipe.infer(estimator, documents, released, rows),
            norm=norm * document_schedule(t, estimator.max_iter)[0],
            rate=recipe.rate(estimator, t, exact),
            topic_word_prior=estimator.topic_word_prior,
        )
    return released


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
