"""Texts and their ids from files: a folder of text files, CSV, JSON or Parquet.

Texts are read one after the other, so files may be larger than the memory. Only an
array of JSON is read at once, because it is one value.

The modules of Python read CSV and JSON, because pandas fills short rows in silence. No
error quotes a text, an id, or a cell. The first line of a CSV file without a header is
a text, and the keys of an object of JSON may be ids: errors do not quote them as names
of columns.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from dplda.leaf._checks import LARGEST_INTEGER
from dplda.leaf._files import check_unpacked, largest_size, opened

# Kind of file by suffix. All but Parquet may be compressed by gzip.
KINDS = {
    ".txt": "text",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".json": "JSON",
    ".jsonl": "JSON",
    ".ndjson": "JSON",
    ".parquet": "Parquet",
}
ALLOWED = (
    "a folder of text files (.txt), or .csv, .tsv, .json, .jsonl, .ndjson or .parquet"
)
T = TypeVar("T")
PARQUET_ROWS = 32  # in memory at a time, each with a cell as large as all others


# of a table: what a row is called, its number, and its cells of the columns asked for
Rows: TypeAlias = Iterator[tuple[str, int, list[object]]]


class Texts(NamedTuple):
    """What was read. Private."""

    texts: list[str]  # a missing text is empty
    # of the column of ids, or names of the files in a folder of text files
    ids: list[str]
    n_left_out: int  # files of other kinds in the folder


class TextStream(NamedTuple):
    """Texts that are read one after the other. Private."""

    # a text, its id as in `Texts`, and its cells of the other columns
    rows: Iterator[tuple[str, str | None, list[str]]]
    n_left_out: int
    share_read: Callable[[], float]  # of the bytes of the files

    def all(self) -> Texts:
        """All texts at once."""
        read = list(self.rows)
        ids = [of_text for _, of_text, _ in read if of_text is not None]
        return Texts([text for text, _, _ in read], ids, self.n_left_out)


@dataclass
class Place:
    """How far files are read, in bytes."""

    size: int  # of all files
    before: int = 0  # in files that were read
    here: Callable[[], int] = int  # in the file that is read

    def share(self) -> float:
        return (self.before + self.here()) / max(self.size, 1)

    def leave(self, size: int) -> None:
        """End a file of some bytes."""
        self.before += size
        self.here = int


class Estimated(Generic[T]):
    """Items that estimate by a finished share how many are left (PEP 424)."""

    def __init__(self, items: Iterator[T], share: Callable[[], float]) -> None:
        self._items = items
        self._share = share
        self._n_read = 0

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        item = next(self._items)
        self._n_read += 1
        return item

    def __length_hint__(self) -> int:
        share = self._share()
        return round(self._n_read * (1 - share) / share) if share else 0


def stream_texts(
    path: Path,
    *,
    text_column: str = "text",
    id_column: str | None = None,
    other_columns: Sequence[str] = (),
    encoding: str = "utf-8",
    separator: str | None = None,
) -> TextStream:
    """All texts of a file, or of a folder of files of one kind, in order of names.

    Ids are text without spaces around it: 7 and "7" are one. `separator` is by default
    what a first line ``sep=;`` says, a tab in .tsv files, and otherwise a comma.
    `encoding` applies to all files except Parquet.
    """
    try:
        "".encode(encoding)
    except LookupError:
        raise ValueError(
            f"there is no encoding {encoding!r}; try utf-8 or cp1252"
        ) from None
    if codecs.lookup(encoding).name == "utf-8":
        # some programs write a mark at the start, which is not part of the text
        encoding = "utf-8-sig"
    if separator is not None and len(separator) != 1:
        raise ValueError(f"the separator must be one character, got {len(separator)}")
    files, kind, n_left_out = _files(path)
    if kind == "text" and (id_column is not None or other_columns):
        raise ValueError(
            f"{path} holds text files, which have no columns; write texts and ids to a "
            "table"
        )
    columns = [text_column] if id_column is None else [text_column, id_column]
    n_own = len(columns)
    columns += other_columns
    sizes = [file.stat().st_size for file in files]
    place = Place(sum(sizes))

    def rows() -> Iterator[tuple[str, str | None, list[str]]]:
        n_read = 0
        for file, size in zip(files, sizes):
            if kind == "text":
                name = file.relative_to(path).as_posix() if path.is_dir() else file.name
                with _content(file, encoding, place) as content:
                    yield _text(content.read(), file), name, []
                n_read += 1
                place.leave(size)
                continue
            table = _rows(file, kind, columns, encoding, separator, place)
            for unit, number, cells in table:
                of_text = None
                if id_column is not None:
                    of_text = _id(cells[1], file, unit, number, id_column)
                text = _text(cells[0], file, f", {unit} ", number)
                yield text, of_text, list(map(_cell, cells[n_own:]))
                n_read += 1
            place.leave(size)
        if not n_read:
            raise ValueError(
                f"{path} holds no texts: it is empty, or has a header and no rows"
            )

    return TextStream(rows(), n_left_out, place.share)


def _rows(
    file: Path,
    kind: str,
    columns: list[str],
    encoding: str,
    separator: str | None,
    place: Place,
) -> Rows:
    """The rows of a table."""
    if kind == "Parquet":
        yield from _rows_of_parquet(file, columns, place)
        return
    with _content(file, encoding, place) as content:
        if kind == "CSV":
            yield from _rows_of_csv(content, file, columns, separator)
        else:
            yield from _rows_of_json(content, file, columns)


def _files(path: Path) -> tuple[list[Path], str, int]:
    """The files to read, in order of names, their kind, and the number of others."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    inside = [path]
    if path.is_dir():  # systems write files whose names begin with a dot
        seen = [
            file
            for file in path.rglob("*")
            if not any(part.startswith(".") for part in file.relative_to(path).parts)
        ]
        if any(file.is_symlink() and file.is_dir() for file in seen):
            raise ValueError(
                f"{path} holds a link to a folder, which is not followed; put the "
                "folder in its place, or give the texts in a table"
            )
        inside = [file for file in seen if file.is_file()]
    files = sorted(file for file in inside if _kind(file))
    kinds = sorted({_kind(file) for file in files})
    if len(kinds) != 1:
        found = "nothing to be read"
        if kinds:
            found = f"files of several kinds ({', '.join(kinds)})"
        raise ValueError(
            f"{path} is of an unknown kind, or holds {found}; give {ALLOWED}, all of "
            "one kind"
        )
    names = {
        file.with_suffix("") if file.suffix.lower() == ".gz" else file for file in files
    }
    # of all its links
    same = {(found.st_dev, found.st_ino) for found in map(os.stat, files)}
    if min(len(names), len(same)) < len(files):
        raise ValueError(
            f"the folder {path} holds two names of one file, by a link or beside its "
            "gzip file; a text that counts twice is protected less, and each file "
            "needs one name"
        )
    return files, kinds[0], len(inside) - len(files)


def _kind(path: Path) -> str:
    """The kind of a file by its name; empty if it is none of those that are read."""
    last = path.suffix.lower()
    if last != ".gz":
        return KINDS.get(last, "")
    kind = _kind(path.with_suffix(""))
    return "" if kind == "Parquet" else kind


@contextmanager
def _content(path: Path, encoding: str, place: Place) -> Iterator[io.TextIOWrapper]:
    """The content of a text file. Errors quote nothing of it."""
    try:
        with opened(path) as file:
            # gzip files count as they are stored
            place.here = getattr(file, "fileobj", file).tell
            yield io.TextIOWrapper(file, encoding, newline="")
    except UnicodeError:
        raise ValueError(
            f"{path} is not encoded in {encoding.removesuffix('-sig')}; give "
            "--encoding, for instance cp1252 or utf-16"
        ) from None


def _check_columns(
    names: Collection[str], columns: list[str], kind: str, *where: object
) -> None:
    """Refuse a row, or a table, without a column, and name those that there are."""
    for column in columns:
        if column in names:
            continue
        there = f"the columns are {reprlib.repr(list(names))}"
        advice = ""
        if kind == "JSON":  # the keys of one object may be ids, and its values texts
            there = "the keys of an object name its columns, and an object has one text"
        elif kind == "CSV":
            there = f"its first line must name the columns, and has {len(names)}"
            advice = ", and see whether --separator is right"
        raise ValueError(
            f"{_joined(where)} has no column {column!r}: {there}; name columns by "
            f"options such as --text-column, --user-column or --id-column{advice}"
        )


def _text(value: object, *where: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(
            f"{_joined(where)}: {type(value).__name__} is not text; give another "
            "--text-column"
        )
    if "\0" in value:
        raise ValueError(
            f"{_joined(where)} holds zero bytes; give --encoding, for instance utf-16"
        )
    return value


def _joined(where: Iterable[object]) -> str:
    return "".join(map(str, where))


def _id(value: object, path: Path, unit: str, number: int, column: str) -> str:
    """An id as text. Values that become equal are one user, which protects more."""
    text = str(value).strip() if isinstance(value, (str, int)) else ""
    if not text or isinstance(value, bool):
        raise ValueError(
            f"{path}, {unit} {number}, column {column!r} is empty, or no id: every "
            "text needs an id, which is text or a whole number"
        )
    return text


def _cell(value: object) -> str:
    """A cell of another column, as text; empty if it is missing."""
    return "" if value is None else str(value).strip()


def _rows_of_csv(
    file: io.TextIOWrapper, path: Path, columns: list[str], separator: str | None
) -> Rows:
    # characters of a cell: a text is whole in memory in any case; the default of the
    # module is 131,072
    csv.field_size_limit(LARGEST_INTEGER)
    is_tsv = ".tsv" in [suffix.lower() for suffix in path.suffixes]
    usual = "\t" if is_tsv else ","
    first = file.readline()
    mark = first.rstrip("\r\n")
    lines: Iterable[str] = chain([first], file)
    n_marks = int(len(mark) == len("sep=;") and mark.startswith("sep="))
    if n_marks:  # a line for Excel, which is not part of the table
        usual = mark[-1]
        lines = file
    reader = csv.reader(lines, delimiter=separator or usual, strict=True)
    try:
        header = next(reader, [])
        _check_header(header, path, columns)
        places: list[int] = []
        for row in reader:
            if not row:
                continue
            number = reader.line_num + n_marks
            if len(row) != len(header):
                raise ValueError(
                    f"{path}, line {number} has more or fewer columns than the header; "
                    "quote texts that hold the separator, or give another --separator"
                )
            if not places:
                _check_columns(header, columns, "CSV", path, ", line ", number)
                places = [header.index(column) for column in columns]
            yield "line", number, [row[place] for place in places]
    except csv.Error as error:  # its messages quote no cell
        raise ValueError(
            f"{path} is not valid CSV after line {reader.line_num + n_marks}: {error}"
        ) from None


def _rows_of_json(file: io.TextIOWrapper, path: Path, columns: list[str]) -> Rows:
    """The objects in the lines, or in an array."""
    filled = ((i, line) for i, line in enumerate(file, start=1) if line.strip())
    first = next(filled, None)
    if first is None:
        return
    unit = "line"
    records = ((i, _json(line)) for i, line in chain([first], filled))
    if first[1].lstrip().startswith("["):
        array = _json(first[1] + file.read())
        if not isinstance(array, list):
            raise ValueError(f"{path} is not a valid array of JSON")
        unit = "object"
        records = ((i, record) for i, record in enumerate(array, start=1))
    for number, record in records:
        if not isinstance(record, dict):
            raise ValueError(f"{path}, {unit} {number} is not a JSON object")
        _check_columns(record, columns, "JSON", path, f", {unit} ", number)
        yield unit, number, [record[column] for column in columns]


def _json(content: str) -> object:
    """The value of a text; None if it is not valid."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _rows_of_parquet(path: Path, columns: list[str], place: Place) -> Rows:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ImportError(
            f"reading {path} needs pyarrow (dplda's extra 'files')"
        ) from None
    left = largest_size(path)
    size = path.stat().st_size
    number = 0
    try:
        file = parquet.ParquetFile(path)
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        left -= sum(group.total_byte_size for group in groups)
        names = file.schema_arrow.names
        # a cell may be as large as all that is stored, and stand in many rows
        batches = file.iter_batches(
            batch_size=PARQUET_ROWS, columns=list(dict.fromkeys(columns))
        )
    except (OSError, ValueError):
        raise ValueError(f"{path} is not a valid Parquet file") from None
    _check_header(names, path, columns)
    _check_columns(names, columns, "Parquet", path)
    check_unpacked(left >= 0, path)
    n_rows = file.metadata.num_rows
    place.here = lambda: size * number // n_rows
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError):
            raise ValueError(f"{path} is not a valid Parquet file") from None
        if batch is None:
            return
        # a row without text still takes a dict
        left -= batch.nbytes + sys.getsizeof({}) * batch.num_rows
        check_unpacked(left >= 0, path)
        try:
            found = batch.to_pylist()
        except Exception:  # of a cell, such as a date after the year 9999
            raise ValueError(
                f"{path} holds cells of {' or '.join(columns)} that Python cannot "
                "hold; write them as texts"
            ) from None
        for row in found:
            number += 1
            yield "row", number, [row[column] for column in columns]


def _check_header(header: list[str], path: Path, columns: list[str]) -> None:
    for column in columns:
        if header.count(column) > 1:
            raise ValueError(
                f"{path} has several columns {column!r}; rename all but one of them"
            )
