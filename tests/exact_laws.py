"""Exact laws of releases on toy corpora, and rigorous bounds on epsilon from them.

The noise is decoded from the tables that the kernel reads. Small laws are dictionaries
of fractions (`largest_epsilon`). Gaussian noise has seventeen million values. Its laws
are floats of a known relative error, and its privacy losses are rounded to a grid in a
known direction (`Pair`). Nothing here calls the accountant. docs/audits.md has the
proofs.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, reduce
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from reference_noise import unpack, weights_of
from sklearn.base import clone
from test_hdplda_enumerated import sweep_law

import dplda.local._randomized_response as randomize_module
import dplda.privacy._mechanisms as mechanisms_module
from dplda.audit._replay import fit_watched
from dplda.core._corpus import Corpus
from dplda.federated._tokens import privatize
from dplda.gibbs._frozen_table import HalfTable
from dplda.privacy._curator import membership_threshold
from dplda.privacy._mechanisms import RandomizedBits
from dplda.privacy._streams import Purpose

TOTAL = 2**149  # of the weights of a table
# Relative error of any float below: sums of at most 2e7 positive terms, a hundred of
# them in turn.
RELATIVE = 1e-6
SMALLEST = 1e-24  # mass that a grid drops at either end; it counts as an infinite loss


# ---- laws on few outcomes, in fractions ----------------------------------------------


def largest_epsilon(p, q, delta=0):
    """Smallest epsilon of two laws {outcome: Fraction} at a delta, both directions.

    It is exact up to the last step, a logarithm of 40 digits.
    """
    return max(_epsilon(p, q, delta), _epsilon(q, p, delta))


def _epsilon(p, q, delta):
    """Solve sum of max(p - e q, 0) = delta for e >= 1.

    Between two ratios it is linear in e.
    """
    delta, p_above, q_above = Fraction(delta), Fraction(0), Fraction(0)
    atoms = {}
    for outcome, chance in p.items():
        other = q.get(outcome, Fraction(0))
        if chance:
            atom = atoms.setdefault(chance / other if other else None, [0, 0])
            atom[0] += chance
            atom[1] += other
    p_above += atoms.pop(None, [0, 0])[0]  # outcomes that q does not have
    if p_above > delta:
        return float("inf")
    for ratio in sorted(atoms, reverse=True):
        if p_above - ratio * q_above > delta:
            break  # delta is reached above this ratio
        if delta == 0 and ratio > 1:
            return _log(ratio)
        p_above, q_above = p_above + atoms[ratio][0], q_above + atoms[ratio][1]
    if q_above == 0:
        return 0.0
    return max(0.0, _log(max((p_above - delta) / q_above, Fraction(1))))


def _log(ratio):
    with localcontext(prec=40):
        return float((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln())


def mixture(weighted):
    """The law of a mixture, from pairs (probability, law)."""
    law = {}
    for probability, part in weighted:
        for outcome, chance in part.items():
            law[outcome] = law.get(outcome, 0) + probability * chance
    return law


def product(*laws):
    """The joint law of independent outcomes, as tuples."""
    joint = {(): Fraction(1)}
    for law in laws:
        joint = {(*a, b): p * q for a, p in joint.items() for b, q in law.items()}
    return joint


# ---- privacy losses on a grid, rounded in one direction ------------------------------


@dataclass(frozen=True)
class Pair:
    """A bound on the pair of laws (P, Q) of a release, by its privacy loss log(P / Q).

    Entry i stands for outcomes of loss (first + i) * interval, with masses p[i] under P
    and q[i] under Q. If `upper`, the release is a post-processing of this pair.
    Otherwise the losses are rounded down. Mass of at most `outside`, under either law,
    is left out.
    """

    interval: float
    upper: bool
    first: int
    p: np.ndarray
    q: np.ndarray
    outside: float

    @classmethod
    def from_losses(cls, loss, p, q, interval, upper, outside):
        """Put outcomes of any losses onto the grid.

        Upper: an outcome is split in two, of the losses below and above its own, so
        that both masses are kept. To merge the two gives the outcome back.
        """
        below = np.floor(loss / interval).astype(np.int64)
        first, size = int(below.min()), int(np.ptp(below)) + 2
        if not upper:
            masses = (np.bincount(below - first, mass, size) for mass in (p, q))
            return cls(interval, upper, first, *masses, outside)._trimmed()
        rest = np.clip(loss - below * interval, 0.0, interval)
        to_above = np.expm1(-rest) / np.expm1(-interval)
        to_below = np.exp(-rest) * np.expm1(rest - interval) / np.expm1(-interval)
        p = np.bincount(below - first, p * to_below, size) + np.bincount(
            below - first + 1, p * to_above, size
        )
        return cls(
            interval,
            upper,
            first,
            p,
            p * np.exp(-cls._grid(first, size, interval)),
            outside,
        )._trimmed()

    @staticmethod
    def _grid(first, size, interval):
        return (first + np.arange(size)) * interval

    @property
    def losses(self):
        return self._grid(self.first, len(self.p), self.interval)

    def _trimmed(self):
        """Leave out the ends that hold next to nothing."""
        low, high = (
            min(
                np.searchsorted(np.cumsum(mass[::step]), SMALLEST)
                for mass in (self.p, self.q)
            )
            for step in (1, -1)
        )
        kept = slice(low, len(self.p) - high)
        return Pair(
            self.interval,
            self.upper,
            self.first + int(low),
            self.p[kept],
            self.q[kept],
            self.outside + 2 * SMALLEST,
        )

    def compose(self, other):
        """Both releases, independent: losses add. Direct sums, no Fourier transform."""
        p, q = np.convolve(self.p, other.p), np.convolve(self.q, other.q)
        outside = self.outside + other.outside
        return Pair(
            self.interval, self.upper, self.first + other.first, p, q, outside
        )._trimmed()

    def sampled(self, rate, added):
        """The release on a sample that has the document with probability `rate`.

        `added` tells whether P is the law with the document; it is Q otherwise.
        """
        if rate == 1:
            return self
        rate, loss = float(rate), self.losses
        if added:
            p, q = (1 - rate) * self.q + rate * self.p, self.q
            loss = np.log1p(rate * np.expm1(loss))
        else:
            p, q = self.p, (1 - rate) * self.p + rate * self.q
            loss = -np.log1p(rate * np.expm1(-loss))
        return Pair.from_losses(loss, p, q, self.interval, self.upper, self.outside)

    def delta(self, epsilon):
        """Bound on the hockey-stick divergence at an epsilon."""
        above = self.losses > epsilon
        total = float(self.p[above] @ -np.expm1(epsilon - self.losses[above]))
        if self.upper:
            return total * (1 + RELATIVE) + self.outside
        return total * (1 - RELATIVE)

    def epsilon(self, delta):
        """Bound on the smallest epsilon at a delta, by halving."""
        low, high = 0.0, max(float(self.losses[-1]), self.interval)
        if self.upper and self.outside >= delta:
            return float("inf")
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high if self.upper else low


# ---- the decoded Gaussian noise ------------------------------------------------------

REACH = 12  # standard deviations of the noise that are looked at


@dataclass(frozen=True, eq=False)
class GaussianNoise:
    """The law of x_0 + 64 x_1 + 4096 x_2 for three independent look-ups in one table.

    `law` holds the probabilities of -reach, ..., reach, each with a relative error
    below 1e-13. `variance` is the exact variance, as a fraction, and `deviation` bounds
    the distance of the logarithm of every probability from that of the Gaussian bell of
    this variance.
    """

    law: np.ndarray
    reach: int
    outside: float
    variance: Fraction
    deviation: float

    def cell(self, shift, interval, upper):
        """The pair of a cell that the document moves by `shift`: P is the law with it.

        The loss at y is s (y - s / 2) / variance, within 2 * `deviation`. The edges of
        the grid become integers y, and the masses between them are sums of exact
        probabilities.
        """
        law = self.law if shift > 0 else self.law[::-1]
        assert abs(shift) < self.reach, "so little noise is not looked at"
        s, variance = abs(shift), float(self.variance)
        values = np.array([s - self.reach, self.reach])  # that both laws reach
        first, last = np.floor(s * (values - s / 2) / variance / interval).astype(int)
        edges = np.ceil(np.arange(first, last + 1) * (interval * variance / s) + s / 2)
        start = np.maximum(edges.astype(np.int64) - values[0], 0)
        assert (np.diff(start) > 0).all(), "the grid is finer than the integers"
        p = np.add.reduceat(law[: len(law) - s], start)  # noise y - s
        q = np.add.reduceat(law[s:], start)  # noise y
        cut = float(law[len(law) - s :].sum() + law[:s].sum()) + self.outside
        grid = np.arange(first, last + 1) * interval
        loss = (
            np.clip(np.log(p / q), grid, grid + interval)
            if upper
            else grid + interval / 2
        )
        return Pair.from_losses(loss, p, q, interval, upper, cut)


def gaussian_noise():
    """The law of the noise that `DiscreteGaussian` draws, from its packed tables."""
    return _gaussian_noise(mechanisms_module.gaussian_tables())


@lru_cache(maxsize=2)
def _gaussian_noise(tables):
    weights, digit = _digit(tables)
    values = range(-2048, 2048)
    mean = Fraction(sum(w * x for w, x in zip(weights, values)), TOTAL)
    square = Fraction(sum(w * x * x for w, x in zip(weights, values)), TOTAL)
    variance = (square - mean**2) * (1 + 64**2 + 64**4)
    law = _add_digit(_add_digit(digit, digit, 64), digit, 4096)
    center = 2048 * (1 + 64 + 4096)
    reach = int(REACH * float(variance) ** 0.5)
    outside = float(law[: center - reach].sum() + law[center + reach + 1 :].sum())
    law = law[center - reach : center + reach + 1].copy()
    bell = np.arange(-reach, reach + 1, dtype=float)
    bell *= bell
    bell /= -2 * float(variance)
    bell -= np.log(law)
    bell += np.log(law[reach])
    # of rounding errors in the logarithms
    deviation = max(bell.max(), -bell.min()) + 1e-12
    return GaussianNoise(law, reach, outside * (1 + RELATIVE), variance, deviation)


def _digit(tables):
    """The law of a look-up, minus 2048, from the packed table.

    Exact weights, then floats.
    """
    (table,) = unpack(tables)
    weights = weights_of(*table)
    assert sum(weights) == TOTAL
    return weights, np.array([w / TOTAL for w in weights])


def _add_digit(law, digit, base):
    """The law of x + base * y, as a product of matrices of non-negative entries."""
    pieces = np.pad(law, (0, -len(law) % base)).reshape(-1, base)
    n, m = len(pieces), len(digit)
    shifted = np.zeros((n + m - 1, n))
    for i in range(n):
        shifted[i : i + m, i] = digit
    total = (shifted @ pieces).ravel()
    return total[: len(law) + base * (m - 1)]


# ---- what the code adds up: the same history in two worlds ---------------------------


@dataclass(frozen=True)
class Step:
    """One release: by how much the integers of two neighbors differ, under one history.

    `rate` is the exact probability with which the document takes part. `mechanism` may
    be None for a release that promises no radius.
    """

    label: str
    shift: tuple
    mechanism: object
    rate: Fraction

    def __post_init__(self):
        if self.mechanism is None:
            return
        squares = sum(s * s for s in self.shift)
        assert squares <= self.mechanism.sensitivity**2, (
            "a contribution exceeds the radius"
        )


def watched(estimator, X, *, methods=("fit",), first=None):
    """Call methods with `X`, and with all documents in each sample: model and tape.

    With a `first` tape, its releases are let out in the place of those of this fit.
    """

    def run(X):
        model = clone(estimator)
        for method in methods:
            getattr(model, method)(X)
        return model

    return fit_watched(run, X, None, first, lambda i, rates: np.arange(len(rates)))


def exact_rate(step, row):
    """The exact probability with which a document takes part in a release."""
    if step.sample is None or step.sample[0][row] == 1:
        return Fraction(1)
    return Fraction(int(membership_threshold(step.sample[0])[row]), 2**64)


def without(X, row):
    """The corpus with one document emptied."""
    emptied = np.array(X, float)
    emptied[row] = 0
    return emptied


def two_worlds(estimator, X, Y, row, *, methods=("fit",)):
    """The model of `X`, and its steps next to a neighbor's that differs in one row."""
    X, Y = np.asarray(X, float), np.asarray(Y, float)
    model, tape = watched(estimator, X, methods=methods)
    _, other = watched(estimator, Y, methods=methods, first=tape)
    steps = [
        Step(
            one.label,
            tuple((one.value - two.value).ravel().tolist()),
            one.mechanism,
            exact_rate(one, row),
        )
        for one, two in zip(tape.steps, other.steps)
    ]
    return model, steps


def pair_of(steps, interval, *, upper, added):
    """The pair of all steps; P is the law with the document if `added`, else Q."""
    noise, total = gaussian_noise(), None
    for step in steps:
        cells = [
            noise.cell(s if added else -s, interval, upper) for s in step.shift if s
        ]
        if cells:
            pair = reduce(Pair.compose, cells).sampled(step.rate, added)
            total = pair if total is None else total.compose(pair)
    return total


def epsilon_interval(steps, delta, interval):
    """Lower and upper bound on the steps' exact epsilon, the worse direction."""
    margin = (
        4 * gaussian_noise().deviation * sum(len(step.shift) for step in steps) + 1e-10
    )
    assert margin < interval, "the decoded noise is not Gaussian"
    lower, upper = (
        max(
            pair_of(steps, interval, upper=side, added=a).epsilon(delta)
            for a in (True, False)
        )
        for side in (False, True)
    )
    return lower - margin, upper + margin


# ---- word-topic counts and topics, sweep by sweep ------------------------------------


def laplace_chances(scale, n):
    """Chances out of 2**298 of the values 0, ..., n - 1 of G, from its two digits."""
    low, high = _laplace_digits(mechanisms_module.geometric_tables(scale))
    return [low[m % 4096] * high[m // 4096] for m in range(n)]


@lru_cache(maxsize=8)
def _laplace_digits(tables):
    return tuple(weights_of(*table) for table in unpack(tables))


def laplace_law(scale):
    """The law of `FlooredLaplace`, {value: Fraction}: G or -1 - G by a fair bit."""
    law = {}
    # a digit beyond has weight 0 in the table
    size = math.ceil(105 * scale / 4096) * 4096
    assert not any(laplace_chances(scale, size + 4096)[size:])
    for m, chance in enumerate(laplace_chances(scale, size)):
        if chance:
            law[m] = law[-1 - m] = Fraction(chance, 2 * TOTAL**2)
    return law


@dataclass(frozen=True)
class NoisyCell:
    """A noisy count of 0, ..., `largest`, in few atoms.

    Below 0, 0, ..., largest - 1, and above.

    `chance[c][i]` is the exact probability of atom i around the count c. Within an
    atom, the ratio of two counts' laws is constant up to `spread` in total variation.
    """

    largest: int
    chance: tuple
    spread: Fraction

    @classmethod
    def from_scale(cls, scale, largest):
        law = laplace_law(scale)
        ends = range(-1, largest + 1)

        def atoms(count):
            parts = {end: {} for end in ends}
            for value, chance in law.items():
                parts[min(max(value + count, -1), largest)][value + count] = chance
            return [parts[end] for end in ends]

        laws = [atoms(count) for count in range(largest + 1)]
        spread = Fraction(0)
        for one, other in itertools.permutations(laws, 2):
            distance = Fraction(0)
            for p, q in zip(one, other):
                ratio = sum(p.values()) / sum(q.values())
                distance += sum(
                    abs(p.get(v, 0) - ratio * q.get(v, 0)) for v in {*p, *q}
                )
            spread = max(spread, distance)
        return cls(
            largest, tuple(tuple(sum(a.values()) for a in law) for law in laws), spread
        )


def sweeps_law(words, labels, cell, mechanisms, *, topic_word_prior, doc_topic_prior):
    """The exact law of all a fit of one document of few tokens, V = 2 and K = 2, shows.

    `labels` names the releases in order. The first topics are uniform, and are shown as
    well. The secret order of the tokens is averaged over.
    """
    orders = list(itertools.permutations(words))
    first = list(itertools.product((0, 1), repeat=len(words)))
    cells = list(itertools.product(range(cell.largest + 2), repeat=4))
    values = np.arange(-1, cell.largest + 1)
    assert mechanisms.count_clip <= cell.largest, "the clip must not divide an atom"
    tables = {}
    for atoms in cells if "topics" in labels else ():
        tables[atoms] = HalfTable.from_counts(
            values[list(atoms)].reshape(2, 2),
            mechanisms.count_clip,
            topic_word_prior,
            mean=mechanisms.mechanism.mean,
        )
    draws = {}

    def drawn(order, topics, atoms):
        key = order, topics, tables[atoms].half.tobytes()
        if key not in draws:
            draws[key] = sweep_law(order, topics, tables[atoms], doc_topic_prior)
        return draws[key]

    def rest(order, topics, labels, atoms):
        """The law of what follows, as tuples."""
        if not labels:
            return {(): Fraction(1)}
        law = {}
        if labels[0] == "topics":
            for new, chance in drawn(order, topics, atoms).items():
                for end, after in rest(order, new, labels[1:], atoms).items():
                    law[new, *end] = chance * after
            return law
        count = [
            sum((w, z) == (v, k) for w, z in zip(order, topics))
            for v in (0, 1)
            for k in (0, 1)
        ]
        follows = {}
        # At the end, the cells of a topic without tokens are noise in any corpus: left
        # out.
        shown = (
            [1, 1, 1, 1]
            if labels[1:]
            else [z in topics for _ in (0, 1) for z in (0, 1)]
        )
        for noisy in (
            cells
            if labels[1:]
            else itertools.product(
                *(range(cell.largest + 2) if s else [None] for s in shown)
            )
        ):
            chance = math.prod(
                cell.chance[c][i] for c, i in zip(count, noisy) if i is not None
            )
            key = tables[noisy].values.tobytes() if labels[1:] else None
            if key not in follows:
                follows[key] = rest(order, topics, labels[1:], noisy)
            for end, after in follows[key].items():
                law[noisy, *end] = chance * after
        return law

    share = Fraction(1, len(orders) * len(first))
    return mixture(
        (
            share,
            {(topics, *end): p for end, p in rest(order, topics, labels, None).items()},
        )
        for topics in first
        for order in orders
    )


# ---- randomized bits -----------------------------------------------------------------


class GivenWords:
    """Stands for the streams: given keys of the rows."""

    n_words = 0

    def __init__(self, keys):
        self.keys = keys

    def reader(self, purpose, round, block):
        if purpose == Purpose.KEPT_WORDS:
            keys = np.array(self.keys[block], np.uint64)
            return SimpleNamespace(words=lambda n: keys if n == len(keys) else None)
        assert block == 0, "the laws are those of the first block"


@contextlib.contextmanager
def flips_at(flipped):
    """`RandomizedBits` flips the given bits of the run."""
    positions = np.flatnonzero(flipped)
    with patch.object(RandomizedBits, "_flipped", lambda self, n, reader: positions):
        yield


def flip_law(bits, n_bits):
    """Exact law of the flips of the first `n_bits` bits, by the gaps between them."""
    gap = [Fraction(c, TOTAL**2) for c in laplace_chances(bits.scale, n_bits)]
    law = {}
    for flips in itertools.product((0, 1), repeat=n_bits):
        chance, run = Fraction(1), 0
        for flip in flips:
            if flip:
                chance *= gap[run]
            run = 0 if flip else run + 1
        law[flips] = chance * (1 - sum(gap[:run]))
    return law


def report_laws(bits, max_ones, n_words):
    """Exact law of the report of every document, {words: {report: Fraction}}.

    Runs `randomize` once, on a row for each document, order of the keys that choose the
    words, and flips.
    """
    flips = flip_law(bits, n_words)
    rows, keys, weights = [], [], []
    for document in itertools.product((0, 1), repeat=n_words):
        n = sum(document)
        orders = list(itertools.permutations(range(n))) if n > max_ones else [range(n)]
        for order, flip in itertools.product(orders, flips):
            rows.append((document, flip))
            keys.append(order)
            weights.append(flips[flip] / len(orders))
    documents, flipped = (np.array(part) for part in zip(*rows))
    with flips_at(flipped.ravel()):
        words = GivenWords(keys)
        reports = randomize_module.randomize(
            sp.csr_array(documents * 1.0), bits, max_ones, words
        )
    laws = {}
    for (document, _), report, weight in zip(
        rows, reports.toarray().astype(int), weights
    ):
        law = laws.setdefault(document, {})
        law[tuple(report.tolist())] = law.get(tuple(report.tolist()), 0) + weight
    return laws


# ---- noisy tokens --------------------------------------------------------------------


def vectors_law(bits, words, n_words):
    """Exact law of the noisy vectors of tokens in an order, by running `privatize`."""
    corpus = Corpus(np.array(words, np.int32), np.array([0, len(words)]), n_words)
    law = {}
    for flips, chance in flip_law(bits, len(words) * n_words).items():
        with flips_at(flips):
            tokens = privatize(corpus, bits, GivenWords([]))
        outcome = (*tokens.ptr.tolist(), *tokens.word.tolist())
        law[outcome] = law.get(outcome, 0) + chance
    return law


def shuffled_vectors_law(bits, words, n_words):
    """The same for a row of counts, whose tokens come in a secret random order."""
    orders = list(itertools.permutations(words))
    return mixture(
        (Fraction(1, len(orders)), vectors_law(bits, o, n_words)) for o in orders
    )


def blank_law(bits, n_words):
    """Exact law of the noisy vector of a blank token, in the form of `vectors_law`."""
    law = {}
    for flips, chance in flip_law(bits, n_words).items():
        with flips_at(flips):
            ones = bits(np.zeros(0, np.int64), n_words, None).tolist()
        law[(0, len(ones), *ones)] = chance
    return law
