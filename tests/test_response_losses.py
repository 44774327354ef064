"""Law of the privacy loss of many bits: against products in fractions, and other methods."""

import itertools
import math
from collections import defaultdict
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from dplda.privacy import (
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    epsilon_of,
)
from dplda.privacy._bounds_on_epsilon import (
    grouped,
    pure_epsilon,
    renyi_epsilon,
    response_divergence,
)
from dplda.privacy._composed_losses import loss_distribution_epsilon
from dplda.privacy._events import ErasedResponse
from dplda.privacy._local_mechanisms import RandomizedBits
from dplda.privacy._response_losses import loss_law, response_delta, response_epsilon

KINDS = [RandomizedResponseEvent, ErasedResponse]


def one_response(kind, flip_mixture):
    """Law of the loss of one response, in multiples of its epsilon, as fractions."""
    wrong = Fraction(flip_mixture) / 2
    if kind is RandomizedResponseEvent:
        return {-1: wrong, 1: 1 - wrong}
    return {-1: wrong / 2, 0: Fraction(1, 2), 1: (1 - wrong) / 2}


def composed(law, count):
    total = {0: Fraction(1)}
    for _ in range(count):
        further = defaultdict(Fraction)
        for (a, p), (b, q) in itertools.product(total.items(), law.items()):
            further[a + b] += p * q
        total = further
    return total


def exact_delta(kind, flip_mixture, count, epsilon):
    """At 40 digits, from the law in fractions."""
    with localcontext(prec=40):
        one = (2 / Decimal(flip_mixture) - 1).ln()
        delta = Decimal(0)
        for steps, p in composed(one_response(kind, flip_mixture), count).items():
            if steps * one > Decimal(epsilon):
                share = 1 - (Decimal(epsilon) - steps * one).exp()
                delta += Decimal(p.numerator) / Decimal(p.denominator) * share
        return delta


@pytest.mark.parametrize("flip_mixture", [0.9999998, 0.9, 0.5, 0.02, 1e-9])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_no_probability_is_below_that_of_the_product(kind, flip_mixture, count):
    losses, probabilities = loss_law(kind(flip_mixture), count)
    exact = composed(one_response(kind, flip_mixture), count)
    one = pure_epsilon(grouped(kind(flip_mixture)))
    steps = np.rint(losses / one).astype(int).tolist()
    np.testing.assert_allclose(losses, np.array(steps) * one, rtol=1e-14)
    assert set(steps) == set(exact)
    for step, probability in zip(steps, probabilities.tolist()):
        assert exact[step] - Fraction(1, 10**80) <= Fraction(probability)
        assert Fraction(probability) <= exact[step] * Fraction(1_000_000_002, 10**9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flip_mixture", [0.9999, 0.8, 0.2])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-30])
def test_epsilon_is_the_smallest_that_meets_delta(kind, flip_mixture, delta):
    epsilon = response_epsilon(kind(flip_mixture), 40, delta)
    assert exact_delta(kind, flip_mixture, 40, epsilon) <= Decimal(delta)
    if epsilon > 0:
        assert exact_delta(kind, flip_mixture, 40, epsilon * (1 - 1e-7)) > Decimal(delta)
    # at the smallest deltas, the sum of pure epsilons, which has no margin for rounding
    bound = epsilon_of(Repeated(kind(flip_mixture), 40), delta)
    assert epsilon * (1 - 2e-12) <= bound <= epsilon


@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_many_responses_lose_nothing(kind):
    """Beyond a hundred responses only a window of each binomial law is computed."""
    for count, flip_mixture in ((101, 0.5), (5000, 0.9), (5000, 0.001), (100_000, 0.99)):
        losses, probabilities = loss_law(kind(flip_mixture), count)
        assert len(losses) <= count * 2 + 1
        assert probabilities.sum() == pytest.approx(1 + 1e-9, abs=1e-11)
        e, q = pure_epsilon(grouped(kind(flip_mixture))), flip_mixture / 2
        share = 1.0 if kind is RandomizedResponseEvent else 0.5
        mean = count * share * (1 - 2 * q) * e
        assert losses @ probabilities == pytest.approx(mean, rel=1e-8)
        if flip_mixture < 0.1:
            continue  # the law under the other input lies beyond the window
        # the likelihood ratio has mean 1 under the other input
        assert probabilities @ np.exp(-losses) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_more_responses_and_smaller_deltas_cost_more(kind):
    counts = [1, 2, 10, 99, 100, 101, 1000]
    values = [response_epsilon(kind(0.9), count, 1e-6) for count in counts]
    assert values == sorted(set(values))
    values = [response_epsilon(kind(0.9), 50, delta) for delta in (0.5, 1e-2, 1e-9, 1e-60)]
    assert values == sorted(set(values))
    assert response_epsilon(kind(0.9), 50, 1e-90) == math.inf  # below the mass that is left out
    assert epsilon_of(Repeated(kind(0.9), 50), 1e-90) <= pure_epsilon(grouped(kind(0.9))) * 50


def test_erasing_saves():
    """The figures of docs/proofs_local.md, and the Renyi bound of the same events."""
    for n_words, bit_epsilon, plain, erased in [(20, 0.1, 3.829, 2.774), (100, 0.5, 83.53, 53.00)]:
        flip_mixture = 2 / (1 + math.exp(2 * bit_epsilon))
        for kind, expected in ((RandomizedResponseEvent, plain), (ErasedResponse, erased)):
            events = Repeated(kind(flip_mixture), n_words)
            assert epsilon_of(events, 1e-6) == pytest.approx(expected, rel=2e-4)
            assert epsilon_of(events, 1e-6) < renyi_epsilon(grouped(events), 1e-6)
            assert epsilon_of(events, 0.0) == pytest.approx(2 * bit_epsilon * n_words)


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
@pytest.mark.parametrize("flip_mixture", [0.999, 0.5, 1e-3])
def test_renyi_divergence_of_an_erased_response(order, flip_mixture):
    e, q = math.log(2 / flip_mixture - 1), flip_mixture / 2
    power = 0.5 + 0.5 * ((1 - q) * math.exp((order - 1) * e) + q * math.exp((1 - order) * e))
    found = response_divergence(ErasedResponse(flip_mixture), np.array([order]))[0]
    assert found == pytest.approx(math.log(power) / (order - 1), rel=1e-8)


@pytest.mark.parametrize("flip_mixture", [1e-280, 1e-9, 0.3, 1 - 2.0**-20, 1 - 2.0**-53])
@pytest.mark.parametrize("n_buckets", [2, 7])
def test_renyi_divergences_of_responses_lose_no_digits(flip_mixture, n_buckets):
    orders = np.array([1.1, 2.0, 64.0, 1024.0])
    found = response_divergence(RandomizedResponseEvent(flip_mixture, n_buckets), orders)
    with localcontext(prec=80):
        wrong = Decimal(flip_mixture) / n_buckets
        right = 1 - Decimal(flip_mixture) + wrong
        for order, value in zip(map(Decimal, orders.tolist()), map(Decimal, found.tolist())):
            power = right**order * wrong ** (1 - order) + wrong**order * right ** (1 - order)
            exact = (power + (n_buckets - 2) * wrong).ln() / (order - 1)
            assert exact <= value <= exact * Decimal(1 + 1e-8)


@pytest.mark.parametrize("event", [kind(1 - 2.0**-30) for kind in KINDS])
def test_a_great_many_responses_with_hardly_any_effect_are_not_free(event):
    """The library's divergences of one of them are rounding errors, and were 0 or below."""
    one = pure_epsilon(grouped(event))
    mu = one * math.sqrt(1e18 if isinstance(event, RandomizedResponseEvent) else 0.5e18)
    limit = epsilon_of(Gaussian(1 / mu), 1e-6)  # central limit theorem
    assert 0.99 * limit <= epsilon_of(Repeated(event, 10**18), 1e-6) <= 1.2 * limit


@pytest.mark.parametrize(
    ("rate", "multiplier", "count", "delta"), [(0.5, 1e8, 10**16, 1e-6), (0.2, 1e9, 10**7, 1e-14)]
)
def test_a_great_many_sampled_steps_with_hardly_any_effect_are_not_free(
    rate, multiplier, count, delta
):
    limit = epsilon_of(Gaussian(multiplier / rate / math.sqrt(count)), delta)
    event = PoissonSampled(rate, Gaussian(multiplier))
    assert epsilon_of(Repeated(event, count), delta) >= 0.99 * limit


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_grid_is_above_the_exact_law_and_close(kind, delta):
    groups = grouped(Repeated(kind(0.7), 40))
    exact = response_epsilon(kind(0.7), 40, delta)
    on_grid = loss_distribution_epsilon(groups, delta, 1.1 * exact)
    assert exact <= on_grid <= exact * (1 + 1e-6)


@pytest.mark.parametrize(("n_ones", "n_bits"), [(7, 9), (20, 30), (60, 100)])
@pytest.mark.parametrize("probability", [0.1, 0.4])
def test_pairs_and_single_bits_compose(n_ones, n_bits, probability):
    """Two kinds of responses have no common lattice: on a grid, never below the exact sum."""
    events = RandomizedBits(probability, fair_ones=True).events(n_ones, n_bits)
    counts = [getattr(event, "count", 1) for event in events]
    assert counts == [n_bits - n_ones, 2 * n_ones - n_bits]
    (one, p), (other, q) = (loss_law(event.event, event.count) for event in events)
    losses, law = np.add.outer(one, other).ravel(), np.multiply.outer(p, q).ravel()
    for delta in (1e-3, 1e-6):
        epsilon = epsilon_of(events, delta)
        assert response_delta(losses, law, epsilon) <= delta * (1 + 1e-6)
        assert response_delta(losses, law, epsilon * (1 - 1e-3)) > delta


def test_responses_compose_with_other_events():
    for kind in KINDS:
        bits, others = Repeated(kind(0.9), 30), Repeated(Laplace(5.0), 10)
        alone = [epsilon_of(events, 1e-6) for events in (bits, others)]
        assert max(alone) < epsilon_of([bits, others], 1e-6) < sum(alone)


@pytest.mark.parametrize("n_buckets", [2, 10**6])
def test_a_response_has_noise_that_divergences_can_hold(n_buckets):
    event = RandomizedResponseEvent(2e-290 * n_buckets, n_buckets)
    assert 600.0 < epsilon_of(event, 1e-6) < math.inf
    with pytest.raises(ValueError, match="hardly any noise"):
        RandomizedResponseEvent(0.9e-290 * n_buckets, n_buckets)
