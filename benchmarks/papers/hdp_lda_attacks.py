"""The attacks of figures 4 and 7 of the HDP-LDA paper: on topics, and on membership."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score, roc_curve
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dplda.gibbs._frozen_table import HalfTable
from dplda.leaf._checks import check_integer
from dplda.privacy import PrivacyLeakWarning, SeededNoiseWarning
from dplda.privacy._recorder import Release
from dplda.published import PublishedHDPLDA

# Figure 4

COUNTS, TOPICS = "word-topic counts", "topics"


def topic_attack(
    model: Any, releases: list[Release], first: int, last: int, *, exact: bool = True
) -> NDArray[np.float64]:
    """Posterior of the last word of a document, from its topics in all sweeps.

    Parameters
    ----------
    model : estimator
        Fitted `HDPLDA` or `dplda.published.PublishedHDPLDA`.
    releases : list of Release
        Releases of that fit, as `dplda.audit.observe_releases` saw them.
    first, last : int
        The document's tokens in the released topics are ``first, ..., last - 1``.
    exact : bool, default=True
        True: Bayes' rule with the probabilities by which topics are drawn, the
        document's other topics included. Exact if counts are frozen during a sweep.
        False: Algorithm 3 of [1]_ with equation (24), which ignores the document and
        the clip.

    Returns
    -------
    posterior : ndarray of shape (n_sweeps, n_words)
        Probability of each word after so many sweeps. All words are equally likely
        before.

    Raises
    ------
    TypeError
        If `releases` are not releases, or `first` or `last` is not an integer.
    ValueError
        If there are no counts and topics among the releases, or the range of tokens is
        invalid.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training With Differential Privacy", IEEE TIFS, 2020, section
       VII-A.
    """
    if not all(isinstance(release, Release) for release in releases):
        raise TypeError("releases must be those that observe_releases saw")
    counts = [release.value for release in releases if release.label == COUNTS]
    topics = [release.value for release in releases if release.label == TOPICS]
    # `HDPLDA` draws none from its last counts
    n_silent = int(len(topics) == len(counts) - 1)
    counts = counts[: len(counts) - n_silent]
    if not counts or len(topics) < len(counts):
        raise ValueError(
            f"releases hold {len(counts)} tables of counts and {len(topics)} of "
            "topics; give what observe_releases saw of a word-level fit"
        )
    check_is_fitted(model, "topic_word_prior")
    last = check_integer("last", last, 1, len(topics[-1]))
    first = check_integer("first", first, 0, last - 1)
    topics = topics[-len(counts) :]  # the first topics depend on no counts
    before = [None, *topics[:-1]]
    gains = [
        _log_exact(model, noisy, drawn, old, first, last)
        if exact
        else log_by_equation_24(noisy, drawn[last - 1], float(model.topic_word_prior))
        for noisy, drawn, old in zip(counts, topics, before)
    ]
    total = np.cumsum(gains + [np.zeros_like(gains[-1])] * n_silent, axis=0)
    return np.exp(total - logsumexp(total, axis=1, keepdims=True))


def _log_exact(
    model: Any,
    noisy: NDArray[Any],
    drawn: NDArray[Any],
    old: NDArray[Any] | None,
    first: int,
    last: int,
) -> NDArray[np.float64]:
    """Log-probability of the topic that was drawn for the last token, for each word."""
    table = word_topic_weights(model, noisy)
    in_document = np.bincount(drawn[first : last - 1], minlength=table.shape[1]).astype(
        float
    )
    if isinstance(model, PublishedHDPLDA) and old is not None:
        in_document[old[last - 1]] += 1  # it counts the token itself
    return log_of_draw(table, in_document + model.doc_topic_prior, drawn[last - 1])


def log_of_draw(
    table: NDArray[np.float64], of_document: NDArray[np.float64], topic: int
) -> NDArray[np.float64]:
    """Log-probability that a token draws `topic`, for each word that it may be.

    The factors of words and topics are `table` (n_words, n_components), and those of
    the document `of_document` (n_components,).
    """
    weight = table * of_document
    return np.log(weight[:, topic] / weight.sum(axis=1))


def word_topic_weights(model: Any, noisy: NDArray[Any]) -> NDArray[np.float64]:
    """Factor of words and topics in a draw's probability, (n_words, n_components)."""
    beta = float(model.topic_word_prior)
    if hasattr(model, "count_clip_"):
        sweep = model._mechanisms()
        return HalfTable.from_counts(
            noisy, model.count_clip_, beta, mean=sweep.mechanism.mean
        ).values
    return clipped_weights(noisy, float(getattr(model, "count_clip", math.inf)), beta)


def clipped_weights(
    noisy: NDArray[Any], clip: float, beta: float
) -> NDArray[np.float64]:
    """Line 13 of Algorithm 1 without the document, (n_words, n_components)."""
    sizes = np.maximum(noisy.sum(axis=0), 0) + len(noisy) * beta
    return (np.clip(noisy, 0, clip) + beta) / sizes


def log_by_equation_24(
    noisy: NDArray[Any], topic: int, beta: float
) -> NDArray[np.float64]:
    """Equation (24): each word's share in the topic drawn for the last token."""
    # a count of 0 would exclude a word
    column = np.maximum(noisy[:, topic], 0) + beta
    return np.log(column / column.sum())


# Figure 7


@dataclass(frozen=True)
class MembershipResult:
    """Success of a membership attack.

    Parameters
    ----------
    accuracy : float
        Share of right answers. Members and others are equally many, so 0.5 is blind
        guessing.
    auc : float
        Area under the curve of true against false positives.
    advantage : float
        Largest difference of true and false positive rates. An (epsilon, delta) private
        training bounds it by ``(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1)``.
    target_accuracy, target_f1 : float
        Accuracy and F1, averaged over classes, of the attacked classifier on other
        documents.
    """

    accuracy: float
    auc: float
    advantage: float
    target_accuracy: float
    target_f1: float


def membership_attack(
    classifier: Any, X: Any, y: Any, *, n_shadows: int = 5, random_state: Any = None
) -> MembershipResult:
    """Infer documents' membership in a training set [1]_, as figure 7 of [2]_ does.

    Half of the documents belong to the attacked classifier, which is trained on half of
    them. The attacker has the other half, trains `n_shadows` classifiers of the same
    kind on halves of it, and learns from their answers what an answer about a training
    document looks like.

    Parameters
    ----------
    classifier : estimator
        With `fit` and `predict_proba`, as ``make_pipeline(SubLDA(...),
        LogisticRegression())``.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts.
    y : array-like of shape (n_docs,)
        Classes; each needs about ten documents.
    n_shadows : int, default=5
        Number of shadow classifiers, at least 1.
    random_state : int, RandomState instance or None, default=None
        Seed for the splits. The classifiers use their own `random_state`.

    Returns
    -------
    result : MembershipResult
        Success of the attack, and quality of the attacked classifier.

    Raises
    ------
    TypeError
        If the classifier has no `predict_proba`, or `n_shadows` is not an integer.
    ValueError
        If `n_shadows` is below 1, or `X` and `y` do not match.

    Notes
    -----
    The attack sees answers about the raw documents. Topic weights of a training
    document are a function of its words, and no epsilon of the topic model covers a
    classifier trained on them.

    References
    ----------
    .. [1] R. Shokri, M. Stronati, C. Song, V. Shmatikov, "Membership inference attacks
       against machine learning models", IEEE S&P 2017.
    .. [2] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training With Differential Privacy", IEEE TIFS, 2020, section
       VII-C.
    """
    n_shadows = check_integer("n_shadows", n_shadows, 1, 10**6)
    if not hasattr(classifier, "predict_proba"):
        raise TypeError(
            f"{type(classifier).__name__} has no predict_proba; give a classifier"
        )
    X, y = X.tocsr() if issparse(X) else np.asarray(X), np.asarray(y)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(
            "X must be a matrix of word counts and y have one class for each of its "
            f"rows, got shapes {X.shape} and {y.shape}"
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
    """Log-probability of the true class, and the three largest probabilities."""
    probability = model.predict_proba(X[rows])
    own = np.searchsorted(model.classes_, y[rows])
    own_probability = np.log(np.maximum(probability[np.arange(len(rows)), own], 1e-12))
    return np.column_stack(
        [own_probability, np.sort(probability, axis=1)[:, ::-1][:, :3]]
    )
