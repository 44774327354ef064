"""X is read where it lies: never written to, never kept, and copied only in another form."""

import gc
import types

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from estimators import CASES, each
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, clone

from dplda.core import _corpus, _fold_in
from dplda.core._corpus import check_counts, token_weights
from dplda.core._fold_in import fold_in
from dplda.datasets import make_topic_corpus
from dplda.document._contributions import Documents
from dplda.metrics import (
    _noisy_score,
    _perplexity,
    held_out_perplexity,
    perplexity_bound,
)
from dplda.metrics._noisy_score import contributions
from dplda.metrics._perplexity import split_documents

ARRAYS = ("data", "indices", "indptr")
ARRAY_TYPES = [sp.csr_array, sp.csr_matrix]


@pytest.fixture(scope="module")
def corpus():
    X = make_topic_corpus(137, 40, 4, doc_length=50, random_state=0).data
    return sp.csr_array(X, dtype=np.float32)


@pytest.fixture(scope="module")
def stored(corpus, tmp_path_factory):
    """A file of counts."""
    path = tmp_path_factory.mktemp("counts") / "counts.joblib"
    joblib.dump(corpus, path)
    return path


def frozen(X):
    """The same matrix on arrays that cannot be written to."""
    X = X.copy()
    for name in ARRAYS:
        getattr(X, name).flags.writeable = False
    return X


def shared(a, b):
    """Names of the arrays that two matrices have in common."""
    return [name for name in ARRAYS if np.shares_memory(getattr(a, name), getattr(b, name))]


CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


def arrays_of(root):
    """All arrays that an object holds, however deep."""
    todo, seen = [root], {id(root)}
    while todo:
        value = todo.pop()
        if isinstance(value, np.ndarray):
            yield value
        for part in gc.get_referents(value):
            if id(part) not in seen and not isinstance(part, CODE):
                seen.add(id(part))
                todo.append(part)


# ---------------------------------------------------------------- copies


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ARRAY_TYPES)
def test_counts_in_order_are_not_copied(corpus, form, dtype, whole):
    X = frozen(form(corpus, dtype=dtype))
    assert shared(check_counts(BaseEstimator(), X, reset=True, whole=whole), X) == [*ARRAYS]


def test_wide_indices_are_copied_and_counts_are_not(corpus):
    X = corpus.copy()
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    X = frozen(X)
    counts = check_counts(BaseEstimator(), X, reset=True)
    assert shared(counts, X) == ["data"]
    assert counts.indices.dtype == counts.indptr.dtype == np.int32
    assert X.indices.dtype == X.indptr.dtype == np.int64
    X.indices = corpus.indices  # SciPy's full check would make them 64 bits wide again, in X
    check_counts(BaseEstimator(), X, reset=True)
    assert X.indices is corpus.indices


# ---------------------------------------------------------------- writes


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


# ---------------------------------------------------------------- blocks


def test_results_do_not_depend_on_the_size_of_blocks(corpus, monkeypatch):
    """Rows that are computed together read no other row; users may have rows in several blocks."""
    X = corpus.astype(float)
    X.data *= np.random.default_rng(2).random(X.nnz)
    weights = check_counts(BaseEstimator(), X, reset=True, whole=False)
    topics = np.random.default_rng(0).random((3, X.shape[1])) + 0.1
    users = np.random.default_rng(1).integers(0, 20, X.shape[0])
    users = np.unique(users, return_inverse=True)[1]
    public = topics, np.full(X.shape[1], 1 / X.shape[1]), 0.1, 3.0, 100

    def results():
        documents = Documents.from_counts(weights, 3, None, users)
        documents.rescale(np.linspace(0.5, 2, X.shape[1]), 6.0, exact=False)
        return [
            token_weights(X).data,
            fold_in(weights, topics, 0.1),
            documents.scale,
            *(part.toarray() for part in split_documents(weights)),
            contributions(weights, *public),
            contributions(weights, *public, users=users),
        ]

    def scores():
        return [metric(topics, X) for metric in (held_out_perplexity, perplexity_bound)]

    exact, close = results(), scores()
    monkeypatch.setattr(_corpus, "BLOCK_ENTRIES", 16)
    monkeypatch.setattr(_corpus.row_blocks, "__defaults__", (16, 1))
    monkeypatch.setattr(_fold_in, "PIECE", 40)
    for module in (_perplexity, _noisy_score):
        monkeypatch.setattr(module, "BATCH", 40)
    for one, other in zip(exact, results()):
        assert_array_equal(one, other)
    assert_allclose(scores(), close, rtol=1e-12)
