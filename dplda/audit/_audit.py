"""Audits: lower bounds on the epsilon that a fit spends, from its releases."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from dplda.audit._attacks import DOCUMENT, USER, WORD, Attack, Target
from dplda.audit._audit_result import AuditResult
from dplda.audit._bounds import (
    VERDICT_SHARE,
    bound_of_guesses,
    has_noise,
    independent_lower_bound,
)
from dplda.audit._local_attacks import REPORT, REPORTED_WORD, REQUEST, TOKEN
from dplda.audit._published_attacks import PUBLISHED
from dplda.audit._residuals import check_record
from dplda.audit._watch import Record, can_be_watched, watched, without_warnings
from dplda.core._corpus import check_counts
from dplda.leaf._checks import check_integer, check_number, check_probability
from dplda.leaf._progress import with_bar
from dplda.privacy._curator import Release, observe_releases
from dplda.privacy._streams import Purpose, Streams

# More would not fit in memory.
MAX_CANARIES, MAX_RUNS = 10**7, 10**6
# By unit. An estimator's class names its attack in `_attack`.
ATTACKS = {
    attack.unit: attack
    for attack in (DOCUMENT, USER, WORD, TOKEN, REPORT, REPORTED_WORD, REQUEST, *PUBLISHED)
}


def audit_epsilon(
    estimator: BaseEstimator,
    X: Any,
    *,
    attack: str | Attack | None = None,
    n_canaries: int = 1000,
    n_runs: int = 1,
    delta: float | None = None,
    confidence: float = 0.95,
    method: str = "fit",
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
    attack : str or Attack, default=None
        The unit that is attacked. None takes what the estimator's class protects: "document",
        "word", "token", "report", or the name of a published algorithm. Others are "user",
        "reported word" (one word more in a report), "requested report" (a `RandomizedResponse`
        behind `MemoizedReports`), and attacks of your own.
    n_canaries : int, default=1000
        Number of canaries in a fit.
    n_runs : int, default=1
        Number of fits; all their coins count together.
    delta : float, default=None
        The delta of (epsilon, delta)-differential privacy, in [0, 1). None takes that of the
        estimator, or 1e-5.
    confidence : float, default=0.95
        Probability with which the bound holds, in (0, 1).
    method : {"fit", "partial_fit"}, default="fit"
        How the estimator is trained. "partial_fit" of a central estimator gives all documents to
        each of `max_iter` calls, and of another one each half of them to one call.
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

    **Bounds.** `AuditResult.lower_bound` assumes nothing [1]_. `AuditResult.declared_bound` is
    stronger and rests on the declared events, for claims that are a sum of events.

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
    attack = _attack_on(estimator, attack)
    n_canaries = check_integer("n_canaries", n_canaries, 1, MAX_CANARIES)
    n_runs = check_integer("n_runs", n_runs, 1, MAX_RUNS)
    delta = getattr(estimator, "delta", 1e-5) if delta is None else delta
    check_probability("delta", delta)
    check_number("confidence", confidence, 0.0, 1.0, closed="neither")
    _check_method(attack, estimator, method)
    _check_claim(estimator, getattr(estimator, "epsilon", None))
    X = check_counts(clone(estimator), X, reset=True)
    streams = Streams.from_random_state(random_state)
    target = Target(clone(estimator), attack, X.shape[1], n_canaries, streams, method)
    if attack.prepare is not None:
        attack.prepare(target)
    all_coins, all_scores, residuals, runs = [], [], None, range(n_runs)
    for run in with_bar("audit", runs) if verbose else runs:
        words = streams.words(Purpose.AUDIT, 0, run, n_canaries + 1)
        coins = (words[1:] >> np.uint64(63)).astype(np.int64)
        data = attack.plant(target, X, coins)
        seed = None if random_state is None else int(words[0] >> np.uint64(33))
        model, releases, record = watched_fit(target, data, seed)
        claim = attack.claim(target, model, float(delta))
        _check_claim(estimator, claim)
        if record is not None and run == 0 and method == "fit":
            residuals = check_record(model, record, streams)
        all_coins.append(coins == 1)
        all_scores.append(attack.scores(target, model, releases))
    coins, scores = np.concatenate(all_coins), np.concatenate(all_scores)
    events, n_right = attack.events(target, model), int(((scores > 0) == coins).sum())
    declared, refuted = None, False
    if events and all(map(has_noise, events)):
        declared, surer = (
            independent_lower_bound(len(coins), n_right, events, delta=float(delta), confidence=c)
            for c in (confidence, 1.0 - VERDICT_SHARE * (1.0 - confidence))
        )
        refuted = surer > claim
    sure = np.where(coins, 1.0, -1.0)  # of all guesses, which are right
    return AuditResult(
        name=type(estimator).__name__,
        relation=attack.relation,
        lower_bound=bound_of_guesses(scores, coins, delta, confidence),
        declared_bound=declared,
        confidence=float(confidence),
        claim=claim,
        delta=float(delta),
        scores=scores,
        coins=coins,
        n_runs=n_runs,
        ceiling=bound_of_guesses(sure, coins, delta, confidence),
        residuals=residuals,
        mechanism_refuted=refuted,
    )


def watched_fit(
    target: Target, data: dict[str, Any], random_state: Any
) -> tuple[BaseEstimator, list[Release], Record | None]:
    """Train a copy, and collect everything that it releases and gives to its curator."""
    model = clone(target.estimator)
    if "random_state" in model.get_params():
        model.set_params(random_state=random_state)
    record = Record(data["X"]) if can_be_watched(model) else None
    watch = nullcontext() if record is None else watched(model, record)
    with without_warnings(), watch, observe_releases() as releases:
        target.attack.train(target, model, data)
    target.calls = [] if record is None else record.calls
    return model, releases, record


def _attack_on(estimator: BaseEstimator, attack: str | Attack | None) -> Attack:
    """The attack itself, or that of a unit; None takes the one that the class names."""
    if isinstance(attack, Attack):
        return attack
    names = ", ".join(map(repr, ATTACKS))
    if attack is None:
        attack = getattr(estimator, "_attack", None)
        if attack not in ATTACKS:
            raise ValueError(
                f"{type(estimator).__name__} names no attack; pass attack=, or set the class "
                f"attribute _attack to one of {names}"
            )
    if not isinstance(attack, str) or attack not in ATTACKS:
        raise ValueError(f"attack must be an Attack or one of {names}, got {attack!r}")
    return ATTACKS[attack]


def _check_method(attack: Attack, estimator: BaseEstimator, method: str) -> None:
    """Refuse a method that is unknown, or that the attack does not understand."""
    if method not in ("fit", "partial_fit"):
        raise ValueError(f"method must be 'fit' or 'partial_fit', got {method!r}")
    if method not in attack.methods or not hasattr(estimator, method):
        raise ValueError(
            f"the attack on a {attack.unit} of {type(estimator).__name__} has no "
            f"method={method!r}; leave it out, to audit fit"
        )


def _check_claim(estimator: BaseEstimator, claim: float | None) -> None:
    if claim == math.inf:
        raise ValueError(
            f"{type(estimator).__name__} claims an infinite epsilon here, so there is nothing to "
            "audit; give it a finite one"
        )
