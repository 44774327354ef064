"""Count matrices in shards: files of whole rows that are mapped into memory when they are read."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dplda.core._corpus import MAX_TOKENS, positive_entries, whole_counts
from dplda.core._fold_in import LARGEST_COUNT, single_precision
from dplda.datasets._uci import docword_entries
from dplda.leaf._checks import check_integer
from dplda.leaf._files import OWNER_ONLY, write_atomically
from dplda.leaf._users import number_users

FORMAT = "dplda count shards"
MANIFEST = "shards.json"
UNITS = ("document", "user")


@dataclass(frozen=True)
class Shard:
    """The file of some consecutive documents. Private.

    It holds counts (float32), words, ends of rows and ends of units (int32): numbers of 4 bytes
    without a header, whose sizes are in the list of shards.
    """

    path: str
    shape: tuple[int, int]  # documents, words
    n_units: int  # documents, or users with all their documents
    n_entries: int  # stored counts
    sha256: str  # of the file

    def counts(self) -> sp.csr_array:
        """The counts, CSR of float32 and int32, on arrays that are mapped and read-only."""
        data, words, ends, _ = self._arrays()
        return sp.csr_array((data, words, ends), shape=self.shape)

    def unit_ptr(self) -> npt.NDArray[np.int64]:
        """First document of each unit, and the number of documents."""
        return self._arrays()[3].astype(np.int64)

    def users(self) -> npt.NDArray[np.int64]:
        """Number of the unit of each document."""
        return np.repeat(np.arange(self.n_units), np.diff(self.unit_ptr()))

    def check(self) -> int:
        """Read all of the shard once: it is what was written, and fits its shape.

        Return the number of documents without a word, which is private.
        """
        data, words, ends, units = self._arrays()
        if self.digest() != self.sha256:
            raise self.fail("is damaged: its SHA-256 is not the one of the list")
        # comparisons, because a difference of int32 could wrap around
        rows_fit = (ends[1:] >= ends[:-1]).all() and ends[0] == 0 and ends[-1] == self.n_entries
        units_fit = (units[1:] > units[:-1]).all() and units[0] == 0 and units[-1] == self.shape[0]
        if not (rows_fit and units_fit):
            raise self.fail("is damaged: its rows do not fit its entries")
        first_of_row = np.zeros(self.n_entries + 1, bool)
        first_of_row[ends] = True
        in_order = ((words[1:] > words[:-1]) | first_of_row[1:-1]).all()
        least, most = words.min(initial=0), words.max(initial=0)
        if not (in_order and least >= 0 and (most < self.shape[1] or not self.n_entries)):
            raise self.fail("is damaged: the words of a row are not in order, or unknown")
        if not ((data > 0) & (data <= np.float32(LARGEST_COUNT))).all():
            raise self.fail("is damaged: it holds numbers that are not counts")
        return int(np.count_nonzero(ends[1:] == ends[:-1]))

    def state(self) -> tuple[int, ...]:
        """What changes if the file is replaced or written to."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise self._unreadable(error) from None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def digest(self) -> str:
        """SHA-256 of the file."""
        try:
            with open(self.path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise self._unreadable(error) from None

    def fail(self, what: str) -> ValueError:
        """An error about this shard. It quotes nothing of the documents."""
        return ValueError(
            f"shard {Path(self.path).stem} of {Path(self.path).parent} {what}; write the shards "
            "again with write_shards, or restore the file from a copy"
        )

    def _unreadable(self, error: OSError) -> Exception:
        path = Path(self.path)
        if isinstance(error, FileNotFoundError) and path.parent.is_dir():
            return self.fail("has no file")
        return OSError(
            f"shard {path.stem} of {path.parent} cannot be read ({error.strerror or error}); every "
            "machine that visits shards must be able to read this folder under this name"
        )

    def _arrays(self) -> list[npt.NDArray[Any]]:
        """Counts, words, ends of rows and ends of units."""
        lengths = [self.n_entries, self.n_entries, self.shape[0] + 1, self.n_units + 1]
        if self.state()[2] != 4 * sum(lengths):
            raise self.fail("is damaged: its file does not have the size of the list")
        ends = np.cumsum([0, *lengths])
        try:
            # one map for each: SciPy would copy a part of a larger array
            return [
                np.asarray(np.memmap(self.path, dtype, "r", 4 * begin, (end - begin,)))
                if end > begin
                else np.empty(0, dtype)
                for dtype, begin, end in zip(("<f4", "<i4", "<i4", "<i4"), ends, ends[1:])
            ]
        except OSError as error:
            raise self._unreadable(error) from None
        except ValueError:  # it became shorter
            raise self.fail("is damaged: its file does not have the size of the list") from None


class CountShards:
    """A count matrix in the files of `write_shards`, for corpora larger than the memory.

    `SubLDA` and `PrivateSVILDA` train on it as on the matrix itself, with the same result to the
    last bit, and read one shard after the other. `transform`, `score` and `perplexity` of LDA
    models take it as well. Iterating checks each shard and gives it as a matrix, in order.
    ``corpus[rows]`` is the corpus of some of its shards.

    Parameters
    ----------
    folder : str or path-like
        Folder that `write_shards` filled. Its files are private, and must not change while they
        are in use.

    Attributes
    ----------
    folder : str
        Absolute path of the folder.
    shape : tuple of int
        (n_docs, n_words).
    n_entries : int
        Number of stored counts.
    n_shards : int
        Number of shards.
    unit : {"document", "user"}
        What fits and scores protect: users if `write_shards` was given their ids.
    feature_names : ndarray of shape (n_words,), object, or None
        The words of the columns, if `write_shards` was given them.

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
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> with TemporaryDirectory() as folder:
    ...     corpus = write_shards(X, f"{folder}/corpus", rows_per_shard=200)
    ...     model = SubLDA(3, epsilon=4.0, delta=1e-5, max_iter=20).fit(corpus)
    >>> corpus.n_shards, model.components_.shape
    (3, (3, 30))
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self.unit, n_words, words, shards = _read_manifest(Path(self.folder))
        self.feature_names = None if words is None else np.array(words, dtype=object)
        self.engine: Any = None
        self._hold(shards, n_words)

    def _hold(self, shards: list[Shard], n_words: int) -> None:
        self.shards = shards
        self.shape = (sum(shard.shape[0] for shard in shards), n_words)
        self.n_entries = sum(shard.n_entries for shard in shards)
        self.n_shards = len(shards)

    @property
    def groups(self) -> npt.NDArray[np.int64]:
        """Number of the shard of each document (n_docs,): what `GroupKFold` divides folds by."""
        return np.repeat(np.arange(self.n_shards), [shard.shape[0] for shard in self.shards])

    def __getitem__(self, rows: Any) -> CountShards:
        """The corpus of some whole shards, on the same files and engine.

        Parameters
        ----------
        rows : array-like of int
            Increasing row numbers: all documents of each of these shards.

        Returns
        -------
        corpus : CountShards
            A new object.

        Raises
        ------
        ValueError
            If a shard is cut.
        """
        rows = rows[0] if isinstance(rows, tuple) else rows  # scikit-learn says [rows, ...]
        rows = np.atleast_1d(np.arange(self.shape[0])[rows])
        sizes = np.array([shard.shape[0] for shard in self.shards])
        found = np.diff(np.searchsorted(rows, np.cumsum([0, *sizes])))
        if not len(rows) or (np.diff(rows) <= 0).any() or ((found > 0) & (found < sizes)).any():
            raise ValueError(
                "the rows of a CountShards are divided by whole shards, in their order; split it "
                "by GroupKFold or GroupShuffleSplit with groups=corpus.groups"
            )
        part = copy.copy(self)
        part._hold([shard for shard, n in zip(self.shards, found) if n], self.shape[1])
        return part

    def on(self, client: Any) -> CountShards:
        """The same corpus, whose shards are visited by the workers of a cluster during `fit`.

        The result of a fit is the same to the last bit, on any number of workers, and if workers
        are lost. Only this process holds the key, charges and adds noise.

        Parameters
        ----------
        client : distributed.Client, or an engine
            Its workers must be able to read `folder`, and have this version of dplda. Start one
            worker process for each machine, and set `n_jobs` of the model to its processors. Use
            ``distributed.Security`` with TLS if they run on several machines: exact sums travel
            between them. ``docs/scaling.md`` says what an engine is.

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
            yield shard.counts()

    def __repr__(self) -> str:
        return f"<CountShards: {self.shape[1]} words in the vocabulary>"  # no private number


def write_shards(
    source: Any,
    folder: str | os.PathLike[str],
    *,
    user_ids: Any = None,
    rows_per_shard: int = 10_000,
    feature_names: Sequence[str] | None = None,
) -> CountShards:
    """Write a corpus to shards, which `CountShards` reads without loading them.

    Counts are checked once, block by block, as `fit` checks a matrix. No more than one block, which
    may be copied, and one shard are in memory.

    Parameters
    ----------
    source : matrix, iterable of matrices, str or path-like
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
    place = Path(os.path.abspath(os.fspath(folder)))
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise ValueError(f"{place} is not empty; give a new folder, or delete what is in it")
    words = None if feature_names is None else list(map(str, feature_names))

    def counted() -> Iterator[sp.csr_array]:
        nonlocal words
        for block in _blocks(source):
            columns = getattr(block, "columns", None)
            if columns is not None and all(isinstance(name, str) for name in columns):
                if words not in (None, list(columns)):
                    raise ValueError(
                        "the columns of a table are other words, or have another order, than "
                        "feature_names or the tables before; select the same columns of all tables"
                    )
                words = list(columns)
            X = positive_entries(block, "write_shards", ensure_min_samples=0)
            X = whole_counts(X, "write_shards")
            # a release file could not hold one word twice
            if words is not None and not len(set(words)) == len(words) == X.shape[1]:
                raise ValueError(
                    f"the names of the columns must be {X.shape[1]} different words, got "
                    f"{len(words)}, {len(set(words))} of them different"
                )
            yield X

    def written(into: Path) -> list[Shard]:
        return [_write(into, index, X) for index, X in enumerate(_in_shards(counted(), size))]

    if user_ids is None:
        shards = written(place)
    else:
        with tempfile.TemporaryDirectory(dir=place) as unsorted:
            parts = _by_user(written(Path(unsorted)), user_ids, size)
            shards = [_write(place, index, *part) for index, part in enumerate(parts)]
    if not shards:
        raise ValueError("source holds no block of documents; give at least one matrix")
    content = {
        "format": FORMAT, "unit": UNITS[user_ids is not None], "n_words": shards[0].shape[1],
        "words": words,
        "salt": uuid.uuid4().hex,  # a digest of this file shows nothing of the documents
        "shards": [
            {"n_docs": shard.shape[0]}
            | {name: asdict(shard)[name] for name in ("n_units", "n_entries", "sha256")}
            for shard in shards
        ],
    }  # fmt: skip
    # the last file: without it the folder is no corpus
    write_atomically(place / MANIFEST, json.dumps(content).encode())
    return CountShards(place)


def _blocks(source: Any) -> Iterable[Any]:
    """Blocks of rows of whatever holds the documents."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            raise IsADirectoryError(
                f"{path} is a folder; if write_shards has filled it, it is a corpus already: pass "
                "CountShards(folder) to fit. Texts in files have to be read and counted first"
            )
        return _rows_of(*docword_entries(path))
    if hasattr(source, "shape"):
        return [source]
    if isinstance(source, Iterable):
        return source
    raise ValueError(f"source must be a matrix, matrices or a path, got {type(source).__name__}")


def _in_shards(blocks: Iterable[sp.csr_array], size: int) -> Iterator[sp.csr_array]:
    """Checked rows in shards of `size` documents, the last one smaller."""
    waiting: list[sp.csr_array] = []
    width = None
    for X in blocks:
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


def _kernel_form(X: sp.csr_array) -> sp.csr_array:
    if X.nnz > MAX_TOKENS:
        raise ValueError(f"a shard may hold at most {MAX_TOKENS} counts; lower rows_per_shard")
    return single_precision(X)


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


def _write(
    folder: Path, index: int, X: sp.csr_array, unit_ptr: npt.NDArray[Any] | None = None
) -> Shard:
    """Write counts in the form of the kernels to a file that only the owner can read."""
    path = str(folder / f"{index:06d}.counts")
    unit_ptr = np.arange(X.shape[0] + 1) if unit_ptr is None else unit_ptr
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with open(descriptor, "wb") as file:
        file.write(np.ascontiguousarray(X.data, "<f4").data)
        for array in (X.indices, X.indptr, unit_ptr):
            file.write(np.ascontiguousarray(array, "<i4").data)
        file.flush()
        os.fsync(file.fileno())
    shard = Shard(path, X.shape, len(unit_ptr) - 1, X.nnz, "")
    return replace(shard, sha256=shard.digest())


def _read_manifest(folder: Path) -> tuple[str, int, list[str] | None, list[Shard]]:
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
        unit, n_words, words = content["unit"], int(content["n_words"]), content["words"]
        numbers = [
            (int(record["n_docs"]), int(record["n_units"]), int(record["n_entries"]))
            for record in content["shards"]
        ]
        digests = [str(record["sha256"]) for record in content["shards"]]
        is_valid = (
            content["format"] == FORMAT and unit in UNITS and bool(numbers)
            and min([n_words, *map(min, numbers)]) >= 0
            and (words is None or (type(words) is list and len(words) == n_words))
            and all(type(word) is str for word in words or [])
        )  # fmt: skip
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} holds no corpus: it has no file {MANIFEST}, which write_shards writes last; "
            "give the folder of a finished write_shards"
        ) from None
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{path} was not written by write_shards, or is damaged")
    shards = [
        Shard(str(folder / f"{i:06d}.counts"), (n_docs, n_words), n_units, n_entries, digest)
        for i, ((n_docs, n_units, n_entries), digest) in enumerate(zip(numbers, digests))
    ]
    seen = set()
    for shard in shards:
        if shard.sha256 in seen and shard.shape[0] > 1 and shard.n_entries:
            raise shard.fail(
                "holds the same documents as another shard, which would count twice (if the corpus "
                "does repeat documents, choose another rows_per_shard)"
            )
        seen.add(shard.sha256)
        shard.state()  # an error if the file is missing
    return unit, n_words, words, shards
