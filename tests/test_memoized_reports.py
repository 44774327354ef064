"""Memoized reports: one report for each document, whatever happens to its file."""

import math
import os
import sqlite3
import stat
from contextlib import closing, suppress

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from test_randomized_response import documents, same

from dplda import MemoizedReports, RandomizedResponse
from dplda.privacy import BudgetError, Ledger, SeededNoiseWarning


@pytest.fixture
def corpus():
    return documents(30, 80, 0.2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "reports.sqlite"


def test_a_document_is_reported_once(corpus, path):
    ledger = Ledger()
    client = RandomizedResponse(bit_epsilon=1.0, ledger=ledger).fit(corpus)
    memo = MemoizedReports(client, path)
    first = memo.reports(range(20), corpus[:20])
    assert isinstance(first, sp.csr_array)
    assert first.has_canonical_format
    assert not same(first, corpus[:20] > 0)
    one, other, again = memo.reports([100, 101, np.int8(100)], corpus[[0, 0, 0]])
    assert not same(one, other)
    assert same(one, again)
    order = np.array([3, 3, 19, 0])
    assert same(memo.reports(order, corpus[order]), first[order])
    assert len(ledger.entries()) == 1
    more = memo.reports(range(30), corpus)
    assert same(more[:20], first)
    assert same(MemoizedReports(client, str(path)).reports(range(30), corpus), more)


@pytest.mark.parametrize(
    ("ids", "later"),
    [([7, 8], ["7", "8"]), (["7", "8"], [7, 8]), (["007", "8"], [7, 8])],
)
def test_ids_of_two_kinds_are_refused(corpus, path, ids, later):
    """A table may be read with integers in one run, and with texts in the next."""
    ledger = Ledger()
    client = RandomizedResponse(bit_epsilon=1.0, ledger=ledger).fit(corpus)
    first = MemoizedReports(client, path).reports(ids, corpus[:2])
    memo = MemoizedReports(client, path)
    with pytest.raises(ValueError, match="the stored reports have ids that are"):
        memo.reports(later, corpus[:2])
    with pytest.raises(ValueError, match="integers only or texts only"):
        memo.reports([ids[0], later[1]], corpus[:2])
    assert same(memo.reports(ids, corpus[:2]), first)


@pytest.mark.parametrize("other", ["Zoe\u0308 Lee", " Zoë\u00a0Lee", "Zoë  Lee\u200b "])
def test_texts_that_look_the_same_are_one_id(corpus, path, other):
    memo = MemoizedReports(RandomizedResponse(bit_epsilon=1.0).fit(corpus), path)
    first = memo.reports(["Zoë Lee"], corpus[:1])
    assert same(memo.reports([other], corpus[:1]), first)
    with pytest.raises(ValueError, match="differ from what was reported"):
        memo.reports([other], corpus[1:2])
    with pytest.raises(ValueError, match="ids must not be empty texts"):
        memo.reports(["\u200b"], corpus[:1])


def test_a_changed_document(corpus, path):
    client = RandomizedResponse(bit_epsilon=1.0).fit(corpus)
    memo = MemoizedReports(client, path)
    first = memo.reports(["a", "b"], corpus[:2])
    assert same(memo.reports(["a", "b"], 3 * corpus[:2]), first)  # the same words
    with pytest.raises(ValueError, match="1 of 3 documents differ") as error:
        memo.reports(["a", "b", "secret id"], corpus[[0, 2, 3]])
    assert "secret id" not in str(error.value)
    with pytest.raises(ValueError, match="1 of 2"):
        memo.reports(["new", "new"], corpus[[5, 6]])
    assert same(memo.reports(["b", "a"], corpus[[1, 0]]), first[[1, 0]])


def test_all_reports_of_a_file_cost_what_one_costs(corpus, path):
    """Each document is in one report, and adds nothing to the cost of another."""
    ledger = Ledger(epsilon=10.0, delta=1e-6)
    client = RandomizedResponse(bit_epsilon=1.0, max_doc_words=2, ledger=ledger).fit(
        corpus
    )
    memo = MemoizedReports(client, path)
    for row in range(20):
        memo.reports([row], corpus[[row]])
    assert ledger.epsilon_spent == pytest.approx(client.epsilon_)
    (entry,) = ledger.entries()
    assert (entry.events, entry.status) == (client.privacy_.events, "released")
    MemoizedReports(client, path).reports([20], corpus[[20]])  # in another process, too
    assert ledger.entries() == [entry]


def test_each_file_and_each_ledger_has_an_entry(corpus, tmp_path):
    """One document may be in two files: the entries of a ledger add up."""
    ledger, other = Ledger(), Ledger(tmp_path / "ledger")
    client = RandomizedResponse(bit_epsilon=1.0, ledger=ledger).fit(corpus)
    for name in ("others", "reports"):
        MemoizedReports(client, tmp_path / name).reports([0], corpus[:1])
    assert len(ledger.entries()) == 2
    client.set_params(ledger=other.path)
    memo = MemoizedReports(client, tmp_path / "reports")
    memo.reports([0], corpus[:1])
    assert other.entries() == []  # nothing was drawn
    memo.reports([0, 1], corpus[:2])
    memo.reports([2], corpus[[2]])
    assert len(other.entries()) == 1


@pytest.mark.parametrize("left", ["reserved", "canceled"])
def test_an_entry_without_a_release_does_not_pay(left, corpus, path):
    """A process killed between reservation and report leaves what can be canceled."""
    ledger = Ledger()
    client = RandomizedResponse(bit_epsilon=1.0, ledger=ledger).fit(corpus)
    memo = MemoizedReports(client, path)
    paid = Ledger()
    MemoizedReports(clone(client).set_params(ledger=paid).fit(corpus), path).reports(
        [1], corpus[[1]]
    )
    (label,) = (entry.label for entry in paid.entries())
    entry = ledger.reserve(label, "document", client.privacy_.events)
    if left == "canceled":
        ledger.cancel(entry)
    memo.reports([0], corpus[:1])
    if left == "reserved":
        ledger.cancel(entry)
    assert ledger.epsilon_spent == pytest.approx(client.epsilon_)


def test_each_part_pays_for_its_reports(corpus, path):
    ledger = Ledger()
    client = RandomizedResponse(bit_epsilon=1.0).fit(corpus)
    memo = MemoizedReports(client, path)
    for row, part in enumerate(["train", "test", "train"]):
        client.set_params(ledger=ledger.part(part, by="set"))
        memo.reports([row], corpus[[row]])
    assert [entry.part for entry in ledger.entries()] == ["set=train", "set=test"]
    client.set_params(ledger=ledger)
    for row in (3, 4):
        memo.reports([row], corpus[[row]])
    client.set_params(ledger=ledger.part("train", by="set"))
    memo.reports([5], corpus[[5]])
    assert [entry.part for entry in ledger.entries()] == ["set=train", "set=test", None]


def test_reports_with_a_seed_are_charged_in_each_call(corpus, path):
    """Two calls flip the same bits: reports of two documents are not independent."""
    ledger = Ledger()
    client = RandomizedResponse(bit_epsilon=1.0, ledger=ledger, random_state=0).fit(
        corpus
    )
    memo = MemoizedReports(client, path)
    for row in range(2):
        with pytest.warns(SeededNoiseWarning):
            memo.reports([row], corpus[[row]])
    assert [entry.seeded for entry in ledger.entries()] == [True, True]
    assert ledger.epsilon_spent == math.inf


def test_an_unaffordable_report_is_not_stored(corpus, path):
    ledger = Ledger(epsilon=1.0)
    client = RandomizedResponse(bit_epsilon=1.0, ledger=ledger, max_doc_words=60).fit(
        corpus
    )
    memo = MemoizedReports(client, path)
    for _ in range(2):
        with pytest.raises(BudgetError):
            memo.reports([0, 3], corpus[[0, 3]])
    assert ledger.entries() == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM reports").fetchall() == []


def test_bad_memoized_calls(corpus, tmp_path, path):
    client = RandomizedResponse(bit_epsilon=1.0).fit(corpus)
    memo = MemoizedReports(client, path)
    with pytest.raises(ValueError, match="got fewer ids than rows"):
        memo.reports([0, 1], corpus)
    with pytest.raises(TypeError, match="ids must be texts or integers, got float"):
        memo.reports([0.5], corpus[:1])
    with pytest.raises(TypeError, match="got bool"):
        memo.reports([True], corpus[:1])
    with pytest.raises(TypeError, match="one id for each row of X, got str"):
        memo.reports("ab", corpus[:2])
    with pytest.raises(TypeError, match="got NoneType"):
        memo.reports(None, corpus[:2])
    with pytest.raises(ValueError, match="other parameters"):
        MemoizedReports(clone(client).set_params(bit_epsilon=2.0).fit(corpus), path)
    Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(ValueError, match="not a file of reports of this version"):
        MemoizedReports(client, tmp_path / "ledger.sqlite")
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(ValueError, match="not a file of reports"):
        MemoizedReports(client, tmp_path / "text")


@pytest.fixture
def reported(corpus, tmp_path):
    memo = MemoizedReports(
        RandomizedResponse(bit_epsilon=1.0, ledger=Ledger()).fit(corpus),
        tmp_path / "reports",
    )
    memo.reports(range(2), corpus[:2])
    older = (tmp_path / "reports").read_bytes()
    memo.reports([2], corpus[[2]])
    return memo, tmp_path / "reports", older


@pytest.mark.parametrize("content", ["other", "other with as many", "older", "empty"])
def test_a_file_that_was_replaced_is_refused(reported, corpus, tmp_path, content):
    memo, path, older = reported
    files = {"older": older, "empty": b""}
    other = MemoizedReports(
        RandomizedResponse(bit_epsilon=1.0).fit(corpus), tmp_path / "other"
    )
    files["other"] = (tmp_path / "other").read_bytes()
    other.reports(range(3), corpus[:3])
    files["other with as many"] = (tmp_path / "other").read_bytes()
    path.write_bytes(files[content])
    with pytest.raises(
        ValueError, match=r"another file of reports|or its content was lost"
    ):
        memo.reports([2], corpus[[2]])
    assert len(memo.randomizer.ledger.entries()) == 1
    assert path.read_bytes() == files[content]


def test_a_file_that_lost_its_content_is_not_begun_again(reported, corpus):
    memo, path, _ = reported
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="or its content was lost"):
        MemoizedReports(memo.randomizer, path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="is gone; what it held was reported"):
        memo.reports([0], corpus[:1])
    assert not path.exists()
    path.with_name("reports-journal").write_bytes(b"")
    with pytest.raises(ValueError, match=r"its journal .* exists"):
        MemoizedReports(memo.randomizer, path)
    with pytest.raises(OSError, match=r"cannot be made.* existing folder"):
        MemoizedReports(memo.randomizer, path / "reports")


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_no_flipped_bit_of_a_file_makes_a_second_report(step, tmp_path):
    """A file of 512-byte pages has few bits: each of them is flipped, or each 13th."""
    X, ids, path = documents(2, 8, 0.5), ["a", "7"], tmp_path / "reports"
    client = RandomizedResponse(bit_epsilon=1.0, ledger=Ledger()).fit(X)
    first = MemoizedReports(client, path).reports(ids, X)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    content, refused = path.read_bytes(), 0
    for bit in range(0, 8 * len(content), step):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert same(MemoizedReports(client, path).reports(ids, X), first)
        except (ValueError, OSError):
            refused += 1
        for journal in tmp_path.glob("reports-*"):
            journal.unlink()
    assert len(client.ledger.entries()) == 1
    assert 0.2 < refused * step / bit < 0.9


def test_a_bit_that_flips_under_a_client_makes_no_second_report(reported, corpus):
    """Each call checks the reports that it returns."""
    memo, path, _ = reported
    content, first = path.read_bytes(), memo.reports(range(3), corpus[:3])
    for byte in np.flatnonzero(np.frombuffer(content, np.uint8))[::3].tolist():
        path.write_bytes(
            content[:byte] + bytes([content[byte] ^ 1]) + content[byte + 1 :]
        )
        with suppress(ValueError, OSError):
            assert same(memo.reports(range(3), corpus[:3]), first)
    assert len(memo.randomizer.ledger.entries()) == 1


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_its_owner_reads_the_file(reported):
    assert stat.S_IMODE(reported[1].stat().st_mode) == 0o600


def test_a_sent_report_survives_a_power_cut(reported, corpus, durability):
    reported[0].reports([12345], corpus[:1])
    assert durability
    assert set(durability) == {("extra", "delete")}


def test_the_file_holds_neither_ids_nor_documents(corpus, tmp_path):
    path = tmp_path / "reports.sqlite"
    memo = MemoizedReports(RandomizedResponse(bit_epsilon=0.1).fit(corpus), path)
    memo.reports(["secret id"], corpus[:1])
    content = path.read_bytes()
    assert b"secret" not in content
    assert corpus[:1].indices.astype("<i4").tobytes() not in content
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM reports").fetchone() == (1,)
    connection.close()
