"""The exact values that benchmarks/papers sets next to the papers' statements."""

import math

import numpy as np
import pytest
import statements
from iftm import Bigrams
from scipy.stats import binom

from dplda.privacy import Gaussian, epsilon_of
from dplda.published._sublda import iteration_epsilon


@pytest.mark.parametrize("n_sweeps", [1, 2])
def test_collapsed_gibbs_sampling_is_within_theorems_1_and_2(n_sweeps):
    loss, bound = statements.largest_loss(0.3, n_sweeps)
    assert 0 < loss <= bound


def test_probabilities_of_a_sweep_sum_to_one():
    ends = np.array(np.meshgrid(*[[0, 1]] * 5)).reshape(5, -1).T
    start = (0, 1, 1, 0, 1)
    total = [statements.log_probability(0, start, end, 0.1) for end in ends]
    assert np.exp(total).sum() == pytest.approx(1)


def test_only_live_tables_leave_the_target_invariant():
    assert statements.invariance_error(inverted=False, live=True) < 1e-12
    assert statements.invariance_error(inverted=False, live=False) > 0.05
    assert statements.invariance_error(inverted=True, live=True) > 0.05


def test_equation_14_is_the_law_of_a_noisy_count():
    law = [statements.likelihood(n, 3, 8, 0.5) for n in range(9)]
    assert sum(law) == pytest.approx(1)
    assert np.dot(law, np.arange(9)) == pytest.approx(3 * 0.75 + 5 * 0.25)
    assert law[8] == pytest.approx(binom.pmf(3, 3, 0.75) * binom.pmf(5, 5, 0.25))


def test_divergence_and_delta_of_the_gaussian_mechanism():
    for ratio in (0.1, 0.5):
        sigma = math.sqrt(14 / 4)
        found = statements.sampled_divergence(ratio, 14, sigma)
        assert found == pytest.approx(iteration_epsilon(ratio, 14, 2.0), rel=1e-6)
    epsilon = epsilon_of(Gaussian(1.5), 1e-5)
    assert statements.gaussian_delta(1.5, epsilon) == pytest.approx(1e-5, rel=1e-3)


def test_the_language_model_of_table_2_is_a_law():
    rng = np.random.default_rng(0)
    model = Bigrams([rng.integers(0, 6, 40), np.array([5, 5, 6])])
    for before in range(7):
        law = [model.probabilities(np.array([before, w]))[1] for w in range(7)]
        assert sum(law) == pytest.approx(1)
        assert min(law) > 0
