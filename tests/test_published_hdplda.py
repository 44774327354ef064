"""HDP-LDA as published: it is the paper's, and its claim is false of it."""

import math

import numpy as np
import pytest
from estimators import observed

from dplda.published import PublishedHDPLDA

K = 3
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")


def fitted(model, X):
    """The model of X, and what the paper's adversary sees: counts, topics by sweep."""
    model, seen = observed(model, X)
    counts, topics = seen["word-topic counts"], seen["topics"]
    assert (len(counts), len(topics)) == (model.n_iter_, model.n_iter_ + 1)
    return model, counts, topics


def true_counts(X, topics, n_components):
    word = np.repeat(X.indices, X.data.astype(int))
    counts = np.zeros((X.shape[1], n_components))
    np.add.at(counts, (word, topics), 1)
    return counts


def test_final_counts_give_the_last_moves_away(corpus):
    model = PublishedHDPLDA(
        K, noise_epsilon=0.7, count_clip=5.0, max_iter=4, random_state=0
    )
    model, counts, topics = fitted(model, corpus)
    moves = true_counts(corpus, topics[4], K) - true_counts(corpus, topics[3], K)
    final = model.components_.T - model.topic_word_prior
    positive = final > 1e-9  # the model holds no negative counts
    assert positive.mean() > 0.5
    recovered = final - counts[4]
    np.testing.assert_allclose(recovered[positive], moves[positive], atol=1e-9)
    assert np.abs(moves[positive]).max() >= 2
    np.testing.assert_allclose(final, np.maximum(counts[4] + moves, 0), atol=1e-9)


def test_noise_is_added_in_place():
    """The variance of announced counts grows with the sweep.

    At sweep t it is t times 2 (2 / epsilon)**2.
    """
    X = np.random.RandomState(0).poisson(5.0, (20, 8000))
    model = PublishedHDPLDA(
        1, noise_epsilon=0.5, count_clip=1.0, max_iter=8, random_state=0
    )
    _, counts, _ = fitted(model, X)
    noise = np.array([counts[t][:, 0] - X.sum(axis=0) for t in range(1, 9)])
    np.testing.assert_allclose(
        noise.var(axis=1) / np.arange(1, 9), 2 * 4.0**2, rtol=0.1
    )
    fresh = np.diff(noise, axis=0, prepend=0)
    assert np.abs(np.corrcoef(fresh) - np.eye(8)).max() < 5 / math.sqrt(8000)
    np.testing.assert_allclose(np.abs(fresh).mean(axis=1), 4.0, rtol=0.06)
    assert abs(fresh.mean()) < 5 * math.sqrt(32 / fresh.size)
