"""Tests of a watched fit: its noise, samples, contributions and attributes are as declared.

Each test compares one statistic with the range that it has in a sound fit.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import chi2, laplace, norm
from sklearn.base import BaseEstimator

from dplda.audit._watch import Record, Step, without_warnings
from dplda.privacy import Gaussian, Laplace, PoissonSampled, Repeated
from dplda.privacy._events import Event
from dplda.privacy.mechanisms import DiscreteGaussian, FlooredLaplace

FALSE_ALARM = 1e-6  # of all checks of a fit together
N_STATISTICAL = 7  # checks that can fail by chance; each gets an equal part of FALSE_ALARM
LEVEL = FALSE_ALARM / N_STATISTICAL
ROUNDING = 1e-9  # of a ratio of two norms


@dataclass(frozen=True)
class ResidualTest:
    """One line of a residual check.

    Parameters
    ----------
    name : str
        What is compared.
    statistic : float
        What was found.
    low, high : float
        Expected range of the statistic, ends included.
    note : str, default=""
        What the test could not see.
    """

    name: str
    statistic: float
    low: float
    high: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the statistic is in the expected range."""
        return self.low <= self.statistic <= self.high

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.statistic:.4g}, expected {self.low:.4g} to {self.high:.4g}: "
            f"{'passed' if self.passed else 'FAILED'}{self.note and f' ({self.note})'}"
        )


@dataclass(frozen=True)
class ResidualResult:
    """What a residual check found.

    Parameters
    ----------
    name : str
        Class of the estimator.
    tests : tuple of ResidualTest
        All lines of the check.
    n_releases : int
        Number of noisy releases.
    n_cells : int
        Number of noisy cells in all releases.
    false_alarm : float
        Probability, at most, with which a sound fit fails any of the tests.
    """

    name: str
    tests: tuple[ResidualTest, ...]
    n_releases: int
    n_cells: int
    false_alarm: float = FALSE_ALARM

    @property
    def passed(self) -> bool:
        """Whether all tests passed."""
        return not self.failures

    @property
    def failures(self) -> tuple[ResidualTest, ...]:
        """The tests that did not pass."""
        return tuple(test for test in self.tests if not test.passed)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        found = (
            f"{self.name} released {self.n_cells} noisy cells in {self.n_releases} "
            f"{'release' if self.n_releases == 1 else 'releases'} "
            f"({len(self.tests)} tests, false alarms at most {self.false_alarm:g}): "
        )
        if self.passed:
            return found + "noise, samples, contributions and model are as declared."
        return found + "not as declared: " + "; ".join(test.name for test in self.failures) + "."

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(f"* {test}" for test in self.tests)])


# noise


N_BINS = 20


def normal_scores(step: Step, draws: np.ndarray) -> np.ndarray:
    """Noise of a release as independent standard normal numbers, if it has the declared law.

    `draws` are uniform numbers, one for each cell. They spread each integer evenly over its
    probability, so that the law of the scores is exact for discrete noise as well.
    """
    law = _law(step.mechanism)
    noise = step.noise.astype(np.float64)
    # from the nearer tail, where probabilities keep their digits
    below = noise < step.mechanism.mean
    end, start = np.where(below, noise + 1, -noise), np.where(below, noise, -noise - 1)
    shift = _left_edge(step.mechanism)
    side = np.where(below, shift, -shift)
    low, high = law.cdf(start + side), law.cdf(end + side)
    tail = np.clip(low + draws * (high - low), 1e-300, 1.0 - 2.0**-53)
    return np.where(below, norm.ppf(tail), -norm.ppf(tail))


def _law(mechanism: Any) -> Any:
    """The continuous law whose rounding is the declared noise, symmetric around zero."""
    if isinstance(mechanism, FlooredLaplace):
        return laplace(scale=mechanism.scale)
    if isinstance(mechanism, DiscreteGaussian):
        return norm(scale=mechanism.scale)
    raise ValueError(f"a residual check knows no law of the noise of {mechanism}")


def _left_edge(mechanism: Any) -> float:
    """Where the cell of the integer 0 begins: it is one wide."""
    return 0.0 if isinstance(mechanism, FlooredLaplace) else -0.5


def noise_tests(scores: list[np.ndarray]) -> list[ResidualTest]:
    """Compare the normal scores of all releases with independent standard normal numbers."""
    everything = np.concatenate(scores)
    n = len(everything)
    low, high = _chi2_range(n, LEVEL)
    return [
        ResidualTest(
            "variance of the noise over the declared one", float((everything**2).mean()),
            low / n, high / n,
        ),
        _release_test(scores),
        _distribution_test(everything),
        _correlation_test(
            "correlation of the noise of two releases", list(itertools.combinations(scores, 2))
        ),
        _correlation_test(
            "correlation of the noise of two cells", [p for s in scores for p in _cell_pairs(s)]
        ),
    ]  # fmt: skip


def _chi2_range(n: int, level: float) -> tuple[float, float]:
    return float(chi2.ppf(level / 2, n)), float(chi2.isf(level / 2, n))


def _release_test(scores: list[np.ndarray]) -> ResidualTest:
    """Variance of the release in which it is least likely."""
    level = LEVEL / len(scores)
    sums = [float((score**2).sum()) for score in scores]
    worst = min(range(len(scores)), key=lambda i: _chi2_tail(sums[i], len(scores[i])))
    n = len(scores[worst])
    low, high = _chi2_range(n, level)
    name = "variance of the noise over the declared one, in the least likely release"
    return ResidualTest(name, sums[worst] / n, low / n, high / n)


def _chi2_tail(value: float, n: int) -> float:
    return min(float(chi2.logcdf(value, n)), float(chi2.logsf(value, n)))


def _distribution_test(scores: np.ndarray) -> ResidualTest:
    """Chi-square of the declared law, in bins of equal probability."""
    n_bins = max(2, min(N_BINS, len(scores) // 500))
    edges = norm.ppf(np.arange(1, n_bins) / n_bins)
    counts = np.bincount(np.searchsorted(edges, scores), minlength=n_bins)
    expected = len(scores) / n_bins
    statistic = float(((counts - expected) ** 2).sum() / expected)
    name = f"chi-square of the noise against the declared law ({n_bins} bins)"
    return ResidualTest(name, statistic, 0.0, float(chi2.isf(LEVEL, n_bins - 1)))


def _cell_pairs(score: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of neighbors, and pairs of a cell in either half of a release."""
    n = len(score) // 2
    return [(score[: 2 * n : 2], score[1 : 2 * n : 2]), (score[:n], score[n : 2 * n])]


def _correlation_test(name: str, pairs: list[tuple[np.ndarray, np.ndarray]]) -> ResidualTest:
    """Correlation of the pair of vectors in which it is least likely.

    The scalar product with a given vector of length one is standard normal, for any vector that is
    independent of the other one: no approximation is made.
    """
    if not pairs:
        return ResidualTest(name, 0.0, -1.0, 1.0)
    worst = max(pairs, key=lambda pair: abs(_projection(*pair)))
    one, two = (vector[: min(map(len, worst))] for vector in worst)
    root = math.sqrt(max(1, len(one)))
    far = float(norm.isf(LEVEL / 2 / len(pairs)))
    return ResidualTest(name, _projection(one, two) / root, -far / root, far / root)


def _projection(one: np.ndarray, two: np.ndarray) -> float:
    n = min(len(one), len(two))
    length = float(np.linalg.norm(one[:n]))
    return float(one[:n] @ two[:n]) / length if length > 0 else 0.0


# samples


def sample_tests(samples: list[tuple[np.ndarray, np.ndarray]]) -> list[ResidualTest]:
    """Rates of the secret samples, and how often a document is in two of them."""
    drawn = [(rates, _members(rates, rows)) for rates, rows in samples if (rates < 1).any()]
    if not drawn:
        return []
    rates = np.concatenate([rates[rates < 1] for rates, _ in drawn])
    members = np.concatenate([member[rates < 1] for rates, member in drawn])
    tests = [_rate_test("share of documents that a round samples", rates, members, LEVEL)]
    pairs = [
        _pair_test(one, two, LEVEL / math.comb(len(drawn), 2))
        for one, two in itertools.combinations(drawn, 2)
    ]
    return tests + ([max(pairs, key=_distance)] if pairs else [])


def _members(rates: np.ndarray, rows: np.ndarray) -> np.ndarray:
    member = np.zeros(len(rates), bool)
    member[rows] = True
    return member


def _pair_test(one: Any, two: Any, level: float) -> ResidualTest:
    """Members of a sample among those of another: given the other one, coins at their rates."""
    rates, member = two
    both = one[1] & (rates < 1)
    name = "share of a round's sample that another round samples again"
    return _rate_test(name, rates[both], member[both], level)


def _distance(test: ResidualTest) -> float:
    """How far a statistic is from the middle of its range, in half widths."""
    half = (test.high - test.low) / 2
    return abs(test.statistic - (test.high + test.low) / 2) / half if half > 0 else 0.0


def _rate_test(name: str, rates: np.ndarray, member: np.ndarray, level: float) -> ResidualTest:
    """Share of coins that show 1, with a Chernoff bound, which holds for unequal rates."""
    n = len(rates)
    if n == 0:
        return ResidualTest(name, 0.0, 0.0, 1.0)
    rate, most = float(rates.mean()), -math.log(level / 2) / n
    shares = np.arange(n + 1) / n
    inside = shares[_divergence(shares, rate) <= most]
    return ResidualTest(name, float(member.mean()), float(inside[0]), float(inside[-1]))


def _divergence(shares: np.ndarray, rate: float) -> np.ndarray:
    """Kullback-Leibler divergence of coins with rates `shares` from coins with rate `rate`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where(shares > 0, shares * np.log(shares / rate), 0.0)
        zero = np.where(shares < 1, (1 - shares) * np.log((1 - shares) / (1 - rate)), 0.0)
    return one + zero


# contributions


N_LEFT_OUT = 6  # documents that are left out, one after the other
N_LOUD = 20  # invented documents whose contributions reach the clipping bound
REACHED = 0.99  # of the sensitivity: less than this shows nothing about the clip
NOT_REACHED = (
    "no document came near the bound in {} of {} releases, so that a bound too wide would not be "
    "seen there"
)


def contribution_tests(model: BaseEstimator, record: Record) -> list[ResidualTest]:
    """What one unit changes, of what the model protects: a word, a document or a user."""
    if model._attack == "word":
        return [_token_test(record)]
    return _left_out_tests(model, record)


def _token_test(record: Record) -> ResidualTest:
    """What a replaced word moves: a token adds to a cell of its word's row, and to no other row."""
    words = np.asarray(record.X.sum(axis=0)).reshape(-1)
    changes = []
    for step in record.steps:
        rows = np.abs(step.value).sum(axis=1)
        each = np.where(words > 0, rows / np.maximum(words, 1), np.where(rows > 0, np.inf, 0.0))
        changes.append(float(each.max()) / _allowed_move(step.mechanism))
    name = "what a word changes, over the sensitivity"
    return ResidualTest(name, max(changes), 0.0, 1.0 + ROUNDING)


def _allowed_move(mechanism: Any) -> float:
    """Most that each of two cells may change, so that both stay within what is charged."""
    if isinstance(mechanism, FlooredLaplace):  # `n_cells` cells are charged, by 1 each
        return mechanism.sensitivity * mechanism.n_cells / 2
    return float(mechanism.sensitivity) / math.sqrt(2.0)


def _left_out_tests(model: BaseEstimator, record: Record) -> list[ResidualTest]:
    """What each of a few documents, or users, changes in the sums, by a second run without it."""
    inside, outside = [[0.0] for _ in record.steps], [0.0]  # of each release, of all
    for unit in _units_to_leave_out(record):
        without = record.sums(model, _emptied(record.X, record.units == unit))
        for step, value, changes in zip(record.steps, without, inside):
            change = float(np.linalg.norm((step.value - value).astype(np.float64)))
            in_sample = unit in _sample_of(step, record)
            (changes if in_sample else outside).append(change / step.mechanism.sensitivity)
    largest = np.array([max(changes) for changes in inside])
    n_unseen = int(np.count_nonzero(largest < REACHED))
    name = "what a document changes, over the sensitivity"
    note = NOT_REACHED.format(n_unseen, len(largest)) if n_unseen else ""
    tests = [ResidualTest(name, float(largest.max()), 0.0, 1.0 + ROUNDING, note)]
    if len(outside) > 1:
        name = "what a document changes in a round that does not sample it"
        tests.append(ResidualTest(name, max(outside), 0.0, 0.0))
    return tests


def _sample_of(step: Step, record: Record) -> np.ndarray:
    """The units that took part in a release."""
    return np.unique(record.units) if step.sample is None else record.samples[step.sample][1]


def _units_to_leave_out(record: Record) -> list[int]:
    """The last one, which the audit has added, the longest one, and others for the other releases.

    Rounds differ: a fault may show in a single one, and only documents of its sample can show it.
    So each further unit is that one of the longest and the last ones which took part in most of the
    releases that none before it took part in.
    """
    lengths = np.bincount(record.units, np.diff(record.X.indptr))
    order = np.argsort(-lengths, kind="stable")
    candidates = [*order[:N_LOUD], *range(max(0, len(order) - N_LOUD), len(order))]
    took_part = {int(u): np.zeros(len(record.steps), bool) for u in candidates}
    for i, step in enumerate(record.steps):
        for unit in took_part.keys() & set(_sample_of(step, record).tolist()):
            took_part[unit][i] = True
    chosen = [int(record.units[-1]), int(order[0])]
    while len(set(chosen)) < min(N_LEFT_OUT, len(took_part)):
        seen = np.any([took_part[u] for u in chosen], axis=0)
        left = [u for u in took_part if u not in chosen]
        chosen.append(max(left, key=lambda u: np.count_nonzero(took_part[u] & ~seen)))
    return sorted(set(chosen))


def _emptied(X: sp.csr_array, rows: np.ndarray) -> sp.csr_array:
    """The same documents, some of them empty: all others keep their places and streams."""
    kept = X.copy()
    kept.data[np.repeat(rows, np.diff(X.indptr))] = 0
    kept.eliminate_zeros()
    return kept


# the guarantee and the model


def event_test(model: BaseEstimator, record: Record) -> ResidualTest:
    """Releases that cost another event than the guarantee states, or have a higher rate."""
    stated = list(model.privacy_.events)
    missing = 0
    for step in record.steps:
        if step.event in stated and _is_honest(step, record.samples):
            stated.remove(step.event)
        else:
            missing += 1
    name = "releases that the events of the guarantee do not cover"
    return ResidualTest(name, float(missing), 0.0, 0.0)


def _is_honest(step: Step, samples: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Whether an event states no more noise than there is, and no lower rate than was drawn."""
    charged = step.event.sampling_probability if isinstance(step.event, PoissonSampled) else 1.0
    highest = 1.0 if step.sample is None else float(np.max(samples[step.sample][0], initial=0.0))
    noise = step.mechanism.scale / step.mechanism.sensitivity
    return highest <= charged and _noise_of(step.mechanism.event) <= noise * (1 + ROUNDING)


def _noise_of(event: Event) -> float:
    """Noise that an event states, over the sensitivity."""
    if isinstance(event, Repeated):
        return _noise_of(event.event)
    if isinstance(event, Gaussian):
        return event.noise_multiplier
    return event.scale if isinstance(event, Laplace) else math.inf


def public_test(model: BaseEstimator, record: Record) -> ResidualTest:
    """Fitted attributes that a second fit, on nothing but the releases, does not have as well."""
    with without_warnings():
        public = record.refit(model, _neutral(model, record.X))
    differing = sum(
        not _same(value, getattr(public, name, None))
        for name, value in vars(model).items()
        if name.endswith("_") and not name.startswith("_")
    )
    name = "fitted attributes that the releases do not determine"
    return ResidualTest(name, float(differing), 0.0, 0.0)


def _neutral(model: BaseEstimator, X: sp.csr_array) -> sp.csr_array:
    """Documents that say nothing: empty ones, or for word-level privacy all of the first word."""
    if model._attack != "word":
        return sp.csr_array(X.shape, dtype=X.dtype)
    lengths = np.asarray(X.sum(axis=1)).reshape(-1)
    first = (np.arange(X.shape[0]), np.zeros(X.shape[0], int))
    return sp.csr_array(sp.coo_array((lengths, first), shape=X.shape))


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal, arrays bit for bit."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.tobytes() == other.tobytes()
    return bool(one == other) or (one != one and other != other)  # NaN
