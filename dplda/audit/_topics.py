"""The topic-based attack of HDP-LDA: a word from the topics that were drawn for it."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from dplda import published
from dplda._gibbs import IntegerTable
from dplda.privacy._observation import Release

COUNTS, TOPICS = "word-topic counts", "topics"


def topic_attack(
    model: Any, releases: list[Release], first: int, last: int, *, exact: bool = True
) -> NDArray[np.float64]:
    """What the last word of a document is, from its topics in all sweeps.

    Parameters
    ----------
    model : estimator
        Fitted `HDPLDA` (word level), `dplda.published.PublishedHDPLDA` or `CDPLDA`.
    releases : list of Release
        Of that fit, as `observe_releases` saw them.
    first, last : int
        The document's tokens in the released topics are ``first, ..., last - 1``.
    exact : bool, default=True
        True: Bayes' rule with the probabilities by which topics are drawn, the document's other
        topics included. Exact if counts are frozen during a sweep. False: Algorithm 3 of [1]_ with
        equation (24), which leaves out the document and the clip.

    Returns
    -------
    posterior : ndarray of shape (n_sweeps, n_words)
        Probability of each word after so many sweeps, all words being equally likely before.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training With Differential Privacy", IEEE TIFS, 2020, section VII-A.
    """
    if not all(isinstance(release, Release) for release in releases):
        raise TypeError("releases must be those that observe_releases saw")
    counts = [release.value for release in releases if release.label == COUNTS]
    topics = [release.value for release in releases if release.label == TOPICS]
    if not counts or len(topics) < len(counts):
        raise ValueError(
            f"releases hold {len(counts)} tables of counts and {len(topics)} of topics; give what "
            "observe_releases saw of a word-level fit"
        )
    check_is_fitted(model, "topic_word_prior")
    n_tokens = len(topics[-1])
    whole = isinstance(first, Integral) and isinstance(last, Integral)
    if not (whole and 0 <= first < last <= n_tokens):
        raise ValueError(
            f"first and last must be integers, 0 <= first < last <= {n_tokens} (tokens), got "
            f"{first} and {last}"
        )
    topics = topics[-len(counts) :]  # without the first ones, which no counts led to
    before = [None, *topics[:-1]]
    gains = [
        _log_exact(model, noisy, drawn, old, first, last)
        if exact
        else _log_published(noisy, drawn, last, float(model.topic_word_prior))
        for noisy, drawn, old in zip(counts, topics, before)
    ]
    total = np.cumsum(gains, axis=0)
    return np.exp(total - logsumexp(total, axis=1, keepdims=True))


def _log_exact(
    model: Any,
    noisy: NDArray[Any],
    drawn: NDArray[Any],
    old: NDArray[Any] | None,
    first: int,
    last: int,
) -> NDArray[np.float64]:
    """Log-probability, for each word, of the topic that was drawn for the last token."""
    table = word_topic_weights(model, noisy)
    in_document = np.bincount(drawn[first : last - 1], minlength=table.shape[1]).astype(float)
    if isinstance(model, published.PublishedHDPLDA) and old is not None:
        in_document[old[last - 1]] += 1  # it counts the token itself
    weight = table * (in_document + model.doc_topic_prior)
    return np.log(weight[:, drawn[last - 1]] / weight.sum(axis=1))


def word_topic_weights(model: Any, noisy: NDArray[Any]) -> NDArray[np.float64]:
    """The factor of words and topics in the probability of a draw, (n_words, n_components)."""
    beta = float(model.topic_word_prior)
    if hasattr(model, "count_clip_"):
        counts = model._mechanisms().unbiased(noisy)
        frozen = IntegerTable.from_counts(counts, model.count_clip_, beta)
        return frozen.weight[:, : noisy.shape[1]] * frozen.topic_scale
    clip = float(getattr(model, "count_clip", math.inf))
    sizes = np.maximum(noisy.sum(axis=0), 0) + len(noisy) * beta
    return (np.clip(noisy, 0, clip) + beta) / sizes


def _log_published(
    noisy: NDArray[Any], drawn: NDArray[Any], last: int, beta: float
) -> NDArray[np.float64]:
    column = np.maximum(noisy[:, drawn[last - 1]], 0) + beta  # a count of 0 would exclude a word
    return np.log(column / column.sum())
