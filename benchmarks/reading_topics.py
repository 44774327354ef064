"""Coherence, diversity, stability and weakness of topics against epsilon.

``python benchmarks/reading_topics.py [--seeds 3]``
``python benchmarks/reading_topics.py --weak [--corpora kos ...] [--epsilons 1 2 4]
[--topics 20] [--planned]`` ``python benchmarks/reading_topics.py --stability BEFORE
AFTER``

The docstrings are cut into halves at random: one takes the place of private documents,
the other that of public reference texts. The words are a public list without English
stop words. SubLDA with K = 20, delta = 1e-6.

``--weak`` compares the topics of `weak_topics_` with the others, and both with those of
GibbsLDA (topic_word_prior = 1, 300 sweeps). V = 2000, delta = 1e-5. Coherence (c_npmi)
is taken in the training documents: an experiment's licence. Each cell has three
figures: topics that are not weak, weak topics, and GibbsLDA. A second table has, for
the largest epsilon, the three figures that the flag was made for, next to the goals:
half of the topics, 95% of the coherence without privacy, and 80% matched. ``--planned``
fits as many topics as `dplda plan` recommends for the documents of a corpus and an
epsilon.

``--stability`` compares the topics of two commits, which ``paired_utility.py run
--tables`` has kept in two folders: how many of a fit's topics are found again in the
fits of the other seeds of the same commit. The standard error of the difference is that
of the jackknife over the seeds.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from pathlib import Path

import numpy as np
from corpora import LOADERS, load
from docstrings import load_docstrings, python_words
from scipy.spatial.distance import cdist
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from dplda import GibbsLDA, SubLDA, plan
from dplda.metrics import coherence, match_topics, topic_diversity
from dplda.privacy import LowSignalWarning, SeededNoiseWarning

K = 20
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, math.inf)
SAME = 0.8  # cosine of the word probabilities of two topics that are the same


def corpus():
    """Private documents, public reference texts, and the words."""
    words = python_words(2000)
    vectorizer = CountVectorizer(vocabulary=words, stop_words="english")
    X = vectorizer.transform(load_docstrings()[0])
    return *train_test_split(
        X, test_size=0.5, random_state=0
    ), vectorizer.get_feature_names_out()


def spread(values):
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def nearest(components):
    """Hellinger distance of each topic to the nearest other topic of its own fit."""
    others = (np.delete(components, k, axis=0) for k in range(len(components)))
    each = [match_topics(components[[k]], rest)[1][0] for k, rest in enumerate(others)]
    return np.array(each)


def table(private, public, n_seeds):
    print("| epsilon | c_npmi | u_mass | diversity | found again | distance |")
    print("| --- | --- | --- | --- | --- | --- |")
    for epsilon in EPSILONS:
        fits = [
            SubLDA(K, epsilon=epsilon, random_state=seed).fit(private).components_
            for seed in range(n_seeds)
        ]
        npmi = [coherence(fit, public) for fit in fits]
        mass = [np.mean(coherence(fit, public, measure="u_mass")) for fit in fits]
        diverse = [topic_diversity(fit) for fit in fits]
        again, distances = [], []
        for i, j in itertools.combinations(range(n_seeds), 2):
            again.append(partners_found(fits[i], fits[j]))
            distances.append(np.mean(match_topics(fits[i], fits[j])[1]))
        figures = (
            [np.mean(values) for values in npmi],
            mass,
            diverse,
            again,
            distances,
        )
        print(f"| {epsilon:g} | {' | '.join(map(spread, figures))} |", flush=True)
    references(private, public)


def references(private, public):
    """Two tables without topics: the word frequencies, and independent random cells."""
    frequencies = np.tile(np.asarray(private.sum(axis=0)) + 0.1, (K, 1))
    cells = np.random.default_rng(0).gamma(0.1, size=frequencies.shape)
    for name, components in (("frequencies", frequencies), ("random", cells)):
        npmi, mass = (
            np.nanmean(coherence(components, public, measure=measure))
            for measure in ("c_npmi", "u_mass")
        )
        print(
            f"| {name} | {npmi:.3f} | {mass:.3f} | {topic_diversity(components):.3f} | "
            "| |"
        )


def weak(splits, epsilons, n_given, n_seeds):
    """Topics that are not weak, next to the weak ones and to those without privacy.

    `n_given` topics, or for None as many as the planner recommends.
    """
    print("| corpus | epsilon | not weak | c_npmi | of typical words | found again |")
    print("| --- " * 6 + "|")
    goals = []
    for split in splits:
        references = {}
        for epsilon in epsilons:
            n_topics = n_given or planned(split.train, epsilon)
            if n_topics not in references:
                references[n_topics] = without_privacy(split.train, n_topics)
            reference = references[n_topics]
            fits = [
                SubLDA(n_topics, epsilon=epsilon, delta=1e-5, random_state=seed).fit(
                    split.train
                )
                for seed in range(n_seeds)
            ]
            tables, masks = (
                [fit.components_ for fit in fits],
                [~fit.weak_topics_ for fit in fits],
            )
            good = qualities(tables, masks, split.train)
            others = qualities(tables, [~mask for mask in masks], split.train)
            cells = [
                " / ".join(f"{x:.{digits}f}" if np.isfinite(x) else "-" for x in row)
                for digits, *row in zip((3, 3, 2), good, others, reference)
            ]
            number = f"{np.mean(masks) * n_topics:.1f} of {n_topics}"
            print(
                f"| {split.name} | {epsilon:g} | {number} | {' | '.join(cells)} |",
                flush=True,
            )
            if epsilon == max(epsilons):
                shares = np.mean(masks), good[0] / reference[0], matched(tables, masks)
                goals.append(
                    (split.name, f"{epsilon:g}", str(n_topics), *map(percent, shares))
                )
    print(
        "\n| corpus | epsilon | topics | not weak | c_npmi, of that without privacy | "
        "matched |"
    )
    print("| --- " * 6 + "|\n| goal |  |  | 50% | 95% | 80% |")
    for row in goals:
        print(f"| {' | '.join(row)} |")


def planned(X, epsilon):
    """The number of topics that `dplda plan` recommends for a corpus of this size."""
    size = {"n_docs": X.shape[0], "n_words": X.shape[1], "n_components": 2}
    return plan(**size, epsilon=epsilon, delta=1e-5).recommended_components


def without_privacy(X, n_topics):
    """`qualities` of all topics of GibbsLDA."""
    tables = [
        GibbsLDA(n_topics, topic_word_prior=1.0, max_iter=300, random_state=seed)
        .fit(X)
        .components_
        for seed in range(2)
    ]
    return qualities(tables, [np.ones(n_topics, bool)] * 2, X)


def percent(share):
    return f"{share:.0%}" if np.isfinite(share) else "-"


def stability(before, after):
    """Topics that other seeds find again, in two folders of tables; the difference."""
    print(
        "| estimator | corpus | epsilon | K | seeds | partner is nearest: before "
        "| after "
        "| difference ± standard error | cosine 0.8: before | after "
        "| difference ± standard error | |\n" + "| --- " * 12 + "|"
    )
    worse, settings = 0, seeds_of(before)
    for setting, seeds in settings.items():
        seeds = sorted(seeds & seeds_of(after).get(setting, set()))
        if len(seeds) < 3:
            continue
        cells, verdicts = [], []
        for shares in (partners_found, cosines_found):
            old, new = (
                between(read(folder, setting, seeds), shares)
                for folder in (before, after)
            )
            error = jackknife(new - old)
            difference = mean_of_pairs(new) - mean_of_pairs(old)
            cells += [f"{mean_of_pairs(x):.2f}" for x in (old, new)]
            cells.append(f"{difference:+.3f} ± {error:.3f}")
            verdicts.append("less stable" if difference < -2 * error else "")
        worse += any(verdicts)
        cells.append(", ".join(filter(None, verdicts)))
        print(
            f"| {' | '.join(setting)} | {len(seeds)} | {' | '.join(cells)} |",
            flush=True,
        )
    print(
        f"\nLess stable by more than two standard errors: {worse} of {len(settings)}."
    )


def seeds_of(folder):
    """The seeds of each setting whose tables are in a folder."""
    found = {}
    for path in sorted(folder.glob("*.npy")):
        *setting, seed = path.stem.split("_")
        found.setdefault(tuple(setting), set()).add(int(seed))
    return found


def read(folder, setting, seeds):
    return [
        np.load(folder / f"{'_'.join((*setting, str(seed)))}.npy") for seed in seeds
    ]


def between(fits, shares):
    """`shares` of one fit in another, for all pairs of fits."""
    n = len(fits)
    values = [
        [shares(one, two) if i != j else 0.0 for j, two in enumerate(fits)]
        for i, one in enumerate(fits)
    ]
    return np.array(values).reshape(n, n)


def mean_of_pairs(values):
    return values.sum() / (len(values) * (len(values) - 1))


def jackknife(values):
    """Standard error of the mean over pairs of fits, which share fits."""
    n = len(values)
    left = [mean_of_pairs(np.delete(np.delete(values, i, 0), i, 1)) for i in range(n)]
    return np.sqrt((n - 1) * np.var(left))


def partners_found(one, two):
    """Share of topics nearer to a partner in the other fit than to all of their own."""
    return np.mean(match_topics(one, two)[1] < nearest(one))


def cosines_found(one, two):
    return np.mean(cdist(one, two, "cosine").min(axis=1) <= 1 - SAME)


def matched(tables, masks):
    """Share of topics in the masks that are the same as such a topic of another fit."""
    pairs = [
        (one[m], two[n])
        for (one, m), (two, n) in itertools.permutations(zip(tables, masks), 2)
    ]
    found = [
        (cdist(one, two, "cosine") <= 1 - SAME).any(axis=1)
        for one, two in pairs
        if len(one)
    ]
    return np.mean(np.concatenate(found)) if found else math.nan


def qualities(tables, masks, X):
    """Mean c_npmi of the topics in the masks, by probability and by typical words.

    The last figure is the share that is found again.
    """
    npmi = np.concatenate([coherence(C, X)[m] for C, m in zip(tables, masks)])
    typical = np.concatenate(
        [coherence(C**2 / C.sum(axis=0), X)[m] for C, m in zip(tables, masks)]
    )
    again = np.concatenate(
        [
            cdist(one[m], two, "cosine").min(axis=1) <= 1 - SAME
            for (one, m), (two, _) in itertools.permutations(zip(tables, masks), 2)
        ]
    )
    return [
        np.mean(values) if len(values) else math.nan
        for values in (npmi, typical, again)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--weak", action="store_true", help="weak topics against the others"
    )
    parser.add_argument(
        "--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS)
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 2.0, 4.0])
    parser.add_argument("--topics", type=int, default=K)
    parser.add_argument(
        "--planned", action="store_true", help="as many topics as dplda plan says"
    )
    parser.add_argument(
        "--stability",
        nargs=2,
        type=Path,
        metavar=("BEFORE", "AFTER"),
        help="compare two folders of tables",
    )
    options = parser.parse_args()
    if options.stability:
        return stability(*options.stability)
    warnings.simplefilter("ignore", SeededNoiseWarning)
    warnings.simplefilter("ignore", LowSignalWarning)
    if options.weak:
        n_topics = None if options.planned else options.topics
        return weak(load(options.corpora), options.epsilons, n_topics, options.seeds)
    private, public, names = corpus()
    print(
        f"{private.shape[0]} private documents, {public.shape[0]} public, {len(names)} "
        "words\n"
    )
    table(private, public, options.seeds)


if __name__ == "__main__":
    main()
