"""Estimates from reports: counts of words, documents that have them, evidence.

Equations and theorems are those of Zhao et al. (IEEE TIFS 2020), whose f is twice
`flip`, the probability that a bit is reported wrongly. Counts and estimates have shape
(n_words,). All is public.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

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


def pairs_of_words(reports: sp.csr_array, words: np.ndarray, flip: float) -> np.ndarray:
    """What each report adds to the covariance of top words, (n_docs, K).

    `words` (K, m) are the top words of each topic. A report adds the sum of x_v x_w
    over pairs of different words, where x is a bit less its frequency. The unit is the
    sum of the variances of x. The expectation is zero if the words fall independently.

    Long documents have more of all words. The bit of a word of probability p grows with
    the length in proportion to c = -(1 - p) log(1 - p). So the sum runs over all words:
    a top word has the weight 1 - a, any other -a. With the `a` for which the weighted
    sum of c_v c_w over pairs is zero, lengths add nothing.
    """
    n_docs, n_words = reports.shape
    n_topics, n_top = words.shape
    share = count_reported(reports) / n_docs
    p = np.minimum(estimate_counts(n_docs * share, n_docs, flip) / n_docs, 1 - 1e-9)
    growth = -(1 - p) * np.log1p(-p)
    own = growth**2
    # c_v c_w over pairs of top words, of one of them and any word, and of any two
    of_two = growth[words].sum(axis=1) ** 2 - own[words].sum(axis=1)
    of_one = growth[words].sum(axis=1) * growth.sum() - own[words].sum(axis=1)
    of_any = max(growth.sum() ** 2 - own.sum(), 1e-300)
    # the smaller root of a^2 of_any - 2 a of_one + of_two; one form of signature (1, -)
    # has them all, so that the roots are real
    a = (of_one - np.sqrt(np.maximum(of_one**2 - of_any * of_two, 0))) / of_any

    topics = np.repeat(np.arange(n_topics), n_top)
    cells = (np.ones(words.size), (words.ravel(), topics))
    member = sp.csr_array(cells, shape=(n_words, n_topics))
    everything = sp.csr_array(np.ones((n_words, 1)))

    def sums(of: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
        """Sums of x and of its squares over words."""
        squares = of * (1 - 2 * share)[:, None]
        return (
            (reports @ of).toarray() - share @ of,
            (reports @ squares).toarray() + share**2 @ of,
        )

    of_top, squares_of_top = sums(member)
    of_all, squares_of_all = sums(everything)
    pairs = (of_top - a * of_all) ** 2
    pairs -= (1 - 2 * a) * squares_of_top + a**2 * squares_of_all
    variance = share * (1 - share)
    unit = (1 - 2 * a) * (variance @ member) + a**2 * variance.sum()
    return pairs / np.maximum(
        unit, 1e-9
    )  # words that all reports have or lack add nothing
