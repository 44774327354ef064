"""Bags of words in the format of the UCI archive: D, W, NNZ, then lines `doc word count`."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import NoReturn

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Bunch

from dplda.leaf._files import opened

_LARGEST = 2**31 - 1  # of int32
_LONGEST = 1 << 20  # bytes of a line of the header
_INTEGER = re.compile(rb"[0-9]{1,18}")  # what int64 holds
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _fail(path: Path, line: int, message: str) -> NoReturn:
    raise ValueError(f"{path}, line {line}: {message}.")


def read_docword(path: Path) -> sp.csr_matrix:
    """Read a docword file to a CSR int32 matrix. Errors quote nothing of it."""
    with opened(path) as file:
        header = [file.readline(_LONGEST).strip() for _ in range(3)]
        n_docs, n_words, n_entries = (int(x) if _INTEGER.fullmatch(x) else -1 for x in header)
        # every document takes memory, even an empty one
        most = min(_LARGEST, max(1 << 20, 64 * n_entries))
        if min(n_docs, n_words, n_entries) < 0 or n_docs > most or n_words > _LARGEST:
            raise ValueError(
                f"{path} must begin with three lines: the number of documents, which may be at "
                f"most {most} with these entries, of words, at most {_LARGEST}, and of entries"
            )
        lines = itertools.chain([b"1 1 1"], file)  # NumPy warns of a file without lines
        try:
            entries = np.loadtxt(lines, np.int64, comments=None, ndmin=2)[1:]
        except ValueError:  # which quotes the file
            entries = np.zeros((1, 3), np.int64)
    valid = (entries >= 1) & (entries <= [n_docs, n_words, _LARGEST])
    if entries.shape != (n_entries, 3) or not valid.all():
        raise ValueError(
            f"{path} must have {n_entries} lines of three integers after its third line, document, "
            f"word and count, from 1 to {n_docs}, {n_words} and {_LARGEST}; is it a whole docword "
            "file?"
        )
    docs, words, counts = entries.T
    matrix = sp.coo_matrix((counts, (docs - 1, words - 1)), shape=(n_docs, n_words)).tocsr()
    if matrix.data.max(initial=0) > _LARGEST:
        raise ValueError(
            f"{path}: the counts of a document and word add up to more than {_LARGEST}"
        )
    return matrix.astype(np.int32, copy=False)


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
        If a file is not in this format. The message states the path and the error, but quotes no
        text of the file.
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
