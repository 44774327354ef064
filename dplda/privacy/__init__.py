"""Privacy budgets and guarantees: ledgers, accounting, and the events that it counts.

A `Ledger` adds up what was spent on one body of data. A fitted model's ``privacy_`` is a
`Guarantee`. `epsilon_of` states the privacy cost of a composition of events, and `calibrate` finds
the noise for a given cost. Authors of estimators find mechanisms and random streams in
`dplda.privacy.mechanisms`.
"""

from dplda.privacy._accounting import calibrate, epsilon_bounds, epsilon_of, split_epsilon
from dplda.privacy._events import (
    ApproximateDP,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
)
from dplda.privacy._guarantee import (
    Guarantee,
    LowSignalWarning,
    PrivacyLeakWarning,
    PrivateDataWarning,
    SeededNoiseWarning,
    limit_rows,
)
from dplda.privacy._ledger import BudgetError, Ledger, user_part

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
    "calibrate",
    "epsilon_bounds",
    "epsilon_of",
    "limit_rows",
    "split_epsilon",
    "user_part",
]
