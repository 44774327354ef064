"""Private topic modeling as published: it is Algorithm 1 of the paper.

Its noise is too small.
"""

import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from estimators import observed
from private_svi import noise_of
from scipy.special import psi
from scipy.stats import norm

from dplda.core._fold_in import e_step, exp_dirichlet_expectation
from dplda.datasets import make_topic_corpus
from dplda.document._noisy_table import nearly_equal
from dplda.privacy import Gaussian, Repeated, epsilon_of
from dplda.privacy._streams import Purpose
from dplda.privacy.mechanisms import Streams, uniform
from dplda.published import PublishedPrivateSVILDA
from dplda.published._svilda import uniform_sample

K = 3
pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")


@pytest.fixture(scope="module")
def corpus():
    return make_topic_corpus(60, 40, K, doc_length=30, random_state=0).data


def fitted(X, n_components=K, published_epsilon=1.0, **parameters):
    """The model fitted to X, and the noisy statistics of its rounds."""
    parameters |= {"published_epsilon": published_epsilon}
    model, seen = observed(PublishedPrivateSVILDA(n_components, **parameters), X)
    assert list(seen["expected statistics"]) == list(range(1, model.n_iter_ + 1))
    return model, list(seen["expected statistics"].values())


def first_table(seed):
    words = (
        Streams.from_random_state(seed).reader(Purpose.INITIAL_TABLE, 0).words(40 * K)
    )
    return nearly_equal(uniform(words, positive=True)).reshape(40, K)


@pytest.mark.parametrize(("epsilon", "size"), [(0.5, 3), (8.0, 20)])
def test_noise_is_that_of_the_mean_over_all_documents(epsilon, size):
    """Empty documents have no statistics: announced is noise, of sd sigma N / D."""
    X = sp.csr_array((50, 2000))
    model, noise = fitted(
        X, 4, epsilon, batch_size=size, max_iter=5, max_doc_tokens=30, random_state=0
    )
    assert noise[0].shape == (2000, 4)
    scale = model.noise_multiplier_ * 30 / 50
    np.testing.assert_allclose(
        np.std(noise, axis=(1, 2)), scale, rtol=5 / math.sqrt(2 * 8000)
    )
    assert abs(np.mean(noise)) < 5 * scale / math.sqrt(40000)
    flat = np.reshape(noise, (5, -1))
    assert np.abs(np.corrcoef(flat) - np.eye(5)).max() < 5 / math.sqrt(8000)


def test_statistics_are_a_mean_over_the_minibatch(corpus):
    """One topic: the statistics are word counts, divided by S and not by D."""
    _, seen = fitted(corpus, 1, math.inf, batch_size=12, max_iter=3, random_state=5)
    streams = Streams.from_random_state(5)
    for t, statistics in enumerate(seen, 1):
        batch = corpus[uniform_sample(60, 12, streams, t)].toarray()
        np.testing.assert_allclose(statistics[:, 0], batch.sum(axis=0) / 12, atol=1e-6)


def test_statistics_are_those_of_the_e_step(corpus):
    """phi by its formula, token by token, from Dirichlet parameters of the E-step."""
    _, (statistics,) = fitted(
        corpus, K, math.inf, batch_size=60, max_iter=1, random_state=2
    )
    table = first_table(2)
    gamma, _ = e_step(
        sp.csr_array(corpus, dtype=float),
        exp_dirichlet_expectation(table, float),
        n_components=K,
        doc_topic_prior=0.1,
    )
    gamma = gamma[:, :K]
    expected = np.zeros((40, K))
    for d, row in enumerate(corpus.toarray()):
        log_phi = (
            psi(table) - psi(table.sum(axis=0)) + psi(gamma[d]) - psi(gamma[d].sum())
        )
        phi = np.exp(log_phi)
        expected += row[:, None] * phi / phi.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(statistics, expected / 60, atol=1e-6)


def test_topics_step_towards_the_noisy_statistics(corpus):
    """lambda <- (1 - rho_t) lambda + rho_t (eta + D max(s, 0)).

    Here rho_t = (tau_0 + t)^-kappa.
    """
    model, seen = fitted(
        corpus,
        batch_size=6,
        max_iter=4,
        learning_decay=0.6,
        learning_offset=3.0,
        topic_word_prior=0.02,
        random_state=4,
    )
    table = first_table(4)
    for t, noisy in enumerate(seen, 1):
        assert (noisy < 0).any()
        rate = (3.0 + t) ** -0.6
        table = (1 - rate) * table + rate * (0.02 + 60 * np.maximum(noisy, 0))
    np.testing.assert_allclose(model.components_, table.T, rtol=1e-12)


def test_minibatches_are_uniform_sets_of_fixed_size():
    streams = Streams.from_random_state(0)
    batches = [uniform_sample(20, 5, streams, t) for t in range(4000)]
    assert all(
        len(np.unique(batch)) == 5 and (np.diff(batch) > 0).all() for batch in batches
    )
    drawn = np.bincount(np.concatenate(batches), minlength=20) / 4000
    np.testing.assert_allclose(drawn, 0.25, atol=5 * math.sqrt(0.1875 / 4000))
    pairs = np.mean([{0, 1} <= set(batch.tolist()) for batch in batches])
    assert pairs == pytest.approx(5 * 4 / (20 * 19), abs=5 * math.sqrt(0.05 / 4000))


@pytest.mark.parametrize(("size", "n_rounds"), [(6, 30), (60, 10)])
def test_epsilon_is_that_of_the_noise_that_was_drawn(size, n_rounds, corpus):
    """Gaussian differential privacy in closed form, of mu = sqrt(2 J) D / (S sigma)."""
    model, _ = fitted(corpus, delta=1e-3, batch_size=size, max_iter=n_rounds)
    mu = math.sqrt(2 * n_rounds) * 60 / (size * model.noise_multiplier_)
    if mu < 30:
        a, b = (
            norm.cdf(mu / 2 - model.epsilon_ / mu),
            norm.logcdf(-mu / 2 - model.epsilon_ / mu),
        )
        assert a - math.exp(model.epsilon_ + b) == pytest.approx(1e-3, rel=1e-3)
    event = Repeated(Gaussian(math.sqrt(n_rounds) / mu), n_rounds)
    assert model.epsilon_ == pytest.approx(epsilon_of(event, 1e-3), rel=1e-9)
    assert model.epsilon_ == model.privacy_.epsilon == model.privacy_.epsilon_at(1e-3)
    assert model.delta_ == 1e-3
    assert model.published_epsilon_ == 1.0
    if size == 6:
        assert model.epsilon_ > 100
    assert "one document is replaced" in str(model.privacy_)
    assert "published epsilon, 1, is for a mean over all documents" in str(
        model.privacy_
    )
    assert "real numbers" in str(model.privacy_)


def test_no_warning_where_the_claim_is_true(corpus):
    """All documents in each round, and a large delta, where the zCDP bound is loose."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, _ = fitted(corpus, batch_size=60, max_iter=20, delta=0.001)
    assert model.epsilon_ <= model.published_epsilon_ == 1.0


def test_a_minibatch_of_more_documents_than_there_are(corpus):
    with pytest.raises(ValueError, match="batch_size is 61, but X has 60 documents"):
        fitted(corpus, batch_size=61)


@pytest.mark.parametrize("composition", ["zcdp", "advanced", "linear"])
def test_published_budgets_of_a_round_give_the_total_back(composition):
    rate, delta, n = 1e-3, 1e-5, 50
    delta_round = delta / n / (2 if composition == "advanced" else 1)
    noise = noise_of(composition, 2.0, delta, rate, n)
    epsilon_iter = math.sqrt(2 * math.log(1.25 * rate / delta_round)) / noise
    x = math.log1p(rate * math.expm1(epsilon_iter))
    if composition == "advanced":
        total = n * x * math.expm1(x) + math.sqrt(2 * n * math.log(2 / delta)) * x
    elif composition == "linear":
        total = n * x
    else:
        rho = n * x**2 / (4 * math.log(1.25 / delta_round))
        total = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert total == pytest.approx(2.0, rel=1e-9)
