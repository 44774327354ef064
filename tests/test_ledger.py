"""The ledger: budgets that hold across copies, threads, processes and crashes."""

from __future__ import annotations

import copy
import errno
import math
import os
import pickle
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import dplda
from dplda import SubLDA
from dplda.audit import observe_releases
from dplda.datasets import make_topic_corpus
from dplda.privacy import (
    BudgetError,
    Gaussian,
    Laplace,
    Ledger,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    SeededNoiseWarning,
    epsilon_of,
)
from dplda.privacy._events import BoundedRange

# At noise 20 and delta 1e-6, twenty of these fit into epsilon 1.1 and not into 1.
STEP = Gaussian(20.0)


def steps_within(epsilon, delta=1e-6):
    return next(
        n for n in range(1, 999) if epsilon_of(Repeated(STEP, n + 1), delta) > epsilon
    )


@pytest.fixture(params=["memory", "file"])
def make_ledger(request, tmp_path):
    path = tmp_path / "privacy.sqlite" if request.param == "file" else None
    return lambda **budget: Ledger(path, **budget)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "privacy.sqlite"


def test_entries_come_back_as_they_were_written(make_ledger):
    ledger = make_ledger(epsilon=50.0, delta=1e-5)
    events = [
        PoissonSampled(0.1, Gaussian(np.nextafter(1.7, 2.0))),
        Repeated(Laplace(3.0), 4),
        RandomizedResponseEvent(0.3),
    ]
    first = ledger.reserve(
        "SubLDA", "document", events, total_variation=1e-21, seeded=True
    )
    second = ledger.reserve("HDPLDA", "document", BoundedRange(0.5))
    one, two = ledger.entries()
    assert (one.id, two.id) == (first, second)
    assert one.events == tuple(events)
    assert two.events == (BoundedRange(0.5),)
    assert (one.label, one.unit, one.total_variation) == ("SubLDA", "document", 1e-21)
    assert one.seeded is True
    assert two.seeded is False
    assert one.process == os.getpid()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", one.created)
    assert one.created <= two.created
    assert one.status == two.status == "reserved"


def test_only_the_named_entry_changes(make_ledger):
    """Not its neighbors, and not through the list that `entries` returns."""
    ledger = make_ledger()
    numbers = [ledger.reserve(f"fit {i}", "document", Gaussian(5.0)) for i in range(6)]
    assert len(set(numbers)) == 6
    ledger.cancel(numbers[1])
    ledger.begin_release(numbers[3])
    ledger.entries().clear()
    assert [(entry.id, entry.label) for entry in ledger.entries()] == [
        (number, f"fit {i}") for i, number in enumerate(numbers)
    ]
    status = ["reserved", "canceled", "reserved", "released", "reserved", "reserved"]
    assert [entry.status for entry in ledger.entries()] == status
    assert ledger.epsilon_spent == epsilon_of(Repeated(Gaussian(5.0), 5), ledger.delta)
    for settle, number in (
        (ledger.cancel, numbers[3]),
        (ledger.begin_release, numbers[1]),
    ):
        with pytest.raises(ValueError, match="cannot become"):
            settle(number)
    for settle in (ledger.begin_release, ledger.cancel):
        with pytest.raises(ValueError, match="no entry 7"):
            settle(7)
        with pytest.raises(TypeError, match="entry_id must be an integer, got str"):
            settle("7")


def test_budget_error_comes_before_anything_is_written(make_ledger):
    ledger = make_ledger(epsilon=1.0)
    ledger.reserve("SubLDA", "document", Repeated(STEP, 20))
    before = ledger.entries()
    with pytest.raises(BudgetError) as caught:
        ledger.reserve("SubLDA", "document", Repeated(STEP, 20))
    message = str(caught.value)
    assert "budget of epsilon 1 at delta 1e-06" in message
    total = epsilon_of(Repeated(STEP, 40), 1e-6)
    assert f"the total would be {total:.6g}" in message
    assert "max_iter" in message
    assert ledger.entries() == before
    assert isinstance(caught.value, ValueError)


def test_the_last_step_that_fits_is_allowed(make_ledger):
    ledger = make_ledger(epsilon=1.0)
    for _ in range(steps_within(1.0)):
        ledger.reserve("a", "document", STEP)
    assert ledger.epsilon_spent <= 1.0
    assert ledger.remaining == 1.0 - ledger.epsilon_spent
    with pytest.raises(BudgetError):
        ledger.reserve("a", "document", STEP)
    with pytest.raises(BudgetError, match="inf"):
        Ledger(epsilon=1e6).reserve("baseline", "document", NonPrivate())
    exactly = Ledger(epsilon=epsilon_of(STEP, 1e-6))
    exactly.reserve("a", "document", STEP)
    assert exactly.remaining == 0.0
    assert f"epsilon {exactly.epsilon:.4g} of" in repr(exactly)


@pytest.mark.parametrize(
    "budget",
    [{"epsilon": 0.0}, {"epsilon": math.nan}, {"delta": 0.011}, {"delta": -1e-9}],
)
def test_bad_budgets(make_ledger, budget):
    with pytest.raises(ValueError, match=next(iter(budget))):
        make_ledger(**budget)


def test_a_relative_path_is_that_of_the_folder_in_which_it_was_given(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    given = SubLDA(2, epsilon=1.0, max_iter=2, ledger="fits")
    models = [
        given,
        clone(given),
        pickle.loads(pickle.dumps(given)),
        SubLDA(2, epsilon=1.0, max_iter=2).set_params(ledger=Path("fits")),
    ]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for model in models:
        clone(model).fit([[2, 0, 1], [0, 3, 0]])
    assert len(Ledger(tmp_path / "fits").entries()) == len(models)
    assert not list(Path.cwd().iterdir())


def test_copies_are_the_same_ledger(make_ledger):
    ledger = make_ledger()
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy({"a": [ledger]})["a"][0] is ledger
    model = SubLDA(ledger=ledger)
    assert clone(model).ledger is ledger
    assert clone(clone(model)).set_params(noise_multiplier=3.0).ledger is ledger


def test_pickle_with_a_path_is_the_same_ledger(path):
    ledger = Ledger(path, epsilon=3.0, delta=1e-5)
    again = pickle.loads(pickle.dumps(ledger))
    again.reserve("a", "document", STEP)
    assert len(ledger.entries()) == 1
    assert (again.epsilon, again.delta, again.path) == (3.0, 1e-5, str(path))
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    # a restored file is the same ledger
    assert ledger.reserve("b", "document", STEP) == 2
    with pytest.raises(TypeError, match="give it a path"):
        pickle.dumps(Ledger(epsilon=1.0))


@pytest.mark.parametrize("budget", [10.0, 1.0])
def test_an_opened_ledger_does_not_spend_from_another_at_its_path(path, budget):
    """With the same budget it is another one nonetheless."""
    opened = Ledger(path, epsilon=10.0)
    opened.reserve("a", "document", STEP)
    pickled = pickle.loads(pickle.dumps(opened))
    path.unlink()
    new = Ledger(path, epsilon=budget)
    for old in (opened, pickled):
        for use in (
            old.entries,
            lambda old=old: old.reserve("b", "document", Gaussian(1.0)),
        ):
            with pytest.raises(
                ValueError, match="another ledger than the one that was opened"
            ):
                use()
        assert "unreadable" in repr(old)
    assert new.entries() == []


RESERVE_UNTIL_REFUSED = """
import sys, time
from pathlib import Path
from dplda.privacy import BudgetError, Gaussian, Ledger
ledger = Ledger(sys.argv[1])
Path(sys.argv[2]).touch()
while not Path(sys.argv[3]).exists():
    time.sleep(0.001)
count = 0
try:
    while True:
        ledger.reserve("race", "document", Gaussian(20.0))
        count += 1
except BudgetError:
    print(count)
"""


@pytest.mark.ci
def test_two_racing_processes_cannot_overspend(path, tmp_path):
    ledger = Ledger(path, epsilon=1.0)
    ready, go = [tmp_path / "ready0", tmp_path / "ready1"], tmp_path / "go"
    environment = os.environ | {"PYTHONPATH": str(Path(dplda.__file__).parents[1])}
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RESERVE_UNTIL_REFUSED, path, flag, go],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for flag in ready
    ]
    while not all(flag.exists() for flag in ready):
        assert all(racer.poll() is None for racer in racers)
    go.touch()
    counts = [int(racer.communicate(timeout=120)[0]) for racer in racers]
    assert sum(counts) == len(ledger.entries()) == steps_within(1.0)
    assert ledger.epsilon_spent <= 1.0
    with pytest.raises(BudgetError):
        ledger.reserve("late", "document", STEP)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_cannot_spend_from_memory():
    ledger, child = Ledger(), os.fork()
    if child == 0:
        try:
            ledger.reserve("a", "document", STEP)
        except RuntimeError as error:
            os._exit(7 if "path" in str(error) else 8)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_reopening_takes_the_budget_of_the_file(path):
    Ledger(path, epsilon=1.5, delta=1e-7)
    again = Ledger(str(path))
    assert (again.epsilon, again.delta) == (1.5, 1e-7)
    assert Ledger(path, epsilon=1.5).delta == 1e-7
    with pytest.raises(ValueError, match=r"epsilon 1.5, not inf"):
        Ledger(path, epsilon=math.inf)
    with pytest.raises(ValueError, match=r"delta 1e-07, not 1e-05"):
        Ledger(path, epsilon=1.5, delta=1e-5)
    with pytest.raises(OSError, match="cannot be made"):
        Ledger(path.parent / "missing" / "privacy.sqlite")


def test_all_that_was_charged_is_in_one_file(path, tmp_path):
    """A copy of it, or what is left after companions are lost, is the whole ledger."""
    ledger = Ledger(path)
    ledger.reserve("a", "document", STEP)
    assert os.listdir(tmp_path) == [path.name]
    copied = tmp_path / "copy.sqlite"
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchone()
        copied.write_bytes(path.read_bytes())
        assert Ledger(copied).entries() == ledger.entries()


def test_a_charge_is_on_the_disk_before_it_is_granted(path, durability):
    Ledger(path).reserve("a", "document", STEP)
    assert durability
    assert set(durability) == {("extra", "delete")}


@pytest.mark.parametrize("kind", ["journal", "wal"])
def test_a_lost_ledger_is_not_replaced_beside_its_journal(path, kind):
    journal = Path(f"{path}-{kind}")
    journal.write_bytes(b"what is left")
    with pytest.raises(ValueError, match="is gone, but its journal"):
        Ledger(path)
    assert not path.exists()


def test_a_ledger_that_another_process_made_just_now_is_not_lost(path, monkeypatch):
    """It was missing, and is there with the journal of its first charge."""
    Ledger(path, epsilon=9.0)
    Path(f"{path}-journal").touch()
    exists, looks = os.path.exists, []

    def missing_at_first(place):
        looks.append(place)
        return len(looks) > 1 and exists(place)

    monkeypatch.setattr(os.path, "exists", missing_at_first)
    assert Ledger(path).epsilon == 9.0
    assert looks[0] == str(path)
    assert len(looks) > 1


def test_a_write_ahead_log_is_undone_or_refused(path):
    """Charges in it would be lost with it."""
    ledger = Ledger(path, epsilon=9.0)
    ledger.reserve("a", "document", STEP)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        assert other.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        assert other.execute("SELECT max(id) FROM entries").fetchone() == (1,)
        for use in (
            ledger.entries,
            lambda: ledger.reserve("b", "document", STEP),
            lambda: Ledger(path),
        ):
            with pytest.raises(OSError, match=r"write-ahead log.*close it there"):
                use()
    assert ledger.reserve("b", "document", STEP) == 2
    assert os.listdir(path.parent) == [path.name]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM entries WHERE id = 3",
        "UPDATE entries SET status = 'canceled' WHERE id = 2",
        "UPDATE entries SET record = replace(record, 'document', 'word')",
        "UPDATE entries SET record = replace(record, 'planned', 'adaptive') WHERE id = "
        "0",
        "UPDATE entries SET record = replace(record, '10.0', '100.0') WHERE id = 0",
        "DELETE FROM entries WHERE id = 0",
        "UPDATE entries SET record = x'ff' WHERE id = 1",
        "DROP TABLE entries",
    ],
)
def test_a_change_by_anybody_else_is_noticed(path, change):
    ledger = Ledger(path, epsilon=10.0)
    for _ in range(3):
        ledger.reserve("a", "document", STEP)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()
    content = path.read_bytes()
    for use in (
        ledger.entries,
        lambda: ledger.reserve("b", "document", STEP),
        lambda: Ledger(path),
    ):
        with pytest.raises(ValueError, match="damaged"):
            use()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"not a database " * 1000, bytes(4096)]
)
def test_a_file_of_another_kind_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a privacy ledger"):
        Ledger(path, epsilon=1.0)
    assert path.read_bytes() == content
    path.unlink()
    Ledger(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 7")
    with pytest.raises(ValueError, match="not a privacy ledger of this version"):
        Ledger(path)


def test_a_lock_that_is_never_released_is_reported(path, monkeypatch):
    ledger, connect, waits = Ledger(path), sqlite3.connect, []

    def in_a_hurry(*arguments, timeout, **options):
        waits.append(timeout)
        return connect(*arguments, timeout=0.05, **options)

    with closing(connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(sqlite3, "connect", in_a_hurry)
        with pytest.raises(TimeoutError, match="another process held the ledger"):
            ledger.reserve("a", "document", STEP)
    assert waits == [600.0]
    assert ledger.reserve("a", "document", STEP) == 1


def test_noise_of_two_given_seeds_may_cancel():
    """The first releases of two seeded fits differ by the private sums, exactly."""
    X = make_topic_corpus(60, 20, 2, random_state=0).data
    ledger = Ledger()
    seen = []
    for rows in (slice(0, 40), slice(20, 60)):
        model = SubLDA(2, epsilon=1.0, max_iter=2, random_state=0, ledger=ledger)
        with observe_releases() as releases, pytest.warns(SeededNoiseWarning):
            model.fit(X[rows])
        seen.append(releases[0])
    assert np.abs(seen[0].value).mean() > 1e5  # noise
    assert np.abs(seen[0].value - seen[1].value).max() < 40 * seen[0].mechanism.radius
    assert ledger.epsilon_spent == math.inf
    assert "given seed" in ledger.caveat
    budget = Ledger(epsilon=30.0)
    first = budget.reserve("fit", "document", Gaussian(5.0), seeded=True)
    assert budget.epsilon_spent < 1
    with pytest.raises(BudgetError, match=r"given seed.*random_state=None"):
        budget.reserve("fit", "document", Gaussian(5.0), seeded=True)
    budget.cancel(first)
    budget.reserve("fit", "document", Gaussian(5.0), seeded=True)
    budget.reserve("fit", "document", Gaussian(5.0))
    assert "entry 2 drew its noise from a given seed" in budget.caveat
    budget.cancel(2)
    assert budget.caveat is None


def test_noise_has_no_epsilon_at_delta_zero():
    ledger = Ledger(delta=0.0)
    ledger.reserve("exact", "word", Laplace(1.0))
    assert ledger.epsilon_spent == 1.0
    ledger.reserve("drawn", "word", Laplace(1.0), total_variation=1e-18)
    assert ledger.epsilon_spent == math.inf
    assert ledger.epsilon_at(1e-3) < 2.0
    with pytest.raises(BudgetError, match="delta above 0"):
        Ledger(epsilon=9.0, delta=0.0).reserve(
            "d", "word", Laplace(1.0), total_variation=1e-18
        )


@pytest.mark.skipif(os.name != "posix", reason="fcntl")
def test_a_file_system_without_locks_is_named_at_once(path, monkeypatch):
    """SQLite would wait for ten minutes for another process."""
    import fcntl

    def fail(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    Ledger(path)
    monkeypatch.setattr(fcntl, "lockf", fail)
    for there in (path, path.with_name("new.sqlite")):
        with pytest.raises(
            OSError, match=r"file locks do not work in .*No locks available"
        ):
            Ledger(there)
    assert os.listdir(path.parent) == [path.name]


def test_a_charge_that_another_process_overwrote_is_an_error(path, monkeypatch):
    """As happens where locks do nothing: both wrote their entry at one place."""
    ledger = Ledger(path, epsilon=9.0)

    class Lost(sqlite3.Connection):
        def execute(self, sql, *values):
            result = super().execute(sql, *values)
            if sql == "COMMIT":
                change = "UPDATE entries SET record = replace(record, 'mine', 'other')"
                super().execute(change)
            return result

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Lost))
    with pytest.raises(OSError, match=r"was overwritten.*file locks do not work"):
        ledger.reserve("mine", "document", STEP)


class Interrupted(sqlite3.Connection):
    """Is interrupted right after one statement has been executed."""

    after = ""

    def execute(self, statement, *values):
        result = super().execute(statement, *values)
        if self.after and statement.startswith(self.after):
            type(self).after = ""
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("after", ["BEGIN", "COMMIT"])
def test_an_interrupt_leaves_a_ledger_in_memory_that_works(after, monkeypatch):
    connect = partial(sqlite3.connect, factory=Interrupted)
    monkeypatch.setattr(sqlite3, "connect", connect)
    ledger = Ledger(epsilon=9.0)
    Interrupted.after = after
    with pytest.raises(KeyboardInterrupt):
        ledger.reserve("first", "document", Gaussian(5.0))
    ledger.reserve("second", "document", Gaussian(5.0))
    labels = [entry.label for entry in ledger.entries()]
    assert labels == (["second"] if after == "BEGIN" else ["first", "second"])
