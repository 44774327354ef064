"""The private side of a document-level fit: documents, topic weights, contributions.

A unit is what the guarantee protects: one document, or all documents of one user.

Mechanism (sampled Gaussian). Each round releases the sum of the contributions of the
units in the batch. A contribution reads the documents of one unit, their topic weights
and past releases only, and is clipped to an L2 norm that is checked in integers. One
unit that is added, removed or emptied therefore changes the sum by at most the clipping
bound.

A document contributes the difference between its word-topic counts and what past
releases predict. The sum over documents carries the same information. The contribution
of one document, and with it the noise, is half as large. The contributions of a user's
documents are added before the clip. ``docs/proofs_document.md`` describes the
statistics and has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import row_blocks
from dplda.core._fold_in import (
    Inference,
    OwnCounts,
    Steps,
    e_step,
    in_16_bits,
    single_precision,
    uniform_theta,
    update_theta,
)
from dplda.document._document_budget import (
    COUNTS,
    NORM,
    SCALE_UP,
    TOTALS,
    Noise,
    Round,
)
from dplda.document._private_side import (
    Halves,
    PrivateSide,
    RoundInference,
    RoundTables,
)
from dplda.document._rules import Rules
from dplda.document._word_totals import WordTotals
from dplda.kernels import _variational
from dplda.kernels._columns import by_column
from dplda.leaf._calm import interruptible
from dplda.leaf._threads import in_threads, n_threads
from dplda.privacy._curator import Curator

# accelerated, from the weights of the last round
INNER_STEPS = Steps(5, 0.01)
STEPS_ANEW = Steps(15, INNER_STEPS.tolerance)  # accelerated, from equal weights
# a tenth of the bound: the words of the first release keep 99.5% of it
COUNT_SHARE = 10
DOCS_OF_A_USER = 10  # that are counted
N_PIECES = 16  # of the words, which threads share; a public constant
# of the radius: rounding lengthens less, on NIPS with 20 to 1000 topics
NEARLY = 1 - 2**-12


class Documents:
    """Private documents in memory: a `PrivateSide`.

    Every attribute is private. A row of each is a function of that unit and of past
    releases.

    Parameters
    ----------
    X : csr_array of shape (n_docs, n_words), float32
        Word counts. The documents of a unit are consecutive rows.
    unit_ptr : ndarray of shape (n_units + 1,), int64
        First document of each unit, and the number of documents.
    n_components : int
        Number of topics, without the padding.
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    theta : ndarray of shape (n_docs, padded), float32, or None, default=None
        Topic weights, which the rounds improve in place; equal ones if None.

    Attributes
    ----------
    scale : ndarray of shape (n_units,)
        Factor of each unit's contribution before the clip.
    n_units, n_words : int
        Number of units, private, and size of the vocabulary.
    """

    def __init__(
        self,
        X: sp.csr_array,
        unit_ptr: np.ndarray,
        n_components: int,
        n_jobs: int | None = None,
        theta: np.ndarray | None = None,
    ) -> None:
        n_docs, self.n_words = X.shape
        self.X = X
        self.unit_ptr = unit_ptr
        self.n_units = len(unit_ptr) - 1
        self.n_components = n_components
        self.n_jobs = n_jobs
        self.theta = uniform_theta(n_docs, n_components) if theta is None else theta
        self.scale = np.ones(self.n_units)
        self._are_documents = bool((np.diff(unit_ptr) == 1).all())
        self._all_columns: sp.csc_array | None = None  # of `X`, once they were needed

    @classmethod
    def from_counts(
        cls,
        X: sp.csr_array,
        n_components: int,
        n_jobs: int | None,
        users: np.ndarray | None = None,
    ) -> Documents:
        """Documents with equal topic weights, at their own lengths.

        `users` (n_docs,) are the numbers of the documents' users. None: each document
        is a unit.
        """
        unit_ptr = np.arange(X.shape[0] + 1)
        if users is not None:
            X = X[np.argsort(users, kind="stable")]
            unit_ptr = np.append(0, np.cumsum(np.bincount(users)))
        return cls(single_precision(X), unit_ptr.astype(np.int64), n_components, n_jobs)

    def unit_counts(self, units: slice = slice(None)) -> sp.csr_array:
        """Word counts of consecutive units, float32: those of their documents.

        The counts of a unit's documents are added.
        """
        begin, end, _ = units.indices(self.n_units)
        ptr = self.unit_ptr[begin : end + 1]
        are_all = len(ptr) > self.n_units
        rows = self.X if are_all else self.X[ptr[0] : ptr[-1]]
        if self._are_documents:
            return rows
        n_docs = rows.shape[0]
        adds = sp.csr_array((np.ones(n_docs), np.arange(n_docs), ptr - ptr[0]))
        return single_precision(adds @ rows)

    def lengths(self, weight: np.ndarray) -> np.ndarray:
        """L2 norms of the word counts of each unit, times word weights, (n_units,)."""
        squared_weight = weight.astype(float) ** 2

        def measure(units: slice) -> np.ndarray:
            counts = self.unit_counts(units)
            return np.sqrt(counts.multiply(counts) @ squared_weight)

        blocks = row_blocks(self.X.indptr[self.unit_ptr])
        return np.concatenate([np.zeros(0), *in_threads(measure, blocks, self.n_jobs)])

    def rows_of(self, units: np.ndarray) -> np.ndarray:
        """The documents of `units`, in order; `units` itself if each is one."""
        if self._are_documents:
            return units
        first = self.unit_ptr[units]
        n_rows = np.diff(self.unit_ptr)[units]
        before = np.cumsum(n_rows) - n_rows
        return np.arange(n_rows.sum()) + np.repeat(first - before, n_rows)

    def rescale(self, weight: np.ndarray, norm: float) -> None:
        lengths = np.maximum(self.lengths(weight), norm / SCALE_UP)
        self.scale = np.minimum(SCALE_UP, norm / lengths)

    def share_of(self, words: np.ndarray) -> np.ndarray:
        counts = self.unit_counts()
        return (counts @ words.astype(np.float64)) / np.maximum(counts.sum(axis=1), 1)

    def longest(self) -> float:
        return float(self.lengths(np.ones(self.n_words)).max(initial=0))

    def matrices(self) -> Iterator[sp.csr_array]:
        yield self.X

    def close(self) -> None:
        """Nothing: they go with the last name of them."""

    def sum_words(
        self, units: np.ndarray | None, *, weight: np.ndarray, norm: float, radius: int
    ) -> np.ndarray:
        X = self.unit_counts()
        threads = n_threads(self.n_jobs)
        longest = int(np.diff(X.indptr).max(initial=0))
        # integer sums have no order: the result does not depend on the threads
        parts = np.zeros((threads, self.n_words), np.int64)
        _variational.add_word_totals(
            X.indptr,
            X.indices,
            X.data,
            np.arange(self.n_units) if units is None else units,
            weight.astype(np.float32),
            self.scale,
            norm,
            radius,
            parts,
            np.empty((threads, longest), np.float32),
            np.empty((threads, longest), np.int32),
        )
        total: np.ndarray = parts.sum(axis=0)
        return total

    def count_documents(self, most: int) -> np.ndarray:
        has_words = np.diff(self.X.indptr) > 0
        before = np.append(0, np.cumsum(has_words))
        n_docs = np.minimum(np.diff(before[self.unit_ptr]), most)
        return np.array([n_docs.sum(), np.count_nonzero(n_docs)])

    def infer(self, units: np.ndarray, inference: RoundInference) -> None:
        """Improve the topic weights of `units`, as `inference` says."""
        rows = self.rows_of(units)
        if inference.by_e_step:
            are_all = len(rows) == self.X.shape[0]
            _, self.theta[rows] = e_step(
                self.X if are_all else self.X[rows],
                inference.table,
                n_components=self.n_components,
                doc_topic_prior=inference.doc_topic_prior,
                n_jobs=self.n_jobs,
            )
            return
        if inference.anew:
            self.theta[rows, : self.n_components] = 1.0 / self.n_components
        own = inference.own
        fold_in = Inference(
            inference.table,
            self.n_components,
            inference.doc_topic_prior,
            STEPS_ANEW if inference.anew else INNER_STEPS,
            variational=inference.anew,
            in_integers=True,
            own=None if own is None else OwnCounts.of_sizes(*own),
        )
        update_theta(self.X, rows, self.theta, fold_in, self.n_jobs)

    def sum_topics(
        self, units: np.ndarray, tables: RoundTables, upweight: np.ndarray | None = None
    ) -> np.ndarray:
        if tables.inference is not None:
            self.infer(units, tables.inference)
        rows = self.rows_of(units)
        columns = self._columns(rows)
        total = np.zeros((self.n_words, self.n_components), np.int64)
        if not columns.nnz:
            return total
        n_docs = np.diff(self.unit_ptr)[units]
        shift = integer_shift(tables.norm, tables.radius)
        most = tables.radius >> shift  # a longer contribution is taken out again
        goal = NEARLY * most
        # from the length of a unit's counts in floats to its length in the sum
        factor = self.scale[units] / tables.norm
        if upweight is not None:
            factor = factor * upweight[units]

        theta = self.theta if len(rows) == self.X.shape[0] else self.theta[rows]
        theta = in_16_bits(theta, self.n_jobs)
        adding = Adding(theta, tables, total, shift, len(units), n_threads(self.n_jobs))
        entries = Entries.of_documents(columns, n_docs)
        lengths = adding.measure(entries)
        scale = np.empty(len(units), np.float32)
        _variational.clip_scales(lengths, factor, most, goal, scale)
        has_several = n_docs > 1
        if has_several.any():
            # their lengths are bounds: what is missing is known from their squares
            squares = adding.squares(entries, np.where(has_several, scale, 0))
            longer = np.minimum(scaled_to(goal, squares, scale), most * factor)
            scale = np.where(has_several, longer, scale).astype(np.float32)
        # A unit whose integers exceed the radius is taken out. It gets a second try:
        # its entries alone, of the same copies.
        for _ in range(2):
            squares = adding.add(entries, scale)
            too_long = squares > most**2
            if not too_long.any():
                break
            entries = entries.of_units(too_long)
            adding.take_out(entries, scale)
            scale = scaled_to(goal, squares, scale).astype(np.float32)
        return total

    def sum_halves(
        self, units: np.ndarray, halves: Halves, upweight: np.ndarray | None = None
    ) -> np.ndarray:
        # each document twice: its words of the first half, and the others
        X = self.X
        rows = np.repeat(np.arange(0, 2 * X.shape[0], 2), np.diff(X.indptr))
        rows += ~halves.first[X.indices]
        shape = (2 * X.shape[0], self.n_words)
        parts = single_precision(sp.csr_array((X.data, (rows, X.indices)), shape))
        both = Documents(parts, 2 * self.unit_ptr, self.n_components, self.n_jobs)
        both.scale = self.scale
        both.infer(units, halves.inference)
        theta = both.theta[:, : self.n_components]
        theta /= theta.sum(axis=1, keepdims=True)  # these are near to 1
        theta[np.diff(parts.indptr) == 0] = halves.shares  # nothing is inferred
        draw_near(theta, halves.shares, halves.bound)
        # a half of the words meets the topic weights of the other one
        swapped = both.theta.reshape(-1, 2, both.theta.shape[1])[:, ::-1]
        both.theta = np.ascontiguousarray(swapped).reshape(both.theta.shape)
        return both.sum_topics(units, halves.tables, upweight)

    def _columns(self, rows: np.ndarray) -> sp.csc_array:
        """A copy of the counts of `rows` by column, with one entry for each cell.

        All passes of a sum read this copy. A document whose entry stood twice would be
        longer than its sum of squares says.
        """
        if len(rows) < self.X.shape[0]:
            threads = n_threads(self.n_jobs)
            X = self.X
            arrays = by_column(X.indptr, X.indices, X.data, rows, self.n_words, threads)
            columns = sp.csc_array(arrays, shape=(len(rows), self.n_words))
            # none, unless the caller's arrays changed during the call
            columns.sum_duplicates()
            return columns
        if self._all_columns is None:
            self._all_columns = self.X.tocsc()
            self._all_columns.sum_duplicates()
        return self._all_columns


class Entries(NamedTuple):
    """Word counts by column, an entry for each document and each of its words."""

    indptr: np.ndarray  # first entry of each word
    documents: np.ndarray
    counts: np.ndarray
    units: np.ndarray  # of the documents
    sums: np.ndarray  # of products of an entry's topics, which the measure fills in

    @classmethod
    def of_documents(cls, columns: sp.csc_array, n_docs: np.ndarray) -> Entries:
        """Those of the documents of units, which have `n_docs` (n_units,) each."""
        documents = columns.indices
        units = documents
        if (n_docs != 1).any():
            numbers = np.arange(len(n_docs), dtype=np.int32)
            units = np.repeat(numbers, n_docs)[documents]
        sums = np.empty(columns.nnz, np.int32)
        return cls(columns.indptr, documents, columns.data, units, sums)

    def of_units(self, units: np.ndarray) -> Entries:
        """Those of the units in the mask `units` (n_units,)."""
        kept = np.flatnonzero(units[self.units])  # few
        return Entries(
            np.searchsorted(kept, self.indptr).astype(np.int32),
            self.documents[kept],
            self.counts[kept],
            self.units[kept],
            self.sums[kept],
        )


class Adding:
    """The passes over entries that make up a sum of topics.

    `theta` has the topic weights of the documents, as of `in_16_bits`. Integers are
    added to `total`, without the last `shift` bits of the radius.
    """

    def __init__(
        self,
        theta: np.ndarray,
        tables: RoundTables,
        total: np.ndarray,
        shift: int,
        n_units: int,
        threads: int,
    ) -> None:
        self._theta = theta
        self._factor = tables.factor
        self._center = tables.center
        self._weight = tables.weight.astype(np.float32)
        self._in_one_chunk = theta.shape[1] in (32, 64, 128, 256)
        self._total = total
        self._shift = shift
        self._n_units = n_units
        self._threads = threads

    def measure(self, entries: Entries) -> np.ndarray:
        """Squared lengths of the units, in floats, and the sums of the entries.

        The lengths are (n_pieces, n_units), a sum for each piece of the words: their
        order does not depend on the threads, and which words they hold does not depend
        on the documents.
        """
        shape = (1, 2 * len(entries.counts))
        if self._in_one_chunk:  # then a column is done at once
            longest = int(np.diff(entries.indptr).max())
            shape = (self._threads, 2 * longest)
        scratch = np.empty(shape, np.float32)
        lengths = np.zeros((N_PIECES, self._n_units))
        _variational.measure_words(
            entries.indptr,
            entries.documents,
            entries.counts,
            entries.units,
            self._theta,
            self._factor,
            self._center,
            self._weight,
            entries.sums,
            scratch,
            lengths,
            self._threads,
        )
        return lengths

    def add(self, entries: Entries, scale: np.ndarray) -> np.ndarray:
        """Add the integers of units to the total; their squared lengths (n_units,)."""
        return self._pass(entries, scale, 1)

    def take_out(self, entries: Entries, scale: np.ndarray) -> None:
        """Subtract what `add` has added."""
        self._pass(entries, scale, -1)

    def squares(self, entries: Entries, scale: np.ndarray) -> np.ndarray:
        """The squared lengths of the integers that `add` would add."""
        return self._pass(entries, scale.astype(np.float32), 0)

    def _pass(self, entries: Entries, scale: np.ndarray, sign: int) -> np.ndarray:
        squares = np.zeros((N_PIECES, self._n_units), np.int64)
        _variational.add_words(
            entries.indptr,
            entries.documents,
            entries.counts,
            entries.units,
            self._theta,
            self._factor,
            self._center,
            self._weight,
            entries.sums,
            scale,
            self._shift,
            sign,
            self._total,
            squares,
            self._threads,
        )
        return squares.sum(axis=0)


def draw_near(theta: np.ndarray, shares: np.ndarray, bound: float) -> None:
    """Draw each row toward the shares until it is at most `bound` away, in L2.

    In place. `theta` is (n_docs, n_components), and `shares` (n_components,).
    """
    away = theta - shares
    length = np.sqrt(np.einsum("dk,dk->d", away, away))
    away *= np.minimum(1, bound / np.maximum(length, 1e-9))[:, None]
    np.add(shares, away, out=theta)


def scaled_to(length: float, squares: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The scales that bring units to `length`, from their squares at `scale`."""
    return length / np.sqrt(np.maximum(squares, 1)) * scale


def integer_shift(norm: float, radius: int) -> int:
    """How many bits of the `radius` the integers of a contribution leave out; public.

    The radius keeps 15 bits: most integers then have 16. Without noise, where the norm
    is that of the longest document, a token keeps 10 bits, and the radius 20 at most.
    """
    bits = radius.bit_length()
    of_norm = int(np.frexp(norm)[1])
    return max(0, min(bits - 15, max(bits - 20, bits - of_norm - 10)))


def release_word_totals(
    documents: PrivateSide,
    mechanisms: Sequence[Noise],
    curator: Curator,
    rules: Rules,
    most: int = 1,
) -> tuple[WordTotals, np.ndarray]:
    """Word totals and word weights (n_words,), from two releases.

    The first release sets the weights, the second uses them. The first one also counts
    the documents, at most `most` of a unit.
    """
    one, other = mechanisms
    first = release_first_totals(documents, one, curator, rules, most)  # public
    weight = rules.word_weights(first)  # public
    second = release_second_totals(documents, weight, other, curator, rules)  # public
    # documents are scaled slightly differently in the two
    before = max(float(first.noisy.sum()), 1e-12)
    after = max(float(second.noisy.sum()), 1e-12)
    ratio = float(np.clip(after / before, 1 / SCALE_UP, SCALE_UP))
    both = first.times(ratio).and_release(second.noisy, second.noise_scale)
    return both, weight


def release_first_totals(
    documents: PrivateSide,
    mechanism: Noise,
    curator: Curator,
    rules: Rules,
    most: int,
) -> WordTotals:
    """Word totals where all words weigh the same, and the number of documents.

    The numbers of documents and, where a unit may have several, of units share the
    bound with the words.
    """
    weight = np.ones(documents.n_words)  # public
    rules.rescale(documents, weight)  # private
    norm = rules.bound(documents, NORM)  # public
    radius = mechanism.radius  # public
    share = radius // COUNT_SHARE  # public
    of_words = rules.rest(radius, share)  # public
    with interruptible():
        total = documents.sum_words(
            None, weight=weight, norm=norm * of_words / radius, radius=of_words
        )  # private
    n_docs, n_units = documents.count_documents(most)  # private
    if most == 1:
        each = share  # public
        value = np.concatenate([[each * n_docs], total])  # private
    else:
        each = radius // (15 * most)  # public
        value = np.concatenate(
            [[each * n_docs], total, [each * most * n_units]]
        )  # private
    # One unit moves `value` by at most `radius` in L2: its word counts, added over its
    # documents, are clipped to `of_words` in integers, and its scale depends on itself
    # only. Its documents, and with users itself, count at most each * most, the square
    # of which is at most share**2, or half of it.
    noisy = curator.release(value, mechanism, label=TOTALS, round=0)  # public
    counted, more = 0.0, math.inf  # under so much noise nothing is counted
    n_units, n_units_std = math.nan, math.nan
    if each:
        of_unit = each * most
        n_units = int(noisy[0 if most == 1 else -1]) / of_unit
        n_units_std = mechanism.scale / of_unit
        docs, units = max(int(noisy[0]), 0), max(int(noisy[-1]), 0)
        error = mechanism.scale
        counted, more = (
            n / each if most == 1 else rules.n_norms(n / each, m / (each * most))
            for n, m in [(docs, units), (docs + error, units + error)]
        )
    unit = norm / radius / weight
    values = noisy[1 : 1 + len(weight)] * unit
    return WordTotals(
        values,
        mechanism.scale * unit,
        float(values.mean()),
        counted,
        more - counted,
        rules.doc_length(max(float(values.sum()), 0.0) / max(counted, 1.0)),
        n_units,
        n_units_std,
    )


def release_second_totals(
    documents: PrivateSide,
    weight: np.ndarray,
    mechanism: Noise,
    curator: Curator,
    rules: Rules,
) -> WordTotals:
    """Word totals where words have the weights of the first release."""
    rules.rescale(documents, weight)  # private
    norm = rules.bound(documents, NORM)  # public
    radius = mechanism.radius  # public
    with interruptible():
        total = documents.sum_words(
            None, weight=weight, norm=norm, radius=radius
        )  # private
    # One unit moves `total` by at most `radius` in L2: its word counts, added over its
    # documents, are clipped to `radius` in integers, and its scale depends on itself
    # and on released weights only.
    noisy = curator.release(total, mechanism, label=TOTALS, round=1)  # public
    unit = norm / radius / weight
    values = noisy * unit
    return WordTotals(values, mechanism.scale * unit, float(values.mean()))


def release_round(
    total: np.ndarray, step: Round, curator: Curator, n_jobs: int | None
) -> np.ndarray:
    """The sum of a round's contributions with noise, which takes its place; public."""
    return curator.release(
        total,
        step.mechanism,
        label=COUNTS,
        round=step.stream,
        sampling_probability=step.rate,
        overwrite_value=True,
        n_jobs=n_jobs,
    )


def release_totals_again(
    documents: PrivateSide,
    weight: np.ndarray,
    step: Round,
    curator: Curator,
    n_jobs: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Noisy word totals and their noise scale, (n_words,) each, in place of topics."""
    mechanism = step.mechanism  # public
    rates = np.full(documents.n_units, step.rate)  # private
    units = curator.sample(rates, round=step.t - 1)  # secret
    with interruptible():
        total = documents.sum_words(
            units, weight=weight, norm=step.norm, radius=mechanism.radius
        )  # private
    # One unit moves `total` by at most `radius` in L2: its word counts are clipped to
    # `radius` in integers, and its scale depends on itself and on released weights
    # only. That the round is one for totals depends on past releases only.
    noisy = release_round(total, step, curator, n_jobs)  # public
    unit = step.norm / mechanism.radius / step.rate / weight
    return noisy * unit, mechanism.scale * unit
