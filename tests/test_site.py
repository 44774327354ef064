"""The site of the documentation: its contents match the index, and it is built."""

import importlib
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import dplda

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "gallery").glob("plot_*.py"))


def public_modules():
    """Modules without an underscore in their names that list what they offer."""
    names = [module.name for module in pkgutil.walk_packages(dplda.__path__, "dplda.")]
    public = [name for name in names if "._" not in name and ".kernels" not in name]
    modules = [dplda, *map(importlib.import_module, public)]
    return {module.__name__: module for module in modules if hasattr(module, "__all__")}


def test_every_page_has_a_place_in_the_contents():
    contents = runpy.run_path(str(DOCS / "conf.py"))["contents"]  # needs no Sphinx
    parts = contents((DOCS / "index.md").read_text("utf-8"))
    placed = [page for pages in parts.values() for page in pages]
    assert len(placed) == len(set(placed))
    pages = {path.name for path in [*DOCS.glob("*.md"), *DOCS.glob("*.rst")]} - {
        "index.md"
    }
    assert pages | {
        "auto_examples/index.rst",
        "../CHANGELOG.md",
        "../README.md",
    } <= set(placed)


def test_the_reference_has_every_public_name():
    listed = {}
    for part in (DOCS / "api.rst").read_text("utf-8").split(".. currentmodule:: ")[1:]:
        names = re.findall(r"^   (\w+)$", part, flags=re.MULTILINE)
        listed.setdefault(part.partition("\n")[0], set()).update(names)
    modules = public_modules()
    public = {
        name: {
            n for n in module.__all__ if n[0] != "_" and f"{name}.{n}" not in modules
        }
        for name, module in modules.items()
    }
    assert listed == {name: names for name, names in public.items() if names}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """Every example runs and draws, every link and name leads somewhere."""
    pytest.importorskip("sphinx_gallery", reason="pip install -e '.[docs]'")
    pytest.importorskip("pydata_sphinx_theme", reason="pip install -e '.[docs]'")
    site, trees = tmp_path / "site", tmp_path / "doctrees"
    command = (
        f"-m sphinx -W --keep-going -q -c docs -d {trees} -b html . {site}".split()
    )
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-5000:]
    assert (site / "searchindex.js").is_file()
    assert "threat_model.html" in (site / "docs" / "index.html").read_text("utf-8")
    assert len(EXAMPLES) >= 10
    for example in EXAMPLES:
        page = (site / "docs" / "auto_examples" / f"{example.stem}.html").read_text(
            "utf-8"
        )
        assert "sphx-glr-single-img" in page or "sphx-glr-multi-img" in page, (
            example.stem
        )
