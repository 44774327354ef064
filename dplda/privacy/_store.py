"""Where a ledger keeps its entries: one SQLite database, in a file or in memory.

Every transaction reads the whole ledger and compares it with its digest: a ledger that
somebody else changed, or that lost an entry, is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple, TypeAlias

from dplda.leaf._checks import LARGEST, check_delta, check_number
from dplda.leaf._files import Database
from dplda.privacy._composition import SMALLEST_DELTA
from dplda.privacy._events import Event, from_record, to_record

Status: TypeAlias = Literal["reserved", "released", "canceled"]
Composition: TypeAlias = Literal["planned", "adaptive"]

USERS = "users/"  # begins the rule of parts of users, which ends with their number
_APPLICATION_ID = int.from_bytes(b"dpl\x02")  # with the number of the format
# Row 0 holds budget, id and filter as its record, and the digest of all rows as its
# status.
_TABLE = (
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, record TEXT NOT NULL, status TEXT "
    "NOT NULL)"
)
_INSERT = "INSERT INTO entries VALUES (?, CAST(? AS TEXT), CAST(? AS TEXT))"
# The fixed fields of an entry are one JSON text, its record.
_RECORDED = ("label", "unit", "part", "total_variation", "seeded", "created", "process")
_Row: TypeAlias = tuple[int, bytes, bytes]  # number, record, status


class Budget(NamedTuple):
    """What a ledger allows. It never changes."""

    epsilon: float
    delta: float
    composition: Composition


@dataclass(frozen=True)
class Entry:
    """One charge to a ledger.

    An entry is reserved before data are read, and marked as released before the first
    release. Both count in full. A canceled entry released nothing.
    """

    label: str
    unit: str
    events: tuple[Event, ...]
    total_variation: float
    seeded: bool = False
    part: str | None = None  # rule and name, see `Ledger.part`; None is all of the data
    id: int = 0
    status: Status = "reserved"
    created: str = ""  # UTC, ISO 8601
    process: int = 0

    @property
    def counts(self) -> bool:
        """Whether the entry counts as spent."""
        return self.status != "canceled"

    @property
    def charged_part(self) -> str | None:
        """The part that pays for the entry; None if every part pays.

        Rows are disjoint sets of documents. They are disjoint sets of users only if the
        rule that chooses them is a function of the user, as `user_part` is.
        """
        return self.part if self.unit == "document" or is_of_users(self.part) else None


def is_of_users(part: str | None) -> bool:
    """Whether `user_part` makes the part."""
    return part is not None and part.startswith(USERS)


class Page:
    """A ledger during one transaction, and what it was after; a changed one is refused.

    `filter` of an adaptive ledger is "" before its first entry.
    """

    def __init__(self, connection: sqlite3.Connection, path: str | None) -> None:
        self._connection = connection
        # inside of the transaction, it cannot change
        if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            raise OSError(
                f"the ledger {path} cannot be used: another program has set it to a "
                "write-ahead log (PRAGMA journal_mode = WAL), and has it open; close "
                "it there"
            )
        self._rows = _rows(connection)
        if not self._rows or self._rows[0] != _head(self._rows[0][1], self._rows[1:]):
            raise ValueError(
                f"the ledger {path} is damaged: its entries are not those that were "
                "written; restore the file, or count what was spent on the data by "
                "hand and start a new ledger"
            )
        budget, ledger_id, chosen = json.loads(self._rows[0][1])
        self.budget = Budget(*budget)
        check_number(
            "epsilon of the ledger", self.budget.epsilon, 0.0, math.inf, closed="right"
        )
        check_delta(self.budget.delta)
        self.ledger_id = str(ledger_id)
        self.filter = str(chosen)
        self._added: _Row | None = None

    def entries(self) -> list[Entry]:
        """All entries, oldest first."""
        return [_entry(*row) for row in self._rows[1:]]

    def counted(self) -> list[Entry]:
        """The entries that count as spent."""
        return [entry for entry in self.entries() if entry.counts]

    def receipt(self, n: int | None = None) -> str:
        """A text that stands for the first `n` records.

        The text is public, and shows no record.

        The digest includes the id, most of which is secret, so nobody can test guesses
        of records.
        """
        if n is None:
            n = len(self._rows) - 1
        content = (self.ledger_id, [row[:2] for row in self._rows[1 : n + 1]])
        digest = hashlib.sha256(repr(content).encode()).hexdigest()
        return f"{self.ledger_id[:8]}-{n}-{digest[:16]}"

    def add(self, entry: Entry) -> int:
        """Append an entry and return its number."""
        fields: dict[str, object] = {name: getattr(entry, name) for name in _RECORDED}
        fields["events"] = [to_record(event) for event in entry.events]
        record = json.dumps(fields).encode()
        self._added = (len(self._rows), record, entry.status.encode())
        self._rows.append(self._added)
        self._connection.execute(_INSERT, self._added)
        return self._added[0]

    def set_status(self, entry_id: int, status: Status) -> None:
        """Change the status of one entry."""
        change = "UPDATE entries SET status = ? WHERE id = ?"
        self._connection.execute(change, (status, entry_id))
        self._rows[entry_id] = (*self._rows[entry_id][:2], status.encode())

    def seal(self) -> None:
        """Write the filter, and the digest of what the ledger holds now."""
        record = json.dumps([self.budget, self.ledger_id, self.filter]).encode()
        number, *head = _head(record, self._rows[1:])
        self._connection.execute(
            "UPDATE entries SET record = CAST(? AS TEXT), status = CAST(? AS TEXT) "
            "WHERE id = ?",
            (*head, number),
        )

    def check_written(self) -> None:
        """Read a new entry back.

        Without working file locks, another process may overwrite it.
        """
        if self._added is not None and self._added not in _rows(self._connection):
            raise OSError(
                "an entry of the ledger was overwritten as soon as it was written; "
                "file locks do not work there: move the ledger to a local disk"
            )


def _rows(connection: sqlite3.Connection) -> list[_Row]:
    return connection.execute(
        "SELECT id, CAST(record AS BLOB), CAST(status AS BLOB) FROM entries ORDER BY id"
    ).fetchall()


def _head(record: bytes, rows: list[_Row]) -> _Row:
    """Row 0 with the digest of all rows: SQLite does not detect a changed number."""
    content = repr((record, rows)).encode()
    digest = hashlib.sha256(content).hexdigest()
    return 0, record, digest.encode()


@lru_cache(maxsize=2**16)  # records never change, and many transactions read them
def _entry(number: int, record: bytes, status: bytes) -> Entry:
    try:
        fields = json.loads(record)
        fields["events"] = tuple(from_record(event) for event in fields["events"])
        # every status except "canceled" counts
        fields |= {"id": number, "status": status.decode()}
        return Entry(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"entry {number} of the ledger was not written by this version "
            f"({type(error).__name__}); restore the file"
        ) from error


class Store:
    """Entries in a file, or in the memory of one process if `path` is None.

    Every transaction on a file opens its own connection, so forks and threads are safe.
    A file that does not exist is created with `budget`. If another file takes the path
    later, its `ledger_id` differs.
    """

    def __init__(self, path: str | None, budget: Budget) -> None:
        self.path = None if path is None else os.path.abspath(path)
        self._identity: tuple[Budget, str] | None = None
        if self.path is None:
            self._process = os.getpid()
            self._lock = threading.RLock()
            self._memory = sqlite3.connect(
                ":memory:", isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, self._memory.close)  # else Python 3.13 warns of it
            _fill(self._memory, budget)
        else:
            self._file = Database(
                self.path,
                "ledger",
                "privacy ledger",
                _APPLICATION_ID,
                "its entries still count as spent",
            )
            if not os.path.exists(self.path):
                self._file.create(partial(_fill, budget=budget))
        with self.transaction(write=False) as page:
            self.budget = page.budget
            self.ledger_id = page.ledger_id
        self._identity = (self.budget, self.ledger_id)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Page]:
        """Read a consistent state; with `write`, as the only writer of any process."""
        with self._connected() as connection:
            try:  # an interrupt at any line leaves no transaction open
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                page = Page(connection, self.path)
                if self._identity not in (None, (page.budget, page.ledger_id)):
                    raise ValueError(
                        f"the file {self.path} is another ledger than the one that was "
                        "opened, whose entries still count as spent; restore its file, "
                        "or open the new ledger by its path"
                    )
                yield page
                if write:
                    page.seal()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            page.check_written()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if self.path is None:
            if os.getpid() != self._process:
                raise RuntimeError(
                    "a ledger in memory belongs to the process that made it; what "
                    "another process spends would be lost: give the ledger a path"
                )
            with self._lock:
                yield self._memory
            return
        with self._file.connected() as connection:
            yield connection

    def __getstate__(self) -> dict[str, object]:
        if self.path is None:
            raise TypeError(
                "a ledger in memory cannot be sent to another process or saved; give "
                "it a path, as in Ledger('privacy.sqlite')"
            )
        return vars(self)


def _fill(connection: sqlite3.Connection, budget: Budget) -> None:
    """Write a ledger without entries."""
    is_finite = budget.epsilon <= LARGEST and budget.delta >= SMALLEST_DELTA
    if budget.composition == "adaptive" and not is_finite:
        raise ValueError(
            f"adaptive composition needs a budget with epsilon up to {LARGEST:g} and "
            f"delta from {SMALLEST_DELTA:g}, got epsilon {budget.epsilon:g} and delta "
            f"{budget.delta:g}; a filter is a budget"
        )
    connection.execute(_TABLE)
    record = json.dumps([budget, uuid.uuid4().hex, ""]).encode()
    connection.execute(_INSERT, _head(record, []))
