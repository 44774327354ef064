"""Count matrices in shards: files of whole rows that are mapped into memory when they are read."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dplda.core._fold_in import LARGEST_COUNT
from dplda.leaf._files import OWNER_ONLY, write_atomically

FORMAT = "dplda count shards"
MANIFEST = "shards.json"
UNITS = ("document", "user")
_CHECKED = 1 << 20  # entries that are checked at a time


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

    @property
    def name(self) -> str:
        """Its number, with zeros."""
        return Path(self.path).stem

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
        for begin in range(0, self.n_entries, _CHECKED):
            end = min(begin + _CHECKED, self.n_entries)
            before = slice(max(begin - 1, 0), end - 1)  # with the last word of the piece before
            rises = words[before.start + 1 : end] > words[before]
            in_order = (rises | first_of_row[before.start + 1 : end]).all()
            piece = words[begin:end]
            if not (in_order and piece.min() >= 0 and piece.max() < self.shape[1]):
                raise self.fail("is damaged: the words of a row are not in order, or unknown")
            if not ((data[begin:end] > 0) & (data[begin:end] <= np.float32(LARGEST_COUNT))).all():
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
            f"shard {self.name} of {os.path.dirname(self.path)} {what}; write the shards again "
            "with write_shards, or restore the file from a copy"
        )

    def _unreadable(self, error: OSError) -> Exception:
        folder = os.path.dirname(self.path)
        if isinstance(error, FileNotFoundError) and os.path.isdir(folder):
            return self.fail("has no file")
        return OSError(
            f"shard {self.name} of {folder} cannot be read ({error.strerror or error}); every "
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


def write_manifest(
    folder: Path, unit: str, n_words: int, words: list[str] | None, shards: list[Shard]
) -> None:
    """Write the list of the shards. Without it the folder is no corpus."""
    content = {
        "format": FORMAT, "unit": unit, "n_words": n_words, "words": words,
        # a digest of this file shows nothing of the documents
        "salt": uuid.uuid4().hex,
        "shards": [
            {"n_docs": shard.shape[0]}
            | {name: asdict(shard)[name] for name in ("n_units", "n_entries", "sha256")}
            for shard in shards
        ],
    }  # fmt: skip
    write_atomically(folder / MANIFEST, json.dumps(content).encode())


def write_shard(
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
    return Shard(path, shard.shape, shard.n_units, shard.n_entries, shard.digest())


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
