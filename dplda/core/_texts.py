"""The words of the columns, and the settings with which a vectorizer finds them in texts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

Vectorizer: TypeAlias = CountVectorizer | HashingVectorizer

MAX_NGRAM = 20
MAX_PATTERN = 10_000
_SETTINGS = (
    "analyzer", "binary", "lowercase", "ngram_range", "stop_words", "strip_accents",
    "token_pattern",
)  # fmt: skip
_NAMES = {"analyzer": ("word", "char", "char_wb"), "strip_accents": (None, "ascii", "unicode")}
_FUNCTIONS = ("preprocessor", "tokenizer", "analyzer", "strip_accents")
_COUNTS = {"norm": None, "alternate_sign": False}  # a hashing vectorizer with these counts


def settings_of(vectorizer: Any) -> dict[str, Any]:
    """The settings with which a fitted vectorizer of texts finds words, in plain values.

    Stop words are listed, because a name such as "english" may stand for other words in another
    version of scikit-learn.
    """
    kind = type(vectorizer).__name__
    if type(vectorizer) not in (CountVectorizer, HashingVectorizer):
        if kind != "PrivateCountVectorizer":
            raise TypeError(
                "the step before the model must be a PrivateCountVectorizer, CountVectorizer or "
                f"HashingVectorizer, got {kind}; publish the model alone, "
                "save_release(pipeline[-1], path, vocabulary=...), and describe how you count"
            )
        kind = "CountVectorizer"
    given = vectorizer.get_params(deep=False)
    for name in _FUNCTIONS:
        if callable(given.get(name)):
            raise TypeError(
                f"the {name} is a function, which a release file cannot hold; use token_pattern "
                "and the other settings instead, or apply the function to the texts before the "
                "pipeline, and say so to the readers"
            )
    if kind == "HashingVectorizer" and any(given[name] != _COUNTS[name] for name in _COUNTS):
        raise TypeError(
            "HashingVectorizer gives counts only with norm=None and alternate_sign=False, got "
            f"norm={given['norm']!r} and alternate_sign={given['alternate_sign']!r}; train again "
            "with those"
        )
    stop_words = CountVectorizer(stop_words=given["stop_words"]).get_stop_words()
    return {
        "estimator": kind,
        "binary": given.get("binary", False),
        "ngram_range": list(given.get("ngram_range", (1, 1))),
        "stop_words": None if stop_words is None else sorted(stop_words),
    } | {name: given[name] for name in ("analyzer", "lowercase", "strip_accents", "token_pattern")}


def vectorizer_from(settings: Any, words: Sequence[str] | None, n_words: int) -> Vectorizer:
    """The vectorizer of settings of unknown origin; it takes texts, and no names of files."""
    if not isinstance(settings, Mapping) or set(settings) != {"estimator", *_SETTINGS}:
        raise ValueError(f"the vectorizer must have the fields estimator, {', '.join(_SETTINGS)}")
    for name in _SETTINGS:
        if not _is_valid(name, settings[name]):
            raise ValueError(f"{name} of the vectorizer is not one that a release can have")
    options = {name: settings[name] for name in _SETTINGS}
    options["ngram_range"] = tuple(options["ngram_range"])
    if options["analyzer"] == "word" and options["token_pattern"] is None:
        raise ValueError("a vectorizer of words must have a token_pattern")
    if settings["estimator"] == "CountVectorizer" and words is not None:
        return CountVectorizer(vocabulary=list(words), **options)
    if settings["estimator"] == "HashingVectorizer" and words is None:
        return HashingVectorizer(n_features=n_words, **_COUNTS, **options)
    raise ValueError(
        "the vectorizer must be a CountVectorizer with a vocabulary, or a HashingVectorizer "
        "without one"
    )


def _is_valid(name: str, value: Any) -> bool:
    """Whether a setting of unknown origin is one that `settings_of` returns."""
    if name in ("binary", "lowercase"):
        return isinstance(value, bool)
    if name in _NAMES:
        return value in _NAMES[name]
    if name == "ngram_range":
        is_pair = isinstance(value, list) and [type(n) for n in value] == [int, int]
        return is_pair and 1 <= value[0] <= value[1] <= MAX_NGRAM
    if value is None:
        return True
    if name == "stop_words":
        return isinstance(value, list) and all(isinstance(word, str) for word in value)
    if not isinstance(value, str) or len(value) > MAX_PATTERN:
        return False
    try:
        return re.compile(value).groups <= 1  # the pattern of a word
    except (re.error, OverflowError, RecursionError):
        return False


def texts_in(X: Any) -> list[str] | None:
    """The texts of a list or a column; None if X is something else, such as a matrix of counts."""
    if isinstance(X, (str, bytes)):
        raise ValueError("X is a single text; pass [text]")
    if sp.issparse(X) or (not isinstance(X, (list, tuple)) and len(getattr(X, "shape", ())) != 1):
        return None
    documents = list(X)
    if not any(_may_be_text(document) for document in documents):
        return None
    others = {type(document).__name__ for document in documents if not isinstance(document, str)}
    if others:
        raise ValueError(
            f"all documents must be texts (str), got {', '.join(sorted(others))}; pass '' for a "
            "missing text, decode bytes, and join words by spaces"
        )
    return [str(document) for document in documents]


def _may_be_text(document: Any) -> bool:
    """Whether a document is no row of counts: a text, words, or what stands for a missing text."""
    words = isinstance(document, (list, tuple)) and any(isinstance(word, str) for word in document)
    return document is None or isinstance(document, (str, bytes)) or words


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
