"""Differentially private LDA topic models for scikit-learn.

``__init__.pyi`` lists the public names. A name is imported at its first use, so that a
client of local privacy loads nothing of the server.
"""

import difflib as _difflib
from typing import Any as _Any

import lazy_loader

from dplda._version import __version__ as __version__

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> _Any:
    if name in __all__:
        # Whole, before any of its modules: a thread that imports a module of it waits
        # for the package, the package for the module, and Python resolves this with a
        # half module.
        import sklearn  # noqa: F401
    if name in __all__ or name.startswith("_"):
        return _load(name)
    spelled = {known.lower(): known for known in __all__}
    close = _difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.8)
    advice = f"; did you mean {spelled[close[0]]}?" if close else ""
    raise AttributeError(f"No dplda attribute {name}{advice}")
