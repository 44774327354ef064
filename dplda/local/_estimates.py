"""Estimates from reports: counts of words, documents that have them, evidence.

Equations and theorems are those of Zhao et al. (IEEE TIFS 2020), whose f is twice
`flip`, the probability that a bit is reported wrongly. Counts and estimates have shape
(n_words,). All is public.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dplda.privacy._streams import Reader, uniform_integers

# Lengths, in mean lengths, at which the weighted sum of bits ignores the length.
LENGTHS = (0.5, 1.0, 2.0)


def count_reported(reports: sp.csr_array) -> np.ndarray:
    """Number of rows with each word."""
    return np.bincount(reports.indices, minlength=reports.shape[1])


def estimate_counts(n_reported: np.ndarray, n_docs: int, flip: float) -> np.ndarray:
    """Number of documents with each word, from the number of reports (equation 8).

    ``(n_reported - n_docs * flip) / (1 - 2 * flip)`` is unbiased; it is clipped to [0,
    n_docs].
    """
    return np.clip((n_reported - n_docs * flip) / (1.0 - flip - flip), 0.0, n_docs)


def weight_of_prior(n_docs: int, flip: float, prior_variance: float) -> float:
    """Omega of Theorem 6: variance of the estimate over its sum with `prior_variance`.

    The variance is that of the unclipped estimate, for any given documents.
    """
    variance = n_docs * flip * (1.0 - flip) / (1.0 - flip - flip) ** 2
    return variance / (variance + prior_variance)


def false_ones(
    n_reported: np.ndarray, counts: np.ndarray, n_docs: int, flip: float
) -> np.ndarray:
    """Reported ones of each word, per document, that `counts` do not explain.

    If `counts` are the unbiased estimate without clipping, the result is the
    expectation ``flip * (1 - counts / n_docs)``.
    """
    return np.maximum(n_reported - (1.0 - flip) * counts, 0.0) / n_docs


def set_and_clear(
    reports: sp.csr_array, counts: np.ndarray, reader: Reader
) -> sp.csr_array:
    """Set or clear random bits until each word is in `counts` documents.

    Steps 3 to 5 of the paper's section V-B. Every choice of documents is equally
    likely, up to ``n_docs * 2**-32``. Time and memory are proportional to the number of
    ones before and after. `counts` (n_words,) are rounded to whole numbers from 0 to
    n_docs.
    """
    n_docs, n_words = reports.shape
    word = reports.indices.astype(np.int64)
    doc = np.repeat(np.arange(n_docs), np.diff(reports.indptr))
    n_ones = np.bincount(word, minlength=n_words)
    target = np.rint(counts).astype(np.int64)

    # clear bits: each word stays in the documents with the smallest random keys
    keys = reader.words(len(word))
    order = np.lexsort((keys, word))
    first_of_word = np.cumsum(n_ones) - n_ones
    rank = np.arange(len(word)) - np.repeat(first_of_word, n_ones)
    stays = order[rank < target[word[order]]]
    ones = word[stays] * n_docs + doc[stays]

    # set bits: draw documents until enough new ones are found. For a word that most
    # documents get, this would take many draws; keys choose its documents instead.
    ones.sort()
    missing = np.maximum(target - n_ones, 0)
    crowded = np.flatnonzero((missing > 0) & (2 * target > n_docs)).tolist()
    random_cells = [_free_cells(ones, w, n_docs, missing[w], reader) for w in crowded]
    ones = np.sort(np.concatenate([ones, *random_cells]))
    missing[crowded] = 0
    while missing.any():
        rows = uniform_integers(reader.words(int(missing.sum())), n_docs)
        words = np.repeat(np.arange(n_words), missing)
        cells = np.unique(words * n_docs + rows)
        cells = np.setdiff1d(cells, ones, assume_unique=True)
        missing -= np.bincount(cells // n_docs, minlength=n_words)
        ones = np.union1d(ones, cells)
    word, doc = np.divmod(ones, n_docs)
    documents = sp.csr_array((np.ones(len(ones)), (doc, word)), shape=reports.shape)
    documents.sort_indices()
    return documents


def _free_cells(
    ones: np.ndarray, word: int, n_docs: int, n: int, reader: Reader
) -> np.ndarray:
    """`n` random cells of a word that are not among the sorted `ones`."""
    cells = np.arange(word * n_docs, (word + 1) * n_docs)
    first, last = np.searchsorted(ones, (cells[0], cells[-1] + 1))
    free = np.setdiff1d(cells, ones[first:last], assume_unique=True)
    return free[np.argsort(reader.words(len(free)), kind="stable")[:n]]


def pairs_of_words(reports: sp.csr_array, words: np.ndarray, flip: float) -> np.ndarray:
    """The share of each report in the covariance of top words, (n_docs, K).

    `words` (K, m) are the top words of each topic. A report adds the sum of g_v g_w x_v
    x_w over pairs of different words, where x is a bit minus its frequency. The unit is
    the variance of the sum of g_v x_v for independent bits. The expectation is zero if
    the words occur independently.

    The weights g are 1 for the top words, minus a function of word frequencies that
    cancels the effect of lengths: long documents have more of all words. The
    expectation of a bit is p(l) = 1 - exp(-l t) in a document of l mean lengths, and
    the weighted sum of its derivatives is zero at each l of `LENGTHS`.
    """
    n_docs, n_words = reports.shape
    n_topics, n_top = words.shape
    share = count_reported(reports) / n_docs
    p = np.minimum(estimate_counts(n_docs * share, n_docs, flip) / n_docs, 1 - 1e-9)
    rate = -np.log1p(-p)
    growth = np.array([rate * np.exp(-length * rate) for length in LENGTHS])
    smooth = np.array([p**power for power in range(len(LENGTHS))])
    topics = np.repeat(np.arange(n_topics), n_top)
    weight = np.zeros((n_words, n_topics))
    weight[words.ravel(), topics] = 1
    weight -= smooth.T @ np.linalg.lstsq(growth @ smooth.T, growth @ weight)[0]

    sums = reports @ weight - share @ weight
    squares = weight**2
    own = reports @ (squares * (1 - 2 * share)[:, None]) + share**2 @ squares
    unit = (share * (1 - share)) @ squares
    return (sums**2 - own) / np.maximum(unit, 1e-9)
