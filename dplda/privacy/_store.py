"""Where a ledger keeps its entries: in memory, or in an SQLite file shared by processes."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from dplda.privacy._events import Event, from_record, to_record

Status: TypeAlias = Literal["reserved", "confirmed", "canceled"]

# Written into the header of the file, so that no other database is taken for a ledger.
_APPLICATION_ID = 0x64706C64
_SCHEMA = 2
_BUSY_SECONDS = 600.0
_TABLES = (
    "CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, label TEXT NOT NULL, "
    "unit TEXT NOT NULL, events TEXT NOT NULL, total_variation REAL NOT NULL, "
    "seeded INTEGER NOT NULL, status TEXT NOT NULL, created TEXT NOT NULL, "
    "process INTEGER NOT NULL)",
)
_FIELDS = "id, label, unit, events, total_variation, seeded, status, created, process"


@dataclass(frozen=True)
class Entry:
    """One charge to a ledger.

    Attributes
    ----------
    id : int
        Number within its ledger.
    label : str
        Who was charged.
    unit : str
        What is protected: "document", "word", "token" or "bit".
    events : tuple of Event
        What the charge is for.
    total_variation : float
        Distance of the noise that runs from its ideal law.
    seeded : bool
        Whether the noise came from a given seed.
    status : {"reserved", "confirmed", "canceled"}
        Reserved and confirmed entries count in full; a canceled one never released anything.
    created : str
        Time in UTC, ISO 8601.
    process : int
        Number of the process that was charged.
    """

    id: int
    label: str
    unit: str
    events: tuple[Event, ...]
    total_variation: float
    seeded: bool
    status: Status
    created: str
    process: int

    @property
    def counts(self) -> bool:
        """Whether it is part of what was spent."""
        return self.status != "canceled"


class Page(Protocol):
    """The entries during one transaction."""

    def entries(self) -> list[Entry]: ...

    def add(self, entry: Entry) -> int: ...

    def set_status(self, entry_id: int, status: Status) -> None: ...


class MemoryStore:
    """Entries of one process."""

    path = None

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        self._entries: list[Entry] = []
        self._lock = threading.RLock()
        self._process = os.getpid()

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Page]:
        """Hold the lock; the page's changes are single assignments, so none is half done."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "a ledger in memory belongs to the process that made it; what another process "
                "spends would be lost: give the ledger a path"
            )
        with self._lock:
            yield self

    def entries(self) -> list[Entry]:
        return list(self._entries)

    def add(self, entry: Entry) -> int:
        self._entries.append(replace(entry, id=len(self._entries) + 1))
        return len(self._entries)

    def set_status(self, entry_id: int, status: Status) -> None:
        self._entries[entry_id - 1] = replace(self._entries[entry_id - 1], status=status)


class FileStore:
    """Entries in a file. Every transaction opens its own connection: safe to fork and thread.

    Parameters
    ----------
    path : str
        Absolute.
    epsilon, delta : float
        What the file says; see `open_file`.
    """

    def __init__(self, path: str, epsilon: float, delta: float) -> None:
        self.path = path
        self.epsilon, self.delta = epsilon, delta

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Page]:
        """Read a consistent state; with `write`, as the only writer of all processes."""
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"the ledger {self.path} is gone; what it held was spent")
        with _explained(self.path), _connection(self.path) as connection:
            _check_header(connection, self.path)
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                _check_digest(connection, self.path)
                yield _FilePage(connection, self.path)
                if write:
                    _set_digest(connection)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


class _FilePage:
    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path

    def entries(self) -> list[Entry]:
        return [self._read(row) for row in _rows(self._connection)]

    def _read(self, row: tuple[object, ...]) -> Entry:
        entry = Entry(*row)  # type: ignore[arg-type]
        try:
            events = tuple(from_record(record) for record in json.loads(str(entry.events)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"entry {entry.id} of the ledger {self._path} cannot be read, so nothing more "
                "can be charged to it; restore the file or start a new ledger"
            ) from error
        return replace(entry, events=events, seeded=bool(entry.seeded))

    def add(self, entry: Entry) -> int:
        row = (
            entry.label,
            entry.unit,
            json.dumps([to_record(event) for event in entry.events]),
            entry.total_variation,
            entry.seeded,
            entry.status,
            entry.created,
            entry.process,
        )
        fields = _FIELDS.removeprefix("id, ")
        cursor = self._connection.execute(
            f"INSERT INTO entries ({fields}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def set_status(self, entry_id: int, status: Status) -> None:
        self._connection.execute("UPDATE entries SET status = ? WHERE id = ?", (status, entry_id))


def open_file(path: str, epsilon: float, delta: float) -> FileStore:
    """Open the ledger in a file; make it, with this budget, if there is no file.

    Raises
    ------
    ValueError
        If the file is something else, empty, or damaged.
    """
    with _explained(path):
        journal_is_left = os.path.exists(_journal(path))
        if not os.path.exists(path):
            if journal_is_left:
                raise ValueError(
                    f"the ledger {path} is gone, but its journal {_journal(path)} is there; "
                    "restore the ledger, or remove the journal if nothing it held matters"
                )
            _create(path, epsilon, delta)
        if os.path.isfile(path) and os.path.getsize(path) == 0:
            raise ValueError(
                f"{path} is empty, so it is no privacy ledger, or one whose content was lost; "
                "restore it, or choose a path where there is no file"
            )
        with _connection(path) as connection:
            _check_header(connection, path)
            connection.execute("BEGIN")
            _check_digest(connection, path)
            return FileStore(path, *_budget(connection)[:2])


def _create(path: str, epsilon: float, delta: float) -> None:
    """Make a ledger that is whole from the moment it is there, and never in place of another."""
    folder = os.path.dirname(path)
    try:
        with tempfile.TemporaryDirectory(prefix=".dplda-ledger-", dir=folder) as workplace:
            draft = os.path.join(workplace, "ledger")
            with _connection(draft, make=True) as connection:
                _fill(connection, epsilon, delta)
            with suppress(FileExistsError):  # another process was quicker: the ledger is its
                os.link(draft, path)
        sync_folder(folder)
    except OSError as error:
        raise OSError(
            f"the ledger {path} cannot be made: {error.strerror}; it needs a folder that is there "
            "and can be written, on a local disk"
        ) from error


def _fill(connection: sqlite3.Connection, epsilon: float, delta: float) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO budget VALUES (?, ?, '')", (epsilon, delta))
    _set_digest(connection)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA}")
    connection.execute("COMMIT")


def sync_folder(folder: str) -> None:
    """Let the names in a folder survive a power cut, where the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _journal(path: str) -> str:
    return f"{path}-journal"


def _check_header(connection: sqlite3.Connection, path: str) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != _APPLICATION_ID:
        raise ValueError(
            f"{path} is a database, but no privacy ledger, or a damaged one; choose another path, "
            "or restore the file"
        )
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if schema != _SCHEMA:
        raise ValueError(
            f"{path} is a ledger of format {schema}, and this version reads format {_SCHEMA}; "
            "use the version of dplda that wrote it"
        )


def _rows(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT {_FIELDS} FROM entries ORDER BY id").fetchall()


def _budget(connection: sqlite3.Connection) -> tuple[float, float, str]:
    rows = connection.execute("SELECT epsilon, delta, digest FROM budget").fetchall()
    if len(rows) != 1:
        raise sqlite3.DatabaseError("a ledger has one budget")
    epsilon, delta, digest = rows[0]
    return epsilon, delta, digest


def _digest(connection: sqlite3.Connection) -> str:
    """Of everything that the ledger says. SQLite itself would not notice a changed number."""
    content = json.dumps([_budget(connection)[:2], _rows(connection)], default=repr)
    return hashlib.sha256(content.encode()).hexdigest()


def _set_digest(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE budget SET digest = ?", (_digest(connection),))


def _check_digest(connection: sqlite3.Connection, path: str) -> None:
    if _digest(connection) != _budget(connection)[2]:
        raise ValueError(
            f"the ledger {path} is damaged: its entries are not those that were written; restore "
            "the file, or count what was spent on the data by hand and start a new ledger"
        )


@contextmanager
def _connection(path: str, *, make: bool = False) -> Iterator[sqlite3.Connection]:
    where = f"{Path(path).as_uri()}?mode={'rwc' if make else 'rw'}"
    with closing(
        sqlite3.connect(where, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    ) as connection:
        # A charge must survive a power cut: it stands for something that was released. So the
        # journal is a file that is removed, and the folder is written to disk after that: what
        # counts is in one file.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
        yield connection


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Say what an SQLite error means for the ledger."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise TimeoutError(
                f"another process held the ledger {path} for over {_BUSY_SECONDS:.0f} seconds"
            ) from error
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            raise ValueError(
                f"{path} is no privacy ledger, or a damaged one; choose another path, or "
                "restore the file"
            ) from error
        raise OSError(
            f"the ledger {path} cannot be used: {error}; it needs a file and a folder that can be "
            "written, and room on the disk"
        ) from error
