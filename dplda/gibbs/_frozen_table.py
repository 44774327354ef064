"""Topic draws under a fixed word-topic table: the table, the tokens and the sweep.

The table holds IEEE halves, with an exact bound on the ratio of any two in a topic.
Draws have exactly the stated probabilities. docs/proofs_word.md has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import joblib
import numpy as np
import numpy.typing as npt

from dplda.core._corpus import Corpus
from dplda.core._fold_in import aligned_zeros, whole
from dplda.kernels import _frozen, _release
from dplda.leaf._threads import in_threads, n_threads
from dplda.privacy._streams import PIECE, Purpose, Streams, uniform_integers

BLOCK_TOKENS = 1 << 17  # tokens that share a random stream; enters seeded results
# docs/proofs_word.md bounds the distance of a draw for this number: 2**-118
MAX_COMPONENTS = _frozen.MAX_TOPICS
TOPIC = np.int16  # of a token; -1 for none yet
HALF = np.finfo(np.float16)  # its normal numbers are the table's
BITS_OF_LARGEST = int(HALF.max.view(np.uint16))
N_FRACTIONS = int(HALF.smallest_normal.view(np.uint16))  # halves to twice a half
# in units of the prior; halves have 30 binary orders of magnitude
LARGEST_CLIP = 1 << 22
SMALLEST_PRIOR = 2.0**-60  # in units of a count


@dataclass(frozen=True, eq=False)
class HalfTable:
    """A word-topic table of positive halves, with an exact bound on ratios in a topic.

    `half` (n_words, padded) has the bits of normal IEEE halves, proportional to
    (clip(counts, 0, count_clip) + prior) / (size of the topic). It is 0 on the padding
    to a multiple of 16 topics.
    """

    half: npt.NDArray[np.uint16]
    n_components: int

    @classmethod
    def from_counts(
        cls,
        counts: npt.NDArray[np.generic],
        count_clip: float,
        prior: float,
        *,
        mean: float = 0.0,
        unit: float = 1.0,
        n_jobs: int | None = None,
    ) -> HalfTable:
        """Clip public counts to [0, count_clip], add the prior, divide by topic sizes.

        A count is (counts - mean) / unit. Two halves of one topic differ by at most the
        factor count_clip / prior + 1. This bound is exact in spite of rounding:
        docs/proofs_word.md, lemma on halves. The number of threads never changes a
        result.
        """
        n_words, n_components = counts.shape
        padded = whole(n_components, _frozen.LANES)
        threads = n_threads(n_jobs)
        # weights are in units of the prior
        factor = 1.0 / max(unit * prior, SMALLEST_PRIOR)
        weight = (factor, -mean * factor, min(count_clip / prior, 1e30))

        # of a piece, whose sizes are added up in single precision; enters results
        n_rows = max(1, PIECE // n_components)
        n_pieces = -(-n_words // n_rows)
        sums = np.zeros((n_pieces, padded), np.float32)
        largest = np.ones((n_pieces, padded), np.float32)
        _release.add_weights(counts, *weight, n_rows, sums, largest, threads)
        sizes = sum(sums.astype(np.float64), np.zeros(padded))  # row after row
        # smallest and largest half of each topic, and the half of a weight of 1
        low, high, scale = np.zeros((3, padded), np.float32)
        topics = slice(n_components)
        shares = largest.max(axis=0)[topics] / sizes[topics]
        exact = float(HALF.max) / shares.max() / sizes[topics]
        smallest = np.maximum(exact, float(HALF.smallest_normal)).astype(np.float16)
        bits = smallest.view(np.uint16).astype(np.int64)
        steps = _steps(count_clip, prior)[bits % N_FRACTIONS]
        bits = np.minimum(bits + steps, BITS_OF_LARGEST).astype(np.uint16)
        low[topics] = smallest
        high[topics] = bits.view(np.float16)
        scale[topics] = exact
        half = aligned_zeros((n_words, padded), np.uint16)
        _release.write_halves(counts, *weight, scale, low, high, half, threads)
        return cls(half, n_components)

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The halves (n_words, n_components) as float64, exactly."""
        return self.half.view(np.float16)[:, : self.n_components].astype(np.float64)


@lru_cache(maxsize=16)
def _steps(count_clip: float, prior: float) -> npt.NDArray[np.int64]:
    """How many halves may lie above a topic's smallest, by the last bits of that.

    Halves with m = 1024, ..., 2047 are m 2**e. The largest of them that is at most
    (count_clip / prior + 1) m 2**e is found in integers. The bits of halves have the
    order of the halves.
    """
    ratio = Fraction(float(count_clip)) / Fraction(float(prior)) + 1
    steps = []
    for m in range(N_FRACTIONS, 2 * N_FRACTIONS):
        product = ratio.numerator * m // ratio.denominator
        exponent = product.bit_length() - N_FRACTIONS.bit_length()
        largest = (exponent << HALF.nmant) + (product >> exponent)
        steps.append(min(largest - m, BITS_OF_LARGEST))  # no half has more above it
    return np.array(steps, np.int64)


@dataclass(frozen=True, eq=False)
class TokensByWord:
    """The private tokens, word by word, so that threads count disjoint words."""

    ptr: np.ndarray  # where each word's tokens begin in `token`, (n_words + 1,), int64
    token: np.ndarray  # position of each token in the corpus, (n_tokens,), int32

    @classmethod
    def from_corpus(cls, corpus: Corpus) -> TokensByWord:
        ptr = np.empty(corpus.n_words + 1, np.int64)
        token = np.empty(corpus.n_tokens, np.int32)
        _release.list_by_word(corpus.word, ptr, token)
        return cls(ptr, token)

    def count(
        self, topics: np.ndarray, counts: np.ndarray, n_jobs: int | None
    ) -> np.ndarray:
        """Write the exact word-topic counts over `counts`; private."""
        _release.count_topics(
            self.ptr, self.token, topics, 1, counts, n_threads(n_jobs)
        )
        return counts


def uniform_topics(corpus: Corpus, n_components: int, streams: Streams) -> np.ndarray:
    """First topics, (n_tokens,): uniform, and independent of the words."""
    reader = streams.reader(Purpose.TOPICS, 0)
    topics = np.empty(corpus.n_tokens, TOPIC)
    for start in range(0, len(topics), PIECE):
        part = topics[start : start + PIECE]
        part[:] = uniform_integers(reader.words(len(part)), n_components)
    return topics


@dataclass(frozen=True, eq=False)
class Piece:
    """Documents that a thread sweeps at a time."""

    documents: Corpus
    order: np.ndarray  # in which they are begun, (n_docs,), int64
    start: int  # their first token in the corpus
    stream: int  # block whose random stream they share
    skip: int  # words of the stream that belong to earlier documents


def pieces_of(corpus: Corpus, n_jobs: int | None) -> list[Piece]:
    """Blocks with a stream each; the last in parts, to keep all threads busy.

    Small pieces are slower, because fewer documents are swept side by side. Documents
    of similar length begin one after the other, so that none is left over at the end.
    """
    blocks = corpus.blocks(BLOCK_TOKENS)
    threads = joblib.effective_n_jobs(n_jobs)
    n_whole = len(blocks) - (threads if threads > 1 else 0)
    pieces: list[Piece] = []
    start = 0
    for stream, block in enumerate(blocks):
        first = start
        parts = [block] if stream < n_whole else block.blocks(BLOCK_TOKENS // 4)
        for documents in parts:
            order = np.argsort(-np.diff(documents.doc_ptr), kind="stable")
            pieces.append(Piece(documents, order, start, stream, start - first))
            start += documents.n_tokens
    return pieces


def draw_topics(
    pieces: list[Piece],
    topics: np.ndarray,
    table: HalfTable,
    *,
    doc_topic_prior: float,
    streams: Streams,
    t: int,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Draw every token's topic under a fixed table, over `topics` (n_tokens,).

    Each block of documents has its own random stream, and a token's place in the block
    determines its random words, so the result does not depend on `n_jobs`.
    """
    tolerance = _frozen.tolerance(table.half.shape[1])

    def run(piece: Piece) -> None:
        documents = piece.documents
        n = documents.n_tokens
        part = topics[piece.start : piece.start + n]
        before = part.copy()
        reader = partial(
            streams.reader, Purpose.TOPICS, t, piece.stream, skip=piece.skip
        )
        bits = reader().words(n)
        refinement: npt.NDArray[np.uint64] | None = None
        while True:
            n_exact = _frozen.sweep(
                documents.word,
                documents.doc_ptr,
                piece.order,
                part,
                table.half,
                doc_topic_prior,
                bits,
                refinement,
                tolerance,
            )
            if n_exact >= 0:
                return
            # About one draw in 2**53 needs more than 64 bits: repeat the piece, with
            # 128 bits for each draw.
            refinement = reader().words(n, spare=True)
            part[:] = before

    in_threads(run, pieces, n_jobs)
    return topics
