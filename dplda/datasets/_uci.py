"""Bags of words in the format of the UCI archive: D, W, NNZ, then lines `doc word count`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NoReturn

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Bunch

from dplda.leaf._files import opened

BLOCK = 1 << 20  # bytes that are read at a time, and the rest of a line
_LARGEST = 2**31 - 1  # of int32
_INTEGER = re.compile(rb"[0-9]{1,18}")  # what int64 holds
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _fail(path: Path, line: int, message: str) -> NoReturn:
    raise ValueError(f"{path}, line {line}: {message}.")


def read_docword(path: Path) -> sp.csr_matrix:
    """Read a docword file to a CSR int32 matrix. Errors name a line and quote nothing."""
    with opened(path) as file:
        header = []
        for number, name in enumerate(("documents D", "words W", "entries NNZ"), start=1):
            line = file.readline(BLOCK).strip()
            largest = 10**18 if number == 3 else _LARGEST
            if not _INTEGER.fullmatch(line) or int(line) > largest:
                _fail(path, number, f"expected the number of {name}, an integer up to {largest}")
            header.append(int(line))
        n_docs, n_words, n_entries = header
        # every document takes memory, even an empty one
        if n_docs > (most := max(1 << 20, 64 * n_entries)):
            _fail(path, 1, f"D may be at most {most} with the NNZ of line 3")
        # pieces: a header with a false NNZ does not exhaust the memory
        pieces, n_found = [np.empty((0, 3), np.int32)], 0
        while text := file.read(BLOCK) + file.readline(BLOCK):
            rows = _parsed(path, text.replace(b"\r\n", b"\n"), n_found + 4)
            invalid = ((rows < 1) | (rows > [n_docs, n_words, _LARGEST])).any(axis=1)
            if invalid.any():
                _fail(
                    path, n_found + 4 + int(invalid.argmax()),
                    f"document, word and count must be in 1 to {n_docs}, {n_words} and {_LARGEST}",
                )  # fmt: skip
            n_found += len(rows)
            if n_found > n_entries:
                _fail(path, n_entries + 4, f"more entries than NNZ = {n_entries} of the header")
            pieces.append(rows.astype(np.int32))
        if n_found < n_entries:
            _fail(path, n_found + 4, f"the file ends, and the header says {n_entries} entries")
    docs, words, counts = np.concatenate(pieces).T
    # a sum of one cell may not fit in 32 bits
    counts = counts.astype(np.int64) if counts.sum(dtype=np.int64) > _LARGEST else counts
    matrix = sp.coo_matrix((counts, (docs - 1, words - 1)), shape=(n_docs, n_words)).tocsr()
    if matrix.data.max(initial=0) > _LARGEST:
        raise ValueError(
            f"{path}: the counts of a document and word add up to more than {_LARGEST}"
        )
    return matrix.astype(np.int32, copy=False)


def _parsed(path: Path, text: bytes, first: int) -> np.ndarray:
    """The numbers of whole lines, int64 of shape (n_lines, 3); `first` is the number of the first.

    All lines are valid if each has digits, two blanks and three numbers. A line beyond the end of
    the block is cut, and has none.
    """
    lines = text.removesuffix(b"\n").split(b"\n")
    if text.translate(None, b"0123456789").removesuffix(b"\n") == b"\n".join([b"  "] * len(lines)):
        values = np.fromstring(text, dtype=np.int64, sep=" ")
        if values.size == 3 * len(lines):
            return values.reshape(-1, 3)
    rows = [line.split() for line in lines]  # finds the invalid line, and accepts any blanks
    for number, fields in enumerate(rows, start=first):
        if len(fields) != 3 or not all(map(_INTEGER.fullmatch, fields)):
            _fail(path, number, "expected 3 integers of at most 18 digits, 'doc word count'")
    return np.array(rows, dtype=np.int64)


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
        error, but quotes no text of the file.
    OSError
        If a file cannot be read.

    Notes
    -----
    The five corpora of the archive [1]_ (kos, nips, enron, nytimes, pubmed) are files
    ``docword.NAME.txt.gz`` and ``vocab.NAME.txt``.

    References
    ----------
    .. [1] D. Newman, "Bag of Words", UCI Machine Learning Repository, 2008,
       https://doi.org/10.24432/C5ZG6P.

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
    if vocab_path is None:
        return Bunch(data=matrix, feature_names=None)
    path = Path(vocab_path)
    with opened(path) as file:
        try:
            text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            _fail(path, error.object.count(b"\n", 0, error.start) + 1, "no word of UTF-8")
    words = [word.strip() for word in text.removesuffix("\n").split("\n")]
    for number, word in enumerate(words, start=1):
        if not word or _CONTROL.search(word):
            _fail(path, number, "expected a word, without tabs and other control characters")
    if len(words) != matrix.shape[1]:
        n_words = matrix.shape[1]
        _fail(path, len(words), f"the docword file has {n_words} words, the list {len(words)}")
    return Bunch(data=matrix, feature_names=np.array(words, dtype=object))
