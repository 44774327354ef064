"""Privacy loss distribution of one Poisson-sampled Gaussian step.

The same grid and the same pessimistic rounding as in dp_accounting, which takes its time to go
through the grid point by point; a fit whose noise changes from round to round has a hundred of
these to build, and its calibration a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import log_ndtr, ndtr

from dplda.privacy._renyi import FloatArray

# Outputs beyond so many standard deviations count as an infinite loss: mass 8e-24.
REACH = 10.0


def sampled_gaussian_distribution(
    noise_multiplier: float, probability: float, interval: float
) -> pld.PrivacyLossDistribution:
    """Loss distributions for one record removed and for one added.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation divided by sensitivity.
    probability : float
        Of taking part, strictly between 0 and 1.
    interval : float
        Distance of grid points; the distributions are upper bounds at any.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution
    """

    def loss(output: float) -> float:
        gain = (2.0 * output - 1.0) / (2.0 * noise_multiplier**2)
        return float(np.logaddexp(math.log1p(-probability), math.log(probability) + gain))

    low, high = loss(-REACH * noise_multiplier), loss(1.0 + REACH * noise_multiplier)

    def removed(epsilon: FloatArray) -> FloatArray:
        return _delta_removed(epsilon, noise_multiplier, probability)

    def added(epsilon: FloatArray) -> FloatArray:
        return _delta_added(epsilon, noise_multiplier, probability)

    return pld.PrivacyLossDistribution(
        _connect_dots(removed, low, high, interval), _connect_dots(added, -high, -low, interval)
    )


def _connect_dots(
    delta_of: Callable[[FloatArray], FloatArray], low: float, high: float, interval: float
) -> pld_pmf.PLDPmf:
    first, last = math.floor(low / interval), math.ceil(high / interval)
    grid: FloatArray = np.arange(first, last + 1, dtype=np.float64) * interval
    deltas = np.clip(delta_of(grid), 0.0, 1.0)
    # Rounding may leave steps upwards of 1e-16.
    deltas = np.minimum.accumulate(deltas)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas)


def _delta_removed(epsilon: FloatArray, s: float, q: float) -> FloatArray:
    """Hockey-stick divergence of the mixture (1-q) N(0, s^2) + q N(1, s^2) from N(0, s^2).

    Taking the common part away leaves q times a Gaussian mechanism's divergence.
    """
    delta: FloatArray = -np.expm1(np.minimum(epsilon, 0.0))
    beyond = epsilon > math.log1p(-q)
    outer = epsilon[beyond]
    rest = -np.expm1(math.log1p(-q) - outer)
    delta[beyond] = q * _delta_gaussian(outer - math.log(q) + np.log(rest), s)
    return delta


def _delta_added(epsilon: FloatArray, s: float, q: float) -> FloatArray:
    """Hockey-stick divergence of N(0, s^2) from the mixture."""
    delta: FloatArray = np.zeros_like(epsilon)
    below = epsilon < -math.log1p(-q)
    inner = epsilon[below]
    kept = -np.expm1(inner + math.log1p(-q))
    delta[below] = kept * _delta_gaussian(inner + math.log(q) - np.log(kept), s)
    return delta


def _delta_gaussian(epsilon: FloatArray, s: float) -> FloatArray:
    """Balle and Wang, "Improving the Gaussian mechanism", 2018, theorem 8."""
    half = 0.5 / s
    difference = ndtr(half - epsilon * s) - np.exp(epsilon + log_ndtr(-half - epsilon * s))
    delta: FloatArray = np.maximum(difference, 0.0)
    return delta
