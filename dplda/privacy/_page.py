"""A ledger during one transaction: its tables, its records, and the digest over both."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import uuid
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from dplda.privacy._entries import Budget, Entry, State, Status
from dplda.privacy._events import from_record, to_record

# Written into the header of the file, so that no other database is taken for a ledger.
_APPLICATION_ID = 0x64706C64
_SCHEMA = 5
_AT_ONCE = 1000  # records that are joined to one text
_TABLES = (
    "CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL, composition TEXT NOT NULL, "
    "data TEXT, ledger TEXT NOT NULL, filters TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, record TEXT NOT NULL, status TEXT NOT NULL)",
)
_BUDGET = "epsilon, delta, composition, data, ledger, filters, digest"
# What never changes of an entry is one JSON text, its record.
_RECORDED = ("label", "unit", "part", "total_variation", "seeded", "created", "process")

_Row: TypeAlias = tuple[int, bytes, bytes]  # number, record, status


class _Read(NamedTuple):
    """What the last transaction of this process has read of a ledger. Records never change."""

    version: str
    records: hashlib._Hash  # of the records; only its copies go on
    entries: tuple[Entry, ...]


# By ledger, so that a fit that opens its ledger by path reads only what is new.
_READ: dict[str, _Read] = {}
_MAX_READ = 8
_NOTHING = _Read("", hashlib.sha256(), ())


class Page:
    """The ledger during one transaction."""

    def __init__(self, connection: sqlite3.Connection, path: str | None) -> None:
        self._connection, self._path = connection, path
        # two versions are equal only if nothing changed between them
        self.budget, self.ledger_id, self.filters, self.version = _budget(connection)
        self._records: hashlib._Hash | None = None
        self._statuses: list[bytes] = []
        self._added: list[_Row] = []
        if is_write_ahead(connection):  # in the transaction, which keeps it from changing
            raise OSError(
                f"the ledger {path} cannot be used: another program has set it to a write-ahead "
                "log (PRAGMA journal_mode = WAL), and has it open; close it there"
            )

    def entries(self) -> tuple[Entry, ...]:
        """Read all entries, oldest first, and compare them with their digest.

        It comes before all changes. An entry that did not change is the same object as before.
        """
        known = _READ.get(self.ledger_id, _NOTHING)
        records, statuses = _hashed(self._connection, len(known.entries))
        if records.digest() != known.records.digest():
            known, records, statuses = _NOTHING, hashlib.sha256(), []
        rows = _rows(self._connection, len(known.entries))
        for row in rows:
            records.update(_line(row))
        self._records, self._statuses = records, statuses + [status for _, _, status in rows]
        if self._digest() != self.version:
            raise ValueError(
                f"the ledger {self._path} is damaged: its entries are not those that were "
                "written; restore the file, or count what was spent on the data by hand and start "
                "a new ledger"
            )
        entries = (*map(_with_status, known.entries, statuses), *map(self._read, rows))
        _READ.pop(self.ledger_id, None)
        _READ[self.ledger_id] = _Read(self.version, records.copy(), entries)
        if len(_READ) > _MAX_READ:
            del _READ[next(iter(_READ))]
        return entries

    def state(self) -> State:
        """The ledger before all changes of this transaction."""
        return State(self.budget, self.ledger_id, self.version, self.filters, self.entries())

    def receipt(self, n: int) -> str:
        """A text that stands for the first `n` records. It is public, and shows none of them.

        The digest includes the id, most of which is secret: nobody can try out what records say.
        """
        records, _ = _hashed(self._connection, n)
        digest = hashlib.sha256(self.ledger_id.encode() + records.digest()).hexdigest()
        return f"{self.ledger_id[:8]}-{n}-{digest[:16]}"

    def _digest(self) -> str:
        """Digest of all that the ledger holds. SQLite does not detect a changed number."""
        assert self._records is not None
        return _digest(self.budget, self.ledger_id, self.filters, self._statuses, self._records)

    def _prepare_change(self) -> None:
        """Take over what this process has compared, if the ledger is still the same."""
        known = _READ.get(self.ledger_id, _NOTHING)
        if self._records is not None:
            return
        if known.version == self.version:
            self._records = known.records.copy()
            self._statuses = [_status_of(e.status, e.checkpoint) for e in known.entries]
        else:
            self.entries()

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
        """Append an entry and return its number."""
        fields = {name: getattr(entry, name) for name in _RECORDED}
        return self._append(
            json.dumps(fields | {"events": [to_record(event) for event in entry.events]}),
            entry.status,
        )

    def _append(self, record: str, status: Status) -> int:
        self._prepare_change()
        number = len(self._statuses) + 1
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, record, status))
        self._added.append((number, record.encode(), status.encode()))
        self._statuses.append(status.encode())
        self._records.update(_line(self._added[-1]))  # type: ignore[union-attr]
        return number

    def set_status(self, entry_id: int, status: Status, checkpoint: str = "") -> None:
        """Change the status and the checkpoint of one entry."""
        self._prepare_change()
        content = _status_of(status, checkpoint)
        self._connection.execute(
            "UPDATE entries SET status = ? WHERE id = ?", (content.decode(), entry_id)
        )
        self._statuses[entry_id - 1] = content

    def set_filters(self, filters: str) -> None:
        """Write down the filters of an adaptive ledger; there are none before its first entry."""
        self._prepare_change()
        self._connection.execute("UPDATE budget SET filters = ?", (filters,))
        self.filters = filters

    def seal(self) -> None:
        """Write the digest of what the ledger holds now, if it changed."""
        if self._records is not None and self._digest() != self.version:
            self._connection.execute("UPDATE budget SET digest = ?", (self._digest(),))

    def check_written(self) -> None:
        """Read new entries back. Without working file locks, another process may overwrite them."""
        if not self._added:
            return
        found = _rows(self._connection, self._added[0][0] - 1)[: len(self._added)]
        if [row[:2] for row in self._added] != [row[:2] for row in found]:
            raise OSError(
                f"an entry of the ledger {self._path} was overwritten as soon as it was written; "
                "file locks do not work there: move the ledger to a local disk"
            )


def _status_of(status: str, checkpoint: str) -> bytes:
    """What changes of an entry, in one column: its status, and its checkpoint if it has one."""
    return f"{status} {checkpoint}".rstrip().encode()


def _with_status(entry: Entry, content: bytes) -> Entry:
    """The entry itself if nothing changed."""
    if content == _status_of(entry.status, entry.checkpoint):
        return entry
    status, _, checkpoint = content.decode().partition(" ")
    return replace(entry, status=status, checkpoint=checkpoint)  # type: ignore[arg-type]


def create_tables(connection: sqlite3.Connection, budget: Budget) -> str:
    """Write a ledger without entries, and return its identity."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    identity = uuid.uuid4().hex
    digest = _digest(budget, identity, "", [], hashlib.sha256())
    row = (*budget, identity, "", digest)
    connection.execute("INSERT INTO budget VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA}")
    connection.execute("COMMIT")
    return identity


def check_header(connection: sqlite3.Connection, path: str) -> None:
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


def is_write_ahead(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal")


def _budget(connection: sqlite3.Connection) -> tuple[Budget, str, str, str]:
    rows = connection.execute(f"SELECT {_BUDGET} FROM budget").fetchall()
    if len(rows) != 1:
        raise sqlite3.DatabaseError("a ledger has one budget")
    *budget, ledger_id, filters, digest = rows[0]
    return Budget(*budget), ledger_id, filters, digest


def _rows(connection: sqlite3.Connection, after: int) -> list[_Row]:
    return connection.execute(
        "SELECT id, ifnull(CAST(record AS BLOB), x''), ifnull(CAST(status AS BLOB), x'') "
        "FROM entries WHERE id > ? ORDER BY id",
        (after,),
    ).fetchall()


def _line(row: _Row) -> bytes:
    """What the digest covers of a record. No record holds a line break."""
    return b"%d %b\n" % row[:2]


def _hashed(connection: sqlite3.Connection, n: int) -> tuple[hashlib._Hash, list[bytes]]:
    """Digest of the first `n` records, and their statuses. SQLite joins lines faster."""
    records = hashlib.sha256()
    statuses: list[bytes] = []
    for first in range(0, n, _AT_ONCE):
        lines, some = connection.execute(
            "SELECT CAST(group_concat(id || ' ' || record || char(10), '') AS BLOB), "
            "CAST(group_concat(status) AS BLOB) "
            "FROM (SELECT * FROM entries WHERE id > ? AND id <= ? ORDER BY id)",
            (first, min(first + _AT_ONCE, n)),
        ).fetchone()
        records.update(lines or b"")
        statuses += (some or b"").split(b",")
    return records, statuses


def _digest(
    budget: Budget, ledger_id: str, filters: str, statuses: list[bytes], records: hashlib._Hash
) -> str:
    content = repr((*budget, ledger_id, filters, b",".join(statuses))).encode()
    return hashlib.sha256(content + records.digest()).hexdigest()
