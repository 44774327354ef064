"""Slow plain twins of the kernels, and the exact laws that the samplers must have.

Twins of exact kernels use Python's integers. Those of contributions add and multiply in the
kernels' type and order, and agree to the last bit.
"""

from itertools import pairwise, product
from math import lgamma

import numpy as np
from scipy import stats
from scipy.special import psi

F = np.float32
LANES = 8


N_WORDS, LAST = 11, 2**64 - 1
DOCUMENTS = {
    "several": [[0, 3, 3, 10], [], [5], [], [], [1, 2, 1, 1, 9, 0, 4, 4], [10] * 12, []],
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
        cells, doc_topic = np.zeros((n_words, n_components)), np.zeros((len(doc_ptr), n_components))
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


def half_integers(half):
    """Rows of a table of halves as integers, in units of the smallest step; 0 on the padding."""
    return [
        [(1024 + h % 1024) << (h // 1024 - 1) if h else 0 for h in row] for row in half.tolist()
    ]


def document_weights(count, n_tokens, alpha):
    """The integer c[k] of each topic, n U + A, from its count in the document."""
    unit = 1
    while n_tokens + alpha < 2**24 / (2 * unit):
        unit *= 2
    base = max(1, round(alpha * unit))
    return [int(F(n * unit + base)) for n in count]


def draw_topic(weight, bits, refinement):
    """Inversion in the kernel's order of the topics: by remainder modulo 16, then upwards."""
    target = ((int(bits) << 64) + int(refinement)) * sum(weight) >> 128
    for k in sorted(range(len(weight)), key=lambda k: (k % 16, k)):
        target -= weight[k]
        if target < 0:
            return k
    raise AssertionError("a draw below the sum of the weights selects a topic")


def frozen_sweep(word, doc_ptr, topics, half, alpha, bits, refinement):
    """Topics after a sweep; arguments untouched."""
    topics, values = topics.copy(), half_integers(half)
    for begin, end in pairwise(doc_ptr):
        count = np.bincount([z for z in topics[begin:end] if z >= 0], minlength=half.shape[1])
        for i in range(begin, end):
            if topics[i] >= 0:
                count[topics[i]] -= 1
            c = document_weights(count.tolist(), int(end - begin), alpha)
            weight = [t * ck for t, ck in zip(values[word[i]], c)]
            topics[i] = draw_topic(weight, bits[i], refinement[i])
            count[topics[i]] += 1
    return topics


def chi_square(observed, law, *, least=10.0):
    """p-value of observed cell counts under a law; cells of small expectation are pooled."""
    observed, expected = np.ravel(observed), np.ravel(law) * np.sum(observed)
    rare = expected < least
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < least:
        assert observed[-1] < 10 * least
        observed, expected = observed[:-1], expected[:-1]
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1)


# ---------------------------------------------------------------- fold-in


WIDTH = 16  # topics that the kernels of documents take at a time


def total_of(lanes):
    """Halves are added until one number is left."""
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def lane_sums(a, width=WIDTH):
    lanes = np.zeros(width, F)
    for k in range(0, len(a), width):
        lanes = lanes + a[k : k + width]
    return lanes


def dot(a, b, width=WIDTH):
    return total_of(lane_sums(a * b, width))


def unpack(pairs, padded):
    """The table that pairs stand for: topics k and k + 16 share a float (kernels/_fold_in.h)."""
    first = pairs.view(np.uint32).reshape(len(pairs), -1, 1, 16)
    both = np.concatenate([first, first << 16], axis=2).reshape(len(pairs), -1)
    return np.ascontiguousarray(both[:, :padded]).view(F)


def fold_in(X, rows, phi, prior, n_components, n_steps, theta, *, variational=False, own=None):
    """Topic weights after `n_steps` of the formulas, in double precision; X is CSR.

    With `own`, 1 / topic sizes and the smallest count, documents whose weights differ leave out
    what they have added to the table.
    """
    theta = theta.astype(float)
    for d in rows:
        span, topics = slice(X.indptr[d], X.indptr[d + 1]), slice(n_components)
        counts, table, weights = X.data[span], phi[X.indices[span], topics], theta[d, topics]
        if own is not None and np.ptp(weights) > 0:
            added = (counts / (table @ weights))[:, None] * table * weights * own[0][topics]
            table = np.maximum(table - added, own[1] * own[0][topics])
        total = counts.sum(dtype=float) + n_components * prior
        for _ in range(n_steps if len(counts) else 0):
            factor = np.exp(psi(weights * total) - psi(total)) if variational else weights
            weights = (counts / (table @ factor)) @ table * factor + prior
            weights = weights / weights.sum()
        theta[d, topics] = np.exp(psi(weights * total) - psi(total)) if variational else weights
    return theta


def contribution(words, counts, factor, center, word_weight, theta, width):
    """Float cells (n, padded) of a document's contribution."""
    cells = []
    for w, count in zip(words, counts):
        scale = word_weight[w] * count
        share = dot(theta, factor[w], width)
        share = scale / share if share > 0 else F(0)
        cells.append(theta * factor[w] * share - scale * center[w])
    return np.array(cells)


def cells_of_words(words, factor, center, theta):
    """What a document of one unit contributes to its words, over weight and count."""
    shares = [dot(theta, factor[w]) for w in words]
    shares = [F(1) / share if share > 0 else F(0) for share in shares]
    return np.array([theta * factor[w] * a - center[w] for w, a in zip(words, shares)])


def document_contribution(X, d, theta, factor, center, word_weight):
    """What `unit_contribution` returns, of a document that is a unit.

    Its squares are added in one sum for each piece of the words.
    """
    span = slice(X.indptr[d], X.indptr[d + 1])
    words = X.indices[span].tolist()
    cells = cells_of_words(words, factor, center, theta[d])
    s = word_weight[words] * X.data[span]
    squares = np.zeros(16)
    for w, cell, of_word in sorted(zip(words, cells, s.astype(float)), key=lambda each: each[0]):
        squares[w % 16] += of_word * of_word * (float(dot(cell, cell)) + len(cell) * 2.0**-126)
    return words, cells, s, sum(squares.tolist())


def unit_contribution(X, documents, theta, factor, center, word_weight):
    """Words of a unit, float cells of its contribution, their factors, and the squared norm."""
    added = {}  # word: cells
    for d in documents:
        span = slice(X.indptr[d], X.indptr[d + 1])
        words = X.indices[span].tolist()
        cells = contribution(words, X.data[span], factor, center, word_weight, theta[d], LANES)
        for w, cell in zip(words, cells):
            added[w] = added[w] + cell if w in added else cell
    square = sum(float(dot(cell, cell, LANES)) for cell in added.values())
    return list(added), np.array(list(added.values())), np.ones(len(added), F), square


def round_to_grid(cells, scale):
    """Integers toward zero, and their exact sum of squares."""
    integers = [int(x) for x in (cells * scale[:, None]).flat]
    return np.array(integers).reshape(cells.shape), sum(i**2 for i in integers)


def add_contributions(
    X, units, theta, factor, center, word_weight, unit_scale, norm, radius, unit_ptr=None,
    *, alone=False,
):  # fmt: skip
    """Sum of the units' integer contributions, (n_words, padded)."""
    total = np.zeros(factor.shape, np.int64)
    ptr = range(X.shape[0] + 1) if unit_ptr is None else unit_ptr
    for u in units:
        documents = range(ptr[u], ptr[u + 1])
        tables = theta, factor, center, word_weight
        words, cells, factors, square = (
            document_contribution(X, u, *tables) if alone
            else unit_contribution(X, documents, *tables)
        )  # fmt: skip
        length, relative = square**0.5, float(unit_scale[u]) / norm
        if not 1e-15 < length < np.inf:
            continue
        scale = F(radius * (relative if relative * length < 1 else 1 / length))
        integers, square = round_to_grid(cells, factors * scale)
        if square > radius**2:
            integers, square = round_to_grid(cells, factors * (scale * F(1 - 2.0**-16)))
        if square <= radius**2:
            np.add.at(total, words, integers)
    return total
