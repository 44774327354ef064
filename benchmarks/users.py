"""Users with several documents: held-out perplexity by what a fit is told of them.

``python benchmarks/users.py [--corpora kos docstrings] [--documents 5] [--seeds 3] [--curve]``

Each user has the same number of documents, drawn at random from the corpus. K = 20, V = 2000,
delta = 1e-5. ``--curve`` prints the share of the gap that n users close, beside n documents: from 0
for the word frequencies of all documents to 100% for the best model of all without noise.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, load
from utility import DELTA, K, spread

from dplda import SubLDA
from dplda.metrics import unigram_perplexity
from dplda.privacy import LowSignalWarning, SeededNoiseWarning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "docstrings"],
                        choices=list(LOADERS))  # fmt: skip
    parser.add_argument("--documents", type=int, default=5, help="of each user")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--curve", action="store_true", help="by the number of users")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    warnings.simplefilter("ignore", LowSignalWarning)
    for split in load(options.corpora):
        ids = np.arange(split.train.shape[0]) // options.documents
        owns = sp.csr_array((np.ones(len(ids)), (ids, np.arange(len(ids)))))
        print(f"\n{split}; {options.documents} documents a user, {ids[-1] + 1} users\n")
        if options.curve:
            curve(split, ids, options)
            continue
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


def curve(split, ids, options) -> None:
    """Share of the gap by the number of units."""
    unigram = unigram_perplexity(split.train, split.test)
    free = min(
        SubLDA(K, epsilon=np.inf, topic_word_prior=prior).fit(split.train).perplexity(split.test)
        for prior in (0.01, 1.0)
    )

    def closed(epsilon, X, given) -> str:
        models = [SubLDA(K, epsilon=epsilon, delta=DELTA, random_state=seed) for seed in
                  range(options.seeds)]  # fmt: skip
        found = [model.fit(X, user_ids=given).perplexity(split.test) for model in models]
        share = (unigram - np.mean(found)) / (unigram - free)
        return f"{share:.0%}" if share > 0 else "none"

    print("| epsilon | n | n documents | n users | all documents of these users |")
    print("| --- | --- | --- | --- | --- |")
    for epsilon in options.epsilon:
        for n in ((ids[-1] + 1) // part for part in (4, 2, 1)):
            rows = np.flatnonzero(ids < n)
            few, all_rows = split.train[:n], split.train[rows]
            cells = (few, None), (all_rows, ids[rows]), (all_rows, None)
            found = (closed(epsilon, X, given) for X, given in cells)
            print(f"| {epsilon:g} | {n:,} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
