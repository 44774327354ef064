"""The kernel finds the words of the rule: every character, in every place of a word."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from sklearn.feature_extraction.text import strip_accents_unicode

from dplda.core import _splitter
from dplda.core._splitter import Splitter, in_blocks
from dplda.core._words import TWO_OR_MORE, Words, letters

PATTERNS = [TWO_OR_MORE, letters("en"), letters("de"), letters("fr"), letters("hi")]
# a digit, an underscore, marks before and after letters, a final sigma
CONTEXTS = ["a{}b", "{0}{0}{0}", "aΣ{}b", "ab{}1", "{}Σ", "é{}\u0301_", "{}"]
ODD = "ab Z09_'.\nΣσςßéİIıا\u0301\u0940\u093fहम\u00ad\u200d\ufb03²½\ud800\U0001d4d0中ş’"  # noqa: RUF001


def by_the_rule(rule, texts):
    return [Counter(rule(text)) for text in texts]


def by_blocks(rule, texts):
    counted = []
    for block in in_blocks(texts):
        words, (number, times, ptr) = Splitter(rule)(block)
        assert len(set(words)) == len(words)
        for begin, end in pairwise(ptr.tolist()):
            own = number[begin:end].tolist()
            assert len(set(own)) == len(own)
            pairs = zip(own, times[begin:end].tolist(), strict=True)
            counted.append(Counter({words[i]: n for i, n in pairs}))
    return counted


def every_character(context, first, last):
    """Texts of 32 characters, each of them in its context."""
    for start in range(first, last, 32):
        yield " ".join(context.format(chr(c)) for c in range(start, start + 32))


def compare(pattern, context, first, last, **options):
    rule = Words.of("und", pattern, **options)
    texts = [*every_character(context, first, last)]
    assert by_blocks(rule, texts) == by_the_rule(rule, texts)


@pytest.mark.parametrize("pattern", PATTERNS[:2])
def test_every_common_character_is_of_the_same_words(pattern):
    compare(pattern, "a{}b", 0, 0x3000)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_character_is_of_the_same_words(pattern, context):
    compare(pattern, context, 0, 0x110000)
    compare(pattern, context, 0, 0x3000, lowercase=False)


@pytest.mark.parametrize("language", ["und", "tr", "el", "uk", "ca", "hi", "ar", "ro"])
@pytest.mark.parametrize("pattern", [TWO_OR_MORE, letters("en"), letters("hi")])
@pytest.mark.parametrize("strip", [None, "unicode", "ascii", strip_accents_unicode])
def test_random_texts_have_the_same_words(language, pattern, strip):
    draw = random.Random(f"{language} {pattern}")
    texts = ["".join(draw.choices(ODD, k=draw.randrange(40))) for _ in range(60)]
    rule = Words.of(language, pattern, strip_accents=strip)
    assert by_blocks(rule, texts) == by_the_rule(rule, texts)


@pytest.mark.parametrize("pattern", [r"\w+", r"(?u)\b(\w)\w*\b", r"(?u)\b\w\w\w+\b"])
def test_other_patterns_have_their_own_words(pattern):
    rule = Words.of("und", pattern)
    texts = ["One two_three 4 na\u0131\u0308ve", "", "a b c"] * 2
    assert by_blocks(rule, texts) == by_the_rule(rule, texts)


def test_many_words_of_a_block_are_found_again():
    """The table of the kernel grows many times."""
    words = [f"w{n:x}" for n in range(40_000)]
    texts = [" ".join(words), " ".join(reversed(words[::2])), words[7]]
    rule = Words()
    assert by_blocks(rule, texts) == by_the_rule(rule, texts)


@pytest.mark.parametrize("language", ["und", "el", "uk", "ca"])
def test_a_long_text_has_the_words_of_its_pieces(language, monkeypatch):
    monkeypatch.setattr(_splitter, "BLOCK_CHARACTERS", 16)
    draw = random.Random(language)
    texts = ["".join(draw.choices(ODD + 9 * " ", k=500)) for _ in range(20)]
    rule = Words.of(language, letters("fr"))
    assert by_blocks(rule, texts) == by_the_rule(rule, texts)
