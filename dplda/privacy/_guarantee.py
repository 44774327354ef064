"""The guarantee of a fitted model, as a record that can be stored and printed in words."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, TypeAlias

from dplda.privacy._accounting import epsilon_of, is_chargeable
from dplda.privacy._events import ApproximateDP, Event

__all__ = ["Guarantee"]

# One number for all rounds, or one for each.
PerRound: TypeAlias = float | tuple[float, ...] | None

# Largest epsilon of each grade that the text names.
_GRADES = (
    (1.0, "strong"),
    (3.0, "reasonable"),
    (8.0, "weak"),
    (20.0, "very weak"),
    (math.inf, "nominal"),
)
_FALSE_ALARMS = 0.01
_LARGEST_DELTA = 1e-3
LARGEST_VARIATION = 1e-9  # a million calls of `partial_fit` add up to 2e-12


@dataclass(frozen=True, repr=False)
class Guarantee:
    """The privacy guarantee of a fitted model, with its assumptions.

    ``print(model.privacy_)`` states it in words.

    Parameters
    ----------
    unit : str
        Protected unit, for instance "document", "word", "token" or "bit".
    relation : str
        How neighboring data sets differ, such as "one document is added or removed".
    epsilon : float
        The epsilon of (epsilon, delta)-differential privacy of everything that was released.
        At least the privacy cost of the events at `delta`.
    delta : float
        The delta of (epsilon, delta)-differential privacy, in [0, 1).
    mechanism : str
        The releases and their noise, in words.
    sensitivity : float
        Largest change of a released value by one unit, in the mechanism's norm. Infinite if others
        drew the noise, and stated its cost (`ApproximateDP`).
    noise_scale : float, tuple of float or None
        Scale of the noise, in the units of `sensitivity`. A tuple if it differs between rounds.
    noise_multiplier : float, tuple of float or None
        Scale divided by sensitivity. A tuple if it differs between rounds.
    seeded : bool
        Whether the noise came from a given seed. The guarantee is void against anyone who knows
        that seed.
    assumptions : tuple of str, default=()
        Conditions of the guarantee that the program cannot check.
    events : tuple of Event, default=()
        The events from which epsilon was computed.
    total_variation : float, default=0.0
        Distance between the noise that ran and the noise of the theorem.
    provenance : tuple of (str, str), default=()
        Inputs that the guarantee takes as public, such as "vocabulary", and the origin of each.

    Raises
    ------
    ValueError
        If the events cost more than the stated epsilon.
    """

    unit: str
    relation: str
    epsilon: float
    delta: float
    mechanism: str
    sensitivity: float
    noise_scale: PerRound
    noise_multiplier: PerRound
    seeded: bool
    assumptions: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    total_variation: float = 0.0
    provenance: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "sensitivity", "total_variation"):
            object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("noise_scale", "noise_multiplier"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))
        object.__setattr__(self, "events", tuple(self.events))
        origins = tuple((str(what), str(origin)) for what, origin in self.provenance)
        object.__setattr__(self, "provenance", origins)
        object.__setattr__(self, "seeded", bool(self.seeded))
        if not 0.0 <= self.total_variation <= LARGEST_VARIATION:
            raise ValueError(
                f"total_variation must be from 0 to {LARGEST_VARIATION:g}, got "
                f"{self.total_variation:g}; noise that far from its ideal law proves nothing"
            )
        proved = self.epsilon_at(self.delta)
        if not self.epsilon >= proved * (1.0 - 1e-9):
            raise ValueError(
                f"epsilon {self.epsilon} is less than what the events cost at delta "
                f"{self.delta}; state at least {proved}"
            )

    def epsilon_at(self, delta: float, *, accountant: str = "pld") -> float:
        """Compute epsilon of the same events at another delta.

        Parameters
        ----------
        delta : float
            In [0, 1).
        accountant : {"pld", "rdp"}, default="pld"
            Method of composition, see `epsilon_of`. "pld" takes the smallest valid epsilon.
            "rdp" takes Renyi divergences alone, which is usually larger; many other libraries
            report it.

        Returns
        -------
        float
            Zero or more; infinite if some event is not private.
        """
        return epsilon_of(
            self.events, delta, total_variation=self.total_variation, accountant=accountant
        )

    def __repr__(self) -> str:
        seeded = ", seeded" if self.seeded else ""
        return (
            f"<Guarantee: epsilon {self.epsilon:.4g} at delta {self.delta:g} "
            f"for one {self.unit}{seeded}>"
        )

    def __str__(self) -> str:
        parts = [
            self._claim(),
            self._strength(),
            self._noise(),
            self._distance(),
            self._secrecy(),
            self._conditions(),
        ]
        text = " ".join(part for part in parts if part)
        return "\n".join([text, *(f"{what}: {origin}" for what, origin in self.provenance)])

    def _claim(self) -> str:
        if self.epsilon == math.inf:
            return (
                f"This result has no privacy guarantee (epsilon = infinity) for any {self.unit} "
                "of the data it was computed from."
            )
        return (
            f"This result protects every single {self.unit} of the data it was computed from, "
            f"by differential privacy with epsilon = {self.epsilon:.4g} and delta = "
            f"{self.delta:g}. It compares data that differ in one {self.unit} only: "
            f"{self.relation}."
        )

    def _strength(self) -> str:
        if self.epsilon == math.inf:
            return "Anyone who sees it may be able to read parts of the data from it."
        found = 100.0 * self._detection_bound()
        grade = next(word for end, word in _GRADES if self.epsilon <= end)
        if self.delta > _LARGEST_DELTA:  # such a delta lets a mechanism publish some units whole
            grade = "nominal"
        return (
            "Suppose that someone sees everything that was released, knows all the rest of the "
            f"data, and tests for one particular {self.unit} with a false alarm in 1 of 100 cases. "
            f"The test then finds it in at most {found:.3g} of 100 cases in which it is present "
            f"(blind guessing finds 1 of 100): {grade} protection."
        )

    def _detection_bound(self) -> float:
        """Largest power of a test with the rate of false alarms that the text states."""
        distance = 0.0
        if not is_chargeable(self.total_variation, self.epsilon, self.delta):
            distance = self.total_variation  # of each of the two laws from its ideal form
        power = _detection_bound(self.epsilon, self.delta, _FALSE_ALARMS + distance)
        return min(1.0, power + distance)

    def _rests_on_statements(self) -> bool:
        """Whether others drew the noise, so that its scale and its key are not known here."""
        return bool(self.events) and all(isinstance(e, ApproximateDP) for e in self.events)

    def _noise(self) -> str:
        if self.epsilon == math.inf or self._rests_on_statements():
            return f"Mechanism: {self.mechanism}."
        text = f"Mechanism: {self.mechanism}; one {self.unit} changes a release, as a whole, by "
        text += f"at most {self.sensitivity:.4g}"
        if self.noise_scale is not None:
            text += f", the noise has scale {_spread(self.noise_scale)}"
        if self.noise_multiplier is not None:
            text += f" (noise multiplier {_spread(self.noise_multiplier)})"
        return text + "."

    def _distance(self) -> str:
        if self.total_variation == 0.0 or self.epsilon == math.inf:
            return ""
        text = (
            "The random numbers of the computer differ from the ideal ones of the theorem by at "
            f"most {self.total_variation:.2g} in total variation"
        )
        if is_chargeable(self.total_variation, self.epsilon, self.delta):
            return f"{text}; delta includes the effect."
        return f"{text}; delta leaves out that distance, and the numbers above hold up to it."

    def _secrecy(self) -> str:
        if self.epsilon == math.inf or self._rests_on_statements():
            return ""
        if self.seeded:
            return (
                "The noise was drawn from a given seed: none of this holds against anyone who "
                "knows or guesses the seed, or sees another result drawn with it."
            )
        return "The noise was drawn from a secret key that was not kept."

    def _conditions(self) -> str:
        if not self.assumptions:
            return ""
        return f"All this assumes that {'; that '.join(self.assumptions)}."


def _detection_bound(epsilon: float, delta: float, false_alarms: float) -> float:
    """Largest power of a test with the given rate of false alarms, from the definition."""
    direct = false_alarms * math.exp(min(epsilon, 50.0)) + delta
    complement = 1.0 - math.exp(-epsilon) * (1.0 - delta - false_alarms)
    return min(direct, complement, 1.0)


def _plain(value: Any) -> PerRound:
    if value is None:
        return None
    if isinstance(value, numbers.Real):
        return float(value)
    return tuple(float(number) for number in value)


def _spread(value: float | tuple[float, ...]) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"between {min(value):.4g} and {max(value):.4g}, round by round"
