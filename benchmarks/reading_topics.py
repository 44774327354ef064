"""Coherence, diversity and stability of topics against epsilon; a picture of one model.

``python benchmarks/reading_topics.py [--seeds 3] [--picture docs/images/topics.png]``

The docstrings are cut into halves at random: one takes the place of private documents, the
other that of public reference texts. The words are a public list without English stop words.
SubLDA with K = 20, delta = 1e-6.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings

import numpy as np
from scipy.cluster.hierarchy import dendrogram
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from dplda import SubLDA
from dplda.datasets import load_docstrings, load_public_vocabulary
from dplda.displays import top_words
from dplda.metrics import coherence, topic_diversity
from dplda.privacy import SeededNoiseWarning
from dplda.topics import match_topics, topic_tree

K = 20
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, math.inf)


def corpus():
    """Private documents, public reference texts, and the words."""
    words = load_public_vocabulary(2000, language="python")
    vectorizer = CountVectorizer(vocabulary=words, stop_words="english")
    X = vectorizer.transform(load_docstrings().data)
    return *train_test_split(X, test_size=0.5, random_state=0), vectorizer.get_feature_names_out()


def spread(values):
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def nearest(components):
    """Hellinger distance of each topic to the nearest other topic of its own fit."""
    others = (np.delete(components, k, axis=0) for k in range(K))
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
            _, distance = match_topics(fits[i], fits[j])
            again.append(np.mean(distance < nearest(fits[i])))
            distances.append(np.mean(distance))
        figures = ([np.mean(values) for values in npmi], mass, diverse, again, distances)
        print(f"| {epsilon:g} | {' | '.join(map(spread, figures))} |", flush=True)
    references(private, public)


def references(private, public):
    """Two tables without any topics: the word frequencies, and independent random cells."""
    frequencies = np.tile(np.asarray(private.sum(axis=0)) + 0.1, (K, 1))
    cells = np.random.default_rng(0).gamma(0.1, size=frequencies.shape)
    for name, components in (("frequencies", frequencies), ("random", cells)):
        npmi, mass = (
            np.nanmean(coherence(components, public, measure=measure))
            for measure in ("c_npmi", "u_mass")
        )
        print(f"| {name} | {npmi:.3f} | {mass:.3f} | {topic_diversity(components):.3f} | | |")


def picture(private, public, names, path):
    """A tree of the topics of one model, next to their coherence."""
    import matplotlib.pyplot as plt

    model = SubLDA(K, epsilon=4.0, random_state=0).fit(private)
    labels = [" ".join(words) for words in top_words(model, names, 4)]
    values = coherence(model.components_, public)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 5.2), layout="constrained", width_ratios=(1.2, 1)
    )
    tree = dendrogram(
        topic_tree(model.components_), labels=labels, orientation="left", ax=left,
        color_threshold=0, above_threshold_color="#0072B2", leaf_font_size=9,
    )  # fmt: skip
    left.set_xlabel("Hellinger distance at which topics are joined")
    place = 5 + 10 * np.arange(K)  # of the leaves
    right.barh(place, values[tree["leaves"]], height=6, color="#0072B2")
    right.set_ylim(left.get_ylim())
    right.set_yticks([])
    right.set_xlabel("c_npmi in public reference texts")
    for axes in (left, right):
        axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(f"SubLDA, {K} topics, epsilon = 4 for one document", ha="left", x=0.01)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", help="file for the picture, instead of the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    private, public, names = corpus()
    print(f"{private.shape[0]} private documents, {public.shape[0]} public, {len(names)} words\n")
    if options.picture:
        picture(private, public, names, options.picture)
    else:
        table(private, public, options.seeds)


if __name__ == "__main__":
    main()
