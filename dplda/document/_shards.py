"""Corpora larger than the memory: documents in shards, which are visited one after the other.

A visit makes a `Documents` of the rows of a shard, and drops it afterwards. Integer sums have no
order, a unit stands in one shard, and the result of a shard enters a sum once. The sums are
therefore those of one `Documents` with all rows, to the last bit.

Whoever visits sees public messages, and sums without noise, which are private. Noise, samples and
charges stay with the curator. ``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import warn_of_empty_rows
from dplda.datasets._shards import CountShards, Shard
from dplda.document._contributions import Documents
from dplda.document._dask import DaskEngine

Inference: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Scaling:
    """How units are scaled: public values. `number` counts the scalings of a fit."""

    number: int
    weight: np.ndarray
    norm: float


@dataclass(frozen=True)
class Step:
    """What all shards need for a sum: public values.

    `method` is that of `Documents` which sums, with its options. `inference` is the one that comes
    before it, with its arguments and options; None: none does. `number` counts those that begin
    with the topic weights of the step before; 0: this one does not.
    """

    method: str
    options: dict[str, Any]
    scaling: Scaling | None
    number: int = 0
    inference: Inference | None = None


@dataclass
class ShardWorker:
    """One shard in one fit: its file, and the state of its units. Private.

    The state is a function of the documents and of public messages. A visit reads it and changes
    it: the next visit of the shard needs this object, or a copy. A visit that is repeated returns
    the same bits, because `n_steps` says which step the topic weights have seen.
    """

    shard: Shard
    n_components: int
    n_jobs: int | None
    theta: np.ndarray | None = None
    n_steps: int = 0
    scaled: tuple[int, np.ndarray] | None = None  # number of the scaling, and scale of each unit
    checked: tuple[Any, int] | None = None  # state of the file when it was checked, and result

    def check(self) -> int:
        """Check the file, unless it is as before; return the number of empty documents.

        Each visit calls it. A shard that moves to another machine may have another file there, and
        a kernel must not meet words that were never checked.
        """
        state = self.shard.state()  # before the check: what changes during it is checked again
        if self.checked is None or self.checked[0] != state:
            self.checked = state, self.shard.check()
        return self.checked[1]

    def ask(self, method: str, *arguments: Any) -> Any:
        """The result of a method of `Documents`, which reads counts alone."""
        return getattr(self._documents(), method)(*arguments)

    def sum(
        self,
        step: Step,
        units: np.ndarray | None = None,
        upweight: np.ndarray | None = None,
        *,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Infer the topic weights of `units` (None: all), and sum. Added to `out` if given."""
        documents, options = self._documents(step.scaling), step.options
        units = np.arange(documents.n_units) if units is None else units
        if step.inference is not None:
            options = options | {"upweight": upweight}
            if not 0 < step.number == self.n_steps:
                self._infer(documents, step.number, step.inference, units)
        total: np.ndarray = getattr(documents, step.method)(units, **options, out=out)
        return total

    def catch_up(self, past: Sequence[tuple[Inference, np.ndarray | None]]) -> None:
        """Infer what a lost worker of this shard had inferred: all earlier steps, in their order.

        `past` holds the inference of each step, and the units that took part (None: all).
        """
        for number, (inference, units) in enumerate(past[self.n_steps :], start=self.n_steps + 1):
            documents = self._documents()
            units = np.arange(documents.n_units) if units is None else units
            self._infer(documents, number, inference, units)

    def _infer(
        self, documents: Documents, number: int, inference: Inference, units: np.ndarray
    ) -> None:
        method, arguments, options = inference
        if number and self.n_steps != number - 1:
            raise RuntimeError(f"shard {self.shard.path} did not see the round before")
        getattr(documents, method)(units, *arguments, **options)
        if number:
            self.theta, self.n_steps = documents.theta, number

    def _documents(self, scaling: Scaling | None = None) -> Documents:
        self.check()
        documents = Documents(
            self.shard.counts(), self.shard.unit_ptr(), self.n_components, self.n_jobs, self.theta
        )
        if scaling is None:
            return documents
        if self.scaled is None or self.scaled[0] != scaling.number:
            documents.rescale(scaling.weight, scaling.norm, exact=False)
            self.scaled = scaling.number, documents.scale
        documents.scale = self.scaled[1]
        return documents


class InProcess:
    """Visits one shard after the other.

    Whatever visits the shards of a fit, here or on other machines, has these methods. `method`
    names a method of `ShardWorker`. It gets `message`, and after it the part of the shard in
    `parts`, if there are any. The next visit of a shard gets the worker as the last one left it. A
    visit may be repeated. Each shard enters a sum exactly once.
    """

    def start(self, workers: Sequence[ShardWorker]) -> None:
        """Begin a fit with fresh workers, one for each shard."""
        self._workers = workers

    def gather(self, method: str, message: tuple[Any, ...]) -> list[Any]:
        """The result of each shard, in order."""
        return [getattr(worker, method)(*message) for worker in self._workers]

    def sum(self, method: str, message: tuple[Any, ...], parts: Any = None) -> Any:
        """The sum of the integer arrays that the shards return."""
        total = None
        for worker, part in zip(self._workers, parts or [()] * len(self._workers)):
            total = getattr(worker, method)(*message, *part, out=total)
        return total


class ShardedDocuments(Documents):
    """Private documents in shards, in training: each method asks all shards."""

    def __init__(self, X: CountShards, n_components: int, n_jobs: int | None) -> None:
        self.n_words, self._shards = X.shape[1], X.shards
        self._edges = np.cumsum([0, *(shard.n_units for shard in X.shards)])
        self.n_units = int(self._edges[-1])
        self._n_steps = 0
        self._scaling: Scaling | None = None
        self._engine: Any = InProcess() if X.engine is None else X.engine
        if type(X.engine).__module__.partition(".")[0] == "distributed":
            self._engine = DaskEngine(X.engine)
        self._engine.start([ShardWorker(shard, n_components, n_jobs) for shard in X.shards])
        # an error here cancels the charge: nothing is released yet
        warn_of_empty_rows(sum(self._engine.gather("check", ())), X.shape[0])

    def rescale(self, weight: np.ndarray, norm: float, *, exact: bool) -> None:
        if not exact:
            number = 1 if self._scaling is None else self._scaling.number + 1
            self._scaling = Scaling(number, weight, norm)

    def share_of(self, words: np.ndarray) -> np.ndarray:
        return np.concatenate(self._engine.gather("ask", ("share_of", words)))

    def longest(self) -> float:
        return max(self._engine.gather("ask", ("longest",)))

    def matrices(self) -> Iterator[sp.csr_array]:
        # this process reads them, whatever the engine: who reads the next one needs the result
        for shard in self._shards:
            shard.check()  # a kernel must not meet words that were never checked
            yield shard.counts()

    def sum_words(self, units: np.ndarray | None = None, **options: Any) -> np.ndarray:
        parts = None if units is None else self._parts(units, None)
        return self._engine.sum("sum", (Step("sum_words", options, self._scaling),), parts)

    def infer(
        self, units: np.ndarray, phi: np.ndarray, doc_topic_prior: float, **options: Any
    ) -> None:
        # noted for `sum_topics`, which does both in one visit of each shard; a copy, because the
        # caller tempers its table in place before the sum
        self._n_steps += not options.get("anew")
        number = 0 if options.get("anew") else self._n_steps
        self._inference = number, ("infer", (phi.copy(), doc_topic_prior), options)

    def infer_fully(self, units: np.ndarray, factor: np.ndarray, doc_topic_prior: float) -> None:
        self._inference = 0, ("infer_fully", (factor.copy(), doc_topic_prior), {})

    def sum_topics(
        self, units: np.ndarray, *, upweight: np.ndarray | None = None, **options: Any
    ) -> np.ndarray:
        step = Step("sum_topics", options, self._scaling, *self._inference)
        return self._engine.sum("sum", (step,), self._parts(units, upweight))

    def _parts(self, units: np.ndarray, upweight: np.ndarray | None) -> list[tuple[Any, Any]]:
        """For each shard its units among `units`, counted from its first, and their weights."""
        cuts = np.searchsorted(units, self._edges)
        parts = []
        for i, (begin, end) in enumerate(zip(self._edges, self._edges[1:])):
            rows = units[cuts[i] : cuts[i + 1]] - begin
            everybody = len(rows) == end - begin  # then no list of rows travels
            parts.append(
                (None if everybody else rows, None if upweight is None else upweight[begin:end])
            )
        return parts
