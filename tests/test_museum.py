"""The museum: planted verdicts at small sizes, private variants, its page's figures."""

import dp_nmf
import fdptm
import numpy as np
import pytest
import spectral
import topicdp


@pytest.mark.parametrize("last_sweep", [fdptm.shared_noise, fdptm.noise_of_each_topic])
def test_fdptm_tells_how_often_each_word_occurs(last_sweep):
    rng = np.random.default_rng(0)
    X = [rng.integers(12, size=5) for _ in range(8)]
    totals = fdptm.word_totals(fdptm.fit(X, 30, 0.01, rng, last_sweep))
    np.testing.assert_allclose(
        totals, np.bincount(np.concatenate(X), minlength=30), atol=1e-6
    )


@pytest.mark.parametrize("common", [False, True])
def test_fdptm_worlds_are_told_apart_at_a_small_epsilon(common):
    """Also by a word that others have, as all words of a private vocabulary do."""
    assert fdptm.worlds_told_apart(n_runs=2, epsilon=0.1, common=common) == 2


def test_noisy_counts_are_not_refuted_and_fdptm_is():
    lines = fdptm.audit(n_canaries=60, n_docs=3)
    for line in lines:
        assert line.refuted == (
            line.release.startswith("FDPTM") and line.claimed < 3
        ), line


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_one_document_moves_the_unwhitener_beyond_its_declared_sensitivity(alpha):
    n_docs = 10**6
    values = np.linalg.eigvalsh(
        spectral.moments(spectral.corpus(n_docs, True), alpha)[0]
    )[::-1]
    # the gap
    assert spectral.sensitivity_2(n_docs, alpha) < (values[1] - values[2]) / 2
    change = spectral.change_of_unwhitener(n_docs, alpha)
    assert change > 30 * spectral.sensitivity_2(n_docs, alpha)
    assert change == pytest.approx(
        spectral.change_of_unwhitener(100 * n_docs, alpha) * 10, rel=0.01
    )


def test_noise_of_the_repository_is_refuted_and_noise_on_moments_is_not():
    for line in spectral.audit(n_runs=100):
        assert line.refuted == line.release.endswith("as in the repository"), line


def test_the_start_of_documents_is_refuted_and_a_public_one_is_not():
    for line in dp_nmf.audit(n_docs=600, n_canaries=60, epochs=2):
        assert line.refuted == (line.release == "DP-NMF, as in the notebook"), line


def test_a_sampled_sensitivity_misses_a_rare_user():
    sampled, true, covered = topicdp.sensitivities(n_repeats=5)
    assert true > 50 * sampled
    assert covered < 0.5


@pytest.mark.slow
def test_figures_of_the_text():
    assert fdptm.worlds_told_apart() == 20
    assert [round(dp_nmf.claimed_epsilon(1500, e), 1) for e in (0.5, 0.999)] == [
        43.1,
        118.0,
    ]
    sampled, true, covered = topicdp.sensitivities()
    assert (round(sampled, 4), round(true, 3), round(covered, 3)) == (
        0.0034,
        0.617,
        0.005,
    )
