"""Perplexities: the split of documents, known values, refusals."""

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from dplda import GibbsLDA
from dplda.core._fold_in import fold_in
from dplda.core._perplexity import split_documents
from dplda.datasets import make_topic_corpus
from dplda.metrics import held_out_perplexity, unigram_perplexity

N_WORDS = 50
counts = st.one_of(
    st.integers(0, 3), st.integers(0, 200), st.sampled_from([62, 63, 64, 10**6])
)
count_matrices = arrays.arrays(
    np.int64, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=counts
)


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, N_WORDS, 4, doc_length=60, random_state=1)


@settings(deadline=None)
@given(count_matrices)
def test_halves_add_up_and_more_than_62_tokens_are_halved(X):
    observed, held_out = split_documents(X)
    assert_array_equal((observed + held_out).toarray(), X)
    for part in (observed, held_out):
        assert part.dtype == X.dtype
        assert (part.data > 0).all()
    assert (np.abs(2 * observed.toarray() - X)[X > 62] <= 1).all()


@settings(deadline=None)
@given(count_matrices, st.randoms())
def test_the_split_of_a_row_depends_on_that_row_only(X, random):
    whole = split_documents(X)[0].toarray()
    order = list(range(len(X)))
    random.shuffle(order)
    assert_array_equal(split_documents(X[order])[0].toarray(), whole[order])
    assert_array_equal(split_documents(X[-1:])[0].toarray(), whole[-1:])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 62])
def test_tokens_are_tossed_like_fair_coins(count):
    """The observed part of a count is binomial; documents differ in their words."""
    rng = np.random.default_rng(count)
    X = sp.csr_array(count * (rng.random((2000, 20)) < 0.5))
    observed = split_documents(X)[0].toarray()[X.toarray() > 0]
    law = stats.binom.pmf(np.arange(count + 1), count, 0.5)
    assert reference.chi_square(np.bincount(observed, minlength=count + 1), law) > 1e-6


@pytest.mark.parametrize("completion", [True, False])
def test_perplexity_by_hand(corpus, completion):
    X, phi = corpus.data, corpus.components
    observed, scored = split_documents(X) if completion else (X, X)
    theta = fold_in(observed, phi, 0.3).astype(float)
    expected = (scored.toarray() * np.log(theta @ phi)).sum() / scored.sum()
    perplexity = held_out_perplexity(phi, X, doc_topic_prior=0.3, completion=completion)
    assert_allclose(perplexity, np.exp(-expected), rtol=1e-5)


def test_training_helps_and_completion_is_the_stricter_number(corpus):
    train, test = corpus.data[:200], corpus.data[200:]
    table = GibbsLDA(4, max_iter=300, random_state=0).fit(train).components_
    seen = held_out_perplexity(table, test, completion=False)
    strict = held_out_perplexity(table, test)
    true = held_out_perplexity(corpus.components, test)
    assert seen < strict < unigram_perplexity(train, test) < N_WORDS
    assert 0.98 * true < strict < 1.1 * true


def test_unigram_perplexity_by_hand(corpus):
    train, test = corpus.data[:200], corpus.data[200:]
    frequency = train.toarray().sum(axis=0) + 0.5
    scored = split_documents(test)[1].toarray()
    expected = -(scored @ np.log(frequency / frequency.sum())).sum() / scored.sum()
    for X in (train, train.toarray()):
        result = unigram_perplexity(X, test, topic_word_prior=0.5)
        assert_allclose(result, np.exp(expected), rtol=1e-6)


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
