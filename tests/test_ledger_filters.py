"""Adaptive composition: no strategy that sees releases gets past a filter's budget."""

from __future__ import annotations

import math

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
    calibrate,
    epsilon_of,
)

DOCUMENTS = np.random.RandomState(0).poisson(1.0, (12, 6))


# A step flips a bit and has log likelihood ratio e or -e. With probability d it shows
# the unit instead. The best strategy is found by recursion over how often each kind (e,
# d) was used and over the sum of the ratios.


def flips(epsilon):
    return RandomizedResponseEvent(2.0 / (1.0 + math.exp(epsilon)))


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
    assert ledger.entries() == []
    ledger.reserve("a", "document", Laplace(30.0))  # of a kind that none of them has


def test_only_what_a_filter_counts_has_room(make_ledger):
    ledger = make_ledger()
    ledger.reserve("a", "document", Gaussian(9.0))
    ledger.reserve("b", "document", PoissonSampled(0.1, Gaussian(9.0)))
    for other in (Laplace(1e6), flips(1e-6), ApproximateDP(1e-6, 0.0)):
        with pytest.raises(BudgetError):
            ledger.reserve("c", "document", other)


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
