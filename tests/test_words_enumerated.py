"""What a word is: in every language on offer, in whatever form its characters come."""

import importlib.util
import json
import math
import re
import sys
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import dplda
from dplda import PrivateCountVectorizer, PrivateTopicModel
from dplda.core._splitter import forms_of
from dplda.core._words import WITHOUT_SPACES, Words, language_of
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.datasets._words import language_words, languages
from dplda.privacy import Ledger

pytest.importorskip("wordfreq")
pytest.importorskip("stopwordsiso")
# the first six articles of the Universal Declaration of Human Rights
DECLARATION = json.loads(
    Path(__file__).with_name("declaration.json").read_text(encoding="utf-8")
)
HAS_SEGMENTERS = all(map(importlib.util.find_spec, ("MeCab", "jieba")))
GLOSSES = load_wordnet_glosses().data
needs_segmenters = pytest.mark.skipif(
    not HAS_SEGMENTERS, reason="needs wordfreq[cjk] (extra cjk)"
)
EACH = [
    pytest.param(code, marks=needs_segmenters if code in WITHOUT_SPACES else ())
    for code in DECLARATION
]
FORMS = {
    "NFC": lambda text: unicodedata.normalize("NFC", text),
    "NFD": lambda text: unicodedata.normalize("NFD", text),
    "NFKD": lambda text: unicodedata.normalize("NFKD", text),
    "soft hyphens": lambda text: re.sub(r"(?<=\w)(?=\w)", "\N{SOFT HYPHEN}", text),
    "joiners": lambda text: re.sub(r"(?<=\w)(?=\w)", "\N{WORD JOINER}", text),
    "marks of order": lambda text: text.replace("\N{SPACE}", "\N{LEFT-TO-RIGHT MARK} "),
}


def n_letters(text):
    return sum(unicodedata.category(letter)[0] == "L" for letter in text)


def test_the_declaration_has_every_language_on_offer():
    assert sorted(DECLARATION) == languages()


@pytest.mark.parametrize("language", EACH)
def test_nine_in_ten_letters_of_a_language_are_in_words(language):
    text = unicodedata.normalize("NFC", DECLARATION[language])
    words = Words.of(language)(text)
    assert n_letters("".join(words)) >= 0.9 * n_letters(text)
    assert max(map(len, words)) < 40  # no clauses


@pytest.mark.parametrize("language", EACH)
@pytest.mark.parametrize("form", FORMS)
def test_a_word_is_the_same_in_every_form_of_its_characters(language, form):
    text = DECLARATION[language]
    rule = Words.of(language)
    assert rule(FORMS[form](text)) == rule(text)
    if language not in WITHOUT_SPACES:  # a segmenter reads the words around
        assert rule(" ".join(rule(text))) == rule(text)


@pytest.mark.parametrize(
    "language",
    [each for each in EACH if {*each.values} & {"ar", "de", "el", "hi", "zh"}],
)
def test_words_of_a_list_are_words_of_texts(language):
    """Half of the words of a text that are no stop words are in the list."""
    words, stop_words = language_words(language)
    rule = Words.of(language)
    assert len(words) > 9000
    assert forms_of(rule, words[:200]) == [*words[:200]]
    said = [word for word in rule(DECLARATION[language]) if word not in stop_words]
    assert np.isin(said, words).mean() > 0.5
    assert not {*words} & stop_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "infor\u00admation and di\ufb03culties",
            ["information", "and", "difficulties"],
        ),
        ("ＦＵＬＬ width, 𝐛𝐨𝐥𝐝 letters", ["full", "width", "bold", "letters"]),
        ("na\u0131\u0308ve", ["na\u0131\u0308ve"]),
        ("nai\u0308ve na\u00efve", ["na\u00efve"] * 2),
        ("Brand™ and note² and half½", ["brand", "and", "note", "and", "half"]),
        ("\ufeffword heart\ufe0f", ["word", "heart"]),
        ("one\u200btwo", ["one", "two"]),  # which separates words
        ("Straße STRASSE", ["strasse"] * 2),
        ("\u0130stanbul", ["istanbul"]),
        ("كَلِمَة الحمــــد", ["كلمة", "الحمد"]),
    ],
)
def test_a_word_is_what_a_reader_takes_for_a_word(text, words):
    assert Words()(text) == words
    texts = [text] * 60
    exact = PrivateCountVectorizer(epsilon=math.inf, candidates=None).fit(texts)
    assert sorted(exact.vocabulary_) == sorted({*words})
    assert exact.transform([text]).sum() == len(words)


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("tr", "HAKKINDA İSTANBUL kișinin", ["hakkında", "istanbul", "kişinin"]),
        ("ro", "ACELAŞI", ["același"]),
        ("el", "ΤΟΥΣ τους", ["τους", "τους"]),
        ("uk", "п'ять зв’язок", ["пʼять", "звʼязок"]),
        ("ca", "col·laboració", ["coŀlaboració"]),
        ("hi", "हिन्दी में देश", ["हिन्दी", "में", "देश"]),
        ("fa", "می‌خواهم", ["میخواهم"]),
    ],
)
def test_spelling_of_a_language(language, text, words):
    assert Words.of(language)(text) == words


def test_plain_english_is_split_as_by_scikit_learn():
    for options in ({}, {"token_pattern": r"(?u)\b[^\W\d_]{3,}\b"}):
        theirs = CountVectorizer(stop_words="english", **options).build_analyzer()
        rule = Words.of("en", **{"token_pattern": r"(?u)\b\w\w+\b"} | options)
        stop_words = CountVectorizer(stop_words="english").get_stop_words()
        for text in GLOSSES[:300]:
            ours = [word for word in rule(text) if word not in stop_words]
            assert ours == theirs(text)


def test_candidates_and_given_words_pass_the_same_door():
    texts = ["the na\u00efve stra\u00dfe"] * 60
    given = ["nai\u0308ve", "stra\u00dfe"]
    chosen = PrivateCountVectorizer(epsilon=50.0, candidates=given, discover=False)
    assert sorted(chosen.fit(texts).vocabulary_) == ["na\u00efve", "strasse"]
    model = PrivateTopicModel(2, epsilon=50.0, vocabulary=given).fit(texts)
    assert model.vocabulary_.tolist() == ["na\u00efve", "strasse"]
    assert model.vectorizer_.transform(texts).sum() == 120


@pytest.mark.parametrize("word", ["blood-red", "new york", "Tree", "the"])
def test_given_words_that_no_text_has_are_warned_of_before_the_charge(word):
    ledger = Ledger()
    model = PrivateTopicModel(
        2, epsilon=9.0, vocabulary=["tree", word], stop_words=["the"], ledger=ledger
    )
    with pytest.raises(UserWarning, match=f"1 of 2 words .* cannot occur.*{word!r}"):
        model.fit(GLOSSES[:99])  # a warning is an error here
    assert ledger.epsilon_spent == 0


def test_texts_in_another_language_than_the_list_are_told_by_what_is_released():
    german = DECLARATION["de"].split(". ") * 100
    with pytest.warns(UserWarning, match="not in the list of language 'en'") as told:
        PrivateCountVectorizer(epsilon=8.0).fit(german)
    (warning,) = (w for w in told if "not in the list" in str(w.message))
    assert not re.search(r"\d", str(warning.message))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "most words that pass")
        PrivateCountVectorizer(epsilon=8.0, candidates="de").fit(german)
        PrivateCountVectorizer(epsilon=8.0).fit(GLOSSES)


@pytest.mark.parametrize("vocabulary", ["zh", ["人权", "自由"]])
def test_without_a_segmenter_nothing_is_charged(vocabulary, monkeypatch):
    for name in ("MeCab", "jieba", "wordfreq.chinese", "wordfreq.mecab"):
        monkeypatch.setitem(sys.modules, name, None)
    language_words.cache_clear()
    ledger = Ledger()
    model = PrivateTopicModel(2, epsilon=9.0, vocabulary=vocabulary, ledger=ledger)
    with pytest.raises(ImportError, match=r"wordfreq\[cjk\]"):
        model.fit(["人人生而自由"] * 9)
    assert ledger.epsilon_spent == 0


@needs_segmenters
@pytest.mark.parametrize("language", WITHOUT_SPACES)
def test_languages_without_spaces_find_topics(language, tmp_path):
    texts = [t for t in re.split("[.。]", DECLARATION[language]) if t] * 60
    model = PrivateTopicModel(2, epsilon=50.0, vocabulary=language, max_features=40)
    model.fit(texts, user_ids=range(len(texts)))
    assert max(map(len, model.vocabulary_)) < 9  # no clauses
    counts = model.vectorizer_.transform(texts)
    assert (counts.sum(axis=1) > 0).mean() > 0.9
    model.save(tmp_path / "topics.dplda")
    released = dplda.load_release(tmp_path / "topics.dplda")
    np.testing.assert_allclose(released.transform(texts), model.transform(texts))


@needs_segmenters
def test_given_words_without_spaces_are_split_by_their_script():
    texts = [DECLARATION["zh"], "人权自由"] * 60
    model = PrivateTopicModel(2, epsilon=50.0, vocabulary=["人权", "自由"]).fit(texts)
    assert model.vectorizer_.transform(["人权自由"]).toarray().tolist() == [[1, 1]]


def test_the_script_of_words_tells_what_splits_them():
    assert language_of(["人権", "すべて"]) == "ja"
    assert language_of(["인간"]) == "ko"
    assert language_of(["人权"]) == "zh"
    assert language_of(["Menschen", "люди"]) == language_of(None) == "und"


def test_a_release_splits_as_the_model_did(tmp_path):
    german = DECLARATION["de"].split(". ") * 60
    options = {"epsilon": 50.0, "max_features": 40}
    model = PrivateTopicModel(2, vocabulary="de", **options)
    model.fit(german, user_ids=range(len(german)))
    path = tmp_path / "topics.dplda"
    model.save(path)
    released = dplda.load_release(path)
    odd = [FORMS["soft hyphens"](FORMS["NFD"](text)).upper() for text in german[:20]]
    np.testing.assert_array_equal(released.transform(odd), model.transform(german[:20]))
    again = tmp_path / "again.dplda"
    dplda.save_release(released, again)
    assert (
        dplda.load_release(again).vectorizer_.analyzer == released.vectorizer_.analyzer
    )


def test_the_list_of_a_language_is_in_the_form_of_texts():
    assert {"τους"} & language_words("el")[1]
    assert "भारत" in load_public_vocabulary(100, language="hi")
    assert not {"the", "and", "com"} & {*load_public_vocabulary(200, language="ar")}
