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


def test_files_beside_the_package_agree_with_its_metadata():
    citation = fields(read("CITATION.cff"))
    assert citation["version"] == dplda.__version__
    # word lists: another one
    assert citation["license"] == PROJECT["license"].split(" AND ")[0]
    assert citation["abstract"] == f"{PROJECT['description']}."
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"]
    named = {
        c.rpartition(" ")[2]
        for c in PROJECT["classifiers"]
        if re.search(r":: 3\.\d+$", c)
    }
    tested = re.search(r"python: \[(.*)\]", read(".github/workflows/ci.yml"))[1]
    assert set(re.findall(r"[\d.]+", tested)) == named


def test_wheels_are_built_for_the_versions_that_the_metadata_name():
    named = {
        c.rpartition(" ")[2]
        for c in PROJECT["classifiers"]
        if re.search(r":: 3\.\d+$", c)
    }
    built = METADATA["tool"]["cibuildwheel"]["build"].split()
    free_threaded = {"cp314t-*", "cp315t-*"}
    assert {
        f"cp{version.replace('.', '')}-*" for version in named
    } | free_threaded == set(built)
    for test in re.findall(
        r"\{project\}/(\S+)", METADATA["tool"]["cibuildwheel"]["test-command"]
    ):
        assert (ROOT / test).exists()


def test_workflows_name_files_and_lanes_that_exist():
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = workflow.read_text("utf-8")
        for script in re.findall(r"(?:scripts|tests/\w+|\.ci)/\w+(?:\.py)?", text):
            assert (ROOT / script).exists(), f"{workflow.name}: {script}"
        assert "timeout-minutes" in text or workflow.name == "wheels.yml"


def test_data_of_others_are_in_the_distributions_with_their_licenses():
    folder = ROOT / "dplda" / "datasets"
    data = {
        p
        for p in folder.rglob("*")
        if p.is_file() and p.suffix not in (".py", ".pyi", ".pyc")
    }
    patterns = METADATA["tool"]["setuptools"]["package-data"]["dplda.datasets"]
    assert data == {path for pattern in patterns for path in folder.glob(pattern)}
    licenses = {f"dplda/datasets/{path.parent.name}/LICENSE" for path in data}
    assert licenses | {"LICENSE"} == set(PROJECT["license-files"])
    assert PROJECT["license"].count(" AND ") == len(licenses)
