"""The command line: its commands, their help and errors, and the example."""

import hashlib
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import dplda
from dplda import SubLDA, save_release
from dplda.__main__ import main
from dplda.datasets import load_wordnet_glosses
from dplda.privacy import (
    ApproximateDP,
    BudgetError,
    Gaussian,
    Ledger,
    RandomizedResponseEvent,
    calibrate,
    split_epsilon,
)

ROOT = Path(__file__).parents[1]


@pytest.mark.ci
def test_the_example_prints_topics_of_its_texts_and_the_guarantee(tmp_path):
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "dplda",
            "fit",
            "--example",
            "--n-components",
            "6",
            "--max-features",
            "400",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    assert "Warning" not in run.stderr
    rows = re.findall(
        r"^ +(\d+)[ ?] +([\d.]+)% +-?[\d.]+ +([a-z? ]+)$", run.stdout, re.MULTILINE
    )
    assert sorted(int(k) for k, _, _ in rows) == list(range(6))
    assert sum(float(share) for _, share, _ in rows) == pytest.approx(100, abs=0.4)
    text = " ".join(load_wordnet_glosses().data).lower()
    for _, _, marked in rows:
        words = marked.replace("?", "")
        assert len(set(words.split())) == 10
        assert all(word in text for word in words.split())
    card = run.stdout.partition("\n\nprotects ")[2]
    assert "each document" in card
    assert 3.9 < float(re.search(r"epsilon = ([\d.]+)", card)[1]) <= 4
    assert [path.name for path in tmp_path.iterdir()] == ["topics.dplda"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fit"],
        ["plan"],
        ["topics"],
        ["transform"],
        ["ledger"],
        ["federation"],
        ["ledger", "show"],
        ["federation", "party"],
    ],
    ids=" ".join,
)
def test_every_command_has_a_help_without_none(capsys, arguments):
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(" ".join(["usage: dplda", *arguments]))
    if "federation" not in arguments:
        assert "None" not in text


@pytest.mark.parametrize(
    "argument",
    [
        [],
        ["dome"],
        ["fit"],
        ["fit", "notes"],
        ["fit", "notes", "--epsilon", "1", "--example"],
        ["fit", "--example", "--epsilon", "much"],
        ["fit", "--example", "--n-components", "many"],
        ["fit", "--example", "--n-components", "auto"],  # of an unknown number of texts
        ["plan"],
        ["ledger"],
    ],
)
def test_invalid_usage_is_noticed_at_once(capsys, argument):
    with pytest.raises(SystemExit, match="2"):
        main(argument)
    printed = capsys.readouterr()
    assert "error: " in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "0"], "--epsilon must be a number"),
        (["--epsilon", "inf"], "--epsilon must be a number"),
        (["--n-components", "0"], "'n_components' parameter"),
        (["--max-features", "0"], "'max_features' parameter"),
        (["--language", "tlh"], "language must be one of"),
    ],
)
def test_an_invalid_value_is_one_line_and_exit_code_1(capsys, options, message):
    assert main(["fit", "--example", *options]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert message in printed.err


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
@pytest.mark.parametrize("language", ["en", "de"])  # one has a table of word vectors
def test_the_plan_reads_nothing_and_says_what_to_expect(capsys, language):
    if language != "en":
        pytest.importorskip("wordfreq")
    options = ["--n-docs", "6000", "--max-features", "500", "--epsilon", "2"]
    assert main(["plan", *options, "--language", language]) == 0
    _, for_topics = split_epsilon(2.0, (0.12, 0.88))  # the words are paid first
    expected = dplda.plan(
        n_docs=6000,
        n_words=500,
        n_components=20,
        epsilon=for_topics,
        word_vectors=language == "en",
    )
    assert capsys.readouterr().out == f"{replace(expected, epsilon=2.0)}\n"


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_a_plan_chooses_the_number_of_topics(capsys):
    options = ["plan", "--n-docs", "6000", "--max-features", "500", "--epsilon", "2"]
    for groups in ([], ["--groups", "9"]):  # counts leave less for topics
        assert main([*options, "--n-components", "auto", *groups]) == 0
        said = capsys.readouterr().out
        (number,) = re.findall(r"recommended topics +at most (\d+)", said)
        assert main([*options, "--n-components", number, *groups]) == 0
        assert capsys.readouterr().out == said


def test_a_ledger_says_how_much_one_more_fit_may_cost(capsys, tmp_path):
    path = str(tmp_path / "privacy.sqlite")
    ledger = Ledger(path, epsilon=4.0)
    ledger.reserve("first", "document", [Gaussian(1.5)])
    assert main(["ledger", "show", path]) == 0
    said = re.search(r"one more .* about epsilon ([0-9.]+)", capsys.readouterr().out)
    one_more = float(said[1])
    assert one_more > 1.5 * ledger.remaining

    def fit(epsilon):
        noise = calibrate(Gaussian, epsilon, 1e-6)
        return ledger.reserve("second", "document", [Gaussian(noise)])

    with pytest.raises(BudgetError):
        fit(1.01 * one_more)
    fit(0.99 * one_more)


@pytest.mark.parametrize(
    ("delta", "paid"),
    [(0.0, RandomizedResponseEvent(0.5)), (1e-6, ApproximateDP(0.5, 1e-6))],
    ids=["without a delta", "whose delta is spent"],
)
def test_a_ledger_that_pays_for_no_gaussian_noise_is_shown(
    capsys, tmp_path, delta, paid
):
    path = str(tmp_path / "privacy.sqlite")
    ledger = Ledger(path, epsilon=3.0, delta=delta)
    ledger.reserve("reports", "document", paid)
    assert main(["ledger", "show", path]) == 0
    said = capsys.readouterr().out
    assert "one more" not in said
    assert ledger.receipt in said


def test_a_ledger_is_shown(capsys, tmp_path):
    path = str(tmp_path / "privacy.sqlite")
    ledger = Ledger(path)
    ledger.reserve("SubLDA", "document", [Gaussian(2.0)])
    assert main(["ledger", "show", path]) == 0
    text = capsys.readouterr().out
    assert re.search(r"SubLDA +document +reserved", text)
    assert "budget     epsilon inf at delta 1e-06" in text
    assert main(["ledger", "show", path, "--delta", "1e-8"]) == 0
    assert (
        f"epsilon {ledger.epsilon_at(1e-8):.6g} at delta 1e-08"
        in capsys.readouterr().out
    )


def test_a_command_warns_without_a_line_of_code_and_ends_with_its_reader(
    monkeypatch, capsys
):
    seen = []

    def show(options):
        seen.append(warnings.formatwarning("why", UserWarning, "a.py", 1))
        raise BrokenPipeError

    monkeypatch.setattr("dplda.cli._ledger._show", show)
    monkeypatch.setattr("dplda.__main__._close_output", lambda: seen.append("closed"))
    usual = warnings.formatwarning
    assert main(["ledger", "show", "x"]) == 1
    assert seen == ["UserWarning: why\n", "closed"]
    assert capsys.readouterr().err == ""
    assert warnings.formatwarning is usual


def test_an_output_that_does_not_know_a_letter_shows_the_others(tmp_path, monkeypatch):
    path = tmp_path / "topics.dplda"
    model = SubLDA(2, epsilon=4.0, max_iter=2).fit([[2, 0], [0, 3]])
    save_release(model, path, vocabulary=["łódź", "dom"])
    out = io.TextIOWrapper(io.BytesIO(), "cp1252")
    monkeypatch.setattr("sys.stdout", out)
    assert main(["topics", str(path)]) == 0
    out.flush()
    shown = out.buffer.getvalue().decode("cp1252")
    assert r"\u0142ód\u017a" in shown
    assert "dom" in shown


def test_a_file_that_is_no_ledger_is_one_line_and_exit_code_1(capsys, tmp_path):
    (tmp_path / "text").write_text("hello")
    Ledger(tmp_path / "ledger")
    for name, more, message in [
        ("missing", [], "missing does not exist"),
        ("text", [], "not a privacy ledger"),
        ("ledger", ["--delta", "2"], "delta must be"),
    ]:
        assert main(["ledger", "show", str(tmp_path / name), *more]) == 1
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)
        assert printed.err.startswith("error: ")
        assert message in printed.err
    assert not (tmp_path / "missing").exists()


def forged(path, change):
    """A ledger that somebody has written with another program, digest and all."""
    ledger = Ledger(path, epsilon=10.0)
    ledger.begin_release(ledger.reserve("fit", "document", Gaussian(3.0)))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows = connection.execute(
            "SELECT id, CAST(record AS BLOB), CAST(status AS BLOB) FROM entries "
            "ORDER BY id"
        ).fetchall()
        head, entry = (json.loads(row[1]) for row in rows)
        change(head, entry)
        head, entry = (json.dumps(record).encode() for record in (head, entry))
        content = repr((head, [(1, entry, rows[1][2])])).encode()
        digest = hashlib.sha256(content).hexdigest()
        for number, record, status in (
            (0, head, digest.encode()),
            (1, entry, rows[1][2]),
        ):
            connection.execute(
                "UPDATE entries SET record = CAST(? AS TEXT), "
                "status = CAST(? AS TEXT) WHERE id = ?",
                (record, status, number),
            )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda head, entry: entry.pop("events"), "entry 1 of the ledger"),
        (lambda head, entry: entry.update(events=5), "entry 1 of the ledger"),
        (lambda head, entry: entry.update(extra=5), "entry 1 of the ledger"),
        (lambda head, entry: head[0].__setitem__(0, -5.0), "epsilon of the ledger"),
        (
            lambda head, entry: head[0].__setitem__(0, float("nan")),
            "epsilon of the ledger",
        ),
        (lambda head, entry: head[0].__setitem__(1, 0.9), "delta must be"),
    ],
)
def test_a_forged_ledger_is_one_line_and_exit_code_1(capsys, tmp_path, change, message):
    forged(tmp_path / "ledger", change)
    assert main(["ledger", "show", str(tmp_path / "ledger")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@pytest.mark.skipif(os.name != "posix", reason="no such names of files")
def test_nothing_that_others_have_written_moves_the_cursor(capsys, tmp_path):
    forged(tmp_path / "ledger", lambda head, entry: head.__setitem__(1, ESCAPE))
    assert main(["ledger", "show", str(tmp_path / "ledger")]) == 0
    for suffix in (".dplda", ".csv"):
        (tmp_path / f"a{ESCAPE}{suffix}").write_text("text,id\nhello,1,2\n")
    assert main(["topics", str(tmp_path / f"a{ESCAPE}.dplda")]) == 1
    table = str(tmp_path / f"a{ESCAPE}.csv")
    assert main(["fit", table, "--epsilon=4", "--no-ledger"]) == 1
    assert main(["federation", "show", str(tmp_path / f"{ESCAPE}.json")]) == 1
    said = capsys.readouterr()
    assert "owned" in said.err
    assert not {"\x1b", "\x07"} & {*said.out, *said.err}
