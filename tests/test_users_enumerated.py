"""Enumerations of users: numbers of ids, and the documents of a unit together."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from dplda.datasets import make_topic_corpus
from dplda.document._contributions import Documents
from dplda.leaf._users import number_users
from dplda.privacy import (
    limit_rows,
    user_part,
)

N_DOCS = 90


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(N_DOCS, 40, 4, random_state=0).data


@pytest.fixture(scope="module")
def ids():
    """Users with one to six documents, which are spread over the corpus."""
    return np.random.default_rng(0).integers(0, 40, N_DOCS) ** 2


def test_strings_and_integers_are_not_the_same_user():
    with pytest.raises(ValueError, match="type int and str"):
        number_users([1, "1"], 2)
    assert_array_equal(number_users([2**53, 2**53 + 1, 2**53], 3), [0, 1, 0])
    assert_array_equal(number_users(["a", "a\0", "A", "a"], 4), [0, 1, 2, 0])
    given = [7, -2, 7, 2**53 + 1, 2**53, -2]
    assert_array_equal(number_users(np.array(given), 6), number_users(given, 6))


def test_scale_and_rate_of_a_user_are_those_of_all_words_together(corpus, ids):
    users = number_users(ids, N_DOCS)
    weight = np.linspace(0.5, 2, 40)
    documents = Documents.from_counts(corpus, 4, None, users)
    added = np.array(
        [corpus.toarray()[users == u].sum(axis=0) for u in range(users.max() + 1)]
    )
    assert_array_equal(documents.unit_counts().toarray(), added)
    lengths = np.sqrt(added**2 @ weight**2)
    documents.rescale(weight, 60.0)
    assert_allclose(documents.scale * lengths, np.minimum(60, 5 * lengths), rtol=1e-6)


@pytest.mark.parametrize("n_copies", [2, 5])
def test_copies_have_the_word_totals_of_one_longer_document(n_copies, corpus):
    row = sp.csr_array(corpus[[3]])
    copies = Documents.from_counts(
        sp.csr_array(sp.vstack([row] * n_copies)), 4, None, np.zeros(n_copies, int)
    )
    longer = Documents.from_counts(n_copies * row, 4, None)
    sums = []
    for documents in (copies, longer):
        documents.rescale(np.ones(40), 6.0)
        total = documents.sum_words(None, weight=np.ones(40), norm=6.0, radius=5000)
        sums.append(total)
    assert_array_equal(*sums)
    assert 0.98 * 5000**2 < (sums[0] ** 2).sum() <= 5000**2


def test_members_are_the_documents_of_the_units_in_their_order(corpus, ids):
    users = number_users(ids, N_DOCS)
    documents = Documents.from_counts(corpus, 4, None, users)
    order = np.argsort(users, kind="stable")
    for units in ([], [0], [3, 1, 7], range(users.max() + 1)):
        rows = documents.rows_of(np.array(units, np.int64))
        assert_array_equal(
            users[order][rows], np.repeat(units, np.bincount(users)[list(units)])
        )
        assert_array_equal(np.unique(rows), np.sort(rows))
    alone = Documents.from_counts(corpus, 4, None)
    assert_array_equal(alone.rows_of(np.array([4, 2, 9])), [4, 2, 9])


def test_missing_ids_of_a_frame_are_refused():
    pandas = pytest.importorskip("pandas")
    for values in (["a", None], [1, None], pandas.array(["a", None], dtype="string")):
        with pytest.raises(ValueError, match="none may be missing"):
            number_users(pandas.Series(values), 2)
    with pytest.raises(ValueError, match="one-dimensional"):
        number_users(pandas.DataFrame({"user": [1, 2]}), 2)


@pytest.mark.parametrize("ids", [["a", "", "a"], ["a", " \t", "b"], ["", "", ""]])
def test_empty_ids_are_missing(ids):
    """A table read with keep_default_na=False has them in place of missing ids."""
    with pytest.raises(ValueError, match="user_ids must not be empty texts"):
        number_users(ids, 3)
    with pytest.raises(ValueError, match="user_ids must not be empty texts"):
        user_part(ids, 5)
    with pytest.raises(ValueError, match="owners must not be empty texts"):
        limit_rows([[own] for own in ids], max_rows=1)


SAME = [
    ("é", "e\u0301"),
    ("ann", "an\u200bn"),
    ("bob", "bob "),
    ("a\u0301\u200d", "á"),
    ("ann lee", "ann\u00a0 lee"),
]


@pytest.mark.parametrize("ids", SAME)
def test_ids_that_look_the_same_are_refused_and_are_one_user_of_a_part(ids):
    with pytest.raises(ValueError, match="ids that look the same") as error:
        number_users(list(ids), 2)
    assert not any(own in str(error.value) for own in ids)
    assert_array_equal(number_users([ids[1], "c", ids[1]], 3), [0, 1, 0])
    assert len(set(user_part(ids, 2**31).tolist())) == 1
    assert_array_equal(limit_rows([[own] for own in ids], max_rows=1), [0])
