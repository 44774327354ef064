"""Attacks on the papers' algorithms as printed: each goes through one hole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from dplda._private_fit import SMALLEST_DELTA
from dplda.audit._attacks import Releases, widened
from dplda.privacy import Guarantee
from dplda.privacy._streams import Streams
from dplda.published import recover_counts


class _OneWordAttack:
    """Documents of one word, of one or another that nobody else has."""

    relation = "a document has one word or another"
    n_tokens = 1
    n_units = 1  # of the claim's relation between the two

    def __init__(self, estimator: Any, n_words: int, n_canaries: int, streams: Streams) -> None:
        self.estimator = clone(estimator)
        self._n_words, self._n_canaries = n_words, n_canaries

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        rows = np.arange(self._n_canaries)
        words = self._n_words + 2 * rows + (1 - coins)
        shape = (self._n_canaries, self._n_words + 2 * self._n_canaries)
        cells = np.full(len(rows), self.n_tokens), (rows, words)
        canaries = sp.csr_array(sp.coo_array(cells, shape=shape))
        return sp.csr_array(sp.vstack([canaries, widened(X, 2 * self._n_canaries)]))

    def _difference(self, table: np.ndarray) -> np.ndarray:
        """Sum of the row of a canary's one word minus that of the other."""
        sums = table[self._n_words :].sum(axis=1).astype(float)
        return sums[::2] - sums[1::2]

    def claim(self, model: Any, delta: float) -> float:
        return self.n_units * float(model.published_epsilon_)


class MovesAttack(_OneWordAttack):
    """On HDP-LDA: the model minus the last noisy counts shows whose topics moved, without noise."""

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        last = next(r.value for r in reversed(releases) if r.label == "word-topic counts")
        before = np.maximum(last, 0) + float(model.topic_word_prior)
        return self._difference(np.abs(model.components_.T - before) > 0.5)


class BatchAttack(_OneWordAttack):
    """On private SVI: noise meant for the mean of all documents, on the mean of a minibatch."""

    def __init__(self, estimator: Any, n_words: int, n_canaries: int, streams: Streams) -> None:
        super().__init__(estimator, n_words, n_canaries, streams)
        self.n_tokens = int(estimator.max_doc_tokens)

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        return np.sum([self._difference(r.value) for r in releases], axis=0)

    def claim(self, model: Any, delta: float) -> float:
        if delta < model.delta:
            raise ValueError(
                f"the published epsilon is stated at delta {model.delta} and says nothing at "
                f"{delta}; give delta={delta} to the estimator too"
            )
        return float(model.published_epsilon_)


class RecoveryAttack(_OneWordAttack):
    """On iFTM: exact word counts from the model that is sent."""

    n_units = 2  # a word replaced is one blanked and one written

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        sent = model.local_model("party", 1, "0" * 64).table
        counts = recover_counts(sent, topic_word_prior=float(model.topic_word_prior))
        return self._difference(counts.T)


class CountsAttack:
    """On SUB-LDA: one word more or less, whose count is shown whether it was sampled or not."""

    relation = "a document has one word more or less"

    def __init__(self, estimator: Any, n_words: int, n_canaries: int, streams: Streams) -> None:
        self.estimator = clone(estimator)
        self._n_words, self._n_canaries = n_words, n_canaries

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        rows = np.flatnonzero(coins)
        cells = np.ones(len(rows), int), (rows, self._n_words + rows)
        shape = (self._n_canaries, self._n_words + self._n_canaries)
        canaries = sp.csr_array(sp.coo_array(cells, shape=shape))
        return sp.csr_array(sp.vstack([widened(X, self._n_canaries), canaries]))

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        rows = [r.value[self._n_words :].reshape(self._n_canaries, -1) for r in releases]
        return np.sum([row.sum(axis=1) - 0.5 for row in rows], axis=0)

    def claim(self, model: Any, delta: float) -> float:
        """The paper's divergence, as an epsilon at delta; of the sound form its epsilon."""
        if not hasattr(model, "published_epsilon_"):
            return self._sound_claim(model.privacy_, delta)
        if delta == 0:
            return math.inf
        return float(model.published_epsilon_) - math.log(delta) / (int(model.rdp_order) - 1)

    def _sound_claim(self, guarantee: Guarantee, delta: float) -> float:
        return guarantee.epsilon_at(delta)


class AnchorAttack(CountsAttack):
    """On SUB-LDA: one word more moves the topics of the other words of its document.

    A canary is a document of four tokens of a word of its own, which lies between two topics. The
    coin decides whether it has one more token, of a word of the first topic. The attack reads the
    counts of the four only, to which that token adds nothing. Without it they end in either topic,
    with it hardly ever in the second. `X` is not used: the corpus consists of the canaries and of
    documents of the two topics.
    """

    n_neutral, n_support, n_topic_words, doc_length, doc_support = 4, 100, 10, 100, 10

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
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
                _counts(
                    np.concatenate([rows, filler_rows]),
                    np.concatenate(
                        [neutral + support, anchors + topic * self.n_topic_words + filler]
                    ),
                    np.concatenate([np.ones(len(rows), int), np.full(len(filler), each)]),
                    (n_docs, neutral + m),
                )
            )
        rows = np.arange(m)
        own = _counts(rows, neutral + rows, np.full(m, self.n_neutral), (m, neutral + m))
        anchor = _counts(rows, np.full(m, anchors), coins.astype(int), (m, neutral + m))
        return sp.csr_array(sp.vstack([*blocks, own + anchor]))

    def _sound_claim(self, guarantee: Guarantee, delta: float) -> float:
        """Of one document replaced by another: by an empty one, and that by the other."""
        part = delta / 2
        while part >= SMALLEST_DELTA:
            epsilon = guarantee.epsilon_at(part)
            if part * (1 + math.exp(epsilon)) <= delta:
                return 2 * epsilon
            part = 0.9 * delta / (1 + math.exp(epsilon))
        return math.inf

    def scores(self, model: Any, releases: Releases) -> np.ndarray:
        late = np.mean([r.value for r in releases[-len(releases) // 3 :]], axis=0)
        anchors = late[self._n_words : self._n_words + self.n_topic_words].sum(axis=0)
        order = np.argsort(-anchors)[:2]
        rows = late[-self._n_canaries :, order]
        difference = rows[:, 0] - rows[:, 1]
        # the first topic says little, the second all but excludes the token
        return np.where(difference < 0, difference, 1e-3 * difference)


def _counts(
    rows: np.ndarray, words: np.ndarray, n: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    return sp.csr_array(sp.coo_array((n, (rows, words)), shape=shape))
