"""X is read where it lies: never written to, never kept, copied only to a new form."""

import gc
import tracemalloc
import types

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from estimators import CASES, each
from numpy.testing import assert_array_equal
from sklearn.base import clone

from dplda import SubLDA
from dplda.core._corpus import check_counts
from dplda.datasets import make_topic_corpus

ARRAYS = ("data", "indices", "indptr")


@pytest.fixture(scope="module")
def corpus():
    X = make_topic_corpus(137, 40, 4, doc_length=50, random_state=0).data
    return sp.csr_array(X, dtype=np.float32)


@pytest.fixture(scope="module")
def stored(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("counts") / "counts.joblib"
    joblib.dump(corpus, path)
    return path


CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


def arrays_of(root):
    todo, seen = [root], {id(root)}
    while todo:
        value = todo.pop()
        if isinstance(value, np.ndarray):
            yield value
        for part in gc.get_referents(value):
            if id(part) not in seen and not isinstance(part, CODE):
                seen.add(id(part))
                todo.append(part)


@each(CASES)
@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")
def test_a_file_of_counts_is_read_only_and_not_kept(estimator, corpus, stored):
    X = joblib.load(stored, mmap_mode="r")
    assert not X.data.flags.writeable
    model = clone(estimator).fit(X)
    kept = list(arrays_of(model))
    if hasattr(model, "transform"):
        kept += list(arrays_of(model.transform(X)))
    assert kept
    for name in ARRAYS:
        own = getattr(X, name)
        assert_array_equal(own, getattr(corpus, name))
        assert not any(np.may_share_memory(own, array) for array in kept)


def test_a_frame_of_sparse_columns_stays_sparse():
    pd = pytest.importorskip("pandas")
    X = sp.random_array((2000, 1000), density=0.002, rng=0, format="csr").ceil()
    frame = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X))
    frame.columns = [f"word{v}" for v in range(1000)]
    model = SubLDA(2, epsilon=1.0)
    check_counts(
        model, frame[:1], reset=True
    )  # what is imported late takes memory, too
    tracemalloc.start()
    counts = check_counts(model, frame, reset=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (counts != X).nnz == 0
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert peak < 8 * X.shape[0] * X.shape[1] / 3
    unknown = frame.sparse.to_dense().astype(pd.SparseDtype(float, np.nan))
    with pytest.raises(ValueError, match="not filled with 0; pass"):
        check_counts(model, unknown, reset=True)


def test_what_a_table_does_not_count_is_refused():
    pd = pytest.importorskip("pandas")
    masked = np.ma.masked_equal([[1, 99], [2, 3]], 99)
    with pytest.raises(ValueError, match=r"masked cells .* X\.filled\(0\)"):
        check_counts(SubLDA(2, epsilon=1.0), masked, reset=True)
    with_rows = pd.DataFrame({"Unnamed: 0": [1, 2], "tree": [1, 0], "city": [0, 1]})
    with pytest.raises(ValueError, match="index_col=0"):
        check_counts(SubLDA(2, epsilon=1.0), with_rows, reset=True)
