"""Passes over the cells of a word-topic table, in threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from dplda.kernels import _denoise
from dplda.leaf._threads import in_threads, n_threads

PIECE = 2**14  # cells that a thread works on before it takes the next ones; enters results


def pieces_of(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """First and last word of each piece of a table."""
    size = max(1, PIECE // shape[1])
    return list(itertools.pairwise([*range(0, shape[0], size), shape[0]]))


def over_words(
    kernel: Callable[[int, int], Any], shape: tuple[int, ...], n_jobs: int | None
) -> list[Any]:
    """Call `kernel` on pieces of the words of a table, in threads; results in their order."""
    return in_threads(lambda piece: kernel(*piece), pieces_of(shape), n_jobs)


def topic_sizes(table: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """The sum of each topic (n_components,): of fixed pieces, and of these in their order."""
    return _denoise.topic_sums(table, n_threads(n_jobs)).sum(axis=0)


def temper(factor: np.ndarray, power: float, n_jobs: int | None = None) -> np.ndarray:
    """Raise a float32 table to a power between 0 and 1, in place."""
    if power == 1:
        return factor
    _denoise.temper(factor, power, n_threads(n_jobs))
    return factor
