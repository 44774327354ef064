"""Rounds that test the topics: what is shown is there."""

import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dplda import PrivateSVILDA, SubLDA
from dplda.core._signal import FALSE_TOPICS, shown
from dplda.datasets import make_topic_corpus, write_shards
from dplda.document._contributions import Documents, integer_shift
from dplda.document._document_budget import CLIP, NORM
from dplda.document._topic_test import Claim, first_half
from dplda.privacy import Ledger, PrivateDataWarning

V, K = 60, 3

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning",
    "ignore::dplda.privacy.LowSignalWarning",
    "ignore::dplda.privacy.PrivacyLeakWarning",
    "ignore::dplda.privacy.PrivateDataWarning",
)


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(1500, 200, 4, random_state=0).data


def dealt(X, seed, kind="entries"):
    """Word counts dealt to the documents anew: lengths stay, and bursts of entries."""
    X = sp.csr_array(X)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    words, counts = X.indices, X.data
    if kind == "tokens":
        rows, words = np.repeat(rows, counts), np.repeat(words, counts)
        counts = np.ones(len(words))
    order = np.random.default_rng(seed).permutation(len(rows))
    return sp.csr_array((counts[order], (rows, words[order])), shape=X.shape)


def bursts(n_docs, rng):
    """Documents of a few words, each repeated; no two words belong together."""
    words = rng.zipf(1.5, (n_docs, 12)) % 200
    counts = rng.geometric(0.4, (n_docs, 12))
    rows = np.repeat(np.arange(n_docs), 12)
    cells = (counts.ravel(), (rows, words.ravel()))
    return sp.csr_array(cells, shape=(n_docs, 200))


# ---- what is shown -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["entries", "tokens", "bursts"])
@pytest.mark.parametrize(
    ("estimator", "epsilon"),
    [(SubLDA, 2.0), (SubLDA, 8.0), (SubLDA, math.inf), (PrivateSVILDA, 8.0)],
)
def test_words_that_do_not_belong_together_have_no_topic(
    estimator, epsilon, kind, corpus
):
    """At most one fit in ten may show a topic: of five, three do once in 100 runs."""
    n_false = 0
    for seed in range(5):
        X = (
            bursts(1500, np.random.default_rng(seed))
            if kind == "bursts"
            else dealt(corpus, seed, kind)
        )
        model = estimator(8, epsilon=epsilon, max_iter=40, random_state=seed).fit(X)
        n_false += not model.weak_topics_.all()
    assert n_false <= 2


@pytest.mark.parametrize("estimator", [SubLDA, PrivateSVILDA])
@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_topics_that_are_there_are_shown(estimator, epsilon, corpus):
    model = estimator(4, epsilon=epsilon, random_state=0).fit(corpus)
    assert np.count_nonzero(~model.weak_topics_) >= 3
    assert (model.topic_evidence_[~model.weak_topics_] > 1.28).all()


def test_the_evidence_of_no_words_is_standard_normal():
    """Noise alone: the law of the release is known."""
    nothing = sp.csr_array((300, V))
    z = []
    for seed in range(40):
        model = SubLDA(K, epsilon=2.0, max_iter=8, random_state=seed).fit(nothing)
        z.extend(model.topic_evidence_)
    assert np.mean(z) < 3 / len(z) ** 0.5
    assert np.std(z) == pytest.approx(1, abs=0.25)


def test_what_is_shown_is_the_rule_of_benjamini_and_hochberg():
    from scipy.stats import false_discovery_control, norm

    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 60):
        z = rng.normal(rng.choice([0, 3], n), 1)
        expected = false_discovery_control(norm.sf(z)) <= FALSE_TOPICS
        np.testing.assert_array_equal(shown(z), expected)
    assert not shown(np.full(5, np.nan)).any()


@pytest.mark.parametrize(("n_components", "max_iter"), [(1, 20), (4, 7)])
def test_what_cannot_be_tested_is_weak(n_components, max_iter, corpus):
    model = SubLDA(n_components, epsilon=8.0, max_iter=max_iter).fit(corpus)
    assert np.isnan(model.topic_evidence_).all()
    assert model.weak_topics_.all()


# ---- what is released ----------------------------------------------------------------


def halves_of(X, units=None, **options):
    """Integers of a round of test, the documents and what they were told."""
    rng = np.random.default_rng(3)
    table = rng.gamma(0.5, size=(X.shape[1], K)) * 40
    claim = Claim.of(table, table.sum(axis=1), rng.uniform(0.5, 2, X.shape[1]))
    documents = Documents.from_counts(sp.csr_array(X), K, 1, **options)
    documents.rescale(claim.weight, NORM)
    halves = claim.halves(2**20, 5, 0.1, 1)
    units = np.arange(documents.n_units) if units is None else units
    return documents.sum_halves(units, halves), documents, halves


def test_a_half_of_the_words_meets_the_topics_of_the_other_half(corpus):
    """The sum is its formula, from topic weights of documents that are cut in two."""
    X = corpus[:20, :V].toarray()
    total, documents, halves = halves_of(X)
    expected = np.zeros((V, K))
    for mask in (halves.first, ~halves.first):
        other = Documents.from_counts(sp.csr_array(X * ~mask), K, 1)
        other.infer(np.arange(20), halves.inference)
        theta = other.theta[:, :K]
        away = theta / theta.sum(axis=1, keepdims=True) - halves.shares
        away[(X * ~mask).sum(axis=1) == 0] = 0  # nothing is inferred
        length = np.linalg.norm(away, axis=1, keepdims=True)
        away *= np.minimum(1, CLIP / np.maximum(length, 1e-9))
        words = X * mask * halves.weight * documents.scale[:, None]
        expected += words.T @ away
    unit = CLIP * NORM / halves.radius
    np.testing.assert_allclose(total * unit, expected, atol=2e-3 * abs(expected).max())


@pytest.mark.parametrize("n_docs", [1, 3])
def test_one_unit_moves_the_sum_by_at_most_the_radius(n_docs):
    """Whatever its words, also those of a user with several documents."""
    rng = np.random.default_rng(0)
    longest = 0.0
    for _ in range(150):
        X = rng.poisson(rng.gamma(0.05, size=(n_docs, V)) * rng.choice([1, 50, 1e4]))
        total, _, halves = halves_of(X, users=np.zeros(n_docs, int))
        length = math.sqrt((total.astype(object) ** 2).sum())
        assert length <= halves.radius
        longest = max(longest, length / halves.radius)
    assert longest > 0.9


def test_the_clip_reads_no_word_of_the_half_that_is_tested(corpus):
    """Other words there, of the same norm, move their own cells only."""
    X = corpus[:1, :V].toarray().astype(float)
    first = first_half(V, 5)
    a, b = np.flatnonzero(first)[:2]
    X[0, first] = 0
    X[0, a] = 4
    Y = X.copy()
    Y[0, [a, b]] = 0, 4
    weight = np.ones(V)
    table = np.random.default_rng(3).gamma(0.5, size=(V, K)) * 40
    claim = Claim.of(table, table.sum(axis=1), weight)
    totals = []
    for Z in (X, Y):
        documents = Documents.from_counts(sp.csr_array(Z), K, 1)
        documents.rescale(weight, NORM)
        totals.append(
            documents.sum_halves(np.arange(1), claim.halves(2**20, 5, 0.1, 1))
        )
    grid = 2 ** integer_shift(CLIP * NORM, 2**20)
    np.testing.assert_allclose(totals[0][a], totals[1][b], atol=grid)


def test_halves_are_public_coins_of_the_round():
    assert (first_half(400, 7) == first_half(400, 7)).all()
    assert (first_half(400, 7) == first_half(900, 7)[:400]).all()
    assert 0.4 < (first_half(4000, 7) != first_half(4000, 8)).mean() < 0.6
    assert 0.4 < first_half(4000, 7).mean() < 0.6


@pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
def test_shards_and_calls_of_partial_fit_say_the_same(kind, corpus, tmp_path):
    X = corpus[:400]
    model = kind(K, epsilon=4.0, max_iter=8, random_state=0)
    expected = model.fit(X).topic_evidence_
    shards = write_shards(X, tmp_path / "shards", rows_per_shard=150)
    np.testing.assert_array_equal(model.fit(shards).topic_evidence_, expected)
    assert np.isfinite(expected).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = kind(K, epsilon=None, noise_multiplier=3.0, max_iter=8, random_state=0)
        for _ in range(8):
            assert not np.isfinite(getattr(calls, "topic_evidence_", np.nan)).all()
            calls.partial_fit(X)
            if calls.n_iter_ == 7:  # the first of two rounds of test
                break
        assert np.isfinite(calls.topic_evidence_).all()
        calls.partial_fit(X)
        assert np.isfinite(calls.topic_evidence_).all()
        calls.partial_fit(X)  # learns again: what was tested is gone
        assert np.isnan(calls.topic_evidence_).all()


def test_without_noise_every_tenth_document_tests_and_does_not_train(corpus):
    X = corpus[:300].toarray().astype(float)
    first = SubLDA(K, epsilon=math.inf, max_iter=9, random_state=0).fit(X)
    Y = X.copy()
    kept = np.arange(9, 300, 10)
    Y[kept] = Y[np.random.default_rng(0).permutation(kept)]  # totals stay
    second = SubLDA(K, epsilon=math.inf, max_iter=9, random_state=0).fit(Y)
    np.testing.assert_array_equal(first.components_, second.components_)
    assert (first.topic_evidence_ != second.topic_evidence_).any()
    Y = X.copy()
    Y[:9] = Y[:9][::-1] + 1
    third = SubLDA(K, epsilon=math.inf, max_iter=9, random_state=0).fit(Y)
    assert (first.components_ != third.components_).any()


# ---- documents are distinct ----------------------------------------------------------


def test_the_owner_is_told_of_copies_before_the_charge(corpus):
    X = corpus[:200]
    for users in (None, np.arange(400) // 4):
        ledger = Ledger(epsilon=5.0)
        model = SubLDA(K, epsilon=1.0, max_iter=2, ledger=ledger)
        with warnings.catch_warnings():
            warnings.simplefilter("error", PrivateDataWarning)
            with pytest.raises(PrivateDataWarning, match="equal to another one"):
                model.fit(sp.csr_array(sp.vstack([X, X])), user_ids=users)
            assert ledger.epsilon_spent == 0
            model.fit(X)


def test_the_card_says_the_same_whatever_the_documents_are(corpus):
    X = corpus[:100]
    cards = {
        str(SubLDA(K, epsilon=1.0, max_iter=2).fit(documents).privacy_)
        for documents in (X, sp.csr_array(sp.vstack([X, X])))
    }
    assert len(cards) == 1
    assert "documents are distinct" in cards.pop()
