"""Documents for the kernels, the formulas they follow, and the samplers' exact laws.

The twins of the kernels, which agree to the last bit, are in ``twins.py``.
"""

from itertools import product
from math import lgamma

import numpy as np
from scipy import stats
from scipy.special import psi

N_WORDS, LAST = 11, 2**64 - 1
DOCUMENTS = {
    "several": [
        [0, 3, 3, 10],
        [],
        [5],
        [],
        [],
        [1, 2, 1, 1, 9, 0, 4, 4],
        [10] * 12,
        [],
    ],
    "one token": [[7]],
    "only empty ones": [[], []],
    "none": [],
}


def random_words(n, seed=0):
    """Words of which every fourth is the smallest or the largest there is."""
    words = np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)
    words[::8], words[4::8] = 0, LAST
    return words


def corpus_of(documents):
    """Tokens, and where documents begin, from lists of words."""
    word = np.array([w for document in documents for w in document], np.int32)
    return word, np.cumsum([0, *map(len, documents)]).astype(np.int64)


def padded(n_components):
    return -(-n_components // 16) * 16


# ---------------------------------------------------------------- Gibbs sampling


def collapsed_posterior(documents, n_words, n_components, alpha, beta):
    """Every assignment of topics to the tokens, and its posterior probability."""
    word, doc_ptr = corpus_of(documents)
    doc = np.repeat(np.arange(len(documents)), np.diff(doc_ptr))
    states = list(product(range(n_components), repeat=len(word)))

    def log_joint(state):
        cells, doc_topic = (
            np.zeros((n_words, n_components)),
            np.zeros((len(doc_ptr), n_components)),
        )
        np.add.at(cells, (word, state), 1)
        np.add.at(doc_topic, (doc, state), 1)
        sizes = cells.sum(axis=0) + n_words * beta
        return (
            sum(map(lgamma, (doc_topic + alpha).flat))
            + sum(map(lgamma, (cells + beta).flat))
            - sum(map(lgamma, sizes))
        )

    law = np.exp([log_joint(state) for state in states])
    return states, law / law.sum()


def chi_square(observed, law, *, least=10.0):
    """p-value of observed cell counts under a law; rare cells are pooled."""
    observed, expected = np.ravel(observed), np.ravel(law) * np.sum(observed)
    rare = expected < least
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < least:
        assert observed[-1] < 10 * least
        observed, expected = observed[:-1], expected[:-1]
    return stats.chi2.sf(
        ((observed - expected) ** 2 / expected).sum(), len(expected) - 1
    )


# ---------------------------------------------------------------- fold-in


def fold_in(
    X, rows, phi, prior, n_components, n_steps, theta, *, variational=False, own=None
):
    """Topic weights after `n_steps` of plain formulas, in double precision; X: CSR.

    Not accelerated. With `own`, 1 / topic sizes and the smallest count, documents whose
    weights differ leave out what they have added to the table.
    """
    theta = theta.astype(float)
    topics = slice(n_components)
    for d in rows:
        span = slice(X.indptr[d], X.indptr[d + 1])
        counts, table = X.data[span], phi[X.indices[span], topics]
        weights = theta[d, topics]
        if own is not None and np.ptp(weights) > 0:
            inverse_size, least = own[0][topics], own[1]
            quotients = counts / (table @ weights)
            added = quotients[:, None] * table * weights * inverse_size
            table = np.maximum(table - added, least * inverse_size)
        total = counts.sum(dtype=float) + n_components * prior

        def factor_of(weights, total=total):
            if variational:
                return np.exp(psi(weights * total) - psi(total))
            return weights

        for _ in range(n_steps if len(counts) else 0):
            factor = factor_of(weights)
            weights = (counts / (table @ factor)) @ table * factor + prior
            weights = weights / weights.sum()
        theta[d, topics] = factor_of(weights)
    return theta
