"""What a ledger holds: a budget, the entries that are charged to it, and the parts of its data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from dplda.leaf._checks import check_integer
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

    @property
    def counts(self) -> bool:
        """Whether the entry counts as spent."""
        return self.status != "canceled"

    @property
    def charged_part(self) -> str | None:
        """The part that pays for the entry; None if every part pays."""
        return paying_part(self.unit, self.part)


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


def name_of_part(name: Any, of: int | None = None) -> str:
    """Name of a part in a ledger: of a set of documents, or with `of` of users."""
    if of is not None:
        n_parts = check_integer("of", of, 1, 2**31)
        return f"users {check_integer('name', name, 0, n_parts - 1)}/{n_parts}"
    if not isinstance(name, str) or not name:
        raise ValueError(f"name must be a text that is not empty, got {name!r}")
    if number_of_user_parts(name) is not None:
        raise ValueError(f"{name!r} is a part of users; pass its number, and how many there are")
    return name


def paying_part(unit: str, part: str | None) -> str | None:
    """The part that pays for a release about `part`; None if every part pays.

    Rows are disjoint sets of documents. They are disjoint sets of users only if the rule that
    chooses them is a function of the user, as `user_part` is.
    """
    disjoint = unit == "document" or number_of_user_parts(part) is not None
    return part if disjoint else None


def number_of_user_parts(part: str | None) -> int | None:
    """How many parts of users there are, if the name is that of one; None otherwise."""
    match = re.fullmatch(r"users \d+/(\d+)", part or "")
    return None if match is None else int(match[1])
