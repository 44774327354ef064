"""One input of each entry of ``scripts/fuzz.py``, from which a search begins."""

import importlib.util
import sqlite3
import warnings
from pathlib import Path

import pytest

from dplda.privacy import Ledger

SCRIPT = Path(__file__).parent.parent / "scripts" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "entry", ["compressed", "message", "ledger", "reports", "release", "words"]
)
def test_the_first_inputs_run(fuzz, entry):
    assert set(fuzz.RUNS) == set(fuzz.ENTRIES)
    run, seeds = fuzz.ENTRIES[entry]
    assert len(seeds) >= 2
    for seed in [*seeds, b"", bytes(range(256))]:
        run(seed)


def test_changed_events_reach_the_reader_of_events(fuzz):
    """A ledger of other events with a right digest is read, and costs what they do."""
    fuzz.ledger(b"\0" + fuzz.SOUND_EVENTS)
    path = fuzz.FOLDER / "ledger.sqlite"
    assert Ledger(path).epsilon_spent > 0
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET status = 'canceled' WHERE id = 1")
    connection.close()
    with pytest.raises(ValueError, match=r"digest|changed|restore"):
        Ledger(path)
