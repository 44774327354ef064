"""SentenceLDA and the master of iFTM to the letter, against the paper's equations."""

import itertools
import math

import iftm_master
import numpy as np
import pytest
import scipy.sparse as sp
import sentence_lda
from iftm_master import Model
from numpy.testing import assert_allclose, assert_array_equal
from sentence_lda import Draws, PublishedSentenceLDA, Sentences

from dplda.kernels import _published_iftm

K, ALPHA = 3, 0.2
X = sp.csr_array([[1, 1, 0, 0], [0, 0, 2, 1], [0, 1, 0, 1], [1, 0, 0, 2]])
DOCUMENTS = np.array([4, 4, 4, 9])


def law_of_a_sentence(live, start, likelihood, omega, words, old):
    """Distribution of the next topic by (27) and then (28), word by word."""
    law = np.eye(K)[old]
    for proposal in [start, *(omega[:, w] / omega[:, w].sum() for w in words)]:
        proposal = proposal / proposal.sum()
        target = (live + ALPHA) * likelihood
        step = np.zeros((K, K))
        for z, new in itertools.permutations(range(K), 2):
            ratio = target[new] * proposal[z] / (target[z] * proposal[new])
            step[z, new] = proposal[new] * min(1, ratio)
        law = law @ (step + np.diag(1 - step.sum(axis=1)))
    return law


@pytest.mark.ci
def test_a_sentence_moves_by_the_law_of_27_and_28():
    """All proposals, weighed by their laws, on a grid of coins."""
    rng = np.random.default_rng(0)
    sentences = Sentences.from_counts(X[:1], [0])
    likelihood = rng.dirichlet(np.ones(K))
    start, omega = 1 + rng.random(K), rng.dirichlet(np.ones(4), K)
    coins = np.log((np.arange(20) + 0.5) / 20)
    words = sentences.word
    found = np.zeros(K)
    for topics in itertools.product(range(K), repeat=1 + len(words)):
        weight = start[topics[0]] / start.sum()
        for w, topic in zip(words, topics[1:]):
            weight *= omega[topic, w] / omega[:, w].sum()
        for coin in itertools.product(coins, repeat=1 + len(words)):
            drawn = Draws(topics[:1], topics[1:], coin[:1], coin[1:])
            after = sentence_lda.sweep(
                sentences,
                np.array([2]),
                drawn,
                np.log(likelihood)[None],
                np.log(start)[None],
                np.log(omega),
                ALPHA,
            )
            found[after[0]] += weight / len(coins) ** (1 + len(words))
    expected = law_of_a_sentence(np.zeros(K), start, likelihood, omega, words, 2)
    assert_allclose(found, expected, atol=0.03)


def test_sentences_of_one_word_are_algorithm_1():
    """The kernel of LDA accepts the same proposals with the same coins."""
    rng = np.random.default_rng(1)
    n, n_words = 300, 9
    word = rng.integers(0, n_words, n)
    document = np.sort(rng.integers(0, 20, n))
    document = np.unique(document, return_inverse=True)[1]
    sentences = Sentences(word, np.arange(n + 1), document)
    topics, by_document, by_word = rng.integers(0, K, (3, n)).astype(np.int32)
    coins = np.log(rng.random((2, n)))
    noisy = sp.random_array((n, n_words), density=0.3, rng=2).tocsr()
    noisy.data = np.ones(len(noisy.data))
    log_phi = np.log(rng.dirichlet(np.ones(n_words), K)).astype(np.float32)
    omega = rng.dirichlet(np.ones(n_words), K).astype(np.float32)
    start = sentence_lda.document_counts(sentences, topics, K) + ALPHA
    ours = sentence_lda.sweep(
        sentences,
        topics,
        Draws(by_document, by_word, coins[0], coins[1]),
        noisy @ log_phi.T.astype(float),
        np.log(start),
        np.log(omega.astype(float)),
        ALPHA,
    )
    theirs = topics.copy()
    _published_iftm.accept_topics(
        np.concatenate([[0], np.cumsum(np.bincount(document))]),
        0,
        n,
        word.astype(np.int32),
        theirs,
        topics,
        by_document,
        by_word,
        coins,
        noisy.indptr.astype(np.int64),
        noisy.indices.astype(np.int32),
        np.zeros(noisy.nnz, np.uint16),
        np.ones(1),
        log_phi,
        omega,
        ALPHA,
        *np.empty((2, K), np.int32),
    )
    assert_array_equal(ours, theirs)
    assert (ours != topics).any()


def test_words_of_a_sentence_share_a_topic_and_are_counted_exactly():
    party = PublishedSentenceLDA(K, epsilon=2.0, max_iter=3).fit(X, DOCUMENTS)
    counts = party.components_ - party.beta
    assert_allclose(counts.sum(axis=0), X.sum(axis=0))
    subsets = np.array(list(itertools.product((0, 1), repeat=4)))
    sums = subsets @ X.toarray()
    for topic in counts:  # a topic holds whole sentences
        assert (np.abs(sums - topic).sum(axis=1) < 1e-9).any()
    party.refine(np.eye(5, 4) + 0.1)
    assert party.components_.shape == (5, 4)
    assert_allclose((party.components_ - party.beta).sum(axis=0), X.sum(axis=0))


def test_noisy_vectors_of_a_sentence_add_up():
    sentences = Sentences.from_counts(X, DOCUMENTS)
    exact = sentence_lda.noisy_counts(sentences, 4, math.inf, 0.2, None)
    assert_array_equal(exact.toarray(), X.toarray())
    rng = np.random.default_rng(0)
    many = Sentences(np.zeros(4000, int), np.arange(0, 4001, 2), np.zeros(2000, int))
    noisy = sentence_lda.noisy_counts(many, 2, 5.0, 0.2, rng).toarray()
    u = (np.arange(10**6) + 0.5) / 10**6
    laplace = np.where(u < 0.5, np.log(2 * u), -np.log(2 - 2 * u)) / 5
    for column, value in enumerate((1.0, 0.0)):
        kept = np.where(value + laplace > 0.2, value + laplace, 0)
        spread = 5 * noisy[:, column].std() / math.sqrt(2000)
        assert noisy[:, column].mean() == pytest.approx(2 * kept.mean(), abs=spread)


def test_small_dirichlet_draws_do_not_underflow():
    weights = np.array([[0.01, 0.01, 3.0]])
    rng = np.random.default_rng(0)
    draws = [sentence_lda.draw_log_phi(weights, rng)[0] for _ in range(4000)]
    assert np.isfinite(draws).all()
    phi = np.exp(draws)
    assert_allclose(phi.mean(axis=0), weights[0] / weights.sum(), atol=0.005)


def test_a_chain_of_similar_topics_is_one_set():
    """Algorithm 3 joins 0 and 2, which are not similar, through 1."""
    chain = np.array([[0.6, 0.4, 0, 0], [0.4, 0.3, 0.3, 0], [0, 0.4, 0.6, 0]])
    assert iftm_master.similarities(chain[:1], chain[2:])[0, 0] < 0.3
    model = Model(chain[:2], np.array([100.0, 100.0]))
    other = np.array([[0, 0, 0, 1.0]])
    local = Model(np.concatenate([chain[2:], other]), np.array([300.0, 300.0]))
    merged = iftm_master.integrate(model, local)
    assert_allclose(merged.topics[0], np.array([1, 1, 3]) @ chain / 5)
    assert_allclose(merged.topics[1], other[0])
    assert_allclose(merged.weights, [500.0, 300.0])


def test_a_global_topic_is_given_once():
    """Algorithm 4, lines 2 to 8, in the order of the party's topics."""
    local = Model(np.array([[0.9, 0.1, 0], [0.8, 0.2, 0], [0, 0, 1.0]]), np.ones(3))
    model = Model(np.array([[0.85, 0.15, 0], [0, 0.1, 0.9]]), np.ones(2))
    composed = iftm_master.compose(model, local)
    assert_allclose(composed[0], model.topics[0])
    assert_allclose(composed[1], local.topics[1])
    # line 7: the second topic, which matched nothing, took the last global one away
    assert_allclose(composed[2], local.topics[2])
