"""SentenceLDA as the iFTM paper prints it, Algorithm 2, in NumPy: not private.

D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021, sections
3.1.2 and 3.1.4. With one word a sentence it is Algorithm 1. ``iftm.py`` runs it.

The pseudo-code is read as follows:

* Lines 15 to 20 run for each sentence of a document, whose loop the paper omits.
* Lines 7 and 10 give each *word* a topic, but a sentence has one. In line 7 it is
  uniform; in line 10 it is drawn for one word of the sentence, chosen at random.
* (27) and (28) come from (13), so their P-hat is that of the whole sentence, (15).
* Proposals use the counts at the beginning of a sweep, as lines 12 and 13 say. The hats
  are live counts of the document without the sentence.
* Line 22, a draw of Phi, comes before each sweep, which needs it. Lines 11 to 23 run in
  the first global iteration too.

An alias table draws from the same law as the cumulative sums here, only faster.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

PIECE = 500  # tokens whose noisy vectors are drawn at a time


class Sentences(NamedTuple):
    """Words in sentences, and sentences in documents. Private."""

    word: np.ndarray  # (n_tokens,)
    ptr: np.ndarray  # (n_sentences + 1,), where the words of each sentence begin
    document: np.ndarray  # (n_sentences,), from 0

    @classmethod
    def from_counts(cls, X, documents) -> Sentences:
        """Of a matrix of counts (n_sentences, n_words) and the document of each row."""
        X = sp.csr_array(X)
        word = np.repeat(X.indices, X.data.astype(int))
        lengths = np.asarray(X.sum(axis=1), int)
        ptr = np.concatenate([[0], np.cumsum(lengths)])
        return cls(word, ptr, np.unique(documents, return_inverse=True)[1])

    @property
    def of_word(self) -> np.ndarray:
        """The sentence of each word, (n_tokens,)."""
        return np.repeat(np.arange(len(self.document)), np.diff(self.ptr))


class Draws(NamedTuple):
    """Everything random of a sweep: proposals, and logarithms of uniform numbers."""

    by_document: np.ndarray  # (n_sentences,), line 15
    by_word: np.ndarray  # (n_tokens,), line 18
    document_coins: np.ndarray  # (n_sentences,), line 16
    word_coins: np.ndarray  # (n_tokens,), line 19


class PublishedSentenceLDA:
    """A party of iFTM that trains SentenceLDA. It is not private.

    Parameters
    ----------
    n_components : int
        Number of topics (K).
    epsilon : float
        Laplace noise of a word's one-hot vector has scale ``1 / epsilon``; ``inf`` is
        no noise. The exact counts that `components_` holds have none.
    tau : float, default=0.2
        Noisy counts up to this value become 0.
    max_iter : int, default=20
        Sweeps (local iterations) of `fit`, and of each `refine`.
    alpha, beta : float, default=0.1, 0.01
        Dirichlet parameters of documents and of topics.
    random_state : int, default=0
        Seed.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_words)
        Exact counts of words in topics (C^KW), plus `beta`.
    """

    def __init__(
        self,
        n_components,
        *,
        epsilon,
        tau=0.2,
        max_iter=20,
        alpha=0.1,
        beta=0.01,
        random_state=0,
    ):
        self.n_components = n_components
        self.epsilon, self.tau = epsilon, tau
        self.max_iter = max_iter
        self.alpha, self.beta = alpha, beta
        self.rng = np.random.default_rng(random_state)

    def fit(self, X, documents) -> PublishedSentenceLDA:
        """First global iteration.

        Parameters
        ----------
        X : sparse matrix of shape (n_sentences, n_words)
            Word counts of sentences.
        documents : array-like of shape (n_sentences,)
            The document of each sentence.
        """
        self._sentences = Sentences.from_counts(X, documents)
        self._n_words = X.shape[1]
        self._noisy = noisy_counts(  # lines 2 to 6
            self._sentences, self._n_words, self.epsilon, self.tau, self.rng
        )
        n_sentences = len(self._sentences.document)
        topics = self.rng.integers(0, self.n_components, n_sentences)  # line 7
        return self._train(topics, self.n_components)

    def refine(self, table) -> PublishedSentenceLDA:
        """A later global iteration, from the master's topics (n_topics, n_words)."""
        table = np.asarray(table, float)
        lengths = np.diff(self._sentences.ptr)
        chosen = self._sentences.ptr[:-1] + self.rng.integers(0, lengths)
        words = self._sentences.word[chosen]
        topics = draw(table.T[words], self.rng.random(len(words)))  # lines 9 and 10
        return self._train(topics, len(table))

    def _train(self, topics, n_topics) -> PublishedSentenceLDA:
        """Lines 11 to 24."""
        weights = word_weights(
            self._sentences, topics, n_topics, self._n_words, self.beta
        )
        for _ in range(self.max_iter):
            log_phi = draw_log_phi(weights, self.rng)  # line 22
            log_likelihood = self._noisy @ log_phi.T  # (15)
            start = document_counts(self._sentences, topics, n_topics) + self.alpha
            omega = weights / weights.sum(axis=1, keepdims=True)  # (25)
            drawn = propose(self._sentences, start, omega, self.rng)
            topics = sweep(
                self._sentences,
                topics,
                drawn,
                log_likelihood,
                np.log(start),
                np.log(omega),
                self.alpha,
            )
            weights = word_weights(
                self._sentences, topics, n_topics, self._n_words, self.beta
            )
        self.components_ = weights  # line 24
        return self


def noisy_counts(sentences, n_words, epsilon, tau, rng) -> sp.csr_array:
    """Noisy one-hot vectors above tau, (16), summed over a sentence's words.

    The result has the shape (n_sentences, n_words). Equation (15) multiplies the
    probabilities of a sentence's words, so their vectors add up.
    """
    of_word, n_sentences = sentences.of_word, len(sentences.document)
    shape = (n_sentences, n_words)
    if epsilon == math.inf:
        ones = np.ones(len(of_word))
        return sp.coo_array((ones, (of_word, sentences.word)), shape).tocsr()
    total = sp.csr_array(shape)
    for first in range(0, len(of_word), PIECE):
        words = sentences.word[first : first + PIECE]
        vectors = rng.laplace(0.0, 1 / epsilon, (len(words), n_words))
        vectors[np.arange(len(words)), words] += 1
        token, coordinate = np.nonzero(vectors > tau)
        place = (of_word[first + token], coordinate)
        values = vectors[token, coordinate]
        total = total + sp.coo_array((values, place), shape).tocsr()
    return total


def document_counts(sentences, topics, n_topics) -> np.ndarray:
    """C^DK, the sentences of each document in each topic (n_docs, n_topics)."""
    counts = np.zeros((sentences.document.max() + 1, n_topics))
    np.add.at(counts, (sentences.document, topics), 1)
    return counts


def word_weights(sentences, topics, n_topics, n_words, beta) -> np.ndarray:
    """C^KW + beta, the words in each topic (n_topics, n_words)."""
    counts = np.zeros((n_topics, n_words))
    np.add.at(counts, (topics[sentences.of_word], sentences.word), 1)
    return counts + beta


def draw_log_phi(weights, rng) -> np.ndarray:
    """Logarithms of one draw of Phi, (14), shape (n_topics, n_words).

    A gamma variable of shape a is one of shape a + 1 times U^(1/a). Small ones
    underflow, their logarithms do not.
    """
    log_gamma = np.log(rng.standard_gamma(weights + 1))
    log_gamma += np.log(rng.random(weights.shape)) / weights
    return log_gamma - logsumexp(log_gamma, axis=1, keepdims=True)


def draw(weights, uniform) -> np.ndarray:
    """A topic for each row of weights (n, n_topics), by one uniform number each."""
    cumulative = np.cumsum(weights, axis=1)
    below = cumulative <= uniform[:, None] * cumulative[:, -1:]
    return np.minimum(below.sum(axis=1), weights.shape[1] - 1)


def propose(sentences, start, omega, rng) -> Draws:
    """Proposals by (23) and (25), and coins, for a whole sweep."""
    n_sentences, n_tokens = len(sentences.document), len(sentences.word)
    return Draws(
        draw(start[sentences.document], rng.random(n_sentences)),
        draw(omega.T[sentences.word], rng.random(n_tokens)),
        np.log(rng.random(n_sentences)),
        np.log(rng.random(n_tokens)),
    )


def sweep(
    sentences, topics, draws, log_likelihood, log_start, log_omega, alpha
) -> np.ndarray:
    """Lines 14 to 21: accept or reject the proposals of each sentence.

    Parameters
    ----------
    sentences : Sentences
    topics : ndarray of shape (n_sentences,)
        Topics at the beginning of the sweep.
    draws : Draws
    log_likelihood : ndarray of shape (n_sentences, n_topics)
        Logarithms of P-hat, (15) with the noisy counts.
    log_start : ndarray of shape (n_docs, n_topics)
        Logarithms of C^DK + alpha at the beginning of the sweep, (23).
    log_omega : ndarray of shape (n_topics, n_words)
        Logarithms of (25) at the beginning of the sweep.
    alpha : float

    Returns
    -------
    topics : ndarray of shape (n_sentences,)
    """
    topics = topics.copy()
    live = document_counts(sentences, topics, log_likelihood.shape[1])
    for s, d in enumerate(sentences.document):
        live[d, topics[s]] -= 1
        log_target = np.log(live[d] + alpha) + log_likelihood[s]  # (13) with P-hat
        topic = accepted(  # (27)
            topics[s],
            draws.by_document[s],
            log_target,
            log_start[d],
            draws.document_coins[s],
        )
        for i in range(sentences.ptr[s], sentences.ptr[s + 1]):
            topic = accepted(  # (28)
                topic,
                draws.by_word[i],
                log_target,
                log_omega[:, sentences.word[i]],
                draws.word_coins[i],
            )
        topics[s] = topic
        live[d, topic] += 1
    return topics


def accepted(old, new, log_target, log_proposal, coin) -> int:
    """The next topic: `new` with probability min(1, ratio) of (24) and (26)."""
    log_ratio = log_target[new] - log_target[old] + log_proposal[old]
    return new if coin < log_ratio - log_proposal[new] else old
