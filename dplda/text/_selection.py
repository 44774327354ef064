"""One release of terms with noisy weights, and their ranks.

Mechanism (Gaussian, with a threshold). Each unit spreads one vector of L2 norm `radius`
evenly over its distinct terms. The sum gets noise on every cell. Terms of a public list
are released at any value. Other terms are released only above a threshold. The terms
that only one unit has reach it with a probability that is a part of delta.
``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dplda.core._fold_in import BATCH
from dplda.core._private_fit import Noise
from dplda.core._signal import FALSE_POSITIVES
from dplda.core._splitter import kept_ptr
from dplda.document._public_words import SHARED, Vectors, left_out
from dplda.privacy import ApproximateDP
from dplda.privacy._curator import Curator
from dplda.privacy._curves import ELEMENTARY, up
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import count_unit
from dplda.privacy._streams import Purpose, Streams
from dplda.text._counted import Counted

WORDS = "words"  # label of the two steps of the plan
# Rounding to integers moves noise further than this with a probability below 1e-38.
ROUNDING = 40

# The prior of weights, which is post-processing of a release. One number is enough for
# the bins of the list, the places in its first bin, the places where Zipf's law is
# flat, and the points of a posterior. At epsilon 0.5, words miss 47.8% of KOS; with 5
# bins 48.7%, with 100 bins 50.3%.
N_BINS = 30
LEAST = 0.1  # of the expected weight: noise may hide all of it


class Counts(NamedTuple):
    """Integer weights of terms; private."""

    terms: NDArray[np.object_]
    total: NDArray[np.int64]
    asked: NDArray[np.bool_]  # the public list has it


@dataclass(frozen=True)
class Selection:
    """One release: which terms of the units pass, and their noisy weights."""

    mechanism: Noise  # source of the noise
    failure: Event  # price of the threshold
    discover: bool  # whether terms outside of the public list may pass
    max_terms: int  # number of terms of a unit that count

    @property
    def plan(self) -> list[tuple[str, Event]]:
        return [(WORDS, self.mechanism.event), (WORDS, self.failure)]

    @property
    def noise_multiplier(self) -> float:
        return self.mechanism.scale / self.mechanism.radius

    @property
    def threshold(self) -> float:
        """Least integer that a term outside of the public list has to reach."""
        if not self.discover:
            return math.inf
        if self.mechanism.exact:
            return 1
        assert isinstance(self.failure, ApproximateDP)
        return selection_threshold(self.mechanism, self.failure.delta, self.max_terms)

    def count(self, counted: Counted, asked: Sequence[str], streams: Streams) -> Counts:
        """Weights of the terms of all units, and of the terms asked for; private."""
        public = frozenset(asked)
        n_terms = len(counted.terms)
        total = np.zeros(n_terms, np.int64)
        held = np.zeros(n_terms, bool)
        # without discovery, other terms neither count nor make a unit longer
        counts = np.ones(n_terms, bool)
        if not self.discover:
            counts[:] = list(map(public.__contains__, counted.terms))
        unit = 0
        for terms, ptr in counted.units():
            mask = counts[terms]
            terms = terms[mask]
            ptr = kept_ptr(ptr, mask)
            terms, ptr = self._cut(counted.terms, terms, ptr, unit, streams)
            sizes = np.diff(ptr)
            # Each unit adds a vector of integers, of L2 norm at most `radius`. Its
            # terms are distinct, so it adds to no cell twice.
            steps = [
                count_unit(self.mechanism.radius, n)
                for n in range(1, sizes.max(initial=0) + 1)
            ]
            np.add.at(total, terms, np.repeat(np.array([0, *steps])[sizes], sizes))
            held[terms] = True
            unit += len(sizes)
        names = list(compress(counted.terms, held))
        names += public.difference(names)
        total = np.append(total[held], np.zeros(len(names) - held.sum(), np.int64))
        order = sorted(range(len(names)), key=names.__getitem__)
        return Counts(
            np.array(names, dtype=object)[order],
            total[order],
            np.array(list(map(public.__contains__, names)), bool)[order],
        )

    def release(
        self, counts: Counts, curator: Curator
    ) -> tuple[NDArray[np.object_], NDArray[np.float64]]:
        """The terms that pass, with noisy weights; public."""
        passing, noisy = curator.release_selected(
            counts.terms,
            counts.total,
            counts.asked,
            self.mechanism,
            threshold=self.threshold,
            failure=self.failure,
            label=WORDS,
            round=0,
        )
        return passing, noisy / self.mechanism.radius

    def _cut(
        self,
        names: Sequence[str],
        terms: NDArray[np.int64],
        ptr: NDArray[np.int64],
        first: int,
        streams: Streams,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The terms of units that count, and where each unit begins.

        The first unit has the number `first`.
        """
        counts = np.ones(len(terms), bool)
        for unit in np.flatnonzero(np.diff(ptr) > self.max_terms):
            own = slice(ptr[unit], ptr[unit + 1])
            held = [names[term] for term in terms[own]]
            chosen = {*self.cut(held, first + int(unit), streams)}
            counts[own] = [term in chosen for term in held]
        return terms[counts], kept_ptr(ptr, counts)

    def cut(self, terms: Collection[str], unit: int, streams: Streams) -> list[str]:
        """At most `max_terms` terms of a unit, a random choice with its own coins."""
        if len(terms) <= self.max_terms:
            return list(terms)
        ordered = sorted(terms)
        keys = streams.reader(Purpose.KEPT_WORDS, 0, unit).words(len(ordered))
        return [ordered[i] for i in np.argsort(keys, kind="stable")[: self.max_terms]]


def best_terms(
    terms: np.ndarray,
    weights: np.ndarray,
    noise: float,
    candidates: Sequence[str],
    n_terms: int | None,
    vectors: np.ndarray | None = None,
) -> np.ndarray:
    """Indices of the terms with largest expected weights, given noise and public list.

    These are posterior means. The weight at a place of the list has a gamma prior,
    whose moments are estimated from the noisy weights of similar places. With public
    `vectors` (n_candidates, n_dimensions), its mean is what the weights of terms of
    similar meaning say. Noise is normal. Terms that are not in the list stand out of
    the noise already, and keep their weights. Everything here is post-processing of a
    release.
    """
    position = {term: i for i, term in enumerate(candidates)}
    places = np.fromiter(map(position.get, terms, repeat(len(position))), np.int64)
    expected = np.array(weights, dtype=np.float64)
    listed = np.flatnonzero(places < len(position))
    if noise and listed.size:  # else the weights are known
        order = listed[np.argsort(places[listed], kind="stable")]
        y = expected[order]
        mean, variance = _prior(y, noise)
        if vectors is not None:
            ratio = _by_meaning(y, noise, mean, variance, vectors[places[order]])
            mean = mean * ratio
            variance = variance * ratio**2
        # Texts of a subject have terms that are far more frequent than the list says.
        # Noise raises any of the weights by more than this with a probability of 5%.
        clear = -ndtri(FALSE_POSITIVES / len(order))
        at_once = BATCH // N_BINS  # terms, whose grids are in memory together
        for start in range(0, len(order), at_once):
            piece = slice(start, start + at_once)
            means = _posterior(y[piece], noise, mean[piece], variance[piece])
            expected[order[piece]] = np.maximum(means, y[piece] - clear * noise)
    return np.argsort(-expected, kind="stable")[:n_terms]


def failure_event(delta: float) -> Event:
    """The price of terms of one unit that pass with probability `delta`, all together.

    It dominates a coin of this probability that is thrown only if the unit is present.
    """
    # up: the rounding of the logarithm
    return ApproximateDP(up(-math.log1p(-delta), ELEMENTARY), delta)


def selection_threshold(mechanism: Noise, delta: float, max_terms: int) -> int:
    """Least integer that one unit's terms reach with probability at most `delta`.

    A unit with t terms gives each of them radius / sqrt(t) at most. The largest
    threshold over all t <= max_terms holds for every unit. ``docs/proofs_document.md``
    bounds the tail of the noise.
    """
    t = np.arange(1, max_terms + 1)
    tail = -ndtri(delta * (1 - 1e-9) / t)  # a union bound over t terms
    reach = mechanism.radius / np.sqrt(t) + ROUNDING + mechanism.scale * tail
    return math.ceil(float(reach.max()) * (1 + 1e-12)) + 1


def _prior(weights: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the true weight at each place of the list.

    The list has the most frequent term first.

    Where noise hides the mean of a bin, the estimate leans on Zipf's law, which keeps
    the order of the list. All places have the same ratio of variance to squared mean.
    """
    rank = np.arange(1.0, len(weights) + 1)
    law = 1 / (rank + N_BINS)
    # its scale by least squares, at least one standard error
    precision = (law**2).sum() / noise**2
    scale = (law * weights).sum() / noise**2 / precision
    law *= max(scale, 1 / math.sqrt(precision))
    ends = np.geomspace(min(N_BINS, len(weights)), len(weights), N_BINS).round()
    edges = np.unique(ends.astype(int))
    starts = np.concatenate([[0], edges[:-1]])
    sizes = np.diff(edges, prepend=0)

    def average(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, starts) / sizes

    law_mean = average(law)
    # the mean of a normal estimate and of a normal prior around the law
    spread = law_mean**2
    of_bins = noise**2 / sizes
    mean = (average(weights) * spread + law_mean * of_bins) / (spread + of_bins)
    mean = np.maximum(mean, LEAST * law_mean)
    excess = average((weights - np.repeat(mean, sizes)) ** 2) - noise**2
    error = 2 * (noise**2 + np.maximum(excess, 0)) ** 2 / sizes
    # one variance over the squared mean, of all bins by their certainty
    certainty = mean**4 / error
    variation = max((certainty * excess / mean**2).sum() / certainty.sum(), LEAST)
    log_rank = np.log(rank)
    means = np.exp(np.interp(log_rank, average(log_rank), np.log(mean)))
    return means, variation * means**2


def _by_meaning(
    y: np.ndarray,
    noise: float,
    mean: np.ndarray,
    variance: np.ndarray,
    vectors: np.ndarray,
) -> np.ndarray:
    """Each term's weight by the noisy weights of all others, over its prior mean."""
    own = variance / mean**2
    precision = mean**2 / (variance + noise**2)
    penalty = 1 / (SHARED * np.average(own, weights=precision))
    directions = Vectors.of(vectors).directions
    deviations = (y / mean - 1)[:, None]
    found = left_out(directions, deviations, precision, penalty)
    return np.maximum(1 + found[:, 0], LEAST)


def _posterior(
    y: np.ndarray, noise: float, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """Posterior means under gamma priors and normal noise, on a grid for each cell."""
    y = y[:, None]
    mean = mean[:, None]
    variance = variance[:, None]
    smallest = LEAST * mean
    largest = np.maximum(y, mean)
    grid = smallest * (largest / smallest) ** np.linspace(0, 1, N_BINS)
    # one power is the step
    log_joint = mean**2 / variance * np.log(grid) - grid * mean / variance
    log_joint -= 0.5 * ((y - grid) / noise) ** 2
    joint = np.exp(log_joint - log_joint.max(axis=1, keepdims=True))
    total: np.ndarray = (joint * grid).sum(axis=1) / joint.sum(axis=1)
    return total
