"""CDP-LDA: without noise it is the sampler of HDP-LDA; noise stays, or is replaced."""

import math

import cdp_lda
import numpy as np
import pytest
from cdp_lda import FIRST, FRESH, IN_PLACE, Chains, Noise
from numpy.testing import assert_allclose, assert_array_equal

from dplda.datasets import make_topic_corpus
from dplda.kernels import _published_hdp

K, ALPHA, BETA = 4, 0.3, 0.1


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(30, 25, K, doc_length=20, random_state=0).data


def chains_of(X, noises):
    return Chains(X, noises, K, alpha=ALPHA, beta=BETA, random_state=0)


def counted(chains, r):
    """Counts of words in topics, and of documents in topics, from the topics alone."""
    corpus, topics = chains.corpus, chains.topics[:, r]
    words, documents = np.zeros((corpus.n_words, K)), np.zeros((30, K))
    np.add.at(words, (corpus.word, topics), 1)
    document = np.repeat(np.arange(30), np.diff(corpus.doc_ptr))
    np.add.at(documents, (document, topics), 1)
    return words, documents


def test_a_sweep_without_noise_is_that_of_the_kernel(X):
    chains = chains_of(X, [Noise(math.inf, FIRST)] * 2)
    bits = np.random.default_rng(1).integers(0, 2**64, 600, dtype=np.uint64)
    topics, counts = chains.topics[:, 1].astype(np.int32), chains.words[:, 1].copy()
    _published_hdp.live_sweep(
        chains.corpus.word,
        chains.corpus.doc_ptr,
        topics,
        counts,
        counts.sum(axis=0),
        1e18,
        ALPHA,
        BETA,
        bits,
        np.empty(K, np.int64),
        np.empty(K),
    )
    uniform = ((bits >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
    cdp_lda.draw_topics(
        chains.corpus,
        chains.topics,
        chains.words,
        chains.documents,
        np.column_stack([np.full(600, 0.5), uniform]),
        ALPHA,
        BETA,
    )
    assert_array_equal(chains.topics[:, 1], topics)
    assert_allclose(chains.words[:, 1], counts)


def test_live_counts_are_those_of_the_topics_plus_the_noise(X):
    noises = [Noise(2.0, sweeps) for sweeps in (FIRST, IN_PLACE, FRESH)]
    chains = chains_of(X, noises)
    for _ in range(3):
        chains.add_noise()
        chains.sweep()
    for r in range(3):
        for true, live, added in zip(
            counted(chains, r), (chains.words, chains.documents), chains.added
        ):
            assert_allclose(live[:, r] - added[:, r], true, atol=1e-9)


@pytest.mark.parametrize(
    ("sweeps", "variances"),
    [(FIRST, [1, 1, 1]), (IN_PLACE, [1, 2, 3]), (FRESH, [1] * 3)],
)
def test_noise_of_scale_1_over_epsilon(sweeps, variances):
    X = np.ones((1, 2000), int)
    chains = Chains(X, [Noise(0.5, sweeps)], 20, alpha=1, beta=1, random_state=0)
    first = None
    for variance in variances:
        chains.add_noise()
        noise = chains.added[0][:, 0].copy()
        assert noise.var() == pytest.approx(variance * 2 * 2.0**2, rel=0.1)
        if first is not None:
            assert (noise == first).all() == (sweeps == FIRST)
        first = noise


def test_gains_are_probabilities_of_the_drawn_topic(X):
    """By Bayes' rule: the share of the drawn topic in the weights of each word."""
    chains = chains_of(X, [Noise(1.0, IN_PLACE)])
    documents = np.arange(5)
    last = chains.corpus.doc_ptr[documents + 1] - 1
    chains.add_noise()
    noisy, old = chains.words.copy(), chains.topics[last].copy()
    chains.sweep()
    found = cdp_lda.gains(chains, noisy, documents, last, old)
    assert found.shape == (1, 5, 2, 25)
    d, i = 2, last[2]
    others = chains.topics[chains.corpus.doc_ptr[d] : i, 0]
    noise = chains.added[1][d, 0]
    live = noise + np.bincount(others, minlength=K) + np.eye(K)[old[2, 0]]
    weight = np.maximum(live, 0) + ALPHA
    for v in range(25):
        row = (np.maximum(noisy[v, 0], 0) + BETA) * weight
        row /= np.maximum(noisy[:, 0].sum(axis=0), 0) + 25 * BETA
        share = row[chains.topics[i, 0]] / row.sum()
        assert found[0, 2, 0, v] == pytest.approx(math.log(share))
