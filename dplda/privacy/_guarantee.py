"""The guarantee of a fitted model, as a record that can be stored and printed in words.

docs/proofs_document.md proves what holds for groups of units and for a part of one,
docs/accounting.md the detection rate.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._checks import check_integer, check_number, escaped
from dplda.leaf._messages import as_json
from dplda.leaf._users import visible
from dplda.privacy import _accounting as bounds
from dplda.privacy._accounting import delta_charge, epsilon_of, is_chargeable
from dplda.privacy._composition import Groups
from dplda.privacy._events import (
    ApproximateDP,
    Event,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    to_record,
)

# a fit asks for it twice, and a search once more for each fit
cached_epsilon = functools.lru_cache(maxsize=128, typed=True)(epsilon_of)

# One number for all rounds, or one for each.
PerRound: TypeAlias = float | tuple[float, ...] | None

# Largest epsilon of each grade that the text names: a convention.
_GRADES = {"strong": 1.0, "reasonable": 3.0, "weak": 8.0, "very weak": 20.0}
_SCALE = "epsilon up to 1 is strong, 3 reasonable, 8 weak, 20 very weak, above nominal"
# of a grade better than nominal: above it, some units may be published whole
_LARGEST_DELTA = 1e-3
_WITHOUT_PARTS = ("word", "token", "bit")
# What the first line of the card says of those who may take it for more.
_LIMITS = {
    "document": "; a part of one is protected less, and a person with several less or "
    "not at all",
    "user": " with all documents; a part of a user, such as one text, is protected "
    "less",
    **dict.fromkeys(_WITHOUT_PARTS, "; neither a document nor a person"),
}
_PARTS = 100  # of a document: a mean one of the corpus KOS has as many words
_FALSE_ALARMS = 0.01  # of the rate on the card
NOT_COVERED = (
    "the texts themselves; what many of them have in common, such as a frequent name; "
    "words learned without noise; scores, perplexities and transforms of private "
    "documents; other results from the same texts; running time and memory"
)
# A guarantee that states more than its events cost by this share may cover more than
# its events.
_SAME_COST = 1.01
_MAX_GROUP = 10**6  # units: above any group, and far from losing digits of a multiplier
LARGEST_VARIATION = 1e-9  # a million calls of `partial_fit` add up to 2e-12
PAGES = "https://github.com/dplda/dplda/blob/main/docs/"
_ROUNDING = 1.0 + 1e-9  # on the rounding errors of the epsilons of groups
# Any deltas give a valid detection rate; five times as many lower it by 0.6% at most.
_DELTAS = np.concatenate(
    [[0.0], np.geomspace(1e-7, 0.5, 50), 1.0 - np.geomspace(0.45, 1e-3, 15)]
)
_MARGIN = 1e-12  # on the rounding errors of the closed form


class PrivacyLeakWarning(UserWarning):
    """What runs has less privacy than one may believe.

    A published algorithm does not have the privacy that its paper claims, the stated
    epsilon is so large that it promises next to nothing, fits are charged to several
    budgets, or a score is exact.
    """


class SeededNoiseWarning(UserWarning):
    """The noise comes from a given seed: who knows or guesses it can remove it."""


class LowSignalWarning(UserWarning):
    """A private model says little.

    Few topics stand out of the noise, or the public texts behind its prior hardly match
    the private documents.
    """


class PrivateDataWarning(UserWarning):
    """Something about the private data, for the person at the keyboard, not release."""


@dataclass(frozen=True, repr=False)
class Guarantee:
    """The privacy guarantee of a fitted model, with its assumptions.

    ``print(model.privacy_)`` shows it as a card of short lines, and a notebook as a
    table.

    Parameters
    ----------
    unit, relation : str
        Protected unit, such as "document", "word", "token" or "bit", and how
        neighboring data sets differ, such as "one document is added or removed".
    epsilon, delta : float
        Of the (epsilon, delta)-differential privacy of everything that was released. An
        epsilon below the privacy cost of the events at `delta` is a ValueError.
    mechanism : str
        The releases and their noise, in words.
    sensitivity : float
        Largest change of a released value by one unit, in the mechanism's norm.
        Infinite if others drew the noise, and stated its cost (`ApproximateDP`).
    noise_scale : float, tuple of float or None
        Scale of the noise, in the units of `sensitivity`. A tuple if it differs between
        rounds. The events have it over the sensitivity.
    seeded : bool
        Whether the noise came from a given seed. The guarantee is void against anyone
        who knows or guesses that seed.
    assumptions : tuple of str, default=()
        Conditions of the guarantee that the program cannot check.
    events : tuple of Event, default=()
        The events from which epsilon was computed.
    total_variation : float, default=0.0
        Distance between the noise that ran and the noise of the theorem.
    trusted : str, default=""
        Who sees the private data, and is trusted with them.
    provenance : tuple of (str, str), default=()
        Inputs of the fit, each with its origin: public, private and charged, or not
        known.
    ledger, receipt : str, default=""
        Id of the ledger that was charged, with its total when the fit ended, and which
        entries it had then, see `Ledger.has`.
    theorem : str, default=""
        Page of the documentation with the proof.

    Attributes
    ----------
    gaussian_mu : float or None
        The mu of Gaussian differential privacy, if all noise is Gaussian without
        sampling.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> guarantee = SubLDA(2, epsilon=4.0).fit([[2, 0, 1], [0, 3, 0]]).privacy_
    >>> round(guarantee.detection_rate(false_alarms=0.01), 3)
    0.068
    >>> guarantee.for_groups(3).unit
    'group of 3 documents'
    """

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

    def __post_init__(self) -> None:
        if not 0.0 <= self.total_variation <= LARGEST_VARIATION:
            raise ValueError(
                f"total_variation must be from 0 to {LARGEST_VARIATION:g}, got "
                f"{self.total_variation:g}; noise that far from its ideal law proves "
                "nothing"
            )
        proved = self.epsilon_at(self.delta)
        if not self.epsilon >= proved * (1.0 - 1e-9):
            raise ValueError(
                f"epsilon {self.epsilon} is less than what the events cost at delta "
                f"{self.delta}; state at least {proved}"
            )

    def epsilon_at(self, delta: float) -> float:
        """Compute epsilon of the same events at another delta.

        Parameters
        ----------
        delta : float
            In [0, 1).

        Returns
        -------
        float
            Zero or more; infinite if some event is not private.
        """
        return cached_epsilon(self.events, delta, total_variation=self.total_variation)

    @property
    def gaussian_mu(self) -> float | None:
        """The mu of Gaussian DP; None unless all noise is unsampled Gaussian.

        None also if epsilon is above the cost of the events: there may be more than
        these.
        """
        groups = bounds.grouped(self.events)
        if groups and bounds.all_gaussian(groups) and self._is_of_events():
            return bounds.gaussian_mu_of(groups)
        return None

    def _is_of_events(self) -> bool:
        """Whether epsilon is that of the events, and not a statement about more."""
        return bool(self.events) and self.epsilon <= _SAME_COST * self.epsilon_at(
            self.delta
        )

    def detection_rate(self, false_alarms: float = 0.01) -> float:
        """Bound how often the best test finds a unit that is present.

        The test sees all releases, knows all other data, and compares the data with and
        without one particular unit. ``docs/accounting.md`` has the proof.

        Parameters
        ----------
        false_alarms : float, default=0.01
            Share of the cases without the unit in which the test says that it is
            present, in [0, 1].

        Returns
        -------
        float
            Largest share of the cases with the unit in which the test finds it, from
            `false_alarms` (blind guessing) to 1. Exact for Gaussian noise without
            sampling.
        """
        alarms = check_number("false_alarms", false_alarms, 0.0, 1.0, closed="both")
        if self.epsilon == math.inf:
            return 1.0
        distance = 0.0
        if not is_chargeable(self.total_variation, self.epsilon, self.delta):
            # of each of the two laws from its ideal form
            distance = self.total_variation
        stated = [(self.epsilon, self.delta)]
        rate = _rate_of_pairs(stated, min(1.0, alarms + distance)) + distance
        if self._is_of_events():
            groups = bounds.grouped(self.events)
            rate = min(rate, _detection_rate(groups, alarms, self.total_variation))
        return min(1.0, rate)

    def for_groups(self, size: int) -> Guarantee:
        """State what the same releases guarantee for groups of units.

        If one person gives at most `size` rows, this is the guarantee for a person.

        Parameters
        ----------
        size : int
            Largest number of units of a group, from 1 to a million.

        Returns
        -------
        guarantee : Guarantee
            At the same delta. Its unit is the group. Epsilon is infinite if no bound is
            proved. ``docs/proofs_document.md`` has the bounds.

        Examples
        --------
        >>> from dplda import SubLDA
        >>> guarantee = SubLDA(2, epsilon=1.0).fit([[2, 0, 1], [0, 3, 0]]).privacy_
        >>> round(guarantee.for_groups(3).epsilon, 1)
        3.3
        """
        size = check_integer("size", size, 1, _MAX_GROUP)
        if size == 1:
            return self
        group = self._of_steps(size, whole=True)
        relation = (
            f"up to {size} {self.unit}s change, each in this way: {self.relation}"
        )
        if any(isinstance(e, PoissonSampled) for e, _ in bounds.grouped(group.events)):
            # a secret sample hides a group that comes or goes as a whole:
            # docs/proofs_document.md
            relation += (
                "; all of them are there in one of the two data sets, and none in the "
                "other"
            )
        return dataclasses.replace(
            group,
            unit=f"group of {size} {self.unit}s",
            relation=relation,
            assumptions=(*self.assumptions, f"a group has at most {size} {self.unit}s"),
        )

    def for_part_of_unit(self) -> Guarantee:
        """State what the same releases guarantee for a part of a unit.

        Its other parts stay.

        Such a part is one text of a user who has others, or one member of a team whose
        texts have one id. Without the part, one unit is taken away, and another one is
        added.

        Returns
        -------
        guarantee : Guarantee
            At the same delta: that of two units, or of one if the relation replaces a
            unit by any other. ValueError if the unit is a word, a token or a bit, which
            has no parts.
        """
        if self.unit in _WITHOUT_PARTS:
            raise ValueError(
                f"a {self.unit} has no parts; this guarantee is for one {self.unit}"
            )
        groups = bounds.grouped(self.events)
        replaces = all(
            isinstance(event, RandomizedResponseEvent) for event, _ in groups
        )
        part = self if self.events and replaces else self._of_steps(2, whole=False)
        return dataclasses.replace(
            part,
            unit=f"part of a {self.unit}",
            relation=f"a part of one {self.unit} is added, removed or changed, and the "
            "rest stays",
        )

    def _of_steps(self, size: int, *, whole: bool) -> Guarantee:
        """What holds along a chain of so many neighbors."""
        own: tuple[Event, ...] = self.events
        if not self._is_of_events():  # the statement says more than the events
            own = (_statement(self.epsilon, self.delta),)
        distance = self.total_variation
        events = group_events(
            bounds.grouped(own), size, self.delta, distance, whole=whole
        )
        return dataclasses.replace(
            self,
            epsilon=epsilon_of(events, self.delta, total_variation=distance),
            sensitivity=size * self.sensitivity,
            events=events,
            theorem="docs/proofs_document.md",
        )

    def to_dict(self) -> dict[str, Any]:
        """Give all fields as plain values that JSON can hold.

        Returns
        -------
        dict
            Events as records, and also ``"detection_rate"`` at one false alarm in 100
            and ``"gaussian_mu"``. Infinite numbers are the string "inf".
        """
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        record["events"] = [to_record(event) for event in self.events]
        record["detection_rate"] = self.detection_rate(_FALSE_ALARMS)
        record["gaussian_mu"] = self.gaussian_mu
        return {name: as_json(value) for name, value in record.items()}

    def summary(self) -> str:
        """Say in three lines who is protected, how much, and what is not protected.

        Returns
        -------
        str
            The first lines of the card. `print` shows all of it.
        """
        return _lines(itertools.takewhile(any, self._card()))

    def __str__(self) -> str:
        return _lines(self._card())

    def to_markdown(self) -> str:
        """Write the card as a Markdown table.

        Returns
        -------
        str
            One row for each line of the card.
        """
        lines = ["| | |", "| --- | --- |"]
        for label, text in self._card():
            cell = escaped(text, "markdown")
            if label == "theorem":
                cell = (
                    f"[{cell}]({PAGES}{quote(text.removeprefix('docs/'), safe='/#')})"
                )
            if label:
                lines.append(f"| {label} | {cell} |")
        return "\n".join(lines)

    _repr_markdown_ = to_markdown  # of a notebook

    def __repr__(self) -> str:
        seeded = ", seeded" if self.seeded else ""
        return (
            f"<Guarantee: epsilon {self.epsilon:.4g} at delta {self.delta:g} "
            f"for one {self.unit}{seeded}>"
        )

    def _card(self) -> Iterator[tuple[str, str]]:
        """Labels and texts of the card, in order; an empty pair ends the top lines."""
        private = self.epsilon < math.inf
        if private:
            yield from self._promise()
        else:
            yield "protects", f"no {self.unit}: there is no privacy guarantee"
            yield "", ""
            yield (
                "strength",
                "none: anyone who sees it may be able to read parts of the data in it",
            )
            yield "mechanism", self.mechanism
        if self.trusted:
            yield "trusted", self.trusted
        yield from (("inputs", f"{name}: {origin}") for name, origin in self.provenance)
        if private:
            yield from (("holds if", condition) for condition in self.assumptions)
        if self.ledger:
            yield "ledger", self.ledger
        if self.theorem and private:
            yield "theorem", self.theorem

    def _promise(self) -> Iterator[tuple[str, str]]:
        """What epsilon and delta mean, and the noise behind them."""
        unit, has_parts = self.unit, self.unit not in _WITHOUT_PARTS
        # the words of the scale are for documents and persons
        cost = self.epsilon if has_parts else _PARTS * self.epsilon
        grade = next(
            (word for word, most in _GRADES.items() if cost <= most), "nominal"
        )
        scale = _SCALE
        if not has_parts:
            scale = (
                f"a document of {_PARTS} {unit}s pays up to {_PARTS} times as much, "
                "and for it "
            )
            scale += _SCALE
        if self.delta > _LARGEST_DELTA:
            grade = "nominal"
            scale = (
                f"a delta above {_LARGEST_DELTA:g} allows that some units are "
                "published whole"
            )
        much = (
            f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g}: {grade} "
            "protection"
        )
        much += "" if has_parts else " of a document"
        if self.seeded:
            much += "; none against anyone who knows or guesses the given seed"
        yield "protects", f"every single {unit}{_LIMITS.get(unit, '')}"
        yield "how much", much
        yield "not covered", NOT_COVERED
        yield "", ""
        yield (
            "meaning",
            "epsilon and delta limit how much more likely the release is from one of "
            f"two data sets that differ in one {unit} only: {self.relation}.",
        )
        yield "strength", f"{grade} protection ({scale})"
        if self.gaussian_mu is not None:
            mu = _rounded(self.gaussian_mu, 3)
            yield "strength", f"Gaussian differential privacy with mu = {mu}"
        if has_parts and not unit.startswith(("part", "group")):
            part = self.for_part_of_unit().epsilon
            bound = (
                f"epsilon = {_rounded(part)}"
                if part < math.inf
                else "no proved epsilon"
            )
            yield (
                "a part",
                f"of one {unit}, such as one of several texts or persons in it, is "
                f"protected with {bound} while the rest of the {unit} stays.",
            )
        found = _rounded(100.0 * self.detection_rate(_FALSE_ALARMS), 3)
        yield (
            "detection",
            "Someone sees everything that was released, knows all other data, and "
            f"tests for one particular {unit} with a false alarm in 1 of 100 cases. "
            f"The best such test finds it in at most {found} of 100 cases in which it "
            "is present (blind guessing: 1).",
        )
        # if others drew the noise, its scale and its key are not known here
        is_own = not self.events or not all(
            isinstance(e, ApproximateDP) for e in self.events
        )
        noise = ""
        if is_own and self.noise_scale is not None:
            noise = (
                f"; one {unit} changes all numbers of a release together by at most "
                f"{self.sensitivity:.4g}, the noise has scale "
                f"{_spread(self.noise_scale)}"
            )
        yield "mechanism", self.mechanism + noise
        if self.total_variation > 0.0:
            effect = (
                "delta leaves out that distance, and the numbers above hold up to it."
            )
            if is_chargeable(self.total_variation, self.epsilon, self.delta):
                effect = "delta includes the effect."
            yield (
                "randomness",
                "The random numbers of the computer differ from the ideal ones of the "
                f"theorem by at most {self.total_variation:.2g} in total variation; "
                f"{effect}",
            )
        if is_own:
            secret = "a secret key that was not kept"
            seed = (
                "a given seed: none of this holds against anyone who knows or guesses "
                "it"
            )
            yield "key", f"The noise was drawn from {seed if self.seeded else secret}."


def _lines(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{label:13}{text}".rstrip() for label, text in rows)


def _spread(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return f"between {min(value):.4g} and {max(value):.4g}, round by round"
    return f"{value:.4g}"


def _rounded(number: float, digits: int = 5) -> str:
    """So many digits, and never too small."""
    return (
        f"{Decimal(number).normalize(Context(prec=digits, rounding=ROUND_CEILING)):f}"
    )


# ---- groups of units, and parts of one -----------------------------------------------


def group_events(
    groups: Groups,
    size: int,
    delta: float,
    total_variation: float,
    *,
    whole: bool = True,
) -> tuple[Event, ...]:
    """Events that dominate what `size` units can change.

    Either each step has an event of its own, or one event states the (epsilon, delta)
    of a chain of neighbors at this delta. The cheaper ones are taken. `whole`: units
    come or go, and are not those of one data set in the place of others.
    """
    options: list[tuple[Event, ...]] = []
    steps = [_of_group(event, size, whole) for event, _ in groups]
    if None not in steps:
        options.append(
            tuple(Repeated(e, n) for e, (_, n) in zip(steps, groups) if e is not None)
        )
    if not bounds.all_gaussian(groups):
        options.append(
            (_statement(_chain(groups, size, delta, total_variation), delta),)
        )
    return min(
        options, key=lambda own: epsilon_of(own, delta, total_variation=total_variation)
    )


def _statement(epsilon: float, delta: float) -> Event:
    return (
        ApproximateDP(epsilon, delta)
        if epsilon < math.inf and delta < 1.0
        else NonPrivate()
    )


def _of_group(event: Event, size: int, whole: bool = True) -> Event | None:
    """The event of a step for `size` units, if it has one of the same kind."""
    match event:
        case Gaussian(m):
            return Gaussian(m / size)
        case PoissonSampled(rate, Gaussian(m)):
            # a secret sample hides who comes or goes
            anyone = -math.expm1(size * math.log1p(-rate)) * _ROUNDING if whole else 1.0
            return PoissonSampled(min(1.0, anyone), Gaussian(m / size))
        case ApproximateDP(e, d) if not whole:
            # a threshold bounds terms of one unit alone
            return _statement(size * e, d * _n_deltas(e, size))
        case _:
            return None


def _n_deltas(epsilon: float, size: int) -> float:
    """1 + exp(epsilon) + ... + exp((size - 1) epsilon), infinite if it is no float."""
    if epsilon == 0.0:
        return float(size)
    large = size * epsilon > 700.0
    return (
        math.inf
        if large
        else math.expm1(size * epsilon) / math.expm1(epsilon) * _ROUNDING
    )


def _chain(groups: Groups, size: int, delta: float, total_variation: float) -> float:
    """Epsilon of a chain of neighbors, each with the same delta; infinite if none.

    A larger delta of each has a smaller epsilon. The search starts above the largest
    that the chain can pay for, and each step stays above it until the chain can pay.
    """
    events, single = [Repeated(event, count) for event, count in groups], delta
    for _ in range(100):
        step = epsilon_of(events, single)
        epsilon = size * step * _ROUNDING
        if epsilon == math.inf:
            return math.inf
        left = delta
        if is_chargeable(total_variation, epsilon, delta):
            left -= delta_charge(total_variation, epsilon)
        if single == 0.0 or single * _n_deltas(step, size) <= left:
            return epsilon
        # a little more, so that the search ends
        single = 0.99 * left / _n_deltas(step, size)
    return size * epsilon_of(events, 0.0) * _ROUNDING


def limit_rows(owners: Iterable[Iterable[Hashable]], max_rows: int) -> NDArray[np.intp]:
    """Choose rows so that every person is an owner of at most `max_rows` of them.

    Rows are taken in their order. A row is left out if one of its owners, such as the
    sender and the recipients of a mail, has `max_rows` rows already.

    Parameters
    ----------
    owners : iterable of iterable of hashable
        The persons of each row. A row without owners is kept. A string, which would be
        taken for its letters, is a TypeError; a missing owner, such as NaN, a
        ValueError.
    max_rows : int
        Largest number of kept rows of one person, at least 1.

    Returns
    -------
    rows : ndarray of int
        Increasing indices of the rows that are kept. No further row could be added.

    Notes
    -----
    **Privacy.** The unit is a person, and neighbors differ in the words of all rows of
    one person, which become empty. *The lists of owners and the order of the rows are
    public*. Then ``model.privacy_.for_groups(max_rows)`` is the guarantee
    (``docs/proofs_document.md``). It says nothing about who wrote to whom.

    Examples
    --------
    >>> from dplda.privacy import limit_rows
    >>> people = [["ann", "bob"], ["ann", "cid"], ["ann", "bob"], ["bob", "cid"]]
    >>> limit_rows(people, max_rows=2)
    array([0, 1, 3])
    """
    max_rows = check_integer("max_rows", max_rows, 1, 2**31)
    n_kept: Counter[Hashable] = Counter()
    rows = []
    for row, given in enumerate(owners):
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise TypeError(
                'the owners of a row must be a list of persons, such as ["ann"], got '
                f"{type(given).__name__}"
            )
        persons = set(map(visible, given))
        if any(map(_is_missing, persons)):
            raise ValueError(
                "an owner is missing (None or NaN), and a missing owner bounds "
                "nobody's rows; leave these rows out, or name their owners"
            )
        if all(n_kept[person] < max_rows for person in persons):
            n_kept.update(persons)
            rows.append(row)
    return np.array(rows, dtype=np.intp)


def _is_missing(person: Hashable) -> bool:
    """Whether a person is None, NaN, or pandas' NaT or NA."""
    try:
        return person is None or bool(person != person)
    except TypeError:  # NA is neither equal to itself nor different
        return True


# ---- the best test for a unit --------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _detection_rate(
    groups: Groups, false_alarms: float, total_variation: float
) -> float:
    """Largest power of a test of the releases with this rate of false alarms.

    The law that ran is within `total_variation` of the ideal one, with the unit and
    without it.
    """
    alarms = min(1.0, false_alarms + total_variation)
    if bounds.all_gaussian(groups):
        from scipy.special import ndtr, ndtri

        ideal = (
            ndtr(ndtri(alarms) + bounds.gaussian_mu_of(groups)) * (1.0 + _MARGIN)
            + _MARGIN
        )
        return min(1.0, float(ideal) + total_variation)
    events, pairs = [Repeated(event, count) for event, count in groups], []
    for delta in _DELTAS.tolist():
        pairs.append((epsilon_of(events, delta), delta))
        if pairs[-1][0] == 0.0:  # larger deltas prove no more
            break
    return min(1.0, _rate_of_pairs(pairs, alarms) + total_variation)


def _rate_of_pairs(pairs: list[tuple[float, float]], alarms: float) -> float:
    """The smallest bound over pairs (epsilon, delta) that all hold, both directions."""
    rates = [1.0]
    for epsilon, delta in pairs:
        if epsilon < 700.0:  # whose exponential is a float
            rates.append(math.exp(epsilon) * alarms + delta)
        elif alarms == 0.0 and epsilon < math.inf:
            rates.append(delta)
        rates.append(1.0 - math.exp(-epsilon) * (1.0 - delta - alarms))
    return min(rates)
