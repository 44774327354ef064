"""Metropolis-Hastings over noisy one-hot vectors: alias tables and one sweep.

A unit has one topic. It is a token, or a sentence of several tokens. A token reports the words
whose bits are 1 in its noisy vector. The likelihood ratio of a reported word is 1; of any other
word it is `base`. Random numbers are arguments, as arrays of 64-bit words: every function here is a
pure function of its arguments.
"""

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef enum:
    WORDS_PER_UNIT = 2
    WORDS_PER_TOKEN = 4


cdef inline double uniform(uint64_t word) noexcept nogil:
    """53 random bits and a half: strictly inside (0, 1)."""
    return (<double>(word >> 12) + 0.5) * 2.220446049250313e-16


def build_alias(
    const float[:, ::1] weight,          # in: (n_rows, n_columns), positive
    uint32_t[:, ::1] threshold,          # out: 2**32 times the column's own probability
    int32_t[:, ::1] alias,               # out: the topic with the remaining probability
    double[::1] left,                    # scratch: (n_columns,)
    int32_t[::1] stack,                  # scratch: (n_columns,)
):
    """An alias table for each row, by Vose's method."""
    cdef Py_ssize_t n = weight.shape[1], row, k, n_small, n_large
    cdef int32_t small, large
    cdef double total
    with nogil:
        for row in range(weight.shape[0]):
            total = 0
            for k in range(n):
                total += weight[row, k]
            n_small, n_large = 0, 0      # small ones from the left, large ones from the right
            for k in range(n):
                left[k] = weight[row, k] * (n / total)
                alias[row, k] = <int32_t>k
                threshold[row, k] = 0    # a full column is its own alias
                if left[k] < 1:
                    stack[n_small] = <int32_t>k
                    n_small += 1
                else:
                    n_large += 1
                    stack[n - n_large] = <int32_t>k
            while n_small and n_large:
                n_small -= 1
                small, large = stack[n_small], stack[n - n_large]
                threshold[row, small] = <uint32_t>(left[small] * 4294967296.0)
                alias[row, small] = large
                left[large] -= 1 - left[small]
                if left[large] < 1:      # the small one has just left room on the stack
                    n_large -= 1
                    stack[n_small] = large
                    n_small += 1


cdef inline Py_ssize_t draw_alias(
    const uint32_t* threshold, const int32_t* alias, Py_ssize_t n, uint64_t word
) noexcept nogil:
    """The high half of a word selects a column, the low half the column itself or its alias."""
    cdef Py_ssize_t column = <Py_ssize_t>((word >> 32) * <uint64_t>n >> 32)
    return column if <uint32_t>word < threshold[column] else alias[column]


cdef struct Vectors:                     # the noisy vectors of some tokens, as `sweep` takes them
    const int64_t* ptr
    const int32_t* word
    double base


cdef double log_likelihood(
    const Vectors* y, Py_ssize_t first, Py_ssize_t last, const float* phi
) noexcept nogil:
    """Log-likelihood of the tokens of a unit given a topic, up to terms without the topic."""
    cdef double total = 0, mixture
    cdef Py_ssize_t i
    cdef int64_t j
    for i in range(first, last):
        mixture = y.base
        for j in range(y.ptr[i], y.ptr[i + 1]):
            mixture += phi[y.word[j]] * (1 - y.base)
        total += log(mixture)
    return total


cdef inline Py_ssize_t candidate(
    const Vectors* y, Py_ssize_t i, const float* prior, uint64_t bits
) noexcept nogil:
    """A word that token i reports, with probability proportional to prior; -1 if it has none."""
    cdef int64_t j, first = y.ptr[i], last = y.ptr[i + 1]
    cdef double left = 0
    if last - first < 2:
        return y.word[first] if last > first else -1
    for j in range(first, last):
        left += prior[y.word[j]]
    left *= uniform(bits)
    for j in range(first, last):
        left -= prior[y.word[j]]
        if left < 0:
            return y.word[j]
    return y.word[last - 1]


cdef Py_ssize_t impute(
    const Vectors* y, Py_ssize_t i, const float* phi, Py_ssize_t n_words, uint64_t bits
) noexcept nogil:
    """A word for token i, with probability proportional to phi times its likelihood ratio."""
    cdef int64_t j, first = y.ptr[i], last = y.ptr[i + 1]
    cdef double reported = 0, others = 1, left
    cdef Py_ssize_t v, chosen = 0
    if y.base == 0 and last - first == 1:
        return y.word[first]
    for j in range(first, last):
        reported += phi[y.word[j]]
        others -= phi[y.word[j]]
    others = y.base * others if others > 0 else 0
    left = uniform(bits) * (reported + others)
    if left < reported:
        for j in range(first, last):
            left -= phi[y.word[j]]
            if left < 0:
                return y.word[j]
        return y.word[last - 1]
    left = (left - reported) / y.base
    j = first
    for v in range(n_words):             # rare: only if the token's word was not reported
        if j < last and y.word[j] == v:
            j += 1
            continue
        chosen = v
        left -= phi[v]
        if left < 0:
            break
    return chosen


cdef struct Cache:                       # log-likelihoods of one unit, by topic
    double* value
    int64_t* unit


cdef inline double cached_likelihood(
    Cache* cache, Py_ssize_t u, const Vectors* y, Py_ssize_t first, Py_ssize_t last,
    const float* phi, Py_ssize_t n_words, Py_ssize_t k,
) noexcept nogil:
    if cache.unit[k] != u:
        cache.unit[k] = u
        cache.value[k] = log_likelihood(y, first, last, phi + k * n_words)
    return cache.value[k]


def sweep(
    const int64_t[::1] doc_ptr,          # in: where each document's units begin
    const int64_t[::1] unit_ptr,         # in: where each unit's tokens begin
    Py_ssize_t first_unit,               # in: the units to visit
    Py_ssize_t last_unit,
    int32_t[::1] topics,                 # in/out: topic of each unit, -1 for not yet assigned
    const int64_t[::1] ptr,              # in: where the reports of the visited tokens begin
    const int32_t[::1] word,             # in: reported words, increasing within a token
    double base,                         # in: likelihood ratio of a word that was not reported
    const float[:, ::1] phi,             # in: (n_components, n_words) positive, rows sum to 1
    const uint32_t[:, ::1] threshold,    # in: (n_words, n_components) alias tables of the words
    const int32_t[:, ::1] alias,         # in: (n_words, n_components)
    const float[::1] prior,              # in: (n_words,) for the choice of a candidate word
    double doc_topic_prior,
    const uint64_t[::1] unit_bits,       # in: two words for each visited unit
    const uint64_t[::1] token_bits,      # in: four words for each visited token
    int32_t[:, ::1] counts,              # in/out: (n_components, n_words) imputed words
    int32_t[::1] doc_count,              # scratch: (n_components,)
    double[::1] cached,                  # scratch: (n_components,)
    int64_t[::1] cached_for,             # scratch: (n_components,)
):
    """One sweep: for each unit a doc-topic proposal, and a word-topic proposal for each token.

    Then each token's word is drawn given the topic, and counted. Returns the number of proposals
    of another topic, and of those that were accepted.
    """
    cdef Py_ssize_t n_components = phi.shape[0], n_words = phi.shape[1]
    cdef Py_ssize_t d = 0, u = first_unit, i, k, v, old, new, first, last, n_others
    cdef int64_t n_proposed = 0, n_accepted = 0
    cdef double alpha = doc_topic_prior, position, log_ratio
    cdef const uint64_t* bits
    cdef const float* table = &phi[0, 0]
    cdef Vectors y
    cdef Cache cache
    y.ptr, y.word, y.base = &ptr[0], &word[0], base
    cache.value, cache.unit = &cached[0], &cached_for[0]
    with nogil:
        for k in range(n_components):
            cached_for[k] = -1
        while u < last_unit:
            while doc_ptr[d + 1] <= u:
                d += 1
            n_others = doc_ptr[d + 1] - doc_ptr[d] - 1
            for k in range(n_components):
                doc_count[k] = 0
            for i in range(doc_ptr[d], doc_ptr[d + 1]):
                if topics[i] >= 0:
                    doc_count[topics[i]] += 1
            while u < last_unit and u < doc_ptr[d + 1]:
                first = unit_ptr[u] - unit_ptr[first_unit]
                last = unit_ptr[u + 1] - unit_ptr[first_unit]
                bits = &unit_bits[WORDS_PER_UNIT * (u - first_unit)]
                old = topics[u]
                if old >= 0:
                    doc_count[old] -= 1
                # The topic of another unit of the document, or any topic: a draw from the counts
                # of the others plus alpha. The counts are live, so that no table becomes outdated.
                # The proposal cancels against the same factor of the target.
                position = uniform(bits[0]) * (n_others + n_components * alpha)
                new = -1
                if position < n_others:
                    i = doc_ptr[d] + <Py_ssize_t>position
                    new = topics[i + 1 if i >= u else i]
                    position -= <Py_ssize_t>position  # for a unit that has no topic yet
                else:
                    position = (position - n_others) / (n_components * alpha)
                if new < 0:
                    new = <Py_ssize_t>(position * n_components)
                    new = new if new < n_components else n_components - 1
                if old < 0:
                    old = new
                elif new != old:
                    log_ratio = (
                        cached_likelihood(&cache, u, &y, first, last, table, n_words, new)
                        - cached_likelihood(&cache, u, &y, first, last, table, n_words, old)
                    )
                    n_proposed += 1
                    if log(uniform(bits[1])) < log_ratio:
                        n_accepted += 1
                        old = new
                for i in range(first, last):
                    bits = &token_bits[WORDS_PER_TOKEN * i]
                    v = candidate(&y, i, &prior[0], bits[0])
                    if v < 0:
                        continue
                    new = draw_alias(&threshold[v, 0], &alias[v, 0], n_components, bits[1])
                    if new == old:
                        continue
                    log_ratio = (
                        cached_likelihood(&cache, u, &y, first, last, table, n_words, new)
                        - cached_likelihood(&cache, u, &y, first, last, table, n_words, old)
                    )
                    log_ratio += log(
                        (doc_count[new] + alpha) * phi[old, v]
                        / ((doc_count[old] + alpha) * phi[new, v])
                    )
                    n_proposed += 1
                    if log(uniform(bits[2])) < log_ratio:
                        n_accepted += 1
                        old = new
                topics[u] = <int32_t>old
                doc_count[old] += 1
                for i in range(first, last):
                    bits = &token_bits[WORDS_PER_TOKEN * i]
                    counts[old, impute(&y, i, table + old * n_words, n_words, bits[3])] += 1
                u += 1
    return n_proposed, n_accepted
