"""Enumerations of audits: bounds, scores and lines against their stated laws."""

import math

import numpy as np
import pytest
from scipy.stats import kstest
from shared_cases import AUDITED

from dplda import (
    HDPLDA,
)
from dplda.audit import (
    _residuals,
    observe_releases,
    residual_check,
)
from dplda.audit._attacks import WORD, Target, word_ratios
from dplda.audit._audit import bound_of_guesses, one_run_lower_bound
from dplda.audit._replay import Step
from dplda.audit._residuals import (
    LEVEL,
    _rate_check,
    noise_checks,
    normal_scores,
    order_check,
    repeat_check,
    sample_checks,
)
from dplda.datasets import make_topic_corpus
from dplda.document._rules import Rules
from dplda.privacy import Gaussian, epsilon_of
from dplda.privacy._streams import Purpose
from dplda.privacy.mechanisms import DiscreteGaussian, FlooredLaplace, Streams

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning",
    "ignore::dplda.privacy.PrivacyLeakWarning",
    "ignore::dplda.privacy.LowSignalWarning",
)


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(30, 30, 2, random_state=0).data


def test_what_the_clip_test_could_not_see_is_said(X, monkeypatch):
    name = "what a document changes, over the sensitivity"

    def least_change():
        result = residual_check(AUDITED["SubLDA"], X, random_state=0)
        (check,) = (check for check in result.checks if check.name == name)
        return float(check.note.split()[0])

    assert least_change() > 0.99
    loose = lambda self, norm: 1e6 * norm  # noqa: E731
    monkeypatch.setattr(Rules, "bound", loose)
    assert least_change() < 1e-3


def step_of(noise, mechanism):
    return Step("sums", 1, 0 * noise, noise, mechanism, None)


@pytest.mark.parametrize(
    "mechanism",
    [
        DiscreteGaussian(1000),
        FlooredLaplace(0.3),
        FlooredLaplace(7.0),
        FlooredLaplace(5e4),
    ],
    ids=str,
)
def test_normal_scores_of_the_declared_noise_are_normal(mechanism):
    streams, rng = Streams.from_random_state(0), np.random.default_rng(0)
    value = rng.integers(-(10**6), 10**6, 20_000)
    noisy = mechanism(value, streams.reader(Purpose.NOISE, 1))
    scores = normal_scores(
        step_of(noisy - value, mechanism), rng.uniform(size=value.size)
    )
    assert kstest(scores, "norm").pvalue > 1e-3


def test_lines_fail_as_rarely_as_stated(monkeypatch):
    """At a level of 1 in 50, sound noise fails each line about as often.

    The level is far above the real one.
    """
    monkeypatch.setattr(_residuals, "LEVEL", 0.02)
    rng, n = np.random.default_rng(0), 400
    failed = [
        [not t.passed for t in noise_checks([rng.normal(size=2000) for _ in range(4)])]
        for _ in range(n)
    ]
    assert (np.mean(failed, axis=0) <= 0.02 + 4 * math.sqrt(0.02 / n)).all()
    assert np.mean(failed, axis=0).max() >= 0.01
    failed, rates = [], np.where(np.arange(400) % 2, 0.1, 0.3)
    for _ in range(150):
        drawn = [
            (rates, np.flatnonzero(rng.uniform(size=400) < rates)) for _ in range(4)
        ]
        failed.append([not t.passed for t in sample_checks(drawn)])
    assert (np.mean(failed, axis=0) <= 0.06).all()


def test_samples_that_never_meet_are_found():
    """Minibatches of one pass over the data are no independent samples."""
    rates = np.full(600, 0.2)
    rate, again = sample_checks([(rates, np.arange(120) + 120 * t) for t in range(5)])
    assert rate.passed
    assert not again.passed


def test_rates_of_unequal_coins():
    rates = np.array([0.1] * 50 + [0.9] * 50)
    assert _rate_check("x", rates, rates > 0.5, LEVEL).passed
    assert not _rate_check("x", rates, np.ones(100, bool), LEVEL).passed
    assert _rate_check("x", rates[:0], np.zeros(0, bool), LEVEL).passed


@pytest.mark.parametrize("scale", [0.3, 3.0, 500.0])
def test_a_few_dozen_repeated_cells_are_found_and_chance_is_not(scale):
    mechanism = FlooredLaplace(scale)
    reader = Streams.from_random_state(0).reader(Purpose.NOISE, 1)
    noise = mechanism(np.zeros(20_000, np.int64), reader)
    assert repeat_check(
        [step_of(part, mechanism) for part in (noise[:9000], noise[9000:])]
    ).passed
    noise[-200:] = noise[777:977]
    assert not repeat_check([step_of(noise, mechanism)]).passed


@pytest.mark.parametrize("scale", [3.0, 5e4])
def test_noise_in_another_order_is_found_and_chance_is_not(scale, monkeypatch):
    """At a level of 1 in 50: chance fails it no more often."""
    monkeypatch.setattr(_residuals, "LEVEL", 0.02)
    mechanism = FlooredLaplace(scale)
    streams, rng = Streams.from_random_state(0), np.random.default_rng(0)

    def released(round):
        reader = streams.reader(Purpose.NOISE, round)
        return step_of(mechanism(np.zeros(500, np.int64), reader), mechanism)

    sound = [
        order_check([released(4 * run + i) for i in range(4)]).passed
        for run in range(100)
    ]
    assert np.mean(sound) >= 0.98 - 3 * math.sqrt(0.02 / 100)
    steps = [released(1), released(2)]
    steps.append(step_of(-rng.permutation(steps[0].noise), mechanism))
    assert order_check(steps).passed == (scale == 3.0)  # of few values: nothing is seen


DELTA = 1e-5


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "expected"),
    [
        (1000, 1000, 600, 0, 0.2975),
        (1000, 1000, 600, 1e-5, 0.2972),
        (1000, 100, 100, 1e-5, 3.4654),
        (1000, 100, 95, 1e-5, 2.1652),
        (200, 50, 50, 1e-5, 2.7790),
        (1000, 1000, 520, 1e-5, 0.0),
    ],
)
def test_one_run_pins(m, r, v, delta, expected):
    assert one_run_lower_bound(m, r, v, delta=delta) == pytest.approx(
        expected, abs=5e-5
    )


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_bounds_exceed_a_known_epsilon_at_most_as_often_as_stated(mu):
    """Gaussian releases, with the best scores."""
    rng, above, truth = np.random.default_rng(1), 0, epsilon_of(Gaussian(1 / mu), DELTA)
    for _ in range(100):
        coins = rng.random(250) < 0.5
        scores = mu * rng.standard_normal(250) + (coins - 0.5) * mu**2
        above += bound_of_guesses(scores, coins, DELTA, 0.95) > truth
    assert above <= 5 + 3 * math.sqrt(5)


@pytest.mark.parametrize("noise_epsilon", [0.5, 10.0])
def test_no_sweep_shows_more_of_a_word_than_its_price(noise_epsilon, X):
    """The likelihood ratio of each sweep is at most epsilon_L + epsilon_I.

    A sweep has noise and topics.
    """
    model = HDPLDA(
        3,
        noise_epsilon=noise_epsilon,
        count_clip=1.0,
        topic_word_prior=0.2,
        max_iter=6,
        random_state=0,
    )
    target = Target(model, X.shape[1], 500, Streams.from_random_state(0))
    with observe_releases() as releases:
        model.fit(**WORD.plant(target, X, np.arange(500) % 2))
    ratios = word_ratios(target, model, releases)
    for noise, topic in zip(ratios[::2], ratios[1::2]):
        assert 0.3 * noise_epsilon < np.abs(noise).max() <= noise_epsilon * (1 + 1e-9)
        assert np.abs(topic).max() <= model.sampling_epsilon_ * (1 + 1e-9)


@pytest.mark.parametrize("n", [1000, 75451])
def test_correlations_are_those_of_all_lags(n):
    """The transform of 2 n cells has an odd length for some n."""
    scores = np.random.default_rng(0).normal(size=n)
    scores[0] = 1e-3
    found = noise_checks([scores])[-1]
    assert found.name == "correlation of the noise, at any lag"
    lags = [1, 2, n // 2, n - 2, n - 1]
    ratios = [
        scores[:-lag] @ scores[lag:] / np.linalg.norm(scores[: n - lag]) for lag in lags
    ]
    assert abs(found.statistic) >= max(map(abs, ratios)) - 1e-6
    assert found.passed
