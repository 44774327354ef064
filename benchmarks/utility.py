"""What private topics add, against epsilon; small groups, and topics as features.

``python benchmarks/utility.py main [--public 300] [--plot FILE]`` measures SubLDA:
alone, with embedded word vectors, with the vectors of other words, for users of five
texts with vectors, and with vectors and public texts; and what stands beside it
(`baselines.py`): word totals alone, public clusters with private totals, public texts
alone, GibbsLDA. The first table has what topics say of words that are new to a
document, as a share of what GibbsLDA says; the second all measures at the first and
last epsilon of ``--epsilons``. ``... totals`` puts exact word totals into finished
fits, which no private fit may do. ``... pays`` prints documents times epsilon at
which fits with vectors say more of new words than public clusters do. ``... groups
[--vectors embedded]`` prints how well small classes are served, ``... words`` what
vectors do to single words, and ``... classify`` the accuracy of a classifier on topic
weights, next to features that cost less.

Every command takes ``[--corpora kos bbc docstrings nips glosses] [--epsilons ...]
[--seeds 3] [--points FILE]``. FILE keeps the measured points: what stands there is not
measured again.

K = 20, V = 2000, delta = 1e-5, one tenth held out, document completion; mean and
standard deviation over seeds (of noise and initialization; the split is fixed). The gap
is that of perplexity between word frequencies and the best model without privacy.
Public texts are the first training documents, which are taken out of the private ones.
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
from baselines import (
    SIZES,
    likeness,
    mean_vectors,
    measured,
    of_totals,
    totals_alone,
)
from corpora import LOADERS, Split, load
from paired_utility import keep
from sklearn.linear_model import LogisticRegression
from topic_signal import confirmed

from dplda import GibbsLDA, SubLDA, plan, public_prior
from dplda.datasets import load_word_vectors
from dplda.document._conclusion import claim_of, fitted_attributes
from dplda.document._noisy_table import Reading
from dplda.metrics import held_out_perplexity

K, DELTA = 20, 1e-5
SMALLEST = 0.01  # pseudo-count of a word
SMOOTHING = 0.1  # of each cell, where the public table is used alone
PUBLIC = "public texts alone"
GIBBS = "GibbsLDA, beta = 0.01"
NON_PRIVATE = {
    GIBBS: lambda seed: GibbsLDA(K, max_iter=300, random_state=seed),
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

    added = command("main", against_epsilon, 3, [1.0, 2.0, 4.0])
    added.add_argument("--public", nargs="*", type=int, default=[300])
    added.add_argument("--plot", type=Path, help="file for the picture")
    command("pays", pays, 3, [0.5, 1.0, 2.0, 4.0])
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
    labelled = ["bbc", "docstrings", "glosses"]
    command("classify", classify, 3, [1.0, 2.0, 4.0], labelled)
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


# Measures


def measures(
    split: Split,
    model: str,
    n_docs: int,
    n_public: int,
    epsilon: float,
    seed: int,
    vectors: str = "",
    users: int = 1,
) -> dict:
    """Of a fit on the first documents, the first of them public.

    "baselines" has a dict for each: word totals of a fit with vectors, and clusters.
    """
    private = split.train[n_public:n_docs]
    if model == "unigram":
        exact = np.asarray(private.sum(axis=0)) + SMALLEST
        return measured(split, totals_alone(exact))
    prior = prior_of(split, n_public, seed) if n_public else None
    if model == "public alone":
        return measured(split, prior + SMOOTHING)
    if model not in ("SubLDA", "baselines"):
        free = NON_PRIVATE[model](seed).fit(private)
        return measured(split, free.components_, free.transform)
    words = vectors_of(split, vectors)
    fit = sublda(epsilon, seed, prior_components=prior, word_vectors=words)
    ids = np.random.default_rng(seed).permutation(private.shape[0]) // users
    fit.fit(private, user_ids=ids if users > 1 else None)
    if model == "baselines":
        return of_totals(split, fit._released.totals)
    shown = ~fit.weak_topics_
    return measured(split, fit.components_, fit.transform) | {
        "shown": int(shown.sum()),
        "confirmed": int(
            (shown & confirmed(fit, claim_of(fit._released, 1), split.test)).sum()
        ),
    }


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
    """Fits on the first `n_docs` documents, between references."""

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

    def all_of(
        self,
        model: str,
        *,
        epsilon=np.inf,
        n_public=0,
        seeds: int | None = None,
        **given,
    ) -> list[dict]:
        """Measures, of one fit a seed."""
        return [
            self.points.get(
                measures,
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

    def fits(self, model: str, **given) -> np.ndarray:
        """Perplexities, one a seed."""
        return values(self.all_of(model, **given), "perplexity")

    def closed(self, perplexities) -> float:
        """0 for word frequencies, 1 for the best model without privacy."""
        return float(
            (self.unigram - np.mean(perplexities)) / (self.unigram - self.best)
        )

    def reference(self) -> float:
        """What topics without privacy say of new words, in nats a token."""
        found = self.all_of(GIBBS, seeds=min(self.seeds, 2))
        return float(values(found, "new_word_gain").mean())


def values(found: list[dict], measure: str) -> np.ndarray:
    return np.array([one[measure] for one in found])


def against_epsilon(splits: list[Split], points: Points, options) -> None:
    """Tables of new words and of all measures, and the picture."""
    fits: dict[str, dict] = {
        "private texts alone": {},
        "with word vectors": {"vectors": "embedded"},
        "vectors of other words": {"vectors": "permuted"},
        "users of five texts, with vectors": {"vectors": "embedded", "users": 5},
        **{
            f"vectors and {n:,} public texts": {"n_public": n, "vectors": "embedded"}
            for n in options.public
        },
    }
    found = {split: rows_of(split, points, options, fits) for split in splits}
    names = [f"{n} clusters" for n in SIZES] + list(fits)
    print(f"New words, share of GibbsLDA's; {options.seeds} seeds\n")
    print(
        "| corpus (documents; GibbsLDA, nats) | epsilon | " + " | ".join(names) + " |"
    )
    print("| --- " * (2 + len(names)) + "|")
    for split, rows in found.items():
        gap = Gap(split, points, options.seeds)
        title = f"{split.name} ({gap.n_docs:,}; {gap.reference():.3f})"
        for epsilon in (0.0, *options.epsilons):
            cells = [share_cell(gap, rows.get((epsilon, name))) for name in names]
            label = f"{epsilon:g}" if epsilon else "public alone"
            print(f"| {title} | {label} | " + " | ".join(cells) + " |")
            title = ""
    print_measures(found, points, options)
    if options.plot:
        picture(found, points, options)


def rows_of(split: Split, points: Points, options, fits) -> dict:
    """Measures of each epsilon and name; epsilon 0 stands for public texts alone."""
    gap = Gap(split, points, options.seeds)
    found = {}
    for epsilon in options.epsilons:
        given = {"epsilon": epsilon, "vectors": "embedded"}
        each = gap.all_of("baselines", **given)
        for name in each[0]:
            found[epsilon, name] = [one[name] for one in each]
    for name, given in fits.items():
        if "n_public" in given:
            n_public = given["n_public"]
            found[0.0, name] = gap.all_of("public alone", n_public=n_public)
        for epsilon in options.epsilons:
            found[epsilon, name] = gap.all_of("SubLDA", epsilon=epsilon, **given)
    return found


def share_cell(gap: Gap, found: list[dict] | None) -> str:
    """What a table says of new words, in percent of what GibbsLDA says."""
    if found is None:
        return ""
    shares = 100 * values(found, "new_word_gain") / gap.reference()
    return spread(shares)


MEASURES = (
    "perplexity (share of the gap)",
    "of a document",
    "gain a token",
    "a document",
    "new words",
    "shown, confirmed",
    "c_npmi",
)


def print_measures(found: dict, points: Points, options) -> None:
    """All measures of a corpus, a row for each table."""
    ends = list(dict.fromkeys((options.epsilons[0], options.epsilons[-1])))
    print("\n| corpus | epsilon | topics | " + " | ".join(MEASURES) + " |")
    print("| --- " * (3 + len(MEASURES)) + "|")
    for split, rows in found.items():
        gap = Gap(split, points, options.seeds)
        title = split.name
        free = gap.all_of(GIBBS, seeds=min(options.seeds, 2))
        named = [("inf", "GibbsLDA", free)]
        for epsilon in ends:
            of_epsilon = {n: f for (e, n), f in rows.items() if e == epsilon}
            named += [(f"{epsilon:g}", name, each) for name, each in of_epsilon.items()]
        for label, name, each in named:
            cells = measure_cells(gap, each)
            print(f"| {title} | {label} | {name} | " + " | ".join(cells) + " |")
            title = ""


def measure_cells(gap: Gap, found: list[dict]) -> list[str]:
    mean = {name: np.mean(values(found, name)) for name in found[0]}
    shown = "shown" in mean
    return [
        cell(gap, values(found, "perplexity")),
        f"{np.exp(-mean['document']):.0f}",
        *(f"{mean[name]:.3f}" for name in ("token_gain", "document_gain")),
        f"{mean['new_word_gain']:.3f} ({mean['new_word_gain'] / gap.reference():.0%})",
        f"{mean['shown']:.1f}, {mean['confirmed']:.1f}" if shown else "",
        f"{mean['npmi']:.3f}" if "npmi" in mean else "",
    ]


def cell(gap: Gap, perplexities) -> str:
    return f"{spread(perplexities)} ({gap.closed(perplexities):.0%})"


# The picture

GENERAL = ("BBC", "glosses")  # news and definitions: English of everybody
# titles, colors and styles of what is drawn
STYLES = {
    "vectors and 300 public texts": (
        "private topics, 300 public texts",
        "#009e73",
        "o-",
    ),
    "with word vectors": ("private topics, word vectors", "#0072b2", "o-"),
    "private texts alone": ("private topics alone", "#000000", "o-"),
    PUBLIC: ("300 public texts alone", "#999999", "--"),
    "60 clusters": (
        "60 public clusters, private totals; right: mean word vectors",
        "#d55e00",
        "--",
    ),
    "k-means": ("private k-means of mean vectors", "#cc79a7", "--"),
}
FEATURES = {  # by the kind of `accuracy`
    "with word vectors": "embedded",
    "private texts alone": "",
    "60 clusters": "mean vectors",
    "k-means": "k-means",
}


def new_words(found: dict, points: Points, options) -> dict[str, list[float]]:
    """What is drawn of what tables say of new words, mean of the corpora."""
    shares: dict[str, list] = {}
    for split, rows in found.items():
        reference = Gap(split, points, options.seeds).reference()
        for name in STYLES:
            given = [rows.get((epsilon, name)) for epsilon in options.epsilons]
            if name == PUBLIC:
                alone = rows.get((0.0, "vectors and 300 public texts"))
                given = [alone] * len(options.epsilons)
            if None not in given:
                means = [values(each, "new_word_gain").mean() for each in given]
                shares.setdefault(name, []).append(np.array(means) / reference)
    return {name: np.mean(each, axis=0).tolist() for name, each in shares.items()}


def accuracies(splits, points: Points, options) -> dict[str, list[float]]:
    """Of a classifier on features, mean of the corpora that have labels."""
    labelled = [split for split in splits if split.y_train is not None]

    def mean(kind: str, epsilon: float) -> float:
        each = [scores(s, points, kind, epsilon, options.seeds) for s in labelled]
        return float(np.mean([np.mean(one) for one in each]))

    return {
        name: [mean(kind, epsilon) for epsilon in options.epsilons]
        for name, kind in FEATURES.items()
    }


def picture(found: dict, points: Points, options) -> None:
    """Knowledge of new words of two kinds of corpora, and accuracy as features."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MultipleLocator, PercentFormatter

    kinds = {
        "General English\n(news, definitions)": True,
        "A language of their own\n(weblog, papers, docstrings)": False,
    }
    curves = {
        title: new_words(
            {s: rows for s, rows in found.items() if (s.name in GENERAL) == is_general},
            points,
            options,
        )
        for title, is_general in kinds.items()
    }
    curves["As features\n(news, docstrings, definitions)"] = accuracies(
        found, points, options
    )
    figure = Figure(figsize=(11, 5.4), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 3)
    for axes, (title, of_panel) in zip(panels, curves.items(), strict=True):
        for name, levels in of_panel.items():
            label, color, style = STYLES[name]
            axes.plot(options.epsilons, levels, style, color=color, lw=2.4, label=label)
        axes.set_title(title, loc="left", fontsize=12)
        axes.set_xscale("log")
        axes.set_xticks(options.epsilons, [f"{e:g}" for e in options.epsilons])
        axes.minorticks_off()
        axes.tick_params(labelsize=12)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlabel("epsilon of a text", fontsize=12)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[:2]:
        axes.set_ylim(-0.22, 1.05)
        axes.axhline(0, color="gray", linestyle=":", linewidth=1.5)
        axes.axhline(1, color="gray", linestyle=":", linewidth=1.5)
        axes.text(options.epsilons[0], 0.025, "word totals", color="dimgray")
        axes.text(options.epsilons[0], 0.93, "topics without privacy", color="dimgray")
    panels[0].set_ylabel("gain on new words, of that\nwithout privacy", fontsize=12)
    panels[2].set_ylabel("accuracy of a classifier", fontsize=12)
    panels[2].yaxis.set_major_locator(MultipleLocator(0.05))
    entries = {}
    for axes in panels:
        lines, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, lines, strict=True))
    figure.legend(
        entries.values(),
        entries,
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=11.5,
    )
    figure.savefig(options.plot, dpi=100)


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
    known = replace(table, reading=Reading(table.released_totals, exact, exact))
    result, _ = fitted_attributes(known, model.topic_word_prior)
    model.components_ = result["components_"]
    return [frequencies, fitted, float(model.perplexity(split.test))]


# From where on private topics pay


def pays(splits: list[Split], points: Points, options) -> None:
    """Documents times epsilon at which fits with vectors say more than clusters do."""
    names = [f"{n} clusters" for n in SIZES]
    print(f"| corpus | documents | {' | '.join(names)} | 60 clusters, over the plan |")
    print("| --- " * (3 + len(names)) + "|")
    for split in splits:
        gap = Gap(split, points, options.seeds)
        found = {name: beaten(gap, name, options.epsilons) for name in names}
        cells = [f"{sign}{gap.n_docs * at:,.0f}" for sign, at in found.values()]
        sign, at = found["60 clusters"]
        expected = plan(
            n_docs=gap.n_docs,
            epsilon=at,
            delta=DELTA,
            n_words=split.train.shape[1],
            n_components=2,
            word_vectors=True,
        ).docs_to_pay
        cells.append(f"{sign}{gap.n_docs / expected:.2f}")
        print(f"| {split.name} | {gap.n_docs:,} | {' | '.join(cells)} |", flush=True)


def beaten(gap: Gap, name: str, epsilons: list[float]) -> tuple[str, float]:
    """The epsilon from which topics say more of new words, or "< " or "> " a bound.

    Linear in the logarithm of epsilon between the two that enclose it.
    """
    before = None
    for epsilon in epsilons:
        given = {"epsilon": epsilon, "vectors": "embedded"}
        ours = values(gap.all_of("SubLDA", **given), "new_word_gain").mean()
        each = [one[name] for one in gap.all_of("baselines", **given)]
        ahead = ours - values(each, "new_word_gain").mean()
        if ahead >= 0:
            if before is None:
                return "< ", epsilon
            levels, ends = [before[1], ahead], np.log([before[0], epsilon])
            return "", float(np.exp(np.interp(0, levels, ends)))
        before = epsilon, ahead
    return "> ", epsilons[-1]


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
    """Accuracy of a logistic regression on topic weights, next to other features."""
    titles = ("corpus", "words", "mean vectors", "epsilon", "topics alone")
    titles += ("topics with vectors", "private k-means of mean vectors")
    print(f"| {' | '.join(titles)} |\n" + "| --- " * len(titles) + "|")
    for split in splits:
        kinds = "words", "mean vectors"
        free = [scores(split, points, kind, np.inf, 1)[0] for kind in kinds]
        n_classes = len(np.unique(split.y_train))
        first = [f"{split.name}, {n_classes} classes", *(f"{x:.3f}" for x in free)]
        for epsilon in options.epsilons:
            cells = [*first, f"{epsilon:g}"]
            for kind in ("", "embedded", "k-means"):
                each = scores(split, points, kind, epsilon, options.seeds)
                cells.append(spread(each, 3))
            print(f"| {' | '.join(cells)} |", flush=True)
            first = ["", "", ""]


def scores(split: Split, points: Points, kind: str, epsilon: float, seeds: int):
    """Accuracies of one kind of features, one a seed."""
    if kind in ("words", "mean vectors"):  # of which there is one
        epsilon, seeds = np.inf, 1
    return [
        points.get(accuracy, split, kind=kind, epsilon=epsilon, seed=seed)
        for seed in range(seeds)
    ]


def accuracy(split: Split, kind: str, epsilon: float, seed: int) -> float:
    """Of features: words, mean vectors, private k-means of these, or topic weights."""
    if kind == "words":
        train, test = np.log1p(split.train), np.log1p(split.test)
        return of_features(split, train, test, C=1.0)
    if kind in ("mean vectors", "k-means"):
        train = mean_vectors(split.train, split.words)
        test = mean_vectors(split.test, split.words)
        if kind == "k-means":
            train, test = likeness(train, test, K, epsilon, DELTA, seed)
        return of_features(split, train, test)
    model = sublda(epsilon, seed, word_vectors=vectors_of(split, kind))
    train = model.fit(split.train).transform(split.train)
    return of_features(split, train, model.transform(split.test))


def of_features(split: Split, train, test, C: float = 100.0) -> float:
    classifier = LogisticRegression(C=C, max_iter=2000).fit(train, split.y_train)
    return float(classifier.score(test, split.y_test))


def spread(values, digits: int = 0) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values):.{digits}f}"


if __name__ == "__main__":
    main()
