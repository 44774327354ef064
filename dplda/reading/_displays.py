"""Topics of fitted models as lists: functions of released values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
from sklearn.base import BaseEstimator

from dplda.core._signal import by_share, evidence_of, relevance, standing
from dplda.core._texts import (
    check_model,
    column_words,
    flat_steps,
    words_after,
    words_of,
)
from dplda.leaf._checks import check_integer


class TopicRow(TypedDict):
    """One topic in a list: its row in the table, and its facts."""

    topic: int
    share: float
    evidence: float  # NaN: not tested
    weak: bool
    words: list[str]


def rank_words(components: np.ndarray, n_top_words: int) -> np.ndarray:
    """Indices (n_components, n_top_words) of topics' words, by relevance."""
    check_integer("n_top_words", n_top_words, 1)
    order = np.argsort(-relevance(components), axis=1, kind="stable")
    return order[:, :n_top_words]


def top_words(
    estimator: BaseEstimator,
    feature_names: Sequence[str] | Mapping[str, int] | None = None,
    n_top_words: int = 10,
    *,
    mark_noise: bool = False,
) -> list[list[str]]:
    """List the words that distinguish each topic from the others, the best first.

    Words are ranked by probability times lift. Lift is the probability in the topic
    over the probability in all topics.

    Parameters
    ----------
    estimator : fitted topic model or Pipeline
        Any object with `components_`, of shape (n_components, n_words), or a pipeline
        with such a step.
    feature_names : sequence of str, dict of str to int, or None, default=None
        The vocabulary, such as ``vectorizer.vocabulary_``. None takes the words of the
        pipeline's vectorizer or of the model, else x0, x1, ...
    n_top_words : int, default=10
        Words of each topic, at least 1.
    mark_noise : bool, default=False
        Whether a question mark follows each word that does not stand out of the noise.

    Returns
    -------
    words : list of n_components lists of str
        The words of each topic, the best first. The topics keep the order of
        `components_`.

    Raises
    ------
    TypeError
        If no step of a pipeline has `components_`.
    ValueError
        If the length of `feature_names` is not the size of the model's vocabulary.

    Examples
    --------
    >>> from dplda import GibbsLDA
    >>> from dplda.displays import top_words
    >>> X = [[9, 7, 1, 0], [0, 1, 5, 8], [7, 8, 0, 0], [0, 0, 6, 7]]
    >>> model = GibbsLDA(n_components=2, max_iter=50, random_state=0).fit(X)
    >>> names = ["sea", "ship", "oven", "bread"]
    >>> sorted(sorted(words) for words in top_words(model, names, 2))
    [['bread', 'oven'], ['sea', 'ship']]
    """
    model, names = _with_names(estimator, feature_names)
    best = rank_words(model.components_, n_top_words)
    words = [[names[v] for v in topic] for topic in best]
    # a model of texts holds the model that knows its noise
    stands = standing(getattr(model, "model_", model))
    if stands is None or not mark_noise:
        return words
    marks = np.where(np.take_along_axis(stands, best, axis=1), "", "?")
    return [[*map("".join, zip(*each))] for each in zip(words, marks.tolist())]


def _steps(estimator: BaseEstimator) -> list[tuple[str, BaseEstimator]]:
    """The steps of a pipeline up to its topic model; a model alone is one step."""
    check_model(estimator)
    steps = list(flat_steps(estimator))
    for i, (_, step) in enumerate(steps, start=1):
        if hasattr(step, "components_"):
            return steps[:i]
    found = ", ".join(name for name, _ in steps)
    raise TypeError(
        f"expected a topic model, or a pipeline with one as a step, got {found}"
    )


def _with_names(
    estimator: BaseEstimator, feature_names: Sequence[str] | Mapping[str, int] | None
) -> tuple[BaseEstimator, list[str]]:
    """The topic model, which may be a pipeline's step, and the words of its columns."""
    *before, (_, model) = _steps(estimator)
    n_words = model.components_.shape[1]
    if feature_names is None:
        numbers = [f"x{v}" for v in range(n_words)]
        names = words_after(before) or words_of(model) or numbers
    else:
        names = column_words(feature_names)
    if len(names) != n_words:
        raise ValueError(
            f"feature_names must hold the {n_words} words that the model was fitted "
            f"on, got {len(names)}; pass vectorizer.get_feature_names_out()"
        )
    return model, names


def list_topics(
    estimator: BaseEstimator, feature_names: Sequence[str] | None = None
) -> list[TopicRow]:
    """Row, share, evidence, flag and ten words of each topic, weak ones last.

    A question mark follows a word that does not stand out of the noise.
    """
    order, weak = by_share(estimator)
    components = estimator.components_
    share = components.sum(axis=1) / components.sum()
    evidence = evidence_of(estimator)
    words = top_words(estimator, feature_names, mark_noise=True)
    return [
        {
            "topic": int(k),
            "share": float(share[k]),
            "evidence": float(evidence[k]),
            "weak": bool(weak[k]),
            "words": words[k],
        }
        for k in order
    ]
