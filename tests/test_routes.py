"""The benchmark of other routes: what it measures against is private, whole, and no weaker."""

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.utils import Bunch

from dplda.datasets import make_topic_corpus
from dplda.privacy import epsilon_of

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import routes

N_DOCS, N_WORDS, N_CLASSES = 240, 100, 4


@pytest.fixture(scope="module")
def X():
    found = make_topic_corpus(
        N_DOCS, N_WORDS, N_CLASSES, doc_topic_prior=0.02, topic_word_prior=0.05, random_state=1
    )
    return found.data.toarray(), found.doc_topic.argmax(axis=1)


@pytest.fixture
def few_public(monkeypatch):
    monkeypatch.setattr(routes, "N_PUBLIC", 60)


def corpus_of(X, y, glosses=None):
    """The words of a document in the order of their numbers."""
    sequences = [np.repeat(np.arange(X.shape[1]), row).astype(np.int32) for row in X]
    X, glosses = (sp.csr_array(x.astype(float)) for x in (X, X if glosses is None else glosses))
    return routes.LabelledCorpus("made", X, sequences, y, glosses)


@pytest.mark.parametrize("shares", [(1.0,), (0.4, 0.6), (*[0.6 / 8] * 8, 0.4)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_releases_of_a_route_cost_its_epsilon(epsilon, shares):
    noise = routes.noise_of(epsilon, shares)
    mu = math.sqrt(sum(n**-2 for n in noise))
    spent = epsilon_of(routes.events(1 / mu, shares), routes.DELTA)
    assert spent == pytest.approx(epsilon, rel=1e-4)
    parts = np.array(noise) ** -2.0
    np.testing.assert_allclose(parts / parts.sum(), shares, rtol=1e-12)


def test_k_means_releases_no_more_than_it_pays_for(X, few_public, monkeypatch):
    used = []
    whole = routes.noisy_sums

    def record(rows, labels, n_clusters, noise, rng):
        used.append(noise)
        lengths = np.sqrt(sp.csr_array(rows).power(2).sum(axis=1))
        assert lengths.max() <= 1 + 1e-12
        return whole(rows, labels, n_clusters, noise, rng)

    monkeypatch.setattr(routes, "noisy_sums", record)
    routes.private_k_means(corpus_of(*X), 4, False, 2.0, 0, "random 20", 3)
    share = (1 - routes.KEYWORDS) / 3
    assert used == routes.noise_of(2.0, (share, share, share, routes.KEYWORDS))
    used.clear()
    routes.private_k_means(corpus_of(*X), 4, True, 2.0, 0, "public 20", 3)
    assert used == routes.noise_of(2.0, (1 / 3, 1 / 3, 1 / 3))


def test_a_document_moves_the_sums_of_clusters_by_its_norm_at_most():
    """All sets of three documents among five, all clusters of theirs, and each one left out."""
    rng = np.random.default_rng(0)
    every = [[1.0, 0.0], [0.0, 0.0], [0.6, 0.8], [-0.8, 0.6], [-1.0, 0.0]]
    farthest = 0.0
    for documents in itertools.combinations(every, 3):
        for labels in itertools.product(range(2), repeat=3):
            Z, labels = np.array(documents), np.array(labels)
            whole = routes.noisy_sums(Z, labels, 2, 0.0, rng)
            for left_out in range(3):
                rest = np.delete(Z, left_out, axis=0), np.delete(labels, left_out)
                moved = np.linalg.norm(whole - routes.noisy_sums(*rest, 2, 0.0, rng))
                farthest = max(farthest, moved)
    assert farthest == pytest.approx(1)


def test_a_document_moves_the_sums_of_words_and_of_pairs_by_one_at_most():
    """All documents of one to three words among three, next to two other documents."""
    others = [np.array([0, 1, 1], np.int32), np.array([2, 2, 2, 2], np.int32)]
    before = routes.words_and_pairs(others, 3)
    farthest = np.zeros(2)
    for length in range(1, 4):
        for words in itertools.product(range(3), repeat=length):
            after = routes.words_and_pairs([*others, np.array(words, np.int32)], 3)
            moved = [np.linalg.norm(b - a) for a, b in zip(before, after, strict=True)]
            farthest = np.maximum(farthest, moved)
    np.testing.assert_allclose(farthest, 1)


def test_pairs_are_successive_words():
    words, pairs = routes.words_and_pairs([np.array([0, 1, 2, 1], np.int32)], 3)
    np.testing.assert_allclose(words, np.array([1, 2, 1]) / math.sqrt(6))
    expected = np.zeros((3, 3))
    expected[[0, 1, 2], [1, 2, 1]] = 1 / math.sqrt(3)
    np.testing.assert_allclose(pairs, expected)


@pytest.mark.parametrize("space", ["random 20", "glosses 20", "public 20"])
def test_no_private_document_decides_about_the_vectors_of_others(X, few_public, space):
    counts, y = X
    changed, private = counts.copy(), routes.cut(corpus_of(*X), 0).private
    changed[private[0]] = 1000
    one, two = (routes.vectors(corpus_of(x, y, counts), space, 0) for x in (counts, changed))
    others = np.arange(len(y)) != private[0]
    np.testing.assert_array_equal(one[others], two[others])
    np.testing.assert_allclose(np.linalg.norm(two, axis=1), 1)


def test_sums_have_the_noise_that_is_paid_for():
    rows, labels = np.zeros((5, 20_000)), np.arange(5)
    noise = routes.noisy_sums(rows, labels, 5, 3.0, np.random.default_rng(0))
    assert noise.std() == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("public", [False, True])
def test_without_noise_private_k_means_is_as_good_as_plain_k_means(X, few_public, public):
    """The same vectors and starts, in the mean of some seeds; labels of held-out documents."""
    corpus, seeds, found = corpus_of(*X), range(4), []
    for seed in seeds:
        part, Z = routes.cut(corpus, seed), routes.vectors(corpus, "random 50", seed)
        start = np.random.default_rng(seed).standard_normal((N_CLASSES, 50))
        if public:
            start = KMeans(N_CLASSES, random_state=seed).fit(Z[part.public]).cluster_centers_
        start /= np.linalg.norm(start, axis=1, keepdims=True)
        centers = routes.k_means(Z[part.private], start, [0.0] * 16, np.random.default_rng(0))
        plain = KMeans(N_CLASSES, init=start, n_init=1).fit(Z[part.private])
        clusters = routes.nearest(Z[part.held_out], centers), plain.predict(Z[part.held_out])
        found.append([normalized_mutual_info_score(X[1][part.held_out], c) for c in clusters])
    ours, theirs = np.mean(found, axis=0)
    assert ours >= theirs - 0.02 > 0.6


def test_what_all_clusters_have_in_common_decides_nothing():
    sums = np.array([[5.0, 1.0, 0.0], [5.0, -1.0, 0.0]])
    np.testing.assert_allclose(routes.directions(sums + 0.0), [[0, 1, 0], [0, -1, 0]], atol=1e-12)


def test_texts_follow_the_laws_of_the_chain():
    rng = np.random.default_rng(0)
    first, chain = np.array([0.5, 0.5, 0.0]), np.array([[0, 0.25, 0.75], [1, 0, 0], [0, 1, 0.0]])
    texts = routes.texts_of_chain(first, chain, 4000, 6, rng)
    found = np.zeros((3, 3))
    np.add.at(found, (texts[:, :-1], texts[:, 1:]), 1)
    np.testing.assert_allclose(found / found.sum(axis=1, keepdims=True), chain, atol=0.03)
    np.testing.assert_allclose(np.bincount(texts[:, 0], minlength=3) / 4000, first, atol=0.03)


def test_purity_counts_the_largest_class_of_each_cluster():
    assert routes.purity(["a", "a", "b", "b", "b"], [0, 0, 0, 1, 1]) == 0.8


def test_short_texts_are_left_out_and_words_keep_their_order(monkeypatch):
    monkeypatch.setattr(routes, "SHORTEST", 2)
    monkeypatch.setattr(routes, "load_wordnet_glosses", lambda: Bunch(data=["a star, the sun"]))
    corpus = routes.labelled("two", ["Sun, moon sun!", "moon"], ["x", "y"], ["moon", "sun"])
    np.testing.assert_array_equal(corpus.sequences, [[1, 0, 1]])
    np.testing.assert_array_equal(corpus.X.toarray(), [[1, 2]])
    assert corpus.y.tolist() == ["x"]
    np.testing.assert_array_equal(corpus.glosses.toarray(), [[0, 1]])
