"""Reads texts once, and counts the terms of each text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import chain, islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dplda.core._corpus import n_repeated, row_blocks
from dplda.core._splitter import (
    Entries,
    Splitter,
    columns_of,
    in_blocks,
    kept_ptr,
)
from dplda.datasets import CountShards, write_shards
from dplda.datasets._shards import narrowed
from dplda.document._shards import InProcess
from dplda.leaf._checks import LARGEST_INTEGER
from dplda.leaf._files import IN_MEMORY
from dplda.leaf._messages import Progress, Unnumbered, named
from dplda.leaf._users import number_users

MOST_TERMS = 1 << 24  # in memory, of 150 bytes each: random strings would fill it


class Counted:
    """Counts of all terms of texts. Private.

    Memory holds up to `IN_MEMORY` counts and numbers of documents. More counts are in
    files, in a folder that only its owner can read. `close` deletes the folder.

    Parameters
    ----------
    documents : iterable
        What the splitter takes, such as texts. Only their terms are kept.
    splitter : Splitter
        Finds the terms. Stop words do not count as terms.
    user_ids : array-like of shape (n_docs,) or None
        The user of each document. It is read after the documents.
    progress : Progress or None, default=None
        Says how far the work on the counts is.
    per_document : int, default=1
        Numbers that a fit to the counts keeps for each document, such as topic weights.

    Attributes
    ----------
    terms : list of str
        All different terms.
    n_docs, n_tokens, n_units : int
        Number of documents, of all terms, and of protected units.
    has_words : bool
        Whether a document has a word, which may be a stop word.
    users : ndarray of shape (n_docs,) or None
        Number of the user of each document, in order of occurrence.
    shards : CountShards or None
        The counts, if they are in files.

    Raises
    ------
    ValueError
        If a document cannot be split, if there are more than `MOST_TERMS` terms, or if
        there is not one id for each document.
    """

    def __init__(
        self,
        documents: Iterable[Any],
        splitter: Splitter,
        user_ids: ArrayLike | None,
        progress: Progress | None = None,
        per_document: int = 1,
    ) -> None:
        self._progress = progress or Progress()
        numbers = defaultdict[str, int](
            None, {word: i for i, word in enumerate(splitter.stop_words)}
        )
        numbers.default_factory = numbers.__len__
        n_stop = len(numbers)
        hashes = [np.empty(0, np.int64)]
        self.has_words = False
        self.n_tokens = 0

        def entries_of(block: list[Any]) -> Entries:
            words, (number, times, ptr) = splitter(block)
            own = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
            if len(numbers) - n_stop > MOST_TERMS:
                raise ValueError(
                    f"the texts have more than {MOST_TERMS:,} different words, as "
                    "codes, numbers and damaged texts do; look at the texts, or take "
                    "words of letters alone (token_pattern=None)"
                )
            self.has_words = self.has_words or bool(words)
            hashes.append(_hashes(block))
            number = own[number] - n_stop
            counts = number >= 0
            self.n_tokens += int(times[counts].sum(dtype=np.int64))
            return Entries(number[counts], times[counts], kept_ptr(ptr, counts))

        self._files = ExitStack()
        self.shards: CountShards | None = None
        self._entries = _joined([])
        try:
            blocks = map(entries_of, in_blocks(documents))
            self._keep(blocks, user_ids, per_document)
            self.terms = list(islice(numbers, n_stop, None))
            self._written = np.concatenate(hashes)
            self.n_docs = len(self._entries.ptr) - 1
            if self.shards is not None:
                self.n_docs = self.shards.shape[0]
            self.users = number_users(user_ids, self.n_docs)
        except BaseException:
            self.close()
            raise
        self.n_units = self.n_docs
        if self.users is not None:
            self.n_units = int(self.users.max(initial=-1)) + 1

    def _keep(
        self,
        blocks: Iterator[Entries],
        user_ids: ArrayLike | None,
        per_document: int,
    ) -> None:
        """Keep entries: in memory, or in shards if they or the documents are many."""
        held: list[Entries] = []
        size = 0
        for block in blocks:
            held.append(block)
            size += len(block.number) + per_document * (len(block.ptr) - 1)
            if size > IN_MEMORY:
                rows = map(_matrix, chain(held, blocks))
                folder = TemporaryDirectory(prefix="dplda-")
                path = Path(self._files.enter_context(folder), "counts")
                self.shards = write_shards(rows, path, user_ids=user_ids)
                return
        self._entries = _joined(held)

    def close(self) -> None:
        """Delete the files."""
        self._files.close()

    def _parts(self, step: str) -> Iterator[tuple[Entries, NDArray[np.int64] | None]]:
        """Entries of whole units, and the unit of each document.

        None stands for a unit for each document. `step` names the purpose of the pass.
        """
        parts = [None] if self.shards is None else self.shards.shards
        for shard in self._progress.during(Unnumbered(parts), named(step)):
            if shard is None:
                yield self._entries, self.users
                continue
            X, ptr = shard.read()
            users = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
            yield (
                Entries(X.indices, X.data, X.indptr),
                None if self.users is None else users,
            )

    def units(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The different terms of consecutive units, and where each unit begins."""
        for (terms, _, ptr), users in self._parts("choosing words"):
            if users is not None:
                terms, ptr = _of_users(terms, ptr, users)
            for units in row_blocks(ptr):
                own = ptr[units.start : units.stop + 1].astype(np.int64)
                yield terms[own[0] : own[-1]].astype(np.int64), own - own[0]

    def matrix(self, vocabulary: Mapping[str, int]) -> sp.csr_matrix:
        """Counts of the terms of a vocabulary, (n_docs, n_terms).

        They take the place of those of all terms, if these are in memory.
        """
        column = self._column(vocabulary)
        parts = [
            columns_of(entries, column, len(vocabulary))
            for entries, _ in self._parts("counting words")
        ]
        self._entries = _joined([])
        if self.shards is None:
            return parts[0]
        X = sp.vstack(parts, format="csr")
        if self.users is None:
            return X
        row = np.empty(self.n_docs, np.int64)  # of each document
        row[np.argsort(self.users, kind="stable")] = np.arange(self.n_docs)
        return X[row]

    def reserve_room(self, n_components: int, *, keeps_weights: bool) -> None:
        """Reserve what a fit of topics to the shards will write, as `InProcess` does.

        The fit may then be paid for: the disk cannot be full after it.
        """
        if self.shards is not None:
            engine = InProcess.with_room(
                self.shards, n_components, keeps_weights=keeps_weights
            )
            self.shards = self.shards.on(self._files.enter_context(closing(engine)))

    def narrow(self, vocabulary: Mapping[str, int]) -> CountShards:
        """Counts of the terms of a vocabulary, in the place of the shards of all."""
        assert self.shards is not None
        column = self._column(vocabulary)

        def columns(X: sp.csr_array) -> sp.csr_matrix:
            entries = Entries(X.indices, X.data, X.indptr)
            return columns_of(entries, column, len(vocabulary))

        self.shards = narrowed(self.shards, len(vocabulary), columns, self._progress)
        return self.shards

    def _column(self, vocabulary: Mapping[str, int]) -> NDArray[np.int32]:
        """The column of each term; -1 stands for a term without one."""
        return np.array(list(map(vocabulary.get, self.terms, repeat(-1))), np.int32)

    def n_copies(self) -> int:
        """How many texts that are not empty are duplicates."""
        return n_repeated(self._written)

    def n_among(self, texts: Iterable[str]) -> int:
        """How many texts that are not empty are among the given ones."""
        given = np.fromiter(map(hash, texts), np.int64)
        return int(np.isin(self._written, given).sum())


def _joined(blocks: list[Entries]) -> Entries:
    numbers = [np.empty(0, np.int32), *(block.number for block in blocks)]
    times = [np.empty(0, np.int32), *(block.times for block in blocks)]
    sizes = [np.zeros(1, np.int64), *(np.diff(block.ptr) for block in blocks)]
    ptr = np.cumsum(np.concatenate(sizes))
    return Entries(np.concatenate(numbers), np.concatenate(times), ptr)


def _of_users(
    terms: NDArray[np.int32], ptr: NDArray[np.integer], users: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The different terms of each user in order, and where each user begins."""
    keys = np.repeat(users, np.diff(ptr))
    keys <<= 32  # in place, as all entries are here
    keys |= terms
    keys.sort()
    keys = keys[_is_first(keys)]
    starts = np.arange(int(users.max(initial=-1)) + 2) << 32
    # the lower half of a key
    return keys.astype(np.int32), np.searchsorted(keys, starts)


def _matrix(entries: Entries) -> sp.csr_array:
    """The documents of a block; there are columns for all terms that may follow."""
    number, times, ptr = entries
    shape = (len(ptr) - 1, LARGEST_INTEGER)
    X = sp.csr_array((times.astype(np.float32), number, ptr), shape=shape)
    X.sort_indices()
    return X


def _hashes(block: list[Any]) -> NDArray[np.int64]:
    """Hashes of the texts of a block that are not empty.

    Python's hash has a secret key.
    """
    texts = [text for text in block if isinstance(text, str) and text]
    return np.fromiter(map(hash, texts), np.int64)


def _is_first(ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a value differs from the one before it."""
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first
