"""The embedded table of English word vectors, and vectors from public sources."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from dplda.core._texts import column_words

# `scripts/word_vectors` writes the file.
_DIGEST = "b4e9749cad8687222496bb9923bd6669bef4759699de3385d07fa24d4678dbe5"
SOURCE = (
    "GloVe 6B, 50 numbers a word, of the 30,000 most frequent English words, part of "
    "dplda"
)


class VectorsByWord(Protocol):
    """A mapping, or gensim's KeyedVectors."""

    def __getitem__(self, word: str, /) -> ArrayLike: ...

    def __contains__(self, word: object, /) -> bool: ...


def load_word_vectors(
    vocabulary: BaseEstimator | Sequence[str] | Mapping[str, int],
    source: VectorsByWord | None = None,
) -> np.ndarray:
    """Load public vectors of words, for `word_vectors` of a private model.

    Vectors say what words mean: words with similar vectors go together in topics. The
    embedded table is a file of the package, the same on every machine; nothing is
    downloaded.

    Parameters
    ----------
    vocabulary : vectorizer, sequence of str or dict
        The words of the columns: a fitted vectorizer, or its words.
    source : mapping, gensim KeyedVectors or None, default=None
        Where the vectors come from, which must be public. None takes the embedded table
        of English words [1]_. A mapping has a vector for each word, of any language or
        subject.

    Returns
    -------
    vectors : ndarray of shape (n_words, n_dimensions), float32
        A row for each word; zeros for a word that the source does not have. In the
        embedded table, the length of a row is the word's expected frequency, 1 over its
        rank in the table. A model reads both directions and lengths.

    Raises
    ------
    TypeError
        If `vocabulary` or `source` is of another type.
    ValueError
        If the source has none of the words, or vectors of several lengths, or numbers
        that are not finite.
    OSError
        If the file of the package is damaged.

    See Also
    --------
    dplda.SubLDA : Takes the vectors as `word_vectors`.
    dplda.public_prior : Public texts of the same kind, which help more.

    Notes
    -----
    The table has the directions of GloVe 6B, learned from Wikipedia of 2014 and from
    newswire of 1994 to 2010, in 8 bits. It is in the public domain
    (``dplda/datasets/glove/LICENSE``).

    References
    ----------
    .. [1] J. Pennington, R. Socher, C. D. Manning, "GloVe: Global Vectors for Word
       Representation", EMNLP 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from dplda.datasets import load_word_vectors
    >>> vectors = load_word_vectors(["doctor", "hospital", "football", "xyzzyx"])
    >>> vectors.shape
    (4, 50)
    >>> directions = vectors[:3] / np.linalg.norm(vectors[:3], axis=1, keepdims=True)
    >>> likeness = directions @ directions[0]
    >>> bool(likeness[1] > likeness[2])
    True
    """
    words = column_words(vocabulary)
    found = _embedded_vectors(words) if source is None else _vectors_in(source, words)
    vectors = found.astype(np.float32)
    if not vectors.any():
        raise ValueError(
            f"the source has no vector for any of the {len(words)} words; take a "
            "source in their language, with words in the form of the vectorizer (for "
            "instance lower case)"
        )
    return vectors


def _embedded_vectors(words: list[str]) -> np.ndarray:
    rank, directions = _embedded()
    ranks = np.array([rank.get(word, -1) for word in words], np.int64)
    known = ranks >= 0
    vectors = np.zeros((len(words), directions.shape[1]))
    vectors[known] = directions[ranks[known]] / (ranks[known, None] + 1)
    return vectors


def check_source(name: str, source: Any) -> None:
    """Refuse what has no vectors by word, such as a table without its words."""
    is_mapping = hasattr(source, "__getitem__") and hasattr(source, "__contains__")
    if not is_mapping or isinstance(source, (str, bytes, list, tuple, np.ndarray)):
        raise TypeError(
            f"{name} must be a mapping of words to vectors, gensim's KeyedVectors or "
            f"None, got {type(source).__name__}; a table needs its words: "
            "dict(zip(words, table))"
        )


def _vectors_in(source: VectorsByWord, words: list[str]) -> np.ndarray:
    check_source("source", source)
    found = {word: np.asarray(source[word], float) for word in words if word in source}
    shapes = {vector.shape for vector in found.values()}
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise ValueError(
            "all vectors of source must have one dimension and length, got "
            f"{sorted(shapes)}"
        )
    largest = np.finfo(np.float32).max
    for word, vector in found.items():
        if not np.abs(vector).max(initial=0.0) <= largest:
            raise ValueError(
                "all vectors of source must hold finite numbers of at most "
                f"{largest:g}, unlike the vector of {word!r}; leave such words out"
            )
    zeros = np.zeros(shapes.pop() if shapes else 1)
    return np.array([found.get(word, zeros) for word in words])


@lru_cache(maxsize=1)
def _embedded() -> tuple[Mapping[str, int], np.ndarray]:
    """The rank of each word, and directions in the order of the ranks."""
    file = resources.files("dplda.datasets") / "glove" / "vectors.npz"
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != _DIGEST:
        raise OSError(f"the table {file} is damaged; install dplda again")
    with np.load(io.BytesIO(data)) as arrays:
        text = arrays["words"].item().decode()
        table = arrays["vectors"].astype(np.float64)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    words = text.split("\n")
    return {word: rank for rank, word in enumerate(words)}, table
