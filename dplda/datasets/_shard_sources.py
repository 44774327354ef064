"""Writes shards from matrices, blocks of rows, or docword files."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dplda.core._corpus import (
    MAX_TOKENS,
    check_quoting_nothing,
    form_of,
    positive_entries,
    token_weights,
)
from dplda.core._fold_in import single_precision
from dplda.datasets._shards import UNITS, CountShards, Shard, write_manifest, write_shard
from dplda.datasets._uci import docword_entries
from dplda.leaf._checks import check_integer
from dplda.leaf._users import number_users
from dplda.privacy._mechanisms import unsummed

ROWS = 10_000  # of a matrix that are checked at a time


def write_shards(
    source: Any,
    folder: str | os.PathLike[str],
    *,
    user_ids: Any = None,
    rows_per_shard: int = 10_000,
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
          documents.
    folder : str or path-like
        A folder that does not exist, or is empty. Only its owner can read the files.
    user_ids : array-like of shape (n_docs,) or None, default=None
        The user that each document comes from: integers or strings. The documents of a user stay
        together, and fits and scores protect users, as with `user_ids` in `fit`. Private.
    rows_per_shard : int, default=10000
        Number of documents of a shard; with users about as many. A fit needs about 12 bytes for
        each stored count of a shard. It never changes a result.
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
        not in the order of documents, there is not one id for each document, or the folder is not
        empty. The folder is no corpus then.
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
    size = check_integer("rows_per_shard", rows_per_shard, 1, MAX_TOKENS)
    if isinstance(feature_names, str):
        raise TypeError("feature_names must be a list of words, got a single str")
    names = [] if feature_names is None else [_different(map(str, feature_names))]
    place = Path(os.path.abspath(os.fspath(folder)))
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise ValueError(f"{place} is not empty; give a new folder, or delete what is in it")

    def written(into: Path) -> list[Shard]:
        blocks = _in_shards(_blocks(source, names), size)
        return [write_shard(into, index, X) for index, X in enumerate(blocks)]

    if user_ids is None:
        shards = written(place)
    else:
        with tempfile.TemporaryDirectory(dir=place) as unsorted:
            parts = _by_user(written(Path(unsorted)), user_ids, size)
            shards = [write_shard(place, index, *part) for index, part in enumerate(parts)]
    if not shards:
        raise ValueError("source holds no block of documents; give at least one matrix")
    width, words = shards[0].shape[1], names[0] if names else None
    if words is not None and len(words) != width:
        raise ValueError(f"feature_names must have {width} words, got {len(words)}")
    write_manifest(place, UNITS[user_ids is not None], width, words, shards)
    return CountShards(place)


def _different(names: Iterable[str]) -> list[str]:
    """The names of the columns, all different: a release file could not hold them otherwise."""
    words = list(names)
    if len(set(words)) < len(words):
        raise ValueError(
            f"the names of the columns must be different words, got {len(words)}, "
            f"{len(set(words))} of them different"
        )
    return words


def _by_user(
    parts: list[Shard], user_ids: Any, size: int
) -> Iterator[tuple[sp.csr_array, npt.NDArray[Any]]]:
    """Rows of whole users, in the order in which users occur, and the first row of each user."""
    edges = np.cumsum([0, *(part.shape[0] for part in parts)])
    users = number_users(user_ids, int(edges[-1]))
    assert users is not None
    order, ends = np.argsort(users, kind="stable"), np.cumsum(np.bincount(users))
    begin = first = 0
    while begin < len(order):
        last = max(first + 1, int(np.searchsorted(ends, begin + size, side="right")))
        rows = order[begin : ends[last - 1]]
        sorted_rows = np.sort(rows)
        cuts = np.searchsorted(sorted_rows, edges)
        found = [
            part.counts()[sorted_rows[a:b] - edge]
            for part, edge, a, b in zip(parts, edges, cuts, cuts[1:])
            if b > a
        ]
        X = sp.vstack(found, format="csr")[np.searchsorted(sorted_rows, rows)]
        yield _kernel_form(X), np.append(0, ends[first:last] - begin)
        begin, first = int(ends[last - 1]), last


def _in_shards(blocks: Iterable[Any], size: int) -> Iterator[sp.csr_array]:
    """Checked rows in shards of `size` documents, the last one smaller."""
    waiting: list[sp.csr_array] = []
    width = None
    for block in blocks:
        X = token_weights(positive_entries(block, "write_shards", ensure_min_samples=0))
        if width not in (None, X.shape[1]):
            raise ValueError(
                f"all documents must have one vocabulary, got {X.shape[1]} words after {width}; "
                "count them with the same vectorizer"
            )
        width = X.shape[1]
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


def _blocks(source: Any, names: list[list[str]]) -> Iterable[Any]:
    """Blocks of rows of whatever holds the documents; `names` gets those of tables."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            raise IsADirectoryError(
                f"{path} is a folder; if write_shards has filled it, it is a corpus already: pass "
                "CountShards(folder) to fit. Texts in files have to be read and counted first"
            )
        return _rows_of(*docword_entries(path))
    if hasattr(source, "shape"):
        return _slices(source, names)
    if isinstance(source, Iterable):
        return itertools.chain.from_iterable(_slices(X, names) for X in source)
    raise ValueError(f"source must be a matrix, matrices or a path, got {type(source).__name__}")


def _slices(X: Any, names: list[list[str]]) -> Iterator[Any]:
    """Some rows of a matrix at a time: the checks may copy what they are given."""
    columns = getattr(X, "columns", None)
    if columns is not None and all(isinstance(name, str) for name in columns):
        if names and list(columns) != names[0]:
            raise ValueError(
                "the columns of a table are other words, or have another order, than feature_names "
                "or the tables before; select the same columns of all tables"
            )
        names[:] = [_different(columns)]
    with check_quoting_nothing(X):
        if sp.issparse(X):
            X = unsummed(X).tocsr()
        else:
            several = not isinstance(form_of(X)["dtype"], list)
            X = np.asarray(X, np.float64 if several else None)
    if X.ndim != 2 or not X.shape[0]:
        return iter([X])
    return (X[begin : begin + ROWS] for begin in range(0, X.shape[0], ROWS))


def _rows_of(
    n_docs: int, n_words: int, pieces: Iterable[npt.NDArray[np.int64]]
) -> Iterator[sp.csr_array]:
    """Rows of the entries of a docword file, which are in the order of documents.

    The entries of one document may lie in several pieces: the last document of a piece waits.
    """
    rest, begin = np.empty((0, 3), np.int64), 0
    for piece in pieces:
        entries = np.concatenate([rest, piece])
        if (np.diff(entries[:, 0]) < 0).any() or entries[0, 0] < begin:
            raise ValueError(
                "the entries must be in the order of documents; sort the file by document, or read "
                "it into memory and pass the matrix"
            )
        end = int(entries[-1, 0])
        cut = int(np.searchsorted(entries[:, 0], end))
        if end > begin:
            yield _matrix(entries[:cut], begin, end, n_words)
        begin, rest = end, entries[cut:]
    yield _matrix(rest, begin, n_docs, n_words)


def _matrix(entries: npt.NDArray[Any], begin: int, end: int, n_words: int) -> sp.csr_array:
    """The rows from `begin` to `end`."""
    docs, words, counts = entries.T
    starts = np.searchsorted(docs, np.arange(begin, end + 1))
    return sp.csr_array((counts.astype(np.float64), words, starts), shape=(end - begin, n_words))
