"""Bytes of unknown origin become a `ReleasedModel`, or an error. See ``docs/release.md``."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from dplda.core._fold_in import LARGEST_PRIOR
from dplda.core._texts import vectorizer_from
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._vocabulary import hash_words
from dplda.leaf._wire import Format, as_number
from dplda.privacy import Guarantee
from dplda.privacy._bounds_on_epsilon import grouped
from dplda.privacy._events import from_record
from dplda.privacy._guarantee import LARGEST_VARIATION
from dplda.release._released_model import ReleasedModel

FORMAT = Format("dplda-release", "F64", max_header=2**24, version="2")
MAX_BYTES = 2**33
MAX_TEXT = 10_000
LARGEST = 1e300  # evidence of a topic
# Limits on events: no file of unknown origin can make the accountant compute for hours.
MAX_STEPS, MAX_KINDS = 1_000_000, 50

# A seed would remove the noise, and a path would describe the owner. The others do not define the
# model.
NOT_RELEASED = ("random_state", "ledger", "n_jobs", "verbose", "prior_components")

_FIELDS = {
    "dplda", "estimator", "parameters", "n_iter", "vocabulary", "vocabulary_sha256",
    "named_columns", "vectorizer", "guarantee", "topic_signal", "topic_evidence",
}  # fmt: skip


def read_release(file: io.BufferedIOBase) -> ReleasedModel:
    """The model in a file that may come from anyone."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size > MAX_BYTES:
        raise ValueError(f"it has {size} bytes, and at most {MAX_BYTES} are read")
    content, table = FORMAT.read(file, size)
    if set(content) != _FIELDS:
        raise ValueError(f"its header must have the fields {', '.join(sorted(_FIELDS))}")
    components, words = _checked_counts(table), content["vocabulary"]
    n_words = components.shape[1]
    words = None if words is None else check_vocabulary(words, n_words)
    if content["vocabulary_sha256"] != (None if words is None else hash_words(words)):
        raise ValueError("its vocabulary_sha256 is not that of its vocabulary")
    settings = content["vectorizer"]
    vectorizer = None if settings is None else vectorizer_from(settings, words, n_words)
    parameters = _parameters(content["parameters"])
    guarantee = _guarantee(content["guarantee"])
    if vectorizer is None:  # else the guarantee is that of both, and the parameters of the model
        check_statement(parameters, guarantee)
    return ReleasedModel._of(
        components,
        guarantee,
        doc_topic_prior=_prior(parameters.get("doc_topic_prior")),
        n_iter=check_integer("n_iter", content["n_iter"], 0, 2**63),
        vocabulary=words,
        named_columns=content["named_columns"] is True,
        vectorizer=vectorizer,
        estimator_name=_text("estimator", content["estimator"]),
        version=_text("dplda", content["dplda"]),
        parameters=parameters,
        strength=_strength(content["topic_signal"], content["topic_evidence"], components.shape),
    )


def _strength(
    signal: Any, evidence: Any, shape: tuple[int, ...]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Signal and evidence of the topics, if the model had them."""
    if signal is None and evidence is None:
        return None
    for name, values in (("topic_signal", signal), ("topic_evidence", evidence)):
        if not isinstance(values, list) or len(values) != shape[0]:
            raise ValueError(f"{name} must be a list of {shape[0]} numbers, one for each topic")
    words = [check_integer("topic_signal", n, 0, shape[1]) for n in signal]
    strength = [check_number("topic_evidence", x, -LARGEST, LARGEST) for x in evidence]
    return np.array(words), np.array(strength)


def _checked_counts(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore"):
        sums = table.sum(axis=1)
    if not (np.isfinite(sums).all() and table.min() >= 0 and sums.min() > 0):
        raise ValueError(
            "components_ must be finite and non-negative, with no empty topic and no infinite sum"
        )
    return table


def _parameters(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or set(values) & set(NOT_RELEASED):
        raise ValueError("parameters must be public parameters by their names")
    for name, value in values.items():
        if isinstance(value, (list, dict)):
            raise ValueError(f"the parameter {name[:40]!r} must be a number or a string")
    return {name: as_number(value) for name, value in values.items()}


def check_statement(parameters: Mapping[str, Any], guarantee: Guarantee) -> None:
    """Refuse a total epsilon or a delta that the training cannot have had.

    They may have been changed by `set_params` afterwards.
    """
    for name, least, most in (
        ("epsilon", guarantee.epsilon, math.inf),
        ("delta", guarantee.delta, guarantee.delta),
    ):
        value = parameters.get(name)
        if value is not None and not least <= check_number(name, value, 0.0, math.inf) <= most:
            raise ValueError(
                f"its parameters say {name}={value}, and its guarantee says {least:.6g}; save a "
                "model with the parameters that it was trained with"
            )


def _prior(value: Any) -> float | None:
    """Check a `doc_topic_prior`. A model that is not an LDA model has none."""
    if value is None:
        return None
    return check_number("doc_topic_prior", value, 0.0, LARGEST_PRIOR, closed="right")


def check_vocabulary(words: Any, n_words: int) -> list[str]:
    """Refuse what is not one word a column, all different."""
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise ValueError("the vocabulary must be a list of words")
    if len(words) != n_words or len(set(words)) != n_words:
        raise ValueError(
            f"the vocabulary must have {n_words} different words, one a column, got {len(words)}, "
            f"{len(set(words))} of them different"
        )
    return words


def _text(name: str, value: Any) -> str:
    """Check a text. It is printed as it is, so that it may hold no control characters."""
    if not (isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()):
        raise ValueError(f"{name} must be a string of at most {MAX_TEXT} printable characters")
    return value


def _number(name: str, value: Any) -> float:
    number = check_number(name, as_number(value), 0.0, math.inf)
    if number == math.inf and value != "inf":  # an integer beyond the largest float
        raise ValueError(f"{name} is too large")
    return number


def _distance(name: str, value: Any) -> float:
    """It is no part of epsilon where delta cannot pay for it, and a large one proves nothing."""
    return check_number(name, as_number(value), 0.0, LARGEST_VARIATION)


def _per_round(name: str, value: Any) -> Any:
    if isinstance(value, list) and value:
        return tuple(_number(name, number) for number in value)
    return None if value is None else _number(name, value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return value


def _texts(name: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list")
    return tuple(_text(name, text) for text in values)


def _pairs(name: str, values: Any) -> tuple[tuple[str, str], ...]:
    if not (isinstance(values, list) and all(isinstance(v, list) and len(v) == 2 for v in values)):
        raise ValueError(f"{name} must be a list of pairs")
    return tuple((_text(name, first), _text(name, second)) for first, second in values)


def _events(name: str, records: Any) -> tuple[Any, ...]:
    try:
        events = tuple(from_record(record) for record in records)
        groups = grouped(events)
        n_steps = sum(count for _, count in groups)
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"its privacy {name} cannot be read ({type(error).__name__})") from None
    if not groups or n_steps > MAX_STEPS or len(groups) > MAX_KINDS:
        raise ValueError(
            f"a release has 1 to {MAX_STEPS} private steps of at most {MAX_KINDS} different kinds"
        )
    return events


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "unit": _text, "relation": _text, "mechanism": _text,
    "epsilon": _number, "delta": _number, "sensitivity": _number, "total_variation": _distance,
    "noise_scale": _per_round, "noise_multiplier": _per_round, "seeded": _flag,
    "assumptions": _texts, "events": _events, "trusted": _text, "provenance": _pairs,
    "ledger": _text, "receipt": _text, "theorem": _text,
}  # fmt: skip


# In files of earlier versions; the card has a row for what is not covered.
_NO_CONDITION = "scores, perplexities and transforms of private documents are not covered"


def _guarantee(record: Any) -> Guarantee:
    """Make the guarantee. Its constructor refuses an epsilon below the cost of the events."""
    names = {field.name for field in fields(Guarantee)}
    if not isinstance(record, dict) or set(record) != names:
        raise ValueError(f"the guarantee must have the fields {', '.join(sorted(names))}")
    values = {name: _READERS[name](name, value) for name, value in record.items()}
    values["assumptions"] = tuple(text for text in values["assumptions"] if text != _NO_CONDITION)
    try:
        return Guarantee(**values)
    except (ArithmeticError, RuntimeError) as error:  # at absurd numbers
        raise ValueError(f"its guarantee cannot be computed ({type(error).__name__})") from None
