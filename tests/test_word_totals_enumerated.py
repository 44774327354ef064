"""Enumerations of word totals: rounds, means and sums of units, by formulas."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from shared_cases import fit_few

from dplda import SubLDA
from dplda.datasets import make_topic_corpus
from dplda.document import _conclusion, _topic_test, _training
from dplda.document._conclusion import concluded, fitted_attributes, with_clusters
from dplda.document._contributions import (
    Documents,
    release_totals_again,
    release_word_totals,
)
from dplda.document._document_budget import (
    WORD_TOPIC_COUNTS,
    WORD_TOTALS,
    document_budget,
)
from dplda.document._public_words import Agreement
from dplda.document._rules import Rules
from dplda.document._word_totals import WordTotals
from dplda.metrics import held_out_perplexity
from dplda.privacy._accounting import gaussian_mu
from dplda.privacy.mechanisms import Charge, Curator, DiscreteGaussian, Streams, sampled

DELTA = 1e-5


pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)


@pytest.fixture(scope="module")
def corpus():
    """150 documents to train on, 100 held out."""
    X = make_topic_corpus(250, 300, 5, doc_length=30, random_state=0).data
    return X[:150], X[150:]


def frequencies_alone(X, epsilon, seed):
    """The word totals on which the whole budget is spent."""
    mu = gaussian_mu(epsilon, DELTA)
    steps = [DiscreteGaussian.for_noise_multiplier(2**0.5 / mu)] * 2
    events = [(WORD_TOTALS, step.event) for step in steps]
    streams = Streams.from_random_state(seed)
    with Charge(events, label="test", unit="document") as charge:
        charge.begin()
        released, _ = release_word_totals(
            Documents.from_counts(X, 1, 1), steps, Curator(charge, streams), Rules()
        )
    return released.smooth()


def test_few_documents_are_as_good_as_the_word_frequencies_of_the_same_budget(corpus):
    train, test = corpus
    seeds = range(4)
    released = [
        held_out_perplexity(frequencies_alone(train, 1.0, s)[None], test) for s in seeds
    ]
    found = [fit_few(train, s).perplexity(test) for s in seeds]
    assert np.mean(found) <= 1.01 * np.mean(released)


def test_the_mean_of_releases_is_weighted_by_precision():
    one = WordTotals(np.array([10.0, 20.0]), np.array([1.0, 2.0]), 15.0)
    both = one.and_release(np.array([20.0, 20.0]), np.array([2.0, 2.0]))
    np.testing.assert_allclose(both.noisy, [12.0, 20.0])
    np.testing.assert_allclose(both.noise_scale, [0.8**0.5, 2**0.5])


@pytest.mark.parametrize("share", [0.0, 0.18, 0.5, 0.83, 0.999])
def test_rounds_of_totals_are_spread_and_never_the_first(share):
    rounds = schedule(share_for_totals=share)
    assert [step.number for step in rounds if step.for_test] == [79, 80]
    kinds = [step.for_totals for step in rounds[:78]]
    assert not kinds[0]
    assert sum(kinds) == int(78 * share)
    last = rounds[-1]
    assert rounds[77].n_in_average == last.n_in_average == 78 - sum(kinds)
    assert last.n_in_last_average == 78 - sum(kinds)
    assert {step.norm for step in rounds if step.for_totals} <= {6.0}
    gaps = np.diff(np.flatnonzero(kinds))
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1


def schedule(n_rounds=80, share_for_totals=0.0):
    budget = document_budget(1.0, None, DELTA, max_iter=n_rounds, subsampling_ratio=1.0)
    return budget.schedule(
        0, n_rounds, share_for_totals=share_for_totals, powers=Rules.powers
    )


class Watched(Curator):
    def release(self, value, *args, **options):
        self.sums = [*getattr(self, "sums", []), np.array(value)]
        return super().release(value, *args, **options)

    def sample(self, rates, *, round):
        self.units = super().sample(rates, round=round)
        return self.units


def again(X, ratio, seed, users=None):
    """A round of totals: private sum, units, what it returns and the mechanism."""
    mechanism = DiscreteGaussian.for_noise_multiplier(3.0)
    events = [(WORD_TOPIC_COUNTS, sampled(mechanism.event, ratio))]
    streams = Streams.from_random_state(seed)
    documents, weight = (
        Documents.from_counts(X, 3, 1, users),
        np.linspace(1, 3, X.shape[1]),
    )
    documents.rescale(weight, 6.0)
    with Charge(events, label="test", unit="document") as charge:
        charge.begin()
        curator = Watched(charge, streams)
        step = schedule()[0]._replace(mechanism=mechanism, rate=ratio, norm=6.0)
        found = release_totals_again(documents, weight, step, curator, 1)
    return curator.sums[0], curator.units, found, mechanism


@pytest.mark.parametrize("ratio", [1.0, 0.4])
def test_a_unit_moves_a_round_of_totals_by_at_most_the_radius(corpus, ratio):
    X = corpus[0][:12]
    for users in (None, np.array([0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 7])):
        table, units, _, mechanism = again(X, ratio, 0, users)
        assert table.shape == (X.shape[1],)
        ids = np.arange(12) if users is None else users
        alone = [
            again(X[ids == u], 1.0, 0, None if users is None else ids[ids == u] * 0)[0]
            for u in range(ids.max() + 1)
        ]
        squares = [(part**2).sum() for part in alone]
        assert max(squares) <= mechanism.radius**2
        assert min(squares) > 0.9 * mechanism.radius**2
        # each unit of the sample contributes what it does alone; the others contribute
        # nothing
        np.testing.assert_array_equal(table, sum(alone[u] for u in units))
        assert ratio == 1 or 0 < len(units) < len(alone)


def test_a_round_of_totals_estimates_the_totals(corpus):
    X = corpus[0]
    noisy, scale = again(X, 1.0, 1)[2]
    documents, weight = Documents.from_counts(X, 3, 1), np.linspace(1, 3, 300)
    documents.rescale(weight, 6.0)
    expected = documents.scale @ X.toarray()
    standard = (noisy - expected) / scale
    assert abs(standard.mean()) < 0.25
    assert standard.std() == pytest.approx(1, abs=0.15)


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_rounds_of_topics_read_all_totals_so_far(corpus, monkeypatch):
    """To look at them changes no model."""
    learn, missing = _training.learn, []

    def looked_at(table, *args, **options):
        assert (table.totals > 0).all()
        after = learn(table, *args, **options)
        latest, read = after.released_totals, after.reading.released_totals
        missing.append(
            np.square(read.noise_scale).mean() / np.square(latest.noise_scale).mean()
        )
        return after

    def fitted():
        public = np.random.default_rng(0).gamma(1.0, size=(5, 300)) * np.geomspace(
            1, 1e4, 300
        )
        model = SubLDA(
            5, epsilon=3.0, delta=DELTA, max_iter=60, prior_components=public
        )
        return model.set_params(random_state=0).fit(corpus[0])

    expected = fitted()
    monkeypatch.setattr(_training, "learn", looked_at)
    model = fitted()
    assert set(missing) == {1.0}
    assert model.n_iter_ > len(missing)  # others released totals again
    np.testing.assert_array_equal(model.components_, expected.components_)


def test_a_frequent_word_is_seen_among_many_whatever_the_weights_are_learned_from():
    """They are learned from some words; each word may be the only one of its size."""
    generator = np.random.default_rng(0)
    for frequent in range(1, 8):
        true = np.full(12_000, 3.0)
        true[frequent] = 1e6
        noisy = true + 5 * generator.normal(size=len(true))
        found = WordTotals(noisy, np.full(len(true), 5.0), noisy.mean()).smooth()
        assert found[frequent] == pytest.approx(1e6, rel=1e-3)
        assert np.delete(found, frequent).mean() == pytest.approx(3, rel=0.5)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_signal_to_noise_is_its_formula(corpus, epsilon):
    model = fit_few(corpus[0], epsilon=epsilon, max_iter=10)
    table = model._released
    noise, weights = [], []
    for step in schedule(10, share_for_totals=table.share_for_totals):
        if not (step.for_totals or step.for_test):
            noise.append(
                step.norm * model.privacy_.events[1 + step.number].noise_multiplier
            )
            weights.append(len(weights) + 1.0)
    weights = np.square(weights) / np.square(weights).sum()
    of_average = math.sqrt((weights**2 * np.square(noise)).sum())
    expected = (table.totals * table.weight).mean() / 5 / of_average
    assert model.signal_to_noise_ == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("vectors", [None, np.eye(60)])
def test_what_is_in_the_place_of_topics_reads_releases_alone(vectors):
    """Nothing else is known of the documents than what the file of a model holds."""
    X = np.random.default_rng(0).multinomial(6, np.full(60, 1 / 60), size=3000)
    options = {"epsilon": 8.0, "max_iter": 10, "random_state": 0}
    model = SubLDA(3, word_vectors=vectors, **options).fit(X)
    released = pickle.loads(pickle.dumps(model._released))
    table, _, line = with_clusters(released, None)
    assert ("topics", line) in model.privacy_.provenance
    found, _ = fitted_attributes(released, model.topic_word_prior)
    np.testing.assert_array_equal(found["components_"], model.components_)
    np.testing.assert_allclose(found["components_"], table.T + 0.01)


@pytest.mark.parametrize("n_shown", [0, 1])
def test_weak_topics_keep_what_documents_confirm(n_shown, monkeypatch):
    """Words add up to their totals."""
    rng = np.random.default_rng(0)
    X = rng.multinomial(4, rng.dirichlet(np.ones(60)), size=3000)
    last = SubLDA(4, epsilon=20.0, max_iter=10, random_state=0).fit(X)._released
    marks = np.arange(4) < n_shown
    monkeypatch.setattr(_conclusion, "shown", lambda evidence: marks)
    confirmed, claimed = np.array([5.0, 5.0, 0.0, -1.0]), np.full(4, 10.0)
    tested = last.tested._replace(confirmed=confirmed[None], claimed=claimed[None])
    before, _ = concluded(last, 1)
    table, _, line = with_clusters(replace(last, tested=tested), 1)
    np.testing.assert_allclose(table.sum(axis=1), last.totals, rtol=1e-6)
    np.testing.assert_allclose(table[:, marks], before[:, marks])
    part = (confirmed[~marks].sum() + 1) / (claimed[~marks].sum() + 1)
    of_word = before[:, ~marks] / before[:, ~marks].sum(axis=0)
    of_word /= of_word.sum(axis=1, keepdims=True)
    rest = last.totals - table[:, marks].sum(axis=1)
    expected = rest[:, None] * (part * of_word + (1 - part) / (4 - n_shown))
    np.testing.assert_allclose(table[:, ~marks], expected)
    assert line.startswith(f"{4 - n_shown} of 4 are not shown")
    assert f"confirm {part:.0%} of what these say" in line


@pytest.mark.parametrize("n_shown", [0, 1, 4])
@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("is_contradicted", [False, True])
def test_clusters_replace_what_documents_do_not_confirm(
    n_shown, part, is_contradicted, monkeypatch
):
    """Of shown topics; they take the place of the others. Words add up to totals."""
    rng = np.random.default_rng(0)
    X = rng.multinomial(4, rng.dirichlet(np.ones(60)), size=3000)
    model = SubLDA(4, epsilon=20.0, max_iter=10, random_state=0)
    last = model.set_params(word_vectors=rng.normal(size=(60, 3))).fit(X)._released
    marks = np.arange(4) < n_shown
    monkeypatch.setattr(_conclusion, "shown", lambda evidence: marks)
    monkeypatch.setattr(Agreement, "contradicts", lambda self, topics: is_contradicted)
    kept_of_weak = part if is_contradicted else 1 - part
    for name, kept in (("part", part), ("least_part", 1 - part)):
        name = f"{name}_beside_clusters"
        monkeypatch.setattr(
            _topic_test.Tested, name, lambda self, topics, kept=kept: kept
        )
    before, _ = concluded(last, 1)
    table, _, line = with_clusters(last, 1)
    np.testing.assert_allclose(table.sum(axis=1), last.totals, rtol=1e-6)
    clusters = _conclusion.clusters_of(last.vectors, last, before, marks)
    np.testing.assert_allclose(clusters.sum(axis=1), 1, rtol=1e-6)
    own = last.totals[:, None] * clusters
    np.testing.assert_allclose(
        table[:, marks], (part * before + (1 - part) * own)[:, marks]
    )
    said = f"confirm {part:.0%} of what the shown topics say"
    assert (said in (line or "")) == (part < 1 and n_shown > 0)
    if n_shown < 4:
        weak = clusters[:, ~marks] / clusters[:, ~marks].sum(axis=1, keepdims=True)
        of_word = before[:, ~marks] / before[:, ~marks].sum(axis=0)
        of_word /= of_word.sum(axis=1, keepdims=True)
        rest = last.totals - table[:, marks].sum(axis=1)
        parts = kept_of_weak * of_word + (1 - kept_of_weak) * weak
        expected = rest[:, None] * parts
        np.testing.assert_allclose(table[:, ~marks], expected)
        said = f"{4 - n_shown} of 4 are not shown"
        assert (said in (line or "")) == (kept_of_weak < 1)


def test_shown_topics_contradict_vectors_by_a_slope_that_noise_does_not_hide():
    agreement = Agreement(np.array([30.0, -10.0]), np.array([100.0, 900.0]))
    assert not agreement.contradicts(np.array([True, False]))  # a slope of .3
    assert agreement.contradicts(np.array([True, True]))  # of .02
    assert not agreement.contradicts(np.array([False, False]))
    hidden = Agreement(np.array([-1.0, 0.0]), np.array([4.0, 0.0]))
    assert not hidden.contradicts(np.array([True, False]))


def test_the_part_that_documents_confirm_is_a_slope_with_a_prior_at_one():
    tested = _topic_test.Tested(
        np.zeros(4),
        np.ones(4),
        confirmed=np.array([[0.0, 30.0, 900.0, -50.0]]),
        claimed=np.array([[1e-9, 99.0, 100.0, 10.0]]),
    )
    found = [tested.confirmed_part(topic) for topic in np.eye(4, dtype=bool)]
    np.testing.assert_allclose(found, [1.0, 0.31, 1.0, 0.0])
    both = np.array([True, True, False, False])
    assert tested.confirmed_part(both) == pytest.approx(31 / 100)
    assert tested.confirmed_part(np.zeros(4, bool)) == 1.0
    # a test without noise has no such sums, and changes no topic
    assert _topic_test.Tested(np.zeros(4), np.ones(4)).confirmed_part(both) == 1.0


@pytest.mark.parametrize("mixed", [False, True])
def test_documents_confirm_topics_and_no_chance_patterns(mixed):
    """With the tokens dealt anew, the same documents have no topics."""
    made = make_topic_corpus(3000, 200, 5, doc_length=6, random_state=0)
    X = made.data
    if mixed:
        rows = np.repeat(np.arange(3000), np.ravel(X.sum(axis=1)).astype(int))
        words = np.repeat(X.indices, X.data.astype(int))
        words = np.random.default_rng(0).permutation(words)
        X = sp.csr_array((np.ones(len(rows)), (rows, words)), shape=X.shape)
    model = SubLDA(5, epsilon=8.0, max_iter=10, random_state=0).fit(X)
    part = model._released.tested.confirmed_part(np.ones(5, bool))
    assert part < 0.3 if mixed else part > 0.95
