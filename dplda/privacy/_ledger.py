"""The ledger: the privacy budget of one body of data, and the charges to it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dplda.leaf._checks import check_integer, check_number, check_probability
from dplda.leaf._log import INFO, WARNING, is_logged, log_event
from dplda.privacy._accounting import epsilon_of
from dplda.privacy._charges import check_affordable, epsilon_used, total_of, why_infinite
from dplda.privacy._entries import Budget, Composition, Entry, State, Status, name_of_part
from dplda.privacy._errors import BudgetError
from dplda.privacy._events import Event
from dplda.privacy._store import MemoryStore, Page, Store, open_file

__all__ = ["Ledger"]

_RECEIPT = re.compile(r"[0-9a-f]{8}-(\d{1,18})-[0-9a-f]{16}", re.ASCII)


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
    composition : {"planned", "adaptive"}, default=None
        Whether noise and number of charges are fixed in advance, or may depend on earlier
        releases. "adaptive" needs a finite `epsilon` and a `delta` above 0. None takes that of
        the file, or "planned".
    data : str, default=None
        Name of the data that the ledger is for, such as "notes 2024". It is public. None takes that
        of the file, or no name for a new ledger.

    Raises
    ------
    TypeError
        If `path`, the budget or `data` has the wrong type.
    ValueError
        If the budget is out of range, `data` is no printable text, or one of them differs from that
        of the file. If the file is no ledger, is damaged, or was replaced by another ledger: a
        ledger never continues with fewer entries than were written.
    OSError
        If the file cannot be opened or made, or a charge cannot be written.

    Notes
    -----
    **Privacy.** With planned composition, the total is a theorem if the number of mechanisms and
    their noise do not depend on earlier releases. What a mechanism computes may depend on them.
    With adaptive composition, all of it may depend on releases, and the guarantee is the budget:
    everything together is (`epsilon`, `delta`)-differentially private. Nothing may depend on
    private values that were not released, such as a score on private documents. The total holds
    for the relation that all entries share. If some entries replace a unit by any other
    (`RandomizedResponseEvent`) and some add or remove one, it holds for a unit that is replaced by
    an empty one. An entry counts as soon as it is reserved.

    No unit may occur twice in the data of an entry, as in a bootstrap sample: pass `user_ids` to
    `fit`. The total is infinite as soon as two entries drew their noise from given seeds, because
    the noise of equal seeds cancels. `sklearn.ensemble.BaggingClassifier` gives a seed to each fit.

    A ledger cannot detect that its file was replaced by an older copy, but a `receipt` can.

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Ledger
    >>> ledger = Ledger(epsilon=4.0)
    >>> entry = ledger.reserve("a noisy sum", "document", Gaussian(5.0))
    >>> ledger.begin_release(entry)
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
        composition: Composition | None = None,
        data: str | None = None,
    ) -> None:
        if isinstance(path, (int, float)):
            raise TypeError(f"path must be a file, got {path}; a budget is Ledger(epsilon={path})")
        if epsilon is not None:
            epsilon = check_number("epsilon", epsilon, 0.0, math.inf, closed="right")
        if delta is not None:
            delta = check_probability("delta", delta)
        if composition not in (None, "planned", "adaptive"):
            raise ValueError(f"composition must be 'planned' or 'adaptive', got {composition!r}")
        _check_name(data)
        given = Budget(epsilon, delta, composition, data)  # type: ignore[arg-type]
        unlimited = Budget(math.inf, 1e-6, "planned", None)
        new = Budget(*(b if a is None else a for a, b in zip(given, unlimited)))  # type: ignore
        self._part: str | None = None
        self._store = MemoryStore(new) if path is None else open_file(os.fspath(path), new)
        for name, value, written in zip(Budget._fields, given, self._store.budget):
            if value is not None and value != written:
                raise ValueError(
                    f"the ledger {self.path} has {name} {written}, not {value}; leave {name} "
                    "out to use it as it is, or choose another path"
                )

    @property
    def path(self) -> str | None:
        """Absolute path of the file; None in memory."""
        return self._store.path

    @property
    def id(self) -> str:
        """Random name of the ledger, which `privacy_` of its fits quotes."""
        return self._store.ledger_id

    @property
    def epsilon(self) -> float:
        """Epsilon of the budget; infinite if there is no limit."""
        return self._store.budget.epsilon

    @property
    def delta(self) -> float:
        """The delta at which epsilon is stated."""
        return self._store.budget.delta

    @property
    def composition(self) -> Composition:
        """Whether noise and number of charges are "planned", or "adaptive"."""
        return self._store.budget.composition

    @property
    def data(self) -> str | None:
        """Name of the data; None if the ledger has none."""
        return self._store.budget.data

    @property
    def unit(self) -> str | None:
        """The protected unit; None before the first entry."""
        return next((entry.unit for entry in self._counted()), None)

    @property
    def epsilon_spent(self) -> float:
        """Epsilon of everything that counts, at the ledger's delta.

        With adaptive composition, how much of the budget is used up: the epsilon of Gaussian noise
        that uses the same share of it. The guarantee is then `epsilon`, whatever was spent.
        """
        state = self._state()
        if self.composition == "planned":
            return total_of(state.counted, self.delta)
        return epsilon_used(state)

    @property
    def remaining(self) -> float:
        """Budget minus what was spent.

        Composition is not a sum: several small fits may cost less in total than this number.
        """
        return math.inf if self.epsilon == math.inf else max(0.0, self.epsilon - self.epsilon_spent)

    @property
    def caveat(self) -> str | None:
        """Why the total is infinite though every entry has a finite cost; None otherwise."""
        return why_infinite(self._counted(), self.delta)

    def epsilon_at(self, delta: float) -> float:
        """Compute epsilon of all entries that count at another delta.

        Parameters
        ----------
        delta : float
            In [0, 1).

        Returns
        -------
        float
            Zero or more; infinite if some event is not private. With adaptive composition, the
            budget at its own delta or a larger one, and infinite at a smaller one.
        """
        counted = self._counted()
        if self.composition == "planned" or not counted:
            return total_of(counted, delta)
        return self.epsilon if check_probability("delta", delta) >= self.delta else math.inf

    def part(self, name: Any, *, of: int | None = None) -> Ledger:
        """Charge one part of the data, disjoint from all other parts.

        The returned ledger is this one, except that what it reserves is charged to the part. A unit
        is in one part only. The total is therefore the largest of the totals of the parts, each
        with the entries that belong to no part.

        Parameters
        ----------
        name : str or int
            Name of the part. With `of`, the number that `user_part` gives to its users.
        of : int, default=None
            Number of parts into which `user_part` divides the users. None for parts that are sets
            of documents.

        Returns
        -------
        Ledger
            To be passed to an estimator that is fitted to this part alone.

        Raises
        ------
        ValueError
            If the name is empty or looks like a part of users, or if this is a part already.

        Notes
        -----
        **Privacy.** Nothing can check which rows are passed to a fit. The total assumes that no
        unit is in two parts, and that the rule that chooses the rows of a part reads no private
        data. A function of row numbers is such a rule if every document is in one row. The total
        is for neighbors that differ in one unit that is emptied: a document that is removed would
        shift the numbers of the others.

        A part that is a set of rows has entries of its own for the unit "document" only. For other
        units such an entry is charged to all parts, unless the part comes from `user_part`.

        Examples
        --------
        >>> from dplda.privacy import Gaussian, Ledger, epsilon_of
        >>> ledger = Ledger(epsilon=4.0)
        >>> entry = ledger.part("2026-11-23").reserve("fit", "document", Gaussian(2.0))
        >>> entry = ledger.part("2026-11-24").reserve("fit", "document", Gaussian(2.0))
        >>> ledger.epsilon_spent == epsilon_of(Gaussian(2.0), ledger.delta)
        True
        """
        if self._part is not None:
            raise ValueError(f"this ledger is the part {self._part!r}, and a part has no parts")
        part = Ledger.__new__(Ledger)
        part.__dict__ |= self.__dict__ | {"_part": name_of_part(name, of)}
        return part

    def entries(self) -> list[Entry]:
        """List all entries.

        Returns
        -------
        list of Entry
            Oldest first, canceled ones included.
        """
        with self._store.transaction(write=False) as page:
            return list(page.entries())

    @property
    def receipt(self) -> str:
        """Which entries the ledger has, as a short text to be kept elsewhere.

        It is the first part of the id, the number of entries, and a digest of their records. A
        copy of the ledger that is older than the receipt does not have it (`has`).
        """
        with self._store.transaction(write=False) as page:
            return page.receipt(len(page.entries()))

    def has(self, receipt: str) -> bool:
        """Whether this ledger has all entries that a receipt stands for.

        Parameters
        ----------
        receipt : str
            The `receipt` of a ledger at an earlier time, or that of a guarantee.

        Returns
        -------
        bool
            False if the receipt is that of another ledger, or the file was replaced by a copy from
            before the receipt, whatever was charged to the copy since.

        Raises
        ------
        ValueError
            If the text is no receipt.

        Notes
        -----
        The status of entries is no part of a receipt: it may change, and a copy may be older than
        a change of status. Cancel no entry of a copy that was restored.
        """
        match = _RECEIPT.fullmatch(receipt)
        if match is None:
            raise ValueError(
                f"{receipt[:80]!r} is no receipt of a ledger; take it from Ledger.receipt, from "
                "privacy_.receipt of a model, or from `dplda ledger show`"
            )
        with self._store.transaction(write=False) as page:
            n_entries, n = len(page.entries()), int(match[1])
            return n <= n_entries and page.receipt(n) == receipt

    def _counted(self) -> list[Entry]:
        return self._state().counted

    def _state(self) -> State:
        with self._store.transaction(write=False) as page:
            return page.state()

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

        The price is computed while no other thread or process can charge: together they never
        exceed the budget. Call `begin_release` before the first release.

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
            Number of the entry, for `begin_release`, `confirm` and `cancel`.

        Raises
        ------
        BudgetError
            If the total would exceed the budget. Nothing is written then.
        ValueError
            If the ledger protects another unit or has another kind of parts, or
            `total_variation` is out of range.
        """
        total_variation = check_probability("total_variation", total_variation)
        if not isinstance(events, Event | Iterable):
            raise TypeError(f"expected privacy events, got {type(events).__name__}")
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
            part=self._part,
        )
        try:
            with self._store.transaction(write=True) as page:
                page.set_filters(check_affordable(entry, page.state()))
                number = page.add(entry)
                receipt = page.receipt(number)
        except BudgetError:
            self._log_charge("budget refused", entry, WARNING)
            raise
        self._log_charge("budget charged", replace(entry, id=number), INFO, receipt)
        return number

    def begin_release(self, entry_id: int) -> None:
        """Note that releases of a reserved entry begin. From now on it cannot be canceled.

        Call it before the first release. Until then, anybody may cancel the entry, for instance
        because its process was killed.

        Parameters
        ----------
        entry_id : int
            Number that `reserve` returned.

        Raises
        ------
        ValueError
            If there is no such entry, or it is not reserved. Release nothing then.
        """
        self._settle(entry_id, "releasing", ("reserved",))

    def confirm(self, entry_id: int) -> None:
        """Note that all releases of an entry were made. The cost stays the same.

        Parameters
        ----------
        entry_id : int
            Number that `reserve` returned.

        Raises
        ------
        ValueError
            If there is no such entry, or it was canceled.
        """
        self._settle(entry_id, "confirmed", ("reserved", "releasing", "confirmed"))

    def cancel(self, entry_id: int) -> None:
        """Cancel a reservation for which nothing was released.

        A fit of this package that still runs notices it before its first release, and ends with an
        error.

        Parameters
        ----------
        entry_id : int
            Number that `reserve` returned.

        Raises
        ------
        ValueError
            If there is no such entry, or its releases have begun.
        """
        self._settle(entry_id, "canceled", ("reserved", "canceled"))

    def _settle(self, entry_id: int, status: Status, allowed: tuple[Status, ...]) -> None:
        with self._store.transaction(write=True) as page:
            entry = _find(page, entry_id)
            if entry.status not in allowed:
                raise ValueError(
                    f"entry {entry_id} of the ledger is {entry.status}, and cannot become {status}"
                )
            page.set_status(entry_id, status)
        log_event(
            "ledger", f"charge {status}", ledger=self.id[:8], entry=entry_id, label=entry.label
        )

    def _log_charge(self, event: str, entry: Entry, level: int, receipt: str | None = None) -> None:
        if is_logged("ledger", level):  # else its price alone is not computed
            alone = epsilon_of(entry.events, self.delta, total_variation=entry.total_variation)
            log_event(
                "ledger", event, level=level, ledger=self.id[:8], receipt=receipt,
                entry=entry.id or None,  # a refused charge has no number
                label=entry.label, part=entry.part, unit=entry.unit, seeded=entry.seeded,
                epsilon=alone, delta=self.delta, budget=self.epsilon,
            )  # fmt: skip

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
        return _attach, (self.path, self._store.budget, self._store.ledger_id, self._part)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(self.path)
        if self.data is not None:
            where += f", data {self.data!r}"
        if self._part is not None:
            where += f", part {self._part!r}"
        try:
            spent, n_entries = self.epsilon_spent, len(self._counted())
        except (OSError, ValueError, RuntimeError):
            return f"<Ledger {where}: unreadable>"
        used = "spent" if self.composition == "planned" else "used up"
        return (
            f"<Ledger {where}: epsilon {spent:.4g} of {self.epsilon:g} {used} at delta "
            f"{self.delta:g}, entries: {n_entries}>"
        )


def as_ledger(given: Ledger | str | os.PathLike[str]) -> Ledger:
    """The `ledger` of an estimator, which may be the path of one."""
    return given if isinstance(given, Ledger) else Ledger(given)


def _attach(path: str, budget: Budget, ledger_id: str, part: str | None) -> Ledger:
    """Attach to an existing file, which is opened at the first use."""
    ledger = Ledger.__new__(Ledger)
    ledger._store, ledger._part = Store(path, budget, ledger_id), part
    return ledger


def _check_name(data: str | None) -> None:
    if data is not None and not isinstance(data, str):
        raise TypeError(f"data must be a text that names the data, got {type(data).__name__}")
    if data is not None and not (data.strip() and data.isprintable()):
        raise ValueError(
            f"data must be a printable text that is not empty, got {data!r}; for instance "
            "'notes 2024'"
        )


def _find(page: Page, entry_id: int) -> Entry:
    check_integer("entry_id", entry_id, 1, 10**18)
    for entry in page.entries():
        if entry.id == entry_id:
            return entry
    raise ValueError(f"this ledger has no entry {entry_id}")
