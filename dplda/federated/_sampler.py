"""The private Metropolis-Hastings sampler: topics and words given noisy vectors, sweep by sweep.

Everything here is a function of `Tokens` and so post-processing; see docs/proofs_local.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import joblib
import numpy as np
from numpy.typing import NDArray

from dplda.federated._tokens import Tokens
from dplda.kernels import _metropolis
from dplda.leaf._threads import in_threads
from dplda.privacy._streams import Purpose, Streams, uniform

SMALLEST = 1e-30  # a probability that float32 can hold: its smallest normal number is 1.2e-38


@dataclass(frozen=True, eq=False)
class Topics:
    """Word probabilities of the topics in a sweep, and alias tables.

    `phi` is (n_components, n_words), rows sum to 1. `threshold` and `alias` (n_words, n_components)
    draw a topic for each word, with probability proportional to phi.
    """

    phi: NDArray[np.float32]
    threshold: NDArray[np.uint32]
    alias: NDArray[np.int32]

    @classmethod
    def from_weights(cls, table: NDArray[np.float64]) -> Topics:
        """Make the tables of non-negative weights (n_components, n_words)."""
        phi = np.maximum(table / table.sum(axis=1, keepdims=True), SMALLEST).astype(np.float32)
        weight = np.ascontiguousarray(phi.T)
        threshold, alias = np.empty(weight.shape, np.uint32), np.empty(weight.shape, np.int32)
        n = weight.shape[1]
        _metropolis.build_alias(weight, threshold, alias, np.empty(n), np.empty(n, np.int32))
        return cls(phi, threshold, alias)


def sweep_tokens(
    tokens: Tokens,
    topics: NDArray[np.int32],
    table: NDArray[np.float64],
    word_prior: NDArray[np.float64],
    *,
    doc_topic_prior: float,
    streams: Streams,
    t: int,
    n_jobs: int | None = None,
) -> NDArray[np.int64]:
    """Draw the topic of each token, in place, and its word, with `table` fixed.

    `topics` (n_tokens,) holds -1 for a token without a topic. `word_prior` (n_words,) weighs
    candidate words among those that a token reports. Each block of documents has a random stream of
    its own at `t`, so that `n_jobs` changes no result. Returns the number of times that each word
    was drawn with each topic, (n_components, n_words).
    """
    model = Topics.from_weights(table)
    prior = np.maximum(word_prior / word_prior.sum(), SMALLEST).astype(np.float32)
    base = (tokens.flip / (1 - tokens.flip)) ** 2  # likelihood ratio of a word not reported
    blocks, own_topic = tokens.blocks(), np.arange(tokens.n_tokens + 1)  # each token is a unit
    n_shares = max(1, min(len(blocks), joblib.effective_n_jobs(n_jobs)))

    def run(share: NDArray[np.int64]) -> NDArray[np.int32]:
        counts, n = np.zeros(table.shape, np.int32), len(table)
        for block in map(int, share):
            doc_ptr = tokens.doc_ptr[blocks[block][0] : blocks[block][1] + 1]
            first, last = int(doc_ptr[0]), int(doc_ptr[-1])
            ptr = tokens.ptr[first : last + 1]
            reader = streams.reader(Purpose.PROPOSALS, t, block)
            _metropolis.sweep(
                doc_ptr, own_topic, first, last, topics, ptr - ptr[0],
                tokens.word[ptr[0] : ptr[-1]], base, model.phi, model.threshold, model.alias, prior,
                doc_topic_prior, reader.words(2 * (last - first)), reader.words(4 * (last - first)),
                counts, np.empty(n, np.int32), np.empty(n), np.empty(n, np.int64),
            )  # fmt: skip
        return counts

    parts = in_threads(run, np.array_split(np.arange(len(blocks)), n_shares), n_jobs)
    # integer sums do not depend on the order
    return sum((part.astype(np.int64) for part in parts), np.zeros(table.shape, np.int64))


def train_topics(
    tokens: Tokens,
    table: NDArray[np.float64],
    sweeps: Iterable[int],
    *,
    n_averaged: int,
    doc_topic_prior: float,
    topic_word_prior: float,
    streams: Streams,
    n_jobs: int | None = None,
) -> NDArray[np.float64]:
    """Run sweeps from a table of topics. The draws of each sweep make the table of the next one.

    `sweeps` are the numbers of the sweeps, which address the random words. Returns the mean number
    of tokens of each word in each topic in the last `n_averaged` sweeps, plus the prior.
    """
    word_prior, topics = word_weights(tokens), np.full(tokens.n_tokens, -1, np.int32)
    last: list[NDArray[np.int64]] = []
    for t in sweeps:
        counts = sweep_tokens(
            tokens, topics, table, word_prior,
            doc_topic_prior=doc_topic_prior, streams=streams, t=t, n_jobs=n_jobs,
        )  # fmt: skip
        table = np.add(counts, topic_word_prior, dtype=np.float64)
        last = [*last, counts][-n_averaged:]
    return np.asarray(np.mean(last, axis=0) + topic_word_prior, dtype=np.float64)


def word_weights(tokens: Tokens) -> NDArray[np.float64]:
    """Estimated frequency of each word, (n_words,): unbiased estimates with a positive floor."""
    # words whose estimate is lost in the noise can still be proposed
    noise = tokens.n_tokens * tokens.score_variance
    return np.maximum(tokens.word_scores(), max(1.0, 0.5 * noise**0.5))


def random_table(tokens: Tokens, n_components: int, streams: Streams) -> NDArray[np.float64]:
    """Random topics around the word weights, (n_components, n_words)."""
    words = streams.words(Purpose.INITIAL_TABLE, 0, 0, n_components * tokens.n_words)
    return word_weights(tokens) * -np.log(uniform(words, positive=True)).reshape(n_components, -1)
