"""What the entries of a ledger cost together: the epsilon of the most expensive part."""

from __future__ import annotations

import math

from dplda.privacy._accounting import epsilon_of
from dplda.privacy._entries import Entry
from dplda.privacy._events import Event
from dplda.privacy._running_costs import charged_part


def summed(entries: list[Entry]) -> tuple[list[Event], float]:
    """All events of the entries, and the sum of their distances from ideal noise."""
    events = [event for entry in entries for event in entry.events]
    return events, math.fsum(entry.total_variation for entry in entries)


def paid_by(part: str | None, entries: list[Entry]) -> list[Entry]:
    """The entries that count for a part: its own, and those that every part pays."""
    return [entry for entry in entries if charged_part(entry) in (None, part)]


def why_infinite(entries: list[Entry], delta: float) -> str | None:
    """Why the entries have no finite epsilon together, whatever their events cost; else None."""
    if sum(entry.seeded for entry in entries) > 1:
        return (
            "two entries drew their noise from a given seed; if the seeds are equal, their noise "
            "cancels; leave random_state=None, or use a ledger without a budget for public data"
        )
    if delta == 0.0 and any(entry.total_variation > 0.0 for entry in entries):
        return "the noise has no finite epsilon at delta 0; use a ledger with delta above 0"
    return None


def total_of(entries: list[Entry], delta: float, accountant: str = "pld") -> float:
    """Epsilon of all entries: the largest among the parts of the data."""
    if why_infinite(entries, delta):
        return math.inf
    totals = []
    for part in {charged_part(entry) for entry in entries} or {None}:
        events, distance = summed(paid_by(part, entries))
        totals.append(epsilon_of(events, delta, total_variation=distance, accountant=accountant))
    return max(totals)
