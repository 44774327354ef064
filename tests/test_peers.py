"""The benchmarks of speed: what is missing is said, foreign files are read as documented."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import opponents
import pytest
from measuring import halves, whole_corpus, write_tables
from numpy.testing import assert_allclose, assert_array_equal
from time_to_quality import advantage, seconds_to

SCRIPTS = Path(__file__).parents[1] / "benchmarks" / "peers"

FORMAT = """#!{python}
import sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
lines = open(options["-input"]).read().splitlines()
words = sorted({{word for line in lines for word in line.split()[2:]}}, reverse=True)
open(options["-prefix"] + ".vocab", "w").write("\\n".join(words) + "\\n")
"""
TRAIN = """#!{python}
import sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
words = open(options["-prefix"] + ".vocab").read().split()
rows = [f"1\\t{{i % int(options['-k'])}}:{{int(word[1:]) + 1}} " for i, word in enumerate(words)]
head = f"{{len(words)}} {{options['-k']}} 0.1 {{options['-beta']}}"
open(options["-prefix"] + ".model", "w").write("\\n".join([head, *rows]) + "\\n")
"""


@pytest.mark.parametrize("peer", opponents.OPPONENTS[:-1])
def test_a_missing_peer_says_what_to_install(peer, monkeypatch):
    def refuse(name):
        raise ImportError

    monkeypatch.setattr(opponents.importlib, "import_module", refuse)
    with pytest.raises(opponents.NotInstalled, match=f"not installed: pip install {peer.package}"):
        peer(whole_corpus("tiny"), 4, seed=0, threads=1)


def test_warplda_that_is_not_built_says_so(tmp_path):
    with pytest.raises(opponents.NotInstalled, match="not built: see --warplda"):
        opponents.WarpLda(whole_corpus("tiny"), 4, seed=0, threads=1)
    with pytest.raises(SystemExit, match="no programs `format` and `warplda`"):
        opponents.find_warplda(str(tmp_path))


def test_the_programs_of_warplda_get_documents_and_their_model_is_read(tmp_path, monkeypatch):
    """Two stand-ins of its programs, which count word w as w + 1 in one topic."""
    for name, text in (("format", FORMAT), ("warplda", TRAIN)):
        (tmp_path / name).write_text(text.format(python=sys.executable), encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(opponents.WarpLda, "folder", opponents.find_warplda(str(tmp_path)))
    peer = opponents.WarpLda(np.array([[0, 2, 1, 0], [3, 0, 0, 0]]), 2, seed=0, threads=1)
    peer.train(3)
    # the vocabulary is w2 w1 w0; word 3 occurs nowhere
    expected = [[1.01, 0.01, 3.01, 0.01], [0.01, 2.01, 0.01, 0.01]]
    assert_allclose(peer.components(), expected)
    peer.close()


def test_a_model_of_warplda_with_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match="must come from one run"):
        opponents.read_warplda_model("3 2 0.1 0.01\n0\n0\n0\n", [0, 1], 5)


def test_documents_are_their_words_as_often_as_they_occur():
    X = opponents.sp.csr_matrix([[0, 2, 1], [0, 0, 0], [1, 0, 0]])
    assert [list(words) for words in opponents.documents(X)] == [[1, 1, 2], [], [0]]


def test_time_to_a_perplexity_is_read_between_two_points():
    curve = [(1, 1.0, 1600.0), (2, 4.0, 400.0), (3, 9.0, 500.0), (4, 16.0, 100.0)]
    assert seconds_to(2000, curve) == (1.0, "<")  # the first point is better: an upper bound
    assert seconds_to(800, curve) == (pytest.approx(2.0), "")  # half way in logarithms
    assert seconds_to(400, curve) == (pytest.approx(4.0), "")
    assert seconds_to(200, curve) == (pytest.approx(8.0), "")  # the worse point between is left out
    assert seconds_to(99, curve) == (np.inf, "")


def test_time_ratios_are_those_at_the_level_of_the_reference():
    curve, reference = [(1, 1.0, 1600.0), (2, 4.0, 400.0)], [(1, 6.0, 800.0), (2, 9.0, 300.0)]
    assert advantage(lambda points: points[0][2], [curve], [reference]) == "3.00"
    assert advantage(lambda points: points[1][2], [curve], [reference]) == "not reached"


def test_tables_replace_the_older_ones_on_a_page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("a\n\n<!-- begin x -->\nold\n<!-- end x -->\n\nb\n", encoding="utf-8")
    write_tables(str(path), "x", "new")
    write_tables(str(path), "y", "other")
    assert path.read_text(encoding="utf-8") == (
        "a\n\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\n\nb\n"
        "\n<!-- begin y -->\n\nother\n\n<!-- end y -->\n"
    )


def run(script, *options):
    command = [sys.executable, str(SCRIPTS / script), "--corpora", "tiny", "--components", "4"]
    return subprocess.run([*command, *options], check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_sweeps_has_a_row_for_every_contestant(tmp_path):
    path = tmp_path / "table.md"
    printed = run(
        "sweeps.py", "--seeds", "1", "--repeats", "2", "--sets", "portable", "--markdown", path
    )
    text = path.read_text(encoding="utf-8")
    assert " ".join(printed.split()) in " ".join(text.split())
    names = ["GibbsLDA sweep", "HDPLDA round", "SubLDA round", "PrivateSVILDA round"]
    for name in [f"{name}, portable" for name in names] + ["scikit-learn batch", "WarpLDA"]:
        assert f"| {name} |" in text
    for peer in opponents.OPPONENTS:
        line = next(line for line in text.splitlines() if line.startswith(f"| {peer.name} |"))
        module = opponents.MODULES.get(peer.package, peer.package)
        installed = peer.package != "WarpLDA" and importlib.util.find_spec(module.split(".")[0])
        assert ("not " in line) == (not installed)


@pytest.mark.slow
def test_time_to_quality_and_transform_print_tables():
    quality = run("time_to_quality.py", "--seeds", "1")
    assert "| SubLDA(epsilon=inf) | 3: " in quality
    assert "| WarpLDA | not built: see --warplda |" in quality
    assert "| tiny 4 | scikit-learn float64 |" in run("transform.py", "--repeats", "1")


@pytest.mark.slow
def test_threads_has_a_row_for_each_estimator_and_the_reference():
    printed = run("threads.py", "--repeats", "2", "--words", "30", "all")
    for row in ("SubLDA", "PrivateSVILDA", "HDPLDA", "GibbsLDA", "transform", "tomotopy"):
        assert printed.count(f"| {row} | ") == 2


def test_a_corpus_is_split_in_the_same_way_each_time():
    X = whole_corpus("tiny")
    train, held = halves(X)
    assert (train.shape[0], held.shape[0]) == (108, 12)
    assert_array_equal(halves(X)[0].toarray(), train.toarray())
    assert train.sum() + held.sum() == X.sum()
