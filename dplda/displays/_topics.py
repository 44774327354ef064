"""Top words of topics, as lists and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from dplda.displays._style import COLORS, GRAY, LIGHT_GRAY, import_pyplot, model_name
from dplda.leaf._checks import check_integer
from dplda.leaf._vocabulary import check_model, flat_steps, in_order, words_after, words_of
from dplda.metrics._signal import standing_words

_MOST_WORDS = 2**31 - 1
BAR = "probability in the topic"


def rank_words(components: np.ndarray, n_top_words: int) -> np.ndarray:
    """Indices (n_components, n_top_words) of each topic's words, by probability times lift.

    The lift of a word is its probability in the topic over its probability in all topics. By
    probability alone, words that are frequent everywhere come first in every topic. By lift alone,
    rare words come first, and their released counts are mostly noise. The product ranks like the
    relevance of LDAvis (C. Sievert, K. Shirley, 2014) with weight 1/2.
    """
    check_integer("n_top_words", n_top_words, 1, _MOST_WORDS)
    relevance = 2 * np.log(_word_probabilities(components)) - np.log(_marginal(components))
    return np.argsort(-relevance, axis=1, kind="stable")[:, :n_top_words]


def top_words(
    estimator: Any,
    feature_names: Sequence[str] | Mapping[str, int] | None = None,
    n_top_words: int = 10,
    *,
    mark_noise: bool = False,
) -> list[list[str]]:
    """List the words that distinguish each topic from the others, the best first.

    Words are ranked by probability times lift. The lift of a word is its probability in the topic
    over its probability in all topics.

    Parameters
    ----------
    estimator : fitted topic model or Pipeline
        Any object with `components_`, of shape (n_components, n_words), or a pipeline with such a
        step.
    feature_names : sequence of str of length n_words, or dict of str to int, default=None
        The vocabulary, such as ``vectorizer.get_feature_names_out()`` or
        ``vectorizer.vocabulary_``. None takes the words of the pipeline's vectorizer, `vocabulary_`
        of a released model, or `feature_names_in_` if the model was fitted on a data frame, else
        x0, x1, ...
    n_top_words : int, default=10
        Words of each topic, at least 1.
    mark_noise : bool, default=False
        Whether a question mark follows each word that does not stand out of the noise. A model
        without `components_std_` has no marks.

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
    estimator, names = with_names(estimator, feature_names)
    order = rank_words(estimator.components_, n_top_words)
    noise = _noise(estimator) & mark_noise
    return [
        [f"{names[v]}?" if noise[k, v] else str(names[v]) for v in topic]
        for k, topic in enumerate(order)
    ]


def to_pyldavis(estimator: Any, feature_names: Sequence[str] | None = None) -> dict[str, Any]:
    """Prepare a model for pyLDAvis, from its released table alone.

    pyLDAvis asks for the topics and lengths of the training documents, and uses them for the sizes
    of the topics only. Here each topic takes the place of one document, whose length is the topic's
    released amount of words.

    Parameters
    ----------
    estimator, feature_names : object
        As in `top_words`.

    Returns
    -------
    arguments : dict
        Arguments of ``pyLDAvis.prepare(**arguments)``: ``topic_term_dists``, ``doc_topic_dists``,
        ``doc_lengths``, ``vocab``, ``term_frequency``. pyLDAvis is not needed to make them.

    Notes
    -----
    **Privacy.** The result is a function of `components_`: for a released model it costs nothing.
    Do not pass ``model.transform(X)`` and the lengths of private documents to pyLDAvis instead: its
    page shows sums of them without noise, and no epsilon covers that.

    Examples
    --------
    >>> from dplda import GibbsLDA
    >>> from dplda.displays import to_pyldavis
    >>> X = [[9, 7, 1, 0], [0, 1, 5, 8], [7, 8, 0, 0], [0, 0, 6, 7]]
    >>> arguments = to_pyldavis(GibbsLDA(n_components=2, max_iter=50, random_state=0).fit(X))
    >>> page = pyLDAvis.prepare(**arguments)  # doctest: +SKIP
    """
    estimator, names = with_names(estimator, feature_names)
    components = np.asarray(estimator.components_, dtype=np.float64)
    return {
        "topic_term_dists": _word_probabilities(components),
        "doc_topic_dists": np.eye(len(components)),
        "doc_lengths": components.sum(axis=1),
        "vocab": [str(name) for name in names],
        "term_frequency": components.sum(axis=0),
    }


def with_names(
    estimator: Any, feature_names: Sequence[str] | Mapping[str, int] | None
) -> tuple[Any, list[str]]:
    """The topic model, which may be a step of a pipeline, and the words of its columns."""
    check_model(estimator)
    if isinstance(estimator, Pipeline):
        steps = list(flat_steps(estimator))
        place = next((i for i, (_, step) in enumerate(steps) if hasattr(step, "components_")), None)
        if place is None:
            raise TypeError(
                "a pipeline must have a topic model as a step, got the steps "
                f"{', '.join(name for name, _ in steps)}"
            )
        estimator = steps[place][1]
        feature_names = words_after(steps[:place]) if feature_names is None else feature_names
    n_words = estimator.components_.shape[1]
    if feature_names is None:
        return estimator, words_of(estimator) or [f"x{v}" for v in range(n_words)]
    names = in_order(feature_names)
    if len(names) != n_words:
        raise ValueError(
            f"feature_names must hold the {n_words} words that the model was fitted on, got "
            f"{len(names)}; pass vectorizer.get_feature_names_out()"
        )
    return estimator, names


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


def _selected(topics: Sequence[int] | None, order: np.ndarray) -> list[int]:
    selected = order.tolist() if topics is None else list(topics)
    if not selected:
        raise ValueError("topics must name at least one topic; None draws all of them")
    return [check_integer("topics", k, 0, len(order) - 1) for k in selected]


def _word_probabilities(components: np.ndarray) -> np.ndarray:
    return components / components.sum(axis=1, keepdims=True)


def _marginal(components: np.ndarray) -> np.ndarray:
    return components.sum(axis=0) / components.sum()


def _title(estimator: Any) -> str:
    """Class, number of topics, and the guarantee."""
    name = f"{model_name(estimator)}, {estimator.components_.shape[0]} topics"
    privacy = getattr(estimator, "privacy_", None)
    if privacy is None:
        return name
    if math.isinf(privacy.epsilon):
        return f"{name}, not private"
    return (
        f"{name}, epsilon = {privacy.epsilon:.3g} at delta = {privacy.delta:.2g} for one "
        f"{privacy.unit}{' (seeded noise)' if privacy.seeded else ''}"
    )


@dataclass(kw_only=True, eq=False)
class TopicDisplay:
    """Top words of topics, as one small bar chart for each topic.

    A bar shows a word's probability in the topic, and a tick its probability in all topics. A word
    whose bar ends far beyond its tick is typical of the topic. A word that does not stand out of
    the noise of a private model is gray, and a heading names a topic of `weak_topics_` as weak. Use
    :meth:`from_estimator`.

    Parameters
    ----------
    words : list of n_topics lists of str
        Top words of each topic. The first word is on top.
    probability, marginal : list of n_topics arrays
        Probabilities of these words in the topic, and in all topics.
    headings : list of str
        Heading of each topic.
    title : str, default=None
        Title of the figure; None for no title.
    noise : list of n_topics arrays of bool, default=None
        Whether each word is drawn gray, as noise. None draws all words alike.

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
    probability: Sequence[np.ndarray]
    marginal: Sequence[np.ndarray]
    headings: list[str]
    title: str | None = None
    noise: Sequence[np.ndarray] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        feature_names: Sequence[str] | Mapping[str, int] | None = None,
        n_top_words: int = 10,
        *,
        topics: Sequence[int] | None = None,
        ax: Any = None,
        n_columns: int = 5,
    ) -> TopicDisplay:
        """Draw the topics of a fitted model.

        Parameters
        ----------
        estimator, feature_names, n_top_words : object
            As in `top_words`. The title states the guarantee if the model has `privacy_`.
        topics : sequence of int, default=None
            The topics to draw, in this order. None draws all topics, in the order of their
            `topic_evidence_`, the best first.
        ax, n_columns : optional
            As in `plot`.

        Returns
        -------
        display : TopicDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If `feature_names` or `ax` has the wrong length, or if `topics` is empty or names a
            topic that does not exist.
        """
        estimator, names = with_names(estimator, feature_names)
        components = estimator.components_
        by, weak = by_evidence(estimator)
        selected = _selected(topics, by)
        order = rank_words(components, n_top_words)
        share, noise = components.sum(axis=1) / components.sum(), _noise(estimator)
        probability, marginal = _word_probabilities(components), _marginal(components)
        display = cls(
            words=[[str(names[v]) for v in order[k]] for k in selected],
            probability=[probability[k, order[k]] for k in selected],
            marginal=[marginal[order[k]] for k in selected],
            headings=[f"topic {k} ({share[k]:.1%}){', weak' if weak[k] else ''}" for k in selected],
            title=_title(estimator),
            noise=[noise[k, order[k]] for k in selected],
        )
        return display.plot(ax, n_columns=n_columns)

    def plot(self, ax: Any = None, *, n_columns: int = 5) -> TopicDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes or array of Axes, default=None
            An array of Axes holds one topic each. A single Axes of a grid is divided among the
            topics. None makes a figure.
        n_columns : int, default=5
            Number of topics next to each other, unless `ax` is an array.

        Returns
        -------
        self : TopicDisplay
            The display.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there are fewer Axes than topics.
        """
        plt = import_pyplot("TopicDisplay.plot")
        self.ax_ = _panels(plt, ax, len(self.words), n_columns, self.title)
        self.figure_ = self.ax_[0].figure
        longest = max(float(np.max(p)) for p in self.probability)
        for k, axes in enumerate(self.ax_):
            self._draw_topic(axes, k)
            axes.set_xlim(0, 1.05 * longest)
        if ax is None:
            handles, labels = self.ax_[0].get_legend_handles_labels()
            legend = dict(zip(labels[::-1], handles[::-1]))
            legend[BAR] = plt.Rectangle((0, 0), 1, 1, color=COLORS[0])  # the first bar may be gray
            if self.noise is not None and np.any(np.concatenate(list(self.noise))):
                legend["does not stand out"] = plt.Rectangle((0, 0), 1, 1, color=LIGHT_GRAY)
            self.figure_.legend(
                legend.values(),
                legend.keys(),
                loc="outside lower center",
                ncols=len(legend),
                frameon=False,
                title="In parentheses: the topic's share of all words",
            )
        return self

    def _draw_topic(self, axes: Any, k: int) -> None:
        place = np.arange(len(self.words[k]))
        noise = np.zeros(len(place), bool) if self.noise is None else self.noise[k]
        axes.barh(
            place,
            self.probability[k],
            height=0.75,
            color=np.where(noise, LIGHT_GRAY, COLORS[0]),
            label=BAR,
        )
        axes.plot(
            self.marginal[k], place, linestyle="none", marker="|", markersize=9,
            markeredgewidth=2, color=COLORS[1], clip_on=False, zorder=3,
            label="probability in all topics",
        )  # fmt: skip
        # a word may hold a dollar sign
        axes.set_yticks(place, self.words[k], fontsize=9, parse_math=False)
        for label in np.asarray(axes.get_yticklabels())[noise]:
            label.set_color(LIGHT_GRAY)
        axes.invert_yaxis()
        axes.locator_params(axis="x", nbins=3, steps=[1, 2, 5, 10])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.tick_params(axis="x", labelsize=8, colors=GRAY)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_title(self.headings[k], fontsize=10, loc="left")


def _panels(plt: Any, ax: Any, n_topics: int, n_columns: int, title: str | None) -> np.ndarray:
    """One Axes for each topic: from the array `ax`, parts of one Axes `ax`, or a new figure."""
    columns = max(1, min(n_columns, n_topics))
    rows = -(-n_topics // columns)
    if ax is None:
        figure = plt.figure(figsize=(2.9 * columns, 2.5 * rows + 0.9), layout="constrained")
        figure.suptitle(title or "")
        grid = figure.add_gridspec(rows, columns)
    elif hasattr(ax, "get_subplotspec"):
        ax.set_axis_off()
        figure, grid = ax.figure, ax.get_subplotspec().subgridspec(rows, columns)
    else:
        panels = np.asarray(ax, dtype=object).ravel()
        if len(panels) < n_topics:
            raise ValueError(
                f"ax must hold one Axes for each of {n_topics} topics, got {len(panels)}"
            )
        return panels[:n_topics]
    places = [grid[k // columns, k % columns] for k in range(n_topics)]
    return np.array([figure.add_subplot(place) for place in places], dtype=object)
