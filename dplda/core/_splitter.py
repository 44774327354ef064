"""Words and counts of blocks of texts, the same way in fits and in transforms.

A kernel finds the words for the patterns of the package. Other patterns and a caller's
functions split one text after the other. `Words` defines what both find.
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
from dplda.leaf._files import IN_MEMORY

# Characters that are split at a time, of several texts or of a long one: their tables
# stay in the cache.
BLOCK_CHARACTERS = 1 << 20
_NATIVE = f"utf-32-{sys.byteorder[0]}e"  # encoding of the characters for the kernel


class Entries(NamedTuple):
    """Word counts of texts, text by text; private."""

    number: NDArray[np.int32]  # number of the word, for each entry
    times: NDArray[np.int32]  # how often the text has the word
    ptr: NDArray[np.integer]  # first entry of each text, and the number of entries


class Block(NamedTuple):
    """The different words of a block of texts, and its entries; private."""

    words: list[str]
    entries: Entries


class Splitter:
    """Splits blocks of texts by a public rule.

    It also finds stop words. The caller leaves them out.
    """

    def __init__(self, rule: Words | Callable[[Any], Iterable[str]]) -> None:
        self.stop_words: frozenset[str] = frozenset()
        if isinstance(rule, Words):
            self.stop_words = rule.stop_words
            rule = replace(rule, stop_words=frozenset())
        self.rule = rule
        self._reader = CountVectorizer(analyzer=rule)  # it decodes bytes

    def __call__(self, documents: list[Any]) -> Block:
        """The words and the entries of a block of texts."""
        rule = self.rule
        if not isinstance(rule, Words) or rule.runs is None:
            analyze = self._reader.build_analyzer()
            return _entries(_each(documents, lambda text: Counter(analyze(text))))
        texts = list(_each(documents, self._text))
        is_long = max(map(len, texts), default=0) > BLOCK_CHARACTERS
        if is_long and not callable(rule.strip_accents):
            return _entries(map(self._count_in_pieces, texts))
        return self._split(texts)

    def _split(self, texts: list[str]) -> Block:
        """The words and the entries, found by the kernel."""
        assert isinstance(self.rule, Words)
        assert self.rule.runs is not None
        allowed, least = self.rule.runs
        texts = self._prepared(texts)
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        whole = "".join(texts)
        codes = whole.encode(_NATIVE, "surrogatepass")
        # the secret hash key of this process, as for Python's own dicts
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

    def _prepared(self, texts: list[str]) -> list[str]:
        """Texts in the form in which the rule finds words."""
        rule = self.rule
        assert isinstance(rule, Words)
        if not rule.leaves_ascii:
            return list(_each(texts, rule.prepared))
        # short texts would spend most of their time in `prepared`
        case = str.lower if rule.lowercase else str
        return [case(text) if text.isascii() else rule.prepared(text) for text in texts]

    def _text(self, document: Any) -> str:
        if type(document) is str:
            return document
        return str.__str__(self._reader.decode(document))

    def _count_in_pieces(self, text: str) -> Counter[str]:
        """The words of a text that is too long to be copied as a whole."""
        total: Counter[str] = Counter()
        for piece in self._pieces(text):
            words, entries = self._split([piece])
            total.update(dict(zip(words, entries.times.tolist())))
        return total

    def _pieces(self, text: str) -> Iterator[str]:
        """Pieces of a text, which together have the words of the whole text."""
        assert isinstance(self.rule, Words)
        gap = _gap_of(self.rule.language)
        begin = 0
        while begin < len(text):
            found = gap.search(text, begin + BLOCK_CHARACTERS // 2)
            end = len(text) if found is None else found.start()
            if end - begin > IN_MEMORY:
                raise ValueError(
                    f"a text has {IN_MEMORY:,} characters without a place where "
                    "words end; give texts, and no other data"
                )
            yield text[begin:end]
            begin = end


def _gap_of(language: str) -> re.Pattern[str]:
    """Where a text of a language may be cut: no rule looks across such a place."""
    return re.compile("\n" if language in WITHOUT_SPACES else "[ \n]")


def _each(documents: Iterable[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    """Apply a function to each document; errors quote nothing of the document."""
    for document in documents:
        try:
            result = function(document)
        except ImportError:  # of a language's segmenter: it says what to install
            raise
        except Exception:  # also of the caller's analyzer; it may quote the text
            raise ValueError(
                f"a document of type {type(document).__name__} could not be split into "
                "words; pass texts (str), '' for a missing text, and check the "
                "encoding and the analyzer; lists of words need analyzer=list"
            ) from None
        yield result


def _entries(counters: Iterable[Counter[str]]) -> Block:
    """The block of texts that were split one by one."""
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
    """The form of each public term in texts; None if no text can have the term.

    The caller chooses the case.
    """
    splitter = Splitter(rule)
    forms: list[str | None] = []
    for block in in_blocks(terms):
        words, (number, times, ptr) = splitter(block)
        found = [words[i] for i in number.tolist()]
        for term, (begin, end) in zip(block, pairwise(ptr.tolist())):
            own = found[begin:end]
            if term in own and term not in splitter.stop_words:
                forms.append(term)
                continue
            counts = [word not in splitter.stop_words for word in own]
            is_one_word = times[begin:end][counts].tolist() == [1]
            is_free = isinstance(rule, Words) and term == term.lower()
            forms.append(own[counts.index(True)] if is_one_word and is_free else None)
    return forms


def in_blocks(documents: Iterable[Any]) -> Iterator[list[Any]]:
    """Consecutive documents of about `BLOCK_CHARACTERS`."""
    block: list[Any] = []
    size = 0
    for document in documents:
        block.append(document)
        size += 1 + (len(document) if isinstance(document, (str, bytes, list)) else 0)
        if size >= BLOCK_CHARACTERS:
            yield block
            block = []
            size = 0
    if block:
        yield block


def columns_of(
    entries: Entries, column: NDArray[np.int32], n_columns: int
) -> sp.csr_matrix:
    """Counts of the words that have a column; -1 stands for words without a column."""
    found = column[entries.number]
    kept = found >= 0
    X = sp.csr_matrix(
        (
            entries.times[kept].astype(np.int64),
            found[kept],
            kept_ptr(entries.ptr, kept).astype(np.int32),
        ),
        shape=(len(entries.ptr) - 1, n_columns),
    )
    X.sort_indices()
    return X


def kept_ptr(ptr: NDArray[Any], kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where each text begins among the entries that are kept."""
    before = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    return before[ptr]


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
        column = np.array([vocabulary.get(word, -1) for word in words], np.int32)
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
    """`transform` of a CountVectorizer of given words; `Words` makes it faster."""
    if not isinstance(vectorizer.analyzer, Words) or vectorizer.binary:
        return vectorizer.transform(documents)
    if not hasattr(vectorizer, "vocabulary_"):
        vectorizer.fit([])
    splitter = Splitter(vectorizer.analyzer)
    return count_words(documents, splitter, vectorizer.vocabulary_)[0]
