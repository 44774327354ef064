"""Attacks on local privacy: a document, or a word of it, is one or another in its report."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._attacks import CanaryAttack, Releases
from dplda.local._memoized_reports import MemoizedReports
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy import Event, RandomizedResponseEvent
from dplda.privacy._curator import Release, announce
from dplda.privacy.mechanisms import Streams


class RowAttack(CanaryAttack):
    """Common part of attacks on local privacy: each row of the documents is randomized by itself.

    A row that is released again, for instance in another round, adds to the score of its canary.
    """

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Call `fit` with all documents, or `partial_fit` with each half of them."""
        self._n_rows = X.shape[0]
        if method == "fit":
            model.fit(X)
            if not hasattr(model, "components_"):  # a randomizer releases what it returns
                announce("reports", 0, model.transform(X))
        else:
            half = X.shape[0] // 2
            model.partial_fit(X[:half])
            model.partial_fit(X[half:])

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        # what was released of a canary, however often, adds up
        total, row = np.zeros(self._n_canaries), 0
        for release in releases:
            ratios = self._ratios(model, release, max(0, self._n_canaries - row))
            total[row : row + len(ratios)] += ratios
            row = (row + self._length(release)) % self._n_rows
        return total

    def _length(self, release: Release) -> int:
        """Number of rows in a release."""
        return int(release.value.shape[0])

    def _ratios(self, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
        """Log-likelihood ratios of the first `n` rows of a release, or of all if it has fewer."""
        raise NotImplementedError


UNCAPPED_WORDS = 50  # of a canary where no cap says how many words are reported
MAX_CANARY_WORDS = 1000  # of a canary whose cap is larger


class ReportAttack(RowAttack):
    """Attack on local privacy: a document is one set of words or another one.

    Both sets have as many words as a document reports, at most 1000. The scores are exact
    log-likelihood ratios of the reported bits.

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

    relation = "a document is one or another"

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        super().__init__(estimator, n_words, n_canaries, streams)
        if getattr(estimator, "randomized", False):
            raise ValueError(
                f"{type(estimator).__name__}(randomized=True) reads reports and releases nothing "
                "of a document; audit the RandomizedResponse of the clients, or randomized=False"
            )
        self._n_ones = min(int(estimator.max_doc_words or UNCAPPED_WORDS), MAX_CANARY_WORDS)

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        first = self._n_words + self._n_ones * (1 - coins)
        words = first[:, None] + np.arange(self._n_ones)
        return self._planted(X, words, np.ones_like(words), 2 * self._n_ones)

    def _ratios(self, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
        bits = sp.csr_array(release.value)[:n, self._n_words :].toarray() > 0
        present = log_ratio_of_bits(model, bits)
        return present[:, : self._n_ones].sum(axis=1) - present[:, self._n_ones :].sum(axis=1)


def log_ratio_of_bits(model: BaseEstimator, bits: np.ndarray) -> np.ndarray:
    """Log-likelihood ratio of each reported bit: the word is there, against it is not."""
    zero, one = model.one_probability_
    return np.where(bits, math.log(one / zero), math.log((1 - one) / (1 - zero)))


class ReportedWordAttack(ReportAttack):
    """Attack on the privacy of a word in local reports, against `word_epsilon_`.

    A canary has as many words as are reported. The coin adds one more word. The scores are exact
    log-likelihood ratios over all choices of the words that are kept. The report that shows the
    one more word and none of the others is the most likely under coin 1; it is rare for more than
    a few words.

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

    relation = "a document has one word more or less"

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        words = np.tile(self._n_words + np.arange(self._n_ones + 1), (self._n_canaries, 1))
        counts = np.ones_like(words)
        counts[:, -1] = coins
        return self._planted(X, words, counts, self._n_ones + 1)

    def _events(self, model: BaseEstimator) -> tuple[Event, ...]:
        """The randomized response of `word_epsilon_`, which any pure guarantee is made of."""
        odds = math.exp(min(float(model.word_epsilon_), 500.0))
        return (RandomizedResponseEvent(2.0 / (odds + 1.0)),)

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """State `word_epsilon_`, which is pure, and therefore a claim at every delta.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        delta : float
            Not used.

        Returns
        -------
        float
            The model's `word_epsilon_`.
        """
        return float(model.word_epsilon_)

    def _ratios(self, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
        bits = sp.csr_array(release.value)[:n, self._n_words :].toarray() > 0
        return self._ratios_of_bits(model, bits)

    def _ratios_of_bits(self, model: BaseEstimator, bits: np.ndarray) -> np.ndarray:
        """Log-likelihood ratios of reports of the canary's words, (n, n_ones + 1)."""
        present = log_ratio_of_bits(model, bits)
        added = present[:, -1]
        if self._n_ones != model.max_doc_words:  # the cap does not bind: nothing is pushed out
            return added
        # one of the words is left out, each with the same probability; the last: nothing changes
        swapped = added[:, None] - present[:, :-1]
        unchanged = np.zeros((len(bits), 1))
        return np.logaddexp.reduce(np.hstack([swapped, unchanged]), axis=1) - math.log(
            self._n_ones + 1
        )


N_REQUESTS = 5


class RequestAttack(ReportAttack):
    """Attack on memoized reports: each document is asked for five times, at the cost of once.

    Parameters
    ----------
    estimator : RandomizedResponse
        The randomizer of a `MemoizedReports`. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Not used.
    """

    relation = "a document that is asked for five times is one or another"
    methods = ("fit",)

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        if not isinstance(estimator, RandomizedResponse):
            raise ValueError(
                "memoized reports come from a RandomizedResponse, got "
                f"{type(estimator).__name__}; give the randomizer of the client"
            )
        super().__init__(estimator, n_words, n_canaries, streams)

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Fit the randomizer, and request all documents, in this order and in the other one."""
        self._n_rows = X.shape[0]
        client = MemoizedReports(model.fit(X))
        ids = np.arange(X.shape[0])
        for request in range(N_REQUESTS):
            order = ids if request % 2 == 0 else ids[::-1]
            reports = client.reports(order.tolist(), X[order])
            announce("reports", request, reports[order])
