"""Where a ledger keeps its entries: in memory, or in an SQLite file shared by processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from dplda._files import explained_sqlite_errors, sync_folder
from dplda.privacy._events import Event, from_record, to_record

Status: TypeAlias = Literal["reserved", "confirmed", "canceled"]

# Written into the header of the file, so that no other database is taken for a ledger.
_APPLICATION_ID = 0x64706C64
_SCHEMA = 3
_BUSY_SECONDS = 600.0
_TABLES = (
    "CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL, ledger TEXT NOT NULL, "
    "digest TEXT NOT NULL)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, label TEXT NOT NULL, "
    "unit TEXT NOT NULL, events TEXT NOT NULL, total_variation REAL NOT NULL, "
    "seeded INTEGER NOT NULL, status TEXT NOT NULL, created TEXT NOT NULL, "
    "process INTEGER NOT NULL)",
)
_FIELDS = "id, label, unit, events, total_variation, seeded, status, created, process"

# SQLite keeps its file locks in the memory of the process. A forked process inherits the locks of
# threads that it does not have, and would wait for them forever. No fork may therefore happen while
# a connection is open.
_CONNECTED = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_CONNECTED.acquire,
        after_in_parent=_CONNECTED.release,
        after_in_child=_CONNECTED.release,
    )


@dataclass(frozen=True)
class Entry:
    """One charge to a ledger.

    Parameters
    ----------
    id : int
        Number within its ledger.
    label : str
        Name of the charge, for instance the class of the estimator.
    unit : str
        Protected unit: "document", "word", "token" or "bit".
    events : tuple of Event
        Events of the charge.
    total_variation : float
        Distance of the noise that runs from its ideal law.
    seeded : bool
        Whether the noise came from a given seed.
    status : {"reserved", "confirmed", "canceled"}
        Reserved and confirmed entries count in full. A canceled entry released nothing.
    created : str
        Time in UTC, ISO 8601.
    process : int
        ID of the process that made the charge.
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
        """Whether the entry counts as spent."""
        return self.status != "canceled"


class Page(Protocol):
    """The entries during one transaction."""

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""

    def add(self, entry: Entry) -> int:
        """Append an entry and return its number."""

    def set_status(self, entry_id: int, status: Status) -> None:
        """Change the status of one entry."""


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
        """Hold the lock. Each change is one assignment, so that no change is ever half done."""
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
        The budget in the file; see `open_file`.
    ledger_id : str
        Identity of the ledger. Another file that takes its path later has another one.
    """

    def __init__(self, path: str, epsilon: float, delta: float, ledger_id: str) -> None:
        self.path = path
        self.epsilon, self.delta, self.ledger_id = epsilon, delta, ledger_id

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Page]:
        """Read a consistent state; with `write`, as the only writer of all processes."""
        if not os.path.exists(self.path):
            raise FileNotFoundError(
                f"the ledger {self.path} is gone; its entries still count as spent"
            )
        with _explained(self.path), _ledger_connection(self.path) as connection:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                _check_content(connection, self.path)
                self._check_same(connection)
                yield _FilePage(connection, self.path)
                if write:
                    _set_digest(connection)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _check_same(self, connection: sqlite3.Connection) -> None:
        if _budget(connection)[:3] != (self.epsilon, self.delta, self.ledger_id):
            raise ValueError(
                f"the file {self.path} is another ledger than the one that was opened, whose "
                "entries still count as spent; restore its file, or open the new ledger by its path"
            )


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
    """Open the ledger in a file. If there is no file, create it with this budget.

    Raises
    ------
    ValueError
        If the file is not a ledger, is empty, or is damaged.
    """
    with _explained(path):
        journals = [name for name in (f"{path}-journal", f"{path}-wal") if os.path.exists(name)]
        if not os.path.exists(path):
            if journals:
                raise ValueError(
                    f"the ledger {path} is gone, but its journal {journals[0]} exists; "
                    "restore the ledger, or remove the journal if its content does not matter"
                )
            _create(path, epsilon, delta)
        if os.path.isfile(path) and os.path.getsize(path) == 0:
            raise ValueError(
                f"{path} is empty: it is not a privacy ledger, or its content was lost; "
                "restore it, or choose a path where there is no file"
            )
        with _ledger_connection(path) as connection:
            connection.execute("BEGIN")
            _check_content(connection, path)
            return FileStore(path, *_budget(connection)[:3])


def _create(path: str, epsilon: float, delta: float) -> None:
    """Create a complete ledger in one step, and never replace an existing file."""
    folder = os.path.dirname(path)
    try:
        with _workplace(folder) as workplace:
            draft = os.path.join(workplace, "ledger")
            with _connection(draft, make=True) as connection:
                _fill(connection, epsilon, delta)
            with suppress(FileExistsError):  # another process has created the ledger first
                os.link(draft, path)
        sync_folder(folder)
    except OSError as error:
        raise OSError(
            f"the ledger {path} cannot be made: {error.strerror}; it needs an existing folder "
            "that can be written, on a local disk"
        ) from error


@contextmanager
def _workplace(folder: str) -> Iterator[str]:
    """A temporary folder. The ledger exists even if its removal fails, which is not an error."""
    workplace = tempfile.mkdtemp(prefix=".dplda-ledger-", dir=folder)
    try:
        yield workplace
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def _fill(connection: sqlite3.Connection, epsilon: float, delta: float) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    row = (epsilon, delta, uuid.uuid4().hex)
    connection.execute("INSERT INTO budget VALUES (?, ?, ?, '')", row)
    _set_digest(connection)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA}")
    connection.execute("COMMIT")


def _check_header(connection: sqlite3.Connection, path: str) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != _APPLICATION_ID:
        raise ValueError(
            f"{path} is a database, but not a privacy ledger, or is damaged; choose another path, "
            "or restore the file"
        )
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if schema != _SCHEMA:
        raise ValueError(
            f"{path} is a ledger of format {schema}, and this version reads format {_SCHEMA}; "
            "use the version of dplda that wrote it"
        )


def _is_write_ahead(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] != "delete")


def _rows(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT {_FIELDS} FROM entries ORDER BY id").fetchall()


def _budget(connection: sqlite3.Connection) -> tuple[float, float, str, str]:
    rows = connection.execute("SELECT epsilon, delta, ledger, digest FROM budget").fetchall()
    if len(rows) != 1:
        raise sqlite3.DatabaseError("a ledger has one budget")
    epsilon, delta, ledger_id, digest = rows[0]
    return epsilon, delta, ledger_id, digest


def _digest(connection: sqlite3.Connection) -> str:
    """Digest of all that the ledger holds. SQLite does not detect a changed number."""
    content = json.dumps([_budget(connection)[:3], _rows(connection)], default=repr)
    return hashlib.sha256(content.encode()).hexdigest()


def _set_digest(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE budget SET digest = ?", (_digest(connection),))


def _check_content(connection: sqlite3.Connection, path: str) -> None:
    """Check digest and journal mode, in a transaction, which keeps both from changing."""
    if _digest(connection) != _budget(connection)[3]:
        raise ValueError(
            f"the ledger {path} is damaged: its entries are not those that were written; restore "
            "the file, or count what was spent on the data by hand and start a new ledger"
        )
    if _is_write_ahead(connection):
        raise OSError(
            f"the ledger {path} cannot be used: another program has set it to a write-ahead log "
            "(PRAGMA journal_mode = WAL), and has it open; close it there"
        )


@contextmanager
def _ledger_connection(path: str) -> Iterator[sqlite3.Connection]:
    with _connection(path) as connection:
        _check_header(connection, path)
        if _is_write_ahead(connection):  # another tool has set this mode, and the file keeps it
            with suppress(sqlite3.OperationalError):  # in use; `_check_content` reports it
                connection.execute("PRAGMA journal_mode = DELETE")
        yield connection


@contextmanager
def _connection(path: str, *, make: bool = False) -> Iterator[sqlite3.Connection]:
    where = f"{Path(path).as_uri()}?mode={'rwc' if make else 'rw'}"
    with (
        _CONNECTED,
        closing(
            sqlite3.connect(where, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        ) as connection,
    ):
        # A charge must survive a power cut: it stands for something that was released. SQLite
        # therefore removes its journal after each commit and then writes the folder to disk. The
        # ledger is always in one file.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
        yield connection


def _explained(path: str) -> AbstractContextManager[None]:
    return explained_sqlite_errors(path, "ledger", "privacy ledger", busy_seconds=_BUSY_SECONDS)
