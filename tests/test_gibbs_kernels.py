"""The sampling kernels: equal to plain twins draw for draw, of the right law, and private."""

from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import dplda._gibbs as gibbs
from dplda._corpus import Corpus
from dplda._fold_in import pad
from dplda._gibbs import LARGEST_WEIGHT, IntegerTable, count_words, draw_topics, smallest_weight
from dplda.kernels import _gibbs
from dplda.privacy._streams import Purpose, Streams

SIZES = [1, 2, 7, 8, 9, 20, 33]
N_WORDS = 11
LAST = 2**64 - 1
DOCUMENTS = {
    "several": [[0, 3, 3, 10], [], [5], [], [], [1, 2, 1, 1, 9, 0, 4, 4], [10] * 12, []],
    "one token": [[7]],
    "only empty ones": [[], []],
    "none": [],
}


def random_words(n, seed=0):
    """Words of which every fourth is the smallest or the largest there is."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**64, n, dtype=np.uint64)
    words[::8], words[4::8] = 0, LAST
    return words


def random_table(n_components, *, largest, n_words=N_WORDS, seed=0, zeros=False):
    """Integer weights from 1 (or 0) to `largest`, of all orders of magnitude."""
    rng = np.random.default_rng(seed)
    table = np.exp(rng.uniform(0, np.log(largest), (n_words, n_components))).astype(np.uint32)
    if zeros:
        table[rng.random(table.shape) < 0.4] = 0
        table[np.arange(n_words), rng.integers(n_components, size=n_words)] = largest
    return IntegerTable(pad(table, np.uint32), rng.uniform(0.01, 1, n_components))


def collapsed(word, doc_ptr, topics, counts, totals, alpha, beta, bits):
    """The kernel on copies, as its twin."""
    topics, counts, totals = topics.copy(), counts.copy(), totals.copy()
    scratch = np.full((4, counts.shape[1]), np.nan, np.float32)
    _gibbs.collapsed_sweep(word, doc_ptr, topics, counts, totals, alpha, beta, bits, scratch)
    return topics, counts, totals


def noisy(word, doc_ptr, topics, counts, totals, *rest):
    """The kernel on copies, as its twin."""
    topics, counts, totals = topics.copy(), counts.copy(), totals.copy()
    scratch = np.full((4, counts.shape[1]), np.nan, np.float32)
    _gibbs.noisy_sweep(word, doc_ptr, topics, counts, totals, *rest, scratch)
    return topics, counts, totals


def beside(word, doc_ptr, topics, counts, totals, *rest):
    """`background_sweep` on copies."""
    topics, counts, totals = topics.copy(), counts.copy(), totals.copy()
    scratch = np.full((4, counts.shape[1]), np.nan, np.float32)
    _gibbs.background_sweep(word, doc_ptr, topics, counts, totals, *rest, scratch)
    return topics, counts, totals


def frozen(word, doc_ptr, topics, table, alpha, bits, spare):
    """The kernel on a copy of `topics`, as its twin."""
    topics = topics.copy()
    n_components = len(table.topic_scale)
    used = _gibbs.frozen_sweep(
        word, doc_ptr, topics, table.weight, table.topic_scale, alpha, bits, spare,
        np.zeros(table.weight.shape[1], np.uint32), np.full(n_components, -7, np.int32),
    )  # fmt: skip
    return topics, used


def unassigned(word):
    return np.full(len(word), -1, np.int32)


def half_assigned(word, n_components):
    topics = (np.arange(len(word)) % n_components).astype(np.int32)
    topics[::2] = -1
    return topics


def repeated(document, n):
    """`n` copies of a document: as many independent draws of a frozen sweep."""
    word = np.tile(np.array(document, np.int32), n)
    return word, np.arange(0, len(word) + 1, len(document), dtype=np.int64)


# ---------------------------------------------------------------- collapsed sweep


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_collapsed_sweep_equals_its_twin(documents, n_components):
    word, doc_ptr = reference.corpus_of(documents)
    state = (
        unassigned(word),
        np.zeros((N_WORDS, reference.padded(n_components)), np.int32),
        np.zeros(n_components, np.int64),
    )
    for seed in range(4):
        rest = 0.1, 0.01, random_words(len(word), seed)
        expected = reference.collapsed_sweep(word, doc_ptr, *state, *rest)
        state = collapsed(word, doc_ptr, *state, *rest)
        for ours, theirs in zip(state, expected):
            assert_array_equal(ours, theirs)
    topics, counts, totals = state
    recount = np.zeros_like(counts)
    np.add.at(recount, (word, topics), 1)
    assert_array_equal(counts, recount)
    assert_array_equal(totals, recount.sum(axis=0)[:n_components])


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("scale", [0.0, 0.3, 40.0])
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_noisy_sweep_equals_its_twin(documents, scale, n_components):
    word, doc_ptr = reference.corpus_of(documents)
    rng = np.random.default_rng(n_components)
    noise = [
        pad(np.rint(256 * rng.laplace(0, scale, (n, n_components))) / 256)
        for n in (N_WORDS, len(documents))
    ]
    counts = np.zeros((N_WORDS, reference.padded(n_components)), np.int32)
    sizes = reference.noisy_sizes(counts, noise[0])[:n_components]
    state = unassigned(word), counts, sizes
    plain = unassigned(word), counts, np.zeros(n_components, np.int64)
    for seed in range(4):
        rest = 0.1, 0.01, random_words(len(word), seed)
        expected = reference.noisy_sweep(word, doc_ptr, *state, *noise, *rest)
        state = noisy(word, doc_ptr, *state, *noise, *rest)
        for ours, theirs in zip(state, expected):
            assert_array_equal(ours, theirs)
        plain = collapsed(word, doc_ptr, *plain, *rest)
        if scale == 0:
            for ours, theirs in zip(state, plain):
                assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_background_sweep_without_background_is_the_collapsed_one(documents, n_components):
    word, doc_ptr = reference.corpus_of(documents)
    shape = N_WORDS, reference.padded(n_components + 1)
    prior = np.zeros(shape, np.float32)
    prior[:, :n_components] = 0.25  # sums are exact
    sizes, background = prior.sum(axis=0)[:n_components].astype(float), np.zeros(N_WORDS, "f4")
    start = unassigned(word), np.zeros(shape, np.int32), np.zeros(n_components, np.int64)
    ours = theirs = start
    for seed in range(4):
        bits = random_words(len(word), seed)
        ours = beside(word, doc_ptr, *ours, prior, sizes, background, 0.1, bits)
        theirs = collapsed(word, doc_ptr, *theirs, 0.1, 0.25, bits)
        for a, b in zip(ours, theirs):
            assert_array_equal(a, b)


@pytest.mark.parametrize("n_components", SIZES)
def test_background_sweep_reads_counts_as_prior(n_components):
    """Counts that do not move, and the same numbers in the prior, are the same."""
    word, doc_ptr = reference.corpus_of(next(iter(DOCUMENTS.values())))
    shape = N_WORDS, reference.padded(n_components + 1)
    rng = np.random.default_rng(0)
    before, prior = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    before[:, :n_components] = rng.integers(0, 9, (N_WORDS, n_components))
    prior[:, :n_components] = 0.5
    background = rng.random(N_WORDS).astype(np.float32)
    rest = background, 0.1, random_words(len(word), 1)
    results = []
    for counts, table in ((before, prior), (0 * before, prior + before.astype(np.float32))):
        sizes = table.sum(axis=0)[:n_components].astype(float)
        totals = counts.sum(axis=0)[:n_components].astype(np.int64)
        start = unassigned(word), counts, totals
        results.append(beside(word, doc_ptr, *start, table, sizes, *rest))
    (topics, counts, totals), (again, added, _) = results
    assert_array_equal(topics, again)
    assert_array_equal(counts, added + before)
    assert_array_equal(totals, counts.sum(axis=0)[:n_components])
    assert (topics == n_components).any() or not len(word)


def test_background_sweep_draws_the_background_with_its_probability():
    """One token of weight alpha * beta / (V beta) for each topic, beside the background."""
    n, n_components, alpha, rate = 20_000, 3, 0.5, 0.2
    doc_ptr, word = np.arange(n + 1, dtype=np.int64), np.zeros(n, np.int32)
    prior = np.zeros((4, 8), np.float32)
    prior[:, :n_components] = 1e6  # so much that the counts do not matter
    sizes, background = np.full(n_components, 4e6), np.full(4, rate, np.float32)
    start = unassigned(word), np.zeros((4, 8), np.int32), np.zeros(n_components, np.int64)
    bits = np.random.default_rng(0).integers(0, 2**64, n, dtype=np.uint64)
    topics, counts, _ = beside(word, doc_ptr, *start, prior, sizes, background, alpha, bits)
    expected = rate / (rate + n_components * alpha / 4)
    assert (topics == n_components).mean() == pytest.approx(expected, abs=5 * 0.5 / n**0.5)
    assert counts[0, n_components] == (topics == n_components).sum()


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("bits", [0, 1, 2**41 - 1, 2**63, LAST])
def test_collapsed_sweep_draws_existing_topics_from_extreme_words(n_components, bits):
    """Even where one topic has nearly all the weight and rounding swallows the others."""
    rng = np.random.default_rng(1)
    word = np.arange(N_WORDS, dtype=np.int32)
    counts = pad(10 ** rng.integers(0, 8, (N_WORDS, n_components)), np.int32)
    totals = counts[:, :n_components].sum(axis=0, dtype=np.int64)
    doc_ptr = np.arange(N_WORDS + 1, dtype=np.int64)
    words = np.full(N_WORDS, bits, np.uint64)
    arguments = word, doc_ptr, unassigned(word), counts, totals, 1e-3, 1e-3, words
    topics, counts, _ = collapsed(*arguments)
    assert_array_equal(topics, reference.collapsed_sweep(*arguments)[0])
    assert topics.min() >= 0
    assert topics.max() < n_components
    assert not counts[:, n_components:].any()


@pytest.mark.parametrize("lane", range(2, 8))
def test_rounding_past_the_last_topic_steps_back_to_it(lane):
    """Words at the end of a lane, where sums in different order may disagree; 18 of 32 topics."""
    rng = np.random.default_rng(lane)
    word, doc_ptr = reference.corpus_of([[0]])
    totals = np.ones(18, np.int64)
    for _ in range(100):
        counts = pad(rng.integers(0, 2**30, (1, 18)), np.int32)
        lanes = pad(counts[:, :18] + 1.0, np.float64).reshape(-1, 8).sum(axis=0)
        end = int(2**23 * lanes[: lane + 1].sum() / lanes.sum())
        for bits in range(end - 2, min(end + 2, 2**23)):
            arguments = word, doc_ptr, unassigned(word), counts, totals, 1.0, 1.0, [bits << 41]
            topic = collapsed(*arguments[:-1], np.array([bits << 41], np.uint64))[0]
            assert topic < 18
            assert topic == reference.collapsed_sweep(*arguments)[0]


def test_topic_counts_of_a_document_do_not_drift():
    """In single precision (alpha + 41) - 41 is 0 for this alpha, and topic 0 would be lost."""
    alpha, beta = 1e-6, 1e-9
    word, doc_ptr = reference.corpus_of([[0] * 40 + [1]])
    counts = pad(np.array([[40, 10**6], [10**6, 0]]), np.int32)
    totals = counts.sum(axis=0, dtype=np.int64)[:2]
    bits = np.append(np.full(40, LAST, np.uint64), np.uint64(2**63))
    topics, _, _ = collapsed(
        word, doc_ptr, np.zeros(41, np.int32), counts, totals, alpha, beta, bits
    )
    assert_array_equal(topics, [1] * 40 + [0])


@pytest.mark.parametrize(
    ("documents", "n_components"),
    [([[0, 1, 1], [0, 2]], 3), ([[0, 1], [1]], 9)],
    ids=["5 tokens", "9 topics"],
)
def test_collapsed_chain_has_the_exact_posterior(documents, n_components):
    n_draws, thinning = 100_000, 6
    alpha, beta = 0.8, 0.6
    states, law = reference.collapsed_posterior(documents, 3, n_components, alpha, beta)
    word, doc_ptr = reference.corpus_of(documents)
    topics = unassigned(word)
    counts = np.zeros((3, reference.padded(n_components)), np.int32)
    totals = np.zeros(n_components, np.int64)
    scratch = np.empty((4, counts.shape[1]), np.float32)
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**64, (n_draws, thinning, len(word)), dtype=np.uint64)
    drawn = np.empty((n_draws, len(word)), np.int32)
    for draw, rounds in zip(drawn, bits):
        for some in rounds:
            _gibbs.collapsed_sweep(
                word, doc_ptr, topics, counts, totals, alpha, beta, some, scratch
            )
        draw[:] = topics
    index = np.ravel_multi_index(drawn.T, [n_components] * len(word))
    assert states[1] == (0,) * (len(word) - 1) + (1,)
    assert reference.chi_square(np.bincount(index, minlength=len(law)), law) > 1e-6


@pytest.mark.parametrize("n_components", [37, 200])
def test_collapsed_draws_have_their_conditional_law(n_components):
    """One-token documents on top of counts so large that they hardly change."""
    n, alpha, beta = 200_000, 0.1, 0.01
    rng = np.random.default_rng(6)
    counts = pad(rng.integers(0, 2**22, (2, n_components)), np.int32)
    totals = counts.sum(axis=0, dtype=np.int64)[:n_components]
    law = (counts[0, :n_components] + beta) / (totals + 2 * beta)
    word, doc_ptr = repeated([0], n)
    bits = rng.integers(0, 2**64, n, dtype=np.uint64)
    topics, _, _ = collapsed(word, doc_ptr, unassigned(word), counts, totals, alpha, beta, bits)
    observed = np.bincount(topics, minlength=n_components)
    assert reference.chi_square(observed, law / law.sum()) > 1e-6


# ---------------------------------------------------------------- frozen sweep: twin


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("largest", [1, 3, LARGEST_WEIGHT, 2**32 - 1])
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_frozen_sweep_equals_its_twin(documents, largest, n_components):
    word, doc_ptr = reference.corpus_of(documents)
    table = random_table(n_components, largest=largest)
    start, topics = half_assigned(word, n_components), unassigned(word)
    for seed, alpha in enumerate([1e-9, 0.1, 50.0, 0.1, 0.1]):
        rest = alpha, random_words(len(word), seed), random_words(200, seed=9)
        ours = frozen(word, doc_ptr, topics, table, *rest)
        twin = reference.frozen_sweep(word, doc_ptr, topics, table.weight, table.topic_scale, *rest)
        assert_array_equal(ours[0], twin[0])
        assert ours[1] == twin[1]
        topics = start if seed == 1 else ours[0]


@pytest.mark.parametrize("n_components", [*SIZES, 200])
@pytest.mark.parametrize("bits", [0, 1, 2**63, LAST])
def test_frozen_sweep_draws_topics_of_positive_weight(n_components, bits):
    table = random_table(n_components, largest=LARGEST_WEIGHT, zeros=True)
    word = np.arange(N_WORDS, dtype=np.int32)
    doc_ptr = np.array([0, N_WORDS])
    words, spare = np.full(N_WORDS, bits, np.uint64), np.full(N_WORDS, LAST, np.uint64)
    topics, used = frozen(word, doc_ptr, unassigned(word), table, 0.1, words, spare)
    assert 0 <= used <= N_WORDS
    assert topics.min() >= 0
    assert topics.max() < n_components
    assert (table.weight[word, topics] > 0).all()


def test_largest_sums_do_not_overflow():
    n_components = gibbs.MAX_COMPONENTS
    weight = np.full((1, n_components), LARGEST_WEIGHT, np.uint32)
    table = IntegerTable(weight, np.ones(n_components))
    word, doc_ptr = reference.corpus_of([[0, 0]])
    start, alpha = unassigned(word), 1e12
    rest = alpha, random_words(2, seed=2), random_words(10, seed=3)
    twin = reference.frozen_sweep(word, doc_ptr, start, weight, table.topic_scale, *rest)
    assert_array_equal(frozen(word, doc_ptr, start, table, *rest)[0], twin[0])


def test_rejected_words_are_replaced_by_spare_ones():
    """Word 0 is rejected unless the sum of the weights is a power of two."""
    table = IntegerTable(pad(np.array([[3, 2, 2]]), np.uint32), np.ones(3))
    word, doc_ptr = reference.corpus_of([[0], [0, 0]])
    bits = np.array([0, 5 << 60, 0], np.uint64)
    spare = np.array([0, 0, LAST, 0, 2**40 + 1, 7], np.uint64)
    for n_spare, used in [(0, -1), (2, -1), (3, -1), (4, -1), (5, 5), (6, 5)]:
        topics, n = frozen(word, doc_ptr, unassigned(word), table, 1.0, bits, spare[:n_spare])
        assert n == used
    twin = reference.frozen_sweep(
        word, doc_ptr, unassigned(word), table.weight, table.topic_scale, 1.0, bits, spare
    )
    assert_array_equal(topics, twin[0])
    assert twin[1] == 5


def test_sweep_starts_again_with_more_spare_words_and_draws_the_same():
    """A sum of weights just above 2**63 rejects nearly half of all words."""
    n_components = 138
    weight = np.full((1, n_components), 2**32 - 1, np.uint32)
    table = IntegerTable(pad(weight, np.uint32), np.ones(n_components))
    word, doc_ptr = repeated([0, 0], 300)
    corpus, streams = Corpus(word, doc_ptr, 1), Streams.from_random_state(3)
    start, alpha = unassigned(word), 1e6
    topics = draw_topics(corpus, start, table, doc_topic_prior=alpha, streams=streams, t=9)
    bits = streams.words(Purpose.TOPICS, 9, 0, 600)
    spare = streams.words(Purpose.TOPICS, 9, 0, 5000, spare=True)
    assert_array_equal(topics, frozen(word, doc_ptr, start, table, alpha, bits, spare)[0])
    assert frozen(word, doc_ptr, start, table, alpha, bits, spare[: 64 + 600 // 64])[1] == -1


# ---------------------------------------------------------------- frozen sweep: law


@pytest.mark.parametrize("words", [[0, 1], [1, 1]], ids=["different", "equal"])
@pytest.mark.parametrize(("n_components", "n"), [(37, 400_000), (200, 1_000_000)])
def test_joint_law_of_a_two_token_document(n_components, n, words):
    table = table_of_counts(n_components, seed=n_components)
    second, alpha = 5, 0.1
    law = reference.frozen_pair(words, second, table.weight, table.topic_scale, alpha)
    topics = np.tile(np.array([11, second], np.int32), n)
    drawn = many_draws(words, topics, table, alpha, n).reshape(n, 2)
    index = drawn[:, 0] * law.shape[1] + drawn[:, 1]
    assert reference.chi_square(np.bincount(index, minlength=law.size), law) > 1e-6


@pytest.mark.parametrize("n_components", [1, 7, 37, 200, 2048])
def test_one_step_law_given_the_other_tokens(n_components):
    """The last of five tokens; the others are held by tables that allow them one topic only."""
    n, alpha = 400_000, 0.1
    table = table_of_counts(n_components, n_words=5, seed=n_components)
    others = [k % n_components for k in (3, 3, 36, 5)]
    for w, k in enumerate(others):
        table.weight[w] = 0
        table.weight[w, k] = 1
    drawn = many_draws(range(5), np.full(5 * n, -1, np.int32), table, alpha, n).reshape(n, 5)
    assert (drawn[:, :4] == others).all()
    law = reference.frozen_conditional(4, others, 5, table.weight, table.topic_scale, alpha)
    observed = np.bincount(drawn[:, 4], minlength=len(law))
    if n_components > 1:
        assert reference.chi_square(observed, law) > 1e-6
    assert observed[law == 0].sum() == 0


@pytest.mark.parametrize("words", [[0, 1], [1, 1]], ids=["different", "equal"])
def test_sweeps_keep_the_posterior_under_a_fixed_table(words):
    """From exact draws of theta's marginal law, six sweeps later: integer weights lose nothing."""
    n_components, n, alpha = 37, 400_000, 0.1
    table = table_of_counts(n_components, seed=8)
    phi = table.weight[words, :n_components] * table.topic_scale
    law = phi[0][:, None] * phi[1] * (alpha + np.eye(n_components))
    law /= law.sum()
    rng = np.random.default_rng(9)
    index = rng.choice(law.size, size=n, p=law.ravel())
    topics = np.stack(np.divmod(index, n_components), axis=1).astype(np.int32).ravel()
    for seed in range(6):
        topics = many_draws(words, topics, table, alpha, n, seed=seed)
    index = topics[::2] * n_components + topics[1::2]
    assert reference.chi_square(np.bincount(index, minlength=law.size), law) > 1e-6


def table_of_counts(n_components, *, n_words=3, seed):
    rng = np.random.default_rng(seed)
    counts = rng.gamma(0.5, 20.0, (n_words, n_components))
    return IntegerTable.from_counts(counts, count_clip=100.0, prior=0.5)


def many_draws(document, topics, table, alpha, n, *, seed=0):
    word, doc_ptr = repeated(document, n)
    rng = np.random.default_rng([4, seed])
    bits = rng.integers(0, 2**64, len(word), dtype=np.uint64)
    spare = rng.integers(0, 2**64, len(word) // 8, dtype=np.uint64)
    drawn, used = frozen(word, doc_ptr, topics, table, alpha, bits, spare)
    assert used >= 0
    return drawn


# ---------------------------------------------------------------- privacy of the draws

priors = st.floats(1e-6, 1e3)
clip_ratios = st.floats(1e-6, LARGEST_WEIGHT / 64)
noisy_counts = st.one_of(
    st.integers(-(2**62), 2**62),
    st.integers(-5, 50),
    st.floats(-1e18, 1e18),
    st.floats(-10, 10),
)


@settings(deadline=None)
@given(st.lists(noisy_counts, min_size=12, max_size=12), priors, clip_ratios)
def test_weights_of_two_words_differ_at_most_by_the_stated_factor(counts, prior, clip_ratio):
    count_clip = prior * clip_ratio
    counts = np.array(counts, float).reshape(4, 3)
    counts[0], counts[1] = -1e300, 1e300  # both ends of the clip are there
    table = IntegerTable.from_counts(counts, count_clip, prior)
    limit = Fraction(count_clip) / Fraction(prior) + 1
    for column in table.weight[:, :3].T.tolist():
        assert Fraction(max(column), min(column)) <= limit
        assert 1 <= min(column) <= max(column) == LARGEST_WEIGHT
    assert not table.weight[:, 3:].any()
    assert ((table.topic_scale > 0) & (table.topic_scale <= 1)).all()


@settings(deadline=None)
@given(priors, clip_ratios)
def test_an_empty_cell_is_rounded_up_by_less_than_one(prior, clip_ratio):
    count_clip = prior * clip_ratio
    exact = Fraction(prior) / (Fraction(prior) + Fraction(count_clip)) * LARGEST_WEIGHT
    assert 0 <= smallest_weight(count_clip, prior) - exact < 1


def test_table_stands_for_clipped_counts_and_prior():
    counts = np.array([[-3.0, 4.0], [2.5, 90.0], [10.0, 0.0]])
    table = IntegerTable.from_counts(counts, count_clip=10.0, prior=0.5)
    expected = np.array([[0.5, 4.5], [3.0, 10.5], [10.5, 0.5]]) * LARGEST_WEIGHT / 10.5
    np.testing.assert_allclose(table.weight[:, :2], expected, rtol=1e-7)
    sizes = expected.sum(axis=0)
    np.testing.assert_allclose(table.topic_scale, sizes.min() / sizes, rtol=1e-7)


def test_every_topic_stays_possible():
    """However small the prior: a document weight of zero would make a topic tell everything."""
    table = IntegerTable(np.ones((1, 8), np.uint32), np.full(8, 1e-6))
    word, doc_ptr = repeated([0], 8)
    bits = np.arange(1, 17, 2, dtype=np.uint64) << np.uint64(60)
    topics, _ = frozen(word, doc_ptr, unassigned(word), table, 1e-30, bits, bits)
    assert_array_equal(topics, range(8))


@pytest.mark.parametrize("n_components", [2, 9, 20])
@pytest.mark.parametrize("position", range(4))
def test_document_weights_do_not_depend_on_the_word_they_serve(n_components, position):
    """The word of one token forces its topic k; all c but c[k], which moves on, then agree."""
    weight = random_table(n_components, largest=1000).weight[:4]
    forcing = np.eye(n_components, weight.shape[1], dtype=np.uint32)
    table = IntegerTable(np.vstack([forcing, weight]), np.linspace(0.3, 1, n_components))
    others = np.arange(n_components, n_components + 4, dtype=np.int32)
    seen = np.empty((n_components, n_components))
    for k in range(n_components):
        word = others[: position + 1].copy()
        word[position] = k
        topics = half_assigned(word, n_components)
        c, count = np.zeros(weight.shape[1], np.uint32), np.zeros(n_components, np.int32)
        used = _gibbs.frozen_sweep(
            word, np.array([0, len(word)]), topics, table.weight, table.topic_scale, 0.1,
            np.arange(1, 5, dtype=np.uint64) << np.uint64(61), random_words(100), c, count,
        )  # fmt: skip
        assert used >= 0
        assert topics[position] == k
        seen[k] = c[:n_components]
        seen[k, k] = np.nan
    assert_array_equal(np.nanmin(seen, axis=0), np.nanmax(seen, axis=0))


# ---------------------------------------------------------------- calls, blocks, jobs


@pytest.fixture(scope="module")
def big_corpus():
    """Some 150 000 tokens, hence three blocks, with empty documents in between."""
    rng = np.random.default_rng(10)
    lengths = rng.integers(0, 120, 2500)
    lengths[rng.random(2500) < 0.1] = 0
    doc_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    word = rng.integers(0, N_WORDS, doc_ptr[-1]).astype(np.int32)
    return Corpus(word, doc_ptr, N_WORDS)


def test_jobs_change_nothing_and_arguments_stay(big_corpus):
    table = random_table(20, largest=LARGEST_WEIGHT)
    topics = half_assigned(big_corpus.word, 20)
    arguments = topics, table.weight, table.topic_scale, big_corpus.word, big_corpus.doc_ptr
    before = [array.copy() for array in arguments]
    results = [
        draw_topics(
            big_corpus, topics, table, doc_topic_prior=0.1, t=3, n_jobs=n_jobs,
            streams=Streams.from_random_state(0),
        )
        for n_jobs in (1, 2, None)
    ]  # fmt: skip
    assert_array_equal(results[0], results[1])
    assert_array_equal(results[0], results[2])
    assert results[0].min() >= 0
    for array, copy in zip(arguments, before):
        assert_array_equal(array, copy)


def test_blocks_and_rounds_have_random_words_of_their_own(big_corpus):
    table = IntegerTable(pad(np.ones((N_WORDS, 20)), np.uint32), np.ones(20))
    streams = Streams.from_random_state(0)
    n = len(big_corpus.blocks(gibbs.BLOCK_TOKENS)[1].word)
    first = big_corpus.blocks(gibbs.BLOCK_TOKENS)[0].n_tokens
    one, other = (
        draw_topics(
            big_corpus, unassigned(big_corpus.word), table, doc_topic_prior=1e9,
            streams=streams, t=t,
        )
        for t in (1, 2)
    )  # fmt: skip
    assert 0.04 < (one == other).mean() < 0.06
    assert 0.04 < (one[:n] == one[first : first + n]).mean() < 0.06


@pytest.mark.parametrize("cut", [0, 1, 3, 7, 60, 2500])
def test_splitting_a_sweep_at_any_document_changes_nothing(big_corpus, cut):
    table = random_table(9, largest=LARGEST_WEIGHT)
    word, doc_ptr = big_corpus.word, big_corpus.doc_ptr
    bits, start = random_words(len(word)), half_assigned(word, 9)
    spare = random_words(len(word), seed=1)
    whole, used = frozen(word, doc_ptr, start, table, 0.1, bits, spare)
    parts = []
    for ptr in (doc_ptr[: cut + 1], doc_ptr[cut:]):
        span = slice(ptr[0], ptr[-1])
        drawn, n = frozen(word[span], ptr - ptr[0], start[span], table, 0.1, bits[span], spare)
        spare = spare[n:]
        parts.append(drawn)
    assert used > 0
    assert_array_equal(np.concatenate(parts), whole)


def test_empty_corpus_is_swept():
    corpus = Corpus(np.zeros(0, np.int32), np.zeros(4, np.int64), N_WORDS)
    streams = Streams.from_random_state(0)
    table = random_table(3, largest=5)
    topics = unassigned(corpus.word)
    drawn = draw_topics(corpus, topics, table, doc_topic_prior=0.1, streams=streams, t=1)
    assert drawn.shape == (0,)
    assert streams.n_words == 0


@pytest.mark.parametrize("n_components", SIZES)
def test_count_words_counts_assigned_tokens(big_corpus, n_components):
    topics = half_assigned(big_corpus.word, n_components)
    expected = np.zeros((N_WORDS, n_components), np.int64)
    for w, k in zip(big_corpus.word[:5000], topics[:5000]):
        expected[w, k] += k >= 0
    few = Corpus(big_corpus.word[:5000], np.array([0, 5000]), N_WORDS)
    assert_array_equal(count_words(few, topics[:5000], n_components), expected)


def test_count_words_adds_to_what_is_there():
    counts = np.full((2, 1), 2**40)
    _gibbs.count_words(np.array([1, 1], np.int32), np.zeros(2, np.int32), counts)
    assert_array_equal(counts, [[2**40], [2**40 + 2]])
