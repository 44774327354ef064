"""Counts on their way in: what is refused, what is repaired, and the token stream."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator

from dplda import GibbsLDA
from dplda.core import _corpus as module
from dplda.core._corpus import MAX_TOKENS, Corpus, check_counts
from dplda.core._perplexity import check_inputs
from dplda.kernels import _release
from dplda.privacy import PrivateDataWarning
from dplda.privacy.mechanisms import Streams, sum_clipped

# hypothesis also draws corpora without words
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")

COUNTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0]])
count_matrices = arrays.arrays(
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


def test_numbers_that_are_not_whole_are_rounded_with_a_warning():
    X = np.array([[0.4, 1.6, 2.0]])
    with pytest.warns(UserWarning, match="Counter takes word counts"):
        result = checked(X)
    assert_array_equal(result.toarray(), [[0, 2, 2]])
    assert result.nnz == 2
    assert X[0, 0] == 0.4


@pytest.mark.parametrize("scale", [0.01, 1e-300, 1 / 31])
def test_a_matrix_that_rounding_would_empty_is_refused(scale):
    with pytest.raises(
        ValueError, match="nearly all numbers of X would be rounded to 0"
    ):
        checked(scale * COUNTS)


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


@pytest.mark.parametrize(
    "X", [np.zeros((5, 3)), np.eye(5, 3)[[0, 1, 3, 4, 3]]], ids=["all", "most"]
)
def test_rows_without_words_are_told_to_the_person_at_the_keyboard(X):
    with pytest.warns(
        PrivateDataWarning, match=r"of 5 rows of X hold no word.*not for release"
    ):
        checked(X)


NOT_MATRICES = {
    "list of strings": (
        lambda: ["a b", "c"],
        r"got text;.*CountVectorizer\(vocabulary",
    ),
    "tokens": (lambda: [["a", "b"], ["c"]], "got list;.*analyzer=list"),
    "as many tokens": (lambda: [["a", "b"], ["c", "d"]], "got text;.*analyzer=list"),
    "gensim": (lambda: [[], [(0, 2), (1, 1)], [(3, 1)]], "got list;.*corpus2csc"),
    "as many pairs": (lambda: [[(0, 2)], [(3, 1)]], "got 3 dimension"),
    "dict": (lambda: {"a": 1}, "got dict;.*DictVectorizer"),
    "dicts": (lambda: [{"a": 1}, {}], "got list;.*DictVectorizer"),
    "iterator": (lambda: iter(["a"]), "got list_iterator;"),
    "none": (lambda: None, "got 0 dimension"),
    "one dimension": (lambda: COUNTS[0], r"got 1 dimension.*X\.reshape\(1, -1\)"),
    "ragged rows": (lambda: [[1, 2], [3]], "got list;"),
    "dates": (lambda: np.array([["2020-01-01"]], "M8[D]"), "dates or times"),
    "bytes": (lambda: b"abc", "got text;"),
    "path": (
        lambda: Path("corpus"),
        r"CountVectorizer.*CountShards\(folder\).*dplda fit",
    ),
    "a model": (lambda: GibbsLDA(2, max_iter=1).fit(COUNTS), "got GibbsLDA"),
}


@pytest.mark.parametrize("name", NOT_MATRICES)
def test_what_is_no_matrix_is_named_with_what_to_do(name):
    make, message = NOT_MATRICES[name]
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        checked(make())
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@settings(deadline=None)
@given(count_matrices, st.integers(1, 40))
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


@pytest.mark.parametrize("counts", [[MAX_TOKENS, 1], [1e300, 0], [2.0**62, 2.0**62]])
def test_too_many_tokens_are_refused_without_telling_how_many(counts):
    with pytest.raises(ValueError, match=f"at most {MAX_TOKENS} tokens") as caught:
        Corpus.from_counts(checked([counts]))
    assert str(int(sum(counts))) not in str(caught.value)


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
    monkeypatch.setattr(module, "BLOCK_TOKENS", 100)
    many = corpus.shuffled(Streams.from_random_state(0), 3, 2)
    first = corpus.blocks(100)[0].n_tokens
    # the first block has the same stream
    assert_array_equal(many.word[:first], one.word[:first])
    assert not np.array_equal(many.word, one.word)
    other = corpus.shuffled(Streams.from_random_state(0), 4)
    assert not np.array_equal(other.word, one.word)


def test_a_dictionary_of_keys_is_a_sparse_matrix():
    assert_array_equal(checked(sp.dok_matrix(COUNTS)).toarray(), COUNTS)
    X = sp.lil_array(COUNTS)
    X.data[0] = [1] * 100_000  # SciPy would write beyond the end of an array
    with pytest.raises(
        ValueError, match=r"\(lil\) whose index arrays do not fit its shape"
    ):
        checked(X)
    X = sp.dok_array(COUNTS)
    assert_array_equal(checked(X).toarray(), COUNTS)
    X._dict[0, 4] = 1  # outside of the matrix
    with pytest.raises(
        ValueError, match=r"\(dok\) whose index arrays do not fit its shape"
    ):
        checked(X)
    with pytest.raises(ValueError, match="Complex data not supported"):
        checked(sp.dok_array(COUNTS.astype(complex)))


def test_a_model_in_the_place_of_a_table_is_named():
    model = GibbsLDA(2, max_iter=1).fit(COUNTS)
    with pytest.raises(ValueError, match="got GibbsLDA; pass components_ of the model"):
        module.check_table(model, "components")
    with pytest.raises(ValueError, match=r"got ndarray of shape \(2,\)$"):
        module.check_table(np.ones(2), "components")
