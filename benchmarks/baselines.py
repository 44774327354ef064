"""What costs less than a private topic model, and the measures of all tables.

Baselines that stand beside the figures of other scripts:

* `totals_alone`: one topic, the word totals that a fit releases;
* `clusters`: k-means of public word vectors. The cells are a word's released total
  times its memberships, which go as exp(6 cos) of its vector and the center. No
  document is read but for the totals, which a fit releases anyway;
* `mean_vectors`: features of a text, which need no private data at all;
* `likeness`: private k-means of these means, as features;
* public texts alone, in `utility.py`.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from corpora import Split
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from dplda.core._fold_in import fold_in
from dplda.datasets import load_word_vectors
from dplda.metrics import coherence, held_out_scores
from dplda.privacy import Gaussian, calibrate

SHARPNESS = 6.0  # of the membership of a word in a cluster
ROUNDS = 5  # of private k-means
SIZES = (20, 60, 240)  # numbers of clusters


# ---- tables --------------------------------------------------------------------------


def totals_alone(totals: np.ndarray) -> np.ndarray:
    return totals[None]


def clusters(totals: np.ndarray, words, n_clusters: int, seed: int = 0) -> np.ndarray:
    """A table (n_clusters, n_words) of public clusters with these word totals."""
    return totals * memberships(tuple(map(str, words)), n_clusters, seed)


@cache
def memberships(words: tuple[str, ...], n_clusters: int, seed: int) -> np.ndarray:
    """Shares of each word in the clusters, (n_clusters, n_words).

    What all vectors have in common is left out. A word without a vector has the mean
    shares of the others.
    """
    vectors = load_word_vectors(list(words))
    known = vectors.any(axis=1)
    directions = normalize(vectors[known])
    directions = normalize(directions - directions.mean(axis=0))
    found = KMeans(n_clusters, n_init=3, random_state=seed).fit(directions)
    weights = np.exp(SHARPNESS * directions @ normalize(found.cluster_centers_).T)
    shares = np.empty((len(words), n_clusters))
    shares[known] = weights / weights.sum(axis=1, keepdims=True)
    shares[~known] = shares[known].mean(axis=0)
    return shares.T


def weights_of(table: np.ndarray, prior: float | None = None):
    """Topic weights of documents by a table.

    By default, priors sum to 2 as those of 20 topics do. With 0.1 for each of 240
    clusters, they would say less.
    """
    prior = prior or 2 / len(table)

    def transform(X):
        theta = fold_in(X, table, prior, None, X.dtype)
        return theta / theta.sum(axis=1, keepdims=True)

    return transform


# ---- features ------------------------------------------------------------------------


def mean_vectors(X, words) -> np.ndarray:
    """The mean direction of the words of each text, of length 1; zeros if none."""
    return normalize(X @ normalize(load_word_vectors(list(map(str, words)))))


def likeness(train, test, n_clusters: int, epsilon: float, delta: float, seed: int):
    """Features of both: likeness to the centers of a private k-means of `train`.

    A document moves the sum of one cluster in each round by at most 1 in L2. Vectors of
    length 1 need no sizes of clusters: the largest scalar product decides. The start is
    random. What all centers have in common is left out.
    """
    rng = np.random.default_rng(seed)
    noise = calibrate(lambda m: [Gaussian(m)] * ROUNDS, epsilon, delta)
    centers = normalize(rng.standard_normal((n_clusters, train.shape[1])))
    for _ in range(ROUNDS):
        nearest = (train @ centers.T).argmax(axis=1)
        sums = noise * rng.standard_normal(centers.shape)
        np.add.at(sums, nearest, train)
        common = normalize(sums.sum(axis=0, keepdims=True))
        centers = normalize(sums - (sums @ common.T) * common)
    return train @ centers.T, test @ centers.T


# ---- measures ------------------------------------------------------------------------


def measured(split: Split, table: np.ndarray, transform=None) -> dict[str, float]:
    """What `held_out_scores` says of a table, its perplexity, and mean coherence.

    Coherence is taken in the training documents: an experiment's licence.
    """
    scores = held_out_scores(table, split.test, transform=transform)._asdict()
    scores["perplexity"] = math.exp(-scores["token"])
    if len(table) > 1:
        scores["npmi"] = float(np.nanmean(coherence(table, split.train)))
    return scores


def of_totals(split: Split, totals: np.ndarray) -> dict[str, dict[str, float]]:
    """The measures of word totals alone, and of public clusters with them."""
    tables = {"word totals": totals_alone(totals)}
    tables |= {f"{n} clusters": clusters(totals, split.words, n) for n in SIZES}
    return {
        name: measured(split, table, weights_of(table))
        for name, table in tables.items()
    }
