"""Writes shards from matrices, blocks of rows, docword files, Parquet or dask arrays."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import check_array

from dplda.core._corpus import (
    A_TEXT_OR_PATH,
    MAX_TOKENS,
    NOT_COUNTS,
    TOKEN_LISTS,
    as_counts,
    check_quoting_nothing,
    floats,
    form_of,
)
from dplda.core._fold_in import single_precision
from dplda.datasets._docword import docword_triples
from dplda.datasets._shards import CountShards, Shard, write_manifest, write_shard
from dplda.leaf._checks import check_integer
from dplda.privacy._mechanisms import unsummed

Triples = tuple[npt.NDArray[Any], ...]  # documents, words and counts of entries
COLUMNS = ("document", "word", "count")
BATCH = 1 << 20  # rows of Parquet that are read at a time
ROWS = 10_000  # of a matrix that are checked at a time
TEXTS = (
    "source holds texts or paths, and shards hold word counts; count them, as in "
    "write_shards(vectorizer.transform(texts), folder), or, if they do not fit into the memory, "
    "write_shards((vectorizer.transform(some) for some in batches_of_texts), folder). The "
    "vectorizer is a CountVectorizer(vocabulary=...) with a vocabulary that was not learned from "
    "the private texts, or a fitted PrivateCountVectorizer"
)


def write_shards(
    source: Any,
    folder: str | os.PathLike[str],
    *,
    rows_per_shard: int = 10_000,
    n_words: int | None = None,
    feature_names: Sequence[str] | None = None,
) -> CountShards:
    """Write a corpus to shards, which `CountShards` reads without loading them.

    Counts are checked once, block by block, as `fit` checks a matrix. No more than one block and
    one shard are in memory.

    Parameters
    ----------
    source : matrix, iterable of matrices, str, path-like or dask.array
        The documents by words. One of

        - a matrix as `fit` takes it;
        - an iterable of such matrices, blocks of consecutive rows;
        - the path of a docword file (see `read_uci_bow`), whose entries are in the order of
          documents;
        - the path of a Parquet file (``.parquet``) with whole numbers in the columns ``document``,
          ``word`` (both from 0) and ``count``, in the order of documents. It needs `n_words` and
          pyarrow. Documents without an entry are rows without a word;
        - a `dask.array` of dense or sparse blocks, each of which holds whole rows.
    folder : str or path-like
        A folder that does not exist, or is empty. Only its owner can read the files.
    rows_per_shard : int, default=10000
        Number of documents of a shard. A fit needs about 12 bytes for each stored count of a
        shard. It never changes a result.
    n_words : int or None, default=None
        Size of the vocabulary. Needed for Parquet; otherwise it is checked if it is given.
    feature_names : sequence of str or None, default=None
        The words of the columns, all different. A model that is fitted on the shards then knows
        them. None takes the names of the columns of tables, which must be the same in all blocks.

    Returns
    -------
    corpus : CountShards
        What was written.

    Raises
    ------
    ValueError
        If the source does not hold word counts, its blocks have different widths, its entries are
        not in the order of documents, or the folder is not empty. The folder is no corpus then.
    OSError
        If a file cannot be read or written.

    See Also
    --------
    CountShards : Reads the files.

    Notes
    -----
    The files hold the private documents. Delete the folder of a call that failed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import scipy.sparse as sp
    >>> from dplda.datasets import write_shards
    >>> blocks = (sp.random_array((100, 20), density=0.1, rng=i).ceil() for i in range(3))
    >>> with TemporaryDirectory() as folder:
    ...     write_shards(blocks, f"{folder}/corpus", rows_per_shard=250).n_shards
    2
    """
    rows = check_integer("rows_per_shard", rows_per_shard, 1, MAX_TOKENS)
    width = None if n_words is None else check_integer("n_words", n_words, 1, MAX_TOKENS)
    names = _Names(feature_names)
    place = Path(os.path.abspath(os.fspath(folder)))
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise ValueError(f"{place} is not empty; give a new folder, or delete what is in it")
    shards: list[Shard] = []
    try:
        for X in _in_shards(_blocks(source, width, names), rows):
            width = _check_width(X, width)
            shards.append(write_shard(place, len(shards), X))
    except ValueError as error:
        if str(error) in (A_TEXT_OR_PATH, NOT_COUNTS, TOKEN_LISTS):
            raise ValueError(TEXTS) from None
        raise
    if width is None or not shards:
        raise ValueError("source holds no block of documents; give at least one matrix")
    if names.words is not None and len(names.words) != width:
        raise ValueError(f"feature_names must have {width} words, got {len(names.words)}")
    write_manifest(place, width, names.words, shards)
    return CountShards(place)


class _Names:
    """The words of the columns: those that are given, or those of tables with names.

    They must be different; a release file could not hold them otherwise.
    """

    def __init__(self, given: Sequence[str] | None) -> None:
        if isinstance(given, str):
            raise TypeError("feature_names must be a list of words, got a single str")
        self.words = None if given is None else [str(name) for name in given]
        self._check()

    def note(self, X: Any) -> None:
        """Take the names of a table, or refuse those of another one."""
        names = getattr(X, "columns", None)
        if names is None or not all(isinstance(name, str) for name in names):
            return
        if self.words is not None and list(names) != self.words:
            raise ValueError(
                "the columns of a table are other words, or have another order, than feature_names "
                "or the tables before; select the same columns of all tables"
            )
        self.words = list(names)
        self._check()

    def _check(self) -> None:
        if self.words is not None and len(set(self.words)) < len(self.words):
            raise ValueError(
                f"the names of the columns must be different words, got {len(self.words)}, "
                f"{len(set(self.words))} of them different"
            )


def _check_width(X: sp.csr_array, width: int | None) -> int:
    if width is not None and X.shape[1] != width:
        raise ValueError(
            f"all documents must have one vocabulary, got {X.shape[1]} words after {width}; count "
            "them with the same vectorizer, or correct n_words"
        )
    return int(X.shape[1])


def _in_shards(blocks: Iterable[Any], size: int) -> Iterator[sp.csr_array]:
    """Checked rows in shards of `size` documents, the last one smaller."""
    waiting: list[sp.csr_array] = []
    width = None
    for X in map(_checked, blocks):
        width = _check_width(X, width)
        waiting.append(X)
        n_rows = sum(block.shape[0] for block in waiting)
        if n_rows < size:
            continue
        rows = waiting[0] if len(waiting) == 1 else sp.vstack(waiting, format="csr")
        whole = n_rows - n_rows % size
        for start in range(0, whole, size):
            yield _kernel_form(rows[start : start + size])
        waiting = [rows[whole:]]
    if waiting and (waiting[0].shape[0] or len(waiting) > 1):
        yield _kernel_form(sp.vstack(waiting, format="csr"))


def _kernel_form(X: sp.csr_array) -> sp.csr_array:
    if X.nnz > MAX_TOKENS:
        raise ValueError(f"a shard may hold at most {MAX_TOKENS} counts; lower rows_per_shard")
    return single_precision(X)


def _checked(X: Any) -> sp.csr_array:
    """A block of rows in the form of `fit`: one entry for each cell, weights in tokens."""
    with check_quoting_nothing(X):
        X = check_array(floats(unsummed(X)), ensure_min_samples=0, **form_of(X))
    X = X if X.shape[0] else sp.csr_array(X.shape)  # no number is the smallest of none
    return as_counts(X, "write_shards")


def _blocks(source: Any, n_words: int | None, names: _Names) -> Iterable[Any]:
    """Blocks of rows of whatever holds the documents."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.suffix.lower() in (".parquet", ".pq"):
            if n_words is None:
                raise ValueError(
                    "a Parquet file does not say how many words the vocabulary has; give n_words, "
                    "a public number"
                )
            return _rows_of(_parquet_triples(path, n_words), None, n_words)
        if path.is_dir():
            raise IsADirectoryError(
                f"{path} is a folder; if write_shards has filled it, it is a corpus already: pass "
                "CountShards(folder) to fit. Texts in files have to be read and counted first"
            )
        n_docs, width, triples = docword_triples(path)
        return _rows_of(triples, n_docs, width)
    if hasattr(source, "dask") and hasattr(source, "to_delayed"):
        return _dask_blocks(source)
    if hasattr(source, "shape"):
        return _slices(source, names)
    if isinstance(source, Iterable):
        return itertools.chain.from_iterable(_slices(X, names) for X in source)
    raise ValueError(
        f"source must be a matrix, matrices, a path or a dask.array, got {type(source).__name__}"
    )


def _slices(X: Any, names: _Names) -> Iterator[Any]:
    """Some rows of a matrix at a time: the checks may copy what they are given."""
    names.note(X)
    with check_quoting_nothing(X):
        if sp.issparse(X):
            X = unsummed(X).tocsr()
        else:
            several = not isinstance(form_of(X)["dtype"], list)
            X = np.asarray(X, np.float64 if several else None)
    if X.ndim != 2 or not X.shape[0]:
        return iter([X])
    return (X[begin : begin + ROWS] for begin in range(0, X.shape[0], ROWS))


def _dask_blocks(array: Any) -> Iterator[Any]:
    """The blocks of a dask.array, computed one after the other."""
    if array.ndim != 2 or array.numblocks[1] != 1:
        raise ValueError(
            "each block of the dask.array must hold whole rows of a matrix; call "
            "rechunk({1: -1}) before"
        )
    return (block[0].compute() for block in array.to_delayed())


def _rows_of(
    triples: Iterable[Triples], n_docs: int | None, n_words: int
) -> Iterator[sp.csr_array]:
    """Rows of entries (document, word, count) in the order of documents, ids from 0.

    The entries of one document may lie in several pieces: the last document of a piece waits.
    """
    rest: Triples = (np.empty(0, np.int64),) * 3
    begin = 0
    for piece in triples:
        docs, words, counts = (np.concatenate(both) for both in zip(rest, piece))
        if (np.diff(docs) < 0).any() or (len(docs) and docs[0] < begin):
            raise ValueError(
                "the entries must be in the order of documents; sort the file by document, or read "
                "it into memory and pass the matrix"
            )
        if not len(docs):
            continue
        end, cut = int(docs[-1]), int(np.searchsorted(docs, docs[-1]))
        if end > begin:
            yield _matrix(docs[:cut] - begin, words[:cut], counts[:cut], (end - begin, n_words))
        begin, rest = end, (docs[cut:], words[cut:], counts[cut:])
    docs, words, counts = rest
    end = begin + bool(len(docs)) if n_docs is None else n_docs
    yield _matrix(docs - begin, words, counts, (end - begin, n_words))


def _matrix(docs: Any, words: Any, counts: Any, shape: tuple[int, int]) -> sp.csr_array:
    starts = np.searchsorted(docs, np.arange(shape[0] + 1))
    return sp.csr_array((counts.astype(np.float64), words, starts), shape=shape)


def _parquet_triples(path: Path, n_words: int) -> Iterator[Triples]:
    """Entries of a Parquet file, in batches."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("Parquet needs pyarrow (dplda's extra 'files')") from None
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid:
        raise ValueError(f"{path} is not a Parquet file, or is damaged") from None
    with file:
        if not set(COLUMNS) <= set(file.schema_arrow.names):
            raise ValueError(f"{path} must have the columns {', '.join(COLUMNS)}")
        for batch in file.iter_batches(batch_size=BATCH, columns=list(COLUMNS)):
            columns = [batch.column(name) for name in COLUMNS]
            if not all(pa.types.is_integer(column.type) for column in columns) or any(
                column.null_count for column in columns
            ):
                raise ValueError(
                    f"the columns {', '.join(COLUMNS)} of {path} must be integers, none missing"
                )
            docs, words, counts = (column.to_numpy().astype(np.int64) for column in columns)
            if min(docs.min(initial=0), words.min(initial=0), MAX_TOKENS - docs.max(initial=0)) < 0:
                raise ValueError(
                    f"documents and words of {path} must be numbered from 0, documents up to "
                    f"{MAX_TOKENS}"
                )
            if words.max(initial=0) >= n_words:
                raise ValueError(f"{path} has a word that is not below n_words={n_words}")
            yield docs, words, counts
