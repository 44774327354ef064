"""The two messages of a round of iFTM. Party and master exchange nothing else.

A message is always valid: its constructor refuses everything except a table of
probabilities with valid numbers. Its bytes are a safetensors file, which is read
without running code.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dplda.core._corpus import check_topics
from dplda.core._texts import check_model, words_of
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._messages import warn_user
from dplda.privacy import PrivacyLeakWarning
from dplda.privacy._ledger import as_ledger
from dplda.release._container import pack, unpack
from dplda.release._release import warn_of_leaks

# Bounds against messages that were made to exhaust the memory, or the numbers behind a
# float.
MAX_BYTES = 2**28  # 300 topics of 200,000 words
MAX_HEADER = 4096  # the fields of a valid message need at most 1,376
MAX_OVERHEAD = MAX_HEADER + 8  # bytes of a message besides its table
MAX_ROUND = 2**31 - 1  # one a second for 68 years
MAX_WEIGHT = 2.0**53  # all whole numbers below are floats
MAX_NAME = 64  # characters of the name of a party
# rows that were normalized in float32 miss 1 by about 1e-5 at most
ROW_SUM_TOLERANCE = 1e-4
UNITS = ("word", "token", "document", "user")


class MessageError(ValueError):
    """A message that is malformed, or that does not fit the round it was sent for."""


@dataclass(frozen=True, eq=False)
class _Message:
    """Common part of both messages, and their bytes."""

    kind: ClassVar[str]

    round: int
    vocabulary: str
    table: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        for field in fields(self):
            try:
                value = _CHECKED[field.name](getattr(self, field.name))
            except (TypeError, ValueError) as error:
                raise MessageError(str(error)) from None
            object.__setattr__(self, field.name, value)

    def to_bytes(self) -> bytes:
        """The message as sent: a safetensors file with a SHA-256 (``docs/release.md``).

        Returns
        -------
        data : bytes
            Every field, and the table in float32.
        """
        values = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name != "table"
        }
        return pack(self.kind, values, {"table": self.table}, max_header=MAX_HEADER)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray, *, max_bytes: int = MAX_BYTES) -> Self:
        """Read a message that `to_bytes` wrote; anything else is a `MessageError`.

        Parameters
        ----------
        data : bytes
            The received bytes, of unknown origin.
        max_bytes : int, default=2**28
            Longer data are refused without being read.

        Returns
        -------
        message : object of this class
            The message.
        """
        if not isinstance(data, (bytes, bytearray)):
            raise MessageError(f"a message is bytes, got {type(data).__name__}")
        if len(data) > max_bytes:
            raise MessageError(
                f"the message has {len(data)} bytes, and at most {max_bytes} are read"
            )
        try:
            values, tables = unpack(cls.kind, bytes(data), max_header=MAX_HEADER)
        except ValueError as error:
            raise MessageError(f"the data are no {cls.__name__}: {error}") from None
        names = {field.name for field in fields(cls)} - {"table"}
        if (
            set(values) != names
            or set(tables) != {"table"}
            or tables["table"].dtype != np.float32
        ):
            raise MessageError(
                f"this {cls.__name__} has wrong fields, or another table"
            )
        return cls(**values, table=tables["table"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Message) and self.to_bytes() == other.to_bytes()


@dataclass(frozen=True, eq=False)
class NextModel(_Message):
    """The master's request to a party: the model a round starts from, from releases.

    Parameters
    ----------
    round : int
        The number of the round, from 0.
    vocabulary : str
        `vocabulary_hash` of the columns.
    table : array-like of shape (n_topics, n_words)
        Probabilities of words in topics; rows sum to 1. Kept as read-only float32.
        Without topics, the party starts from a model of its own.
    """

    kind = "dplda-next-model"


@dataclass(frozen=True, eq=False)
class LocalModel(_Message):
    """The party's answer to the master: topics, their weight and their privacy cost.

    Parameters
    ----------
    round, vocabulary, table : int, str and array-like
        As in :class:`NextModel`, with at least one topic. The normalization protects
        nothing.
    party : str
        Name of the party: 1 to 64 printable characters.
    weight : float
        Amount of data, in tokens: a public or a noisy number.
    epsilon, delta : float
        Privacy cost of the party so far; an infinite epsilon for a party without
        privacy.
    unit : {"word", "token", "document", "user"}
        The unit of the party's guarantee.

    Notes
    -----
    **Privacy.** The master sees every field, and the other parties see the merged
    topics. Only releases may enter. The epsilon is the party's own statement, which
    nobody else can check.
    """

    kind = "dplda-local-model"

    party: str
    weight: float
    epsilon: float
    delta: float
    unit: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not len(self.table):
            raise MessageError(
                f"table must have at least one topic, got shape {self.table.shape}"
            )

    @classmethod
    def from_estimator(
        cls, model: Any, party: str, round_number: int, vocabulary: str
    ) -> LocalModel:
        """Make the message of a fitted model. Any private model can join a federation.

        Parameters
        ----------
        model : estimator
            A fitted model, or the result of `load_release`. Only `components_`,
            `privacy_`, the ledger and the words are read.
        party : str
            Name of the party.
        round_number : int
            The round that the message answers, from 0.
        vocabulary : str
            `vocabulary_hash` of the columns.

        Returns
        -------
        message : LocalModel
            Its weight is the sum of `components_`. It states the larger of the epsilon
            of the model and of all that its `ledger` was charged; without a ledger, one
            fit.

        Raises
        ------
        ValueError
            If a topic is empty or has a negative entry.
        MessageError
            If the model knows other words.

        Warns
        -----
        PrivacyLeakWarning
            If the model has no guarantee, or drew its noise from a given seed, or if a
            message of a later round states one fit, because no ledger is given.

        Notes
        -----
        **Privacy.** Post-processing of releases. The distance of the noise from its
        ideal law, which `privacy_` states and which is below 1e-17 for each fit, is not
        in a message: at delta 0, its epsilon is that of the ideal mechanism.
        """
        check_model(model)
        guarantee = model.privacy_
        warn_of_leaks(type(model).__name__, guarantee)
        components = check_topics(model.components_, "components_")  # public
        totals = components.sum(axis=1, keepdims=True)
        words = words_of(model)
        if words is not None and vocabulary != vocabulary_hash(words):
            raise MessageError(
                "the model was trained on other words than those of this vocabulary; "
                "count the words of the federation, in its order, and fit again"
            )
        ledger, epsilon = getattr(model, "ledger", None), guarantee.epsilon
        if ledger is not None:
            epsilon = max(epsilon, as_ledger(ledger).epsilon_at(guarantee.delta))
        elif round_number > 0 and not hasattr(model, "refine"):
            warn_user(
                "this message states the cost of one fit, epsilon "
                f"{guarantee.epsilon:.4g}; if {party} has answered earlier rounds with "
                "other fits, their costs add up: fit all of them with one ledger",
                PrivacyLeakWarning,
            )
        return cls(
            round_number,
            vocabulary,
            (components / totals).astype(np.float32),
            party,
            float(totals.sum()),
            epsilon,
            guarantee.delta,
            guarantee.unit,
        )


def vocabulary_hash(words: Sequence[str]) -> str:
    """Digest of a vocabulary, equal if and only if the columns are the same words.

    Parameters
    ----------
    words : sequence of str
        The words in the order of the columns, without repetition.

    Returns
    -------
    digest : str
        64 hexadecimal digits.

    Raises
    ------
    MessageError
        If there are no words, or if one of them is repeated or is not a string.
    """
    found = (
        list(words)
        if np.iterable(words) and not isinstance(words, (str, bytes))
        else []
    )
    if not found or not all(isinstance(word, str) for word in found):
        raise MessageError(
            "words must be a sequence of strings, one per column, and at least one"
        )
    if len(set(found)) < len(found):
        raise MessageError(
            f"words must be all different, got {len(found)}, some of them repeated"
        )
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _table(table: Any) -> npt.NDArray[np.float32]:
    """A read-only copy in float32 whose rows are probabilities."""
    try:
        if np.iscomplexobj(table):
            raise TypeError
        with np.errstate(over="ignore"):  # an overflow becomes infinite, and is refused
            array = np.array(table, dtype=np.float32, order="C")
    except (TypeError, ValueError, OverflowError):
        raise ValueError("table must be an array of numbers") from None
    if array.ndim != 2 or array.shape[1] < 1:
        raise ValueError(
            f"table must have shape (n_topics, n_words), got {array.shape}"
        )
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(
            "table must hold probabilities, got negative, infinite or NaN entries"
        )
    error = np.abs(array.sum(axis=1, dtype=np.float64) - 1).max(initial=0.0)
    if error > ROW_SUM_TOLERANCE:
        raise ValueError(
            f"rows of table must sum to 1 within {ROW_SUM_TOLERANCE:g}, got an error "
            f"of {error:.3g}; divide each topic by its sum"
        )
    array.flags.writeable = False
    return array


def _text(
    name: str, allowed: str, is_allowed: Callable[[str], bool]
) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, str) and is_allowed(value):
            return value
        # a text of unknown origin is cut
        shown = reprlib.repr(value) if isinstance(value, str) else type(value).__name__
        raise MessageError(f"{name} must be {allowed}, got {shown}")

    return check


check_name = _text(
    "party",
    f"a name of 1 to {MAX_NAME} printable characters",
    lambda name: 1 <= len(name) <= MAX_NAME and name.isprintable(),
)
_CHECKED: dict[str, Callable[[Any], Any]] = {
    "round": lambda value: check_integer("round", value, 0, MAX_ROUND),
    "vocabulary": _text(
        "vocabulary",
        "the 64 hexadecimal digits that vocabulary_hash returns",
        lambda text: len(text) == 64 and set(text) <= set("0123456789abcdef"),
    ),
    "table": _table,
    "party": check_name,
    "weight": lambda value: check_number("weight", value, 0.0, MAX_WEIGHT),
    "epsilon": lambda value: check_number("epsilon", value, 0.0, math.inf),
    "delta": lambda value: check_number("delta", value, 0.0, 1.0),
    "unit": _text("unit", f"one of {UNITS}", UNITS.__contains__),
}
