"""X is read where it lies: never written to, never kept, copied only to a new form."""

import gc
import types

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from estimators import CASES, each
from numpy.testing import assert_array_equal
from sklearn.base import clone

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
