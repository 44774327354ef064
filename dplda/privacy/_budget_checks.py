"""Whether the budget of a ledger has room for one more charge.

With planned composition the total of all entries is compared with the budget. With adaptive
composition the filters decide that the first entry has chosen.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dplda.privacy._accounting import gaussian_mu, is_within
from dplda.privacy._bounds_on_epsilon import epsilon_of_mu
from dplda.privacy._entries import Budget, Entry, State, number_of_user_parts
from dplda.privacy._errors import BudgetError
from dplda.privacy._filters import Filters, choose_filters
from dplda.privacy._running_costs import (
    QUICK_SIZE,
    RunningCosts,
    is_surely_within,
    quick_cost,
)
from dplda.privacy._totals import paid_by, summed, total_of, why_infinite


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
    costs = _running_costs(state.ledger_id, "")
    after = costs.after(new, costs.of(state.entries))
    if all(is_surely_within(total, epsilon, delta) for total in after.values()):
        return
    for part in after:
        events, distance = summed(paid_by(part, [*counted, new]))
        if not is_within(events, epsilon, delta, total_variation=distance):
            total, before = (total_of(e, delta) for e in ([*counted, new], counted))
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
    filters, costs = Filters.from_text(text), _running_costs(state.ledger_id, text)
    before = costs.of(state.entries)
    for part, total in costs.after(new, before).items():
        if filters.used(total) > 1.0:
            raise _refused(new, budget, filters.used(before.get(part, before[None])))
    return text


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
    sums = _running_costs(state.ledger_id, state.filters).of(state.entries)
    used = max(map(Filters.from_text(state.filters).used, sums.values()))
    return _epsilon_of_share(used, state.budget)


def _epsilon_of_share(share: float, budget: Budget) -> float:
    """Epsilon of Gaussian noise that uses this share of the squared mu of the budget."""
    mu = math.sqrt(share) * gaussian_mu(budget.epsilon, budget.delta)
    return epsilon_of_mu(mu, budget.delta)


@lru_cache(maxsize=16)  # for each ledger of this process, also if each fit opens it by path
def _running_costs(ledger_id: str, filters: str) -> RunningCosts:
    if not filters:
        return RunningCosts(quick_cost, QUICK_SIZE)
    some = Filters.from_text(filters)
    return RunningCosts(
        lambda entry: some.cost(entry.events, entry.total_variation), len(some.limits)
    )
