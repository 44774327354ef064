"""Fold-in kernels: a document's topic weights under a fixed table, and its contribution to a sum.

Documents are rows of a CSR matrix. Tables are (n_words, padded), where the padding (to a multiple
of 16 topics) is zero. Rows do not depend on each other, and threads share them.

Units of one document go through `measure_words`, `clip_scales` and `add_words`, which work word by
word. Other units go through `add_contributions`. The loops are in ``_fold_in.h`` and
``_contributions.h``, compiled for each instruction set. All sets give the same bits.
"""

cimport cython
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t

from dplda.kernels._sets cimport in_use
from dplda.kernels._team cimport pieces_of, rows_of_piece, run_pieces


cdef extern from "_variational.h" nogil:
    """
    static void dplda_fold_in(int set, const int32_t *word, const float *count, ptrdiff_t n,
                              const float *phi, int in_pairs, ptrdiff_t padded, float prior,
                              ptrdiff_t n_components, ptrdiff_t max_iter, float tol,
                              int accelerated, int variational, float *theta, float *scratch) {
        DPLDA_CALL(fold_in, set)(word, count, n, phi, in_pairs, padded, prior, n_components,
                                 max_iter, tol, accelerated, variational, theta, scratch);
    }
    static void dplda_leave_out(int set, const int32_t *word, const float *count, ptrdiff_t n,
                                const float *phi, ptrdiff_t padded, const float *theta,
                                const float *inverse_size, float least, float *scratch,
                                float *rows) {
        DPLDA_CALL(leave_out, set)(word, count, n, phi, padded, theta, inverse_size, least, scratch,
                                   rows);
    }
    static void dplda_pack(int set, const float *row, ptrdiff_t padded, float *pairs) {
        DPLDA_CALL(pack, set)(row, padded, pairs);
    }
    static void dplda_measure_word(int set, const dplda_word *word, const int32_t *doc,
                                   const float *count, float weight, ptrdiff_t n, float *shares,
                                   double *square) {
        DPLDA_CALL(measure_word, set)(word, doc, count, weight, n, shares, square);
    }
    static void dplda_add_word(int set, const dplda_word *word, const int32_t *doc,
                               const float *count, float weight, ptrdiff_t n, const float *shares,
                               const float *scale, int64_t radius, int sign,
                               ptrdiff_t n_components, int64_t *total, int32_t *part,
                               int64_t *square) {
        DPLDA_CALL(add_word, set)(word, doc, count, weight, n, shares, scale, radius, sign,
                                  n_components, total, part, square);
    }
    """
    enum:
        PORTABLE "DPLDA_PORTABLE"
    ctypedef struct dplda_word:
        Py_ssize_t padded
        const float* theta
        const float* factor
        const float* center
    float dplda_scale(double length, double relative, int64_t radius)
    bint dplda_clip(const float* value, int64_t size, double length, double relative,
                    int64_t radius, int32_t* out)
    void dplda_fold_in(
        int set, const int32_t* word, const float* count, Py_ssize_t n, const float* phi,
        bint in_pairs, Py_ssize_t padded, float prior, Py_ssize_t n_components,
        Py_ssize_t max_iter, float tol, bint accelerated, bint variational, float* theta,
        float* scratch)
    void dplda_leave_out(
        int set, const int32_t* word, const float* count, Py_ssize_t n, const float* phi,
        Py_ssize_t padded, const float* theta, const float* inverse_size, float least,
        float* scratch, float* rows)
    void dplda_pack(int set, const float* row, Py_ssize_t padded, float* pairs)
    Py_ssize_t dplda_pairs(Py_ssize_t padded)
    void dplda_measure_word(
        int set, const dplda_word* word, const int32_t* doc, const float* count, float weight,
        Py_ssize_t n, float* shares, double* square)
    void dplda_add_word(
        int set, const dplda_word* word, const int32_t* doc, const float* count, float weight,
        Py_ssize_t n, const float* shares, const float* scale, int64_t radius, int sign,
        Py_ssize_t n_components, int64_t* total, int32_t* part, int64_t* square)


cdef enum:
    DOCUMENTS = 8                        # of a piece

cdef struct Inference:
    const int32_t* indptr
    const int32_t* indices
    const float* data
    const int64_t* rows
    Py_ssize_t n_rows
    const float* phi
    bint in_pairs
    Py_ssize_t padded
    float prior
    Py_ssize_t n_components
    Py_ssize_t max_iter
    float tol
    bint accelerated
    bint variational
    float* theta
    float* scratch
    const float* inverse_size            # NULL: nothing is left out
    float least
    const int32_t* places
    float* others
    Py_ssize_t size_of_others


cdef bint differ(const float* weights, Py_ssize_t n) noexcept nogil:
    """Whether some weights differ. Equal ones are those of a document without an inference yet."""
    cdef Py_ssize_t k
    for k in range(1, n):
        if weights[k] != weights[0]:
            return True
    return False


cdef void infer_documents(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Inference* a = <Inference*>loop
    cdef Py_ssize_t r, d, n
    cdef const int32_t* word
    cdef const float* count
    cdef const float* phi
    cdef float* theta
    cdef float* scratch = a.scratch + thread * 6 * a.padded
    cdef float* others = a.others + thread * a.size_of_others
    for r in range(piece * DOCUMENTS, min((piece + 1) * DOCUMENTS, a.n_rows)):
        d = a.rows[r]
        word, count = a.indices + a.indptr[d], a.data + a.indptr[d]
        n, phi, theta = a.indptr[d + 1] - a.indptr[d], a.phi, a.theta + d * a.padded
        if a.inverse_size != NULL and differ(theta, a.n_components):
            dplda_leave_out(
                in_use, word, count, n, phi, a.padded, theta, a.inverse_size, a.least, scratch,
                others)
            word, phi = a.places, others
        dplda_fold_in(
            in_use, word, count, n, phi, a.in_pairs, a.padded, a.prior, a.n_components, a.max_iter,
            a.tol, a.accelerated, a.variational, theta, scratch)


cdef check_others(
    const int32_t[::1] indptr, const int64_t[::1] rows, const float[::1] inverse_size,
    Py_ssize_t padded, bint in_pairs, const int32_t[::1] places, float[:, ::1] others,
    int n_threads,
):
    cdef Py_ssize_t r, longest = 0
    for r in range(rows.shape[0]):
        longest = max(longest, indptr[rows[r] + 1] - indptr[rows[r]])
    if not in_pairs or inverse_size.shape[0] != padded:
        raise ValueError("phi must be in pairs, and inverse_size must have the topics of theta")
    if places.shape[0] == 0 or places.shape[0] < longest or others.shape[0] != n_threads or (
            others.shape[1] < longest * dplda_pairs(padded)):
        raise ValueError("places and others must have room for the longest document")


@cython.boundscheck(False)  # even under sanitizers: the function takes the address of empty arrays
def fold_in(
    const int32_t[::1] indptr,           # in: CSR of the documents
    const int32_t[::1] indices,          # in
    const float[::1] data,               # in: counts
    const int64_t[::1] rows,             # in: the documents to work on, each at most once
    const float[:, ::1] phi,             # in: (n_words, padded) word probabilities, or their pairs
    bint in_pairs,                       # in: whether phi is what `pack` made
    float prior,                         # in: doc_topic_prior
    Py_ssize_t n_components,
    Py_ssize_t max_iter,
    float tol,                           # in: stop below this L1 change of theta; 0: never
    bint accelerated,                    # in: whether to extrapolate after every two steps
    bint variational,                    # in: whether to find a Dirichlet posterior
    float[:, ::1] theta,                 # in/out: (n_docs, padded) topic weights, warm start
    float[:, ::1] scratch,               # scratch: (n_threads, 6 * padded)
    const float[::1] inverse_size,       # in: (padded,) 1 / topic sizes; empty: nothing is left out
    float least,                         # in: counts of a cell at least, if something is left out
    const int32_t[::1] places,           # in: 0, 1, ... for each word of the longest document
    float[:, ::1] others,                # scratch: (n_threads, n_places * width of phi)
):
    """Infer the topic weights of documents under a fixed table, in as many threads as scratch has.

    In the end `theta` holds weights that sum to 1, or exp(E[log theta]) if `variational`. With
    `inverse_size`, a document whose weights differ reads the table less what it has added to it
    with these weights; `phi` is in pairs then.
    """
    cdef Inference loop
    cdef int n_threads = <int>scratch.shape[0]
    cdef Py_ssize_t padded = theta.shape[1]
    if phi.shape[1] != (dplda_pairs(padded) if in_pairs else padded):
        raise ValueError("phi must have the topics of theta, in pairs or alone")
    if scratch.shape[0] == 0 or scratch.shape[1] != 6 * padded:
        raise ValueError("scratch must have 6 rows of theta for each thread")
    loop.indptr, loop.indices, loop.data = &indptr[0], &indices[0], &data[0]
    loop.rows, loop.n_rows, loop.phi, loop.in_pairs = &rows[0], rows.shape[0], &phi[0, 0], in_pairs
    loop.padded, loop.n_components, loop.prior = padded, n_components, prior
    loop.max_iter, loop.tol, loop.accelerated = max_iter, tol, accelerated
    loop.variational, loop.theta, loop.scratch = variational, &theta[0, 0], &scratch[0, 0]
    loop.inverse_size = NULL
    if inverse_size.shape[0]:
        check_others(indptr, rows, inverse_size, padded, in_pairs, places, others, n_threads)
        loop.inverse_size, loop.least, loop.places = &inverse_size[0], least, &places[0]
        loop.others, loop.size_of_others = &others[0, 0], others.shape[1]
    with nogil:
        run_pieces(
            infer_documents, &loop, (loop.n_rows + DOCUMENTS - 1) // DOCUMENTS, n_threads)


cdef struct Packing:
    Py_ssize_t n_words
    Py_ssize_t padded
    const float* phi
    float* pairs


cdef void pack_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Packing* a = <Packing*>loop
    cdef Py_ssize_t v, size = rows_of_piece(a.padded)
    for v in range(piece * size, min((piece + 1) * size, a.n_words)):
        dplda_pack(in_use, a.phi + v * a.padded, a.padded, a.pairs + v * dplda_pairs(a.padded))


def pack(
    const float[:, ::1] phi,             # in: (n_words, padded), not negative
    float[:, ::1] pairs,                 # out: (n_words, padded / 2, but whole vectors)
    int n_threads,
):
    """Pack two topics into 32 bits, each to a relative precision of 2**-8."""
    cdef Packing loop
    loop.n_words, loop.padded = phi.shape[0], phi.shape[1]
    if pairs.shape[0] != loop.n_words or pairs.shape[1] != dplda_pairs(loop.padded):
        raise ValueError("pairs must have a row for each word, and half of its topics")
    if loop.n_words == 0:
        return
    loop.phi, loop.pairs = &phi[0, 0], &pairs[0, 0]
    with nogil:
        run_pieces(pack_words, &loop, pieces_of(loop.n_words, loop.padded), n_threads)


cdef struct Columns:
    const int32_t* indptr
    const int32_t* indices
    const float* data
    Py_ssize_t n_words
    Py_ssize_t n_docs
    Py_ssize_t n_pieces
    dplda_word tables                    # those of word 0
    const float* word_weight
    float* share
    double* length                       # of `measure_words`
    const float* scale                   # of `add_words`
    int64_t radius
    int sign
    Py_ssize_t n_components
    int64_t* total
    int32_t* part
    int64_t* square


cdef Columns columns_of(
    const int32_t[::1] indptr, const int32_t[::1] indices, const float[::1] data,
    const float[:, ::1] theta, const float[:, ::1] factor, const float[:, ::1] center,
    const float[::1] word_weight
) noexcept:
    cdef Columns loop
    loop.indptr, loop.indices, loop.data = &indptr[0], &indices[0], &data[0]
    loop.n_words, loop.word_weight = indptr.shape[0] - 1, &word_weight[0]
    loop.tables.padded, loop.tables.theta = theta.shape[1], &theta[0, 0]
    loop.tables.factor, loop.tables.center = &factor[0, 0], &center[0, 0]
    return loop


cdef inline dplda_word tables_of(const Columns* loop, Py_ssize_t v) noexcept nogil:
    cdef dplda_word word = loop.tables
    word.factor += v * word.padded
    word.center += v * word.padded
    return word


cdef void measure_some_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Columns* a = <Columns*>loop
    cdef Py_ssize_t begin, v = piece
    cdef dplda_word word
    while v < a.n_words:
        begin = a.indptr[v]
        if begin < a.indptr[v + 1]:
            word = tables_of(a, v)
            dplda_measure_word(
                in_use, &word, a.indices + begin, a.data + begin, a.word_weight[v],
                a.indptr[v + 1] - begin, a.share + begin, a.length + piece * a.n_docs)
        v += a.n_pieces


def measure_words(
    const int32_t[::1] indptr,           # in: CSC of the documents, of which each is a unit
    const int32_t[::1] indices,          # in: documents
    const float[::1] data,               # in: counts
    const float[:, ::1] theta,           # in: (n_docs, padded) topic weights
    const float[:, ::1] factor,          # in: (n_words, padded) word factor of responsibilities
    const float[:, ::1] center,          # in: (n_words, padded) subtracted from responsibilities
    const float[::1] word_weight,        # in: (n_words,)
    float[::1] share,                    # out: count over the sum of responsibilities, as `data`
    double[:, ::1] length,               # out: (n_pieces, n_docs) squared lengths of contributions
    int n_threads,
):
    """Squared lengths of the documents' contributions: the words i, i + n_pieces, ... in row i."""
    cdef Columns loop = columns_of(indptr, indices, data, theta, factor, center, word_weight)
    loop.share, loop.length = &share[0], &length[0, 0]
    loop.n_pieces, loop.n_docs = length.shape[0], length.shape[1]
    with nogil:
        run_pieces(measure_some_words, &loop, loop.n_pieces, n_threads)


def clip_scales(
    const double[:, ::1] square,         # in: (n_pieces, n_docs) squared lengths, to be added
    const double[::1] doc_scale,         # in: (n_docs,) scale of each document before the clip
    double norm,                         # in: L2 norm at which the radius is reached
    int64_t radius,                      # in: the same norm in integer units, at most 2**30
    float[::1] scale,                    # out: (n_docs,) from floats to integers; 0: left out
):
    """Scale that clips each document's contribution."""
    cdef Py_ssize_t d, i
    cdef double total
    for d in range(square.shape[1]):
        total = 0
        for i in range(square.shape[0]):
            total += square[i, d]
        scale[d] = dplda_scale(sqrt(total), doc_scale[d] / norm, radius)


cdef void add_some_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Columns* a = <Columns*>loop
    cdef Py_ssize_t begin, v = piece
    cdef dplda_word word
    while v < a.n_words:
        begin, word = a.indptr[v], tables_of(a, v)
        dplda_add_word(
            in_use, &word, a.indices + begin, a.data + begin, a.word_weight[v],
            a.indptr[v + 1] - begin, a.share + begin, a.scale, a.radius, a.sign, a.n_components,
            a.total + v * a.n_components, a.part + piece * word.padded,
            a.square + piece * a.n_docs)
        v += a.n_pieces


@cython.boundscheck(False)  # even under sanitizers: the function takes the address of empty arrays
def add_words(
    const int32_t[::1] indptr,           # in: CSC of the documents
    const int32_t[::1] indices,          # in: documents
    const float[::1] data,               # in: counts
    const float[:, ::1] theta,           # in: (n_docs, padded)
    const float[:, ::1] factor,          # in: (n_words, padded)
    const float[:, ::1] center,          # in: (n_words, padded)
    const float[::1] word_weight,        # in: (n_words,)
    const float[::1] share,              # in: of `measure_words`
    const float[::1] scale,              # in: of `clip_scales`
    int64_t radius,                      # in
    int sign,                            # in: 1 to add, -1 to take out
    int64_t[:, ::1] total,               # in/out: (n_words, n_components) rows of the words
    int32_t[:, ::1] part,                # scratch: (n_pieces, padded) zeros before and after
    int64_t[:, ::1] square,              # in/out: (n_pieces, n_docs) sums of squared integers
    int n_threads,
):
    """Add the documents' integer contributions to the rows of the words, times the sign.

    The integers of a document are the same bits in each call with its scale: what was added can be
    taken out.
    """
    cdef Columns loop = columns_of(indptr, indices, data, theta, factor, center, word_weight)
    loop.share, loop.scale, loop.radius, loop.sign = <float*>&share[0], &scale[0], radius, sign
    loop.n_components, loop.total, loop.part = total.shape[1], &total[0, 0], &part[0, 0]
    loop.n_pieces, loop.n_docs, loop.square = square.shape[0], square.shape[1], &square[0, 0]
    with nogil:
        run_pieces(add_some_words, &loop, loop.n_pieces, n_threads)


def add_word_totals(
    const int32_t[::1] indptr,           # in: CSR of the units: word counts of their documents
    const int32_t[::1] indices,          # in
    const float[::1] data,               # in: counts
    const int64_t[::1] units,            # in: the units that take part
    const float[::1] word_weight,        # in: (n_words,)
    const double[::1] unit_scale,        # in: (n_units,) scale of each unit before the clip
    double norm,                         # in: clip: L2 norm at which the radius is reached
    int64_t radius,                      # in: the same norm in integer units, at most 2**30
    int64_t[::1] total,                  # in/out: (n_words,) sum of integer contributions
    float[::1] scratch,                  # scratch: (most words of a unit,)
    int32_t[::1] rounded,                # scratch: (most words of a unit,)
):
    """Add each unit's clipped word counts, in integers of L2 norm at most `radius`."""
    cdef Py_ssize_t r, u, j, begin, n
    cdef double square
    with nogil:
        for r in range(units.shape[0]):
            u = units[r]
            begin = indptr[u]
            n = indptr[u + 1] - begin
            square = 0
            for j in range(n):
                scratch[j] = word_weight[indices[begin + j]] * data[begin + j]
                square += scratch[j] * scratch[j]
            if n and dplda_clip(&scratch[0], n, sqrt(square), unit_scale[u] / norm, radius,
                                &rounded[0]):
                for j in range(n):
                    total[indices[begin + j]] += rounded[j]


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

    A unit is all documents of one user, or any document. The contributions of its documents are
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
