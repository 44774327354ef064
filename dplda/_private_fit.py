"""What the private estimators share besides the topic model: parameters and the public record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from os import PathLike
from typing import Any

from dplda._compat import Interval, Options
from dplda._warnings import warn_user
from dplda.privacy import Event, Guarantee, Ledger, SeededNoiseWarning, epsilon_of
from dplda.privacy._curator import TOTAL_VARIATION

SMALLEST_DELTA = 1e-14
PRIVACY_CONSTRAINTS = {
    "epsilon": [None, Interval(Real, 0, 1e9, closed="right"), Options(Real, {math.inf})],
    # a smaller delta could not pay for the distance of the noise from its ideal law
    "delta": [Interval(Real, SMALLEST_DELTA, 1, closed="left")],
    "noise_multiplier": [None, Interval(Real, 0, 1e9, closed="right")],
    "ledger": [None, str, PathLike, Ledger],
}

# What every central guarantee rests on; quoted in `privacy_`.
ASSUMPTIONS = (
    "the columns of X (the vocabulary) are public and were not chosen by looking at the data",
    "scores, perplexities and transforms of private documents are not covered",
    "AES-256 with a secret random key cannot be told from random bits",
)


def exactly_one(estimator: Any, *names: str) -> None:
    """Refuse a fit for which no or more than one statement of the privacy budget is given."""
    given = [name for name in names if getattr(estimator, name) is not None]
    if len(given) != 1:
        listed = " or ".join(names)
        said = " and ".join(given) if given else "neither" if len(names) == 2 else "none"
        raise ValueError(
            f"{type(estimator).__name__} needs exactly one of {listed}, got {said}; give "
            f"{names[0]} (the total to spend, for instance 4.0; inf for no privacy) and leave "
            f"{'the other' if len(names) == 2 else 'the others'} None"
        )


def warn_if_seeded(estimator: Any, seeded: bool) -> None:
    if seeded and getattr(estimator, "epsilon", None) != float("inf"):
        warn_user(
            f"{type(estimator).__name__} draws its noise from random_state: whoever knows the "
            "seed, or sees two results of it, can remove the noise; leave random_state=None for a "
            "model that will be published",
            SeededNoiseWarning,
        )


def released_so_far(estimator: Any, unit: str) -> Any:
    """What an earlier fit released, for `partial_fit` to go on with; None if there was none."""
    released = getattr(estimator, "_released", None)
    if released is None:
        return None
    fitted = (estimator.privacy_.unit, estimator.components_.shape[0])
    if fitted != (unit, estimator.n_components):
        raise ValueError(
            f"partial_fit goes on with privacy unit {fitted[0]!r} and n_components={fitted[1]}, "
            f"got {unit!r} and {estimator.n_components}; call fit to start again"
        )
    return released


def make_guarantee(
    estimator: Any,
    events: Sequence[Event],
    *,
    earlier: Guarantee | None,
    unit: str,
    relation: str,
    mechanism: str,
    sensitivity: float,
    noise_scale: float | tuple[float, ...] | None,
    noise_multiplier: float | tuple[float, ...] | None,
    seeded: bool,
    assumptions: tuple[str, ...] = (),
) -> Guarantee:
    """The guarantee of what was released now and, in `partial_fit`, earlier."""
    distance = TOTAL_VARIATION
    if earlier is not None:
        events = (*earlier.events, *events)
        seeded = seeded or earlier.seeded
        distance += earlier.total_variation
        assumptions += tuple(a for a in earlier.assumptions if a not in ASSUMPTIONS + assumptions)
    delta = float(estimator.delta)
    return Guarantee(
        unit=unit,
        relation=relation,
        epsilon=epsilon_of(events, delta, total_variation=distance),
        delta=delta,
        mechanism=mechanism,
        sensitivity=sensitivity,
        noise_scale=noise_scale,
        noise_multiplier=noise_multiplier,
        seeded=seeded,
        assumptions=ASSUMPTIONS + assumptions,
        events=tuple(events),
        total_variation=distance,
    )


def publish(estimator: Any, guarantee: Guarantee, **attributes: Any) -> None:
    """Set the fitted attributes, all at once: never a model beside another model's epsilon."""
    attributes |= {
        "privacy_": guarantee,
        "epsilon_": guarantee.epsilon,
        "delta_": guarantee.delta,
    }
    for name, value in attributes.items():
        setattr(estimator, name, value)
