"""The gate: the only object that turns private values into public ones.

An estimator declares everything that it will release before it reads any data. The ledger charges
that plan at once; afterwards the curator lets out exactly what was planned, in that order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplda.privacy._events import Event, NonPrivate, PoissonSampled, Repeated
from dplda.privacy._ledger import Ledger
from dplda.privacy._mechanisms import WORD_VARIATION, Mechanism
from dplda.privacy._observation import announce
from dplda.privacy._streams import Purpose, Streams, keystream_total_variation

# What a fit may draw from its streams, and the distance from ideal randomness that it is charged
# for it: constants, so that the charge depends on nothing private. The last term is for ties among
# the 128-bit keys that order at most 2**31 tokens.
MAX_WORDS = 2**36
TOTAL_VARIATION = keystream_total_variation(MAX_WORDS) + MAX_WORDS * WORD_VARIATION + 2.0**-67

TOO_MANY_WORDS = (
    f"a fit may draw at most {MAX_WORDS} random words; use fewer rounds, topics or words"
)

Step = tuple[str, Event]


def sampled(event: Event, sampling_probability: float) -> Event:
    """The event of a mechanism on a Poisson sample of the documents."""
    if sampling_probability == 1 or isinstance(event, NonPrivate):
        return event
    return PoissonSampled(sampling_probability, event)  # type: ignore[arg-type]


def condensed(events: Iterable[Event]) -> tuple[Event, ...]:
    """Runs of equal events as one: the same price, and a ledger that can be read."""
    runs = ((event, len(list(run))) for event, run in itertools.groupby(events))
    return tuple(event if n == 1 else Repeated(event, n) for event, n in runs)


class Curator:
    """Charges a plan, then releases what was planned.

    Used as a context manager. Leaving it normally confirms the charge. An exception before the
    first release cancels it, since nothing became public; one after that leaves it standing.

    Parameters
    ----------
    plan : sequence of (label, event)
        Everything that will be released, in order.
    streams : Streams
        Where the noise comes from.
    label, unit : str
        Of the ledger's entry.
    ledger : Ledger, str, path or None
        None: nothing is charged outside the fit itself.

    Raises
    ------
    BudgetError
        When the plan does not fit into the ledger's budget; nothing has then been read.
    """

    def __init__(
        self,
        plan: Sequence[Step],
        streams: Streams,
        *,
        label: str,
        unit: str,
        ledger: Any = None,
    ) -> None:
        self.events = tuple(event for _, event in plan)
        self._plan = list(plan)
        self._labels: set[str] = set()
        self._streams = streams
        self._n_released = 0
        self._ledger = ledger if ledger is None or isinstance(ledger, Ledger) else Ledger(ledger)
        if self._ledger is not None:
            self._entry = self._ledger.reserve(
                label,
                unit,
                condensed(self.events),
                total_variation=TOTAL_VARIATION,
                seeded=streams.seeded,
            )

    def release(
        self,
        value: NDArray[np.int64],
        mechanism: Mechanism,
        *,
        label: str,
        round: int,
        sampling_probability: float = 1.0,
    ) -> NDArray[np.int64]:
        """The private integers `value`, with noise on every cell, shape as `value`.

        `round` numbers the noise stream: continue it when a fit goes on, so that a seeded fit
        does not draw the same noise twice.
        """
        self._check_planned(label, value.size, mechanism.event)
        self._take(label, sampled(mechanism.event, sampling_probability))
        reader = self._streams.reader(Purpose.NOISE, round)
        noisy = mechanism(value, reader)
        self._check_limit()
        announce(label, round, noisy, mechanism)
        return noisy

    def account(self, event: Event, *, label: str) -> None:
        """Privacy that a step is about to spend by itself, as a released sample does."""
        self._take(label, event)

    def _take(self, label: str, event: Event) -> None:
        if not self._plan or self._plan[0] != (label, event):
            expected = self._plan[0] if self._plan else "nothing more"
            raise RuntimeError(
                f"release of {label!r} as {event} was not planned; the plan says {expected}"
            )
        self._plan.pop(0)
        self._n_released += 1

    def _check_planned(self, label: str, n_cells: int, event: Event) -> None:
        """Before the first release of a label: all of them draw for as many cells.

        Reads public sizes only, unlike `_check_limit`, since an error of the first release cancels
        the charge.
        """
        if label in self._labels or isinstance(event, NonPrivate):
            return
        self._labels.add(label)
        n_words = n_cells * sum(planned == label for planned, _ in self._plan)
        if n_words > MAX_WORDS:
            raise ValueError(TOO_MANY_WORDS)

    def _check_limit(self) -> None:
        if self._streams.n_words > MAX_WORDS:
            raise RuntimeError(TOO_MANY_WORDS)

    def __enter__(self) -> Curator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ledger is None:
            return
        if kind is None:
            self._ledger.confirm(self._entry)
        elif self._n_released == 0:
            self._ledger.cancel(self._entry)
