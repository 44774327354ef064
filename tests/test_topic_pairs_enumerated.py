"""The sweep of HDPLDA that tests the topics: what a word changes, and what it finds."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import dplda.word._topic_test as module
from dplda import HDPLDA
from dplda.audit import observe_releases, replay
from dplda.core._corpus import Corpus
from dplda.datasets import make_topic_corpus
from dplda.privacy import LowSignalWarning
from dplda.word._topic_test import count_pairs, evidence_of_pairs, partners

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
V = 4
IN_FIRST = np.array([True, False, True, False])


def counted(words, topics, doc_ptr=None):
    ptr = np.array([0, len(words)] if doc_ptr is None else doc_ptr)
    corpus = Corpus(np.array(words, np.int32), ptr, V)
    cells = np.empty((V, 2), np.int32)
    return count_pairs(corpus, np.array(topics, np.int16), IN_FIRST, cells, None)


def largest_change(n_tokens, count=counted):
    """Of two cells at most, over all words of a document, places and topics."""
    largest = 0
    for words in itertools.product(range(V), repeat=n_tokens):
        for topics in itertools.product(range(2), repeat=n_tokens):
            before = count(words, topics)
            for place, word in itertools.product(range(n_tokens), range(V)):
                after = count((*words[:place], word, *words[place + 1 :]), topics)
                moved = np.abs(after - before)
                # as it is charged: two cells by one each
                largest = max(largest, moved.sum() if moved.max() <= 1 else np.inf)
    return largest


@pytest.mark.parametrize("n_tokens", [1, 2, 3])
def test_a_replaced_word_changes_two_cells_by_one_each_at_most(n_tokens):
    assert largest_change(n_tokens) == (2 if n_tokens > 1 else 0)


def test_a_token_with_two_partners_would_change_more(monkeypatch):
    def with_two(words, topics):
        """Each token meets the next one as well."""
        both = counted(words, topics)
        with monkeypatch.context() as patch:
            ring = np.roll(np.arange(len(words)), -1)
            patch.setattr(module, "partners", lambda doc_ptr: ring)
            return both + counted(words, topics)

    assert largest_change(3, with_two) > 2


def test_partners_are_of_one_document_and_each_has_one():
    doc_ptr = np.array([0, 3, 3, 7, 8, 10])
    partner = partners(doc_ptr)
    assert partner.tolist() == [1, 0, -1, 4, 3, 6, 5, -1, 9, 8]
    assert partners(np.array([0])).tolist() == []
    words, topics = [0, 1, 0, 0, 2, 3, 0, 1, 2, 1], [0, 1, 1, 0, 0, 1, 0, 1, 0, 1]
    expected = np.zeros((V, 2), int)
    for i, j in enumerate(partner):
        if j >= 0 and IN_FIRST[words[i]] != IN_FIRST[words[j]]:
            expected[words[i], topics[j]] += 1
    np.testing.assert_array_equal(counted(words, topics, doc_ptr), expected)


PARAMETERS = {"noise_epsilon": 30.0, "count_clip": 1e3, "topic_word_prior": 0.1}


def test_one_document_in_ten_is_read_in_the_last_sweep_only():
    X = make_topic_corpus(40, 12, 3, doc_length=20, random_state=0).data
    n, n_kept = int(X.sum()), int(X[9::10].sum())
    for max_iter, sizes in ((7, [n] * 7), (8, [n - n_kept] * 7 + [n_kept])):
        with observe_releases() as seen, warnings.catch_warnings():
            warnings.simplefilter("ignore", LowSignalWarning)
            model = HDPLDA(3, max_iter=max_iter, **PARAMETERS).fit(X)
        drawn = [len(one.value) for one in seen if one.label == "topics"]
        assert drawn == sizes[1:]
        assert np.isnan(model.topic_evidence_).all() == (max_iter < 8)
        assert len(model.privacy_.events) == 2 * max_iter - 1


def test_the_last_of_so_many_calls_tests_and_later_ones_learn():
    X = make_topic_corpus(40, 12, 3, doc_length=20, random_state=0).data
    model = HDPLDA(3, max_iter=8, random_state=0, **PARAMETERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)
        for _ in range(7):
            assert np.isnan(model.partial_fit(X).topic_evidence_).all()
        table = model.components_.copy()
        evidence = model.partial_fit(X).topic_evidence_
        assert np.isfinite(evidence).all()
        np.testing.assert_array_equal(model.components_, table)
        model.partial_fit(X)
        # what was tested are not the topics of this table
        assert np.isnan(model.topic_evidence_).all()
        assert model.weak_topics_.all()
        assert (model.components_ != table).any()
    with pytest.raises(ValueError, match=r"max_iter.* have changed; call fit"):
        model.set_params(max_iter=7).partial_fit(X)  # no document would be kept out


@pytest.mark.parametrize("place", [3, 9])
def test_a_word_moves_no_release_further_than_is_charged(place):
    """Of a document that trains, and of one that tests."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (20, 6))
    X[place] = 0, 2, 1, 0, 1, 3
    neighbor = X.copy()
    neighbor[place, [2, 3]] = 0, 1
    model = HDPLDA(2, max_iter=8, random_state=0, **PARAMETERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)
        result = replay(model, X, neighbor)
    assert result.passed, str(result)
    # the documents that train do not move the last release, and others move no other
    moved = np.array(result.distances) > 0
    assert moved.tolist() == [place == 3] * 7 + [bool(moved[7])]
    assert not (place == 3 and moved[7])


def dealt(X, rng):
    """Words in their numbers, dealt to the documents: bursts stay."""
    X = sp.coo_array(X)
    X = sp.coo_array((X.data, (X.row, X.col[rng.permutation(X.nnz)])), shape=X.shape)
    return sp.csr_array(X)


@pytest.mark.parametrize(
    "budget", [{"noise_epsilon": 20.0, "count_clip": 1e4}, {"epsilon": np.inf}], ids=str
)
def test_topics_are_shown_and_bursts_are_not(budget):
    rng = np.random.default_rng(0)
    X = make_topic_corpus(1500, 100, 5, doc_length=40, random_state=0).data
    bursts = sp.csr_array(X.multiply(rng.integers(1, 6, X.shape)))
    model = HDPLDA(5, max_iter=10, random_state=0, **budget)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)
        assert (~model.fit(bursts).weak_topics_).sum() >= 3
        for seed in range(3):
            null = dealt(bursts, np.random.default_rng(seed))
            assert model.fit(null).weak_topics_.all()


def test_evidence_of_noise_is_standard_normal():
    """Of noise alone, and of words that say nothing of their partners."""
    rng = np.random.default_rng(0)
    components = rng.gamma(0.3, size=(4, 400)) * rng.gamma(1, size=400) + 0.01
    draws = (components / components.sum(axis=1, keepdims=True)).T
    draws /= draws.sum(axis=1, keepdims=True)
    in_first = rng.random(400) < 0.5
    share = components.sum(axis=0) / components.sum()
    for n_pairs, std in ((0, 5.0), (20_000, 0.0), (20_000, 2.0)):
        z = []
        for _ in range(200):
            pairs = std * rng.normal(size=(400, 4))
            one = rng.choice(np.flatnonzero(in_first), n_pairs, p=part(share, in_first))
            two = rng.choice(
                np.flatnonzero(~in_first), n_pairs, p=part(share, ~in_first)
            )
            for word, other in ((one, two), (two, one)):
                topic = (draws[other].cumsum(axis=1) < rng.random((n_pairs, 1))).sum(1)
                np.add.at(pairs, (word, np.minimum(topic, 3)), 1)
            z.append(evidence_of_pairs(components, draws, pairs, std, in_first))
        z = np.array(z)
        assert abs(z.mean()) < 0.15
        assert 0.6 < z.std() < 1.1  # the noise is not shared by the halves
        assert np.mean(z > 1.645) < 0.08


def part(share, mask):
    return share[mask] / share[mask].sum()
