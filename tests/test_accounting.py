"""Prices of events against independent values: closed forms, the library, published tables."""

from __future__ import annotations

import json
import math
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from oracle import Oracle
from scipy.special import ndtr

from dplda import HDPLDA, LPLDA, PrivateCountVectorizer, SubLDA
from dplda.privacy import Ledger
from dplda.privacy import _accounting as composition
from dplda.privacy._accounting import (
    delta_charge,
    epsilon_of,
    gaussian_mu,
    grouped,
    is_chargeable,
    is_within,
    pure_epsilon,
)
from dplda.privacy._calibration import calibrate, split_epsilon
from dplda.privacy._curves import ORDERS, bounded_range_divergence, divergences
from dplda.privacy._events import (
    BoundedRange,
    ErasedResponse,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    ZeroConcentrated,
    from_record,
    to_record,
)
from dplda.word._sweep_mechanisms import inherent_epsilon

PLDAccountant = Oracle("dp_accounting.pld", "PLDAccountant")
RdpAccountant = Oracle("dp_accounting.rdp", "RdpAccountant")
get_epsilon_gaussian = Oracle("dp_accounting", "get_epsilon_gaussian")

ONE_OF_EACH = [
    Gaussian(3.0),
    Laplace(2.0),
    BoundedRange(0.7),
    RandomizedResponseEvent(0.5),
    RandomizedResponseEvent(0.4, 6),
    ErasedResponse(0.5),
    ZeroConcentrated(0.2),
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


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=repr)
def test_record_round_trip_is_exact(event):
    again = from_record(json.loads(json.dumps(to_record(event))))
    assert again == event
    assert hash(again) == hash(event)


@pytest.mark.parametrize(
    ("record", "message"),
    [({"event": "Cauchy", "scale": 1.0}, "unknown"), ({}, "unknown"), ({"event": "Laplace"}, "f")],
)
def test_bad_records_are_refused(record, message):
    with pytest.raises(ValueError, match=message):
        from_record(record)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Gaussian(0.0), ValueError),
        (lambda: Gaussian(math.nan), ValueError),
        (lambda: Gaussian("1"), TypeError),
        (lambda: Laplace(-1.0), ValueError),
        (lambda: ZeroConcentrated(-0.1), ValueError),
        (lambda: RandomizedResponseEvent(0.0), ValueError),
        (lambda: RandomizedResponseEvent(0.5, 1), ValueError),
        (lambda: ErasedResponse(0.0), ValueError),
        (lambda: ErasedResponse(5e-324), ValueError),
        (lambda: PoissonSampled(0.0, Gaussian(1.0)), ValueError),
        (lambda: PoissonSampled(0.1, Laplace(1.0)), TypeError),
        (lambda: Repeated(Gaussian(1.0), 0), ValueError),
        (lambda: Repeated(Gaussian(1.0), True), TypeError),
    ],
)
def test_constructors_check_their_arguments(make, error):
    with pytest.raises(error):
        make()


@pytest.mark.parametrize("scale", [3.0, 7.0, 0.1, 49.0, 1e-310])
@pytest.mark.parametrize("count", [1, 3, 10, 10**15 + 1])
def test_a_pure_epsilon_is_rounded_up(scale, count):
    exact = count / Fraction(scale)
    stated = composition.pure_epsilon(((Laplace(scale), count),))
    assert stated == math.inf or exact <= Fraction(stated) <= exact * (1 + Fraction(2) ** -51)


@pytest.mark.parametrize("n_buckets", [2, 5, 1000])
def test_the_pure_epsilon_of_a_response_is_rounded_up(n_buckets):
    for flip in np.linspace(0.01, 0.99, 50):
        event = RandomizedResponseEvent(float(flip), n_buckets)
        stated = Decimal(composition.pure_epsilon(((event, 1),)))
        with localcontext(prec=40):
            exact = (1 + n_buckets * (1 - Decimal(float(flip))) / Decimal(float(flip))).ln()
            assert exact <= stated <= exact * (1 + Decimal(2) ** -47)


def test_grouping_flattens_and_ignores_order():
    one = [
        Repeated(Repeated(Laplace(1.0), 2), 3),
        Gaussian(2.0),
        Repeated(PoissonSampled(1.0, Gaussian(2.0)), 3),
    ]
    other = [Repeated(Gaussian(2.0), 4), *[Laplace(1.0)] * 6]
    assert grouped(one) == grouped(other)
    assert dict(grouped(one)) == {Laplace(1.0): 6, Gaussian(1.0): 1}


def bounded_range_in_decimals(epsilon, order):
    """The maximum over u of A u**(a - 1) - B u**a, at 60 digits."""
    with localcontext(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN):
        e, a = Decimal(epsilon), Decimal(order)
        once, often = (-e).exp(), (-a * e).exp()
        high, low = (1 - often) / (1 - once), (once - often) / (1 - once)
        u = high * (a - 1) / (a * low)
        return ((high * u ** (a - 1) - low * u**a).ln()) / (a - 1)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.0976, 0.4463, 1.0, 2.0, 9.2302, 50.0, 300.0])
def test_no_rounding_makes_a_bounded_range_choice_too_cheap(epsilon):
    for order, charged in zip(ORDERS, divergences(BoundedRange(epsilon)).tolist()):
        exact = bounded_range_in_decimals(epsilon, order)
        assert exact <= Decimal(charged) <= exact * Decimal("1.000000002")
    for order in (1.0 + 2.0**-8, 1.5, 2.0**20 + 1.0, 2.0**32 + 1.0):  # between them and beyond
        charged = float(bounded_range_divergence(epsilon, np.array([order]))[0])
        assert Decimal(charged) >= bounded_range_in_decimals(epsilon, order)


@pytest.mark.parametrize(("q", "s"), [(0.01, 0.8), (0.3, 2.0), (0.999, 30.0), (1e-6, 0.5)])
def test_divergences_of_sampled_steps_are_the_finite_sums(q, s):
    """Mironov, Talwar and Zhang 2019, in 60 digits."""
    charged = divergences(PoissonSampled(q, Gaussian(s)))
    with localcontext(prec=60):
        rate, noise = Decimal(q), Decimal(s)
        for order in (2, 3, 17, 64, 256):
            terms = [
                math.comb(order, i) * (1 - rate) ** (order - i) * rate**i
                * (Decimal(i * (i - 1)) / (2 * noise * noise)).exp()
                for i in range(order + 1)
            ]  # fmt: skip
            exact = sum(terms).ln() / (order - 1)
            found = Decimal(float(charged[ORDERS.index(order)]))
            assert exact <= found <= exact * (1 + Decimal("3e-9")), order


# Rounds, noise, R = C/beta + 1; inherent epsilon, pure epsilon, rho, epsilon at delta 1e-5. Topics
# are drawn in all rounds but the last.
TABLE_HDP = [
    (50, ("laplace", 0.1), 1.05, "0.0976", "9.781", "0.1833", "2.444"),
    (50, ("laplace", 0.1), 1.25, "0.4463", "26.868", "1.3449", "7.814"),
    (50, ("laplace", 0.5), 2, "1.3863", "92.928", "14.8961", "36.083"),
    (50, ("laplace", 1), 2, "1.3863", "117.928", "24.2711", "49.015"),
    (50, ("laplace", 10), math.exp(5), "10", "990", "1862.5", "840.04"),
    (100, ("laplace", 0.1), 1.05, "0.0976", "19.660", "0.3678", "3.637"),
    (100, ("laplace", 0.5), 1.25, "0.4463", "94.182", "8.7148", "24.644"),
    (100, ("laplace", 1), 101, "9.2302", "1013.79", "1079.32", "743.72"),
    (50, ("gauss", 10), 1.05, "0.0976", None, "0.5583", "4.6711"),
    (50, ("gauss", 10), 1.25, "0.4463", None, "1.7199", "9.1055"),
    (100, ("gauss", 20), 1.1, "0.1906", None, "0.6997", "5.3316"),
    (100, ("gauss", 5), 2, "1.3863", None, "27.78", "57.45"),
]


def hdp_events(n_rounds, noise, count_ratio):
    kind, size = noise
    choice = Repeated(BoundedRange(inherent_epsilon(count_ratio - 1.0, 1.0)), n_rounds - 1)
    if kind == "laplace":
        return [Repeated(Laplace(2 / size), 2 * n_rounds), choice]
    return [Repeated(Gaussian(size / math.sqrt(2)), n_rounds), choice]


@pytest.mark.parametrize("row", TABLE_HDP, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]:.3g}")
def test_hdplda_table(row):
    n_rounds, noise, count_ratio, inherent, pure, rho, epsilon = row
    events = hdp_events(n_rounds, noise, count_ratio)
    inherent_value = inherent_epsilon(count_ratio - 1.0, 1.0)
    assert printed(inherent_value, inherent)
    pure_value = pure_epsilon(grouped(events))
    assert pure_value == math.inf if pure is None else printed(pure_value, pure)
    noise_rho = noise[1] ** 2 / 4 if noise[0] == "laplace" else 1 / noise[1] ** 2
    assert printed(n_rounds * noise_rho + (n_rounds - 1) * inherent_value**2 / 8, rho)
    assert printed(epsilon_of(events, 1e-5), epsilon)
    choice = ZeroConcentrated((n_rounds - 1) * inherent_value**2 / 8)
    assert epsilon_of(events, 1e-5) < epsilon_of([events[0], choice], 1e-5)


@pytest.mark.parametrize(
    ("rho", "epsilon"), [(0.1, "1.9142"), (0.5, "4.7284"), (1.0, "7.0772"), (5.0, "19.0473")]
)
def test_zcdp_conversion(rho, epsilon):
    orders = 1 + np.geomspace(1e-2, 1e4, 20_001)
    bounds = rho * orders + np.log1p(-1 / orders) - np.log(1e-5 * orders) / (orders - 1)
    assert printed(np.min(bounds), epsilon)
    # The library's orders lie less densely.
    assert np.min(bounds) <= epsilon_of(ZeroConcentrated(rho), 1e-5) < 1.0005 * float(epsilon)


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
    for target, value in zip((1.0, 2.0, 4.0, 8.0), CALIBRATION[q, n_rounds], strict=True):
        assert epsilon_of(sampled(q, value * (1 - 1e-4), n_rounds), 1e-5) > target
        assert epsilon_of(sampled(q, value * (1 + 1e-4), n_rounds), 1e-5) < target
        if q == 1.0:
            answer = calibrate(lambda s: sampled(q, s, n_rounds), target, 1e-5)
            assert answer == pytest.approx(value, rel=2e-6)
            assert answer == pytest.approx(
                math.sqrt(n_rounds) / gaussian_mu(target, 1e-5), rel=1e-9
            )


@pytest.mark.parametrize("event", ONE_OF_EACH[:-1], ids=repr)
def test_epsilon_grows_with_every_round(event):
    one, two, five = (epsilon_of(Repeated(event, count), 1e-6) for count in (1, 2, 5))
    assert 0 < one < two < five


@pytest.mark.parametrize("first", ONE_OF_EACH[:-1], ids=repr)
def test_epsilon_of_mixtures(first):
    """Every pair of events has a price, above each alone and below the sum."""
    for second in ONE_OF_EACH[:-1]:
        alone = [epsilon_of(event, 1e-6) for event in (first, second)]
        both = epsilon_of([first, second], 1e-6)
        assert max(alone) < both
        assert both <= epsilon_of(first, 5e-7) + epsilon_of(second, 5e-7) + 1e-3


def test_no_protection():
    for events in (NonPrivate(), [Gaussian(5.0), NonPrivate()], [Laplace(2.0), NonPrivate()]):
        assert epsilon_of(events, 1e-6) == math.inf
        assert epsilon_of(events, 1e-6, total_variation=1e-20) == math.inf
        assert not is_within(events, 1e6, 1e-6)
        assert is_within(events, math.inf, 1e-6)
    assert epsilon_of([], 1e-6) == 0.0
    assert epsilon_of(Gaussian(2.0), 0.0) == math.inf


def test_sampling_with_probability_one_is_no_sampling():
    assert epsilon_of(PoissonSampled(1.0, Gaussian(2.0)), 1e-5) == epsilon_of(Gaussian(2.0), 1e-5)
    near = epsilon_of(PoissonSampled(0.999, Gaussian(2.0)), 1e-5)
    assert 0.99 * epsilon_of(Gaussian(2.0), 1e-5) < near <= epsilon_of(Gaussian(2.0), 1e-5)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_delta_is_checked(delta):
    with pytest.raises(ValueError, match="delta"):
        epsilon_of(Gaussian(1.0), delta)


@pytest.mark.parametrize("event", ONE_OF_EACH[:-1], ids=repr)
@pytest.mark.parametrize("total_variation", [0.0, 1e-20])
def test_is_within_agrees_with_epsilon(event, total_variation):
    epsilon = epsilon_of(event, 1e-6, total_variation=total_variation)
    assert is_within(event, epsilon * 1.0001, 1e-6, total_variation=total_variation)
    assert not is_within(event, epsilon * 0.9999, 1e-6, total_variation=total_variation)


def test_delta_charge_values():
    gamma = 1e9 * 1.31e-41 + (1e9 * 0.506) ** 2 / 2**129
    assert delta_charge(gamma, 10.0) == pytest.approx(8e-18, rel=0.07)
    assert delta_charge(1e-12, 2.0) == pytest.approx(1e-12 * (1 + math.exp(2.0)))
    assert delta_charge(1e-12, 0.0) == pytest.approx(2e-12)
    assert delta_charge(0.0, math.inf) == 0.0
    assert delta_charge(1e-20, math.inf) == math.inf
    assert delta_charge(1e-20, 1000.0) == math.inf
    assert delta_charge(1e-300, 720.0) == pytest.approx(math.exp(720 - 300 * math.log(10)))


@pytest.mark.parametrize("noise_multiplier", [2.0, 5.0])
def test_distance_is_taken_out_of_delta(noise_multiplier):
    gamma, delta = 5e-11, 1e-6
    ideal = epsilon_of(Gaussian(noise_multiplier), delta)
    epsilon = epsilon_of(Gaussian(noise_multiplier), delta, total_variation=gamma)
    mu = 1 / noise_multiplier
    exact_delta = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    assert exact_delta + delta_charge(gamma, epsilon) <= delta
    assert ideal < epsilon < ideal * 1.001


def test_distance_that_is_too_large_is_left_out():
    events = Repeated(BoundedRange(5.0), 50)
    assert not is_chargeable(1e-19, epsilon_of(events, 1e-6), 1e-6)
    assert epsilon_of(events, 1e-6, total_variation=1e-19) == epsilon_of(events, 1e-6)


def test_calibrate_pays_for_the_distance():
    def make(noise_multiplier):
        return Repeated(Gaussian(noise_multiplier), 10)

    answer = calibrate(make, 1.0, 1e-6, total_variation=1e-10)
    assert epsilon_of(make(answer), 1e-6, total_variation=1e-10) <= 1.0
    assert calibrate(make, 1.0, 1e-6) < answer < calibrate(make, 1.0, 1e-6) * 1.001


@pytest.mark.parametrize("delta", [0.0101, 0.5, 1.0])
def test_a_delta_that_publishes_one_unit_in_a_hundred_is_refused(delta):
    """The error names delta, and what is allowed."""
    for use in (
        lambda: calibrate(Gaussian, 1.0, delta),
        lambda: split_epsilon(1.0, (1, 2), delta=delta),
        lambda: Ledger(epsilon=1.0, delta=delta),
        lambda: SubLDA(2, epsilon=1.0, delta=delta).fit([[1, 0]]),
        lambda: HDPLDA(2, epsilon=1.0, delta=delta).fit([[1, 0]]),
        lambda: LPLDA(2, epsilon=1.0, delta=delta).fit([[1, 0]]),
        lambda: PrivateCountVectorizer(epsilon=1.0, delta=delta).fit(["a"]),
    ):
        with pytest.raises(ValueError, match=r"delta.* 0\.01\]"):
            use()


def test_calibrate_says_when_noise_cannot_help():
    with pytest.raises(ValueError, match="do not depend on the noise"):
        calibrate(lambda s: [Gaussian(s), Repeated(BoundedRange(2.0), 50)], 1.0, 1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (math.inf, 1e-6), (1.0, 0.0)])
def test_calibrate_checks_its_target(epsilon, delta):
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        calibrate(Gaussian, epsilon, delta)
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        gaussian_mu(epsilon, delta)


@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.3, 5.0])
def test_epsilon_is_zero_only_if_delta_pays_for_it(mu):
    """delta(epsilon) is convex with slope -1/2 or more at 0: epsilon >= 2 (delta(0) - delta)."""
    at_zero = math.erf(mu / math.sqrt(8.0))
    for gap in (1e-3, 1e-9, 1e-12, 1e-15):
        delta = at_zero * (1.0 - gap)
        assert composition.epsilon_of_mu(mu, delta) >= 2.0 * (at_zero - delta) > 0.0
    assert composition.epsilon_of_mu(mu, min(1.0, at_zero * (1.0 + 1e-9))) == 0.0


@pytest.mark.parametrize(
    ("noise_multiplier", "delta", "true"),
    [
        (146779.92676220677, 1e-6, 4.660350227851889e-06),
        (6812.92, 1e-6, 0.0003054796720161859),
        (1467.8, 1e-100, 0.014159724083796967),
        (316.2, 1e-6, 0.009660429467299104),
    ],
)
def test_the_root_of_the_closed_form_is_not_too_small(noise_multiplier, delta, true):
    """The true values have 40 digits and are rounded up; the library's root is below them."""
    with np.errstate(divide="ignore"):
        assert get_epsilon_gaussian(noise_multiplier, delta) < true
    epsilon = epsilon_of(Gaussian(noise_multiplier), delta)
    assert true <= epsilon <= true * (1 + 1e-10) + 3e-12
    assert gaussian_mu(true, delta) <= 1 / noise_multiplier


def test_arguments_of_another_kind_are_refused_with_what_to_pass():
    for events in (None, Gaussian, 3.0):
        with pytest.raises(TypeError, match="expected privacy events, got"):
            epsilon_of(events, 1e-6)
    with pytest.raises(TypeError, match=r"make_events must be a function .* of class Gaussian"):
        calibrate(Gaussian(1.0), epsilon=1.0, delta=1e-6)
    with pytest.raises(TypeError, match=r"one for each fit, such as .* got int"):
        split_epsilon(4.0, 2)
