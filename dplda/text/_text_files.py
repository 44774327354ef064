"""Texts and their ids from files: a folder of text files, CSV, JSON or Parquet.

CSV and JSON are read by the modules of Python, because pandas fills short rows in
silence. No error quotes a text, an id, or a cell. Columns are named where the format
names them: the first line of a CSV file without a header is a text.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

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
PARQUET_ROWS = 32  # that are read at a time
MOST_NAMES = 10  # of columns, in an error


# of a table: where each one is, and its cells by their columns
Rows: TypeAlias = Iterator[tuple[str, dict[str, object]]]


class Texts(NamedTuple):
    """What was read. Private."""

    texts: list[str]  # a missing text is empty
    # of the column of ids, or names of the files in a folder of text files
    ids: list[str]
    n_left_out: int  # files of other kinds in the folder
    columns: dict[str, list[str]]  # others that were asked for


def read_texts(
    path: Path,
    *,
    text_column: str = "text",
    id_column: str | None = None,
    other_columns: Sequence[str] = (),
    encoding: str = "utf-8",
    separator: str | None = None,
) -> Texts:
    """All texts of a file, or of a folder of files of one kind, in order of names.

    Ids are text without spaces around it: 7 and "7" are one. `separator` is by default
    what a first line ``sep=;`` says, a tab in .tsv files, and otherwise a comma.
    `encoding` is that of all files but Parquet.
    """
    try:
        "".encode(encoding)
    except LookupError:
        raise ValueError(
            f"there is no encoding {encoding!r}; try utf-8 or cp1252"
        ) from None
    if codecs.lookup(encoding).name == "utf-8":
        # the mark of some programs at the start is no part of the text
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
    columns += [column for column in other_columns if column not in columns]
    others: dict[str, list[str]] = {column: [] for column in other_columns}
    texts: list[str] = []
    ids: list[str] = []
    for file in files:
        rows: Rows
        if kind == "text":
            rows = iter([(f"{file}", {text_column: _read(file, encoding).read()})])
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            ids.append(name)
        elif kind == "Parquet":
            rows = _rows_of_parquet(file, columns)
        elif kind == "CSV":
            rows = _rows_of_csv(_read(file, encoding), file, columns, separator)
        else:
            rows = _rows_of_json(_read(file, encoding), file)
        for where, row in rows:
            for column in columns:
                if column not in row:
                    raise ValueError(_no_column(where, column, [*row], kind))
            texts.append(_text(row[text_column], where))
            if id_column is not None:
                ids.append(_id(row[id_column], f"{where}, column {id_column!r}"))
            for column, values in others.items():
                values.append("" if row[column] is None else str(row[column]).strip())
    if not texts:
        raise ValueError(
            f"{path} holds no texts: it is empty, or has a header and no rows"
        )
    return Texts(texts, ids, n_left_out, others)


def _files(path: Path) -> tuple[list[Path], str, int]:
    """The files to read, in order of names, their kind, and the number of others."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    inside = [path]
    if path.is_dir():  # names that begin with a dot are those of the system
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


def _read(path: Path, encoding: str) -> io.StringIO:
    """The content of a text file. Errors quote nothing of it."""
    try:
        with opened(path) as file:
            return io.StringIO(file.read().decode(encoding), newline="")
    except UnicodeError:
        raise ValueError(
            f"{path} is not encoded in {encoding.removesuffix('-sig')}; give "
            "--encoding, for instance cp1252 or utf-16"
        ) from None


def _no_column(where: str, column: str, names: list[str], kind: str) -> str:
    """An error of a missing column, with the columns that there are."""
    there = f"the columns are {', '.join(map(repr, names[:MOST_NAMES]))}"
    if len(names) > MOST_NAMES:
        there += f" and {len(names) - MOST_NAMES} more"
    advice = ""
    if kind == "CSV":
        there = f"its first line must name the columns, and has {len(names)}"
        advice = ", and see whether --separator is right"
    return (
        f"{where} has no column {column!r}: {there}; name columns by --text-column, "
        f"--user-column, --by and so on{advice}"
    )


def _text(value: object, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: {type(value).__name__} is not text; give another --text-column"
        )
    if "\0" in value:
        raise ValueError(
            f"{where} holds zero bytes; give --encoding, for instance utf-16"
        )
    return value


def _id(value: object, where: str) -> str:
    """An id as text. Values that become equal are one user, which protects more."""
    text = str(value).strip() if isinstance(value, (str, int)) else ""
    if not text or isinstance(value, bool):
        raise ValueError(
            f"{where} is empty, or no id: every text needs an id, which is text or a "
            "whole number"
        )
    return text


def _rows_of_csv(
    file: io.StringIO, path: Path, columns: list[str], separator: str | None
) -> Rows:
    # characters of a cell; the default of the module is 131,072
    csv.field_size_limit(LARGEST_INTEGER)
    is_tsv = ".tsv" in [suffix.lower() for suffix in path.suffixes]
    usual = "\t" if is_tsv else ","
    first = file.readline()
    mark = first.rstrip("\r\n")
    n_marks = int(len(mark) == len("sep=;") and mark.startswith("sep="))
    if n_marks:  # a line for Excel, which is no part of the table
        usual = mark[-1]
    else:
        file.seek(0)
    reader = csv.DictReader(file, delimiter=separator or usual, strict=True)
    try:
        _check_header(list(reader.fieldnames or []), path, columns)
        for row in reader:
            # what DictReader makes of more, and of fewer
            if None in row or None in row.values():
                raise ValueError(
                    f"{path}, line {reader.line_num + n_marks} has more or fewer "
                    "columns than the header; quote texts that hold the separator"
                )
            yield f"{path}, line {reader.line_num + n_marks}", row
    except csv.Error as error:  # its messages quote no cell
        raise ValueError(
            f"{path} is not valid CSV after line {reader.line_num + n_marks}: {error}"
        ) from None


def _rows_of_json(file: io.StringIO, path: Path) -> Rows:
    """The objects of an array, or those of lines."""
    content = file.read()
    file.seek(0)
    if content.lstrip().startswith("["):
        records = _json(content)
        if not isinstance(records, list):
            raise ValueError(f"{path} is not a valid array of JSON")
        named = ((f"object {i}", record) for i, record in enumerate(records, start=1))
    else:
        named = (
            (f"line {i}", _json(line))
            for i, line in enumerate(file, start=1)
            if line.strip()
        )
    for place, record in named:
        if not isinstance(record, dict):
            raise ValueError(f"{path}, {place} is not a JSON object")
        yield f"{path}, {place}", record


def _json(content: str) -> object:
    """The value of a text; None if it is not valid."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _rows_of_parquet(path: Path, columns: list[str]) -> Rows:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ImportError(
            f"reading {path} needs pyarrow (dplda's extra 'files')"
        ) from None
    rows: list[dict[str, object]] = []
    left = largest_size(path)
    try:
        file = parquet.ParquetFile(path)
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        left -= sum(group.total_byte_size for group in groups)
        # a cell may be as large as all that is stored, and stand in many rows: few at a
        # time
        batches = file.iter_batches(batch_size=PARQUET_ROWS, columns=columns)
        while left >= 0:
            batch = next(batches, None)
            if batch is None:
                break
            # a row without text is a dict, too
            left -= batch.nbytes + sys.getsizeof({}) * batch.num_rows
            rows += batch.to_pylist()
    except (OSError, ValueError):
        raise ValueError(f"{path} is not a valid Parquet file") from None
    names = file.schema_arrow.names
    _check_header(names, path, columns)
    for column in columns:
        if column not in names:
            raise ValueError(_no_column(str(path), column, names, "Parquet"))
    check_unpacked(left >= 0, path)
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _check_header(header: list[str], path: Path, columns: list[str]) -> None:
    for column in columns:
        if header.count(column) > 1:
            raise ValueError(
                f"{path} has several columns {column!r}; rename all but one of them"
            )
