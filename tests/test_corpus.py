"""Counts on their way in: what is refused, what is repaired, and the token stream."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from dplda import GibbsLDA
from dplda.metrics import held_out_perplexity
from dplda.privacy import PrivateDataWarning

# hypothesis also draws corpora without words
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")

COUNTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0]])


def fitted(X):
    return GibbsLDA(2, max_iter=3, random_state=0).fit(X)


def test_numbers_that_are_not_whole_are_rounded_with_a_warning():
    X = np.array([[0.4, 1.6, 2.0]])
    with pytest.warns(UserWarning, match="GibbsLDA expects word counts"):
        rounded = fitted(X)
    assert_array_equal(rounded.components_, fitted([[0, 2, 2]]).components_)
    assert X[0, 0] == 0.4


@pytest.mark.parametrize("scale", [0.01, 1e-300, 1 / 31])
def test_a_matrix_that_rounding_would_empty_is_refused(scale):
    with pytest.raises(
        ValueError, match="nearly all numbers of X would be rounded to 0"
    ):
        fitted(scale * COUNTS)


@pytest.mark.parametrize(
    "X", [np.zeros((5, 3)), np.eye(5, 3)[[0, 1, 3, 4, 3]]], ids=["all", "most"]
)
def test_rows_without_words_are_told_to_the_person_at_the_keyboard(X):
    with pytest.warns(
        PrivateDataWarning, match=r"of 5 rows of X hold no word.*not for release"
    ):
        fitted(X)


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
        fitted(make())
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("counts", [[2**31 - 1, 1], [1e300, 0], [2.0**62, 2.0**62]])
def test_too_many_tokens_are_refused_without_telling_how_many(counts):
    with pytest.raises(ValueError, match=f"at most {2**31 - 1} tokens") as caught:
        fitted([counts])
    assert str(int(sum(counts))) not in str(caught.value)


def test_a_dictionary_of_keys_is_a_sparse_matrix():
    expected = fitted(COUNTS).components_
    assert_array_equal(fitted(sp.dok_matrix(COUNTS)).components_, expected)
    X = sp.lil_array(COUNTS)
    X.data[0] = [1] * 100_000  # SciPy would write beyond the end of an array
    with pytest.raises(
        ValueError, match=r"\(lil\) whose index arrays do not fit its shape"
    ):
        fitted(X)
    X = sp.dok_array(COUNTS)
    assert_array_equal(fitted(X).components_, expected)
    X.setdefault((0, 4), 1)  # outside of the matrix
    with pytest.raises(
        ValueError, match=r"\(dok\) whose index arrays do not fit its shape"
    ):
        fitted(X)
    with pytest.raises(ValueError, match="Complex data not supported"):
        fitted(sp.dok_array(COUNTS.astype(complex)))


def test_a_model_in_the_place_of_a_table_is_named():
    model = GibbsLDA(2, max_iter=1).fit(COUNTS)
    with pytest.raises(ValueError, match="got GibbsLDA; pass components_ of the model"):
        held_out_perplexity(model, COUNTS)
    with pytest.raises(ValueError, match=r"got ndarray of shape \(2,\)$"):
        held_out_perplexity(np.ones(2), COUNTS)
