"""The sweep of HDP-LDA as published: live noisy counts, clipped above for the draw only.

Tables are (n_words, n_components) in double precision. Noise on a grid of powers of two plus whole
moves therefore adds up without rounding. Randomness is an argument: one random word per token.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t


# The only definition of the law of a draw. `draw_weights` exposes it to tests.
cdef inline double weight_of(
    double count, double total, int64_t doc_count,
    double count_clip, double doc_topic_prior, double topic_word_prior, double norm,
) noexcept nogil:
    """(clip(count, 0, C) + beta) / (max(total, 0) + V beta) * (doc_count + alpha)"""
    if count < 0:
        count = 0
    if count > count_clip:
        count = count_clip
    if total < 0:
        total = 0
    return (count + topic_word_prior) / (total + norm) * (doc_count + doc_topic_prior)


def draw_weights(
    const double[::1] row,               # in: (n_components,) live noisy counts of the word
    const double[::1] totals,            # in: (n_components,) live sums of noisy counts over words
    const int64_t[::1] doc_counts,       # in: (n_components,) topics of the document's tokens
    Py_ssize_t n_words,
    double count_clip,
    double doc_topic_prior,
    double topic_word_prior,
    double[::1] weight,                  # out: (n_components,)
):
    """Weights, not normalized, with which `live_sweep` draws the topic of one token."""
    cdef double norm = topic_word_prior * n_words
    cdef Py_ssize_t k
    with nogil:
        for k in range(row.shape[0]):
            weight[k] = weight_of(
                row[k], totals[k], doc_counts[k],
                count_clip, doc_topic_prior, topic_word_prior, norm)


def live_sweep(
    const int32_t[::1] word,             # in: word of each token, grouped by document
    const int64_t[::1] doc_ptr,          # in: where each document's tokens begin
    int32_t[::1] topics,                 # in/out: topic of each token
    double[:, ::1] counts,               # in/out: (n_words, n_components) live noisy counts
    double[::1] totals,                  # in/out: (n_components,) their sums over words
    double count_clip,
    double doc_topic_prior,
    double topic_word_prior,
    const uint64_t[::1] bits,            # in: one random word per token
    int64_t[::1] doc_counts,             # scratch: (n_components,)
    double[::1] cumulative,                    # scratch: (n_components,)
):
    """One sweep over the tokens: each draw reads all current counts, including its own token's."""
    cdef Py_ssize_t n_components = totals.shape[0]
    cdef Py_ssize_t d, i, k, old
    cdef double norm = topic_word_prior * counts.shape[0]
    cdef double total, threshold
    with nogil:
        for d in range(doc_ptr.shape[0] - 1):
            for k in range(n_components):
                doc_counts[k] = 0
            for i in range(doc_ptr[d], doc_ptr[d + 1]):
                doc_counts[topics[i]] += 1
            for i in range(doc_ptr[d], doc_ptr[d + 1]):
                total = 0
                for k in range(n_components):
                    total += weight_of(
                        counts[word[i], k], totals[k], doc_counts[k],
                        count_clip, doc_topic_prior, topic_word_prior, norm)
                    cumulative[k] = total
                # 52 bits and a half, so that the uniform is strictly inside (0, 1)
                threshold = (<double>(bits[i] >> 12) + 0.5) * 2.220446049250313e-16 * total
                k = 0
                while k + 1 < n_components and cumulative[k] <= threshold:
                    k += 1
                old = topics[i]
                topics[i] = <int32_t>k
                counts[word[i], old] -= 1
                totals[old] -= 1
                doc_counts[old] -= 1
                counts[word[i], k] += 1
                totals[k] += 1
                doc_counts[k] += 1
