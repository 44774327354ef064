"""Privacy parameters, budget checks and the public record of the private estimators."""

from __future__ import annotations

import dataclasses
import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from inspect import cleandoc
from numbers import Real
from os import PathLike
from typing import Any, TypeAlias

from sklearn.base import BaseEstimator

from dplda.leaf._checks import LARGEST_DELTA
from dplda.leaf._compat import Interval as _Interval
from dplda.leaf._compat import Options
from dplda.leaf._messages import WARNING, log_event, warn_user
from dplda.privacy import (
    BudgetError,
    Guarantee,
    Ledger,
    NonPrivate,
    PrivacyLeakWarning,
    SeededNoiseWarning,
    calibrate,
    epsilon_of,
)
from dplda.privacy._card import GRADES
from dplda.privacy._charge import TOTAL_VARIATION, Charge, Step, budget_of
from dplda.privacy._events import Event
from dplda.privacy._guarantee import cached_epsilon
from dplda.privacy._mechanisms import DiscreteGaussian, NoNoise
from dplda.privacy._sums import ALONE, Shares, Sums


class Interval(_Interval):
    """An interval of numbers without True and False, which Python takes as 1 and 0."""

    def is_satisfied_by(self, val: object) -> bool:
        return not isinstance(val, bool) and super().is_satisfied_by(val)


# A smaller delta cannot pay for the distance of the noise from its ideal law.
SMALLEST_DELTA = 1e-14
PRIVACY_CONSTRAINTS = {
    # exp(epsilon) is useless long before 1e9, and finite numbers keep sums finite
    "epsilon": [
        None,
        Interval(Real, 0, 1e9, closed="right"),
        Options(Real, {math.inf}),
    ],
    "delta": [Interval(Real, SMALLEST_DELTA, LARGEST_DELTA, closed="both")],
    "ledger": [None, str, PathLike, Ledger],
}
NOISE_MULTIPLIER = [None, Interval(Real, 0, 1e9, closed="right")]
# the range of the flip probabilities that can be drawn
BIT_EPSILON = [
    None,
    Interval(Real, 1e-6, 11.3, closed="both"),
    Options(Real, {math.inf}),
]
NOMINAL_EPSILON = max(GRADES.values())  # a larger epsilon warns

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

# Who is trusted with private data (docs/threat_model.md).
TRUSTED_PROCESS = (
    "the process that computes it and whoever holds the texts; nobody who sees the "
    "result"
)
TRUSTED_OWNER = (
    "the program on the owner's own machine; neither the server nor the network"
)
TRUSTED_PARTY = (
    "each party with its own texts; neither the coordinator nor other parties"
)
BY_CALLER = "public by declaration of the caller"  # the origin of a public table

Noise: TypeAlias = DiscreteGaussian | NoNoise


@dataclasses.dataclass(frozen=True)
class Promise:
    """What the card says of an estimator, the same for all fits."""

    unit: str  # what is protected
    relation: str  # how two neighboring data sets differ
    mechanism: str  # the noise, in words
    theorem: str  # the page with the proof
    trusted: str = TRUSTED_PROCESS  # with private data (docs/threat_model.md)


class Described(BaseEstimator):
    """An estimator whose docstring takes descriptions from its base classes.

    A line of the docstring that is only the name of a parameter or attribute becomes
    the description in a base class, such as those below.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    verbose : int, default=0
        Above 0, progress and the time left go to the standard error: at most about ten
        lines of each step, and on a terminal one line, which is rewritten.

    Attributes
    ----------
    delta_ : float
        The delta at which `epsilon_` is stated.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions. `print` shows it in
        words.
    """

    def __init_subclass__(cls, **options: object) -> None:
        """Complete the docstring of a subclass."""
        super().__init_subclass__(**options)
        described: dict[str, str] = {}
        for base in reversed(cls.__mro__[1:]):
            if base.__module__.startswith("dplda."):
                text = cleandoc(base.__doc__ or "")
                entries = re.findall(r"^(\w+)( : .+\n(?:    .+\n?)+)", text, re.M)
                described |= {
                    name: (name + text).rstrip("\n") for name, text in entries
                }
        if cls.__doc__:
            cls.__doc__ = re.sub(
                r"^\w+$",
                lambda name: described.get(name[0], name[0]),
                cleandoc(cls.__doc__),
                flags=re.M,
            )

    def _assign(self, parameters: dict[str, object]) -> None:
        """Set the parameters of a constructor as given, from its ``locals()``."""
        del parameters["self"]
        self.__dict__.update(parameters)


class PrivateEstimator(Described):
    """An estimator with a guarantee.

    The class must have an attribute `_promise`, the constant part of its card.

    Parameters
    ----------
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, from 1e-14 to 0.01. Choose
        it well below 1 / n_docs.
    ledger : Ledger, str, path-like or None, default=None
        The ledger that the fit is charged to: a budget over many fits. A path names an
        SQLite file, which also counts the fits of other processes.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. A seed makes the fit reproducible, and
        voids the guarantee against anyone who knows or guesses the seed
        (`SeededNoiseWarning`).
    """

    _promise: Promise

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if not isinstance(getattr(cls, "_promise", None), Promise):
            raise TypeError(
                f"{cls.__name__} has no card: state unit, relation, mechanism and "
                "theorem as _promise = Promise(...), an attribute of the class"
            )

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        """The diagram that notebooks show, with the first lines of the card."""
        shown: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in shown and hasattr(self, "privacy_"):
            shown["text/html"] += f"<pre>{html.escape(self.privacy_.summary())}</pre>"
        return shown


def exactly_one(name: str, **statements: float | None) -> None:
    """Refuse a fit unless exactly one parameter states its budget.

    `name` is the class of the estimator, and `statements` has the usual parameter
    first.
    """
    if list(statements.values()).count(None) != len(statements) - 1:
        given = " and ".join(key for key in statements if statements[key] is not None)
        first, *others = statements
        asked = f"exactly one of {' or '.join(statements)}" if others else first
        leave = " and leave the other None" if others else ""
        raise ValueError(
            f"{name} needs {asked}, got {given or 'none'}; give {first} (the total "
            f"to spend, for instance 4.0; inf for no privacy){leave}"
        )


def warn_if_nominal(epsilon: float) -> None:
    """Warn of an epsilon that promises next to nothing."""
    if NOMINAL_EPSILON < epsilon < math.inf:
        warn_user(
            f"epsilon={epsilon:g} promises next to nothing: what somebody believes "
            f"about a record may change by a factor of exp({epsilon:g}); give at most "
            f"{NOMINAL_EPSILON:g}, or inf if the data need no protection",
            PrivacyLeakWarning,
        )


def gaussian_noise(
    epsilon: float | None,
    noise_multiplier: float | None,
    delta: float,
    n_rounds: int = 1,
    others: Sequence[Event] = (),
    shares: Shares = ALONE.shares,
) -> Noise:
    """The noise of each of `n_rounds` Gaussian releases without sampling.

    `epsilon` is the cost of all rounds and of the events `others` together, at `delta`.
    Without it, `noise_multiplier` is the noise of a round. `shares` says who adds the
    noise.
    """
    if epsilon == math.inf:
        return NoNoise()
    gaussian = shares.gaussian
    if epsilon is not None:

        def plan_of(multiplier: float) -> list[Event]:
            return [gaussian(multiplier).event] * n_rounds + [*others]

        noise_multiplier = calibrate(
            plan_of,
            float(epsilon),
            float(delta),
            total_variation=shares.total_variation,
        )
    return gaussian(float(noise_multiplier or 0.0))


def check_paid(
    estimator: PrivateEstimator,
    plan: Sequence[Step],
    paid_before: Guarantee | None,
    most: int,
) -> None:
    """Refuse a `partial_fit` call that would exceed `epsilon`, before it reads data.

    `plan` is the plan of the call, `paid_before` is the guarantee of earlier calls, and
    `most` is the number of calls that `epsilon` pays for. If another parameter states
    the budget, only a ledger limits the calls.
    """
    epsilon = estimator.epsilon
    if epsilon is None or math.isinf(epsilon) or paid_before is None:
        return
    events = [event for _, event in plan]
    distance = paid_before.total_variation + TOTAL_VARIATION
    total = epsilon_of(
        (*paid_before.events, *events), float(estimator.delta), total_variation=distance
    )
    if total > epsilon:
        raise BudgetError(
            f"this partial_fit would bring {type(estimator).__name__} to a total "
            f"epsilon of {total:.6g}, above epsilon={epsilon:g}, which pays for at "
            f"most max_iter={most} calls; nothing was read or charged. Call fit to "
            "train from scratch with a larger epsilon or max_iter. To decide on the "
            "number of calls as you go, state noise_multiplier instead of epsilon and "
            "pass ledger=Ledger(epsilon=...), which refuses the first call that is too "
            "expensive"
        )


def warn_if_seeded(name: str, seeded: bool) -> None:
    """Warn that seeded noise does not protect: anyone can try all 2**32 seeds."""
    if seeded:
        log_event("fit", "noise seeded", level=WARNING, estimator=name)
        warn_user(
            f"{name} draws its noise from random_state: anyone who knows or guesses "
            "the seed can remove the noise, and one result is enough to try all seeds; "
            "leave random_state=None for a model that will be published",
            SeededNoiseWarning,
        )


def released_so_far(estimator: BaseEstimator, unit: str) -> Any:
    """The releases of earlier calls, which `partial_fit` continues; None without any.

    ValueError if `unit` or the number of topics has changed since the first call.
    """
    released = getattr(estimator, "_released", None)
    if released is None:
        return None
    fitted = (estimator.privacy_.unit, estimator.components_.shape[0])
    if fitted != (unit, estimator.n_components):
        advice = (
            "give user_ids to every call or to none, or "
            if "user" in (unit, fitted[0])
            else ""
        )
        raise ValueError(
            f"partial_fit continues with privacy unit {fitted[0]!r} and "
            f"n_components={fitted[1]}, got {unit!r} and {estimator.n_components}; "
            f"{advice}call fit to start from scratch"
        )
    return released


def charge_of(
    estimator: PrivateEstimator,
    plan: Sequence[Step],
    *,
    unit: str,
    seeded: bool,
    sums: Sums = ALONE,
    n_streams: int = 1,
    is_first: bool = True,
) -> Charge:
    """The charge of a call of `fit` or `partial_fit`, for its ``with`` block.

    `n_streams` is the number of streams that the call draws from; each may draw as many
    words as a charge counts. Warns of noise from a given seed, if there is noise. A
    call that continues no other (`is_first`) warns of other budgets in this process,
    and of a large epsilon.
    """
    name = type(estimator).__name__
    n_exact = sum(isinstance(event, NonPrivate) for _, event in plan)
    seeded = seeded and n_exact < len(plan)  # where there is noise
    warn_if_seeded(name, seeded)
    budget = None
    if is_first and n_exact == 0:
        if sums.shares.n_parties == 1:  # else each party has a ledger of its own
            budget = budget_of(name, estimator.ledger)
        epsilon = getattr(estimator, "epsilon", None)
        if epsilon is None:
            events = tuple(event for _, event in plan)
            epsilon = cached_epsilon(events, float(estimator.delta))
        warn_if_nominal(epsilon)
    return Charge(
        plan,
        label=name,
        unit=unit,
        ledger=estimator.ledger,
        seeded=seeded,
        total_variation=n_streams * sums.shares.total_variation,
        meet=sums.begin,
        kept=_results_of(estimator),
        budget=budget,
    )


def _results_of(estimator: BaseEstimator) -> Callable[[], str]:
    """What says, if a call that begins now fails, which of its results are kept."""
    guarantee_before = vars(estimator).get("privacy_")
    vectorizer_before = vars(estimator).get("vectorizer_")

    def said() -> str:
        guarantee = vars(estimator).get("privacy_")
        vectorizer = vars(estimator).get("vectorizer_")
        if guarantee is not None and guarantee is not guarantee_before:
            return "what was released before is in the fitted attributes"
        if vectorizer is not vectorizer_before and hasattr(vectorizer, "vocabulary_"):
            return "the chosen words are in vectorizer_"
        return "no result is kept"

    return said


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
