"""Where a ledger keeps its entries: in memory, or in an SQLite file shared by processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from dplda.leaf._files import check_locks, create_whole, explained_sqlite_errors
from dplda.privacy._entries import Budget
from dplda.privacy._page import Page, check_header, create_tables, is_write_ahead

_BUSY_SECONDS = 600.0

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


class Store:
    """Entries in a file. Every transaction opens its own connection: safe to fork and thread.

    Parameters
    ----------
    path : str or None
        Absolute; None in memory.
    budget : Budget
        The budget that was written; see `open_file`.
    ledger_id : str
        Identity of the ledger. Another file that takes its path later has another one.
    """

    def __init__(self, path: str | None, budget: Budget, ledger_id: str) -> None:
        self.path = path
        self.budget, self.ledger_id = budget, ledger_id

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Page]:
        """Read a consistent state; with `write`, as the only writer of all processes."""
        with self._connected() as connection:
            if write:
                _begin_writing(connection)
            else:
                connection.execute("BEGIN")
            try:
                page = Page(connection, self.path)
                self._check_same(page)
                yield page
                page.seal()
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            page.check_written()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        assert self.path is not None
        if not os.path.exists(self.path):
            raise FileNotFoundError(
                f"the ledger {self.path} is gone; its entries still count as spent"
            )
        with _explained(self.path), _ledger_connection(self.path) as connection:
            yield connection

    def _check_same(self, page: Page) -> None:
        if (page.budget, page.ledger_id) != (self.budget, self.ledger_id):
            page.entries()  # says so if they were changed by hand
            raise ValueError(
                f"the file {self.path} is another ledger than the one that was opened, whose "
                "entries still count as spent; restore its file, or open the new ledger by its path"
            )


class MemoryStore(Store):
    """Entries of one process, in a database in its memory."""

    def __init__(self, budget: Budget) -> None:
        self._process, self._lock = os.getpid(), threading.RLock()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        weakref.finalize(self, self._connection.close)  # else Python 3.13 warns of it
        super().__init__(None, budget, create_tables(self._connection, budget))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if os.getpid() != self._process:
            raise RuntimeError(
                "a ledger in memory belongs to the process that made it; what another process "
                "spends would be lost: give the ledger a path"
            )
        with self._lock:
            yield self._connection


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


def open_file(path: str, budget: Budget) -> Store:
    """Open the ledger in a file. If there is no file, create it with this budget.

    Raises
    ------
    ValueError
        If the file is not a ledger, is empty, or is damaged.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(f"the ledger {path} is a folder; give the path of a file in it")
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
            page = Page(connection, path)
            page.entries()
            return Store(path, page.budget, page.ledger_id)


def _create(path: str, budget: Budget) -> None:
    """Create a complete ledger in one step, and never replace an existing file."""

    def fill(draft: str) -> None:
        with _connection(draft) as connection:
            create_tables(connection, budget)

    try:
        check_locks(os.path.dirname(path))
        create_whole(path, fill)
    except OSError as error:
        raise OSError(
            f"the ledger {path} cannot be made: {error.strerror or error}; it needs an existing "
            "folder that can be written, on a local disk"
        ) from error


@contextmanager
def _ledger_connection(path: str) -> Iterator[sqlite3.Connection]:
    with _connection(path) as connection:
        check_header(connection, path)
        if is_write_ahead(connection):  # another tool has set this mode, and the file keeps it
            with suppress(sqlite3.OperationalError):  # in use; `Page` reports it
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
