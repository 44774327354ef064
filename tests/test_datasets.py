"""Tests of dplda.datasets."""

import gzip
import hashlib
import importlib.resources
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dplda.datasets import (
    load_public_vocabulary,
    load_wordnet_glosses,
    make_topic_corpus,
)


def test_the_corpus_of_prose_is_the_same_everywhere():
    corpus = load_wordnet_glosses()
    text = "\0".join([*corpus.data, *corpus.target_names]) + str(corpus.target.tolist())
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "02c43ca9367ce01f58b19dcc56f1240f13f615d6b845ca68871098589302c518"
    assert len(corpus.data) == len(corpus.target) == 9790
    assert f"{len(corpus.data)} documents" in corpus.DESCR


def test_a_damaged_corpus_is_refused(monkeypatch, tmp_path):
    (tmp_path / "wordnet").mkdir()
    file = tmp_path / "wordnet" / "glosses.1.txt.gz"
    monkeypatch.setattr(importlib.resources, "files", lambda package: tmp_path)
    for damaged in (
        b"",
        gzip.compress(b"act\tanother text"),
        gzip.compress(b"act\ttext")[:-9],
    ):
        file.write_bytes(damaged)
        with pytest.raises(OSError, match=r"glosses\.1\.txt\.gz is damaged"):
            load_wordnet_glosses()


def test_the_english_list_is_the_same_everywhere():
    digest = hashlib.sha256(
        "\n".join(load_public_vocabulary(None)).encode()
    ).hexdigest()
    assert digest == "f46c384ce46b3203f4365df4d0bfe7ddebbb178b2e1b2914e745a723ede434b4"


def test_words_of_other_languages_are_those_of_wordfreq(monkeypatch):
    pytest.importorskip("wordfreq")
    words = load_public_vocabulary(2000, language="de")
    assert {"leben", "stadt", "für"} & set(words) == {"leben", "stadt"}  # no stop words
    assert words[:100] == load_public_vocabulary(100, language="de")
    for wrong in ({"language": "tlh"}, {"n_words": 0}, {"n_words": 2.0}):
        with pytest.raises(
            (TypeError, ValueError), match=r"language must be one of|n_words"
        ):
            load_public_vocabulary(**wrong)
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with pytest.raises(ImportError, match="extra 'languages'"):
        load_public_vocabulary(language="it")  # which was not loaded before


def test_synthetic_counts_follow_the_model():
    corpus = make_topic_corpus(
        n_docs=3000,
        n_words=40,
        n_components=3,
        doc_length=80,
        topic_word_prior=1,
        random_state=1,
    )
    lengths = np.asarray(corpus.data.sum(axis=1)).ravel()
    assert abs(lengths.mean() - 80) < 5 * np.sqrt(80 / 3000)
    assert abs(lengths.var() / 80 - 1) < 0.2
    for topic in range(3):  # also among the documents of one topic
        rows = corpus.doc_topic[:, topic] > 0.5
        expected = lengths[rows] @ corpus.doc_topic[rows] @ corpus.components
        observed = np.asarray(corpus.data[rows].sum(axis=0)).ravel()
        assert np.max(np.abs(observed - expected) / np.sqrt(expected + 1)) < 5


def test_synthetic_seeds(request):
    first, second, other = (make_topic_corpus(random_state=seed) for seed in (3, 3, 4))
    assert (first.data != second.data).nnz == 0
    assert_array_equal(first.components, second.components)
    assert (first.data != other.data).nnz > 0
    state = np.random.RandomState(3)
    assert (make_topic_corpus(random_state=state).data != first.data).nnz == 0
    assert (make_topic_corpus(random_state=state).data != first.data).nnz > 0
    request.getfixturevalue("tiny_pieces")
    assert (make_topic_corpus(random_state=3).data != first.data).nnz == 0
    for name in ("doc_length", "doc_topic_prior", "topic_word_prior"):
        for value in (0, -1.0, np.inf, np.nan):
            with pytest.raises(ValueError, match=name):
                make_topic_corpus(**{name: value})
