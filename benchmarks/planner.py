"""Fit the formula of `dplda.plan`: how much private topics know of new words.

``python benchmarks/planner.py [--corpora NAME ...] [--seeds 1] [--points FILE]``
``python benchmarks/planner.py --expected``

For each corpus it trains SubLDA on 300 documents, on 1000, and on all of them, at
epsilon 0.5 to 8, with fewer words and fewer topics, without and with the embedded word
vectors. The gain on new words (`held_out_scores`) is divided by that of GibbsLDA on the
same documents; settings in which GibbsLDA gains less than 0.1 nats are left out. The
formula is fitted to the fits without vectors, and its error is measured on each corpus
by the formula of the others. With vectors, a fit knows what 20 public clusters know
(`baselines.clusters`, with the totals of the fit), and of the rest as much as without
vectors: the second part of the table measures the error of this, from the measured
share of a fit without vectors. About ten minutes. ``--points`` keeps the measured
points in a file, and measures only those that it lacks: remove it to measure all of
them again. ``planner_points.json`` has those of the last measurement, and is read but
never written. ``--expected`` prints what the formula says of some numbers of documents,
by the coefficients of the package.
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
from baselines import clusters
from corpora import LOADERS, prepare
from docstrings import load_docstrings
from scipy.optimize import least_squares
from sklearn.feature_extraction.text import CountVectorizer

from dplda import GibbsLDA, SubLDA
from dplda.datasets import load_word_vectors, load_wordnet_glosses
from dplda.document._document_budget import DocumentBudget, document_budget
from dplda.document._plan import plan
from dplda.metrics import held_out_scores


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
N_CLUSTERS = 20
LEAST_KNOWN = 0.1  # nats: below it, the share of them is noise
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
            gibbs = GibbsLDA(n_components, topic_word_prior=0.01, random_state=0)
            reference = new_words(gibbs.fit(X).components_, held)
            for has_vectors, epsilon in settings:
                given = {"word_vectors": tables[True][:n_words]} if has_vectors else {}
                models = [
                    SubLDA(
                        n_components,
                        epsilon=epsilon,
                        delta=DELTA,
                        random_state=seed,
                        **given,
                    ).fit(X)
                    for seed in range(seeds)
                ]
                gain = np.mean([new_words(m.components_, held) for m in models])
                of_clusters = None
                if has_vectors:
                    totals = models[0].components_.sum(axis=0)
                    table = clusters(totals, split.words[:n_words], N_CLUSTERS)
                    of_clusters = new_words(table, held) / reference
                point = {
                    "corpus": split.name,
                    "n_docs": X.shape[0],
                    "n_words": X.shape[1],
                    "n_components": n_components,
                    "epsilon": epsilon,
                    "word_vectors": has_vectors,
                    "mean_doc_words": round(float(X.sum() / X.shape[0]), 1),
                    "reference": round(reference, 3),
                    "share": round(float(gain) / reference, 3),
                    "clusters": of_clusters and round(of_clusters, 3),
                }
                print(json.dumps(point), file=sys.stderr)
                yield point


def new_words(components, held) -> float:
    return float(held_out_scores(components, held).new_word_gain)


def report(points) -> None:
    """The errors on each corpus, the coefficients, and the range of the halves."""
    points = [p for p in points if p["reference"] >= LEAST_KNOWN]
    alone = [p for p in points if not p["word_vectors"]]
    x = np.array(
        [[budget(p["epsilon"]).noise, p["n_words"], p["n_docs"]] for p in alone]
    )
    y = np.array([max(0.0, p["share"]) for p in alone])
    corpus = np.array([p["corpus"] for p in alone])
    errors = errors_of_others(x, y, corpus)
    said = {setting(p): share for p, share in zip(alone, y)}
    with_vectors = [p for p in points if p["word_vectors"]]
    known = np.array([max(0.0, p["clusters"]) for p in with_vectors])
    rest = np.array([said[setting(p)] for p in with_vectors])
    off = known + (1 - known) * rest
    off -= [max(0.0, p["share"]) for p in with_vectors]
    of = np.array([p["corpus"] for p in with_vectors])
    print(
        "| corpus | without vectors: mean error | root mean square | clusters know | "
        "with vectors, given these: mean error | root mean square |"
    )
    print("| --- " * 6 + "|")
    for name in dict.fromkeys(corpus):
        cells = [f"{errors[corpus == name].mean():+.2f}"]
        cells.append(f"{root_mean_square(errors[corpus == name]):.2f}")
        if (of == name).any():
            cells.append(f"{known[of == name].mean():.2f}")
            cells.append(f"{off[of == name].mean():+.2f}")
            cells.append(f"{root_mean_square(off[of == name]):.2f}")
        cells += [""] * (5 - len(cells))
        print(f"| {name} | {' | '.join(cells)} |")
    half, spread = fit(x, y)
    low, median, high = np.quantile(halves(alone, half), [0.1, 0.5, 0.9])
    lines = [
        f"HALF = {half:.1f} ± {spread:.1f}.",
        "The root mean square error where the measured share is above zero is ERROR = "
        f"{root_mean_square(errors[y > 0]):.3f} without vectors; with vectors, given "
        f"what clusters know, it is {root_mean_square(off):.2f}.",
        f"Half takes {low:.2f} (10% of the settings), {median:.2f} (50%) and {high:.2f}"
        " (90%) times the documents that the formula says.",
    ]
    print("\n" + textwrap.fill(" ".join(lines), 100))


def setting(point) -> tuple:
    """What a fit with vectors and one without have in common."""
    keys = "corpus", "n_docs", "n_words", "n_components", "epsilon"
    return tuple(point[key] for key in keys)


def halves(points, half: float) -> list[float]:
    """Documents that know half of the new words, over those of the formula.

    Only where points enclose it.
    """
    curves: dict = {}
    for p in points:
        size = p["corpus"], p["n_words"], p["n_components"], p["epsilon"]
        curves.setdefault(size, []).append((p["n_docs"], p["share"]))
    ratios = []
    for (_, n_words, _, epsilon), curve in curves.items():
        expected = half * budget(epsilon).noise * np.cbrt(n_words)
        for (few, below), (many, above) in itertools.pairwise(sorted(curve)):
            if below < 0.5 <= above:
                n_docs = few * (many / few) ** ((0.5 - below) / (above - below))
                ratios.append(n_docs / expected)
    return ratios


def root_mean_square(errors) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def expected() -> None:
    """What the package expects of numbers of documents."""
    print("| documents |", " | ".join(f"epsilon {e:g}" for e in EPSILONS), "|")
    print("| --- " * (1 + len(EPSILONS)) + "|")
    for n_docs in (300, 1000, 3000, 10_000, 30_000, 100_000):
        cells = []
        for epsilon in EPSILONS:
            size = {"n_docs": n_docs, "epsilon": epsilon, "n_components": 2}
            what = plan(**size, word_vectors=True)
            own = f"{what.new_words:.0%}" if what.new_words > 0 else "none"
            shares = f"{own}; {what.new_words_english:.0%}"
            cells.append(f"{shares}; {what.recommended_components} topics")
        print(f"| {n_docs:,} | {' | '.join(cells)} |")


def budget(epsilon: float) -> DocumentBudget:
    return document_budget(epsilon, None, DELTA, max_iter=80, subsampling_ratio=1.0)


def known_share(half: float, x) -> np.ndarray:
    """The formula, cut to zero; `x` has noise, words and documents."""
    noise, n_words, n_docs = x.T
    return np.maximum(0, 1 - np.sqrt(half * noise * np.cbrt(n_words) / n_docs) / 2)


def errors_of_others(x, y, corpus) -> np.ndarray:
    """Errors on each corpus of the formula that was fitted to the others."""
    errors = np.empty(len(y))
    for name in dict.fromkeys(corpus):
        others, _ = fit(x[corpus != name], y[corpus != name])
        errors[corpus == name] = (
            known_share(others, x[corpus == name]) - y[corpus == name]
        )
    return errors


def fit(x, y) -> tuple[float, float]:
    """HALF by least squares, and its standard error."""
    found = least_squares(lambda half: known_share(half, x) - y, 100.0)
    variance = 2 * found.cost / (len(y) - 1) / np.square(found.jac).sum()
    return float(found.x[0]), float(np.sqrt(variance))


if __name__ == "__main__":
    main()
