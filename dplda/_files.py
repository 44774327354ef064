"""Durable writes, and explanations of SQLite errors. This module imports nothing of dplda."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

OWNER_ONLY = 0o600

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# Errors for content that SQLite, or the reader, did not expect.
_DAMAGED = (
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG,
)  # fmt: skip


def write_atomically(
    path: str | os.PathLike[str], data: bytes, *, permissions: int = OWNER_ONLY
) -> None:
    """Write a file that survives a power cut, as a whole or not at all.

    A reader sees the old content or the new content. When the function returns, the new content
    is on the disk.

    Parameters
    ----------
    path : str or path-like
        The file. An existing file is replaced.
    data : bytes
        The content.
    permissions : int, default=0o600
        Permissions of the file on POSIX systems, less those that the umask removes. By default
        only the owner can read the file.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    # A random name: a file that a killed process left behind does no harm.
    draft = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with open(draft, "xb", opener=partial(os.open, mode=permissions)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    sync_folder(path.absolute().parent)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the file names of a folder survive a power cut, where the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def explained_sqlite_errors(
    path: str, noun: str, kind: str, *, busy_seconds: float
) -> Iterator[None]:
    """Turn SQLite errors into errors that say what to do.

    Parameters
    ----------
    path : str
        The file.
    noun : str
        Name of the content, for instance "ledger".
    kind : str
        Expected kind of file, for instance "privacy ledger".
    busy_seconds : float
        Seconds that the connection waits for other processes.

    Raises
    ------
    TimeoutError
        If another process holds the file for longer than `busy_seconds`.
    ValueError
        If the file is damaged, or of another kind.
    OSError
        If the file cannot be read and written.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _BUSY:
            raise TimeoutError(
                f"another process held the {noun} {path} for over {busy_seconds:.0f} seconds"
            ) from error
        if code in _DAMAGED:
            raise ValueError(
                f"{path} is not a {kind}, or is damaged; choose another path, or restore the file"
            ) from error
        raise OSError(
            f"the {noun} {path} cannot be used: {error}; make sure that the file and its folder "
            "can be written, and that there is room on the disk"
        ) from error
