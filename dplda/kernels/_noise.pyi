import numpy as np
from numpy.typing import NDArray

def add_gaussian(
    words: NDArray[np.uint64],
    fast: NDArray[np.uint32],
    cells: NDArray[np.int32] | NDArray[np.int64],
    n_threads: int,
) -> NDArray[np.int64]: ...
def add_laplace(
    words: NDArray[np.uint64],
    fast: NDArray[np.uint32],
    cells: NDArray[np.int32] | NDArray[np.int64],
    n_threads: int,
) -> NDArray[np.int64]: ...
def add_tied_gaussian(
    words: NDArray[np.uint64],
    spare: NDArray[np.uint64],
    fast: NDArray[np.uint32],
    slow: NDArray[np.uint64],
    cells: NDArray[np.int32] | NDArray[np.int64],
    left: NDArray[np.int64],
) -> tuple[int, int]: ...
def add_tied_laplace(
    words: NDArray[np.uint64],
    spare: NDArray[np.uint64],
    fast: NDArray[np.uint32],
    slow: NDArray[np.uint64],
    cells: NDArray[np.int32] | NDArray[np.int64],
    left: NDArray[np.int64],
) -> tuple[int, int]: ...
def find_survivors(
    words: NDArray[np.uint64],
    spare: NDArray[np.uint64],
    fast: NDArray[np.uint32],
    slow: NDArray[np.uint64],
    wide: bool,
    n_words: int,
    own_word: NDArray[np.int32],
    own_level: NDArray[np.int32],
    ptr: NDArray[np.int64],
    word: NDArray[np.int32],
    level: NDArray[np.uint16],
    state: NDArray[np.int64],
) -> tuple[int, int]: ...
