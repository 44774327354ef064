"""Users with several documents: held-out perplexity by what a fit is told of them.

``python benchmarks/users.py [--corpora kos docstrings] [--documents 5] [--seeds 3]``

Each user has the same number of documents, drawn at random from the corpus. K = 20, V = 2000,
delta = 1e-5.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, load
from utility import DELTA, K, spread

from dplda import SubLDA
from dplda.privacy import SeededNoiseWarning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "docstrings"],
                        choices=list(LOADERS))  # fmt: skip
    parser.add_argument("--documents", type=int, default=5, help="of each user")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    for split in load(options.corpora):
        ids = np.arange(split.train.shape[0]) // options.documents
        owns = sp.csr_array((np.ones(len(ids)), (ids, np.arange(len(ids)))))
        print(f"\n{split}; {options.documents} documents a user, {ids[-1] + 1} users\n")
        print("| epsilon | of a document | of a user, `user_ids` | of a user, rows merged |")
        print("| --- | --- | --- | --- |")
        for epsilon in options.epsilon:
            results: list[list[float]] = [[], [], []]
            for seed in range(options.seeds):
                model = SubLDA(K, epsilon=epsilon, delta=DELTA, random_state=seed)
                for values, X, given in zip(
                    results, (split.train, split.train, owns @ split.train), (None, ids, None)
                ):
                    model.fit(X, user_ids=given)
                    values.append(model.perplexity(split.test))
            print(f"| {epsilon:g} | {' | '.join(map(spread, results))} |", flush=True)


if __name__ == "__main__":
    main()
