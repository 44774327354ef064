"""The E-step of variational LDA: documents' Dirichlet parameters under a fixed table.

The updates are those of scikit-learn's LatentDirichletAllocation. Documents are rows of a CSR
matrix. Tables are (n_words, padded), where the padding (to a multiple of 16 topics) is zero. Rows
do not depend on each other, and threads share them. The loops are in ``_e_step_loops.h``, compiled
for each instruction set. All sets give the same bits.
"""

cimport cython
from cython cimport floating
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

import numpy as np

from dplda.kernels._sets cimport in_use
from dplda.kernels._team cimport pieces_of, rows_of_piece, run_pieces

cdef extern from "_e_step.h" nogil:
    """
    #define dplda_e_step_float(set, ...) DPLDA_CALL(e_step_float, set)(__VA_ARGS__)
    #define dplda_e_step_double(set, ...) DPLDA_CALL(e_step_double, set)(__VA_ARGS__)
    #define dplda_digammas(set, ...) DPLDA_CALL(digammas, set)(__VA_ARGS__)
    #define dplda_expectations(set, ...) DPLDA_CALL(expectations, set)(__VA_ARGS__)
    """
    enum:
        WORDS "DPLDA_WORDS"
        LANES "DPLDA_WIDTH"
    void dplda_e_step_float(
        int set, const int32_t* word, const float* count, Py_ssize_t n_words, const float* table,
        Py_ssize_t stride, float prior, Py_ssize_t n_components, Py_ssize_t max_iter, double tol,
        float* gamma, float* exp_doc_topic, float* scratch)
    void dplda_e_step_double(
        int set, const int32_t* word, const double* count, Py_ssize_t n_words, const double* table,
        Py_ssize_t stride, double prior, Py_ssize_t n_components, Py_ssize_t max_iter, double tol,
        double* gamma, double* exp_doc_topic, double* scratch)
    void dplda_digammas(int set, const double* total, Py_ssize_t n, double* digamma, double* scale)
    void dplda_expectations(
        int set, double* row, Py_ssize_t n, const double* digamma, const double* scale)


cdef enum:
    DOCUMENTS = 4                            # of a piece

cdef struct Documents:
    const int32_t* indptr
    const int32_t* indices
    bint single                              # data and tables are floats, otherwise doubles
    const void* data
    const int64_t* rows
    Py_ssize_t n_rows
    const void* table
    Py_ssize_t padded
    double prior
    Py_ssize_t n_components
    Py_ssize_t max_iter
    double tol
    void* gamma
    void* exp_doc_topic
    void* scratch
    Py_ssize_t size                          # of the scratch of a thread


def scratch_size(Py_ssize_t longest, Py_ssize_t n_components):
    """Elements of scratch for documents of at most `longest` different words."""
    cdef Py_ssize_t padded = (n_components + 15) // 16 * 16
    cdef Py_ssize_t words = (longest + WORDS - 1) // WORDS * WORDS
    return words * ((n_components + 3) // 4 * 4 + 1) + padded * (LANES + 3) + 64 // sizeof(float)


cdef void infer_documents(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Documents* a = <Documents*>loop
    cdef Py_ssize_t r, d, begin, n
    for r in range(piece * DOCUMENTS, min((piece + 1) * DOCUMENTS, a.n_rows)):
        d = a.rows[r]
        begin, n = a.indptr[d], a.indptr[d + 1] - a.indptr[d]
        if a.single:
            dplda_e_step_float(
                in_use, a.indices + begin, <const float*>a.data + begin, n, <const float*>a.table,
                a.padded, <float>a.prior, a.n_components, a.max_iter, a.tol,
                <float*>a.gamma + d * a.padded, <float*>a.exp_doc_topic + d * a.padded,
                <float*>a.scratch + thread * a.size)
        else:
            dplda_e_step_double(
                in_use, a.indices + begin, <const double*>a.data + begin, n,
                <const double*>a.table, a.padded, a.prior, a.n_components, a.max_iter, a.tol,
                <double*>a.gamma + d * a.padded, <double*>a.exp_doc_topic + d * a.padded,
                <double*>a.scratch + thread * a.size)


@cython.boundscheck(False)  # even under sanitizers: the function takes the address of empty arrays
def e_step(
    const int32_t[::1] indptr,               # in: CSR of the documents
    const int32_t[::1] indices,              # in
    const floating[::1] data,                # in: counts
    const int64_t[::1] rows,                 # in: the documents to work on, each at most once
    const floating[:, ::1] exp_topic_word,   # in: (n_words, padded) exp(E[log beta])
    double prior,                            # in: doc_topic_prior
    Py_ssize_t n_components,
    Py_ssize_t max_iter,
    double tol,                              # in: stop below this mean absolute change of gamma
    floating[:, ::1] gamma,                  # in/out: (n_docs, padded) Dirichlet parameters
    floating[:, ::1] exp_doc_topic,          # out: (n_docs, padded) exp(E[log theta])
    floating[:, ::1] scratch,                # scratch: (n_threads, scratch_size(...))
):
    """Iterate gamma = prior + expected topic counts, each document from its row of `gamma`.

    `exp_doc_topic` is computed from the last `gamma`. A weight below 2**-63 (double: 2**-126) is 0.
    Works in as many threads as scratch has.
    """
    cdef Documents loop
    cdef Py_ssize_t r, longest = 0
    cdef int n_threads = <int>scratch.shape[0]
    for r in range(rows.shape[0]):
        longest = max(longest, indptr[rows[r] + 1] - indptr[rows[r]])
    if n_threads == 0 or scratch.shape[1] < scratch_size(longest, n_components):
        raise ValueError("scratch is smaller than scratch_size(longest document, n_components)")
    loop.indptr, loop.indices, loop.data = &indptr[0], &indices[0], &data[0]
    loop.rows, loop.n_rows = &rows[0], rows.shape[0]
    loop.table, loop.padded = &exp_topic_word[0, 0], exp_topic_word.shape[1]
    loop.prior, loop.n_components, loop.max_iter, loop.tol = prior, n_components, max_iter, tol
    loop.gamma, loop.exp_doc_topic = &gamma[0, 0], &exp_doc_topic[0, 0]
    loop.scratch, loop.size, loop.single = &scratch[0, 0], scratch.shape[1], floating is float
    with nogil:
        run_pieces(
            infer_documents, &loop, (loop.n_rows + DOCUMENTS - 1) // DOCUMENTS, n_threads)


cdef struct Words:
    const double* table
    Py_ssize_t n_words
    Py_ssize_t n_components
    Py_ssize_t padded
    const double* digamma                    # of the totals
    const double* scale
    double* row                              # one for each thread
    bint single                              # out is of floats, otherwise of doubles
    void* out


cdef void expect_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Words* a = <Words*>loop
    cdef Py_ssize_t v, k, size = rows_of_piece(a.padded)
    cdef double* row = a.row + thread * a.padded
    for v in range(piece * size, min((piece + 1) * size, a.n_words)):
        memcpy(row, a.table + v * a.n_components, a.n_components * sizeof(double))
        dplda_expectations(in_use, row, a.padded, a.digamma, a.scale)
        for k in range(a.n_components):
            if a.single:
                (<float*>a.out)[v * a.padded + k] = <float>row[k]
            else:
                (<double*>a.out)[v * a.padded + k] = row[k]


def exp_expectations(
    const double[:, ::1] table,      # in: (n_words, n_components) Dirichlet parameters
    const double[::1] total,         # in: (n_components,) their sums over all words
    floating[:, ::1] out,            # out: (n_words, padded); the padding is left as it is
    int n_threads,
):
    """exp(E[log beta])."""
    cdef Words loop
    cdef Py_ssize_t n = table.shape[1], padded = out.shape[1]
    if n == 0 or n > padded or total.shape[0] != n or out.shape[0] != table.shape[0]:
        raise ValueError("shapes differ")
    if table.shape[0] == 0:
        return
    cdef double[:, ::1] scratch = np.ones((2 + n_threads, padded))
    loop.table, loop.n_words, loop.n_components = &table[0, 0], table.shape[0], n
    loop.digamma, loop.scale, loop.row = &scratch[0, 0], &scratch[1, 0], &scratch[2, 0]
    loop.padded, loop.out, loop.single = padded, &out[0, 0], floating is float
    with nogil:
        dplda_digammas(in_use, &total[0], n, &scratch[0, 0], &scratch[1, 0])
        run_pieces(expect_words, &loop, pieces_of(loop.n_words, padded), n_threads)
