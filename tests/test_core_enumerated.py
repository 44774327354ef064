"""Enumerations of the core: validated counts, shuffles, splits, by laws and by hand."""

import itertools
import math

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import BaseEstimator

from dplda.core import _corpus as module
from dplda.core._corpus import Corpus, check_counts
from dplda.core._fold_in import fold_in
from dplda.core._perplexity import check_inputs, split_documents
from dplda.datasets import make_topic_corpus
from dplda.kernels import _release
from dplda.metrics import held_out_perplexity, unigram_perplexity
from dplda.privacy.mechanisms import Streams, sum_clipped
from dplda.reading._noisy_sum import release_sum

# hypothesis also draws corpora without words
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")


COUNTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0]])


small_counts = arrays.arrays(
    np.int64,
    st.tuples(st.integers(1, 12), st.integers(1, 6)),
    elements=st.integers(0, 4),
)


class Counter(BaseEstimator):
    """An estimator, for its name and its width."""


def checked(X, **options):
    return check_counts(Counter(), X, **{"reset": True, **options})


def test_stored_zeros_duplicates_and_order_do_not_matter():
    data, indices = np.array([1.0, 0, 1, 1, 3]), np.array([3, 2, 1, 1, 0])
    X = sp.csr_array((data, indices, np.array([0, 4, 4, 5])), (3, 4))
    result = checked(X)
    assert_array_equal(result.toarray(), COUNTS)
    assert result.nnz == 3
    assert result.has_canonical_format


@pytest.mark.parametrize("form", ["csr", "coo"])
def test_duplicates_of_a_row_are_added_in_the_same_order_whatever_the_other_rows_are(
    form,
):
    """Sorting changes duplicates' order; SciPy sorts if any row is not sorted."""
    rng = np.random.default_rng(0)
    words, weights = np.sort(rng.integers(0, 5, 60)), rng.random(60)
    rows = []
    for other in ([0, 1], [1, 0]):
        cells = (np.r_[weights, 1.0, 1.0], np.r_[words, other], np.array([0, 60, 62]))
        X = sp.csr_array(cells, (2, 5))
        if form == "coo":
            X = sp.coo_array((X.data, (np.repeat([0, 1], [60, 2]), X.indices)), X.shape)
        rows.append(
            (checked(X, whole=False)[[0]].toarray(), sum_clipped(X, 1.0, 2**30))
        )
    assert_array_equal(rows[0][0], rows[1][0])
    assert_array_equal(rows[0][1], rows[1][1])


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix])
def test_flags_that_are_out_of_date_are_not_believed(form):
    """SciPy keeps "has no duplicates" in the matrix, blind to changes of its arrays."""
    X = form((np.array([1.0, 2, 3]), np.array([0, 1, 2]), np.array([0, 3])), (1, 4))
    assert X.has_canonical_format
    # now unsorted, with a word twice: each would be clipped by itself
    X.indices[:] = [2, 0, 2]
    assert X.has_canonical_format
    result = checked(X)
    assert_array_equal(result.indices, [0, 2])
    assert_array_equal(result.data, [2, 4])


@pytest.mark.parametrize("read", ["transform", "score"])
def test_weights_do_not_read_the_largest_count_of_another_row(read):
    """Integers of a byte leave float32 as it is in NumPy, and wider ones do not."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.05, 0.2, (500, 1)).astype(np.float32)
    frame = pd.DataFrame(scales * rng.integers(1, 9, (500, 6)).astype(np.float32))
    frame.columns = [*"abcde", "dtype"]
    rows = []
    for largest in (100, 10**6):
        frame["n"] = np.append(np.zeros(499, int), largest)
        frame["n"] = pd.to_numeric(frame["n"], downcast="integer")
        if read == "transform":
            X = checked(frame, whole=False)
        else:
            X = check_inputs(np.ones((2, 7)), frame)[1][0]
        rows.append(X.toarray()[:499])
    assert_array_equal(*rows)


@settings(deadline=None)
@given(small_counts, st.integers(1, 40))
def test_blocks_are_whole_documents_in_order(X, size):
    corpus = Corpus.from_counts(checked(X))
    blocks = corpus.blocks(size)
    longest = int(X.sum(axis=1).max())
    if corpus.n_tokens:
        assert sum(len(block.doc_ptr) - 1 for block in blocks) == len(X)
        assert_array_equal(
            np.concatenate([block.word for block in blocks]), corpus.word
        )
        lengths = np.concatenate([np.diff(block.doc_ptr) for block in blocks])
        assert_array_equal(lengths, X.sum(axis=1))
    for block in blocks:
        assert block.doc_ptr[0] == 0
        assert block.doc_ptr[-1] == block.n_tokens < size + longest
        assert block.n_words == corpus.n_words


def accepted(n, j):
    """The first and last of the random words that choose j below n, exactly."""
    rejected = 2**64 % n
    return -(-((j << 64) + rejected) // n), (((j + 1) << 64) - 1) // n


def shuffled(word, bits, spare=()):
    word, state = np.array(word, np.int32), np.zeros(2, np.int64)
    doc_ptr = np.array([0, len(word)])
    bits, spare = (np.array(x, np.uint64) for x in (bits, spare))
    used = _release.shuffle(word, doc_ptr, bits, spare, state)
    return word.tolist(), used, state.tolist()


def test_all_orders_of_a_document_come_from_one_choice_each():
    """With exactly uniform choices, below, the order is exactly uniform."""
    orders = set()
    for choices in itertools.product(range(1), range(2), range(3), range(4)):
        bits = [accepted(i + 1, j)[0] for i, j in enumerate(choices)]
        order, used, state = shuffled([0, 1, 2, 3], bits)
        assert used == 0
        assert state == [1, 0]
        orders.add(tuple(order))
    assert orders == set(itertools.permutations(range(4)))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 8, 1000])
def test_each_place_is_chosen_by_equally_many_words(n):
    """All 2**64 words, by those at which a choice begins and ends."""
    words = list(range(n))
    places = range(n) if n < 10 else (0, 1, 499, 999)
    sizes = {last - first for first, last in (accepted(n, j) for j in places)}
    assert len(sizes) == 1
    # the tokens before stay where they are
    stay = [accepted(i + 1, i)[0] for i in range(n - 1)]
    for j in places:
        expected = words.copy()
        expected[j], expected[-1] = words[-1], words[j]
        for word in accepted(n, j):
            assert shuffled(words, [*stay, word]) == (expected, 0, [1, 0])
        if 2**64 % n:  # then 0 is rejected, also as a spare word
            used = shuffled(words, [*stay, 0], [0, accepted(n, j)[1], 5])
            assert used == (expected, 2, [1, 0])
            # needs more words
            assert shuffled(words, [*stay, 0], [0]) == (words, 1, [0, n - 1])


def test_blocks_and_threads_do_not_change_the_order(monkeypatch):
    rng = np.random.default_rng(0)
    corpus = Corpus.from_counts(checked(rng.integers(0, 3, (60, 40))))
    one, two = (
        corpus.shuffled(Streams.from_random_state(0), 3, n_jobs) for n_jobs in (1, 2)
    )
    assert_array_equal(one.word, two.word)
    assert not np.array_equal(one.word, corpus.word)
    for a, b in itertools.pairwise(corpus.doc_ptr):
        assert_array_equal(np.sort(one.word[a:b]), corpus.word[a:b])
    monkeypatch.setattr(module, "PIECE", 100)
    many = corpus.shuffled(Streams.from_random_state(0), 3, 2)
    first = corpus.blocks(100)[0].n_tokens
    # the first block has the same stream
    assert_array_equal(many.word[:first], one.word[:first])
    assert not np.array_equal(many.word, one.word)
    other = corpus.shuffled(Streams.from_random_state(0), 4)
    assert not np.array_equal(other.word, one.word)


N_WORDS = 50


counts = st.one_of(
    st.integers(0, 3), st.integers(0, 200), st.sampled_from([62, 63, 64, 10**6])
)


count_matrices = arrays.arrays(
    np.int64, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=counts
)


@pytest.fixture(scope="module")
def four_topics():
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
def test_perplexity_by_hand(four_topics, completion):
    X, phi = four_topics.data, four_topics.components
    observed, scored = split_documents(X) if completion else (X, X)
    theta = fold_in(observed, phi, 0.3).astype(float)
    expected = (scored.toarray() * np.log(theta @ phi)).sum() / scored.sum()
    perplexity = held_out_perplexity(phi, X, doc_topic_prior=0.3, completion=completion)
    assert_allclose(perplexity, np.exp(-expected), rtol=1e-5)


def test_unigram_perplexity_by_hand(four_topics):
    train, test = four_topics.data[:200], four_topics.data[200:]
    frequency = train.toarray().sum(axis=0) + 0.5
    scored = split_documents(test)[1].toarray()
    expected = -(scored @ np.log(frequency / frequency.sum())).sum() / scored.sum()
    for X in (train, train.toarray()):
        result = unigram_perplexity(X, test, topic_word_prior=0.5)
        assert_allclose(result, np.exp(expected), rtol=1e-6)


ARRAYS = ("data", "indices", "indptr")


ARRAY_TYPES = [sp.csr_array, sp.csr_matrix]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ARRAY_TYPES)
def test_counts_in_order_are_not_copied(corpus, form, dtype, whole):
    X = form(corpus, dtype=dtype, copy=True)
    for name in ARRAYS:
        getattr(X, name).flags.writeable = False
    found = check_counts(BaseEstimator(), X, reset=True, whole=whole)
    assert all(
        np.shares_memory(getattr(found, name), getattr(X, name)) for name in ARRAYS
    )


def test_rows_that_are_too_long_are_clipped():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [0.0, 1e300]])
    total, _ = release_sum(
        lambda: rows,
        name="sum",
        label="sum",
        norm=2.0,
        epsilon=math.inf,
        delta=1e-6,
        unit="document",
        user_ids=None,
        ledger=None,
        random_state=None,
    )
    assert_allclose(total, [1.2 + 0.3, 1.6 + 0.4], rtol=1e-6)
