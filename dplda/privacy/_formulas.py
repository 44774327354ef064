"""Formulas of the papers: what one step costs before anything is composed."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

FloatArray = npt.NDArray[np.float64]
Curve = Callable[[FloatArray], FloatArray]


def check_positive(name: str, value: float, most: float) -> float:
    """A number above 0 and at most `most`, as a float."""
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        number = math.inf
    if not 0.0 < number <= most:
        raise ValueError(f"{name} must be positive and at most {most:g}")
    return number


def check_order(order: float) -> int:
    """A Renyi order that is an integer."""
    if not (isinstance(order, (Integral, float)) and 2 <= order <= 10**6 and order == int(order)):
        raise ValueError(f"order must be an integer from 2 to {10**6}, got {order!r:.20}")
    return int(order)


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
    order = check_order(order)
    check_positive("subsampling_ratio", subsampling_ratio, 1.0)
    if not callable(rdp) and rdp not in (0.0, math.inf):
        check_positive("rdp", rdp, 1e150)
    chosen = np.arange(2.0, order + 1.0)
    divergence = rdp(chosen) if callable(rdp) else rdp * chosen / order
    exponent = (chosen - 1.0) * np.asarray(divergence, dtype=float)
    if subsampling_ratio == 1.0:
        return float(exponent[-1]) / (order - 1)
    # The binomial weights sum to one, so each term can give up its share of that one, which
    # leaves exp(x) - 1 in place of exp(x): no cancellation, however small the divergence.
    with np.errstate(divide="ignore"):
        log_growth = exponent + np.log(-np.expm1(-exponent))
    log_terms = _log_binomial(chosen, order, subsampling_ratio) + log_growth
    return float(np.logaddexp(0.0, np.logaddexp.reduce(log_terms))) / (order - 1)


def _log_binomial(chosen: FloatArray, n: int, probability: float) -> FloatArray:
    left = n - chosen
    log_ways: FloatArray = gammaln(n + 1.0) - gammaln(chosen + 1.0) - gammaln(left + 1.0)
    return log_ways + chosen * math.log(probability) + left * math.log1p(-probability)
