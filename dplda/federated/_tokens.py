"""Privatized tokens: a noisy one-hot vector for each token. Training reads nothing else.

`privatize` is the only function that reads words. docs/proofs_local.md has the proofs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplda.federated._sentences import SentenceCorpus
from dplda.privacy import NonPrivate
from dplda.privacy._curator import MAX_WORDS
from dplda.privacy._events import Event
from dplda.privacy._local_mechanisms import (
    MAX_FLIP,
    MIN_FLIP,
    RandomizedBits,
    Survivors,
    ThresholdedLaplace,
)
from dplda.privacy._streams import Purpose, Streams

Pointers = NDArray[np.int64]

# Both numbers enter every seeded result.
BLOCK_TOKENS = 2**14  # tokens of a block: whole documents, swept with a stream of their own
PIECE_SURVIVORS = 2**16  # survivors of a piece with "laplace": whole units
BLOCK_BITS = 2**20  # bits that are randomized at a time: whole tokens


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Likelihood ratios of a noisy coordinate: the token's word against any other word.

    The ratio is e^g. All ratios are divided by the largest one, so that no epsilon overflows.

    Attributes
    ----------
    gain : ndarray of shape (n_levels,)
        Ratio of a coordinate that was reported with that level.
    base : float
        Ratio of a coordinate that was not reported.
    score : ndarray of shape (n_levels,)
        Contribution of a reported coordinate to the unbiased count of its word, (e^g - 1) / I.
    base_score : float
        Contribution of a coordinate that was not reported.
    variance : float
        1 / I: contribution of each token of another word to the variance of a count.
    """

    gain: NDArray[np.float64]
    base: float
    score: NDArray[np.float64]
    base_score: float
    variance: float

    @classmethod
    def from_levels(
        cls, null: NDArray[np.float64], ratio: NDArray[np.float64], epsilon: float
    ) -> Likelihood:
        """Make the likelihood from the law of the levels under another word, and from e^g.

        `null` holds the probability of each level, `ratio` its e^(g - epsilon). The last entry of
        both belongs to a coordinate that is not reported.
        """
        even = math.exp(-epsilon)  # e^(g - epsilon) of an uninformative observation
        information = float(null @ (ratio - even) ** 2)
        score = (ratio - even) * (even / information)
        return cls(
            gain=ratio[:-1].copy(),
            base=float(ratio[-1]),
            score=score[:-1].copy(),
            base_score=float(score[-1]),
            variance=even**2 / information,
        )


EXACT = Likelihood(np.ones(1), 0.0, np.ones(1), 0.0, 0.0)


@dataclass(frozen=True)
class TokenMechanism:
    """The noise on a token's one-hot vector: randomized response, thresholded Laplace, or none.

    Attributes
    ----------
    noise : RandomizedBits, ThresholdedLaplace or None
        The mechanism; None for no noise.
    """

    noise: RandomizedBits | ThresholdedLaplace | None

    @classmethod
    def from_name(cls, name: str, epsilon: float, threshold: float) -> TokenMechanism:
        """The mechanism "rr" or "laplace"; an infinite epsilon adds no noise."""
        if math.isinf(epsilon):
            return cls(None)
        if name == "laplace":
            return cls(ThresholdedLaplace(epsilon, threshold))
        flip = 1.0 / (1.0 + math.exp(min(epsilon, 700.0)))
        if not MIN_FLIP <= flip <= MAX_FLIP:
            low, high = (math.log(1.0 / p - 1.0) for p in (MAX_FLIP, MIN_FLIP))
            raise ValueError(
                f"token_epsilon must be from {low:.2g} to {high:.4g} with token_mechanism='rr', or "
                f"inf for no privacy, got {epsilon}"
            )
        return cls(RandomizedBits(flip))

    @property
    def events(self) -> tuple[Event, ...]:
        """Privacy cost of blanking one token, which changes one coordinate."""
        if self.noise is None:
            return (NonPrivate(),)
        if isinstance(self.noise, ThresholdedLaplace):
            return (self.noise.event,)
        return self.noise.events(1, 1)

    @property
    def epsilon(self) -> float:
        """Pure epsilon of a token."""
        if self.noise is None:
            return math.inf
        if isinstance(self.noise, ThresholdedLaplace):
            return 1.0 / self.noise.scale
        return self.noise.epsilon

    @property
    def survival(self) -> float:
        """Probability that a coordinate without a token is reported."""
        if self.noise is None:
            return 0.0
        if isinstance(self.noise, ThresholdedLaplace):
            return self.noise.survival
        return self.noise.probability

    @property
    def scale(self) -> float | None:
        """Scale of the Laplace noise on a coordinate; None for randomized response."""
        if self.noise is None:
            return 0.0
        return self.noise.scale if isinstance(self.noise, ThresholdedLaplace) else None

    def likelihood(self) -> Likelihood:
        """Likelihood ratios of the coordinates (section "What a noisy vector says")."""
        if self.noise is None:
            return EXACT
        epsilon = self.epsilon
        if isinstance(self.noise, RandomizedBits):
            q = self.noise.probability
            return Likelihood.from_levels(
                np.array([q, 1 - q]), np.exp([0.0, -2.0 * epsilon]), epsilon
            )
        # the ratio of the cell [m, m + 1) is that of its middle; beyond 1 all ratios are equal
        step, first = self.noise.STEP, self.noise.threshold_steps
        cell = first + np.arange(self.noise.MAX_LEVEL + 1)
        gain = np.exp(2 * epsilon * np.minimum((cell + 0.5) * step - 1, 0))
        null = 0.5 * np.exp(-epsilon * step * cell) * -np.expm1(-epsilon * step)
        null[-1] = 0.5 * math.exp(-epsilon * step * cell[-1])
        missed = 0.5 * math.exp(-epsilon * (1 - first * step))
        base = missed / (1 - self.survival) * math.exp(-epsilon)
        return Likelihood.from_levels(
            np.append(null, 1 - self.survival), np.append(gain, base), epsilon
        )

    def describe(self, n_words: int) -> str:
        """The mechanism in words, for `privacy_`."""
        if self.noise is None:
            return "the words themselves, without noise"
        if isinstance(self.noise, ThresholdedLaplace):
            return (
                f"Laplace noise of scale {self.noise.scale:.4g} on each of the {n_words} "
                "coordinates of each token's one-hot vector, once"
            )
        return (
            f"randomized response on each of the {n_words} bits of each token's one-hot vector "
            f"(a bit is reported wrongly with probability {self.noise.probability:.3g}), once"
        )


@dataclass(frozen=True, eq=False)
class Tokens:
    """Privatized tokens of some documents: public boundaries and noisy vectors, without words.

    Attributes
    ----------
    document_ptr : ndarray of shape (n_docs + 1,), int64
        Start of each document's units.
    unit_ptr : ndarray of shape (n_units + 1,), int64
        Start of each unit's tokens. A unit has one topic.
    n_words : int
        Size of the vocabulary.
    likelihood : Likelihood
        Likelihood ratios of the coordinates.
    survivors : Survivors
        The noisy vectors; without levels if there is one level only.
    pieces : tuple of tuple of (first unit, last unit)
        For each block of documents, the ranges of units that are swept together.
    """

    document_ptr: Pointers
    unit_ptr: Pointers
    n_words: int
    likelihood: Likelihood
    survivors: Survivors
    pieces: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def n_units(self) -> int:
        return len(self.unit_ptr) - 1

    @property
    def n_tokens(self) -> int:
        return int(self.unit_ptr[-1])

    def read(self, block: int, index: int) -> Survivors:
        """Survivors of one piece of one block."""
        first, last = (int(self.unit_ptr[unit]) for unit in self.pieces[block][index])
        return self.span(first, last)

    def span(self, first: int, last: int) -> Survivors:
        """Survivors of the tokens from `first` up to, but not including, `last`."""
        ptr = self.survivors.ptr[first : last + 1]
        span = slice(ptr[0], ptr[-1])
        level = self.survivors.level[span]
        if not len(level):
            level = np.zeros(ptr[-1] - ptr[0], np.uint16)
        return Survivors(ptr - ptr[0], self.survivors.word[span], level)

    def block_documents(self, block: int) -> Pointers:
        """`document_ptr` of the documents of a block."""
        first, last = self.pieces[block][0][0], self.pieces[block][-1][1]
        a = int(np.searchsorted(self.document_ptr, first, side="right")) - 1
        b = int(np.searchsorted(self.document_ptr, last, side="left"))
        return self.document_ptr[a : b + 1]

    def word_scores(self) -> NDArray[np.float64]:
        """Unbiased count of each word, (n_words,); each token adds `Likelihood.variance`."""
        likelihood = self.likelihood
        counts = np.full(self.n_words, self.n_tokens * likelihood.base_score)
        gain = likelihood.score - likelihood.base_score
        for block, pieces in enumerate(self.pieces):
            for index in range(len(pieces)):
                survivors = self.read(block, index)
                counts += np.bincount(survivors.word, gain[survivors.level], self.n_words)
        return counts

    def split(self) -> Tokens:
        """The same vectors, with every token a unit."""
        pieces = tuple(
            tuple((int(self.unit_ptr[a]), int(self.unit_ptr[b])) for a, b in block)
            for block in self.pieces
        )
        document_ptr, unit_ptr = self.unit_ptr[self.document_ptr], np.arange(self.n_tokens + 1)
        return replace(self, document_ptr=document_ptr, unit_ptr=unit_ptr, pieces=pieces)

    def tables(self) -> dict[str, NDArray[Any]]:
        """All of it as arrays, from which `from_tables` makes the same tokens."""
        likelihood, survivors = self.likelihood, self.survivors
        numbers = [self.n_words, likelihood.base, likelihood.base_score, likelihood.variance]
        rows = [(b, *piece) for b, pieces in enumerate(self.pieces) for piece in pieces]
        return {
            "document_ptr": self.document_ptr, "unit_ptr": self.unit_ptr,
            "gain": likelihood.gain, "score": likelihood.score, "numbers": np.array(numbers),
            "ptr": survivors.ptr, "word": survivors.word, "level": survivors.level,
            "pieces": np.array(rows, np.int64).reshape(-1, 3),
        }  # fmt: skip

    @classmethod
    def from_tables(cls, tables: Mapping[str, NDArray[Any]]) -> Tokens:
        """The tokens whose `tables` these are."""
        n_words, base, base_score, variance = tables["numbers"].tolist()
        rows = tables["pieces"].tolist()
        blocks = itertools.groupby(rows, key=lambda row: row[0])
        return cls(
            tables["document_ptr"], tables["unit_ptr"], int(n_words),
            Likelihood(tables["gain"], base, tables["score"], base_score, variance),
            Survivors(tables["ptr"], tables["word"], tables["level"]),
            tuple(tuple((first, last) for _, first, last in block) for _, block in blocks),
        )  # fmt: skip


def check_size(corpus: SentenceCorpus, mechanism: TokenMechanism) -> None:
    """Refuse a corpus that needs more random words than the charge of a fit allows."""
    survivors = max(1.0, corpus.n_words * mechanism.survival)
    if len(corpus.word) * survivors > MAX_WORDS / 2:
        raise ValueError(
            f"the tokens need more than {MAX_WORDS // 2} random words; raise token_epsilon or "
            "noise_threshold, or give fewer documents to a call"
        )


def privatize(
    corpus: SentenceCorpus, mechanism: TokenMechanism, streams: Streams, *, batch: int = 0
) -> Tokens:
    """Noisy vectors of all tokens of a private corpus, whose sentences become the units.

    Only the corpus's boundaries are kept; they are public. `batch` is the address of the noise in
    the streams: two calls with one seed need different addresses.
    """
    # One blanked token changes one coordinate of its own one-hot vector by 1, and no coordinate of
    # another token, because the order and the number of tokens do not depend on words. Every
    # coordinate of every token gets independent noise, so that this costs the mechanism's epsilon.
    n_words, n_tokens = corpus.n_words, len(corpus.word)
    noise, size = mechanism.noise, n_tokens
    if isinstance(noise, ThresholdedLaplace):
        size = int(PIECE_SURVIVORS / max(1.0, n_words * mechanism.survival))
    pieces = _pieces(corpus.document_ptr, corpus.sentence_ptr, size)
    if noise is None:
        survivors = Survivors(np.arange(n_tokens + 1), corpus.word.copy(), np.zeros(0, np.uint16))
    elif isinstance(noise, ThresholdedLaplace):
        tokens = [[corpus.sentence_ptr[unit] for unit in piece] for b in pieces for piece in b]
        survivors = _add_laplace(corpus.word, n_words, noise, tokens, streams, batch)
    else:
        survivors = _respond(corpus.word, n_words, noise, streams, batch)
    return Tokens(
        corpus.document_ptr.copy(), corpus.sentence_ptr.copy(), n_words, mechanism.likelihood(),
        survivors, pieces,
    )  # fmt: skip


def _add_laplace(
    word: NDArray[np.int32],
    n_words: int,
    noise: ThresholdedLaplace,
    pieces: Sequence[Sequence[int]],
    streams: Streams,
    batch: int,
) -> Survivors:
    """Thresholded Laplace noise on the one-hot vectors, in pieces of tokens."""
    level = noise.own_levels(len(word), streams.reader(Purpose.OWN_WORDS, batch))
    parts = []
    for number, (first, last) in enumerate(pieces):
        reader = streams.reader(Purpose.SURVIVORS, batch, number)
        own = slice(first, last)
        parts.append(noise.survivors(word[own], level[own], n_words, reader))
    return Survivors(
        np.cumsum(np.concatenate([[0], *(np.diff(p.ptr) for p in parts)])).astype(np.int64),
        np.concatenate([np.zeros(0, np.int32), *(p.word for p in parts)]),
        np.concatenate([np.zeros(0, np.uint16), *(p.level for p in parts)]),
    )


def _respond(
    word: NDArray[np.int32], n_words: int, bits: RandomizedBits, streams: Streams, batch: int
) -> Survivors:
    """Randomized response on the one-hot vectors, in blocks of whole tokens."""
    n = max(1, BLOCK_BITS // n_words)
    ones, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for block, first in enumerate(range(0, len(word), n)):
        own = word[first : first + n].astype(np.int64)
        start = np.arange(len(own) + 1, dtype=np.int64) * n_words
        flips = streams.reader(Purpose.BIT_FLIPS, batch, block)
        coins = streams.reader(Purpose.COINS, batch, block)
        positions = bits(start[:-1] + own, int(start[-1]), flips, coins)
        lengths.append(np.diff(np.searchsorted(positions, start)))
        ones.append((positions - np.repeat(start[:-1], lengths[-1])).astype(np.int32))
    return Survivors(
        np.cumsum(np.concatenate(lengths)), np.concatenate(ones), np.zeros(0, np.uint16)
    )


def _pieces(
    document_ptr: Pointers, unit_ptr: Pointers, n_tokens: int
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Blocks of whole documents, cut into pieces of whole units of about `n_tokens` tokens."""
    token_ptr = unit_ptr[document_ptr]
    starts = np.searchsorted(token_ptr, np.arange(0, token_ptr[-1], BLOCK_TOKENS))
    edges = np.unique(document_ptr[np.concatenate([starts, [len(token_ptr) - 1]])])
    blocks = []
    for first, last in itertools.pairwise(edges):
        tokens = np.arange(unit_ptr[first], unit_ptr[last], max(1, n_tokens))
        cuts = np.searchsorted(unit_ptr, tokens)
        cuts = np.unique(np.concatenate([cuts, [first, last]]))
        blocks.append(tuple((int(a), int(b)) for a, b in itertools.pairwise(cuts)))
    return tuple(blocks)
