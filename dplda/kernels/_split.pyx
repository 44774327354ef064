"""Words of texts, and how often each text has them.

A word is a run of characters of some kinds. The caller's table has the kind of each character, so
nothing here knows Unicode. A hash table finds equal words.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp

# what continues a word, and does not count among its letters
cdef enum:
    MARK = 4
cdef uint64_t ODD = 0x9E3779B97F4A7C15u


cdef struct Word:
    uint64_t hash
    int64_t last  # its latest entry
    int32_t begin  # of its first occurrence
    int32_t length


cdef struct Block:  # what is read, and what is found
    const uint32_t* codes
    const int64_t* ends
    const uint8_t* kinds
    Py_ssize_t n_texts
    Py_ssize_t n_codes
    int allowed
    Py_ssize_t least
    uint64_t key
    Word* words
    int32_t* number
    int32_t* count
    int64_t* ptr
    int32_t* slots
    Py_ssize_t mask


cdef inline Py_ssize_t slot_of(uint64_t h, Py_ssize_t mask) noexcept nogil:
    return <Py_ssize_t>(((h ^ (h >> 29)) * ODD) >> 20) & mask


cdef bint grow(Block* block, Py_ssize_t n_words) noexcept nogil:
    """Twice as many slots; False without memory."""
    cdef Py_ssize_t mask = 2 * block.mask + 1, s, j
    free(block.slots)
    block.slots = <int32_t*>calloc(mask + 1, sizeof(int32_t))
    if block.slots == NULL:
        return False
    for j in range(n_words):
        s = slot_of(block.words[j].hash, mask)
        while block.slots[s]:
            s = (s + 1) & mask
        block.slots[s] = <int32_t>j + 1
    block.mask = mask
    return True


cdef int32_t find(
    Block* block, uint64_t h, Py_ssize_t begin, Py_ssize_t length, Py_ssize_t* place
) noexcept nogil:
    """The number of a word; -1 for a new one, whose slot is `place`."""
    cdef Py_ssize_t s = slot_of(h, block.mask)
    cdef const uint32_t* codes = block.codes
    cdef Word* word
    while block.slots[s]:
        word = &block.words[block.slots[s] - 1]
        if (word.hash == h and word.length == length
                and not memcmp(codes + word.begin, codes + begin, 4 * length)):
            return block.slots[s] - 1
        s = (s + 1) & block.mask
    place[0] = s
    return -1


cdef Py_ssize_t count_words(Block* block) noexcept nogil:
    """Fill the arrays of results. Return the number of words; -1 without memory."""
    cdef Py_ssize_t n_words = 0, n_entries = 0, i = 0, text, first, begin, n, s = 0
    cdef int32_t number
    cdef uint64_t h
    cdef int kind, seen
    cdef Word* word
    block.ptr[0] = 0
    for text in range(block.n_texts):
        first = n_entries
        while i < block.ends[text]:
            kind = block.kinds[block.codes[i]]
            if not kind & ~MARK:
                i += 1
                continue
            begin = i
            h = block.key
            n = seen = 0
            while kind:
                seen |= kind
                n += kind != MARK
                h = (h ^ block.codes[i]) * ODD
                i += 1
                kind = block.kinds[block.codes[i]] if i < block.ends[text] else 0
            if seen & ~(block.allowed | MARK) or n < block.least:
                continue
            number = find(block, h, begin, i - begin, &s)
            if number < 0:
                number = <int32_t>n_words
                word = &block.words[number]
                word.hash = h
                word.last = -1
                word.begin = <int32_t>begin
                word.length = <int32_t>(i - begin)
                block.slots[s] = number + 1
                n_words += 1
                if 2 * n_words > block.mask and not grow(block, n_words):
                    return -1
            word = &block.words[number]
            if word.last >= first:
                block.count[word.last] += 1
            else:
                word.last = n_entries
                block.number[n_entries] = number
                block.count[n_entries] = 1
                n_entries += 1
        block.ptr[text + 1] = n_entries
    return n_words


def split(bytes codes, bytes ends, bytes kinds, int allowed, Py_ssize_t least, uint64_t key):
    """The words of a block of texts, and the entries of each text.

    `codes` (uint32) are the code points of all texts, whose `ends` (int64) follow each other.
    `kinds` (uint8) has the kind of each code point; 0 is outside of words. Words are maximal runs
    that have at least `least` characters, not counting marks, and only kinds of the mask `allowed`.
    `key` is secret, so nobody can write words with equal hashes. All arrays are bytes: number and
    count of each entry (int32), the ends of texts among entries after a first 0 (int64), and begin
    and length of each word in `codes` (int32).
    """
    cdef Block block
    cdef Py_ssize_t n_words = -1, n_entries, j
    block.n_codes = len(codes) // 4
    block.n_texts = len(ends) // 8
    block.codes = <const uint32_t*>PyBytes_AS_STRING(codes)
    block.ends = <const int64_t*>PyBytes_AS_STRING(ends)
    block.kinds = <const uint8_t*>PyBytes_AS_STRING(kinds)
    block.allowed = allowed
    block.least = least
    block.key = key
    block.mask = 1023
    if least < 1 or block.n_codes > 2**30:
        raise ValueError("a block holds at most 2**30 characters, and a word at least one")
    # a character ends each word but the last one of a text
    most = (block.n_codes + block.n_texts) // (least + 1) + 1
    cdef Py_ssize_t most_words = most
    ptr = PyBytes_FromStringAndSize(NULL, 8 * (block.n_texts + 1))
    block.ptr = <int64_t*>PyBytes_AS_STRING(ptr)
    block.words = <Word*>malloc(most_words * sizeof(Word))
    block.number = <int32_t*>malloc(most_words * sizeof(int32_t))
    block.count = <int32_t*>malloc(most_words * sizeof(int32_t))
    block.slots = <int32_t*>calloc(block.mask + 1, sizeof(int32_t))
    try:
        if block.words != NULL and block.number != NULL and block.count != NULL:
            if block.slots != NULL:
                with nogil:
                    n_words = count_words(&block)
        if n_words < 0:
            raise MemoryError("no memory for the words of a block of texts")
        n_entries = block.ptr[block.n_texts]
        numbers = PyBytes_FromStringAndSize(<char*>block.number, 4 * n_entries)
        counts = PyBytes_FromStringAndSize(<char*>block.count, 4 * n_entries)
        begins = PyBytes_FromStringAndSize(NULL, 4 * n_words)
        lengths = PyBytes_FromStringAndSize(NULL, 4 * n_words)
        for j in range(n_words):
            (<int32_t*>PyBytes_AS_STRING(begins))[j] = block.words[j].begin
            (<int32_t*>PyBytes_AS_STRING(lengths))[j] = block.words[j].length
        return numbers, counts, ptr, begins, lengths
    finally:
        free(block.words)
        free(block.number)
        free(block.count)
        free(block.slots)
