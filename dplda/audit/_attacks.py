"""Attacks: canaries to hide in the data, and the best guess from the releases who was there.

Each attack knows all of the program but the coins: which canaries are in, and the secret noise.
A bound from an attack is valid whatever its scores are; good scores make it large.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from dplda._gibbs import IntegerTable
from dplda.central._word_sweeps import SweepMechanisms
from dplda.privacy import Repeated, epsilon_of
from dplda.privacy._observation import Release
from dplda.privacy.mechanisms import FlooredLaplace, Purpose, Streams, uniform

Releases = list[Release]


class Attack(Protocol):
    """What an audit needs; made by ``Attack(estimator, n_words, n_canaries, streams)``.

    Attributes
    ----------
    estimator : estimator
        A copy of the audited one, set up for the canaries.
    relation : str
        What a coin decides.
    """

    estimator: Any
    relation: str

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """The documents with the canaries as the coins (n_canaries,) say."""

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        """How much the releases speak for each canary's coin being 1, (n_canaries,).

        Positive for 1 and negative for 0; the larger the surer, as a log-likelihood ratio is.
        """

    def claim(self, model: Any, delta: float) -> float:
        """Epsilon that is claimed for what a coin decides."""


def widened(X: sp.csr_array, n_more: int) -> sp.csr_array:
    """With `n_more` words that no document has."""
    return sp.csr_array((X.data, X.indices, X.indptr), (X.shape[0], X.shape[1] + n_more))


class DocumentAttack:
    """Documents of one word of their own; exact likelihood ratios of all noisy sums.

    All that a canary does depends on past releases only. So its contributions are found by a
    second run of the rounds, with the canaries alone and with the noise as it was released.
    """

    relation = "a document is there or not"

    def __init__(self, estimator: Any, n_words: int, n_canaries: int, streams: Streams) -> None:
        n_all = n_words + n_canaries
        self.estimator = clone(estimator)
        if "init_components" in estimator.get_params():
            # the first table is public, and the attack must know it; else it must know the seed
            table = _random_table((int(estimator.n_components), n_all), streams)
            if estimator.init_components is not None:
                table[:, :n_words] = estimator.init_components
            self.estimator.set_params(init_components=table)
        elif not streams.seeded:
            raise ValueError(
                f"{type(estimator).__name__} begins with a random table that the attack must know: "
                "give random_state"
            )
        n_tokens = math.ceil(2 * float(estimator.contribution_norm))
        if getattr(estimator, "max_doc_tokens", None) is not None:
            n_tokens = min(n_tokens, int(estimator.max_doc_tokens))
        rows = np.arange(n_canaries)
        cells = (np.full(n_canaries, n_tokens), (rows, n_words + rows))
        self._canaries = sp.csr_array(sp.coo_array(cells, shape=(n_canaries, n_all)))

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        X = widened(X, self._canaries.shape[0])
        return sp.csr_array(sp.vstack([X, self._canaries[np.flatnonzero(coins)]]))

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        n_canaries, n_all = self._canaries.shape
        replay = _Replay(releases, n_canaries)
        public = Streams.from_random_state(model.random_state)  # of the first table, if at all
        canaries = self._canaries.astype(np.float64)
        model._rounds(canaries, None, model._budget(), replay, public, int(model.max_iter))
        total = np.zeros(n_canaries)
        for release, value, rates in replay.steps:
            # the canaries' own words are the last ones, and words come last in every release
            value = value.reshape(-1)
            cells = value.size // n_all * n_canaries
            value = value[-cells:].reshape(n_canaries, -1).astype(float)
            noisy = release.value.reshape(-1)[-cells:].reshape(n_canaries, -1)
            variance = release.mechanism.scale**2
            ratio = ((noisy - value / 2) * value).sum(axis=1) / variance
            sampled = rates < 1  # who was in the sample nobody knows: a mixture of both cases
            rate = rates[sampled]
            ratio[sampled] = np.logaddexp(np.log1p(-rate), np.log(rate) + ratio[sampled])
            total += ratio
        return total

    def claim(self, model: Any, delta: float) -> float:
        return model.privacy_.epsilon_at(delta)


def _random_table(shape: tuple[int, int], streams: Streams) -> np.ndarray:
    words = streams.words(Purpose.AUDIT, 1, 0, math.prod(shape))
    return -np.log(uniform(words, positive=True)).reshape(shape)


class _Replay:
    """Stands in for a curator: keeps the values it is given, and returns what was released."""

    def __init__(self, releases: Releases, n_canaries: int) -> None:
        self._left = list(releases)
        self._n_canaries = n_canaries
        self._rates = np.ones(n_canaries)
        self.steps: list[tuple[Release, np.ndarray, np.ndarray]] = []

    def sample(self, rates: np.ndarray, sampling_probability: float, *, round: int) -> np.ndarray:
        """All canaries; their rates enter the likelihood ratio."""
        self._rates = rates
        return np.arange(len(rates))

    def release(
        self,
        value: np.ndarray,
        mechanism: Any,
        *,
        label: str,
        round: int,
        sampling_probability: float = 1.0,
    ) -> np.ndarray:
        """As `Curator.release`, but the noise is that of the fit."""
        release = self._left.pop(0)
        rates = self._rates if sampling_probability < 1 else np.ones(self._n_canaries)
        self.steps.append((release, value, rates))
        return release.value


class WordAttack:
    """One-word documents; exact likelihood ratios of their topics and of both words' noisy counts.

    The topic-based attack of HDP-LDA in its strongest form, for `dplda.HDPLDA`.
    """

    relation = "a word is one or another"

    def __init__(self, estimator: Any, n_words: int, n_canaries: int, streams: Streams) -> None:
        self.estimator = clone(estimator)
        self._n_words, self._n_canaries = n_words, n_canaries

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """The canaries come first, so that the first topics are theirs."""
        rows = np.arange(self._n_canaries)
        words = self._n_words + 2 * rows + (1 - coins)
        shape = (self._n_canaries, self._n_words + 2 * self._n_canaries)
        canaries = sp.csr_array(sp.coo_array((np.ones(len(rows), int), (rows, words)), shape=shape))
        return sp.csr_array(sp.vstack([canaries, widened(X, 2 * self._n_canaries)]))

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        mechanisms = model._mechanisms()
        total, before = np.zeros(self._n_canaries), None
        for counts, topics in zip(releases[::2], releases[1::2]):
            drawn = topics.value[: self._n_canaries]
            total += self._of_counts(counts.value, mechanisms, before)
            total += self._of_topics(model, counts.value, mechanisms, drawn)
            before = drawn
        return total

    def claim(self, model: Any, delta: float) -> float:
        return model.privacy_.epsilon_at(delta)

    def _pairs(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of each canary's word if its coin is 1, and if it is 0."""
        rows = table[self._n_words : self._n_words + 2 * self._n_canaries]
        return rows[::2], rows[1::2]

    def _of_topics(
        self, model: Any, noisy: np.ndarray, mechanisms: SweepMechanisms, drawn: np.ndarray
    ) -> np.ndarray:
        """Log-ratio of the probabilities of the topics that were drawn."""
        counts = mechanisms.unbiased(noisy)
        table = IntegerTable.from_counts(counts, mechanisms.count_clip, model.topic_word_prior)
        weight = table.weight[:, : len(table.topic_scale)] * table.topic_scale
        chosen = np.arange(self._n_canaries), drawn
        one, zero = (rows[chosen] / rows.sum(axis=1) for rows in self._pairs(weight))
        return np.log(one / zero)

    def _of_counts(
        self, noisy: np.ndarray, mechanisms: SweepMechanisms, topics: np.ndarray | None
    ) -> np.ndarray:
        """Log-ratio of the noise, given the topics that were counted; None if nobody saw them."""
        one, zero = (
            log_noise(rows - mechanisms.unit, mechanisms.mechanism)
            - log_noise(rows, mechanisms.mechanism)
            for rows in self._pairs(noisy)
        )
        if topics is None:  # all are equally likely
            return np.logaddexp.reduce(one, axis=1) - np.logaddexp.reduce(zero, axis=1)
        chosen = np.arange(len(topics)), topics
        return one[chosen] - zero[chosen]


def log_noise(x: np.ndarray, mechanism: Any) -> np.ndarray:
    """Logarithm of the probability of noise, up to a constant."""
    if isinstance(mechanism, FlooredLaplace):
        return -np.abs(x + 0.5) / mechanism.scale  # of the cell [x, x + 1), exactly
    return -0.5 * (x / mechanism.scale) ** 2


class ReportAttack:
    """Documents of as many words as are reported, one set of words or another; local privacy."""

    relation = "a document is one or another"

    def __init__(self, estimator: Any, n_words: int, n_canaries: int, streams: Streams) -> None:
        self.estimator = clone(estimator)
        self._n_words, self._n_canaries = n_words, n_canaries
        self._n_ones = int(estimator.max_doc_words)

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        first = self._n_words + self._n_ones * (1 - coins)
        words = first[:, None] + np.arange(self._n_ones)
        rows = np.repeat(np.arange(self._n_canaries), self._n_ones)
        shape = (self._n_canaries, self._n_words + 2 * self._n_ones)
        cells = np.ones(words.size, int), (rows, words.ravel())
        canaries = sp.csr_array(sp.coo_array(cells, shape=shape))
        return sp.csr_array(sp.vstack([canaries, widened(X, 2 * self._n_ones)]))

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        (release,) = releases
        reports = sp.csr_array(release.value)[: self._n_canaries, self._n_words :].toarray() > 0
        zero, one = model.one_probability_
        ratio = np.where(reports, math.log(one / zero), math.log((1 - one) / (1 - zero)))
        return ratio[:, : self._n_ones].sum(axis=1) - ratio[:, self._n_ones :].sum(axis=1)

    def claim(self, model: Any, delta: float) -> float:
        return model.privacy_.epsilon_at(delta)


class TokenAttack:
    """One-word documents, of one word or another; two tokens' worth of what iFTM claims."""

    relation = "a token's word is one or another"

    def __init__(self, estimator: Any, n_words: int, n_canaries: int, streams: Streams) -> None:
        self.estimator = clone(estimator)
        self._n_words, self._n_canaries = n_words, n_canaries

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        shape = (self._n_canaries, self._n_words + 2)
        cells = (np.arange(self._n_canaries), self._n_words + 1 - coins)
        canaries = sp.coo_array((np.ones(self._n_canaries, int), cells), shape=shape)
        return sp.csr_array(sp.vstack([sp.csr_array(canaries), widened(X, 2)]))

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        tokens = releases[0].value
        likelihood = tokens.likelihood
        found = tokens.vectors.read(0, self._n_canaries, 0)
        gain = np.full((self._n_canaries, 2), likelihood.base)
        token = np.repeat(np.arange(self._n_canaries), np.diff(found.ptr))
        ours = found.word >= self._n_words
        gain[token[ours], found.word[ours] - self._n_words] = likelihood.gain[found.level[ours]]
        return np.log(gain[:, 0] / gain[:, 1])

    def claim(self, model: Any, delta: float) -> float:
        events = [Repeated(event, 2) for event in model.privacy_.events]
        return epsilon_of(events, delta, total_variation=2 * model.privacy_.total_variation)
