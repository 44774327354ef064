"""Fold-in kernels: a document's topic weights under a fixed table, and its contribution to a sum.

Documents are rows of a CSR matrix. Tables are (n_words, padded), where the padding (to a multiple
of 8 topics) is zero. Rows do not depend on each other, so callers may split them over threads.
"""

from libc.math cimport fabsf, sqrt
from libc.stdint cimport int32_t, int64_t


cdef extern from "_clip.h" nogil:
    bint dplda_clip(const float* value, int64_t size, double length, double relative,
                    int64_t radius, int32_t* out)


cdef inline float dot(const float* a, const float* b, Py_ssize_t padded) noexcept nogil:
    """a . b in 8 strided partial sums, which the compiler turns into vector operations."""
    cdef float lane[8]
    cdef Py_ssize_t k, j
    for j in range(8):
        lane[j] = 0
    for k in range(0, padded, 8):
        for j in range(8):
            lane[j] += a[k + j] * b[k + j]
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))


cdef inline float quotient(float count, float share) noexcept nogil:
    """count / share, or 0 where it might overflow: all topics nearly exclude the word."""
    return count / share if share > <float>1e-28 else 0


cdef inline void update_topics(
    const int32_t* word, const float* count, Py_ssize_t n, const float[:, ::1] phi,
    float prior, Py_ssize_t n_components, float* theta, float* new
) noexcept nogil:
    """One expectation-maximization step for one document: `theta` to `new`, normalized."""
    cdef Py_ssize_t j, k, padded = phi.shape[1]
    cdef const float* row
    cdef const float* other
    cdef float share, second, total = 0
    for k in range(padded):
        new[k] = 0
    for j in range(0, n - 1, 2):     # two words at a time: `new` is loaded and stored half as often
        row = &phi[word[j], 0]
        other = &phi[word[j + 1], 0]
        share = quotient(count[j], dot(theta, row, padded))
        second = quotient(count[j + 1], dot(theta, other, padded))
        for k in range(padded):
            new[k] += share * row[k] + second * other[k]
    if n % 2:
        row = &phi[word[n - 1], 0]
        share = quotient(count[n - 1], dot(theta, row, padded))
        for k in range(padded):
            new[k] += share * row[k]
    for k in range(n_components):
        new[k] = new[k] * theta[k] + prior
        total += new[k]
    total = 1 / total
    for k in range(n_components):
        new[k] *= total


def fold_in(
    const int32_t[::1] indptr,           # in: CSR of the documents
    const int32_t[::1] indices,          # in
    const float[::1] data,               # in: counts
    const int64_t[::1] rows,             # in: the documents to work on
    const float[:, ::1] phi,             # in: (n_words, padded) word probabilities of each topic
    float prior,                         # in: doc_topic_prior
    Py_ssize_t n_components,
    Py_ssize_t max_iter,
    float tol,                           # in: stop below this L1 change of theta; 0: never
    float[:, ::1] theta,                 # in/out: (n_docs, padded) topic weights, warm start
    float[::1] scratch,                  # scratch: (padded,)
):
    """Infer the topic weights of documents under a fixed table."""
    cdef Py_ssize_t r, d, k, _, begin, n
    cdef float change
    cdef float* new = &scratch[0]
    cdef float* old
    with nogil:
        for r in range(rows.shape[0]):
            d = rows[r]
            begin = indptr[d]
            n = indptr[d + 1] - begin
            if n == 0:
                continue
            old = &theta[d, 0]
            for _ in range(max_iter):
                update_topics(
                    &indices[begin], &data[begin], n, phi, prior, n_components, old, new)
                change = 0
                for k in range(n_components):
                    change += fabsf(new[k] - old[k])
                    old[k] = new[k]
                if change < tol:
                    break


cdef inline Py_ssize_t add_document(
    const int32_t* word, const float* count, Py_ssize_t n, const float[:, ::1] factor,
    const float[:, ::1] center, const float[::1] word_weight, const float* theta,
    int32_t* place, int32_t* known, Py_ssize_t n_known, float* out
) noexcept nogil:
    """out[place[v], k] += w_v x_v (r_vk - center_vk), r_vk ~ theta_k factor_vk.

    `known` lists the words that have a place. A word without one (place < 0) gets the next. Returns
    the number of words that have a place now.
    """
    cdef Py_ssize_t j, k, v, padded = factor.shape[1]
    cdef const float* row
    cdef const float* middle
    cdef float* cell
    cdef float scale, share
    for j in range(n):
        v = word[j]
        row = &factor[v, 0]
        middle = &center[v, 0]
        scale = word_weight[v] * count[j]
        share = dot(theta, row, padded)
        share = scale / share if share > 0 else 0
        if place[v] < 0:
            cell = out + n_known * padded
            place[v] = <int32_t>n_known
            known[n_known] = <int32_t>v
            n_known += 1
            for k in range(padded):     # not zeros first: all words of a unit of one come here
                cell[k] = theta[k] * row[k] * share - scale * middle[k]
        else:
            cell = out + place[v] * padded
            for k in range(padded):
                cell[k] += theta[k] * row[k] * share - scale * middle[k]
    return n_known


def add_contributions(
    const int32_t[::1] indptr,           # in: CSR of the documents, those of a unit in sequence
    const int32_t[::1] indices,          # in
    const float[::1] data,               # in: counts
    const int64_t[::1] unit_ptr,         # in: (n_units + 1,) first document of each unit
    const int64_t[::1] units,            # in: the units that take part
    const float[:, ::1] theta,           # in: (n_docs, padded) topic weights
    const float[:, ::1] factor,          # in: (n_words, padded) word factor of responsibilities
    const float[:, ::1] center,          # in: (n_words, padded) subtracted from responsibilities
    const float[::1] word_weight,        # in: (n_words,)
    const double[::1] unit_scale,        # in: (n_units,) scale of each unit before the clip
    double norm,                         # in: clip: L2 norm at which the radius is reached
    int64_t radius,                      # in: the same norm in integer units, at most 2**30
    int64_t[:, ::1] total,               # in/out: (n_words, padded) sum of integer contributions
    int32_t[::1] place,                  # scratch: (n_words,), all -1 before and after
    int32_t[::1] known,                  # scratch: (most words of a unit,)
    float[::1] scratch,                  # scratch: (most words of a unit * padded,)
    int32_t[::1] rounded,                # scratch: (most words of a unit * padded,)
):
    """Add each unit's clipped contribution, in integers of L2 norm at most `radius`.

    A unit is one document, or all documents of one user. The contributions of its documents are
    added cell by cell, and the sum is clipped. The bound is checked in integers. A contribution
    that is too long after rounding is shrunk a little and rounded again. It is left out if it is
    still too long. The sensitivity is therefore at most `radius` for every input.
    """
    cdef Py_ssize_t r, u, d, j, k, begin, end, n, padded = theta.shape[1]
    cdef double square
    cdef int64_t* cell
    cdef int32_t* share
    cdef bint fits
    with nogil:
        for r in range(units.shape[0]):
            u = units[r]
            n = 0
            for d in range(unit_ptr[u], unit_ptr[u + 1]):
                begin, end = indptr[d], indptr[d + 1]
                if begin < end:
                    n = add_document(
                        &indices[begin], &data[begin], end - begin, factor, center, word_weight,
                        &theta[d, 0], &place[0], &known[0], n, &scratch[0])
            if n == 0:
                continue
            square = 0
            for j in range(n):
                square += dot(&scratch[j * padded], &scratch[j * padded], padded)
            fits = dplda_clip(&scratch[0], n * padded, sqrt(square), unit_scale[u] / norm, radius,
                              &rounded[0])
            for j in range(n):
                place[known[j]] = -1
                if not fits:
                    continue
                cell = &total[known[j], 0]
                share = &rounded[j * padded]
                for k in range(padded):
                    cell[k] += share[k]
