"""Adaptive composition: no strategy that sees releases gets past a filter's budget."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest

from dplda import PrivateSVILDA, SubLDA
from dplda.privacy import (
    ApproximateDP,
    BudgetError,
    Gaussian,
    Laplace,
    Ledger,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    calibrate,
    epsilon_of,
)
from dplda.privacy._composition import TILTS, renyi_epsilons
from dplda.privacy._filters import Filter, choose_filter

DOCUMENTS = np.random.RandomState(0).poisson(1.0, (12, 6))


# A step flips a bit and has log likelihood ratio e or -e. With probability d it shows
# the unit instead. The best strategy is found by recursion over how often each kind (e,
# d) was used and over the sum of the ratios.


def flips(epsilon):
    return RandomizedResponseEvent(2.0 / (1.0 + math.exp(epsilon)))


def largest_delta(kinds, epsilon, allowed):
    """Exact delta at epsilon of a strategy that chooses steps by what was released."""

    @lru_cache(None)
    def value(counts, loss):
        best = max(0.0, 1.0 - math.exp(epsilon - loss))
        for i, kind in enumerate(kinds):
            e, d = kind if isinstance(kind, tuple) else (kind, 0.0)
            further = tuple(n + (i == j) for j, n in enumerate(counts))
            if allowed(further):
                up = 1.0 / (1.0 + math.exp(-e))
                gains = (value(further, round(loss + sign * e, 9)) for sign in (1, -1))
                gain = sum(
                    p * gain for p, gain in zip((up, 1 - up), gains, strict=True)
                )
                best = max(best, d + (1.0 - d) * gain)
        return best

    return value((0,) * len(kinds), 0.0)


KINDS, BESIDE_STATEMENTS = (1.0, 0.25), (0.25, (0.5, 0.002))


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.02), (3.0, 0.003), (1.0, 0.1)])
@pytest.mark.parametrize(
    ("steps", "plan"),
    [
        (KINDS, [0]),
        (KINDS, [1, 1]),
        (KINDS, [0, 1]),
        (BESIDE_STATEMENTS, [0]),
        (BESIDE_STATEMENTS, [1]),
        (BESIDE_STATEMENTS, [0, 0, 1]),
    ],
)
def test_no_strategy_gets_past_the_filter(steps, plan, epsilon, delta):
    events = [
        ApproximateDP(*step) if isinstance(step, tuple) else flips(step)
        for step in steps
    ]
    chosen = choose_filter(tuple(events[i] for i in plan), 0.0, epsilon, delta)
    costs = [chosen.cost((event,), 0.0) for event in events]

    @lru_cache(None)
    def has_room(counts):
        total = sum(
            (n * cost for n, cost in zip(counts, costs) if n), np.zeros(len(costs[0]))
        )
        return sum(counts) <= 40 and chosen.used(total) <= 1.0

    assert largest_delta(steps, epsilon, has_room) <= delta
    assert has_room((plan.count(0), plan.count(1)))


@pytest.mark.parametrize("total_variation", [1e-9, 2e-4])
@pytest.mark.parametrize(
    "plan", [[Gaussian(3.0)], [flips(0.05)], [Laplace(9.0), Gaussian(9.0)]]
)
def test_filter_distances_and_statements_share_delta(plan, total_variation):
    epsilon, delta, stated = 2.0, 0.01, ApproximateDP(0.05, 1e-4)
    chosen = choose_filter((*plan, stated), total_variation, epsilon, delta)
    distance, lost, shift = chosen.reserved
    assert distance >= total_variation
    assert min(lost - stated.delta, shift - stated.epsilon) >= 0.0
    ((what, limit),) = chosen.limits
    left = delta - lost - (1 + math.exp(epsilon)) * distance
    if what is None:
        spent = epsilon_of(Gaussian(limit**-0.5), left)
    else:
        spent = renyi_epsilons(np.full(len(TILTS), limit), left)[what]
    assert 0.999 * (epsilon - shift) < spent <= (epsilon - shift) * (1 + 1e-12)


@pytest.mark.parametrize("composition", ["planned", "adaptive"])
def test_a_ledger_charges_statements(composition):
    plan = [Gaussian(5.0), ApproximateDP(0.1, 1e-7)]
    ledger = Ledger(epsilon=1.3, composition=composition)
    ledger.reserve("a", "document", plan)
    assert Ledger(epsilon=epsilon_of(plan, 1e-6) * (1 + 1e-9)).reserve(
        "a", "document", plan
    )
    for refused in ([ApproximateDP(0.5, 0.0)], [ApproximateDP(0.0, 9.5e-7)], plan * 3):
        with pytest.raises(BudgetError):
            ledger.reserve("b", "document", refused)
    assert len(ledger.entries()) == 1


def test_noise_is_calibrated_beside_statements():
    def plan(noise):
        return [Gaussian(noise), ApproximateDP(0.1, 1e-7)]

    noise = calibrate(plan, 1.0, 1e-6)
    assert 0.9999 < epsilon_of(plan(noise), 1e-6) <= 1.0
    with pytest.raises(ValueError, match="ApproximateDP events alone cost all"):
        calibrate(plan, 0.1, 1e-6)


@pytest.mark.parametrize("epsilon", [800.0, 1e9])
def test_at_a_huge_epsilon_no_distance_from_ideal_noise_is_allowed(epsilon):
    ledger = Ledger(epsilon=epsilon, composition="adaptive")
    with pytest.raises(BudgetError):
        ledger.reserve("a", "document", Gaussian(5.0), total_variation=1e-300)
    ledger.reserve("a", "document", Gaussian(5.0))
    assert 0.0 < ledger.epsilon_spent < epsilon


def test_a_filter_comes_back_as_it_was_written():
    plan = (
        Repeated(PoissonSampled(0.1, Gaussian(2.0)), 7),
        Gaussian(9.0),
        Laplace(0.3),
    )
    for epsilon, what in (
        (30.0, int),
        (epsilon_of(plan, 1e-6) * (1 + 1e-4), type(None)),
    ):
        chosen = choose_filter(plan, 1e-20, epsilon, 1e-6)
        assert Filter.from_text(chosen.to_text()) == chosen
        assert type(chosen.limits[0][0]) is what


@pytest.fixture(params=["memory", "file"])
def make_ledger(request, tmp_path):
    path = tmp_path / "privacy.sqlite" if request.param == "file" else None
    return lambda epsilon=4.0, **more: Ledger(
        path, epsilon=epsilon, composition="adaptive", **more
    )


@pytest.mark.parametrize(
    "model",
    [
        SubLDA(2, epsilon=4.0),
        SubLDA(2, epsilon=4.0, subsampling_ratio=0.1),
        PrivateSVILDA(2, epsilon=1.0, max_iter=20),
    ],
)
def test_a_fit_may_take_the_whole_budget(model):
    ledger = Ledger(epsilon=model.epsilon, composition="adaptive")
    model.set_params(ledger=ledger).fit(DOCUMENTS)
    assert ledger.epsilon_at(1e-6) == model.epsilon
    with pytest.raises(BudgetError, match="would spend"):
        model.fit(DOCUMENTS)
    assert len(ledger.entries()) == 1


def test_a_first_plan_above_the_budget_fixes_nothing(make_ledger):
    ledger = make_ledger()
    for events in (Gaussian(0.1), NonPrivate(), PoissonSampled(0.5, Gaussian(0.1))):
        with pytest.raises(BudgetError, match="would spend"):
            ledger.reserve("a", "document", events)
    assert ledger._read().filter == ""
    assert ledger.entries() == []


def test_only_what_a_filter_counts_has_room(make_ledger):
    ledger = make_ledger()
    ledger.reserve("a", "document", Gaussian(9.0))
    ledger.reserve("b", "document", PoissonSampled(0.1, Gaussian(9.0)))
    for other in (Laplace(1e6), flips(1e-6), ApproximateDP(1e-6, 0.0)):
        with pytest.raises(BudgetError):
            ledger.reserve("c", "document", other)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("noise", [1e-3, 1e-60, 1e-100])
def test_next_to_no_noise_has_room_in_no_filter(noise):
    filter_of_steps = choose_filter(
        (PoissonSampled(0.1, Gaussian(9.0)),), 0.0, 4.0, 1e-6
    )
    assert isinstance(filter_of_steps.limits[0][0], int)
    cost = filter_of_steps.cost((PoissonSampled(0.5, Gaussian(noise)),), 0.0)
    assert filter_of_steps.used(cost) == math.inf


@pytest.mark.parametrize(
    "budget", [{}, {"epsilon": math.inf}, {"epsilon": 1.0, "delta": 1e-310}]
)
def test_a_filter_needs_a_budget(budget, tmp_path):
    for path in (None, tmp_path / "privacy.sqlite"):
        with pytest.raises(ValueError, match="adaptive composition needs a budget"):
            Ledger(path, composition="adaptive", **budget)
    assert list(tmp_path.iterdir()) == []


def test_composition_is_part_of_the_budget(tmp_path):
    path = tmp_path / "privacy.sqlite"
    Ledger(path, epsilon=1.0, composition="adaptive").reserve(
        "a", "document", Gaussian(9.0)
    )
    assert Ledger(path).composition == "adaptive"
    with pytest.raises(ValueError, match="has composition adaptive, not planned"):
        Ledger(path, composition="planned")
    with pytest.raises(ValueError, match="'planned' or 'adaptive', got 'free'"):
        Ledger(composition="free")
