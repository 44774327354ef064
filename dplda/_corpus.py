"""Checks of count matrices, and the token stream that the Gibbs samplers read."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import check_array

from dplda._compat import check_non_negative, validate_data
from dplda._warnings import warn_user
from dplda.privacy._streams import Purpose, Reader, uniform

_LARGEST_COUNT = 1e28  # 2**31 of them still have a finite sum as float32
MAX_TOKENS = 2**31 - 1
NOT_COUNTS = (
    "X holds text, not a matrix of word counts; put a "
    "sklearn.feature_extraction.text.CountVectorizer(vocabulary=...) before this estimator, with a "
    "vocabulary that was not learned from the private texts"
)


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """The private data, token by token.

    Parameters
    ----------
    word : ndarray of shape (n_tokens,), int32
        Word of each token, grouped by document.
    doc_ptr : ndarray of shape (n_docs + 1,), int64
        Start of each document's tokens in `word`, and the number of tokens.
    n_words : int
        Size of the vocabulary.
    """

    word: npt.NDArray[np.int32]
    doc_ptr: npt.NDArray[np.int64]
    n_words: int

    @classmethod
    def from_counts(cls, X: sp.csr_array) -> Corpus:
        """Token stream of a CSR count matrix (documents by words)."""
        if X.data.sum(dtype=np.float64) > MAX_TOKENS:
            raise ValueError(
                f"a token-level sampler takes at most {MAX_TOKENS} tokens, and X holds more; "
                "split the corpus, or use a document-level estimator such as SubLDA"
            )
        counts = X.data.astype(np.int64)
        cumulative = np.concatenate([[0], np.cumsum(counts)])
        return cls(np.repeat(X.indices, counts).astype(np.int32), cumulative[X.indptr], X.shape[1])

    @property
    def n_tokens(self) -> int:
        return len(self.word)

    def shuffled(self, keys: npt.NDArray[np.uint64]) -> Corpus:
        """The tokens of each document in the order of random keys, shape (2, n_tokens).

        A count matrix has no positions. In an order by word, the replacement of one word would
        move many tokens. Keys of 128 bits give every order the same probability, up to ties.
        """
        document = np.repeat(np.arange(len(self.doc_ptr) - 1), np.diff(self.doc_ptr))
        return Corpus(self.word[np.lexsort((*keys, document))], self.doc_ptr, self.n_words)

    def blocks(self, n_tokens: int) -> list[Corpus]:
        """Whole documents in blocks of about `n_tokens`, the same whatever the number of jobs."""
        bounds = np.searchsorted(self.doc_ptr, np.arange(0, self.n_tokens, n_tokens))
        edges = np.unique(np.concatenate([bounds, [len(self.doc_ptr) - 1]]))
        return [self._documents(a, b) for a, b in itertools.pairwise(edges)]

    def _documents(self, first: int, last: int) -> Corpus:
        ptr = self.doc_ptr[first : last + 1]
        return Corpus(self.word[ptr[0] : ptr[-1]], ptr - ptr[0], self.n_words)


def check_counts(estimator: Any, X: Any, *, reset: bool) -> sp.csr_array:
    """Validate a document-term matrix, or that of a SentenceCorpus.

    The result is CSR. It holds whole counts as float32 or float64, and stores no zeros.

    Raises
    ------
    ValueError
        If `X` holds text, or negative, NaN or infinite values, or if its width is not that of the
        fitted model.
    """
    if hasattr(X, "sentence_counts"):  # a SentenceCorpus; a client does not load the class
        X = X.counts()
    with check_quoting_nothing(X):
        X = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
    _check_width(estimator, X, reset=reset)
    check_non_negative(X, f"{type(estimator).__name__} (it takes word counts)")
    X = sp.csr_array(X, copy=sp.issparse(X))
    X.sum_duplicates()
    whole = np.rint(X.data)
    if not np.array_equal(whole, X.data):
        warn_user(
            f"{type(estimator).__name__} takes word counts, and X holds numbers that are not "
            "whole: they were rounded to the nearest; pass counts, not tf-idf or frequencies"
        )
        X.data = whole
    X.eliminate_zeros()
    if X.nnz > MAX_TOKENS:
        raise ValueError(f"X may hold at most {MAX_TOKENS} non-zero counts; split the corpus")
    X.indptr = X.indptr.astype(np.int32, copy=False)
    X.indices = X.indices.astype(np.int32, copy=False)
    return X


def sample_tokens(
    counts: npt.NDArray[np.floating], n_tokens: int, reader: Reader
) -> npt.NDArray[np.floating]:
    """Draw `n_tokens` tokens of a longer document, without replacement.

    The running time grows with `n_tokens`, not with the length of the document.

    Parameters
    ----------
    counts : ndarray of shape (n_entries,)
        Counts of the document's words.
    n_tokens : int
        Number of tokens to keep, below the sum of the counts.
    reader : Reader
        Source of the random words.

    Returns
    -------
    kept : ndarray of shape (n_entries,)
        Counts of the tokens that are kept.
    """
    cumulative = np.cumsum(counts)
    length = int(cumulative[-1])
    drop = 2 * n_tokens > length  # then choose the tokens to remove
    n_chosen = length - n_tokens if drop else n_tokens
    chosen = np.empty(0)
    while len(chosen) < n_chosen:
        drawn = uniform(reader.words(2 * (n_chosen - len(chosen))))
        both = np.concatenate([chosen, np.floor(drawn * length)])
        _, first = np.unique(both, return_index=True)
        chosen = both[np.sort(first)][:n_chosen]
    of_word = np.searchsorted(cumulative, chosen, side="right")
    taken = np.bincount(of_word, minlength=len(counts)).astype(counts.dtype)
    return counts - taken if drop else taken


def shorten(X: sp.csr_array, max_doc_tokens: int, streams: Any) -> sp.csr_array:
    """Cut each longer document to `max_doc_tokens` random tokens."""
    cut = X.copy()
    cut.data = np.minimum(cut.data, _LARGEST_COUNT)
    for row in np.flatnonzero(cut.sum(axis=1) > max_doc_tokens).tolist():
        # a stream for each document, so that no document's tokens depend on another's length
        reader = streams.reader(Purpose.ORDER, 0, row)
        cells = slice(cut.indptr[row], cut.indptr[row + 1])
        cut.data[cells] = sample_tokens(cut.data[cells], max_doc_tokens, reader)
    cut.eliminate_zeros()
    return cut


@contextmanager
def check_quoting_nothing(X: Any) -> Iterator[None]:
    """Run scikit-learn's checks of `X`, and replace those of their messages that print data."""
    _check_kind(X)
    _check_structure(X)
    try:
        yield
    except OverflowError:
        raise ValueError("X holds an integer too large for a float; pass word counts") from None
    except (ValueError, TypeError) as error:
        if "could not convert" in str(error) or "scalar array" in str(error):
            raise ValueError(NOT_COUNTS) from None
        raise


def check_table(table: Any, name: str, **options: Any) -> npt.NDArray[np.float64]:
    """Return `table` as a float64 array of finite numbers; options are those of `check_array`."""
    try:
        array: npt.NDArray[np.float64] = check_array(
            table, dtype=np.float64, input_name=name, **options
        )
    except (ValueError, TypeError, OverflowError) as error:  # most of these errors print the array
        if str(error).startswith(f"Input {name} contains"):
            raise
        raise ValueError(f"{name} must be a table of finite numbers") from None
    return array


def check_public_table(table: Any, shape: tuple[int, int]) -> npt.NDArray[np.float64] | None:
    """The checked `init_components`, (n_components, n_words); None stays None."""
    if table is None:
        return None
    array = check_table(table, "init_components")
    if array.shape != shape or array.min() < 0 or not array.any(axis=1).all():
        raise ValueError(
            f"init_components must be a table of shape {shape} (topics by words) of non-negative "
            f"numbers with no empty topic, got shape {array.shape}"
        )
    return array


def _check_structure(X: Any) -> None:
    """Refuse a sparse matrix whose index arrays point outside of it.

    SciPy does not check them, and would read and write other memory.
    """
    if not sp.issparse(X):
        return
    try:
        if X.format in ("csr", "csc", "bsr"):
            X.check_format(full_check=True)
        elif X.format == "lil":
            for columns, values in zip(X.rows, X.data):
                inside = [0 <= operator.index(column) < X.shape[1] for column in columns]
                if not all(inside) or len(columns) != len(values):
                    raise ValueError
        elif X.format == "coo":
            for index, length in zip(X.coords, X.shape):
                if len(index) != X.nnz or (index < 0).any() or (index >= length).any():
                    raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            f"X is a sparse matrix ({X.format}) whose index arrays do not fit its shape; build it "
            "again from whole rows and columns within the shape"
        ) from None


def _check_width(estimator: Any, X: Any, *, reset: bool) -> None:
    """Compare the width of `X` with the fitted table.

    `n_features_in_` is not used: a failed `fit` may have left another width there.
    """
    table = getattr(estimator, "components_", None)
    if not reset and table is not None and X.shape[1] != table.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{table.shape[1]} features as input"
        )


def _check_kind(X: Any) -> None:
    """Refuse texts, and anything else that is not a matrix of real numbers; say what to pass."""
    if isinstance(X, str):
        X = [X]
    if isinstance(X, (list, tuple)):
        try:
            values = np.asarray(X)
        except ValueError:  # rows of different lengths: lists of tokens
            raise ValueError(NOT_COUNTS) from None
    else:
        values = getattr(X, "values", X)
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    first = values.flat[0] if kind == "O" and values.size else None
    if kind in ("U", "S") or isinstance(first, (str, bytes, list)):
        raise ValueError(NOT_COUNTS)
    if kind == "c":
        raise ValueError("Complex data not supported; pass word counts")
    if getattr(values, "ndim", 2) != 2:
        raise ValueError(
            f"X must be a matrix of word counts, documents by words, got {values.ndim} "
            "dimension(s). Reshape your data: X.reshape(1, -1) is one document"
        )
