"""Topic weights under a fixed table: the same as in double precision, and alone.

Alone means one document at a time.
"""

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from dplda.core._fold_in import fold_in
from dplda.datasets import make_topic_corpus

N_WORDS, PRIOR = 60, 0.1


@pytest.fixture(params=[1, 4, 20])
def model(request):
    """Topics and documents, of which the third is empty."""
    corpus = make_topic_corpus(
        40, N_WORDS, request.param, doc_length=80, random_state=2
    )
    X = sp.csr_array(corpus.data)
    keep = np.arange(40) != 2
    X = sp.csr_array(X.multiply(keep[:, None]), dtype=float)
    X.eliminate_zeros()
    return corpus.components + 1e-3, X


def test_the_public_result_has_converged(model):
    components, X = model
    theta = fold_in(X, components, PRIOR)
    assert theta.dtype == np.float32
    phi, n = (components / components.sum(axis=1, keepdims=True)).T, len(components)
    start = np.full_like(theta, 1 / n)
    expected = reference.fold_in(X, range(X.shape[0]), phi, PRIOR, n, 1000, start)
    assert_allclose(theta, expected, atol=0.02)


def test_rows_sum_to_one_and_empty_documents_get_equal_weights(model):
    components, X = model
    theta = fold_in(X, components, PRIOR)
    assert_allclose(theta.sum(axis=1), 1, rtol=1e-6)
    assert (theta > 0).all()
    assert_array_equal(
        theta[2], np.full(len(components), 1 / len(components), np.float32)
    )


def test_a_row_depends_on_that_row_only(model):
    components, X = model
    theta = fold_in(X, components, PRIOR)
    order = np.random.default_rng(0).permutation(X.shape[0])
    assert_array_equal(fold_in(X[order], components, PRIOR), theta[order])
    assert_array_equal(fold_in(X[5:11], components, PRIOR), theta[5:11])
    assert_array_equal(fold_in(X[[7]], components, PRIOR), theta[[7]])


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e9])
def test_scale_of_a_topic_does_not_matter(model, factor):
    components, X = model
    scaled = components * np.geomspace(1, factor, len(components))[:, None]
    assert_allclose(fold_in(X, scaled, PRIOR), fold_in(X, components, PRIOR), atol=1e-5)
