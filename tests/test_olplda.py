"""OLP-LDA: the recurrences of the paper, batch by batch, and what a public corpus does."""

import math

import numpy as np
import pytest

from dplda import OLPLDA, RandomizedResponse
from dplda.datasets import make_topic_corpus
from dplda.local import _lplda
from dplda.local._lplda import estimate_counts, weight_of_prior
from dplda.metrics import unigram_perplexity
from dplda.privacy import Ledger

K = 3
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(300, 40, K, doc_length=30, random_state=0).data


@pytest.fixture(scope="module")
def reports(corpus):
    return RandomizedResponse(bit_epsilon=1.5, max_doc_words=20).fit(corpus).transform(corpus)


@pytest.fixture
def batches(monkeypatch):
    """What each batch was trained on: documents, prior, background and counts."""
    seen = []
    original = _lplda.topic_counts

    def spy(documents, prior, background, **rest):
        seen.append([documents, prior, background])
        seen[-1].append(original(documents, prior, background, **rest))
        return seen[-1][-1]

    monkeypatch.setattr(_lplda, "topic_counts", spy)
    return seen


def server(**parameters):
    defaults = {"bit_epsilon": 1.5, "max_doc_words": 20, "randomized": True, "max_iter": 4}
    return OLPLDA(K, **(defaults | parameters))


def ones(X):
    return (X.toarray() > 0).sum(axis=0)


def test_prior_of_a_batch_is_that_of_equation_10(corpus, reports, batches):
    model = server(correlation=0.3, batch_size=60).fit_prior(corpus[:50]).fit(reports[50:])
    expected = np.full((40, K), 0.01)
    assert len(batches) == 1 + 5
    for _, prior, _, counts in batches:
        np.testing.assert_allclose(prior, expected)
        expected = expected + 0.3 * counts
    np.testing.assert_allclose(model.components_.T, prior + counts)
    assert model.n_batches_ == 5
    assert model.n_iter_ == 6 * 4


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("weight", [{}, {"prior_weight": 0.7}, {"prior_variance": 25.0}])
def test_counts_of_a_batch_are_those_of_equations_19_and_21(
    public, weight, corpus, reports, batches
):
    model = server(reconstruction="bits", **weight)
    mean = eta = size = None
    if public:
        model.fit_prior(corpus[:50])
        mean = eta = ones(corpus[:50])
        size = 50
    for batch in (reports[50:130], reports[130:150], reports[150:]):
        model.partial_fit(batch)
        n_docs, flip = batch.shape[0], model.flip_probability_
        estimate = estimate_counts(ones(batch), n_docs, flip)
        if mean is None:
            mean = eta = estimate
        else:
            mean = np.minimum((mean + eta) / 2 * n_docs / size, n_docs)
            omega = weight.get("prior_weight", 0.4)
            if "prior_variance" in weight:
                omega = weight_of_prior(n_docs, flip, 25.0)
            eta = omega * mean + (1 - omega) * estimate
        size = n_docs
        np.testing.assert_array_equal(ones(batches[-1][0]), np.rint(eta))
        assert batches[-1][0].shape == batch.shape


def test_fit_is_its_batches_in_order(corpus, reports):
    parameters = {"random_state": 0, "batch_size": 100}
    whole = server(**parameters).fit_prior(corpus[:60]).fit(reports)
    parts = server(**parameters).fit_prior(corpus[:60])
    for start in (0, 100, 200):
        parts.partial_fit(reports[start : start + 100])
    np.testing.assert_array_equal(whole.components_, parts.components_)
    assert whole.n_iter_ == parts.n_iter_ == 16
    again = whole.fit(reports)  # from the public corpus again
    np.testing.assert_array_equal(again.components_, parts.components_)
    assert again.n_batches_ == 3


def test_the_public_corpus_alone_is_a_model(corpus):
    model = server(max_iter=30).fit_prior(corpus)
    assert (model.components_ - 0.01).sum() == pytest.approx(corpus.sum())  # counts, not presence
    assert model.n_batches_ == 0
    assert model.perplexity(corpus) < 0.9 * unigram_perplexity(corpus, corpus)


def test_that_it_is_public_is_an_assumption(corpus, reports):
    plain, informed = server().fit(reports), server().fit_prior(corpus[:20])
    assert not any("fit_prior" in a for a in plain.privacy_.assumptions)
    for model in (informed, informed.fit(reports), informed.partial_fit(reports)):
        said = [a for a in model.privacy_.assumptions if "fit_prior was given is public" in a]
        assert len(said) == 1
    assert informed.epsilon_ == plain.epsilon_
    assert "public" in OLPLDA.fit_prior.__doc__


def test_a_prior_of_another_shape_is_refused_and_costs_nothing(corpus):
    ledger = Ledger(epsilon=1000.0)
    model = server(randomized=False, ledger=ledger).fit_prior(corpus[:, :30])
    for call in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=r"40 features.*30 features"):
            call(corpus)
    model.set_params(n_components=K + 1)
    with pytest.raises(ValueError, match=f"fit_prior had n_components={K}"):
        model.fit(corpus[:, :30])
    assert {entry.status for entry in ledger.entries()} == {"canceled"}


def test_the_randomizer_may_change_until_there_are_reports(corpus, reports):
    model = server(bit_epsilon=5.0).fit_prior(corpus[:50]).set_params(bit_epsilon=1.5).fit(reports)
    assert model.bit_epsilon_ == pytest.approx(1.5)
    with pytest.raises(ValueError, match="same randomizer"):
        model.set_params(bit_epsilon=5.0).partial_fit(reports)


def test_infinite_epsilon_is_online_sampling_of_presence(corpus, batches):
    model = OLPLDA(K, bit_epsilon=math.inf, max_doc_words=None, max_iter=20, random_state=0)
    model.fit_prior(corpus[:50]).fit(corpus[50:])
    assert model.epsilon_ == math.inf
    np.testing.assert_array_equal(batches[1][0].toarray(), corpus[50:210].toarray() > 0)
    np.testing.assert_array_equal(batches[2][0].toarray(), corpus[210:].toarray() > 0)
    assert not any(background.any() for _, _, background, _ in batches)
    assert model.perplexity(corpus) < 0.9 * unigram_perplexity(corpus, corpus)


def test_more_epsilon_and_a_public_corpus_help():
    X = make_topic_corpus(1300, 100, 5, doc_length=40, random_state=0).data
    public, train, test = X[:100], X[100:1100], X[1100:]

    def perplexity(epsilon, informed):
        model = OLPLDA(5, bit_epsilon=epsilon, max_doc_words=None, random_state=0)
        return (model.fit_prior(public) if informed else model).fit(train).perplexity(test)

    strong, weak, none = (perplexity(epsilon, False) for epsilon in (0.3, 3.0, math.inf))
    assert strong > 1.05 * weak > 1.05 * none
    assert perplexity(1.0, True) < 0.97 * perplexity(1.0, False)
