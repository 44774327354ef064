"""What a fit says when it is done: its guarantee and its fitted attributes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from sklearn.base import BaseEstimator

from dplda.core._private_estimator import Promise
from dplda.leaf._messages import log_event, warn_user
from dplda.privacy import Guarantee, NonPrivate
from dplda.privacy._charge import TOTAL_VARIATION, Charge
from dplda.privacy._events import Event
from dplda.privacy._guarantee import cached_epsilon

# Assumptions of every central guarantee, which `privacy_` quotes.
AES = (
    "AES-256 with a secret random key cannot be told from random bits "
    "(the usual assumption about this cipher)"
)
COLUMNS = (
    "the columns of X (the vocabulary) are public and were not chosen by looking at "
    "the data, unless by a private release whose cost is added to this one"
)
SETTINGS = (
    "no parameter was chosen by looking at private data, unless the ledger counts the "
    "choice"
)
ASSUMPTIONS = (COLUMNS, SETTINGS, AES)
DISTINCT = (
    "documents are distinct, for what is said of topics (weak_topics_) and not for "
    "privacy: a copy confirms what is chance"
)
PUBLIC_MODEL = (
    "the model is public, and so is a reference that is given: each was released with "
    "a guarantee of its own, or comes from public texts"
)
VOCABULARY = "vocabulary"
# the provenance of a model that sees columns of counts, not words
UNKNOWN_WORDS = ((VOCABULARY, "origin not known to the model"),)
BY_CALLER = "public by declaration of the caller"  # the origin of a public table


def make_guarantee(
    events: Iterable[Event],
    *,
    delta: float,
    seeded: bool,
    promise: Promise | None = None,
    charge: Charge | None = None,
    paid_before: Guarantee | None = None,
    assumptions: tuple[str, ...] = (),
    common: tuple[str, ...] = ASSUMPTIONS,
    provenance: tuple[tuple[str, str], ...] = UNKNOWN_WORDS,
    total_variation: float = TOTAL_VARIATION,
    **stated: Any,
) -> Guarantee:
    """The guarantee of the releases of this call and of the calls before it.

    Parameters
    ----------
    events : iterable of Event
        Events of this call.
    delta : float
        Where epsilon is stated.
    seeded : bool
        Whether noise comes from a given seed.
    promise : Promise or None, default=None
        Gives the fields `trusted` and `theorem`.
    charge : Charge or None, default=None
        Gives the statement and the receipt of the ledger.
    paid_before : Guarantee or None, default=None
        The guarantee of earlier calls of `partial_fit`.
    assumptions, common : tuple of str
        Assumptions of this estimator, and of all central estimators.
    provenance : tuple of (str, str)
        Public inputs, and their origins.
    total_variation : float
        Distance of all noise of this call from its ideal law.
    **stated : object
        Other fields of `Guarantee`.

    Returns
    -------
    guarantee : Guarantee
        The guarantee of all calls.
    """
    events = tuple(events)
    distance = total_variation
    if promise is not None:
        stated = {"trusted": promise.trusted, "theorem": promise.theorem} | stated
    if paid_before is not None:
        events = (*paid_before.events, *events)
        seeded = seeded or paid_before.seeded
        distance += paid_before.total_variation
        known = common + assumptions
        assumptions += tuple(a for a in paid_before.assumptions if a not in known)
        named = {name for name, _ in provenance}
        provenance += tuple(
            pair for pair in paid_before.provenance if pair[0] not in named
        )
        for name in ("mechanism", "trusted"):
            stated[name] = _both(getattr(paid_before, name), stated.get(name, ""))
    return Guarantee(
        epsilon=cached_epsilon(events, float(delta), total_variation=distance),
        delta=float(delta),
        seeded=seeded,
        assumptions=common + assumptions,
        events=events,
        total_variation=distance,
        provenance=provenance,
        ledger="" if charge is None else charge.statement,
        receipt="" if charge is None else charge.receipt,
        **stated,
    )


def _both(before: str, now: str) -> str:
    """A field of the card for earlier calls and this one, if they differ."""
    later = "; in later calls: "
    if not before or now in before.split(later):
        return before or now
    return before + later + now


def noted_if_cut_short(guarantee: Guarantee, n_iter: int, n_charged: int) -> Guarantee:
    """The guarantee of a fit; it says so if the fit ended before its last round."""
    if n_iter >= n_charged:
        return guarantee
    done = f"{n_iter} of {n_charged}, then an interrupt; all are charged"
    provenance = (*guarantee.provenance, ("rounds", done))
    return dataclasses.replace(guarantee, provenance=provenance)


def warn_if_cut_short(estimator: BaseEstimator, n_charged: int) -> None:
    """Warn if a fit ended before its last round."""
    if estimator.n_iter_ < n_charged:
        warn_user(
            f"{type(estimator).__name__} was interrupted after {estimator.n_iter_} of "
            f"{n_charged} rounds: it is a fitted model of these, and epsilon_ counts "
            "all rounds, which are charged; to spend no more, use this model, or save "
            "it"
        )


def no_guarantee(
    unit: str,
    relation: str,
    mechanism: str,
    *,
    noise_scale: float = 0.0,
    seeded: bool = False,
) -> Guarantee:
    """The record of a model without a proved guarantee, with noise or without."""
    return Guarantee(
        unit=unit,
        relation=relation,
        epsilon=math.inf,
        delta=0.0,
        mechanism=mechanism,
        sensitivity=math.inf,
        noise_scale=noise_scale,
        seeded=seeded,
        events=(NonPrivate(),),
    )


def publish(
    estimator: BaseEstimator, guarantee: Guarantee, **attributes: object
) -> None:
    """Set all fitted attributes at once, then write to the log.

    No interrupt can come between two attributes, so that a model never shows the
    epsilon of another fit.
    """
    attributes |= {
        "privacy_": guarantee,
        "epsilon_": guarantee.epsilon,
        "delta_": guarantee.delta,
    }
    vars(estimator).update(attributes)
    log_event(
        "fit",
        "model fitted",
        estimator=type(estimator).__name__,
        unit=guarantee.unit,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        n_iter=attributes.get("n_iter_"),
        seeded=guarantee.seeded,
        receipt=guarantee.receipt or None,
    )
