"""One release of terms: which pass, with noisy weights, and how they are ranked afterwards.

Mechanism (Gaussian, with a threshold). Each unit spreads one vector of L2 norm `radius` evenly
over its distinct terms. The sum gets noise on every cell. Terms of a public list are released
whatever their value. Other terms are released only above a threshold that the terms of one unit
alone reach with a probability that is part of delta. ``docs/vocabulary.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from dplda.privacy import ApproximateDP, Event
from dplda.privacy._clipping import count_unit
from dplda.privacy._curator import Curator
from dplda.privacy._mechanisms import MAX_RADIUS, DiscreteGaussian
from dplda.privacy._streams import Purpose, Streams

WORDS, PAIRS = "words", "pairs of words"
ROUNDING = 40  # of the noise to integers; more has a probability below 1e-38
N_BINS = 30  # of the public list, for the ranking


@dataclass(frozen=True)
class Selection:
    """One release: which terms of the units pass, and their noisy weights.

    Attributes
    ----------
    label : str
        Label of the two steps in the plan.
    mechanism : mechanism
        Source of the noise.
    failure : Event
        Price of the threshold.
    discover : bool
        Whether terms outside of the public list may pass.
    max_terms : int
        Number of terms of a unit that count.
    """

    label: str
    mechanism: Any
    failure: Event
    discover: bool
    max_terms: int

    @property
    def plan(self) -> list[tuple[str, Event]]:
        return [(self.label, self.mechanism.event), (self.label, self.failure)]

    @property
    def radius(self) -> int:
        return MAX_RADIUS if self.mechanism.exact else self.mechanism.radius

    @property
    def noise_multiplier(self) -> float:
        return self.mechanism.scale / self.radius

    @property
    def threshold(self) -> float:
        """Least integer that a term outside of the public list has to reach."""
        if not self.discover:
            return math.inf
        if not isinstance(self.failure, ApproximateDP):
            return 1
        return selection_threshold(self.mechanism, self.failure.delta, self.max_terms)

    def select(
        self, sets: Sequence[set[str]], asked: Sequence[str], curator: Curator, streams: Streams
    ) -> Selected:
        """Release the terms that pass."""
        public = frozenset(asked)
        if not self.discover:
            sets = [of_unit & public for of_unit in sets]
        kept = [self._cut(of_unit, unit, streams) for unit, of_unit in enumerate(sets)]
        terms = np.array(sorted(public.union(*kept)), dtype=object)
        total = self._weights(kept, {term: column for column, term in enumerate(terms)})
        passing, noisy = curator.release_selected(
            total, np.array([term in public for term in terms], bool), self.mechanism,
            threshold=self.threshold, failure=self.failure, label=self.label, round=self._round,
        )  # fmt: skip
        scale = np.full(len(passing), self.noise_multiplier)
        return Selected(terms[passing], noisy / self.radius, scale)

    @property
    def _round(self) -> int:
        return 0 if self.label == WORDS else 1

    def _cut(self, terms: set[str], unit: int, streams: Streams) -> list[str]:
        """At most `max_terms` terms of a unit, a random choice with coins of its own."""
        if len(terms) <= self.max_terms:
            return list(terms)
        ordered = sorted(terms)
        keys = streams.words(Purpose.KEPT_WORDS, self._round, unit, len(ordered))
        return [ordered[i] for i in np.argsort(keys, kind="stable")[: self.max_terms]]

    def _weights(self, sets: Sequence[list[str]], column: Mapping[str, int]) -> np.ndarray:
        """Sum over the units of one vector each, of L2 norm at most `radius`, in integers."""
        total = np.zeros(len(column), np.int64)
        for terms in sets:
            if terms:  # a unit's terms are distinct, so that no cell is counted twice
                total[[column[term] for term in terms]] += count_unit(self.radius, len(terms))
        return total


@dataclass(frozen=True)
class Selected:
    """Terms that became public, with noisy weights and the scales of their noise."""

    terms: np.ndarray
    weights: np.ndarray
    scales: np.ndarray

    def __add__(self, other: Selected) -> Selected:
        pairs = zip(vars(self).values(), vars(other).values())
        return Selected(*(np.concatenate(pair) for pair in pairs))

    def best(self, candidates: Sequence[str], n_terms: int | None) -> Selected:
        """The terms with the largest expected weights, given their noise and the public list."""
        position = {term: i for i, term in enumerate(candidates)}
        places = np.array([position.get(term, len(position)) for term in self.terms])
        ranked = expected_weights(self.weights, self.scales, places)
        order = np.argsort(-ranked, kind="stable")[:n_terms]
        return Selected(self.terms[order], self.weights[order], self.scales[order])


def failure_event(delta: float) -> Event:
    """The price of terms of one unit that pass with probability `delta`, all together.

    It dominates a coin of this probability that is thrown only if the unit is present.
    """
    return ApproximateDP(-math.log1p(-delta), delta)


def selection_threshold(mechanism: DiscreteGaussian, delta: float, max_terms: int) -> int:
    """Least integer that the terms of one unit alone reach with probability at most `delta`.

    A unit with t terms gives each of them radius / sqrt(t) at most. The largest threshold over all
    t <= max_terms holds for every unit. ``docs/vocabulary.md`` bounds the tail of the noise.
    """
    t = np.arange(1, max_terms + 1)
    tail = -ndtri(delta * (1 - 1e-9) / t)  # a union bound over t terms
    reach = mechanism.radius / np.sqrt(t) + ROUNDING + mechanism.scale * tail
    return math.ceil(float(reach.max()) * (1 + 1e-12)) + 1


def expected_weights(weights: np.ndarray, scales: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Posterior means of true weights, given noisy ones and places in the public list.

    Terms of similar place share a gamma prior, whose moments are estimated from their noisy
    weights. Noise is normal. Everything here is post-processing of a release.
    """
    if not scales.any():
        return weights
    means = np.empty(len(weights))
    order = np.argsort(places, kind="stable")
    for bin_ in np.array_split(order, min(N_BINS, len(order))):
        y, noise = weights[bin_], scales[bin_]
        mean = max(y.mean(), 0.02 * noise.mean())
        variance = max(y.var() - np.mean(noise**2), (0.3 * mean) ** 2)
        grid = np.geomspace(1e-3 * mean, 1.5 * max(y.max(), mean), 200)
        log_prior = (mean**2 / variance - 1) * np.log(grid) - grid * mean / variance
        log_joint = log_prior + np.log(np.gradient(grid)) - _half_square(y, noise, grid)
        joint = np.exp(log_joint - log_joint.max(axis=1, keepdims=True))
        means[bin_] = joint @ grid / joint.sum(axis=1)
    return means


def _half_square(y: np.ndarray, noise: np.ndarray, grid: np.ndarray) -> np.ndarray:
    return 0.5 * ((y[:, None] - grid) / noise[:, None]) ** 2
