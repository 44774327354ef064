"""The private side of a document-level fit: documents, topic weights, contributions.

A unit is what the guarantee protects: one document, or all documents of one user.

Mechanism: sampled Gaussian. Each round releases the sum of the contributions of a
secret Poisson sample of the units. A contribution reads the documents of one unit,
their topic weights and past releases only. It is clipped in L2, and its norm is checked
in integers. One unit that is added, removed or emptied therefore changes the sum by at
most the clipping bound.

A document contributes its word-topic counts minus the counts that past releases
predict. The sum carries the same information as the sum of counts, but contributions,
and thus the noise, are half as large. Contributions of a user's documents are added
before they are clipped. ``docs/proofs_document.md`` has the statistics and the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import row_blocks
from dplda.core._fold_in import (
    BATCH,
    Inference,
    e_step,
    in_16_bits,
    single_precision,
    uniform_theta,
    update_theta,
)
from dplda.core._private_fit import Noise
from dplda.document._document_budget import (
    NORM,
    WORD_TOPIC_COUNTS,
    WORD_TOTALS,
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

# The number of documents gets 1 / 10 of the clipping bound of the first word totals,
# and the words keep 99.5% of it.
COUNT_SHARE = 10
DOCS_OF_A_USER = 10  # most documents of a user that are counted
# Pieces of the words over which a squared length is summed. A public constant, because
# the order of a sum may not depend on the documents or on the number of threads.
N_PIECES = 16
# Contributions are scaled to this share of the radius. Rounding to integers lengthens
# them by less than the rest (NIPS, BBC, glosses with 20 and 100 topics). 1 - 2**-12: a
# unit in most rounds of glosses is longer, which takes two more passes over the texts.
NEARLY = 1 - 2**-11


class Documents:
    """Private documents in memory: a `PrivateSide`.

    Every attribute is private except for `n_words` and `n_components`. A row of an
    array is a function of one unit and of past releases.

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
        Topic weights, which the rounds change in place. None: equal weights.

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
        self._all_columns: sp.csc_array | None = None  # `X` by column, made when needed

    @classmethod
    def from_counts(
        cls,
        X: sp.csr_array,
        n_components: int,
        n_jobs: int | None,
        users: np.ndarray | None = None,
    ) -> Documents:
        """Documents with equal topic weights and without scaling.

        `users` (n_docs,) has the number of each document's user. None: each document is
        a unit.
        """
        unit_ptr = np.arange(X.shape[0] + 1)
        if users is not None:
            X = X[np.argsort(users, kind="stable")]
            unit_ptr = np.append(0, np.cumsum(np.bincount(users)))
        return cls(single_precision(X), unit_ptr.astype(np.int64), n_components, n_jobs)

    def unit_counts(self, units: slice = slice(None)) -> sp.csr_array:
        """Word counts of consecutive units, float32, added over a unit's documents."""
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
        """L2 norm of each unit's word counts times word weights, (n_units,)."""
        squared_weight = weight.astype(float) ** 2

        def measure(units: slice) -> np.ndarray:
            counts = self.unit_counts(units)
            return np.sqrt(counts.multiply(counts) @ squared_weight)

        return self._of_each(measure)

    def rows_of(self, units: np.ndarray) -> np.ndarray:
        """Rows of the documents of `units`, in order."""
        if self._are_documents:
            return units
        first = self.unit_ptr[units]
        n_rows = np.diff(self.unit_ptr)[units]
        before = np.cumsum(n_rows) - n_rows
        return np.arange(n_rows.sum()) + np.repeat(first - before, n_rows)

    def rescale(self, weight: np.ndarray, norm: float) -> None:
        lengths = self.lengths(weight)
        self.scale = norm / np.where(lengths > 0, lengths, norm)

    def share_of(self, words: np.ndarray) -> np.ndarray:
        is_among = words.astype(np.float64)

        def share(units: slice) -> np.ndarray:
            counts = self.unit_counts(units)
            return (counts @ is_among) / np.maximum(counts.sum(axis=1), 1)

        return self._of_each(share)

    def _of_each(self, function: Callable[[slice], np.ndarray]) -> np.ndarray:
        """A number of each unit (n_units,), from blocks of consecutive units."""
        blocks = row_blocks(self.X.indptr[self.unit_ptr])
        return np.concatenate([np.zeros(0), *in_threads(function, blocks, self.n_jobs)])

    def longest(self) -> float:
        return float(self.lengths(np.ones(self.n_words)).max(initial=0))

    def matrices(self) -> Iterator[sp.csr_array]:
        yield self.X

    def close(self) -> None:
        """Do nothing: Python frees the arrays."""

    def sum_words(
        self, units: np.ndarray | None, *, weight: np.ndarray, norm: float, radius: int
    ) -> np.ndarray:
        threads = n_threads(self.n_jobs)
        # the order of integer sums does not matter, nor does the number of threads
        parts = np.zeros((threads, self.n_words), np.int64)
        chosen = np.arange(self.n_units) if units is None else units
        blocks: Iterable[tuple[slice, np.ndarray]] = [(slice(None), chosen)]
        if not self._are_documents:  # the counts of users are copies
            blocks = self._in_blocks(chosen)
        for block, of_block in blocks:
            X = self.unit_counts(block)
            longest = int(np.diff(X.indptr).max(initial=0))
            _variational.add_word_totals(
                X.indptr,
                X.indices,
                X.data,
                of_block,
                weight.astype(np.float32),
                self.scale[block],
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
        """Infer the topic weights of `units`, in place."""
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
        fold_in = Inference(
            inference.table,
            self.n_components,
            inference.doc_topic_prior,
            inference.steps,
            variational=inference.anew,
            in_integers=True,
            own=inference.own,
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
        most = tables.radius >> shift  # longest contribution that may stay in the sum
        goal = NEARLY * most
        # from the length of a unit's counts in floats to its length in the sum
        factor = self.scale[units] / tables.norm
        if upweight is not None:
            factor = factor * upweight[units]

        theta = self.theta if len(rows) == self.X.shape[0] else self.theta[rows]
        theta = in_16_bits(theta, self.n_jobs)
        adding = Adding(theta, tables, total, shift, len(units), n_threads(self.n_jobs))
        entries = Entries.of_documents(columns, n_docs)
        scale = np.empty(len(units), np.float32)
        # of all pieces, which take more room than short documents
        lengths = adding.measure(entries)
        _variational.clip_scales(lengths, factor, most, goal, scale)
        del lengths
        has_several = n_docs > 1
        if has_several.any():
            # `lengths` only bounds units of several documents. The lengths of their
            # integers are exact.
            squares = adding.squares(entries, np.where(has_several, scale, 0))
            longer = np.minimum(scaled_to(goal, squares, scale), most * factor)
            scale = np.where(has_several, longer, scale).astype(np.float32)
        # A unit whose integers exceed the radius is taken out of the sum. It is added
        # once more at a smaller scale, from the same copies of its entries.
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
        total = np.zeros((self.n_words, self.n_components), np.int64)
        for block, of_block in self._in_blocks(units):
            both = self._halves(block, halves.first)
            both.infer(of_block, halves.inference)
            theta = both.theta[:, : self.n_components]
            theta /= theta.sum(axis=1, keepdims=True)  # the sums are near 1
            # nothing is inferred
            theta[np.diff(both.X.indptr) == 0] = halves.shares
            draw_near(theta, halves.shares, halves.bound)
            # the words of one half get the topic weights that the other half infers
            swapped = both.theta.reshape(-1, 2, both.theta.shape[1])[:, ::-1]
            both.theta = np.ascontiguousarray(swapped).reshape(both.theta.shape)
            weights = None if upweight is None else upweight[block]
            total += both.sum_topics(of_block, halves.tables, weights)
        return total

    def _halves(self, units: slice, first: np.ndarray) -> Documents:
        """Units whose documents become two each: words in the mask `first`, and others.

        Topic weights are equal.
        """
        ptr = self.unit_ptr[units.start : units.stop + 1]
        X = self.X[ptr[0] : ptr[-1]]
        rows = np.repeat(np.arange(0, 2 * X.shape[0], 2), np.diff(X.indptr))
        rows += ~first[X.indices]
        shape = (2 * X.shape[0], self.n_words)
        parts = single_precision(sp.csr_array((X.data, (rows, X.indices)), shape))
        both = Documents(parts, 2 * (ptr - ptr[0]), self.n_components, self.n_jobs)
        both.scale = self.scale[units]
        return both

    def _in_blocks(self, units: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Blocks of consecutive units, and the members of `units`, from the first on.

        Copies of a block are small. Sums of integers do not depend on the blocks.
        """
        # counts, and topic weights
        numbers = self.X.indptr[self.unit_ptr] + self.theta.shape[1] * self.unit_ptr
        for block in row_blocks(numbers, BATCH):
            begin, end = np.searchsorted(units, (block.start, block.stop))
            yield block, units[begin:end] - block.start

    def _columns(self, rows: np.ndarray) -> sp.csc_array:
        """A copy of the counts of `rows` by column, with one entry for each cell.

        All passes of a sum read this copy. With two entries for a cell, a document
        would be longer than the sum of its squared entries.
        """
        if len(rows) < self.X.shape[0]:
            threads = n_threads(self.n_jobs)
            X = self.X
            arrays = by_column(X.indptr, X.indices, X.data, rows, self.n_words, threads)
            columns = sp.csc_array(arrays, shape=(len(rows), self.n_words))
            # there are duplicates only if the caller's arrays change during the call
            columns.sum_duplicates()
            return columns
        if self._all_columns is None:
            self._all_columns = self.X.tocsc()
            self._all_columns.sum_duplicates()
        return self._all_columns


class Entries(NamedTuple):
    """Word counts by column: one entry for each document and word; private."""

    indptr: np.ndarray  # first entry of each word
    documents: np.ndarray  # document of each entry
    counts: np.ndarray  # word count of each entry
    units: np.ndarray  # unit of each entry
    sums: np.ndarray  # sum over topics of theta times factor; `Adding.measure` sets it

    @classmethod
    def of_documents(cls, columns: sp.csc_array, n_docs: np.ndarray) -> Entries:
        """All entries of `columns`; unit u has `n_docs[u]` consecutive documents."""
        documents = columns.indices
        units = documents
        if (n_docs != 1).any():
            numbers = np.arange(len(n_docs), dtype=np.int32)
            units = np.repeat(numbers, n_docs)[documents]
        sums = np.empty(columns.nnz, np.int32)
        return cls(columns.indptr, documents, columns.data, units, sums)

    def of_units(self, units: np.ndarray) -> Entries:
        """The entries of the units in the mask `units` (n_units,)."""
        kept = np.flatnonzero(units[self.units])  # few
        return Entries(
            np.searchsorted(kept, self.indptr).astype(np.int32),
            self.documents[kept],
            self.counts[kept],
            self.units[kept],
            self.sums[kept],
        )


class Adding:
    """The passes over entries that compute a sum of topics.

    `theta` holds the topic weights of the documents as `in_16_bits` returns them. The
    passes add integers to `total`. The integers lack the last `shift` bits of the
    radius.
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
        """Squared lengths of the units in floats, (n_pieces, n_units).

        There is one sum for each piece of the words. The pieces depend neither on the
        documents nor on the number of threads. Also sets the sums of the entries.
        """
        shape = (1, 2 * len(entries.counts))
        if self._in_one_chunk:  # the kernel then works column by column
            longest = int(np.diff(entries.indptr).max())
            shape = (self._threads, 2 * longest)
        scratch = np.empty(shape, np.float32)
        lengths = np.empty((N_PIECES, self._n_units))
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
        """Add the units' integers to the total; return their squared lengths."""
        return self._pass(entries, scale, 1)

    def take_out(self, entries: Entries, scale: np.ndarray) -> None:
        """Subtract the integers that `add` has added."""
        self._pass(entries, scale, -1)

    def squares(self, entries: Entries, scale: np.ndarray) -> np.ndarray:
        """The squared lengths of the integers that `add` would add."""
        return self._pass(entries, scale.astype(np.float32), 0)

    def _pass(self, entries: Entries, scale: np.ndarray, sign: int) -> np.ndarray:
        squares = np.zeros((min(self._threads, N_PIECES), self._n_units), np.int64)
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
        )
        # beyond, they would depend on the threads
        return np.minimum(squares.sum(axis=0), _variational.LARGEST_SQUARE)


def draw_near(theta: np.ndarray, shares: np.ndarray, bound: float) -> None:
    """Move each row toward the shares until its L2 distance is at most `bound`.

    `theta` (n_docs, n_components) changes in place; `shares` is (n_components,).
    """
    away = theta - shares
    length = np.sqrt(np.einsum("dk,dk->d", away, away))
    away *= np.minimum(1, bound / np.maximum(length, 1e-9))[:, None]
    np.add(shares, away, out=theta)


def scaled_to(length: float, squares: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Scales that give the units this length; `squares` are those at `scale`."""
    return length / np.sqrt(np.maximum(squares, 1)) * scale


def integer_shift(norm: float, radius: int) -> int:
    """Number of last bits of `radius` that the integers of a contribution lack; public.

    The radius keeps 15 bits, so that most integers have 16. Without noise, `norm` is
    the length of the longest document. A token then keeps 10 bits, and the radius at
    most 20.
    """
    bits = radius.bit_length()
    of_norm = int(np.frexp(norm)[1])
    return max(0, min(bits - 15, max(bits - 20, bits - of_norm - 10)))


def release_word_totals(
    documents: PrivateSide,
    mechanisms: Sequence[Noise],
    curator: Curator,
    rules: Rules,
    most_docs: int = 1,
) -> tuple[WordTotals, np.ndarray]:
    """Release word totals twice; return their mean and the word weights (n_words,).

    The first release gives the word weights, and counts at most `most_docs` documents
    of a unit. The second release uses the weights.
    """
    first_mechanism, second_mechanism = mechanisms
    first = release_first_totals(
        documents, first_mechanism, curator, rules, most_docs
    )  # public
    weight = rules.word_weights(first)  # public
    second, noise_scale = release_second_totals(
        documents, weight, second_mechanism, curator, rules
    )  # public
    # The second release scales documents by their weighted lengths. But for noise and
    # the clip, the ratio is between the inverses of the largest and smallest weight.
    before = max(float(first.noisy.sum()), 1e-12)
    after = max(float(second.sum()), 1e-12)
    ratio = float(np.clip(after / before, 1 / weight.max(), 1 / weight.min()))
    return first.times(ratio).and_release(second, noise_scale), weight


def release_first_totals(
    documents: PrivateSide,
    mechanism: Noise,
    curator: Curator,
    rules: Rules,
    most_docs: int,
) -> WordTotals:
    """Release word totals without word weights, and the number of documents.

    One clipping bound holds for the words, the number of documents and, if units may
    have several documents, the number of units with words.
    """
    weight = np.ones(documents.n_words)  # public
    rules.rescale(documents, weight)  # private
    norm = rules.bound(NORM)  # public
    radius = mechanism.radius  # public
    share = radius // COUNT_SHARE  # public
    words_radius = rules.rest(radius, share)  # public
    with interruptible():
        total = documents.sum_words(
            None, weight=weight, norm=norm * words_radius / radius, radius=words_radius
        )  # private
    exact_docs, exact_units = documents.count_documents(most_docs)  # private
    if most_docs == 1:
        per_doc = share  # public
        value = np.concatenate([[per_doc * exact_docs], total])  # private
    else:
        # two cells together take as much as the one above: each has 1 / sqrt(2) of it
        share_of_two = math.ceil(math.sqrt(2) * COUNT_SHARE)
        per_doc = radius // (share_of_two * most_docs)  # public
        value = np.concatenate(
            [[per_doc * exact_docs], total, [per_doc * most_docs * exact_units]]
        )  # private
    # One unit moves `value` by at most `radius` in L2: its word counts, added over its
    # documents, are clipped to `words_radius` in integers, and its scale depends on
    # itself only. Its documents move the first cell by at most per_doc * most_docs, and
    # with users it moves the last cell by as much. The square of this number is at most
    # share**2, or half of it with users.
    noisy = curator.release(value, mechanism, label=WORD_TOTALS, round=0)  # public
    numbers = numbers_of(noisy, per_doc, most_docs, mechanism.scale, rules)
    granularity = norm / radius / weight
    values = noisy[1 : 1 + len(weight)] * granularity
    length = max(float(values.sum()), 0.0) / max(numbers.n_docs, 1.0)
    return rules.word_totals(
        noisy=values,
        noise_scale=mechanism.scale * granularity,
        mean=float(values.mean()),
        doc_length=rules.doc_length(length),
        **numbers._asdict(),
    )


class Numbers(NamedTuple):
    """Noisy numbers of documents and units, as `WordTotals` has them; public."""

    n_docs: float = 0.0
    n_docs_error: float = math.inf
    n_units: float = math.nan
    n_units_std: float = math.nan


def numbers_of(
    noisy: np.ndarray, per_doc: int, most_docs: int, scale: float, rules: Rules
) -> Numbers:
    """Numbers from the first cell of the first release and, with users, the last one.

    Each document counts `per_doc` in its cell, and each user as much as `most_docs`
    documents. `scale` is the standard deviation of the noise.
    """
    if not per_doc:  # the noise hides the numbers
        return Numbers()
    per_unit = per_doc * most_docs
    noisy_units = noisy[0] if most_docs == 1 else noisy[-1]

    def number_of_norms(error: float) -> float:
        """Documents, or norms of users, if the noise were lower by `error`."""
        n_docs = (max(int(noisy[0]), 0) + error) / per_doc
        if most_docs == 1:
            return n_docs
        return rules.n_norms(n_docs, (max(int(noisy_units), 0) + error) / per_unit)

    n_docs = number_of_norms(0)
    return Numbers(
        n_docs=n_docs,
        n_docs_error=number_of_norms(scale) - n_docs,
        n_units=int(noisy_units) / per_unit,
        n_units_std=scale / per_unit,
    )


def release_second_totals(
    documents: PrivateSide,
    weight: np.ndarray,
    mechanism: Noise,
    curator: Curator,
    rules: Rules,
) -> tuple[np.ndarray, np.ndarray]:
    """Release word totals with the weights of the first release; with noise scale.

    Both have shape (n_words,) and are public.
    """
    rules.rescale(documents, weight)  # private
    norm = rules.bound(NORM)  # public
    radius = mechanism.radius  # public
    with interruptible():
        total = documents.sum_words(
            None, weight=weight, norm=norm, radius=radius
        )  # private
    # One unit moves `total` by at most `radius` in L2: its word counts, added over its
    # documents, are clipped to `radius` in integers, and its scale depends on itself
    # and on released weights only.
    noisy = curator.release(total, mechanism, label=WORD_TOTALS, round=1)  # public
    granularity = norm / radius / weight
    return noisy * granularity, mechanism.scale * granularity


def release_round(
    total: np.ndarray, this_round: Round, curator: Curator, n_jobs: int | None
) -> np.ndarray:
    """Add noise to the sum of a round's contributions, in place; public."""
    return curator.release(
        total,
        this_round.mechanism,
        label=WORD_TOPIC_COUNTS,
        round=this_round.stream,
        sampling_probability=this_round.rate,
        overwrite_value=True,
        n_jobs=n_jobs,
    )


def release_totals_again(
    documents: PrivateSide,
    weight: np.ndarray,
    this_round: Round,
    curator: Curator,
    n_jobs: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Release word totals in a round instead of topics; with their noise scale.

    Both have shape (n_words,) and are public.
    """
    mechanism = this_round.mechanism  # public
    rates = np.full(documents.n_units, this_round.rate)  # private
    units = curator.sample(rates, round=this_round.number - 1)  # secret
    with interruptible():
        total = documents.sum_words(
            units, weight=weight, norm=this_round.norm, radius=mechanism.radius
        )  # private
    # One unit moves `total` by at most `radius` in L2: its word counts are clipped to
    # `radius` in integers, and its scale depends on itself and on released weights
    # only. Past releases alone decide that the round releases totals.
    noisy = release_round(total, this_round, curator, n_jobs)  # public
    granularity = this_round.norm / mechanism.radius / this_round.rate / weight
    return noisy * granularity, mechanism.scale * granularity
