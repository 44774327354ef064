"""HDP-LDA as Zhao et al. publish it, with its errors: not private."""

from __future__ import annotations

from numbers import Real

import numpy as np
import scipy.sparse as sp

from dplda.core._base import BaseLDA
from dplda.core._corpus import Corpus
from dplda.core._private_estimator import Interval
from dplda.gibbs._frozen_table import uniform_topics
from dplda.kernels import _published_hdp
from dplda.leaf._messages import rounds
from dplda.privacy._recorder import announce
from dplda.privacy._streams import Purpose, Streams
from dplda.published._base import (
    COUNTS,
    TOPICS,
    Flaw,
    PublishedLDA,
    count_words,
    laplace,
    noise_range,
)
from dplda.word._hdplda import inherent_epsilon


class PublishedHDPLDA(PublishedLDA):
    """HDP-LDA as its paper prints it, Algorithm 1 of [1]_: not private.

    Each sweep adds Laplace noise to the word-topic counts in place. It then draws the
    topic of every token from the live noisy counts, clipped from above. The paper's
    claim holds for :class:`dplda.HDPLDA`.

    Parameters
    ----------
    n_components
    noise_epsilon : float
        Epsilon of the noise of one sweep (epsilon_L), from 1e-9 to 1e9; must be given.
        The noise has scale ``2 / noise_epsilon``, without a guarantee. ``inf``
        adds no noise ("limited inherent" in [1]_).
    count_clip : float
        Clipping bound (C): a draw reads noisy counts up to this value, above 0; must be
        given.
    max_iter : int, default=100
        Number of sweeps over the corpus (T).
    doc_topic_prior : float, default=1.0
        Dirichlet parameter of a document's topics (alpha). The default is from [1]_.
    topic_word_prior, n_jobs, random_state, verbose : optional
        As in :class:`dplda.GibbsLDA`.

    Attributes
    ----------
    components_
    published_epsilon_ : float
        The claim of [1]_: ``n_iter_ * (noise_epsilon + sampling_epsilon_)``. Not a
        guarantee.
    sampling_epsilon_ : float
        Claim for the topic draws of one sweep (epsilon_I): ``2 log(count_clip /
        topic_word_prior + 1)``, equation (7) of [1]_.
    epsilon_, delta_ : float
        Infinity and 0: nothing is proved. `privacy_` says why.

    Notes
    -----
    **Privacy.** Unit: none; the paper means one word. Relation: one word is replaced by
    another. Sensitivity: unbounded. Mechanism: ``NonPrivate()``. Theorem 3 of [1]_ is
    false for its Algorithm 1 (``docs/papers.md``): live counts (line 15), a clip from
    above only (line 12), final counts with changes that have no noise (line 20), and
    noise added in place (line 9).

    This implementation reads Algorithm 1 as follows. A draw reads a negative count, or
    a negative sum of a topic's counts, as 0, because weights may not be negative. Only
    the numerator of line 13 is clipped. A draw also reads the count of its own token,
    because line 15 is the only line that changes counts. Tokens of a document are in
    the order of their words.

    In each sweep t, the fit announces what the adversary of [1]_ sees: first the noisy
    counts at its start, (n_words, n_components), then the topics of all tokens,
    (n_tokens,).

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training With Differential Privacy", IEEE TIFS, 2020, section
       IV, Algorithm 1.
    """

    _flaw = Flaw(
        hole="later draws read live counts, which a replaced word continues to change; "
        "noise is added in place, so changes are released twice; and the changes of "
        "the last sweep are published without noise",
        instead="dplda.HDPLDA",
    )
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "noise_epsilon": noise_range(),
        "count_clip": [Interval(Real, 0, 1e18, closed="right")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        noise_epsilon=None,
        count_clip=None,
        max_iter=100,
        doc_topic_prior=1.0,
        topic_word_prior=0.01,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    def _train(self, X: sp.csr_array, streams: Streams) -> None:
        scale = 2 / float(self.noise_epsilon)
        if scale > 0:
            self._flaw.warn(self)
        corpus = Corpus.from_counts(X)  # private
        n_components = int(self.n_components)
        topics = uniform_topics(corpus, n_components, streams)  # lines 1 to 6; private
        topics = topics.astype(np.int32)
        announce(TOPICS, 0, topics.copy)  # public
        counts = count_words(corpus, topics, n_components).astype(float)  # private
        for t in rounds(self, 1, self.max_iter):
            # The paper's release. The noise is for two cells that one word changes by 1
            # each. No bound holds: the changes since the last release may differ in
            # four cells, and the topics of other words change too.
            words = streams.reader(Purpose.NOISE, t).words(counts.size)  # secret
            counts += laplace(words, scale).reshape(counts.shape)  # line 9
            announce(COUNTS, t, counts.copy)  # public
            bits = streams.reader(Purpose.TOPICS, t).words(corpus.n_tokens)  # secret
            # A token of word w in document m draws topic k with probability
            # proportional to
            #     (clip(n_kw, 0, C) + beta) / (max(sum_v n_kv, 0) + V beta)
            #     * (n_mk + alpha),
            # where n_kw and n_mk are the live counts: the announced counts plus all
            # earlier changes of this sweep. The token itself is counted, under its
            # topic so far.
            _published_hdp.live_sweep(  # private
                corpus.word,
                corpus.doc_ptr,
                topics,
                counts,
                counts.sum(axis=0),
                self.count_clip,
                self.doc_topic_prior,
                self.topic_word_prior,
                bits,
                np.empty(n_components, np.int64),
                np.empty(n_components),
            )
            announce(TOPICS, t, topics.copy)  # public
        sampling_epsilon = inherent_epsilon(self.count_clip, self.topic_word_prior)
        # the paper's final counts, of the last sweep: its changes got no noise
        self._publish(  # public
            streams,
            f"Laplace noise of scale {scale:.4g} on the word-topic counts in every "
            "sweep",
            scale,
            np.maximum(counts, 0).T + float(self.topic_word_prior),  # line 20
            n_iter_=int(self.max_iter),
            published_epsilon_=self.max_iter
            * (float(self.noise_epsilon) + sampling_epsilon),
            sampling_epsilon_=sampling_epsilon,
        )
