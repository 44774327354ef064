"""iFTM's party to the letter sends exact counts; the sound party does not."""

import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from dplda.datasets import make_topic_corpus
from dplda.federated import LocalModel, vocabulary_hash
from dplda.published import PublishedIFTMParty, recover_counts

K, V, BETA = 3, 40, 0.01
leaks = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")
LITERAL = PublishedIFTMParty(K, published_epsilon=5.0, max_iter=4, random_state=0)


@pytest.fixture(scope="module")
def counts():
    return make_topic_corpus(80, V, K, doc_length=30, random_state=0).data.toarray()


def sent(party):
    vocabulary = vocabulary_hash([f"word{i}" for i in range(V)])
    return LocalModel.from_estimator(party, "north", 0, vocabulary).table


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("beta", [0.0, 0.01, 0.5])
def test_normalized_rows_give_their_counts_back(dtype, beta):
    rng = np.random.default_rng(0)
    for _ in range(20):
        # few tokens, and many
        table = rng.poisson(rng.choice([0.1, 2.0, 4000.0], (5, 300)))
        table[:, 0], table[:, 1] = 1, 0
        model = (table + beta) / (table + beta).sum(axis=1, keepdims=True)
        assert_array_equal(
            recover_counts(model.astype(dtype), topic_word_prior=beta), table
        )
        # the least entry alone, as a master would do it by hand
        least = np.where(model > 0, model, 1).min(axis=1, keepdims=True)
        weights = model.astype(dtype) * ((beta or 1) / least)
        assert_array_equal(np.rint(weights - beta), table)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_without_a_one_come_back_up_to_their_divisor(dtype):
    table = np.array([[6, 9, 15, 0], [4, 6, 8, 10], [7, 0, 11, 500]])
    model = (table / table.sum(axis=1, keepdims=True)).astype(dtype)
    divisor = np.gcd.reduce(table, axis=1)[:, None]
    assert_array_equal(recover_counts(model), table // divisor)
    smooth = table + 0.1  # beta tells the scale; a row without a zero too
    smooth = (smooth / smooth.sum(axis=1, keepdims=True)).astype(dtype)
    assert_array_equal(recover_counts(smooth, topic_word_prior=0.1), table)


@leaks
@pytest.mark.parametrize("epsilon", [0.5, 8.0, math.inf])
def test_the_sent_model_is_the_exact_counts(epsilon, counts):
    party = clone(LITERAL).set_params(published_epsilon=epsilon).fit(counts)
    recovered = recover_counts(sent(party), topic_word_prior=BETA)
    assert_allclose(recovered + BETA, party.components_, rtol=1e-12)
    assert_array_equal(recovered.sum(axis=0), counts.sum(axis=0))
    again = recover_counts(sent(party.refine(sent(party))), topic_word_prior=BETA)
    assert_array_equal(again.sum(axis=0), counts.sum(axis=0))


@leaks
def test_refine_and_pickle(counts):
    party = clone(LITERAL).fit(counts)
    assert party.n_iter_ == 4
    saved = pickle.dumps(party)
    copy = pickle.loads(saved)
    assert_array_equal(copy.components_, party.components_)
    kept = [value for value in vars(copy).values() if not isinstance(value, str)]
    assert max(map(np.size, kept)) < counts.sum() / 4  # nothing of the size of a corpus
    table = np.random.default_rng(0).random((5, V))
    with pytest.raises(ValueError, match="copies hold no documents"):
        copy.refine(table)
    party.refine(table)
    assert party.components_.shape == (5, V)
    assert party.n_iter_ == 8
    for bad in (table[:, 1:], -table, np.zeros((2, V))):
        with pytest.raises(ValueError, match="table must have 40 columns"):
            party.refine(bad)
