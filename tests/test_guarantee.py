"""The record of a guarantee: plain, honest, readable."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer

from dplda import PrivateCountVectorizer, SubLDA, pipeline_guarantee
from dplda.privacy import BudgetError, Ledger
from dplda.privacy._accounting import epsilon_of, is_within
from dplda.privacy._events import (
    ApproximateDP,
    BoundedRange,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    from_record,
    to_record,
)
from dplda.privacy._guarantee import Guarantee

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
        "noise_multiplier": 30.0,
        "seeded": False,
        "assumptions": ("the vocabulary is public", "each row is one person"),
        "events": EVENTS,
        "total_variation": 1e-19,
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


def test_numbers_of_other_types_become_plain():
    guarantee = make(
        sensitivity=np.float32(6),
        noise_scale=[np.float64(1), 2],
        noise_multiplier=np.array([1.0, 2.0]),
        seeded=np.bool_(True),
        assumptions=["a"],
        events=list(EVENTS),
    )
    assert type(guarantee.sensitivity) is float
    assert guarantee.noise_scale == guarantee.noise_multiplier == (1.0, 2.0)
    assert guarantee.seeded is True
    assert guarantee.assumptions == ("a",)
    assert guarantee.events == EVENTS


def test_it_cannot_claim_more_than_its_events_prove():
    with pytest.raises(ValueError, match="less than what the events cost"):
        make(epsilon=0.99 * epsilon_of(EVENTS, 1e-6))
    with pytest.raises(ValueError, match="less than what the events cost"):
        make(events=(NonPrivate(),))
    with pytest.raises(ValueError, match="less than"):
        make(epsilon=math.nan)
    assert make(epsilon=2.0).epsilon == 2.0


def test_epsilon_at_other_deltas():
    guarantee = make()
    assert guarantee.epsilon_at(1e-6) == pytest.approx(guarantee.epsilon, rel=1e-9)
    assert guarantee.epsilon_at(1e-9) > guarantee.epsilon > guarantee.epsilon_at(1e-3)


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("events", [EVENTS, (PoissonSampled(0.05, Gaussian(1.5)), Laplace(9.0))])
def test_other_accountants_are_never_below_the_smallest_valid_epsilon(events, delta):
    guarantee = make(events=events, epsilon=100.0)
    assert guarantee.epsilon_at(delta, accountant="pld") == guarantee.epsilon_at(delta)
    renyi = guarantee.epsilon_at(delta, accountant="rdp")
    assert guarantee.epsilon_at(delta) <= renyi < math.inf
    assert renyi == epsilon_of(events, delta, total_variation=1e-19, accountant="rdp")
    with pytest.raises(ValueError, match=r"accountant must be one of \('pld', 'rdp'\)"):
        guarantee.epsilon_at(delta, accountant="gdp")


def test_text_names_everything_a_reader_must_know():
    guarantee = make()
    text = str(guarantee)
    assert "\n" not in text
    for part in (
        "every single document",
        "differ in one document only: one document is replaced by an empty one.",
        f"epsilon = {guarantee.epsilon:.4g}",
        "delta = 1e-06",
        "strong protection" if guarantee.epsilon <= 1 else "reasonable protection",
        "discrete Gaussian noise",
        "at most 6,",
        "scale 180",
        "noise multiplier 30",
        "total variation",
        "secret key",
        "assumes that the vocabulary is public; that each row is one person.",
    ):
        assert part in text


def test_text_tells_of_a_seed():
    assert "given seed" in str(make(seeded=True))
    assert "none of this holds against anyone" in str(make(seeded=True))
    assert "seed" not in str(make())
    assert "seeded" in repr(make(seeded=True))


def test_text_without_protection():
    text = str(make(epsilon=math.inf, delta=0.0, sensitivity=math.inf, events=(NonPrivate(),)))
    assert "no privacy guarantee" in text
    assert "protection" not in text
    assert "secret key" not in text
    assert "scale" not in text


def test_text_of_noise_that_differs_by_round():
    text = str(make(noise_multiplier=(146.6, 28.35), noise_scale=None))
    assert "noise multiplier between 28.35 and 146.6, round by round" in text
    assert "scale" not in text


def test_text_says_where_the_distance_of_the_noise_went():
    assert "delta includes the effect" in str(make())
    weak = (Repeated(BoundedRange(5.0), 20),)
    text = str(make(events=weak, epsilon=epsilon_of(weak, 1e-6), total_variation=1e-19))
    assert "delta leaves out" in text
    assert "total variation" not in str(make(total_variation=0.0))


@pytest.mark.parametrize(
    ("epsilon", "word"),
    [(0.5, "strong"), (2.0, "reasonable"), (5.0, "weak"), (15.0, "very weak"), (300.0, "nominal")],
)
def test_text_grades_epsilon(epsilon, word):
    assert f": {word} protection." in str(make(epsilon=epsilon, events=(Laplace(10.0),)))


@pytest.mark.parametrize("noise_multiplier", [0.2, 1.0, 4.0, 20.0])
def test_stated_detection_rate_holds_for_the_best_test(noise_multiplier):
    """The best test of one Gaussian release has the power that its mu gives."""
    events = (Gaussian(noise_multiplier),)
    text = str(make(events=events, epsilon=epsilon_of(events, 1e-6), total_variation=0.0))
    stated = float(text.split("finds it in at most ")[1].split(" of 100")[0]) / 100
    best = ndtr(1 / noise_multiplier + ndtri(0.01))
    assert best <= stated * 1.01
    assert stated <= 1.0
    if noise_multiplier == 20.0:
        assert stated < 0.02


def test_repr_is_short():
    assert repr(make(epsilon=1.25)) == "<Guarantee: epsilon 1.25 at delta 1e-06 for one document>"


def test_an_interrupt_leaves_the_old_model_with_its_own_epsilon(monkeypatch):
    """All fitted attributes change in one step."""
    model = SubLDA(2, noise_multiplier=3.0, max_iter=3)
    X = [[3, 1], [0, 2]]
    model.partial_fit(X)
    before = dict(vars(model))

    def interrupted(self, name, value):
        if name in ("privacy_", "epsilon_", "_released", "components_"):
            raise KeyboardInterrupt
        object.__setattr__(self, name, value)

    monkeypatch.setattr(SubLDA, "__setattr__", interrupted)
    model.partial_fit(X)
    assert model.n_iter_ == 2
    assert len(model.privacy_.events) == len(before["privacy_"].events) + 1


@pytest.mark.parametrize("distance", [0.99, 2e-9, -1e-18, math.nan])
def test_a_distance_that_proves_nothing_is_refused(distance):
    with pytest.raises(ValueError, match="total_variation must be"):
        make(total_variation=distance)


def test_a_large_delta_is_no_strong_protection():
    text = str(make(events=(), epsilon=0.0, delta=0.999999))
    assert "nominal protection" in text
    assert "in at most 100 of 100 cases" in text


@pytest.mark.parametrize(("flip", "n_buckets"), [(5e-324, 2), (1e-305, 2**62)])
def test_hardly_any_noise_is_no_event(flip, n_buckets):
    """Renyi divergences underflow there: epsilon came out as 0."""
    with pytest.raises(ValueError, match="flip_mixture / n_buckets must be at least"):
        RandomizedResponseEvent(flip, n_buckets)
    assert epsilon_of(RandomizedResponseEvent(1e-280), 1e-6) > 600


TEXTS = ["apple banana", "banana cherry date", "apple date"] * 100
FRUIT = ["apple", "banana", "cherry", "date"]


def chosen(**options):
    return PrivateCountVectorizer(epsilon=1.0, candidates=FRUIT, **options)


def test_a_pipeline_has_the_guarantee_of_its_steps_together():
    ledger = Ledger()
    pipeline = make_pipeline(
        chosen(ledger=ledger), SubLDA(2, epsilon=2.0, max_iter=3, ledger=ledger)
    ).fit(TEXTS)
    guarantee = pipeline_guarantee(pipeline)
    assert guarantee.epsilon == pytest.approx(ledger.epsilon_spent, rel=1e-6)
    assert guarantee.unit == "document"
    assert not any("columns of X" in sentence for sentence in guarantee.assumptions)
    assert any("columns of X" in sentence for sentence in pipeline[1].privacy_.assumptions)


def test_a_classifier_on_private_features_has_no_guarantee_and_is_named():
    pipeline = make_pipeline(
        chosen(), SubLDA(2, epsilon=2.0, max_iter=3), LogisticRegression()
    ).fit(TEXTS, np.arange(len(TEXTS)) % 2)
    assert pipeline_guarantee(pipeline).epsilon == math.inf
    assert "'logisticregression' was fitted" in str(pipeline_guarantee(pipeline))
    assert pipeline_guarantee(pipeline[:-1]).epsilon < 3.0


def test_a_learned_vocabulary_has_no_guarantee_and_a_given_one_costs_nothing():
    model = SubLDA(2, epsilon=2.0, max_iter=3)
    learned = make_pipeline(CountVectorizer(), model).fit(TEXTS)
    guarantee = pipeline_guarantee(learned)
    assert guarantee.epsilon == math.inf
    assert "vocabulary of 'countvectorizer' was learned" in guarantee.mechanism
    given = make_pipeline(CountVectorizer(vocabulary=FRUIT), "passthrough", model).fit(TEXTS)
    assert pipeline_guarantee(given).epsilon == pytest.approx(given[-1].epsilon_)
    assert any("columns of X" in sentence for sentence in pipeline_guarantee(given).assumptions)


@pytest.mark.parametrize("step", [TfidfVectorizer(vocabulary=FRUIT), TruncatedSVD(2)])
def test_other_learned_steps_have_no_guarantee(step):
    first = [] if isinstance(step, TfidfVectorizer) else [CountVectorizer(vocabulary=FRUIT)]
    pipeline = make_pipeline(*first, step, Binarizer(), SubLDA(2, epsilon=2.0, max_iter=3))
    assert pipeline_guarantee(pipeline.fit(TEXTS)).epsilon == math.inf


def test_steps_that_protect_different_units_are_refused():
    ids = [i // 2 for i in range(len(TEXTS))]
    pipeline = make_pipeline(chosen(), SubLDA(2, epsilon=2.0, max_iter=3))
    pipeline.fit(TEXTS, privatecountvectorizer__user_ids=ids)
    with pytest.raises(ValueError, match="different units"):
        pipeline_guarantee(pipeline)
    with pytest.raises(ValueError, match="no step of this pipeline has a guarantee"):
        pipeline_guarantee(make_pipeline(CountVectorizer()).fit(TEXTS))


def test_budgets_at_the_edge_are_refused_with_advice_that_helps():
    X = np.ones((20, 3))
    with pytest.raises(ValueError, match=r"any noise.* lower epsilon, or give epsilon=inf"):
        SubLDA(2, epsilon=1e8, max_iter=4).fit(X)
    with pytest.raises(ValueError, match=r"no signal.*word_total_share"):
        SubLDA(2, epsilon=1.0, word_total_share=1 - 1e-9, max_iter=4).fit(X)


def test_statements_add_up():
    """Basic composition, which is all that is known of them."""
    stated = ApproximateDP(1.0, 1e-7)
    assert epsilon_of(stated, 1e-7) == 1.0
    assert epsilon_of(stated, 0.99e-7) == math.inf
    assert epsilon_of(ApproximateDP(1.0, 0.0), 0.0) == 1.0
    assert epsilon_of(Repeated(stated, 3), 1e-6) == 3.0
    assert epsilon_of(Repeated(stated, 11), 1e-6) == math.inf
    for accountant in ("pld", "rdp"):
        together = epsilon_of([stated, Gaussian(5.0)], 1e-6, accountant=accountant)
        assert together == 1.0 + epsilon_of(Gaussian(5.0), 1e-6 - 1e-7, accountant=accountant)
    least = epsilon_of([stated, Gaussian(5.0)], 1e-6)
    assert is_within([stated, Gaussian(5.0)], least, 1e-6)
    assert not is_within([stated, Gaussian(5.0)], least * (1 - 1e-6), 1e-6)
    assert epsilon_of([stated, NonPrivate()], 0.5) == math.inf
    assert from_record(to_record(stated)) == stated
    for wrong in ((-1.0, 0.0), (1.0, 1.0), (math.nan, 0.0), (1.0, -1e-9), (math.inf, 0.0)):
        with pytest.raises(ValueError, match="must be"):
            ApproximateDP(*wrong)


def test_a_budget_counts_statements():
    ledger = Ledger(epsilon=2.5, delta=1e-6)
    for _ in range(2):
        ledger.confirm(ledger.reserve("others", "document", ApproximateDP(1.0, 1e-7)))
    assert ledger.epsilon_spent == 2.0
    with pytest.raises(BudgetError):
        ledger.reserve("others", "document", ApproximateDP(1.0, 1e-7))
    with pytest.raises(BudgetError):
        ledger.reserve("others", "document", ApproximateDP(0.1, 9e-7))
