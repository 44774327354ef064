"""Memoized reports: asked again, a client returns a document's first report."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import Matrix, check_counts
from dplda.leaf._files import Database
from dplda.leaf._users import canonical_id
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy import Ledger
from dplda.privacy._ledger import as_ledger
from dplda.privacy._streams import Purpose, Streams

_APPLICATION_ID = int.from_bytes(b"dprr")  # marks an SQLite file as reports


class Cells(NamedTuple):
    """The stored record of a document."""

    document: bytes  # its digest
    report: bytes


Stored: TypeAlias = dict[bytes, Cells]  # by the digest of the id


class MemoizedReports:
    """Reports that are drawn once per document, stored, and returned on later requests.

    Parameters
    ----------
    randomizer : RandomizedResponse
        A fitted randomizer. It draws the reports. Its ledger is charged once for all
        reports: each document is reported once, and no document adds to the cost of
        another.
    path : str or path-like
        SQLite file that stores the reports, on a local disk. A file that does not exist
        is created, and only its owner can read it.

    Raises
    ------
    ValueError
        If the file is damaged, is something else, or holds the reports of another
        randomizer.
    OSError
        If the file cannot be read or written.

    See Also
    --------
    RandomizedResponse : Draws fresh randomness in each call.

    Notes
    -----
    **Privacy.** Unit, relation, sensitivity and events: as for `randomizer`. If each
    document has one id, any number of requests for it costs one report. A document
    under two ids is reported twice, and so is a changed document under a new id. A
    report is stored before it is returned. A ledger gets one entry for the file, before
    the first report is drawn (``docs/proofs_local.md`` has the proof). With a given
    `random_state` the reports of two calls have the same flips, and each call gets an
    entry.

    An id belongs to a document, not to its place: the owner gives it, and the document
    keeps it when it moves to another line or file. A keyed digest covers all stored
    reports: a damaged file is refused, because a lost report would be drawn a second
    time. If the file is deleted, or replaced by another file or an older copy, later
    calls of this object are refused. A new object cannot know that there was a file, or
    that a copy is older.

    The file stays with the client. Besides the reports it holds a key, and hashes of
    the ids and of the sets of words under this key. Anyone with the file can check a
    guess of a document. Each call reads the whole file, so pass many documents at a
    time.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from dplda import MemoizedReports, RandomizedResponse
    >>> X = [[2, 0, 1, 0], [0, 3, 0, 0]]
    >>> randomizer = RandomizedResponse(epsilon=8.0, max_doc_words=2).fit(X)
    >>> client = MemoizedReports(randomizer, mkdtemp() + "/reports.sqlite")
    >>> first = client.reports(["a", "b"], X)
    >>> again = client.reports(["b"], X[1:])
    >>> bool((first[[1]] != again).nnz == 0)
    True
    """

    def __init__(
        self, randomizer: RandomizedResponse, path: str | os.PathLike[str]
    ) -> None:
        check_is_fitted(randomizer)
        self.randomizer = randomizer
        self._path = os.path.abspath(os.fspath(path))
        self._file = Database(
            self._path,
            "file of reports",
            "file of reports",
            _APPLICATION_ID,
            "what it held was reported: restore it, or documents would be reported a "
            "second time",
        )
        self._key = b""
        self._n_seen = 0  # reports
        self._seen = b""  # the state of the file with them
        if not os.path.exists(self._path):
            self._file.create(self._fill)
        with self._transaction():
            pass  # checks the file

    def reports(self, ids: Iterable[str | int], X: Matrix) -> sp.csr_array:
        """Return the stored report of each document, or draw and store a new one.

        Parameters
        ----------
        ids : iterable of n_docs str or int
            One id for each row of `X`; a document always has the same id. All ids of a
            file are integers, or all are texts. Texts that look the same are one id,
            for example in NFC and NFD forms or with blanks around them.
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.

        Returns
        -------
        reports : csr_array of shape (n_docs, n_words)
            Zeros and ones, as `RandomizedResponse.transform` returns them.

        Raises
        ------
        ValueError
            If documents differ from those reported under the same ids; nothing is then
            reported. If the file is damaged, or is not the file that this object
            opened.
        OSError
            If the file is gone, or cannot be read or written.
        BudgetError
            If the budget of the randomizer's ledger is too small, and it has no entry
            for these reports yet.

        Notes
        -----
        **Privacy.** The reports may be published.
        """
        X = check_counts(self.randomizer, X, reset=False)  # private
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise TypeError(
                f"ids must hold one id for each row of X, got {type(ids).__name__}"
            )
        given = list(ids)
        labels = [
            canonical_id(each, "ids").encode("utf-8", "surrogatepass") for each in given
        ]
        kind = _kind(given)
        if len(labels) != X.shape[0]:
            found = "more" if len(labels) > X.shape[0] else "fewer"
            raise ValueError(
                f"ids must hold one id for each row of X, got {found} ids than rows"
            )
        with self._transaction() as (connection, stored):
            self._check_kind(connection, kind)
            names = [_digest(self._key, label) for label in labels]
            documents = [
                _digest(self._key, row.astype("<i4").tobytes()) for row in _rows(X)
            ]
            first = {name: stored[name].document for name in names if name in stored}
            new_rows: dict[bytes, int] = {}  # the first row of each id without a report
            for row, name in enumerate(names):
                if name not in first:
                    new_rows[name] = row
                    first[name] = documents[row]
            n_changed = sum(first[name] != now for name, now in zip(names, documents))
            if n_changed:
                raise ValueError(
                    f"{n_changed} of {len(names)} documents differ from what was "
                    "reported under their ids; check that each document has its own id "
                    "and keeps it. The first version of a document gives its stored "
                    "report, at no cost. Under a new id a document is reported again, "
                    "and its privacy cost doubles"
                )
            state = self._seen
            if new_rows:
                # The release: one report for each document without a stored one.
                # Returning a stored report is post-processing.
                reports = self.randomizer._report(  # public
                    lambda: X[list(new_rows.values())],
                    self._ledger_to_charge(),
                    label=self._label,
                )
                for name, report in zip(new_rows, _rows(reports)):
                    cells = Cells(first[name], report.astype("<i4").tobytes())
                    stored[name] = cells
                    connection.execute(
                        "INSERT INTO reports (id, document, report) VALUES (?, ?, ?)",
                        (name, *cells),
                    )
                    state = _next_state(self._key, state, name, *cells)
                connection.execute(
                    "UPDATE settings SET state = ?, ids = ?", (state, kind)
                )
        # now they are in the file
        self._n_seen = len(stored)
        self._seen = state
        rows = [np.frombuffer(stored[name].report, "<i4") for name in names]  # public
        indices = np.concatenate(rows)
        indptr = np.cumsum([0, *map(len, rows)])
        ones = np.ones(len(indices), X.dtype)
        return sp.csr_array((ones, indices, indptr), shape=X.shape)

    @property
    def _label(self) -> str:
        """Entry name of these reports in a ledger; each store has its own."""
        return f"MemoizedReports {_digest(self._key, b'identity')[:16].hex()}"

    def _ledger_to_charge(self) -> Ledger | None:
        """The ledger of the randomizer, unless it has these reports' entry.

        The entry is for the ledger's part.

        Each id is reported once, so one entry pays for all documents in all calls.
        Reports with a given seed share their flips, so each call needs its own entry.
        """
        given = self.randomizer.ledger
        ledger = None if given is None else as_ledger(given)
        if ledger is None or self.randomizer._random_state is not None:
            return ledger
        is_charged = any(
            entry.label == self._label
            and entry.status == "released"  # one that is only reserved may be canceled
            and entry.charged_part in (None, ledger._part)
            for entry in ledger.entries()
        )
        return None if is_charged else ledger

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, Stored]]:
        """Hold the write lock of all processes: no two of them report one document."""
        with self._file.connected() as connection:
            connection.execute("BEGIN IMMEDIATE")  # without a commit, closing undoes it
            yield connection, self._check(connection)
            connection.execute("COMMIT")

    def _fill(self, connection: sqlite3.Connection) -> None:
        """Write a file without reports, with a new key."""
        words = Streams.from_random_state(None).reader(Purpose.HASH_KEY, 0)
        key = words.words(hashlib.blake2b.MAX_KEY_SIZE // 8).tobytes()
        response = json.dumps(self.randomizer._law)
        connection.execute(
            "CREATE TABLE settings (response TEXT, key BLOB, state BLOB, ids TEXT)"
        )
        connection.execute(
            "CREATE TABLE reports (number INTEGER PRIMARY KEY, id BLOB, document BLOB, "
            "report BLOB)"
        )
        settings = (response, key, _digest(key, response.encode()), "")
        connection.execute("INSERT INTO settings VALUES (?, ?, ?, ?)", settings)

    def _check_kind(self, connection: sqlite3.Connection, kind: str) -> None:
        """Refuse ids of another type than the stored ones.

        A table that is read as integers turns 007 into 7, which would get a second
        report.
        """
        (first,) = connection.execute("SELECT ids FROM settings").fetchone()
        if first and kind and kind != first:
            raise ValueError(
                f"the stored reports have ids that are {first}, got {kind}; read the "
                "table as before, to give each document the id of its first report"
            )

    def _check(self, connection: sqlite3.Connection) -> Stored:
        """Read all reports, and check that none is lost or changed.

        The state after a report is the digest of the earlier state and of the report,
        so a file that lost a report, or another file, has another state.
        """
        found = connection.execute(
            "SELECT response, key, state FROM settings"
        ).fetchone()
        response, key, last = found or ("", b"", b"")
        if response != json.dumps(self.randomizer._law):
            raise ValueError(
                "the stored reports come from a randomizer with other parameters or "
                "another vocabulary, or are damaged; use the same randomizer, or "
                "another path"
            )
        stored: Stored = {}
        rows = connection.execute(
            "SELECT id, document, report FROM reports ORDER BY number"
        )
        try:
            states = [_digest(key, response.encode())]
            for name, document, report in rows:
                states.append(_next_state(key, states[-1], name, document, report))
                stored[name] = Cells(document, report)
            if states[-1] != last:
                raise ValueError("a report is lost or changed")
            was_opened = self._key != b""
            if was_opened and (key != self._key or states[self._n_seen] != self._seen):
                raise ValueError("it is another file, or an older copy")
        except (TypeError, ValueError, IndexError) as error:
            # a value may have another type
            raise ValueError(
                f"{self._path} is damaged, or is another file of reports than the one "
                "that was opened, or an older copy; what that one held was reported: "
                "restore the newest file"
            ) from error
        self._key = key
        self._n_seen = len(stored)
        self._seen = last
        return stored


def _digest(key: bytes, message: bytes) -> bytes:
    return hashlib.blake2b(message, key=key, digest_size=32).digest()


def _next_state(key: bytes, state: bytes, *cells: bytes) -> bytes:
    """State of a file after a report: id, document and bits, each with its length."""
    message = state
    for cell in cells:
        message += len(cell).to_bytes(8, "big") + cell
    return _digest(key, message)


def _rows(X: sp.csr_array) -> list[np.ndarray]:
    """Column numbers of each row."""
    return [X.indices[start:end] for start, end in itertools.pairwise(X.indptr)]


def _kind(ids: list[str | int]) -> str:
    """Whether ids are integers or texts."""
    kinds = {"texts" if isinstance(each, str) else "integers" for each in ids}
    if len(kinds) > 1:
        raise ValueError(
            "ids must be integers only or texts only, got both; write the id of a "
            "document in one way"
        )
    return kinds.pop() if kinds else ""
