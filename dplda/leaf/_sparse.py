"""Sparse matrices in one form: one entry for each cell, added in a fixed order."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp


def unsummed(matrix: Any) -> Any:
    """A COO matrix as CSR; `add_duplicates` handles its duplicate entries."""
    if not (sp.issparse(matrix) and matrix.format == "coo" and matrix.ndim == 2):
        return matrix
    entries = type(matrix)((matrix.data, matrix.coords), shape=matrix.shape)
    entries.has_canonical_format = True  # else SciPy adds them, in its own order
    rows = entries.tocsr()
    return type(rows)((rows.data, rows.indices, rows.indptr), shape=rows.shape)


def add_duplicates(matrix: Any) -> sp.csr_array:
    """The CSR form of `matrix` with one entry for each cell; it may share the arrays.

    The entries of a cell are added in an order that depends only on its row. SciPy
    sorts all rows if any row is not sorted, and sorting changes the order of
    duplicates, so the rounding of a sum would depend on other rows.
    """
    rows = sp.csr_array(unsummed(matrix))  # the arrays without the flags
    if rows.has_canonical_format:
        return rows
    rows = rows.copy()
    rows.has_sorted_indices = False
    rows.sum_duplicates()
    return rows
