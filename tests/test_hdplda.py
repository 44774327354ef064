"""Word-level privacy: prices, releases, what docs/proofs_word.md asks of the code."""

import math
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import dplda.word._hdplda as module
from dplda import HDPLDA, GibbsLDA
from dplda.audit import observe_releases
from dplda.audit._replay import fit_watched
from dplda.core._corpus import Corpus
from dplda.datasets import make_topic_corpus
from dplda.gibbs._frozen_table import TokensByWord
from dplda.metrics import unigram_perplexity
from dplda.privacy import Laplace, Repeated, SeededNoiseWarning, epsilon_of
from dplda.privacy._events import BoundedRange

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


def test_topics_are_drawn_under_released_counts_only(corpus, monkeypatch):
    tables, make = [], module.HalfTable.from_counts

    def record(counts, *args, mean, unit, **kwargs):
        tables.append((counts - mean) / unit)
        return make(counts, *args, mean=mean, unit=unit, **kwargs)

    monkeypatch.setattr(module.HalfTable, "from_counts", record)
    _, tape = fit_watched(HDPLDA(K, epsilon=20.0, max_iter=4), corpus)
    assert len(tape.steps) == 4
    assert len(tables) == 3  # no topics are drawn after the last release
    for table, step in zip(tables, tape.steps):
        np.testing.assert_allclose(table, step.noisy - step.mechanism.mean, rtol=1e-9)
        assert not np.allclose(table, step.value)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_counts_are_exact_for_any_number_of_threads(dtype):
    rng = np.random.default_rng(0)
    word, topics = rng.integers(0, 3000, (2, 20_000), np.int32)
    topics = (topics % 50).astype(np.int16)
    tokens = Corpus(word, np.array([0, len(word)]), 3001)  # the last word has no token
    expected = np.zeros((3001, 50), np.int64)
    np.add.at(expected, (word, topics), 1)
    by_word = TokensByWord.from_corpus(tokens)
    for n_jobs in (None, 2):
        counts = by_word.count(topics, np.full((3001, 50), 7, dtype), n_jobs)
        np.testing.assert_array_equal(counts, expected)


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


@pytest.mark.parametrize("max_iter", [1, 5])
def test_what_is_drawn_and_released_is_what_is_charged(max_iter, corpus, monkeypatch):
    """Each sampler call is one topic event, and draws nothing that no release reads."""
    calls, draw = [], module.draw_topics
    monkeypatch.setattr(
        module, "draw_topics", lambda *a, **k: calls.append(1) or draw(*a, **k)
    )
    parameters = {"noise_epsilon": 2.0, "count_clip": 1.0, "topic_word_prior": 1.0}
    sweep = (Repeated(Laplace(1.0), 2), BoundedRange(2 * math.log(2)))
    model = HDPLDA(K, max_iter=max_iter, **parameters)
    with observe_releases() as seen:
        model.fit(corpus)
    labels = ["word-topic counts", "topics"] * max_iter
    assert [release.label for release in seen] == labels[:-1]
    assert len(calls) == max_iter - 1
    assert model.privacy_.events == (sweep * max_iter)[:-1]
    by_calls = HDPLDA(K, max_iter=max_iter, **parameters).partial_fit(corpus)
    # topics were drawn without looking at words
    assert by_calls.privacy_.events == sweep[:1]
    for _ in range(max_iter - 1):
        by_calls.partial_fit(corpus)
    assert by_calls.privacy_.events == model.privacy_.events
    # each call adds to the distance of the noise from its law
    assert model.epsilon_ <= by_calls.epsilon_ < model.epsilon_ * (1 + 1e-6)
    model.partial_fit(corpus)
    assert len(calls) == 2 * max_iter - 1
    assert model.privacy_.events == (sweep * (max_iter + 1))[:-1]
    assert model.epsilon_ == epsilon_of(
        model.privacy_.events,
        model.delta,
        total_variation=model.privacy_.total_variation,
    )


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
