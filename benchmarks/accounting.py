"""What the accountant charges, next to simpler methods and to exact values.

``python benchmarks/accounting.py`` takes a minute.

* Word-level HDPLDA: topic draws as zCDP and in all sweeps, and as the worst two-point laws and in
  all sweeps but the last.
* Optimized unary encoding: pairs of bits as randomized responses, and with their erasure.
* The variance of a rare word's count under both mechanisms at the same total epsilon.
* Poisson-sampled rounds: the grid, next to transforms of losses whose mean no grid rounds.
"""

import math

import numpy as np
import scipy.sparse as sp

from dplda import RandomizedResponse
from dplda.privacy import (
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    ZeroConcentrated,
    epsilon_of,
)
from dplda.privacy._events import BoundedRange
from dplda.privacy._local_mechanisms import RandomizedBits
from dplda.word._word_sweeps import inherent_epsilon

WORD_LEVEL = [
    (50, "laplace", 0.1, 1.05),
    (50, "laplace", 0.1, 1.25),
    (50, "laplace", 0.5, 2.0),
    (50, "laplace", 10.0, math.exp(5)),
    (50, "gaussian", 10.0, 1.25),
]
UNARY = [(5, 1.0), (20, 0.1), (50, 0.5), (100, 0.25), (100, 0.5), (100, 1.0), (100, 2.0)]
SAMPLED = [
    (0.1, 400.0, 100),
    (0.1, 40.0, 100),
    (0.1, 3.5, 80),
    (0.5, 250.0, 10**4),
    (0.5, 1250.0, 10**5),
    (0.5, 4000.0, 10**6),
]


def header(*columns):
    print("\n| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))


def row(*cells):
    print("| " + " | ".join(f"{c:.5g}" if isinstance(c, float) else str(c) for c in cells) + " |")


def word_level():
    header("sweeps", "noise", "C/beta + 1", "zCDP, all sweeps", "two points, all", "charged")
    for n, kind, size, ratio in WORD_LEVEL:
        noise = Repeated(Laplace(2 / size), 2 * n)
        if kind == "gaussian":
            noise = Repeated(Gaussian(size / math.sqrt(2)), n)
        epsilon = inherent_epsilon(ratio - 1, 1.0)
        zcdp = Repeated(ZeroConcentrated(epsilon**2 / 8), n)
        pure = math.inf if kind == "gaussian" else n * (size + epsilon)
        before = min(epsilon_of([noise, zcdp], 1e-5), pure)
        costs = [epsilon_of([noise, Repeated(BoundedRange(epsilon), k)], 1e-5) for k in (n, n - 1)]
        row(n, f"{kind} {size:g}", ratio, before, *costs)


def unary_encoding():
    header("words", "bit_epsilon", "without erasure", "charged", "symmetric")
    for n_words, epsilon in UNARY:
        flip = 1 / (1 + math.exp(2 * epsilon))
        plain = Repeated(RandomizedResponseEvent(2 * flip), n_words)
        both = [RandomizedBits(flip, True), RandomizedBits(1 / (1 + math.exp(epsilon)))]
        costs = [epsilon_of(bits.events(n_words, 10**4), 1e-6) for bits in both]
        row(n_words, epsilon, epsilon_of(plain, 1e-6), *costs)


def rare_words():
    header("cap", "epsilon", "variance, symmetric", "variance, oue", "ratio")
    for cap in (10, 100):
        for epsilon in (1.0, 8.0, 50.0):
            variances = []
            for mechanism in ("symmetric", "oue"):
                client = RandomizedResponse(
                    epsilon=epsilon, max_doc_words=cap, mechanism=mechanism
                ).fit(sp.csr_array((1, 5000)))
                q, p = client.one_probability_
                variances.append(q * (1 - q) / (p - q) ** 2)
            row(cap, epsilon, *variances, variances[1] / variances[0])


def sampled_rounds():
    header("rate", "noise multiplier", "rounds", "charged", "transforms", "excess")
    for q, multiplier, n in SAMPLED:
        charged = epsilon_of(Repeated(PoissonSampled(q, Gaussian(multiplier)), n), 1e-6)
        true = max(by_transforms(*losses(q, multiplier, remove), n, 1e-6) for remove in (0, 1))
        row(q, multiplier, n, charged, f"{true:.9f}", f"{charged / true - 1:.1e}")


def losses(q, multiplier, remove):
    """Probabilities and losses of one sampled step, by quadrature."""
    x = np.linspace(-9.5 * multiplier, 9.5 * multiplier + 1, 400_001)
    without = np.exp(-0.5 * (x / multiplier) ** 2)
    without /= without.sum()
    ratio = np.log1p(q * np.expm1((2 * x - 1) / (2 * multiplier**2)))
    taken = without * np.exp(ratio)
    return (taken / taken.sum(), ratio) if remove else (without, -ratio)


def by_transforms(p, loss, n, delta, n_points=2**20):
    """Epsilon of n steps. Each loss becomes two points of a grid with the same mean."""
    mean = p @ loss
    deviation = math.sqrt(n * (p @ (loss - mean) ** 2))
    interval = (28 * deviation + 2 * abs(loss).max()) / n_points
    below = np.floor(loss / interval)
    share, index = loss / interval - below, below.astype(int)
    law = np.zeros(n_points)
    np.add.at(law, index % n_points, p * (1 - share))
    np.add.at(law, (index + 1) % n_points, p * share)
    total = np.real(np.fft.ifft(np.fft.fft(law) ** n))
    places = np.arange(-n_points // 2, n_points // 2) + round(n * mean / interval)
    total, summed = total[places % n_points], places * interval
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        above = summed > middle
        found = -(total[above] * np.expm1(middle - summed[above])).sum()
        low, high = (low, middle) if found <= delta else (middle, high)
    return high


if __name__ == "__main__":
    word_level()
    unary_encoding()
    rare_words()
    sampled_rounds()
