"""Held-out perplexity and classification against epsilon, with document-level privacy.

``python benchmarks/utility.py [--corpora kos bbc docstrings nips] [--epsilons 1 2 4 8]
[--seeds 3] [--ratio 1.0] [--rounds 80] [--classify]``

K = 20, V = 2000, delta = 1e-5, one tenth held out, perplexity by document completion; mean and
standard deviation over seeds (of noise and initialization; the split is fixed).
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from corpora import LOADERS, Split, load
from sklearn.linear_model import LogisticRegression

from dplda import GibbsLDA, SubLDA
from dplda.metrics import unigram_perplexity
from dplda.privacy import SeededNoiseWarning

K, DELTA = 20, 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "bbc", "docstrings"],
                        choices=list(LOADERS))  # fmt: skip
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ratio", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--classify", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    for split in load(options.corpora):
        print(f"\n{split}; {split.test.shape[0]} held out\n")
        if options.classify:
            classification(split, options)
        else:
            perplexities(split, options)


def perplexities(split: Split, options) -> None:
    """A line of references, then a row for each epsilon: perplexity, gap closed, time."""
    X, held = split.train, split.test
    unigram = unigram_perplexity(X, held)
    gibbs = [
        GibbsLDA(K, max_iter=300, random_state=seed).fit(X).perplexity(held)
        for seed in range(options.seeds)
    ]
    free, _ = fits(split, np.inf, options)
    print(f"unigram {unigram:.0f}; GibbsLDA (300 sweeps) {spread(gibbs)}; "
          f"SubLDA(epsilon=inf) {spread(free)}\n")  # fmt: skip
    print("| epsilon | SubLDA | gap to unigram closed | CPU s a fit |\n| --- | --- | --- | --- |")
    for epsilon in options.epsilons:
        private, seconds = fits(split, epsilon, options)
        closed = (unigram - np.mean(private)) / (unigram - np.mean(free))
        print(f"| {epsilon:g} | {spread(private)} | {closed:.0%} | {np.median(seconds):.2f} |",
              flush=True)  # fmt: skip


def fits(split: Split, epsilon: float, options) -> tuple[list[float], list[float]]:
    """Perplexity and CPU seconds of one fit a seed."""
    results, seconds = [], []
    for seed in range(options.seeds):
        model = sublda(epsilon, seed, options)
        start = time.process_time()
        model.fit(split.train)
        seconds.append(time.process_time() - start)
        results.append(model.perplexity(split.test))
    return results, seconds


def sublda(epsilon: float, seed: int, options) -> SubLDA:
    return SubLDA(
        K,
        epsilon=epsilon,
        delta=DELTA,
        subsampling_ratio=options.ratio,
        max_iter=options.rounds,
        random_state=seed,
    )


def classification(split: Split, options) -> None:
    """Accuracy of a logistic regression on topic weights, and on words."""
    words = LogisticRegression(max_iter=1000).fit(np.log1p(split.train), split.y_train)
    print(f"words: {words.score(np.log1p(split.test), split.y_test):.3f}\n")
    print("| epsilon | accuracy |\n| --- | --- |")
    for epsilon in [*options.epsilons, np.inf]:
        scores = []
        for seed in range(options.seeds):
            model = sublda(epsilon, seed, options).fit(split.train)
            classifier = LogisticRegression(C=100, max_iter=2000)
            classifier.fit(model.transform(split.train), split.y_train)
            scores.append(classifier.score(model.transform(split.test), split.y_test))
        print(f"| {epsilon:g} | {np.mean(scores):.3f} ± {np.std(scores):.3f} |", flush=True)


def spread(values) -> str:
    return f"{np.mean(values):.0f} ± {np.std(values):.0f}"


if __name__ == "__main__":
    main()
