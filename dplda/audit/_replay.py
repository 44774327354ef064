"""Fits that an audit watches, and replays of a fit on neighboring data.

An audit knows the documents, so it may see what no adversary sees: the exact sums and
the secret samples. `watched` records them on tape. In a replay, a second fit gets the
releases of the first fit instead of new ones, so both have one history. Then each
release differs by the unit's change only. This is Re:cord-play (arXiv 2602.17454).
"""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import joblib
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from dplda.core._corpus import Matrix
from dplda.leaf._users import number_users
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy._recorder import Computed, Recorder, Release, Value, record
from dplda.privacy._streams import Purpose
from dplda.privacy.mechanisms import FlooredLaplace, Streams

# Chooses the units of the n-th sample, from n and the rates of all units.
Members: TypeAlias = Callable[[int, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Step:
    """One release: the exact integers, the public values, and the noise mechanism."""

    label: str
    round: int
    value: np.ndarray
    noisy: np.ndarray
    mechanism: Mechanism
    event: Event
    # rates of all units, rows of the sample
    sample: tuple[np.ndarray, np.ndarray] | None = None
    names: np.ndarray | None = None  # of the cells, if their number is private
    shown: np.ndarray | None = None  # names of the cells that became public

    @property
    def noise(self) -> np.ndarray:
        """The public minus the computed value of each cell."""
        return (self.noisy - self.value).reshape(-1)


@dataclass(eq=False)
class Tape:
    """What a fit gave to its curators, and what it got back."""

    first: Tape | None = None  # given out instead of this fit's releases
    members: Members | None = None
    # label, unit and steps of each
    plans: list[tuple[str, str, tuple[tuple[str, Event], ...]]] = field(
        default_factory=list
    )
    steps: list[Step] = field(default_factory=list)
    # what became public without noise
    published: list[Any] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)  # what an adversary sees


class Watch(Recorder):
    """Writes a tape, and gives out the releases of the first tape, if there is one."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._n_samples = 0
        self._sample: tuple[np.ndarray, np.ndarray] | None = None

    def charges(
        self, label: str, unit: str, plan: tuple[tuple[str, Event], ...]
    ) -> bool:
        self._tape.plans.append((label, unit, plan))
        return self._tape.first is None  # in a replay nothing new becomes public

    def sampled(self, rates: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if self._tape.members is not None:
            rows = self._tape.members(self._n_samples, rates)
        self._n_samples += 1
        self._sample = (rates.copy(), rows.copy())
        return rows

    def released(self, computed: Computed, noisy: np.ndarray) -> np.ndarray:
        first = self._keep(computed, noisy)
        self._sample = None
        return noisy if first is None else first.noisy.astype(noisy.dtype)

    def selected(
        self, computed: Computed, names: np.ndarray, noisy: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        first = self._keep(computed, noisy, names)
        if first is None or first.shown is None:
            return names, noisy
        return first.shown, first.noisy.copy()

    def drawn(self, label: str, round: int, value: Value) -> Value:
        n = len(self._tape.published)
        self._tape.published.append(copy.deepcopy(value))
        played = self._tape.first.published if self._tape.first else []
        return copy.deepcopy(played[n]) if n < len(played) else value

    def announced(self, release: Release) -> None:
        self._tape.releases.append(release)

    def _keep(
        self, computed: Computed, noisy: np.ndarray, shown: np.ndarray | None = None
    ) -> Step | None:
        """Record a release, and find the one that is given out instead."""
        step = Step(
            computed.label,
            computed.round,
            np.array(computed.value, np.int64),
            noisy.copy(),
            computed.mechanism,
            computed.event,
            self._sample,
            computed.names,
            shown,
        )
        n = len(self._tape.steps)
        self._tape.steps.append(step)
        played = self._tape.first.steps if self._tape.first else []
        return played[n] if n < len(played) and are_alike(step, played[n]) else None


def are_alike(one: Step, other: Step) -> bool:
    """Whether two releases have the same public part."""
    same = (one.label, one.round, one.mechanism, one.event)
    shapes = one.names is not None or one.value.shape == other.value.shape
    return shapes and same == (other.label, other.round, other.mechanism, other.event)


@contextmanager
def watched(
    first: Tape | None = None, members: Members | None = None
) -> Iterator[Tape]:
    """Record what this thread gives to curators in the block.

    None charges a second fit.

    Warnings are off, because an audit fits few invented documents, with seeds, and has
    read the data before.
    """
    tape = Tape(first, members)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with record(Watch(tape)):
            yield tape


def fit_watched(
    estimator: BaseEstimator | Callable[..., object],
    X: Matrix,
    seed: object = None,
    first: Tape | None = None,
    members: Members | None = None,
    **fit_params: Any,
) -> tuple[Any, Tape]:
    """Fit a copy of an estimator, or call a function, with `X`; return model and tape.

    `seed` is the `random_state`, and `fit_params` are other arguments of `fit`.
    """
    fit = estimator
    if isinstance(estimator, BaseEstimator):
        model = clone(estimator)
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        fit = model.fit
    with watched(first, members) as tape:
        return fit(X, **fit_params), tape


# two fits with one history


class Check(NamedTuple):
    """One line of a check: a statistic, and its range in a sound fit."""

    name: str
    statistic: float
    low: float = 0.0
    high: float = 0.0
    note: str = ""  # what was found, or what could not be seen

    @property
    def passed(self) -> bool:
        """Whether the statistic is in the expected range."""
        return self.low <= self.statistic <= self.high

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        note = f" ({self.note})" if self.note else ""
        return (
            f"{self.name}: {self.statistic:.4g}, expected {self.low:.4g} to "
            f"{self.high:.4g}: {verdict}{note}"
        )


@dataclass(frozen=True)
class CheckResult:
    """What a replay or a residual check found. ``print`` shows it.

    Parameters
    ----------
    name : str
        Name of the estimator or of the function.
    checks : tuple
        All lines, each with `name`, `statistic`, `low`, `high`, `note` and `passed`.
    distances : tuple of float
        For each release, the largest distance between the exact values of two
        neighbors, divided by the declared sensitivity.
    """

    name: str
    checks: tuple[Check, ...]
    distances: tuple[float, ...]

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    def __str__(self) -> str:
        found = "; ".join(check.name for check in self.failures)
        verdict = f"not as declared: {found}" if found else "all is as declared"
        lines = [f"{self.name}, releases: {len(self.distances)}: {verdict}."]
        lines += [f"* {check}" for check in self.checks]
        return "\n".join(lines)


def replay(
    estimator: BaseEstimator | Callable[..., object],
    X: Matrix,
    X_neighbour: Matrix,
    **fit_params: Any,
) -> CheckResult:
    """Fit an estimator to two neighboring data sets with one history; compare releases.

    The releases of the first fit are recorded, and the second fit gets them instead of
    its own. Plans, shapes, mechanisms and fitted attributes must be the same. Each
    exact value may move by the declared sensitivity, in the norm of its mechanism, and
    not at all in a round that does not sample the changed unit.

    Parameters
    ----------
    estimator : estimator or callable
        An estimator, which is copied, or a function of the data that releases through a
        curator, such as ``lambda X: noisy_score(model, X, epsilon=1.0,
        random_state=0)``.
    X : {array-like, sparse matrix, list}
        The data of the first fit: word counts or texts.
    X_neighbour : {array-like, sparse matrix, list}
        The data of the second fit, in which one unit's rows are empty. At word level,
        one word of a document is replaced, and no word of the document has an index
        between the old and the new one.
    **fit_params : dict
        Other arguments of both fits, such as `user_ids`.

    Returns
    -------
    CheckResult
        The distances, and everything that a neighbor changed but must not change.

    See Also
    --------
    residual_check : Replays its fit on many neighbors, and tests the noise.

    Notes
    -----
    **Privacy.** The result is a function of the exact sums: it is not private. The
    first fit spends the estimator's epsilon on `X`: use public or invented documents.
    Both fits have one seed, drawn here if `random_state` is None. Noise is not
    compared. A pair that shows no violation proves nothing of other pairs.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.audit import replay
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(20, 30, 2, random_state=0).data.toarray()
    >>> Y = X.copy()
    >>> Y[7] = 0
    >>> replay(SubLDA(n_components=2, epsilon=4.0, max_iter=5), X, Y).passed
    True
    """
    seed = getattr(estimator, "random_state", None)
    if seed is None:
        secret = Streams.from_random_state(None)
        seed = int(secret.reader(Purpose.AUDIT, 4).words(1)[0] >> np.uint64(33))
    model, first = fit_watched(estimator, X, seed, **fit_params)
    again, second = fit_watched(estimator, X_neighbour, seed, first, **fit_params)
    changed = _changed_units(X, X_neighbour, fit_params.get("user_ids"))
    distances, violations = compared(first, second, changed)
    name = getattr(estimator, "__name__", type(estimator).__name__)
    checks = (
        *neighbor_checks("a neighbor", distances, violations),
        attribute_check(model, again),
    )
    return CheckResult(name, checks, tuple(distances))


def neighbor_checks(
    what: str, distances: Sequence[float], violations: set[str], note: str = ""
) -> list[Check]:
    """The lines for the findings of `compared`, of one neighbor or several."""
    largest = float(max(distances, default=0.0))
    changes = f"what {what} changes, over the sensitivity"
    found = "; ".join(sorted(violations))
    return [
        Check(changes, largest, high=1.0, note=note),
        Check(f"what {what} must not change", len(violations), note=found),
    ]


def compared(
    first: Tape, second: Tape, changed: np.ndarray | None
) -> tuple[list[float], set[str]]:
    """Distances of all releases of two tapes, over the sensitivity; what must be equal.

    `changed` are the numbers of the changed units, or None if they are not known.
    """
    violations: set[str] = set()
    distances = []
    if first.plans != second.plans:
        violations.add("the plan depends on the data")
    n_released = (len(first.steps), len(first.published))
    if n_released != (len(second.steps), len(second.published)):
        violations.add("the number of releases depends on the data")
    for one, other in zip(first.steps, second.steps):
        where = f"{one.label}, round {one.round}"
        if not are_alike(one, other):
            violations.add(f"{where}: shape, noise or rate depends on the data")
            continue
        distances.append(distance(one, other))
        if changed is None or one.sample is None or other.sample is None:
            continue
        rates, rows = one.sample
        other_rates, other_rows = other.sample
        same = np.ones(max(len(rates), len(other_rates)), bool)
        same[changed] = False
        if len(rates) == len(other_rates) and (rates != other_rates)[same].any():
            violations.add(f"{where}: the rate of a unit depends on another unit")
        sampled = np.union1d(rows, other_rows)
        if distances[-1] > 0 and not np.isin(changed, sampled).any():
            violations.add(f"{where}: moves by a unit outside of the sample")
    return distances, violations


def distance(one: Step, other: Step) -> float:
    """Distance of two values in their mechanism's norm, over the sensitivity.

    It exceeds 1 if and only if the exact integers are further apart than is charged.
    """
    mechanism = one.mechanism
    moved = _difference(one, other)
    if mechanism.exact:
        return 0.0
    # `n_cells` cells are charged, by the unit each
    if isinstance(mechanism, FlooredLaplace):
        n_moved = int(np.count_nonzero(moved))
        return max(int(np.abs(moved).max(initial=0)), n_moved / mechanism.n_cells)
    squares = sum(int(m) ** 2 for m in moved[moved != 0])
    radius = int(mechanism.sensitivity)
    ratio = math.sqrt(squares) / radius
    # the integers decide, and not the rounded ratio
    if squares > radius**2:
        return max(ratio, math.nextafter(1.0, 2.0))
    return min(ratio, 1.0)


def _difference(one: Step, other: Step) -> np.ndarray:
    """The moves of all cells, by their names if they have any."""
    if one.names is None or other.names is None:
        return (one.value - other.value).reshape(-1)
    both = Counter(dict(zip(one.names, one.value)))
    both.subtract(dict(zip(other.names, other.value)))
    return np.array(list(both.values()), np.int64)


def attribute_check(one: object, other: object) -> Check:
    """Attributes, or results, that two fits with the same releases do not share."""
    # pairs of a name and a hash that one of the fits has, and the other has not
    unshared = _contents(one).items() ^ _contents(other).items()
    names = sorted({name for name, _ in unshared})
    title = "fitted attributes that the releases do not determine"
    return Check(title, len(names), note=", ".join(names))


def _contents(result: object) -> dict[str, str]:
    """Hashes of the attributes that a fit has set, or of the result of a function."""
    if not isinstance(result, BaseEstimator):
        return {"the result": joblib.hash(result)}
    parameters = result.get_params(deep=False)
    return {
        name: joblib.hash(value)
        for name, value in vars(result).items()
        if name not in parameters
    }


def _changed_units(
    X: Matrix,
    other: Matrix,
    user_ids: ArrayLike | None,
) -> np.ndarray | None:
    """Numbers of the units that differ; None unless data are matrices of one shape."""
    shape = getattr(X, "shape", None)
    if shape is None or shape != np.shape(other):
        return None
    differences = sp.csr_array(_sparse(X) != _sparse(other))
    rows = np.flatnonzero(np.diff(differences.indptr))
    users = number_users(user_ids, shape[0])
    return rows if users is None else np.unique(users[rows])


def _sparse(X: Matrix) -> sp.csr_array:
    return sp.csr_array(X if sp.issparse(X) else np.asarray(X))
