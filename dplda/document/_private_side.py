"""The interface between a fit and its private documents.

A fit reaches its documents through `PrivateSide` only. They are in memory (`Documents`)
or in shards (`ShardedDocuments`). An `Engine` visits the shards, in this process or on
other machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from dplda.core._fold_in import OwnCounts, Steps

# Accelerated steps of the inference in a round, from the weights of the last round. In
# the rounds of test, which begin from equal weights, 15 steps show no more topics than
# 5, and 3 show fewer (record 38).
INNER_STEPS = Steps(5, 0.01)
# The same in rounds of topics that begin from equal weights. 5: perplexity +2 to +3% on
# KOS (record 15).
STEPS_ANEW = Steps(15, 0.01)


class RoundInference(NamedTuple):
    """How a round infers the topic weights of documents; public."""

    # p(word | topic), or exp(E[log beta]) by the E-step, (n_words, padded) float32
    table: np.ndarray
    doc_topic_prior: float
    anew: bool  # from equal weights; else from the weights of the last round
    steps: Steps = INNER_STEPS
    # With them, a document leaves out of the table what it has added itself.
    own: OwnCounts | None = None
    by_e_step: bool = False  # by the E-step of variational Bayes, from equal weights


class RoundTables(NamedTuple):
    """The tables from which units compute their contributions to a round; public."""

    # None: topic weights do not change in this round
    inference: RoundInference | None
    factor: np.ndarray  # tempered p(word | topic), by `in_16_bits`
    center: np.ndarray  # p(topic | word), by `in_16_bits` with 1 as 32767
    weight: np.ndarray  # word weights, (n_words,)
    norm: float  # clipping bound of a contribution, in L2
    radius: int  # the clipping bound on the integer grid


class Halves(NamedTuple):
    """The tables of a round that tests the topics; public."""

    first: np.ndarray  # mask of the words of the first half, (n_words,)
    inference: RoundInference  # of topic weights from one half, anew
    shares: np.ndarray  # share of each topic of all tokens, (n_components,) float32
    bound: float  # largest L2 distance of topic weights from the shares
    factor: np.ndarray  # ones, by `in_16_bits`
    center: np.ndarray  # `shares` for each word, by `in_16_bits` with 1 as 32767
    weight: np.ndarray  # word weights, (n_words,)
    norm: float  # clipping bound of the word counts of a unit, in L2
    radius: int  # bound * norm on the integer grid

    @property
    def tables(self) -> RoundTables:
        """The tables of the sum, once the topic weights are known."""
        norm = self.bound * self.norm
        return RoundTables(
            None, self.factor, self.center, self.weight, norm, self.radius
        )


class PrivateSide(Protocol):
    """The private units of a fit.

    A unit is one document, or all documents of one user. Every result is private. The
    curator adds noise to the integer sums and releases them. `longest` and `matrices`
    are for fits without noise.

    The state between rounds is the scale of each unit and the topic weights of its
    documents. It is a function of this unit and of past releases.
    """

    n_words: int  # size of the vocabulary, public

    @property
    def n_units(self) -> int:
        """Number of units; private."""

    def rescale(self, weight: np.ndarray, norm: float) -> None:
        """Set the scale of each unit, which all later sums use.

        The scale brings the unit's word counts, times `weight`, to the L2 norm `norm`.
        """

    def sum_words(
        self, units: np.ndarray | None, *, weight: np.ndarray, norm: float, radius: int
    ) -> np.ndarray:
        """Word totals (n_words,) of `units` (None: of all) on the integer grid.

        A unit contributes its word counts times its scale and `weight`, clipped to the
        L2 norm `norm`, which is `radius` on the integer grid.
        """

    def count_documents(self, most: int) -> np.ndarray:
        """Numbers of documents and of units that have words, (2,).

        At most `most` documents of a unit count.
        """

    def sum_topics(
        self, units: np.ndarray, tables: RoundTables, upweight: np.ndarray | None = None
    ) -> np.ndarray:
        """Infer topic weights of `units`, and sum their centered word-topic counts.

        The sum is (n_words, n_components), on the integer grid. Unit u contributes the
        sum over its documents d of s_u w_v x_dv (r_dvk - center_vk), where r_dvk is
        theta_dk factor_vk, divided by its sum over k. The contribution is clipped to
        the L2 norm `tables.norm`, which is `tables.radius` on the grid. s_u is the
        unit's scale, times `upweight` (n_units,) if given.
        """

    def sum_halves(
        self, units: np.ndarray, halves: Halves, upweight: np.ndarray | None = None
    ) -> np.ndarray:
        """Sum word counts of one half times topic weights inferred from the other half.

        The sum is (n_words, n_components), on the integer grid. Unit u contributes the
        sum over its documents d of s_u w_v x_dv (theta_dk - shares_k), clipped as in
        `sum_topics`. theta_dk is inferred from the words of d in the other half than v.
        It is moved toward the shares until its distance is at most `halves.bound`, so
        that no clip of theta depends on the half of v.
        """

    def share_of(self, words: np.ndarray) -> np.ndarray:
        """Share of each unit's tokens (n_units,) in the mask `words` (n_words,)."""

    def longest(self) -> float:
        """L2 norm of the word counts of the longest unit, for fits without noise."""

    def matrices(self) -> Iterator[sp.csr_array]:
        """The word counts of all documents, in order, for fits without noise."""

    def close(self) -> None:
        """Forget the state of the training, in all processes that hold a part of it."""


@runtime_checkable
class Engine(Protocol):
    """Runs the tasks of a fit of shards, here or on other machines.

    An argument of a task may be what `submit` returned for an earlier task; it then
    stands for the result of that task. The engine may run a task again.
    """

    n_tasks: float  # that run at the same time

    def submit(self, function: Callable[..., object], *arguments: object) -> object:
        """Begin a task; return a handle of its result."""

    def gather(self, tasks: Iterable[object]) -> Iterable[Any]:
        """The results of tasks, each once, in order."""
