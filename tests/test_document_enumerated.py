"""Enumerations of the room of documents: formulas against exact values and twins."""

import itertools
import re

import pytest

from dplda.document._document_budget import document_budget
from dplda.privacy import (
    epsilon_of,
)
from dplda.privacy.mechanisms import TOTAL_VARIATION


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
