"""Prices of events against independent values: formulas, library, published tables."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr

from dplda import HDPLDA, LPLDA, PrivateCountVectorizer, SubLDA
from dplda.privacy import (
    Gaussian,
    Laplace,
    Ledger,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    calibrate,
    epsilon_of,
    split_epsilon,
)
from dplda.privacy._events import BoundedRange

ONE_OF_EACH = [
    Gaussian(3.0),
    Laplace(2.0),
    BoundedRange(0.7),
    RandomizedResponseEvent(0.5),
    PoissonSampled(0.2, Gaussian(1.5)),
    Repeated(PoissonSampled(0.01, Gaussian(0.9)), 7),
    Repeated(Repeated(Laplace(5.0), 3), 2),
    NonPrivate(),
]


def sampled(q, noise_multiplier, count):
    return Repeated(PoissonSampled(q, Gaussian(noise_multiplier)), count)


def printed(value, text):
    """Whether a number, rounded to the digits of `text`, is that text."""
    return abs(value - float(text)) <= 0.5001 * 10.0 ** -len(text.partition(".")[2])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Gaussian(0.0), ValueError),
        (lambda: Gaussian(1e-160), ValueError),
        (lambda: Gaussian(math.nan), ValueError),
        (lambda: Gaussian("1"), TypeError),
        (lambda: Laplace(-1.0), ValueError),
        (lambda: RandomizedResponseEvent(0.0), ValueError),
        (lambda: RandomizedResponseEvent(5e-324), ValueError),
        (lambda: PoissonSampled(0.0, Gaussian(1.0)), ValueError),
        (lambda: PoissonSampled(0.1, Laplace(1.0)), TypeError),
        (lambda: Repeated(Gaussian(1.0), 0), ValueError),
        (lambda: Repeated(Gaussian(1.0), True), TypeError),
    ],
)
def test_constructors_check_their_arguments(make, error):
    with pytest.raises(error):
        make()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("noise", [1e-3, 1e-60, 1e-80, 1e-100])
@pytest.mark.parametrize(
    "kind", [Gaussian, lambda noise: PoissonSampled(0.5, Gaussian(noise))]
)
def test_next_to_no_noise_costs_next_to_everything(noise, kind):
    assert epsilon_of([kind(noise), Laplace(1.0)], 1e-6) >= 0.5 / noise**2
    assert epsilon_of(kind(noise), 1e-6) >= 0.5 / noise**2


def test_a_ledger_of_the_least_noise_can_be_read():
    ledger = Ledger()
    for _ in range(2):
        ledger.reserve("a", "document", Gaussian(1e-100))
    assert ledger.epsilon_spent == math.inf
    assert epsilon_of([Repeated(Gaussian(1e-100), 9), Laplace(1.0)], 0.1) == math.inf


@pytest.mark.parametrize("scale", [3.0, 7.0, 0.1, 49.0, 1e-310])
@pytest.mark.parametrize("count", [1, 3, 10, 2**36 - 1])
def test_a_pure_epsilon_is_rounded_up(scale, count):
    exact = count / Fraction(scale)
    stated = epsilon_of(Repeated(Laplace(scale), count), 0.0)
    assert stated == math.inf or exact <= Fraction(stated) <= exact * (
        1 + Fraction(2) ** -51
    )


def test_the_pure_epsilon_of_a_response_is_rounded_up():
    for flip in np.linspace(0.01, 0.99, 50):
        event = RandomizedResponseEvent(float(flip))
        stated = Decimal(epsilon_of(event, 0.0))
        with localcontext(prec=40):
            exact = (2 / Decimal(float(flip)) - 1).ln()
            assert exact <= stated <= exact * (1 + Decimal(2) ** -47)


def test_grouping_flattens_and_ignores_order():
    one = [
        Repeated(Repeated(Laplace(1.0), 2), 3),
        Gaussian(2.0),
        Repeated(PoissonSampled(1.0, Gaussian(2.0)), 3),
    ]
    other = [Repeated(Gaussian(2.0), 4), *[Laplace(1.0)] * 6]
    grouped = [Repeated(Laplace(1.0), 6), Gaussian(1.0)]
    for delta in (0.0, 1e-6, 1e-3):
        costs = {epsilon_of(events, delta) for events in (one, other, grouped)}
        assert len(costs) == 1  # to the last digit
    near = epsilon_of(PoissonSampled(0.999, Gaussian(2.0)), 1e-5)
    assert (
        0.99 * epsilon_of(Gaussian(2.0), 1e-5) < near <= epsilon_of(Gaussian(2.0), 1e-5)
    )


# Rounds, noise, R = C/beta + 1; inherent epsilon, pure epsilon, epsilon at delta 1e-5.
# Topics are drawn in all rounds but the last.
HDP = [
    (50, ("laplace", 0.1), 1.05, "0.0976", "9.781", "2.444"),
    (50, ("laplace", 1), 2, "1.3863", "117.928", "49.015"),
    (100, ("laplace", 1), 101, "9.2302", "1013.79", "743.72"),
    (50, ("gauss", 10), 1.25, "0.4463", None, "9.1055"),
]


@pytest.mark.parametrize("row", HDP, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]:.3g}")
def test_hdplda_table(row):
    n_rounds, (kind, size), count_ratio, inherent, pure, epsilon = row
    model = HDPLDA(
        2,
        noise_epsilon=size if kind == "laplace" else 1.0,
        count_clip=count_ratio - 1.0,
        topic_word_prior=1.0,
        max_iter=n_rounds,
    )
    events = model.fit([[1, 0], [0, 1]]).privacy_.events
    draws = [event for event in events if isinstance(event, BoundedRange)]
    assert len(draws) == n_rounds - 1
    assert printed(draws[0].epsilon, inherent)
    if kind == "gauss":
        events = [Repeated(Gaussian(size / math.sqrt(2)), n_rounds), *draws]
    pure_value = epsilon_of(events, 0.0)
    assert pure_value == math.inf if pure is None else printed(pure_value, pure)
    assert printed(epsilon_of(events, 1e-5), epsilon)


# Noise for epsilon 1, 2, 4, 8 at delta 1e-5, right to 1e-4.
CALIBRATION = {
    (1.0, 1): (3.73063, 1.99381, 1.08116, 0.600229),
    (1.0, 20): (16.68389, 8.91660, 4.83510, 2.68431),
    (1.0, 100): (37.30632, 19.93812, 10.81162, 6.00229),
    (0.1, 100): (3.94166, 2.24769, 1.38600, 0.935920),
    (0.05, 200): (2.83860, 1.67197, 1.09437, 0.786892),
    (0.01, 1000): (1.41463, 0.959076, 0.734785, 0.586260),
}


@pytest.mark.parametrize(("q", "n_rounds"), CALIBRATION)
def test_calibration_table(q, n_rounds):
    for target, value in zip(
        (1.0, 2.0, 4.0, 8.0), CALIBRATION[q, n_rounds], strict=True
    ):
        assert epsilon_of(sampled(q, value * (1 - 1e-4), n_rounds), 1e-5) > target
        assert epsilon_of(sampled(q, value * (1 + 1e-4), n_rounds), 1e-5) < target
        if q == 1.0:
            answer = calibrate(lambda s: sampled(q, s, n_rounds), target, 1e-5)
            assert answer == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize("first", ONE_OF_EACH[:-1], ids=repr)
def test_epsilon_of_mixtures(first):
    """Every pair of events has a price, above each alone and below the sum."""
    for second in ONE_OF_EACH[:-1]:
        alone = [epsilon_of(event, 1e-6) for event in (first, second)]
        both = epsilon_of([first, second], 1e-6)
        assert max(alone) < both
        assert both <= epsilon_of(first, 5e-7) + epsilon_of(second, 5e-7) + 1e-3


def test_no_protection():
    for events in (
        NonPrivate(),
        [Gaussian(5.0), NonPrivate()],
        [Laplace(2.0), NonPrivate()],
    ):
        assert epsilon_of(events, 1e-6) == math.inf
        assert epsilon_of(events, 1e-6, total_variation=1e-20) == math.inf
    assert epsilon_of([], 1e-6) == 0.0
    assert epsilon_of(Gaussian(2.0), 0.0) == math.inf


@pytest.mark.parametrize("noise_multiplier", [2.0, 5.0])
def test_distance_is_taken_out_of_delta(noise_multiplier):
    gamma, delta = 5e-11, 1e-6
    ideal = epsilon_of(Gaussian(noise_multiplier), delta)
    epsilon = epsilon_of(Gaussian(noise_multiplier), delta, total_variation=gamma)
    mu = 1 / noise_multiplier
    exact_delta = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(
        -mu / 2 - epsilon / mu
    )
    assert exact_delta + (1 + math.exp(epsilon)) * gamma <= delta
    assert ideal < epsilon < ideal * 1.001
    # left out
    assert ideal == epsilon_of(Gaussian(noise_multiplier), delta, total_variation=1e-3)
    answer = calibrate(Gaussian, 1.0, delta, total_variation=gamma)
    assert epsilon_of(Gaussian(answer), delta, total_variation=gamma) <= 1.0
    assert (
        calibrate(Gaussian, 1.0, delta)
        < answer
        < calibrate(Gaussian, 1.0, delta) * 1.001
    )


@pytest.mark.parametrize("delta", [0.00101, 0.5, 1.0])
def test_a_delta_that_publishes_one_unit_in_a_thousand_is_refused(delta):
    for use in (
        lambda: calibrate(Gaussian, 1.0, delta),
        lambda: split_epsilon(1.0, (1, 2), delta=delta),
        lambda: Ledger(epsilon=1.0, delta=delta),
        lambda: SubLDA(2, epsilon=1.0, delta=delta).fit([[1, 0]]),
        lambda: HDPLDA(2, epsilon=1.0, delta=delta).fit([[1, 0]]),
        lambda: LPLDA(2, epsilon=1.0, delta=delta).fit([[1, 0]]),
        lambda: PrivateCountVectorizer(epsilon=1.0, delta=delta).fit(["a"]),
    ):
        with pytest.raises(ValueError, match=r"delta.* 0\.001\]"):
            use()


def test_calibrate_says_when_noise_cannot_help():
    with pytest.raises(ValueError, match="do not depend on the noise"):
        calibrate(lambda s: [Gaussian(s), Repeated(BoundedRange(2.0), 50)], 1.0, 1e-6)
    for epsilon, delta in ((0.0, 1e-6), (math.inf, 1e-6), (1.0, 0.0)):
        with pytest.raises(ValueError, match=r"epsilon|delta"):
            calibrate(Gaussian, epsilon, delta)


@pytest.mark.parametrize("noise", [1e8, 1e4, 3.3, 0.2])
def test_epsilon_is_zero_only_if_delta_pays_for_it(noise):
    """delta(epsilon) is convex with slope -1/2 or more at 0.

    So epsilon >= 2 (delta(0) - delta).
    """
    at_zero = math.erf(1 / noise / math.sqrt(8.0))
    for gap in (1e-3, 1e-9, 1e-12, 1e-15):
        delta = at_zero * (1.0 - gap)
        assert epsilon_of(Gaussian(noise), delta) >= 2.0 * (at_zero - delta) > 0.0
    assert epsilon_of(Gaussian(noise), at_zero * (1.0 + 1e-9)) == 0.0


ROOTS = [
    (146779.92676220677, 1e-6, 4.660350227851889e-06),
    (6812.92, 1e-6, 0.0003054796720161859),
    (1467.8, 1e-100, 0.014159724083796967),
    (316.2, 1e-6, 0.009660429467299104),
]


@pytest.mark.parametrize(("noise_multiplier", "delta", "true"), ROOTS)
def test_the_root_of_the_closed_form_is_not_too_small(noise_multiplier, delta, true):
    """The true values have 40 digits and are rounded up."""
    epsilon = epsilon_of(Gaussian(noise_multiplier), delta)
    assert true <= epsilon <= true * (1 + 1e-10) + 3e-12


def test_arguments_of_another_kind_are_refused_with_what_to_pass():
    for delta in (-1e-9, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            epsilon_of(Gaussian(1.0), delta)
    for events in (None, Gaussian, 3.0):
        with pytest.raises(TypeError, match="expected privacy events, got"):
            epsilon_of(events, 1e-6)
    with pytest.raises(
        TypeError, match=r"make_events must be a function .* of class Gaussian"
    ):
        calibrate(Gaussian(1.0), epsilon=1.0, delta=1e-6)
    with pytest.raises(TypeError, match=r"one for each fit, such as .* got int"):
        split_epsilon(4.0, 2)


@pytest.mark.parametrize("share", [1.02, 1.11, 1.2])
def test_less_noise_does_not_do_where_most_of_the_cost_does_not_depend_on_it(share):
    """An epsilon within 1e-4 of the target may be far more than 1e-4 too noisy."""
    others = Repeated(PoissonSampled(0.1, Gaussian(4.0)), 100)
    epsilon = share * epsilon_of(others, 1e-6)

    def events(noise):
        return [Repeated(PoissonSampled(0.1, Gaussian(noise)), 10), others]

    noise = calibrate(events, epsilon, 1e-6)
    assert epsilon_of(events(noise), 1e-6) <= epsilon
    assert epsilon_of(events(noise * (1 - 1.01e-4)), 1e-6) > epsilon
