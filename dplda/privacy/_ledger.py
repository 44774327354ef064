"""The ledger: the privacy budget of one body of data, and the charges to it."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._checks import (
    check_delta,
    check_integer,
    check_number,
    check_probability,
)
from dplda.leaf._messages import INFO, WARNING, is_logged, log_event
from dplda.leaf._users import canonical_id
from dplda.privacy._accounting import (
    epsilon_of,
    epsilon_of_mu,
    gaussian_mu,
    rounded_up,
)
from dplda.privacy._curves import FloatArray
from dplda.privacy._events import Event
from dplda.privacy._filters import Filter, choose_filter
from dplda.privacy._store import (
    USERS,
    Budget,
    Composition,
    Entry,
    Page,
    Status,
    Store,
    is_of_users,
)

_NEW = "a new ledger does not know what this one spent: charge that to it first, see "
_ADVICE = (
    "lower epsilon or max_iter, raise noise_multiplier, or use a ledger with a larger "
    f"budget; {_NEW}docs/operations.md"
)
_DELTA_ADVICE = (
    "each vocabulary that is chosen from texts takes a tenth of its delta, and "
    "together they use up the delta of the ledger: lower the delta of the fits, give "
    f"public words, or use a ledger with a larger delta; {_NEW}docs/operations.md"
)


class BudgetError(ValueError):
    """A fit would spend more than its `epsilon` or its ledger allows.

    It is raised before private values are read; nothing is recorded or spent.
    """


class Ledger:
    """A privacy budget, and every charge to it.

    A ledger belongs to one body of data and one unit of privacy. Fits that share it
    compose: the ledger reports the epsilon of all of them together. Copies made by
    `copy.deepcopy` or scikit-learn's `clone` are the same ledger. With a path, so are
    copies sent to other processes.

    Parameters
    ----------
    path : str or path-like, default=None
        SQLite file of the entries, on a local disk; created if it does not exist. None
        keeps the entries in memory, for one process.
    epsilon : float, default=None
        The budget, above 0. None takes the budget of the file; a new ledger has no
        limit.
    delta : float, default=None
        The delta of (epsilon, delta)-differential privacy, from 0 to 0.001. None takes
        the delta of the file, or 1e-6.
    composition : {"planned", "adaptive"}, default=None
        Whether noise and number of charges are fixed in advance, or may depend on
        earlier releases. "adaptive" needs a finite `epsilon` and a `delta` above 0.
        None takes the composition of the file, or "planned".

    Raises
    ------
    ValueError
        If the budget is out of range, or differs from the budget of the file. If the
        file is not a ledger, is damaged, or was replaced: a ledger never continues with
        fewer entries than were written.
    OSError
        If the file cannot be opened or created, or a charge cannot be written.

    Notes
    -----
    **Privacy.** With planned composition, the total is a theorem if the number of
    mechanisms and their noise do not depend on earlier releases. With adaptive
    composition they may, and the guarantee is the budget. Nothing may depend on private
    values that were not released, such as a score on private documents. An entry counts
    as soon as it is reserved. No unit may occur twice in the data of an entry, as in a
    bootstrap sample: pass the same `user_ids` to all fits of a ledger.
    ``docs/accounting.md`` has the theorems.

    Examples
    --------
    >>> from dplda.privacy import Gaussian, Ledger
    >>> ledger = Ledger(epsilon=4.0)
    >>> entry = ledger.reserve("a noisy sum", "document", Gaussian(5.0))
    >>> ledger.begin_release(entry)
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
    ) -> None:
        if isinstance(path, (int, float)):
            raise TypeError(
                f"path must be a file, got {path}; a budget is Ledger(epsilon={path})"
            )
        if epsilon is not None:
            epsilon = check_number("epsilon", epsilon, 0.0, math.inf, closed="right")
        if delta is not None:
            delta = check_delta(delta)
        if composition not in (None, "planned", "adaptive"):
            raise ValueError(
                f"composition must be 'planned' or 'adaptive', got {composition!r}"
            )
        self._part: str | None = None
        new = Budget(
            epsilon=math.inf if epsilon is None else epsilon,
            delta=1e-6 if delta is None else delta,
            composition=composition or "planned",
        )
        self._store = Store(None if path is None else os.fspath(path), new)
        given = (epsilon, delta, composition)
        for name, value, written in zip(new._fields, given, self._store.budget):
            if value not in (None, written):
                raise ValueError(
                    f"the ledger {self.path} has {name} {written}, not {value}; leave "
                    f"{name} out to use it as it is, or choose another path for a new "
                    f"ledger; {_NEW}docs/operations.md"
                )

    @property
    def path(self) -> str | None:
        """Absolute path of the file; None in memory."""
        return self._store.path

    @property
    def id(self) -> str:
        """Random name of the ledger; `privacy_` of its fits quotes it."""
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
    def relation(self) -> str | None:
        """How two data sets may differ for the total to hold; None before any entry.

        If rows are chosen by number, as in the folds of a search, removing a document
        shifts them.
        """
        counted = self._read().counted()
        if not counted:
            return None
        unit = counted[0].unit
        stated = "changes as the guarantee of each entry states"
        has_rows = unit.startswith(("document", "user"))
        if not has_rows or all(is_of_users(entry.part) for entry in counted):
            return f"one {unit} {stated}"
        return (
            f"one {unit} becomes empty, and its rows stay; or {stated}, if no fit got "
            "rows that were chosen by their numbers"
        )

    @property
    def epsilon_spent(self) -> float:
        """Epsilon of everything that counts, at the ledger's delta.

        With adaptive composition, this is the epsilon of Gaussian noise that uses the
        same share of the budget. The guarantee is then `epsilon`, whatever was spent.
        """
        page = self._read()
        return _spent(page.counted(), page)

    @property
    def remaining(self) -> float:
        """Budget minus what was spent.

        Several fits cost less than the sum of their epsilons.
        """
        if self.epsilon == math.inf:
            return math.inf
        return max(0.0, self.epsilon - self.epsilon_spent)

    @property
    def caveat(self) -> str | None:
        """What the total omits, or why it is infinite; else None."""
        counted = self._read().counted()
        seeded = next((entry.id for entry in counted if entry.seeded), None)
        reason = _why_infinite(counted, self.delta)
        if reason is None and seeded is not None:
            reason = (
                f"entry {seeded} drew its noise from a given seed: the total does not "
                "hold against anyone who knows or guesses the seed; leave "
                "random_state=None"
            )
        return reason

    def epsilon_at(self, delta: float) -> float:
        """Compute epsilon of all entries that count at another delta.

        Parameters
        ----------
        delta : float
            In [0, 1).

        Returns
        -------
        float
            With adaptive composition: the budget at its own delta or a larger one, and
            infinity at a smaller delta.
        """
        counted = self._read().counted()
        if self.composition == "planned" or not counted:
            return _total(counted, delta)
        if check_probability("delta", delta) < self.delta:
            return math.inf
        return self.epsilon

    def part(
        self, name: str | int, *, by: str | None = None, of: int | None = None
    ) -> Ledger:
        """Charge one part of the data, disjoint from all other parts.

        Each part pays its own entries and those that belong to no part; the total is
        the largest over the parts.

        Parameters
        ----------
        name : str or int
            Name of the part. With `of`, the number that `user_part` gives to its users.
        by : str, default=None
            What divides the documents, such as "day". A ledger has one such rule: parts
            by another rule may overlap, and are refused.
        of : int, default=None
            Instead of `by`: the number of parts into which `user_part` divides the
            users.

        Returns
        -------
        Ledger
            This ledger, for an estimator that is fitted to this part alone.

        Notes
        -----
        **Privacy.** The total assumes that no unit is in two parts, and that the rule
        that chooses the rows reads no private data; nothing can check this. Unless the
        unit is "document" or the part comes from `user_part`, an entry is charged to
        all parts.

        Examples
        --------
        >>> from dplda.privacy import Gaussian, Ledger, epsilon_of
        >>> ledger = Ledger(epsilon=4.0)
        >>> for day in ("2026-11-23", "2026-11-24"):
        ...     part = ledger.part(day, by="day")
        ...     entry = part.reserve("fit", "document", Gaussian(2.0))
        >>> ledger.epsilon_spent == epsilon_of(Gaussian(2.0), ledger.delta)
        True
        """
        if self._part is not None:
            raise ValueError(
                f"this ledger is the part {self._part!r}, and a part has no parts"
            )
        if (by is None) == (of is None):
            raise ValueError(
                "part needs by=..., what divides the documents, such as 'day', or "
                f"of=..., the number of parts of user_part; got by={by!r} and of={of!r}"
            )
        if of is not None:
            by = f"{USERS}{check_integer('of', of, 1, 2**31)}"
            name = str(check_integer("name", name, 0, of - 1))
        else:
            by = _check_name("by", by)
            if "=" in by or by.startswith(USERS):
                raise ValueError(f"by must be a word such as 'day', got {by!r}")
        return _PartOfLedger(self._store, f"{by}={_check_name('name', name)}")

    def entries(self) -> list[Entry]:
        """List all entries, oldest first, canceled ones included.

        Returns
        -------
        list of Entry
            Each has `id`, `label`, `unit`, `events`, `total_variation`, `seeded`,
            `status`, `created`, `process` and `part`.
        """
        return self._read().entries()

    @property
    def receipt(self) -> str:
        """A short text that stands for the entries, to be kept elsewhere (see `has`).

        It has the first part of the id, the number of entries, and a digest of their
        records.
        """
        return self._read().receipt()

    def has(self, receipt: str) -> bool:
        """Whether this ledger has all entries that a receipt stands for.

        Parameters
        ----------
        receipt : str
            An earlier `receipt` of a ledger, or the `receipt` of a guarantee.

        Returns
        -------
        bool
            False if the receipt belongs to another ledger, or the file is a copy from
            before the receipt, whatever was charged to the copy since.
        """
        match = re.fullmatch(r"[0-9a-f]{8}-(\d{1,18})-[0-9a-f]{16}", receipt, re.ASCII)
        return match is not None and self._read().receipt(int(match[1])) == receipt

    def _read(self) -> Page:
        with self._store.transaction(write=False) as page:
            return page

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

        No other thread or process can charge while the price is computed: together they
        never exceed the budget. Call `begin_release` before the first release.

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
            Number of the entry, for `begin_release` and `cancel`.

        Raises
        ------
        BudgetError
            If the total would exceed the budget. Nothing is written then.
        ValueError
            If the ledger protects another unit, or its data are divided by another
            rule.
        """
        total_variation = check_probability("total_variation", total_variation)
        if not isinstance(events, Event | Iterable):
            raise TypeError(f"expected privacy events, got {type(events).__name__}")
        entry = Entry(
            label=str(label),
            unit=str(unit),
            events=(events,) if isinstance(events, Event) else tuple(events),
            total_variation=total_variation,
            seeded=bool(seeded),
            part=self._part,
            created=datetime.now(UTC).isoformat(timespec="milliseconds"),
            process=os.getpid(),
        )
        try:
            with self._store.transaction(write=True) as page:
                check_affordable(entry, page)
                number = page.add(entry)
                receipt = page.receipt(number)
        except BudgetError:
            self._log_charge("budget refused", entry, WARNING)
            raise
        self._log_charge("budget charged", replace(entry, id=number), INFO, receipt)
        return number

    def begin_release(self, entry_id: int) -> None:
        """Mark a reserved entry as released; it can no longer be canceled.

        Parameters
        ----------
        entry_id : int
            Number that `reserve` returned. ValueError if there is no such entry, or it
            is not reserved; then release nothing.
        """
        self._settle(entry_id, "released", ("reserved",))

    def cancel(self, entry_id: int) -> None:
        """Cancel a reservation without releases; a fit that still runs ends.

        Parameters
        ----------
        entry_id : int
            Number that `reserve` returned. ValueError if there is no such entry, or its
            releases have begun.
        """
        self._settle(entry_id, "canceled", ("reserved", "canceled"))

    def _settle(
        self, entry_id: int, status: Status, allowed: tuple[Status, ...]
    ) -> None:
        check_integer("entry_id", entry_id, 1, 10**18)
        with self._store.transaction(write=True) as page:
            found = [entry for entry in page.entries() if entry.id == entry_id]
            if not found:
                raise ValueError(f"this ledger has no entry {entry_id}")
            entry = found[0]
            if entry.status not in allowed:
                raise ValueError(
                    f"entry {entry_id} of the ledger is {entry.status}, and cannot "
                    f"become {status}"
                )
            page.set_status(entry_id, status)
        log_event(
            "ledger",
            f"charge {status}",
            ledger=self.id[:8],
            entry=entry_id,
            label=entry.label,
        )

    def _log_charge(
        self, event: str, entry: Entry, level: int, receipt: str | None = None
    ) -> None:
        if is_logged("ledger", level):  # else its price alone is not computed
            log_event(
                "ledger",
                event,
                level=level,
                ledger=self.id[:8],
                receipt=receipt,
                entry=entry.id or None,  # a refused charge has no number
                label=entry.label,
                part=entry.part,
                unit=entry.unit,
                seeded=entry.seeded,
                epsilon=_total([replace(entry, seeded=False)], self.delta),
                delta=self.delta,
                budget=self.epsilon,
            )

    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Ledger:
        return self

    __copy__ = __deepcopy__
    __sklearn_clone__ = __deepcopy__

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(self.path)
        if self._part is not None:
            where += f", part {self._part!r}"
        try:
            spent = self.epsilon_spent
            n_entries = len(self._read().counted())
        except (OSError, ValueError, RuntimeError):
            return f"<Ledger {where}: unreadable>"
        used = "spent" if self.composition == "planned" else "used up"
        return (
            f"<Ledger {where}: epsilon {spent:.4g} of {self.epsilon:g} {used} at delta "
            f"{self.delta:g}, entries: {n_entries}>"
        )


class _PartOfLedger(Ledger):
    """The same ledger, for charges to one part of the data: see `Ledger.part`."""

    def __init__(self, store: Store, part: str) -> None:
        self._store = store
        self._part = part


def as_ledger(given: Ledger | str | os.PathLike[str]) -> Ledger:
    """The `ledger` of an estimator, which may be given as a path."""
    return given if isinstance(given, Ledger) else Ledger(given)


def _check_name(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {type(value).__name__}")
    if not (value.strip() and value.isprintable()):
        raise ValueError(
            f"{name} must be a printable text that is not empty, got {value!r}"
        )
    return value


# ---- what entries cost together ------------------------------------------------------


def _by_part(entries: list[Entry]) -> list[list[Entry]]:
    """The entries that each part of the data pays: its own and those of all parts."""
    parts = {entry.charged_part for entry in entries} or {None}
    return [
        [entry for entry in entries if entry.charged_part in (None, part)]
        for part in parts
    ]


def _why_infinite(entries: list[Entry], delta: float) -> str | None:
    """Why the entries have no finite epsilon together.

    None if the cost of the events decides.
    """
    if sum(entry.seeded for entry in entries) > 1:
        return (
            "two entries drew their noise from a given seed; if the seeds are equal, "
            "their noise cancels; leave random_state=None, or use a ledger without a "
            "budget for public data"
        )
    if delta == 0.0 and any(entry.total_variation > 0.0 for entry in entries):
        return (
            "the noise has no finite epsilon at delta 0; "
            "use a ledger with delta above 0"
        )
    return None


def _total(entries: list[Entry], delta: float) -> float:
    """Epsilon of all entries: the largest among the parts of the data."""
    if _why_infinite(entries, delta):
        return math.inf
    return max(_total_of_part(paid, delta) for paid in _by_part(entries))


def _total_of_part(paid: list[Entry], delta: float) -> float:
    events = [event for entry in paid for event in entry.events]
    distance = math.fsum(entry.total_variation for entry in paid)
    return epsilon_of(events, delta, total_variation=distance)


def _used(entries: list[Entry], filter_text: str) -> float:
    """The largest share of the filter that a part has used; 0 without a filter.

    Sums are exact and rounded up once, so plans may use up a budget exactly.
    """
    if not (filter_text and entries):
        return 0.0
    chosen = Filter.from_text(filter_text)
    shares = []
    for paid in _by_part(entries):
        costs = np.array(
            [chosen.cost(entry.events, entry.total_variation) for entry in paid]
        )
        shares.append(chosen.used(np.array([_sum_up(column) for column in costs.T])))
    return max(shares)


def _sum_up(costs: FloatArray) -> float:
    """The smallest float that is at least the sum of numbers of 0 or more."""
    if not np.isfinite(costs).all():
        return math.inf
    return rounded_up(sum(map(Fraction, costs.tolist()), Fraction(0)))


def _spent(entries: list[Entry], page: Page) -> float:
    """Epsilon of entries or, by the filter, of Gaussian noise with the same share."""
    epsilon, delta, composition = page.budget
    if composition == "planned" or not page.filter:
        return _total(entries, delta)
    mu = gaussian_mu(epsilon, delta)
    return epsilon_of_mu(math.sqrt(_used(entries, page.filter)) * mu, delta)


def check_affordable(new: Entry, page: Page) -> None:
    """Refuse an entry that the budget does not allow.

    With adaptive composition, the first entry chooses the filter, and the ledger keeps
    it: docs/accounting.md has the theorem.
    """
    epsilon, delta, composition = page.budget
    counted = page.counted()
    if counted and counted[0].unit != new.unit:
        raise ValueError(
            f"this ledger protects one {counted[0].unit}, and {new.label!r} protects "
            f"one {new.unit}; their epsilons do not add up, and a ledger has one unit. "
            "Pass the same user_ids to all its fits, as columns of one name or as "
            "lists without a name. Use another ledger only if one of the results is "
            "never published: a reader of both may learn more about a user than either "
            "epsilon says (docs/persons.md)"
        )
    for entry in counted:
        if entry.part is None or new.part is None:
            continue  # charged to all parts
        if entry.part.partition("=")[0] != new.part.partition("=")[0]:
            raise ValueError(
                f"{new.part!r} may overlap with {entry.part!r}, which was charged "
                "before; divide the data in one way, or charge this to the whole ledger"
            )
    if epsilon == math.inf:
        return
    entries = [*counted, new]
    reason = _why_infinite(entries, delta)
    if reason is not None:
        raise BudgetError(
            f"{new.label!r} has no finite epsilon in this ledger: {reason}"
        )
    if composition == "planned":
        is_allowed = _total(entries, delta) <= epsilon
    elif page.filter:
        is_allowed = _used(entries, page.filter) <= 1.0
    else:  # the first entry, before any release
        chosen = choose_filter(new.events, new.total_variation, epsilon, delta)
        is_allowed = chosen is not None
        page.filter = "" if chosen is None else chosen.to_text()
    if not is_allowed:
        total = _spent(entries, page)
        before = _spent(counted, page)
        advice = _ADVICE
        if total == math.inf and composition == "planned":
            advice = _DELTA_ADVICE
        place = f" of the part {new.part}" if new.part else ""
        raise BudgetError(
            f"{new.label!r}{place} would spend more than the budget of epsilon "
            f"{epsilon:g} at delta {delta:g}: {before:.4g} of it is spent, and the "
            f"total would be {total:.6g}; {advice}"
        )


def user_part(user_ids: Iterable[str | int], n_parts: int) -> NDArray[np.int64]:
    """Divide users into parts by a public hash of their identifiers.

    Users of different parts share no budget: pass ``ledger.part(k, of=n_parts)`` to a
    fit of part `k`.

    Parameters
    ----------
    user_ids : iterable of str or int
        Identifier of the user of each document. The integer 7 and the text "7" are one
        user. A float is a TypeError, because it has several spellings.
    n_parts : int
        Number of parts, 1 or more.

    Returns
    -------
    parts : ndarray of int64, of shape (n_docs,)
        Numbers from 0 to ``n_parts - 1``, the same on every machine.

    Examples
    --------
    >>> from dplda.privacy import user_part
    >>> user_part(["ada", "bob", "ada"], 5).tolist()
    [3, 0, 3]
    """
    n_parts = check_integer("n_parts", n_parts, 1, 2**31)
    parts = []
    for user in user_ids:
        text = canonical_id(user).encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(text).digest()
        parts.append(int.from_bytes(digest[:16]) % n_parts)
    return np.array(parts, dtype=np.int64)
