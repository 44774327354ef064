"""Blocks of texts become words and counts, the same way in fits and in transforms.

A kernel finds the words by the patterns of the package. With other patterns or a
caller's functions, texts are split one by one. `Words` defines what both find.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer

from dplda.core._words import WITHOUT_SPACES, Words, kinds
from dplda.kernels._split import split

BLOCK = 1 << 20  # characters that are split at a time: their tables stay in the cache
PIECE = 1 << 22  # characters, of a longer text
LONGEST_WORD = 1 << 24  # characters in which a text must end a word
_NATIVE = f"utf-32-{sys.byteorder[0]}e"  # of the kernel


class Entries(NamedTuple):
    """How often each of some texts has each of its words. Private."""

    number: NDArray[np.int32]  # of the word of each entry
    times: NDArray[np.int32]  # how often a text has the word
    ptr: NDArray[np.integer]  # where each text begins, and the number of entries


class Block(NamedTuple):
    """The words of a block of texts, all different, and its entries. Private."""

    words: list[str]
    entries: Entries


class Splitter:
    """Splits blocks of texts by a rule; a pure function of public parameters.

    Stop words are among the words that it finds, and whoever reads them leaves them
    out.
    """

    def __init__(self, rule: Words | Callable[[Any], Iterable[str]]) -> None:
        self.stop_words: frozenset[str] = frozenset()
        if isinstance(rule, Words):
            self.stop_words = rule.stop_words
            rule = replace(rule, stop_words=frozenset())
        self.rule = rule
        self._reader = CountVectorizer(analyzer=rule)  # reads bytes

    def __call__(self, documents: list[Any]) -> Block:
        """The words of a block, and the entries of each text."""
        rule = self.rule
        if not isinstance(rule, Words) or rule.runs is None:
            analyze = self._reader.build_analyzer()
            return _entries(_each(documents, lambda text: Counter(analyze(text))))
        texts = list(_each(documents, self._text))
        is_long = max(map(len, texts), default=0) > PIECE
        if is_long and not callable(rule.strip_accents):
            return _entries(map(self._count_in_pieces, texts))
        return self._split(texts)

    def _split(self, texts: list[str]) -> Block:
        """What the kernel finds."""
        assert isinstance(self.rule, Words)
        assert self.rule.runs is not None
        allowed, least = self.rule.runs
        texts = list(_each(texts, self.rule.prepared))
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        whole = "".join(texts)
        codes = whole.encode(_NATIVE, "surrogatepass")
        # the key of Python's own dicts is a secret of each process
        key = hash("a block of texts") % 2**64
        number, count, ptr, begin, length = split(
            codes, ends.tobytes(), kinds(), allowed, least, key
        )
        begins = np.frombuffer(begin, np.int32)
        ended = begins + np.frombuffer(length, np.int32)
        entries = Entries(
            np.frombuffer(number, np.int32),
            np.frombuffer(count, np.int32),
            np.frombuffer(ptr, np.int64),
        )
        found = zip(begins.tolist(), ended.tolist())
        return Block([whole[i:j] for i, j in found], entries)

    def _text(self, document: Any) -> str:
        if type(document) is str:
            return document
        return str.__str__(self._reader.decode(document))

    def _count_in_pieces(self, text: str) -> Counter[str]:
        """The words of a long text, whose copies would not be small."""
        total: Counter[str] = Counter()
        for piece in self._pieces(text):
            words, entries = self._split([piece])
            total.update(dict(zip(words, entries.times.tolist())))
        return total

    def _pieces(self, text: str) -> Iterator[str]:
        """A text in pieces that have the words of the whole."""
        assert isinstance(self.rule, Words)
        gap = _gap_of(self.rule.language)
        begin = 0
        while begin < len(text):
            found = gap.search(text, begin + PIECE // 2)
            end = len(text) if found is None else found.start()
            if end - begin > LONGEST_WORD:
                raise ValueError(
                    f"a text has {LONGEST_WORD:,} characters without a place where "
                    "words end; give texts, and no other data"
                )
            yield text[begin:end]
            begin = end


def _gap_of(language: str) -> re.Pattern[str]:
    """Where a text of a language may be cut: no rule looks beyond such a place."""
    return re.compile("\n" if language in WITHOUT_SPACES else "[ \n]")


def _each(documents: Iterable[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    """What a function makes of each document; errors quote nothing of it."""
    for document in documents:
        try:
            result = function(document)
        except ImportError:  # of what splits a language, which says what to install
            raise
        except Exception:  # of a caller's analyzer, too: it may quote the text
            raise ValueError(
                f"a document of type {type(document).__name__} could not be split into "
                "words; pass texts (str), '' for a missing text, and check the "
                "encoding and the analyzer; lists of words need analyzer=list"
            ) from None
        yield result


def _entries(counters: Iterable[Counter[str]]) -> Block:
    """The counts of texts that were split one by one."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    number: list[int] = []
    count: list[int] = []
    ptr = [0]
    for found in counters:
        number.extend(map(numbers.__getitem__, found))
        count.extend(found.values())
        ptr.append(len(number))
    arrays = np.array(number, np.int32), np.array(count, np.int32)
    return Block([*numbers], Entries(*arrays, np.array(ptr, np.int64)))


def forms_of(
    rule: Words | Callable[[Any], Iterable[str]], terms: Sequence[str]
) -> list[str | None]:
    """Public terms in the form that texts have them; None if no text can have one.

    Their case is the caller's.
    """
    splitter = Splitter(rule)
    forms: list[str | None] = []
    for block in in_blocks(terms):
        words, (number, times, ptr) = splitter(block)
        entries = [(words[i], n) for i, n in zip(number.tolist(), times.tolist())]
        for term, (begin, end) in zip(block, pairwise(ptr.tolist())):
            found = [x for x in entries[begin:end] if x[0] not in splitter.stop_words]
            form = term if any(word == term for word, _ in found) else None
            if form is None and isinstance(rule, Words) and term == term.lower():
                form = found[0][0] if [n for _, n in found] == [1] else None
            forms.append(form)
    return forms


def in_blocks(documents: Iterable[Any]) -> Iterator[list[Any]]:
    """Consecutive documents of about `BLOCK` characters."""
    block: list[Any] = []
    size = 0
    for document in documents:
        block.append(document)
        size += 1 + (len(document) if isinstance(document, (str, bytes, list)) else 0)
        if size >= BLOCK:
            yield block
            block = []
            size = 0
    if block:
        yield block


def columns_of(
    entries: Entries, column: NDArray[np.int64], n_columns: int
) -> sp.csr_matrix:
    """Counts of the words that have a column; -1 stands for those without."""
    found = column[entries.number]
    kept = found >= 0
    X = sp.csr_matrix(
        (
            entries.times[kept].astype(np.int64),
            found[kept].astype(np.int32),
            kept_ptr(entries.ptr, kept).astype(np.int32),
        ),
        shape=(len(entries.ptr) - 1, n_columns),
    )
    X.sort_indices()
    return X


def kept_ptr(ptr: NDArray[Any], kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where each text begins among the entries that are kept."""
    before: NDArray[np.int64] = np.append(0, np.cumsum(kept))[ptr]
    return before


def count_blocks(
    documents: Iterable[Any], splitter: Splitter, vocabulary: Mapping[str, int]
) -> Iterator[tuple[sp.csr_matrix, int]]:
    """Counts of the words of a vocabulary in blocks of texts, of which there is one.

    With the number of all words in the texts of a block.
    """
    block: list[Any] = []
    for block in in_blocks(documents):
        words, entries = splitter(block)
        counts = np.array([word not in splitter.stop_words for word in words], bool)
        column = np.array([vocabulary.get(word, -1) for word in words], np.int64)
        column[~counts] = -1
        n_tokens = int(entries.times[counts[entries.number]].sum())
        yield columns_of(entries, column, len(vocabulary)), n_tokens
    if not block:
        yield sp.csr_matrix((0, len(vocabulary)), dtype=np.int64), 0


def count_words(
    documents: Iterable[Any], splitter: Splitter, vocabulary: Mapping[str, int]
) -> tuple[sp.csr_matrix, int]:
    """Counts of the words of a vocabulary, and the number of all words in the texts."""
    parts, n_tokens = zip(*count_blocks(documents, splitter, vocabulary))
    X = parts[0] if len(parts) == 1 else sp.vstack(parts, format="csr")
    return X, sum(n_tokens)


def transformed(vectorizer: CountVectorizer, documents: Iterable[Any]) -> sp.csr_matrix:
    """What a CountVectorizer of given words makes of documents, faster by `Words`."""
    if not isinstance(vectorizer.analyzer, Words) or vectorizer.binary:
        return vectorizer.transform(documents)
    if not hasattr(vectorizer, "vocabulary_"):
        vectorizer.fit([])
    splitter = Splitter(vectorizer.analyzer)
    return count_words(documents, splitter, vectorizer.vocabulary_)[0]
