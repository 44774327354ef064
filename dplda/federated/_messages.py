"""The two messages of a federated round: all that crosses the wire between party and master.

A message is a frozen record that is valid or does not exist: its constructor refuses whatever is
not a table of probabilities with sensible numbers beside it. The bytes are a fixed header, a JSON
object, the table, and a checksum; reading them runs no code and allocates nothing before the
lengths agree.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from dplda._warnings import warn_user
from dplda.privacy import Guarantee, Ledger, PrivacyLeakWarning

FORMAT_VERSION = 1
MAX_BYTES = 2**28
MAX_ROUND = 2**31 - 1
MAX_WEIGHT = 2.0**53
MAX_NAME = 64
UNITS = ("word", "token", "document")

# Rows that were normalized in float32 miss 1 by about 1e-5 at most.
ROW_SUM_TOLERANCE = 1e-4

_MAGIC = b"dplda-fed"
_PREFIX = struct.Struct("<9sHI")  # magic, version, bytes of the JSON header
_MAX_HEADER = 4096
_CHECKSUM = hashlib.sha256().digest_size


class MessageError(ValueError):
    """A message that is malformed, or that does not fit the round it was sent for."""


@dataclass(frozen=True, eq=False)
class _Message:
    """What both messages share: a round, a vocabulary, a topic-word table, and their bytes."""

    kind: ClassVar[str]

    round: int
    vocabulary: str
    table: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        check_integer("round", self.round, 0, MAX_ROUND)
        if not (isinstance(self.vocabulary, str) and _is_hash(self.vocabulary)):
            raise MessageError(
                "vocabulary must be the 64 hexadecimal digits that vocabulary_hash returns, got "
                f"{_shown(self.vocabulary)}"
            )
        object.__setattr__(self, "table", _checked_table(self.table))

    @property
    def n_topics(self) -> int:
        """Rows of the table."""
        return int(self.table.shape[0])

    @property
    def n_words(self) -> int:
        """Columns of the table."""
        return int(self.table.shape[1])

    def to_bytes(self) -> bytes:
        """The message as it is sent.

        Returns
        -------
        data : bytes
            A prefix (name of the format, version, length of the header), the header (JSON: every
            field but the table, and its shape), the table (little-endian float32, row by row),
            and the SHA-256 of all that.
        """
        values = {f.name: _pack(getattr(self, f.name)) for f in fields(self) if f.name != "table"}
        header = {"kind": self.kind, "shape": list(self.table.shape), **values}
        text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii")
        prefix = _PREFIX.pack(_MAGIC, FORMAT_VERSION, len(text))
        body = prefix + text + self.table.astype("<f4").tobytes()
        return body + hashlib.sha256(body).digest()

    @classmethod
    def from_bytes(cls, data: bytes, *, max_bytes: int = MAX_BYTES) -> Self:
        """Read a message that `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
            What was received, from anybody.
        max_bytes : int, default=2**28
            Longer data are refused unread.

        Returns
        -------
        message : object of this class

        Raises
        ------
        MessageError
            When the data are anything else than one valid message of this class.
        """
        header, table = _parse(data, max_bytes)
        names = {f.name for f in fields(cls)} - {"table"}
        if header.pop("kind", None) != cls.kind or set(header) != names:
            raise MessageError(f"this is not a {cls.__name__}: wrong kind or wrong fields")
        return cls(**{name: _unpack(header[name]) for name in names}, table=table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Message) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())


@dataclass(frozen=True, eq=False)
class NextModel(_Message):
    """What the master sends a party: the model its next round starts from (Algorithm 4 of [1]_).

    Parameters
    ----------
    round : int
        The round that it starts, from 1.
    vocabulary : str
        `vocabulary_hash` of the columns.
    table : array-like of shape (n_topics, n_words)
        Probabilities of words in topics; rows sum to 1. Kept as read-only float32.

    Raises
    ------
    MessageError
        When a value is not allowed.

    Notes
    -----
    **Privacy.** It is made of local models only, which are released already.

    References
    ----------
    .. [1] D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021.
    """

    kind = "next-model"


@dataclass(frozen=True, eq=False)
class LocalModel(_Message):
    """What a party sends the master: its topics, and what they weigh and cost.

    Parameters
    ----------
    party : str
        Name of the party: 1 to 64 printable characters.
    round : int
        The round that it answers, from 0.
    vocabulary : str
        `vocabulary_hash` of the columns.
    table : array-like of shape (n_topics, n_words)
        Probabilities of words in topics; rows sum to 1 (topic-wise normalization, which is not a
        protection). Kept as read-only float32.
    weight : float
        Amount of data, in tokens: a public or an already noisy number.
    epsilon, delta : float
        What the party has spent so far; ``inf`` for a party without privacy.
    unit : {"word", "token", "document"}
        What the party's guarantee protects.

    Raises
    ------
    MessageError
        When a value is not allowed.

    Notes
    -----
    **Privacy.** Every field is shown to the master and, merged, to the other parties: only
    releases may enter. Its own epsilon is the party's statement; nobody else can check it.
    """

    kind = "local-model"

    party: str
    weight: float
    epsilon: float
    delta: float
    unit: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (
            isinstance(self.party, str)
            and 1 <= len(self.party) <= MAX_NAME
            and self.party.isprintable()
        ):
            raise MessageError(
                f"party must be a name of 1 to {MAX_NAME} printable characters, got "
                f"{_shown(self.party)}"
            )
        for name, least, most in [
            ("weight", 0.0, MAX_WEIGHT),
            ("epsilon", 0.0, math.inf),
            ("delta", 0.0, 1.0),
        ]:
            object.__setattr__(self, name, _checked_real(name, getattr(self, name), least, most))
        if self.unit not in UNITS:
            raise MessageError(f"unit must be one of {UNITS}, got {_shown(self.unit)}")

    @classmethod
    def from_estimator(
        cls,
        model: PrivateModel,
        party: str,
        round_number: int,
        vocabulary: str,
        *,
        ledger: Ledger | None = None,
    ) -> LocalModel:
        """The message of a fitted model: any private model of the package joins a federation.

        Parameters
        ----------
        model : estimator
            A fitted model: `SubLDA`, `HDPLDA`, `PrivateSVILDA`, `LPLDA`, `OLPLDA`, `IFTMParty`, or
            what `load_release` returned. Only `components_` and `privacy_` are read.
        party : str
            Name of the party.
        round_number : int
            The round that the message answers, from 0.
        vocabulary : str
            `vocabulary_hash` of the columns.
        ledger : Ledger or None, default=None
            The ledger of a party that fits again in each round. The message then states what
            all fits have cost together, if that is more than the epsilon of `model`.

        Returns
        -------
        message : LocalModel
            Its table holds the topics, its weight is the sum of `components_`.

        Raises
        ------
        MessageError
            If a topic is empty or has a negative entry, or another value is not allowed.

        Warns
        -----
        PrivacyLeakWarning
            If the model has no guarantee (infinite epsilon), or drew its noise from a given seed.

        Notes
        -----
        **Privacy.** Post-processing: `components_` and `privacy_` are released with the model. The
        weight is the sum of released pseudo-counts, never a count of the documents.
        """
        check_is_fitted(model)
        guarantee = model.privacy_
        if guarantee.epsilon == math.inf or guarantee.seeded:
            reason = "has no privacy guarantee (its epsilon is infinite)"
            if guarantee.epsilon < math.inf:
                reason = "drew its noise from a random_state: anyone who knows it can remove it"
            warn_user(
                f"this {type(model).__name__} {reason}; its topics reach the master and the other "
                "parties: fit it with a finite epsilon and random_state=None",
                PrivacyLeakWarning,
            )
        components = np.asarray(model.components_, np.float64)  # public
        totals = components.sum(axis=1, keepdims=True)
        if components.min() < 0 or totals.min() <= 0:
            raise MessageError(
                "components_ must have no negative entry and no empty topic; fit the model again"
            )
        spent = 0.0 if ledger is None else ledger.epsilon_at(guarantee.delta)
        return cls(
            party=party,
            round=round_number,
            vocabulary=vocabulary,
            table=(components / totals).astype(np.float32),
            weight=float(totals.sum()),
            epsilon=max(guarantee.epsilon, spent),
            delta=guarantee.delta,
            unit=guarantee.unit,
        )


class PrivateModel(Protocol):
    """A fitted model that was released: topics and their guarantee."""

    components_: Any
    privacy_: Guarantee


def vocabulary_hash(words: Sequence[str] | int) -> str:
    """A short name of a vocabulary: equal if and only if the columns are the same words.

    Parameters
    ----------
    words : sequence of str, or int
        The words in the order of the columns, without repetition; or only their number, when the
        parties have agreed on the columns in another way.

    Returns
    -------
    digest : str
        64 hexadecimal digits.

    Raises
    ------
    MessageError
        When there are no words, or one of them is repeated or no string.

    Examples
    --------
    >>> from dplda.federated import vocabulary_hash
    >>> vocabulary_hash(["pear", "plum"]) == vocabulary_hash(["plum", "pear"])
    False
    """
    if isinstance(words, (int, np.integer)):
        if words < 1:
            raise MessageError(f"a vocabulary has at least 1 word, got {words}")
        return hashlib.sha256(b"number of words\0%d" % words).hexdigest()
    if isinstance(words, (str, bytes)) or not all(isinstance(word, str) for word in words):
        raise MessageError("words must be a sequence of strings, one per column, or their number")
    words = [str(word) for word in words]
    if not words or len(set(words)) < len(words):
        raise MessageError(
            f"words must be all different, and at least one; got {len(words)} words, "
            f"{len(set(words))} of them different"
        )
    digest = hashlib.sha256(b"words\0")
    for word in words:
        encoded = word.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)  # no two lists give the same bytes
    return digest.hexdigest()


def vocabulary_size(words: Sequence[str] | int) -> int:
    """Number of words of what `vocabulary_hash` takes."""
    return int(words) if isinstance(words, (int, np.integer)) else len(words)


def _parse(data: bytes, max_bytes: int) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    """Header and table of a message: lengths first, then the checksum, then the content."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise MessageError(f"a message is bytes, got {type(data).__name__}")
    data = bytes(data) if len(data) <= max_bytes else data
    if len(data) > max_bytes:
        raise MessageError(f"the message has {len(data)} bytes, and at most {max_bytes} are read")
    if len(data) < _PREFIX.size + _CHECKSUM or not data.startswith(_MAGIC):
        raise MessageError("the data are not a message of dplda.federated")
    _, version, n_header = _PREFIX.unpack_from(data)
    if version != FORMAT_VERSION:
        raise MessageError(
            f"the message has format version {version}, and this dplda reads {FORMAT_VERSION}; "
            "use the same version of dplda on all sides"
        )
    start = _PREFIX.size + n_header
    if n_header > _MAX_HEADER or start > len(data) - _CHECKSUM:
        raise MessageError("the message is cut off, or its header is too long")
    if hashlib.sha256(data[:-_CHECKSUM]).digest() != data[-_CHECKSUM:]:
        raise MessageError("the message was damaged on its way: the checksum does not fit")
    try:
        header = json.loads(data[_PREFIX.size : start].decode("ascii"))
        n_topics, n_words = header.pop("shape")
        check_integer("n_topics", n_topics, 1, max_bytes)
        check_integer("n_words", n_words, 1, max_bytes)
    except MessageError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise MessageError("the header of the message is not what this format has") from None
    if start + 4 * n_topics * n_words != len(data) - _CHECKSUM:
        raise MessageError(
            f"the message says shape ({n_topics}, {n_words}), and has "
            f"{len(data) - _CHECKSUM - start} bytes for it"
        )
    table = np.frombuffer(data, "<f4", n_topics * n_words, start)
    return header, table.reshape(n_topics, n_words)


def _checked_table(table: Any) -> npt.NDArray[np.float32]:
    """A read-only copy in float32 whose rows are probabilities."""
    try:
        if np.iscomplexobj(table):
            raise TypeError
        with np.errstate(over="ignore"):  # it becomes infinite, and is refused
            array = np.array(table, dtype=np.float32, order="C")
    except (TypeError, ValueError, OverflowError):
        raise MessageError("table must be an array of numbers") from None
    if array.ndim != 2 or 0 in array.shape:
        raise MessageError(
            f"table must have shape (n_topics, n_words), both at least 1, got {array.shape}"
        )
    if not np.isfinite(array).all() or array.min() < 0:
        raise MessageError("table must hold probabilities, got negative, infinite or NaN entries")
    error = np.abs(array.sum(axis=1, dtype=np.float64) - 1).max()
    if not error <= ROW_SUM_TOLERANCE:
        raise MessageError(
            f"rows of table must sum to 1 within {ROW_SUM_TOLERANCE:g}, got an error of "
            f"{error:.3g}; divide each topic by its sum"
        )
    array.flags.writeable = False
    return array


def check_integer(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise MessageError(f"{name} must be an integer from {least} to {most}, got {_shown(value)}")


def _checked_real(name: str, value: Any, least: float, most: float) -> float:
    allowed = isinstance(value, (int, float, np.integer, np.floating))
    try:
        number = float(value) if allowed and not isinstance(value, bool) else math.nan
    except OverflowError:  # a huge integer
        number = math.nan
    if not least <= number <= most:
        raise MessageError(f"{name} must be a number from {least} to {most}, got {_shown(value)}")
    return number


def _is_hash(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def _pack(value: Any) -> Any:
    """Floats as hexadecimal text: exact, and JSON has no infinity."""
    return [value.hex()] if isinstance(value, float) else value


def _unpack(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    try:
        (text,) = value
        return float.fromhex(text)
    except (ValueError, TypeError, OverflowError):
        raise MessageError("a number in the header of the message cannot be read") from None


def _shown(value: Any) -> str:
    """A value as an error may show it: a stranger's text is not repeated at length."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "a huge integer"
    text = repr(value) if isinstance(value, (int, float, str, type(None))) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
