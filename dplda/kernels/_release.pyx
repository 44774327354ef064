"""What HDPLDA does with its tokens and their counts, except for drawing topics.

Tokens are put into a random order inside of their documents, listed by word, and counted. Noisy
counts become a table of IEEE halves; its loops are in ``_release.h``, for each instruction set.
Rows do not depend on each other, so callers may split them over threads.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint64_t

from dplda.kernels._sets cimport in_use

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

    Token i of a document changes places with token j, where j is exactly uniform on 0, ..., i: the
    high half of bits * (i + 1), where the few words that would favor some values are rejected.
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


def count_topics(
    const int64_t[::1] word_ptr,        # in: as from `list_by_word`
    const int32_t[::1] token,           # in
    const int16_t[::1] topics,          # in: topic of each token; few bytes, read in no order
    Py_ssize_t first,                   # in: the words to count
    Py_ssize_t last,
    int64_t unit,                       # in: what a token adds
    integer[:, ::1] counts,             # out: (n_words, n_components), rows from first to last - 1
):
    """Write the word-topic counts of some words, times `unit`."""
    cdef Py_ssize_t w, i, k, last_token = word_ptr[last] - 1
    cdef integer* row
    with nogil:
        for w in range(first, last):
            row = &counts[w, 0]
            for k in range(counts.shape[1]):
                row[k] = 0
            for i in range(word_ptr[w], word_ptr[w + 1]):
                prefetch(&topics[token[min(i + AHEAD, last_token)]])
                row[topics[token[i]]] += <integer>unit


def add_weights(
    const number[:, ::1] counts,        # in: (n_rows, n_components)
    float a,
    float b,
    float clip,
    float[::1] sums,                    # in/out: (padded,)
    float[::1] largest,                 # in/out: (padded,)
):
    """Add min(max(a n + b, 0), clip) + 1 over each column, row by row; the largest of them too."""
    cdef dplda_weight weight
    cdef int set = in_use
    cdef int kind = INT32 if number is int32_t else INT64 if number is int64_t else FLOAT64
    weight.a, weight.b, weight.clip = a, b, clip
    check_padded(counts.shape[1], min(sums.shape[0], largest.shape[0]))
    with nogil:
        if counts.shape[0] > 0:
            dplda_add_weights(
                set, &counts[0, 0], kind, counts.shape[0], counts.shape[1],
                weight, &sums[0], &largest[0])


def write_halves(
    const number[:, ::1] counts,        # in: (n_rows, n_components)
    float a,
    float b,
    float clip,
    const float[::1] scale,             # in: (padded,)
    const float[::1] low,               # in: (padded,) normal halves, as floats
    const float[::1] high,              # in: (padded,)
    uint16_t[:, ::1] half,              # out: (n_rows, padded), the padding is left alone
):
    """Halves nearest to (min(max(a n + b, 0), clip) + 1) scale, within [low, high]."""
    cdef dplda_weight weight
    cdef int set = in_use
    cdef int kind = INT32 if number is int32_t else INT64 if number is int64_t else FLOAT64
    weight.a, weight.b, weight.clip = a, b, clip
    check_padded(
        counts.shape[1], min(scale.shape[0], low.shape[0], high.shape[0], half.shape[1]))
    with nogil:
        if counts.shape[0] > 0:
            dplda_write_halves(
                set, &counts[0, 0], kind, counts.shape[0], counts.shape[1],
                weight, &scale[0], &low[0], &high[0], &half[0, 0], half.shape[1])


cdef int check_padded(Py_ssize_t n_components, Py_ssize_t padded) except -1:
    if padded < (n_components + 15) // 16 * 16:
        raise ValueError(f"{n_components} topics need rows of whole vectors, got {padded}")
    return 0
