"""The main job by what it prints, and what the README promises."""

import json
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import dplda
from dplda.__main__ import main
from dplda.datasets import load_wordnet_glosses
from dplda.privacy import Gaussian, Ledger, SeededNoiseWarning

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


# the main job


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Standard output, standard error and picture of a short run in a process of its own."""
    picture = tmp_path_factory.mktemp("main") / "topics.png"
    run = subprocess.run(
        [
            sys.executable, "-m", "dplda",
            "--components", "6", "--max-iter", "8", "--output", str(picture),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout, run.stderr, picture


def number(pattern, text):
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in the output"
    return float(found[1])


def one_line(text):
    return " ".join(text.split())


def topic_rows(text):
    return re.findall(r"^ +(\d+) +([\d.]+)%[ ?] ([a-z ]+)$", text, flags=re.MULTILINE)


def test_it_tells_what_the_corpus_is(job):
    text = one_line(job[0])
    n_docs = number(r"WordNet 3\.0, version 1 of dplda: (\d+) documents", text)
    n_train = number(r"To train on: (\d+) documents", text)
    n_held_out = number(r"every tenth, (\d+) documents", text)
    assert n_held_out == n_docs // 10
    assert n_train + n_held_out == n_docs
    assert number(r"words, (\d+) times in the texts", text) > 1e5


def test_it_says_that_the_vocabulary_is_a_part_of_the_budget(job):
    text = one_line(job[0])
    assert "chosen from the texts with a part of the privacy budget" in text
    assert "learns from private texts shows that someone used each of its words" in text


def test_it_says_that_only_public_documents_may_be_scored(job):
    text = one_line(job[0])
    assert "may be scored because these texts are public" in text
    assert "perplexity of private documents is a release" in text


def test_it_prints_each_topic_with_ten_words_of_the_vocabulary(job):
    rows = topic_rows(job[0])
    assert sorted(int(k) for k, _, _ in rows) == list(range(6))  # the best first
    assert sum(float(share) for _, share, _ in rows) == pytest.approx(100, abs=0.4)
    text = " ".join(load_wordnet_glosses().data).lower()
    for _, _, words in rows:
        assert len(set(words.split())) == 10
        assert all(word in text for word in words.split())


def test_it_prints_the_guarantee(job):
    text = job[0]
    assert 3.9 < number(r"(?m)^epsilon +([\d.]+)$", text) <= 4
    assert number(r"(?m)^delta +([\d.e-]+)$", text) == 1e-6
    assert re.search(r"(?m)^unit +document$", text)
    assert "protects every single document" in one_line(text)
    assert "secret key that was not kept" in one_line(text)


def test_perplexity_lies_between_the_unigram_and_the_non_private_model(job):
    unigram = number(r"unigram model, not private +([\d.]+)", job[0])
    private = number(r"SubLDA, epsilon [\d.]+ +([\d.]+)", job[0])
    exact = number(r"GibbsLDA, not private +([\d.]+)", job[0])
    assert 50 < exact < private < unigram < 2000


def test_it_writes_a_picture(job):
    pytest.importorskip("matplotlib")
    assert f"Picture: {job[2]}" in job[0]
    assert job[2].read_bytes().startswith(b"\x89PNG")


def test_noise_is_secret_unless_a_seed_is_given(job):
    assert "Warning" not in job[1]


@pytest.fixture
def without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)


SMALL = ("--components", "3", "--max-iter", "2", "--documents", "300")


def run_seeded(capsys, *options):
    with pytest.warns(SeededNoiseWarning, match="knows the seed"):
        assert main([*SMALL, *options]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("without_matplotlib")
def test_a_seed_gives_the_same_topics_and_says_that_it_voids_privacy(capsys, tmp_path):
    picture = tmp_path / "topics.png"
    first = run_seeded(capsys, "--seed", "1", "--output", str(picture))
    again = run_seeded(capsys, "--seed", "1", "--output", str(picture))
    assert len(topic_rows(first)) == 3
    assert topic_rows(first) == topic_rows(again)
    assert "drawn from a given seed" in one_line(first)
    assert "pip install 'dplda[plot]'" in one_line(first)
    assert number(r"To train on: (\d+) documents", one_line(first)) == 270
    assert not picture.exists()


@pytest.mark.usefixtures("without_matplotlib")
def test_infinite_epsilon_is_called_no_privacy(capsys):
    assert main(["demo", *SMALL, "--epsilon", "inf", "--seed", "1"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"(?m)^epsilon +inf$", text)
    assert "no privacy guarantee" in one_line(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "0"], "epsilon must be a number in"),
        (["--delta", "1"], "delta must be a number in"),
        (["--components", "0"], "'n_components' parameter"),
        (["--max-iter", "0"], "'max_iter' parameter"),
    ],
)
def test_an_invalid_option_ends_in_one_sentence(capsys, options, message):
    with pytest.raises(SystemExit, match="2"):
        main([*SMALL, *options])
    assert re.search(f"dplda demo: error: .*{message}.*\n$", capsys.readouterr().err)


@pytest.mark.parametrize("argument", [["--epsilon", "much"], ["--documents", "9"], ["dome"]])
def test_invalid_usage_is_noticed_at_once(capsys, argument):
    with pytest.raises(SystemExit, match="2"):
        main(argument)
    printed = capsys.readouterr()
    assert "error: " in printed.err
    assert printed.out == ""


def test_a_missing_folder_is_noticed_at_once(capsys, tmp_path):
    with pytest.raises(SystemExit, match="2"):
        main(["--output", str(tmp_path / "missing" / "topics.png")])
    printed = capsys.readouterr()
    assert "--output must be in a folder that exists" in printed.err
    assert printed.out == ""


# the command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            [],
            [
                "demo",
                "fit",
                "topics",
                "transform",
                "ledger",
                "federation",
                "--version",
                "Without a command",
            ],
        ),
        (["demo"], ["--epsilon", "--delta", "--components", "--output", "--documents", "--seed"]),
        (["fit"], ["--user-column", "--epsilon", "--out", "--ledger", "--language", "texts"]),
        (["topics"], ["--picture", "model"]),
        (["transform"], ["--out", "--id-column", "model", "texts"]),
        (["ledger"], ["show"]),
        (["ledger", "show"], ["--delta", "--json", "file"]),
        (["federation"], ["coordinator", "party"]),
        (["federation", "coordinator"], ["--vocabulary", "--rounds", "--certificate", "--party"]),
        (["federation", "party"], ["--vocabulary", "--name", "--ledger", "--coordinator"]),
    ],
    ids=" ".join,
)
def test_every_command_has_a_help(capsys, arguments, words):
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(" ".join(["usage: dplda", *arguments]))
    assert [word for word in words if word not in text] == []


def test_the_version_is_said_in_one_place(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.strip() == dplda.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "dplda._version.__version__"
    }
    assert project["project"]["scripts"] == {"dplda": "dplda.__main__:main"}


@pytest.mark.parametrize("arguments", [["demo", "--help"], ["ledger", "show", "--help"]])
def test_a_command_loads_no_engine_of_a_federation(arguments):
    code = (
        "import sys, dplda.__main__\n"
        f"try: dplda.__main__.main({arguments})\n"
        "finally: print(sorted({'flwr', 'dplda.federated.flower'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (run.returncode, run.stdout.splitlines()[-1]) == (0, "[]"), run.stderr


def test_a_ledger_is_shown(capsys, tmp_path):
    path = str(tmp_path / "privacy.sqlite")
    ledger = Ledger(path, epsilon=3.0, data="notes 2024")
    ledger.reserve("SubLDA", "document", [Gaussian(2.0)])
    assert main(["ledger", "show", path]) == 0
    text = capsys.readouterr().out
    assert re.search(r"SubLDA +document +reserved", text)
    assert "budget     epsilon 3 at delta 1e-06" in text
    assert "data       notes 2024" in text
    assert main(["ledger", "show", path, "--json", "--delta", "1e-8"]) == 0
    assert json.loads(capsys.readouterr().out)["delta"] == 1e-8


def test_a_command_warns_without_a_line_of_code(monkeypatch):
    seen = []

    def show(options):
        seen.append(warnings.formatwarning("why", UserWarning, "a.py", 1))

    monkeypatch.setattr("dplda.cli._ledger._show", show)
    usual = warnings.formatwarning
    assert main(["ledger", "show", "x"]) == 0
    assert seen == ["UserWarning: why\n"]
    assert warnings.formatwarning is usual


def test_a_command_whose_reader_has_ended_says_nothing(monkeypatch, capsys):
    def show(options):
        raise BrokenPipeError

    closed = []
    monkeypatch.setattr("dplda.cli._ledger._show", show)
    monkeypatch.setattr("dplda.__main__._close_output", lambda: closed.append(True))
    assert main(["ledger", "show", "x"]) == 1
    assert (closed, capsys.readouterr().err) == ([True], "")


def test_a_file_that_is_no_ledger_is_one_line_and_exit_code_1(capsys, tmp_path):
    (tmp_path / "text").write_text("hello")
    for name, message in [("missing", "there is no file"), ("text", "not a privacy ledger")]:
        assert main(["ledger", "show", str(tmp_path / name)]) == 1
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)
        assert printed.err.startswith("error: ")
        assert message in printed.err
    assert not (tmp_path / "missing").exists()
    with pytest.raises(SystemExit, match="2"):
        main(["ledger", "show", str(tmp_path / "text"), "--delta", "2"])


def test_a_picture_of_another_kind_is_refused_before_the_fit(capsys):
    pytest.importorskip("matplotlib")
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--output", "topics.foo"])
    assert re.search("error: --output: a picture must end in .*png", capsys.readouterr().err)
