import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

LARGEST_SQUARE: int

def fold_in(
    X: sp.csr_array,
    rows: I64,
    theta: F32,
    inference: object,  # `Inference` of dplda.core._fold_in, which may import kernels
    bytes: U8,
    scratch: F32,
    copies: U8,
    numbers: I32,
) -> None: ...
def narrow(table: F32, size: float, integers: I16 | U8, n_threads: int) -> None: ...
def measure_words(
    indptr: I32,
    indices: I32,
    data: F32,
    units: I32,
    theta: I16,
    factor: I16,
    center: I16,
    word_weight: F32,
    sums: I32,
    scratch: F32,
    length: F64,
    n_threads: int,
) -> None: ...
def clip_scales(
    square: F64, relative: F64, most: float, nearly: float, scale: F32
) -> None: ...
def add_words(
    indptr: I32,
    indices: I32,
    data: F32,
    units: I32,
    theta: I16,
    factor: I16,
    center: I16,
    word_weight: F32,
    sums: I32,
    scale: F32,
    shift: int,
    sign: int,
    total: I64,
    square: I64,
) -> None: ...
def add_word_totals(
    indptr: I32,
    indices: I32,
    data: F32,
    units: I64,
    word_weight: F32,
    unit_scale: F64,
    norm: float,
    radius: int,
    total: I64,
    scratch: F32,
    rounded: I32,
) -> None: ...
