"""What an audit finds: bounds, the claim, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dplda.audit._residual_tests import ResidualResult
from dplda.displays._style import COLORS, GRAY, import_pyplot


@dataclass(frozen=True, eq=False)
class AuditResult:
    """Result of an audit.

    Parameters
    ----------
    name : str
        Class of the estimator.
    relation : str
        Event that a coin decided, such as "a document is there or not".
    lower_bound : float
        Lower bound on the epsilon that was spent, with probability `confidence`. It assumes
        nothing of the mechanism.
    declared_bound : float or None
        A stronger bound, with the same probability. It assumes the declared events, with all noise
        times one factor, and that each canary has noise of its own. None if the claim is no sum of
        such events.
    confidence : float
        Probability with which each bound holds.
    claim : float
        The claimed epsilon.
    delta : float
        The delta of (epsilon, delta)-differential privacy of the bounds and of the claim.
    scores : ndarray of shape (n_coins,)
        Score of each coin; a large score means a guess of 1.
    coins : ndarray of shape (n_coins,), bool
        The coins.
    n_runs : int
        Number of fits.
    ceiling : float
        The largest `lower_bound` that the coins can give, if all guesses are right.
    residuals : ResidualResult or None
        Residual check of the first fit; None for estimators without a curator.
    mechanism_refuted : bool
        Whether `declared_bound` exceeds the claim at a fiftieth of the error. This refutes the
        claim, which rests on what the bound assumes.
    """

    name: str
    relation: str
    lower_bound: float
    declared_bound: float | None
    confidence: float
    claim: float
    delta: float
    scores: np.ndarray
    coins: np.ndarray
    n_runs: int
    ceiling: float
    residuals: ResidualResult | None
    mechanism_refuted: bool

    @property
    def exceeds_claim(self) -> bool:
        """Whether the bound without assumptions refutes the claim, at the stated confidence."""
        return self.lower_bound > self.claim

    @property
    def refuted(self) -> bool:
        """Whether a bound or the residual check speaks against the claim.

        A sound fit is refuted with probability at most 1.02 times ``1 - confidence``, plus 1e-6.
        """
        residuals_failed = self.residuals is not None and not self.residuals.passed
        return self.exceeds_claim or self.mechanism_refuted or residuals_failed

    @property
    def verdict(self) -> str:
        """The result in one sentence; it says how much the design can show."""
        declared = self.declared_bound
        beside = "" if declared is None else f" ({declared:.3g} for the declared noise)"
        n_canaries = len(self.coins) // self.n_runs
        found = (
            f"{self.name} spends an epsilon of at least {self.lower_bound:.3g}{beside} and claims "
            f"{self.claim:.4g}, where {self.relation} (delta {self.delta:g}, confidence "
            f"{self.confidence:g}, {self.n_runs} {'fit' if self.n_runs == 1 else 'fits'} with "
            f"{n_canaries} {'canary' if n_canaries == 1 else 'canaries'} each): "
        )
        if self.exceeds_claim:
            return found + "the claim is false."
        if self.residuals is not None and not self.residuals.passed:
            names = "; ".join(test.name for test in self.residuals.failures)
            return found + f"the fit is not what the claim rests on, in: {names}."
        if self.mechanism_refuted:
            return found + "the mechanism that ran is not the one that is claimed."
        if self.claim > self.ceiling:
            checked = "; noise, samples and model are as declared" if self.residuals else ""
            return found + f"this audit cannot see more than {self.ceiling:.3g}{checked}."
        return found + f"nothing speaks against the claim (at most {self.ceiling:.3g} can be seen)."

    def __repr__(self) -> str:
        return (
            f"<AuditResult: {self.name}, epsilon at least {self.lower_bound:.3g}, "
            f"claimed {self.claim:.4g}>"
        )

    def __str__(self) -> str:
        return self.verdict

    def plot(self, ax: Any = None) -> Any:
        """Draw histograms of the scores in both worlds.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into. None makes a figure.

        Returns
        -------
        matplotlib Axes
            The Axes with the histograms.
        """
        plt = import_pyplot("AuditResult.plot")
        if ax is None:
            _, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
        low, high = np.quantile(self.scores, [0.002, 0.998]).tolist()
        bins = np.linspace(low, high, 41) if low < high else np.linspace(low - 1, low + 1, 41)
        for coin, color in zip((0, 1), COLORS):
            scores = self.scores[self.coins == coin]
            inside = np.clip(scores, bins[0], bins[-1])
            ax.hist(inside, bins, alpha=0.6, color=color, label=f"coin {coin} ({len(scores)})")
        ax.axvline(0, color=GRAY, linewidth=1, linestyle=":")
        ax.set_xlabel("attack score (log-likelihood ratio in favor of coin 1)")
        ax.set_ylabel("canaries")
        # a published class shows under the name of its sound form
        name = self.name.removeprefix("Published")
        subject = name if name == self.name else f"{name} as published"
        bound, claim = f"{self.lower_bound:.3g}", f"{self.claim:.3g}"
        ax.set_title(rf"{subject}: epsilon $\geq$ {bound}, claimed {claim}")
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": 2}
        ax.legend(title=self.relation, frameon=False, **place)
        return ax
