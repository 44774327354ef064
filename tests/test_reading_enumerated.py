"""Contributions of units to noisy scores, and to counts: their bounds and sizes."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.base import BaseEstimator

from dplda.datasets import make_topic_corpus
from dplda.leaf._users import number_users
from dplda.reading._groups import groups_of
from dplda.reading._noisy_score import (
    TOKEN_WEIGHT,
    _ratio,
    contributions,
    largest_norm,
)

X = make_topic_corpus(120, 40, 4, doc_length=60, random_state=0).data


REFERENCE = np.full(40, 1 / 40)


class Model(BaseEstimator):
    """A public table: one topic has nearly all of word 0, and hardly any of word 1."""

    components_ = np.random.default_rng(0).random((4, 40)) + 1e-3
    components_[:, 0] += 500
    components_[:, 1] = 1e-9
    doc_topic_prior_ = 0.1

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True


class Fitted(Model):
    n_jobs = None


counts = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 7), st.just(40)),
    elements=st.sampled_from([0, 0, 0, 1, 2, 3, 70, 0.5, 1e-300, 1e15]),
)


@settings(deadline=None, max_examples=30)
@given(counts, st.floats(1e-3, 10), st.integers(1, 200))
def test_contributions_read_one_unit_and_are_bounded(X, clip, max_tokens):
    def of(rows, users=None):
        options = (Model.components_, REFERENCE, 0.1, clip, max_tokens)
        return contributions(sp.csr_array(rows), *options, users=users)

    together = of(X)
    np.testing.assert_array_equal(together, np.vstack([of(row) for row in X[:, None]]))
    assert (np.hypot(*together.T) <= largest_norm(max_tokens) * (1 + 1e-12)).all()
    users = number_users(np.arange(len(X)) % 3, len(X))
    of_users = [
        of(X[users == u], users[users == u] * 0) for u in range(users.max() + 1)
    ]
    np.testing.assert_array_equal(of(X, users), np.vstack(of_users))


def test_documents_of_a_user_are_added_before_the_clip():
    """A user with two documents has their sums; long documents weigh no more."""
    options = (sp.csr_array(X), Model.components_, REFERENCE, 0.1)
    alone = contributions(*options, 20.0, 10**6)
    users = np.arange(X.shape[0]) // 2
    together = contributions(*options, 20.0, 10**6, users=users)
    np.testing.assert_allclose(together, alone[::2] + alone[1::2], rtol=1e-12)
    capped = contributions(*options, 20.0, 10, users=users)
    np.testing.assert_allclose(capped[:, 1], 10 * TOKEN_WEIGHT)
    np.testing.assert_allclose(
        capped[:, 0] / capped[:, 1], together[:, 0] / together[:, 1]
    )


def test_the_standard_error_is_the_spread_of_the_noise():
    rng, truth, scale = np.random.default_rng(0), np.array([300.0, 1200.0]), 40.0
    gains, errors = zip(
        *(_ratio(truth + scale * rng.normal(size=2), scale) for _ in range(4000))
    )
    assert np.mean(gains) == pytest.approx(300 / (1200 / 0.6), abs=2e-3)
    assert np.std(gains) == pytest.approx(np.mean(errors), rel=0.05)


@pytest.mark.parametrize("soft", [False, True])
def test_a_document_of_one_topic_takes_one_cell_of_a_table(soft):
    by = {"ward": ["a", "b"] * 60, "month": ["c"] * 120}
    levels = {"ward": ["a", "b"], "month": ["c", "d"]}
    groups = groups_of(by, levels, 4, soft=soft)
    rows = groups.rows(Fitted(), sp.csr_array(X), groups.places(by, 120), None)
    assert rows.nnz == 120 * 2 * (4 if soft else 1)
    np.testing.assert_allclose(rows.sum(axis=1), 2.0, rtol=1e-6)
