"""Noise by exact alias tables: pure functions of random words, one word a draw.

A word holds three fields of 21 bits and a top bit. A field is a column of an alias table of 4096
columns (low 12 bits) and the first 9 bits of a fraction of 137 bits. The look-up returns the column
if the fraction is below the column's threshold, and the column's alias otherwise. The 9 bits decide
unless they equal the first 9 of the threshold (a tie, with probability 1/512). In a tie, two spare
words give the other 128 bits. The law is therefore exactly that of the integers behind the table.
See docs/proofs_document.md.

Threads share the cells without a tie. The cells with one are left over, and drawn one after the
other. On machines with AVX2 or AVX-512, ``_noise.h`` processes blocks of 8 or 16 cells without a
tie. Results are the same, bit for bit.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t

import numpy as np

from dplda.kernels._sets cimport in_use
from dplda.kernels._team cimport Piece, run_pieces

cdef extern from "_noise.h" nogil:
    enum:
        FIELD_BITS "DPLDA_FIELD_BITS"
        FIELD "DPLDA_FIELD"
        COLUMN_BITS "DPLDA_COLUMN_BITS"
        COLUMN "DPLDA_COLUMN"
        N_COLUMNS "DPLDA_N_COLUMNS"
    Py_ssize_t gaussian_blocks "dplda_gaussian_blocks"(
        int set, const uint64_t* words, const uint32_t* fast, void* cells, bint wide, Py_ssize_t n)
    Py_ssize_t laplace_blocks "dplda_laplace_blocks"(
        int set, const uint64_t* words, const uint32_t* fast, void* cells, bint wide, Py_ssize_t n)

ctypedef fused integer:
    int32_t
    int64_t

cdef enum:
    CELLS = 8192                        # of a piece
    SPARE_PER_DRAW = 6                  # two for each of at most three look-ups
    AFTER_TIE = 8                       # cells that are drawn one by one where a block has a tie


cdef inline uint32_t field_of(uint64_t word, int level) noexcept nogil:
    return <uint32_t>(word >> (FIELD_BITS * level)) & FIELD


cdef inline uint32_t look_up(uint32_t field, uint32_t entry) noexcept nogil:
    """The column or its alias, by 9 bits of the fraction. It is not valid for ties."""
    return (field if (field >> COLUMN_BITS) < (entry >> COLUMN_BITS) else entry) & COLUMN


cdef inline bint tied(uint32_t field, uint32_t entry) noexcept nogil:
    return (field ^ entry) >> COLUMN_BITS == 0


cdef uint32_t look_up_exactly(
    uint32_t field,
    uint32_t entry,
    const uint64_t* slow,               # in: 128 bits of each threshold of this table, high first
    const uint64_t[::1] spare,          # in
    Py_ssize_t* used,                   # in/out: spare words used
) noexcept nogil:
    """The look-up for any field: a tie takes the next two spare words."""
    cdef const uint64_t* threshold = slow + 2 * (field & COLUMN)
    cdef uint64_t high, low
    if not tied(field, entry):
        return look_up(field, entry)
    high, low = spare[used[0]], spare[used[0] + 1]
    used[0] += 2
    if high < threshold[0] or (high == threshold[0] and low < threshold[1]):
        return field & COLUMN
    return entry & COLUMN


cdef inline int64_t gaussian(int64_t x0, int64_t x1, int64_t x2) noexcept nogil:
    """The three levels together; the tables' columns stand for -2048, ..., 2047."""
    return (x0 - 2048) + 64 * (x1 - 2048) + 4096 * (x2 - 2048)


cdef inline int64_t laplace(uint64_t word, int64_t low, int64_t high) noexcept nogil:
    """The digits' number m, or -1 - m if the word's top bit is set."""
    return (low + N_COLUMNS * high) ^ -<int64_t>(word >> 63)


cdef struct Draws:
    const uint64_t* words
    const uint32_t* fast
    int32_t* narrow                     # cells of 32 bits, or
    int64_t* wide                       # cells of 64
    Py_ssize_t n_cells
    uint16_t* tied                      # places in the piece, in order
    int64_t* n_tied


cdef inline void* cells_from(Draws* a, Py_ssize_t j) noexcept nogil:
    return <void*>(a.narrow + j) if a.wide == NULL else <void*>(a.wide + j)


cdef inline void add_draw(Draws* a, Py_ssize_t j, int64_t draw) noexcept nogil:
    if a.wide == NULL:
        a.narrow[j] = <int32_t>(a.narrow[j] + draw)
    else:
        a.wide[j] += draw


cdef void add_gaussian_piece(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Draws* a = <Draws*>loop
    cdef Py_ssize_t j = piece * CELLS, end = min(j + CELLS, a.n_cells), stop = j, n_tied = 0
    cdef int set = in_use
    cdef uint32_t f0, f1, f2, e0, e1, e2
    while j < end:
        if j >= stop:
            j += gaussian_blocks(
                set, a.words + j, a.fast, cells_from(a, j), a.wide != NULL, end - j)
            stop = min(j + AFTER_TIE, end) if set else end
            continue
        f0, f1 = field_of(a.words[j], 0), field_of(a.words[j], 1)
        f2 = field_of(a.words[j], 2)
        e0, e1, e2 = a.fast[f0 & COLUMN], a.fast[f1 & COLUMN], a.fast[f2 & COLUMN]
        if tied(f0, e0) | tied(f1, e1) | tied(f2, e2):
            a.tied[piece * CELLS + n_tied] = <uint16_t>(j - piece * CELLS)
            n_tied += 1
        else:
            add_draw(a, j, gaussian(look_up(f0, e0), look_up(f1, e1), look_up(f2, e2)))
        j += 1
    a.n_tied[piece] = n_tied


cdef void add_laplace_piece(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Draws* a = <Draws*>loop
    cdef Py_ssize_t j = piece * CELLS, end = min(j + CELLS, a.n_cells), stop = j, n_tied = 0
    cdef int set = in_use
    cdef uint32_t f0, f1, e0, e1
    while j < end:
        if j >= stop:
            j += laplace_blocks(
                set, a.words + j, a.fast, cells_from(a, j), a.wide != NULL, end - j)
            stop = min(j + AFTER_TIE, end) if set else end
            continue
        f0, f1 = field_of(a.words[j], 0), field_of(a.words[j], 1)
        e0, e1 = a.fast[f0 & COLUMN], a.fast[N_COLUMNS + (f1 & COLUMN)]
        if tied(f0, e0) | tied(f1, e1):
            a.tied[piece * CELLS + n_tied] = <uint16_t>(j - piece * CELLS)
            n_tied += 1
        else:
            add_draw(a, j, laplace(a.words[j], look_up(f0, e0), look_up(f1, e1)))
        j += 1
    a.n_tied[piece] = n_tied


cdef object places(const uint16_t[::1] tied, const int64_t[::1] n_tied):
    """The tied cells of all pieces, in order."""
    cdef Py_ssize_t piece, i, n = 0
    for piece in range(n_tied.shape[0]):
        n += n_tied[piece]
    found = np.empty(n, np.int64)
    cdef int64_t[::1] left = found
    n = 0
    for piece in range(n_tied.shape[0]):
        for i in range(n_tied[piece]):
            left[n] = piece * CELLS + tied[piece * CELLS + i]
            n += 1
    return found


cdef object draw(
    Piece piece,
    const uint64_t[::1] words,
    const uint32_t[::1] fast,
    Py_ssize_t n_columns,
    integer[::1] cells,
    int n_threads,
):
    """Call `piece` for all pieces of the cells; return the places of the cells that are left."""
    cdef Py_ssize_t n_pieces = (cells.shape[0] + CELLS - 1) // CELLS
    cdef uint16_t[::1] tied = np.empty(max(1, cells.shape[0]), np.uint16)
    cdef int64_t[::1] n_tied = np.zeros(max(1, n_pieces), np.int64)
    cdef Draws loop
    if fast.shape[0] != n_columns:
        raise ValueError(f"the tables must have {n_columns} columns, got {fast.shape[0]}")
    if words.shape[0] < cells.shape[0]:
        raise ValueError(f"{cells.shape[0]} cells need as many words, got {words.shape[0]}")
    if n_pieces:
        loop.words, loop.fast, loop.n_cells = &words[0], &fast[0], cells.shape[0]
        loop.tied, loop.n_tied, loop.narrow, loop.wide = &tied[0], &n_tied[0], NULL, NULL
        if integer is int32_t:
            loop.narrow = &cells[0]
        else:
            loop.wide = &cells[0]
        with nogil:
            run_pieces(piece, &loop, n_pieces, n_threads)
    return places(tied, n_tied)


def add_gaussian(
    const uint64_t[::1] words,          # in: one a cell
    const uint32_t[::1] fast,           # in: (4096,) threshold's first 9 bits << 12 | alias
    integer[::1] cells,                 # in/out
    int n_threads,
):
    """Add x0 + 64 x1 + 4096 x2 to each cell, where each x is a draw from the table minus 2048.

    Returns
    -------
    left : ndarray of int64
        The cells with a tie, in order: they are as before, and for `add_tied_gaussian`.
    """
    return draw(add_gaussian_piece, words, fast, N_COLUMNS, cells, n_threads)


def add_laplace(
    const uint64_t[::1] words,          # in: one a cell
    const uint32_t[::1] fast,           # in: (8192,) the low digit's table, then the high digit's
    integer[::1] cells,                 # in/out
    int n_threads,
):
    """Add m or -1 - m to each cell by a fair bit, m = low digit + 4096 high digit.

    Returns
    -------
    left : ndarray of int64
        As for `add_gaussian`.
    """
    return draw(add_laplace_piece, words, fast, 2 * N_COLUMNS, cells, n_threads)


cdef int check_left(
    const int64_t[::1] left,
    Py_ssize_t n_cells,
    const uint32_t[::1] fast,
    const uint64_t[:, ::1] slow,
    Py_ssize_t n_columns,
) except -1:
    cdef Py_ssize_t i
    if fast.shape[0] != n_columns or slow.shape[0] != n_columns or slow.shape[1] != 2:
        raise ValueError(f"the tables must have {n_columns} columns, got {fast.shape[0]}")
    for i in range(left.shape[0]):
        if not 0 <= left[i] < n_cells:
            raise ValueError(f"a cell must be among {n_cells}")
    return 0


def add_tied_gaussian(
    const uint64_t[::1] words,          # in: as for `add_gaussian`
    const uint64_t[::1] spare,          # in: for ties
    const uint32_t[::1] fast,           # in
    const uint64_t[:, ::1] slow,        # in: (4096, 2) threshold's other 128 bits, high first
    integer[::1] cells,                 # in/out
    const int64_t[::1] left,            # in: of `add_gaussian`
):
    """Add the draws to the cells that `add_gaussian` has left.

    Returns
    -------
    n_left, n_spare : int
        Cells processed and spare words used. The function stops early if fewer than six spare words
        are left. Call it again for the other cells with more words.
    """
    check_left(left, min(cells.shape[0], words.shape[0]), fast, slow, N_COLUMNS)
    cdef Py_ssize_t used = 0, i = 0, j
    cdef uint32_t f0, f1, f2, x0, x1, x2
    while i < left.shape[0] and used + SPARE_PER_DRAW <= spare.shape[0]:
        j = left[i]
        f0, f1, f2 = field_of(words[j], 0), field_of(words[j], 1), field_of(words[j], 2)
        x0 = look_up_exactly(f0, fast[f0 & COLUMN], &slow[0, 0], spare, &used)
        x1 = look_up_exactly(f1, fast[f1 & COLUMN], &slow[0, 0], spare, &used)
        x2 = look_up_exactly(f2, fast[f2 & COLUMN], &slow[0, 0], spare, &used)
        cells[j] = <integer>(cells[j] + gaussian(x0, x1, x2))
        i += 1
    return i, used


def add_tied_laplace(
    const uint64_t[::1] words,          # in: as for `add_laplace`
    const uint64_t[::1] spare,          # in: for ties
    const uint32_t[::1] fast,           # in
    const uint64_t[:, ::1] slow,        # in: (8192, 2)
    integer[::1] cells,                 # in/out
    const int64_t[::1] left,            # in: of `add_laplace`
):
    """Add the draws to the cells that `add_laplace` has left.

    Returns
    -------
    n_left, n_spare : int
        As for `add_tied_gaussian`.
    """
    check_left(left, min(cells.shape[0], words.shape[0]), fast, slow, 2 * N_COLUMNS)
    cdef Py_ssize_t used = 0, i = 0, j
    cdef uint32_t f0, f1, x0, x1
    while i < left.shape[0] and used + SPARE_PER_DRAW <= spare.shape[0]:
        j = left[i]
        f0, f1 = field_of(words[j], 0), field_of(words[j], 1)
        x0 = look_up_exactly(f0, fast[f0 & COLUMN], &slow[0, 0], spare, &used)
        x1 = look_up_exactly(
            f1, fast[N_COLUMNS + (f1 & COLUMN)], &slow[N_COLUMNS, 0], spare, &used)
        cells[j] = <integer>(cells[j] + laplace(words[j], x0, x1))
        i += 1
    return i, used
