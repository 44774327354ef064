"""Privatized tokens: a noisy one-hot vector for each token. Training reads nothing else.

`privatize` is the only function that reads words. docs/proofs_local.md has the proofs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
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
    """Ratios e^g of a noisy coordinate, the token's word against another, over the largest one.

    `gain` (n_levels,) is that of a coordinate reported with a level, `base` that of one that was
    not reported. `score` and `base_score`, (e^g - 1) / I, add up to the unbiased count of a word,
    to whose variance each token of another word contributes `variance`, 1 / I.
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
        """Of the probabilities of the levels under another word, and of e^(g - epsilon).

        The last entries belong to a coordinate that is not reported.
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
    """The noise on a token's one-hot vector: randomized response, thresholded Laplace, or none."""

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
    def survival(self) -> float:
        """Probability that a coordinate without a token is reported."""
        if isinstance(self.noise, ThresholdedLaplace):
            return self.noise.survival
        return 0.0 if self.noise is None else self.noise.probability

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
        if isinstance(self.noise, RandomizedBits):
            q, epsilon = self.noise.probability, self.noise.epsilon
            return Likelihood.from_levels(
                np.array([q, 1 - q]), np.exp([0.0, -2.0 * epsilon]), epsilon
            )
        epsilon = 1.0 / self.noise.scale
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

    Documents begin at `document_ptr` (n_docs + 1,) in the units, and units, which have one topic
    each, at `unit_ptr` (n_units + 1,) in the tokens. `pieces` holds the ranges of units that are
    swept together, for each block of documents. `survivors` has no levels if there is only one.
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


def assemble(
    document_ptr: Pointers,
    unit_ptr: Pointers,
    n_words: int,
    mechanism: TokenMechanism,
    survivors: Survivors,
) -> Tokens:
    """The tokens of noisy vectors that `mechanism` made: all else is a function of boundaries."""
    pieces = _pieces(document_ptr, unit_ptr, _piece_size(n_words, mechanism))
    likelihood = mechanism.likelihood()
    return Tokens(document_ptr, unit_ptr, n_words, likelihood, survivors, pieces)


def check_size(corpus: SentenceCorpus, mechanism: TokenMechanism) -> None:
    """Refuse a corpus that needs more random words than the charge of a fit allows."""
    survivors = max(1.0, corpus.n_words * mechanism.survival)
    if len(corpus.word) * survivors > MAX_WORDS / 2:
        raise ValueError(
            f"the tokens need more than {MAX_WORDS // 2} random words; raise token_epsilon or "
            "noise_threshold, or give fewer documents to a call"
        )


def join(first: Tokens, then: Tokens, mechanism: TokenMechanism) -> Tokens:
    """The documents of both, whose noisy vectors the same mechanism made."""
    old, new = first.survivors, then.survivors
    return assemble(
        np.append(first.document_ptr, then.document_ptr[1:] + first.n_units),
        np.append(first.unit_ptr, then.unit_ptr[1:] + first.n_tokens),
        first.n_words,
        mechanism,
        Survivors(
            np.append(old.ptr, new.ptr[1:] + old.ptr[-1]),
            np.append(old.word, new.word),
            np.append(old.level, new.level),
        ),
    )


def privatize(
    corpus: SentenceCorpus, mechanism: TokenMechanism, streams: Streams, call: int = 0
) -> Tokens:
    """Noisy vectors of all tokens of a private corpus, whose sentences become the units.

    Only the corpus's boundaries are kept; they are public. The number of the call gives the tokens
    of later documents noise of their own.
    """
    # One blanked token changes one coordinate of its own one-hot vector by 1, and no coordinate of
    # another token, because the order and the number of tokens do not depend on words. Every
    # coordinate of every token gets independent noise, so that this costs the mechanism's epsilon.
    word, n_words, noise = corpus.word, corpus.n_words, mechanism.noise
    document_ptr, unit_ptr = corpus.document_ptr.copy(), corpus.sentence_ptr.copy()
    if noise is None:
        survivors = Survivors(np.arange(len(word) + 1), word.copy(), np.zeros(0, np.uint16))
    elif isinstance(noise, ThresholdedLaplace):
        pieces = _pieces(document_ptr, unit_ptr, _piece_size(n_words, mechanism))
        tokens = [unit_ptr[list(piece)] for block in pieces for piece in block]
        survivors = _add_laplace(word, n_words, noise, tokens, streams, call)
    else:
        survivors = _respond(word, n_words, noise, streams, call)
    return assemble(document_ptr, unit_ptr, n_words, mechanism, survivors)


def common_documents(tokens: Tokens, words: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much oftener words of a topic share documents than by chance, in standard errors, (K,).

    `words` (K, m) are the top words of each topic. With s_tw, the unbiased count of word w in token
    t less its mean over all tokens, let T_d be the sum of s_tv s_uw over pairs of different words
    of a topic in different tokens of document d. Its expectation is zero for tokens that are
    independent draws, however long the documents are. The result is sum(T_d) / sqrt(sum(T_d^2)).
    """
    columns, place = np.unique(words, return_inverse=True)
    member = sp.csr_array(
        (np.ones(words.size), (place.ravel(), np.repeat(np.arange(len(words)), words.shape[1])))
    )
    column = np.full(tokens.n_words, -1)
    column[columns] = np.arange(len(columns))
    base = tokens.likelihood.base_score
    gain = tokens.likelihood.score - base
    mean = tokens.word_scores()[columns] / max(tokens.n_tokens, 1) - base  # of a token's gain
    total, square = np.zeros((2, len(words)))
    for block in range(len(tokens.pieces)):
        token_ptr = tokens.unit_ptr[tokens.block_documents(block)]
        n_tokens = token_ptr[-1] - token_ptr[0]
        survivors = tokens.span(token_ptr[0], token_ptr[-1])
        token = np.repeat(np.arange(n_tokens), np.diff(survivors.ptr))
        own = column[survivors.word] >= 0
        cells = token[own], column[survivors.word[own]]
        gains = sp.csr_array((gain[survivors.level[own]], cells), (n_tokens, len(columns)))
        ptr = token_ptr - token_ptr[0]
        found = _pairs(gains @ member, mean @ member, ptr) - _pairs(gains, mean, ptr) @ member
        total += found.sum(axis=0)
        square += np.square(found).sum(axis=0)
    return total / np.sqrt(np.maximum(square, np.finfo(float).tiny))


def _pairs(values: sp.csr_array, mean: NDArray[np.float64], ptr: Pointers) -> NDArray[np.float64]:
    """Products of `values` less their `mean`, over pairs of tokens of each document, (D, m)."""
    n, lengths = values.shape[0], np.diff(ptr)[:, None]
    documents = sp.csr_array((np.ones(n), np.arange(n), ptr), (len(lengths), n))
    sums, squares = (documents @ values).toarray(), (documents @ values.power(2)).toarray()
    return (sums - lengths * mean) ** 2 - (squares - 2 * mean * sums + lengths * mean**2)


def _add_laplace(
    word: NDArray[np.int32],
    n_words: int,
    noise: ThresholdedLaplace,
    pieces: Sequence[Pointers],
    streams: Streams,
    call: int,
) -> Survivors:
    """Thresholded Laplace noise on the one-hot vectors, in pieces of tokens."""
    level = noise.own_levels(len(word), streams.reader(Purpose.OWN_WORDS, call))
    parts = []
    for number, (first, last) in enumerate(pieces):
        reader = streams.reader(Purpose.SURVIVORS, call, number)
        own = slice(first, last)
        parts.append(noise.survivors(word[own], level[own], n_words, reader))
    return Survivors(
        np.cumsum(np.concatenate([[0], *(np.diff(p.ptr) for p in parts)])).astype(np.int64),
        np.concatenate([np.zeros(0, np.int32), *(p.word for p in parts)]),
        np.concatenate([np.zeros(0, np.uint16), *(p.level for p in parts)]),
    )


def _respond(
    word: NDArray[np.int32], n_words: int, bits: RandomizedBits, streams: Streams, call: int
) -> Survivors:
    """Randomized response on the one-hot vectors, in blocks of whole tokens."""
    n = max(1, BLOCK_BITS // n_words)
    ones, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for block, first in enumerate(range(0, len(word), n)):
        own = word[first : first + n].astype(np.int64)
        start = np.arange(len(own) + 1, dtype=np.int64) * n_words
        flips = streams.reader(Purpose.BIT_FLIPS, call, block)
        coins = streams.reader(Purpose.COINS, call, block)
        positions = bits(start[:-1] + own, int(start[-1]), flips, coins)
        lengths.append(np.diff(np.searchsorted(positions, start)))
        ones.append((positions - np.repeat(start[:-1], lengths[-1])).astype(np.int32))
    return Survivors(
        np.cumsum(np.concatenate(lengths)), np.concatenate(ones), np.zeros(0, np.uint16)
    )


def _piece_size(n_words: int, mechanism: TokenMechanism) -> float:
    """Tokens of a piece: with "laplace", the survivors of a piece are drawn at a time."""
    if not isinstance(mechanism.noise, ThresholdedLaplace):
        return math.inf
    return PIECE_SURVIVORS // max(1.0, n_words * mechanism.survival)


def _pieces(
    document_ptr: Pointers, unit_ptr: Pointers, n_tokens: float
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Blocks of whole documents, cut into pieces of whole units of about `n_tokens` tokens."""
    token_ptr = unit_ptr[document_ptr]
    starts = np.searchsorted(token_ptr, np.arange(0, token_ptr[-1], BLOCK_TOKENS))
    edges = np.unique(document_ptr[np.concatenate([starts, [len(token_ptr) - 1]])])
    blocks = []
    for first, last in itertools.pairwise(edges):
        size = int(max(1, min(n_tokens, token_ptr[-1])))
        tokens = np.arange(unit_ptr[first], unit_ptr[last], size)
        cuts = np.searchsorted(unit_ptr, tokens)
        cuts = np.unique(np.concatenate([cuts, [first, last]]))
        blocks.append(tuple((int(a), int(b)) for a, b in itertools.pairwise(cuts)))
    return tuple(blocks)
