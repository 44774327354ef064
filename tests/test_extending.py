"""Clipping, and the worked example of docs/extending.md: an estimator in one file."""

import math
from pathlib import Path

import numpy as np
import private_nmf as nmf
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from private_lsa import PrivateLSA
from private_nmf import PrivateNMF
from sklearn.utils.estimator_checks import parametrize_with_checks

from dplda.audit import audit_epsilon
from dplda.core._private_estimator import PrivateEstimator
from dplda.datasets import make_topic_corpus
from dplda.privacy import Gaussian, Ledger
from dplda.privacy.mechanisms import sum_clipped

ROOT = Path(__file__).parents[1]
NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=64)
SMALL = st.floats(-1e-150, 1e-150, width=64)


@given(
    arrays(np.float64, (3, 7), elements=NUMBERS | SMALL | st.just(0.0)),
    st.floats(1e-9, 1e9),
    st.integers(1, 2**30),
)
def test_one_unit_never_moves_the_sum_by_more_than_the_radius(X, norm, radius):
    difference = (
        sum_clipped(X, norm, radius) - sum_clipped(X[1:], norm, radius)
    ).astype(object)
    assert int((difference**2).sum()) <= radius**2


@given(
    arrays(np.float64, (4, 5), elements=st.floats(-1e3, 1e3)), st.integers(2**10, 2**30)
)
def test_the_sum_is_that_of_clipped_rows(X, radius):
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    rows = np.where(lengths > 1e-15, X, 0) / np.maximum(1, lengths / 2.5)
    # rounding toward zero takes less than one unit from a cell, and the shrinking
    # 2**-16 of it
    bound = len(X) * (2.5 / radius) + 2.0**-16 * np.abs(rows).sum(axis=0)
    assert (
        np.abs(sum_clipped(X, 2.5, radius) * (2.5 / radius) - rows.sum(axis=0)) <= bound
    ).all()


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, 40, 3, doc_length=40, random_state=0).data


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.filterwarnings("ignore:.*not whole:UserWarning")
@parametrize_with_checks([PrivateNMF(2, epsilon=5.0, max_iter=2)])
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_it_charges_and_promises(corpus):
    ledger = Ledger(epsilon=5.0)
    model = PrivateNMF(3, epsilon=4.0, max_iter=5, ledger=ledger).fit(corpus)
    assert 3.99 < model.epsilon_ <= 4.0
    assert ledger.epsilon_spent == pytest.approx(model.epsilon_)
    assert model.privacy_.unit == "document"
    assert len(model.privacy_.events) == 5
    assert all(isinstance(event, Gaussian) for event in model.privacy_.events)


def test_a_contribution_reads_its_document_only(corpus):
    """Bit for bit: the sum changes by one clipped row, not by another's rounding."""
    topics = nmf.normalized(np.random.default_rng(0).uniform(0.1, 1, (3, 40)))
    X = sp.csr_array(corpus.astype(float))
    whole = nmf.contributions(X, topics).toarray()
    for d in (*range(0, 300, 37), 299):
        rest = nmf.contributions(X[np.delete(np.arange(300), d)], topics).toarray()
        np.testing.assert_array_equal(np.delete(whole, d, axis=0), rest)


def test_it_learns(corpus):
    model = PrivateNMF(3, epsilon=math.inf, max_iter=15, random_state=0).fit(corpus)
    truth = make_topic_corpus(300, 40, 3, doc_length=40, random_state=0).components
    truth = truth / np.linalg.norm(truth, axis=1, keepdims=True)
    assert (model.components_ @ truth.T).max(axis=0).min() > 0.85


def test_its_audit_finds_a_sensitivity_that_is_too_large(corpus, monkeypatch):
    monkeypatch.setattr(
        nmf.mechanisms,
        "sum_clipped",
        lambda rows, norm, radius: 10 * sum_clipped(rows, norm, radius),
    )
    model = PrivateNMF(2, epsilon=2.0, max_iter=2, contribution_norm=0.02)
    result = audit_epsilon(model, corpus, n_canaries=400, random_state=0)
    assert result.lower_bound > result.claim


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_private_lsa_finds_the_directions_and_has_a_complete_card():
    X = make_topic_corpus(400, 30, 3, random_state=0).data
    private = PrivateLSA(3, epsilon=8.0, random_state=0).fit(X)
    exact = PrivateLSA(3, epsilon=math.inf, random_state=0).fit(X)
    overlap = np.linalg.svd(private.components_ @ exact.components_.T)[1]
    assert overlap[0] > 0.9
    assert (private.components_ < 0).any()
    assert private.privacy_.theorem == "docs/extending.md"
    assert private.privacy_.trusted
    assert private.epsilon_ <= 8.0


def test_a_private_estimator_without_a_card_fails_at_its_definition():
    with pytest.raises(TypeError, match="Forgetful has no card"):
        type("Forgetful", (PrivateEstimator,), {})
