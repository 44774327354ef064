"""Permanent reports: a client that is asked again says again what it said first."""

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
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dplda._corpus import check_counts
from dplda._files import explained_sqlite_errors
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy._streams import Purpose, Streams

_APPLICATION_ID = 0x6470_7272  # marks an SQLite file as reports
_BUSY_SECONDS = 60.0
_KEY_BYTES = 32
_TABLES = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    "CREATE TABLE settings (response TEXT NOT NULL, key BLOB NOT NULL)",
    "CREATE TABLE reports (id BLOB PRIMARY KEY, document BLOB NOT NULL, report BLOB NOT NULL)",
)


class MemoizedReports:
    """Reports of documents, each drawn once and given out again whenever it is asked for.

    Parameters
    ----------
    randomizer : RandomizedResponse
        Fitted. It draws the reports, and charges its ledger for each call with new ones: a ledger
        cannot tell documents apart.
    path : str or path-like, default=None
        SQLite file that keeps the reports, on a local disk; made if there is none. None keeps them
        in memory, for one process and one thread.
    changed : {"error", "keep"}, default="error"
        What to do with a document that differs from the one that was reported under its id:
        refuse, or give out the old report.

    Notes
    -----
    **Privacy.** Unit, relation, sensitivity and event are those of `randomizer`: as long as each
    document has one id, all reports of it together cost what one costs, however often they are
    asked for. A document under two ids is reported twice, and so is a changed document under a new
    id. A report is stored before it is given out.

    The file stays with the client: beside the reports it keeps a key, and hashes under this key of
    the ids and of the sets of words, with which a guess of a document can be checked.

    See Also
    --------
    RandomizedResponse : Draws afresh in each call.

    Examples
    --------
    >>> from dplda import MemoizedReports, RandomizedResponse
    >>> X = [[2, 0, 1, 0], [0, 3, 0, 0]]
    >>> client = MemoizedReports(RandomizedResponse(epsilon=2.0, max_doc_words=2).fit(X))
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
        if path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None)
            weakref.finalize(self, self._memory.close)
        with self._transaction():
            pass  # makes the file, or checks it

    def reports(self, ids: Iterable[str | int], X: Any) -> sp.csr_array:
        """The report of each document: the stored one, or a new one that is stored.

        Parameters
        ----------
        ids : iterable of n_docs str or int
            One for each row of `X`, always the same for the same document.
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.

        Returns
        -------
        reports : csr_array of shape (n_docs, n_words)
            As `RandomizedResponse.transform` gives them.

        Raises
        ------
        ValueError
            If documents changed and ``changed="error"``. Nothing was reported then.
            If the file is damaged, or is that of another randomizer.
        OSError
            If the file cannot be read and written.
        BudgetError
            When the randomizer's ledger has too little left for new reports.
        """
        X = check_counts(self.randomizer, X, reset=False)
        if isinstance(ids, (str, bytes)):
            raise TypeError("ids must be one id for each row of X, got a single string")
        labels = [_id_bytes(id) for id in ids]
        if len(labels) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and needs as many ids, got {len(labels)}")
        with self._transaction() as (connection, key):
            names = [_digest(label, key) for label in labels]
            documents = [_digest(words.astype("<i4").tobytes(), key) for words in _rows(X)]
            known: dict[bytes, bytes] = {}
            new: dict[bytes, int] = {}
            for row, name in enumerate(names):
                if name not in known:
                    stored = connection.execute(
                        "SELECT document FROM reports WHERE id = ?", (name,)
                    ).fetchone()
                    known[name] = documents[row] if stored is None else stored[0]
                    if stored is None:
                        new[name] = row
            if self.changed == "error":
                self._check_unchanged([known[name] for name in names], documents)
            if new:
                fresh = self.randomizer._report(X[list(new.values())], checked=True)
                connection.executemany(
                    "INSERT INTO reports VALUES (?, ?, ?)",
                    [
                        (name, known[name], report.astype("<i4").tobytes())
                        for name, report in zip(new, _rows(fresh))
                    ],
                )
            query = "SELECT report FROM reports WHERE id = ?"
            rows = [
                _columns(connection.execute(query, (name,)).fetchone()[0], X.shape[1])
                for name in names
            ]
        indices, indptr = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
        return sp.csr_array((np.ones(len(indices), X.dtype), indices, indptr), shape=X.shape)

    @staticmethod
    def _check_unchanged(before: list[bytes], now: list[bytes]) -> None:
        n_changed = sum(a != b for a, b in zip(before, now))
        if n_changed:
            raise ValueError(
                f"{n_changed} of {len(now)} documents differ from what was reported under their "
                "ids, and a second report would cost as much again; give them new ids, or choose "
                "changed='keep' to get the old reports"
            )

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, bytes]]:
        """As the only writer of all processes, so that no document is reported by two of them."""
        if self._memory and self._owner != (os.getpid(), threading.get_ident()):
            raise RuntimeError(
                "reports in memory are for the process and the thread that made them: a copy would "
                "report the same documents again; give a path to share them"
            )
        with explained_sqlite_errors(
            str(self._path), "reports", "file of reports", busy_seconds=_BUSY_SECONDS
        ):
            connection = self._memory or sqlite3.connect(
                str(self._path), timeout=_BUSY_SECONDS, isolation_level=None
            )
            try:
                connection.execute("PRAGMA synchronous = FULL")  # what was sent is not forgotten
                connection.execute("BEGIN IMMEDIATE")
                yield connection, self._open(connection)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if connection is not self._memory:
                    connection.close()

    def _open(self, connection: sqlite3.Connection) -> bytes:
        """The key of the hashes; the tables are made if there are none."""
        fitted = self.randomizer
        response = json.dumps([fitted._n_words, fitted._max_ones, *fitted.one_probability_])
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in _TABLES:
                connection.execute(statement)
            streams = Streams.from_random_state(None)
            key = streams.words(Purpose.HASH_KEY, 0, 0, _KEY_BYTES // 8).tobytes()
            connection.execute("INSERT INTO settings VALUES (?, ?)", (response, key))
        if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise ValueError(f"{self._path} is a database without reports; choose another path")
        settings = connection.execute("SELECT response, key FROM settings").fetchall()
        if len(settings) != 1:
            raise sqlite3.DatabaseError("reports have one key")
        written, key = settings[0]
        if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
            raise sqlite3.DatabaseError("the key is damaged")
        if written != response:
            raise ValueError(
                "the stored reports are those of a randomizer with other parameters or another "
                "vocabulary; use the same, or another path"
            )
        return key


def _columns(report: Any, n_words: int) -> np.ndarray:
    """A stored report's column numbers, which must not point outside of the matrix."""
    if isinstance(report, bytes) and len(report) % 4 == 0:
        columns = np.frombuffer(report, "<i4")
        if ((columns >= 0) & (columns < n_words)).all():
            return columns
    raise sqlite3.DatabaseError("a stored report is damaged")


def _rows(X: sp.csr_array) -> list[np.ndarray]:
    """Column numbers of each row."""
    return [X.indices[start:end] for start, end in itertools.pairwise(X.indptr)]


def _id_bytes(id: str | int) -> bytes:
    if isinstance(id, str):
        return b"s" + id.encode("utf-8", "surrogatepass")
    if isinstance(id, (bool, np.bool_)):
        raise TypeError("an id must be a str or an int, got a truth value")
    try:
        return b"i%d" % operator.index(id)
    except TypeError:
        raise TypeError(f"an id must be a str or an int, got {type(id).__name__}") from None


def _digest(message: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(message, key=key, digest_size=32).digest()
