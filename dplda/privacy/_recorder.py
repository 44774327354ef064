"""What an audit sees of a fit: one hook around every path on which values leave.

A recorder is passed to a block of code with `record`. Everything that samples, releases
or announces in this block, in the thread of the block, goes through it. An auditor from
outside writes a subclass of `Recorder` (docs/audits.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dplda.privacy._events import Event
from dplda.privacy._mechanisms import Cells, Mechanism

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Release:
    """One value that became public; `mechanism` is None if noise is not the reason."""

    label: str
    round: int
    value: Any
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

    A subclass overrides what it wants to see. A method returns the value with which the
    fit goes on: its argument, or the replacement of a replay. All that it sees is
    private, except announcements.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.privacy.mechanisms import Recorder, record
    >>> class Rounds(Recorder):
    ...     labels = []
    ...     def released(self, computed, noisy):
    ...         self.labels.append(computed.label)
    ...         return noisy
    >>> with record(Rounds()) as tape:
    ...     model = SubLDA(2, epsilon=4.0, max_iter=2).fit([[2, 0, 1], [0, 3, 0]])
    >>> tape.labels
    ['word totals', 'word totals', 'word-topic counts', 'word-topic counts']
    """

    def charges(
        self, label: str, unit: str, plan: tuple[tuple[str, Event], ...]
    ) -> bool:
        """See a charge before data are read.

        Parameters
        ----------
        label, unit : str
            Name and unit of the ledger's entry.
        plan : tuple of (str, Event)
            All that will be released, in order.

        Returns
        -------
        bool
            Whether the charge is written to its ledger.
        """
        return True

    def sampled(
        self, rates: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """See a secret sample.

        Parameters
        ----------
        rates : ndarray of shape (n_units,)
            Private. Probability of each unit.
        rows : ndarray of int64
            Secret. Units in the sample, in increasing order.

        Returns
        -------
        rows : ndarray of int64
            The sample that the fit goes on with.
        """
        return rows

    def released(self, computed: Computed, noisy: Cells) -> Cells:
        """See a release from inside.

        Parameters
        ----------
        computed : Computed
            The exact value with its label, round, mechanism and event.
        noisy : ndarray of int64 or int32
            What becomes public.

        Returns
        -------
        noisy : ndarray
            What the fit goes on with.
        """
        return noisy

    def selected(
        self, computed: Computed, names: NDArray[np.object_], noisy: Cells
    ) -> tuple[NDArray[np.object_], Cells]:
        """See a release that shows some of its cells.

        Parameters
        ----------
        computed : Computed
            The exact values and the names of all cells.
        names, noisy : ndarray of shape (n_shown,)
            Names and noisy values of the cells that become public.

        Returns
        -------
        names, noisy : ndarray
            What the fit goes on with.
        """
        return names, noisy

    def drawn(self, label: str, round: int, value: Value) -> Value:
        """See a value that is private by construction, such as topics.

        Parameters
        ----------
        label, round : str, int
            As of a release.
        value : object
            What becomes public.

        Returns
        -------
        value : object
            What the fit goes on with.
        """
        return value

    def announced(self, release: Release) -> None:
        """See what the adversary of the theorems sees.

        Parameters
        ----------
        release : Release
            A value that has become public.
        """


_RECORDERS: ContextVar[tuple[Recorder, ...]] = ContextVar("_RECORDERS", default=())


def recorders() -> Sequence[Recorder]:
    """The recorders of this thread, innermost first."""
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

    Examples
    --------
    `Recorder` has one.
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
