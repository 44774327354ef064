"""Reads the docword format of the UCI bags of words: D, W, NNZ, then lines `doc word count`."""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Bunch

_BLOCK_BYTES = 1 << 20
_LARGEST = 2**31 - 1
# Limits against files made to exhaust the memory, far beyond any real corpus.
_FREE_TEXT = 1 << 24  # bytes that any compressed file may unpack to
_MAX_EXPANSION = 100  # times the size of a larger compressed file; corpora have 3 to 10
_FREE_DOCS = 1 << 20  # documents that any header may name
_MAX_DOCS_PER_ENTRY = 64
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_HEADER = ("documents D", "words W", "entries NNZ")
_FIELDS = ("document id", "word id", "count")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class _Text(io.RawIOBase):
    """The text of a plain or gzip file; a damaged file ends where the damage begins."""

    def __init__(self, path: Path, digest: Any) -> None:
        with open(path, "rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        opener: Any = gzip.open if compressed else open
        self._file = opener(path, "rb")
        self._digest = digest
        size = path.stat().st_size
        self.bytes_left = max(_FREE_TEXT, _MAX_EXPANSION * size) if compressed else math.inf
        self.damaged = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            n_read = self._file.readinto1(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.damaged = True
            return 0
        self.bytes_left -= n_read
        if self._digest is not None:
            self._digest.update(buffer[:n_read])
        return n_read

    def close(self) -> None:
        self._file.close()
        super().close()


class _LineReader:
    """Reader of whole lines in large blocks. It counts the lines for its errors.

    Parameters
    ----------
    path : Path
        A text file, plain or compressed by gzip.
    digest : hash object, optional
        Updated with all the text that is read.
    block_bytes : int
        Size of the blocks. Lines up to this size can be read.
    """

    def __init__(self, path: Path, digest: Any = None, block_bytes: int = _BLOCK_BYTES) -> None:
        self.path, self.block_bytes = path, block_bytes
        self.lines_read = 0
        self._text = _Text(path, digest)
        self._stream = io.BufferedReader(self._text, block_bytes)

    def __enter__(self) -> _LineReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def fail(self, message: str, offset: int = 0) -> NoReturn:
        """Raise a ValueError about the line that is `offset` lines after those read so far."""
        raise ValueError(f"{self.path}, line {self.lines_read + offset + 1}: {message}.")

    def refuse_byte_order_mark(self) -> None:
        """Call this before anything is read."""
        if self._stream.peek(3).startswith(_BYTE_ORDER_MARKS):
            self.fail("the file begins with a byte order mark; save it as UTF-8 without one")

    def line(self) -> bytes:
        """Return one line, for the header; b"" at the end of the file."""
        return self._whole_lines(self._stream.readline(self.block_bytes))

    def block(self) -> bytes:
        """Return some whole lines, each ending in a newline; b"" at the end of the file."""
        block = self._stream.read(self.block_bytes)
        return self._whole_lines(block + self._stream.readline(self.block_bytes))

    def _whole_lines(self, text: bytes) -> bytes:
        n_lines = text.count(b"\n")
        if self._text.bytes_left < 0:
            self.fail(
                f"the text is more than {_MAX_EXPANSION} times as long as the compressed file; if"
                " you trust it, unpack it first"
            )
        if not text.endswith(b"\n"):
            if self._stream.peek(1):
                self.fail(f"the line is longer than {self.block_bytes} bytes", n_lines)
            if self._text.damaged:
                self.fail("the compressed file is truncated or damaged here; get it again", n_lines)
            text += b"\n" if text else b""
        return text.replace(b"\r\n", b"\n")


def _read_header(reader: _LineReader) -> tuple[int, int, int]:
    reader.refuse_byte_order_mark()
    values = []
    for name in _HEADER:
        line = reader.line().strip()
        largest = 10**18 if name == _HEADER[2] else _LARGEST
        if not _INTEGER.fullmatch(line) or not 0 <= int(line) <= largest:
            reader.fail(f"expected the number of {name}, one integer from 0 to {largest}")
        values.append(int(line))
        reader.lines_read += 1
    n_docs, n_words, n_entries = values
    most = max(_FREE_DOCS, _MAX_DOCS_PER_ENTRY * n_entries)
    if n_docs > most:  # every document takes memory, even an empty one
        reader.fail(f"D may be at most {most} with the NNZ of line 3", -reader.lines_read)
    return n_docs, n_words, n_entries


def _parse_slowly(reader: _LineReader, block: bytes) -> np.ndarray:
    """Parse line by line: finds the invalid line, and accepts any blanks."""
    rows = []
    for offset, line in enumerate(block.split(b"\n")[:-1]):
        fields = line.split()
        if len(fields) != 3:
            reader.fail(f"expected 3 integers, 'doc word count', found {len(fields)}", offset)
        for name, field in zip(_FIELDS, fields):
            if not _INTEGER.fullmatch(field):
                reader.fail(f"the {name} is not an integer of at most 18 digits", offset)
        rows.append([int(field) for field in fields])
    return np.array(rows, dtype=np.int64)


def _parse_block(reader: _LineReader, block: bytes) -> np.ndarray:
    """Parse whole lines to an int64 array of shape (n_lines, 3)."""
    n_lines = block.count(b"\n")
    # Every line is valid if it has digits, two blanks and three numbers.
    if block.translate(None, b"0123456789") == b"  \n" * n_lines:
        values = np.fromstring(block, dtype=np.int64, sep=" ")
        if values.size == 3 * n_lines:
            return values.reshape(n_lines, 3)
    return _parse_slowly(reader, block)


def _valid_rows(
    reader: _LineReader, n_docs: int, n_words: int, n_entries: int
) -> Iterator[np.ndarray]:
    """The entries in pieces (n_lines, 3), int64, as the header says; ids are counted from 1."""
    limits = np.array([n_docs, n_words, _LARGEST])
    n_read = 0
    while block := reader.block():
        rows = _parse_block(reader, block)
        invalid = (rows < 1) | (rows > limits)
        if invalid.any():
            offset, field = np.argwhere(invalid)[0]
            reader.fail(f"the {_FIELDS[field]} is not in 1 to {limits[field]}", int(offset))
        n_left = n_entries - n_read
        if len(rows) > n_left:
            reader.fail(f"more entries than the header says, NNZ = {n_entries}", n_left)
        yield rows
        n_read += len(rows)
        reader.lines_read += len(rows)
    if n_read < n_entries:
        reader.fail(f"the file ends after {n_read} entries; the header says {n_entries}")


def _read_triples(
    reader: _LineReader, n_docs: int, n_words: int, n_entries: int
) -> tuple[np.ndarray, ...]:
    """Documents, words and counts of the entries, int32; ids are still counted from 1."""
    # Growing arrays: a header with a false NNZ does not exhaust the memory.
    columns = array("i"), array("i"), array("i")
    for rows in _valid_rows(reader, n_docs, n_words, n_entries):
        for column, values in zip(columns, rows.T):
            column.frombytes(values.astype(np.int32).tobytes())
    return tuple(np.frombuffer(column, dtype=np.int32, count=n_entries) for column in columns)


def docword_triples(path: Path) -> tuple[int, int, Iterator[tuple[np.ndarray, ...]]]:
    """Number of documents and of words, and the entries in pieces, with ids from 0."""

    def pieces() -> Iterator[tuple[np.ndarray, ...]]:
        with _LineReader(path) as reader:
            for rows in _valid_rows(reader, *_read_header(reader)):
                yield rows[:, 0] - 1, rows[:, 1] - 1, rows[:, 2]

    with _LineReader(path) as reader:
        n_docs, n_words, _ = _read_header(reader)
    return n_docs, n_words, pieces()


def _check_sums(
    reader: _LineReader, docs: np.ndarray, words: np.ndarray, counts: np.ndarray
) -> None:
    """Refuse counts of one document and word whose sum does not fit in 32 bits."""
    if counts.sum(dtype=np.int64) <= _LARGEST:
        return
    order = np.lexsort((words, docs))  # stable: lines of one document and word stay in order
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(docs[order]) != 0) | (np.diff(words[order]) != 0)
    cumulative = np.cumsum(counts[order], dtype=np.int64)
    before = (cumulative - counts[order])[first][np.cumsum(first) - 1]
    too_many = order[cumulative - before > _LARGEST]
    if too_many.size:
        reader.fail(
            f"the counts of this document and word add up to more than {_LARGEST}",
            int(too_many.min()) - len(order),
        )


def read_docword(path: Path, digest: Any = None, block_bytes: int = _BLOCK_BYTES) -> sp.csr_matrix:
    """Read a docword file to a CSR int32 matrix, updating `digest` with its (unpacked) text."""
    with _LineReader(path, digest, block_bytes) as reader:
        n_docs, n_words, n_entries = _read_header(reader)
        docs, words, counts = _read_triples(reader, n_docs, n_words, n_entries)
        _check_sums(reader, docs, words, counts)
    docs -= 1
    words -= 1
    if np.all(docs[1:] >= docs[:-1]):  # the usual case: no second copy of the entries
        starts = np.searchsorted(docs, np.arange(n_docs + 1, dtype=np.int32))
        matrix = sp.csr_matrix((counts, words, starts), shape=(n_docs, n_words))
    else:
        matrix = sp.coo_matrix((counts, (docs, words)), shape=(n_docs, n_words)).tocsr()
    matrix.sum_duplicates()
    return matrix


def _decode_word(reader: _LineReader, line: bytes, offset: int) -> str:
    try:
        word = line.decode("utf-8").strip()
    except UnicodeDecodeError:
        reader.fail("the word is not encoded in UTF-8", offset)
    if not word:
        reader.fail("expected a word, the line is blank", offset)
    if _CONTROL.search(word):
        reader.fail("expected a word, the line holds a tab or another control character", offset)
    return word


def read_vocabulary(path: Path, n_words: int) -> np.ndarray:
    """Read a file of one word a line to an object array of str, and check its length."""
    with _LineReader(path) as reader:
        reader.refuse_byte_order_mark()
        lines: list[bytes] = []
        while len(lines) <= n_words and (block := reader.block()):
            lines += block.split(b"\n")[:-1]
        if len(lines) != n_words:
            found = "more" if len(lines) > n_words else f"only {len(lines)}"
            reader.fail(
                f"the header of the docword file says {n_words} words, and the vocabulary has"
                f" {found}",
                min(len(lines), n_words),
            )
        words = [_decode_word(reader, line, offset) for offset, line in enumerate(lines)]
    return np.array(words, dtype=object)


def read_uci_bow(
    docword_path: str | os.PathLike[str], vocab_path: str | os.PathLike[str] | None = None
) -> Bunch:
    """Read a corpus in the format of the UCI bags of words.

    Parameters
    ----------
    docword_path : str or path-like
        A text file, plain or compressed by gzip. Its first three lines are the number of
        documents D, of words W and of entries NNZ. NNZ lines ``doc word count`` follow; ids start
        at 1. The order of the entries does not matter. Counts of the same document and word are
        added.
    vocab_path : str or path-like, default=None
        A UTF-8 text file of W lines, one word in each.

    Returns
    -------
    corpus : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with the attributes

        data : sparse matrix of shape (n_docs, n_words), CSR, int32
            How often each word occurs in each document. Documents without an entry are rows
            without a count.
        feature_names : ndarray of shape (n_words,), object, or None
            The words of the columns; None without `vocab_path`.

    Raises
    ------
    ValueError
        If a file is not in this format. The message states the path, the line (from 1) and the
        error, but quotes no text of the file. A file that would exhaust the memory is also
        refused: its header names more than a million documents and more than 64 for each entry, or
        it is compressed and has more than 16 MB of text and more than 100 times its own size.
    OSError
        If a file cannot be read.

    See Also
    --------
    load_uci_bow : Loads one of the five corpora of the archive.

    Notes
    -----
    The text is parsed in pieces of a megabyte. The matrix needs 8 bytes for each entry, and
    reading it needs 4 more.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> from dplda.datasets import read_uci_bow
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "docword.txt")
    ...     _ = path.write_text("2\\n3\\n2\\n1 2 4\\n2 3 1\\n")
    ...     read_uci_bow(path).data.toarray()
    array([[0, 4, 0],
           [0, 0, 1]], dtype=int32)
    """
    matrix = read_docword(Path(docword_path))
    words = None if vocab_path is None else read_vocabulary(Path(vocab_path), matrix.shape[1])
    return Bunch(data=matrix, feature_names=words)
