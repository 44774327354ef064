"""Private non-negative matrix factorization: the worked example of docs/extending.md."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dplda._base import BaseTopicModel
from dplda._compat import Interval, _fit_context
from dplda._corpus import check_counts
from dplda._private_fit import (
    PRIVACY_CONSTRAINTS,
    exactly_one,
    make_guarantee,
    publish,
    warn_if_seeded,
)
from dplda._progress import rounds
from dplda.privacy import calibrate
from dplda.privacy.mechanisms import (
    TOTAL_VARIATION,
    Curator,
    DiscreteGaussian,
    NoNoise,
    Purpose,
    Streams,
    sum_clipped,
    uniform,
)

SUMS = "sums of w w' and of x w'"


class PrivateNMF(BaseTopicModel):
    """Factorize counts into topics, ``X ~ W H``, with document-level privacy.

    Parameters
    ----------
    epsilon, noise_multiplier : float or None, default=None
        Total epsilon of a document, or the noise of a round. Give exactly one.
    contribution_norm : float, default=1.0
        Clipping bound of a document's contribution, in L2. A public constant.
    n_components, delta, max_iter, ledger, n_jobs, random_state, verbose
        See `dplda.SubLDA`.

    Notes
    -----
    **Privacy.** Unit: document. Relation: one document is added, removed, or replaced by an empty
    one. Sensitivity: `contribution_norm`, in L2, enforced by `sum_clipped`. Event: one ``Gaussian``
    a round.
    """

    _attack = "document"
    _parameter_constraints = {
        **BaseTopicModel._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        "contribution_norm": [Interval(Real, 1e-6, 1e6, closed="both")],
    }

    def __init__(
        self, n_components=10, *, epsilon=None, noise_multiplier=None, delta=1e-6, max_iter=20,
        contribution_norm=1.0, ledger=None, n_jobs=None, random_state=None, verbose=0,
    ):  # fmt: skip
        self.n_components = n_components
        self.epsilon = epsilon
        self.noise_multiplier = noise_multiplier
        self.delta = delta
        self.max_iter = max_iter
        self.contribution_norm = contribution_norm
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> PrivateNMF:
        """Train on private documents: `max_iter` rounds."""
        exactly_one("PrivateNMF", epsilon=self.epsilon, noise_multiplier=self.noise_multiplier)
        mechanism = self._budget()  # public
        streams = Streams.from_random_state(self.random_state)  # secret
        warn_if_seeded("PrivateNMF", streams.seeded and self.epsilon != math.inf)
        plan = [(SUMS, mechanism.event)] * int(self.max_iter)  # public
        name = {"label": "PrivateNMF", "unit": "document"}
        with Curator(plan, streams, **name, ledger=self.ledger) as curator:
            counts = check_counts(self, X, reset=True).astype(float)  # private
            topics = self._rounds(counts, None, mechanism, curator, streams, int(self.max_iter))
        guarantee = make_guarantee(
            curator.events, delta=self.delta, earlier=None, unit="document",
            relation="one document is added, removed, or replaced by an empty one",
            mechanism="discrete Gaussian noise on W'W and X'W in each round",
            sensitivity=self.contribution_norm, noise_scale=None, noise_multiplier=None,
            seeded=streams.seeded,
        )  # fmt: skip
        publish(self, guarantee, components_=topics, n_iter_=int(self.max_iter))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Weights of documents, (n_docs, n_components): private, like the documents."""
        check_is_fitted(self)
        X = check_counts(self, X, reset=False)
        return weights(X.astype(float), self.components_).astype(X.dtype)

    def _budget(self) -> Any:
        """The mechanism of a round."""
        gaussian = DiscreteGaussian.for_noise_multiplier
        if self.noise_multiplier is not None:
            return gaussian(float(self.noise_multiplier))
        if self.epsilon == math.inf:
            return NoNoise()
        return gaussian(calibrate(
            lambda m: [gaussian(m).event] * int(self.max_iter),
            self.epsilon, self.delta, total_variation=TOTAL_VARIATION,
        ))  # fmt: skip

    def _rounds(self, X, table, mechanism, curator, streams, n_rounds) -> np.ndarray:
        """The algorithm. Nothing leaves the private `X` but what `curator.release` returns."""
        n_topics, n_words = int(self.n_components), X.shape[1]
        words = streams.words(Purpose.INITIAL_TABLE, 0, 0, n_topics * n_words)
        topics = normalized(uniform(words).reshape(n_topics, n_words) + 0.1)  # public
        norm = 1e6 if mechanism.exact else float(self.contribution_norm)  # public
        radius = 2**30 if mechanism.exact else mechanism.radius  # public
        for t in rounds(self, 1, n_rounds):
            sums = sum_clipped(contributions(X, topics), norm, radius)  # private
            # One document moves `sums` by at most `radius` in L2, whatever it holds: its row reads
            # the document and the released topics only, and `sum_clipped` clips the row.
            noisy = curator.release(sums, mechanism, label=SUMS, round=t)  # public
            table = noisy.reshape(n_topics + n_words, n_topics) * (norm / radius)
            gram, cross = np.maximum(table[:n_topics], 1e-9), np.maximum(table[n_topics:].T, 0)
            for _ in range(20):  # post-processing costs nothing
                topics = topics * (cross + 1e-12) / (gram @ topics + 1e-9)
            topics = normalized(np.maximum(topics, 1e-9))  # public
        return topics


def contributions(X: sp.csr_array, topics: np.ndarray) -> sp.csr_array:
    """One row for each document, scaled to unit length: w w', then x w' word by word."""
    lengths = np.sqrt(X.multiply(X).sum(axis=1))
    X = sp.csr_array(sp.diags_array(1 / np.maximum(lengths, 1e-12)) @ X)
    W, n_topics = weights(X, topics), len(topics)
    square = (W[:, :, None] * W[:, None, :]).reshape(len(W), -1)
    row = np.repeat(np.arange(len(W)), np.diff(X.indptr) * n_topics)
    column = (X.indices[:, None] * n_topics + np.arange(n_topics)).ravel()
    cross = (X.data[:, None] * np.repeat(W, np.diff(X.indptr), axis=0)).ravel()
    shape = (len(W), X.shape[1] * n_topics)
    return sp.csr_array(sp.hstack([square, sp.coo_array((cross, (row, column)), shape)]))


def weights(X: sp.csr_array, topics: np.ndarray) -> np.ndarray:
    """Non-negative w with x ~ w H for each document.

    Documents are worked on one at a time. A matrix product over all documents may round one row
    differently when another row is removed, and every contribution would then depend on it.
    """
    result, gram = np.zeros((X.shape[0], len(topics))), topics @ topics.T
    for d in range(X.shape[0]):
        span = slice(X.indptr[d], X.indptr[d + 1])
        if X.data[span].size:
            projection, w = topics[:, X.indices[span]] @ X.data[span], np.full(len(topics), 0.1)
            for _ in range(50):
                w = w * (projection + 1e-12) / (gram @ w + 1e-9)
            result[d] = w
    return result


def normalized(topics: np.ndarray) -> np.ndarray:
    return topics / np.linalg.norm(topics, axis=1, keepdims=True)
