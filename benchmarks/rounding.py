"""Rounding errors of the accountant: ``python benchmarks/rounding.py``.

The first table has composed privacy loss distributions. At a sampling rate of nearly 1 the closed
form of Gaussian noise without sampling holds. At the chosen epsilon the true delta is below 1e-18,
so the delta of the grid is the rounding error (1e-15 of it is what the library truncates). The
interval is the accountant's and, where it is short enough for such small deltas, 1e-3.

The second table has the closed form of Gaussian noise, whose root is found in floating point, next
to 50 digits (`pip install mpmath`).
"""

import math

import mpmath
import numpy as np
from dp_accounting import get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

from dplda.privacy import Gaussian, PoissonSampled, Repeated
from dplda.privacy._bounds_on_epsilon import grouped
from dplda.privacy._composed_losses import _grid_interval

RATE = 1 - 1e-12
MUS = (0.15, 1.0, 6.0)  # of the whole composition, whatever the number of rounds


def true_delta(epsilon, mu):
    shift = epsilon / mu
    return norm.sf(shift - mu / 2) - math.exp(epsilon + norm.logsf(shift + mu / 2))


def convolutions():
    print("| rounds | mu | interval | largest error | error / rounds |")
    print("| --- | --- | --- | --- | --- |")
    for n_rounds in (100, 1_000, 10_000, 100_000, 1_000_000):
        for mu in MUS:
            multiplier = math.sqrt(n_rounds) / mu
            epsilons = [mu * (mu / 2 + deviations) for deviations in (9.0, 10.0, 11.0)]
            rounds = Repeated(PoissonSampled(RATE, Gaussian(multiplier)), n_rounds)
            intervals = {_grid_interval(grouped(rounds), epsilons[0])}
            for interval in sorted(intervals | ({1e-3} if multiplier < 250 else set())):
                grid = pld.from_gaussian_mechanism(
                    multiplier, sampling_prob=RATE, value_discretization_interval=interval
                ).self_compose(n_rounds)
                deltas = grid.get_delta_for_epsilon(epsilons)
                error = max(abs(d - true_delta(e, mu)) for d, e in zip(deltas, epsilons))
                each = error / n_rounds
                print(f"| {n_rounds} | {mu} | {interval:.2g} | {error:.1e} | {each:.1e} |")


def closed_form():
    mpmath.mp.dps = 50
    worst = {}
    for multiplier in np.logspace(-2.5, 6.5, 28):
        for delta in (0.3, 1e-2, 1e-4, 1e-6, 1e-9, 1e-14, 1e-30, 1e-100, 1e-250):
            with np.errstate(divide="ignore"):
                found = mpmath.mpf(float(get_epsilon_gaussian(multiplier, delta)))
            if found > 0:
                mu = 1 / mpmath.mpf(multiplier)
                lower = mpmath.exp(found) * mpmath.ncdf(-mu / 2 - found / mu)
                short = mpmath.ncdf(mu / 2 - found / mu) - lower - mpmath.mpf(delta)
                size = "epsilon < 1" if found < 1 else "epsilon >= 1"
                error = abs(float(short / lower))  # the slope of delta in epsilon is -lower
                absolute, relative = worst.get(size, (0.0, 0.0))
                worst[size] = max(absolute, error), max(relative, error / float(found))
    print("\n| root of the closed form | largest error | relative |\n| --- | --- | --- |")
    for size, (absolute, relative) in worst.items():
        print(f"| {size} | {absolute:.1e} | {relative:.1e} |")


if __name__ == "__main__":
    convolutions()
    closed_form()
