"""Membership inference against a classifier on topic features, by shadow models."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score, roc_curve
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from dplda._corpus import check_quoting_nothing
from dplda.privacy import PrivacyLeakWarning, SeededNoiseWarning


@dataclass(frozen=True)
class MembershipResult:
    """How well an attack tells who was in the training set.

    Attributes
    ----------
    accuracy : float
        Share of right answers; members and others are equally many, so 0.5 is blind guessing.
    auc : float
        Area under the curve of true against false positives.
    advantage : float
        Largest difference of true and false positive rates. An (epsilon, delta) private training
        bounds it by ``(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1)``.
    target_accuracy, target_f1 : float
        Of the attacked classifier on other documents; F1 averaged over classes.
    """

    accuracy: float
    auc: float
    advantage: float
    target_accuracy: float
    target_f1: float


def membership_attack(
    classifier: Any, X: Any, y: Any, *, n_shadows: int = 5, random_state: Any = None
) -> MembershipResult:
    """Membership inference [1]_, as figure 7 of [2]_ has it.

    Half of the documents belong to the attacked classifier, trained on half of them. The attacker
    owns the other half, trains `n_shadows` classifiers of the same kind on halves of it, and learns
    from their answers what an answer about a training document looks like.

    Parameters
    ----------
    classifier : estimator
        With `fit` and `predict_proba`, as ``make_pipeline(SubLDA(...), LogisticRegression())``.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts.
    y : array-like of shape (n_docs,)
        Classes; each needs some ten documents.
    n_shadows : int, default=5
        At least 1.
    random_state : int, RandomState instance or None, default=None
        Of the splits; the classifiers have their own.

    Returns
    -------
    MembershipResult

    Notes
    -----
    The attack sees answers about the raw documents: topic weights of a training document are a
    function of its words, and no epsilon of the topic model covers a classifier trained on them.

    References
    ----------
    .. [1] R. Shokri, M. Stronati, C. Song, V. Shmatikov, "Membership inference attacks against
       machine learning models", IEEE S&P 2017.
    .. [2] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training With Differential Privacy", IEEE TIFS, 2020, section VII-C.
    """
    if not isinstance(n_shadows, Integral) or n_shadows < 1:
        raise ValueError(f"n_shadows must be at least 1, got {n_shadows}")
    if not hasattr(classifier, "predict_proba"):
        raise TypeError(f"{type(classifier).__name__} has no predict_proba; give a classifier")
    with check_quoting_nothing(X):
        X, y = X.tocsr() if issparse(X) else np.asarray(X), np.asarray(y)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(
            "X must be a matrix of word counts and y have one class for each of its rows, got "
            f"shapes {X.shape} and {y.shape}"
        )
    y = np.unique(y, return_inverse=True)[1]
    random = check_random_state(random_state)
    shadow, target = _halves(np.arange(len(y)), y, random)
    answers, labels = [], []
    for _ in range(n_shadows):
        inside, outside = _halves(shadow, y, random)
        model = _trained(classifier, X, y, inside)
        for rows, label in ((inside, 1), (outside, 0)):
            answers.append(_answers(model, X, y, rows))
            labels.append(np.full(len(rows), label))
    attack = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    attack.fit(np.concatenate(answers), np.concatenate(labels))

    inside, outside = _halves(target, y, random)
    model = _trained(classifier, X, y, inside)
    seen = np.concatenate([_answers(model, X, y, rows) for rows in (inside, outside)])
    truth = np.repeat([1, 0], [len(inside), len(outside)])
    scores = attack.predict_proba(seen)[:, 1]
    false, true, _ = roc_curve(truth, scores)
    predicted = model.predict(X[outside])
    return MembershipResult(
        accuracy=float(accuracy_score(truth, scores > 0.5)),
        auc=float(roc_auc_score(truth, scores)),
        advantage=float((true - false).max()),
        target_accuracy=float(accuracy_score(y[outside], predicted)),
        target_f1=float(f1_score(y[outside], predicted, average="macro")),
    )


def _halves(rows: NDArray[Any], y: NDArray[Any], random: Any) -> list[NDArray[Any]]:
    return train_test_split(rows, test_size=0.5, stratify=y[rows], random_state=random)


def _trained(classifier: Any, X: Any, y: NDArray[Any], rows: NDArray[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", SeededNoiseWarning)
        return clone(classifier).fit(X[rows], y[rows])


def _answers(model: Any, X: Any, y: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """What the classifier says: of the true class, and of the most likely ones."""
    probability = model.predict_proba(X[rows])
    own = np.searchsorted(model.classes_, y[rows])
    own_probability = np.log(np.maximum(probability[np.arange(len(rows)), own], 1e-12))
    return np.column_stack([own_probability, np.sort(probability, axis=1)[:, ::-1][:, :3]])
