"""The master of iFTM as its paper prints it: Algorithms 3, 4 and 5.

D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021, section
3.2. `dplda.federated.IFTMMaster` differs: it merges at most one topic of each party,
and matches topics in the order of their similarity.

The paper is read as follows: each round begins with an empty global model, a party's
topics have the party's number of words as weight, and a topic that Algorithm 4 does not
replace is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dplda.federated._master import TopWords, merge_topics, similarity

THRESHOLD, TOP_WORDS = 0.3, 30  # xi and L; the paper names no values


class Model(NamedTuple):
    """Topics (n_topics, n_words), whose rows sum to 1, and their weights."""

    topics: np.ndarray
    weights: np.ndarray

    @classmethod
    def sent(cls, components) -> Model:
        """A party's message: counts of words in topics, normalized topic by topic."""
        totals = components.sum(axis=1, keepdims=True)
        return cls(components / totals, np.full(len(components), totals.sum()))


def integrate(model: Model, local: Model, threshold: float = THRESHOLD) -> Model:
    """Algorithm 3: concatenate, and merge chains of similar topics."""
    topics = np.concatenate([model.topics, local.topics])
    weights = np.concatenate([model.weights, local.weights])
    redundant = sp.coo_array(similarities(topics, topics) >= threshold)
    _, sets = connected_components(redundant, directed=False)
    return Model(*merge_topics(topics, weights, sets))


def compose(model: Model, local: Model, threshold: float = THRESHOLD) -> np.ndarray:
    """Algorithm 4: the table (n_topics, n_words) that a party's next round reads.

    Line 7 takes the most similar global topic away, whether it replaced one or not.
    """
    rho = similarities(local.topics, model.topics)
    composed = local.topics.copy()
    for k, row in enumerate(rho[:, : len(model.topics)]):
        nearest = row.argmax()
        if row[nearest] >= threshold:
            composed[k] = model.topics[nearest]
        rho[:, nearest] = -1.0
    return composed


def similarities(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Equation (29) for all pairs of topics, (n_first, n_second)."""
    return similarity(
        TopWords.from_table(first, TOP_WORDS), TopWords.from_table(second, TOP_WORDS)
    )


def rounds(parties: list, n_rounds: int) -> Iterator[Model]:
    """Algorithm 5: the global model after each round.

    Parameters
    ----------
    parties : list of tuple (party, arguments)
        The party's `fit` takes the arguments in the first round; `refine` takes a table
        in the others. It has `components_` after both.
    n_rounds : int
    """
    for party, arguments in parties:
        party.fit(*arguments)
    for number in range(n_rounds):
        locals_ = [Model.sent(party.components_) for party, _ in parties]
        model = locals_[0]
        for local in locals_[1:]:
            model = integrate(model, local)
        yield model
        if number < n_rounds - 1:
            for (party, _), local in zip(parties, locals_):
                party.refine(compose(model, local))
