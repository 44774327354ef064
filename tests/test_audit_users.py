"""Audits of users with several documents, and of the private vocabulary, with planted faults."""

import numpy as np
import pytest
from scipy.stats import binom

from dplda import PrivateCountVectorizer, PrivateSVILDA, SubLDA
from dplda.audit import UserAttack, audit_epsilon, independent_lower_bound
from dplda.datasets import make_topic_corpus
from dplda.document._documents import Documents
from dplda.privacy import ApproximateDP, Gaussian, epsilon_of
from dplda.privacy.mechanisms import DiscreteGaussian
from dplda.text import _selection

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.PrivacyLeakWarning"
)
ROUNDS = {"delta": 1e-5, "max_iter": 4}
USERS = {
    "SubLDA": SubLDA(2, epsilon=4.0, **ROUNDS),
    "PrivateSVILDA": PrivateSVILDA(2, epsilon=4.0, subsampling_ratio=1.0, **ROUNDS),
    "SubLDA, sampled": SubLDA(2, epsilon=4.0, subsampling_ratio=0.5, **ROUNDS),
    "PrivateSVILDA, sampled": PrivateSVILDA(2, epsilon=4.0, **ROUNDS),
}
OPTIONS = {"attack": UserAttack, "n_canaries": 1000, "random_state": 0}


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(n_docs=30, n_words=30, n_components=2, random_state=0).data


# users


def in_default_tests(names):
    return [pytest.param(n, marks=() if n == "SubLDA" else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", in_default_tests(USERS))
def test_a_user_with_several_documents_costs_what_is_claimed(name, X):
    result = audit_epsilon(USERS[name], X, **OPTIONS)
    assert result.relation == "a user with three documents is there or not"
    assert result.claim == pytest.approx(4.0, rel=1e-3)
    assert not result.refuted, str(result.residuals)
    assert max(b.epsilon for b in result.bounds) > 0.6 * result.claim


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SubLDA", "SubLDA, sampled", "PrivateSVILDA"])
def test_calls_of_partial_fit_protect_users(name, X):
    result = audit_epsilon(USERS[name], X, method="partial_fit", **OPTIONS)
    assert not result.refuted
    assert max(b.epsilon for b in result.bounds) > 0.5 * result.claim


@pytest.mark.parametrize("name", in_default_tests(["SubLDA", "PrivateSVILDA"]))
def test_a_clip_of_each_document_in_place_of_each_user_is_found(name, X, monkeypatch):
    true_documents = Documents.from_counts
    monkeypatch.setattr(
        Documents, "from_counts",
        lambda X, k, n_jobs, users=None, *keep: true_documents(X, k, n_jobs, None, *keep),
    )  # fmt: skip
    result = audit_epsilon(USERS[name], X, **OPTIONS)
    assert result.claim == pytest.approx(4.0, rel=1e-3)
    assert result.exceeds_claim or result.mechanism_refuted
    assert max(b.epsilon for b in result.bounds) > 2 * result.claim
    line = "what a document changes, over the sensitivity"
    assert line in [test.name for test in result.residuals.failures]


# the private vocabulary

LISTED = ["apple", "banana", "cherry"]
N_TEXTS = 2000


def texts_that_show(n_terms):
    """How many of 2000 texts, each of `n_terms` words of its own, have a word in the vocabulary."""
    words = [[f"w{i}x{j}" for j in range(n_terms)] for i in range(N_TEXTS)]
    model = PrivateCountVectorizer(
        noise_multiplier=4.0, delta=0.5, candidates=LISTED, max_features=None, max_doc_words=10,
        random_state=0,
    ).fit([" ".join(own) for own in words])  # fmt: skip
    (failure,) = (e.delta for e in model.privacy_.events if isinstance(e, ApproximateDP))
    n_shown = sum(not model.vocabulary_.keys().isdisjoint(own) for own in words)
    return n_shown, int(binom.isf(1e-6, N_TEXTS, failure))


@pytest.mark.parametrize("n_terms", [1, 10, 30])
def test_words_of_one_text_show_as_rarely_as_the_failure_that_is_charged(n_terms):
    n_shown, most = texts_that_show(n_terms)
    assert n_shown <= most
    assert n_shown > (0.5 if n_terms >= 10 else 0.0) * most  # the charge is that of ten words


def test_a_threshold_for_one_word_a_text_is_found(monkeypatch):
    true_threshold = _selection.selection_threshold
    monkeypatch.setattr(
        _selection, "selection_threshold", lambda noise, delta, _: true_threshold(noise, delta, 1)
    )
    n_shown, most = texts_that_show(10)
    assert n_shown > most


def bound_on_listed_words():
    """Each canary is a text of one word of the public list; the score is its noisy weight."""
    words = [f"w{i}" for i in range(2000)]
    coins = np.random.default_rng(0).random(2000) < 0.5
    model = PrivateCountVectorizer(
        epsilon=1.0, delta=1e-5, candidates=words, max_features=None, random_state=0
    ).fit([word for word, coin in zip(words, coins) if coin])
    weights = model.word_weights_[[model.vocabulary_[word] for word in words]]
    noise = [event for event in model.privacy_.events if isinstance(event, Gaussian)]
    n_right = int(((weights > 0.5) == coins).sum())
    bound = independent_lower_bound(2000, n_right, noise, delta=1e-5)
    return bound, epsilon_of(noise, 1e-5)


def test_a_word_of_the_list_costs_what_is_claimed():
    bound, claim = bound_on_listed_words()
    assert 0.3 * claim < bound <= claim


def test_noise_on_the_words_that_were_seen_only_is_found(monkeypatch):
    true_add = DiscreteGaussian.add_to

    def add_to(self, cells, reader, n_jobs=None):
        unseen = cells == 0
        true_add(self, cells, reader)
        cells[unseen] = 0

    monkeypatch.setattr(DiscreteGaussian, "add_to", add_to)
    bound, claim = bound_on_listed_words()
    assert bound > 2 * claim
