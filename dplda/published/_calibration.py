"""The privacy cost of a step that two papers state, and the noise that one of them derives from it.

These formulas are for comparison only. No sound estimator uses them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

COMPOSITIONS = ("zcdp", "advanced", "linear")


def iteration_epsilon(subsampling_ratio: float, rdp_order: int, rdp_epsilon: float) -> float:
    """The privacy cost of one iteration that SUB-LDA claims, equation (3) of Huang and Chen.

    It is the exact Renyi divergence of order `rdp_order` of a Poisson-sampled Gaussian step whose
    divergence without sampling is `rdp_epsilon`. It holds where a token that is not sampled leaves
    no trace, which is not the case in SUB-LDA.
    """
    order, ratio = int(rdp_order), float(subsampling_ratio)
    chosen = np.arange(2.0, order + 1.0)
    exponent = (chosen - 1.0) * (float(rdp_epsilon) * chosen / order)
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
    """Budgets of a round on all documents, of its Gaussian mechanism on the sampled ones; noise.

    `noise_multiplier` is the standard deviation over the sensitivity (sigma over Delta s).
    """

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
    """The noise of Park et al., "Private Topic Modeling", 2016: equations (5), (6) and (3).

    `subsampling_ratio` is the share of the documents in a round (nu), `max_iter` the number of
    rounds (J), and `delta_round` their delta', which the paper leaves open. **The equations are not
    a proof.** (epsilon, delta)-DP of a round does not imply the zCDP of equation (5). Equation (3)
    is a theorem for ``epsilon_iter <= 1`` only. If `delta_iter` is close to 1, the true epsilon of
    the result, which :func:`dplda.privacy.epsilon_of` computes, is far above the stated one.
    """
    ratio = subsampling_ratio
    if delta_round is None:
        delta_round = delta / max_iter / (2.0 if composition == "advanced" else 1.0)
    if not delta_round < ratio:
        raise ValueError(
            f"delta of a round must be below the share of its documents ({ratio:g}), got "
            f"{delta_round:g}: their ratio is a probability; lower delta"
        )
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
