"""What a ledger holds: a budget, and the entries that are charged to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from dplda.privacy._events import Event

Status: TypeAlias = Literal["reserved", "releasing", "confirmed", "canceled"]
Composition: TypeAlias = Literal["planned", "adaptive"]


class Budget(NamedTuple):
    """What a ledger allows, and for which data. It never changes."""

    epsilon: float
    delta: float
    composition: Composition = "planned"
    data: str | None = None


@dataclass(frozen=True)
class Entry:
    """One charge to a ledger.

    Parameters
    ----------
    id : int
        Number within its ledger.
    label : str
        Name of the charge, for instance the class of the estimator.
    unit : str
        Protected unit: "document", "user", "word", "token" or "bit".
    events : tuple of Event
        Events of the charge. In the entry of a fit, all Gaussian events are one of the same cost.
    total_variation : float
        Distance of the noise that runs from its ideal law.
    seeded : bool
        Whether the noise came from a given seed.
    status : {"reserved", "releasing", "confirmed", "canceled"}
        An entry is reserved before data are read, marked as releasing before the first release, and
        confirmed after the last one. These three count in full. A canceled entry released nothing.
    created : str
        Time in UTC, ISO 8601.
    process : int
        ID of the process that made the charge.
    part : str or None, default=None
        Part of the data that was read, see `Ledger.part`. None is all of it.
    checkpoint : str, default=""
        SHA-256 of the only checkpoint from which a fit that was lost may go on. Empty if it has
        none.
    """

    id: int
    label: str
    unit: str
    events: tuple[Event, ...]
    total_variation: float
    seeded: bool
    status: Status
    created: str
    process: int
    part: str | None = None
    checkpoint: str = ""

    @property
    def counts(self) -> bool:
        """Whether the entry counts as spent."""
        return self.status != "canceled"


class State(NamedTuple):
    """A ledger at one time. Nothing changed between two states with the same version."""

    budget: Budget
    ledger_id: str
    version: str
    filters: str
    entries: tuple[Entry, ...]

    @property
    def counted(self) -> list[Entry]:
        """The entries that count as spent."""
        return [entry for entry in self.entries if entry.counts]
