"""Topics that stand out of the noise, on real corpora, on shuffled words, and on 300 documents.

``python benchmarks/topic_signal.py [--corpora kos nips bbc docstrings glosses]
[--epsilons 0.5 1 2 4 8] [--seeds 1] [--small-seeds 20]``

K = 20, V = 2000, delta = 1e-5. Shuffled words: all tokens of the corpus are dealt to the documents
at random, so that lengths and word frequencies stay, and there are no topics. The last table counts
the fits of 300 documents that warn. The script also prints the number of standing topics over
documents / (documents for half of the gap), the constant STANDING of `dplda.plan`.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, glosses, load

from dplda import SubLDA
from dplda.document._document_budget import DocumentBudget
from dplda.document._plan import docs_for_half
from dplda.privacy import LowSignalWarning, SeededNoiseWarning

K, DELTA, SMALL = 20, 1e-5, 300
LOADERS["glosses"] = glosses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--small-seeds", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    splits = load(options.corpora)
    if options.seeds:
        topics(splits, options.epsilons, range(options.seeds))
    if options.small_seeds:
        small(splits, [e for e in options.epsilons if e <= 4], range(options.small_seeds))


def topics(splits, epsilons, seeds) -> None:
    """Share of the topics that stand out, and how many of the fits warn."""
    print(header("corpus | documents | words", epsilons))
    ratios = []
    for split in splits:
        for kind in ("as they are", "shuffled"):
            cells = []
            for epsilon in epsilons:
                X = [shuffled(split.train, s) if kind == "shuffled" else split.train for s in seeds]
                found = [standing(x, epsilon, s) for x, s in zip(X, seeds)]
                share = np.mean([n for n, _ in found]) / K
                cells.append(f"{share:.0%}" + ", warns" * all(warned for _, warned in found))
                if kind != "shuffled":
                    ratios.append((split.train.shape[0] / half(epsilon), K * share))
            print(f"| {split.name} | {split.train.shape[0]} | {kind} | {' | '.join(cells)} |",
                  flush=True)  # fmt: skip
    ratios = [r for r in ratios if r[1] < 0.9 * K]
    if not ratios:
        return  # nearly all topics stand out: there is nothing to fit
    x, y = np.array(ratios).T
    slope = x @ y / (x @ x)
    print(f"\nSTANDING of `dplda.plan`: {slope:.1f}, with a root mean square error of "
          f"{np.std(y - slope * x):.1f} topics.\n")  # fmt: skip


def small(splits, epsilons, seeds) -> None:
    """How many fits of few documents warn, and the most topics that stand out in any."""
    print(header(f"corpus, {SMALL} documents", epsilons))
    for split in splits:
        row = []
        for epsilon in epsilons:
            found = [standing(split.train[:SMALL], epsilon, s) for s in seeds]
            row.append(f"{sum(w for _, w in found)} of {len(found)} warn, "
                       f"at most {max(n for n, _ in found)} topics")  # fmt: skip
        print(f"| {split.name} | {' | '.join(row)} |", flush=True)


def header(first: str, epsilons) -> str:
    titles = first.split(" | ") + [f"epsilon {e:g}" for e in epsilons]
    return f"\n| {' | '.join(titles)} |\n" + "| --- " * len(titles) + "|"


def standing(X, epsilon: float, seed: int) -> tuple[int, bool]:
    """Number of topics that stand out, and whether the fit warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LowSignalWarning)
        model = SubLDA(K, epsilon=epsilon, delta=DELTA, random_state=seed).fit(X)
    warned = any(w.category is LowSignalWarning for w in caught)
    return int(np.count_nonzero(model.topic_signal_)), warned


def shuffled(X, seed: int) -> sp.csr_array:
    """The same lengths and word totals without topics."""
    X = sp.csr_array(X)
    words = np.random.default_rng(seed).permutation(np.repeat(X.indices, X.data.astype(int)))
    lengths = X.sum(axis=1).astype(int)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return sp.csr_array((np.ones(len(words)), (rows, words)), shape=X.shape)


def half(epsilon: float) -> float:
    budget = DocumentBudget.from_statement(epsilon, None, DELTA, max_iter=80, subsampling_ratio=1.0)
    return docs_for_half(budget.noise(), 2000)


if __name__ == "__main__":
    main()
