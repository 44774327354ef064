"""Public word vectors as the prior: docs/public_prior.md."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from shared_cases import meanings
from sklearn.feature_extraction.text import CountVectorizer

from dplda import PrivateSVILDA, PrivateTopicModel, SubLDA
from dplda.datasets import load_word_vectors, load_wordnet_glosses, make_topic_corpus
from dplda.privacy import Ledger

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
K, N_WORDS = 5, 200
OPTIONS = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "max_iter": 30,
    "random_state": 0,
    "n_jobs": 1,
}


@pytest.fixture(scope="module")
def made():
    return make_topic_corpus(1100, N_WORDS, K, doc_length=50, random_state=3)


@pytest.fixture(scope="module")
def vectors(made):
    return meanings(made)


@pytest.mark.parametrize(
    "kind", [SubLDA, pytest.param(PrivateSVILDA, marks=pytest.mark.slow)]
)
def test_vectors_help_and_wrong_ones_do_no_harm(kind):
    """Means of six seeds. If all words read the vectors, wrong ones cost 4%."""
    made = make_topic_corpus(1100, 600, 8, doc_length=50, random_state=3)
    train, test, vectors = made.data[:1000], made.data[1000:], meanings(made)
    changes = []
    for seed in range(6):
        options = OPTIONS | {"subsampling_ratio": 1.0, "random_state": seed}
        wrong = np.random.default_rng(seed + 1).permutation(vectors)
        alone, helped, harmed = (
            kind(8, **options, word_vectors=given).fit(train).perplexity(test)
            for given in (None, vectors, wrong)
        )
        changes.append([helped / alone, harmed / alone])
    helped, harmed = np.log(changes).mean(axis=0)
    assert helped < -0.1
    assert harmed < 0.015


def test_partial_fit_goes_on_with_the_vectors_of_its_first_call(made, vectors):
    tables = []
    for first, later in ((vectors, vectors), (vectors, None), (None, None)):
        model = SubLDA(K, **OPTIONS, word_vectors=first).partial_fit(made.data)
        model.set_params(word_vectors=later).partial_fit(made.data)
        tables.append(model.components_)
    np.testing.assert_array_equal(tables[1], tables[0])
    assert not np.array_equal(tables[1], tables[2])


def test_without_noise_vectors_change_nothing(made, vectors):
    options = OPTIONS | {"epsilon": math.inf, "max_iter": 3}
    one, other = (
        SubLDA(K, **options, word_vectors=v).fit(made.data).components_
        for v in (vectors, None)
    )
    np.testing.assert_array_equal(one, other)


def test_wrong_vectors_are_refused_before_anything_is_spent(made, vectors):
    ledger = Ledger(epsilon=2.0)
    for said, given in {
        "a row for each of 200 words": vectors[:-1],
        "infinity": np.where(vectors == vectors[3, 2], np.inf, vectors),
        "not all of them zeros": 0 * vectors,
        "NaN": np.full_like(vectors, np.nan),
        "None or an array-like": sp.csr_array(vectors),
    }.items():
        with pytest.raises((ValueError, TypeError), match=said):
            SubLDA(K, **OPTIONS, word_vectors=given, ledger=ledger).fit(made.data)
    assert ledger.epsilon_spent == 0


@pytest.mark.parametrize("change", ["float16", "huge", "one dimension", "all the same"])
def test_unusual_vectors_are_plain_ones(change, made, vectors):
    given = {
        "float16": vectors.astype(np.float16),
        "huge": vectors * 1e300,
        "one dimension": vectors[:, :1],
        "all the same": np.ones((N_WORDS, 3)),
    }[change]
    model = SubLDA(K, **OPTIONS | {"max_iter": 3}, word_vectors=given).fit(made.data)
    assert np.isfinite(model.components_).all()
    if change == "huge":
        plain = SubLDA(K, **OPTIONS | {"max_iter": 3}, word_vectors=vectors).fit(
            made.data
        )
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-3)


def test_the_embedded_table_knows_what_goes_together_and_what_is_frequent():
    words = ["doctor", "hospital", "football", "qxqxqx", "the"]
    vectors = load_word_vectors(CountVectorizer(vocabulary=words))
    assert vectors.shape == (5, 50)
    assert not vectors[3].any()
    size = np.linalg.norm(vectors, axis=1)
    assert size[4] == size.max() == pytest.approx(1)  # the first word of the table
    unit = vectors[:3] / size[:3, None]
    assert unit[0] @ unit[1] > unit[0] @ unit[2] + 0.2


def test_other_sources():
    class KeyedVectors:  # as gensim's: neither a Mapping nor a list
        def __init__(self, vectors):
            self.vectors = vectors

        def __contains__(self, word):
            return word in self.vectors

        def __getitem__(self, word):
            return self.vectors[word]

    given = {"herz": [1.0, 2.0], "puls": [0.5, 2.0]}
    for source in (given, KeyedVectors(given)):
        found = load_word_vectors(["puls", "knochen", "herz"], source)
        assert found.tolist() == [[0.5, 2.0], [0.0, 0.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ({"heart": [1.0], "bone": [1.0, 2.0]}, ValueError, "dimension and length, got"),
        ({"foot": [1.0]}, ValueError, "any of the 2 words"),
        ("a text", TypeError, "got str"),
        ([1, 2], TypeError, "got list"),
        (7, TypeError, "got int"),
    ],
)
def test_wrong_sources(source, error, said):
    with pytest.raises(error, match=said):
        load_word_vectors(["heart", "bone"], source)


def test_a_model_of_english_texts_takes_the_table_and_says_so():
    texts = load_wordnet_glosses().data[:600]
    options = {"epsilon": 8.0, "max_features": 60}
    origin = dict(PrivateTopicModel(3, **options).fit(texts).privacy_.provenance)
    assert origin["word vectors"].startswith("GloVe 6B, 50 numbers a word")
    other = PrivateTopicModel(3, **options, word_vectors=None).fit(texts)
    assert "word vectors" not in dict(other.privacy_.provenance)
    given = PrivateTopicModel(3, **options, word_vectors={"used": [1.0, 0.5]}).fit(
        texts
    )
    assert "declaration" in dict(given.privacy_.provenance)["word vectors"]


def test_vectors_of_a_word_outside_of_the_list_are_left_out_if_they_are_wrong():
    """The words are paid for by then."""
    texts = ["xyzzy heart", "xyzzy bone"] * 300
    vectors = {"heart": [1.0, 0.5], "xyzzy": [math.nan, 1.0]}
    model = PrivateTopicModel(2, epsilon=8.0, max_features=60, word_vectors=vectors)
    with pytest.warns(UserWarning, match="topics are found without word_vectors"):
        model.fit(texts)
    assert "word vectors" not in dict(model.privacy_.provenance)
