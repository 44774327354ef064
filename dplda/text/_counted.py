"""Texts that are read once: the terms of a fit, and how often each text has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dplda.core._splitter import PIECE, Splitter, columns_of, in_blocks
from dplda.leaf._users import number_users

MOST_TERMS = 1 << 24  # of 150 bytes each
_DIGITS = b"0123456789"


class Counted:
    """Counts of all terms of texts. Private.

    Parameters
    ----------
    documents : iterable
        What the splitter takes, such as texts. Nothing of them is kept but terms.
    splitter : Splitter
        Finds the terms. Stop words are none.
    user_ids : array-like of shape (n_docs,) or None
        The user of each document.

    Attributes
    ----------
    terms : list of str
        All different terms.
    n_docs, n_tokens : int
        Number of documents, and of all their terms.
    has_words : bool
        Whether a document has a word. Stop words are words, too.
    users : ndarray of shape (n_docs,) or None
        Number of the user of each document.

    Raises
    ------
    ValueError
        If a document cannot be split, if there are more than `MOST_TERMS` terms, or if
        there is not one id for each document.
    """

    def __init__(
        self, documents: Iterable[Any], splitter: Splitter, user_ids: ArrayLike | None
    ) -> None:
        numbers = defaultdict[str, int](
            None, {word: i for i, word in enumerate(splitter.stop_words)}
        )
        numbers.default_factory = numbers.__len__
        n_stop = len(numbers)
        number = [np.empty(0, np.int32)]
        count = [np.empty(0, np.int32)]
        n_terms = [np.zeros(1, np.int64)]  # of each document
        forms = [np.empty((0, 2), np.int64)]
        self.has_words = False
        for block in in_blocks(documents):
            words, of_entry, count_of_entry, ptr = splitter(block)
            own = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
            if len(numbers) - n_stop > MOST_TERMS:
                raise ValueError(
                    f"the texts have more than {MOST_TERMS:,} different words, as "
                    "codes, numbers and damaged texts do; look at the texts, or take "
                    "words of letters alone (token_pattern=None)"
                )
            self.has_words = self.has_words or bool(len(words))
            of_entry = own[of_entry] - n_stop
            counts = of_entry >= 0
            number.append(of_entry[counts])
            count.append(count_of_entry[counts])
            n_terms.append(np.diff(np.append(0, np.cumsum(counts))[ptr]))
            forms.append(_forms(block))
        self.terms = list(islice(numbers, n_stop, None))
        self._number = np.concatenate(number)
        self._count = np.concatenate(count)
        self._ptr = np.cumsum(np.concatenate(n_terms))
        self._written = np.concatenate(forms)
        self.n_docs = len(self._ptr) - 1
        self.n_tokens = int(self._count.sum(dtype=np.int64))
        self.users = number_users(user_ids, self.n_docs)

    def units(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The different terms of consecutive units, and where each unit begins."""
        if self.users is None:
            yield self._number.astype(np.int64), self._ptr
            return
        of_entry = np.repeat(self.users, np.diff(self._ptr))
        keys = of_entry << 32 | self._number
        keys.sort()
        keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
        n_units = int(self.users.max(initial=-1)) + 1
        sizes = np.bincount(keys >> 32, minlength=n_units)
        yield keys & 0xFFFFFFFF, np.append(0, np.cumsum(sizes))

    def matrix(self, vocabulary: Mapping[str, int]) -> sp.csr_matrix:
        """Counts of the terms of a vocabulary, (n_docs, n_terms)."""
        column = list(map(vocabulary.get, self.terms, repeat(-1)))
        return columns_of(
            self._number, self._count, self._ptr, np.array(column, int), len(vocabulary)
        )

    def copies(self) -> tuple[int, int]:
        """How many texts repeat another one, and how many but for their digits."""
        n_texts = len(self._written)
        n_different, n_forms = (_n_different(forms) for forms in self._written.T)
        return n_texts - n_different, n_different - n_forms

    @property
    def n_written(self) -> int:
        """Number of texts that are not empty."""
        return len(self._written)


def _forms(block: list[Any]) -> NDArray[np.int64]:
    """Of each text of a block that is not empty: what it is, without digits, too.

    These are the hashes of Python, whose key is a secret.
    """
    texts = [text for text in block if isinstance(text, str) and text]
    forms = [(hash(text), _without_digits(text)) for text in texts]
    return np.array(forms, np.int64).reshape(-1, 2)


def _without_digits(text: str) -> int:
    if len(text) > PIECE:  # no form letter
        return hash(text)
    # bytes, because those of str take ten times as long
    return hash(text.encode("utf-8", "surrogatepass").translate(None, _DIGITS))


def _n_different(values: NDArray[np.int64]) -> int:
    """How many of the values are different; faster than np.unique."""
    ordered = np.sort(values)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + bool(len(ordered))
