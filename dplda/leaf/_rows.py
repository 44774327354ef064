"""Arrays that are made block by block, in memory or in a file. Imports files alone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain
from typing import IO

import numpy as np

from dplda.leaf._files import check_writable, explained, written


def collected(
    blocks: Iterable[np.ndarray], out: str | os.PathLike[str] | None
) -> np.ndarray:
    """Blocks of rows, of which there is one at least, as one array.

    Without `out` it is in memory. Else it is read from this .npy file as it is needed:
    memory holds one block. Only its owner can read the file, which is there as a whole
    or not at all.
    """
    if out is None:
        return np.concatenate([*blocks])
    check_writable(out)
    each = iter(blocks)
    first = next(each)
    with written(out) as file:
        begin = _write_header(file, first, 0)
        n_rows = 0
        for block in chain([first], each):
            with explained(out):
                file.write(np.ascontiguousarray(block).data)
            n_rows += len(block)
        end = _write_header(file, first, n_rows)
        assert end == begin, "NumPy leaves room for the number of rows"
    return np.load(out, mmap_mode="r")


def _write_header(file: IO[bytes], block: np.ndarray, n_rows: int) -> int:
    """Write the header of an array of such rows; where it ends."""
    file.seek(0)
    np.lib.format.write_array_header_1_0(
        file,
        {
            "descr": np.lib.format.dtype_to_descr(block.dtype),
            "fortran_order": False,
            "shape": (n_rows, *block.shape[1:]),
        },
    )
    return file.tell()
