import numpy as np
from numpy.typing import NDArray

def by_column(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    rows: NDArray[np.int64],
    n_words: int,
    n_threads: int,
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]: ...
