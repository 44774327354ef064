"""Enumerations of SubLDA: rates, weights, live starts and interrupts, inside a fit."""

import copy
import math
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dplda import PrivateSVILDA, SubLDA
from dplda.core._corpus import Corpus
from dplda.datasets import make_topic_corpus
from dplda.document import _noisy_table, _sublda, _training
from dplda.document._contributions import Documents, integer_shift
from dplda.document._rules import ExactRules
from dplda.document._sublda import frequent_words
from dplda.gibbs import _gibbslda
from dplda.privacy import (
    Ledger,
    SeededNoiseWarning,
)
from dplda.privacy._curator import membership_threshold
from dplda.privacy._streams import Purpose
from dplda.privacy.mechanisms import (
    Curator,
    Streams,
)

MADE = make_topic_corpus(400, 50, 4, doc_length=40, random_state=0)


TABLE = MADE.components.T * 1000 + 1e-3


@pytest.fixture(scope="module")
def corpus():
    return MADE.data


def test_frequent_words_make_up_the_mass():
    table = np.array([[6.0, 1], [3, 1], [1, 1], [0.5, 7]])
    np.testing.assert_array_equal(
        frequent_words(table, 0.5), [True, False, False, True]
    )
    np.testing.assert_array_equal(frequent_words(table, 0.8), [True, True, False, True])
    assert frequent_words(table, 1.0).all()


def test_frequent_share_is_a_function_of_the_document_and_the_table(corpus):
    def frequent_share(X):
        return Documents.from_counts(X, 4, None).share_of(frequent_words(TABLE, 0.4))

    X = sp.csr_array(corpus.astype(np.float32))
    share = frequent_share(X)
    assert share.min() >= 0
    assert share.max() <= 1
    assert len(np.unique(share)) > 20
    np.testing.assert_array_equal(frequent_share(X[[5, 9]]), share[[5, 9]])


class OneDocument(Curator):
    def sample(self, rates, *, round):
        super().sample(rates, round=round)
        self.rates = rates
        return np.array([3])

    def release(self, value, mechanism, **kwargs):
        self.value = value.copy()
        return super().release(value, mechanism, **kwargs)


def test_weights_undo_the_rates(corpus, charged):
    """A document weighs more as it is drawn less often than the highest rate."""
    # no clip
    X = sp.csr_array(sp.vstack([corpus, np.full((1, 50), 100)]).astype(np.float32))
    table = SubLDA(4, epsilon=math.inf, max_iter=3, random_state=0).fit(X)._released
    values = []
    for boost, ratio in ((1.0, 0.4), (2.0, 0.2)):
        model = SubLDA(4, epsilon=math.inf, subsampling_ratio=ratio, boost=boost)
        training = model._training("document")
        budget, streams = training.budget, Streams.from_random_state(0)
        curator = charged(budget.plan(1, 1), streams, kind=OneDocument)
        documents = Documents.from_counts(X, 4, None)
        rules = training.rules(documents)
        steps = budget.schedule(1, 1, share_for_totals=0.0, powers=rules.powers)
        rounds = training._rounds(documents, rules, table, steps, curator)
        assert len(list(rounds)) == 1
        values.append(curator.value)
    share = Documents.from_counts(X, 4, None).share_of(frequent_words(table.table, 0.5))
    rate = np.clip(0.4 * share, 0.2, 0.4)
    np.testing.assert_allclose(curator.rates, rate)
    assert len(np.unique(rate)) > 20
    assert rate[3] < 0.39
    grid = 2 ** integer_shift(1024.0, 2**30)  # of the longest document
    np.testing.assert_allclose(
        values[1] * rate[3] / 0.4, values[0], rtol=1e-5, atol=2 * grid
    )


def test_many_topics_without_noise_start_from_a_live_sweep(corpus, monkeypatch):
    """The first table holds its counts, which `GibbsLDA` begins with, and the prior."""
    for module in (_gibbslda, _sublda):
        monkeypatch.setattr(module, "LIVE_START", 4)
    made = []
    monkeypatch.setattr(
        ExactRules,
        "tables",
        lambda self, table, *_: made.append(table.average) or 1 / 0,
    )
    seeds = [np.random.RandomState(0) for _ in range(2)]
    with pytest.raises(ZeroDivisionError):
        SubLDA(4, epsilon=math.inf, max_iter=1, random_state=seeds[0]).fit(corpus)
    tokens = Corpus.from_counts(corpus.astype(float))
    reader = Streams.from_random_state(seeds[1]).reader(Purpose.TOPICS, 0)
    topics = _gibbslda.live_sweep(
        tokens,
        np.zeros((50, 16), np.int32),
        np.zeros(4, np.int64),
        reader,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
    )
    counts = np.zeros((50, 4))
    np.add.at(counts, (tokens.word, topics), 1)
    np.testing.assert_allclose(made[0], counts + 0.01)


def test_a_live_start_takes_users(corpus, monkeypatch):
    monkeypatch.setattr(_sublda, "LIVE_START", 4)
    model = SubLDA(4, epsilon=math.inf, max_iter=30, random_state=0)
    counts = model.fit(corpus).components_
    np.testing.assert_array_equal(
        model.set_params(n_jobs=2).fit(corpus).components_, counts
    )
    assert np.isfinite(model.fit(corpus, user_ids=np.arange(400) % 7).components_).all()


def test_without_noise_a_document_reads_what_the_others_have_added(corpus, monkeypatch):
    """With noise its contribution is clipped: its share of the table is unknown."""
    corpus = corpus[:190]  # none of so few is kept out to test the topics
    infer, asked = Documents.infer, []

    def noted(self, units, inference):
        phi, own = inference.table, inference.own
        if own is not None:
            np.testing.assert_allclose(phi[:, :4].sum(axis=0), 1, rtol=1e-4)
            sizes = 1 / own.inverse_sizes[:4]
            np.testing.assert_allclose(
                sizes.sum(), corpus.sum() + 50 * 4 * own.least, rtol=0.01
            )
        asked.append(own)
        return infer(self, units, inference)

    monkeypatch.setattr(Documents, "infer", noted)
    SubLDA(4, epsilon=math.inf, max_iter=3, random_state=0).fit(corpus)
    assert [own is None for own in asked] == [False] * 3
    asked.clear()
    with pytest.warns(SeededNoiseWarning):
        SubLDA(4, epsilon=4.0, max_iter=3, random_state=0).fit(corpus)
    assert asked == [None] * len(asked) != []


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 4.0},
        {"noise_multiplier": 1.0},
        {"epsilon": math.inf, "prior_components": TABLE.T},
        {"epsilon": math.inf, "n_components": 3},
    ],
)
def test_no_other_fit_starts_from_exact_counts(options, corpus, monkeypatch):
    """With noise, they would be a release that nobody pays for."""
    monkeypatch.setattr(_sublda, "LIVE_START", 4)
    monkeypatch.setattr(Documents, "matrices", lambda self: 1 / 0)
    SubLDA(**{"n_components": 4, "max_iter": 2, **options}).fit(corpus)


def interrupted(kind, monkeypatch, owner, name, n_calls):
    """A fit interrupted when a function was called so often, after its last call."""
    call, n, ledger = getattr(owner, name), [], Ledger(epsilon=3.0)

    def counted(*args, **options):
        result = call(*args, **options)
        n.append(1)
        if len(n) == n_calls:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, counted)
    model = kind(4, epsilon=2.0, max_iter=8, ledger=ledger, random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            model.fit(MADE.data)
    monkeypatch.undo()
    return model, ledger, [str(warning.message) for warning in said]


def test_the_threshold_of_a_rate_is_at_most_one_word_below_it():
    rates = np.random.default_rng(0).uniform(0, 1, 1000)
    for rate, threshold in zip(rates, membership_threshold(rates)):
        assert 0 <= rate * 2**64 - int(threshold) < 1


@pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
def test_an_interrupt_of_what_learns_leaves_the_rounds_before(kind, monkeypatch):
    """The same as after a release: nothing of the round that was not completed."""
    expected, _, _ = interrupted(kind, monkeypatch, Curator, "release", 6)
    for place in (
        (_noisy_table._denoise, "learn", 4),
        (_noisy_table, "estimated", 4),
        (_training, "learn", 4),
    ):
        model, ledger, _ = interrupted(kind, monkeypatch, *place)
        assert model.n_iter_ == expected.n_iter_ == 3
        assert ledger.epsilon_spent == pytest.approx(model.epsilon_)
        np.testing.assert_array_equal(
            model._released.average, expected._released.average
        )
        np.testing.assert_array_equal(model.components_std_, expected.components_std_)


class InterruptAt:
    """Raises KeyboardInterrupt before the n-th instruction of the rounds of a fit."""

    FUNCTIONS = ("run", "_rounds", "_topics_round", "learn", "learn_totals")

    def __init__(self, n):
        self.n, self.n_seen, self.is_over = n, 0, False

    def __call__(self, frame, event, arg):
        name, path = frame.f_code.co_name, frame.f_code.co_filename
        self.is_over |= name == "_publish"
        if name in self.FUNCTIONS and "document" in path and not self.is_over:
            frame.f_trace_opcodes = True
            return self.instruction
        return None

    def instruction(self, frame, event, arg):
        if event == "opcode" and not self.is_over:
            self.n_seen += 1
            if self.n_seen == self.n:
                self.is_over = True
                raise KeyboardInterrupt
        return self.instruction


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("noise", [0.02, 2.0])  # without and with rounds of totals
def test_an_interrupt_at_any_instruction_leaves_a_whole_value(noise, monkeypatch):
    """What is known after a round is that of the round before, or that of the round."""
    X, values = MADE.data[:20], {}

    def fit():
        model = SubLDA(3, noise_multiplier=noise, max_iter=4, random_state=0)
        return model.fit(X)

    with monkeypatch.context() as patch:
        for name in ("learn", "learn_totals"):
            learn = getattr(_training, name)

            def noted(*args, learn=learn, **options):
                after = learn(*args, **options)
                values[after.n_rounds] = copy.deepcopy(after)
                return after

            patch.setattr(_training, name, noted)
        fit()
    counter, before = InterruptAt(0), sys.gettrace()
    try:
        sys.settrace(counter)
        fit()
    finally:
        sys.settrace(before)
    found = set()
    for n in range(1, counter.n_seen, 1 + counter.n_seen // 150):
        model = SubLDA(3, noise_multiplier=noise, max_iter=4, random_state=0)
        try:
            sys.settrace(InterruptAt(n))
            with pytest.raises(KeyboardInterrupt):
                model.fit(X)
        finally:
            sys.settrace(before)
        n_rounds = getattr(model, "n_iter_", 0)
        found.add(n_rounds)
        if n_rounds:
            known, whole = model._released, values[n_rounds]
            assert known.n_rounds == n_rounds
            for name in ("average", "table", "row_noise"):
                np.testing.assert_array_equal(
                    getattr(known, name), getattr(whole, name)
                )
            np.testing.assert_array_equal(
                known.released_totals.noisy, whole.released_totals.noisy
            )
            assert known.variance == whole.variance
    assert found == set(range(5))
