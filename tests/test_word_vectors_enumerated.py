"""Enumerations of word vectors: what they expect of a word, by slow twins and laws."""

import numpy as np
import pytest
from shared_cases import meanings

from dplda.datasets import make_topic_corpus
from dplda.document._public_words import SHARP, PublicWords, Vectors, left_out
from dplda.document._table_estimate import NoisyCells, estimated

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")


K, N_WORDS = 5, 200


@pytest.fixture(scope="module")
def made():
    return make_topic_corpus(1100, N_WORDS, K, doc_length=50, random_state=3)


@pytest.fixture(scope="module")
def vectors(made):
    return meanings(made)


def test_what_is_expected_of_words_does_not_repeat_the_noise_of_their_rows():
    """Of many-dimensional vectors, which fit any rows if a word's own is left in."""
    repeated = []
    for seed in range(5):
        random = np.random.default_rng(seed)
        public = PublicWords.of(random.normal(size=(N_WORDS, 80)), None)
        noise, totals = np.full(N_WORDS, 5.0), np.full(N_WORDS, 100.0)
        noisy = totals[:, None] / K + random.normal(0, 5, (N_WORDS, K))
        expected, *_ = public.expect(
            noisy, noise, totals, np.full(K, 1 / K), is_final=True
        )
        repeated.append(np.corrcoef(expected.ravel(), noisy.ravel())[0, 1])
    assert np.mean(repeated) < 0.02


@pytest.mark.parametrize("wrong", [False, True])
def test_rows_that_repeat_the_table_do_not_confirm_what_was_expected(wrong):
    """A round sees 0.1 of the truth, 0.9 of the last estimate: all words but some."""
    errors = {None: [], "vectors": []}
    for seed in range(3):
        for kind, found in errors.items():
            random = np.random.default_rng(seed)
            truth = random.dirichlet(np.full(K, 0.3), 400)
            vectors = truth @ random.normal(size=(K, 40)) + 0.1 * random.normal(
                size=(400, 40)
            )
            vectors = random.permutation(vectors) if wrong else vectors
            public = None if kind is None else PublicWords.of(vectors, None)
            totals, average = np.full(400, 100.0), 0.0
            shares, prior = truth, None
            for n in range(1, 41):
                noisy = 100 * shares + random.normal(0, 100, shares.shape)
                average += (noisy - average) / n
                cells = NoisyCells(average, np.full(400, 100 / n**0.5), totals)
                table, prior = estimated(cells, prior, public, is_final=n == 40)
                shares = 0.9 * table / table.sum(axis=1, keepdims=True) + 0.1 * truth
            found.append(
                np.abs(table / table.sum(axis=1, keepdims=True) - truth).mean()
            )
    ratio = np.mean(errors["vectors"]) / np.mean(errors[None])
    assert ratio < (1.015 if wrong else 0.8)


def test_a_word_is_left_out_exactly():
    random = np.random.default_rng(0)
    features, rows = random.normal(size=(30, 4)), random.normal(size=(30, 3))
    precision = random.uniform(0.1, 2, 30)
    found = left_out(features, rows, precision, 1.7)
    for word in range(30):
        others = np.arange(30) != word
        E, w = features[others], precision[others, None]
        weights = np.linalg.solve(
            E.T @ (w * E) + 1.7 * np.eye(4), E.T @ (w * rows[others])
        )
        np.testing.assert_allclose(found[word], features[word] @ weights, rtol=1e-9)


def test_what_is_expected_of_a_word_does_not_depend_on_its_own_row(vectors):
    random = np.random.default_rng(0)
    public = PublicWords.of(vectors, None)
    totals, noise = random.gamma(1, 100, N_WORDS), np.full(N_WORDS, 5.0)
    noisy = totals[:, None] * random.dirichlet(np.ones(K), N_WORDS)
    rows = noisy / totals[:, None] - 1 / K
    one = left_out(public.vectors.directions, rows, np.ones(N_WORDS), 1.0)
    rows[7] = 9.0
    other = left_out(public.vectors.directions, rows, np.ones(N_WORDS), 1.0)
    np.testing.assert_allclose(other[7], one[7], rtol=1e-6)
    assert not np.allclose(other[8], one[8])
    expected, *_ = public.expect(noisy, noise, totals, np.full(K, 1 / K))
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    assert expected.min() > 0


def test_weak_noise_outweighs_what_vectors_say():
    """Vectors tell topics 0 and 1, and know nothing of the words of topic 2."""
    random = np.random.default_rng(0)
    topic = np.arange(300) % 2
    vectors = random.normal(3 * np.eye(30)[topic])
    topic[::17] = 2
    counts = np.where(topic[:, None] == [0, 1, 2], 990.0, 5.0)
    cells = NoisyCells(counts, np.full(300, 3.0), counts.sum(axis=1))
    table, prior = estimated(cells, None, PublicWords.of(vectors, None), is_final=True)
    assert prior.expected[topic == 2, 2].min() < 0.01  # at a word that has 990 there
    np.testing.assert_allclose(table, counts, atol=15.0)


@pytest.mark.parametrize("sharpness", [2.0, 5.0, 6.0, 8.0])
def test_released_rows_say_how_sharp_clusters_are(sharpness):
    """They are no flatter than without a topic that is read, and at most 2 sharper.

    They are as flat, too, if noise hides the rows. The topics have other sizes than the
    clusters.
    """
    random = np.random.default_rng(0)
    groups = random.choice(K, 400, p=[0.6, 0.2, 0.1, 0.05, 0.05])
    means = random.normal(size=(K, 20))
    vectors = Vectors.of(means[groups] + random.normal(size=(400, 20)))
    centers = vectors.centers(np.eye(K)[groups])
    shares = vectors.around(centers, sharpness) + [-0.3, 0.0, 0.1, 0.1, 0.1]
    totals = random.gamma(2.0, size=400) * 100
    of_topics = totals @ shares / totals.sum()
    for noise, read, expected in (
        (3.0, True, pytest.approx(np.clip(sharpness, SHARP, SHARP + 2), abs=0.5)),
        (3.0, False, SHARP),
        (1e6, True, SHARP),
    ):
        scale = np.full(400, noise)
        noisy = totals[:, None] * shares + random.normal(0, noise, shares.shape)
        topics = np.full(K, read)
        found = vectors.sharpness(centers, topics, noisy, scale, totals, of_topics)
        assert found == expected


def test_clusters_lie_around_the_words_of_their_topics():
    """A word belongs most to the topic of its direction; without a vector, to all."""
    random = np.random.default_rng(0)
    topics = np.arange(300) % K
    means = random.normal(size=(K, 12))
    vectors = means[topics] + 0.3 * random.normal(size=(300, 12))
    vectors[::10] = 0
    table = np.full((300, K), 1.0)
    table[np.arange(300), topics] = 20.0
    public = Vectors.of(vectors)
    centers = public.centers(table)
    known = vectors.any(axis=1)
    for found in (centers, public.spread(centers)):
        shares = public.around(found)
        assert (shares.argmax(axis=1) == topics)[known].all()
        np.testing.assert_allclose(shares[~known], 1 / K, rtol=1e-6)
    # an empty topic, and words without vectors, have no direction
    table[:, 0] = 0
    assert np.isfinite(public.around(public.centers(table))).all()
    nothing = Vectors.of(np.eye(300, 12) * (np.arange(300) == 0)[:, None])
    assert np.isfinite(nothing.around(nothing.spread(nothing.centers(table)))).all()
