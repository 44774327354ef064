"""One guarantee for all steps of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from dplda.core._private_fit import COLUMNS, UNKNOWN_WORDS, VOCABULARY
from dplda.core._texts import check_model, flat_steps, thawed, words_after, words_of
from dplda.privacy import ApproximateDP, Guarantee, NonPrivate, epsilon_of
from dplda.privacy._events import Event

__all__ = ["pipeline_guarantee"]


def pipeline_guarantee(pipeline: Pipeline) -> Guarantee:
    """State the guarantee of a fitted pipeline: all of its steps, together.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted. Steps with ``privacy_`` are private. Steps that learn nothing from data,
        such as a vectorizer with a given vocabulary, cost nothing. Any other fitted
        step makes epsilon infinite, and the guarantee names it: ``pipeline[:-1]``
        leaves out the last one. Steps of a Pipeline, FeatureUnion or ColumnTransformer
        inside of the pipeline count like its own: they read the same rows, and their
        costs add up. Two steps that drew their noise from a given seed make epsilon
        infinite, as in a ledger.

    Returns
    -------
    guarantee : Guarantee
        Of everything that the steps hold, at the largest delta of the steps;
        `epsilon_at` states it at another one. Its `provenance` says where the
        vocabulary comes from.

    Raises
    ------
    TypeError
        If `pipeline` is not a Pipeline; a single model has its guarantee in
        ``privacy_``.
    ValueError
        If the steps protect different units, no step has a guarantee, or a model was
        trained on other words than those that the steps before it count.

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
    return combined_guarantee(pipeline)


def combined_guarantee(pipeline: Pipeline, *, seeds_differ: bool = False) -> Guarantee:
    """`pipeline_guarantee`, also for steps whose seeds are known to differ."""
    check_model(pipeline, "a fitted Pipeline")
    pipeline = thawed(pipeline)
    if not isinstance(pipeline, Pipeline):
        raise TypeError(
            f"pipeline must be a Pipeline, got {type(pipeline).__name__}; a single "
            "model states its guarantee in privacy_"
        )
    steps = list(_all_steps(pipeline))
    # one after the other: what a step says of its columns is about those of the step
    # before
    straight = len(steps) == sum(1 for _ in flat_steps(pipeline))
    parts: list[Guarantee] = []
    leaks, settings, origins = [], [], []
    chose_columns = False
    for name, step in steps:
        if hasattr(step, "privacy_"):
            parts.append(step.privacy_)
            chose_columns |= isinstance(getattr(step, "vocabulary_", None), Mapping)
            continue
        is_given = getattr(step, "fixed_vocabulary_", False) and not hasattr(
            step, "idf_"
        )
        if get_tags(step).requires_fit and not is_given:
            leaks.append(
                f"{name!r} was fitted to the documents without privacy: publish the "
                "steps before it, or fit it to public data"
            )
        elif not _only_counts(step):
            settings.append(
                f"the settings of {name!r} are public, and it treats each document by "
                "itself"
            )
        if hasattr(step, "vocabulary_"):
            origin = (
                f"given to {name!r}, public by assumption"
                if is_given
                else f"learned from the documents, not private; give {name!r} a public "
                "vocabulary, or take PrivateCountVectorizer"
            )
            origins.append((VOCABULARY, origin))
    if not parts:
        raise ValueError(
            f"no step has a guarantee: {', '.join(name for name, _ in steps)}"
        )
    for what in ("unit", "relation"):
        values = dict.fromkeys(getattr(part, what) for part in parts)
        if len(values) > 1:
            raise ValueError(
                f"the steps state guarantees for different {what}s "
                f"({'; '.join(values)}), which do not add up; fit all steps with "
                "user_ids, or none"
            )
    if sum(part.seeded for part in parts) > 1 and not seeds_differ:
        leaks.append(
            "the noise of two steps was drawn from a given seed, and cancels if the "
            "seeds are equal: leave random_state=None"
        )
    assumptions = dict.fromkeys(
        sentence for part in parts for sentence in part.assumptions
    )
    origins += [origin for part in parts for origin in part.provenance]
    if straight and chose_columns:  # a model takes columns as they are
        assumptions.pop(COLUMNS, None)
    if straight and any(o[0] == VOCABULARY and o not in UNKNOWN_WORDS for o in origins):
        origins = [origin for origin in origins if origin not in UNKNOWN_WORDS]
    delta = max(part.delta for part in parts)
    events = [event for part in parts for event in _charged(part)] + [
        NonPrivate()
    ] * len(leaks)
    distance = math.fsum(part.total_variation for part in parts)
    return Guarantee(
        unit=parts[0].unit,
        relation=parts[0].relation,
        epsilon=epsilon_of(events, delta, total_variation=distance),
        delta=delta,
        mechanism="; ".join([*leaks, *dict.fromkeys(part.mechanism for part in parts)]),
        sensitivity=1.0,
        noise_scale=None,
        seeded=any(part.seeded for part in parts),
        assumptions=(*assumptions, *settings),
        events=tuple(events),
        total_variation=distance,
        provenance=tuple(dict.fromkeys(origins)),
        trusted=parts[0].trusted,
        ledger=parts[-1].ledger,
        receipt=parts[-1].receipt,
        theorem="docs/accounting.md",
    )


def _all_steps(estimator: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and estimators of all steps, also of those side by side."""
    steps = list(flat_steps(estimator, prefix))
    _check_words(steps)
    for name, step in steps:
        if isinstance(step, FeatureUnion):
            parts = step.transformer_list
        elif isinstance(step, ColumnTransformer):
            parts = [part[:2] for part in step.transformers_]
        else:
            yield name, step
            continue
        for part, inner in parts:
            yield from _all_steps(inner, f"{name}__{part}__")


def _charged(part: Guarantee) -> tuple[Event, ...]:
    """The events of a step, or its statement if larger.

    If the statement is larger, the events are not all.
    """
    if part.epsilon <= part.epsilon_at(part.delta) * (1.0 + 1e-9):
        return part.events
    return (
        NonPrivate()
        if math.isinf(part.epsilon)
        else ApproximateDP(part.epsilon, part.delta),
    )


def _check_words(steps: list[tuple[str, Any]]) -> None:
    """Refuse a model of other words: its columns would be counts of the wrong words."""
    for i, (name, model) in enumerate(steps):
        if isinstance(model, FeatureUnion | ColumnTransformer):
            return  # columns of several steps have no words
        known = words_of(model) if hasattr(model, "components_") else None
        counted = None if known is None else words_after(steps[:i])
        if counted is not None and counted != known:
            raise ValueError(
                f"{name!r} was trained on other words than {steps[i - 1][0]!r} counts "
                f"({len(known or ())} and {len(counted)} columns); give the vectorizer "
                "the words of the model as its vocabulary, in the same order"
            )


def _only_counts(step: Any) -> bool:
    """Whether a step counts words without functions or stop words of the caller."""
    if type(step) is not CountVectorizer:
        return False
    functions = (step.preprocessor, step.tokenizer, step.analyzer)
    return not any(map(callable, functions)) and isinstance(step.stop_words, str | None)
