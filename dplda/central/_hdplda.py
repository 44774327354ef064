"""HDP-LDA: hybrid differentially private LDA, with word-level or document-level privacy."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from dplda._base import BaseTopicModel
from dplda._compat import Interval, StrOptions, _fit_context
from dplda._corpus import check_counts
from dplda._gibbs import IntegerTable, count_words, sweep
from dplda._private_fit import (
    PRIVACY_CONSTRAINTS,
    make_guarantee,
    publish,
    released_so_far,
    warn_if_seeded,
)
from dplda._progress import rounds
from dplda.central._document_rounds import DOCUMENT_CONSTRAINTS, train
from dplda.central._word_sweeps import (
    LARGEST_EPSILON,
    SMALLEST_EPSILON,
    Average,
    SweepPrices,
    sweep_prices,
    tokens_of,
    uniform_topics,
)
from dplda.privacy._observation import announce
from dplda.privacy._streams import Streams
from dplda.privacy.mechanisms import Curator

COUNTS = "word-topic counts"
TOPICS = "topic sampling"


class HDPLDA(BaseTopicModel):
    """Hybrid private latent Dirichlet allocation (the H is not "hierarchical").

    The sound form of HDP-LDA [1]_. With ``privacy_unit="word"`` single words are protected, even
    from somebody who sees the topics of all tokens in every sweep: noise hides the counts, and a
    clip bounds what a drawn topic tells. With ``privacy_unit="document"`` whole documents are,
    and topics stay hidden: :class:`SubLDA` without sampling, and the better choice nearly always.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics; at most 2048 with ``privacy_unit="word"``.
    privacy_unit : {"word", "document"}, default="word"
        What is protected: one word of one document, or a whole document.
    epsilon : float or None, default=None
        Total epsilon to spend in `fit`, above 0; ``inf`` trains without noise and without
        privacy. With "word" it is split evenly between noise and topic draws, in zCDP. Give this,
        or `noise_epsilon` or `noise_multiplier`.
    delta : float, default=1e-6
        Probability, in (0, 1), with which the bound epsilon may fail.
    noise : {"laplace", "gaussian"}, default="laplace"
        Noise on the counts, for "word" only; with "document" it is always Gaussian.
    noise_epsilon : float or None, default=None
        Epsilon of the Laplace noise of one sweep (epsilon_L), from 2.5e-5 to 40; needs
        `count_clip`.
    noise_multiplier : float or None, default=None
        Standard deviation over sensitivity of one round's Gaussian noise. With "word" it needs
        `count_clip`; with "document" see :class:`SubLDA`.
    count_clip : float or None, default=None
        Noisy counts are clipped to [0, count_clip] before topics are drawn from them (C); a draw
        costs 2 log(count_clip / topic_word_prior + 1). With "word" and not with `epsilon`.
    max_iter : int, default=50
        Sweeps, or rounds.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (alpha).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    contribution_norm, word_total_share, init_components
        As in :class:`SubLDA`; for "document" only.
    ledger, n_jobs, random_state, verbose
        As in :class:`SubLDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Released pseudo-counts of words in topics; not normalized.
    epsilon_, delta_ : float
        What was spent since `fit`.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions; `print` it.
    noise_epsilon_, sampling_epsilon_ : float
        Pure epsilon of one sweep's noise (inf for Gaussian noise) and of its topic draws; with
        "word".
    count_clip_ : float
        The clip that was used; with "word".
    noise_multiplier_ : float
        Noise multiplier of a round.
    n_iter_ : int
        Sweeps run.
    n_features_in_ : int
        Size of the vocabulary.

    Notes
    -----
    **Privacy**, "word". Unit: one word token. Relation: its word is replaced by another of the
    vocabulary; lengths of documents, counted in words of the vocabulary, are public. Sensitivity:
    two counts change by one. Events: per sweep
    ``Laplace(2 / noise_epsilon)`` twice, or ``Gaussian(noise_multiplier)``, and
    ``BoundedRange(2 log(count_clip / topic_word_prior + 1))`` for the topic of that token. All
    later draws read the noisy table, which does not change during a sweep. Draws are made in
    integers, so that the ratio of probabilities is what the event says. `epsilon_` is the smaller
    of the sum (Theorem 3 of [1]_, which holds for this form) and of Renyi accounting. The proof is
    in ``docs/hdplda.md``.

    Word-level privacy is expensive: useful noise costs an epsilon of tens to hundreds.

    **Privacy**, "document": as for :class:`SubLDA`, with ``subsampling_ratio=1``.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training With Differential Privacy", IEEE TIFS, 2020, section IV.

    Examples
    --------
    >>> from dplda import HDPLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=100, n_words=30, n_components=3, random_state=0).data
    >>> model = HDPLDA(n_components=3, noise_epsilon=0.5, count_clip=1.0, topic_word_prior=1.0,
    ...                delta=1e-5, max_iter=50).fit(X)
    >>> round(model.epsilon_, 2)
    39.54
    """

    _attack = "word"
    _parameter_constraints = {
        **BaseTopicModel._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        **DOCUMENT_CONSTRAINTS,
        "privacy_unit": [StrOptions({"word", "document"})],
        "noise": [StrOptions({"laplace", "gaussian"})],
        "noise_epsilon": [None, Interval(Real, SMALLEST_EPSILON, LARGEST_EPSILON, closed="both")],
        "count_clip": [None, Interval(Real, 0, 1e18, closed="right")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        privacy_unit="word",
        epsilon=None,
        delta=1e-6,
        noise="laplace",
        noise_epsilon=None,
        noise_multiplier=None,
        count_clip=None,
        max_iter=50,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        contribution_norm=6.0,
        word_total_share=0.25,
        init_components=None,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.privacy_unit = privacy_unit
        self.epsilon = epsilon
        self.delta = delta
        self.noise = noise
        self.noise_epsilon = noise_epsilon
        self.noise_multiplier = noise_multiplier
        self.count_clip = count_clip
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.contribution_norm = contribution_norm
        self.word_total_share = word_total_share
        self.init_components = init_components
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> HDPLDA:
        """Train on private documents: `max_iter` sweeps.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; columns are public.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        BudgetError
            When the ledger has too little left; nothing has then been read.
        """
        if self.privacy_unit == "document":
            return self._train_document_level(X, self.max_iter, None)
        prices = sweep_prices(self)
        streams = Streams.from_random_state(self.random_state)
        warn_if_seeded(self, streams.seeded)
        one_sweep = [(COUNTS, prices.mechanism.event), (TOPICS, prices.topic_event)]
        with self._curator(one_sweep * self.max_iter, streams) as curator:
            corpus = tokens_of(check_counts(self, X, reset=True), streams, 1)
            topics = uniform_topics(corpus, int(self.n_components), streams)
            released = Average.empty(corpus.n_words, int(self.n_components))
            for t in rounds(self, 1, self.max_iter):
                counts = count_words(corpus, topics, int(self.n_components))
                noisy = self._release(counts, prices, curator, t)
                if 2 * t > self.max_iter:
                    released = released.add(noisy)
                table = IntegerTable.from_counts(noisy, prices.count_clip, self.topic_word_prior)
                curator.account(prices.topic_event, label=TOPICS)
                topics = self._sweep(corpus, topics, table, streams, t)
        return self._publish(released, prices, curator.events, None, streams.seeded, t)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> HDPLDA:
        """One more private sweep (or round), on the given documents; its cost adds to `epsilon_`.

        With "word", topics are drawn under the table so far, starting from none, and their counts
        are released and averaged in; the first call draws them uniformly.
        Decide on the number of calls before looking at the model: the account is for a number that
        does not depend on what was released.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.
        y : Ignored

        Returns
        -------
        self : object
        """
        released = released_so_far(self, self.privacy_unit)
        if self.privacy_unit == "document":
            return self._train_document_level(X, 1, released)
        prices = sweep_prices(self)
        streams = Streams.from_random_state(self.random_state)
        warn_if_seeded(self, streams.seeded)
        first = released is None
        one_sweep = [(TOPICS, prices.topic_event), (COUNTS, prices.mechanism.event)]
        t = 1 if first else self.n_iter_ + 1
        with self._curator(one_sweep[first:], streams) as curator:
            corpus = tokens_of(check_counts(self, X, reset=first), streams, t)
            if first:
                topics = uniform_topics(corpus, int(self.n_components), streams)
                released = Average.empty(corpus.n_words, int(self.n_components))
            else:
                curator.account(prices.topic_event, label=TOPICS)
                topics = np.full(corpus.n_tokens, -1, np.int32)
                table = IntegerTable.from_counts(
                    released.mean, prices.count_clip, self.topic_word_prior
                )
                topics = self._sweep(corpus, topics, table, streams, t)
            counts = count_words(corpus, topics, int(self.n_components))
            released = released.add(self._release(counts, prices, curator, t))
        earlier = None if first else self.privacy_
        return self._publish(released, prices, curator.events, earlier, streams.seeded, t)

    def _train_document_level(self, X, n_rounds, released) -> HDPLDA:
        if self.noise_epsilon is not None or self.count_clip is not None:
            raise ValueError(
                "noise_epsilon and count_clip belong to privacy_unit='word'; with 'document' give "
                "epsilon or noise_multiplier"
            )
        train(self, X, n_rounds=n_rounds, released=released)
        return self

    def _curator(self, plan: list, streams: Streams) -> Curator:
        return Curator(plan, streams, label="HDPLDA", unit="word", ledger=self.ledger)

    def _release(
        self, counts: np.ndarray, prices: SweepPrices, curator: Curator, t: int
    ) -> np.ndarray:
        """Noisy word-topic counts, float64 and unbiased."""
        noisy = curator.release(counts * prices.unit, prices.mechanism, label=COUNTS, round=t)
        return (noisy - prices.mechanism.mean) / prices.unit

    def _sweep(self, corpus, topics, table, streams, t) -> np.ndarray:
        """New topics of all tokens, which whoever watches the training may see."""
        topics = sweep(
            corpus,
            topics,
            table,
            doc_topic_prior=self.doc_topic_prior,
            streams=streams,
            round=t,
            n_jobs=self.n_jobs,
        )
        announce("topics", t, topics)
        return topics

    def _publish(self, released, prices, events, earlier, seeded, n_iter) -> HDPLDA:
        """Set the fitted attributes: functions of released values only."""
        mechanism = prices.mechanism
        scale = mechanism.scale / prices.unit
        guarantee = make_guarantee(
            self,
            events,
            earlier=earlier,
            unit="word",
            relation="one word is replaced by another of the vocabulary; how many documents there "
            "are, and how many words of the vocabulary each has, is public",
            mechanism=f"{prices.noise} noise on every word-topic count, and topics drawn from the "
            "clipped noisy counts, each sweep; the topics of all words may be seen as well",
            sensitivity=prices.sensitivity,
            noise_scale=scale,
            noise_multiplier=scale / prices.sensitivity,
            seeded=seeded,
        )
        publish(
            self,
            guarantee,
            components_=np.maximum(released.mean, 0).T + float(self.topic_word_prior),
            n_iter_=n_iter,
            noise_epsilon_=prices.noise_epsilon,
            sampling_epsilon_=prices.sampling_epsilon,
            count_clip_=prices.count_clip,
            noise_multiplier_=scale / prices.sensitivity,
            _released=released,
        )
        return self
