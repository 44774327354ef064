"""Topic weights under a fixed table: against double precision, and one document at a time."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from dplda.core._fold_in import (
    fold_in,
    single_precision,
    topic_word_probabilities,
    uniform_theta,
    update_theta,
)
from dplda.datasets import make_topic_corpus

N_WORDS, PRIOR = 60, 0.1


@pytest.fixture(params=[1, 4, 20])
def model(request):
    """Topics and documents, of which the third is empty."""
    corpus = make_topic_corpus(40, N_WORDS, request.param, doc_length=80, random_state=2)
    X = sp.csr_array(corpus.data)
    keep = np.arange(40) != 2
    X = sp.csr_array(X.multiply(keep[:, None]), dtype=float)
    X.eliminate_zeros()
    return corpus.components + 1e-3, X


def steps_in_double(X, components, prior, n_steps, *, accelerated=False):
    """Expectation maximization from equal weights; documents without words keep them."""
    phi = components / components.sum(axis=1, keepdims=True)
    theta = np.full((X.shape[0], len(phi)), 1 / len(phi))
    for d, counts in enumerate(X.toarray()):

        def step(weights, counts=counts):
            new = weights * ((counts / (weights @ phi)) @ phi.T) + prior
            return new / new.sum()

        if accelerated:
            least = prior / (counts.sum() + prior * len(phi))
            theta[d] = extrapolated(step, theta[d], n_steps if counts.any() else 0, least)
            continue
        for _ in range(n_steps):
            theta[d] = step(theta[d])
    return theta


def extrapolated(step, theta, n_steps, least):
    """Steps with a squared extrapolation after every two; one that is too far is undone."""
    before, longest, path = theta, np.inf, []
    for i in range(n_steps):
        path.append(theta)
        theta = step(theta)
        change = np.abs(theta - path[-1]).sum()
        if len(path) == 1 and change > longest:
            theta, longest, path = before, np.inf, []
        elif len(path) == 1:
            longest = change
        elif i + 1 < n_steps:
            before, r = theta, path[1] - path[0]
            v = theta - path[1] - r
            with np.errstate(all="ignore"):
                a = np.linalg.norm(r) / np.linalg.norm(v)
            if 1 < a < 1e6:
                theta = np.maximum(path[0] + a * (2 * r + a * v), np.maximum(theta / 8, least))
                theta = theta / theta.sum()
            path = []
    return theta


def steps_in_single(X, components, prior, n_steps):
    phi = topic_word_probabilities(components)
    theta = uniform_theta(X.shape[0], len(components))
    update_theta(
        single_precision(X), theta, phi, np.arange(X.shape[0]), n_components=len(components),
        doc_topic_prior=prior, max_steps=n_steps,
    )  # fmt: skip
    return theta[:, : len(components)]


@pytest.mark.parametrize("n_steps", [1, 7, 30])
def test_equals_double_precision(model, n_steps):
    components, X = model
    ours = steps_in_single(X, components, PRIOR, n_steps)
    expected = steps_in_double(X, components, PRIOR, n_steps, accelerated=True)
    assert_allclose(ours, expected, atol=1e-5)


def test_the_public_result_has_converged(model):
    components, X = model
    theta = fold_in(X, components, PRIOR)
    assert theta.dtype == np.float32
    assert_allclose(theta, steps_in_double(X, components, PRIOR, 5000), atol=0.02)


def test_rows_sum_to_one_and_empty_documents_get_equal_weights(model):
    components, X = model
    theta = fold_in(X, components, PRIOR)
    assert_allclose(theta.sum(axis=1), 1, rtol=1e-6)
    assert (theta > 0).all()
    assert_array_equal(theta[2], np.full(len(components), 1 / len(components), np.float32))


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
