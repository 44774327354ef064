"""Base classes of all topic models: parameter checks, inference by released tables."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import TypeAlias, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import Matrix, are_shards, check_counts, check_shards
from dplda.core._fold_in import fold_in
from dplda.core._perplexity import held_out_log_likelihood
from dplda.core._private_estimator import Described, Interval
from dplda.leaf._checks import LARGEST
from dplda.leaf._messages import warn_user
from dplda.leaf._rows import collected
from dplda.privacy import PrivacyLeakWarning

MAX_COMPONENTS = 2**16  # with 100,000 words, the table takes 52 GB
# No default has more than 400. A fit lists all rounds before round 1, and accounting
# for a million takes minutes.
MAX_ITER = 10_000
# Constraints of parameters, as scikit-learn checks them.
Constraints: TypeAlias = Mapping[str, Sequence[object]]


def last_quarter(max_iter: int) -> int:
    """How many of the last sweeps of a sampler are averaged; enters seeded results."""
    return math.ceil(max_iter / 4)


class BaseTopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Described):
    """Parameter checks and tags of all topic models.

    It reads public attributes only. The file of each estimator has its private and
    public lines in order, where an auditor looks for them.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.

    Attributes
    ----------
    n_features_in_ : int
        Size of the vocabulary.
    """

    _parameter_constraints: Constraints = {
        "n_components": [Interval(Integral, 1, MAX_COMPONENTS, closed="both")],
        "max_iter": [Interval(Integral, 1, MAX_ITER, closed="both")],
        "n_jobs": [
            None,
            Interval(Integral, 1, None, closed="left"),
            Interval(Integral, None, -1, closed="right"),
        ],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __sklearn_is_fitted__(self) -> bool:
        # a failed fit leaves n_features_in_ set
        return hasattr(self, "components_")

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class BaseLDA(BaseTopicModel):
    """Inference of latent Dirichlet allocation: `transform`, `score` and `perplexity`.

    Parameters
    ----------
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (alpha).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Released pseudo-counts of words in topics; not normalized.
    doc_topic_prior_ : float
        Dirichlet parameter of the topics of documents that are transformed or scored.
    topic_evidence_ : ndarray of shape (n_components,)
        z-score of each topic: how clearly one half of a document's words confirms what
        the topic predicts for the other half. If the words of a topic do not belong
        together, its z-score is at most standard normal. All are NaN if the topics
        could not be tested: with fewer than 8 rounds, or with one topic.
    weak_topics_ : ndarray of shape (n_components,), bool
        Topics that may be noise. Of the other topics, at most one in ten is expected to
        be noise. All are weak if they could not be tested.
    """

    # a file is no metadata that a pipeline routes
    __metadata_request__transform = {"out": UNUSED}

    _parameter_constraints: Constraints = {
        **BaseTopicModel._parameter_constraints,
        "doc_topic_prior": [Interval(Real, 0, LARGEST, closed="right")],
        "topic_word_prior": [Interval(Real, 0, LARGEST, closed="right")],
    }

    @property
    def doc_topic_prior_(self) -> float:
        return self.doc_topic_prior

    def transform(
        self, X: Matrix, out: str | os.PathLike[str] | None = None
    ) -> np.ndarray:
        """Topic weights of documents, by fold-in.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts, or weights on the scale of counts.
        out : str or path-like, default=None
            A .npy file for the weights, which is replaced, and which only you can read:
            for results larger than the memory, such as those of a `CountShards`.

        Returns
        -------
        theta : ndarray of shape (n_docs, n_components)
            Topic weights; rows sum to 1. A row depends on that row of `X` and on the
            model only. An empty document gets equal weights. With `out`, a read-only
            memory map of the file.

        Raises
        ------
        ValueError
            If `X` does not have the width of the fitted model, or does not hold word
            counts.

        Notes
        -----
        **Privacy.** The model protects the documents that it was trained on. A row of
        the result is private: it depends on the words of that row, and `epsilon_` does
        not cover it. This is also true of `fit_transform`.
        """
        check_is_fitted(self)
        return collected(self._doc_topics(X), out)

    def _doc_topics(self, X: Matrix) -> Iterator[np.ndarray]:
        """Topic weights of consecutive documents."""
        for counts in self._read(X):
            theta = fold_in(
                counts,
                self.components_,
                self.doc_topic_prior_,
                self.n_jobs,
                counts.dtype,
            )
            theta /= theta.sum(axis=1, keepdims=True)
            yield theta

    def _read(self, X: Matrix) -> Iterable[sp.csr_array]:
        """The checked counts of new documents, one shard after the other."""
        if are_shards(X):
            check_shards(self, X, reset=False)
            return cast(Iterable[sp.csr_array], X)
        return [check_counts(self, X, reset=False, whole=False)]

    def score(self, X: Matrix, y: object = None) -> float:
        """Mean held-out log-likelihood per token, by document completion.

        Higher is better.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts of documents that the model was not trained on.
        y : Ignored
            Ignored.

        Returns
        -------
        score : float
            Natural logarithm of the held-out likelihood, divided by the number of
            scored tokens.

        Notes
        -----
        **Privacy.** The score of private documents is a release that `epsilon_` does
        not cover.
        """
        return self._log_likelihood(X, completion=True)

    def perplexity(self, X: Matrix, *, completion: bool = True) -> float:
        """Held-out perplexity, ``exp(-score(X))``; lower is better.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts of documents that the model was not trained on.
        completion : bool, default=True
            True infers a document's topic weights from one half of its tokens and
            scores the other half. False infers the weights from the tokens that it
            scores, as the papers do.

        Returns
        -------
        perplexity : float
            At least 1.

        Notes
        -----
        **Privacy.** The perplexity of private documents is a release that `epsilon_`
        does not cover.
        """
        return float(np.exp(-self._log_likelihood(X, completion=completion)))

    def _log_likelihood(self, X: Matrix, *, completion: bool) -> float:
        check_is_fitted(self)
        if getattr(self, "epsilon_", np.inf) < np.inf:
            _warn_of_exact_scores()
        return held_out_log_likelihood(
            self.components_,
            self._read(X),
            self.doc_topic_prior_,
            completion,
            self.n_jobs,
        )


@cache  # warns once in a process, because a search scores many times
def _warn_of_exact_scores() -> None:
    warn_user(
        "scores and perplexities are exact: for private documents they are releases "
        "that no epsilon covers, and so is a choice based on them. Use "
        "dplda.metrics.noisy_score for private documents. For public documents you "
        "need not act",
        PrivacyLeakWarning,
    )
