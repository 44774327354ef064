"""Stated epsilons against the exact laws of the releases, for toy corpora.

Each private estimator fits a corpus of a few documents. `exact_laws` computes the law
of what it releases, for this corpus and for a neighbor, from the tables and the
contributions of the code. The true epsilon is then never above the stated one. For the
pair of corpora that moves the release by the whole radius, it is within one percent of
it.
"""

import itertools
import math
import warnings
from dataclasses import dataclass, replace
from unittest.mock import patch

import exact_laws as exact
import numpy as np
import pytest
from estimators import CASES
from sklearn.base import clone
from test_hdplda_enumerated import sweep_law

import dplda.local._randomized_response as randomize_module
import dplda.privacy._mechanisms as mechanisms_module
from dplda import HDPLDA, LPLDA, OLPLDA, PrivateSVILDA, RandomizedResponse, SubLDA
from dplda.audit import observe_releases
from dplda.federated import IFTMParty
from dplda.gibbs._frozen_table import HalfTable
from dplda.privacy import Repeated, SeededNoiseWarning, epsilon_of
from dplda.privacy._mechanisms import RandomizedBits
from dplda.privacy.mechanisms import DiscreteGaussian
from dplda.published import PublishedPrivateSVILDA

# intervals of the grid in the stated epsilon, and what rounding to it adds to an upper
# bound
N_INTERVALS, ROUNDING = 1000, 3e-5
SHARP = 0.99


@dataclass(frozen=True)
class Row:
    """What an estimator states of a release, and bounds on what is true of its law."""

    what: str
    stated: float
    lower: float
    upper: float
    tight: bool = True  # this pair of corpora moves the release as far as any pair does
    slack: float = 1e-12  # relative rounding error of the upper bound

    @classmethod
    def of_laws(cls, what, stated, pairs, delta=0, *, spread=0, tight=True):
        """The worst of several pairs of laws, which are the code's up to `spread`."""
        pairs = list(pairs)
        lower = max(exact.largest_epsilon(*pair, delta) for pair in pairs)
        upper = lower
        if spread:
            upper = max(
                exact.largest_epsilon(*p, exact.Fraction(delta) - spread) for p in pairs
            )
        return cls(what, stated, lower, upper, tight)

    def check(self):
        limit = self.stated * (1 + self.slack)
        assert self.upper <= limit, f"the truth is above the statement: {self}"
        if self.tight:
            assert self.lower >= SHARP * self.stated, (
                f"the statement is not sharp: {self}"
            )


# the first document has one word, and reaches every bound
TOY = [[40.0, 0.0], [0.0, 12.0]]
PUBLIC = [[90.0, 10.0], [50.0, 50.0]]  # a table in which that word's topics differ
SEED = 1
HISTORIES = 5  # in one of them, each round reaches its bound


def on_grid(what, stated, steps, delta, *, tight=True):
    bounds = exact.epsilon_interval(steps, delta, stated / N_INTERVALS)
    return Row(what, stated, *map(float, bounds), tight, ROUNDING)


def document_level(
    estimator, X=TOY, *, n_rounds=1, methods=("fit",), tight=True, delta=None
):
    """SubLDA, PrivateSVILDA: every sum's shift, up to a history at the bound."""
    estimator = clone(estimator).set_params(
        n_components=2, max_iter=n_rounds, prior_components=PUBLIC
    )
    what = f"a document emptied, {n_rounds} round" + "s" * (n_rounds > 1)
    rows = []
    for seed in range(SEED, SEED + HISTORIES):
        estimator.set_params(random_state=seed)
        model, steps = exact.two_worlds(
            estimator, X, exact.without(X, 0), 0, methods=methods
        )
        at = model.delta_ if delta is None else delta
        rows.append(
            on_grid(what, model.privacy_.epsilon_at(at), steps, at, tight=False)
        )
        if not tight or rows[-1].lower >= SHARP * rows[-1].stated:
            break
    return [*rows[:-1], replace(rows[-1], tight=tight)]


def word_level(estimator, *, n_tokens=1, n_sweeps=1, methods=("partial_fit", "fit")):
    """HDPLDA: noisy counts and topics of a document in which one word is replaced."""
    estimator = clone(estimator).set_params(
        n_components=2, max_iter=n_sweeps, random_state=SEED
    )
    X, rows = [[n_tokens, 0]], []
    for method in methods:
        with observe_releases() as seen, warnings.catch_warnings():
            warnings.simplefilter("ignore", SeededNoiseWarning)
            model = getattr(clone(estimator), method)(X)
        labels = [release.label for release in seen]
        mechanisms = model._mechanisms()
        cell = exact.NoisyCell.from_scale(mechanisms.mechanism.scale, n_tokens)
        pair = [
            exact.sweeps_law(
                words,
                labels,
                cell,
                mechanisms,
                topic_word_prior=model.topic_word_prior,
                doc_topic_prior=model.doc_topic_prior,
            )
            for words in ((0,) * n_tokens, (0,) * (n_tokens - 1) + (1,))
        ]
        n_counts, n_topics = (
            len(labels) - labels.count("topics"),
            labels.count("topics"),
        )
        rows.append(
            Row.of_laws(
                f"a word of {n_tokens} replaced, {n_counts} x counts, {n_topics} x "
                "topics",
                model.epsilon_,
                [pair],
                model.delta_,
                spread=4 * n_counts * cell.spread,
                tight=n_topics == 0,
            )
        )
    return rows


def topic_draw(estimator):
    """HDPLDA: the draws of a sweep from the table in which two words differ most.

    The other token of the document has topic 0, and next to nothing favors topic 1.
    """
    model = clone(estimator).set_params(
        n_components=2, max_iter=1, doc_topic_prior=1e-6
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededNoiseWarning)
        model.fit([[2, 0]])
    clip = model.count_clip_
    table = HalfTable.from_counts(
        np.array([[clip, 0.0], [0.0, clip]]), clip, model.topic_word_prior
    )
    pair = [sweep_law(words, (0, 0), table, 1e-6) for words in ((0, 0), (1, 0))]
    return [Row.of_laws("one draw of a topic, pure", model.sampling_epsilon_, [pair])]


def local(estimator, *, n_words=4, max_doc_words=2):
    """RandomizedResponse, LPLDA, OLPLDA: reports that ran, of all document pairs."""
    estimator = clone(estimator).set_params(max_doc_words=max_doc_words)
    ran = []
    randomize = randomize_module.randomize

    def note(X, bits, max_ones, streams):
        ran.append((bits, max_ones))
        return randomize(X, bits, max_ones, streams)

    with patch.object(randomize_module, "randomize", note):
        model = estimator.fit(np.eye(3, n_words))
        if isinstance(model, RandomizedResponse):
            model.transform(np.eye(3, n_words))
    (bits, max_ones) = ran[0]
    laws = exact.report_laws(bits, max_ones, n_words)
    pairs = list(itertools.combinations(laws, 2))
    word = [pair for pair in pairs if sum(a != b for a, b in zip(*pair)) == 1]

    def row(what, stated, documents, delta=0):
        return Row.of_laws(
            what, stated, [(laws[a], laws[b]) for a, b in documents], delta
        )

    delta = model.delta_
    return [
        row(f"a document replaced, delta {delta:g}", model.epsilon_, pairs, delta),
        row("a document replaced, pure", model.document_epsilon_, pairs),
        row("a word more or less, pure", model.word_epsilon_, word),
    ]


def token_level(estimator):
    """IFTMParty: the noisy vectors of the tokens of a document."""
    party = clone(estimator).set_params(n_components=2, max_iter=1, max_doc_tokens=2)
    party.fit(np.array([[2.0, 0.0]]))
    noise, delta = RandomizedBits.for_epsilon(party.token_epsilon), party.delta_
    one, other, blank = (
        *(exact.vectors_law(noise, [w], 2) for w in (0, 1)),
        exact.blank_law(noise, 2),
    )
    before, after = (exact.vectors_law(noise, words, 2) for words in ([0, 0], [1, 1]))
    shuffled = [
        exact.shuffled_vectors_law(noise, words, 2) for words in ([0, 0], [0, 1])
    ]
    replaced, both = (
        epsilon_of(
            [Repeated(event, n) for event in party.privacy_.events],
            delta,
            total_variation=party.privacy_.total_variation,
        )
        for n in (2, 4)
    )
    blanked = [exact.product(*[law] * 2) for law in (one, blank)]
    return [
        Row.of_laws(
            f"a token blanked, delta {delta:g}", party.epsilon_, [(one, blank)], delta
        ),
        Row.of_laws("a token blanked, pure", party.token_epsilon_, [(one, blank)]),
        Row.of_laws(
            f"a token replaced, delta {delta:g}", replaced, [(one, other)], delta
        ),
        Row.of_laws(
            "one of two tokens replaced", replaced, [shuffled], delta, tight=False
        ),
        Row.of_laws(
            "a document of two tokens replaced", both, [(before, after)], delta
        ),
        Row.of_laws(
            "a document of two tokens blanked", party.document_epsilon_, [blanked]
        ),
    ]


def replaced_document(estimator):
    """PublishedPrivateSVILDA with one topic: the integers that get its noise."""
    estimator = clone(estimator).set_params(
        n_components=1, max_iter=1, batch_size=2, max_doc_tokens=40
    )
    seen, draw = [], DiscreteGaussian.__call__

    def note(self, value, reader):
        seen.append(value.copy())
        return draw(self, value, reader)

    with warnings.catch_warnings(), patch.object(DiscreteGaussian, "__call__", note):
        warnings.simplefilter("ignore")
        for X in ([[40, 0], [0, 12]], [[0, 40], [0, 12]]):
            model = clone(estimator).fit(np.array(X, float))
    shift = tuple((seen[0] - seen[1]).ravel().tolist())
    step = exact.Step("expected statistics", shift, None, exact.Fraction(1))
    return [
        on_grid("a document replaced, 1 round", model.epsilon_, [step], model.delta_)
    ]


CHECKS = {
    HDPLDA: word_level,
    LPLDA: local,
    OLPLDA: local,
    RandomizedResponse: local,
    IFTMParty: token_level,
    # of the literal forms, only this one states a bound
    PublishedPrivateSVILDA: replaced_document,
}


def check_of(case):
    sampled = "subsampling_ratio" in case.estimator.get_params()
    return CHECKS.get(
        type(case.estimator), document_level if case.unit and sampled else None
    )


SLOW = ("IFTMParty-max_doc_tokens", "LPLDA-reconstruction")
slow = pytest.mark.slow
both = pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])


def cases(chosen):
    marks = {name: slow for name in SLOW}
    return pytest.mark.parametrize(
        "case",
        [pytest.param(c, id=c.name, marks=marks.get(c.name, ())) for c in chosen],
    )


@cases([c for c in CASES if check_of(c)])
def test_the_stated_epsilon_is_that_of_the_exact_law(case):
    for row in check_of(case)(case.estimator):
        row.check()


@cases([c for c in CASES if not c.unit and type(c.estimator) not in CHECKS])
def test_who_has_no_guarantee_states_none(case):
    model = clone(case.estimator).set_params(n_components=2, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(np.array(TOY))
    assert getattr(model, "epsilon_", math.inf) == math.inf


@pytest.mark.parametrize("kind", [SubLDA, pytest.param(PrivateSVILDA, marks=slow)])
def test_two_rounds(kind):
    for row in document_level(kind(noise_multiplier=3.0), n_rounds=2):
        row.check()


@slow
@pytest.mark.parametrize(
    ("rate", "options"),
    [
        (1.0, {"n_rounds": 2, "methods": ["partial_fit"] * 2}),
        (0.3, {"delta": 1e-10}),
        (1.0, {"delta": 0.05}),
        (0.1, {"n_rounds": 2}),
        (0.9, {"n_rounds": 2}),
    ],
)
@both
def test_other_rates_deltas_and_calls(kind, rate, options):
    estimator = kind(noise_multiplier=1.0, subsampling_ratio=rate, delta=1e-3)
    for row in document_level(estimator, **options):
        row.check()


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
@pytest.mark.parametrize(
    "X",
    [
        [[3, 2], [5, 1], [0, 0]],
        pytest.param([[1, 0], [9, 9]], marks=slow),
        pytest.param([[50, 60]], marks=slow),
    ],
)
@pytest.mark.parametrize("kind", [SubLDA, pytest.param(PrivateSVILDA, marks=slow)])
def test_no_other_pair_of_corpora_is_worse(kind, X):
    estimator = kind(noise_multiplier=2.0, subsampling_ratio=0.5)
    for row in document_level(estimator, X, tight=False):
        row.check()


@slow
@pytest.mark.parametrize(("n_tokens", "n_sweeps"), [(2, 1), (1, 2)])
def test_more_tokens_and_sweeps(n_tokens, n_sweeps):
    estimator = HDPLDA(2, noise_epsilon=2.0, count_clip=1.0, topic_word_prior=0.5)
    for row in word_level(
        estimator, n_tokens=n_tokens, n_sweeps=n_sweeps, methods=("fit",)
    ):
        row.check()


def test_the_draw_of_a_topic_alone():
    for clip in (0.25, 1.0, 50.0):
        for row in topic_draw(
            HDPLDA(noise_epsilon=1.0, count_clip=clip, topic_word_prior=0.5)
        ):
            row.check()


@pytest.mark.parametrize(
    ("n_words", "cap"), [(3, None), (3, 1), pytest.param(4, 3, marks=slow)]
)
def test_reports_with_other_caps(n_words, cap):
    for row in local(
        RandomizedResponse(bit_epsilon=0.7), n_words=n_words, max_doc_words=cap
    ):
        row.check()


def test_the_noise_is_gaussian_at_every_value():
    """So every shift of one length has the same loss, in any direction and history."""
    noise = exact.gaussian_noise()
    assert noise.deviation < 1e-11
    assert noise.outside < 1e-30
    assert abs(noise.variance / mechanisms_module.NOISE_VARIANCE - 1) < 1e-36


@pytest.mark.parametrize("seed", range(5))
@both
def test_a_document_of_one_word_moves_every_sum_by_its_radius(kind, seed):
    estimator = kind(
        2, noise_multiplier=1.0, max_iter=1, prior_components=PUBLIC, random_state=seed
    )
    _, steps = exact.two_worlds(estimator, TOY, exact.without(TOY, 0), 0)
    for step in steps:
        length = math.sqrt(sum(s * s for s in step.shift))
        assert 1 - 1e-3 < length / step.mechanism.radius <= 1  # in 16 bits


@both
def test_a_removed_document_counts_like_an_emptied_one(kind):
    estimator = kind(
        2,
        noise_multiplier=1.0,
        subsampling_ratio=0.5,
        max_iter=2,
        random_state=SEED,
        prior_components=PUBLIC,
    )
    X = np.array([[5.0, 1.0], [40.0, 0.0], [2.0, 12.0]])
    _, tape = exact.watched(estimator, X)
    emptied, removed = (
        exact.watched(estimator, Y, first=tape)[1].steps
        for Y in (exact.without(X, 1), np.delete(X, 1, axis=0))
    )
    for one, other in zip(emptied, removed, strict=True):
        np.testing.assert_array_equal(one.value, other.value)


@pytest.mark.parametrize("rate", [exact.Fraction(1), exact.Fraction(1, 4)])
@pytest.mark.parametrize("seed", range(5))
def test_the_grid_bounds_the_exact_epsilon_from_both_sides(seed, rate):
    """Two steps of a few outcomes each, next to their laws in fractions."""
    rng = np.random.default_rng(seed)
    laws = []
    for _ in range(2):
        p, q = (
            [exact.Fraction(int(n), int(sum(row))) for n in row]
            for row in [rng.integers(1, 30, 5) for _ in range(2)]
        )
        laws.append((dict(enumerate(p)), dict(enumerate(q))))
    sampled = [(exact.mixture([(rate, p), (1 - rate, q)]), q) for p, q in laws]
    true = exact.largest_epsilon(
        *(exact.product(*side) for side in zip(*sampled)), 0.01
    )

    def bound(interval, upper, added):
        pairs = []
        for p, q in laws:
            p, q = (
                np.array(list(law.values()), float)
                for law in ((p, q) if added else (q, p))
            )
            pair = exact.Pair.from_losses(np.log(p / q), p, q, interval, upper, 0.0)
            pairs.append(pair.sampled(rate, added))
        return pairs[0].compose(pairs[1]).epsilon(0.01)

    for interval in (0.05, 0.01):
        lower, upper = (
            max(bound(interval, upper, added) for added in (True, False))
            for upper in (False, True)
        )
        assert lower - 1e-9 <= true <= upper + 1e-9
        assert upper - lower < 4 * interval
