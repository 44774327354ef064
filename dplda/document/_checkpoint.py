"""The file from which a fit of shards goes on if its process is lost.

A release is written to the file before anything is computed from it. In the same step the ledger
notes the digest of the file, so that no two processes go on from one file, or from copies of it.
Every value in the file is public. ``docs/scaling.md`` has the proof.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dplda._version import __version__
from dplda.datasets._shards import MANIFEST, CountShards
from dplda.document._noisy_table import NoisyTable
from dplda.document._prior import PublicPrior
from dplda.document._table_estimate import TableEstimate
from dplda.document._word_totals import WordTotals
from dplda.leaf._files import ExclusiveLock, check_writable, drafted, move, remove_drafts
from dplda.privacy import Ledger
from dplda.privacy._ledger import as_ledger
from dplda.privacy._streams import Purpose, Streams

Array = npt.NDArray[Any]

FIRST_LINE = b"dplda checkpoint 1\n"
# What a state consists of, besides arrays, numbers and tuples. Nothing else is read from a file.
CLASSES = {cls.__name__: cls for cls in (NoisyTable, TableEstimate, PublicPrior, WordTotals)}
NOT_THE_FIT = ("ledger", "n_jobs", "random_state", "verbose")  # parameters that may change


@contextmanager
def checkpoint_of(
    X: Any, estimator: Any, streams: Streams, *, is_fit: bool
) -> Iterator[Checkpoint | None]:
    """The checkpoint of a fit to `X`, which no other process of this machine uses meanwhile.

    None if `X` has none. Nothing is charged, and no document is read.

    Raises
    ------
    ValueError
        If the fit cannot have a checkpoint, or the file is damaged or that of another fit.
    BlockingIOError
        If another process uses the file.
    OSError
        If the file cannot be read and written.
    """
    if not issubclass(type(X), CountShards) or X.checkpoint is None:
        yield None
        return
    ledger = _ledger_of(estimator, is_fit=is_fit)
    lock = _lock(X.checkpoint)
    try:
        yield Checkpoint(X.checkpoint, _description(X, estimator, ledger, streams))
    finally:
        lock.release()


class Checkpoint:
    """The file of one fit: what it has released, and where the ledger counts it.

    Parameters
    ----------
    path : str
        The file. It is read if it exists.
    fit : dict of str
        What the fit is, by name: public texts. The file of another fit is refused.

    Attributes
    ----------
    entry : int or None
        Entry of the ledger; None for a new fit.
    digest : str
        SHA-256 of the content of the file; empty if there is none.
    before : str
        That of the file before it.
    state : NoisyTable or None
        What the releases so far have led to, except the last ones, which `recall` returns.
    n_before : int
        Number of releases that `state` stands for.
    """

    def __init__(self, path: str, fit: Mapping[str, str]) -> None:
        check_writable(path)
        self._path, self._fit = Path(path), dict(fit)
        self._prefix = f"{self._path.name}."  # of drafts
        # a draft of a lost process may hold a release that the ledger was not told of, and that is
        # about to be drawn again
        remove_drafts(self._path, self._prefix)
        self._forget()
        if self._path.exists():
            self._read()

    def _forget(self) -> None:
        self.entry: int | None = None
        self.digest = self.before = ""
        self.state: NoisyTable | None = None
        self.n_before = 0
        self._written: list[Array] = []  # releases that the lost process has written
        self._releases: list[Array] = []  # those since `state`

    @property
    def has_releases(self) -> bool:
        """Whether the file that was read holds a release, or what releases have led to."""
        return self.n_before > 0 or bool(self._written)

    def begin(self, ledger: Ledger, entry: int) -> None:
        """Write the first file of a fit, which has released nothing."""
        self._forget()
        self._ledger, self.entry = ledger, entry
        self._save()

    def go_on(self, ledger: Ledger) -> None:
        """Write the next files in the place of the one that was read."""
        self._ledger = ledger

    def recall(self) -> Array | None:
        """The next release, if it was written before this process began."""
        if not self._written:
            return None
        self._releases.append(self._written.pop(0))
        return self._releases[-1]

    def write(self, noisy: Array) -> None:
        """Write a release. It is public when this returns, and was seen by nobody if it fails."""
        self._releases.append(noisy)
        self._save()

    def keep(self, state: NoisyTable, n_releases: int) -> None:
        """Let `state` take the place of the first `n_releases` in the next file."""
        self.state, self.n_before, self._releases = state, n_releases, []

    def _save(self) -> None:
        parts, digest = self._content()
        with drafted(self._path, parts, prefix=self._prefix) as draft:
            assert self.entry is not None
            self._ledger.advance(
                self.entry, digest, before=self.digest, write=lambda: move(draft, self._path)
            )
        self.before, self.digest = self.digest, digest

    def _content(self) -> tuple[list[bytes | memoryview], str]:
        """The parts of the file, whose size does not depend on the last release, and its digest."""
        state, objects, arrays = packed(self.state)
        header = {
            "fit": self._fit, "entry": self.entry, "before": self.digest,
            "n_before": self.n_before, "n_releases": len(self._releases),
            "state": state, "objects": objects,
        }  # fmt: skip
        body = io.BytesIO()
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        np.savez(body, text, *self._releases, *arrays)
        digest = hashlib.sha256(body.getbuffer()).hexdigest()
        return [FIRST_LINE, digest.encode(), b"\n", body.getbuffer()], digest

    def _read(self) -> None:
        content = self._path.read_bytes()
        if not content.startswith(FIRST_LINE):
            raise ValueError(
                f"{self._path} is no checkpoint of this version of dplda; give another file, or "
                "go on with the version that wrote it"
            )
        digest, _, body = content[len(FIRST_LINE) :].partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise ValueError(
                f"the checkpoint {self._path} is damaged; restore the newest copy of it, or give "
                "another file for a new fit, which is charged again"
            )
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            text, *rest = (arrays[f"arr_{i}"] for i in range(len(arrays.files)))
        header = json.loads(text.tobytes())
        self._check_same_fit(header["fit"])
        n_releases = header["n_releases"]
        self.entry, self.digest, self.before = header["entry"], digest.decode(), header["before"]
        self.n_before, self._written = header["n_before"], rest[:n_releases]
        self.state = unpacked(header["state"], header["objects"], rest[n_releases:])

    def _check_same_fit(self, fit: Mapping[str, str]) -> None:
        names = [name for name in {**self._fit, **fit} if self._fit.get(name) != fit.get(name)]
        if names:
            raise ValueError(
                f"{self._path} is the checkpoint of another fit, with another "
                f"{', '.join(sorted(names))}; to go on with that fit, give what it began with; for "
                "a new fit, give another file, or remove this one if its fit is not needed anymore"
            )


def _ledger_of(estimator: Any, *, is_fit: bool) -> Ledger:
    """The ledger that knows the newest checkpoint, if the fit can have one."""
    if not is_fit:
        raise ValueError(
            "a checkpoint belongs to one fit; call fit, or save the model between calls of "
            "partial_fit and give CountShards no checkpoint"
        )
    if getattr(estimator, "keep_weights", False):
        raise ValueError(
            "topic weights are private, and a checkpoint holds public values only; set "
            "keep_weights=False, which infers them from scratch in each round"
        )
    ledger = as_ledger(estimator.ledger)
    if ledger is None or ledger.path is None:
        raise ValueError(
            "a checkpoint needs a ledger in a file, which knows who goes on with the fit; pass "
            "ledger='privacy.sqlite', for instance"
        )
    return ledger


def _lock(path: str) -> ExclusiveLock:
    try:
        return ExclusiveLock(f"{path}.lock")
    except BlockingIOError as error:
        raise BlockingIOError(
            f"another process runs the fit of the checkpoint {path}; wait for it, or end it first"
        ) from error
    except OSError as error:
        raise OSError(
            f"the checkpoint {path} cannot be locked: {error.strerror or error}; it needs a folder "
            "that exists and can be written, on a local disk"
        ) from error


def _description(
    corpus: CountShards, estimator: Any, ledger: Ledger, streams: Streams
) -> dict[str, str]:
    """What makes a fit the same fit. Public: no digest can be tried out on documents or keys."""
    parameters = estimator.get_params(deep=False).items()
    fit = {name: _as_text(value) for name, value in parameters if name not in NOT_THE_FIT}
    cls = type(estimator)
    return fit | {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "version of dplda": __version__,
        "corpus": _corpus_digest(corpus),
        "ledger": ledger.id[:8],
        # a given seed makes the key, and one from the operating system is never seen again
        "random_state": _seed(streams) if streams.seeded else "-",
    }


def _seed(streams: Streams) -> str:
    return streams.words(Purpose.CHECKPOINT, 0, 0, 2).tobytes().hex()


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, Real):
        return repr(float(value))
    table = np.ascontiguousarray(value, float)
    return hashlib.sha256(repr(table.shape).encode() + table.tobytes()).hexdigest()


def _corpus_digest(corpus: CountShards) -> str:
    """Digest of the list of shards, which has a secret salt: it shows nothing of documents."""
    content = Path(corpus.folder, MANIFEST).read_bytes()
    if not json.loads(content).get("salt"):
        raise ValueError(
            f"the corpus {corpus.folder} was written by a version of dplda without checkpoints; "
            "write the shards again with write_shards"
        )
    names = repr([shard.name for shard in corpus.shards])
    return hashlib.sha256(content + names.encode()).hexdigest()


# ---- a state as JSON and arrays ------------------------------------------------------------


def packed(state: Any) -> tuple[Any, list[Any], list[Array]]:
    """A state as a JSON value, which refers to objects and arrays by their numbers."""
    objects: list[Any] = []
    arrays: list[Array] = []
    number: dict[int, int] = {}  # of an object or array: one that two fields share stays one

    def pack(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if id(value) not in number:
                number[id(value)] = len(arrays)
                arrays.append(value)
            return {"array": number[id(value)]}
        if type(value).__name__ in CLASSES:
            if id(value) not in number:
                number[id(value)] = len(objects)
                objects.append(None)
                fields = {name: pack(item) for name, item in vars(value).items()}
                objects[number[id(value)]] = [type(value).__name__, fields]
            return {"object": number[id(value)]}
        if isinstance(value, (tuple, list)):
            return {type(value).__name__: [pack(item) for item in value]}
        return value.item() if isinstance(value, np.generic) else value

    return pack(state), objects, arrays


def unpacked(state: Any, objects: list[Any], arrays: list[Array]) -> Any:
    """The state that was packed."""
    made = [object.__new__(CLASSES[name]) for name, _ in objects]

    def unpack(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "array":
            return arrays[content]
        if kind == "object":
            return made[content]
        return {"tuple": tuple, "list": list}[kind](map(unpack, content))

    for instance, (_, fields) in zip(made, objects):
        vars(instance).update({name: unpack(item) for name, item in fields.items()})
    return unpack(state)
