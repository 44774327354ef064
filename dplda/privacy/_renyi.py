"""Renyi divergences of single events."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

from dplda.privacy._events import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    ZeroConcentrated,
)

FloatArray = npt.NDArray[np.float64]
Curve = Callable[[FloatArray], FloatArray]


def renyi_divergence(event: Event, orders: FloatArray) -> FloatArray:
    """Renyi divergence of one event at each order; infinite where nothing is known.

    Parameters
    ----------
    event : Event
    orders : ndarray of shape (n_orders,)
        Greater than 1; integers if the event is sampled.

    Returns
    -------
    ndarray of shape (n_orders,)
    """
    match event:
        case Gaussian(noise_multiplier):
            return orders / (2.0 * noise_multiplier**2)
        case PoissonSampled(probability, Gaussian(noise_multiplier)):
            curve = _line(0.5 / noise_multiplier**2)
            return np.array([_subsampled(int(order), curve, probability) for order in orders])
        case ZeroConcentrated(rho):
            return rho * orders
        case BoundedRange(epsilon):
            return epsilon**2 / 8.0 * orders
        case Laplace(scale):
            return _laplace(scale, orders)
        case RandomizedResponse(flip, n_buckets):
            return _randomized_response(flip, n_buckets, orders)
        case _:
            return np.full_like(orders, math.inf)


def subsampled_rdp(order: int, rdp: Curve | float, subsampling_ratio: float) -> float:
    """Renyi divergence of a Poisson-sampled step, equation (3) of SUB-LDA [1]_.

    Parameters
    ----------
    order : int
        Renyi order, at least 2.
    rdp : callable or float
        Divergence of the step without sampling: a function of an array of integer orders, or
        its value at `order` for Gaussian noise, whose divergence is proportional to the order.
    subsampling_ratio : float
        Probability in (0, 1] that a record takes part.

    Returns
    -------
    float
        Divergence at `order`. It holds where records that are not sampled leave no trace in
        the output.

    References
    ----------
    .. [1] T. Huang, H. Chen. "SUB-LDA: differentially private LDA with subsampling".
    """
    if order != int(order) or order < 2:
        raise ValueError(f"order must be an integer of at least 2, got {order}")
    if not 0.0 < subsampling_ratio <= 1.0:
        raise ValueError(f"subsampling_ratio must lie in (0, 1], got {subsampling_ratio}")
    curve = rdp if callable(rdp) else _line(rdp / order)
    return _subsampled(int(order), curve, float(subsampling_ratio))


def _line(slope: float) -> Curve:
    return lambda orders: slope * orders


def _subsampled(order: int, curve: Curve, probability: float) -> float:
    """Equation (3) as log(1 + sum of positive terms).

    Its binomial weights sum to one, so each term can give up its share of that one, which
    leaves exp(x) - 1 in place of exp(x): no cancellation, however small the divergence.
    """
    chosen = np.arange(2.0, order + 1.0)
    exponent = (chosen - 1.0) * np.asarray(curve(chosen), dtype=float)
    if probability == 1.0:
        return float(exponent[-1]) / (order - 1)
    left = order - chosen
    log_weight = gammaln(order + 1.0) - gammaln(chosen + 1.0) - gammaln(left + 1.0)
    log_weight += chosen * math.log(probability) + left * math.log1p(-probability)
    with np.errstate(divide="ignore"):
        log_growth = exponent + np.log(-np.expm1(-exponent))
    return float(np.logaddexp(0.0, np.logaddexp.reduce(log_weight + log_growth))) / (order - 1)


def _laplace(scale: float, orders: FloatArray) -> FloatArray:
    """Mironov, "Renyi differential privacy", 2017, table II."""
    terms = [
        np.log(orders) + (orders - 1.0) / scale,
        np.log(orders - 1.0) - orders / scale,
    ]
    total: FloatArray = logsumexp(terms, axis=0) - np.log(2.0 * orders - 1.0)
    return total / (orders - 1.0)


def _randomized_response(flip: float, n_buckets: int, orders: FloatArray) -> FloatArray:
    """The two values in which neighbors differ, and the others, which tell nothing."""
    log_lie = math.log(flip / n_buckets)
    log_truth = math.log1p(-flip * (n_buckets - 1) / n_buckets)
    terms = [
        orders * log_truth + (1.0 - orders) * log_lie,
        orders * log_lie + (1.0 - orders) * log_truth,
    ]
    if n_buckets > 2:
        terms.append(np.full_like(orders, log_lie + math.log(n_buckets - 2)))
    total: FloatArray = logsumexp(terms, axis=0)
    return total / (orders - 1.0)
