"""Checks of count matrices, and the token stream that the Gibbs samplers read."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import check_array

from dplda.kernels import _release
from dplda.leaf._compat import check_non_negative, validate_data
from dplda.leaf._messages import warn_user
from dplda.leaf._sparse import add_duplicates, unsummed
from dplda.leaf._threads import in_threads
from dplda.privacy import PrivateDataWarning
from dplda.privacy._streams import Purpose, Streams

MAX_TOKENS = 2**31 - 1  # indices of the kernels are int32
# tokens that share a stream of their order; enters seeded results
BLOCK_TOKENS = 1 << 16
SPARE_PIECE = 16  # one spare word is needed in 2**33 draws, or fewer
# what is computed at a time from the entries of X: it stays in the cache
BLOCK_ENTRIES = 1 << 16
LARGEST_PSEUDO_COUNT = (
    1e12  # public tokens of a word in a topic; squares of sums are finite
)
# share of the cells that must survive rounding: tf-idf keeps next to none
LEAST_KEPT = 0.25
NOT_COUNTS = (
    "X must be a matrix of word counts, documents by words, got {}; count texts with a "
    "sklearn.feature_extraction.text.CountVectorizer(vocabulary=...) (with "
    "analyzer=list for lists of words), whose vocabulary was not learned from the "
    "private texts. DictVectorizer takes dicts of counts, "
    "gensim.matutils.corpus2csc(X, num_terms=...).T lists of pairs, "
    "dplda.datasets.CountShards(folder) a folder of write_shards, and dplda fit files "
    "of texts"
)
IN_SHARDS = (
    "X is a CountShards, and a matrix in memory is needed here: pass "
    "scipy.sparse.vstack(list(X)). SubLDA, PrivateSVILDA, transform, score and "
    "perplexity read shard after shard"
)


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """The private data, token by token."""

    word: npt.NDArray[np.int32]  # of each token, grouped by document
    # first token of each document, and the number of tokens
    doc_ptr: npt.NDArray[np.int64]
    n_words: int  # size of the vocabulary

    @classmethod
    def from_counts(cls, X: sp.csr_array) -> Corpus:
        """Token stream of a CSR count matrix (documents by words)."""
        if X.data.sum(dtype=np.float64) > MAX_TOKENS:
            raise ValueError(
                f"a token-level sampler takes at most {MAX_TOKENS} tokens, and X holds "
                "more; split the corpus, or use a document-level estimator such as "
                "SubLDA"
            )
        word = np.empty(int(X.data.sum(dtype=np.float64)), np.int32)
        doc_ptr = np.zeros(X.shape[0] + 1, np.int64)
        indptr, indices = (
            x.astype(np.int32, copy=False) for x in (X.indptr, X.indices)
        )
        _release.list_tokens(indptr, indices, X.data, doc_ptr, word)
        return cls(word, doc_ptr, X.shape[1])

    @property
    def n_tokens(self) -> int:
        return len(self.word)

    def shuffled(
        self, streams: Streams, round: int, n_jobs: int | None = None
    ) -> Corpus:
        """Tokens of each document in an exactly uniform order, drawn by positions.

        A count matrix has no positions. In an order by word, the replacement of one
        word would move many tokens.
        """
        word = self.word.copy()
        blocks = self.blocks(BLOCK_TOKENS)
        ends = np.cumsum([block.n_tokens for block in blocks])

        def run(index: int) -> None:
            block = blocks[index]
            reader = streams.reader(Purpose.ORDER, round, index)
            bits, spare = reader.words(block.n_tokens), np.empty(0, np.uint64)
            part = word[ends[index] - block.n_tokens : ends[index]]
            state = np.zeros(2, np.int64)
            while state[0] < len(block.doc_ptr) - 1:
                used = _release.shuffle(part, block.doc_ptr, bits, spare, state)
                spare = np.append(spare[used:], reader.words(SPARE_PIECE, spare=True))

        in_threads(run, range(len(blocks)), n_jobs)
        return Corpus(word, self.doc_ptr, self.n_words)

    def blocks(self, n_tokens: int) -> list[Corpus]:
        """Whole documents in blocks of about `n_tokens`, for any number of jobs."""
        rows = row_blocks(self.doc_ptr, n_tokens, per_row=0)
        parts = [self.doc_ptr[block.start : block.stop + 1] for block in rows]
        return [Corpus(self.word[p[0] : p[-1]], p - p[0], self.n_words) for p in parts]


def keep_at_most(
    n: int, ptr: npt.NDArray[Any], streams: Streams, purpose: int
) -> npt.NDArray[np.bool_]:
    """Mask of at most `n` entries of each row.

    They are chosen uniformly by keys that read lengths alone.
    """
    keeps = np.ones(int(ptr[-1]), np.bool_)
    for row in np.flatnonzero(np.diff(ptr) > n):
        first, last = ptr[row : row + 2]
        keys = streams.reader(purpose, 0, int(row)).words(int(last - first))  # secret
        keeps[first + np.argpartition(keys, n)[n:]] = False
    return keeps


def check_counts(
    estimator: Any, X: Any, *, reset: bool, whole: bool = True
) -> sp.csr_array:
    """Validate a document-term matrix.

    The result is CSR. It holds counts as float32 or float64, whole numbers with
    `whole`, has one entry for each cell, and stores no zeros. `X` stays as it is, and
    the result shares those of its arrays that have this form: do not write to them.

    Raises
    ------
    ValueError
        If `X` holds text, or negative, NaN or infinite values, or if its width is not
        that of the fitted model. With `whole`, also if rounding would empty most cells.
    """
    name = type(estimator).__name__
    X = positive_entries(X, name, partial(validate_data, estimator), reset=reset)
    if not reset:
        _check_width(estimator, X)
    if whole:
        X = whole_counts(X, name)
    if reset:
        warn_of_empty_rows(int(np.count_nonzero(np.diff(X.indptr) == 0)), X.shape[0])
    if X.nnz > MAX_TOKENS:
        raise ValueError(
            f"X may hold at most {MAX_TOKENS} non-zero counts; split the corpus"
        )
    X.indptr = X.indptr.astype(np.int32, copy=False)
    X.indices = X.indices.astype(np.int32, copy=False)
    return X


def positive_entries(
    X: Any, name: str, check: Callable[..., Any] = check_array, **options: Any
) -> sp.csr_array:
    """Validate any matrix: CSR of floats, with one positive entry for each cell.

    It is float64, or float32 where all of `X` is. Columns of several types become
    float64: the type that NumPy finds for them depends on the widest one, and so on the
    largest count of any document, which the counts of others may not read. `options`
    are those of `check`, and `name` is that of the caller in errors, which print no
    data.
    """
    if are_shards(X):
        raise ValueError(IN_SHARDS)
    if sp.issparse(X):
        _check_structure(X)
        values = X
    else:  # errors of NumPy and scikit-learn print data
        try:
            values = np.asarray(X)
            values = values.astype(float) if values.dtype.kind == "O" else values
        except TypeError as error:  # which names a type
            raise TypeError(
                f"{NOT_COUNTS.format(type(X).__name__)} ({error})"
            ) from None
        except (ValueError, OverflowError):
            raise ValueError(NOT_COUNTS.format(type(X).__name__)) from None
    kind = values.dtype.kind
    if kind == "c":
        raise ValueError("Complex data not supported; pass word counts")
    if kind not in "biuf":
        raise ValueError(
            NOT_COUNTS.format("dates or times" if kind in "mM" else "text")
        )
    if values.ndim != 2:
        raise ValueError(
            f"X must be a matrix of word counts, documents by words, got {values.ndim} "
            "dimension(s). Reshape your data: X.reshape(1, -1) is one document"
        )
    # of the columns; a frame may have one that is named dtype
    types = getattr(X, "dtypes", None)
    one_type = hasattr(X, "dtype") if types is None else len(set(map(str, types))) == 1
    X = check(
        unsummed(X),
        accept_sparse="csr",
        dtype=[np.float64, np.float32] if one_type else np.float64,
        **options,
    )
    X = X if X.shape[0] else sp.csr_array(X.shape)  # no number is the smallest of none
    check_non_negative(X, f"{name} (it takes word counts)")
    return without_zeros(add_duplicates(X))


class ShardOfUnits(Protocol):
    """One of the shards."""

    def users(self) -> npt.NDArray[np.int64]:
        """Number of the unit of each document."""


class Shards(ABC):
    """A corpus in shards: `dplda.datasets.CountShards`, as far as checks read it."""

    shape: tuple[int, int]
    unit: str  # what fits and scores protect
    feature_names: npt.NDArray[np.object_] | None  # the words of the columns
    shards: Sequence[ShardOfUnits]

    @abstractmethod
    def __iter__(self) -> Iterator[sp.csr_array]:
        """The matrix of each shard, in order."""


def are_shards(X: object) -> TypeGuard[Shards]:
    """Whether `X` is a corpus in shards. No column of `X` is looked up."""
    return isinstance(X, Shards)


def unit_of(X: Any, user_ids: Any) -> str:
    """What is protected, as shards know it.

    Nothing of `X` is touched if it is something else.
    """
    if not are_shards(X):
        return "document" if user_ids is None else "user"
    if user_ids is not None:
        raise ValueError(
            "a CountShards holds the users of its documents: pass user_ids to "
            "write_shards, which keeps the documents of a user together, and none here"
        )
    return X.unit


def check_shards(estimator: Any, X: Any, *, reset: bool) -> None:
    """Compare columns of a CountShards, whose counts were checked, with the model's.

    Raises
    ------
    ValueError
        If the width is not that of the fitted model, or the words are others.
    """
    names = X.feature_names
    if reset:
        estimator.n_features_in_ = X.shape[1]
        vars(estimator).pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = names
        return
    _check_width(estimator, X)
    fitted = getattr(estimator, "feature_names_in_", None)
    if names is not None and fitted is not None and not np.array_equal(fitted, names):
        raise ValueError(
            f"the shards have other words than those that {type(estimator).__name__} "
            "was fitted on; count the documents with the same vocabulary"
        )


def without_zeros(X: sp.csr_array) -> sp.csr_array:
    """Non-negative `X`, or a copy of it if it stores zeros."""
    if X.data.min(initial=1) > 0:
        return X
    X = X.copy()
    X.eliminate_zeros()
    return X


def row_blocks(
    indptr: npt.NDArray[Any], size: int = BLOCK_ENTRIES, per_row: int = 1
) -> list[slice]:
    """Consecutive rows of a CSR matrix in blocks of about `size` numbers.

    A block may be copied.

    A row counts as many numbers as it has entries, and `per_row` more.
    """
    numbers = indptr + per_row * np.arange(len(indptr))
    starts = np.searchsorted(numbers, np.arange(0, numbers[-1], size))
    edges = np.unique(np.append(starts, len(indptr) - 1)).tolist()
    return list(map(slice, edges, edges[1:]))


def whole_counts(X: sp.csr_array, name: str) -> sp.csr_array:
    """`X` in whole counts.

    Warns if that changed it, and raises an error if little would be left.
    """
    for start in range(0, X.nnz, BLOCK_ENTRIES):
        block = X.data[start : start + BLOCK_ENTRIES]
        if not np.array_equal(np.rint(block), block):
            break
    else:
        return X
    counts = np.rint(X.data)
    if np.count_nonzero(counts) < LEAST_KEPT * X.nnz:
        raise ValueError(
            f"{name} takes whole word counts, and nearly all numbers of X would be "
            "rounded to 0; pass the counts that the weights or shares were computed "
            "from"
        )
    warn_user(
        f"{name} takes word counts, and X holds numbers that are not whole: they were "
        "rounded to the nearest; pass counts, not tf-idf or frequencies"
    )
    return without_zeros(sp.csr_array((counts, X.indices, X.indptr), X.shape))


def warn_of_empty_rows(n_empty: int, n_docs: int) -> None:
    """Tell the person at the keyboard that most documents have no vocabulary word."""
    if 2 * n_empty > n_docs > 1:  # one empty row may state no more than a width
        warn_user(
            f"{n_empty} of {n_docs} rows of X hold no word; check that X was "
            "vectorized with the right vocabulary. This message is about private data "
            "and not for release",
            PrivateDataWarning,
        )


def warn_of_coverage(n_known: npt.NDArray[Any], n_tokens: int) -> None:
    """Tell the person at the keyboard that a vocabulary misses most of the texts.

    `n_known` (n_texts,) are the tokens of each text that the vocabulary has, `n_tokens`
    are all.
    """
    known, n_empty = int(n_known.sum()), np.count_nonzero(n_known == 0)
    # function words, which most vocabularies leave out, are half of all tokens
    if n_tokens and (5 * known < n_tokens or 2 * n_empty > len(n_known)):
        warn_user(
            f"the vocabulary covers {known / n_tokens:.0%} of the tokens, and "
            f"{n_empty} of {len(n_known)} texts have none of its words; use a larger "
            "vocabulary, or one of the same language and domain. This message is about "
            "private data and not for release",
            PrivateDataWarning,
        )


def check_table(table: Any, name: str, **options: Any) -> npt.NDArray[np.float64]:
    """Return `table` as a float64 array of finite numbers.

    Options are those of `check_array`.
    """
    try:
        array: npt.NDArray[np.float64] = check_array(
            table, dtype=np.float64, input_name=name, **options
        )
    except (ValueError, TypeError, OverflowError) as error:
        # most of these errors print the array
        if str(error).startswith(f"Input {name} contains"):
            raise
        model = (
            "; pass components_ of the model" if hasattr(table, "components_") else ""
        )
        kind, shape = type(table).__name__, getattr(table, "shape", None)
        found = kind if shape is None else f"{kind} of shape {shape}"
        raise ValueError(
            f"{name} must be a table of finite numbers, got {found}{model}"
        ) from None
    return array


def check_topics(
    table: Any, name: str = "table", n_words: int | None = None
) -> npt.NDArray[np.float64]:
    """Return `table` as an array (n_topics, n_words); each topic has a weight."""
    array = check_table(table, name)
    if (
        n_words not in (None, array.shape[1])
        or array.min() < 0
        or not array.any(axis=1).all()
    ):
        columns = "" if n_words is None else f" {n_words} columns (words),"
        raise ValueError(
            f"{name} must have{columns} no negative entry and no empty row (topic), "
            f"got shape {array.shape}"
        )
    return array


def public_tables(estimator: Any, n_words: int) -> tuple[Any, Any]:
    """The checked `word_vectors` and `prior_components` of an estimator, or None each.

    Vectors (n_words, n_dimensions) are zeros for words without one. The prior has the
    shape of the topics.
    """
    vectors, prior = estimator.word_vectors, estimator.prior_components
    if vectors is not None:
        vectors = check_table(vectors, "word_vectors")
        if vectors.shape[0] != n_words or not vectors.any():
            raise ValueError(
                f"word_vectors must have a row for each of {n_words} words, not all of "
                f"them zeros, got shape {vectors.shape}; load_word_vectors(vocabulary) "
                "makes the rows of the vocabulary in its order"
            )
    if prior is not None:
        prior, shape = (
            check_table(prior, "prior_components"),
            (int(estimator.n_components), n_words),
        )
        low, high = prior.min(), prior.max()
        if prior.shape != shape or low < 0 or not 0 < high <= LARGEST_PSEUDO_COUNT:
            raise ValueError(
                f"prior_components must be a table of shape {shape} (topics by words) "
                f"of numbers from 0 to {LARGEST_PSEUDO_COUNT:g} that are not all zero, "
                f"got shape {prior.shape} and numbers from {low:g} to {high:g}"
            )
    return vectors, prior


def _check_structure(X: Any) -> None:
    """Refuse a sparse matrix whose index arrays point outside of it.

    SciPy does not check them, and would read and write other memory.
    """
    try:
        if X.format in ("csr", "csc", "bsr"):
            # which replaces arrays of its matrix
            copy.copy(X).check_format(full_check=True)
        else:
            if X.format == "lil" and any(
                len(r) != len(x) for r, x in zip(X.rows, X.data)
            ):
                raise ValueError
            entries = X.tocoo()
            # which checks them
            sp.coo_array((entries.data, entries.coords), shape=X.shape)
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            f"X is a sparse matrix ({X.format}) whose index arrays do not fit its "
            "shape; build it again from whole rows and columns within the shape"
        ) from None


def _check_width(estimator: Any, X: Any) -> None:
    """Compare the width of `X` with the fitted table.

    `n_features_in_` is not used: a failed `fit` may have left another width there.
    """
    table = getattr(estimator, "components_", None)
    if table is not None and X.shape[1] != table.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{table.shape[1]} features as input"
        )
