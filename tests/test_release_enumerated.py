"""Enumerations of release files: every byte that is flipped, every cut."""

from __future__ import annotations

import pytest

from dplda import (
    SubLDA,
    load_release,
    save_release,
)
from dplda.datasets import make_topic_corpus
from dplda.release._release import read_release

K, N_WORDS = 3, 20


def test_no_flipped_byte_and_no_cut_is_read(tmp_path):
    X = make_topic_corpus(61, N_WORDS, K, doc_length=30, random_state=0).data
    model, path = SubLDA(K, epsilon=3.0, max_iter=4).fit(X), tmp_path / "topics.dplda"
    save_release(model, path, vocabulary=[f"wörd {i}" for i in range(N_WORDS)])
    original = path.read_bytes()
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 1 << position % 8
        for data in (bytes(damaged), original[:position]):
            with pytest.raises(ValueError, match=r"."):
                read_release(data)
    for content in (original[:-1], b"hello", b"PK\3\4" + bytes(99), b"\x80\x04." * 99):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a valid release file"):
            load_release(path)
    with path.open("wb") as file:
        file.truncate(2**31 + 1)  # without blocks on the disk
    with pytest.raises(
        ValueError, match="is not read: it has more than 2147483648 bytes"
    ):
        load_release(path)
