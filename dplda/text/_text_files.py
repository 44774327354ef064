"""Texts and their users from files: a folder of text files, CSV, JSON Lines or Parquet.

No error quotes a text, an id, or a cell. A file without a header has texts in its first row, so
that errors do not list the columns of a file either.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

# Kind of file by suffix. All but Parquet may be compressed by gzip.
KINDS = {
    ".txt": "text", ".csv": "CSV", ".tsv": "CSV", ".jsonl": "JSON Lines", ".ndjson": "JSON Lines",
    ".parquet": "Parquet",
}  # fmt: skip
ALLOWED = "a folder of text files (.txt), or .csv, .tsv, .jsonl, .ndjson or .parquet"
LARGEST_CELL = 2**31 - 1  # characters; the default of the module csv is 131,072


@dataclass(frozen=True)
class Source:
    """Where texts are, and how to read them.

    Parameters
    ----------
    path : Path
        A file, or a folder whose files are of one kind.
    text_column : str, default="text"
        Column of a table that holds the texts.
    file_column : str or None, default=None
        Column that holds names of text files, relative to the table, in place of `text_column`.
    id_column : str or None, default=None
        Column that holds an id of each text, such as its user.
    encoding : str, default="utf-8"
        Encoding of all files but Parquet.
    separator : str or None, default=None
        Character between the columns of CSV; None takes a comma, and a tab in .tsv files.
    """

    path: Path
    text_column: str = "text"
    file_column: str | None = None
    id_column: str | None = None
    encoding: str = "utf-8"
    separator: str | None = None

    def __post_init__(self) -> None:
        try:
            "".encode(self.encoding)
        except LookupError:
            raise ValueError(
                f"there is no encoding {self.encoding!r}; try utf-8 or cp1252"
            ) from None
        known = codecs.lookup(self.encoding).name
        # the mark that some programs write at the start of a file is not a part of the text
        object.__setattr__(self, "encoding", "utf-8-sig" if known == "utf-8" else known)
        if self.separator is not None and len(self.separator) != 1:
            raise ValueError(f"the separator must be one character, got {len(self.separator)}")

    @property
    def columns(self) -> list[str]:
        """The columns to read: texts or their files, and ids."""
        return [c for c in (self.file_column or self.text_column, self.id_column) if c is not None]


@dataclass
class Texts:
    """Texts, and an id of each if there are any.

    Parameters
    ----------
    texts : list of str
        Private.
    ids : list of str
        Private. Values of `id_column`; names of the files if the source is a folder of text files;
        otherwise empty.
    n_left_out : int
        Private. Number of files of other kinds in the folder.
    """

    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    n_left_out: int = 0


def read_texts(source: Source) -> Texts:
    """Read all texts into memory.

    Parameters
    ----------
    source : Source
        Where they are.

    Returns
    -------
    Texts
        Missing texts are empty. Ids are text: 7 and "7" are the same id.

    Raises
    ------
    OSError
        If a file or folder is missing or cannot be read.
    ValueError
        If a file is of an unknown kind or encoding, is damaged, or lacks a column, or if an id is
        missing. The message names the file, and quotes nothing of its content.
    ImportError
        If a Parquet file is to be read without pyarrow.
    """
    files, kind, n_left_out = _files(source.path)
    found = _of_text_files(files, source) if kind == "text" else _of_tables(files, kind, source)
    found.n_left_out = n_left_out
    if not found.texts:
        raise ValueError(f"{source.path} holds no texts: it has a header and no rows")
    return found


def _files(path: Path) -> tuple[list[Path], str, int]:
    """The files to read, in order of their names, their kind, and how many others there are."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if not path.is_dir():
        kind = _kind(path)
        if kind is None:
            raise ValueError(f"{path} is of an unknown kind; give {ALLOWED}")
        return [path], kind, 0
    # names that begin with a dot are those of the system
    inside = [p for p in path.rglob("*") if not _is_hidden(p.relative_to(path)) and p.is_file()]
    files = sorted(p for p in inside if _kind(p) is not None)
    kinds = sorted({str(_kind(p)) for p in files})
    if not files:
        raise ValueError(f"the folder {path} holds no file that can be read; give {ALLOWED}")
    if len(kinds) > 1:
        raise ValueError(
            f"the folder {path} holds files of several kinds ({', '.join(kinds)}); give one of "
            "them, or a table with --file-column if it lists the text files"
        )
    if len({file.resolve() for file in files}) < len(files):
        raise ValueError(
            f"the folder {path} holds two names of one file, by a link; a text that counts twice "
            "is protected less, so that each file needs one name"
        )
    return files, kinds[0], len(inside) - len(files)


def _kind(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = suffixes[-1:] == [".gz"]
    kind = KINDS.get(suffixes[-2] if compressed and len(suffixes) > 1 else "".join(suffixes[-1:]))
    return None if compressed and kind == "Parquet" else kind


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


# ---- text files ---------------------------------------------------------------------------


def _of_text_files(files: Sequence[Path], source: Source) -> Texts:
    if source.id_column is not None or source.file_column is not None:
        raise ValueError(
            f"{source.path} has no columns, because it holds text files; give a table with one "
            "row for each text file, and --file-column"
        )
    folder = source.path if source.path.is_dir() else source.path.parent
    names = [file.relative_to(folder).as_posix() for file in files]
    return Texts([_read_text(file, source.encoding, f"{file}") for file in files], names)


def _read_text(path: Path, encoding: str, name: str) -> str:
    with _opened(path, encoding, name) as file:
        return _checked_text(file.read(), name)


class _opened:
    """A text file, whose errors call it by `name` and quote nothing of it."""

    def __init__(self, path: Path, encoding: str, name: str) -> None:
        self.path, self.encoding, self.name = path, encoding, name

    def __enter__(self) -> TextIO:
        open_ = gzip.open if self.path.suffix.lower() == ".gz" else open
        self.file: Any = open_(self.path, "rt", encoding=self.encoding, newline="")
        return self.file

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.file.close()
        if isinstance(error, UnicodeError):
            encoding = self.encoding.removesuffix("-sig")
            raise ValueError(
                f"{self.name} is not encoded in {encoding}; give --encoding, for instance "
                "cp1252 or utf-16"
            ) from None
        if isinstance(error, (EOFError, gzip.BadGzipFile, zlib.error)):
            raise ValueError(f"{self.name} is not a whole gzip file") from None


def _checked_text(text: str, where: str) -> str:
    if "\0" in text:
        raise ValueError(
            f"{where} holds zero bytes, so that it is no text in this encoding; give --encoding, "
            "for instance utf-16"
        )
    return text


# ---- tables -------------------------------------------------------------------------------


def _of_tables(files: Iterable[Path], kind: str, source: Source) -> Texts:
    found, named = Texts(), set()
    for path in files:
        for number, values in _READERS[kind](path, source):
            where = f"{path}, row {number}"
            text = _text(values[0], where, source.columns[0])
            if source.file_column is not None:
                file = path.parent / text
                text = _of_named_file(file, where, source)
                if (known := file.resolve()) in named:
                    raise ValueError(
                        f"{where} names a file that an earlier row names; a text that counts twice "
                        "is protected less, so that each file needs one row"
                    )
                named.add(known)
            found.texts.append(text)
            if source.id_column is not None:
                found.ids.append(_id(values[1], where, source.id_column))
    return found


def _text(value: Any, where: str, column: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: column {column!r} holds {type(value).__name__} and not text; give another "
            "--text-column"
        )
    return _checked_text(value, f"{where}, column {column!r}")


def _id(value: Any, where: str, column: str) -> str:
    """An id as text. Values that become equal are one user, which protects more."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        missing = value is None or isinstance(value, str)
        raise ValueError(
            f"{where}: column {column!r} "
            f"{'is empty' if missing else f'holds {type(value).__name__}'}; every text needs an "
            "id, which is text or a whole number"
        )
    return value


def _of_named_file(path: Path, where: str, source: Source) -> str:
    if not os.path.isfile(path):  # the name may be a text, if the column is the wrong one
        raise ValueError(
            f"{where}: column {source.file_column!r} names no file; names are relative to the "
            "folder of the table"
        )
    # a cell may hold the name of a person
    name = f"{where}: the file that column {source.file_column!r} names"
    try:
        return _read_text(path, source.encoding, name)
    except OSError as error:
        raise OSError(f"{name} cannot be read: {error.strerror or 'input error'}") from None


Rows = Iterator[tuple[int, list[Any]]]


def _rows_of_csv(path: Path, source: Source) -> Rows:
    tabs = ".tsv" in (suffix.lower() for suffix in path.suffixes)
    separator = source.separator or ("\t" if tabs else ",")
    csv.field_size_limit(LARGEST_CELL)
    with _opened(path, source.encoding, f"{path}") as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            header = next(reader, [])
            at = _places(header, path, source)
            for number, row in enumerate(filter(None, reader), start=1):
                if len(row) != len(header):
                    raise ValueError(
                        f"{path}, row {number} (line {reader.line_num}) has {len(row)} columns, "
                        f"and the header has {len(header)}; quote texts that hold the separator"
                    )
                yield number, [row[i] for i in at]
        except csv.Error as error:  # its messages quote no cell
            raise ValueError(f"{path}, line {reader.line_num} is not valid CSV: {error}") from None


def _places(header: Sequence[str], path: Path, source: Source) -> list[int]:
    """Position of each column in the header."""
    if not header:
        raise ValueError(f"{path} is empty: it has no header and no texts")
    for column in source.columns:
        if header.count(column) != 1:
            n = header.count(column)
            hint = "; is --separator right?" if len(header) == 1 else ""
            raise ValueError(
                f"{path} has {n or 'no'} column{'s' if n else ''} {column!r} among {len(header)}: "
                "name columns of its first row by --text-column or --file-column, and by "
                f"--user-column or --id-column{hint}"
            )
    return [header.index(column) for column in source.columns]


def _rows_of_json(path: Path, source: Source) -> Rows:
    with _opened(path, source.encoding, f"{path}") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                raise ValueError(f"{path}, line {number} is not a JSON object")
            for column in source.columns:
                if column not in record:
                    raise ValueError(f"{path}, line {number} has no field {column!r}")
            yield number, [record[column] for column in source.columns]


def _rows_of_parquet(path: Path, source: Source) -> Rows:
    parquet = import_parquet(f"reading {path}")
    try:
        table = parquet.ParquetFile(path)
        at = _places(table.schema_arrow.names, path, source)
        columns = [table.schema_arrow.names[i] for i in at]
        rows = table.read(columns=columns)
        cells = [rows.column(name).to_pylist() for name in columns]
    except OSError as error:
        raise ValueError(f"{path} is not a whole Parquet file") from error
    except ValueError as error:
        if type(error) is ValueError:
            raise
        raise ValueError(f"{path} is not a valid Parquet file") from None
    yield from ((number, list(values)) for number, values in enumerate(zip(*cells), start=1))


_READERS = {"CSV": _rows_of_csv, "JSON Lines": _rows_of_json, "Parquet": _rows_of_parquet}


def import_parquet(purpose: str) -> Any:
    """The module ``pyarrow.parquet``, or an error that says how to install it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            f"{purpose} needs pyarrow; install it with: pip install 'dplda[files]'"
        ) from None
    return pyarrow.parquet
