"""CDP-LDA and CDP-LDA+: collapsed Gibbs sampling with Laplace noise on its counts."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from dplda._base import BaseLDA
from dplda._compat import Interval, Options, StrOptions, _fit_context
from dplda._corpus import Corpus, check_counts
from dplda._fold_in import pad
from dplda._private_fit import publish, released_so_far
from dplda._progress import rounds
from dplda._warnings import warn_user
from dplda.kernels import _gibbs
from dplda.privacy import Guarantee, NonPrivate, PrivacyLeakWarning
from dplda.privacy._observation import announce
from dplda.privacy._streams import Purpose, Reader, Streams
from dplda.privacy.mechanisms import FlooredLaplace, NoNoise

# Noise is drawn in steps of 1 / GRID: whole steps would drown the small noise of a large epsilon.
GRID = 256
SMALLEST_EPSILON, LARGEST_EPSILON = 0.003, 5000.0  # scales GRID / epsilon that the noise reaches

COUNTS, TOPICS = "word-topic counts", "topics"  # what whoever watches the training sees
WORDS, DOCUMENTS = 0, 1  # blocks of the noise stream

HOLES = {
    "first": "raw words go on moving the counts after the only noise",
    "every": "raw words choose the topics, by live counts without a clip, and go on moving the "
    "counts after the last noise",
}


class CDPLDA(BaseLDA):
    """Collapsed Gibbs sampling with Laplace noise on its counts. **Not private.**

    What [1]_ compares HDP-LDA and LP-LDA with: noise of scale ``1 / epsilon`` on the word-topic
    and document-topic counts, in the first sweep (CDP-LDA, after [2]_) or in every sweep
    (CDP-LDA+). :class:`HDPLDA` protects words, :class:`SubLDA` documents.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon : float
        One over the scale of the noise of one sweep, from 0.003 to 5000; must be given. ``inf``
        is :class:`GibbsLDA`, to the last bit.
    noise : {"first", "every"}, default="first"
        "first" adds noise to the counts before the first sweep, where it stays; "every" adds more
        before each sweep.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (alpha).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    max_iter : int, default=100
        Sweeps over the corpus.
    n_jobs : int or None, default=None
        Threads of `transform` and `score`; training is sequential. Never changes a result.
    random_state : int, RandomState instance or None, default=None
        None: from the operating system's entropy.
    verbose : int, default=0
        Progress: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Noisy counts of words in topics, negative ones as 0, plus `topic_word_prior`; not
        normalized.
    n_iter_ : int
        Sweeps run.
    epsilon_, delta_ : float
        Infinity and 0: nothing is proved.
    published_epsilon_ : float
        What the noise would be worth if [1]_ were right: `epsilon` times the number of sweeps
        that drew noise. Not a guarantee.
    privacy_ : Guarantee
        Says that there is none, and why.
    n_features_in_ : int
        Size of the vocabulary.

    Warns
    -----
    PrivacyLeakWarning
        In `fit` and `partial_fit`, unless `epsilon` is infinite.

    Notes
    -----
    **Privacy.** Unit: none; one word was meant. Relation: one word is replaced by another.
    Sensitivity: unbounded, because the topics of other words move with that word. Event:
    ``NonPrivate()``. Nothing is charged to a ledger, for there is no price.

    How [1]_ is read here. ``epsilon`` is that of one sweep in both forms; no total is given for
    CDP-LDA+, and `published_epsilon_` composes. Noise adds up over sweeps, as in Algorithm 1 of
    [1]_. Counts keep their noise, and are read as ``max(count, 0)``, in the size of a topic too,
    since weights must not be negative. The noise is Laplace noise of mean zero in steps of 1/256.

    See Also
    --------
    HDPLDA : Protects documents or single words.
    SubLDA : Protects documents.
    GibbsLDA : The same sampler without noise.

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
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it says that this is not private
    ...     model = CDPLDA(n_components=3, epsilon=2.0, noise="every", max_iter=20).fit(X)
    >>> model.epsilon_, model.published_epsilon_
    (inf, 40.0)
    """

    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "epsilon": [
            Interval(Real, SMALLEST_EPSILON, LARGEST_EPSILON, closed="both"),
            Options(Real, {math.inf}),
        ],
        "noise": [StrOptions({"first", "every"})],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        noise="first",
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        max_iter=100,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.epsilon = epsilon
        self.noise = noise
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> CDPLDA:
        """Train on documents.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.
        y : Ignored

        Returns
        -------
        self : object
        """
        return self._train(X, None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> CDPLDA:
        """Go on with further documents: `max_iter` sweeps over them, on top of the noisy counts.

        Each call draws noise for its own documents: with ``noise="first"`` in its first sweep.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts of documents not seen before.
        y : Ignored

        Returns
        -------
        self : object
        """
        return self._train(X, released_so_far(self, "word"))

    def _train(self, X: Any, released: np.ndarray | None) -> CDPLDA:
        """Sweeps over `X` on top of the `released` noisy counts (n_words, n_components), if any."""
        if self.epsilon != math.inf:
            warn_user(
                f"CDPLDA with noise={self.noise!r} is not private: {HOLES[self.noise]}; use HDPLDA "
                "to protect words and SubLDA to protect documents",
                PrivacyLeakWarning,
            )
        corpus = Corpus.from_counts(check_counts(self, X, reset=released is None))
        streams = Streams.from_random_state(self.random_state)
        n_components = int(self.n_components)
        shape, n_docs = (corpus.n_words, n_components), len(corpus.doc_ptr) - 1
        word_noise = pad(np.zeros(shape) if released is None else released)
        doc_noise = pad(np.zeros((n_docs, n_components)))
        counts = pad(np.zeros(shape), np.int32)
        topics = np.full(corpus.n_tokens, -1, np.int32)
        scratch = np.empty((4, counts.shape[1]), np.float32)
        first = 1 if released is None else self.n_iter_ + 1
        last = first + self.max_iter - 1
        for t in rounds(self, first, last):
            if t == first or self.noise == "every":
                word_noise += self._draw(shape, streams.reader(Purpose.NOISE, t, WORDS))
                doc_noise += self._draw(
                    (n_docs, n_components), streams.reader(Purpose.NOISE, t, DOCUMENTS)
                )
            noisy = counts + word_noise
            announce(COUNTS, t, noisy[:, :n_components])
            totals = np.maximum(noisy, 0).sum(axis=0)[:n_components]
            bits = streams.words(Purpose.TOPICS, t, 0, corpus.n_tokens)
            _gibbs.noisy_sweep(
                corpus.word, corpus.doc_ptr, topics, counts, totals, word_noise, doc_noise,
                self.doc_topic_prior, self.topic_word_prior, bits, scratch,
            )  # fmt: skip
            announce(TOPICS, t, topics.copy)
        published = float(self.epsilon) * (self.max_iter if self.noise == "every" else 1)
        if released is not None:
            published += self.published_epsilon_
        noisy = (counts + word_noise)[:, :n_components]
        publish(
            self,
            self._no_guarantee(streams.seeded),
            components_=np.maximum(noisy, 0).T + float(self.topic_word_prior),
            n_iter_=last,
            published_epsilon_=published,
            _released=noisy,
        )
        return self

    def _draw(self, shape: tuple[int, int], reader: Reader) -> np.ndarray:
        """Laplace noise of scale 1 / epsilon, float32, padded; none for an infinite epsilon."""
        noiseless = self.epsilon == math.inf
        mechanism = NoNoise() if noiseless else FlooredLaplace(GRID / float(self.epsilon))
        return pad((mechanism(np.zeros(shape, np.int64), reader) - mechanism.mean) / GRID)

    def _no_guarantee(self, seeded: bool) -> Guarantee:
        scale = 1 / float(self.epsilon)
        mechanism = "exact word-topic counts"
        if scale > 0:
            mechanism = (
                f"Laplace noise of scale {scale:.4g} on word-topic and document-topic "
                f"counts in {'every' if self.noise == 'every' else 'the first'} sweep, which "
                f"proves nothing, because {HOLES[self.noise]}"
            )
        return Guarantee(
            unit="word",
            relation="one word is replaced by another of the vocabulary",
            epsilon=math.inf,
            delta=0.0,
            mechanism=mechanism,
            sensitivity=math.inf,
            noise_scale=scale,
            noise_multiplier=0.0,
            seeded=seeded,
            events=(NonPrivate(),),
        )
