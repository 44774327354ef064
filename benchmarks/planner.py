"""Fit the formula of `dplda.plan`: how much of the gap to no privacy a fit closes.

``python benchmarks/planner.py [--corpora NAME ...] [--seeds 1] [--points FILE]``
``python benchmarks/planner.py --expected``

For each corpus it trains SubLDA on 300 documents, on 1000, and on all of them, at
epsilon 0.5 to 8, with fewer words and fewer topics, without and with the embedded word
vectors. The share closed is measured on held-out documents, between unigram and the
better of SubLDA(epsilon=inf) with two priors on the same documents. The error is
measured on each corpus by the formula of the others, also for formulas that read the
mean length of the documents and the number of topics, or more of fits with vectors.
About ten minutes. ``--points`` keeps the measured points in a file, and measures only
those that it lacks: remove it to measure all of them again. ``planner_points.json`` has
those of the last measurement, and is read but never written. ``--expected`` prints what
the formula says of some numbers of documents, by the coefficients of the package.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
from corpora import LOADERS, prepare
from docstrings import load_docstrings
from scipy.optimize import least_squares
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA
from dplda.datasets import load_word_vectors, load_wordnet_glosses
from dplda.document._document_budget import DocumentBudget, document_budget
from dplda.document._plan import plan
from dplda.metrics import unigram_perplexity


def own_words(name, texts):
    """The words of the texts themselves, and documents of five of them."""
    vectorizer = CountVectorizer(stop_words="english")
    X = vectorizer.fit_transform(texts)
    return prepare(
        name, X, words=vectorizer.get_feature_names_out(), n_skip=0, shortest=5
    )


def synthetic():
    """22,000 documents of 50 unequal topics: Dirichlet draws around Zipf's law."""
    generator, n_words = np.random.default_rng(1), 2000
    base = 1 / np.arange(3, n_words + 3)
    topics = generator.gamma(
        np.tile(np.maximum(0.05 * n_words * base / base.sum(), 1e-3), (50, 1))
    )
    sizes = generator.dirichlet(np.ones(50))
    doc_topic = generator.dirichlet(2.5 * sizes, size=22_000)
    lengths = np.maximum(
        5, generator.lognormal(np.log(100), 0.6, len(doc_topic))
    ).astype(int)
    law = doc_topic @ (topics / topics.sum(axis=1, keepdims=True))
    counts = generator.multinomial(lengths, law / law.sum(axis=1, keepdims=True))
    return prepare("synthetic", counts, n_words=None, shortest=5)


CORPORA = LOADERS | {
    "gloss_words": lambda: own_words("glosses, own words", load_wordnet_glosses().data),
    "docstring_words": lambda: own_words("docstrings, own words", load_docstrings()[0]),
    "synthetic": synthetic,
}
DELTA = 1e-6
SIZES = (300, 1000, 10**9)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
COMMITTED = Path(__file__).resolve().with_name("planner_points.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--corpora", nargs="+", default=list(CORPORA), choices=list(CORPORA)
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--points", type=Path, help="file of measured points: written or read"
    )
    parser.add_argument(
        "--expected", action="store_true", help="print what the package expects"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.expected:
        return expected()
    points = []
    if options.points and options.points.exists():
        points = json.loads(options.points.read_text())
    for name in options.corpora:
        try:
            split = CORPORA[name]()
        except OSError as error:
            print(f"not measured: {name} ({error})", file=sys.stderr)
            continue
        for point in measure(split, options.seeds, points):
            points.append(point)
            if options.points and options.points.resolve() != COMMITTED:
                options.points.write_text(json.dumps(points))
    report(points)


def measure(split, seeds: int, known):
    """A point for each data size, table size and epsilon, without and with vectors."""
    keys = ("corpus", "n_docs", "n_words", "n_components", "word_vectors", "epsilon")
    known = {tuple(point[key] for key in keys) for point in known}
    tables = {False: None}
    if split.words is not None:
        tables[True] = load_word_vectors(list(map(str, split.words)))
    for n_docs in SIZES:
        for n_words, n_components in ((2000, 20), (500, 20), (2000, 5)):
            X, held = split.train[:n_docs, :n_words], split.test[:, :n_words]
            epsilons = EPSILONS if (n_words, n_components) == (2000, 20) else (1.0, 4.0)
            size = (split.name, *X.shape, n_components)
            settings = [
                s
                for s in itertools.product(tables, epsilons)
                if (*size, *s) not in known
            ]
            if not settings:
                continue
            unigram = unigram_perplexity(X, held)
            free = min(
                perplexity(X, held, n_components, np.inf, 0, b) for b in (0.01, 1.0)
            )
            for has_vectors, epsilon in settings:
                vectors = tables[has_vectors][:n_words] if has_vectors else None
                found = [
                    perplexity(X, held, n_components, epsilon, seed, vectors=vectors)
                    for seed in range(seeds)
                ]
                point = {
                    "corpus": split.name,
                    "n_docs": X.shape[0],
                    "n_words": X.shape[1],
                    "n_components": n_components,
                    "epsilon": epsilon,
                    "word_vectors": has_vectors,
                    "mean_doc_words": round(float(X.sum() / X.shape[0]), 1),
                    "closed": round(
                        float((unigram - np.mean(found)) / (unigram - free)), 3
                    ),
                    "unigram": round(unigram),
                    "free": round(free),
                }
                print(json.dumps(point), file=sys.stderr)
                yield point


def perplexity(X, held, n_components, epsilon, seed, prior=0.01, vectors=None) -> float:
    model = SubLDA(
        n_components,
        epsilon=epsilon,
        delta=DELTA,
        topic_word_prior=prior,
        word_vectors=vectors,
        random_state=seed,
    )
    return model.fit(X).perplexity(held)


def report(points) -> None:
    """The errors on each corpus, the coefficients, and the errors of other formulas."""
    noise = {e: budget(e).noise for e in {p["epsilon"] for p in points}}
    x = np.array(
        [
            [noise[p["epsilon"]], p["n_words"], p["n_docs"], p["word_vectors"]]
            for p in points
        ]
    )
    y = np.array([max(0.0, p["closed"]) for p in points])
    corpus, vectors = np.array([p["corpus"] for p in points]), x[:, 3] == 1
    errors = errors_of_others(x, y, corpus)
    print(
        "| corpus | without vectors: mean error | root mean square | with: mean | root "
        "|"
    )
    print("| --- " * 5 + "|")
    for name in dict.fromkeys(corpus):
        own = [errors[(corpus == name) & kind] for kind in (~vectors, vectors)]
        cells = [
            f"{e.mean():+.2f} | {root_mean_square(e):.2f}" if len(e) else "|"
            for e in own
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    coefficients, spread = fit(x, y)
    half, words, decay, factor = coefficients
    said = [
        f"HALF = {np.exp(half):.1f} (times or over {np.exp(spread[0]):.2f}) without "
        f"vectors, and {np.exp(factor):.2f} (times or over {np.exp(spread[3]):.2f}) "
        f"times as much, {np.exp(half + factor):.1f}, with them; WORDS = {words:.3f} ± "
        f"{spread[1]:.3f}, DECAY = {decay:.3f} ± {spread[2]:.3f}.",
        "The root mean square error where the measured share is above zero is "
        f"ERROR = {above_zero(errors, y, vectors)}.",
    ]
    kinds = np.column_stack([np.where(vectors, np.log(x[:, k]), 0) for k in range(3)])
    more = {
        name: np.log([p[name] for p in points])
        for name in ("mean_doc_words", "n_components")
    }
    more |= dict(zip(["noise", "words", "documents"], kinds.T))
    for name, column in more.items():
        wider = errors_of_others(np.column_stack([x, column]), y, corpus)
        kind = " of fits with vectors" if name not in points[0] else ""
        said.append(
            f"It is {above_zero(wider, y, vectors)} if h may depend on {name}{kind} "
            "too."
        )
    apart = [
        errors_of_others(x[kind, :3], y[kind], corpus[kind])
        for kind in (~vectors, vectors)
    ]
    both = np.empty(len(y))
    both[~vectors], both[vectors] = apart
    said.append(f"It is {above_zero(both, y, vectors)} with all coefficients apart.")
    for kind in (False, True):
        own = [p for p in points if p["word_vectors"] == kind]
        low, median, high = np.quantile(halves(own, coefficients), [0.1, 0.5, 0.9])
        said.append(
            f"{'With' if kind else 'Without'} vectors, half of the gap takes {low:.2f} "
            f"(10% of the settings), {median:.2f} (50%) and {high:.2f} (90%) times the "
            "documents that the formula says."
        )
    print("\n" + textwrap.fill(" ".join(said), 100))


def above_zero(errors, y, vectors) -> str:
    """The error where the measured share is above zero, without and with vectors."""
    return ", ".join(
        f"{root_mean_square(errors[(y > 0) & k]):.2f}" for k in (~vectors, vectors)
    )


def halves(points, coefficients) -> list[float]:
    """Documents that close half of the gap, over those of the formula.

    Only where points enclose it.
    """
    curves: dict = {}
    for p in points:
        setting = (
            p["corpus"],
            p["n_words"],
            p["n_components"],
            p["epsilon"],
            p["word_vectors"],
        )
        curves.setdefault(setting, []).append((p["n_docs"], p["closed"]))
    half, words, _, factor = coefficients
    ratios = []
    for (_, n_words, _, epsilon, vectors), curve in curves.items():
        expected = (
            np.exp(half + factor * vectors) * budget(epsilon).noise * n_words**words
        )
        for (few, below), (many, above) in itertools.pairwise(sorted(curve)):
            if below < 0.5 <= above:
                n_docs = few * (many / few) ** ((0.5 - below) / (above - below))
                ratios.append(n_docs / expected)
    return ratios


def root_mean_square(errors) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def expected() -> None:
    """What the package expects of numbers of documents, without and with vectors."""
    print("| documents |", " | ".join(f"epsilon {e:g}" for e in EPSILONS), "|")
    print("| --- " * (1 + len(EPSILONS)) + "|")
    for n_docs in (300, 1000, 3000, 10_000, 30_000, 100_000):
        cells = []
        for epsilon in EPSILONS:
            size = {"n_docs": n_docs, "epsilon": epsilon, "n_components": 2}
            alone, with_vectors = (
                plan(**size, word_vectors=given) for given in (False, True)
            )
            shares = f"{share(alone)} → {share(with_vectors)}"
            cells.append(f"{shares}, {alone.recommended_components} topics")
        print(f"| {n_docs:,} | {' | '.join(cells)} |")


def share(what) -> str:
    return f"{what.gap_closed:.0%}" if what.gap_closed > 0 else "none"


def budget(epsilon: float) -> DocumentBudget:
    return document_budget(epsilon, None, DELTA, max_iter=80, subsampling_ratio=1.0)


def closed(coefficients, x) -> np.ndarray:
    """The formula, cut to zero: a model that is worse than unigram closes nothing.

    `x` has noise, words and documents, and then what the logarithm of `half` may depend
    on, such as whether there are vectors.
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
    covariance = (
        np.linalg.inv(found.jac.T @ found.jac) * 2 * found.cost / (len(y) - len(start))
    )
    return found.x, np.sqrt(np.diag(covariance))


if __name__ == "__main__":
    main()
