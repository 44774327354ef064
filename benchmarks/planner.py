"""Fit the formula of `dplda.plan`: which share of the gap to a non-private model a fit closes.

``python benchmarks/planner.py [--corpora kos nips bbc docstrings] [--seeds 1] [--points FILE]``

For each corpus it trains SubLDA on 300 documents, on 1000, and on all of them, at epsilon 0.5 to 8,
and at two more sizes of the table. The share closed is measured on held-out documents, between
unigram and the best of SubLDA(epsilon=inf) with two priors on the same documents. The formula is
logistic in the logarithm of the signal over the noise. Its error is measured on the corpus that was
left out of the fit. A few minutes.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from corpora import LOADERS, load
from scipy.optimize import curve_fit

from dplda import SubLDA
from dplda.central._document_budget import DocumentBudget
from dplda.central._noisy_table import noise_of_average
from dplda.metrics import unigram_perplexity

DELTA = 1e-6
SIZES = (300, 1000, 10**9)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--points", type=Path, help="file of measured points: written or read")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.points and options.points.exists():
        points = json.loads(options.points.read_text())
    else:
        points = [p for split in load(options.corpora) for p in measure(split, options.seeds)]
        if options.points:
            options.points.write_text(json.dumps(points))
    report(points)


def measure(split, seeds: int):
    """A point for each number of documents, size of the table and epsilon."""
    for n_docs in SIZES:
        for n_words, n_components in ((2000, 20), (500, 20), (2000, 5)):
            X, held = split.train[:n_docs, :n_words], split.test[:, :n_words]
            epsilons = EPSILONS if (n_words, n_components) == (2000, 20) else (1.0, 4.0)
            unigram = unigram_perplexity(X, held)
            free = min(perplexity(X, held, n_components, np.inf, 0, b) for b in (0.01, 1.0))
            for epsilon in epsilons:
                found = [
                    perplexity(X, held, n_components, epsilon, seed) for seed in range(seeds)
                ]
                point = {
                    "corpus": split.name, "n_docs": X.shape[0], "n_words": X.shape[1],
                    "n_components": n_components, "epsilon": epsilon,
                    "mean_doc_words": round(float(X.sum() / X.shape[0]), 1),
                    "closed": round(float((unigram - np.mean(found)) / (unigram - free)), 3),
                    "unigram": round(unigram), "free": round(free),
                }  # fmt: skip
                print(json.dumps(point), flush=True)
                yield point


def perplexity(X, held, n_components, epsilon, seed, prior=0.01) -> float:
    model = SubLDA(
        n_components, epsilon=epsilon, delta=DELTA, topic_word_prior=prior, random_state=seed
    )
    return model.fit(X).perplexity(held)
