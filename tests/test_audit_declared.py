"""Bounds that rest on the declared mechanism: slow twins, known values, and coverage."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit
from scipy.stats import binom, norm

from dplda.audit import (
    _declared_noise,
    _score_bounds,
    f_dp_lower_bound,
    gaussian_lower_bound,
    independent_lower_bound,
    many_run_lower_bound,
    one_run_lower_bound,
)
from dplda.audit._declared_noise import (
    EPSILONS,
    STEP,
    _curve,
    _inverse_lines,
    _scaled,
    best_share,
    can_be_right,
    chance_of_right,
    has_curve,
)
from dplda.audit._score_bounds import _bound_of_guesses, _declared_bounds
from dplda.privacy import (
    BoundedRange,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    ZeroConcentrated,
    epsilon_of,
)

DELTA = 1e-5


def response(epsilon):
    return RandomizedResponseEvent(2 / (math.exp(epsilon) + 1))


def largest_chance_of_a_program(m, r, v, curve):
    """The largest P(at least v right) that the inequalities of f-DP allow, as a linear program."""
    i = np.arange(r + 1)
    rows, limits = [], []
    for n in range(1, r + 1):
        right, wrong = i / m * (i >= n), (r - i) / m * (i >= n - 1)
        for slope, height in zip(*_inverse_lines(curve)):
            if 1e-3 < slope < 1e3:  # the solver needs numbers of a size
                rows.append(slope * right - wrong)
                limits.append(-height)
    found = linprog(-(i >= v).astype(float), rows, limits, np.ones((1, r + 1)), [1.0])
    return -found.fun


@pytest.mark.parametrize(("m", "r", "v"), [(20, 10, 8), (20, 20, 15), (12, 6, 6), (30, 8, 5)])
@pytest.mark.parametrize("event", [Gaussian(1.0), Gaussian(3.0), response(1.0)])
def test_the_recursion_is_the_best_solution_of_its_inequalities(m, r, v, event):
    curve = _curve((event,))
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if can_be_right(m, r, v, curve, middle) else (low, middle)
    assert low == pytest.approx(largest_chance_of_a_program(m, r, v, curve), abs=2e-4)


def test_curves_are_known_ones():
    mu = 0.8
    exact = [norm.sf(e / mu - mu / 2) - math.exp(e) * norm.sf(e / mu + mu / 2) for e in EPSILONS]
    np.testing.assert_allclose(_curve((Gaussian(1 / mu),)), exact, atol=1e-12)
    two = (Gaussian(math.sqrt(2) / mu),) * 2
    np.testing.assert_allclose(_curve(two), exact, atol=1e-12)
    # at epsilon 0: total variation
    sampled = _curve((PoissonSampled(0.3, Gaussian(1 / mu)),))[0]
    assert 0 <= sampled - 0.3 * (2 * norm.cdf(mu / 2) - 1) < 1e-4
    assert _curve((response(1.0),))[0] == pytest.approx(math.tanh(0.5), abs=1e-9)
    assert _curve((Laplace(2.0),))[0] == pytest.approx(1 - math.exp(-0.25), abs=1e-4)
    curve = _curve((Repeated(Laplace(1.0), 2), BoundedRange(0.5)))
    assert np.diff(curve).max() <= 0
    # so little noise that no grid holds it
    assert _curve((PoissonSampled(0.5, Gaussian(1e-6)),)) == (1.0,) * len(EPSILONS)


@pytest.mark.parametrize("span", [0.3, 1.0, 2.5])
def test_the_curve_of_a_choice_lies_above_all_choices_of_its_range(span):
    """Laws of two outcomes whose log-odds differ by the range; the even one reaches the curve."""
    curve = np.array(_curve((BoundedRange(span),)))
    shares = expit(np.linspace(-8, 8, 161))
    one, other = expit(np.log(shares / (1 - shares)) + span), shares
    gain = np.exp(EPSILONS)[:, None]
    deltas = np.maximum(one - gain * other, 0) + np.maximum((1 - one) - gain * (1 - other), 0)
    assert (deltas.max(axis=1) <= curve + 1e-12).all()
    assert curve[0] == pytest.approx(2 * expit(span / 2) - 1, abs=1e-9)
    assert curve[0] < _curve((response(span),))[0]


def test_a_factor_multiplies_the_noise_of_each_event():
    assert _scaled(Gaussian(2.0), 3.0) == Gaussian(6.0)
    assert _scaled(Repeated(Laplace(2.0), 4), 0.5) == Repeated(Laplace(1.0), 4)
    assert _scaled(BoundedRange(2.0), 4.0) == BoundedRange(0.5)
    assert _scaled(PoissonSampled(0.1, Gaussian(1.0)), 2.0) == PoissonSampled(0.1, Gaussian(2.0))
    pure = epsilon_of(_scaled(RandomizedResponseEvent(0.3, 5), 2.0), 0.0)
    assert pure == pytest.approx(epsilon_of(RandomizedResponseEvent(0.3, 5), 0.0) / 2)
    assert has_curve(Repeated(Gaussian(1.0), 2))
    assert not has_curve(NonPrivate())
    assert not has_curve(Repeated(ZeroConcentrated(1.0), 2))
    with pytest.raises(TypeError, match="NonPrivate has no noise"):
        independent_lower_bound(10, 9, [NonPrivate()], delta=DELTA)


@pytest.mark.parametrize(("n", "right"), [(200, 150), (1000, 600), (1000, 990)])
def test_independent_guesses_of_a_response_are_an_exact_binomial_test(n, right):
    """The bound without assumptions is one, too, if all is guessed and delta is 0."""
    exact = one_run_lower_bound(n, n, right, delta=0)
    bound = independent_lower_bound(n, right, [response(2.0)], delta=0)
    assert exact / STEP**1.01 <= bound <= exact * (1 + 1e-6)


@pytest.mark.parametrize(("m", "r", "v"), [(60, 60, 40), (60, 25, 20), (40, 12, 3)])
@pytest.mark.parametrize("event", [Gaussian(1.0), response(1.0)])
def test_the_chance_of_right_guesses_is_a_sum_over_shown_coins(m, r, v, event):
    """The slow twin sums over all numbers of shown coins, at every epsilon of the curve."""
    curve, n = _curve((event,)), np.arange(m + 1)
    chances = [
        binom.pmf(n, m, delta) @ binom.sf(v - 1 - np.minimum(n, r), np.maximum(r - n, 0), rate)
        for rate, delta in zip(expit(EPSILONS), curve)
    ]
    found = chance_of_right(m, r, v, curve)
    assert np.abs(chances - np.array(found)).min() < 1e-9
    assert found >= min(chances) - 1e-9
    if r == m:
        assert found == pytest.approx(binom.sf(v - 1, m, (1 + curve[0]) / 2), abs=1e-9)


def test_the_surest_guesses_about_gaussian_noise_say_more_than_all():
    """At the expected number of right guesses about 100,000 canaries."""
    mu, m, event = 0.27, 100_000, (Gaussian(1 / 0.27),)
    share = best_share(event)
    assert share < 1 == best_share((response(1.0),))
    assert best_share((Repeated(PoissonSampled(0.1, Gaussian(0.8)), 10),)) == 1
    x = norm.ppf((np.arange(m) + 0.5) / m) + mu / 2  # scores over mu, if the coin is 1
    right = np.sort(expit(mu * np.abs(x)))[::-1]
    surest, everything = (
        independent_lower_bound(
            r, round(right[:r].sum()), event, delta=DELTA, n_canaries=m
        )
        for r in (round(share * m), m)
    )  # fmt: skip
    assert everything < surest < epsilon_of(event, DELTA)


def test_bounds_of_ideal_gaussian_scores():
    """5,000 canaries and an epsilon of 4: each assumption brings the bound nearer to it."""
    mu, m = 0.92493, 5000
    assert epsilon_of(Gaussian(1 / mu), DELTA) == pytest.approx(4.0, abs=1e-3)
    x = norm.ppf((np.arange(m) + 0.5) / m)  # scores at their quantiles
    coins = np.arange(m) % 2 == 1
    scores = mu * x[np.random.default_rng(0).permutation(m)] + (coins - 0.5) * mu**2
    options = DELTA, 0.95
    plain = _bound_of_guesses(scores, coins, *options)
    curve, independent = _declared_bounds(scores, coins, (Gaussian(1 / mu),), *options)
    assert plain < curve.epsilon < independent.epsilon < 4.0
    assert curve.epsilon > 1.8  # with a fifth of the error
    assert independent.epsilon > 3.4


def test_no_right_guesses_no_bound():
    events = [Gaussian(1.0)]
    assert f_dp_lower_bound(100, 50, 0, events, delta=DELTA) == 0
    assert f_dp_lower_bound(100, 50, 25, events, delta=DELTA) == 0
    assert f_dp_lower_bound(0, 0, 0, events, delta=DELTA) == 0
    assert independent_lower_bound(100, 50, events, delta=DELTA) == 0
    assert independent_lower_bound(0, 0, events, delta=DELTA) == 0


def test_all_right_guesses_refute_any_claim_that_they_can():
    for epsilon in (0.5, 4.0, 20.0):
        event = Gaussian(1 / 0.2 if epsilon < 1 else 1.0)
        assert independent_lower_bound(1000, 1000, [event], delta=DELTA) > 10
    assert f_dp_lower_bound(1000, 100, 100, [Gaussian(5.0)], delta=DELTA) > 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: f_dp_lower_bound(10, 11, 3, e, delta=0), "n_guesses must be an integer from 0"),
        (lambda e: f_dp_lower_bound(10, 5, 6, e, delta=0), "n_right must be an integer from 0"),
        (lambda e: independent_lower_bound(5, 6, e, delta=0), "n_right must be an integer from 0"),
        (lambda e: independent_lower_bound(5, 3, e, delta=2), "delta"),
        (lambda e: f_dp_lower_bound(5, 3, 3, e, delta=0, confidence=1), "confidence"),
    ],
)
def test_bounds_refuse_impossible_counts(call, message):
    with pytest.raises(ValueError, match=message):
        call([Gaussian(1.0)])


# coverage: 2,000 sound releases of known epsilon

N_NULLS, M = 2000, 250
ALLOWED = 0.05 + 3 * math.sqrt(0.05 * 0.95 / N_NULLS)


def gaussian_scores(rng, coins, mu):
    return mu * rng.standard_normal(len(coins)) + (coins - 0.5) * mu**2


def sampled_scores(rng, coins, mu, rate, n_rounds):
    member = (rng.random((n_rounds, len(coins))) < rate) & coins
    ratio = mu * rng.standard_normal(member.shape) + (member - 0.5) * mu**2
    return np.logaddexp(math.log1p(-rate), math.log(rate) + ratio).sum(axis=0)


def response_scores(rng, coins, epsilon, n_bits):
    right = rng.random((n_bits, len(coins))) < expit(epsilon)
    return (np.where(right == coins, 1, -1) * epsilon).sum(axis=0)


def shared_cell_scores(rng, coins, mu):
    """Pairs of canaries in one cell: the noise is shared, and so are their scores."""
    pairs = coins.reshape(-1, 2).sum(axis=1)
    noisy = pairs - 1 + rng.standard_normal(len(pairs)) / mu
    return np.repeat(noisy, 2)


def choice_scores(rng, coins, span, n_draws):
    """One of two topics, whose log-odds differ by the range between the coins."""
    drawn = rng.random((n_draws, len(coins))) < expit(np.where(coins, span / 2, -span / 2))
    return (np.where(drawn, 1, -1) * span / 2).sum(axis=0)


def adaptive_scores(rng, coins, mu, n_rounds):
    """A canary whose earlier rounds say much contributes half as much from then on."""
    total = np.zeros(len(coins))
    for _ in range(n_rounds):
        shift = np.where(np.abs(total) < 1, mu, mu / 2)
        seen = shift * (coins - 0.5) + rng.standard_normal(len(coins))
        total += shift * seen
    return total


NULLS = {
    "Gaussian, 0.2": (gaussian_scores, (0.2,), (Gaussian(5.0),)),
    "Gaussian, 1": (gaussian_scores, (1.0,), (Gaussian(1.0),)),
    "sampled Gaussian": (
        sampled_scores, (0.8, 0.3, 10), (Repeated(PoissonSampled(0.3, Gaussian(1.25)), 10),)
    ),
    "response": (response_scores, (1.0, 1), (response(1.0),)),
    "two responses": (response_scores, (0.5, 3), (Repeated(response(0.5), 3),)),
    "choices": (choice_scores, (0.8, 4), (Repeated(BoundedRange(0.8), 4),)),
    "adaptive": (adaptive_scores, (0.5, 4), (Gaussian(1.0),)),
    "shared noise": (shared_cell_scores, (1.0,), (Gaussian(1.0),)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("null", NULLS)
def test_bounds_exceed_a_known_epsilon_at_most_as_often_as_stated(null, monkeypatch):
    for module, name in (
        (_declared_noise, "can_be_right"),
        (_score_bounds, "one_run_lower_bound"),
        (_score_bounds, "independent_lower_bound"),
    ):  # functions of counts, which repeat among the releases
        monkeypatch.setattr(module, name, cache(getattr(module, name)))
    make_scores, parameters, events = NULLS[null]
    truth, rng = epsilon_of(events, DELTA), np.random.default_rng(1)
    above = np.zeros(3)  # for "choices" and "adaptive" the truth is at most this
    for _ in range(N_NULLS):
        coins = rng.random(M) < 0.5
        scores = make_scores(rng, coins, *parameters)
        plain = _bound_of_guesses(scores, coins, DELTA, 0.95)
        assuming = _declared_bounds(scores, coins, events, DELTA, 0.95)
        above += np.array([plain, *(b.epsilon for b in assuming)]) > truth * (1 + 1e-9)
    print(null, above / N_NULLS)
    assert (above / N_NULLS <= ALLOWED).all()
    assert above[1:].sum() / N_NULLS <= ALLOWED  # both together: they share the error


@pytest.mark.slow
@pytest.mark.parametrize("null", ["Gaussian, 1", "response"])
def test_bounds_of_many_runs_exceed_a_known_epsilon_as_rarely(null):
    make_scores, parameters, events = NULLS[null]
    many, normal = cache(many_run_lower_bound), cache(gaussian_lower_bound)
    truth, rng = epsilon_of(events, DELTA), np.random.default_rng(2)
    above = np.zeros(2)
    for _ in range(N_NULLS):
        coins = np.arange(200) % 2 == 1
        seen = make_scores(rng, coins, *parameters) > 0.5
        counts = int(seen[coins].sum()), int(seen[~coins].sum()), 100
        above[0] += many(*counts, delta=DELTA) > truth
        if isinstance(events[0], Gaussian):
            above[1] += normal(*counts, delta=DELTA) > truth
    assert (above / N_NULLS <= ALLOWED).all()
