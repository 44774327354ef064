"""Attack on word-level privacy: a word is one or another."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._attacks import CanaryAttack, Releases
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy.mechanisms import FlooredLaplace
from dplda.word._half_table import HalfTable
from dplda.word._word_sweeps import SweepMechanisms


class WordAttack(CanaryAttack):
    """Attack on word-level privacy: the word of a one-token document is one or another.

    The scores are exact log-likelihood ratios of the topics of the canaries and of the noisy counts
    of both words. This is the topic-based attack of HDP-LDA in its strongest form.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Not used.
    """

    relation = "a word is one or another"
    _averages = False

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        return self._planted_words(X, coins)  # first, so that their topics come first

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Train the model, and note what its topics are drawn from."""
        self._averages = method == "partial_fit"
        super()._train(model, X, method)

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        mechanisms = model._mechanisms()
        total, before, tables = np.zeros(self._n_canaries), None, []
        for release in releases:
            if release.mechanism is not None:
                tables.append(release.value)
                total += self._count_scores(release.value, mechanisms, before)
                continue
            before = release.value[: self._n_canaries]
            # `partial_fit` draws topics from the mean of all counts so far, and `fit` from the last
            table = np.mean(tables, axis=0) if self._averages else tables[-1]
            total += self._topic_scores(model, table, mechanisms, before)
        return total

    def _pairs(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of each canary's word if its coin is 1, and if it is 0."""
        rows = table[self._n_words : self._n_words + 2 * self._n_canaries]
        return rows[::2], rows[1::2]

    def _topic_scores(
        self,
        model: BaseEstimator,
        noisy: np.ndarray,
        mechanisms: SweepMechanisms,
        drawn: np.ndarray,
    ) -> np.ndarray:
        """Log-ratio of the probabilities of the drawn topics."""
        counts = mechanisms.unbiased(noisy)
        table = HalfTable.from_counts(counts, mechanisms.count_clip, model.topic_word_prior)
        chosen = np.arange(self._n_canaries), drawn
        one, zero = (rows[chosen] / rows.sum(axis=1) for rows in self._pairs(table.values))
        return np.log(one / zero)

    def _count_scores(
        self, noisy: np.ndarray, mechanisms: SweepMechanisms, topics: np.ndarray | None
    ) -> np.ndarray:
        """Log-ratio of the noise, given the counted topics; None if they are secret."""
        one, zero = (
            log_noise(rows - mechanisms.unit, mechanisms.mechanism)
            - log_noise(rows, mechanisms.mechanism)
            for rows in self._pairs(noisy)
        )
        if topics is None:  # all topics are equally likely
            return np.logaddexp.reduce(one, axis=1) - np.logaddexp.reduce(zero, axis=1)
        chosen = np.arange(len(topics)), topics
        return one[chosen] - zero[chosen]


def log_noise(x: np.ndarray, mechanism: Mechanism) -> np.ndarray:
    """Logarithm of the probability of noise, up to a constant."""
    if isinstance(mechanism, FlooredLaplace):
        return -np.abs(x + 0.5) / mechanism.scale  # exact for the cell [x, x + 1)
    return -0.5 * (x / mechanism.scale) ** 2
