"""E-step: alike on all instruction sets bit for bit, scikit-learn's up to rounding."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import psi
from sklearn.decomposition._lda import _update_doc_distribution

from dplda.core._fold_in import exp_dirichlet_expectation, pad
from dplda.kernels import _e_step, _sets
from dplda.leaf._threads import n_threads

SIZES = [1, 5, 20, 37]
DTYPES = [np.float32, np.float64]
N_DOCS, N_WORDS = 12, 150


def random_counts(dtype, seed=0, scale=9):
    """Documents of some to most of the words; the second and the last are empty."""
    rng = np.random.default_rng(seed)
    X = rng.integers(1, scale, (N_DOCS, N_WORDS))
    X *= rng.random(X.shape) < rng.uniform(0.05, 0.9, (N_DOCS, 1))
    X[[1, -1]] = 0
    X = sp.csr_matrix(X, dtype=dtype)
    X.indptr, X.indices = X.indptr.astype(np.int32), X.indices.astype(np.int32)
    return X


def random_table(n_components, dtype, seed=0):
    """exp(E[log beta]) of invented topics, (n_words, padded)."""
    rng = np.random.default_rng(seed)
    table = 0.1 + rng.gamma(0.2, 20, (N_WORDS, n_components))
    return pad(np.exp(psi(table) - psi(table.sum(axis=0))), dtype)


def e_step(
    X, rows, table, prior, n_components, max_iter=100, tol=1e-3, gamma=None, threads=1
):
    gamma = (
        pad(np.ones((X.shape[0], n_components)), table.dtype)
        if gamma is None
        else gamma.copy()
    )
    exp_doc_topic = np.full_like(gamma, -1)
    size = _e_step.scratch_size(np.diff(X.indptr).max(initial=0), n_components)
    scratch = np.full((n_threads(threads), size), np.nan, table.dtype)
    _e_step.e_step(
        X.indptr,
        X.indices,
        X.data,
        np.array(rows, np.int64),
        table,
        prior,
        n_components,
        max_iter,
        tol,
        gamma,
        exp_doc_topic,
        scratch,
    )
    return gamma, exp_doc_topic


def weights_of(gamma):
    gamma = gamma.astype(float)
    return np.exp(psi(gamma) - psi(gamma.sum(axis=1, keepdims=True)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize(("max_iter", "tol"), [(0, 0.0), (7, 0.0), (100, 1e-3)])
@pytest.mark.parametrize("prior", [0.01, 0.3])
def test_sets_and_threads_give_the_same_bits(
    dtype, n_components, max_iter, tol, prior, instruction_sets
):
    X, table = random_counts(dtype), random_table(n_components, dtype)
    start = pad(
        np.random.default_rng(1).gamma(0.5, 1.0, (N_DOCS, n_components)) + 1e-3, dtype
    )
    arguments = X, range(N_DOCS), table, prior, n_components, max_iter, tol, start
    _sets.use("portable")
    portable = e_step(*arguments)
    for name in instruction_sets:
        _sets.use(name)
        for threads in (1, 3):
            for values, expected in zip(e_step(*arguments, threads), portable):
                assert_array_equal(values, expected)
                assert not values[:, n_components:].any()


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("prior", [0.02, 0.5])
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(np.float64, 1e-5), (np.float32, 2e-4)],
    ids=["double", "single"],
)
def test_equals_scikit_learn(n_components, prior, dtype, rtol):
    """Its digamma is good to 3e-9, and documents that converge slowly multiply that."""
    X, table = random_counts(dtype), random_table(n_components, dtype)
    gamma, weights = e_step(X, range(N_DOCS), table, prior, n_components)
    topics = np.ascontiguousarray(table[:, :n_components].T, float)
    expected, _ = _update_doc_distribution(
        X.astype(float), topics, prior, 100, 1e-3, False, None
    )
    assert_allclose(gamma[:, :n_components], expected, rtol=rtol, atol=rtol)
    assert_allclose(
        weights[:, :n_components],
        weights_of(gamma[:, :n_components]),
        rtol=1e-4,
        atol=1e-18,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_components", [1, 5, 37])
def test_table_expectations_are_scipys(dtype, n_components, instruction_sets):
    """exp(E[log beta]), any set and number of threads; a table of several pieces."""
    rng = np.random.default_rng(0)
    table = 10.0 ** rng.uniform(-4, 6, (1100, n_components))
    expected = np.exp(psi(table) - psi(table.sum(axis=0)))
    first = exp_dirichlet_expectation(table, dtype)
    assert first.dtype == dtype
    assert not first[:, n_components:].any()
    rounding = 40 * np.finfo(float).eps * (1 + 1 / table) + np.finfo(dtype).eps
    least = 1e-290 if dtype is np.float64 else np.finfo(dtype).tiny
    assert (
        np.abs(first[:, :n_components] - expected) <= rounding * expected + least
    ).all()
    for name in instruction_sets:
        _sets.use(name)
        assert_array_equal(exp_dirichlet_expectation(table, dtype, n_jobs=2), first)


@pytest.mark.parametrize("dtype", DTYPES)
def test_documents_are_independent(dtype):
    X, table = random_counts(dtype), random_table(20, dtype)
    start = pad(np.ones((N_DOCS, 20)), dtype)
    whole = e_step(X, range(N_DOCS), table, 0.05, 20)
    for rows in ([3], [7, 0, 11], [], [1, 2, 4, 5, 6, 8, 9, 10]):
        others = np.setdiff1d(np.arange(N_DOCS), rows)
        gamma, weights = e_step(X, rows, table, 0.05, 20)
        assert_array_equal(gamma[rows], whole[0][rows])
        assert_array_equal(weights[rows], whole[1][rows])
        assert_array_equal(gamma[others], start[others])
        assert (weights[others] == -1).all()
