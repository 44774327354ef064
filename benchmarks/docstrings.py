"""A corpus of installed texts: docs of joblib, NumPy, SciPy and scikit-learn.

The texts depend only on the versions of the four packages and, for some compiled
objects, on the platform. They are public. Sources are parsed, and not imported.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

PACKAGES = ("joblib", "numpy", "scipy", "sklearn")
# with long documentation, without sources
COMPILED = ("numpy", "numpy.random", "scipy.special")
FEWEST_WORDS = 20
SKIPPED_FOLDERS = {  # tests, and bundled projects of other authors
    "test",
    "tests",
    "testing",
    "externals",
    "_vendor",
    "_vendored",
    "vendored",
    "array_api_compat",
    "array_api_extra",
    "_uarray",
    "cobyqa",
    "pyprima",
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@lru_cache(maxsize=1)
def load_docstrings() -> tuple[list[str], np.ndarray]:
    """About 7,000 texts in the order of qualified names, and each one's subpackage."""
    documents = [
        item for package in PACKAGES for item in in_sources(folder(package), package)
    ]
    for module in COMPILED:
        documents.extend(in_namespace(module))
    unique: dict[str, str] = {}
    for name, text in sorted(documents, key=lambda document: document[0]):
        if len(text.split()) >= FEWEST_WORDS:
            unique.setdefault(text, name)
    public = {package: subpackages(package) for package in PACKAGES}
    labels = [label(name, public) for name in unique.values()]
    return list(unique), np.unique(labels, return_inverse=True)[1]


def python_words(n_words: int | None = None) -> list[str]:
    """Frequent words of Python's documentation: a vocabulary for the docstrings.

    The vocabulary is public.
    """
    vectorizer = CountVectorizer(
        stop_words="english", token_pattern=r"(?u)\b[a-z]{3,}\b"
    )
    total = np.asarray(vectorizer.fit_transform(topics.values()).sum(axis=0)).ravel()
    names = vectorizer.get_feature_names_out()
    return names[np.lexsort((names, -total))][:n_words].tolist()


def folder(package: str) -> Path:
    return Path(importlib.import_module(package).__file__).parent


def subpackages(package: str) -> set[str]:
    names = {path.parent.name for path in folder(package).glob("*/__init__.py")}
    return {name for name in names if not name.startswith("_")}


def label(name: str, public: dict[str, set[str]]) -> str:
    """The public subpackage of a qualified name, or its package.

    For instance, numpy._core gives numpy.
    """
    package, subpackage = [*name.split("."), ""][:2]
    return f"{package}.{subpackage}" if subpackage in public[package] else package


def in_sources(place: Path, name: str) -> Iterator[tuple[str, str]]:
    """Documentation in the Python files of a package, subpackages included."""
    for path in sorted(place.iterdir()):
        if path.suffix == ".py":
            module = name if path.stem == "__init__" else f"{name}.{path.stem}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as an invalid escape
                yield from in_tree(ast.parse(path.read_bytes()), module)
        elif path.name not in SKIPPED_FOLDERS and (path / "__init__.py").is_file():
            yield from in_sources(path, f"{name}.{path.name}")


def in_tree(node: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[str, str]]:
    """Documentation of a module or class and of its members."""
    yield name, ast.get_docstring(node) or ""
    pending: list[ast.AST] = node.body[::-1]
    while pending:
        child = pending.pop()
        if isinstance(child, FUNCTIONS):
            yield f"{name}.{child.name}", ast.get_docstring(child) or ""
        elif isinstance(child, ast.ClassDef):
            yield from in_tree(child, f"{name}.{child.name}")
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from in_call(child.value, name)
        else:
            pending.extend(reversed([*statements(child)]))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(node, field, [])
    for handler in getattr(node, "handlers", []):
        yield from handler.body


def in_call(call: ast.Call, name: str) -> Iterator[tuple[str, str]]:
    """Documentation that a call such as ``add_newdoc`` gives to a compiled object."""
    function = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if not function.endswith(("add_newdoc", "add_docstring")):
        return
    target = name
    for node in ast.walk(call):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if len(node.value.split()) == 1:
                target = f"{name}.{node.value}"
            else:
                yield target, inspect.cleandoc(node.value)


def in_namespace(name: str) -> Iterator[tuple[str, str]]:
    """Documentation of compiled objects of a public module, and of their members."""
    for key, value in sorted(vars(importlib.import_module(name)).items()):
        if not callable(value) or inspect.isfunction(value):
            continue
        yield f"{name}.{key}", inspect.getdoc(value) or ""
        if isinstance(value, type):
            for member, attribute in sorted(vars(value).items()):
                text = getattr(attribute, "__doc__", None)
                if isinstance(text, str) and not inspect.isfunction(attribute):
                    yield f"{name}.{key}.{member}", inspect.cleandoc(text)
