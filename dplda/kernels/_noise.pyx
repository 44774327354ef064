"""Noise by exact alias tables: pure functions of random words, one word a draw.

A word holds three fields of 21 bits and a top bit. A field is a column of an alias table of 4096
columns (low 12 bits) and the first 9 bits of a fraction of 137 bits. The look-up returns the column
if the fraction is below the column's threshold, and the column's alias otherwise. The 9 bits decide
unless they equal the first 9 of the threshold (a tie, with probability 1/512). In a tie, two spare
words give the other 128 bits. The law is therefore exactly the law of the table's integers.
See docs/proofs_document.md.

On machines with AVX2 or AVX-512, ``_noise.h`` processes blocks of 8 or 16 cells without a tie.
Results are the same, bit for bit.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from dplda.kernels._sets cimport in_use

cdef extern from "_noise.h" nogil:
    enum:
        FIELD_BITS "DPLDA_FIELD_BITS"
        FIELD "DPLDA_FIELD"
        COLUMN_BITS "DPLDA_COLUMN_BITS"
        COLUMN "DPLDA_COLUMN"
        DPLDA_N_COLUMNS
    Py_ssize_t gaussian_blocks "dplda_gaussian_blocks"(
        int set, const uint64_t* words, const uint32_t* fast, void* cells, bint wide, Py_ssize_t n)
    Py_ssize_t laplace_blocks "dplda_laplace_blocks"(
        int set, const uint64_t* words, const uint32_t* fast, void* cells, bint wide, Py_ssize_t n)

ctypedef fused integer:
    int32_t
    int64_t

N_COLUMNS = DPLDA_N_COLUMNS              # of an alias table

cdef enum:
    AFTER_TIE = 8                       # cells that are drawn one by one where a block has a tie


cdef inline uint32_t field_of(uint64_t word, int level) noexcept nogil:
    return <uint32_t>(word >> (FIELD_BITS * level)) & FIELD


cdef struct Tables:
    const uint32_t* fast
    const uint64_t* slow
    const uint64_t* spare
    Py_ssize_t n_spare
    Py_ssize_t used                     # spare words, or those that a draw needs and does not have


cdef inline uint32_t look_up(Tables* a, uint32_t field, Py_ssize_t table) noexcept nogil:
    """The column or its alias. A tie takes the next two spare words."""
    cdef Py_ssize_t place = table * DPLDA_N_COLUMNS + (field & COLUMN)
    cdef uint32_t fraction = field >> COLUMN_BITS, threshold = a.fast[place] >> COLUMN_BITS
    cdef bint below = fraction < threshold
    cdef const uint64_t* words
    cdef const uint64_t* others = a.slow + 2 * place
    if fraction == threshold:
        a.used += 2
        if a.used <= a.n_spare:
            words = a.spare + a.used - 2
            below = words[0] < others[0] or (words[0] == others[0] and words[1] < others[1])
    return (field if below else a.fast[place]) & COLUMN


cdef inline int64_t gaussian(Tables* a, uint64_t word) noexcept nogil:
    """The three levels together; the table's columns stand for -2048, ..., 2047."""
    cdef int64_t x0 = look_up(a, field_of(word, 0), 0)
    cdef int64_t x1 = look_up(a, field_of(word, 1), 0)
    cdef int64_t x2 = look_up(a, field_of(word, 2), 0)
    return (x0 - 2048) + 64 * (x1 - 2048) + 4096 * (x2 - 2048)


cdef inline int64_t laplace(Tables* a, uint64_t word) noexcept nogil:
    """The digits' number m, or -1 - m if the word's top bit is set."""
    cdef int64_t low = look_up(a, field_of(word, 0), 0)
    cdef int64_t high = look_up(a, field_of(word, 1), 1)
    return (low + DPLDA_N_COLUMNS * high) ^ -<int64_t>(word >> 63)


cdef object add_draws(
    bint is_gaussian,
    const uint64_t[::1] words,
    const uint64_t[::1] spare,
    const uint32_t[::1] fast,
    const uint64_t[:, ::1] slow,
    integer[::1] cells,
):
    """Add draws to the cells, up to one that lacks spare words; see `add_gaussian`."""
    cdef Py_ssize_t n_cells = cells.shape[0], j = 0, stop = 0, used
    cdef Py_ssize_t n_columns = DPLDA_N_COLUMNS if is_gaussian else 2 * DPLDA_N_COLUMNS
    cdef bint wide = integer is int64_t
    cdef int set = in_use
    cdef int64_t found
    cdef Tables a
    if fast.shape[0] != n_columns or slow.shape[0] != n_columns or slow.shape[1] != 2:
        raise ValueError(f"the tables must have {n_columns} columns, got {fast.shape[0]}")
    if words.shape[0] < n_cells:
        raise ValueError(f"{n_cells} cells need as many words, got {words.shape[0]}")
    a.fast, a.slow, a.n_spare, a.used = &fast[0], &slow[0, 0], spare.shape[0], 0
    a.spare = &spare[0] if a.n_spare else NULL
    with nogil:
        while j < n_cells:
            if j >= stop:
                if is_gaussian:
                    j += gaussian_blocks(set, &words[j], a.fast, &cells[j], wide, n_cells - j)
                else:
                    j += laplace_blocks(set, &words[j], a.fast, &cells[j], wide, n_cells - j)
                stop = min(j + AFTER_TIE, n_cells) if set else n_cells
                continue
            used = a.used
            found = gaussian(&a, words[j]) if is_gaussian else laplace(&a, words[j])
            if a.used > a.n_spare:
                a.used = used
                break
            cells[j] = <integer>(cells[j] + found)
            j += 1
    return j, a.used


def add_gaussian(
    const uint64_t[::1] words,          # in: one a cell
    const uint64_t[::1] spare,          # in: for ties
    const uint32_t[::1] fast,           # in: (4096,) threshold's first 9 bits << 12 | alias
    const uint64_t[:, ::1] slow,        # in: (4096, 2) threshold's other 128 bits, high first
    integer[::1] cells,                 # in/out
):
    """Add x0 + 64 x1 + 4096 x2 to each cell, where each x is a draw from the table minus 2048.

    Returns
    -------
    n_cells, n_spare : int
        Cells processed and spare words used. The function stops at a cell that needs more spare
        words than there are. Call it again for this cell and the others, with more.
    """
    return add_draws(True, words, spare, fast, slow, cells)


def add_laplace(
    const uint64_t[::1] words,          # in: one a cell
    const uint64_t[::1] spare,          # in: for ties
    const uint32_t[::1] fast,           # in: (8192,) the low digit's table, then the high digit's
    const uint64_t[:, ::1] slow,        # in: (8192, 2)
    integer[::1] cells,                 # in/out
):
    """Add m or -1 - m to each cell by a fair bit, m = low digit + 4096 high digit.

    Returns
    -------
    n_cells, n_spare : int
        As for `add_gaussian`.
    """
    return add_draws(False, words, spare, fast, slow, cells)
