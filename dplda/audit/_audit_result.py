"""What an audit finds: bounds, the claim, and the verdict on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplda.audit._residual_result import ResidualResult
from dplda.displays._style import COLORS, GRAY, import_pyplot

SCORE = "attack score (log-likelihood ratio in favor of coin 1)"


@dataclass(frozen=True)
class AuditBound:
    """One lower bound on epsilon.

    Parameters
    ----------
    name : str
        Name of the method.
    epsilon : float
        The bound.
    assumption : str
        What the bound assumes of the release.
    """

    name: str
    epsilon: float
    assumption: str

    def __str__(self) -> str:
        return f"{self.name}: epsilon at least {self.epsilon:.3g} (assumes {self.assumption})"


@dataclass(frozen=True, eq=False)
class AuditResult:
    """Result of an audit.

    Parameters
    ----------
    name : str
        Class of the estimator.
    relation : str
        Event that a coin decided, such as "a document is there or not".
    design : {"one-run", "many-run"}
        "one-run": many canaries in each fit. "many-run": one canary in half of many fits.
    lower_bound : float
        Lower bound on the epsilon that was spent, with probability `confidence`. It assumes
        nothing of the mechanism.
    gaussian_lower_bound : float
        A stronger bound for unsampled Gaussian noise only; nan for "one-run".
    confidence : float
        Probability with which `lower_bound` holds. The bounds with assumptions in `bounds` hold
        together with this probability as well.
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
    ceiling : float, default=inf
        The largest bound that this design can give, if all guesses are right.
    residuals : ResidualResult or None, default=None
        Residual check of the first fit; None for estimators without a curator.
    bounds : tuple of AuditBound, default=()
        `lower_bound`, and stronger bounds with what they assume.
    mechanism_refuted : bool, default=False
        Whether a bound with assumptions exceeds the claim at a fiftieth of the error. This refutes
        the claim, which rests on what the bound assumes.
    """

    name: str
    relation: str
    design: str
    lower_bound: float
    gaussian_lower_bound: float
    confidence: float
    claim: float
    delta: float
    scores: np.ndarray
    coins: np.ndarray
    n_runs: int
    ceiling: float = math.inf
    residuals: ResidualResult | None = None
    bounds: tuple[AuditBound, ...] = ()
    mechanism_refuted: bool = False

    @property
    def exceeds_claim(self) -> bool:
        """Whether the bound without assumptions refutes the claim, at the stated confidence."""
        return self.lower_bound > self.claim

    @property
    def refuted(self) -> bool:
        """Whether any bound or the residual check speaks against the claim.

        A sound fit is refuted with probability at most 1.02 times ``1 - confidence``, plus 1e-6.
        """
        return (
            self.exceeds_claim
            or self.mechanism_refuted
            or (self.residuals is not None and not self.residuals.passed)
        )

    @property
    def _strongest(self) -> AuditBound | None:
        """The largest of the bounds that assume something."""
        assuming = self.bounds[1:]
        return max(assuming, key=lambda bound: bound.epsilon) if assuming else None

    @property
    def verdict(self) -> str:
        """The result in one sentence; it says how much the design can show."""
        best = self._strongest
        beside = f" ({best.epsilon:.3g} by {best.name})" if best is not None else ""
        found = (
            f"{self.name} spends an epsilon of at least {self.lower_bound:.3g}{beside} and claims "
            f"{self.claim:.4g}, where {self.relation} (delta {self.delta:g}, confidence "
            f"{self.confidence:g}, {self.n_runs} {'fit' if self.n_runs == 1 else 'fits'} with "
            f"{len(self.coins) // self.n_runs} "
            f"{'canary' if len(self.coins) == self.n_runs else 'canaries'} each): "
        )
        if self.exceeds_claim:
            return found + "the claim is false."
        if self.residuals is not None and not self.residuals.passed:
            names = "; ".join(test.name for test in self.residuals.failures)
            return found + f"the fit is not what the claim rests on, in: {names}."
        if self.mechanism_refuted:
            return found + "the mechanism that ran is not the one that is claimed."
        if self.claim > self.ceiling:
            return found + f"this audit cannot see more than {self.ceiling:.3g}{self._beside}."
        return found + f"nothing speaks against the claim (at most {self.ceiling:.3g} can be seen)."

    @property
    def _beside(self) -> str:
        """What else was looked at where the claim is out of reach."""
        return "" if self.residuals is None else "; noise, samples and model are as declared"

    def __repr__(self) -> str:
        return (
            f"<AuditResult: {self.name}, epsilon at least {self.lower_bound:.3g}, "
            f"claimed {self.claim:.4g}>"
        )

    def __str__(self) -> str:
        return self.verdict

    @property
    def _title(self) -> str:
        """Title of the picture. It shows a published class under the name of its sound form."""
        name = self.name.removeprefix("Published")
        subject = name if name == self.name else f"{name} as published"
        return f"{subject}: epsilon $\\geq$ {self.lower_bound:.3g}, claimed {self.claim:.3g}"

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
        worlds = {"0": self.scores[~self.coins], "1": self.scores[self.coins]}
        low, high = np.quantile(self.scores, [0.002, 0.998]).tolist()
        bins = np.linspace(low, high, 41) if low < high else np.linspace(low - 1, low + 1, 41)
        for (coin, scores), color in zip(worlds.items(), COLORS):
            inside = np.clip(scores, bins[0], bins[-1])
            ax.hist(inside, bins, alpha=0.6, color=color, label=f"coin {coin} ({len(scores)})")
        ax.axvline(0, color=GRAY, linewidth=1, linestyle=":")
        ax.set_xlabel(SCORE)
        ax.set_ylabel("canaries")
        ax.set_title(self._title)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": 2}
        ax.legend(title=self.relation, frameon=False, **place)
        return ax
