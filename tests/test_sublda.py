"""Poisson samples, adaptive rates, and the account of SubLDA."""

import math
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dplda import PrivateSVILDA, SubLDA
from dplda.datasets import make_topic_corpus
from dplda.privacy import (
    BudgetError,
    Gaussian,
    Ledger,
    PoissonSampled,
    PrivacyLeakWarning,
    Repeated,
    epsilon_of,
)
from dplda.privacy.mechanisms import (
    Charge,
    Curator,
    DiscreteGaussian,
    Streams,
    sampled,
)

MADE = make_topic_corpus(400, 50, 4, doc_length=40, random_state=0)
TABLE = MADE.components.T * 1000 + 1e-3


@pytest.fixture(scope="module")
def corpus():
    return MADE.data


def poisson_sample(rates, highest, round_number=0):
    streams = Streams.from_random_state(0)
    plan = [("counts", sampled(Gaussian(1.0), highest))]
    with Charge(plan, label="test", unit="document") as charge:
        charge.begin()
        return Curator(charge, streams).sample(rates, round=round_number)


def test_poisson_sample_at_the_ends():
    assert len(poisson_sample(np.ones(1000), 1.0)) == 1000
    assert len(poisson_sample(np.full(1000, 1e-19), 1.0)) == 0
    assert len(poisson_sample(np.full(1000, math.nextafter(1, 0)), 1.0)) == 1000
    mixed = np.tile([1.0, 0.0], 500)
    np.testing.assert_array_equal(poisson_sample(mixed, 1.0), np.arange(0, 1000, 2))


def test_the_rate_charged_is_not_below_the_rate_drawn(charged):
    for rates in ([0.1, 0.3], [1.0, 1.0], [0.1, math.nan]):
        with pytest.raises(RuntimeError, match="higher than the rate"):
            poisson_sample(np.array(rates), 0.2)
    curator = charged([])
    with pytest.raises(RuntimeError, match="that is charged"):  # nothing is planned
        curator.sample(np.array([0.1]), round=0)


def test_errors_of_the_sample_quote_no_rate():
    """A rate is private: a negative one, rounded to unsigned, would be nearly one."""
    for rate in (0.2917, -0.2917, -1e-17):
        with pytest.raises(RuntimeError) as error:
            poisson_sample(np.array([0.1, rate]), 0.2)
        assert not re.search(r"[1-9]", str(error.value))


@pytest.fixture
def two_steps(charged):
    """A curator of a plan of two steps."""
    return lambda first, second: charged([("first", first), ("second", second)])


def test_a_sample_is_for_one_release(two_steps):
    mechanism = DiscreteGaussian.for_noise_multiplier(1.0)
    value, everybody = np.zeros(3, np.int64), mechanism.event
    tenth = PoissonSampled(0.1, everybody)

    # a sample of everybody must not reach the second step
    early = two_steps(everybody, tenth)
    early.sample(np.ones(5), round=0)
    early.release(value, mechanism, label="first", round=0)
    with pytest.raises(RuntimeError, match="no sample was drawn"):
        early.release(
            value, mechanism, label="second", round=1, sampling_probability=0.1
        )

    again = two_steps(tenth, tenth)  # sampled twice independently, or not as charged
    again.sample(np.full(5, 0.1), round=0)
    with pytest.raises(RuntimeError, match="has a sample already"):
        again.sample(np.full(5, 0.1), round=1)
    again.release(value, mechanism, label="first", round=0, sampling_probability=0.1)
    with pytest.raises(RuntimeError, match="no sample was drawn"):
        again.release(
            value, mechanism, label="second", round=1, sampling_probability=0.1
        )


def test_no_two_steps_of_a_fit_share_their_randomness(two_steps):
    mechanism = DiscreteGaussian.for_noise_multiplier(1.0)
    value, tenth = np.zeros(3, np.int64), PoissonSampled(0.1, mechanism.event)
    curator = two_steps(mechanism.event, mechanism.event)
    curator.release(value, mechanism, label="first", round=0)
    with pytest.raises(RuntimeError, match="same randomness"):
        curator.release(value, mechanism, label="second", round=0)

    curator = two_steps(tenth, tenth)
    curator.sample(np.full(5, 0.1), round=0)
    curator.release(value, mechanism, label="first", round=0, sampling_probability=0.1)
    with pytest.raises(RuntimeError, match="same randomness"):
        curator.sample(np.full(5, 0.1), round=0)


@pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
def test_sampled_epsilon_is_that_of_sampled_gaussians(kind, corpus):
    model = kind(
        4, noise_multiplier=2.0, subsampling_ratio=0.1, max_iter=100, delta=1e-5
    )
    model.fit(corpus)
    events = model.privacy_.events
    rounds = PoissonSampled(0.1, events[2].event)
    assert events[2:] == (rounds,) * 100
    assert rounds.event.noise_multiplier == pytest.approx(2.0, rel=1e-5)
    alone = epsilon_of(Repeated(rounds, 100), 1e-5)
    assert alone == pytest.approx(2.3374, abs=2e-4)
    assert alone < model.epsilon_ < 1.3 * alone  # word totals come on top


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.parametrize(
    ("model", "n_rounds"),
    [
        (SubLDA(2), 80),
        (SubLDA(2, subsampling_ratio=0.5), 160),
        (SubLDA(2, subsampling_ratio=0.01), 400),
        (SubLDA(2, subsampling_ratio=0.1, max_iter=7), 7),
        (SubLDA(2, subsampling_ratio=0.25, boost=2.0), 160),
        (PrivateSVILDA(2), 200),
        (PrivateSVILDA(2, subsampling_ratio=0.125), 320),
        (PrivateSVILDA(2, subsampling_ratio=1.0), 80),
        (PrivateSVILDA(2, subsampling_ratio=1e-3), 400),
    ],
)
def test_small_rates_have_more_rounds_by_default(model, n_rounds):
    """A document takes part 80 or 40 times, as far as 80 to 400 rounds allow it."""
    X = np.array([[3, 0], [0, 2]])
    rounds = clone(model).set_params(noise_multiplier=50.0, random_state=0).fit(X)
    assert rounds.n_iter_ == len(rounds.privacy_.events) - 2 == n_rounds
    same = clone(rounds).set_params(max_iter=n_rounds).fit(X)
    np.testing.assert_array_equal(rounds.components_, same.components_)
    assert rounds.epsilon_ == same.epsilon_


def test_boost_is_charged_at_the_highest_rate(corpus):
    model = SubLDA(
        4, noise_multiplier=2.0, subsampling_ratio=0.1, boost=3.0, max_iter=5
    ).fit(corpus)
    rates = [event.sampling_probability for event in model.privacy_.events[2:]]
    assert rates == pytest.approx([0.3] * 5)
    capped = SubLDA(
        4, noise_multiplier=2.0, subsampling_ratio=0.5, boost=3.0, max_iter=5
    ).fit(corpus)
    assert not any(
        isinstance(event, PoissonSampled) for event in capped.privacy_.events
    )


def test_a_batch_may_be_empty(corpus):
    # a given noise: to find one for a rate of 1e-4 takes the accountant 10 seconds
    model = SubLDA(4, noise_multiplier=1.0, subsampling_ratio=1e-4, max_iter=3).fit(
        corpus
    )
    assert np.isfinite(model.components_).all()
    assert 0 < model.epsilon_ < 10


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(4.0, 1e-6), (15.0, 1e-6), (2.0, 1e-12)]
)
def test_epsilon_pays_for_max_iter_calls_or_all_but_the_last(corpus, epsilon, delta):
    """Each call adds its noise's distance from the ideal law; `fit` adds it once."""
    model = SubLDA(2, epsilon=epsilon, delta=delta, max_iter=20)
    with pytest.raises(BudgetError, match="at most max_iter=20 calls"):  # noqa: PT012
        for n_calls in range(30):
            assert n_calls == 0 or model.epsilon_ <= epsilon
            model.partial_fit(corpus[:20])
    assert n_calls in (19, 20)
    assert model.n_iter_ == n_calls
    assert model.epsilon_ <= epsilon


def interrupted(kind, monkeypatch, owner, name, n_calls):
    """A fit interrupted when a function was called so often, after its last call."""
    call, n, ledger = getattr(owner, name), [], Ledger(epsilon=3.0)

    def counted(*args, **options):
        result = call(*args, **options)
        n.append(1)
        if len(n) == n_calls:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, counted)
    model = kind(4, epsilon=2.0, max_iter=8, ledger=ledger, random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            model.fit(MADE.data)
    monkeypatch.undo()
    return model, ledger, [str(warning.message) for warning in said]


@pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
def test_an_interrupt_leaves_a_model_of_the_rounds_so_far(kind, monkeypatch):
    """Wherever it comes: after a sample, or after a release."""
    places = [
        (Curator, "sample", 4),
        (Curator, "release", 6),
    ]
    models = []
    for place in places:
        model, ledger, said = interrupted(kind, monkeypatch, *place)
        assert model.n_iter_ == 3
        assert len(model.privacy_.events) == len(model.privacy_.noise_scale) == 10
        assert 1.99 < model.epsilon_ <= 2.0
        assert ledger.epsilon_spent == pytest.approx(model.epsilon_)
        assert (
            "rounds",
            "3 of 8, then an interrupt; all are charged",
        ) in model.privacy_.provenance
        assert any("interrupted after 3 of 8 rounds" in message for message in said)
        assert model.transform(MADE.data).shape == (400, 4)
        models.append(model)
    for model in models[1:]:  # nothing of the round that was not completed
        np.testing.assert_array_equal(model.components_, models[0].components_)
        np.testing.assert_array_equal(model.components_std_, models[0].components_std_)
    assert (models[0].components_std_ > 0).all()


def test_an_interrupt_before_the_first_round_leaves_no_model_but_a_charge(monkeypatch):
    model, ledger, _ = interrupted(SubLDA, monkeypatch, Curator, "release", 2)
    assert not hasattr(model, "components_")
    assert 1.99 < ledger.epsilon_spent <= 2.0


def test_an_epsilon_of_millions_warns_however_it_is_stated():
    """By the noise, too: before anything is spent."""
    X = np.ones((6, 4))
    with pytest.warns(PrivacyLeakWarning, match="promises next to nothing"):
        SubLDA(2, noise_multiplier=1e-3, max_iter=2).fit(X)
