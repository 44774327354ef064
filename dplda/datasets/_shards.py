"""Count matrices in shards: files of whole rows, memory-mapped when read."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dplda.core._corpus import (
    LARGEST_COUNT,
    MAX_TOKENS,
    NOT_COUNTS,
    Matrix,
    Shards,
    positive_entries,
    whole_counts,
)
from dplda.core._fold_in import single_precision
from dplda.leaf._checks import check_integer
from dplda.leaf._files import explained, write_atomically
from dplda.leaf._messages import Progress, Unnumbered, named
from dplda.leaf._users import column_name, number_users

FORMAT = "dplda count shards"
MANIFEST = "shards.json"
UNITS = ("document", "user")
# Counts of a shard, unless one unit has more. Memory holds several copies of them when
# the shard is written, and when a fit visits it.
MOST_COUNTS = 1 << 21


@dataclass(frozen=True)
class Shard:
    """The file of some consecutive documents. Private.

    It holds counts (float32), words, ends of rows and ends of units (int32): numbers of
    4 bytes without a header. The list of shards has their sizes.
    """

    path: str
    n_docs: int
    n_words: int
    n_units: int  # documents, or users with all their documents
    n_entries: int  # stored counts
    sha256: str  # of the name of the file and its content: no two shards have the same

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_docs, self.n_words

    def read(self) -> tuple[sp.csr_array, npt.NDArray[np.int64]]:
        """The counts, and the first document of each unit and the number of documents.

        The counts are CSR of float32 and int32, on mapped read-only arrays.
        """
        data, words, ends, units = self._arrays()
        counts = sp.csr_array((data, words, ends), shape=self.shape)
        return counts, units.astype(np.int64)

    def users(self) -> npt.NDArray[np.int64]:
        """Number of the unit of each document."""
        return np.repeat(np.arange(self.n_units), np.diff(self.read()[1]))

    def check(self) -> None:
        """Read the whole shard once; check that it is as written and fits its shape."""
        arrays = self._arrays()
        digest = _digest_for(self.path)
        for array in arrays:
            digest.update(array.data)
        if digest.hexdigest() != self.sha256:
            raise self.fail("is damaged: its SHA-256 differs from the list")
        data, words, ends, units = arrays
        # compared, not subtracted, because a difference of int32 could wrap around
        rows_grow = (ends[1:] >= ends[:-1]).all()
        rows_fit = rows_grow and ends[0] == 0 and ends[-1] == self.n_entries
        units_grow = (units[1:] > units[:-1]).all()
        units_fit = units_grow and units[0] == 0 and units[-1] == self.n_docs
        if not (rows_fit and units_fit):
            raise self.fail("is damaged: its rows do not fit its entries")
        first_of_row = np.zeros(self.n_entries + 1, bool)
        first_of_row[ends] = True
        in_order = ((words[1:] > words[:-1]) | first_of_row[1:-1]).all()
        known = ((words >= 0) & (words < self.n_words)).all()
        if not (in_order and known):
            raise self.fail(
                "is damaged: the words of a row are not in order, or unknown"
            )
        if not ((data > 0) & (data <= np.float32(LARGEST_COUNT))).all():
            raise self.fail("is damaged: it holds numbers that are not counts")

    def state(self) -> tuple[int, ...]:
        """What changes if the file is replaced or written to."""
        path = Path(self.path)
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
        except OSError as error:
            raise OSError(
                f"shard {path.stem} of {path.parent} cannot be read "
                f"({error.strerror or error}); every machine that visits shards must "
                "be able to read this folder under this name"
            ) from None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def fail(self, what: str) -> ValueError:
        """An error about this shard. It does not quote documents."""
        return ValueError(
            f"shard {Path(self.path).stem} of {Path(self.path).parent} {what}; write "
            "the shards again with write_shards, or restore the file from a copy"
        )

    def _arrays(self) -> list[np.ndarray]:
        """Counts, words, ends of rows and ends of units."""
        lengths = [self.n_entries, self.n_entries, self.n_docs + 1, self.n_units + 1]
        ends = np.cumsum([0, *lengths])
        if self.state()[2] != 4 * ends[-1]:
            raise self.fail("is damaged: its file does not have the listed size")
        # one map for each: SciPy would copy a part of a larger array
        arrays = []
        for dtype, begin, length in zip(("<f4", "<i4", "<i4", "<i4"), ends, lengths):
            if length:
                mapped = np.memmap(self.path, dtype, "r", 4 * begin, (length,))
                arrays.append(np.asarray(mapped))
            else:
                arrays.append(np.empty(0, dtype))
        return arrays


class CountShards(Shards):
    """A count matrix in files of `write_shards`, for corpora larger than memory.

    `SubLDA` and `PrivateSVILDA` train on it with the same result, to the last bit, as
    on the matrix itself, and read one shard after the other. LDA models also take it in
    `transform`, `score` and `perplexity`. Iteration checks each shard and yields it as
    a matrix, in order.

    Parameters
    ----------
    folder : str or path-like
        Folder that `write_shards` filled. Its files are private, and must not change
        while they are in use.

    Attributes
    ----------
    folder : str
        Absolute path of the folder.
    shape : tuple of int
        (n_docs, n_words).
    n_shards : int
        Number of shards.
    unit : {"document", "user"}
        The unit that fits and scores protect: users if `write_shards` got their ids.
    feature_names : ndarray of shape (n_words,), object, or None
        The words of the columns, if `write_shards` got them or a named table.
    name : str
        Name of the column of user ids; empty if `write_shards` got none with a name.

    Raises
    ------
    ValueError
        If the folder was not filled by `write_shards`, or a shard is listed twice.
    OSError
        If the folder cannot be read, or files are missing.

    See Also
    --------
    write_shards : Writes the files.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from dplda import SubLDA
    >>> from dplda.datasets import CountShards, make_topic_corpus, write_shards
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> with TemporaryDirectory() as folder:
    ...     corpus = write_shards(X, f"{folder}/corpus", rows_per_shard=200)
    ...     model = SubLDA(3, epsilon=4.0, delta=1e-5, max_iter=20).fit(corpus)
    >>> corpus.n_shards, model.components_.shape
    (3, (3, 30))
    """

    shards: list[Shard]

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        path = Path(self.folder, MANIFEST)
        try:
            content = json.loads(path.read_bytes())
            unit = content["unit"]
            name = content["name"]
            words = content["words"]
            shards = [
                Shard(os.path.join(self.folder, f"{i:06d}.counts"), **found)
                for i, found in enumerate(content["shards"])
            ]
            n_words = shards[0].n_words
            is_valid = content["format"] == FORMAT and unit in UNITS
            is_valid &= type(name) is str
            for _, *sizes, sha256 in map(astuple, shards):
                is_valid &= all(type(size) is int and size >= 0 for size in sizes)
                is_valid &= type(sha256) is str and sizes[1] == n_words
            if words is not None:
                is_valid &= type(words) is list and len(words) == n_words
                is_valid &= all(type(word) is str for word in words)
        except OSError as error:
            raise OSError(
                f"{path} cannot be read ({error.strerror or error}); write_shards "
                "writes this file last: give a folder that it has finished"
            ) from None
        except (LookupError, TypeError, ValueError, RecursionError):
            is_valid = False
        if not is_valid:
            raise ValueError(f"{path} was not written by write_shards, or is damaged")
        seen = set()
        for shard in shards:
            if shard.sha256 in seen:
                raise shard.fail(
                    "is a copy of another shard, whose documents would count twice"
                )
            seen.add(shard.sha256)
            shard.state()  # raises an error if the file is missing
        self.unit = unit
        self.name = name
        self.shards = shards
        self.n_shards = len(shards)
        self.shape = (sum(shard.n_docs for shard in shards), n_words)
        self.feature_names = None if words is None else np.array(words, dtype=object)
        self.engine: object = None

    def on(self, client: object) -> CountShards:
        """The same corpus; during `fit`, workers of a cluster visit its shards.

        The result of a fit is the same to the last bit on any number of workers, even
        if workers are lost. Only this process holds the key, charges the ledger and
        adds noise.

        Parameters
        ----------
        client : distributed.Client, or an engine
            Its workers must be able to read `folder`, and have this version of dplda.
            Exact sums travel between them, so use TLS. ``docs/scaling.md`` says more,
            and defines engines.

        Returns
        -------
        corpus : CountShards
            A new object on the same files.
        """
        corpus = copy.copy(self)
        corpus.engine = client
        return corpus

    def __iter__(self) -> Iterator[sp.csr_array]:
        for shard in self.shards:
            shard.check()
            yield shard.read()[0]

    def __repr__(self) -> str:
        # no private number
        return f"<CountShards: {self.shape[1]} words in the vocabulary>"


def write_shards(
    source: Matrix | Iterable[Matrix],
    folder: str | os.PathLike[str],
    *,
    user_ids: npt.ArrayLike | None = None,
    rows_per_shard: int = 10_000,
    feature_names: Sequence[str] | None = None,
) -> CountShards:
    """Write a corpus to shards, which `CountShards` reads without loading them.

    Counts are checked once, block by block, as `fit` checks a matrix. Memory holds at
    most one block and one shard, and a copy of each.

    Parameters
    ----------
    source : matrix or iterable of matrices
        The documents by words: a matrix as for `fit`, or blocks of consecutive rows
        with the same words as columns.
    folder : str or path-like
        A new or empty folder. Only its owner can read the files.
    user_ids : array-like of shape (n_docs,) or None, default=None
        The user that each document comes from: integers or strings. The documents of a
        user stay together, and fits and scores protect users, as with `user_ids` in
        `fit`. Private.
    rows_per_shard : int, default=10000
        Number of documents in a shard; approximate with users. A shard of long
        documents holds fewer, because it stores at most 2^21 counts, or one document or
        user. The number never changes a result.
    feature_names : sequence of str or None, default=None
        The words of the columns, all different. A model that is fitted to the shards
        then knows them. None takes the column names of the first block, if it is a
        table with such names.

    Returns
    -------
    corpus : CountShards
        The written corpus.

    Raises
    ------
    ValueError
        If the source does not hold word counts, its blocks have different widths, there
        is not one id for each document, or the folder is not empty. The folder is then
        not a corpus.
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
    >>> def block(i):
    ...     return sp.random_array((100, 20), density=0.1, rng=i).ceil()
    >>> blocks = map(block, range(3))
    >>> with TemporaryDirectory() as folder:
    ...     write_shards(blocks, f"{folder}/corpus", rows_per_shard=250).n_shards
    2
    """
    size = check_integer("rows_per_shard", rows_per_shard, 1, MAX_TOKENS)
    if isinstance(feature_names, str):
        raise TypeError("feature_names must be a list of words, got a single str")
    blocks = [source] if hasattr(source, "shape") else source
    if not isinstance(blocks, Iterable):
        raise TypeError(NOT_COUNTS.format(type(source).__name__))
    place = Path(os.path.abspath(os.fspath(folder)))
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise ValueError(
            f"{place} is not empty; give a new folder, or delete what is in it"
        )
    blocks = iter(blocks)
    begin = [*itertools.islice(blocks, 1)]
    words = _names_of(begin[0]) if begin else None
    if feature_names is not None:
        words = list(map(str, feature_names))
    blocks = itertools.chain(begin, blocks)

    def written(into: Path, size: int) -> list[Shard]:
        return [
            _write(into, i, X) for i, X in enumerate(_in_shards(blocks, size, words))
        ]

    if user_ids is None:
        shards = written(place, size)
    else:
        with tempfile.TemporaryDirectory(dir=place) as unsorted:
            # a shard of users may read rows of all parts: the fewer, the better
            parts = _by_user(written(Path(unsorted), MAX_TOKENS), user_ids, size)
            shards = [_write(place, i, *part) for i, part in enumerate(parts)]
    if not shards:
        raise ValueError("source holds no block of documents; give at least one matrix")
    content = {
        "format": FORMAT,
        "unit": UNITS[user_ids is not None],
        "name": column_name(user_ids),
        "words": words,
        "shards": [
            {name: value for name, value in vars(shard).items() if name != "path"}
            for shard in shards
        ],
    }
    # the last file: without it the folder is not a corpus
    with explained(place):
        write_atomically(place / MANIFEST, json.dumps(content).encode())
    return CountShards(place)


def _names_of(block: object) -> list[str] | None:
    """The columns of a table, if all of them are words."""
    columns = [*getattr(block, "columns", ())]
    is_named = columns and all(isinstance(name, str) for name in columns)
    return list(map(str, columns)) if is_named else None


def _in_shards(
    blocks: Iterable[Matrix], size: int, words: list[str] | None
) -> Iterator[sp.csr_array]:
    """Checked rows in shards of `size` documents, the last one smaller."""
    waiting: list[sp.csr_array] = []
    named = words
    for block in blocks:
        columns = _names_of(block)
        if columns is not None:
            if named not in (None, columns):
                raise ValueError(
                    "the columns of a table have other words, or another order, "
                    "than feature_names or the tables before; select the same columns "
                    "of all tables"
                )
            named = columns
        X = positive_entries(block, "write_shards", ensure_min_samples=0)
        X = whole_counts(X, "write_shards")
        n_words = X.shape[1]
        # a release file cannot hold a word twice
        if words is not None and not len(set(words)) == len(words) == n_words:
            raise ValueError(
                f"feature_names, or columns of a table, must be {n_words} different "
                f"words, got {len(words)}, {len(set(words))} of them different"
            )
        if waiting and waiting[0].shape[1] != n_words:
            raise ValueError(
                f"all documents must have one vocabulary, got {n_words} words after "
                f"{waiting[0].shape[1]}; count them with the same vectorizer"
            )
        waiting.append(X)
        n_rows = sum(part.shape[0] for part in waiting)
        if n_rows < size and sum(part.nnz for part in waiting) < MOST_COUNTS:
            continue
        rows = waiting[0] if len(waiting) == 1 else sp.vstack(waiting, format="csr")
        *whole, (last, end) = _cuts(np.arange(n_rows + 1), rows.indptr, size)
        waiting = [rows[last:end]]
        for start, stop in whole:
            yield rows[start:stop]
    if waiting and (waiting[0].shape[0] or len(waiting) > 1):
        yield sp.vstack(waiting, format="csr")


def _cuts(
    rows: np.ndarray, entries: np.ndarray, size: int
) -> Iterator[tuple[int, int]]:
    """Where the units of each shard begin and end.

    A shard has at most `size` rows and `MOST_COUNTS` entries, or is one unit. `rows`
    and `entries` (n_units + 1,) are the numbers before each unit, and of all.
    """
    entries = entries.astype(np.int64)  # sums of int32 could wrap around
    begin = 0
    while begin < len(rows) - 1:
        ends = [
            np.searchsorted(before, before[begin] + most, side="right") - 1
            for before, most in ((rows, size), (entries, MOST_COUNTS))
        ]
        end = max(begin + 1, int(min(ends)))
        yield begin, end
        begin = end


def _by_user(
    parts: list[Shard], user_ids: npt.ArrayLike, size: int
) -> Iterator[tuple[sp.csr_array, np.ndarray]]:
    """Rows of whole users, in order of occurrence, and the first row of each user."""
    edges = np.cumsum([0, *(part.n_docs for part in parts)])
    users = number_users(user_ids, int(edges[-1]))
    assert users is not None
    order = np.argsort(users, kind="stable")
    of_row = [np.diff(part.read()[0].indptr) for part in parts]
    n_entries = np.bincount(users, np.concatenate([np.empty(0, np.int32), *of_row]))
    ptr = np.append(0, np.cumsum(np.bincount(users)))  # first row of each user
    entries = np.append(0, np.cumsum(n_entries))
    for first, last in _cuts(ptr, entries, size):
        rows = order[ptr[first] : ptr[last]]
        sorted_rows = np.sort(rows)
        cuts = np.searchsorted(sorted_rows, edges)
        found = []
        for part, edge, low, high in zip(parts, edges, cuts, cuts[1:]):
            if high > low:
                counts, _ = part.read()
                found.append(counts[sorted_rows[low:high] - edge])
        X = sp.vstack(found, format="csr")[np.searchsorted(sorted_rows, rows)]
        yield X, ptr[first : last + 1] - ptr[first]


def _write(
    folder: Path, index: int, X: sp.csr_array, unit_ptr: np.ndarray | None = None
) -> Shard:
    """Write counts in the form of the kernels to a file only the owner can read."""
    if X.nnz > MAX_TOKENS:
        raise ValueError(
            f"the documents of a user may hold at most {MAX_TOKENS} counts; see "
            "whether one id stands for many persons"
        )
    if unit_ptr is None:
        unit_ptr = np.arange(X.shape[0] + 1)
    path = str(folder / f"{index:06d}.counts")
    shard, content = _packed(path, X, unit_ptr)
    with explained(folder):
        write_atomically(path, content)
    return shard


def _packed(path: str, X: sp.csr_array, unit_ptr: np.ndarray) -> tuple[Shard, bytes]:
    """The shard of a file, and its content."""
    X = single_precision(X)
    arrays = X.data, X.indices, X.indptr, unit_ptr
    kinds = "<f4", "<i4", "<i4", "<i4"
    content = b"".join(
        array.astype(kind, copy=False).data for array, kind in zip(arrays, kinds)
    )
    digest = _digest_for(path)
    digest.update(content)
    n_docs, n_words = X.shape
    n_units = len(unit_ptr) - 1
    return Shard(path, n_docs, n_words, n_units, X.nnz, digest.hexdigest()), content


def _digest_for(path: str) -> hashlib._Hash:
    """Begins the SHA-256 of a shard: a corpus may repeat what fills a shard."""
    return hashlib.sha256(Path(path).name.encode())


def narrowed(
    corpus: CountShards,
    n_words: int,
    columns: Callable[[sp.csr_array], sp.csr_array],
    progress: Progress,
) -> CountShards:
    """Some columns of a corpus, which take the place of its files.

    They need no room on the disk: a full disk cannot end paid work. `corpus` is lost.

    Parameters
    ----------
    corpus : CountShards
        Its files change.
    n_words : int
        Number of columns that are kept.
    columns : callable
        These columns of the counts of a shard, as new arrays.
    progress : Progress
        Says how far the work is.
    """
    shards = []
    for shard in progress.during(Unnumbered(corpus.shards), named("counting words")):
        # nothing maps the file when it is written, as Windows asks
        X, unit_ptr = columns(shard.read()[0]), shard.read()[1]
        kept, content = _packed(shard.path, X, unit_ptr)
        with open(shard.path, "r+b") as file:
            file.write(content)
            file.truncate()
        shards.append(kept)
    chosen = copy.copy(corpus)
    chosen.shards = shards
    chosen.shape = (corpus.shape[0], n_words)
    return chosen
