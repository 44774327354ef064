"""Residual checks: what a fit released minus what it computed is noise, and must look like it.

An audit knows the documents, and so the exact sums behind every release. The checks below compare
the noise, the samples, the contributions and the fitted attributes with what the guarantee says.
They find faults that the guesses of coins are too weak for.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import binom, chi2, laplace, norm
from sklearn.base import BaseEstimator, clone

from dplda._corpus import check_counts
from dplda.audit._attacks import n_rounds_of, widened
from dplda.audit._watch import UNITS, Record, Step, watched
from dplda.privacy import (
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    PrivacyLeakWarning,
    PrivateDataWarning,
    PublicPriorWarning,
    Repeated,
    SeededNoiseWarning,
)
from dplda.privacy._observation import observe_releases
from dplda.privacy.mechanisms import (
    DiscreteGaussian,
    FlooredLaplace,
    Purpose,
    Streams,
    uniform,
    uniform_integers,
)

FALSE_ALARM = 1e-6  # of all checks of a fit together
N_STATISTICAL = 9  # checks that can fail by chance; each gets an equal part of FALSE_ALARM
LEVEL = FALSE_ALARM / N_STATISTICAL
N_BINS = 20
N_LEFT_OUT = 6  # documents that are left out, one after the other
N_LOUD = 20  # invented documents whose contributions reach the clipping bound
N_EMPTY = 500  # empty documents: a sample takes them like all others
N_CELLS = 60_000  # of noise: a noise 3% too small is then 9 standard deviations away
MAX_MORE_WORDS = 6000
REACHED = 0.99  # of the sensitivity: less than this shows nothing about the clip
ROUNDING = 1e-9  # of a ratio of two norms
NOT_REACHED = (
    "no document came near the bound in {} of {} releases, so that a bound too wide would not be "
    "seen there"
)


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


def residual_check(estimator: BaseEstimator, X: Any, *, random_state: Any = None) -> ResidualResult:
    """Compare the noise of a fit, and all else that its guarantee rests on, with what it declares.

    One fit is watched from inside. What was released minus what was computed is the noise. Some
    loud and empty documents, and words that no document has, are added to `X`.

    Parameters
    ----------
    estimator : estimator
        `SubLDA`, `PrivateSVILDA`, `HDPLDA`, or an estimator written like them (its class attribute
        ``_attack`` is "document" or "word"). It is copied.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of invented or public documents.
    random_state : int, RandomState instance or None, default=None
        Seed of the fit and of the check. None draws both from the operating system.

    Returns
    -------
    ResidualResult
        One line for each test. ``print`` shows them.

    Raises
    ------
    ValueError
        If the estimator adds no noise, or has no curator that could be watched.

    See Also
    --------
    audit_epsilon : Runs this check on the first of its fits, next to an attack.

    Notes
    -----
    **Privacy.** The check reads the exact sums. Its result is not private, and the fit spends the
    estimator's epsilon on `X`: use public or invented documents.

    All tests together raise a false alarm with probability at most 1e-6. A fault that no test looks
    for passes. ``docs/audits.md`` lists the tests and what they find.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.audit import residual_check
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=20, n_words=30, n_components=2, random_state=0).data
    >>> residual_check(SubLDA(n_components=2, epsilon=4.0, max_iter=5), X, random_state=0).passed
    True
    """
    require_curator(estimator)
    if getattr(estimator, "epsilon", None) == math.inf:
        raise ValueError(
            f"{type(estimator).__name__} adds no noise with epsilon=inf; give it a finite epsilon"
        )
    streams = Streams.from_random_state(random_state)
    X = check_counts(clone(estimator), X, reset=True)
    model, X = _with_more(estimator, X, streams)
    seed = None
    if random_state is not None:
        seed = int(streams.words(Purpose.AUDIT, 4, 0, 1)[0] >> np.uint64(33))
    record = Record(X)
    model.set_params(random_state=seed)
    with warnings.catch_warnings(), watched(model, record), observe_releases():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", SeededNoiseWarning)  # the documents are invented
        warnings.simplefilter("ignore", PrivateDataWarning)
        warnings.simplefilter("ignore", PublicPriorWarning)
        model.fit(X)
    return check_record(model, record, streams)


def can_be_watched(estimator: BaseEstimator) -> bool:
    """Whether all releases of an estimator pass a curator that a check can watch."""
    if getattr(estimator, "_attack", None) not in UNITS:
        return False
    return hasattr(estimator, "_rounds") or hasattr(estimator, "_curator")


def require_curator(estimator: BaseEstimator) -> None:
    """Refuse an estimator that cannot be watched."""
    if not can_be_watched(estimator):
        raise ValueError(
            f"{type(estimator).__name__} has no curator to watch; residual checks are for "
            "estimators with _attack = 'document' or 'word'"
        )


def _with_more(
    estimator: BaseEstimator, X: sp.csr_array, streams: Streams
) -> tuple[BaseEstimator, sp.csr_array]:
    """Add loud and empty documents, and words that no document has: their cells are noise only."""
    model, parameters = clone(estimator), estimator.get_params()
    cells = int(parameters.get("n_components", 1)) * n_rounds_of(estimator)
    n_more = min(-(-N_CELLS // cells), MAX_MORE_WORDS)
    table = parameters.get("prior_components")
    if table is not None:
        more = np.full((len(table), n_more), np.mean(table))
        model.set_params(prior_components=np.hstack([table, more]))
    words = streams.words(Purpose.AUDIT, 2, 0, N_LOUD * X.shape[1])
    chosen = uniform_integers(words, 2).reshape(N_LOUD, X.shape[1])
    loud = sp.csr_array(chosen * 20)
    sampled = float(parameters.get("subsampling_ratio", 1.0)) < 1
    empty = sp.csr_array((N_EMPTY if sampled else 0, X.shape[1]), dtype=X.dtype)
    return model, widened(sp.csr_array(sp.vstack([X, empty, loud])), n_more)


def check_record(model: BaseEstimator, record: Record, streams: Streams) -> ResidualResult:
    """Test everything that was recorded of a fit."""
    steps = record.steps
    scores = [
        normal_scores(step, uniform(streams.words(Purpose.AUDIT, 3, i, step.value.size)))
        for i, step in enumerate(steps)
    ]
    tests = [
        *_noise_tests(scores),
        _unchanged_test(steps),
        *_sample_tests(record.samples),
        *_contribution_tests(model, record),
        _event_test(model, record),
        _public_test(model, record),
    ]
    n_cells = sum(len(score) for score in scores)
    return ResidualResult(type(model).__name__, tuple(tests), len(steps), n_cells)


# noise


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


def _probability_of_zero(mechanism: Any) -> float:
    law, left = _law(mechanism), _left_edge(mechanism)
    return float(law.cdf(left + 1) - law.cdf(left))


def _noise_tests(scores: list[np.ndarray]) -> list[ResidualTest]:
    everything = np.concatenate(scores)
    n = len(everything)
    far = norm.isf(LEVEL / 2)
    low, high = _chi2_range(n, LEVEL)
    return [
        ResidualTest(
            "mean of the noise over its standard deviation", float(everything.mean()),
            -far / math.sqrt(n), far / math.sqrt(n),
        ),
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


def _unchanged_test(steps: list[Step]) -> ResidualTest:
    """Cells that were released as they are.

    Their number is a sum of independent coins. A binomial number with the mean rate has a heavier
    upper tail than that (Hoeffding 1956).
    """
    n = sum(step.value.size for step in steps)
    expected = sum(step.value.size * _probability_of_zero(step.mechanism) for step in steps)
    unchanged = sum(int((step.noise == 0).sum()) for step in steps)
    most = max(math.ceil(expected) + 1, int(binom.isf(LEVEL, n, expected / n)))
    return ResidualTest("share of cells without noise", unchanged / n, 0.0, most / n)


# samples


def _sample_tests(samples: list[tuple[np.ndarray, np.ndarray]]) -> list[ResidualTest]:
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


def _contribution_tests(model: BaseEstimator, record: Record) -> list[ResidualTest]:
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


# the guarantee and the public side


def _event_test(model: BaseEstimator, record: Record) -> ResidualTest:
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


def _public_test(model: BaseEstimator, record: Record) -> ResidualTest:
    """Fitted attributes that a second fit, on nothing but the releases, does not have as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", SeededNoiseWarning)
        warnings.simplefilter("ignore", PrivateDataWarning)
        warnings.simplefilter("ignore", PublicPriorWarning)
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
