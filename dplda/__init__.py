"""Differentially private LDA topic models for scikit-learn."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dplda._cdplda import CDPLDA
    from dplda._gibbslda import GibbsLDA
    from dplda._hdplda import HDPLDA
    from dplda._lplda import LPLDA
    from dplda._memoized_reports import MemoizedReports
    from dplda._olplda import OLPLDA
    from dplda._randomized_response import RandomizedResponse
    from dplda._release import load_release as load_release
    from dplda._sublda import SubLDA
    from dplda._svilda import PrivateSVILDA

__version__ = "0.1.0"

__all__ = [
    "GibbsLDA",
    "HDPLDA",
    "SubLDA",
    "PrivateSVILDA",
    "CDPLDA",
    "LPLDA",
    "OLPLDA",
    "RandomizedResponse",
    "MemoizedReports",
]

_MODULES = {
    "GibbsLDA": "dplda._gibbslda",
    "HDPLDA": "dplda._hdplda",
    "SubLDA": "dplda._sublda",
    "PrivateSVILDA": "dplda._svilda",
    "CDPLDA": "dplda._cdplda",
    "LPLDA": "dplda._lplda",
    "OLPLDA": "dplda._olplda",
    "RandomizedResponse": "dplda._randomized_response",
    "MemoizedReports": "dplda._memoized_reports",
    "load_release": "dplda._release",
}


_SUBPACKAGES = ("datasets", "displays", "federated", "metrics", "privacy", "published")


def __getattr__(name: str) -> Any:
    """Import a name or subpackage at its first use: a client loads nothing of the server."""
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_SUBPACKAGES})
