"""The privacy cost of a step that two papers state, and the noise that one of them derives from it.

These formulas are for comparison only. No sound estimator uses them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from dplda.leaf._checks import check_integer, check_number

COMPOSITIONS = ("zcdp", "advanced", "linear")

LARGEST_ORDER = 10**6
LARGEST_DIVERGENCE = 1e150  # a larger one overflows when it is multiplied by an order


def iteration_epsilon(subsampling_ratio: float, rdp_order: int, rdp_epsilon: float) -> float:
    """Compute the privacy cost of one iteration that SUB-LDA claims, equation (3) of [1]_.

    It is the exact Renyi divergence of a Poisson-sampled step, and holds where a token that is not
    sampled leaves no trace. :class:`PublishedSubLDA` is not such a mechanism.

    Parameters
    ----------
    subsampling_ratio : float
        Probability in (0, 1] that a token takes part (gamma).
    rdp_order : int
        Renyi order, at least 2 (alpha).
    rdp_epsilon : float
        Renyi divergence of that order without sampling, above 0. The divergence of a lower order is
        proportionally lower, as for Gaussian noise.

    Returns
    -------
    divergence : float
        Renyi divergence of order `rdp_order`.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    References
    ----------
    .. [1] T. Huang, H. Chen, "Improving Privacy Guarantee and Efficiency of Latent Dirichlet
       Allocation Model Training Under Differential Privacy", Findings of EMNLP 2021.

    Examples
    --------
    >>> from dplda.published import iteration_epsilon
    >>> round(iteration_epsilon(0.5, 14, 2.0), 4)
    1.2809
    """
    order = check_integer("rdp_order", rdp_order, 2, LARGEST_ORDER)
    ratio = check_number("subsampling_ratio", subsampling_ratio, 0.0, 1.0, closed="right")
    epsilon = check_number("rdp_epsilon", rdp_epsilon, 0.0, math.inf, closed="right")
    if LARGEST_DIVERGENCE < epsilon < math.inf:
        raise ValueError(
            f"rdp_epsilon must be at most {LARGEST_DIVERGENCE:g}, or infinite, got {epsilon:g}"
        )
    chosen = np.arange(2.0, order + 1.0)
    exponent = (chosen - 1.0) * (epsilon * chosen / order)
    if ratio == 1.0:
        return float(exponent[-1]) / (order - 1)
    # The binomial weights sum to one. Each term leaves out its share of that one, so that
    # exp(x) - 1 takes the place of exp(x): no cancellation occurs, even at small divergences.
    with np.errstate(divide="ignore"):
        log_growth = exponent + np.log(-np.expm1(-exponent))
    left = order - chosen
    log_ways = gammaln(order + 1.0) - gammaln(chosen + 1.0) - gammaln(left + 1.0)
    log_weight = log_ways + chosen * math.log(ratio) + left * math.log1p(-ratio)
    log_sum = np.logaddexp.reduce(log_weight + log_growth)
    return float(np.logaddexp(0.0, log_sum)) / (order - 1)


@dataclass(frozen=True)
class VipsCalibration:
    """Noise and budgets of one round, as `vips_calibration` returns them."""

    epsilon_round: float
    delta_round: float
    epsilon_iter: float
    delta_iter: float
    noise_multiplier: float


def vips_calibration(
    epsilon: float,
    delta: float,
    *,
    subsampling_ratio: float,
    max_iter: int,
    composition: str = "zcdp",
    delta_round: float | None = None,
) -> VipsCalibration:
    """Compute the noise of private variational inference as published: equations (5), (6), (3).

    The equations are those of [1]_. **They are not a proof.** (epsilon, delta)-DP of a round does
    not imply the zCDP of equation (5). Equation (3) is a theorem for ``epsilon_iter <= 1`` only.
    The paper leaves `delta_round` open.
    If `delta_iter` is close to 1, the true epsilon of the result is far above the stated one;
    :func:`dplda.privacy.epsilon_of` computes it.

    Parameters
    ----------
    epsilon : float
        Total epsilon to spend, from 1e-9 to 1e9.
    delta : float
        Total delta to spend, in (0, 1).
    subsampling_ratio : float
        Share of the documents in a round, in (0, 1] (nu).
    max_iter : int
        Number of rounds (J), from 1 to 10**9.
    composition : {"zcdp", "advanced", "linear"}, default="zcdp"
        Composition of the rounds: equation (5), the advanced composition theorem, or sums.
    delta_round : float or None, default=None
        delta', above 0 and below `subsampling_ratio`. None takes ``delta / max_iter``, or half of
        it for "advanced"; the other half is the delta of the composition theorem.

    Returns
    -------
    calibration : VipsCalibration
        `noise_multiplier`, the standard deviation of the noise divided by the sensitivity (sigma
        over Delta s), and the budgets that lead to it: `epsilon_round` and `delta_round` of a round
        on all documents (epsilon' and delta'), `epsilon_iter` and `delta_iter` of its Gaussian
        mechanism on the sampled documents.

    Raises
    ------
    ValueError
        If a parameter is out of range, or `delta_round` leaves nothing for the composition or is
        not below `subsampling_ratio`.

    References
    ----------
    .. [1] M. Park, J. Foulds, K. Chaudhuri, M. Welling, "Private Topic Modeling", NIPS workshop on
       private multi-party machine learning, 2016.

    Examples
    --------
    >>> from dplda.published import vips_calibration
    >>> noise = vips_calibration(1.0, 1e-4, subsampling_ratio=1e-3, max_iter=400)
    >>> round(noise.noise_multiplier, 4)
    0.9849
    """
    epsilon = check_number("epsilon", epsilon, 1e-9, 1e9)
    delta = check_number("delta", delta, 0.0, 1.0, closed="neither")
    ratio = check_number("subsampling_ratio", subsampling_ratio, 0.0, 1.0, closed="right")
    max_iter = check_integer("max_iter", max_iter, 1, 10**9)
    if composition not in COMPOSITIONS:
        raise ValueError(f"composition must be one of {COMPOSITIONS}, got {composition!r}")
    if delta_round is None:
        delta_round = delta / max_iter / (2.0 if composition == "advanced" else 1.0)
    delta_round = _check_delta_round(delta_round, delta, ratio, max_iter, composition)
    if composition == "zcdp":
        epsilon_round = _round_of_zcdp(epsilon, delta, delta_round, max_iter)
    elif composition == "advanced":
        epsilon_round = _round_of_advanced(epsilon, delta - max_iter * delta_round, max_iter)
    else:
        epsilon_round = epsilon / max_iter
    epsilon_iter = _before_sampling(epsilon_round, ratio)
    delta_iter = delta_round / ratio
    noise_multiplier = math.sqrt(2.0 * math.log(1.25 / delta_iter)) / epsilon_iter
    return VipsCalibration(epsilon_round, delta_round, epsilon_iter, delta_iter, noise_multiplier)


def _before_sampling(epsilon: float, ratio: float) -> float:
    """Equation (6) solved for epsilon_iter: log(1 + (exp(epsilon) - 1) / ratio)."""
    if epsilon < 1.0:
        return math.log1p(math.expm1(epsilon) / ratio)
    return epsilon - math.log(ratio) + math.log1p((ratio - 1.0) * math.exp(-epsilon))


def _round_of_zcdp(epsilon: float, delta: float, delta_round: float, max_iter: int) -> float:
    """Equation (5): rho + 2 sqrt(rho log(1/delta)) = epsilon, shared by the rounds."""
    log_delta = math.log(1.0 / delta)
    rho = (epsilon / (math.sqrt(log_delta + epsilon) + math.sqrt(log_delta))) ** 2
    return math.sqrt(4.0 * rho / max_iter * math.log(1.25 / delta_round))


def _round_of_advanced(epsilon: float, slack: float, max_iter: int) -> float:
    """Theorem 3.20 of Dwork and Roth, solved for the budget of a round."""
    rate = math.sqrt(2.0 * max_iter * math.log(1.0 / slack))

    def excess(x: float) -> float:
        return max_iter * x * math.expm1(x) + rate * x - epsilon

    upper = min(epsilon / rate, 700.0)  # the exponential of a larger number overflows
    return float(brentq(excess, 0.0, upper, xtol=1e-300, rtol=1e-14))


def _check_delta_round(
    delta_round: float, delta: float, ratio: float, max_iter: int, composition: str
) -> float:
    """Return delta', if delta_iter is a probability and the composition can pay for it."""
    delta_round = check_number("delta_round", delta_round, 0.0, 1.0, closed="right")
    if not delta_round < ratio:
        raise ValueError(
            f"delta_round must be below subsampling_ratio ({ratio:g}), got {delta_round:g}: their "
            "ratio, delta_iter, is a probability; lower delta_round, or leave it None"
        )
    remaining = {
        "zcdp": math.inf,  # equation (5) does not charge it
        "advanced": delta * (1.0 - 1e-12) - max_iter * delta_round,
        "linear": delta * (1.0 + 1e-12) - max_iter * delta_round,
    }
    if remaining[composition] <= 0.0:
        raise ValueError(
            f"{max_iter} rounds with delta_round {delta_round:g} spend more than delta "
            f"({delta:g}); lower delta_round, or leave it None"
        )
    return delta_round
