"""A corpus that is read from installed documentation."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from ._sources import find_sources, read_documentation

_PACKAGES = ("joblib", "numpy", "scipy", "sklearn")
# Modules of compiled objects with long documentation, whose sources are not installed.
_COMPILED = ("numpy", "numpy.random", "scipy.special")
_FEWEST_WORDS = 20


def _folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    locations = (spec and spec.submodule_search_locations) or ()
    return [Path(location) for location in locations if Path(location).is_dir()]


def _documents_in_namespace(name: str) -> Iterator[tuple[str, str]]:
    """Documentation of the compiled objects of a public module, and of their members."""
    for key, value in sorted(vars(importlib.import_module(name)).items()):
        if not callable(value) or inspect.isfunction(value):
            continue
        yield f"{name}.{key}", inspect.getdoc(value) or ""
        if isinstance(value, type):
            for member, attribute in sorted(vars(value).items()):
                text = getattr(attribute, "__doc__", None)
                if isinstance(text, str) and not inspect.isfunction(attribute):
                    yield f"{name}.{key}.{member}", inspect.cleandoc(text)


@lru_cache
def _subpackages(package: str) -> frozenset[str]:
    names = {path.parent.name for f in _folders(package) for path in f.glob("*/__init__.py")}
    return frozenset(name for name in names if not name.startswith("_"))


def _label(name: str) -> str:
    """The public subpackage of a qualified name, or its package: numpy._core gives numpy."""
    package, _, rest = name.partition(".")
    subpackage = rest.partition(".")[0]
    return f"{package}.{subpackage}" if subpackage in _subpackages(package) else package


@lru_cache(maxsize=1)
def _docstring_corpus() -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Read and order the corpus once in a process: ((name, text), ...), ((module, reason), ...)."""
    documents, skipped = read_documentation(
        source
        for package in _PACKAGES
        for folder in _folders(package)
        for source in find_sources(folder, package)
    )
    for module in _COMPILED:
        documents.extend(_documents_in_namespace(module))
    unique: dict[str, str] = {}
    for name, text in sorted(documents, key=lambda document: document[0]):
        if len(text.split()) >= _FEWEST_WORDS:
            unique.setdefault(text, name)
    return tuple((name, text) for text, name in unique.items()), tuple(skipped)


def _describe(
    n_docs: int, n_words: int, n_labels: int, skipped: tuple[tuple[str, str], ...]
) -> str:
    modules = [importlib.import_module(package) for package in _PACKAGES]
    versions = [f"{module.__name__} {module.__version__}" for module in modules]
    lines = [
        f"Docstrings of {', '.join(versions)}, as installed: {n_docs} documents, {n_words} words"
        f" between blanks, {n_labels} packages and subpackages. Another version of these packages"
        " is another corpus.",
        "Left out: tests, bundled projects of others, exact duplicates, docstrings of fewer than"
        f" {_FEWEST_WORDS} words.",
        *(f"Could not be read: {module} ({reason})." for module, reason in skipped),
    ]
    return "\n".join(lines)


def load_docstrings(*, return_X_y: bool = False) -> Bunch | tuple[list[str], np.ndarray]:
    """Load a corpus of installed texts: the documentation of the scientific Python packages.

    The documents are the docstrings of the modules, classes, functions and methods of joblib,
    NumPy, SciPy and scikit-learn, read from the installed packages. Nothing is downloaded, and
    only dependencies of dplda are imported. There are about 7,000 documents of 1.5 million words.
    Only the first call in a process takes a few seconds.

    Parameters
    ----------
    return_X_y : bool, default=False
        If True, return `(data, target)` instead of a Bunch.

    Returns
    -------
    corpus : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with the attributes

        data : list of str, length n_docs
            The texts, ordered by qualified name: input for :class:`CountVectorizer`.
        target : ndarray of shape (n_docs,), int
            The package or subpackage that each text documents, an index into `target_names`.
        target_names : list of str
            The packages and subpackages, such as ``'scipy.stats'``, in alphabetic order. Objects
            of a private subpackage belong to its package.
        names : list of str, length n_docs
            The qualified names, such as ``'sklearn.base.BaseEstimator.get_params'``. A text that
            several objects share appears once, under the first name.
        DESCR : str
            Versions, sizes, and what is left out.
        skipped : tuple of (module, reason)
            Source files that could not be read or parsed.
    (data, target) : tuple if `return_X_y` is True
        The texts and their labels.

    See Also
    --------
    load_wordnet_glosses : English prose that is the same on every machine.
    load_public_vocabulary : Has a list of words for these texts, ``language="python"``.

    Notes
    -----
    Order and texts depend only on the versions of the four packages and, for some compiled
    objects, on the platform. The corpus is public: use it for experiments.

    Examples
    --------
    >>> from dplda.datasets import load_docstrings
    >>> corpus = load_docstrings()
    >>> "scipy.stats" in corpus.target_names
    True
    """
    documents, skipped = _docstring_corpus()
    names, texts = (list(column) for column in zip(*documents))
    target_names, target = np.unique([_label(name) for name in names], return_inverse=True)
    if return_X_y:
        return texts, target
    n_words = sum(len(text.split()) for text in texts)
    return Bunch(
        data=texts,
        target=target,
        target_names=target_names.tolist(),
        names=names,
        DESCR=_describe(len(texts), n_words, len(target_names), skipped),
        skipped=skipped,
    )
