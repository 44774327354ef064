from typing import Any

import numpy as np
from numpy.typing import NDArray

def list_tokens(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    doc_ptr: NDArray[np.int64],
    word: NDArray[np.int32],
) -> None: ...
def shuffle(
    word: NDArray[np.int32],
    doc_ptr: NDArray[np.int64],
    bits: NDArray[np.uint64],
    spare: NDArray[np.uint64],
    state: NDArray[np.int64],
) -> int: ...
def list_by_word(
    word: NDArray[np.int32], word_ptr: NDArray[np.int64], token: NDArray[np.int32]
) -> None: ...
def count_topics(
    word_ptr: NDArray[np.int64],
    token: NDArray[np.int32],
    topics: NDArray[np.int16],
    unit: int,
    counts: NDArray[np.int32] | NDArray[np.int64],
    n_threads: int,
) -> None: ...
def add_weights(
    counts: NDArray[Any],
    a: float,
    b: float,
    clip: float,
    size: int,
    sums: NDArray[np.float32],
    largest: NDArray[np.float32],
    n_threads: int,
) -> None: ...
def write_halves(
    counts: NDArray[Any],
    a: float,
    b: float,
    clip: float,
    scale: NDArray[np.float32],
    low: NDArray[np.float32],
    high: NDArray[np.float32],
    half: NDArray[np.uint16],
    n_threads: int,
) -> None: ...
