"""The documentation: links lead somewhere, lines have at most 100 characters, code is Python."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", flags=re.DOTALL | re.MULTILINE)


def prose(page):
    """The text of a page without its code."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*?) *$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name(page):
    return page.relative_to(ROOT).as_posix()


def test_pages_are_found():
    assert {"README.md", "CONTRIBUTING.md", "docs/index.md"} <= {name(page) for page in PAGES}


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            known = target.exists() and (not anchor or anchor in anchors(target))
            if not known:
                broken.append(f"{name(page)}: {link}")
    assert not broken, "\n".join(broken)


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {page.name for page in ROOT.glob("docs/*.md")} - {"index.md"}
    missing = sorted(page for page in pages if f"({page})" not in index)
    assert not missing, f"docs/index.md names no {', '.join(missing)}"


def test_scripts_that_print_figures_exist():
    missing = [
        f"{name(page)}: {script}"
        for page in PAGES
        for script, commit in re.findall(
            r"(benchmarks/[\w/]+\.py)(`\s+at\s+commit)?", page.read_text(encoding="utf-8")
        )
        if not commit and not (ROOT / script).exists()
    ]
    assert not missing, "\n".join(missing)


def test_lines_are_short():
    long = [
        f"{name(page)}, line {number}: {len(line)} characters"
        for page in PAGES
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > 100 and not line.lstrip().startswith("|")
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_is_python(page):
    for _, language, code in FENCED.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            compile(code, name(page), "exec")
