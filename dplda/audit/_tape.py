"""What a fit gives to its curator, on tape, and second fits that get what the first one got.

An audit knows the documents, so it may see what no adversary sees: the exact sums and the secret
samples. `watched` records them. With a tape of an earlier fit, the curator gives out its releases
in place of new ones.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, clone

from dplda.privacy import (
    LowSignalWarning,
    PrivacyLeakWarning,
    PrivateDataWarning,
    SeededNoiseWarning,
)
from dplda.privacy._curator import Curator, Release, observe_releases, sampled, stand_in
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import Mechanism

# Chooses the units of the n-th sample, from n and the rates of all units.
Members: TypeAlias = Callable[[int, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Step:
    """One release: the exact integers, what became public, and by which noise."""

    label: str
    round: int
    value: np.ndarray
    noisy: np.ndarray
    mechanism: Mechanism
    event: Event
    sample: int | None = None  # number of the sample behind it
    names: np.ndarray | None = None  # of the cells, if their number is private
    shown: np.ndarray | None = None  # names of the cells that became public
    noise: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(eq=False)
class Tape:
    """What a fit gave to its curators, and what it got.

    Attributes
    ----------
    plans : list
        Label, unit and steps of each plan.
    steps : list of Step
        All releases, in order.
    samples : list of (rates, rows)
        All samples: the rate of each unit, and the units that took part.
    published : list
        What became public without noise.
    releases : list of Release
        What an adversary sees.
    """

    plans: list[Any] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    samples: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    published: list[Any] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)


class _Watch(Curator):
    """A curator that writes down what it is given, and gives out what `first` has, if it is set."""

    tape: Tape
    first: Tape | None = None
    members: Members | None = None

    def __init__(self, plan: Any, streams: Any, *, ledger: Any = None, **names: Any) -> None:
        ledger = ledger if self.first is None else None  # nothing new becomes public
        super().__init__(plan, streams, ledger=ledger, **names)
        self.tape.plans.append((names, tuple(plan)))
        self._sample: int | None = None

    def sample(self, rates: np.ndarray, *, round: int) -> np.ndarray:
        rows = super().sample(rates, round=round)
        self._sample = len(self.tape.samples)
        if self.members is not None:
            rows = self.members(self._sample, rates)
        self.tape.samples.append((rates.copy(), rows.copy()))
        return rows

    def release(self, value: Any, mechanism: Mechanism, **options: Any) -> Any:
        exact = np.array(value, np.int64)
        noisy = super().release(value, mechanism, **options)
        event = sampled(mechanism.event, options.get("sampling_probability", 1.0))
        step = Step(
            options["label"], options["round"], exact, noisy.copy(), mechanism, event,
            self._sample, noise=(noisy - exact).reshape(-1),
        )  # fmt: skip
        self._sample = None
        first = self._keep(step)
        return noisy if first is None else first.noisy.astype(noisy.dtype)

    def release_selected(self, names: Any, value: Any, asked: Any, mechanism: Any, **options: Any):
        shown, noisy = super().release_selected(names, value, asked, mechanism, **options)
        step = Step(
            options["label"], options["round"], value.copy(), noisy, mechanism, mechanism.event,
            names=names, shown=shown,
        )  # fmt: skip
        first = self._keep(step)
        return (shown, noisy) if first is None else (first.shown, first.noisy.copy())

    def publish(self, label: str, round: int, value: Any) -> Any:
        n, played = len(self.tape.published), [] if self.first is None else self.first.published
        self.tape.published.append(copy.deepcopy(value))
        return super().publish(label, round, copy.deepcopy(played[n]) if n < len(played) else value)

    def _keep(self, step: Step) -> Step | None:
        """Write a release down, and find the one that is given out in its place."""
        n, played = len(self.tape.steps), [] if self.first is None else self.first.steps
        self.tape.steps.append(step)
        return played[n] if n < len(played) and are_alike(step, played[n]) else None


def are_alike(one: Step, other: Step) -> bool:
    """Whether two releases have the same public part."""
    same = (one.label, one.round, one.mechanism, one.event)
    shapes = one.names is not None or one.value.shape == other.value.shape
    return shapes and same == (other.label, other.round, other.mechanism, other.event)


@contextmanager
def watched(first: Tape | None = None, members: Members | None = None) -> Iterator[Tape]:
    """Record what this thread gives to curators inside of the block; none charges a second fit.

    Warnings of what an audit does on purpose are off: it fits few invented documents, with seeds.
    """
    tape = Tape()
    chosen = None if members is None else staticmethod(members)
    kind = type("Watch", (_Watch,), {"tape": tape, "first": first, "members": chosen})
    ignored = (LowSignalWarning, PrivacyLeakWarning, PrivateDataWarning, SeededNoiseWarning)
    with warnings.catch_warnings():
        for category in ignored:
            warnings.simplefilter("ignore", category)
        with stand_in(kind), observe_releases() as tape.releases:
            yield tape


def fit_watched(
    estimator: Any,
    data: dict[str, Any],
    seed: Any = None,
    first: Tape | None = None,
    members: Members | None = None,
) -> tuple[Any, Tape]:
    """Fit a copy of an estimator, or call a function, with `data`; return the model and the tape.

    `data` are the arguments by name, the documents as "X". `seed` is the `random_state`.
    """
    X, rest = data["X"], {name: value for name, value in data.items() if name != "X"}
    if not isinstance(estimator, BaseEstimator):
        with watched(first, members) as tape:
            return estimator(X, **rest), tape
    model = clone(estimator)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    with watched(first, members) as tape:
        model.fit(X, **rest)
    return model, tape
