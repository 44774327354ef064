"""What a fit asks of private units, and what it tells them; who runs its tasks.

A fit knows its documents by `PrivateSide` only: in memory (`Documents`), in shards that
this process visits, or in shards on an engine (`ShardedDocuments`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp


class RoundInference(NamedTuple):
    """How the units of a round infer the topic weights of their documents; public."""

    # p(word | topic), or exp(E[log beta]) by the E-step, (n_words, padded) float32
    table: np.ndarray
    doc_topic_prior: float
    anew: bool  # from equal weights, or else from those of the last round
    # Topic sizes, and the smallest count of a cell: a document reads what the others
    # have added to the table, see `update_theta`.
    own: tuple[np.ndarray, float] | None = None
    by_e_step: bool = False  # variational Bayes, anew


class RoundTables(NamedTuple):
    """What the units of a round are told; public."""

    inference: (
        RoundInference | None
    )  # None: their topic weights are those of the last one
    factor: np.ndarray  # tempered p(word | topic), as of `in_16_bits`
    center: np.ndarray  # p(topic | word), as of `in_16_bits` relative to 1
    weight: np.ndarray  # word weights, (n_words,)
    norm: float  # clipping bound of a contribution, in L2
    radius: int  # the integer units that it stands for


class Halves(NamedTuple):
    """What the units of a round that tests the topics are told; public."""

    first: np.ndarray  # mask of one half of the words, (n_words,)
    inference: RoundInference  # anew, of one half of a document's words
    shares: np.ndarray  # of each topic, (n_components,) float32
    bound: float  # of the distance of topic weights from the shares, in L2
    factor: np.ndarray  # ones, as of `in_16_bits`
    center: np.ndarray  # `shares` for each word, as of `in_16_bits` relative to 1
    weight: np.ndarray  # word weights, (n_words,)
    norm: float  # of the word counts of a unit, in L2
    radius: int  # the integer units that `bound` times `norm` stands for

    @property
    def tables(self) -> RoundTables:
        """Those of a sum of topics whose weights are known."""
        norm = self.bound * self.norm
        return RoundTables(
            None, self.factor, self.center, self.weight, norm, self.radius
        )


class PrivateSide(Protocol):
    """The private units of a fit.

    A unit is one document, or all documents of one user. Sums are integers, and only
    they are released. All else stays with the curator, or with a fit without privacy.
    Topic weights and scales of units are the state between rounds: that of a unit is a
    function of the unit and of past releases.
    """

    n_words: int  # size of the vocabulary, public

    @property
    def n_units(self) -> int:
        """Number of units."""

    def rescale(self, weight: np.ndarray, norm: float) -> None:
        """Scale each unit to norm `norm`, short ones at most `SCALE_UP` times longer.

        A long unit is clipped to `norm` in any case, so that a larger scale would
        change nothing. The scale counts in all later sums.
        """

    def sum_words(
        self, units: np.ndarray | None, *, weight: np.ndarray, norm: float, radius: int
    ) -> np.ndarray:
        """Integer word totals (n_words,) of `units`, or of all of them.

        A unit contributes its counts times its scale and `weight`, clipped to L2 norm
        `norm`, which stands for `radius` integer units.
        """

    def count_documents(self, most: int) -> np.ndarray:
        """Documents with words, at most `most` of a unit, and units with words."""

    def sum_topics(
        self, units: np.ndarray, tables: RoundTables, upweight: np.ndarray | None = None
    ) -> np.ndarray:
        """Infer topic weights of `units`; sum their word-topic counts, in integers.

        The sum is (n_words, n_components). Unit u contributes the sum over its
        documents d of s_u w_v x_dv (r_dvk - center_vk) with r_dvk ~ theta_dk factor_vk,
        clipped to L2 norm `tables.norm`, which stands for `tables.radius` integer
        units. s_u is the unit's scale, times `upweight` (n_units,) if that is given.
        """

    def sum_halves(
        self, units: np.ndarray, halves: Halves, upweight: np.ndarray | None = None
    ) -> np.ndarray:
        """Sum what half of a document's words say of the topics of the other half.

        The sum is (n_words, n_components), in integers. Unit u contributes the sum over
        its documents d of s_u w_v x_dv (theta_dk - shares_k), clipped as in
        `sum_topics`. theta_dk are the topic weights that the words of d infer which are
        not in the half of v. They are drawn toward the shares until their distance is
        at most `halves.bound`, so that the clip reads no word of the half of v.
        """

    def share_of(self, words: np.ndarray) -> np.ndarray:
        """Share of the tokens of units (n_units,) in the mask `words` (n_words,)."""

    def longest(self) -> float:
        """Length of the longest unit, for fits without noise."""

    def matrices(self) -> Iterator[sp.csr_array]:
        """The word counts of all documents, in order, for fits without noise."""

    def close(self) -> None:
        """Forget what the training needs, here and wherever it was kept."""


@runtime_checkable
class Engine(Protocol):
    """Runs the tasks of a fit of shards, here or on other machines.

    An argument of a task may be what `submit` returned for an earlier one, and stands
    for its result. A task may be repeated.
    """

    n_tasks: float  # at a time

    def submit(self, function: Callable[..., object], *arguments: object) -> object:
        """Begin a task."""

    def gather(self, tasks: Iterable[object]) -> Iterable[Any]:
        """The results of tasks, each once, in order."""
