"""Top words of topics, as lists and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from dplda.displays._style import COLORS, GRAY, import_pyplot


def rank_words(components: np.ndarray, n_top_words: int) -> np.ndarray:
    """Indices of each topic's words, by probability times lift.

    The lift of a word is its probability in the topic over its probability in all topics. By
    probability alone, words that are everywhere head every topic; by lift alone, rare words do,
    whose released counts are mostly noise. The product ranks like the relevance of [1]_ with
    weight 1/2.

    Parameters
    ----------
    components : ndarray of shape (n_components, n_words)
        Positive pseudo-counts.
    n_top_words : int
        Words of each topic; all there are if that is less.

    Returns
    -------
    order : ndarray of shape (n_components, n_top_words)

    References
    ----------
    .. [1] C. Sievert, K. Shirley, "LDAvis: A method for visualizing and interpreting topics",
       ACL Workshop on Interactive Language Learning, Visualization, and Interfaces, 2014.
    """
    check_scalar(n_top_words, "n_top_words", Integral, min_val=1)
    relevance = 2 * np.log(_word_probabilities(components)) - np.log(_marginal(components))
    return np.argsort(-relevance, axis=1, kind="stable")[:, :n_top_words]


def top_words(
    estimator: Any, feature_names: Sequence[str] | None = None, n_top_words: int = 10
) -> list[list[str]]:
    """The words that tell each topic from the others, the most telling first.

    They are ranked by probability times lift, where the lift of a word is its probability in the
    topic over its probability in all topics.

    Parameters
    ----------
    estimator : fitted topic model
        Anything with `components_`.
    feature_names : sequence of str of length n_words, default=None
        The vocabulary, as from ``vectorizer.get_feature_names_out()``. None takes
        `feature_names_in_` where the model was fitted on a data frame, else x0, x1, ...
    n_top_words : int, default=10
        Words of each topic.

    Returns
    -------
    words : list of n_components lists of str

    Raises
    ------
    ValueError
        If `feature_names` has another length than the vocabulary of the model.

    Examples
    --------
    >>> from dplda import GibbsLDA
    >>> from dplda.displays import top_words
    >>> X = [[9, 7, 1, 0], [0, 1, 5, 8], [7, 8, 0, 0], [0, 0, 6, 7]]
    >>> model = GibbsLDA(n_components=2, max_iter=50, random_state=0).fit(X)
    >>> sorted(sorted(words) for words in top_words(model, ["sea", "ship", "oven", "bread"], 2))
    [['bread', 'oven'], ['sea', 'ship']]
    """
    check_is_fitted(estimator)
    names = _names(estimator, feature_names)
    order = rank_words(estimator.components_, n_top_words)
    return [[str(names[v]) for v in topic] for topic in order]


def _names(estimator: Any, feature_names: Sequence[str] | None) -> Sequence[str]:
    n_words = estimator.components_.shape[1]
    if feature_names is None:
        generated = [f"x{v}" for v in range(n_words)]
        return getattr(estimator, "feature_names_in_", generated)
    if len(feature_names) != n_words:
        raise ValueError(
            f"feature_names must hold the {n_words} words that the model was fitted on, got "
            f"{len(feature_names)}; pass vectorizer.get_feature_names_out()"
        )
    return feature_names


def _chosen(topics: Sequence[int] | None, n_topics: int) -> list[int]:
    chosen = list(range(n_topics) if topics is None else topics)
    if not chosen or not all(isinstance(k, Integral) and 0 <= k < n_topics for k in chosen):
        raise ValueError(f"topics must be one or more integers from 0 to {n_topics - 1}, or None")
    return chosen


def _word_probabilities(components: np.ndarray) -> np.ndarray:
    return components / components.sum(axis=1, keepdims=True)


def _marginal(components: np.ndarray) -> np.ndarray:
    return components.sum(axis=0) / components.sum()


def _title(estimator: Any) -> str:
    """Class, number of topics, and the guarantee."""
    name = f"{type(estimator).__name__}, {estimator.components_.shape[0]} topics"
    privacy = getattr(estimator, "privacy_", None)
    if privacy is None:
        return name
    if math.isinf(privacy.epsilon):
        return f"{name}, not private"
    return (
        f"{name}, epsilon = {privacy.epsilon:.3g} at delta = {privacy.delta:.2g} for one "
        f"{privacy.unit}{' (seeded noise)' if privacy.seeded else ''}"
    )


class TopicDisplay:
    """The top words of every topic: a small bar chart each.

    A bar is a word's probability in the topic, a tick its probability in all topics: where the
    bar ends far beyond the tick, the word is typical of the topic. Use :meth:`from_estimator`.

    Parameters
    ----------
    words : list of n_topics lists of str
        Top words of each topic, the first on top.
    probability : list of n_topics arrays
        Their probabilities in the topic.
    marginal : list of n_topics arrays
        Their probabilities in all topics.
    headings : list of str
        One for each topic.
    title : str, default=None
        Of the figure.

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : ndarray of matplotlib Axes, shape (n_topics,)

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.displays import TopicDisplay
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=4.0).fit(X)
    >>> display = TopicDisplay.from_estimator(model)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        words: list[list[str]],
        probability: Sequence[np.ndarray],
        marginal: Sequence[np.ndarray],
        headings: list[str],
        title: str | None = None,
    ) -> None:
        self.words = words
        self.probability = probability
        self.marginal = marginal
        self.headings = headings
        self.title = title

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        feature_names: Sequence[str] | None = None,
        n_top_words: int = 10,
        *,
        topics: Sequence[int] | None = None,
        ax: Any = None,
        n_columns: int = 5,
    ) -> TopicDisplay:
        """Draw the topics of a fitted model.

        Parameters
        ----------
        estimator : fitted topic model
        feature_names : sequence of str of length n_words, default=None
            The vocabulary; see :func:`top_words`.
        n_top_words : int, default=10
            Words of each topic, ranked by probability times lift.
        topics : sequence of int, default=None
            Which topics, in which order; None: all.
        ax, n_columns
            See :meth:`plot`.

        Returns
        -------
        display : TopicDisplay
        """
        check_is_fitted(estimator)
        components = estimator.components_
        chosen = _chosen(topics, len(components))
        order = rank_words(components, n_top_words)
        names = _names(estimator, feature_names)
        share = components.sum(axis=1) / components.sum()
        display = cls(
            words=[[str(names[v]) for v in order[k]] for k in chosen],
            probability=[_word_probabilities(components)[k, order[k]] for k in chosen],
            marginal=[_marginal(components)[order[k]] for k in chosen],
            headings=[f"topic {k} ({share[k]:.1%})" for k in chosen],
            title=_title(estimator),
        )
        return display.plot(ax, n_columns=n_columns)

    def plot(self, ax: Any = None, *, n_columns: int = 5) -> TopicDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or array of Axes, default=None
            An array of Axes gets a topic each; a single Axes of a grid is divided among them.
            None makes a figure.
        n_columns : int, default=5
            Topics beside each other, unless `ax` is an array.

        Returns
        -------
        self : TopicDisplay

        Raises
        ------
        ImportError
            Without matplotlib.
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
            self.figure_.legend(
                handles[::-1],
                labels[::-1],
                loc="outside lower center",
                ncols=2,
                frameon=False,
                title="In parentheses: the topic's share of all words",
            )
        return self

    def _draw_topic(self, axes: Any, k: int) -> None:
        place = np.arange(len(self.words[k]))
        axes.barh(
            place,
            self.probability[k],
            height=0.75,
            color=COLORS[0],
            label="probability in the topic",
        )
        axes.plot(
            self.marginal[k], place, linestyle="none", marker="|", markersize=9,
            markeredgewidth=2, color=COLORS[1], clip_on=False, zorder=3,
            label="probability in all topics",
        )  # fmt: skip
        # a word may hold a dollar sign
        axes.set_yticks(place, self.words[k], fontsize=9, parse_math=False)
        axes.invert_yaxis()
        axes.locator_params(axis="x", nbins=3, steps=[1, 2, 5, 10])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.tick_params(axis="x", labelsize=8, colors=GRAY)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_title(self.headings[k], fontsize=10, loc="left")


def _panels(plt: Any, ax: Any, n_topics: int, n_columns: int, title: str | None) -> np.ndarray:
    """One Axes for each topic: given ones, parts of a given one, or those of a new figure."""
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
        given = np.asarray(ax, dtype=object).ravel()
        if len(given) < n_topics:
            raise ValueError(
                f"ax must hold one Axes for each of {n_topics} topics, got {len(given)}"
            )
        return given[:n_topics]
    places = [grid[k // columns, k % columns] for k in range(n_topics)]
    return np.array([figure.add_subplot(place) for place in places], dtype=object)
