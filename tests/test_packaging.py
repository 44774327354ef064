"""What the project says of itself in several files is the same in all."""

import re
import tomllib
from pathlib import Path

import dplda

ROOT = Path(__file__).parents[1]
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = METADATA["project"]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def fields(text):
    """Top-level fields of a YAML file that are plain text."""
    return dict(re.findall(r"^([\w-]+): *(\S.*?) *$", text, flags=re.MULTILINE))


def test_all_files_name_one_version():
    version = dplda.__version__
    assert PROJECT.get("version", version) == version
    assert fields(read("CITATION.cff"))["version"] == version


def test_the_changelog_knows_the_version():
    text = read("CHANGELOG.md")
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    released = [re.fullmatch(r"(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)", h) for h in headings[1:]]
    assert all(released), "a released version is named as in '## 0.1.0 (2026-12-24)'"
    if released:
        assert released[0][1] == dplda.__version__
    else:  # before the first release
        assert f"{dplda.__version__} will contain" in text


def test_citation_and_metadata_agree():
    citation = fields(read("CITATION.cff"))
    assert citation["license"] == PROJECT["license"].split(" AND ")[0]  # word lists: another one
    assert citation["abstract"] == f"{PROJECT['description']}."
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"]


def test_the_workflows_test_the_versions_that_the_metadata_name():
    named = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    tested = re.search(r"python: \[(.*)\]", read(".github/workflows/ci.yml"))[1]
    assert set(re.findall(r"[\d.]+", tested)) == named
    assert min(named, key=lambda v: int(v.split(".")[1])) in PROJECT["requires-python"]


def test_data_of_others_are_in_the_distributions_with_their_licenses():
    folder = ROOT / "dplda" / "datasets"
    data = {p for p in folder.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    patterns = METADATA["tool"]["setuptools"]["package-data"]["dplda.datasets"]
    assert data == {path for pattern in patterns for path in folder.glob(pattern)}
    licenses = {f"dplda/datasets/{path.parent.name}/LICENSE" for path in data}
    assert licenses | {"LICENSE"} == set(PROJECT["license-files"])
    assert PROJECT["license"].count(" AND ") == len(licenses)
