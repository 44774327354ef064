"""The log-likelihood of words that the observed half of a document lacks.

Document completion pays for words that are repeated: a third of the held-out tokens of
news are words that the observed half has. A model that says nothing of topics, with
many groups of words, earns most of the gap by these. What it says of the other tokens
is what it has learned of words that go together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda.core._fold_in import infer_topics, topic_word_probabilities
from dplda.core._perplexity import (
    _log_likelihood,
    check_inputs,
    check_possible,
    split_documents,
)


def new_word_gain(
    components: Any, X: Any, *, doc_topic_prior: float = 0.1, n_jobs: int | None = None
) -> float:
    """What topics say of words that are new to a document, in nats a token.

    Topic weights are inferred from one half of each document. Of the other half, those
    tokens count whose word does not occur in the first one. The gain is their mean
    log-likelihood, less that under the model's own word frequencies.

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        Pseudo-counts of each topic's words, not normalized: the size of a topic is its
        weight in the word frequencies.
    X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
        Word counts of documents that the table was not trained on.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topic weights, above 0.
    n_jobs : int or None, default=None
        Number of threads. It never changes the result.

    Returns
    -------
    gain : float
        0 for a single topic, and below 0 where topics mislead.

    Raises
    ------
    ValueError
        If `X` has the wrong number of columns, a word is impossible in all topics, or
        no document has a new word to score.
    """
    components, blocks = check_inputs(components, X)
    check_possible(components)
    sizes = components.sum(axis=1)
    phi = np.ascontiguousarray((components / sizes[:, None]).T)
    padded = topic_word_probabilities(components)
    log_frequencies = np.log(components.sum(axis=0) / sizes.sum())
    gain = n_tokens = 0.0
    for documents in blocks:
        observed, held_out = split_documents(documents)
        scored = new_words(observed, held_out)
        theta = infer_topics(observed, padded, len(components), doc_topic_prior, n_jobs)
        gain += _log_likelihood(scored, theta, phi)
        gain -= float(scored.sum(axis=0) @ log_frequencies)
        n_tokens += float(scored.sum())
    if n_tokens == 0:
        raise ValueError(
            "X holds no word to score that is new to its document; pass documents with "
            "at least two different words"
        )
    return gain / n_tokens


def new_words(observed: sp.csr_array, held_out: sp.csr_array) -> sp.csr_array:
    """The held-out counts of words that a document's observed half lacks."""
    known = held_out.multiply(observed > 0)
    new = sp.csr_array(held_out - known)
    new.eliminate_zeros()
    return new
