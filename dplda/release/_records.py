"""A guarantee, and other values, in files that may come from anyone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TypeVar

from dplda.leaf._checks import check_delta, check_number
from dplda.privacy import Guarantee
from dplda.privacy._accounting import grouped
from dplda.privacy._card import PerRound
from dplda.privacy._composition import MANY_KINDS
from dplda.privacy._events import Event, from_record, to_record

Value = TypeVar("Value")

MAX_TEXT = 10_000  # characters of a text of unknown origin that is shown or compiled


def record_of(guarantee: Guarantee) -> dict[str, object]:
    """All fields of a guarantee, as `read_guarantee` reads them."""
    record = {field.name: getattr(guarantee, field.name) for field in fields(Guarantee)}
    record["events"] = [to_record(event) for event in guarantee.events]
    return record


def read_digest(text: object) -> str:
    if not (isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text)):
        raise ValueError("counted_as must be a SHA-256, of 64 digits")
    return text


def read_text(name: str, value: object) -> str:
    """Check a text; it is printed as it is, so it may hold no control characters."""
    if not (isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()):
        raise ValueError(
            f"{name} must be a string of at most {MAX_TEXT} printable characters"
        )
    return value


def read_guarantee(record: object) -> Guarantee:
    """Make the guarantee; it refuses an epsilon below the cost of the events."""
    names = {field.name for field in fields(Guarantee)}
    if not isinstance(record, dict) or set(record) != names:
        raise ValueError(
            f"the guarantee must have the fields {', '.join(sorted(names))}"
        )
    try:
        return _read_fields(record)
    except (ArithmeticError, RuntimeError) as error:  # at absurd numbers
        raise ValueError(
            f"its guarantee cannot be computed ({type(error).__name__})"
        ) from None


def _read_fields(record: Mapping[str, object]) -> Guarantee:
    """A reader for each field of a guarantee."""
    return Guarantee(
        unit=read_text("unit", record["unit"]),
        relation=read_text("relation", record["relation"]),
        epsilon=_number("epsilon", record["epsilon"]),
        delta=check_delta(record["delta"]),
        mechanism=read_text("mechanism", record["mechanism"]),
        sensitivity=_number("sensitivity", record["sensitivity"]),
        noise_scale=_per_round("noise_scale", record["noise_scale"]),
        seeded=read_flag("seeded", record["seeded"]),
        assumptions=read_list("assumptions", record["assumptions"], read_text),
        events=_events("events", record["events"]),
        total_variation=_number("total_variation", record["total_variation"]),
        trusted=read_text("trusted", record["trusted"]),
        provenance=read_list("provenance", record["provenance"], _pair),
        ledger=read_text("ledger", record["ledger"]),
        receipt=read_text("receipt", record["receipt"]),
        theorem=read_text("theorem", record["theorem"]),
    )


def _number(name: str, value: object) -> float:
    number = check_number(name, value, 0.0, math.inf)
    if number != value:  # an integer of hundreds of digits
        raise ValueError(f"{name} must be a float")
    return number


def read_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return value


def read_list(
    name: str, values: object, read: Callable[[str, object], Value]
) -> tuple[Value, ...]:
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list")
    return tuple(read(name, value) for value in values)


def _per_round(name: str, value: object) -> PerRound:
    """One number for each round, one for all, or none."""
    if isinstance(value, list):
        return read_list(name, value, _number)
    return None if value is None else _number(name, value)


def _pair(name: str, value: object) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{name} must be a list of pairs")
    first, second = value
    return read_text(name, first), read_text(name, second)


def _events(name: str, records: object) -> tuple[Event, ...]:
    try:
        if not isinstance(records, list):
            raise TypeError
        events = tuple(from_record(record) for record in records)
        groups = grouped(events)
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(
            f"its privacy {name} cannot be read ({type(error).__name__})"
        ) from None
    # no file can make the accountant compute for hours
    if not groups or len(groups) > MANY_KINDS:
        raise ValueError(
            f"a release has private steps of 1 to {MANY_KINDS} different kinds"
        )
    return events
