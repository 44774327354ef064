import numpy as np
from numpy.typing import NDArray

def draw_weights(
    row: NDArray[np.float64],
    totals: NDArray[np.float64],
    doc_counts: NDArray[np.int64],
    n_words: int,
    count_clip: float,
    doc_topic_prior: float,
    topic_word_prior: float,
    weight: NDArray[np.float64],
) -> None: ...
def live_sweep(
    word: NDArray[np.int32],
    doc_ptr: NDArray[np.int64],
    topics: NDArray[np.int32],
    counts: NDArray[np.float64],
    totals: NDArray[np.float64],
    count_clip: float,
    doc_topic_prior: float,
    topic_word_prior: float,
    bits: NDArray[np.uint64],
    doc_counts: NDArray[np.int64],
    cumulative: NDArray[np.float64],
) -> None: ...
