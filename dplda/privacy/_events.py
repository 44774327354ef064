"""The closed list of privacy events: what one step costs, as plain values.

An event stands for the pair of output laws that dominates one step, for the unit that
the algorithm protects. It holds public numbers only. The sensitivity is already part of
it: a Gaussian event carries noise divided by sensitivity, so an accountant needs no
neighboring relation.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

from dplda.leaf._checks import check_integer, check_number

SMALLEST_NOISE = 1e-100  # the square of a smaller noise multiplier is 0
MAX_COUNT = 2**36  # of steps; the rounding errors of more could not be bounded


class Event:
    """A privacy event: one of the classes below."""

    def _set(
        self,
        name: str,
        low: float = 0.0,
        high: float = math.inf,
        closed: str = "neither",
    ) -> None:
        """Convert a field to a plain float in an interval."""
        number = check_number(name, getattr(self, name), low, high, closed=closed)
        object.__setattr__(self, name, number)


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise on a vector.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the L2 sensitivity of the vector.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        self._set("noise_multiplier", SMALLEST_NOISE, closed="left")


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise on one cell.

    Parameters
    ----------
    scale : float
        Scale of the noise divided by the sensitivity of that cell. A change of two
        cells is two of these events, which cost less than one event of doubled
        sensitivity.
    """

    scale: float

    def __post_init__(self) -> None:
        self._set("scale")


@dataclass(frozen=True)
class BoundedRange(Event):
    """A random choice whose log probability ratios span at most `epsilon`.

    It is `epsilon`-DP and ``epsilon**2 / 8``-zCDP (Cesar and Rogers, ALT 2021); the
    accountant charges less than either.
    """

    epsilon: float

    def __post_init__(self) -> None:
        self._set("epsilon")


@dataclass(frozen=True)
class RandomizedResponseEvent(Event):
    """A bit that a fair coin replaces with some probability.

    Parameters
    ----------
    flip_mixture : float
        Probability, strictly between 0 and 1, that a fair coin replaces the bit. The
        bit is therefore reported wrongly with half this probability. The pure epsilon
        is ``log(2 / flip_mixture - 1)``.
    """

    flip_mixture: float

    def __post_init__(self) -> None:
        # the ratio of a smaller one is too large for a float
        self._set("flip_mixture", sys.float_info.min, 1.0, "left")


@dataclass(frozen=True)
class PoissonSampled(Event):
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
        self._set("sampling_probability", 0.0, 1.0, "right")
        if not isinstance(self.event, Gaussian):
            raise TypeError(
                "only a Gaussian event can be Poisson-sampled, got "
                f"{type(self.event).__name__}: no other amplification is proved here"
            )


@dataclass(frozen=True)
class Repeated(Event):
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
            raise TypeError(
                f"Repeated needs a privacy event, got {type(self.event).__name__}"
            )
        object.__setattr__(
            self, "count", check_integer("count", self.count, 1, MAX_COUNT)
        )


@dataclass(frozen=True)
class ApproximateDP(Event):
    """Any step that is stated to be (`epsilon`, `delta`)-differentially private.

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
        self._set("epsilon", closed="left")
        self._set("delta", 0.0, 1.0, "left")


@dataclass(frozen=True)
class NonPrivate(Event):
    """A step without protection. Its epsilon is infinite."""


Record: TypeAlias = dict[str, object]  # of an event, as JSON has it

_BY_NAME: dict[str, Callable[..., Event]] = {
    kind.__name__: kind for kind in Event.__subclasses__()
}


def repeated(event: Event, count: int) -> Event:
    """The event of `count` repetitions."""
    return event if count == 1 else Repeated(event, count)


def to_record(event: Event) -> Record:
    """Write an event as a dictionary that JSON can hold without loss.

    The key ``"event"`` has the class, ``"of"`` an inner event; other fields keep their
    names.
    """
    record: Record = {"event": type(event).__name__}
    for field in fields(event):  # type: ignore[arg-type]
        value = getattr(event, field.name)
        inner = field.name == "event"
        record["of" if inner else field.name] = to_record(value) if inner else value
    return record


def from_record(record: Mapping[str, object]) -> Event:
    """Read an event back from what `to_record` wrote; equal to the last bit."""
    values = dict(record)
    name = values.pop("event", None)
    if not isinstance(name, str) or name not in _BY_NAME:
        raise ValueError(
            f"unknown privacy event {name!r}; known are {', '.join(_BY_NAME)}"
        )
    inner = values.get("of")
    if isinstance(inner, Mapping):
        values["event"] = from_record(inner)
        del values["of"]
    try:
        return _BY_NAME[name](**values)
    except TypeError as error:
        raise ValueError(
            f"the record of a {name} event has the wrong fields"
        ) from error
