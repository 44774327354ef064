"""The private side of a fit in shards: the twin of `Documents` for corpora larger than the memory.

The documents of a shard are a `Documents` of their own, made when the shard is visited and dropped
afterwards. Integer sums have no order. A document stands in one shard, and the result of a shard
enters a sum once. The sums are therefore those of one `Documents` with all rows, to the last bit.

Noise, samples and charges stay with the curator. ``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import warn_of_empty_rows
from dplda.datasets._shards import CountShards
from dplda.document._contributions import Documents, PrivateSide
from dplda.document._dask import DaskEngine
from dplda.document._shard_visits import InProcess, Part, Scaling, ShardWorker, Step


class ShardedDocuments(PrivateSide):
    """Private documents in shards, in training. Each document is a unit."""

    def __init__(
        self, X: CountShards, n_components: int, n_jobs: int | None, keep_weights: bool
    ) -> None:
        self._shape, self._shards = X.shape, X.shards
        self._edges = np.cumsum([0, *(shard.shape[0] for shard in X.shards)])
        self._inference: tuple[Any, ...] | None = None
        self._n_steps = 0
        self._scaling: Scaling | None = None
        self._engine = engine_of(X)
        # processes that may be lost lose topic weights: these are inferred from scratch then
        keep_weights = keep_weights and self._engine.keeps_weights
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

    def matrices(self) -> Iterator[sp.csr_array]:
        """The word counts of each shard, in order. Private: for fits without noise.

        This process reads them, whatever the engine: who reads the next one needs the result.
        """
        for shard in self._shards:
            shard.check()  # a kernel must not meet words that were never checked
            yield shard.counts()

    def sum_words(
        self, weight: np.ndarray, norm: float, radius: int, units: np.ndarray | None = None
    ) -> np.ndarray:
        """Integer word totals (n_words,) of `units` (None: all), each of norm at most `radius`."""
        parts = None if units is None else [(rows,) for rows, _ in self._parts(units, None)]
        return self._engine.sum("sum_words", (self._scaling, weight, norm, radius), parts)

    def infer(
        self,
        units: np.ndarray,
        phi: np.ndarray,
        doc_topic_prior: float,
        own: tuple[np.ndarray, float] | None = None,
    ) -> None:
        """Note the inference of `sum_topics`, which does both in one visit of each shard."""
        self._note("infer", phi, doc_topic_prior, own)

    def infer_anew(self, units: np.ndarray, factor: np.ndarray, doc_topic_prior: float) -> None:
        """Note the inference of `sum_topics`, which does both in one visit of each shard."""
        self._note("infer_anew", factor, doc_topic_prior)

    def infer_in_steps(self, units: np.ndarray, factor: np.ndarray, doc_topic_prior: float) -> None:
        """Note the inference of `sum_topics`, which does both in one visit of each shard."""
        self._note("infer_in_steps", factor, doc_topic_prior)

    def _note(self, method: str, table: np.ndarray, *options: Any) -> None:
        # a copy: the caller tempers its table in place before the sum
        self._inference = (method, table.copy(), *options)

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
            everybody = len(rows) == end - begin  # then no list of rows travels
            parts.append(
                (None if everybody else rows, None if upweight is None else upweight[begin:end])
            )
        return parts


def engine_of(X: CountShards) -> Any:
    """The engine that visits the shards: that of `CountShards.on`, or this process."""
    if X.engine is None:
        return InProcess()
    if type(X.engine).__module__.partition(".")[0] == "distributed":
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
    if not issubclass(type(X), CountShards):
        return Documents.from_counts(X, n_components, n_jobs, users, keep_weights)
    documents = ShardedDocuments(X, n_components, n_jobs, keep_weights)
    warn_of_empty_rows(documents.n_empty, documents.n_units)
    return documents


def refuse_in_shards(X: Any, **options: Any) -> None:
    """Raise an error if shards come with an option that needs all rows at once."""
    given = [name for name, value in options.items() if value is not None]
    if issubclass(type(X), CountShards) and given:  # touches nothing of X, unlike isinstance
        raise ValueError(
            f"{given[0]} needs all rows at once, and a CountShards gives them shard by shard; "
            f"{_INSTEAD[given[0]]}"
        )


_INSTEAD = {
    "user_ids": "merge the rows of each user before write_shards, which protects users as well",
}
