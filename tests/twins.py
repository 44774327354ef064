"""Slow twins of the kernels: each is the definition of what a header in C computes.

A header is fast and long; its twin has at most 30 lines a function, and no other
purpose than to be read. Both give the same integers and the same floats, to the last
bit, on every instruction set. Integers are Python's or int64, floats are float32 unless
a line says float.
"""

import math
from itertools import pairwise

import numpy as np
from reference_noise import unpack

F = np.float32
MOST_PARTS = (256, 128, 64, 32)


# ---------------------------------------------------------------- shared by headers


def rounded(a, b):
    """R(a b / 2^15), halves upwards: a product of two numbers in units of 2^-15."""
    return (a * b + 2**14) >> 15


def halves_added(lanes):
    """The sum of 16 lanes: halves are added until one number is left."""
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def added_up(numbers):
    """The sum of doubles from left to right; Python's own may round less."""
    total = np.float64(0)
    for number in numbers:
        total = total + number
    return total


def sum_of(row):
    """The sum of a row of floats: 16 lanes, each from left to right, then theirs."""
    lanes = np.zeros(16, F)
    for k in range(0, len(row), 16):
        lanes = lanes + row[k : k + 16]
    return halves_added(lanes)


# ---------------------------------------------------------------- _clip.h


def clip(values, length, relative, radius):
    """Integers of an L2 norm of at most `radius`, or None: the vector is left out."""
    if not (1e-15 < length < math.inf and 0 <= relative < math.inf):
        return None
    shorter = relative if relative * length < 1 else 1 / length
    scale = F(radius * shorter)
    for _ in range(2):
        cells = [int(F(value) * scale) for value in values]  # toward zero
        if sum(cell * cell for cell in cells) <= radius * radius:
            return cells
        scale = scale * F(1 - 2.0**-16)
    return None


# ---------------------------------------------------------------- _contributions.h


def parts(n_topics):
    """The chunks of a row of `n_topics`, a multiple of 32, as slices."""
    begin = 0
    while begin < n_topics:
        width = next(width for width in MOST_PARTS if width <= n_topics - begin)
        yield slice(begin, begin + width)
        begin += width


def in_chunks(rows):
    """Rows in the order of memory: all of the first chunk, then of the second."""
    chunks = [rows[:, part].ravel() for part in parts(rows.shape[1])]
    return np.concatenate(chunks).astype(np.int16).reshape(rows.shape)


def narrow(table, *, size=32767):
    """Rows of integers, the largest of each `size`, or with 0 in units of 2^-15.

    They are from 0 to 32767, padded to a multiple of 32 topics.
    """
    rows = np.zeros((len(table), -(-table.shape[1] // 32) * 32), np.int64)
    for row, x in zip(rows, table):
        largest = max(x.max(), F(0)) if np.isfinite(x).all() else F(0)
        factor = F(0) if size else F(32767)
        if size and largest >= 2.0**-100:
            factor = F(size) / largest
        with np.errstate(all="ignore"):
            x = np.nan_to_num(x * factor, nan=0, posinf=32767, neginf=0)
        row[: len(x)] = np.floor(np.clip(x, F(0), F(32767)) + F(0.5))
    return rows


def integers_of_entry(theta, factor, center, u):
    """The integers that an entry, a document's word, adds to the word's row.

    They stand for u (p_k / S - c_k): u is the count times weight and scale, a float; c
    is the center, and p_k = R(theta_k f_k) has the sum S. Without p, with an impossible
    u, and around a center that no probabilities have, they are 0.
    """
    p = rounded(theta, factor)
    total = int(p.sum())
    too_large = any(center[part].sum() > 49152 for part in parts(len(center)))
    if total == 0 or too_large or not 0 <= u < 2**26:
        return [0] * len(p)
    a = F(u) * F(2**15) / F(total)
    e = 0  # more bits for a small quotient
    while e < 10 and a * F(2**e) < 128:
        e += 1
    if e > 0:
        p = rounded(p, 2 ** (15 - e))
    A, U = int(a * F(2**e) + F(0.5)), int(F(u) + F(0.5))
    return [rounded(int(x), A) - rounded(int(c), U) for x, c in zip(p, center)]


def square_of_entry(theta, factor, center, size):
    """The squared length of size (p / S - c), a float; 0 where the integers are 0."""
    p, squares, products, of_center = rounded(theta, factor), F(0), F(0), F(0)
    for part in parts(len(center)):
        c, eighth = center[part], rounded(p[part], 4096)
        if c.sum() > 49152:
            return size * size * F(0)  # NaN if the size is infinite
        lanes = (eighth**2).reshape(-1, 16, 2).sum(axis=(0, 2)) >> 4
        squares += F(lanes.sum())
        products += F((eighth * c).sum())
        of_pairs = (c.astype(F) ** 2).reshape(-1, 2, 16).sum(axis=1)
        of_center += sum_of(of_pairs.ravel())
    total = F(p.sum())
    inverse = F(1) / np.maximum(total, F(1))
    square = squares * F(1024) * inverse * inverse
    square -= products * F(2.0**-11) * inverse
    square += of_center * F(2.0**-30)
    return size * size * (np.maximum(square, F(0)) if total > 0 else F(0))


def integers_of_unit(entries, scale):
    """The integers of a unit's documents, added in each cell, and their squares."""
    cells = {}
    for word, of_word in entries.items():
        rows = [integers_of_entry(*tables, size * scale) for *tables, size in of_word]
        cells[word] = np.sum(np.array(rows, object), axis=0)
    # a cell of 2^24 is longer than any bound
    square = sum(min(int(x) ** 2, 2**48) for row in cells.values() for x in row)
    return cells, square


def contribution(entries, n_documents, relative, most):
    """The integers of a unit, by word: of an L2 norm of at most `most`, or none.

    entries: by word, (theta, factor, center, size) of each of its documents with it;
    relative: the unit's scale over the norm that `most` stands for.
    """
    squares = [0.0] * 16  # floats, of pieces of the words
    for word, of_word in sorted(entries.items()):
        *others, last = [float(square_of_entry(*entry)) for entry in of_word]
        root = added_up(map(math.sqrt, others))
        squares[word // 16 % 16] += (root + math.sqrt(last)) ** 2 if root else last
    length, nearly = np.sqrt(added_up(squares)), (1 - 2.0**-11) * most
    if not (length < math.inf and 0 <= relative < math.inf):
        return {}
    unclipped = most * relative
    scale = F(unclipped if unclipped * length <= nearly else nearly / length)
    if n_documents > 1:  # lengths are bounds
        square = max(integers_of_unit(entries, scale)[1], 1)
        scale = F(min(nearly / math.sqrt(square) * float(scale), unclipped))
    for _ in range(2):
        cells, square = integers_of_unit(entries, scale)
        if square <= most**2:
            return cells
        scale = F(nearly / math.sqrt(square) * float(scale))
    return {}


def sum_topics(X, documents_of_units, theta, factor, center, weight, relative, most):
    """The sum of the units' integers, (n_words, padded), from tables of integers."""
    factor, center = np.maximum(factor, 0), np.maximum(center, 0)
    total = np.zeros(factor.shape, object)
    for documents, of_unit in zip(documents_of_units, relative):
        entries = {}
        for d in documents:
            span = slice(X.indptr[d], X.indptr[d + 1])
            for w, count in zip(X.indices[span].tolist(), X.data[span]):
                entry = theta[d], factor[w], center[w], weight[w] * count
                entries.setdefault(w, []).append(entry)
        for word, cells in contribution(entries, len(documents), of_unit, most).items():
            total[word] += cells
    return total


# ---------------------------------------------------------------- _digamma.h


def digamma(x):
    """digamma(x) - log(base) of floats, and the base."""
    z = np.maximum(x, F(1e-30))
    low = np.minimum(z, F(8))
    u = low * (low + 7)
    p = u * (u + 6) * ((u + 10) * (u + 12))
    slope = (2 * low + 7) * (((4 * u + 84) * u + 504) * u + 720)
    base = z + np.where(z < 8, F(7.5), F(-0.5))
    inverse = 1 / (p * base)
    w = (p * inverse) * (p * inverse)
    tail = F(1 / 24) - w * (F(7 / 960) - w * F(31 / 8064))
    return w * tail - np.where(z < 8, slope, F(0)) * (base * inverse), base


def exp(x):
    """exp(x) of floats: a power of 2 times a polynomial."""
    magic = F(1.5 * 2**23)  # sums with it end with the bits of a whole number
    shifted = x * F(1.4426950408889634) + magic
    n = shifted - magic
    first, rest = float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20")
    r = (x - n * F(first)) - n * F(rest)
    result = np.full_like(r, F(1 / 5040))
    for term in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1, 1):
        result = result * r + F(term)
    bits = (shifted.view(np.uint32) << np.uint32(23)) + F(1).view(np.uint32)
    return result * bits.view(F)


def dirichlet_weights(gamma, total):
    """exp(digamma(gamma) - digamma(total)) of floats; below 2^-63 it is 0."""
    of_total, base_of_total = digamma(total)
    of_gamma, base = digamma(gamma)
    x = np.maximum(of_gamma - of_total, F(-75))
    weights = base * (1 / base_of_total) * exp(x)
    return np.where(weights >= F(2.0**-63), weights, F(0))


# ---------------------------------------------------------------- _fold_in.h


def shares_in_floats(rows, counts, weights):
    """The sum over words of count / (weights . row) times the row, rows of floats."""
    total = np.zeros_like(weights)
    quotients = np.zeros(-(-len(counts) // 4) * 4, F)
    for i, (row, count) in enumerate(zip(rows, counts)):
        share = sum_of(weights * row)
        quotients[i] = (count if share > F(1e-28) else F(0)) / max(share, F(1e-28))
    rows = np.vstack([rows, np.zeros((3, len(weights)), F)])
    for i in range(0, len(counts), 4):  # words are added four at a time
        first, second, third, fourth = quotients[i : i + 4, None] * rows[i : i + 4]
        total = total + ((first + second) + (third + fourth))
    return total


def shares_in_integers(rows, counts, weights):
    """The same of rows of bytes: weights and quotients get 15 bits, sums are exact.

    Words are taken in groups of 16 to 256, whose rows have at most 2^14 bytes.
    """
    total, largest, scale = np.zeros_like(weights), weights.max(), 2**19 - len(weights)
    scale = F(32767) / largest if largest * F(scale) > 32767 else F(scale)
    narrow = np.floor(weights * scale + F(0.5)).astype(np.int64)
    group = min(max(2**14 // (-(-len(weights) // 32) * 32) // 16 * 16, 16), 256)
    for begin in range(0, len(counts), group):
        some = rows[begin : begin + group]
        shares = some @ narrow
        assert shares.max() < 2**31
        quotients = counts[begin : begin + group] * scale
        quotients = quotients / np.maximum(shares.astype(F), scale / F(16))
        most = quotients.max()
        if not most > 0:
            continue
        integers = np.floor(quotients * (F(32767) / most) + F(0.5)).astype(np.int64)
        added = integers @ some
        assert added.max() < 2**31
        total = total + added.astype(F) * (most / F(32767))
    return total


def without_own(phi, counts, theta, inverse_size, least):
    """Rows of phi less what a document has added to them, at least `least` counts."""
    left = np.empty_like(phi)
    for i, (row, count) in enumerate(zip(phi, counts)):
        quotient = count / max(sum_of(theta * row), F(1e-25))
        left[i] = row * (F(1) - quotient * (theta * inverse_size))
    return np.maximum(left, F(least) * inverse_size)


def extrapolated(first, second, theta, floor):
    """The squared extrapolation of three weights, or the last if it leads nowhere."""
    r = second - first
    v = (theta - second) - r
    with np.errstate(all="ignore"):
        a = np.sqrt(sum_of(r * r) / sum_of(v * v))
    if not 1 < a < F(1e6):
        return theta
    far = first + a * ((r + r) + a * v)
    far = np.maximum(far, np.maximum(F(0.125) * theta, floor))
    return far * (F(1) / sum_of(far))


def fold_in(theta, counts, prior, add, *, max_steps, tolerance, variational):
    """The weights of a document, from `theta`; prior: (padded,), 0 on the padding.

    add: the shares of all words under given weights, one of the functions above.
    """
    n_tokens, third, longest, n_steps = F(0), theta, math.inf, 0
    for count in counts:
        n_tokens += count
    n_tokens += F(np.count_nonzero(prior)) * prior[0]
    for i in range(max_steps if len(counts) else 0):
        before = theta
        if n_steps == 0:
            first = before
        factor = dirichlet_weights(theta * n_tokens, n_tokens) if variational else theta
        theta = add(factor) * factor + prior
        theta = theta * (F(1) / sum_of(theta))
        change = sum_of(np.abs(theta - before))
        if n_steps == 0 and change > longest:  # the extrapolation went too far
            theta, longest = third, math.inf
            continue
        if change < tolerance:
            break
        n_steps += 1
        if n_steps == 1:
            longest = change
        elif i + 1 < max_steps:
            third, n_steps = theta, 0
            theta = extrapolated(first, before, theta, prior / n_tokens)
    return dirichlet_weights(theta * n_tokens, n_tokens) if variational else theta


# ---------------------------------------------------------------- _denoise.h


def node_values():
    """Values at the nodes: u, 4 an octave from 2^-12; z + 8, 32 an octave from 1."""
    u = [2.0**octave * (1 + i / 4) for octave in range(-12, 13) for i in range(4)]
    y = [2.0**octave * (1 + i / 32) for octave in range(10) for i in range(32)]
    return np.array(u[:97], F), np.array(y, F)


def places(average, rate, scale, center):
    """Cells in units of their noise, and the numbers on the axes of the nodes."""
    seen = average.astype(F) * (F(1) / scale)[:, None]
    u = np.minimum(rate[:, None] * center, F(4095))
    y = np.clip(seen + F(8), F(1), F(1007))
    return seen, u, y


def count_at_nodes(average, rate, scale, center):
    """How many cells are nearest to each node."""
    of_u, of_y = node_values()
    counts = np.zeros((len(of_u), len(of_y)), np.int64)
    _, u, y = places(average, rate, scale, center)
    for of_cell in zip(np.maximum(u, of_u[0]).flat, y.flat):
        near = []
        for x, nodes in zip(of_cell, (of_u, of_y)):
            above = int(np.searchsorted(nodes, x))  # halfway between two: the upper
            middle = (float(nodes[above - 1]) + float(nodes[above])) / 2
            near.append(above - (above > 0 and float(x) < middle))
        counts[tuple(near)] += 1
    return counts


def posterior_means(average, rate, scale, center, means, least):
    """Cells between the means at the four nodes around them, at least `least`."""
    of_u, of_y = node_values()
    table, axes = np.empty(average.shape, F), places(average, rate, scale, center)
    for index in np.ndindex(table.shape):
        seen, u, y = (axis[index] for axis in axes)
        below = min(u * F(2**12), F(1))  # in proportion to u below the first node
        u = max(u, of_u[0])
        i = np.searchsorted(of_u, u, "right") - 1
        j = np.searchsorted(of_y, y, "right") - 1
        q = (u - of_u[i]) / (of_u[i + 1] - of_u[i])  # exact
        p = (y - of_y[j]) / (of_y[j + 1] - of_y[j])
        low, low_right, high, high_right = means[i : i + 2, j : j + 2].flat
        low = low + p * (low_right - low)
        high = high + p * (high_right - high)
        mean = (low + q * (high - low)) * below
        mean = mean + max(seen - F(999), F(0))  # as the cell beyond the last node
        table[index] = max(scale[index[0]] * mean, F(0)) + F(least)
    return table


def sum_in_doubles(row):
    """The sum of a row, as 16 lanes of doubles, and then of these in their order."""
    row = row.tolist()
    return added_up(added_up(row[lane::16]) for lane in range(16))


def learned(noisy, table, kept, added, of_table, centered, average):
    """The average (of doubles), when a round's noisy sum has entered it."""
    result = np.empty_like(average)
    for v, k in np.ndindex(average.shape):
        middle = share = 0.0
        if centered:
            middle = float(sum(noisy[v].tolist())) / noisy.shape[1]
            share = of_table[v] / sum_in_doubles(table[v])
        counts = share * float(table[v, k]) + added[v] * (float(noisy[v, k]) - middle)
        result[v, k] = kept * average[v, k] + counts
    return result


def product(left, right):
    """left @ right; each sum runs from the first element to the last."""
    out = np.zeros((len(left), right.shape[1]))
    for column, row in zip(left.T, right):
        out = out + column[:, None] * row
    return out


def shares_of_rows(table, factor=None):
    """Rows times a factor of each topic, or over their sums."""
    if factor is not None:
        return table * factor
    return np.array([row * F(1 / sum_in_doubles(row)) for row in table])


def power(x, exponent):
    """x^exponent of floats, 0 at 0: by polynomials for log2 and for 2^x."""
    with np.errstate(over="ignore"):
        exists = np.minimum(x * F(2.0**126), F(1))
    x = np.maximum(x, F(2.0**-126))
    bits = x.view(np.int32)
    octave = (bits - np.int32(0x3F3504F3)) >> 23
    m = (bits - (octave << 23)).view(F)
    z = (m - F(1)) / (m + F(1))
    log = np.full_like(x, F(3.2059889e-1))
    for term in (4.1219858e-1, 5.7707802e-1, 9.6179669e-1, 2.8853901):
        log = log * (z * z) + F(term)
    log = octave.astype(F) + log * z
    log = np.maximum(log * F(exponent), F(-125))
    shifted = log + F(1.5 * 2**23)
    f = log - (shifted - F(1.5 * 2**23))
    result = np.full_like(x, F(1.5403530e-4))
    for term in (1.3333558e-3, 9.6181291e-3, 5.5504109e-2, 2.4022651e-1, 0.69314718, 1):
        result = result * f + F(term)
    return (result.view(np.int32) + (shifted.view(np.int32) << 23)).view(F) * exists


# ---------------------------------------------------------------- _frozen.h


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


def frozen_sweep(word, doc_ptr, topics, half, alpha, bits, refinement):
    """Topics after a sweep, by inversion; the order of topics is the results' format.

    A token's uniform number of 128 bits selects one of the intervals of the topics,
    which lie in the order of the topics modulo 16, then upwards.
    """
    topics, values = topics.copy(), half_integers(half)
    order = sorted(range(half.shape[1]), key=lambda k: (k % 16, k))
    for begin, end in pairwise(doc_ptr.tolist()):
        count = [0] * half.shape[1]
        for topic in topics[begin:end].tolist():
            if topic >= 0:
                count[topic] += 1
        for i in range(begin, end):
            if topics[i] >= 0:
                count[topics[i]] -= 1
            c = document_weights(count, end - begin, alpha)
            weight = [t * ck for t, ck in zip(values[word[i]], c)]
            uniform = (int(bits[i]) << 64) + int(refinement[i])
            target = uniform * sum(weight) >> 128
            for k in order:
                target -= weight[k]
                if target < 0:
                    break
            topics[i] = k
            count[k] += 1
    return topics


# ---------------------------------------------------------------- _noise.h


def look_up(field, table, spare):
    """A column or its alias, by comparing integers of 137 bits; see ``_noise.pyx``.

    spare: an iterator of words; two of them decide where the first 9 bits are equal.
    """
    thresholds, aliases = table
    column, first_bits = field % 4096, field >> 12
    fraction = first_bits << 128
    if first_bits == thresholds[column] >> 128:
        fraction += (int(next(spare)) << 64) + int(next(spare))
    return column if fraction < thresholds[column] else aliases[column]


def fields_of(word):
    """The three fields of 21 bits of a random word."""
    return [word >> 21 * i & 2**21 - 1 for i in range(3)]


def gaussian_draws(words, spare, tables):
    """x0 + 64 x1 + 4096 x2 for each word: three columns, each minus 2048."""
    (table,), spare, draws = unpack(tables), iter(spare), []
    for word in map(int, words):
        x = [look_up(field, table, spare) - 2048 for field in fields_of(word)]
        draws.append(x[0] + 64 * x[1] + 4096 * x[2])
    return np.array(draws, dtype=np.int64)


def laplace_draws(words, spare, tables):
    """m or -1 - m by the top bit for each word, m of two digits of base 4096."""
    (low_table, high_table), spare, draws = unpack(tables), iter(spare), []
    for word in map(int, words):
        low = look_up(fields_of(word)[0], low_table, spare)
        m = low + 4096 * look_up(fields_of(word)[1], high_table, spare)
        draws.append(-1 - m if word >> 63 else m)
    return np.array(draws, dtype=np.int64)
