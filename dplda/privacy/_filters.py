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
from itertools import islice, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplda.privacy import _accounting as composition
from dplda.privacy._accounting import delta_charge, gaussian_mu, grouped, is_within
from dplda.privacy._composition import Groups
from dplda.privacy._curves import ORDERS, divergences
from dplda.privacy._events import MAX_COUNT, Event, Gaussian, Repeated, from_record, to_record

FloatArray: TypeAlias = NDArray[np.float64]

# Shares of delta: of the distance from ideal noise, and of each filter of a plan that is not
# Gaussian.
_DISTANCE_SHARE = 1e-3
_PLAN_SHARE, _RENYI_SHARE, _GAUSSIAN_SHARE = 0.45, 0.45, 0.1
_MAX_COPIES = 2**20
# Margin on the rounding errors of a cost that no limit equals.
_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class FixedSteps:
    """The steps of one composition, in any order; Gaussian steps can be divided.

    `squared_mu` is the sum of ``1 / noise_multiplier**2`` that is allowed to Gaussian steps, and to
    all steps that a Gaussian step dominates; `counts` is how often each other event is allowed.
    """

    squared_mu: float
    counts: Groups = ()

    @property
    def limits(self) -> list[float]:
        return [self.squared_mu, *(float(n) for _, n in self.counts)]

    def events(self) -> list[Event]:
        """The composition itself."""
        steps = [Repeated(event, n) for event, n in self.counts if n]
        return [Gaussian(self.squared_mu**-0.5), *steps] if self.squared_mu else [*steps]

    def cost(self, groups: Groups) -> list[float]:
        number = {event: i for i, (event, _) in enumerate(self.counts, start=1)}
        spent = [0.0] * (1 + len(number))
        for event, n in groups:
            i = number.get(event, 0)
            spent[i] += n if i else n * squared_mu(event)
        return spent


@dataclass(frozen=True)
class Renyi:
    """A sum of Renyi divergences at one order."""

    order: int
    divergence: float

    @property
    def limits(self) -> list[float]:
        return [self.divergence]

    def cost(self, groups: Groups) -> list[float]:
        at = ORDERS.index(self.order)
        costs = (n * float(divergences(event)[at]) for event, n in groups)
        return [math.fsum(costs) * _UP]


Filter: TypeAlias = FixedSteps | Renyi


def squared_mu(event: Event) -> float:
    """Squared mu of a Gaussian step that dominates a step; infinite if there is none."""
    mu = composition.gaussian_mu_of([(event, 1)])
    if mu == math.inf:
        from scipy.special import erfinv, expit, ndtri

        half = 0.5 * composition.pure_epsilon(((event, 1),))
        # two forms of one number: the first loses the digits of small ones, the second overflows
        mu = -2.0 * float(ndtri(expit(-2.0 * half)))
        mu = mu if half > 1.0 else 2.0 * math.sqrt(2.0) * float(erfinv(math.tanh(half)))
        mu *= _UP
    return mu**2


@dataclass(frozen=True)
class Filters:
    """The filters of one ledger, in the order in which shares of delta were given to them.

    `reserved` are the allowed sums of distances from ideal noise, and of the deltas and epsilons of
    statements (`ApproximateDP`). The budget has paid for them before the filters.
    """

    reserved: tuple[float, float, float]
    filters: tuple[Filter, ...]

    def cost(self, events: tuple[Event, ...], total_variation: float) -> FloatArray:
        """Costs of a charge: numbers that add up, in the order of `limits`."""
        groups, lost, shift = composition.without_statements(grouped(events))
        costs = [number for one in self.filters for number in one.cost(groups)]
        return np.array([total_variation, lost, shift, *costs])

    @property
    def limits(self) -> list[float]:
        return [*self.reserved, *(x for one in self.filters for x in one.limits)]

    def used(self, costs: FloatArray) -> float:
        """Used share of the budget: that of the filter with the most room; above 1 is refused."""
        n_reserved = len(self.reserved)
        if (costs[:n_reserved] > self.reserved).any():
            return math.inf
        shares = map(_share, costs[n_reserved:].tolist(), self.limits[n_reserved:])
        return min(max(islice(shares, len(one.limits))) for one in self.filters)

    def to_text(self) -> str:
        """Write the filters down as JSON, without loss: fixed steps end in a list."""
        records: list[Any] = []
        for one in self.filters:
            if isinstance(one, Renyi):
                records.append([one.order, one.divergence])
            else:
                records.append([one.squared_mu, [[to_record(e), n] for e, n in one.counts]])
        return json.dumps([self.reserved, records])

    @classmethod
    def from_text(cls, text: str) -> Filters:
        """Read what `to_text` wrote."""
        reserved, records = json.loads(text)
        filters: list[Filter] = []
        for first, last in records:
            if isinstance(last, list):
                filters.append(FixedSteps(first, tuple((from_record(e), n) for e, n in last)))
            else:
                filters.append(Renyi(first, last))
        return cls(tuple(reserved), tuple(filters))


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
    per_distance = delta_charge(0.5, epsilon) / 0.5
    distances = _DISTANCE_SHARE * delta / per_distance, 2.0 * total_variation
    for distance, copies in product(distances, (2.0, 1.0) if lost or shift else (1.0,)):
        epsilon_left = epsilon - copies * shift
        charge = per_distance * distance if distance else 0.0  # of no distance: 0, not inf * 0
        delta_left = delta - copies * lost - charge
        if total_variation > distance or min(epsilon_left, delta_left) <= 0.0:
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


def _gaussian(groups: Groups, epsilon: float, delta: float) -> FixedSteps:
    """All Gaussian steps that the budget allows, or just those of the plan.

    The closed form and its inverse differ in the last digits: a plan that meets the budget is
    allowed.
    """
    largest = gaussian_mu(epsilon, delta) ** 2
    sizes = (composition.gaussian_mu_of(groups) ** 2, largest, largest * (1.0 - 1e-9))
    return FixedSteps(
        max(x for x in sizes if composition.epsilon_of_mu(math.sqrt(x), delta) <= epsilon)
    )


def _copies(groups: Groups, epsilon: float, delta: float) -> FixedSteps:
    """The largest number of copies of a plan."""

    def copies(n: int) -> FixedSteps:
        plain = [group for group in groups if isinstance(group[0], Gaussian)]
        # the sum of several equal numbers may exceed their multiple in the last digit
        rounding = 1.0 if n <= 1 else 1.0 + 1e-12
        return FixedSteps(
            n * rounding * composition.gaussian_mu_of(plain) ** 2,
            tuple((event, n * count) for event, count in groups if (event, count) not in plain),
        )

    def fits(n: int) -> bool:
        return n == 0 or is_within(copies(n).events(), epsilon, delta)

    high, most = 1, min(_MAX_COPIES, MAX_COUNT // max((n for _, n in groups), default=1))
    while fits(high) and high < most:
        high = min(2 * high, most)
    return copies(bisect_left(range(high + 1), True, key=lambda n: not fits(n)) - 1)


def _renyi(groups: Groups, epsilon: float, delta: float) -> Renyi:
    """The order that allows the largest number of copies of a plan."""

    def filter_of(order: int) -> Renyi:
        cost = math.log1p(-1.0 / order) - math.log(delta * order) / (order - 1)
        return Renyi(order, max(0.0, epsilon - cost))

    def n_copies(one: Renyi) -> float:
        (spent,) = one.cost(groups)
        return one.divergence / spent if spent > 0.0 else 0.0

    return max(map(filter_of, ORDERS), key=n_copies)
