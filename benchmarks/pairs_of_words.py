"""The test of HDPLDA's topics: false ones in dealt words, and those of real corpora.

``python benchmarks/pairs_of_words.py [--corpora kos glosses] [--epsilons 50 100 200 300
500 1000 inf] [--topics 20] [--seeds 2] [--kinds real entries tokens price]``

20 sweeps, delta = 1e-6, documents in a random order. Dealt are the tokens of a corpus,
or its entries (word, count): bursts stay then, and no two words belong together. Each
cell has the number of topics that are shown, for each seed. *price*: by how much the
perplexity is above that of a fit in which all documents train, in percent.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, load
from topic_signal import NULLS

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
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=[*KINDS, "price"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    titles = ["corpus", "words", *(f"{e:g}" for e in options.epsilons)]
    print(f"| {' | '.join(titles)} |\n" + "| --- " * len(titles) + "|")
    for split in load(options.corpora):
        for kind in options.kinds:
            cells = []
            for epsilon in options.epsilons:
                found = []
                for seed in range(options.seeds):
                    if kind == "price":
                        ratio = price(split, epsilon, seed, options.topics)
                        found.append(f"{100 * (ratio - 1):.1f}")
                    else:
                        n = of_fit(split.train, kind, epsilon, seed, options.topics)
                        found.append(str(n))
                cells.append(", ".join(found))
            print(f"| {split.name} | {kind} | {' | '.join(cells)} |", flush=True)


def of_fit(X, kind: str, epsilon: float, seed: int, n_topics: int) -> int:
    """Number of topics that are shown."""
    if kind != "real":
        X = NULLS[kind](X, seed)
    model = fitted(in_random_order(X, seed), epsilon, seed, n_topics)
    return int(np.count_nonzero(~model.weak_topics_))


def fitted(X, epsilon: float, seed: int, n_topics: int) -> HDPLDA:
    model = HDPLDA(n_topics, epsilon=epsilon, max_iter=20, random_state=seed)
    return model.fit(X)


def in_random_order(X, seed: int) -> sp.csr_array:
    return sp.csr_array(X)[np.random.default_rng(seed).permutation(X.shape[0])]


def price(split, epsilon: float, seed: int, n_topics: int) -> float:
    """Perplexity of held-out documents over that of a fit in which all train."""
    X = in_random_order(split.train, seed)
    # documents in the places that train, and empty ones in those that test
    n_rows = 10 * -(-X.shape[0] // 9)
    places = np.flatnonzero(np.arange(n_rows) % 10 != 9)[: X.shape[0]]
    cells = np.ones(len(places)), (places, np.arange(len(places)))
    everything = sp.csr_array(cells, shape=(n_rows, X.shape[0])) @ X
    tested, untested = (
        fitted(rows, epsilon, seed, n_topics).perplexity(split.test)
        for rows in (X, everything)
    )
    return tested / untested


if __name__ == "__main__":
    main()
