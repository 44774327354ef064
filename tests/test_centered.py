"""The steps of the centered release, one by one, and the loop that they make."""

import math

import numpy as np
import pytest

from dplda import SubLDA
from dplda.datasets import make_topic_corpus

K = 5


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, 60, K, doc_length=40, random_state=0).data


def test_without_noise_and_sampling_the_last_round_stands_alone(corpus):
    """There is nothing to average out."""
    corpus = corpus[:190]  # none of so few is kept out to test the topics
    model = SubLDA(K, epsilon=math.inf, max_iter=4, random_state=0).fit(corpus)
    totals = np.maximum(np.asarray(corpus.sum(axis=0), float).ravel(), 1)
    np.testing.assert_allclose(model._released.average.sum(axis=1), totals, atol=1.5)
    assert model._released.variance == 0
    half = SubLDA(
        K, epsilon=math.inf, max_iter=4, subsampling_ratio=0.5, random_state=0
    )
    assert np.abs(half.fit(corpus)._released.average.sum(axis=1) - totals).max() > 5
