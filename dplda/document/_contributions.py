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
from dataclasses import dataclass, field
from typing import Any

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
from dplda.document._document_budget import COUNTS, TOTALS, Round
from dplda.document._table_estimate import SCALE_UP, WordTotals
from dplda.kernels import _variational
from dplda.kernels._columns import by_column
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


@dataclass
class Documents:
    """Private documents in training: what the rounds of a fit ask of them.

    Every attribute is private. A row of each is a function of that unit and of past
    releases. Only integer sums are released; rates stay with the curator.

    Parameters
    ----------
    X : csr_array of shape (n_docs, n_words), float32
        Word counts. The documents of a unit are consecutive rows.
    unit_ptr : ndarray of shape (n_units + 1,), int64
        First document of each unit, and the number of documents.
    n_components : int
        Number of topics, without the padding.
    n_jobs : int or None
        Number of threads. It never changes a result.
    theta : ndarray of shape (n_docs, padded), float32, or None, default=None
        Topic weights; equal ones if None.

    Attributes
    ----------
    scale : ndarray of shape (n_units,)
        Factor of each unit's contribution before the clip.
    n_units, n_words : int
        Number of units, private, and size of the vocabulary.
    """

    X: sp.csr_array
    unit_ptr: np.ndarray
    n_components: int
    n_jobs: int | None = None
    theta: Any = None
    _all_columns: sp.csc_array | None = field(default=None, repr=False)

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

    def __post_init__(self) -> None:
        (n_docs, self.n_words), self.n_units = self.X.shape, len(self.unit_ptr) - 1
        self.scale = np.ones(self.n_units)
        self._are_documents = bool((np.diff(self.unit_ptr) == 1).all())
        if self.theta is None:
            self.theta = uniform_theta(n_docs, self.n_components)

    def unit_counts(self, units: slice = slice(None)) -> sp.csr_array:
        """Word counts of consecutive units, float32: those of their documents.

        The counts of a unit's documents are added.
        """
        ptr = self.unit_ptr[
            slice(units.start, None if units.stop is None else units.stop + 1)
        ]
        rows = self.X if len(ptr) > self.n_units else self.X[ptr[0] : ptr[-1]]
        if self._are_documents:
            return rows
        ones, columns = np.ones(rows.shape[0]), np.arange(rows.shape[0])
        return single_precision(sp.csr_array((ones, columns, ptr - ptr[0])) @ rows)

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
        first, n_rows = self.unit_ptr[units], np.diff(self.unit_ptr)[units]
        before = np.cumsum(n_rows) - n_rows
        return np.arange(n_rows.sum()) + np.repeat(first - before, n_rows)

    def rescale(self, weight: np.ndarray, norm: float, *, exact: bool) -> None:
        """Scale each unit to norm `norm`, short ones at most `SCALE_UP` times longer.

        A long unit is clipped to `norm` in any case, so that a larger scale would
        change nothing. Without noise (`exact`) units are not scaled.
        """
        if exact:
            return
        lengths = np.maximum(self.lengths(weight), norm / SCALE_UP)
        self.scale = np.minimum(SCALE_UP, norm / lengths)

    def infer(
        self,
        units: np.ndarray,
        phi: np.ndarray,
        doc_topic_prior: float,
        *,
        anew: bool = False,
        own: tuple[np.ndarray, float] | None = None,
    ) -> None:
        """Improve the topic weights of `units` under table `phi` (n_words, padded).

        `phi` holds word probabilities.

        They begin with those of the last call. `anew`, they begin with equal ones, and
        become near to those of `infer_fully`. With `own`, topic sizes and the
        smallest count of a cell, a document reads what the others have added to the
        table.
        """
        rows = self.rows_of(units)
        if anew:
            self.theta[rows, : self.n_components] = 1.0 / self.n_components
        inference = Inference(
            phi,
            self.n_components,
            doc_topic_prior,
            STEPS_ANEW if anew else INNER_STEPS,
            variational=anew,
            in_integers=True,
            own=None if own is None else OwnCounts.of_sizes(*own),
        )
        update_theta(self.X, rows, self.theta, inference, self.n_jobs)

    def infer_fully(
        self, units: np.ndarray, factor: np.ndarray, doc_topic_prior: float
    ) -> None:
        """Infer topic weights of `units` anew: exp(E[log theta]), by an E-step."""
        rows = self.rows_of(units)
        everybody = len(rows) == self.X.shape[0]
        _, self.theta[rows] = e_step(
            self.X if everybody else self.X[rows],
            factor,
            n_components=self.n_components,
            doc_topic_prior=doc_topic_prior,
            n_jobs=self.n_jobs,
        )

    def share_of(self, words: np.ndarray) -> np.ndarray:
        """Share of the tokens of units (n_units,) in the mask `words` (n_words,)."""
        counts = self.unit_counts()
        return (counts @ words.astype(np.float64)) / np.maximum(counts.sum(axis=1), 1)

    def longest(self) -> float:
        """Length of the longest unit. Private: for fits without noise."""
        return float(self.lengths(np.ones(self.n_words)).max(initial=0))

    def matrices(self) -> Iterator[sp.csr_array]:
        """The word counts of all documents, in order. Private: for noiseless fits."""
        yield self.X

    def close(self) -> None:
        """Let go of what the training needs."""

    def clipping_bound(self, mechanism: Any, norm: float) -> tuple[float, int]:
        """The clipping bound of a release: an L2 norm and its integer radius.

        The radius stands for the norm.

        With noise both are public constants. Without noise, where nothing is protected,
        the bound is one that no unit reaches, a power of two.
        """
        if not mechanism.exact:
            return norm, mechanism.radius
        return 2.0 ** np.frexp(1 + self.longest())[1], 2**30

    def sum_words(
        self,
        units: np.ndarray | None = None,
        *,
        weight: np.ndarray,
        norm: float,
        radius: int,
        each: int = 0,
        most: int = 1,
    ) -> np.ndarray:
        """Integer word totals (n_words,), each unit's L2 norm at most `radius`.

        They are those of `units` (None: all). With `each`, a first cell has this number
        for each document with words, for at most `most` of a unit. If a unit may have
        several, a last cell has `each` times `most` for each unit with words.
        """
        X, threads = self.unit_counts(), n_threads(self.n_jobs)
        units = np.arange(X.shape[0]) if units is None else units
        longest = int(np.diff(X.indptr).max(initial=0))
        # integer sums have no order: the result does not depend on the threads
        parts = np.zeros((threads, X.shape[1]), np.int64)
        _variational.add_word_totals(
            X.indptr,
            X.indices,
            X.data,
            units,
            weight.astype(np.float32),
            self.scale,
            norm,
            radius,
            parts,
            np.empty((threads, longest), np.float32),
            np.empty((threads, longest), np.int32),
        )
        total: np.ndarray = parts.sum(axis=0)
        if each:
            before = np.append(0, np.cumsum(np.diff(self.X.indptr) > 0))[self.unit_ptr]
            n_docs = np.minimum(np.diff(before)[units], most)
            n_units = [] if most == 1 else [each * most * np.count_nonzero(n_docs)]
            total = np.concatenate([[each * n_docs.sum()], total, n_units]).astype(
                np.int64
            )
        return total

    def sum_topics(
        self,
        units: np.ndarray,
        *,
        factor: np.ndarray,
        center: np.ndarray,
        weight: np.ndarray,
        norm: float,
        radius: int,
        upweight: np.ndarray | None = None,
    ) -> np.ndarray:
        """Integer sum over `units` of centered counts, (n_words, n_components).

        The counts are word-topic counts.

        Unit u contributes the sum over its documents d of s_u w_v x_dv (r_dvk -
        center_vk) with r_dvk ~ theta_dk factor_vk, clipped to norm `norm`, which stands
        for `radius` integer units. s_u is the unit's scale, times `upweight` (n_units,)
        if that is given. Tables are those of `in_16_bits`, the center relative to 1.
        """
        docs = self.rows_of(units)
        theta, columns = self._columns(docs)
        total = np.zeros((columns.shape[1], self.n_components), np.int64)
        if not columns.nnz:
            return total
        n_docs, of_entries = np.diff(self.unit_ptr)[units], columns.indices
        several = n_docs > 1
        if len(docs) != len(units) or several.any():
            numbers = np.arange(len(units), dtype=np.int32)
            of_entries = np.repeat(numbers, n_docs)[of_entries]
        threads = n_threads(self.n_jobs)
        arrays = (
            columns.indptr,
            columns.indices,
            columns.data,
            of_entries,
            in_16_bits(theta, self.n_jobs),
            factor,
            center,
            weight.astype(np.float32),
            np.empty(columns.nnz, np.int32),
        )
        shift = integer_shift(norm, radius)
        most = radius >> shift  # a longer contribution is taken out again

        def add(scale, sign):
            """Add the integers of units to `total`, times `sign`; return squares."""
            squares = np.zeros((N_PIECES, len(units)), np.int64)
            _variational.add_words(*arrays, scale, shift, sign, total, squares, threads)
            return squares.sum(axis=0)

        # One sum of squares for each piece: their order does not depend on the threads,
        # and which words they hold does not depend on the documents.
        lengths = np.zeros((N_PIECES, len(units)))
        # then a column is done at once
        in_one_chunk = arrays[4].shape[1] in (32, 64, 128, 256)
        longest = int(np.diff(columns.indptr).max())
        shape = (threads, 2 * longest) if in_one_chunk else (1, 2 * columns.nnz)
        scratch = np.empty(shape, np.float32)
        _variational.measure_words(*arrays, scratch, lengths, threads)
        relative = self.scale[units] / norm
        if upweight is not None:
            relative = relative * upweight[units]
        scale = np.empty(len(units), np.float32)
        _variational.clip_scales(lengths, relative, most, NEARLY * most, scale)
        # their lengths are bounds: what is missing is known from their squares
        if several.any():
            squares = add(np.where(several, scale, np.float32(0)), 0)
            longer = NEARLY * most / np.sqrt(np.maximum(squares, 1)) * scale
            longer = np.minimum(longer, most * relative)
            scale = np.where(several, longer, scale).astype(np.float32)
        # A unit whose integers exceed the radius is taken out. It gets a second try:
        # its entries alone, of the same copies.
        for _ in range(2):
            squares = add(scale, 1)
            too_long = squares > most**2
            if not too_long.any():
                break
            indptr, *of_entries, theta, factor, center, weight, sums = arrays
            kept = too_long[of_entries[2]]
            arrays = (
                np.append(0, np.cumsum(kept))[indptr].astype(np.int32),
                *(array[kept] for array in of_entries),
                theta,
                factor,
                center,
                weight,
                sums[kept],
            )
            add(scale, -1)
            scale = (NEARLY * most / np.sqrt(np.maximum(squares, 1)) * scale).astype(
                np.float32
            )
        return total

    def _columns(self, docs):
        """Topic weights of `docs`, and a copy of their counts by column.

        It has one entry for each cell.

        All passes of a sum read this copy. A document whose entry stood twice would be
        longer than its sum of squares says.
        """
        X, shape = self.X, (len(docs), self.n_words)
        everybody = len(docs) == X.shape[0]
        if everybody and self._all_columns is not None:
            return self.theta, self._all_columns
        if everybody:
            columns = self._all_columns = X.tocsc()
        else:
            threads = n_threads(self.n_jobs)
            arrays = by_column(X.indptr, X.indices, X.data, docs, shape[1], threads)
            columns = sp.csc_array(arrays, shape=shape)
        # none, unless the caller's arrays changed during the call
        columns.sum_duplicates()
        return self.theta if everybody else self.theta[docs], columns


def integer_shift(norm: float, radius: int) -> int:
    """How many bits of the `radius` the integers of a contribution leave out; public.

    The radius keeps 15 bits: most integers then have 16. Without noise, where the norm
    is that of the longest document, a token keeps 10 bits, and the radius 20 at most.
    """
    bits, of_norm = radius.bit_length(), int(np.frexp(norm)[1])
    return max(0, min(bits - 15, max(bits - 20, bits - of_norm - 10)))


def release_word_totals(
    documents: Documents,
    mechanisms: Sequence[Any],
    curator: Curator,
    norm: float,
    most: int = 1,
) -> tuple[WordTotals, np.ndarray]:
    """Word totals and word weights (n_words,), from two releases.

    The first release sets the weights, the second uses them. `norm` is the clipping
    bound of both. The first one also counts the documents, `most` of a unit, and the
    units, if those are not the documents, with 1 / `COUNT_SHARE` of the bound.
    """
    weight = np.ones(documents.n_words)  # public
    n_docs = 0.0
    for step, mechanism in enumerate(mechanisms):
        documents.rescale(weight, norm, exact=mechanism.exact)  # private
        bound, radius = documents.clipping_bound(mechanism, norm)  # public
        share = 0 if step else radius // COUNT_SHARE  # public
        each = share if most == 1 else (0 if step else radius // (15 * most))  # public
        words = (
            radius if mechanism.exact else math.isqrt(radius**2 - share**2)
        )  # public
        total = documents.sum_words(
            weight=weight,
            norm=bound * words / radius,
            radius=words,
            each=each,
            most=most,
        )  # private
        # One unit moves `total` by at most `radius` in L2: its word counts, added over
        # its documents, are clipped to `words` in integers, and its scale depends on
        # itself and on released weights only. Its documents, and with users itself,
        # count at most each * most, the square of which is at most share**2, or half of
        # it.
        noisy = curator.release(total, mechanism, label=TOTALS, round=step)  # public
        # one standard error more: with too few documents, they would seem too long
        if each:
            counts = (np.maximum(noisy[[0, -1]], 0) + mechanism.scale) / [
                each,
                each * most,
            ]
            n_docs = float(counts[0])
            # a user's documents are scaled to one norm
            if most > 1 and not mechanism.exact:
                n_docs = math.sqrt(n_docs * counts[1])
            noisy = noisy[1 : 1 + len(weight)]
        unit = bound / radius / weight
        values, noise_scale = noisy * unit, mechanism.scale * unit
        if step == 0 or mechanism.exact:
            totals = WordTotals(values, noise_scale, float(values.mean()), n_docs)
        else:  # documents are scaled slightly differently in the two
            before, after = np.maximum([totals.noisy.sum(), values.sum()], 1e-12)
            ratio = float(np.clip(after / before, 1 / SCALE_UP, SCALE_UP))
            totals = WordTotals(
                ratio * totals.noisy,
                ratio * totals.noise_scale,
                ratio * totals.mean,
                n_docs,
            ).and_release(values, noise_scale)
        if step == 0 and not mechanism.exact:
            # The noise of a word grows with the fourth root of its frequency.
            # Contributions are multiplied by the weights before the clip, and releases
            # are divided by them.
            smooth = totals.smooth()
            shares = np.maximum(smooth / smooth.mean(), 1e-3)
            weight = np.minimum(4.0, shares**-0.25)  # public
    return totals, weight


def release_totals_again(
    documents: Documents,
    weight: np.ndarray,
    step: Round,
    curator: Curator,
    n_jobs: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Noisy word totals and their noise scale, (n_words,) each, in place of topics."""
    mechanism = step.mechanism  # public
    units = curator.sample(
        np.full(documents.n_units, step.rate), round=step.t - 1
    )  # secret
    total = documents.sum_words(
        units, weight=weight, norm=step.norm, radius=mechanism.radius
    )  # private
    # One unit moves `total` by at most `radius` in L2: its word counts are clipped to
    # `radius` in integers, and its scale depends on itself and on released weights
    # only. That the round is one for totals depends on past releases only.
    noisy = curator.release(
        total,
        mechanism,
        label=COUNTS,
        round=step.stream,
        sampling_probability=step.rate,
        overwrite_value=True,
        n_jobs=n_jobs,
    )  # public
    unit = step.norm / mechanism.radius / step.rate / weight
    return noisy * unit, mechanism.scale * unit
