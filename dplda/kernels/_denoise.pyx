"""The public side of a document-level round: average, posterior means, tempering.

Tables are (n_words, n_components). Words do not depend on each other, and threads share them.
Results are the same for every instruction set and number of threads. The loops are in
``_denoise.h``.
"""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

import numpy as np

from dplda.kernels._sets cimport in_use
from dplda.kernels._team cimport Piece, pieces_of, rows_of_piece, run_pieces

cdef extern from "_denoise.h":
    enum:
        EXPECTED "DPLDA_EXPECTED"
        SEEN "DPLDA_SEEN"
        EXPECTED_SHIFT "DPLDA_EXPECTED_SHIFT"
        SEEN_SHIFT "DPLDA_SEEN_SHIFT"
        FIRST_EXPECTED "DPLDA_FIRST_EXPECTED"
        FIRST_SEEN "DPLDA_FIRST_SEEN"
        SEEN_OFFSET "DPLDA_SEEN_OFFSET"
    float node "dplda_node"(int32_t node, int32_t first, int shift) noexcept nogil
    ctypedef struct noisy_table "dplda_noisy_table":
        const double* average
        Py_ssize_t n_topics
        const float* rate
        const float* scale
        const float* center
        Py_ssize_t stride
    void c_count "dplda_count"(
        int set, const noisy_table* t, Py_ssize_t n_words, int64_t* counts) noexcept nogil
    void c_estimate "dplda_estimate"(
        int set, const noisy_table* t, Py_ssize_t first, Py_ssize_t last, const float* means,
        float least, float* table) noexcept nogil
    void c_learn "dplda_learn"(
        int set, int64_t* noisy, const float* table, Py_ssize_t n_topics, Py_ssize_t first,
        Py_ssize_t last, double kept, const double* added, const double* of_table, bint centered,
        const double* average) noexcept nogil
    void c_shares "dplda_shares"(
        int set, const float* table, Py_ssize_t n_topics, Py_ssize_t first, Py_ssize_t last,
        const float* factor, Py_ssize_t padded, float* shares) noexcept nogil
    void c_products "dplda_products"(
        int set, const double* left, Py_ssize_t n_rows, Py_ssize_t row, Py_ssize_t column,
        const double* right, Py_ssize_t n_inner, Py_ssize_t n, double* out) noexcept nogil
    void c_temper "dplda_temper"(int set, float* x, Py_ssize_t n, float power) noexcept nogil


def nodes():
    """The nodes of the means of `estimate`: expected values (97,) and noisy values (320,).

    Both are in units of the noise of the cell.
    """
    expected = [node(i, FIRST_EXPECTED, EXPECTED_SHIFT) for i in range(EXPECTED)]
    seen = [node(i, FIRST_SEEN, SEEN_SHIFT) - SEEN_OFFSET for i in range(SEEN)]
    return np.array(expected, np.float32), np.array(seen, np.float32)


cdef noisy_table bind(
    const double[:, ::1] average,
    const float[::1] rate,
    const float[::1] scale,
    const float[:, :] center,
) except *:
    cdef noisy_table t
    cdef Py_ssize_t n_words = average.shape[0], n_topics = average.shape[1]
    if n_words == 0 or n_topics == 0:
        raise ValueError(f"a table must have cells, got {n_words} words and {n_topics} topics")
    if rate.shape[0] != n_words or scale.shape[0] != n_words or center.shape[0] != n_words:
        raise ValueError("rate, scale and center must have one row a word")
    if center.shape[1] != (n_topics + 15) // 16 * 16 or center.strides[1] != sizeof(float):
        raise ValueError("a row of center must be whole vectors of topics, one after the other")
    t.average, t.n_topics = &average[0, 0], n_topics
    t.rate, t.scale, t.center = &rate[0], &scale[0], &center[0, 0]
    t.stride = center.strides[0] // <Py_ssize_t>sizeof(float)
    return t


cdef int check_words(
    const double[:, ::1] average,
    const float[:, ::1] table,
    Py_ssize_t n_words,
) except -1:
    if average.shape[0] == 0 or average.shape[1] == 0:
        raise ValueError("a table must have cells")
    if table.shape[0] != average.shape[0] or table.shape[1] != average.shape[1]:
        raise ValueError("the tables must have one shape")
    if n_words != average.shape[0]:
        raise ValueError(f"{average.shape[0]} words need as many elements, got {n_words}")
    return 0


def count(
    const double[:, ::1] average,       # in: (n_words, n_components) the noisy table
    const float[::1] rate,              # in: (n_words,) word totals, over `scale`
    const float[::1] scale,             # in: (n_words,) standard deviation of a cell's noise
    const float[:, :] center,           # in: (n_words, n_components to whole vectors) rows of any
                                        # stride, expected shares of topics
    int64_t[:, ::1] out,                # in/out: (97, 320)
):
    """Count the cells at the nearest nodes of the expected and of the noisy values."""
    cdef noisy_table table = bind(average, rate, scale, center)
    if out.shape[0] != EXPECTED or out.shape[1] != SEEN:
        raise ValueError(f"out must be ({EXPECTED}, {SEEN})")
    with nogil:
        c_count(in_use, &table, average.shape[0], &out[0, 0])


cdef struct Words:
    Py_ssize_t n_words
    Py_ssize_t n_topics
    noisy_table noisy                   # of `estimate`
    const float* means
    float least
    int64_t* sums                       # of `learn`
    double kept
    const double* added
    const double* of_table
    bint centered
    const double* average
    const float* factor                 # of `shares`
    Py_ssize_t padded
    float* shares
    double* topic_sums                  # of `topic_sums`
    float power                         # of `temper`
    float* table


cdef Words words_of(Py_ssize_t n_words, Py_ssize_t n_topics) except *:
    cdef Words loop
    if n_words == 0 or n_topics == 0:
        raise ValueError("a table must have cells")
    loop.n_words, loop.n_topics = n_words, n_topics
    return loop


cdef void run_words(Piece piece, Words* loop, int n_threads) noexcept nogil:
    """Call `piece` for each piece of the words."""
    run_pieces(piece, loop, pieces_of(loop.n_words, loop.n_topics), n_threads)


cdef inline Py_ssize_t first_word(Words* loop, Py_ssize_t piece) noexcept nogil:
    return min(piece * rows_of_piece(loop.n_topics), loop.n_words)


cdef void estimate_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Words* a = <Words*>loop
    c_estimate(in_use, &a.noisy, first_word(a, piece), first_word(a, piece + 1), a.means, a.least,
               a.table)


def estimate(
    const double[:, ::1] average,       # in: as for `count`
    const float[::1] rate,              # in
    const float[::1] scale,             # in
    const float[:, :] center,           # in
    const float[:, ::1] means,          # in: (97, 320) posterior means at the nodes, over the noise
    float least,                        # in: added to each cell
    float[:, ::1] table,                # out: (n_words, n_components)
    int n_threads,
):
    """Posterior means of the cells, not negative."""
    cdef Words loop = words_of(average.shape[0], average.shape[1])
    loop.noisy = bind(average, rate, scale, center)
    check_words(average, table, average.shape[0])
    if means.shape[0] != EXPECTED or means.shape[1] != SEEN:
        raise ValueError(f"means must be ({EXPECTED}, {SEEN})")
    loop.means, loop.least, loop.table = &means[0, 0], least, &table[0, 0]
    with nogil:
        run_words(estimate_words, &loop, n_threads)


cdef void learn_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Words* a = <Words*>loop
    c_learn(in_use, a.sums, a.table, a.n_topics, first_word(a, piece), first_word(a, piece + 1),
            a.kept, a.added, a.of_table, a.centered, a.average)


def learn(
    int64_t[:, ::1] noisy,              # in: (n_words, n_components); out: the bits of the new
                                        # average, as float64
    const float[:, ::1] table,          # in: (n_words, n_components) the table before
    double kept,                        # in: the weight of the average so far
    const double[::1] added,            # in: (n_words,) the weight of `noisy`
    const double[::1] of_table,         # in: (n_words,) the weight of the table's shares
    bint centered,                      # in: whether to subtract row means and to add the shares
    const double[:, ::1] average,       # in: (n_words, n_components) the average so far
    int n_threads,
):
    """Turn one round's noisy sum into the average of the rounds, in place."""
    cdef Py_ssize_t n_words = average.shape[0], n_topics = average.shape[1]
    cdef Words loop = words_of(n_words, n_topics)
    check_words(average, table, added.shape[0])
    if noisy.shape[0] != n_words or noisy.shape[1] != n_topics or of_table.shape[0] != n_words:
        raise ValueError("the tables must have one shape")
    loop.sums, loop.table, loop.average = &noisy[0, 0], <float*>&table[0, 0], &average[0, 0]
    loop.kept, loop.added, loop.of_table = kept, &added[0], &of_table[0]
    loop.centered = centered
    with nogil:
        run_words(learn_words, &loop, n_threads)


cdef void shares_of_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Words* a = <Words*>loop
    c_shares(in_use, a.table, a.n_topics, first_word(a, piece), first_word(a, piece + 1), a.factor,
             a.padded, a.shares)


def shares(
    const float[:, ::1] table,          # in: (n_words, n_components)
    const float[::1] factor,            # in: (n_components,), or None
    float[:, ::1] out,                  # out: (n_words, at least n_components); the rest stays
    int n_threads,
):
    """The rows times `factor`, or divided by their sums."""
    cdef Words loop = words_of(table.shape[0], table.shape[1])
    if out.shape[0] != loop.n_words or out.shape[1] < loop.n_topics:
        raise ValueError("out must have room for the table")
    loop.factor = NULL
    if factor is not None:
        if factor.shape[0] != loop.n_topics:
            raise ValueError("factor must have one element a topic")
        loop.factor = &factor[0]
    loop.table, loop.padded, loop.shares = <float*>&table[0, 0], out.shape[1], &out[0, 0]
    with nogil:
        run_words(shares_of_words, &loop, n_threads)


cdef void add_rows(
    const floating* table, Py_ssize_t n_topics, Py_ssize_t first, Py_ssize_t last, double* sums
) noexcept nogil:
    """sums (n_topics,) += the rows of the words first, ..., last - 1, in their order."""
    cdef Py_ssize_t v, k
    for v in range(first, last):
        for k in range(n_topics):
            sums[k] += table[v * n_topics + k]


cdef void add_floats(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Words* a = <Words*>loop
    add_rows(a.table, a.n_topics, first_word(a, piece), first_word(a, piece + 1),
             a.topic_sums + piece * a.n_topics)


cdef void add_doubles(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Words* a = <Words*>loop
    add_rows(a.average, a.n_topics, first_word(a, piece), first_word(a, piece + 1),
             a.topic_sums + piece * a.n_topics)


def topic_sums(const floating[:, ::1] table, int n_threads):  # in: (n_words, n_components)
    """Sums of the rows of each piece, (n_pieces, n_components), in their order."""
    cdef Words loop = words_of(table.shape[0], table.shape[1])
    found = np.zeros((pieces_of(loop.n_words, loop.n_topics), loop.n_topics))
    cdef double[:, ::1] sums = found
    loop.topic_sums = &sums[0, 0]
    if floating is float:
        loop.table = <float*>&table[0, 0]
    else:
        loop.average = &table[0, 0]
    with nogil:
        run_words(add_floats if floating is float else add_doubles, &loop, n_threads)
    return found


cdef void temper_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Words* a = <Words*>loop
    cdef Py_ssize_t first = first_word(a, piece), last = first_word(a, piece + 1)
    c_temper(in_use, a.table + first * a.n_topics, (last - first) * a.n_topics, a.power)


def temper(
    float[:, ::1] table,                # in/out: not negative
    float power,                        # in: above 0, at most 1
    int n_threads,
):
    """Raise each element to a power, in place; relative error below 2e-5, 0 stays 0."""
    cdef Words loop = words_of(table.shape[0], table.shape[1])
    loop.table, loop.power = &table[0, 0], power
    with nogil:
        run_words(temper_words, &loop, n_threads)


def products(
    const double[:, :] left,            # in: (n_rows, n_inner), of any strides
    const double[:, ::1] right,         # in: (n_inner, n_columns)
    double[:, ::1] out,                 # out: (n_rows, n_columns)
):
    """The product of two matrices. Each sum runs from the first element to the last."""
    cdef Py_ssize_t n_rows = left.shape[0], n_inner = right.shape[0], n = right.shape[1]
    cdef Py_ssize_t size = sizeof(double)
    if left.shape[1] != n_inner or out.shape[0] != n_rows or out.shape[1] != n:
        raise ValueError("the shapes must be those of a product of matrices")
    if n_rows == 0 or n_inner == 0 or n == 0 or left.strides[0] % size or left.strides[1] % size:
        raise ValueError("the matrices must have elements, whole doubles apart")
    with nogil:
        c_products(in_use, &left[0, 0], n_rows, left.strides[0] // size, left.strides[1] // size,
                   &right[0, 0], n_inner, n, &out[0, 0])
