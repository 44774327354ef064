"""The record of a guarantee: plain, honest, readable."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pickle
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom, norm

from dplda import HDPLDA, RandomizedResponse, SubLDA
from dplda.audit import replay
from dplda.federated import IFTMParty
from dplda.privacy import (
    ApproximateDP,
    Gaussian,
    Guarantee,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    calibrate,
    epsilon_of,
    limit_rows,
)
from dplda.privacy._events import BoundedRange

ROOT = Path(__file__).parents[1]
EVENTS = (Repeated(Gaussian(30.0), 40),)


def make(**changes):
    fields = {
        "unit": "document",
        "relation": "one document is replaced by an empty one",
        "epsilon": epsilon_of(EVENTS, 1e-6),
        "delta": 1e-6,
        "mechanism": "discrete Gaussian noise on word-topic counts",
        "sensitivity": 6.0,
        "noise_scale": 180.0,
        "seeded": False,
        "assumptions": ("the vocabulary is public", "each row is one person"),
        "events": EVENTS,
        "total_variation": 1e-19,
        "trusted": "whoever holds the texts",
        "provenance": (("vocabulary", "origin not known to the model"),),
        "ledger": "12345678: at most epsilon = 2 at delta = 1e-06, in all",
        "theorem": "docs/proofs_document.md",
    }
    return Guarantee(**(fields | changes))


def test_it_is_frozen_plain_and_equal_by_value():
    guarantee = make()
    assert guarantee == make()
    assert hash(guarantee) == hash(make())
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    with pytest.raises(dataclasses.FrozenInstanceError):
        guarantee.epsilon = 0.1
    for field in dataclasses.fields(guarantee):
        value = getattr(guarantee, field.name)
        assert type(value) in (str, float, bool, tuple)


def test_it_cannot_claim_more_than_its_events_prove():
    with pytest.raises(ValueError, match="less than what the events cost"):
        make(epsilon=0.99 * epsilon_of(EVENTS, 1e-6))
    with pytest.raises(ValueError, match="less than what the events cost"):
        make(events=(NonPrivate(),))
    with pytest.raises(ValueError, match="less than"):
        make(epsilon=math.nan)
    assert make(epsilon=2.0).epsilon == 2.0


def test_without_a_guarantee_nothing_is_said_to_hold():
    text = str(
        make(epsilon=math.inf, delta=0.0, sensitivity=math.inf, events=(NonPrivate(),))
    )
    assert "no privacy guarantee" in text
    for word in (
        "holds if",
        "not covered",
        "protection",
        "secret key",
        "scale",
        "theorem",
    ):
        assert word not in text


def test_the_card_tells_of_a_seed_and_states_no_sensitivity_without_noise():
    assert "none of this holds against anyone" in str(make(seeded=True))
    assert "seed" not in str(make())
    assert "seeded" in repr(make(seeded=True))
    several = str(make(noise_scale=None, sensitivity=1.0))
    assert "together by" not in several


def test_the_summary_is_the_first_lines_and_computes_no_others(monkeypatch):
    assert str(make()).startswith(make().summary() + "\n\nmeaning")
    monkeypatch.delattr(Guarantee, "detection_rate")
    assert make().summary().count("\n") == 2


@pytest.mark.parametrize("noise_multiplier", [0.2, 1.0, 1.2, 4.0, 20.0])
def test_stated_detection_rate_is_that_of_the_best_test(noise_multiplier):
    """The best test of one Gaussian release has the power that its mu gives."""
    events = (Gaussian(noise_multiplier),)
    guarantee = make(
        events=events, epsilon=epsilon_of(events, 1e-6), total_variation=0.0
    )
    best = ndtr(1 / noise_multiplier + ndtri(0.01))
    stated = re.search(r"at most ([\d.]+)% of those", str(guarantee))[1]
    assert best <= float(stated) / 100 <= 1.01 * best + 1e-9
    assert best <= guarantee.detection_rate(0.01) <= best + 3e-12
    assert guarantee.gaussian_mu == pytest.approx(1 / noise_multiplier, rel=1e-12)


def power_of_laws(p, q, alarms):
    """Power of the Neyman-Pearson test between two laws on the same finite set."""
    order = np.argsort(-p / q)
    reached, found = np.cumsum(q[order]), np.cumsum(p[order])
    return float(np.interp(alarms, np.append(0.0, reached), np.append(0.0, found)))


ALARMS = (1e-4, 0.01, 0.05, 0.3, 0.9)


@pytest.mark.parametrize(("flip", "n"), [(0.5, 1), (0.2, 3), (0.98, 100)])
def test_detection_rate_is_never_below_the_power_against_randomized_bits(flip, n):
    ones, right = np.arange(n + 1), 1 - flip / 2
    p, q = binom.pmf(ones, n, right), binom.pmf(ones, n, 1 - right)
    events = (Repeated(RandomizedResponseEvent(flip), n),)
    guarantee = make(
        events=events, epsilon=epsilon_of(events, 1e-6), total_variation=0.0
    )
    for alarms in ALARMS:
        best, bound = power_of_laws(p, q, alarms), guarantee.detection_rate(alarms)
        assert best <= bound * (1 + 1e-12)
        assert bound <= 1.05 * best + 0.02


def cdf_with_unit(y, rate, noise_multiplier, less):
    return (1 - rate) * ndtr(y) + rate * ndtr(y - 1 / noise_multiplier) - less


@pytest.mark.parametrize(("rate", "noise_multiplier"), [(0.1, 0.6)])
def test_detection_rate_is_never_below_the_power_against_one_sampled_step(
    rate, noise_multiplier
):
    events = (PoissonSampled(rate, Gaussian(noise_multiplier)),)
    guarantee = make(
        events=events, epsilon=epsilon_of(events, 1e-6), total_variation=0.0
    )
    for alarms in ALARMS:
        z = ndtri(alarms)
        with_unit = (1 - rate) * alarms + rate * ndtr(z + 1 / noise_multiplier)
        least = brentq(cdf_with_unit, -40, 40, args=(rate, noise_multiplier, alarms))
        without_unit = ndtr(least)  # the test for absence
        best, bound = max(with_unit, without_unit), guarantee.detection_rate(alarms)
        assert best <= bound * (1 + 1e-12)
        assert bound <= 1.05 * best + 0.01


def test_detection_rate_of_laplace_noise():
    events = (Laplace(2.0),)
    guarantee = make(events=events, epsilon=0.5, delta=0.0, total_variation=0.0)
    assert guarantee.detection_rate(0.01) == pytest.approx(
        0.01 * math.exp(0.5), rel=1e-9
    )
    assert guarantee.detection_rate(0.9) >= 1 - 0.1 * math.exp(-0.5) - 1e-12
    choice = (Repeated(BoundedRange(0.4), 30), Repeated(Laplace(4.0), 10))
    guarantee = make(events=choice, epsilon=epsilon_of(choice, 1e-6))
    generic = make(events=(), epsilon=guarantee.epsilon)
    assert guarantee.detection_rate() < 0.7 * generic.detection_rate()


@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-9])
@pytest.mark.parametrize("alarms", [0.0, 1e-9, 0.01])
def test_detection_rate_covers_the_distance_from_ideal_noise(distance, alarms):
    """Each law may move this much probability to where the test says "present"."""
    events = (Gaussian(1.0),)
    epsilon = epsilon_of(events, 1e-6, total_variation=distance)
    guarantee = make(events=events, epsilon=epsilon, total_variation=distance)
    worst = ndtr(ndtri(alarms + distance) + 1.0) + distance
    assert worst <= guarantee.detection_rate(alarms) <= worst + 3e-12


def test_detection_rate_of_a_statement_and_of_no_guarantee():
    """Events that cost less than what is stated may not be all that was released."""
    assert make(epsilon=2.0).detection_rate(0.01) > 0.07 > make().detection_rate(0.01)
    assert make(epsilon=math.inf, events=(NonPrivate(),)).detection_rate(0.01) == 1.0
    both = (Gaussian(3.0), ApproximateDP(0.5, 1e-7))
    guarantee = make(events=both, epsilon=epsilon_of(both, 1e-6))
    assert guarantee.detection_rate() > make(
        events=both[:1], epsilon=2.0
    ).detection_rate(0.001)
    assert guarantee.gaussian_mu is None
    for wrong in (-0.1, 1.1, math.nan, "1"):
        with pytest.raises((TypeError, ValueError), match="false_alarms"):
            make().detection_rate(wrong)


@pytest.mark.parametrize("size", [2, 5])
def test_a_group_under_gaussian_noise_has_as_many_times_the_mu(size):
    group = make().for_groups(size)
    assert group.gaussian_mu == pytest.approx(size * make().gaussian_mu, rel=1e-12)
    of_group = epsilon_of(Gaussian(30 / math.sqrt(40) / size), 1e-6)
    assert group.epsilon == pytest.approx(of_group, rel=1e-9)
    assert group.unit == f"group of {size} documents"
    assert group.sensitivity == 6.0 * size
    assert f"a group has at most {size} documents" in str(group)
    assert make().for_groups(1) == make()


def test_a_group_under_other_noise_has_the_bound_of_a_chain():
    pure = make(events=(Laplace(2.0),), epsilon=0.5, delta=0.0, total_variation=0.0)
    assert pure.for_groups(4).epsilon == pytest.approx(2.0, rel=1e-8)
    # of 20 bits that all differ within the group of 2: 10 for each
    ones = np.arange(21)
    half = (Repeated(RandomizedResponseEvent(0.9), 10),)
    group = make(events=half, epsilon=epsilon_of(half, 1e-3), delta=1e-3).for_groups(2)
    p, q = binom.pmf(ones, 20, 0.55), binom.pmf(ones, 20, 0.45)
    assert np.maximum(p - math.exp(group.epsilon) * q, 0.0).sum() <= 1e-3
    assert group.epsilon <= 2 * epsilon_of(half, 1e-5)
    assert (
        make(epsilon=math.inf, events=(NonPrivate(),)).for_groups(2).epsilon == math.inf
    )
    stated = make(events=(ApproximateDP(1.0, 1e-7),), epsilon=1.0).for_groups(2)
    assert stated.epsilon == pytest.approx(2.0, rel=1e-8)  # at 1e-7 (1 + e) <= 1e-6
    assert (
        make(events=(ApproximateDP(1.0, 1e-7),), epsilon=1.0).for_groups(9).epsilon
        == math.inf
    )
    # the statement says no more
    assert make(epsilon=2.0).for_groups(2).epsilon == math.inf
    assert make(epsilon=2.0, delta=0.0, events=()).for_groups(2).epsilon >= 4.0


def test_the_chain_pays_for_the_distance_from_ideal_noise():
    events = (Repeated(Laplace(10.0), 10),)
    ideal, real = (
        make(
            events=events,
            epsilon=epsilon_of(events, 1e-6, total_variation=distance),
            total_variation=distance,
        ).for_groups(3)
        for distance in (0.0, 2e-11)
    )
    assert real.epsilon > ideal.epsilon
    assert real.total_variation == 2e-11
    assert "delta includes the effect" in str(real)


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_one_member_of_a_team_is_protected_as_a_part_and_not_at_the_stated_epsilon(
    epsilon,
):
    """A team's clipped sum, and that of its others: exact, from the real sums."""
    rng = np.random.default_rng(0)
    others = rng.poisson(1.0, (60, 20)).astype(float)
    member, rest = np.zeros((4, 20)), np.zeros((1, 20))
    member[:, :5], rest[:, 5:15] = 200, 15
    X, Y = (np.vstack([others, rows, rest]) for rows in (member, 0 * member))
    ids = [*range(60)] + [60] * 5
    model = SubLDA(2, epsilon=epsilon, random_state=0)
    exact = exact_cost(model, X, Y, user_ids=ids)
    assert 1.4 * model.epsilon_ < exact <= model.privacy_.for_part_of_unit().epsilon
    part = model.privacy_.for_part_of_unit()
    assert part.gaussian_mu == pytest.approx(2 * model.privacy_.gaussian_mu, rel=1e-12)
    assert (part.unit, part.sensitivity) == (
        "part of a user",
        2 * model.privacy_.sensitivity,
    )
    card = re.search(r"a part +of one user.* epsilon = ([0-9.]+) ", str(model.privacy_))
    assert part.epsilon <= float(card[1]) <= part.epsilon * 1.001


def exact_cost(model, X, Y, **options):
    """Epsilon of all Gaussian releases for a pair of data sets, by sums' distances."""
    distances = np.array(replay(model, X, Y, **options).distances)
    noise = np.array(
        [e.noise_multiplier for e in model.fit(X, **options).privacy_.events]
    )
    return epsilon_of(
        Gaussian(1 / np.sqrt(((distances / noise) ** 2).sum())), model.delta_
    )


@pytest.mark.parametrize(("rate", "m"), [(0.3, 1.0), (0.02, 0.7), (0.9, 3.0)])
def test_a_part_under_sampled_noise_costs_no_more_than_stated(rate, m):
    """One unit in the place of another, opposite one: by quadrature."""
    events = (PoissonSampled(rate, Gaussian(m)),)
    base = make(events=events, epsilon=epsilon_of(events, 1e-5), delta=1e-5)
    part = base.for_part_of_unit()
    y = np.linspace(-1 - 12 * m, 1 + 12 * m, 200_001)
    without, one, other = (norm.pdf(y, at, m) for at in (0, 1, -1))
    p, q = ((1 - rate) * without + rate * c for c in (one, other))
    excess = np.maximum(p - math.exp(part.epsilon) * q, 0).sum() * (y[1] - y[0])
    assert excess <= 1e-5
    assert np.maximum(p - math.exp(base.epsilon) * q, 0).sum() * (y[1] - y[0]) > 1e-5
    assert part.epsilon <= 1.02 * epsilon_of(Gaussian(m / 2), 1e-5)


def test_what_replaces_a_unit_by_any_other_covers_its_parts():
    bits = (Repeated(RandomizedResponseEvent(0.5), 4),)
    guarantee = make(events=bits, epsilon=epsilon_of(bits, 1e-6))
    assert guarantee.for_part_of_unit().epsilon == guarantee.epsilon
    # the statement says no more
    assert make(epsilon=2.0).for_part_of_unit().epsilon == math.inf
    # of which two steps would have a delta above 1
    nominal = (ApproximateDP(30.0, 1e-7),)
    assert make(events=nominal, epsilon=30.0).for_part_of_unit().epsilon == math.inf
    with pytest.raises(ValueError, match="a word has no parts"):
        make(unit="word").for_part_of_unit()
    assert "a part" not in str(make(unit="word"))


@pytest.mark.parametrize("size", [0, -1, 1.5, 10**10])
def test_nonsense_groups_are_refused(size):
    with pytest.raises((TypeError, ValueError), match="size"):
        make().for_groups(size)


def test_no_person_is_in_more_rows_than_allowed_and_no_row_is_left_out_in_vain():
    """All lists of owners of four rows and three persons."""
    owners = [set(c) for n in range(4) for c in itertools.combinations("abc", n)]
    for lists in itertools.product(owners, repeat=4):
        for most in (1, 2):
            kept = limit_rows(lists, most)
            counts = Counter(person for row in kept for person in lists[row])
            assert max(counts.values(), default=0) <= most
            for row in set(range(4)) - set(kept.tolist()):
                assert any(counts[person] == most for person in lists[row])


@pytest.mark.parametrize("owner", [None, math.nan, pd.NaT, pd.NA], ids=repr)
def test_a_missing_owner_is_no_person_with_rows_of_its_own(owner):
    """Each NaN is another one: every row of an unknown sender would be kept."""
    with pytest.raises(ValueError, match="an owner is missing"):
        limit_rows([["ann", owner], [owner]], 1)
    with pytest.raises(TypeError, match="must be a list of persons, such as"):
        limit_rows(["ann", "bob"], 2)


def test_json_holds_every_field_and_the_rates():
    guarantee = make(noise_scale=(1.0, 2.0))
    record = json.loads(json.dumps(guarantee.to_dict(), allow_nan=False))
    assert record == guarantee.to_dict()
    assert {f.name for f in dataclasses.fields(guarantee)} < set(record)
    assert record["detection_rate"] == guarantee.detection_rate(0.01)
    gaussian = {"event": "Gaussian", "noise_multiplier": 30.0}
    assert record["events"] == [{"event": "Repeated", "of": gaussian, "count": 40}]
    assert record["provenance"] == [["vocabulary", "origin not known to the model"]]
    free = make(epsilon=math.inf, sensitivity=math.inf, events=(NonPrivate(),))
    assert free.to_dict()["epsilon"] == "inf"


def test_markdown_holds_the_rows_of_the_text_and_no_markup_of_theirs():
    hostile = "<script>alert(1)</script> | [x](javascript:y)"
    guarantee = make(unit=hostile, theorem='docs/"><b>x.md')
    table = guarantee.to_markdown()
    assert not re.search(r"(?<!\\)<", table)
    assert all(line.count("|") - line.count("\\|") == 3 for line in table.splitlines())
    assert "[x](" not in table.replace("\\[x](", "")
    assert table.count("http") == table.count("https://github.com/dplda/") == 1
    for line in filter(None, str(make()).splitlines()):
        label, text = line[:13].strip(), line[13:]
        assert f"| {label} | " in make().to_markdown()
        assert text in make().to_markdown().replace("\\", "")


def test_each_estimator_names_whom_it_trusts_its_inputs_and_its_proof():
    X = [[3, 1], [0, 2]]
    process = "the process that computes it and whoever holds the texts"
    for model, trusted in (
        (SubLDA(2, noise_multiplier=2.0, max_iter=3), process),
        (HDPLDA(2, epsilon=8.0, max_iter=2), process),
        (RandomizedResponse(bit_epsilon=2.0), "the program on the owner's own machine"),
        (IFTMParty(2, token_epsilon=4.0, max_iter=2), "each party with its own texts"),
    ):
        guarantee = model.fit(X).privacy_
        assert guarantee.trusted.split("; ")[0] == trusted
        assert (ROOT / guarantee.theorem).is_file()
        assert ("vocabulary", "origin not known to the model") in guarantee.provenance
        assert guarantee.ledger == ""


@pytest.mark.parametrize("distance", [0.99, 2e-9, -1e-18, math.nan])
def test_a_distance_that_proves_nothing_is_refused(distance):
    with pytest.raises(ValueError, match="total_variation must be"):
        make(total_variation=distance)


def test_statements_add_up():
    """Basic composition, which is all that is known of them."""
    stated = ApproximateDP(1.0, 1e-7)
    assert epsilon_of(stated, 1e-7) == 1.0
    assert epsilon_of(stated, 0.99e-7) == math.inf
    assert epsilon_of(ApproximateDP(1.0, 0.0), 0.0) == 1.0
    assert epsilon_of(Repeated(stated, 3), 1e-6) == 3.0
    assert epsilon_of(Repeated(stated, 11), 1e-6) == math.inf
    together = epsilon_of([stated, Gaussian(5.0)], 1e-6)
    left = 1.0 + epsilon_of(Gaussian(5.0), math.nextafter(9e-7, 1.0))
    assert left <= together <= left * (1.0 + 1e-14)
    assert epsilon_of([stated, NonPrivate()], 0.5) == math.inf
    for wrong in (
        (-1.0, 0.0),
        (1.0, 1.0),
        (math.nan, 0.0),
        (1.0, -1e-9),
        (math.inf, 0.0),
    ):
        with pytest.raises(ValueError, match="must be"):
            ApproximateDP(*wrong)


@pytest.mark.parametrize("n", [3, 6, 7, 9, 11, 13, 49])
def test_sums_of_statements_are_never_rounded_down(n):
    """In floats to the nearest, nine times 0.1 is less than the sum of nine 0.1."""
    pure = epsilon_of(Repeated(ApproximateDP(0.1, 0.0), n), 0.0)
    assert n * Fraction(0.1) <= Fraction(pure) <= n * Fraction(0.1) * (1 + 2**-51)
    beside = epsilon_of([Gaussian(5.0), Repeated(ApproximateDP(0.1, 0.0), n)], 1e-6)
    exact = n * Fraction(0.1) + Fraction(epsilon_of(Gaussian(5.0), 1e-6))
    assert exact <= Fraction(beside) <= exact * (1 + 2**-51)
    # a few units of the last place are left of delta
    lost = n * Fraction(1e-20)
    delta = math.nextafter(float(lost), 1.0)
    left = Fraction(delta) - lost
    events = [Gaussian(1.0), Repeated(ApproximateDP(0.0, 1e-20), n)]
    assert left > 0
    assert epsilon_of(events, delta) == epsilon_of(Gaussian(1.0), float(left))
    below = float(lost)
    if Fraction(below) < lost:
        assert epsilon_of(events, below) == math.inf
    # and of parts of units, each of which has the statement
    parts = make(events=(ApproximateDP(0.1, 1e-20),), epsilon=0.2).for_part_of_unit()
    (event,) = parts.events
    assert Fraction(event.event.epsilon) >= 2 * Fraction(0.1)


@pytest.mark.parametrize("shift", [0.0, 10.0, 15.0, 19.0])
def test_a_distance_is_charged_at_the_epsilon_of_everything(shift):
    """A statement multiplies what the distance takes from delta by exp(shift)."""
    delta = 1e-6
    for distance in (1.74e-18, 4e-4 * delta * math.exp(-shift - 0.9)):
        events = [Gaussian(5.0), ApproximateDP(shift, 0.0)]
        stated = epsilon_of(events, delta, total_variation=distance)
        charge = (1.0 + math.exp(stated)) * distance
        assert charge <= 1e-3 * delta
        needed = shift + epsilon_of(Gaussian(5.0), delta - charge)
        assert needed <= stated <= needed * 1.0003
        noise = calibrate(
            lambda m: [Gaussian(m), ApproximateDP(shift, 0.0)],
            shift + 0.9,
            delta,
            total_variation=distance,
        )
        plan = [Gaussian(noise), ApproximateDP(shift, 0.0)]
        assert epsilon_of(plan, delta, total_variation=distance) <= shift + 0.9


@pytest.mark.parametrize(("multiplier", "d"), [(1.0, 1e-7), (0.6, 1e-7), (2.5, 4e-7)])
def test_a_part_of_a_unit_and_the_threshold(multiplier, d):
    """A user has words a and b, others b only: the exact law without a, and with it.

    With a, b weighs R / sqrt(2), and a passes with probability d at most. Without it, b
    weighs R.
    """
    events = (Gaussian(multiplier), ApproximateDP(0.0, d))
    delta = 1e-6
    guarantee = Guarantee(
        unit="user",
        relation="",
        epsilon=epsilon_of(events, delta),
        delta=delta,
        mechanism="",
        sensitivity=1.0,
        noise_scale=None,
        seeded=False,
        events=events,
    )
    part = guarantee.for_part_of_unit()
    assert part.epsilon == pytest.approx(
        epsilon_of(Gaussian(multiplier / 2), delta - 2 * d), 1e-3
    )
    # of this pair, and of any two vectors of norm R
    for distance in (1 - 0.5**0.5, 2.0):
        mu, e = distance / multiplier, part.epsilon
        shared = ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu)
        assert d + (1 - d) * shared <= delta
