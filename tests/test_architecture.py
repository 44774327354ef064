"""Who may import whom, and where noise may be drawn: the rules that an audit rests on."""

import ast
import re
from pathlib import Path

import pytest

import dplda

ROOT = Path(dplda.__file__).parent
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")
}
TREES = {path: ast.parse(source) for path, source in SOURCES.items()}
NOISE = {"add_gaussian", "add_laplace", "find_survivors"}
MECHANISMS = {"privacy/_mechanisms.py", "privacy/_local_mechanisms.py"}
ALGORITHMS = {path for path in SOURCES if re.fullmatch(r"(central|local)/_\w*lda\.py", path)}


def imports(path):
    """Full names of all that a module imports, wherever in the module it does so."""
    package = ["dplda", *Path(path).parts[:-1]]
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def names(path):
    """All dotted names that a module's code mentions."""
    nodes = ast.walk(TREES[path])
    return {ast.unparse(node) for node in nodes if isinstance(node, (ast.Attribute, ast.Name))}


def below(*folders):
    return sorted(path for path in SOURCES if path.startswith(folders))


def is_in(name, modules):
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def test_the_rules_see_the_package():
    assert {
        f"central/_{name}.py" for name in ("gibbslda", "hdplda", "sublda", "svilda")
    } <= ALGORITHMS
    drawn_by = {path for path in SOURCES if any(name in NOISE for name in names(path))}
    assert drawn_by == MECHANISMS
    assert "os.urandom" in names("privacy/_streams.py")
    assert "dplda.datasets._uci.load_uci_bow" in imports("datasets/__init__.py")
    assert "np.random.default_rng" in names("datasets/_synthetic.py")


@pytest.mark.parametrize("path", sorted(ROOT.glob("kernels/*.py*")), ids=lambda path: path.name)
def test_kernels_import_nothing_of_the_package(path):
    pattern = r"^\s*(from|import|cimport|include)\b.*(\bdplda\b|\bfrom\s+\.|^\s*from\s+\.)"
    assert not re.search(pattern, path.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", below("privacy/"))
def test_privacy_knows_nothing_of_topics(path):
    """Audits lie on top of everything: they look at fits from outside."""
    allowed = {"dplda.privacy", "dplda.kernels._noise"}
    own = [name for name in imports(path) if is_in(name, {"dplda"})]
    assert [name for name in own if not is_in(name, allowed)] == []


@pytest.mark.parametrize("path", sorted(set(SOURCES) - {"__init__.py", "__main__.py"}))
def test_only_the_front_page_imports_algorithms(path):
    """They do not import each other, and nothing they rest on knows them."""
    algorithms = {f"dplda.{path.removesuffix('.py').replace('/', '.')}" for path in ALGORITHMS}
    algorithms |= {f"dplda.{name}" for name in dplda.__all__ if name.endswith("LDA")}
    assert [name for name in imports(path) if is_in(name, algorithms)] == []


@pytest.mark.parametrize("path", sorted(set(SOURCES) - MECHANISMS))
def test_noise_is_drawn_by_mechanisms_only(path):
    assert [name for name in imports(path) if is_in(name, {"dplda.kernels._noise"})] == []
    assert not {name.rpartition(".")[2] for name in names(path)} & NOISE


@pytest.mark.parametrize("path", sorted(set(SOURCES) - {"datasets/_synthetic.py"}))
def test_ordinary_random_numbers_are_for_invented_documents_only(path):
    assert [name for name in imports(path) if is_in(name, {"random", "numpy.random"})] == []
    assert [name for name in names(path) if re.search(r"^(np|numpy)\.random\b|\.rvs$", name)] == []


@pytest.mark.parametrize("path", sorted(set(SOURCES) - {"privacy/_streams.py"}))
def test_secret_keys_are_made_by_streams_only(path):
    assert not names(path) & {"os.urandom", "os.getrandom"}
    assert [name for name in imports(path) if is_in(name, {"secrets", "cryptography"})] == []
