"""Parties: nothing but noisy vectors is read, costs, rounds, sentences, document-level parties."""

import copy
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import dplda.federated._party as party_module
from dplda import HDPLDA, GibbsLDA, PrivateSVILDA, SubLDA
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty, LocalModel, MessageError, vocabulary_hash
from dplda.federated._sentences import SentenceCorpus, fold_in_sentences
from dplda.metrics import unigram_perplexity
from dplda.privacy import BudgetError, Ledger, PrivacyLeakWarning, epsilon_of
from dplda.privacy._events import Repeated

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")

K = 3
HASH = vocabulary_hash(40)
TOKENS = [
    IFTMParty(K, token_epsilon=5.0, max_iter=8, random_state=0, **options)
    for options in ({}, {"max_doc_tokens": 20}, {"model": "sentence_lda"})
]
every = pytest.mark.parametrize("party", TOKENS, ids=repr)


@pytest.fixture(scope="module")
def corpus():
    """Documents of three topics, cut into sentences of one topic each."""
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(40, 0.1), K)
    documents = []
    for _ in range(120):
        theta = rng.dirichlet(np.full(K, 0.3))
        topics = rng.choice(K, p=theta, size=rng.integers(4, 9))
        documents.append([rng.choice(40, p=phi[k], size=rng.integers(2, 8)) for k in topics])
    return SentenceCorpus.from_lists(documents, 40)


@every
def test_the_words_are_never_read_again(party, corpus, monkeypatch):
    """Privatize, then destroy the words of everything in sight: the model is the same."""
    plain = clone(party).fit(copy.deepcopy(corpus)).components_
    doomed, seen = copy.deepcopy(corpus), []

    def privatize(private, *args, **kwargs):
        tokens = original(private, *args, **kwargs)
        for each in (private, doomed):
            each.word[:] = np.random.default_rng(1).permutation(each.word)
        seen.append(tokens)
        return tokens

    original = party_module.privatize
    monkeypatch.setattr(party_module, "privatize", privatize)
    model = clone(party).fit(doomed)
    assert len(seen) == 1
    assert not np.array_equal(doomed.word, corpus.word)
    assert_array_equal(model.components_, plain)
    other = clone(party).fit(doomed)  # what would have come of the destroyed words
    assert not np.array_equal(other.components_, plain)
    table = np.random.default_rng(2).random((5, 40))
    refined = clone(party).fit(copy.deepcopy(corpus)).refine(table)
    assert_array_equal(model.refine(table).components_, refined.components_)


@every
def test_any_number_of_rounds_costs_nothing(party, corpus):
    ledger = Ledger(epsilon=5.0)
    model = clone(party).set_params(ledger=ledger).fit(corpus)
    before = (model.epsilon_, model.privacy_, ledger.epsilon_spent)
    for n_topics in (K, 5, 1):
        table = np.random.default_rng(n_topics).random((n_topics, 40))
        assert model.refine(table) is model
        assert model.components_.shape == (n_topics, 40)
        assert model.transform(corpus).shape == (120, n_topics)
    assert (model.epsilon_, model.privacy_, ledger.epsilon_spent) == before
    assert model.n_iter_ == 8 * 4
    assert len(ledger.entries()) == 1
    with pytest.raises(BudgetError):
        model.fit(corpus[:5])


@every
def test_refine_goes_on_after_a_pickle(party, corpus):
    model = clone(party).fit(corpus)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(
        again.refine(model.components_).components_, model.refine(model.components_).components_
    )


@every
def test_n_jobs_changes_nothing(party, corpus, monkeypatch):
    monkeypatch.setattr("dplda.federated._tokens.BLOCK_TOKENS", 300)
    one, two = (clone(party).set_params(n_jobs=n).fit(corpus) for n in (1, 2))
    assert len(one._tokens.blocks()) > 3
    assert_array_equal(one.components_, two.components_)
    assert_array_equal(one.transform(corpus), two.transform(corpus))


def test_prices_of_tokens_and_documents(corpus):
    party = IFTMParty(K, token_epsilon=4.0, max_doc_tokens=30, max_iter=1).fit(corpus)
    assert party.token_epsilon_ == pytest.approx(4.0)
    assert 3.99 < party.epsilon_ <= 4.0
    assert party.document_epsilon_ == pytest.approx(120.0)
    assert party.privacy_.for_groups(30).epsilon <= 120.1
    assert party.privacy_.unit == "token"
    assert "2 n times" in str(party.privacy_)
    assert "nominal protection (a document of 100 tokens pays" in str(party.privacy_)
    assert IFTMParty(K, token_epsilon=4.0, max_iter=1).fit(corpus).document_epsilon_ == math.inf
    small = IFTMParty(K, token_epsilon=0.1, max_iter=1).fit(corpus)
    assert ": very weak protection" in str(small.privacy_)  # not "strong", as 0.1 for a document
    events = [Repeated(event, 1000) for event in small.privacy_.events]
    assert epsilon_of(events, 1e-5) < 30 < epsilon_of(events, 0.0)


def test_a_document_never_has_more_tokens_than_the_cap(corpus):
    for model in ("lda", "sentence_lda"):
        party = IFTMParty(K, model=model, token_epsilon=5.0, max_doc_tokens=7, max_iter=1)
        tokens = party.fit(corpus)._tokens
        lengths = np.diff(tokens.unit_ptr[tokens.document_ptr])
        assert_array_equal(lengths, np.minimum(np.diff(corpus.token_ptr), 7))
        party.set_params(max_doc_tokens=1).refine(party.components_)
        assert party.document_epsilon_ == pytest.approx(35.0)  # of the fit


def test_counts_are_shuffled_before_the_noise():
    """In the order of a matrix, the places of all tokens would depend on every word."""
    X = np.tile(np.arange(1, 11), (50, 1))
    party = IFTMParty(2, token_epsilon=math.inf, max_iter=1).fit(X)
    words = party._tokens.word.reshape(50, -1)
    assert_array_equal(np.sort(words, axis=1), np.tile(np.repeat(np.arange(10), X[0]), (50, 1)))
    assert abs(np.corrcoef(words.ravel(), np.tile(np.arange(55), 50))[0, 1]) < 0.15


def test_it_learns():
    X = make_topic_corpus(600, 60, 4, doc_length=60, random_state=1).data
    exact = IFTMParty(4, token_epsilon=math.inf, max_iter=40, random_state=0).fit(X)
    noisy = IFTMParty(4, token_epsilon=7.0, max_iter=40, random_state=0).fit(X)
    unigram = unigram_perplexity(X, X)
    assert exact.epsilon_ == math.inf
    assert exact.perplexity(X) < 0.75 * unigram
    assert noisy.perplexity(X) < 1.05 * exact.perplexity(X)


def test_sentences_are_learned_and_inferred(corpus):
    party = IFTMParty(K, model="sentence_lda", token_epsilon=math.inf, max_iter=40, random_state=0)
    theta = party.fit(corpus).transform(corpus)
    assert_allclose(theta.sum(axis=1), 1)
    assert party.perplexity(corpus) < 0.7 * unigram_perplexity(corpus.counts(), corpus.counts())
    order = np.random.default_rng(0).permutation(120)
    assert_array_equal(party.transform(corpus[order]), theta[order])
    # words by themselves, if that is asked for
    assert not np.array_equal(party.transform(corpus.counts()), theta)
    empty = SentenceCorpus([], [0], [0, 0], 40)
    assert_allclose(party.transform(empty), 1 / K, rtol=1e-6)


def test_inference_of_sentences_is_its_twin():
    phi = np.random.default_rng(0).dirichlet(np.ones(6), 3)
    corpus = SentenceCorpus.from_lists([[[0, 1], [2, 2, 5]], [[4]]], 6)
    found = fold_in_sentences(corpus, phi, 0.5, None)
    for row, sentences in enumerate(([[0, 1], [2, 2, 5]], [[4]])):
        theta = np.full(3, 1 / 3)
        for _ in range(1000):
            shares = [theta * phi[:, s].prod(axis=1) for s in sentences]
            theta = sum(s / s.sum() for s in shares) + 0.5
            theta /= theta.sum()
        assert_allclose(found[row], theta, atol=2e-3)


def test_sentences_need_boundaries(corpus):
    with pytest.raises(ValueError, match=r"needs documents with sentence boundaries.*csr_array"):
        IFTMParty(K, model="sentence_lda", token_epsilon=5.0).fit(corpus.counts())
    ledger = Ledger(epsilon=100.0)
    with pytest.raises(ValueError, match="SentenceVectorizer"):
        IFTMParty(K, model="sentence_lda", token_epsilon=5.0, ledger=ledger).fit(
            ["A text. Another."]
        )
    assert ledger.entries() == []


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
def test_bad_tables(table, message, corpus):
    party = IFTMParty(K, token_epsilon=5.0, max_iter=2).fit(corpus)
    with pytest.raises(ValueError, match=message):
        party.refine(table)
    assert party.components_.shape == (K, 40)


def test_message_to_the_master(corpus):
    party = IFTMParty(K, token_epsilon=5.0, max_iter=3).fit(corpus)
    message = LocalModel.from_estimator(party, "north", 2, HASH)
    assert (message.party, message.round, message.unit) == ("north", 2, "token")
    assert (message.epsilon, message.delta) == (party.epsilon_, party.delta_)
    assert message.weight == pytest.approx(len(corpus.word), rel=0.01)


@pytest.mark.parametrize(
    ("model", "unit"),
    [
        (SubLDA(K, epsilon=4.0, max_iter=5), "document"),
        (PrivateSVILDA(K, epsilon=4.0, max_iter=5), "document"),
        (HDPLDA(K, epsilon=50.0, max_iter=3), "word"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_any_private_model_is_a_message(model, unit, corpus):
    model = clone(model).fit(corpus.counts())
    message = LocalModel.from_estimator(model, "north", 0, HASH)
    assert (message.unit, message.epsilon, message.delta) == (unit, model.epsilon_, model.delta_)
    assert message.weight == pytest.approx(model.components_.sum())
    phi = model.components_ / model.components_.sum(axis=1, keepdims=True)
    assert_allclose(message.table, phi, rtol=1e-6)
    assert LocalModel.from_bytes(message.to_bytes()) == message


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (GibbsLDA(K, max_iter=2), "no privacy guarantee"),
        (IFTMParty(K, token_epsilon=math.inf, max_iter=2), "no privacy guarantee"),
        (IFTMParty(K, token_epsilon=5.0, max_iter=2, random_state=0), "know or guess"),
        (SubLDA(K, epsilon=5.0, max_iter=2, random_state=0), "know or guess"),
    ],
    ids=repr,
)
def test_a_message_without_privacy_warns(model, reason, corpus):
    model = clone(model).fit(corpus.counts())
    with pytest.warns(PrivacyLeakWarning, match=reason):
        LocalModel.from_estimator(model, "north", 0, HASH)


def test_messages_of_models_that_cannot_be_sent(corpus):
    with pytest.raises(NotFittedError):
        LocalModel.from_estimator(SubLDA(K), "north", 0, HASH)
    model = SubLDA(K, epsilon=5.0, max_iter=2).fit(corpus.counts())
    for bad in (0.0, -1.0):
        model.components_[1] = bad
        with pytest.raises(MessageError, match="no negative entry and no empty topic"):
            LocalModel.from_estimator(model, "north", 0, HASH)


def test_no_fitted_word_and_no_key_is_in_a_party(corpus):
    for party in TOKENS:
        content = pickle.dumps(clone(party).fit(corpus))
        assert corpus._split().word.tobytes() not in content
        assert b"Streams" not in content
