"""Private topic modeling as Park et al. publish it, with its errors: not private."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
import scipy.sparse as sp

from dplda.core._base import BaseLDA
from dplda.core._fit_guarantee import make_guarantee, publish
from dplda.core._fold_in import e_step, exp_dirichlet_expectation
from dplda.core._private_estimator import PRIVACY_CONSTRAINTS, Interval
from dplda.document._noisy_table import nearly_equal
from dplda.leaf._messages import rounds
from dplda.privacy import Gaussian, Guarantee, NonPrivate, Repeated
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy._recorder import announce
from dplda.privacy._streams import Purpose, Streams, uniform
from dplda.privacy.mechanisms import DiscreteGaussian, NoNoise
from dplda.published._base import Flaw, PublishedLDA, noise_range

LARGEST_COUNT = 1e28  # 2**31 of them still have a finite sum as float32
STATISTICS = "expected statistics"


class PublishedPrivateSVILDA(PublishedLDA):
    """Private topic modeling as its paper prints it: its epsilon is not the stated one.

    Algorithm 1 of [1]_: online variational Bayes in which the mean of a minibatch's
    expected sufficient statistics gets Gaussian noise. :class:`dplda.PrivateSVILDA` is
    the sound form.

    Parameters
    ----------
    n_components
    published_epsilon : float
        Total epsilon to spend by the count of [1]_ (epsilon_tot), from 1e-9; must be
        given. Not a guarantee. ``inf`` adds no noise.
    delta : float, default=1e-4
        The delta of (epsilon, delta)-differential privacy (delta_tot), up to 0.001.
        Choose it well below 1 / n_docs. The default is from [1]_.
    batch_size : int, default=10
        Number of documents in a minibatch (S), at most the number of documents.
    max_doc_tokens : int, default=200
        A longer document is cut to this many tokens (N), drawn at random once. A public
        constant: never compute it from the data.
    max_iter : int, default=100
        Number of rounds (J), each with one minibatch.
    doc_topic_prior
    topic_word_prior
    learning_decay : float, default=0.7
        Exponent of the learning rate, in (0.5, 1] (kappa).
    learning_offset : float, default=10.0
        Reduces the learning rate of the first rounds, at least 1 (tau_0). The rate of
        round t is ``(learning_offset + t) ** -learning_decay``.
    n_jobs, random_state, verbose : optional
        As in :class:`dplda.GibbsLDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Parameters of the topics' Dirichlet distributions (lambda).
    epsilon_ : float
        The epsilon that can be proved, for a document that is replaced by another.
        Usually many thousands. `privacy_` states it in full.
    published_epsilon_ : float
        The claim of [1]_: `published_epsilon`. Not a guarantee.
    noise_multiplier_ : float
        Noise of a round in units of ``max_doc_tokens / n_docs`` (sigma over Delta s in
        [1]_), by equations (5), (6) and (3) of [1]_.
    n_iter_ : int
        Number of rounds that ran.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation: one document is replaced by
    another; their number is public. Sensitivity: ``sqrt(2) * max_doc_tokens /
    batch_size``, in L2. Event: ``Gaussian(noise_multiplier_ * batch_size / n_docs /
    sqrt(2))`` in each round. Equation (4) is the sensitivity of a mean over all D
    documents, and Algorithm 1 releases a mean over S of them (``docs/papers.md``).

    This implementation reads [1]_ as follows. A minibatch is a uniformly random set of
    S documents, drawn anew in each round; no amplification by sampling is proved.
    delta' is ``delta / max_iter``. Negative noisy statistics become 0, as below
    equation (3), after the fit has announced them. The first topics, which [1]_ leaves
    open, are nearly equal, as in [2]_. The accounting treats sums and noise as real
    numbers.

    References
    ----------
    .. [1] M. Park, J. Foulds, K. Chaudhuri, M. Welling, "Private Topic Modeling", NIPS
       workshop on private multi-party machine learning, 2016, Algorithm 1.
    .. [2] M. Hoffman, D. Blei, F. Bach, "Online learning for latent Dirichlet
       allocation", NIPS, 2010.
    """

    _flaw = Flaw(
        hole="the noise is calibrated for the mean over all documents, which one "
        "document changes by max_doc_tokens / n_docs, but the release is the mean over "
        "a minibatch, which one document changes by max_doc_tokens / batch_size",
        instead="dplda.PrivateSVILDA",
    )
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "published_epsilon": noise_range(),
        "delta": PRIVACY_CONSTRAINTS["delta"],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_doc_tokens": [Interval(Integral, 1, 10**7, closed="both")],
        "learning_decay": [Interval(Real, 0.5, 1, closed="right")],
        "learning_offset": [Interval(Real, 1, 1e9, closed="both")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        published_epsilon=None,
        delta=1e-4,
        batch_size=10,
        max_doc_tokens=200,
        max_iter=100,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        learning_decay=0.7,
        learning_offset=10.0,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    def _train(self, X: sp.csr_array, streams: Streams) -> None:
        n_docs, n_words = X.shape  # public: the relation replaces a document
        n_components = int(self.n_components)
        batch_size = int(self.batch_size)
        if self.batch_size > n_docs:
            raise ValueError(
                f"batch_size must be at most the number of documents: batch_size is "
                f"{self.batch_size}, but X has {n_docs} documents; lower it"
            )
        multiplier = 0.0
        mechanism: Mechanism = NoNoise()
        if self.published_epsilon != math.inf:  # equations (3), (5) and (6)
            multiplier = vips_noise(
                float(self.published_epsilon),
                float(self.delta),
                ratio=self.batch_size / n_docs,
                max_iter=int(self.max_iter),
            )
            mechanism = DiscreteGaussian.for_noise_multiplier(multiplier)
        guarantee = self._guarantee(multiplier, n_docs, streams.seeded)
        if guarantee.epsilon > self.published_epsilon:
            self._flaw.warn(
                self,
                f"has epsilon = {guarantee.epsilon:.3g}, not the stated epsilon "
                f"{self.published_epsilon:g}",
            )
        X = shorten(X.astype(float), int(self.max_doc_tokens), streams)  # private
        # A document's statistics have L2 norm at most N, its number of tokens.
        # Replacing one document changes the mean over S of them by up to sqrt(2) N / S.
        # The noise is calibrated for a change of N / D, because equation (4) is about
        # the mean over all documents.
        steps = getattr(mechanism, "radius", 2**30)  # many if there is no noise
        grid = float(steps) * n_docs / int(self.max_doc_tokens)
        # Dirichlet parameters around 1, of standard deviation 0.1
        bits = streams.reader(Purpose.INITIAL_TABLE, 0).words(n_words * n_components)
        first = nearly_equal(uniform(bits, positive=True))
        table = first.reshape(n_words, n_components)  # public
        for t in rounds(self, 1, self.max_iter):
            rows = uniform_sample(n_docs, batch_size, streams, t)  # secret
            statistics = self._expected_statistics(X[rows], table)  # private
            mean = statistics / batch_size  # private
            value = np.rint(mean * grid).astype(np.int64)  # private
            noisy = mechanism(value, streams.reader(Purpose.NOISE, t)) / grid  # public
            announce(STATISTICS, t, noisy)  # public
            rate = (self.learning_offset + t) ** -self.learning_decay
            counts = n_docs * np.maximum(noisy, 0)  # public
            step = float(self.topic_word_prior) + counts  # public
            table = (1 - rate) * table + rate * step  # public
        publish(  # public
            self,
            guarantee,
            components_=table.T,
            n_iter_=int(self.max_iter),
            published_epsilon_=float(self.published_epsilon),
            noise_multiplier_=multiplier,
        )

    def _expected_statistics(self, X: sp.csr_array, table: np.ndarray) -> np.ndarray:
        """Sum over documents and tokens of phi_dn^k w_dn^v (n_words, n_components)."""
        factor = exp_dirichlet_expectation(table, float, self.n_jobs)
        _, theta = e_step(
            X,
            factor,
            n_components=table.shape[1],
            doc_topic_prior=self.doc_topic_prior,
            n_jobs=self.n_jobs,
        )
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        sizes = np.einsum("ik,ik->i", theta[rows], factor[X.indices])
        # a tiny prior underflows
        share = X.data / np.maximum(sizes, np.finfo(float).tiny)
        share = sp.csr_array((share, X.indices, X.indptr), X.shape)
        return (factor * (share.T @ theta))[:, : table.shape[1]]

    def _guarantee(self, multiplier: float, n_docs: int, seeded: bool) -> Guarantee:
        sensitivity = math.sqrt(2) * self.max_doc_tokens / self.batch_size
        scale = multiplier * self.max_doc_tokens / n_docs
        event: Event = NonPrivate()
        mechanism = "exact mean of a minibatch's expected statistics, each round"
        if scale > 0:
            event = Gaussian(scale / sensitivity)
            mechanism = (
                "Gaussian noise (idealized: rounding to its grid is not counted) on "
                "the mean of a minibatch's expected statistics, each round; the "
                f"published epsilon, {self.published_epsilon:g}, is for a mean over "
                "all documents"
            )
        return make_guarantee(
            [Repeated(event, int(self.max_iter))],
            delta=self.delta,
            unit="document",
            relation="one document is replaced by another; how many there are is "
            "public",
            mechanism=mechanism,
            sensitivity=sensitivity,
            noise_scale=scale,
            seeded=seeded,
            assumptions=("sums and noise are real numbers",),
        )


def uniform_sample(n_docs: int, size: int, streams: Streams, t: int) -> np.ndarray:
    """Increasing indices of `size` documents in round t; all are equally likely."""
    keys = streams.reader(Purpose.MEMBERSHIP, t).words(n_docs)
    return np.sort(np.argpartition(keys, size - 1)[:size])


def vips_noise(epsilon: float, delta: float, *, ratio: float, max_iter: int) -> float:
    """The noise multiplier of Park et al. (2016): equations (5), (6), (3).

    It is a standard deviation over the sensitivity (sigma over Delta s). `ratio` is the
    share of the documents in a round (nu), `max_iter` the number of rounds (J). **The
    equations are not a proof.** (epsilon, delta)-DP of a round does not imply the zCDP
    of equation (5), and equation (3) is a theorem for ``epsilon_iter <= 1`` only.
    """
    delta_round = delta / max_iter  # delta', which the paper leaves open
    if not delta_round < ratio:
        raise ValueError(
            f"delta of a round must be below the share of its documents ({ratio:g}), "
            f"got {delta_round:g}: their ratio is a probability; lower delta"
        )
    # (5): rho + 2 sqrt(rho log(1/delta)) = epsilon, shared by the rounds
    log_delta = math.log(1.0 / delta)
    roots = math.sqrt(log_delta + epsilon) + math.sqrt(log_delta)
    rho = (epsilon / roots) ** 2
    epsilon_round = math.sqrt(4.0 * rho / max_iter * math.log(1.25 / delta_round))
    # (6) solved for epsilon_iter: log(1 + (exp(epsilon_round) - 1) / ratio)
    if epsilon_round < 1.0:
        epsilon_iter = math.log1p(math.expm1(epsilon_round) / ratio)
    else:
        epsilon_iter = epsilon_round - math.log(ratio)
        epsilon_iter += math.log1p((ratio - 1.0) * math.exp(-epsilon_round))
    return math.sqrt(2.0 * math.log(1.25 / (delta_round / ratio))) / epsilon_iter


def shorten(X: sp.csr_array, max_doc_tokens: int, streams: Streams) -> sp.csr_array:
    """Cut each longer document to `max_doc_tokens` tokens, drawn without replacement.

    The running time grows with `max_doc_tokens`, not with the length of the document.
    """
    cut = X.copy()
    cut.data = np.minimum(cut.data, LARGEST_COUNT)
    for row in np.flatnonzero(cut.sum(axis=1) > max_doc_tokens).tolist():
        # a stream for each document, so no document's tokens depend on another's length
        reader = streams.reader(Purpose.ORDER, 0, row)
        counts = cut.data[cut.indptr[row] : cut.indptr[row + 1]]
        cumulative = np.cumsum(counts)
        length = int(cumulative[-1])
        drop = 2 * max_doc_tokens > length  # then choose the tokens to remove
        n_chosen = length - max_doc_tokens if drop else max_doc_tokens
        chosen = np.empty(0)
        while len(chosen) < n_chosen:
            drawn = uniform(reader.words(2 * (n_chosen - len(chosen))))
            both = np.concatenate([chosen, np.floor(drawn * length)])
            _, first = np.unique(both, return_index=True)
            chosen = both[np.sort(first)][:n_chosen]
        of_word = np.searchsorted(cumulative, chosen, side="right")
        taken = np.bincount(of_word, minlength=len(counts))
        counts[:] = counts - taken if drop else taken
    cut.eliminate_zeros()
    return cut
