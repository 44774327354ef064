"""The charge: what a fit pays, reserved before any data are read.

An estimator declares everything that it will release. The charge reserves the price of
this plan, and a curator then releases what was planned, in the planned order::

    with Charge(plan, label=name, unit=unit, ledger=ledger) as charge:
        documents = read(X)  # private; an error gives the charge back
        charge.begin()  # from here on it is spent
        released = train(documents, Curator(charge, streams))  # public

After `begin`, nothing around the process ends the work: warnings of this package wait
until the end of the block, when the fitted attributes are set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from dplda.leaf._calm import Calm, Word
from dplda.leaf._files import nameless
from dplda.leaf._messages import warn_user
from dplda.privacy._accounting import grouped
from dplda.privacy._events import Event, repeated
from dplda.privacy._ledger import Ledger, as_ledger
from dplda.privacy._mechanisms import WORD_VARIATION
from dplda.privacy._recorder import recorders
from dplda.privacy._streams import MAX_WORDS, keystream_total_variation
from dplda.privacy._warnings import PrivacyLeakWarning

# Topics are drawn with 128 bits each, from at most 2048: 2**-118 for a word
# (docs/proofs_word.md).
TOPIC_DRAWS = MAX_WORDS * 2.0**-118
# distance of all words of a fit from ideal ones, which it pays for
TOTAL_VARIATION = (
    keystream_total_variation(MAX_WORDS) + MAX_WORDS * WORD_VARIATION + TOPIC_DRAWS
)
MARK = 1 << 16  # bytes on a disk that a change of an entry needs for its journal
TOO_MANY_WORDS = (
    f"a fit may draw at most {MAX_WORDS} random words; use fewer rounds, topics or "
    "words"
)

Step: TypeAlias = tuple[str, Event]

# The budgets of the fits of this process: ledgers, or an object for each fit without a
# ledger. They only decide whether a warning says that nobody adds up the fits.
_budgets: set[object] = set()


class Charge:
    """What a fit pays: reserved, then begun, or given back.

    A context manager. The block reserves the price, or ends with a `BudgetError` before
    any data are read. An exception before `begin` cancels the reservation. After
    `begin` the charge stays, and a note on the exception says what is spent.

    Parameters
    ----------
    plan : iterable of (str, Event)
        Label and event of everything that will be released, in order.
    label, unit : str
        Name and unit of the ledger's entry, for example "document".
    ledger : Ledger, str, path-like or None, default=None
        Where the plan is charged. None: the events are its only record.
    seeded : bool, default=False
        Whether noise comes from a given seed.
    total_variation : float, default=TOTAL_VARIATION
        Distance of all noise from its ideal law.
    meet : callable or None, default=None
        Called first by `begin`, for instance to meet other parties. An error gives the
        charge back.
    kept : callable or None, default=None
        Says which results remain if the block ends with an error.
    budget : object or None, default=None
        What is charged. The process remembers it once the charge has begun, and warns
        of releases that are charged to another budget.

    Attributes
    ----------
    plan : tuple of (str, Event)
        All steps.
    events : tuple of Event
        Events of the plan, in order.
    total_variation : float
        Distance from ideal randomness that is charged.
    statement, receipt : str
        What the ledger counts with this charge, in words, and its receipt (see
        `Ledger.has`). Both are empty without a ledger.

    Examples
    --------
    >>> import numpy as np
    >>> from dplda.privacy.mechanisms import Charge, Curator, DiscreteGaussian, Streams
    >>> mechanism = DiscreteGaussian.for_noise_multiplier(2.0)
    >>> plan = [("total", mechanism.event)]
    >>> streams = Streams.from_random_state(None)
    >>> with Charge(plan, label="Sum", unit="document") as charge:
    ...     # private: one document moves it by the radius
    ...     total = np.array([mechanism.radius])
    ...     charge.begin()
    ...     curator = Curator(charge, streams)
    ...     noisy = curator.release(total, mechanism, label="total", round=0)  # public
    >>> noisy.shape
    (1,)
    """

    def __init__(
        self,
        plan: Iterable[Step],
        *,
        label: str,
        unit: str,
        ledger: Ledger | str | PathLike[str] | None = None,
        seeded: bool = False,
        total_variation: float = TOTAL_VARIATION,
        meet: Callable[[], None] | None = None,
        kept: Callable[[], str] | None = None,
        budget: object | None = None,
    ) -> None:
        self.plan: tuple[Step, ...] = tuple(plan)
        self.events: tuple[Event, ...] = tuple(event for _, event in self.plan)
        self.label = label
        self.unit = unit
        self.seeded = seeded
        self.total_variation = total_variation
        self.statement = ""
        self.receipt = ""
        self._ledger = None if ledger is None else as_ledger(ledger)
        # no short cut: each recorder writes down what it sees
        answers = [each.charges(label, unit, self.plan) for each in recorders()]
        self._meet = meet
        self._kept = kept
        self._budget = budget
        self._is_written = self._ledger is not None and all(answers)
        self._entry = 0
        # on the disk of the ledger: a disk that is full when the charge should begin
        # still takes the mark that it is canceled
        self._room = ExitStack()
        self._has_begun = False
        self._calm = Calm()
        self._unclaimed = list(self.plan)
        self._n_released = 0

    def __enter__(self) -> Charge:
        ledger = self._ledger
        if ledger is None:
            return self
        if self._is_written:
            # equal events are merged, and so are all Gaussian ones: the cost is the
            # same
            condensed = [repeated(event, n) for event, n in grouped(self.events)]
            self._entry = ledger.reserve(
                self.label,
                self.unit,
                condensed,
                total_variation=self.total_variation,
                seeded=self.seeded,
            )
        try:
            if self._is_written and ledger.path is not None:
                self._room.enter_context(nameless(Path(ledger.path).parent, MARK))
            self.statement = _total_of(ledger)
            self.receipt = ledger.receipt
        except BaseException:
            self._give_back()
            raise
        return self

    def begin(self) -> None:
        """Spend the charge, before the first release.

        The charge is on the disk before anything becomes public. An error gives the
        charge back; everything that can be checked is checked before.
        """
        if self._has_begun:
            raise RuntimeError(
                "this charge has begun before; a second fit needs its own"
            )
        if self._meet is not None:
            self._meet()
        self._calm.begin()
        if self._ledger is not None and self._is_written:
            self._ledger.begin_release(self._entry)
        self._has_begun = True
        if self._budget is not None:
            _budgets.add(self._budget)
        self._room.close()

    def claim(self, plan: tuple[Step, ...]) -> None:
        """Hand the next steps of the plan to a curator, who releases them once.

        Parameters
        ----------
        plan : tuple of (str, Event)
            The steps. RuntimeError if they are not the next ones, or if the charge has
            not begun.
        """
        if not self._has_begun:
            raise RuntimeError(
                "nothing may be released before the charge has begun; call "
                "charge.begin() once the data are read and checked"
            )
        if tuple(self._unclaimed[: len(plan)]) != plan:
            raise RuntimeError("these steps were not charged, or are claimed already")
        del self._unclaimed[: len(plan)]

    def count_release(self) -> None:
        """Note that one more step of the plan begins."""
        self._n_released += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        words = self._calm.end()
        if not self._has_begun:
            if error is not None:
                error.add_note("nothing was released")
            self._give_back()
        elif error is not None:
            ledger = "" if self._ledger is None else f": {self._ledger}"
            kept = "" if self._kept is None else f"; {self._kept()}"
            error.add_note(
                f"{self._n_released} of {len(self.plan)} releases have begun, and the "
                f"whole plan is spent{ledger}{kept}"
            )
        try:
            self._say(words, error)
        finally:
            self._calm.hear()

    @staticmethod
    def _say(words: Iterable[Word], error: BaseException | None) -> None:
        """Issue the warnings that waited; one made an error hides no other error."""
        refused = []
        for message, category in words:
            try:
                warn_user(message, category)
            except Warning as problem:
                refused.append(problem)
        if error is not None:
            for refusal in refused:
                error.add_note(str(refusal))
        elif refused:
            raise refused[0]

    def _give_back(self) -> None:
        """Cancel the reservation; a failure to cancel must not hide the first error."""
        if self._ledger is None or not self._is_written:
            return
        self._room.close()
        try:
            self._ledger.cancel(self._entry)
        except (OSError, ValueError) as problem:
            warn_user(
                f"entry {self._entry} of the ledger keeps its status ({problem}); it "
                "counts until it is canceled"
            )


def _total_of(ledger: Ledger) -> str:
    """What a ledger counts now, in words."""
    if ledger.composition == "adaptive":
        total = ledger.epsilon
        when = "their budget"
    else:
        total = ledger.epsilon_spent
        when = "up to this fit; later fits add to it"
    upper = total if total == math.inf else math.ceil(1e3 * total) / 1e3
    return (
        f"the fits counted in ledger {ledger.id[:8]} cost together at most epsilon = "
        f"{upper:g} at delta = {ledger.delta:g}, {when}; data sets differ so: "
        f"{ledger.relation}"
    )


def budget_of(name: str, ledger: Ledger | str | PathLike[str] | None) -> object | None:
    """What a release is charged to; None if nobody needs to know.

    Warns once in a process whose releases are charged to several budgets. Data are not
    compared: folds and samples of the same documents differ, and add up.
    """
    if len(_budgets) > 1 or recorders():  # told before; an audit knows what it fits
        return None
    budget = object() if ledger is None else as_ledger(ledger).id
    if _budgets - {budget}:
        warn_user(
            f"{name} comes after another private release in this process, and is "
            "charged to another budget: if both read some of the same documents, "
            "neither epsilon is their total. Pass one ledger= to all that read private "
            "documents; it adds them up. You need not act if the documents are public, "
            "or different in each release",
            PrivacyLeakWarning,
        )
    return budget
