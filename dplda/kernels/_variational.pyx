"""Fold-in kernels: a document's topic weights under a fixed table, and its contribution to a sum.

Documents are rows of a CSR matrix. Tables are (n_words, padded), where the padding (to a multiple
of 16 topics) is zero. Rows do not depend on each other, and threads share them.

Contributions go through `narrow`, `measure_words`, `clip_scales` and `add_words`, word by word. The
loops are in ``_fold_in.h`` and ``_contributions.h``, compiled for each instruction set. All sets
give the same bits.
"""

cimport cython
from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from dplda.kernels._sets cimport in_use
from dplda.kernels._team cimport pieces_of, rows_of_piece, run_pieces


cdef extern from "_variational.h" nogil:
    """
    #define dplda_fold_in(set, ...) DPLDA_CALL(fold_in, set)(__VA_ARGS__)
    #define dplda_relative(set, ...) DPLDA_CALL(relative, set)(__VA_ARGS__)
    #define dplda_narrow(set, ...) DPLDA_CALL(narrow, set)(__VA_ARGS__)
    #define dplda_narrow_bytes(set, ...) DPLDA_CALL(narrow_bytes, set)(__VA_ARGS__)
    #define dplda_measure_word(set, ...) DPLDA_CALL(measure_word, set)(__VA_ARGS__)
    #define dplda_center_square(set, ...) DPLDA_CALL(center_square, set)(__VA_ARGS__)
    #define dplda_add_lengths(set, ...) DPLDA_CALL(add_lengths, set)(__VA_ARGS__)
    #define dplda_add_word(set, ...) DPLDA_CALL(add_word, set)(__VA_ARGS__)
    """
    ctypedef struct dplda_inference:
        const float* phi
        const uint8_t* bytes
        Py_ssize_t padded
        Py_ssize_t n_components
        float prior
        Py_ssize_t max_iter
        float tol
        bint variational
        const float* inverse_size
        float least
    ctypedef struct dplda_document:
        Py_ssize_t n
        const int32_t* word
        const float* count
        float* theta
    Py_ssize_t dplda_row(const dplda_inference* all)
    enum:
        DPLDA_NEAR
    ctypedef struct dplda_word:
        const int16_t* theta
        const int16_t* factor
        const int16_t* center
        const int32_t* doc
        const int32_t* unit
        bint several
        const float* count
        float weight
        Py_ssize_t n_entries
    ctypedef struct dplda_sum:
        const float* scale
        int shift
        int sign
        int64_t* total
        Py_ssize_t n_topics
        int64_t* square
    bint dplda_clip(const float* value, int64_t size, double length, double relative,
                    int64_t radius, int32_t* out)
    void dplda_fold_in(
        int set, const dplda_inference* all, dplda_document* docs, int m, float* scratch,
        uint8_t* copy, const int32_t* numbers)
    Py_ssize_t dplda_chunk(Py_ssize_t n)
    float dplda_relative(int set, const float* row, Py_ssize_t padded, float size)
    void dplda_narrow(
        int set, const float* row, Py_ssize_t k, Py_ssize_t padded, float factor, Py_ssize_t width,
        int16_t* to)
    void dplda_narrow_bytes(int set, const float* row, Py_ssize_t padded, uint8_t* to)
    void dplda_measure_word(
        int set, const dplda_word* word, Py_ssize_t width, bint first, int32_t* sum,
        float* squares, float* products)
    float dplda_center_square(int set, const int16_t* center, Py_ssize_t width)
    void dplda_add_lengths(
        int set, const dplda_word* word, float center, const int32_t* sum, const float* squares,
        const float* products, double* length)
    void dplda_add_word(
        int set, const dplda_word* word, const dplda_sum* to, Py_ssize_t width,
        const int32_t* sum)
    int64_t DPLDA_LARGEST_SQUARE


LARGEST_SQUARE = DPLDA_LARGEST_SQUARE    # sums of squares of a unit stop here in each thread

cdef enum:
    DOCUMENTS = 8                        # of a piece; DPLDA_TOGETHER

cdef struct Inference:
    dplda_inference all
    const int32_t* indptr
    const int32_t* indices
    const float* data
    const int64_t* rows
    Py_ssize_t n_rows
    float* theta
    float* scratch
    Py_ssize_t n_scratch                 # of a thread
    uint8_t* copies                      # or NULL
    Py_ssize_t size                      # of a thread's copy
    const int32_t* numbers


cdef void infer_documents(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Inference* a = <Inference*>loop
    cdef Py_ssize_t r = piece * DOCUMENTS, end = min(r + DOCUMENTS, a.n_rows)
    cdef Py_ssize_t d, begin, n_bytes, row
    cdef dplda_document docs[DOCUMENTS]
    cdef dplda_document* doc
    cdef int m
    row = dplda_row(&a.all) if a.all.bytes else 4 * a.all.padded
    while r < end:
        m = 0
        n_bytes = 0
        # documents whose rows stay near together, or one
        while r < end and m < (1 if a.copies else DOCUMENTS):
            d = a.rows[r]
            begin = a.indptr[d]
            doc = docs + m
            doc.n = a.indptr[d + 1] - begin
            n_bytes += doc.n * row
            if m and n_bytes > DPLDA_NEAR:
                break
            doc.word, doc.count = a.indices + begin, a.data + begin
            doc.theta = a.theta + d * a.all.padded
            m += 1
            r += 1
        dplda_fold_in(
            in_use, &a.all, docs, m, a.scratch + thread * a.n_scratch,
            a.copies + thread * a.size if a.copies else NULL, a.numbers)


@cython.boundscheck(False)  # even under sanitizers: the function takes the address of empty arrays
def fold_in(
    X,                                   # in: CSR of the documents; float32, int32 indices
    const int64_t[::1] rows,             # in: the documents to work on, each at most once
    float[:, ::1] theta,                 # in/out: (n_docs, padded) topic weights, warm start
    inference,                           # in: the `Inference` of ``dplda.core._fold_in``
    const uint8_t[:, ::1] bytes,         # in: its table from `narrow`; empty: floats are read
    float[:, ::1] scratch,               # scratch: (n_threads, 49 * padded)
    uint8_t[:, ::1] copies,              # scratch: (n_threads, words * padded to 32), if documents
                                         # leave out own counts; else empty
    const int32_t[::1] numbers,          # in: 0, 1, ..., as many as the words of a document
):
    """Infer the topic weights of documents under a fixed table, in as many threads as scratch has.

    In the end `theta` holds weights that sum to 1, or exp(E[log theta]) if `variational`. With
    `own` counts, a document whose weights differ reads the table minus what it added to the table
    with these weights.
    """
    cdef const int32_t[::1] indptr = X.indptr, indices = X.indices
    cdef const float[::1] data = X.data, inverse_sizes = None
    cdef const float[:, ::1] phi = inference.phi
    cdef Inference loop
    cdef int n_threads = <int>scratch.shape[0]
    cdef Py_ssize_t r, longest = 0, padded = theta.shape[1], n_topics = (padded + 31) // 32 * 32
    for r in range(rows.shape[0]):
        longest = max(longest, indptr[rows[r] + 1] - indptr[rows[r]])
    if phi.shape[1] != padded or scratch.shape[0] == 0 or scratch.shape[1] != 49 * padded:
        raise ValueError("phi must have the topics of theta, and scratch 49 rows for each thread")
    if bytes.shape[0] and (bytes.shape[0] != phi.shape[0] or bytes.shape[1] != n_topics or
                           n_topics > 1 << 16):
        raise ValueError("bytes must have the shape of phi")
    if copies.shape[0] and (
            bytes.shape[0] == 0 or copies.shape[0] != n_threads or
            copies.shape[1] < longest * n_topics or numbers.shape[0] < longest):
        raise ValueError("copies must have room for the bytes of the longest document")
    loop.all.inverse_size, loop.all.least = NULL, 0
    if inference.own is not None:
        inverse_sizes = inference.own.inverse_sizes
        if inverse_sizes.shape[0] != padded or copies.shape[0] == 0:
            raise ValueError("bytes must have copies, and inverse_sizes the topics")
        loop.all.inverse_size = &inverse_sizes[0]
        loop.all.least = inference.own.least
    loop.indptr, loop.indices, loop.data = &indptr[0], &indices[0], &data[0]
    loop.rows, loop.n_rows = &rows[0], rows.shape[0]
    loop.theta = &theta[0, 0]
    loop.scratch, loop.n_scratch = &scratch[0, 0], scratch.shape[1]
    loop.copies = &copies[0, 0] if copies.shape[0] else NULL
    loop.size, loop.numbers = copies.shape[1], &numbers[0]
    loop.all.phi, loop.all.padded = &phi[0, 0], padded
    loop.all.bytes = &bytes[0, 0] if bytes.shape[0] else NULL
    loop.all.n_components = inference.n_components
    loop.all.prior = inference.doc_topic_prior
    loop.all.max_iter = inference.steps.most
    loop.all.tol = inference.steps.tolerance
    loop.all.variational = inference.variational
    with nogil:
        run_pieces(
            infer_documents, &loop, (loop.n_rows + DOCUMENTS - 1) // DOCUMENTS, n_threads)


ctypedef fused integer:
    int16_t
    uint8_t

cdef struct Narrowing:
    const float* table
    Py_ssize_t n_rows
    Py_ssize_t padded
    float size
    int16_t* chunks                      # or
    uint8_t* bytes
    Py_ssize_t n_topics                  # with the padding of the result


cdef void narrow_rows(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Narrowing* a = <Narrowing*>loop
    cdef Py_ssize_t i, k, width, size = rows_of_piece(a.n_topics)
    cdef const float* row
    cdef float factor
    for i in range(piece * size, min((piece + 1) * size, a.n_rows)):
        row, factor, k = a.table + i * a.padded, 32767, 0
        if a.bytes != NULL:
            dplda_narrow_bytes(in_use, row, a.padded, a.bytes + i * a.n_topics)
            continue
        if a.size:
            factor = dplda_relative(in_use, row, a.padded, a.size)
        while k < a.n_topics:
            width = dplda_chunk(a.n_topics - k)
            dplda_narrow(
                in_use, row, k, a.padded, factor, width, a.chunks + k * a.n_rows + i * width)
            k += width


def narrow(
    const float[:, ::1] table,           # in: (n_rows, padded)
    float size,                          # in: of the largest of each row; 0: 1 becomes 32767
    integer[:, ::1] integers,            # out: (n_rows, padded to 32), chunk by chunk, or rows of
                                         # bytes, of which the largest is 255
    int n_threads,
):
    """Round a table to integers, at most 32767. With a size, a row that is not finite is 0."""
    cdef Narrowing loop
    loop.n_rows, loop.padded, loop.n_topics = table.shape[0], table.shape[1], integers.shape[1]
    if integers.shape[0] != loop.n_rows or not 0 <= loop.n_topics - loop.padded <= 16 or (
            loop.n_topics % 32 or loop.padded % 16):
        raise ValueError("integers must have the rows and topics of the table")
    if loop.n_rows == 0:
        return
    loop.table, loop.size, loop.chunks, loop.bytes = &table[0, 0], size, NULL, NULL
    if integer is uint8_t:
        loop.bytes = &integers[0, 0]
    else:
        loop.chunks = &integers[0, 0]
    with nogil:
        run_pieces(narrow_rows, &loop, pieces_of(loop.n_rows, loop.n_topics), n_threads)


cdef struct Columns:
    const int32_t* indptr
    Py_ssize_t n_words
    Py_ssize_t n_units
    Py_ssize_t n_pieces
    dplda_word first                     # word 0, in the first chunk
    const float* word_weight
    int32_t* sum
    float* scratch                       # of `measure_words`
    Py_ssize_t n_scratch                 # half of the row of a thread
    double* length
    dplda_sum to                         # of `add_words`: row 0 of the total
    Py_ssize_t n_components
    Py_ssize_t chunk                     # first topic of the chunk
    Py_ssize_t width
    Py_ssize_t n_topics                  # with the padding


cdef Columns columns_of(
    const int32_t[::1] indptr, const int32_t[::1] indices, const float[::1] data,
    const int32_t[::1] units, const int16_t[:, ::1] theta, const int16_t[:, ::1] factor,
    const int16_t[:, ::1] center, const float[::1] word_weight, const int32_t[::1] sums
):
    cdef Columns loop
    cdef Py_ssize_t n_words = indptr.shape[0] - 1
    loop.n_topics = theta.shape[1]
    if loop.n_topics % 32 or not 0 < loop.n_topics <= 1 << 16:
        raise ValueError("tables must have a multiple of 32 topics, at most 2**16")
    if factor.shape[1] != loop.n_topics or center.shape[1] != loop.n_topics or (
            factor.shape[0] != n_words or center.shape[0] != n_words):
        raise ValueError("factor and center must have a row for each word, and the topics of theta")
    loop.indptr, loop.n_words, loop.word_weight = &indptr[0], n_words, &word_weight[0]
    loop.first.doc, loop.first.count, loop.first.unit = &indices[0], &data[0], &units[0]
    loop.first.several = &units[0] != &indices[0]
    loop.first.theta, loop.first.factor = &theta[0, 0], &factor[0, 0]
    loop.first.center, loop.sum = &center[0, 0], <int32_t*>&sums[0]
    loop.chunk, loop.width = 0, dplda_chunk(loop.n_topics)
    return loop


cdef bint next_chunk(Columns* loop, Py_ssize_t n_docs) noexcept nogil:
    """Move to the next chunk, if there is one."""
    loop.first.theta += n_docs * loop.width
    loop.first.factor += loop.n_words * loop.width
    loop.first.center += loop.n_words * loop.width
    loop.chunk += loop.width
    loop.width = dplda_chunk(loop.n_topics - loop.chunk)
    return loop.chunk < loop.n_topics


cdef inline dplda_word word_of(const Columns* loop, Py_ssize_t v) noexcept nogil:
    cdef dplda_word word = loop.first
    cdef Py_ssize_t begin = loop.indptr[v]
    word.factor += v * loop.width
    word.center += v * loop.width
    word.doc += begin
    word.unit += begin
    word.count += begin
    word.weight = loop.word_weight[v]
    word.n_entries = loop.indptr[v + 1] - begin
    return word


cdef enum:
    WORDS = 16                           # in sequence, of a piece
    PIECES = 16                          # of `add_words`


cdef inline Py_ssize_t first_word(Py_ssize_t piece) noexcept nogil:
    return piece * WORDS


cdef inline Py_ssize_t next_word(Py_ssize_t v, Py_ssize_t n_pieces) noexcept nogil:
    return v + 1 if (v + 1) % WORDS else v + 1 + (n_pieces - 1) * WORDS


cdef void measure_some_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Columns* a = <Columns*>loop
    cdef Py_ssize_t begin, k, width, v = first_word(piece)
    cdef dplda_word word
    cdef float square
    cdef float* squares
    if a.chunk + a.width == a.n_topics:
        memset(a.length + piece * a.n_units, 0, a.n_units * sizeof(double))
    while v < a.n_words:
        begin, word = a.indptr[v], word_of(a, v)
        # from chunk to chunk, every entry keeps its own
        squares = a.scratch + (2 * thread * a.n_scratch if a.width == a.n_topics else begin)
        if word.n_entries:
            dplda_measure_word(
                in_use, &word, a.width, a.chunk == 0, a.sum + begin, squares,
                squares + a.n_scratch)
            if a.chunk + a.width == a.n_topics:
                k, square, word.center = 0, 0, a.first.center - a.n_words * a.chunk
                while k < a.n_topics:
                    width = dplda_chunk(a.n_topics - k)
                    square += dplda_center_square(
                        in_use, word.center + k * a.n_words + v * width, width)
                    k += width
                dplda_add_lengths(
                    in_use, &word, square * <float>2**-30, a.sum + begin, squares,
                    squares + a.n_scratch, a.length + piece * a.n_units)
        v = next_word(v, a.n_pieces)


def measure_words(
    const int32_t[::1] indptr,           # in: CSC of the documents
    const int32_t[::1] indices,          # in: documents, in increasing order in each column
    const float[::1] data,               # in: counts
    const int32_t[::1] units,            # in: of the documents, increasing in each column
    const int16_t[:, ::1] theta,         # in: (n_docs, padded) topic weights, as from `narrow`
    const int16_t[:, ::1] factor,        # in: (n_words, padded) word factor of responsibilities
    const int16_t[:, ::1] center,        # in: (n_words, padded) subtracted from responsibilities
    const float[::1] word_weight,        # in: (n_words,)
    int32_t[::1] sums,                   # out: of responsibilities, exact, as `data`
    float[:, ::1] scratch,               # scratch: (n_threads, 2 longest columns), or (1, 2 data)
    double[:, ::1] length,               # out: (n_pieces, n_units) squared lengths
    int n_threads,
):
    """Squared lengths of the units' contributions: the words of piece i in row i.

    They are floats. That of a unit of several documents is a bound: of a sum of such floats.
    """
    cdef Columns loop = columns_of(
        indptr, indices, data, units, theta, factor, center, word_weight, sums)
    loop.scratch, loop.n_scratch = &scratch[0, 0], scratch.shape[1] // 2
    loop.n_pieces, loop.n_units, loop.length = length.shape[0], length.shape[1], &length[0, 0]
    with nogil:
        run_pieces(measure_some_words, &loop, loop.n_pieces, n_threads)
        while next_chunk(&loop, theta.shape[0]):
            run_pieces(measure_some_words, &loop, loop.n_pieces, n_threads)


def clip_scales(
    const double[:, ::1] square,         # in: (n_pieces, n_units) squared lengths, to be added
    const double[::1] relative,          # in: (n_units,) scale before the clip, over its norm
    double most,                         # in: the length that stands for the norm
    double nearly,                       # in: the longest that comes out
    float[::1] scale,                    # out: (n_units,) from floats to integers; 0: left out
):
    """Scale that clips each unit's contribution."""
    cdef Py_ssize_t u, i
    cdef double length, unclipped
    for u in range(square.shape[1]):
        length = 0
        for i in range(square.shape[0]):
            length += square[i, u]
        length, unclipped = sqrt(length), most * relative[u]
        scale[u] = 0
        if length < INFINITY and 0 <= relative[u] < INFINITY:
            scale[u] = <float>(unclipped if unclipped * length <= nearly else nearly / length)


cdef void add_some_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Columns* a = <Columns*>loop
    cdef Py_ssize_t v = first_word(piece)
    cdef dplda_word word
    cdef dplda_sum to = a.to
    to.n_topics = min(a.width, a.n_components - a.chunk)
    to.square += thread * a.n_units
    while v < a.n_words:
        word = word_of(a, v)
        if word.n_entries:
            to.total = a.to.total + v * a.n_components + a.chunk
            dplda_add_word(in_use, &word, &to, a.width, a.sum + a.indptr[v])
        v = next_word(v, a.n_pieces)


def add_words(
    const int32_t[::1] indptr,           # in: as for `measure_words`
    const int32_t[::1] indices,          # in
    const float[::1] data,               # in
    const int32_t[::1] units,            # in
    const int16_t[:, ::1] theta,         # in
    const int16_t[:, ::1] factor,        # in
    const int16_t[:, ::1] center,        # in
    const float[::1] word_weight,        # in
    const int32_t[::1] sums,             # in: of `measure_words`
    const float[::1] scale,              # in: (n_units,) of `clip_scales`
    int shift,                           # in: an integer of the sum stands for 2**shift
    int sign,                            # in: 1 to add, -1 to take out, 0 for the squares alone
    int64_t[:, ::1] total,               # in/out: (n_words, n_components) rows of the words
    int64_t[:, ::1] square,              # in/out: (n_threads, n_units) sums of squared integers;
                                         # at most 16 threads, or sums might wrap around
):
    """Add the units' integer contributions to the rows of the words, times the sign.

    Each call with the same scale adds the same integers for a unit, so a later call can take them
    out. Squares are in units of 4**shift, exact up to `LARGEST_SQUARE`, where they stop.
    """
    cdef int n_threads = <int>square.shape[0]
    cdef Columns loop = columns_of(
        indptr, indices, data, units, theta, factor, center, word_weight, sums)
    loop.to.scale, loop.to.shift, loop.to.sign = &scale[0], shift, sign
    loop.to.total, loop.to.square, loop.n_components = &total[0, 0], &square[0, 0], total.shape[1]
    loop.n_pieces, loop.n_units = PIECES, square.shape[1]
    if not 0 <= loop.n_topics - loop.n_components < 32 or not 0 <= shift <= 30:
        raise ValueError("total must have the topics of theta, and shift be at most 30")
    if not 0 < n_threads <= PIECES:
        raise ValueError("square must have a row for each of at most 16 threads")
    with nogil:
        run_pieces(add_some_words, &loop, loop.n_pieces, n_threads)
        while next_chunk(&loop, theta.shape[0]):
            run_pieces(add_some_words, &loop, loop.n_pieces, n_threads)


cdef struct WordTotals:
    const int32_t* indptr
    const int32_t* indices
    const float* data
    const int64_t* units
    const float* word_weight
    const double* unit_scale
    double norm
    int64_t radius
    Py_ssize_t n_units
    int64_t* total                      # (n_threads, n_words)
    Py_ssize_t n_words
    float* scratch                      # (n_threads, longest)
    int32_t* rounded
    Py_ssize_t longest


cdef void add_some_totals(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef WordTotals* a = <WordTotals*>loop
    cdef int64_t* total = a.total + thread * a.n_words
    cdef float* scratch = a.scratch + thread * a.longest
    cdef int32_t* rounded = a.rounded + thread * a.longest
    cdef Py_ssize_t r, u, i, n
    cdef const int32_t* words
    cdef const float* counts
    cdef double square
    for r in range(piece * DOCUMENTS, min((piece + 1) * DOCUMENTS, a.n_units)):
        u = a.units[r]
        words, counts = a.indices + a.indptr[u], a.data + a.indptr[u]
        n, square = a.indptr[u + 1] - a.indptr[u], 0
        for i in range(n):
            scratch[i] = a.word_weight[words[i]] * counts[i]
            square += scratch[i] * scratch[i]
        if n and dplda_clip(
                scratch, n, sqrt(square), a.unit_scale[u] / a.norm, a.radius, rounded):
            for i in range(n):
                total[words[i]] += rounded[i]


def add_word_totals(
    const int32_t[::1] indptr,           # in: CSR of the units: word counts of their documents
    const int32_t[::1] indices,          # in
    const float[::1] data,               # in: counts
    const int64_t[::1] units,            # in: the units that take part
    const float[::1] word_weight,        # in: (n_words,)
    const double[::1] unit_scale,        # in: (n_units,) scale of each unit before the clip
    double norm,                         # in: clip: L2 norm at which the radius is reached
    int64_t radius,                      # in: the same norm in integer units, at most 2**30
    int64_t[:, ::1] total,               # in/out: (n_threads, n_words) to be added up
    float[:, ::1] scratch,               # scratch: (n_threads, most words of a unit)
    int32_t[:, ::1] rounded,             # scratch: the same
):
    """Add each unit's clipped word counts, in integers of L2 norm at most `radius`."""
    cdef WordTotals loop
    cdef int n_threads = <int>total.shape[0]
    if not data.shape[0] or not units.shape[0]:
        return
    loop.indptr, loop.indices, loop.data = &indptr[0], &indices[0], &data[0]
    loop.units, loop.n_units, loop.unit_scale = &units[0], units.shape[0], &unit_scale[0]
    loop.word_weight, loop.norm, loop.radius = &word_weight[0], norm, radius
    loop.total, loop.n_words = &total[0, 0], total.shape[1]
    loop.scratch, loop.rounded, loop.longest = &scratch[0, 0], &rounded[0, 0], scratch.shape[1]
    with nogil:
        run_pieces(add_some_totals, &loop, (loop.n_units + DOCUMENTS - 1) // DOCUMENTS, n_threads)
