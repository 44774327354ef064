"""Count matrices in shards: files of whole rows that are mapped into memory when they are read."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
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
PARTS = {"data": np.float32, "indices": np.int32, "indptr": np.int32}
_CHECKED = 1 << 20  # entries that are checked at a time
_NAME = re.compile("[0-9]{6,}")  # a file of the folder has one such name: none counts twice


@dataclass(frozen=True)
class Shard:
    """The files of some consecutive documents. Private.

    Parameters
    ----------
    folder : str
        Folder of the corpus.
    name : str
        Beginning of the names of its three files.
    shape : tuple of int
        Number of documents, and of words.
    n_entries : int
        Number of stored counts.
    sha256 : str
        SHA-256 of the content of its files, one after the other.
    """

    folder: str
    name: str
    shape: tuple[int, int]
    n_entries: int
    sha256: str

    def path(self, part: str) -> Path:
        """The file of "data", "indices" or "indptr"."""
        return Path(self.folder, f"{self.name}.{part}.npy")

    def fail(self, what: str) -> ValueError:
        """An error about this shard. It quotes nothing of the documents."""
        return ValueError(
            f"shard {self.name} of {self.folder} {what}; write the shards again with write_shards, "
            "or restore the file from a copy"
        )

    def unreadable(self, part: str, error: OSError) -> Exception:
        """The error of a process that could not read one of the files."""
        if isinstance(error, FileNotFoundError) and os.path.isdir(self.folder):
            return self.fail(f"is missing its file {self.path(part).name}")
        return OSError(
            f"shard {self.name} of {self.folder} cannot be read ({error.strerror or error}); every "
            "machine that visits shards must be able to read this folder under this name"
        )

    def counts(self) -> sp.csr_array:
        """The counts, CSR of float32 and int32, on arrays that are mapped and read-only."""
        arrays = tuple(self._array(part, dtype) for part, dtype in PARTS.items())
        return sp.csr_array(arrays, shape=self.shape)

    def check(self) -> int:
        """Read all of the shard once: it is what was written, and fits its shape.

        Returns
        -------
        n_empty : int
            Number of documents without a word. Private.

        Raises
        ------
        ValueError
            If the shard is damaged.
        OSError
            If a file cannot be read.
        """
        if self._digest() != self.sha256:
            raise self.fail("is damaged: its SHA-256 is not the one of the manifest")
        data, words, ends = (self._array(part, dtype) for part, dtype in PARTS.items())
        in_order = (ends[1:] >= ends[:-1]).all()  # a difference of int32 could wrap around
        if not (in_order and ends[0] == 0 and ends[-1] == self.n_entries):
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

    def state(self) -> tuple[tuple[int, ...], ...]:
        """What changes if a file is replaced or written to."""
        found = []
        for part in PARTS:
            try:
                found.append(os.stat(self.path(part)))
            except OSError as error:
                raise self.unreadable(part, error) from None
        return tuple((f.st_dev, f.st_ino, f.st_size, f.st_mtime_ns) for f in found)

    def _array(self, part: str, dtype: Any) -> npt.NDArray[Any]:
        length = self.shape[0] + 1 if part == "indptr" else self.n_entries
        try:
            array = np.load(self.path(part), mmap_mode="r" if length else None, allow_pickle=False)
        except OSError as error:
            raise self.unreadable(part, error) from None
        except (ValueError, EOFError):
            raise self.fail(f"is damaged: {self.path(part).name} cannot be read") from None
        if not isinstance(array, np.ndarray) or (array.dtype, array.shape) != (dtype, (length,)):
            raise self.fail("is damaged: a file does not have the size of the manifest")
        return np.asarray(array)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for part in PARTS:
            try:
                with open(self.path(part), "rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise self.unreadable(part, error) from None
        return digest.hexdigest()


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
        n_words, words, shards = _read_manifest(Path(self.folder))
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
            A new object on the same files. There `SubLDA` infers topic weights from
            scratch in each round, because a process that may be lost would lose them.
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
    folder: Path, n_words: int, words: list[str] | None, shards: list[Shard]
) -> None:
    """Write the list of the shards. Without it the folder is no corpus."""
    records = [asdict(shard) for shard in shards]
    for record in records:
        del record["folder"]
    content = {
        "format": FORMAT, "n_words": n_words, "words": words,
        # a digest of this file shows nothing of the documents
        "salt": uuid.uuid4().hex, "shards": records,
    }  # fmt: skip
    write_atomically(folder / MANIFEST, json.dumps(content).encode())


def write_shard(folder: Path, index: int, X: sp.csr_array) -> Shard:
    """Write counts in the form of the kernels to three files that only the owner can read."""
    shard = Shard(str(folder), f"{index:06d}", X.shape, X.nnz, "")
    for part, dtype in PARTS.items():
        descriptor = os.open(shard.path(part), os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with open(descriptor, "wb") as file:
            np.save(file, np.asarray(getattr(X, part), dtype), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
    return Shard(shard.folder, shard.name, shard.shape, shard.n_entries, shard._digest())


def _read_manifest(folder: Path) -> tuple[int, list[str] | None, list[Shard]]:
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
        n_words, words = int(content["n_words"]), content["words"]
        shards = [
            Shard(
                str(folder), str(record["name"]),
                (int(record["shape"][0]), int(record["shape"][1])),
                int(record["n_entries"]), str(record["sha256"]),
            )
            for record in content["shards"]
        ]  # fmt: skip
        is_valid = content["format"] == FORMAT and shards and all(
            _NAME.fullmatch(s.name) and s.shape[0] >= 0 and s.n_entries >= 0 for s in shards
        )  # fmt: skip
        if words is not None and not (
            isinstance(words, list) and all(type(w) is str for w in words) and len(words) == n_words
        ):
            is_valid = False
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} holds no corpus: it has no file {MANIFEST}, which write_shards writes last; "
            "give the folder of a finished write_shards"
        ) from None
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{path} was not written by write_shards, or is damaged")
    _check_list(shards, n_words)
    return n_words, words, shards


def _check_list(shards: list[Shard], n_words: int) -> None:
    """Refuse a list that would count documents twice, or mix vocabularies, and missing files."""
    names, contents = set(), set()
    for shard in shards:
        if shard.name in names:
            raise shard.fail("is listed twice: a document would count twice")
        if shard.sha256 in contents and shard.shape[0] > 1 and shard.n_entries:
            raise shard.fail(
                "holds the same documents as another shard, which would count twice (if the corpus "
                "does repeat documents, choose another rows_per_shard)"
            )
        if shard.shape[1] != n_words:
            raise shard.fail(
                f"has a vocabulary of {shard.shape[1]} words, and the corpus one of {n_words}"
            )
        for part in PARTS:
            if not shard.path(part).exists():
                raise FileNotFoundError(str(shard.fail(f"has no file {shard.path(part).name}")))
        names.add(shard.name)
        contents.add(shard.sha256)
