"""The documentation: links lead somewhere, and its code runs.

The code is that of README, guides and sharp edges.
"""

import io
import logging
import os
import re
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

import dplda
from dplda.datasets import (
    load_wordnet_glosses,
)

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), ROOT / "benchmarks" / "README.md"]
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", flags=re.DOTALL | re.MULTILINE)


def name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, language="python"):
    return [
        code
        for _, of, code in FENCED.findall(page.read_text("utf-8"))
        if of == language
    ]


def prose(page):
    return FENCED.sub("", page.read_text("utf-8"))


def anchors(page):
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*?) *$", prose(page), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not (target.exists() and (not anchor or anchor in anchors(target))):
                broken.append(link)
    assert not broken


def test_pages_that_the_package_names_exist():
    """In docstrings, messages and guarantees."""
    named = {
        (path.name, page)
        for path in [
            *(ROOT / "dplda").rglob("*.py"),
            *(ROOT / "examples").rglob("*.py"),
        ]
        for page in re.findall(r"docs/\w+\.md", path.read_text("utf-8"))
    }
    assert {(path, page) for path, page in named if not (ROOT / page).exists()} == set()


def scripts():
    """The scripts that pages name, outside of mentions of a commit."""
    script = re.compile(r"((?:benchmarks|examples)/[\w/]+\.py)(?!`\s+at\s+commit)")
    return {
        found for page in PAGES for found in script.findall(page.read_text("utf-8"))
    }


def test_scripts_that_print_figures_exist():
    assert {found for found in scripts() if not (ROOT / found).exists()} == set()


@pytest.mark.ci
@pytest.mark.parametrize(
    "script",
    sorted(x for x in scripts() if "argparse" in (ROOT / x).read_text("utf-8")),
)
def test_a_script_that_prints_figures_says_how_it_is_called(script):
    command = [sys.executable, script, "--help"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    called = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True)
    assert called.stdout.startswith(b"usage:"), called.stderr.decode()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_is_python(page):
    for code in blocks(page):
        compile(code, name(page), "exec")


GUIDES = [
    "vocabulary",
    "choosing",
    "persons",
    "public_prior",
    "searches",
    "scaling",
    "reading_topics",
    "report",
    "guarantee",
    "release",
    "federated",
    "operations",
    "accounting",
    "migration",
    "index",
]
# their blocks run where they are
OPTIONAL = ("distributed", "flwr", "mlflow")


def runs_here(code):
    missing = [package for package in OPTIONAL if find_spec(package) is None]
    return (
        "__main__" not in code
        and "flwr" not in code
        and not any(p in code for p in missing)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide_runs_from_top_to_bottom(
    guide, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for logger in (logging.getLogger(), logging.getLogger("dplda")):
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", logger.level)
    names = {"__name__": guide}
    for code in blocks(DOCS / f"{guide}.md"):
        if not code.startswith("# before") and runs_here(code):
            exec(compile(code, guide, "exec"), names)
    logging.captureWarnings(False)


PATH = sorted(page.stem for page in DOCS.glob("path_*.md"))


@pytest.mark.slow
def test_each_block_of_the_path_runs_in_a_new_interpreter(tmp_path):
    """In the order of the pages, in one folder: pasted as it stands."""
    assert len(PATH) == 5
    for page in PATH:
        for code in blocks(DOCS / f"{page}.md"):
            command = [sys.executable, "-W", "error::SyntaxWarning", "-c", code]
            ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert ran.returncode == 0, f"{page}\n{code}\n{ran.stderr}"
    assert {"topics.dplda", "topics.html", "2026-02.dplda"} <= {*os.listdir(tmp_path)}


README = ROOT / "README.md"


def test_the_table_of_the_readme_names_the_public_estimators():
    table = (
        README.read_text("utf-8").partition("## Estimators")[2].partition("\n## ")[0]
    )
    named = re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE)
    public = [getattr(dplda, name) for name in dplda.__all__]
    estimators = {
        c for c in public if isinstance(c, type) and issubclass(c, BaseEstimator)
    }
    assert sorted(named) == sorted(
        c.__name__ for c in estimators - {dplda.ReleasedModel}
    )


def test_the_first_example_of_the_readme_publishes_a_model_of_use(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    exec(blocks(README)[0], {})
    released = dplda.load_release("topics.dplda")
    assert 3.9 < released.privacy_.epsilon <= 4
    assert not released.privacy_.seeded
    glosses = load_wordnet_glosses()
    texts, labels = glosses.data, glosses.target
    weights = released.transform(texts[:2000])
    model = LogisticRegression(max_iter=1000).fit(weights[:1000], labels[:1000])
    accuracy = model.score(weights[1000:], labels[1000:2000])
    # better than one label for all
    assert accuracy > 2 * np.bincount(labels).max() / len(labels)


@pytest.mark.slow
def test_the_examples_of_the_readme_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    names = {"__name__": "__main__"}
    for code in blocks(README):
        if "from distributed" not in code or find_spec("distributed"):
            exec(code, names)
    assert 4 < names["ledger"].epsilon_spent <= names["ledger"].epsilon
    assert all(entry.status == "released" for entry in names["ledger"].entries())
    released = dplda.load_release("topics.dplda")
    assert released.epsilon_ == names["model"].epsilon_


HEAD, *EDGES = (DOCS / "sharp_edges.md").read_text("utf-8").split("\n## ")
PAIR = re.compile(
    r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", flags=re.DOTALL | re.MULTILINE
)
CATEGORY = re.compile(r"^(\w+(?:Warning|Error)): ", flags=re.MULTILINE)


def said(code, names):
    """What a person sees: the output, warnings, and the error that ends the code."""
    output = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(output):
        warnings.simplefilter("always")
        warnings.showwarning = lambda text, category, *_: print(
            f"{category.__name__}: {text}"
        )
        try:
            exec(code, names)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return output.getvalue()


@pytest.mark.slow
def test_every_sharp_edge_warns_or_fails_as_the_page_says(
    tmp_path, monkeypatch, fresh_process
):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    exec(FENCED.search(HEAD)[3], names)
    assert len(EDGES) >= 12
    for edge in EDGES:
        assert PAIR.search(edge), edge
        fresh_process()  # a reader tries one of them
        for code, message in PAIR.findall(edge):
            monkeypatch.setattr("dplda.privacy._charge._budgets", set())
            got = said(code, names)
            assert got.strip(), code
            assert CATEGORY.findall(got) == CATEGORY.findall(message), f"{code}\n{got}"
