"""Lists of topics: which words, which order, which marks."""

import dataclasses
import re

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
from dplda.displays import top_words
from dplda.privacy import LowSignalWarning


@pytest.fixture(scope="module")
def counts():
    return make_topic_corpus(300, 40, 4, random_state=0).data


@pytest.fixture(scope="module")
def model(counts):
    return SubLDA(n_components=4, epsilon=4.0, delta=1e-5, max_iter=5).fit(counts)


class Table(BaseEstimator):
    """A fitted model of which only the table matters."""

    def __init__(self, components):
        self.components = components
        self.components_ = np.asarray(components, float)

    def fit(self, X):
        return self


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


def test_words_that_a_topic_lacks_come_last():
    table = Table([[0, 1, 9, 0], [0, 5, 5, 3]])
    assert top_words(table, n_top_words=4) == [
        ["x2", "x1", "x0", "x3"],
        ["x1", "x3", "x2", "x0"],
    ]


def test_words_have_the_names_that_the_model_or_the_caller_gives(model, counts):
    assert top_words(Table([[1, 9, 1], [9, 1, 9]]), n_top_words=1) == [["x1"], ["x0"]]
    assert sorted(top_words(Table([[1.0, 2.0]]), ["a", "b"], 10)[0]) == ["a", "b"]
    columns = {word: v for v, word in reversed(list(enumerate(names(40))))}
    assert top_words(model, columns) == top_words(model, names(40))
    frame = pd.DataFrame(counts.toarray(), columns=names(40))
    fitted = GibbsLDA(n_components=2, max_iter=2, random_state=0).fit(frame)
    assert set(top_words(fitted, n_top_words=40)[0]) == set(names(40))


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
    with pytest.raises(
        TypeError, match="a pipeline with one as a step, got countvectorizer"
    ):
        top_words(make_pipeline(words).fit(texts))


def test_what_is_no_model_or_has_other_words_is_refused(model):
    with pytest.raises(ValueError, match=r"the 40 words .* got 3; pass vectorizer"):
        top_words(model, ["a", "b", "c"])
    with pytest.raises(TypeError, match=r"^expected a fitted topic model, got list$"):
        top_words(["a diagnosis of Ann"])
    with pytest.raises(NotFittedError):
        top_words(GibbsLDA())


def test_words_that_are_noise_have_a_question_mark():
    model = Table([[90, 80, 85, 95, 10, 12], [10, 12, 11, 10, 90, 84]])
    model.components_std_ = np.full(6, 1.0)
    marked = top_words(model, list("abcdef"), 6, mark_noise=True)
    noise = [sorted(word for word in words if "?" in word) for words in marked]
    assert noise == [["e?", "f?"], ["a?", "b?", "c?", "d?"]]


def test_topics_come_in_the_order_of_their_shares_and_weak_ones_last(capsys, tmp_path):
    model = Table([[1.0, 2.0], [3.0, 3.0], [0.5, 0.5]])
    model.topic_evidence_ = np.array([1.0, 3.0, 9.0])
    model.weak_topics_ = np.array([True, False, False])
    fitted = SubLDA(3, epsilon=1.0, max_iter=1).fit(np.ones((9, 2)))
    for name in ("components_", "topic_evidence_", "weak_topics_"):
        setattr(fitted, name, getattr(model, name))
    save_release(fitted, tmp_path / "topics.dplda")
    assert main(["topics", str(tmp_path / "topics.dplda")]) == 0
    text = capsys.readouterr().out
    rows = [line.split()[:3] for line in text.splitlines() if "%  " in line]
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


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\x1b]0;owned\x07\x1b[2J",
    "</script><script>alert(2)//",
    "[a](javascript:b)",
    "$\\undefined$",
    "|`\u2028@https://a.example",
]


def test_hostile_words_and_cards_of_a_file_do_nothing(tmp_path, capsys):
    """On a terminal, in Markdown, and in the box of a notebook."""
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
    assert main(["topics", str(tmp_path / "m")]) == 0
    printed = capsys.readouterr().out
    assert all(letter.isprintable() for letter in printed.replace("\n", ""))
    assert "<img" in printed  # a terminal shows it as it is
    page = estimator_html_repr(released)
    assert not re.search(
        r"<(img|script(?!>\s)|b>)[^>]*(onerror|alert|a\.example)", page
    )
    markdown = card.to_markdown()
    assert not re.search(r"(?<!\\)[<`]|(?<!\\)\[[ct]|(?<!\\)://a", markdown)
