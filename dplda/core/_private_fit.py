"""What a private fit does before it reads data: budget, noise, charge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sklearn.base import BaseEstimator

from dplda.core._private_estimator import PrivateEstimator
from dplda.leaf._messages import WARNING, log_event, warn_user
from dplda.privacy import (
    BudgetError,
    Guarantee,
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

NOMINAL_EPSILON = max(GRADES.values())  # a larger epsilon warns

Noise: TypeAlias = DiscreteGaussian | NoNoise


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
