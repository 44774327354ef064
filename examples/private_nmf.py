"""Private non-negative matrix factorization: the example of docs/extending.md."""

from numbers import Real

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dplda.core._base import BaseTopicModel
from dplda.core._corpus import check_counts
from dplda.core._fit_guarantee import make_guarantee, publish
from dplda.core._private_estimator import (
    NOISE_MULTIPLIER,
    PRIVACY_CONSTRAINTS,
    Interval,
    PrivateEstimator,
    Promise,
)
from dplda.core._private_fit import charge_of, exactly_one, gaussian_noise
from dplda.leaf._compat import _fit_context
from dplda.leaf._messages import rounds
from dplda.privacy import mechanisms
from dplda.privacy.mechanisms import Curator, Streams

SUMS = "sums of w w' and of x w'"


class PrivateNMF(PrivateEstimator, BaseTopicModel):
    """Factorize counts into topics, ``X ~ W H``, with document-level privacy.

    Parameters
    ----------
    n_components
    epsilon, noise_multiplier : float or None, default=None
        Total epsilon of a document, or noise of a round. Give exactly one.
    delta
    max_iter : int, default=20
        Number of rounds.
    contribution_norm : float, default=1.0
        Clipping bound of a document's contribution, in L2. A public constant.
    ledger
    n_jobs
    random_state
    verbose

    Notes
    -----
    **Privacy.** Unit: document. Sensitivity: `contribution_norm`, in L2, enforced by
    `sum_clipped`. Event: one ``Gaussian`` a round.

    Examples
    --------
    >>> PrivateNMF(2, epsilon=2.0).fit([[3, 0, 1], [0, 2, 2]]).components_.shape
    (2, 3)
    """

    _attack = "document"
    _promise = Promise(
        unit="document",
        relation="one document is added, removed, or replaced by an empty one",
        mechanism="discrete Gaussian noise on W'W and X'W in each round",
        theorem="docs/extending.md",
    )
    _parameter_constraints = {
        **BaseTopicModel._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        "noise_multiplier": NOISE_MULTIPLIER,
        "contribution_norm": [Interval(Real, 1e-6, 1e6, closed="both")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        noise_multiplier=None,
        delta=1e-6,
        max_iter=20,
        contribution_norm=1.0,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Train on private documents: `max_iter` rounds."""
        n_rounds = int(self.max_iter)  # public
        statements = {
            "epsilon": self.epsilon,
            "noise_multiplier": self.noise_multiplier,
        }
        exactly_one("PrivateNMF", **statements)
        mechanism = gaussian_noise(**statements, delta=self.delta, n_rounds=n_rounds)
        streams = Streams.from_random_state(self.random_state)  # secret
        plan = [(SUMS, mechanism.event)] * n_rounds  # public
        with charge_of(self, plan, unit="document", seeded=streams.seeded) as charge:
            counts = check_counts(self, X, reset=True).astype(float)  # private
            guarantee = make_guarantee(
                charge.events,
                charge=charge,
                delta=self.delta,
                sensitivity=self.contribution_norm,
                noise_scale=None,
                seeded=streams.seeded,
                **vars(self._promise),
            )
            charge.begin()
            curator = Curator(charge, streams)
            topics = self._rounds(
                counts, mechanism, curator, streams, n_rounds
            )  # public
            publish(self, guarantee, components_=topics, n_iter_=n_rounds)
        return self

    def transform(self, X):
        """Weights of documents, which are private, like the documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.

        Returns
        -------
        weights : ndarray of shape (n_docs, n_components)
            Non-negative weights of the components in each document.
        """
        check_is_fitted(self)
        X = check_counts(self, X, reset=False)
        return weights(X.astype(float), self.components_).astype(X.dtype)

    def _rounds(self, X, mechanism, curator, streams, n_rounds):
        """The algorithm: only what `curator.release` returns leaves the private `X`."""
        n_topics, n_words = int(self.n_components), X.shape[1]
        start = mechanisms.uniform(
            streams.reader(128, 0).words(n_topics * n_words)
        )  # public
        topics = normalized(start.reshape(n_topics, n_words) + 0.1)  # public
        norm = 1e6 if mechanism.exact else float(self.contribution_norm)  # public
        radius = 2**30 if mechanism.exact else mechanism.radius  # public
        for t in rounds(self, 1, n_rounds):
            sums = mechanisms.sum_clipped(
                contributions(X, topics), norm, radius
            )  # private
            # One document moves `sums` by at most `radius` in L2, for any content: its
            # row reads the document and the released topics only, and `sum_clipped`
            # clips the row.
            noisy = curator.release(sums, mechanism, label=SUMS, round=t)  # public
            table = noisy.reshape(n_topics + n_words, n_topics) * (norm / radius)
            gram, cross = (
                np.maximum(table[:n_topics], 1e-9),
                np.maximum(table[n_topics:].T, 0),
            )
            for _ in range(20):  # post-processing costs nothing
                topics = topics * (cross + 1e-12) / (gram @ topics + 1e-9)
            topics = normalized(np.maximum(topics, 1e-9))  # public
        return topics


def contributions(X, topics):
    """A row a document, scaled to unit length: w w', then x w' word by word."""
    X = sp.diags_array(1 / np.maximum(np.sqrt((X * X).sum(axis=1)), 1e-12)) @ X
    W, n_topics, n_entries = weights(X, topics), len(topics), np.diff(X.indptr)
    square = (W[:, :, None] * W[:, None, :]).reshape(len(W), -1)
    cross = X.data[:, None] * np.repeat(W, n_entries, axis=0)
    cell = X.indices[:, None] * n_topics + np.arange(n_topics)
    pointers, shape = X.indptr * n_topics, (len(W), X.shape[1] * n_topics)
    return sp.hstack(
        [square, sp.csr_array((cross.ravel(), cell.ravel(), pointers), shape)], "csr"
    )


def weights(X, topics):
    """Non-negative w with x ~ w H, a document at a time: docs/extending.md says why."""
    result, gram = np.zeros((X.shape[0], len(topics))), topics @ topics.T
    for d, (start, end) in enumerate(zip(X.indptr, X.indptr[1:])):
        projection = topics[:, X.indices[start:end]] @ X.data[start:end]
        w = np.full(len(topics), 0.1 * (end > start))
        for _ in range(50):
            w = w * (projection + 1e-12) / (gram @ w + 1e-9)
        result[d] = w
    return result


def normalized(topics):
    return topics / np.linalg.norm(topics, axis=1, keepdims=True)
