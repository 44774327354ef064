"""SUB-LDA as published, not private: Gibbs sampling of some words, Gaussian noise."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from dplda.core._base import BaseLDA
from dplda.core._corpus import Corpus
from dplda.core._private_estimator import Interval
from dplda.document._document_budget import SMALLEST_RATIO
from dplda.gibbs._frozen_table import uniform_topics
from dplda.kernels import _published
from dplda.leaf._compat import Options, StrOptions
from dplda.leaf._messages import rounds
from dplda.privacy._mechanisms import MIN_RADIUS
from dplda.privacy._recorder import announce
from dplda.privacy._streams import PIECE, Purpose, Reader, Streams
from dplda.privacy.mechanisms import DiscreteGaussian
from dplda.published._base import COUNTS, Flaw, PublishedLDA, count_words, noise_range


class PublishedSubLDA(PublishedLDA):
    """SUB-LDA as its paper prints it, Algorithm 1 of [1]_: not private.

    Collapsed Gibbs sampling in which every token takes part in an iteration with
    probability `subsampling_ratio`, with Gaussian noise on the word-topic counts.
    :class:`dplda.SubLDA` is the sound form.

    Parameters
    ----------
    n_components
    rdp_epsilon : float, default=2.0
        Claimed Renyi divergence, of order `rdp_order`, of one iteration without
        sampling, from 1e-9 to 1e9. The noise has variance ``rdp_order / (2 *
        rdp_epsilon)``. ``inf`` adds no noise.
    rdp_order : int, default=14
        Renyi order of the account, at least 2 (alpha).
    subsampling_ratio : float, default=0.1
        Probability, from 1e-8 to 1, with which a token takes part in an iteration
        (gamma).
    boost : float, default=1.0
        Factor of the rate of frequent words, from 1 to ``1 / subsampling_ratio`` (v).
        Above 1, sampling is adaptive, equation (10) of [1]_: tokens of each topic's
        frequent words are sampled at the rate ``boost * subsampling_ratio``, other
        tokens never.
    frequent_share : float, default=0.5
        Share (q) of a topic's tokens, in (0, 1], that its frequent words make up, if
        `boost` is above 1.
    noise_placement : {"iteration", "token"}, default="iteration"
        "iteration" is the reading most favorable to the paper: an iteration reads and
        releases the true counts plus a new matrix of noise. "token" is the algorithm as
        printed: the loop over sampled tokens adds noise to the row of the token's word,
        where the noise stays.
    count_clip : float, default=inf
        Upper end of the clip of a noisy count in a topic draw (clip), above 0. [1]_
        gives no value.
    max_iter : int, default=100
        Number of iterations (ITER).
    doc_topic_prior
    topic_word_prior
    n_jobs, random_state, verbose : optional
        As in :class:`dplda.GibbsLDA`.

    Attributes
    ----------
    components_
    n_iter_ : int
        Number of iterations that ran.
    published_epsilon_ : float
        The claim of [1]_: `n_iter_` times equation (3), plus ``log(boost)`` each time
        by equation (13). A Renyi divergence of order `rdp_order`. Not a guarantee.
    epsilon_, delta_ : float
        Infinity and 0: nothing is proved. `privacy_` says why.

    Notes
    -----
    **Privacy.** Unit: none; the paper means one word. Relation: a document gets one
    more word. Sensitivity: unbounded, because the topics of other words change with
    that word; [1]_ claims 1. Event: ``NonPrivate()``. Mechanism: Gaussian noise in
    floating point, idealized. ``docs/papers.md`` shows what is wrong in [1]_.

    This implementation reads [1]_ as follows. All iterations run: the printed condition
    never ends the loop. Equation (9), which ends it in the text, reads the exact
    perplexity of the training data, for which the account charges nothing, and has
    constants without values. A token is removed from the counts before its topic is
    drawn, as in equation (1). Noisy counts are read as ``max(count, 0)``, also for the
    size of a topic. Only the numerator is clipped. Frequent words, equation (10), are
    the fewest that make up the share of the topic's tokens at the start of the
    iteration.

    References
    ----------
    .. [1] T. Huang, H. Chen, "Improving Privacy Guarantee and Efficiency of LDA Model
       Training Under Differential Privacy", Findings of EMNLP 2021, Algorithm 1.
    """

    _flaw = Flaw(
        relation="a document gets one word more",
        hole="words that are not sampled are counted and shown like the others, so "
        "sampling amplifies nothing, and a word changes the topics, and thus the "
        "counts, of other words; with noise_placement='token', words that are not "
        "sampled get no noise, so anyone can tell a word that no document contains "
        "from one that a document contains",
        instead="dplda.SubLDA to protect documents",
    )
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "rdp_epsilon": noise_range(),
        "rdp_order": [Interval(Integral, 2, 10**6, closed="both")],
        "subsampling_ratio": [Interval(Real, SMALLEST_RATIO, 1, closed="both")],
        "boost": [Interval(Real, 1, 1e9, closed="both")],
        "frequent_share": [Interval(Real, 0, 1, closed="right")],
        "noise_placement": [StrOptions({"iteration", "token"})],
        "count_clip": [
            Interval(Real, 0, 1e18, closed="right"),
            Options(Real, {math.inf}),
        ],
    }

    def __init__(
        self,
        n_components=10,
        *,
        rdp_epsilon=2.0,
        rdp_order=14,
        subsampling_ratio=0.1,
        boost=1.0,
        frequent_share=0.5,
        noise_placement="iteration",
        count_clip=math.inf,
        max_iter=100,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @property
    def _noise_scale(self) -> float:
        """Standard deviation of the noise (sigma)."""
        return math.sqrt(self.rdp_order / (2 * float(self.rdp_epsilon)))

    def _train(self, X: sp.csr_array, streams: Streams) -> None:
        rate = float(self.subsampling_ratio) * float(self.boost)
        if rate > 1:
            raise ValueError(
                f"boost times subsampling_ratio must be at most 1, got {self.boost} "
                f"times {self.subsampling_ratio}; lower one of them"
            )
        # largest word that selects a token
        threshold = np.uint64(int(rate * 2**64) - 1)
        if self.rdp_epsilon != math.inf:
            self._flaw.warn(self)
        corpus = Corpus.from_counts(X)  # private
        n_components = int(self.n_components)
        n_docs = len(corpus.doc_ptr) - 1
        in_place = self.noise_placement == "token"
        documents = np.arange(n_docs, dtype=np.int32)
        document = np.repeat(documents, np.diff(corpus.doc_ptr))  # private
        topics = uniform_topics(corpus, n_components, streams)  # private
        topics = topics.astype(np.int32)
        counts = count_words(corpus, topics, n_components)  # private
        doc_counts = np.zeros((n_docs, n_components), np.int32)
        np.add.at(doc_counts, (document, topics), 1)  # private
        noisy = counts.astype(float)  # private
        scratch = np.empty((2, n_components))
        membership = streams.reader(Purpose.MEMBERSHIP, 1)  # secret
        bits = streams.reader(Purpose.TOPICS, 1)  # secret
        noise = streams.reader(Purpose.NOISE, 1)  # secret
        for t in rounds(self, 1, self.max_iter):
            sampled = membership.words(corpus.n_tokens) <= threshold  # secret
            if self.boost > 1:
                # the paper's rates read private counts, and no theorem covers them
                frequent = frequent_words(counts, self.frequent_share)  # private
                sampled &= frequent[corpus.word, topics]  # private
            sampled_tokens = np.flatnonzero(sampled)  # secret
            # a new array, because the announced one must not change
            if in_place:
                noisy = noisy.copy()
                size = max(PIECE // n_components, 1)
            else:
                noisy = counts + self._draw(counts.shape, noise)
                size = max(len(sampled_tokens), 1)
            sizes = np.maximum(noisy, 0).sum(axis=0)
            # the noise of a part fits in memory
            for start in range(0, len(sampled_tokens), size):
                part = sampled_tokens[start : start + size]
                rows = len(part) if in_place else 0  # that get noise
                _published.subsampled_sweep(  # private
                    corpus.word,
                    document,
                    part,
                    topics,
                    noisy,
                    sizes,
                    doc_counts,
                    self._draw((rows, n_components), noise),
                    self.count_clip,
                    self.doc_topic_prior,
                    self.topic_word_prior,
                    bits.words(len(part)),
                    scratch,
                )
            # The paper's release. The noise is for one count that one word changes by
            # 1, if it is sampled. No bound holds: the word also changes the topics of
            # other words, and words that were not sampled are in the counts too.
            announce(COUNTS, t, noisy)  # public
            counts = count_words(corpus, topics, n_components)  # private
        cost = iteration_epsilon(
            self.subsampling_ratio, self.rdp_order, self.rdp_epsilon
        )
        self._publish(  # public
            streams,
            f"Gaussian noise of standard deviation {self._noise_scale:.4g} on "
            "word-topic counts (idealized: in floating point)",
            self._noise_scale,
            np.maximum(noisy, 0).T + float(self.topic_word_prior),
            n_iter_=int(self.max_iter),
            # equation (13)
            published_epsilon_=self.max_iter * (cost + math.log(self.boost)),
        )

    def _draw(self, shape: tuple[int, int], reader: Reader) -> np.ndarray:
        """Gaussian noise in floating point, on a grid finer than any count."""
        if self._noise_scale == 0:
            return np.zeros(shape)
        mechanism = DiscreteGaussian(MIN_RADIUS)
        steps = mechanism(np.zeros(shape, np.int64), reader)
        return steps * (self._noise_scale / mechanism.scale)


def frequent_words(counts: np.ndarray, share: float) -> np.ndarray:
    """Mask (n_words, n_components) of the fewest words for a share of topic tokens.

    Among words with equal counts, the first in the vocabulary are taken. An empty topic
    has no words.
    """
    order = np.argsort(-counts, axis=0, kind="stable")
    ordered = np.take_along_axis(counts, order, axis=0)
    before = np.cumsum(ordered, axis=0) - ordered
    frequent = np.zeros(counts.shape, bool)
    np.put_along_axis(frequent, order, before < share * counts.sum(axis=0), axis=0)
    return frequent


def iteration_epsilon(
    subsampling_ratio: float, rdp_order: int, rdp_epsilon: float
) -> float:
    """Privacy cost of one iteration claimed by SUB-LDA, equation (3) of Huang and Chen.

    It is the exact Renyi divergence of order `rdp_order` of a Poisson-sampled Gaussian
    step whose divergence without sampling is `rdp_epsilon`. It holds if unsampled
    tokens leave no trace; in SUB-LDA they do.
    """
    order = int(rdp_order)
    ratio = float(subsampling_ratio)
    chosen = np.arange(2.0, order + 1.0)
    exponent = (chosen - 1.0) * (float(rdp_epsilon) * chosen / order)
    if ratio == 1.0:
        return float(exponent[-1]) / (order - 1)
    # The binomial weights sum to one. Each term omits its share of that one, so it has
    # exp(x) - 1 instead of exp(x): no cancellation occurs, even at small divergences.
    with np.errstate(divide="ignore"):
        log_growth = exponent + np.log(-np.expm1(-exponent))
    left = order - chosen
    log_ways = gammaln(order + 1.0) - gammaln(chosen + 1.0) - gammaln(left + 1.0)
    log_weight = log_ways + chosen * math.log(ratio) + left * math.log1p(-ratio)
    log_sum = np.logaddexp.reduce(log_weight + log_growth)
    return float(np.logaddexp(0.0, log_sum)) / (order - 1)
