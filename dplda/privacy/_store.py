"""Where a ledger keeps its entries: in memory, or in an SQLite file shared by processes."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from dplda._files import check_locks, create_whole, explained_sqlite_errors
from dplda.privacy._events import Event, from_record, to_record

Status: TypeAlias = Literal["reserved", "releasing", "confirmed", "canceled"]
Composition: TypeAlias = Literal["planned", "adaptive"]

# Written into the header of the file, so that no other database is taken for a ledger.
_APPLICATION_ID = 0x64706C64
_SCHEMA = 4
_BUSY_SECONDS = 600.0
_TABLES = (
    "CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL, composition TEXT NOT NULL, "
    "ledger TEXT NOT NULL, filters TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, record TEXT NOT NULL, status TEXT NOT NULL)",
)
_BUDGET = "epsilon, delta, composition, ledger, filters, digest"
# What never changes of an entry is one JSON text, its record.
_RECORDED = ("label", "unit", "part", "total_variation", "seeded", "created", "process")

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


class Budget(NamedTuple):
    """What a ledger allows. It never changes."""

    epsilon: float
    delta: float
    composition: Composition = "planned"


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
        Protected unit: "document", "user", "word", "token" or "bit".
    events : tuple of Event
        Events of the charge.
    total_variation : float
        Distance of the noise that runs from its ideal law.
    seeded : bool
        Whether the noise came from a given seed.
    status : {"reserved", "releasing", "confirmed", "canceled"}
        An entry is reserved before data are read, marked as releasing before the first release, and
        confirmed after the last one. These three count in full. A canceled entry released nothing.
    created : str
        Time in UTC, ISO 8601.
    process : int
        ID of the process that made the charge.
    part : str or None, default=None
        Part of the data that was read, see `Ledger.part`. None is all of it.
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
    part: str | None = None

    @property
    def counts(self) -> bool:
        """Whether the entry counts as spent."""
        return self.status != "canceled"


class Page(Protocol):
    """The ledger during one transaction."""

    @property
    def version(self) -> str:
        """Equal at two times only if nothing changed between them."""

    @property
    def filters(self) -> str:
        """The filters of an adaptive ledger; empty before its first entry."""

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first. An entry that did not change is the same object."""

    def add(self, entry: Entry) -> int:
        """Append an entry and return its number."""

    def set_status(self, entry_id: int, status: Status) -> None:
        """Change the status of one entry."""

    def set_filters(self, filters: str) -> None:
        """Write down the filters."""


class MemoryStore:
    """Entries of one process."""

    path = None

    def __init__(self, budget: Budget) -> None:
        self.budget, self.ledger_id = budget, uuid.uuid4().hex
        self.filters = ""
        self._entries: list[Entry] = []
        self._n_changes = 0
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

    @property
    def version(self) -> str:
        return str(self._n_changes)

    def entries(self) -> list[Entry]:
        return list(self._entries)

    def add(self, entry: Entry) -> int:
        self._n_changes += 1
        self._entries.append(replace(entry, id=len(self._entries) + 1))
        return len(self._entries)

    def set_status(self, entry_id: int, status: Status) -> None:
        self._n_changes += 1
        self._entries[entry_id - 1] = replace(self._entries[entry_id - 1], status=status)

    def set_filters(self, filters: str) -> None:
        self._n_changes += 1
        self.filters = filters


class FileStore:
    """Entries in a file. Every transaction opens its own connection: safe to fork and thread.

    Parameters
    ----------
    path : str
        Absolute.
    budget : Budget
        The budget in the file; see `open_file`.
    ledger_id : str
        Identity of the ledger. Another file that takes its path later has another one.
    """

    def __init__(self, path: str, budget: Budget, ledger_id: str) -> None:
        self.path = path
        self.budget, self.ledger_id = budget, ledger_id

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Page]:
        """Read a consistent state; with `write`, as the only writer of all processes."""
        if not os.path.exists(self.path):
            raise FileNotFoundError(
                f"the ledger {self.path} is gone; its entries still count as spent"
            )
        with _explained(self.path), _ledger_connection(self.path) as connection:
            if write:
                _begin_writing(connection)
            else:
                connection.execute("BEGIN")
            try:
                page = _FilePage(connection, self.path)
                self._check_same(page)
                yield page
                if write:
                    page.seal()
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            page.check_written()

    def _check_same(self, page: _FilePage) -> None:
        if (page.budget, page.ledger_id) != (self.budget, self.ledger_id):
            raise ValueError(
                f"the file {self.path} is another ledger than the one that was opened, whose "
                "entries still count as spent; restore its file, or open the new ledger by its path"
            )


_Row: TypeAlias = tuple[int, bytes, bytes]  # number, record, status


class _Read(NamedTuple):
    """What the last transaction of this process has read of a ledger. Records never change."""

    records: bytes  # their digest
    entries: list[Entry]


# By ledger, so that a fit that opens its ledger by path reads only what is new.
_READ: dict[str, _Read] = {}
_MAX_READ = 8


def _begin_writing(connection: sqlite3.Connection) -> None:
    """Wait for the write lock. SQLite would wait ever longer between its tries, and starve some."""
    end = time.monotonic() + _BUSY_SECONDS
    connection.execute("PRAGMA busy_timeout = 0")
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.002)
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * _BUSY_SECONDS)}")


class _FilePage:
    """The content of a file during one transaction, compared with its digest."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path
        self.budget, self.ledger_id, self.filters, self.version = _budget(connection)
        self._rows = _rows(connection)
        self._n_found = len(self._rows)
        known = _READ.get(self.ledger_id, _Read(b"", []))
        n_known = len(known.entries)
        self._records = _hashed(hashlib.sha256(), self._rows[:n_known])
        self._known = known.entries if self._records.digest() == known.records else []
        _hashed(self._records, self._rows[n_known:])
        if self._digest() != self.version:
            raise ValueError(
                f"the ledger {path} is damaged: its entries are not those that were written; "
                "restore the file, or count what was spent on the data by hand and start a new "
                "ledger"
            )
        if _is_write_ahead(connection):  # in the transaction, which keeps it from changing
            raise OSError(
                f"the ledger {path} cannot be used: another program has set it to a write-ahead "
                "log (PRAGMA journal_mode = WAL), and has it open; close it there"
            )

    def _digest(self) -> str:
        return _digest(self.budget, self.ledger_id, self.filters, self._rows, self._records)

    def entries(self) -> list[Entry]:
        entries = [
            _with_status(old, status)
            for old, (_, _, status) in zip(self._known, self._rows, strict=False)
        ]
        entries += [self._read(row) for row in self._rows[len(entries) :]]
        self._known = entries
        _READ.pop(self.ledger_id, None)
        _READ[self.ledger_id] = _Read(self._records.digest(), entries)
        if len(_READ) > _MAX_READ:
            del _READ[next(iter(_READ))]
        return list(entries)

    def _read(self, row: _Row) -> Entry:
        number, record, status = row
        try:
            fields = json.loads(record)
            fields["events"] = tuple(from_record(event) for event in fields["events"])
            return _with_status(Entry(id=number, status="reserved", **fields), status)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"entry {number} of the ledger {self._path} cannot be read, so nothing more "
                "can be charged to it; restore the file or start a new ledger"
            ) from error

    def add(self, entry: Entry) -> int:
        fields = {name: getattr(entry, name) for name in _RECORDED}
        return self._append(
            json.dumps(fields | {"events": [to_record(event) for event in entry.events]}),
            entry.status,
        )

    def _append(self, record: str, status: Status) -> int:
        number = len(self._rows) + 1
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, record, status))
        row = number, record.encode(), status.encode()
        self._rows.append(row)
        _hashed(self._records, [row])
        return number

    def set_status(self, entry_id: int, status: Status) -> None:
        self._connection.execute("UPDATE entries SET status = ? WHERE id = ?", (status, entry_id))
        number, record, _ = self._rows[entry_id - 1]
        self._rows[entry_id - 1] = number, record, status.encode()

    def set_filters(self, filters: str) -> None:
        self._connection.execute("UPDATE budget SET filters = ?", (filters,))
        self.filters = filters

    def seal(self) -> None:
        """Write the digest of what the ledger holds now."""
        self._connection.execute("UPDATE budget SET digest = ?", (self._digest(),))

    def check_written(self) -> None:
        """Read new entries back. Without working file locks, another process may overwrite them."""
        added = self._rows[self._n_found :]
        found = _rows(self._connection, self._n_found)[: len(added)] if added else []
        if [row[:2] for row in added] != [row[:2] for row in found]:
            raise OSError(
                f"an entry of the ledger {self._path} was overwritten as soon as it was written; "
                "file locks do not work there: move the ledger to a local disk"
            )


def _with_status(entry: Entry, status: bytes) -> Entry:
    """The entry itself if its status is the same."""
    text = status.decode()
    return entry if entry.status == text else replace(entry, status=text)  # type: ignore[arg-type]


def open_file(path: str, budget: Budget) -> FileStore:
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
            _create(path, budget)
        if os.path.isfile(path) and os.path.getsize(path) == 0:
            raise ValueError(
                f"{path} is empty: it is not a privacy ledger, or its content was lost; "
                "restore it, or choose a path where there is no file"
            )
        check_locks(os.path.dirname(path))
        with _ledger_connection(path) as connection:
            connection.execute("BEGIN")
            page = _FilePage(connection, path)
            return FileStore(path, page.budget, page.ledger_id)


def _create(path: str, budget: Budget) -> None:
    """Create a complete ledger in one step, and never replace an existing file."""

    def fill(draft: str) -> None:
        with _connection(draft) as connection:
            _fill(connection, budget)

    try:
        check_locks(os.path.dirname(path))
        create_whole(path, fill)
    except OSError as error:
        raise OSError(
            f"the ledger {path} cannot be made: {error.strerror or error}; it needs an existing "
            "folder that can be written, on a local disk"
        ) from error


def _fill(connection: sqlite3.Connection, budget: Budget) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    identity = uuid.uuid4().hex
    digest = _digest(budget, identity, "", [], hashlib.sha256())
    row = (*budget, identity, "", digest)
    connection.execute("INSERT INTO budget VALUES (?, ?, ?, ?, ?, ?)", row)
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


def _budget(connection: sqlite3.Connection) -> tuple[Budget, str, str, str]:
    rows = connection.execute(f"SELECT {_BUDGET} FROM budget").fetchall()
    if len(rows) != 1:
        raise sqlite3.DatabaseError("a ledger has one budget")
    *budget, ledger_id, filters, digest = rows[0]
    return Budget(*budget), ledger_id, filters, digest


def _rows(connection: sqlite3.Connection, after: int = 0) -> list[_Row]:
    return connection.execute(
        "SELECT id, ifnull(CAST(record AS BLOB), x''), ifnull(CAST(status AS BLOB), x'') "
        "FROM entries WHERE id > ? ORDER BY id",
        (after,),
    ).fetchall()


def _hashed(hasher: hashlib._Hash, rows: list[_Row]) -> hashlib._Hash:
    """Add records to a digest of records. No record holds a line break."""
    hasher.update(b"".join([b"%d %b\n" % row[:2] for row in rows]))
    return hasher


def _digest(
    budget: Budget, ledger_id: str, filters: str, rows: list[_Row], records: hashlib._Hash
) -> str:
    """Digest of all that the ledger holds. SQLite does not detect a changed number."""
    statuses = b",".join([status for _, _, status in rows])
    content = repr((*budget, ledger_id, filters, statuses)).encode()
    return hashlib.sha256(content + records.digest()).hexdigest()


@contextmanager
def _ledger_connection(path: str) -> Iterator[sqlite3.Connection]:
    with _connection(path) as connection:
        _check_header(connection, path)
        if _is_write_ahead(connection):  # another tool has set this mode, and the file keeps it
            with suppress(sqlite3.OperationalError):  # in use; `_FilePage` reports it
                connection.execute("PRAGMA journal_mode = DELETE")
        yield connection


@contextmanager
def _connection(path: str) -> Iterator[sqlite3.Connection]:
    where = f"{Path(path).as_uri()}?mode=rw"
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
