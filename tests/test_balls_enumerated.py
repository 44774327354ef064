"""A second evaluator in balls: arbitrary precision, with radii that are certified.

What an event costs exactly is in a ball; the accountant's bounds must lie on its two
sides. Nothing here comes from the package but events and the bounds.
"""

import math
from fractions import Fraction
from functools import partial

import pytest
from test_accounting import ROOTS

from dplda.privacy import (
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    epsilon_bounds,
    epsilon_of,
)
from dplda.privacy._accounting import gaussian_mu
from dplda.privacy._mechanisms import (
    MAX_FLIP,
    MIN_FLIP,
    NOISE_VARIANCE,
    DiscreteGaussian,
    RandomizedBits,
)
from dplda.text._selection import failure_event, selection_threshold

flint = pytest.importorskip("flint", reason="python-flint evaluates in balls")
arb, acb = flint.arb, flint.acb
LOOSE = 1.002  # of bounds of compositions: the page states how close they are


@pytest.fixture(autouse=True)
def precision():
    flint.ctx.prec = 400


def ball(number):
    """A float or a fraction, exactly or as a ball."""
    exact = Fraction(number)
    return arb(exact.numerator) / exact.denominator


def tail(x):
    """P(N(0, 1) >= x)."""
    return (x / arb(2).sqrt()).erfc() / 2


def gaussian_delta(epsilon, s):
    """Balle and Wang (2018), theorem 8, of the multiplier s."""
    half, far = 1 / (2 * s), epsilon * s
    return tail(far - half) - epsilon.exp() * tail(far + half)


def removed_delta(epsilon, q, s):
    ratio = 1 + (epsilon.exp() - 1) / q
    if not ratio > 0:
        assert ratio <= 0
        return 1 - epsilon.exp()
    return q * gaussian_delta(ratio.log(), s)


def added_delta(epsilon, q, s):
    a = 1 - (1 - q) * epsilon.exp()
    if not a > 0:
        assert a <= 0
        return arb(0)
    return a * gaussian_delta((q * epsilon.exp() / a).log(), s)


def sampled_delta(epsilon, q, s):
    """The larger one of both directions."""
    return removed_delta(epsilon, q, s).max(added_delta(epsilon, q, s))


def responses_delta(epsilon, f, n):
    """Of n responses: losses of e and -e alone."""
    p, e = 1 - f / 2, (2 / f - 1).log()
    total = arb(0)
    for k in range(n + 1):
        gain = 1 - (epsilon - (2 * k - n) * e).exp()
        if gain > 0:
            total += math.comb(n, k) * p**k * (1 - p) ** (n - k) * gain
        else:
            assert gain <= 0 or abs(gain) < arb(2) ** -300
    return total


def laplace_delta(epsilon, b, n):
    """Of n cells of Laplace noise: a loss is e or -e, or has a density between.

    The density under P is exp((l - e) / 2) / 4. Of k losses between, it is an
    exponential times the volume of a slice of a cube, a sum of powers.
    """
    e = 1 / b
    total = arb(0)
    for k in range(n + 1):
        for high in range(n - k + 1):
            low = n - k - high
            ways = math.comb(n, k) * math.comb(n - k, high)
            weight = ways * (arb(1) / 2) ** (n - k) * (-low * e).exp()
            left = epsilon - (high - low) * e  # to be exceeded by the others
            if k == 0:
                gain = 1 - left.exp()
                total += weight * gain if gain > 0 else 0
                continue
            weight *= (arb(1) / 4) ** k * (-k * e / 2).exp() / math.factorial(k - 1)
            for j in range(k):
                begin = 2 * e * j - k * e  # of the power of y = s - begin
                y0, y1 = (left - begin).max(arb(0)), k * e - begin
                if not y1 > y0:
                    continue
                rises = power_integral(k - 1, arb(1) / 2, y0, y1) * (begin / 2).exp()
                falls = power_integral(k - 1, -arb(1) / 2, y0, y1)
                falls *= (left - begin / 2).exp()
                total += (-1) ** j * math.comb(k, j) * weight * (rises - falls)
    return total


def power_integral(m, beta, low, high):
    """The integral of y^m exp(beta y), by parts."""
    at_high, at_low = (beta * high).exp(), (beta * low).exp()
    value = (at_high - at_low) / beta
    for i in range(1, m + 1):
        at_high *= high
        at_low *= low
        value = (at_high - at_low - i * value) / beta
    return value


def twice_removed_delta(epsilon, q, s):
    """Two sampled steps: the integral of the second one's curve over the first's loss.

    Where a loss leaves less than log(1 - q), the second curve is 1 - t, up to what is
    added as a ball. Beyond 20 deviations, masses are added as a ball, too.
    """
    t, q, s = epsilon.exp(), acb(q), acb(s)

    def density(x):
        bells = (1 - q) * (-((x / s) ** 2) / 2).exp()
        bells += q * (-(((x - 1) / s) ** 2) / 2).exp()
        return bells / (s * acb(2 * arb.pi()).sqrt())

    def left(x):
        """What the first loss leaves of t."""
        return t / (1 - q + q * ((2 * x - 1) / (2 * s**2)).exp())

    def inner(x, analytic):
        r = (1 + (left(x) - 1) / q).log(analytic=analytic)
        near, far = (r * s - 1 / (2 * s)), (r * s + 1 / (2 * s))
        root = acb(2).sqrt()
        curve = (near / root).erfc() / 2 - r.exp() * (far / root).erfc() / 2
        return density(x) * q * curve

    def outer(x, analytic):
        return density(x) * (1 - left(x))

    s_real, q_real = s.real, q.real
    lowest = -20 * s_real
    depth = 12 / s_real + 1  # of r, below which the second curve is 1 - t
    ratio = 1 - q_real + q_real * (-depth).exp()
    edge = ((t / ratio - 1 + q_real) / q_real).log() * s_real**2 + arb(1) / 2
    edge = arb(edge.mid())
    highest = edge.max(arb(0)) + 20 * s_real + 1
    total = acb.integral(inner, lowest, edge).real
    total += acb.integral(outer, edge, highest).real
    # q exp(r) G(-r) is above 1 - t, and G at `depth` is below a tail of 10 deviations
    beyond = tail(arb(10)) + 2 * tail(arb(19))
    return total + beyond * arb(0.5, 0.5)


def encloses(events, delta, exact, loose=1.0):
    """Whether the bounds lie on the two sides of the exact epsilon, and near it."""
    lower, upper = epsilon_bounds(events, delta)
    target = ball(delta)
    assert exact(ball(upper)) <= target, (lower, upper)
    if lower > 0:
        assert exact(ball(lower)) >= target, (lower, upper)
    assert lower <= upper <= max(lower * loose, 1e-300) or loose == math.inf


GRID = [1e-2, 1e-5, 1e-9, 1e-15, 1e-60]
NOISES = [0.03, 0.4, 1.0, 3.7322, 26.387, 450.0, 1e5]
SAMPLED = [(0.5, 0.7), (0.2, 1.3), (0.01, 1.0), (1e-4, 0.6), (0.999, 20.0), (1e-8, 0.3)]


@pytest.mark.parametrize("delta", GRID)
@pytest.mark.parametrize("noise", NOISES)
def test_bounds_of_gaussian_noise_enclose_the_ball(noise, delta):
    """Replaces "Both bounds of epsilon are theorems": the root of the closed form."""
    exact = partial(gaussian_delta, s=ball(noise))
    encloses(Gaussian(noise), delta, exact, loose=1 + 1e-8)


@pytest.mark.parametrize(
    ("noise", "count", "delta"),
    [(50.0, 10_000, 1e-6), (450.0, 100_000, 1e-12), (30.0, 40, 1e-6), (2.0, 10, 1e-5)],
)
def test_many_rounds_of_gaussian_noise_enclose_the_ball(noise, count, delta):
    """The rows of accounting.md: 10.99715, 4.95050, and 0.883."""
    exact = partial(gaussian_delta, s=ball(noise) / arb(count).sqrt())
    encloses(Repeated(Gaussian(noise), count), delta, exact, loose=1 + 1e-9)


@pytest.mark.parametrize(("noise", "delta", "true"), ROOTS)
def test_pinned_roots_are_in_their_balls(noise, delta, true):
    assert gaussian_delta(ball(true), ball(noise)) <= ball(delta)
    assert gaussian_delta(ball(true * (1 - 1e-12)), ball(noise)) > ball(delta)


@pytest.mark.parametrize("delta", GRID)
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 40.0])
def test_the_mu_of_a_budget_is_below_its_root(epsilon, delta):
    """Replaces "It is below the exact root by a relative 1e-10 or less." (page)."""
    mu = ball(gaussian_mu(epsilon, delta))
    target, exact = ball(delta), ball(epsilon)
    assert gaussian_delta(exact, 1 / mu) <= target
    assert gaussian_delta(exact, 1 / (mu * (1 + ball(1e-10)))) > target


@pytest.mark.parametrize("delta", GRID[:4])
@pytest.mark.parametrize(("q", "s"), SAMPLED)
def test_bounds_of_a_sampled_step_enclose_the_ball(q, s, delta):
    """Replaces "delta = q G(log(1 + (t - 1) / q))", and of the added unit, "a G(log(q t
    / a))"."""
    exact = partial(sampled_delta, q=ball(q), s=ball(s))
    encloses(PoissonSampled(q, Gaussian(s)), delta, exact, loose=math.inf)


@pytest.mark.parametrize(
    ("q", "s", "delta"), [(0.5, 2.0, 1e-5), (0.2, 1.3, 1e-7), (0.01, 1.0, 1e-6)]
)
def test_two_sampled_steps_cost_at_least_their_integral(q, s, delta):
    """Replaces "The curve of both is at most" the integral of one over the losses of
    the other."""
    flint.ctx.prec = 100
    events = Repeated(PoissonSampled(q, Gaussian(s)), 2)
    lower, upper = epsilon_bounds(events, delta)
    target = ball(delta)
    assert twice_removed_delta(ball(upper), ball(q), ball(s)) <= target
    # the removed unit costs more here: the lower bound is its own
    assert twice_removed_delta(ball(lower), ball(q), ball(s)) >= target
    assert upper <= LOOSE * lower


@pytest.mark.parametrize(
    ("f", "n", "delta"),
    [(0.5, 20, 1e-5), (0.9, 100, 1e-5), (0.02, 3, 1e-9), (0.99, 400, 1e-6)],
)
def test_bounds_of_many_bits_enclose_the_ball(f, n, delta):
    exact = partial(responses_delta, f=ball(f), n=n)
    events = Repeated(RandomizedResponseEvent(f), n)
    encloses(events, delta, exact, loose=math.inf)


@pytest.mark.parametrize(
    ("b", "n", "delta"), [(4.0, 1, 1e-3), (4.0, 12, 1e-5), (10.0, 20, 1e-6)]
)
def test_bounds_of_laplace_noise_enclose_the_ball(b, n, delta):
    flint.ctx.prec = 600
    exact = partial(laplace_delta, b=ball(b), n=n)
    encloses(Repeated(Laplace(b), n), delta, exact, loose=LOOSE)


@pytest.mark.slow
def test_the_row_of_laplace_noise_encloses_the_ball():
    """accounting.md: 12.22236 to 12.22245."""
    flint.ctx.prec = 1600
    exact = partial(laplace_delta, b=ball(4.0), n=100)
    encloses(Repeated(Laplace(4.0), 100), 1e-5, exact, loose=1 + 1e-5)


def test_a_flip_is_never_rarer_than_its_price():
    """Replaces "The q that runs exceeds the q that is charged", at 2,000 floats of all
    sizes."""
    flint.ctx.prec = 200
    for i in range(2001):
        probability = MIN_FLIP * (MAX_FLIP / MIN_FLIP) ** (i / 2000)
        bits = RandomizedBits(min(probability, MAX_FLIP))
        flip = 1 - (-1 / ball(bits.scale)).exp()
        assert ball(bits.probability) < flip < ball(0.5)
        (event,) = bits.events(1, 1)
        charged = (2 / ball(event.flip_mixture) - 1).log()
        assert ((1 - flip) / flip).log() < charged
        assert charged <= ball(epsilon_of(event, 0.0))


def test_a_word_more_costs_no_more_than_its_stated_epsilon():
    """(d): "log(1 / (L + 1) + L exp(2 r) / (L + 1))", or r, with the flips that run."""
    flint.ctx.prec = 200
    for i in range(101):
        probability = MIN_FLIP * (MAX_FLIP / MIN_FLIP) ** (i / 100)
        bits = RandomizedBits(min(probability, MAX_FLIP))
        flip = 1 - (-1 / ball(bits.scale)).exp()
        ratio = (1 - flip) / flip
        assert ratio.log() <= ball(bits.epsilon)
        for cap in (1, 2, 7, 100, 2000):
            kept = arb(cap) / (cap + 1)
            exact = (1 - kept + kept * ratio**2).log().max(ratio.log())
            assert exact <= ball(bits.element_epsilon(cap, 10**4))


@pytest.mark.parametrize("max_terms", [1, 30, 10_000])
@pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-12])
@pytest.mark.parametrize("multiplier", [0.6, 4.0, 900.0])
def test_terms_of_one_unit_reach_the_threshold_as_rarely_as_charged(
    multiplier, delta, max_terms
):
    """Replaces "It passes with probability P[X >= T - R / sqrt t] <= d / t", for each
    t."""
    flint.ctx.prec = 200
    mechanism = DiscreteGaussian.for_noise_multiplier(multiplier)
    threshold = selection_threshold(mechanism, delta, max_terms)
    deviation = arb(NOISE_VARIANCE - 9).sqrt()
    small = ball(Fraction(1, 10**38))
    for t in {*range(1, min(max_terms, 300) + 1), max_terms}:
        weight = math.isqrt(mechanism.radius**2 // t)
        above = tail((threshold - weight - 40) / deviation)
        assert (above + small) * (1 + ball(1e-46)) <= ball(delta) / t
    event = failure_event(delta)
    assert -((1 - ball(delta)).log()) <= ball(event.epsilon)
