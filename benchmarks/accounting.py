"""Figures of accounting: bounds by exact values, calibrations, detection, word sweeps.

``python benchmarks/accounting.py TABLE`` prints one of

* ``bounds``: two-sided bounds of epsilon on twenty settings (docs/accounting.md);
* ``library``: settings in which a library is below the exact value. Needs the extra
  ``oracle``;
* ``calibration``: CPU seconds of one thread that a calibration takes, the longest of
  three deltas. No setting repeats, so none is in a cache;
* ``detection``: detection at 1 false alarm in 100, groups, and two models
  (docs/guarantee.md);
* ``words``: the cost of HDP-LDA (docs/proofs_word.md).
"""

from __future__ import annotations

import argparse
import itertools
import math
import time

from dplda.privacy import (
    Gaussian,
    Guarantee,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    calibrate,
    epsilon_bounds,
    epsilon_of,
)
from dplda.privacy._events import BoundedRange


def sampled(rate: float, noise: float, count: int) -> Repeated:
    event = Gaussian(noise)
    return Repeated(event if rate == 1 else PoissonSampled(rate, event), count)


SETTINGS = [
    ("sampled 1e-4, 5, 1e5 rounds", sampled(1e-4, 5.0, 10**5), 1e-6),
    ("sampled .001, 2, 1e5", sampled(0.001, 2.0, 10**5), 1e-10),
    ("sampled .01, 1, 1e4", sampled(0.01, 1.0, 10**4), 1e-6),
    ("sampled .01, 3, 1e5", sampled(0.01, 3.0, 10**5), 1e-12),
    ("sampled .1, 2, 1000", sampled(0.1, 2.0, 1000), 1e-9),
    ("sampled .1, 50, 1e5", sampled(0.1, 50.0, 10**5), 1e-12),
    ("sampled .9, 10, 1000", sampled(0.9, 10.0, 1000), 1e-12),
    ("Gaussian 50, 1e4", Repeated(Gaussian(50.0), 10**4), 1e-6),
    ("sampled .01, .7, 2000", sampled(0.01, 0.7, 2000), 1e-5),
    ("sampled 1e-4, 1, 1e5", sampled(1e-4, 1.0, 10**5), 1e-6),
    ("sampled 2.5e-5, .38, 16000", sampled(2.5e-5, 0.38, 16000), 1e-4),
    ("sampled .5, 79.3937, 1e6", sampled(0.5, 79.3937, 10**6), 1e-10),
    ("sampled .05, 1.5, 200", sampled(0.05, 1.5, 200), 1e-6),
    ("sampled .3, .8, once", sampled(0.3, 0.8, 1), 1e-6),
    ("Gaussian 30, 40", Repeated(Gaussian(30.0), 40), 1e-100),
    ("sampled .2, 2, 500", sampled(0.2, 2.0, 500), 1e-30),
    ("sampled .99, 5, 1000", sampled(0.99, 5.0, 1000), 1e-6),
    (
        "Gaussian 3, sampled .1 2 200, Laplace 5 10",
        [Gaussian(3.0), sampled(0.1, 2.0, 200), Repeated(Laplace(5.0), 10)],
        1e-6,
    ),
    ("Laplace 4, 100", Repeated(Laplace(4.0), 100), 1e-5),
    ("responses .9, 1000", Repeated(RandomizedResponseEvent(0.9), 1000), 1e-9),
]


def bounds() -> None:
    epsilon_bounds(sampled(0.3, 2.0, 10), 1e-5)  # imports
    print(
        "| events | delta | epsilon | ratio - 1 | seconds |\n| --- | --- | --- | --- | "
        "--- |"
    )
    for name, events, delta in SETTINGS:
        start = time.process_time()
        epsilon_of(events, delta)
        seconds = time.process_time() - start
        low, high = epsilon_bounds(events, delta)
        print(
            f"| {name} | {delta:g} | {low:.7g} to {high:.7g} "
            f"| {high / low - 1:.1e} | {seconds:.3f} |"
        )


def library() -> None:
    """Gaussian noise, in closed form, by another library's loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    print("| noise | rounds | exact, at least | dp-accounting, interval 1e-4 |")
    print("| --- | --- | --- | --- |")
    below = 0
    cases = [
        (s, n)
        for n in (10**3, 10**4, 10**5)
        for s in (50.0, 100.0, 150.0, 200.0, 300.0, 450.0)
    ]
    for noise, rounds in cases:
        law = pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-4)
        theirs = law.self_compose(rounds).get_epsilon_for_delta(1e-12)
        exact = epsilon_bounds(Repeated(Gaussian(noise), rounds), 1e-12)[0]
        below += theirs < exact
        if theirs < exact:
            print(f"| {noise:g} | {rounds} | {exact:.5f} | {theirs:.5f} |")
    print(f"\n{below} of {len(cases)} are below the exact value.")


EPSILONS, DELTAS = (0.1, 1.0, 4.0, 20.0), (1e-9, 1e-6, 1e-3)


def calibration() -> None:
    def seconds(n_rounds: int, rate: float, epsilon: float, delta: float) -> float:
        start = time.thread_time()
        calibrate(lambda noise: sampled(rate, noise, n_rounds), epsilon, delta)
        return time.thread_time() - start

    seconds(3, 0.1, 2.0, 1e-6)  # loads the accountant
    print(
        "| rounds | rate |",
        " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS),
        "|",
    )
    print("| --- |" + " --- |" * (1 + len(EPSILONS)))
    for n_rounds, rate in itertools.product(
        (1, 80, 1000, 10_000), (1.0, 0.1, 0.01, 0.001)
    ):
        row = [
            # one round at a rate below delta needs no noise
            max(
                seconds(n_rounds, rate, e, d)
                for d in DELTAS
                if n_rounds > 1 or d < rate
            )
            for e in EPSILONS
        ]
        cells = " | ".join(f"{value:.2f}" for value in row)
        print(f"| {n_rounds} | {rate:g} | {cells} |", flush=True)


def detection() -> None:
    delta = 1e-6

    def guarantee(epsilon, events):
        return Guarantee(
            "document",
            "one document is added or removed",
            epsilon,
            delta,
            "",
            1.0,
            None,
            False,
            events=events,
        )

    def upward(rate):
        """Percent, rounded up to three digits."""
        step = 10.0 ** (math.floor(math.log10(100.0 * rate)) - 2)
        return math.ceil(100.0 * rate / step) * step

    print(
        "| epsilon at delta 1e-6 | mu | detection rate | by these alone | groups of 3, "
        "10 |"
    )
    print("| --- | --- | --- | --- | --- |")
    for epsilon in (0.5, 1.0, 4.0, 8.0):
        events = (Gaussian(calibrate(Gaussian, epsilon, delta)),)
        exact = guarantee(epsilon_of(events, delta), events)
        alone = guarantee(epsilon, ())
        groups = ", ".join(f"{exact.for_groups(k).epsilon:.1f}" for k in (3, 10))
        print(
            f"| {epsilon:g} | {exact.gaussian_mu:.3f} | "
            f"{upward(exact.detection_rate()):.3g} | "
            f"{upward(alone.detection_rate()):.3g} | {groups} |"
        )
    twice = epsilon_of([Gaussian(calibrate(Gaussian, 4.0, delta))] * 2, delta)
    print(f"two models of epsilon 4: {twice:.3g}")


def words() -> None:
    print("| T | epsilon_L | C / beta + 1 | epsilon_I | sum | `epsilon_` |")
    print("| --- | --- | --- | --- | --- | --- |")
    n = 50
    for noise, ratio in ((0.1, 1.25), (0.5, 2.0), (10.0, math.exp(5))):
        draw = 2 * math.log(ratio)
        events = [
            Repeated(Laplace(2 / noise), 2 * n),
            Repeated(BoundedRange(draw), n - 1),
        ]
        total, found = n * noise + (n - 1) * draw, epsilon_of(events, 1e-5)
        print(
            f"| {n} | {noise:g} | {ratio:.4g} | {draw:.4f} | {total:.3f} | {found:.3f} "
            "|"
        )


if __name__ == "__main__":
    tables = {
        table.__name__: table
        for table in (bounds, library, calibration, detection, words)
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=tables)
    tables[parser.parse_args().table]()
