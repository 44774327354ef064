"""A ledger under SIGKILL, full disks and damage: it never forgets a charge."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from estimators import PRIVATE, each
from sklearn.base import clone

import dplda
from dplda import SubLDA
from dplda.__main__ import main
from dplda.audit import observe_releases
from dplda.privacy import Gaussian, Ledger

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# The real thing, small: one private fit after another on one ledger. What is released
# goes to a file at once, so that it outlives the process.
FITS = '''
import os, random, signal, sys, time, warnings
import numpy as np
from dplda import SubLDA
from dplda.privacy import BudgetError, Gaussian, Ledger
from dplda.privacy.mechanisms import Curator

X = np.random.RandomState(0).poisson(1.0, (12, 6))

class Marks:
    """Writes down the process and the number of its fit."""
    def __init__(self, path):
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.fit = 0
    def write(self):
        os.write(self.descriptor, b"%d %d\\n" % (os.getpid(), self.fit))

def model(ledger=None):
    return SubLDA(2, noise_multiplier=20.0, max_iter=2, ledger=ledger)

def fit_forever(path, marks):
    marks, release = Marks(marks), Curator.release
    def release_and_mark(*args, **kwargs):
        noisy = release(*args, **kwargs)
        marks.write()
        return noisy
    Curator.release = release_and_mark
    estimator = model(path)
    while True:
        marks.fit += 1
        estimator.fit(X)

def charge_forever(path, marks):
    """The same without the training, so that more kills meet a transaction."""
    marks, ledger = Marks(marks), Ledger(path)
    while True:
        marks.fit += 1
        entry = ledger.reserve("bare", "document", Gaussian(20.0))
        ledger.begin_release(entry)
        marks.write()

model().fit(X)  # imports and caches, before the forks
'''

KILLS = (
    FITS
    + """
path, marks, seed, tries = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
chance, n_journals = random.Random(seed), 0
for i in range(tries):
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b"!")
        (fit_forever if i % 2 else charge_forever)(path, marks)
    os.read(heard, 1)
    time.sleep(chance.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    os.close(heard), os.close(told)
    n_journals += os.path.exists(path + "-journal")
print(n_journals)
"""
)


def run(script, *arguments, timeout=250):
    environment = os.environ | {
        "PYTHONPATH": str(Path(dplda.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def released_fits(marks):
    """How many fits of each process released something."""
    fits = {}
    for line in marks.read_text().splitlines() if marks.exists() else []:
        process, fit = map(int, line.split())
        fits[process] = max(fit, fits.get(process, 0))
    return fits


def integrity(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone()[0]


def check_counted(ledger, released):
    """Each process has an entry for each fit that released, and at most one more."""
    counted = {}
    for entry in ledger.entries():
        assert entry.status in ("reserved", "released", "canceled")
        counted[entry.process] = counted.get(entry.process, 0) + entry.counts
    for process, n_fits in released.items():
        assert n_fits <= counted[process] <= n_fits + 1
    assert all(n <= 1 for process, n in counted.items() if process not in released)


def check_after_kills(path, marks):
    """Every fit that released has its entry; the file is whole, and goes on."""
    released = released_fits(marks)
    if not path.exists():
        assert released == {}
        return 0
    ledger = Ledger(path)
    check_counted(ledger, released)
    for entry in ledger.entries():
        if entry.status == "reserved":  # which released nothing, whoever it was
            ledger.cancel(entry.id)
    check_counted(ledger, released)
    assert integrity(path) == "ok"
    number = len(ledger.entries())
    assert ledger.reserve("the next fit", "document", Gaussian(20.0)) == number + 1
    assert not Path(f"{path}-journal").exists()
    return sum(released.values())


@pytest.mark.parametrize(
    ("n_ledgers", "tries"),
    [
        pytest.param(1, 14, marks=pytest.mark.ci),
        pytest.param(20, 50, marks=pytest.mark.slow),
    ],
)
def test_a_ledger_survives_kills_at_random_moments(n_ledgers, tries):
    """1,000 kills in the slow form, on ledgers that the fits have to make themselves.

    In memory where that is possible: a kill, unlike a power cut, does not ask for a
    disk.
    """
    n_fits = n_journals = 0
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        for seed in range(n_ledgers):
            path, marks = Path(folder, f"{seed}.sqlite"), Path(folder, f"{seed}.marks")
            n_journals += int(run(KILLS, path, marks, seed, tries))
            n_fits += check_after_kills(path, marks)
    print(
        f"{n_ledgers * tries} kills, {n_fits} fits that released, {n_journals} open "
        "journals"
    )
    assert n_fits > 0  # it was about something


IN_TRANSACTION = """
import os, signal, sys
from dplda.privacy import Gaussian, Ledger
ledger = Ledger(sys.argv[1])
with ledger._store.transaction(write=True) as page:
    first = page.entries()[0]
    # changed pages go to the file at once
    page._connection.execute("PRAGMA cache_size = 1")
    for i in range(30):
        page.set_status(1 + i, "canceled")
        page.add(first)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_in_the_middle_of_a_transaction_is_undone(tmp_path):
    """The file is half changed, the journal is there: SQLite's rollback must work."""
    path = tmp_path / "privacy.sqlite"
    ledger = Ledger(path)
    for _ in range(60):
        ledger.reserve("a" * 500, "document", Gaussian(20.0))
    before, content = ledger.entries(), path.read_bytes()
    with pytest.raises(AssertionError):
        run(IN_TRANSACTION, path)
    assert Path(f"{path}-journal").stat().st_size > 0
    assert path.read_bytes() != content
    assert Ledger(path).entries() == before
    assert integrity(path) == "ok"
    assert ledger.reserve("b", "document", Gaussian(20.0)) == 61


class Untouchable:
    def __getattribute__(self, name):
        raise AssertionError(f"the documents were touched: {name}")


UNTOUCHABLE = """
class Untouchable:
    def __getattribute__(self, name):
        os.write(2, b"touched")
        os._exit(9)
"""


@each(PRIVATE)
@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0" + bytes(84)])
def test_a_fit_with_a_broken_ledger_reads_nothing(estimator, content, tmp_path):
    path = tmp_path / "privacy.sqlite"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a privacy ledger"):
        clone(estimator).set_params(ledger=str(path)).fit(Untouchable())
    assert path.read_bytes() == content


FULL = (
    FITS
    + UNTOUCHABLE
    + """
import resource
for limit in map(int, sys.argv[2:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        model(sys.argv[1]).fit(Untouchable())
    except OSError as error:
        outcome = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    print(outcome)
"""
)


@pytest.mark.ci
def test_a_full_disk_refuses_the_fit_and_keeps_every_entry_and_makes_no_half_ledger(
    tmp_path,
):
    path = tmp_path / "privacy.sqlite"
    outcomes = run(FULL, path, 0, 4096, 8191).splitlines()
    assert all(
        outcome.startswith(f"the ledger {path} cannot be") for outcome in outcomes
    )
    assert (len(outcomes), os.listdir(tmp_path)) == (3, [])
    ledger = Ledger(path)
    for _ in range(20):
        ledger.reserve("a" * 500, "document", Gaussian(20.0))
    before, size = ledger.entries(), path.stat().st_size
    limits = (0, 511, 4096, size // 2, size - 1)
    outcomes = run(FULL, path, *limits).splitlines()
    assert len(outcomes) == len(limits)
    for outcome in outcomes:
        assert outcome.startswith(f"the ledger {path} cannot be used")
        assert outcome.endswith("room on the disk")
    assert ledger.entries() == before
    assert integrity(path) == "ok"
    assert ledger.reserve("b", "document", Gaussian(20.0)) == 21


KILLED_AT = (
    FITS
    + """
moment = sys.argv[2]
def end(*args, **kwargs):
    os._exit(0)
if moment == "reserved":
    Ledger.begin_release = end
else:
    import dplda.privacy._curator as curator
    curator.announce = end  # the noise is drawn
model(sys.argv[1]).fit(X)
"""
)


@pytest.mark.ci
@pytest.mark.parametrize("moment", ["reserved", "released"])
def test_the_entry_of_a_dead_process_tells_whether_it_released(
    moment, tmp_path, capsys
):
    path = tmp_path / "privacy.sqlite"
    run(KILLED_AT, path, moment)
    (entry,) = Ledger(path).entries()
    assert entry.status == moment
    spent = Ledger(path).epsilon_spent
    assert spent > 0
    assert main(["ledger", "cancel", str(path), "1"]) == (moment == "released")
    assert Ledger(path).epsilon_spent == (spent if moment == "released" else 0.0)


class CanceledMeanwhile(Ledger):
    def reserve(self, *args, **kwargs):
        entry = super().reserve(*args, **kwargs)
        super().cancel(entry)
        return entry


class Full(Ledger):
    """The disk is full when the mark is to be written, and perhaps later."""

    def begin_release(self, entry_id):
        raise OSError("no space left on the device")


@each(PRIVATE)
@pytest.mark.parametrize(
    ("ledger", "error"),
    [(CanceledMeanwhile, "entry 1 of the ledger is canceled"), (Full, "no space left")],
)
def test_nothing_is_released_unless_the_mark_was_written(estimator, ledger, error):
    ledger = ledger(epsilon=1000.0)
    X = np.random.RandomState(0).poisson(1.0, (12, 6))
    model = clone(estimator).set_params(ledger=ledger)
    with (
        observe_releases() as releases,
        pytest.raises((ValueError, OSError), match=error),
    ):
        model.fit(X)
    assert releases == []
    assert not hasattr(model, "privacy_")
    assert [entry.status for entry in ledger.entries()] == ["canceled"]
    assert ledger.epsilon_spent == 0.0


def test_a_charge_that_cannot_be_canceled_does_not_hide_why_the_fit_ended(monkeypatch):
    ledger = Full(epsilon=4.0)
    monkeypatch.setattr(ledger, "cancel", ledger.begin_release)
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger)
    with (
        pytest.warns(
            UserWarning, match="entry 1.*keeps its status.*counts until it is canceled"
        ),
        pytest.raises(ValueError, match="NaN"),
    ):
        model.fit(np.full((3, 4), np.nan))


def test_damage_is_refused_or_harmless(tmp_path):
    """Never a smaller total: all entries are there, or an error that names the file."""
    path, chance = tmp_path / "privacy.sqlite", np.random.default_rng(0)
    ledger = Ledger(path, epsilon=20.0)
    for i in range(40):
        ledger.reserve("a" * (i * 10), "document", Gaussian(20.0 + i))
    content, entries, refused = path.read_bytes(), ledger.entries(), []
    for turn in range(200):
        changed, place = bytearray(content), int(chance.integers(len(content)))
        if turn % 4:
            changed[place] ^= 1 << turn % 8
        else:
            del changed[place:]
        path.write_bytes(changed)
        try:
            again = Ledger(path)
            assert (again.entries(), again.epsilon, again.delta) == (
                entries,
                20.0,
                1e-6,
            )
        except (ValueError, OSError) as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert all(str(path) in message for message in refused)
