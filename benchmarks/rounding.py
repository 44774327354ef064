"""Rounding error of composed privacy loss distributions: ``python benchmarks/rounding.py``.

At a sampling rate of nearly 1 the closed form of Gaussian noise without sampling holds. At the
chosen epsilon the true delta is below 1e-18, so the delta of the grid is the rounding error.
"""

import math

from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

MU = 6.0  # of the whole composition, whatever the number of rounds


def true_delta(epsilon):
    shift = epsilon / MU
    return norm.sf(shift - MU / 2) - math.exp(epsilon + norm.logsf(shift + MU / 2))


def main():
    print("rounds    true delta   delta of the grid   error / rounds")
    for n_rounds in (100, 1_000, 10_000, 100_000, 1_000_000):
        noise_multiplier = math.sqrt(n_rounds) / MU
        grid = pld.from_gaussian_mechanism(
            noise_multiplier, sampling_prob=1 - 1e-12, value_discretization_interval=1e-3
        ).self_compose(n_rounds)
        for epsilon in (72.0, 78.0, 84.0):
            error = grid.get_delta_for_epsilon(epsilon) - true_delta(epsilon)
            each = error / n_rounds
            print(f"{n_rounds:<9} {true_delta(epsilon):10.1e} {error:19.1e} {each:16.1e}")


if __name__ == "__main__":
    main()
