"""One sweep of topic draws under a table that does not change, with exact probabilities.

The law and its proof are in docs/sampling.md. Vectors of floats propose topics, and integers decide
where rounding could matter: topics are the same on every instruction set.
"""

import numpy as np

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint64_t

from dplda.kernels._sets cimport in_use
from dplda.kernels._team cimport run_pieces

cdef extern from "_frozen.h" nogil:
    ctypedef struct Sweep "dplda_sweep":
        const int32_t* word
        const int64_t* doc_ptr
        const int64_t* order
        int64_t n_docs
        int64_t* next
        const int16_t* topics
        const uint16_t* half
        int64_t padded
        double doc_topic_prior
        const uint64_t* bits
        const uint64_t* refinement
        float tolerance
        float* scratch
        int16_t* drawn
        int64_t n_exact
        int unrefined
    float proven_tolerance "dplda_tolerance"(int64_t padded)
    int64_t scratch_floats "dplda_scratch_floats"(int64_t padded)
    void sweep_documents "dplda_sweep_documents"(Sweep* sweep, int set)


def tolerance(padded):
    """Bound on the rounding errors of the float stage, as a fraction of the sum of the weights."""
    return proven_tolerance(padded)


# A piece is a flight: documents that a thread sweeps side by side. It takes the next document when
# one of its own is complete, until none is left.
cdef struct Flights:
    Sweep sweep                          # without scratch, and with the sums of no flight
    float* scratch                       # (n_flights, scratch_floats)
    int64_t* n_exact                     # (n_flights,)
    int64_t* unrefined                   # (n_flights,)


cdef void fly(void* loop, Py_ssize_t piece, int thread) noexcept nogil:
    cdef Flights* a = <Flights*>loop
    cdef Sweep own = a.sweep
    own.scratch = a.scratch + piece * scratch_floats(own.padded)
    sweep_documents(&own, in_use)
    a.n_exact[piece], a.unrefined[piece] = own.n_exact, own.unrefined


def sweep(
    const int32_t[::1] word,             # in: word of each token, grouped by document
    const int64_t[::1] doc_ptr,          # in: where each document's tokens begin
    const int64_t[::1] order,            # in: documents in the order in which they are begun
    const int16_t[::1] topics,           # in: topic of each token, -1 for not yet assigned
    const uint16_t[:, ::1] half,         # in: (n_words, padded) normal halves, 0 on the padding
    double doc_topic_prior,
    const uint64_t[::1] bits,            # in: first 64 bits of each token's uniform number
    const uint64_t[::1] refinement,      # in: the next 64 bits of each, or empty
    double tolerance,
    int16_t[::1] drawn,                  # out: new topic of each token
    int n_threads,
):
    """Draw the topic of every token; the order of the documents does not matter.

    Returns how many draws integers decided, or -1 if a draw needs `refinement` and it is empty:
    then `drawn` is of no use. Below the tolerance that `tolerance` returns, topics may be wrong.
    """
    cdef Flights loop
    cdef int64_t next = 0
    cdef Py_ssize_t n_flights = max(n_threads, 1), n_tokens = word.shape[0]
    if half.shape[1] % 16 or half.shape[1] > 2048 or order.shape[0] != doc_ptr.shape[0] - 1:
        raise ValueError(
            "the table must be padded to a multiple of 16, at most 2048, and the order complete"
        )
    if min(topics.shape[0], drawn.shape[0], bits.shape[0]) < n_tokens:
        raise ValueError("each token must have a topic, room for the new one, and a random word")
    if not n_tokens:
        return 0
    cdef float[::1] scratch = np.empty(n_flights * scratch_floats(half.shape[1]), np.float32)
    cdef int64_t[:, ::1] found = np.zeros((2, n_flights), np.int64)
    loop.sweep.word, loop.sweep.doc_ptr, loop.sweep.order = &word[0], &doc_ptr[0], &order[0]
    loop.sweep.n_docs, loop.sweep.next = order.shape[0], &next
    loop.sweep.topics, loop.sweep.drawn = &topics[0], &drawn[0]
    loop.sweep.half, loop.sweep.padded = &half[0, 0], half.shape[1]
    loop.sweep.doc_topic_prior, loop.sweep.tolerance = doc_topic_prior, <float>tolerance
    loop.sweep.bits = &bits[0]
    loop.sweep.refinement = &refinement[0] if refinement.shape[0] else NULL
    loop.sweep.n_exact, loop.sweep.unrefined = 0, 0
    loop.scratch, loop.n_exact, loop.unrefined = &scratch[0], &found[0, 0], &found[1, 0]
    with nogil:
        run_pieces(fly, &loop, n_flights, n_threads)
    n_exact, n_unrefined = np.sum(found, axis=1)
    return -1 if n_unrefined else int(n_exact)
