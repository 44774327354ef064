"""Documents with sentence boundaries, as arrays that are indexed by document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import warn_of_coverage
from dplda.core._fold_in import MAX_STEPS, TOLERANCE, pad, uniform_theta, update_theta
from dplda.core._texts import texts_in
from dplda.leaf._checks import check_integer

SENTENCE_END = r"(?<=[.!?])\s+|\s*\n\s*"

Pointers = npt.NDArray[np.int64]


class SentenceCorpus:
    """Documents as sequences of sentences, and sentences as sequences of words: private data.

    It has a length and a shape, and can be indexed by slices, integer arrays and boolean masks of
    documents, so that pipelines and cross-validation treat it like a matrix.

    Parameters
    ----------
    word : array-like of shape (n_tokens,)
        Words of all documents in order, as columns of the vocabulary.
    sentence_ptr : array-like of shape (n_sentences + 1,)
        Start of each sentence's words, from 0 to n_tokens. No sentence may be empty.
    document_ptr : array-like of shape (n_docs + 1,)
        Start of each document's sentences, from 0 to n_sentences. Documents may be empty.
    n_words : int
        Size of the vocabulary.

    Attributes
    ----------
    word, sentence_ptr, document_ptr, n_words : ndarray and int
        As given.
    shape : tuple of int
        (n_docs, n_words).

    Raises
    ------
    ValueError
        If the boundaries do not match each other, or a word is not in the vocabulary.

    Examples
    --------
    >>> from dplda.federated import SentenceCorpus
    >>> corpus = SentenceCorpus.from_lists([[[0, 1], [2]], [[1, 1]]], n_words=3)
    >>> corpus
    <SentenceCorpus: 2 documents, 3 words in the vocabulary>
    >>> corpus.counts().toarray()
    array([[1., 1., 1.],
           [0., 2., 0.]])
    """

    def __init__(self, word: Any, sentence_ptr: Any, document_ptr: Any, n_words: int) -> None:
        words = _integers(word, "word")
        self.n_words = check_integer("n_words", n_words, 0, 2**31 - 1)
        self.sentence_ptr = _boundaries(sentence_ptr, "sentence_ptr", "words", len(words))
        n_sentences = len(self.sentence_ptr) - 1
        self.document_ptr = _boundaries(document_ptr, "document_ptr", "sentences", n_sentences)
        if n_sentences and np.diff(self.sentence_ptr).min() < 1:
            raise ValueError("sentence_ptr has a sentence without words; leave it out")
        if len(words) and not 0 <= words.min() <= words.max() < self.n_words:
            raise ValueError(f"word must hold columns from 0 to {self.n_words - 1}")
        self.word: npt.NDArray[np.int32] = words.astype(np.int32)

    @classmethod
    def from_lists(
        cls, documents: Iterable[Iterable[Sequence[int]]], n_words: int
    ) -> SentenceCorpus:
        """Make a corpus from nested lists; empty sentences are left out.

        Parameters
        ----------
        documents : iterable of iterable of sequence of int
            Documents as lists of sentences, which are lists of columns.
        n_words : int
            Size of the vocabulary.

        Returns
        -------
        corpus : SentenceCorpus
            The same documents.
        """
        full = [[list(s) for s in document if len(s)] for document in documents]
        sentences = [sentence for document in full for sentence in document]
        try:
            words = np.array([w for sentence in sentences for w in sentence], dtype=np.int64)
        except (ValueError, TypeError, OverflowError):
            raise ValueError("documents must be lists of lists of columns (integers)") from None
        sentence_ptr, document_ptr = (np.cumsum([0, *map(len, x)]) for x in (sentences, full))
        return cls(words, sentence_ptr, document_ptr, n_words)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of documents and of words, (n_docs, n_words)."""
        return len(self), self.n_words

    @property
    def token_ptr(self) -> Pointers:
        """Start of each document's words, (n_docs + 1,)."""
        return self.sentence_ptr[self.document_ptr]

    def counts(self) -> sp.csr_array:
        """Counts of the words of each document.

        Returns
        -------
        X : sparse array of shape (n_docs, n_words), float64
            The documents without sentence boundaries.
        """
        return _counts(self.word, self.token_ptr, self.n_words)

    def sentence_counts(self) -> sp.csr_array:
        """Counts of the words of each sentence.

        Returns
        -------
        X : sparse array of shape (n_sentences, n_words), float64
            One row per sentence.
        """
        return _counts(self.word, self.sentence_ptr, self.n_words)

    def _split(self) -> SentenceCorpus:
        """The same documents, with every word a sentence."""
        pointers = np.arange(len(self.word) + 1)
        return SentenceCorpus(self.word, pointers, self.token_ptr, self.n_words)

    def _keep(self, tokens: npt.NDArray[np.bool_]) -> SentenceCorpus:
        """The documents with the tokens of a mask only, without sentences that become empty."""
        cumulative = np.concatenate([[0], np.cumsum(tokens)])
        edges = cumulative[self.sentence_ptr]
        sentences = np.concatenate([[0], np.cumsum(np.diff(edges) > 0)])
        return SentenceCorpus(
            self.word[tokens], np.unique(edges), sentences[self.document_ptr], self.n_words
        )

    def __len__(self) -> int:
        return len(self.document_ptr) - 1

    def __getitem__(self, key: Any) -> SentenceCorpus:
        if isinstance(key, tuple):  # as in X[rows, ...]
            if any(rest is not Ellipsis and rest != slice(None) for rest in key[1:]):
                raise IndexError("a SentenceCorpus has rows only: documents are indexed, not words")
            key = key[0]
        if isinstance(key, (list, tuple)) and not len(key):
            key = slice(0, 0)
        rows = np.atleast_1d(np.arange(len(self))[key])
        sentences, document_ptr = _ranges(self.document_ptr, rows)
        tokens, sentence_ptr = _ranges(self.sentence_ptr, sentences)
        return SentenceCorpus(self.word[tokens], sentence_ptr, document_ptr, self.n_words)

    def __repr__(self) -> str:
        n_docs, n_words = self.shape
        return f"<SentenceCorpus: {n_docs} documents, {n_words} words in the vocabulary>"


class SentenceVectorizer(TransformerMixin, BaseEstimator):
    """Convert texts to documents with sentence boundaries, under a fixed vocabulary.

    Nothing is learned from the texts. A sentence ends at white space after ``.``, ``!``, ``?``, and
    at the end of a line. Words outside the vocabulary are left out, and so are sentences without a
    word of the vocabulary. `SentenceCorpus.from_lists` takes sentences that were split otherwise.

    Parameters
    ----------
    vocabulary : iterable of str, or mapping of str to int
        The public words in the order of the columns, as for
        `sklearn.feature_extraction.text.CountVectorizer`.

    Attributes
    ----------
    vocabulary_ : dict
        Column of each word.

    Notes
    -----
    **Privacy.** None: the result holds the words of the texts, as numbers. The vocabulary must be
    public.

    Examples
    --------
    >>> from dplda.federated import SentenceVectorizer
    >>> vectorizer = SentenceVectorizer(["bank", "bonds", "cat", "dog"])
    >>> corpus = vectorizer.fit_transform(["The cat saw the dog. The bank sold bonds!"])
    >>> corpus.word, corpus.sentence_ptr
    (array([2, 3, 0, 1], dtype=int32), array([0, 2, 4]))
    """

    def __init__(self, vocabulary: Any) -> None:
        self.vocabulary = vocabulary

    def fit(self, X: Any = None, y: Any = None) -> SentenceVectorizer:
        """Check the vocabulary; no text is read.

        Parameters
        ----------
        X : Ignored
            Ignored.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            The fitted vectorizer.
        """
        if isinstance(self.vocabulary, str) or self.vocabulary is None:
            raise ValueError(
                "vocabulary must be a list of words or a mapping of words to columns, got "
                f"{type(self.vocabulary).__name__}; it must be public, and no text is read"
            )
        counter = CountVectorizer(vocabulary=self.vocabulary)
        counter._validate_vocabulary()
        self.vocabulary_ = dict(counter.vocabulary_)
        return self

    def transform(self, texts: Any) -> SentenceCorpus:
        """Split texts into sentences and words.

        Parameters
        ----------
        texts : list or column of str
            One text per document.

        Returns
        -------
        corpus : SentenceCorpus
            The words of the vocabulary in each sentence.

        Warns
        -----
        PrivateDataWarning
            If the vocabulary covers less than a fifth of the tokens, or no token of most texts.
            Not for release.
        """
        check_is_fitted(self)
        documents, n_tokens = texts_in(texts), 0
        if documents is None:
            raise ValueError(
                f"texts must be a list or a column of texts, got {type(texts).__name__}; pass "
                "df['column'] for a table"
            )
        words_of, column = CountVectorizer().build_analyzer(), self.vocabulary_.get
        found = []
        for text in documents:
            sentences = [[column(w) for w in words_of(s)] for s in re.split(SENTENCE_END, text)]
            n_tokens += sum(map(len, sentences))
            found.append([[w for w in words if w is not None] for words in sentences])
        warn_of_coverage(np.array([sum(map(len, document)) for document in found]), n_tokens)
        return SentenceCorpus.from_lists(found, len(self.vocabulary_))

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """The words in the order of the columns.

        Parameters
        ----------
        input_features : Ignored
            Ignored.

        Returns
        -------
        words : ndarray of shape (n_words,), object
            The vocabulary.
        """
        check_is_fitted(self)
        return np.array(sorted(self.vocabulary_, key=self.vocabulary_.__getitem__), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = True
        return tags


def _integers(values: Any, name: str) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a one-dimensional array of integers")
    return array.astype(np.int64)


def _boundaries(values: Any, name: str, parts: str, n: int) -> Pointers:
    ptr = _integers(values, name)
    if not len(ptr) or ptr[0] != 0 or ptr[-1] != n or (np.diff(ptr) < 0).any():
        raise ValueError(
            f"{name} must begin with 0, never decrease, and end with the number of {parts}, {n}"
        )
    return ptr


def _counts(word: npt.NDArray[np.int32], ptr: Pointers, n_words: int) -> sp.csr_array:
    X = sp.csr_array((np.ones(len(word)), word, ptr), shape=(len(ptr) - 1, n_words), copy=True)
    X.sum_duplicates()
    return X


def _ranges(ptr: Pointers, rows: Pointers) -> tuple[Pointers, Pointers]:
    """The indices of the parts of `rows`, concatenated, and the pointers into them."""
    lengths = ptr[rows + 1] - ptr[rows]
    pointers = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.arange(pointers[-1]) + np.repeat(ptr[rows] - pointers[:-1], lengths), pointers


def fold_in_sentences(
    corpus: SentenceCorpus, phi: np.ndarray, doc_topic_prior: float, n_jobs: int | None
) -> np.ndarray:
    """Topic weights (n_docs, n_components) of documents whose sentences have one topic each.

    A sentence counts as one word. Its probability in a topic is the product of the probabilities
    `phi` (n_components, n_words) of its words.
    """
    n_components = len(phi)
    log_likelihood = corpus.sentence_counts() @ np.log(phi).T
    if len(log_likelihood):
        log_likelihood -= log_likelihood.max(axis=1, keepdims=True)
    likelihood = pad(np.exp(log_likelihood))
    n_sentences, rows = len(likelihood), np.arange(len(corpus))
    columns = np.arange(n_sentences, dtype=np.int32)
    documents = sp.csr_array(
        (np.ones(n_sentences, np.float32), columns, corpus.document_ptr.astype(np.int32)),
        shape=(len(corpus), max(1, n_sentences)),
    )
    theta = uniform_theta(len(corpus), n_components)
    update_theta(
        documents, theta, likelihood, rows, n_components=n_components,
        doc_topic_prior=doc_topic_prior, max_steps=MAX_STEPS, tolerance=TOLERANCE,
        accelerated=True, n_jobs=n_jobs,
    )  # fmt: skip
    theta = theta[:, :n_components].astype(np.float64)
    return theta / theta.sum(axis=1, keepdims=True)
