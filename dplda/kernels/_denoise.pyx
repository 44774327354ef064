"""The public side of a document-level round: average, posterior means, tempering.

Tables are (n_words, n_components). Words do not depend on each other, so callers may split them
over threads. Results are the same for every instruction set. The loops are in ``_denoise.h``.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from dplda.kernels._sets cimport in_use

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
    void c_add_rows "dplda_add_rows"(
        int set, const float* table, Py_ssize_t n_topics, Py_ssize_t first, Py_ssize_t last,
        double* sums) noexcept nogil
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
    Py_ssize_t first,
    Py_ssize_t last,
    const float[:, ::1] table,
    Py_ssize_t n_words,
) except -1:
    if average.shape[0] == 0 or average.shape[1] == 0:
        raise ValueError("a table must have cells")
    if not 0 <= first <= last <= average.shape[0]:
        raise ValueError(f"words must be among {average.shape[0]}, got {first} to {last}")
    if table.shape[0] != average.shape[0] or table.shape[1] != average.shape[1]:
        raise ValueError("the tables must have one shape")
    if n_words != average.shape[0]:
        raise ValueError(f"{average.shape[0]} words need as many elements, got {n_words}")
    return 0


def likelihood(
    const double[:, ::1] average,       # in: (n_words, n_components) the noisy table
    const float[::1] rate,              # in: (n_words,) share of all tokens, over `scale`
    const float[::1] scale,             # in: (n_words,) standard deviation of a cell's noise
    const float[::1] sizes,             # in: (n_components to whole vectors,) topic sizes, then 0
    const float[::1] factors,           # in: (14,)
    const float[:, ::1] shares,         # in: (n_words, as sizes) public p(topic | word), or None
    const float[::1] gains,             # in: (as sizes) of a second center shares * gains * rate
    const int64_t[::1] words,           # in: a class of words
    Py_ssize_t stride,                  # in: every how many vectors of 16 topics to take
    float[:, :, ::1] out,               # out: (n_vectors, 14 or 28, 16)
):
    """Likelihood under each component of a part of the cells of some words.

    The components are the factors of the center sizes * rate and, if there are shares, those of the
    second center.
    """
    cdef noisy_table t = bind(average, rate, scale, sizes, factors, shares, gains)
    cdef Py_ssize_t n_found = FACTORS if shares is None else 2 * FACTORS
    cdef Py_ssize_t n_vectors = words.shape[0] * (sizes.shape[0] // 16)
    if words.shape[0] == 0 or out.shape[0] != (n_vectors + stride - 1) // stride:
        raise ValueError("out must have room for every vector")
    if out.shape[1] != n_found or out.shape[2] != 16:
        raise ValueError(f"vectors must be ({n_found}, 16)")
    with nogil:
        c_likelihood(in_use, &t, &words[0], out.shape[0], stride, &out[0, 0, 0])


def expectation(
    const float[:, :, ::1] likelihood,  # in: (n_vectors, 14 or 28, 16)
    const double[::1] prior,            # in: (14 or 28,)
    double[::1] sums,                   # out: as prior
):
    """Sums over the cells of likelihood / evidence: an E-step."""
    cdef Py_ssize_t n_found = likelihood.shape[1]
    cdef int n_centers = 1 if n_found == FACTORS else 2
    if likelihood.shape[0] == 0 or n_found != n_centers * FACTORS or likelihood.shape[2] != 16:
        raise ValueError(f"vectors must be ({FACTORS}, 16) or ({2 * FACTORS}, 16)")
    if prior.shape[0] != n_found or sums.shape[0] != n_found:
        raise ValueError(f"prior and sums must have {n_found} elements")
    with nogil:
        c_expectation(in_use, &likelihood[0, 0, 0], likelihood.shape[0], n_centers, &prior[0],
                      &sums[0])


def estimate(
    const double[:, ::1] average,       # in: as for `likelihood`
    const float[::1] rate,              # in
    const float[::1] scale,             # in
    const float[::1] sizes,             # in
    const float[::1] factors,           # in
    const float[:, ::1] shares,         # in
    const float[::1] gains,             # in
    Py_ssize_t first,                   # in: the first word
    Py_ssize_t last,                    # in: the first word that is left alone
    const float[:, ::1] prior,          # in: (n_classes, 14 or 28)
    const uint8_t[::1] class_of,        # in: (n_words,)
    float least,                        # in: added to each cell
    float[:, ::1] table,                # out: (n_words, n_components)
):
    """Posterior means of the cells, not negative."""
    cdef noisy_table t = bind(average, rate, scale, sizes, factors, shares, gains)
    cdef Py_ssize_t word, n_found = FACTORS if shares is None else 2 * FACTORS
    check_words(average, first, last, table, class_of.shape[0])
    if prior.shape[1] != n_found:
        raise ValueError(f"the prior must have {n_found} columns, got {prior.shape[1]}")
    for word in range(first, last):
        if class_of[word] >= prior.shape[0]:
            raise ValueError("the prior must have a row for each class")
    with nogil:
        c_estimate(in_use, &t, first, last, &prior[0, 0], &class_of[0], least, &table[0, 0])


def learn(
    const int64_t[:, :] noisy,          # in: (n_words, n_components), rows of any stride
    const float[:, ::1] table,          # in: (n_words, n_components) the table before
    Py_ssize_t first,                   # in: words, as for `estimate`
    Py_ssize_t last,                    # in
    double kept,                        # in: the weight of the average so far
    const double[::1] added,            # in: (n_words,) the weight of `noisy`
    const double[::1] of_table,         # in: (n_words,) the weight of the table's shares
    bint centered,                      # in: whether to subtract row means and to add the shares
    double[:, ::1] average,             # in/out: (n_words, n_components)
):
    """One round's noisy sum becomes part of the average."""
    cdef Py_ssize_t n_words = average.shape[0], n_topics = average.shape[1]
    cdef Py_ssize_t stride = noisy.strides[0] // <Py_ssize_t>sizeof(int64_t)
    check_words(average, first, last, table, added.shape[0])
    if noisy.shape[0] != n_words or noisy.shape[1] != n_topics or of_table.shape[0] != n_words:
        raise ValueError("the tables must have one shape")
    if n_topics > 1 and noisy.strides[1] != sizeof(int64_t):
        raise ValueError("a row of the noisy sum must be contiguous")
    with nogil:
        c_learn(in_use, &noisy[0, 0], stride, &table[0, 0], n_topics, first, last, kept,
                &added[0], &of_table[0], centered, &average[0, 0])


def shares(
    const float[:, ::1] table,          # in: (n_words, n_components)
    Py_ssize_t first,                   # in: the first word
    Py_ssize_t last,                    # in: the first word that is left alone
    const float[::1] factor,            # in: (n_components,), or None
    float[:, ::1] out,                  # out: (n_words, at least n_components); the rest stays
):
    """The rows times `factor`, or over their sums."""
    cdef Py_ssize_t n_words = table.shape[0], n_topics = table.shape[1]
    cdef const float* of_topics = NULL
    if out.shape[0] != n_words or out.shape[1] < n_topics or not 0 <= first <= last <= n_words:
        raise ValueError("out must have room for the table, and words must be in it")
    if factor is not None:
        if factor.shape[0] != n_topics or n_topics == 0:
            raise ValueError("factor must have one element a topic")
        of_topics = &factor[0]
    if first < last and n_topics:
        with nogil:
            c_shares(in_use, &table[0, 0], n_topics, first, last, of_topics, out.shape[1],
                     &out[0, 0])


def add_rows(
    const float[:, ::1] table,          # in: (n_words, n_components)
    Py_ssize_t first,                   # in: words, as for `shares`
    Py_ssize_t last,                    # in
    double[::1] sums,                   # in/out: (n_components,)
):
    """Add the rows of some words, in their order."""
    cdef Py_ssize_t n_topics = table.shape[1]
    if sums.shape[0] != n_topics or not 0 <= first <= last <= table.shape[0]:
        raise ValueError("sums must have one element a topic, and words must be in the table")
    if first < last and n_topics:
        with nogil:
            c_add_rows(in_use, &table[0, 0], n_topics, first, last, &sums[0])


@cython.boundscheck(False)  # even under sanitizers: the function takes the address of empty arrays
def temper(
    float[::1] x,                       # in/out: not negative
    float power,                        # in: above 0, at most 1
):
    """Raise each element to a power, in place; relative error below 2e-5, 0 stays 0."""
    with nogil:
        c_temper(in_use, &x[0], x.shape[0], power)
