"""Words that a model has not counted get topics by their vectors: `add_words`."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from shared_cases import meanings
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from dplda import SubLDA, add_words, load_release, save_release
from dplda.datasets import load_public_vocabulary, make_topic_corpus
from dplda.displays import top_words
from dplda.metrics import held_out_scores

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning"),
    pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning"),
]
K, N_WORDS, COUNTED = 5, 400, 200


@pytest.fixture(scope="module")
def made():
    return make_topic_corpus(1100, N_WORDS, K, doc_length=50, random_state=3)


@pytest.fixture(scope="module")
def words():
    return load_public_vocabulary(N_WORDS)


@pytest.fixture(scope="module")
def source(made, words):
    vectors = meanings(made)
    return {word: row for word, row in zip(words, vectors) if row.any()}


@pytest.fixture(scope="module")
def model(made, words, source):
    """A model of every second word."""
    vectors = [source.get(word, np.zeros(12)) for word in words[::2]]
    model = SubLDA(
        K, epsilon=4.0, max_iter=30, random_state=0, n_jobs=1, word_vectors=vectors
    )
    model.fit(made.data[:1000, ::2])
    counts = CountVectorizer(vocabulary=words[::2]).fit([])
    return make_pipeline(counts, model)


@pytest.fixture
def narrow(model, tmp_path):
    save_release(model, tmp_path / "narrow")
    return load_release(tmp_path / "narrow")


def test_words_that_were_not_counted_say_what_a_document_is_about(
    made, words, source, narrow
):
    held = made.data[1000:]
    wrong = dict(zip(source, np.random.default_rng(0).permutation([*source.values()])))

    def gain(vectors):
        wider = add_words(narrow, words, vectors)
        columns = [words.index(word) for word in wider.vocabulary_]
        return held_out_scores(wider.components_, held[:, columns]).new_word_gain

    flat = narrow.components_.sum(axis=1, keepdims=True)
    columns = [*range(0, N_WORDS, 2), *range(1, N_WORDS, 2)]
    alone = held_out_scores(
        np.hstack([narrow.components_, np.repeat(flat, N_WORDS // 2, 1) / N_WORDS]),
        held[:, columns],
    ).new_word_gain
    assert gain(source) > 1.3 * alone
    assert gain(wrong) > 0.9 * alone


def test_the_rest_is_as_before_and_stays_in_the_file(narrow, words, source, tmp_path):
    before = narrow.to_bytes()
    wider = add_words(narrow, words, source)
    n_added = len({*words[1::2]} & source.keys())
    assert_array_equal(wider.components_[:, :COUNTED], narrow.components_)
    assert_array_equal(wider.components_std_[:COUNTED], narrow.components_std_)
    assert wider.vocabulary_.tolist() == [
        *words[::2],
        *(word for word in words[1::2] if word in source),
    ]
    assert_array_equal(
        wider.transform([words[0]]), wider.transform([f"{words[0]} unknown"])
    )
    assert f"{n_added} words added by their vectors" in str(wider.privacy_)
    assert "word_vectors is public" in str(wider.privacy_)
    assert wider.epsilon_ == narrow.epsilon_
    assert narrow.to_bytes() == before  # it is a copy that was changed
    save_release(wider, tmp_path / "wider")
    again = load_release(tmp_path / "wider")
    assert again.to_bytes() == wider.to_bytes()
    assert_array_equal(again.transform([words[1]]), wider.transform([words[1]]))


def test_a_model_and_its_release_get_the_same_words(model, narrow, words, source):
    assert add_words(model, words, source).to_bytes() == (
        add_words(narrow, words, source).to_bytes()
    )


def test_a_word_that_was_not_counted_is_marked_and_leads_no_list(narrow, words, source):
    wider = add_words(narrow, words, source)
    added = {*words[1::2]}
    for topic in top_words(wider, n_top_words=len(wider.vocabulary_), mark_noise=True):
        assert not added & {*topic}  # all of them have a question mark


def test_a_word_that_texts_cannot_have_is_not_added(narrow, source):
    words = ["Hippo", "new york", "x", "hippo", "hippo"]
    wider = add_words(narrow, words, source | dict.fromkeys(words, np.ones(12)))
    assert wider.vocabulary_[COUNTED:].tolist() == ["hippo"]


def test_what_cannot_be_added_is_refused(narrow, words, source):
    with pytest.raises(TypeError, match="list of words, got a single text"):
        add_words(narrow, "doctor")
    with pytest.raises(ValueError, match="and 0 other words have a vector"):
        add_words(narrow, words[::2], source)
    with pytest.raises(ValueError, match="0 words of the model and 1 other words"):
        add_words(narrow, ["qqq"], {"qqq": np.ones(2)})
    nameless = type(narrow)()
    vars(nameless).update(vars(narrow), vocabulary_=None, vectorizer_=None)
    with pytest.raises(ValueError, match="has no words"):
        add_words(nameless, words, source)
