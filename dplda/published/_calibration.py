"""The noise that the paper on private stochastic variational inference prescribes.

For comparison only. It is not what `PrivateSVILDA` uses, and not in every case private:
docs/svilda.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

from scipy.optimize import brentq

COMPOSITIONS = ("zcdp", "advanced", "linear")


@dataclass(frozen=True)
class VipsCalibration:
    """What `vips_calibration` returns.

    Attributes
    ----------
    epsilon_round, delta_round : float
        Budget of one round, on all documents (epsilon' and delta' in the paper).
    epsilon_iter, delta_iter : float
        Budget of the Gaussian mechanism of that round, on the sampled documents.
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity (sigma over Delta s).
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
    """Noise of private variational inference as published: equations (5), (6) and (3) of [1]_.

    **Not a proof.** (epsilon, delta)-DP of a round does not give the zCDP of equation (5), equation
    (3) is a theorem for ``epsilon_iter <= 1`` only, and `delta_round` is left open. Where
    `delta_iter` comes near one, the true epsilon of the result is far above the stated one;
    `epsilon_of` tells it.

    Parameters
    ----------
    epsilon, delta : float
        Total budget, epsilon above 0 and delta in (0, 1).
    subsampling_ratio : float
        Share of the documents in a round, in (0, 1] (nu).
    max_iter : int
        Rounds (J).
    composition : {"zcdp", "advanced", "linear"}, default="zcdp"
        How rounds are composed: equation (5), the advanced composition theorem, or sums.
    delta_round : float or None, default=None
        delta'. None: ``delta / max_iter``, or half of it for "advanced", where the other half pays
        for the composition.

    Returns
    -------
    VipsCalibration

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
    _check(epsilon, delta, subsampling_ratio, max_iter, composition)
    if delta_round is None:
        delta_round = delta / max_iter / (2.0 if composition == "advanced" else 1.0)
    _check_delta_round(delta_round, delta, subsampling_ratio, max_iter, composition)
    if composition == "zcdp":
        epsilon_round = _round_of_zcdp(epsilon, delta, delta_round, max_iter)
    elif composition == "advanced":
        epsilon_round = _round_of_advanced(epsilon, delta - max_iter * delta_round, max_iter)
    else:
        epsilon_round = epsilon / max_iter
    epsilon_iter = _before_sampling(epsilon_round, subsampling_ratio)
    delta_iter = delta_round / subsampling_ratio
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

    upper = min(epsilon / rate, 700.0)  # the exponential of more is no float
    return float(brentq(excess, 0.0, upper, xtol=1e-300, rtol=1e-14))


def _check(
    epsilon: float, delta: float, subsampling_ratio: float, max_iter: int, composition: str
) -> None:
    if not 1e-9 <= epsilon <= 1e9:
        raise ValueError(f"epsilon must be positive and finite, from 1e-9 to 1e9, got {epsilon}")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")
    if not 0.0 < subsampling_ratio <= 1.0:
        raise ValueError(f"subsampling_ratio must lie in (0, 1], got {subsampling_ratio}")
    if not isinstance(max_iter, Integral) or not 1 <= max_iter <= 10**9:
        raise ValueError(
            f"max_iter must be an integer of at least 1, and at most 10**9, got {max_iter}"
        )
    if composition not in COMPOSITIONS:
        raise ValueError(f"composition must be one of {COMPOSITIONS}, got {composition!r}")


def _check_delta_round(
    delta_round: float, delta: float, subsampling_ratio: float, max_iter: int, composition: str
) -> None:
    if not 0.0 < delta_round < subsampling_ratio:
        raise ValueError(
            f"delta_round must be above 0 and below subsampling_ratio ({subsampling_ratio}), got "
            f"{delta_round}: delta_iter, their ratio, is a probability"
        )
    left = {
        "zcdp": math.inf,  # equation (5) does not charge it
        "advanced": delta * (1.0 - 1e-12) - max_iter * delta_round,
        "linear": delta * (1.0 + 1e-12) - max_iter * delta_round,
    }
    if left[composition] <= 0.0:
        raise ValueError(
            f"{max_iter} rounds with delta_round {delta_round} spend more than delta ({delta}); "
            "lower delta_round, or leave it None"
        )
