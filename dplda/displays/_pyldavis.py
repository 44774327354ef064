"""The input of pyLDAvis, of released values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dplda.displays._topics import with_names


def to_pyldavis(estimator: Any, feature_names: Sequence[str] | None = None) -> dict[str, Any]:
    """Prepare a model for pyLDAvis, from its released table alone.

    pyLDAvis asks for the topics and lengths of the training documents. It uses them for one thing,
    the sizes of the topics. Here each topic takes the place of one document, whose length is the
    topic's released amount of words. The sizes are then those of the released table.

    Parameters
    ----------
    estimator : fitted topic model
        Any object with `components_`, of shape (n_components, n_words).
    feature_names : sequence of str of length n_words, default=None
        The vocabulary, such as ``vectorizer.get_feature_names_out()``. None takes
        `vocabulary_` or `feature_names_in_` if the model has it, else x0, x1, ...

    Returns
    -------
    arguments : dict
        Arguments of ``pyLDAvis.prepare(**arguments)``: ``topic_term_dists``, ``doc_topic_dists``,
        ``doc_lengths``, ``vocab``, ``term_frequency``. pyLDAvis is not needed to make them.

    Raises
    ------
    ValueError
        If the length of `feature_names` is not the size of the model's vocabulary.

    See Also
    --------
    TopicDisplay : Draws the top words of topics.

    Notes
    -----
    **Privacy.** The result is a function of `components_`: for a released model it costs nothing.
    Do not pass ``model.transform(X)`` and the lengths of private documents to pyLDAvis instead. The
    page that it writes shows topic sizes and word frequencies that were computed from them without
    noise, and no epsilon covers that.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.displays import to_pyldavis
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=4.0).fit(X)
    >>> arguments = to_pyldavis(model)
    >>> page = pyLDAvis.prepare(**arguments)  # doctest: +SKIP
    """
    estimator, names = with_names(estimator, feature_names)
    components = np.asarray(estimator.components_, dtype=np.float64)
    amount = components.sum(axis=1)
    return {
        "topic_term_dists": components / amount[:, None],
        "doc_topic_dists": np.eye(len(components)),
        "doc_lengths": amount,
        "vocab": [str(name) for name in names],
        "term_frequency": components.sum(axis=0),
    }
