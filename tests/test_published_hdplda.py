"""HDP-LDA as published: it is the paper's, and its claim is false of it."""

import itertools
import math

import numpy as np
import pytest
from estimators import observed

from dplda.core._corpus import Corpus
from dplda.kernels import _published_hdp
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
    word = Corpus.from_counts(X).word
    counts = np.zeros((X.shape[1], n_components))
    np.add.at(counts, (word, topics), 1)
    return counts


def weights(row, totals, doc_counts, *, n_words, clip, alpha, beta):
    """The kernel's own weights of a draw, not normalized."""
    out = np.empty(len(row))
    _published_hdp.draw_weights(
        np.asarray(row, float),
        np.asarray(totals, float),
        np.asarray(doc_counts, np.int64),
        n_words,
        clip,
        alpha,
        beta,
        out,
    )
    return out


def test_weights_are_those_of_line_13():
    row, totals, doc_counts = [7.5, 0.25, -3.0], [40.0, 20.0, -8.0], [2, 0, 5]
    got = weights(row, totals, doc_counts, n_words=10, clip=4.0, alpha=0.3, beta=0.5)
    expected = [4.5 / 45 * 2.3, 0.75 / 25 * 0.3, 0.5 / 5 * 5.3]
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_sweep_draws_with_the_weights_of_live_counts():
    """Each draw of the kernel, against inversion of weights on moving counts."""
    rng = np.random.default_rng(0)
    word = rng.integers(0, 6, 200).astype(np.int32)
    doc_ptr = np.array([0, 50, 50, 120, 200])
    counts, topics = rng.laplace(2, 5, (6, 4)), rng.integers(0, 4, 200).astype(np.int32)
    bits = rng.integers(0, 2**64, 200, dtype=np.uint64)
    live, expected = counts.copy(), topics.copy()
    for first, last in itertools.pairwise(doc_ptr.tolist()):
        doc_counts = np.bincount(expected[first:last], minlength=4)
        for i in range(first, last):
            weight = weights(
                live[word[i]],
                live.sum(0),
                doc_counts,
                n_words=6,
                clip=3.0,
                alpha=0.2,
                beta=0.1,
            )
            uniform = float(bits[i]) / 2**64
            new = int(np.searchsorted(np.cumsum(weight) / weight.sum(), uniform))
            for table, sign, k in [(live, -1, expected[i]), (live, 1, new)]:
                table[word[i], k] += sign
                doc_counts[k] += sign
            expected[i] = new
    _published_hdp.live_sweep(
        word,
        doc_ptr,
        topics,
        counts,
        counts.sum(0),
        3.0,
        0.2,
        0.1,
        bits,
        np.empty(4, np.int64),
        np.empty(4),
    )
    np.testing.assert_array_equal(topics, expected)
    np.testing.assert_allclose(counts, live, atol=1e-12)


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
