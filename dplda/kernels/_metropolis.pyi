import numpy as np
from numpy.typing import NDArray

def build_alias(
    weight: NDArray[np.float32],
    threshold: NDArray[np.uint32],
    alias: NDArray[np.int32],
    left: NDArray[np.float64],
    stack: NDArray[np.int32],
) -> None: ...
def sweep(
    doc_ptr: NDArray[np.int64],
    unit_ptr: NDArray[np.int64],
    first_unit: int,
    last_unit: int,
    topics: NDArray[np.int32],
    ptr: NDArray[np.int64],
    word: NDArray[np.int32],
    level: NDArray[np.uint16],
    base: float,
    gain: NDArray[np.float64],
    phi: NDArray[np.float32],
    threshold: NDArray[np.uint32],
    alias: NDArray[np.int32],
    prior: NDArray[np.float32],
    doc_topic_prior: float,
    unit_bits: NDArray[np.uint64],
    token_bits: NDArray[np.uint64],
    counts: NDArray[np.int32],
    doc_count: NDArray[np.int32],
    cached: NDArray[np.float64],
    cached_for: NDArray[np.int64],
) -> tuple[int, int]: ...
