"""Mechanisms, random streams and the curator: what the author of an estimator needs.

A private fit takes five steps:

1. `Streams.from_random_state` makes the random streams of the fit. All randomness comes from them.
2. A mechanism, as `DiscreteGaussian`, says which noise is drawn and, as its `event`, what it costs.
   `calibrate` finds the noise for a given budget; ``total_variation=TOTAL_VARIATION`` charges the
   distance of the noise from its ideal law.
3. A `Curator` gets the plan, a list of pairs (label, event) in the order of the releases, and
   charges it to the ledger. Only then the fit reads private data. `sampled` is the event of a
   mechanism on a Poisson sample.
4. `Curator.release` adds the noise. It raises RuntimeError for a release that is not in the plan.
5. The estimator states a `dplda.privacy.Guarantee` of the events that were charged.

The sensitivity is the author's part: the integers that are released may change by at most
`sensitivity` when one protected unit changes. A mechanism whose `exact` is True adds no noise and
protects nothing.

An estimator outside of this package may use the stream purposes from 128 to 255. The numbers of
`Purpose` are below.
"""

from dplda.privacy._accounting import delta_charge, gaussian_mu, is_chargeable
from dplda.privacy._clipping import sum_clipped
from dplda.privacy._curator import TOTAL_VARIATION, Curator, sampled
from dplda.privacy._local_mechanisms import RandomizedBits, Survivors, ThresholdedLaplace
from dplda.privacy._mechanisms import DiscreteGaussian, FlooredLaplace, NoNoise
from dplda.privacy._streams import Purpose, Streams, uniform, uniform_integers

__all__ = [
    "TOTAL_VARIATION",
    "Curator",
    "DiscreteGaussian",
    "FlooredLaplace",
    "NoNoise",
    "Purpose",
    "RandomizedBits",
    "Streams",
    "Survivors",
    "ThresholdedLaplace",
    "delta_charge",
    "gaussian_mu",
    "is_chargeable",
    "sampled",
    "sum_clipped",
    "uniform",
    "uniform_integers",
]
