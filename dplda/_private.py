"""What the private estimators share besides the topic model: parameters and the public record."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from os import PathLike
from typing import Any

from dplda._compat import Interval
from dplda._messages import warn_user
from dplda.privacy import Event, Guarantee, Ledger, SeededNoiseWarning, epsilon_of
from dplda.privacy._curator import TOTAL_VARIATION

PRIVACY_CONSTRAINTS = {
    "epsilon": [None, Interval(Real, 0, None, closed="right")],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "noise_multiplier": [None, Interval(Real, 0, None, closed="neither")],
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
            f"{type(estimator).__name__} draws its noise from random_state: whoever knows the seed "
            "can remove the noise; leave random_state=None for a model that will be published",
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


def record_guarantee(
    estimator: Any,
    events: Sequence[Event],
    *,
    unit: str,
    relation: str,
    mechanism: str,
    sensitivity: float,
    noise_scale: float | tuple[float, ...],
    noise_multiplier: float | tuple[float, ...],
    seeded: bool,
    assumptions: tuple[str, ...] = (),
) -> None:
    """Set `privacy_`, `epsilon_` and `delta_` from the events that ran."""
    delta = float(estimator.delta)
    epsilon = epsilon_of(events, delta, total_variation=TOTAL_VARIATION)
    estimator.privacy_ = Guarantee(
        unit=unit,
        relation=relation,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        sensitivity=sensitivity,
        noise_scale=noise_scale,
        noise_multiplier=noise_multiplier,
        seeded=seeded,
        assumptions=ASSUMPTIONS + assumptions,
        events=tuple(events),
        total_variation=TOTAL_VARIATION,
    )
    estimator.epsilon_ = epsilon
    estimator.delta_ = delta
