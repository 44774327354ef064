"""Enumerations of the federation: merged topics and tokens, by laws and slow twins."""

import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dplda.core._corpus import Corpus
from dplda.federated import _tokens
from dplda.federated._tokens import check_size, privatize
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
