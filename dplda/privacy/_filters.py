"""Privacy filters: budgets that hold when noise and fits depend on what was released.

A filter is fixed before the first release and refuses the step that would exceed it:
docs/accounting.md has the proof. Nothing here reads data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np

from dplda.privacy import _accounting as composition
from dplda.privacy._accounting import delta_charge, gaussian_mu, gaussian_mu_of, grouped
from dplda.privacy._composition import (
    SMALLEST_DELTA,
    TILTS,
    Groups,
    largest_cumulants,
    renyi_epsilons,
)
from dplda.privacy._curves import FloatArray
from dplda.privacy._events import Event, Gaussian, from_record, to_record

_DISTANCE_SHARE = 1e-3  # of delta, for distances from ideal noise
# Margin on the rounding errors of a cost that no limit equals.
_UP = 1.0 + 1e-12

# What is counted, and its limit: an event, how often it is allowed; None, the sum of
# ``1 / noise_multiplier**2`` of all other steps, which are Gaussian, sampled or not; a
# number, the sum of the cumulants of all steps at this place of `TILTS`.
Limits: TypeAlias = tuple[tuple[Event | int | None, float], ...]


@dataclass(frozen=True)
class Filter:
    """The filter of one ledger.

    `reserved` are the allowed sums of distances from ideal noise, and of the deltas and
    epsilons of statements (`ApproximateDP`). The budget has paid for them before the
    filter.
    """

    reserved: tuple[float, float, float]
    limits: Limits

    def cost(self, events: tuple[Event, ...], total_variation: float) -> FloatArray:
        """Costs of a charge: numbers that add up, in the order of the limits."""
        groups, lost, shift = composition.without_statements(grouped(events))
        counted, named = dict(groups), {what for what, _ in self.limits}
        costs = [total_variation, lost, shift]
        for what, _ in self.limits:
            if isinstance(what, int):
                costs.append(float(largest_cumulants(groups)[what]) * _UP)
            elif what is None:
                costs.append(
                    gaussian_mu_of(g for g in groups if g[0] not in named) ** 2
                )
            else:
                costs.append(float(counted.get(what, 0)))
        return np.array(costs)

    def used(self, costs: FloatArray) -> float:
        """Used share of the budget; above 1 is refused."""
        if (costs[:3] > self.reserved).any():
            return math.inf
        return max(map(_share, costs[3:].tolist(), (limit for _, limit in self.limits)))

    def to_text(self) -> str:
        """Write the filter down as JSON, without loss."""
        limits = [
            (to_record(w) if isinstance(w, Event) else w, limit)
            for w, limit in self.limits
        ]
        return json.dumps([self.reserved, limits])

    @classmethod
    def from_text(cls, text: str) -> Filter:
        """Read what `to_text` wrote."""
        reserved, limits = json.loads(text)
        return cls(
            tuple(reserved),
            tuple(
                (from_record(w) if isinstance(w, dict) else w, limit)
                for w, limit in limits
            ),
        )


def _share(spent: float, limit: float) -> float:
    if spent == 0.0:
        return 0.0
    return spent / limit if limit > 0.0 else math.inf


def choose_filter(
    events: tuple[Event, ...], total_variation: float, epsilon: float, delta: float
) -> Filter | None:
    """Choose a filter by the first plan of a ledger.

    It is public and precedes all releases.

    A filter that leaves room for other plans has the precedence. None if the plan
    exceeds the budget.
    """
    groups, lost, shift = composition.without_statements(grouped(events))
    distances = (
        _DISTANCE_SHARE * delta / delta_charge(1.0, epsilon),
        2.0 * total_variation,
    )
    for distance, copies in product(distances, (2.0, 1.0) if lost or shift else (1.0,)):
        epsilon_left = epsilon - copies * shift
        delta_left = delta - copies * lost - delta_charge(distance, epsilon)
        if (
            total_variation > distance
            or epsilon_left <= 0.0
            or delta_left < SMALLEST_DELTA
        ):
            continue
        for limits in _candidates(groups, epsilon_left, delta_left):
            chosen = Filter((distance, copies * lost, copies * shift), limits)
            if chosen.used(chosen.cost(events, total_variation)) <= 1.0:
                return chosen
    return None


def _candidates(groups: Groups, epsilon: float, delta: float) -> Iterator[Limits]:
    if composition.all_gaussian(groups):
        yield ((None, gaussian_mu(epsilon, delta) ** 2),)
    else:  # the tilt that allows the largest number of copies of the plan
        allowed = TILTS * (epsilon / _UP - renyi_epsilons(np.zeros(len(TILTS)), delta))
        best = int(np.argmax(allowed / np.maximum(largest_cumulants(groups), 1e-300)))
        yield ((best, max(0.0, float(allowed[best]))),)
    # the steps of the plan, in any order
    if composition.bound_epsilon(groups, delta) <= epsilon:
        plain = [group for group in groups if isinstance(group[0], Gaussian)]
        others = ((e, float(n)) for e, n in groups if not isinstance(e, Gaussian))
        yield ((None, gaussian_mu_of(plain) ** 2), *others)
