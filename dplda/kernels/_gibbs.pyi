import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

def collapsed_sweep(
    word: I32,
    doc_ptr: I64,
    topics: I32,
    counts: I32,
    totals: I64,
    doc_topic_prior: float,
    topic_word_prior: float,
    bits: U64,
    scratch: F32,
) -> None: ...
def background_sweep(
    word: I32,
    doc_ptr: I64,
    topics: I32,
    counts: I32,
    totals: I64,
    word_prior: F32,
    prior_sizes: F64,
    background: F32,
    doc_topic_prior: float,
    bits: U64,
    scratch: F32,
) -> None: ...
