"""The benchmarks of speed: what is missing is said, times are read as stated.

Times are read from curves.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import opponents
import pytest
from measuring import whole_corpus
from time_to_quality import seconds_to

SCRIPTS = Path(__file__).parents[1] / "benchmarks" / "peers"


@pytest.mark.parametrize("peer", opponents.OPPONENTS)
def test_a_missing_peer_says_what_to_install(peer, monkeypatch):
    def refuse(name):
        raise ImportError

    monkeypatch.setattr(opponents.importlib, "import_module", refuse)
    with pytest.raises(
        opponents.NotInstalled, match=f"not installed: pip install {peer.package}"
    ):
        peer(whole_corpus("tiny"), 4, seed=0, threads=1)


def test_time_to_a_perplexity_is_read_between_two_points():
    curve = [(1, 1.0, 1600.0), (2, 4.0, 400.0), (3, 9.0, 500.0), (4, 16.0, 100.0)]
    # the first point is better: an upper bound
    assert seconds_to(2000, curve) == (1.0, "<")
    assert seconds_to(800, curve) == (pytest.approx(2.0), "")  # half way in logarithms
    assert seconds_to(400, curve) == (pytest.approx(4.0), "")
    # the worse point between is left out
    assert seconds_to(200, curve) == (pytest.approx(8.0), "")
    assert seconds_to(99, curve) == (np.inf, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "row"),
    [
        (
            "sweeps.py",
            "--seeds 1 --repeats 2 --sets portable",
            "| SubLDA round, portable |",
        ),
        ("time_to_quality.py", "--seeds 1", "| SubLDA(epsilon=inf) | 3: "),
        ("fits.py", "--repeats 1", "| SubLDA | "),
        ("transform.py", "--repeats 1", "| tiny 4 | scikit-learn float64 |"),
        ("threads.py", "--repeats 2 --words 30 all", "| HDPLDA | "),
        ("texts.py", "--repeats 1 counts", "| tiny, 0 MB | dplda"),
        ("texts.py", "--repeats 1 topics", "| tiny | 4 | 1 | "),
    ],
)
def test_each_script_prints_its_table(script, options, row):
    command = [
        sys.executable,
        str(SCRIPTS / script),
        "--corpora",
        "tiny",
        "--components",
        "4",
    ]
    printed = subprocess.run(
        [*command, *options.split()], check=True, capture_output=True, text=True
    )
    assert row in printed.stdout
