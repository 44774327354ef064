"""Local privacy: the figures 6 and 8 to 10 of the LP-LDA paper, as tables and pictures.

``python benchmarks/local_privacy.py [--figure 6 8 9 10] [--corpora kos nips] [--seeds
2] [--pictures DIR] [--quick]``

The 1000 most frequent words, K = 50, priors 0.1 and 0.01, one tenth held out, no cap on
the words of a document. Perplexity by document completion; with ``--same-tokens`` the
paper's form, in which a document's weights are inferred from the tokens that are
scored. The epsilon of the tables is that of the paper, `bit_epsilon`: a document of 100
words costs up to 200 times as much.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from corpora import kos, nips

from dplda import LPLDA, OLPLDA, GibbsLDA
from dplda.metrics import unigram_perplexity
from dplda.privacy import LowSignalWarning, PrivacyLeakWarning, SeededNoiseWarning

K = 50
PRIORS = {"doc_topic_prior": 0.1, "topic_word_prior": 0.01}
LOCAL = {**PRIORS, "max_doc_words": None}
LOADERS = {"kos": kos, "nips": nips}
EPSILONS = [0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0]
WAYS = ("background", "bits")
N_PRIOR = {"KOS": 500, "NIPS": 200}
BATCH, EPSILON = 160, 3.0
ONLINE = {"correlation": 0.5, "prior_weight": 0.4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", nargs="+", type=int, default=[6, 8, 9, 10])
    parser.add_argument(
        "--corpora", nargs="+", default=["kos", "nips"], choices=list(LOADERS)
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--same-tokens", action="store_true")
    parser.add_argument(
        "--pictures", type=Path, help="folder for one PNG a figure and corpus"
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument(
        "--quick", action="store_true", help="900 documents of KOS, one seed"
    )
    options = parser.parse_args()
    if options.quick:
        options.corpora, options.seeds, options.epsilons = ["kos"], 1, [1.0, 10.0]
    warnings.simplefilter("ignore", SeededNoiseWarning)
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    warnings.simplefilter("ignore", LowSignalWarning)
    for corpus in options.corpora:
        split = LOADERS[corpus](n_words=1000, n_skip=0)
        if options.quick:
            split.train = split.train[:900]
        unigram = unigram_perplexity(split.train, split.test)
        print(f"\n{split}; {split.test.shape[0]} held out; unigram {unigram:.0f}")
        for number in options.figure:
            title, label, x, curves = FIGURES[number](split, options)
            show(f"Figure {number}, {split.name}: {title}", label, x, curves, options)


def figure_6(split, options):
    """Perplexity against epsilon."""
    presence = sp.csr_array(split.train > 0).astype(float)
    flat = {
        "LDA": lambda s: GibbsLDA(K, random_state=s, **PRIORS).fit(split.train),
        "LDA on presence": lambda s: GibbsLDA(K, random_state=s, **PRIORS).fit(
            presence
        ),
        "LP-LDA, exact bits": lambda s: lplda(s, np.inf, "bits").fit(split.train),
    }
    private = {f"LP-LDA, {way}": lambda s, e, way=way: lplda(s, e, way) for way in WAYS}
    curves = {}
    for name, fit in flat.items():
        curves[name] = [mean_of(options, split, fit)] * len(options.epsilons)
    for name, make in private.items():
        curves[name] = [
            mean_of(
                options, split, lambda s, e=e, make=make: make(s, e).fit(split.train)
            )
            for e in options.epsilons
        ]
    return "perplexity against privacy", "epsilon", options.epsilons, curves


def lplda(seed, epsilon, way):
    return LPLDA(K, bit_epsilon=epsilon, reconstruction=way, random_state=seed, **LOCAL)


def figure_8(split, options):
    """OLP-LDA against the number of batches, by epsilon."""
    n = N_PRIOR[split.name]
    curves = {
        f"epsilon {e:g}, {way}": online(split, options, epsilon=e, n_prior=n, way=way)
        for e in (1.0, 3.0, 5.0)
        for way in WAYS
    }
    curves["O-LDA"] = online(split, options, epsilon=np.inf, n_prior=n)
    public = OLPLDA(K, bit_epsilon=1.0, random_state=0, **ONLINE, **LOCAL).fit_prior(
        split.train[:n]
    )
    alone = public.perplexity(split.test, completion=not options.same_tokens)
    curves["public corpus alone"] = [alone] * len(curves["O-LDA"])
    return "OLP-LDA against batches", "batches", batches_of(curves), curves


def figure_9(split, options):
    """OLP-LDA against the number of batches, by size of the public corpus."""
    largest = N_PRIOR[split.name]
    curves = {
        f"prior of {n} documents": online(
            split, options, epsilon=EPSILON, n_prior=n, start=largest
        )
        for n in (0, largest // 5, largest // 2, largest)
    }
    return (
        f"OLP-LDA by size of the prior, epsilon {EPSILON:g}",
        "batches",
        batches_of(curves),
        curves,
    )


def figure_10(split, options):
    """OLP-LDA after all batches, by size of a batch."""
    sizes = [40, 80, 160, 320, 640]
    start = N_PRIOR[split.name]
    settings = {
        f"epsilon {EPSILON:g}": (EPSILON, start),
        f"epsilon {EPSILON:g}, no public corpus": (EPSILON, 0),
        "O-LDA": (np.inf, start),
    }
    curves = {
        name: [
            online(
                split,
                options,
                epsilon=epsilon,
                n_prior=n_prior,
                start=start,
                batch=size,
            )[-1]
            for size in sizes
        ]
        for name, (epsilon, n_prior) in settings.items()
    }
    return (
        "OLP-LDA by size of a batch, after all batches",
        "documents in a batch",
        sizes,
        curves,
    )


FIGURES = {6: figure_6, 8: figure_8, 9: figure_9, 10: figure_10}


def online(
    split, options, *, epsilon, n_prior, batch=BATCH, start=None, way="bits"
) -> list[float]:
    """Perplexity after each batch, averaged over seeds.

    Batches begin after the public corpus.
    """
    start = n_prior if start is None else start
    runs = []
    for seed in range(options.seeds):
        model = OLPLDA(
            K,
            bit_epsilon=epsilon,
            reconstruction=way,
            random_state=seed,
            **ONLINE,
            **LOCAL,
        )
        if n_prior:
            model.fit_prior(split.train[:n_prior])
        run = []
        for first in range(start, split.train.shape[0], batch):
            model.partial_fit(split.train[first : first + batch])
            run.append(model.perplexity(split.test, completion=not options.same_tokens))
        runs.append(run)
    return np.mean(runs, axis=0).tolist()


def mean_of(options, split, fit) -> float:
    values = [
        fit(seed).perplexity(split.test, completion=not options.same_tokens)
        for seed in range(options.seeds)
    ]
    return float(np.mean(values))


def batches_of(curves) -> list[int]:
    return list(range(1, 1 + max(len(curve) for curve in curves.values())))


def show(title, label, x, curves, options) -> None:
    """A table with at most eight columns, and the picture of all points."""
    shown = sorted({round(i) for i in np.linspace(0, len(x) - 1, min(8, len(x)))})
    print(f"\n{title}\n")
    print(f"| {label} | " + " | ".join(f"{x[i]:g}" for i in shown) + " |")
    print("| --- |" + " --- |" * len(shown))
    for name, curve in curves.items():
        cells = [f"{curve[i]:.0f}" if i < len(curve) else "" for i in shown]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    if options.pictures is not None:
        draw(title, label, x, curves, options.pictures)


def draw(title, label, x, curves, folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.0, 4.0), layout="constrained")
    for (name, curve), marker in zip(curves.items(), itertools.cycle("osD^vXP*")):
        axes.plot(x[: len(curve)], curve, marker=marker, markersize=4, label=name)
    axes.set(title=title, xlabel=label, ylabel="held-out perplexity")
    # the curves need all the room
    figure.legend(frameon=False, loc="outside right upper")
    folder.mkdir(parents=True, exist_ok=True)
    name = title.split(":")[0].lower().replace(", ", "_").replace(" ", "_")
    figure.savefig(folder / f"{name}.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
