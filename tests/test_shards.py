"""Corpora in shards: same bits as in memory, and errors before any charge."""

import hashlib
import json
import math
import os
import pickle
import shutil
import tempfile
import tracemalloc
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from process_engine import ProcessEngine
from sklearn.base import clone

from dplda import (
    HDPLDA,
    GibbsLDA,
    PrivateSVILDA,
    SubLDA,
    __version__,
    load_release,
    save_release,
)
from dplda.datasets import CountShards, make_topic_corpus, write_shards
from dplda.document import _training
from dplda.document._dask import DaskEngine
from dplda.document._shards import InProcess, ShardedDocuments
from dplda.metrics import held_out_perplexity, noisy_score
from dplda.privacy import Ledger, PrivateDataWarning

K = 4
WORDS = [f"word{v}" for v in range(40)]
slow = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")


@pytest.fixture(scope="module")
def corpus():
    X = make_topic_corpus(90, 40, K, doc_length=30, random_state=0).data.tolil()
    X[7] = 0  # a document without a word
    return sp.csr_array(X)


@pytest.fixture(scope="module")
def shards(corpus, tmp_path_factory):
    """The same corpus in 1, 3 and 7 shards."""
    folder = tmp_path_factory.mktemp("shards")
    sizes = {1: 90, 3: 37, 7: 14}
    return {
        n: write_shards(corpus, folder / str(n), rows_per_shard=sizes[n]) for n in sizes
    }


def joined(shards):
    return sp.vstack(list(shards)).toarray()


# ---- files ---------------------------------------------------------------------------


SOURCES = {
    "matrix": lambda X: X,
    "array": lambda X: X.toarray(),
    "column-wise": lambda X: sp.csc_array(X),
    "blocks": lambda X: (X[i : i + 20] for i in range(0, 90, 20)),
    "blocks without documents": lambda X: [X[:0], X, X[:0]],
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_shards(name, corpus, tmp_path):
    written = write_shards(
        SOURCES[name](corpus), tmp_path / "corpus", rows_per_shard=25
    )
    assert written.shape == (90, 40)
    assert [part.shape[0] for part in written] == [25, 25, 25, 15]
    assert_array_equal(joined(written), corpus.toarray())
    assert_array_equal(joined(CountShards(tmp_path / "corpus")), corpus.toarray())
    assert "90" not in repr(written)  # a private number
    with pytest.raises(ValueError, match="is not empty"):
        write_shards(corpus, tmp_path / "corpus")


@pytest.mark.parametrize("are_users", [False, True])
def test_shards_of_long_documents_hold_fewer(
    are_users, corpus, user_ids, tmp_path, monkeypatch
):
    """A visit needs memory for the counts of a shard."""
    ids = user_ids if are_users else None
    most = int(np.diff(corpus.indptr).max()) * 6
    monkeypatch.setattr("dplda.datasets._shards.MOST_COUNTS", most)
    blocks = (corpus[i : i + 20] for i in range(0, 90, 20))
    written = write_shards(blocks, tmp_path / "x", user_ids=ids, rows_per_shard=40)
    for part, shard in zip(written, written.shards, strict=True):
        assert part.nnz <= most or shard.n_units == 1
        assert part.shape[0] < 40
    assert written.n_shards < 2 * corpus.nnz / most + 2  # none is nearly empty
    model = SubLDA(K, noise_multiplier=5.0, max_iter=8, random_state=0)
    model.fit(corpus, user_ids=ids)
    of_shards = clone(model).fit(written)
    assert_array_equal(of_shards.components_, model.components_)
    assert_array_equal(of_shards.topic_evidence_, model.topic_evidence_)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_can_read_the_files_which_are_mapped(shards):
    folder = Path(shards[1].folder)
    assert folder.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in folder.iterdir())
    counts = next(iter(shards[3]))
    for array in (counts.data, counts.indices, counts.indptr):
        assert isinstance(array.base, np.memmap) or isinstance(
            array.base.base, np.memmap
        )
        assert not array.flags.writeable


def named(X, turn=1):
    return pd.DataFrame(X.toarray(), columns=WORDS[::turn])


def test_a_table_brings_its_words(corpus, tmp_path):
    written = write_shards([named(corpus[:40]), corpus[40:].toarray()], tmp_path / "a")
    assert written.feature_names.tolist() == WORDS
    assert CountShards(tmp_path / "a").feature_names.tolist() == WORDS
    numbered = pd.DataFrame(corpus.toarray())  # columns 0, 1, 2: no words
    assert write_shards(numbered, tmp_path / "b").feature_names is None


REFUSED = [
    (lambda X: -X.toarray(), {}, "Negative values"),
    (
        lambda X: [named(X), named(X[:, ::-1], turn=-1)],
        {},
        "other words, or another order",
    ),
    (
        lambda X: named(X),
        {"feature_names": WORDS[::-1]},
        "other words, or another order",
    ),
    (lambda X: X.toarray() * np.nan, {}, "NaN"),
    (lambda X: ["geheim b", "c"], {}, r"count texts with a .*CountVectorizer"),
    (lambda X: "corpus", {}, r"CountShards\(folder\)"),
    (lambda X: [], {}, "no block of documents"),
    (lambda X: X.toarray()[:0], {}, "no block of documents"),
    (lambda X: [X, X[:, :5]], {}, "one vocabulary"),
    (lambda X: 3, {}, "got int;"),
    (lambda X: X, {"user_ids": ["a"] * 89}, "one id for each row"),
    (lambda X: X, {"user_ids": ["a", 1] * 45}, "none may be missing"),
    (
        lambda X: X,
        {"feature_names": ["a"] * 40},
        "must be 40 different words, got 40, 1 of them",
    ),
]


@pytest.mark.parametrize(("source", "options", "message"), REFUSED)
def test_what_is_not_counts_is_refused_and_leaves_no_corpus(
    source, options, message, corpus, tmp_path
):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        write_shards(source(corpus), tmp_path / "corpus", rows_per_shard=100, **options)
    assert "geheim" not in str(caught.value)
    with pytest.raises(
        OSError, match=r"shards\.json cannot be read .*a folder that it has finished"
    ):
        CountShards(tmp_path / "corpus")


# ---- the same bits -------------------------------------------------------------------

MODELS = {
    "everybody": SubLDA(K, noise_multiplier=5.0, max_iter=4),
    "sampled": SubLDA(K, noise_multiplier=5.0, max_iter=4, subsampling_ratio=0.3),
    "boost": SubLDA(
        K, noise_multiplier=5.0, max_iter=4, subsampling_ratio=0.3, boost=2.0
    ),
    "without noise": SubLDA(K, epsilon=math.inf, max_iter=4),
    "variational": PrivateSVILDA(K, noise_multiplier=5.0, max_iter=4),
    "variational without noise": PrivateSVILDA(K, epsilon=math.inf, max_iter=4),
}


IN_MEMORY = {}


def in_memory(name, corpus):
    """The table that a model gets from the matrix; it is fitted once."""
    if name not in IN_MEMORY:
        IN_MEMORY[name] = (
            MODELS[name].set_params(random_state=1).fit(corpus).components_
        )
    return IN_MEMORY[name]


@pytest.mark.parametrize("n_shards", [1, 3, 7])
@pytest.mark.parametrize("name", MODELS)
def test_shards_train_the_model_of_the_matrix(name, n_shards, corpus, shards):
    model, expected = MODELS[name], in_memory(name, corpus)
    model.set_params(n_jobs=2 if n_shards == 3 else 1)
    assert_array_equal(model.fit(shards[n_shards]).components_, expected)


@pytest.fixture(scope="module")
def user_ids():
    return [f"user {i}" for i in np.random.default_rng(0).integers(0, 25, 90)]


@pytest.mark.parametrize("name", ["everybody", "boost", "without noise", "variational"])
def test_shards_of_users_train_the_model_of_the_matrix(
    name, corpus, user_ids, tmp_path
):
    expected = (
        MODELS[name].set_params(random_state=1, n_jobs=1).fit(corpus, user_ids=user_ids)
    )
    written = write_shards(corpus, tmp_path / "x", user_ids=user_ids, rows_per_shard=20)
    assert written.n_shards > 3
    assert sorted(map(bytes, joined(written))) == sorted(
        map(bytes, np.float32(corpus.toarray()))
    )
    for engine in (None, Elsewhere()):
        model = clone(MODELS[name]).fit(written.on(engine))
        assert_array_equal(model.components_, expected.components_)
        assert model.privacy_.unit == expected.privacy_.unit == "user"
    score = partial(noisy_score, expected, epsilon=1.0, random_state=0)
    of_matrix = score(corpus.astype(np.float32), user_ids=user_ids)
    assert score(written).gain == of_matrix.gain
    assert score(written).privacy_.unit == of_matrix.privacy_.unit == "user"


def test_shards_have_one_kind_of_unit(corpus, shards, user_ids, tmp_path):
    """Ids beside shards would be of rows in another order."""
    ledger = Ledger(epsilon=9.0)
    score = partial(
        noisy_score, SubLDA(K, epsilon=1.0, max_iter=2).fit(corpus), epsilon=1.0
    )
    for X in (shards[3], write_shards(corpus, tmp_path / "x", user_ids=user_ids)):
        model = SubLDA(K, epsilon=1.0, max_iter=2, ledger=ledger)
        for use in (model.fit, model.partial_fit, score):
            with pytest.raises(ValueError, match="holds the users of its documents"):
                use(X, user_ids=user_ids)
    assert ledger.epsilon_spent == 0
    model.partial_fit(corpus, user_ids=user_ids).partial_fit(X)
    with pytest.raises(ValueError, match="unit"):
        model.partial_fit(shards[3])


def test_weights_and_scores_read_shard_after_shard(corpus, shards, tmp_path):
    model = SubLDA(K, epsilon=4.0, max_iter=3, random_state=0).fit(corpus)
    expected = model.transform(corpus.astype(np.float32))
    assert_array_equal(model.transform(shards[7]), expected)
    of_file = model.transform(shards[7], out=tmp_path / "weights.npy")
    assert isinstance(of_file, np.memmap)
    assert_array_equal(of_file, expected, strict=True)
    assert model.score(shards[7]) == pytest.approx(model.score(corpus), rel=1e-12)
    for completion in (True, False):
        expected = model.perplexity(corpus, completion=completion)
        assert model.perplexity(shards[3], completion=completion) == pytest.approx(
            expected
        )
    of_matrix, of_shards = (
        noisy_score(model, X, epsilon=1.0, random_state=0) for X in (corpus, shards[3])
    )
    assert of_shards.gain == pytest.approx(of_matrix.gain, abs=1e-6)
    assert of_shards.privacy_.epsilon == of_matrix.privacy_.epsilon


# ---- engines -------------------------------------------------------------------------


class Elsewhere(InProcess):
    """Two processes that keep nothing, and do everything twice, as after a loss."""

    n_tasks = 2

    def submit(self, function, *arguments):
        for _ in range(2):
            copied = pickle.loads(pickle.dumps(arguments))
            result = pickle.dumps(function(*copied))
        return pickle.loads(result)


@pytest.mark.parametrize(
    "engine", [Elsewhere(), pytest.param(ProcessEngine(2), marks=slow)]
)
@pytest.mark.parametrize("name", MODELS)
def test_other_processes_train_the_same_model(name, engine, corpus, shards):
    model, expected = MODELS[name], in_memory(name, corpus)
    assert_array_equal(model.fit(shards[7].on(engine)).components_, expected)


def test_a_task_changes_no_argument(corpus, shards):
    """A worker may read the result of an earlier task again."""

    class Frozen(InProcess):
        def submit(self, function, *arguments):
            before = pickle.dumps(arguments)
            result = function(*arguments)
            assert pickle.dumps(arguments) == before
            return result

    for name in ("everybody", "variational"):
        MODELS[name].fit(shards[3].on(Frozen()))


@pytest.mark.parametrize("engine", [None, InProcess()])
def test_a_live_start_reads_shard_after_shard(engine, corpus, shards, request):
    """With many topics and no noise: the same sweep, wherever shards and pieces end."""
    model = SubLDA(256, epsilon=math.inf, max_iter=1, random_state=1)
    expected = model.fit(corpus).components_
    request.getfixturevalue("tiny_pieces")
    for X in (
        corpus,
        *(X if engine is None else X.on(engine) for X in shards.values()),
    ):
        assert_array_equal(model.fit(X).components_, expected)


def ended_early(X):
    earlier = SubLDA(K, noise_multiplier=5.0, max_iter=1).fit([[1, 2], [2, 1]])
    with pytest.raises(ValueError, match="fitted to 2 words"):
        SubLDA(K, noise_multiplier=5.0, max_iter=1).fit(X, earlier=earlier)


@pytest.mark.parametrize(
    "call",
    [
        lambda X: clone(MODELS["everybody"]).fit(X),
        lambda X: clone(MODELS["everybody"]).partial_fit(X).partial_fit(X),
        ended_early,
    ],
    ids=["fit", "partial_fit", "refused"],
)
def test_every_call_closes_what_it_has_opened(call, shards, monkeypatch):
    """The workers of a cluster keep private arrays until then."""
    is_open = []

    class Watched(ShardedDocuments):
        def __init__(self, *arguments):
            is_open.append(True)
            super().__init__(*arguments)

        def close(self):
            is_open.pop()
            super().close()

    monkeypatch.setattr(_training, "ShardedDocuments", Watched)
    call(shards[3])
    assert not is_open


def test_topic_weights_do_not_stay_in_memory(tmp_path, monkeypatch):
    """They wait in a file without a name, which a killed process does not leave."""
    n_docs, n_topics = 20_000, 64
    counts = np.random.default_rng(0).poisson(0.2, (n_docs, 40)).astype(np.float32)
    written = write_shards(sp.csr_array(counts), tmp_path / "x", rows_per_shard=1_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "files"))
    (tmp_path / "files").mkdir()
    named = []

    class Watched(InProcess):
        def submit(self, function, *arguments):
            result = super().submit(function, *arguments)
            named.extend((tmp_path / "files").iterdir())
            return result

    model = SubLDA(n_topics, noise_multiplier=5.0, max_iter=2, random_state=0)
    model.fit(counts[:9])  # loads modules
    tracemalloc.start()
    try:
        model.fit(written.on(Watched()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * n_topics * n_docs
    assert os.name == "nt" or named == []


def test_what_is_no_engine_is_refused_before_anything_is_charged(shards):
    ledger = Ledger(epsilon=9.0)
    with pytest.raises(TypeError, match=r"takes a distributed.Client, or .* got dict"):
        SubLDA(K, epsilon=1.0, max_iter=2, ledger=ledger).fit(shards[3].on({}))
    assert ledger.epsilon_spent == 0


def test_an_engine_meets_no_random_numbers(shards):
    """Neither the key nor anything that can draw from it reaches the workers."""

    class Watched(InProcess):
        def submit(self, function, *arguments):
            state = pickle.dumps((function, arguments))
            assert b"_streams" not in state
            assert b"Curator" not in state
            return super().submit(function, *arguments)

    MODELS["sampled"].fit(shards[3].on(Watched()))


def workers(found):
    """Stands in for a client of dask.distributed, whose workers answer this."""
    return SimpleNamespace(
        wait_for_workers=lambda *_, **__: None, run=lambda *_, **__: found
    )


@pytest.mark.parametrize(
    "version", ["0.0.9", ModuleNotFoundError("No module named 'dplda'")]
)
def test_a_worker_with_another_version_is_named(version):
    with pytest.raises(RuntimeError, match=f"the worker tls://b has .*{version}"):
        DaskEngine(workers({"tls://a": __version__, "tls://b": version}))


def test_a_cluster_without_tls_is_pointed_out():
    with pytest.warns(PrivateDataWarning, match="TLS"):
        DaskEngine(workers({"tcp://10.0.0.1:999": __version__}))


# ---- bad input -----------------------------------------------------------------------


def change(path, offset=-3):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(content))


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-8])


def beyond_the_vocabulary(words):
    words[-1] = 40  # in order: a kernel would read other memory


def rows_that_wrap_around(ends):
    ends[1:4] = 2**31 - 1, -(2**31), -1  # differences of int32 are positive


def larger_than_any_count(counts):
    counts[0] = 3e38


def hide(index, part="indices", spoil=beyond_the_vocabulary):
    """A list in which a damaged shard has the right SHA-256."""

    def damage(folder):
        shard = CountShards(folder).shards[index]
        numbers = np.fromfile(shard.path, np.int32)
        ends = np.cumsum([0, shard.n_entries, shard.n_entries, shard.shape[0] + 1])
        place = dict(zip(("data", "indices", "indptr"), ends))[part]
        until = dict(zip(("data", "indices", "indptr"), ends[1:]))[part]
        spoil(numbers[place:until].view(np.float32 if part == "data" else np.int32))
        numbers.tofile(shard.path)
        path = Path(shard.path)
        digest = hashlib.sha256(path.name.encode() + path.read_bytes()).hexdigest()
        edit(folder / "shards.json", lambda c: c["shards"][index].update(sha256=digest))

    return damage


DAMAGES = {
    "a changed count": (
        lambda f: change(f / "000001.counts", 9),
        "shard 000001 .*SHA-256",
    ),
    "a changed unit": (lambda f: change(f / "000002.counts"), "shard 000002 .*SHA-256"),
    "a file cut short": (
        lambda f: truncate(f / "000001.counts"),
        "shard 000001 .*listed size",
    ),
    "a word beyond the vocabulary": (hide(1), "shard 000001 .*unknown"),
    "rows that wrap around": (
        hide(1, "indptr", rows_that_wrap_around),
        "shard 000001 .*rows do not fit",
    ),
    "a huge count": (
        hide(1, "data", larger_than_any_count),
        "shard 000001 .*not counts",
    ),
    "a list with other units": (
        lambda f: edit(
            f / "shards.json", lambda c: c["shards"][1].update(n_docs=29, n_units=31)
        ),
        "shard 000001 .*SHA-256|rows do not fit",
    ),
    "a missing file": (
        lambda f: (f / "000001.counts").unlink(),
        "shard 000001 .*No such file",
    ),
}
LISTS = {
    "a copy of a shard": (
        lambda c: c["shards"].append(c["shards"][0]),
        "000003 .*is a copy of another shard",
    ),
    "another format": (lambda c: c.update(format="x"), "not written by write_shards"),
    "sizes that are not numbers": (
        lambda c: c["shards"][0].update(n_docs="a"),
        "damaged",
    ),
    "a negative size": (
        lambda c: c["shards"][0].update(n_docs=-1, n_entries=0),
        "damaged",
    ),
    "no shards": (lambda c: c.update(shards=[]), "damaged"),
    "a list without sizes": (lambda c: c["shards"][0].pop("n_entries"), "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_named_before_anything_is_charged(damage, corpus, tmp_path):
    action, message = DAMAGES[damage]
    written = write_shards(corpus, tmp_path / "corpus", rows_per_shard=30)
    action(tmp_path / "corpus")
    if damage != "a missing file":
        # reads the new list, if there is one
        written = CountShards(tmp_path / "corpus")
    ledger = Ledger(epsilon=1.0, delta=1e-6)
    with pytest.raises((ValueError, OSError), match=message):
        SubLDA(K, epsilon=1.0, ledger=ledger).fit(written)
    assert ledger.epsilon_spent == 0
    with pytest.raises((ValueError, OSError), match=message):
        list(written)


def test_a_file_that_changes_during_a_fit_is_checked_again(corpus, tmp_path):
    """Words beyond the vocabulary would make a kernel access other memory.

    The words here are others of the vocabulary, so that the fit would go on.
    """
    written = write_shards(corpus, tmp_path / "corpus", rows_per_shard=30)
    kinds = set()

    class Changes(InProcess):
        def submit(self, function, *arguments):
            kinds.add(function)
            if len(kinds) > 2:  # the files were opened, checked and counted
                path = tmp_path / "corpus" / "000001.counts"
                np.fromfile(path, np.int32)[::-1].tofile(tmp_path / "new")
                (tmp_path / "new").replace(path)
            return super().submit(function, *arguments)

    with pytest.raises(ValueError, match=r"shard 000001 .*SHA-256"):
        SubLDA(K, noise_multiplier=5.0, max_iter=2).fit(written.on(Changes()))


@pytest.mark.parametrize("damage", LISTS)
def test_a_wrong_list_of_shards_is_refused(damage, corpus, tmp_path):
    action, message = LISTS[damage]
    write_shards(corpus, tmp_path / "corpus", rows_per_shard=30)
    shutil.copy(
        tmp_path / "corpus" / "000000.counts", tmp_path / "corpus" / "000003.counts"
    )
    edit(tmp_path / "corpus" / "shards.json", action)
    with pytest.raises(ValueError, match=message):
        CountShards(tmp_path / "corpus")
    (tmp_path / "corpus" / "shards.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        CountShards(tmp_path / "corpus")


def test_a_model_refuses_shards_of_another_vocabulary(corpus, tmp_path):
    written = write_shards(corpus, tmp_path / "a", feature_names=WORDS)
    assert written.feature_names.tolist() == WORDS
    model = SubLDA(K, noise_multiplier=5.0, max_iter=3).fit(written)
    assert list(model.feature_names_in_) == WORDS
    others = write_shards(corpus, tmp_path / "b", feature_names=WORDS[::-1])
    with pytest.raises(ValueError, match="other words"):
        model.transform(others)
    save_release(model, tmp_path / "topics.dplda")
    released = load_release(tmp_path / "topics.dplda")
    assert_array_equal(released.transform(written), model.transform(written))
    with pytest.raises(ValueError, match="are not the 40 words of this model"):
        released.transform(others)
    narrow = write_shards(corpus[:, :30], tmp_path / "c")
    for use in (model.transform, model.partial_fit):
        with pytest.raises(ValueError, match="30 features"):
            use(narrow)


def test_what_needs_all_rows_at_once_says_so(shards):
    for model in (GibbsLDA(K), HDPLDA(K, epsilon=1.0)):
        with pytest.raises(ValueError, match="X is a CountShards"):
            model.fit(shards[3])
    matrix = sp.vstack(list(shards[3]))
    model = GibbsLDA(K, max_iter=2, random_state=0).fit(matrix)
    # which needs them one by one
    found = held_out_perplexity(model.components_, shards[3])
    assert found == pytest.approx(held_out_perplexity(model.components_, matrix))


def test_documents_that_come_again_may_fill_shards_that_are_equal(corpus, tmp_path):
    rows = sp.vstack([corpus[:10]] * 3 + [corpus[[3] * 20]])
    written = write_shards(rows, tmp_path / "a", rows_per_shard=10)
    assert_array_equal(
        sp.vstack(list(CountShards(written.folder))).todense(), rows.todense()
    )
