"""Private SVI: E-step, averages, minibatches, bound, account."""

import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dplda import PrivateSVILDA
from dplda.datasets import make_topic_corpus
from dplda.privacy import SeededNoiseWarning

K = 4
MADE = make_topic_corpus(400, 50, K, doc_length=40, random_state=0)


@pytest.fixture(scope="module")
def corpus():
    return MADE.data


def seeded(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        return model.set_params(random_state=0).fit(X)


def test_without_noise_later_calls_may_bring_other_words():
    made = make_topic_corpus(400, 20, 2, doc_length=40, random_state=0).data
    other = sp.csr_array((400, 20))
    first, later = sp.hstack([made, other], "csr"), sp.hstack([other, made], "csr")
    model = PrivateSVILDA(K, epsilon=math.inf, subsampling_ratio=1, random_state=0)
    model.partial_fit(first)
    for _ in range(30):
        model.partial_fit(later)
    later_mass = model.components_[:, 20:].sum() / model.components_.sum()
    assert later_mass > 0.9
    assert model.perplexity(later) < 20


def test_nothing_released_depends_on_the_number_of_documents(corpus):
    """Empty documents change n, and each minibatch size, but no contribution."""
    padded = sp.vstack([corpus, sp.csr_array((100, corpus.shape[1]))], format="csr")
    for ratio in (0.3, 1.0):
        model = PrivateSVILDA(K, epsilon=3.0, subsampling_ratio=ratio, max_iter=4)
        one = seeded(model, corpus).components_
        np.testing.assert_array_equal(one, seeded(model, padded).components_)


def test_the_average_is_signed(corpus):
    model = seeded(PrivateSVILDA(K, epsilon=0.5, max_iter=10), corpus)
    assert (model._released.average < 0).any()
    assert (model.components_ > 0).all()


@pytest.mark.parametrize("user_ids", [None, [1, 1]])
def test_counts_whose_sum_is_no_float_are_documents(user_ids):
    X = np.full((2, 2), 1e308)
    model = PrivateSVILDA(2, epsilon=1.0, max_iter=1)
    assert np.isfinite(model.fit(X, user_ids=user_ids).components_).all()
