"""LP-LDA and OLP-LDA: a topic model of documents that their owners have randomized.

`LPLDA._collect` randomizes documents on behalf of clients. Everything else reads
reports (or validates them), public numbers and the server's own randomness, and costs
no privacy.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from dplda.core._base import BaseLDA
from dplda.core._corpus import Corpus, check_counts
from dplda.core._fold_in import pad
from dplda.core._private_fit import Interval, PrivateEstimator, exactly_one, publish
from dplda.core._signal import warn_if_weak
from dplda.kernels import _gibbs
from dplda.leaf._compat import StrOptions, _fit_context
from dplda.leaf._messages import rounds
from dplda.local._randomized_response import BUDGETS, RandomizedResponse
from dplda.privacy import Guarantee
from dplda.privacy._streams import Purpose, Reader, Streams, uniform_integers

N_TOP = 10  # words of a topic whose reports are its evidence: as many as of `coherence`
# Largest evidence of words without topics, which the sampler has chosen by chance: 6.4
# of 60 reports, 5.3 of 300, 4.1 of 2,000, in 400 fits (tests/test_lplda.py).
CHANCE = 7.0
CLIENT_PARAMETERS = (*BUDGETS, "delta", "max_doc_words", "ledger")
MADE_BY_CLIENTS = (
    "the rows of X were made by RandomizedResponse, or by a program that does the "
    "same, with the parameters of this estimator and with secret randomness"
)
PUBLIC_PRIOR = (
    "the corpus that fit_prior was given is public: it is used as it is, without any "
    "protection"
)


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """What batches leave behind: functions of reports and a public corpus, and public.

    The evidence of the topics, (n_components,), is `common_words` of each batch,
    weighted by the root of its number of documents.
    """

    prior: np.ndarray  # Dirichlet parameters of the topics, (n_words, n_components)
    counts: np.ndarray  # word-topic counts on top of them
    # of documents of the last batch with each word: mean of the numbers before (mu) and
    # after (eta)
    expected: np.ndarray
    evidence: np.ndarray
    n_docs: int = 0  # of the last batch
    n_iter: int = 0  # sweeps so far
    n_batches: int = 0  # of reports so far
    n_reports: int = 0  # of all batches
    has_public: bool = False  # whether a public corpus came first


class LPLDA(PrivateEstimator, BaseLDA):
    """Local differential privacy: collapsed Gibbs sampling on randomized reports.

    Documents are what is reported.

    LP-LDA [1]_. The owner of a document reports which words it contains, with some bits
    wrong (:class:`RandomizedResponse`). The server estimates the number of false ones,
    and trains on the reports. No server is trusted with a document.

    Parameters
    ----------
    n_components
    epsilon, bit_epsilon, delta, max_doc_words : optional
        The randomizer of the clients, as in :class:`RandomizedResponse`. Give exactly
        one of the first two. After `fit`, ``epsilon_ <= epsilon``; ``inf`` trains on
        the presence of words as it is, without privacy.
    randomized : bool, default=False
        Whether the rows of `X` are reports that clients made with the four parameters
        above. If so, the estimator randomizes nothing and spends no privacy.
    reconstruction : {"background", "bits"}, default="background"
        Treatment of false ones. "bits" is the method of the paper: bits of random
        documents are cleared or set until each word is in as many documents as
        estimated. It clears true and false ones alike. "background" keeps all bits and
        samples one more topic, whose rates are the expected false ones of each word.
        That topic takes the words that do not fit the topics of their document. Its
        perplexity was lower at each measured `bit_epsilon` up to 3.
    max_iter : int, default=100
        Number of sweeps of each call.
    doc_topic_prior
    topic_word_prior
    ledger : Ledger, str, path-like or None, default=None
        Ledger that :class:`RandomizedResponse` charges with the reports of each call,
        under its own name. Not used with ``randomized=True``.
    n_jobs
    random_state : int, RandomState instance or None, default=None
        Seed of the training and of the reports, if they are drawn here. Their guarantee
        is void against anyone who knows or guesses it (`SeededNoiseWarning`).
    verbose

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Number of reported words in each topic, plus `topic_word_prior`; not normalized.
    n_iter_ : int
        Number of sweeps of all calls.
    n_batches_ : int
        Number of batches of reports: calls, or what :class:`OLPLDA` makes of one.
    topic_evidence_ : ndarray of shape (n_components,)
        How much oftener the top words of each topic share reports than by chance, in
        standard errors. The reports of a first call have chosen the words, those of a
        later call have not.
    weak_topics_ : ndarray of shape (n_components,), bool
        Topics with less evidence than chance can have: likely noise. None is without
        noise, or if there is one topic.
    epsilon_, delta_, bit_epsilon_, word_epsilon_, document_epsilon_, flip_probability_
        Guarantee of one report of a document, as in :class:`RandomizedResponse`.
    privacy_

    See Also
    --------
    RandomizedResponse : The client's side.
    MemoizedReports : The client's side, with one report for each document.
    OLPLDA : Trains on batches, and forgets.
    SubLDA : Needs a trusted server, and far less noise.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation: one document is replaced by
    any other. Trust: its owner only. Sensitivity, mechanism and events are those of
    :class:`RandomizedResponse`; everything else reads reports only. With
    ``randomized=True`` the model carries the clients' guarantee, and
    `privacy_.assumptions` states its conditions.

    Reports state which words are present, not how often, after the cap of
    `max_doc_words`.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training with Differential Privacy", IEEE TIFS 2020; section V.

    Examples
    --------
    >>> from dplda import LPLDA, RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> client = RandomizedResponse(epsilon=40.0, max_doc_words=10).fit(X)
    >>> reports = client.transform(X)
    >>> server = LPLDA(3, epsilon=40.0, max_doc_words=10, randomized=True).fit(reports)
    >>> round(server.epsilon_, 2), round(server.bit_epsilon_, 2)
    (40.0, 2.0)
    """

    _attack = "report"
    _promise = RandomizedResponse._promise
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        **{
            name: RandomizedResponse._parameter_constraints[name]
            for name in CLIENT_PARAMETERS
        },
        "randomized": ["boolean"],
        "reconstruction": [StrOptions({"background", "bits"})],
    }
    # all rows of a call are a batch, its counts add up, and no earlier batch enters an
    # estimate
    batch_size, correlation, prior_weight, prior_variance = None, 1.0, 0.0, None

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        bit_epsilon=None,
        delta=1e-6,
        max_doc_words=100,
        randomized=False,
        reconstruction="background",
        max_iter=100,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> LPLDA:
        """Train on documents, which are randomized first, or on reports: zeros, ones.

        Raises
        ------
        ValueError
            If reports hold other numbers than zeros and ones, if the budget or another
            parameter of the randomizer is out of range.
        BudgetError
            If the budget of the ledger is too small. No document has been randomized
            then.

        Warns
        -----
        SeededNoiseWarning
            If `random_state` is given and documents are randomized.
        LowSignalWarning
            If fewer than half of the topics stand out of the noise of the reports.
        """
        return self._train(X, getattr(self, "_public", None), self.batch_size)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> LPLDA:
        """Continue with documents, or reports, that no earlier call has seen.

        Documents are randomized first. The method raises and warns as `fit` does, and
        refuses another randomizer or number of topics.

        Notes
        -----
        **Privacy.** Each document appears in exactly one call, so `epsilon_` remains
        the cost of a single report and never exceeds `epsilon`. A document that is
        reported in two calls costs twice as much, which `epsilon_` does not count. A
        ledger cannot tell documents apart, and each call charges it.
        """
        return self._train(X, getattr(self, "_state", None), None)

    def _train(self, X: Any, state: State | None, batch_size: int | None) -> LPLDA:
        """Learn from documents or reports, on the state so far; None starts anew.

        Without a batch size, all rows are a batch.
        """
        n_components = int(self.n_components)
        n_batches = state.n_batches if state is not None else 0
        if state is not None and state.counts.shape[1] != n_components:
            origin = "fit" if n_batches else "fit_prior"
            raise ValueError(
                f"{origin} had n_components={state.counts.shape[1]}, got "
                f"{n_components}; call {origin} to start from scratch"
            )
        earlier = self.privacy_ if n_batches else None
        client, reports = self._collect(X, state)
        # from here on everything reads reports, and the guarantee does not depend on
        # the streams
        streams = Streams.from_random_state(self.random_state)
        n_docs, n_words = reports.shape
        if state is None:
            empty = np.zeros((n_words, n_components))
            prior = empty + float(self.topic_word_prior)
            state = State(prior, empty, np.zeros(n_words), np.zeros(n_components))
        step = int(batch_size or n_docs)
        batches = [reports[i : i + step] for i in range(0, n_docs, step)]  # public
        first = state.n_iter + 1
        sweeps = rounds(self, first, state.n_iter + len(batches) * self.max_iter)
        for number, own_sweeps in itertools.groupby(
            sweeps, lambda t: (t - first) // self.max_iter
        ):
            state = self._learn(
                state, batches[number], client.flip_probability_, streams, own_sweeps
            )
        self._publish(client, state, earlier)
        return self

    def _collect(
        self, X: Any, state: State | None
    ) -> tuple[RandomizedResponse, sp.csr_array]:
        """The fitted randomizer of the clients, and reports.

        The reports are theirs, or of documents at once.
        """
        width = None if state is None else len(state.counts)
        n_earlier = 0  # enters the seed of the reports
        if state is not None and state.n_batches:
            n_earlier = state.n_iter if self.correlation == 1 else state.n_batches
        check = _check_reports if self.randomized else check_counts
        read = partial(
            check, self, X, reset=width is None
        )  # private, unless X holds reports
        # the size of the vocabulary is public, and enters the cost before X is read
        try:
            n_words = width or np.shape(X)[1]
        except (TypeError, ValueError, IndexError):  # no matrix: `read` says why
            n_words = read().shape[1]
        client = self._client(n_words, n_earlier)  # public
        if n_earlier and client._law != self._law:
            raise ValueError(
                "partial_fit continues with reports of the same randomizer, and "
                "epsilon, bit_epsilon, delta or max_doc_words have changed; call fit "
                "to start from scratch"
            )
        if self.randomized:
            return client, read()  # public
        # The release. One document is one row, and its report depends on this row and
        # on its own coins only. Replacing the document changes at most 2 *
        # max_doc_words bits of that row, which `client.privacy_` charges. The ledger is
        # charged before `read` looks at a document.
        reports = client._report(read, client.ledger)  # public
        return client, reports

    def _client(self, n_words: int, n_earlier: int | None) -> RandomizedResponse:
        """The randomizer of the clients; None: it draws nothing, whatever the seed.

        A later call with an integer seed flips other bits.
        """
        seed = None if self.randomized or n_earlier is None else self.random_state
        if n_earlier and isinstance(seed, Integral):
            streams = Streams.from_random_state(seed)
            seed = int(streams.reader(Purpose.CLIENT_SEED, n_earlier).words(1)[0] >> 32)
        own = {name: getattr(self, name) for name in CLIENT_PARAMETERS}
        exactly_one(type(self).__name__, **{name: own[name] for name in BUDGETS})
        # the guarantee depends on their number only
        columns = sp.csr_array((1, n_words))
        return RandomizedResponse(**own, random_state=seed).fit(columns)

    def _learn(
        self,
        state: State,
        reports: sp.csr_array,
        flip: float,
        streams: Streams,
        sweeps: Iterable[int],
    ) -> State:
        """One batch. All public."""
        n_docs, n_words = reports.shape
        n_reported = np.bincount(reports.indices, minlength=n_words)
        estimate = estimate_counts(n_reported, n_docs, flip)  # equation 8
        mean = estimate
        if state.n_docs:
            # equation 21
            mean = np.minimum(state.expected * (n_docs / state.n_docs), n_docs)
            # counts without noise need no prior
            weight = self.prior_weight if flip else 0.0
            if self.prior_variance is not None:  # Theorem 6
                weight = weight_of_prior(n_docs, flip, float(self.prior_variance))
            estimate = weight * mean + (1.0 - weight) * estimate  # equation 19
        documents, background = reports, np.zeros(n_words)
        if self.reconstruction == "bits":
            reader = streams.reader(Purpose.RECONSTRUCTION, state.n_iter + 1)
            documents = set_and_clear(reports, estimate, reader)
        else:
            background = false_ones(n_reported, estimate, n_docs, flip)
        prior, kept = state.prior, state.counts
        if self.correlation < 1:  # equation 10
            prior, kept = prior + float(self.correlation) * kept, np.zeros_like(kept)
        counts = topic_counts(
            documents,
            prior + kept,
            background,
            doc_topic_prior=self.doc_topic_prior,
            streams=streams,
            sweeps=sweeps,
            first_round=state.n_iter + 1,
        )
        after = dataclasses.replace(
            state,
            prior=prior,
            counts=kept + counts,
            expected=0.5 * (mean + estimate),
            n_docs=n_docs,
            n_iter=state.n_iter + int(self.max_iter),
            n_batches=state.n_batches + 1,
            n_reports=state.n_reports + n_docs,
        )
        # Topics that these reports did not make say more of them than the topics that
        # they made.
        words = _top_words(state if state.n_iter else after)
        if min(words.shape) < 2:  # nothing to stand out of
            return after
        evidence = math.sqrt(state.n_reports) * state.evidence
        evidence += math.sqrt(n_docs) * common_words(reports, words)
        return dataclasses.replace(
            after, evidence=evidence / math.sqrt(after.n_reports)
        )

    def _publish(
        self,
        client: RandomizedResponse,
        state: State,
        earlier: Guarantee | None,
        **attributes: Any,
    ) -> None:
        """Set the fitted attributes, with the guarantee of one report.

        It does not depend on the number of documents, because each appears in one call
        only.
        """
        clients = client.privacy_
        seeded, assumptions = clients.seeded, clients.assumptions
        if state.has_public:
            assumptions += (PUBLIC_PRIOR,)
        if self.randomized:
            assumptions += (MADE_BY_CLIENTS,)
        if earlier is not None:
            seeded = seeded or earlier.seeded
            assumptions += tuple(a for a in earlier.assumptions if a not in assumptions)
        words = _top_words(state)
        is_tested = (
            state.n_batches and min(words.shape) > 1 and clients.epsilon < math.inf
        )
        publish(
            self,
            dataclasses.replace(clients, assumptions=assumptions, seeded=seeded),
            components_=(state.prior + state.counts).T,
            n_iter_=state.n_iter,
            n_batches_=state.n_batches,
            bit_epsilon_=client.bit_epsilon_,
            word_epsilon_=client.word_epsilon_,
            document_epsilon_=client.document_epsilon_,
            flip_probability_=client.flip_probability_,
            topic_evidence_=state.evidence,
            weak_topics_=(state.evidence < CHANCE) & bool(is_tested),
            _law=client._law,
            _state=state,
            **attributes,
        )
        warn_if_weak(self)


class OLPLDA(LPLDA):
    """Local differential privacy, online: Gibbs sampling on batches of noisy reports.

    OLP-LDA [1]_ is :class:`LPLDA` in batches. The topics of a batch are the prior of
    the next one, and its word counts reduce the noise of the next estimates. A public
    corpus can precede the first batch (`fit_prior`), and `fit` takes the rows in order.

    Parameters
    ----------
    n_components
    epsilon, bit_epsilon, delta, max_doc_words : optional
        The randomizer of the clients, as in :class:`RandomizedResponse`.
    randomized
    reconstruction : {"background", "bits"}, default="bits"
        Treatment of false ones, as in :class:`LPLDA`. The perplexity of "background"
        was lower after `fit_prior`. Without `fit_prior`, it was higher at a
        `bit_epsilon` of about 1.
    correlation : float, default=0.5
        Weight, from 0 to 1, of the counts of a batch in the prior of the next batch
        (lambda).
    prior_weight : float, default=0.4
        Weight, from 0 to 1, of the earlier batches in the estimated number of documents
        with a word (omega).
    prior_variance : float or None, default=None
        Variance of the number of documents with a word around the value that earlier
        batches predict (sigma squared). If it is given, it decides on the weight, by
        Theorem 6 of [1]_, and `prior_weight` is not used.
    batch_size : int, default=160
        Number of documents of a batch in `fit`; the last batch has the remaining ones.
        A call of `partial_fit` is one batch.
    max_iter : int, default=50
        Number of sweeps over each batch.
    doc_topic_prior, topic_word_prior, ledger, n_jobs, random_state, verbose : optional
        As in :class:`LPLDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Word-topic counts of the last batch plus the prior from all earlier ones; not
        normalized. The other attributes are those of :class:`LPLDA`.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`). Relation, trust, sensitivity, mechanism
    and events are those of :class:`LPLDA`. Batches hold different documents, so all of
    them together cost a document the epsilon of its single report. The corpus of
    `fit_prior` is not protected.

    Algorithm 2 of [1]_ contradicts the equations of its text in three lines; the text
    is implemented (``docs/proofs_local.md``). Means are clipped to the size of the
    batch. Without `fit_prior` the first batch has a flat prior and the unbiased
    estimate. ``epsilon=inf`` has exact counts and estimates nothing: O-LDA [2]_ on the
    presence of words.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training with Differential Privacy", IEEE TIFS 2020; section VI.
    .. [2] L. AlSumait, D. Barbara, C. Domeniconi, "On-line LDA: Adaptive Topic Models
       for Mining Text Streams", ICDM 2008.

    Examples
    --------
    >>> from dplda import OLPLDA, RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> client = RandomizedResponse(epsilon=40.0, max_doc_words=10).fit(X)
    >>> reports = client.transform(X)
    >>> server = OLPLDA(3, epsilon=40.0, max_doc_words=10, randomized=True)
    >>> server = server.fit_prior(X[:50]).partial_fit(reports[50:200])
    >>> server = server.partial_fit(reports[200:])
    >>> round(server.epsilon_, 2), round(server.bit_epsilon_, 2), server.n_batches_
    (40.0, 2.0, 2)
    """

    _parameter_constraints = {
        **LPLDA._parameter_constraints,
        "correlation": [Interval(Real, 0, 1, closed="both")],
        "prior_weight": [Interval(Real, 0, 1, closed="both")],
        "prior_variance": [None, Interval(Real, 0, 1e18, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        bit_epsilon=None,
        delta=1e-6,
        max_doc_words=100,
        randomized=False,
        reconstruction="bits",
        correlation=0.5,
        prior_weight=0.4,
        prior_variance=None,
        batch_size=160,
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
    def fit_prior(self, X_public: Any, y: Any = None) -> OLPLDA:
        """Start with a public corpus.

        Its topics and word counts are the prior of the first batch.

        A later `fit` starts from this corpus again.

        Parameters
        ----------
        X_public : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts, not reports. **They must be public**: the model holds them
            without noise.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            A model of the public corpus.

        Notes
        -----
        **Privacy.** These documents are not protected. The fitted attributes state the
        guarantee of the batches that follow.
        """
        X = check_counts(self, X_public, reset=True)  # public
        n_docs, n_words = X.shape
        client = self._client(n_words, None)
        prior = np.full((n_words, int(self.n_components)), float(self.topic_word_prior))
        counts = topic_counts(
            X,
            prior,
            np.zeros(n_words),
            doc_topic_prior=self.doc_topic_prior,
            streams=Streams.from_random_state(self.random_state),
            sweeps=rounds(self, 1, self.max_iter),
            first_round=1,
        )
        n_docs_with = np.bincount(X.indices, minlength=n_words).astype(float)
        state = State(
            prior,
            counts,
            n_docs_with,
            np.zeros(counts.shape[1]),
            n_docs,
            int(self.max_iter),
            has_public=True,
        )
        self._publish(client, state, None, _public=state)
        return self


def _top_words(state: State) -> np.ndarray:
    """Top words of topics, (n_components, n_top): frequent, rare in other topics."""
    table = (state.prior + state.counts).T
    rank = table**2 / table.sum(axis=0)
    return np.argsort(-rank, axis=1, kind="stable")[
        :, : min(N_TOP, len(state.prior) // 2)
    ]


def _check_reports(model: BaseLDA, X: Any, *, reset: bool) -> sp.csr_array:
    """Validate reports with `check_counts`; they may hold zeros and ones only."""
    reports = check_counts(model, X, reset=reset, whole=False)  # an error follows below
    unrounded = X.data if sp.issparse(X) else np.asarray(X)
    if (reports.data != 1).any() or (np.rint(unrounded) != unrounded).any():
        raise ValueError(
            f"{type(model).__name__} with randomized=True takes reports, which hold "
            "zeros and ones only, and X holds other numbers; pass the result of "
            "RandomizedResponse.transform, or word counts with randomized=False"
        )
    return reports


def topic_counts(
    documents: sp.csr_array,
    word_prior: np.ndarray,
    background: np.ndarray,
    *,
    doc_topic_prior: float,
    streams: Streams,
    sweeps: Iterable[int],
    first_round: int,
) -> np.ndarray:
    """Word-topic counts, by collapsed Gibbs sampling with a background topic.

    Counts and Dirichlet parameters `word_prior` have shape (n_words, n_components).
    `background` (n_words,) is the expected number of tokens of a document that belong
    to no topic; they are not counted. In round 1, topics start equally likely, and the
    background with its rate. The first sweep of a later batch draws topics from the
    prior and the tokens sampled before.
    """
    corpus = Corpus.from_counts(documents)
    n_words, n_components = word_prior.shape
    shape = (n_words, n_components + 1)  # the background's column is the last
    prior, counts = (pad(np.zeros(shape), dtype) for dtype in (np.float32, np.int32))
    prior[:, :n_components] = word_prior
    topics = np.full(corpus.n_tokens, -1, np.int32)
    if first_round == 1:
        words = streams.reader(Purpose.FIRST_TOPICS, first_round).words(corpus.n_tokens)
        n_tokens = np.bincount(corpus.word, minlength=n_words)
        share = background * documents.shape[0] / np.maximum(n_tokens, 1)
        # the low half of a random word decides for the background, the high half for
        # the topic
        low, uniform = (
            words & np.uint64(0xFFFFFFFF),
            uniform_integers(words, n_components),
        )
        topics[:] = np.where(low * 2.0**-32 < share[corpus.word], n_components, uniform)
        tokens = (np.ones(corpus.n_tokens, np.int32), (corpus.word, topics))
        counts[:, : n_components + 1] = sp.coo_array(tokens, shape=shape).toarray()
    totals = counts[:, :n_components].sum(axis=0, dtype=np.int64)
    sizes = word_prior.sum(axis=0, dtype=np.float64)
    rates = background.astype(np.float32)
    scratch = np.empty((4, counts.shape[1]), np.float32)
    for t in sweeps:
        bits = streams.reader(Purpose.TOPICS, t).words(corpus.n_tokens)
        _gibbs.background_sweep(
            corpus.word,
            corpus.doc_ptr,
            topics,
            counts,
            totals,
            prior,
            sizes,
            rates,
            doc_topic_prior,
            bits,
            scratch,
        )
    return counts[:, :n_components].astype(np.int64)


# Estimates from reports. Equations and theorems are those of the paper, whose f is
# twice `flip`, the probability that a bit is reported wrongly. Counts and estimates
# have shape (n_words,).


def estimate_counts(n_reported: np.ndarray, n_docs: int, flip: float) -> np.ndarray:
    """Number of documents with each word, by the number of its reports (equation 8).

    ``(n_reported - n_docs * flip) / (1 - 2 * flip)`` is unbiased; it is clipped to [0,
    n_docs].
    """
    return np.clip((n_reported - n_docs * flip) / (1.0 - flip - flip), 0.0, n_docs)


def weight_of_prior(n_docs: int, flip: float, prior_variance: float) -> float:
    """Omega of Theorem 6: variance of the estimate over its sum with `prior_variance`.

    It is the variance of the unclipped estimate, for any given documents.
    """
    variance = n_docs * flip * (1.0 - flip) / (1.0 - flip - flip) ** 2
    return variance / (variance + prior_variance)


def false_ones(
    n_reported: np.ndarray, counts: np.ndarray, n_docs: int, flip: float
) -> np.ndarray:
    """Number of reported ones of each word, per document, that `counts` do not explain.

    If `counts` are the unbiased estimate without clipping, the result is the
    expectation ``flip * (1 - counts / n_docs)``.
    """
    return np.maximum(n_reported - (1.0 - flip) * counts, 0.0) / n_docs


def set_and_clear(
    reports: sp.csr_array, counts: np.ndarray, reader: Reader
) -> sp.csr_array:
    """Set or clear random bits until each word is in as many documents as `counts`.

    Steps 3 to 5 of the paper's section V-B. Every choice of documents is equally
    likely, up to ``n_docs * 2**-32``. Time and memory are proportional to the number of
    ones before and after. `counts` (n_words,) are rounded to whole numbers from 0 to
    n_docs.
    """
    n_docs, n_words = reports.shape
    word = reports.indices.astype(np.int64)
    doc = np.repeat(np.arange(n_docs), np.diff(reports.indptr))
    n_ones = np.bincount(word, minlength=n_words)
    target = np.rint(counts).astype(np.int64)

    # clear: each word stays in the documents with the smallest random keys
    order = np.lexsort((reader.words(len(word)), word))
    rank = np.arange(len(word)) - np.repeat(np.cumsum(n_ones) - n_ones, n_ones)
    stays = order[rank < target[word[order]]]
    ones = word[stays] * n_docs + doc[stays]

    # set: documents are drawn until enough new ones are found. A word that most
    # documents get would need many draws; keys choose its documents instead.
    ones.sort()
    missing = np.maximum(target - n_ones, 0)
    crowded = np.flatnonzero((missing > 0) & (2 * target > n_docs)).tolist()
    random_cells = [_free_cells(ones, w, n_docs, missing[w], reader) for w in crowded]
    ones = np.sort(np.concatenate([ones, *random_cells]))
    missing[crowded] = 0
    while missing.any():
        rows = uniform_integers(reader.words(int(missing.sum())), n_docs)
        cells = np.unique(np.repeat(np.arange(n_words), missing) * n_docs + rows)
        cells = np.setdiff1d(cells, ones, assume_unique=True)
        missing -= np.bincount(cells // n_docs, minlength=n_words)
        ones = np.union1d(ones, cells)
    word, doc = np.divmod(ones, n_docs)
    documents = sp.csr_array((np.ones(len(ones)), (doc, word)), shape=reports.shape)
    documents.sort_indices()
    return documents


def _free_cells(
    ones: np.ndarray, word: int, n_docs: int, n: int, reader: Reader
) -> np.ndarray:
    """`n` random cells of a word that are not among the sorted `ones`."""
    cells = np.arange(word * n_docs, (word + 1) * n_docs)
    first, last = np.searchsorted(ones, (cells[0], cells[-1] + 1))
    free = np.setdiff1d(cells, ones[first:last], assume_unique=True)
    return free[np.argsort(reader.words(len(free)), kind="stable")[:n]]


def common_words(reports: sp.csr_array, words: np.ndarray) -> np.ndarray:
    """How much oftener a topic's words share reports than by chance, (K,).

    In standard errors.

    `words` (K, m) are the top words of each topic. Let s be how many of them a report
    has. Where bits are independent, s has a known law, given the frequencies of the
    bits. With f = (s - E[s])^2, the mean of f over n reports is compared with E[f]: it
    is as far away with probability at most exp(-n I), where I is the exponent of
    Chernoff's bound. The result is the number z, of the sign of the difference, for
    which exp(-z^2 / 2) is this bound.

    Long documents have more of all words. With c_w, the covariance of a bit with the
    sum of all other bits of the report, one such factor explains the covariance c_v c_w
    / sum(c) of two words. It is taken out of the mean where sum(c) is above its noise.
    """
    n_docs, n_words = reports.shape
    share = np.bincount(reports.indices, minlength=n_words) / n_docs
    own = share * (1 - share)
    total = np.diff(reports.indptr) - share.sum()
    factor = reports.T @ total / n_docs - own
    noise = own.sum() * np.sqrt(2 / n_docs)
    factor *= np.sqrt(1 / factor.sum()) if factor.sum() > 3 * noise else 0.0

    n_topics, n_top = words.shape
    law = np.zeros((n_topics, n_top + 1))
    law[:, 0] = 1
    for p in share[words].T[:, :, None]:  # one word after another
        law = law * (1 - p) + np.roll(law, 1, axis=1) * p
    member = sp.csr_array(
        (np.ones(words.size), (words.ravel(), np.repeat(np.arange(n_topics), n_top))),
        shape=(n_words, n_topics),
    )
    mean = share[words].sum(axis=1)
    f = np.square(np.arange(n_top + 1) - mean[:, None])
    found = np.square((reports @ member).toarray() - mean).mean(axis=0)
    explained = factor[words]
    found -= explained.sum(axis=1) ** 2 - np.square(explained).sum(axis=1)

    # The exponent is largest where the tilted law has the mean that was found.
    low, high = np.full((2, n_topics, 1), [[[-50.0]], [[50.0]]])
    for _ in range(60):
        tilt = (low + high) / 2
        tilted = law * np.exp(tilt * f - (tilt * f).max(axis=1, keepdims=True))
        above = ((tilted * f).sum(axis=1) > found * tilted.sum(axis=1))[:, None]
        low, high = np.where(above, low, tilt), np.where(above, tilt, high)
    growth = logsumexp(tilt * f, b=law, axis=1)
    exponent = n_docs * np.maximum(tilt[:, 0] * found - growth, 0)
    return np.sign(found - (law * f).sum(axis=1)) * np.sqrt(2 * exponent)
