"""Word-level privacy: prices, releases, what docs/proofs_word.md asks of the code."""

import math
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from dplda import HDPLDA, GibbsLDA
from dplda.audit import observe_releases
from dplda.datasets import make_topic_corpus
from dplda.metrics import unigram_perplexity
from dplda.privacy import SeededNoiseWarning

K = 3


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(40, 12, K, doc_length=20, random_state=0).data


def test_a_total_is_split_evenly_in_zcdp(corpus):
    model = HDPLDA(K, epsilon=15.0, max_iter=20, topic_word_prior=0.3).fit(corpus)
    assert 14.9 < model.epsilon_ <= 15.0
    assert model.noise_epsilon_**2 / 4 == pytest.approx(
        model.sampling_epsilon_**2 / 8, rel=1e-3
    )


@pytest.mark.parametrize(
    ("n_docs", "n_words", "count", "n_components", "largest"),
    [(500, 200, 100.0, 4, 12 * 2e6 + 4e6), (3, 3000, 1.0, 700, 24 * 2.1e6)],
    ids=["tokens", "cells"],
)
def test_memory_of_a_fit(n_docs, n_words, count, n_components, largest):
    """12 bytes a token, and 24 a cell; two million of them."""
    rows = np.repeat(np.arange(n_docs), 40)
    columns = np.random.default_rng(0).integers(0, n_words, len(rows))
    X = sp.csr_array((np.full(len(rows), count), (rows, columns)), (n_docs, n_words))
    model = HDPLDA(n_components, noise_epsilon=1.0, count_clip=1e3, max_iter=3)
    tracemalloc.start()
    model.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < largest


def test_a_later_call_does_not_read_the_topics_of_the_fit(corpus):
    """It draws from the released table alone: equal tables draw the same topics."""
    other = HDPLDA(K, noise_epsilon=1.0, count_clip=1.0, max_iter=3).fit(corpus)
    drawn = []
    for seed in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SeededNoiseWarning)
            model = HDPLDA(
                K, noise_epsilon=1.0, count_clip=1.0, max_iter=3, random_state=seed
            )
            model.fit(corpus)
            model._released = other._released
            model.set_params(random_state=7)
            with observe_releases() as seen:
                model.partial_fit(corpus)
        drawn.append(
            next(release.value for release in seen if release.label == "topics")
        )
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize(
    "changed",
    [
        {"noise_epsilon": 2.0},
        {"count_clip": 0.5},
        {"count_clip": 0.1, "topic_word_prior": 0.001},
    ],
    ids=str,
)
def test_releases_of_other_noise_do_not_enter_the_average(changed, corpus):
    """Nor is a table drawn from under a smaller prior than its clip was charged for."""
    model = HDPLDA(K, noise_epsilon=1.0, count_clip=1.0, max_iter=2).fit(corpus)
    before = model.privacy_
    with pytest.raises(ValueError, match=r"continues with the noise.* call fit"):
        model.set_params(**changed).partial_fit(corpus)
    assert model.privacy_ is before


def test_the_table_is_unbiased(corpus):
    """The floored Laplace's mean of -1/2 is taken out again."""
    model = HDPLDA(
        1, noise_epsilon=1.0, count_clip=1.0, max_iter=400, topic_word_prior=0.01
    )
    model.fit(corpus)  # one topic: the counts are the word totals in every sweep
    error = model.components_[0] - 0.01 - corpus.sum(axis=0)
    standard_error = math.sqrt(8 / 200)
    assert abs(error.mean()) < 6 * standard_error / math.sqrt(12)
    assert abs(error).max() < 6 * standard_error


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_weak_privacy_learns_and_strong_privacy_does_not():
    X = make_topic_corpus(400, 60, 5, doc_length=80, random_state=1).data
    train, test = X[:350], X[350:]
    unigram = unigram_perplexity(train, test)
    gibbs = GibbsLDA(5, random_state=0).fit(train).perplexity(test)
    weak = HDPLDA(5, noise_epsilon=8.0, count_clip=200.0, max_iter=60, random_state=1)
    weak.fit(train)
    assert weak.perplexity(test) < gibbs + 0.3 * (unigram - gibbs)
    strong = HDPLDA(5, epsilon=1.0, max_iter=60, random_state=0).fit(train)
    assert strong.perplexity(test) > gibbs + 0.8 * (unigram - gibbs)


def test_epsilon_pays_for_max_iter_calls_where_their_distance_is_charged(corpus):
    """Each `partial_fit` call adds to the distance from ideal noise; delta pays it."""
    model = HDPLDA(K, epsilon=17.0, max_iter=20)
    for _ in range(20):
        model.partial_fit(corpus)
    assert model.n_iter_ == 20
    assert model.epsilon_ <= 17.0
    assert clone(model).fit(corpus).epsilon_ <= 17.0
