"""Residual checks: planted faults that guesses of coins miss are found, and sound fits pass."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

from dplda import HDPLDA, LPLDA, PrivateSVILDA, SubLDA
from dplda.audit import (
    AuditResult,
    ResidualResult,
    ResidualTest,
    _noise_tests,
    _sample_tests,
    audit_epsilon,
    residual_check,
)
from dplda.audit._contribution_tests import _units_to_leave_out
from dplda.audit._noise_tests import _chi2_range, noise_tests, normal_scores
from dplda.audit._residual_result import LEVEL
from dplda.audit._sample_tests import _pair_test, _rate_test, sample_tests
from dplda.audit._watch import Record, Step
from dplda.datasets import make_topic_corpus
from dplda.document import _document_lda
from dplda.document._documents import Documents
from dplda.privacy import Gaussian, Ledger, SeededNoiseWarning
from dplda.privacy.mechanisms import Curator, DiscreteGaussian, FlooredLaplace, Purpose, Streams
from dplda.word import _hdplda
from dplda.word._word_sweeps import SweepMechanisms, TokensByWord

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from private_nmf import PrivateNMF

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.PrivacyLeakWarning",
    "ignore::dplda.privacy.PublicPriorWarning",
)  # fmt: skip
ROUNDS = {"delta": 1e-5, "max_iter": 10}
MODELS = {
    "SubLDA": SubLDA(2, epsilon=4.0, **ROUNDS),
    "SubLDA, boost": SubLDA(2, noise_multiplier=1.0, subsampling_ratio=0.3, boost=2.0, **ROUNDS),
    "PrivateSVILDA": PrivateSVILDA(2, noise_multiplier=1.0, max_doc_tokens=30, **ROUNDS),
    "HDPLDA, Laplace": HDPLDA(2, epsilon=4.0, **ROUNDS),
    "HDPLDA, Gaussian": HDPLDA(2, epsilon=4.0, noise="gaussian", **ROUNDS),
    "PrivateNMF": PrivateNMF(2, noise_multiplier=5.0, **ROUNDS),
}
DOCUMENT = ["SubLDA", "SubLDA, boost", "PrivateSVILDA"]


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(n_docs=30, n_words=30, n_components=2, random_state=0).data


def failures(result):
    return " | ".join(test.name for test in result.failures)


# planted faults


def noise_scaled(monkeypatch, factor):
    """Noise times `factor`, in both mechanisms."""
    gaussian, laplace = DiscreteGaussian.add_to, FlooredLaplace.add_to

    def add_gaussian(self, cells, reader, n_jobs=None):
        noise = np.zeros_like(cells)
        gaussian(self, noise, reader)
        cells += np.round(noise * factor).astype(cells.dtype)

    def add_laplace(self, cells, reader, n_jobs=None):
        if factor != 0:
            laplace(FlooredLaplace(self.scale * factor), cells, reader)

    monkeypatch.setattr(DiscreteGaussian, "add_to", add_gaussian)
    monkeypatch.setattr(FlooredLaplace, "add_to", add_laplace)


def noise_on_observed_words_only(monkeypatch):
    for mechanism in (DiscreteGaussian, FlooredLaplace):
        true_add = mechanism.add_to

        def add_to(self, cells, reader, n_jobs=None, true_add=true_add):
            empty = cells == 0
            true_add(self, cells, reader)
            cells[empty] = 0

        monkeypatch.setattr(mechanism, "add_to", add_to)


def same_noise_every_round(monkeypatch):
    true_reader = Streams.reader

    def reader(self, purpose, round, block=0):
        return true_reader(self, purpose, 0 if purpose == Purpose.NOISE else round, block)

    monkeypatch.setattr(Streams, "reader", reader)


def clip_twice_too_wide(monkeypatch):
    true_bound = Documents.clipping_bound

    def clipping_bound(self, mechanism, norm):
        bound, radius = true_bound(self, mechanism, norm)
        return 2 * bound, 2 * radius

    monkeypatch.setattr(Documents, "clipping_bound", clipping_bound)


def counts_twice(monkeypatch):
    true_count = TokensByWord.count
    monkeypatch.setattr(
        TokensByWord, "count", lambda self, topics, unit, *a: true_count(self, topics, 2 * unit, *a)
    )


def one_cell_charged(monkeypatch):
    """The event of one changed cell, though a replaced word changes two."""
    module = sys.modules[SweepMechanisms.__module__]
    monkeypatch.setattr(module, "FlooredLaplace", lambda scale, n_cells: FlooredLaplace(scale))


def constant_members(monkeypatch):
    """Each round draws a sample, and uses that of the first round."""
    true_sample, first = Curator.sample, {}

    def sample(self, rates, *, round):
        drawn = true_sample(self, rates, round=round)
        return first.setdefault((id(self), len(rates)), drawn)

    monkeypatch.setattr(Curator, "sample", sample)


def everybody_takes_part(monkeypatch):
    true_sample = Curator.sample

    def sample(self, rates, *, round):
        true_sample(self, rates, round=round)
        return np.arange(len(rates))

    monkeypatch.setattr(Curator, "sample", sample)


def raw_counts_in_components(monkeypatch):
    for module in (_document_lda, _hdplda):
        true_check, true_publish, seen = module.check_counts, module.publish, []

        def check_counts(*args, true_check=true_check, seen=seen, **options):
            seen.append(true_check(*args, **options))
            return seen[-1]

        def publish(*args, true_publish=true_publish, seen=seen, components_, **attributes):
            components_ = components_ + seen[-1].sum(axis=0)
            true_publish(*args, components_=components_, **attributes)

        monkeypatch.setattr(module, "check_counts", check_counts)
        monkeypatch.setattr(module, "publish", publish)


def sums_of_everybody(monkeypatch):
    """Documents enter the sum of a round whether they were sampled or not."""
    true_sum = Documents.sum_topics

    def sum_topics(self, rows, *args, **options):
        return true_sum(self, np.arange(self.X.shape[0]), *args, **options)

    monkeypatch.setattr(Documents, "sum_topics", sum_topics)


def contributions_that_read_others(monkeypatch):
    """Documents count if the number of those that are not empty is even."""
    true_rescale = Documents.rescale

    def rescale(self, *args, **options):
        true_rescale(self, *args, **options)
        self.scale = self.scale * (np.count_nonzero(np.diff(self.X.indptr)) % 2 == 0)

    monkeypatch.setattr(Documents, "rescale", rescale)


def neighbors_share_noise(monkeypatch):
    """Cells 2 i and 2 i + 1 get the same noise."""
    for mechanism in (DiscreteGaussian, FlooredLaplace):
        true_add = mechanism.add_to

        def add_to(self, cells, reader, n_jobs=None, true_add=true_add):
            noise = np.zeros_like(cells)
            true_add(self, noise, reader)
            cells += noise[np.arange(cells.size) // 2 * 2]

        monkeypatch.setattr(mechanism, "add_to", add_to)


def guarantee_of_more_noise(monkeypatch):
    """The guarantee states twice the noise that was added."""
    for module, name in ((_document_lda, "document_guarantee"), (_hdplda, "make_guarantee")):
        true_guarantee = getattr(module, name)

        def guarantee(events, *, true_guarantee=true_guarantee, **options):
            doubled = [
                Gaussian(2 * e.noise_multiplier) if isinstance(e, Gaussian) else e for e in events
            ]
            return true_guarantee(tuple(doubled), **options)

        monkeypatch.setattr(module, name, guarantee)


CENTRAL = [name for name in MODELS if name != "PrivateNMF"]
FAULTS = {
    "noise divided by 2": (lambda m: noise_scaled(m, 0.5), list(MODELS), "variance of the noise"),
    "noise 3% too small": (lambda m: noise_scaled(m, 0.97), list(MODELS), "variance of the noise"),
    "noise 5% too large": (lambda m: noise_scaled(m, 1.05), list(MODELS), "variance of the noise"),
    "no noise": (lambda m: noise_scaled(m, 0.0), list(MODELS), "without noise"),
    "same noise in every round": (same_noise_every_round, list(MODELS), "of two releases"),
    "noise on observed words only": (noise_on_observed_words_only, list(MODELS), "without noise"),
    "neighbors share noise": (neighbors_share_noise, list(MODELS), "of two cells"),
    "guarantee of more noise": (
        guarantee_of_more_noise,
        ["SubLDA", "HDPLDA, Gaussian"],
        "do not cover",
    ),
    "clip twice too wide": (clip_twice_too_wide, DOCUMENT, "a document changes, over"),
    "counts twice": (counts_twice, ["HDPLDA, Laplace", "HDPLDA, Gaussian"], "a word changes"),
    "one cell charged": (one_cell_charged, ["HDPLDA, Laplace"], "a word changes"),
    "members constant": (constant_members, DOCUMENT[1:], "samples again"),
    "everybody takes part": (everybody_takes_part, DOCUMENT[1:], "a round samples"),
    "sums of everybody": (sums_of_everybody, DOCUMENT[1:], "does not sample it"),
    "contributions read others": (contributions_that_read_others, DOCUMENT, "a document changes"),
    "raw counts in components_": (raw_counts_in_components, CENTRAL, "do not determine"),
}
# each fault in one estimator by default, and in all of them in the slow tests
PLANTED = [
    pytest.param(fault, name, marks=() if name == names[0] else pytest.mark.slow)
    for fault, (_, names, _) in FAULTS.items()
    for name in names
]


@pytest.mark.parametrize(("fault", "name"), PLANTED)
def test_planted_faults_are_found(fault, name, X, monkeypatch):
    plant, _, line = FAULTS[fault]
    plant(monkeypatch)
    result = residual_check(MODELS[name], X, random_state=0)
    assert not result.passed
    assert line in failures(result)
    assert "not as declared" in str(result)
    assert "FAILED" in str(result)


# faults that the bounds of the default audit do not find
MISSED = [
    "noise divided by 2",
    "noise 3% too small",
    "same noise in every round",
    "noise on observed words only",
    "clip twice too wide",
    "raw counts in components_",
]


@pytest.mark.parametrize("fault", MISSED)
def test_audits_find_what_their_bounds_miss(fault, X, monkeypatch):
    FAULTS[fault][0](monkeypatch)
    result = audit_epsilon(MODELS["SubLDA"], X, random_state=0)
    assert not result.exceeds_claim
    assert result.refuted
    assert FAULTS[fault][2] in str(result)
    assert "nothing speaks against" not in str(result)


@pytest.mark.slow
def test_the_table_of_the_docs(monkeypatch, capsys):
    """``pytest -m slow -s -k table_of_the_docs`` prints the table of docs/audits.md."""
    X = make_topic_corpus(n_docs=100, n_words=50, n_components=2, random_state=0).data
    rows = []
    for fault, (plant, names, _) in [("none", (lambda _: None, ["SubLDA"], "")), *FAULTS.items()]:
        name = names[0] if names[0] != "SubLDA, boost" else "PrivateSVILDA"
        with monkeypatch.context() as planted:
            plant(planted)
            result = audit_epsilon(MODELS[name], X, random_state=0)
        found = "; ".join(test.name for test in result.residuals.failures) or "passed"
        bounds = [result.lower_bound, result.bounds[-1].epsilon]
        shown = [f"**{b:.2f}**" if b > result.claim else f"{b:.2f}" for b in bounds]
        rows.append(f"| {fault} | {name} | {result.claim:.2f} | {' | '.join(shown)} | {found} |")
        assert result.refuted == (fault != "none")
    with capsys.disabled():
        print("", *rows, sep="\n")


@pytest.mark.parametrize("fault", ["members constant", "everybody takes part"])
def test_audits_look_at_samples(fault, X, monkeypatch):
    FAULTS[fault][0](monkeypatch)
    assert audit_epsilon(MODELS["PrivateSVILDA"], X, random_state=0).refuted


@pytest.mark.parametrize(
    ("name", "design"),
    [
        ("SubLDA", "one-run"),
        pytest.param("SubLDA", "many-run", marks=pytest.mark.slow),
        ("HDPLDA, Laplace", "one-run"),
        pytest.param("HDPLDA, Laplace", "many-run", marks=pytest.mark.slow),
    ],
)
def test_no_noise_at_all_is_found_at_the_defaults(design, name, X, monkeypatch):
    """The bound of an audit cannot show an epsilon of 20; no noise is found nevertheless."""
    noise_scaled(monkeypatch, 0.0)
    model = type(MODELS[name])(2, epsilon=20.0, **ROUNDS)
    result = audit_epsilon(model, X, design=design, random_state=0)
    assert not result.exceeds_claim
    assert result.refuted
    assert "cells without noise" in str(result)


# sound fits pass


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [0, None])
def test_sound_estimators_pass(name, seed, X):
    result = residual_check(MODELS[name], X, random_state=seed)
    assert result.passed, str(result)
    assert result.n_cells >= 50_000
    assert result.verdict.endswith("are as declared.")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_sound_estimators_pass_for_many_seeds(name, X):
    for seed in range(20):
        result = residual_check(MODELS[name], X, random_state=seed)
        assert result.passed, str(result)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_audits_of_sound_estimators_pass_for_many_seeds(name, X):
    n_canaries = 100 if name == "PrivateNMF" else None  # documents one by one, in Python
    options = {"n_canaries": n_canaries, "confidence": 0.9999}
    for seed in range(20):
        result = audit_epsilon(MODELS[name], X, random_state=seed, **options)
        assert not result.refuted, str(result.residuals)


@pytest.mark.parametrize(
    "model",
    [
        SubLDA(3, epsilon=1.0, max_iter=1),
        SubLDA(2, noise_multiplier=3.0, max_iter=3, prior_components=np.ones((2, 30))),
        PrivateSVILDA(2, noise_multiplier=2.0, subsampling_ratio=0.001, max_iter=3),
        HDPLDA(2, noise_epsilon=30.0, count_clip=1.0, topic_word_prior=1.0, max_iter=2),
    ],
    ids=["one round", "first table", "few members", "little noise"],
)
def test_corner_cases_pass(model, X):
    result = residual_check(model, X, random_state=1)
    assert result.passed, str(result)


def test_what_the_clip_test_could_not_see_is_said(X):
    text = str(residual_check(SubLDA(2, epsilon=4.0, contribution_norm=1e6, **ROUNDS), X))
    assert "no document came near the bound" in text
    assert "no document came near" not in str(residual_check(MODELS["SubLDA"], X, random_state=0))


def test_as_many_releases_as_possible_have_a_left_out_document_of_their_sample(X):
    """A fault may show in one round alone, such as the only one of word-topic counts."""
    rates = np.full(30, 0.2)
    samples = [(rates, np.array(rows)) for rows in ([11], [12, 14], [13], [14, 12])]
    steps = [Step(None, None, None, None, i) for i in [None, *range(4)]]
    chosen = _units_to_leave_out(Record(X, steps, samples))
    assert len(chosen) == 6
    assert {11, 13, 29} < set(chosen)
    assert {12, 14} & set(chosen)


def test_a_check_is_one_charged_fit_and_leaves_the_estimator_alone(X):
    ledger = Ledger()
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger)
    residual_check(model, X, random_state=0)
    assert len(ledger.entries()) == 1
    assert "_rounds" not in vars(model)
    assert not hasattr(model, "components_")


def test_same_seed_same_check(X):
    one, two, other = (residual_check(MODELS["SubLDA"], X, random_state=s) for s in (3, 3, 4))
    assert one == two != other


@pytest.mark.filterwarnings("error::dplda.privacy.SeededNoiseWarning")
def test_the_noise_of_a_secret_key_is_checked_without_a_warning(X):
    assert residual_check(MODELS["HDPLDA, Laplace"], X).passed
    assert SeededNoiseWarning  # of which there is none


def test_what_cannot_be_watched_is_refused(X):
    with pytest.raises(ValueError, match="LPLDA has no curator to watch"):
        residual_check(LPLDA(2), X)
    with pytest.raises(ValueError, match="adds no noise with epsilon=inf"):
        residual_check(SubLDA(2, epsilon=math.inf), X)
    with pytest.raises(ValueError, match="Negative values"):
        residual_check(MODELS["SubLDA"], -X)


# the tests themselves


@pytest.mark.parametrize(
    "mechanism",
    [DiscreteGaussian(1000), FlooredLaplace(0.3), FlooredLaplace(7.0), FlooredLaplace(5e4)],
    ids=str,
)
def test_normal_scores_of_the_declared_noise_are_normal(mechanism):
    streams, rng = Streams.from_random_state(0), np.random.default_rng(0)
    value = rng.integers(-(10**6), 10**6, 20_000)
    noisy = mechanism(value, streams.reader(Purpose.NOISE, 1))
    scores = normal_scores(
        Step(value, noisy, mechanism, mechanism.event, None), rng.uniform(size=value.size)
    )
    assert kstest(scores, "norm").pvalue > 1e-3
    assert abs((scores**2).mean() - 1) < 0.05


def test_normal_scores_are_monotone_and_finite_far_out():
    noise = np.array([-(10**12), -5000, -1, 0, 1, 5000, 10**12])
    for mechanism in (DiscreteGaussian(1000), FlooredLaplace(7.0)):
        step = Step(np.zeros_like(noise), noise, mechanism, mechanism.event, None)
        scores = normal_scores(step, np.full(len(noise), 0.5))
        assert np.isfinite(scores).all()
        assert (np.diff(scores) >= 0).all()
        assert scores[0] < -30
        assert scores[-1] > 30


def test_lines_fail_as_rarely_as_stated(monkeypatch):
    """At a level of 1 in 50, far above the real one, sound noise fails each line about as often."""
    for module in (_noise_tests, _sample_tests):
        monkeypatch.setattr(module, "LEVEL", 0.02)
    rng, n = np.random.default_rng(0), 1000
    failed = [
        [not t.passed for t in noise_tests([rng.normal(size=2000) for _ in range(4)])]
        for _ in range(n)
    ]
    assert (np.mean(failed, axis=0) <= 0.02 + 4 * math.sqrt(0.02 / n)).all()
    assert (np.mean(failed, axis=0)[[0, 1, 3]] >= 0.005).all()
    failed = []
    for _ in range(300):
        rates = np.where(np.arange(400) % 2, 0.1, 0.3)
        drawn = [(rates, np.flatnonzero(rng.uniform(size=400) < rates)) for _ in range(4)]
        failed.append([not t.passed for t in sample_tests(drawn)])
    assert (np.mean(failed, axis=0) <= 0.04).all()


def test_samples_that_never_meet_are_found():
    """Minibatches of one pass over the data are no independent samples."""
    rates = np.full(600, 0.2)
    drawn = [(rates, np.arange(120) + 120 * t) for t in range(5)]
    rate, again = sample_tests(drawn)
    assert rate.passed
    assert not again.passed
    assert again.statistic == 0


def test_rates_of_unequal_coins():
    rates = np.array([0.1] * 50 + [0.9] * 50)
    assert _rate_test("x", rates, rates > 0.5, LEVEL).passed
    assert not _rate_test("x", rates, np.ones(100, bool), LEVEL).passed
    assert _rate_test("x", rates[:0], np.zeros(0, bool), LEVEL).passed
    one = rates, np.zeros(100, bool)
    assert _pair_test(one, one, LEVEL).passed  # nobody to sample again


def test_results_are_frozen_and_speak():
    low, high = _chi2_range(10, LEVEL)
    test = ResidualTest("variance", 1.0, low / 10, high / 10)
    result = ResidualResult("SubLDA", (test, test), 2, 100)
    assert result.passed
    assert result.failures == ()
    with pytest.raises(AttributeError):
        result.name = "other"
    assert str(result).count("\n") == 2
    assert "SubLDA released 100 noisy cells in 2 releases (2 tests" in str(result)


# ceilings


@pytest.mark.parametrize(
    ("options", "ceiling"),
    [
        ({}, 4.73),
        ({"n_runs": 5}, 6.32),
        ({"design": "many-run"}, 2.57),
        ({"n_canaries": 100}, 2.39),
    ],
)
def test_the_ceiling_of_a_design(options, ceiling, X):
    model = LPLDA(2, bit_epsilon=1.0, max_doc_words=1, max_iter=1)
    result = audit_epsilon(model, X, delta=1e-6, random_state=0, **options)
    assert result.ceiling == pytest.approx(ceiling, abs=0.01)
    assert result.lower_bound <= result.ceiling


def test_a_claim_out_of_reach_is_said_to_be(X):
    result = audit_epsilon(SubLDA(2, epsilon=8.0, max_iter=10), X, random_state=0)
    assert result.claim > result.ceiling
    assert "cannot see more than 4.73; noise, samples and model are as declared" in str(result)
    assert "nothing speaks against" not in str(result)
    result = audit_epsilon(LPLDA(2, bit_epsilon=1.0, max_iter=1), X, random_state=0)
    assert str(result).endswith("this audit cannot see more than 4.73.")
    assert result.residuals is None


def test_a_result_without_a_ceiling():
    scores, coins = np.arange(4.0), np.array([False, True, False, True])
    result = AuditResult("X", "a", "one-run", 1.0, math.nan, 0.95, 2.0, 1e-5, scores, coins, 1)
    assert result.ceiling == math.inf
    assert not result.refuted
