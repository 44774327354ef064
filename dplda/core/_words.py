"""What a word is: one rule for texts, stop words, candidates and given words.

The rule is `Words`. It brings a text into its plain form (`plain`), and then finds the
words by a regular expression. In ASCII texts, scikit-learn's CountVectorizer finds the
same words.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag, auto
from functools import lru_cache

from sklearn.feature_extraction.text import (
    CountVectorizer,
    strip_accents_ascii,
    strip_accents_unicode,
)

UNKNOWN = "und"  # the language code for "undetermined"
# Languages without spaces, or with particles joined to words: wordfreq splits them.
WITHOUT_SPACES = ("ja", "ko", "zh")
TWO_OR_MORE = r"(?u)\b\w\w+\b"  # as in scikit-learn
# Fewest letters of a word in a language; 3 elsewhere. The largest number up to 3 with
# which words keep 90% of the letters of running text
# (`benchmarks/vocabulary.py --letters`).
LEAST = {
    **dict.fromkeys(("ar", "bg", "bn", "ca", "da", "es", "fa"), 2),
    **dict.fromkeys(("fr", "it", "pt", "ro", "sl", "ur", "vi"), 2),
    **dict.fromkeys(("hi", *WITHOUT_SPACES), 1),  # vowels of Hindi are marks
}
_ACCENTS = {"ascii": strip_accents_ascii, "unicode": strip_accents_unicode}
# Replacements of characters in a language, the same as in its word list.
_SPELLING = {
    "ca": (("l·l", "ŀl"),),  # keeps it within a word
    "el": ((r"\N{GREEK SMALL LETTER SIGMA}\b", "\N{GREEK SMALL LETTER FINAL SIGMA}"),),
    "ro": (("ş", "ș"), ("ţ", "ț")),  # a comma, for which old fonts had a cedilla
    "tr": (("ș", "ş"), ("ț", "ţ")),
    # a letter of its words
    "uk": (
        (
            r"(?<=\w)['\N{RIGHT SINGLE QUOTATION MARK}](?=\w)",
            "\N{MODIFIER LETTER APOSTROPHE}",
        ),
    ),
}
_ASCII = bytes(range(128))
# Characters that Unicode lists as ignorable, except the zero-width space: soft hyphens,
# joiners, directions, variants. Each range has a first and a last character.
_UNSEEN = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200C, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)


class Kind(IntFlag):
    """Kinds of characters in words, as bits for the kernel."""

    LETTER = auto()
    OTHER = auto()  # digits and underscores
    MARK = auto()  # belongs to the letter before it


@dataclass(frozen=True)
class Words:
    """Splits a text into words by the rules of its language.

    An instance may be the `analyzer` of a CountVectorizer. Its fields are public.
    """

    language: str = UNKNOWN
    token_pattern: str = TWO_OR_MORE  # matches words of the plain form
    lowercase: bool = True
    strip_accents: str | Callable[[str], str] | None = None
    stop_words: frozenset[str] = frozenset()  # words that do not count, in plain form

    @classmethod
    def of(
        cls,
        language: str,
        token_pattern: str | None = None,
        *,
        lowercase: bool = True,
        strip_accents: str | Callable[[str], str] | None = None,
        stop_words: str | Iterable[str] | None = None,
    ) -> Words:
        """The rule for a caller's parameters, with their names in CountVectorizer.

        Without a pattern, words have only letters.
        """
        if token_pattern is None:
            token_pattern = letters(language)
        theirs = CountVectorizer(
            token_pattern=token_pattern,
            strip_accents=strip_accents,
            stop_words=stop_words,
        )
        # both raise scikit-learn's errors for wrong parameters
        theirs.build_tokenizer()
        theirs.build_preprocessor()
        given = theirs.get_stop_words() or ()
        forms = frozenset(plain(word, language, lowercase) for word in given)
        return cls(language, token_pattern, lowercase, strip_accents, forms)

    def __call__(self, text: str) -> list[str]:
        """The words of a text, in order."""
        words = _found(re.compile(self.token_pattern), self.prepared(text))
        if not self.stop_words:
            return words
        return [word for word in words if word not in self.stop_words]

    def prepared(self, text: str) -> str:
        """A text in the form in which the pattern finds its words."""
        text = plain(text, self.language, self.lowercase)
        strip = self.strip_accents
        if strip is None:
            return text
        return _ACCENTS[strip](text) if isinstance(strip, str) else strip(text)

    @property
    def leaves_ascii(self) -> bool:
        """Whether preparing an ASCII text changes only its case."""
        is_special = self.language in _SPELLING or self.language in WITHOUT_SPACES
        return not is_special and not callable(self.strip_accents)

    @property
    def runs(self) -> tuple[int, int] | None:
        """The maximal runs of word characters that are words, if the pattern is known.

        The pair has the allowed `kinds`, and the least number of characters without
        marks. None for all other patterns.
        """
        return _RUNS.get(self.token_pattern)


def counter_of(
    words: Sequence[str], *, stop_words: Iterable[str] | None = None
) -> CountVectorizer:
    """A vectorizer with a column for each of the given public words, in their order."""
    rule = rule_of(words, stop_words=stop_words)
    return CountVectorizer(analyzer=rule, lowercase=False, vocabulary=words)


def rule_of(words: Sequence[str], *, stop_words: Iterable[str] | None = None) -> Words:
    """The rule that splits texts so that given public words can be counted."""
    language = language_of(words)
    pattern = TWO_OR_MORE if language == UNKNOWN else letters(language)
    return Words.of(language, pattern, stop_words=stop_words)


def letters(language: str) -> str:
    """The pattern of words of letters, with the least number of a language or more."""
    return _letters(LEAST.get(language, 3))


def _letters(least: int) -> str:
    return rf"(?u)\b[^\W\d_]{{{least},}}\b"


# `\b` matches only between a word character and another character. These patterns
# therefore match whole runs of word characters.
_RUNS = {TWO_OR_MORE: (Kind.LETTER | Kind.OTHER, 2)} | {
    _letters(least): (Kind.LETTER, least) for least in (1, 2, 3)
}


@lru_cache(maxsize=1)
def kinds() -> bytes:
    """The kind of each code point, as `re` of this Python sees it; else 0."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    table = bytearray(len(every))
    for pattern, kind in ((r"\w+", Kind.OTHER), (r"[^\W\d_]+", Kind.LETTER)):
        for match in re.finditer(pattern, every):
            begin, end = match.span()
            table[begin:end] = bytes([kind]) * (end - begin)
    for mark in _marks():
        table[ord(mark)] = Kind.MARK
    return bytes(table)


def language_of(words: object) -> str:
    """The language of public words: a language code, or shown by the words' script."""
    if isinstance(words, str):
        return words
    if not isinstance(words, Iterable):
        return UNKNOWN
    named = "".join(word for word in words if isinstance(word, str))
    if re.search("[\u3040-\u30ff]", named):  # kana
        return "ja"
    if re.search("[\u1100-\u11ff\uac00-\ud7a3]", named):  # Hangul
        return "ko"
    return "zh" if re.search("[\u3400-\u4dbf\u4e00-\u9fff]", named) else UNKNOWN


def plain(text: str, language: str = UNKNOWN, lowercase: bool = True) -> str:
    """A text in the form in which its words are compared.

    Invisible characters are left out. Ligatures, full-width letters and other forms of
    a letter become the letter (NFKC of Unicode); signs that would become letters or
    digits become spaces. Vowel points of Arabic and Hebrew are removed, because writers
    mostly omit them. Words of languages without spaces get spaces.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        table = _replaced()
        for character in table.keys() & _others(text):
            text = text.replace(character, table[character])
        text = unicodedata.normalize("NFKC", text)
    if lowercase:
        text = _lower(text, language)
    for written, meant in _SPELLING.get(language, ()):
        text = re.sub(written, meant, text)
    if language in WITHOUT_SPACES:
        text = _with_spaces(text, language)
    return text


def _lower(text: str, language: str) -> str:
    """A text in lower case, so that each word has one form."""
    if language == "tr":
        text = text.replace("I", "\N{LATIN SMALL LETTER DOTLESS I}")
    if text.isascii():
        return text.lower()
    # ß is SS in capitals, and Python lowers İ to two characters
    return text.replace("İ", "i").lower().replace("ß", "ss")


def _with_spaces(text: str, language: str) -> str:
    """A text with spaces between its words, by the segmenter of the language."""
    tokenize = segmenter(language)
    words = [word for line in text.splitlines() for word in tokenize(line, language)]
    return " ".join(words)


def segmenter(language: str) -> Callable[[str, str], list[str]]:
    """The function that splits texts of a language without spaces.

    Raises
    ------
    ImportError
        If a package is missing.
    """
    try:
        from wordfreq import lossy_tokenize

        lossy_tokenize("", language)
    except ImportError as error:
        raise ImportError(
            f"words of language {language!r} are not set apart by spaces, and the "
            "packages that split its texts are missing; install wordfreq[cjk] and "
            "stopwordsiso (dplda's extra 'cjk')"
        ) from error
    tokenize: Callable[[str, str], list[str]] = lossy_tokenize
    return tokenize


def _found(pattern: re.Pattern[str], text: str) -> list[str]:
    """All matches in a text; combining marks belong to the letters before them.

    `re` does not count marks as letters, so the pattern is matched without them.
    """
    marks = _marks() & _others(text)
    if not marks:
        return pattern.findall(text)
    kept = [i for i, character in enumerate(text) if character not in marks]
    unmarked = "".join([text[i] for i in kept])
    kept.append(len(text))
    spans = [match.span(pattern.groups) for match in pattern.finditer(unmarked)]
    return [text[kept[begin] : kept[end]] for begin, end in spans]


def _others(text: str) -> set[str]:
    """The characters of a text that are not ASCII."""
    if text.isascii():
        return set()
    # bytes: a regular expression takes seven times as long
    others = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    return set(others.decode("utf-8", "surrogatepass"))


@lru_cache(maxsize=1)
def _replaced() -> dict[str, str]:
    """Replacements of characters that are not part of words."""
    points = {c: "" for c in _characters("Mn") if "\u0590" <= c <= "\u08ff"}
    unseen = {chr(c): "" for first, last in _UNSEEN for c in range(first, last + 1)}
    # other forms of letters and digits, as in ™ and ½, would join the preceding word
    signs = {
        c: " "
        for c in _characters("P", "S", "Z")
        if unicodedata.normalize("NFKC", c) != c
    }
    numbers = {c: " " for c in _characters("No")}  # such as ²
    return points | {"\N{ARABIC TATWEEL}": ""} | signs | numbers | unseen


@lru_cache(maxsize=1)
def _marks() -> frozenset[str]:
    """Combining marks, such as vowels of Hindi."""
    return frozenset(_characters("M"))


def _characters(*categories: str) -> list[str]:
    """The characters of categories of Unicode, by the first letters of their names."""
    characters = map(chr, range(0x80, 0x20000))  # none of these is above
    return [c for c in characters if unicodedata.category(c).startswith(categories)]
