"""Time and memory of a master's round with the most topics that it admits.

Run ``python benchmarks/merging.py``. Each row is a process of its own. The parties send different
topics, or slight variations of one topic, which are all similar to each other.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

import numpy as np

from dplda.federated import IFTMMaster, LocalModel, vocabulary_hash

SHAPES = [(2, 500), (10, 100), (1000, 1)]  # parties, topics of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", nargs="+", type=int, default=[400, 12_000, 50_000])
    options = parser.parse_args()
    print("| words | parties | topics of each | content | topics left | CPU seconds | GB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for n_words in options.words:
        for shape in SHAPES:
            for content in ("different", "similar"):
                process = multiprocessing.Process(target=row, args=(n_words, *shape, content))
                process.start()
                process.join()


def row(n_words: int, n_parties: int, n_topics: int, content: str) -> None:
    rng = np.random.default_rng(0)
    base = rng.dirichlet(np.full(n_words, 0.5))
    master = IFTMMaster(n_words)
    messages = []
    for party in range(n_parties):
        if content == "different":
            table = rng.dirichlet(np.full(n_words, 0.05), n_topics)
        else:
            table = base * rng.uniform(0.9, 1.1, (n_topics, n_words))
            table /= table.sum(axis=1, keepdims=True)
        message = LocalModel(
            party=f"{party:04}", round=0, vocabulary=vocabulary_hash(n_words), table=table,
            weight=1.0, epsilon=1.0, delta=0.0, unit="token",
        )  # fmt: skip
        messages.append(message)
    start = time.process_time()
    master.update(messages)
    seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"| {n_words} | {n_parties} | {n_topics} | {content} | {len(master.components_)} "
        f"| {seconds:.1f} | {memory:.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
