"""Merging topics of several parties, and composing each party's next model: pure functions.

Algorithms 3 and 4 of Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

FloatTable = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class TopWords:
    """The most probable words of each topic. Similarity reads nothing else.

    `words` (n_topics, n_top_words) are columns, the most probable first, ties by the column, and
    `probabilities` theirs, not normalized again.
    """

    words: Indices
    probabilities: FloatTable
    n_words: int

    @classmethod
    def from_table(cls, table: npt.ArrayLike, n_top_words: int) -> TopWords:
        """The top words of a table (n_topics, n_words): `n_top_words`, or all if it has fewer."""
        table = np.asarray(table, np.float64)
        n_topics, n_words = table.shape
        n_top_words = min(n_top_words, n_words)
        # all words above the last probability, then the first of those that equal it
        last = np.partition(table, n_words - n_top_words, axis=1)[:, [n_words - n_top_words]]
        above, equal = table > last, table == last
        room = n_top_words - above.sum(axis=1, keepdims=True)
        top = above | (equal & (equal.cumsum(axis=1) <= room))
        words = np.nonzero(top)[1].reshape(n_topics, n_top_words)
        order = np.argsort(-np.take_along_axis(table, words, axis=1), axis=1, kind="stable")
        words = np.take_along_axis(words, order, axis=1)
        return cls(words, np.take_along_axis(table, words, axis=1), n_words)


def normalize_topics(components: npt.ArrayLike) -> FloatTable:
    """Topic-wise normalization: pseudo-counts (n_topics, n_words) to rows that sum to 1."""
    table: FloatTable = np.array(components, np.float64)
    table /= table.sum(axis=1, keepdims=True)
    return table


def similarity(first: TopWords, second: TopWords) -> FloatTable:
    """Weighted Jaccard similarity of the topics' top words (equation 29), from 0 to 1 for equal.

    The numerator is the sum, over common words, of the smaller of the two probabilities. The
    denominator is the sum of all probabilities minus the numerator.
    """
    result = np.empty((len(first.words), len(second.words)))
    mass = second.probabilities.sum(axis=1)
    topic = np.zeros(first.n_words)
    for k, (words, probabilities) in enumerate(zip(first.words, first.probabilities)):
        topic[words] = probabilities
        common = np.minimum(topic[second.words], second.probabilities).sum(axis=1)
        result[k] = common / (probabilities.sum() + mass - common)
        topic[words] = 0
    return result


def redundant_topics(topics: TopWords, similarity_threshold: float, owners: Indices) -> Indices:
    """Sets of redundant topics: at most one topic of each party.

    Pairs of topics join their sets in the order of their similarity, from the most similar down to
    the threshold (xi), unless a party has a topic in both sets. Without the restriction a set is
    what a chain of similar topics connects, and a party that sends mixtures of topics makes one
    chain of all topics.

    `owners` (n_topics,) is the number of the party of each topic. Returns the number of the set of
    each topic. Sets are numbered from 0 in the order of their first topics.
    """
    n_topics = len(topics.words)
    rho = similarity(topics, topics)
    rho[owners[:, None] >= owners] = -1.0  # each pair once, and no pair of one party
    first, second = np.nonzero(rho >= similarity_threshold)
    labels: Indices = np.arange(n_topics)
    parties = [{int(owner)} for owner in owners]  # of each set, by the label of the set
    for pair in np.argsort(-rho[first, second], kind="stable"):
        low, high = sorted((int(labels[first[pair]]), int(labels[second[pair]])))
        if parties[low].isdisjoint(parties[high]):
            labels[labels == high] = low
            parties[low] |= parties[high]
    sets: Indices = np.unique(labels, return_inverse=True)[1]
    return sets


def merge_topics(
    table: npt.ArrayLike, weights: npt.ArrayLike, labels: Indices
) -> tuple[FloatTable, FloatTable]:
    """Replace each set of redundant topics by its weighted mean (Algorithm 3, lines 12 to 17).

    `weights` (n_topics,) is the amount of data behind each topic; `labels` is the set of each, from
    `redundant_topics`. Returns the merged topics (n_sets, n_words) and the sums of their weights.
    """
    table, weights = np.asarray(table, np.float64), np.asarray(weights, np.float64)
    n_sets = labels.max() + 1
    total = np.bincount(labels, weights, n_sets)
    # a set whose topics all have weight 0 is merged evenly
    share = np.where(total[labels] > 0, weights, 1.0)
    share /= np.bincount(labels, share, n_sets)[labels]
    sums = sp.csr_array((share, (labels, np.arange(len(labels)))), (n_sets, len(labels))) @ table
    return normalize_topics(sums), total.astype(np.float64)


def compose_model(
    global_table: FloatTable,
    table: npt.ArrayLike,
    similarity_threshold: float,
    global_words: TopWords,
) -> FloatTable:
    """A party's next model: its topics, replaced by global ones where they match (Algorithm 4).

    The pseudo-code is ambiguous. It removes the best match from the global model even if it was
    not used, and it does not say what happens to a topic without a match. This implementation
    reads it as follows:

    * Pairs are matched in the order of their similarity. In the order of topic numbers, as in the
      pseudo-code, the result would depend on the numbering.
    * A global topic replaces at most one topic of the party. It is removed only when it does.
    * A topic without a match is kept, so that the party keeps its number of topics and everything
      that it has learned.

    `global_words` are the top words of `global_table`, which are the same for all parties.
    """
    composed = np.array(table, np.float64)
    rho = similarity(TopWords.from_table(composed, global_words.words.shape[1]), global_words)
    topics, candidates = np.nonzero(rho >= similarity_threshold)
    replaced: set[int] = set()
    used: set[int] = set()
    for pair in np.argsort(-rho[topics, candidates], kind="stable"):
        k, g = int(topics[pair]), int(candidates[pair])
        if k not in replaced and g not in used:
            composed[k] = global_table[g]
            replaced.add(k)
            used.add(g)
    return composed
