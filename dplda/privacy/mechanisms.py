"""Charges, mechanisms, streams and the curator: what authors of estimators need.

docs/extending.md has the steps of a private fit, with an example. A mechanism whose
`exact` is True adds no noise and protects nothing. An estimator outside of this package
uses the stream purposes from 128 to 255.
"""

from dplda.privacy._charge import TOTAL_VARIATION, Charge
from dplda.privacy._curator import Curator, sampled
from dplda.privacy._mechanisms import (
    DiscreteGaussian,
    FlooredLaplace,
    NoNoise,
    sum_clipped,
)
from dplda.privacy._recorder import Recorder, record
from dplda.privacy._streams import Streams, uniform

__all__ = [
    "TOTAL_VARIATION",
    "Charge",
    "Curator",
    "DiscreteGaussian",
    "FlooredLaplace",
    "NoNoise",
    "Recorder",
    "Streams",
    "record",
    "sampled",
    "sum_clipped",
    "uniform",
]
