"""Fit the formula of `dplda.plan`: which share of the gap to a non-private model a fit closes.

``python benchmarks/planner.py [--corpora kos nips docstrings bbc glosses] [--seeds 1] [--points
FILE]``

    python benchmarks/planner.py --points benchmarks/planner_points.json

For each corpus it trains SubLDA on 300 documents, on 1000, and on all of them, at epsilon 0.5 to 8,
and with fewer words and fewer topics. The share closed is measured on held-out documents, between
unigram and the better of SubLDA(epsilon=inf) with two priors on the same documents. The error is
measured on each corpus by the formula of the others, also for formulas that read the mean length of
the documents and the number of topics. About ten minutes. ``--points`` keeps the measured points in
a file, and measures only those that it lacks: remove it to measure all of them again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from corpora import LOADERS, glosses
from scipy.optimize import least_squares

from dplda import SubLDA
from dplda.central._document_budget import DocumentBudget
from dplda.central._plan import noise_of_fit, plan
from dplda.metrics import unigram_perplexity

CORPORA = LOADERS | {"glosses": glosses}
DELTA = 1e-6
SIZES = (300, 1000, 10**9)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(CORPORA), choices=list(CORPORA))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--points", type=Path, help="file of measured points: written or read")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    points = []
    if options.points and options.points.exists():
        points = json.loads(options.points.read_text())
    for name in options.corpora:
        try:
            split = CORPORA[name]()
        except OSError as error:
            print(f"not measured: {name} ({error})")
            continue
        for point in measure(split, options.seeds, points):
            points.append(point)
            if options.points:
                options.points.write_text(json.dumps(points))
    report(points)


def measure(split, seeds: int, known):
    """A point for each number of documents, size of the table and epsilon that is not known."""
    keys = ("corpus", "n_docs", "n_words", "n_components", "epsilon")
    known = {tuple(point[key] for key in keys) for point in known}
    for n_docs in SIZES:
        for n_words, n_components in ((2000, 20), (500, 20), (2000, 5)):
            X, held = split.train[:n_docs, :n_words], split.test[:, :n_words]
            epsilons = EPSILONS if (n_words, n_components) == (2000, 20) else (1.0, 4.0)
            size = (split.name, *X.shape, n_components)
            epsilons = [epsilon for epsilon in epsilons if (*size, epsilon) not in known]
            if not epsilons:
                continue
            unigram = unigram_perplexity(X, held)
            free = min(perplexity(X, held, n_components, np.inf, 0, b) for b in (0.01, 1.0))
            for epsilon in epsilons:
                found = [perplexity(X, held, n_components, epsilon, seed) for seed in range(seeds)]
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


def report(points) -> None:
    """The coefficients, their errors, and a table of expectation next to measurement."""
    noise = {e: noise_of_fit(budget(e)) for e in {p["epsilon"] for p in points}}
    x = np.array([[noise[p["epsilon"]], p["n_words"], p["n_docs"]] for p in points])
    y = np.array([max(0.0, p["closed"]) for p in points])
    corpus = np.array([p["corpus"] for p in points])
    more = {name: np.log([p[name] for p in points]) for name in ("mean_doc_words", "n_components")}
    for names in ([], *([name] for name in more), list(more)):
        wider = np.column_stack([x, *(more[name] for name in names)])
        error = np.sqrt(np.mean(errors_of_others(wider, y, corpus)[y > 0] ** 2))
        print(f"also read: {', '.join(names) or 'nothing'}; error on other corpora {error:.2f}")
    coefficients, spread = fit(x, y)
    errors = errors_of_others(x, y, corpus)
    for name in dict.fromkeys(corpus):
        own = errors[corpus == name]
        print(f"{name}: formula of the others, mean error {own.mean():+.2f}, "
              f"root mean square {np.sqrt(np.mean(own**2)):.2f}")  # fmt: skip
    above = errors[y > 0]
    print(f"HALF = {np.exp(coefficients[0]):.3g} (times or over {np.exp(spread[0]):.2f}), "
          f"WORDS = {coefficients[1]:.3f} +- {spread[1]:.3f}, "
          f"DECAY = {coefficients[2]:.3f} +- {spread[2]:.3f}, "
          f"ERROR = {np.sqrt(np.mean(above**2)):.2f}\n")  # fmt: skip
    epsilons = sorted(noise)
    print("| corpus | documents | words | topics |", " | ".join(f"{e:g}" for e in epsilons), "|")
    print("| --- " * (4 + len(epsilons)) + "|")
    for row in dict.fromkeys((p["corpus"], p["n_docs"], p["n_words"], p["n_components"])
                             for p in points):  # fmt: skip
        cells = dict.fromkeys(epsilons, "")
        for point, expected in zip(points, closed(coefficients, x)):
            if (point["corpus"], point["n_docs"], point["n_words"], point["n_components"]) == row:
                cells[point["epsilon"]] = f"{max(0, point['closed']):.0%} ({max(0, expected):.0%})"
        print("|", " | ".join(map(str, row)), "|", " | ".join(cells.values()), "|")
    print("\n| documents |", " | ".join(f"epsilon {e:g}" for e in epsilons), "|")
    print("| --- " * (1 + len(epsilons)) + "|")
    for n_docs in (300, 1000, 3000, 10_000, 30_000, 100_000):
        row = [plan(n_docs=n_docs, epsilon=e, n_components=2, n_words=2000) for e in epsilons]
        print(f"| {n_docs:,} |", " | ".join(cell(p) for p in row), "|")


def budget(epsilon: float) -> DocumentBudget:
    return DocumentBudget.from_statement(
        epsilon, None, DELTA, max_iter=80, word_total_share=0.25, subsampling_ratio=1.0
    )


def closed(coefficients, x) -> np.ndarray:
    """The formula, cut to zero: a model that is worse than unigram closes nothing.

    `x` has noise, words and documents, and then logarithms of what else `half` may depend on.
    """
    half, words, decay, *powers = coefficients
    noise, n_words, n_docs = x.T[:3]
    half = np.exp(half + x[:, 3:] @ np.array(powers)) * noise * n_words**words
    return np.maximum(0, 1 - 0.5 * (half / n_docs) ** decay)


def errors_of_others(x, y, corpus) -> np.ndarray:
    """Errors on each corpus of the formula that was fitted to the others."""
    errors = np.empty(len(y))
    for name in dict.fromkeys(corpus):
        others, _ = fit(x[corpus != name], y[corpus != name])
        errors[corpus == name] = closed(others, x[corpus == name]) - y[corpus == name]
    return errors


def fit(x, y) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients by least squares, and their standard errors."""
    start = [3.0, 0.7, 0.6] + [0.0] * (x.shape[1] - 3)
    found = least_squares(lambda c: closed(c, x) - y, start)
    covariance = np.linalg.inv(found.jac.T @ found.jac) * 2 * found.cost / (len(y) - len(start))
    return found.x, np.sqrt(np.diag(covariance))


def cell(expected) -> str:
    share = f"{max(0, expected.gap_closed):.0%}" if expected.gap_closed > 0 else "none"
    return f"{share}, {expected.recommended_components} topics"


if __name__ == "__main__":
    main()
