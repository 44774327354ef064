import numpy as np
from numpy.typing import NDArray

LANES: int
MAX_TOPICS: int

def tolerance(padded: int) -> float: ...
def sweep(
    word: NDArray[np.int32],
    doc_ptr: NDArray[np.int64],
    order: NDArray[np.int64],
    topics: NDArray[np.int16],
    half: NDArray[np.uint16],
    doc_topic_prior: float,
    bits: NDArray[np.uint64],
    refinement: NDArray[np.uint64] | None,
    tolerance: float,
) -> int: ...
