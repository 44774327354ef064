"""Days: held-out perplexity of a model whose documents come in disjoint parts, one after another.

``python benchmarks/parts.py [--corpora kos] [--epsilon 4 1] [--parts 5] [--seeds 4]``

K = 20, V = 2000, delta = 1e-5. Rows are divided into parts at random. Each document pays the same
epsilon in every row. "earlier" passes yesterday's model to `fit`, which adds its releases. "prior"
passes yesterday's table as `prior_components`, which places topics and adds no counts.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from corpora import LOADERS, load
from utility import DELTA, K, spread

from dplda import SubLDA


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos"], choices=list(LOADERS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[4.0, 1.0])
    parser.add_argument("--parts", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for split in load(options.corpora):
        print(f"{split}, {options.parts} parts\n\n| epsilon | one fit | earlier | prior |")
        print("| --- | --- | --- | --- |")
        for epsilon in options.epsilon:
            row = [
                spread([days(split, epsilon, n, seed, how) for seed in range(options.seeds)])
                for n, how in ((1, None), (options.parts, "earlier"), (options.parts, "prior"))
            ]
            print(f"| {epsilon:g} | {' | '.join(row)} |", flush=True)


def days(split, epsilon, n_parts, seed, how):
    """Perplexity after the last part."""
    rows, model = np.random.default_rng(seed).permutation(split.train.shape[0]), None
    for i, part in enumerate(np.array_split(rows, n_parts)):
        yesterday = model
        model = SubLDA(K, epsilon=epsilon, delta=DELTA, random_state=10 * seed + i)
        if yesterday is not None and how == "prior":
            model.set_params(prior_components=yesterday.components_)
        model.fit(split.train[np.sort(part)], earlier=yesterday if how == "earlier" else None)
    return model.perplexity(split.test)


if __name__ == "__main__":
    main()
