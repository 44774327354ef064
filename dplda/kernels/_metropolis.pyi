import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

def build_alias(
    weight: F32, threshold: U32, alias: I32, left: F64, stack: I32
) -> None: ...
def sweep(
    doc_ptr: I64,
    unit_ptr: I64,
    first_unit: int,
    last_unit: int,
    topics: I32,
    ptr: I64,
    word: I32,
    base: float,
    phi: F32,
    threshold: U32,
    alias: I32,
    prior: F32,
    doc_topic_prior: float,
    unit_bits: U64,
    token_bits: U64,
    counts: I32,
    doc_count: I32,
    cached: F64,
    cached_for: I64,
) -> tuple[int, int]: ...
