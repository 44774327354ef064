"""Where a ledger keeps its entries: in memory, or in an SQLite file shared by processes."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from dplda.privacy._events import Event, from_record, to_record

Status: TypeAlias = Literal["reserved", "confirmed", "canceled"]

# Written into the header of the file, so that no other database is taken for a ledger.
_APPLICATION_ID = 0x64706C64
_SCHEMA = 1
_BUSY_SECONDS = 600.0
_TABLES = (
    "CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT NOT NULL, "
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
                yield _FilePage(connection, self.path)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


class _FilePage:
    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path

    def entries(self) -> list[Entry]:
        rows = self._connection.execute(f"SELECT {_FIELDS} FROM entries ORDER BY id").fetchall()
        return [self._read(row) for row in rows]

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
    """Open the ledger in a file; make it, with this budget, if there is none yet.

    Raises
    ------
    ValueError
        If the file is something else, or damaged.
    """
    with _explained(path), _connection(path) as connection:
        if _is_new(connection):
            # Without the write-ahead log, readers wait for writers; nothing else depends on it.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            if _is_new(connection):
                _create(connection, epsilon, delta)
            connection.execute("COMMIT")
        _check_header(connection, path)
        return FileStore(path, *connection.execute("SELECT epsilon, delta FROM budget").fetchone())


def _create(connection: sqlite3.Connection, epsilon: float, delta: float) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO budget VALUES (?, ?)", (epsilon, delta))
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA}")


def _is_new(connection: sqlite3.Connection) -> bool:
    n_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return bool(n_tables == 0 and _header(connection) == (0, 0))


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    return application, connection.execute("PRAGMA user_version").fetchone()[0]


def _check_header(connection: sqlite3.Connection, path: str) -> None:
    application, schema = _header(connection)
    if application != _APPLICATION_ID:
        raise ValueError(f"{path} is a database, but no privacy ledger; choose another path")
    if schema != _SCHEMA:
        raise ValueError(
            f"{path} is a ledger of format {schema}, and this version reads format {_SCHEMA}; "
            "use the version of dplda that wrote it"
        )


@contextmanager
def _connection(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
        # A charge must survive a power cut: it stands for something that was released.
        connection.execute("PRAGMA synchronous = FULL")
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
        raise OSError(f"the ledger {path} cannot be used: {error}") from error
