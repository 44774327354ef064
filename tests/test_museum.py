"""The museum: planted verdicts at small sizes, private variants, and figures of its page."""

import math

import cdp_lda
import dp_nmf
import fdptm
import lower_bounds
import numpy as np
import pytest
import scipy.sparse as sp
import spectral
import topicdp

from dplda.privacy import Gaussian, Repeated, epsilon_of

AUDITED = {
    "CDP-LDA": cdp_lda, "FDPTM": fdptm, "Spectral LDA": spectral, "DP-NMF": dp_nmf,
    "TopicDP": topicdp,
}  # fmt: skip


# bounds


def test_worlds_of_one_law_are_not_told_apart():
    rng = np.random.default_rng(0)
    for _ in range(4):
        absent, present = rng.normal(size=(2, 200))
        assert lower_bounds.from_two_worlds(absent, present, 1e-5) < 1


def test_the_second_half_of_the_runs_does_not_choose_the_event():
    absent, present = np.zeros(200), np.ones(200)
    assert lower_bounds.from_two_worlds(absent, present, 0.0) == pytest.approx(
        lower_bounds._bound(absent[100:], present[100:], 0.5, 0.0)
    )
    # thresholds that are equally good in the first half: one of them is taken, whatever follows
    absent[100:] = present[100:] = np.linspace(0, 1, 100)
    assert lower_bounds.from_two_worlds(absent, present, 0.0) == 0.0


def test_sure_guesses_of_coins_give_the_largest_bound():
    coins = np.arange(100) % 3 == 0
    sure = lower_bounds.from_coins(coins.astype(float), coins, 0.0)
    assert 3 < sure < math.log(100 / 3)
    assert lower_bounds.from_coins(np.arange(100.0), coins, 0.0) == 0.0


# FDPTM


@pytest.mark.parametrize("last_sweep", [fdptm.shared_noise, fdptm.noise_of_each_topic])
@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_fdptm_tells_how_often_each_word_occurs(last_sweep, epsilon):
    rng = np.random.default_rng(0)
    X = [rng.integers(12, size=5) for _ in range(8)]
    totals = fdptm.word_totals(fdptm.fit(X, 30, epsilon, rng, last_sweep))
    np.testing.assert_allclose(totals, np.bincount(np.concatenate(X), minlength=30), atol=1e-6)


@pytest.mark.parametrize("common", [False, True])
def test_fdptm_worlds_are_told_apart_at_a_small_epsilon(common):
    """Also by a word that other documents have, as all words of a private vocabulary do."""
    assert fdptm.worlds_told_apart(n_runs=2, epsilon=0.1, common=common) == 2


def test_noisy_counts_are_not_refuted_and_fdptm_is():
    lines = fdptm.audit(n_canaries=60, n_docs=3)
    for line in lines:
        assert line.refuted == (line.release.startswith("FDPTM") and line.claimed < 3), line


# spectral LDA


def random_documents(rng, n_docs):
    return [rng.multinomial(4, rng.dirichlet([0.3] * 3)) for _ in range(n_docs)]


def test_sensitivities_of_the_moments_hold():
    rng = np.random.default_rng(0)
    for alpha in (0.05, 1.0, 20.0):
        for n_docs in (2, 3):
            first = random_documents(rng, n_docs)
            second = [*first[:-1], *random_documents(rng, 1)]
            (a2, a3, _), (b2, b3, _) = (
                spectral.moments([(1, c) for c in docs], alpha) for docs in (first, second)
            )
            assert np.linalg.norm(a2 - b2) <= spectral.sensitivity_2(n_docs, alpha)
            assert np.linalg.norm(a3 - b3) <= spectral.sensitivity_3(n_docs, alpha)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_one_document_moves_the_unwhitener_beyond_its_declared_sensitivity(alpha):
    n_docs = 10**6
    values = np.linalg.eigvalsh(spectral.moments(spectral.corpus(n_docs, True), alpha)[0])[::-1]
    assert spectral.sensitivity_2(n_docs, alpha) < (values[1] - values[2]) / 2  # the gap
    change = spectral.change_of_unwhitener(n_docs, alpha)
    assert change > 30 * spectral.sensitivity_2(n_docs, alpha)
    assert change == pytest.approx(
        spectral.change_of_unwhitener(100 * n_docs, alpha) * 10, rel=0.01
    )


def test_noise_of_the_repository_is_refuted_and_noise_on_moments_is_not():
    for line in spectral.audit(n_runs=100):
        assert line.refuted == line.release.endswith("as in the repository"), line


# DP-NMF


def test_the_claim_of_dp_nmf_covers_its_releases():
    for epochs in (1, 10, 200):
        releases = Repeated(Gaussian(dp_nmf.noise_multiplier()), 2 * epochs)
        assert epsilon_of(releases, dp_nmf.DELTA) <= dp_nmf.claimed_epsilon(epochs)


def test_a_fixed_number_of_steps_keeps_documents_apart():
    rng = np.random.default_rng(0)
    V = dp_nmf.corpus(np.ones(3), 30, rng)
    other = sp.csc_array(sp.hstack([V[:, [1]], V[:, 1:]]))
    W, H = map(dp_nmf.within_ball, dp_nmf.public_start(V))
    first, second = (dp_nmf.weights_of_documents(docs, W, H, 20) for docs in (V, other))
    np.testing.assert_array_equal(first[:, 1:], second[:, 1:])
    assert (first[:, 0] != second[:, 0]).any()


def test_the_start_of_documents_is_refuted_and_a_public_one_is_not():
    for line in dp_nmf.audit(n_docs=600, n_canaries=60, epochs=2):
        assert line.refuted == (line.release == "DP-NMF, as in the notebook"), line


# TopicDP


def test_a_sampled_sensitivity_misses_a_rare_user():
    sampled, true, covered = topicdp.sensitivities(n_repeats=5)
    assert true > 50 * sampled
    assert covered < 0.5


@pytest.mark.slow
def test_figures_of_the_text():
    assert fdptm.worlds_told_apart() == 20
    assert [round(dp_nmf.claimed_epsilon(1500, e), 1) for e in (0.5, 0.999)] == [43.1, 118.0]
    sampled, true, covered = topicdp.sensitivities()
    assert (round(sampled, 4), round(true, 3), round(covered, 3)) == (0.0034, 0.617, 0.005)
