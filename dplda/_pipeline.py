"""One guarantee for all steps of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from dplda._private_fit import COLUMNS
from dplda.privacy import Event, Guarantee, NonPrivate, epsilon_of

__all__ = ["pipeline_guarantee"]


def pipeline_guarantee(pipeline: Pipeline, *, delta: float | None = None) -> Guarantee:
    """State the guarantee of a fitted pipeline: all of its steps, together.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted. Steps with ``privacy_`` are private. Steps that learn nothing from data, such as a
        vectorizer with a given vocabulary, cost nothing. Any other fitted step makes epsilon
        infinite, and the guarantee names it: ``pipeline[:-1]`` leaves out the last one.
    delta : float, default=None
        The delta at which epsilon is stated; None takes the largest of the steps.

    Returns
    -------
    guarantee : Guarantee
        Of everything that the steps hold.

    Raises
    ------
    ValueError
        If the steps protect different units, or no step has a guarantee.

    See Also
    --------
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
    check_is_fitted(pipeline)
    steps = [(name, step) for name, step in pipeline.steps if step not in (None, "passthrough")]
    private = [step for _, step in steps if hasattr(step, "privacy_")]
    if not private:
        raise ValueError(
            f"no step of this pipeline has a guarantee: {', '.join(name for name, _ in steps)}"
        )
    parts: list[Guarantee] = [step.privacy_ for step in private]
    _check_same("unit", [part.unit for part in parts])
    _check_same("relation", [part.relation for part in parts])
    leaks = [leak for name, step in steps if (leak := _leak(name, step))]
    delta = max(part.delta for part in parts) if delta is None else float(delta)
    events = [event for part in parts for event in part.events] + [NonPrivate()] * len(leaks)
    distance = math.fsum(part.total_variation for part in parts)
    return Guarantee(
        unit=parts[0].unit,
        relation=parts[0].relation,
        epsilon=_largest(events, delta, distance, parts),
        delta=delta,
        mechanism="; ".join([*leaks, *dict.fromkeys(part.mechanism for part in parts)]),
        sensitivity=1.0,
        noise_scale=None,
        noise_multiplier=None,
        seeded=any(part.seeded for part in parts),
        assumptions=_assumptions(steps, parts),
        events=tuple(events),
        total_variation=distance,
        trusted=parts[0].trusted,
        ledger=parts[-1].ledger,
        theorem="docs/accounting.md",
    )


def _largest(
    events: Iterable[Event], delta: float, distance: float, parts: list[Guarantee]
) -> float:
    """Epsilon of all events; infinite if a part states more than its events cost."""
    if any(part.epsilon == math.inf for part in parts):
        return math.inf
    return epsilon_of(events, delta, total_variation=distance)


def _check_same(what: str, values: list[str]) -> None:
    if len(set(values)) > 1:
        raise ValueError(
            f"the steps state guarantees for different {what}s ({'; '.join(dict.fromkeys(values))})"
            ", which do not add up; fit all steps with user_ids, or none"
        )


def _leak(name: str, step: Any) -> str | None:
    """What a step shows of the data without privacy; None if nothing."""
    if hasattr(step, "privacy_") or not get_tags(step).requires_fit:
        return None
    if getattr(step, "fixed_vocabulary_", False) and not hasattr(step, "idf_"):
        return None
    if hasattr(step, "vocabulary_"):
        return (
            f"the vocabulary of {name!r} was learned from the documents, which is not private: "
            "give it a public vocabulary, or take PrivateCountVectorizer"
        )
    return (
        f"{name!r} was fitted to the documents without privacy: publish the steps before it, or "
        "fit it to public data"
    )


def _assumptions(steps: list[tuple[str, Any]], parts: list[Guarantee]) -> tuple[str, ...]:
    """All assumptions; public columns are none of them if a private step chose the columns."""
    chosen = any(hasattr(step, "vocabulary_") and hasattr(step, "privacy_") for _, step in steps)
    every = dict.fromkeys(sentence for part in parts for sentence in part.assumptions)
    if chosen:
        every.pop(COLUMNS, None)
    return tuple(every)
