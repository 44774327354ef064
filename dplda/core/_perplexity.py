"""Perplexity by document completion, in the papers' form, and of word frequencies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dplda.core._corpus import (
    Matrix,
    are_shards,
    check_table,
    positive_entries,
    row_blocks,
    without_zeros,
)
from dplda.core._fold_in import (
    BATCH,
    DOC_TOPIC_PRIOR,
    infer_topics,
    topic_word_probabilities,
)
from dplda.leaf._checks import LARGEST, check_number
from dplda.leaf._sparse import add_duplicates


def _mix(x: np.ndarray) -> np.ndarray:
    """Scramble 64-bit integers (finalizer of SplitMix64): public pseudo-random bits."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def split_documents(X: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
    """Split each document's tokens at random into an observed and a held-out half.

    The random bits are a hash of the document, so that the split of a row does not
    depend on other rows. The fractional part of a count goes to one half. Both halves
    are private.
    """
    X = without_zeros(add_duplicates(X))
    observed = np.empty_like(X.data)
    held_out = np.empty_like(X.data)
    for rows in row_blocks(X.indptr):
        ptr = X.indptr[rows.start : rows.stop + 1]
        cells = slice(ptr[0], ptr[-1])
        observed[cells], held_out[cells] = _split(
            X.data[cells], X.indices[cells], np.diff(ptr)
        )
    return _with_counts(X, observed), _with_counts(X, held_out)


def _with_counts(X: sp.csr_array, counts: np.ndarray) -> sp.csr_array:
    """A matrix with `counts` in the stored cells of `X`, without zeros."""
    part = sp.csr_array((counts, X.indices.copy(), X.indptr.copy()), X.shape)
    part.eliminate_zeros()
    return part


def _split(
    data: np.ndarray, words: np.ndarray, n_entries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Observed and held-out counts of the entries of documents.

    `data` and `words` (n_entries,) are consecutive entries, and `n_entries` (n_docs,)
    are their numbers by document. The coins of an entry are a hash of its word, its
    count, and all entries of its document.
    """
    counts = np.minimum(data, 2.0**62).astype(np.int64)
    fraction = data % 1
    cell = _mix(words.astype(np.uint64) * np.uint64(2**32) + counts.astype(np.uint64))
    row = np.repeat(np.arange(len(n_entries)), n_entries)
    key = np.zeros(len(n_entries), np.uint64)
    np.add.at(key, row, cell)
    bits = _mix(_mix(key)[row] ^ cell)
    # up to 62 tokens of a word get one coin each; more are split evenly, with a coin
    # for an odd one
    coins = np.where(counts <= 62, counts, counts % 2)
    masked = bits & ((np.uint64(1) << coins.astype(np.uint64)) - np.uint64(1))
    observed = np.bitwise_count(masked).astype(np.int64) + (counts - coins) // 2
    coin = (bits >> np.uint64(63)).astype(data.dtype)  # for the fraction
    held_out = (counts - observed).astype(data.dtype) + (1 - coin) * fraction
    return observed.astype(data.dtype) + coin * fraction, held_out


def check_inputs(
    components: ArrayLike, X: Matrix
) -> tuple[np.ndarray, Iterable[sp.csr_array]]:
    """Return a table, and documents of its words: a matrix, or shards one by one."""
    components = check_table(components, "components")
    # the counts of shards were checked when they were written
    if are_shards(X):
        blocks = cast(Iterable[sp.csr_array], X)
    else:
        X = positive_entries(X, "a metric")
        blocks = [X]
    n_words = np.shape(X)[1]
    if n_words != components.shape[1]:
        raise ValueError(
            f"X has {n_words} words and components has {components.shape[1]}; "
            "vectorize X with the vocabulary that the model was trained on"
        )
    return components, blocks


def check_possible(components: np.ndarray) -> None:
    """Refuse a table under which a document could have probability 0."""
    has_all_words = components.any(axis=0).all()
    has_all_topics = components.any(axis=1).all()
    if not (components.min() >= 0 and has_all_words and has_all_topics):
        raise ValueError(
            "components must be non-negative, with no topic empty and no word "
            "impossible in all topics; add a small positive prior to every cell"
        )


def log_probabilities(
    X: sp.csr_array, theta: np.ndarray, phi: np.ndarray
) -> np.ndarray:
    """log(theta_d . phi_w) of each entry of `X`, double precision; phi (n_words, K)."""
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    step = max(1, BATCH // phi.shape[1])
    found = np.empty(X.nnz)
    for start in range(0, X.nnz, step):
        part = slice(start, start + step)
        p = np.einsum("ik,ik->i", theta[row[part]].astype(float), phi[X.indices[part]])
        # a probability below the smallest float is 0
        with np.errstate(divide="ignore"):
            found[part] = np.log(p)
    return found


def held_out_log_likelihood(
    components: np.ndarray,
    blocks: Iterable[sp.csr_array],
    doc_topic_prior: float,
    completion: bool = True,
    n_jobs: int | None = None,
) -> float:
    """Mean log-likelihood per token of documents; see `held_out_perplexity`."""
    check_possible(components)
    n_components = len(components)
    topics = components / components.sum(axis=1, keepdims=True)
    phi = np.ascontiguousarray(topics.T)
    padded = topic_word_probabilities(components)
    total = 0.0
    n_tokens = 0.0
    for counts in blocks:
        for rows in row_blocks(counts.indptr, BATCH, per_row=padded.shape[1]):
            observed = scored = counts[rows]
            if completion:
                observed, scored = split_documents(scored)
            theta = infer_topics(
                observed, padded, n_components, doc_topic_prior, n_jobs
            )
            total += float(scored.data @ log_probabilities(scored, theta, phi))
            n_tokens += float(scored.sum())
    if n_tokens == 0:
        raise ValueError(
            "X holds no words to score; pass documents with at least two words"
        )
    return total / n_tokens


def held_out_perplexity(
    components: ArrayLike,
    X: Matrix,
    *,
    doc_topic_prior: float = DOC_TOPIC_PRIOR,
    completion: bool = True,
    n_jobs: int | None = None,
) -> float:
    """Compute the perplexity of documents under a topic-word table; lower is better.

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        Pseudo-counts or probabilities of each topic's words, as in
        ``estimator.components_``.
    X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
        Word counts of documents that the table was not trained on.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topic weights, above 0.
    completion : bool, default=True
        True infers the weights from one half of each document's tokens and scores the
        other half ("document completion"). False uses all tokens for both, as the
        papers do [1]_, and gives a lower number.
    n_jobs : int or None, default=None
        Number of threads. It never changes the result.

    Returns
    -------
    perplexity : float
        exp(-log-likelihood / number of scored tokens).

    Raises
    ------
    ValueError
        If an argument is out of range, `X` has the wrong number of columns, or `X` has
        no words.

    See Also
    --------
    unigram_perplexity : Perplexity of word frequencies, as a reference.
    noisy_score : Score of private documents, with a guarantee.

    Notes
    -----
    **Privacy.** The perplexity of private documents is a release that no epsilon
    covers.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training With Differential Privacy", 2020, section VII.

    Examples
    --------
    >>> from dplda.metrics import held_out_perplexity
    >>> topics = [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]
    >>> round(held_out_perplexity(topics, [[30, 30, 0, 0]]), 1)
    2.0
    """
    components, blocks = check_inputs(components, X)
    check_number("doc_topic_prior", doc_topic_prior, 0, LARGEST, closed="right")
    return float(
        np.exp(
            -held_out_log_likelihood(
                components, blocks, doc_topic_prior, completion, n_jobs
            )
        )
    )


def unigram_perplexity(
    X_train: Matrix,
    X: Matrix,
    *,
    topic_word_prior: float = 0.01,
) -> float:
    """Compute the perplexity of a single topic, the word frequencies of `X_train`.

    Parameters
    ----------
    X_train : {array-like, sparse matrix} of shape (n_train_docs, n_words)
        Word counts of the documents that give the frequencies.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of the documents to score.
    topic_word_prior : float, default=0.01
        Pseudo-count of each word, at least 0.

    Returns
    -------
    perplexity : float
        `held_out_perplexity` of that topic. A useful model has a lower perplexity.

    Notes
    -----
    **Privacy.** The value is a release about `X_train` and `X` that no epsilon covers.

    Examples
    --------
    >>> from dplda.metrics import unigram_perplexity
    >>> round(unigram_perplexity([[5, 5, 5, 5]], [[4, 4, 4, 4]]), 1)
    4.0
    """
    check_number("topic_word_prior", topic_word_prior, 0, LARGEST)
    X_train = positive_entries(X_train, "a metric")
    counts = np.asarray(X_train.sum(axis=0), dtype=float).reshape(1, -1)
    return held_out_perplexity(counts + topic_word_prior, X)
