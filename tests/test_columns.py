"""Rows by column: as SciPy's, for any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from dplda.core._fold_in import single_precision
from dplda.kernels._columns import by_column
from dplda.leaf._threads import n_threads


def random_counts(n_docs=150, n_words=40, seed=0):
    """Documents of none to all of the words, and words that no document has."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(0.5, 1.0, (n_docs, 1)), (n_docs, n_words))
    counts[::7], counts[:, ::9] = 0, 0
    return single_precision(sp.csr_array(counts))


@pytest.mark.parametrize("threads", [1, 2, 3, 50])
def test_equals_scipys(threads):
    X = random_counts()
    for rows in ([], [3], [0, 7, 14], [149, 2, 60], np.arange(150), np.arange(1, 150, 3)):
        rows = np.array(rows, np.int64)
        expected = X[rows].tocsc()
        found = by_column(X.indptr, X.indices, X.data, rows, X.shape[1], n_threads(threads))
        for array, other in zip(found, (expected.data, expected.indices, expected.indptr)):
            assert array.dtype == other.dtype
            assert_array_equal(array, other)
