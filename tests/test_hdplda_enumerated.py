"""Enumerations of HDPLDA: counts of tokens, and what each draw of topics reads."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from twins import document_weights, half_integers

import dplda.word._hdplda as module
from dplda import (
    HDPLDA,
)
from dplda.audit import observe_releases
from dplda.audit._replay import fit_watched
from dplda.core._corpus import Corpus
from dplda.datasets import make_topic_corpus
from dplda.gibbs._frozen_table import HalfTable, TokensByWord
from dplda.privacy import Laplace, Repeated, epsilon_of
from dplda.privacy._events import BoundedRange

K = 3


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(40, 12, K, doc_length=20, random_state=0).data


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


def sweep_law(words, topics, table, prior):
    """Exact law of topics after a frozen sweep over one document.

    It is {topics: probability}.
    """
    n_components, values = table.n_components, half_integers(table.half)
    law = {}
    for drawn in itertools.product(range(n_components), repeat=len(words)):
        probability, current = Fraction(1), list(topics)
        for i, word in enumerate(words):
            others = [z for j, z in enumerate(current) if j != i and z >= 0]
            counts = np.bincount(others, minlength=n_components).tolist()
            c = document_weights(counts, len(words), prior)
            weight = [a * b for a, b in zip(values[word], c)]
            probability *= Fraction(weight[drawn[i]], sum(weight))
            current[i] = drawn[i]
        law[drawn] = probability
    return law


def test_replacing_a_word_changes_the_law_of_a_sweep_by_the_bound_at_most():
    """Over random orders; in a sorted row's order other tokens' laws change too."""
    rng = np.random.default_rng(0)
    clip, prior = 1.0, 0.05
    bound = (Fraction(clip) / Fraction(prior) + 1) ** 2
    worst = 0
    for _ in range(40):
        table = HalfTable.from_counts(
            rng.choice([-1, 0, 0.5, 1, 2], (3, 2)), clip, prior
        )
        topics = rng.integers(-1, 2, 3).tolist()
        mixtures = []
        for words in ((0, 1, 2), (0, 1, 0)):
            orders = list(itertools.permutations(range(3)))
            laws = [
                sweep_law([words[i] for i in o], topics, table, 0.2) for o in orders
            ]
            mixtures.append(
                {z: sum(law[z] for law in laws) / len(orders) for z in laws[0]}
            )
        one, other = mixtures
        worst = max(worst, *(max(one[z] / other[z], other[z] / one[z]) for z in one))
    assert 10 < worst <= bound
