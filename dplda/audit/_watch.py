"""A fit watched from inside, and second runs of its rounds with the released values.

An audit knows the documents, so it may see what no adversary sees: the exact sums and the secret
samples. `watched` records them. `Answers` takes the place of a curator in a second run on other
documents: it gives the samples and the releases of the first run in place of new ones.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from dplda.privacy import (
    LowSignalWarning,
    PrivacyLeakWarning,
    PrivateDataWarning,
    SeededNoiseWarning,
)
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy.mechanisms import sampled

# Arguments of a call of `_rounds`, by name; the documents come first.
Call: TypeAlias = dict[str, Any]


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
    calls : list of dict
        The arguments of each call of `_rounds`.
    streams : Streams
        The streams of a fit that has no `_rounds`.
    """

    X: sp.csr_array
    steps: list[Step] = field(default_factory=list)
    samples: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    streams: Any = None

    @property
    def users(self) -> np.ndarray | None:
        """Number of each document's user, (n_docs,); None if each document is a unit."""
        return self.calls[-1].get("users") if self.calls else None

    @property
    def units(self) -> np.ndarray:
        """The unit of each document, (n_docs,): its user, or the document itself."""
        return np.arange(self.X.shape[0]) if self.users is None else self.users

    def answers(self) -> Answers:
        """What the curator gave, for a second run."""
        return Answers([step.noisy for step in self.steps], [rows for _, rows in self.samples])

    def sums(self, model: BaseEstimator, X: sp.csr_array) -> list[np.ndarray]:
        """Sums that the rounds of a document-level fit compute from `X`, release by release."""
        answers = self.answers()
        run_again(model, self.calls[-1], X, answers)
        return answers.values

    def refit(self, model: BaseEstimator, X: sp.csr_array) -> BaseEstimator:
        """Fit a copy to `X`, with the releases of this fit in place of its own."""
        copy, answers = clone(model), self.answers()
        if "ledger" in copy.get_params():
            copy.set_params(ledger=None)
        if self.calls:
            rounds = copy._rounds
            copy._rounds = lambda X, *_: rounds(**_changed(self.calls[-1], X, answers))
        else:
            copy._streams = lambda: self.streams
            copy._curator = lambda plan, _: answers.planned(plan)
        return copy.fit(X) if self.users is None else copy.fit(X, user_ids=self.users)


def run_again(
    model: BaseEstimator, call: Call, X: sp.csr_array, curator: Any, **changes: Any
) -> Any:
    """Call `_rounds` with other documents, another curator, and changed arguments if it has any."""
    return model._rounds(**_changed(call, X, curator, **changes))


def _changed(call: Call, X: sp.csr_array, curator: Any, **changes: Any) -> Call:
    documents = next(iter(call))
    known = {name: value for name, value in changes.items() if name in call}
    return call | {documents: X, "curator": curator} | known


@contextmanager
def without_warnings() -> Iterator[None]:
    """Do not warn of what an audit does on purpose: it fits few invented documents, with seeds."""
    with warnings.catch_warnings():
        for category in (
            PrivacyLeakWarning, SeededNoiseWarning, PrivateDataWarning, LowSignalWarning,
            LowSignalWarning,
        ):  # fmt: skip
            warnings.simplefilter("ignore", category)
        yield


def can_be_watched(estimator: BaseEstimator) -> bool:
    """Whether all releases of an estimator pass a curator that a check can watch."""
    if getattr(estimator, "_attack", None) not in {"document", "word"}:
        return False
    return hasattr(estimator, "_rounds") or hasattr(estimator, "_curator")


@contextmanager
def watched(model: BaseEstimator, record: Record) -> Iterator[None]:
    """Record what `model` gives to its curator, while it is fitted inside of the block."""
    name = "_rounds" if hasattr(model, "_rounds") else "_curator"
    watch: Callable[..., Any] = _watched_rounds if name == "_rounds" else _watched_curator
    setattr(model, name, watch(getattr(model, name), record))
    try:
        yield
    finally:
        delattr(model, name)


def _watched_rounds(rounds: Callable[..., Any], record: Record) -> Callable[..., Any]:
    signature = inspect.signature(rounds)

    def watched_rounds(*args: Any, **options: Any) -> Any:
        call = dict(signature.bind(*args, **options).arguments)
        record.calls.append(call)
        return rounds(**(call | {"curator": _Watch(call["curator"], record)}))

    return watched_rounds


def _watched_curator(make_curator: Callable[..., Any], record: Record) -> Callable[..., Any]:
    def watched_curator(plan: Any, streams: Any) -> _Watch:
        record.streams = streams
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
        self._record.steps.append(Step(exact, noisy.copy(), mechanism, event, self._sample))
        self._sample = None
        return noisy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._curator, name)

    def __enter__(self) -> _Watch:
        self._curator.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._curator.__exit__(*error)


class Answers:
    """Takes the place of a curator in a second run, which charges and confirms nothing.

    Without `samples` all documents take part. `values` and `rates` are what the second run gave to
    each release: the sums, and the rates of its sample or None.
    """

    def __init__(
        self, noisy: Sequence[np.ndarray], samples: Sequence[np.ndarray] | None = None
    ) -> None:
        self._noisy, self._samples = iter(noisy), None if samples is None else iter(samples)
        self._rates: np.ndarray | None = None
        self.values: list[np.ndarray] = []
        self.rates: list[np.ndarray | None] = []
        self.events: tuple[Any, ...] = ()

    def planned(self, plan: Any) -> Answers:
        self.events = tuple(event for _, event in plan)
        return self

    def sample(self, rates: np.ndarray, **options: Any) -> np.ndarray:
        self._rates = rates
        return np.arange(len(rates)) if self._samples is None else next(self._samples).copy()

    def release(self, value: np.ndarray, mechanism: Mechanism, **options: Any) -> np.ndarray:
        self.values.append(value.copy())
        is_sampled = options.get("sampling_probability", 1.0) < 1
        self.rates.append(self._rates if is_sampled else None)
        return next(self._noisy).copy()

    def account(self, event: Any, *, label: str) -> None: ...

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *error: Any) -> None: ...
