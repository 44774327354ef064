"""Release files: the public part of a fitted model only. See ``docs/release.md``."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import Pipeline

from dplda.core._base import BaseTopicModel
from dplda.core._fit_guarantee import UNKNOWN_WORDS, VOCABULARY
from dplda.core._joint_guarantee import check_parts
from dplda.core._pipeline import pipeline_guarantee
from dplda.core._texts import (
    CountsBySettings,
    check_model,
    column_words,
    flat_steps,
    thawed,
    words_of,
)
from dplda.core._words import Words
from dplda.leaf._checks import LARGEST, check_integer, check_number
from dplda.leaf._messages import log_event, warn_user
from dplda.privacy import Guarantee, PrivacyLeakWarning
from dplda.release._container import load, save, unpack
from dplda.release._records import MAX_TEXT, read_digest, read_guarantee, read_text
from dplda.release._released_model import (
    KIND,
    TABLES,
    ReleasedModel,
    released_model,
    tables_of,
)

# A seed would remove the noise, a path would describe the owner, and only the guarantee
# states the budget. The others do not define the model.
NOT_RELEASED = (
    "random_state",
    "ledger",
    "epsilon",
    "delta",
    "n_jobs",
    "verbose",
    "prior_components",
    "word_vectors",
)

_FIELDS = {
    "dplda",
    "estimator",
    "parameters",
    "n_iter",
    "vocabulary",
    "vectorizer",
    "guarantee",
    "names",
    "counted_as",
}
_SETTINGS = (
    "analyzer",
    "binary",
    "language",
    "lowercase",
    "ngram_range",
    "stop_words",
    "strip_accents",
    "token_pattern",
)
_FUNCTIONS = ("preprocessor", "tokenizer", "analyzer", "strip_accents")


def save_release(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    vocabulary: Sequence[str] | None = None,
) -> None:
    """Write the public values of a fitted model to a file that `load_release` reads.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted topic model with `components_`, `privacy_` and `n_iter_`, or a fitted
        pipeline of a PrivateCountVectorizer or CountVectorizer and such a model. The
        file of a pipeline states `pipeline_guarantee`, and its model takes texts.
    path : str or path-like
        The file. An existing file is replaced as a whole or not at all.
    vocabulary : sequence of str of length n_features_in_, default=None
        The words of the columns, which must be public. None takes the words of the
        vectorizer, or `feature_names_in_`, if there are any.

    Raises
    ------
    ValueError
        If the vocabulary does not match the number of columns, or if the model cannot
        be represented in a release file. Nothing is written then.
    TypeError
        If the model has no guarantee, if the vocabulary is not a sequence of words, or
        if the file cannot hold a step of the pipeline or a setting of its vectorizer.
    OSError
        If the file cannot be written.

    Warns
    -----
    PrivacyLeakWarning
        If the model has infinite epsilon, or noise from a given seed.

    Notes
    -----
    **Privacy.** The file holds what ``docs/release.md`` lists. It does not hold
    `random_state`, the ledger, or what `partial_fit` continues with. Only its guarantee
    states epsilon and delta.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from dplda import SubLDA, load_release, save_release
    >>> vectorizer = CountVectorizer(vocabulary=["pear", "plum", "cherry"])
    >>> pipeline = make_pipeline(vectorizer, SubLDA(n_components=2, epsilon=4.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "topics.dplda")
    ...     save_release(pipeline.fit(["a pear", "plum, cherry"] * 50), path)
    ...     released = load_release(path)
    >>> released.vocabulary_.tolist(), released.transform(["Cherry and pear"]).shape
    (['pear', 'plum', 'cherry'], (1, 2))
    """
    data, released = release_bytes(model, vocabulary)
    save(path, data)
    _log("release saved", path, released)


def release_bytes(
    model: BaseEstimator, vocabulary: Sequence[str] | None = None
) -> tuple[bytes, ReleasedModel]:
    """What `save_release` writes, and what `load_release` makes of it."""
    check_model(
        model,
        "a fitted model or pipeline, or released_model() of an IFTMMaster, before the "
        "path",
    )
    vectorizer, topics, guarantee = _parts(model)
    if isinstance(topics, ReleasedModel):
        draft = copy.copy(topics)
        draft.privacy_ = guarantee
    else:
        parameters = _public_parameters(topics)  # refuses a model without a prior
        draft = released_model(
            np.asarray(topics.components_, np.float64),
            guarantee,
            doc_topic_prior=topics.doc_topic_prior_,
            n_iter=int(topics.n_iter_),
            estimator_name=type(topics).__name__,
            parameters=parameters,
            tables=tables_of(topics),
        )
    if vectorizer is not None:
        draft.settings_ = settings_of(vectorizer)
    draft.vocabulary_ = _words(vectorizer, topics, vocabulary)
    try:
        data = draft.to_bytes()
        again = read_release(data)  # what cannot be read is not written
    except (TypeError, ValueError) as error:
        shorter = "; leave the vocabulary out, and publish it next to the file"
        advice = shorter if "header" in str(error) else ""
        raise ValueError(
            f"the model cannot be represented in a release file: {error}{advice}"
        ) from error
    warn_of_leaks(type(topics).__name__, guarantee)
    return data, again


def load_release(path: str | os.PathLike[str]) -> ReleasedModel:
    """Read a model that `save_release` wrote.

    The file may come from anyone: no code in it is run.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    model : ReleasedModel
        The model, with `components_`, `privacy_`, `transform`, `score` and so on. It
        cannot be trained.

    Raises
    ------
    ValueError
        If the file is not a release file, is damaged, larger than 2 GiB, or contradicts
        itself: for example, if its epsilon is below the cost of its events.
    OSError
        If the file cannot be read.

    See Also
    --------
    save_release : Writes the file, with an example of both.

    Notes
    -----
    **Privacy.** `privacy_` is the statement of the author of the file. It fits its own
    events, and nobody can check that those events happened. The checksum detects
    damage, not forgery; a signature (``docs/release.md``) proves who wrote the file.
    """
    model = load(path, "release file", read_release)
    _log("release loaded", path, model)
    return model


def _public_parameters(model: BaseEstimator) -> dict[str, object]:
    given = model.get_params(deep=False)
    if "doc_topic_prior" not in given:
        raise TypeError(
            "a release needs doc_topic_prior to infer the topics of documents, and "
            f"{type(model).__name__} has no doc_topic_prior; publish its components_ "
            "with the card of privacy_"
        )
    given["doc_topic_prior"] = model.doc_topic_prior_
    return {name: value for name, value in given.items() if name not in NOT_RELEASED}


def _log(event: str, path: str | os.PathLike[str], model: ReleasedModel) -> None:
    log_event(
        "release",
        event,
        file=Path(path).name,
        estimator=model.estimator_name_,
        unit=model.privacy_.unit,
        epsilon=model.epsilon_,
        delta=model.delta_,
        seeded=model.privacy_.seeded,
        receipt=model.privacy_.receipt or None,
    )


def _parts(
    model: BaseEstimator,
) -> tuple[BaseEstimator | None, BaseTopicModel, Guarantee]:
    """The vectorizer, if there is one, the topic model, and the guarantee of both."""
    model = thawed(model)
    *before, (name, last) = flat_steps(model)
    is_private = isinstance(getattr(last, "privacy_", None), Guarantee)
    if not (is_private and hasattr(last, "components_")):
        raise TypeError(
            f"a release holds a topic model with a guarantee, and {name!r} has no "
            "privacy_; save a model of dplda, and leave later steps out: "
            "save_release(pipeline[:-1], path)"
        )
    if len(before) > 1:
        raise TypeError(
            "a release holds a vectorizer and a topic model, got the steps "
            f"{', '.join(name for name, _ in before)} before the model; change texts "
            "before the pipeline, and for presence instead of counts use "
            "CountVectorizer(binary=True)"
        )
    # a model of texts holds both
    check_parts(last)
    vectorizer = before[0][1] if before else getattr(last, "vectorizer_", None)
    topics = getattr(last, "model_", last)
    guarantee = last.privacy_
    if isinstance(model, Pipeline):
        guarantee = pipeline_guarantee(model)
    return vectorizer, topics, guarantee


def _words(
    vectorizer: BaseEstimator | None,
    topics: BaseTopicModel,
    vocabulary: Sequence[str] | None,
) -> list[str] | None:
    """The vocabulary to save, one word a column."""
    known = words_of(topics) if vectorizer is None else column_words(vectorizer)
    if vocabulary is None:
        return known
    words = column_words(vocabulary)
    if known is not None and known != words:
        raise ValueError(
            "vocabulary differs from the column names of the data that the model was "
            "trained on; leave it out to save those"
        )
    return check_vocabulary(words, topics.components_.shape[1])


def warn_of_leaks(name: str, guarantee: Guarantee) -> None:
    """Tell somebody who is about to show a model what its guarantee lacks."""
    if guarantee.epsilon == math.inf:
        reason = "was trained without privacy (epsilon is infinite)"
        for source in guarantee.provenance:
            if source[0] == VOCABULARY and source not in UNKNOWN_WORDS:
                reason += f"; its vocabulary: {source[1]}"
    elif guarantee.seeded:
        reason = (
            "drew its noise from a random_state: anyone who knows or guesses it can "
            "remove the noise"
        )
    else:
        return
    warn_user(
        f"this {name} {reason}. Its release says so, too. Do not show it to anyone who "
        "may not see the documents",
        PrivacyLeakWarning,
    )


def settings_of(vectorizer: BaseEstimator) -> dict[str, object]:
    """Settings with which a fitted vectorizer of texts finds words, in plain values.

    Stop words are listed, because a name such as "english" may stand for other words in
    another version of scikit-learn.
    """
    kind = type(vectorizer)
    if kind is not CountVectorizer and CountsBySettings not in kind.__bases__:
        raise TypeError(
            "the step before the model must be a PrivateCountVectorizer or "
            f"CountVectorizer, got {kind.__name__}; publish the model alone, "
            "save_release(pipeline[-1], path, vocabulary=...), and describe how you "
            "count"
        )
    given = CountVectorizer().get_params() | vectorizer.get_params(deep=False)
    by_settings = isinstance(vectorizer, CountsBySettings)
    rule = vectorizer._rule() if by_settings else given["analyzer"]
    given["language"] = None  # as scikit-learn splits
    if isinstance(rule, Words):
        stop_words = sorted(rule.stop_words) or None
        given |= vars(rule) | {"analyzer": "word", "stop_words": stop_words}
    for name in _FUNCTIONS:
        if callable(given[name]):
            raise TypeError(
                f"the {name} is a function, which a release file cannot hold; use "
                "token_pattern and the other settings instead, or apply the function "
                "to the texts before the pipeline, and say so to the readers"
            )
    stop_words = CountVectorizer(stop_words=given["stop_words"]).get_stop_words()
    given["stop_words"] = None if stop_words is None else sorted(stop_words)
    given["ngram_range"] = list(given["ngram_range"])
    return {name: given[name] for name in _SETTINGS}


# ---- reading what may come from anyone ----------------------------------------


def read_release(data: bytes) -> ReleasedModel:
    """The model in a file that may come from anyone."""
    content, tables = unpack(KIND, data)
    unknown = tables.keys() - {"components", *TABLES}
    if set(content) != _FIELDS or "components" not in tables or unknown:
        raise ValueError(
            f"it must have the fields {', '.join(sorted(_FIELDS))}, and the table "
            f"components, with or without {', '.join(TABLES)}"
        )
    components = _checked_counts(tables.pop("components"))
    n_topics, n_words = components.shape
    for name, table in tables.items():
        _check_table(name, table, n_topics, n_words)
    words = None
    if content["vocabulary"] is not None:
        words = check_vocabulary(content["vocabulary"], n_words)
    vectorizer = None
    if content["vectorizer"] is not None:
        vectorizer = vectorizer_from(content["vectorizer"], words)
    parameters = _read_parameters(content["parameters"])
    guarantee = read_guarantee(content["guarantee"])
    prior = parameters.get("doc_topic_prior")
    return released_model(
        components,
        guarantee,
        doc_topic_prior=check_number(
            "doc_topic_prior", prior, 0.0, LARGEST, closed="right"
        ),
        vocabulary=words,
        n_iter=check_integer("n_iter", content["n_iter"], 0, 2**63),
        vectorizer=vectorizer,
        settings=content["vectorizer"],
        names=_read_names(content["names"], n_topics),
        counted_as=read_digest(content["counted_as"]),
        estimator_name=read_text("estimator", content["estimator"]),
        version=read_text("dplda", content["dplda"]),
        parameters=parameters,
        tables=tables,
    )


def _read_names(names: object, n_topics: int) -> dict[int, str]:
    """Names of topics, by their rows."""
    if not isinstance(names, dict):
        raise ValueError("names must map rows of topics to texts")
    if not set(names) <= {str(k) for k in range(n_topics)}:
        raise ValueError("each name must belong to a row of the table")
    return {int(k): read_text("a name", name) for k, name in names.items()}


def _check_table(name: str, table: np.ndarray, n_topics: int, n_words: int) -> None:
    expected = TABLES[name]
    length = {"topic": n_topics, "word": n_words, "deviation": 2}[expected.each]
    fits = table.dtype == expected.dtype and table.shape == (length,)
    untested = np.isnan(table) & (name in ("topic_evidence", "n_units"))
    if not (fits and (untested | np.isfinite(table)).all()):
        raise ValueError(
            f"{name} must have one finite {np.dtype(expected.dtype)} for each "
            f"{expected.each}"
        )


def _read_parameters(parameters: object) -> dict[str, object]:
    if not isinstance(parameters, dict) or set(parameters) & set(NOT_RELEASED):
        raise ValueError("parameters must be public parameters, each with its name")
    for name, value in parameters.items():
        if isinstance(value, (list, dict)):
            raise ValueError(
                f"the parameter {name[:40]!r} must be a number or a string"
            )
    return parameters


def vectorizer_from(settings: object, words: list[str] | None) -> CountVectorizer:
    """The vectorizer of settings of unknown origin; it takes texts, not file names."""
    if (
        not isinstance(settings, dict)
        or set(settings) != set(_SETTINGS)
        or words is None
    ):
        raise ValueError(
            "the vectorizer must have a vocabulary and the fields "
            f"{', '.join(_SETTINGS)}"
        )
    try:
        _check_settings(**settings)
        vectorizer = CountVectorizer(vocabulary=words, **_counting(**settings))
        vectorizer._validate_params()
    except (TypeError, ValueError, re.error, OverflowError, RecursionError):
        raise ValueError(
            "a release cannot have the settings of its vectorizer"
        ) from None
    return vectorizer


def _counting(
    *, language: str | None, analyzer: str, binary: bool, **splitting: Any
) -> dict[str, object]:
    """Parameters of a CountVectorizer, of settings that were checked."""
    span = tuple(splitting.pop("ngram_range"))
    if language is None:
        given = {"analyzer": analyzer, "binary": binary, "ngram_range": span}
        return given | splitting
    pattern = splitting.pop("token_pattern")
    rule = Words.of(language, pattern, **splitting)
    return {"analyzer": rule, "binary": binary, "lowercase": False}


def _check_settings(
    *,
    language: str | None,
    ngram_range: Sequence[int],
    stop_words: Iterable[str] | None,
    token_pattern: str | None,
    analyzer: str,
    **others: object,
) -> None:
    """ValueError or TypeError for settings that scikit-learn lets pass."""
    if language is not None:
        if not (isinstance(language, str) and re.fullmatch("[a-z]{2,3}", language)):
            raise ValueError("language must be a code of two or three letters")
        if analyzer != "word" or [*ngram_range] != [1, 1]:
            raise ValueError("with a language, only single words are counted")
    if [type(n) for n in ngram_range] != [int, int]:
        raise ValueError("ngram_range must be two integers")
    least, most = ngram_range
    if not 1 <= least <= most <= 60:  # a reader makes so many n-grams of each word
        raise ValueError("ngram_range must be from 1 to 60")
    if isinstance(stop_words, str):  # a name, such as "english"
        raise ValueError("stop_words must be a list")
    if stop_words is not None and not all(isinstance(word, str) for word in stop_words):
        raise ValueError("stop_words must be words")
    if token_pattern is None:
        if analyzer == "word":
            raise ValueError("words need a token_pattern")
    elif len(token_pattern) > MAX_TEXT or re.compile(token_pattern).groups > 1:
        raise ValueError("token_pattern must be short, with at most one group")


def _checked_counts(table: np.ndarray) -> npt.NDArray[np.float64]:
    if table.dtype != np.float64 or table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            "components_ must be a table of topics and words, in double precision"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        sums = table.sum(axis=1)
    if not (np.isfinite(sums).all() and table.min() >= 0 and sums.min() > 0):
        raise ValueError(
            "components_ must be finite and non-negative, with no empty topic and no "
            "infinite sum"
        )
    return table


def check_vocabulary(words: object, n_words: int) -> list[str]:
    """Refuse a vocabulary that is not a list of different words, one a column."""
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise ValueError("the vocabulary must be a list of words")
    if len(words) != n_words or len(set(words)) != n_words:
        raise ValueError(
            f"the vocabulary must have {n_words} different words, one a column, got "
            f"{len(words)}, {len(set(words))} of them different"
        )
    return words
