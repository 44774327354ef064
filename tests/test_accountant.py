"""The certified accountant: curves, grid laws, compositions against exact values."""

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp
from oracle import Oracle

from dplda.privacy import (
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    epsilon_bounds,
    epsilon_of,
)
from dplda.privacy._accounting import _most_samples, epsilon_of_mu
from dplda.privacy._composition import (
    TILTS,
    compose,
    law_above,
    law_below,
    renyi_epsilons,
    summed_cumulants,
)
from dplda.privacy._curves import bounded_ranges_curve, curve_of, gaussian
from dplda.privacy._events import BoundedRange

dp_event = Oracle("dp_accounting.dp_event")
PLDAccountant = Oracle("dp_accounting.pld", "PLDAccountant")
RdpAccountant = Oracle("dp_accounting.rdp", "RdpAccountant")

EVENTS = [
    Gaussian(2.0),
    Gaussian(0.3),
    Laplace(1.0),
    Laplace(7.3),
    PoissonSampled(0.01, Gaussian(1.0)),
    PoissonSampled(0.9, Gaussian(3.0)),
    PoissonSampled(1e-4, Gaussian(0.7)),
    BoundedRange(0.7),
    Repeated(BoundedRange(0.3), 1),
    Repeated(BoundedRange(0.3), 20),
    RandomizedResponseEvent(0.3),
]


@pytest.fixture(autouse=True)
def many_digits():
    with mp.workdps(60):
        yield


def exact_gaussian(epsilon, s):
    """Balle and Wang 2018, theorem 8."""
    e, s = mp.mpf(epsilon), mp.mpf(s)
    return mp.ncdf(1 / (2 * s) - e * s) - mp.exp(e) * mp.ncdf(-1 / (2 * s) - e * s)


def exact_sampled(epsilon, q, s, *, added):
    e, q = mp.mpf(epsilon), mp.mpf(q)
    t = mp.exp(e)
    if added:
        a = 1 - (1 - q) * t
        return a * exact_gaussian(mp.log(q * t / a), s) if a > 0 else mp.mpf(0)
    inner = 1 + (t - 1) / q
    return q * exact_gaussian(mp.log(inner), s) if inner > 0 else 1 - t


@pytest.mark.parametrize("s", [0.05, 0.3, 1.0, 17.0, 450.0, 1e6])
def test_delta_of_gaussian_noise_is_within_its_error(s):
    losses = (0.5 / s + np.linspace(-25.0, 25.0, 41)) / s
    epsilons = np.unique(np.concatenate([losses, -losses, [0.0]]))
    epsilons = epsilons[np.abs(epsilons) < 600.0]
    delta, _, error = gaussian(epsilons, s)
    for epsilon, found, bound in zip(epsilons, delta, error, strict=True):
        assert abs(found - exact_gaussian(epsilon, s)) <= bound, epsilon
    near = np.abs(epsilons) < 8.0 / s
    assert (error[near] < 1e-10 * max(1.0, s) * delta[near]).all()


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(
    ("q", "s"), [(1e-6, 0.5), (0.01, 1.0), (0.3, 40.0), (0.999, 2.0)]
)
def test_delta_of_a_sampled_step_is_within_its_error(q, s, added):
    curve = curve_of(PoissonSampled(q, Gaussian(s)), added=added, upper=True)
    low, high = curve.span(1e-40)
    edge = -math.log1p(-q) if added else math.log1p(-q)
    epsilons = np.sort(
        [*np.linspace(low - 1.0, high, 61), edge, edge * (1 - 1e-9), 0.0, 1e-9]
    )
    delta, error, _ = curve.at(epsilons)
    for epsilon, found, bound in zip(epsilons, delta, error, strict=True):
        assert abs(found - exact_sampled(epsilon, q, s, added=added)) <= bound, epsilon


def curve_of_law(masses, infinite, knots, epsilons):
    inside = np.maximum(-np.expm1(epsilons[:, None] - knots), 0.0)
    return infinite + inside @ masses


@pytest.mark.parametrize("h", [0.01, 1 / 4])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_laws_on_a_grid_are_above_and_below_the_curve_everywhere(event, added, h):
    for upper in (True, False):
        curve = curve_of(event, added=added, upper=upper)
        if not upper and isinstance(event, Repeated):
            continue
        low, high = curve.span(1e-12)
        knots = np.arange(math.floor(low / h) - 1, math.ceil(high / h) + 2) * h
        epsilons = np.sort([*np.linspace(low - 3.0, high + 1.0, 2001), *knots])
        exact = curve.at(epsilons)[0]
        if upper:
            law = curve_of_law(*law_above(curve, knots), knots, epsilons)
            assert (law >= exact - 1e-14).all()
        else:
            law = curve_of_law(law_below(curve, knots), 0.0, knots, epsilons)
            assert (law <= exact + 1e-14).all()


def exact_curve_of_law(masses, infinite, knots, epsilon):
    """The definition: infinite losses, and what each knot above epsilon adds."""
    inside = [
        mp.mpf(mass) * (1 - mp.exp(mp.mpf(epsilon) - mp.mpf(knot)))
        for mass, knot in zip(masses.tolist(), knots.tolist(), strict=True)
        if knot > epsilon
    ]
    return mp.mpf(infinite) + sum(inside)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("q", "s"), [(0.999, 2.0), (0.2, 1.3), (1e-4, 0.7)])
def test_laws_are_on_their_side_of_the_exact_curve_to_the_last_digit(q, s, added):
    """No tolerance: roundings go up in the law above, and down in the law below."""
    curve = curve_of(PoissonSampled(q, Gaussian(s)), added=added, upper=True)
    low, high = curve.span(1e-9)
    # cells near 0.1 are so short that nothing but roundings moves their chords
    steps = np.geomspace(1e-9, high - low, 30)
    knots = np.concatenate([0.1 - steps[::-1], 0.1 + steps])
    above, infinite = law_above(curve, knots)
    below = law_below(curve, knots)
    between = 0.5 * (knots[1:] + knots[:-1])
    for epsilon in np.sort([*knots, *between]).tolist():
        exact = exact_sampled(epsilon, q, s, added=added)
        assert exact_curve_of_law(above, infinite, knots, epsilon) >= exact, epsilon
        assert exact_curve_of_law(below, 0.0, knots, epsilon) <= exact, epsilon


def convolved(flips):
    """The law of independent responses, outcome by outcome: {loss: mass under P}."""
    law = {mp.mpf(0): mp.mpf(1)}
    for flip in flips:
        wrong = mp.mpf(flip) / 2
        step = {mp.log((1 - wrong) / wrong): 1 - wrong}
        step |= {-loss: wrong for loss in step}
        sums = {}
        for loss, mass in law.items():
            for change, part in step.items():
                sums[loss + change] = sums.get(loss + change, 0) + mass * part
        law = sums
    return law


@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-6])
def test_a_composition_encloses_a_direct_convolution(delta):
    """Transforms, tilts and windows are a fast way to this definition."""
    kinds = ((0.3, 3), (0.55, 4), (0.9, 2))
    law = convolved([flip for flip, n in kinds for _ in range(n)])
    groups = tuple((RandomizedResponseEvent(flip), n) for flip, n in kinds)
    logs = summed_cumulants(groups, False)
    place = int(np.argmin(renyi_epsilons(logs, delta)))
    upper, lower = [
        compose(groups, delta, place, logs, added=False, upper=upper)
        for upper in (True, False)
    ]
    for epsilon in np.linspace(0.0, 9.0, 40).tolist():
        exact = sum(
            mass * (1 - mp.exp(epsilon - loss))
            for loss, mass in law.items()
            if loss > epsilon
        )
        assert lower.delta(epsilon) <= exact <= upper.delta(epsilon), epsilon
    tilt = TILTS[place]
    moment = sum(mass * mp.exp(tilt * loss) for loss, mass in law.items())
    assert mp.log(moment) <= logs[place] <= mp.log(moment) + 0.01 * tilt


def binomial_delta(n, loss, right, epsilon):
    """Delta of n responses with losses -loss and loss, in exact rational numbers."""
    total = mp.mpf(0)
    for k in range(n + 1):
        gap = mp.mpf(loss) * (2 * k - n) - mp.mpf(epsilon)
        if gap > 0:
            p = math.comb(n, k) * right**k * (1 - right) ** (n - k)
            total += mp.mpf(p.numerator) / p.denominator * (1 - mp.exp(-gap))
    return total


@pytest.mark.parametrize(("flip", "n"), [(0.5, 20), (0.9, 100), (0.02, 3), (0.99, 400)])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-15])
def test_bounds_of_many_bits_enclose_the_exact_law(flip, n, delta):
    right = 1 - Fraction(flip) / 2
    loss = mp.log(mp.mpf(right.numerator) / right.denominator / (mp.mpf(flip) / 2))
    below, above = epsilon_bounds(Repeated(RandomizedResponseEvent(flip), n), delta)
    assert binomial_delta(n, loss, right, above) <= delta
    assert below == 0.0 or binomial_delta(n, loss, right, below) >= delta
    assert above - below < 1e-4 * above


@pytest.mark.parametrize("n", [1, 1000, 10**5])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-100])
def test_bounds_of_a_composition_enclose_gaussian_noise(n, delta):
    """At a rate of nearly 1, steps are unsampled: convolutions have a closed form."""
    s = 2.0 * math.sqrt(n)
    below, above = epsilon_bounds(
        Repeated(PoissonSampled(1 - 1e-13, Gaussian(s)), n), delta
    )
    assert exact_gaussian(above, 2.0) <= delta * (1 + 1e-6 * n)
    assert exact_gaussian(below, 2.0) >= delta * (1 - 1e-6 * n)
    assert 0.999 * above < below <= above


def test_two_kinds_of_steps_are_enclosed_by_integration():
    """A Gaussian and a Laplace step: the Laplace curve, averaged over Gaussian loss."""
    s, b, epsilon = mp.mpf(1.5), mp.mpf(2), mp.mpf("1.7")

    def laplace(e):
        if e >= 1 / b:
            return mp.mpf(0)
        return 1 - mp.exp(e) if e <= -1 / b else 1 - mp.exp((e - 1 / b) / 2)

    def density(x):  # of the loss under P
        return mp.npdf(x, 1 / (2 * s * s), 1 / s)

    cuts = [-10, epsilon - 1 / b, epsilon + 1 / b, 10]
    delta = mp.quad(lambda x: density(x) * laplace(epsilon - x), cuts)
    below, above = epsilon_bounds([Gaussian(1.5), Laplace(2.0)], float(delta))
    assert below <= epsilon <= above < epsilon * (1 + 1e-3)


@pytest.mark.parametrize(
    "event", [BoundedRange(2.0), RandomizedResponseEvent(0.5)], ids=repr
)
def test_a_bound_that_no_float_holds_bounds_nothing(event):
    """At a tilt far too large for a bounded loss, NaN was taken for a lower bound."""
    groups = ((event, 1),)
    logs = summed_cumulants(groups, False)
    for upper, useless in ((True, 1.0), (False, 0.0)):
        law = compose(groups, 1e-12, len(TILTS) - 1, logs, added=False, upper=upper)
        if law is None:  # nothing was computed
            continue
        deltas = np.array([law.delta(epsilon) for epsilon in np.linspace(0.0, 1.0, 11)])
        assert ((deltas >= useless) if upper else (deltas <= useless)).all()
    delta = 1e-12
    below, above = epsilon_bounds(BoundedRange(2.0), delta)
    y = 1.0 - math.sqrt(-delta * math.expm1(-2.0))  # the worst choice, in closed form
    assert below <= 2.0 + 2.0 * math.log(y) <= above


def brute_force(e, count, t, steps=40):
    """The best adaptive choice of ranges on a grid of ends: an attack, from below."""
    if count == 0:
        return max(0.0, 1.0 - t)
    best = 0.0
    for k in range(steps + 1):
        u = math.exp(k * e / steps)
        p = (1.0 - u * math.exp(-e)) / -math.expm1(-e)
        best = max(
            best,
            p * brute_force(e, count - 1, t / u, steps)
            + (1.0 - p) * brute_force(e, count - 1, t * math.exp(e) / u, steps),
        )
    return best


@pytest.mark.parametrize("e", [0.2, 1.0, 3.0])
def test_no_adaptive_choice_of_ranges_costs_more_than_is_charged(e):
    for count in (1, 2):
        curve = bounded_ranges_curve(e, count)
        for epsilon in np.linspace(-count * e, count * e, 9)[1:-1]:
            charged = float(curve.at(np.array([epsilon]))[0][0])
            attack = brute_force(e, count, math.exp(epsilon))
            assert attack <= charged <= attack + 2e-3
            if count == 1:
                y = math.exp((epsilon - e) / 2)
                assert attack <= (1 - y) ** 2 / -math.expm1(-e) * (1 + 1e-9)


def test_assumed_errors_of_special_functions_hold():
    """What the proof assumes of exp, erfcx and ndtr, at points over all ranges."""
    from scipy.special import erfcx, ndtr

    x = np.concatenate([np.geomspace(1e-12, 26.0, 200), np.linspace(0.0, 600.0, 101)])
    for y, found in zip(x, np.exp(-x), strict=True):
        assert abs(found / mp.exp(-mp.mpf(y)) - 1) < 8 * 2.0**-53
    for y, found in zip(x, erfcx(x), strict=True):
        exact = mp.exp(mp.mpf(y) ** 2) * mp.erfc(mp.mpf(y))
        assert abs(found / exact - 1) < 64 * 2.0**-53
    for y, found in zip(x, ndtr(x), strict=True):
        assert abs(found / mp.ncdf(mp.mpf(y)) - 1) < 64 * 2.0**-53


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (Gaussian(1.0), 1e-201),
        (Repeated(PoissonSampled(0.1, Gaussian(1.0)), 2**36), 1e-6),
    ],
)
def test_what_cannot_be_bounded_is_refused_or_never_too_small(event, delta):
    assert epsilon_of(event, delta) > 1e5
    assert epsilon_of_mu(1.0, 1e-310) == math.inf  # which no computed delta is below
    with pytest.raises(ValueError, match=r"at most 2\*\*36"):
        epsilon_of([Repeated(Laplace(1.0), 2**36), Laplace(1.0)], delta)
    with pytest.raises(ValueError, match=r"2\*\*36|68719476736"):
        Repeated(Gaussian(1.0), 2**36 + 1)


def exact_two_steps(epsilon, q, s, *, added):
    """The first step's outcomes, each with the exact curve of the second."""
    t, q, s = mp.exp(mp.mpf(epsilon)), mp.mpf(q), mp.mpf(s)

    def rest(x):
        ratio = 1 - q + q * mp.exp((2 * x - 1) / (2 * s * s))
        left = t * ratio if added else t / ratio
        density = mp.npdf(x, 0, s)
        if not added:
            density = (1 - q) * density + q * mp.npdf(x, 1, s)
        return density * exact_sampled(mp.log(left), q, s, added=added)

    return mp.quad(rest, [i * s for i in range(-14, 16 + math.ceil(1 / s))])


RARE = [(1e-6, 0.5, 1e-9), (1e-4, 0.3, 1e-6), (1e-5, 1.0, 1e-8)]


@pytest.mark.ci
@pytest.mark.parametrize(("q", "s", "delta"), RARE)
def test_two_rare_steps_cost_what_an_integral_says(q, s, delta):
    with mp.workdps(30):
        epsilon = epsilon_of(Repeated(PoissonSampled(q, Gaussian(s)), 2), delta)
        for added in (False, True):
            assert exact_two_steps(epsilon, q, s, added=added) <= delta
        assert exact_two_steps(0.99 * epsilon, q, s, added=False) > delta


@pytest.mark.parametrize(("n", "flip"), [(3, 0.5), (40, 0.9)])
def test_a_rare_step_beside_bits_costs_what_a_binomial_mixture_says(n, flip):
    q, s, delta = 1e-5, 0.5, 1e-7
    step = PoissonSampled(q, Gaussian(s))
    epsilon = epsilon_of([step, Repeated(RandomizedResponseEvent(flip), n)], delta)
    e = mp.log(2 / mp.mpf(flip) - 1)
    p = 1 / (1 + mp.exp(-e))

    def exact(bound, added):
        return mp.fsum(
            mp.binomial(n, ones)
            * p**ones
            * (1 - p) ** (n - ones)
            * exact_sampled(bound - (2 * ones - n) * e, q, s, added=added)
            for ones in range(n + 1)
        )

    for added in (False, True):
        assert exact(mp.mpf(epsilon), added) <= delta
    assert exact(0.98 * mp.mpf(epsilon), False) > delta


@pytest.mark.parametrize(
    ("q", "s", "n", "delta", "most"),
    [
        (1e-6, 1.0, 400, 1e-6, 4.1e-5),
        (1e-7, 0.5, 10_000, 1e-6, 2.3e-4),
        (1e-6, 0.4, 1000, 1e-6, 0.0271),
        (1e-6, 0.5, 10**6, 1e-6, 0.0605),
        (1e-4, 0.3, 100, 1e-6, 8.13),
        (1e-4, 1.0, 10**5, 1e-6, 0.1580),
        (1e-6, 1.0, 100, 1e-24, 0.0135),  # whose other direction costs 6e-5
        (1e-6, 1.0, 10**6, 9e-21, 0.0144),
    ],
)
def test_rare_sampling_wastes_no_budget(q, s, n, delta, most):
    """Known values, from ten times as many knots, and a few percent."""
    step = PoissonSampled(q, Gaussian(s))
    epsilon = epsilon_of(Repeated(step, n), delta)
    assert 0.96 * most < epsilon < most
    # one round and then the others is the same composition
    both = epsilon_of([step, Repeated(step, n - 1)], delta)
    assert both == epsilon


def test_what_cannot_hide_costs_the_rounds_that_sample_a_unit():
    """With next to no noise, losses are above 600: no law on knots holds them."""
    q, s, delta = 0.01, 0.03, 1e-3
    with mp.workdps(15):
        epsilon = epsilon_of(Repeated(PoissonSampled(q, Gaussian(s)), 2), delta)
        assert exact_two_steps(epsilon, q, s, added=False) <= delta
        assert exact_sampled(0.85 * epsilon, q, s, added=False) > delta  # of one


@pytest.mark.parametrize(
    ("n", "q", "p"), [(1000, 1e-6, 1e-9), (2**36, 1e-9, 1e-6), (50, 0.4, 1e-9)]
)
def test_a_unit_is_hardly_ever_sampled_more_often(n, q, p):
    most = _most_samples(n, q, p)
    rates = [
        mp.binomial(n, j) * mp.mpf(q) ** j * (1 - mp.mpf(q)) ** (n - j)
        for j in range(most + 1)
    ]
    assert 1 - mp.fsum(rates) <= p
    assert 1 - mp.fsum(rates[:-1]) > p
    assert _most_samples(n, q, 0.0) == n


def test_losses_that_no_float_holds_are_infinite():
    """Who is sampled once is found: with probability 1e-7."""
    plan = Repeated(PoissonSampled(1e-8, Gaussian(1e-3)), 10)
    assert epsilon_of(plan, 9.9e-8) > 1e5
    assert epsilon_of(plan, 1.1e-7) < 1e-6


@pytest.mark.parametrize(
    "event",
    [
        PoissonSampled(5e-324, Gaussian(1.0)),
        PoissonSampled(1e-310, Gaussian(1e-3)),
        PoissonSampled(1e-10, Gaussian(1e300)),
        BoundedRange(1e-300),
        BoundedRange(5e-324),
        Laplace(1e300),
    ],
)
def test_the_smallest_rates_and_ranges_have_bounds(event):
    low, high = epsilon_bounds(Repeated(event, 10), 1e-6)
    assert 0.0 <= low <= high < 1e-9


@pytest.mark.parametrize("delta", [1e-6, 1e-100])
@pytest.mark.parametrize("noise", [1e90, 1e300])
def test_rare_steps_with_hardly_a_loss_need_few_knots(noise, delta):
    """Of 10**300 sizes of losses, a law would have knots without end."""
    step = PoissonSampled(1e-10, Gaussian(noise))
    assert epsilon_of(Repeated(step, 1000), delta) < 1e-9


STEPS = [(0.05, 1.2, 300, 1e-5), (0.3, 4.0, 100, 1e-6)]


@pytest.mark.parametrize(("q", "s", "n", "delta"), STEPS)
def test_upper_bounds_of_other_libraries_are_not_below_ours(q, s, n, delta):
    """Below the certified lower bound, neither they nor we could be right.

    This holds at a moderate delta.
    """
    below, above = epsilon_bounds(Repeated(PoissonSampled(q, Gaussian(s)), n), delta)
    step = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(s))
    event = dp_event.SelfComposedDpEvent(step, n)
    others = [
        PLDAccountant().compose(event).get_epsilon(delta),
        RdpAccountant().compose(event).get_epsilon(delta),
    ]
    assert below <= min(others) * (1 + 1e-6)
    assert above <= others[1]
    assert above <= others[0] * (1 + 2e-3)
