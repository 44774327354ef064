"""One sweep of topic draws under a fixed table, with exact probabilities.

The law and its proof are in docs/proofs_word.md. Vectors of floats propose topics. Where rounding
could matter, integers decide, so topics are the same on every instruction set.
"""

import numpy as np

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint64_t

from dplda.kernels._sets cimport in_use

cdef extern from "_frozen.h" nogil:
    ctypedef struct Sweep "dplda_sweep":
        const int32_t* word
        const int64_t* doc_ptr
        const int64_t* order
        int64_t n_docs
        int16_t* topics
        const uint16_t* half
        int64_t padded
        double doc_topic_prior
        const uint64_t* bits
        const uint64_t* refinement
        float tolerance
        float* scratch
        int64_t n_exact
        int unrefined
    enum:
        DPLDA_LANES
        DPLDA_MOST_TOPICS
    float proven_tolerance "dplda_tolerance"(int64_t padded)
    int64_t scratch_floats "dplda_scratch_floats"(int64_t padded)
    void sweep_documents "dplda_sweep_documents"(Sweep* sweep, int set)


LANES = DPLDA_LANES                      # of a vector: topics are padded to a multiple
MAX_TOPICS = DPLDA_MOST_TOPICS


def tolerance(padded):
    """Bound on the rounding errors of the float stage, as a fraction of the sum of the weights."""
    return proven_tolerance(padded)


def sweep(
    const int32_t[::1] word,             # in: word of each token, grouped by document
    const int64_t[::1] doc_ptr,          # in: where each document's tokens begin
    const int64_t[::1] order,            # in: documents in the order in which they are begun
    int16_t[::1] topics,                 # in/out: topic of each token, -1 for not yet assigned
    const uint16_t[:, ::1] half,         # in: (n_words, padded) normal halves, 0 on the padding
    double doc_topic_prior,
    const uint64_t[::1] bits,            # in: first 64 bits of each token's uniform number
    const uint64_t[::1] refinement,      # in: the next 64 bits of each, or None
    double tolerance,
):
    """Draw the topic of every token; the order of the documents does not matter.

    Returns the number of draws that integers decided. If a draw needs `refinement` and it is None,
    returns -1; the caller then has to restore `topics`. With a smaller tolerance than `tolerance`
    returns, topics may be wrong.
    """
    cdef Sweep s
    cdef Py_ssize_t padded = half.shape[1]
    if padded % 16 or padded > DPLDA_MOST_TOPICS or order.shape[0] != doc_ptr.shape[0] - 1:
        raise ValueError(
            f"the table must be padded to a multiple of 16, at most {DPLDA_MOST_TOPICS}, "
            "and the order complete"
        )
    if not word.shape[0]:
        return 0
    cdef float[::1] scratch = np.empty(scratch_floats(half.shape[1]), np.float32)
    s.word, s.doc_ptr, s.order = &word[0], &doc_ptr[0], &order[0]
    s.n_docs = order.shape[0]
    s.topics, s.half, s.padded = &topics[0], &half[0, 0], half.shape[1]
    s.doc_topic_prior, s.tolerance = doc_topic_prior, <float>tolerance
    s.bits = &bits[0]
    s.refinement = &refinement[0] if refinement is not None else NULL
    s.scratch = &scratch[0]
    s.n_exact, s.unrefined = 0, 0
    with nogil:
        sweep_documents(&s, in_use)
    return -1 if s.unrefined else s.n_exact
