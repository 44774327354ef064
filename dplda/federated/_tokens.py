"""Privatized tokens: a noisy one-hot vector for each token. Training reads nothing else.

`privatize` is the only function that reads words. docs/proofs_local.md has the proofs.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplda.core._corpus import Corpus
from dplda.privacy._curator import MAX_WORDS
from dplda.privacy._local_mechanisms import MAX_FLIP, MIN_FLIP, RandomizedBits
from dplda.privacy._streams import Purpose, Streams

# Both numbers enter every seeded result.
BLOCK_TOKENS = 2**14  # tokens of a block: whole documents, swept with a stream of their own
BLOCK_BITS = 2**20  # bits that are randomized at a time: whole tokens


def randomized_bits(epsilon: float) -> RandomizedBits | None:
    """The noise on a token's one-hot vector that costs `epsilon`; None if it is infinite."""
    if math.isinf(epsilon):
        return None
    flip = 1.0 / (1.0 + math.exp(min(epsilon, 700.0)))
    if not MIN_FLIP <= flip <= MAX_FLIP:
        low, high = (math.log(1.0 / p - 1.0) for p in (MAX_FLIP, MIN_FLIP))
        raise ValueError(
            f"token_epsilon must be from {low:.2g} to {high:.4g}, or inf for no privacy, got "
            f"{epsilon}"
        )
    return RandomizedBits(flip)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Privatized tokens of some documents: public lengths and noisy vectors, without words."""

    doc_ptr: NDArray[np.int64]  # (n_docs + 1,) where the tokens of each document begin
    ptr: NDArray[np.int64]  # (n_tokens + 1,) where the ones of each noisy vector begin in `word`
    word: NDArray[np.int32]  # the words that the tokens report
    n_words: int
    flip: float  # probability with which each bit was reported wrongly; 0 without noise

    @property
    def n_tokens(self) -> int:
        return len(self.ptr) - 1

    def blocks(self) -> list[tuple[int, int]]:
        """First and last document of each block: whole documents of about `BLOCK_TOKENS`."""
        starts = np.searchsorted(self.doc_ptr, np.arange(0, self.n_tokens, BLOCK_TOKENS))
        edges = np.unique(np.append(starts, len(self.doc_ptr) - 1)).tolist()
        return list(itertools.pairwise(edges))

    def word_scores(self) -> NDArray[np.float64]:
        """Unbiased count of each word, (n_words,); each token adds a variance of `score_variance`.

        A bit b counts as (b - flip) / (1 - 2 flip).
        """
        reported = np.bincount(self.word, minlength=self.n_words)
        scores = (reported - self.n_tokens * self.flip) / (1 - 2 * self.flip)
        return np.asarray(scores, np.float64)

    @property
    def score_variance(self) -> float:
        """Variance of a bit in `word_scores`."""
        return self.flip * (1 - self.flip) / (1 - 2 * self.flip) ** 2


def check_size(corpus: Corpus, bits: RandomizedBits | None) -> None:
    """Refuse a corpus that needs more random words than the charge of a fit allows."""
    reported = max(1.0, corpus.n_words * (bits.probability if bits else 0.0))
    if corpus.n_tokens * reported > MAX_WORDS / 2:
        raise ValueError(
            f"the tokens need more than {MAX_WORDS // 2} random words; raise token_epsilon, or "
            "give fewer documents"
        )


def privatize(corpus: Corpus, bits: RandomizedBits | None, streams: Streams) -> Tokens:
    """Noisy vectors of all tokens of a private corpus. Of it, only the public lengths are kept."""
    # One blanked token changes one coordinate of its own one-hot vector by 1, and no coordinate of
    # another token, because the order and the number of tokens do not depend on words. Every
    # coordinate of every token gets independent noise, so that this costs the mechanism's epsilon.
    word, n_words = corpus.word, corpus.n_words
    if bits is None:
        return Tokens(corpus.doc_ptr, np.arange(len(word) + 1), word.copy(), n_words, 0.0)
    n = max(1, BLOCK_BITS // n_words)
    ones, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for block, first in enumerate(range(0, len(word), n)):
        own = word[first : first + n].astype(np.int64)
        start = np.arange(len(own) + 1, dtype=np.int64) * n_words
        flips = streams.reader(Purpose.BIT_FLIPS, 0, block)
        positions = bits(start[:-1] + own, int(start[-1]), flips)
        lengths.append(np.diff(np.searchsorted(positions, start)))
        ones.append((positions - np.repeat(start[:-1], lengths[-1])).astype(np.int32))
    ptr = np.cumsum(np.concatenate(lengths))
    return Tokens(corpus.doc_ptr, ptr, np.concatenate(ones), n_words, bits.probability)
