"""Releases that a publisher has changed: words left out, topics named."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dplda import (
    PrivateTopicModel,
    ReleasedModel,
    SubLDA,
    load_release,
    private_topic_counts,
    save_release,
)
from dplda.__main__ import main
from dplda.displays import report

WORDS = ["heart", "pulse", "keller", "fracture", "cast", "okafor", "hip", "chest"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 10)) for _ in range(300)]
    model = PrivateTopicModel(
        2, epsilon=9.0, vocabulary=WORDS, model=SubLDA(max_iter=8)
    )
    path = tmp_path_factory.mktemp("release") / "topics.dplda"
    model.fit(texts).save(path)
    return path


@pytest.fixture
def released(path):
    return load_release(path)


def again(model, tmp_path):
    save_release(model, tmp_path / "edited")
    return load_release(tmp_path / "edited")


def test_words_are_gone_and_the_rest_is_as_before(released, tmp_path):
    before = released.to_bytes()
    edited = again(released.without(["Dr Keller", "OKAFOR", "nobody"]), tmp_path)
    kept = [w for w in released.vocabulary_ if w not in ("keller", "okafor")]
    columns = [released.vocabulary_.tolist().index(word) for word in kept]
    assert edited.vocabulary_.tolist() == kept
    assert_array_equal(edited.components_, released.components_[:, columns])
    assert_array_equal(edited.components_std_, released.components_std_[columns])
    assert_array_equal(edited.row_noise_, released.row_noise_[columns])
    assert_array_equal(edited.weak_topics_, released.weak_topics_)
    assert_array_equal(
        edited.transform(["Keller's heart, chest"]), edited.transform(["heart chest"])
    )
    data = (tmp_path / "edited").read_bytes().lower()
    for name in (b"keller", b"okafor"):
        assert name not in data
        assert name not in report(edited).encode().lower()
    assert edited.epsilon_ == released.epsilon_
    assert "2 words left out by the publisher" in str(edited.privacy_)
    assert released.to_bytes() == before  # it is a copy that was changed


def test_counts_of_the_model_belong_to_its_edited_release(released, tmp_path):
    texts = ["heart pulse", "hip cast"] * 30
    given = {"by": {"ward": ["a", "b"] * 30}, "levels": {"ward": ["a", "b"]}}
    table = private_topic_counts(released, texts, epsilon=1.0, **given)
    edited = again(released.without(["keller"]).named({1: "Bones"}), tmp_path)
    page = report(edited, counts=[table])
    assert "Bones" in page
    assert edited.sha256_ in page
    assert edited.sha256_ != released.sha256_


def test_topics_have_names_of_a_dict_or_of_a_function_of_released_words(
    released, tmp_path
):
    seen = []

    def name(words):
        seen.append(words)
        return f"about {words[0]}"

    edited = again(released.named(name).named({0: "Heart"}), tmp_path)
    assert edited.names_ == {0: "Heart", 1: f"about {seen[1][0]}"}
    assert [sorted(words) for words in seen] == [sorted(WORDS)] * 2
    assert "topics named by the publisher" in str(edited.privacy_)
    with pytest.raises(
        ValueError, match="a row of names must be an integer from 0 to 1"
    ):
        released.named({2: "a"})
    with pytest.raises(ValueError, match="name of topic 0 must be a printable text"):
        released.named({0: "a\nb"})
    with pytest.raises(ValueError, match="name of topic 0 must be a printable text"):
        released.named(lambda words: words)


def test_what_cannot_be_left_out_is_refused(released):
    with pytest.raises(TypeError, match="list of words, got a single text"):
        released.without("keller")
    with pytest.raises(ValueError, match="8 of 8 words would be left out"):
        released.without(WORDS)
    alone = ReleasedModel()
    vars(alone).update(vars(released), vocabulary_=None, vectorizer_=None)
    with pytest.raises(ValueError, match="has no words"):
        alone.without(["keller"])


def test_columns_of_several_words_go_with_one_of_them(released):
    pairs = ReleasedModel()
    words = np.array(["dr keller", "keller said", "the heart", "heart"], object)
    vars(pairs).update(vars(released), vectorizer_=None, settings_=None)
    pairs.components_ = released.components_[:, :4]
    pairs.vocabulary_ = words
    for name in ("components_std_", "row_noise_"):
        setattr(pairs, name, getattr(released, name)[:4])
    assert pairs.without(["keller"]).vocabulary_.tolist() == ["the heart", "heart"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_command_adds_stop_words_to_those_of_the_language(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = ["police", "party", "minister", "keller", "the"]
    lines = [" ".join(rng.choice(words, 12)) for _ in range(1500)]
    (tmp_path / "notes.csv").write_text("\n".join(["text", *lines]))
    (tmp_path / "staff.txt").write_text("Okafor\nKeller\n")
    fit = "fit notes.csv --epsilon 8 --n-components 2 --max-features 30 --no-ledger"
    assert main([*fit.split(), "--out", "with.dplda"]) == 0
    stop = ["--stop-words", "staff.txt"]
    assert main([*fit.split(), *stop, "--out", "without.dplda"]) == 0
    found = [load_release(name).vocabulary_ for name in ("with.dplda", "without.dplda")]
    assert ["keller" in words for words in found] == [True, False]
    assert not any("the" in words for words in found)
    assert all("police" in words for words in found)
    assert math.isfinite(load_release("without.dplda").epsilon_)
