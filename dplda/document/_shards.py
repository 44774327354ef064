"""Corpora larger than the memory: documents in shards, visited one by one.

A visit makes a `Documents` of the rows of a shard, and drops it afterwards. Integer
sums have no order, a unit stands in one shard, and the result of a shard enters a sum
once. The sums are therefore those of one `Documents` with all rows, to the last bit.

Whoever visits sees public messages, and sums without noise, which are private. Noise,
samples and charges stay with the curator. ``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import warn_of_empty_rows
from dplda.datasets._shards import CountShards, Shard
from dplda.document._contributions import Documents
from dplda.document._dask import DaskEngine


@dataclass(frozen=True)
class Lane:
    """Consecutive shards in one fit, which a task visits one after the other. Private.

    Methods are pure functions of the files and of their arguments: they may be called
    again, in any process. `theta` and `scale` hold those of `Documents`, an array for
    each shard, or are None.
    """

    fit: str  # random digits
    shards: Sequence[Shard]
    n_components: int
    n_jobs: int | None

    def n_empty(self) -> int:
        """The number of documents without a word."""
        return sum(_check(self.fit, shard, shard.state()) for shard in self.shards)

    def results(self, combine: Callable[[Iterable[Any]], Any], *visit: Any) -> Any:
        """The results of a visit of each shard, combined."""
        return combine(self._visit(i, *visit) for i in range(len(self.shards)))

    def _visit(
        self, i: int, theta: Any, scale: Any, kept: str | None, own: Any, *calls: Any
    ) -> Any:
        """Call methods of `Documents` on shard i.

        Returns the attribute `kept`, or what the last one returns.

        Of `calls` there are a name and options, once or twice. `own` has options of
        each shard.
        """
        shard, options = self.shards[i], {} if own is None else dict(own[i])
        # Each process checks the files that it reads, and again when they change: a
        # kernel must not meet words that were never checked.
        _check(self.fit, shard, shard.state())
        before = None if theta is None else theta[i].copy()
        documents = Documents(*shard.read(), self.n_components, self.n_jobs, before)
        if scale is not None:
            documents.scale = scale[i]
        if "units" in options and options["units"] is None:
            options["units"] = np.arange(documents.n_units)
        for method, message in zip(calls[::2], calls[1::2]):
            result = getattr(documents, method)(**message, **options)
        return getattr(documents, kept) if kept else result


@lru_cache(maxsize=2**16)
def _check(fit: str, shard: Shard, state: tuple[int, ...]) -> int:
    """Check a file in a state, once in a fit.

    What changes meanwhile has another state.
    """
    return shard.check()


class InProcess:
    """Calls functions at once.

    Whatever runs the tasks of a fit, here or on other machines, has these members. An
    argument of a task may be what `submit` returned for an earlier one, and stands for
    its result. A task may be repeated. `gather` yields each result once, in order.
    """

    # at a time. One shard each: results are added one after the other
    n_tasks: float = math.inf

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Begin a task."""
        return function(*arguments)

    def gather(self, tasks: Iterable[Any]) -> Iterable[Any]:
        """The results of tasks."""
        return tasks


class ShardedDocuments(Documents):
    """Private documents in shards, in training: each method asks all shards."""

    def __init__(self, X: CountShards, n_components: int, n_jobs: int | None) -> None:
        self.n_words, self._corpus = X.shape[1], X
        self._edges = np.cumsum([0, *(shard.n_units for shard in X.shards)])
        self.n_units = int(self._edges[-1])
        self._engine: Any = InProcess() if X.engine is None else X.engine
        if type(X.engine).__module__.partition(".")[0] == "distributed":
            self._engine = DaskEngine(X.engine)
        n_lanes, fit = int(min(len(X.shards), self._engine.n_tasks)), uuid.uuid4().hex
        self._cuts = np.linspace(0, len(X.shards), n_lanes + 1).astype(int).tolist()
        # results of tasks, which stay where they are: lanes, and for each of them
        # `theta`, `scale`
        self._lanes = [
            self._engine.submit(Lane, fit, X.shards[begin:end], n_components, n_jobs)
            for begin, end in pairwise(self._cuts)
        ]
        self._theta, self._scale = [None] * n_lanes, [None] * n_lanes
        # a call of `Documents` before that of `sum_topics`
        self._before: tuple[Any, ...] = ()
        n_empty = (self._engine.submit(Lane.n_empty, lane) for lane in self._lanes)
        # an error here cancels the charge: nothing is released yet
        warn_of_empty_rows(sum(self._engine.gather(n_empty)), X.shape[0])

    def rescale(self, weight: np.ndarray, norm: float, *, exact: bool) -> None:
        if not exact:
            options = {"weight": weight, "norm": norm, "exact": exact}
            self._scale = [*self._visits(list, "scale", None, "rescale", options)]

    def share_of(self, words: np.ndarray) -> np.ndarray:
        return self._results(_joined, None, "share_of", {"words": words})

    def close(self) -> None:
        vars(self).clear()  # a cluster computes no more, and forgets

    def longest(self) -> float:
        return self._results(max, None, "longest", {})

    def matrices(self) -> Iterator[sp.csr_array]:
        # this process reads them, whatever the engine: who reads the next one needs the
        # result
        return iter(self._corpus)

    def sum_words(self, units: np.ndarray | None = None, **options: Any) -> np.ndarray:
        own = None if units is None else self._own(units)
        return self._results(_total, own, "sum_words", options)

    def infer(
        self, units: np.ndarray, phi: np.ndarray, doc_topic_prior: float, **options: Any
    ) -> None:
        # tempered in place
        options |= {"phi": phi.copy(), "doc_topic_prior": doc_topic_prior}
        # in the visit that sums: topic weights of one shard are enough
        if options.get("anew"):
            self._before = "infer", options
            return
        visits = self._visits(list, "theta", self._own(units), "infer", options)
        for i, theta in enumerate(visits):
            # at once: the old and the new one are there for one lane only
            self._theta[i] = theta

    def infer_fully(
        self, units: np.ndarray, factor: np.ndarray, doc_topic_prior: float
    ) -> None:
        options = {"factor": factor.copy(), "doc_topic_prior": doc_topic_prior}
        self._before = "infer_fully", options

    def sum_topics(
        self, units: np.ndarray, *, upweight: np.ndarray | None = None, **options: Any
    ) -> np.ndarray:
        own, before, self._before = self._own(units, upweight), self._before, ()
        return self._results(_total, own, *before, "sum_topics", options)

    def _results(self, combine: Any, own: Any, *calls: Any) -> Any:
        return combine(self._engine.gather(self._visits(combine, None, own, *calls)))

    def _visits(
        self, combine: Any, kept: str | None, own: Any, *calls: Any
    ) -> Iterator[Any]:
        """A task for each lane.

        The options of `calls` travel once, `own` has those of shards.
        """
        calls = tuple(
            self._engine.submit(dict, each) if isinstance(each, dict) else each
            for each in calls
        )
        for i, (begin, end) in enumerate(pairwise(self._cuts)):
            yield self._engine.submit(
                Lane.results,
                self._lanes[i],
                combine,
                self._theta[i],
                self._scale[i],
                kept,
                None if own is None else own[begin:end],
                *calls,
            )

    def _own(
        self, units: np.ndarray, upweight: np.ndarray | None = None
    ) -> list[dict[str, Any]]:
        """For each shard its units among `units`, from its first, and their weights."""
        cuts = np.searchsorted(units, self._edges)
        own: list[dict[str, Any]] = []
        for i, (begin, end) in enumerate(pairwise(self._edges)):
            rows = units[cuts[i] : cuts[i + 1]] - begin
            # None: all
            own.append({"units": None if len(rows) == end - begin else rows})
            if upweight is not None and (upweight != 1).any():
                own[i]["upweight"] = upweight[begin:end]
        return own


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([*parts])


def _total(parts: Iterable[np.ndarray]) -> np.ndarray:
    return reduce(lambda total, part: np.add(total, part, out=total), parts)
