"""Noise for a given budget: loss of sampled steps, the search, plans of many rounds."""

import itertools
import re

import pytest

from dplda.document._document_budget import document_budget
from dplda.privacy import (
    Gaussian,
    PoissonSampled,
    Repeated,
    _accounting,
    calibrate,
    epsilon_of,
)
from dplda.privacy.mechanisms import TOTAL_VARIATION, DiscreteGaussian


def rounded(noise):
    """To a grid: the cost jumps with the noise, by more than a calibration may miss."""
    return DiscreteGaussian.for_noise_multiplier(noise).event


@pytest.mark.parametrize(
    ("make_event", "epsilon", "delta", "n", "q"),
    [
        (Gaussian, 1.0, 1e-5, 80, 0.1),
        (Gaussian, 0.05, 1e-6, 200, 0.5),
        (Gaussian, 8.0, 1e-5, 1000, 0.01),
        (Gaussian, 4.0, 1e-9, 20, 0.9),
        (rounded, 0.05, 1e-6, 200, 0.5),
    ],
)
def test_a_calibration_composes_few_laws(monkeypatch, make_event, epsilon, delta, n, q):
    composed = []
    bound = _accounting.bound_epsilon

    def counted(groups, delta):
        composed.append(groups)
        return bound(groups, delta)

    def step(noise):
        return Repeated(PoissonSampled(q, make_event(noise)), n)

    monkeypatch.setattr(_accounting, "bound_epsilon", counted)
    noise = calibrate(step, epsilon, delta)
    monkeypatch.undo()
    assert 0 < len(composed) <= 12
    less = step(noise * (1 - 1.1e-4))
    assert epsilon_of(step(noise), delta) <= epsilon < epsilon_of(less, delta)


@pytest.mark.parametrize("share", [1.02, 1.11, 1.2])
def test_less_noise_does_not_do_where_most_of_the_cost_does_not_depend_on_it(share):
    """An epsilon within 1e-4 of the target may be far more than 1e-4 too noisy."""
    others = Repeated(PoissonSampled(0.1, Gaussian(4.0)), 100)
    epsilon = share * epsilon_of(others, 1e-6)

    def events(noise):
        return [Repeated(PoissonSampled(0.1, Gaussian(noise)), 10), others]

    noise = calibrate(events, epsilon, 1e-6)
    assert epsilon_of(events(noise), 1e-6) <= epsilon
    assert epsilon_of(events(noise * (1 - 1.01e-4)), 1e-6) > epsilon


def plan_of(epsilon, delta, max_iter, ratio=1.0):
    budget = document_budget(
        epsilon, None, delta, max_iter=max_iter, subsampling_ratio=ratio
    )
    return [event for _, event in budget.plan(0, max_iter)]


@pytest.mark.parametrize(
    ("ratio", "rounds"),
    [
        (1.0, 1500),
        pytest.param(1.0, 10_000, marks=pytest.mark.slow),
        pytest.param(0.5, 10_000, marks=pytest.mark.slow),
    ],
)
def test_a_plan_meets_epsilon_or_the_error_names_a_number_of_rounds_that_does(
    ratio, rounds
):
    grid = itertools.product([0.002, 0.1, 2.0], [1e-9, 1e-3], [1, 100, rounds])
    for epsilon, delta, max_iter in itertools.islice(
        grid, None, None, 1 if ratio == 1.0 else 5
    ):
        try:
            plan = plan_of(epsilon, delta, max_iter, ratio)
        except ValueError as error:
            max_iter = int(re.search(r"max_iter=(\d+) rounds", str(error))[1])
            plan = plan_of(epsilon, delta, max_iter, ratio)
            with pytest.raises(ValueError, match="max_iter"):
                plan_of(epsilon, delta, max_iter + max_iter // 50 + 2, ratio)
        assert len(plan) == max_iter + 2
        assert epsilon_of(plan, delta, total_variation=TOTAL_VARIATION) <= epsilon
