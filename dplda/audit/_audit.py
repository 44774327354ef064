"""Audits: lower bounds on the epsilon that a fit spends, from its releases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom
from sklearn.base import BaseEstimator, clone

from dplda.audit._attacks import ATTACKS, Attack, Target, train
from dplda.audit._replay import CheckResult, watched
from dplda.audit._residuals import can_be_watched, residual_check
from dplda.core._corpus import Matrix, check_counts
from dplda.leaf._checks import check_integer, check_number, check_probability
from dplda.privacy._streams import Purpose, Streams


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult:
    """Result of an audit. ``print`` shows it in one sentence.

    Parameters
    ----------
    name : str
        Class of the estimator.
    relation : str
        Event that a coin decided, such as "a document is there or not".
    lower_bound : float
        Lower bound on the epsilon that was spent. It assumes nothing of the mechanism.
    confidence : float
        Probability with which the bound holds.
    claim : float
        The claimed epsilon.
    delta : float
        The delta of the bound and of the claim.
    scores : ndarray of shape (n_coins,)
        Score of each coin; a large score means a guess of 1.
    coins : ndarray of shape (n_coins,), bool
        The coins.
    n_runs : int
        Number of fits.
    ceiling : float
        The largest `lower_bound` that the coins can give, if all guesses are right.
    residuals : CheckResult or None
        Residual check of the estimator; None without a curator that can be watched.
    """

    name: str
    relation: str
    lower_bound: float
    confidence: float
    claim: float
    delta: float
    scores: np.ndarray
    coins: np.ndarray
    n_runs: int
    ceiling: float
    residuals: CheckResult | None

    @property
    def exceeds_claim(self) -> bool:
        """Whether the bound refutes the claim, at the stated confidence."""
        return self.lower_bound > self.claim

    @property
    def refuted(self) -> bool:
        """Whether the bound or the residual check speaks against the claim.

        A sound fit is refuted with probability at most ``1 - confidence`` plus 1e-6.
        """
        return self.exceeds_claim or (
            self.residuals is not None and not self.residuals.passed
        )

    def __repr__(self) -> str:
        found = (
            f"{self.name} spends an epsilon of at least {self.lower_bound:.3g} and "
            f"claims {self.claim:.4g}, where {self.relation} (delta {self.delta:g}, "
            f"confidence {self.confidence:g}, fits: {self.n_runs}, coins: "
            f"{len(self.coins)}): "
        )
        if self.exceeds_claim:
            return found + "the claim is false."
        if self.residuals is not None and not self.residuals.passed:
            names = "; ".join(check.name for check in self.residuals.failures)
            return found + f"the fit is not what the claim rests on, in: {names}."
        checked = "; noise, samples and model are as declared" if self.residuals else ""
        return found + f"no bound above {self.ceiling:.3g} can be seen{checked}."


def audit_epsilon(
    estimator: BaseEstimator,
    X: Matrix,
    *,
    attack: str | Attack | None = None,
    n_canaries: int = 1000,
    n_runs: int = 1,
    delta: float | None = None,
    confidence: float = 0.95,
    random_state: object = None,
) -> AuditResult:
    """Attack fits of an estimator, and bound the epsilon that they spend from below.

    Canaries are invented documents or words. Fair coins decide which of them are hidden
    among the documents `X`. An attack sees all releases and guesses the coins. Too many
    right guesses refute the claim.

    Parameters
    ----------
    estimator : estimator
        `SubLDA`, `HDPLDA`, `PrivateSVILDA`, `LPLDA`, `OLPLDA`, `RandomizedResponse`,
        `IFTMParty`, or any other with your own attack. It is copied.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of the other documents.
    attack : str or Attack, default=None
        The attacked unit. None takes the unit that the estimator's class protects:
        "document", "word", "token" or "report". You can also give "user" or your own
        attack.
    n_canaries : int, default=1000
        Number of canaries in a fit.
    n_runs : int, default=1
        Number of fits; all their coins count together.
    delta : float, default=None
        The delta of the bound, in [0, 1). None takes the estimator's delta, or 1e-5.
    confidence : float, default=0.95
        Probability with which the bound holds, in [0.5, 1).
    random_state : int, RandomState instance or None, default=None
        Seed of the coins and of the fits. None draws both from the operating system.

    Returns
    -------
    AuditResult
        The bound, the claim, the scores of all coins, and a residual check of the
        estimator.

    Raises
    ------
    ValueError
        If there is no attack on the estimator, its claim is infinite, or a parameter is
        invalid.

    See Also
    --------
    observe_releases : Collects the releases that an attack sees.
    residual_check : The second verdict alone.

    Notes
    -----
    **Privacy.** Each fit spends the estimator's epsilon on `X`, and charges its ledger
    if it has one. With ``random_state=None`` the result is a function of releases and
    coins. With a seed, no guarantee covers the result. Audit with public or invented
    documents.

    The bound assumes nothing of the mechanism [1]_. A low bound proves nothing, because
    a better attack may exist.

    If the estimator has a curator, one more fit is watched from inside
    (`residual_check`).

    References
    ----------
    .. [1] T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training
       Run", NeurIPS 2023.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.audit import audit_epsilon
    >>> X = make_topic_corpus(20, 30, 2, random_state=0).data
    >>> model = SubLDA(n_components=2, epsilon=4.0, delta=1e-5, max_iter=5)
    >>> result = audit_epsilon(model, X, n_canaries=200, random_state=0)
    >>> 0 < result.lower_bound < result.claim
    True
    """
    attack = _attack_on(estimator, attack)
    n_canaries = check_integer("n_canaries", n_canaries, 1)
    n_runs = check_integer("n_runs", n_runs, 1)
    delta = getattr(estimator, "delta", 1e-5) if delta is None else delta
    check_probability("delta", delta)
    # at least a half: a bound that is wrong more often than right says nothing
    check_number("confidence", confidence, 0.5, 1.0, closed="left")
    _check_claim(estimator, getattr(estimator, "epsilon", None))
    X = check_counts(clone(estimator), X, reset=True)
    streams = Streams.from_random_state(random_state)
    target = Target(clone(estimator), X.shape[1], n_canaries, streams)
    if attack.prepare is not None:
        attack.prepare(target)
    all_coins = []
    all_scores = []
    for run in range(n_runs):
        words = streams.reader(Purpose.AUDIT, 0, run).words(n_canaries + 1)
        coins = (words[1:] >> np.uint64(63)).astype(np.int64)
        data = attack.plant(target, X, coins)
        model = clone(target.estimator)
        if "random_state" in model.get_params():
            seed = None if random_state is None else _seed(words[0])
            model.set_params(random_state=seed)
        with watched() as tape:
            train(model, data)
        claim = attack.cost(model, float(delta))
        _check_claim(estimator, claim)
        all_coins.append(coins == 1)
        all_scores.append(attack.scores(target, model, tape))
    coins = np.concatenate(all_coins)
    scores = np.concatenate(all_scores)
    residuals = None
    if can_be_watched(estimator):
        word = streams.reader(Purpose.AUDIT, 5).words(1)[0]
        seed = None if random_state is None else _seed(word)
        residuals = residual_check(estimator, X, random_state=seed)
    sure = np.where(coins, 1.0, -1.0)  # of all guesses, which are right
    return AuditResult(
        name=type(estimator).__name__,
        relation=attack.relation,
        lower_bound=bound_of_guesses(scores, coins, delta, confidence),
        confidence=float(confidence),
        claim=claim,
        delta=float(delta),
        scores=scores,
        coins=coins,
        n_runs=n_runs,
        ceiling=bound_of_guesses(sure, coins, delta, confidence),
        residuals=residuals,
    )


def _seed(word: np.uint64) -> int:
    """A seed of a fit from one random word."""
    return int(word >> np.uint64(33))


def _attack_on(estimator: BaseEstimator, attack: str | Attack | None) -> Attack:
    """The given attack, or the attack of a unit; None takes the one the class names."""
    own = getattr(estimator, "_attack", None)
    chosen = own if attack is None else attack
    if isinstance(chosen, Attack):
        return chosen
    if not isinstance(chosen, str) or chosen not in ATTACKS:
        raise ValueError(
            f"attack must be an Attack or one of {', '.join(map(repr, ATTACKS))}, got "
            f"{attack!r}; None takes the attribute _attack of "
            f"{type(estimator).__name__}, which is {own!r}"
        )
    return ATTACKS[chosen]


def _check_claim(estimator: BaseEstimator, claim: float | None) -> None:
    if claim == math.inf:
        raise ValueError(
            f"{type(estimator).__name__} claims an infinite epsilon here, so there is "
            "nothing to audit; give it a finite one"
        )


# bounds from the scores of an attack and the coins that it has guessed


def bound_of_guesses(
    scores: np.ndarray, coins: np.ndarray, delta: float, confidence: float
) -> float:
    """Take the best bound of several numbers of guesses; surest guesses come first.

    A strong attack is surest of a few canaries; a weak attack needs many. Half of them
    are guessed, a fourth of these and so on, down to the square root of their number.
    The bounds divide the error.
    """
    numbers = [max(1, len(scores) // 2)]
    while (numbers[-1] // 4) ** 2 >= len(scores):
        numbers.append(numbers[-1] // 4)
    confidence = 1.0 - (1.0 - confidence) / len(numbers)
    surest = np.argsort(-np.abs(scores), kind="stable")
    right = ((scores > 0) == coins)[surest]
    bounds = []
    for n in numbers:
        n_right = int(right[:n].sum())
        bounds.append(
            one_run_lower_bound(
                len(coins), n, n_right, delta=delta, confidence=confidence
            )
        )
    return max(bounds)


def one_run_lower_bound(
    n_canaries: int,
    n_guesses: int,
    n_right: int,
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Lower bound on epsilon from one run with many canaries, without assumptions.

    If the mechanism is (epsilon, delta)-private, the number of right guesses exceeds v
    at most as often as a binomial number with success rate ``exp(epsilon) / (1 +
    exp(epsilon))``, up to a term in delta (Steinke, Nasr and Jagielski 2023, theorem
    5.2). Canaries of several independent runs may be counted together, because the runs
    together are one private mechanism.
    """

    def excess(epsilon: float) -> float:
        """Upper bound on the probability of so many right guesses, minus the error."""
        # of at least n_right, n_right - 1, ..., 0
        at_least = np.arange(n_right, -1, -1)
        tail = binom.sf(at_least - 1, n_guesses, expit(epsilon))
        gains = (tail[1:] - tail[0]) / np.arange(1, n_right + 1)
        probability = tail[0] + 2.0 * n_canaries * delta * gains.max()
        return float(probability) - (1.0 - confidence)

    if n_right == 0 or excess(0.0) >= 0.0:
        return 0.0
    # All n guesses are right with probability 1 - n exp(-epsilon) or more: the excess
    # is positive at this epsilon, and the bound is below it.
    largest = math.log(n_guesses / confidence) + 1.0
    # one step of the search is subtracted, so that the bound is never rounded up
    step = 1e-9
    return float(brentq(excess, 0.0, largest, xtol=step)) - step
