"""One guarantee for all steps of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from dplda.core._joint_guarantee import joint_guarantee
from dplda.core._texts import (
    Named,
    check_model,
    flat_steps,
    thawed,
    words_after,
    words_of,
)
from dplda.privacy import Guarantee

__all__ = ["pipeline_guarantee"]


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
    return joint_guarantee(
        list(_all_steps(pipeline)), is_straight=_is_straight(pipeline)
    )


def _checked_pipeline(pipeline: object) -> Pipeline:
    check_model(pipeline, "a fitted Pipeline")
    pipeline = thawed(pipeline)
    if not isinstance(pipeline, Pipeline):
        raise TypeError(
            f"pipeline must be a Pipeline, got {type(pipeline).__name__}; a single "
            "model states its guarantee in privacy_"
        )
    return pipeline


def _all_steps(estimator: BaseEstimator, prefix: str = "") -> Iterator[Named]:
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


def _branches(step: BaseEstimator) -> list[Named] | None:
    """The steps that a step runs side by side; None if it is a single step."""
    if isinstance(step, FeatureUnion):
        return list(step.transformer_list)
    if isinstance(step, ColumnTransformer):
        return [(name, inner) for name, inner, _ in step.transformers_]
    return None


def _is_straight(pipeline: Pipeline) -> bool:
    """Whether each step follows another, so that no steps are side by side."""
    return all(_branches(step) is None for _, step in flat_steps(pipeline))


def _check_words(steps: list[Named]) -> None:
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
