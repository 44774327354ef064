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

from dplda import PrivateTopicModel, SubLDA
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


def peak_of(call):
    """Bytes that a call needs at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


N_DOCS, N_TOPICS = 20_000, 64
USERS = np.arange(N_DOCS) // 2


@pytest.fixture(scope="module")
def short_documents():
    return sp.random_array(
        (N_DOCS, 50), density=0.05, rng=0, format="csr", dtype=np.float32
    ).ceil()


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.parametrize("user_ids", [None, USERS], ids=["documents", "users"])
def test_a_round_of_test_copies_few_units_at_a_time(
    user_ids, short_documents, monkeypatch
):
    X = short_documents
    model = SubLDA(N_TOPICS, epsilon=4.0, max_iter=8, random_state=0)
    expected = clone(model).fit(X, user_ids=user_ids)  # also loads modules
    monkeypatch.setattr("dplda.document._contributions.BATCH", 1 << 15)
    weights = 4 * N_DOCS * N_TOPICS
    assert peak_of(lambda: model.fit(X, user_ids=user_ids)) < 4 * weights
    np.testing.assert_array_equal(model.components_, expected.components_)
    np.testing.assert_array_equal(model.topic_evidence_, expected.topic_evidence_)


def test_weights_of_many_short_texts_do_not_stay_in_memory(monkeypatch):
    """Their counts are few, and their topic weights are many."""
    monkeypatch.setattr("dplda.text._counted.IN_MEMORY", 1 << 16)
    n_texts, n_topics = 30_000, 300
    words = ["city", "house", "music", "paper", "river", "stone", "tree", "water"]
    texts = [f"{words[i % 8]} {words[i // 8 % 8]}" for i in range(n_texts)]
    model = PrivateTopicModel(
        n_topics,
        epsilon=8.0,
        vocabulary=words,
        word_vectors=None,
        model=SubLDA(max_iter=2),
    )
    model.fit(texts[:100])  # loads modules
    assert peak_of(lambda: model.fit(texts)) < 4 * n_topics * n_texts


def test_a_frame_of_sparse_columns_stays_sparse():
    pd = pytest.importorskip("pandas")
    X = sp.random_array((2000, 1000), density=0.002, rng=0, format="csr").ceil()
    frame = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X))
    frame.columns = [f"word{v}" for v in range(1000)]
    model = SubLDA(2, epsilon=1.0)
    # what is imported late takes memory, too
    check_counts(model, frame[:1], reset=True)
    found = []
    peak = peak_of(lambda: found.append(check_counts(model, frame, reset=True)))
    (counts,) = found
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
