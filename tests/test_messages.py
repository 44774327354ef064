"""Messages of a federation: what is valid, what is refused, and the bytes."""

import dataclasses
import hashlib
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplda.federated import LocalModel, MessageError, NextModel, vocabulary_hash

HASH = vocabulary_hash(4)
TABLE = np.array([[0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]])


def local(**changes):
    fields = dict(
        party="north", round=3, vocabulary=HASH, table=TABLE,
        weight=120.5, epsilon=4.0, delta=1e-6, unit="token",
    )  # fmt: skip
    return LocalModel(**{**fields, **changes})


def next_model(**changes):
    return NextModel(**{**dict(round=4, vocabulary=HASH, table=TABLE), **changes})


@pytest.mark.parametrize("message", [local(), local(epsilon=math.inf, weight=0), next_model()])
def test_bytes_and_back(message):
    data = message.to_bytes()
    again = type(message).from_bytes(data)
    assert again == message
    assert again.to_bytes() == data
    assert hash(again) == hash(message)
    assert again.table.dtype == np.float32
    assert again.table.flags.c_contiguous
    assert pickle.loads(pickle.dumps(again)) == message


def test_a_message_cannot_be_changed():
    message, table = local(), TABLE.copy()
    kept = local(table=table)
    table[:] = 7
    assert kept == message
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.weight = 1e9
    with pytest.raises(ValueError, match="read-only"):
        message.table[0, 0] = 1


def test_messages_differ_in_every_field():
    others = [
        local(party="south"), local(round=2), local(vocabulary=vocabulary_hash(5)),
        local(table=TABLE[::-1]), local(table=TABLE[:1]), local(weight=1), local(epsilon=5),
        local(delta=0), local(unit="document"),
    ]  # fmt: skip
    assert len({message.to_bytes() for message in [local(), *others]}) == 10
    assert all(message != local() for message in others)
    assert next_model() != local()


def test_the_layout_is_what_the_documentation_says():
    data = next_model().to_bytes()
    n_header = int.from_bytes(data[11:15], "little")
    header = json.loads(data[15 : 15 + n_header])
    assert data[:11] == b"dplda-fed\x01\x00"
    assert header == {"kind": "next-model", "round": 4, "shape": [2, 4], "vocabulary": HASH}
    table = np.frombuffer(data[15 + n_header : -32], "<f4").reshape(2, 4)
    np.testing.assert_array_equal(table, TABLE.astype(np.float32))
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]


NAN, INFINITE = TABLE.copy(), TABLE.copy()
NAN[1, 1], INFINITE[1, 1] = np.nan, np.inf


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (dict(party=""), "1 to 64 printable"),
        (dict(party="x" * 65), "1 to 64 printable"),
        (dict(party="a\nb"), "printable"),
        (dict(party=b"north"), "party must be"),
        (dict(round=-1), "round must be an integer from 0"),
        (dict(round=2**31), "round must be"),
        (dict(round=1.0), "round must be"),
        (dict(round=True), "round must be"),
        (dict(vocabulary="kos"), "vocabulary_hash"),
        (dict(vocabulary=None), "vocabulary_hash"),
        (dict(table=NAN), "NaN"),
        (dict(table=INFINITE), "infinite"),
        (dict(table=TABLE - [[0.5, -0.5, 0, 0]]), "got negative"),
        (dict(table=2 * TABLE), "sum to 1 within 0.0001, got an error of 1"),
        (dict(table=0 * TABLE), "sum to 1"),
        (dict(table=TABLE[0]), r"shape \(n_topics, n_words\).*got \(4,\)"),
        (dict(table=TABLE[:0]), r"got \(0, 4\)"),
        (dict(table=[["a", "b"]]), "array of numbers"),
        (dict(table=[[1.0], [0.5, 0.5]]), "array of numbers"),
        (dict(weight=-1), "weight must be a number from 0"),
        (dict(weight=math.inf), "weight must be"),
        (dict(weight=math.nan), "weight must be"),
        (dict(weight="many"), "weight must be"),
        (dict(epsilon=math.nan), "epsilon must be"),
        (dict(epsilon=-0.1), "epsilon must be"),
        (dict(delta=1.5), "delta must be a number from 0.0 to 1.0"),
        (dict(unit="company"), "unit must be one of"),
    ],
)
def test_invalid_messages_do_not_exist(changes, text):
    with pytest.raises(MessageError, match=text):
        local(**changes)


def test_single_precision_rows_are_valid():
    table = np.random.default_rng(0).random((3, 50_000)).astype(np.float32)
    local(table=table / table.sum(axis=1, keepdims=True))


BODY = TABLE.astype("<f4").tobytes()


def forged(header, body=BODY, version=1):
    """A message with a right checksum and any content."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = b"dplda-fed" + version.to_bytes(2, "little") + len(text).to_bytes(4, "little")
    data += text + body
    return data + hashlib.sha256(data).digest()


HEADER = {"kind": "next-model", "round": 4, "shape": [2, 4], "vocabulary": HASH}


def test_the_forger_could_write_a_valid_message():
    assert NextModel.from_bytes(forged(HEADER)) == next_model()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a message"),
        (b"hello" * 100, "not a message"),
        ("text", "is bytes, got str"),
        (next_model().to_bytes()[:-1], "checksum"),
        (next_model().to_bytes() + b"x", "checksum"),
        (local().to_bytes(), "not a NextModel"),
        (forged(HEADER, version=2), "version 2, and this dplda reads 1"),
        (forged(b"{"), "header"),
        (forged(b"[" * 4000), "header"),
        (forged(b"null"), "header"),
        (forged(b"\xff"), "header"),
        (forged(b'{"shape": [2]}'), "header"),
        (forged(b" " * 5000), "cut off"),
        (forged({**HEADER, "shape": [2, 5]}), "40 bytes|has 32 bytes"),
        (forged({**HEADER, "shape": [2**40, 2**40]}), "n_topics must be"),
        (forged({**HEADER, "shape": [-2, -4]}), "n_topics must be"),
        (forged({**HEADER, "shape": [2.0, 4]}), "n_topics must be"),
        (forged({**HEADER, "shape": [True, 8]}), "n_topics must be"),
        (forged({**HEADER, "round": "4"}), "round must be"),
        (forged({**HEADER, "round": [["4"]]}), "number in the header"),
        (forged({**HEADER, "extra": 1}), "wrong fields"),
        (forged({k: v for k, v in HEADER.items() if k != "round"}), "wrong fields"),
        (forged(HEADER, np.full(8, np.nan, "<f4").tobytes()), "NaN"),
    ],
)  # fmt: skip
def test_hostile_bytes_are_refused(data, text):
    with pytest.raises(MessageError, match=text):
        NextModel.from_bytes(data)


def test_long_messages_are_refused_unread():
    with pytest.raises(MessageError, match="100 bytes, and at most 99 are read"):
        NextModel.from_bytes(b"x" * 100, max_bytes=99)


@given(st.data())
@settings(max_examples=200)
def test_no_damage_passes(data):
    """Whatever bytes arrive, there is a valid message or a MessageError."""
    original = local().to_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    length = data.draw(st.integers(0, 8))
    damaged = original[:position] + data.draw(st.binary(max_size=8)) + original[position + length :]
    if damaged != original:
        with pytest.raises(MessageError):
            LocalModel.from_bytes(damaged)


@given(st.dictionaries(st.sampled_from([*HEADER, "x"]), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5,
)))  # fmt: skip
@settings(max_examples=200)
def test_no_header_breaks_the_reader(changes):
    try:
        message = NextModel.from_bytes(forged({**HEADER, **changes}))
    except MessageError:
        return
    assert message.n_topics * message.n_words == 8


def test_the_hash_names_a_vocabulary():
    assert vocabulary_hash(["a", "bc"]) == vocabulary_hash(("a", "bc"))
    assert vocabulary_hash(["a", "bc"]) == vocabulary_hash(np.array(["a", "bc"]))
    different = [["a", "bc"], ["bc", "a"], ["ab", "c"], ["a", "b", "c"], ["abc"], 2, 3]
    assert len({vocabulary_hash(words) for words in different}) == len(different)


@pytest.mark.parametrize("words", [[], 0, -1, ["a", "a"], "abc", [1, 2], [None]])
def test_what_is_no_vocabulary(words):
    with pytest.raises(MessageError, match="word"):
        vocabulary_hash(words)


@pytest.mark.parametrize("field", ["weight", "epsilon", "delta", "round"])
def test_huge_integers_are_refused(field):
    with pytest.raises(MessageError, match="got a huge integer"):
        dataclasses.replace(local(), **{field: 10**5000})
