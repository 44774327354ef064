"""The work of HDPLDA on its tokens and their counts, except drawing topics.

Tokens are put into a random order inside of their documents, listed by word, and counted. Noisy
counts become a table of IEEE halves; its loops are in ``_release.h``, for each instruction set.
Rows do not depend on each other, and threads share them.
"""

import cython

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint64_t

from dplda.kernels._sets cimport in_use
from dplda.kernels._team cimport pieces_of, rows_of_piece, run_pieces

cdef extern from "_wide.h" nogil:
    uint64_t dplda_mul_wide(uint64_t a, uint64_t b, uint64_t* low)

cdef extern from "_release.h" nogil:
    enum:
        INT32 "DPLDA_INT32"
        INT64 "DPLDA_INT64"
        FLOAT64 "DPLDA_FLOAT64"
    ctypedef struct dplda_weight:
        float a, b, clip
    void prefetch "DPLDA_PREFETCH"(const void* address)
    void dplda_add_weights(
        int set, const void* counts, int kind, Py_ssize_t n_rows, Py_ssize_t n_columns,
        dplda_weight weight, float* sums, float* largest)
    void dplda_write_halves(
        int set, const void* counts, int kind, Py_ssize_t n_rows, Py_ssize_t n_columns,
        dplda_weight weight, const float* scale, const float* low, const float* high,
        uint16_t* half, Py_ssize_t padded)

cdef enum:
    AHEAD = 32                          # tokens whose topics are on their way to the cache

ctypedef fused integer:
    int32_t
    int64_t

ctypedef fused real:
    float
    double
    int64_t

ctypedef fused number:
    int32_t
    int64_t
    double


def list_tokens(
    const int32_t[::1] indptr,          # in: CSR of whole counts
    const int32_t[::1] indices,         # in
    const real[::1] data,               # in
    int64_t[::1] doc_ptr,               # out: (n_docs + 1,) where each document's tokens begin
    int32_t[::1] word,                  # out: (n_tokens,)
):
    """The word of each token, in the order of the cells."""
    cdef Py_ssize_t d, j, i = 0
    cdef int64_t _
    doc_ptr[0] = 0
    with nogil:
        for d in range(indptr.shape[0] - 1):
            for j in range(indptr[d], indptr[d + 1]):
                for _ in range(<int64_t>data[j]):
                    word[i] = indices[j]
                    i += 1
            doc_ptr[d + 1] = i


def shuffle(
    int32_t[::1] word,                  # in/out: grouped by document
    const int64_t[::1] doc_ptr,         # in: where each document's tokens begin
    const uint64_t[::1] bits,           # in: one a token
    const uint64_t[::1] spare,          # in: for the draws that reject a word
    int64_t[::1] state,                 # in/out: document and token where to go on
):
    """Put each document's tokens into a uniformly random order.

    Token i of a document swaps places with token j. This j is exactly uniform on 0, ..., i: it is
    the high half of bits * (i + 1), and the few words that would favor some values are rejected.
    Start with the state (0, 0). The function stops early if the spare words run out. Call it again
    with more of them.

    Returns
    -------
    n_spare : int
        Spare words used.
    """
    cdef Py_ssize_t used = 0, d = state[0], i = state[1], first, n
    cdef uint64_t j, low, rejected
    cdef int32_t own
    with nogil:
        while d < doc_ptr.shape[0] - 1:
            first, n = doc_ptr[d], doc_ptr[d + 1] - doc_ptr[d]
            while i < n:
                j = dplda_mul_wide(bits[first + i], i + 1, &low)
                if low <= <uint64_t>i:
                    rejected = (0 - <uint64_t>(i + 1)) % <uint64_t>(i + 1)  # 2**64 mod i + 1
                    while low < rejected and used < spare.shape[0]:
                        j = dplda_mul_wide(spare[used], i + 1, &low)
                        used += 1
                    if low < rejected:
                        break
                own = word[first + i]
                word[first + i] = word[first + <Py_ssize_t>j]
                word[first + <Py_ssize_t>j] = own
                i += 1
            if i < n:
                break
            d += 1
            i = 0
    state[0], state[1] = d, i
    return used


def list_by_word(
    const int32_t[::1] word,            # in: word of each token
    int64_t[::1] word_ptr,              # out: (n_words + 1,) where each word's tokens begin
    int32_t[::1] token,                 # out: (n_tokens,) positions in `word`, grouped by word
):
    """List the positions of each word, in increasing order."""
    cdef Py_ssize_t i, w, n_words = word_ptr.shape[0] - 1
    cdef int64_t n_before = 0, n
    with nogil:
        for w in range(n_words + 1):
            word_ptr[w] = 0
        for i in range(word.shape[0]):
            word_ptr[word[i]] += 1
        for w in range(n_words + 1):
            n = word_ptr[w]
            word_ptr[w] = n_before
            n_before += n
        for i in range(word.shape[0]):
            token[word_ptr[word[i]]] = <int32_t>i
            word_ptr[word[i]] += 1
        for w in range(n_words, 0, -1):  # each entry is now where the next word begins
            word_ptr[w] = word_ptr[w - 1]
        word_ptr[0] = 0


# Words share their tokens and cells in pieces of about equal work.
cdef struct Counting:
    const int64_t* word_ptr
    const int32_t* token
    const int16_t* topics
    Py_ssize_t n_words
    Py_ssize_t n_components
    int64_t work                         # tokens and cells
    Py_ssize_t n_pieces
    int64_t unit
    int32_t* counts                      # of one of both types
    int64_t* long_counts


cdef Py_ssize_t first_of_piece(const Counting* a, Py_ssize_t piece) noexcept nogil:
    """The first word before which lies at least the earlier pieces' share of the work."""
    cdef int64_t before = a.work // a.n_pieces * piece + a.work % a.n_pieces * piece // a.n_pieces
    cdef Py_ssize_t low = 0, high = a.n_words, middle
    while low < high:
        middle = (low + high) // 2
        if a.word_ptr[middle] + middle * a.n_components < before:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline void count_words(
    const Counting* a, Py_ssize_t piece, integer* counts
) noexcept nogil:
    cdef Py_ssize_t first = first_of_piece(a, piece), last = first_of_piece(a, piece + 1)
    cdef Py_ssize_t w, i, k, last_token = a.word_ptr[last] - 1
    cdef integer* row
    for w in range(first, last):
        row = counts + w * a.n_components
        for k in range(a.n_components):
            row[k] = 0
        for i in range(a.word_ptr[w], a.word_ptr[w + 1]):
            prefetch(&a.topics[a.token[min(i + AHEAD, last_token)]])
            row[a.topics[a.token[i]]] += <integer>a.unit


cdef void count_piece(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Counting* a = <Counting*>loop
    if a.counts != NULL:
        count_words(a, piece, a.counts)
    else:
        count_words(a, piece, a.long_counts)


@cython.boundscheck(False)  # even under sanitizers: the function takes the address of empty arrays
def count_topics(
    const int64_t[::1] word_ptr,        # in: as from `list_by_word`
    const int32_t[::1] token,           # in
    const int16_t[::1] topics,          # in: topic of each token; few bytes, read in no order
    int64_t unit,                       # in: what a token adds
    integer[:, ::1] counts,             # out: (n_words, n_components)
    int n_threads,
):
    """Write the word-topic counts, times `unit`."""
    cdef Counting loop
    loop.n_words, loop.n_components = counts.shape[0], counts.shape[1]
    if word_ptr.shape[0] != loop.n_words + 1 or token.shape[0] != topics.shape[0]:
        raise ValueError("counts must have a row for each word, and each token a topic")
    loop.word_ptr, loop.token, loop.topics = &word_ptr[0], &token[0], &topics[0]
    loop.work = token.shape[0] + loop.n_words * loop.n_components
    loop.n_pieces, loop.unit = pieces_of(loop.work, 1), unit
    loop.counts, loop.long_counts = NULL, NULL
    if integer is int32_t:
        loop.counts = &counts[0, 0]
    else:
        loop.long_counts = &counts[0, 0]
    with nogil:
        run_pieces(count_piece, &loop, loop.n_pieces, n_threads)


cdef struct Rows:
    const char* counts                  # (n_rows, n_columns)
    int kind
    Py_ssize_t bytes_of_row
    Py_ssize_t n_rows
    Py_ssize_t n_columns
    Py_ssize_t size                     # rows of a piece
    dplda_weight weight
    float* sums                         # of `add_weights`
    float* largest
    const float* scale                  # of `write_halves`
    const float* low
    const float* high
    uint16_t* half
    Py_ssize_t padded


cdef Rows rows_of(const number[:, ::1] counts, float a, float b, float clip) noexcept:
    cdef Rows loop
    loop.kind = INT32 if number is int32_t else INT64 if number is int64_t else FLOAT64
    loop.counts, loop.bytes_of_row = <const char*>&counts[0, 0], counts.strides[0]
    loop.n_rows, loop.n_columns = counts.shape[0], counts.shape[1]
    loop.sums, loop.largest, loop.half = NULL, NULL, NULL
    loop.scale, loop.low, loop.high = NULL, NULL, NULL
    loop.size, loop.padded = 1, 0
    loop.weight.a, loop.weight.b, loop.weight.clip = a, b, clip
    return loop


cdef inline Py_ssize_t rows_in(const Rows* a, Py_ssize_t piece) noexcept nogil:
    return min(a.size, a.n_rows - piece * a.size)


cdef void add_piece(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Rows* a = <Rows*>loop
    dplda_add_weights(
        in_use, a.counts + piece * a.size * a.bytes_of_row, a.kind, rows_in(a, piece), a.n_columns,
        a.weight, a.sums + piece * a.padded, a.largest + piece * a.padded)


def add_weights(
    const number[:, ::1] counts,        # in: (n_rows, n_components)
    float a,
    float b,
    float clip,
    Py_ssize_t size,                    # in: rows of a piece; enters results
    float[:, ::1] sums,                 # in/out: (n_pieces, padded)
    float[:, ::1] largest,              # in/out: (n_pieces, padded)
    int n_threads,
):
    """Add min(max(a n + b, 0), clip) + 1 over each column of a piece, row by row; the largest too.
    """
    cdef Rows loop = rows_of(counts, a, b, clip)
    loop.size, loop.padded = size, sums.shape[1]
    check_padded(loop.n_columns, loop.padded)
    if sums.shape[0] * size < loop.n_rows or largest.shape[0] != sums.shape[0] or (
        largest.shape[1] != sums.shape[1]
    ):
        raise ValueError("sums and largest must have a row for each piece")
    loop.sums, loop.largest = &sums[0, 0], &largest[0, 0]
    with nogil:
        run_pieces(add_piece, &loop, (loop.n_rows + size - 1) // size, n_threads)


cdef void write_piece(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Rows* a = <Rows*>loop
    dplda_write_halves(
        in_use, a.counts + piece * a.size * a.bytes_of_row, a.kind, rows_in(a, piece), a.n_columns,
        a.weight, a.scale, a.low, a.high, a.half + piece * a.size * a.padded, a.padded)


def write_halves(
    const number[:, ::1] counts,        # in: (n_rows, n_components)
    float a,
    float b,
    float clip,
    const float[::1] scale,             # in: (padded,)
    const float[::1] low,               # in: (padded,) normal halves, as floats
    const float[::1] high,              # in: (padded,)
    uint16_t[:, ::1] half,              # out: (n_rows, padded), the padding is left alone
    int n_threads,
):
    """Halves nearest to (min(max(a n + b, 0), clip) + 1) scale, within [low, high]."""
    cdef Rows loop = rows_of(counts, a, b, clip)
    loop.size, loop.padded = rows_of_piece(loop.n_columns), half.shape[1]
    check_padded(loop.n_columns, min(scale.shape[0], low.shape[0], high.shape[0], half.shape[1]))
    if half.shape[0] != loop.n_rows:
        raise ValueError("half must have the rows of counts")
    loop.scale, loop.low, loop.high, loop.half = &scale[0], &low[0], &high[0], &half[0, 0]
    with nogil:
        run_pieces(write_piece, &loop, pieces_of(loop.n_rows, loop.n_columns), n_threads)


cdef int check_padded(Py_ssize_t n_components, Py_ssize_t padded) except -1:
    if padded < (n_components + 15) // 16 * 16:
        raise ValueError(f"{n_components} topics need rows of whole vectors, got {padded}")
    return 0
