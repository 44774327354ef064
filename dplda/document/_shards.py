"""Corpora larger than the memory: documents in shards, visited one by one.

A visit makes a `Documents` from a shard, and drops it afterwards. The order of integer
sums does not matter, a unit is in one shard only, and each shard enters a sum once. The
sums therefore equal the sums of a single `Documents` with all rows, to the last bit.

A process that visits shards gets public messages and returns sums without noise, which
are private. Noise, samples and charges stay with the curator.
``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

import math
import tempfile
import uuid
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import row_keys, warn_of_empty_rows, warn_of_equal_rows
from dplda.core._fold_in import uniform_theta
from dplda.datasets._shards import CountShards, Shard
from dplda.document._contributions import Documents
from dplda.document._dask import Client, DaskEngine
from dplda.document._private_side import Engine, Halves, RoundInference, RoundTables
from dplda.leaf._files import explained, nameless, write_all
from dplda.leaf._threads import n_threads

# Places in a file are multiples of it, in bytes. Otherwise, shards that differ by a few
# documents share no places, and the file is nearly twice as long.
PLACE = 1 << 16


@dataclass(frozen=True)
class Lane:
    """Consecutive shards that a task visits one after the other; private.

    Methods are pure functions of the files and of their arguments, so that any process
    may call them again. Arguments have one item for each shard: `theta` and `scale`
    hold the arrays of `Documents` (None: their first values), and `units` the chosen
    units (None: all of them).
    """

    fit: str  # random digits that name the fit
    shards: Sequence[Shard]
    n_components: int
    n_jobs: int | None

    def row_keys(self) -> np.ndarray:
        """Check all files; return the `row_keys` of their documents."""
        return _joined(row_keys(documents.X) for documents in self._visits())

    def rescale(self, weight: np.ndarray, norm: float) -> list[np.ndarray]:
        """The scales of units, for each shard."""
        scales = []
        for documents in self._visits():
            documents.rescale(weight, norm)
            scales.append(documents.scale)
        return scales

    def sum_words(
        self,
        scale: Sequence[np.ndarray] | None,
        units: Sequence[np.ndarray | None],
        weight: np.ndarray,
        norm: float,
        radius: int,
    ) -> np.ndarray:
        """Word totals of the chosen units, as `PrivateSide.sum_words`."""
        return _total(
            documents.sum_words(chosen, weight=weight, norm=norm, radius=radius)
            for documents, chosen in zip(self._visits(scale), units)
        )

    def count_documents(self, most: int) -> np.ndarray:
        """Numbers of documents and units, as `PrivateSide.count_documents`."""
        return _total(documents.count_documents(most) for documents in self._visits())

    def infer(
        self,
        theta: Sequence[np.ndarray] | None,
        units: Sequence[np.ndarray | None],
        inference: RoundInference,
    ) -> list[np.ndarray]:
        """The inferred topic weights of documents, for each shard."""
        # the task may run again: its arguments must not change
        copies = None if theta is None else (array.copy() for array in theta)
        inferred = []
        for documents, chosen in zip(self._visits(theta=copies), units):
            documents.infer(_these(documents, chosen), inference)
            inferred.append(documents.theta)
        return inferred

    def sum_topics(
        self,
        theta: Sequence[np.ndarray] | None,
        scale: Sequence[np.ndarray] | None,
        units: Sequence[np.ndarray | None],
        tables: RoundTables,
        upweight: Sequence[np.ndarray | None],
    ) -> np.ndarray:
        """Centered word-topic counts of the chosen units, as `PrivateSide.sum_topics`.

        With `theta`, ``tables.inference`` is None, because inference would change it.
        """
        visits = self._visits(scale, theta)
        return _total(
            documents.sum_topics(_these(documents, chosen), tables, weights)
            for documents, chosen, weights in zip(visits, units, upweight)
        )

    def sum_halves(
        self,
        scale: Sequence[np.ndarray] | None,
        units: Sequence[np.ndarray | None],
        halves: Halves,
        upweight: Sequence[np.ndarray | None],
    ) -> np.ndarray:
        """The sum of a test of topics, as `PrivateSide.sum_halves`."""
        visits = self._visits(scale)
        return _total(
            documents.sum_halves(_these(documents, chosen), halves, weights)
            for documents, chosen, weights in zip(visits, units, upweight)
        )

    def share_of(self, words: np.ndarray) -> np.ndarray:
        """Share of the tokens of each unit in the mask `words`."""
        return _joined(documents.share_of(words) for documents in self._visits())

    def longest(self) -> float:
        """L2 norm of the word counts of the longest unit."""
        return max(documents.longest() for documents in self._visits())

    def _visits(
        self,
        scale: Sequence[np.ndarray] | None = None,
        theta: Iterable[np.ndarray] | None = None,
    ) -> Iterator[Documents]:
        """The documents of each shard, one shard after the other."""
        thetas = [None] * len(self.shards) if theta is None else theta
        threads = n_threads(self.n_jobs)  # asked for once: the system is slow to say
        for i, (shard, of_shard) in enumerate(zip(self.shards, thetas)):
            # Each process checks the files that it reads, and checks them again if they
            # change: kernels rely on these checks.
            _check(self.fit, shard, shard.state())
            counts, unit_ptr = shard.read()
            documents = Documents(
                counts, unit_ptr, self.n_components, threads, of_shard
            )
            if scale is not None:
                documents.scale = scale[i]
            yield documents


@lru_cache(maxsize=2**16)
def _check(fit: str, shard: Shard, state: tuple[int, ...]) -> None:
    """Check a file once in a fit, and again if its `state` has changed."""
    shard.check()


def _these(documents: Documents, units: np.ndarray | None) -> np.ndarray:
    """The chosen units of a shard."""
    return np.arange(documents.n_units) if units is None else units


class Waiting:
    """Arrays in the file of an engine: where they begin, their types and shapes."""

    def __init__(self, begin: int, arrays: Sequence[np.ndarray]) -> None:
        self.begin = begin
        self.forms = [(array.dtype, array.shape) for array in arrays]


class InProcess:
    """An `Engine` that runs each task at once, in this process.

    Results that are lists of arrays wait in a file: topic weights and scales of units,
    which grow with the documents. Private. The file has no name, only this process can
    read it, and it ends with the process.
    """

    # one task for each shard, so that only one result is in memory
    n_tasks: float = math.inf

    def __init__(self, room: int = 0) -> None:
        self._folder = tempfile.gettempdir()
        self._file = nameless(self._folder, room)
        self._close = weakref.finalize(self, self._file.close)
        self._free = defaultdict[int, list[int]](list)  # places, by their size
        self._end = 0

    def submit(self, function: Callable[..., object], *arguments: object) -> object:
        given = (
            self._read(each) if isinstance(each, Waiting) else each
            for each in arguments
        )
        result = function(*given)
        return self._write(result) if isinstance(result, list) else result

    def gather(self, tasks: Iterable[object]) -> Iterable[object]:
        return tasks

    def close(self) -> None:
        """Forget what waits."""
        self._close()

    def _write(self, arrays: list[np.ndarray]) -> Waiting:
        size = place_for(sum(array.nbytes for array in arrays))
        free = self._free[size]
        begin = free.pop() if free else self._end
        self._end = max(self._end, begin + size)
        with explained(self._folder):  # ndarray.tofile would lose the end in silence
            self._file.seek(begin)
            for array in arrays:
                content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                write_all(self._file, content.data)
        waiting = Waiting(begin, arrays)
        weakref.finalize(waiting, free.append, begin)
        return waiting

    def _read(self, waiting: Waiting) -> list[np.ndarray]:
        self._file.seek(waiting.begin)
        return [
            np.fromfile(self._file, dtype, math.prod(shape)).reshape(shape)
            for dtype, shape in waiting.forms
        ]

    @classmethod
    def with_room(
        cls, corpus: CountShards, n_components: int, *, keeps_weights: bool
    ) -> InProcess:
        """An engine whose file has room on the disk for all that waits in a fit.

        A full disk is then an error before the fit is charged, and not in a round.

        Parameters
        ----------
        corpus : CountShards
            The shards, of these sizes.
        n_components : int
            Number of topics, without the padding.
        keeps_weights : bool
            Whether topic weights wait from round to round, and not scales alone.
        """
        of_document = uniform_theta(1, n_components).nbytes * keeps_weights
        sizes = [8 * shard.n_units for shard in corpus.shards]  # scales
        sizes += [of_document * shard.n_docs for shard in corpus.shards]
        places = list(map(place_for, sizes))
        # the new result of a task is written before the old one is forgotten
        return cls(sum(places) + sum(set(places)))


def place_for(size: int) -> int:
    """Bytes in the file for an array; arrays of about the same size share places."""
    return -(-size // PLACE) * PLACE


@dataclass
class LaneTasks:
    """Handles of a lane and of its state, which stay where they were computed."""

    shards: slice  # shards of the lane, among all shards
    lane: object  # handle of a `Lane`
    theta: object = None  # handle of the topic weights of its documents
    scale: object = None  # handle of the scales of its units


class ShardedDocuments:
    """Private documents in shards, which tasks of an engine visit: a `PrivateSide`.

    Parameters
    ----------
    X : CountShards
        The shards, and the engine or Dask client that runs the tasks.
    n_components : int
        Number of topics, without the padding.
    n_jobs : int or None
        Number of threads of a task. It never changes a result.
    keeps_weights : bool, default=True
        Whether topic weights wait from round to round.
    """

    def __init__(
        self,
        X: CountShards,
        n_components: int,
        n_jobs: int | None,
        keeps_weights: bool = True,
    ) -> None:
        self.n_words = X.shape[1]
        self._corpus = X
        self._edges = np.cumsum([0, *(shard.n_units for shard in X.shards)])
        self.n_units = int(self._edges[-1])
        self._ending = ExitStack()
        self._lanes: list[LaneTasks] = []
        try:
            self._engine = self._engine_of(X, n_components, keeps_weights)
            self._begin(n_components, n_jobs)
        except BaseException:
            self.close()
            raise

    def _engine_of(
        self, X: CountShards, n_components: int, keeps_weights: bool
    ) -> Engine:
        """The engine of the tasks: this process, a given engine, or a Dask client."""
        given = X.engine
        if given is None:
            own = InProcess.with_room(X, n_components, keeps_weights=keeps_weights)
            return self._ending.enter_context(closing(own))
        if isinstance(given, Engine):
            return given
        if isinstance(given, Client):
            return self._ending.enter_context(closing(DaskEngine(given)))
        raise TypeError(
            "CountShards.on takes a distributed.Client, or an engine with n_tasks, "
            f"submit and gather, got {type(given).__name__}"
        )

    def _begin(self, n_components: int, n_jobs: int | None) -> None:
        """Make the lanes, which check all files."""
        shards = self._corpus.shards
        n_lanes = int(min(len(shards), self._engine.n_tasks))
        cuts = np.linspace(0, len(shards), n_lanes + 1).astype(int).tolist()
        fit = uuid.uuid4().hex
        for begin, end in pairwise(cuts):
            lane = self._engine.submit(
                Lane, fit, shards[begin:end], n_components, n_jobs
            )
            self._lanes.append(LaneTasks(slice(begin, end), lane))
        # nothing is released yet, so that an error cancels the charge
        keys = _joined(self._results(Lane.row_keys))
        warn_of_empty_rows(int((keys == 0).sum()), len(keys))
        warn_of_equal_rows(keys)

    def rescale(self, weight: np.ndarray, norm: float) -> None:
        message = self._sent(weight)
        for tasks in self._lanes:
            tasks.scale = self._engine.submit(Lane.rescale, tasks.lane, message, norm)

    def sum_words(
        self, units: np.ndarray | None, *, weight: np.ndarray, norm: float, radius: int
    ) -> np.ndarray:
        message = self._sent(weight)
        chosen = self._of_shards(units)
        return self._sum(
            self._engine.submit(
                Lane.sum_words,
                tasks.lane,
                tasks.scale,
                chosen[tasks.shards],
                message,
                norm,
                radius,
            )
            for tasks in self._lanes
        )

    def count_documents(self, most: int) -> np.ndarray:
        return _total(self._results(Lane.count_documents, most))

    def sum_topics(
        self, units: np.ndarray, tables: RoundTables, upweight: np.ndarray | None = None
    ) -> np.ndarray:
        chosen = self._of_shards(units)
        inference = tables.inference
        if inference is not None:  # a copy: the fit overwrites its table
            inference = inference._replace(table=inference.table.copy())
            tables = tables._replace(inference=inference)
        if inference is not None and not inference.anew:
            self._infer(chosen, inference)
            tables = tables._replace(inference=None)
        # else each visit infers and adds, so that topic weights need not be kept
        message = self._engine.submit(RoundTables, *tables)
        weights = self._weights_of_shards(upweight)
        return self._sum(
            self._engine.submit(
                Lane.sum_topics,
                tasks.lane,
                tasks.theta,
                tasks.scale,
                chosen[tasks.shards],
                message,
                weights[tasks.shards],
            )
            for tasks in self._lanes
        )

    def sum_halves(
        self, units: np.ndarray, halves: Halves, upweight: np.ndarray | None = None
    ) -> np.ndarray:
        chosen = self._of_shards(units)
        message = self._engine.submit(Halves, *halves)
        weights = self._weights_of_shards(upweight)
        return self._sum(
            self._engine.submit(
                Lane.sum_halves,
                tasks.lane,
                tasks.scale,
                chosen[tasks.shards],
                message,
                weights[tasks.shards],
            )
            for tasks in self._lanes
        )

    def _infer(
        self, chosen: Sequence[np.ndarray | None], inference: RoundInference
    ) -> None:
        """Infer the topic weights of units, which stay where they are computed."""
        message = self._engine.submit(RoundInference, *inference)
        for tasks in self._lanes:
            # replaced at once, so that old weights of only one lane are kept
            tasks.theta = self._engine.submit(
                Lane.infer, tasks.lane, tasks.theta, chosen[tasks.shards], message
            )

    def share_of(self, words: np.ndarray) -> np.ndarray:
        return _joined(self._results(Lane.share_of, self._sent(words)))

    def longest(self) -> float:
        return max(self._results(Lane.longest))

    def matrices(self) -> Iterator[sp.csr_array]:
        # in this process: the sampler needs the result of one shard for the next
        return iter(self._corpus)

    def close(self) -> None:
        """Forget all tasks: a cluster then stops, and wipes what it holds."""
        self._lanes.clear()
        self._ending.close()

    def _sent(self, array: np.ndarray) -> object:
        """A handle of an array, which is sent once for several tasks."""
        return self._engine.submit(np.array, array)

    def _results(self, method: Callable[..., object], *arguments: object) -> Iterable:
        """The results of a method for all lanes, in order."""
        return self._engine.gather(
            self._engine.submit(method, tasks.lane, *arguments) for tasks in self._lanes
        )

    def _sum(self, tasks: Iterable[object]) -> np.ndarray:
        return _total(self._engine.gather(tasks))

    def _of_shards(self, units: np.ndarray | None) -> list[np.ndarray | None]:
        """For each shard, the members of `units`, numbered in the shard; None: all."""
        if units is None:
            return [None] * len(self._corpus.shards)
        cuts = np.searchsorted(units, self._edges)
        chosen: list[np.ndarray | None] = []
        for i, (begin, end) in enumerate(pairwise(self._edges)):
            rows = units[cuts[i] : cuts[i + 1]] - begin
            chosen.append(None if len(rows) == end - begin else rows)
        return chosen

    def _weights_of_shards(
        self, upweight: np.ndarray | None
    ) -> list[np.ndarray | None]:
        """For each shard, the weights of its units; None if all weights are 1."""
        if upweight is None or (upweight == 1).all():
            return [None] * len(self._corpus.shards)
        return [upweight[begin:end] for begin, end in pairwise(self._edges)]


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([*parts])


def _total(parts: Iterable[np.ndarray]) -> np.ndarray:
    def add(total: np.ndarray, part: np.ndarray) -> np.ndarray:
        return np.add(total, part, out=total)

    return reduce(add, parts)
