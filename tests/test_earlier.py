"""Fits that add the releases of earlier fits to other documents."""

import copy
import math

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dplda import PrivateSVILDA, SubLDA, load_release, save_release
from dplda.audit._replay import fit_watched, watched
from dplda.datasets import make_topic_corpus, write_shards
from dplda.privacy import Ledger, epsilon_of
from dplda.privacy.mechanisms import TOTAL_VARIATION

both = pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
OPTIONS = {"n_components": 3, "max_iter": 4, "delta": 1e-5}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(60, 30, 3, random_state=0).data


@both
def test_each_part_pays_once(kind, X):
    ledger, model = Ledger(epsilon=1.0, delta=1e-5), None
    for day, rows in enumerate(np.array_split(np.arange(60), 3)):
        part = ledger.part(str(day), by="day")
        model = kind(epsilon=1.0, ledger=part, **OPTIONS).fit(X[rows], earlier=model)
    assert model.epsilon_ <= 1.0
    assert ledger.epsilon_spent <= 1.0
    assert "no document of this fit is in the fits that were added" in str(
        model.privacy_
    )


@both
def test_noise_of_one_seed_does_not_cancel_between_days(kind, X):
    """Nor between a day and a further round of another day."""
    options = OPTIONS | {"noise_multiplier": 5.0, "random_state": 0}
    options["subsampling_ratio"] = 0.5
    drawn = []
    model = None
    for _ in range(3):
        with watched() as tape:
            model = kind(**options).fit(X, earlier=model)
            model.partial_fit(X)
        drawn += [step.noisy - step.value for step in tape.steps]
        drawn += [step.sample[1] for step in tape.steps if step.sample is not None]
    assert len(drawn) == 3 * (2 + 5 + 5)
    assert len({joblib.hash(noise) for noise in drawn}) == len(drawn)


@both
def test_without_noise_the_counts_of_all_parts_are_added(kind, X):
    model = None
    for rows in np.array_split(np.arange(60), 3):
        model = kind(epsilon=math.inf, subsampling_ratio=1.0, **OPTIONS).fit(
            X[rows], earlier=model
        )
    of_words = model._released.sums()[0].sum(axis=1)
    np.testing.assert_allclose(of_words, np.ravel(X.sum(axis=0)), rtol=0.01, atol=2)


@both
def test_the_earlier_fit_is_read_as_a_release_and_stays_as_it_is(kind, X):
    """Other documents with today's releases give the same model, to the last bit."""
    first = kind(epsilon=1.0, random_state=0, **OPTIONS).fit(X)
    before, model = joblib.hash(vars(first)), kind(epsilon=1.0, **OPTIONS)
    others = make_topic_corpus(90, 30, 3, random_state=5).data
    one, tape = fit_watched(model, X, 1, earlier=copy.deepcopy(first))
    other, _ = fit_watched(model, others, 1, tape, earlier=copy.deepcopy(first))
    assert joblib.hash(one.components_) == joblib.hash(other.components_)
    assert joblib.hash(vars(first)) == before


@both
def test_another_model_is_refused_before_anything_is_charged(kind, X):
    ledger = Ledger()
    model = kind(epsilon=1.0, ledger=ledger, **OPTIONS)
    wide = kind(epsilon=1.0, **OPTIONS | {"n_components": 5}).fit(X)
    for other in (clone(model), "yesterday"):
        with pytest.raises(
            ValueError, match="earlier must be a fitted SubLDA or PrivateSVILDA"
        ):
            model.fit(X, earlier=other)
    with pytest.raises(ValueError, match=r"earlier has n_components=5, and this fit"):
        model.fit(X, earlier=wide)
    narrow = kind(epsilon=1.0, **OPTIONS).fit(X[:, :20])
    with pytest.raises(ValueError, match="fitted to 20 words, and X has 30"):
        model.fit(X, earlier=narrow)
    assert ledger.epsilon_spent == 0


@both
def test_columns_in_another_order_are_refused_before_anything_is_charged(kind, X):
    ledger = Ledger()
    table = pd.DataFrame(X.toarray(), columns=[f"w{i}" for i in range(30)])
    model = kind(epsilon=1.0, ledger=ledger, **OPTIONS)
    first = kind(epsilon=1.0, **OPTIONS).fit(table)
    with pytest.raises(ValueError, match="other names than those of X, or in another"):
        model.fit(table[table.columns[::-1]], earlier=first)
    assert ledger.epsilon_spent == 0
    model.fit(table, earlier=first)  # the same columns
    model.fit(X, earlier=first)  # without names


# ---- what the sum of two fits guarantees ---------------------------------------------


@both
@pytest.mark.parametrize(("before", "today"), [(4.0, 1.0), (1.0, 4.0), (2.0, 2.0)])
def test_a_document_pays_the_larger_of_the_two(kind, before, today, X):
    earlier = kind(epsilon=before, **OPTIONS).fit(X[:30])
    model = kind(epsilon=today, **OPTIONS).fit(X[30:], earlier=earlier)
    alone = kind(epsilon=today, **OPTIONS).fit(X[30:])
    larger = max((earlier.privacy_, alone.privacy_), key=lambda card: card.epsilon)
    assert model.epsilon_ == pytest.approx(larger.epsilon, rel=1e-9)
    for delta in (1e-5, 1e-4, 1e-3):  # and at no smaller delta less
        costs = [card.epsilon_at(delta) for card in (earlier.privacy_, alone.privacy_)]
        assert model.privacy_.epsilon_at(delta) >= max(costs) * (1 - 1e-9)
    assert not model.privacy_.seeded


@both
def test_a_third_day_pays_for_the_dearest_of_three(kind, X):
    model = None
    for epsilon in (1.0, 4.0, 2.0):
        model = kind(epsilon=epsilon, **OPTIONS).fit(X[:20], earlier=model)
    assert 3.9 < model.epsilon_ <= 4.0
    more = kind(noise_multiplier=0.5, **OPTIONS).fit(X[:20], earlier=model)
    before = more.epsilon_
    assert more.partial_fit(X[:20]).epsilon_ > before > 4.0  # of its own documents


@both
def test_users_return_and_pay_the_sum(kind, X):
    ids = np.arange(30)
    earlier = kind(epsilon=1.0, **OPTIONS).fit(X[:30], user_ids=ids)
    model = kind(epsilon=1.0, **OPTIONS).fit(X[30:], user_ids=ids, earlier=earlier)
    alone = kind(epsilon=1.0, **OPTIONS).fit(X[30:], user_ids=ids)
    events = (*earlier.privacy_.events, *alone.privacy_.events)
    together = epsilon_of(events, OPTIONS["delta"], total_variation=2 * TOTAL_VARIATION)
    assert model.epsilon_ == pytest.approx(together, rel=1e-9)
    assert model.epsilon_ > 1.3
    with pytest.raises(ValueError, match="earlier protects one user"):
        kind(epsilon=1.0, **OPTIONS).fit(X[30:], earlier=earlier)


@both
def test_a_seed_of_yesterday_is_on_the_card_of_today(kind, X):
    earlier = kind(epsilon=1.0, random_state=0, **OPTIONS).fit(X[:30])
    model = kind(epsilon=1.0, **OPTIONS).fit(X[30:], earlier=earlier)
    assert model.privacy_.seeded
    assert "a given seed" in str(model.privacy_)


@both
def test_exact_counts_of_yesterday_are_refused_before_anything_is_charged(kind, X):
    ledger = Ledger()
    earlier = kind(epsilon=math.inf, **OPTIONS).fit(X[:30])
    with pytest.raises(ValueError, match="would publish its counts"):
        kind(epsilon=1.0, ledger=ledger, **OPTIONS).fit(X[30:], earlier=earlier)
    assert ledger.entries() == []
    private = kind(epsilon=1.0, **OPTIONS).fit(X[:30])
    both_days = kind(epsilon=math.inf, **OPTIONS).fit(X[30:], earlier=private)
    assert both_days.epsilon_ == math.inf


@both
def test_the_file_of_the_sum_states_what_the_model_states(kind, X, tmp_path):
    earlier = kind(epsilon=4.0, subsampling_ratio=0.5, **OPTIONS).fit(X[:30])
    model = kind(epsilon=1.0, **OPTIONS).fit(X[30:], earlier=earlier)
    save_release(model, tmp_path / "sum")
    published = load_release(tmp_path / "sum").privacy_
    assert published.epsilon == model.epsilon_ == pytest.approx(4.0, rel=0.02)
    assert str(published) == str(model.privacy_)


@both
def test_persons_and_households_are_two_units_of_one_model(kind, X, tmp_path):
    """Also without a ledger, and if shards hold the ids."""
    table = pd.DataFrame({"person": range(30), "household": np.arange(30) // 3})
    model = kind(noise_multiplier=9.0, **OPTIONS)
    model.partial_fit(X[:30], user_ids=table["person"])
    households = write_shards(X[30:], tmp_path / "a", user_ids=table["household"])
    persons = write_shards(X[30:], tmp_path / "b", user_ids=table["person"])
    two_units = "protect one user by 'person', and this call one user by 'household'"
    with pytest.raises(ValueError, match=two_units):
        model.partial_fit(households)
    model.partial_fit(persons)
    with pytest.raises(ValueError, match=two_units):
        clone(model).fit(X[30:], user_ids=table["household"], earlier=model)
    clone(model).fit(persons, earlier=model).partial_fit(persons)


def test_documents_confirm_the_topics_of_three_days_as_those_of_one():
    """The documents of today alone test what those of all days have trained."""
    X = make_topic_corpus(1500, 40, 3, doc_length=30, random_state=0).data
    vectors = np.random.default_rng(0).normal(size=(40, 4))
    options = OPTIONS | {"epsilon": 30.0, "max_iter": 10, "random_state": 0}
    model = None
    for rows in np.array_split(np.arange(1500), 3):
        kind = SubLDA(word_vectors=vectors, **options)
        model = kind.fit(X[rows], earlier=model)
        assert not model.weak_topics_.any()
        tested = model._released.tested
        assert tested.confirmed_part(~model.weak_topics_) > 0.9


def test_seed_words_count_in_the_rounds_as_often_as_in_the_documents_of_both():
    X = make_topic_corpus(600, 30, 3, doc_length=30, random_state=0).data
    seeds = np.zeros((3, 30))
    seeds[[0, 1, 2], [4, 5, 6]] = 20.0
    options = OPTIONS | {"epsilon": 50.0, "random_state": 0}
    model = None
    for rows in (slice(300), slice(300, 600)):
        kind = SubLDA(prior_components=seeds, **options)
        model = kind.fit(X[rows], earlier=model)
    table = model._released.table[[4, 5, 6]]
    totals = model._released.totals[[4, 5, 6]]
    np.testing.assert_allclose(table.sum(axis=1), totals, rtol=0.1)


def test_days_with_other_word_frequencies_do_not_make_noise_a_topic():
    """Documents whose words are drawn one by one, from other laws on two days."""
    random = np.random.default_rng(0)
    base, model = random.gamma(0.5, 1, 200), None
    options = OPTIONS | {"n_components": 8, "epsilon": 8.0, "max_iter": 20}
    for day in range(2):
        law = base * np.exp(random.normal(0, 0.7, 200))
        X = random.multinomial(30, law / law.sum(), 2000)
        model = SubLDA(random_state=day, **options).fit(X, earlier=model)
    assert np.count_nonzero(~model.weak_topics_) <= 1
