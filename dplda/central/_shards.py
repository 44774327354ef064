"""The private side of a fit in shards: the twin of `Documents` for corpora larger than the memory.

The documents of a shard are a `Documents` of their own, made when the shard is visited and dropped
afterwards. Integer sums have no order. A document stands in one shard, and the result of a shard
enters a sum once. The sums are therefore those of one `Documents` with all rows, to the last bit.

An engine visits the shards. It sees public messages, and sums without noise, which are private. It
holds no key and draws nothing. Noise, samples and charges stay with the curator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import iadd
from typing import Any, Protocol

import numpy as np

from dplda._corpus import warn_of_empty_rows
from dplda._fold_in import pad, uniform_theta
from dplda.central._documents import Documents, PrivateSide
from dplda.datasets._shards import CountShards, Shard

Part = tuple[Any, ...]  # of a message, for one shard


@dataclass(frozen=True)
class Scaling:
    """How documents are scaled: public values. `number` counts the scalings of a fit."""

    number: int
    weight: np.ndarray
    norm: float


@dataclass(frozen=True)
class Step:
    """What all documents of a round need: public values.

    `inference` is the method of `Documents` that comes before the sum, with its table and prior.
    """

    number: int
    inference: tuple[str, np.ndarray, float]
    factor: np.ndarray
    center: np.ndarray
    weight: np.ndarray
    norm: float
    radius: int


@dataclass
class ShardWorker:
    """One shard in one fit: its files, and the state of its documents. Private.

    The state is a function of the documents and of public messages. A worker that repeats a call
    returns the same bits, because `n_steps` says which step its topic weights have seen. Without
    `keep_weights` there are none: they are inferred from scratch in each step.
    """

    shard: Shard
    n_components: int
    n_jobs: int | None
    keep_weights: bool
    scaled: tuple[int, np.ndarray] | None = (
        None  # number of the scaling, and scale of each document
    )
    theta: np.ndarray | None = None
    n_steps: int = 0

    def check(self) -> int:
        """Check the files; return the number of documents without a word."""
        return self.shard.check()

    def longest_square(self) -> np.floating:
        """Largest squared length of a document."""
        return self._documents().longest_square()

    def share_of(self, words: np.ndarray) -> np.ndarray:
        """Share of the tokens of each document that are in the mask `words`."""
        return self._documents().share_of(words)

    def sum_words(
        self, scaling: Scaling | None, weight: np.ndarray, norm: float, radius: int
    ) -> np.ndarray:
        """Integer word totals of the shard."""
        return self._documents(scaling).sum_words(weight, norm, radius)

    def sum_topics(
        self, scaling: Scaling | None, step: Step, rows: np.ndarray, upweight: np.ndarray | None
    ) -> np.ndarray:
        """Infer the topic weights of `rows`, and return the sum of their contributions."""
        documents = self._documents(scaling)
        method, table, prior = step.inference
        if not self.keep_weights:
            getattr(documents, method)(rows, table, prior)
        elif self.n_steps < step.number:
            if self.n_steps != step.number - 1:
                raise RuntimeError(f"shard {self.shard.name} did not see the round before")
            getattr(documents, method)(rows, table, prior)
            self.theta, self.n_steps = documents.theta, step.number
        return documents.sum_topics(
            rows, step.factor, step.center,
            weight=step.weight, norm=step.norm, radius=step.radius, upweight=upweight,
        )  # fmt: skip

    def _documents(self, scaling: Scaling | None = None) -> Documents:
        n_docs = self.shard.shape[0]
        theta, scaled = self.theta, self.scaled
        if theta is None:
            padded = pad(np.zeros((0, self.n_components))).shape[1]
            theta = uniform_theta(n_docs, self.n_components, padded)
        documents = Documents(
            self.shard.counts(), theta, np.arange(n_docs + 1, dtype=np.int64), np.ones(n_docs),
            self.n_components, self.n_jobs, self.keep_weights,
        )  # fmt: skip
        if scaling is None:
            return documents
        if scaled is None or scaled[0] != scaling.number:
            documents.rescale(scaling.weight, scaling.norm, exact=False)
            self.scaled = scaled = scaling.number, documents.scale
        documents.scale = scaled[1]
        return documents


class Engine(Protocol):
    """What visits the shards of a fit, here or on other machines: three calls.

    A method of `ShardWorker` is named by `method`. It gets `message`, and after it the part of the
    shard in `parts`, if there are any. A visit may be repeated: with the same worker, or with a
    fresh one unless `keeps_weights`.
    """

    keeps_weights: bool  # whether a shard meets the same worker in every round

    def start(self, workers: Sequence[ShardWorker]) -> None:
        """Begin a fit with fresh workers, one for each shard."""

    def gather(self, method: str, message: Part) -> list[Any]:
        """The result of each shard, in order."""

    def sum(self, method: str, message: Part, parts: Sequence[Part] | None = None) -> np.ndarray:
        """The sum of the integer arrays that the shards return, each shard exactly once."""


class InProcess:
    """Visits one shard after the other."""

    keeps_weights = True

    def start(self, workers: Sequence[ShardWorker]) -> None:
        """Begin a fit."""
        self._workers = workers

    def gather(self, method: str, message: Part) -> list[Any]:
        """The result of each shard, in order."""
        return list(self._visits(method, message, None))

    def sum(self, method: str, message: Part, parts: Sequence[Part] | None = None) -> np.ndarray:
        """The sum of what the shards return."""
        return reduce(iadd, self._visits(method, message, parts))

    def _visits(self, method: str, message: Part, parts: Sequence[Part] | None) -> Iterable[Any]:
        own = parts or [()] * len(self._workers)
        return (getattr(w, method)(*message, *part) for w, part in zip(self._workers, own))


class ShardedDocuments(PrivateSide):
    """Private documents in shards, in training. Each document is a unit."""

    def __init__(
        self, X: CountShards, n_components: int, n_jobs: int | None, keep_weights: bool
    ) -> None:
        self._shape = X.shape
        self._edges = np.cumsum([0, *(shard.shape[0] for shard in X.shards)])
        self._inference: tuple[str, np.ndarray, float] | None = None
        self._n_steps = 0
        self._scaling: Scaling | None = None
        self._engine: Engine = engine_of(X)
        if keep_weights and not self._engine.keeps_weights:
            raise ValueError(
                "the shards are visited by processes that may be lost, and topic weights with "
                "them; set keep_weights=False, which infers them from scratch in each round"
            )
        self._engine.start(
            [ShardWorker(shard, n_components, n_jobs, keep_weights) for shard in X.shards]
        )
        # an error here cancels the charge: nothing is released yet
        self.n_empty = sum(self._engine.gather("check", ()))

    @property
    def n_units(self) -> int:
        """Number of documents. Private."""
        return self._shape[0]

    @property
    def n_words(self) -> int:
        """Size of the vocabulary."""
        return self._shape[1]

    def rescale(self, weight: np.ndarray, norm: float, *, exact: bool) -> None:
        """Scale each document to norm `norm` at most. Without noise (`exact`) none is scaled."""
        if not exact:
            number = 1 if self._scaling is None else self._scaling.number + 1
            self._scaling = Scaling(number, weight, norm)

    def share_of(self, words: np.ndarray) -> np.ndarray:
        """Share of the tokens of each document (n_docs,) that are in the mask `words`."""
        return np.concatenate(self._engine.gather("share_of", (words,)))

    def longest_square(self) -> np.floating:
        """Largest squared length of a document. Private: for fits without noise."""
        return max(self._engine.gather("longest_square", ()))

    def sum_words(self, weight: np.ndarray, norm: float, radius: int) -> np.ndarray:
        """Integer word totals (n_words,), each document's share of L2 norm at most `radius`."""
        return self._engine.sum("sum_words", (self._scaling, weight, norm, radius))

    def infer(self, units: np.ndarray, phi: np.ndarray, doc_topic_prior: float) -> None:
        """Note the inference of `sum_topics`, which does both in one visit of each shard."""
        self._note("infer", phi, doc_topic_prior)

    def infer_anew(self, units: np.ndarray, factor: np.ndarray, doc_topic_prior: float) -> None:
        """Note the inference of `sum_topics`, which does both in one visit of each shard."""
        self._note("infer_anew", factor, doc_topic_prior)

    def _note(self, method: str, table: np.ndarray, prior: float) -> None:
        # a copy: the caller tempers its table in place before the sum
        self._inference = (method, table.copy(), prior)

    def sum_topics(
        self,
        units: np.ndarray,
        factor: np.ndarray,
        center: np.ndarray,
        *,
        weight: np.ndarray,
        norm: float,
        radius: int,
        upweight: np.ndarray | None = None,
    ) -> np.ndarray:
        """Integer sum over `units`, increasing rows, of their contributions.

        Their topic weights are inferred first, as noted by the call before.
        """
        assert self._inference is not None
        self._n_steps += 1
        step = Step(self._n_steps, self._inference, factor, center, weight, norm, radius)
        self._inference = None
        return self._engine.sum(
            "sum_topics", (self._scaling, step), self._parts(units, upweight)
        )  # fmt: skip

    def _parts(self, units: np.ndarray, upweight: np.ndarray | None) -> list[Part]:
        """For each shard its rows among `units`, counted from its first one, and their weights."""
        cuts = np.searchsorted(units, self._edges)
        parts = []
        for i, (begin, end) in enumerate(zip(self._edges, self._edges[1:])):
            rows = units[cuts[i] : cuts[i + 1]] - begin
            parts.append((rows, None if upweight is None else upweight[begin:end]))
        return parts


def engine_of(X: CountShards) -> Engine:
    """The engine that visits the shards: that of `CountShards.on`, or this process."""
    if X.engine is None:
        return InProcess()
    if type(X.engine).__module__.partition(".")[0] == "distributed":
        from dplda.central._dask import DaskEngine

        return DaskEngine(X.engine)
    return X.engine


def documents_of(
    X: Any,
    n_components: int,
    n_jobs: int | None,
    users: np.ndarray | None = None,
    *,
    keep_weights: bool,
) -> PrivateSide:
    """The documents of a matrix or of shards, in training.

    Raises
    ------
    ValueError
        If a shard is damaged.
    """
    if not isinstance(X, CountShards):
        return Documents.from_counts(X, n_components, n_jobs, users, keep_weights)
    documents = ShardedDocuments(X, n_components, n_jobs, keep_weights)
    warn_of_empty_rows(documents.n_empty, documents.n_units)
    return documents


def refuse_in_shards(X: Any, **options: Any) -> None:
    """Raise an error if shards come with an option that needs all rows at once."""
    given = [name for name, value in options.items() if value is not None]
    if isinstance(X, CountShards) and given:
        raise ValueError(
            f"{given[0]} needs all rows at once, and a CountShards gives them shard by shard; "
            f"{_INSTEAD[given[0]]}"
        )


_INSTEAD = {
    "user_ids": "merge the rows of each user before write_shards, which protects users as well",
    "max_doc_tokens": "shorten the documents before write_shards, or leave it out: the clipping "
    "bound limits what a document contributes with or without it",
}
