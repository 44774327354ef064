"""What a ledger takes: time, waits, and epsilon under filters: ``python benchmarks/ledger.py``.

``--sampled`` prints the fits with sampling alone. Times are CPU seconds of one process, but the
waits of the race are seconds on the clock.
"""

import gc
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
from dplda.privacy import _accounting as accounting
from dplda.privacy import _bounds_on_epsilon as bounds
from dplda.privacy import _composed_losses as losses
from dplda.privacy._bounds_on_epsilon import grouped
from dplda.privacy._filters import _renyi

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


def filled(path, plans, **budget):
    """A ledger with one entry for each plan, all in one transaction."""
    ledger = Ledger(path, **budget)
    number = ledger.reserve("first", "document", plans[0])
    with ledger._store.transaction(write=True) as page:
        first = page.entries()[number - 1]
        for events in plans[1:]:
            page.add(type(first)(**vars(first) | {"events": tuple(events)}))
    return ledger


def seconds(ledger, plans):
    ledger.reserve("to read the file", "document", plans[0])
    start = time.process_time()
    for events in plans[1:]:
        ledger.reserve("timed", "document", events)
    return (time.process_time() - start) / (len(plans) - 1)


def reservations(folder):
    print("entries                          number   seconds of one reservation")
    plan = plan_of(SubLDA(epsilon=1.0))
    for n in (10, 1_000, 10_000):
        path = Path(folder, f"{n}.sqlite")
        plans = [[changed(event, 1e4 + i) for event in plan] for i in range(n + 6)]
        ledger = filled(path, plans[:n], epsilon=1.0)
        took = seconds(ledger, plans[n:])
        start = time.process_time()
        assert ledger.epsilon_spent < 1.0
        total = time.process_time() - start
        size = path.stat().st_size / 1e6
        print(f"{'SubLDA':<30} {n:>8} {took:10.4f}   file: {size:.1f} MB, total: {total:.3f} s")


def sampled(folder):
    print("\nfits with sampling, each with its own multiplier; the quick bound cannot decide")
    print("entries   first   later   total   MB before, after the first, after the later; tree")
    for n in (5, 20, 100, 1_000):
        plans = [
            [Repeated(PoissonSampled(0.1, Gaussian(4.0 * n**0.5 + 0.001 * i)), 80)]
            for i in range(n + 12)
        ]
        spent = epsilon_of([event for events in plans for event in events], DELTA)
        ledger = filled(Path(folder, f"sampled {n}.sqlite"), plans[:n], epsilon=1.0001 * spent)
        for cached in (losses._trees, losses._composed, accounting._epsilon,
                       accounting._quick_epsilon, bounds.divergence):  # fmt: skip
            cached.cache_clear()
        memory = [megabytes()]
        start = time.process_time()
        Ledger(ledger.path).reserve("first", "document", plans[n])
        first = time.process_time() - start
        memory.append(megabytes())
        later = seconds(ledger, plans[n + 1 :])
        memory.append(megabytes())
        start = time.process_time()
        assert ledger.epsilon_spent <= ledger.epsilon
        total = time.process_time() - start
        memory.append(8e-6 * losses._trees._roots[0][1].n_numbers)
        sizes = ", ".join(f"{size:.0f}" for size in memory)
        print(f"{n:>7} {first:7.2f} {later:7.3f} {total:7.3f}   {sizes}")


def megabytes():
    """Memory that this process has now, on Linux."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


RACE = """
import sys, time
from pathlib import Path
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
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(8)
    ]  # fmt: skip
    for racer in racers:
        racer.stdout.readline()
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    results = [racer.communicate()[0].split() for racer in racers]
    counts = [int(count) for count, _ in results]
    longest = max(float(wait) for _, wait in results)
    print(f"\n8 processes, {allowed} fit into the budget: granted {sum(counts)}, {sorted(counts)}")
    print(f"longest wait {longest:.2f} s, on {os.cpu_count()} processors")


def smallest_budget(plan, admits):
    """Smallest epsilon of a ledger that allows the plan, to 1e-3."""
    low = high = epsilon_of(plan, DELTA)
    while not admits(plan, high):
        low, high = high, 1.5 * high
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if admits(plan, middle) else (middle, high)
    return high


def alone(plan, epsilon):
    return allowed(Ledger(epsilon=epsilon, composition="adaptive"), plan)


def after_small(share):
    """The same fit after a small one of the same kind, with another multiplier."""

    def admits(plan, epsilon):
        ledger = Ledger(epsilon=epsilon, composition="adaptive")
        small = [changed(event, 1.0 / share) for event in plan]
        return allowed(ledger, small) and allowed(ledger, plan)

    return admits


def within_one_order(plan, epsilon):
    groups = grouped(plan)
    one = _renyi(groups, epsilon, DELTA)
    return one.cost(groups)[0] <= one.divergence


def changed(event, factor):
    match event:
        case Gaussian(noise_multiplier):
            return Gaussian(factor * noise_multiplier)
        case PoissonSampled(q, inner):
            return PoissonSampled(q, changed(inner, factor))
        case Repeated(inner, n):
            return Repeated(changed(inner, factor), n)


def allowed(ledger, plan):
    try:
        ledger.reserve("fit", "document", plan)
    except BudgetError:
        return False
    return True


def prices():
    print("\nadaptive composition: smallest budget of the ledger that allows the fit")
    print(
        "fit                       epsilon   alone   after noise x 30 (planned)   one Renyi order"
    )
    for epsilon in (1.0, 4.0):
        for name, model in {
            "SubLDA": SubLDA(epsilon=epsilon),
            "SubLDA, sampled at 0.1": SubLDA(epsilon=epsilon, subsampling_ratio=0.1, max_iter=80),
            "PrivateSVILDA": PrivateSVILDA(epsilon=epsilon),
        }.items():
            plan = plan_of(model)
            small = [changed(event, 30.0) for event in plan]
            planned = epsilon_of([*small, *plan], DELTA)
            first = smallest_budget(plan, alone)
            later = smallest_budget(plan, after_small(1 / 30.0))
            renyi = smallest_budget(plan, within_one_order)
            print(
                f"{name:<24} {epsilon:>8} {first:7.3f} {later:15.3f} ({planned:.3f}) {renyi:15.3f}"
            )


def main():
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:] != ["--sampled"]:
            reservations(folder)
        sampled(folder)
        if sys.argv[1:] == ["--sampled"]:
            return
        race(folder)
    prices()


if __name__ == "__main__":
    main()
