"""Parts of the data: a unit is in one of them, and pays for that one only."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

from dplda import SubLDA
from dplda.audit import replay
from dplda.datasets import write_shards
from dplda.metrics import noisy_score
from dplda.privacy import BudgetError, Gaussian, Ledger, epsilon_of, user_part

STEP = Gaussian(2.0)


@pytest.fixture(params=["planned", "adaptive"])
def ledger(request):
    return Ledger(epsilon=4.0, composition=request.param)


@pytest.fixture
def planned():
    return Ledger(epsilon=10.0)


def test_disjoint_parts_cost_the_largest_of_them(planned):
    train, test = planned.part("train", by="set"), planned.part("test", by="set")
    train.reserve("a", "document", [STEP, STEP])
    test.reserve("b", "document", STEP)
    assert planned.epsilon_spent == epsilon_of([STEP] * 2, 1e-6)
    assert train.epsilon_spent == test.epsilon_spent == planned.epsilon_spent
    test.reserve("c", "document", [STEP, STEP])
    assert planned.epsilon_spent == epsilon_of([STEP] * 3, 1e-6)
    assert planned.epsilon_at(1e-9) == epsilon_of([STEP] * 3, 1e-9)
    assert [entry.part for entry in planned.entries()] == [
        "set=train",
        "set=test",
        "set=test",
    ]


def test_what_reads_all_of_the_data_is_charged_to_every_part(planned):
    planned.part("train", by="set").reserve("a", "document", [STEP, STEP])
    planned.reserve("b", "document", STEP)
    planned.part("test", by="set").reserve("c", "document", STEP)
    assert planned.epsilon_spent == epsilon_of([STEP] * 3, 1e-6)
    planned.part("test", by="set").reserve("d", "document", Gaussian(1.9))
    assert planned.epsilon_spent == epsilon_of([STEP] * 2 + [Gaussian(1.9)], 1e-6)


def test_each_part_has_the_whole_budget(ledger):
    """Fits of two parts at the ledger's epsilon; nothing more fits on any of them."""
    X = np.random.RandomState(0).poisson(1.0, (12, 6))
    model = SubLDA(2, epsilon=4.0, max_iter=4)
    for part, rows in (("even", X[::2]), ("odd", X[1::2])):
        clone(model).set_params(ledger=ledger.part(part, by="set")).fit(rows)
    assert 3.99 < ledger.epsilon_spent <= 4.0
    for again in (ledger, ledger.part("even", by="set"), ledger.part("odd", by="set")):
        with pytest.raises(BudgetError):
            again.reserve("a", "document", Gaussian(50.0))
    ledger.part("a third", by="set").reserve("a", "document", Gaussian(50.0))


def test_two_seeded_entries_have_no_total_in_any_parts(planned):
    """The noise of one part can be subtracted from the other's."""
    planned.part("train", by="set").reserve("a", "document", STEP, seeded=True)
    with pytest.raises(BudgetError, match="given seed"):
        planned.part("test", by="set").reserve("b", "document", STEP, seeded=True)


@pytest.mark.parametrize("unit", ["user", "word", "token", "bit"])
def test_sets_of_rows_are_disjoint_for_documents_only(unit, planned):
    planned.part("train", by="set").reserve("a", unit, STEP)
    planned.part("test", by="set").reserve("b", unit, STEP)
    assert planned.epsilon_spent == epsilon_of([STEP] * 2, 1e-6)


@pytest.mark.parametrize("unit", ["user", "document"])
def test_parts_of_users_are_disjoint(unit, ledger):
    for k in range(3):
        ledger.part(k, of=3).reserve("a", unit, Gaussian(1.5))
    assert ledger.epsilon_spent == pytest.approx(
        epsilon_of(Gaussian(1.5), 1e-6), rel=1e-4
    )
    assert [entry.part for entry in ledger.entries()] == [
        "users/3=0",
        "users/3=1",
        "users/3=2",
    ]


@pytest.mark.parametrize("other", [("train", "set", None), (0, None, 2)])
def test_two_divisions_of_the_data_may_overlap(other, ledger):
    ledger.part(0, of=3).reserve("a", "document", Gaussian(9.0))
    name, by, of = other
    with pytest.raises(ValueError, match="may overlap with 'users/3=0'"):
        ledger.part(name, by=by, of=of).reserve("b", "document", Gaussian(9.0))
    ledger.reserve("c", "document", Gaussian(9.0))


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.parametrize("change", ["removed", "emptied"])
def test_the_total_of_folds_is_for_emptied_documents(change):
    """A removed document moves others to other folds: exact, by sums of three fits."""
    X = np.random.default_rng(0).poisson(1.0, (60, 20)).astype(float)
    for row, word in ((0, 0), (20, 5), (40, 10)):
        X[row], X[row, word : word + 5] = 0, 300
    Y = X[1:] if change == "removed" else np.vstack([0 * X[:1], X[1:]])
    ledger, squared_mu = Ledger(), 0.0
    model = SubLDA(2, epsilon=1.0, max_iter=5)
    seeded = clone(model).set_params(random_state=0)
    for (rows, _), (others, _) in zip(KFold(3).split(X), KFold(3).split(Y)):
        distances = replay(seeded, X[rows], Y[others]).distances
        events = clone(model).set_params(ledger=ledger).fit(X[rows]).privacy_.events
        noise = np.array([event.noise_multiplier for event in events])
        squared_mu += ((np.array(distances) / noise) ** 2).sum()
    exact = epsilon_of(Gaussian(squared_mu**-0.5), 1e-6)
    assert (exact > 1.4 * ledger.epsilon_spent) == (change == "removed")
    assert exact <= ledger.epsilon_spent or change == "removed"
    assert ledger.relation.startswith(
        "one document becomes empty, and its rows stay; or"
    )


@pytest.mark.parametrize(
    ("persons", "households"), [("person", "household"), (0, 1)], ids=str
)
def test_persons_and_households_are_two_units(persons, households, ledger):
    """What a fit costs a household is not what it costs a person in it."""
    X = np.random.default_rng(0).poisson(1.0, (12, 6))
    table = pd.DataFrame({persons: range(12), households: np.arange(12) // 3})
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger)
    for _ in range(2):
        model.fit(X, user_ids=table[households])
    with pytest.raises(
        ValueError, match=f"one user by '{households}'.* one user by '{persons}'"
    ):
        model.fit(X, user_ids=table[persons])
    assert len(ledger.entries()) == 2


def test_shards_of_persons_and_of_households_are_two_units(ledger, tmp_path):
    X = np.random.default_rng(0).poisson(1.0, (12, 6))
    table = pd.DataFrame({"person": range(12), "household": np.arange(12) // 3})
    persons, households = (
        write_shards(X, tmp_path / name, user_ids=table[name]) for name in table
    )
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger).fit(persons)
    model.fit(X, user_ids=table["person"])
    noisy_score(model, persons, epsilon=1.0, ledger=ledger)
    two_units = r"one user by 'person'.* one user by 'household'"
    with pytest.raises(ValueError, match=two_units):
        model.fit(households)
    with pytest.raises(ValueError, match=two_units):
        noisy_score(model, households, epsilon=1.0, ledger=ledger)
    assert len(ledger.entries()) == 3


@pytest.mark.parametrize(
    ("name", "by", "of"),
    [
        ("", "set", None),
        (3, "set", None),
        ("a", None, None),
        ("0", "users/3", None),
        ("a", "b", 3),
        ("a", "b=c", None),
        ("a", "", None),
        (3, None, 3),
        (-1, None, 3),
        ("train", None, 3),
        (0, None, 0),
    ],
)
def test_bad_parts(name, by, of, planned):
    with pytest.raises((ValueError, TypeError)):
        planned.part(name, by=by, of=of)
    with pytest.raises(ValueError, match="a part has no parts"):
        planned.part("train", by="set").part("first half", by="set")


def test_copies_of_a_part_are_the_part(tmp_path):
    train = Ledger(tmp_path / "privacy.sqlite", epsilon=9.0).part("train", by="set")
    assert clone(SubLDA(ledger=train)).ledger is train
    again = pickle.loads(pickle.dumps(train))
    again.reserve("a", "document", STEP)
    assert train.entries()[0].part == "set=train"
    assert "part 'set=train'" in repr(again)
    assert Ledger(train.path).entries() == train.entries()


def test_a_user_is_always_in_the_same_part():
    """The values must not change between versions: a user would switch parts."""
    users = ["ada", "bob", "ada", "Zoë", 7, "7", np.int64(7), np.str_("ada")]
    assert (
        user_part(["ann\ud800", "ada"], 2**31).tolist()[1]
        == user_part(["ada"], 2**31)[0]
    )
    parts = user_part(users, 5)
    assert parts.tolist() == [3, 0, 3, 4, 1, 1, 1, 3]
    assert parts.dtype == np.int64
    assert user_part(np.array(["ada", "bob"]), 5).tolist() == parts[:2].tolist()
    assert user_part(users, 1).tolist() == [0] * 8


@pytest.mark.parametrize("user", [7.0, None, b"ada", True, np.nan])
def test_identifiers_with_several_spellings_are_refused(user):
    with pytest.raises(TypeError, match="user_ids must be texts or integers"):
        user_part(["ada", user], 2)
