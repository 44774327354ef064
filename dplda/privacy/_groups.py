"""Groups of units, such as the rows of one person, and parts of a unit.

docs/proofs_document.md proves what holds for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from fractions import Fraction
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._checks import check_integer
from dplda.leaf._users import canonical_id
from dplda.privacy._accounting import (
    all_gaussian,
    delta_charge,
    epsilon_of,
    is_chargeable,
    rounded_up,
)
from dplda.privacy._composition import Groups
from dplda.privacy._curves import MARGIN
from dplda.privacy._events import (
    ApproximateDP,
    Event,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    Repeated,
)

_WITHOUT_PARTS = ("word", "token", "bit")


def has_parts(unit: str) -> bool:
    """Whether a unit has parts, such as the texts of a user."""
    return unit not in _WITHOUT_PARTS


# ---- what so many units can change ---------------------------------------------------


def group_events(
    groups: Groups,
    size: int,
    delta: float,
    total_variation: float,
    *,
    whole: bool = True,
) -> tuple[Event, ...]:
    """Events that dominate what `size` units can change.

    Either each step has its own event, or one event states the (epsilon, delta) of a
    chain of neighbors at this delta; the cheaper choice is taken. `whole` says that
    units come or go, instead of replacing others.
    """

    def cost(events: tuple[Event, ...]) -> float:
        return epsilon_of(events, delta, total_variation=total_variation)

    options: list[tuple[Event, ...]] = []
    of_steps = events_of_steps(groups, size, whole=whole)
    if of_steps is not None:
        options.append(of_steps)
    if not all_gaussian(groups):
        options.append((_chain(groups, size, delta, total_variation),))
    return min(options, key=cost)


def events_of_steps(
    groups: Groups, size: int, *, whole: bool
) -> tuple[Event, ...] | None:
    """An event for the `size` units of each step; None if some step has none."""
    events = []
    for event, count in groups:
        step = event_of_step(event, size, whole=whole)
        if step is None:
            return None
        events.append(Repeated(step, count))
    return tuple(events)


def event_of_step(event: Event, size: int, *, whole: bool = True) -> Event | None:
    """The event of a step for `size` units, if it has one of the same kind."""
    match event:
        case Gaussian(noise_multiplier):
            return Gaussian(noise_multiplier / size)
        case PoissonSampled(rate, Gaussian(noise_multiplier)):
            anyone = 1.0
            if whole:  # a secret sample hides who comes or goes
                anyone = -math.expm1(size * math.log1p(-rate)) * MARGIN
            return PoissonSampled(min(1.0, anyone), Gaussian(noise_multiplier / size))
        case ApproximateDP(epsilon, delta) if not whole:
            # a threshold bounds terms of one unit alone
            deltas = _times(delta, _n_deltas(epsilon, size))
            return statement(_times(epsilon, size), deltas)
        case _:
            return None


def statement(epsilon: float, delta: float) -> Event:
    """The event of something that is (epsilon, delta)-differentially private."""
    if epsilon < math.inf and delta < 1.0:
        return ApproximateDP(epsilon, delta)
    return NonPrivate()


def _times(cost: float, number: float) -> float:
    """A product of numbers of 0 or more, rounded up once."""
    if cost == 0.0:
        return 0.0
    if number == math.inf:
        return math.inf
    return rounded_up(Fraction(cost) * Fraction(number))


def _n_deltas(epsilon: float, size: int) -> float:
    """1 + exp(epsilon) + ... + exp((size - 1) epsilon), infinite on overflow."""
    if epsilon == 0.0:
        return float(size)
    if size * epsilon > 700.0:
        return math.inf
    return math.expm1(size * epsilon) / math.expm1(epsilon) * MARGIN


def _chain(groups: Groups, size: int, delta: float, total_variation: float) -> Event:
    """The (epsilon, delta) of a chain of neighbors, each with the same delta.

    A larger delta of each link has a smaller epsilon. The search starts above the
    largest delta that the chain can pay for, and lowers it until the chain can pay for
    it and for the distance from ideal noise.
    """
    events = [Repeated(event, count) for event, count in groups]
    single = delta
    for _ in range(100):
        step = epsilon_of(events, single)
        epsilon = size * step * MARGIN
        if epsilon == math.inf:
            return NonPrivate()
        left = delta
        if is_chargeable(total_variation, epsilon, delta):
            # up: twice the charge, as in the total
            left -= 2.0 * delta_charge(total_variation, epsilon) * MARGIN
        spent = _times(single, _n_deltas(step, size))
        if spent <= left:
            return statement(epsilon, spent)
        # a little more, so that the search ends
        single = 0.99 * left / _n_deltas(step, size)
    return statement(size * epsilon_of(events, 0.0) * MARGIN, 0.0)


# ---- rows of several persons ---------------------------------------------------------


def limit_rows(owners: Iterable[Iterable[Hashable]], max_rows: int) -> NDArray[np.intp]:
    """Choose rows so that every person is an owner of at most `max_rows` of them.

    Rows are taken in their order. A row is left out if one of its owners, such as the
    sender and the recipients of a mail, has `max_rows` rows already.

    Parameters
    ----------
    owners : iterable of iterable of hashable
        The persons of each row. A row without owners is kept. A string is a TypeError,
        because its letters would be the owners; a missing owner, such as NaN, is a
        ValueError.
    max_rows : int
        Largest number of kept rows of one person, at least 1.

    Returns
    -------
    rows : ndarray of int
        Increasing indices of the kept rows. No further row could be added.

    Notes
    -----
    **Privacy.** The unit is a person, and neighbors differ in the words of all rows of
    one person, which become empty. *If the lists of owners and the order of the rows
    are public*, ``model.privacy_.for_groups(max_rows)`` is the guarantee
    (``docs/proofs_document.md``). It does not hide who wrote to whom.

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
        owners_of_row = list(given)
        if any(map(_is_missing, owners_of_row)):
            raise ValueError(
                "an owner is missing (None or NaN), so nobody's rows are bounded; "
                "leave these rows out, or name their owners"
            )
        persons = set(map(_person, owners_of_row))
        if all(n_kept[person] < max_rows for person in persons):
            n_kept.update(persons)
            rows.append(row)
    return np.array(rows, dtype=np.intp)


def _person(owner: Hashable) -> Hashable:
    """One value for each person, by the package's rule for ids."""
    return (
        canonical_id(owner, "owners") if isinstance(owner, (str, Integral)) else owner
    )


def _is_missing(person: Hashable) -> bool:
    """Whether a person is None, NaN, or pandas' NaT or NA."""
    try:
        return person is None or bool(person != person)
    except TypeError:  # NA is neither equal to itself nor different
        return True
