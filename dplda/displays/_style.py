"""Colors, and the import of matplotlib when it is needed."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's colors, which color-blind readers can distinguish. Series also differ in markers.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = (":", "--", "-.")
GRAY = "#595959"
LIGHT_GRAY = "#8c8c8c"


def import_pyplot(caller: str) -> Any:
    """Import matplotlib.pyplot; without matplotlib, raise an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{caller} needs matplotlib; install it with: pip install 'dplda[plot]'"
        ) from error
    return plt


def model_name(estimator: Any) -> str:
    """Class of a model; for a loaded release, the class that was trained."""
    return getattr(estimator, "estimator_name_", type(estimator).__name__)
