"""Mechanisms, random streams and the curator: what the author of an estimator needs.

docs/extending.md has the steps of a private fit, with an example. A mechanism whose
`exact` is True adds no noise and protects nothing. An estimator outside of this package
uses the stream purposes from 128 to 255.
"""

from dplda.privacy._curator import TOTAL_VARIATION, Curator, sampled
from dplda.privacy._mechanisms import (
    DiscreteGaussian,
    FlooredLaplace,
    NoNoise,
    sum_clipped,
)
from dplda.privacy._streams import Streams, uniform

__all__ = [
    "TOTAL_VARIATION",
    "Curator",
    "DiscreteGaussian",
    "FlooredLaplace",
    "NoNoise",
    "Streams",
    "sampled",
    "sum_clipped",
    "uniform",
]
