"""Public pseudo-counts of words in topics.

They come from public documents, seed words, or released weights.

Nothing here reads private data, and nothing is charged.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import Corpus, positive_entries
from dplda.core._texts import column_words, texts_in
from dplda.core._words import counter_of
from dplda.document._word_totals import WordTotals
from dplda.gibbs._frozen_table import MAX_COMPONENTS
from dplda.gibbs._gibbslda import average_counts
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._messages import warn_user
from dplda.privacy import PrivateDataWarning
from dplda.privacy._streams import Streams

# of a released weight as large as its noise: the fit expects such an error
TOKENS = 6.0
LEAST_NOISE = 0.1  # of a released weight

# The words of topics: in order, or by their numbers.
Seeds: TypeAlias = Sequence[Sequence[str]] | Mapping[int, Sequence[str]]


def public_prior(
    X: object = None,
    *,
    n_components: int = 10,
    seed_words: Seeds | None = None,
    seed_weight: float = 20.0,
    vocabulary: Any = None,
    max_iter: int = 200,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> np.ndarray:
    """Make the `prior_components` of a private model of public documents or seed words.

    Everything that goes in must be public: `X`, the seed words, and the vocabulary.
    Topics of public documents are found by Gibbs sampling without privacy. Seed words
    hold topics in their places: topic k of the table, and of a model that is trained
    with it, is the one that the words of ``seed_words[k]`` belong to. Without both, the
    table has the released word weights of a fitted `PrivateCountVectorizer`, the same
    in all topics.

    Parameters
    ----------
    X : list of str, {array-like, sparse matrix} (n_docs, n_words) or None
        *Public* texts, or their word counts in the columns of the private matrix. They
        should resemble the private documents, and none of them may be among those.
    n_components : int, default=10
        Number of topics, that of the private model.
    seed_words : sequence or dict of lists of str, default=None
        The words of topic 0, of topic 1, and so on, or a dict that names topics by
        their numbers. The other topics are free. A word may belong to several topics.
    seed_weight : float, default=20.0
        Number of tokens of public text that a seed word counts as in the table. While
        topics of `X` are drawn, a seed word weighs at least as much as all its tokens
        in `X`.
    vocabulary : vectorizer, sequence of str or dict, default=None
        The words of the columns. Pass the vectorizer that counts the private texts: a
        `PrivateCountVectorizer`, or a `CountVectorizer` with a public vocabulary. It is
        needed for texts and for seed words, unless `X` is a data frame with the words
        as columns.
    max_iter : int, default=200
        Number of sweeps over the public documents.
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    random_state : int, RandomState instance or None, default=None
        Seed of the sampler. None takes it from the entropy of the operating system.

    Returns
    -------
    prior : ndarray of shape (n_components, n_words)
        Pseudo-counts, not normalized: the tokens of `X` in the vocabulary, plus the
        weights of the seed words. Multiply the table by a number below 1 if the public
        texts deserve less trust. Topics that neither seeds nor documents know have
        zeros only.

    Raises
    ------
    TypeError
        If `seed_words` or `vocabulary` has the wrong type.
    ValueError
        If neither `X` nor `seed_words` is given, and `vocabulary` has released no word
        weights; if a seed word is not in the vocabulary, if the documents have no word
        of it, or if a shape or a number does not fit.

    Warns
    -----
    UserWarning
        If the documents have fewer tokens than the vocabulary has words.

    See Also
    --------
    SubLDA, PrivateSVILDA : Take the table as `prior_components`.
    GibbsLDA : Topics of public documents as a model of its own.

    Notes
    -----
    **Privacy.** A function of public values: it costs nothing. The guarantee of the
    private model then rests on the assumption that they are public. A table, a list of
    seed words or a vocabulary that someone made by looking at the private texts is not.
    The released weights of a `PrivateCountVectorizer` are paid for by its own
    guarantee: what the model and the vectorizer cost together is that of
    `dplda.pipeline_guarantee`, or of a ledger that charges both.

    The sampler is that of `GibbsLDA` with ``doc_topic_prior=0.1`` and
    ``topic_word_prior=0.1``. Seed words are an asymmetric prior of the words of topics,
    as in tomotopy's ``set_word_prior``: each draw reads the counts of all tokens plus
    the weights of the seeds.

    Examples
    --------
    >>> from dplda import SubLDA, public_prior
    >>> words = ["heart", "pulse", "valve", "bone", "fracture", "joint"]
    >>> prior = public_prior(
    ...     seed_words=[["heart", "pulse"], ["bone", "joint"]],
    ...     n_components=3,
    ...     vocabulary=words,
    ... )
    >>> prior.astype(int).tolist()
    [[20, 20, 0, 0, 0, 0], [0, 0, 0, 20, 0, 20], [0, 0, 0, 0, 0, 0]]

    Public texts say where the other words belong:

    >>> texts = ["pulse and heart, a heart valve"] * 30
    >>> texts += ["a joint, a bone, the fracture"] * 20
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
    words = None  # the names of the columns, if anything says them
    if vocabulary is not None:
        words = column_words(vocabulary)
    elif hasattr(X, "columns"):
        words = [str(column) for column in X.columns]
    table = np.zeros((1, n_components))
    if seed_words is not None:
        table = _seeds(seed_words, seed_weight, words, n_components)
    if X is not None:
        counts = _counts(X, vocabulary, words)
        anchors = None
        if seed_words is not None:
            # as many tokens as the documents have, or more: a fixed weight would not
            # hold a word that is frequent in many documents
            anchors = np.where(table, np.maximum(table, counts.sum(axis=0)[:, None]), 0)
        table = table + average_counts(
            Corpus.from_counts(counts),
            n_components,
            anchors,
            Streams.from_random_state(random_state),
            range(1, max_iter + 1),
            max_iter,
            doc_topic_prior=0.1,
            topic_word_prior=0.1,
            n_jobs=n_jobs,
        )
    return np.ascontiguousarray(table.T)


class ReleasedWords(Protocol):
    """What is read of a `PrivateCountVectorizer`."""

    word_weights_: np.ndarray
    word_weight_scale_: float

    def get_feature_names_out(self) -> Sequence[str]: ...


def _released_weights(vocabulary: ReleasedWords, n_components: int) -> np.ndarray:
    """Word frequencies that a vectorizer has released, in all topics the same."""
    if not hasattr(vocabulary, "word_weights_"):
        raise ValueError(
            "public_prior makes a prior of public documents, of seed_words, or of "
            "both; give one of them, or a fitted PrivateCountVectorizer as vocabulary"
        )
    pairs = [" " in word for word in vocabulary.get_feature_names_out()]
    noise = vocabulary.word_weight_scale_ * np.where(pairs, 2.0, 1.0)
    released = vocabulary.word_weights_
    tokens = TOKENS * WordTotals(released, noise, float(released.mean())).smooth()
    row: np.ndarray = tokens / np.maximum(noise, LEAST_NOISE)
    return np.tile(row / n_components, (n_components, 1))


def _counts(X: object, vocabulary: object, words: list[str] | None) -> sp.csr_array:
    """Counts of the public documents (n_docs, n_words), whole, without stored zeros."""
    texts = texts_in(X)
    if texts is not None:
        if words is None:
            raise ValueError(
                "texts need vocabulary=, the vectorizer that counts the private texts: "
                "the columns of both must be the same words"
            )
        vectorizer = counter_of(words)
        if hasattr(vocabulary, "transform"):
            vectorizer = vocabulary
        # of words that private texts lack; these are public
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivateDataWarning)
            X = vectorizer.transform(texts)
    counts = positive_entries(X, "public_prior")
    if not np.array_equal(np.rint(counts.data), counts.data):
        raise ValueError("public_prior takes whole word counts, not weights or shares")
    n_docs, n_words = counts.shape
    if words is not None and n_words != len(words):
        raise ValueError(
            f"X has {n_words} columns and the vocabulary has {len(words)} words; "
            "count the public documents with the vectorizer of the private ones"
        )
    n_tokens = int(counts.data.sum())
    if n_tokens == 0:
        raise ValueError(
            f"none of the {n_docs} public documents has a word of the vocabulary "
            f"({n_words} words); use documents of the same language and domain"
        )
    if n_tokens < n_words:
        warn_user(
            f"the {n_docs} public documents hold {n_tokens} words of the vocabulary, "
            f"fewer than its {n_words} columns: such a prior says little. Take more of "
            "them, up to about 1000"
        )
    return counts


def _seeds(
    given: Seeds, weight: float, words: list[str] | None, n_components: int
) -> np.ndarray:
    """Weights of the seed words (n_words, n_components).

    They are public: errors may name them.
    """
    weight = check_number("seed_weight", weight, 0.0, 1e9, closed="right")
    if words is None:
        raise ValueError(
            "seed_words need vocabulary=, the vectorizer that counts the private "
            "texts, or its words in the order of the columns"
        )
    groups = given if isinstance(given, Mapping) else dict(enumerate(_listed(given)))
    column = {word: v for v, word in enumerate(words)}
    table = np.zeros((len(words), n_components))
    unknown = []
    for topic, group in groups.items():
        check_integer("the number of a seeded topic", topic, 0, n_components - 1)
        for word in _listed(group):
            if word in column:
                table[column[word], topic] = weight
            elif word not in unknown:
                unknown.append(word)
    if unknown:
        shown = ", ".join(map(repr, unknown[:5])) + (
            ", ..." if len(unknown) > 5 else ""
        )
        raise ValueError(
            f"{len(unknown)} seed words are not among the {len(column)} words of the "
            f"vocabulary: {shown}. Leave them out, write them as the vectorizer does "
            "(for instance in lower case), or add them to the public vocabulary, or to "
            "the front of the candidates of a PrivateCountVectorizer"
        )
    if not table.any():
        raise ValueError(
            "seed_words holds no word; leave it out, or name words of some topics"
        )
    return table


def _listed(group: object) -> Sequence[Any]:
    """A list; a single text is none."""
    if isinstance(group, (str, Mapping)) or not isinstance(group, Sequence):
        raise TypeError(
            "seed_words must be a list with the words of each topic, or a dict of "
            f"numbers of topics and lists of words, got {group!r} in the place of a "
            "list"
        )
    return group
