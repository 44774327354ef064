import numpy as np
from numpy.typing import NDArray

def fold_in(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    rows: NDArray[np.int64],
    phi: NDArray[np.float32],
    in_pairs: bool,
    prior: float,
    n_components: int,
    max_iter: int,
    tol: float,
    accelerated: bool,
    variational: bool,
    theta: NDArray[np.float32],
    scratch: NDArray[np.float32],
) -> None: ...
def pack(
    phi: NDArray[np.float32], first: int, last: int, pairs: NDArray[np.float32]
) -> None: ...
def measure_words(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    first: int,
    step: int,
    theta: NDArray[np.float32],
    factor: NDArray[np.float32],
    center: NDArray[np.float32],
    word_weight: NDArray[np.float32],
    share: NDArray[np.float32],
    square: NDArray[np.float64],
) -> None: ...
def clip_scales(
    square: NDArray[np.float64],
    doc_scale: NDArray[np.float64],
    norm: float,
    radius: int,
    scale: NDArray[np.float32],
) -> None: ...
def add_words(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    first: int,
    step: int,
    theta: NDArray[np.float32],
    factor: NDArray[np.float32],
    center: NDArray[np.float32],
    word_weight: NDArray[np.float32],
    share: NDArray[np.float32],
    scale: NDArray[np.float32],
    radius: int,
    sign: int,
    total: NDArray[np.int64],
    part: NDArray[np.int32],
    square: NDArray[np.int64],
) -> None: ...
def add_word_totals(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    units: NDArray[np.int64],
    word_weight: NDArray[np.float32],
    unit_scale: NDArray[np.float64],
    norm: float,
    radius: int,
    total: NDArray[np.int64],
    scratch: NDArray[np.float32],
    rounded: NDArray[np.int32],
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
