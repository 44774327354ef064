import numpy as np
from numpy.typing import NDArray

def fold_in(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    rows: NDArray[np.int64],
    phi: NDArray[np.float32],
    prior: float,
    n_components: int,
    max_iter: int,
    tol: float,
    theta: NDArray[np.float32],
    scratch: NDArray[np.float32],
) -> None: ...
def add_contributions(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    unit_ptr: NDArray[np.int64],
    units: NDArray[np.int64],
    theta: NDArray[np.float32],
    factor: NDArray[np.float32],
    center: NDArray[np.float32],
    word_weight: NDArray[np.float32],
    unit_scale: NDArray[np.float64],
    norm: float,
    radius: int,
    total: NDArray[np.int64],
    place: NDArray[np.int32],
    known: NDArray[np.int32],
    scratch: NDArray[np.float32],
    rounded: NDArray[np.int32],
) -> None: ...
