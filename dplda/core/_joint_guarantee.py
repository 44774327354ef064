"""The guarantee of several fits together.

Words and topics, or the steps of a pipeline, read the same documents: their costs add
up. A fit with `earlier` reads other documents: a document pays for one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import get_tags

from dplda.core._fit_guarantee import COLUMNS, UNKNOWN_WORDS, VOCABULARY
from dplda.core._texts import Named
from dplda.core._words import Words
from dplda.privacy import Guarantee, NonPrivate, epsilon_of
from dplda.privacy._events import Event
from dplda.privacy._guarantee import as_statement, cached_epsilon

Origin: TypeAlias = tuple[str, str]  # an input of a fit, and its origin
FROM_SEEDS = (
    "was drawn from a given seed, and cancels if the seeds are equal: leave "
    "random_state=None"
)


def joint_guarantee(
    fits: Sequence[Named], *, is_straight: bool = True, seeds_differ: bool = False
) -> Guarantee:
    """The guarantee of several fitted estimators, which read the same documents.

    `fits` are their names and the estimators, such as a vectorizer and a topic model.
    `is_straight`: each reads the columns of the one before it. `seeds_differ`: the
    noise of several seeded estimators does not cancel.
    """
    parts: list[Guarantee] = []
    leaks = []
    settings = []  # assumptions about steps of the caller
    origins: list[Origin] = []
    has_chosen = False  # whether a private step chose the columns of the next step
    for name, step in fits:
        words = getattr(step, "vocabulary_", None)
        if hasattr(step, "privacy_"):
            parts.append(step.privacy_)
            has_chosen |= isinstance(words, Mapping)
            continue
        if _learned_in_the_open(step):
            leaks.append(
                f"{name!r} was fitted to the documents without privacy: leave it out, "
                "publish only the steps before it, or fit it to public data"
            )
        elif not _only_counts(step):
            settings.append(
                f"the settings of {name!r} are public, and it treats each document by "
                "itself"
            )
        if words is not None:
            origins.append((VOCABULARY, _origin_of_words(name, step)))
    if not parts:
        raise ValueError(
            f"no step has a guarantee: {', '.join(name for name, _ in fits)}"
        )
    _check_alike(parts)
    if not seeds_differ and sum(part.seeded for part in parts) > 1:
        leaks.append(f"the noise of two steps {FROM_SEEDS}")
    total = added_up(parts, leaks)
    assumptions = [*total.assumptions]
    for part in parts:
        origins += part.provenance
    if is_straight:
        # a private choice of words replaces the assumption that columns are public
        if has_chosen and COLUMNS in assumptions:
            assumptions.remove(COLUMNS)
        # a step that knows where the words are from replaces "not known"
        known = [origin for origin in origins if origin not in UNKNOWN_WORDS]
        if any(name == VOCABULARY for name, _ in known):
            origins = known
    return replace(
        total,
        sensitivity=1.0,
        assumptions=(*assumptions, *settings),
        provenance=tuple(dict.fromkeys(origins)),
    )


def added_up(parts: Sequence[Guarantee], leaks: Sequence[str] = ()) -> Guarantee:
    """The first guarantee, with the cost of all: releases about the same units.

    `leaks` say in words what was released without privacy.
    """
    delta = max(part.delta for part in parts)
    paid = [charged(part) for part in parts]
    events = [event for own, _ in paid for event in own]
    events += [NonPrivate() for _ in leaks]
    distance = math.fsum(own for _, own in paid)
    assumptions = [sentence for part in parts for sentence in part.assumptions]
    return replace(
        parts[0],
        epsilon=epsilon_of(events, delta, total_variation=distance),
        delta=delta,
        mechanism="; ".join([*leaks, *dict.fromkeys(part.mechanism for part in parts)]),
        noise_scale=None,
        seeded=any(part.seeded for part in parts),
        assumptions=tuple(dict.fromkeys(assumptions)),
        events=tuple(events),
        total_variation=distance,
        ledger=parts[-1].ledger,
        receipt=parts[-1].receipt,
        theorem="docs/accounting.md",
    )


def costs_of(parts: Iterable[BaseEstimator]) -> tuple[Guarantee | None, ...]:
    """What each part of a model of texts costs by itself."""
    return tuple(getattr(part, "privacy_", None) for part in parts)


def check_parts(model: BaseEstimator) -> None:
    """Refuse a model of texts of which a part was fitted again by itself.

    Its `privacy_` states what the parts cost when it was fitted, its `_costs`. Each fit
    of a part makes a new guarantee, which may be equal: the objects are compared.
    """
    costs = vars(model).get("_costs")
    if costs is None:
        return
    of_parts = costs_of([model.vectorizer_, model.model_])
    if any(now is not then for now, then in zip(of_parts, costs, strict=True)):
        raise ValueError(
            "vectorizer_ or model_ was fitted again by itself, which privacy_ of "
            f"{type(model).__name__} does not cover; fit the whole model, or take "
            "make_pipeline(vectorizer_, model_), whose guarantee adds up both"
        )


def with_earlier_fit(today: Guarantee, earlier: Guarantee) -> Guarantee:
    """The guarantee of a model that adds the releases of an earlier fit to its own.

    No document is in both models, so that a document pays the larger cost. A user may
    be in both, and pays the sum. Earlier releases are public: later ones may depend on
    them (``docs/proofs_document.md``).
    """
    if today.unit == "document":
        events, distance = _dearer(today, earlier)
    else:
        events = (*earlier.events, *today.events)
        distance = today.total_variation + earlier.total_variation
    known = today.assumptions
    others = tuple(a for a in earlier.assumptions if a not in known)
    epsilon = cached_epsilon(events, today.delta, total_variation=distance)
    return replace(
        today,
        epsilon=max(epsilon, today.epsilon),
        events=events,
        total_variation=distance,
        seeded=today.seeded or earlier.seeded,
        assumptions=known + others,
        sensitivity=max(today.sensitivity, earlier.sensitivity),
    )


def _dearer(today: Guarantee, earlier: Guarantee) -> tuple[tuple[Event, ...], float]:
    """Events and total variation that bound the cost of each of two guarantees.

    Of two Gaussian guarantees, the one with less noise costs more at every delta. The
    curves of other events may cross; then the bound holds at the delta of today.
    """
    distance = max(today.total_variation, earlier.total_variation)
    if today.events == earlier.events:
        return today.events, distance
    of_today = today.gaussian_mu
    of_earlier = earlier.gaussian_mu
    if of_today is not None and of_earlier is not None:
        dearer = today if of_today >= of_earlier else earlier
        return dearer.events, distance
    epsilon = max(today.epsilon, earlier.epsilon_at(today.delta))
    return as_statement(epsilon, today.delta, distance)


# ---- what the fits say of themselves -------------------------------------------------


def _check_alike(parts: Sequence[Guarantee]) -> None:
    """Refuse guarantees for different units, which do not add up."""
    for what in ("unit", "relation"):
        stated = [getattr(part, what) for part in parts]
        if len(set(stated)) > 1:
            raise ValueError(
                f"the steps state guarantees for different {what}s "
                f"({'; '.join(dict.fromkeys(stated))}), which do not add up; fit all "
                "steps with user_ids, or none"
            )


def charged(part: Guarantee) -> tuple[tuple[Event, ...], float]:
    """The events of a step and their total variation.

    If `part.epsilon` is larger than the cost of `part.events`, the statement itself is
    charged instead.
    """
    if part.is_of_events:
        return part.events, part.total_variation
    return as_statement(part.epsilon, part.delta, part.total_variation)


# ---- estimators without a guarantee --------------------------------------------------


def _has_given_words(step: BaseEstimator) -> bool:
    """Whether a vectorizer learned neither words nor weights."""
    return getattr(step, "fixed_vocabulary_", False) and not hasattr(step, "idf_")


def _learned_in_the_open(step: BaseEstimator) -> bool:
    """Whether a step learned from the documents without privacy."""
    return get_tags(step).requires_fit and not _has_given_words(step)


def _origin_of_words(name: str, step: BaseEstimator) -> str:
    """Where the words of a step without a guarantee come from."""
    if _has_given_words(step):
        return f"given to {name!r}, public by assumption"
    return (
        f"learned from the documents, not private; give {name!r} a public "
        "vocabulary, or take PrivateCountVectorizer"
    )


def _only_counts(step: BaseEstimator) -> bool:
    """Whether a step counts words without functions or stop words of the caller."""
    if type(step) is not CountVectorizer:
        return False
    if isinstance(step.analyzer, Words):
        return not step.analyzer.stop_words
    functions = (step.preprocessor, step.tokenizer, step.analyzer)
    if any(callable(function) for function in functions):
        return False
    return isinstance(step.stop_words, str | None)
