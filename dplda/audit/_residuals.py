"""Residual checks: released minus computed values must look like noise.

An audit knows the documents, and so the exact sums behind every release. The tests
compare noise, samples, contributions and fitted attributes with the guarantee. They
find faults that guessing coins is too weak to find.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.sparse as sp
from scipy.stats import binom, chi2, kstest, laplace, norm, rv_continuous
from sklearn.base import BaseEstimator, clone

from dplda.audit._attacks import add_words, stacked, widened
from dplda.audit._replay import (
    Check,
    CheckResult,
    Members,
    Step,
    Tape,
    attribute_check,
    compared,
    distance,
    fit_watched,
    neighbor_checks,
)
from dplda.core._corpus import Matrix, check_counts
from dplda.privacy import Repeated
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy._streams import Purpose, uniform_integers
from dplda.privacy.mechanisms import DiscreteGaussian, FlooredLaplace, Streams, uniform

# Probability that chance alone fails one check; for all nine checks that chance can
# fail, it is 1e-6.
LEVEL = 1e-6 / 9
N_LOUD = 20  # invented documents whose contributions reach the clipping bound
N_CELLS = 60_000  # of noise: a noise 3% too small is then 9 standard deviations away


def can_be_watched(estimator: BaseEstimator) -> bool:
    """Whether all releases of an estimator pass a curator that a check can watch."""
    return getattr(estimator, "_attack", None) in {"document", "word"}


def residual_check(
    estimator: BaseEstimator,
    X: Matrix,
    *,
    random_state: object = None,
) -> CheckResult:
    """Compare the noise of a fit, and all that its guarantee rests on, with its claims.

    One fit is watched from inside. The noise is the released minus the computed values.
    The check adds some loud and empty documents, and words that no document has, to
    `X`. The fit is replayed on neighbors of these documents.

    Parameters
    ----------
    estimator : estimator
        `SubLDA`, `PrivateSVILDA`, `HDPLDA`, or one whose class attribute ``_attack`` is
        "document" or "word". It is copied.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of invented or public documents.
    random_state : int, RandomState instance or None, default=None
        Seed of the fit and of the check. None draws both from the operating system.

    Returns
    -------
    CheckResult
        One line for each test.

    Raises
    ------
    ValueError
        If the estimator adds no noise, or has no curator to watch.

    See Also
    --------
    audit_epsilon : Runs this check next to an attack.
    replay : Compares a fit with the fit to one neighbor.

    Notes
    -----
    **Privacy.** The check reads the exact sums. Its result is not private, and the fit
    spends the estimator's epsilon on `X`: use public or invented documents.

    All tests together raise a false alarm with probability at most 1e-6. Faults that no
    test looks for pass. ``docs/audits.md`` lists the tests and what they find.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.audit import residual_check
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(20, 30, 2, random_state=0).data
    >>> model = SubLDA(2, epsilon=4.0, max_iter=5)
    >>> residual_check(model, X, random_state=0).passed
    True
    """
    if not can_be_watched(estimator):
        raise ValueError(
            f"{type(estimator).__name__} has no curator to watch; residual checks are "
            "for estimators with _attack = 'document' or 'word'"
        )
    if getattr(estimator, "epsilon", None) == math.inf:
        raise ValueError(
            f"{type(estimator).__name__} adds no noise with epsilon=inf; give it a "
            "finite epsilon"
        )
    streams = Streams.from_random_state(random_state)
    counts = check_counts(clone(estimator), X, reset=True)
    estimator, X = _with_more(estimator, counts, streams)
    seed = int(streams.reader(Purpose.AUDIT, 4).words(1)[0] >> np.uint64(33))
    model, tape = fit_watched(estimator, X, seed)
    neutral = _neutral(model, X)
    public, _ = fit_watched(estimator, neutral, seed, tape)
    others = [fit_watched(estimator, neutral, None, tape)[1] for _ in range(2)]
    scores = []
    for i, step in enumerate(tape.steps):
        words = streams.reader(Purpose.AUDIT, 3, i).words(step.value.size)
        scores.append(normal_scores(step, uniform(words)))
    noisy = [step for one in (tape, *others) for step in one.steps]
    if model._attack == "word":
        moved = _moved_by_a_word(tape, X)
        neighbors = [
            Check("what a word changes, over the sensitivity", max(moved), high=1.0)
        ]
    else:
        moved, neighbors = _moved_by_documents(estimator, X, seed, tape)
    checks = (
        *noise_checks(scores),
        repeat_check(noisy),
        order_check(noisy),
        bare_check(noisy),
        *sample_checks([step.sample for step in tape.steps if step.sample is not None]),
        *neighbors,
        _event_check(model, tape),
        attribute_check(model, public),
    )
    return CheckResult(type(model).__name__, checks, tuple(moved))


class NoiseOfRelease(NamedTuple):
    """The number of shares of noise in a model, with a 99% confidence interval."""

    shares: float
    low: float
    high: float


def noise_of_release(model: BaseEstimator) -> NoiseOfRelease:
    """Count the shares of noise in a published model, one for each curator or party.

    A document's contribution to a word sums to zero over the topics. So the row sums of
    the noisy averages are noise only, and a release file holds them. No document is
    needed.

    Parameters
    ----------
    model : SubLDA, PrivateSVILDA, PrivateTopicModel or ReleasedModel
        A fitted model, or what `load_release` has read.

    Returns
    -------
    shares, low, high : float
        A named tuple: the number of shares, and a confidence interval of 99%. A model
        of one curator has 1 share. A model of m parties has m shares, minus one for
        each party that added no noise. If `high` is below the expected number, noise is
        missing.

    Raises
    ------
    ValueError
        If the model has no row sums that are noise alone.

    See Also
    --------
    residual_check : Compares all noise with what is declared, with the documents.

    Notes
    -----
    **Privacy.** A function of releases, at no cost. The author of a file can write any
    numbers, so the count finds faults, not forgery. With n_words words, its standard
    error is ``shares * sqrt(2 / n_words)``. The proof is in
    ``docs/proofs_document.md``.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.audit import noise_of_release
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 300, 3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=4.0, max_iter=20).fit(X)
    >>> noise = noise_of_release(model)
    >>> 0.5 < noise.shares < 1.5, noise.low < noise.shares < noise.high
    (True, True)
    """
    model = getattr(model, "model_", model)  # a model of texts holds it
    row_noise = getattr(model, "row_noise_", None)
    if row_noise is None:
        name = getattr(model, "estimator_name_", type(model).__name__)
        raise ValueError(
            f"this {name} has no row sums that are noise alone: only a SubLDA or "
            "PrivateSVILDA with noise has, in a file of this version of dplda; save it "
            "again with save_release, or check another model with residual_check"
        )
    squares = float(np.square(row_noise, dtype=np.float64).sum())
    n = len(row_noise)
    low, high = squares / chi2.ppf([0.995, 0.005], n)
    return NoiseOfRelease(squares / n, float(low), float(high))


def _with_more(
    estimator: BaseEstimator, X: sp.csr_array, streams: Streams
) -> tuple[BaseEstimator, sp.csr_array]:
    """Add loud and empty documents, and unused words.

    No document has these words: their cells are noise only. Contributions of loud
    documents reach the clipping bound. Empty documents are sampled like all others.
    """
    model = clone(estimator)
    parameters = estimator.get_params()
    n_words = X.shape[1]
    n_components = int(parameters.get("n_components", 1))
    # `max_iter`, or what None stands for; 1 without such a parameter
    n_rounds = parameters.get("max_iter", 1) or len(model._budget().rounds)
    # the cells of a word: a round of topics has n_components, other rounds have one
    n_more = math.ceil(N_CELLS / (n_components + n_rounds))
    add_words(model, n_more)
    words = streams.reader(Purpose.AUDIT, 2).words(N_LOUD * n_words)
    coins = uniform_integers(words, 2)
    loud = sp.csr_array(coins.reshape(N_LOUD, n_words) * 20)
    sampled = float(parameters.get("subsampling_ratio", 1.0)) < 1
    empty = sp.csr_array((n_more if sampled else 0, n_words), dtype=X.dtype)
    return model, widened(stacked(stacked(X, empty), loud), n_more)


def _neutral(model: BaseEstimator, X: sp.csr_array) -> sp.csr_array:
    """Documents without information.

    They are empty; for word-level privacy, they hold only the first word.
    """
    if model._attack != "word":
        return sp.csr_array(X.shape, dtype=X.dtype)
    lengths = np.asarray(X.sum(axis=1)).reshape(-1)
    first = (np.arange(X.shape[0]), np.zeros(X.shape[0], int))
    return sp.csr_array(sp.coo_array((lengths, first), shape=X.shape))


# noise


def _law(mechanism: Mechanism) -> tuple[rv_continuous, float]:
    """The symmetric law whose rounding is the noise, and where the cell of 0 begins."""
    if isinstance(mechanism, FlooredLaplace):
        return laplace(scale=mechanism.scale), 0.0
    if isinstance(mechanism, DiscreteGaussian):
        return norm(scale=mechanism.scale), -0.5
    raise ValueError(f"a residual check knows no law of the noise of {mechanism}")


def _peak(mechanism: Mechanism) -> float:
    """Probability of noise 0, the most likely integer."""
    law, edge = _law(mechanism)
    return float(law.cdf(edge + 1) - law.cdf(edge))


def normal_scores(step: Step, draws: np.ndarray) -> np.ndarray:
    """Noise of a release as independent standard normal numbers, if its law is right.

    `draws` are uniform numbers, one for each cell. They spread each integer evenly over
    its probability, so the law of the scores is exact also for discrete noise.
    """
    law, edge = _law(step.mechanism)
    start = step.noise + edge
    low = law.cdf(start)
    high = law.cdf(start + 1)
    below = low + draws * (high - low)
    return norm.ppf(np.clip(below, 1e-300, 1.0 - 2.0**-53))


def noise_checks(scores: list[np.ndarray]) -> list[Check]:
    """Compare normal scores of all releases with independent standard normal ones."""
    everything = np.concatenate(scores)
    name = "variance of the noise over the declared one"
    each = [
        _variance_check(f"{name}, in the least likely release", s, len(scores))
        for s in scores
    ]
    law = float(kstest(everything, "norm").pvalue)
    return [
        _variance_check(name, everything),
        max(each, key=_distance),
        Check("p-value of the noise under the declared law", law, LEVEL, 1.0),
        _correlation_check(everything),
    ]


def _variance_check(name: str, scores: np.ndarray, n_tests: int = 1) -> Check:
    n = len(scores)
    level = LEVEL / n_tests
    low = float(chi2.ppf(level / 2, n))
    high = float(chi2.isf(level / 2, n))
    return Check(name, float((scores**2).mean()), low / n, high / n)


def _correlation_check(scores: np.ndarray) -> Check:
    """Correlation of cells of all releases with later cells, at the least likely lag.

    The scalar product with an independent unit vector is standard normal. At small lags
    the two vectors overlap, and the sum of their thousands of products is normal except
    for a share of its tail.
    """
    n = len(scores)
    length = scipy.fft.next_fast_len(2 * n, real=True)  # may be odd
    spectrum = scipy.fft.rfft(scores, length)
    products = scipy.fft.irfft(np.abs(spectrum) ** 2, length)[1:n]
    # of the cells that have one at the lag
    lengths = np.sqrt(np.cumsum(scores**2))[n - 2 :: -1]
    worst = max(products / lengths, key=abs, default=0.0)
    far = float(norm.isf(LEVEL / 2 / n))
    return Check("correlation of the noise, at any lag", float(worst), -far, far)


def repeat_check(steps: list[Step]) -> Check:
    """Stretches of noise that occur twice, in this fit or in two fits with other keys.

    Two stretches of m cells agree with probability at most p**m, where p is the
    probability of the most likely noise. The union bound over all pairs of stretches
    chooses m.
    """
    n = sum(len(step.noise) for step in steps)
    peak = max(_peak(step.mechanism) for step in steps)
    length = max(1, math.ceil(math.log(n * n / 2 / LEVEL) / -math.log(peak)))
    seen = []
    for step in steps:
        cells = step.noise.astype(np.int64).tobytes()  # 8 bytes each
        seen += [
            hash(cells[8 * i : 8 * (i + length)])
            for i in range(len(step.noise) - length + 1)
        ]
    name = f"stretches of {length} cells whose noise occurs twice"
    return Check(name, len(seen) - len(set(seen)))


def order_check(steps: list[Step]) -> Check:
    """Cells whose noise occurs anywhere in an earlier release, up to a sign.

    This finds noise that is used again in any order. Whatever the earlier releases are,
    a cell has one of n sizes of noise with probability at most 2 n p, where p is the
    probability of its most likely noise. So the number of such cells of a release has
    at most binomial tails. Noise with few different values shows nothing.
    """
    sizes = [len(step.noise) for step in steps]
    release = np.repeat(np.arange(len(steps)), sizes)
    noise = np.abs(np.concatenate([step.noise for step in steps]))
    _, first, same = np.unique(noise, return_index=True, return_inverse=True)
    is_seen = release[first][same] < release
    n_seen = np.bincount(release, is_seen, len(steps))
    n_earlier = np.cumsum([0, *sizes])
    tests = []
    for i, step in enumerate(steps):
        chance = min(1.0, 2.0 * n_earlier[i] * _peak(step.mechanism))
        most = float(binom.isf(LEVEL / len(steps), sizes[i], chance))
        name = "cells whose noise is in an earlier release, in any order"
        tests.append(Check(name, float(n_seen[i]), high=most))
    return max(tests, key=_excess)


def bare_check(steps: list[Step]) -> Check:
    """The cell that has noise 0 most often, among releases of one size."""
    sizes = {len(step.noise) for step in steps}
    tests = []
    for size in sorted(sizes):
        same = [step for step in steps if len(step.noise) == size]
        n_bare = np.sum([step.noise == 0 for step in same], axis=0)
        peak = max(_peak(step.mechanism) for step in same)
        most = binom.isf(LEVEL / len(sizes) / size, len(same), peak)
        name = "releases in which one cell has no noise"
        tests.append(Check(name, float(n_bare.max()), high=float(most)))
    return max(tests, key=_excess)


def _excess(check: Check) -> float:
    """How far a statistic is above its range."""
    return check.statistic - check.high


# samples


def sample_checks(samples: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Check]:
    """Rates of the secret samples, and how often a document is in two of them."""
    drawn = [
        (rates, np.isin(np.arange(len(rates)), rows))
        for rates, rows in samples
        if (rates < 1).any()
    ]
    if not drawn:
        return []
    all_rates = np.concatenate([rates for rates, _ in drawn])
    members = np.concatenate([member for _, member in drawn])
    name = "share of documents that a round samples"
    share = _rate_check(name, all_rates, members, LEVEL)
    if len(drawn) == 1:
        return [share]
    pairs = list(itertools.combinations(drawn, 2))
    name = "share of a round's sample that another round samples again"
    again = [  # given one sample, the other is coins at their rates
        _rate_check(name, rates[one], member[one], LEVEL / len(pairs))
        for (_, one), (rates, member) in pairs
    ]
    return [share, max(again, key=_distance)]


def _distance(check: Check) -> float:
    """How far a statistic is from the middle of its range, in half widths."""
    half = (check.high - check.low) / 2
    return abs(check.statistic - (check.low + half)) / half if half > 0 else 0.0


def _rate_check(
    name: str, rates: np.ndarray, member: np.ndarray, level: float
) -> Check:
    """Share of secret coins that show 1.

    Equal rates spread the share most: far from the mean, its tails are at most binomial
    (W. Hoeffding, "On the distribution of the number of successes in independent
    trials", 1956).
    """
    is_coin = rates < 1
    n = int(np.count_nonzero(is_coin))
    if n == 0:
        return Check(name, 0.0, 0.0, 1.0)
    law = binom(n, rates[is_coin].mean())
    low = float(law.ppf(level / 2)) / n
    high = float(law.isf(level / 2)) / n
    return Check(name, float(member[is_coin].mean()), low, high)


# contributions


def _moved_by_a_word(tape: Tape, X: sp.csr_array) -> list[float]:
    """The change by a replaced word.

    A token adds to a cell in the row of its word only.
    """
    n_tokens = np.asarray(X.sum(axis=0)).reshape(-1)
    changes = []
    for step in tape.steps:
        # a word without tokens: 0
        each = np.abs(step.value).sum(axis=1) / np.maximum(n_tokens, 0.5)
        # two cells change by this at most
        moved = np.full(2, np.ceil(each.max()), np.int64)
        changes.append(_length(replace(step, value=moved)))
    return changes


def _length(step: Step) -> float:
    """Length of the computed value, over the sensitivity."""
    return distance(step, replace(step, value=np.zeros_like(step.value)))


def _moved_by_documents(
    estimator: BaseEstimator, X: sp.csr_array, seed: int, tape: Tape
) -> tuple[list[float], list[Check]]:
    """What some documents change, each by a replay without it; what each adds alone.

    Every second document is the sample of a round, so that each of them takes part in
    some rounds and not in others.
    """

    def half(i: int, rates: np.ndarray) -> np.ndarray:
        return np.arange(i % 2, len(rates), 2)

    _, first = fit_watched(estimator, X, seed, tape, half)
    largest = np.zeros(len(first.steps))
    violations: set[str] = set()
    longest = np.argsort(-np.diff(X.indptr), kind="stable")
    for unit in {*longest[:2], *range(X.shape[0])[-4:]}:  # the last ones are loud
        kept = X.copy()
        kept.data[X.indptr[unit] : X.indptr[unit + 1]] = 0
        kept.eliminate_zeros()
        _, again = fit_watched(estimator, kept, seed, tape, half)
        distances, others = compared(first, again, np.array([unit]))
        violations |= others
        if len(distances) == len(largest):
            largest = np.maximum(largest, distances)
    # a bound that is too wide would not be seen in a release that hardly changes
    note = f"{largest.min():.3g} in the release that changes least"
    checks = neighbor_checks("a document", largest.tolist(), violations, note)
    n_samples = sum(step.sample is not None for step in tape.steps)
    if n_samples:
        alone = max(_lengths_alone(estimator, X, seed, tape, n_samples), default=0.0)
        checks.append(
            Check("what a document adds alone, over the sensitivity", alone, high=1.0)
        )
    return largest.tolist(), checks


def _lengths_alone(
    estimator: BaseEstimator, X: sp.csr_array, seed: int, tape: Tape, n: int
) -> Iterable[float]:
    """Length of each unit's contribution, over the sensitivity; all documents are loud.

    A unit is the whole sample of a round: a replay of n rounds shows n units. The bound
    holds after any releases: what is not sampled is released as if there were many
    documents, so that most rounds are for topics.
    """
    many = [
        replace(step, noisy=step.noisy + 1000 * int(step.mechanism.sensitivity))
        for step in tape.steps
        if step.sample is None
    ]
    units = np.flatnonzero(np.diff(X.indptr))
    n_shown = min(len(units), n * n)  # in at most as many fits as there are rounds
    units = units[np.linspace(0, len(units) - 1, n_shown).astype(int)]
    loud = X[len(X.indptr) - 2 - np.arange(X.shape[0]) % N_LOUD]
    for start in range(0, n_shown, n):
        shown = _one_by_one(np.resize(units[start : start + n], n))
        _, alone = fit_watched(estimator, loud, seed, Tape(steps=many), shown)
        for step in alone.steps:
            if step.sample is not None:
                yield _length(step)


def _one_by_one(units: np.ndarray) -> Members:
    """Samples of one unit each."""

    def members(i: int, rates: np.ndarray) -> np.ndarray:
        return units[i : i + 1]

    return members


# the guarantee


def _event_check(model: BaseEstimator, tape: Tape) -> Check:
    """Releases that cost another event than stated, or have less noise than stated."""
    stated = list(model.privacy_.events)
    missing = 0
    for step in tape.steps:
        event = step.mechanism.event
        event = event.event if isinstance(event, Repeated) else event
        noise = getattr(event, "noise_multiplier", getattr(event, "scale", math.inf))
        there = step.mechanism.scale / step.mechanism.sensitivity
        is_enough = noise <= there or math.isclose(noise, there)  # but for rounding
        if step.event in stated and is_enough:
            stated.remove(step.event)
        else:
            missing += 1
    return Check("releases that the events of the guarantee do not cover", missing)
