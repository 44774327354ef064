import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U16 = NDArray[np.uint16]

def accept_topics(
    doc_ptr: I64,
    first: int,
    last: int,
    word: I32,
    topics: I32,
    initial: I32,
    by_doc: I32,
    by_word: I32,
    log_uniform: F64,
    ptr: I64,
    survivor: I32,
    level: U16,
    value: F64,
    log_phi: F32,
    omega: F32,
    alpha: float,
    live: I32,
    frozen: I32,
) -> None: ...
