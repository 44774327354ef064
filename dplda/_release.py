"""Release files: what a fitted model may show to anybody, and no more. docs/release.md."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

import dplda
from dplda._base import BaseLDA
from dplda._fold_in import LARGEST_PRIOR
from dplda._warnings import warn_user
from dplda.privacy import Guarantee, PrivacyLeakWarning
from dplda.privacy._bounds_on_epsilon import grouped
from dplda.privacy._events import from_record, to_record
from dplda.privacy._store import sync_folder

FORMAT_VERSION = 1
MAX_BYTES = 2**33
MAX_HEADER = 2**24
MAX_TEXT = 10_000
# Of events, so that a stranger's file cannot make the accountant compute for hours.
MAX_STEPS, MAX_KINDS = 1_000_000, 50

# A seed removes the noise, a path tells of the owner; the others say nothing of the model.
NOT_RELEASED = ("random_state", "ledger", "n_jobs", "verbose", "init_components")

_MAGIC = b"dplda-release\n"
_CHECKSUM = hashlib.sha256().digest_size
_PREFIX = struct.Struct(f"<{len(_MAGIC)}sHI{_CHECKSUM}s")  # version, bytes of the header, SHA-256
_HEADER_FIELDS = {
    "dplda", "estimator", "parameters", "n_iter", "shape", "order", "vocabulary", "named_columns",
    "guarantee",
}  # fmt: skip
_TEXTS = ("unit", "relation", "mechanism")
_NUMBERS = ("epsilon", "delta", "sensitivity", "total_variation")
_PER_ROUND = ("noise_scale", "noise_multiplier")


class ReleasedModel(BaseLDA):
    """A topic model as it was published: made by `load_release`.

    It transforms and scores like the model that was exported. It cannot be trained: `fit` changes
    nothing and reads nothing, there is no `partial_fit`, and a clone is the model itself, as with
    `sklearn.frozen.FrozenEstimator`. So it can be a step of a pipeline that is fitted.

    Parameters
    ----------
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics; `load_release` sets that of the training.
    n_jobs : int or None, default=None
        Threads. Never changes a result.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Pseudo-counts of words in topics; not normalized.
    privacy_ : Guarantee
        The guarantee; `print` it.
    epsilon_, delta_ : float
        What the model cost.
    n_iter_ : int
        Rounds or sweeps run.
    n_features_in_ : int
        Size of the vocabulary.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if the model was trained on a table with names.
    vocabulary_ : ndarray of shape (n_features_in_,) or None
        The words of the columns, if they were exported.
    estimator_name_, parameters_ : str, dict
        What trained it, and its public parameters.
    version_ : str
        The version of dplda that wrote the file.
    """

    _parameter_constraints = {
        name: BaseLDA._parameter_constraints[name] for name in ("doc_topic_prior", "n_jobs")
    }

    def __init__(self, doc_topic_prior=0.1, n_jobs=None):
        self.doc_topic_prior = doc_topic_prior
        self.n_jobs = n_jobs

    def fit(self, X: Any = None, y: Any = None) -> ReleasedModel:
        """Do nothing: the model is what it is.

        Parameters
        ----------
        X, y : Ignored
            Not read.

        Returns
        -------
        self : object
        """
        check_is_fitted(self)
        return self

    def __sklearn_clone__(self) -> ReleasedModel:
        return self


def write_release(
    estimator: Any, path: str | os.PathLike[str], vocabulary: Sequence[str] | None = None
) -> None:
    """Write a fitted model's public values to a file; see `BaseLDA.export_release`."""
    check_is_fitted(estimator)
    guarantee: Guarantee = estimator.privacy_
    data = _to_bytes(estimator, guarantee, _words(estimator, vocabulary))
    _read(io.BytesIO(data), len(data))  # what cannot be read is not written
    if guarantee.epsilon == math.inf or guarantee.seeded:
        reason = "was trained without privacy (epsilon is infinite)"
        if guarantee.epsilon < math.inf:
            reason = "drew its noise from a given random_state, which whoever knows it can remove"
        warn_user(
            f"this {type(estimator).__name__} {reason}; its release says so too, and should not "
            "be shown to those from whom the documents are to be protected",
            PrivacyLeakWarning,
        )
    _write_whole(Path(path), data)


def load_release(path: str | os.PathLike[str]) -> ReleasedModel:
    """Read a model that `export_release` wrote, from anybody: no code of the file is run.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    model : ReleasedModel
        With `components_`, `privacy_`, `transform`, `score` and so on; it cannot be trained.

    Raises
    ------
    ValueError
        If the file is something else, damaged, cut off, of a later format, or says what cannot be
        true: as an epsilon below what its events cost, or a table that is none of counts.
    OSError
        If it cannot be read.

    Notes
    -----
    **Privacy.** `privacy_` is the statement of whoever wrote the file: that it fits its own events
    is checked, that those events happened cannot be. The checksum finds damage, not forgery.

    Examples
    --------
    >>> import os, tempfile
    >>> from dplda import SubLDA, load_release
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=4.0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.export_release(os.path.join(folder, "topics.dplda"))
    ...     released = load_release(os.path.join(folder, "topics.dplda"))
    >>> released.privacy_ == model.privacy_, released.transform(X[:5]).shape
    (True, (5, 3))
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except ValueError as error:
        raise ValueError(
            f"{path} is no release file that can be trusted: {error}; get it again from who wrote "
            "it"
        ) from error


# ---- writing ------------------------------------------------------------------------------


def _to_bytes(estimator: Any, guarantee: Guarantee, words: list[str] | None) -> bytes:
    table = np.asarray(estimator.components_, "<f8")
    order = "F" if table.flags.f_contiguous else "C"
    header = {
        "dplda": dplda.__version__,
        "estimator": type(estimator).__name__,
        "parameters": _public_parameters(estimator),
        "n_iter": int(estimator.n_iter_),
        "shape": list(table.shape),
        "order": order,
        "vocabulary": words,
        "named_columns": hasattr(estimator, "feature_names_in_"),
        "guarantee": _guarantee_record(guarantee),
    }
    text = json.dumps(header, allow_nan=False, indent=1).encode("ascii")
    if len(text) > MAX_HEADER:
        raise ValueError(
            f"the vocabulary and the events take {len(text)} bytes, and a release file has room "
            f"for {MAX_HEADER}; leave the vocabulary out, and publish it beside the file"
        )
    body = text + table.tobytes("A")  # sums in another order differ in the last bit
    return _PREFIX.pack(_MAGIC, FORMAT_VERSION, len(text), hashlib.sha256(body).digest()) + body


def _public_parameters(estimator: Any) -> dict[str, Any]:
    given = estimator.get_params(deep=False)
    return {name: _plain(value) for name, value in given.items() if name not in NOT_RELEASED}


def _guarantee_record(guarantee: Guarantee) -> dict[str, Any]:
    record = {
        field.name: _plain(getattr(guarantee, field.name))
        for field in fields(guarantee)
        if field.name != "events"
    }
    return record | {"events": [to_record(event) for event in guarantee.events]}


def _plain(value: Any) -> Any:
    """As JSON holds it, without loss; it has no infinity."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return "inf" if value == math.inf else value
    raise TypeError(f"a release holds numbers and strings, got a {type(value).__name__}")


def _words(estimator: Any, vocabulary: Sequence[str] | None) -> list[str] | None:
    """The vocabulary to export, one word a column."""
    names = getattr(estimator, "feature_names_in_", None)
    if vocabulary is None:
        return None if names is None else [str(name) for name in names]
    if isinstance(vocabulary, (str, Mapping)):
        raise TypeError(
            "vocabulary must be the words in the order of the columns, as "
            f"CountVectorizer.get_feature_names_out() returns them, got a "
            f"{type(vocabulary).__name__}"
        )
    words = [str(word) for word in vocabulary]
    if names is not None and words != [str(name) for name in names]:
        raise ValueError(
            "vocabulary differs from the column names of the data that the model was trained on; "
            "leave it out to export those"
        )
    _check_vocabulary(words, estimator.components_.shape[1])
    return words


def _write_whole(path: Path, data: bytes) -> None:
    """The file is there as a whole or not at all; one that is there already stays until then."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(str(path.absolute().parent))
    finally:
        with suppress(OSError):
            part.unlink()


# ---- reading ------------------------------------------------------------------------------


def _read(file: BinaryIO, size: int) -> ReleasedModel:
    """Lengths first, so that no more is read than fits; then the checksum, then the content."""
    if not _PREFIX.size < size <= MAX_BYTES:
        raise ValueError(f"it has {size} bytes")
    n_header, checksum = _prefix(file.read(_PREFIX.size), size)
    text = file.read(n_header)
    header = _header(text)
    shape = _shape(header["shape"], size - _PREFIX.size - n_header)
    cells = file.read(8 * math.prod(shape))
    digest = hashlib.sha256(text)
    digest.update(cells)
    if digest.digest() != checksum:
        raise ValueError("it was damaged or cut off: the checksum does not fit")
    table = _table(cells, shape, header["order"])
    parameters = _parameters(header["parameters"])
    model = ReleasedModel(doc_topic_prior=_positive(parameters.get("doc_topic_prior")))
    model.components_ = table
    model.n_features_in_ = table.shape[1]
    model.n_iter_ = _integer("n_iter", header["n_iter"], 0, 2**63)
    model.vocabulary_ = _vocabulary(header["vocabulary"], table.shape[1])
    if header["named_columns"] is True and model.vocabulary_ is not None:
        model.feature_names_in_ = model.vocabulary_
    model.privacy_ = _guarantee(header["guarantee"])
    model.epsilon_, model.delta_ = model.privacy_.epsilon, model.privacy_.delta
    model.estimator_name_ = _text("estimator", header["estimator"])
    model.version_ = _text("dplda", header["dplda"])
    model.parameters_ = parameters
    return model


def _prefix(data: bytes, size: int) -> tuple[int, bytes]:
    """Bytes of the header, and the checksum."""
    if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
        raise ValueError("it does not begin as one")
    _, version, n_header, checksum = _PREFIX.unpack(data)
    if version != FORMAT_VERSION:
        raise ValueError(
            f"it has format {version}, and this version of dplda reads {FORMAT_VERSION}"
        )
    if n_header > MAX_HEADER or _PREFIX.size + n_header > size:
        raise ValueError("its header is too long, or it was cut off")
    return n_header, checksum


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(
            text.decode("ascii"),
            parse_float=_finite,
            parse_constant=_finite,
            object_pairs_hook=_unrepeated,
        )
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict) or set(header) != _HEADER_FIELDS:
        raise ValueError(f"its header must have the fields {', '.join(sorted(_HEADER_FIELDS))}")
    return header


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"its header holds the number {text[:20]}, which is not finite")
    return number


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("its header has a field twice")
    return dict(pairs)


def _shape(shape: Any, n_bytes: int) -> tuple[int, int]:
    if not (isinstance(shape, list) and len(shape) == 2):
        raise ValueError("shape must be a list of two numbers")
    n_topics, n_words = (_integer("shape", n, 1, MAX_BYTES) for n in shape)
    if 8 * n_topics * n_words != n_bytes:
        raise ValueError(f"it says shape ({n_topics}, {n_words}), and has {n_bytes} bytes for it")
    return n_topics, n_words


def _table(cells: bytes, shape: tuple[int, int], order: Any) -> npt.NDArray[np.float64]:
    if order not in ("C", "F"):
        raise ValueError("order must be C or F")
    table = np.frombuffer(cells, "<f8").astype(np.float64).reshape(shape, order=order)
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
    return {name: math.inf if value == "inf" else value for name, value in values.items()}


def _vocabulary(words: Any, n_words: int) -> npt.NDArray[np.object_] | None:
    if words is None:
        return None
    _check_vocabulary(words, n_words)
    return np.array(words, dtype=object)


def _check_vocabulary(words: Any, n_words: int) -> None:
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise ValueError("the vocabulary must be a list of words")
    if len(words) != n_words or len(set(words)) != n_words:
        raise ValueError(
            f"the vocabulary must have {n_words} different words, one a column, got {len(words)}, "
            f"{len(set(words))} of them different"
        )


def _guarantee(record: Any) -> Guarantee:
    """Its constructor refuses an epsilon below the cost of the events."""
    names = {field.name for field in fields(Guarantee)}
    if not isinstance(record, dict) or set(record) != names:
        raise ValueError(f"the guarantee must have the fields {', '.join(sorted(names))}")
    if not isinstance(record["seeded"], bool):
        raise ValueError("seeded must be true or false")
    events = _events(record["events"])
    values: dict[str, Any] = {name: _text(name, record[name]) for name in _TEXTS}
    values |= {name: _number(name, record[name]) for name in _NUMBERS}
    values |= {name: _per_round(name, record[name]) for name in _PER_ROUND}
    assumptions = tuple(_text("assumptions", text) for text in _list("assumptions", record))
    try:
        return Guarantee(**values, seeded=record["seeded"], assumptions=assumptions, events=events)
    except (ArithmeticError, RuntimeError) as error:  # at numbers far beyond those of any noise
        raise ValueError(f"its guarantee cannot be computed ({type(error).__name__})") from None


def _events(records: Any) -> tuple[Any, ...]:
    try:
        events = tuple(from_record(record) for record in records)
        groups = grouped(events)
        n_steps = sum(count for _, count in groups)
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"its privacy events cannot be read ({type(error).__name__})") from None
    if not groups or n_steps > MAX_STEPS or len(groups) > MAX_KINDS:
        raise ValueError(
            f"a release has 1 to {MAX_STEPS} private steps of at most {MAX_KINDS} different kinds"
        )
    return events


def _list(name: str, record: Mapping[str, Any]) -> Iterable[Any]:
    if not isinstance(record[name], list):
        raise ValueError(f"{name} must be a list")
    return record[name]


def _text(name: str, value: Any) -> str:
    """It is shown as it is, so that it must not be able to direct a terminal."""
    if not (isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()):
        raise ValueError(f"{name} must be a string of at most {MAX_TEXT} printable characters")
    return value


def _integer(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}")
    return value


def _number(name: str, value: Any) -> float:
    """Zero or more; infinity comes as a string."""
    number = math.inf if value == "inf" else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not number >= 0:
        raise ValueError(f"{name} must be a number of at least 0")
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"{name} is too large") from None


def _per_round(name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list) and value:
        return tuple(_number(name, number) for number in value)
    return _number(name, value)


def _positive(value: Any) -> float:
    number = _number("doc_topic_prior", value)
    if not 0 < number <= LARGEST_PRIOR:
        raise ValueError(f"doc_topic_prior must be positive and at most {LARGEST_PRIOR:g}")
    return number
