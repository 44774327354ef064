"""The variational bound on perplexity, as papers on variational Bayes report it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp, psi

from dplda.core._corpus import row_blocks
from dplda.core._fold_in import BATCH, LARGEST_PRIOR, pad
from dplda.core._variational import e_step
from dplda.leaf._checks import check_number
from dplda.metrics._perplexity import check_inputs

CHUNK = 1 << 18  # numbers at a time


def perplexity_bound(
    components: Any, X: Any, *, doc_topic_prior: float = 0.1, n_jobs: int | None = None
) -> float:
    """Compute the variational upper bound on the perplexity of documents; lower is better.

    The metric of [1]_ and [2]_ is ``exp(-sum of the documents' evidence bounds / tokens)``. The
    evidence bound of a document is the expectation of log p(words, topics, weights) - log q(topics,
    weights) under the distribution q that the E-step finds, given Dirichlet posteriors of the
    topics.

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        Positive Dirichlet parameters of each topic's words (lambda). They are not probabilities:
        their size is the certainty of the topics.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of documents that the table was not trained on.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topic weights, above 0.
    n_jobs : int or None, default=None
        Number of threads. It never changes the result.

    Returns
    -------
    bound : float
        The bound. It is not comparable with `held_out_perplexity`.

    Raises
    ------
    TypeError
        If `doc_topic_prior` is not a number.
    ValueError
        If an argument is out of range, `X` has the wrong number of columns, or `X` has no words.

    See Also
    --------
    held_out_perplexity : Computes the perplexity by document completion.

    Notes
    -----
    **Privacy.** The value for private documents is a release about them that no epsilon covers.

    References
    ----------
    .. [1] M. Park, J. Foulds, K. Chaudhuri, M. Welling, "Private Topic Modeling", 2016, section 4.
    .. [2] M. Hoffman, D. Blei, F. Bach, "Online learning for latent Dirichlet allocation", 2010.

    Examples
    --------
    >>> from dplda.metrics import perplexity_bound
    >>> topics = [[90, 80, 1, 1], [1, 1, 90, 80]]
    >>> bool(perplexity_bound(topics, [[3, 2, 0, 0]]) < 4)
    True
    """
    components, X = check_inputs(components, X)
    if not components.min() > 0:
        raise ValueError("components must be above 0 in every cell; add a small positive prior")
    check_number("doc_topic_prior", doc_topic_prior, 0, LARGEST_PRIOR, closed="right")
    doc_topic_prior = max(float(doc_topic_prior), np.finfo(float).tiny)  # psi of less is infinite
    n_tokens = float(X.sum())
    if n_tokens == 0:
        raise ValueError("X holds no words to score; pass documents with at least one word")
    n_components = len(components)
    expected_log = psi(components) - psi(components.sum(axis=1, keepdims=True))
    exp_topic_word = pad(np.exp(expected_log).T, np.float64)
    log_topic_word = np.ascontiguousarray(expected_log.T)
    bound = 0.0
    for rows in row_blocks(X.indptr, BATCH, per_row=exp_topic_word.shape[1]):
        documents = sp.csr_array(X[rows], dtype=np.float64)
        gamma, _ = e_step(
            documents,
            exp_topic_word,
            n_components=n_components,
            doc_topic_prior=doc_topic_prior,
            n_jobs=n_jobs,
        )
        gamma = gamma[:, :n_components]
        bound += _words(documents, gamma, log_topic_word) + _weights(gamma, doc_topic_prior)
    with np.errstate(over="ignore"):  # infinite, if next to no words are scored
        return float(np.exp(-bound / n_tokens))


def _words(X: sp.csr_array, gamma: np.ndarray, log_topic_word: np.ndarray) -> float:
    """E[log p(words, topics) - log q(topics)] with the best q(topics), over all documents."""
    # Logarithms, because the probability of a word that hardly occurs in any topic underflows.
    log_doc_topic = psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    step = max(1, CHUNK // gamma.shape[1])
    total = 0.0
    for start in range(0, X.nnz, step):
        part = slice(start, start + step)
        terms = log_doc_topic[row[part]] + log_topic_word[X.indices[part]]
        total += float(X.data[part] @ logsumexp(terms, axis=1))
    return total


def _weights(gamma: np.ndarray, prior: float) -> float:
    """E[log p(weights) - log q(weights)], over all documents."""
    n_docs, n_components = gamma.shape
    size = gamma.sum(axis=1)
    expected_log = psi(gamma) - psi(size)[:, None]
    total = ((prior - gamma) * expected_log + gammaln(gamma)).sum() - gammaln(size).sum()
    return float(total + n_docs * (gammaln(n_components * prior) - n_components * gammaln(prior)))
