"""CPU seconds of whole fits at their defaults, next to as many sweeps of tomotopy.

``python benchmarks/peers/fits.py [--corpora nips] [--components 20 50 100] [--repeats
3] [--threads 1]``

A fit of dplda is what a user calls: the plan, two releases of word totals, 80 rounds,
of topics or of totals as the budget has it, and the last table. tomotopy reads the
documents and makes 80 sweeps. All take turns in one process.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from measuring import ALPHA, BETA, conditions, cpu_seconds, markdown, whole_corpus
from opponents import NotInstalled, Tomotopy
from threadpoolctl import threadpool_limits

from dplda import PrivateSVILDA, SubLDA

ROUNDS = 80


def tomotopy(X: Any, n_components: int, threads: int) -> None:
    peer = Tomotopy(X, n_components, 0, threads)
    for _ in range(ROUNDS):
        peer.step()


def fit(kind: Any, X: Any, n_components: int, threads: int) -> None:
    kind(
        n_components,
        epsilon=4.0,
        max_iter=ROUNDS,
        subsampling_ratio=1.0,
        doc_topic_prior=ALPHA,
        topic_word_prior=BETA,
        random_state=0,
        n_jobs=threads,
    ).fit(X)


def seconds(call: Callable[[], None]) -> float:
    start = cpu_seconds()
    call()
    return cpu_seconds() - start


def measure(X: Any, n_components: int, repeats: int, threads: int) -> dict[str, Any]:
    """CPU seconds of each row, (repeats,), or the reason why there are none."""
    rows: dict[str, Callable[[], None]] = {
        "SubLDA": lambda: fit(SubLDA, X, n_components, threads),
        "PrivateSVILDA": lambda: fit(PrivateSVILDA, X, n_components, threads),
        "tomotopy": lambda: tomotopy(X, n_components, threads),
    }
    times: dict[str, Any] = {row: [] for row in rows}
    for _ in range(repeats):
        for row, call in rows.items():
            try:
                times[row].append(seconds(call))
            except NotInstalled as missing:
                times[row] = [str(missing)]
    return times


def cell(times: list, reference: list) -> str:
    if isinstance(times[0], str):
        return times[0]
    text = f"{np.median(times):.2f} s"
    if isinstance(reference[0], str) or times is reference:
        return text
    return f"{text}, {np.median(np.divide(reference, times)):.2f} x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["nips"])
    parser.add_argument("--components", nargs="+", type=int, default=[20, 50, 100])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--note", default="", help="added to the conditions: loaded machine"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="dplda")
    warnings.filterwarnings("ignore", message=".*noise|.*epsilon|.*random_state")
    with threadpool_limits(options.threads):
        for corpus in options.corpora:
            X, results = whole_corpus(corpus), {}
            for k in options.components:
                print(f"{corpus}, K = {k}", file=sys.stderr, flush=True)
                results[k] = measure(X, k, options.repeats, options.threads)
            head = [f"{corpus}, whole fits", *(f"K = {k}" for k in results)]
            rows = [
                [
                    row,
                    *(
                        cell(times[row], times["tomotopy"])
                        for times in results.values()
                    ),
                ]
                for row in next(iter(results.values()))
            ]
            print(markdown(head, rows))
            print(
                f"\nMedians of {options.repeats}; x: times as fast as tomotopy. "
                + conditions(["tomotopy"], options.threads, options.note)
            )


if __name__ == "__main__":
    main()
