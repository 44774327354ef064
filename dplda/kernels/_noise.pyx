"""Noise by exact alias tables: pure functions of random words, one word a draw.

A word holds three fields of 21 bits and a top bit. A field is a column of an alias table of 4096
columns (low 12 bits) and the first 9 bits of a fraction of 137 bits. The look-up returns the column
if the fraction is below the column's threshold, and the column's alias otherwise. The 9 bits decide
unless they equal the first 9 of the threshold (a tie, with probability 1/512). In a tie, two spare
words give the other 128 bits. The law is therefore exactly that of the integers behind the table.
See docs/proofs_document.md.

The cells with a tie are left over, and drawn one after the other. On machines with AVX2 or AVX-512,
``_noise.h`` processes blocks of 8 or 16 cells without a tie. Results are the same, bit for bit.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

import numpy as np

from dplda.kernels._sets cimport in_use

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


cdef inline bint draw_gaussian(uint64_t word, const uint32_t* fast, int64_t* found) noexcept nogil:
    """The draw of a word, unless it has a tie."""
    cdef uint32_t f0 = field_of(word, 0), f1 = field_of(word, 1), f2 = field_of(word, 2)
    cdef uint32_t e0 = fast[f0 & COLUMN], e1 = fast[f1 & COLUMN], e2 = fast[f2 & COLUMN]
    found[0] = gaussian(look_up(f0, e0), look_up(f1, e1), look_up(f2, e2))
    return not tied(f0, e0) | tied(f1, e1) | tied(f2, e2)


cdef inline bint draw_laplace(uint64_t word, const uint32_t* fast, int64_t* found) noexcept nogil:
    """The draw of a word, unless it has a tie."""
    cdef uint32_t f0 = field_of(word, 0), f1 = field_of(word, 1)
    cdef uint32_t e0 = fast[f0 & COLUMN], e1 = fast[N_COLUMNS + (f1 & COLUMN)]
    found[0] = laplace(word, look_up(f0, e0), look_up(f1, e1))
    return not tied(f0, e0) | tied(f1, e1)


cdef object add_draws(
    bint is_gaussian,
    const uint64_t[::1] words,
    const uint32_t[::1] fast,
    integer[::1] cells,
):
    """Add a draw to each cell without a tie; return the places of the others."""
    cdef Py_ssize_t n_cells = cells.shape[0], j = 0, stop = 0, n_left = 0
    cdef Py_ssize_t n_columns = N_COLUMNS if is_gaussian else 2 * N_COLUMNS
    cdef int set = in_use
    cdef int64_t found
    cdef bint wide = integer is int64_t, drawn
    if fast.shape[0] != n_columns:
        raise ValueError(f"the tables must have {n_columns} columns, got {fast.shape[0]}")
    if words.shape[0] < n_cells:
        raise ValueError(f"{n_cells} cells need as many words, got {words.shape[0]}")
    places = np.empty(n_cells, np.int64)
    cdef int64_t[::1] left = places
    with nogil:
        while j < n_cells:
            if j >= stop:
                if is_gaussian:
                    j += gaussian_blocks(set, &words[j], &fast[0], &cells[j], wide, n_cells - j)
                else:
                    j += laplace_blocks(set, &words[j], &fast[0], &cells[j], wide, n_cells - j)
                stop = min(j + AFTER_TIE, n_cells) if set else n_cells
                continue
            if is_gaussian:
                drawn = draw_gaussian(words[j], &fast[0], &found)
            else:
                drawn = draw_laplace(words[j], &fast[0], &found)
            if drawn:
                cells[j] = <integer>(cells[j] + found)
            else:
                left[n_left] = j
                n_left += 1
            j += 1
    return places[:n_left].copy()


def add_gaussian(
    const uint64_t[::1] words,          # in: one a cell
    const uint32_t[::1] fast,           # in: (4096,) threshold's first 9 bits << 12 | alias
    integer[::1] cells,                 # in/out
):
    """Add x0 + 64 x1 + 4096 x2 to each cell, where each x is a draw from the table minus 2048.

    Returns
    -------
    left : ndarray of int64
        The cells with a tie, in order: they are as before, and for `add_tied_gaussian`.
    """
    return add_draws(True, words, fast, cells)


def add_laplace(
    const uint64_t[::1] words,          # in: one a cell
    const uint32_t[::1] fast,           # in: (8192,) the low digit's table, then the high digit's
    integer[::1] cells,                 # in/out
):
    """Add m or -1 - m to each cell by a fair bit, m = low digit + 4096 high digit.

    Returns
    -------
    left : ndarray of int64
        As for `add_gaussian`.
    """
    return add_draws(False, words, fast, cells)


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
