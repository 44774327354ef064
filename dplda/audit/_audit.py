"""Audits: lower bounds on the epsilon that a fit spends, from its releases."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from dplda._checks import check_integer
from dplda._corpus import check_counts
from dplda._progress import with_bar
from dplda.audit._attacks import Attack
from dplda.audit._bounds import (
    check_probabilities,
    gaussian_lower_bound,
    many_run_lower_bound,
    one_run_lower_bound,
)
from dplda.audit._declared_noise import (
    best_share,
    f_dp_bound_of_guesses,
    has_curve,
    independent_lower_bound,
)
from dplda.audit._document_attacks import DocumentAttack
from dplda.audit._published_attacks import BatchAttack, CountsAttack, MovesAttack, RecoveryAttack
from dplda.audit._report_attacks import ReportAttack
from dplda.audit._residual_result import ResidualResult
from dplda.audit._residuals import can_be_watched, check_record
from dplda.audit._token_attack import TokenAttack
from dplda.audit._watch import Record, watched
from dplda.audit._word_attack import WordAttack
from dplda.displays._style import COLORS, GRAY, import_pyplot
from dplda.privacy import (
    Event,
    PrivacyLeakWarning,
    PrivateDataWarning,
    PublicPriorWarning,
    SeededNoiseWarning,
)
from dplda.privacy._bounds_on_epsilon import all_gaussian, grouped
from dplda.privacy._observation import Release, observe_releases
from dplda.privacy._streams import Purpose, Streams

# Shares of the canaries that are guessed; the bounds divide the error among them.
GUESSED = (0.02, 0.1, 0.2, 0.5)
# Shares of the error of the f-DP bound and of the bound for independent canaries, mostly the best.
ERROR_SHARES = (0.2, 0.8)
# Share of the error at which these bounds refute a claim. Tight bounds come close to true claims,
# and the verdict must not be wrong more often than `confidence` says.
VERDICT_SHARE = 0.02
N_CANARIES, N_RUNS = 1000, 200

METHODS = ("fit", "partial_fit")

# More would not fit in memory.
MAX_CANARIES, MAX_RUNS = 10**7, 10**6
NOTHING = "{} claims an infinite epsilon here, so there is nothing to audit; give it a finite one"
SCORE = "attack score (log-likelihood ratio in favor of coin 1)"

# An estimator's class names its attack in `_attack`.
_ATTACKS: dict[str, Callable[..., Attack]] = {
    "document": DocumentAttack,
    "word": WordAttack,
    "token": TokenAttack,
    "report": ReportAttack,
    "published SUB-LDA": CountsAttack,
    "published HDP-LDA": MovesAttack,
    "published private SVI": BatchAttack,
    "published iFTM": RecoveryAttack,
}


# What the bounds assume of the release.
ANY_MECHANISM = "nothing"
DECLARED_CURVE = "the trade-off curve of the declared events, all noise times one factor"
OWN_NOISE = DECLARED_CURVE + "; each canary has noise of its own"
GAUSSIAN = "Gaussian noise without sampling"


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


def audit_epsilon(
    estimator: BaseEstimator,
    X: Any,
    *,
    design: str = "one-run",
    n_canaries: int | None = None,
    n_runs: int | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    method: str = "fit",
    attack: Callable[..., Attack] | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> AuditResult:
    """Attack fits of an estimator, and compute a lower bound on the epsilon that they spend.

    Canaries are invented documents or words. Fair coins decide which of them are hidden among the
    documents `X`. An attack sees all releases and guesses the coins. Too many right guesses refute
    the claim.

    Parameters
    ----------
    estimator : estimator
        `SubLDA`, `HDPLDA`, `PrivateSVILDA`, `LPLDA`, `OLPLDA`, `RandomizedResponse`, `IFTMParty`,
        or a class of `dplda.published`, which claims the published epsilon. It is copied.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of the other documents.
    design : {"one-run", "many-run"}, default="one-run"
        "one-run": many canaries at once, and the bound of [1]_. "many-run": one canary in half of
        the fits, and Clopper-Pearson bounds on the rates of an event. In both worlds, the first
        half of the fits chooses the event and the second half counts it.
    n_canaries : int, default=None
        Number of canaries in a fit of "one-run". None takes 1000.
    n_runs : int, default=None
        Number of fits. None takes 1 for "one-run" and 200 for "many-run".
    delta : float, default=None
        The delta of (epsilon, delta)-differential privacy, in [0, 1). None takes that of the
        estimator, or 1e-5.
    confidence : float, default=0.95
        Probability with which the bound holds, in (0, 1).
    method : {"fit", "partial_fit"}, default="fit"
        How the estimator is trained. "partial_fit" of a central estimator gives all documents to
        each of `max_iter` calls, and of another one each half of them to one call.
    attack : callable, default=None
        Class of the attack, such as `ReportedWordAttack` or `RequestAttack`, or any callable
        ``attack(estimator, n_words, n_canaries, streams)``. None takes the attack that the
        estimator's class names.
    random_state : int, RandomState instance or None, default=None
        Seed of the coins and of the fits. None draws both from the operating system.
    verbose : int, default=0
        Whether to show a progress bar.

    Returns
    -------
    AuditResult
        The bounds, the claim, the scores of all coins, and the residual check of the first fit.

    Raises
    ------
    TypeError
        If a number of canaries or fits is not an integer.
    ValueError
        If there is no attack on the estimator, its claim is infinite, or a parameter is invalid.
        If the attack or the estimator has no `partial_fit`.

    See Also
    --------
    observe_releases : Collects the releases that an attack sees.
    residual_check : The second verdict, alone, on more documents.

    Notes
    -----
    **Privacy.** Each fit spends the estimator's epsilon on `X`, and charges its ledger if it has
    one. With ``random_state=None`` the result is a function of releases and coins. With a seed no
    guarantee covers it. Audit with public or invented documents.

    **Bounds.** `AuditResult.lower_bound` assumes nothing. `AuditResult.bounds` has stronger bounds,
    each with its assumption, for claims that are a sum of events. The bounds with assumptions share
    the error ``1 - confidence``.

    A low bound proves nothing, because a better attack may exist. A bound above the claim refutes
    the claim. No bound can exceed `AuditResult.ceiling`, which grows with the number of canaries
    and fits.

    The first fit of an estimator with a curator is watched from inside (`residual_check`). Its
    noise, samples, contributions and fitted attributes are compared with the declared ones. This
    finds faults that the guesses are too weak for; false alarms are rarer than 1e-6.

    References
    ----------
    .. [1] T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS
       2023.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.audit import audit_epsilon
    >>> X = make_topic_corpus(n_docs=20, n_words=30, n_components=2, random_state=0).data
    >>> model = SubLDA(n_components=2, epsilon=4.0, delta=1e-5, max_iter=5)
    >>> result = audit_epsilon(model, X, n_canaries=200, random_state=0)
    >>> 0 < result.lower_bound < result.claim
    True
    """
    n_canaries, n_runs = _sizes(design, n_canaries, n_runs)
    make_attack = default_attack(estimator) if attack is None else attack
    delta = getattr(estimator, "delta", 1e-5) if delta is None else delta
    check_probabilities(delta, confidence)
    delta = float(delta)
    if getattr(estimator, "epsilon", None) == math.inf:
        raise ValueError(NOTHING.format(type(estimator).__name__))
    X = check_counts(clone(estimator), X, reset=True)
    streams = Streams.from_random_state(random_state)
    attacker = make_attack(estimator, X.shape[1], n_canaries, streams)
    _check_method(attacker, method)
    claim, scores, coins, residuals, events = math.inf, [], [], None, ()
    runs = range(n_runs)
    for run in with_bar("audit", runs) if verbose else runs:
        words = streams.words(Purpose.AUDIT, 0, run, n_canaries + 1)
        coin = (words[1:] >> np.uint64(63)).astype(np.int64)
        if design == "many-run":
            coin[:] = run % 2
        seed = None if random_state is None else int(words[0] >> np.uint64(33))
        planted = attacker.plant(X, coin)
        watch = run == 0 and method == "fit" and can_be_watched(attacker.estimator)
        record = Record(planted) if watch else None
        model, releases = observed_fit(attacker, planted, seed, method, record)
        claim = attacker.claim(model, delta)
        events = attacker._events(model) if hasattr(attacker, "_events") else ()
        if math.isinf(claim):
            raise ValueError(NOTHING.format(type(estimator).__name__))
        if record is not None:
            residuals = check_record(model, record, streams)
        scores.append(attacker.scores(model, releases))
        coins.append(coin)
    return _result(
        type(estimator).__name__,
        attacker.relation,
        design,
        np.concatenate(scores),
        np.concatenate(coins).astype(bool),
        claim=claim,
        events=events,
        delta=delta,
        confidence=float(confidence),
        n_runs=n_runs,
        residuals=residuals,
    )


def _check_method(attacker: Attack, method: str) -> None:
    """Refuse a method that is unknown, or that the attack does not understand."""
    if method not in METHODS:
        raise ValueError(f"method must be 'fit' or 'partial_fit', got {method!r}")
    understood = method in getattr(attacker, "methods", ("fit",))
    if not understood or not hasattr(attacker.estimator, method):
        raise ValueError(
            f"{type(attacker).__name__} on {type(attacker.estimator).__name__} has no "
            f"method={method!r}; leave it out, to audit fit"
        )


def _sizes(design: str, n_canaries: int | None, n_runs: int | None) -> tuple[int, int]:
    """Number of canaries in a fit, and number of fits."""
    if design not in ("one-run", "many-run"):
        raise ValueError(f"design must be 'one-run' or 'many-run', got {design!r}")
    if design == "many-run" and n_canaries not in (None, 1):
        raise ValueError(
            f"design='many-run' has one canary, got n_canaries={n_canaries}; leave it out"
        )
    one_run = design == "one-run"
    if n_canaries is None:
        n_canaries = N_CANARIES if one_run else 1
    if n_runs is None:
        n_runs = 1 if one_run else N_RUNS
    n_canaries = check_integer("n_canaries", n_canaries, 1, MAX_CANARIES)
    # "many-run" needs two fits with and two without the canary: to choose an event, and to count
    return n_canaries, check_integer("n_runs", n_runs, 1 if one_run else 4, MAX_RUNS)


def default_attack(estimator: BaseEstimator) -> Callable[..., Attack]:
    """Find the attack that an estimator's class names in `_attack`."""
    name = getattr(estimator, "_attack", None)
    if name not in _ATTACKS:
        raise ValueError(
            f"{type(estimator).__name__} names no attack; pass attack=, or set the class attribute "
            f"_attack to one of {', '.join(map(repr, _ATTACKS))}"
        )
    return _ATTACKS[name]


def observed_fit(
    attacker: Attack, X: Any, random_state: Any, method: str = "fit", record: Record | None = None
) -> tuple[BaseEstimator, list[Release]]:
    """Train a copy, collect everything that it releases, and record the fit if there is a record.

    An attack without a method `_train` leaves the training to ``model.fit(X)``.
    """
    model = clone(attacker.estimator)
    if "random_state" in model.get_params():
        model.set_params(random_state=random_state)
    watch = nullcontext() if record is None else watched(model, record)
    with warnings.catch_warnings(), watch, observe_releases() as releases:
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # the audit measures the leak
        warnings.simplefilter("ignore", SeededNoiseWarning)  # the documents are invented
        warnings.simplefilter("ignore", PrivateDataWarning)
        warnings.simplefilter("ignore", PublicPriorWarning)
        if hasattr(attacker, "_train"):
            attacker._train(model, X, method)
        else:
            model.fit(X)
    return model, releases


def _result(
    name: str,
    relation: str,
    design: str,
    scores: np.ndarray,
    coins: np.ndarray,
    *,
    claim: float,
    events: tuple[Event, ...],
    delta: float,
    confidence: float,
    n_runs: int,
    residuals: ResidualResult | None,
) -> AuditResult:
    gaussian, assuming, mechanism_refuted = math.nan, [], False
    if design == "one-run":
        bound = _bound_of_guesses(scores, coins, delta, confidence)
        # all guesses are right, and sure of it
        ceiling = _bound_of_guesses(np.where(coins, 1.0, -1.0), coins, delta, confidence)
        assuming = _declared_bounds(scores, coins, events, delta, confidence)
        if any(b.epsilon > claim for b in assuming):
            strict = 1.0 - VERDICT_SHARE * (1.0 - confidence)
            surer = _declared_bounds(scores, coins, events, delta, strict)
            mechanism_refuted = any(b.epsilon > claim for b in surer)
    else:
        best = _event_counts(coins.astype(float), coins, delta)
        ceiling = many_run_lower_bound(*best, delta=delta, confidence=confidence)
        counts = _event_counts(scores, coins, delta)
        bound = many_run_lower_bound(*counts, delta=delta, confidence=confidence)
        if delta > 0:
            gaussian = gaussian_lower_bound(*counts, delta=delta, confidence=confidence)
            if events and all_gaussian(grouped(events)):
                assuming = [AuditBound("Gaussian noise", gaussian, GAUSSIAN)]
    bounds = (AuditBound(f"{design} counts", bound, ANY_MECHANISM), *assuming)
    return AuditResult(
        name, relation, design, bound, gaussian, confidence, claim, delta, scores, coins, n_runs,
        ceiling, residuals, bounds, mechanism_refuted,
    )  # fmt: skip


def _declared_bounds(
    scores: np.ndarray,
    coins: np.ndarray,
    events: tuple[Event, ...],
    delta: float,
    confidence: float,
) -> list[AuditBound]:
    """The bounds that rest on the declared mechanism; they divide the error."""
    if not events or not all(map(has_curve, events)):
        return []
    of_curve, of_independent = (1.0 - (1.0 - confidence) * share for share in ERROR_SHARES)
    guesses = _right_guesses(scores, coins, GUESSED)
    by_curve = f_dp_bound_of_guesses(len(coins), guesses, events, delta, of_curve)
    ((n_guesses, n_right),) = _right_guesses(scores, coins, (best_share(events),))
    independent = independent_lower_bound(
        n_guesses, n_right, events, delta=delta, confidence=of_independent, n_canaries=len(coins)
    )
    return [
        AuditBound("f-DP", by_curve, DECLARED_CURVE),
        AuditBound("independent canaries", independent, OWN_NOISE),
    ]


def _bound_of_guesses(
    scores: np.ndarray, coins: np.ndarray, delta: float, confidence: float
) -> float:
    """Take the best bound of several numbers of guesses."""
    confidence = 1.0 - (1.0 - confidence) / len(GUESSED)
    return max(
        one_run_lower_bound(len(coins), n, right, delta=delta, confidence=confidence)
        for n, right in _right_guesses(scores, coins, GUESSED)
    )


def _right_guesses(
    scores: np.ndarray, coins: np.ndarray, shares: tuple[float, ...]
) -> list[tuple[int, int]]:
    """Numbers of guesses, and of right ones. The most certain guesses come first."""
    surest = np.argsort(-np.abs(scores), kind="stable")
    right = ((scores > 0) == coins)[surest]
    sizes = [max(1, round(share * len(scores))) for share in shares]
    return [(n, int(right[:n].sum())) for n in sizes]


def _event_counts(scores: np.ndarray, coins: np.ndarray, delta: float) -> tuple[int, int, int, int]:
    """Count true and false positives, and runs, of the event "score above t".

    The first half of the runs of each world chooses t, the second half counts.
    """
    one, zero = scores[coins], scores[~coins]
    chosen = _best_threshold(one[: len(one) // 2], zero[: len(zero) // 2], delta)
    one, zero = one[len(one) // 2 :], zero[len(zero) // 2 :]
    return int((one > chosen).sum()), int((zero > chosen).sum()), len(one), len(zero)


def _best_threshold(one: np.ndarray, zero: np.ndarray, delta: float) -> float:
    def bound(threshold: float) -> float:
        counts = int((one > threshold).sum()), int((zero > threshold).sum())
        return many_run_lower_bound(*counts, len(one), len(zero), delta=delta)

    candidates = np.quantile(np.concatenate([one, zero]), np.linspace(0, 1, 101))
    return float(max(candidates, key=bound))
