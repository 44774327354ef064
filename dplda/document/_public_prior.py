"""Public pseudo-counts of words in topics: of public documents, seed words, or released weights.

Nothing here reads private data, and nothing is charged.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from dplda.core._corpus import Corpus, positive_entries
from dplda.core._texts import column_words, texts_in
from dplda.document._table_estimate import WordTotals
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._messages import warn_user
from dplda.privacy import PrivateDataWarning
from dplda.privacy._streams import Streams
from dplda.word._frozen_table import MAX_COMPONENTS
from dplda.word._gibbslda import average_counts

DOC_TOPIC_PRIOR, TOPIC_WORD_PRIOR = 0.1, 0.1
TOKENS = (
    6.0  # that a released weight as large as its noise counts as: the fit expects such an error
)
LEAST_NOISE = 0.1  # of a released weight


def public_prior(
    X: Any = None,
    *,
    n_components: int = 10,
    seed_words: Any = None,
    seed_weight: float = 20.0,
    vocabulary: Any = None,
    max_iter: int = 200,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> np.ndarray:
    """Make the `prior_components` of a private model from public documents or seed words.

    Everything that goes in must be public: `X`, the seed words, and the vocabulary. Topics of
    public documents are found by Gibbs sampling without privacy. Seed words hold topics in their
    places: topic k of the table, and of a model that is trained with it, is the one that the words
    of ``seed_words[k]`` belong to. Without both, the table has the released word weights of a
    fitted `PrivateCountVectorizer`, the same in all topics.

    Parameters
    ----------
    X : list of str, {array-like, sparse matrix} of shape (n_docs, n_words), or None, default=None
        *Public* texts, or their word counts in the columns of the private matrix. They should
        resemble the private documents, and none of them may be among those. None makes a prior
        of seed words alone.
    n_components : int, default=10
        Number of topics, that of the private model.
    seed_words : sequence or dict, default=None
        Words of topics. A sequence has the words of topic 0, of topic 1, and so on; a dict has a
        number of a topic for each group of words. The other topics are free. The words of a topic
        are a list of str, or a dict of each word's weight. A word may belong to several topics.
    seed_weight : float, default=20.0
        Weight of a seed word that has none of its own: the number of tokens of public text that it
        counts as in the table. While topics of `X` are drawn, a seed word weighs at least as much
        as all its tokens in `X`.
    vocabulary : vectorizer, sequence of str or dict, default=None
        The words of the columns. Pass the vectorizer that counts the private texts: a
        `PrivateCountVectorizer`, or a `CountVectorizer` with a public vocabulary. A list of words
        is counted by ``CountVectorizer(vocabulary=...)``. It is needed for texts and for seed
        words, unless `X` is a data frame with the words as columns.
    max_iter : int, default=200
        Number of sweeps over the public documents.
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    random_state : int, RandomState instance or None, default=None
        Seed of the sampler. None takes it from the entropy of the operating system.

    Returns
    -------
    prior : ndarray of shape (n_components, n_words)
        Pseudo-counts, not normalized. Their sum is the number of tokens of `X` in the vocabulary,
        plus the weights of the seed words. Multiply the table by a number below 1 if the public
        texts deserve less trust. Topics that neither seeds nor documents know have zeros only.

    Raises
    ------
    TypeError
        If `seed_words` or `vocabulary` has the wrong type.
    ValueError
        If neither `X` nor `seed_words` is given, and `vocabulary` has released no word weights; if
        a seed word is not in the vocabulary, if the
        documents have no word of it, or if a shape or a number does not fit.

    Warns
    -----
    UserWarning
        If the documents have fewer tokens than the vocabulary has words.

    See Also
    --------
    SubLDA : Takes the table as `prior_components`.
    PrivateSVILDA : Takes the table as `prior_components`.
    GibbsLDA : Topics of public documents as a model of its own.

    Notes
    -----
    **Privacy.** A function of public values: it costs nothing. The guarantee of the private model
    then rests on the assumption that they are public. A table, a list of seed words or a vocabulary
    that someone made by looking at the private texts is not. The released weights of a
    `PrivateCountVectorizer` are paid for by its own guarantee: what the model and the vectorizer
    cost together is that of `dplda.pipeline_guarantee`, or of a ledger that charges both.

    The sampler is that of `GibbsLDA` with ``doc_topic_prior=0.1`` and ``topic_word_prior=0.1``.
    Seed words are an asymmetric prior of the words of topics, as in tomotopy's ``set_word_prior``:
    each draw reads the counts of all tokens plus the weights of the seeds.

    Examples
    --------
    >>> from dplda import SubLDA, public_prior
    >>> words = ["heart", "pulse", "valve", "bone", "fracture", "joint"]
    >>> prior = public_prior(
    ...     seed_words=[["heart", "pulse"], ["bone", "joint"]], n_components=3, vocabulary=words
    ... )
    >>> prior.astype(int).tolist()
    [[20, 20, 0, 0, 0, 0], [0, 0, 0, 20, 0, 20], [0, 0, 0, 0, 0, 0]]

    Public texts say where the other words belong:

    >>> texts = ["pulse and heart, a heart valve"] * 30 + ["a joint, a bone, the fracture"] * 20
    >>> prior = public_prior(
    ...     texts, seed_words=[["bone"], ["heart"]], n_components=2, vocabulary=words,
    ...     random_state=0,
    ... )
    >>> prior.argmax(axis=0).tolist()  # the topic of each word
    [1, 1, 1, 0, 0, 0]
    """
    n_components = check_integer("n_components", n_components, 1, MAX_COMPONENTS)
    max_iter = check_integer("max_iter", max_iter, 1, 10**6)
    if X is None and seed_words is None:
        return _released_weights(vocabulary, n_components)
    words = _words(vocabulary, X)
    seeds = None if seed_words is None else _seeds(seed_words, seed_weight, words, n_components)
    counts = None if X is None else _counts(X, vocabulary, words)
    table = np.zeros(1) if seeds is None else seeds
    if counts is not None:
        _warn_of_few(counts)
        table = table + average_counts(
            Corpus.from_counts(counts), n_components, _anchors(seeds, counts),
            Streams.from_random_state(random_state), range(1, max_iter + 1), max_iter,
            doc_topic_prior=DOC_TOPIC_PRIOR, topic_word_prior=TOPIC_WORD_PRIOR, n_jobs=n_jobs,
        )  # fmt: skip
    return np.ascontiguousarray(table.T)


def _released_weights(vocabulary: Any, n_components: int) -> np.ndarray:
    """Word frequencies that a vectorizer has released, in all topics the same."""
    if not hasattr(vocabulary, "word_weights_"):
        raise ValueError(
            "public_prior makes a prior of public documents, of seed_words, or of both; give one "
            "of them, or a fitted PrivateCountVectorizer as vocabulary"
        )
    pairs = [" " in word for word in vocabulary.get_feature_names_out()]
    noise = vocabulary.word_weight_scale_ * np.where(pairs, 2.0, 1.0)
    released = vocabulary.word_weights_
    tokens = TOKENS * WordTotals(released, noise, float(released.mean())).smooth()
    row: np.ndarray = tokens / np.maximum(noise, LEAST_NOISE)
    return np.tile(row / n_components, (n_components, 1))


def _words(vocabulary: Any, X: Any) -> list[str] | None:
    """The names of the columns; None if nothing says them."""
    if vocabulary is None:
        columns = getattr(X, "columns", None)
        return None if columns is None else [str(column) for column in columns]
    return column_words(vocabulary)


def _counts(X: Any, vocabulary: Any, words: list[str] | None) -> sp.csr_array:
    """Counts of the public documents (n_docs, n_words), whole and without stored zeros."""
    texts = texts_in(X)
    if texts is not None:
        if words is None:
            raise ValueError(
                "texts need vocabulary=, the vectorizer that counts the private texts: the columns "
                "of both must be the same words"
            )
        known = hasattr(vocabulary, "transform")
        with warnings.catch_warnings():  # of words that private texts lack; these are public
            warnings.simplefilter("ignore", PrivateDataWarning)
            X = (vocabulary if known else CountVectorizer(vocabulary=words)).transform(texts)
    X = positive_entries(X, "public_prior")
    if not np.array_equal(np.rint(X.data), X.data):
        raise ValueError("public_prior takes whole word counts, not weights or shares")
    if words is not None and X.shape[1] != len(words):
        raise ValueError(
            f"X has {X.shape[1]} columns and the vocabulary has {len(words)} words; count the "
            "public documents with the vectorizer of the private ones"
        )
    if not X.nnz:
        raise ValueError(
            f"none of the {X.shape[0]} public documents has a word of the vocabulary "
            f"({X.shape[1]} words); use documents of the same language and domain"
        )
    return X


def _seeds(given: Any, weight: Any, words: list[str] | None, n_components: int) -> np.ndarray:
    """Weights of the seed words (n_words, n_components)."""
    weight = check_number("seed_weight", weight, 0.0, 1e9, closed="right")
    if words is None:
        raise ValueError(
            "seed_words need vocabulary=, the vectorizer that counts the private texts, or its "
            "words in the order of the columns"
        )
    if isinstance(given, str) or not isinstance(given, (Mapping, Sequence)):
        raise TypeError(
            "seed_words must be a list with the words of each topic, or a dict of numbers of "
            f"topics and words, got {type(given).__name__}"
        )
    topics = dict(given if isinstance(given, Mapping) else enumerate(given))
    for topic in topics:
        check_integer("the number of a seeded topic", topic, 0, n_components - 1)
    groups = {topic: _weighted(group, topic, weight) for topic, group in topics.items()}
    column = {word: v for v, word in enumerate(words)}
    _refuse_unknown(list(dict.fromkeys(w for group in groups.values() for w in group)), column)
    table = np.zeros((len(words), n_components))
    for topic, group in groups.items():
        for word, w in group.items():
            table[column[word], topic] = w
    return table


def _refuse_unknown(seeds: list[str], column: Mapping[str, int]) -> None:
    """Seed words are public, so the error may name them."""
    if not seeds:
        raise ValueError("seed_words holds no word; leave it out, or name words of some topics")
    unknown = [word for word in seeds if word not in column]
    if unknown:
        shown = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        raise ValueError(
            f"{len(unknown)} of {len(seeds)} seed words are not among the {len(column)} words of "
            f"the vocabulary: {shown}. Leave them out, write them as the vectorizer does (for "
            "instance in lower case), or add them to the public vocabulary, or to the front of the "
            "candidates of a PrivateCountVectorizer"
        )


def _anchors(seeds: np.ndarray | None, X: sp.csr_array) -> np.ndarray | None:
    """What the draws read of seed words: as many tokens as the documents have, or more.

    A fixed weight would not hold a word that is frequent in many documents.
    """
    return None if seeds is None else np.where(seeds, np.maximum(seeds, X.sum(axis=0)[:, None]), 0)


def _weighted(group: Any, topic: int, weight: float) -> dict[str, float]:
    """The seed words of a topic and their weights."""
    if isinstance(group, Mapping):
        weighted = {
            word: check_number(f"the weight of {word!r}", w, 0.0, 1e9, closed="right")
            for word, w in group.items()
        }
    elif isinstance(group, Iterable) and not isinstance(group, str):
        weighted = dict.fromkeys(group, weight)
    else:
        weighted = {None: weight}
    if not all(isinstance(word, str) for word in weighted):
        raise TypeError(
            f"the seed words of topic {topic} must be a list of words (str), or a dict of words "
            f"and weights, got {group!r}"
        )
    return weighted


def _warn_of_few(X: sp.csr_array) -> None:
    """Warn if the public documents say little."""
    n_tokens = int(X.data.sum())
    if n_tokens < X.shape[1]:
        warn_user(
            f"the {X.shape[0]} public documents hold {n_tokens} words of the vocabulary, fewer "
            f"than its {X.shape[1]} columns: such a prior says little. Take more of them, up to "
            "about 1000"
        )
