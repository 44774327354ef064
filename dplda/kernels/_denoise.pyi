import numpy as np
from numpy.typing import NDArray

def likelihood(
    average: NDArray[np.float64],
    rate: NDArray[np.float32],
    scale: NDArray[np.float32],
    sizes: NDArray[np.float32],
    factors: NDArray[np.float32],
    shares: NDArray[np.float32] | None,
    gains: NDArray[np.float32] | None,
    words: NDArray[np.int64],
    first: NDArray[np.int64],
    stride: NDArray[np.int64],
    ptr: NDArray[np.int64],
    out: NDArray[np.float32],
    n_threads: int,
) -> None: ...
def expectation(
    likelihood: NDArray[np.float32],
    ptr: NDArray[np.int64],
    prior: NDArray[np.float64],
    sums: NDArray[np.float64],
    n_threads: int,
) -> None: ...
def estimate(
    average: NDArray[np.float64],
    rate: NDArray[np.float32],
    scale: NDArray[np.float32],
    sizes: NDArray[np.float32],
    factors: NDArray[np.float32],
    shares: NDArray[np.float32] | None,
    gains: NDArray[np.float32] | None,
    prior: NDArray[np.float32],
    class_of: NDArray[np.uint8],
    least: float,
    table: NDArray[np.float32],
    n_threads: int,
) -> None: ...
def learn(
    noisy: NDArray[np.int64],
    table: NDArray[np.float32],
    kept: float,
    added: NDArray[np.float64],
    of_table: NDArray[np.float64],
    centered: bool,
    average: NDArray[np.float64],
    n_threads: int,
) -> None: ...
def shares(
    table: NDArray[np.float32],
    factor: NDArray[np.float32] | None,
    out: NDArray[np.float32],
    n_threads: int,
) -> None: ...
def topic_sums(
    table: NDArray[np.float32] | NDArray[np.float64], n_threads: int
) -> NDArray[np.float64]: ...
def temper(table: NDArray[np.float32], power: float, n_threads: int) -> None: ...
