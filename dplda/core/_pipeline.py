"""One guarantee for all steps of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from dplda.core._private_fit import COLUMNS, UNKNOWN_WORDS, VOCABULARY
from dplda.core._texts import (
    Step,
    check_model,
    flat_steps,
    thawed,
    words_after,
    words_of,
)
from dplda.core._words import Words
from dplda.privacy import Guarantee, NonPrivate, epsilon_of
from dplda.privacy._events import Event
from dplda.privacy._guarantee import as_statement

__all__ = ["pipeline_guarantee"]

Origin: TypeAlias = tuple[str, str]  # an input of a fit, and its origin
FROM_SEEDS = (
    "was drawn from a given seed, and cancels if the seeds are equal: leave "
    "random_state=None"
)


def pipeline_guarantee(pipeline: Pipeline) -> Guarantee:
    """State the guarantee of a fitted pipeline: all of its steps, together.

    Parameters
    ----------
    pipeline : Pipeline
        The fitted pipeline. Steps with ``privacy_`` are private. Steps that learn
        nothing from data, such as a vectorizer with a given vocabulary, cost nothing.
        Any other fitted step makes epsilon infinite, and the guarantee names it;
        ``pipeline[:-1]`` leaves out the last step. Steps of a Pipeline, FeatureUnion or
        ColumnTransformer inside of the pipeline count like its own steps: they read the
        same rows, and their costs add up. Two steps with seeded noise make epsilon
        infinite, as in a ledger.

    Returns
    -------
    guarantee : Guarantee
        The guarantee of all steps together, at their largest delta; `epsilon_at` gives
        epsilon at another delta. Its `provenance` says where the vocabulary comes from.

    Raises
    ------
    TypeError
        If `pipeline` is not a Pipeline; a single model has its guarantee in
        ``privacy_``.
    ValueError
        If the steps protect different units, if no step has a guarantee, or if a model
        was trained on other words than the steps before it count.

    See Also
    --------
    dplda.save_release : Publishes a vectorizer and a model with this guarantee.
    dplda.privacy.Ledger : Limits the total before anything is spent.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from dplda import PrivateCountVectorizer, SubLDA, pipeline_guarantee
    >>> texts = ["the heart is healthy", "fracture of the left arm"] * 500
    >>> pipeline = make_pipeline(
    ...     PrivateCountVectorizer(epsilon=1.0), SubLDA(2, epsilon=2.0, max_iter=5)
    ... )
    >>> round(pipeline_guarantee(pipeline.fit(texts)).epsilon, 1)
    2.3
    """
    pipeline = _checked_pipeline(pipeline)
    return guarantee_of_steps(
        list(_all_steps(pipeline)), is_straight=_is_straight(pipeline)
    )


def guarantee_of_steps(
    steps: Sequence[Step], *, is_straight: bool = True, seeds_differ: bool = False
) -> Guarantee:
    """The guarantee of fitted steps with these names, together.

    `is_straight`: each step reads the columns of the step before it. `seeds_differ`:
    the noise of several seeded steps does not cancel.
    """
    parts: list[Guarantee] = []
    leaks = []
    settings = []  # assumptions about steps of the caller
    origins: list[Origin] = []
    has_chosen = False  # whether a private step chose the columns of the next step
    for name, step in steps:
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
            f"no step has a guarantee: {', '.join(name for name, _ in steps)}"
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

    Its `privacy_` states what the parts cost when it was fitted, its `_costs`.
    """
    costs = vars(model).get("_costs")
    if costs is not None and costs != costs_of([model.vectorizer_, model.model_]):
        raise ValueError(
            "vectorizer_ or model_ was fitted again by itself, which privacy_ of "
            f"{type(model).__name__} does not cover; fit the whole model, or take "
            "make_pipeline(vectorizer_, model_), whose guarantee adds up both"
        )


# ---- the steps of a pipeline ---------------------------------------------------------


def _checked_pipeline(pipeline: object) -> Pipeline:
    check_model(pipeline, "a fitted Pipeline")
    pipeline = thawed(pipeline)
    if not isinstance(pipeline, Pipeline):
        raise TypeError(
            f"pipeline must be a Pipeline, got {type(pipeline).__name__}; a single "
            "model states its guarantee in privacy_"
        )
    return pipeline


def _all_steps(estimator: BaseEstimator, prefix: str = "") -> Iterator[Step]:
    """Names and estimators of all steps, also of steps side by side."""
    steps = list(flat_steps(estimator, prefix))
    _check_words(steps)
    for name, step in steps:
        branches = _branches(step)
        if branches is None:
            yield name, step
            continue
        for branch, inner in branches:
            yield from _all_steps(inner, f"{name}__{branch}__")


def _branches(step: BaseEstimator) -> list[Step] | None:
    """The steps that a step runs side by side; None if it is a single step."""
    if isinstance(step, FeatureUnion):
        return list(step.transformer_list)
    if isinstance(step, ColumnTransformer):
        return [(name, inner) for name, inner, _ in step.transformers_]
    return None


def _is_straight(pipeline: Pipeline) -> bool:
    """Whether each step follows another, so that no steps are side by side."""
    return all(_branches(step) is None for _, step in flat_steps(pipeline))


def _check_words(steps: list[Step]) -> None:
    """Refuse a model that was trained on other words than its columns count."""
    for i, (name, model) in enumerate(steps):
        if _branches(model) is not None:
            return  # columns of several steps have no words
        known = words_of(model) if hasattr(model, "components_") else None
        if known is None:
            continue
        counted = words_after(steps[:i])
        if counted is not None and counted != known:
            raise ValueError(
                f"{name!r} was trained on other words than {steps[i - 1][0]!r} counts "
                f"({len(known)} and {len(counted)} columns); give the vectorizer "
                "the words of the model as its vocabulary, in the same order"
            )


# ---- what they say of themselves -----------------------------------------------------


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
    if part.epsilon <= part.epsilon_at(part.delta) * (1.0 + 1e-9):
        return part.events, part.total_variation
    return as_statement(part.epsilon, part.delta, part.total_variation)


# ---- steps without a guarantee -------------------------------------------------------


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
