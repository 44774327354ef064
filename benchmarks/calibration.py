"""CPU seconds of one thread that a calibration takes: ``python benchmarks/calibration.py``.

Each line is the longest of three deltas. No setting repeats, so none is in a cache.
"""

import argparse
import itertools
import time

from dplda.privacy import Gaussian, PoissonSampled, Repeated, calibrate

EPSILONS, DELTAS = (0.1, 1.0, 4.0, 20.0), (1e-9, 1e-6, 1e-3)
ROUNDS, RATES = (1, 80, 1000, 10_000), (1.0, 0.1, 0.01, 0.001)


def seconds(n_rounds: int, rate: float, epsilon: float, delta: float) -> float:
    def plan(multiplier: float) -> Repeated:
        event = Gaussian(multiplier)
        return Repeated(event if rate == 1 else PoissonSampled(rate, event), n_rounds)

    start = time.thread_time()
    calibrate(plan, epsilon, delta)
    return time.thread_time() - start


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    seconds(3, 0.1, 2.0, 1e-6)  # loads the accountant
    print("| rounds | rate |", " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS), "|")
    print("| --- |" + " --- |" * (1 + len(EPSILONS)))
    for n_rounds, rate in itertools.product(ROUNDS, RATES):
        row = [
            # one round at a rate below delta needs no noise
            max(seconds(n_rounds, rate, e, d) for d in DELTAS if n_rounds > 1 or d < rate)
            for e in EPSILONS
        ]
        cells = " | ".join(f"{value:.2f}" for value in row)
        print(f"| {n_rounds} | {rate:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
