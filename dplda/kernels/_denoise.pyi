import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

def nodes() -> tuple[F32, F32]: ...
def count(average: F64, rate: F32, scale: F32, center: F32, out: I64) -> None: ...
def estimate(
    average: F64,
    rate: F32,
    scale: F32,
    center: F32,
    means: F32,
    least: float,
    table: F32,
    n_threads: int,
) -> None: ...
def learn(
    noisy: I64,
    table: F32,
    kept: float,
    added: F64,
    of_table: F64,
    centered: bool,
    average: F64,
    n_threads: int,
) -> None: ...
def shares(table: F32, factor: F32 | None, out: F32, n_threads: int) -> None: ...
def topic_sums(table: F32 | F64, n_threads: int) -> F64: ...
def temper(table: F32, power: float, n_threads: int) -> None: ...
def products(left: F64, right: F64, out: F64) -> None: ...
