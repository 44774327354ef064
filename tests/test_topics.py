"""Matching, merging and a tree of topics."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import dendrogram, fcluster
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError

from dplda import SubLDA, load_release, save_release
from dplda.datasets import make_topic_corpus
from dplda.topics import match_topics, merge_topics, topic_tree

K = 6


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(300, 40, 3, random_state=0).data


@pytest.fixture(scope="module")
def model(X):
    return SubLDA(K, epsilon=4.0, delta=1e-5, max_iter=8).fit(X)


def hellinger(p, q):
    p, q = np.asarray(p, float), np.asarray(q, float)
    affinity = sum(math.sqrt(a * b) for a, b in zip(p / p.sum(), q / q.sum()))
    return math.sqrt(max(0.0, 1 - affinity))


# ---- matching -----------------------------------------------------------------------------


def test_permuted_topics_are_found(model):
    order = np.random.default_rng(0).permutation(K)
    found, distance = match_topics(model.components_, 7 * model.components_[order])
    assert_array_equal(order[found], np.arange(K))
    assert_allclose(distance, 0, atol=1e-7)


def test_the_sum_of_distances_is_smallest():
    rng = np.random.default_rng(1)
    one, two = rng.dirichlet(np.full(6, 0.3), 4), rng.dirichlet(np.full(6, 0.3), 4)
    order, distance = match_topics(one, two)
    assert_allclose(distance, [hellinger(one[k], two[order[k]]) for k in range(4)])
    sums = [
        sum(hellinger(one[k], two[j]) for k, j in enumerate(other))
        for other in itertools.permutations(range(4))
    ]
    assert_allclose(distance.sum(), min(sums))
    # pairing each topic with its nearest would be no pairing here
    nearest = [min(range(4), key=lambda j, k=k: hellinger(one[k], two[j])) for k in range(4)]
    assert len(set(nearest)) < 4


def test_a_topic_without_a_partner():
    order, distance = match_topics([[9, 1, 0], [0, 9, 1], [1, 0, 9]], [[0, 1, 9]])
    assert_array_equal(order, [-1, -1, 0])
    assert np.isnan(distance[:2]).all()
    assert_array_equal(match_topics([[0, 1, 9]], [[9, 1, 0], [0, 1, 9]])[0], [1])


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), "components has 3 words and other has 4"),
        (np.ones((2, 3)), [[1, 2, -1]], "other must be non-negative"),
        ([[0, 0, 0]], np.ones((2, 3)), "components must be non-negative, with no topic empty"),
        (np.ones((2, 3)), [["a", "b", "c"]], "other must be a table"),
    ],
)
def test_what_cannot_be_matched(one, two, message):
    with pytest.raises(ValueError, match=message):
        match_topics(one, two)


# ---- a tree, and merging ------------------------------------------------------------------


def test_the_nearest_topics_are_joined_first(model):
    tree = topic_tree(model.components_)
    assert tree.shape == (K - 1, 4)
    pairs = list(itertools.combinations(range(K), 2))
    distances = [hellinger(*model.components_[list(pair)]) for pair in pairs]
    assert tuple(sorted(tree[0, :2].astype(int))) == pairs[int(np.argmin(distances))]
    assert_allclose(tree[0, 2], min(distances))
    assert len(dendrogram(tree, no_plot=True)["leaves"]) == K
    with pytest.raises(ValueError, match="at least two topics, got 1"):
        topic_tree([[1, 2]])


def test_merged_topics_have_the_sum_of_the_counts(model, X):
    merged = merge_topics(model, [7, 2, 7, 5, 2, 7])
    table = model.components_
    expected = [table[[0, 2, 5]].sum(axis=0), table[[1, 4]].sum(axis=0), table[3]]
    assert_allclose(merged.components_, expected)
    assert merged.privacy_ is model.privacy_
    assert (merged.epsilon_, merged.delta_) == (model.epsilon_, model.delta_)
    assert merged.parameters_["n_components"] == 3
    assert merged.doc_topic_prior == model.doc_topic_prior
    assert merged.transform(X[:4]).shape == (4, 3)
    assert "of SubLDA" in repr(merged)


@pytest.mark.parametrize("n", range(1, K + 1))
def test_a_number_of_topics_cuts_the_tree(model, n):
    labels = fcluster(topic_tree(model.components_), n, "maxclust")
    merged = merge_topics(model, n)
    assert_allclose(merged.components_, merge_topics(model, labels).components_)
    assert merged.components_.shape[0] == n
    assert_allclose(merged.components_.sum(axis=0), model.components_.sum(axis=0))
    if n == K:
        assert_array_equal(merged.components_, model.components_)


def test_a_merged_model_can_be_saved_merged_and_read(model, tmp_path):
    merged = merge_topics(merge_topics(model, 4), 2)
    save_release(merged, tmp_path / "m", vocabulary=[f"w{v}" for v in range(40)])
    read = load_release(tmp_path / "m")
    assert_array_equal(read.components_, merged.components_)
    assert read.privacy_ == model.privacy_
    assert read.estimator_name_ == "SubLDA"
    assert_array_equal(merge_topics(read, 1).vocabulary_, read.vocabulary_)
    one = merge_topics(merge_topics(read, 1), 1)
    assert_allclose(one.components_[0], model.components_.sum(axis=0))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (0, "groups must be an integer from 1 to 6"),
        (7, "groups must be an integer from 1 to 6"),
        ([0, 1], r"one number for each of 6 topics, got shape \(2,\)"),
    ],
)
def test_what_is_not_merged(model, X, groups, message):
    with pytest.raises(ValueError, match=message):
        merge_topics(model, groups)
    with pytest.raises(NotFittedError):
        merge_topics(SubLDA(3, epsilon=1.0), 2)
    with pytest.raises(TypeError, match="no privacy_"):
        merge_topics(LatentDirichletAllocation(3, max_iter=1).fit(X), 2)
