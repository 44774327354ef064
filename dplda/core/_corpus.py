"""Checks of count matrices, and the token stream that the Gibbs samplers read."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from dplda.kernels import _release
from dplda.leaf._checks import LARGEST_INTEGER
from dplda.leaf._compat import check_non_negative, validate_data
from dplda.leaf._messages import warn_user
from dplda.leaf._sparse import add_duplicates, unsummed
from dplda.leaf._threads import in_threads
from dplda.privacy import PrivateDataWarning
from dplda.privacy._mechanisms import SPARE_PIECE
from dplda.privacy._streams import PIECE, Purpose, Streams

# The input of a fit: documents by words. It may be a data frame, which NumPy reads.
Matrix: TypeAlias = npt.ArrayLike | sp.sparray | sp.spmatrix

MAX_TOKENS = LARGEST_INTEGER
LARGEST_COUNT = 1e12  # squares of the sum of 1e7 such counts are finite in float32
COPIES = 10  # a fit warns if more than one row in this many is a copy
# Least share of cells that rounding may keep above 0. It keeps almost no tf-idf weight.
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
    """Documents token by token; private."""

    word: npt.NDArray[np.int32]  # word of each token, grouped by document
    # first token of each document, and the number of tokens
    doc_ptr: npt.NDArray[np.int64]
    n_words: int  # size of the vocabulary

    @classmethod
    def from_counts(cls, X: sp.csr_array) -> Corpus:
        """Token stream of a CSR count matrix (documents by words)."""
        n_tokens = X.data.sum(dtype=np.float64)
        if n_tokens > MAX_TOKENS:
            raise ValueError(
                f"a token-level sampler takes at most {MAX_TOKENS} tokens, and X holds "
                "more; split the corpus, or use a document-level estimator such as "
                "SubLDA"
            )
        word = np.empty(int(n_tokens), np.int32)
        doc_ptr = np.zeros(X.shape[0] + 1, np.int64)
        indptr = X.indptr.astype(np.int32, copy=False)
        indices = X.indices.astype(np.int32, copy=False)
        _release.list_tokens(indptr, indices, X.data, doc_ptr, word)
        return cls(word, doc_ptr, X.shape[1])

    @property
    def n_tokens(self) -> int:
        return len(self.word)

    def shuffled(
        self, streams: Streams, round: int, n_jobs: int | None = None
    ) -> Corpus:
        """The tokens of each document in an exactly uniform random order.

        Samplers draw random numbers for positions, and a count matrix has no positions.
        If tokens were ordered by word, a replaced word would move many tokens.
        """
        word = self.word.copy()
        blocks = self.blocks(PIECE)
        ends = np.cumsum([block.n_tokens for block in blocks])

        def run(index: int) -> None:
            block = blocks[index]
            reader = streams.reader(Purpose.ORDER, round, index)
            bits = reader.words(block.n_tokens)
            spare = np.empty(0, np.uint64)
            part = word[ends[index] - block.n_tokens : ends[index]]
            state = np.zeros(2, np.int64)
            while state[0] < len(block.doc_ptr) - 1:
                used = _release.shuffle(part, block.doc_ptr, bits, spare, state)
                spare = np.append(spare[used:], reader.words(SPARE_PIECE, spare=True))

        in_threads(run, range(len(blocks)), n_jobs)
        return Corpus(word, self.doc_ptr, self.n_words)

    def blocks(self, n_tokens: int) -> list[Corpus]:
        """Whole documents in blocks of about `n_tokens`, independent of `n_jobs`."""
        rows = row_blocks(self.doc_ptr, n_tokens, per_row=0)
        blocks = []
        for block in rows:
            doc_ptr = self.doc_ptr[block.start : block.stop + 1]
            word = self.word[doc_ptr[0] : doc_ptr[-1]]
            blocks.append(Corpus(word, doc_ptr - doc_ptr[0], self.n_words))
        return blocks


def keep_at_most(
    most: int, ptr: npt.NDArray[np.integer], streams: Streams, purpose: int
) -> npt.NDArray[np.bool_]:
    """Mask of at most `most` entries of each row, chosen uniformly.

    The random keys depend on the lengths of the rows only.
    """
    keeps = np.ones(int(ptr[-1]), np.bool_)
    for row in np.flatnonzero(np.diff(ptr) > most):
        first, last = ptr[row : row + 2]
        keys = streams.reader(purpose, 0, int(row)).words(int(last - first))  # secret
        keeps[first + np.argpartition(keys, most)[most:]] = False
    return keeps


def check_counts(
    estimator: BaseEstimator, X: Matrix, *, reset: bool, whole: bool = True
) -> sp.csr_array:
    """Validate a document-term matrix.

    Parameters
    ----------
    estimator : estimator
        Gets `n_features_in_` and `feature_names_in_` with `reset`.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts; private. It does not change.
    reset : bool
        Whether `X` starts a new fit. Otherwise it must have the columns of the fitted
        model.
    whole : bool, default=True
        Whether counts are rounded to whole numbers, with a warning.

    Returns
    -------
    counts : csr_array of shape (n_docs, n_words)
        float32 or float64, with one positive entry for each cell. It may share arrays
        with `X`: do not write to them.

    Raises
    ------
    ValueError
        If `X` holds text, or negative, NaN or infinite values; if its width differs
        from the fitted model; or, with `whole`, if rounding would empty most cells.
    """
    name = type(estimator).__name__
    check = partial(validate_data, estimator)
    counts = positive_entries(X, name, check, reset=reset)
    if not reset:
        _check_width(estimator, counts)
    if whole:
        counts = whole_counts(counts, name)
    n_words = np.diff(counts.indptr)
    if reset:
        warn_of_empty_rows(int(np.count_nonzero(n_words == 0)), len(n_words))
    if counts.nnz > MAX_TOKENS:
        raise ValueError(
            f"X may hold at most {MAX_TOKENS} non-zero counts; split the corpus"
        )
    counts.indptr = counts.indptr.astype(np.int32, copy=False)
    counts.indices = counts.indices.astype(np.int32, copy=False)
    return counts


def take_columns(estimator: BaseEstimator, checked: BaseEstimator) -> None:
    """Give an estimator the columns that `check_counts` has set on a copy of it.

    A fit that is refused then leaves the old model with its own columns.
    """
    for name in ("feature_names_in_", "n_features_in_"):
        vars(estimator).pop(name, None)
        if name in vars(checked):
            setattr(estimator, name, vars(checked)[name])


def positive_entries(
    X: Matrix,
    name: str,
    check: Callable[..., np.ndarray | sp.csr_array] = check_array,
    **options: bool | int,
) -> sp.csr_array:
    """Validate a matrix; return CSR floats with one positive entry for each cell.

    The type is float32 if all of `X` is, else float64. Columns of several types become
    float64, because NumPy would choose the type by the largest count of any document,
    which may not affect other documents. `options` go to `check`. `name` is the
    caller's name in errors, which print no data.
    """
    if are_shards(X):
        raise ValueError(IN_SHARDS)
    if isinstance(X, np.ma.MaskedArray):  # NumPy would count masked values
        raise ValueError(
            "X is a masked array, whose masked cells hold no counts; pass X.filled(0)"
        )
    _check_column_names(X)
    values: np.ndarray | sp.sparray | sp.spmatrix
    if isinstance(X, (sp.sparray, sp.spmatrix)):
        _check_structure(X)
        values = X
    elif (entries := sparse_columns(X)) is not None:
        values = entries
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
    # types of columns: `X.dtype` of a frame may be a column
    types = getattr(X, "dtypes", None)
    one_type = hasattr(X, "dtype") if types is None else len(set(map(str, types))) == 1
    table = check(
        unsummed(X),
        accept_sparse="csr",
        dtype=[np.float64, np.float32] if one_type else np.float64,
        **options,
    )
    if table.shape[0] == 0:
        table = sp.csr_array(table.shape)  # an empty array has no smallest number
    check_non_negative(table, f"{name} (it takes word counts)")
    return without_zeros(add_duplicates(table))


def _check_column_names(X: Any) -> None:
    """Refuse a table whose first column holds the names or numbers of its rows."""
    names = getattr(X, "columns", ())
    first = next(iter(names), None) if isinstance(names, Iterable) else None
    if isinstance(first, str) and first.startswith("Unnamed: "):
        raise ValueError(
            f"the first column of X has no name ({first!r} comes from pandas), like "
            "the row names that R writes; read the file with index_col=0"
        )


def sparse_columns(X: Any) -> sp.coo_matrix | None:
    """The entries of a data frame of sparse columns, without a dense copy.

    None for any other `X`.
    """
    types = getattr(X, "dtypes", None)
    if types is None or not hasattr(X, "sparse"):
        return None
    fillings = [getattr(dtype, "fill_value", None) for dtype in types]
    if None in fillings:
        return None
    if any(filling != 0 for filling in fillings):
        raise ValueError(
            "X is a data frame of sparse columns that are not filled with 0; pass "
            "X.sparse.to_dense().fillna(0), or build the columns with "
            "pandas.SparseDtype(float, 0)"
        )
    entries: sp.coo_matrix = X.sparse.to_coo()
    return entries


class ShardOfUnits(Protocol):
    """One shard."""

    def users(self) -> npt.NDArray[np.int64]:
        """Number of the unit of each document; private."""


class Shards(ABC):
    """A corpus in shards: the part of `dplda.datasets.CountShards` that checks read."""

    shape: tuple[int, int]
    unit: str  # what fits and scores protect: "document" or "user"
    feature_names: npt.NDArray[np.object_] | None  # the words of the columns
    name: str  # of the column of user ids, if it has one
    shards: Sequence[ShardOfUnits]

    @abstractmethod
    def __iter__(self) -> Iterator[sp.csr_array]:
        """The matrix of each shard, in order."""


def are_shards(X: object) -> TypeGuard[Shards]:
    """Whether `X` is a corpus in shards; reads no attribute of `X`."""
    return issubclass(type(X), Shards)  # `isinstance` would ask X for its class


def unit_of(X: object, user_ids: npt.ArrayLike | None) -> str:
    """The protected unit: "document" or "user"; reads no data."""
    if not are_shards(X):
        return "document" if user_ids is None else "user"
    if user_ids is not None:
        raise ValueError(
            "a CountShards holds the users of its documents: pass user_ids to "
            "write_shards, which keeps the documents of a user together, and none here"
        )
    return X.unit


def ids_of(X: object, user_ids: npt.ArrayLike | None) -> object:
    """What holds the user ids, for `charged_unit`; reads no data."""
    return X if are_shards(X) else user_ids


def check_shards(estimator: BaseEstimator, X: Shards, *, reset: bool) -> None:
    """Check the columns of a CountShards, as `check_counts` does for a matrix.

    The counts were checked when the shards were written.

    Raises
    ------
    ValueError
        If the width or the words differ from the fitted model.
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
    """Non-negative `X` itself, or a copy without the zeros that it stores."""
    if X.data.min(initial=1) > 0:
        return X
    X = X.copy()
    X.eliminate_zeros()
    return X


def row_blocks(
    indptr: npt.NDArray[np.integer], size: int = PIECE, per_row: int = 1
) -> list[slice]:
    """Consecutive rows of a CSR matrix in blocks of about `size` numbers.

    A row counts as its number of entries plus `per_row`. Blocks are small enough to
    copy.
    """
    numbers = indptr + per_row * np.arange(len(indptr))
    starts = np.searchsorted(numbers, np.arange(0, numbers[-1], size))
    edges = np.unique(np.append(starts, len(indptr) - 1)).tolist()
    return list(map(slice, edges, edges[1:]))


def whole_counts(X: sp.csr_array, name: str) -> sp.csr_array:
    """`X` in whole counts.

    Warns if rounding changes `X`, and raises ValueError if it would keep too little.
    """
    for start in range(0, X.nnz, PIECE):
        block = X.data[start : start + PIECE]
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
        f"{name} expects word counts, and X holds numbers that are not whole: they "
        "were rounded to the nearest integers; pass counts, not tf-idf or frequencies",
        PrivateDataWarning,  # one document may decide whether the warning appears
    )
    return without_zeros(sp.csr_array((counts, X.indices, X.indptr), X.shape))


def warn_of_empty_rows(n_empty: int, n_docs: int) -> None:
    """Warn that most documents hold no word; the warning is private."""
    if 2 * n_empty > n_docs > 1:  # one empty row may only state a width
        warn_user(
            f"{n_empty} of {n_docs} rows of X hold no word; check that X was "
            "vectorized with the right vocabulary. This message is about private data "
            "and not for release",
            PrivateDataWarning,
        )


def row_keys(X: sp.csr_array) -> npt.NDArray[np.float64]:
    """A number for each row, (n_docs,), equal for equal rows, 0 if empty; private.

    It is a sum of one irrational number for each token, by its word, so that different
    rows have different sums up to rounding.
    """
    keys: npt.NDArray[np.float64] = X @ np.sqrt(np.arange(X.shape[1]) + np.pi)
    return keys


def n_repeated(values: npt.NDArray[np.generic]) -> int:
    """How many values are there more than once, but for the first of each."""
    ordered = np.sort(values)  # np.unique takes several times the memory
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))


def warn_of_equal_rows(keys: npt.NDArray[np.float64]) -> None:
    """Warn that many documents are copies; the warning is private.

    `keys` (n_docs,) are the `row_keys`.
    """
    keys = keys[keys > 0]
    n_copies = n_repeated(keys)
    if COPIES * n_copies > len(keys):
        warn_user(
            f"{n_copies} of {len(keys)} rows of X with words are copies of other rows: "
            "because copies repeat each other, the test of the topics may take noise "
            "for a topic; leave copies out. This message is about private data and not "
            "for release",
            PrivateDataWarning,
        )


def warn_of_coverage(n_known: npt.NDArray[np.integer], n_tokens: int) -> None:
    """Warn that a vocabulary misses most of the texts; the warning is private.

    `n_known` (n_texts,) is the number of tokens of each text that are in the
    vocabulary, and `n_tokens` is the number of all tokens.
    """
    known = int(n_known.sum())
    n_empty = np.count_nonzero(n_known == 0)
    # function words, which most vocabularies leave out, are half of all tokens
    if n_tokens and (5 * known < n_tokens or 2 * n_empty > len(n_known)):
        warn_user(
            f"the vocabulary covers {known / n_tokens:.0%} of the tokens, and "
            f"{n_empty} of {len(n_known)} texts have none of its words; use a larger "
            "vocabulary, or one of the same language and domain. This message is about "
            "private data and not for release",
            PrivateDataWarning,
        )


def check_table(
    table: npt.ArrayLike, name: str, *, ensure_2d: bool = True
) -> npt.NDArray[np.float64]:
    """Return `table` as a float64 array of finite numbers, two-dimensional by default.

    Errors print no numbers of it.
    """
    try:
        array: npt.NDArray[np.float64] = check_array(
            table, dtype=np.float64, input_name=name, ensure_2d=ensure_2d
        )
    except (ValueError, TypeError, OverflowError) as error:
        # most errors of scikit-learn print the array
        if str(error).startswith(f"Input {name} contains"):
            raise
        found = type(table).__name__
        if hasattr(table, "shape"):
            found += f" of shape {table.shape}"
        if hasattr(table, "components_"):
            found += "; pass components_ of the model"
        raise ValueError(
            f"{name} must be a table of finite numbers, got {found}"
        ) from None
    return array


def check_topics(
    table: npt.ArrayLike, name: str = "table", n_words: int | None = None
) -> npt.NDArray[np.float64]:
    """Return `table` as an array (n_topics, n_words) without an empty topic."""
    array = check_table(table, name)
    has_width = n_words is None or n_words == array.shape[1]
    if not has_width or array.min() < 0 or not array.any(axis=1).all():
        columns = "" if n_words is None else f" {n_words} columns (words),"
        raise ValueError(
            f"{name} must have{columns} no negative entry and no empty row (topic), "
            f"got shape {array.shape}"
        )
    return array


def public_tables(
    estimator: BaseEstimator, n_words: int
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64] | None]:
    """Check the `word_vectors` and the `prior_components` of an estimator.

    Returns arrays of shape (n_words, n_dimensions) and (n_components, n_words), or None
    for each that is not given. Both are public.
    """
    vectors = estimator.word_vectors
    prior = estimator.prior_components
    if vectors is not None:
        vectors = check_table(vectors, "word_vectors")
        if vectors.shape[0] != n_words or not vectors.any():
            raise ValueError(
                f"word_vectors must have a row for each of {n_words} words, not all of "
                f"them zeros, got shape {vectors.shape}; load_word_vectors(vocabulary) "
                "makes the rows of the vocabulary in its order"
            )
    if prior is not None:
        prior = check_table(prior, "prior_components")
        shape = (int(estimator.n_components), n_words)
        low = prior.min()
        high = prior.max()
        if prior.shape != shape or low < 0 or not 0 < high <= LARGEST_COUNT:
            raise ValueError(
                f"prior_components must be a table of shape {shape} (topics by words) "
                f"of numbers from 0 to {LARGEST_COUNT:g} that are not all zero, "
                f"got shape {prior.shape} and numbers from {low:g} to {high:g}"
            )
    return vectors, prior


def _check_structure(X: sp.sparray | sp.spmatrix) -> None:
    """Refuse a sparse matrix with indices outside of its shape.

    SciPy does not check them, and would access other memory.
    """
    try:
        if X.format in ("csr", "csc", "bsr"):
            # a copy: this check replaces arrays of its matrix
            copy.copy(X).check_format(full_check=True)
        else:
            if X.format == "lil":
                n_words = [len(words) for words in X.rows]
                if n_words != [len(values) for values in X.data]:
                    raise ValueError
            entries = X.tocoo()
            # the constructor checks the coordinates
            sp.coo_array((entries.data, entries.coords), shape=X.shape)
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            f"X is a sparse matrix ({X.format}) whose index arrays do not fit its "
            "shape; build it again from whole rows and columns within the shape"
        ) from None


def _check_width(estimator: BaseEstimator, X: sp.csr_array) -> None:
    """Compare the width of `X` with the fitted table.

    A failed `fit` may have changed `n_features_in_`, which is therefore not read.
    """
    table = getattr(estimator, "components_", None)
    if table is not None and X.shape[1] != table.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{table.shape[1]} features as input"
        )
