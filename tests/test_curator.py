"""The curator: a release is value plus declared noise, and the plan is released."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dplda import SubLDA
from dplda.leaf._messages import warn_user
from dplda.privacy import (
    ApproximateDP,
    Gaussian,
    Ledger,
    PoissonSampled,
    Repeated,
    epsilon_of,
)
from dplda.privacy.mechanisms import (
    TOTAL_VARIATION,
    Charge,
    Curator,
    DiscreteGaussian,
    FlooredLaplace,
    Streams,
    sampled,
)

NOISE = 4  # the purpose of its streams, which enters every seeded result
GAUSSIAN = DiscreteGaussian.for_noise_multiplier(2.0)
VALUES = [
    np.zeros(40, np.int64),
    np.arange(-20, 20) * 10**9,
    np.arange(12).reshape(3, 4) % 3,
    np.full(9000, 10**12),
    np.full((300, 500), -7, np.int32),  # more than two blocks
]


def noise_of(mechanism, shape, round):
    """The noise of a release, block by block: each has a stream of its own."""
    cells = np.zeros(shape, np.int64).reshape(-1)
    for block in range(-(-cells.size // 2**16)):
        part = cells[block * 2**16 : (block + 1) * 2**16]
        reader = Streams.from_random_state(0).reader(NOISE, round, block)
        part[:] = mechanism(part, reader)
    return cells.reshape(shape)


@pytest.mark.parametrize("round", [0, 7])
@pytest.mark.parametrize("mechanism", [GAUSSIAN, FlooredLaplace(30.0, 2)], ids=repr)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{value.shape}")
def test_a_release_is_the_value_plus_the_mechanisms_noise_on_every_cell(
    value, mechanism, round, charged
):
    """Whatever the value is: the noise depends on the stream of the round only."""
    exact = value
    for n_jobs in (None, 2):
        value = exact.copy()
        noisy = charged([("sum", mechanism.event)]).release(
            value,
            mechanism,
            label="sum",
            round=round,
            overwrite_value=True,
            n_jobs=n_jobs,
        )
        assert_array_equal(noisy - exact, noise_of(mechanism, value.shape, round))
        assert noisy is value  # nothing exact is left
        assert noisy.dtype == exact.dtype
        assert ((noisy - exact) < 0).any()
        assert ((noisy - exact) > 0).any()


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.T,
        lambda x: x[::2],
        lambda x: x.astype(np.int16),
        lambda x: x.astype(">i8"),
        lambda x: np.broadcast_to(x[:1], x.shape),
    ],
    ids=["transposed", "strided", "int16", "other byte order", "broadcast"],
)
def test_what_cannot_be_written_to_is_released_as_a_noisy_copy(change, charged):
    value = change(np.arange(600, dtype=np.int64).reshape(20, 30) % 100)
    exact = value.copy()
    noisy = charged([("sum", GAUSSIAN.event)]).release(
        value, GAUSSIAN, label="sum", round=3, overwrite_value=True
    )
    assert noisy.dtype == np.int64
    assert_array_equal(noisy - exact, noise_of(GAUSSIAN, value.shape, 3))
    assert_array_equal(value, exact)


@pytest.mark.parametrize("threshold", [-np.inf, 10.5, np.inf])
def test_a_selection_is_noisy_values_and_those_that_reach_the_threshold(
    threshold, charged
):
    """Noise precedes the comparison, on cells that are asked for and the others."""
    value, asked = np.arange(60) % 20, np.arange(60) < 20
    failure = ApproximateDP(0.0, 1e-9)
    passing, noisy = charged(
        [("words", GAUSSIAN.event), ("words", failure)]
    ).release_selected(
        np.arange(60).astype(object),
        value,
        asked,
        GAUSSIAN,
        threshold=threshold,
        failure=failure,
        label="words",
        round=3,
    )
    noise = GAUSSIAN(
        np.zeros_like(value), Streams.from_random_state(0).reader(NOISE, 3)
    )
    expected = np.flatnonzero(asked | (value + noise >= threshold))
    assert_array_equal(passing.astype(int), expected)
    assert_array_equal(noisy, (value + noise)[expected])
    assert noise.any()


def test_nothing_but_the_plan_is_released(charged):
    value = np.zeros(3, np.int64)
    one = charged([("sum", GAUSSIAN.event), ("topics", Gaussian(3.0))])
    with pytest.raises(RuntimeError, match="not planned"):
        one.release(value, GAUSSIAN, label="other", round=0)
    with pytest.raises(RuntimeError, match="not planned"):
        one.release(value, FlooredLaplace(30.0), label="sum", round=1)
    with pytest.raises(RuntimeError, match="not planned"):
        one.publish(dict, [GAUSSIAN.event], label="topics", round=0)
    one.release(value, GAUSSIAN, label="sum", round=2)
    with pytest.raises(RuntimeError, match="not planned"):
        one.publish(dict, [Gaussian(30.0)], label="topics", round=0)
    one.publish(dict, [Gaussian(3.0)], label="topics", round=0)
    with pytest.raises(RuntimeError, match="not planned"):
        one.release(value, GAUSSIAN, label="sum", round=3)
    with pytest.raises(RuntimeError, match="not planned"):
        one.publish(dict, [Gaussian(3.0)], label="topics", round=1)


def test_noise_of_others_pays_for_nothing_without_them(charged):
    """A share's event counts other parties' noise, and nobody adds it here."""
    share = DiscreteGaussian.for_noise_multiplier(2.0, 3, 4)
    one = charged([("sum", share.event)])
    with pytest.raises(ValueError, match="for 4 parties"):
        one.release(np.zeros(3, np.int64), share, label="sum", round=0)
    for n_honest in (0, 5):
        with pytest.raises(ValueError, match="n_honest"):
            DiscreteGaussian(1000, n_honest, 4)


@pytest.mark.parametrize("purpose", ["noise", "members"])
def test_streams_give_no_round_to_two_curators(purpose, charged):
    """Two releases with one noise differ by the difference of the private values."""
    streams = Streams.from_random_state(None)
    event = sampled(GAUSSIAN.event, 0.5 if purpose == "members" else 1.0)
    one, other = (charged([("sum", event)], streams) for _ in range(2))

    def use(curator):
        if purpose == "members":
            return curator.sample(np.full(3, 0.5), round=0)
        return curator.release(np.zeros(3, np.int64), GAUSSIAN, label="sum", round=0)

    use(one)
    with pytest.raises(RuntimeError, match="round=0 was used before"):
        use(other)


class Words:
    def __init__(self, words):
        self.given = np.array(words, np.uint64)
        self.seeded = True

    def take(self, purpose, round):
        pass

    def reader(self, purpose, round):
        return self

    def words(self, n):
        assert n == len(self.given)
        return self.given


@given(st.floats(2.0**-63, 1, exclude_max=True))
def test_a_document_is_in_the_sample_for_its_share_of_all_words(rate):
    """The exact law: in for words 0, ..., floor(2^64 rate) - 1, as is charged."""
    n_in = int(Fraction(rate) * 2**64)
    words = [0, n_in - 1, n_in, 2**64 - 1]
    plan = [("counts", PoissonSampled(rate, Gaussian(1.0)))]
    with Charge(plan, label="sample", unit="document") as charge:
        charge.begin()
        rows = Curator(charge, Words(words)).sample(np.full(4, rate), round=0)
    assert rows.tolist() == [j for j, word in enumerate(words) if word < n_in]
    assert rows.tolist() == [0, 1]


def test_the_ledger_is_charged_for_the_whole_plan():
    plan = [("a", GAUSSIAN.event)] * 3 + [("b", PoissonSampled(0.1, Gaussian(1.0)))] * 2
    ledger = Ledger()
    with Charge(plan, label="test", unit="document", ledger=ledger) as charge:
        assert ledger.entries()[0].status == "reserved"
        charge.begin()
    (entry,) = ledger.entries()
    sampled_twice = Repeated(PoissonSampled(0.1, Gaussian(1.0)), 2)
    assert entry.events[1:] == (sampled_twice,)  # and the Gaussian events as one
    assert entry.events[0].noise_multiplier == pytest.approx(
        GAUSSIAN.event.noise_multiplier / 3**0.5, rel=1e-15
    )
    # to the last digit
    planned = [event for _, event in plan]
    assert epsilon_of(entry.events, 1e-6) == epsilon_of(planned, 1e-6)
    assert entry.total_variation == TOTAL_VARIATION
    assert not entry.seeded
    assert ledger.epsilon_spent >= epsilon_of(
        [event for _, event in plan], ledger.delta
    )
    with Charge(plan, label="test", unit="document", ledger=ledger, seeded=True):
        assert ledger.entries()[1].seeded


@pytest.mark.parametrize("place", ["before", "begun", "released"])
def test_an_exception_gives_a_charge_back_only_if_it_has_not_begun(place):
    ledger = Ledger()
    plan = [("sum", GAUSSIAN.event)] * 2

    def interrupted():
        with Charge(plan, label="test", unit="document", ledger=ledger) as charge:
            if place != "before":
                charge.begin()
            if place == "released":
                one = Curator(charge, Streams.from_random_state(None))
                one.release(np.zeros(2, np.int64), GAUSSIAN, label="sum", round=0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as ended:
        interrupted()
    status = "canceled" if place == "before" else "released"
    assert [entry.status for entry in ledger.entries()] == [status]
    (note,) = ended.value.__notes__
    assert ("nothing was released" in note) == (place == "before")
    assert place == "before" or repr(ledger) in note
    n_released = int(place == "released")
    assert place == "before" or f"{n_released} of 2 releases have begun" in note


def test_a_charge_that_has_not_begun_pays_for_nothing():
    with Charge([("sum", GAUSSIAN.event)], label="test", unit="document") as charge:
        with pytest.raises(RuntimeError, match="before the charge has begun"):
            Curator(charge, Streams.from_random_state(0))
        charge.begin()
        with pytest.raises(RuntimeError, match="begun before"):
            charge.begin()


def test_a_step_that_was_charged_once_is_released_once():
    """Two curators of one charge share its steps, in order."""
    plan = [("words", GAUSSIAN.event), ("topics", Gaussian(3.0))]
    with Charge(plan, label="test", unit="document") as charge:
        charge.begin()
        streams = Streams.from_random_state(None)
        with pytest.raises(RuntimeError, match="not charged, or are claimed"):
            Curator(charge, streams, plan=plan[1:])
        Curator(charge, streams, plan=plan[:1])
        with pytest.raises(RuntimeError, match="not charged, or are claimed"):
            Curator(charge, streams)
        Curator(charge, streams, plan=plan[1:])
        with pytest.raises(RuntimeError, match="not charged, or are claimed"):
            Curator(charge, streams, plan=plan[1:])


def test_warnings_wait_for_the_end_of_paid_work_and_hide_nothing():
    """A caller who makes them errors has the attributes, and the first error."""

    class Fit:
        pass

    def fit(fails=False):
        plan = [("sum", GAUSSIAN.event)]
        with Charge(plan, label="test", unit="document") as charge:
            charge.begin()
            warn_user("first")
            warn_user("second")
            fitted.result = 1
            if fails:
                raise KeyboardInterrupt

    fitted = Fit()
    with pytest.raises(UserWarning, match="first"):
        fit()
    assert fitted.result == 1
    with pytest.raises(KeyboardInterrupt) as ended:
        fit(fails=True)
    assert {"first", "second"} < set(ended.value.__notes__)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit()
    assert [str(each.message) for each in said] == ["first", "second"]


def test_a_plan_with_too_many_words_is_refused_before_it_begins(charged):
    plan = [("sum", GAUSSIAN.event)] * 3
    cells = np.broadcast_to(np.int64(0), 2**35)  # which take no memory
    with pytest.raises(ValueError, match="random words"):
        charged(plan).release(cells, GAUSSIAN, label="sum", round=0)
    ledger, model = Ledger(), SubLDA(1000, epsilon=1.0, max_iter=80)
    with pytest.raises(ValueError, match="random words"):
        model.set_params(ledger=ledger).fit(sp.csr_array((1, 10**6)))
    assert ledger.epsilon_spent == 0.0


def test_a_fit_that_draws_too_many_words_is_stopped(charged):
    """Also if the words were not drawn by a release."""
    streams = Streams.from_random_state(0)
    streams.n_words = 2**36 - 10_000  # so many were drawn
    one = charged([("topics", Gaussian(2.0))], streams)

    def draw():
        return streams.reader(200, 0).words(10_001)

    with pytest.raises(RuntimeError, match="random words"):
        one.publish(draw, [Gaussian(2.0)], label="topics", round=0)
