"""What calibration and the bookkeeping of many rounds take: ``python benchmarks/calibration.py``.

CPU seconds of one thread. Each calibration starts without what earlier ones have computed, in a
process that has loaded the accountant. ``--rounds`` prints the bookkeeping of one more call of
`partial_fit` after many, and ``--fits`` small fits with and without a ledger.
"""

import argparse
import dataclasses
import itertools
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

from dplda import SubLDA
from dplda.core._private_fit import check_paid
from dplda.datasets import make_topic_corpus
from dplda.document import _document_budget
from dplda.document._document_budget import DocumentBudget, document_guarantee
from dplda.privacy import _accounting, _bounds_on_epsilon, _composed_losses

EPSILONS, DELTAS = (0.1, 1.0, 4.0, 20.0, 100.0), (1e-9, 1e-6, 1e-3)
ROUNDS, RATIOS = (1, 80, 1000, 10_000), (1.0, 0.1, 0.01, 0.001)


def forget():
    """Empty all caches of the accountant, and that of budgets."""
    for module in (_accounting, _bounds_on_epsilon, _composed_losses, _document_budget):
        for value in vars(module).values():
            if hasattr(value, "cache_clear") and not isinstance(value, type):
                value.cache_clear()


def budget_of(epsilon, delta, max_iter, ratio):
    return DocumentBudget.from_statement(
        epsilon, None, delta, max_iter=max_iter, word_total_share=0.25, subsampling_ratio=ratio
    )


def seconds(function, *arguments):
    start = time.thread_time()
    function(*arguments)
    return time.thread_time() - start


def print_calibrations():
    budget_of(2.0, 1e-6, 3, 0.1)  # loads the accountant
    print(f"{'rounds':>7}{'ratio':>7}  CPU s, the longest of {len(DELTAS)} deltas, at epsilon")
    print(" " * 16 + "".join(f"{epsilon:8g}" for epsilon in EPSILONS))
    for max_iter, ratio in itertools.product(ROUNDS, RATIOS):
        row = []
        for epsilon in EPSILONS:
            taken = []
            for delta in DELTAS:
                if delta >= ratio and max_iter == 1:
                    continue  # one round with this rate needs no noise
                forget()
                taken.append(seconds(budget_of, epsilon, delta, max_iter, ratio))
            row.append(max(taken))
        print(f"{max_iter:7}{ratio:7g}  " + "".join(f"{value:8.2f}" for value in row), flush=True)


def print_bookkeeping():
    print(f"{'ratio':>7}{'calls':>8}  CPU ms of the bookkeeping of one more call")
    kwargs = {"unit": "document", "delta": 1e-6, "seeded": False, "public_start": False}
    for ratio, n in itertools.product((1.0, 0.1), (100, 1000, 10_000)):
        budget = budget_of(2.0, 1e-6, n, ratio)
        events = tuple(event for _, event in budget.plan(0, n - 1))
        norms = (6.0,) * (n + 1)
        earlier = document_guarantee(events, earlier=None, norms=norms, **kwargs)
        new = tuple(event for _, event in budget.plan(n - 1, 1))
        start = time.thread_time()
        check_paid("SubLDA", new, epsilon=2.0, delta=1e-6, earlier=earlier, max_iter=n)
        guarantee = document_guarantee(new, earlier=earlier, norms=(*norms, 6.0), **kwargs)
        dataclasses.replace(guarantee, trusted="x")
        print(f"{ratio:7g}{n:8}{1e3 * (time.thread_time() - start):8.1f}")


def print_fits():
    corpus = make_topic_corpus(n_docs=200, n_words=100, n_components=5, random_state=0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledgers = {"no ledger": None, "a ledger file": Path(folder) / "ledger"}
        taken = {name: [] for name in ledgers}
        for _, (name, ledger) in itertools.product(range(21), ledgers.items()):
            model = SubLDA(5, epsilon=2.0, max_iter=5, ledger=ledger)
            taken[name].append(1e3 * seconds(model.fit, corpus.data))
    for name, values in taken.items():
        print(f"200 documents, 5 rounds, {name}: {median(values[1:]):.0f} ms of CPU")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", action="store_true")
    parser.add_argument("--fits", action="store_true")
    options = parser.parse_args()
    if options.rounds:
        print_bookkeeping()
    elif options.fits:
        print_fits()
    else:
        print_calibrations()


if __name__ == "__main__":
    main()
