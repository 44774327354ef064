"""How a document-level fit spends its budget: schedules, and the mechanism of every release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplda.privacy.mechanisms import DiscreteGaussian, NoNoise

FIRST_TOTALS = 0.3  # of the budget for word totals, the unweighted release that sets the weights
LARGEST_TOTALS = 5000.0  # as a noise multiplier: they are then useless, and cost next to nothing
SMALLEST_NOISE = 1e-4  # below what the integer grid can express


def document_schedule(t: int, max_iter: int) -> tuple[float, float]:
    """Clip (as a fraction of `contribution_norm`) and tempering of round t = 1, 2, ...

    Early contributions are small, since responsibilities are still flat: the clip grows with
    them. The power of the word factor grows to 1, so that a word that noise has raised does not
    confirm the noise.
    """
    late = min(1.0, (t - 1) / max(1.0, 0.6 * max_iter))
    done = min(1.0, (t - 1) / max(1.0, 0.7 * max_iter))
    return 0.15 + 0.25 * late, 0.3 + 0.7 * done


def round_schedule(t: int, max_iter: int) -> tuple[float, float]:
    """Relative budget (precision of the noise) and relative weight in the average of round t."""
    return min(t, max_iter) ** 0.75, min(t, max_iter) ** 2.0


@dataclass(frozen=True)
class Budget:
    """The mechanisms of a fit, made of public constants only.

    Parameters
    ----------
    totals : sequence of mechanisms
        For the two releases of word totals.
    rounds : sequence of mechanisms
        One for each round.
    subsampling_ratio : float
        Probability with which a document takes part in a round.
    """

    totals: Sequence[Any]
    rounds: Sequence[Any]
    subsampling_ratio: float

    def round(self, t: int) -> Any:
        """The mechanism of round t = 1, 2, ...; rounds after the last are like it."""
        return self.rounds[min(t, len(self.rounds)) - 1]

    @classmethod
    def split(
        cls,
        noise_multiplier: float,
        *,
        max_iter: int,
        word_total_share: float,
        subsampling_ratio: float,
    ) -> Budget:
        """Spread a budget over the releases.

        `noise_multiplier` is that of one of `max_iter` equal rounds. Unsampled rounds share the
        same total unequally; word totals get `word_total_share` of the whole.
        """
        if noise_multiplier > 0:
            noise_multiplier = max(noise_multiplier, SMALLEST_NOISE)
        else:
            return cls([NoNoise()] * 2, [NoNoise()] * max_iter, subsampling_ratio)
        shares = np.array([round_schedule(t, max_iter)[0] for t in range(1, max_iter + 1)])
        if subsampling_ratio < 1:
            shares = np.ones(max_iter)
        multipliers = noise_multiplier / np.sqrt(max_iter * shares / shares.sum())
        precision = _rounds_precision(noise_multiplier, max_iter, subsampling_ratio)
        precision *= word_total_share / (1 - word_total_share)
        of_totals = precision * np.array([FIRST_TOTALS, 1 - FIRST_TOTALS])
        totals = 1 / np.sqrt(np.maximum(of_totals, LARGEST_TOTALS**-2))
        gaussian = DiscreteGaussian.for_noise_multiplier
        made = {m: gaussian(m) for m in set(multipliers.tolist())}
        return cls(
            [gaussian(float(m)) for m in totals],
            [made[m] for m in multipliers.tolist()],
            subsampling_ratio,
        )


def _rounds_precision(noise_multiplier: float, max_iter: int, subsampling_ratio: float) -> float:
    """About the mu**2 that the rounds spend: exact without sampling, a central limit with it."""
    if subsampling_ratio == 1:
        return max_iter / noise_multiplier**2
    return max_iter * subsampling_ratio**2 * np.expm1(min(50.0, noise_multiplier**-2))
