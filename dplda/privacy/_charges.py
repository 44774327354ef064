"""What the entries of a ledger cost together, and whether its budget has room for one more.

With planned composition the total of all entries is compared with the budget. With adaptive
composition the filters decide that the first entry has chosen.
"""

from __future__ import annotations

import math

import numpy as np

from dplda.privacy._accountant import epsilon_of_mu
from dplda.privacy._accounting import epsilon_of, gaussian_mu, is_within
from dplda.privacy._entries import Budget, Entry, State, number_of_user_parts
from dplda.privacy._errors import BudgetError
from dplda.privacy._events import Event
from dplda.privacy._filters import Filters, choose_filters


def paid_by(part: str | None, entries: list[Entry]) -> list[Entry]:
    """The entries that count for a part: its own, and those that every part pays."""
    return [entry for entry in entries if entry.charged_part in (None, part)]


def _parts(entries: list[Entry]) -> set[str | None]:
    return {entry.charged_part for entry in entries} or {None}


def _summed(entries: list[Entry]) -> tuple[list[Event], float]:
    """All events of the entries, and the sum of their distances from ideal noise."""
    events = [event for entry in entries for event in entry.events]
    return events, math.fsum(entry.total_variation for entry in entries)


def why_infinite(entries: list[Entry], delta: float) -> str | None:
    """Why the entries have no finite epsilon together, whatever their events cost; else None."""
    if sum(entry.seeded for entry in entries) > 1:
        return (
            "two entries drew their noise from a given seed; if the seeds are equal, their noise "
            "cancels; leave random_state=None, or use a ledger without a budget for public data"
        )
    if delta == 0.0 and any(entry.total_variation > 0.0 for entry in entries):
        return "the noise has no finite epsilon at delta 0; use a ledger with delta above 0"
    return None


def total_of(entries: list[Entry], delta: float) -> float:
    """Epsilon of all entries: the largest among the parts of the data."""
    if why_infinite(entries, delta):
        return math.inf
    totals = []
    for part in _parts(entries):
        events, distance = _summed(paid_by(part, entries))
        totals.append(epsilon_of(events, delta, total_variation=distance))
    return max(totals)


def check_affordable(new: Entry, state: State) -> str:
    """Refuse an entry that the budget does not allow. Returns the filters to write down."""
    budget, counted = state.budget, state.counted
    if counted and counted[0].unit != new.unit:
        raise ValueError(
            f"this ledger protects one {counted[0].unit}, and {new.label!r} protects one "
            f"{new.unit}; their epsilons do not add up: use a ledger for each unit"
        )
    _check_same_kind_of_parts(new, counted)
    if budget.epsilon == math.inf:
        return ""
    reason = why_infinite([*counted, new], budget.delta)
    if reason:
        raise BudgetError(f"{new.label!r} has no finite epsilon in this ledger: {reason}")
    if budget.composition == "adaptive":
        return _check_filters(new, state)
    _check_plan(new, state)
    return ""


def _check_same_kind_of_parts(new: Entry, counted: list[Entry]) -> None:
    """A part of users and another division of the data may overlap."""
    for part in {entry.part for entry in counted} - {None} if new.part is not None else ():
        if number_of_user_parts(part) != number_of_user_parts(new.part):
            raise ValueError(
                f"{new.part!r} may overlap with {part!r}, which was charged before; divide the "
                "data in one way, or charge this to the whole ledger"
            )


def _check_plan(new: Entry, state: State) -> None:
    (epsilon, delta, *_), counted = state.budget, state.counted
    entries, own = [*counted, new], new.charged_part
    for part in _parts(entries) if own is None else {own}:
        events, distance = _summed(paid_by(part, entries))
        if not is_within(events, epsilon, delta, total_variation=distance):
            total, before = total_of(entries, delta), total_of(counted, delta)
            raise BudgetError(
                f"{new.label!r} would spend epsilon {total:.6g} of {epsilon:g} (delta "
                f"{delta:g}), {before:.4g} of it spent before; lower epsilon or "
                "max_iter, raise noise_multiplier, or use a ledger with a larger budget"
            )


def _check_filters(new: Entry, state: State) -> str:
    """The theorem is in docs/accounting.md."""
    budget, text = state.budget, state.filters
    if not text:  # the first entry, before any release
        chosen = choose_filters(new.events, new.total_variation, budget.epsilon, budget.delta)
        if chosen is not None:
            return chosen.to_text()
        raise _refused(new, budget, 0.0)
    filters, own = Filters.from_text(text), new.charged_part
    entries = [*state.counted, new]
    for part in _parts(entries) if own is None else {own}:
        if _used(filters, paid_by(part, entries)) > 1.0:
            raise _refused(new, budget, _used(filters, paid_by(part, state.counted)))
    return text


def _used(filters: Filters, entries: list[Entry]) -> float:
    """Used share of the filters. Costs are added with the sum rounded up, in the entries' order.

    Zero plus a number is exact, so that a first plan may take all of a budget.
    """
    total = np.zeros(len(filters.limits))
    for entry in entries:
        cost = filters.cost(entry.events, entry.total_variation)
        exact = (total == 0.0) | (cost == 0.0)
        total = np.where(exact, total + cost, np.nextafter(total + cost, math.inf))
    return filters.used(total)


def _refused(new: Entry, budget: Budget, used: float) -> BudgetError:
    return BudgetError(
        f"{new.label!r} does not fit into what is left of epsilon {budget.epsilon:g} (delta "
        f"{budget.delta:g}), of which {_epsilon_of_share(used, budget):.4g} was used up before; "
        "lower epsilon or max_iter, raise noise_multiplier, or use a ledger with a larger budget"
    )


def epsilon_used(state: State) -> float:
    """How much of an adaptive budget is used up, as the epsilon of Gaussian noise."""
    if not state.filters:
        return 0.0
    filters, counted = Filters.from_text(state.filters), state.counted
    used = max(_used(filters, paid_by(part, counted)) for part in _parts(counted))
    return _epsilon_of_share(used, state.budget)


def _epsilon_of_share(share: float, budget: Budget) -> float:
    """Epsilon of Gaussian noise that uses this share of the squared mu of the budget."""
    mu = math.sqrt(share) * gaussian_mu(budget.epsilon, budget.delta)
    return epsilon_of_mu(mu, budget.delta)
