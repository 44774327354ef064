from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Real = TypeVar("Real", np.float32, np.float64)

def scratch_size(longest: int, n_components: int) -> int: ...
def e_step(
    indptr: I32,
    indices: I32,
    data: NDArray[Real],
    rows: I64,
    exp_topic_word: NDArray[Real],
    prior: float,
    n_components: int,
    max_iter: int,
    tol: float,
    gamma: NDArray[Real],
    exp_doc_topic: NDArray[Real],
    scratch: NDArray[Real],
) -> None: ...
def exp_expectations(
    table: F64, total: F64, out: NDArray[Real], n_threads: int
) -> None: ...
