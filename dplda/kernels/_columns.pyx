"""Documents by word: some rows of a CSR matrix, as columns.

Threads share the rows, in pieces. Each piece first counts its entries of each word, to know where
they belong. The result does not depend on the pieces.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

import numpy as np

from dplda.kernels._team cimport run_pieces

cdef enum:
    PIECES = 4                           # for each thread

cdef struct Rows:
    const int32_t* indices
    const float* data
    Py_ssize_t n_rows
    Py_ssize_t n_words
    Py_ssize_t n_pieces
    const int64_t* first                 # where the rows begin
    const int64_t* ptr                   # the same in the copy
    int32_t* copied_words
    float* copied_data
    int32_t* place                       # of the next entry of each word and piece
    int32_t* doc
    float* count


cdef inline Py_ssize_t first_row(const Rows* loop, Py_ssize_t piece) noexcept nogil:
    return piece * loop.n_rows // loop.n_pieces


cdef void count_words(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Rows* a = <Rows*>loop
    cdef Py_ssize_t r, j, n
    cdef int32_t* place = a.place + piece * a.n_words
    for r in range(first_row(a, piece), first_row(a, piece + 1)):
        n = a.ptr[r + 1] - a.ptr[r]
        memcpy(a.copied_words + a.ptr[r], a.indices + a.first[r], n * sizeof(int32_t))
        memcpy(a.copied_data + a.ptr[r], a.data + a.first[r], n * sizeof(float))
        for j in range(a.ptr[r], a.ptr[r + 1]):
            place[a.copied_words[j]] += 1


cdef void find_places(Rows* a, int32_t* indptr) noexcept nogil:
    """The entries of each word: from the first piece, then from the second, ..."""
    cdef Py_ssize_t v, piece
    cdef int32_t n, before = 0
    for v in range(a.n_words):
        indptr[v] = before
        for piece in range(a.n_pieces):
            n = a.place[piece * a.n_words + v]
            a.place[piece * a.n_words + v] = before
            before += n
    indptr[a.n_words] = before


cdef void move_entries(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Rows* a = <Rows*>loop
    cdef Py_ssize_t r, j
    cdef int32_t i
    cdef int32_t* place = a.place + piece * a.n_words
    for r in range(first_row(a, piece), first_row(a, piece + 1)):
        for j in range(a.ptr[r], a.ptr[r + 1]):
            i = place[a.copied_words[j]]
            place[a.copied_words[j]] = i + 1
            a.doc[i], a.count[i] = <int32_t>r, a.copied_data[j]


def by_column(
    const int32_t[::1] indptr,           # in: CSR of the documents
    const int32_t[::1] indices,          # in
    const float[::1] data,               # in: counts
    const int64_t[::1] rows,             # in: the documents
    Py_ssize_t n_words,
    int n_threads,
):
    """The rows, in their order, as CSC: (data, indices, indptr) of shape (n_rows, n_words).

    Every array is read once. The entries of a word are in the order of the rows, then of a row's
    entries: a word that occurs twice in a row has two neighboring entries.
    """
    cdef Rows loop
    cdef Py_ssize_t r, n_rows = rows.shape[0], n = 0
    cdef int64_t[::1] first = np.empty(n_rows, np.int64), ptr = np.zeros(n_rows + 1, np.int64)
    for r in range(n_rows):
        first[r] = indptr[rows[r]]
        n += indptr[rows[r] + 1] - first[r]
        ptr[r + 1] = n
    column_ptr, doc = np.zeros(n_words + 1, np.int32), np.empty(n, np.int32)
    count = np.empty(n, np.float32)
    if n == 0:
        return count, doc, column_ptr
    loop.n_rows, loop.n_words = n_rows, n_words
    # no more memory for places than for entries, or than for one piece
    loop.n_pieces = 1 if n_threads == 1 else min(PIECES * n_threads, 1 + n // n_words)
    cdef int32_t[:, ::1] place = np.zeros((loop.n_pieces, n_words), np.int32)
    cdef int32_t[::1] copied_words = np.empty(n, np.int32), docs = doc, found = column_ptr
    cdef float[::1] copied_data = np.empty(n, np.float32), counts = count
    loop.indices, loop.data, loop.first, loop.ptr = &indices[0], &data[0], &first[0], &ptr[0]
    loop.copied_words, loop.copied_data = &copied_words[0], &copied_data[0]
    loop.place, loop.doc, loop.count = &place[0, 0], &docs[0], &counts[0]
    with nogil:
        run_pieces(count_words, &loop, loop.n_pieces, n_threads)
        find_places(&loop, &found[0])
        run_pieces(move_entries, &loop, loop.n_pieces, n_threads)
    return count, doc, column_ptr
