"""Which topics of reports are more than noise: errors and power of the test.

``python benchmarks/local_topics.py [--corpora kos nips bbc docstrings glosses]
[--epsilons 1 2 3 5 inf] [--topics 5 10 20] [--docs 300 1000 0] [--seeds 2] [--online]
[--kinds dealt real]``

`LPLDA` with 30 sweeps, or with ``--online`` `OLPLDA` in batches of 160, without a cap.
``--epsilons`` are `bit_epsilon`, and 0 documents are all. Dealt words: all tokens of
the corpus are dealt to the documents at random, so that lengths and word frequencies
stay, and there are no topics. The first table has the fits in which any topic is shown.
The second has the topics that are shown of the corpora as they are, and in brackets
those whose ten top words share the documents themselves no oftener than 98% of random
sets of words of the same frequencies.
"""

from __future__ import annotations

import argparse
import itertools
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, load
from topic_signal import dealt_tokens

from dplda import LPLDA, OLPLDA

FITS = {"max_iter": 30, "max_doc_words": None}
KINDS = ["dealt", "real"]
N_TOP, N_RANDOM, NEAR, LEVEL = 10, 200, 20, 0.98


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(LOADERS), choices=LOADERS)
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=[1, 2, 3, 5, np.inf]
    )
    parser.add_argument("--topics", nargs="+", type=int, default=[5, 10, 20])
    parser.add_argument("--docs", nargs="+", type=int, default=[300, 1000, 0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--online", action="store_true")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    splits = load(options.corpora)
    if "dealt" in options.kinds:
        print("| corpus | fits | any topic shown | topics shown | largest evidence |")
        print("| --- | --- | --- | --- | --- |")
        for split in splits:
            print(f"| {split.name} | {of_dealt_words(split, options)} |", flush=True)
    if "real" in options.kinds:
        print("\n| corpus | " + " | ".join(f"{e:g}" for e in options.epsilons) + " |")
        print("| --- " * (1 + len(options.epsilons)) + "|")
        for split in splits:
            cells = [of_real_words(split, e, options) for e in options.epsilons]
            print(f"| {split.name} | {' | '.join(cells)} |", flush=True)


def of_dealt_words(split, options) -> str:
    n_shown, largest = [], []
    settings = itertools.product(
        options.topics, options.docs, options.epsilons, range(options.seeds)
    )
    for n_topics, n_docs, epsilon, seed in settings:
        order = np.random.default_rng(seed).permutation(split.train.shape[0])
        X = dealt_tokens(split.train[order[: n_docs or None]], seed)
        model = fitted(X, n_topics, epsilon, seed, options)
        n_shown.append(np.count_nonzero(~model.weak_topics_))
        largest.append(model.topic_evidence_.max())
    any_shown = np.count_nonzero(n_shown)
    return f"{len(n_shown)} | {any_shown} | {sum(n_shown)} | {max(largest):.1f}"


def of_real_words(split, epsilon, options) -> str:
    cells = []
    for seed in range(options.seeds):
        model = fitted(split.train, max(options.topics), epsilon, seed, options)
        shown = ~model.weak_topics_
        apart = ~together(model.components_, split.train)
        cells.append((np.count_nonzero(shown), np.count_nonzero(shown & apart)))
    n_shown, n_apart = np.mean(cells, axis=0)
    return f"{n_shown:g} ({n_apart:g})"


def fitted(X, n_topics, epsilon, seed, options):
    parameters = {**FITS, "bit_epsilon": epsilon, "random_state": seed}
    estimator = OLPLDA if options.online else LPLDA
    return estimator(n_topics, **parameters).fit(X)


def together(components: np.ndarray, X) -> np.ndarray:
    """Mask of the topics whose top words share documents oftener than random words."""
    bits = sp.csc_array(X > 0).astype(float)
    share = bits.mean(axis=0)
    std = np.sqrt(share * (1 - share)) + 1e-9
    total = bits.sum(axis=1) - share.sum()
    # of a bit with all others: documents differ in length
    growth = bits.T @ total / len(total) - share * (1 - share)
    joint = (bits.T @ bits).toarray() / len(total) - np.outer(share, share)
    joint -= np.outer(growth, growth) / growth.sum()
    joint /= np.outer(std, std)
    np.fill_diagonal(joint, 0)
    order = np.argsort(share, kind="stable")
    place = np.argsort(order)
    rng = np.random.default_rng(0)
    mask = []
    for rank in components**2 / components.sum(axis=0):
        words = np.argsort(-rank)[:N_TOP]
        near = place[words] + rng.integers(-NEAR, NEAR + 1, (N_RANDOM, N_TOP))
        random = order[np.clip(near, 0, len(order) - 1)]
        chance = [joint[np.ix_(row, row)].sum() for row in random]
        mask.append(joint[np.ix_(words, words)].sum() > np.quantile(chance, LEVEL))
    return np.array(mask)


if __name__ == "__main__":
    main()
