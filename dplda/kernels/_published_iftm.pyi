import numpy as np
from numpy.typing import NDArray

def accept_topics(
    doc_ptr: NDArray[np.int64],
    first: int,
    last: int,
    word: NDArray[np.int32],
    topics: NDArray[np.int32],
    initial: NDArray[np.int32],
    by_doc: NDArray[np.int32],
    by_word: NDArray[np.int32],
    log_uniform: NDArray[np.float64],
    ptr: NDArray[np.int64],
    survivor: NDArray[np.int32],
    level: NDArray[np.uint16],
    value: NDArray[np.float64],
    log_phi: NDArray[np.float32],
    omega: NDArray[np.float32],
    alpha: float,
    live: NDArray[np.int32],
    frozen: NDArray[np.int32],
) -> None: ...
