# A piece of a loop: what it works on does not depend on the threads. No two threads of a loop have
# the same number, which is below `n_threads`: it is for scratch.
ctypedef void (*Piece)(void* loop, Py_ssize_t piece, int thread) noexcept nogil

cdef Py_ssize_t cells_of_piece  # of a table; enters sums over its rows

cdef void run_pieces(Piece piece, void* loop, Py_ssize_t n_pieces, int n_threads) noexcept nogil


cdef inline Py_ssize_t rows_of_piece(Py_ssize_t n_columns) noexcept nogil:
    return cells_of_piece // n_columns if 0 < n_columns < cells_of_piece else 1


cdef inline Py_ssize_t pieces_of(Py_ssize_t n_rows, Py_ssize_t n_columns) noexcept nogil:
    cdef Py_ssize_t size = rows_of_piece(n_columns)
    return (n_rows + size - 1) // size
