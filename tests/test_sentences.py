"""Documents with sentence boundaries, and the vectorizer that makes them of texts."""

import itertools
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.pipeline import make_pipeline

from dplda import GibbsLDA
from dplda.federated import IFTMParty, SentenceCorpus, SentenceVectorizer
from dplda.metrics import held_out_perplexity
from dplda.privacy import PrivateDataWarning

WORDS = ["cat", "dog", "sat", "chased", "stocks", "bank", "bonds", "rose", "fell"]
TEXTS = [
    "The cat sat near the dog. The dog sat!\nStocks",
    "Stocks fell as the bank sold bonds. Nothing here.",
    "",
    "The dog chased a cat? Bonds rose and the bank fell.",
]
DOCUMENTS = [[[0, 2, 1], [1, 2], [4]], [[4, 8, 5, 6]], [], [[1, 3, 0], [6, 7, 5, 8]]]


def make_corpus():
    return SentenceCorpus.from_lists(DOCUMENTS, len(WORDS))


def lists_of(corpus):
    sentences = np.split(corpus.word, corpus.sentence_ptr[1:-1]) if len(corpus.word) else []
    ptr = corpus.document_ptr
    return [[s.tolist() for s in sentences[a:b]] for a, b in itertools.pairwise(ptr)]


def test_texts_become_sentences():
    corpus = SentenceVectorizer(WORDS).fit_transform(TEXTS)
    assert lists_of(corpus) == DOCUMENTS
    counts = CountVectorizer(vocabulary=WORDS).transform(TEXTS).toarray()
    assert_array_equal(corpus.counts().toarray(), counts)
    assert_array_equal(corpus.sentence_counts().sum(axis=0), counts.sum(axis=0))


def test_counts_leave_the_boundaries_alone():
    corpus = SentenceCorpus.from_lists([[[1, 1, 1], [0, 0]]], 2)
    for _ in range(2):
        assert_array_equal(corpus.sentence_counts().toarray(), [[0, 3], [2, 0]])
        assert_array_equal(corpus.counts().toarray(), [[2, 3]])
    assert_array_equal(corpus.sentence_ptr, [0, 3, 5])


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (slice(1, 4), [1, 2, 3]), (slice(None, None, -1), [3, 2, 1, 0]), ([3, 0, 0], [3, 0, 0]),
        (np.array([True, False, True, False]), [0, 2]), ([False, True, False, True], [1, 3]),
        (-1, [3]), (np.int64(1), [1]), ([], []), (np.array([], dtype=int), []),
        ((np.array([1, 0]), Ellipsis), [1, 0]), ((slice(0, 2), slice(None)), [0, 1]),
    ],
    ids=str,
)  # fmt: skip
def test_rows(key, rows):
    part = make_corpus()[key]
    assert lists_of(part) == [DOCUMENTS[row] for row in rows]
    assert part.shape == (len(rows), 9) == (len(part), part.n_words)
    assert_array_equal(part.counts().toarray(), make_corpus().counts().toarray()[rows])


@pytest.mark.parametrize("key", [7, [0, 9], "a", (0, 1), np.array([True])], ids=str)
def test_rows_that_are_not_there(key):
    with pytest.raises(IndexError):
        make_corpus()[key]


def test_split_and_keep():
    corpus = make_corpus()
    assert lists_of(corpus._split())[0] == [[0], [2], [1], [1], [2], [4]]
    assert corpus._split().counts().toarray().tolist() == corpus.counts().toarray().tolist()
    keep = np.ones(len(corpus.word), bool)
    keep[[0, 3, 4]] = False
    assert lists_of(corpus._keep(keep)) == [[[2, 1], [4]], *DOCUMENTS[1:]]
    assert lists_of(corpus._keep(~keep)) == [[[0], [1, 2]], [], [], []]
    assert lists_of(corpus._keep(np.zeros_like(keep))) == [[], [], [], []]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0, 3], [0, 1], 5), "sentence_ptr .* number of words, 2"),
        (([0, 1], [1, 2], [0, 1], 5), "sentence_ptr must begin with 0"),
        (([0, 1], [0, 2, 1, 2], [0, 3], 5), "sentence_ptr .* never decrease"),
        (([0, 1], [0, 0, 2], [0, 2], 5), "a sentence without words"),
        (([0, 1], [0, 1, 2], [0, 1], 5), "document_ptr .* number of sentences, 2"),
        (([0, 1], [], [0], 5), "sentence_ptr must begin"),
        (([0, 5], [0, 2], [0, 1], 5), "columns from 0 to 4"),
        (([0, -1], [0, 2], [0, 1], 5), "columns from 0 to 4"),
        (([0.5], [0, 1], [0, 1], 5), "word must be a one-dimensional array of integers"),
        (([[0]], [0, 1], [0, 1], 5), "word must be a one-dimensional array of integers"),
        ((["cat"], [0, 1], [0, 1], 5), "word must be a one-dimensional array of integers"),
    ],
)
def test_bad_boundaries(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        SentenceCorpus(*arguments)
    assert "cat" not in str(error.value)


@pytest.mark.parametrize(
    ("parameters", "texts", "message"),
    [
        ({"vocabulary": None}, TEXTS, "vocabulary must be a list of words"),
        ({"vocabulary": "cat dog"}, TEXTS, "vocabulary must be a list of words"),
        ({}, "a secret", "a single text"),
        ({}, [b"a secret"], "must be texts"),
    ],
)
def test_bad_texts_and_parameters(parameters, texts, message):
    vectorizer = SentenceVectorizer(WORDS).set_params(**parameters)
    with pytest.raises(ValueError, match=message) as error:
        vectorizer.fit(texts).transform(texts)
    assert not re.search("secret|stocks", str(error.value))


def test_pipelines_and_searches():
    texts = TEXTS * 12
    y = [0, 1, 0, 1] * 12
    pipeline = make_pipeline(
        SentenceVectorizer(WORDS),
        IFTMParty(2, model="sentence_lda", token_epsilon=6.0, max_iter=4),
        LogisticRegression(),
    )
    grid = {"iftmparty__token_epsilon": [4.0, 8.0]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2).fit(texts, y)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert_array_equal(again.predict_proba(texts), search.predict_proba(texts))


def test_a_corpus_is_split_like_a_matrix():
    corpus = SentenceVectorizer(WORDS).fit_transform(TEXTS * 5)
    party = IFTMParty(2, model="sentence_lda", max_iter=3)
    search = GridSearchCV(party, {"token_epsilon": [6.0, 8.0]}, cv=KFold(2)).fit(corpus)
    assert np.isfinite(search.best_score_)
    train, test = train_test_split(corpus, test_size=0.25, random_state=0)
    assert (len(train), len(test)) == (15, 5)


def test_others_take_it_as_counts():
    corpus = SentenceVectorizer(WORDS).fit_transform(TEXTS * 5)
    model = GibbsLDA(2, max_iter=3, random_state=0).fit(corpus)
    same = GibbsLDA(2, max_iter=3, random_state=0).fit(corpus.counts())
    assert_array_equal(model.components_, same.components_)
    assert_array_equal(model.transform(corpus), same.transform(corpus.counts()))
    table = model.components_
    assert held_out_perplexity(table, corpus) == held_out_perplexity(table, corpus.counts())


def test_a_vocabulary_that_misses_most_words_is_told_to_the_person_at_the_keyboard():
    vectorizer = SentenceVectorizer(["cat"]).fit()
    with pytest.warns(PrivateDataWarning, match=r"covers 17% .* 1 of 2 texts .* not for release"):
        vectorizer.transform(["A cat saw. It ran off", "Dog"])


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"heart": ["pain"]}), {"heart": "pain"}, None, [],
        sp.eye_array(2, format="csr"),
    ],
    ids=range(5),
)  # fmt: skip
def test_what_is_no_column_of_texts_is_refused(given):
    """The names of a table's columns, or the keys of a mapping, would be read as the texts."""
    with pytest.raises(ValueError, match="texts must be a list or a column of texts, got"):
        SentenceVectorizer(vocabulary=["heart", "pain"]).fit_transform(given)
