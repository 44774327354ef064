"""The documentation: links lead somewhere, and the code of the guides runs."""

import builtins
import importlib.util
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline

import dplda
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses, make_topic_corpus

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), ROOT / "benchmarks" / "README.md"]
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", flags=re.DOTALL | re.MULTILINE)


def name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, language="python"):
    return [code for _, of, code in FENCED.findall(page.read_text("utf-8")) if of == language]


def prose(page):
    """The text of a page without its code."""
    return FENCED.sub("", page.read_text("utf-8"))


def anchors(page):
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*?) *$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
        for path in [*(ROOT / "dplda").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
        for page in re.findall(r"docs/\w+\.md", path.read_text("utf-8"))
    }
    assert {(path, page) for path, page in named if not (ROOT / page).exists()} == set()


def test_scripts_that_print_figures_exist():
    named = {
        script for page in PAGES
        for script in re.findall(r"(?:benchmarks|tests|examples)/[\w/]+\.py", page.read_text("utf-8"))
    }  # fmt: skip
    assert {script for script in named if not (ROOT / script).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_is_python(page):
    for code in blocks(page):
        compile(code, name(page), "exec")


# ---- the guides, run from top to bottom ---------------------------------------------------------

GUIDES = [
    "start", "vocabulary", "choosing", "persons", "public_prior", "searches", "scaling",
    "reading_topics", "guarantee", "release", "federated", "operations", "migration", "index",
]  # fmt: skip
OPTIONAL = ("distributed", "flwr", "pyLDAvis")  # their blocks run where they are installed


def runs_here(code):
    missing = [package for package in OPTIONAL if importlib.util.find_spec(package) is None]
    return "__main__" not in code and "flwr" not in code and not any(p in code for p in missing)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """What a reader has before a page begins: texts, counts, ids, and files of the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    texts, labels = load_wordnet_glosses(return_X_y=True)
    vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(2000))
    words = vectorizer.get_feature_names_out()
    X, X_public = vectorizer.transform(texts[:1500]), vectorizer.transform(texts[1500:2100])
    ids = np.array([f"p{n % 700}" for n in range(1500)])
    counts = make_topic_corpus(600, 30, 3, random_state=0).data
    dplda.datasets.write_shards(counts, "corpus/", rows_per_shard=100)
    Path("words.txt").write_text("\n".join(words), "utf-8")
    first, second = (dplda.SubLDA(5, epsilon=8.0, max_iter=10).fit(X) for _ in range(2))
    dplda.save_release(first, "topics.dplda", vocabulary=words)
    yield {
        "__name__": "page", "np": np, "os": __import__("os"), "dplda": dplda,
        "texts": texts[:1500], "private_texts": texts[:1500], "labels": labels[1500:2100],
        "public_texts": texts[1500:2100], "tokens": [text.split() for text in texts[:600]],
        "X": X, "X_public": X_public, "X_north": X[:700], "X_south": X[700:], "words": words,
        "vectorizer": vectorizer, "ids": ids, "patients": ids, "user_ids": ids,
        "owners": [["ann", "bob"]] * 1500, "batches": [("mon", X[:700]), ("tue", X[700:])],
        "model": first, "first": first, "second": second, "make_pipeline": make_pipeline,
        "LogisticRegression": LogisticRegression, "GroupShuffleSplit": GroupShuffleSplit,
        "SubLDA": dplda.SubLDA, "CountVectorizer": CountVectorizer, "noisy_score": dplda.metrics.noisy_score,
        "PrivateCountVectorizer": dplda.PrivateCountVectorizer,
    }  # fmt: skip
    plt.close("all")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide_runs(guide, reader, monkeypatch):
    monkeypatch.setattr(builtins, "print", lambda *_: None)
    for code in blocks(DOCS / f"{guide}.md"):
        code = code.partition("# now")[2] and "#" + code.partition("# now")[2] or code
        if "docword." in code:  # a file of the reader, which the shards stand for
            code = re.sub(r"^write_shards\(.*$", "", code, flags=re.MULTILINE)
        if runs_here(code):
            exec(compile(code, guide, "exec"), reader)
            if "ledger" in reader:
                assert reader["ledger"].epsilon_spent <= reader["ledger"].epsilon
