"""Compositions of many events as trees, of which one more event changes a few branches only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import NamedTuple, TypeAlias

from dplda.privacy._events import Event
from dplda.privacy._loss_distributions import LossDistribution

Groups: TypeAlias = tuple[tuple[Event, int], ...]
Repeat: TypeAlias = Callable[[Event, int], LossDistribution]

# Branches of so many generations are kept. What lies below a kept one is composed again: with a
# thousand events these are thirty, which take a tenth of a second.
_KEPT = 5
# Trees that are kept, and the numbers in them, 8 bytes each. The one that was used last always is.
_MOST_TREES, _MOST_NUMBERS = 8, 2**24
# Fewer events are composed again: calibrations ask for many totals of two or three.
_FEW = 4


class Branch(NamedTuple):
    """The composition of some events, and the two branches that it was composed of, if kept."""

    groups: Groups
    losses: LossDistribution
    sides: tuple[Branch | None, Branch | None] = (None, None)

    @property
    def n_numbers(self) -> int:
        """Size of this branch and of all below it."""
        return self.losses.n_masses + sum(side.n_numbers for side in self.sides if side)


class CompositionTrees:
    """Composes events in the order of a tree, in which each event's hash is its path.

    The tree is a function of the events, so that the result does not depend, in its last digits, on
    what was composed before. A ledger adds one fit to many: the new tree takes all other branches
    from the one before, and replaces it. Trees are replaced and never changed: safe to thread.
    """

    def __init__(self) -> None:
        self._roots: tuple[tuple[float, Branch], ...] = ()  # by interval, the last one used first

    def cache_clear(self) -> None:
        """Forget all trees."""
        self._roots = ()

    def compose(self, groups: Groups, interval: float, repeat: Repeat) -> LossDistribution:
        """Compose events; ``repeat(event, count)`` is the distribution of one of the groups.

        Parameters
        ----------
        groups : tuple of (Event, int)
            Different events, and how often each occurs.
        interval : float
            Distance between two points of the grid of all distributions.
        repeat : callable
            A function of its arguments and of the interval.

        Returns
        -------
        LossDistribution
        """
        if len(groups) < _FEW:
            return _grown(groups, None, repeat, 0).losses
        every, roots = set(groups), self._roots
        nearest, most = None, 0
        for at, root in roots:
            shared = len(every.intersection(root.groups)) if at == interval else 0
            nearest, most = (root, shared) if shared > most else (nearest, most)
        new = _grown(groups, nearest, repeat, 0)
        grew = nearest is not None and 2 * most >= len(nearest.groups)
        others = [kept for kept in roots if not (grew and kept[1] is nearest)]
        self._roots = _as_many_as_fit([(interval, new), *others[: _MOST_TREES - 1]])
        return new.losses


def _grown(groups: Groups, known: Branch | None, repeat: Repeat, depth: int) -> Branch:
    """The branch of some events, with all that it shares with a known branch of that place."""
    if known is not None and known.groups == groups:
        return known
    if len(groups) == 1:
        return Branch(groups, repeat(*groups[0]))
    sides: tuple[list[tuple[Event, int]], ...] = ([], [])
    for group in groups:
        sides[_hash(group[0]) >> depth & 1].append(group)
    left, right = (
        _grown(tuple(side), before, repeat, depth + 1) if side else None
        for side, before in zip(sides, known.sides if known else (None, None), strict=True)
    )
    branches = [branch.losses for branch in (left, right) if branch]
    losses = reduce(lambda total, further: total.compose(further), branches)
    return Branch(groups, losses, (left, right) if depth < _KEPT else (None, None))


def _as_many_as_fit(roots: list[tuple[float, Branch]]) -> tuple[tuple[float, Branch], ...]:
    """The first tree, and those after it while there is room."""
    left = _MOST_NUMBERS - roots[0][1].n_numbers
    kept = roots[:1]
    for interval, root in roots[1:]:
        left -= root.n_numbers
        if left < 0:
            break
        kept.append((interval, root))
    return tuple(kept)


@lru_cache(maxsize=4096)
def _hash(event: Event) -> int:
    """The same in every process, unlike the hash of Python."""
    return int.from_bytes(hashlib.sha256(repr(event).encode()).digest())
