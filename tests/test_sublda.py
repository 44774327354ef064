"""Poisson samples, adaptive rates, and the account of SubLDA."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binomtest

import dplda.central._sublda as module
from dplda import SubLDA
from dplda.central._document_rounds import membership_threshold, poisson_sample
from dplda.central._sublda import frequent_share, frequent_words
from dplda.datasets import make_topic_corpus
from dplda.privacy import PoissonSampled, Repeated, epsilon_of
from dplda.privacy._streams import Streams

MADE = make_topic_corpus(400, 50, 4, doc_length=40, random_state=0)
TABLE = MADE.components.T * 1000 + 1e-3


@pytest.fixture(scope="module")
def corpus():
    return MADE.data


def test_poisson_sample_has_the_stated_rates():
    rates = np.repeat([0.03, 0.5, 0.97], 20000)
    streams = Streams.from_random_state(0)
    rows = poisson_sample(rates, 1.0, streams, 0)
    for j, rate in enumerate([0.03, 0.5, 0.97]):
        n = ((rows >= 20000 * j) & (rows < 20000 * (j + 1))).sum()
        assert binomtest(int(n), 20000, rate).pvalue > 1e-6
    again = poisson_sample(rates, 1.0, streams, 1)
    both = np.intersect1d(rows, again)
    assert binomtest(len(both), 60000, np.square(rates).mean()).pvalue > 1e-6


def test_poisson_sample_at_the_ends():
    streams = Streams.from_random_state(0)
    assert len(poisson_sample(np.ones(1000), 1.0, streams, 0)) == 1000
    assert len(poisson_sample(np.full(1000, 1e-19), 1.0, streams, 0)) == 0
    assert len(poisson_sample(np.full(1000, math.nextafter(1, 0)), 1.0, streams, 0)) == 1000


def test_the_rate_charged_is_not_below_the_rate_drawn():
    rates = np.random.default_rng(0).uniform(0, 1, 1000)
    for rate, threshold in zip(rates, membership_threshold(rates)):
        assert 0 <= rate * 2**64 - int(threshold) < 1
    with pytest.raises(RuntimeError, match="higher than the rate"):
        poisson_sample(np.array([0.1, 0.3]), 0.2, Streams.from_random_state(0), 0)


def test_sampled_epsilon_is_that_of_sampled_gaussians(corpus):
    model = SubLDA(4, noise_multiplier=2.0, subsampling_ratio=0.1, max_iter=100, delta=1e-5)
    model.fit(corpus)
    events = model.privacy_.events
    rounds = PoissonSampled(0.1, events[2].event)
    assert events[2:] == (rounds,) * 100
    assert rounds.event.noise_multiplier == pytest.approx(2.0, rel=1e-5)
    alone = epsilon_of(Repeated(rounds, 100), 1e-5)
    assert alone == pytest.approx(2.3374, abs=2e-4)
    assert alone < model.epsilon_ < 1.3 * alone  # word totals come on top


def test_adaptive_is_charged_at_the_highest_rate(corpus):
    model = SubLDA(
        4, noise_multiplier=2.0, subsampling_ratio=0.1, boost=3.0, adaptive=True, max_iter=5
    ).fit(corpus)
    rates = [event.sampling_probability for event in model.privacy_.events[2:]]
    assert rates == pytest.approx([0.3] * 5)
    capped = SubLDA(
        4, noise_multiplier=2.0, subsampling_ratio=0.5, boost=3.0, adaptive=True, max_iter=5
    ).fit(corpus)
    assert not any(isinstance(event, PoissonSampled) for event in capped.privacy_.events)


def test_frequent_words_make_up_the_mass():
    table = np.array([[6.0, 1], [3, 1], [1, 1], [0.5, 7]])
    np.testing.assert_array_equal(frequent_words(table, 0.5), [True, False, False, True])
    np.testing.assert_array_equal(frequent_words(table, 0.8), [True, True, False, True])
    assert frequent_words(table, 1.0).all()


def test_frequent_share_is_a_function_of_the_document_and_the_table(corpus):
    X = sp.csr_array(corpus.astype(np.float32))
    share = frequent_share(X, TABLE, 0.4)
    assert share.min() >= 0
    assert share.max() <= 1
    assert len(np.unique(share)) > 20
    np.testing.assert_array_equal(frequent_share(X[[5, 9]], TABLE, 0.4), share[[5, 9]])


def test_adaptive_weights_undo_the_rates(corpus):
    model = SubLDA(4, epsilon=1.0, subsampling_ratio=0.2, adaptive=True, boost=2.0)
    X = sp.csr_array(corpus.astype(np.float32))

    class Public:
        n_rounds = 0
        table = TABLE

    documents = module.Documents.of(X, 4, None)
    rows, scale = model._sample_frequent(documents, Public, Streams.from_random_state(0), 0.4)
    rates = np.clip(0.4 * frequent_share(X, TABLE, 0.5), 0.2, 0.4)
    np.testing.assert_allclose(scale * rates, 0.4)
    assert 0 < len(rows) < 400


def test_a_batch_may_be_empty(corpus):
    model = SubLDA(4, epsilon=1.0, subsampling_ratio=1e-4, max_iter=3).fit(corpus)
    assert np.isfinite(model.components_).all()
    assert model.epsilon_ <= 1.0
