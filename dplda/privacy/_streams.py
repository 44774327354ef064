"""Random words by address: one secret key, and a keystream for every use of it.

All randomness of a fit comes from AES-256 in counter mode. A stream is addressed by what it is for,
the round, and the block of documents or cells, never by thread or machine, so `n_jobs` and shards
cannot change a result, and no word is ever used for two things.
"""

from __future__ import annotations

import enum
import os
import threading
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from sklearn.utils import check_random_state

Words = NDArray[np.uint64]

KEY_BYTES = 32
PIECE_BYTES = 65536  # stays in the second-level cache
ZEROS = bytes(PIECE_BYTES)
MAX_ROUND = 2**32
MAX_BLOCK = 2**40
MAX_WORDS = 2**41  # two words a cipher block, 2**40 cipher blocks an address


class Purpose(enum.IntEnum):
    """What a stream is for. Append, never renumber: the number enters every seeded result."""

    INITIAL_TABLE = 1
    MEMBERSHIP = 2
    TOPICS = 3
    NOISE = 4
    ORDER = 5
    BIT_FLIPS = 6
    COINS = 7
    KEPT_WORDS = 8
    HASH_KEY = 9
    RECONSTRUCTION = 10
    FIRST_TOPICS = 11
    CLIENT_SEED = 12
    SURVIVORS = 20
    OWN_WORDS = 21
    KEPT_TOKENS = 22
    PROPOSALS = 23
    AUDIT = 24


@dataclass(frozen=True, slots=True)
class Address:
    """Which stream: disjoint from every other one for `MAX_WORDS` words."""

    purpose: int
    round: int
    block: int = 0
    spare: bool = False

    def __post_init__(self) -> None:
        _check_range("purpose", self.purpose, 256)
        _check_range("round", self.round, MAX_ROUND)
        _check_range("block", self.block, MAX_BLOCK)

    def counter(self) -> bytes:
        """The initial counter block: purpose 1, round 4, block 5, spare 1, position 5 bytes."""
        return (
            int(self.purpose).to_bytes(1, "big")
            + int(self.round).to_bytes(4, "big")
            + int(self.block).to_bytes(5, "big")
            + int(self.spare).to_bytes(1, "big")
            + bytes(5)
        )


class Streams:
    """The random streams of one fit.

    Safe to use from several threads. The key is neither shown nor pickled; a copy made by a fork
    shares no cipher state, for each stream starts its own cipher.

    Parameters
    ----------
    key : bytes of length 32
        Secret. `from_random_state` is the usual way in.
    seeded : bool
        Whether somebody may know the key; then no privacy guarantee holds.

    Attributes
    ----------
    n_words : int
        Words drawn so far, each request rounded up to whole cipher blocks.
    """

    def __init__(self, key: bytes, *, seeded: bool) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key must have {KEY_BYTES} bytes, got {len(key)}")
        self._algorithm = algorithms.AES(key)
        self._lock = threading.Lock()
        self._n_words = 0
        self.seeded = seeded

    @classmethod
    def from_random_state(cls, random_state: Any) -> Streams:
        """Secret streams for None; reproducible, hence not private, ones for anything else.

        Parameters
        ----------
        random_state : None, int or numpy.random.RandomState
            None takes the key from the operating system. A RandomState is advanced.
        """
        if random_state is None:
            return cls(os.urandom(KEY_BYTES), seeded=False)
        return cls(check_random_state(random_state).bytes(KEY_BYTES), seeded=True)

    @property
    def n_words(self) -> int:
        return self._n_words

    def words(self, purpose: int, round: int, block: int, n: int, *, spare: bool = False) -> Words:
        """The first `n` words of a stream; a longer request begins with the shorter one.

        Returns
        -------
        words : ndarray of shape (n,), uint64
        """
        return _Keystream(self, Address(purpose, round, block, spare)).words(n)

    def reader(self, purpose: int, round: int, block: int = 0) -> Reader:
        """Successive words of a stream, and of its spare stream."""
        return Reader(self, purpose, round, block)

    def _count(self, n: int) -> None:
        with self._lock:
            self._n_words += n + n % 2

    def __repr__(self) -> str:
        return f"Streams(seeded={self.seeded})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Streams hold a secret key and cannot be pickled; make new ones instead")


class Reader:
    """Reads one stream and its spare stream forward, so that no word is met twice.

    For one thread, and short-lived. Mechanisms take most bits from the stream, and the few that
    they need only now and then from the spare one.
    """

    def __init__(self, streams: Streams, purpose: int, round: int, block: int = 0) -> None:
        self._main = _Keystream(streams, Address(purpose, round, block))
        self._spare = _Keystream(streams, Address(purpose, round, block, spare=True))

    def words(self, n: int, *, spare: bool = False) -> Words:
        """The next `n` words, shape (n,), uint64."""
        return (self._spare if spare else self._main).words(n)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a reader holds a cipher of a secret key and cannot be pickled")


class _Keystream:
    """One running cipher; never leaves this module."""

    def __init__(self, streams: Streams, address: Address) -> None:
        self._streams = streams
        self._encryptor = Cipher(streams._algorithm, modes.CTR(address.counter())).encryptor()
        self._position = 0

    def words(self, n: int) -> Words:
        _check_range("n", n, MAX_WORDS - self._position + 1)
        self._position += n
        self._streams._count(n)
        # Some versions of the library ask for a block more room than they write.
        buffer = np.empty(n + 2, dtype="<u8")
        room = buffer.data.cast("B")
        for start in range(0, 8 * n, PIECE_BYTES):
            self._encryptor.update_into(ZEROS[: 8 * n - start], room[start:])
        return buffer[:n].astype(np.uint64, copy=False)


def uniform(words: Words, *, positive: bool = False) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), multiples of 2**-53, from random words.

    `positive` moves them up by half a step, into (0, 1], for logarithms.
    """
    numbers = (words >> np.uint64(11)).astype(np.float64)
    return (numbers + 0.5 if positive else numbers) * 2.0**-53


def uniform_integers(words: Words, n: int) -> NDArray[np.int64]:
    """Uniform integers in [0, n), n up to 2**32, with a bias of at most n * 2**-32."""
    return ((words >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def keystream_total_variation(n_words: int) -> float:
    """Distance of `n_words` words of keystream from independent uniform ones.

    The blocks of one key are distinct where uniform ones might repeat: at most q**2 / 2**129 in
    total variation for q blocks of two words. Beyond that AES-256 is assumed to be a pseudo-random
    permutation. See docs/noise.md, section 5.
    """
    n_blocks = (n_words + 1) // 2
    return float(n_blocks) ** 2 / 2.0**129


def _check_range(name: str, value: int, end: int) -> None:
    if not 0 <= value < end:
        raise ValueError(f"{name} must be at least 0 and less than {end}, got {value}")
