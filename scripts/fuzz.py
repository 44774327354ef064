# ruff: noqa: PT017
"""Coverage-guided fuzzing of what reads bytes from outside.

``python scripts/fuzz.py ENTRY``

Part of the nightly workflow. ENTRY is a name of `ENTRIES`, or "all" for a while of
each; further arguments go to libFuzzer, such as ``-runs=9999`` or a folder of inputs.
Any exception but the documented ones ends the search, and the input is written down.
"""

import gzip
import io
import json
import os
import sqlite3
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path

import numpy as np

try:
    import atheris
except ImportError:  # an input of each entry is a test, which needs no search
    atheris = None

INSTRUMENTED = [
    "dplda.core._splitter",
    "dplda.core._words",
    "dplda.text",
    "dplda.federated",
    "dplda.privacy",
    "dplda.local._memoized_reports",
    "dplda.release",
    "dplda.cli._ledger",
]
with atheris.instrument_imports(include=INSTRUMENTED) if atheris else nullcontext():
    from dplda import (
        GibbsLDA,
        MemoizedReports,
        RandomizedResponse,
        load_counts,
        load_release,
        private_topic_counts,
        save_release,
    )
    from dplda.__main__ import main as command
    from dplda.core._splitter import Splitter
    from dplda.core._words import Words
    from dplda.federated import LocalModel, MessageError, NextModel, vocabulary_hash
    from dplda.privacy import BudgetError, Ledger, PrivacyLeakWarning, _store
    from dplda.release._container import pack, unpack
    from dplda.text._text_files import stream_texts

CLIENT = RandomizedResponse(bit_epsilon=1.0).fit([[1, 0, 2]])
FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))


def set_digest(connection):
    """Make a changed ledger look like one that was written so."""
    (_, record, _), *rows = _store._rows(connection)
    _, _, digest = _store._head(record, rows)
    connection.execute("UPDATE entries SET status = ? WHERE id = 0", (digest.decode(),))


def with_events(record, text):
    """A record of an entry with other events, or another record if they are no JSON."""
    try:
        return json.dumps({**json.loads(record), "events": json.loads(text)})
    except (ValueError, RecursionError):
        return text


def written(name, data):
    path = FOLDER / name
    path.write_bytes(data)
    return path


def hostile(kind, data):
    """Any bytes, or any fields with a right checksum; the first byte says which."""
    if data[:1] < b"\x80":
        return data[1:]
    text, _, table = data[1:].partition(b"\n")
    dtype = np.float32 if kind.endswith("model") else np.float64
    cells = np.frombuffer(table[: len(table) // 8 * 8], dtype)[None]
    name = "table" if kind.endswith("model") else "components"
    with suppress(ValueError, RecursionError):
        fields = json.loads(text.decode("utf-8", "replace"))
        return pack(kind, fields, {name: cells}, max_header=2**20)
    return data


def starts(kind, data):
    """Two inputs from which `hostile` makes a sound file."""
    fields, tables = unpack(kind, data, max_header=2**20)
    table = max(tables.values(), key=lambda values: values.nbytes)
    return [
        b"\0" + data,
        b"\x80" + json.dumps(fields).encode() + b"\n" + table.tobytes(),
    ]


def sound_message():
    return LocalModel(
        party="a",
        round=1,
        vocabulary=vocabulary_hash(["a", "b"]),
        table=[[0.5, 0.5]],
        weight=1.0,
        epsilon=4.0,
        delta=0.0,
        unit="token",
    ).to_bytes()


SOUND_EVENTS = (
    b'[{"event": "Repeated", "of": {"event": "Gaussian", "noise_multiplier": 2}, '
    b'"count": 3}]'
)


def compressed(data):
    """Damaged gzip files."""
    head = struct.pack("<2sBBIBB", b"\x1f\x8b", 8, 0, 0, 0, 3)
    try:
        packed = data if data[:1] < b"\x40" else head + data[1:]
        stream_texts(written("a.txt.gz", packed)).all()
    except ValueError as error:
        assert "a.txt.gz" in str(error)


def message(data):
    """Messages, most of them with a right checksum."""
    for cls in (LocalModel, NextModel):
        message = hostile(cls.kind, data)
        try:
            read = cls.from_bytes(message)
        except MessageError:
            continue
        assert cls.from_bytes(read.to_bytes()) == read


@cache
def sound_ledger():
    path = FOLDER / "sound.sqlite"
    Ledger(path).reserve("a", "document", [])
    return path.read_bytes()


@cache
def sound_reports():
    path = FOLDER / "sound.reports"
    MemoizedReports(CLIENT, path).reports(["a"], [[1, 0, 2]])
    return path.read_bytes()


def ledger(data):
    """Any bytes as a file, or a sound database with any text as events."""
    path = written("ledger.sqlite", data[1:])
    if data[:1] < b"\xc0":
        path.write_bytes(sound_ledger())
        text = data[1:].decode("utf-8", "replace")
        with sqlite3.connect(path) as connection:
            query = "SELECT record FROM entries WHERE id = 1"
            (record,) = connection.execute(query).fetchone()
            changed = (with_events(record, text),)
            connection.execute("UPDATE entries SET record = ? WHERE id = 1", changed)
            set_digest(connection)
        connection.close()
    with suppress(ValueError, OSError, BudgetError):
        found = Ledger(path)
        assert found.epsilon_spent >= 0
        found.entries()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert command(["ledger", "show", str(path)]) in (0, 1)


def reports(data):
    """Any bytes as a file, or a sound database with any bytes in one of its columns."""
    path = written("reports.sqlite", data[1:])
    columns = "response", "key", "document", "report", "ids"
    column = dict(enumerate(columns)).get(data[0] % 8 if data else None)
    if column:
        path.write_bytes(sound_reports())
        table = "reports" if column in ("document", "report") else "settings"
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE {table} SET {column} = ?", (data[1:],))
        connection.close()
    with suppress(ValueError, OSError):
        found = MemoizedReports(CLIENT, path).reports(["a", "b"], [[1, 0, 2]] * 2)
        found.check_format(full_check=True)


def released(data):
    """Any bytes as a file, or any header and table with a right checksum."""
    data = hostile("dplda-release", data)
    with suppress(ValueError, OSError):
        model = load_release(written("model.release", data))
        assert model.epsilon_ >= 0
        if model.doc_topic_prior is not None:
            theta = model.transform([[1] * model.n_features_in_])
            assert abs(theta.sum() - 1) < 1e-6


def words(data):
    """Any text by any rule: the kernel finds what the rule finds."""
    head = data[:1] or b"\0"
    languages = "und", "tr", "el", "uk", "ca", "hi", "ar", "ro"
    patterns = None, r"(?u)\b\w\w+\b"
    rule = Words.of(languages[head[0] % 8], patterns[head[0] // 8 % 2])
    content = data[1:]
    text = content.decode("utf-8", "ignore")
    if head >= b"\x80":  # lone surrogates, too
        text = content[: len(content) // 2 * 2].decode("utf-16-le", "surrogatepass")
    block = text.split("\0")
    found, (number, times, ptr) = Splitter(rule)(block)
    for text, begin, end in zip(block, ptr[:-1], ptr[1:], strict=True):
        pairs = zip(number[begin:end], times[begin:end], strict=True)
        assert {found[i]: n for i, n in pairs} == Counter(rule(text))


def sound_release():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        save_release(GibbsLDA(1, max_iter=1).fit([[1, 2]]), FOLDER / "sound.release")
    return (FOLDER / "sound.release").read_bytes()


def counted(data):
    """Any bytes as a file of counts, or any header and table with a right checksum."""
    data = hostile("dplda-counts", data)
    with suppress(ValueError, OSError):
        table = load_counts(written("counts", data))
        table.to_frame()
        table.differs()
        table.real_share()
        assert load_counts(written("counts", table.to_bytes())).levels == table.levels


def sound_counts():
    model = GibbsLDA(1, max_iter=1).fit([[1, 2]])
    given = {"by": {"day": ["Mon"]}, "levels": {"day": ["Mon", "Tue"]}}
    return private_topic_counts(model, [[1, 0]], epsilon=1.0, **given).to_bytes()


# Each with inputs to start from.
ENTRIES = {
    "compressed": (
        compressed,
        [gzip.compress(b"2\n3\n1\n1 2 4\n"), zlib.compress(b"2\n3\n0")],
    ),
    "message": (message, starts(LocalModel.kind, sound_message())),
    "ledger": (ledger, [b"\0" + SOUND_EVENTS, b"\xffSQLite format 3\0"]),
    "reports": (
        reports,
        [b"\x03" + bytes(8), b"\x01" + bytes(32), b"\x07SQLite format 3\0"],
    ),
    "release": (released, starts("dplda-release", sound_release())),
    "words": (words, ["\3п'ять\0a_b e\u0301 хата".encode(), b"\x80a\0 \xdc"]),
    "counts": (counted, starts("dplda-counts", sound_counts())),
}


# Inputs of each that "all" tries: about two minutes.
RUNS = {
    "compressed": 20_000,
    "message": 30_000,
    "ledger": 4_000,
    "reports": 4_000,
    "release": 20_000,
    "words": 30_000,
    "counts": 10_000,
}


def main():
    if sys.argv[1] == "all":
        for entry in ENTRIES:
            command = [sys.executable, __file__, entry, f"-runs={RUNS[entry]}"]
            subprocess.run([*command, *sys.argv[2:]], check=True)
        return
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
