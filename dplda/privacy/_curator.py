"""The curator: the only object that turns private values into public ones.

An estimator declares everything that it will release before it reads any data. The
ledger charges this plan at once. The curator then releases exactly what was planned, in
the planned order.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._messages import warn_user
from dplda.leaf._threads import in_threads
from dplda.privacy._accounting import grouped
from dplda.privacy._events import Event, Gaussian, NonPrivate, PoissonSampled, repeated
from dplda.privacy._ledger import Ledger, as_ledger
from dplda.privacy._mechanisms import WORD_VARIATION, Cells, Mechanism
from dplda.privacy._streams import Purpose, Streams, keystream_total_variation

# Limit on the random words of a fit, and the distance from ideal randomness that the
# fit is charged for them. Both are constants, because the charge depends on nothing
# private.
MAX_WORDS = 2**36
# Topics are drawn with 128 bits each, from at most 2048: 2**-118 for a word
# (docs/proofs_word.md).
TOPIC_DRAWS = MAX_WORDS * 2.0**-118
TOTAL_VARIATION = (
    keystream_total_variation(MAX_WORDS) + MAX_WORDS * WORD_VARIATION + TOPIC_DRAWS
)
# each block of cells has a noise stream of its own; enters seeded results
BLOCK_CELLS = 2**16

TOO_MANY_WORDS = (
    f"a fit may draw at most {MAX_WORDS} random words; use fewer rounds, topics or "
    "words"
)

# from the noise stream of a release to that of its next attempt: above any round
ATTEMPTS = 2**20
SPARE = "a further attempt"

Step: TypeAlias = tuple[str, Event]


class Parties(Protocol):
    """The other parties of a release no one could make alone (docs/federated.md)."""

    n_parties: int

    def add_up(self, cells: NDArray[np.int64], label: str) -> bool:
        """Put the sum over all parties in the place of own noisy cells.

        Nobody sees own cells. False if a party was lost: the others begin anew, with
        new noise.
        """


def sampled(event: Event, sampling_probability: float) -> Event:
    """The event of a mechanism on a secret Poisson sample.

    Parameters
    ----------
    event : Event
        Event of the mechanism without sampling.
    sampling_probability : float
        Highest probability that a unit takes part, in (0, 1].

    Returns
    -------
    Event
        `PoissonSampled`, or `event` itself at probability 1 and without noise.
    """
    if sampling_probability == 1 or isinstance(event, NonPrivate):
        return event
    return PoissonSampled(sampling_probability, event)  # type: ignore[arg-type]


def membership_threshold(rates: NDArray[np.float64]) -> NDArray[np.uint64]:
    """How many of 2**64 words put a unit into the sample.

    It is 0 for rate 1, which needs no word.
    """
    return (np.where(rates < 1, rates, 0.0) * 2.0**64).astype(np.uint64)


class Curator:
    """Charges a plan, samples secretly, and releases what was planned.

    The curator is a context manager. An exception before the first release cancels the
    charge. After it, the charge stays, and a note of the exception says what is spent.
    Threads that share a curator take its steps one after the other.

    Parameters
    ----------
    plan : sequence of (str, Event)
        Label and event of everything that will be released, in order.
    streams : Streams
        Source of the noise and of the samples.
    label, unit : str
        Name and unit of the ledger's entry, for example "document".
    ledger : Ledger, str, path-like or None, default=None
        Where the plan is charged, or refused with a `BudgetError` before any data are
        read. None records the charge in `events` only.
    parties : Parties or None, default=None
        Who adds up what is released. None releases own sums.

    Attributes
    ----------
    events : tuple of Event
        Events of the plan, in order.
    total_variation : float
        Distance from ideal randomness that is charged.

    Examples
    --------
    >>> import numpy as np
    >>> from dplda.privacy.mechanisms import Curator, DiscreteGaussian, Streams
    >>> mechanism = DiscreteGaussian.for_noise_multiplier(2.0)
    >>> plan = [("total", mechanism.event)]
    >>> streams = Streams.from_random_state(None)
    >>> with Curator(plan, streams, label="Sum", unit="document") as curator:
    ...     # private: one document moves it by the radius
    ...     total = np.array([mechanism.radius])
    ...     noisy = curator.release(total, mechanism, label="total", round=0)  # public
    >>> noisy.shape
    (1,)
    """

    def __new__(
        cls,
        plan: Any,
        streams: Any,
        *,
        label: str,
        unit: str,
        ledger: Any = None,
        parties: Any = None,
    ) -> Curator:
        return object.__new__(_WATCH.get()[1] or cls)

    def __init__(
        self,
        plan: Sequence[Step],
        streams: Streams,
        *,
        label: str,
        unit: str,
        ledger: Any = None,
        parties: Parties | None = None,
    ) -> None:
        labels, events = zip(*plan) if plan else ((), ())
        self.events: tuple[Event, ...] = events
        self._plan, self._n_planned = list(plan), Counter(labels)
        self._streams, self._parties = streams, parties
        self.total_variation = TOTAL_VARIATION * (
            1 if parties is None else parties.n_parties
        )
        self._has_sample = False  # for the plan's next step
        # Two threads that check the plan at once would take one step, or one stream,
        # twice.
        self._alone = Lock()
        self._ledger: Ledger | None = None if ledger is None else as_ledger(ledger)
        if self._ledger is not None:
            # equal events, and all Gaussian ones, as one: the cost is the same
            condensed = [repeated(event, n) for event, n in grouped(self.events)]
            self._entry = self._ledger.reserve(
                label,
                unit,
                condensed,
                total_variation=self.total_variation,
                seeded=streams.seeded,
            )

    def release(
        self,
        value: Cells,
        mechanism: Mechanism,
        *,
        label: str,
        round: int,
        sampling_probability: float = 1.0,
        overwrite_value: bool = False,
        n_jobs: int | None = None,
    ) -> Cells:
        """Release private integers with noise on every cell.

        Parameters
        ----------
        value : ndarray of int64 or int32
            Private. One unit moves it by at most ``mechanism.sensitivity``;
            `sum_clipped` enforces this.
        mechanism : mechanism
            Draws the noise.
        label : str
            Label of the step in the plan.
        round : int
            Number of the noise streams, which refuse it the second time.
        sampling_probability : float, default=1.0
            Rate of the Poisson sample that `value` is computed from.
        overwrite_value : bool, default=False
            Whether to add the noise in place, where the array can take it. Values of
            int32 must leave room for the noise, below 2**24.
        n_jobs : int or None, default=None
            Number of threads. It never changes a result.

        Returns
        -------
        noisy : ndarray of int64 or int32
            Public. A new array of int64, or `value` with `overwrite_value`.
            RuntimeError if the plan has another step next, if a sample is missing, or
            if `round` repeats; ValueError if others are to draw a part of the noise,
            and nobody does.
        """
        with self._alone:
            # No release of a label is larger than the first. Too many words are refused
            # before it, by public sizes only: an error then cancels the charge.
            if not mechanism.exact and value.size * self._n_planned[label] > MAX_WORDS:
                raise ValueError(TOO_MANY_WORDS)
            self._take(label, sampled(mechanism.event, sampling_probability), mechanism)
            flags, kinds = value.flags, (np.int32, np.int64)
            in_place = overwrite_value and value.dtype in kinds and flags.carray
            noisy: Cells
            if self._parties is not None:  # whose sum may need 64 bits
                noisy = self._add_up(value, mechanism, label, round, n_jobs)
            else:
                noisy = (
                    value
                    if in_place
                    else value.astype(np.int64, order="C", casting="safe")
                )
                self._add_noise(noisy, mechanism, round, n_jobs)
            # a copy, as the caller may use the array again
            announce(label, round, noisy.copy, mechanism)
            return noisy

    def release_selected(
        self,
        names: NDArray[np.object_],
        value: NDArray[np.int64],
        asked: NDArray[np.bool_],
        mechanism: Mechanism,
        *,
        threshold: float,
        failure: Event,
        label: str,
        round: int,
    ) -> tuple[NDArray[np.object_], Cells]:
        """Release some cells with noise: those asked for, and those above a threshold.

        Nothing of a cell that does not pass becomes public, not even that it exists.
        The plan has two steps under `label`: the event of the mechanism, and `failure`.

        Parameters
        ----------
        names, value : ndarray of shape (n_cells,)
            Private. Names of the cells, and integers as in `release`.
        asked : ndarray of shape (n_cells,), bool
            The cells that are released whatever their value. Which ones exist is
            public.
        mechanism : mechanism
            Draws the noise.
        threshold : float
            Least noisy value of any other cell that is released.
        failure : Event
            Bounds the probability that a cell of one unit reaches the threshold:
            `ApproximateDP`, or `NonPrivate` without noise.
        label, round : str, int
            As in `release`.

        Returns
        -------
        passing, noisy : ndarray
            Public. Names of the cells that are released, in the order of `names`, and
            their noisy values.
        """
        with self._alone:
            self._take(label, mechanism.event, mechanism)
            self._take(label, failure)
            noisy = value.astype(np.int64, order="C", casting="safe")
            self._add_noise(noisy, mechanism, round, None)
            passing = np.flatnonzero(asked | (noisy >= threshold))
            announce(label, round, noisy[passing], mechanism)
            return names[passing], noisy[passing]

    def sample(self, rates: NDArray[np.float64], *, round: int) -> NDArray[np.int64]:
        """Draw a secret Poisson sample for the next planned release, and for it alone.

        Each unit takes part at its own rate, rounded down to a multiple of 2**-64,
        independently.

        Parameters
        ----------
        rates : ndarray of shape (n_units,)
            Private, from 0 to the rate that is charged. A unit's rate must be a
            function of that unit and of public values.
        round : int
            Number of the random stream, as in `release`.

        Returns
        -------
        rows : ndarray of int64
            Secret. Increasing indices of the units in the sample. RuntimeError if a
            rate is negative or above the one that is charged, if the next step has a
            sample already, or if `round` repeats.
        """
        with self._alone:
            planned = self._plan[0][1] if self._plan else None
            charged = (
                planned.sampling_probability
                if isinstance(planned, PoissonSampled)
                else 1.0
            )
            # NaN is refused as well; a negative rate would wrap around to one of nearly
            # 1
            if planned is None or not ((rates >= 0) & (rates <= charged)).all():
                raise RuntimeError(
                    "a unit's rate is negative or higher than the rate that is charged"
                )
            if self._has_sample:
                raise RuntimeError(
                    "the plan's next step has a sample already; release it first"
                )
            self._streams.take(Purpose.MEMBERSHIP, round)
            self._has_sample = True
            if (rates >= 1).all():
                return np.arange(len(rates))
            words = self._streams.reader(Purpose.MEMBERSHIP, round).words(len(rates))
            return np.flatnonzero((words < membership_threshold(rates)) | (rates >= 1))

    def publish(
        self,
        draw: Callable[[], Any],
        events: Iterable[Event],
        *,
        label: str,
        round: int,
    ) -> Any:
        """Draw a value that is private by construction, such as topics from a table.

        Parameters
        ----------
        draw : callable
            Returns the value. A draw that fails has spent its cost.
        events : iterable of Event
            What the value costs: the next steps of the plan.
        label, round : str, int
            As in `release`.

        Returns
        -------
        value : object
            Public. What `draw` returned.
        """
        with self._alone:
            for event in events:
                self._take(label, event)
        value = draw()
        announce(label, round, lambda: copy.deepcopy(value))
        return value

    def _take(
        self, label: str, event: Event, mechanism: Mechanism | None = None
    ) -> None:
        n_drawn = 1 if self._parties is None else self._parties.n_parties
        if (
            mechanism is not None
            and not mechanism.exact
            and mechanism.n_parties != n_drawn
        ):
            raise ValueError(  # its event counts noise that nobody adds
                f"the mechanism is for {mechanism.n_parties} parties that add noise, "
                f"and {n_drawn} will; give the curator these parties, or leave "
                "n_parties=1"
            )
        if not self._plan or self._plan[0] != (label, event):
            expected = self._plan[0] if self._plan else "nothing more"
            raise RuntimeError(
                f"release of {label!r} as {event} was not planned; the plan says "
                f"{expected}"
            )
        if isinstance(event, PoissonSampled) and not self._has_sample:
            raise RuntimeError(
                f"the release of {label!r} is charged as sampled, and no sample was "
                "drawn for it; call sample after the release before it"
            )
        if len(self._plan) == len(self.events) and self._ledger is not None:
            # on the disk before anything is public; an error cancels the charge
            self._ledger.begin_release(self._entry)
        self._plan.pop(0)
        self._has_sample = False

    def _add_up(
        self,
        own: Cells,
        mechanism: Mechanism,
        label: str,
        round: int,
        n_jobs: int | None,
    ) -> NDArray[np.int64]:
        """Add own noise, and let all parties add up.

        It adds new noise if a party was lost.

        Two sums with the same noise would differ by what the lost party holds and its
        own noise, which is less than the event says.
        """
        assert self._parties is not None
        attempt, event = 0, mechanism.event
        while True:
            cells = own.astype(np.int64, order="C", casting="safe")
            self._add_noise(cells, mechanism, round + attempt * ATTEMPTS, n_jobs)
            if self._parties.add_up(cells, f"{label} {round}.{attempt}"):
                return cells
            spare, paid = self._plan.pop() if self._plan else ("", NonPrivate())
            if not (
                spare == SPARE
                and isinstance(paid, Gaussian)
                and isinstance(event, Gaussian)
                and paid.noise_multiplier <= event.noise_multiplier
            ):
                raise RuntimeError(
                    "a party was lost, and the plan has no further attempt for "
                    f"{label!r}"
                )
            attempt += 1

    def _add_noise(
        self, value: Cells, mechanism: Mechanism, round: int, n_jobs: int | None
    ) -> None:
        """Add noise to every cell, in place; each block has its own stream."""
        self._streams.take(Purpose.NOISE, round)
        cells = value.reshape(-1)

        def add(block: int) -> None:
            part = cells[block * BLOCK_CELLS : (block + 1) * BLOCK_CELLS]
            mechanism.add_to(part, self._streams.reader(Purpose.NOISE, round, block))

        in_threads(add, range(-(-cells.size // BLOCK_CELLS)), n_jobs)
        self._check_limit()

    def _check_limit(self) -> None:
        """Refuse more random words than the charge counts."""
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
        n_begun = len(self.events) - len(self._plan)
        if error is None:
            # the last step may have drawn words after the last release
            self._check_limit()
        elif n_begun == 0:
            error.add_note("nothing was released")
            try:
                if self._ledger is not None:
                    self._ledger.cancel(self._entry)
            except (OSError, ValueError) as problem:  # which must not hide the error
                warn_user(
                    f"entry {self._entry} of the ledger keeps its status ({problem}); "
                    "it counts until it is canceled"
                )
        else:
            ledger = "" if self._ledger is None else f": {self._ledger}"
            error.add_note(
                f"{n_begun} of {len(self.events)} releases have begun, and the whole "
                f"plan is spent{ledger}"
            )


# ---- what the adversary of the theorems sees: for audits -----------------------------


@dataclass(frozen=True, eq=False)
class Release:
    """One value that became public; `mechanism` is None if for another reason."""

    label: str
    round: int
    value: Any
    mechanism: Any = None


# What is released, and the class of which an audit lets curators be made.
_WATCH: ContextVar[tuple[list[Release] | None, type[Curator] | None]]
_WATCH = ContextVar("_WATCH", default=(None, None))


@contextmanager
def observe_releases(kind: type[Curator] | None = None) -> Iterator[list[Release]]:
    """Collect what this thread releases inside of the ``with`` block, oldest first.

    Parameters
    ----------
    kind : type or None, default=None
        Subclass of which curators are made inside of the block.

    Yields
    ------
    releases : list of Release
        Grows with each release.
    """
    seen: list[Release] = []
    token = _WATCH.set((seen, kind or _WATCH.get()[1]))
    try:
        yield seen
    finally:
        _WATCH.reset(token)


def announce(label: str, round: int, value: Any, mechanism: Any = None) -> None:
    """Show a value that has just become public to the observer, if there is one.

    The value must not change afterwards. `value` may be a function that returns the
    value; it is called only if there is an observer.
    """
    seen, _ = _WATCH.get()
    if seen is not None:
        seen.append(
            Release(label, round, value() if callable(value) else value, mechanism)
        )
