"""How well topics predict held-out words, and words that are new in a document."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dplda.core._corpus import Matrix, row_blocks
from dplda.core._fold_in import (
    BATCH,
    DOC_TOPIC_PRIOR,
    infer_topics,
    topic_word_probabilities,
)
from dplda.core._perplexity import (
    check_inputs,
    check_possible,
    log_probabilities,
    split_documents,
)

ROUNDING = np.finfo(float).eps  # of the probability of all words that a document lacks


class HeldOutScores(NamedTuple):
    """Log-likelihoods of held-out tokens, in nats; higher is better.

    A gain is the difference to the word frequencies of the table itself, the column
    sums of `components`, on the same tokens. It is 0 for one topic.

    Parameters
    ----------
    token, document : float
        Mean over held-out tokens, and mean over documents of the means of their tokens.
    new_word : float
        Mean over held-out tokens of words that the observed half of the document lacks.
        The probabilities of these words are scaled to sum to 1. NaN if there are no
        such tokens.
    token_gain, document_gain, new_word_gain : float
        What the topics add to these.
    """

    token: float
    document: float
    new_word: float
    token_gain: float
    document_gain: float
    new_word_gain: float


def held_out_scores(
    components: ArrayLike,
    X: Matrix,
    *,
    transform: Callable[[sp.csr_array], np.ndarray] | None = None,
    n_jobs: int | None = None,
) -> HeldOutScores:
    """Score held-out tokens of documents, and what topics add to word frequencies.

    The topic weights of a document are inferred from one half of its tokens, and the
    other half is scored, as in `held_out_perplexity`. The perplexity rewards a model
    for predicting that words repeat. Clusters of similar words predict that, too,
    without any document. Only a model that knows which words occur together predicts
    the words that are *new* in a document.

    Parameters
    ----------
    components : array-like of shape (n_components, n_words)
        Pseudo-counts or probabilities of each topic's words, as in
        ``estimator.components_``. The gains need the sizes of the topics: multiply
        probabilities by the shares of the topics.
    X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
        Word counts of documents that the table was not trained on.
    transform : callable or None, default=None
        Gives the topic weights (n_docs, n_components) of observed halves, such as
        ``estimator.transform``. None infers them with a Dirichlet parameter of 0.1.
    n_jobs : int or None, default=None
        Number of threads of that inference. It never changes the result.

    Returns
    -------
    scores : HeldOutScores
        In nats. ``exp(-scores.token)`` is the held-out perplexity.

    Raises
    ------
    ValueError
        If `X` has the wrong number of columns, or no words to score, or if `components`
        make a word or a topic impossible.

    See Also
    --------
    held_out_perplexity : The usual measure.

    Notes
    -----
    **Privacy.** The scores of private documents are releases that no epsilon covers.

    Examples
    --------
    >>> from dplda.metrics import held_out_scores
    >>> topics = [[9, 9, 9, 9, 1, 1, 1, 1], [1, 1, 1, 1, 9, 9, 9, 9]]
    >>> texts = [[2, 1, 3, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 2, 1, 1]] * 10
    >>> scores = held_out_scores(topics, texts)
    >>> round(scores.new_word_gain, 2), bool(scores.new_word_gain > 0)
    (0.73, True)
    """
    table, blocks = check_inputs(components, X)
    check_possible(table)
    padded = topic_word_probabilities(table)
    phi = np.ascontiguousarray((table / table.sum(axis=1, keepdims=True)).T)
    marginal = np.log(table.sum(axis=0) / table.sum())

    def weights_of(observed: sp.csr_array) -> np.ndarray:
        if transform is not None:
            return transform(observed)
        return infer_topics(observed, padded, len(table), DOC_TOPIC_PRIOR, n_jobs)

    sums = np.zeros((3, 3))  # tokens, documents, new words: number, score, marginal's
    for counts in blocks:
        for rows in row_blocks(counts.indptr, BATCH, per_row=padded.shape[1]):
            observed, scored = split_documents(counts[rows])
            theta = weights_of(observed)
            log_p = np.array(
                [
                    np.ones(scored.nnz),
                    log_probabilities(scored, theta, phi),
                    marginal[scored.indices],
                ]
            )
            seen = sp.csr_array(observed > 0, dtype=float)
            # probability that a word is new, for the topics and the marginal
            new = (theta * (1 - seen @ phi)).sum(axis=1), 1 - seen @ np.exp(marginal)
            sums += _sums(observed, scored, log_p, np.maximum(new, ROUNDING))
    if sums[0, 0] == 0:
        raise ValueError(
            "X holds no words to score; pass documents with at least two words"
        )
    with np.errstate(invalid="ignore"):  # no new word
        scores = sums[:, 1] / sums[:, 0]
        marginals = sums[:, 2] / sums[:, 0]
    return HeldOutScores(*map(float, (*scores, *(scores - marginals))))


def _sums(
    observed: sp.csr_array, scored: sp.csr_array, log_p: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """Sums over tokens, documents and new words of 1 and two log-likelihoods.

    `log_p` (3, entries of `scored`) holds the summands. `new` (2, n_docs) holds the
    probabilities of all words that a document's observed half lacks.
    """
    n_docs, n_words = scored.shape
    row = np.repeat(np.arange(n_docs), np.diff(scored.indptr))
    seen = np.repeat(np.arange(n_docs), np.diff(observed.indptr))
    is_new = ~np.isin(
        row * n_words + scored.indices,
        seen * n_words + observed.indices,
        assume_unique=True,
    )
    lengths = scored.sum(axis=1)
    of_new = log_p[:, is_new]
    of_new[1:] -= np.log(new)[:, row[is_new]]
    return np.array(
        [
            log_p @ scored.data,
            log_p @ (scored.data / lengths[row]),
            of_new @ scored.data[is_new],
        ]
    )
