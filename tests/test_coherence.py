"""Coherence, diversity, topic pairs: known values, a slow twin, gensim, refusals."""

import itertools
import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import UndefinedMetricWarning

from dplda.metrics import coherence, match_topics, topic_diversity

MEASURES = ("c_npmi", "u_mass")
WORDS = ["bread", "flour", "oven", "port", "sail", "salt", "sea", "ship", "wind"]
TEXTS = [
    "sea ship port",
    "sea ship",
    "sea sail ship wind",
    "oven bread",
    "oven bread flour wind",
    "bread flour salt sea",
    "salt oven",
    "ship sail",
]
TOPICS = ["ship sea sail", "bread oven flour", "wind salt port"]
# gensim 4.4.0, CoherenceModel(coherence=..., topn=3); c_npmi with a window longer than
# the texts
GENSIM = {
    "u_mass": [-0.7890412047056502, -0.6365141682894796, -26.244726754808656],
    "c_npmi": [0.30446336841162175, 0.42030069400820086, -0.8829327794640074],
}


def counted(texts):
    return np.array([[text.split().count(word) for word in WORDS] for text in texts])


def table(topics):
    """Tables whose largest cells are the words of a topic, in their order."""
    rows = [
        [topic.split().index(w) if w in topic.split() else 99 for w in WORDS]
        for topic in topics
    ]
    return 100.0 - np.array(rows)


@pytest.mark.parametrize("measure", MEASURES)
def test_stored_values_of_gensim(measure):
    found = coherence(table(TOPICS), counted(TEXTS), measure=measure, n_top_words=3)
    assert_allclose(found, GENSIM[measure], rtol=1e-12)


@pytest.mark.parametrize("measure", MEASURES)
def test_words_without_reference_are_left_out(measure):
    """No log of 0, and no warning: the texts say nothing about such a pair.

    Of the last topic, only wind is left: it has no coherence, and a warning says so.
    """
    X = counted(TEXTS)
    X[:, [WORDS.index("sail"), WORDS.index("salt"), WORDS.index("port")]] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known = coherence(table(TOPICS[:2]), X, measure=measure, n_top_words=3)
        alone = coherence(table(["ship sea"]), X, measure=measure, n_top_words=2)
    assert_allclose(known[0], alone[0])
    with pytest.warns(UndefinedMetricWarning, match="1 of 3 topics have no coherence"):
        found = coherence(table(TOPICS), X, measure=measure, n_top_words=3)
    assert_array_equal(found[:2], known)
    assert math.isnan(found[2])


def test_diversity_by_hand():
    assert topic_diversity(table(TOPICS), n_top_words=3) == 1.0
    assert topic_diversity(table(["a", "a", "a"]), n_top_words=3) == pytest.approx(
        1 / 3
    )
    assert topic_diversity([[9, 8, 1, 0], [8, 1, 9, 0]], n_top_words=2) == 0.75
    # all words there are
    assert topic_diversity([[9, 8], [8, 9], [1, 2]]) == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "c_v"}, "measure must be one of c_npmi, u_mass, got 'c_v'"),
        ({"n_top_words": 1}, "n_top_words must be an integer from 2"),
        ({"X": np.ones((3, 4))}, "X has 4 words and components has 9"),
        ({"X": -counted(TEXTS)}, "Negative"),
        ({"X": np.empty((0, 9))}, "0 sample"),
        ({"components": [["a"] * 9]}, "components must be a table"),
    ],
)
def test_what_is_refused(options, message):
    arguments = {"components": table(TOPICS), "X": counted(TEXTS)} | options
    with pytest.raises(ValueError, match=message):
        coherence(**arguments)
    with pytest.raises(ValueError, match="n_top_words must be an integer from 1"):
        topic_diversity(table(TOPICS), n_top_words=0)


def hellinger(p, q):
    affinity = sum(math.sqrt(a * b) for a, b in zip(p / p.sum(), q / q.sum()))
    return math.sqrt(max(0.0, 1 - affinity))


def test_the_sum_of_distances_is_smallest():
    rng = np.random.default_rng(1)
    one, two = rng.dirichlet(np.full(6, 0.3), 4), rng.dirichlet(np.full(6, 0.3), 4)
    order, distance = match_topics(one, 7 * two)
    assert_allclose(distance, [hellinger(one[k], two[order[k]]) for k in range(4)])
    sums = [
        sum(hellinger(one[k], two[j]) for k, j in enumerate(other))
        for other in itertools.permutations(range(4))
    ]
    assert_allclose(distance.sum(), min(sums))


def test_a_topic_without_a_partner():
    order, distance = match_topics([[9, 1, 0], [0, 9, 1], [1, 0, 9]], [[0, 1, 9]])
    assert_array_equal(order, [-1, -1, 0])
    assert np.isnan(distance[:2]).all()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (np.ones((2, 4)), "components has 3 words and other has 4"),
        ([[1, 2, -1]], "other must have no negative entry and no empty row"),
    ],
)
def test_what_cannot_be_matched(other, message):
    with pytest.raises(ValueError, match=message):
        match_topics(np.ones((2, 3)), other)
