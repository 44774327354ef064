"""HDP-LDA: hybrid differentially private LDA, with word-level privacy."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from dplda.core._base import BaseLDA
from dplda.core._corpus import MAX_TOKENS, Corpus, check_counts, take_columns
from dplda.core._fit_guarantee import (
    DISTINCT,
    make_guarantee,
    noted_if_cut_short,
    publish,
    warn_if_cut_short,
)
from dplda.core._private_estimator import (
    PRIVACY_CONSTRAINTS,
    Interval,
    PrivateEstimator,
    Promise,
)
from dplda.core._private_fit import charge_of, check_paid, exactly_one, released_so_far
from dplda.core._signal import (
    FEWEST_WITH_TEST,
    first_half,
    is_kept_out,
    warn_if_weak,
    with_signal,
)
from dplda.gibbs._frozen_table import (
    LARGEST_CLIP,
    TOPIC,
    HalfTable,
    Piece,
    TokensByWord,
    draw_topics,
    pieces_of,
    uniform_topics,
)
from dplda.gibbs._gibbslda import GibbsLDA
from dplda.leaf._calm import interruptible
from dplda.leaf._compat import _fit_context
from dplda.leaf._messages import rounds
from dplda.privacy import Guarantee, NonPrivate, Repeated, calibrate
from dplda.privacy._accounting import is_chargeable
from dplda.privacy._charge import TOTAL_VARIATION, Charge
from dplda.privacy._curator import Curator, check_words
from dplda.privacy._events import BoundedRange, Event
from dplda.privacy._mechanisms import (
    MAX_SCALE,
    MIN_SCALE,
    N_COLUMNS,
    FlooredLaplace,
    NoNoise,
)
from dplda.privacy._streams import Streams
from dplda.word._topic_test import (
    count_pairs,
    evidence_of_pairs,
)

SENSITIVITY = 2.0  # of the counts, in L1: a replaced word moves two of them by one each
# of one sweep's noise, by the range of its tables
SMALLEST_EPSILON = SENSITIVITY / MAX_SCALE
LARGEST_EPSILON = SENSITIVITY / MIN_SCALE
COUNTS = "word-topic counts"
TOPICS = "topics"
RELATION = (
    "one word is replaced by another of the vocabulary; how many documents there are, "
    "and how many words of the vocabulary each has, is public"
)


class HDPLDA(PrivateEstimator, BaseLDA):
    """Word-level private LDA: hybrid private latent Dirichlet allocation.

    The sound form of HDP-LDA [1]_ (the H is not "hierarchical"). Single words are
    protected, even from an adversary who sees the topics of all tokens in every sweep:
    noise hides the counts, and a clip bounds what a drawn topic reveals.
    ``SubLDA(subsampling_ratio=1)`` protects whole documents, and is nearly always the
    better choice.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics, at most 2048.
    epsilon : float or None, default=None
        Total epsilon of a word; ``inf`` trains without noise and without privacy. It is
        split evenly between noise and topic draws, in zCDP. Give this, or
        `noise_epsilon` and `count_clip`.
    noise_epsilon : float or None, default=None
        Epsilon of the Laplace noise of one sweep (epsilon_L in [1]_), from 2.3e-5 to
        40.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, up to 0.001. Choose it well
        below 1 / n_tokens.
    count_clip : float or None, default=None
        Noisy counts are clipped to [0, count_clip] before topics are drawn from them (C
        in [1]_). A draw costs ``2 log(count_clip / topic_word_prior + 1)``.
    max_iter : int, default=50
        Number of sweeps. With 8 or more, the last sweep tests the topics, and one
        document in ten is kept out of all other sweeps.
    doc_topic_prior
    topic_word_prior
    ledger
    n_jobs
    random_state
    verbose

    Attributes
    ----------
    components_
    components_std_ : ndarray of shape (n_features_in_,)
        Standard deviation of the noise in a cell of each word, the same in all topics,
        in the unit of `components_`.
    topic_evidence_
    weak_topics_
    epsilon_ : float
        Epsilon of a word for everything released since `fit`.
    delta_
    privacy_
    noise_epsilon_ : float
        Pure epsilon of the noise of one sweep.
    sampling_epsilon_ : float
        Pure epsilon of the topic draws of one sweep (epsilon_I in [1]_).
    count_clip_ : float
        The upper end of the clip that was used.
    n_iter_ : int
        Number of sweeps so far.
    n_features_in_

    See Also
    --------
    SubLDA : Protects documents.
    dplda.published.PublishedHDPLDA : The algorithm of [1]_ as published.

    Notes
    -----
    **Privacy.** Unit: word (one token). Relation: its word is replaced by another word
    of the vocabulary. The lengths of documents, counted in words of the vocabulary, are
    public. Sensitivity: two counts change by one, also in the test of the topics.
    Events: in each sweep ``Laplace(2 / noise_epsilon)`` twice, and, except in one
    sweep, ``BoundedRange(2 log(count_clip / topic_word_prior + 1))`` for the topic of
    that token; other draws read the released table only. `epsilon_` is the smaller of
    two bounds: the sum (Theorem 3 of [1]_, which holds for this form), and the
    accountant's. ``docs/proofs_word.md`` has the proof.

    Useful models need an epsilon of tens to hundreds.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training With Differential Privacy", IEEE TIFS, 2020, section
       IV.

    Examples
    --------
    >>> from dplda import HDPLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(100, 30, 3, random_state=0).data
    >>> model = HDPLDA(
    ...     n_components=3, noise_epsilon=0.5, count_clip=1.0, topic_word_prior=1.0,
    ...     delta=1e-5, max_iter=50,
    ... ).fit(X)
    >>> round(model.epsilon_, 2)
    36.08
    """

    _attack = "word"
    _promise = Promise(
        unit="word",
        relation=RELATION,
        mechanism="noise on every word-topic count, and topics drawn from the clipped "
        "noisy counts, each sweep; the topics of all words may be seen as well",
        theorem="docs/proofs_word.md",
    )
    _parameter_constraints = {
        **GibbsLDA._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        "noise_epsilon": [
            None,
            Interval(Real, SMALLEST_EPSILON, LARGEST_EPSILON, closed="both"),
        ],
        "count_clip": [None, Interval(Real, 0, 1e18, closed="right")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        noise_epsilon=None,
        delta=1e-6,
        count_clip=None,
        max_iter=50,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> HDPLDA:
        """Train on private documents: `max_iter` sweeps.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; columns are public.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        BudgetError
            If the budget of the ledger is too small. No data have been read then.
        ValueError
            If the budget is stated more than once or not at all, or if `count_clip`
            does not fit the statement.

        Warns
        -----
        SeededNoiseWarning
            If noise is drawn from a given `random_state`.
        LowSignalWarning
            If few topics are shown to be more than noise after `max_iter` sweeps.
        """
        return self._train(X, None, int(self.max_iter))

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> HDPLDA:
        """Run one more private sweep on the documents; raises and warns as `fit`.

        The privacy costs of all calls add up in `epsilon_`; `epsilon` pays for at most
        `max_iter` calls. The first call draws topics uniformly; later calls draw them
        under the released table. Fix the number of calls before you look at the model,
        or use a ledger with ``composition="adaptive"``; its budget is then the
        guarantee.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; columns are public.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        BudgetError
            If this call would exceed `epsilon` or the budget of the ledger. No data
            have been read then.
        ValueError
            If `n_components`, noise, clip, prior or the width of `X` changed since the
            first call.
        """
        return self._train(X, released_so_far(self, "word"), 1)

    def _train(self, X: Any, released: NoisyCounts | None, n_sweeps: int) -> HDPLDA:
        """Private sweeps on top of earlier releases; None starts from scratch."""
        mechanisms = self._mechanisms()  # public
        is_tested = self._is_tested  # public
        goes_on = released is None or (
            released.mechanisms == mechanisms and released.is_tested == is_tested
        )
        if not goes_on:
            raise ValueError(
                "partial_fit continues with the noise and the clip of the calls "
                "before, and epsilon, delta, max_iter, noise_epsilon, count_clip or "
                "topic_word_prior have changed; call fit to start from scratch"
            )
        one_sweep = [
            (TOPICS, mechanisms.topic_event),
            (COUNTS, mechanisms.mechanism.event),
        ]
        # the first topics are uniform, and free
        plan = (one_sweep * n_sweeps)[released is None :]
        paid_before = None if released is None else self.privacy_
        check_paid(self, plan, paid_before, self.max_iter)
        streams = Streams.from_random_state(self.random_state)  # secret
        n_done = 0 if released is None else self.n_iter_
        checked = copy.copy(self)  # gets the columns of X; `self`, at the end
        with charge_of(
            self,
            plan,
            unit="word",
            seeded=streams.seeded,
            is_first=paid_before is None,
        ) as charge:
            X = check_counts(checked, X, reset=released is None)  # private
            shape = (X.shape[1], int(self.n_components))  # public
            last_round = n_done + n_sweeps
            tests = self._kept_out(X.shape[0])  # public
            # round 0 has no other order: a later call may have the same seed
            kept = Corpus.from_counts(X[tests]).shuffled(
                streams, 0, self.n_jobs
            )  # private
            tokens = Corpus.from_counts(X[~tests] if is_tested else X).shuffled(
                streams, n_done + 1, self.n_jobs
            )  # private
            largest = max(tokens.n_tokens, kept.n_tokens)  # public
            by_word = TokensByWord.from_corpus(tokens)  # private
            pieces = pieces_of(tokens, self.n_jobs)  # private
            check_words(plan, {COUNTS: shape[0] * shape[1]})
            charge.begin()
            curator = Curator(charge, streams)
            evidence = None
            if released is None:
                topics = uniform_topics(tokens, shape[1], streams)  # public
                n_drawn = 0
                total = np.zeros(shape, mechanisms.integers(tokens.n_tokens, n_sweeps))
                n = 0
                # the first half of a fit is not averaged, unless nothing follows it
                begin_anew = n_sweeps // 2 + 1
            else:
                topics = np.full(tokens.n_tokens, -1, TOPIC)
                n_drawn = n_done
                total = released.total.astype(np.int64)
                n = released.n
                begin_anew = None
            cells = np.empty(shape, mechanisms.integers(largest, 1))
            last = n_done

            def drawn(
                pieces: list[Piece],
                topics: np.ndarray,
                released: NoisyCounts,
                doc_topic_prior: float,
            ) -> np.ndarray:
                """The next draw of topics, over `topics`; public."""
                # For any topic, the probabilities under two words differ at most by the
                # factor exp(sampling_epsilon), because the clip bounds the ratio of
                # their weights. One draw depends on the replaced word; all other draws
                # read public topics and the table only.
                draw = partial(
                    draw_topics,
                    pieces,
                    topics,
                    self._half_table(released),
                    doc_topic_prior=doc_topic_prior,
                    streams=streams,
                    t=n_drawn,
                    n_jobs=self.n_jobs,
                )
                return curator.publish(
                    draw, [mechanisms.topic_event], label=TOPICS, round=n_drawn
                )

            def release(counts: np.ndarray, t: int) -> np.ndarray:
                """The counts with noise, written over them; public."""
                # A replaced word moves two counts by one each: the mechanism charges
                # two cells.
                return curator.release(
                    counts,
                    mechanisms.mechanism,
                    label=COUNTS,
                    round=t,
                    overwrite_value=True,
                    n_jobs=self.n_jobs,
                )

            try:
                for t in rounds(self, n_done + 1, last_round):
                    n_drawn += released is not None
                    if is_tested and t == self.max_iter:
                        average = NoisyCounts(total, n, mechanisms, is_tested)  # public
                        in_first = first_half(shape[0], t)  # public
                        with interruptible():
                            pieces = pieces_of(kept, self.n_jobs)  # private
                            topics = np.full(kept.n_tokens, -1, TOPIC)
                            # each token draws from the table alone: no topics of a
                            # document outweigh this prior
                            alone = float(MAX_TOKENS)
                            topics = drawn(pieces, topics, average, alone)  # public
                            counts = count_pairs(
                                kept, topics, in_first, cells, self.n_jobs
                            )  # private
                        noisy = release(counts, t)  # public
                        evidence = self._evidence(average, noisy, in_first)  # public
                        last = t
                        continue
                    with interruptible():
                        if released is not None:
                            topics = drawn(
                                pieces, topics, released, self.doc_topic_prior
                            )  # public
                        counts = by_word.count(topics, cells, self.n_jobs)  # private
                    noisy = release(counts, t)  # public
                    released = NoisyCounts(noisy, 1, mechanisms)  # public
                    if t == begin_anew:
                        total[:] = 0
                        n = 0
                    total += noisy  # public
                    n += 1
                    evidence = None  # of topics that have changed since
                    last = t
            finally:
                if last > n_done:
                    take_columns(self, checked)
                    average = NoisyCounts(total, n, mechanisms, is_tested)
                    self._publish(average, last, paid_before, streams, charge, evidence)
            if last >= self.max_iter:
                warn_if_weak(self)
        return self

    @property
    def _is_tested(self) -> bool:
        return self.max_iter >= FEWEST_WITH_TEST and self.n_components > 1

    def _kept_out(self, n_docs: int) -> np.ndarray:
        """Mask of the documents that only test the topics; public."""
        return is_kept_out(n_docs) & self._is_tested

    def _half_table(self, released: NoisyCounts) -> HalfTable:
        """The table that topics are drawn from; public."""
        return HalfTable.from_counts(
            released.total,
            released.mechanisms.count_clip,
            self.topic_word_prior,
            mean=released.noise_mean,
            unit=released.n,
            n_jobs=self.n_jobs,
        )

    def _evidence(
        self, average: NoisyCounts, noisy: np.ndarray, in_first: np.ndarray
    ) -> np.ndarray:
        """The evidence of the table's topics from the released pairs; public."""
        draws = self._half_table(average).values
        draws /= draws.sum(axis=1, keepdims=True)
        mechanisms = average.mechanisms
        pairs = noisy - mechanisms.mechanism.mean
        components = average.components(self.topic_word_prior)
        return evidence_of_pairs(
            components, draws, pairs, mechanisms.noise_std, in_first
        )

    def _publish(
        self,
        average: NoisyCounts,
        n_iter: int,
        paid_before: Guarantee | None,
        streams: Streams,
        charge: Charge,
        evidence: np.ndarray | None,
    ) -> None:
        """Set the fitted attributes: functions of released values only."""
        n_charged = sum(label == COUNTS for label, _ in charge.plan)
        mechanisms = average.mechanisms
        scale = mechanisms.mechanism.scale
        noise = "floored Laplace" if scale > 0 else "no"
        guarantee = make_guarantee(
            charge.events,
            promise=self._promise,
            charge=charge,
            delta=self.delta,
            paid_before=paid_before,
            unit="word",
            relation=RELATION,
            mechanism=f"{noise} {self._promise.mechanism}",
            sensitivity=SENSITIVITY,
            noise_scale=scale,
            seeded=streams.seeded,
            assumptions=(DISTINCT,),
        )
        components = average.components(self.topic_word_prior)
        std = np.full(len(average.total), mechanisms.noise_std / math.sqrt(average.n))
        n_done = 0 if paid_before is None else self.n_iter_
        publish(
            self,
            noted_if_cut_short(guarantee, n_iter, n_done + n_charged),
            **with_signal(components, std, evidence),
            n_iter_=n_iter,
            noise_epsilon_=mechanisms.noise_epsilon,
            sampling_epsilon_=mechanisms.sampling_epsilon,
            count_clip_=mechanisms.count_clip,
            _released=average,
        )
        warn_if_cut_short(self, n_done + n_charged)

    def _mechanisms(self) -> SweepMechanisms:
        """A sweep's mechanisms; an error if statements are contradictory or missing."""
        exactly_one("HDPLDA", epsilon=self.epsilon, noise_epsilon=self.noise_epsilon)
        clip = self.count_clip
        prior = self.topic_word_prior
        if (self.epsilon is None) == (clip is None):
            raise ValueError(
                "give count_clip together with noise_epsilon, and not with epsilon "
                "(which is split between noise and topic sampling); got "
                f"epsilon={self.epsilon}, count_clip={clip}"
            )
        if clip is None:
            total = float(self.epsilon), float(self.delta), int(self.max_iter)
            return SweepMechanisms.from_total(*total, prior)
        if clip > prior * LARGEST_CLIP:
            raise ValueError(
                f"count_clip may be at most {LARGEST_CLIP} times topic_word_prior "
                f"({prior}), got {clip}; such a clip protects nothing"
            )
        return SweepMechanisms.from_noise(self.noise_epsilon, clip, prior)


def inherent_epsilon(count_clip: float, topic_word_prior: float) -> float:
    """Range of a topic draw from clipped counts, ``2 log(C / beta + 1)``, in HDP-LDA.

    This is the epsilon of a `BoundedRange` event: one draw of a sweep depends on the
    protected word.
    """
    return 2.0 * math.log1p(count_clip / topic_word_prior)


@dataclass(frozen=True)
class SweepMechanisms:
    """The mechanisms of one sweep."""

    mechanism: Any  # noise of the counts
    topic_event: Event  # cost of the draw of one token's topic
    count_clip: float  # upper end of the clip
    noise_epsilon: float  # pure epsilon of the noise
    sampling_epsilon: float  # and of the topic draws

    @classmethod
    def from_total(
        cls, epsilon: float, delta: float, max_iter: int, topic_word_prior: float
    ) -> SweepMechanisms:
        """Split a total epsilon evenly between noise and draws of all sweeps.

        The split is in zCDP.
        """
        if math.isinf(epsilon):  # no noise, and a clip that few counts reach
            return cls(NoNoise(), NonPrivate(), 1e5, math.inf, math.inf)

        def even_split(scale: float) -> SweepMechanisms:
            """Noise and draw at 1 / (2 scale**2)-zCDP each, per sweep."""
            clip = float(topic_word_prior) * math.expm1(min(1 / scale, 12.0))
            level = min(max(math.sqrt(2) / scale, SMALLEST_EPSILON), LARGEST_EPSILON)
            return cls.from_noise(level, clip, topic_word_prior)

        def planned(mechanisms: SweepMechanisms) -> list[Event]:
            """The plan of `fit`, where nothing reads topics after the last release."""
            draws = (
                [Repeated(mechanisms.topic_event, max_iter - 1)] if max_iter > 1 else []
            )
            return [Repeated(mechanisms.mechanism.event, max_iter), *draws]

        # `max_iter` calls of `partial_fit` release the same as `fit`, but each call
        # adds to the distance from ideal noise. If the sum can be charged to delta, it
        # covers both ways.
        distance = max_iter * TOTAL_VARIATION
        if not is_chargeable(distance, epsilon, delta):
            distance = TOTAL_VARIATION
        return even_split(
            calibrate(
                lambda scale: planned(even_split(scale)),
                epsilon,
                delta,
                total_variation=distance,
            )
        )

    @classmethod
    def from_noise(
        cls, noise_epsilon: float, count_clip: float, topic_word_prior: float
    ) -> SweepMechanisms:
        """Laplace noise of an epsilon, and the clip."""
        sampling_epsilon = inherent_epsilon(count_clip, topic_word_prior)
        noise = FlooredLaplace(SENSITIVITY / float(noise_epsilon), n_cells=2)
        draw = BoundedRange(sampling_epsilon)
        return cls(noise, draw, count_clip, noise_epsilon, sampling_epsilon)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of a count."""
        if self.mechanism.scale == 0:
            return 0.0
        # floor(L) + 1/2 is symmetric, and geometric to either side of zero
        q = math.exp(-1 / self.mechanism.scale)
        return math.sqrt(q / (1 - q) ** 2 + ((1 + q) / (1 - q) / 2) ** 2)

    def integers(self, n_tokens: int, n_releases: int) -> type[np.signedinteger]:
        """The integer type for the sum of releases of at most `n_tokens` counts."""
        # a draw of noise has two digits
        largest = n_releases * (n_tokens + N_COLUMNS * N_COLUMNS)
        return np.int32 if largest < 2**31 else np.int64


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Releases of word-topic counts by one mechanism: public."""

    total: np.ndarray  # sum of the releases, (n_words, n_components), int32 or int64
    n: int  # of releases
    mechanisms: SweepMechanisms
    is_tested: bool = False  # whether some documents are kept out to test the topics

    @property
    def noise_mean(self) -> float:
        """Mean of the noise in the sum.

        (total - noise_mean) / n are unbiased mean counts.
        """
        return self.n * self.mechanisms.mechanism.mean

    def components(self, topic_word_prior: float) -> np.ndarray:
        """The unbiased counts above zero, plus the prior, (n_components, n_words)."""
        components = (self.total - self.noise_mean).T
        components /= self.n
        np.maximum(components, 0, out=components)
        components += float(topic_word_prior)
        return components
