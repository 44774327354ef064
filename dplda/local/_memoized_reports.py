"""Memoized reports: a client that is asked for a document again returns its first report."""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import check_counts
from dplda.leaf._files import create_whole, explained_sqlite_errors
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy import Ledger
from dplda.privacy._ledger import as_ledger
from dplda.privacy._streams import Purpose, Streams

_APPLICATION_ID = 0x6470_7272  # marks an SQLite file as reports
_BUSY_SECONDS = 60.0
_KEY_BYTES = 32
_CHARGED = ("releasing", "confirmed")  # an entry that is only reserved may be canceled
_TABLES = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    "CREATE TABLE settings (response TEXT NOT NULL, key BLOB NOT NULL)",
    "CREATE TABLE reports (id BLOB PRIMARY KEY, document BLOB NOT NULL, report BLOB NOT NULL)",
)


class MemoizedReports:
    """Reports that are drawn once for each document, stored, and returned on each later request.

    Parameters
    ----------
    randomizer : RandomizedResponse
        A fitted randomizer. It draws the reports. Its ledger is charged once for all of them: each
        document is reported once, and no document adds to the cost of another one.
    path : str or path-like, default=None
        SQLite file that stores the reports, on a local disk. A file that does not exist is created,
        and only its owner can read it. None stores them in memory, for one process and one thread.
    changed : {"error", "keep"}, default="error"
        Treatment of a document that differs from the one reported under the same id: raise an
        error, or return the stored report.

    Raises
    ------
    ValueError
        If the file is damaged, something else, or holds the reports of another randomizer.
    OSError
        If the file cannot be read or written.

    See Also
    --------
    RandomizedResponse : Draws fresh randomness in each call.

    Notes
    -----
    **Privacy.** Unit, relation, sensitivity and events are those of `randomizer`. If each document
    has one id, all its reports together cost what one report costs, for any number of requests. A
    document under two ids is reported twice, and so is a changed document under a new id. A report
    is stored before it is returned. A ledger gets one entry for the file, before the first report
    is drawn (``docs/proofs_local.md`` has the proof). With a given `random_state` the reports of
    two calls have the same flips, and each call gets an entry.

    An id belongs to a document, not to its place: its owner gives it, and the document keeps it on
    another line or in another file. If the file is deleted, or replaced by another one or by an
    older copy, later calls of this object are refused: the documents would be reported a second
    time. A new object cannot know that there was a file, or that a copy is older.

    The file stays with the client. Besides the reports it holds a key, and hashes under this key of
    the ids and of the sets of words. Anyone with the file can check a guess of a document.

    Examples
    --------
    >>> from dplda import MemoizedReports, RandomizedResponse
    >>> X = [[2, 0, 1, 0], [0, 3, 0, 0]]
    >>> client = MemoizedReports(RandomizedResponse(epsilon=8.0, max_doc_words=2).fit(X))
    >>> first = client.reports(["a", "b"], X)
    >>> again = client.reports(["b"], X[1:])
    >>> bool((first[[1]] != again).nnz == 0)
    True
    """

    def __init__(
        self,
        randomizer: RandomizedResponse,
        path: str | os.PathLike[str] | None = None,
        *,
        changed: str = "error",
    ) -> None:
        check_is_fitted(randomizer)
        if changed not in ("error", "keep"):
            raise ValueError(f"changed must be 'error' or 'keep', got {changed!r}")
        self.randomizer = randomizer
        self.changed = changed
        self._path = None if path is None else os.path.abspath(os.fspath(path))
        self._memory = None
        self._owner = (os.getpid(), threading.get_ident())
        self._identity = b""
        self._n_stored = 0  # reports that were in the file when this object last saw it
        if self._path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None)
            weakref.finalize(self, self._memory.close)
            self._fill(self._memory)
        elif not os.path.exists(self._path):
            self._create(self._path)
        with self._transaction():
            pass  # checks the file

    def reports(self, ids: Iterable[str | int], X: Any) -> sp.csr_array:
        """Return the stored report of each document, or draw and store a new one.

        Parameters
        ----------
        ids : iterable of n_docs str or int
            One id for each row of `X`; a document always has the same id.
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.

        Returns
        -------
        reports : csr_array of shape (n_docs, n_words)
            Zeros and ones, as `RandomizedResponse.transform` returns them.

        Raises
        ------
        ValueError
            If documents changed and ``changed="error"``; nothing is reported then. If the file is
            damaged, holds the reports of another randomizer, or is not the file that this object
            opened.
        OSError
            If the file is gone, or cannot be read or written.
        BudgetError
            If the budget of the randomizer's ledger is too small, and it has no entry for these
            reports yet.

        Notes
        -----
        **Privacy.** The reports may be published.
        """
        X = check_counts(self.randomizer, X, reset=False)  # private
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise TypeError(f"ids must hold one id for each row of X, got {type(ids).__name__}")
        labels = [_id_bytes(document_id) for document_id in ids]
        if len(labels) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and needs as many ids, got {len(labels)}")
        with self._transaction() as (connection, key):
            names = [_digest(label, key) for label in labels]
            documents = [_digest(words.astype("<i4").tobytes(), key) for words in _rows(X)]
            first_documents, new_rows = _look_up(connection, names, documents)
            if self.changed == "error":
                self._check_unchanged([first_documents[name] for name in names], documents)
            if new_rows:
                # The release: one report for each document without a stored one. Returning a
                # stored report is post-processing.
                reports = self.randomizer._report(  # public
                    lambda: X[list(new_rows.values())],
                    self._ledger_to_charge(),
                    label=self._label,
                )
                drawn = [report.astype("<i4").tobytes() for report in _rows(reports)]
                connection.executemany(
                    "INSERT INTO reports VALUES (?, ?, ?)",
                    [(name, first_documents[name], row) for name, row in zip(new_rows, drawn)],
                )
                self._n_stored = _n_stored(connection)
            query = "SELECT report FROM reports WHERE id = ?"
            rows = [  # public
                _columns(connection.execute(query, (name,)).fetchone()[0], X.shape[1])
                for name in names
            ]
        indices, indptr = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
        return sp.csr_array((np.ones(len(indices), X.dtype), indices, indptr), shape=X.shape)

    @property
    def _label(self) -> str:
        """Name of the entry of these reports in a ledger: another store has another one."""
        return f"MemoizedReports {self._identity[:16].hex()}"

    def _ledger_to_charge(self) -> Ledger | None:
        """The ledger of the randomizer, unless it has an entry of these reports for its part.

        Each id is reported once, so that one entry pays for all documents, in all calls. Reports
        with a given seed share their flips, so that each call needs an entry of its own.
        """
        given = self.randomizer.ledger
        ledger = None if given is None else as_ledger(given)
        if ledger is None or self.randomizer._random_state is not None:
            return ledger
        is_charged = any(
            entry.label == self._label
            and entry.status in _CHARGED
            and entry.charged_part in (None, ledger._part)
            for entry in ledger.entries()
        )
        return None if is_charged else ledger

    @staticmethod
    def _check_unchanged(before: list[bytes], now: list[bytes]) -> None:
        n_changed = sum(a != b for a, b in zip(before, now))
        if n_changed:
            raise ValueError(
                f"{n_changed} of {len(now)} documents differ from what was reported under their "
                "ids; MemoizedReports(..., changed='keep') gives the stored reports, at no cost; "
                "or check that each document has its own id and keeps it. Under a new id a "
                "document is reported again, and its privacy cost doubles"
            )

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, bytes]]:
        """Hold the write lock of all processes, so that no two of them report one document."""
        if self._memory and self._owner != (os.getpid(), threading.get_ident()):
            raise RuntimeError(
                "reports in memory belong to the process and the thread that created them: a copy "
                "would report the same documents again; give a path to share them"
            )
        if self._path and not os.path.exists(self._path):
            raise FileNotFoundError(
                f"the file of reports {self._path} is gone, and what it held was reported; restore "
                "it: without it the documents would be reported a second time"
            )
        with _explained_errors(self._path):
            connection = self._memory or _connect(str(self._path))
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection, self._open(connection)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if connection is not self._memory:
                    connection.close()

    def _create(self, path: str) -> None:
        """Create the file, complete from the start."""
        for journal in (f"{path}-journal", f"{path}-wal"):
            if os.path.exists(journal):
                raise ValueError(
                    f"the file of reports {path} is gone, but its journal {journal} is there; "
                    "restore the file, or remove the journal if nothing was reported"
                )

        def fill(draft: str) -> None:
            with closing(_connect(draft)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                self._fill(connection)
                connection.execute("COMMIT")

        try:
            with _explained_errors(self._path):
                create_whole(path, fill)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"the file of reports {path} cannot be created: its folder does not exist"
            ) from error

    def _fill(self, connection: sqlite3.Connection) -> None:
        """Create the tables, with a new key."""
        for statement in _TABLES:
            connection.execute(statement)
        streams = Streams.from_random_state(None)
        key = streams.words(Purpose.HASH_KEY, 0, 0, _KEY_BYTES // 8).tobytes()
        connection.execute("INSERT INTO settings VALUES (?, ?)", (self._response(), key))

    def _response(self) -> str:
        fitted = self.randomizer
        return json.dumps([fitted._n_words, fitted._max_ones, *fitted.one_probability_])

    def _open(self, connection: sqlite3.Connection) -> bytes:
        """Return the key of the hashes, after a check that this is the file that was opened."""
        if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise ValueError(
                f"{self._path} is a database without reports, or one that lost them; restore it, "
                "or choose another path"
            )
        settings = connection.execute("SELECT response, key FROM settings").fetchall()
        if len(settings) != 1:
            raise sqlite3.DatabaseError("reports have one key")
        stored_response, key = settings[0]
        if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
            raise sqlite3.DatabaseError("the key is damaged")
        if stored_response != self._response():
            raise ValueError(
                "the stored reports come from a randomizer with other parameters or another "
                "vocabulary; use the same randomizer, or another path"
            )
        identity = _digest(b"identity", key)  # the key is random: no two files have the same
        n_stored = _n_stored(connection)
        if self._identity and (identity != self._identity or n_stored < self._n_stored):
            raise ValueError(
                f"{self._path} is another file of reports than the one that was opened, or an "
                "older copy, and what that one held was reported; restore the newest file"
            )
        self._identity, self._n_stored = identity, n_stored
        return key


def _explained_errors(path: str | None) -> AbstractContextManager[None]:
    return explained_sqlite_errors(
        str(path), "reports", "file of reports", busy_seconds=_BUSY_SECONDS
    )


def _connect(path: str) -> sqlite3.Connection:
    """A connection to a file that exists."""
    connection = sqlite3.connect(
        f"{Path(path).as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
    )
    try:
        # A report that was sent survives a power cut: with EXTRA the folder is synced after the
        # journal is removed, so that the journal does not return and undo the transaction.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _look_up(
    connection: sqlite3.Connection, names: list[bytes], documents: list[bytes]
) -> tuple[dict[bytes, bytes], dict[bytes, int]]:
    """The document that each name stood for first, and the rows of names without a report."""
    first_documents: dict[bytes, bytes] = {}
    new_rows: dict[bytes, int] = {}
    for row, name in enumerate(names):
        if name not in first_documents:
            query = "SELECT document FROM reports WHERE id = ?"
            stored = connection.execute(query, (name,)).fetchone()
            first_documents[name] = documents[row] if stored is None else stored[0]
            if stored is None:
                new_rows[name] = row
    return first_documents, new_rows


def _n_stored(connection: sqlite3.Connection) -> int:
    """Number of stored reports; none is ever removed."""
    n_stored: int | None = connection.execute("SELECT max(rowid) FROM reports").fetchone()[0]
    return n_stored or 0


def _columns(report: Any, n_words: int) -> np.ndarray:
    """Column numbers of a stored report; a number outside of the matrix is an error."""
    if isinstance(report, bytes) and len(report) % 4 == 0:
        columns = np.frombuffer(report, "<i4")
        if ((columns >= 0) & (columns < n_words)).all():
            return columns
    raise sqlite3.DatabaseError("a stored report is damaged")


def _rows(X: sp.csr_array) -> list[np.ndarray]:
    """Column numbers of each row."""
    return [X.indices[start:end] for start, end in itertools.pairwise(X.indptr)]


def _id_bytes(document_id: str | int) -> bytes:
    """Different bytes for different ids; the number 1 and the text "1" differ."""
    if isinstance(document_id, str):
        return b"s" + document_id.encode("utf-8", "surrogatepass")
    if isinstance(document_id, (bool, np.bool_)):
        raise TypeError("an id must be a str or an int, got a truth value")
    try:
        return b"i%d" % operator.index(document_id)
    except TypeError:
        message = f"an id must be a str or an int, got {type(document_id).__name__}"
        raise TypeError(message) from None


def _digest(message: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(message, key=key, digest_size=32).digest()
