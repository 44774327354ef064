"""Sums of the costs of a ledger's entries, kept from one charge to the next, by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplda.privacy import _bounds_on_epsilon as composition
from dplda.privacy._accounting import delta_charge, is_chargeable
from dplda.privacy._bounds_on_epsilon import INTEGER_ORDERS, grouped
from dplda.privacy._entries import Entry
from dplda.privacy._events import Event, Gaussian
from dplda.privacy._renyi import epsilon_of_divergences

FloatArray: TypeAlias = NDArray[np.float64]
Sums: TypeAlias = dict[str | None, FloatArray]

# Above the relative rounding error of a sum of a million costs.
_MARGIN = 1e-9


class RunningCosts:
    """Sums of a cost over the entries that count, for each part of the data.

    The state is one tuple, which is replaced and never changed: safe to thread and fork.

    Parameters
    ----------
    cost : callable
        Maps an entry to an array of numbers, each of which adds up.
    size : int
        Length of that array.
    """

    def __init__(self, cost: Callable[[Entry], FloatArray], size: int) -> None:
        self.cost = cost
        self._nothing: Sums = {None: np.zeros(size)}
        self._state: tuple[Sequence[Entry], Sums] = (), self._nothing

    def of(self, entries: Sequence[Entry]) -> Sums:
        """Sum up, reading only the entries that were not there at the last call.

        Returns
        -------
        dict
            For each part, the sum over its entries and those that have read all of the data. None
            is a part without entries.
        """
        known, sums = self._state
        if len(entries) < len(known) or not all(map(_costs_the_same, known, entries)):
            known, sums = (), self._nothing
        for entry in entries[len(known) :]:
            if entry.counts:
                sums = sums | self.after(entry, sums)
        self._state = entries, sums
        return sums

    def after(self, entry: Entry, sums: Sums) -> Sums:
        """Add an entry to the sums of the parts that pay for it, and return these only."""
        part, cost = charged_part(entry), self.cost(entry)
        paying = sums if part is None else {part: sums.get(part, sums[None])}
        return {part: _sum_rounded_up(total, cost) for part, total in paying.items()}


def _sum_rounded_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Sum of numbers that are not negative, never too small. A number plus zero is exact."""
    exact = (a == 0.0) | (b == 0.0)
    return np.where(exact, a + b, np.nextafter(a + b, math.inf))


def _costs_the_same(old: Entry, new: Entry) -> bool:
    """Whether only the status changed, and both count or neither does.

    Two copies of one file have the same entries at first, and others later.
    """
    if old is new or old.counts != new.counts:
        return old is new
    return replace(old, status=new.status) == new


def charged_part(entry: Entry) -> str | None:
    """The part that pays for an entry; None if every part pays."""
    return entry.charged_part


# ---- a quick bound on epsilon --------------------------------------------------------------


QUICK_SIZE = 6 + len(INTEGER_ORDERS)


def quick_cost(entry: Entry) -> FloatArray:
    """What `is_surely_within` needs to know of an entry: numbers that add up."""
    return np.concatenate([[entry.total_variation], _quick_cost(entry.events)])


@lru_cache(maxsize=4096)
def _quick_cost(events: tuple[Event, ...]) -> FloatArray:
    """What adds up: first delta and epsilon of statements.

    Then, of the rest, pure epsilon, squared mu of Gaussian steps and of other steps, and the
    divergences of the other steps.
    """
    groups, lost, shift = composition.without_statements(grouped(events))
    plain = tuple(group for group in groups if isinstance(group[0], Gaussian))
    other = tuple(group for group in groups if not isinstance(group[0], Gaussian))
    squares = [composition.gaussian_mu_of(some) ** 2 for some in (plain, other)]
    divergences = composition.total_divergence(other, INTEGER_ORDERS)
    pure = composition.pure_epsilon(groups)
    return np.concatenate([[lost, shift, pure, *squares], divergences])


def is_surely_within(costs: FloatArray, epsilon: float, delta: float) -> bool:
    """Whether a bound that takes a millisecond is below epsilon; if not, a better one may be.

    Parameters
    ----------
    costs : ndarray
        Sum of `quick_cost`.
    epsilon, delta : float
        The budget.
    """
    total_variation, lost, shift, pure, plain, other = costs[:6]
    if total_variation >= 1.0 or not is_chargeable(total_variation, epsilon, delta):
        return False
    left = max(delta - lost * (1.0 + _MARGIN) - 2.0 * delta_charge(total_variation, epsilon), 0.0)
    divergences = costs[6:] + 0.5 * plain * np.array(INTEGER_ORDERS)
    bound = min(
        pure,
        composition.epsilon_of_mu(math.sqrt(plain + other), left),
        epsilon_of_divergences(INTEGER_ORDERS, divergences, left),
    )
    return bool((shift + bound) * (1.0 + _MARGIN) <= epsilon and lost <= delta)
