"""Progress of long jobs: each step, the time left, and nothing private."""

import contextlib
import os
import re
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from test_from_files import SMALL, write_table

from dplda import PrivateTopicModel, SubLDA, load_release
from dplda.__main__ import main
from dplda.datasets import load_wordnet_glosses, write_shards
from dplda.privacy import PrivacyLeakWarning
from dplda.text._text_files import stream_texts

pty = pytest.importorskip("pty")  # Windows has none
N_TEXTS = 317
STEPS = ["reading texts", "choosing words", "counting words", "round"]


@pytest.fixture(scope="module")
def texts():
    return load_wordnet_glosses().data[:N_TEXTS]


@contextlib.contextmanager
def terminal():
    """The standard error is a terminal of 60 columns. Yields what shows its content."""
    ours, theirs = pty.openpty()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(theirs, "w") as stderr:
        patch.setattr("sys.stderr", stderr)
        patch.setenv("COLUMNS", "60")

        def shown():
            stderr.write("END")
            stderr.flush()
            seen = b""
            while not seen.endswith(b"END"):
                seen += os.read(ours, 1 << 16)
            return seen[:-3].decode().replace("\r\n", "\n")

        yield shown
    os.close(ours)


class Slow:
    """An iterator that says how many texts are left, and takes its time."""

    def __init__(self, texts, is_known=True):
        self.left = list(texts)
        self.is_known = is_known

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        if len(self.left) in (280, 30):
            time.sleep(0.3)
        return self.left.pop()

    def __length_hint__(self):
        return len(self.left) if self.is_known else 0


def model(**options):
    topics = SubLDA(max_iter=8)
    return PrivateTopicModel(
        3, epsilon=4.0, max_features=60, model=topics, n_jobs=1, **options
    )


def fit_files(folder, texts, *options):
    table = write_table(folder / "notes.csv", texts, [*map(str, range(len(texts)))])
    out = str(folder / "m")
    return main(["fit", str(table), "--epsilon", "4", "--out", out, *SMALL, *options])


def test_a_terminal_has_one_line_for_each_step_of_a_command(tmp_path, texts):
    with terminal() as shown:
        assert fit_files(tmp_path, texts, "--yes") == 0
        lines = [line for line in shown().split("\n") if line.startswith("\r[")]
    assert len(lines) == len(STEPS)
    for line, step in zip(lines, STEPS):
        states = line.split("\r")[1:]
        assert {len(state) for state in states} == {59}  # each covers the one before
        assert all(f"] {step}" in state for state in states)
        assert re.search(r", 100%| (\d+) of \1 ", states[-1])


@pytest.mark.parametrize("asked", [[], ["--verbose"]])
def test_a_log_has_progress_only_if_it_is_asked(tmp_path, texts, capsys, asked):
    assert fit_files(tmp_path, texts, *asked) == 0
    said = capsys.readouterr().err
    steps = [step for step in STEPS if f"] {step}" in said]
    assert steps == (STEPS if asked else [])
    assert "\r" not in said


def test_counts_of_groups_show_how_far_they_are(tmp_path, texts):
    assert fit_files(tmp_path, texts) == 0
    (tmp_path / "levels").write_text("0\n1\n")
    options = ["--by", "n", "--levels", str(tmp_path / "levels")]
    options += ["--epsilon", "1", "--out", str(tmp_path / "c"), "--no-ledger"]
    with terminal() as shown:
        table = str(tmp_path / "notes.csv")
        with pytest.warns(PrivacyLeakWarning):
            assert main(["counts", str(tmp_path / "m"), table, *options]) == 0
        assert "[dplda counts] reading texts, 100%" in shown()


def test_a_transform_shows_how_far_it_is(tmp_path, texts, capsys, monkeypatch):
    monkeypatch.setattr("dplda.core._splitter.BLOCK_CHARACTERS", 5000)
    assert fit_files(tmp_path, texts) == 0
    job = ["transform", str(tmp_path / "m"), str(tmp_path / "notes.csv")]
    expected = load_release(tmp_path / "m").transform(texts)
    capsys.readouterr()
    assert main([*job, "--out", str(tmp_path / "a.npy")]) == 0
    assert capsys.readouterr().err == ""
    assert main([*job, "--out", str(tmp_path / "b.npy"), "--verbose"]) == 0
    said = capsys.readouterr().err
    with terminal() as shown:
        assert main([*job, "--out", str(tmp_path / "c.npy")]) == 0
        said += shown()
    assert said.count("[dplda transform] reading and transforming texts, 100%") == 2
    assert str(N_TEXTS) not in said
    for name in "abc":
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), expected)


@pytest.mark.parametrize("is_known", [True, False])
def test_the_time_left_is_said_where_somebody_knows_the_length(texts, capsys, is_known):
    model(verbose=1).fit(Slow(texts, is_known))
    said = capsys.readouterr().err
    left = re.search(r"reading texts, 10%, about \d+ s left\n", said)
    assert (left is not None) == is_known
    assert "reading texts, 100%\n" in said
    assert said.count("reading texts") <= 12  # a line for each tenth


def test_lines_do_not_tell_the_number_of_texts(texts):
    with terminal() as shown:
        model(verbose=1).fit(Slow(texts))
        said = shown()
    assert "reading texts" in said
    assert str(N_TEXTS) not in said


def test_a_log_does_not_tell_the_number_of_texts_by_its_shares(
    texts, capsys, monkeypatch
):
    """Neither of texts that are few, nor of shards, which have a size."""
    said = []
    for n_texts, per_shard in ((60, 60), (61, 20)):
        in_shards = partial(write_shards, rows_per_shard=per_shard)
        monkeypatch.setattr("dplda.text._counted.IN_MEMORY", 100)
        monkeypatch.setattr("dplda.text._counted.write_shards", in_shards)
        model(verbose=1).fit_and_count(
            texts[:n_texts],
            by={"ward": ["a"] * n_texts},
            levels={"ward": ["a"]},
            counts_epsilon=1.0,
        )
        lines = capsys.readouterr().err.splitlines()
        said.append([line for line in lines if "round" not in line])
    assert said[0] == said[1]
    assert "[PrivateTopicModel] counting groups, 100%" in said[0]


def test_a_terminal_shows_how_many_of_the_shards_are_done(texts, monkeypatch):
    """A person there may read the texts, and their number; a log may be kept longer."""
    in_shards = partial(write_shards, rows_per_shard=30)
    monkeypatch.setattr("dplda.text._counted.IN_MEMORY", 100)
    monkeypatch.setattr("dplda.text._counted.write_shards", in_shards)
    monkeypatch.setattr("dplda.leaf._messages.BETWEEN", 0.0)
    with terminal() as shown:
        model(verbose=1).fit_and_count(
            texts[:90],
            by={"ward": ["a"] * 90},
            levels={"ward": ["a"]},
            counts_epsilon=1.0,
        )
        said = shown()
    for step in ("choosing words", "counting words", "counting groups"):
        assert f"] {step}, 33%" in said, step
        assert f"] {step}, 67%" in said, step


def test_a_log_does_not_tell_how_many_texts_there_are_if_they_are_few(
    texts, capsys, monkeypatch
):
    """Nor if they are read slowly: every text is due for a line."""
    for between in (100.0, 0.0):
        monkeypatch.setattr("dplda.leaf._messages.BETWEEN", between)
        said = set()
        for n_texts in (2, 3, 9):
            model(verbose=1).fit(texts[:n_texts])
            lines = capsys.readouterr().err.splitlines()
            said.add("; ".join(line for line in lines if "round" not in line))
        assert len(said) == 1
        assert "reading texts; " in said.pop()


def test_a_log_of_few_rounds_names_each(texts, capsys, monkeypatch):
    monkeypatch.setattr("dplda.leaf._messages.BETWEEN", 0.0)
    model(verbose=1).fit(texts)
    said = re.findall(r"round (\d+) of 8", capsys.readouterr().err)
    assert said == [*"12345678"]


def test_an_error_stands_in_a_line_of_its_own(texts):
    def failing():
        yield from texts
        raise KeyboardInterrupt

    with terminal() as shown:
        with pytest.raises(KeyboardInterrupt):
            model(verbose=1).fit(failing())
        said = shown()
    assert "reading texts" in said
    assert said.endswith("\n")


def test_without_verbose_a_terminal_shows_nothing(texts):
    with terminal() as shown:
        model().fit(texts)
        assert "[" not in shown()


def test_a_file_says_how_much_of_it_is_left(tmp_path, texts):
    """By its bytes, as stored: the estimate is right within a tenth."""
    for name in ("a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz", "a.parquet"):
        table = write_table(Path(tmp_path, name), 4 * texts, ["u"] * (4 * N_TEXTS))
        stream = stream_texts(table)
        for _ in range(2 * N_TEXTS):
            next(stream.rows)
        assert stream.share_read() == pytest.approx(0.5, abs=0.1), name
        assert sum(1 for _ in stream.rows) == 2 * N_TEXTS
        assert stream.share_read() == 1.0
