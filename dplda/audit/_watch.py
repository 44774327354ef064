"""A fit watched from inside, and second runs of its rounds with the released values.

An audit knows the documents, so it may see what no adversary sees: the exact sums and the secret
samples. `watched_fit` records them. `Record.replay` runs the rounds again on other documents, with
the same samples and with the releases of the fit in place of new ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from dplda.privacy import (
    Event,
    LowSignalWarning,
    PrivacyLeakWarning,
    PrivateDataWarning,
    PublicPriorWarning,
    SeededNoiseWarning,
)
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy.mechanisms import sampled

# What `_attack` says of an estimator whose releases all pass a curator.
UNITS = {"document", "word"}


@dataclass(frozen=True, eq=False)
class Step:
    """One release: the exact integers, what became public, what it costs, the sample behind it."""

    value: np.ndarray
    noisy: np.ndarray
    mechanism: Mechanism
    event: Event
    sample: int | None

    @property
    def noise(self) -> np.ndarray:
        """The noise of each cell, flat."""
        return (self.noisy - self.value).reshape(-1)


@dataclass(eq=False)
class Record:
    """What a watched fit did.

    Attributes
    ----------
    X : csr_array of shape (n_docs, n_words)
        The documents.
    steps : list of Step
        All releases of the curator, in order.
    samples : list of (rates, rows)
        All samples: the rate of each document, and the documents that took part.
    arguments : tuple
        Budget, streams and number of rounds, as the fit handed them to its rounds.
    users : ndarray of shape (n_docs,) or None
        Number of each document's user; None if each document is a unit.
    """

    X: sp.csr_array
    steps: list[Step] = field(default_factory=list)
    samples: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    arguments: tuple[Any, ...] = ()
    users: np.ndarray | None = None

    @property
    def units(self) -> np.ndarray:
        """The unit of each document, (n_docs,): its user, or the document itself."""
        return np.arange(self.X.shape[0]) if self.users is None else self.users

    def sums(self, model: BaseEstimator, X: sp.csr_array) -> list[np.ndarray]:
        """Sums that the rounds of a document-level fit compute from `X`, release by release."""
        budget, streams, n_rounds = self.arguments
        answers = _Answers(self)
        model._rounds(X, None, budget, answers, streams, n_rounds, *self._given_users)
        return answers.values

    def refit(self, model: BaseEstimator, X: sp.csr_array) -> BaseEstimator:
        """Fit a copy to `X`, with the releases of this fit in place of its own."""
        copy = clone(model)
        if "ledger" in copy.get_params():
            copy.set_params(ledger=None)
        budget, streams, n_rounds = self.arguments
        answers = _Answers(self)
        if hasattr(copy, "_rounds"):
            rounds = copy._rounds
            copy._budget = lambda: budget  # it may take long to calibrate
            copy._rounds = lambda X, table, *_: rounds(
                X, table, budget, answers, streams, n_rounds, *self._given_users
            )
        else:
            copy._streams = lambda: streams
            copy._curator = lambda plan, _: answers.planned(plan)
        return copy.fit(X) if self.users is None else copy.fit(X, user_ids=self.users)

    @property
    def _given_users(self) -> tuple[np.ndarray, ...]:
        """The last argument of `_rounds`; an estimator without users takes none."""
        return () if self.users is None else (self.users,)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Do not warn of what an audit does on purpose: it fits few invented documents, with seeds."""
    with warnings.catch_warnings():
        for category in (
            PrivacyLeakWarning, SeededNoiseWarning, PrivateDataWarning, PublicPriorWarning,
            LowSignalWarning,
        ):  # fmt: skip
            warnings.simplefilter("ignore", category)
        yield


@contextmanager
def watched(model: BaseEstimator, record: Record):
    """Record what `model` gives to its curator, while it is fitted inside of the block."""
    if hasattr(model, "_rounds"):
        name, method = "_rounds", _watched_rounds(model._rounds, record)
    else:
        name, method = "_curator", _watched_curator(model._curator, record)
    setattr(model, name, method)
    try:
        yield
    finally:
        delattr(model, name)


def _watched_rounds(rounds: Callable[..., Any], record: Record) -> Callable[..., Any]:
    def watched_rounds(X, table, budget, curator, streams, n_rounds, *users):
        record.arguments = budget, streams, n_rounds
        record.users = users[0] if users else None
        return rounds(X, table, budget, _Watch(curator, record), streams, n_rounds, *users)

    return watched_rounds


def _watched_curator(make_curator: Callable[..., Any], record: Record) -> Callable[..., Any]:
    def watched_curator(plan, streams):
        record.arguments = None, streams, None
        return _Watch(make_curator(plan, streams), record)

    return watched_curator


class _Watch:
    """Takes the place of a curator, hands everything on to it, and writes it down."""

    def __init__(self, curator: Any, record: Record) -> None:
        self._curator, self._record = curator, record
        self._sample: int | None = None

    def sample(self, rates: np.ndarray, **options: Any) -> np.ndarray:
        rows = self._curator.sample(rates, **options)
        self._sample = len(self._record.samples)
        self._record.samples.append((rates.copy(), rows.copy()))
        return rows

    def release(self, value: np.ndarray, mechanism: Mechanism, **options: Any) -> np.ndarray:
        exact = value.copy()
        noisy = self._curator.release(value, mechanism, **options)
        event = sampled(mechanism.event, options.get("sampling_probability", 1.0))
        step = Step(exact, noisy.copy(), mechanism, event, self._sample)
        self._record.steps.append(step)
        self._sample = None
        return noisy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._curator, name)

    def __enter__(self) -> _Watch:
        self._curator.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._curator.__exit__(*error)


class _Answers:
    """Takes the place of a curator in a second run: the same samples and the same releases."""

    def __init__(self, record: Record) -> None:
        self._steps, self._samples = iter(record.steps), iter(record.samples)
        self.values: list[np.ndarray] = []
        self.events: tuple[Any, ...] = ()

    def planned(self, plan: Any) -> _Answers:
        self.events = tuple(event for _, event in plan)
        return self

    def sample(self, rates: np.ndarray, **options: Any) -> np.ndarray:
        return next(self._samples)[1].copy()

    def release(self, value: np.ndarray, mechanism: Mechanism, **options: Any) -> np.ndarray:
        self.values.append(value.copy())
        return next(self._steps).noisy.copy()

    def account(self, event: Any, *, label: str) -> None:
        """Charge nothing: the first run did."""

    def __enter__(self) -> _Answers:
        return self

    def __exit__(self, *error: Any) -> None:
        """Confirm nothing: the first run did."""
