"""What an operator relies on: logs without data, receipts and checks."""

import logging
import math
import os
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import dplda
from dplda import (
    HDPLDA,
    PrivateCountVectorizer,
    PrivateSVILDA,
    SubLDA,
    load_release,
    save_release,
)
from dplda.__main__ import main
from dplda.privacy import BudgetError, Gaussian, Ledger

CANARIES = ["xyzzycanary", "plughcanary"]


@pytest.fixture
def log():
    """All records of dplda, at every level."""
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("dplda")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "privacy.sqlite")


def charge(ledger, label="fit", multiplier=2.0):
    entry = ledger.reserve(label, "document", Gaussian(multiplier))
    ledger.begin_release(entry)
    return entry


def everything(X, tmp_path):
    """Fits of all kinds of training, a refused one, a canceled one, and a release."""
    for estimator in (SubLDA, PrivateSVILDA, HDPLDA):
        ledger = Ledger(tmp_path / estimator.__name__, epsilon=2.0)
        model = estimator(2, epsilon=1.0, max_iter=2, ledger=ledger).fit(X)
        save_release(model, tmp_path / "topics.dplda")
        with pytest.raises(BudgetError):
            model.set_params(epsilon=10.0).fit(X)
        bad = X.astype(float)
        bad[0, 0] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            model.set_params(epsilon=0.1).fit(bad)
    SubLDA(2, epsilon=0.5, max_iter=2, ledger=tmp_path / "SubLDA").partial_fit(X)
    load_release(tmp_path / "topics.dplda")


def test_fits_of_other_documents_give_the_same_log(log, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(1, 9, (12, 5))
    for name, matrix in (("a", X), ("b", X[:, ::-1][::-1].copy())):
        (tmp_path / name).mkdir()
        everything(matrix, tmp_path / name)
    said = [record.dplda | {"level": record.levelname} for record in log]
    said = [
        {k: v for k, v in f.items() if k not in ("ledger", "receipt")} for f in said
    ]
    half = len(said) // 2
    assert len(said) == 2 * half > 40
    assert said[:half] == said[half:]
    assert {fields["event"] for fields in said} == {
        "budget charged",
        "budget refused",
        "charge released",
        "charge canceled",
        "model fitted",
        "release saved",
        "release loaded",
    }


def test_no_log_holds_a_word_a_count_or_a_folder(log, tmp_path):
    texts = [f"plum pear {CANARIES[i % 2]} {CANARIES[0]}" for i in range(137)]
    folder = tmp_path / "secretfolder"
    folder.mkdir()
    ledger = Ledger(folder / "privacy.sqlite")
    vectorizer = PrivateCountVectorizer(
        epsilon=1.0, candidates=["plum", *CANARIES], ledger=ledger
    )
    counts = vectorizer.fit_transform(texts)
    with pytest.warns(dplda.privacy.SeededNoiseWarning):
        model = SubLDA(
            2, epsilon=1.0, max_iter=2, ledger=ledger, random_state=986543
        ).fit(counts)
    with pytest.warns(dplda.privacy.PrivacyLeakWarning):
        save_release(
            dplda.SubLDA(2, epsilon=np.inf, max_iter=1).fit(counts), folder / "m.dplda"
        )
    assert model.n_iter_ == 2
    text = "\n".join(f"{record.getMessage()} {vars(record)}" for record in log)
    events = {record.dplda["event"] for record in log}
    assert {"budget charged", "noise seeded", "model fitted", "release saved"} <= events
    for secret in (*CANARIES, "plum", "secretfolder", "986543"):
        assert secret not in text
    said = [value for record in log for value in record.dplda.values()]
    assert not {137, 137 * 4, counts.nnz, int(counts.sum())} & {
        v for v in said if type(v) is int
    }


def test_check_exits_with_0_within_and_1_above(path):
    ledger = Ledger(path, epsilon=4.0)
    charge(ledger)
    spent = ledger.epsilon_spent
    check = ["ledger", "check", path]
    assert main([*check, "--max-epsilon", repr(spent)]) == 0
    assert main([*check, "--max-epsilon", repr(math.nextafter(spent, 0))]) == 1
    assert main(check) == 0  # the budget
    assert main([*check, "--max-epsilon", repr(spent), "--delta", "1e-9"]) == 1


def test_check_exits_with_2_for_what_it_cannot_read(path, tmp_path, capsys):
    (tmp_path / "text").write_text("hello")
    charge(Ledger(path))
    missing = str(tmp_path / "missing")
    for arguments in (
        [missing],
        [str(tmp_path / "text")],
        [path, "--releases", str(tmp_path / "text")],
        [path, "--releases", missing],
    ):
        assert main(["ledger", "check", *arguments]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.startswith("error: ")) == ("", True)
    assert not os.path.exists(missing)
    for wrong in ("nan", "-1"):  # more than such a limit was spent
        assert main(["ledger", "check", path, "--max-epsilon", wrong]) == 1
    with pytest.raises(SystemExit, match="2"):
        main(["ledger", "check", path, "--max-epsilon", "x"])


def test_a_receipt_stands_for_the_entries_that_came_first(path):
    ledger = Ledger(path)
    receipts = [ledger.receipt]
    for _ in range(3):
        charge(ledger)
        receipts.append(ledger.receipt)
    # no status changes a receipt
    ledger.cancel(ledger.reserve("fit", "document", Gaussian(2.0)))
    assert len(set(receipts)) == 4
    assert all(ledger.has(receipt) for receipt in receipts)
    assert not any(Ledger().has(receipt) for receipt in receipts)
    assert receipts[2].startswith(f"{ledger.id[:8]}-2-")
    assert Ledger(path).has(receipts[3])
    for wrong in ("", "x", receipts[1] + "0", receipts[1].upper() + "\n"):
        assert not ledger.has(wrong)


def test_restoring_an_old_copy_forgets_what_was_spent_and_this_is_noticed(
    path, tmp_path, capsys
):
    X = np.array([[3, 1, 0], [0, 2, 4]])
    ledger, copy = Ledger(path), str(tmp_path / "copy")
    charge(ledger)
    with (
        closing(sqlite3.connect(path)) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)  # what the command line of SQLite does
    first = str(tmp_path / "first.dplda")
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=path).fit(X)
    save_release(model, first)
    spent, receipt = ledger.epsilon_spent, ledger.receipt
    check = ["ledger", "check", path, "--releases", first]
    assert load_release(first).privacy_.receipt == receipt
    assert main(check) == 0
    os.replace(copy, path)
    assert Ledger(path).epsilon_spent < spent  # nothing warns: the ledger cannot know
    assert main(check) == 1
    assert f"UNKNOWN   {first}: {receipt}" in capsys.readouterr().out
    # as much again, by another entry
    SubLDA(2, epsilon=1.0, max_iter=2, ledger=path).fit(X)
    assert Ledger(path).epsilon_spent == pytest.approx(spent)
    assert main(check) == 1
    assert main(["ledger", "check", path, "--receipt", receipt]) == 1
    assert main(["ledger", "check", path, "--receipt", Ledger(path).receipt]) == 0


def test_a_receipt_of_another_ledger_is_called_so(path, capsys):
    ledger, other = Ledger(path), Ledger()
    charge(other)
    assert main(["ledger", "check", path, "--receipt", other.receipt]) == 1
    printed = capsys.readouterr().out
    assert "the digits of this ledger" in " ".join(printed.split())
    assert "lacks entries" not in printed
    file = str(path) + ".dplda"
    save_release(SubLDA(2, epsilon=1.0, max_iter=2).fit([[3, 1], [0, 2]]), file)
    assert main(["ledger", "check", path, "--releases", file]) == 1
    assert "charged to no ledger" in capsys.readouterr().out
    # of entries that a copy would have forgotten
    lost = f"{ledger.id[:8]}-3-{'0' * 16}"
    assert main(["ledger", "check", path, "--receipt", lost]) == 1
    printed = capsys.readouterr().out
    assert "lacks entries" in printed
    assert "another ledger" not in printed
