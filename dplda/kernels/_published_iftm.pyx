"""Acceptance of proposed topics as in iFTM, from raw words and noisy one-hot vectors.

Survivors are the coordinates of a token's noisy vector above the threshold; `value` turns a
survivor's level into the noisy count. Every function here is a pure function of its arguments.
"""

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t, uint16_t


cdef inline double score(
    const int64_t* ptr, const int32_t* survivor, const uint16_t* level, const double* value,
    const float* log_phi, Py_ssize_t i,
) noexcept nogil:
    """Equation (8) with the noisy counts: the sum of counts times log phi."""
    cdef double total = 0
    cdef int64_t j
    for j in range(ptr[i], ptr[i + 1]):
        total += value[level[j]] * log_phi[survivor[j]]
    return total


def accept_topics(
    const int64_t[::1] doc_ptr,          # in: where each document's tokens begin
    Py_ssize_t first,                    # in: the tokens to visit
    Py_ssize_t last,
    const int32_t[::1] word,             # in: raw word of each token
    int32_t[::1] topics,                 # in/out: topic of each token
    const int32_t[::1] initial,          # in: topics that the document proposals were made from
    const int32_t[::1] by_doc,           # in: topics proposed by the documents
    const int32_t[::1] by_word,          # in: topics proposed by the words
    const double[:, ::1] log_uniform,    # in: (2, n_tokens), the coins of both proposals
    const int64_t[::1] ptr,              # in: where the survivors of the visited tokens begin
    const int32_t[::1] survivor,         # in: coordinates that are above the threshold
    const uint16_t[::1] level,           # in: their levels
    const double[::1] value,             # in: (n_levels,) noisy count of a level
    const float[:, ::1] log_phi,         # in: (n_components, n_words)
    const float[:, ::1] omega,           # in: (n_components, n_words) that words proposed from
    double alpha,
    int32_t[::1] live,                   # scratch: (n_components,)
    int32_t[::1] frozen,                 # scratch: (n_components,)
):
    """Accept or reject both proposals of each token, equations (19) and (22)."""
    cdef Py_ssize_t d = 0, i = first, j, k, v, old, new
    cdef double of_old, of_new, log_ratio
    with nogil:
        while i < last:
            while doc_ptr[d + 1] <= i:
                d += 1
            for k in range(live.shape[0]):
                live[k] = frozen[k] = 0
            for j in range(doc_ptr[d], doc_ptr[d + 1]):
                live[topics[j]] += 1
                frozen[initial[j]] += 1
            while i < last and i < doc_ptr[d + 1]:
                v, old = word[i], topics[i]
                live[old] -= 1
                of_old = score(
                    &ptr[0], &survivor[0], &level[0], &value[0], &log_phi[old, 0], i - first
                )
                new = by_doc[i]
                if new != old:
                    of_new = score(
                        &ptr[0], &survivor[0], &level[0], &value[0], &log_phi[new, 0], i - first
                    )
                    log_ratio = of_new - of_old + log(
                        (live[new] + alpha) * (frozen[old] + alpha)
                        / ((live[old] + alpha) * (frozen[new] + alpha))
                    )
                    if log_uniform[0, i] < log_ratio:
                        old, of_old = new, of_new
                new = by_word[i]
                if new != old:
                    of_new = score(
                        &ptr[0], &survivor[0], &level[0], &value[0], &log_phi[new, 0], i - first
                    )
                    log_ratio = of_new - of_old + log(
                        (live[new] + alpha) * omega[old, v]
                        / ((live[old] + alpha) * omega[new, v])
                    )
                    if log_uniform[1, i] < log_ratio:
                        old = new
                topics[i] = <int32_t>old
                live[old] += 1
                i += 1
