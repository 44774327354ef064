"""Enumerations of the privacy room: each formula against exact values or a slow twin.

Curves, grid laws, compositions, filters, groups, records and streams. A module of this
kind may name the insides of its room; all others ask public calls.
"""

import json
import math
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from functools import lru_cache

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from oracle import Oracle
from scipy.stats import binom, norm
from test_accounting import ONE_OF_EACH, ROOTS

from dplda.gibbs._frozen_table import MAX_COMPONENTS
from dplda.privacy import (
    ApproximateDP,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    _accounting,
    _mechanisms,
    calibrate,
    epsilon_of,
)
from dplda.privacy._accounting import delta_charge, gaussian_mu
from dplda.privacy._composition import (
    TILTS,
    cumulants,
    renyi_epsilons,
)
from dplda.privacy._curator import check_words
from dplda.privacy._curves import (
    bounded_range_divergence,
)
from dplda.privacy._events import BoundedRange, from_record, to_record
from dplda.privacy._filters import Filter, choose_filter
from dplda.privacy._groups import event_of_step
from dplda.privacy._mechanisms import (
    MAX_FLIP,
    MIN_FLIP,
    WORD_VARIATION,
    RandomizedBits,
    clip_rows,
    count_unit,
)
from dplda.privacy._streams import MAX_WORDS, Purpose, keystream_total_variation
from dplda.privacy.mechanisms import (
    TOTAL_VARIATION,
    DiscreteGaussian,
    Streams,
)

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


STEPS = [(0.05, 1.2, 300, 1e-5), (0.3, 4.0, 100, 1e-6)]


def bounded_range_in_decimals(epsilon, order):
    """The maximum over u of A u**(a - 1) - B u**a, at 60 digits."""
    with localcontext(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN):
        e, a = Decimal(epsilon), Decimal(order)
        once, often = (-e).exp(), (-a * e).exp()
        high, low = (1 - often) / (1 - once), (once - often) / (1 - once)
        u = high * (a - 1) / (a * low)
        return ((high * u ** (a - 1) - low * u**a).ln()) / (a - 1)


@pytest.mark.parametrize(
    "epsilon", [1e-9, 1e-3, 0.0976, 0.4463, 1.0, 2.0, 9.2302, 50.0, 300.0]
)
def test_no_rounding_makes_a_bounded_range_choice_too_cheap(epsilon):
    for order in (2.0, 3.0, 64.0, 1024.0):
        charged = float(bounded_range_divergence(epsilon, np.array([order]))[0])
        exact = bounded_range_in_decimals(epsilon, order)
        assert exact <= Decimal(charged) <= exact * Decimal("1.000000002")
    # between them and beyond
    for order in (1.0 + 2.0**-8, 1.5, 2.0**20 + 1.0, 2.0**32 + 1.0):
        charged = float(bounded_range_divergence(epsilon, np.array([order]))[0])
        assert Decimal(charged) >= bounded_range_in_decimals(epsilon, order)


@pytest.mark.parametrize(
    ("q", "s"), [(0.01, 0.8), (0.3, 2.0), (0.999, 30.0), (1e-6, 0.5)]
)
def test_cumulants_of_sampled_steps_are_not_below_the_finite_sums(q, s):
    """Mironov, Talwar and Zhang 2019, in 60 digits."""
    charged = cumulants(PoissonSampled(q, Gaussian(s)), False)
    with localcontext(prec=60):
        rate, noise = Decimal(q), Decimal(s)
        for order in (2, 3, 9):  # whose masses are in reach
            terms = [
                math.comb(order, i)
                * (1 - rate) ** (order - i)
                * rate**i
                * (Decimal(i * (i - 1)) / (2 * noise * noise)).exp()
                for i in range(order + 1)
            ]
            found = Decimal(float(charged[TILTS.tolist().index(order - 1.0)]))
            exact = sum(terms).ln()
            assert exact <= found <= exact * (1 + Decimal("0.1")) + Decimal("1e-12"), (
                order
            )


def flips(epsilon):
    return RandomizedResponseEvent(2.0 / (1.0 + math.exp(epsilon)))


def largest_delta(kinds, epsilon, allowed):
    """Exact delta at epsilon of a strategy that chooses steps by what was released."""

    @lru_cache(None)
    def value(counts, loss):
        best = max(0.0, 1.0 - math.exp(epsilon - loss))
        for i, kind in enumerate(kinds):
            e, d = kind if isinstance(kind, tuple) else (kind, 0.0)
            further = tuple(n + (i == j) for j, n in enumerate(counts))
            if allowed(further):
                up = 1.0 / (1.0 + math.exp(-e))
                gains = (value(further, round(loss + sign * e, 9)) for sign in (1, -1))
                gain = sum(
                    p * gain for p, gain in zip((up, 1 - up), gains, strict=True)
                )
                best = max(best, d + (1.0 - d) * gain)
        return best

    return value((0,) * len(kinds), 0.0)


KINDS, BESIDE_STATEMENTS = (1.0, 0.25), (0.25, (0.5, 0.002))


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.02), (3.0, 0.003), (1.0, 0.1)])
@pytest.mark.parametrize(
    ("steps", "plan"),
    [
        (KINDS, [0]),
        (KINDS, [1, 1]),
        (KINDS, [0, 1]),
        (BESIDE_STATEMENTS, [0]),
        (BESIDE_STATEMENTS, [1]),
        (BESIDE_STATEMENTS, [0, 0, 1]),
    ],
)
def test_no_strategy_gets_past_the_filter(steps, plan, epsilon, delta):
    events = [
        ApproximateDP(*step) if isinstance(step, tuple) else flips(step)
        for step in steps
    ]
    chosen = choose_filter(tuple(events[i] for i in plan), 0.0, epsilon, delta)
    costs = [chosen.cost((event,), 0.0) for event in events]

    @lru_cache(None)
    def has_room(counts):
        total = sum(
            (n * cost for n, cost in zip(counts, costs) if n), np.zeros(len(costs[0]))
        )
        return sum(counts) <= 40 and chosen.used(total) <= 1.0

    assert largest_delta(steps, epsilon, has_room) <= delta
    assert has_room((plan.count(0), plan.count(1)))


@pytest.mark.parametrize("total_variation", [1e-9, 2e-4])
@pytest.mark.parametrize(
    "plan", [[Gaussian(3.0)], [flips(0.05)], [Laplace(9.0), Gaussian(9.0)]]
)
def test_filter_distances_and_statements_share_delta(plan, total_variation):
    epsilon, delta, stated = 2.0, 0.01, ApproximateDP(0.05, 1e-4)
    chosen = choose_filter((*plan, stated), total_variation, epsilon, delta)
    distance, lost, shift = chosen.reserved
    assert distance >= total_variation
    assert min(lost - stated.delta, shift - stated.epsilon) >= 0.0
    ((what, limit),) = chosen.limits
    left = delta - lost - (1 + math.exp(epsilon)) * distance
    if what is None:
        spent = epsilon_of(Gaussian(limit**-0.5), left)
    else:
        spent = renyi_epsilons(np.full(len(TILTS), limit), left)[what]
    assert 0.999 * (epsilon - shift) < spent <= (epsilon - shift) * (1 + 1e-12)


def test_a_filter_comes_back_as_it_was_written():
    plan = (
        Repeated(PoissonSampled(0.1, Gaussian(2.0)), 7),
        Gaussian(9.0),
        Laplace(0.3),
    )
    for epsilon, what in (
        (30.0, int),
        (epsilon_of(plan, 1e-6) * (1 + 1e-4), type(None)),
    ):
        chosen = choose_filter(plan, 1e-20, epsilon, 1e-6)
        assert Filter.from_text(chosen.to_text()) == chosen
        assert type(chosen.limits[0][0]) is what


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("noise", [1e-3, 1e-60, 1e-100])
def test_next_to_no_noise_has_room_in_no_filter(noise):
    filter_of_steps = choose_filter(
        (PoissonSampled(0.1, Gaussian(9.0)),), 0.0, 4.0, 1e-6
    )
    assert isinstance(filter_of_steps.limits[0][0], int)
    cost = filter_of_steps.cost((PoissonSampled(0.5, Gaussian(noise)),), 0.0)
    assert filter_of_steps.used(cost) == math.inf


def group_densities(rate, m, size):
    """A grid, the noise, and what a group adds: each takes part alone, and they add."""
    y = np.linspace(-12 * m, size + 12 * m, 20_001)
    present = sum(binom.pmf(j, size, rate) * norm.pdf(y, j, m) for j in range(size + 1))
    return y[1] - y[0], norm.pdf(y, 0, m), present


@pytest.mark.parametrize(
    ("rate", "m", "size"), [(0.1, 0.2, 3), (0.5, 2.0, 2), (0.01, 0.8, 10)]
)
def test_the_event_of_a_group_dominates_its_exact_law(rate, m, size):
    sampled = event_of_step(PoissonSampled(rate, Gaussian(m)), size)
    step, absent, present = group_densities(rate, m, size)
    y = np.linspace(-12 * m, size + 12 * m, 20_001)
    shifted = norm.pdf(y, size, size * sampled.event.noise_multiplier)
    r = sampled.sampling_probability
    charged = (1 - r) * absent + r * shifted
    for ratio in np.exp(np.linspace(0.0, 8.0, 17)):
        for real, bound in (
            ((present, absent), (charged, absent)),
            ((absent, present), (absent, charged)),
        ):
            excess, most = (
                np.maximum(p - ratio * q, 0).sum() * step for p, q in (real, bound)
            )
            assert excess <= most + 1e-12
    assert r < 1 - (1 - rate) ** size + 1e-8


@pytest.fixture
def streams():
    return Streams.from_random_state(0)


def test_the_last_words_of_a_stream_can_be_read_and_no_more(streams):
    last = streams.reader(Purpose.TOPICS, 0, skip=MAX_WORDS - 3).words(3)
    assert_array_equal(
        streams.reader(Purpose.TOPICS, 0, skip=MAX_WORDS - 1).words(1), last[2:]
    )
    with pytest.raises(ValueError, match="n must be an integer from 0 to 1, got 2"):
        streams.reader(Purpose.TOPICS, 0, skip=MAX_WORDS - 1).words(2)
    for skip in (-1, MAX_WORDS):
        with pytest.raises(ValueError, match="skip must be an integer"):
            streams.reader(Purpose.TOPICS, 0, skip=skip).words(1)


def test_keystream_total_variation():
    assert keystream_total_variation(0) == 0
    assert keystream_total_variation(2**41) == 2.0**-49
    assert keystream_total_variation(3) == keystream_total_variation(4) == 2.0**-127
    # 1e9 draws of one word, and two spare words for a tie in 512 of three look-ups each
    assert keystream_total_variation(int(1.0117e9)) == pytest.approx(3.76e-22, rel=1e-3)


def test_the_distance_covers_all_words_that_a_fit_may_draw():
    """Noise and order, and topics: 128 bits miss a probability by 2**-128 at most."""
    least = keystream_total_variation(MAX_WORDS) + MAX_WORDS * WORD_VARIATION
    topics = MAX_WORDS * MAX_COMPONENTS / 2 * 2.0**-128
    assert least < least + topics <= TOTAL_VARIATION < 1e-12


@pytest.mark.parametrize("event", [*ONE_OF_EACH, ApproximateDP(0.1, 1e-7)], ids=repr)
def test_record_round_trip_is_exact(event):
    again = from_record(json.loads(json.dumps(to_record(event))))
    assert again == event
    assert hash(again) == hash(event)


def test_a_record_of_no_known_event_is_refused():
    for bad in ({"event": "Cauchy", "scale": 1.0}, {}, {"event": "Laplace"}):
        with pytest.raises(ValueError, match=r"unknown|wrong fields"):
            from_record(bad)


def test_the_charge_for_a_distance_is_zero_without_one_and_infinite_beyond_floats():
    assert delta_charge(0.0, math.inf) == 0.0
    assert delta_charge(1e-20, 1000.0) == math.inf


@pytest.mark.parametrize("n_rounds", [1, 20, 100])
def test_the_mu_of_a_budget_is_what_calibration_finds(n_rounds):
    for target in (1.0, 2.0, 4.0, 8.0):
        noise = calibrate(lambda s: Repeated(Gaussian(s), n_rounds), target, 1e-5)
        expected = math.sqrt(n_rounds) / gaussian_mu(target, 1e-5)
        assert noise == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-6), (math.inf, 1e-6), (1.0, 0)]
)
def test_no_mu_is_found_for_no_budget(epsilon, delta):
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        gaussian_mu(epsilon, delta)


@pytest.mark.parametrize(("noise_multiplier", "delta", "true"), ROOTS)
def test_the_mu_of_a_root_is_not_too_large(noise_multiplier, delta, true):
    assert gaussian_mu(true, delta) <= 1 / noise_multiplier


def rounded(noise):
    """To a grid: the cost jumps with the noise, by more than a calibration may miss."""
    return DiscreteGaussian.for_noise_multiplier(noise).event


@pytest.mark.parametrize(
    ("make_event", "epsilon", "delta", "n", "q"),
    [
        (Gaussian, 1.0, 1e-5, 80, 0.1),
        (Gaussian, 0.05, 1e-6, 200, 0.5),
        (Gaussian, 8.0, 1e-5, 1000, 0.01),
        (Gaussian, 4.0, 1e-9, 20, 0.9),
        (rounded, 0.05, 1e-6, 200, 0.5),
    ],
)
def test_a_calibration_composes_few_laws(monkeypatch, make_event, epsilon, delta, n, q):
    composed = []
    bound = _accounting.bound_epsilon

    def counted(groups, delta):
        composed.append(groups)
        return bound(groups, delta)

    def step(noise):
        return Repeated(PoissonSampled(q, make_event(noise)), n)

    monkeypatch.setattr(_accounting, "bound_epsilon", counted)
    noise = calibrate(step, epsilon, delta)
    monkeypatch.undo()
    assert 0 < len(composed) <= 12
    less = step(noise * (1 - 1.1e-4))
    assert epsilon_of(step(noise), delta) <= epsilon < epsilon_of(less, delta)


@pytest.mark.parametrize("probability", [0.003, 0.2, 0.45])
def test_flips_do_not_depend_on_the_bits(probability):
    streams, n_bits = Streams(bytes(32), seeded=True), 50_000
    bits, flips = (
        RandomizedBits(probability),
        lambda: streams.reader(Purpose.BIT_FLIPS, 0),
    )
    ones = np.flatnonzero(np.random.default_rng(0).random(n_bits) < 0.1)
    reported = bits(ones, n_bits, flips())
    flipped = bits(np.empty(0, np.int64), n_bits, flips())
    np.testing.assert_array_equal(reported, np.setxor1d(ones, flipped))
    assert reported.dtype == np.int64


@pytest.mark.parametrize(
    "probability", [MIN_FLIP, 1e-4, 0.01, 0.05, 1 / 3, 0.25, 0.4, 0.45, 0.499, MAX_FLIP]
)
def test_no_log_ratio_exceeds_its_price(probability):
    """With the flip probability that runs, 1 - exp(-1/scale), to 60 digits.

    The scale is the float one.
    """
    bits = RandomizedBits(probability)
    with localcontext(prec=60):
        flip = 1 - (-1 / Decimal(bits.scale)).exp()
        assert Decimal(2) ** -49 < flip / Decimal(probability) - 1 < Decimal(2) ** -47
        assert flip < Decimal("0.5")
        (event,) = bits.events(1, 1)
        assert ((1 - flip) / flip).ln() <= (2 / Decimal(event.flip_mixture) - 1).ln()


def test_what_a_row_becomes_does_not_depend_on_the_others():
    """Its length, bit for bit; else `clip_rows` works by entry or in integers."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(
        rng.lognormal(size=(40, 300)) * (rng.uniform(size=(40, 300)) < 0.9)
    )
    whole = _mechanisms._squared_lengths(X)
    for d in range(40):
        rest = np.delete(np.arange(40), d)
        np.testing.assert_array_equal(
            _mechanisms._squared_lengths(X[rest]), whole[rest]
        )


@pytest.mark.parametrize("share", [0.25, 0.9, 1 - 1e-5, 1 - 1e-9])
@pytest.mark.parametrize("radius", [1000, 2**30])
def test_the_bound_holds_where_lengths_come_out_too_small(share, radius, monkeypatch):
    """The integers are measured again: float errors cannot exceed the radius."""
    true_lengths = _mechanisms._squared_lengths
    monkeypatch.setattr(
        _mechanisms, "_squared_lengths", lambda rows: share * true_lengths(rows)
    )
    rows = sp.csr_array(np.random.default_rng(0).normal(size=(50, 9)) * 100)
    kept = clip_rows(rows, 1.0, radius).toarray().astype(object)
    assert max((kept**2).sum(axis=1)) <= radius**2
    # a little too long is shortened, the rest is left out
    assert kept.any() == (share > 0.99)


@given(st.integers(64, 2**30), st.integers(1, 100))
def test_moved_counts_stay_in_the_radius(radius, n_moved):
    unit = count_unit(radius, n_moved)
    assert n_moved * unit**2 <= radius**2 < n_moved * (unit + 1) ** 2


def test_the_words_of_all_labels_and_spare_ones_are_counted_together():
    plan = [("totals", Gaussian(2.0)), ("counts", Gaussian(2.0))]
    check_words(plan, {"totals": 2**35, "counts": 2**34})
    for cells in (
        {"totals": 2**35, "counts": 2**35 + 1},
        {"counts": int(0.99 * 2**36)},  # the noise of 1.2% takes a spare word
    ):
        with pytest.raises(ValueError, match="random words"):
            check_words(plan, cells)
