import numpy as np
from numpy.typing import NDArray

def collapsed_sweep(
    word: NDArray[np.int32],
    doc_ptr: NDArray[np.int64],
    topics: NDArray[np.int32],
    counts: NDArray[np.int32],
    totals: NDArray[np.int64],
    doc_topic_prior: float,
    topic_word_prior: float,
    bits: NDArray[np.uint64],
    scratch: NDArray[np.float32],
) -> None: ...
def background_sweep(
    word: NDArray[np.int32],
    doc_ptr: NDArray[np.int64],
    topics: NDArray[np.int32],
    counts: NDArray[np.int32],
    totals: NDArray[np.int64],
    word_prior: NDArray[np.float32],
    prior_sizes: NDArray[np.float64],
    background: NDArray[np.float32],
    doc_topic_prior: float,
    bits: NDArray[np.uint64],
    scratch: NDArray[np.float32],
) -> None: ...
def noisy_sweep(
    word: NDArray[np.int32],
    doc_ptr: NDArray[np.int64],
    topics: NDArray[np.int32],
    counts: NDArray[np.int32],
    totals: NDArray[np.float64],
    word_noise: NDArray[np.float32],
    doc_noise: NDArray[np.float32],
    doc_topic_prior: float,
    topic_word_prior: float,
    bits: NDArray[np.uint64],
    scratch: NDArray[np.float32],
) -> None: ...
def count_words(
    word: NDArray[np.int32],
    topics: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> None: ...
