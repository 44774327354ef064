"""Names of scikit-learn that are private, experimental or new.

No other module imports one.
"""

from __future__ import annotations

from sklearn.base import _fit_context as _fit_context
from sklearn.utils._param_validation import HasMethods as HasMethods
from sklearn.utils._param_validation import Interval as Interval
from sklearn.utils._param_validation import Options as Options
from sklearn.utils._param_validation import StrOptions as StrOptions
from sklearn.utils.validation import check_non_negative as check_non_negative
from sklearn.utils.validation import validate_data as validate_data
