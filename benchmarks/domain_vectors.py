"""Vectors of a domain from public texts, beside the shipped ones and `public_prior`.

``python benchmarks/domain_vectors.py [--corpora bbc kos] [--public 300 1000] [--seeds
3]`` sets training documents aside as public (`N_APART`), of which the first are used,
and fits `SubLDA` (K = 20, delta 1e-5) to the others. Vectors of the domain are those of
latent semantic analysis. It prints `new_word_gain` of `held_out_scores` in percent of
that of GibbsLDA (beta 0.01) of the same private documents.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from corpora import LOADERS
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from dplda import GibbsLDA, SubLDA, public_prior
from dplda.datasets import load_word_vectors
from dplda.metrics import held_out_scores

K, EPSILONS = 20, (1.0, 4.0)
N_APART = {"bbc": 1000, "kos": 1000, "nips": 300, "docstrings": 3000, "glosses": 3000}
SMOOTHING = 0.1  # of each cell, where the public table is used alone
COLUMNS = (
    "corpus",
    "public texts",
    "epsilon",
    "shipped vectors",
    "and domain vectors",
    "public prior alone",
    "prior",
    "prior, shipped vectors",
    "and domain vectors",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(N_APART))
    parser.add_argument("--public", nargs="+", type=int, default=[300, 1000, 3000])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|")
    for name in options.corpora:
        split = LOADERS[name]()
        order = np.random.default_rng(0).permutation(split.train.shape[0])
        private = split.train[order[N_APART[name] :]]
        seeds = range(options.seeds)
        models = [GibbsLDA(K, topic_word_prior=0.01, random_state=s) for s in seeds]
        free = np.mean([gain(m.fit(private).components_, split) for m in models])
        general = load_word_vectors(list(split.words))
        for n in (n for n in options.public if n <= N_APART[name]):
            public = split.train[order[:n]]
            prior = public_prior(public, n_components=K, random_state=0)
            both = with_domain(general, public)
            ways = [
                {"word_vectors": general},
                {"word_vectors": both},
                {},
                {"prior_components": prior},
                {"prior_components": prior, "word_vectors": general},
                {"prior_components": prior, "word_vectors": both},
            ]
            for epsilon in EPSILONS:
                tables = [
                    [
                        fit(private, epsilon, s, way) if way else prior + SMOOTHING
                        for s in (seeds if way else (0,))
                    ]
                    for way in ways
                ]
                cells = [np.mean([gain(t, split) for t in each]) for each in tables]
                shown = " | ".join(f"{cell / free:.0%}" for cell in cells)
                print(f"| {split.name} | {n} | {epsilon:g} | {shown} |", flush=True)


def fit(private, epsilon: float, seed: int, way: dict) -> np.ndarray:
    model = SubLDA(K, epsilon=epsilon, delta=1e-5, random_state=seed, **way)
    return model.fit(private).components_


def gain(table, split) -> float:
    return held_out_scores(table, split.test).new_word_gain


def with_domain(general: np.ndarray, public_counts) -> np.ndarray:
    """General vectors, and those of latent semantic analysis of public texts.

    Both kinds have the same length in a row. Its length stays the word's expected
    frequency.
    """
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(public_counts)
    svd = TruncatedSVD(50, random_state=0).fit(weighted)
    domain = svd.components_.T * svd.singular_values_
    frequency = public_counts.sum(axis=0) / public_counts.sum()
    length = np.maximum(np.linalg.norm(general, axis=1), frequency)
    both = normalize(np.hstack([normalize(general), normalize(domain)]))
    return both * length[:, None]


if __name__ == "__main__":
    main()
