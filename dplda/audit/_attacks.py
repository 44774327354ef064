"""What an attack is: canaries to hide in the data, and a guess of their coins from releases.

An attack knows the whole program except the coins, the secret noise and the secret samples. The
bound is valid for any scores. Better scores give a larger bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from dplda.privacy import Event, Repeated, epsilon_of
from dplda.privacy._curator import Release
from dplda.privacy.mechanisms import Streams

Releases = list[Release]


class Attack(Protocol):
    """Interface of an attack, as an audit uses it.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Random words of the audit, for canaries and tables of the attack.

    Attributes
    ----------
    estimator : estimator
        The copy of the audited estimator that is fitted, with parameters for the canaries.
    relation : str
        Event that a coin decides, such as "a document is there or not".
    """

    estimator: BaseEstimator
    relation: str

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None: ...

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """Hide the canaries among the documents.

        Parameters
        ----------
        X : csr_array of shape (n_docs, n_words)
            Word counts of the other documents.
        coins : ndarray of shape (n_canaries,), int64
            One coin for each canary, 0 or 1.

        Returns
        -------
        X : csr_array
            All documents of the fit.
        """

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Guess the coins from the releases.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Positive for coin 1 and negative for coin 0. The magnitude is the certainty of the
            guess. The best scores are log-likelihood ratios in favor of coin 1.
        """

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """State the epsilon that is claimed for one coin.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        delta : float
            The delta of (epsilon, delta)-differential privacy, in [0, 1).

        Returns
        -------
        float
            The claimed epsilon at `delta`.
        """


class CanaryAttack(Attack):
    """Common part of most attacks: a copy of the estimator, sizes, and the model's guarantee."""

    methods: tuple[str, ...] = ("fit", "partial_fit")  # ways to train that the scores understand
    n_units = 1  # steps of the guarantee's relation between the two worlds of a coin
    _options: Mapping[str, Any] = {}  # of each call of `fit` or `partial_fit`, next to `X`

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        self.estimator = clone(estimator)
        self._n_words, self._n_canaries = n_words, n_canaries

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Call `fit`, or `partial_fit` as often as it releases what `fit` releases."""
        for _ in range(1 if method == "fit" else n_rounds_of(model)):
            getattr(model, method)(X, **self._options)

    def _planted(
        self, X: sp.csr_array, words: np.ndarray, counts: np.ndarray, n_more: int
    ) -> sp.csr_array:
        """The canaries, a row of `words` and `counts` for each, followed by the others.

        Their words are in a vocabulary that has `n_more` words that no other document has.
        """
        rows = np.repeat(np.arange(self._n_canaries), words.shape[1])
        shape = (self._n_canaries, self._n_words + n_more)
        canaries = count_matrix(rows, words.ravel(), counts.ravel(), shape)
        canaries.eliminate_zeros()
        return sp.csr_array(sp.vstack([canaries, widened(X, n_more)]))

    def _planted_words(self, X: sp.csr_array, coins: np.ndarray, n_tokens: int = 1) -> sp.csr_array:
        """The canaries, each with one of two words of its own, followed by the others.

        The first of the two words stands for coin 1.
        """
        words = (self._n_words + 2 * np.arange(self._n_canaries) + (1 - coins))[:, None]
        return self._planted(X, words, np.full_like(words, n_tokens), 2 * self._n_canaries)

    def _events(self, model: BaseEstimator) -> tuple[Event, ...]:
        """What one coin costs, as the model declares it; nothing if the claim is no such sum."""
        return tuple(Repeated(event, self.n_units) for event in model.privacy_.events)

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """Epsilon of the model's own guarantee at `delta`."""
        distance = self.n_units * model.privacy_.total_variation
        return epsilon_of(self._events(model), delta, total_variation=distance)


def n_rounds_of(model: BaseEstimator) -> int:
    """The rounds of a `fit`: `max_iter`, or what None stands for; 1 without such a parameter."""
    resolve = getattr(model, "_max_iter", None)
    return int(getattr(model, "max_iter", 1)) if resolve is None else resolve()


def widened(X: sp.csr_array, n_more: int) -> sp.csr_array:
    """Append `n_more` words that occur in no document."""
    return sp.csr_array((X.data, X.indices, X.indptr), (X.shape[0], X.shape[1] + n_more))


def count_matrix(
    rows: np.ndarray, words: np.ndarray, counts: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    """Word counts from cells. Counts of repeated cells add up."""
    return sp.csr_array(sp.coo_array((counts, (rows, words)), shape=shape))
