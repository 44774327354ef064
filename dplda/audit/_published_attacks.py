"""Attacks on the papers' algorithms as printed: each exploits one error."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._attacks import CanaryAttack, Releases, count_matrix, widened
from dplda.core._private_fit import SMALLEST_DELTA
from dplda.privacy import Event, Guarantee
from dplda.privacy.mechanisms import Streams
from dplda.published import recover_counts


class _PublishedAttack(CanaryAttack):
    """The published epsilon is the claim. It is no sum of events that could be scaled."""

    methods = ("fit",)

    def _events(self, model: BaseEstimator) -> tuple[Event, ...]:
        return ()


class _OneWordAttack(_PublishedAttack):
    """A canary is a document of one of two words, which occur in no other document."""

    relation = "a document has one word or another"
    n_tokens = 1

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        return self._planted_words(X, coins, self.n_tokens)

    def _difference(self, table: np.ndarray) -> np.ndarray:
        """Row sum of the word of coin 1 minus that of the word of coin 0, for each canary."""
        sums = table[self._n_words :].sum(axis=1).astype(float)
        return sums[::2] - sums[1::2]

    def claim(self, model: BaseEstimator, delta: float) -> float:
        return self.n_units * float(model.published_epsilon_)


class MovesAttack(_OneWordAttack):
    """On HDP-LDA: the model minus the last noisy counts shows the moved topics without noise."""

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        last = next(r.value for r in reversed(releases) if r.label == "word-topic counts")
        before = np.maximum(last, 0) + float(model.topic_word_prior)
        return self._difference(np.abs(model.components_.T - before) > 0.5)


class BatchAttack(_OneWordAttack):
    """On private SVI: the mean of a minibatch gets noise for the mean of all documents."""

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        super().__init__(estimator, n_words, n_canaries, streams)
        self.n_tokens = int(estimator.max_doc_tokens)

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        return np.sum([self._difference(r.value) for r in releases], axis=0)

    def claim(self, model: BaseEstimator, delta: float) -> float:
        if delta < model.delta:
            raise ValueError(
                f"the published epsilon is stated at delta {model.delta} and says nothing at "
                f"{delta}; give delta={delta} to the estimator too"
            )
        return float(model.published_epsilon_)


class RecoveryAttack(_OneWordAttack):
    """On iFTM: exact word counts follow from the message."""

    n_units = 2  # replacing a word blanks one and writes one

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        sent = model.local_model("party", 1, "0" * 64).table
        counts = recover_counts(sent, topic_word_prior=float(model.topic_word_prior))
        return self._difference(counts.T)


class CountsAttack(_PublishedAttack):
    """On SUB-LDA: every iteration releases the count of every word, sampled or not."""

    relation = "a document has one word more or less"

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        rows = np.flatnonzero(coins)
        shape = (self._n_canaries, self._n_words + self._n_canaries)
        canaries = count_matrix(rows, self._n_words + rows, np.ones(len(rows), int), shape)
        return sp.csr_array(sp.vstack([widened(X, self._n_canaries), canaries]))

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        rows = [r.value[self._n_words :].reshape(self._n_canaries, -1) for r in releases]
        return np.sum([row.sum(axis=1) - 0.5 for row in rows], axis=0)

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """Epsilon at delta of the paper's divergence or, for the sound form, of its guarantee."""
        if not hasattr(model, "published_epsilon_"):
            return self._sound_claim(model.privacy_, delta)
        if delta == 0:
            return math.inf
        return float(model.published_epsilon_) - math.log(delta) / (int(model.rdp_order) - 1)

    def _sound_claim(self, guarantee: Guarantee, delta: float) -> float:
        return guarantee.epsilon_at(delta)


class AnchorAttack(CountsAttack):
    """Attack on SUB-LDA: one more word changes the topics of the other words of its document.

    A canary is a document of four tokens of a word of its own, which lies between two topics. The
    coin decides whether the document has a fifth token, of a word of the first topic. The attack
    reads the counts of the four tokens only, which do not include the fifth. Without the fifth
    token the four end in either topic; with it they rarely end in the second one.

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

    n_neutral, n_support, n_topic_words, doc_length, doc_support = 4, 100, 10, 100, 10

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        # documents of the first topic, of the second topic, and the canaries; `X` is left out
        m, anchors = self._n_canaries, self._n_words
        neutral = anchors + 2 * self.n_topic_words
        support = np.repeat(np.arange(m), self.n_support)
        n_docs = -(-len(support) // self.doc_support)
        blocks = []
        for topic in range(2):
            rows = np.arange(len(support)) % n_docs
            filler = np.tile(np.arange(self.n_topic_words), n_docs)
            filler_rows = np.repeat(np.arange(n_docs), self.n_topic_words)
            each = (self.doc_length - self.doc_support) // self.n_topic_words
            blocks.append(
                count_matrix(
                    np.concatenate([rows, filler_rows]),
                    np.concatenate(
                        [neutral + support, anchors + topic * self.n_topic_words + filler]
                    ),
                    np.concatenate([np.ones(len(rows), int), np.full(len(filler), each)]),
                    (n_docs, neutral + m),
                )
            )
        rows = np.arange(m)
        own = count_matrix(rows, neutral + rows, np.full(m, self.n_neutral), (m, neutral + m))
        anchor = count_matrix(rows, np.full(m, anchors), coins.astype(int), (m, neutral + m))
        return sp.csr_array(sp.vstack([*blocks, own + anchor]))

    def _sound_claim(self, guarantee: Guarantee, delta: float) -> float:
        """Epsilon of a replaced document: it is replaced by an empty one, and that by the other."""
        part = delta / 2
        while part >= SMALLEST_DELTA:
            epsilon = guarantee.epsilon_at(part)
            if part * (1 + math.exp(epsilon)) <= delta:
                return 2 * epsilon
            part = 0.9 * delta / (1 + math.exp(epsilon))
        return math.inf

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        # the counts of the canaries in both topics, late in the fit
        late = np.mean([r.value for r in releases[-len(releases) // 3 :]], axis=0)
        anchors = late[self._n_words : self._n_words + self.n_topic_words].sum(axis=0)
        order = np.argsort(-anchors)[:2]
        rows = late[-self._n_canaries :, order]
        difference = rows[:, 0] - rows[:, 1]
        # the first topic is weak evidence; the second nearly excludes the fifth token
        return np.where(difference < 0, difference, 1e-3 * difference)
