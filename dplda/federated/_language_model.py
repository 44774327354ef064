"""Topic models within language models: equations 30 and 31 of the iFTM paper."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from dplda._corpus import check_table


def interpolate_language_model(
    theta: Any, components: Any, language_model: Any, *, topic_weight: float = 0.1
) -> np.ndarray:
    """Adapt the word probabilities of a language model to the topics of a context.

    ``topic_weight * theta @ P(word | topic) + (1 - topic_weight) * language_model``: equations 30
    and 31 of [1]_.

    Parameters
    ----------
    theta : array-like of shape (n_contexts, n_components)
        Topic weights of each context, as `transform` returns them.
    components : array-like of shape (n_components, n_words)
        Topics, as pseudo-counts or probabilities.
    language_model : array-like of shape (n_contexts, n_words) or (n_words,)
        Word probabilities in each context, for instance of an n-gram model; rows sum to 1.
    topic_weight : float, default=0.1
        Share of the topic model, in [0, 1] (lambda in [1]_).

    Returns
    -------
    probabilities : ndarray of shape (n_contexts, n_words)
        Rows sum to 1.

    Raises
    ------
    ValueError
        When shapes do not fit, or rows are no probabilities.

    Notes
    -----
    **Privacy.** `theta` of a private context is private, and so is the result.

    References
    ----------
    .. [1] D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021.

    Examples
    --------
    >>> from dplda.federated import interpolate_language_model
    >>> theta = [[1.0, 0.0]]  # the context is all about the first topic
    >>> components = [[9, 1, 0], [0, 1, 9]]
    >>> interpolate_language_model(theta, components, [[0.2, 0.6, 0.2]], topic_weight=0.5)
    array([[0.55, 0.35, 0.1 ]])
    """
    if not (isinstance(topic_weight, Real) and 0 <= topic_weight <= 1):
        raise ValueError(f"topic_weight must be a number from 0 to 1, got {topic_weight!r}")
    theta = check_table(theta, "theta")
    components = check_table(components, "components")
    language_model = np.atleast_2d(check_table(language_model, "language_model", ensure_2d=False))
    shape = (len(theta), components.shape[1])
    if theta.shape[1] != len(components):
        raise ValueError(
            f"theta has {theta.shape[1]} topics and components has {len(components)}; use the "
            "components of the model that made theta"
        )
    if language_model.shape not in (shape, (1, shape[1])):
        raise ValueError(
            f"language_model must have shape {shape} or ({shape[1]},), got {language_model.shape}"
        )
    if components.min() < 0 or not components.any(axis=1).all():
        raise ValueError("components must be non-negative, with no topic empty")
    for name, rows in [("theta", theta), ("language_model", language_model)]:
        if rows.min() < 0 or not np.allclose(rows.sum(axis=1), 1, atol=1e-4):
            raise ValueError(f"rows of {name} must be probabilities that sum to 1")
    topics = components / components.sum(axis=1, keepdims=True)
    return topic_weight * (theta @ topics) + (1 - topic_weight) * language_model
