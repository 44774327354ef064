"""The sweep of published SUB-LDA, token by token as printed."""

from libc.stdint cimport int32_t, int64_t, uint64_t


cdef inline double positive(double count) noexcept nogil:
    """A noisy count as it is read: a negative count becomes zero."""
    return count if count > 0 else 0


cdef inline void add(
    double* row, Py_ssize_t k, double change, double* sizes, double* inverse, double norm
) noexcept nogil:
    """Change a noisy count, the size of its topic, and one over that size with the prior."""
    sizes[k] -= positive(row[k])
    row[k] += change
    sizes[k] += positive(row[k])
    inverse[k] = 1 / (sizes[k] + norm)


def subsampled_sweep(
    const int32_t[::1] word,             # in: word of each token
    const int32_t[::1] document,         # in: document of each token
    const int64_t[::1] taken,            # in: the tokens that are sampled
    int32_t[::1] topics,                 # in/out: topic of each token
    double[:, ::1] noisy,                # in/out: (n_words, n_components) live noisy counts
    double[::1] sizes,                   # in/out: (n_components,) sums of max(noisy, 0) over words
    int32_t[:, ::1] doc_counts,          # in/out: (n_docs, n_components)
    const double[:, ::1] row_noise,      # in: (len(taken), n_components) for the row of each
                                         #     sampled token's word; no rows: none
    double count_clip,
    double doc_topic_prior,
    double topic_word_prior,
    const uint64_t[::1] bits,            # in: one random word per sampled token
    double[:, ::1] scratch,              # scratch: (2, n_components)
):
    """Draw new topics for the sampled tokens; unsampled tokens are counted as well."""
    cdef Py_ssize_t n_components = sizes.shape[0], j, k
    cdef bint add_noise = row_noise.shape[0] > 0
    cdef double norm = topic_word_prior * noisy.shape[0], total, count, threshold
    cdef int32_t topic
    cdef double* row
    cdef double* n_k = &sizes[0]
    cdef double* inverse = &scratch[0, 0]        # 1 / (n_k + V beta)
    cdef double* cumulative = &scratch[1, 0]           # sums of the weights of topics 0 to k
    cdef int32_t* doc
    with nogil:
        for k in range(n_components):
            inverse[k] = 1 / (n_k[k] + norm)
        for j in range(taken.shape[0]):
            row = &noisy[word[taken[j]], 0]
            doc = &doc_counts[document[taken[j]], 0]
            if add_noise:
                for k in range(n_components):
                    add(row, k, row_noise[j, k], n_k, inverse, norm)
            topic = topics[taken[j]]
            add(row, topic, -1, n_k, inverse, norm)
            doc[topic] -= 1
            total = 0
            for k in range(n_components):
                count = positive(row[k])
                count = count if count < count_clip else count_clip
                total += (count + topic_word_prior) * inverse[k] * (doc[k] + doc_topic_prior)
                cumulative[k] = total
            # 52 bits and a half, so that the uniform is strictly inside (0, 1)
            threshold = (<double>(bits[j] >> 12) + 0.5) * 2.220446049250313e-16 * total
            topic = 0
            while topic < n_components - 1 and cumulative[topic] < threshold:
                topic += 1
            topics[taken[j]] = topic
            add(row, topic, 1, n_k, inverse, norm)
            doc[topic] += 1
