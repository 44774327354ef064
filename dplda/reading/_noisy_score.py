"""A held-out score with noise: what a topic model gains on private documents.

Mechanism (Gaussian). A document, or all documents of a user together, contributes two
numbers: the log-likelihood of its held-out tokens relative to a public reference, and
the number of these tokens. Both are bounded: their L2 norm is at most a public
constant, which is checked in integers. ``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from dplda.core._corpus import (
    Matrix,
    are_shards,
    check_table,
    ids_of,
    row_blocks,
    unit_of,
)
from dplda.core._fold_in import BATCH, infer_topics, topic_word_probabilities
from dplda.core._perplexity import check_inputs, check_possible, split_documents
from dplda.core._texts import check_model
from dplda.leaf._checks import LARGEST, check_integer, check_number
from dplda.leaf._users import number_users
from dplda.privacy import Guarantee, Ledger
from dplda.reading._noisy_sum import release_sum

SCORE = "summed gains and number of held-out tokens"
# Weight of the number of tokens next to the gain, which needs more precision. The
# standard error is smallest at the square root of gain over `clip`: 0.6 is best for a
# gain of 0.54 nats and a clip of 1.5.
TOKEN_WEIGHT = 0.6


@dataclass(frozen=True)
class NoisyScore:
    """A private held-out score."""

    gain: float
    standard_error: float
    perplexity: float
    privacy_: Guarantee


def noisy_score(
    model: BaseEstimator,
    X: Matrix,
    *,
    epsilon: float,
    delta: float = 1e-6,
    public_unigram: ArrayLike | None = None,
    max_tokens: int = 50,
    clip: float = 1.5,
    user_ids: ArrayLike | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    random_state: object = None,
) -> NoisyScore:
    """Score a topic model on private documents, with differential privacy per unit.

    Parameters
    ----------
    model : estimator
        A fitted topic model, with `components_` and `doc_topic_prior_`. It must be
        public.
    X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
        Word counts of documents that the model was not trained on. Private.
    epsilon : float
        Epsilon of a document, or of a user if `user_ids` are given, above 0; ``inf``
        adds no noise and has no privacy.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, from 1e-14 to 0.001.
        Choose it well below 1 / n_docs.
    public_unigram : array-like of shape (n_words,), default=None
        The reference: positive frequencies of the words, up to a factor. It must be
        public. None takes the word totals of the model. To compare models, pass the
        same reference for all.
    max_tokens : int, default=50
        Largest number of held-out tokens of a document, or of a user, that count, at
        least 1. About half of all tokens are held out. A public constant.
    clip : float, default=1.5
        Bound on the gain per token of a document, or of a user, in nats, from 0.001 to
        1000. A public constant.
    user_ids : array-like of shape (n_docs,), default=None
        The user that each document belongs to. All documents of a user then count as
        one. A CountShards has its own user ids.
    ledger : Ledger, str or path-like, default=None
        Where the score is charged.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. Anything else voids the guarantee
        against anyone who knows or guesses it (`SeededNoiseWarning`).

    Returns
    -------
    score : NoisyScore
        `gain`, the mean log-likelihood of a held-out token under the model minus that
        under the reference, in nats, from -`clip` to `clip`. `standard_error`, the
        standard deviation of its noise, infinite if the noise exceeds the number of
        tokens. `perplexity`, for documents whose words have the frequencies of the
        reference. And `privacy_`.

    Raises
    ------
    BudgetError
        If the budget of the ledger is too small. No data have been read then.
    ValueError
        If an argument is out of range, or if `X` or `user_ids` do not fit. Nothing is
        charged then.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`), or user if `user_ids` are given.
    Relation: one unit is added, removed, or becomes empty. Sensitivity: ``max_tokens *
    sqrt(1.36)``, in L2, of the clipped gain in units of `clip` and 0.6 times the number
    of tokens, checked in integers. Mechanism: discrete Gaussian noise on both numbers.
    Event: ``Gaussian(m)``. The guarantee covers the score and not the model. The proof
    is in ``docs/proofs_document.md``.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.metrics import noisy_score
    >>> X = make_topic_corpus(1500, 30, 3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=4.0, max_iter=20).fit(X[:1000])
    >>> score = noisy_score(model, X[1000:], epsilon=2.0)
    >>> score.gain > 3 * score.standard_error
    True
    >>> round(score.privacy_.epsilon, 2)
    2.0
    """
    expected = (
        "a fitted topic model with doc_topic_prior (of a PrivateTopicModel, pass "
        "model.model_ and model.vectorizer_.transform(texts), and of a pipeline the "
        "last step and what it reads)"
    )
    check_model(model, expected, holds="doc_topic_prior_")
    components, reference = _public_tables(model.components_, public_unigram)
    prior = check_number(
        "doc_topic_prior", model.doc_topic_prior_, 0, LARGEST, closed="right"
    )
    clip = check_number("clip", clip, 1e-3, 1e3)
    max_tokens = check_integer("max_tokens", max_tokens, 1)
    unit = unit_of(X, user_ids)  # public

    def read() -> np.ndarray:
        blocks = check_inputs(components, X)[1]  # private
        public = (components, reference, prior, clip, max_tokens)
        rows = []  # private
        for i, counts in enumerate(blocks):
            users: np.ndarray | None  # private
            if are_shards(X):
                users = X.shards[i].users()  # private
            else:
                users = number_users(user_ids, counts.shape[0])  # private
            rows.append(contributions(counts, *public, users=users))  # private
        return np.concatenate(rows)  # private

    noisy, guarantee = release_sum(
        read,
        name=f"noisy_score of {type(model).__name__}",
        label=SCORE,
        norm=largest_norm(max_tokens),
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        user_ids=ids_of(X, user_ids),
        ledger=ledger,
        random_state=random_state,
    )
    gain, error = _ratio(noisy, guarantee.noise_scale)  # type: ignore[arg-type]
    entropy = -float(reference @ np.log(reference))
    return NoisyScore(
        gain=clip * gain,
        standard_error=clip * error,
        perplexity=math.exp(entropy - clip * gain),
        privacy_=guarantee,
    )


def largest_norm(max_tokens: int) -> float:
    """The clipping bound of the contribution of a unit, in L2."""
    return math.hypot(1.0, TOKEN_WEIGHT) * max_tokens


def contributions(
    X: sp.csr_array,
    components: np.ndarray,
    reference: np.ndarray,
    doc_topic_prior: float,
    clip: float,
    max_tokens: int,
    *,
    users: np.ndarray | None = None,
) -> np.ndarray:
    """Clipped gain in units of `clip`, and weighted number of tokens (n_units, 2).

    The row of a unit is a function of its rows of `X` and of public values. The L2 norm
    is at most `largest_norm`: with n tokens, the gain is in [-n, n] and n is at most
    `max_tokens`.
    """
    n_units = X.shape[0] if users is None else users.max(initial=-1) + 1
    length = np.zeros(n_units)
    gain = np.zeros(n_units)
    phi = components / components.sum(axis=1, keepdims=True)
    padded = topic_word_probabilities(components)
    for rows in row_blocks(X.indptr, BATCH, per_row=padded.shape[1]):
        observed, held_out = split_documents(X[rows])
        theta = infer_topics(observed, padded, len(components), doc_topic_prior)
        words = held_out.indices
        row = np.repeat(np.arange(len(theta)), np.diff(held_out.indptr))
        p = np.zeros(held_out.nnz)
        # in this order for every token, wherever it is
        for topic, weights in zip(phi, theta.T):
            p += weights[row] * topic[words]
        # one logarithm at a time: in an array, it may depend on the place of the number
        ratios = np.maximum(p / reference[words], 1e-300).tolist()
        gains = np.fromiter(map(math.log, ratios), float, len(p))
        unit = row + rows.start if users is None else users[row + rows.start]
        # token after token: the sum of a unit reads no other unit
        np.add.at(length, unit, held_out.data)
        np.add.at(gain, unit, gains * held_out.data)
    gain = np.clip(gain / clip, -length, length)
    kept = np.minimum(1.0, max_tokens / np.maximum(length, max_tokens))
    return np.column_stack([gain * kept, TOKEN_WEIGHT * length * kept])


def _ratio(noisy: np.ndarray, scale: float) -> tuple[float, float]:
    """The gain per token in [-1, 1], and its standard error by the delta method."""
    gain = float(noisy[0])
    length = float(noisy[1]) / TOKEN_WEIGHT
    if length <= max(0.0, scale / TOKEN_WEIGHT):
        return 0.0, math.inf
    ratio = min(1.0, max(-1.0, gain / length))
    return ratio, scale / length * math.hypot(1.0, ratio / TOKEN_WEIGHT)


def _public_tables(
    components: ArrayLike, public_unigram: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """The checked topic-word table, and the reference as probabilities."""
    table = check_table(components, "components_")
    check_possible(table)
    n_words = table.shape[1]
    reference = table.sum(axis=0)
    if public_unigram is not None:
        # sums of sparse matrices are 1 x n_words
        flat = np.asarray(public_unigram).reshape(-1)
        reference = check_table(flat, "public_unigram", ensure_2d=False)
        if reference.shape != (n_words,) or not reference.min() > 0:
            raise ValueError(
                f"public_unigram must hold {n_words} positive frequencies, "
                f"one for each word, got shape {reference.shape} and a smallest value "
                f"of {reference.min(initial=np.inf):g}; add a small number to words "
                "that it lacks"
            )
    return table, reference / reference.sum()
