import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

def draw_weights(
    row: F64,
    totals: F64,
    doc_counts: I64,
    n_words: int,
    count_clip: float,
    doc_topic_prior: float,
    topic_word_prior: float,
    weight: F64,
) -> None: ...
def live_sweep(
    word: I32,
    doc_ptr: I64,
    topics: I32,
    counts: F64,
    totals: F64,
    count_clip: float,
    doc_topic_prior: float,
    topic_word_prior: float,
    bits: U64,
    doc_counts: I64,
    cumulative: F64,
) -> None: ...
