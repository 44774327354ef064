"""The words of the columns: who knows them, and the digest that tells two vocabularies apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted


def check_model(
    model: Any, expected: str = "a fitted topic model", *, holds: str | None = None
) -> None:
    """Refuse what is no fitted estimator; scikit-learn's error would print it, such as texts."""
    if not hasattr(model, "fit"):
        raise TypeError(f"expected {expected}, got {type(model).__name__}")
    check_is_fitted(model)
    if holds is not None and not hasattr(model, holds):
        raise TypeError(f"expected {expected}, got {type(model).__name__}")


def hash_words(words: Iterable[str]) -> str:
    """SHA-256 of the words in their order, as 64 hexadecimal digits."""
    digest = hashlib.sha256(b"words\0")
    for word in words:
        encoded = word.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)  # no two lists give the same bytes
    return digest.hexdigest()


def in_order(words: Any) -> list[str]:
    """The words of a sequence, or of a dict of words and columns such as `vocabulary_`."""
    if isinstance(words, Mapping):
        if not all(isinstance(word, str) for word in words):
            raise ValueError(
                "the names of the words must be a list of str, or a dict of str to int"
            )
        return [str(word) for word in sorted(words, key=words.__getitem__)]
    return [str(word) for word in words]


def words_of(estimator: Any) -> list[str] | None:
    """The words of the columns that a fitted topic model was trained on; None if unknown."""
    for name in ("vocabulary_", "feature_names_in_"):
        words = getattr(estimator, name, None)
        if words is not None:
            return in_order(words)
    return None


def thawed(estimator: Any) -> Any:
    """The estimator in a `FrozenEstimator`; any other estimator as it is."""
    return estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator


def flat_steps(pipeline: Pipeline, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and estimators of all steps, with those of pipelines inside of it."""
    for name, given in pipeline.steps:
        step = thawed(given)
        if isinstance(step, Pipeline):
            yield from flat_steps(step, f"{prefix}{name}__")
        elif step is not None and step != "passthrough":
            yield f"{prefix}{name}", step


def words_after(steps: Iterable[tuple[str, Any]]) -> list[str] | None:
    """The names of the columns that fitted transformers give together; None if unknown."""
    names = None
    for _, step in steps:
        named = hasattr(step, "get_feature_names_out")
        names = step.get_feature_names_out(names) if named else None
    return None if names is None else [str(name) for name in names]
