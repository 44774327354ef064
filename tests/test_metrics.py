"""Perplexities: the split of documents, known values, refusals."""

import numpy as np
import pytest

from dplda import GibbsLDA
from dplda.datasets import make_topic_corpus
from dplda.metrics import held_out_perplexity, held_out_scores, unigram_perplexity

N_WORDS = 50


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, N_WORDS, 4, doc_length=60, random_state=1)


def test_training_helps_and_completion_is_the_stricter_number(corpus):
    train, test = corpus.data[:200], corpus.data[200:]
    table = GibbsLDA(4, max_iter=300, random_state=0).fit(train).components_
    seen = held_out_perplexity(table, test, completion=False)
    strict = held_out_perplexity(table, test)
    true = held_out_perplexity(corpus.components, test)
    assert seen < strict < unigram_perplexity(train, test) < N_WORDS
    assert 0.98 * true < strict < 1.1 * true


def test_forms_of_the_arguments_and_jobs_change_nothing(corpus):
    components, X = corpus.components, corpus.data[:50]
    expected = held_out_perplexity(components, X)
    for same in (X.toarray(), X.tocsc(), X.toarray().tolist(), X.astype(np.float32)):
        assert held_out_perplexity(components.tolist(), same) == expected
    assert held_out_perplexity(components, X, n_jobs=2) == expected


TABLE, DOCUMENTS = np.ones((2, 3)), np.array([[4, 4, 4]])


@pytest.mark.parametrize(
    ("components", "X", "options", "message"),
    [
        (np.ones((2, 4)), DOCUMENTS, {}, "X has 3 words and components has 4"),
        ([[1, 1, -1], [1, 1, 2]], DOCUMENTS, {}, "non-negative"),
        ([[1, 1, 0], [1, 1, 0]], DOCUMENTS, {}, "no word impossible"),
        ([[1, 1, 1], [0, 0, 0]], DOCUMENTS, {}, "no topic empty"),
        ([[1, 1, 1], [1, np.nan, 1]], DOCUMENTS, {}, "components contains NaN"),
        (TABLE, [[1, 2, -1]], {}, "Negative"),
        (TABLE, [[0, 0, 0]], {}, "no words to score"),
        (
            TABLE,
            DOCUMENTS,
            {"doc_topic_prior": 0},
            r"doc_topic_prior must be a number in \(0, ",
        ),
    ],
)
@pytest.mark.parametrize("completion", [True, False])
def test_what_is_refused(components, X, options, message, completion):
    with pytest.raises(ValueError, match=message):
        held_out_perplexity(components, X, completion=completion, **options)
    if not options:
        with pytest.raises(ValueError, match=message):
            held_out_scores(components, X)


def test_a_probability_that_underflows_makes_perplexity_infinite():
    seen = np.array([[2**64 - 1, 0, 0]], dtype=np.uint64)
    assert unigram_perplexity(seen, [[1, 2, 0]], topic_word_prior=5e-324) == np.inf


def test_repetition_is_no_knowledge_of_new_words():
    """Words in bursts, without topics: topics of one word each "know" what repeats."""
    draws = np.random.default_rng(0)
    own = draws.gamma(0.3, size=(400, N_WORDS)) + 1e-9
    X = np.array([draws.multinomial(40, p / p.sum()) for p in own])
    words = 0.02 + 10 * np.eye(N_WORDS)
    scores = held_out_scores(words * X.sum(axis=0), X)
    assert scores.token_gain > 0.3
    assert abs(scores.new_word_gain) < 0.02


def test_topics_know_new_words():
    corpus = make_topic_corpus(300, 400, 4, doc_length=30, random_state=1)
    scores = held_out_scores(corpus.components, corpus.data)
    assert scores.token_gain > 0.1
    assert scores.new_word_gain > 0.1
    alone = held_out_scores(corpus.components.sum(axis=0)[None], corpus.data)
    assert alone[3:] == pytest.approx([0, 0, 0], abs=1e-6)
    assert scores.token > alone.token


def test_scores_are_those_of_each_document(corpus):
    """Means over tokens, documents and new words, of documents one by one."""
    model = GibbsLDA(4, max_iter=20, random_state=0).fit(corpus.data[:100])
    X = np.vstack([corpus.data[200:230].toarray(), 7 * corpus.data[230:240].toarray()])
    table = model.components_
    scores = held_out_scores(table, X, transform=model.transform)
    assert scores == pytest.approx(held_out_scores(table, X), rel=1e-5)
    assert np.exp(-scores.token) == pytest.approx(held_out_perplexity(table, X))
    each = [held_out_scores(table, row[None]) for row in X]
    assert scores.document == pytest.approx(np.mean([one.document for one in each]))
    gain = np.mean([one.document_gain for one in each])
    assert scores.document_gain == pytest.approx(gain)
    blocks = [held_out_scores(table, np.vstack([X] * 3)), scores]
    assert blocks[0] == pytest.approx(blocks[1], rel=1e-5)


def test_new_words_share_the_probability_of_all_words_that_are_new():
    """The first word is observed, and one of three others is new in some documents."""
    topics = np.array([[4.0, 4.0, 1.0, 1.0], [1.0, 1.0, 4.0, 4.0]])

    def transform(observed):
        return np.tile([1.0, 0.0], (observed.shape[0], 1))

    for word, p in ((1, 0.4), (2, 0.1), (3, 0.1)):
        X = np.zeros((20, 4))
        X[:, 0], X[:, word] = np.arange(30, 50), 1
        scores = held_out_scores(topics, X, transform=transform)
        assert scores.new_word == pytest.approx(np.log(p / 0.6))
        assert scores.new_word_gain == pytest.approx(np.log(3 * p / 0.6))


def test_without_new_words_their_score_is_nan():
    scores = held_out_scores(TABLE, [[50, 50, 50]])
    assert np.isnan(scores.new_word)
    assert scores.token == pytest.approx(-np.log(3))
