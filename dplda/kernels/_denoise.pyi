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
    stride: int,
    out: NDArray[np.float32],
) -> None: ...
def expectation(
    likelihood: NDArray[np.float32], prior: NDArray[np.float64], sums: NDArray[np.float64]
) -> None: ...
def estimate(
    average: NDArray[np.float64],
    rate: NDArray[np.float32],
    scale: NDArray[np.float32],
    sizes: NDArray[np.float32],
    factors: NDArray[np.float32],
    shares: NDArray[np.float32] | None,
    gains: NDArray[np.float32] | None,
    first: int,
    last: int,
    prior: NDArray[np.float32],
    class_of: NDArray[np.uint8],
    least: float,
    table: NDArray[np.float32],
) -> None: ...
def learn(
    noisy: NDArray[np.int64],
    table: NDArray[np.float32],
    first: int,
    last: int,
    kept: float,
    added: NDArray[np.float64],
    of_table: NDArray[np.float64],
    centered: bool,
    average: NDArray[np.float64],
) -> None: ...
def temper(x: NDArray[np.float32], power: float) -> None: ...
def shares(
    table: NDArray[np.float32],
    first: int,
    last: int,
    factor: NDArray[np.float32] | None,
    out: NDArray[np.float32],
) -> None: ...
def add_rows(
    table: NDArray[np.float32], first: int, last: int, sums: NDArray[np.float64]
) -> None: ...
