"""Warnings that point to the line of the user's own code."""

from __future__ import annotations

import sys
import warnings


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost caller that is neither this package nor scikit-learn.

    A search of scikit-learn calls fits by way of joblib.
    """
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _package(frame.f_globals) in ("dplda", "sklearn", "joblib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(namespace: dict) -> str:
    return namespace.get("__name__", "").split(".")[0]
