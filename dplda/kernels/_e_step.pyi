from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Real = TypeVar("Real", np.float32, np.float64)

def scratch_size(longest: int, n_components: int) -> int: ...
def e_step(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[Real],
    rows: NDArray[np.int64],
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
    table: NDArray[np.float64],
    total: NDArray[np.float64],
    out: NDArray[Real],
    n_threads: int,
) -> None: ...
