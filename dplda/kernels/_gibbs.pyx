"""Sampling kernels of the Gibbs topic models: one sweep over the tokens, and the count of a sweep.

Tables are (n_words, n_components), so that the inner loop reads contiguous memory. Randomness is an
argument: an array of 64-bit words, one per token. Every function here is a pure function of its
arguments.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t


# The weights of a token are added up in 8 strided partial sums ("lanes"), which the compiler turns
# into vector additions. The draw first picks a lane and then a topic in this lane.
cdef inline Py_ssize_t pick(
    const float* weight, Py_ssize_t n_components, uint64_t bits
) noexcept nogil:
    """The topic that 23 random bits select among `n_components` (padded to 8) weights."""
    cdef float lane[8]
    cdef float below = 0, total = 0, threshold
    cdef Py_ssize_t k, j, chosen = 0
    for j in range(8):
        lane[j] = 0
    for k in range(0, n_components, 8):
        for j in range(8):
            lane[j] += weight[k + j]
    for j in range(8):
        total += lane[j]
    # 23 bits and a half, so that the uniform is strictly inside (0, 1) as a float
    threshold = (<float>(bits >> 41) + <float>0.5) * <float>1.1920928955078125e-07 * total
    total = 0
    for j in range(7):
        total += lane[j]
        if total < threshold:
            chosen = j + 1
            below = total
    k = chosen
    total = below + weight[k]
    while total < threshold and k + 8 < n_components:
        k += 8
        total += weight[k]
    # rounding may run past the last topic with a positive weight: step back to it
    while weight[k] == 0 and k >= 8:
        k -= 8
    return k


def collapsed_sweep(
    const int32_t[::1] word,             # in: word of each token, grouped by document
    const int64_t[::1] doc_ptr,          # in: where each document's tokens begin
    int32_t[::1] topics,                 # in/out: topic of each token, -1 for not yet assigned
    int32_t[:, ::1] counts,              # in/out: (n_words, padded) live word-topic counts
    int64_t[::1] totals,                 # in/out: (n_components,) live topic sizes
    double doc_topic_prior,
    double topic_word_prior,
    const uint64_t[::1] bits,            # in: one random word per token
    float[:, ::1] scratch,               # scratch: (4, padded)
):
    """One sweep of exact collapsed Gibbs sampling; all counts are live."""
    cdef Py_ssize_t n_components = totals.shape[0], padded = counts.shape[1]
    cdef Py_ssize_t d, i, k, old, new
    cdef float alpha = <float>doc_topic_prior, beta = <float>topic_word_prior
    cdef double norm = topic_word_prior * counts.shape[0]
    cdef float* weight = &scratch[0, 0]
    cdef float* document = &scratch[1, 0]        # n_dk: whole, so that it cannot drift
    cdef float* inverse = &scratch[2, 0]         # 1 / (n_k + V beta)
    cdef float* factor = &scratch[3, 0]          # (n_dk + alpha) * inverse; zero on the padding
    cdef int32_t* row
    with nogil:
        for k in range(padded):
            factor[k] = 0
        for k in range(n_components):
            inverse[k] = <float>(1.0 / (totals[k] + norm))
        for d in range(doc_ptr.shape[0] - 1):
            for k in range(n_components):
                document[k] = 0
            for i in range(doc_ptr[d], doc_ptr[d + 1]):
                if topics[i] >= 0:
                    document[topics[i]] += 1
            for k in range(n_components):
                factor[k] = (document[k] + alpha) * inverse[k]
            for i in range(doc_ptr[d], doc_ptr[d + 1]):
                row = &counts[word[i], 0]
                old = topics[i]
                if old >= 0:
                    row[old] -= 1
                    totals[old] -= 1
                    document[old] -= 1
                    inverse[old] = <float>(1.0 / (totals[old] + norm))
                    factor[old] = (document[old] + alpha) * inverse[old]
                for k in range(padded):
                    weight[k] = (<float>row[k] + beta) * factor[k]
                new = pick(weight, padded, bits[i])
                topics[i] = <int32_t>new
                row[new] += 1
                totals[new] += 1
                document[new] += 1
                inverse[new] = <float>(1.0 / (totals[new] + norm))
                factor[new] = (document[new] + alpha) * inverse[new]


def background_sweep(
    const int32_t[::1] word,             # in: word of each token, grouped by document
    const int64_t[::1] doc_ptr,          # in: where each document's tokens begin
    int32_t[::1] topics,                 # in/out: topic of each token, -1 for not yet assigned,
                                         #         n_components for the background
    int32_t[:, ::1] counts,              # in/out: (n_words, padded) live word-topic counts
    int64_t[::1] totals,                 # in/out: (n_components,) live topic sizes
    const float[:, ::1] word_prior,      # in: (n_words, padded) Dirichlet parameters, 0 on padding
    const double[::1] prior_sizes,       # in: (n_components,) their sums over words
    const float[::1] background,         # in: (n_words,) tokens that no topic made, per document
    double doc_topic_prior,
    const uint64_t[::1] bits,            # in: one random word per token
    float[:, ::1] scratch,               # scratch: (4, padded)
):
    """`collapsed_sweep` with a prior for each cell, and with a background of known rates.

    The background is one additional topic, so padded must exceed n_components. Its tokens are
    counted only in its column of `counts`.
    """
    cdef Py_ssize_t n_components = totals.shape[0], padded = counts.shape[1]
    cdef Py_ssize_t d, i, k, old, new
    cdef float alpha = <float>doc_topic_prior
    cdef float* weight = &scratch[0, 0]
    cdef float* document = &scratch[1, 0]        # n_dk: whole, so that it cannot drift
    cdef float* inverse = &scratch[2, 0]         # 1 / (n_k + sum of the prior)
    cdef float* factor = &scratch[3, 0]          # (n_dk + alpha) * inverse; 0 from n_components on
    cdef int32_t* row
    cdef const float* beta
    with nogil:
        for k in range(padded):
            factor[k] = 0
        for k in range(n_components):
            inverse[k] = <float>(1.0 / (totals[k] + prior_sizes[k]))
        for d in range(doc_ptr.shape[0] - 1):
            for k in range(n_components):
                document[k] = 0
            for i in range(doc_ptr[d], doc_ptr[d + 1]):
                if 0 <= topics[i] < n_components:
                    document[topics[i]] += 1
            for k in range(n_components):
                factor[k] = (document[k] + alpha) * inverse[k]
            for i in range(doc_ptr[d], doc_ptr[d + 1]):
                row = &counts[word[i], 0]
                beta = &word_prior[word[i], 0]
                old = topics[i]
                if old >= 0:
                    row[old] -= 1
                    if old < n_components:
                        totals[old] -= 1
                        document[old] -= 1
                        inverse[old] = <float>(1.0 / (totals[old] + prior_sizes[old]))
                        factor[old] = (document[old] + alpha) * inverse[old]
                for k in range(padded):
                    weight[k] = (<float>row[k] + beta[k]) * factor[k]
                weight[n_components] = background[word[i]]
                new = pick(weight, padded, bits[i])
                topics[i] = <int32_t>new
                row[new] += 1
                if new < n_components:
                    totals[new] += 1
                    document[new] += 1
                    inverse[new] = <float>(1.0 / (totals[new] + prior_sizes[new]))
                    factor[new] = (document[new] + alpha) * inverse[new]
