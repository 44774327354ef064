"""The closed list of privacy events: what one step of an algorithm costs, as plain values.

An event stands for the pair of output laws that dominates one step, for the unit that the
algorithm protects. It holds public numbers only. The sensitivity is already part of it: a Gaussian
event carries noise divided by sensitivity, so that no accountant has to know a neighboring
relation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, get_args

from dplda.leaf._checks import check_integer, check_number

SMALLEST_FLIP = 1e-290  # of a bucket; Renyi divergences of far smaller ones underflow to 0
MAX_COUNT = 2**36  # of steps; the rounding errors of more could not be bounded


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Gaussian noise on a vector.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the L2 sensitivity of the vector.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _set_number(self, "noise_multiplier")


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace noise on one cell.

    Parameters
    ----------
    scale : float
        Scale of the noise divided by the sensitivity of that cell. A change of two cells is
        two of these events, which cost less than one event of doubled sensitivity.
    """

    scale: float

    def __post_init__(self) -> None:
        _set_number(self, "scale")


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """A random choice whose log probability ratios span at most `epsilon`.

    It is `epsilon`-DP and ``epsilon**2 / 8``-zCDP (Cesar and Rogers, ALT 2021); the accountant
    charges less than either.
    """

    epsilon: float

    def __post_init__(self) -> None:
        _set_number(self, "epsilon")


@dataclass(frozen=True, slots=True)
class RandomizedResponseEvent:
    """One value replaced, with some probability, by a uniform one.

    Parameters
    ----------
    flip_mixture : float
        Probability, strictly between 0 and 1, that the value is replaced by a uniform draw
        from all buckets. A bit is therefore reported wrongly with half this probability.
    n_buckets : int, default=2
        Number of possible values.
    """

    flip_mixture: float
    n_buckets: int = 2

    def __post_init__(self) -> None:
        _set_number(self, "flip_mixture", 1.0)
        _set_integer(self, "n_buckets", at_least=2)
        _check_flip(self.flip_mixture, self.n_buckets)


@dataclass(frozen=True, slots=True)
class ErasedResponse:
    """A bit after randomized response, or nothing: each with probability 1/2.

    Two bits of optimized unary encoding are such a response, if one of them is a one in one
    document and the other in the other document: with probability 1/2 they are reported alike. If
    there is a report, a fair coin replaces the bit with probability `flip_mixture`, strictly
    between 0 and 1. The pure epsilon is ``log(2 / flip_mixture - 1)``.
    """

    flip_mixture: float

    def __post_init__(self) -> None:
        _set_number(self, "flip_mixture", 1.0)
        _check_flip(self.flip_mixture)


@dataclass(frozen=True, slots=True)
class ZeroConcentrated:
    """Any step that satisfies `rho`-zCDP.

    Parameters
    ----------
    rho : float
        The Renyi divergence of every order a > 1 is at most ``rho * a``.
    """

    rho: float

    def __post_init__(self) -> None:
        _set_number(self, "rho")


@dataclass(frozen=True, slots=True)
class PoissonSampled:
    """A Gaussian step on a secret sample: each record takes part independently.

    Parameters
    ----------
    sampling_probability : float
        Probability that a record takes part, in (0, 1].
    event : Gaussian
        The step without sampling.
    """

    sampling_probability: float
    event: Gaussian

    def __post_init__(self) -> None:
        _set_number(self, "sampling_probability", 1.0, closed="right")
        if not isinstance(self.event, Gaussian):
            raise TypeError(
                "only a Gaussian event can be Poisson-sampled, "
                f"got {type(self.event).__name__}: no other amplification is proved here"
            )


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same event several times, each time with fresh randomness.

    Parameters
    ----------
    event : Event
        The event that is repeated.
    count : int
        Number of repetitions, from 1 to 2**36.
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise TypeError(f"Repeated needs a privacy event, got {type(self.event).__name__}")
        _set_integer(self, "count", at_least=1)


@dataclass(frozen=True, slots=True)
class ApproximateDP:
    """Any step that is (`epsilon`, `delta`)-differentially private, for instance by a statement.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        In [0, 1).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _set_number(self, "epsilon", closed="left")
        _set_number(self, "delta", 1.0, closed="left")


@dataclass(frozen=True, slots=True)
class NonPrivate:
    """A step without protection. Its epsilon is infinite."""


Event: TypeAlias = (
    Gaussian
    | Laplace
    | BoundedRange
    | RandomizedResponseEvent
    | ErasedResponse
    | ZeroConcentrated
    | PoissonSampled
    | Repeated
    | ApproximateDP
    | NonPrivate
)

_BY_NAME = {cls.__name__: cls for cls in get_args(Event)}


def to_record(event: Event) -> dict[str, Any]:
    """Write an event as a dictionary that JSON can hold without loss.

    The class is under ``"event"``, an inner event under ``"of"``, other fields have their names.
    """
    record: dict[str, Any] = {"event": type(event).__name__}
    for field in fields(event):
        value = getattr(event, field.name)
        inner = field.name == "event"
        record["of" if inner else field.name] = to_record(value) if inner else value
    return record


def from_record(record: Mapping[str, Any]) -> Event:
    """Read an event back from what `to_record` wrote; equal to the last bit."""
    values = dict(record)
    name = values.pop("event", None)
    if name not in _BY_NAME:
        raise ValueError(f"unknown privacy event {name!r}; known are {', '.join(_BY_NAME)}")
    if "of" in values:
        values["event"] = from_record(values.pop("of"))
    try:
        event: Event = _BY_NAME[name](**values)
    except TypeError as error:
        raise ValueError(f"the record of a {name} event has the wrong fields") from error
    return event


def _set_number(event: Any, name: str, high: float = math.inf, *, closed: str = "neither") -> None:
    """Make a field a plain float above 0 and below `high`."""
    number = check_number(name, getattr(event, name), 0.0, high, closed=closed)
    object.__setattr__(event, name, number)


def _set_integer(event: Any, name: str, *, at_least: int) -> None:
    """Make a field a plain int of at least the given value."""
    number = check_integer(name, getattr(event, name), at_least, MAX_COUNT)
    object.__setattr__(event, name, number)


def _check_flip(flip_mixture: float, n_buckets: int = 2) -> None:
    """Refuse a response with hardly any noise."""
    if flip_mixture / n_buckets < SMALLEST_FLIP:
        raise ValueError(
            f"flip_mixture / n_buckets must be at least {SMALLEST_FLIP:g}, got "
            f"{flip_mixture / n_buckets:g}; take NonPrivate() for hardly any noise"
        )
