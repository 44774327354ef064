"""The card of a guarantee: what it means, in words and short lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import TypeAlias
from urllib.parse import quote

from dplda.leaf._checks import escaped
from dplda.privacy._accounting import is_chargeable
from dplda.privacy._events import ApproximateDP, Event
from dplda.privacy._groups import has_parts

Row: TypeAlias = tuple[str, str]  # label and text of a line of the card
# One number for all rounds, or one for each round.
PerRound: TypeAlias = float | tuple[float, ...] | None

# Largest epsilon of each grade of the card: a convention.
GRADES = {"strong": 1.0, "reasonable": 3.0, "weak": 8.0, "very weak": 20.0}
_SCALE = "epsilon up to 1 is strong, 3 reasonable, 8 weak, 20 very weak, above nominal"
_LIMIT_OF_PART = ", and neither a document nor a person"
# What the first line of the card does not promise to a reader.
_LIMITS = {
    "document": ". A passage has a larger epsilon; a person with several documents "
    "may have no finite epsilon",
    "user": " with all documents. One text of a user has a larger epsilon",
}
NOT_COVERED = (
    "the texts themselves; what many texts share, such as a frequent name; a "
    "vocabulary learned without noise; scores, perplexities and topic weights of "
    "private documents; other results from the same texts; running time and memory"
)
PAGES = "https://github.com/dplda/dplda/blob/main/docs/"


@dataclass(frozen=True, repr=False)
class Stated:
    """What a guarantee states, and what follows for the card: see `Guarantee`."""

    unit: str
    relation: str
    epsilon: float
    delta: float
    mechanism: str
    sensitivity: float
    noise_scale: PerRound
    seeded: bool
    assumptions: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    total_variation: float = 0.0
    trusted: str = ""
    provenance: tuple[tuple[str, str], ...] = ()
    ledger: str = ""
    receipt: str = ""
    theorem: str = ""

    @property
    def gaussian_mu(self) -> float | None:
        raise NotImplementedError

    def detection_rate(self) -> float:
        raise NotImplementedError

    def for_part_of_unit(self) -> Stated:
        raise NotImplementedError


# ---- the forms of the card -----------------------------------------------------------


def summary(guarantee: Stated) -> str:
    """The first lines: who is protected, how much, and what is not."""
    return _plain(first_rows(guarantee))


def text(guarantee: Stated) -> str:
    """All lines, with an empty line after the first ones."""
    return f"{summary(guarantee)}\n\n{_plain(other_rows(guarantee))}"


def markdown(guarantee: Stated) -> str:
    """A table with one row for each line."""
    lines = ["| | |", "| --- | --- |"]
    for label, words in (*first_rows(guarantee), *other_rows(guarantee)):
        cell = escaped(words, "markdown")
        if label == "theorem":
            page = quote(words.removeprefix("docs/"), safe="/#")
            cell = f"[{cell}]({PAGES}{page})"
        lines.append(f"| {label} | {cell} |")
    return "\n".join(lines)


def _plain(rows: Iterable[Row]) -> str:
    return "\n".join(f"{label:13}{words}".rstrip() for label, words in rows)


# ---- its lines -----------------------------------------------------------------------


def _is_private(guarantee: Stated) -> bool:
    return guarantee.epsilon < math.inf


def first_rows(guarantee: Stated) -> Iterator[Row]:
    unit = guarantee.unit
    if not _is_private(guarantee):
        yield "protects", f"no {unit}: there is no privacy guarantee"
        return
    limit = _LIMITS.get(unit, "") if has_parts(unit) else _LIMIT_OF_PART
    much = f"epsilon = {guarantee.epsilon:.4g} at delta = {guarantee.delta:g}"
    if has_parts(unit):
        much += f": {_grade(guarantee)} protection"
    if guarantee.seeded:
        much += "; none against anyone who knows or guesses the given seed"
    yield "protects", f"each {unit}{limit}"
    yield "how much", much
    yield "not covered", NOT_COVERED


def other_rows(guarantee: Stated) -> Iterator[Row]:
    private = _is_private(guarantee)
    if private:
        yield from _meaning(guarantee)
        yield from _noise(guarantee)
    else:
        yield (
            "strength",
            "none: anyone who sees it may be able to read parts of the data in it",
        )
        yield "mechanism", guarantee.mechanism
    if guarantee.trusted:
        yield "trusted", guarantee.trusted
    for name, origin in guarantee.provenance:
        yield "inputs", f"{name}: {origin}"
    if private:
        for condition in guarantee.assumptions:
            yield "holds if", condition
    if guarantee.ledger:
        yield "ledger", guarantee.ledger
    if guarantee.theorem and private:
        yield "theorem", guarantee.theorem


def _grade(guarantee: Stated) -> str:
    """The grade of the protection of a document or a person."""
    for word, most in GRADES.items():
        if guarantee.epsilon <= most:
            return word
    return "nominal"


def _strength(guarantee: Stated) -> str:
    """The grade, and what it is measured by."""
    unit = guarantee.unit
    if not has_parts(unit):
        return (
            "no grade, which documents and persons have: a document of n "
            f"{unit}s pays up to n times this epsilon"
        )
    return f"{_grade(guarantee)} protection ({_SCALE})"


def _meaning(guarantee: Stated) -> Iterator[Row]:
    """What epsilon and delta promise, in several ways."""
    unit = guarantee.unit
    yield (
        "meaning",
        "epsilon and delta limit how much more likely the release is from one of "
        f"two data sets that differ in one {unit} only: {guarantee.relation}.",
    )
    yield "strength", _strength(guarantee)
    if guarantee.gaussian_mu is not None:
        mu = _rounded(guarantee.gaussian_mu, 3)
        yield "strength", f"Gaussian differential privacy with mu = {mu}"
    if has_parts(unit) and not unit.startswith(("part", "group")):
        part = guarantee.for_part_of_unit().epsilon
        bound = "no proved epsilon"
        if part < math.inf:
            bound = f"epsilon = {_rounded(part)}"
        yield (
            "a part",
            f"of one {unit}, such as one of several texts or persons in it, is "
            f"protected with {bound} while the rest of the {unit} stays.",
        )
    found = _rounded(100.0 * guarantee.detection_rate(), 3)
    yield (
        "detection",
        f"The best attack on one {unit} knows all other data and sees everything that "
        f"was released. At 1% false alarms it recognizes at most {found}% of those "
        "who took part; guessing recognizes 1%.",
    )


def _noise(guarantee: Stated) -> Iterator[Row]:
    """The noise behind the promise."""
    events = guarantee.events
    # if others drew the noise, this process does not know its scale and its key
    of_others = bool(events) and all(isinstance(e, ApproximateDP) for e in events)
    mechanism = guarantee.mechanism
    if guarantee.noise_scale is not None and not of_others:
        mechanism += (
            f"; one {guarantee.unit} changes all numbers of a release together by at "
            f"most {guarantee.sensitivity:.4g}, the noise has scale "
            f"{_spread(guarantee.noise_scale)}"
        )
    yield "mechanism", mechanism
    distance = guarantee.total_variation
    if distance > 0.0:
        effect = "delta leaves out that distance, and the numbers above hold up to it."
        if is_chargeable(distance, guarantee.epsilon, guarantee.delta):
            effect = "delta includes the effect."
        yield (
            "randomness",
            "The random numbers of the computer differ from the ideal ones of the "
            f"theorem by at most {distance:.2g} in total variation; {effect}",
        )
    if not of_others:
        key = "a secret key that was not kept"
        if guarantee.seeded:
            key = (
                "a given seed: none of this holds against anyone who knows or guesses "
                "it"
            )
        yield "key", f"The noise was drawn from {key}."


def _spread(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return f"between {min(value):.4g} and {max(value):.4g}, round by round"
    return f"{value:.4g}"


def _rounded(number: float, digits: int = 5) -> str:
    """Round up to a few digits."""
    upwards = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{Decimal(number).normalize(upwards):f}"
