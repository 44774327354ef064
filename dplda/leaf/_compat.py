"""Names of scikit-learn that are private, experimental or new: nowhere else is one imported."""

from __future__ import annotations

from sklearn.base import _fit_context
from sklearn.utils._param_validation import HasMethods, Options, StrOptions
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils.validation import check_non_negative, validate_data

__all__ = [
    "HasMethods",
    "Options",
    "StrOptions",
    "_Interval",
    "_fit_context",
    "check_non_negative",
    "validate_data",
]
