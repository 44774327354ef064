"""The sampling kernels with live counts: they draw from the right law, and count what they draw."""

from functools import partial

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from reference import DOCUMENTS, N_WORDS, random_words

from dplda.core._fold_in import pad
from dplda.kernels import _gibbs

SIZES = [1, 2, 7, 8, 9, 20, 33]


def on_copies(sweep, word, doc_ptr, topics, counts, totals, *rest):
    """A kernel's topics, counts and topic sizes."""
    topics, counts, totals = topics.copy(), counts.copy(), totals.copy()
    scratch = np.full((4, counts.shape[1]), np.nan, np.float32)
    sweep(word, doc_ptr, topics, counts, totals, *rest, scratch)
    return topics, counts, totals


collapsed = partial(on_copies, _gibbs.collapsed_sweep)
noisy = partial(on_copies, _gibbs.noisy_sweep)
beside = partial(on_copies, _gibbs.background_sweep)


def unassigned(word):
    return np.full(len(word), -1, np.int32)


def noisy_sizes(counts, word_noise):
    """Sizes of the topics; a negative noisy count is read as zero."""
    return np.maximum(counts + word_noise.astype(float), 0).sum(axis=0)


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize("scale", [0.0, 0.3, 40.0])
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
def test_sweeps_count_what_they_draw(documents, scale, n_components):
    """And without noise the noisy sweep is the collapsed one."""
    word, doc_ptr = reference.corpus_of(documents)
    rng = np.random.default_rng(n_components)
    noise = [
        pad(np.rint(256 * rng.laplace(0, scale, (n, n_components))) / 256)
        for n in (N_WORDS, len(documents))
    ]
    counts = np.zeros((N_WORDS, reference.padded(n_components)), np.int32)
    state = unassigned(word), counts, noisy_sizes(counts, noise[0])[:n_components]
    plain = unassigned(word), counts, np.zeros(n_components, np.int64)
    for seed in range(4):
        rest = 0.1, 0.01, random_words(len(word), seed)
        state = noisy(word, doc_ptr, *state, *noise, *rest)
        plain = collapsed(word, doc_ptr, *plain, *rest)
        for (topics, counts, totals), own in ((state, noise[0]), (plain, 0 * noise[0])):
            recount = np.zeros_like(counts)
            np.add.at(recount, (word, topics), 1)
            assert_array_equal(counts, recount)
            assert_array_equal(totals, noisy_sizes(counts, own)[:n_components])
        if scale == 0:
            for ours, theirs in zip(state, plain):
                assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n_components", [3, 9])
def test_noisy_draws_have_the_stated_law(n_components):
    """Two tokens of one document: the second draw reads the noise and what the first changed."""
    alpha, beta, n = 0.8, 0.6, 20_000
    rng = np.random.default_rng(n_components)
    word_noise, doc_noise = (pad(rng.laplace(0, 3, (k, n_components))) for k in (3, 1))
    counts = pad(rng.integers(0, 9, (3, n_components)), np.int32)
    counts[0, 1] += 1  # the first token, in topic 1; the second has none yet
    word, doc_ptr = np.array([0, 2], np.int32), np.array([0, 2])

    def law(word, counts, doc_counts):
        weight = np.maximum(counts[word] + word_noise[word], 0) + beta
        weight = weight * (np.maximum(doc_noise[0] + doc_counts, 0) + alpha)
        weight = (weight / (noisy_sizes(counts, word_noise) + 3 * beta))[:n_components]
        return weight / weight.sum()

    unit = np.eye(counts.shape[1], dtype=np.int32)
    without = counts - np.outer([1, 0, 0], unit[1])
    first = law(0, without, 0)
    expected = [
        first[k] * law(2, without + np.outer([1, 0, 0], unit[k]), unit[k])
        for k in range(n_components)
    ]
    start = np.array([1, -1], np.int32), counts, noisy_sizes(counts, word_noise)[:n_components]
    bits = rng.integers(0, 2**64, (n, 2), dtype=np.uint64)
    drawn = np.array([
        noisy(word, doc_ptr, *start, word_noise, doc_noise, alpha, beta, some)[0] for some in bits
    ])  # fmt: skip
    found = np.bincount(drawn @ [n_components, 1], minlength=n_components**2)
    assert reference.chi_square(found, expected) > 1e-6


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
