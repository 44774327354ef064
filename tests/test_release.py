"""Release files: public values only, the same model again, and no trust in the file."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import pickle
import random
import warnings
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import safetensors
from private_nmf import PrivateNMF
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
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
from dplda.core._fold_in import LARGEST_PRIOR
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty
from dplda.privacy import PrivacyLeakWarning, epsilon_of
from dplda.privacy._events import from_record
from dplda.privacy.mechanisms import Curator
from dplda.published import CDPLDA
from dplda.release import _release
from dplda.release._container import pack, unpack
from dplda.release._released_model import ReleasedModel

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")

K, N_WORDS = 3, 20
CENTRAL = [
    SubLDA(K, epsilon=3.0, max_iter=4),
    SubLDA(K, noise_multiplier=1.5, subsampling_ratio=0.4, boost=2.0, max_iter=4),
    HDPLDA(K, noise_epsilon=1.0, count_clip=1.0, topic_word_prior=0.5, max_iter=4),
    HDPLDA(K, noise="gaussian", epsilon=20.0, max_iter=4),
    SubLDA(K, epsilon=3.0, subsampling_ratio=1.0, max_iter=4),
    PrivateSVILDA(K, noise_multiplier=1.5, subsampling_ratio=0.4, max_iter=4),
]
PRIVATE = [
    *CENTRAL,
    IFTMParty(K, token_epsilon=3.0, max_iter=4),
    LPLDA(K, epsilon=3.0, max_iter=4),
    OLPLDA(K, epsilon=3.0, mechanism="oue", max_iter=4),
]
BASELINES = [
    GibbsLDA(K, max_iter=4),
    CDPLDA(K, noise_epsilon=5.0, max_iter=4),
    SubLDA(K, epsilon=math.inf, max_iter=4),
]
every = pytest.mark.parametrize("estimator", [*PRIVATE, *BASELINES], ids=repr)


def corpus(seed=0):
    return make_topic_corpus(61, N_WORDS, K, doc_length=30, random_state=seed).data


@pytest.fixture(scope="module")
def X():
    return corpus()


@pytest.fixture(scope="module")
def model(X):
    return SubLDA(K, epsilon=3.0, max_iter=4).fit(X)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "topics.dplda"


def parts(path):
    """Fields and table of a release file."""
    fields, tables = unpack("dplda-release", path.read_bytes(), max_header=2**24)
    return fields, tables["components"]


def forge(path, fields, table, **more):
    """Any fields and tables with a good checksum, as a hostile author would write them."""
    tables = {"components": table, **more}
    path.write_bytes(pack("dplda-release", fields, tables, max_header=2**26))


# ---- there and back -----------------------------------------------------------------------


@every
def test_a_loaded_model_is_the_same_model(estimator, X, path):
    model = clone(estimator).fit(X)
    save_release(model, path)
    again = load_release(str(path))
    np.testing.assert_array_equal(again.components_, model.components_)
    for order in ("c_contiguous", "f_contiguous", "writeable"):
        assert getattr(again.components_.flags, order) == getattr(model.components_.flags, order)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert again.score(X) == model.score(X)
    assert again.perplexity(X) == model.perplexity(X)
    assert again.privacy_ == model.privacy_
    assert str(again.privacy_) == str(model.privacy_)
    assert (again.epsilon_, again.delta_) == (model.epsilon_, model.delta_)
    assert again.epsilon_at(1e-4) == model.epsilon_at(1e-4)
    assert (again.n_iter_, again.n_features_in_) == (model.n_iter_, N_WORDS)
    assert len(again.get_feature_names_out()) == K
    assert again.estimator_name_ == type(model).__name__
    assert again.version_ == dplda.__version__
    public = {k: v for k, v in model.get_params().items() if k not in _release.NOT_RELEASED}
    assert again.parameters_ == public
    assert again.vocabulary_ is None
    assert f" of {type(model).__name__}, <Guarantee: epsilon" in repr(again)


def test_after_partial_fit_all_that_was_spent_is_in_the_file(X, path):
    model = SubLDA(K, noise_multiplier=1.5, max_iter=4).fit(X)
    epsilon = model.epsilon_
    save_release(model.partial_fit(X), path)
    assert load_release(path).epsilon_ == model.epsilon_ > epsilon


def test_parameters_that_changed_after_the_training_are_not_saved(X, path):
    """What a reader takes for the statement of the budget is never below what was spent."""
    model = SubLDA(K, epsilon=4.0, max_iter=2).fit(X)
    for changed_parameter in (dict(epsilon=0.1), dict(delta=1e-9)):
        given = model.get_params()
        model.set_params(**changed_parameter)
        with pytest.raises(ValueError, match="that it was trained with"):
            save_release(model, path)
        assert not path.exists()
        model.set_params(**given)
    save_release(model, path)


def test_words_of_the_columns(model, X, path):
    words = [f"wörd \ud800 {i}" for i in range(N_WORDS)]
    save_release(model, path, vocabulary=np.array(words, dtype=object))
    again = load_release(path)
    assert again.vocabulary_.tolist() == words
    assert not hasattr(again, "feature_names_in_")
    again.transform(X)  # no warning about names
    for wrong in (words[1:], [words[0], *words[:-1]]):
        with pytest.raises(ValueError, match=f"{N_WORDS} different words"):
            save_release(model, path, vocabulary=wrong)
    for wrong in ("abc", {"a": 0}):
        with pytest.raises(TypeError, match="in the order of the columns"):
            save_release(model, path, vocabulary=wrong)


def test_names_of_the_columns(X, path):
    frame = pd.DataFrame(X.toarray(), columns=[f"word {i}" for i in range(N_WORDS)])
    model = SubLDA(K, epsilon=3.0, max_iter=4).fit(frame)
    save_release(model, path)
    again = load_release(path)
    np.testing.assert_array_equal(again.feature_names_in_, frame.columns)
    np.testing.assert_array_equal(again.transform(frame), model.transform(frame))
    assert again.vocabulary_sha256_ == dplda.federated.vocabulary_hash(list(frame.columns))
    with pytest.raises(ValueError, match="feature names should match"):
        again.transform(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="differs from the column names"):
        save_release(model, path, vocabulary=[f"other {i}" for i in range(N_WORDS)])


def test_it_is_a_frozen_step_of_a_pipeline(model, X, path):
    save_release(model, path)
    released = load_release(path)
    pipeline = make_pipeline(released, LogisticRegression())
    assert clone(pipeline)[0] is released
    clone(pipeline).fit(X, np.arange(X.shape[0]) % 2).predict(X)
    np.testing.assert_array_equal(released.fit(X[:3]).components_, model.components_)
    assert not hasattr(released, "partial_fit")
    assert released.set_params(n_jobs=2).get_params() == {"doc_topic_prior": 0.1, "n_jobs": 2}
    content = path.read_bytes()
    save_release(pickle.loads(pickle.dumps(released)), path)
    assert path.read_bytes() == content


def test_a_model_that_is_not_fitted_is_not_exported(path):
    with pytest.raises(NotFittedError):
        save_release(SubLDA(epsilon=1.0), path)
    with pytest.raises(NotFittedError):
        ReleasedModel().fit()
    assert not path.exists()


def test_export_warns_of_what_should_not_be_published(X, path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        save_release(SubLDA(K, epsilon=3.0, max_iter=4).fit(X), path)
    seeded = SubLDA(K, epsilon=3.0, max_iter=4, random_state=7)
    with pytest.warns(dplda.privacy.SeededNoiseWarning):
        seeded.fit(X)
    for model, message in [(seeded, "random_state"), (GibbsLDA(K).fit(X), "without privacy")]:
        with pytest.warns(PrivacyLeakWarning, match=message) as record:
            save_release(model, path)
        assert record[0].filename == __file__
    assert "no privacy guarantee" in str(load_release(path).privacy_)


# ---- what is in it ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_the_file_holds_these_values_and_no_others(X, path, tmp_path):
    secret = 8_675_309
    model = SubLDA(
        K, epsilon=3.0, max_iter=4, random_state=secret, ledger=tmp_path / "private.sqlite",
        prior_components=np.ones((K, N_WORDS)), n_jobs=1,
    )  # fmt: skip
    with pytest.warns(dplda.privacy.SeededNoiseWarning):
        save_release(model.fit(X), path)
    header, table = parts(path)
    assert set(header) == {
        "dplda", "estimator", "parameters", "n_iter", "vocabulary", "named_columns",
         "vectorizer", "guarantee", "topic_evidence", "weak_topics",
    }  # fmt: skip
    hidden = {"random_state", "ledger", "n_jobs", "verbose", "prior_components"}
    assert set(header["parameters"]) == set(model.get_params()) - hidden
    np.testing.assert_array_equal(table, model.components_)
    data = path.read_bytes()
    for trace in (str(secret).encode(), secret.to_bytes(4, "little"), b"sqlite", b"private."):
        assert trace not in data


def test_a_release_says_which_topics_are_weak(X, path):
    model = SubLDA(K, epsilon=8.0, max_iter=4).fit(X)
    save_release(model, path)
    released = load_release(path)
    save_release(released, path)  # and once more
    for name in ("topic_evidence_", "weak_topics_"):
        np.testing.assert_array_equal(getattr(released, name), getattr(model, name))
        np.testing.assert_array_equal(getattr(load_release(path), name), getattr(model, name))


def test_a_model_without_a_prior_is_released_without_inference(X, path):
    model = PrivateNMF(K, epsilon=3.0, max_iter=2).fit(X)
    save_release(model, path, vocabulary=[f"word {i}" for i in range(N_WORDS)])
    again = load_release(path)
    np.testing.assert_array_equal(again.components_, model.components_)
    assert (again.privacy_, again.epsilon_) == (model.privacy_, model.epsilon_)
    assert (again.n_iter_, again.doc_topic_prior) == (2, None)
    assert again.parameters_["contribution_norm"] == 1.0
    assert again.estimator_name_ == "PrivateNMF"
    for method in (again.transform, again.score, again.perplexity, again.fit_transform):
        with pytest.raises(AttributeError, match=r"PrivateNMF .*without a doc_topic_prior"):
            method(X)
    content = path.read_bytes()
    save_release(again, path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("value", [[1, 2], math.nan, -math.inf, print], ids=repr)
def test_what_a_file_cannot_hold_is_refused(X, path, value):
    model = PrivateNMF(K, epsilon=3.0, max_iter=2).fit(X).set_params(contribution_norm=value)
    with pytest.raises(ValueError, match="cannot be represented in a release file"):
        save_release(model, path)
    assert not path.exists()


def test_a_model_without_a_guarantee_to_state_is_refused(X, path):
    model = LatentDirichletAllocation(K, max_iter=1).fit(X)
    with pytest.raises(TypeError, match="LatentDirichletAllocation has no privacy_"):
        save_release(model, path)
    assert not path.exists()


@pytest.mark.parametrize("order", ["C", "F"])
def test_any_reader_of_safetensors_finds_the_table_and_the_checksum(model, path, order):
    """As docs/release.md says it, without dplda."""
    other = copy.copy(model)
    other.components_ = np.array(model.components_, order=order)
    save_release(other, path, vocabulary=[f"wörd \ud800 {i}" for i in range(N_WORDS)])
    with safetensors.safe_open(path, framework="numpy") as file:
        (name,) = file.keys()
        table, metadata = file.get_tensor(name), json.loads(file.metadata()["dplda"])
    assert name == ("components" if order == "C" else "components.T")
    np.testing.assert_array_equal(table if order == "C" else table.T, model.components_)
    assert metadata["fields"] == parts(path)[0]
    layout = [metadata["kind"], metadata["fields"], [[name, "<f8", table.shape]]]
    digest = hashlib.sha256(json.dumps(layout).encode() + table.tobytes())
    assert metadata["sha256"] == digest.hexdigest()


@pytest.mark.parametrize("estimator", CENTRAL, ids=repr)
def test_a_model_is_a_function_of_its_releases(estimator, monkeypatch):
    """Two corpora that release the same give the same pickle: nothing else of them is in it."""

    def release(
        curator, value, mechanism, *, label, round, sampling_probability=1.0, overwrite_value=False,
        n_jobs=None,
    ):  # fmt: skip
        curator._take(label, dplda.privacy._curator.sampled(mechanism.event, sampling_probability))
        return np.arange(value.size, dtype=np.int64).reshape(value.shape) % 7 * 100 + round

    monkeypatch.setattr(Curator, "release", release)
    estimator = clone(estimator).set_params(random_state=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dplda.privacy.SeededNoiseWarning)
        one, two = (pickle.dumps(clone(estimator).fit(corpus(seed))) for seed in (0, 1))
        other = corpus(2)[:30]
        three = pickle.dumps(clone(estimator).fit(other))
    assert one == two == three


# ---- pipelines ----------------------------------------------------------------------------

TEXTS = ["The ripe plum, a PEAR", "cherry, ripe plum? äpfel & Äpfel!", "pear pear", "THE end"] * 100


def fitted(vectorizer, texts=TEXTS):
    return make_pipeline(vectorizer, SubLDA(2, epsilon=3.0, max_iter=2)).fit(texts)


def one_line(guarantee):
    """The text without its layout."""
    return " ".join(str(guarantee).split())


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
    given(analyzer="char_wb", ngram_range=(3, 4)).set_params(vocabulary=["plu", "pear", " pe"]),
    HashingVectorizer(n_features=16, norm=None, alternate_sign=False, binary=True),
    PrivateCountVectorizer(
        epsilon=1.0, candidates=["plum", "pear", "ripe", "äpfel"], stop_words="english"
    ),
]  # fmt: skip


@pytest.mark.parametrize("vectorizer", WAYS_TO_COUNT, ids=lambda v: str(v)[:60])
def test_a_released_pipeline_counts_texts_as_the_pipeline_did(vectorizer, path):
    pipeline = fitted(clone(vectorizer))
    save_release(pipeline, path)
    again = load_release(path)
    assert again.privacy_ == pipeline_guarantee(pipeline)
    counts = pipeline[0].transform(TEXTS)
    assert counts.nnz
    np.testing.assert_array_equal(again.vectorizer_.transform(TEXTS).toarray(), counts.toarray())
    for texts in (TEXTS, tuple(TEXTS), np.array(TEXTS), pd.Series(TEXTS), pd.Series(TEXTS).values):
        np.testing.assert_array_equal(again.transform(texts), pipeline.transform(TEXTS))
    np.testing.assert_array_equal(again.transform(counts), pipeline.transform(TEXTS))
    assert again.score(TEXTS) == pipeline.score(TEXTS)
    assert again.perplexity(TEXTS) == pipeline[-1].perplexity(counts)
    labels = np.arange(len(TEXTS)) % 2
    make_pipeline(again, LogisticRegression()).fit(TEXTS, labels).predict(TEXTS[:2])
    content = path.read_bytes()
    save_release(pickle.loads(pickle.dumps(again)), path)
    assert path.read_bytes() == content


def test_a_released_pipeline_states_all_of_its_cost(path):
    vectorizer = PrivateCountVectorizer(epsilon=1.0, candidates=["plum", "pear"])
    pipeline = fitted(vectorizer)
    save_release(pipeline, path)
    released = load_release(path)
    assert released.epsilon_ > 3.05 > pipeline[-1].epsilon_
    assert "vocabulary: chosen from the documents, and its cost" in one_line(released.privacy_)
    pipeline[-1].set_params(epsilon=0.1)
    with pytest.raises(ValueError, match="that it was trained with"):
        save_release(pipeline, path)


def test_a_learned_vocabulary_is_released_as_not_private(path):
    with pytest.warns(PrivacyLeakWarning, match="vocabulary: learned from the documents"):
        save_release(fitted(CountVectorizer()), path)
    released = load_release(path)
    assert released.epsilon_ == math.inf
    line = f"vocabulary: {dict(released.privacy_.provenance)['vocabulary']}"
    assert "not private" in line
    assert line in one_line(released.privacy_)


@pytest.mark.parametrize(
    ("vectorizer", "message"),
    [
        (given(tokenizer=str.split, token_pattern=None), "the tokenizer is a function.*token_patt"),
        (given(preprocessor=str.lower), "the preprocessor is a function"),
        (given(analyzer=str.split), "the analyzer is a function"),
        (given(strip_accents=str.lower), "the strip_accents is a function"),
        (HashingVectorizer(n_features=8, norm=None), "norm=None and alternate_sign=False"),
        (TfidfVectorizer(vocabulary=["plum", "pear"]), "got TfidfVectorizer"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.filterwarnings("ignore:SubLDA takes word counts")
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
    nested = make_pipeline(make_pipeline("passthrough", given()), make_pipeline(model)).fit(TEXTS)
    save_release(nested, path)
    np.testing.assert_array_equal(load_release(path).transform(TEXTS), nested.transform(TEXTS))


SETTINGS = [
    ("estimator", "TfidfVectorizer", "must be a CountVectorizer"),
    ("estimator", "HashingVectorizer", "must be a CountVectorizer"),
    ("analyzer", "os.system", "analyzer"), ("analyzer", ["word"], "analyzer"),
    ("binary", 1, "binary"), ("lowercase", None, "lowercase"),
    ("ngram_range", [1, 10**9], "ngram_range"), ("ngram_range", [2, 1], "ngram_range"),
    ("ngram_range", [True, 2], "ngram_range"),
    ("stop_words", "english", "stop_words"), ("stop_words", [1], "stop_words"),
    ("strip_accents", "both", "strip_accents"), ("strip_accents", {}, "strip_accents"),
    ("token_pattern", None, "must have a token_pattern"), ("token_pattern", "(", "token_pattern"),
    ("token_pattern", "(a)(b)", "token_pattern"), ("token_pattern", "a" * 10_001, "token_pattern"),
    ("token_pattern", "(" * 5000 + ")" * 5000, "token_pattern"),
    ("tokenizer", "str.split", "must have the fields"),
]  # fmt: skip


def test_settings_of_unknown_origin_are_checked(path):
    save_release(fitted(given(stop_words="english")), path)
    header, table = parts(path)
    forge(path, header, table)
    load_release(path)
    for name, value, message in SETTINGS:
        forge(path, changed(header, "vectorizer", name, value=value), table)
        with pytest.raises(ValueError, match=message):
            load_release(path)


def test_texts_are_never_names_of_files(path, tmp_path):
    file = tmp_path / "plum.txt"
    file.write_text("plum")
    pipeline = make_pipeline(given(input="filename"), SubLDA(2, epsilon=3.0, max_iter=2))
    save_release(pipeline.fit([str(file)] * 50), path)
    assert load_release(path).vectorizer_.input == "content"


# ---- the words of the columns ---------------------------------------------------------------


def test_columns_of_other_words_are_refused(model, X, path):
    """As many words, and the topics of others: a model that knows its words compares them."""
    words = [f"word {i}" for i in range(N_WORDS)]
    save_release(model, path, vocabulary=words)
    released = load_release(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as scikit-learn warns of names that it did not see in fit
        right = pd.DataFrame(X.toarray(), columns=words)
        sparse = pd.DataFrame.sparse.from_spmatrix(X, columns=words)
        for table in (right, sparse, pd.DataFrame(X.toarray()), X):
            np.testing.assert_array_equal(released.transform(table), model.transform(X))
    for wrong in (words[::-1], [f"other {i}" for i in range(N_WORDS)]):
        for method in (released.transform, released.score, released.perplexity):
            with pytest.raises(ValueError, match="are not the 20 words of this model"):
                method(right.set_axis(wrong, axis=1))
        counter = CountVectorizer(vocabulary=wrong)
        mixed = make_pipeline(counter, released)
        with pytest.raises(ValueError, match="are not the 20 words"):
            mixed.get_feature_names_out()
        with pytest.raises(ValueError, match="trained on other words than 'countvectorizer'"):
            pipeline_guarantee(mixed)
        with pytest.raises(ValueError, match="trained on other words"):
            save_release(mixed, path)
    counter = CountVectorizer(vocabulary=words)
    assert len(make_pipeline(counter, released).get_feature_names_out()) == K
    assert pipeline_guarantee(make_pipeline(counter, released)).epsilon == released.epsilon_


# ---- files that cannot be trusted ---------------------------------------------------------


def test_no_flipped_byte_and_no_cut_is_read(model, path):
    save_release(model, path, vocabulary=[f"wörd {i}" for i in range(N_WORDS)])
    original = path.read_bytes()
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 1 << position % 8
        for data in (bytes(damaged), original[:position]):
            with pytest.raises(ValueError, match=r"."):
                _release.read_release(data)
    path.write_bytes(original[:-1])
    with pytest.raises(ValueError, match="not a valid release file"):
        load_release(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\3\4" + bytes(99), b"\x80\x04." * 99])
def test_other_files_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a valid release file"):
        load_release(path)


def test_a_huge_file_is_refused_unread(path):
    with path.open("wb") as file:
        file.truncate(2**31 + 1)  # without blocks on the disk
    with pytest.raises(ValueError, match="bytes"):
        load_release(path)


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


GUARANTEE = "guarantee"
LIES = [
    (("estimator",), ..., "fields"), (("shape",), [K, N_WORDS], "fields"),
    (("pickle",), "gASV", "fields"), (("weak_topics",), None, "weak_topics"),
    (("weak_topics",), [True] * (K - 1), "weak_topics"),
    (("weak_topics",), [1] * K, "weak_topics"),
    (("topic_evidence",), [math.inf] * K, "topic_evidence"),
    (("topic_evidence",), 1.0, "topic_evidence"), (("n_iter",), -1, "n_iter"),
    (("n_iter",), 10**30, "n_iter"), (("n_iter",), "4", "n_iter"),
    (("estimator",), ["os.system"], "estimator"), (("estimator",), "Sub\x1b[2JLDA", "estimator"),
    (("dplda",), None, "dplda"), (("dplda",), "1.0\n2.0", "dplda"),
    (("vocabulary_sha256",), "0" * 64, "fields"),
    (("vectorizer",), "CountVectorizer", "vectorizer must have the fields"),
    ((GUARANTEE, "provenance"), [["vocabulary"]], "list of pairs"),
    ((GUARANTEE, "provenance"), ["ab"], "must be a list"),
    ((GUARANTEE, "provenance"), [["vocabulary", "mine\n"]], "provenance"),
    (("vocabulary",), ["a"], "different words"),
    (("vocabulary",), ["a"] * N_WORDS, "different words"),
    (("vocabulary",), list(range(N_WORDS)), "list of words"),
    (("vocabulary",), {"a": 1}, "list of words"), (("vocabulary",), {}, "list of words"),
    (("vocabulary",), [], "different words"), (("vocabulary",), False, "list of words"),
    (("parameters",), [], "parameters"), (("parameters", "random_state"), 5, "parameters"),
    (("parameters", "epsilon"), [[]], "epsilon"),
    (("parameters", "doc_topic_prior"), "0.1", "doc_topic_prior"),
    (("parameters", "doc_topic_prior"), 0, "doc_topic_prior"),
    (("parameters", "doc_topic_prior"), -0.1, "doc_topic_prior"),
    (("parameters", "doc_topic_prior"), math.inf, "doc_topic_prior"),
    (("parameters", "doc_topic_prior"), True, "doc_topic_prior"),
    (("parameters", "doc_topic_prior"), 1e12, "doc_topic_prior"),
    (("parameters", "doc_topic_prior"), math.nextafter(LARGEST_PRIOR, math.inf), "doc_topic_prior"),
    ((GUARANTEE,), None, "guarantee"), ((GUARANTEE, "unit"), ..., "guarantee"),
    ((GUARANTEE, "unit"), 3, "unit"), ((GUARANTEE, "more"), 3, "guarantee"),
    ((GUARANTEE, "epsilon"), 0.01, "less than what the events cost"),
    ((GUARANTEE, "epsilon"), -1, "epsilon"), ((GUARANTEE, "epsilon"), None, "epsilon"),
    ((GUARANTEE, "epsilon"), math.nan, "the number NaN"),
    ((GUARANTEE, "epsilon"), -math.inf, "the number -Infinity"),
    ((GUARANTEE, "epsilon"), 10**400, "epsilon"), ((GUARANTEE, "delta"), 2, "delta"),
    ((GUARANTEE, "delta"), 1e-150, "less than what the events cost"),
    ((GUARANTEE, "delta"), 1e-300, "delta must be 0, or from 1e-200"),
    ((GUARANTEE, "total_variation"), 1.0, "total_variation"),
    ((GUARANTEE, "total_variation"), 0.99, "total_variation"),
    (("parameters", "epsilon"), 0.01, "its parameters say epsilon=0.01"),
    (("parameters", "epsilon"), "nan", "epsilon"),
    (("parameters", "delta"), 1e-9, "its parameters say delta=1e-09"),
    ((GUARANTEE, "accountant"), "none", "the guarantee must have the fields"),
    ((GUARANTEE, "seeded"), 0, "seeded"), ((GUARANTEE, "assumptions"), "none", "assumptions"),
    ((GUARANTEE, "assumptions"), [1], "assumptions"),
    ((GUARANTEE, "assumptions"), ["none \u202e"], "assumptions"),
    ((GUARANTEE, "assumptions"), ["none\r"], "assumptions"),
    ((GUARANTEE, "mechanism"), "\x1b]0;title\x07", "mechanism"),
    ((GUARANTEE, "noise_scale"), [[]], "noise_scale"),
    ((GUARANTEE, "events"), [], "1 to 1000000 private steps"),
    ((GUARANTEE, "events"), None, "events"), ((GUARANTEE, "events"), [3], "events"),
    ((GUARANTEE, "events"), [{"event": "Cauchy"}], "events"),
    ((GUARANTEE, "events"), [{"event": "Gaussian", "noise_multiplier": 0}], "events"),
    ((GUARANTEE, "events"), [{"event": "NonPrivate"}], "less than what the events cost"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "value", "message"), LIES, ids=repr)
def test_lies_are_refused(model, path, keys, value, message):
    save_release(model, path)
    header, table = parts(path)
    forge(path, changed(header, *keys, value=value), table)
    with pytest.raises(ValueError, match=message):
        load_release(path)


@pytest.mark.parametrize(
    "tables",
    [
        {"components": np.ones((K, N_WORDS + 1)), "more": np.ones(1)},
        {"components": np.ones((K, N_WORDS), np.float32)}, {"components": np.ones(N_WORDS)},
        {"components": np.ones((0, N_WORDS))}, {"components_": np.ones((K, N_WORDS))}, {},
    ],
    ids=range(6),
)  # fmt: skip
def test_false_tables_are_refused(model, path, tables):
    save_release(model, path)
    header, _ = parts(path)
    path.write_bytes(pack("dplda-release", header, tables, max_header=2**24))
    with pytest.raises(ValueError, match=r"one table, components|must be a table"):
        load_release(path)


def test_texts_of_a_file_are_no_code_of_a_page(model, path):
    save_release(model, path)
    header, table = parts(path)
    script = "<script>alert(1)</script>"
    header = changed(header, "estimator", value=script)
    header = changed(header, "vocabulary", value=[f"{script}{i}" for i in range(N_WORDS)])
    forge(path, changed(header, GUARANTEE, "relation", value=script), table)
    released = load_release(path)
    pages = [released._repr_html_(), released.privacy_._repr_markdown_()]
    assert [("alert" in page, script in page) for page in pages] == [(True, False)] * 2


def test_the_largest_prior_of_an_estimator_loads_and_transforms(model, X, path):
    save_release(model, path)
    header, table = parts(path)
    value = LARGEST_PRIOR
    forge(path, changed(header, "parameters", "doc_topic_prior", value=value), table)
    np.testing.assert_allclose(load_release(path).transform(X).sum(axis=1), 1.0, rtol=1e-5)


def test_texts_up_to_the_limit_load_and_no_longer_ones(model, path):
    save_release(model, path)
    header, table = parts(path)
    text = "é " * 5000
    forge(path, changed(header, GUARANTEE, "assumptions", value=[text]), table)
    assert load_release(path).privacy_.assumptions == (text,)
    for keys in (("estimator",), (GUARANTEE, "unit")):
        forge(path, changed(header, *keys, value="d" * 10_001), table)
        with pytest.raises(ValueError, match=f"{keys[-1]} must be a string of at most 10000"):
            load_release(path)


@pytest.mark.parametrize(
    "step",
    [
        {"event": "Laplace", "scale": 1e4},
        {"event": "Gaussian", "noise_multiplier": 5.0},
        {"event": "RandomizedResponseEvent", "flip_mixture": 0.99999, "n_buckets": 2},
        {
            "event": "PoissonSampled",
            "sampling_probability": 1e-8,
            "of": {"event": "Gaussian", "noise_multiplier": 1.0},
        },
    ],
    ids=lambda step: step["event"],
)
def test_events_that_would_take_hours_are_refused_at_once(model, path, step):
    """Any number of Gaussian events is one, and is only too dear."""
    save_release(model, path)
    header, table = parts(path)
    for count in (10**9, 10**300):
        events = [{"event": "Repeated", "of": step, "count": count}]
        forge(path, changed(header, GUARANTEE, "events", value=events), table)
        with pytest.raises(ValueError, match=r"private steps|less than what|events cannot be"):
            load_release(path)


def test_many_kinds_of_events_are_refused(model, path):
    save_release(model, path)
    header, table = parts(path)
    header = changed(header, GUARANTEE, "epsilon", value=1e6)
    header = changed(header, "parameters", "epsilon", value=1e6)
    events = [{"event": "Laplace", "scale": 100.0 + i} for i in range(51)]
    forge(path, changed(header, GUARANTEE, "events", value=events), table)
    with pytest.raises(ValueError, match="50 different kinds"):
        load_release(path)
    forge(path, changed(header, GUARANTEE, "events", value=events[:3]), table)
    assert load_release(path).epsilon_ == 1e6  # what is no lie is believed


@pytest.mark.parametrize(
    "number",
    [math.nan, -1.0, math.inf, -math.inf, 1e308],
    ids=["nan", "-1", "inf", "-inf", "1e308"],
)
def test_tables_that_are_none_of_counts_are_refused(model, path, number):
    save_release(model, path)
    header, table = parts(path)
    for cells in (number, [number, -number, number]):
        table[0, :3] = cells
        forge(path, header, table)
        with pytest.raises(ValueError, match="finite and non-negative"):
            load_release(path)
    table[0] = 0
    forge(path, header, table)
    with pytest.raises(ValueError, match="no empty topic"):
        load_release(path)


def test_a_vocabulary_that_is_too_long_is_not_written(model, path, monkeypatch):
    monkeypatch.setattr(_release, "MAX_HEADER", 500)
    with pytest.raises(ValueError, match="leave the vocabulary out"):
        save_release(model, path)
    assert not path.exists()


def test_extreme_events_are_an_error_or_a_valid_claim(model, path):
    """Never another exception, a crash, or a claim below the cost."""
    save_release(model, path)
    header, table = parts(path)
    chance = random.Random(0)
    kinds = [("Gaussian", "noise_multiplier"), ("Laplace", "scale"), ("BoundedRange", "epsilon"),
             ("ZeroConcentrated", "rho")]  # fmt: skip
    n_loaded = 0
    for _ in range(60):
        name, field = chance.choice(kinds)
        event = {
            "event": name,
            field: 10.0 ** chance.choice([-320, -160, -9, -3, 0, 3, 9, 160, 300]),
        }
        claim = changed(header, GUARANTEE, "events", value=[event])
        claim = changed(claim, "parameters", "epsilon", value=math.inf)
        claim = changed(claim, GUARANTEE, "epsilon", value=chance.choice([0.5, 50.0, 1e6]))
        forge(path, claim, table)
        with suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            loaded = load_release(path)
            cost = epsilon_of(
                from_record(event), 1e-6, total_variation=loaded.privacy_.total_variation
            )
            assert loaded.epsilon_ >= cost * (1 - 1e-9)
            n_loaded += 1
    assert 10 < n_loaded < 60


# ---- writing ------------------------------------------------------------------------------


def test_a_file_is_replaced_as_a_whole_or_not_at_all(model, path, monkeypatch):
    path.write_bytes(b"what was there before")

    def fail(descriptor):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk is full"):
        save_release(model, path)
    assert path.read_bytes() == b"what was there before"
    assert os.listdir(path.parent) == [path.name]
    monkeypatch.undo()
    save_release(model, path)
    assert load_release(path).epsilon_ == model.epsilon_
    assert os.listdir(path.parent) == [path.name]


def test_a_place_that_cannot_be_written_is_found_first(model, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; give the path of a file"):
        save_release(model, tmp_path)
    with pytest.raises(OSError, match=r"missing/topics cannot be written"):
        save_release(model, tmp_path / "missing" / "topics")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_is_refused_and_not_printed(path):
    with pytest.raises(TypeError, match=r"^expected a fitted model .* of an IFTMMaster") as caught:
        save_release(["a diagnosis of Ann"], path)
    assert "Ann" not in str(caught.value)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a text", r"pass \[text\]"), (b"a text", r"pass \[text\]"), ([None], "got NoneType"),
        ([b"a text"], "decode bytes"), ([["apple"]], "join words by spaces"),
        (pd.DataFrame({"note": ["apple"]}), r"pass df\['column'\]"),
    ],
    ids=["text", "bytes", "missing", "list of bytes", "words", "table"],
)  # fmt: skip
def test_a_model_of_texts_says_which_texts_it_takes(X, message, path):
    vectorizer = CountVectorizer(vocabulary=["apple", "banana"])
    save_release(make_pipeline(vectorizer, GibbsLDA(2, max_iter=1)).fit(["apple banana"] * 9), path)
    with pytest.raises(ValueError, match=message):
        load_release(path).transform(X)


def test_mlflow_keeps_the_model_and_its_guarantee(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    sklearn_flavor = pytest.importorskip("mlflow.sklearn")
    skops_io = pytest.importorskip("skops.io")
    from mlflow.models import Model

    vectorizer = CountVectorizer(vocabulary=["pear", "plum", "cherry"])
    pipeline = make_pipeline(vectorizer, SubLDA(2, epsilon=4.0, max_iter=2))
    save_release(pipeline.fit(["a pear", "plum, cherry"] * 50), tmp_path / "topics.dplda")
    released = load_release(tmp_path / "topics.dplda")
    trusted = skops_io.get_untrusted_types(data=skops_io.dumps(released))
    card = released.privacy_.to_dict()
    tags = {name: card[name] for name in ("epsilon", "delta", "unit", "ledger")}
    path = tmp_path / "mlflow"
    sklearn_flavor.save_model(released, path, skops_trusted_types=trusted, metadata=tags)
    again = sklearn_flavor.load_model(str(path))
    assert all(name.startswith("dplda.") for name in trusted)
    assert again.privacy_ == released.privacy_
    texts = ["cherry and pear", "plum"]
    np.testing.assert_array_equal(again.transform(texts), released.transform(texts))
    assert Model.load(str(path)).metadata == tags
