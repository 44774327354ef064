"""The party of industrial federated topic modeling to the letter: not private."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, logsumexp
from sklearn.utils.validation import check_is_fitted

from dplda._base import BaseTopicModel
from dplda._compat import Interval, Options, _fit_context
from dplda._corpus import Corpus, check_counts, check_table
from dplda._fold_in import LARGEST_PRIOR
from dplda._private_fit import publish
from dplda._progress import rounds
from dplda._warnings import warn_user
from dplda.federated._messages import LocalModel
from dplda.federated._sampler import Topics
from dplda.federated._sentences import SentenceCorpus
from dplda.federated._tokens import TokenMechanism, Tokens, check_size, privatize
from dplda.kernels import _published_iftm
from dplda.privacy import Guarantee, NonPrivate, PrivacyLeakWarning
from dplda.privacy._local_mechanisms import Survivors, ThresholdedLaplace
from dplda.privacy._observation import announce
from dplda.privacy._streams import Purpose, Streams, Words, uniform_integers

COUNTS = "word-topic counts"
HOLE = (
    "raw words propose and weigh the topics, the counts of words in topics are exact, and they are "
    "sent; dividing each topic by its sum is no encryption, for the least entry of a row gives its "
    "counts back (recover_counts)"
)

LARGEST_COUNT = 2.0**53  # beyond it a float holds whole numbers only
MAX_DIVISOR = 1000  # largest least count of a row that `recover_counts` tries


class PublishedIFTMParty(BaseTopicModel):
    """A party of iFTM by Algorithm 1 of [1]_, as printed. **Not private.**

    Laplace noise of scale ``1 / epsilon`` on the one-hot vector of each token enters one factor of
    the sampler, and nothing else: what is sent are exact counts of raw words.
    :class:`dplda.federated.IFTMParty` is the sound form; both send the same messages, so that an
    `IFTMMaster` takes either.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    epsilon : float
        One over the scale of a token's noise, from 0.011 to 100; must be given. [1]_ uses 8 to 11.
        ``inf`` draws no noise.
    noise_threshold : float, default=0.2
        Above 0 and below 1 (tau in [1]_), and at most 10.6 / epsilon: smaller noisy counts are 0.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (alpha).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    max_iter : int, default=50
        Sweeps (local iterations) of `fit`, and of each `refine`.
    n_jobs : int or None, default=None
        Threads of `transform` and `score`; training is sequential. Never changes a result.
    random_state : int, RandomState instance or None, default=None
        None: from the operating system's entropy.
    verbose : int, default=0
        Progress: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Exact counts of words in topics (C^KW in [1]_), plus `topic_word_prior`; not normalized.
        After `refine` it has as many rows as the table that was given.
    n_iter_ : int
        Sweeps run.
    epsilon_, delta_ : float
        Infinity and 0: nothing is proved, and nothing can be.
    published_epsilon_ : float
        The figure of [1]_: `epsilon`, for one token, in any number of rounds. Not a guarantee.
    privacy_ : Guarantee
        Says that there is none, and why.
    n_features_in_ : int
        Size of the vocabulary.

    Warns
    -----
    PrivacyLeakWarning
        In `fit` and `refine`, unless `epsilon` is infinite.

    Notes
    -----
    **Privacy.** Unit: none; one token was meant. Relation: it is blanked, its position stays.
    Sensitivity: unbounded, because the topics of other tokens move with that token. Event:
    ``NonPrivate()``. A word that occurs once is in the support of what is sent with it and not
    without it: no finite epsilon is true at any delta below 1. Nothing is charged to a ledger.

    How [1]_ is read here:

    * Lines 11 to 23 run in the first global iteration too. The print puts them into the ``else``;
      then the first message would hold random topics.
    * Line 22 comes before each sweep, for the first sweep needs a Phi; that of the last sweep would
      be used by nobody. Phi is a draw from the Dirichlet law (7), without a floor.
    * Lines 12 and 13 as printed: both proposals are those of the counts at the beginning of the
      sweep. So are the factors (17) and (20) in the acceptances; the hats of (19) and (22) are live
      counts without the token. A document's table depends on the topics that it moves, so these
      steps do not leave the target (6) invariant.
    * P-hat in (19) and (22) is (8) with the noisy counts, of which those below tau are 0. It is
      not normalized, so that each survivor favors the topics of largest phi, whatever the word:
      with many survivors (tau = 0.2) all tokens end in one topic.
    * (18) and (21) print the proposals' ratio upside down; (19) and (22) do not, and are used.
    * Line 10 draws from the alias table of the raw word.
    * The counts are sent with beta, for a topic without words could not be normalized.

    Noisy counts are rounded down to steps of 1/1024, and cut at tau + 4. Algorithm 2 (sentences)
    has the same hole and is not here.

    See Also
    --------
    dplda.federated.IFTMParty : Reads noisy vectors only; a token costs what is stated.
    recover_counts : What the master learns.

    References
    ----------
    .. [1] D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021; section
       3.1, Algorithm 1.

    Examples
    --------
    >>> import warnings
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.published import PublishedIFTMParty
    >>> from dplda.published import recover_counts
    >>> X = make_topic_corpus(n_docs=50, n_words=30, n_components=3, random_state=0).data
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it says that this is not private
    ...     party = PublishedIFTMParty(n_components=3, epsilon=8.0, max_iter=5).fit(X)
    >>> party.epsilon_, party.published_epsilon_
    (inf, 8.0)
    >>> sent = party.local_model("north", 0, "0" * 64).table
    >>> counts = recover_counts(sent, topic_word_prior=party.topic_word_prior)
    >>> bool((counts.sum(axis=0) == X.sum(axis=0)).all())
    True
    """

    _attack = "published iFTM"
    _parameter_constraints = {
        **BaseTopicModel._parameter_constraints,
        "epsilon": [Interval(Real, 0, 1e9, closed="right"), Options(Real, {math.inf})],
        "noise_threshold": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        epsilon=None,
        noise_threshold=0.2,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        max_iter=50,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.epsilon = epsilon
        self.noise_threshold = noise_threshold
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> PublishedIFTMParty:
        """The first global iteration: draw the noise, and `max_iter` sweeps from random topics.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If epsilon or the threshold is out of the noise's range.
        """
        self._warn()
        mechanism = TokenMechanism.from_name(
            "laplace", float(self.epsilon), float(self.noise_threshold)
        )
        corpus = Corpus.from_counts(check_counts(self, X, reset=True))
        streams = Streams.from_random_state(self.random_state)
        tokens = _noisy_vectors(corpus, mechanism, streams)  # lines 2 to 6
        n_components = int(self.n_components)
        bits = streams.words(Purpose.FIRST_TOPICS, 1, 0, corpus.n_tokens)
        topics = (_uniform(bits) * n_components).astype(np.int32)  # line 7
        return self._sweeps(
            corpus, tokens, _values(mechanism), topics, n_components, streams, first=1
        )

    @_fit_context(prefer_skip_nested_validation=True)
    def refine(self, table: Any) -> PublishedIFTMParty:
        """A later global iteration: `max_iter` sweeps from the table that the master sent.

        Parameters
        ----------
        table : array-like of shape (n_topics, n_features_in_)
            Words in topics, as probabilities or weights.

        Returns
        -------
        self : object
        """
        check_is_fitted(self)
        if not hasattr(self, "_corpus"):
            raise ValueError(
                "this party was copied or unpickled, and copies hold no documents; call fit, or "
                "refine the original"
            )
        self._warn()
        table = check_table(table, "table")
        n_words = self.components_.shape[1]
        if table.shape[1] != n_words or table.min() < 0 or not table.any(axis=1).all():
            raise ValueError(
                f"table must have {n_words} columns (words), no negative entry and no empty row, "
                f"got shape {table.shape}"
            )
        streams = Streams.from_random_state(self.random_state)
        corpus, first = self._corpus, self.n_iter_ + 1
        bits = streams.words(Purpose.FIRST_TOPICS, first, 0, corpus.n_tokens)
        topics = _draw_topics(Topics.from_weights(table), corpus.word, bits)  # lines 9 and 10
        return self._sweeps(
            corpus, self._tokens, self._value, topics, len(table), streams, first=first
        )

    def local_model(self, party: str, round: int, vocabulary: str) -> LocalModel:
        """The party's message to the master: its exact counts, each topic divided by its sum.

        Parameters
        ----------
        party : str
            Name of the party.
        round : int
            The round that it answers.
        vocabulary : str
            `vocabulary_hash` of the columns.

        Returns
        -------
        message : LocalModel
            Its epsilon is infinite.
        """
        check_is_fitted(self)
        totals = self.components_.sum(axis=1, keepdims=True)
        return LocalModel(
            party=party,
            round=round,
            vocabulary=vocabulary,
            table=(self.components_ / totals).astype(np.float32),
            weight=float(totals.sum()),
            epsilon=self.epsilon_,
            delta=self.delta_,
            unit=self.privacy_.unit,
        )

    def _sweeps(
        self,
        corpus: Corpus,
        tokens: Tokens,
        value: NDArray[np.float64],
        topics: NDArray[np.int32],
        n_components: int,
        streams: Streams,
        *,
        first: int,
    ) -> PublishedIFTMParty:
        """Lines 11 to 24 of Algorithm 1; `topics` (n_tokens,) is changed in place."""
        alpha, beta = float(self.doc_topic_prior), float(self.topic_word_prior)
        last = first + self.max_iter - 1
        weights = _count(corpus, topics, n_components) + beta
        for t in rounds(self, first, last):
            log_phi = _draw_log_phi(weights, streams, t)  # line 22
            omega = Topics.from_weights(weights)  # line 13
            n_bits = 4 * corpus.n_tokens
            bits = streams.words(Purpose.PROPOSALS, t, 0, n_bits).reshape(4, -1)
            by_doc = _propose_by_document(corpus, topics, n_components, alpha, bits[0])  # 12, 16
            by_word = _draw_topics(omega, corpus.word, bits[1])  # line 18
            log_uniform = np.log(_uniform(bits[2:]))
            initial = topics.copy()
            for first_token, last_token, found in _pieces(tokens):
                _published_iftm.accept_topics(
                    corpus.doc_ptr, first_token, last_token, corpus.word, topics, initial,
                    by_doc, by_word, log_uniform, found.ptr, found.word, found.level, value,
                    log_phi, omega.phi, alpha, *np.empty((2, n_components), np.int32),
                )  # fmt: skip
            weights = _count(corpus, topics, n_components) + beta
        announce(COUNTS, last, weights)
        publish(
            self,
            self._no_guarantee(streams.seeded),
            components_=weights,  # line 24
            n_iter_=last,
            published_epsilon_=float(self.epsilon),
            _corpus=corpus,
            _tokens=tokens,
            _value=value,
        )
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without the raw tokens, which `refine` needs: a pickle is often shown to others."""
        private = ("_corpus", "_tokens", "_value")
        return {k: v for k, v in super().__getstate__().items() if k not in private}

    def _warn(self) -> None:
        if self.epsilon != math.inf:
            warn_user(
                f"PublishedIFTMParty is not private: {HOLE}; use dplda.federated.IFTMParty",
                PrivacyLeakWarning,
            )

    def _no_guarantee(self, seeded: bool) -> Guarantee:
        scale = 1 / float(self.epsilon)
        mechanism = "exact word-topic counts"
        if scale > 0:
            mechanism += (
                f"; Laplace noise of scale {scale:.4g} on each token's one-hot vector proves "
                f"nothing, because {HOLE}"
            )
        return Guarantee(
            unit="token",
            relation="one token is blanked, its position stays",
            epsilon=math.inf,
            delta=0.0,
            mechanism=mechanism,
            sensitivity=math.inf,
            noise_scale=scale,
            noise_multiplier=0.0,
            seeded=seeded,
            events=(NonPrivate(),),
        )


def recover_counts(sent_model: ArrayLike, *, topic_word_prior: float = 0.0) -> NDArray[np.int64]:
    """Integer counts of words in topics, from a model that was normalized topic by topic.

    The attack on section 3.1.5 of [1]_. A row is (counts + beta) / S, of which S alone is unknown.
    The least entry of the row tells it: it is the one of a word with count 0, or without beta
    (where 0 stays 0) the one of a word with count 1. If this gives no whole numbers, the next count
    is tried for it.

    Parameters
    ----------
    sent_model : array-like of shape (n_components, n_words)
        As the master receives it, float32 or float64.
    topic_word_prior : float, default=0.0
        The beta that was added to the counts. It is public.

    Returns
    -------
    counts : ndarray of shape (n_components, n_words), int64
        With beta the counts themselves, without it up to their greatest common divisor. A row of -1
        where no whole numbers fit to within rounding.

    Raises
    ------
    ValueError
        On a negative entry or an empty row, or a prior out of range.

    Notes
    -----
    **Privacy.** Of `PublishedIFTMParty` the sum over topics is the exact frequency of each
    word in the party's documents. Of the sound one there is nothing to recover but counts of
    imputed words, which are released anyway.

    References
    ----------
    .. [1] D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021.

    Examples
    --------
    >>> from dplda.published import recover_counts
    >>> recover_counts([[0.5, 0.25, 0.25, 0.0]])
    array([[2, 1, 1, 0]])
    """
    table = check_table(sent_model, "sent_model")
    if not (isinstance(topic_word_prior, Real) and 0.0 <= topic_word_prior <= LARGEST_PRIOR):
        raise ValueError(
            f"topic_word_prior must be from 0 to {LARGEST_PRIOR:g}, got {topic_word_prior}"
        )
    if table.min() < 0 or not table.any(axis=1).all():
        raise ValueError("sent_model must have no negative entry and no empty row")
    is_single = getattr(sent_model, "dtype", None) == np.float32
    rounding = 4 * np.finfo(np.float32 if is_single else np.float64).eps
    return np.array([_recover_row(row, float(topic_word_prior), rounding) for row in table])


def _recover_row(row: NDArray[Any], beta: float, rounding: float) -> NDArray[np.int64]:
    least = row[row > 0].min()
    if row.max() / LARGEST_COUNT > least:
        return np.full(len(row), -1)
    for count in range(0 if beta else 1, MAX_DIVISOR + 1):
        weights = row / least * (count + beta)
        whole = np.rint(weights - beta)
        if weights.max() < LARGEST_COUNT and np.all(
            np.abs(weights - beta - whole) <= np.minimum(rounding * weights, 0.1)
        ):
            return whole.astype(np.int64)
    return np.full(len(row), -1)


def _noisy_vectors(corpus: Corpus, mechanism: TokenMechanism, streams: Streams) -> Tokens:
    """A noisy one-hot vector for each token, equation (9), thresholded."""
    pointers = np.arange(corpus.n_tokens + 1)
    units = SentenceCorpus(corpus.word, pointers, corpus.doc_ptr, corpus.n_words)
    check_size(units, mechanism)
    return privatize(units, mechanism, streams)


def _values(mechanism: TokenMechanism) -> NDArray[np.float64]:
    """The noisy count that each level of a survivor stands for."""
    noise = mechanism.noise
    if not isinstance(noise, ThresholdedLaplace):
        return np.ones(1)
    steps = noise.threshold_steps + np.arange(noise.MAX_LEVEL + 1, dtype=np.float64)
    return steps * noise.STEP


def _pieces(tokens: Tokens) -> Iterator[tuple[int, int, Survivors]]:
    """Survivors of some tokens at a time, and which tokens these are."""
    for block, pieces in enumerate(tokens.pieces):
        for index, (first, last) in enumerate(pieces):
            yield first, last, tokens.read(block, index)


def _count(corpus: Corpus, topics: NDArray[np.int32], n_components: int) -> NDArray[np.float64]:
    """C^KW: tokens of each raw word in each topic, (n_components, n_words)."""
    cell = topics.astype(np.int64) * corpus.n_words + corpus.word
    counts = np.bincount(cell, minlength=n_components * corpus.n_words)
    return counts.reshape(n_components, corpus.n_words).astype(np.float64)


def _draw_log_phi(prior: NDArray[np.float64], streams: Streams, round: int) -> NDArray[np.float32]:
    """Logarithms of a Dirichlet draw for each row of `prior`.

    A gamma variable of shape a is one of shape a + 1 times U^(1/a); by logarithms, for the small
    ones would underflow.
    """
    bits = streams.words(Purpose.INITIAL_TABLE, round, 0, 2 * prior.size)
    one, two = _uniform(bits).reshape(2, *prior.shape)
    log_gamma = np.log(gammaincinv(prior + 1, one)) + np.log(two) / prior
    log_phi: NDArray[np.float64] = log_gamma - logsumexp(log_gamma, axis=1, keepdims=True)
    return np.maximum(log_phi, -1e30).astype(np.float32)  # exp of it is 0 anyway


def _draw_topics(model: Topics, word: NDArray[np.int32], bits: Words) -> NDArray[np.int32]:
    """A topic for each word from its alias table, (n_tokens,)."""
    column = uniform_integers(bits, len(model.phi))
    itself = (bits & np.uint64(2**32 - 1)) < model.threshold[word, column]
    return np.where(itself, column, model.alias[word, column]).astype(np.int32)


def _propose_by_document(
    corpus: Corpus, topics: NDArray[np.int32], n_components: int, alpha: float, bits: Words
) -> NDArray[np.int32]:
    """A topic for each token by (17): that of a token of the document, or any one."""
    lengths = np.diff(corpus.doc_ptr)
    length, start = np.repeat(lengths, lengths), np.repeat(corpus.doc_ptr[:-1], lengths)
    position = _uniform(bits) * (length + n_components * alpha)
    other = start + np.minimum(position.astype(np.int64), length - 1)
    anyone = np.clip((position - length) / alpha, 0, n_components - 1)
    return np.where(position < length, topics[other], anyone).astype(np.int32)


def _uniform(bits: Words) -> NDArray[np.float64]:
    """Numbers strictly inside (0, 1)."""
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
