"""Documents per second of randomized response, next to a dense array of numpy's (unsafe) coins.

``python benchmarks/randomizer.py [--docs 2000] [--words 10000] [--length 80] [--repeats 5]``;
CPU time, best of all repeats.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp

from dplda import RandomizedResponse

SETTINGS = {
    "symmetric, f = 0.1": {"flip_mixture": 0.1},
    "symmetric, f = 0.5": {"flip_mixture": 0.5},
    "oue, bit epsilon = 1": {"bit_epsilon": 1.0, "mechanism": "oue"},
}


def make_documents(n_docs: int, n_words: int, length: int) -> sp.csr_array:
    """Documents of `length` words drawn uniformly."""
    words = np.random.default_rng(0).integers(0, n_words, (n_docs, length))
    rows = np.repeat(np.arange(n_docs), length)
    return sp.csr_array((np.ones(rows.size), (rows, words.ravel())), shape=(n_docs, n_words))


def dense(X: sp.csr_array, zero: float, one: float) -> sp.csr_array:
    """The same reports from one float for each bit."""
    there = X.toarray() > 0
    return sp.csr_array(np.random.default_rng().random(X.shape) < np.where(there, one, zero))


def best_time(function, *args, repeats: int):
    """CPU seconds of the fastest call, and its result."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        result = function(*args)
        seconds.append(time.process_time() - start)
    return min(seconds), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=int, default=2000)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    X = make_documents(options.docs, options.words, options.length)
    print("| | ones reported per document | documents per second | ns per one | dense numpy |")
    print("| --- | --- | --- | --- | --- |")
    for name, parameters in SETTINGS.items():
        client = RandomizedResponse(**parameters).fit(X)
        client.transform(X[:1])  # makes the tables
        seconds, reports = best_time(client.transform, X, repeats=options.repeats)
        slow, _ = best_time(dense, X, *client.one_probability_, repeats=options.repeats)
        print(
            f"| {name} | {reports.nnz / options.docs:.0f} | {options.docs / seconds:,.0f} "
            f"| {seconds / reports.nnz * 1e9:.1f} | {options.docs / slow:,.0f} |"
        )


if __name__ == "__main__":
    main()
