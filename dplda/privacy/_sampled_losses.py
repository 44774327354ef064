"""Privacy loss distribution of a Gaussian step on a secret sample, all points of a grid at once.

The library's own function takes several microseconds for each point. Here the same formulas take
arrays. docs/accounting.md says why rounding errors of the cut points do not matter.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

FloatArray = NDArray[np.float64]


def sampled_distribution(
    sampling_probability: float, noise_multiplier: float, interval: float
) -> pld.PrivacyLossDistribution:
    """Privacy loss distribution of a Poisson-sampled Gaussian step, on a grid.

    Parameters
    ----------
    sampling_probability : float
        Probability that a unit takes part, in (0, 1).
    noise_multiplier : float
        Standard deviation of the noise divided by the sensitivity.
    interval : float
        Distance between two points of the grid.

    Returns
    -------
    PrivacyLossDistribution
        An upper bound, of a unit that is removed and of one that is added.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    laws = []
    for change in (AdjacencyType.REMOVE, AdjacencyType.ADD):
        loss = GaussianPrivacyLoss(
            noise_multiplier, sampling_prob=sampling_probability, adjacency_type=change
        )
        bounds = loss.connect_dots_bounds()
        first = math.floor(bounds.epsilon_lower / interval)
        last = math.ceil(bounds.epsilon_upper / interval)
        deltas = hockey_stick(
            loss, np.arange(first, last + 1) * interval, removed=change is AdjacencyType.REMOVE
        )
        laws.append(connected(deltas, first, interval))
    return pld.PrivacyLossDistribution(*laws)


def connected(deltas: FloatArray, first: int, interval: float) -> DensePLDPmf:
    """The losses on a grid whose deltas are given at its points and lines between them.

    It is an upper bound (Doroshenko et al. 2022, algorithm 1). The library's function computes the
    same numbers, and takes most of its time to put them into a dictionary.
    """
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    deltas = np.minimum.accumulate(deltas)  # rounding errors may increase them
    steps, growth = np.diff(deltas), math.expm1(interval)
    masses = np.empty(len(deltas))
    masses[0] = 1 - deltas[0] + steps[0] / growth
    masses[1:-1] = (steps[1:] - steps[:-1] * math.exp(interval)) / growth
    masses[-1] = steps[-1] / math.expm1(-interval)
    return DensePLDPmf(interval, first, np.maximum(0.0, masses), deltas[-1], True)


def hockey_stick(loss: GaussianPrivacyLoss, epsilons: FloatArray, *, removed: bool) -> FloatArray:
    """Delta of one step at each epsilon, exact up to rounding.

    The losses above epsilon are those of the outcomes below a cut, which has a closed form.
    """
    q, s = loss.sampling_prob, loss.standard_deviation
    sign = 1.0 if removed else -1.0
    e = sign * epsilons
    # all losses are above log(1 - q) for a removed unit, and below -log(1 - q) for an added one
    within = e > math.log1p(-q)
    # they are cut to [0, 1] below: what is far from it may not overflow
    deltas = -np.expm1(np.minimum(epsilons, 1.0)) if removed else np.zeros(len(epsilons))
    e = e[within]
    with np.errstate(divide="ignore"):  # at the end of the range, the cut is infinite
        near = np.log1p(np.maximum(np.expm1(np.minimum(e, 1.0)) / q, -1.0))
        far = e - math.log(q) + np.log1p(-(1.0 - q) * np.exp(-np.maximum(e, 1.0)))
    cuts = -sign * (0.5 + np.where(e < 1.0, near, far) * s**2)
    deltas[within] = loss.mu_upper_cdf(cuts) - np.exp(
        epsilons[within] + loss.mu_lower_log_cdf(cuts)
    )
    return np.clip(deltas, 0.0, 1.0)
