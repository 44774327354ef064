"""The private side of a document-level fit: documents, their topic weights, their contributions.

Mechanism (sampled Gaussian). Each round releases the sum of the contributions of the documents in
the batch. A contribution reads one document, its topic weights and past releases only, and is
clipped to an L2 norm that is checked in integers. One document that is added, removed or emptied
therefore changes the sum by at most the clipping bound.

A document contributes the difference between its word-topic counts and what past releases predict.
The sum over documents carries the same information. The contribution of one document, and with it
the noise, is half as large. ``docs/centered_release.md`` describes the statistics, and
``docs/document_level.md`` has the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda._fold_in import over_rows, pad, single_precision, uniform_theta, update_theta
from dplda.central._document_budget import TOTALS
from dplda.central._noisy_table import SCALE_UP, combine_totals, smooth_totals, word_weights
from dplda.kernels import _variational
from dplda.privacy._curator import Curator

INNER_STEPS = 7


@dataclass
class Documents:
    """Private documents in training.

    Every attribute is private. A row of each is a function of that document and of past releases.

    Attributes
    ----------
    X : csr_array of shape (n_docs, n_words), float32
        Word counts.
    theta : ndarray of shape (n_docs, padded), float32
        Topic weights.
    scale : ndarray of shape (n_docs,)
        Factor of each document's contribution before the clip.
    n_components : int
        Number of topics, without the padding.
    n_jobs : int or None
        Number of threads. It never changes a result.
    """

    X: sp.csr_array
    theta: np.ndarray
    scale: np.ndarray
    n_components: int
    n_jobs: int | None = None

    @classmethod
    def from_counts(cls, X: sp.csr_array, n_components: int, n_jobs: int | None) -> Documents:
        """Documents with equal topic weights, at their own lengths."""
        X = single_precision(X)
        padded = pad(np.zeros((0, n_components))).shape[1]
        theta = uniform_theta(X.shape[0], n_components, padded)
        return cls(X, theta, np.ones(X.shape[0]), n_components, n_jobs)

    def rescale(self, weight: np.ndarray, norm: float, *, exact: bool) -> None:
        """Scale each document to norm `norm`, short ones at most `SCALE_UP` times longer.

        A long document is clipped to `norm` in any case, so that a larger scale would change
        nothing. Without noise (`exact`) documents are not scaled.
        """
        if exact:
            return
        lengths = np.sqrt(self.X.multiply(self.X) @ weight.astype(float) ** 2)
        self.scale = np.minimum(SCALE_UP, norm / np.maximum(lengths, norm / SCALE_UP))

    def infer(self, rows: np.ndarray, phi: np.ndarray, doc_topic_prior: float) -> None:
        """Improve the topic weights of `rows` under word probabilities `phi` (n_words, padded)."""
        update_theta(
            self.X, self.theta, phi, rows, n_components=self.n_components,
            doc_topic_prior=doc_topic_prior, max_steps=INNER_STEPS, n_jobs=self.n_jobs,
        )  # fmt: skip

    def clipping_bound(self, mechanism: Any, norm: float) -> tuple[float, int]:
        """The clipping bound of a release: an L2 norm and the integer radius that stands for it.

        With noise both are public constants. Without noise, where nothing is protected, the bound
        is one that no document reaches.
        """
        if not mechanism.exact:
            return norm, mechanism.radius
        squares = self.X.multiply(self.X).sum(axis=1)
        return 1.0 + float(np.sqrt(np.max(squares, initial=0.0))), 2**30

    def sum_words(self, weight: np.ndarray, norm: float, radius: int) -> np.ndarray:
        """Integer word totals (n_words,), each document's share of L2 norm at most `radius`."""
        single = np.zeros((max(self.X.shape), 8), np.float32)
        single[:, 0] = 1
        rows = np.arange(self.X.shape[0])
        center = np.zeros_like(single)
        return self._sum(rows, single, single, center, weight, self.scale, norm, radius)[:, 0]

    def sum_topics(
        self,
        rows: np.ndarray,
        factor: np.ndarray,
        center: np.ndarray,
        *,
        weight: np.ndarray,
        scale: np.ndarray,
        norm: float,
        radius: int,
    ) -> np.ndarray:
        """Integer sum over `rows` of centered word-topic counts, (n_words, n_components).

        Document d contributes s_d w_v x_dv (r_dvk - center_vk) with r_dvk ~ theta_dk factor_vk,
        clipped to norm `norm`, which stands for `radius` integer units.
        """
        total = self._sum(rows, self.theta, factor, center, weight, scale, norm, radius)
        return np.ascontiguousarray(total[:, : self.n_components])

    def _sum(self, rows, theta, factor, center, weight, scale, norm, radius):
        longest = max(1, int(np.diff(self.X.indptr).max(initial=0)))
        weight = weight.astype(np.float32)

        def kernel(piece):
            total = np.zeros((self.X.shape[1], factor.shape[1]), np.int64)
            scratch = np.empty(longest * factor.shape[1], np.float32)
            _variational.add_contributions(
                self.X.indptr, self.X.indices, self.X.data, piece, theta, factor, center,
                weight, scale, norm, radius, total, scratch, np.empty(len(scratch), np.int32),
            )  # fmt: skip
            return total

        # integer sums have no order: the result does not depend on the number of pieces
        return sum(over_rows(kernel, rows.astype(np.int64, copy=False), self.n_jobs))


def release_word_totals(
    documents: Documents, mechanisms: Sequence[Any], curator: Curator, norm: float
) -> tuple[np.ndarray, np.ndarray]:
    """Estimated word totals and word weights, (n_words,) each, from two releases.

    The first release sets the weights, the second uses them. `norm` is the clipping bound of both.
    """
    weight = np.ones(documents.X.shape[1])  # public
    estimates = []
    for step, mechanism in enumerate(mechanisms):
        documents.rescale(weight, norm, exact=mechanism.exact)  # private
        bound, radius = documents.clipping_bound(mechanism, norm)  # public
        total = documents.sum_words(weight, bound, radius)  # private
        # One document moves `total` by at most `radius` in L2: its word counts are clipped to
        # `radius` in integers, and its scale depends on itself and on released weights only.
        noisy = curator.release(total, mechanism, label=TOTALS, round=step)  # public
        unit = bound / radius / weight
        estimates.append((noisy * unit, mechanism.scale * unit))
        if step == 0 and not mechanism.exact:
            weight = word_weights(smooth_totals(*estimates[0]))  # public
    return smooth_totals(*combine_totals(*estimates)), weight
