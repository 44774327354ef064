# ruff: noqa: PT017
"""Coverage-guided fuzzing of what reads bytes from outside: ``python tests/fuzz/harness.py ENTRY``.

ENTRY is a name of `ENTRIES`; further arguments go to libFuzzer, such as ``-runs=9999`` or a folder
of inputs. Any exception but the documented ones ends the search, and the input is written down.
"""

import gzip
import os
import sqlite3
import struct
import sys
import tempfile
import warnings
import zlib
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dplda.datasets", "dplda.federated", "dplda.privacy"]):
    from dplda.datasets import read_uci_bow
    from dplda.federated import LocalModel, MessageError, NextModel, vocabulary_hash
    from dplda.privacy import BudgetError, Ledger

try:
    from dplda import _release as release
except ImportError:
    release = None

FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))


def written(name, data):
    path = FOLDER / name
    path.write_bytes(data)
    return path


def sound_message():
    return LocalModel(
        party="a", round=1, vocabulary=vocabulary_hash(2), table=[[0.5, 0.5], [1.0, 0.0]],
        weight=1.0, epsilon=4.0, delta=0.0, unit="token",
    ).to_bytes()  # fmt: skip


SOUND_EVENTS = (
    b'[{"event": "Repeated", "of": {"event": "Gaussian", "noise_multiplier": 2}, "count": 3}]'
)


def docword(data):
    """Text, packed or not; the first byte says which."""
    packed, text = data[:1] < b"\x40", data[1:]
    path = written("docword", gzip.compress(text, 0) if packed else text)
    try:
        matrix = read_uci_bow(path).data
    except ValueError as error:
        said = str(error)
    else:
        matrix.check_format(full_check=True)
        assert matrix.nnz == 0 or matrix.data.min() > 0
        return
    assert f"{path}, line " in said


def compressed(data):
    """Damaged gzip files."""
    head = struct.pack("<2sBBIBB", b"\x1f\x8b", 8, 0, 0, 0, 3)
    try:
        read_uci_bow(written("docword.gz", data if data[:1] < b"\x40" else head + data[1:]))
    except ValueError as error:
        assert ", line " in str(error)


def vocabulary(data):
    n_words = data[:1].count(b"\0") + 2
    path = written("docword", b"1\n%d\n0\n" % n_words)
    try:
        words = read_uci_bow(path, written("vocab", data[1:])).feature_names
    except ValueError as error:
        assert ", line " in str(error)
        return
    assert len(words) == n_words
    assert all(isinstance(word, str) and word for word in words)


def message(data):
    """Messages, half of them with a right checksum."""
    if data[:1] < b"\x80":
        data = data[1:] + sha256(data[1:]).digest()
    for cls in (LocalModel, NextModel):
        try:
            read = cls.from_bytes(data)
        except MessageError:
            continue
        assert cls.from_bytes(read.to_bytes()) == read


def ledger(data):
    """Any bytes as a file, or a sound database with any text as events."""
    path = written("ledger.sqlite", data[1:])
    if data[:1] < b"\xc0":
        path.unlink()
        whole = Ledger(path)
        whole.reserve("a", "document", [])
        text = data[1:].decode("utf-8", "replace")
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE entries SET events = ?", (text,))
        connection.close()
    with suppress(ValueError, OSError, BudgetError):
        found = Ledger(path)
        assert found.epsilon_spent >= 0
        found.entries()


def released(data):
    """A file of a released model."""
    with suppress(ValueError, OSError):
        release.load_release(written("model.release", data))


# Each with inputs to start from.
ENTRIES = {
    "docword": (docword, [b"@2\n3\n2\n1 2 4\n2 3 1\n", b"\0002\n3\n3\n2 2 4\n1 3 1\n1 3 1\n"]),
    "compressed": (compressed, [gzip.compress(b"2\n3\n1\n1 2 4\n"), zlib.compress(b"2\n3\n0")]),
    "vocabulary": (vocabulary, [b"\0a\nb\nc\n", b"@caf\xc3\xa9\r\nb\n"]),
    "message": (message, [b"\xff" + sound_message(), b"\0" + sound_message()[:-32]]),
    "ledger": (ledger, [b"\0" + SOUND_EVENTS, b"\xffSQLite format 3\0"]),
    **({"release": (released, [b"{}"])} if release else {}),
}


def main():
    test, seeds = ENTRIES[sys.argv.pop(1)]
    folder = FOLDER / "seeds"
    folder.mkdir()
    for number, seed in enumerate(seeds):
        (folder / str(number)).write_bytes(seed)
    warnings.simplefilter("error")
    atheris.Setup([*sys.argv, "-rss_limit_mb=2000", "-timeout=20", str(folder)], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
