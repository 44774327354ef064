"""The log-likelihood of words that the observed half of a document lacks."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from dplda.core._perplexity import split_documents
from dplda.datasets import make_topic_corpus

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
new_words = pytest.importorskip("new_words", reason="the benchmarks are not there")

TOPICS = np.array([[30, 30, 30, 30, 0, 0], [0, 0, 0, 0, 10, 10]]) + 1e-9


def test_only_words_count_that_the_observed_half_lacks():
    observed = sp.csr_array([[2, 0, 1, 0], [0, 0, 0, 3]])
    held_out = sp.csr_array([[1, 4, 0, 2], [0, 1, 0, 5]])
    found = new_words.new_words(observed, held_out)
    assert_array_equal(found.toarray(), [[0, 4, 0, 2], [0, 1, 0, 0]])
    assert found.nnz == 3


def test_two_topics_by_hand():
    """Documents of one topic: a new word has 1/4 or 1/2, and 30/140 or 10/140 overall.

    Repeated words must not count: their tokens would change the weights of the mean.
    """
    X = np.array([[1, 1, 1, 1, 0, 0]] * 8 + [[0, 0, 0, 0, 1, 1]] * 8)
    X = X * np.arange(1, 17)[:, None]  # so that halves differ
    observed, held_out = (half.toarray() for half in split_documents(sp.csr_array(X)))
    new = np.where(observed > 0, 0, held_out)
    of_first, of_second = new[:, :4].sum(), new[:, 4:].sum()
    assert 0 < of_first + of_second < held_out.sum()
    # a document whose observed half is empty has the topics' mean
    assert observed.any(axis=1)[new.any(axis=1)].all()
    gains = of_first * np.log((1 / 4) / (30 / 140)) + of_second * np.log(
        (1 / 2) / (10 / 140)
    )
    gain = new_words.new_word_gain(TOPICS, X, doc_topic_prior=1e-6)
    assert gain == pytest.approx(gains / (of_first + of_second), rel=1e-4)


def test_one_topic_gains_nothing_and_the_true_topics_do():
    corpus = make_topic_corpus(200, 600, 4, doc_length=40, random_state=0)
    one = new_words.new_word_gain(np.ones((1, 600)), corpus.data)
    assert one == pytest.approx(0, abs=1e-6)
    true = 1000 * corpus.components + 1e-3
    assert new_words.new_word_gain(true, corpus.data) > 0.2
    mixed = np.roll(true, 300, axis=1)  # the topics of other words
    assert new_words.new_word_gain(mixed, corpus.data) < 0


def test_documents_of_one_word_have_none_to_score():
    with pytest.raises(ValueError, match="no word to score that is new"):
        new_words.new_word_gain(TOPICS, [[62, 0, 0, 0, 0, 0]])
