"""Messages of a federation: what is valid, what is refused, and the bytes."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplda import SubLDA
from dplda.federated import LocalModel, MessageError, NextModel, vocabulary_hash
from dplda.privacy import Ledger, PrivacyLeakWarning
from dplda.release._container import pack

HASH = vocabulary_hash(["a", "b", "c", "d"])
TABLE = np.array([[0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]])


def local(**changes):
    fields = dict(
        party="north",
        round=3,
        vocabulary=HASH,
        table=TABLE,
        weight=120.5,
        epsilon=4.0,
        delta=1e-6,
        unit="token",
    )
    return LocalModel(**{**fields, **changes})


def next_model(**changes):
    return NextModel(**{**dict(round=4, vocabulary=HASH, table=TABLE), **changes})


@pytest.mark.parametrize(
    "message",
    [
        local(),
        local(weight=0),
        local(evidence=[3.5, np.nan]),
        local(party="inf", epsilon=math.inf),
        next_model(),
        next_model(table=TABLE[:0]),
        *(
            local(epsilon=x)
            for x in (0.1, 5e-324, 1.7976931348623157e308, 2**53 + 2, 10**5000)
        ),
    ],
)
def test_bytes_and_back_to_the_last_bit(message):
    data = message.to_bytes()
    again = type(message).from_bytes(data)
    assert again == message
    assert again.to_bytes() == data
    assert again.table.dtype == np.float32
    for name, value in vars(message).items():
        if name == "evidence":
            np.testing.assert_array_equal(getattr(again, name), value)
        elif name != "table":
            assert (type(getattr(again, name)), getattr(again, name)) == (
                type(value),
                value,
            )


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
        local(party="south"),
        local(round=2),
        local(vocabulary=vocabulary_hash(["a"])),
        local(table=TABLE[::-1]),
        local(table=TABLE[:1]),
        local(weight=1),
        local(epsilon=5),
        local(delta=0),
        local(unit="document"),
    ]
    assert len({message.to_bytes() for message in [local(), *others]}) == 10
    assert all(message != local() for message in others)


NAN, INFINITE = TABLE.copy(), TABLE.copy()
NAN[1, 1], INFINITE[1, 1] = np.nan, np.inf


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (dict(party=""), "1 to 60 printable"),
        (dict(party="x" * 61), "1 to 60 printable"),
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
        (dict(table=2 * TABLE), "sum to 1 within 2e-07, got an error of 1"),
        (dict(table=TABLE[0]), r"shape \(n_topics, n_words\).*got \(4,\)"),
        (dict(table=TABLE[:0]), "at least one topic"),
        (dict(table=[["a", "b"]]), "array of numbers"),
        (dict(evidence=[1.0]), r"for each of 2 topics, got shape \(1,\)"),
        (dict(evidence=[1.0, math.inf]), "finite numbers, or NaN, got infinite"),
        (dict(evidence="high"), "evidence must be an array of numbers"),
        (dict(table=[[1.0], [0.5, 0.5]]), "array of numbers"),
        (dict(weight=-1), r"weight must be a number in \[0, "),
        (dict(weight=math.inf), "weight must be"),
        (dict(weight=math.nan), "weight must be"),
        (dict(weight="many"), "weight must be"),
        (dict(weight=10**5000), "got inf"),
        (dict(epsilon=math.nan), "epsilon must be"),
        (dict(epsilon=-0.1), "epsilon must be"),
        (dict(delta=1.5), r"delta must be a number in \[0, 1\]"),
        (dict(unit="company"), "unit must be one of"),
    ],
)
def test_invalid_messages_do_not_exist(changes, text):
    with pytest.raises(MessageError, match=text):
        local(**changes)


def test_single_precision_rows_are_valid():
    table = np.random.default_rng(0).random((3, 50_000)).astype(np.float32)
    local(table=table / table.sum(axis=1, keepdims=True))


def test_rows_of_many_words_sum_to_one_as_well():
    for table in (np.full((1, 50_000), 1.005 / 50_000), np.zeros((1, 2**23))):
        with pytest.raises(MessageError, match="rows of table must sum to 1"):
            local(table=table)


FIELDS = {"round": 4, "vocabulary": HASH}
TABLES = {"table": TABLE.astype(np.float32)}


def forged(fields=FIELDS, tables=TABLES, kind="dplda-next-model"):
    return pack(kind, fields, tables, max_header=10**6)


SOUND = forged()


def resealed(old, new):
    """The sound message with a change in its header, and the length of the new one."""
    header = SOUND[8:-32]
    changed = header.replace(old, new)
    assert changed != header
    return len(changed).to_bytes(8, "little") + changed + SOUND[-32:]


def test_the_forger_could_write_a_valid_message():
    assert next_model().to_bytes() == SOUND
    assert NextModel.from_bytes(SOUND) == next_model()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a file of dplda"),
        (b"hello" * 100, "its header has"),
        (b"cos\nsystem\n(S'true'\ntR.", "its header has"),
        ("text", "is bytes, got str"),
        (SOUND[:-1], "not a file of dplda"),
        (SOUND + b"x", "not a file of dplda"),
        (SOUND[:-1] + b"x", "checksum"),
        (local().to_bytes(), "it is a 'dplda-local-model'"),
        (forged(kind="dplda-release"), "it is a 'dplda-release'"),
        (forged({**FIELDS, "padding": "x" * 10_000}), "its header has"),
        (forged({**FIELDS, "extra": 1}), "wrong fields"),
        (forged({"round": 4}), "wrong fields"),
        (forged(tables={}), "wrong fields"),
        (forged(tables={**TABLES, "more": TABLE}), "wrong fields"),
        (forged(tables={"table": TABLE}), "or other tables"),
        (forged(tables={"table": TABLES["table"][0]}), "must have shape"),
        (forged(tables={"table": TABLES["table"][:, :0]}), "must have shape"),
        (forged(tables={"table": np.full((2, 4), np.nan, np.float32)}), "NaN"),
        (forged({**FIELDS, "round": "4"}), "round must be"),
        (forged({**FIELDS, "round": [["4"]]}), "round must be"),
        (forged({**FIELDS, "round": math.inf}), "round must be"),
        (forged({**FIELDS, "round": math.nan}), "holds the number NaN"),
        (resealed(b'"shape":[2,4]', b'"shape":[2,5]'), "not a file of dplda"),
        (resealed(b'"shape":[2,4]', b'"shape":[4,2]'), "checksum"),
        (
            resealed(b'"shape":[2,4]', b'"shape":[1099511627776,1099511627776]'),
            "not a file of dplda",
        ),
        (resealed(b'"shape":[2,4]', b'"shape":[-2,-4]'), "not a file of dplda"),
        (
            resealed(b'"data_offsets":[0,32]', b'"data_offsets":[0,31]'),
            "not a file of dplda",
        ),
        (resealed(b'"F32"', b'"I32"'), "checksum"),
        (resealed(b'"table"', b'"tables"'), "checksum"),
        (resealed(b"round", b"sound"), "checksum"),
        (resealed(b'{"dplda"', b'{"other"'), "not a file of dplda"),
        (
            resealed(b'"__metadata__":{', b'"__metadata__":' + b"[" * 2000),
            "not a file of dplda",
        ),
    ],
    ids=range(32),
)
def test_hostile_bytes_are_refused(data, text):
    with pytest.raises(MessageError, match=text):
        NextModel.from_bytes(data)


def test_the_length_of_a_header_is_checked_before_anything_is_read():
    for length in (10_001, 2**31, 2**63, 2**64 - 1):
        with pytest.raises(
            MessageError, match=f"its header has {length} bytes, more than 10000"
        ):
            NextModel.from_bytes(length.to_bytes(8, "little") + SOUND[8:] + bytes(9999))


def test_long_messages_are_refused_unread():
    with pytest.raises(MessageError, match="100 bytes, and at most 99 are read"):
        NextModel.from_bytes(b"x" * 100, max_bytes=99)


def test_no_flipped_bit_and_no_cut_passes():
    original = local().to_bytes()
    for position in range(len(original)):
        for bit in range(8):
            damaged = bytearray(original)
            damaged[position] ^= 1 << bit
            with pytest.raises(MessageError):
                LocalModel.from_bytes(damaged)
        with pytest.raises(MessageError):
            LocalModel.from_bytes(original[:position])


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "x"]), ANYTHING))
@settings(max_examples=200)
def test_no_content_breaks_the_reader(fields):
    try:
        message = NextModel.from_bytes(forged({**FIELDS, **fields}))
    except MessageError:
        return
    assert message.table.size == 8


def test_the_hash_names_a_vocabulary():
    assert vocabulary_hash(["a", "bc"]) == vocabulary_hash(("a", "bc"))
    assert vocabulary_hash(["a", "bc"]) == vocabulary_hash(np.array(["a", "bc"]))
    different = [["a", "bc"], ["bc", "a"], ["ab", "c"], ["a", "b", "c"], ["abc"]]
    assert len({vocabulary_hash(words) for words in different}) == len(different)


@pytest.mark.parametrize(
    "words",
    [[], 0, 3, None, ["a", "a"], "abc", b"ab", [1, 2], [None], [["a"], ["b", "c"]]],
)
def test_what_is_no_vocabulary(words):
    with pytest.raises(MessageError, match="word"):
        vocabulary_hash(words)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_message_counts_all_fits_of_the_ledger_of_its_model(kind, tmp_path):
    """A party that fits in each round states what all rounds have cost."""
    X = np.ones((50, 3))
    ledger = Ledger(None if kind == "memory" else tmp_path / "ledger.sqlite")
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger.path or ledger)
    for _ in range(2):
        model.fit(X)
    message = LocalModel.from_estimator(model, "a", 1, vocabulary_hash(["a", "b", "c"]))
    assert message.epsilon == ledger.epsilon_spent > model.epsilon_
    alone = SubLDA(2, epsilon=1.0, max_iter=2).fit(X)
    with pytest.warns(PrivacyLeakWarning, match="states the cost of one fit"):
        message = LocalModel.from_estimator(
            alone, "a", 1, vocabulary_hash(["a", "b", "c"])
        )
    assert message.epsilon == alone.epsilon_


def test_a_model_of_other_words_makes_no_message():
    """It has as many columns. A model on a matrix does not know its words."""
    words, others = ["pear", "plum", "cherry"], ["plum", "pear", "cherry"]
    counts = [[1, 2, 0], [0, 1, 3]] * 50
    named = SubLDA(2, epsilon=4.0, max_iter=2).fit(pd.DataFrame(counts, columns=words))
    vocabulary = vocabulary_hash(words)
    assert LocalModel.from_estimator(named, "a", 0, vocabulary).vocabulary == vocabulary
    with pytest.raises(MessageError, match="trained on words of another vocabulary"):
        LocalModel.from_estimator(named, "a", 0, vocabulary_hash(others))
    unnamed = SubLDA(2, epsilon=4.0, max_iter=2).fit(counts)
    LocalModel.from_estimator(unnamed, "a", 0, vocabulary_hash(others))
