"""Parties: nothing but noisy vectors is read, costs, rounds, document-level parties."""

import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import dplda.federated._party as party_module
from dplda import HDPLDA, GibbsLDA, PrivateSVILDA, SubLDA
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty, LocalModel, vocabulary_hash
from dplda.metrics import match_topics
from dplda.privacy import BudgetError, Ledger, PrivacyLeakWarning, Repeated, epsilon_of

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")

K = 3
HASH = vocabulary_hash([f"word{i}" for i in range(40)])
TOKENS = [
    IFTMParty(K, token_epsilon=5.0, max_iter=8, random_state=0, **options)
    for options in ({}, {"max_doc_tokens": 20})
]
every = pytest.mark.parametrize("party", TOKENS, ids=repr)


@pytest.fixture(scope="module")
def X():
    return sp.csr_array(
        make_topic_corpus(120, 40, K, doc_length=30, random_state=0).data
    )


@every
def test_the_words_are_never_read_again(party, X, monkeypatch):
    """Privatize, then destroy all words in sight: the model is the same."""
    plain = clone(party).fit(X.copy()).components_
    doomed, seen = X.copy(), []

    def privatize(private, *args, **kwargs):
        tokens = original(private, *args, **kwargs)
        for words in (private.word, doomed.indices):
            words[:] = 39 - words
        seen.append(tokens)
        return tokens

    original = party_module.privatize
    monkeypatch.setattr(party_module, "privatize", privatize)
    model = clone(party).fit(doomed)
    assert len(seen) == 1
    assert not np.array_equal(doomed.toarray(), X.toarray())
    assert_array_equal(model.components_, plain)
    other = clone(party).fit(doomed)  # what would have come of the destroyed words
    assert not np.array_equal(other.components_, plain)
    table = np.random.default_rng(2).random((5, 40))
    refined = clone(party).fit(X.copy()).refine(table)
    assert_array_equal(model.refine(table).components_, refined.components_)


@every
def test_any_number_of_rounds_costs_nothing(party, X):
    ledger = Ledger(epsilon=5.0)
    model = clone(party).set_params(ledger=ledger).fit(X)
    before = (model.epsilon_, model.privacy_, ledger.epsilon_spent)
    for n_topics in (K, 5, 1):
        table = np.random.default_rng(n_topics).random((n_topics, 40))
        assert model.refine(table) is model
        assert model.components_.shape == (n_topics, 40)
        assert model.transform(X).shape == (120, n_topics)
    assert (model.epsilon_, model.privacy_, ledger.epsilon_spent) == before
    assert model.n_iter_ == 8 * 4
    assert len(ledger.entries()) == 1
    with pytest.raises(BudgetError):
        model.fit(X[:5])


def test_prices_of_tokens_and_documents(X):
    party = IFTMParty(K, token_epsilon=4.0, max_doc_tokens=30, max_iter=1).fit(X)
    assert party.token_epsilon_ == pytest.approx(4.0)
    assert 3.99 < party.epsilon_ <= 4.0
    assert party.document_epsilon_ == pytest.approx(120.0)
    assert party.privacy_.for_groups(30).epsilon <= 120.1
    assert party.privacy_.unit == "token"
    assert "2 n times" in str(party.privacy_)
    price = "a document of n tokens pays up to n times this epsilon"
    assert price in str(party.privacy_)
    assert (
        IFTMParty(K, token_epsilon=4.0, max_iter=1).fit(X).document_epsilon_ == math.inf
    )
    small = IFTMParty(K, token_epsilon=0.1, max_iter=1).fit(X)
    # not "strong", as 0.1 for a document
    assert " protection" not in str(small.privacy_)
    events = [Repeated(event, 1000) for event in small.privacy_.events]
    assert epsilon_of(events, 1e-5) < 30 < epsilon_of(events, 0.0)


def test_a_document_never_has_more_tokens_than_the_cap(X):
    party = IFTMParty(K, token_epsilon=5.0, max_doc_tokens=7, max_iter=1)
    lengths = np.diff(party.fit(X)._tokens.doc_ptr)
    assert_array_equal(lengths, np.minimum(X.sum(axis=1), 7))
    party.set_params(max_doc_tokens=1).refine(party.components_)
    assert party.document_epsilon_ == pytest.approx(35.0)  # of the fit


def test_counts_are_shuffled_before_the_noise():
    """In the order of a matrix, the places of all tokens would depend on every word."""
    X = np.tile(np.arange(1, 11), (50, 1))
    party = IFTMParty(2, token_epsilon=math.inf, max_iter=1).fit(X)
    words = party._tokens.word.reshape(50, -1)
    assert_array_equal(
        np.sort(words, axis=1), np.tile(np.repeat(np.arange(10), X[0]), (50, 1))
    )
    assert abs(np.corrcoef(words.ravel(), np.tile(np.arange(55), 50))[0, 1]) < 0.15


def sentences():
    """300 documents of six sentences, each of one topic; each document of all three."""
    rng = np.random.default_rng(3)
    topics = np.kron(np.eye(K), np.full(10, 0.1))
    X = rng.multinomial(8, topics[np.arange(1800) % K])
    return sp.csr_array(X), np.repeat(np.arange(300), 6), topics


@pytest.mark.parametrize("token_epsilon", [math.inf, 7.0])
def test_words_of_a_sentence_have_one_topic(token_epsilon):
    X, documents, topics = sentences()
    party = IFTMParty(K, token_epsilon=token_epsilon, max_iter=40, random_state=0)
    found = clone(party).fit(X, documents=documents)
    _, distance = match_topics(topics, found.components_)
    assert distance.max() < 0.2
    # which have one mixture
    whole = sp.csr_array(X.toarray().reshape(300, 6, -1).sum(axis=1))
    assert match_topics(topics, clone(party).fit(whole).components_)[1].max() > 0.4
    table = found.components_
    threaded = clone(party).set_params(n_jobs=2).fit(X, documents=documents)
    assert_array_equal(threaded.components_, table)
    assert (found.epsilon_, found.n_iter_) == (threaded.epsilon_, 40)
    assert match_topics(topics, found.refine(table).components_)[1].max() < 0.2


def test_sentences_count_to_the_cap_of_their_document():
    X, documents, _ = sentences()
    party = IFTMParty(K, token_epsilon=5.0, max_doc_tokens=20, max_iter=2)
    tokens = party.fit(X, documents=documents)._tokens
    assert_array_equal(np.diff(tokens.doc_ptr), np.full(300, 20))
    assert np.isin(tokens.doc_ptr, tokens.unit_ptr).all()
    assert 0 < np.diff(tokens.unit_ptr).min() <= np.diff(tokens.unit_ptr).max() <= 8


@pytest.mark.parametrize("wrong", [[0, 1, 0], [0, 1], [0, 0, 1, 1], [[0], [1], [1, 2]]])
def test_documents_of_sentences_are_checked_before_the_charge(wrong, X):
    ledger = Ledger()
    with pytest.raises(ValueError, match=r"documents|inhomogeneous"):
        IFTMParty(K, token_epsilon=5.0, ledger=ledger).fit(X[:3], documents=wrong)
    assert ledger.epsilon_spent == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.ones((2, 7)), "40 columns"),
        (-np.ones((2, 40)), "no negative entry"),
        (np.zeros((2, 40)), "no empty row"),
        (np.full((2, 40), np.nan), "NaN"),
        (np.ones(40), "table of finite numbers"),
    ],
)
def test_bad_tables(table, message, X):
    party = IFTMParty(K, token_epsilon=5.0, max_iter=2).fit(X)
    with pytest.raises(ValueError, match=message):
        party.refine(table)
    assert party.components_.shape == (K, 40)


@pytest.mark.parametrize(
    ("model", "unit"),
    [
        (SubLDA(K, epsilon=4.0, max_iter=5), "document"),
        (PrivateSVILDA(K, epsilon=4.0, max_iter=5), "document"),
        (HDPLDA(K, epsilon=50.0, max_iter=3), "word"),
        (IFTMParty(K, token_epsilon=5.0, max_iter=3), "token"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_any_private_model_is_a_message(model, unit, X):
    model = clone(model).fit(X)
    message = LocalModel.from_estimator(model, "north", 0, HASH)
    assert (message.unit, message.epsilon, message.delta) == (
        unit,
        model.epsilon_,
        model.delta_,
    )
    assert message.weight == pytest.approx(model.components_.sum())
    phi = model.components_ / model.components_.sum(axis=1, keepdims=True)
    assert_allclose(message.table, phi, rtol=1e-6)
    assert LocalModel.from_bytes(message.to_bytes()) == message


@pytest.mark.parametrize("epsilon", [6.0, math.inf])
def test_topics_that_are_there_are_shown_and_dealt_words_are_not(epsilon):
    corpus = sp.csr_array(make_topic_corpus(800, 100, 4, random_state=0).data)
    party = IFTMParty(4, token_epsilon=epsilon, max_iter=15, random_state=0)
    shown = ~clone(party).fit(corpus).weak_topics_
    assert np.count_nonzero(shown) >= 3
    rows = np.repeat(np.arange(800), np.diff(corpus.indptr))
    n_false = 0
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(corpus.nnz)
        cells = (corpus.data[order], (rows, corpus.indices[order]))
        dealt = sp.csr_array(cells, shape=corpus.shape)
        n_false += not clone(party).fit(dealt).weak_topics_.all()
    assert n_false <= 2


def test_one_document_in_ten_tests_and_does_not_train():
    X = make_topic_corpus(220, 40, K, random_state=0).data.toarray()
    # a new order of documents of one length takes the same coins
    X[:, 0] += X.sum(axis=1).max() - X.sum(axis=1)
    party = IFTMParty(K, token_epsilon=math.inf, max_iter=4, random_state=0)
    first = clone(party).fit(X)
    kept = np.arange(9, 220, 10)
    Y = X.copy()
    Y[kept] = Y[kept[::-1]]
    second = clone(party).fit(Y)
    assert_array_equal(first.components_, second.components_)
    table = np.random.default_rng(0).random((5, 40))
    first.refine(table)
    assert first.topic_evidence_.shape == (5,)
    assert np.isfinite(first.topic_evidence_).all()
    assert_array_equal(first.components_, second.refine(table).components_)
    Y = X.copy()
    Y[:9] = Y[:9][::-1]
    assert not np.array_equal(clone(party).fit(Y).components_, first.components_)


@pytest.mark.parametrize(("n_docs", "n_topics"), [(199, K), (220, 1)])
def test_what_cannot_be_tested_is_weak(n_docs, n_topics):
    X = make_topic_corpus(n_docs, 40, K, random_state=0).data
    party = IFTMParty(n_topics, token_epsilon=6.0, max_iter=2).fit(X)
    assert np.isnan(party.topic_evidence_).all()
    assert party.weak_topics_.all()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (GibbsLDA(K, max_iter=2), "without privacy"),
        (IFTMParty(K, token_epsilon=math.inf, max_iter=2), "without privacy"),
        (
            IFTMParty(K, token_epsilon=5.0, max_iter=2, random_state=0),
            "knows or guesses",
        ),
        (SubLDA(K, epsilon=5.0, max_iter=2, random_state=0), "knows or guesses"),
    ],
    ids=repr,
)
def test_a_message_without_privacy_warns(model, reason, X):
    model = clone(model).fit(X)
    with pytest.warns(PrivacyLeakWarning, match=reason):
        LocalModel.from_estimator(model, "north", 0, HASH)


def test_messages_of_models_that_cannot_be_sent(X):
    with pytest.raises(NotFittedError):
        LocalModel.from_estimator(SubLDA(K), "north", 0, HASH)
    model = SubLDA(K, epsilon=5.0, max_iter=2).fit(X)
    for bad in (0.0, -1.0):
        model.components_[1] = bad
        with pytest.raises(ValueError, match="no negative entry and no empty row"):
            LocalModel.from_estimator(model, "north", 0, HASH)


@every
def test_no_fitted_word_and_no_key_is_in_a_party(party, X, monkeypatch):
    words, original = [], party_module.privatize
    monkeypatch.setattr(
        party_module,
        "privatize",
        lambda private, *args: words.append(private.word) or original(private, *args),
    )
    content = pickle.dumps(clone(party).fit(X))
    assert words[0].tobytes() not in content
    assert b"Streams" not in content
