"""Attacks on document-level and user-level privacy: a document, or a user, is there or not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._attacks import CanaryAttack, Releases, count_matrix, n_rounds_of, widened
from dplda.privacy._curator import Release
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy.mechanisms import Purpose, Streams, uniform

TOKENS_OVER_NORM = 16  # of a canary: with many tokens, its topics hardly depend on the prior
FAVOR = 1.3  # weight of the topic that a canary's word favors in the first table; others have 1


class DocumentAttack(CanaryAttack):
    """Attack on document-level privacy: a document with a word of its own is there or not.

    The scores are exact log-likelihood ratios of all noisy sums. The contributions of a canary
    depend on past releases only. A second run of the rounds computes them, with the canaries alone
    and with the released sums.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Random words of the first table.
    """

    relation = "a document is there or not"
    n_documents = 1  # of each canary

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        super().__init__(estimator, n_words, n_canaries, streams)
        n_all = n_words + n_canaries
        # The attack must know the public first table: it sets the table, or needs the seed.
        if "prior_components" in estimator.get_params():
            others = estimator.prior_components
            if others is None:
                others = _random_table((int(estimator.n_components), n_words), streams)
            own = _favoring_table(int(estimator.n_components), n_canaries) * np.mean(others)
            self.estimator.set_params(prior_components=np.hstack([others, own]))
        elif not streams.seeded:
            raise ValueError(
                f"{type(estimator).__name__} starts from a random table that the attack must know; "
                "pass random_state to the audit"
            )
        n_tokens = math.ceil(TOKENS_OVER_NORM * float(estimator.contribution_norm))
        if getattr(estimator, "max_doc_tokens", None) is not None:
            n_tokens = min(n_tokens, int(estimator.max_doc_tokens))
        rows = np.arange(n_canaries * self.n_documents)
        self._owners = rows % n_canaries  # the first documents of all canaries, then the second
        counts = np.full(len(rows), n_tokens)
        self._canaries = count_matrix(rows, n_words + self._owners, counts, (len(rows), n_all))

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Train the model, and note the number of rounds of each call."""
        n_rounds = n_rounds_of(model)
        self._calls = [n_rounds] if method == "fit" else [1] * n_rounds
        super()._train(model, X, method)

    def _users(self) -> tuple[np.ndarray, ...]:
        """The last argument of a run of the rounds on the canaries alone; none for documents."""
        return ()

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        X = widened(X, self._n_canaries)
        return sp.csr_array(sp.vstack([X, self._canaries[coins[self._owners] == 1]]))

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        n_canaries, n_all = self._n_canaries, self._canaries.shape[1]
        replay = _Replay(releases, n_canaries)
        public = Streams.from_random_state(model.random_state)  # for a random first table
        canaries, budget, table = self._canaries.astype(np.float64), model._budget(), None
        for n_rounds in self._calls:
            table = model._rounds(canaries, table, budget, replay, public, n_rounds, *self._users())
        total = np.zeros(n_canaries)
        for release, value, rates in replay.steps:
            # the canaries' words are the last ones in every release
            value = value.reshape(-1)
            cells = value.size // n_all * n_canaries
            value = value[-cells:].reshape(n_canaries, -1).astype(float)
            noisy = release.value.reshape(-1)[-cells:].reshape(n_canaries, -1)
            variance = release.mechanism.scale**2
            ratio = ((noisy - value / 2) * value).sum(axis=1) / variance
            sampled = rates < 1  # the sample is secret: a mixture of both cases
            rate = rates[sampled]
            ratio[sampled] = np.logaddexp(np.log1p(-rate), np.log(rate) + ratio[sampled])
            total += ratio
        return total


class UserAttack(DocumentAttack):
    """Attack on user-level privacy: a user with three documents is there or not.

    The estimator is trained with ``user_ids``. All documents of a canary have the same word, which
    occurs in no other document. If each document is clipped by itself, a canary moves the sums
    three times as far as it may. Every other document belongs to a user of its own.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Random words of the first table.
    """

    relation = "a user with three documents is there or not"
    n_documents = 3

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        present = self._owners[coins[self._owners] == 1]
        self._options = {"user_ids": np.append(np.arange(X.shape[0]), X.shape[0] + present)}
        return super().plant(X, coins)

    def _users(self) -> tuple[np.ndarray, ...]:
        return (self._owners,)


def _favoring_table(n_components: int, n_words: int) -> np.ndarray:
    """A public table in which each word favors one topic, so that its documents agree on it.

    Contributions are differences between a document's topics and those of its words in the table.
    With a stronger preference the table would predict the topics.
    """
    table = np.ones((n_components, n_words))
    words = np.arange(n_words)
    table[words % n_components, words] = FAVOR
    return table


def _random_table(shape: tuple[int, int], streams: Streams) -> np.ndarray:
    words = streams.words(Purpose.AUDIT, 1, 0, math.prod(shape))
    return -np.log(uniform(words, positive=True)).reshape(shape)


class _Replay:
    """Stand-in for a curator: it keeps the values, and returns what the fit released."""

    def __init__(self, releases: Releases, n_canaries: int) -> None:
        self._left = list(releases)
        self._n_canaries = n_canaries
        self._rates = np.ones(n_canaries)
        self.steps: list[tuple[Release, np.ndarray, np.ndarray]] = []

    def sample(self, rates: np.ndarray, *, round: int) -> np.ndarray:
        """Take all canaries; their rates enter the likelihood ratio."""
        self._rates = rates
        return np.arange(len(rates))

    def release(
        self,
        value: np.ndarray,
        mechanism: Mechanism,
        *,
        label: str,
        round: int,
        sampling_probability: float = 1.0,
        overwrite_value: bool = False,
        n_jobs: int | None = None,
    ) -> np.ndarray:
        """Return what the fit released, not `value` with new noise."""
        release = self._left.pop(0)
        rates = self._rates if sampling_probability < 1 else np.ones(self._n_canaries)
        self.steps.append((release, value, rates))
        return release.value
