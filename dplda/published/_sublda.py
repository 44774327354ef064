"""SUB-LDA as published: collapsed Gibbs sampling of sampled words, with Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp, xlog1py, xlogy

from dplda._base import BaseLDA
from dplda._compat import Interval, Options, StrOptions, _fit_context
from dplda._corpus import Corpus, check_counts
from dplda._gibbs import count_words
from dplda._private_fit import publish, released_so_far
from dplda._progress import rounds
from dplda._warnings import warn_user
from dplda.central._document_budget import SMALLEST_RATIO
from dplda.central._word_sweeps import uniform_topics
from dplda.kernels import _published
from dplda.privacy import Guarantee, NonPrivate, PrivacyLeakWarning
from dplda.privacy._formulas import check_order, check_positive, subsampled_rdp
from dplda.privacy._mechanisms import MIN_RADIUS
from dplda.privacy._observation import announce
from dplda.privacy._streams import Purpose, Reader, Streams
from dplda.privacy.mechanisms import DiscreteGaussian

SMALLEST_EPSILON = 1e-100  # the noise of less is infinite
NOISE_CELLS = 1 << 22  # drawn at a time, at most: 32 MB

HOLES = {
    "iteration": "words that are not sampled are counted and shown like the others, so sampling "
    "amplifies nothing, and a word moves the topics, and with them the counts, of other words",
    "token": "words that are not sampled get no noise, so a word of the vocabulary that no "
    "document has is told from one that a document has",
}


class PublishedSubLDA(BaseLDA):
    """SUB-LDA to the letter, Algorithm 1 of [1]_. **Not private.**

    Collapsed Gibbs sampling in which every token takes part in an iteration with probability
    `subsampling_ratio`, and Gaussian noise is added to the word-topic counts. For reproduction and
    as the target of audits; :class:`dplda.SubLDA` is the sound form.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics (K).
    subsampling_ratio : float, default=0.1
        Probability, from 1e-8 to 1, with which a token takes part in an iteration (gamma).
    rdp_order : int, default=14
        Renyi order of the account, at least 2 (alpha).
    rdp_epsilon : float, default=2.0
        Divergence of `rdp_order` that one iteration without sampling is meant to have: the noise
        has variance ``rdp_order / (2 * rdp_epsilon)``. ``inf`` is no noise.
    noise_placement : {"iteration", "token"}, default="iteration"
        "iteration" is the reading that is most favorable to the paper: the counts that an
        iteration reads, and shows, are the true ones plus one new matrix of noise. "token" is
        what is printed: in the loop over sampled tokens, noise is added in place to the row of
        the token's word, and stays there.
    count_clip : float, default=inf
        Upper end of the clip of a noisy count in a topic draw (clip); no value is published.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (tau).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    adaptive : bool, default=False
        Sample the frequent words of each topic `boost` times as often, and other words never,
        equation (10) of [1]_.
    boost : float, default=2.0
        Factor of the rate, from 1 to one over `subsampling_ratio`; only with `adaptive` (v).
    frequent_share : float, default=0.5
        Share of a topic's tokens, in (0, 1], that its frequent words make up; only with
        `adaptive` (q).
    max_iter : int, default=100
        Iterations at most (ITER).
    tol : float or None, default=None
        Stop when the perplexity has changed by at most this in ``patience + 1`` successive
        iterations, equation (9) of [1]_. None: run all iterations.
    patience : int, default=4
        Only with `tol` (s); no value is published.
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
        Iterations run.
    perplexities_ : ndarray of shape (n_iterations,)
        Of the training data after each iteration of the last call, if `tol` is given, else empty.
        A function of the private data that no epsilon covers.
    epsilon_, delta_ : float
        Infinity and 0: nothing is proved.
    published_epsilon_ : float
        What [1]_ states: `n_iter_` times :func:`iteration_epsilon`, a Renyi divergence of order
        `rdp_order`; with `adaptive` plus ``log(boost)`` each time, equation (13). Not a guarantee.
    published_table_epsilon_ : float
        The same by the convention of Table 3 of [1]_, whose sum lacks its last term.
    privacy_ : Guarantee
        Says that there is none, and why.
    n_features_in_ : int
        Size of the vocabulary.

    Warns
    -----
    PrivacyLeakWarning
        In `fit` and `partial_fit`, unless `rdp_epsilon` is infinite.

    Notes
    -----
    **Privacy.** Unit: none; one word was meant. Relation: a document gets one word more.
    Sensitivity: unbounded, 1 being claimed, because the topics of other words move with that word.
    Event: ``NonPrivate()``. Mechanism: Gaussian noise in floating point, idealized. Nothing is
    charged to a ledger, for there is no price.

    What is wrong: tokens that are not sampled are counted and shown, so the cost of an iteration
    is that without sampling; the topics are hidden state, through which a word moves counts that
    are not its own; with "token", words that are not sampled get no noise; adaptive rates and the
    stopping rule read private counts; the topic weights of training documents, which [1]_ outputs
    and `transform` gives, are functions of their words.

    How [1]_ is read here. The loop ends at convergence or after `max_iter` iterations, as the
    text says; the condition that is printed would never end it before. A token is taken out of
    the counts before its topic is drawn, as in equation (1). Noisy counts are read as
    ``max(count, 0)``, in the size of a topic too, since weights must not be negative; only the
    numerator is clipped. Equation (10) is read as the fewest words that make up the share
    `frequent_share` of the topic's tokens at the start of the iteration. Perplexity, for which no
    formula is printed, takes a document's weights from its current topics.

    See Also
    --------
    dplda.SubLDA : Protects documents.
    dplda.HDPLDA : Protects words.

    References
    ----------
    .. [1] T. Huang, H. Chen, "Improving Privacy Guarantee and Efficiency of Latent Dirichlet
       Allocation Model Training Under Differential Privacy", Findings of EMNLP 2021.

    Examples
    --------
    >>> import warnings
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.published import PublishedSubLDA
    >>> X = make_topic_corpus(n_docs=50, n_words=30, n_components=3, random_state=0).data
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it says that this is not private
    ...     model = PublishedSubLDA(n_components=3, subsampling_ratio=0.5, max_iter=70).fit(X)
    >>> model.epsilon_, round(model.published_epsilon_, 2)
    (inf, 89.67)
    """

    _attack = "published SUB-LDA"
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "subsampling_ratio": [Interval(Real, SMALLEST_RATIO, 1, closed="both")],
        "rdp_order": [Interval(Integral, 2, 10**6, closed="both")],
        "rdp_epsilon": [
            Interval(Real, SMALLEST_EPSILON, 1e30, closed="both"),
            Options(Real, {math.inf}),
        ],
        "noise_placement": [StrOptions({"iteration", "token"})],
        "count_clip": [Interval(Real, 0, 1e18, closed="right"), Options(Real, {math.inf})],
        "adaptive": ["boolean"],
        "boost": [Interval(Real, 1, 1e9, closed="both")],
        "frequent_share": [Interval(Real, 0, 1, closed="right")],
        "tol": [None, Interval(Real, 0, 1e18, closed="both")],
        "patience": [Interval(Integral, 0, 10**9, closed="both")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        subsampling_ratio=0.1,
        rdp_order=14,
        rdp_epsilon=2.0,
        noise_placement="iteration",
        count_clip=math.inf,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        adaptive=False,
        boost=2.0,
        frequent_share=0.5,
        max_iter=100,
        tol=None,
        patience=4,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.subsampling_ratio = subsampling_ratio
        self.rdp_order = rdp_order
        self.rdp_epsilon = rdp_epsilon
        self.noise_placement = noise_placement
        self.count_clip = count_clip
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.adaptive = adaptive
        self.boost = boost
        self.frequent_share = frequent_share
        self.max_iter = max_iter
        self.tol = tol
        self.patience = patience
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> PublishedSubLDA:
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
    def partial_fit(self, X: Any, y: Any = None) -> PublishedSubLDA:
        """Go on with further documents: new iterations over them, on top of the noisy counts.

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

    def _train(self, X: Any, released: np.ndarray | None) -> PublishedSubLDA:
        """Algorithm 1 on top of the `released` noisy counts (n_words, n_components), if any."""
        threshold = self._membership_threshold()
        if self.rdp_epsilon != math.inf:
            warn_user(
                "dplda.published.PublishedSubLDA is not private: with "
                f"noise_placement={self.noise_placement!r} {HOLES[self.noise_placement]}; use "
                "dplda.SubLDA to protect documents",
                PrivacyLeakWarning,
            )
        corpus = Corpus.from_counts(check_counts(self, X, reset=released is None))
        streams = Streams.from_random_state(self.random_state)
        n_components, n_docs = int(self.n_components), len(corpus.doc_ptr) - 1
        in_place = self.noise_placement == "token"
        document = np.repeat(np.arange(n_docs, dtype=np.int32), np.diff(corpus.doc_ptr))
        topics = uniform_topics(corpus, n_components, streams)
        counts = count_words(corpus, topics, n_components)
        doc_counts = np.zeros((n_docs, n_components), np.int32)
        np.add.at(doc_counts, (document, topics), 1)
        before = np.zeros(counts.shape) if released is None else released
        noisy = before + counts
        no_rows, scratch = np.empty((0, n_components)), np.empty((2, n_components))
        perplexities: list[float] = []
        first = 1 if released is None else self.n_iter_ + 1
        membership, bits, noise = (
            streams.reader(purpose, first)
            for purpose in (Purpose.MEMBERSHIP, Purpose.TOPICS, Purpose.NOISE)
        )
        for t in rounds(self, first, first + self.max_iter - 1):
            sampled = membership.words(corpus.n_tokens) <= threshold
            if self.adaptive:
                sampled &= frequent_words(counts, self.frequent_share)[corpus.word, topics]
            taken = np.flatnonzero(sampled)
            # not in the array that was announced, which does not change any more
            noisy = noisy.copy() if in_place else before + counts + self._draw(counts.shape, noise)
            sizes = np.maximum(noisy, 0).sum(axis=0)
            for part in _parts(taken, NOISE_CELLS // n_components if in_place else len(taken)):
                _published.subsampled_sweep(
                    corpus.word, document, part, topics, noisy, sizes, doc_counts,
                    self._draw((len(part), n_components), noise) if in_place else no_rows,
                    self.count_clip, self.doc_topic_prior, self.topic_word_prior,
                    bits.words(len(part)), scratch,
                )  # fmt: skip
            announce("word-topic counts", t, noisy)
            counts = count_words(corpus, topics, n_components)
            if self.tol is not None:
                perplexities.append(self._training_perplexity(corpus, document, noisy, doc_counts))
                if self._has_converged(perplexities):
                    break
        published, table = ((t - first + 1) * e for e in self._published_iteration())
        if released is not None:
            published += self.published_epsilon_
            table += self.published_table_epsilon_
        publish(
            self,
            self._no_guarantee(streams.seeded),
            components_=np.maximum(noisy, 0).T + float(self.topic_word_prior),
            n_iter_=t,
            perplexities_=np.array(perplexities),
            published_epsilon_=published,
            published_table_epsilon_=table,
            _released=noisy,
        )
        return self

    def _membership_threshold(self) -> np.uint64:
        """Largest of the 2**64 words with which a token takes part, if its word is frequent."""
        rate = float(self.subsampling_ratio)
        if self.adaptive:
            rate *= self.boost
            if rate > 1:
                raise ValueError(
                    f"boost times subsampling_ratio must be at most 1, got {self.boost} times "
                    f"{self.subsampling_ratio}; lower one of them"
                )
        return np.uint64(int(rate * 2**64) - 1)

    @property
    def _noise_scale(self) -> float:
        """Standard deviation of the noise (sigma)."""
        return math.sqrt(self.rdp_order / (2 * float(self.rdp_epsilon)))

    def _draw(self, shape: tuple[int, int], reader: Reader) -> np.ndarray:
        """Gaussian noise in floating point, on its own grid, which is finer than any count."""
        if self._noise_scale == 0:
            return np.zeros(shape)
        mechanism = DiscreteGaussian(MIN_RADIUS)
        return mechanism(np.zeros(shape, np.int64), reader) * (self._noise_scale / mechanism.scale)

    def _training_perplexity(self, corpus, document, noisy, doc_counts) -> float:
        phi = np.maximum(noisy, 0) + self.topic_word_prior
        theta = doc_counts + self.doc_topic_prior
        total = _published.log_likelihood(
            corpus.word, document, phi / phi.sum(axis=0), theta / theta.sum(axis=1, keepdims=True)
        )
        return math.exp(-total / max(corpus.n_tokens, 1))

    def _has_converged(self, perplexities: list[float]) -> bool:
        """Equation (9), with the perplexities so far."""
        steps = np.abs(np.diff(perplexities[-self.patience - 2 :]))
        return len(steps) == self.patience + 1 and bool((steps <= self.tol).all())

    def _published_iteration(self) -> list[float]:
        """Of one iteration, by equation (3) and by Table 3."""
        more = math.log(self.boost) if self.adaptive else 0.0
        sizes = self.subsampling_ratio, self.rdp_order, self.rdp_epsilon
        return [iteration_epsilon(*sizes, convention=c) + more for c in ("equation", "table")]

    def _no_guarantee(self, seeded: bool) -> Guarantee:
        mechanism = "exact word-topic counts"
        if self._noise_scale > 0:
            mechanism = (
                f"Gaussian noise of standard deviation {self._noise_scale:.4g} on word-topic "
                f"counts (idealized: in floating point), which proves nothing, because "
                f"{HOLES[self.noise_placement]}"
            )
        return Guarantee(
            unit="word",
            relation="a document gets one word more",
            epsilon=math.inf,
            delta=0.0,
            mechanism=mechanism,
            sensitivity=math.inf,
            noise_scale=self._noise_scale,
            noise_multiplier=0.0,
            seeded=seeded,
            events=(NonPrivate(),),
        )


def _parts(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(values), max(size, 1)):
        yield values[start : start + max(size, 1)]


def frequent_words(counts: np.ndarray, share: float) -> np.ndarray:
    """The fewest words of each topic that make up a share of its tokens.

    Parameters
    ----------
    counts : ndarray of shape (n_words, n_components)
        Of words in topics.
    share : float
        In (0, 1].

    Returns
    -------
    frequent : ndarray of shape (n_words, n_components), bool
        Equal counts in the order of the vocabulary; no words for an empty topic.
    """
    order = np.argsort(-counts, axis=0, kind="stable")
    ordered = np.take_along_axis(counts, order, axis=0)
    before = np.cumsum(ordered, axis=0) - ordered
    frequent = np.zeros(counts.shape, bool)
    np.put_along_axis(frequent, order, before < share * counts.sum(axis=0), axis=0)
    return frequent


def iteration_epsilon(
    subsampling_ratio: float, rdp_order: int, rdp_epsilon: float, *, convention: str = "equation"
) -> float:
    """What SUB-LDA says an iteration costs, equation (3) of [1]_.

    Parameters
    ----------
    subsampling_ratio : float
        Probability in (0, 1] that a token takes part (gamma).
    rdp_order : int
        Renyi order, at least 2 (alpha).
    rdp_epsilon : float
        Divergence of that order without sampling, above 0; that of a lower order is
        proportionally lower, as for Gaussian noise.
    convention : {"equation", "table"}, default="equation"
        "equation": equation (3). "table": its sum without the last term, which gives the digits
        of Table 3 and the shape of Figure 1. A ratio of 1 costs `rdp_epsilon` in both.

    Returns
    -------
    float
        Renyi divergence of order `rdp_order`. No property of
        :class:`PublishedSubLDA`: the equation holds where a token that is not sampled leaves no
        trace.

    References
    ----------
    .. [1] T. Huang, H. Chen, "Improving Privacy Guarantee and Efficiency of Latent Dirichlet
       Allocation Model Training Under Differential Privacy", Findings of EMNLP 2021.

    Examples
    --------
    >>> from dplda.published import iteration_epsilon
    >>> round(iteration_epsilon(0.5, 14, 2.0), 4)
    1.2809
    >>> round(iteration_epsilon(0.5, 14, 2.0, convention="table"), 4)
    1.1882
    """
    if convention not in ("equation", "table"):
        raise ValueError(f"convention must be 'equation' or 'table', got {convention!r}")
    if not rdp_epsilon > 0:
        raise ValueError(f"rdp_epsilon must be above 0, got {rdp_epsilon}")
    complete = subsampled_rdp(rdp_order, rdp_epsilon, subsampling_ratio)
    rdp_epsilon = float(rdp_epsilon)
    if convention == "equation" or subsampling_ratio == 1 or math.isinf(rdp_epsilon):
        return complete
    order, chosen = int(rdp_order), np.arange(int(rdp_order))  # the last term is left out
    exponents = np.maximum(chosen - 1, 0) * chosen * rdp_epsilon / order
    terms = (
        gammaln(order + 1) - gammaln(chosen + 1) - gammaln(order - chosen + 1)
        + xlog1py(order - chosen, -subsampling_ratio) + xlogy(chosen, subsampling_ratio)
        + exponents
    )  # fmt: skip
    return float(logsumexp(terms)) / (order - 1)


def efficiency_privacy(
    subsampling_ratio: float,
    rdp_order: int,
    noise_multiplier: float,
    *,
    convention: str = "equation",
) -> float:
    """The efficiency-privacy function I of SUB-LDA, equation (6) of [1]_.

    Parameters
    ----------
    subsampling_ratio : float
        Probability in (0, 1] that a token takes part (gamma).
    rdp_order : int
        Renyi order, at least 2 (alpha).
    noise_multiplier : float
        Standard deviation of the noise on a count, above 0 (sigma).
    convention : {"equation", "table"}, default="equation"
        As in :func:`iteration_epsilon`. With "equation" the function increases up to 1; with
        "table" it has the inner maximum that Lemma 4.1 of [1]_ states.

    Returns
    -------
    float
        Infinity where it is too large for a float.

    References
    ----------
    .. [1] T. Huang, H. Chen, "Improving Privacy Guarantee and Efficiency of Latent Dirichlet
       Allocation Model Training Under Differential Privacy", Findings of EMNLP 2021.

    Examples
    --------
    >>> from dplda.published import efficiency_privacy
    >>> efficiency_privacy(0.93, 8, 1.8708) < efficiency_privacy(1.0, 8, 1.8708)
    True
    """
    if not noise_multiplier > 0:
        raise ValueError(f"noise_multiplier must be above 0, got {noise_multiplier}")
    noise_multiplier = check_positive("noise_multiplier", noise_multiplier, 1e100)
    epsilon = check_order(rdp_order) / 2 / noise_multiplier / noise_multiplier
    cost = iteration_epsilon(subsampling_ratio, rdp_order, epsilon, convention=convention)
    exponent = math.log(subsampling_ratio) + (rdp_order - 1) * cost
    return math.exp(exponent) if exponent < 709 else math.inf
