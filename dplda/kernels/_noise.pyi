import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

N_COLUMNS: int

def add_gaussian(
    words: U64,
    spare: U64,
    fast: U32,
    slow: U64,
    cells: I32 | I64,
) -> tuple[int, int]: ...
def add_laplace(
    words: U64,
    spare: U64,
    fast: U32,
    slow: U64,
    cells: I32 | I64,
) -> tuple[int, int]: ...
