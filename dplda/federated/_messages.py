"""The two messages of a round of iFTM. Party and master exchange nothing else.

Every message is valid: its constructor accepts only a table of probabilities with valid
numbers. Its bytes are a safetensors file, which is read without running code.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from dplda.core._corpus import LARGEST_COUNT, check_topics
from dplda.core._texts import check_model, words_of
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._messages import warn_user
from dplda.privacy import PrivacyLeakWarning
from dplda.privacy._ledger import as_ledger
from dplda.release._container import MAX_BYTES, pack, unpack
from dplda.release._records import read_flag
from dplda.release._release import warn_of_leaks

MAX_HEADER = 10_000  # bytes of all but the tables, which are parsed before any check
UNITS = ("word", "token", "document", "user")


def most_bytes(n_topics: int, n_words: int) -> int:
    """Size of the largest message: a table, and a number for each topic, in float32."""
    n_cells = n_topics * (n_words + 1)
    return min(MAX_BYTES, 8 + MAX_HEADER + 4 * n_cells)  # the header's length has 8


class MessageError(ValueError):
    """A message that is malformed, or that does not fit the round it was sent for."""


@dataclass(frozen=True, eq=False)
class _Message:
    """Common part of both messages, and their bytes."""

    kind: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]] = ("table",)

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
            Every field; arrays are in float32.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: values.pop(name) for name in self.arrays}
        return pack(self.kind, values, arrays, max_header=MAX_HEADER)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray, *, max_bytes: int = MAX_BYTES) -> Self:
        """Read a message that `to_bytes` wrote; anything else is a `MessageError`.

        Parameters
        ----------
        data : bytes
            The received bytes, of unknown origin.
        max_bytes : int, default=2**31
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
            values, arrays = unpack(cls.kind, bytes(data), max_header=MAX_HEADER)
        except ValueError as error:
            raise MessageError(f"the data are no {cls.__name__}: {error}") from None
        names = {field.name for field in fields(cls)} - set(cls.arrays)
        is_float32 = {array.dtype == np.float32 for array in arrays.values()}
        if (set(values), set(arrays), is_float32) != (names, {*cls.arrays}, {True}):
            raise MessageError(f"this {cls.__name__} has wrong fields, or other tables")
        values.update(arrays)
        return cls(**values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Message) and self.to_bytes() == other.to_bytes()


@dataclass(frozen=True, eq=False)
class NextModel(_Message):
    """The master's request to a party: the start of a round, computed from releases.

    Parameters
    ----------
    round : int
        The number of the round, from 0.
    vocabulary : str
        `vocabulary_hash` of the columns.
    table : array-like of shape (n_topics, n_words)
        Probabilities of words in topics; rows sum to 1. Kept as read-only float32. If
        there are no topics, the party starts from its own model.
    """

    kind = "dplda-next-model"


@dataclass(frozen=True, eq=False)
class LocalModel(_Message):
    """The party's answer to the master: topics, their weight and their privacy cost.

    Parameters
    ----------
    round, vocabulary, table : int, str and array-like
        As in :class:`NextModel`, with at least one topic. Normalization does not
        protect.
    party : str
        Name of the party: 1 to 60 printable characters.
    weight : float
        Amount of data, in tokens: a public or a noisy number.
    epsilon, delta : float
        Privacy cost of the party so far; an infinite epsilon for a party without
        privacy.
    unit : {"word", "token", "document", "user"}
        The unit of the party's guarantee.
    evidence : array-like of shape (n_topics,), default=None
        `topic_evidence_` of each topic, NaN for one that was not tested; None if no
        topic was.
    seeded : bool, default=False
        Whether noise came from a given seed: the cost does not hold against anyone who
        knows or guesses it.

    Notes
    -----
    **Privacy.** The master sees every field, and the other parties see the merged
    topics. Only releases may enter. The epsilon is the party's own statement; nobody
    else can check it.
    """

    kind = "dplda-local-model"
    arrays = ("table", "evidence")

    party: str
    weight: float
    epsilon: float
    delta: float
    unit: str
    evidence: npt.NDArray[np.float32] | None = None
    seeded: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        n_topics = len(self.table)
        if not n_topics:
            raise MessageError(
                f"table must have at least one topic, got shape {self.table.shape}"
            )
        if self.evidence is None:
            object.__setattr__(self, "evidence", _evidence(np.full(n_topics, np.nan)))
        elif self.evidence.shape != (n_topics,):
            raise MessageError(
                f"evidence must have a number for each of {n_topics} topics, got shape "
                f"{self.evidence.shape}"
            )

    @classmethod
    def from_estimator(
        cls, model: BaseEstimator, party: str, round_number: int, vocabulary: str
    ) -> LocalModel:
        """Make the message of a fitted model. Any private model can join a federation.

        Parameters
        ----------
        model : estimator
            A fitted model, or the result of `load_release`. Only `components_`,
            `topic_evidence_`, `privacy_`, the ledger and the words are read.
        party : str
            Name of the party.
        round_number : int
            The round that the message answers, from 0.
        vocabulary : str
            `vocabulary_hash` of the columns.

        Returns
        -------
        message : LocalModel
            Its weight is the sum of `components_`. It states the larger of two
            epsilons: of the model, and of all charges to its `ledger`. Without a
            ledger, it states one fit.

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
            `answer_request` warns of the latter once for each fit.

        Notes
        -----
        **Privacy.** Post-processing of releases. A message leaves out the distance of
        the noise from its ideal law, which `privacy_` states, and which is below 1e-17
        for each fit. At delta 0, the stated epsilon is therefore that of the ideal
        mechanism.
        """
        return message_of(model, party, round_number, vocabulary, has_answered=False)


def message_of(
    model: BaseEstimator,
    party: str,
    round_number: int,
    vocabulary: str,
    *,
    has_answered: bool,
) -> LocalModel:
    """The message of a model; `has_answered` says whether its fit made one before."""
    check_model(model)
    guarantee = model.privacy_
    warn_of_leaks(type(model).__name__, guarantee)
    components = check_topics(model.components_, "components_")  # public
    totals = components.sum(axis=1, keepdims=True)
    words = words_of(model)
    if words is not None and vocabulary != vocabulary_hash(words):
        raise MessageError(
            "the model was trained on words of another vocabulary; count the words "
            "of the federation, in its order, and fit again"
        )
    ledger = getattr(model, "ledger", None)
    epsilon = guarantee.epsilon
    if ledger is not None:
        epsilon = max(epsilon, as_ledger(ledger).epsilon_at(guarantee.delta))
    if ledger is None and epsilon < math.inf and round_number and not has_answered:
        warn_user(
            f"this message states the cost of one fit, epsilon {epsilon:.4g}; if "
            f"{party} has answered earlier rounds with other fits, their costs add "
            "up: fit all of them with one ledger",
            PrivacyLeakWarning,
        )
    return LocalModel(
        round=round_number,
        vocabulary=vocabulary,
        table=(components / totals).astype(np.float32),
        party=party,
        weight=float(totals.sum()),
        epsilon=epsilon,
        delta=guarantee.delta,
        unit=guarantee.unit,
        evidence=getattr(model, "topic_evidence_", None),
        seeded=guarantee.seeded,
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
    is_list = np.iterable(words) and not isinstance(words, (str, bytes))
    found = list(words) if is_list else []
    if not found or not all(isinstance(word, str) for word in found):
        raise MessageError(
            "words must be a sequence of strings, one per column, and at least one"
        )
    if len(set(found)) < len(found):
        raise MessageError(
            f"words must be all different, got {len(found)}, some of them repeated"
        )
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _evidence(evidence: npt.ArrayLike | None) -> npt.NDArray[np.float32] | None:
    """A read-only copy in float32, without infinite numbers."""
    if evidence is None:
        return None
    array = _floats("evidence", evidence)
    if np.isinf(array).any():
        raise ValueError("evidence must hold finite numbers, or NaN, got infinite ones")
    array.flags.writeable = False
    return array


def _floats(name: str, given: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """A copy in float32."""
    try:
        if np.iscomplexobj(given):
            raise TypeError
        with np.errstate(over="ignore"):  # an overflow becomes infinite, and is refused
            return np.array(given, dtype=np.float32, order="C")
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be an array of numbers") from None


def _table(table: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """A read-only copy in float32 whose rows are probabilities."""
    array = _floats("table", table)
    if array.ndim != 2 or array.shape[1] < 1:
        raise ValueError(
            f"table must have shape (n_topics, n_words), got {array.shape}"
        )
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(
            "table must hold probabilities, got negative, infinite or NaN entries"
        )
    error = np.abs(array.sum(axis=1, dtype=np.float64) - 1).max(initial=0.0)
    # Of a sum of as many numbers in single precision: their errors have both signs. A
    # bound in proportion to the number of words would let rows of zeros pass.
    rounding = math.sqrt(array.shape[1]) * float(np.finfo(np.float32).eps)
    if error > rounding:
        raise ValueError(
            f"rows of table must sum to 1 within {rounding:.1g}, got an error of "
            f"{error:.3g}; divide each topic by its sum"
        )
    array.flags.writeable = False
    return array


def _check_text(name: str, value: object, pattern: str, allowed: str) -> str:
    """The text of a field, which must match a regular expression as a whole."""
    if isinstance(value, str) and re.fullmatch(pattern, value) and value.isprintable():
        return value
    # a text of unknown origin is cut
    shown = reprlib.repr(value) if isinstance(value, str) else type(value).__name__
    raise MessageError(f"{name} must be {allowed}, got {shown}")


def check_name(name: object) -> str:
    """The name of a party."""
    allowed = "a name of 1 to 60 printable characters"
    return _check_text("party", name, ".{1,60}", allowed)


def _vocabulary(digest: object) -> str:
    allowed = "the 64 hexadecimal digits that vocabulary_hash returns"
    return _check_text("vocabulary", digest, "[0-9a-f]{64}", allowed)


def _unit(unit: object) -> str:
    return _check_text("unit", unit, "|".join(UNITS), f"one of {UNITS}")


# The check of each field: returns the value, or raises TypeError or ValueError.
_CHECKED: dict[str, Callable[..., object]] = {
    "round": partial(check_integer, "round", low=0),
    "vocabulary": _vocabulary,
    "table": _table,
    "party": check_name,
    "weight": partial(check_number, "weight", low=0.0, high=LARGEST_COUNT),
    "epsilon": partial(check_number, "epsilon", low=0.0, high=math.inf),
    "delta": partial(check_number, "delta", low=0.0, high=1.0),
    "unit": _unit,
    "evidence": _evidence,
    "seeded": partial(read_flag, "seeded"),
}
