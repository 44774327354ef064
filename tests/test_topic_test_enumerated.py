"""Enumerations of the rounds that test the topics, by their formulas."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom, false_discovery_control, norm

from dplda import SubLDA
from dplda.core._signal import FALSE_TOPICS, first_half, shown
from dplda.datasets import make_topic_corpus
from dplda.document import _topic_test as topic_test
from dplda.document._conclusion import claim_of
from dplda.document._contributions import Documents, integer_shift
from dplda.document._document_budget import CLIP, NORM
from dplda.document._topic_test import Claim

V, K = 60, 3


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(100, 200, 4, random_state=0).data


def test_what_is_shown_is_the_rule_of_benjamini_and_hochberg():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 60):
        z = rng.normal(rng.choice([0, 3], n), 1)
        expected = false_discovery_control(norm.sf(z)) <= FALSE_TOPICS
        np.testing.assert_array_equal(shown(z), expected)
    assert not shown(np.full(5, np.nan)).any()


# ---- what is released ----------------------------------------------------------------


def halves_of(X, units=None, **options):
    """Integers of a round of test, the documents and what they were told."""
    rng = np.random.default_rng(3)
    table = rng.gamma(0.5, size=(X.shape[1], K)) * 40
    claim = Claim.of(table, rng.uniform(0.5, 2, X.shape[1]))
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
    claim = Claim.of(table, weight)
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


def test_what_true_topics_let_expect_is_its_formula():
    """Of each mixture of topics and clusters, word by word."""
    rng = np.random.default_rng(0)
    totals = rng.gamma(2.0, size=(12, 1)) * 100
    table, clusters = (totals * rng.dirichlet(np.ones(K), 12) for _ in range(2))
    weight, first = rng.uniform(0.5, 2, 12), np.arange(12) % 3 == 0
    claim = Claim.of(table, weight, clusters=clusters)
    for part, found in zip(claim.parts, claim.expected(first), strict=True):
        true = part * table + (1 - part) * clusters
        away = Claim.of(true, weight).across(first).contrasts
        expected = np.zeros((12, K))
        for v in range(12):
            for u in np.flatnonzero(first != first[v]):
                of_word = table[u] / totals[u] - table.sum(axis=0) / table.sum()
                lift = true[u] / true.sum(axis=0) - totals[u] / totals.sum()
                expected[v] += (away[v] @ lift) * of_word
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 1.0])
def test_documents_find_the_part_of_the_topics_beside_clusters(part):
    """Documents of one topic each, whose topics are a mixture of both tables."""
    rng = np.random.default_rng(0)
    n_words, n_docs = 200, 10_000
    totals = rng.gamma(2.0, size=(n_words, 1)) * 100
    table, clusters = (
        totals * rng.dirichlet(np.full(K, 0.3), n_words) for _ in range(2)
    )
    true = part * table + (1 - part) * clusters
    sizes = true.sum(axis=0)
    X = np.vstack(
        [
            rng.multinomial(6, law / law.sum(), size=round(n_docs * size / sizes.sum()))
            for law, size in zip(true.T, sizes, strict=True)
        ]
    )
    claim = Claim.of(table, np.ones(n_words), clusters=clusters)
    documents = Documents.from_counts(sp.csr_array(X.astype(float)), K, 1)
    documents.rescale(claim.weight, NORM)
    mechanism = SimpleNamespace(radius=2**20, scale=2.0**19)
    terms = {"number": 5, "rate": 1.0, "norm": CLIP * NORM}
    this_round = SimpleNamespace(mechanism=mechanism, **terms)
    halves = claim.halves(2**20, 5, 0.1, 1)
    sums = documents.sum_halves(np.arange(documents.n_units), halves)
    tested = topic_test.met(None, claim, sums, this_round, n_docs)
    found = tested.part_beside_clusters(np.ones(K, bool))
    assert found == pytest.approx(part, abs=0.11)
    assert found - 0.21 < tested.least_part_beside_clusters(np.ones(K, bool)) <= found
    # noise that hides the part leaves clusters
    mechanism = SimpleNamespace(radius=2**20, scale=2.0**40)
    loud = SimpleNamespace(mechanism=mechanism, **terms)
    hidden = topic_test.met(None, claim, sums, loud, n_docs)
    assert hidden.least_part_beside_clusters(np.ones(K, bool)) == 0
    # without clusters, the last row is the same
    alone = topic_test.met(
        None, Claim.of(table, np.ones(n_words)), sums, this_round, n_docs
    )
    np.testing.assert_array_equal(alone.confirmed, tested.confirmed[-1:])
    np.testing.assert_array_equal(alone.claimed, tested.claimed[-1:])


# ---- without noise -------------------------------------------------------------------


def dealt(X, rng):
    """Entries dealt to the documents anew: no two words belong together."""
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    order = rng.permutation(X.nnz)
    return sp.csr_array((X.data[order], (rows, X.indices[order])), shape=X.shape)


def evidence_without_noise(claim, X):
    """What every tenth document of X says of a claim."""
    documents = Documents.from_counts(sp.csr_array(X), 8, 1)
    norm = documents.longest()
    return topic_test.tested_without_noise(documents, claim, norm, 0.1, 1).z


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_without_noise_the_evidence_of_documents_that_did_not_train_is_normal():
    """A tenth of the corpora shows a topic, and no more: the level is attained."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(make_topic_corpus(1500, 200, 4, random_state=0).data)
    trained = dealt(X, rng)
    model = SubLDA(8, epsilon=math.inf, max_iter=20, random_state=0).fit(trained)
    claim = claim_of(model._released, 1)
    n = 60
    z = np.array([evidence_without_noise(claim, dealt(X, rng)) for _ in range(n)])
    assert abs(z.mean()) < 4 / z.size**0.5
    assert z.std() == pytest.approx(1, abs=0.15)
    assert np.count_nonzero([shown(each).any() for each in z]) <= binom.isf(
        1e-3, n, FALSE_TOPICS
    )
    # copies of a document in all blocks agree, whatever it says
    copies = [sp.csr_array(sp.vstack([dealt(X, rng)[:30]] * 50)) for _ in range(4)]
    assert np.std([evidence_without_noise(claim, X) for X in copies]) > 2
