"""Enumerations of public tables: word totals, first tables and cells, by laws."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from dplda import PrivateSVILDA, SubLDA, public_prior
from dplda.datasets import make_topic_corpus
from dplda.document._noisy_table import random_table
from dplda.document._public_words import PublicWords
from dplda.document._table_estimate import NoisyCells, estimated
from dplda.document._word_totals import ExactTotals, WordTotals
from dplda.privacy import LowSignalWarning
from dplda.privacy.mechanisms import Streams

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)
K, N_WORDS = 4, 150
OPTIONS = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "max_iter": 20,
    "n_jobs": 1,
    "subsampling_ratio": 1.0,
}
both = pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])


@pytest.fixture(scope="module")
def made():
    return make_topic_corpus(660, N_WORDS, K, doc_length=50, random_state=3)


@pytest.fixture(scope="module")
def good(made):
    """Pseudo-counts of about 8000 public tokens with the private documents' topics."""
    topics = made.components / made.components.sum(axis=1, keepdims=True)
    return np.random.default_rng(0).poisson(topics * 8000 / K) + 0.01


@pytest.fixture(scope="module")
def train(made):
    return made.data[:600]


def fitted(kind, X, seed=0, **options):
    return kind(K, random_state=seed, **(OPTIONS | options)).fit(X)


def noisy_totals(seed, scale=60.0):
    rng = np.random.default_rng(seed)
    totals = rng.permutation(30000 / np.arange(1, 801))
    return totals, totals + rng.normal(0, scale, 800), np.full(800, scale)


def prior_of(counts):
    return PublicWords.of(None, np.tile(np.asarray(counts, float) / K, (K, 1)))


def log_loss(totals, found):
    return -(totals / totals.sum() * np.log(found / found.sum())).sum()


def test_probabilities_in_the_place_of_counts_warn(good):
    with pytest.warns(
        LowSignalWarning, match="sums to 1, so that it counts as one public token"
    ):
        PublicWords.of(None, good / good.sum(axis=1, keepdims=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PublicWords.of(None, good)


def smooth(noisy, scale):
    return WordTotals(noisy, scale, noisy.mean()).smooth()


def learned(public, noisy, scale):
    return public.totals(WordTotals(noisy, scale, noisy.mean()))


def test_released_word_weights_improve_word_totals():
    """A table of them has the frequencies in all topics alike."""
    totals, noisy, scale = noisy_totals(0, 200.0)
    weights = totals / 20 * np.random.default_rng(1).lognormal(0, 0.3, 800)
    vectorizer = SimpleNamespace(
        word_weights_=weights + np.random.default_rng(2).normal(0, 2.0, 800),
        word_weight_scale_=2.0,
        get_feature_names_out=lambda: np.arange(800).astype(str),
    )
    table = public_prior(vocabulary=vectorizer, n_components=K)
    assert table.shape == (K, 800)
    assert (table == table[0]).all()
    found = learned(PublicWords.of(None, table), noisy, scale)
    least, alone = (log_loss(totals, totals), log_loss(totals, smooth(noisy, scale)))
    assert log_loss(totals, found) - least < 0.7 * (alone - least)


@pytest.mark.parametrize("seed", range(3))
def test_public_frequencies_are_kept_where_releases_say_little(seed):
    """The estimate loses at most half a percent of perplexity to public frequencies."""
    totals, noisy, _ = noisy_totals(seed, 3000.0)
    public = prior_of(
        np.random.default_rng(seed + 9).poisson(totals / totals.sum() * 50_000)
    )
    found = public.totals(WordTotals(noisy, np.full(800, 3000.0), totals.mean()))
    assert log_loss(totals, found) < log_loss(totals, public.topics.counts + 1) + 0.005


def test_words_without_public_tokens_are_even_in_all_topics():
    table = np.array([[0.0, 6.0], [0.0, 0.0], [0.0, 0.0]])
    shares = PublicWords.of(None, table).topics.shares
    np.testing.assert_allclose(shares[0], 1 / 3)
    assert shares[1, 0] > 0.8


@pytest.mark.parametrize("concentration", [0.5, 8.0])
def test_public_rows_are_smoothed_as_much_as_they_differ(concentration):
    """Close to the posterior mean under the law that the counts come from."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(5, concentration / 5), 2000)
    counts = np.array([rng.multinomial(10, row) for row in rows])
    found = PublicWords.of(None, counts.T.astype(float)).topics.shares
    exact = (counts + concentration / 5) / (10 + concentration)
    assert np.abs(found - exact).max() < 0.02


def test_words_without_public_tokens_have_the_topics_of_words_like_them():
    rng = np.random.default_rng(0)
    topic = rng.integers(0, K, 300)
    vectors = np.eye(K)[topic] + 0.1 * rng.normal(size=(300, K))
    counts = np.where(np.arange(300) % 3, 5.0, 0.0) * np.eye(K)[:, topic]
    found = PublicWords.of(vectors, counts).topics
    unknown = counts.sum(axis=0) == 0
    assert (found.shares[unknown].argmax(axis=1) == topic[unknown]).mean() > 0.95
    assert found.says.all()
    # a few seed words say nothing of other words
    seeds = np.where(np.arange(300) < 30, counts, 0.0)
    of_seeds = PublicWords.of(vectors, seeds).topics
    np.testing.assert_array_equal(of_seeds.says, seeds.sum(axis=0) > 0)


def test_public_topics_have_their_private_shares():
    """Of drowned cells whose topics have other shares than in public."""
    rng = np.random.default_rng(0)
    totals, shares = rng.gamma(0.3, 500, 301) + 1, rng.dirichlet(np.full(K, 0.3), 301)
    public = PublicWords.of(None, shares.T * 1e6)
    private = np.arange(1.0, K + 1)
    private /= private.sum()
    noisy = np.outer(totals, private)
    found, *_ = public.expect(noisy, np.full(301, 1e9), totals, private, is_final=True)
    expected = shares * private / np.average(shares, axis=0, weights=totals)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("n_tokens", [50, 5000, 10**7])
@pytest.mark.parametrize("scale", [1.0, 60.0, 200.0])
def test_other_frequencies_leave_word_totals_as_they_are(n_tokens, scale):
    totals, noisy, scale = noisy_totals(0, scale)
    other = np.random.default_rng(2).permutation(totals)
    public = prior_of(np.random.default_rng(1).poisson(other / other.sum() * n_tokens))
    found, alone = learned(public, noisy, scale), smooth(noisy, scale)
    assert log_loss(totals, found) < log_loss(totals, alone) + 0.01


def test_drowned_cells_are_the_public_ones():
    rng = np.random.default_rng(0)
    totals, shares = rng.gamma(0.3, 500, 301) + 1, rng.dirichlet(np.full(20, 0.3), 301)
    public = PublicWords.of(None, shares.T * 1e6)
    cells = NoisyCells(totals[:, None] * shares, np.full(301, 1e6), totals)
    found, _ = estimated(cells, public=public, is_final=True)
    found /= found.sum(axis=1, keepdims=True)
    assert np.abs(found - shares).mean() < 0.1 * np.abs(1 / 20 - shares).mean()


def test_the_first_table_is_public_where_words_have_counts():
    rng = np.random.default_rng(0)
    counts = rng.gamma(0.5, 100, (K, 60)) * (np.arange(60) > 9)
    totals = 1 + rng.gamma(1, 100, 60)
    exact, public = (
        ExactTotals(totals, np.zeros(60), totals.mean()),
        PublicWords.of(None, counts),
    )
    one, other = (
        random_table(exact, np.ones(60), K, Streams.from_random_state(0), p).average
        for p in (None, public)
    )
    np.testing.assert_allclose(
        other[10:], (totals[:, None] * public.topics.shares)[10:]
    )
    np.testing.assert_array_equal(other[:10], one[:10])


@both
def test_what_a_model_keeps_is_public(kind, train, good):
    """Two fits with one table keep equal things of it, whatever the documents are."""
    kept = [
        fitted(kind, X, prior_components=good, max_iter=1)._released.public.topics
        for X in (train, train[:9])
    ]
    np.testing.assert_array_equal(kept[0].shares, kept[1].shares)
    np.testing.assert_array_equal(kept[0].counts, good.sum(axis=0))
    model = fitted(kind, train, prior_components=good, max_iter=2)
    again = pickle.loads(pickle.dumps(model))
    assert again.prior_trust_ == model.prior_trust_
