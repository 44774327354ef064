"""The public side of a document-level round: average, posterior means, tempering.

Tables are (n_words, n_components). Words do not depend on each other, and threads share them.
Results are the same for every instruction set and number of threads. The loops are in
``_denoise.h``.
"""

from cython cimport floating
from libc.stdint cimport int64_t, uint8_t

import numpy as np

from dplda.kernels._sets cimport in_use
from dplda.kernels._team cimport Piece, pieces_of, rows_of_piece, run_pieces

cdef extern from "_denoise.h":
    enum:
        FACTORS "DPLDA_FACTORS"
    ctypedef struct noisy_table "dplda_noisy_table":
        const double* average
        Py_ssize_t n_topics
        const float* rate
        const float* scale
        const float* sizes
        const float* factors
        const float* shares
        const float* gains
    void c_likelihood "dplda_likelihood"(
        int set, const noisy_table* t, const int64_t* words, Py_ssize_t n_vectors,
        Py_ssize_t stride, float* likelihood) noexcept nogil
    void c_expectation "dplda_expectation"(
        int set, const float* likelihood, Py_ssize_t n_vectors, int n_centers,
        const double* prior, double* sums) noexcept nogil
    void c_estimate "dplda_estimate"(
        int set, const noisy_table* t, Py_ssize_t first, Py_ssize_t last, const float* prior,
        const uint8_t* class_of, float least, float* table) noexcept nogil
    void c_learn "dplda_learn"(
        int set, const int64_t* noisy, Py_ssize_t stride, const float* table, Py_ssize_t n_topics,
        Py_ssize_t first, Py_ssize_t last, double kept, const double* added,
        const double* of_table, bint centered, double* average) noexcept nogil
    void c_shares "dplda_shares"(
        int set, const float* table, Py_ssize_t n_topics, Py_ssize_t first, Py_ssize_t last,
        const float* factor, Py_ssize_t padded, float* shares) noexcept nogil
    void c_temper "dplda_temper"(int set, float* x, Py_ssize_t n, float power) noexcept nogil


cdef noisy_table bind(
    const double[:, ::1] average,
    const float[::1] rate,
    const float[::1] scale,
    const float[::1] sizes,
    const float[::1] factors,
    const float[:, ::1] shares,
    const float[::1] gains,
) except *:
    cdef noisy_table t
    cdef Py_ssize_t n_words = average.shape[0], n_topics = average.shape[1]
    if n_words == 0 or n_topics == 0:
        raise ValueError(f"a table must have cells, got {n_words} words and {n_topics} topics")
    if rate.shape[0] != n_words or scale.shape[0] != n_words:
        raise ValueError("rate and scale must have one element a word")
    if sizes.shape[0] != (n_topics + 15) // 16 * 16 or factors.shape[0] != FACTORS:
        raise ValueError(f"sizes must have whole vectors of topics, and factors {FACTORS} elements")
    t.average, t.n_topics = &average[0, 0], n_topics
    t.rate, t.scale, t.sizes, t.factors = &rate[0], &scale[0], &sizes[0], &factors[0]
    t.shares, t.gains = NULL, NULL
    if shares is not None:
        if shares.shape[0] != n_words or shares.shape[1] != sizes.shape[0]:
            raise ValueError("shares must have a row of whole vectors a word")
        if gains is None or gains.shape[0] != sizes.shape[0]:
            raise ValueError("gains must have as many elements as sizes")
        t.shares, t.gains = &shares[0, 0], &gains[0]
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


cdef struct Classes:
    noisy_table table
    const int64_t* words
    const int64_t* first
    const int64_t* stride
    const int64_t* ptr
    Py_ssize_t size                     # floats of a vector
    int n_centers
    const double* prior
    float* likelihood
    double* sums


cdef void likelihood_of_class(void* loop, Py_ssize_t c, int thread) noexcept nogil:
    cdef Classes* a = <Classes*>loop
    c_likelihood(in_use, &a.table, a.words + a.first[c], a.ptr[c + 1] - a.ptr[c], a.stride[c],
                 a.likelihood + a.ptr[c] * a.size)


def likelihood(
    const double[:, ::1] average,       # in: (n_words, n_components) the noisy table
    const float[::1] rate,              # in: (n_words,) share of all tokens, over `scale`
    const float[::1] scale,             # in: (n_words,) standard deviation of a cell's noise
    const float[::1] sizes,             # in: (n_components to whole vectors,) topic sizes, then 0
    const float[::1] factors,           # in: (14,)
    const float[:, ::1] shares,         # in: (n_words, as sizes) public p(topic | word), or None
    const float[::1] gains,             # in: (as sizes) of a second center shares * gains * rate
    const int64_t[::1] words,           # in: the words of all classes, one class after the other
    const int64_t[::1] first,           # in: (n_classes,) the first word of each class
    const int64_t[::1] stride,          # in: (n_classes,) every how many vectors of 16 to take
    const int64_t[::1] ptr,             # in: (n_classes + 1,) where the vectors of a class begin
    float[:, :, ::1] out,               # out: (n_vectors, 14 or 28, 16)
    int n_threads,
):
    """Likelihood under each component of a part of the cells of each class of words.

    The components are the factors of the center sizes * rate and, if there are shares, those of the
    second center.
    """
    cdef Classes loop
    cdef Py_ssize_t n_found = FACTORS if shares is None else 2 * FACTORS
    cdef Py_ssize_t c, n_words, n_classes = first.shape[0], per_word = sizes.shape[0] // 16
    loop.table = bind(average, rate, scale, sizes, factors, shares, gains)
    if stride.shape[0] != n_classes or ptr.shape[0] != n_classes + 1 or ptr[0] != 0:
        raise ValueError("each class must have a stride and a place")
    if out.shape[0] != ptr[n_classes] or out.shape[1] != n_found or out.shape[2] != 16:
        raise ValueError(f"out must have room for vectors of ({n_found}, 16)")
    for c in range(n_classes):
        n_words = (first[c + 1] if c + 1 < n_classes else words.shape[0]) - first[c]
        if first[c] < 0 or n_words < 1 or stride[c] < 1:
            raise ValueError("a class must have words, and a stride")
        if ptr[c + 1] - ptr[c] != (n_words * per_word + stride[c] - 1) // stride[c]:
            raise ValueError("out must have room for every vector")
    loop.words, loop.first, loop.stride, loop.ptr = &words[0], &first[0], &stride[0], &ptr[0]
    loop.size, loop.likelihood = 16 * n_found, &out[0, 0, 0]
    with nogil:
        run_pieces(likelihood_of_class, &loop, n_classes, n_threads)


cdef void expectation_of_class(void* loop, Py_ssize_t c, int thread) noexcept nogil:
    cdef Classes* a = <Classes*>loop
    cdef Py_ssize_t n_found = a.n_centers * FACTORS
    c_expectation(in_use, a.likelihood + a.ptr[c] * a.size, a.ptr[c + 1] - a.ptr[c], a.n_centers,
                  a.prior + c * n_found, a.sums + c * n_found)


def expectation(
    const float[:, :, ::1] likelihood,  # in: (n_vectors, 14 or 28, 16)
    const int64_t[::1] ptr,             # in: (n_classes + 1,) where the vectors of a class begin
    const double[:, ::1] prior,         # in: (n_classes, 14 or 28)
    double[:, ::1] sums,                # out: as prior
    int n_threads,
):
    """Sums over the cells of each class of likelihood / evidence: an E-step."""
    cdef Classes loop
    cdef Py_ssize_t c, n_classes = prior.shape[0], n_found = likelihood.shape[1]
    cdef int n_centers = 1 if n_found == FACTORS else 2
    if n_found != n_centers * FACTORS or likelihood.shape[2] != 16:
        raise ValueError(f"vectors must be ({FACTORS}, 16) or ({2 * FACTORS}, 16)")
    if prior.shape[1] != n_found or sums.shape[0] != n_classes or sums.shape[1] != n_found:
        raise ValueError(f"prior and sums must have {n_found} columns")
    if ptr.shape[0] != n_classes + 1 or ptr[0] != 0 or ptr[n_classes] != likelihood.shape[0]:
        raise ValueError("each vector must have a class")
    for c in range(n_classes):
        if ptr[c] >= ptr[c + 1]:
            raise ValueError("a class must have vectors")
    loop.likelihood, loop.size, loop.ptr = <float*>&likelihood[0, 0, 0], 16 * n_found, &ptr[0]
    loop.n_centers, loop.prior, loop.sums = n_centers, &prior[0, 0], &sums[0, 0]
    with nogil:
        run_pieces(expectation_of_class, &loop, n_classes, n_threads)


cdef struct Words:
    Py_ssize_t n_words
    Py_ssize_t n_topics
    noisy_table noisy                   # of `estimate`
    const float* prior
    const uint8_t* class_of
    float least
    const int64_t* sums                 # of `learn`
    Py_ssize_t stride
    double kept
    const double* added
    const double* of_table
    bint centered
    double* average
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
    c_estimate(in_use, &a.noisy, first_word(a, piece), first_word(a, piece + 1), a.prior,
               a.class_of, a.least, a.table)


def estimate(
    const double[:, ::1] average,       # in: as for `likelihood`
    const float[::1] rate,              # in
    const float[::1] scale,             # in
    const float[::1] sizes,             # in
    const float[::1] factors,           # in
    const float[:, ::1] shares,         # in
    const float[::1] gains,             # in
    const float[:, ::1] prior,          # in: (n_classes, 14 or 28)
    const uint8_t[::1] class_of,        # in: (n_words,)
    float least,                        # in: added to each cell
    float[:, ::1] table,                # out: (n_words, n_components)
    int n_threads,
):
    """Posterior means of the cells, not negative."""
    cdef Words loop = words_of(average.shape[0], average.shape[1])
    cdef Py_ssize_t word, n_found = FACTORS if shares is None else 2 * FACTORS
    loop.noisy = bind(average, rate, scale, sizes, factors, shares, gains)
    check_words(average, table, class_of.shape[0])
    if prior.shape[1] != n_found:
        raise ValueError(f"the prior must have {n_found} columns, got {prior.shape[1]}")
    for word in range(loop.n_words):
        if class_of[word] >= prior.shape[0]:
            raise ValueError("the prior must have a row for each class")
    loop.prior, loop.class_of = &prior[0, 0], &class_of[0]
    loop.least, loop.table = least, &table[0, 0]
    with nogil:
        run_words(estimate_words, &loop, n_threads)


cdef void learn_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Words* a = <Words*>loop
    c_learn(in_use, a.sums, a.stride, a.table, a.n_topics, first_word(a, piece),
            first_word(a, piece + 1), a.kept, a.added, a.of_table, a.centered, a.average)


def learn(
    const int64_t[:, :] noisy,          # in: (n_words, n_components), rows of any stride
    const float[:, ::1] table,          # in: (n_words, n_components) the table before
    double kept,                        # in: the weight of the average so far
    const double[::1] added,            # in: (n_words,) the weight of `noisy`
    const double[::1] of_table,         # in: (n_words,) the weight of the table's shares
    bint centered,                      # in: whether to subtract row means and to add the shares
    double[:, ::1] average,             # in/out: (n_words, n_components)
    int n_threads,
):
    """One round's noisy sum becomes part of the average."""
    cdef Py_ssize_t n_words = average.shape[0], n_topics = average.shape[1]
    cdef Words loop = words_of(n_words, n_topics)
    check_words(average, table, added.shape[0])
    if noisy.shape[0] != n_words or noisy.shape[1] != n_topics or of_table.shape[0] != n_words:
        raise ValueError("the tables must have one shape")
    if n_topics > 1 and noisy.strides[1] != sizeof(int64_t):
        raise ValueError("a row of the noisy sum must be contiguous")
    loop.sums, loop.stride = &noisy[0, 0], noisy.strides[0] // <Py_ssize_t>sizeof(int64_t)
    loop.table, loop.average = <float*>&table[0, 0], &average[0, 0]
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
    """The rows times `factor`, or over their sums."""
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
        loop.average = <double*>&table[0, 0]
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
