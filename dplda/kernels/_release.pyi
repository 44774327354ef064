from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U16 = NDArray[np.uint16]
U64 = NDArray[np.uint64]

def list_tokens(
    indptr: I32, indices: I32, data: NDArray[Any], doc_ptr: I64, word: I32
) -> None: ...
def shuffle(word: I32, doc_ptr: I64, bits: U64, spare: U64, state: I64) -> int: ...
def list_by_word(word: I32, word_ptr: I64, token: I32) -> None: ...
def count_topics(
    word_ptr: I64,
    token: I32,
    topics: I16,
    unit: int,
    counts: I32 | I64,
    n_threads: int,
) -> None: ...
def add_weights(
    counts: NDArray[Any],
    a: float,
    b: float,
    clip: float,
    size: int,
    sums: F32,
    largest: F32,
    n_threads: int,
) -> None: ...
def write_halves(
    counts: NDArray[Any],
    a: float,
    b: float,
    clip: float,
    scale: F32,
    low: F32,
    high: F32,
    half: U16,
    n_threads: int,
) -> None: ...
