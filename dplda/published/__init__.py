"""The papers' algorithms to the letter: for comparison and audits, never for private data.

`epsilon_` is what can be proved of an algorithm, often infinity; `published_epsilon_` is the
paper's figure. `fit` warns, and names what is wrong. The sound estimators are those of `dplda`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dplda.published._hdplda import HDPLDA
    from dplda.published._iftm import IFTMParty, recover_counts
    from dplda.published._sublda import SubLDA, efficiency_privacy, iteration_epsilon
    from dplda.published._svilda import PrivateSVILDA

__all__ = [
    "HDPLDA",
    "IFTMParty",
    "PrivateSVILDA",
    "SubLDA",
    "efficiency_privacy",
    "iteration_epsilon",
    "recover_counts",
]

_MODULES = {
    "HDPLDA": "_hdplda",
    "IFTMParty": "_iftm",
    "PrivateSVILDA": "_svilda",
    "SubLDA": "_sublda",
    "efficiency_privacy": "_sublda",
    "iteration_epsilon": "_sublda",
    "recover_counts": "_iftm",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
