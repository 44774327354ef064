"""The ledger: the privacy budget of one body of data, and the charges to it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from dplda._checks import check_number, check_probability
from dplda.privacy._accounting import epsilon_of, is_within
from dplda.privacy._errors import BudgetError
from dplda.privacy._events import Event
from dplda.privacy._store import Entry, FileStore, MemoryStore, Page, Status, open_file

__all__ = ["Entry", "Ledger"]


class Ledger:
    """A privacy budget, and every charge to it.

    A ledger belongs to one body of data and one unit of privacy. Fits that share it compose: the
    ledger reports the epsilon of all of them together. Copies made by `copy.deepcopy` and by
    scikit-learn's `clone` are the same ledger. Copies sent to other processes are the same ledger
    if it has a path.

    Parameters
    ----------
    path : str or path-like, default=None
        SQLite file of the entries, on a local disk. It is made if it does not exist. None keeps
        the entries in memory, for one process.
    epsilon : float, default=None
        The budget, above 0. None takes that of the file, or no limit for a new ledger.
    delta : float, default=None
        The delta of (epsilon, delta)-differential privacy, in [0, 1). None takes that of the
        file, or 1e-6.

    Raises
    ------
    TypeError
        If `path` or the budget has the wrong type.
    ValueError
        If the budget is out of range or differs from that of the file. If the file is not a
        ledger, is empty or damaged, or was replaced by another ledger: a ledger never continues
        with fewer entries than were written.
    OSError
        If the file cannot be opened or made, or a charge cannot be written.

    See Also
    --------
    Guarantee : The guarantee of one fitted model.

    Notes
    -----
    **Privacy.** The total is a theorem if the number of mechanisms and their noise do not
    depend on earlier releases. What a mechanism computes may depend on them. The total holds for
    the relation that all entries share. If some entries replace a unit by any other
    (`RandomizedResponseEvent`) and some add or remove one, the total holds for a unit that is
    replaced by an empty one. An entry counts as soon as it is reserved: a fit that was killed may
    have released something.

    The total also assumes that no unit occurs twice in the data of an entry. A bootstrap sample,
    as `sklearn.ensemble.BaggingClassifier` draws by default, holds copies of documents, and each
    copy is clipped alone: pass ``bootstrap=False``. The total is infinite as soon as two entries
    drew their noise from given seeds, because the noise of equal seeds cancels.

    A ledger cannot detect that its file was replaced by an older copy (``docs/accounting.md``).

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Ledger
    >>> ledger = Ledger(epsilon=4.0)
    >>> entry = ledger.reserve("a noisy sum", "document", Gaussian(5.0))
    >>> ledger.confirm(entry)
    >>> round(ledger.epsilon_spent, 2)
    0.83
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        if isinstance(path, (int, float)):
            raise TypeError(f"path must be a file, got {path}; a budget is Ledger(epsilon={path})")
        if epsilon is not None:
            epsilon = check_number("epsilon", epsilon, 0.0, math.inf, closed="right")
        if delta is not None:
            delta = check_probability("delta", delta)
        new_budget = math.inf if epsilon is None else epsilon, 1e-6 if delta is None else delta
        self._store: MemoryStore | FileStore
        if path is None:
            self._store = MemoryStore(*new_budget)
        else:
            self._store = open_file(os.path.abspath(os.fspath(path)), *new_budget)
            self._check_same_budget(epsilon, delta)

    def _check_same_budget(self, epsilon: float | None, delta: float | None) -> None:
        for name, given, written in (
            ("epsilon", epsilon, self.epsilon),
            ("delta", delta, self.delta),
        ):
            if given is not None and given != written:
                raise ValueError(
                    f"the ledger {self.path} has {name} {written}, not {given}; leave {name} "
                    "out to use it as it is, or choose another path"
                )

    @property
    def path(self) -> str | None:
        """Absolute path of the file; None in memory."""
        return self._store.path

    @property
    def epsilon(self) -> float:
        """Epsilon of the budget; infinite if there is no limit."""
        return self._store.epsilon

    @property
    def delta(self) -> float:
        """The delta at which epsilon is stated."""
        return self._store.delta

    @property
    def unit(self) -> str | None:
        """The protected unit; None before the first entry."""
        return next((entry.unit for entry in self._counted()), None)

    @property
    def epsilon_spent(self) -> float:
        """Epsilon of everything reserved and confirmed, at the ledger's delta."""
        return self.epsilon_at(self.delta)

    @property
    def remaining(self) -> float:
        """Budget minus what was spent.

        Composition is not a sum: several small fits may cost less in total than this number.
        """
        return math.inf if self.epsilon == math.inf else max(0.0, self.epsilon - self.epsilon_spent)

    @property
    def caveat(self) -> str | None:
        """Why the total is infinite though every entry has a finite cost; None otherwise."""
        return _why_infinite(self._counted(), self.delta)

    def epsilon_at(self, delta: float, *, accountant: str = "pld") -> float:
        """Compute epsilon of all reserved and confirmed entries at another delta.

        Parameters
        ----------
        delta : float
            In [0, 1).
        accountant : {"pld", "rdp"}, default="pld"
            Method of composition, see `epsilon_of`. "pld" takes the smallest valid epsilon.
            "rdp" takes Renyi divergences alone, which is usually larger; many other libraries
            report it. The budget is always compared with "pld".

        Returns
        -------
        float
            Zero or more; infinite if some event is not private.
        """
        return _total(self._counted(), delta, accountant)

    def entries(self) -> list[Entry]:
        """List all entries.

        Returns
        -------
        list of Entry
            Oldest first, canceled ones included.
        """
        with self._store.transaction(write=False) as page:
            return page.entries()

    def _counted(self) -> list[Entry]:
        return [entry for entry in self.entries() if entry.counts]

    def reserve(
        self,
        label: str,
        unit: str,
        events: Event | Iterable[Event],
        *,
        total_variation: float = 0.0,
        seeded: bool = False,
    ) -> int:
        """Charge for what will be released, if the budget allows it.

        Check and charge are one transaction among threads and processes.

        Parameters
        ----------
        label : str
            Name of the charge, for instance the class of the estimator.
        unit : str
            Protected unit, such as "document".
        events : Event or iterable of Event
            Events of the planned releases.
        total_variation : float, default=0.0
            Distance of the noise from its ideal law, over all these events, in [0, 1).
        seeded : bool, default=False
            Whether the noise comes from a given seed.

        Returns
        -------
        int
            Number of the entry, for `confirm` and `cancel`.

        Raises
        ------
        BudgetError
            If the total would exceed the budget. Nothing is written then.
        ValueError
            If the ledger protects another unit, or `total_variation` is out of range.
        """
        total_variation = check_probability("total_variation", total_variation)
        entry = Entry(
            id=0,
            label=str(label),
            unit=str(unit),
            events=(events,) if isinstance(events, Event) else tuple(events),
            total_variation=total_variation,
            seeded=bool(seeded),
            status="reserved",
            created=datetime.now(UTC).isoformat(timespec="milliseconds"),
            process=os.getpid(),
        )
        with self._store.transaction(write=True) as page:
            self._check_affordable(entry, [old for old in page.entries() if old.counts])
            return page.add(entry)

    def _check_affordable(self, new: Entry, counted: list[Entry]) -> None:
        if counted and counted[0].unit != new.unit:
            raise ValueError(
                f"this ledger protects one {counted[0].unit}, and {new.label!r} protects one "
                f"{new.unit}; their epsilons do not add up: use a ledger for each unit"
            )
        after = [*counted, new]
        reason = _why_infinite(after, self.delta)
        if reason and self.epsilon < math.inf:
            raise BudgetError(f"{new.label!r} has no finite epsilon in this ledger: {reason}")
        events, distance = _sum(after)
        if is_within(events, self.epsilon, self.delta, total_variation=distance):
            return
        raise BudgetError(
            f"{new.label!r} would spend epsilon {_total(after, self.delta):.6g} of "
            f"{self.epsilon:g} (delta {self.delta:g}), {_total(counted, self.delta):.4g} of it "
            "spent before; lower epsilon or max_iter, raise noise_multiplier, or use a ledger "
            "with a larger budget"
        )

    def confirm(self, entry_id: int) -> None:
        """Note that all releases of a reserved entry were made. The cost stays the same.

        Parameters
        ----------
        entry_id : int
            Number that `reserve` returned.

        Raises
        ------
        ValueError
            If there is no such entry, or it was canceled.
        """
        self._settle(entry_id, "confirmed")

    def cancel(self, entry_id: int) -> None:
        """Cancel a reservation for which nothing was released and nothing will be released.

        Parameters
        ----------
        entry_id : int
            Number that `reserve` returned.

        Raises
        ------
        ValueError
            If there is no such entry, or it was confirmed.
        """
        self._settle(entry_id, "canceled")

    def _settle(self, entry_id: int, status: Status) -> None:
        with self._store.transaction(write=True) as page:
            entry = _find(page, entry_id)
            if entry.status not in ("reserved", status):
                raise ValueError(f"entry {entry_id} is {entry.status} and cannot become {status}")
            page.set_status(entry_id, status)

    def __sklearn_clone__(self) -> Ledger:
        return self

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._store, MemoryStore):
            raise TypeError(
                "a ledger in memory cannot be sent to another process or saved; give it a "
                "path, as in Ledger('privacy.sqlite')"
            )
        return _attach, (self.path, self.epsilon, self.delta, self._store.ledger_id)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(self.path)
        try:
            spent, n_entries = self.epsilon_spent, len(self._counted())
        except (OSError, ValueError, RuntimeError):
            return f"<Ledger {where}: unreadable>"
        return (
            f"<Ledger {where}: epsilon {spent:.4g} of {self.epsilon:g} spent at delta "
            f"{self.delta:g}, entries: {n_entries}>"
        )


def _attach(path: str, epsilon: float, delta: float, ledger_id: str) -> Ledger:
    """Attach to an existing file, which is opened at the first use."""
    ledger = Ledger.__new__(Ledger)
    ledger._store = FileStore(path, epsilon, delta, ledger_id)
    return ledger


def _sum(entries: list[Entry]) -> tuple[list[Event], float]:
    events = [event for entry in entries for event in entry.events]
    return events, math.fsum(entry.total_variation for entry in entries)


def _why_infinite(entries: list[Entry], delta: float) -> str | None:
    """Why the entries have no finite epsilon together, whatever their events cost; else None."""
    if sum(entry.seeded for entry in entries) > 1:
        return (
            "two entries drew their noise from a given seed; if the seeds are equal, their noise "
            "cancels; leave random_state=None, or use a ledger without a budget for public data"
        )
    if delta == 0.0 and any(entry.total_variation > 0.0 for entry in entries):
        return "the noise has no finite epsilon at delta 0; use a ledger with delta above 0"
    return None


def _total(entries: list[Entry], delta: float, accountant: str = "pld") -> float:
    if _why_infinite(entries, delta):
        return math.inf
    events, distance = _sum(entries)
    return epsilon_of(events, delta, total_variation=distance, accountant=accountant)


def _find(page: Page, entry_id: int) -> Entry:
    for entry in page.entries():
        if entry.id == entry_id:
            return entry
    raise ValueError(f"this ledger has no entry {entry_id}")
