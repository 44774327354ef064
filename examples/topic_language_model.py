"""A topic model inside a language model: equations 30 and 31 of the iFTM paper.

A unigram model gives every context the same word probabilities. Mixed with the topics of the
context, it predicts the words of documents better. D. Jiang et al., "Industrial Federated Topic
Modeling", ACM TIST 12(1), 2021, use this for speech recognition.

Run it with ``python examples/topic_language_model.py``. It takes a few seconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty


def interpolate_language_model(
    theta: ArrayLike,
    components: ArrayLike,
    language_model: ArrayLike,
    *,
    topic_weight: float = 0.1,
) -> NDArray[np.float64]:
    """``topic_weight * theta @ P(word | topic) + (1 - topic_weight) * language_model``.

    Parameters
    ----------
    theta : array-like of shape (n_contexts, n_components)
        Topic weights of each context, as `transform` returns them; private if the context is.
    components : array-like of shape (n_components, n_words)
        Topics, as pseudo-counts or probabilities.
    language_model : array-like of shape (n_contexts, n_words) or (n_words,)
        Word probabilities in each context, for instance of an n-gram model; rows sum to 1.
    topic_weight : float, default=0.1
        Weight of the topic model, in [0, 1] (lambda in the paper).

    Returns
    -------
    probabilities : ndarray of shape (n_contexts, n_words)
        Rows sum to 1. Private if `theta` is.
    """
    components = np.asarray(components, np.float64)
    topics = components / components.sum(axis=1, keepdims=True)
    by_topics = np.asarray(theta) @ topics
    return topic_weight * by_topics + (1 - topic_weight) * np.atleast_2d(language_model)


def main() -> None:
    X = make_topic_corpus(n_docs=600, n_words=200, n_components=5, random_state=0).data.toarray()
    train, test = X[:500], X[500:]
    party = IFTMParty(n_components=5, token_epsilon=8.0).fit(train)
    # the first half of each document is the context, the second half is predicted
    context = np.random.default_rng(0).binomial(test, 0.5)
    target = test - context
    theta = party.transform(context)
    unigram = (train.sum(axis=0) + 1.0) / (train.sum() + train.shape[1])  # a public one in practice
    print("weight of the topics: perplexity of the second halves")
    for topic_weight in (0.0, 0.1, 0.5, 0.9):
        p = interpolate_language_model(theta, party.components_, unigram, topic_weight=topic_weight)
        perplexity = np.exp(-(target * np.log(p)).sum() / target.sum())
        print(f"{topic_weight:20.1f}: {perplexity:.1f}")


if __name__ == "__main__":
    main()
