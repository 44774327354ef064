"""The corpora of the benchmarks, all prepared in the same way.

KOS, NIPS and BBC are read from the folder that the variable DPLDA_DATA names (UCI's
docword files, and bbc.jsonl.gz with one {"text", "label"} a line). UCI's files are
downloaded if they are missing. A script of several corpora prints which it leaves out;
without any it fails. The docstrings need no file.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlretrieve

import numpy as np
import scipy.sparse as sp
from docstrings import load_docstrings, python_words
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import Bunch

from dplda.datasets import load_wordnet_glosses

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/"
DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(eq=False)  # two splits are never compared, and one may be a key
class Split:
    """Training and held-out documents, labels if any, and the words of columns."""

    name: str
    train: sp.csr_array
    test: sp.csr_array
    y_train: np.ndarray | None = None
    y_test: np.ndarray | None = None
    words: np.ndarray | None = None

    def __str__(self) -> str:
        n_tokens = int(self.train.sum())
        return f"{self.name} ({self.train.shape[0]} documents, {n_tokens} tokens)"


def data_folder() -> Path:
    return Path(os.environ.get("DPLDA_DATA", DEFAULT_DATA))


def uci_bow(name: str):
    """A corpus of the UCI bags of words.

    Sizes, and lines of document, word and count from 1.
    """
    with gzip.open(found(f"docword.{name}.txt.gz")) as file:
        n_docs, n_words, _ = (int(file.readline()) for _ in range(3))
        docs, words, counts = np.loadtxt(file, np.int64).T
    X = sp.coo_matrix((counts, (docs - 1, words - 1)), shape=(n_docs, n_words)).tocsr()
    listed = found(f"vocab.{name}.txt").read_text("utf-8").split("\n")[:n_words]
    return Bunch(data=X.astype(np.int32), feature_names=np.array(listed, dtype=object))


def found(name: str) -> Path:
    """A file in the folder of the data; one of UCI's is downloaded to it."""
    path = data_folder() / name
    if path.exists():
        return path
    reason = "and is not public"
    if name.startswith(("docword.", "vocab.")):
        part = path.with_name(f"{name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            urlretrieve(UCI + name, part)
            return part.rename(path)
        except OSError as error:
            reason = f"and its download failed: {error}"
    raise FileNotFoundError(
        f"{name} is not in {path.parent}, {reason}; DPLDA_DATA names another folder"
    )


def prepare(
    name: str,
    X,
    y=None,
    *,
    words=None,
    n_words: int | None = 2000,
    n_skip: int = 10,
    shortest: int = 20,
) -> Split:
    """Frequent words, documents of some length, a fixed tenth held out.

    The words are those of highest document frequency but for the `n_skip` first ones,
    chosen on the corpus itself: an experiment's licence, which a private training must
    not take.
    """
    X = sp.csr_array(X).astype(float)
    words = None if words is None else np.asarray(words)
    if n_words is not None:
        order = np.argsort(-(X > 0).sum(axis=0), kind="stable")[
            n_skip : n_skip + n_words
        ]
        X, words = sp.csr_array(X[:, order]), None if words is None else words[order]
    keep = np.flatnonzero(X.sum(axis=1) >= shortest)
    order = keep[np.random.default_rng(0).permutation(len(keep))]
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    return Split(
        name,
        sp.csr_array(X[train]),
        sp.csr_array(X[test]),
        y_train=None if y is None else np.asarray(y)[train],
        y_test=None if y is None else np.asarray(y)[test],
        words=words,
    )


def kos(**options) -> Split:
    return _uci("kos", **options)


def nips(**options) -> Split:
    return _uci("nips", **options)


def embedded() -> Split:
    """Docstrings of scientific packages, words of Python's documentation (public)."""
    texts, labels = load_docstrings()
    words = python_words(2000)
    X = CountVectorizer(vocabulary=words).fit_transform(texts)
    return prepare("docstrings", X, labels, words=words, n_words=None, shortest=10)


def glosses() -> Split:
    """The embedded noun definitions, and the 2,000 words most of their fields use."""
    corpus, pattern = load_wordnet_glosses(), r"(?<![\w'])[a-z]{3,}(?![\w'])"
    vectorizer = CountVectorizer(stop_words="english", token_pattern=pattern)
    X = sp.csr_array(vectorizer.fit_transform(corpus.data))
    fields = [
        X[corpus.target == field].sum(axis=0) > 0 for field in np.unique(corpus.target)
    ]
    names = vectorizer.get_feature_names_out()
    words = names[np.lexsort((names, -X.sum(axis=0), -np.sum(fields, axis=0)))][:2000]
    X = CountVectorizer(vocabulary=words).fit_transform(corpus.data)
    return prepare("glosses", X, corpus.target, words=words, n_words=None, shortest=10)


def bbc() -> Split:
    texts, labels = bbc_texts()
    vectorizer = CountVectorizer(stop_words="english")
    X = vectorizer.fit_transform(texts)
    return prepare("BBC", X, labels, words=vectorizer.get_feature_names_out(), n_skip=0)


def bbc_texts() -> tuple[list[str], list[str]]:
    with gzip.open(found("bbc.jsonl.gz"), "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [row["text"] for row in rows], [row["label"] for row in rows]


def kos_texts() -> list[str]:
    """The words of each document of KOS, as often as they occur in it."""
    corpus = uci_bow("kos")
    X, names = sp.csr_array(corpus.data), np.asarray(corpus.feature_names)
    rows = [slice(a, b) for a, b in itertools.pairwise(X.indptr)]
    return [
        " ".join(np.repeat(names[X.indices[row]], X.data[row].astype(int)))
        for row in rows
    ]


def _uci(name: str, **options) -> Split:
    corpus = uci_bow(name)
    return prepare(name.upper(), corpus.data, words=corpus.feature_names, **options)


LOADERS = {
    "kos": kos,
    "nips": nips,
    "docstrings": embedded,
    "bbc": bbc,
    "glosses": glosses,
}


def load(names) -> list[Split]:
    """The corpora of these names that are there."""
    splits = []
    for name in names:
        try:
            splits.append(LOADERS[name]())
        except OSError as error:
            print(f"left out: {name} ({error})")
    if not splits:
        raise SystemExit("none of the corpora is there")
    return splits
