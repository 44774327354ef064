"""Topics of words that a private model has not counted, by what they mean.

Everything here is a function of a release, of public vectors and of public constants.
It is post-processing and has no privacy cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from sklearn.base import BaseEstimator, clone

from dplda.core._fit_guarantee import BY_CALLER
from dplda.datasets._word_vectors import SOURCE, VectorsByWord, load_word_vectors
from dplda.document._document_budget import PUBLIC_VECTORS
from dplda.document._public_words import SHARED, Vectors, left_out
from dplda.release._release import release_bytes
from dplda.release._released_model import ReleasedModel


def add_words(
    model: BaseEstimator, words: Iterable[str], source: VectorsByWord | None = None
) -> ReleasedModel:
    """Give topics to words that a model has not counted, by what they mean.

    A private vocabulary holds frequent words. Vectors say which other words have
    similar meanings, and so what their topics are: `transform` then reads thousands of
    words more. The result is a function of the release and of public vectors, and costs
    nothing. Its card says how many words were added.

    Parameters
    ----------
    model : estimator or Pipeline
        A model that knows its words: one that `load_release` has read, or that
        `save_release` takes.
    words : iterable of str
        Public words, the most frequent first, such as
        ``load_public_vocabulary(None)``. Words that the model knows, that its
        vectorizer does not find in texts, or that have no vector are left out.
    source : mapping, gensim KeyedVectors or None, default=None
        Where the vectors come from, which must be public. None takes the embedded table
        of English words. See `dplda.datasets.load_word_vectors`.

    Returns
    -------
    wider : ReleasedModel
        A copy with one column more for each word that was added, after the columns of
        the model, which are as before.

    Raises
    ------
    TypeError
        If `words` is a single text, or `source` has no vectors by word.
    ValueError
        If the model has no words, if none of them has a vector, or if no word is left
        to add.

    See Also
    --------
    ReleasedModel.without : Leaves words out.
    dplda.datasets.load_public_vocabulary : Lists of words.

    Notes
    -----
    A ridge regression predicts the shares of topics among a word's tokens, less those
    of all tokens, from the direction of the word's vector, with the weights of
    ``docs/public_prior.md``. Nobody has counted the added words: if the rarest of V
    words of the model has n tokens, the j-th of them gets n V / (V + j), by Zipf's law.
    This matters to `score`, and hardly to `transform`. `components_std_` of such a word
    is the number of its tokens, so that displays mark it as one that does not stand out
    of the noise. `row_noise_` is left out.

    Examples
    --------
    >>> from dplda import PrivateTopicModel, add_words
    >>> words = ["doctor", "nurse", "patient", "football", "team", "coach"]
    >>> texts = ["doctor nurse patient", "football team coach"] * 500
    >>> model = PrivateTopicModel(
    ...     2, epsilon=4.0, vocabulary=words, word_vectors="en"
    ... ).fit(texts)
    >>> wider = add_words(model, ["hospital", "league"])
    >>> hospital, league, nurse = wider.transform(["hospital", "league", "nurse"])
    >>> bool(hospital @ nurse > league @ nurse)
    True
    """
    if isinstance(words, str):
        raise TypeError("words must be a list of words, got a single text")
    narrow = model if isinstance(model, ReleasedModel) else release_bytes(model)[1]
    if narrow.vocabulary_ is None:
        raise ValueError("this model has no words: its columns cannot be named")
    known = narrow.vocabulary_.tolist()
    others = list(dict.fromkeys([*known, *words]))[len(known) :]
    if narrow.vectorizer_ is not None:
        found_in = narrow.vectorizer_.build_analyzer()
        others = [word for word in others if found_in(word) == [word]]
    vectors = load_word_vectors([*known, *others], source)
    has_vector = np.asarray(vectors.any(axis=1))
    n_read, n_added = map(np.count_nonzero, np.split(has_vector, [len(known)]))
    if n_read == 0 or n_added == 0:
        raise ValueError(
            f"{n_read} words of the model and {n_added} other words have a vector; "
            "give words that the model lacks, and a source of vectors that has both"
        )
    has_vector[: len(known)] = True
    vocabulary = np.array([*known, *others], dtype=object)[has_vector]
    table = narrow.components_
    std = getattr(narrow, "components_std_", None)
    noise = np.zeros(len(known)) if std is None else std
    cells = _cells_of_others(table.T, noise, vectors[has_vector].astype(np.float64))
    origin = SOURCE if source is None else BY_CALLER
    wider = narrow._edited(f"{n_added} words added by their vectors ({origin})")
    assumptions = dict.fromkeys([*wider.privacy_.assumptions, PUBLIC_VECTORS])
    wider.privacy_ = dataclasses.replace(wider.privacy_, assumptions=tuple(assumptions))
    wider.components_ = np.hstack([table, cells.T])
    wider.n_features_in_ = wider.components_.shape[1]
    wider.vocabulary_ = vocabulary
    if narrow.vectorizer_ is not None:
        wider.vectorizer_ = clone(narrow.vectorizer_).set_params(
            vocabulary=vocabulary.tolist()
        )
    if std is not None:
        wider.components_std_ = np.concatenate([std, cells.sum(axis=1)])
    wider.row_noise_ = None
    return wider


def _cells_of_others(
    table: np.ndarray, noise_scale: np.ndarray, vectors: np.ndarray
) -> np.ndarray:
    """Cells of words that a table lacks, positive, (n_others, n_components).

    `table` (n_words, n_components) and `noise_scale` (n_words,), the noise of its
    cells, are released. `vectors` (n_words + n_others, n_dimensions) has the words of
    the table first.
    """
    n_words = len(table)
    n_others = len(vectors) - n_words
    # no cell is 0, and a single topic has no variance
    tiny = float(np.finfo(np.float32).eps)
    totals = np.maximum(table.sum(axis=1), tiny)
    sizes = table.sum(axis=0)
    shares = sizes / sizes.sum()
    deviations = table / totals[:, None] - shares
    variance = np.average(np.square(deviations).mean(axis=1), weights=totals)
    variance = max(float(variance), tiny)
    precision = 1 / ((1 - SHARED) * variance + (noise_scale / totals) ** 2)
    # words without a row have no weight: nothing is left out of what is said of them
    found = left_out(
        Vectors.of(vectors).directions,
        np.pad(deviations, ((0, n_others), (0, 0))),
        np.pad(precision, (0, n_others)),
        1 / (SHARED * variance),
    )
    rows = np.maximum(shares + found[n_words:], tiny)
    rows /= rows.sum(axis=1, keepdims=True)
    by_law = totals.min() * n_words / (n_words + np.arange(1.0, n_others + 1))
    cells: np.ndarray = by_law[:, None] * rows
    return cells
