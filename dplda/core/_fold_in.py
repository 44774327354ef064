"""Topic weights of documents under a fixed table, and the variational Bayes E-step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike

from dplda.core._corpus import LARGEST_COUNT, row_blocks
from dplda.kernels import _e_step, _variational
from dplda.kernels._frozen import LANES
from dplda.leaf._sparse import add_duplicates
from dplda.leaf._threads import in_threads, n_threads
from dplda.privacy._streams import PIECE


class Steps(NamedTuple):
    """Stopping rule of the inference of a document."""

    most: int  # largest number of steps
    tolerance: float  # L1 change of topic weights below which the inference stops


# For new documents. A row of the result depends on that row and on the table only.
UNTIL_SETTLED = Steps(100, 1e-4)
# Mean change of a document's Dirichlet parameters at which the E-step stops, as in
# scikit-learn.
E_STEP_TOLERANCE = 1e-3

# Entries and topic weights of documents that are inferred, or copied, at a time.
BATCH = 1 << 18
# Default `doc_topic_prior`. In rounds with noise, a larger one makes the topics alike.
DOC_TOPIC_PRIOR = 0.1


class OwnCounts(NamedTuple):
    """What a document needs to leave its own counts out of a table."""

    inverse_sizes: np.ndarray  # 1 / topic size, 0 on the padding, (padded,)
    least: float  # least count of a cell without the document

    @classmethod
    def of_sizes(cls, sizes: np.ndarray, least: float) -> OwnCounts:
        """From topic sizes (n_components,)."""
        return cls(pad(1 / sizes[None])[0], least)


class Inference(NamedTuple):
    """Inputs of the inference of topic weights, beside the documents."""

    phi: np.ndarray  # p(word | topic), (n_words, padded) float32
    n_components: int
    doc_topic_prior: float
    steps: Steps
    # Whether to find the Dirichlet posterior of the topic weights, and return
    # exp(E[log theta]).
    variational: bool = False
    # Whether to round `phi` to 8 bits, relative to the largest value of each row, and
    # the weights of a step to 15 bits, which is faster.
    in_integers: bool = False
    # Only in integers: leave the document's own counts, by its present weights, out of
    # `phi`. A document with equal weights was never inferred, and has added nothing.
    own: OwnCounts | None = None


def pad(table: np.ndarray, dtype: DTypeLike = np.float32) -> np.ndarray:
    """Append zero columns up to a multiple of `LANES` topics."""
    padded = aligned_zeros(table.shape, dtype)
    padded[:, : table.shape[1]] = table
    return padded


def aligned_zeros(shape: tuple[int, int], dtype: DTypeLike) -> np.ndarray:
    """Zeros, padded as by `pad`, with rows that begin on cache lines, for speed."""
    shape = shape[0], whole(shape[1], LANES)
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    line = LANES * np.dtype(np.float32).itemsize  # bytes, also those of a vector
    memory = np.zeros(size + line, np.uint8)
    skipped = -memory.ctypes.data % line
    return memory[skipped : skipped + size].view(dtype).reshape(shape)


def whole(n: int, size: int) -> int:
    """Round `n` up to a multiple of `size`."""
    return -(-n // size) * size


def topic_word_probabilities(
    components: np.ndarray, n_jobs: int | None = None
) -> np.ndarray:
    """p(word | topic), (n_words, padded), from counts (n_components, n_words)."""
    n_components, n_words = components.shape
    phi = aligned_zeros((n_words, n_components), np.float32)

    def size_of(topics: slice) -> np.ndarray:
        sizes: np.ndarray = components[topics].sum(axis=1, keepdims=True)
        return sizes

    size = np.concatenate(in_threads(size_of, slices(n_components, LANES), n_jobs))

    def divide(words: slice) -> None:
        phi[words, :n_components] = (components[:, words] / size).T

    n_rows = max(LANES, PIECE // n_components)
    in_threads(divide, slices(n_words, n_rows), n_jobs)
    return phi


def in_16_bits(
    table: np.ndarray, n_jobs: int | None = None, *, size: int = 32767
) -> np.ndarray:
    """A table (n_rows, padded) in integers from 0 to 32767, for the sums of a round.

    The largest value of each row becomes `size`. With ``size=0``, the value 1 becomes
    32767. Chunks of topics follow each other in memory (``_contributions.h``).
    """
    n_rows, padded = table.shape
    chunks = aligned_zeros((n_rows, whole(padded, 2 * LANES)), np.int16)
    _variational.narrow(table, size, chunks, n_threads(n_jobs))
    return chunks


def in_bytes(table: np.ndarray, n_jobs: int | None = None) -> np.ndarray:
    """A table (n_rows, padded) in integers; the largest value of a row is 255."""
    n_rows, padded = table.shape
    rows = aligned_zeros((n_rows, whole(padded, 2 * LANES)), np.uint8)
    _variational.narrow(table, 255, rows, n_threads(n_jobs))
    return rows


def slices(n: int, size: int) -> list[slice]:
    """Slices of `size` numbers that cover ``range(n)``."""
    edges = [*range(0, n, size), n]
    return list(map(slice, edges, edges[1:]))


def single_precision(X: ArrayLike | sp.spmatrix | sp.sparray) -> sp.csr_array:
    """Word counts as the kernels read them: CSR, float32, int32, without duplicates.

    Counts are at most `LARGEST_COUNT`, so that no sum overflows. The result may share
    arrays with `X`.
    """
    X = sp.csr_array(X)
    if X.dtype != np.float32 or X.data.max(initial=0) > LARGEST_COUNT:
        with np.errstate(over="ignore"):  # float32 may overflow to infinity first
            X.data = np.minimum(
                X.data, LARGEST_COUNT, dtype=np.float32, casting="unsafe"
            )
    X = add_duplicates(X)
    X.indices = X.indices.astype(np.int32, copy=False)
    X.indptr = X.indptr.astype(np.int32, copy=False)
    return X


def update_theta(
    X: sp.csr_array,
    rows: np.ndarray,
    theta: np.ndarray,
    inference: Inference,
    n_jobs: int | None = None,
) -> None:
    """Infer the rows `rows` of `theta` (n_docs, padded), in place, from float32 `X`.

    A document gets steps of expectation-maximization until a step changes its topic
    weights by less than the tolerance. An extrapolation follows every second step. The
    weights sum to 1.
    """
    threads = n_threads(n_jobs)
    padded = theta.shape[1]
    integers = copies = np.zeros((0, 0), np.uint8)
    numbers = np.zeros(0, np.int32)
    if inference.in_integers:
        integers = in_bytes(inference.phi, n_jobs)
    if inference.own is not None:
        numbers = np.arange(np.diff(X.indptr).max(initial=0), dtype=np.int32)
        copies = aligned_zeros((threads, len(numbers) * integers.shape[1]), np.uint8)
    scratch = aligned_zeros((threads, 49 * padded), np.float32)
    rows = rows.astype(np.int64, copy=False)
    _variational.fold_in(X, rows, theta, inference, integers, scratch, copies, numbers)


def uniform_theta(n_docs: int, n_components: int) -> np.ndarray:
    """Equal topic weights (n_docs, padded), float32."""
    theta = aligned_zeros((n_docs, n_components), np.float32)
    theta[:, :n_components] = 1.0 / n_components
    return theta


def infer_topics(
    X: sp.csr_array,
    phi: np.ndarray,
    n_components: int,
    doc_topic_prior: float,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Topic weights (n_docs, n_components), float32, under `phi` (n_words, padded)."""
    theta = uniform_theta(X.shape[0], n_components)
    inference = Inference(phi, n_components, doc_topic_prior, UNTIL_SETTLED)
    update_theta(single_precision(X), np.arange(X.shape[0]), theta, inference, n_jobs)
    return theta[:, :n_components]


def fold_in(
    X: sp.csr_array,
    components: np.ndarray,
    doc_topic_prior: float,
    n_jobs: int | None = None,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """Topic weights of new documents (n_docs, n_components), under `components`.

    `components` (n_components, n_words) is positive. Rows sum to 1 up to single
    precision. An empty document gets equal weights.
    """
    phi = topic_word_probabilities(components, n_jobs)
    n_components = len(components)
    theta = np.empty((X.shape[0], n_components), dtype)

    def infer(rows: slice) -> None:
        theta[rows] = infer_topics(
            X[rows], phi, n_components, doc_topic_prior, n_jobs=1
        )

    in_threads(infer, row_blocks(X.indptr, per_row=phi.shape[1]), n_jobs)
    return theta


def exp_dirichlet_expectation(
    table: np.ndarray, dtype: DTypeLike, n_jobs: int | None = None
) -> np.ndarray:
    """exp(E[log beta]) of topics with Dirichlet parameters `table`.

    `table` is (n_words, n_components), and the result (n_words, padded). Its columns
    sum to less than 1, and its padding is zero.
    """
    table = np.ascontiguousarray(table, float)
    result = aligned_zeros(table.shape, dtype)
    _e_step.exp_expectations(table, table.sum(axis=0), result, n_threads(n_jobs))
    return result


def e_step(
    X: sp.csr_array,
    exp_topic_word: np.ndarray,
    *,
    n_components: int,
    doc_topic_prior: float,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Dirichlet parameters of topic weights, and exp(E[log theta]), (n_docs, padded).

    `exp_topic_word` is the result of `exp_dirichlet_expectation`, in the type of `X`.
    """
    dtype = exp_topic_word.dtype
    padded = exp_topic_word.shape[1]
    gamma = np.ones((X.shape[0], padded), dtype)
    exp_doc_topic = np.zeros_like(gamma)
    longest = int(np.diff(X.indptr).max(initial=0))
    scratch = np.empty(
        (n_threads(n_jobs), _e_step.scratch_size(longest, n_components)), dtype
    )
    _e_step.e_step(
        X.indptr,
        X.indices,
        X.data,
        np.arange(X.shape[0]),
        exp_topic_word,
        doc_topic_prior,
        n_components,
        UNTIL_SETTLED.most,
        E_STEP_TOLERANCE,
        gamma,
        exp_doc_topic,
        scratch,
    )
    return gamma, exp_doc_topic
