"""The displays, by what is on the figure."""

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

from dplda import GibbsLDA, SubLDA, load_release, save_release
from dplda.__main__ import main
from dplda.datasets import make_topic_corpus
from dplda.displays import plot_topics, top_words
from dplda.privacy import LowSignalWarning

matplotlib = pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def plt():
    """pyplot without a screen; figures are closed afterwards."""
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.fixture(scope="module")
def counts():
    return make_topic_corpus(300, 40, 4, random_state=0).data


@pytest.fixture(scope="module")
def model(counts):
    return SubLDA(n_components=4, epsilon=4.0, delta=1e-5, max_iter=5).fit(counts)


@pytest.fixture(scope="module")
def baseline(counts):
    return GibbsLDA(n_components=4, max_iter=20, random_state=0).fit(counts)


class Table(BaseEstimator):
    """A fitted model of which only the table matters."""

    def __init__(self, components):
        self.components = components
        self.components_ = np.asarray(components, float)

    def fit(self, X):
        return self


def drawn(figure):
    """The words of each chart."""
    return [
        [label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes
    ]


def names(n_words):
    return [f"word{v}" for v in range(n_words)]


def test_top_words_equal_a_naive_ranking(model):
    table = model.components_
    for k, words in enumerate(top_words(model, names(40), 40)):
        rank = {}
        for v in range(40):
            probability = table[k, v] / sum(table[k])
            rank[f"word{v}"] = (
                probability * probability / (sum(table[:, v]) / table.sum())
            )
        assert words == sorted(rank, key=rank.get, reverse=True)


def test_words_have_the_names_that_the_model_or_the_caller_gives(model, counts):
    assert top_words(Table([[1, 9, 1], [9, 1, 9]]), n_top_words=1) == [["x1"], ["x0"]]
    assert sorted(top_words(Table([[1.0, 2.0]]), ["a", "b"], 10)[0]) == ["a", "b"]
    columns = {word: v for v, word in reversed(list(enumerate(names(40))))}
    assert top_words(model, columns) == top_words(model, names(40))
    frame = pd.DataFrame(counts.toarray(), columns=names(40))
    fitted = GibbsLDA(n_components=2, max_iter=2, random_state=0).fit(frame)
    assert set(top_words(fitted, n_top_words=40)[0]) == set(names(40))
    words = ["$\\undefined$", "a$b$"]  # no formulas
    figure = plot_topics(Table([[1.0, 2.0]]), words, 2)
    figure.canvas.draw()
    assert set(drawn(figure)[0]) == set(words)


def test_a_pipeline_shows_its_topics_with_its_words():
    texts = ["sea ship", "oven bread", "ship sea sea", "bread oven oven"] * 20
    words = CountVectorizer(vocabulary=["ship", "oven", "sea", "bread"])
    topics = GibbsLDA(n_components=2, max_iter=20, random_state=0)
    for steps in (
        (words, topics),
        (make_pipeline(words), topics, LogisticRegression()),
    ):
        pipeline = make_pipeline(*steps).fit(texts, np.arange(80) % 2)
        found = top_words(pipeline, n_top_words=2)
        assert found == top_words(topics, ["ship", "oven", "sea", "bread"], 2)
        assert {frozenset(of_topic) for of_topic in found} == {
            frozenset({"sea", "ship"}),
            frozenset({"oven", "bread"}),
        }
        in_picture = drawn(plot_topics(pipeline, n_top_words=2))
        assert sorted(map(sorted, in_picture)) == sorted(map(sorted, found))
    with pytest.raises(
        TypeError, match="a pipeline with one as a step, got countvectorizer"
    ):
        top_words(make_pipeline(words).fit(texts))


def test_the_title_states_the_guarantee(model, baseline):
    private = plot_topics(model).get_suptitle()
    stated = f"epsilon = {model.epsilon_:.4g} at delta = 1e-05 for one document"
    assert private == f"SubLDA, 4 topics, {stated} (topics without their words)"
    assert plot_topics(baseline).get_suptitle() == "GibbsLDA, 4 topics, not private"
    table = Table([[1.0]])
    table.estimator_name_ = "PublishedSubLDA"  # a release has the name of the class
    assert plot_topics(table).get_suptitle() == "PublishedSubLDA, 1 topics"


def test_topics_are_those_chosen_and_others_are_refused(model, monkeypatch):
    chosen = drawn(plot_topics(model, names(40), 3, topics=[2, 0]))
    listed = top_words(model, names(40), 3)
    assert [set(words) for words in chosen] == [set(listed[2]), set(listed[0])]
    for topics, error in [
        ([], ValueError),
        ([4], ValueError),
        ([-1], ValueError),
        ([0.0], TypeError),
    ]:
        with pytest.raises(error, match="topics must"):
            plot_topics(model, topics=topics)
    for show in (top_words, plot_topics):
        with pytest.raises(ValueError, match=r"the 40 words .* got 3; pass vectorizer"):
            show(model, ["a", "b", "c"])
        with pytest.raises(
            TypeError, match=r"^expected a fitted topic model, got list$"
        ):
            show(["a diagnosis of Ann"])
        with pytest.raises(NotFittedError):
            show(GibbsLDA())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ImportError, match="needs matplotlib; install it with: pip install"
    ):
        plot_topics(model)


def test_words_that_are_noise_are_gray():
    model = Table([[90, 80, 85, 95, 10, 12], [10, 12, 11, 10, 90, 84]])
    model.components_std_ = np.full(6, 1.0)  # the words of topic 1 but two
    figure = plot_topics(model, list("abcdef"), 6)
    for axes, n_gray in zip(figure.axes, (2, 4)):
        colors = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in axes.patches]
        assert colors.count("#8c8c8c") == n_gray
        labels = axes.get_yticklabels()
        gray = [label.get_text() for label in labels if label.get_color() == "#8c8c8c"]
        assert len(gray) == n_gray
    assert {"e", "f"} == {
        label.get_text()
        for label in figure.axes[0].get_yticklabels()
        if label.get_color() == "#8c8c8c"
    }
    marked = top_words(model, list("abcdef"), 6, mark_noise=True)
    assert sorted(word for word in marked[1] if "?" in word) == ["a?", "b?", "c?", "d?"]


def test_topics_come_in_the_order_of_their_shares_and_weak_ones_last(capsys, tmp_path):
    model = Table([[1.0, 2.0], [3.0, 3.0], [0.5, 0.5]])
    model.topic_evidence_ = np.array([1.0, 3.0, 9.0])
    model.weak_topics_ = np.array([True, False, False])
    assert [axes.get_title(loc="left") for axes in plot_topics(model).axes] == [
        "topic 1 (60.0%)",
        "topic 2 (10.0%)",
        "topic 0? (30.0%)",
    ]
    fitted = SubLDA(3, epsilon=1.0, max_iter=1).fit(np.ones((9, 2)))
    for name in ("components_", "topic_evidence_", "weak_topics_"):
        setattr(fitted, name, getattr(model, name))
    save_release(fitted, tmp_path / "topics.dplda")
    assert main(["topics", str(tmp_path / "topics.dplda")]) == 0
    text = capsys.readouterr().out
    rows = [line.split()[:3] for line in text.splitlines() if "%" in line]
    assert rows == [
        ["1", "60.0%", "3.0"],
        ["2", "10.0%", "9.0"],
        ["0?", "30.0%", "1.0"],
    ]
    assert "at most one in ten is expected to be noise" in text.replace("\n", " ")


def test_topics_that_were_not_tested_say_so_on_every_surface(capsys, tmp_path):
    with pytest.warns(LowSignalWarning, match="not tested"):
        model = SubLDA(2, epsilon=8.0, max_iter=7).fit(np.full((300, 4), 3))
    assert np.isnan(model.topic_evidence_).all()
    assert model.weak_topics_.all()
    save_release(model, tmp_path / "topics.dplda")
    again = load_release(tmp_path / "topics.dplda")
    assert np.isnan(again.topic_evidence_).all()
    assert main(["topics", str(tmp_path / "topics.dplda")]) == 0
    assert "topics are not tested" in capsys.readouterr().out.replace("\n", " ")
    (legend,) = plot_topics(model).legends
    assert "topics are not tested" in legend.get_title().get_text().replace("\n", " ")


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\x1b]0;owned\x07\x1b[2J",
    "</script><script>alert(2)//",
    "[a](javascript:b)",
    "$\\undefined$",
    "|`\u2028@https://a.example",
]


def test_hostile_words_and_cards_of_a_file_do_nothing(tmp_path, capsys):
    """On a terminal, in pictures, in Markdown, and in a page."""
    X = make_topic_corpus(300, 6, 2, random_state=0).data
    hostile = (
        "x <img src=https://a.example/t.png> [c](javascript:d) "
        "![t](https://a.example/p.png)"
    )
    model = SubLDA(n_components=2, epsilon=4.0, max_iter=2).fit(X)
    model.privacy_ = dataclasses.replace(
        model.privacy_, trusted=hostile, theorem='"><b>/../x'
    )
    save_release(model, tmp_path / "m", vocabulary=HOSTILE)
    released = load_release(tmp_path / "m")
    card = released.privacy_
    assert (
        main(["topics", str(tmp_path / "m"), "--picture", str(tmp_path / "m.svg")]) == 0
    )
    printed = capsys.readouterr().out
    assert all(letter.isprintable() for letter in printed.replace("\n", ""))
    assert "<img" in printed  # a terminal shows it as it is
    drawn = (tmp_path / "m.svg").read_text("utf-8")
    assert "<img" not in drawn
    assert "<script" not in drawn
    page = estimator_html_repr(released)
    assert not re.search(
        r"<(img|script(?!>\s)|b>)[^>]*(onerror|alert|a\.example)", page
    )
    markdown = card.to_markdown()
    assert not re.search(r"(?<!\\)[<`]|(?<!\\)\[[ct]|(?<!\\)://a", markdown)
