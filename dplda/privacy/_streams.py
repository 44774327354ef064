"""Random words by address: one secret key, and one keystream for each use of it.

All randomness of a fit comes from AES-256 in counter mode. The address of a stream is
its purpose, the round, and the block of units or cells. Threads and machines are not
part of the address, so `n_jobs` and shards cannot change a result. No word serves two
purposes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from typing import NoReturn, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import (
    Cipher,
    CipherContext,
    algorithms,
    modes,
)
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from dplda.leaf._checks import check_integer
from dplda.privacy._events import MAX_COUNT

Words: TypeAlias = NDArray[np.uint64]

# Limit on the random words of a fit, as on its steps: a fit pays for the distance of so
# many from ideal ones. It is a constant, because a charge may not depend on the data.
MAX_WORDS = MAX_COUNT

# Words that are drawn, entries of a matrix, or cells of a table that are computed, at a
# time: their 512 KB stay in the second-level cache. Each piece of cells has a noise
# stream of its own, and each piece of tokens one for their order, so it enters seeded
# results.
PIECE = 2**16
ZEROS = np.zeros(PIECE, np.uint64).tobytes()  # of a piece: one call of the cipher


class Purpose:
    """Purposes of the streams.

    The numbers enter every seeded result. New numbers are appended; existing numbers
    never change. Estimators outside of this package may use 128 to 255.
    """

    # All purposes are listed here, because no two streams of the package may share a
    # number.
    INITIAL_TABLE = 1
    MEMBERSHIP = 2
    TOPICS = 3
    NOISE = 4
    ORDER = 5
    BIT_FLIPS = 6
    KEPT_WORDS = 8
    HASH_KEY = 9
    RECONSTRUCTION = 10
    FIRST_TOPICS = 11
    CLIENT_SEED = 12
    SURVIVORS = 20
    KEPT_TOKENS = 22
    PROPOSALS = 23
    AUDIT = 24
    HALVES = 25


class Streams:
    """The random streams of one fit.

    Several threads may use the same streams. The key is neither shown nor pickled. A
    copy made by a fork is refused.

    Parameters
    ----------
    key : bytes of length 32
        The secret key of AES-256. `from_random_state` is the usual way to make streams.
    seeded : bool
        Whether someone may know or guess the key. No privacy guarantee holds in that
        case.

    Attributes
    ----------
    n_words : int
        Words drawn so far, each request rounded up to whole cipher blocks.
    """

    def __init__(self, key: bytes, *, seeded: bool) -> None:
        self._algorithm = algorithms.AES256(key)
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._used: set[tuple[int, int]] = set()
        self.n_words = 0
        self.seeded = seeded

    @classmethod
    def from_random_state(cls, random_state: object, n_earlier: int = 0) -> Streams:
        """Make secret streams from None, and reproducible streams from a seed.

        Reproducible streams are not private.

        Parameters
        ----------
        random_state : None, int or numpy.random.RandomState
            None takes the key from the operating system. A RandomState is advanced.
        n_earlier : int, default=0
            Number of fits whose releases this one adds to its own. With equal seeds,
            their noise would cancel in the differences of their releases: each fit
            takes another key from the seed.

        Returns
        -------
        Streams
            Seeded unless `random_state` is None.
        """
        n_bytes = algorithms.AES256.key_size // 8  # which is in bits
        if random_state is None:
            return cls(os.urandom(n_bytes), seeded=False)
        key = check_random_state(random_state).bytes(n_bytes)
        if n_earlier:
            key = hashlib.sha256(key + n_earlier.to_bytes(8, "big")).digest()
        return cls(key, seeded=True)

    def take(self, purpose: int, round: int) -> None:
        """Take the streams of a round for noise or a sample, once only.

        Parameters
        ----------
        purpose, round : int
            Address, as in `reader`. RuntimeError if it was taken: using noise twice can
            remove it.
        """
        with self._lock:
            if (purpose, round) in self._used:
                raise RuntimeError(
                    f"round={round} was used before: it would give the same "
                    "randomness; take another round, or new Streams for another fit"
                )
            self._used.add((purpose, round))

    def reader(
        self, purpose: int, round: int, block: int = 0, *, skip: int = 0
    ) -> Reader:
        """Make a reader of the words of a stream, which never change.

        Parameters
        ----------
        purpose, round, block : int
            Address of the stream. The purpose is from 0 to 255, a `Purpose` inside of
            this package; the round is below 2**32, and the block of units or cells
            below 2**40.
        skip : int, default=0
            Number of words to skip, so that threads can share a stream.

        Returns
        -------
        Reader
            Its ``words(n)`` are the next n words, of uint64: independent and uniform,
            up to `TOTAL_VARIATION` over a whole fit.
        """
        return Reader(self, purpose, round, block, skip=skip)

    def __repr__(self) -> str:
        return f"Streams(seeded={self.seeded})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Streams hold a secret key and cannot be pickled; make new ones instead"
        )


class Reader:
    """Reads one stream and its spare stream forward, and returns no word twice.

    A reader is for one thread. Mechanisms take most bits from the stream, and the few
    bits that they rarely need from the spare stream. The counter of a cipher block is
    its address: purpose 1 byte, round 4, block 5, spare 1, position 5. Streams are
    disjoint: no fit may draw more than `MAX_WORDS` words.
    """

    def __init__(
        self,
        streams: Streams,
        purpose: int,
        round: int,
        block: int = 0,
        *,
        skip: int = 0,
    ) -> None:
        self._streams = streams
        self._address = (
            check_integer("purpose", purpose, 0, 2**8 - 1).to_bytes(1, "big")
            + check_integer("round", round, 0, 2**32 - 1).to_bytes(4, "big")
            + check_integer("block", block, 0, 2**40 - 1).to_bytes(5, "big")
        )
        self._skip = check_integer("skip", skip, 0, MAX_WORDS - 1)
        # with the words read so far
        self._running: dict[bool, tuple[CipherContext, int]] = {}

    def words(self, n: int, *, spare: bool = False) -> Words:
        """Return the next `n` words, at most 2**36 in all, shape (n,), uint64."""
        if os.getpid() != self._streams._process:
            raise RuntimeError(
                "these Streams were made before a fork, whose processes would draw the "
                "same randomness; make new ones in each process"
            )
        if spare not in self._running:
            half = self._skip % 2  # a cipher block has two words
            counter = (
                self._address + bytes([spare]) + (self._skip // 2).to_bytes(5, "big")
            )
            cipher = Cipher(self._streams._algorithm, modes.CTR(counter)).encryptor()
            self._running[spare] = (cipher, self._skip - half)
            if half:
                self.words(1, spare=spare)
        cipher, position = self._running[spare]
        check_integer("n", n, 0, MAX_WORDS - position)
        self._running[spare] = (cipher, position + n)
        with self._streams._lock:
            self._streams.n_words += n + n % 2
        # Some versions of the library require room for one more block than they write.
        buffer = np.empty(n + 2, dtype="<u8")
        room = buffer.data.cast("B")
        for start in range(0, 8 * n, len(ZEROS)):
            cipher.update_into(ZEROS[: 8 * n - start], room[start:])
        return buffer[:n].astype(np.uint64, copy=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a reader holds a cipher of a secret key and cannot be pickled")


def uniform(words: Words, *, positive: bool = False) -> NDArray[np.float64]:
    """Turn random words into uniform numbers in [0, 1), multiples of 2**-53.

    Parameters
    ----------
    words : ndarray, uint64
        Random words, of any shape.
    positive : bool, default=False
        Whether to move the numbers up by half a step, into (0, 1], for logarithms.

    Returns
    -------
    numbers : ndarray, float64
        Of the same shape.
    """
    numbers = (words >> np.uint64(11)).astype(np.float64)
    return (numbers + 0.5 if positive else numbers) * 2.0**-53


def uniform_integers(words: Words, n: int) -> NDArray[np.int64]:
    """Turn random words of any shape into uniform integers in [0, n), n up to 2**32.

    The bias is at most n * 2**-32, which is too large for draws that a guarantee
    depends on.
    """
    return ((words >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def keystream_total_variation(n_words: int) -> float:
    """Bound the distance of `n_words` words of keystream from independent uniform ones.

    The blocks of one key are distinct; uniform ones may repeat. The total variation is
    at most q**2 / 2**129 for q blocks of two words. This assumes that AES-256 is a
    pseudo-random permutation; docs/proofs_document.md.
    """
    n_blocks = (n_words + 1) // 2
    return float(n_blocks) ** 2 / 2.0**129
