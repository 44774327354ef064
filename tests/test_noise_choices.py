"""Exact laws of the random choices that are charged next to the noise: topics and membership.

A draw is a function of a random word. The tests find the words at which its result changes, and
count: every topic, and every document, has exactly as many of the words as is charged.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dplda._fold_in import pad
from dplda._gibbs import LARGEST_WEIGHT
from dplda.kernels import _gibbs
from dplda.privacy import Gaussian, PoissonSampled
from dplda.privacy.mechanisms import Curator

ALPHA = 0.1


def draw_topics(table, topic_scale, bits, spare):
    """Topics of documents of one token of word 0, one for each random word."""
    topics = np.full(len(bits), -1, np.int32)
    used = _gibbs.frozen_sweep(
        np.zeros(len(bits), np.int32), np.arange(len(bits) + 1), topics, table, topic_scale, ALPHA,
        np.array(bits, np.uint64), np.array(spare, np.uint64),
        np.zeros(table.shape[1], np.uint32), np.zeros(len(topic_scale), np.int32),
    )  # fmt: skip
    return topics, used


@pytest.mark.parametrize("n_components", [1, 2, 7, 8, 9, 20, 200])
@pytest.mark.parametrize("largest", [1, 5, LARGEST_WEIGHT], ids="largest {}".format)
def test_a_topic_has_its_share_of_all_words(n_components, largest):
    """A word w selects the integer floor(w T / 2^64) below the sum T of the weights.

    Words of remainder w T mod 2^64 below 2^64 mod T are rejected. Of the others every integer has
    floor(2^64 / T), one run of words; and topics have runs of integers, as long as their weights.
    So it is enough to look at both ends of each topic's words, and at the words between them.
    """
    rng = np.random.default_rng(n_components)
    weight = np.ceil(largest ** rng.random((1, n_components)))
    table, topic_scale = pad(weight, np.uint32), rng.uniform(0.01, 1, n_components)
    c = reference.document_weights([0] * n_components, 1, ALPHA, topic_scale.tolist())
    chances = [int(w) * ck for w, ck in zip(weight[0], c)]
    total = sum(chances)
    accepted, rejected = divmod(2**64, total)

    def first_word(integer):
        return -((-integer * 2**64 - rejected) // total)  # rounded up

    order = sorted(range(n_components), key=lambda k: (k % 8, k))  # in which the kernel adds up
    cumulative = list(itertools.accumulate((chances[k] for k in order), initial=0))
    bits, expected, between = [], [], []
    for k, begin, end in zip(order, cumulative, cumulative[1:]):
        first, last = first_word(begin), first_word(end - 1) + accepted - 1
        bits += [first, last]
        expected += [k, k]
        between += [word for word in (first - 1, last + 1) if word * total % 2**64 < rejected]
    assert bits == sorted(bits)
    assert bits[0] >= 0
    assert bits[-1] < 2**64
    between = [word for word in between if 0 <= word < 2**64]

    topics, used = draw_topics(table, topic_scale, bits, [])
    assert used == 0
    assert_array_equal(topics, expected)
    assert bool(between) == (rejected > 0)
    topics, used = draw_topics(table, topic_scale, between, bits[:1] * len(between))
    assert used == len(between)
    assert (topics == order[0]).all()


class Words:
    """Stands for the streams: gives the words it is told to."""

    def __init__(self, words):
        self.given = np.array(words, np.uint64)
        self.seeded = True

    def words(self, purpose, round, block, n):
        assert n == len(self.given)
        return self.given


@given(st.floats(2.0**-63, 1, exclude_max=True))
def test_a_document_is_in_the_sample_for_its_share_of_all_words(rate):
    """It is in for the words 0, ..., floor(2^64 rate) - 1: the rate charged is not below that."""
    n_in = int(Fraction(rate) * 2**64)
    words = [0, n_in - 1, n_in, 2**64 - 1]
    plan = [("counts", PoissonSampled(rate, Gaussian(1.0)))]
    curator = Curator(plan, Words(words), label="sample", unit="document")
    rows = curator.sample(np.full(4, rate), round=0)
    assert rows.tolist() == [j for j, word in enumerate(words) if word < n_in]
    assert rows.tolist() == [0, 1]
