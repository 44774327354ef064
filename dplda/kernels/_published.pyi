import numpy as np
from numpy.typing import NDArray

def subsampled_sweep(
    word: NDArray[np.int32],
    document: NDArray[np.int32],
    taken: NDArray[np.int64],
    topics: NDArray[np.int32],
    noisy: NDArray[np.float64],
    sizes: NDArray[np.float64],
    doc_counts: NDArray[np.int32],
    row_noise: NDArray[np.float64],
    count_clip: float,
    doc_topic_prior: float,
    topic_word_prior: float,
    bits: NDArray[np.uint64],
    scratch: NDArray[np.float64],
) -> None: ...
def log_likelihood(
    word: NDArray[np.int32],
    document: NDArray[np.int32],
    phi: NDArray[np.float64],
    theta: NDArray[np.float64],
) -> float: ...
