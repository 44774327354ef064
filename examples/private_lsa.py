"""Private latent semantic analysis: signed components by noisy power iteration."""

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

SUMS = "sums of x (x' Q)"


class PrivateLSA(PrivateEstimator, BaseTopicModel):
    """Right singular vectors of unit-length documents, with document-level privacy.

    Parameters
    ----------
    n_components
    epsilon, noise_multiplier : float or None, default=None
        Total epsilon of a document, or the noise of a round. Give exactly one.
    delta
    max_iter : int, default=5
        Number of rounds.
    contribution_norm : float, default=1.0
        Clipping bound of a document's contribution, in L2. A public constant.
    ledger
    n_jobs
    random_state
    verbose

    Notes
    -----
    **Privacy.** Unit: document. Relation: one document is added, removed, or replaced
    by an empty one. Sensitivity: `contribution_norm`, in L2, enforced by `sum_clipped`.
    Event: one ``Gaussian`` a round.

    Examples
    --------
    >>> model = PrivateLSA(2, epsilon=2.0).fit([[3, 0, 1], [0, 2, 2]])
    >>> model.components_.shape
    (2, 3)
    """

    _attack = "document"
    _promise = Promise(
        unit="document",
        relation="one document is added, removed, or replaced by an empty one",
        mechanism="discrete Gaussian noise on X'XQ in each round",
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
        max_iter=5,
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
        statements = {
            "epsilon": self.epsilon,
            "noise_multiplier": self.noise_multiplier,
        }
        exactly_one("PrivateLSA", **statements)
        n_rounds = int(self.max_iter)  # public
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
            basis = self._rounds(
                counts, mechanism, curator, streams, n_rounds
            )  # public
            publish(self, guarantee, components_=basis, n_iter_=n_rounds)
        return self

    def transform(self, X):
        """Coordinates of documents, which are private, like the documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.

        Returns
        -------
        coordinates : ndarray of shape (n_docs, n_components)
            Scalar products of documents and components.
        """
        check_is_fitted(self)
        X = check_counts(self, X, reset=False)
        return (X @ self.components_.T).astype(X.dtype)

    def _rounds(self, X, mechanism, curator, streams, n_rounds):
        """The algorithm: only what `curator.release` returns leaves the private `X`."""
        n_components, n_words = min(int(self.n_components), X.shape[1]), X.shape[1]
        words = streams.reader(128, 0).words(n_words * n_components)
        start = mechanisms.uniform(words).reshape(n_words, n_components) - 0.5
        basis = np.linalg.qr(start)[0]  # public
        norm = 1e6 if mechanism.exact else float(self.contribution_norm)  # public
        radius = 2**30 if mechanism.exact else mechanism.radius  # public
        for t in rounds(self, 1, n_rounds):
            sums = mechanisms.sum_clipped(
                contributions(X, basis), norm, radius
            )  # private
            # One document moves `sums` by at most `radius` in L2, for any content: its
            # row reads the document and the released basis only, and `sum_clipped`
            # clips the row.
            noisy = curator.release(sums, mechanism, label=SUMS, round=t)  # public
            basis = np.linalg.qr(
                noisy.reshape(n_words, n_components) * (norm / radius)
            )[0]
        return basis.T


def contributions(X, basis):
    """One row for each document x of unit length: x (x' Q), word by word."""
    X = sp.diags_array(1 / np.maximum(np.sqrt((X * X).sum(axis=1)), 1e-12)) @ X
    n_components, scores = basis.shape[1], np.zeros((X.shape[0], basis.shape[1]))
    # no sum over documents
    for d, (start, end) in enumerate(zip(X.indptr, X.indptr[1:])):
        scores[d] = (X.data[start:end, None] * basis[X.indices[start:end]]).sum(axis=0)
    values = X.data[:, None] * np.repeat(scores, np.diff(X.indptr), axis=0)
    cells = X.indices[:, None] * n_components + np.arange(n_components)
    shape = X.shape[0], X.shape[1] * n_components
    return sp.csr_array((values.ravel(), cells.ravel(), X.indptr * n_components), shape)
