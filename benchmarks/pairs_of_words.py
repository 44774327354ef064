"""The test of HDPLDA's topics: false ones in dealt words, and those of real corpora.

``python benchmarks/pairs_of_words.py [--corpora kos glosses] [--epsilons 50 100 200 300
500 1000 inf] [--topics 20] [--seeds 2] [--kinds real entries tokens]``

20 sweeps, delta = 1e-6, documents in a random order. Dealt are the tokens of a corpus,
or its entries (word, count): bursts stay then, and no two words belong together. Each
cell has the number of topics that are shown, for each seed.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, load
from topic_signal import shuffled

from dplda import HDPLDA

KINDS = ["real", "entries", "tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(LOADERS)
    parser.add_argument(
        "--corpora", nargs="+", default=["kos", "glosses"], choices=names
    )
    parser.add_argument(
        "--epsilons",
        nargs="+",
        type=float,
        default=[50, 100, 200, 300, 500, 1000, np.inf],
    )
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    titles = ["corpus", "words", *(f"{e:g}" for e in options.epsilons)]
    print(f"| {' | '.join(titles)} |\n" + "| --- " * len(titles) + "|")
    for split in load(options.corpora):
        for kind in options.kinds:
            cells = []
            for epsilon in options.epsilons:
                n_shown = [
                    of_fit(split.train, kind, epsilon, seed, options.topics)
                    for seed in range(options.seeds)
                ]
                cells.append(", ".join(map(str, n_shown)))
            print(f"| {split.name} | {kind} | {' | '.join(cells)} |", flush=True)


def of_fit(X, kind: str, epsilon: float, seed: int, n_topics: int) -> int:
    """Number of topics that are shown."""
    rng = np.random.default_rng(seed)
    if kind == "tokens":
        X = shuffled(X, seed)
    elif kind == "entries":
        X = sp.coo_array(X)
        order = rng.permutation(X.nnz)
        cells = X.row, X.col[order]  # the numbers go with their words
        X = sp.csr_array(sp.coo_array((X.data[order], cells), shape=X.shape))
    X = sp.csr_array(X)[rng.permutation(X.shape[0])]
    model = HDPLDA(n_topics, epsilon=epsilon, max_iter=20, random_state=seed).fit(X)
    return int(np.count_nonzero(~model.weak_topics_))


if __name__ == "__main__":
    main()
