"""Topics of fitted models as lists and pictures: functions of released values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from dplda.core._pipeline import pipeline_guarantee
from dplda.core._private_fit import UNKNOWN_WORDS
from dplda.core._texts import check_model, flat_steps, in_order, words_after, words_of
from dplda.leaf._checks import check_integer, escaped
from dplda.metrics._signal import standing_words

__all__ = ["TopicDisplay", "top_words"]

COLORS = ("#0072B2", "#D55E00")  # Okabe and Ito's, which color-blind readers can distinguish
GRAY = "#595959"
LIGHT_GRAY = "#8c8c8c"
BAR = "probability in the topic"
COLUMNS = 4  # of small charts next to each other


def rank_words(components: np.ndarray, n_top_words: int) -> np.ndarray:
    """Indices (n_components, n_top_words) of each topic's words, by probability times lift.

    By probability alone, words that are frequent everywhere come first in every topic. By lift
    alone, rare words come first, and their released counts are mostly noise. The product ranks like
    the relevance of LDAvis (C. Sievert, K. Shirley, 2014) with weight 1/2.
    """
    check_integer("n_top_words", n_top_words, 1, 2**31 - 1)
    marginal = components.sum(axis=0) / components.sum()
    relevance = 2 * np.log(_word_probabilities(components)) - np.log(marginal)
    return np.argsort(-relevance, axis=1, kind="stable")[:, :n_top_words]


def top_words(
    estimator: Any,
    feature_names: Sequence[str] | Mapping[str, int] | None = None,
    n_top_words: int = 10,
    *,
    mark_noise: bool = False,
) -> list[list[str]]:
    """List the words that distinguish each topic from the others, the best first.

    Words are ranked by probability times lift, the probability in the topic over that in all
    topics.

    Parameters
    ----------
    estimator : fitted topic model or Pipeline
        Any object with `components_`, of shape (n_components, n_words), or a pipeline with such a
        step.
    feature_names : sequence of str of length n_words, or dict of str to int, default=None
        The vocabulary, such as ``vectorizer.vocabulary_``. None takes the words of the pipeline's
        vectorizer or of the model, else x0, x1, ...
    n_top_words : int, default=10
        Words of each topic, at least 1.
    mark_noise : bool, default=False
        Whether a question mark follows each word that does not stand out of the noise.

    Returns
    -------
    words : list of n_components lists of str
        The words of each topic, the best first. The topics keep the order of `components_`:
        ``np.argsort(-model.topic_evidence_)`` puts the best first.

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
    >>> sorted(sorted(words) for words in top_words(model, ["sea", "ship", "oven", "bread"], 2))
    [['bread', 'oven'], ['sea', 'ship']]
    """
    estimator, names = _with_names(estimator, feature_names)
    order = rank_words(estimator.components_, n_top_words)
    noise = _noise(estimator) & mark_noise
    return [
        [f"{names[v]}?" if noise[k, v] else str(names[v]) for v in topic]
        for k, topic in enumerate(order)
    ]


def _steps(estimator: Any) -> list[tuple[str, Any]]:
    """The steps of a pipeline up to its topic model; a model alone is one step."""
    check_model(estimator)
    if not isinstance(estimator, Pipeline):
        return [("", estimator)]
    steps = list(flat_steps(estimator))
    for i, (_, step) in enumerate(steps, start=1):
        if hasattr(step, "components_"):
            return steps[:i]
    raise TypeError(
        "a pipeline must have a topic model as a step, got the steps "
        f"{', '.join(name for name, _ in steps)}"
    )


def _with_names(
    estimator: Any, feature_names: Sequence[str] | Mapping[str, int] | None
) -> tuple[Any, list[str]]:
    """The topic model, which may be a step of a pipeline, and the words of its columns."""
    *before, (_, model) = _steps(estimator)
    n_words = model.components_.shape[1]
    if feature_names is None:
        names = words_after(before) or words_of(model) or [f"x{v}" for v in range(n_words)]
    else:
        names = in_order(feature_names)
    if len(names) != n_words:
        raise ValueError(
            f"feature_names must hold the {n_words} words that the model was fitted on, got "
            f"{len(names)}; pass vectorizer.get_feature_names_out()"
        )
    return model, names


def _noise(estimator: Any) -> np.ndarray:
    """Mask (n_components, n_words) of the words that do not stand out of the noise of the model."""
    std = getattr(estimator, "components_std_", None)
    if std is None or not np.any(std):
        return np.zeros(estimator.components_.shape, bool)
    return ~standing_words(estimator.components_, std)


def by_evidence(estimator: Any) -> tuple[np.ndarray, np.ndarray]:
    """The topics in the order of their evidence, the best first, and a mask of the weak ones.

    A model without `topic_evidence_`, such as a released one, keeps its order and has no weak ones.
    """
    n_topics = len(estimator.components_)
    evidence = getattr(estimator, "topic_evidence_", np.zeros(n_topics))
    weak = getattr(estimator, "weak_topics_", np.zeros(n_topics, bool))
    return np.argsort(-evidence, kind="stable"), weak


def list_topics(estimator: Any, feature_names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Row, share, flag and ten words of each topic, the one with the most evidence first."""
    order, weak = by_evidence(estimator)
    share = estimator.components_.sum(axis=1) / estimator.components_.sum()
    words = top_words(estimator, feature_names, min(10, estimator.components_.shape[1]))
    return [
        {"topic": int(k), "share": float(share[k]), "weak": bool(weak[k]), "words": words[k]}
        for k in order
    ]


def _word_probabilities(components: np.ndarray) -> np.ndarray:
    return components / components.sum(axis=1, keepdims=True)


def _title(estimator: Any) -> str:
    """Class, number of topics, and the guarantee of the steps up to the model."""
    steps = _steps(estimator)
    model = steps[-1][1]
    kind = getattr(model, "estimator_name_", type(model).__name__)  # of a release, what was trained
    name = f"{kind}, {len(model.components_)} topics"
    if not hasattr(model, "privacy_"):
        return name
    privacy = model.privacy_ if len(steps) == 1 else pipeline_guarantee(Pipeline(steps))
    if math.isinf(privacy.epsilon):
        return f"{name}, not private"
    alone = UNKNOWN_WORDS[0] in privacy.provenance
    return (
        f"{name}, epsilon = {privacy.epsilon:.4g} at delta = {privacy.delta:.2g} for one "
        f"{privacy.unit}{' (topics without their words)' if alone else ''}"
        f"{' (seeded noise)' if privacy.seeded else ''}"
    )


@dataclass(kw_only=True, eq=False)
class TopicDisplay:
    """Top words of topics, as one small bar chart for each topic.

    A bar shows a word's probability in the topic, and a tick that in all topics. A word that does
    not stand out of the noise is gray, and a heading names a topic of `weak_topics_` as weak. Use
    :meth:`from_estimator`.

    Parameters
    ----------
    words : list of n_topics lists of str
        Top words of each topic. The first word is on top.
    probability, marginal : ndarray of shape (n_topics, n_top_words)
        Probabilities of these words in the topic, and in all topics.
    noise : ndarray of shape (n_topics, n_top_words), bool
        Whether each word is drawn gray.
    headings : list of str
        Heading of each topic.
    title : str
        Title of the figure.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure that holds the charts.
    ax_ : ndarray of matplotlib Axes, shape (n_topics,)
        The chart of each topic.

    Examples
    --------
    >>> from dplda import GibbsLDA
    >>> from dplda.displays import TopicDisplay
    >>> model = GibbsLDA(n_components=2, max_iter=50).fit([[9, 7, 1, 0], [0, 1, 5, 8]])
    >>> display = TopicDisplay.from_estimator(model)  # doctest: +SKIP
    """

    words: list[list[str]]
    probability: np.ndarray
    marginal: np.ndarray
    noise: np.ndarray
    headings: list[str]
    title: str

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        feature_names: Sequence[str] | Mapping[str, int] | None = None,
        n_top_words: int = 10,
        *,
        topics: Sequence[int] | None = None,
    ) -> TopicDisplay:
        """Draw the topics of a fitted model.

        Parameters
        ----------
        estimator, feature_names, n_top_words : object
            As in `top_words`. The title states the guarantee.
        topics : sequence of int, default=None
            The topics to draw, in this order. None draws all topics, in the order of their
            `topic_evidence_`, the best first.

        Returns
        -------
        display : TopicDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If `feature_names` has the wrong length, or if `topics` is empty or names a topic that
            does not exist.
        """
        model, names = _with_names(estimator, feature_names)
        by, weak = by_evidence(model)
        chosen = by.tolist() if topics is None else list(topics)
        if not chosen:
            raise ValueError("topics must name at least one topic; None draws all of them")
        chosen = [check_integer("topics", k, 0, len(by) - 1) for k in chosen]
        components = model.components_
        share = components.sum(axis=1) / components.sum()
        order, rows = rank_words(components, n_top_words)[chosen], np.array(chosen)[:, None]
        display = cls(
            words=[[escaped(names[v]) for v in topic] for topic in order],
            probability=_word_probabilities(components)[rows, order],
            marginal=(components.sum(axis=0) / components.sum())[order],
            noise=_noise(model)[rows, order],
            headings=[f"topic {k} ({share[k]:.1%}){', weak' if weak[k] else ''}" for k in chosen],
            title=_title(estimator),
        )
        return display.plot()

    def plot(self) -> TopicDisplay:
        """Draw the display on a figure of its own.

        Returns
        -------
        self : TopicDisplay
            The display.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                "TopicDisplay.plot needs matplotlib; install it with: pip install matplotlib"
            ) from error
        columns = min(COLUMNS, len(self.words))
        rows = -(-len(self.words) // columns)
        self.figure_ = plt.figure(figsize=(3.0 * columns, 2.7 * rows + 0.9), layout="constrained")
        self.figure_.suptitle(self.title, parse_math=False)
        places = [self.figure_.add_subplot(rows, columns, k + 1) for k in range(len(self.words))]
        self.ax_ = np.array(places, dtype=object)
        for k, axes in enumerate(self.ax_):
            self._draw_topic(axes, k)
        handles, labels = self.ax_[0].get_legend_handles_labels()
        legend = dict(zip(labels[::-1], handles[::-1]))
        legend[BAR] = plt.Rectangle((0, 0), 1, 1, color=COLORS[0])  # the first bar may be gray
        if self.noise.any():
            legend["does not stand out"] = plt.Rectangle((0, 0), 1, 1, color=LIGHT_GRAY)
        self.figure_.legend(
            legend.values(), legend.keys(), loc="outside lower center", ncols=len(legend),
            frameon=False, title="In parentheses: the topic's share of all words",
        )  # fmt: skip
        return self

    def _draw_topic(self, axes: Any, k: int) -> None:
        order = np.argsort(-self.probability[k], kind="stable")
        place, noise = np.arange(len(order)), self.noise[k][order]
        probability, marginal = self.probability[k][order], self.marginal[k][order]
        colors = np.where(noise, LIGHT_GRAY, COLORS[0])
        axes.barh(place, probability, height=0.75, color=colors, label=BAR)
        axes.plot(
            marginal, place, linestyle="none", marker="|", markersize=9,
            markeredgewidth=2, color=COLORS[1], clip_on=False, zorder=3,
            label="probability in all topics",
        )  # fmt: skip
        # a word may hold a dollar sign
        words = [self.words[k][word] for word in order]
        axes.set_yticks(place, words, fontsize=11, parse_math=False)
        axes.set_xlim(0, 1.05 * max(probability.max(), marginal.max()))
        for label in np.asarray(axes.get_yticklabels())[noise]:
            label.set_color(LIGHT_GRAY)
        axes.invert_yaxis()
        axes.locator_params(axis="x", nbins=3, steps=[1, 2, 5, 10])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.tick_params(axis="x", labelsize=9, colors=GRAY)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_title(self.headings[k], fontsize=11, loc="left")
