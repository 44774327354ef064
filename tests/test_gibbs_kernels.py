"""The sampling kernels with live counts: right law, and they count what they draw."""

from functools import partial

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from reference import DOCUMENTS, N_WORDS, random_words

from dplda.kernels import _gibbs

SIZES = [1, 2, 7, 8, 9, 20, 33]


def on_copies(sweep, word, doc_ptr, topics, counts, totals, *rest):
    topics, counts, totals = topics.copy(), counts.copy(), totals.copy()
    scratch = np.full((4, counts.shape[1]), np.nan, np.float32)
    sweep(word, doc_ptr, topics, counts, totals, *rest, scratch)
    return topics, counts, totals


collapsed = partial(on_copies, _gibbs.collapsed_sweep)
beside = partial(on_copies, _gibbs.background_sweep)


def unassigned(word):
    return np.full(len(word), -1, np.int32)


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_sweeps_count_what_they_draw(documents, n_components):
    word, doc_ptr = reference.corpus_of(documents)
    state = (
        unassigned(word),
        np.zeros((N_WORDS, reference.padded(n_components)), np.int32),
        np.zeros(n_components, np.int64),
    )
    for seed in range(4):
        state = collapsed(
            word, doc_ptr, *state, 0.1, 0.01, random_words(len(word), seed)
        )
        topics, counts, totals = state
        recount = np.zeros_like(counts)
        np.add.at(recount, (word, topics), 1)
        assert_array_equal(counts, recount)
        assert_array_equal(totals, counts.sum(axis=0)[:n_components])


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_background_sweep_without_background_is_the_collapsed_one(
    documents, n_components
):
    word, doc_ptr = reference.corpus_of(documents)
    shape = N_WORDS, reference.padded(n_components + 1)
    prior = np.zeros(shape, np.float32)
    prior[:, :n_components] = 0.25  # sums are exact
    sizes, background = (
        prior.sum(axis=0)[:n_components].astype(float),
        np.zeros(N_WORDS, "f4"),
    )
    start = (
        unassigned(word),
        np.zeros(shape, np.int32),
        np.zeros(n_components, np.int64),
    )
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
    for counts, table in (
        (before, prior),
        (0 * before, prior + before.astype(np.float32)),
    ):
        sizes = table.sum(axis=0)[:n_components].astype(float)
        totals = counts.sum(axis=0)[:n_components].astype(np.int64)
        start = unassigned(word), counts, totals
        results.append(beside(word, doc_ptr, *start, table, sizes, *rest))
    (topics, counts, totals), (again, added, _) = results
    assert_array_equal(topics, again)
    assert_array_equal(counts, added + before)
    assert_array_equal(totals, counts.sum(axis=0)[:n_components])
    assert (topics == n_components).any() or not len(word)


@pytest.mark.parametrize(
    ("documents", "n_components"),
    [([[0, 1, 1], [0, 2]], 3), ([[0, 1], [1]], 9)],
    ids=["5 tokens", "9 topics"],
)
def test_collapsed_chain_has_the_exact_posterior(documents, n_components):
    n_draws, thinning = 40_000, 6
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
