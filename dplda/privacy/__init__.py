"""The privacy core: what a release costs, who pays, and the only place where noise is drawn."""

from dplda.privacy._accounting import (
    calibrate,
    delta_charge,
    epsilon_of,
    gaussian_mu,
    inherent_epsilon,
    is_chargeable,
    subsampled_rdp,
)
from dplda.privacy._curator import Curator
from dplda.privacy._errors import BudgetError, PrivacyLeakWarning, SeededNoiseWarning
from dplda.privacy._events import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    ZeroConcentrated,
)
from dplda.privacy._guarantee import Guarantee
from dplda.privacy._ledger import Entry, Ledger
from dplda.privacy._local_mechanisms import RandomizedBits
from dplda.privacy._mechanisms import DiscreteGaussian, FlooredLaplace, NoNoise

__all__ = [
    "BoundedRange",
    "BudgetError",
    "Curator",
    "DiscreteGaussian",
    "Entry",
    "Event",
    "FlooredLaplace",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "Ledger",
    "NoNoise",
    "NonPrivate",
    "PoissonSampled",
    "PrivacyLeakWarning",
    "RandomizedBits",
    "RandomizedResponseEvent",
    "Repeated",
    "SeededNoiseWarning",
    "ZeroConcentrated",
    "calibrate",
    "delta_charge",
    "epsilon_of",
    "gaussian_mu",
    "inherent_epsilon",
    "is_chargeable",
    "subsampled_rdp",
]
