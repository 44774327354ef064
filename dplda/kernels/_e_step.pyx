"""The E-step of variational LDA: documents' Dirichlet parameters under a fixed table.

The updates are those of scikit-learn's LatentDirichletAllocation. Documents are rows of a CSR
matrix. Tables are (n_words, padded), where the padding (to a multiple of 16 topics) is zero. Rows
do not depend on each other, so callers may split them over threads. The loops are in
``_e_step_loops.h``, compiled for each instruction set. All sets give the same bits.
"""

cimport cython
from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from dplda.kernels._sets cimport in_use

cdef extern from "_e_step.h" nogil:
    """
    static void dplda_e_step_float(int set, const int32_t *word, const float *count,
                                   ptrdiff_t n_words, const float *table, ptrdiff_t stride,
                                   float prior, ptrdiff_t n_components, ptrdiff_t max_iter,
                                   double tol, float *gamma, float *exp_doc_topic,
                                   float *scratch) {
        DPLDA_CALL(e_step_float, set)(word, count, n_words, table, stride, prior, n_components,
                                      max_iter, tol, gamma, exp_doc_topic, scratch);
    }
    static void dplda_e_step_double(int set, const int32_t *word, const double *count,
                                    ptrdiff_t n_words, const double *table, ptrdiff_t stride,
                                    double prior, ptrdiff_t n_components, ptrdiff_t max_iter,
                                    double tol, double *gamma, double *exp_doc_topic,
                                    double *scratch) {
        DPLDA_CALL(e_step_double, set)(word, count, n_words, table, stride, prior, n_components,
                                       max_iter, tol, gamma, exp_doc_topic, scratch);
    }
    static void dplda_digammas(int set, const double *total, ptrdiff_t n, double *digamma,
                               double *scale) {
        DPLDA_CALL(digammas, set)(total, n, digamma, scale);
    }
    static void dplda_expectations(int set, double *row, ptrdiff_t n, const double *digamma,
                                   const double *scale) {
        DPLDA_CALL(expectations, set)(row, n, digamma, scale);
    }
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


def scratch_size(Py_ssize_t longest, Py_ssize_t n_components):
    """Elements of scratch for documents of at most `longest` different words."""
    cdef Py_ssize_t padded = (n_components + 15) // 16 * 16
    cdef Py_ssize_t words = (longest + WORDS - 1) // WORDS * WORDS
    return words * ((n_components + 3) // 4 * 4 + 1) + padded * (LANES + 3) + 64 // sizeof(float)


@cython.boundscheck(False)  # even under sanitizers: the function takes the address of empty arrays
def e_step(
    const int32_t[::1] indptr,               # in: CSR of the documents
    const int32_t[::1] indices,              # in
    const floating[::1] data,                # in: counts
    const int64_t[::1] rows,                 # in: the documents to work on
    const floating[:, ::1] exp_topic_word,   # in: (n_words, padded) exp(E[log beta])
    double prior,                            # in: doc_topic_prior
    Py_ssize_t n_components,
    Py_ssize_t max_iter,
    double tol,                              # in: stop below this mean absolute change of gamma
    floating[:, ::1] gamma,                  # in/out: (n_docs, padded) Dirichlet parameters
    floating[:, ::1] exp_doc_topic,          # out: (n_docs, padded) exp(E[log theta])
    floating[::1] scratch,                   # scratch: (scratch_size(...),)
):
    """Iterate gamma = prior + expected topic counts, each document from its row of `gamma`.

    `exp_doc_topic` is computed from the last `gamma`. A weight below 2**-63 (double: 2**-126) is 0.
    """
    cdef Py_ssize_t r, d, begin, n, longest = 0, padded = exp_topic_word.shape[1]
    for r in range(rows.shape[0]):
        longest = max(longest, indptr[rows[r] + 1] - indptr[rows[r]])
    if scratch.shape[0] < scratch_size(longest, n_components):
        raise ValueError("scratch is smaller than scratch_size(longest document, n_components)")
    with nogil:
        for r in range(rows.shape[0]):
            d = rows[r]
            begin = indptr[d]
            n = indptr[d + 1] - begin
            if floating is float:
                dplda_e_step_float(
                    in_use, &indices[0] + begin, &data[0] + begin, n, &exp_topic_word[0, 0], padded,
                    <float>prior, n_components, max_iter, tol, &gamma[d, 0], &exp_doc_topic[d, 0],
                    &scratch[0])
            else:
                dplda_e_step_double(
                    in_use, &indices[0] + begin, &data[0] + begin, n, &exp_topic_word[0, 0], padded,
                    prior, n_components, max_iter, tol, &gamma[d, 0], &exp_doc_topic[d, 0],
                    &scratch[0])


def exp_expectations(
    const double[:, ::1] table,      # in: (n_words, n_components) Dirichlet parameters
    const double[::1] total,         # in: (n_components,) their sums over all words
    Py_ssize_t begin,                # in: the words from begin to end
    Py_ssize_t end,
    double[:, ::1] scratch,          # scratch: (3, padded)
    floating[:, ::1] out,            # out: (n_words, padded); the padding is left as it is
):
    """exp(E[log beta]) of some words."""
    cdef Py_ssize_t v, k, n = table.shape[1], padded = scratch.shape[1]
    if n > padded or total.shape[0] != n or end > table.shape[0] or end > out.shape[0]:
        raise ValueError("shapes differ")
    scratch[:] = 1
    with nogil:
        dplda_digammas(in_use, &total[0], n, &scratch[0, 0], &scratch[1, 0])
        for v in range(begin, end):
            for k in range(n):
                scratch[2, k] = table[v, k]
            dplda_expectations(in_use, &scratch[2, 0], padded, &scratch[0, 0], &scratch[1, 0])
            for k in range(n):
                out[v, k] = <floating>scratch[2, k]
