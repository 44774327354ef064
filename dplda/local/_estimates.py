"""Estimates from reports: counts of words, documents that have them, evidence.

Equations and theorems are those of Zhao et al. (IEEE TIFS 2020), whose f is twice
`flip`, the probability that a bit is reported wrongly. Counts and estimates have shape
(n_words,). All is public.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from dplda.privacy._streams import Reader, uniform_integers


def count_reported(reports: sp.csr_array) -> np.ndarray:
    """Number of rows with each word."""
    return np.bincount(reports.indices, minlength=reports.shape[1])


def estimate_counts(n_reported: np.ndarray, n_docs: int, flip: float) -> np.ndarray:
    """Number of documents with each word, by the number of its reports (equation 8).

    ``(n_reported - n_docs * flip) / (1 - 2 * flip)`` is unbiased; it is clipped to [0,
    n_docs].
    """
    return np.clip((n_reported - n_docs * flip) / (1.0 - flip - flip), 0.0, n_docs)


def weight_of_prior(n_docs: int, flip: float, prior_variance: float) -> float:
    """Omega of Theorem 6: variance of the estimate over its sum with `prior_variance`.

    It is the variance of the unclipped estimate, for any given documents.
    """
    variance = n_docs * flip * (1.0 - flip) / (1.0 - flip - flip) ** 2
    return variance / (variance + prior_variance)


def false_ones(
    n_reported: np.ndarray, counts: np.ndarray, n_docs: int, flip: float
) -> np.ndarray:
    """Number of reported ones of each word, per document, that `counts` do not explain.

    If `counts` are the unbiased estimate without clipping, the result is the
    expectation ``flip * (1 - counts / n_docs)``.
    """
    return np.maximum(n_reported - (1.0 - flip) * counts, 0.0) / n_docs


def set_and_clear(
    reports: sp.csr_array, counts: np.ndarray, reader: Reader
) -> sp.csr_array:
    """Set or clear random bits until each word is in as many documents as `counts`.

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

    # clear: each word stays in the documents with the smallest random keys
    keys = reader.words(len(word))
    order = np.lexsort((keys, word))
    first_of_word = np.cumsum(n_ones) - n_ones
    rank = np.arange(len(word)) - np.repeat(first_of_word, n_ones)
    stays = order[rank < target[word[order]]]
    ones = word[stays] * n_docs + doc[stays]

    # set: documents are drawn until enough new ones are found. A word that most
    # documents get would need many draws; keys choose its documents instead.
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


def common_words(reports: sp.csr_array, words: np.ndarray) -> np.ndarray:
    """How much oftener words share reports than by chance, in standard errors, (K,).

    `words` (K, m) are the top words of each topic. Let s be how many of them a report
    has. Where bits are independent, s has a known law, given the frequencies of the
    bits. With f = (s - E[s])^2, the mean of f over n reports is compared with E[f]: it
    is as far away with probability at most exp(-n I), where I is the exponent of
    Chernoff's bound. The result is the number z, of the sign of the difference, for
    which exp(-z^2 / 2) is this bound.

    Long documents have more of all words. With c_w, the covariance of a bit with the
    sum of all other bits of the report, one such factor explains the covariance c_v c_w
    / sum(c) of two words. It is taken out of the mean where sum(c) is above its noise.
    """
    n_docs, n_words = reports.shape
    n_topics, n_top = words.shape
    share = count_reported(reports) / n_docs
    factor = _factor_of_length(reports, share)

    law = np.zeros((n_topics, n_top + 1))  # of s
    law[:, 0] = 1
    for own in share[words].T:  # one word after another
        p = own[:, None]
        law = law * (1 - p) + np.roll(law, 1, axis=1) * p
    mean = share[words].sum(axis=1)
    f = np.square(np.arange(n_top + 1) - mean[:, None])

    topics = np.repeat(np.arange(n_topics), n_top)
    cells = (np.ones(words.size), (words.ravel(), topics))
    member = sp.csr_array(cells, shape=(n_words, n_topics))
    n_shared = (reports @ member).toarray()
    found = np.square(n_shared - mean).mean(axis=0)
    explained = factor[words]
    found -= explained.sum(axis=1) ** 2 - np.square(explained).sum(axis=1)

    # The exponent is largest where the tilted law has the mean that was found.
    low = np.full((n_topics, 1), -50.0)
    high = np.full((n_topics, 1), 50.0)
    for _ in range(60):
        tilt = (low + high) / 2
        exponent = tilt * f
        tilted = law * np.exp(exponent - exponent.max(axis=1, keepdims=True))
        above = (tilted * f).sum(axis=1) > found * tilted.sum(axis=1)
        low = np.where(above[:, None], low, tilt)
        high = np.where(above[:, None], tilt, high)
    growth = logsumexp(tilt * f, b=law, axis=1)
    bound = n_docs * np.maximum(tilt[:, 0] * found - growth, 0)
    return np.sign(found - (law * f).sum(axis=1)) * np.sqrt(2 * bound)


def _factor_of_length(reports: sp.csr_array, share: np.ndarray) -> np.ndarray:
    """c_w / sqrt(sum(c)) of `common_words`, (n_words,); zeros if it is within noise."""
    n_docs = reports.shape[0]
    own = share * (1 - share)
    total = np.diff(reports.indptr) - share.sum()
    factor = reports.T @ total / n_docs - own
    noise = own.sum() * np.sqrt(2 / n_docs)
    if not factor.sum() > 3 * noise:
        return np.zeros(len(share))
    return factor * np.sqrt(1 / factor.sum())
