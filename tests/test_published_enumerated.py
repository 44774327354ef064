"""Enumerations of algorithms as published: their kernels against the papers' loops."""

import itertools

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

import dplda.published._iftm as module
from dplda.core._corpus import Corpus
from dplda.federated._tokens import Topics
from dplda.kernels import _published_hdp, _published_iftm

K = 3


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
