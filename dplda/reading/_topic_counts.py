"""How many documents each topic has, as one charged histogram.

Mechanism (Gaussian). Each document adds one vector of L2 norm at most 1: its largest
topic, or its topic weights. A user adds the mean of these vectors. The sum gets noise
on every cell. ``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from dplda.core._base import BaseLDA
from dplda.core._corpus import Matrix, check_counts
from dplda.core._fold_in import fold_in
from dplda.core._private_fit import release_sum
from dplda.core._texts import check_model
from dplda.leaf._users import number_users, protected_unit
from dplda.privacy import Guarantee, Ledger

COUNTS = "number of documents in each topic"


def private_topic_counts(
    model: BaseEstimator,
    X: Matrix,
    *,
    epsilon: float,
    delta: float = 1e-6,
    soft: bool = False,
    user_ids: ArrayLike | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    random_state: object = None,
) -> tuple[np.ndarray, Guarantee]:
    """Release how many private documents each topic has, with noise.

    Parameters
    ----------
    model : fitted topic model
        A public model of dplda, such as a `SubLDA`, or one that `load_release` read.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of private documents. They may be those that the model was trained
        on.
    epsilon : float
        Total epsilon of a document, or of a user if `user_ids` are given, above 0;
        ``inf`` counts without noise and without privacy.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, in [1e-14, 1).
    soft : bool, default=False
        If False, a document counts for the topic with the largest weight. If True, it
        is divided among all topics by their weights.
    user_ids : array-like of shape (n_docs,), default=None
        The user that each document belongs to. Each user then counts as one, divided
        equally among the user's documents.
    ledger : Ledger, str, path-like or None, default=None
        Where the release is charged: the one that the training was charged to, if the
        documents are the same.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. Anything else makes the result
        reproducible, and voids the guarantee against anyone who knows or guesses it
        (`SeededNoiseWarning`).

    Returns
    -------
    counts : ndarray of shape (n_components,)
        Noisy numbers of documents, or of users. They are unbiased, not whole, and may
        be negative. Documents without a word of the vocabulary are not counted.
    guarantee : Guarantee
        What the release costs. ``guarantee.noise_scale`` is the standard deviation of
        each count.

    Raises
    ------
    BudgetError
        If the budget of the ledger is too small. No document has been read then.
    TypeError, ValueError
        If `model` is not a topic model of dplda with a `doc_topic_prior`, or if
        `epsilon`, `delta`, `X` or `user_ids` do not fit.

    Warns
    -----
    SeededNoiseWarning
        If noise is drawn from a given `random_state`.

    Notes
    -----
    **Privacy.** Unit: document, or user if `user_ids` are given. Relation: one unit is
    added, removed, or becomes empty. Sensitivity: 1 in L2, checked in integers.
    Mechanism: discrete Gaussian noise on every count. Event:
    ``Gaussian(noise_multiplier)``. The topics of a document are a function of it and of
    the model, whose training has a guarantee of its own. The proof is in
    ``docs/proofs_document.md``.

    Examples
    --------
    >>> from dplda import SubLDA, private_topic_counts
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.privacy import Ledger
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> ledger = Ledger(epsilon=4.0)
    >>> model = SubLDA(n_components=3, epsilon=3.0, ledger=ledger).fit(X)
    >>> counts, guarantee = private_topic_counts(model, X, epsilon=1.0, ledger=ledger)
    >>> counts.shape, round(guarantee.noise_scale, 1)
    ((3,), 4.2)
    """
    check_model(model)
    if not isinstance(model, BaseLDA) or model.doc_topic_prior_ is None:
        if hasattr(model, "model_") and hasattr(model, "vectorizer_"):
            raise TypeError(
                f"model must be a topic model of counts, got {type(model).__name__}; "
                "pass its model_, and as X the counts vectorizer_.transform(texts)"
            )
        raise TypeError(
            "model must be a topic model of dplda with a doc_topic_prior, got "
            f"{type(model).__name__}; the proof is about the inference of these "
            "models. Of a pipeline, pass pipeline[-1] and "
            "pipeline[:-1].transform(texts)"
        )
    unit = protected_unit(user_ids)  # public

    def read() -> np.ndarray:
        """A vector for each document, or for each user the mean of the non-empty ones.

        Its L2 norm is at most 1. An empty document has zeros, so that it counts for
        nothing.
        """
        counted = check_counts(model, X, reset=False)  # private
        users = number_users(user_ids, counted.shape[0])  # private
        rows = fold_in(
            counted, model.components_, model.doc_topic_prior_, model.n_jobs
        )  # private
        if not soft:
            largest = rows.argmax(axis=1)
            rows = np.zeros(rows.shape)
            rows[np.arange(len(rows)), largest] = 1.0
        rows = np.where(np.diff(counted.indptr)[:, None] > 0, rows, 0.0)
        if users is None:
            return rows
        total = np.zeros((users.max(initial=-1) + 1, rows.shape[1]))
        # row after row: the sum of a user reads no other user
        np.add.at(total, users, rows)
        n_docs = np.bincount(users, rows.any(axis=1), len(total))
        return total / np.maximum(n_docs, 1.0)[:, None]

    return release_sum(
        read,
        name=f"private_topic_counts of {type(model).__name__}",
        step=COUNTS,
        norm=1.0,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        user_ids=user_ids,
        ledger=ledger,
        random_state=random_state,
    )
