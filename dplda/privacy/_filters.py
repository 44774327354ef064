"""Privacy filters: budgets that hold when noise and number of fits depend on what was released.

A filter is fixed before the first release and refuses the step that would exceed it. Several
filters share delta, and a step is allowed if one of them has room: docs/accounting.md has the
proof. Nothing here reads data.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np

from dplda.privacy import _accounting as composition
from dplda.privacy._accounting import (
    SMALLEST_DELTA,
    delta_charge,
    epsilon_of,
    gaussian_mu,
    gaussian_mu_of,
    grouped,
)
from dplda.privacy._composition import Groups
from dplda.privacy._curves import ORDERS, FloatArray, conversion, divergences
from dplda.privacy._events import MAX_COUNT, Event, Gaussian, Repeated, from_record, to_record

# Shares of delta: of the distance from ideal noise, and of each filter of a plan that is not
# Gaussian (benchmarks/ledger.py).
_DISTANCE_SHARE = 1e-3
_PLAN_SHARE, _RENYI_SHARE, _GAUSSIAN_SHARE = 0.45, 0.45, 0.1
_MAX_COPIES = 2**20  # of a plan: an end of the search, far above the fits of a ledger
# Margin on the rounding errors of a cost that no limit equals.
_UP = 1.0 + 1e-12

# What a filter counts, each with its limit: an event, how often it is allowed; None, the sum of
# ``1 / noise_multiplier**2`` of all other steps, which are Gaussian, sampled or not; a number, the
# sum of the Renyi divergences of this order. A filter has a number alone, or None and events: the
# steps of one composition, in any order.
Filter: TypeAlias = tuple[tuple[Event | int | None, float], ...]


def steps_of(one: Filter) -> list[Event]:
    """The composition whose steps a filter counts."""
    events: list[Event] = []
    for what, limit in one:
        if what is None and limit:
            events.append(Gaussian(limit**-0.5))
        elif isinstance(what, Event) and limit:
            events.append(Repeated(what, int(limit)))
    return events


@dataclass(frozen=True)
class Filters:
    """The filters of one ledger, in the order in which shares of delta were given to them.

    `reserved` are the allowed sums of distances from ideal noise, and of the deltas and epsilons of
    statements (`ApproximateDP`). The budget has paid for them before the filters.
    """

    reserved: tuple[float, float, float]
    filters: tuple[Filter, ...]

    def cost(self, events: tuple[Event, ...], total_variation: float) -> FloatArray:
        """Costs of a charge: numbers that add up, in the order of the limits."""
        groups, lost, shift = composition.without_statements(grouped(events))
        costs = [total_variation, lost, shift]
        for one in self.filters:
            counted, named = dict(groups), {what for what, _ in one}
            for what, _ in one:
                if isinstance(what, int):
                    at = ORDERS.index(what)
                    spent = math.fsum(n * float(divergences(e)[at]) for e, n in groups) * _UP
                elif what is None:
                    spent = gaussian_mu_of(g for g in groups if g[0] not in named) ** 2
                else:
                    spent = float(counted.get(what, 0))
                costs.append(spent)
        return np.array(costs)

    def used(self, costs: FloatArray) -> float:
        """Used share of the budget: that of the filter with the most room; above 1 is refused."""
        if (costs[:3] > self.reserved).any():
            return math.inf
        spent = iter(costs[3:].tolist())
        return min(max(_share(next(spent), limit) for _, limit in one) for one in self.filters)

    def to_text(self) -> str:
        """Write the filters down as JSON, without loss."""
        records = [
            [[to_record(what) if isinstance(what, Event) else what, limit] for what, limit in one]
            for one in self.filters
        ]
        return json.dumps([self.reserved, records])

    @classmethod
    def from_text(cls, text: str) -> Filters:
        """Read what `to_text` wrote."""
        reserved, records = json.loads(text)
        return cls(tuple(reserved), tuple(
            tuple((from_record(what) if isinstance(what, dict) else what, limit)
                  for what, limit in one) for one in records
        ))  # fmt: skip


def _share(spent: float, limit: float) -> float:
    if spent == 0.0:
        return 0.0
    return spent / limit if limit > 0.0 else math.inf


def choose_filters(
    events: tuple[Event, ...], total_variation: float, epsilon: float, delta: float
) -> Filters | None:
    """Choose filters by the first plan of a ledger, which is public and precedes all releases.

    Filters that leave room for other plans have the precedence. A plan that takes all of the budget
    gets all of delta. None if the plan exceeds the budget.
    """
    groups, lost, shift = composition.without_statements(grouped(events))
    distances = _DISTANCE_SHARE * delta / delta_charge(1.0, epsilon), 2.0 * total_variation
    for distance, copies in product(distances, (2.0, 1.0) if lost or shift else (1.0,)):
        epsilon_left = epsilon - copies * shift
        delta_left = delta - copies * lost - delta_charge(distance, epsilon)
        if total_variation > distance or epsilon_left <= 0.0 or delta_left < SMALLEST_DELTA:
            continue
        for some in _candidates(groups, epsilon_left, delta_left):
            filters = Filters((distance, copies * lost, copies * shift), some)
            if filters.used(filters.cost(events, total_variation)) <= 1.0:
                return filters
    return None


def _candidates(groups: Groups, epsilon: float, delta: float) -> Iterator[tuple[Filter, ...]]:
    if composition.all_gaussian(groups):
        yield (_gaussian(groups, epsilon, delta),)
        return
    yield (
        _copies(groups, epsilon, _PLAN_SHARE * delta),
        _renyi(groups, epsilon, _RENYI_SHARE * delta),
        _gaussian((), epsilon, _GAUSSIAN_SHARE * delta),
    )
    yield (_copies(groups, epsilon, delta),)


def _gaussian(groups: Groups, epsilon: float, delta: float) -> Filter:
    """All Gaussian steps that the budget allows, or just those of the plan.

    The closed form and its inverse differ in the last digits: a plan that meets the budget is
    allowed.
    """
    largest = gaussian_mu(epsilon, delta) ** 2
    sizes = (gaussian_mu_of(groups) ** 2, largest, largest * (1.0 - 1e-9))
    fitting = (x for x in sizes if composition.epsilon_of_mu(math.sqrt(x), delta) <= epsilon)
    return ((None, max(fitting)),)


def _copies(groups: Groups, epsilon: float, delta: float) -> Filter:
    """The largest number of copies of a plan."""
    plain = [group for group in groups if isinstance(group[0], Gaussian)]

    def copies(n: int) -> Filter:
        # the sum of several equal numbers may exceed their multiple in the last digit
        rounding = 1.0 if n <= 1 else _UP
        others = ((e, float(n * count)) for e, count in groups if not isinstance(e, Gaussian))
        return (None, n * rounding * gaussian_mu_of(plain) ** 2), *others

    def fits(n: int) -> bool:
        return n == 0 or epsilon_of(steps_of(copies(n)), delta) <= epsilon

    high, most = 1, min(_MAX_COPIES, MAX_COUNT // max((n for _, n in groups), default=1))
    while fits(high) and high < most:
        high = min(2 * high, most)
    return copies(bisect_left(range(high + 1), True, key=lambda n: not fits(n)) - 1)


def _renyi(groups: Groups, epsilon: float, delta: float) -> Filter:
    """The order that allows the largest number of copies of a plan."""
    spent = sum((n * divergences(event) for event, n in groups), np.zeros(len(ORDERS)))
    allowed = np.maximum(0.0, epsilon - conversion(delta))
    best = int(np.argmax(allowed / np.maximum(spent, 1e-300)))
    return ((ORDERS[best], float(allowed[best])),)
