"""Rounds that test the topics: what is shown is there."""

import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dplda import PrivateSVILDA, SubLDA
from dplda.datasets import make_topic_corpus, write_shards
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


@pytest.mark.ci
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


@pytest.mark.parametrize(("n_components", "max_iter"), [(1, 20), (4, 7)])
def test_what_cannot_be_tested_is_weak(n_components, max_iter, corpus):
    model = SubLDA(n_components, epsilon=8.0, max_iter=max_iter).fit(corpus)
    assert np.isnan(model.topic_evidence_).all()
    assert model.weak_topics_.all()


# ---- wherever the documents are -----------------------------------------------------


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


def test_the_owner_is_told_of_copies_before_the_charge(corpus, tmp_path):
    X = corpus[:200]
    twice = sp.csr_array(sp.vstack([X, X]))
    users = np.arange(400) // 4
    ledger = Ledger(epsilon=5.0)
    model = SubLDA(K, epsilon=1.0, max_iter=2, ledger=ledger)

    def in_shards(X, name, user_ids=None):
        return write_shards(X, tmp_path / name, user_ids=user_ids, rows_per_shard=150)

    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivateDataWarning)
        for documents, ids in (
            (twice, None),
            (twice, users),
            (in_shards(twice, "a"), None),
            (in_shards(twice, "b", users), None),
        ):
            with pytest.raises(PrivateDataWarning, match="copies of other rows"):
                model.fit(documents, user_ids=ids)
        assert ledger.epsilon_spent == 0
        model.fit(X)
        model.fit(in_shards(X, "c"))


def test_the_card_says_the_same_whatever_the_documents_are(corpus):
    X = corpus[:100]
    cards = {
        str(SubLDA(K, epsilon=1.0, max_iter=2).fit(documents).privacy_)
        for documents in (X, sp.csr_array(sp.vstack([X, X])))
    }
    assert len(cards) == 1
    assert "documents are distinct" in cards.pop()
