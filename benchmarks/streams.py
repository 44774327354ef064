"""Streams: held-out perplexity of a model that gets its documents in several disjoint parts.

``python benchmarks/streams.py [--corpora kos] [--epsilon 4] [--parts 1 2 4 10]
[--estimators SubLDA PrivateSVILDA] [--seeds 3]``

K = 20, V = 2000, delta = 1e-5. Rows are divided into parts at random. One part is a fit of all
documents. Each document pays the same epsilon in every row of a table.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from corpora import LOADERS, load
from sklearn.base import clone
from utility import DELTA, K, spread

from dplda import PrivateSVILDA, SubLDA
from dplda.metrics import unigram_perplexity

ESTIMATORS = {"SubLDA": SubLDA, "PrivateSVILDA": PrivateSVILDA}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos"], choices=list(LOADERS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[4.0])
    parser.add_argument("--parts", nargs="+", type=int, default=[1, 2, 4, 10])
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS), choices=ESTIMATORS)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for split in load(options.corpora):
        unigram = unigram_perplexity(split.train, split.test)
        for name in options.estimators:
            for epsilon in options.epsilon:
                print(f"\n{name}, {split}; epsilon {epsilon:g}; unigram {unigram:.0f}\n")
                print("| parts | documents a part | first part alone | all parts | "
                      "signal_to_noise_ |")  # fmt: skip
                print("| --- | --- | --- | --- | --- |")
                for n_parts in options.parts:
                    model = ESTIMATORS[name](K, epsilon=epsilon, delta=DELTA)
                    found = [stream(model, split, n_parts, seed) for seed in range(options.seeds)]
                    first, last, signal = zip(*found)
                    print(f"| {n_parts} | {split.train.shape[0] // n_parts} | {spread(first)} | "
                          f"{spread(last)} | {np.mean(signal):.2f} |", flush=True)  # fmt: skip


def stream(model, split, n_parts, seed):
    """Perplexity after the first part and after all, and the signal of the whole."""
    rows = np.random.default_rng(seed).permutation(split.train.shape[0])
    model = clone(model).set_params(random_state=seed)
    found = []
    for i, part in enumerate(np.array_split(rows, n_parts)):
        model.partial_fit(split.train[np.sort(part)], part=f"{i}")
        found.append(model.perplexity(split.test) if i in (0, n_parts - 1) else None)
    return found[0], found[-1], model.signal_to_noise_


if __name__ == "__main__":
    main()
