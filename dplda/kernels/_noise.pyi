import numpy as np
from numpy.typing import NDArray

def add_gaussian(
    words: NDArray[np.uint64],
    spare: NDArray[np.uint64],
    fast: NDArray[np.uint32],
    slow: NDArray[np.uint64],
    cells: NDArray[np.int64],
) -> tuple[int, int]: ...
def add_laplace(
    words: NDArray[np.uint64],
    spare: NDArray[np.uint64],
    fast: NDArray[np.uint32],
    slow: NDArray[np.uint64],
    cells: NDArray[np.int64],
) -> tuple[int, int]: ...
