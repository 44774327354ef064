"""Topic draws under a fixed table: exactly the stated law, on all instruction sets.

The draws are private.
"""

import itertools
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import reference
import twins
from numpy.testing import assert_array_equal
from reference import DOCUMENTS, LAST, N_WORDS, random_words

import dplda.gibbs._frozen_table as gibbs
from dplda.core._corpus import Corpus
from dplda.gibbs._frozen_table import HalfTable, draw_topics, pieces_of
from dplda.kernels import _frozen
from dplda.privacy._streams import Purpose

TOP = 0x7BFF  # the bits of 65504
SIZES = [1, 2, 16, 17, 33, 128, 192, 193, 300]


def table_of(bits):
    """A table from the bits of halves (n_words, n_components)."""
    n_words, n_components = np.shape(bits)
    half = np.zeros((n_words, -(-n_components // 16) * 16), np.uint16)
    half[:, :n_components] = bits
    return HalfTable(half, n_components)


def random_table(n_components, *, largest=TOP, n_words=N_WORDS, seed=0):
    rng = np.random.default_rng(seed)
    return table_of(rng.integers(1024, largest, (n_words, n_components), endpoint=True))


def frozen(
    word, doc_ptr, topics, table, alpha, bits, refinement=None, *, tolerance=None
):
    """The kernel on a copy of `topics`, as its twin; count of draws by integers."""
    topics, doc_ptr = topics.copy(), np.asarray(doc_ptr)
    order = np.argsort(-np.diff(doc_ptr), kind="stable")
    if tolerance is None:
        tolerance = _frozen.tolerance(table.half.shape[1])
    n_exact = _frozen.sweep(
        word, doc_ptr, order, topics, table.half, alpha, bits, refinement, tolerance
    )
    return topics, n_exact


def unassigned(word):
    return np.full(len(word), -1, np.int16)


def half_assigned(word, n_components):
    topics = (np.arange(len(word)) % n_components).astype(np.int16)
    topics[::2] = -1
    return topics


def repeated(document, n):
    """`n` copies of a document: as many independent draws."""
    word = np.tile(np.array(document, np.int32), n)
    return word, np.arange(0, len(word) + 1, len(document), dtype=np.int64)


def some_documents(n_docs, n_words, *, seed, longest=12):
    rng = np.random.default_rng(seed)
    doc_ptr = np.concatenate([[0], np.cumsum(rng.integers(0, longest, n_docs))]).astype(
        np.int64
    )
    return rng.integers(0, n_words, doc_ptr[-1]).astype(np.int32), doc_ptr


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_sweep_equals_its_integer_twin(documents, n_components, instruction_set):
    word, doc_ptr = reference.corpus_of(documents)
    table = random_table(n_components)
    topics = half_assigned(word, n_components)
    # down to a prior that rounds to nothing, and up to weights that do not fit into a
    # float
    for seed, alpha in enumerate([1e-30, 0.1, 2.0**24 - 12, 2.0**24 - 8, 1e7, 1e9]):
        rest = alpha, random_words(len(word), seed), random_words(len(word), seed=9)
        twin = twins.frozen_sweep(word, doc_ptr, topics, table.half, *rest)
        topics, n_exact = frozen(word, doc_ptr, topics, table, *rest)
        assert_array_equal(topics, twin)
        assert 0 <= n_exact <= len(word)


@pytest.mark.parametrize("tolerance", [None, 1e-3, 1.0])
@pytest.mark.parametrize("n_components", [20, 100, 500])
def test_topics_do_not_depend_on_which_draws_integers_decide(
    n_components, tolerance, instruction_set
):
    """A tolerance of 1 leaves all draws to them."""
    word, doc_ptr = some_documents(50, N_WORDS, seed=1)
    table = HalfTable.from_counts(
        np.random.default_rng(2).gamma(0.1, 20.0, (N_WORDS, n_components)), 1e4, 0.01
    )
    rest = (
        0.1,
        *np.random.default_rng(3).integers(0, 2**64, (2, len(word)), dtype=np.uint64),
    )
    topics = half_assigned(word, n_components)
    drawn, n_exact = frozen(word, doc_ptr, topics, table, *rest, tolerance=tolerance)
    assert_array_equal(
        drawn, twins.frozen_sweep(word, doc_ptr, topics, table.half, *rest)
    )
    if tolerance is None:
        assert n_exact < 0.05 * len(word)
    else:
        assert (n_exact == len(word)) == (tolerance == 1.0)


def ends_of_intervals(table, alpha):
    """For one-token documents of word 0: topics, each with its least 128-bit number."""
    weight = twins.half_integers(table.half)[0]
    c = twins.document_weights([0], 1, alpha)[0]
    order = [
        k for k in sorted(range(len(weight)), key=lambda k: (k % 16, k)) if weight[k]
    ]
    begins = list(itertools.accumulate((weight[k] * c for k in order), initial=0))
    total = begins.pop()
    return order, [-(-(begin << 128) // total) for begin in begins]


def two_words(numbers):
    """128-bit numbers as first words and refinements."""
    return tuple(np.array([[n >> 64, n & LAST] for n in numbers], np.uint64).T.copy())


@pytest.mark.parametrize("n_components", [1, 2, 16, 37, 200, 2048])
@pytest.mark.parametrize("largest", [1024, 1500, TOP])
def test_a_topic_has_its_share_of_all_uniform_numbers(
    n_components, largest, instruction_set
):
    """Numbers of 128 bits: both ends of each topic's share, its probability up to 1."""
    table = random_table(n_components, largest=largest, n_words=1)
    order, first = ends_of_intervals(table, 0.1)
    last = [number - 1 for number in [*first[1:], 1 << 128]]
    word, doc_ptr = repeated([0], len(order))
    for numbers in (first, last):
        drawn, _ = frozen(
            word, doc_ptr, unassigned(word), table, 0.1, *two_words(numbers)
        )
        assert_array_equal(drawn, order)
    weight = twins.half_integers(table.half)[0]
    for k, begin, end in zip(order, first, last):
        assert abs(end + 1 - begin - Fraction(weight[k] << 128, sum(weight))) < 1


def test_a_word_that_leaves_two_topics_possible_asks_for_a_refinement(instruction_set):
    table = random_table(37, n_words=1)
    order, first = ends_of_intervals(table, 0.1)
    bits, refinement = two_words(first[1:])
    assert (refinement > 0).all()  # so that the first word alone does not decide
    word, doc_ptr = repeated([0], len(bits))
    start = unassigned(word)
    assert frozen(word, doc_ptr, start, table, 0.1, bits)[1] == -1
    for words, topics in [
        (refinement, order[1:]),
        (refinement - np.uint64(1), order[:-1]),
    ]:
        assert_array_equal(
            frozen(word, doc_ptr, start, table, 0.1, bits, words)[0], topics
        )
    for nearby, topics in [
        (bits - np.uint64(1), order[:-1]),
        (bits + np.uint64(1), order[1:]),
    ]:
        drawn, n_exact = frozen(word, doc_ptr, start, table, 0.1, nearby)
        assert n_exact > 0
        assert_array_equal(drawn, topics)


class Words:
    """Stands for streams whose words nearly all leave two topics possible."""

    def __init__(self, words, refinement):
        self.given = words, refinement
        self.asked = []

    def reader(self, purpose, round, block, *, skip=0):
        def words(n, *, spare=False):
            self.asked.append((purpose, round, block, spare))
            return self.given[spare][skip : skip + n]

        return SimpleNamespace(words=words)


@pytest.mark.parametrize("n_tokens", [1 << 17, 80])
def test_a_piece_is_drawn_again_with_refinements(n_tokens, monkeypatch):
    monkeypatch.setattr(gibbs, "BLOCK_TOKENS", n_tokens)
    table = random_table(37, n_words=1)
    order, first = ends_of_intervals(table, 0.1)
    word, doc_ptr = repeated([0], len(order))
    streams = Words(*two_words(first))
    corpus, start = Corpus(word, doc_ptr, 1), half_assigned(word, 37)
    pieces = pieces_of(corpus, 2)
    assert len(pieces) == max(1, -(-len(order) * 4 // n_tokens))
    drawn = draw_topics(pieces, start, table, doc_topic_prior=0.1, streams=streams, t=5)
    assert drawn is start
    assert_array_equal(drawn, order)
    assert set(streams.asked) == {
        (Purpose.TOPICS, 5, 0, False),
        (Purpose.TOPICS, 5, 0, True),
    }
    assert len(streams.asked) == (2 * len(pieces))


def test_every_topic_stays_possible(instruction_set):
    """However small the prior: a zero document weight would make a topic tell all."""
    table = table_of([[1024] * 8])
    word, doc_ptr = repeated([0], 8)
    bits = np.arange(1, 17, 2, dtype=np.uint64) << np.uint64(60)
    topics, _ = frozen(word, doc_ptr, unassigned(word), table, 1e-30, bits)
    assert_array_equal(topics, range(8))


@pytest.mark.parametrize("position", range(4))
def test_a_word_changes_no_draw_of_another_token_but_by_its_topic(
    position, instruction_set
):
    """A token of another word that draws the same topic: all others are the same."""
    rng, n, n_components = np.random.default_rng(position), 3000, 20
    table = random_table(n_components, largest=3000)
    documents = rng.integers(0, N_WORDS, (n, 4)).astype(np.int32)
    changed = documents.copy()
    changed[:, position] = (changed[:, position] + 1) % N_WORDS
    bits = rng.integers(0, 2**64, 4 * n, dtype=np.uint64)
    topics = half_assigned(documents.ravel(), n_components)
    one, other = (
        frozen(words.ravel(), np.arange(0, 4 * n + 1, 4), topics, table, 0.1, bits)[
            0
        ].reshape(n, 4)
        for words in (documents, changed)
    )
    same = one[:, position] == other[:, position]
    assert 0.05 < same.mean() < 0.95
    assert_array_equal(one[same], other[same])
    assert_array_equal(one[:, :position], other[:, :position])
