"""iFTM's party to the letter sends exact counts; the sound party does not."""

import itertools
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import dplda.published._iftm as module
from dplda.core._corpus import Corpus
from dplda.datasets import make_topic_corpus
from dplda.federated import LocalModel, vocabulary_hash
from dplda.federated._tokens import Topics
from dplda.kernels import _published_iftm
from dplda.published import PublishedIFTMParty, recover_counts

K, V, BETA = 3, 40, 0.01
leaks = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")
LITERAL = PublishedIFTMParty(K, published_epsilon=5.0, max_iter=4, random_state=0)


@pytest.fixture(scope="module")
def counts():
    return make_topic_corpus(80, V, K, doc_length=30, random_state=0).data.toarray()


def sent(party):
    vocabulary = vocabulary_hash([f"word{i}" for i in range(V)])
    return LocalModel.from_estimator(party, "north", 0, vocabulary).table


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("beta", [0.0, 0.01, 0.5])
def test_normalized_rows_give_their_counts_back(dtype, beta):
    rng = np.random.default_rng(0)
    for _ in range(20):
        # few tokens, and many
        table = rng.poisson(rng.choice([0.1, 2.0, 4000.0], (5, 300)))
        table[:, 0], table[:, 1] = 1, 0
        model = (table + beta) / (table + beta).sum(axis=1, keepdims=True)
        assert_array_equal(
            recover_counts(model.astype(dtype), topic_word_prior=beta), table
        )
        # the least entry alone, as a master would do it by hand
        least = np.where(model > 0, model, 1).min(axis=1, keepdims=True)
        weights = model.astype(dtype) * ((beta or 1) / least)
        assert_array_equal(np.rint(weights - beta), table)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_without_a_one_come_back_up_to_their_divisor(dtype):
    table = np.array([[6, 9, 15, 0], [4, 6, 8, 10], [7, 0, 11, 500]])
    model = (table / table.sum(axis=1, keepdims=True)).astype(dtype)
    divisor = np.gcd.reduce(table, axis=1)[:, None]
    assert_array_equal(recover_counts(model), table // divisor)
    smooth = table + 0.1  # beta tells the scale; a row without a zero too
    smooth = (smooth / smooth.sum(axis=1, keepdims=True)).astype(dtype)
    assert_array_equal(recover_counts(smooth, topic_word_prior=0.1), table)


@leaks
@pytest.mark.parametrize("epsilon", [0.5, 8.0, math.inf])
def test_the_sent_model_is_the_exact_counts(epsilon, counts):
    party = clone(LITERAL).set_params(published_epsilon=epsilon).fit(counts)
    recovered = recover_counts(sent(party), topic_word_prior=BETA)
    assert_allclose(recovered + BETA, party.components_, rtol=1e-12)
    assert_array_equal(recovered.sum(axis=0), counts.sum(axis=0))
    again = recover_counts(sent(party.refine(sent(party))), topic_word_prior=BETA)
    assert_array_equal(again.sum(axis=0), counts.sum(axis=0))


@leaks
def test_refine_and_pickle(counts):
    party = clone(LITERAL).fit(counts)
    assert party.n_iter_ == 4
    saved = pickle.dumps(party)
    copy = pickle.loads(saved)
    assert_array_equal(copy.components_, party.components_)
    assert party._data[0].word.tobytes() not in saved
    assert b"_data" not in saved
    table = np.random.default_rng(0).random((5, V))
    with pytest.raises(ValueError, match="copies hold no documents"):
        copy.refine(table)
    party.refine(table)
    assert party.components_.shape == (5, V)
    assert party.n_iter_ == 8
    for bad in (table[:, 1:], -table, np.zeros((2, V))):
        with pytest.raises(ValueError, match="table must have 40 columns"):
            party.refine(bad)


def test_a_draw_of_phi_has_the_law_of_dirichlet(monkeypatch):
    """Equation (7): means and variances; tiny parameters do not underflow."""
    prior, seen = np.array([[0.3, 2.0, 7.7], [0.01, 0.01, 0.01]]), []
    for round in range(4000):
        seen.append(
            module._draw_log_phi(prior, module.Streams.from_random_state(round), round)
        )
    log_phi = np.array(seen, dtype=float)
    assert np.isfinite(log_phi).all()
    phi = np.exp(log_phi)
    assert_allclose(phi.sum(axis=2), 1, atol=1e-5)
    share, total = (
        prior / prior.sum(axis=1, keepdims=True),
        prior.sum(axis=1, keepdims=True),
    )
    variance = share * (1 - share) / (total + 1)
    assert (np.abs(phi.mean(axis=0) - share) < 5 * np.sqrt(variance / 4000)).all()
    assert_allclose(phi.var(axis=0), variance, rtol=0.15)


def test_proposals_have_the_laws_of_17_and_20():
    """Over a grid of random words, proposals are as frequent as they are probable."""
    corpus = Corpus(np.array([0, 1, 1, 3, 2, 2], np.int32), np.array([0, 2, 2, 6]), 4)
    topics = np.array([0, 2, 1, 1, 1, 2], np.int32)
    alpha, n = 0.3, 3000
    grid = ((np.arange(n) + 0.5) / n * 2**64).astype(np.uint64)
    by_doc = [
        module._propose_by_document(corpus, topics, K, alpha, np.full(6, bits))
        for bits in grid
    ]
    for i, own in enumerate([topics[:2]] * 2 + [topics[2:]] * 4):
        expected = (np.bincount(own, minlength=K) + alpha) / (len(own) + K * alpha)
        found = np.bincount(np.array(by_doc)[:, i], minlength=K) / n
        assert_allclose(found, expected, atol=4 / n)
    weights = np.array([[5.0, 1, 0.01, 3], [0.01, 1, 4, 3], [2.0, 1, 7, 3]])
    model = Topics.from_weights(weights)
    low = np.random.default_rng(0).integers(0, 2**32, 300000, dtype=np.uint64)
    bits = (
        np.arange(300000, dtype=np.uint64) * np.uint64(2**32 // 300000) << np.uint64(32)
    ) | low
    for v in range(4):
        found = np.bincount(
            module._draw_topics(model, np.full(300000, v), bits), minlength=K
        )
        expected = model.phi[:, v] / model.phi[:, v].sum()
        assert_allclose(found / 300000, expected, atol=0.005)


def twin(
    doc_ptr, word, topics, by_doc, by_word, log_uniform, vectors, log_phi, omega, alpha
):
    """Both acceptances of each token, in plain Python."""
    initial, topics = topics, topics.copy()
    for start, end in itertools.pairwise(doc_ptr):
        # of line 12
        table = np.bincount(initial[start:end], minlength=len(log_phi)) + alpha
        for i in range(start, end):
            others = np.delete(topics[start:end], i - start)
            live = np.bincount(others, minlength=len(log_phi)) + alpha
            score = [
                sum(x * phi[v] for v, x in vectors[i]) for phi in log_phi.astype(float)
            ]
            target = np.log(live) + score
            proposal = np.log(table), np.log(omega[:, word[i]].astype(float))
            for new, law, coin in zip(
                (by_doc[i], by_word[i]), proposal, log_uniform[:, i]
            ):
                old = topics[i]
                if coin < target[new] - target[old] + law[old] - law[new]:
                    topics[i] = new
    return topics


def test_the_kernel_accepts_what_19_and_22_say():
    rng = np.random.default_rng(0)
    n, n_words, alpha = 400, 12, 0.2
    doc_ptr = np.concatenate([[0, 0], np.sort(rng.integers(0, n, 30)), [n]])
    word = rng.integers(0, n_words, n).astype(np.int32)
    topics, by_doc, by_word = rng.integers(0, K, (3, n)).astype(np.int32)
    log_uniform = np.log(rng.random((2, n)))
    survives = rng.random((n, n_words)) < 0.2
    ptr = np.concatenate([[0], np.cumsum(survives.sum(axis=1))])
    survivor = np.nonzero(survives)[1].astype(np.int32)
    value = np.array([0.2, 0.7, 1.1])
    level = rng.integers(0, 3, len(survivor)).astype(np.uint16)
    vectors = [
        [*zip(survivor[a:b], value[level[a:b]])] for a, b in itertools.pairwise(ptr)
    ]
    log_phi = np.log(rng.dirichlet(np.ones(n_words), K)).astype(np.float32)
    omega = rng.dirichlet(np.ones(n_words), K).astype(np.float32)
    expected = twin(
        doc_ptr,
        word,
        topics,
        by_doc,
        by_word,
        log_uniform,
        vectors,
        log_phi,
        omega,
        alpha,
    )
    ours = topics.copy()
    for a, b in ((0, 133), (133, 134), (134, n)):  # pieces end inside documents
        _published_iftm.accept_topics(
            doc_ptr,
            a,
            b,
            word,
            ours,
            topics,
            by_doc,
            by_word,
            log_uniform,
            ptr[a : b + 1] - ptr[a],
            survivor[ptr[a] :],
            level[ptr[a] :],
            value,
            log_phi,
            omega,
            alpha,
            *np.empty((2, K), np.int32),
        )
    assert_array_equal(ours, expected)
    assert 50 < (ours != topics).sum() < 350
