"""The E-step of variational Bayes: Dirichlet posteriors of the topic weights of documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda.core._fold_in import LANES, aligned_zeros
from dplda.kernels import _e_step
from dplda.leaf._threads import n_threads

# The stopping rule of scikit-learn for a document: at most MAX_STEPS steps, or until the mean
# change of its Dirichlet parameters is below TOLERANCE.
MAX_STEPS = 100
TOLERANCE = 1e-3


def exp_dirichlet_expectation(
    table: np.ndarray, dtype: Any, n_jobs: int | None = None
) -> np.ndarray:
    """exp(E[log beta]) for topics with Dirichlet parameters `table` (n_words, n_components).

    Returns
    -------
    ndarray of shape (n_words, padded)
        Columns sum to less than 1; the padding is zero.
    """
    table = np.ascontiguousarray(table, float)
    n_words, n_components = table.shape
    result = aligned_zeros((n_words, -(-n_components // LANES) * LANES), dtype)
    _e_step.exp_expectations(table, table.sum(axis=0), result, n_threads(n_jobs))
    return result


def e_step(
    X: sp.csr_array,
    exp_topic_word: np.ndarray,
    *,
    n_components: int,
    doc_topic_prior: float,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Variational posterior of every document's topic weights.

    Parameters
    ----------
    X : csr_array of shape (n_docs, n_words)
        Counts, in the type of `exp_topic_word`.
    exp_topic_word : ndarray of shape (n_words, padded), float32 or float64
        exp(E[log beta]), padding zero.
    n_components : int
        Topics without the padding.
    doc_topic_prior : float
        Dirichlet parameter of the topic weights.
    n_jobs : int or None
        Number of threads. It never changes a result.

    Returns
    -------
    gamma : ndarray of shape (n_docs, padded)
        Dirichlet parameters.
    exp_doc_topic : ndarray of shape (n_docs, padded)
        exp(E[log theta]), padding zero.
    """
    dtype, padded = exp_topic_word.dtype, exp_topic_word.shape[1]
    gamma = np.ones((X.shape[0], padded), dtype)
    exp_doc_topic = np.zeros_like(gamma)
    longest = int(np.diff(X.indptr).max(initial=0))
    scratch = np.empty((n_threads(n_jobs), _e_step.scratch_size(longest, n_components)), dtype)
    _e_step.e_step(
        X.indptr, X.indices, X.data, np.arange(X.shape[0]), exp_topic_word, doc_topic_prior,
        n_components, MAX_STEPS, TOLERANCE, gamma, exp_doc_topic, scratch,
    )  # fmt: skip
    return gamma, exp_doc_topic
