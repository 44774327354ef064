"""Perplexity by document completion, the papers' perplexity, and the unigram reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from dplda._compat import check_non_negative
from dplda._corpus import check_quoting_nothing, check_table
from dplda._fold_in import LARGEST_PRIOR, fold_in


def _mix(x: np.ndarray) -> np.ndarray:
    """Scramble 64-bit integers (the finalizer of SplitMix64): public pseudo-random bits."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def split_documents(X: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
    """Split each document's tokens at random into an observed and a held-out half.

    The random bits are a hash of the document itself, so the split of a row is always the same
    and does not depend on other rows.

    Parameters
    ----------
    X : sparse matrix of shape (n_docs, n_words)
        Whole counts.

    Returns
    -------
    observed, held_out : csr_array of shape (n_docs, n_words)
        They add up to `X`.
    """
    X = sp.csr_array(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    counts = np.minimum(X.data, 2.0**62).astype(np.int64)
    cell = _mix(X.indices.astype(np.uint64) * np.uint64(2**32) + counts.astype(np.uint64))
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    key = np.zeros(X.shape[0], np.uint64)
    np.add.at(key, row, cell)
    bits = _mix(_mix(key)[row] ^ cell)
    # up to 62 tokens of a word: one coin each; beyond, an even split and coins for the rest
    coins = np.where(counts <= 62, counts, counts % 2)
    masked = bits & ((np.uint64(1) << coins.astype(np.uint64)) - np.uint64(1))
    observed = np.bitwise_count(masked).astype(np.int64) + (counts - coins) // 2
    parts = []
    for data in (observed, counts - observed):
        part = sp.csr_array((data.astype(X.dtype), X.indices.copy(), X.indptr.copy()), X.shape)
        part.eliminate_zeros()
        parts.append(part)
    return parts[0], parts[1]


def _check_counts(X: Any) -> sp.csr_array:
    with check_quoting_nothing(X):
        X = sp.csr_array(check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32]))
    check_non_negative(X, "a perplexity (it takes word counts)")
    return X


def _check(components: Any, X: Any) -> tuple[np.ndarray, sp.csr_array]:
    components = check_table(components, "components")
    X = _check_counts(X)
    if X.shape[1] != components.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} words and components has {components.shape[1]}; "
            "vectorize X with the vocabulary that the model was trained on"
        )
    if not np.array_equal(np.rint(X.data), X.data):
        raise ValueError("X must hold whole word counts; pass counts, not tf-idf or frequencies")
    possible = [(components.sum(axis=axis) > 0).all() for axis in (0, 1)]
    if not (components.min() >= 0 and all(possible)):
        raise ValueError(
            "components must be non-negative, with no topic empty and no word impossible in all "
            "topics; add a small positive prior to every cell"
        )
    return components, X


def _check_prior(value: Any, name: str = "doc_topic_prior") -> None:
    if not (isinstance(value, (int, float, np.number)) and 0 < value <= LARGEST_PRIOR):
        raise ValueError(f"{name} must be above 0 and at most {LARGEST_PRIOR:g}, got {value!r}")


def _log_likelihood(X: sp.csr_array, theta: np.ndarray, components: np.ndarray) -> float:
    """Sum over tokens of the log of theta_d . phi_w, in double precision."""
    phi = (components / components.sum(axis=1, keepdims=True)).T
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    total = 0.0
    for start in range(0, X.nnz, 1 << 18):
        part = slice(start, start + (1 << 18))
        p = np.einsum("ik,ik->i", theta[row[part]].astype(float), phi[X.indices[part]])
        total += float(X.data[part] @ np.log(p))
    return total


def held_out_log_likelihood(
    components: Any,
    X: Any,
    *,
    doc_topic_prior: float = 0.1,
    completion: bool = True,
    n_jobs: int | None = None,
) -> float:
    """Mean log-likelihood per token; see :func:`held_out_perplexity`. Higher is better."""
    components, X = _check(components, X)
    _check_prior(doc_topic_prior)
    observed, scored = split_documents(X) if completion else (X, X)
    n_tokens = float(scored.sum())
    if n_tokens == 0:
        raise ValueError("X holds no words to score; pass documents with at least two words")
    theta = fold_in(observed, components, doc_topic_prior, n_jobs)
    return _log_likelihood(scored, theta, components) / n_tokens


def held_out_perplexity(
    components: Any,
    X: Any,
    *,
    doc_topic_prior: float = 0.1,
    completion: bool = True,
    n_jobs: int | None = None,
) -> float:
    """Perplexity of documents under a topic-word table; lower is better.

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        Pseudo-counts or probabilities of each topic's words, as in ``estimator.components_``.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of documents that the table was not trained on.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topic weights.
    completion : bool, default=True
        True: the weights are inferred from one half of each document's tokens and the other half
        is scored ("document completion"). False: both from all tokens, as the papers do [1]_;
        that number is lower, since the weights have seen what is scored.
    n_jobs : int or None, default=None
        Threads; never changes the result.

    Returns
    -------
    perplexity : float
        ``exp(-log-likelihood / tokens)``.

    Notes
    -----
    **Privacy.** A perplexity of private documents is a release about them that no epsilon covers.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training With Differential Privacy", 2020, section VII.
    """
    return float(
        np.exp(
            -held_out_log_likelihood(
                components,
                X,
                doc_topic_prior=doc_topic_prior,
                completion=completion,
                n_jobs=n_jobs,
            )
        )
    )


def unigram_perplexity(X_train: Any, X: Any, *, topic_word_prior: float = 0.01) -> float:
    """Perplexity of one topic for all: the word frequencies of `X_train` (not private)."""
    if topic_word_prior != 0:
        _check_prior(topic_word_prior, "topic_word_prior")
    X_train = _check_counts(X_train)
    counts = np.asarray(X_train.sum(axis=0), dtype=float).reshape(1, -1)
    return held_out_perplexity(counts + topic_word_prior, X)
