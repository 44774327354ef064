"""Durable writes, and databases in one file. Imports nothing of dplda."""

from __future__ import annotations

import errno
import gzip
import os
import shlex
import sqlite3
import stat
import sys
import tempfile
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR
# less what the umask removes
PUBLIC = OWNER_ONLY | stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH

# bytes, characters, words, or numbers of a fit (40 bytes each) that any memory holds
IN_MEMORY = 1 << 24
# Of what a larger file may unpack to, over its size: a file may be made to exhaust the
# memory. Real texts compress by a factor of 3 to 10.
MAX_EXPANSION = 100

# of waiting for a database: a first charge to 1,000 sampled fits takes 16 s
BUSY_SECONDS = 600.0
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# Errors for content that SQLite, or the reader, did not expect.
_DAMAGED = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
)

# SQLite keeps its file locks in the memory of the process. A forked process inherits
# the locks of threads that it does not have, and would wait for them forever. No fork
# may therefore happen while a connection is open.
_CONNECTED = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_CONNECTED.acquire,
        after_in_parent=_CONNECTED.release,
        after_in_child=_CONNECTED.release,
    )


def write_atomically(
    path: str | os.PathLike[str], data: bytes, *, permissions: int = OWNER_ONLY
) -> None:
    """Write a file that survives a power cut, as a whole or not at all.

    A reader sees the old content or the new content. When the function returns, the new
    content is on the disk. By default only the owner can read the file; the umask
    removes further rights.
    """
    path = Path(path)
    with _drafted(path, data, permissions) as draft:
        os.replace(draft, path)
        _sync_folder(path.absolute().parent)


@contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write to, which takes its place when the block has ended well.

    As `write_atomically`, for content that memory does not hold. Only the owner can
    read it.
    """
    path = Path(path)
    with _drafted(path, b"") as draft:
        file = draft.open("r+b")
        try:
            yield file
            with explained(path):
                file.flush()
                os.fsync(file.fileno())
        finally:
            with suppress(OSError):  # what was not flushed; its error is on its way
                file.close()
        os.replace(draft, path)
        _sync_folder(path.absolute().parent)


@contextmanager
def reserved(path: str | os.PathLike[str], size: int = 1) -> Iterator[None]:
    """Reserve `size` bytes on disk for a file before its content costs privacy.

    The file itself is not changed, and is not created.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a file")
    with ExitStack() as stack:
        try:
            stack.enter_context(_drafted(path, bytes(size)))
        except OSError as error:
            room = f" for {size} bytes" if size > 1 else ""
            raise OSError(
                f"{path} cannot be written: {error.strerror or error}; give a path in "
                f"a folder that exists, can be written, and has room{room}"
            ) from error
        yield


@contextmanager
def explained(place: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of a disk say what to do.

    They quote no size, which is private if the documents decide it.
    """
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{place} cannot be written: {error.strerror or error}; make room on its "
            "disk, or name a place on a larger one (of temporary files by TMPDIR)"
        ) from error


def write_all(file: IO[bytes], data: memoryview) -> None:
    """Write bytes to a file without a buffer, which may take a part at a time."""
    while data:
        data = data[file.write(data) :]


def nameless(folder: str | os.PathLike[str], size: int) -> IO[bytes]:
    """A file for this process alone, with its first `size` bytes reserved on the disk.

    It ends with the process, also with one that is killed.
    """
    with explained(folder), ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile(buffering=0, dir=folder))
        if size and not _allocated(file, size):
            for begin in range(0, size, IN_MEMORY):
                write_all(file, memoryview(bytes(min(IN_MEMORY, size - begin))))
        stack.pop_all()
        return file


def _allocated(file: IO[bytes], size: int) -> bool:
    """Reserve room without writing to it; False if the system cannot do that."""
    if not hasattr(os, "posix_fallocate"):  # macOS, Windows
        return False
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # musl does not write in its place
            raise
        return False
    return True


@contextmanager
def _drafted(path: Path, data: bytes, permissions: int = OWNER_ONLY) -> Iterator[Path]:
    """A file next to `path`, on the disk; removed unless it was renamed.

    Its name is random, so a file left by a killed process does not stop the next
    process.
    """
    draft = path.with_name(f".{uuid.uuid4().hex}.part")
    opener = partial(os.open, mode=permissions)
    # The file is new, and follows no link. If it exists already, nothing is removed.
    file = open(draft, "xb", opener=opener)  # noqa: SIM115
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """The bytes of a plain or gzip file. Errors do not quote the content."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            if not packed:
                yield file
                return
            # first unpack it without keeping the content, up to the allowed size
            most = largest_size(path)
            size = gzip.GzipFile(fileobj=file).seek(most + 1)
            check_unpacked(size <= most, path)
            file.seek(0)
            yield gzip.GzipFile(fileobj=file)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise ValueError(f"{path} is not a whole gzip file; get it again") from None


def largest_size(path: str | os.PathLike[str]) -> int:
    """Bytes that the content of a compressed file may have."""
    return max(IN_MEMORY, MAX_EXPANSION * os.path.getsize(path))


def check_unpacked(is_within: bool, name: str | os.PathLike[str]) -> None:
    """Refuse a file whose content is larger than `largest_size`."""
    if not is_within:
        raise ValueError(
            f"{name} unpacks to more than {MAX_EXPANSION} times its size; if you trust "
            "it, unpack it first (Parquet: write CSV or JSON Lines)"
        )


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written, before there is something to lose."""
    with reserved(path):
        pass


def check_kept_secret(path: str | os.PathLike[str]) -> None:
    """Refuse a private key that others on this machine can read or write, as ssh does.

    A key that belongs to somebody else, such as the administrator, is theirs to share.
    This does nothing on Windows, where access lists decide and Python does not read
    them.
    """
    if sys.platform == "win32":
        return
    found = os.stat(path)
    rights = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.getuid() and rights & 0o077:
        name = shlex.quote(os.fspath(path))
        raise PermissionError(
            f"the private key {path} is open to other users of this machine "
            f"(permissions {rights:04o}); run: chmod 600 {name}, and make a new one if "
            "others may have read or changed it"
        )


def _check_locks(folder: str | os.PathLike[str]) -> None:
    """Find out at once whether SQLite's file locks work in a folder open to writing.

    On a file system without locks, SQLite reports that another process holds the file.
    """
    if sys.platform == "win32":
        return
    import fcntl

    if os.access(folder, os.W_OK):
        with tempfile.TemporaryFile(dir=folder) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"file locks do not work in {folder} ({error.strerror}); choose a "
                    "folder on a local disk",
                ) from error


def _sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make a folder's file names survive a power cut, if the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class Database:
    """An SQLite file that records releases.

    Its commits survive a power cut.
    """

    path: str
    noun: str  # what it holds, such as "ledger"
    kind: str  # of file, such as "privacy ledger"
    # in its header, to tell this kind from other databases
    application_id: int
    if_gone: str  # what follows

    def __post_init__(self) -> None:
        _check_locks(os.path.dirname(self.path))

    def create(self, fill: Callable[[sqlite3.Connection], None]) -> None:
        """Create a complete file in one step, and never replace an existing one."""
        for journal in (f"{self.path}-journal", f"{self.path}-wal"):
            # another process may have created the file just now, and write to it
            if os.path.exists(journal) and not os.path.exists(self.path):
                raise ValueError(
                    f"the {self.noun} {self.path} is gone, but its journal {journal} "
                    "exists; restore the file, or remove the journal if its content "
                    "does not matter"
                )

        try:
            with _drafted(Path(self.path), b"") as draft:
                with self._connection(str(draft)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    fill(connection)
                    connection.execute(f"PRAGMA application_id = {self.application_id}")
                    connection.execute("COMMIT")
                with suppress(FileExistsError):  # if another process was first
                    os.link(draft, self.path)
            _sync_folder(os.path.dirname(self.path))
        except OSError as error:
            raise OSError(
                f"the {self.noun} {self.path} cannot be made: "
                f"{error.strerror or error}; it needs an existing folder that can be "
                "written, on a local disk"
            ) from error

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """A connection to the file, which must exist."""
        if not os.path.exists(self.path):
            raise FileNotFoundError(
                f"the {self.noun} {self.path} is gone; {self.if_gone}"
            )
        with self._connection(self.path) as connection:
            (found,) = connection.execute("PRAGMA application_id").fetchone()
            if found != self.application_id:
                raise ValueError(
                    f"{self.path} is not a {self.kind} of this version of dplda, or "
                    "its content was lost; choose a path where there is no file, or "
                    "restore the file"
                )
            with suppress(sqlite3.OperationalError):  # in use by another program
                connection.execute("PRAGMA journal_mode = DELETE")
            yield connection

    @contextmanager
    def _connection(self, path: str) -> Iterator[sqlite3.Connection]:
        where = f"{Path(path).as_uri()}?mode=rw"
        connect = partial(
            sqlite3.connect, uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        with (
            self._explained(path),
            _CONNECTED,
            closing(connect(where)) as connection,
        ):
            # A commit must survive a power cut: it stands for something that was
            # released. SQLite therefore removes its journal after each commit and then
            # writes the folder to disk.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")
            yield connection

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Turn SQLite errors into errors that say what to do."""
        damaged = (
            f"{path} is not a {self.kind}, or is damaged; choose another path, or "
            "restore it"
        )
        try:
            yield
        except UnicodeDecodeError:  # SQLite's message quotes a damaged name
            raise ValueError(damaged) from None
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in _BUSY:
                raise TimeoutError(
                    f"another process held the {self.noun} {path} for over "
                    f"{BUSY_SECONDS:.0f} seconds"
                ) from error
            if code in _DAMAGED:
                raise ValueError(damaged) from error
            raise OSError(
                f"the {self.noun} {path} cannot be used: {error}; make sure that the "
                "file and its folder can be written, and that there is room on the disk"
            ) from error
