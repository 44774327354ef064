"""The curator: the only object that turns private values into public ones.

A `Charge` has paid for a plan. The curator releases exactly what was planned, in the
planned order.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from threading import Lock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._threads import in_threads
from dplda.privacy._charge import TOO_MANY_WORDS, Charge, Step
from dplda.privacy._events import Event, Gaussian, NonPrivate, PoissonSampled
from dplda.privacy._mechanisms import SPARE_PIECE, Cells, Mechanism
from dplda.privacy._recorder import Computed, announce, recorders
from dplda.privacy._streams import MAX_WORDS, PIECE, Purpose, Streams
from dplda.privacy._sums import ALONE, Sums

# from the noise stream of a release to that of its next attempt: above any round
ATTEMPTS = 2**20
SPARE = "a further attempt"

Value = TypeVar("Value")


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
    """How many of the 2**64 random words put a unit into the sample.

    It is 0 for rate 1: then no word is drawn.
    """
    return (np.where(rates < 1, rates, 0.0) * 2.0**64).astype(np.uint64)


def check_words(plan: Iterable[Step], n_cells: Mapping[str, int]) -> None:
    """Refuse a plan that would draw more random words than a charge counts.

    `n_cells` is the public number of noisy cells in a release of each label. The check
    runs before a charge begins; the curator repeats it.
    """
    n_releases = Counter(label for label, event in plan if event != NonPrivate())
    n_noisy = sum(n_cells.get(label, 0) * n for label, n in n_releases.items())
    # a piece of cells takes a piece of spare words, and hardly ever two
    if n_noisy * (PIECE + 2 * SPARE_PIECE) > MAX_WORDS * PIECE:
        raise ValueError(TOO_MANY_WORDS)


class Curator:
    """Samples secretly, and releases what was planned and charged.

    Threads that share a curator take its steps one after the other.

    Parameters
    ----------
    charge : Charge
        What was paid. It has begun.
    streams : Streams
        Source of the noise and of the samples.
    plan : sequence of (str, Event) or None, default=None
        The next steps of the charge, which this curator releases. None: all of them.
    sums : Sums, default=ALONE
        Who makes sums public. `ALONE` releases the sums of one curator.

    Examples
    --------
    `Charge` has one.
    """

    def __init__(
        self,
        charge: Charge,
        streams: Streams,
        *,
        plan: Iterable[Step] | None = None,
        sums: Sums = ALONE,
    ) -> None:
        steps = charge.plan if plan is None else tuple(plan)
        charge.claim(steps)
        self._charge = charge
        self._plan = list(steps)
        self._n_planned = Counter(label for label, _ in steps)
        self._streams = streams
        self._sums = sums
        self._has_sample = False  # for the plan's next step
        # Two threads that check the plan at once would take the same step or stream.
        self._alone = Lock()

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
            Number of the noise streams; it cannot be used twice.
        sampling_probability : float, default=1.0
            Rate of the Poisson sample that `value` is computed from.
        overwrite_value : bool, default=False
            Whether to add the noise in place if the array allows it. Values of int32
            must leave room for the noise, which is below 2**24.
        n_jobs : int or None, default=None
            Number of threads. It never changes a result.

        Returns
        -------
        noisy : ndarray of int64 or int32
            Public. A new array of int64, or `value` with `overwrite_value`.
            RuntimeError if another step is next in the plan, if a sample is missing, or
            if `round` repeats; ValueError if other parties should draw a part of the
            noise, and there are none.
        """
        with self._alone:
            # no release of a label is larger than the first
            if not mechanism.exact and value.size * self._n_planned[label] > MAX_WORDS:
                raise ValueError(TOO_MANY_WORDS)
            event = sampled(mechanism.event, sampling_probability)
            self._take(label, event, mechanism)
            can_take_noise = value.dtype in (np.int32, np.int64) and value.flags.carray
            is_alone = self._sums.shares.n_parties == 1
            in_place = overwrite_value and can_take_noise and is_alone
            exact = value.copy() if in_place and recorders() else value
            computed = Computed(label, round, exact, mechanism, event)
            noisy = self._noisy_sum(value, mechanism, label, round, in_place, n_jobs)
            for recorder in recorders():
                noisy = recorder.released(computed, noisy)
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
        """Release some cells with noise: those asked for and those above a threshold.

        With several parties, each asks for all cells, in the same order.

        Nothing of a cell that does not pass becomes public, not even that it exists.
        The plan has two steps under `label`: the event of the mechanism, and `failure`.

        Parameters
        ----------
        names, value : ndarray of shape (n_cells,)
            Private. Names of the cells, and integers as in `release`.
        asked : ndarray of shape (n_cells,), bool
            Cells that are released whatever their value. Which of them exist is public.
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
            if self._sums.shares.n_parties > 1 and not asked.all():
                raise ValueError(
                    "parties add up the cells that all of them ask for, and no others"
                )
            self._take(label, mechanism.event, mechanism)
            self._take(label, failure)
            noisy = self._noisy_sum(value, mechanism, label, round, False, None)
            passing = np.flatnonzero(asked | (noisy >= threshold))
            shown = names[passing]
            values: Cells = noisy[passing]
            computed = Computed(
                label, round, value, mechanism, mechanism.event, names=names
            )
            for recorder in recorders():
                shown, values = recorder.selected(computed, shown, values)
            announce(label, round, values, mechanism)
            return shown, values

    def sample(self, rates: NDArray[np.float64], *, round: int) -> NDArray[np.int64]:
        """Draw a secret Poisson sample for the next planned release only.

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
            # NaN is refused too; a negative rate would wrap around to nearly 1
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
            rows = np.arange(len(rates))
            if not (rates >= 1).all():
                reader = self._streams.reader(Purpose.MEMBERSHIP, round)
                drawn = reader.words(len(rates)) < membership_threshold(rates)
                rows = np.flatnonzero(drawn | (rates >= 1))
            for recorder in recorders():
                rows = recorder.sampled(rates, rows)
            return rows

    def publish(
        self,
        draw: Callable[[], Value],
        events: Iterable[Event],
        *,
        label: str,
        round: int,
    ) -> Value:
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
        self._check_limit()
        for recorder in recorders():
            value = recorder.drawn(label, round, value)
        announce(label, round, lambda: copy.deepcopy(value))
        return value

    def _take(
        self, label: str, event: Event, mechanism: Mechanism | None = None
    ) -> None:
        n_drawn = self._sums.shares.n_parties
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
        self._charge.count_release()
        self._plan.pop(0)
        self._has_sample = False

    def _noisy_sum(
        self,
        value: Cells,
        mechanism: Mechanism,
        label: str,
        round: int,
        in_place: bool,
        n_jobs: int | None,
    ) -> Cells:
        """Noisy cells of this curator or of all parties, in as many attempts as needed.

        A failed attempt makes nothing public except that a party was lost.
        """
        for attempt in count():
            noisy = value
            if not in_place:  # a sum over parties may need 64 bits
                noisy = value.astype(np.int64, order="C", casting="safe")
            stream = round + attempt * ATTEMPTS
            self._add_noise(noisy, mechanism, stream, n_jobs)
            if self._sums.add_up(noisy, f"{label} {round}.{attempt}"):
                break
            # Two sums with the same noise would differ by what the lost party holds
            # and its own noise, which is less than the event says.
            self._take_spare(label, mechanism.event)
        return noisy

    def _take_spare(self, label: str, event: Event) -> None:
        """Take a further attempt of a release, which is charged at the plan's end."""
        spare, paid = self._plan.pop() if self._plan else ("", NonPrivate())
        if not (
            spare == SPARE
            and isinstance(paid, Gaussian)
            and isinstance(event, Gaussian)
            and paid.noise_multiplier <= event.noise_multiplier
        ):
            raise RuntimeError(
                f"a party was lost, and the plan has no further attempt for {label!r}"
            )

    def _add_noise(
        self, value: Cells, mechanism: Mechanism, round: int, n_jobs: int | None
    ) -> None:
        """Add noise to every cell, in place; each block has its own stream."""
        self._streams.take(Purpose.NOISE, round)
        cells = value.reshape(-1)

        def add(block: int) -> None:
            part = cells[block * PIECE : (block + 1) * PIECE]
            mechanism.add_to(part, self._streams.reader(Purpose.NOISE, round, block))

        in_threads(add, range(-(-cells.size // PIECE)), n_jobs)
        self._check_limit()

    def _check_limit(self) -> None:
        """Refuse more random words than the charge counts."""
        if self._streams.n_words > MAX_WORDS:
            raise RuntimeError(TOO_MANY_WORDS)
