"""The keystream: known answers, disjoint addresses, successive words, secrecy."""

import copy
import os
import pickle
import re
import sys
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from estimators import LOCAL, PRIVATE, each
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone

from dplda import PrivateSVILDA
from dplda.datasets import make_topic_corpus
from dplda.privacy.mechanisms import Streams

# purposes: their numbers enter every seeded result
NOISE, ORDER = 4, 5


class Address(NamedTuple):
    purpose: int
    round: int
    block: int
    spare: bool


@pytest.fixture
def streams():
    return Streams.from_random_state(0)


def test_published_answer_of_aes_256():
    """All-zero key and block: NIST's known answer dc95c078a2408989ad48a21492842087."""
    words = Streams(bytes(32), seeded=True).reader(0, 0).words(2)
    assert words.astype("<u8").tobytes().hex() == "dc95c078a2408989ad48a21492842087"


@given(
    key=st.binary(min_size=32, max_size=32),
    purpose=st.integers(0, 255),
    round=st.integers(0, 2**32 - 1),
    block=st.integers(0, 2**40 - 1),
    spare=st.booleans(),
    # around the size of a piece
    n=st.sampled_from([0, 1, 2, 7, 1200, 8191, 8192, 8193]),
    skip=st.sampled_from([0, 1, 2, 3, 8191, 8192, 2**35 + 5]),
)
def test_words_are_the_encrypted_counter_blocks(
    key, purpose, round, block, spare, n, skip
):
    """The layout of the counter, written out a second time as one number."""
    first = ((((purpose << 32 | round) << 40 | block) << 8 | spare) << 40) + skip // 2
    blocks = b"".join((first + i).to_bytes(16, "big") for i in range(n // 2 + 1))
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    expected = np.frombuffer(encryptor.update(blocks), dtype="<u8")[skip % 2 :]
    words = (
        Streams(key, seeded=True)
        .reader(purpose, round, block, skip=skip)
        .words(n, spare=spare)
    )
    assert_array_equal(words, expected[:n])


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ((256, 0, 0), "purpose must be an integer from 0 to 255, got 256"),
        ((1, -1, 0), "round must be an integer from 0 to 4294967295, got -1"),
        ((1, 2**32, 0), "round must be"),
        ((1, 0, 2**40), "block must be"),
    ],
)
def test_addresses_out_of_range(streams, address, message):
    with pytest.raises(ValueError, match=message):
        streams.reader(*address)


def test_spare_words_do_not_move_the_main_stream(streams):
    reader = streams.reader(NOISE, 2)
    pieces = [reader.words(3), reader.words(0)]
    spare = reader.words(5, spare=True)
    pieces += [reader.words(n) for n in (3, 8192, 5, 10_000)]
    assert_array_equal(np.concatenate(pieces), streams.reader(NOISE, 2).words(18_203))
    assert_array_equal(spare, streams.reader(NOISE, 2).words(5, spare=True))


def test_seeded_words_are_pinned():
    """A change here changes every seeded result of the package."""
    words = Streams.from_random_state(0).reader(NOISE, 1, 2).words(2)
    assert words.tolist() == [4113203039548236472, 1235885307506444523]


def test_secret_by_default():
    """Also where a program has seeded the global generator of NumPy."""
    drawn = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        drawn.append(Streams.from_random_state(None))
    secret, other = drawn
    assert not secret.seeded
    assert Streams.from_random_state(0).seeded
    assert (secret.reader(1, 0).words(5) != other.reader(1, 0).words(5)).all()


def test_the_key_does_not_leave(streams):
    assert repr(streams) == "Streams(seeded=True)"
    for secret in (streams, streams.reader(NOISE, 0)):
        for leak in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                leak(secret)
        assert not re.search("[0-9a-f]{32}", repr(secret))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_two_processes_do_not_draw_from_one_key(streams):
    """A fork copies the key: both would draw the same noise.

    The difference of the two has no noise.
    """
    begun = streams.reader(NOISE, 0)
    begun.words(1)
    for read in (
        lambda: streams.reader(NOISE, 1).words(1),
        lambda: begun.words(1),
    ):
        child = os.fork()
        if child == 0:
            with suppress(RuntimeError):
                read()
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(read()) == 1


@pytest.fixture
def addresses(monkeypatch, tiny_pieces):
    """Every stream that is begun, as (key, address); blocks and pieces are small."""
    begun = []

    def record(algorithm, mode):
        ends = ((0, 1), (1, 5), (5, 10), (10, 11), (11, 16))
        *address, skipped = (int.from_bytes(mode.nonce[i:j], "big") for i, j in ends)
        begun.append((algorithm.key, Address(*address), skipped))
        return Cipher(algorithm, mode)

    monkeypatch.setattr(sys.modules[Streams.__module__], "Cipher", record)
    return begun


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@each(
    case
    for case in PRIVATE + LOCAL
    if hasattr(case.estimator, "partial_fit") or hasattr(case.estimator, "refine")
)
def test_no_address_is_read_twice_under_one_seed(estimator, addresses):
    """Over two calls: another round, block, batch, purpose have words of their own."""
    X = make_topic_corpus(40, 30, 4, doc_length=50, random_state=0).data
    model = clone(estimator).set_params(random_state=0)
    if "max_doc_words" in model.get_params():
        model.set_params(max_doc_words=9)
    calls, learn = [], getattr(model, "partial_fit", model.fit)
    for again in (learn, learn if hasattr(model, "partial_fit") else model.refine):
        addresses.clear()
        again(X if again == learn else model.components_)
        calls.append(Counter(addresses))
        assert max(calls[-1].values()) == 1
    both = {address.purpose for _, address, _ in calls[0].keys() & calls[1].keys()}
    # Documents may be cut alike in both calls; the clip bounds them after the cut.
    assert both <= ({ORDER} if isinstance(model, PrivateSVILDA) else set())
