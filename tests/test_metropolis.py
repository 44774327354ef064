"""The private sampler has the stationary law that it is meant for."""

import itertools
import math

import numpy as np
import pytest
import reference

from dplda.core._corpus import Corpus
from dplda.federated._tokens import Tokens, Topics, privatize, sweep_tokens
from dplda.kernels import _metropolis
from dplda.privacy._mechanisms import RandomizedBits
from dplda.privacy._streams import Streams

EPSILONS = (2.0, math.inf)


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_alias_tables_hold_their_weights(n):
    rng = np.random.default_rng(n)
    weight = rng.gamma(0.2, size=(30, n)).astype(np.float32) + np.float32(1e-30)
    threshold, alias = (
        np.empty(weight.shape, np.uint32),
        np.empty(weight.shape, np.int32),
    )
    _metropolis.build_alias(
        weight, threshold, alias, np.empty(n), np.empty(n, np.int32)
    )
    chances = threshold / 2.0**32
    for row in range(30):
        share = np.bincount(alias[row], 1 - chances[row], n) + chances[row]
        expected = weight[row] / weight[row].sum(dtype=float)
        np.testing.assert_allclose(share / n, expected, atol=1e-7)


def target_law(tokens, phi, alpha):
    """Probabilities of all topic assignments to tokens of one document, and words."""
    n_components, n_words = phi.shape
    # of a word that was not reported, over that of a reported one
    ratio = np.full((tokens.n_tokens, n_words), (tokens.flip / (1 - tokens.flip)) ** 2)
    for i, (a, b) in enumerate(itertools.pairwise(tokens.ptr)):
        ratio[i, tokens.word[a:b]] = 1
    mixture = ratio @ phi.T  # of each token, in each topic
    law = {}
    for topics in itertools.product(range(n_components), repeat=tokens.n_tokens):
        weight, count = 1.0, [0] * n_components
        for i, k in enumerate(topics):
            weight *= (count[k] + alpha) * mixture[i, k]
            count[k] += 1
        law[topics] = weight
    total = sum(law.values())
    word_law = [phi * ratio[i] for i in range(tokens.n_tokens)]  # given the topic
    return {t: w / total for t, w in law.items()}, [
        w / w.sum(1, keepdims=True) for w in word_law
    ]


@pytest.mark.parametrize("words", [[0, 1, 2, 0], [3, 3, 1]], ids=str)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_stationary_law_is_the_target(epsilon, words):
    """Thousands of equal documents, far from their start, are independent draws."""
    one = Corpus(np.array(words, np.int32), np.array([0, len(words)]), 5)
    bits = None if math.isinf(epsilon) else RandomizedBits.for_epsilon(epsilon)
    tokens = privatize(one, bits, Streams(bytes(range(32)), seeded=True))
    n, alpha = 10000, 0.4
    rng = np.random.default_rng(2)
    table = rng.gamma(0.7, size=(3, 5)) + 0.05
    phi = Topics.from_weights(table).phi.astype(float)
    law, word_law = target_law(tokens, phi, alpha)

    ptr = np.concatenate([[0], np.cumsum(np.tile(np.diff(tokens.ptr), n))])
    doc_ptr = np.arange(n + 1) * tokens.n_tokens
    many = Tokens(
        np.arange(len(ptr)), doc_ptr, ptr, np.tile(tokens.word, n), 5, tokens.flip
    )
    topics = np.full(many.n_tokens, -1, np.int32)
    streams = Streams(bytes(31) + b"\7", seeded=True)
    for t in range(40):
        counts = sweep_tokens(
            many, topics, table, np.ones(5), doc_topic_prior=alpha, streams=streams, t=t
        )
    states = topics.reshape(n, -1) @ 3 ** np.arange(tokens.n_tokens)[::-1]
    observed = np.bincount(states, minlength=3**tokens.n_tokens)
    expected = np.array(list(law.values()))
    assert reference.chi_square(observed, expected) > 1e-6
    # the words, given the topics that were drawn
    mean = np.zeros((3, 5))
    for i in range(tokens.n_tokens):
        drawn = np.bincount(topics.reshape(n, -1)[:, i], minlength=3)
        mean += drawn[:, None] * word_law[i]
    np.testing.assert_allclose(counts, mean, atol=6 * np.sqrt(mean.max()))
    assert reference.chi_square(counts, mean / mean.sum()) > 1e-6
