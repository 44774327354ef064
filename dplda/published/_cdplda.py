"""CDP-LDA and CDP-LDA+, not private: Gibbs sampling with Laplace noise on its counts."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from dplda.core._base import BaseLDA
from dplda.core._corpus import Corpus, check_counts
from dplda.core._fold_in import pad
from dplda.core._private_fit import no_guarantee, publish, released_so_far
from dplda.kernels import _gibbs
from dplda.leaf._compat import Interval, Options, StrOptions, _fit_context
from dplda.leaf._progress import rounds
from dplda.leaf._warnings import warn_user
from dplda.privacy import Guarantee, PrivacyLeakWarning
from dplda.privacy._curator import announce
from dplda.privacy._streams import Purpose, Reader, Streams
from dplda.privacy.mechanisms import FlooredLaplace, NoNoise

# Noise is drawn in steps of 1 / GRID: whole steps would drown the small noise of a large epsilon.
GRID = 256
SMALLEST_EPSILON, LARGEST_EPSILON = 0.003, 5000.0  # the noise tables reach scales GRID / epsilon

COUNTS, TOPICS = "word-topic counts", "topics"  # what an observer of the training sees
WORDS, DOCUMENTS = 0, 1  # blocks of the noise stream

HOLES = {
    "first_sweep": "raw words continue to change the counts after the only noise",
    "every_sweep": "raw words choose the topics by live counts without a clip, and continue to "
    "change the counts after the last noise",
}


class CDPLDA(BaseLDA):
    """Collapsed Gibbs sampling with Laplace noise on its counts: not private.

    The baseline of HDP-LDA and LP-LDA in [1]_. The word-topic and the document-topic counts get
    Laplace noise of scale ``1 / noise_epsilon``, in the first sweep (CDP-LDA, after [2]_) or in
    every sweep (CDP-LDA+). :class:`dplda.HDPLDA` protects words, :class:`dplda.SubLDA` documents.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    noise_epsilon : float
        Inverse of the scale of the noise of one sweep, from 0.003 to 5000; must be given. It is not
        a guarantee. ``inf`` gives the result of ``dplda.GibbsLDA(exact=True)``, bit for bit.
    noise_at : {"first_sweep", "every_sweep"}, default="first_sweep"
        Sweeps that add noise. "first_sweep" adds it before the first sweep of a call, and it stays
        in the counts (CDP-LDA). "every_sweep" adds it before each sweep, to the earlier noise
        (CDP-LDA+).
    max_iter : int, default=100
        Number of sweeps over the corpus.
    doc_topic_prior : float or None, default=0.1
        Dirichlet parameter of a document's topics (alpha); None is 1 / n_components.
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    n_jobs : int or None, default=None
        Number of threads of `transform` and `score`. Training is sequential. It never changes a
        result.
    random_state : int, RandomState instance or None, default=None
        Seed of all random numbers. None takes it from the entropy of the operating system.
    verbose : int, default=0
        Progress: a bar where tqdm is installed, otherwise lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Noisy counts of words in topics, with negative counts set to 0, plus `topic_word_prior`. Not
        normalized.
    n_iter_ : int
        Number of sweeps that ran.
    epsilon_ : float
        Infinity: nothing is proved.
    delta_ : float
        0.
    published_epsilon_ : float
        The claim that [1]_ implies: `noise_epsilon` times the number of sweeps that drew noise. Not
        a guarantee.
    privacy_ : Guarantee
        The statement that there is no guarantee, with the reason. `print` shows it in words.
    doc_topic_prior_ : float
        `doc_topic_prior`, or 1 / n_components for None.
    n_features_in_ : int
        Size of the vocabulary.

    Warns
    -----
    PrivacyLeakWarning
        In `fit` and `partial_fit`, unless `noise_epsilon` is infinite.

    See Also
    --------
    dplda.HDPLDA : Protects single words.
    dplda.SubLDA : Protects documents.
    dplda.GibbsLDA : With `exact`, the same sampler without noise.

    Notes
    -----
    **Privacy.** Unit: none; the paper means one word. Relation: one word is replaced by another.
    Sensitivity: unbounded, because the topics of other words change with that word. Event:
    ``NonPrivate()``. Nothing is charged to a ledger, because no finite epsilon is true.

    This implementation reads [1]_ as follows. The paper's epsilon is that of one sweep in both
    forms. The paper gives no total for CDP-LDA+, so `published_epsilon_` composes the sweeps. Noise
    adds up over sweeps, as in Algorithm 1 of [1]_. Counts keep their noise and are read as
    ``max(count, 0)``, also in the size of a topic, because weights must not be negative. The noise
    is Laplace noise of mean zero in steps of 1/256.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training With Differential Privacy", IEEE TIFS, 2020, sections IV-A and VII.
    .. [2] J. Foulds, J. Geumlek, M. Welling, K. Chaudhuri, "On the Theory and Practice of
       Privacy-Preserving Bayesian Data Analysis", UAI 2016.

    Examples
    --------
    >>> import warnings
    >>> from dplda.published import CDPLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=50, n_words=30, n_components=3, random_state=0).data
    >>> model = CDPLDA(n_components=3, noise_epsilon=2.0, noise_at="every_sweep", max_iter=20)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # the warning says that this is not private
    ...     model = model.fit(X)
    >>> model.epsilon_, model.published_epsilon_
    (inf, 40.0)
    """

    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "noise_epsilon": [
            Interval(Real, SMALLEST_EPSILON, LARGEST_EPSILON, closed="both"),
            Options(Real, {math.inf}),
        ],
        "noise_at": [StrOptions({"first_sweep", "every_sweep"})],
    }

    def __init__(
        self,
        n_components=10,
        *,
        noise_epsilon=None,
        noise_at="first_sweep",
        max_iter=100,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.noise_epsilon = noise_epsilon
        self.noise_at = noise_at
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> CDPLDA:
        """Train on documents from scratch.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : CDPLDA
            The fitted estimator.
        """
        return self._train(X, None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> CDPLDA:
        """Continue with further documents: `max_iter` sweeps over them, on top of the noisy counts.

        Each call draws noise for its own documents: with ``noise_at="first_sweep"`` in the first
        sweep of the call.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts of documents that the model has not seen.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : CDPLDA
            The fitted estimator.
        """
        return self._train(X, released_so_far(self, "word"))

    def _train(self, X: Any, released: np.ndarray | None) -> CDPLDA:
        """Sweep over `X` on top of the `released` noisy counts (n_words, n_components), if any."""
        if self.noise_epsilon != math.inf:
            warn_user(
                f"dplda.published.CDPLDA with noise_at={self.noise_at!r} is not private: "
                f"{HOLES[self.noise_at]}; use dplda.HDPLDA to protect words and dplda.SubLDA to "
                "protect documents",
                PrivacyLeakWarning,
            )
        corpus = Corpus.from_counts(check_counts(self, X, reset=released is None))  # private
        streams = Streams.from_random_state(self.random_state)  # secret
        n_components = int(self.n_components)
        shape, n_docs = (corpus.n_words, n_components), len(corpus.doc_ptr) - 1
        word_noise = pad(np.zeros(shape) if released is None else released)  # public
        doc_noise = pad(np.zeros((n_docs, n_components)))
        counts = pad(np.zeros(shape), np.int32)
        topics = np.full(corpus.n_tokens, -1, np.int32)
        scratch = np.empty((4, counts.shape[1]), np.float32)
        first = 1 if released is None else self.n_iter_ + 1
        last = first + self.max_iter - 1
        for t in rounds(self, first, last):
            if t == first or self.noise_at == "every_sweep":
                word_noise += self._draw(shape, streams.reader(Purpose.NOISE, t, WORDS))  # secret
                doc_noise += self._draw(  # secret
                    (n_docs, n_components), streams.reader(Purpose.NOISE, t, DOCUMENTS)
                )
            # The paper's release. The noise is that of one count that one word changes by 1. No
            # bound holds: the topics, and thus the counts, of other words change with it.
            noisy = counts + word_noise
            announce(COUNTS, t, noisy[:, :n_components])  # public
            totals = np.maximum(noisy, 0).sum(axis=0)[:n_components]
            bits = streams.words(Purpose.TOPICS, t, 0, corpus.n_tokens)  # secret
            # Draws read the live counts, and change them, without a clip and without new noise.
            _gibbs.noisy_sweep(  # private
                corpus.word, corpus.doc_ptr, topics, counts, totals, word_noise, doc_noise,
                self.doc_topic_prior_, self.topic_word_prior, bits, scratch,
            )  # fmt: skip
            announce(TOPICS, t, topics.copy)  # public
        n_noisy_sweeps = self.max_iter if self.noise_at == "every_sweep" else 1
        published = float(self.noise_epsilon) * n_noisy_sweeps
        if released is not None:
            published += self.published_epsilon_
        noisy = (counts + word_noise)[:, :n_components]
        publish(  # public
            self,
            self._no_guarantee(streams.seeded),
            components_=np.maximum(noisy, 0).T + float(self.topic_word_prior),
            n_iter_=last,
            published_epsilon_=published,
            _released=noisy,
        )
        return self

    def _draw(self, shape: tuple[int, int], reader: Reader) -> np.ndarray:
        """Laplace noise of scale 1 / noise_epsilon, float32, padded; zeros if it is infinite."""
        noiseless = self.noise_epsilon == math.inf
        mechanism = NoNoise() if noiseless else FlooredLaplace(GRID / float(self.noise_epsilon))
        return pad((mechanism(np.zeros(shape, np.int64), reader) - mechanism.mean) / GRID)

    def _no_guarantee(self, seeded: bool) -> Guarantee:
        scale = 1 / float(self.noise_epsilon)
        mechanism = "exact word-topic counts"
        if scale > 0:
            mechanism = (
                f"Laplace noise of scale {scale:.4g} on word-topic and document-topic "
                f"counts in {'every' if self.noise_at == 'every_sweep' else 'the first'} sweep, "
                f"which proves nothing, because {HOLES[self.noise_at]}"
            )
        return no_guarantee(
            "word", "one word is replaced by another of the vocabulary", mechanism,
            noise_scale=scale, seeded=seeded,
        )  # fmt: skip
