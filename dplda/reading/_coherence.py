"""Coherence, diversity, pairs of topics: functions of released tables, public texts."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.exceptions import UndefinedMetricWarning

from dplda.core._corpus import Matrix, check_table, check_topics
from dplda.core._perplexity import check_inputs
from dplda.leaf._checks import check_integer
from dplda.leaf._messages import warn_user

MEASURES = ("c_npmi", "u_mass")
SMALL = 1e-12  # added to a joint probability, as in [3]_ of `coherence`


def coherence(
    components: ArrayLike,
    X: Matrix,
    *,
    measure: str = "c_npmi",
    n_top_words: int = 10,
) -> np.ndarray:
    r"""Compute the coherence of each topic: how often its top words occur together.

    Let p(v) be the share of rows of `X` that hold the word v, and p(v, w) the share
    that hold both. A topic's coherence is the mean over pairs of its top words of

    * ``"c_npmi"``: the normalized pointwise mutual information [2]_, log(p(v, w) /
      (p(v) p(w))) / -log p(v, w), which lies between -1 (never together) and 1 (always
      together);
    * ``"u_mass"``: log(p(v, w) / p(w)), where w is the more probable word of the topic
      [1]_. It is at most 0.

    As in gensim, 1e-12 is added to p(v, w), where [1]_ adds one row.

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        Pseudo-counts or probabilities of each topic's words, as in
        ``estimator.components_``. The largest cells of a row are its top words.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of *public* reference texts with the vocabulary of the model. A row
        is a document, or a window of a text.
    measure : {"c_npmi", "u_mass"}, default="c_npmi"
        Which coherence.
    n_top_words : int, default=10
        Number of top words, at least 2; at most all words are taken.

    Returns
    -------
    coherence : ndarray of shape (n_components,)
        Higher is better. A pair with a word that no reference text holds is left out.
        NaN for a topic without any other pair, with an `UndefinedMetricWarning`. The
        usual figure of a model is ``numpy.nanmean``.

    Raises
    ------
    ValueError
        If an argument is out of range, or `X` has the wrong number of columns or no
        rows.

    Notes
    -----
    **Privacy.** No epsilon covers the coherence of private texts: it counts
    co-occurrences in single documents without noise.

    References
    ----------
    .. [1] D. Mimno, H. Wallach, E. Talley, M. Leenders, A. McCallum, "Optimizing
       semantic coherence in topic models", EMNLP 2011, equation (1).
    .. [2] N. Aletras, M. Stevenson, "Evaluating topic coherence using distributional
       semantics", IWCS 2013.
    .. [3] M. Röder, A. Both, A. Hinneburg, "Exploring the space of topic coherence
       measures", WSDM 2015.

    Examples
    --------
    >>> from dplda.metrics import coherence
    >>> topics = [[9, 8, 1, 1], [5, 1, 5, 1]]  # the top words are 0 and 1, and 0 and 2
    >>> texts = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    >>> coherence(topics, texts, n_top_words=2).round(2).tolist()
    [1.0, -0.95]
    """
    if measure not in MEASURES:
        raise ValueError(
            f"measure must be one of {', '.join(MEASURES)}, got {measure!r}"
        )
    table, blocks = check_inputs(components, X)
    counts = sp.vstack(list(blocks), format="csr")
    n_texts = counts.shape[0]
    top = _top_words(table, n_top_words, least=2)
    words, place = np.unique(top, return_inverse=True)
    place = place.reshape(top.shape)
    held = sp.csr_array(counts[:, words] > 0, dtype=np.float64)
    share = held.sum(axis=0) / n_texts
    joint = (held.T @ held).toarray() / n_texts
    # of the pair v, w, the word w is the more probable one
    first, second = np.triu_indices(top.shape[1], 1)
    v = place[:, second]
    w = place[:, first]
    known = (share[v] > 0) & (share[w] > 0)
    together = joint[v, w] + SMALL
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0: no pair is known
        scores = np.log(together / share[w])
        if measure == "c_npmi":
            scores = (scores - np.log(share[v])) / -np.log(together)
            # the limit, if all texts hold both
            scores = np.where(joint[v, w] == 1, 1.0, scores)
        means = np.where(known, scores, 0.0).sum(axis=1) / known.sum(axis=1)
    n_unknown = int(np.isnan(means).sum())
    if n_unknown:
        warn_user(
            f"{n_unknown} of {len(means)} topics have no coherence (NaN): X holds no "
            "two of their top words; take more reference texts, or numpy.nanmean",
            UndefinedMetricWarning,
        )
    return means


def topic_diversity(components: ArrayLike, *, n_top_words: int = 25) -> float:
    """Compute the share of different words among the top words of all topics [1]_.

    Noise makes topics different. A diversity near 1 is a good sign only if the
    coherence is good, too.

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        As in `coherence`.
    n_top_words : int, default=25
        Number of top words of each topic, at least 1; at most all words are taken.

    Returns
    -------
    diversity : float
        From 1 / n_components (all topics have the same words) to 1 (all have different
        ones).

    References
    ----------
    .. [1] A. Dieng, F. Ruiz, D. Blei, "Topic modeling in embedding spaces", TACL 8,
       2020, section 6.

    Examples
    --------
    >>> from dplda.metrics import topic_diversity
    >>> topic_diversity([[9, 8, 1, 0], [8, 1, 9, 0]], n_top_words=2)
    0.75
    """
    top = _top_words(check_table(components, "components"), n_top_words, least=1)
    return len(np.unique(top)) / top.size


def match_topics(
    components: ArrayLike, other: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Find the topic of another table that corresponds to each topic of a table.

    Topics are paired one to one, so that the sum of the Hellinger distances of their
    word probabilities is smallest.

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        As in `coherence`.
    other : array-like of shape (n_other_components, n_words)
        The table of another model with the same vocabulary.

    Returns
    -------
    order : ndarray of shape (n_components,), int
        Topic ``order[k]`` of `other` corresponds to topic ``k``. -1 if `other` has
        fewer topics and none is left for ``k``.
    distance : ndarray of shape (n_components,)
        Hellinger distance of the two topics, from 0 (equal) to 1 (no word in common).
        NaN for a topic without a partner.

    Raises
    ------
    ValueError
        If a table has negative numbers or an empty topic, or if they differ in width.

    Examples
    --------
    >>> from dplda.metrics import match_topics
    >>> order, distance = match_topics([[9, 1, 0], [0, 1, 9]], [[0, 2, 18], [16, 4, 0]])
    >>> order.tolist(), distance.round(2).tolist()
    ([1, 0], [0.1, 0.0])
    """
    one = _square_roots(check_topics(components, "components"))
    two = _square_roots(check_topics(other, "other"))
    if one.shape[1] != two.shape[1]:
        raise ValueError(
            f"components has {one.shape[1]} words and other has {two.shape[1]}; only "
            "models with one vocabulary can be compared"
        )
    distances = cdist(one, two) / np.sqrt(2)
    rows, columns = linear_sum_assignment(distances)
    order = np.full(len(one), -1)
    order[rows] = columns
    distance = np.full(len(one), np.nan)
    distance[rows] = distances[rows, columns]
    return order, distance


def _square_roots(table: np.ndarray) -> np.ndarray:
    """Square roots of the probabilities of words in topics."""
    return np.sqrt(table / table.sum(axis=1, keepdims=True))


def _top_words(components: np.ndarray, n_top_words: int, *, least: int) -> np.ndarray:
    """Indices of the largest cells of each row, the largest first."""
    check_integer("n_top_words", n_top_words, least)
    return np.argsort(-components, axis=1, kind="stable")[:, :n_top_words]
