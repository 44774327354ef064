"""What a ledger takes: time, waits, filtered epsilon: ``python benchmarks/ledger.py``.

Times of reservations are CPU seconds of one process; the waits of the race are seconds
on the clock.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from dplda import PrivateSVILDA, SubLDA
from dplda.privacy import (
    BudgetError,
    Gaussian,
    Ledger,
    PoissonSampled,
    Repeated,
    epsilon_of,
)

DELTA = 1e-6


class Recorder(Ledger):
    """Keeps the plan of a fit and ends the fit."""

    def reserve(self, label, unit, events, **noise):
        self.plan = tuple(events)
        raise InterruptedError


def plan_of(model):
    ledger = Recorder()
    with suppress(InterruptedError):
        model.set_params(ledger=ledger).fit([[1, 1]])
    return ledger.plan


def changed(event, factor):
    match event:
        case Gaussian(noise_multiplier):
            return Gaussian(factor * noise_multiplier)
        case PoissonSampled(q, inner):
            return PoissonSampled(q, changed(inner, factor))
        case Repeated(inner, n):
            return Repeated(changed(inner, factor), n)


def reservations(folder, most):
    """Fits that all differ: the time of one more reservation, and of a new total.

    The total is that of a new process.
    """
    print(
        "| fits | entries | seconds of a reservation | of the total, read anew | MB |"
    )
    print("| --- | --- | --- | --- | --- |")
    for name, event in {
        "Gaussian": Gaussian(300.0),
        "sampled": PoissonSampled(0.1, Gaussian(100.0)),
    }.items():
        path, done = Path(folder, f"{name}.sqlite"), 0
        ledger = Ledger(path, epsilon=1e6)
        for n in (n for n in (10, 100, 1000) if n <= most):
            while done < n:
                start = time.process_time()
                ledger.reserve(
                    "fit", "document", Repeated(changed(event, 1 + 1e-4 * done), 80)
                )
                last, done = time.process_time() - start, done + 1
            start = time.process_time()
            assert Ledger(path).epsilon_spent < 1e6
            total, size = time.process_time() - start, path.stat().st_size / 1e6
            print(
                f"| {name} | {n} | {last:.3f} | {total:.3f} | {size:.1f} |", flush=True
            )


RACE = """
import sys, time
from dplda.privacy import BudgetError, Gaussian, Ledger
ledger, count, longest = Ledger(sys.argv[1]), 0, 0.0
print("ready", flush=True)
sys.stdin.readline()
try:
    while True:
        start = time.perf_counter()
        ledger.reserve("race", "document", Gaussian(float(sys.argv[2])))
        longest, count = max(longest, time.perf_counter() - start), count + 1
except BudgetError:
    print(count, longest)
"""


def race(folder):
    allowed, noise = 100, 50.0
    path = Path(folder, "race.sqlite")
    Ledger(path, epsilon=epsilon_of(Repeated(Gaussian(noise), allowed), DELTA))
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, path, str(noise)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for racer in racers:
        racer.stdout.readline()
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    results = [racer.communicate()[0].split() for racer in racers]
    counts = [int(count) for count, _ in results]
    longest = max(float(wait) for _, wait in results)
    print(
        f"\n8 processes, {allowed} fit into the budget: granted {sum(counts)}, "
        f"{sorted(counts)}"
    )
    print(f"longest wait {longest:.2f} s, on {os.cpu_count()} processors")


def smallest_budget(*plans):
    """Smallest epsilon of an adaptive ledger that allows the plans, to 1e-3."""

    def admits(epsilon):
        ledger = Ledger(epsilon=epsilon, composition="adaptive")
        try:
            for plan in plans:
                ledger.reserve("fit", "document", plan)
        except BudgetError:
            return False
        return True

    low = high = epsilon_of(plans[-1], DELTA)
    while not admits(high):
        low, high = high, 1.5 * high
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high


def prices():
    print("\nAdaptive composition: smallest budget that allows the fit\n")
    print("| fit | epsilon | alone | after a fit with noise x 30 (planned) |")
    print("| --- | --- | --- | --- |")
    for epsilon in (1.0, 4.0):
        for name, model in {
            "SubLDA": SubLDA(epsilon=epsilon),
            "SubLDA, sampled at 0.1": SubLDA(
                epsilon=epsilon, subsampling_ratio=0.1, max_iter=80
            ),
            "PrivateSVILDA": PrivateSVILDA(epsilon=epsilon),
        }.items():
            plan = plan_of(model)
            small = [changed(event, 30.0) for event in plan]
            planned = epsilon_of([*small, *plan], DELTA)
            print(
                f"| {name} | {epsilon:g} | {smallest_budget(plan):.3f} "
                f"| {smallest_budget(small, plan):.3f} ({planned:.3f}) |",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1000, help="10, 100 or 1000")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reservations(folder, options.entries)
        race(folder)
    prices()


if __name__ == "__main__":
    main()
