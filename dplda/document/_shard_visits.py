"""Visits of shards: what a process that visits a shard does, and what asks it to.

A visit makes a `Documents` of the rows of the shard, and drops it afterwards. Whoever visits sees
public messages, and sums without noise, which are private. It holds no key and draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import iadd
from typing import Any

import numpy as np

from dplda.core._fold_in import pad, uniform_theta
from dplda.datasets._shards import Shard
from dplda.document._contributions import Documents

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

    `inference` is the method of `Documents` that comes before the sum, with its arguments.
    """

    number: int
    inference: tuple[Any, ...]
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
    checked: tuple[Any, int] | None = None  # state of the files when they were checked, and result

    def check(self) -> int:
        """Check the files, unless they are as before; return the number of empty documents.

        Each visit calls it. A shard that moves to another worker may have other files there, and a
        kernel must not meet words that were never checked.
        """
        state = self.shard.state()  # before the check: what changes during it is checked again
        if self.checked is None or self.checked[0] != state:
            self.checked = state, self.shard.check()
        return self.checked[1]

    def longest_square(self) -> np.floating:
        """Largest squared length of a document."""
        return self._documents().longest_square()

    def share_of(self, words: np.ndarray) -> np.ndarray:
        """Share of the tokens of each document that are in the mask `words`."""
        return self._documents().share_of(words)

    def sum_words(
        self,
        scaling: Scaling | None,
        weight: np.ndarray,
        norm: float,
        radius: int,
        rows: np.ndarray | None = None,
        *,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Integer word totals of `rows` of the shard; None: of all. Added to `out` if given."""
        totals = self._documents(scaling).sum_words(weight, norm, radius, rows)
        return totals if out is None else iadd(out, totals)

    def sum_topics(
        self,
        scaling: Scaling | None,
        step: Step,
        rows: np.ndarray | None,
        upweight: np.ndarray | None,
        *,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Infer the topic weights of `rows` (None: all), and return the sum of contributions.

        Added to `out` if given.
        """
        documents = self._documents(scaling)
        rows = np.arange(documents.n_units) if rows is None else rows
        method, *arguments = step.inference
        if not self.keep_weights:
            getattr(documents, method)(rows, *arguments)
        elif self.n_steps < step.number:
            if self.n_steps != step.number - 1:
                raise RuntimeError(f"shard {self.shard.name} did not see the round before")
            getattr(documents, method)(rows, *arguments)
            self.theta, self.n_steps = documents.theta, step.number
        return documents.sum_topics(
            rows, step.factor, step.center,
            weight=step.weight, norm=step.norm, radius=step.radius, upweight=upweight, out=out,
        )  # fmt: skip

    def _documents(self, scaling: Scaling | None = None) -> Documents:
        self.check()
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


def summed(
    visits: Iterable[tuple[ShardWorker, Part]], method: str, message: Part
) -> np.ndarray | None:
    """The sum of what some shards return. They add to one array: no shard makes a table."""
    total = None
    for worker, part in visits:
        total = getattr(worker, method)(*message, *part, out=total)
    return total


class InProcess:
    """Visits one shard after the other.

    Whatever visits the shards of a fit, here or on other machines, has these methods. `method`
    names a method of `ShardWorker`. It gets `message`, and after it the part of the shard in
    `parts`, if there are any. A visit may be repeated: with the same worker, or with a fresh one
    unless `keeps_weights`. Each shard enters a sum exactly once.
    """

    keeps_weights = True  # whether a shard meets the same worker in every round

    def start(self, workers: Sequence[ShardWorker]) -> None:
        """Begin a fit with fresh workers, one for each shard."""
        self._workers = workers

    def gather(self, method: str, message: Part) -> list[Any]:
        """The result of each shard, in order."""
        return [getattr(worker, method)(*message) for worker in self._workers]

    def sum(self, method: str, message: Part, parts: Sequence[Part] | None = None) -> Any:
        """The sum of the integer arrays that the shards return."""
        own = parts or [()] * len(self._workers)
        return summed(zip(self._workers, own), method, message)
