"""Reads documentation from Python source files, without importing them."""

from __future__ import annotations

import ast
import gc
import inspect
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Tests, and bundled projects of other authors.
SKIPPED_FOLDERS = {
    "test", "tests", "testing", "externals", "_vendor", "_vendored", "vendored",
    "array_api_compat", "array_api_extra", "_uarray", "cobyqa", "pyprima",
}  # fmt: skip

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _nested_statements(node: ast.stmt) -> Iterator[ast.stmt]:
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(node, field, [])
    for handler in getattr(node, "handlers", []):
        yield from handler.body


def _attached_documents(call: ast.Call, name: str) -> Iterator[tuple[str, str]]:
    """Documentation that a call such as ``add_newdoc`` attaches to a compiled object."""
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


def _documents_in_tree(node: _Documented, name: str) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, docstring) of a module or class and of its members."""
    yield name, ast.get_docstring(node) or ""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return  # inner definitions of a function have no qualified name
    pending = node.body[::-1]
    while pending:
        child = pending.pop()
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _documents_in_tree(child, f"{name}.{child.name}")
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _attached_documents(child.value, name)
        else:
            pending.extend(list(_nested_statements(child))[::-1])


def find_sources(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Yield (module name, file) of a package, subpackages included."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".py":
            yield (name if path.stem == "__init__" else f"{name}.{path.stem}"), path
        elif path.name not in SKIPPED_FOLDERS and (path / "__init__.py").is_file():
            yield from find_sources(path, f"{name}.{path.name}")


@contextmanager
def _without_garbage_collector() -> Iterator[None]:
    """Syntax trees have no cycles, and a search for them takes as long as the parsing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_documentation(
    sources: Iterable[tuple[str, Path]],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Parse source files without importing them.

    Returns the list of (qualified name, docstring) and the list of (module, reason) of the
    files that could not be read.
    """
    documents: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    with warnings.catch_warnings(), _without_garbage_collector():
        warnings.simplefilter("ignore")  # for example, an invalid escape in third-party source
        for name, path in sources:
            try:
                documents.extend(_documents_in_tree(ast.parse(path.read_bytes()), name))
            except (OSError, SyntaxError, ValueError, RecursionError) as error:
                skipped.append((name, type(error).__name__))
    return documents, skipped
