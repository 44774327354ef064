"""Perplexity or score against epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from dplda.displays._topics import COLORS, GRAY, import_pyplot, model_name
from dplda.leaf._vocabulary import check_model

MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = (":", "--", "-.")
MAX_TICKS = 8

Curves = Mapping[str, Mapping[float, Sequence[float]]]


@dataclass(eq=False)
class PrivacyUtilityDisplay:
    """Perplexity or score against epsilon, with lines for models that are not private.

    Use :meth:`from_estimators` or :meth:`from_search`. Draw it for public or synthetic data.

    Parameters
    ----------
    curves : dict of str to dict of float to list of float
        For each label, the values at each epsilon, drawn as their mean and range. Those at epsilon
        ``inf`` are a horizontal line.
    references : dict of str to float, default=None
        Horizontal lines, such as ``{"unigram": 1266.0}``.
    value_name : str, default="held-out perplexity"
        Label of the vertical axis.
    epsilon_name : str, default="epsilon"
        Label of the horizontal axis.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure that holds the chart.
    ax_ : matplotlib Axes
        The chart.

    Notes
    -----
    **Privacy.** Every point is a fit, and epsilons of fits on the same documents add up. No epsilon
    covers exact perplexities and scores of private documents.

    Examples
    --------
    >>> from dplda.displays import PrivacyUtilityDisplay
    >>> curves = {"SubLDA": {1.0: [1109.0], 4.0: [905.0]}}
    >>> display = PrivacyUtilityDisplay(curves, references={"unigram": 1270.0})
    >>> display.plot()  # doctest: +SKIP
    """

    curves: Curves
    _: KW_ONLY
    references: Mapping[str, float] | None = None
    value_name: str = "held-out perplexity"
    epsilon_name: str = "epsilon"

    @classmethod
    def from_estimators(
        cls,
        estimators: Iterable[Any],
        X: Any,
        *,
        references: Mapping[str, float] | None = None,
        ax: Any = None,
    ) -> PrivacyUtilityDisplay:
        """Draw the held-out perplexity of fitted models against their `epsilon_`.

        Parameters
        ----------
        estimators : iterable of fitted topic models
            Models of one class with one protected unit form a curve.
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Documents that none of the models was fitted on.
        references : dict of str to float, default=None
            Further horizontal lines, such as ``{"unigram": unigram_perplexity(X_train, X)}``.
        ax : matplotlib Axes, default=None
            Axes to draw into. None makes a figure.

        Returns
        -------
        display : PrivacyUtilityDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If there is no model.
        """
        curves: dict[str, dict[float, list[float]]] = {}
        deltas = set()
        for estimator in estimators:
            check_model(estimator, "a fitted topic model of dplda", holds="epsilon_")
            epsilon, name = float(estimator.epsilon_), model_name(estimator)
            private = math.isfinite(epsilon)
            label = f"{name} ({estimator.privacy_.unit if private else 'not private'})"
            values = curves.setdefault(label, {}).setdefault(epsilon, [])
            values.append(estimator.perplexity(X))
            if private:
                deltas.add(float(estimator.delta_))
        if not curves:
            raise ValueError("estimators must hold at least one fitted topic model, got none")
        at = f" at delta = {deltas.pop():.2g}" if len(deltas) == 1 else ""
        return cls(curves, references=references, epsilon_name=f"epsilon{at}").plot(ax)

    @classmethod
    def from_search(
        cls, search: Any, *, references: Mapping[str, float] | None = None, ax: Any = None
    ) -> PrivacyUtilityDisplay:
        """Draw the test scores of a search over `epsilon`, one curve for each other setting.

        Parameters
        ----------
        search : fitted GridSearchCV or RandomizedSearchCV
            A search over one parameter whose name ends in ``epsilon``, such as ``epsilon``,
            ``sublda__epsilon`` or ``bit_epsilon``.
        references, ax : optional
            As in `from_estimators`.

        Returns
        -------
        display : PrivacyUtilityDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If the search varies no epsilon, or more than one.
        """
        check_model(search, "a fitted GridSearchCV or RandomizedSearchCV", holds="cv_results_")
        results = search.cv_results_
        names = [name for name in results["params"][0] if name.endswith("epsilon")]
        if len(names) != 1:
            raise ValueError(
                "the search must vary one parameter whose name ends in epsilon, got "
                f"{sorted(results['params'][0])}; add for example 'epsilon': [1.0, 4.0] to "
                "param_grid"
            )
        (key,) = names
        splits = np.array([results[f"split{i}_test_score"] for i in range(search.n_splits_)])
        curves: dict[str, dict[float, list[float]]] = {}
        for scores, setting in zip(splits.T, results["params"]):
            others = {name: value for name, value in setting.items() if name != key}
            label = ", ".join(f"{name.split('__')[-1]} = {value}" for name, value in others.items())
            curve = curves.setdefault(label or "all folds", {})
            curve.setdefault(float(setting[key]), []).extend(scores.tolist())
        return cls(
            curves,
            references=references,
            value_name="test score, mean and range of folds",
            epsilon_name=f"{key.split('__')[-1]} of each fit",
        ).plot(ax)

    def plot(self, ax: Any = None) -> PrivacyUtilityDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into. None makes a figure.

        Returns
        -------
        self : PrivacyUtilityDisplay
            The display.
        """
        plt = import_pyplot("PrivacyUtilityDisplay.plot")
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        lines, n_drawn = dict(self.references or {}), 0
        for label, curve in self.curves.items():
            private = {epsilon: curve[epsilon] for epsilon in sorted(curve) if epsilon < math.inf}
            if private:
                self._draw_curve(label, private, n_drawn)
                n_drawn += 1
            if math.inf in curve:
                name = f"{label} (not private)" if private else label
                lines[name] = float(np.mean(curve[math.inf]))
        for i, (label, value) in enumerate(lines.items()):
            ax.axhline(value, color=GRAY, linestyle=DASHES[i % len(DASHES)], label=label)
        epsilons = sorted({e for curve in self.curves.values() for e in curve if e < math.inf})
        if epsilons:
            ax.set_xscale("log")
            epsilons = epsilons[:: -(-len(epsilons) // MAX_TICKS)]
            ax.set_xticks(epsilons, [f"{epsilon:.3g}" for epsilon in epsilons])
            ax.set_xticks([], minor=True)
        ax.set_xlabel(f"{self.epsilon_name} (logarithmic; less is more private)")
        ax.set_ylabel(self.value_name)
        ax.set_title("Utility against privacy", loc="left")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9")
        ax.set_axisbelow(True)
        ax.legend(frameon=False)
        return self

    def _draw_curve(self, label: str, curve: Mapping[float, Sequence[float]], i: int) -> None:
        mean = np.array([np.mean(values) for values in curve.values()])
        below = mean - [np.min(values) for values in curve.values()]
        above = [np.max(values) for values in curve.values()] - mean
        self.ax_.errorbar(
            list(curve), mean, yerr=np.maximum([below, above], 0), label=label, capsize=3,
            color=COLORS[i % len(COLORS)], marker=MARKERS[i % len(MARKERS)],
        )  # fmt: skip
