"""Privacy filters: budgets that hold when noise and fits depend on what was released.

A filter is fixed before the first release and refuses the step that would exceed it:
docs/accounting.md has the proof. Nothing here reads data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TypeAlias

import numpy as np

from dplda.privacy._accounting import (
    DISTANCE_SHARE,
    all_gaussian,
    bound_epsilon,
    delta_charge,
    gaussian_mu,
    gaussian_mu_of,
    grouped,
    rounded_down,
    rounded_up,
    without_statements,
)
from dplda.privacy._composition import (
    SMALLEST_DELTA,
    TILTS,
    Groups,
    largest_cumulants,
    renyi_epsilons,
)
from dplda.privacy._curves import MARGIN, TINY, FloatArray, up
from dplda.privacy._events import Event, Gaussian, from_record, to_record

# What is counted, and its limit. An event: how often it is allowed. None: the sum of
# ``1 / noise_multiplier**2`` of all other steps, which are Gaussian, sampled or not. A
# number: the sum of the cumulants of all steps at this index of `TILTS`.
Limits: TypeAlias = tuple[tuple[Event | int | None, float], ...]


@dataclass(frozen=True)
class Filter:
    """The filter of one ledger.

    `reserved` are the allowed sums of distances from ideal noise, and of the deltas and
    epsilons of statements (`ApproximateDP`). The budget pays for them before the filter
    is chosen.
    """

    reserved: tuple[float, float, float]
    limits: Limits

    def cost(self, events: tuple[Event, ...], total_variation: float) -> FloatArray:
        """Costs of a charge: numbers that add up, in the order of the limits."""
        groups, lost, shift = without_statements(grouped(events))
        costs = [total_variation, rounded_up(lost), rounded_up(shift)]
        costs += [self._counted(what, groups) for what, _ in self.limits]
        return np.array(costs)

    def _counted(self, what: Event | int | None, groups: Groups) -> float:
        """What a charge takes of one limit."""
        if isinstance(what, int):
            return float(largest_cumulants(groups)[what]) * MARGIN
        if what is not None:
            return float(dict(groups).get(what, 0))
        named = {event for event, _ in self.limits}
        return gaussian_mu_of(group for group in groups if group[0] not in named) ** 2

    def used(self, costs: FloatArray) -> float:
        """Used share of the budget; a plan above 1 is refused."""
        if (costs[:3] > self.reserved).any():
            return math.inf
        limits = [limit for _, limit in self.limits]
        return max(map(_share, costs[3:].tolist(), limits))

    def to_text(self) -> str:
        """Write the filter down as JSON, without loss."""
        limits = [
            (to_record(what) if isinstance(what, Event) else what, limit)
            for what, limit in self.limits
        ]
        return json.dumps([self.reserved, limits])

    @classmethod
    def from_text(cls, text: str) -> Filter:
        """Read what `to_text` wrote."""
        reserved, records = json.loads(text)
        limits = tuple(
            (from_record(what) if isinstance(what, dict) else what, limit)
            for what, limit in records
        )
        return cls(tuple(reserved), limits)


def _share(spent: float, limit: float) -> float:
    if spent == 0.0:
        return 0.0
    return spent / limit if limit > 0.0 else math.inf


def choose_filter(
    events: tuple[Event, ...], total_variation: float, epsilon: float, delta: float
) -> Filter | None:
    """Choose a filter by the first plan of a ledger.

    The plan is public and precedes all releases.

    Filters that leave room for other plans take precedence. None if the plan exceeds
    the budget.
    """
    groups, lost, shift = without_statements(grouped(events))
    kept = DISTANCE_SHARE * delta / delta_charge(1.0, epsilon)
    many_copies = (2, 1) if lost or shift else (1,)
    for distance, copies in product((kept, 2.0 * total_variation), many_copies):
        # up: the roundings of the charge
        charge = up(delta_charge(distance, epsilon), 1e-14)
        if total_variation > distance or charge >= delta:
            continue
        epsilon_left = Fraction(epsilon) - copies * shift
        delta_left = Fraction(delta) - copies * lost - Fraction(charge)
        if epsilon_left <= 0 or delta_left < SMALLEST_DELTA:
            continue
        statements = rounded_up(copies * lost), rounded_up(copies * shift)
        for limits in _candidates(
            groups, rounded_down(epsilon_left), rounded_down(delta_left)
        ):
            chosen = Filter((distance, *statements), limits)
            if chosen.used(chosen.cost(events, total_variation)) <= 1.0:
                return chosen
    return None


def _candidates(groups: Groups, epsilon: float, delta: float) -> Iterator[Limits]:
    if all_gaussian(groups):
        yield ((None, gaussian_mu(epsilon, delta) ** 2),)
    else:  # the tilt that allows the largest number of copies of the plan
        without_steps = renyi_epsilons(np.zeros(len(TILTS)), delta)
        allowed = TILTS * (epsilon / MARGIN - without_steps)
        copies = allowed / np.maximum(largest_cumulants(groups), TINY)
        best = int(np.argmax(copies))
        yield ((best, max(0.0, float(allowed[best]))),)
    # the steps of the plan, in any order
    if bound_epsilon(groups, delta) <= epsilon:
        plain = [group for group in groups if isinstance(group[0], Gaussian)]
        others = [
            (event, float(count))
            for event, count in groups
            if not isinstance(event, Gaussian)
        ]
        yield ((None, gaussian_mu_of(plain) ** 2), *others)
