"""The site of the documentation: its contents are those of the index, and it is built."""

import ast
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "gallery").glob("*.py"))
MODULES = (
    "dplda", "dplda.audit", "dplda.datasets", "dplda.displays", "dplda.federated",
    "dplda.federated.flower", "dplda.metrics", "dplda.privacy", "dplda.privacy.mechanisms",
    "dplda.published", "dplda.topics",
)  # fmt: skip


@pytest.fixture(scope="module")
def conf():
    """The settings of Sphinx, which need no Sphinx to be read."""
    return runpy.run_path(str(DOCS / "conf.py"))


def test_every_page_has_a_place_in_the_contents(conf):
    parts = conf["contents"]((DOCS / "index.md").read_text("utf-8"))
    placed = [page for pages in parts.values() for page in pages]
    assert len(placed) == len(set(placed))
    pages = {path.name for path in [*DOCS.glob("*.md"), *DOCS.glob("*.rst")]} - {"index.md"}
    pages |= {"auto_examples/index.rst", "../CHANGELOG.md", "../CONTRIBUTING.md", "../README.md"}
    assert pages <= set(placed)


def test_the_bar_leads_to_pages(conf):
    parts = conf["contents"]((DOCS / "index.md").read_text("utf-8"))
    placed = {page.rpartition(".")[0] for pages in parts.values() for page in pages}
    bar = (DOCS / "_templates" / "parts.html").read_text("utf-8")
    targets = re.findall(r'\("([\w/]+)", "', bar)
    assert len(targets) >= 5
    assert {target.removeprefix("docs/") for target in targets} <= placed | {"CHANGELOG"}


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module):
    page = (DOCS / "api.rst").read_text("utf-8")
    listed = set()
    for part in page.split(".. currentmodule:: ")[1:]:
        if part.partition("\n")[0] == module:
            listed |= set(re.findall(r"^   (\w+)$", part, flags=re.MULTILINE))
    public = importlib.import_module(module).__all__
    rooms = {room.rpartition(".")[2] for room in MODULES} if module == "dplda" else set()
    assert listed == {name for name in public if not name.startswith("_")} - rooms


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_a_title_and_a_picture(example):
    code = example.read_text("utf-8")
    tree = ast.parse(code)
    title, underline = ast.get_docstring(tree).splitlines()[:2]
    assert underline == "=" * len(title)
    assert re.search(r"Display|\.plot\(|subplots", code), "no picture"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """Every example runs, every link and name leads somewhere."""
    pytest.importorskip("sphinx_gallery", reason="pip install -e '.[docs]'")
    pytest.importorskip("pydata_sphinx_theme", reason="pip install -e '.[docs]'")
    site, trees = tmp_path / "site", tmp_path / "doctrees"
    command = f"-m sphinx -W --keep-going -q -c docs -d {trees} -b html . {site}".split()
    result = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-5000:]
    index = (site / "docs" / "index.html").read_text("utf-8")
    assert "threat_model.html" in index
    assert (site / "searchindex.js").is_file()
    for example in EXAMPLES:
        page = (site / "docs" / "auto_examples" / f"{example.stem}.html").read_text("utf-8")
        assert "sphx-glr-single-img" in page or "sphx-glr-multi-img" in page, example.stem
