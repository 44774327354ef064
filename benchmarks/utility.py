"""Perplexity against epsilon, N50, small groups, and topics as features.

``python benchmarks/utility.py main [--public 100 300 1000] [--plot FILE]`` prints
held-out perplexity of unigram, the best non-private model, and SubLDA: alone, with
embedded word vectors, with the vectors of other words, for users of five texts with
vectors, and with vectors and public texts; and of the public texts alone. ``...
totals`` puts exact word totals into finished fits, which no private fit may do. ``...
N50 [--vectors embedded]`` prints documents times epsilon at which half of the gap is
closed. ``... groups [--vectors embedded]`` prints how well small classes are served,
``... words`` what vectors do to single words, and ``... classify`` the accuracy of a
classifier on topic weights.

Every command takes ``[--corpora kos bbc docstrings nips glosses] [--epsilons ...]
[--seeds 3] [--points FILE]``. FILE keeps the measured points: what stands there is not
measured again.

K = 20, V = 2000, delta = 1e-5, one tenth held out, perplexity by document completion;
mean and standard deviation over seeds (of noise and initialization; the split is
fixed). Public texts are the first training documents, which are taken out of the
private ones.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, Split, load
from paired_utility import keep
from sklearn.linear_model import LogisticRegression

from dplda import GibbsLDA, SubLDA, public_prior
from dplda.datasets import load_word_vectors
from dplda.document._noisy_table import Reading, finish
from dplda.metrics import held_out_perplexity, unigram_perplexity

K, DELTA = 20, 1e-5
SMOOTHING = 0.1  # of each cell, where the public table is used alone
COLORS = "#000000", "#56b4e9", "#999999", "#cc79a7", "#0072b2", "#d55e00", "#009e73"
NON_PRIVATE = {
    "GibbsLDA, beta = 0.01": lambda seed: GibbsLDA(K, max_iter=300, random_state=seed),
    "GibbsLDA, beta = 1": lambda seed: GibbsLDA(
        K, topic_word_prior=1.0, max_iter=300, random_state=seed
    ),
    "SubLDA, beta = 0.01": lambda seed: sublda(np.inf, seed),
    "SubLDA, beta = 1": lambda seed: sublda(np.inf, seed, topic_word_prior=1.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)

    def command(name, call, seeds, epsilons, corpora=tuple(LOADERS)):
        added = commands.add_parser(name, help=call.__doc__)
        added.add_argument(
            "--corpora", nargs="+", default=corpora, choices=list(LOADERS)
        )
        added.add_argument("--epsilons", nargs="+", type=float, default=epsilons)
        added.add_argument("--seeds", type=int, default=seeds)
        added.add_argument("--points", type=Path, help="file of measured points")
        added.set_defaults(call=call)
        return added

    added = command("main", against_epsilon, 3, [1.0, 4.0])
    added.add_argument("--public", nargs="*", type=int, default=[100, 300, 1000])
    added.add_argument("--plot", type=Path, help="file for the picture")
    added = command("N50", n50, 3, [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
    added.add_argument(
        "--public", type=int, default=300, help="0: without public texts"
    )
    added.add_argument("--vectors", default="", choices=["", "embedded"])
    added = command(
        "groups", groups, 5, [0.5, 1.0, 2.0, 4.0, 8.0, np.inf], ["bbc", "docstrings"]
    )
    added.add_argument("--components", type=int, default=K)
    added.add_argument(
        "--public", type=int, default=0, help="public texts, evenly of all classes"
    )
    added.add_argument("--vectors", default="", choices=["", "embedded"])
    command("totals", exact_totals, 2, [1.0, 4.0])
    added = command("words", single_words, 3, [1.0, 4.0], ["nips"])
    added.add_argument("--words", nargs="+", default=WORDS)
    command("classify", classify, 3, [1.0, 4.0, np.inf], ["bbc", "docstrings"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.call(load(options.corpora), Points(options.points), options)


class Points:
    """Results by setting, kept in a file: what stands there is not measured again.

    The file does not know which code was measured: begin a new one after a change of
    the code.
    """

    def __init__(self, file: Path | None):
        self.file = file
        self.rows = json.loads(file.read_text()) if file and file.exists() else []
        self.known = {str(row["setting"]): row["result"] for row in self.rows}

    def get(self, measure: Callable, split: Split, **given):
        """The result of ``measure(split, **given)``."""
        setting = {"measure": measure.__name__, "corpus": split.name, **given}
        if str(setting) not in self.known:
            result = self.known[str(setting)] = measure(split, **given)
            self.rows.append({"setting": setting, "result": result})
            if self.file:
                keep(self.file, self.rows)
        return self.known[str(setting)]


# Perplexity


def perplexity(
    split: Split,
    model: str,
    n_docs: int,
    n_public: int,
    epsilon: float,
    seed: int,
    vectors: str = "",
    users: int = 1,
) -> float:
    """Held-out perplexity of a fit on the first documents, the first of them public."""
    private = split.train[n_public:n_docs]
    if model == "unigram":
        return float(unigram_perplexity(private, split.test))
    prior = prior_of(split, n_public, seed) if n_public else None
    if model == "public alone":
        return float(held_out_perplexity(prior + SMOOTHING, split.test))
    if model == "SubLDA":
        words = vectors_of(split, vectors)
        model = sublda(epsilon, seed, prior_components=prior, word_vectors=words)
        ids = np.random.default_rng(seed).permutation(private.shape[0]) // users
        model.fit(private, user_ids=ids if users > 1 else None)
        return float(model.perplexity(split.test))
    return float(NON_PRIVATE[model](seed).fit(private).perplexity(split.test))


def sublda(epsilon: float, seed: int, n_components: int = K, **parameters) -> SubLDA:
    return SubLDA(
        n_components, epsilon=epsilon, delta=DELTA, random_state=seed, **parameters
    )


def vectors_of(split: Split, which: str) -> np.ndarray | None:
    """Embedded vectors of the words, those of other words, or none."""
    if not which:
        return None
    found = load_word_vectors(list(map(str, split.words)))
    return np.random.default_rng(0).permutation(found) if which == "permuted" else found


@cache
def prior_of(split: Split, n_public: int, seed: int) -> np.ndarray:
    """What SubLDA gets of the first documents."""
    return public_prior(split.train[:n_public], n_components=K, random_state=seed)


class Gap:
    """Fits on the first `n_docs` documents, and the share of the gap they close."""

    def __init__(
        self, split: Split, points: Points, seeds: int, n_docs: int | None = None
    ):
        self.split, self.points, self.seeds = split, points, seeds
        self.n_docs = n_docs or split.train.shape[0]
        self.unigram = self.fits("unigram", seeds=1)[0]
        free = {
            model: self.fits(model, seeds=min(seeds, 2)).mean() for model in NON_PRIVATE
        }
        self.best_model = min(free, key=lambda model: free[model])
        self.best = free[self.best_model]

    def fits(
        self,
        model: str,
        *,
        epsilon=np.inf,
        n_public=0,
        seeds: int | None = None,
        **given,
    ):
        """Perplexities, one a seed."""
        return np.array(
            [
                self.points.get(
                    perplexity,
                    self.split,
                    model=model,
                    n_docs=self.n_docs,
                    n_public=n_public,
                    epsilon=epsilon,
                    seed=seed,
                    **given,
                )
                for seed in range(seeds or self.seeds)
            ]
        )

    def closed(self, perplexities) -> float:
        """0 for word frequencies, 1 for the best model without privacy."""
        return float(
            (self.unigram - np.mean(perplexities)) / (self.unigram - self.best)
        )


def against_epsilon(splits: list[Split], points: Points, options) -> None:
    """For each corpus a line of references, and a row for each epsilon."""
    settings: dict[str, dict] = {
        "private texts alone": {},
        "with word vectors": {"vectors": "embedded"},
        "vectors of other words": {"vectors": "permuted"},
        "users of five texts, with vectors": {"vectors": "embedded", "users": 5},
        **{
            f"vectors and {n:,} public texts": {"n_public": n, "vectors": "embedded"}
            for n in options.public
        },
    }
    curves: dict[str, list[dict[float, float]]] = {name: [] for name in settings}
    for split in splits:
        gap = Gap(split, points, options.seeds)
        print(f"\n{split}; {split.test.shape[0]} held out; seeds: {options.seeds}\n")
        print(
            f"unigram {gap.unigram:.0f}; best without privacy {gap.best:.0f} "
            f"({gap.best_model})\n"
        )
        print(
            "| epsilon | "
            + " | ".join(settings)
            + " |\n"
            + "| --- " * (1 + len(settings))
            + "|"
        )
        alone = {
            name: gap.fits("public alone", n_public=given["n_public"])
            for name, given in settings.items()
            if "n_public" in given
        }
        cells = [cell(gap, alone[name]) if name in alone else "" for name in settings]
        print("| public texts alone | " + " | ".join(cells) + " |", flush=True)
        closed = {name: {} for name in settings}  # 0 stands for the public texts alone
        for name, found in alone.items():
            closed[name][0.0] = gap.closed(found)
        for epsilon in options.epsilons:
            cells = []
            for name, given in settings.items():
                found = gap.fits("SubLDA", epsilon=epsilon, **given)
                closed[name][epsilon] = gap.closed(found)
                cells.append(cell(gap, found))
            print(f"| {epsilon:g} | " + " | ".join(cells) + " |", flush=True)
        for name, found in closed.items():
            curves[name].append(found)
    if options.plot:
        picture(curves, options.epsilons, options.plot)


def cell(gap: Gap, perplexities) -> str:
    return f"{spread(perplexities)} ({gap.closed(perplexities):.0%})"


def picture(curves: dict, epsilons: list[float], path: Path) -> None:
    """The share of the gap closed against epsilon, mean of the corpora.

    On the left: public alone.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.8), layout="constrained", facecolor="white")
    axes = figure.subplots()
    # 0: the public texts alone
    place = {0.0: min(epsilons) / 2, **{e: e for e in epsilons}}
    names, ends = {}, {}
    for (name, found), color in zip(curves.items(), COLORS, strict=True):
        mean = {e: float(np.mean([each[e] for each in found])) for e in found[0]}
        axes.plot(
            [place[e] for e in mean],
            list(mean.values()),
            marker="o",
            color=color,
            lw=2.4,
        )
        names[name], ends[name] = color, list(mean.values())[-1]
    for name, level in apart(ends, 0.065).items():
        axes.annotate(
            name,
            (max(epsilons), level),
            xytext=(10, 0),
            color=names[name],
            textcoords="offset points",
            va="center",
            fontsize=12,
        )
    for level, name in (
        (1.0, "topics without privacy"),
        (0.0, "word frequencies, no topics"),
    ):
        axes.axhline(level, color="gray", linestyle=":", linewidth=1.5)
        axes.text(
            max(epsilons), level + 0.015, name, color="dimgray", ha="right", fontsize=12
        )
    axes.set_xscale("log")
    axes.set_xticks(
        list(place.values()),
        ["public\ntexts alone", *(f"{e:g}" for e in epsilons)],
        fontsize=12,
    )
    axes.minorticks_off()
    axes.set_ylim(-0.25, 1.1)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.tick_params(labelsize=12)
    axes.set_xlabel("epsilon of a document or a user", fontsize=12)
    axes.set_title(
        "From word frequencies (0%) to topics without privacy (100%), "
        "in held-out perplexity",
        loc="left",
        fontsize=12,
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def apart(levels: dict[str, float], least: float) -> dict[str, float]:
    """Places of labels near their levels, moved apart where two would touch."""
    places: dict[str, float] = {}
    for name in sorted(levels, key=lambda name: levels[name]):
        places[name] = max([levels[name], *(at + least for at in places.values())])
    moved = np.mean(list(places.values())) - np.mean(list(levels.values()))
    return {name: at - moved for name, at in places.items()}


def exact_totals(splits: list[Split], points: Points, options) -> None:
    """The share of the gap of fits with vectors, and with exact word totals put in."""
    print(
        "| corpus | epsilon | word frequencies, exact → private | share | with exact "
        "totals |"
    )
    print("| --- " * 5 + "|")
    for split in splits:
        gap = Gap(split, points, options.seeds)
        for epsilon in options.epsilons:
            found = [
                points.get(with_totals, split, epsilon=epsilon, seed=seed)
                for seed in range(options.seeds)
            ]
            frequencies, fitted, exact = np.mean(found, axis=0)
            print(
                f"| {split.name} | {epsilon:g} | {gap.unigram:.0f} → {frequencies:.0f} "
                f"| {gap.closed(fitted):.0%} | {gap.closed(exact):.0%} |",
                flush=True,
            )


def with_totals(split: Split, epsilon: float, seed: int) -> list[float]:
    """Perplexity of a fit's word totals alone, of the fit, of it with exact totals."""
    vectors = load_word_vectors(list(map(str, split.words)))
    model = sublda(epsilon, seed, word_vectors=vectors).fit(split.train)
    table = model._released
    exact = np.asarray(split.train.sum(axis=0)).ravel()
    frequencies = float(held_out_perplexity(table.totals[None], split.test))
    fitted = float(model.perplexity(split.test))
    exact = np.maximum(exact, 0.5) * (table.totals.sum() / exact.sum())
    known = replace(table, reading=Reading(table.released, exact, exact))
    result = finish(known, model.topic_word_prior, is_centered=True)
    model.components_ = result["components_"]
    return [frequencies, fitted, float(model.perplexity(split.test))]


# N50


def n50(splits: list[Split], points: Points, options) -> None:
    """Documents times epsilon at which half of the gap closes, one row a corpus."""
    public = f" | with {options.public} public texts" if options.public else ""
    print(f"| corpus | documents | N50 | with half of the documents{public} |")
    print("| --- " * (5 if public else 4) + "|")
    for split in splits:
        n_docs = split.train.shape[0]
        full, half = (
            Gap(split, points, options.seeds, n) for n in (n_docs, n_docs // 2)
        )
        given = options.epsilons, options.vectors
        cells = [crossing(full, 0, *given), crossing(half, 0, *given)]
        if options.public:
            cells.append(crossing(full, options.public, *given))
        print(f"| {split.name} | {n_docs:,} | " + " | ".join(cells) + " |", flush=True)


def crossing(gap: Gap, n_public: int, epsilons: list[float], vectors: str) -> str:
    """Private documents times the epsilon at which half of the gap closes.

    Linear in the logarithm of epsilon, between the last epsilon that closes less than
    half and the next one. Epsilons beyond are not measured.
    """
    n_docs, below = gap.n_docs - n_public, None
    if n_public:
        alone = gap.closed(gap.fits("public alone", n_public=n_public))
        if alone >= 0.5:
            return f"0 (public texts alone: {alone:.0%})"
    for epsilon in epsilons:
        given = {"vectors": vectors} if vectors else {}
        share = gap.closed(
            gap.fits("SubLDA", epsilon=epsilon, n_public=n_public, **given)
        )
        if share >= 0.5:
            if below is None:
                return f"< {n_docs * epsilon:,.0f}"
            at = np.interp(0.5, [below[1], share], np.log([below[0], epsilon]))
            return f"{n_docs * np.exp(at):,.0f}"
        below = epsilon, share
    return f"> {n_docs * epsilons[-1]:,.0f}"


# Single words

# Rare ones, and others that NIPS uses in a sense of its own
WORDS = [
    "kernel",
    "spike",
    "expert",
    "tree",
    "string",
    "arm",
    "retina",
    "gate",
    "monkey",
    "chip",
]


def single_words(splits: list[Split], points: Points, options) -> None:
    """Words that go most with some words: no privacy, without and with vectors."""
    for split in splits:
        place = {word: v for v, word in enumerate(map(str, split.words))}
        counts = split.train.sum(axis=0)
        exact = [GibbsLDA(K, max_iter=300, random_state=0).fit(split.train)]
        fits = {"without privacy": exact}
        for epsilon in options.epsilons:
            for which in ("", "embedded"):
                fits[f"{epsilon:g}, {'vectors' if which else 'alone'}"] = [
                    sublda(epsilon, seed, word_vectors=vectors_of(split, which)).fit(
                        split.train
                    )
                    for seed in range(options.seeds)
                ]
        print(
            f"\n{split}; words that go with a word without privacy, and correlation of "
            f"all words with those, mean of {options.seeds} seeds\n"
        )
        titles = ["word", "tokens", *fits]
        print(f"| {' | '.join(titles)} |\n" + "| --- " * len(titles) + "|")
        for word in options.words:
            v = place.get(word)
            if v is None:
                continue
            truth = company(exact[0], v, counts)
            nearest = ", ".join(
                str(split.words[w]) for w in np.argsort(-truth)[:4] if w != v
            )
            cells = [nearest] + [
                f"{mean_correlation(models, v, counts, truth):.2f}"
                for models in list(fits.values())[1:]
            ]
            print(f"| {word} | {counts[v]:.0f} | {' | '.join(cells)} |", flush=True)


def mean_correlation(models, word: int, counts, truth: np.ndarray) -> float:
    """Mean correlation of the company that a word has in models with the true one."""
    found = [company(model, word, counts) for model in models]
    return np.mean([np.corrcoef(each, truth)[0, 1] for each in found])


def company(model, word: int, counts) -> np.ndarray:
    """How much more often than else each word is drawn beside this one: logarithms."""
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    sizes = model.components_.sum(axis=1) / model.components_.sum()
    own = sizes * topics[:, word]
    expected = (own / own.sum()) @ topics
    return np.log(expected / (sizes @ topics))


# Labelled corpora

SHORTEST = 20  # documents of a class, with those held out
SMALL = 100  # training documents of the small class of BBC


def groups(splits: list[Split], points: Points, options) -> None:
    """Recall of the smallest quarter of classes, and of the others, against epsilon."""
    for split in splits:
        found = {}
        for epsilon in options.epsilons:
            each = [
                points.get(
                    recalls,
                    split,
                    n_components=options.components,
                    n_public=options.public,
                    epsilon=epsilon,
                    seed=seed,
                    vectors=options.vectors,
                )
                for seed in range(options.seeds)
            ]
            found[epsilon] = {name: [one[name] for one in each] for name in each[0]}
        shares, sizes = (
            found[options.epsilons[0]][name] for name in ("share", "documents")
        )
        print(
            f"\n{split.name}: small classes have {np.mean(shares):.1%} of the training "
            f"documents and {np.mean(sizes):.0f} held-out ones\n"
        )
        print("| epsilon | classifier, small | others | own topic, small | others |")
        print("| --- " * 5 + "|")
        for epsilon, result in found.items():
            cells = [
                f"{np.mean(result[name]):.2f} ± {np.std(result[name]):.2f}"
                for name in ("small", "others", "small, topic", "others, topic")
            ]
            print(f"| {epsilon:g} | " + " | ".join(cells) + " |", flush=True)


def recalls(
    split: Split,
    n_components: int,
    n_public: int,
    epsilon: float,
    seed: int,
    vectors: str,
) -> dict[str, float]:
    """Shares of held-out documents of small and of other classes that are recognized.

    By a logistic regression on topic weights; and by the largest weight alone, where
    each topic stands for the class whose documents give it the largest mean weight.
    """
    X, y, held, truth = uneven(split, seed)
    classes, sizes = np.unique(y, return_counts=True)
    small = classes[np.argsort(sizes, kind="stable")[: max(1, len(classes) // 4)]]
    public = of_each(truth, n_public // len(classes))
    prior = None
    if n_public:
        prior = public_prior(held[public], n_components=n_components, random_state=seed)
    held, truth = held[~public], truth[~public]
    words = vectors_of(split, vectors)
    model = sublda(
        epsilon, seed, n_components, prior_components=prior, word_vectors=words
    ).fit(X)
    weights, held_weights = model.transform(X), model.transform(held)
    by_weights = (
        LogisticRegression(C=100, max_iter=2000).fit(weights, y).predict(held_weights)
    )
    means = np.array([weights[y == c].mean(axis=0) for c in classes])
    by_topic = classes[means.argmax(axis=0)][held_weights.argmax(axis=1)]
    rare = np.isin(truth, small)
    return {
        "share": float(np.isin(y, small).mean()),
        "documents": int(rare.sum()),
        "small": recall(truth, by_weights, rare),
        "others": recall(truth, by_weights, ~rare),
        "small, topic": recall(truth, by_topic, rare),
        "others, topic": recall(truth, by_topic, ~rare),
    }


def of_each(labels, n_docs: int) -> np.ndarray:
    """Mask of the first documents of each class, at most half of them."""
    mask = np.zeros(len(labels), bool)
    for c in np.unique(labels):
        own = np.flatnonzero(labels == c)
        mask[own[: min(n_docs, len(own) // 2)]] = True
    return mask


def recall(truth, guess, which) -> float:
    """Mean recall of the classes of these documents."""
    hit = {c: (guess[truth == c] == c).mean() for c in np.unique(truth[which])}
    return float(np.mean(list(hit.values())))


def uneven(split: Split, seed: int):
    """Training and held-out documents with labels, where some classes are small.

    A quarter at random is held out, for enough documents of small classes. Classes of
    fewer than 20 documents are left out. BBC's five classes are about equal: class
    number `seed` keeps 100 training documents, and its others are held out.
    """
    X = sp.vstack([split.train, split.test], format="csr")
    y = np.concatenate([split.y_train, split.y_test])
    classes, numbers, sizes = np.unique(y, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(
        np.flatnonzero(sizes[numbers] >= SHORTEST)
    )
    held, kept = order[: len(order) // 4], order[len(order) // 4 :]
    if split.name == "BBC":
        rare = kept[numbers[kept] == seed % len(classes)]
        held, kept = np.append(held, rare[SMALL:]), np.setdiff1d(kept, rare[SMALL:])
    return X[kept], y[kept], X[held], y[held]


def classify(splits: list[Split], points: Points, options) -> None:
    """Accuracy of a logistic regression on topic weights, and on words."""
    for split in splits:
        words = LogisticRegression(max_iter=1000).fit(
            np.log1p(split.train), split.y_train
        )
        print(
            f"\n{split}; {split.test.shape[0]} held out\n\n"
            f"words: {words.score(np.log1p(split.test), split.y_test):.3f}\n"
        )
        print("| epsilon | accuracy |\n| --- | --- |")
        for epsilon in options.epsilons:
            scores = [
                points.get(accuracy, split, epsilon=epsilon, seed=seed)
                for seed in range(options.seeds)
            ]
            print(
                f"| {epsilon:g} | {np.mean(scores):.3f} ± {np.std(scores):.3f} |",
                flush=True,
            )


def accuracy(split: Split, epsilon: float, seed: int) -> float:
    model = sublda(epsilon, seed).fit(split.train)
    classifier = LogisticRegression(C=100, max_iter=2000)
    classifier.fit(model.transform(split.train), split.y_train)
    return float(classifier.score(model.transform(split.test), split.y_test))


def spread(values) -> str:
    if len(values) == 1:
        return f"{values[0]:.0f}"
    return f"{np.mean(values):.0f} ± {np.std(values):.0f}"


if __name__ == "__main__":
    main()
