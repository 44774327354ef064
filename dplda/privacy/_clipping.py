"""Clipping: contributions as integers of bounded L2 norm. Sensitivity is enforced here.

A unit contributes one vector to a sum. The vector is scaled to L2 norm at most `norm`, which stands
for `radius` integer units, and rounded toward zero. The bound is then checked in integers, so that
floating-point errors cannot exceed it. The sum goes to `Curator.release` with
``DiscreteGaussian(radius)``.

`sum_clipped` is the form for NumPy and SciPy. The kernels of the document-level estimators use the
same steps in C, from ``kernels/_clip.h``. A test checks that both give the same integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dplda.leaf._checks import check_integer, check_number
from dplda.privacy._mechanisms import MAX_RADIUS

SHRINK = 1.0 - 2.0**-16  # removes at most 2**-16 of a vector that rounding left too long


def sum_clipped(contributions: Any, norm: float, radius: int) -> NDArray[np.int64]:
    """Sum the rows of a matrix, each clipped to L2 norm `norm`, in units of ``norm / radius``.

    Parameters
    ----------
    contributions : {ndarray, sparse matrix} of shape (n_units, n_cells)
        One row for each protected unit. A row must be a function of that unit and of public
        values only. A row that holds NaN or infinity, or whose squares overflow, counts as zero.
    norm : float
        Clipping bound, from 1e-9 to 1e9. A public constant.
    radius : int
        The clipping bound in integer units, from 1 to 2**30.

    Returns
    -------
    total : ndarray of shape (n_cells,), int64
        ``total * (norm / radius)`` estimates the sum of the clipped rows.

    Notes
    -----
    **Privacy.** Unit: a row. Relation: one row is added, removed, or replaced by zeros.
    Sensitivity: `radius`, in L2, for any input. Mechanism: none; the result is private until
    `Curator.release` adds the noise of ``DiscreteGaussian(radius)``. Replacing a row by another
    row moves the sum by at most ``2 * radius``. The proof is in ``docs/extending.md``.

    Examples
    --------
    >>> import numpy as np
    >>> from dplda.privacy.mechanisms import sum_clipped
    >>> sum_clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), norm=1.0, radius=1000)
    array([ 900, 1200])
    """
    norm = check_number("norm", norm, 1e-9, 1e9)
    radius = check_integer("radius", radius, 1, MAX_RADIUS)
    rows = add_duplicates(sp.csr_array(unsummed(contributions), dtype=np.float64))
    clipped = clip_rows(rows, norm, radius)
    return np.asarray(clipped.sum(axis=0), np.int64)


def clip_rows(rows: sp.csr_array, norm: float, radius: int) -> sp.csr_array:
    """Integer rows of L2 norm at most `radius`, int64."""
    n_entries = np.diff(rows.indptr)
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt(_squared_lengths(rows))
        usable = (length > 1e-15) & np.isfinite(length)  # False for NaN
        scale = radius / np.maximum(np.where(usable, length, norm), norm)
    values = np.where(np.repeat(usable, n_entries), rows.data, 0.0)
    kept = np.zeros(len(values), np.int64)
    for shrink in (1.0, SHRINK):
        integers = np.trunc(values * np.repeat(scale * shrink, n_entries)).astype(np.int64)
        # 64 bits suffice: |scaled row| is at most radius * (1 + 1e-12), and radius**2 <= 2**60
        fits = _exact_row_sums(integers**2, rows.indptr) <= radius**2
        kept = np.where(np.repeat(fits & usable, n_entries), integers, kept)
        usable &= ~fits
    return sp.csr_array((kept, rows.indices, rows.indptr), rows.shape)


def count_unit(radius: int, n_moved: int) -> int:
    """Largest integer unit of counts such that moving `n_moved` counts by one stays in `radius`.

    The move has L2 norm ``unit * sqrt(n_moved)``, at most `radius` in integer arithmetic.
    """
    return math.isqrt(radius**2 // n_moved)


def unsummed(matrix: Any) -> Any:
    """A COO matrix as CSR, whose duplicate entries are left to `add_duplicates`."""
    if not (sp.issparse(matrix) and matrix.format == "coo" and matrix.ndim == 2):
        return matrix
    entries = type(matrix)((matrix.data, matrix.coords), shape=matrix.shape)
    entries.has_canonical_format = True  # else SciPy adds them, in its own order
    rows = entries.tocsr()
    return type(rows)((rows.data, rows.indices, rows.indptr), shape=rows.shape)


def add_duplicates(matrix: Any) -> sp.csr_array:
    """The CSR form of `matrix` with one entry for each cell.

    The entries of a cell are added in an order that depends on its row alone. SciPy sorts all rows
    if any row is not sorted, and sorting changes the order of duplicates. The rounding of a sum
    would then depend on other rows.

    The result shares the arrays of a CSR matrix that has this form already. It is read to find out:
    the flags that SciPy keeps in a matrix may be older than its arrays.
    """
    rows = sp.csr_array(unsummed(matrix))  # the arrays without the flags
    if rows.has_canonical_format:
        return rows
    rows = rows.copy()
    rows.has_sorted_indices = False
    rows.sum_duplicates()
    return rows


def _squared_lengths(rows: sp.csr_array) -> NDArray[np.float64]:
    """Sum of squares of each row, added in the order of its entries.

    `bincount` adds entry after entry, so that a row's rounding does not depend on its place among
    the rows: a contribution may read no other unit, not even its presence.
    """
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    return np.bincount(row, rows.data**2, rows.shape[0]).astype(np.float64)


def _exact_row_sums(values: NDArray[np.int64], indptr: NDArray[Any]) -> NDArray[np.int64]:
    """Integer sums of consecutive pieces; the running sum may wrap around."""
    running: NDArray[np.int64] = np.concatenate([[0], np.cumsum(values)])
    sums: NDArray[np.int64] = running[indptr[1:]] - running[indptr[:-1]]
    return sums
