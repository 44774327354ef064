"""Slow plain twins of the kernels, and the exact laws that the samplers must have.

Twins of exact kernels use Python's integers. Twins of float kernels add and multiply in the
kernels' type and order, so that they agree to the last bit.
"""

from itertools import pairwise, product
from math import factorial, lgamma

import numpy as np
from scipy import stats

F = np.float32
LANES = 8


def corpus_of(documents):
    """Tokens, and where documents begin, from lists of words."""
    word = np.array([w for document in documents for w in document], np.int32)
    return word, np.cumsum([0, *map(len, documents)]).astype(np.int64)


def padded(n_components):
    return -(-n_components // 16) * 16


# ---------------------------------------------------------------- Gibbs sampling


def pick(weight, bits):
    """Float inversion with 23 bits: first among the sums modulo 8, then upwards in one of them."""
    lanes = weight[:LANES]
    for k in range(LANES, len(weight), LANES):
        lanes = lanes + weight[k : k + LANES]
    sums = np.add.accumulate(lanes)
    threshold = (F(int(bits) >> 41) + F(0.5)) * F(2.0**-23) * sums[-1]
    lane = int(np.sum(sums[:-1] < threshold))
    total = sums[lane - 1] if lane else F(0)
    topics = range(lane, len(weight), LANES)
    for k in topics:
        total = total + weight[k]
        if total >= threshold:
            return k
    return max(k for k in topics if weight[k] > 0)


def collapsed_sweep(word, doc_ptr, topics, counts, totals, alpha, beta, bits):
    """Topics, word-topic counts and topic sizes after a sweep; arguments untouched."""
    topics, counts, totals = topics.copy(), counts.copy(), totals.copy()
    n_components, norm = len(totals), beta * len(counts)
    for begin, end in pairwise(doc_ptr):
        assigned = topics[begin:end][topics[begin:end] >= 0]
        document = np.bincount(assigned, minlength=n_components).astype(F)
        for i in range(begin, end):
            row = counts[word[i]]
            if topics[i] >= 0:
                for count in (row, totals, document):
                    count[topics[i]] -= 1
            inverse = (1.0 / (totals + norm)).astype(F)
            weight = np.zeros(len(row), F)
            weight[:n_components] = (document + F(alpha)) * inverse
            topics[i] = pick((row.astype(F) + F(beta)) * weight, bits[i])
            for count in (row, totals, document):
                count[topics[i]] += 1
    return topics, counts, totals


def noisy_sweep(word, doc_ptr, topics, counts, totals, word_noise, doc_noise, alpha, beta, bits):
    """As `collapsed_sweep`, with noise in steps of a power of two: sums are exact in any order."""
    topics, counts = topics.copy(), counts.copy()
    n_components, norm = len(totals), beta * len(counts)
    for d, (begin, end) in enumerate(pairwise(doc_ptr)):
        assigned = topics[begin:end][topics[begin:end] >= 0]
        document = doc_noise[d] + np.bincount(assigned, minlength=len(doc_noise[d])).astype(F)
        for i in range(begin, end):
            row = counts[word[i]]
            if topics[i] >= 0:
                for count in (row, document):
                    count[topics[i]] -= 1
            inverse = (1.0 / (noisy_sizes(counts, word_noise) + norm)).astype(F)
            weight = np.maximum(row.astype(F) + word_noise[word[i]], F(0)) + F(beta)
            weight *= (np.maximum(document, F(0)) + F(alpha)) * inverse
            weight[n_components:] = 0
            topics[i] = pick(weight, bits[i])
            for count in (row, document):
                count[topics[i]] += 1
    return topics, counts, noisy_sizes(counts, word_noise)[:n_components]


def noisy_sizes(counts, word_noise):
    """Sizes of the topics; a negative noisy count is read as zero."""
    return np.maximum(counts + word_noise.astype(float), 0).sum(axis=0)


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


def pack(table):
    """Pairs of topics k and k + 16, as floats; see dplda/kernels/_fold_in.h."""
    first = table.view(np.uint32).astype(np.int64).reshape(len(table), -1, 16)
    if first.shape[1] % 2:
        first = np.concatenate([first, np.zeros_like(first[:, :1])], axis=1)
    first, second = first[:, ::2], first[:, 1::2]
    second = (second + 0x8000) >> 16
    pairs = (np.maximum((first - second + 0x8000) >> 16, 0) << 16) + second
    return pairs.reshape(len(table), -1).astype(np.uint32).view(F)


def unpack(pairs, padded):
    """The table that pairs stand for."""
    first = pairs.view(np.uint32).reshape(len(pairs), -1, 1, 16)
    both = np.concatenate([first, first << 16], axis=2).reshape(len(pairs), -1)
    return np.ascontiguousarray(both[:, :padded]).view(F)


def update_topics(words, counts, phi, prior, n_components, theta, total=None):
    """The next topic weights, and the L1 change; a variational step if there is a total."""
    new = np.zeros(len(theta), F)
    factor = theta if total is None else topic_weights(theta * total, total)
    shares = [dot(factor, phi[w]) for w in words]
    parts = [
        (count / share if share > F(1e-28) else F(0)) * phi[w]
        for w, count, share in zip(words, counts, shares)
    ]
    parts += [np.zeros(len(theta), F)] * (-len(parts) % 4)
    for j in range(0, len(parts), 4):  # four words at a time
        new = new + ((parts[j] + parts[j + 1]) + (parts[j + 2] + parts[j + 3]))
    priors = np.where(np.arange(len(theta)) < n_components, F(prior), F(0))
    new = new * factor + priors
    new = new * (F(1) / total_of(lane_sums(new)))
    return new, total_of(lane_sums(np.abs(new - theta)))


def without_own(words, counts, phi, theta, inverse_size, least):
    """The rows of a document's words, less what it has added to them; phi: what pairs stand for."""
    own, rows = theta * inverse_size, []
    for w, count in zip(words, counts):
        share = dot(theta, phi[w])
        quotient = count / share if share > F(1e-28) else F(0)
        rows.append(np.maximum(phi[w] * (F(1) - quotient * own), F(least) * inverse_size))
    return unpack(pack(np.array(rows)), len(theta)) if rows else np.zeros((0, len(theta)), F)


def extrapolate(first, second, theta, floor):
    r = second - first
    v = (theta - second) - r
    with np.errstate(all="ignore"):
        a = np.sqrt(dot(r, r) / dot(v, v))
    if not 1 < a < F(1e6):
        return theta
    far = first + a * ((r + r) + a * v)
    theta = np.maximum(far, np.maximum(F(0.125) * theta, floor))
    return theta * (F(1) / total_of(lane_sums(theta)))


def tokens_and_priors(counts, prior, n_components):
    return np.add.accumulate(np.append(F(0), counts))[-1] + F(n_components) * F(prior)


def converge(words, counts, phi, prior, n_components, max_iter, tol, theta, total=None):
    """Steps, and an extrapolation after every two; undone if the next step is longer."""
    n_tokens = tokens_and_priors(counts, prior, n_components)
    floor = np.where(np.arange(len(theta)) < n_components, F(prior), F(0)) / n_tokens
    path, longest, before = [], F(np.inf), None
    for i in range(max_iter):
        path.append(theta)
        theta, change = update_topics(words, counts, phi, prior, n_components, theta, total)
        if len(path) == 1 and change > longest:
            theta, longest, path = before, F(np.inf), []
            continue
        if change < F(tol):
            break
        if len(path) == 1:
            longest = change
        elif i + 1 < max_iter:
            before, theta = theta, extrapolate(*path, theta, floor)
            path = []
    return theta


def fold_in(
    X, rows, phi, prior, n_components, max_iter, tol, theta, *, accelerated=False,
    variational=False, own=None,
):  # fmt: skip
    """Topic weights after at most `max_iter` steps; X is a CSR matrix of float32 counts.

    With `own`, 1 / topic sizes and the smallest count, documents whose weights differ leave out
    what they have added to the table.
    """
    theta = theta.copy()
    for d in rows:
        span = slice(X.indptr[d], X.indptr[d + 1])
        words, counts = X.indices[span], X.data[span]
        total = tokens_and_priors(counts, prior, n_components) if variational else None
        steps = words, counts, phi, prior, n_components
        if own is not None and len(set(theta[d, :n_components].tolist())) > 1:
            others = without_own(words, counts, phi, theta[d], *own)
            steps = range(len(words)), counts, others, prior, n_components
        if accelerated and len(words):
            theta[d] = converge(*steps, max_iter, tol, theta[d], total)
        for _ in range(0 if accelerated or not len(words) else max_iter):
            theta[d], change = update_topics(*steps, theta[d], total)
            if change < F(tol):
                break
        if variational:
            theta[d] = topic_weights(theta[d] * total, total)
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


# ---------------------------------------------------------------- exp(digamma)


def horner(x, coefficients):
    total = F(coefficients[0])
    for c in coefficients[1:]:
        total = total * x + F(c)
    return total


def exponential(x):
    magic = F(1.5 * 2.0**23)
    shifted = x * F(1.4426950408889634) + magic
    n = shifted - magic
    r = (x - n * F(float.fromhex("0x1.62e4p-1"))) - n * F(float.fromhex("0x1.7f7d1cp-20"))
    power = (shifted.view(np.uint32) << np.uint32(23)) + np.ones(1, F).view(np.uint32)
    return horner(r, [1 / factorial(i) for i in range(7, -1, -1)]) * power.view(F)


def shifted_digamma(x):
    """digamma(x) - log(base), and base."""
    z = np.maximum(x, F(1e-30))
    low = np.minimum(z, F(8))
    u = low * (low + 7)
    p = u * (u + 6) * ((u + 10) * (u + 12))
    slope = (2 * low + 7) * horner(u, [4, 84, 504, 720])
    base = z + np.where(z < 8, F(7.5), F(-0.5))
    inverse = 1 / (p * base)
    w = (p * inverse) * (p * inverse)
    total = horner(-w, [31 / 8064, 7 / 960, 1 / 24])
    return w * total - np.where(z < 8, slope, F(0)) * (base * inverse), base


def topic_weights(gamma, total):
    """exp(digamma(gamma) - digamma(total))"""
    digamma, scale = shifted_digamma(np.array([total], F))
    x, base = shifted_digamma(gamma)
    weight = base * (1 / scale) * exponential(np.maximum(x - digamma, F(-75)))
    return np.where(weight >= F(2.0**-63), weight, F(0))
