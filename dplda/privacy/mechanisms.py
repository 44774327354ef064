"""Mechanisms, random streams and the curator: what the author of an estimator needs.

A private fit takes these steps; docs/extending.md has an example.

1. `Streams.from_random_state` makes the random streams of the fit. All randomness comes from them.
2. A mechanism, such as `DiscreteGaussian`, draws the noise; its `event` is the privacy cost.
   `dplda.privacy.calibrate` finds the noise for a given budget. Its argument
   ``total_variation=TOTAL_VARIATION`` charges the distance of the noise from its ideal law.
3. A `Curator` gets the plan, a list of pairs (label, event) in the order of the releases, and
   charges it to the ledger. Only then does the fit read private data. `sampled` gives the event of
   a mechanism on a Poisson sample, which `Curator.sample` draws.
4. `sum_clipped` turns contributions into integers of bounded sensitivity. `Curator.release` adds
   the noise. It raises RuntimeError for a release that is not in the plan.
5. The estimator states a `dplda.privacy.Guarantee` of the events that were charged.

A mechanism whose `exact` is True adds no noise and protects nothing.

An estimator outside of this package uses the stream purposes from 128 to 255.
"""

from dplda.privacy._curator import TOTAL_VARIATION, Curator, sampled
from dplda.privacy._mechanisms import DiscreteGaussian, FlooredLaplace, NoNoise, sum_clipped
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
