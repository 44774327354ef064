"""Release files: public values only, the same model again, and no trust in the file."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import pickle
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import safetensors
from private_nmf import PrivateNMF
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer

import dplda
from dplda import (
    HDPLDA,
    LPLDA,
    OLPLDA,
    GibbsLDA,
    PrivateCountVectorizer,
    PrivateSVILDA,
    SubLDA,
    load_release,
    pipeline_guarantee,
    save_release,
)
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty
from dplda.privacy import PrivacyLeakWarning
from dplda.published import PublishedHDPLDA
from dplda.release._container import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")

K, N_WORDS = 3, 20
# a seed would remove the noise, and the guarantee alone states the budget
NOT_RELEASED = {"random_state", "ledger", "epsilon", "delta", "n_jobs", "verbose"}
NOT_RELEASED |= {"prior_components", "word_vectors"}
CENTRAL = [
    SubLDA(K, epsilon=3.0, max_iter=4),
    SubLDA(K, noise_multiplier=1.5, subsampling_ratio=0.4, boost=2.0, max_iter=4),
    HDPLDA(K, noise_epsilon=1.0, count_clip=1.0, topic_word_prior=0.5, max_iter=4),
    SubLDA(K, epsilon=3.0, subsampling_ratio=1.0, max_iter=4),
    PrivateSVILDA(K, noise_multiplier=1.5, subsampling_ratio=0.4, max_iter=4),
]
PRIVATE = [
    *CENTRAL,
    IFTMParty(K, token_epsilon=3.0, max_iter=4),
    LPLDA(K, epsilon=3.0, max_iter=4),
    OLPLDA(K, epsilon=3.0, max_iter=4),
]
BASELINES = [
    GibbsLDA(K, max_iter=4),
    PublishedHDPLDA(K, noise_epsilon=5.0, count_clip=1.0, max_iter=4),
    SubLDA(K, epsilon=math.inf, max_iter=4),
]
every = pytest.mark.parametrize("estimator", [*PRIVATE, *BASELINES], ids=repr)


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(61, N_WORDS, K, doc_length=30, random_state=0).data


@pytest.fixture(scope="module")
def model(X):
    return SubLDA(K, epsilon=3.0, max_iter=4).fit(X)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "topics.dplda"


def parts(path):
    fields, tables = unpack("dplda-release", path.read_bytes(), max_header=2**24)
    return fields, tables["components"]


def forge(path, fields, table, **more):
    """Any fields and tables with a good checksum, as a hostile author writes them."""
    tables = {"components": table, **more}
    path.write_bytes(pack("dplda-release", fields, tables, max_header=2**26))


@every
def test_a_loaded_model_is_the_same_model(estimator, X, path):
    model = clone(estimator).fit(X)
    save_release(model, path)
    again = load_release(str(path))
    np.testing.assert_array_equal(again.components_, model.components_)
    for order in ("c_contiguous", "f_contiguous", "writeable"):
        assert getattr(again.components_.flags, order) == getattr(
            model.components_.flags, order
        )
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert again.score(X) == model.score(X)
    for name in ("topic_evidence_", "weak_topics_", "row_noise_"):
        np.testing.assert_array_equal(
            getattr(again, name, None), getattr(model, name, None)
        )
    assert (again.privacy_, str(again.privacy_)) == (
        model.privacy_,
        str(model.privacy_),
    )
    assert (again.epsilon_, again.delta_) == (model.epsilon_, model.delta_)
    assert (again.n_iter_, again.n_features_in_) == (model.n_iter_, N_WORDS)
    assert len(again.get_feature_names_out()) == K
    assert again.version_ == dplda.__version__
    given = model.get_params() | {"doc_topic_prior": model.doc_topic_prior_}
    public = {k: v for k, v in given.items() if k not in NOT_RELEASED}
    assert again.parameters_ == public
    assert f" of {type(model).__name__}, <Guarantee: epsilon" in repr(again)


def test_words_of_the_columns(model, X, path):
    words = [f"wörd \ud800 {i}" for i in range(N_WORDS)]
    save_release(model, path, vocabulary=np.array(words, dtype=object))
    assert load_release(path).vocabulary_.tolist() == words
    for wrong in (words[1:], [words[0], *words[:-1]]):
        with pytest.raises(ValueError, match=f"{N_WORDS} different words"):
            save_release(model, path, vocabulary=wrong)
    with pytest.raises(TypeError, match="a vectorizer or a list of words"):
        save_release(model, path, vocabulary="abc")
    words = [f"wörd {i}" for i in range(N_WORDS)]
    named = SubLDA(K, epsilon=3.0, max_iter=4).fit(
        pd.DataFrame(X.toarray(), columns=words)
    )
    save_release(named, path)
    assert load_release(path).vocabulary_.tolist() == words
    with pytest.raises(ValueError, match="differs from the column names"):
        save_release(named, path, vocabulary=[f"other {i}" for i in range(N_WORDS)])


def test_it_is_a_frozen_step_of_a_pipeline(model, X, path):
    save_release(model, path)
    released = load_release(path)
    pipeline = make_pipeline(released, LogisticRegression())
    assert clone(pipeline)[0] is released
    clone(pipeline).fit(X, np.arange(X.shape[0]) % 2).predict(X)
    np.testing.assert_array_equal(released.fit(X[:3]).components_, model.components_)
    content = path.read_bytes()
    save_release(pickle.loads(pickle.dumps(released)), path)
    assert path.read_bytes() == content


def test_what_is_no_private_model_or_cannot_be_written_is_refused(
    model, X, path, tmp_path
):
    lda = LatentDirichletAllocation(K, max_iter=1).fit(X)
    other = PrivateNMF(K, epsilon=3.0, max_iter=2).fit(X)
    for given, place, error, message in [
        (SubLDA(epsilon=1.0), path, NotFittedError, "not fitted"),
        (lda, path, TypeError, "'LatentDirichletAllocation' has no privacy_"),
        (other, path, TypeError, "and PrivateNMF has no doc_topic_prior"),
        (
            ["a diagnosis of Ann"],
            path,
            TypeError,
            "^expected a fitted model or pipeline, .* list$",
        ),
        (model, tmp_path, IsADirectoryError, "is a folder; give the path of a file"),
        (
            model,
            tmp_path / "missing" / "topics",
            OSError,
            "missing/topics cannot be written",
        ),
        *(
            (
                copy.copy(model).set_params(topic_word_prior=value),
                path,
                ValueError,
                "cannot be",
            )
            for value in ([1, 2], math.nan, -math.inf, print)
        ),
    ]:
        with pytest.raises(error, match=message):
            save_release(given, place)
    assert list(tmp_path.iterdir()) == []


def test_a_release_warns_of_what_should_not_be_published(X, path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        save_release(SubLDA(K, epsilon=3.0, max_iter=4).fit(X), path)
    seeded = SubLDA(K, epsilon=3.0, max_iter=4, random_state=7)
    with pytest.warns(dplda.privacy.SeededNoiseWarning):
        seeded.fit(X)
    for model, message in [
        (seeded, "random_state"),
        (GibbsLDA(K).fit(X), "without privacy"),
        (
            fitted(CountVectorizer()),
            "vocabulary: learned from the documents, not private",
        ),
    ]:
        with pytest.warns(PrivacyLeakWarning, match=message) as record:
            save_release(model, path)
        assert record[0].filename == __file__
    assert "no privacy guarantee" in str(load_release(path).privacy_)


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_the_file_holds_these_values_and_no_others(X, path, tmp_path):
    secret = 8_675_309
    model = SubLDA(
        K,
        epsilon=3.0,
        max_iter=4,
        random_state=secret,
        ledger=tmp_path / "private.sqlite",
        prior_components=np.ones((K, N_WORDS)),
        n_jobs=1,
    )
    with pytest.warns(dplda.privacy.SeededNoiseWarning):
        save_release(model.fit(X), path)
    header, table = parts(path)
    assert set(header) == {
        "dplda",
        "estimator",
        "parameters",
        "n_iter",
        "vocabulary",
        "vectorizer",
        "guarantee",
        "names",
        "counted_as",
    }
    hidden = {
        "random_state",
        "ledger",
        "n_jobs",
        "verbose",
        "prior_components",
        "word_vectors",
    }
    assert set(header["parameters"]) == set(model.get_params()) - hidden - {
        "epsilon",
        "delta",
    }
    np.testing.assert_array_equal(table, model.components_)
    data = path.read_bytes()
    for trace in (
        str(secret).encode(),
        secret.to_bytes(4, "little"),
        b"sqlite",
        b"private.",
    ):
        assert trace not in data


@pytest.mark.parametrize("order", ["C", "F"])
def test_any_reader_of_safetensors_finds_the_table_and_the_checksum(model, path, order):
    """As docs/release.md says it, without dplda."""
    other = copy.copy(model)
    other.components_ = np.array(model.components_, order=order)
    save_release(other, path, vocabulary=[f"wörd \ud800 {i}" for i in range(N_WORDS)])
    with safetensors.safe_open(path, framework="numpy") as file:
        tables = {name: file.get_tensor(name) for name in sorted(file.keys())}
        metadata = json.loads(file.metadata()["dplda"])
    name = "components" if order == "C" else "components.T"
    assert list(tables) == [
        name,
        "components_std",
        "n_units",
        "row_noise",
        "topic_evidence",
        "weak_topics",
    ]
    table = tables[name]
    np.testing.assert_array_equal(table if order == "C" else table.T, model.components_)
    assert metadata["fields"] == parts(path)[0]
    shapes = [[name, table.dtype.str, table.shape] for name, table in tables.items()]
    layout = [metadata["kind"], metadata["fields"], shapes]
    digest = hashlib.sha256(json.dumps(layout).encode())
    for table in tables.values():
        digest.update(table.tobytes())
    assert metadata["sha256"] == digest.hexdigest()


TEXTS = [
    "The ripe plum, a PEAR",
    "cherry, ripe plum? äpfel & Äpfel!",
    "pear pear",
    "THE end",
] * 100


def fitted(vectorizer, texts=TEXTS):
    return make_pipeline(vectorizer, SubLDA(2, epsilon=3.0, max_iter=2)).fit(texts)


def given(**options):
    """A public vocabulary, in another order than the alphabet."""
    words = ["plum", "pear", "cherry", "apfel", "äpfel", "ripe plum", "the", "zebra"]
    return CountVectorizer(vocabulary=words, **options)


WAYS_TO_COUNT = [
    given(),
    given(lowercase=False, binary=True),
    given(strip_accents="unicode", stop_words="english"),
    given(ngram_range=(1, 2), stop_words=["a", "the"]),
    given(token_pattern=r"(?u)\w+"),
    given(analyzer="char_wb", ngram_range=(3, 4)).set_params(
        vocabulary=["plu", "pear", " pe"]
    ),
    PrivateCountVectorizer(
        epsilon=1.0, candidates=["plum", "pear", "ripe", "äpfel"], stop_words="english"
    ),
]


@pytest.mark.parametrize("vectorizer", WAYS_TO_COUNT, ids=lambda v: str(v)[:60])
def test_a_released_pipeline_counts_texts_as_the_pipeline_did(vectorizer, path):
    pipeline = fitted(clone(vectorizer))
    save_release(pipeline, path)
    again = load_release(path)
    assert again.privacy_ == pipeline_guarantee(pipeline)
    chosen = "vocabulary: chosen from the documents, and its cost is in epsilon"
    is_private = isinstance(vectorizer, PrivateCountVectorizer)
    assert (chosen in " ".join(str(again.privacy_).split())) == is_private
    assert (again.epsilon_ > 3.05) == is_private
    counts = pipeline[0].transform(TEXTS)
    assert counts.nnz
    np.testing.assert_array_equal(
        again.vectorizer_.transform(TEXTS).toarray(), counts.toarray()
    )
    for texts in (
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        pd.Series(TEXTS),
        pd.Series(TEXTS).values,
    ):
        np.testing.assert_array_equal(again.transform(texts), pipeline.transform(TEXTS))
    np.testing.assert_array_equal(again.transform(counts), pipeline.transform(TEXTS))
    assert again.score(TEXTS) == pipeline.score(TEXTS)
    assert again.perplexity(TEXTS) == pipeline[-1].perplexity(counts)
    labels = np.arange(len(TEXTS)) % 2
    make_pipeline(again, LogisticRegression()).fit(TEXTS, labels).predict(TEXTS[:2])
    content = path.read_bytes()
    save_release(pickle.loads(pickle.dumps(again)), path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("vectorizer", "message"),
    [
        (
            given(tokenizer=str.split, token_pattern=None),
            "the tokenizer is a function.*token_patt",
        ),
        (given(preprocessor=str.lower), "the preprocessor is a function"),
        (given(analyzer=str.split), "the analyzer is a function"),
        (given(strip_accents=str.lower), "the strip_accents is a function"),
        (TfidfVectorizer(vocabulary=["plum", "pear"]), "got TfidfVectorizer"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.filterwarnings("ignore:SubLDA expects word counts")
def test_a_vectorizer_that_a_file_cannot_hold_is_refused(vectorizer, message, path):
    pipeline = fitted(given())
    pipeline.steps[0] = ("vectorizer", vectorizer.fit(TEXTS))
    with pytest.raises(TypeError, match=message):
        save_release(pipeline, path)
    assert not path.exists()


def test_other_steps_are_refused_with_the_part_to_publish(path):
    model = SubLDA(2, epsilon=3.0, max_iter=2)
    labels = np.arange(len(TEXTS)) % 2
    pipeline = make_pipeline(given(), model, LogisticRegression()).fit(TEXTS, labels)
    assert pipeline_guarantee(pipeline).epsilon == math.inf
    with pytest.raises(TypeError, match=r"'logisticregression'.*pipeline\[:-1\]"):
        save_release(pipeline, path)
    save_release(pipeline[:-1], path)
    assert load_release(path).epsilon_ == pytest.approx(3.0, rel=1e-3)
    between = make_pipeline(given(), Binarizer(), model).fit(TEXTS)
    with pytest.raises(TypeError, match="binary=True"):
        save_release(between, path)
    nested = make_pipeline(
        make_pipeline("passthrough", given()), make_pipeline(model)
    ).fit(TEXTS)
    save_release(nested, path)
    np.testing.assert_array_equal(
        load_release(path).transform(TEXTS), nested.transform(TEXTS)
    )


def test_columns_of_other_words_are_refused(model, X, path):
    """As many words, others' topics: a model that knows its words compares them."""
    words = [f"word {i}" for i in range(N_WORDS)]
    save_release(model, path, vocabulary=words)
    released = load_release(path)
    with warnings.catch_warnings():
        # as scikit-learn warns of names that it did not see in fit
        warnings.simplefilter("error")
        right = pd.DataFrame(X.toarray(), columns=words)
        sparse = pd.DataFrame.sparse.from_spmatrix(X, columns=words)
        for table in (right, sparse, pd.DataFrame(X.toarray()), X):
            np.testing.assert_array_equal(released.transform(table), model.transform(X))
    for wrong in (words[::-1], [f"other {i}" for i in range(N_WORDS)]):
        mixed = make_pipeline(CountVectorizer(vocabulary=wrong), released)
        for use in (released.transform, released.score):
            with pytest.raises(ValueError, match="are not the 20 words of this model"):
                use(right.set_axis(wrong, axis=1))
        with pytest.raises(ValueError, match="are not the 20 words of this model"):
            mixed.get_feature_names_out()
        for use in (pipeline_guarantee, lambda pipeline: save_release(pipeline, path)):
            with pytest.raises(
                ValueError, match="trained on other words than 'countvectorizer'"
            ):
                use(mixed)
    pipeline = make_pipeline(CountVectorizer(vocabulary=words), released)
    assert len(pipeline.get_feature_names_out()) == K
    assert pipeline_guarantee(pipeline).epsilon == released.epsilon_


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("release") / "topics.dplda"
    save_release(fitted(given(stop_words="english")), path)
    fields, table = parts(path)
    forge(path, fields, table)
    load_release(path)
    return fields, table


def changed(header, *keys, value):
    """A deep copy with one value replaced, or removed."""
    header = json.loads(json.dumps(header))
    inner = header
    for key in keys[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    return header


GUARANTEE, COUNTING = "guarantee", "vectorizer"
NONE = "cannot have the settings of its vectorizer"
LIES = [
    (("estimator",), ..., "fields"),
    (("pickle",), "gASV", "fields"),
    (("weak_topics",), None, "fields"),
    (("n_iter",), -1, "n_iter"),
    (("n_iter",), 10**30, "n_iter"),
    (("n_iter",), "4", "n_iter"),
    (("estimator",), ["os.system"], "estimator"),
    (("estimator",), "Sub\x1b[2JLDA", "estimator"),
    (("dplda",), None, "dplda"),
    (("dplda",), "1.0\n2.0", "dplda"),
    (("estimator",), "d" * 10_001, "estimator must be a string of at most 10000"),
    ((COUNTING,), "CountVectorizer", "vectorizer must have"),
    ((COUNTING, "tokenizer"), "str.split", "vectorizer must have"),
    (("vocabulary",), None, "vectorizer must have a vocabulary"),
    *(
        ((COUNTING, name), value, NONE)
        for name, values in {
            "analyzer": ["os.system", ["word"]],
            "binary": [1],
            "lowercase": [None],
            "ngram_range": [[1, 10**9], [2, 1], [True, 2], None, 3, [1]],
            "stop_words": ["english", [1], 3],
            "strip_accents": ["both", {}],
            "token_pattern": [
                None,
                "(",
                "(a)(b)",
                "a" * 10_001,
                "(" * 5000 + ")" * 5000,
                3,
            ],
        }.items()
        for value in values
    ),
    (("vocabulary",), ["a"], "different words"),
    (("vocabulary",), ["a"] * 8, "different words"),
    (("vocabulary",), list(range(8)), "list of words"),
    (("vocabulary",), {}, "list of words"),
    (("parameters",), [], "parameters"),
    (("parameters", "random_state"), 5, "parameters"),
    (("parameters", "boost"), [[]], "boost"),
    *(
        (("parameters", "doc_topic_prior"), value, "doc_topic_prior")
        for value in (
            ...,
            None,
            "0.1",
            0,
            -0.1,
            math.inf,
            True,
            math.nextafter(1e9, math.inf),
        )
    ),
    ((GUARANTEE,), None, "guarantee"),
    ((GUARANTEE, "unit"), ..., "guarantee"),
    ((GUARANTEE, "accountant"), "none", "the guarantee must have the fields"),
    ((GUARANTEE, "unit"), 3, "unit"),
    ((GUARANTEE, "unit"), ["user"], "unit"),
    ((GUARANTEE, "provenance"), [["vocabulary"]], "list of pairs"),
    ((GUARANTEE, "provenance"), ["ab"], "list of pairs"),
    ((GUARANTEE, "provenance"), [["vocabulary", "mine\n"]], "provenance"),
    ((GUARANTEE, "epsilon"), 0.01, "less than what the events cost"),
    ((GUARANTEE, "epsilon"), -1, "epsilon"),
    ((GUARANTEE, "epsilon"), None, "epsilon"),
    ((GUARANTEE, "epsilon"), math.nan, "the number NaN"),
    ((GUARANTEE, "epsilon"), -math.inf, "the number -Infinity"),
    ((GUARANTEE, "delta"), 2, "delta"),
    ((GUARANTEE, "delta"), 0.99, "delta must be"),
    ((GUARANTEE, "delta"), 1e-150, "less than what the events cost"),
    ((GUARANTEE, "delta"), 1e-300, "less than what the events cost"),
    ((GUARANTEE, "total_variation"), 0.99, "total_variation"),
    ((GUARANTEE, "seeded"), 0, "seeded"),
    ((GUARANTEE, "assumptions"), "none", "assumptions"),
    ((GUARANTEE, "assumptions"), [1], "assumptions"),
    ((GUARANTEE, "assumptions"), ["none \u202e"], "assumptions"),
    ((GUARANTEE, "mechanism"), "\x1b]0;title\x07", "mechanism"),
    ((GUARANTEE, "noise_scale"), [[]], "noise_scale"),
    ((GUARANTEE, "noise_scale"), [-1.0], "noise_scale"),
    ((GUARANTEE, "noise_scale"), [10**400], "noise_scale must be a float"),
    ((GUARANTEE, "events"), [], "steps of 1 to 64 different kinds"),
    ((GUARANTEE, "events"), None, "events"),
    ((GUARANTEE, "events"), [3], "events"),
    ((GUARANTEE, "events"), [{"event": "Cauchy"}], "events"),
    ((GUARANTEE, "events"), [{"event": "Gaussian", "noise_multiplier": 0}], "events"),
    (
        (GUARANTEE, "events"),
        [{"event": "NonPrivate"}],
        "less than what the events cost",
    ),
    (
        (GUARANTEE, "events"),
        [{"event": "Laplace", "scale": 100.0 + i} for i in range(65)],
        "64 different kinds",
    ),
    *(
        (
            (GUARANTEE, "events"),
            [{"event": name, field: value}],
            "not a valid release file",
        )
        for name, field, values in [
            ("Gaussian", "noise_multiplier", [1e-320, 1e-160, 1e-9]),
            ("Laplace", "scale", [1e-320, 1e-160, 1e-9]),
            ("BoundedRange", "epsilon", [1e9, 1e300]),
            ("ZeroConcentrated", "rho", [1e9, 1e160, 1e300]),
        ]
        for value in values
    ),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of absurd numbers
@pytest.mark.parametrize(
    ("keys", "value", "message"), LIES, ids=lambda value: repr(value)[:60]
)
def test_lies_are_refused(written, path, keys, value, message):
    header, table = written
    forge(path, changed(header, *keys, value=value), table)
    with pytest.raises(ValueError, match=message):
        load_release(path)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("row_noise", np.zeros(N_WORDS)),
        ("row_noise", np.zeros((1, 8), np.float32)),
        ("row_noise", np.zeros(7, np.float32)),
        ("row_noise", np.full(8, np.nan, np.float32)),
        ("topic_evidence", np.full(2, np.inf)),
        ("topic_evidence", np.zeros(8)),
        ("topic_evidence", np.array(1.0)),
        ("weak_topics", np.zeros(2)),
        ("weak_topics", np.zeros(1, bool)),
    ],
)
def test_tables_have_one_number_for_each_word_or_topic(written, path, name, wrong):
    header, table = written
    forge(path, header, table, **{name: wrong})
    with pytest.raises(ValueError, match=f"{name} must have one finite"):
        load_release(path)


def test_the_guarantee_alone_states_the_budget(X, path, monkeypatch):
    """Later changes of `set_params` are not in the file.

    No file may state a second one.
    """
    model = SubLDA(K, epsilon=4.0, max_iter=2).fit(X)
    save_release(model.set_params(epsilon=0.1, delta=1e-9), path)
    released = load_release(path)
    assert (released.epsilon_, released.delta_) == (model.epsilon_, model.delta_)
    header, table = parts(path)
    for name in ("epsilon", "delta"):
        assert name not in released.parameters_
        forge(path, changed(header, "parameters", name, value=0.1), table)
        with pytest.raises(ValueError, match="must be public parameters"):
            load_release(path)
    words = [f"{i}" + 2**20 * "x" for i in range(N_WORDS)]
    with pytest.raises(ValueError, match="leave the vocabulary out"):
        save_release(model, path, vocabulary=words)


def test_tables_that_are_none_of_counts_are_refused(written, path):
    header, table = written
    for cells in (math.nan, -1.0, math.inf, 1e308, [1e308, -1e308, 1e308]):
        wrong = table.copy()
        wrong[0, :3] = cells
        forge(path, header, wrong)
        with pytest.raises(ValueError, match="finite and non-negative"):
            load_release(path)
    empty = np.vstack([0 * table[:1], table[1:]])
    for wrong, more in [
        (empty, {}),
        (table, {"more": np.ones(1)}),
        (table.astype(np.float32), {}),
        (table[0], {}),
        (table[:0], {}),
    ]:
        forge(path, header, wrong, **more)
        with pytest.raises(
            ValueError, match=r"the table components|must be a table|no empty"
        ):
            load_release(path)


@pytest.mark.parametrize(
    "step",
    [
        {"event": "Laplace", "scale": 1e4},
        {"event": "Gaussian", "noise_multiplier": 5.0},
        {"event": "RandomizedResponseEvent", "flip_mixture": 0.99999},
        {
            "event": "PoissonSampled",
            "sampling_probability": 1e-8,
            "of": {"event": "Gaussian", "noise_multiplier": 1.0},
        },
    ],
    ids=lambda step: step["event"],
)
def test_no_number_of_events_takes_hours(written, path, step):
    """Those that the accountant takes are known in a second, and may be too dear."""
    header, table = written
    for count in (2**36, 2**36 + 1, 10**300):
        events = [{"event": "Repeated", "of": step, "count": count}]
        forge(path, changed(header, GUARANTEE, "events", value=events), table)
        is_read = count == 2**36 and step["event"] == "PoissonSampled"
        reason = "less than what" if count == 2**36 else "events cannot be"
        with nullcontext() if is_read else pytest.raises(ValueError, match=reason):
            load_release(path)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a text", r"pass \[text\]"),
        (b"a text", r"pass \[text\]"),
        ([None], "got NoneType"),
        (["\xe9t\xe9".encode("latin-1")], r"^X holds bytes that are not UTF-8; decode"),
        ([["apple"]], "join words by spaces"),
        (pd.DataFrame({"note": ["apple"]}), r"pass df\['column'\]"),
    ],
    ids=["text", "bytes", "missing", "latin-1", "words", "table"],
)
def test_a_model_of_texts_says_which_texts_it_takes(X, message, path):
    vectorizer = CountVectorizer(vocabulary=["apple", "banana"])
    save_release(
        make_pipeline(vectorizer, GibbsLDA(2, max_iter=1)).fit(["apple banana"] * 9),
        path,
    )
    with pytest.raises(ValueError, match=message):
        load_release(path).transform(X)


def test_a_file_takes_the_texts_that_its_model_takes(path):
    """Bytes in UTF-8 are texts, as they are to scikit-learn."""
    texts = ["apple banana", "caf\xe9 apple"]
    model = make_pipeline(
        CountVectorizer(vocabulary=["apple", "banana", "caf\xe9"]),
        GibbsLDA(2, max_iter=1),
    ).fit(texts)
    save_release(model, path)
    in_bytes = [text.encode() for text in texts]
    for given in (in_bytes, np.array(in_bytes), np.array(in_bytes, dtype=object)):
        found = load_release(path).transform(given)
        np.testing.assert_array_equal(found, model.transform(given))
        np.testing.assert_array_equal(found, model.transform(texts))


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_a_release_has_the_noisy_number_of_units(tmp_path):
    """Of documents, of users, and of two fits; none of them is exact."""
    X = make_topic_corpus(1000, 30, 3, random_state=0).data
    users = np.arange(1000) // 4
    model = SubLDA(3, epsilon=8.0, max_iter=2, random_state=0).fit(X)
    expected = [
        (model, 1000),
        (clone(model).fit(X, user_ids=users), 250),
        (clone(model).fit(X[:400], earlier=model), 1400),
    ]
    for fitted, n in expected:
        number, std = fitted.n_units_
        assert 0 < std < 60
        assert 0 < abs(number - n) < 5 * std
        path = tmp_path / f"{n}.dplda"
        save_release(fitted, path)
        np.testing.assert_array_equal(load_release(path).n_units_, fitted.n_units_)
        assert "were read" in load_release(path)._repr_mimebundle_()["text/html"]
    exact = SubLDA(3, epsilon=np.inf, max_iter=2, random_state=0).fit(X)
    assert exact.n_units_.tolist() == [1000, 0]


@pytest.mark.skipif(os.name != "posix", reason="a device without an end")
def test_a_device_is_not_read_without_an_end(monkeypatch):
    monkeypatch.setattr("dplda.release._container.MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="it has more than 1000 bytes"):
        load_release("/dev/zero")
