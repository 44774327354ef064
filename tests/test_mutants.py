"""Planted faults: each applies, each function of the trusted base has one, and tests find them."""

import ast
import os
import runpy
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

import pytest
from mutants import run

ROOT = Path(__file__).parents[1]
MUTANTS = run.load()
BASE = runpy.run_path(str(ROOT / "scripts" / "trusted_base"))


def source(mutant):
    return (ROOT / mutant.file).read_text("utf-8")


@cache
def meaning(text):
    """The code without its layout and comments."""
    return ast.dump(ast.parse(text))


@pytest.mark.parametrize("room", sorted({mutant.room for mutant in MUTANTS.values()}))
def test_every_mutant_is_a_change_of_todays_code(room):
    for mutant in MUTANTS.values():
        if mutant.room != room:
            continue
        text = source(mutant)
        planted = mutant.planted(text)  # each old text occurs once
        assert mutant.kind in run.KINDS, mutant.name
        assert mutant.breaks.endswith("."), mutant.name
        if mutant.file.endswith(".py"):
            assert meaning.__wrapped__(planted) != meaning(text), mutant.name
        assert all((ROOT / name).exists() for name in mutant.tests), mutant.name


def test_all_kinds_are_planted():
    assert {mutant.kind for mutant in MUTANTS.values()} == run.KINDS.keys()
    assert len(MUTANTS) >= 120
    assert sum(bool(mutant.extensions) for mutant in MUTANTS.values()) >= 15


def test_pins_exist():
    for pin in run.PINS:
        path, _, name = pin.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text("utf-8")


def test_the_page_counts_todays_trusted_base():
    page = BASE["PAGE"].read_text("utf-8")
    assert BASE["page"](page) == page, "run scripts/trusted_base --write"


def test_every_function_of_the_trusted_base_has_a_mutant_that_is_found():
    touched = set()
    for mutant in MUTANTS.values():
        if mutant.survives:
            continue
        text = source(mutant)
        for old, _ in mutant.edits:
            first = text[: text.index(old)].count("\n") + 1
            touched |= {(mutant.file, first + i) for i in range(old.count("\n") + 1)}
    without = [
        f"{file}: {name}"
        for _, file, _, name, lines in BASE["lines_of_base"]()
        if not any((f"dplda/{file}", line) in touched for line in lines)
    ]
    assert not without, "\n".join(without)


def test_a_survivor_fails_the_run_unless_its_reason_is_written():
    mutant = next(iter(MUTANTS.values()))
    outcome = run.Outcome(mutant.name, "survived", 1.0, "")
    assert run.faulty([outcome], {mutant.name: mutant}) == [outcome]
    excused = run.Mutant(**{**vars(mutant), "survives": "it has no effect"})
    assert run.faulty([outcome], {mutant.name: excused}) == []
    for result, n_faulty in (("invalid", 1), ("killed", 0), ("changed value", 0)):
        outcomes = [run.Outcome(mutant.name, result, 1.0, "")]
        assert len(run.faulty(outcomes, {mutant.name: excused})) == n_faulty


def test_failures_are_read_from_the_summary_of_pytest():
    output = (
        "FAILED tests/test_a.py::test_b[1-x y] - assert 1 == 2 - 3\n"
        "ERROR tests/test_c.py - NameError: name 'd' is not defined\n"
        "FAILED tests/test_e.py::test_f\n1 failed in 0.1s\n"
    )
    assert run.failures(output) == [
        ("tests/test_a.py::test_b[1-x y]", "assert 1 == 2 - 3"),
        ("tests/test_c.py", "NameError: name 'd' is not defined"),
        ("tests/test_e.py::test_f", ""),
    ]


@pytest.mark.skipif(os.name == "nt", reason="copies are tested in forks")
@pytest.mark.slow
def test_todays_sample_is_found():
    """Ten mutants, other ones each day."""
    today = datetime.now(UTC).date()
    sample = run.chosen(MUTANTS, [], 10, (today - date(2026, 1, 1)).days)
    outcomes = run.run(sample, MUTANTS, n_jobs=1)
    bad = [f"{o.result}: {o.name}: {o.reason}" for o in run.faulty(outcomes, MUTANTS)]
    assert not bad, "\n".join(bad)
