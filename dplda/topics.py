"""Functions of released topics: matching topics of two fits, a tree of topics, merging topics.

Everything here reads released tables only. It is post-processing, which costs no privacy budget.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, squareform

from dplda.core._corpus import check_table
from dplda.core._texts import check_model
from dplda.leaf._checks import check_integer
from dplda.privacy import Guarantee
from dplda.release._release import released_model
from dplda.release._released_model import ReleasedModel

__all__ = ["match_topics", "merge_topics", "topic_tree"]


def match_topics(components: Any, other: Any) -> tuple[np.ndarray, np.ndarray]:
    """Find the topic of another table that corresponds to each topic of a table.

    Topics are paired one to one, so that the sum of the Hellinger distances of their word
    probabilities is smallest (the Hungarian method [1]_).

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        Pseudo-counts or probabilities of each topic's words, as in ``estimator.components_``.
    other : array-like of shape (n_other_components, n_words)
        Those of another model with the same vocabulary.

    Returns
    -------
    order : ndarray of shape (n_components,), int
        Topic ``order[k]`` of `other` corresponds to topic ``k``. -1 if `other` has fewer topics and
        none is left for ``k``.
    distance : ndarray of shape (n_components,)
        Hellinger distance of the two topics, from 0 (equal) to 1 (no word in common). NaN for a
        topic without a partner.

    Raises
    ------
    ValueError
        If a table has negative numbers or an empty topic, or if they differ in width.

    References
    ----------
    .. [1] H. W. Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics
       Quarterly 2, 1955.

    Examples
    --------
    >>> from dplda.topics import match_topics
    >>> order, distance = match_topics([[9, 1, 0], [0, 1, 9]], [[0, 2, 18], [16, 4, 0]])
    >>> order.tolist(), distance.round(2).tolist()
    ([1, 0], [0.1, 0.0])
    """
    one, two = _probabilities(components, "components"), _probabilities(other, "other")
    if one.shape[1] != two.shape[1]:
        raise ValueError(
            f"components has {one.shape[1]} words and other has {two.shape[1]}; only models with "
            "one vocabulary can be compared"
        )
    distances = _hellinger(one, two)
    rows, columns = linear_sum_assignment(distances)
    order, distance = np.full(len(one), -1), np.full(len(one), np.nan)
    order[rows], distance[rows] = columns, distances[rows, columns]
    return order, distance


def topic_tree(components: Any) -> np.ndarray:
    """Join similar topics step by step, until one is left.

    Each step joins the two groups of topics with the smallest mean Hellinger distance between their
    topics (average linkage).

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        Pseudo-counts or probabilities of each topic's words, at least two topics.

    Returns
    -------
    tree : ndarray of shape (n_components - 1, 4)
        A linkage matrix of SciPy: each row has the two groups that are joined, their distance, and
        the number of topics. Draw it with `scipy.cluster.hierarchy.dendrogram`.

    Raises
    ------
    ValueError
        If the table has negative numbers, an empty topic, or one topic only.

    Examples
    --------
    >>> from dplda.topics import topic_tree
    >>> tree = topic_tree([[9, 1, 0, 0], [8, 2, 0, 0], [0, 0, 5, 5]])
    >>> tree[:, :2].astype(int).tolist()  # topics 0 and 1, then topic 2 with both
    [[0, 1], [2, 3]]
    """
    topics = _probabilities(components, "components")
    if len(topics) < 2:
        raise ValueError("components must have at least two topics, got 1; one topic has no tree")
    distances = _hellinger(topics, topics)
    return linkage(squareform(distances, checks=False), method="average")


def merge_topics(model: Any, groups: int | Sequence[int]) -> ReleasedModel:
    """Make a model with fewer topics by adding the pseudo-counts of topics.

    Parameters
    ----------
    model : fitted topic model
        A model of dplda, with `components_` and `privacy_`.
    groups : int or array-like of shape (n_components,)
        The number of topics to keep, where similar topics are joined as in `topic_tree`. Or a
        number for each topic; topics with the same number become one.

    Returns
    -------
    merged : ReleasedModel
        Its topics are in the order of the first topic of each group, with the `privacy_` of
        `model`. It transforms, scores, and can be saved; it cannot be trained.

    Raises
    ------
    TypeError
        If the model has no guarantee to state.
    ValueError
        If the number is out of range, or if there is not one number for each topic.

    Notes
    -----
    `doc_topic_prior` stays that of `model`. A merged topic had the sum of the priors before.

    Examples
    --------
    >>> from dplda import GibbsLDA
    >>> from dplda.topics import merge_topics
    >>> model = GibbsLDA(n_components=3, max_iter=5).fit([[9, 7, 1, 0], [0, 1, 5, 8]])
    >>> merge_topics(model, 2).components_.shape
    (2, 4)
    """
    check_model(model)
    if not isinstance(getattr(model, "privacy_", None), Guarantee):
        raise TypeError(
            f"the merged model states the guarantee of the model, and {type(model).__name__} has "
            "no privacy_; merge topics of a model of dplda"
        )
    group = _groups(model.components_, groups)
    components = np.zeros((group.max() + 1, model.components_.shape[1]))
    np.add.at(components, group, model.components_)
    merged = copy.copy(released_model(model))
    merged.components_ = components
    merged.parameters_ = merged.parameters_ | {"n_components": len(components)}
    for name in ("topic_evidence_", "weak_topics_"):  # of the topics before
        merged.__dict__.pop(name, None)
    return merged


def _groups(components: np.ndarray, groups: Any) -> np.ndarray:
    """The number of each topic's group, from 0, in the order of the groups' first topics."""
    n_topics = len(components)
    if np.ndim(groups) == 0:
        n_groups = check_integer("groups", groups, 1, n_topics)
        cut = n_topics > 1
        labels = fcluster(topic_tree(components), n_groups, "maxclust") if cut else np.zeros(1)
    else:
        labels = np.asarray(groups)
        if labels.shape != (n_topics,):
            raise ValueError(
                f"groups must be a number of topics, or one number for each of {n_topics} topics, "
                f"got shape {labels.shape}"
            )
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _probabilities(components: Any, name: str) -> np.ndarray:
    table = check_table(components, name)
    if table.min() < 0 or not table.any(axis=1).all():
        raise ValueError(f"{name} must be non-negative, with no topic empty")
    return table / table.sum(axis=1, keepdims=True)


def _hellinger(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Hellinger distances of all pairs of rows, from 0 to 1."""
    return cdist(np.sqrt(one), np.sqrt(two)) / np.sqrt(2)
