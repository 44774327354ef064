"""The only import of scikit-learn names that are private, experimental or new."""

from __future__ import annotations

from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_non_negative, validate_data

try:  # scikit-learn 1.9's callbacks, experimental
    from sklearn.callback import CallbackSupportMixin
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""


__all__ = [
    "CallbackSupportMixin",
    "Interval",
    "Options",
    "StrOptions",
    "_fit_context",
    "_get_output_config",
    "check_non_negative",
    "validate_data",
]
