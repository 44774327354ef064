"""The private sampler: equal to a plain twin, and of the stationary law that it is meant for."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chi2

from dplda.federated._sampler import Topics, sweep_tokens
from dplda.federated._sentences import SentenceCorpus
from dplda.federated._tokens import Tokens, privatize, randomized_bits
from dplda.kernels import _metropolis
from dplda.privacy._streams import Streams

EPSILONS = (2.0, math.inf)


def uniform(word):
    return ((int(word) >> 12) + 0.5) * 2.0**-52


def draw_alias(threshold, alias, word):
    column = (int(word) >> 32) * len(threshold) >> 32
    return column if int(word) & 2**32 - 1 < threshold[column] else int(alias[column])


def weighted(weights, target):
    for index, weight in enumerate(weights):
        target -= weight
        if target < 0:
            return index
    return len(weights) - 1


def base_of(tokens):
    """Likelihood ratio of a word that was not reported, over that of a reported one."""
    return (tokens.flip / (1 - tokens.flip)) ** 2


def twin(doc_ptr, unit_ptr, topics, vectors, base, model, prior, alpha, unit_bits, token_bits):
    """One sweep in plain Python; `vectors` holds the reported words of each token."""
    phi = model.phi.astype(float)
    n_components, n_words = phi.shape
    topics, counts = topics.copy(), np.zeros(phi.shape, np.int32)

    def log_likelihood(tokens, k):
        total = 0.0
        for i in tokens:
            mixture = base
            for v in vectors[i]:
                mixture += phi[k, v] * (1 - base)
            total += math.log(mixture)
        return total

    for start, end in itertools.pairwise(doc_ptr):
        for u in range(start, end):
            tokens = range(unit_ptr[u], unit_ptr[u + 1])
            others = [topics[i] for i in range(start, end) if i != u]
            count = [others.count(k) for k in range(n_components)]
            old = topics[u]
            position = uniform(unit_bits[2 * u]) * (len(others) + n_components * alpha)
            new = others[int(position)] if position < len(others) else -1
            if position < len(others):
                position -= int(position)
            else:
                position = (position - len(others)) / (n_components * alpha)
            if new < 0:
                new = min(int(position * n_components), n_components - 1)
            if old < 0:
                old = new
            elif new != old:
                ratio = log_likelihood(tokens, new) - log_likelihood(tokens, old)
                if math.log(uniform(unit_bits[2 * u + 1])) < ratio:
                    old = new
            for i in tokens:
                words = vectors[i]
                if not words:
                    continue
                weights = [float(prior[v]) for v in words]
                v = words[weighted(weights, uniform(token_bits[4 * i]) * sum(weights))]
                new = draw_alias(model.threshold[v], model.alias[v], token_bits[4 * i + 1])
                if new == old:
                    continue
                ratio = log_likelihood(tokens, new) - log_likelihood(tokens, old)
                ratio += math.log(
                    (count[new] + alpha) * phi[old, v] / ((count[old] + alpha) * phi[new, v])
                )
                if math.log(uniform(token_bits[4 * i + 2])) < ratio:
                    old = new
            topics[u] = old
            for i in tokens:
                words = vectors[i]
                weights = [phi[old, v] for v in words]
                rest = [v for v in range(n_words) if v not in set(words)]
                left = base * max(0.0, 1 - sum(phi[old, v] for v in words))
                target = uniform(token_bits[4 * i + 3]) * (sum(weights) + left)
                if target < sum(weights):
                    v = words[weighted(weights, target)]
                else:
                    target = (target - sum(weights)) / base
                    v = rest[weighted([phi[old, v] for v in rest], target)]
                counts[old, v] += 1
    return topics, counts


def vectors_of(tokens):
    return [tokens.word[a:b].tolist() for a, b in itertools.pairwise(tokens.ptr)]


def make_corpus(n_words=9, seed=0, longest=4):
    rng = np.random.default_rng(seed)
    documents = [
        [rng.integers(n_words, size=rng.integers(1, longest + 1)).tolist() for _ in range(n)]
        for n in (3, 0, 1, 5, 2)
    ]
    return SentenceCorpus.from_lists(documents, n_words)


@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_kernel_is_its_twin(epsilon, sentences, monkeypatch):
    monkeypatch.setattr("dplda.federated._tokens.BLOCK_TOKENS", 12)
    corpus = make_corpus()
    corpus = corpus if sentences else corpus._split()
    tokens = privatize(corpus, randomized_bits(epsilon), Streams(bytes(32), seeded=True))
    assert len(tokens.blocks()) > 1
    vectors = vectors_of(tokens)
    n_components, rng = 3, np.random.default_rng(1)
    model = Topics.from_weights(rng.gamma(0.5, size=(n_components, corpus.n_words)))
    prior = rng.random(corpus.n_words).astype(np.float32)
    mine = np.full(tokens.n_units, -1, np.int32)
    other, total = mine.copy(), 0
    for _ in range(40):
        unit_bits = rng.integers(0, 2**64, 2 * tokens.n_units, dtype=np.uint64)
        token_bits = rng.integers(0, 2**64, 4 * tokens.n_tokens, dtype=np.uint64)
        counts = np.zeros((n_components, corpus.n_words), np.int32)
        for block in tokens.blocks():
            first, last = (int(tokens.document_ptr[d]) for d in block)
            a, b = tokens.unit_ptr[first], tokens.unit_ptr[last]
            of_tokens, ptr = slice(4 * a, 4 * b), tokens.ptr[a : b + 1]
            _metropolis.sweep(
                tokens.document_ptr[block[0] : block[1] + 1], tokens.unit_ptr, first, last, mine,
                ptr - ptr[0], tokens.word[ptr[0] : ptr[-1]], base_of(tokens),
                model.phi, model.threshold, model.alias, prior, 0.3,
                unit_bits[2 * first : 2 * last], token_bits[of_tokens], counts,
                np.empty(n_components, np.int32), np.empty(n_components),
                np.empty(n_components, np.int64),
            )  # fmt: skip
        other, expected = twin(
            tokens.document_ptr, tokens.unit_ptr, other, vectors,
            base_of(tokens), model, prior, 0.3, unit_bits, token_bits,
        )  # fmt: skip
        assert_array_equal(mine, other)
        assert_array_equal(counts, expected)
        total += counts.sum()
    assert total == 40 * tokens.n_tokens


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_alias_tables_hold_their_weights(n):
    rng = np.random.default_rng(n)
    weight = rng.gamma(0.2, size=(30, n)).astype(np.float32) + np.float32(1e-30)
    threshold, alias = np.empty(weight.shape, np.uint32), np.empty(weight.shape, np.int32)
    _metropolis.build_alias(weight, threshold, alias, np.empty(n), np.empty(n, np.int32))
    chances = threshold / 2.0**32
    for row in range(30):
        share = np.bincount(alias[row], 1 - chances[row], n) + chances[row]
        expected = weight[row] / weight[row].sum(dtype=float)
        np.testing.assert_allclose(share / n, expected, atol=1e-7)


def target_law(tokens, phi, alpha):
    """Probabilities of all assignments of topics to the units of one document, and words."""
    n_components, n_words = phi.shape
    ratio = np.full((tokens.n_tokens, n_words), base_of(tokens))
    for i, words in enumerate(vectors_of(tokens)):
        ratio[i, words] = 1
    mixture = ratio @ phi.T  # of each token, in each topic
    law = {}
    for topics in itertools.product(range(n_components), repeat=tokens.n_units):
        weight, count = 1.0, [0] * n_components
        for k, (a, b) in zip(topics, itertools.pairwise(tokens.unit_ptr)):
            weight *= (count[k] + alpha) * mixture[a:b, k].prod()
            count[k] += 1
        law[topics] = weight
    total = sum(law.values())
    word_law = [phi * ratio[i] for i in range(tokens.n_tokens)]  # given the topic
    return {t: w / total for t, w in law.items()}, [w / w.sum(1, keepdims=True) for w in word_law]


def chi_square(observed, expected):
    """p-value; cells of small expectation are put together."""
    order = np.argsort(expected)
    observed, expected = np.asarray(observed)[order], np.asarray(expected)[order]
    small = np.cumsum(expected) < 10
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    return chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1)


@pytest.mark.parametrize("sentences", [[[0], [1], [2], [0]], [[0, 1], [2], [3, 0, 0]]], ids=str)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_stationary_law_is_the_target(epsilon, sentences):
    """Thousands of equal documents, far from their start: their states are independent draws."""
    one = SentenceCorpus.from_lists([sentences], 5)
    tokens = privatize(one, randomized_bits(epsilon), Streams(bytes(range(32)), seeded=True))
    n, alpha = 10000, 0.4
    rng = np.random.default_rng(2)
    table = rng.gamma(0.7, size=(3, 5)) + 0.05
    phi = Topics.from_weights(table).phi.astype(float)
    law, word_law = target_law(tokens, phi, alpha)

    ptr = np.concatenate([[0], np.cumsum(np.tile(np.diff(tokens.ptr), n))])
    unit_ptr = np.concatenate([[0], np.cumsum(np.tile(np.diff(tokens.unit_ptr), n))])
    document_ptr = np.arange(n + 1) * tokens.n_units
    many = Tokens(document_ptr, unit_ptr, ptr, np.tile(tokens.word, n), 5, tokens.flip)
    topics = np.full(many.n_units, -1, np.int32)
    streams = Streams(bytes(31) + b"\7", seeded=True)
    for t in range(40):
        counts = sweep_tokens(
            many, topics, table, np.ones(5), doc_topic_prior=alpha, streams=streams, t=t
        )
    states = topics.reshape(n, -1) @ 3 ** np.arange(tokens.n_units)[::-1]
    observed = np.bincount(states, minlength=3**tokens.n_units)
    expected = n * np.array(list(law.values()))
    assert chi_square(observed, expected) > 1e-6
    assert chi_square(np.roll(observed, 1), expected) < 1e-6  # the test sees a difference
    # the words, given the topics that were drawn
    unit = np.repeat(np.arange(tokens.n_units), np.diff(tokens.unit_ptr))
    mean = np.zeros((3, 5))
    for i, u in enumerate(unit):
        drawn = np.bincount(topics.reshape(n, -1)[:, u], minlength=3)
        mean += drawn[:, None] * word_law[i]
    np.testing.assert_allclose(counts, mean, atol=6 * np.sqrt(mean.max()))
    assert chi_square(counts.ravel(), mean.ravel()) > 1e-6
