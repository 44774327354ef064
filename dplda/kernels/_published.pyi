import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

def subsampled_sweep(
    word: I32,
    document: I32,
    taken: I64,
    topics: I32,
    noisy: F64,
    sizes: F64,
    doc_counts: I32,
    row_noise: F64,
    count_clip: float,
    doc_topic_prior: float,
    topic_word_prior: float,
    bits: U64,
    scratch: F64,
) -> None: ...
