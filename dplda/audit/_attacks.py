"""Attacks: canaries to hide in the data, and a guess of their coins from the releases.

An attack knows the whole program except the coins, the secret noise and the secret samples. The
bound is valid for any scores. Better scores give a larger bound.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from dplda._gibbs import IntegerTable
from dplda.central._word_sweeps import SweepMechanisms
from dplda.privacy import Repeated, epsilon_of
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy._observation import Release
from dplda.privacy.mechanisms import FlooredLaplace, Purpose, Streams, uniform

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


class CanaryAttack:
    """Common part of most attacks: a copy of the estimator, sizes, and the model's guarantee."""

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        self.estimator = clone(estimator)
        self._n_words, self._n_canaries = n_words, n_canaries

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """Epsilon of the model's own guarantee at `delta`."""
        return model.privacy_.epsilon_at(delta)


def widened(X: sp.csr_array, n_more: int) -> sp.csr_array:
    """Append `n_more` words that occur in no document."""
    return sp.csr_array((X.data, X.indices, X.indptr), (X.shape[0], X.shape[1] + n_more))


def count_matrix(
    rows: np.ndarray, words: np.ndarray, counts: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    """Word counts from cells. Counts of repeated cells add up."""
    return sp.csr_array(sp.coo_array((counts, (rows, words)), shape=shape))


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

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        super().__init__(estimator, n_words, n_canaries, streams)
        n_all = n_words + n_canaries
        # The attack must know the public first table: it sets the table, or needs the seed.
        if "init_components" in estimator.get_params():
            table = _random_table((int(estimator.n_components), n_all), streams)
            if estimator.init_components is not None:
                table[:, :n_words] = estimator.init_components
            self.estimator.set_params(init_components=table)
        elif not streams.seeded:
            raise ValueError(
                f"{type(estimator).__name__} starts from a random table that the attack must know; "
                "pass random_state to the audit"
            )
        n_tokens = math.ceil(2 * float(estimator.contribution_norm))
        if getattr(estimator, "max_doc_tokens", None) is not None:
            n_tokens = min(n_tokens, int(estimator.max_doc_tokens))
        rows = np.arange(n_canaries)
        counts = np.full(n_canaries, n_tokens)
        self._canaries = count_matrix(rows, n_words + rows, counts, (n_canaries, n_all))

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
            The other documents, followed by the canaries whose coin is 1.
        """
        X = widened(X, self._canaries.shape[0])
        return sp.csr_array(sp.vstack([X, self._canaries[np.flatnonzero(coins)]]))

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Compute the log-likelihood ratios of all noisy sums.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Log-likelihood ratios in favor of coin 1.
        """
        n_canaries, n_all = self._canaries.shape
        replay = _Replay(releases, n_canaries)
        public = Streams.from_random_state(model.random_state)  # for a random first table
        canaries = self._canaries.astype(np.float64)
        model._rounds(canaries, None, model._budget(), replay, public, int(model.max_iter))
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
    ) -> np.ndarray:
        """Return what the fit released, not `value` with new noise."""
        release = self._left.pop(0)
        rates = self._rates if sampling_probability < 1 else np.ones(self._n_canaries)
        self.steps.append((release, value, rates))
        return release.value


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
            The canaries, so that their topics come first, followed by the other documents.
        """
        rows = np.arange(self._n_canaries)
        words = self._n_words + 2 * rows + (1 - coins)
        shape = (self._n_canaries, self._n_words + 2 * self._n_canaries)
        canaries = count_matrix(rows, words, np.ones(len(rows), int), shape)
        return sp.csr_array(sp.vstack([canaries, widened(X, 2 * self._n_canaries)]))

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Add up the log-likelihood ratios of noise and topics over the sweeps.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Log-likelihood ratios in favor of coin 1.
        """
        mechanisms = model._mechanisms()
        total, before = np.zeros(self._n_canaries), None
        for counts, topics in zip_longest(releases[::2], releases[1::2]):
            total += self._count_scores(counts.value, mechanisms, before)
            if topics is not None:  # no topics follow the last counts
                before = topics.value[: self._n_canaries]
                total += self._topic_scores(model, counts.value, mechanisms, before)
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
        table = IntegerTable.from_counts(counts, mechanisms.count_clip, model.topic_word_prior)
        weight = table.weight[:, : len(table.topic_scale)] * table.topic_scale
        chosen = np.arange(self._n_canaries), drawn
        one, zero = (rows[chosen] / rows.sum(axis=1) for rows in self._pairs(weight))
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


UNCAPPED_WORDS = 50  # of a canary where no cap says how many words are reported


class ReportAttack(CanaryAttack):
    """Attack on local privacy: a document is one set of words or another one.

    Both sets have as many words as a document reports. The scores are exact log-likelihood ratios
    of the reported bits.

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
        self._n_ones = int(estimator.max_doc_words or UNCAPPED_WORDS)

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
            The canaries, followed by the other documents.
        """
        first = self._n_words + self._n_ones * (1 - coins)
        words = first[:, None] + np.arange(self._n_ones)
        rows = np.repeat(np.arange(self._n_canaries), self._n_ones)
        shape = (self._n_canaries, self._n_words + 2 * self._n_ones)
        canaries = count_matrix(rows, words.ravel(), np.ones(words.size, int), shape)
        return sp.csr_array(sp.vstack([canaries, widened(X, 2 * self._n_ones)]))

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Add up the log-likelihood ratios of the reported bits.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Log-likelihood ratios in favor of coin 1.
        """
        (release,) = releases
        reports = sp.csr_array(release.value)[: self._n_canaries, self._n_words :].toarray() > 0
        zero, one = model.one_probability_
        ratio = np.where(reports, math.log(one / zero), math.log((1 - one) / (1 - zero)))
        return ratio[:, : self._n_ones].sum(axis=1) - ratio[:, self._n_ones :].sum(axis=1)


class TokenAttack(CanaryAttack):
    """Attack on token-level privacy: the word of a one-token document is one or another.

    The scores are exact log-likelihood ratios of the noisy vectors. The estimator claims the cost
    of blanking a token. Replacing it by another word costs twice as much.

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

    relation = "a token's word is one or another"

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
            The canaries, followed by the other documents.
        """
        rows, words = np.arange(self._n_canaries), self._n_words + 1 - coins
        shape = (self._n_canaries, self._n_words + 2)
        canaries = count_matrix(rows, words, np.ones(self._n_canaries, int), shape)
        return sp.csr_array(sp.vstack([canaries, widened(X, 2)]))

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Compute the log-likelihood ratios of the noisy vectors.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Log-likelihood ratios in favor of coin 1.
        """
        tokens = releases[0].value
        likelihood = tokens.likelihood
        survivors = tokens.vectors.read(0, self._n_canaries, 0)
        token = np.repeat(np.arange(self._n_canaries), np.diff(survivors.ptr))
        planted = survivors.word >= self._n_words
        cells = token[planted], survivors.word[planted] - self._n_words
        gain = np.full((self._n_canaries, 2), likelihood.base)
        gain[cells] = likelihood.gain[survivors.level[planted]]
        return np.log(gain[:, 0] / gain[:, 1])

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """State the epsilon of a replaced token: one word is blanked, and one is written.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        delta : float
            The delta of (epsilon, delta)-differential privacy, in [0, 1).

        Returns
        -------
        float
            Epsilon of the model's events, each of them twice, at `delta`.
        """
        events = [Repeated(event, 2) for event in model.privacy_.events]
        return epsilon_of(events, delta, total_variation=2 * model.privacy_.total_variation)
