"""Slow plain twins of the kernels, and the exact laws that the samplers must have.

Twins of exact kernels use Python's integers. Those of contributions add and multiply in
the kernels' type and order, and agree to the last bit.
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


def half_integers(half):
    """Rows of a table of halves as integers, in smallest steps; 0 on the padding."""
    return [
        [(1024 + h % 1024) << (h // 1024 - 1) if h else 0 for h in row]
        for row in half.tolist()
    ]


def document_weights(count, n_tokens, alpha):
    """The integer c[k] of each topic, n U + A, from its count in the document."""
    unit = 1
    while n_tokens + alpha < 2**24 / (2 * unit):
        unit *= 2
    base = max(1, round(alpha * unit))
    return [int(F(n * unit + base)) for n in count]


def draw_topic(weight, bits, refinement):
    """Inversion in the kernel's topic order: by remainder modulo 16, then upwards."""
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
        count = np.bincount(
            [z for z in topics[begin:end] if z >= 0], minlength=half.shape[1]
        )
        for i in range(begin, end):
            if topics[i] >= 0:
                count[topics[i]] -= 1
            c = document_weights(count.tolist(), int(end - begin), alpha)
            weight = [t * ck for t, ck in zip(values[word[i]], c)]
            topics[i] = draw_topic(weight, bits[i], refinement[i])
            count[topics[i]] += 1
    return topics


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


def fold_in(
    X, rows, phi, prior, n_components, n_steps, theta, *, variational=False, own=None
):
    """Topic weights after `n_steps` of plain formulas, in double precision; X: CSR.

    Not accelerated.

    With `own`, 1 / topic sizes and the smallest count, documents whose weights differ
    leave out what they have added to the table.
    """
    theta = theta.astype(float)
    for d in rows:
        span, topics = slice(X.indptr[d], X.indptr[d + 1]), slice(n_components)
        counts, table, weights = (
            X.data[span],
            phi[X.indices[span], topics],
            theta[d, topics],
        )
        if own is not None and np.ptp(weights) > 0:
            added = (
                (counts / (table @ weights))[:, None] * table * weights * own[0][topics]
            )
            table = np.maximum(table - added, own[1] * own[0][topics])
        total = counts.sum(dtype=float) + n_components * prior
        for _ in range(n_steps if len(counts) else 0):
            factor = (
                np.exp(psi(weights * total) - psi(total)) if variational else weights
            )
            weights = (counts / (table @ factor)) @ table * factor + prior
            weights = weights / weights.sum()
        theta[d, topics] = (
            np.exp(psi(weights * total) - psi(total)) if variational else weights
        )
    return theta


def steps_in_integers(
    X, rows, phi, prior, n_components, n_steps, theta, *, own=None, in_rows=False
):
    """The same in the kernel's integers and floats: to the last bit, for two steps.

    That is, for up to two steps.
    """
    theta, group = theta.copy(), 16 if in_rows else 256
    table = narrow(phi, size=255)[:, : theta.shape[1]]
    for d in rows:
        span = slice(X.indptr[d], X.indptr[d + 1])
        words, counts, weights = X.indices[span], X.data[span], theta[d]
        integers = table[words]
        if own is not None and np.ptp(weights[:n_components]) > 0:
            inverse, least = own[0], F(own[1])
            sums = np.array([total_of(lane_sums(weights * phi[w])) for w in words])
            added = counts / np.maximum(sums, F(1e-25))
            left = phi[words] * (F(1) - added[:, None] * (weights * inverse))
            left = np.maximum(left, least * inverse)
            integers = narrow(left, size=255)[:, : theta.shape[1]]
        for _ in range(n_steps if len(counts) else 0):
            new = np.zeros_like(weights)
            for j in range(0, len(counts), group):
                part = slice(j, j + group)
                new = new + group_in_integers(
                    integers[part], counts[part], weights, in_rows
                )
            new = new * weights
            new[:n_components] += F(prior)
            weights = new * (F(1) / total_of(lane_sums(new)))
        theta[d] = weights
    return theta


def shares_of(integers, weights):
    """The probabilities of words in a document, times a scale; the scale."""
    largest, scale = weights.max(), F(2**19 - len(weights))
    scale = F(32767) / largest if largest * scale > 32767 else scale
    shares = integers @ np.floor(weights * scale + F(0.5)).astype(np.int64)
    assert shares.max(initial=0) < 2**31
    return np.maximum(shares.astype(F), scale / F(16)), scale


def group_in_integers(integers, counts, weights, in_rows):
    """Sums of up to 256 words, or 16: counts over shares (15 bits), times integers."""
    shares, scale = shares_of(integers, weights)
    quotients = counts * scale / shares
    most = quotients.max()
    quotients = np.floor(quotients * (F(32767) / most) + F(0.5)).astype(np.int64)
    products = quotients[:, None] * integers
    if in_rows:
        return products.sum(axis=0).astype(F) * (most / F(32767))
    lanes = np.array([products[lane::16].sum(axis=0) for lane in range(16)])
    assert lanes.max() < 2**31
    return total_of(lanes.astype(F)) * (most / F(32767))


# ---------------------------------------------------------------- contributions


def widths(n_topics):
    """The chunks that rows of `n_topics`, a multiple of 32, are cut into."""
    while n_topics:
        width = next(w for w in (256, 128, 64, 32) if w <= n_topics)
        yield width
        n_topics -= width


def in_chunks(rows):
    """Rows of integers in the kernels' order: one chunk of topics after the other."""
    ends = np.cumsum(list(widths(rows.shape[1])))[:-1]
    chunks = [chunk.ravel() for chunk in np.split(rows, ends, axis=1)]
    return np.concatenate(chunks).astype(np.int16).reshape(rows.shape)


def narrow(table, *, size=32767):
    """Rows of integers from 0 to 32767, padded to a multiple of 32 topics."""
    rows = np.zeros((len(table), -(-table.shape[1] // 32) * 32), np.int64)
    for row, x in zip(rows, table):
        largest = np.maximum(x, 0).max() if np.isfinite(x).all() else F(0)
        factor = F(0) if size else F(32767)
        if size and largest >= 2.0**-100:
            factor = F(size) / largest
        with np.errstate(all="ignore"):
            x = np.nan_to_num(x * factor, nan=0, posinf=32767, neginf=0)
        row[: len(x)] = np.floor(np.minimum(np.maximum(x, F(0)), F(32767)) + F(0.5))
    return rows


def product16(a, b):
    return (a * b + 2**14) >> 15


def sums_of_entry(theta, factor, center):
    """The exact sum of products, and both sums of a squared length, chunk by chunk."""
    total, squares, products, k = 0, F(0), F(0), 0
    for width in widths(len(theta)):
        p, c = product16(theta, factor)[k : k + width], center[k : k + width]
        if c.sum() <= 49152:
            eighth = product16(p, 4096)
            lanes = (eighth**2).reshape(-1, 16, 2).sum(axis=(0, 2)) >> 4
            total += int(p.sum())
            squares, products = (
                squares + F(lanes.sum()),
                products + F((eighth * c).sum()),
            )
        k += width
    return total, squares, products


def square_of_entry(sums, size, center):
    """The squared length of an entry of `size` weighted counts, a float."""
    total, squares, products = sums
    inverse = F(1) / np.maximum(F(total), F(1))
    r = squares * F(1024) * inverse * inverse
    of_center, k = F(0), 0
    for width in widths(len(center)):
        c = center[k : k + width].astype(F).reshape(-1, 2, 16)
        lanes = np.zeros(16, F)
        for first, last in c:
            lanes = lanes + (first * first + last * last)
        of_center, k = of_center + total_of(lanes), k + width
    cells = np.maximum(
        r - products * F(2.0**-11) * inverse + of_center * F(2.0**-30), F(0)
    )
    return size * size * (cells if total > 0 else F(0))


def integers_of_entry(theta, factor, center, total, u):
    """The integers that an entry adds to its row, before the shift."""
    cells = np.zeros(len(theta), object)
    if total <= 0 or not 0 <= u < 2**26:
        return cells
    a = u * F(32768) / F(total)
    e = min(max(134 - (int(a.view(np.int32)) >> 23), 0), 10)
    A, U = int(a * F(2**e) + F(0.5)), int(u + F(0.5))
    k = 0
    for width in widths(len(theta)):
        p, c = product16(theta, factor)[k : k + width], center[k : k + width]
        if c.sum() <= 49152:
            p = product16(p, 32768 >> e) if e else p
            for i in range(width):
                cells[k + i] = product16(int(p[i]), A) - product16(int(c[i]), U)
        k += width
    return cells


def contribution(X, documents, theta, factor, center, word_weight, relative, most):
    """Words of a unit, and the integers it adds to their rows, before the shift."""
    factor, center = np.maximum(factor, 0), np.maximum(center, 0)
    entries = []
    for d in documents:
        span = slice(X.indptr[d], X.indptr[d + 1])
        for w, count in zip(X.indices[span].tolist(), X.data[span]):
            sums = sums_of_entry(theta[d], factor[w], center[w])
            entries.append((w, d, word_weight[w] * count, sums))
    words, squares = sorted({w for w, *_ in entries}), np.zeros(16)
    for w in words:
        of_word = [
            square_of_entry(sums, s, center[w]) for v, _, s, sums in entries if v == w
        ]
        *others, last = map(float, of_word)
        root = sum(map(np.sqrt, others))
        squares[w // 16 % 16] += (root + np.sqrt(last)) ** 2 if root else last
    length, nearly = sum(squares.tolist()) ** 0.5, (1 - 2.0**-12) * most
    if not (length < np.inf and 0 <= relative < np.inf):
        return words, np.zeros((len(words), theta.shape[1]), object)

    unclipped = most * relative

    def integers(scale):
        cells = {w: 0 for w in words}
        for w, d, s, (total, *_) in entries:
            own = integers_of_entry(theta[d], factor[w], center[w], total, s * scale)
            cells[w] = cells[w] + own
        cells = np.array([cells[w] for w in words], object).reshape(
            len(words), theta.shape[1]
        )
        return cells, sum(min(int(x) ** 2, 2**48) for x in cells.flat)

    scale = F(unclipped if unclipped * length <= nearly else nearly / length)
    if len(documents) > 1:
        square = integers(scale)[1]
        scale = F(min(nearly / max(square, 1) ** 0.5 * float(scale), unclipped))
    for _ in range(2):
        cells, square = integers(scale)
        if square <= most**2:
            return words, cells
        scale = F(nearly / max(square, 1) ** 0.5 * float(scale))
    return words, cells * 0


def sum_topics(
    X,
    units,
    theta,
    factor,
    center,
    word_weight,
    unit_scale,
    norm,
    radius,
    shift,
    unit_ptr,
):
    """Sum of the units' integers, (n_words, padded); tables are rows of integers."""
    total, most = np.zeros(factor.shape, object), radius >> shift
    for u in units:
        documents = range(unit_ptr[u], unit_ptr[u + 1])
        words, cells = contribution(
            X, documents, theta, factor, center, word_weight, unit_scale[u] / norm, most
        )
        np.add.at(total, words, cells * 2**shift)
    return total
