"""Public pseudo-counts of words in topics: from public documents, seed words, or both.

Nothing here reads private data, and nothing is charged.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp

from dplda.core._base import MAX_ITER
from dplda.core._corpus import Corpus, positive_entries
from dplda.core._texts import column_words, texts_in
from dplda.core._words import counter_of
from dplda.document._word_totals import ExactTotals, WordTotals
from dplda.gibbs._frozen_table import MAX_COMPONENTS
from dplda.gibbs._gibbslda import average_counts
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._messages import warn_user
from dplda.privacy import PrivateDataWarning
from dplda.privacy._streams import Streams

# Pseudo-tokens of a word whose released weight equals its noise scale. The fit expects
# such an error of the frequency.
TOKENS = 6.0

# The words of each topic: in order, or by the number of the topic.
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

    All inputs must be public: `X`, the seed words, and the vocabulary. Gibbs sampling
    without privacy finds the topics of public documents. Seed words fix the order of
    the topics: the words of ``seed_words[k]`` belong to topic k of the table, and of a
    model that is trained with it. Without documents and seed words, the table has the
    released word weights of a fitted `PrivateCountVectorizer`, the same in all topics.

    Parameters
    ----------
    X : list of str, {array-like, sparse matrix} (n_docs, n_words) or None
        *Public* texts, or their word counts in the columns of the private matrix. They
        should resemble the private documents. No private document may be among them.
    n_components : int, default=10
        Number of topics of the private model.
    seed_words : sequence or dict of lists of str, default=None
        The words of topic 0, topic 1, and so on, or a dict from numbers of topics to
        words. The other topics are free. A word may belong to several topics.
    seed_weight : float, default=20.0
        Number of public tokens for which a seed word counts in the table. While the
        sampler draws topics of `X`, a seed word weighs at least as much as all its
        tokens in `X`.
    vocabulary : vectorizer, sequence of str or dict, default=None
        The words of the columns. Pass the vectorizer that counts the private texts: a
        `PrivateCountVectorizer`, or a `CountVectorizer` with a public vocabulary. Texts
        and seed words need it, unless `X` is a data frame with the words as columns.
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
        weights of the seed words. Multiply the table by a number below 1 if you trust
        the public texts less. Topics without seed words and documents have zeros only.

    Raises
    ------
    TypeError
        If `seed_words` or `vocabulary` has the wrong type.
    ValueError
        If neither `X` nor `seed_words` is given and `vocabulary` has released no word
        weights; if a seed word is not in the vocabulary; if the documents have no word
        of the vocabulary; or if a shape or a number is out of range.

    Warns
    -----
    UserWarning
        If the documents have fewer tokens than the vocabulary has words.

    See Also
    --------
    SubLDA, PrivateSVILDA : Take the table as `prior_components`.
    GibbsLDA : A model of public documents, by the same sampler.

    Notes
    -----
    **Privacy.** The table is a function of public values and costs nothing. The
    guarantee of the private model assumes that these values are public. A table, a list
    of seed words or a vocabulary that someone made by looking at the private texts is
    not public. The fit of a `PrivateCountVectorizer` pays for its released weights;
    `dplda.pipeline_guarantee`, or a ledger that charges both fits, states the cost of
    model and vectorizer together.

    The sampler is `GibbsLDA` with ``doc_topic_prior=0.1`` and ``topic_word_prior=0.1``.
    Seed words are an asymmetric prior of the words of topics, as in tomotopy's
    ``set_word_prior``: each draw adds the weights of the seed words to the counts of
    all tokens.

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
    max_iter = check_integer("max_iter", max_iter, 1, MAX_ITER)
    if X is None and seed_words is None:
        return _released_weights(vocabulary, n_components)
    words = None  # the words of the columns, if known
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
            # at least as many tokens as the documents have: a fixed weight would not
            # keep a frequent word in its topic
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
    """The part of a `PrivateCountVectorizer` that is read here."""

    word_weights_: np.ndarray
    word_weight_scale_: float

    def get_feature_names_out(self) -> Sequence[str]: ...


def _released_weights(vocabulary: ReleasedWords, n_components: int) -> np.ndarray:
    """Word frequencies that a vectorizer has released, the same in all topics."""
    if not hasattr(vocabulary, "word_weights_"):
        raise ValueError(
            "public_prior makes a prior of public documents, of seed_words, or of "
            "both; give one of them, or a fitted PrivateCountVectorizer as vocabulary"
        )
    pairs = [" " in word for word in vocabulary.get_feature_names_out()]
    noise = vocabulary.word_weight_scale_ * np.where(pairs, 2.0, 1.0)
    released = vocabulary.word_weights_
    totals = WordTotals(released, noise, float(released.mean()))
    if not noise.any():  # weights without noise count as if its scale were 1
        totals = ExactTotals(**vars(totals))
        noise = np.ones(len(noise))
    row: np.ndarray = TOKENS * totals.smooth() / noise
    return np.tile(row / n_components, (n_components, 1))


def _counts(X: object, vocabulary: object, words: list[str] | None) -> sp.csr_array:
    """Word counts of the public documents (n_docs, n_words), without stored zeros."""
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
        # it warns of words that private texts lack, and these texts are public
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
    """Weights of the seed words (n_words, n_components); errors may name the words."""
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
    """Return a list of words; refuse a single text."""
    if isinstance(group, (str, Mapping)) or not isinstance(group, Sequence):
        raise TypeError(
            "seed_words must be a list with the words of each topic, or a dict of "
            f"numbers of topics and lists of words, got {group!r} instead of a "
            "list"
        )
    return group
