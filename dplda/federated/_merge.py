"""Merging topics of several parties, and composing each party's next model: pure functions.

Algorithms 3 and 4 of Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

FloatTable = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


class TopWords(NamedTuple):
    """The most probable words of each topic, (n_topics, n_top_words). Similarity reads only these.

    The most probable column is the first, and ties are in the order of the columns. Probabilities
    are those in the whole topic, and do not sum to 1.
    """

    words: Indices
    probabilities: FloatTable

    @classmethod
    def from_table(cls, table: FloatTable, n_top_words: int) -> TopWords:
        """The top words of a table (n_topics, n_words): `n_top_words`, or all if it has fewer."""
        words = np.argsort(-table, axis=1, kind="stable")[:, :n_top_words]
        return cls(words, np.take_along_axis(table, words, axis=1))


def similarity(first: TopWords, second: TopWords) -> FloatTable:
    """Weighted Jaccard similarity of the topics' top words (equation 29), from 0 to 1 for equal.

    The numerator is the sum, over common words, of the smaller of the two probabilities. The
    denominator is the sum of all probabilities minus the numerator.
    """
    result = np.empty((len(first.words), len(second.words)))
    mass = second.probabilities.sum(axis=1)
    topic = np.zeros(1 + max(first.words.max(initial=0), second.words.max(initial=0)))
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
    rho = similarity(topics, topics)
    rho[owners[:, None] >= owners] = -1.0  # each pair once, and no pair of one party
    first, second = np.nonzero(rho >= similarity_threshold)
    labels: Indices = np.arange(len(owners))
    parties = [{int(owner)} for owner in owners]  # of each set, by the label of the set
    for pair in np.argsort(-rho[first, second], kind="stable"):
        low, high = sorted((int(labels[first[pair]]), int(labels[second[pair]])))
        if parties[low].isdisjoint(parties[high]):
            labels[labels == high] = low
            parties[low] |= parties[high]
    sets: Indices = np.unique(labels, return_inverse=True)[1]
    return sets


def merge_topics(
    table: FloatTable, weights: FloatTable, labels: Indices
) -> tuple[FloatTable, FloatTable]:
    """Replace each set of redundant topics by its weighted mean (Algorithm 3, lines 12 to 17).

    `weights` (n_topics,) is the amount of data behind each topic; `labels` is the set of each, from
    `redundant_topics`. Returns the merged topics (n_sets, n_words), whose rows sum to 1, and the
    sums of their weights.
    """
    n_sets = labels.max() + 1
    total = np.bincount(labels, weights, n_sets).astype(np.float64)
    # a set whose topics all have weight 0 is merged evenly
    share = np.where(total[labels] > 0, weights, 1.0)
    share /= np.bincount(labels, share, n_sets)[labels]
    sums = sp.csr_array((share, (labels, np.arange(len(labels)))), (n_sets, len(labels))) @ table
    return sums / sums.sum(axis=1, keepdims=True), total


def compose_model(
    global_table: FloatTable, table: FloatTable, similarity_threshold: float, global_words: TopWords
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
    composed = table.copy()
    rho = similarity(TopWords.from_table(table, global_words.words.shape[1]), global_words)
    topics, candidates = np.nonzero(rho >= similarity_threshold)
    replaced, used = set[int](), set[int]()
    for pair in np.argsort(-rho[topics, candidates], kind="stable"):
        k, g = int(topics[pair]), int(candidates[pair])
        if k not in replaced and g not in used:
            composed[k] = global_table[g]
            replaced.add(k)
            used.add(g)
    return composed
