"""Reads the docword format of the UCI bags of words: D, W, NNZ, then lines `doc word count`."""

from __future__ import annotations

import gzip
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

BLOCK = 1 << 20  # bytes that are read at a time; no line is longer
_LARGEST = 2**31 - 1
# Limits against files made to exhaust the memory, far beyond any real corpus.
_FREE_TEXT = 1 << 24  # bytes that any compressed file may unpack to
_MAX_EXPANSION = 100  # times the size of a larger compressed file; corpora have 3 to 10
_FREE_DOCS = 1 << 20  # documents that any header may name
_MAX_DOCS_PER_ENTRY = 64
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_FIELDS = ("document id", "word id", "count")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class _Lines:
    """Whole lines of a plain or gzip file, in blocks. Errors name a line and quote nothing."""

    def __init__(self, path: Path) -> None:
        self.path, self.n_read = path, 0
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        size = path.stat().st_size
        self.bytes_left = max(_FREE_TEXT, _MAX_EXPANSION * size) if packed else math.inf
        self.file: Any = (gzip.open if packed else open)(path, "rb")

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def fail(self, message: str, offset: int = 0) -> NoReturn:
        """Raise a ValueError about the line that is `offset` lines after those read so far."""
        raise ValueError(f"{self.path}, line {self.n_read + offset + 1}: {message}.")

    def line(self) -> bytes:
        """One line, for the header; b"" at the end of the file."""
        return self._whole(lambda: self.file.readline(BLOCK))

    def block(self) -> bytes:
        """Some whole lines, each ending in a newline; b"" at the end of the file."""
        return self._whole(lambda: self.file.read(BLOCK) + self.file.readline(BLOCK))

    def _whole(self, read: Any) -> bytes:
        try:
            text: bytes = read()
            is_end = text.endswith(b"\n") or not self.file.peek(1)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.fail("the compressed file is truncated or damaged here or below; get it again")
        self.bytes_left -= len(text)
        if self.bytes_left < 0:
            self.fail(
                f"the text is more than {_MAX_EXPANSION} times as long as the compressed file; if"
                " you trust it, unpack it first"
            )
        if not is_end:
            self.fail(f"the line is longer than {BLOCK} bytes", text.count(b"\n"))
        if self.n_read == 0 and text.startswith(_BYTE_ORDER_MARKS):
            self.fail("the file begins with a byte order mark; save it as UTF-8 without one")
        if text and not text.endswith(b"\n"):
            text += b"\n"
        return text.replace(b"\r\n", b"\n")


def _read_header(lines: _Lines) -> tuple[int, int, int]:
    values = []
    for name in ("documents D", "words W", "entries NNZ"):
        line = lines.line().strip()
        largest = 10**18 if name == "entries NNZ" else _LARGEST
        if not _INTEGER.fullmatch(line) or not 0 <= int(line) <= largest:
            lines.fail(f"expected the number of {name}, one integer from 0 to {largest}")
        values.append(int(line))
        lines.n_read += 1
    n_docs, n_words, n_entries = values
    most = max(_FREE_DOCS, _MAX_DOCS_PER_ENTRY * n_entries)
    if n_docs > most:  # every document takes memory, even an empty one
        lines.fail(f"D may be at most {most} with the NNZ of line 3", -lines.n_read)
    return n_docs, n_words, n_entries


def _parsed(lines: _Lines, block: bytes) -> np.ndarray:
    """The numbers of whole lines, int64 of shape (n_lines, 3)."""
    n_lines = block.count(b"\n")
    # Every line is valid if it has digits, two blanks and three numbers.
    if block.translate(None, b"0123456789") == b"  \n" * n_lines:
        values = np.fromstring(block, dtype=np.int64, sep=" ")
        if values.size == 3 * n_lines:
            return values.reshape(n_lines, 3)
    rows = [line.split() for line in block.split(b"\n")[:-1]]
    for offset, fields in enumerate(rows):  # finds the invalid line, and accepts any blanks
        if len(fields) != 3:
            lines.fail(f"expected 3 integers, 'doc word count', found {len(fields)}", offset)
        for name, field in zip(_FIELDS, fields):
            if not _INTEGER.fullmatch(field):
                lines.fail(f"the {name} is not an integer of at most 18 digits", offset)
    return np.array(rows, dtype=np.int64)


def _rows(lines: _Lines, n_docs: int, n_words: int, n_entries: int) -> Iterator[np.ndarray]:
    """The entries in pieces (n_lines, 3), int64, as the header says; ids are counted from 0."""
    limits = np.array([n_docs, n_words, _LARGEST])
    n_found = 0
    while block := lines.block():
        rows = _parsed(lines, block)
        invalid = (rows < 1) | (rows > limits)
        if invalid.any():
            offset, field = np.argwhere(invalid)[0]
            lines.fail(f"the {_FIELDS[field]} is not in 1 to {limits[field]}", int(offset))
        if len(rows) > n_entries - n_found:
            lines.fail(f"more entries than the header says, NNZ = {n_entries}", n_entries - n_found)
        yield rows - np.array([1, 1, 0])
        n_found += len(rows)
        lines.n_read += len(rows)
    if n_found < n_entries:
        lines.fail(f"the file ends after {n_found} entries; the header says {n_entries}")


def docword_triples(path: Path) -> tuple[int, int, Iterator[tuple[np.ndarray, ...]]]:
    """Number of documents and of words, and the entries in pieces, with ids from 0."""

    def pieces() -> Iterator[tuple[np.ndarray, ...]]:
        with _Lines(path) as lines:
            for rows in _rows(lines, *_read_header(lines)):
                yield rows[:, 0], rows[:, 1], rows[:, 2]

    with _Lines(path) as lines:
        n_docs, n_words, _ = _read_header(lines)
    return n_docs, n_words, pieces()


def read_docword(path: Path) -> sp.csr_matrix:
    """Read a docword file to a CSR int32 matrix."""
    # Growing arrays: a header with a false NNZ does not exhaust the memory.
    columns = array("i"), array("i"), array("i")
    n_docs, n_words, pieces = docword_triples(path)
    for piece in pieces:
        for column, values in zip(columns, piece):
            column.frombytes(values.astype(np.int32).tobytes())
    docs, words, counts = (np.frombuffer(column, np.int32, count=len(column)) for column in columns)
    if counts.sum(dtype=np.int64) > _LARGEST:  # a sum of one cell may not fit in 32 bits
        counts = counts.astype(np.int64)
    starts = np.searchsorted(docs, np.arange(n_docs + 1, dtype=np.int32))
    if np.all(docs[1:] >= docs[:-1]):  # the usual case: no second copy of the entries
        matrix = sp.csr_matrix((counts, words, starts), shape=(n_docs, n_words))
    else:
        matrix = sp.coo_matrix((counts, (docs, words)), shape=(n_docs, n_words)).tocsr()
    matrix.sum_duplicates()
    if matrix.dtype != np.int32:
        if matrix.data.max() > _LARGEST:
            raise ValueError(
                f"{path}: the counts of a document and word add up to more than {_LARGEST}"
            )
        matrix = matrix.astype(np.int32)
    return matrix


def read_vocabulary(path: Path, n_words: int) -> np.ndarray:
    """Read a file of one word a line to an object array of str, and check its length."""
    with _Lines(path) as lines:
        found: list[bytes] = []
        while len(found) <= n_words and (block := lines.block()):
            found += block.split(b"\n")[:-1]
        if len(found) != n_words:
            number = "more" if len(found) > n_words else f"only {len(found)}"
            lines.fail(
                f"the header of the docword file says {n_words} words, and the vocabulary has"
                f" {number}",
                min(len(found), n_words),
            )
        words = []
        for offset, line in enumerate(found):
            try:
                word = line.decode("utf-8").strip()
            except UnicodeDecodeError:
                lines.fail("the word is not encoded in UTF-8", offset)
            if not word or _CONTROL.search(word):
                what = "a tab or another control character" if word else "nothing"
                lines.fail(f"expected a word, the line holds {what}", offset)
            words.append(word)
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
