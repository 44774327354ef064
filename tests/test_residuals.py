"""Residual checks: planted faults that guesses miss are found, and sound fits pass."""

import math

import numpy as np
import pytest
from faults import FAULTS
from shared_cases import AUDITED, ROUNDS
from sklearn.base import clone

from dplda import HDPLDA, LPLDA, PrivateSVILDA, SubLDA, load_release, save_release
from dplda.audit import audit_epsilon, noise_of_release, residual_check
from dplda.datasets import make_topic_corpus
from dplda.privacy import Ledger

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning",
    "ignore::dplda.privacy.PrivacyLeakWarning",
    "ignore::dplda.privacy.LowSignalWarning",
)


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(30, 30, 2, random_state=0).data


# faults, an estimator that has them, and the line that shows them

FOUND = [
    ("half_the_gaussian_noise", "SubLDA", "variance of the noise"),
    ("half_the_laplace_noise", "HDPLDA", "variance of the noise"),
    ("noise_three_percent_too_small", "PrivateNMF", "variance of the noise"),
    ("no_gaussian_noise", "PrivateSVILDA", "variance of the noise"),
    ("noise_on_observed_words_only", "SubLDA", "variance of the noise"),
    ("noise_repeats_in_each_round", "SubLDA, boost", "at any lag"),
    ("noise_repeats_in_each_round", "HDPLDA", "at any lag"),
    ("rounds_begin_in_the_stream_of_the_first", "SubLDA", "at any lag"),
    ("neighbors_share_noise", "SubLDA", "at any lag"),
    ("gaussian_noise_is_stated_twice", "SubLDA", "do not cover"),
    ("word_totals_are_not_stated", "SubLDA", "do not cover"),
    ("documents_are_clipped_too_wide", "SubLDA", "a document changes, over"),
    ("documents_are_clipped_a_little_too_wide", "SubLDA", "a document changes, over"),
    ("word_totals_count_twice", "SubLDA", "a document changes, over"),
    ("a_replaced_word_moves_one_cell", "HDPLDA", "a word changes"),
    ("each_round_has_the_same_sample", "PrivateSVILDA", "samples again"),
    ("everybody_takes_part", "SubLDA, boost", "a round samples"),
    ("sums_count_the_unsampled", "PrivateSVILDA", "must not change"),
    ("contributions_read_others", "SubLDA", "a document changes"),
    ("components_hold_raw_counts", "SubLDA", "do not determine"),
    ("components_hold_raw_counts", "HDPLDA", "do not determine"),
]


@pytest.mark.ci
@pytest.mark.parametrize(("fault", "name", "line"), FOUND)
def test_planted_faults_are_found(fault, name, line, X, monkeypatch):
    FAULTS[fault].plant(monkeypatch)
    result = residual_check(AUDITED[name], X, random_state=0)
    assert line in " | ".join(check.name for check in result.failures), str(result)
    assert "not as declared" in str(result)


# found by no line but these
UNSEEN = [
    ("a_constant_key", "SubLDA", {"noise occurs twice", "in any order"}),
    ("one_unit_is_clipped_too_wide", "SubLDA", {"adds alone"}),
    (
        "a_release_has_the_noise_of_the_one_before_in_another_order",
        "SubLDA",
        {"in any order"},
    ),
    ("a_bare_cell_in_every_fifth_release", "SubLDA", {"one cell has no noise"}),
]


@pytest.mark.ci
@pytest.mark.parametrize(("fault", "name", "lines"), UNSEEN)
def test_faults_that_one_kind_of_test_finds(fault, name, lines, X, monkeypatch):
    FAULTS[fault].plant(monkeypatch)
    failures = residual_check(AUDITED[name], X, random_state=0).failures
    assert failures
    assert all(any(line in check.name for line in lines) for check in failures)


@pytest.mark.ci
@pytest.mark.parametrize(
    "fault", ["no_gaussian_noise", "documents_are_clipped_too_wide"]
)
def test_audits_find_what_their_guesses_cannot_see(fault, X, monkeypatch):
    """At an epsilon of 20, which is above the ceiling of the bounds."""
    FAULTS[fault].plant(monkeypatch)
    result = audit_epsilon(SubLDA(2, epsilon=20.0, **ROUNDS), X, random_state=0)
    assert not result.exceeds_claim
    assert result.refuted
    assert "the fit is not what the claim rests on" in str(result)


@pytest.mark.parametrize("name", AUDITED)
def test_sound_estimators_pass(name, X):
    result = residual_check(AUDITED[name], X)
    assert result.passed, str(result)
    variance = result.checks[0]
    assert variance.high - variance.low < 0.07  # of 50,000 cells


@pytest.mark.parametrize(
    "model",
    [
        SubLDA(3, epsilon=1.0, max_iter=1),
        SubLDA(2, noise_multiplier=3.0, max_iter=3, prior_components=np.ones((2, 30))),
        PrivateSVILDA(2, noise_multiplier=2.0, subsampling_ratio=0.001, max_iter=3),
        HDPLDA(2, noise_epsilon=30.0, count_clip=1.0, topic_word_prior=1.0, max_iter=2),
        SubLDA(2, epsilon=4.0),
    ],
    ids=["one round", "first table", "few members", "little noise", "default rounds"],
)
def test_corner_cases_pass(model, X):
    result = residual_check(model, X, random_state=1)
    assert result.passed, str(result)


def test_a_check_is_one_charged_fit_that_a_seed_repeats(X):
    ledger = Ledger()
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger)
    one = residual_check(model, X, random_state=0)
    assert len(ledger.entries()) == 1
    assert not hasattr(model, "components_")
    assert one.checks[:6] == residual_check(model, X, random_state=0).checks[:6]


def test_what_cannot_be_watched_is_refused(X):
    with pytest.raises(ValueError, match="LPLDA has no curator to watch"):
        residual_check(LPLDA(2), X)
    with pytest.raises(ValueError, match="adds no noise with epsilon=inf"):
        residual_check(SubLDA(2, epsilon=math.inf), X)
    with pytest.raises(ValueError, match="Negative values"):
        residual_check(AUDITED["SubLDA"], -X)


# what a published model says of its noise, without documents

NOISY = SubLDA(2, epsilon=4.0, max_iter=4)
V = 2000


@pytest.mark.parametrize(
    ("model", "with_users"),
    [
        (NOISY, False),
        (NOISY, True),
        (clone(NOISY).set_params(n_components=1), False),
        (PrivateSVILDA(2, epsilon=4.0, max_iter=4, subsampling_ratio=0.5), False),
        (clone(NOISY).set_params(subsampling_ratio=0.3, boost=2.0), False),
        (
            clone(NOISY).set_params(prior_components=np.ones((2, V)) + np.eye(2, V)),
            False,
        ),
        (
            clone(NOISY).set_params(
                word_vectors=np.cos(np.outer(np.arange(V), range(8)))
            ),
            False,
        ),
    ],
)
def test_a_model_of_one_curator_has_one_share_of_noise(model, with_users, tmp_path):
    X = make_topic_corpus(n_docs=200, n_words=V, n_components=2, random_state=0).data
    users = np.arange(200) // 3 if with_users else None
    model = clone(model).set_params(random_state=0).fit(X, user_ids=users)
    found = noise_of_release(model)
    assert found.low < found.shares < found.high
    assert found.shares == pytest.approx(1, abs=5 * math.sqrt(2 / V))
    save_release(model, tmp_path / "model")
    assert noise_of_release(load_release(tmp_path / "model")) == found


def test_without_noise_the_sums_hold_next_to_nothing(monkeypatch):
    """What a document adds sums to zero over topics, up to rounding."""
    FAULTS["no_gaussian_noise"].plant(monkeypatch)
    X = make_topic_corpus(2000, 200, 4, random_state=0).data
    for model in (
        clone(NOISY).set_params(n_components=4),
        PrivateSVILDA(4, epsilon=4.0),
    ):
        assert 0 < noise_of_release(model.fit(X)).shares < 1e-4


def test_half_of_the_noise_is_a_quarter_of_a_share(monkeypatch):
    FAULTS["half_the_gaussian_noise"].plant(monkeypatch)
    X = make_topic_corpus(n_docs=200, n_words=V, n_components=2, random_state=0).data
    found = noise_of_release(NOISY.fit(X))
    assert found.shares == pytest.approx(0.25, abs=0.06)
    assert found.high < 1


@pytest.mark.parametrize(
    "model",
    [HDPLDA(2, epsilon=4.0, max_iter=2), SubLDA(2, epsilon=math.inf, max_iter=2)],
)
def test_other_models_have_no_sums_that_are_noise(model, X, tmp_path):
    save_release(model.fit(X), tmp_path / "model")
    for one in (model, load_release(tmp_path / "model")):
        with pytest.raises(
            ValueError, match=f"this {type(model).__name__} has no row sums"
        ):
            noise_of_release(one)
