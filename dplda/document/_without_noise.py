"""What a fit without noise, and without privacy, does otherwise than a private one.

The rounds are those of every fit: they ask the table, and this table has other answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dplda.core._variational import exp_dirichlet_expectation
from dplda.document._document_budget import document_schedule
from dplda.document._noisy_table import NoisyTable, padded_zeros
from dplda.document._table_estimate import topic_sizes


class ExactTable(NoisyTable):
    """The word-topic table of a fit without noise."""

    is_centered = False

    def schedule(self, t: int, max_iter: int) -> tuple[float, float]:
        """Tempering begins higher, and ends below 1: rare words keep several topics."""
        return document_schedule(*self._place(t, max_iter), exact=True)

    def is_for_totals(self, t: int) -> bool:
        """Word totals are known."""
        return False

    def share(self, t: int, max_iter: int, subsampling_ratio: float) -> float:
        """A round of all documents is the whole average: there is nothing to average out."""
        return 1.0 if subsampling_ratio == 1 else super().share(t, max_iter, subsampling_ratio)

    def others_counts(self, topic_word_prior: float) -> tuple[np.ndarray, float] | None:
        """Topic sizes and the smallest count of a cell, as in collapsed inference."""
        return topic_sizes(self.table, self.n_jobs), topic_word_prior

    def expectation(
        self, t: int, max_iter: int, out: np.ndarray | None
    ) -> tuple[np.ndarray, float]:
        """exp(E[log beta]) of the Dirichlet posterior, as in online variational Bayes."""
        return exp_dirichlet_expectation(self.table, np.float32, self.n_jobs), 1.0

    def infer(self, documents: Any, units: np.ndarray, factor: np.ndarray, prior: float) -> None:
        """Infer the topic weights of `units` until they no longer change."""
        documents.infer_anew(units, factor, prior)

    def center(self, out: np.ndarray | None = None) -> np.ndarray:
        """Zero: centering gains nothing, and later documents may have words without a total."""
        return padded_zeros(self.table.shape) if out is None else out
