"""Whether a fit can add the releases of an earlier fit to other documents; all public.

What cannot be added is refused before the fit is charged: by its parameters before data
are read, and by its words once the columns of the data are known.
"""

from __future__ import annotations

import math

from dplda.core._private_estimator import PrivateEstimator
from dplda.core._texts import words_of
from dplda.document._noisy_table import NoisyTable


def check_earlier(
    model: PrivateEstimator, earlier: PrivateEstimator, unit: str
) -> None:
    """Refuse a model whose releases a fit of `model` cannot add, by its parameters."""
    table = getattr(earlier, "_released", None)
    if not isinstance(table, NoisyTable):
        raise ValueError(
            "earlier must be a fitted SubLDA or PrivateSVILDA, got "
            f"{type(earlier).__name__}; pass the model itself (joblib.dump keeps it), "
            "not a release of it"
        )
    n_components = table.average.shape[1]
    if n_components != model.n_components:
        raise ValueError(
            f"earlier has n_components={n_components}, and this fit "
            f"n_components={model.n_components}; its topics continue, so give the "
            "same number"
        )
    if earlier.privacy_.unit != unit:
        raise ValueError(
            f"earlier protects one {earlier.privacy_.unit}, and this fit one "
            f"{unit}; give user_ids to both fits, or to none"
        )
    if earlier.epsilon_ == math.inf and model.epsilon != math.inf:
        raise ValueError(
            "earlier has no guarantee (its epsilon_ is inf), and this fit would "
            "publish its counts; fit it with a finite epsilon, or this one with "
            "epsilon=inf"
        )


def check_same_words(
    earlier: PrivateEstimator, n_words: int, words: list[str] | None
) -> None:
    """Refuse a model of other words; `words` are the names of the columns, if known."""
    n_before = len(earlier._released.weight)
    if n_before != n_words:
        raise ValueError(
            f"earlier was fitted to {n_before} words, and X has {n_words}; use one "
            "vocabulary for both"
        )
    known = words_of(earlier)
    if None not in (known, words) and known != words:
        raise ValueError(
            "earlier was fitted to columns with other names than those of X, or in "
            "another order; select the same columns for both"
        )
