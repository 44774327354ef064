"""Noise by exact alias tables: pure functions of random words, one word a draw.

A word holds three fields of 21 bits and a top bit. A field is a column of an alias table of 4096
columns (low 12 bits) and the first 9 bits of a fraction of 137 bits: the look-up gives the column
if the fraction is below the column's threshold, else the column's alias. The 9 bits decide unless
they equal the threshold's first 9 (a tie, probability 1/512); then the other 128 come from two
spare words. So the law is exactly that of the integers behind the table. See docs/noise.md.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    FIELD_BITS = 21
    FIELD = (1 << 21) - 1
    COLUMN_BITS = 12
    COLUMN = (1 << 12) - 1
    N_COLUMNS = 1 << 12
    SPARE_PER_DRAW = 6                  # two for each of at most three look-ups


cdef inline uint32_t field_of(uint64_t word, int level) noexcept nogil:
    return <uint32_t>(word >> (FIELD_BITS * level)) & FIELD


cdef inline uint32_t look_up(uint32_t field, uint32_t entry) noexcept nogil:
    """The column or its alias, by 9 bits of the fraction; not for ties."""
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


cdef int check(
    const uint64_t[::1] words,
    const uint32_t[::1] fast,
    const uint64_t[:, ::1] slow,
    int64_t[::1] cells,
    Py_ssize_t n_columns,
) except -1:
    if fast.shape[0] != n_columns or slow.shape[0] != n_columns or slow.shape[1] != 2:
        raise ValueError(f"the tables must have {n_columns} columns, got {fast.shape[0]}")
    if words.shape[0] < cells.shape[0]:
        raise ValueError(f"{cells.shape[0]} cells need as many words, got {words.shape[0]}")
    return 0


def add_gaussian(
    const uint64_t[::1] words,          # in: one a cell
    const uint64_t[::1] spare,          # in: for ties
    const uint32_t[::1] fast,           # in: (4096,) threshold's first 9 bits << 12 | alias
    const uint64_t[:, ::1] slow,        # in: (4096, 2) threshold's other 128 bits, high first
    int64_t[::1] cells,                 # in/out
):
    """Add x0 + 64 x1 + 4096 x2 to each cell, each x being a draw from the table, less 2048.

    Returns
    -------
    n_cells, n_spare : int
        Cells done and spare words used. It stops early, at a tie, if fewer than six spare words
        are left; call again for the other cells with more.
    """
    check(words, fast, slow, cells, N_COLUMNS)
    cdef Py_ssize_t used = 0, j = 0
    cdef uint32_t f0, f1, f2, e0, e1, e2, x0, x1, x2
    with nogil:
        while j < cells.shape[0]:
            f0, f1, f2 = field_of(words[j], 0), field_of(words[j], 1), field_of(words[j], 2)
            e0, e1, e2 = fast[f0 & COLUMN], fast[f1 & COLUMN], fast[f2 & COLUMN]
            x0, x1, x2 = look_up(f0, e0), look_up(f1, e1), look_up(f2, e2)
            if tied(f0, e0) | tied(f1, e1) | tied(f2, e2):
                if used + SPARE_PER_DRAW > spare.shape[0]:
                    break
                x0 = look_up_exactly(f0, e0, &slow[0, 0], spare, &used)
                x1 = look_up_exactly(f1, e1, &slow[0, 0], spare, &used)
                x2 = look_up_exactly(f2, e2, &slow[0, 0], spare, &used)
            cells[j] += gaussian(x0, x1, x2)
            j += 1
    return j, used


def add_laplace(
    const uint64_t[::1] words,          # in: one a cell
    const uint64_t[::1] spare,          # in: for ties
    const uint32_t[::1] fast,           # in: (8192,) the low digit's table, then the high digit's
    const uint64_t[:, ::1] slow,        # in: (8192, 2)
    int64_t[::1] cells,                 # in/out
):
    """Add m or -1 - m to each cell by a fair bit, m = low digit + 4096 high digit.

    Returns
    -------
    n_cells, n_spare : int
        As for `add_gaussian`.
    """
    check(words, fast, slow, cells, 2 * N_COLUMNS)
    cdef Py_ssize_t used = 0, j = 0
    cdef uint32_t f0, f1, e0, e1, x0, x1
    with nogil:
        while j < cells.shape[0]:
            f0, f1 = field_of(words[j], 0), field_of(words[j], 1)
            e0, e1 = fast[f0 & COLUMN], fast[N_COLUMNS + (f1 & COLUMN)]
            x0, x1 = look_up(f0, e0), look_up(f1, e1)
            if tied(f0, e0) | tied(f1, e1):
                if used + SPARE_PER_DRAW > spare.shape[0]:
                    break
                x0 = look_up_exactly(f0, e0, &slow[0, 0], spare, &used)
                x1 = look_up_exactly(f1, e1, &slow[N_COLUMNS, 0], spare, &used)
            cells[j] += laplace(words[j], x0, x1)
            j += 1
    return j, used
