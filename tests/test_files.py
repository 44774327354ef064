"""Durable writes, and what SQLite errors become."""

import errno
import os
import sqlite3
import stat
import uuid

import pytest

from dplda.leaf import _files


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


def database(path):
    return _files.Database(str(path), "ledger", "privacy ledger", 7, "")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_reads_unless_told_otherwise(path):
    umask = os.umask(0o027)
    try:
        for permissions, result in [({}, 0o600), ({"permissions": 0o666}, 0o640)]:
            _files.write_atomically(path, b"", **permissions)
            assert stat.S_IMODE(path.stat().st_mode) == result
    finally:
        os.umask(umask)


@pytest.mark.skipif(
    os.name != "posix", reason="folders cannot be synchronized elsewhere"
)
def test_content_and_name_are_on_the_disk_in_this_order(path, monkeypatch):
    synced = []

    def record(descriptor):
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))

    monkeypatch.setattr(os, "fsync", record)
    _files.write_atomically(path, b"content")
    assert synced == [(False, False), (True, True)]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_changes_nothing(path, monkeypatch, function):
    path.write_bytes(b"before")

    def fail(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="disk is full"):
        _files.write_atomically(path, b"after")
    assert path.read_bytes() == b"before"
    assert os.listdir(path.parent) == ["data"]


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (
            sqlite3.SQLITE_BUSY,
            TimeoutError,
            r"another process held the ledger .*/data for over 600 seconds",
        ),
        (
            sqlite3.SQLITE_NOTADB,
            ValueError,
            "/data is not a privacy ledger, or is damaged",
        ),
        (sqlite3.SQLITE_CORRUPT_INDEX, ValueError, "or is damaged"),
        (None, ValueError, "or is damaged"),
        (
            sqlite3.SQLITE_IOERR_WRITE,
            OSError,
            "the ledger .*/data cannot be used: reason",
        ),
        (sqlite3.SQLITE_READONLY, OSError, "cannot be used"),
    ],
)
def test_sqlite_errors_say_what_to_do(code, kind, message, path):
    database(path).create(lambda connection: None)
    error = sqlite3.OperationalError("reason")
    if code is not None:
        error.sqlite_errorcode = code
    with (
        pytest.raises(kind, match=message) as caught,
        database(path).connected(),
    ):
        raise error
    assert caught.value.__cause__ is error
    assert type(caught.value) is kind


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_database_is_created_whole_and_once(path):
    for name in ("first", "second"):
        database(path).create(
            lambda connection, name=name: connection.execute(f"CREATE TABLE {name} (x)")
        )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with database(path).connected() as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [
            ("first",)
        ]
    assert os.listdir(path.parent) == ["data"]


def cannot_allocate(*arguments):
    raise OSError(errno.EOPNOTSUPP, "not supported")


@pytest.mark.parametrize("way", ["allocated", "missing", "not supported"])
def test_room_on_the_disk_is_taken_at_once_or_refused(way, tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    if way == "missing":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    elif way == "not supported":
        monkeypatch.setattr(os, "posix_fallocate", cannot_allocate, raising=False)
    size = _files.IN_MEMORY + 5
    with _files.nameless(tmp_path, size) as file:
        assert 512 * os.fstat(file.fileno()).st_blocks >= size
        assert os.listdir(tmp_path) == []
        file.seek(0)
        _files.write_all(file, memoryview(b"content"))
        file.seek(0)
        assert file.read(8) == b"content\0"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, hard))
    try:
        with pytest.raises(OSError, match=f"{tmp_path} cannot be written: File too"):
            _files.nameless(tmp_path, size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_writability_is_checked_without_a_change(path):
    _files.check_writable(path)
    assert os.listdir(path.parent) == []
    with pytest.raises(OSError, match="cannot be written: No such file"):
        _files.check_writable(path / "data")
    path.mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        _files.check_writable(path)


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_a_planted_link_is_not_followed(path, tmp_path, monkeypatch):
    """Even if the random name is known: the file the link points to stays as it is."""
    name = uuid.uuid4()
    monkeypatch.setattr(uuid, "uuid4", lambda: name)
    victim, link = tmp_path / "victim", tmp_path / f".{name.hex}.part"
    victim.write_bytes(b"precious")
    link.symlink_to(victim)
    with pytest.raises(FileExistsError):
        _files.write_atomically(path, b"content")
    assert victim.read_bytes() == b"precious"
    assert link.is_symlink()
    assert not path.exists()
