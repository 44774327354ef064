"""Audits: lower bounds on the epsilon that a fit spends, from its releases."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from dplda.audit._attacks import Attack
from dplda.audit._audit_result import AuditResult
from dplda.audit._bounds import check_probabilities
from dplda.audit._document_attacks import DocumentAttack
from dplda.audit._published_attacks import BatchAttack, CountsAttack, MovesAttack, RecoveryAttack
from dplda.audit._report_attacks import ReportAttack
from dplda.audit._residuals import can_be_watched, check_record
from dplda.audit._score_bounds import AttackedFit, audit_result
from dplda.audit._token_attack import TokenAttack
from dplda.audit._watch import Record, watched, without_warnings
from dplda.audit._word_attack import WordAttack
from dplda.core._corpus import check_counts
from dplda.leaf._checks import check_integer
from dplda.leaf._progress import with_bar
from dplda.privacy._curator import Release, observe_releases
from dplda.privacy._streams import Purpose, Streams

N_CANARIES, N_RUNS = 1000, 200

METHODS = ("fit", "partial_fit")

# More would not fit in memory.
MAX_CANARIES, MAX_RUNS = 10**7, 10**6
NOTHING = "{} claims an infinite epsilon here, so there is nothing to audit; give it a finite one"

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
    if not callable(make_attack):
        raise TypeError(
            f"attack must be a class of attacks, such as dplda.audit.UserAttack, got {attack!r}"
        )
    delta = getattr(estimator, "delta", 1e-5) if delta is None else delta
    check_probabilities(delta, confidence)
    delta = float(delta)
    if getattr(estimator, "epsilon", None) == math.inf:
        raise ValueError(NOTHING.format(type(estimator).__name__))
    X = check_counts(clone(estimator), X, reset=True)
    streams = Streams.from_random_state(random_state)
    attacker = make_attack(estimator, X.shape[1], n_canaries, streams)
    _check_method(attacker, method)
    fits, runs = [], range(n_runs)
    for run in with_bar("audit", runs) if verbose else runs:
        words = streams.words(Purpose.AUDIT, 0, run, n_canaries + 1)
        coins = (words[1:] >> np.uint64(63)).astype(np.int64)
        if design == "many-run":
            coins[:] = run % 2
        seed = None if random_state is None else int(words[0] >> np.uint64(33))
        watch = run == 0 and method == "fit" and can_be_watched(attacker.estimator)
        fits.append(
            _attacked_fit(attacker, X, coins, seed, method, delta, streams if watch else None)
        )
    name = type(estimator).__name__
    return audit_result(name, attacker.relation, design, fits, delta, float(confidence))


def _attacked_fit(
    attacker: Attack,
    X: sp.csr_array,
    coins: np.ndarray,
    seed: int | None,
    method: str,
    delta: float,
    streams: Streams | None,
) -> AttackedFit:
    """Hide canaries, fit, and guess the coins. `streams` are for a residual check of the fit."""
    planted = attacker.plant(X, coins)
    record = None if streams is None else Record(planted)
    model, releases = observed_fit(attacker, planted, seed, method, record)
    claim = attacker.claim(model, delta)
    events = attacker._events(model) if hasattr(attacker, "_events") else ()
    if math.isinf(claim):
        raise ValueError(NOTHING.format(type(model).__name__))
    residuals = None
    if record is not None and streams is not None:
        residuals = check_record(model, record, streams)
    return AttackedFit(claim, events, attacker.scores(model, releases), coins, residuals)


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
    with without_warnings(), watch, observe_releases() as releases:
        if hasattr(attacker, "_train"):
            attacker._train(model, X, method)
        else:
            model.fit(X)
    return model, releases
