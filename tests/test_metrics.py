"""Perplexities: the split of documents, known values, refusals."""

import numpy as np
import pytest

from dplda import GibbsLDA
from dplda.datasets import make_topic_corpus
from dplda.metrics import held_out_perplexity, unigram_perplexity

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


def test_a_probability_that_underflows_makes_perplexity_infinite():
    seen = np.array([[2**64 - 1, 0, 0]], dtype=np.uint64)
    assert unigram_perplexity(seen, [[1, 2, 0]], topic_word_prior=5e-324) == np.inf
