"""Enumerations of the federation: merged topics and tokens, by laws and slow twins."""

import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dplda.core._corpus import Corpus
from dplda.federated import _tokens
from dplda.federated._master import (
    TopWords,
    compose_model,
    merge_evidence,
    merge_topics,
    redundant_topics,
    similarity,
)
from dplda.federated._tokens import check_size, privatize
from dplda.federated._topic_test import evidence_of_reports
from dplda.privacy._mechanisms import RandomizedBits
from dplda.privacy.mechanisms import Streams

KEY = bytes(range(32))


def streams(key=KEY):
    return Streams(key, seeded=True)


def corpus_of(word, n_words):
    word = np.asarray(word, np.int32)
    return Corpus(word, np.array([0, len(word)]), n_words)


@pytest.mark.parametrize("epsilon", [3.0, math.inf])
def test_unbiased_counts(epsilon):
    rng = np.random.default_rng(0)
    n, n_words = 3000, 200
    # 100.. are empty
    word = np.concatenate([np.zeros(500, int), rng.integers(1, 100, n - 500)])
    bits = None if math.isinf(epsilon) else RandomizedBits.for_epsilon(epsilon)
    tokens = privatize(corpus_of(word, n_words), bits, streams())
    scores, noise = tokens.word_scores(), n * math.exp(3) / (math.exp(3) - 1) ** 2
    if math.isinf(epsilon):
        assert_array_equal(scores, np.bincount(word, minlength=n_words))
        return
    assert scores[100:].mean() == pytest.approx(0, abs=6 * math.sqrt(noise / 100))
    assert scores[100:].var() == pytest.approx(noise, rel=0.8)
    assert scores[0] == pytest.approx(500, abs=6 * math.sqrt(noise + 500))
    assert scores.sum() == pytest.approx(n, abs=6 * math.sqrt(n_words * noise + n))


def documents_of(rows, n_words):
    """A corpus of lists of words."""
    ptr = np.cumsum([0, *map(len, rows)])
    return Corpus(np.concatenate(rows).astype(np.int32), ptr, n_words)


def test_documents_of_tokens_and_their_counts():
    rng = np.random.default_rng(0)
    rows = [rng.integers(30, size=n) for n in (4, 0, 7, 1, 5)]
    tokens = privatize(documents_of(rows, 30), None, streams())
    weights = rng.normal(size=(30, 2))
    expected = np.array([weights[row].sum(axis=0) for row in rows])
    np.testing.assert_allclose(tokens.counts_times(weights), expected, atol=1e-12)
    mask = np.array([True, True, False, False, True])
    chosen = [rows[i] for i in (0, 1, 4)]
    again = tokens.of_documents(mask)
    other = privatize(documents_of(chosen, 30), None, streams())
    for name in ("unit_ptr", "doc_ptr", "ptr", "word"):
        assert_array_equal(getattr(again, name), getattr(other, name))


@pytest.mark.parametrize("epsilon", [2.0, 6.0, math.inf])
def test_the_evidence_of_bursts_is_standard_normal(epsilon):
    """Words that come in bursts, in documents of unequal lengths, confirm no topic."""
    bits = None if math.isinf(epsilon) else RandomizedBits.for_epsilon(epsilon)
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(60, 0.5))
    components = rng.dirichlet(60 * p, 4) * 1000
    p = components.sum(axis=0) / components.sum()
    z, of_pairs = [], []
    for seed in range(120):
        rows = [
            np.repeat(rng.choice(60, n, p=p), rng.geometric(0.4, n))
            for n in 1 + rng.geometric(0.1, 40)
        ]
        key = Streams(bytes([seed]) * 32, seeded=True)
        corpus = documents_of(rows, 60)
        z.append(evidence_of_reports(privatize(corpus, bits, key), components))
        # words of one topic are in one document
        rows = [rng.choice(60, 30, p=components[i % 4] / 1000) for i in range(40)]
        tokens = privatize(documents_of(rows, 60), bits, key)
        of_pairs.append(evidence_of_reports(tokens, components))
    assert abs(np.mean(z)) < 4 / np.size(z) ** 0.5
    assert np.std(z) == pytest.approx(1, abs=0.15)
    assert np.mean(of_pairs) > 0.5


def test_evidence_of_merged_topics_is_a_weighted_sum():
    evidence = np.array([2.0, 3.0, np.nan, 1.0, np.nan])
    labels = np.array([0, 0, 0, 1, 2])
    merged = merge_evidence(evidence, np.array([1.0, 2.0, 2.0, 7.0, 1.0]), labels)
    assert_array_equal(merged, [8 / 3, 1.0, np.nan])
    even = merge_evidence(evidence[:2], np.zeros(2), labels[:2])
    np.testing.assert_allclose(even, 5 / math.sqrt(2))


def test_other_tokens_noise_does_not_depend_on_a_word():
    """The guarantee's relation: one word changes, one coordinate or two of a vector."""
    word = np.arange(60) % 30
    other = word.copy()
    other[25] = 29
    vectors = []
    for w in (word, other):
        found = privatize(corpus_of(w, 30), RandomizedBits.for_epsilon(3.0), streams())
        vectors.append(
            [set(row.tolist()) for row in np.split(found.word, found.ptr[1:-1])]
        )
    differ = [i for i, (a, b) in enumerate(zip(*vectors)) if a != b]
    assert differ == [25]
    assert vectors[0][25] ^ vectors[1][25] <= {25, 29}


def test_tokens_hold_vectors_and_neither_key_nor_words():
    words = np.arange(300, dtype=np.int32) % 50
    content = pickle.dumps(
        privatize(corpus_of(words, 50), RandomizedBits.for_epsilon(4.0), streams())
    )
    assert KEY not in content
    assert words.tobytes() not in content


def test_blocks_are_whole_documents(monkeypatch):
    monkeypatch.setattr(_tokens, "BLOCK_TOKENS", 10)
    rng = np.random.default_rng(0)
    doc_ptr = np.cumsum([0, 0, *rng.integers(0, 16, 40), 0, 0])
    corpus = Corpus(np.zeros(doc_ptr[-1], np.int32), doc_ptr, 3)
    blocks = privatize(corpus, None, streams()).blocks()
    assert len(blocks) > 5
    assert [a for a, _ in blocks] == [0, *(b for _, b in blocks)][:-1]
    assert blocks[-1][1] == len(doc_ptr) - 1


def test_too_many_tokens_are_refused():
    corpus = corpus_of(np.zeros(3000, int), 2**31 - 1)
    with pytest.raises(ValueError, match="random words; raise token_epsilon"):
        check_size(corpus, RandomizedBits.for_epsilon(4.0))


def normalize_topics(table):
    return table / table.sum(axis=1, keepdims=True)


def random_table(rng, n_topics, n_words, concentration=0.2):
    return rng.dirichlet(np.full(n_words, concentration), n_topics)


def slow_similarity(a, b, n_top_words):
    """Equation 29 for two topics."""
    top_a = {
        int(w): a[w]
        for w in sorted(range(len(a)), key=lambda w: (-a[w], w))[:n_top_words]
    }
    top_b = {
        int(w): b[w]
        for w in sorted(range(len(b)), key=lambda w: (-b[w], w))[:n_top_words]
    }
    common = top_a.keys() & top_b.keys()
    low = sum(min(top_a[w], top_b[w]) for w in common)
    high = sum(max(top_a[w], top_b[w]) for w in common)
    alone = sum(p for top in (top_a, top_b) for w, p in top.items() if w not in common)
    return low / (high + alone)


def slow_labels(table, threshold, n_top_words):
    """Algorithm 3, lines 2 to 12: what a chain of similar topics connects."""
    labels = list(range(len(table)))
    for i in range(len(table)):
        for j in range(i + 1, len(table)):
            if slow_similarity(table[i], table[j], n_top_words) >= threshold:
                low, high = sorted((labels[i], labels[j]))
                labels = [low if label == high else label for label in labels]
    return [sorted(set(labels)).index(label) for label in labels]


@pytest.mark.parametrize("n_top_words", [1, 5, 30, 100])
def test_similarity_is_that_of_the_slow_twin(n_top_words):
    rng = np.random.default_rng(n_top_words)
    # the second has ties
    a, b = random_table(rng, 7, 40), random_table(rng, 4, 40).round(1)
    fast = similarity(
        TopWords.from_table(a, n_top_words), TopWords.from_table(b, n_top_words)
    )
    slow = [[slow_similarity(x, y, n_top_words) for y in b] for x in a]
    np.testing.assert_allclose(fast, slow, rtol=1e-12)


@pytest.mark.parametrize("threshold", [0.05, 0.2, 0.5, 1.0])
def test_merging_is_that_of_the_slow_twin(threshold):
    """Algorithm 3: labels, then weighted means of a label's rows (lines 12 to 17)."""
    rng = np.random.default_rng(3)
    table = random_table(rng, 12, 25)
    table = np.concatenate(
        [table, normalize_topics(table[:5] + 0.01 * rng.random((5, 25)))]
    )
    weights = rng.integers(1, 100, len(table)).astype(float)
    labels = redundant_topics(
        TopWords.from_table(table, 8), threshold, np.arange(len(table))
    )
    assert labels.tolist() == slow_labels(table, threshold, 8)
    merged, total = merge_topics(table, weights, labels)
    for label, row in enumerate(merged):
        mean = np.average(
            table[labels == label], axis=0, weights=weights[labels == label]
        )
        np.testing.assert_allclose(row, mean / mean.sum(), rtol=1e-12)
    np.testing.assert_allclose(total, np.bincount(labels, weights))


def test_a_set_has_one_topic_of_each_party():
    """The most similar pair first; then no second topic of a party enters the set."""
    table = np.array([
        [0.6, 0.4, 0.0, 0.0],  # party 0
        [0.5, 0.5, 0.0, 0.0],  # party 0, similar to all but the last
        [0.55, 0.35, 0.1, 0.0],  # party 1
        [0.6, 0.4, 0.0, 0.0],  # party 2
        [0.0, 0.0, 0.0, 1.0],  # party 2
    ])  # fmt: skip
    top, owners = TopWords.from_table(table, 4), np.array([0, 0, 1, 2, 2])
    np.testing.assert_array_equal(
        redundant_topics(top, 0.5, np.arange(5)), [0, 0, 0, 0, 1]
    )
    np.testing.assert_array_equal(redundant_topics(top, 0.5, owners), [0, 1, 0, 0, 2])
    order = np.array([3, 1, 4, 0, 2])
    shuffled = redundant_topics(
        TopWords.from_table(table[order], 4), 0.5, owners[order]
    )
    np.testing.assert_array_equal(shuffled, [0, 1, 2, 0, 0])


@pytest.mark.parametrize(
    "weights", [[0, 0, 0], [1e-300, 1e-300, 1e-300], [2.0**53, 0, 2.0**53]]
)
def test_extreme_weights(weights):
    merged, _ = merge_topics(
        np.array([[1.0, 0], [0, 1.0], [0, 1.0]]), np.array(weights), np.array([0, 1, 0])
    )
    np.testing.assert_allclose(merged, [[0.5, 0.5], [0, 1]])


def compose(global_table, table, threshold=0.2, n_top_words=2):
    global_table = np.array(global_table, float)
    words = TopWords.from_table(global_table, n_top_words)
    return compose_model(global_table, np.array(table, float), threshold, words)


def test_composing_replaces_matches_and_keeps_the_rest():
    global_table = [[0.7, 0.3, 0, 0], [0, 0, 0.6, 0.4]]
    own = [[0.5, 0.0, 0, 0.5], [0.0, 0, 0.5, 0.5], [0.4, 0.6, 0, 0]]
    composed = compose(global_table, own, threshold=0.5)
    np.testing.assert_array_equal(composed, [own[0], global_table[1], global_table[0]])


def test_a_global_topic_is_given_once_to_the_most_similar():
    global_table = [[0.7, 0.3, 0, 0]]
    own = [[0.4, 0.6, 0, 0], [0.6, 0.4, 0, 0]]
    np.testing.assert_array_equal(compose(global_table, own), [own[0], global_table[0]])
    np.testing.assert_array_equal(
        compose(global_table, own[::-1]), [global_table[0], own[0]]
    )


def test_composing_does_not_depend_on_the_numbering():
    rng = np.random.default_rng(5)
    own = random_table(rng, 9, 30)
    global_table = normalize_topics(own[[2, 4, 6]] + 0.02 * rng.random((3, 30)))
    composed, order = compose(global_table, own, n_top_words=10), rng.permutation(9)
    np.testing.assert_array_equal(
        compose(global_table, own[order], n_top_words=10), composed[order]
    )
    np.testing.assert_array_equal(
        compose(global_table[::-1], own, n_top_words=10), composed
    )
    assert sum(any((row == g).all() for g in global_table) for row in composed) == 3
