"""Enumerations of PrivateSVILDA: rounds by slow twins, and cut documents by laws."""

import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import psi
from scipy.stats import binomtest
from sklearn.decomposition._lda import _update_doc_distribution

from dplda import PrivateSVILDA
from dplda.core._fold_in import Steps, in_16_bits, pad
from dplda.datasets import make_topic_corpus
from dplda.document import _training
from dplda.document._contributions import Documents
from dplda.document._document_budget import document_budget
from dplda.document._noisy_table import random_table
from dplda.document._rules import ExactRules, Rules
from dplda.document._word_totals import ExactTotals
from dplda.privacy import SeededNoiseWarning
from dplda.privacy.mechanisms import Streams
from dplda.published._svilda import shorten

K = 4


MADE = make_topic_corpus(400, 50, K, doc_length=40, random_state=0)


@pytest.fixture(scope="module")
def corpus():
    return MADE.data


def seeded(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        return model.set_params(random_state=0).fit(X)


def tables_of(kind, table, power=0.3):
    """What documents are told in a round, whose inference begins anew."""
    budget = document_budget(1.0, None, 1e-6, max_iter=1, subsampling_ratio=1.0)
    (step,) = budget.schedule(0, 1, share_for_totals=0.0, powers=(power, power))
    room = np.zeros((50, 16), np.float32)
    return kind(infers_anew=True).tables(table, step, 6.0, room)


def start(X, alike=False):
    totals = np.asarray(X.sum(axis=0), float).ravel()
    exact = ExactTotals(totals, np.zeros(len(totals)), totals.mean())
    return random_table(
        exact, np.ones(len(totals)), K, Streams.from_random_state(0), alike=alike
    )


def test_rates_decay_from_the_first_table(corpus, monkeypatch):
    """Round t enters the average with the share (1 + t) ** -learning_decay."""
    shares, learn = [], _training.learn

    def recorded(*args, share, **rest):
        shares.append(share)
        return learn(*args, share=share, **rest)

    monkeypatch.setattr(_training, "learn", recorded)
    model = PrivateSVILDA(K, epsilon=4.0, learning_decay=0.6, max_iter=5)
    seeded(model, corpus)
    assert shares == pytest.approx([(1 + t) ** -0.6 for t in range(1, 6)])


@pytest.mark.parametrize("kind", [Rules, ExactRules])
def test_a_round_starts_every_document_from_scratch(corpus, kind):
    documents = Documents.from_counts(corpus, K, None)
    tables = tables_of(kind, start(corpus), power=1.0)
    rows, thetas = np.arange(0, 400, 2), []
    for _ in range(2):
        documents.sum_topics(rows, tables)
        thetas.append(documents.theta.copy())
        documents.theta[rows, :K] = 1e-3
    np.testing.assert_array_equal(*thetas)
    assert (documents.theta[1, :K] == np.float32(1 / K)).all()  # not in rows: untouched


def test_a_round_from_scratch_takes_steps_enough(corpus):
    """Five steps, which are enough from the last round's weights, leave 0.12 here."""
    inference = tables_of(Rules, start(corpus), power=1.0).inference
    thetas = []
    for settled in (inference, inference._replace(steps=Steps(1000, 1e-6))):
        documents = Documents.from_counts(corpus, K, None)
        documents.infer(np.arange(400), settled)
        theta = documents.theta[:, :K]
        thetas.append(theta / theta.sum(axis=1, keepdims=True))
    assert np.abs(thetas[0] - thetas[1]).sum(axis=1).mean() < 0.08


def test_without_noise_topics_are_dirichlet_posteriors(corpus):
    released = start(corpus)
    table = released.table.astype(float)
    exact, noisy = (tables_of(kind, released) for kind in (ExactRules, Rules))
    expected = np.exp(psi(table) - psi(table.sum(axis=0)))
    np.testing.assert_allclose(
        exact.inference.table[:, :K], expected, rtol=1e-6, atol=1e-30
    )
    assert exact.inference.by_e_step
    assert not noisy.inference.by_e_step
    shares = table / table.sum(axis=0)
    np.testing.assert_allclose(noisy.inference.table[:, :K], shares, rtol=1e-6)
    for found, factor in ((exact, expected), (noisy, shares**0.3)):
        off = found.factor.astype(int) - in_16_bits(pad(factor))
        assert np.abs(off).max() <= 3  # of 32767: a relative error of 1e-4


def shortened(X, n_tokens, seed=0):
    return shorten(sp.csr_array(X), n_tokens, Streams.from_random_state(seed))


def test_long_documents_are_cut_to_random_tokens():
    X = np.array([[5.0, 0, 1, 0], [30, 60, 0, 30], [0, 0, 0, 0], [0, 0, 9, 0]])
    cut = shortened(X, 8).toarray()
    np.testing.assert_array_equal(cut[[0, 2]], X[[0, 2]])
    np.testing.assert_array_equal(cut.sum(axis=1), [6, 8, 0, 8])
    assert (cut <= X).all()
    np.testing.assert_array_equal(shortened(X, 8).toarray(), cut)
    assert not np.array_equal(shortened(X, 8, seed=1).toarray(), cut)
    np.testing.assert_array_equal(shortened(X, 120).toarray(), X)


@pytest.mark.parametrize("n_tokens", [8, 100])  # few chosen to stay, or few to go
def test_every_token_is_as_likely_to_stay(n_tokens):
    X = np.tile([30.0, 60, 0, 30], (3000, 1))
    kept = shortened(X, n_tokens).toarray()
    assert (kept.sum(axis=1) == n_tokens).all()
    for word, share in ((0, 0.25), (1, 0.5), (3, 0.25)):
        n_kept = int(kept[:, word].sum())
        assert binomtest(n_kept, 3000 * n_tokens, share).pvalue > 1e-4
        # hypergeometric
        variance = n_tokens * share * (1 - share) * (120 - n_tokens) / 119
        assert kept[:, word].var() == pytest.approx(variance, rel=0.15)


def test_a_document_of_any_length_is_cut_at_once():
    X = np.array([[3e15, 1e15], [2, 3]])
    cut = shortened(X, 1000).toarray()
    assert cut[0].sum() == 1000
    assert binomtest(int(cut[0, 0]), 1000, 0.75).pvalue > 1e-4
    np.testing.assert_array_equal(cut[1], X[1])


def test_without_noise_and_sampling_it_is_online_variational_bayes(corpus):
    """Step by step, with scikit-learn's E-step."""
    corpus = corpus[:190]  # none of so few is kept out to test the topics
    model = seeded(
        PrivateSVILDA(K, epsilon=math.inf, subsampling_ratio=1, max_iter=6), corpus
    )
    first = start(corpus, alike=True).table
    average, table = first, first
    for t in range(1, 7):
        topics = np.exp(psi(table) - psi(table.sum(axis=0))).T.copy()
        _, counts = _update_doc_distribution(
            sp.csr_matrix(corpus, dtype=float), topics, 0.1, 100, 1e-3, True, None
        )
        rate = (1 + t) ** -0.8
        average = (1 - rate) * average + rate * (counts * topics).T
        table = average + 0.01
    np.testing.assert_allclose(model.components_.T, table, rtol=1e-3, atol=1e-3)
