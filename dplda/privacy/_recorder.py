"""What an audit sees of a fit: one hook around every path by which a value leaves.

A recorder is passed to a block of code with `record`. Everything that samples, releases
or announces in this block, in the thread of the block, goes through it. An auditor from
outside writes a subclass of `Recorder` (docs/audits.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dplda.privacy._charge import Charge
    from dplda.privacy._events import Event
    from dplda.privacy._mechanisms import Cells, Mechanism

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Release:
    """One value that became public; `mechanism` is None if noise is not the reason."""

    label: str
    round: int
    value: object
    mechanism: Mechanism | None = None


@dataclass(frozen=True, eq=False)
class Computed:
    """One release from inside: the exact value, which is private, and its noise."""

    label: str
    round: int
    value: Cells
    mechanism: Mechanism
    event: Event
    names: NDArray[np.object_] | None = None  # of the cells, if their number is private


class Recorder:
    """Sees what is charged, sampled, computed and released. This one changes nothing.

    A method returns what the fit goes on with: what it was given, or what a replay has
    in its place.
    """

    def charges(self, charge: Charge) -> bool:
        """Whether this charge is written to its ledger."""
        return True

    def sampled(
        self, rates: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The rows of a secret sample; both are private."""
        return rows

    def released(self, computed: Computed, noisy: Cells) -> Cells:
        """The noisy cells of a release."""
        return noisy

    def selected(
        self, computed: Computed, names: NDArray[np.object_], noisy: Cells
    ) -> tuple[NDArray[np.object_], Cells]:
        """The names and noisy values of the cells that a release shows."""
        return names, noisy

    def drawn(self, label: str, round: int, value: Value) -> Value:
        """A value that is private by construction."""
        return value

    def announced(self, release: Release) -> None:
        """What the adversary of the theorems sees."""


_RECORDERS: ContextVar[tuple[Recorder, ...]] = ContextVar("_RECORDERS", default=())


def recorders() -> Sequence[Recorder]:
    """Those of this thread, the innermost one first."""
    return _RECORDERS.get()


@contextmanager
def record(recorder: Recorder) -> Iterator[Recorder]:
    """Let a recorder see all that this thread samples and releases in the block.

    Parameters
    ----------
    recorder : Recorder
        It comes before the recorders of blocks around this one.

    Yields
    ------
    recorder : Recorder
        The same object.
    """
    token = _RECORDERS.set((recorder, *_RECORDERS.get()))
    try:
        yield recorder
    finally:
        _RECORDERS.reset(token)


class _Releases(Recorder):
    """Collects what the adversary sees."""

    def __init__(self) -> None:
        self.seen: list[Release] = []

    def announced(self, release: Release) -> None:
        self.seen.append(release)


@contextmanager
def observe_releases() -> Iterator[list[Release]]:
    """Collect what this thread releases inside of the ``with`` block, oldest first.

    Yields
    ------
    releases : list of Release
        Grows with each release.
    """
    releases = _Releases()
    with record(releases):
        yield releases.seen


def announce(
    label: str,
    round: int,
    value: object,
    mechanism: Mechanism | None = None,
) -> None:
    """Show a value that has just become public to the recorders, if there are any.

    The value must not change afterwards. `value` may be a function that returns the
    value; it is called only if there is a recorder.
    """
    if seen_by := recorders():
        shown = value() if callable(value) else value
        for recorder in seen_by:
            recorder.announced(Release(label, round, shown, mechanism))
