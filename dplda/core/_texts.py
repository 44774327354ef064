"""Texts, their words, and the steps of a pipeline from texts to topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

Named: TypeAlias = tuple[str, BaseEstimator]  # an estimator with its name


def texts_in(X: object) -> list[str] | None:
    """The texts of a column or of an iterable; None for any other X, such as counts."""
    if isinstance(X, (str, bytes)):
        raise ValueError("X is a single text; pass [text]")
    is_column = len(getattr(X, "shape", (0,))) == 1 and not sp.issparse(X)
    if not (isinstance(X, Iterable) and is_column) or isinstance(X, Mapping):
        return None
    documents = list(X)
    if not any(_may_be_text(document) for document in documents):
        return None
    return list(each_text("X", documents))


def each_text(name: str, documents: Iterable[object]) -> Iterator[str]:
    """The documents one after the other; ValueError unless they are str or UTF-8."""
    for document in documents:
        if isinstance(document, bytes):
            try:
                yield document.decode()
            except UnicodeError:  # its message may quote the text
                raise ValueError(
                    f"{name} holds bytes that are not UTF-8; decode them, for instance "
                    "by text.decode('cp1252')"
                ) from None
        elif isinstance(document, str):
            yield str(document)
        else:
            raise ValueError(
                f"{name} must be texts (str), got {type(document).__name__}; pass '' "
                "for a missing text, and join words by spaces"
            )


def _may_be_text(document: object) -> bool:
    """Whether a document is a text, words, or None, and not a row of counts."""
    words = isinstance(document, (list, tuple)) and any(
        isinstance(word, str) for word in document
    )
    return document is None or isinstance(document, (str, bytes)) or words


def check_model(
    model: object, expected: str = "a fitted topic model", *, holds: str | None = None
) -> None:
    """Refuse an object that is not a fitted estimator.

    scikit-learn's error would print the object, which may hold texts.
    """
    if not hasattr(model, "fit"):
        raise TypeError(f"expected {expected}, got {type(model).__name__}")
    check_is_fitted(model)
    if holds is not None and not hasattr(model, holds):
        raise TypeError(f"expected {expected}, got {type(model).__name__}")


def column_words(vocabulary: BaseEstimator | Iterable[object]) -> list[str]:
    """The words of the columns, from a vectorizer, a list, or a dict to columns."""
    if isinstance(vocabulary, str):
        raise TypeError(
            f"vocabulary must be a vectorizer or a list of words, got {vocabulary!r}"
        )
    if isinstance(vocabulary, Mapping):
        if not all(isinstance(word, str) for word in vocabulary):
            raise ValueError(
                "the names of the words must be a list of str, or a dict of str to int"
            )
        return sorted(map(str, vocabulary), key=vocabulary.__getitem__)
    if hasattr(vocabulary, "get_feature_names_out"):
        try:
            vocabulary = vocabulary.get_feature_names_out()
        except NotFittedError:
            raise ValueError(
                f"the {type(vocabulary).__name__} has no words yet; fit it, with a "
                "charge, if it is a PrivateCountVectorizer, or give it a public "
                "vocabulary. The private matrix must have the same columns"
            ) from None
    return [str(word) for word in vocabulary]


def words_of(estimator: object) -> list[str] | None:
    """The words of the columns of a fitted topic model; None if unknown."""
    for name in ("vocabulary_", "feature_names_in_"):
        words = getattr(estimator, name, None)
        if words is not None:
            return column_words(words)
    return None


def thawed(estimator: object) -> BaseEstimator:
    """The estimator in a `FrozenEstimator`; any other estimator as it is."""
    return estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator


def flat_steps(estimator: object, prefix: str = "") -> Iterator[Named]:
    """Names and estimators of the steps of pipelines; one step for an estimator."""
    step = thawed(estimator)
    if isinstance(step, Pipeline):
        for name, inner in step.steps:
            yield from flat_steps(inner, f"{prefix}{name}__")
    elif step is not None and not isinstance(step, str):  # left out, or passed through
        yield prefix.removesuffix("__") or type(step).__name__, step


def words_after(steps: Iterable[Named]) -> list[str] | None:
    """Names of the columns that fitted transformers return; None if unknown."""
    names = None
    for _, step in steps:
        named = hasattr(step, "get_feature_names_out")
        names = step.get_feature_names_out(names) if named else None
    return None if names is None else [str(name) for name in names]


class CountsBySettings:
    """A vectorizer that counts as a CountVectorizer with the same settings.

    Each class states this for itself, because a subclass may count differently.
    """

    def _rule(self) -> Callable[[Any], list[str]]:
        """The function that splits a text into words: `Words`, or the caller's."""
        raise NotImplementedError
