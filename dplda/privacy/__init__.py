"""Privacy budgets and guarantees: ledgers, accounting, and the events that it counts.

A `Ledger` adds up what was spent on one body of data. A fitted model's ``privacy_`` is a
`Guarantee`. `epsilon_of` states the privacy cost of a composition of events, and `calibrate` finds
the noise for a given cost. Authors of estimators find mechanisms and random streams in
`dplda.privacy.mechanisms`.
"""

from dplda.privacy._accounting import epsilon_bounds, epsilon_of
from dplda.privacy._calibration import calibrate, split_epsilon
from dplda.privacy._events import (
    ApproximateDP,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    ZeroConcentrated,
)
from dplda.privacy._guarantee import (
    Guarantee,
    LowSignalWarning,
    PrivacyLeakWarning,
    PrivateDataWarning,
    SeededNoiseWarning,
)
from dplda.privacy._ledger import BudgetError, Ledger
from dplda.privacy._persons import limit_rows, user_part

__all__ = [
    "ApproximateDP",
    "BudgetError",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "Ledger",
    "LowSignalWarning",
    "NonPrivate",
    "PoissonSampled",
    "PrivacyLeakWarning",
    "PrivateDataWarning",
    "RandomizedResponseEvent",
    "Repeated",
    "SeededNoiseWarning",
    "ZeroConcentrated",
    "calibrate",
    "epsilon_bounds",
    "epsilon_of",
    "limit_rows",
    "split_epsilon",
    "user_part",
]
